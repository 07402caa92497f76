"""Errors, times, compile figures and facts of one record, as HTML.

Each function takes a record (see `records.schema`) and returns one HTML block without blank lines,
or "" where the record has nothing of the kind. The caller decides whether a record may be shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from warpshelf.core import units
from warpshelf.core.markup import attribute, escape
from warpshelf.records import limits
from warpshelf.records.limits import tie as ties
from warpshelf.records.schema import Record
from warpshelf.render import provenance, rates


def table(caption: str, head: Sequence[str], body: Iterable[str], kind: str) -> str:
    """A captioned table in a box of its own that scrolls sideways; `body` holds HTML rows.

    `caption` is plain text whose first line is the title.
    """
    title, _, rest = caption.partition("\n")
    note = f"<br><span>{escape(rest)}</span>" if rest else ""
    # Spaces between cells keep words apart for the search index and for copied text.
    cells = " ".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        f'<div class="ws-scroll" role="region" tabindex="0" aria-label={attribute(title)}>'
        f'<table class="ws-table ws-{kind}"><caption><strong>{escape(title)}</strong>{note}'
        f"</caption>\n<thead><tr>{cells}</tr></thead>\n" + "\n".join(body) + "\n</table></div>"
    )


def row(name: str, cells: Iterable[str], note: str = "", classes: str = "") -> str:
    """A table row: `name` and `note` are plain text, `cells` plain text as well."""
    extra = f" <small>{escape(note)}</small>" if note else ""
    opening = f'<tr class="{classes}">' if classes else "<tr>"
    rest = "".join(f" <td>{escape(cell)}</td>" for cell in cells)
    return f'{opening}<th scope="row">{escape(name)}{extra}</th>{rest}</tr>'


def wide(name: str, text: str, columns: int, note: str = "") -> str:
    """A row whose one cell spans `columns`: a skip or a failure with its reason."""
    extra = f" <small>{escape(note)}</small>" if note else ""
    return (
        f'<tr class="ws-missing"><th scope="row">{escape(name)}{extra}</th> '
        f'<td colspan="{columns}">{escape(text)}</td></tr>'
    )


def _group(name: str, rows: Iterable[str], columns: int) -> str:
    head = f'<tr><th scope="rowgroup" colspan="{columns}">{escape(name)}</th></tr>'
    return f"<tbody>{head}" + "\n".join(rows) + "</tbody>"


def missing(result: dict[str, Any]) -> str:
    """Why a result has no figures, in words; "" where it passed."""
    if result["verdict"] == "passed":
        return ""
    return f"{result['verdict']}: {result.get('reason') or 'no reason given'}"


def _note(result: dict[str, Any]) -> str:
    return "peer" if result["role"] == "peer" else ""


def _margin(result: dict[str, Any]) -> str:
    found = units.finite(result.get("error"))
    if found == 0:
        return "exact"
    return units.ratio(units.divided(result.get("tolerance"), found))


def _closeness(result: dict[str, Any]) -> float:
    """How much of its tolerance a result uses up; larger is worse."""
    found = units.finite(result.get("error")) or 0.0
    used = units.divided(found, result.get("tolerance"))
    return used if used is not None else found


def accuracy(record: Record) -> str:
    """The worst error of each variant and peer, and all cases in a fold below."""
    cases = record.get("cases", [])
    if not any(case["results"] for case in cases):
        return ""
    names = units.labels([case["case"] for case in cases])
    found: dict[tuple[str, str], list[tuple[str, dict[str, Any]]]] = {}
    for name, case in zip(names, cases, strict=True):
        for result in case["results"]:
            found.setdefault((result["role"], result["name"]), []).append((name, result))
    body = []
    for (_, name), results in found.items():
        passed = [pair for pair in results if pair[1]["verdict"] == "passed"]
        reasons = list(dict.fromkeys(missing(r) for _, r in results if r["verdict"] != "passed"))
        note = _note(results[0][1])
        if not passed:
            body.append(wide(name, "; ".join(reasons), 5, note))
            continue
        case, worst = max(passed, key=lambda pair: _closeness(pair[1]))
        count = f"{len(passed)} of {len(results)}"
        if reasons:
            count += " (" + "; ".join(reasons) + ")"
        figures = (units.error(worst.get("error")), units.error(worst.get("tolerance")))
        body.append(row(name, (*figures, _margin(worst), case, count), note))
    count = f"{len(cases)} cases" if len(cases) != 1 else "one case"
    caption = f"Worst error over {count}\n{provenance.line(record)}"
    head = ("Variant", "Error", "Tolerance", "Margin", "Worst case", "Cases passed")
    summary = table(caption, head, ["<tbody>", *body, "</tbody>"], "accuracy")
    return summary + "\n" + _all_cases(record, cases, names)


def _all_cases(record: Record, cases: list[dict[str, Any]], names: list[str]) -> str:
    groups = []
    for name, case in zip(names, cases, strict=True):
        rows = []
        for result in case["results"]:
            if reason := missing(result):
                rows.append(wide(result["name"], reason, 5, _note(result)))
                continue
            errors = [result.get(k) for k in ("error", "tolerance")]
            largest = [result.get(k) for k in ("max_error", "max_error_limit")]
            # Only variants with a yardstick have a limit on the largest error.
            shown = [units.error(v) if v is not None else "none" for v in largest]
            cells = (*map(units.error, errors), _margin(result), *shown)
            rows.append(row(result["name"], cells, _note(result)))
        groups.append(_group(name, rows, 6))
    named = units.sides([case["case"] for case in cases])
    head = ("Variant", "Error", "Tolerance", "Margin", "Largest error", "Its limit")
    caption = f"Errors in every case{f' ({named})' if named else ''}\n{provenance.line(record)}"
    inner = table(caption, head, groups, "cases")
    return f'<details class="ws-fold"><summary>All cases</summary>\n{inner}\n</details>'


def timed(record: Record) -> list[dict[str, Any]]:
    """The timed cases of a record."""
    return [case for case in record.get("cases", []) if case["timed"] and case["results"]]


def time_of(result: dict[str, Any]) -> dict[str, Any] | None:
    """The time of a result that passed and was timed."""
    return result.get("time") if result["verdict"] == "passed" else None


def _standing(time: dict[str, Any], times: list[dict[str, Any]]) -> str:
    fastest = min(times, key=lambda t: t["median"])
    if len(times) < 2 or not ties(time, fastest):
        return ""
    if sum(ties(other, fastest) for other in times) > 1:
        return "tied for fastest"
    return "fastest"


def _against(result: dict[str, Any], yardstick: dict[str, Any] | None) -> str:
    if yardstick is None:
        return "no peer"
    if result is yardstick:
        return "the yardstick"
    time, other = time_of(result), time_of(yardstick)
    if other is None:
        state = "untimed" if "untimed" in yardstick else yardstick["verdict"]
        return f"{yardstick['name']} {state}"
    if time is None or ties(time, other):
        return "tie"
    return units.ratio(units.divided(other["median"], time["median"]))


def timing(record: Record) -> str:
    """Times of each timed case: rate, shares of the limits, and speed against the first peer."""
    cases = timed(record)
    if not cases:
        return ""
    groups, yardsticks = [], set()
    for name, case in zip(units.labels([c["case"] for c in cases]), cases, strict=True):
        limit = rates.bound(record, case)
        times = [t for r in case["results"] if (t := time_of(r))]
        yardstick = next((r for r in case["results"] if r["role"] == "peer"), None)
        yardsticks.add(yardstick["name"] if yardstick else "")
        rows = []
        for result in case["results"]:
            time = time_of(result)
            if time is None:
                reason = missing(result) or result.get("untimed") or "passed, but was not timed"
                rows.append(wide(result["name"], reason, 7, _note(result)))
                continue
            speed = limit.rate(time["median"]) if limit else None
            standing = _standing(time, times)
            cells = (
                units.seconds(time["median"]),
                f"{units.seconds(time['p20'])} to {units.seconds(time['p80'])}",
                units.integer(time["n"]) + (f" ({time['void']} void)" if time.get("void") else ""),
                units.rate(speed, limit.unit) if limit else "cost not stated",
                units.share(units.divided(speed, limit.peak if limit else None)),
                units.share(units.divided(speed, limit.ceiling if limit else None)),
                _against(result, yardstick),
            )
            note = ", ".join(filter(None, (_note(result), standing)))
            rows.append(row(result["name"], cells, note, "ws-fastest" if standing else ""))
        groups.append(_group(name, rows, 8))
    peer = yardsticks.pop() if len(yardsticks) == 1 else ""
    named = units.sides([c["case"] for c in cases])
    title = f"Times of {len(cases)} cases" if len(cases) > 1 else "Times of one case"
    caption = f"{title}{f' ({named})' if named else ''}\n{provenance.line(record)}"
    if reasons := limits.slowed(record):
        caption += f"; the GPU was slowed down meanwhile: {', '.join(reasons)}"
    against = f"Speed against {peer or 'the first peer'}"
    head = ("Variant", "Median", "p20 to p80", "n", "Rate", "Of peak", "Of measured limit", against)
    return table(caption, head, groups, "timing")


FIGURES = (
    ("registers", "registers", str),
    ("spilled", "spilled_bytes", units.size),
    ("shared memory", "shared_bytes", units.size),
    ("matrix instructions", "matrix_instructions", lambda value: "yes" if value else "no"),
)


def compiled(record: Record) -> str:
    """Registers, spills, shared memory and matrix instructions by architecture."""
    found = record.get("compiled", [])
    if not found:
        return ""
    archs = sorted({item["arch"] for item in found}, key=lambda arch: (len(arch), arch))

    def key(item: dict[str, Any]) -> tuple[str, str, str]:
        return item["kernel"], item["variant"], item["language"]

    groups = []
    for (kernel, variant, language), items in groupby(sorted(found, key=key), key):
        entries = list(items)
        rows = []
        for name, field, show in FIGURES:
            cells = []
            for arch in archs:
                # One kernel compiled for several shapes may have several figures.
                values = sorted({item[field] for item in entries if item["arch"] == arch})
                cells.append(", ".join(map(show, values)) or "not compiled")
            rows.append(row(name, cells))
        groups.append(_group(f"{kernel} ({variant}, {language})", rows, len(archs) + 1))
    compilers = ", ".join(sorted({item["compiler"] for item in found}))
    caption = f"Compiled ahead of time by {compilers}\n{units.day(record['date'])}"
    return table(caption, ("Kernel", *archs), groups, "compiled")


def _difference(fact: dict[str, Any]) -> str:
    # Whole numbers may be past what a float holds, so they are subtracted as they are.
    away = fact["value"] - fact["expected"]
    if away == 0:
        return "none"
    relative = units.divided(away, abs(fact["expected"]))
    return units.share(relative) if relative is not None else units.number(away)


MOST_FACTS = 24  # rows of a table that is shown unasked


def facts(record: Record, sources: dict[str, str] | None = None) -> str:
    """The facts of a program or model; `sources` gives the titles of reading ids."""
    rows = []
    for fact in record.get("facts", []):
        unit = f" {fact['unit']}" if fact["unit"] else ""
        # Where 0 is expected there is nothing to be relative to: the tolerance is absolute.
        allowed = units.share if fact["expected"] else units.error
        tolerance = allowed(fact["tolerance"]) if fact["tolerance"] else "exact"
        cells = (
            units.number(fact["value"]) + unit,
            units.number(fact["expected"]) + unit,
            _difference(fact),
            tolerance,
            (sources or {}).get(fact["source"], fact["source"]),
        )
        rows.append(row(fact["name"], cells))
    if not rows:
        return ""
    head = ("Fact", "Value", "Expected", "Difference", "Allowed", "Source of what is expected")
    caption = f"Facts checked\n{provenance.line(record)}"
    found = table(caption, head, ["<tbody>", *rows, "</tbody>"], "facts")
    if len(rows) <= MOST_FACTS:
        return found
    summary = f"All {len(rows)} facts, each within what is allowed"
    return f'<details class="ws-fold"><summary>{summary}</summary>\n{found}\n</details>'

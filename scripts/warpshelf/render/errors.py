"""How wrong each variant and peer of a record is, against what is allowed."""

from __future__ import annotations

from typing import Any

from warpshelf.core import units
from warpshelf.records.schema import Record
from warpshelf.render import provenance, tables


def _margin(result: dict[str, Any]) -> str:
    found = units.finite(result.get("error"))
    if found == 0:
        return "exact"
    return units.ratio(units.divided(result.get("tolerance"), found))


def closeness(result: dict[str, Any]) -> float:
    """How much of its tolerance a result uses up; larger is worse."""
    found = units.finite(result.get("error")) or 0.0
    used = units.divided(found, result.get("tolerance"))
    return used if used is not None else found


def worst(record: Record) -> dict[str, Any] | None:
    """The result of ours that comes closest to its tolerance; None where none passed."""
    passed = (
        result
        for case in record.get("cases", ())
        for result in case["results"]
        if result["role"] == "variant" and result["verdict"] == "passed"
    )
    return max(passed, key=closeness, default=None)


Found = dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]


def _by_name(cases: list[dict[str, Any]], names: list[str]) -> Found:
    """The results of each variant and peer, each with the label of its case."""
    found: Found = {}
    for name, case in zip(names, cases, strict=True):
        for result in case["results"]:
            found.setdefault((result["role"], result["name"]), []).append((name, result))
    return found


def _with(found: Found, role: str, verdict: str) -> dict[str, list[dict[str, Any]]]:
    """The results of that `verdict`, by the name of the variant or peer; none is left out."""
    return {
        name: [result for _, result in results if result["verdict"] == verdict]
        for (of, name), results in found.items()
        if of == role
    }


def answer(cases: list[dict[str, Any]], found: Found) -> str:
    """What the tables say, in one line; only what ran is said to be right."""
    passed = _with(found, "variant", "passed")
    ran = [name for name, results in passed.items() if results]
    parts = [f"{tables.count(len(cases), 'case')}, {tables.count(len(ran), 'variant')}"]
    if failed := sum(map(len, _with(found, "variant", "failed").values())):
        parts[0] += f": {tables.count(failed, 'check')} failed"
    elif ran:
        parts[0] += ": all within tolerance"
        closest = max((result for name in ran for result in passed[name]), key=closeness)
        error, allowed = (units.error(closest.get(key)) for key in ("error", "tolerance"))
        parts.append(f"largest error {error} of {allowed}")
    parts += [f"{name} did not run here" for name in passed if name not in ran]
    for name, results in _with(found, "peer", "failed").items():
        if results:
            parts.append(f"the peer {name} is wrong in {tables.count(len(results), 'case')}")
    return "; ".join(parts)


def accuracy(record: Record) -> str:
    """The worst error of each variant and peer, and of all cases, under what they come to."""
    cases = record.get("cases", [])
    if not any(case["results"] for case in cases):
        return ""
    names = units.labels([case["case"] for case in cases])
    found = _by_name(cases, names)
    body = []
    for (_, name), results in found.items():
        passed = [pair for pair in results if pair[1]["verdict"] == "passed"]
        unpassed = (tables.missing(r) for _, r in results if r["verdict"] != "passed")
        reasons = list(dict.fromkeys(unpassed))
        note = tables.note_of(results[0][1])
        if not passed:
            body.append(tables.wide(name, "; ".join(reasons), 5, note))
            continue
        case, worst = max(passed, key=lambda pair: closeness(pair[1]))
        count = f"{len(passed)} of {len(results)}"
        if reasons:
            count += " (" + "; ".join(reasons) + ")"
        figures = (units.error(worst.get("error")), units.error(worst.get("tolerance")))
        body.append(tables.row(name, (*figures, _margin(worst), case, count), note))
    caption = f"Worst error over {tables.count(len(cases), 'case')}\n{provenance.line(record)}"
    head = ("Variant", "Error", "Tolerance", "Margin", "Worst case", "Cases passed")
    summary = tables.table(caption, head, ["<tbody>", *body, "</tbody>"], "accuracy")
    inner = f"{summary}\n{_all_cases(record, cases, names)}"
    return tables.fold(answer(cases, found), inner, len(body), "errors")


def _all_cases(record: Record, cases: list[dict[str, Any]], names: list[str]) -> str:
    groups = []
    for name, case in zip(names, cases, strict=True):
        rows = []
        for result in case["results"]:
            if reason := tables.missing(result):
                rows.append(tables.wide(result["name"], reason, 5, tables.note_of(result)))
                continue
            errors = [result.get(k) for k in ("error", "tolerance")]
            largest = [result.get(k) for k in ("max_error", "max_error_limit")]
            # Only variants with a yardstick have a limit on the largest error.
            shown = [units.error(v) if v is not None else "none" for v in largest]
            cells = (*map(units.error, errors), _margin(result), *shown)
            rows.append(tables.row(result["name"], cells, tables.note_of(result)))
        groups.append(tables.group(name, rows, 6))
    named = units.sides([case["case"] for case in cases])
    head = ("Variant", "Error", "Tolerance", "Margin", "Largest error", "Its limit")
    caption = f"Errors in every case{f' ({named})' if named else ''}\n{provenance.line(record)}"
    inner = tables.table(caption, head, groups, "cases")
    return f'<details class="ws-fold"><summary>All cases</summary>\n{inner}\n</details>'

"""The figures of one record in tables: errors, times, what compilers made, configurations."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.records import limits
from warpshelf.records.limits import times_tie
from warpshelf.records.schema import Record
from warpshelf.records.space import SpaceRow, parse_row
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.tables import Case, Result, Time, format_count


def tolerance_share(result: Result) -> float:
    """How much of its tolerance a result uses up; larger is worse."""
    found = units.finite_float(result.get("error")) or 0.0
    used = units.safe_divide(found, result.get("tolerance"))
    return used if used is not None else found


def passed_results(record: Record) -> list[tuple[Case, Result]]:
    """Each result of ours that passed, with its case."""
    return [
        (case, result)
        for case in record.get("cases", ())
        for result in case["results"]
        if result["verdict"] == "passed" and result["role"] == "variant"
    ]


def worst_result(record: Record) -> Result | None:
    """The result of ours that comes closest to its tolerance; None where none passed."""
    return max((one for _, one in passed_results(record)), key=tolerance_share, default=None)


def _results_by_name(record: Record) -> dict[tuple[str, str], list[tuple[str, Result]]]:
    """All results by role and name, each with the label of its case."""
    found: dict[tuple[str, str], list[tuple[str, Result]]] = {}
    for label, case in tables.label_cases(record.get("cases", [])):
        for result in case["results"]:
            found.setdefault((result["role"], result["name"]), []).append((label, result))
    return found


def accuracy_summary(record: Record) -> str:
    """What the tables say, in one line; only what ran counts as right; "" without results."""
    if not (found := _results_by_name(record)):
        return ""
    verdicts = {key: [result["verdict"] for _, result in own] for key, own in found.items()}
    ours = {name: own for (role, name), own in verdicts.items() if role == "variant"}
    idle = [name for name, own in ours.items() if "passed" not in own]
    ran = format_count(len(ours) - len(idle), "variant")
    parts = [f"{format_count(len(record['cases']), 'case')}, {ran}"]
    worst = worst_result(record)
    if failed := sum(own.count("failed") for own in ours.values()):
        parts[0] += f": {format_count(failed, 'check')} failed"
    elif worst:
        parts[0] += ": all within tolerance"
        error, allowed = (units.format_error(worst.get(key)) for key in ("error", "tolerance"))
        parts.append(f"largest error {error} of {allowed}")
    parts += [f"{name} did not run here" for name in idle]
    for (role, name), own in verdicts.items():
        if role == "peer" and (wrong := own.count("failed")):
            parts.append(f"the peer {name} is wrong in {format_count(wrong, 'case')}")
    return "; ".join(parts)


def _error_cells(result: Result) -> tuple[str, str, str]:
    """Error, tolerance and margin."""
    error, allowed = result.get("error"), result.get("tolerance")
    margin = units.format_ratio(units.safe_divide(allowed, error)) if error != 0 else "exact"
    return units.format_error(error), units.format_error(allowed), margin


def _name_dimensions(cases: list[Case]) -> str:
    named = units.dimension_names([case["case"] for case in cases])
    return f" ({named})" if named else ""


def render_accuracy(record: Record) -> str:
    """The worst error of each variant and peer, and of all cases, under a summary line."""
    cases, origin = record.get("cases", []), snippet_page.origin_line(record)
    if not (found := _results_by_name(record)):
        return ""
    groups = []
    for label, case in tables.label_cases(cases):
        rows = []
        for result in case["results"]:
            name, note = result["name"], tables.note_peer(result["role"])
            if reason := tables.missing_reason(result):
                rows.append(tables.spanning_row(name, reason, 5, note))
                continue
            # Only variants with a yardstick have a limit on the largest error.
            largest = [result.get(key) for key in ("max_error", "max_error_limit")]
            shown = ["none" if one is None else units.format_error(one) for one in largest]
            rows.append(tables.table_row(name, (*_error_cells(result), *shown), note))
        groups.append(tables.row_group(label, rows, 6))
    caption = f"Errors in every case{_name_dimensions(cases)}\n{origin}"
    head = ("Variant", "Error", "Tolerance", "Margin", "Largest error", "Its limit")
    every = tables.render_fold("All cases", tables.render_table(caption, head, groups, "cases"))
    body = []
    for (role, name), results in found.items():
        passed = [pair for pair in results if pair[1]["verdict"] == "passed"]
        reasons = dict.fromkeys(filter(None, (tables.missing_reason(r) for _, r in results)))
        said, note = "; ".join(reasons), tables.note_peer(role)
        if not passed:
            body.append(tables.spanning_row(name, said, 5, note))
            continue
        label, worst = max(passed, key=lambda pair: tolerance_share(pair[1]))
        count = f"{len(passed)} of {len(results)}" + (f" ({said})" if said else "")
        body.append(tables.table_row(name, (*_error_cells(worst), label, count), note))
    caption = f"Worst error over {format_count(len(cases), 'case')}\n{origin}"
    head = ("Variant", "Error", "Tolerance", "Margin", "Worst case", "Cases passed")
    summary = tables.render_table(caption, head, body, "accuracy")
    return tables.render_fold(accuracy_summary(record), f"{summary}\n{every}", "errors", len(body))


def compare_times(first: Time, second: Time) -> str:
    """How many times faster the second is, in words."""
    if times_tie(first, second):
        return "tie"
    return units.format_ratio(units.safe_divide(first["median"], second["median"]))


def _format_speedup(result: Result, time: Time, yardstick: Result | None) -> str:
    if yardstick is None or result is yardstick:
        return "the yardstick" if yardstick else "no peer"
    if other := tables.result_time(yardstick):
        return compare_times(other, time)
    return f"{yardstick['name']} {'untimed' if 'untimed' in yardstick else yardstick['verdict']}"


def render_timing(record: Record, apart: str = "") -> str:
    """Times of each timed case: rate, shares of the limits, and speed against the first peer."""
    cases = tables.timed_cases(record)
    if not cases:
        return ""
    groups, yardsticks = [], set()
    for label, case in tables.label_cases(cases):
        limit = tables.case_bound(record, case)
        times = [time for _, time in tables.timed_results(case)]
        fastest = min(times, key=lambda time: time["median"], default={})
        leading = [time for time in times if len(times) > 1 and times_tie(time, fastest)]
        yardstick = next((one for one in case["results"] if one["role"] == "peer"), None)
        yardsticks.add(yardstick["name"] if yardstick else "")
        rows = []
        for result in case["results"]:
            note, time = tables.note_peer(result["role"]), tables.result_time(result)
            if time is None:
                untimed = result.get("untimed", "passed, but was not timed")
                reason = tables.missing_reason(result) or untimed
                rows.append(tables.spanning_row(result["name"], reason, 7, note))
                continue
            speed = limit.rate(time["median"]) if limit else None
            standing = "tied for fastest" if len(leading) > 1 else "fastest"
            note = ", ".join(filter(None, (
                note, standing * (time in leading), "with the host's part" * bool(time.get("host")),
            )))  # fmt: skip
            void = f" ({time['void']} void)" if time.get("void") else ""
            cells = (
                units.format_seconds(time["median"]),
                f"{units.format_seconds(time['p20'])} to {units.format_seconds(time['p80'])}",
                units.format_integer(time["n"]) + void,
                units.format_rate(speed, limit.unit) if limit else "cost not stated",
                units.format_percent(units.safe_divide(speed, limit.peak if limit else None)),
                units.format_percent(units.safe_divide(speed, limit.ceiling if limit else None)),
                _format_speedup(result, time, yardstick),
            )
            marked = ' class="ws-fastest"' if time in leading else ""
            rows.append(tables.table_row(result["name"], cells, note, marked))
        groups.append(tables.row_group(label, rows, 8))
    peer = yardsticks.pop() if len(yardsticks) == 1 else ""
    title = f"Times of {format_count(len(cases), 'case')}{_name_dimensions(cases)}"
    caption = f"{title}\n{snippet_page.origin_line(record, apart)}"
    if reasons := limits.slowdown_reasons(record):
        caption += f"; the GPU was throttled meanwhile: {', '.join(reasons)}"
    against = f"Speed against {peer or 'the first peer'}"
    head = ("Variant", "Median", "p20 to p80", "n", "Rate", "Of peak", "Of measured limit", against)
    return tables.render_table(caption, head, groups, "timing")


FIGURES = (
    ("registers", "registers", str),
    ("spilled", "spilled_bytes", units.format_bytes),
    ("shared memory", "shared_bytes", units.format_bytes),
    ("matrix instructions", "matrix_instructions", lambda value: "yes" if value else "no"),
)


def render_compiled(record: Record) -> str:
    """Registers, spills, shared memory and matrix instructions, under a summary line."""
    if not (found := record.get("compiled", [])):
        return ""
    kernel_key = itemgetter("kernel", "variant", "language")
    archs = sorted({item["arch"] for item in found}, key=lambda arch: (len(arch), arch))
    groups = []
    for (kernel, variant, language), items in groupby(sorted(found, key=kernel_key), kernel_key):
        entries, rows = list(items), []
        for name, field, show in FIGURES:
            # One kernel compiled for several shapes may have several figures.
            values = [{item[field] for item in entries if item["arch"] == arch} for arch in archs]
            cells = (", ".join(map(show, sorted(own))) or "not compiled" for own in values)
            rows.append(tables.table_row(name, cells))
        groups.append(tables.row_group(f"{kernel} ({variant}, {language})", rows, len(archs) + 1))
    compilers = ", ".join(sorted({item["compiler"] for item in found}))
    caption = f"Compiled ahead of time by {compilers}\n{units.format_date(record['date'])}"
    inner = tables.render_table(caption, ("Kernel", *archs), groups, "compiled")
    most = max(item["registers"] for item in found)
    worst, spills = max(found, key=lambda item: item["spilled_bytes"]), "no spills"
    if worst["spilled_bytes"] > 0:
        size = units.format_bytes(worst["spilled_bytes"])
        spills = f"at most {size} spilled, by {worst['kernel']} on {worst['arch']}"
    made = f"{format_count(len(groups), 'kernel')}, at most {most} registers, {spills}"
    answer = f"Compiled for {', '.join(archs)}: {made}"
    return tables.render_fold(answer, inner, "compilation", len(groups) * len(FIGURES))


SHOWN = 8  # configurations of the table, from the best on
NEAR = 0.98  # of the optimum: what counts as found
MAIN = "sm_90"  # whose configurations the table has, where there are several
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
Ordered = list[tuple[float, SpaceRow]]  # configurations, the best first, each as a share of it


def _format_whole(value: float) -> str:
    return units.format_number(round(value))


HEADS = {  # what each figure of a configuration is called, and how it is written
    "registers": ("Registers", _format_whole), "warps": ("Warps of an SM", _format_whole),
    "cycles": ("Cycles, at least", _format_whole), "n": ("Samples", _format_whole),
    "spilled_bytes": ("Spilled", units.format_bytes),
    "shared_bytes": ("Shared memory", units.format_bytes),
    "median": ("Median time", units.format_seconds),
    "p20": ("20th percentile", units.format_seconds),
    "p80": ("80th percentile", units.format_seconds),
}  # fmt: skip


def render_space(record: Record) -> str:
    """The curve of all configurations and the table of the best, folded; "" without a space."""
    if "space" not in record:
        return ""
    space, figures = record["space"], record["space"]["figures"]
    timed = "median" in figures
    cost = figures.index("median" if timed else "cycles")
    found: dict[str, Ordered] = {}
    for target in sorted(space["rows"], key=architectures.sm_version):
        rows = [parse_row(line) for line in space["rows"][target]]
        if "spilled_bytes" in figures:  # no bound has in what spills
            spilled = figures.index("spilled_bytes")
            rows = [row for row in rows if not row.figures[spilled]] or rows
        rows.sort(key=lambda row: row.figures[cost])
        found[target] = [(rows[0].figures[cost] / row.figures[cost], row) for row in rows]
    case, origin = units.case_labels([space["timed"]])[0], snippet_page.origin_line(record)
    note = (
        f"Least cycles of the busiest SM at {case}, from code compiled and executed on a CPU: a "
        f"bound, not a time. Configurations that spill are left out. {origin}."
    )
    if timed:
        note = f"Median times at {case}. {origin}."
    main = MAIN if MAIN in found else next(iter(found))
    table = _best_configs_table(space, found[main], main, origin)
    near = {target: sum(share >= NEAR for share, _ in own) for target, own in found.items()}
    told = ", ".join(f"{number} on {target}" for target, number in near.items())
    count = len(next(iter(space["rows"].values())))
    how = "timed" if timed else "compiled and counted, none timed"
    answer = f"All {count} configurations {how}: within 2 % of the best are {told}"
    return tables.render_fold(answer, f"{_cost_curve(found, note)}\n{table}", "space")


def _round_percent(share: float, digits: int) -> str:
    return units.format_percent(float(units.format_significant(share, digits)))


def _cost_curve(found: dict[str, Ordered], note: str) -> str:
    """Shares of the optimum, the best configuration first."""
    count = max(map(len, found.values()))
    x, y = svg.x_scale(1, count), svg.y_scale(0, 1)
    step, _ = svg.nice_step(count)
    places = [1.0, *(step * n for n in range(1, int(count / step) + 1))]
    levels = [(level, units.format_percent(level)) for level in LEVELS]
    parts = [
        *svg.draw_y_axis(y, levels, "of the best"),
        *svg.draw_x_axis(x, svg.label_ticks(places), "configurations, the best first"),
    ]
    legend = []
    for index, (target, ordered) in enumerate(found.items()):
        shares = [share for share, _ in ordered]
        middle = len(shares) // 2
        places_of = ((x(n), y(share)) for n, share in enumerate(shares, 1))
        parts.append(svg.draw_polyline(places_of, f"ws-curve ws-s{index % svg.COLOURS}"))
        parts.append(svg.draw_mark(x(middle + 1), y(shares[middle]), index))
        half, last = (_round_percent(share, 2) for share in (shares[middle], shares[-1]))
        legend.append((target, f": {len(shares)}, middle {half}, last {last}"))
    return svg.render_plot("Each configuration against the best of all", parts, legend, note)


def _best_configs_table(space: dict[str, Any], ordered: Ordered, target: str, origin: str) -> str:
    body = []
    heads = [HEADS[name] for name in space["figures"]]
    for place, (share, row) in (*enumerate(ordered[:SHOWN], 1), (len(ordered), ordered[-1])):
        shown = [show(value) for (_, show), value in zip(heads, row.figures, strict=True)]
        cells = (*row.values, _round_percent(share, 3), *shown)
        body.append(tables.table_row(str(place), cells))
    names = (one["name"] for one in space["parameters"])
    head = ("Place", *names, "Of the best", *(name for name, _ in heads))
    caption = f"The best configurations on {target}, and the last\n{origin}"
    return tables.render_table(caption, head, body, "space")

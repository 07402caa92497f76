"""The figures of one record in tables: errors, times, what compilers made, configurations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.records import limits
from warpshelf.records import space as rows
from warpshelf.records.limits import times_tie
from warpshelf.records.schema import Record
from warpshelf.records.space import SpaceRow
from warpshelf.render import snippet_page, svg, tables


def _format_margin(result: dict[str, Any]) -> str:
    found = units.finite_float(result.get("error"))
    if found == 0:
        return "exact"
    return units.format_ratio(units.safe_divide(result.get("tolerance"), found))


def tolerance_share(result: dict[str, Any]) -> float:
    """How much of its tolerance a result uses up; larger is worse."""
    found = units.finite_float(result.get("error")) or 0.0
    used = units.safe_divide(found, result.get("tolerance"))
    return used if used is not None else found


def worst_result(record: Record) -> dict[str, Any] | None:
    """The result of ours that comes closest to its tolerance; None where none passed."""
    passed = (
        result
        for case in record.get("cases", ())
        for result in case["results"]
        if result["role"] == "variant" and result["verdict"] == "passed"
    )
    return max(passed, key=tolerance_share, default=None)


Found = dict[tuple[str, str], list[tuple[str, dict[str, Any]]]]


def _group_by_function(cases: list[dict[str, Any]], names: list[str]) -> Found:
    """The results of each variant and peer, each with the label of its case."""
    found: Found = {}
    for name, case in zip(names, cases, strict=True):
        for result in case["results"]:
            found.setdefault((result["role"], result["name"]), []).append((name, result))
    return found


def _filter_results(found: Found, role: str, verdict: str) -> dict[str, list[dict[str, Any]]]:
    """The results of that `verdict`, by the name of the variant or peer; none is left out."""
    return {
        name: [result for _, result in results if result["verdict"] == verdict]
        for (of, name), results in found.items()
        if of == role
    }


def _accuracy_summary(cases: list[dict[str, Any]], found: Found) -> str:
    """What the tables say, in one line; only what ran is said to be right."""
    passed = _filter_results(found, "variant", "passed")
    ran = [name for name, results in passed.items() if results]
    parts = [
        f"{tables.format_count(len(cases), 'case')}, {tables.format_count(len(ran), 'variant')}"
    ]
    if failed := sum(map(len, _filter_results(found, "variant", "failed").values())):
        parts[0] += f": {tables.format_count(failed, 'check')} failed"
    elif ran:
        parts[0] += ": all within tolerance"
        closest = max((result for name in ran for result in passed[name]), key=tolerance_share)
        error, allowed = (units.format_error(closest.get(key)) for key in ("error", "tolerance"))
        parts.append(f"largest error {error} of {allowed}")
    parts += [f"{name} did not run here" for name in passed if name not in ran]
    for name, results in _filter_results(found, "peer", "failed").items():
        if results:
            parts.append(f"the peer {name} is wrong in {tables.format_count(len(results), 'case')}")
    return "; ".join(parts)


def render_accuracy(record: Record) -> str:
    """The worst error of each variant and peer, and of all cases, under what they come to."""
    cases = record.get("cases", [])
    if not any(case["results"] for case in cases):
        return ""
    names = units.case_labels([case["case"] for case in cases])
    found = _group_by_function(cases, names)
    body = []
    for (_, name), results in found.items():
        passed = [pair for pair in results if pair[1]["verdict"] == "passed"]
        unpassed = (tables.missing_reason(r) for _, r in results if r["verdict"] != "passed")
        reasons = list(dict.fromkeys(unpassed))
        note = tables.role_note(results[0][1])
        if not passed:
            body.append(tables.spanning_row(name, "; ".join(reasons), 5, note))
            continue
        case, worst = max(passed, key=lambda pair: tolerance_share(pair[1]))
        count = f"{len(passed)} of {len(results)}"
        if reasons:
            count += " (" + "; ".join(reasons) + ")"
        figures = (
            units.format_error(worst.get("error")),
            units.format_error(worst.get("tolerance")),
        )
        body.append(tables.table_row(name, (*figures, _format_margin(worst), case, count), note))
    caption = (
        f"Worst error over {tables.format_count(len(cases), 'case')}\n"
        f"{snippet_page.origin_line(record)}"
    )
    head = ("Variant", "Error", "Tolerance", "Margin", "Worst case", "Cases passed")
    summary = tables.render_table(caption, head, ["<tbody>", *body, "</tbody>"], "accuracy")
    inner = f"{summary}\n{_all_cases_table(record, cases, names)}"
    return tables.render_fold(_accuracy_summary(cases, found), inner, len(body), "errors")


def _all_cases_table(record: Record, cases: list[dict[str, Any]], names: list[str]) -> str:
    groups = []
    for name, case in zip(names, cases, strict=True):
        rows = []
        for result in case["results"]:
            if reason := tables.missing_reason(result):
                rows.append(
                    tables.spanning_row(result["name"], reason, 5, tables.role_note(result))
                )
                continue
            errors = [result.get(k) for k in ("error", "tolerance")]
            largest = [result.get(k) for k in ("max_error", "max_error_limit")]
            # Only variants with a yardstick have a limit on the largest error.
            shown = [units.format_error(v) if v is not None else "none" for v in largest]
            cells = (*map(units.format_error, errors), _format_margin(result), *shown)
            rows.append(tables.table_row(result["name"], cells, tables.role_note(result)))
        groups.append(tables.row_group(name, rows, 6))
    named = units.dimension_names([case["case"] for case in cases])
    head = ("Variant", "Error", "Tolerance", "Margin", "Largest error", "Its limit")
    caption = (
        f"Errors in every case{f' ({named})' if named else ''}\n{snippet_page.origin_line(record)}"
    )
    inner = tables.render_table(caption, head, groups, "cases")
    return f'<details class="ws-fold"><summary>All cases</summary>\n{inner}\n</details>'


def _fastest_note(time: dict[str, Any], times: list[dict[str, Any]]) -> str:
    fastest = min(times, key=lambda t: t["median"])
    if len(times) < 2 or not times_tie(time, fastest):
        return ""
    if sum(times_tie(other, fastest) for other in times) > 1:
        return "tied for fastest"
    return "fastest"


def _format_speedup(result: dict[str, Any], yardstick: dict[str, Any] | None) -> str:
    if yardstick is None:
        return "no peer"
    if result is yardstick:
        return "the yardstick"
    time, other = tables.result_time(result), tables.result_time(yardstick)
    if other is None:
        state = "untimed" if "untimed" in yardstick else yardstick["verdict"]
        return f"{yardstick['name']} {state}"
    if time is None or times_tie(time, other):
        return "tie"
    return units.format_ratio(units.safe_divide(other["median"], time["median"]))


def render_timing(record: Record, apart: str = "") -> str:
    """Times of each timed case: rate, shares of the limits, and speed against the first peer.

    `apart` tells the record from others of the same kind of device, where there are any.
    """
    cases = tables.timed_cases(record)
    if not cases:
        return ""
    groups, yardsticks = [], set()
    for name, case in zip(units.case_labels([c["case"] for c in cases]), cases, strict=True):
        limit = tables.case_bound(record, case)
        times = [t for r in case["results"] if (t := tables.result_time(r))]
        yardstick = next((r for r in case["results"] if r["role"] == "peer"), None)
        yardsticks.add(yardstick["name"] if yardstick else "")
        rows = []
        for result in case["results"]:
            time = tables.result_time(result)
            if time is None:
                reason = (
                    tables.missing_reason(result)
                    or result.get("untimed")
                    or "passed, but was not timed"
                )
                rows.append(
                    tables.spanning_row(result["name"], reason, 7, tables.role_note(result))
                )
                continue
            speed = limit.rate(time["median"]) if limit else None
            standing = _fastest_note(time, times)
            cells = (
                units.format_seconds(time["median"]),
                f"{units.format_seconds(time['p20'])} to {units.format_seconds(time['p80'])}",
                units.format_integer(time["n"])
                + (f" ({time['void']} void)" if time.get("void") else ""),
                units.format_rate(speed, limit.unit) if limit else "cost not stated",
                units.format_percent(units.safe_divide(speed, limit.peak if limit else None)),
                units.format_percent(units.safe_divide(speed, limit.ceiling if limit else None)),
                _format_speedup(result, yardstick),
            )
            note = ", ".join(filter(None, (tables.role_note(result), standing)))
            rows.append(
                tables.table_row(result["name"], cells, note, "ws-fastest" if standing else "")
            )
        groups.append(tables.row_group(name, rows, 8))
    peer = yardsticks.pop() if len(yardsticks) == 1 else ""
    named = units.dimension_names([c["case"] for c in cases])
    title = f"Times of {len(cases)} cases" if len(cases) > 1 else "Times of one case"
    origin = ", ".join(filter(None, (snippet_page.origin_line(record), apart)))
    caption = f"{title}{f' ({named})' if named else ''}\n{origin}"
    if reasons := limits.slowdown_reasons(record):
        caption += f"; the GPU was slowed down meanwhile: {', '.join(reasons)}"
    against = f"Speed against {peer or 'the first peer'}"
    head = ("Variant", "Median", "p20 to p80", "n", "Rate", "Of peak", "Of measured limit", against)
    return tables.render_table(caption, head, groups, "timing")


FIGURES = (
    ("registers", "registers", str),
    ("spilled", "spilled_bytes", units.format_bytes),
    ("shared memory", "shared_bytes", units.format_bytes),
    ("matrix instructions", "matrix_instructions", lambda value: "yes" if value else "no"),
)


def _compile_summary(found: list[dict[str, Any]], archs: list[str]) -> str:
    """What the figures say, in one line."""
    kernels = {(item["kernel"], item["variant"], item["language"]) for item in found}
    most = max(item["registers"] for item in found)
    worst = max(found, key=lambda item: item["spilled_bytes"])
    spills = "no spills"
    if worst["spilled_bytes"] > 0:
        where = f"by {worst['kernel']} on {worst['arch']}"
        spills = f"at most {units.format_bytes(worst['spilled_bytes'])} spilled, {where}"
    made = f"{tables.format_count(len(kernels), 'kernel')}, at most {most} registers, {spills}"
    return f"Compiled for {', '.join(archs)}: {made}"


def render_compiled(record: Record) -> str:
    """Registers, spills, shared memory and matrix instructions, under what they come to."""
    found = record.get("compiled", [])
    if not found:
        return ""
    archs = sorted({item["arch"] for item in found}, key=lambda arch: (len(arch), arch))

    def kernel_key(item: dict[str, Any]) -> tuple[str, str, str]:
        return item["kernel"], item["variant"], item["language"]

    groups = []
    for (kernel, variant, language), items in groupby(sorted(found, key=kernel_key), kernel_key):
        entries = list(items)
        rows = []
        for name, field, show in FIGURES:
            cells = []
            for arch in archs:
                # One kernel compiled for several shapes may have several figures.
                values = sorted({item[field] for item in entries if item["arch"] == arch})
                cells.append(", ".join(map(show, values)) or "not compiled")
            rows.append(tables.table_row(name, cells))
        groups.append(tables.row_group(f"{kernel} ({variant}, {language})", rows, len(archs) + 1))
    compilers = ", ".join(sorted({item["compiler"] for item in found}))
    caption = f"Compiled ahead of time by {compilers}\n{units.format_date(record['date'])}"
    inner = tables.render_table(caption, ("Kernel", *archs), groups, "compiled")
    return tables.render_fold(
        _compile_summary(found, archs), inner, len(groups) * len(FIGURES), "compilation"
    )


SHOWN = 8  # configurations of the table, from the best on
NEAR = 0.98  # of the optimum: what counts as found
MAIN = "sm_90"  # whose configurations the table has, where there are several
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def render_space(record: Record) -> str:
    """The curve of all configurations and the table of the best, folded; "" without a space."""
    if "space" not in record:
        return ""
    found = {
        target: sorted(_without_spills(record, lines), key=lambda row: _config_cost(record, row))
        for target, lines in sorted(
            record["space"]["rows"].items(), key=lambda one: architectures.sm_version(one[0])
        )
    }
    main = MAIN if MAIN in found else next(iter(found))
    curve = svg.render_figure(_cost_curve(record, found), _space_note(record))
    inner = f"{curve}\n{_best_configs_table(record, found[main], main)}"
    return tables.render_fold(_space_summary(record, found), inner, tables.FEW + 1, "space")


def _without_spills(record: Record, lines: Sequence[str]) -> list[SpaceRow]:
    """The configurations that do not spill, as far as it is known: no bound has it in."""
    figures: list[str] = record["space"]["figures"]
    found = [rows.parse_row(line) for line in lines]
    if "spilled_bytes" not in figures:
        return found
    at = figures.index("spilled_bytes")
    return [row for row in found if not row.figures[at]] or found


def _config_cost(record: Record, row: SpaceRow) -> float:
    name = "median" if _has_times(record) else "cycles"
    figures: list[str] = record["space"]["figures"]
    return row.figures[figures.index(name)]


def _has_times(record: Record) -> bool:
    return "median" in record["space"]["figures"]


def _count_near_best(record: Record, ordered: Sequence[SpaceRow]) -> int:
    best = _config_cost(record, ordered[0])
    return sum(best >= NEAR * _config_cost(record, row) for row in ordered)


def _space_summary(record: Record, found: dict[str, list[SpaceRow]]) -> str:
    count = len(next(iter(record["space"]["rows"].values())))
    told = ", ".join(
        f"{_count_near_best(record, one)} on {target}" for target, one in found.items()
    )
    how = "timed" if _has_times(record) else "compiled and counted, none timed"
    return f"All {count} configurations {how}: within 2 % of the best are {told}"


def _cost_curve(record: Record, found: dict[str, list[SpaceRow]]) -> svg.Drawing:
    """Shares of the optimum, the best configuration first."""
    count = max(map(len, found.values()))
    x, y = svg.x_scale(1, count), svg.y_scale(0, 1)
    step, _ = svg.nice_step(count)
    places = [1.0, *(step * n for n in range(1, int(count / step) + 1))]
    levels = [(level, units.format_percent(level)) for level in LEVELS]
    parts = [
        *svg.draw_y_axis(y, levels, "of the best"),
        *svg.draw_x_labels(x, svg.label_ticks(places), "configurations, the best first"),
    ]
    legend = []
    for index, (target, ordered) in enumerate(found.items()):
        best = _config_cost(record, ordered[0])
        shares = [best / _config_cost(record, row) for row in ordered]
        colour = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.draw_polyline(((x(n), y(one)) for n, one in enumerate(shares, 1)), colour))
        middle = len(shares) // 2
        parts.append(svg.draw_mark(x(middle + 1), y(shares[middle]), index))
        half = units.format_percent(float(units.format_significant(shares[middle], 2)))
        last = units.format_percent(float(units.format_significant(shares[-1], 2)))
        legend.append(
            svg.LegendEntry(index, target, f": {len(shares)}, middle {half}, last {last}")
        )
    below, foot = svg.draw_legend(svg.FOOT, legend)
    title = "Each configuration against the best of all"
    said = [entry.name + entry.value for entry in legend]
    return svg.Drawing(title, said, foot - 8, [*parts, *below])


def _space_note(record: Record) -> str:
    case = units.case_labels([record["space"]["timed"]])[0]
    if _has_times(record):
        return f"Median times at {case}. {snippet_page.origin_line(record)}."
    return (
        f"Least cycles of the busiest SM at {case}, by what was compiled and executed on a CPU: a "
        f"bound, no time. What spills is left out. {snippet_page.origin_line(record)}."
    )


def _best_configs_table(record: Record, ordered: Sequence[SpaceRow], target: str) -> str:
    space = record["space"]
    names = [one["name"] for one in space["parameters"]]
    figures = {
        "registers": "Registers", "spilled_bytes": "Spilled", "shared_bytes": "Shared memory",
        "warps": "Warps of an SM", "cycles": "Cycles, at least",
        "median": "Median time", "p20": "20th percentile", "p80": "80th percentile", "n": "Samples",
    }  # fmt: skip
    best = _config_cost(record, ordered[0])
    chosen = [*enumerate(ordered[:SHOWN], 1), (len(ordered), ordered[-1])]
    body = []
    for place, row in chosen:
        cells = [
            *row.values,
            units.format_percent(
                float(units.format_significant(best / _config_cost(record, row), 3))
            ),
        ]
        pairs = zip(space["figures"], row.figures, strict=True)
        cells += [_format_figure(name, value) for name, value in pairs]
        body.append(tables.table_row(str(place), cells))
    head = ("Place", *names, "Of the best", *(figures[name] for name in space["figures"]))
    caption = (
        f"The best configurations on {target}, and the last\n{snippet_page.origin_line(record)}"
    )
    return tables.render_table(caption, head, ["<tbody>", *body, "</tbody>"], "space")


def _format_figure(name: str, value: float) -> str:
    if name in ("median", "p20", "p80"):
        return units.format_seconds(value)
    return (
        units.format_bytes(int(value))
        if name.endswith("_bytes")
        else units.format_number(round(value))
    )

"""What is compared with something: facts, predictions, figures of others, kernels of others.

A stated figure is set against ours only where a current record is of the same kind of device and
has timed the case that the figure names: a claim stays one, and no machine is taken for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from warpshelf.contract import architectures
from warpshelf.contract import pictures as predicted
from warpshelf.contract.pictures import Row, SetErrors
from warpshelf.core import devices, markup, units
from warpshelf.core.markup import escape_markdown, quote_attribute
from warpshelf.core.places import OnPage
from warpshelf.look.view import Build, View
from warpshelf.readings.published import Rival
from warpshelf.records.schema import Record
from warpshelf.render import snippet_page, svg, tables
from warpshelf.render.listings import extract_section, section_names
from warpshelf.render.snippet_page import Claim, RivalComparison, SnippetPage
from warpshelf.render.tables import Html

MOST = 24  # rows of a table that is shown unasked


def render_facts(record: Record, sources: Mapping[str, str] | None = None) -> str:
    """The facts of a program or model; `sources` gives the titles of reading ids."""
    rows = []
    for fact in record.get("facts", []):
        unit = f" {fact['unit']}" if fact["unit"] else ""
        expected = fact["expected"]
        # Whole numbers may be past what a float holds, so they are subtracted as they are.
        away = fact["value"] - expected
        relative = units.safe_divide(away, abs(expected))
        apart = units.format_number(away) if relative is None else units.format_percent(relative)
        # Where 0 is expected there is nothing to be relative to: the tolerance is absolute.
        allowed = units.format_percent if expected else units.format_error
        cells = (
            units.format_number(fact["value"]) + unit,
            units.format_number(expected) + unit,
            apart if away else "none",
            allowed(fact["tolerance"]) if fact["tolerance"] else "exact",
            (sources or {}).get(fact["source"], fact["source"]),
        )
        rows.append(tables.table_row(fact["name"], cells))
    if not rows:
        return ""
    head = ("Fact", "Value", "Expected", "Difference", "Allowed", "Source of the expected value")
    caption = f"Facts checked\n{snippet_page.origin_line(record)}"
    found = tables.render_table(caption, head, rows, "facts")
    summary = Html(f"All {len(rows)} facts, each within its tolerance")
    return found if len(rows) <= MOST else tables.render_fold(summary, found)


BAND = 0.10  # relative error that the plot marks


def render_predictions(record: Record, sources: Mapping[str, str] | None = None) -> str:
    """The plot, the errors by set with the goals, and all rows folded; "" without predictions."""
    rows: list[Row] = record.get("predictions", [])
    if not rows:
        return ""
    sets = predicted.errors_by_set(rows)
    groups: dict[str, list[str]] = {}
    for row in rows:
        unit = f" {row['unit']}" if row["unit"] else ""
        cells = (
            units.format_number(float(units.format_significant(row["predicted"], 4))) + unit,
            units.format_number(row["published"]) + unit,
            f"{100 * predicted.relative_error(row):+.1f} %".replace("-", "−"),
            (sources or {}).get(row["source"]) or row["source"],
        )
        note = "fitted on it" if row["fitted"] else ""
        groups.setdefault(row["set"], []).append(tables.table_row(row["name"], cells, note))
    head = ("Configuration", "Predicted", "Published", "Error", "Source")
    body = [tables.row_group(name, lines, len(head)) for name, lines in groups.items()]
    caption = f"Predicted and published\n{snippet_page.origin_line(record)}"
    table = tables.render_table(caption, head, body, "predicted")
    answer = f"All {tables.format_count(len(rows), 'row')}, predicted and published"
    plot = _prediction_plot(rows, sets, f"{snippet_page.origin_line(record)}.")
    return f"{plot}\n{_error_table(record, sets)}\n{tables.render_fold(answer, table)}"


def _format_percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _error_table(record: Record, sets: Sequence[SetErrors]) -> str:
    rows = []
    for one in sets:
        count, cells = len(one.errors), ["0", *["none"] * 5]
        if count:
            near = [f"{one.count_within(limit)} of {count}" for limit in predicted.NEAR]
            cells = [str(count), *map(_format_percent, one.measures.values()), *near]
        note = f"and {one.fitted} fitted" if one.fitted else ""
        rows.append(tables.table_row(one.name, cells, note))
    body = ["<tbody>", *rows, "</tbody>"]
    if goals := record.get("goals"):
        lines = []
        for goal in goals:
            _, told = predicted.judge_goal(goal, record["predictions"])
            over = [f"over {100 * goal[key]:g} %" for key in predicted.MEASURES if key in goal]
            asked = f"below {predicted.describe_goal(goal)}" if "within" in goal else over[0]
            lines.append(tables.spanning_row(goal["name"], f"{told}; a run fails {asked}", 6))
        body.append(tables.row_group("Goals", lines, 7))
    within = (f"Within {100 * limit:g} %" for limit in predicted.NEAR)
    head = ("Published figures", "Rows", "Mean error", "Median", "Worst", *within)
    caption = f"Errors of the predictions\n{snippet_page.origin_line(record)}"
    return tables.render_table(caption, head, body, "predictions")


def _prediction_plot(rows: Sequence[Row], sets: Sequence[SetErrors], note: str) -> str:
    """The error of each row, set by set, in their order."""
    most = max(1.2 * BAND, *(abs(predicted.relative_error(row)) for row in rows))
    step, top = svg.nice_step(most)
    y = svg.y_scale(-top, top)
    x = svg.x_scale(0, len(rows) + len(sets) - 1 or 1, margin=8)
    ticks = []
    for level in range(-round(top / step), round(top / step) + 1):
        words = f"{100 * step * level:+g} %".replace("-", "−").replace("+0 %", "0 %")
        ticks.append((step * level, words))
    parts = list(svg.draw_y_axis(y, ticks, "predicted over published"))
    parts += [svg.draw_level(y(limit), "ws-peak") for limit in (BAND, -BAND)]
    legend, place = [], 0
    for index, one in enumerate(sets):
        for row in rows:
            if row["set"] == one.name:
                height = y(predicted.relative_error(row))
                parts.append(svg.draw_mark(x(place), height, index, hollow=row["fitted"]))
                place += 1
        place += 1  # a gap between sets
        told = f": median {_format_percent(one.measures['median'])}" if one.errors else ": fitted"
        legend.append((one.name, told))
    band = ("ws-peak", f"{100 * BAND:g} % above and below the published value")
    if any(row["fitted"] for row in rows):
        note = f"Hollow rows were used to fit a constant. {note}"
    title = "Error of each prediction, in the order of the table below"
    return svg.render_plot(title, parts, legend, note, lines=[band], foot=svg.FOOT - 34)


SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def matches_case(named: Mapping[str, Any], case: Mapping[str, Any]) -> bool:
    """Whether a case is the one that a figure names by some of its values; True is not 1."""
    return all(
        key in case and (case[key], type(case[key]) is bool) == (value, type(value) is bool)
        for key, value in named.items()
    )


def _our_figure(record: Record, claim: Claim) -> tuple[str, float] | None:
    """Our figure in words, and how many times better than theirs it is."""
    figure = claim.figure
    key, value = ("name", figure.variant) if figure.variant else ("role", "variant")
    for case in tables.timed_cases(record):
        timed = tables.timed_results(case)
        times = [time["median"] for result, time in timed if result[key] == value]
        if times and figure.case is not None and matches_case(figure.case, case["case"]):
            return _compare_figure(claim, case, min(times))
    return None


def _compare_figure(claim: Claim, case: dict[str, Any], median: float) -> tuple[str, float] | None:
    unit, stated = claim.figure.unit, claim.figure.figure
    if unit in SCALES:
        return units.format_seconds(median), stated * SCALES[unit] / median
    if unit == "%":
        timed = tables.timed_results(case)
        peers = (time["median"] for one, time in timed if one["name"] == claim.figure.share_of)
        share = units.safe_divide(next(peers, None), median)
        return None if share is None else (units.format_percent(share), 100 * share / stated)
    kind = unit[1:]  # a rate has a prefix: TB/s, GFLOP/s
    rate = units.safe_divide(case.get("bytes" if kind == "B/s" else "flops"), median)
    if not rate:
        return None
    return units.format_rate(rate, kind), rate / (stated * svg.prefix_factor(unit))


def _compare_claim(page: SnippetPage, claim: Claim) -> str:
    """What current records of such devices have beside a figure: ours, and its ratio to it."""
    return "; ".join(
        f"{ours[0]}, {units.format_ratio(ours[1])} of it, on {state.name}"
        for state in page.select_states("measured")
        if devices.same_device(claim.figure.device, state.known["machine"]["device"])
        and (ours := _our_figure(state.known, claim))
    )


def render_claims(page: SnippetPage, place: OnPage) -> str:
    """The figures by their source, with what we measured beside them where there is something."""
    claims = sorted(page.reported, key=lambda claim: claim.source.title)
    if not claims:
        return ""
    against = sum(bool(_compare_claim(page, claim)) for claim in claims)
    head = ["What", "Figure", "Device", "Setting", "Place", *["Measured here"] * (against > 0)]
    groups, sources = [], []
    for source, stated in groupby(claims, key=lambda claim: claim.source):
        rows = []
        for claim in stated:
            figure, where = claim.figure, escape_markdown(claim.figure.place)
            shown = units.format_number(figure.figure)
            if figure.figure < 1e5:  # as the source writes it, and its neighbours with fractions
                shown = shown.replace(units.THIN, "")
            shown += figure.unit if figure.unit == "×" else f" {figure.unit}"
            cited = tables.make_cell(Html(f"<a href={markup.quote_href(claim.url)}>{where}</a>"))
            cells = [shown, figure.device, figure.setting, cited]
            if against:
                cells.append(_compare_claim(page, claim) or "not measured here on such a device")
            rows.append(tables.table_row(figure.what, cells))
        groups.append(tables.row_group(source.title, rows, len(head)))
        title, link = source
        sources.append(place.link(title, link) if link else escape_markdown(title))
    number = tables.format_count(len(claims), "figure")
    origin = tables.format_count(len(sources), "source")
    ours = f"{against} of them measured here as well" if against else "none of them measured here"
    answer = f"Reported elsewhere: {number} from {origin}, {ours}"
    caption = "Reported elsewhere\nWhat others report for their code on their machines"
    inner = tables.render_table(caption, head, groups, "reported")
    folded = tables.render_fold(answer, inner, "claims", len(claims))
    return f'{folded}\n<p class="ws-origin">Reported in: {"; ".join(sources)}</p>'


HEAD = (
    "Build", "Registers", "Spilled", "Shared memory", "Instructions", "In the main loop",
    "Work per instruction", "Main loop by kind",
)  # fmt: skip


def rivals_table(page: SnippetPage) -> str:
    """Figures of both, by architecture, under a line that says how they compare; "" of none."""
    pairs = [one for one in page.rivals if one.archs and not one.rival.package]
    if not pairs:
        return ""
    groups, count, compared = [], 0, list[tuple[Build, Build]]()
    for one in pairs:
        rival, rows = one.rival, []
        for arch in one.archs:
            ours, theirs = one.ours[arch], one.answer.builds[arch]
            rows.append(tables.table_row(f"{arch}, ours", build_cells(ours)))
            rows.append(tables.table_row(f"{arch}, {rival.name}", build_cells(theirs)))
            compared.append((ours, theirs))
        count += len(rows)
        link = f"<a href={quote_attribute(rival.url)}>{escape_markdown(rival.kernel)}</a>"
        own = f"{escape_markdown(rival.beside.kernel)} ({escape_markdown(rival.beside.variant)})"
        title = f"{own} beside {escape_markdown(rival.name)}: {link}; {escape_markdown(rival.what)}"
        if said := ", ".join(_count_instructions(one)):
            title += f". For the same work ours needs {said}"
        groups.append(tables.row_group(Html(title), rows, len(HEAD)))
    compilers = ", ".join(sorted({one.answer.compiler for one in pairs}))
    caption = (
        f"Public kernels for the same job, compiled alike\n{compilers}, at the same dtype, shape "
        "and divisibility. Work per warp instruction: multiply-adds of the matrix units, or of a "
        "lane if they are two thirds of all, else the bytes a lane loads and stores; in the main "
        "loop, or in the whole kernel if it has none. No times"
    )
    answer = f"Compiled beside {', '.join(dict.fromkeys(one.rival.name for one in pairs))}"
    parts = (
        ("instructions for the same work", [_instruction_ratio(*pair) for pair in compared]),
        ("registers", [ours["registers"] / theirs["registers"] for ours, theirs in compared]),
        ("spilled bytes", [
            (1 + ours["spilled_bytes"]) / (1 + theirs["spilled_bytes"]) for ours, theirs in compared
        ]),
    )  # fmt: skip
    answer += ": ours needs " + "; ".join(_count_verdicts(what, found) for what, found in parts)
    inner = tables.render_table(caption, HEAD, groups, "rivals")
    return tables.render_fold(answer, inner, "beside", count)


def _instruction_ratio(ours: Build, theirs: Build) -> float | None:
    """Our instructions over theirs, for the same work; None where the two do different work."""
    mine, other = _work_per_instruction(ours), _work_per_instruction(theirs)
    return other[0] / mine[0] if mine and other and mine[1] == other[1] else None


def _count_verdicts(what: str, ratios: Iterable[float | None]) -> str:
    """In how many builds ours needs fewer, and in how many it needs more: both are said."""
    known = [ratio for ratio in ratios if ratio is not None]
    fewer, more = (sum(far * (ratio - 1) > 0.005 for ratio in known) for far in (-1, 1))
    return f"fewer {what} in {fewer} of {tables.format_count(len(known), 'build')}, more in {more}"


def _count_instructions(pair: RivalComparison) -> Iterator[str]:
    """By how much the instructions differ, and on which architectures."""
    found: dict[str, list[str]] = {}
    for arch in pair.archs:
        if ratio := _instruction_ratio(pair.ours[arch], pair.answer.builds[arch]):
            far = round(100 * (ratio - 1))
            said = f"{abs(far)} % {'more' if far > 0 else 'fewer'} instructions"
            found.setdefault(said if far else "as many", []).append(arch)
    return (f"{said} on {', '.join(archs)}" for said, archs in found.items())


def _work_per_instruction(build: Build) -> tuple[float, str] | None:
    """The work of a warp's average instruction, and its unit."""
    instructions = sum(build["loop"].values()) or build["instructions"]
    if "matrix" in build["loop"]:
        # A matrix instruction of Blackwell does not say its shape.
        return (build["products"] / instructions, "products") if build["products"] else None
    if 3 * (scalar := build["loop"].get("multiply-add", 0)) >= 2 * instructions:
        return scalar / instructions, "multiply-adds"
    return (build["bytes"] / instructions, "bytes") if build["bytes"] else None


def build_cells(build: Build) -> tuple[str, ...]:
    """A build's figures in words: what stands under HEAD, all but its name."""
    done = _work_per_instruction(build)
    kinds = sorted(build["loop"].items(), key=lambda pair: (-pair[1], pair[0]))
    return (
        str(build["registers"]),
        units.format_bytes(build["spilled_bytes"]) if build["spilled_bytes"] else "none",
        units.format_bytes(build["shared_bytes"]) if build["shared_bytes"] else "none",
        units.format_integer(build["instructions"]),
        units.format_integer(sum(build["loop"].values())) if kinds else "no loop",
        f"{units.format_significant(done[0])} {done[1]}" if done else "unknown",
        ", ".join(f"{number} {kind}" for kind, number in kinds) or "no loop",
    )


def our_builds(views: Iterable[View], rival: Rival) -> dict[str, Build]:
    """What the kernel of ours that a rival stands beside was compiled to, by architecture."""
    return {
        one["arch"]: one["build"]
        for one in views
        if (one["variant"], one["kernel"]) == (rival.beside.variant, rival.beside.kernel)
    }


COMMENT = re.compile(r"\s*(#(?!include|define|pragma)|//)")


def languages_table(page: SnippetPage) -> str:
    """Every variant, every rival whose language is its own, and times; "" without such a rival."""
    others = [pair for pair in page.rivals if pair.rival.package]
    if not others:
        return ""
    ours: dict[tuple[str, str], dict[str, Build]] = {}
    makers: dict[str, None] = {}
    for one in page.views:
        makers[one["compiler"]] = None
        ours.setdefault((one["variant"], one["kernel"]), {})[one["arch"]] = one["build"]
    texts = [listing.text for listing in page.code]
    said = [(name, count_lines(texts, kernel), own) for (name, kernel), own in ours.items()]
    for rival, answer, _ in others:
        makers[answer.compiler] = None
        said.append((rival.name, count_lines([rival.source], rival.kernel), answer.builds))
    timed = []  # architecture, machine, its largest case, and the times there by variant
    for state in page.select_states("measured"):
        cases = tables.label_cases(tables.timed_cases(state.known))
        if cases and (sm := state.known["machine"]["sm"]) is not None:
            label, largest = max(cases, key=lambda one: one[1].get("flops", 0))
            own_times = tables.timed_results(largest)
            times = {one["name"]: units.format_seconds(time["median"]) for one, time in own_times}
            timed.append((f"sm_{sm}", state.name, label, times))
    head = ("Language", "Lines", *(f"Time, {device}" for _, device, _, _ in timed), *HEAD[1:])
    groups = []
    for arch in sorted({arch for *_, own in said for arch in own}, key=architectures.sm_version):
        rows = []
        for name, lines, own in said:
            if arch in own:
                length = units.format_integer(lines) if lines else "not marked"
                shown = (of.get(name, "not run") if on == arch else "other GPU"
                         for on, _, _, of in timed)  # fmt: skip
                rows.append(tables.table_row(name, (length, *shown, *build_cells(own[arch]))))
        groups.append(tables.row_group(arch, rows, len(head)))
    told = dict.fromkeys(f"{label} on {device}" for _, device, label, _ in timed)
    caption = (
        f"The same in {len(said)} languages\nLines of the kernel, without blank ones and comments, "
        "and what they compile to. Work per warp instruction: multiply-adds of the matrix units, "
        f"in the main loop. Compiled by {', '.join(makers)}. "
    ) + (f"Times of {'; '.join(told)}" if told else "No times")
    return tables.render_table(caption, head, groups, "languages")


def count_lines(texts: Iterable[str], kernel: str) -> int:
    """Lines of code in the marked section that defines a kernel; 0 where none does."""
    defined = re.compile(rf"(^|\s|\*){re.escape(kernel.partition('<')[0])}\s*\(")
    for text in texts:
        for each in section_names(text):
            lines = extract_section(text, each).split("\n")
            if any(map(defined.search, lines)):
                return sum(bool(line.strip()) and not COMMENT.match(line) for line in lines)
    return 0

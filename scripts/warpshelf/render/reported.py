"""What others state for a snippet's idea, apart from what we measured, and set against it.

A figure is set against ours only where a current record is of the same kind of device and has
timed the case that the figure names: a claim stays a claim, and no machine is taken for another.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from warpshelf.core import devices, markup, units
from warpshelf.core.markup import escape
from warpshelf.records.schema import Record
from warpshelf.render import tables
from warpshelf.render.exhibit import Claim, Exhibit, MachineState

HEAD = ("What", "Figure", "Device", "Setting", "Place")
SCALES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def matches(named: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether a case is the one that a figure names by some of its values."""
    return all(key in case and _same(case[key], value) for key, value in named.items())


def _same(ours: Any, theirs: Any) -> bool:
    return isinstance(ours, bool) == isinstance(theirs, bool) and bool(ours == theirs)


def _time(record: Record, claim: Claim) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The case that a figure names, and the result of ours that it corresponds to."""
    figure = claim.figure
    for case in tables.timed(record):
        if figure.case is None or not matches(figure.case, case["case"]):
            continue
        key, value = ("name", figure.variant) if figure.variant else ("role", "variant")
        wanted = [
            result for result in case["results"] if tables.time_of(result) and result[key] == value
        ]
        if wanted:
            return case, min(wanted, key=lambda result: result["time"]["median"])
    return None


def _ours(record: Record, claim: Claim) -> tuple[str, float] | None:
    """Our figure in words, and how many times better than theirs it is."""
    if (found := _time(record, claim)) is None:
        return None
    case, result = found
    figure, median = claim.figure, result["time"]["median"]
    if figure.unit in SCALES:
        return units.seconds(median), figure.figure * SCALES[figure.unit] / median
    if figure.unit == "%":
        peer = next(
            (
                time["median"]
                for other in case["results"]
                if other["name"] == figure.share_of and (time := tables.time_of(other))
            ),
            None,
        )
        share = units.divided(peer, median)
        return None if share is None else (units.share(share), 100 * share / figure.figure)
    kind = figure.unit[1:]  # a rate has a prefix: TB/s, GFLOP/s
    amount = case.get("bytes" if kind == "B/s" else "flops")
    rate = units.divided(amount, median)
    scale = next(10.0**power for name, power in units.PREFIXES if figure.unit.startswith(name))
    if not rate:
        return None
    return units.rate(rate, kind), rate / (figure.figure * scale)


def measured(exhibit: Exhibit, claim: Claim) -> Iterator[tuple[MachineState, str, float]]:
    """What current records have against a figure: the machine, our figure, and the ratio."""
    for state in exhibit.shown("measured"):
        record = state.record
        if record is None or not devices.alike(claim.figure.device, record["machine"]["device"]):
            continue
        if found := _ours(record, claim):
            yield state, *found


def _stated(claim: Claim) -> str:
    figure, unit = claim.figure.figure, claim.figure.unit
    shown = units.number(figure)
    if figure < 1e5:  # as the source writes it, and its neighbours with fractions
        shown = shown.replace(units.THIN, "")
    return f"{shown}{'' if unit == '×' else ' '}{unit}"


def _row(exhibit: Exhibit, claim: Claim, compared: bool) -> str:
    figure = claim.figure
    place = f"<a href={markup.href(claim.url)}>{escape(figure.place)}</a>"
    cells = [escape(text) for text in (_stated(claim), figure.device, figure.setting)]
    cells.append(place)
    if compared:
        said = [
            f"{shown}, {units.ratio(ratio)} of it, on {state.name}"
            for state, shown, ratio in measured(exhibit, claim)
        ]
        cells.append(escape("; ".join(said) or "not measured here on such a device"))
    rest = "".join(f" <td>{cell}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(figure.what)}</th>{rest}</tr>'


def reported(exhibit: Exhibit) -> str:
    """The figures by their source, with what we measured beside them where there is something."""
    claims = sorted(exhibit.reported, key=lambda claim: claim.source.title)
    if not claims:
        return ""
    against = sum(any(True for _ in measured(exhibit, claim)) for claim in claims)
    head = (*HEAD, "Measured here") if against else HEAD
    groups, sources = [], []
    for source, stated in groupby(claims, key=lambda claim: claim.source):
        rows = [_row(exhibit, claim, against > 0) for claim in stated]
        groups.append(tables.group(source.title, rows, len(head)))
        title = escape(source.title)
        sources.append(f"[{title}]({source.link})" if source.link else title)
    number = tables.count(len(claims), "figure")
    origin = tables.count(len(sources), "source")
    ours = f"{against} of them measured here as well" if against else "none of them measured here"
    caption = "Reported elsewhere\nWhat others state of their code on their machines"
    inner = tables.table(caption, head, groups, "reported")
    folded = tables.fold(
        f"Reported elsewhere: {number} from {origin}, {ours}", inner, len(claims), "claims"
    )
    return f"{folded}\n\nReported in: {'; '.join(sources)}\n{{ .ws-origin }}"

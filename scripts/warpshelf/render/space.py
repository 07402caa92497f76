"""A kernel's whole space of configurations: how flat its top is, and what stands there.

Of a CPU's record the cost is a bound in cycles from compiled and counted code, and is called so; of
a GPU's it is the median time.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.records import space as rows
from warpshelf.records.schema import Record
from warpshelf.records.space import Row
from warpshelf.render import axes, provenance, svg, tables

SHOWN = 8  # configurations of the table, from the best on
NEAR = 0.98  # of the optimum: what counts as found
MAIN = "sm_90"  # whose configurations the table has, where there are several
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def spaces(record: Record) -> str:
    """The curve of all configurations and the table of the best, folded; "" without a space."""
    if "space" not in record:
        return ""
    found = {
        target: sorted(_sound(record, lines), key=lambda row: _cost(record, row))
        for target, lines in sorted(
            record["space"]["rows"].items(), key=lambda one: architectures.number(one[0])
        )
    }
    main = MAIN if MAIN in found else next(iter(found))
    curve = svg.figure(_curve(record, found), _note(record))
    inner = f"{curve}\n{_table(record, found[main], main)}"
    return tables.fold(_answer(record, found), inner, tables.FEW + 1, "space")


def _sound(record: Record, lines: Sequence[str]) -> list[Row]:
    """The configurations that do not spill, as far as it is known: no bound has it in."""
    figures: list[str] = record["space"]["figures"]
    found = [rows.read(line) for line in lines]
    if "spilled_bytes" not in figures:
        return found
    at = figures.index("spilled_bytes")
    return [row for row in found if not row.figures[at]] or found


def _cost(record: Record, row: Row) -> float:
    name = "median" if _measured(record) else "cycles"
    figures: list[str] = record["space"]["figures"]
    return row.figures[figures.index(name)]


def _measured(record: Record) -> bool:
    return "median" in record["space"]["figures"]


def _near(record: Record, ordered: Sequence[Row]) -> int:
    best = _cost(record, ordered[0])
    return sum(best >= NEAR * _cost(record, row) for row in ordered)


def _answer(record: Record, found: dict[str, list[Row]]) -> str:
    count = len(next(iter(record["space"]["rows"].values())))
    told = ", ".join(f"{_near(record, one)} on {target}" for target, one in found.items())
    how = "timed" if _measured(record) else "compiled and counted, none timed"
    return f"All {count} configurations {how}: within 2 % of the best are {told}"


def _curve(record: Record, found: dict[str, list[Row]]) -> svg.Drawing:
    """Shares of the optimum, the best configuration first."""
    count = max(map(len, found.values()))
    x, y = axes.across(1, count), axes.upwards(0, 1)
    step, _ = axes.rounded(count)
    places = [1.0, *(step * n for n in range(1, int(count / step) + 1))]
    levels = [(level, units.share(level)) for level in LEVELS]
    parts = [
        *axes.rows(y, levels, "of the best"),
        *axes.sizes(x, axes.labelled(places), "configurations, the best first"),
    ]
    legend = []
    for index, (target, ordered) in enumerate(found.items()):
        best = _cost(record, ordered[0])
        shares = [best / _cost(record, row) for row in ordered]
        colour = f"ws-curve ws-s{index % svg.COLOURS}"
        parts.append(svg.path(((x(n), y(one)) for n, one in enumerate(shares, 1)), colour))
        middle = len(shares) // 2
        parts.append(svg.mark(x(middle + 1), y(shares[middle]), index))
        half = units.share(float(units.significant(shares[middle], 2)))
        last = units.share(float(units.significant(shares[-1], 2)))
        legend.append(svg.Entry(index, target, f": {len(shares)}, middle {half}, last {last}"))
    below, foot = svg.legend(axes.FOOT, legend)
    title = "Each configuration against the best of all"
    said = [entry.name + entry.value for entry in legend]
    return svg.Drawing(title, said, foot - 8, [*parts, *below])


def _note(record: Record) -> str:
    case = units.labels([record["space"]["timed"]])[0]
    if _measured(record):
        return f"Median times at {case}. {provenance.line(record)}."
    return (
        f"Least cycles of the busiest SM at {case}, by what was compiled and executed on a CPU: a "
        f"bound, no time. What spills is left out. {provenance.line(record)}."
    )


def _table(record: Record, ordered: Sequence[Row], target: str) -> str:
    space = record["space"]
    names = [one["name"] for one in space["parameters"]]
    figures = {
        "registers": "Registers", "spilled_bytes": "Spilled", "shared_bytes": "Shared memory",
        "warps": "Warps of an SM", "cycles": "Cycles, at least",
        "median": "Median time", "p20": "20th percentile", "p80": "80th percentile", "n": "Samples",
    }  # fmt: skip
    best = _cost(record, ordered[0])
    chosen = [*enumerate(ordered[:SHOWN], 1), (len(ordered), ordered[-1])]
    body = []
    for place, row in chosen:
        cells = [*row.values, units.share(float(units.significant(best / _cost(record, row), 3)))]
        pairs = zip(space["figures"], row.figures, strict=True)
        cells += [_shown(name, value) for name, value in pairs]
        body.append(tables.row(str(place), cells))
    head = ("Place", *names, "Of the best", *(figures[name] for name in space["figures"]))
    caption = f"The best configurations on {target}, and the last\n{provenance.line(record)}"
    return tables.table(caption, head, ["<tbody>", *body, "</tbody>"], "space")


def _shown(name: str, value: float) -> str:
    if name in ("median", "p20", "p80"):
        return units.seconds(value)
    return units.size(int(value)) if name.endswith("_bytes") else units.number(round(value))

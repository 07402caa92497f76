"""Pictures that follow from a model: schedules of a pipeline, and tables of small cells.

A record's `timelines` and `grids` enter, their pictures leave. Schedules are drawn one under
another on one scale of time, as wide as the longest, so that what one saves is seen as space.
Nothing is told by colour alone: passes differ by fill, outline and width, chunks by a bar at the
foot, and a cell says in text what its colour says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, NamedTuple

from warpshelf.render import svg
from warpshelf.render.svg import Scale

UNIT = 19.0  # width of a forward pass through a whole stage
LEFT, RIGHT = 54.0, 66.0  # room for the rank and for what it holds
NARROW = 12.0  # a box less wide than this takes a smaller digit
MOST_SLICES = 64  # of a stage, in which what a rank holds is counted
GAP = 5.0  # between two ranks
SINGLE, DOUBLE = 21.0, 32.0  # height of a rank, and where passes are paired
FORWARD, BACKWARD = "F", "B"
# Words of the legend, and the classes of chunk 0 and of any other.
KINDS = {
    FORWARD: ("forward", "ws-box ws-s2", "ws-box ws-s5"),
    BACKWARD: ("backward", "ws-fill ws-s0", "ws-fill ws-s6"),
    "I": ("input gradient", "ws-fill ws-s0", "ws-fill ws-s6"),
    "W": ("weight gradient", "ws-box ws-dash ws-s1", "ws-box ws-dash ws-s1"),
}


class Pass(NamedTuple):
    """What one rank does from `start` to `end`; `paired` if it does something else as well."""

    rank: int
    start: int
    end: int
    kind: str
    micro_batch: int
    chunk: int
    paired: bool


class Timeline:
    """A row of a record's `timelines`, with what follows from it."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.title, self.note, self.other = row["title"], row["note"], row.get("other", "")
        self.unit, self.ranks = row["unit"], len(row["held"])
        self.held = [Fraction(held).limit_denominator(MOST_SLICES) for held in row["held"]]
        spans = [(one["rank"], one["start"], one["end"]) for one in row["passes"]]
        taken = Counter(spans)
        pairs = zip(row["passes"], spans, strict=True)
        self.passes = [Pass(**one, paired=taken[span] > 1) for one, span in pairs]
        self.makespan = max(one.end for one in self.passes)

    def rank_passes(self, rank: int) -> list[Pass]:
        """The passes of `rank`."""
        return [one for one in self.passes if one.rank == rank]

    def idle_gaps(self, rank: int) -> list[tuple[int, int]]:
        """When `rank` has nothing to do."""
        busy = sorted({(one.start, one.end) for one in self.rank_passes(rank)})
        ends = [0, *(end for _, end in busy)]
        starts = [*(start for start, _ in busy), self.makespan]
        return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]

    def idle_time(self, rank: int) -> int:
        """How long `rank` has nothing to do."""
        return sum(until - since for since, until in self.idle_gaps(rank))


def draw_timelines(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The picture of each row of a record's `timelines`, by its name."""
    read = {row["name"]: Timeline(row) for row in rows}
    width = max((Fraction(one.makespan, one.unit) for one in read.values()), default=Fraction(0))
    return {name: draw_timeline(one, width) for name, one in read.items()}


def draw_timeline(shown: Timeline, width: Fraction) -> str:
    """The picture of a timeline on an axis of `width` units, with its figures."""
    x = Scale(0, shown.unit, LEFT, LEFT + UNIT)
    height = DOUBLE if any(one.paired for one in shown.passes) else SINGLE
    end, foot = x(shown.makespan), shown.ranks * (height + GAP)
    right = LEFT + float(width) * UNIT + RIGHT
    parts, told = [], []
    for rank in range(shown.ranks):
        y, passes = rank * (height + GAP), shown.rank_passes(rank)
        level, middle = y + height / 2, y + height / 2 + 4.5
        parts.append(svg.draw_text(0, middle, f"rank {rank}"))
        for since, until in shown.idle_gaps(rank):
            parts.append(svg.draw_line(x(since), level, x(until), level, "ws-line ws-grid"))
        holds = f"holds {format_fraction(shown.held[rank])}"
        parts.append(svg.draw_text(right, middle, holds, end="end"))
        for one in passes:  # of a pair, forward stands above and backward below
            top = level if one.paired and one.kind != FORWARD else y
            where = (x(one.start), top, x(one.end) - x(one.start), height / (1 + one.paired))
            parts.append(_draw_pass(one.kind, one.chunk, where, str(one.micro_batch)))
        names = (f"{one.kind}{one.micro_batch}{chr(39) * one.chunk}" for one in passes)
        told.append(f"Rank {rank}: {' '.join(names)}.")
    parts.append(svg.draw_line(end, -2, end, foot, "ws-line"))
    taken = format_fraction(Fraction(shown.makespan, shown.unit))
    parts.append(svg.draw_text(end, foot + 12, taken, end="middle"))
    kinds = [kind for kind in KINDS if any(one.kind == kind for one in shown.passes)]
    entries = [(kind, 0, KINDS[kind][0]) for kind in kinds]
    entries += [(FORWARD, 1, shown.other)] if shown.other else []
    place = LEFT
    for kind, chunk, words in entries:
        wide = 26.0 if kind == BACKWARD else 13.0
        parts.append(_draw_pass(kind, chunk, (place, foot + 21.5, wide, 14), ""))
        parts.append(svg.draw_text(place + wide + 5, foot + 32, words))
        place += wide + 5 + len(words) * svg.TEXT * 0.48 + 14
    idle = [shown.idle_time(rank) for rank in range(shown.ranks)]
    each = "each rank" if len(set(idle)) == 1 else "the idlest rank"
    caption = (
        f"{shown.title}: the step takes {taken} units, of which {each} idles for "
        f"{format_fraction(Fraction(max(idle), shown.unit))} "
        f"({100 * max(idle) / shown.makespan:.0f} %). {shown.note}"
    )
    box = (-4, right, foot + 42)
    return svg.render_diagram("timeline", box, shown.title, " ".join(told), parts, caption) + "\n"


def _draw_pass(kind: str, chunk: int, where: tuple[float, float, float, float], words: str) -> str:
    """A pass as a box, with its micro-batch in words."""
    x, y, width, height = where
    classes = KINDS[kind][2 if chunk else 1]
    filled = classes.startswith("ws-fill")
    shape = svg.draw_rect(x + 0.7, y + 0.7, width - 1.4, height - 1.4, classes, "")
    if chunk:
        colour = "ws-on" if filled else f"ws-fill {classes.split()[-1]}"
        shape += svg.draw_rect(x + 2, y + height - 3.6, width - 4, 1.6, colour, "")
    if words:
        base = y + height / 2 + (3.6 if chunk else 4.7)
        kinds = ["ws-on"] * filled + ["ws-small"] * (width < NARROW)
        shape += svg.draw_text(x + width / 2, base, words, end="middle", kind=" ".join(kinds))
    return shape


def format_fraction(value: Fraction) -> str:
    """A number of halves, thirds and so on, as people write it."""
    whole, rest = divmod(value, 1)
    part = {Fraction(0): "", Fraction(1, 2): "½"}.get(rest, f" {rest}")
    return f"{whole or ''}{part}".strip() or "0"


HEIGHT = 21.0  # of a cell
CHARACTER = 7.6  # width of a digit, at most
PADDING = 9.0  # of a cell, both sides together
LEAST = 20.0  # width of a cell


def draw_grids(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The picture of each row of a record's `grids`, by its name."""
    return {row["name"]: draw_grid(row) for row in rows}


def draw_grid(row: dict[str, Any]) -> str:
    """One grid with its axes, its legend and its caption."""
    columns, rows, legend = row["columns"], row["rows"], row.get("legend", ())
    longest = max(map(len, (*columns, *(words for line in row["cells"] for words, _ in line))))
    wide = max(LEAST, PADDING + CHARACTER * longest)
    left = 12 + CHARACTER * max(map(len, rows))
    axes, faint = f"{row['down']} ↓ · {row['across']} →", "ws-small ws-faint"
    parts = [
        svg.draw_text(left + wide * (x + 0.5), -7, name, end="middle", kind=faint)
        for x, name in enumerate(columns)
    ]
    parts.append(svg.draw_text(0, -25, axes, kind=faint))
    told = f"By {row['across']} {columns[0]} to {columns[-1]}."
    for y, (name, line) in enumerate(zip(rows, row["cells"], strict=True)):
        top, middle = HEIGHT * y, HEIGHT * (y + 0.5)
        parts.append(svg.draw_text(left - 8, middle + 4.7, name, end="end", kind=faint))
        for x, (words, colour) in enumerate(line):
            place, kind = left + wide * x, f"ws-box ws-s{colour}"
            kind = "ws-line ws-cell" if colour < 0 else kind
            inside = (place + 0.7, top + 0.7, wide - 1.4, HEIGHT - 1.4)
            shape = svg.draw_rect(*inside, kind, svg.HOLLOW)
            if words:
                at = (place + wide / 2, middle + 4.4)
                shape += svg.draw_text(*at, words, end="middle", kind="ws-small")
            parts.append(shape)
        told += f" {row['down']} {name}: {' '.join(words or '-' for words, _ in line)}."
    foot = HEIGHT * len(rows) + 20
    for colour, words in legend:
        parts.append(svg.draw_rect(1, foot - 10.5, 14, 14, f"ws-box ws-s{colour}", svg.HOLLOW))
        parts.append(svg.draw_text(22, foot, words, kind="ws-small"))
        foot += svg.LINE
    foot -= 14 if legend else 18
    said = [axes, *(f"    {words}" for _, words in legend)]
    width = max(left + wide * len(columns) + 2, *(CHARACTER * len(words) for words in said))
    style = f"width:{svg.coord(width)}px"
    box, caption = (-40.0, width, foot + 40), row["caption"]
    return svg.render_diagram("grids", box, caption, told, parts, caption, style) + "\n"


DRAWN = {"timelines": draw_timelines, "grids": draw_grids}

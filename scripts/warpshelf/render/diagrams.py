"""Pictures that follow from a model: schedules of a pipeline, and tables of small cells.

A record's `timelines` and `grids` enter, their pictures leave. Schedules are drawn one under
another on one scale of time, as wide as the longest, so that what one saves is seen as space.
Nothing is told by colour alone: passes differ by fill, outline and width, chunks by a bar at the
foot, and a cell says in text what its colour says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from warpshelf.core.markup import escape_markdown, quote_attribute
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


@dataclass(frozen=True)
class Pass:
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
        self.passes = [
            Pass(**one, paired=taken[span] > 1)
            for one, span in zip(row["passes"], spans, strict=True)
        ]
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

    def to_units(self, time: int) -> Fraction:
        """`time` in the units that the picture counts in."""
        return Fraction(time, self.unit)


def draw_timelines(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The picture of each row of a record's `timelines`, by its name."""
    read = {row["name"]: Timeline(row) for row in rows}
    width = max((one.to_units(one.makespan) for one in read.values()), default=Fraction(0))
    return {name: draw_timeline(one, width) for name, one in read.items()}


def draw_timeline(shown: Timeline, width: Fraction) -> str:
    """The picture of a timeline on an axis of `width` units, with its figures."""
    x = Scale(0, shown.unit, LEFT, LEFT + UNIT)
    height = DOUBLE if any(one.paired for one in shown.passes) else SINGLE
    end = x(shown.makespan)
    foot = shown.ranks * (height + GAP)
    right = LEFT + float(width) * UNIT + RIGHT
    parts = []
    for rank in range(shown.ranks):
        y = rank * (height + GAP)
        middle = y + height / 2 + 4.5
        parts.append(svg.draw_text(0, middle, f"rank {rank}"))
        for since, until in shown.idle_gaps(rank):
            level = y + height / 2
            parts.append(svg.draw_line(x(since), level, x(until), level, "ws-line ws-grid"))
        parts.append(
            svg.draw_text(right, middle, f"holds {_format_fraction(shown.held[rank])}", end="end")
        )
        parts.extend(_draw_pass(one, y, height, x) for one in shown.rank_passes(rank))
    parts.append(svg.draw_line(end, -2, end, foot, "ws-line"))
    parts.append(
        svg.draw_text(
            end, foot + 12, _format_fraction(shown.to_units(shown.makespan)), end="middle"
        )
    )
    parts.extend(_pass_legend(shown, foot + 32))
    return (
        '<figure class="ws-diagram ws-timeline"><div class="ws-scroll" role="region" '
        f'tabindex="0" aria-label={quote_attribute(shown.title)}>'
        + svg.render_svg((-4, right, foot + 42), shown.title, _describe_passes(shown), parts)
        + f"</div><figcaption>{escape_markdown(_timeline_caption(shown))}</figcaption></figure>\n"
    )


def _draw_pass(one: Pass, y: float, height: float, x: Scale) -> str:
    """A pass as a box with its micro-batch; of a pair, forward above and backward below."""
    if one.paired:
        height /= 2
        y += 0 if one.kind == FORWARD else height
    start = x(one.start)
    where = (start, y, x(one.end) - start, height)
    return _pass_box(one.kind, one.chunk, where, str(one.micro_batch))


def _pass_box(kind: str, chunk: int, where: tuple[float, float, float, float], words: str) -> str:
    x, y, width, height = where
    classes = KINDS[kind][2 if chunk else 1]
    filled = classes.startswith("ws-fill")
    shape = (
        f'<rect x="{svg.coord(x + 0.7)}" y="{svg.coord(y + 0.7)}" width="{svg.coord(width - 1.4)}" '
        f'height="{svg.coord(height - 1.4)}" class="{classes}"/>'
    )
    if chunk:
        bar = (
            f'x="{svg.coord(x + 2)}" y="{svg.coord(y + height - 3.6)}" '
            f'width="{svg.coord(width - 4)}"'
        )
        colour = "ws-on" if filled else f"ws-fill {classes.split()[-1]}"
        shape += f'<rect {bar} height="1.6" class="{colour}"/>'
    if words:
        base = y + height / 2 + (3.6 if chunk else 4.7)
        kinds = ["ws-on"] * filled + ["ws-small"] * (width < NARROW)
        shape += svg.draw_text(x + width / 2, base, words, end="middle", kind=" ".join(kinds))
    return shape


def _pass_legend(shown: Timeline, y: float) -> list[str]:
    """What the boxes mean."""
    parts, x = [], LEFT
    used = [kind for kind in KINDS if any(one.kind == kind for one in shown.passes)]
    entries = [(kind, 0, KINDS[kind][0]) for kind in used]
    if shown.other:
        entries.append((FORWARD, 1, shown.other))
    for kind, chunk, words in entries:
        wide = 26.0 if kind == BACKWARD else 13.0
        parts.append(_pass_box(kind, chunk, (x, y - 10.5, wide, 14), ""))
        parts.append(svg.draw_text(x + wide + 5, y, words))
        x += wide + 5 + len(words) * svg.TEXT * 0.48 + 14
    return parts


def _format_fraction(value: Fraction) -> str:
    """A number of halves, thirds and so on, as people write it."""
    whole, rest = divmod(value, 1)
    part = {Fraction(0): "", Fraction(1, 2): "½"}.get(rest, f" {rest}")
    return f"{whole or ''}{part}".strip() or "0"


def _timeline_caption(shown: Timeline) -> str:
    idle = [shown.idle_time(rank) for rank in range(shown.ranks)]
    share = 100 * max(idle) / shown.makespan
    each = "each rank" if len(set(idle)) == 1 else "the idlest rank"
    return (
        f"{shown.title}: the step takes {_format_fraction(shown.to_units(shown.makespan))} units, "
        f"of which {each} idles for {_format_fraction(shown.to_units(max(idle)))} "
        f"({share:.0f} %). {shown.note}"
    )


def _describe_passes(shown: Timeline) -> str:
    """The passes of each rank in words, for who cannot see the picture."""
    lines = []
    for rank in range(shown.ranks):
        names = (
            f"{one.kind}{one.micro_batch}{chr(39) * one.chunk}" for one in shown.rank_passes(rank)
        )
        lines.append(f"Rank {rank}: {' '.join(names)}.")
    return " ".join(lines)


HEIGHT = 21.0  # of a cell
CHARACTER = 7.6  # width of a digit, at most
PADDING = 9.0  # of a cell, both sides together
LEAST = 20.0  # width of a cell


def draw_grids(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    """The picture of each row of a record's `grids`, by its name."""
    return {row["name"]: draw_grid(row) for row in rows}


def draw_grid(row: dict[str, Any]) -> str:
    """One grid with its axes, its legend and its caption."""
    columns, rows = row["columns"], row["rows"]
    longest = max(len(cell[0]) for line in row["cells"] for cell in line)
    longest = max(longest, *(len(name) for name in columns))
    wide = max(LEAST, PADDING + CHARACTER * longest)
    left = 12 + CHARACTER * max(len(name) for name in rows)
    right = left + wide * len(columns)
    foot = HEIGHT * len(rows)
    parts = [
        svg.draw_text(left + wide * (x + 0.5), -7, name, end="middle", kind="ws-small ws-faint")
        for x, name in enumerate(columns)
    ]
    axes = f"{row['down']} ↓ · {row['across']} →"
    parts.append(svg.draw_text(0, -25, axes, kind="ws-small ws-faint"))
    for y, (name, line) in enumerate(zip(rows, row["cells"], strict=True)):
        base = HEIGHT * (y + 0.5) + 4.7
        parts.append(svg.draw_text(left - 8, base, name, end="end", kind="ws-small ws-faint"))
        for x, (words, colour) in enumerate(line):
            parts.append(_draw_grid_cell(left + wide * x, HEIGHT * y, wide, words, colour))
    below, foot = _grid_legend(row.get("legend", ()), foot + 20)
    parts += below
    said = [axes, *(f"    {words}" for _, words in row.get("legend", ()))]
    width = max(right + 2, *(CHARACTER * len(words) for words in said))
    box = (-40.0, width, foot + 40)
    return (
        '<figure class="ws-diagram ws-grids"><div class="ws-scroll" role="region" '
        f'tabindex="0" aria-label={quote_attribute(row["caption"])}>'
        + svg.render_svg(
            box, row["caption"], _describe_grid(row), parts, style=f"width:{svg.coord(width)}px"
        )
        + f"</div><figcaption>{escape_markdown(row['caption'])}</figcaption></figure>\n"
    )


def _draw_grid_cell(x: float, y: float, width: float, words: str, colour: int) -> str:
    kind = "ws-line ws-cell" if colour < 0 else f"ws-box ws-s{colour}"
    shape = (
        f'<rect x="{svg.coord(x + 0.7)}" y="{svg.coord(y + 0.7)}" width="{svg.coord(width - 1.4)}" '
        f'height="{svg.coord(HEIGHT - 1.4)}" class="{kind}" fill="none" stroke="currentColor"/>'
    )
    if words:
        shape += svg.draw_text(
            x + width / 2, y + HEIGHT / 2 + 4.4, words, end="middle", kind="ws-small"
        )
    return shape


def _grid_legend(entries: Iterable[tuple[int, str]], y: float) -> tuple[list[str], float]:
    parts: list[str] = []
    for colour, words in entries:
        parts.append(
            f'<rect x="1" y="{svg.coord(y - 10.5)}" width="14" height="14" '
            f'class="ws-box ws-s{colour}" fill="none" stroke="currentColor"/>'
        )
        parts.append(svg.draw_text(22, y, words, kind="ws-small"))
        y += svg.LINE
    return parts, y - 14 if parts else y - 18


def _describe_grid(row: dict[str, Any]) -> str:
    """The cells in words, for who cannot see the picture."""
    lines = []
    for name, cells in zip(row["rows"], row["cells"], strict=True):
        said = " ".join(words or "-" for words, _ in cells)
        lines.append(f"{row['down']} {name}: {said}.")
    return f"By {row['across']} {row['columns'][0]} to {row['columns'][-1]}. {' '.join(lines)}"

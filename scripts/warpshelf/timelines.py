"""Timelines: the schedules of a pipeline drawn one under another, on one scale of time.

Every picture is as wide as the longest schedule, so that what one saves is seen as space. Passes
differ by fill, outline and width, and chunks by a bar at the foot, never by colour alone.
"""

from __future__ import annotations

from fractions import Fraction

from warpshelf import schedules, svg
from warpshelf.markup import attribute, escape
from warpshelf.passes import Kind, Pass, Schedule

RANKS, MICRO_BATCHES, CHUNKS = 4, 8, 2
UNIT = 19.0  # width of a forward pass through a whole stage
LEFT, RIGHT = 54.0, 66.0  # room for the rank and for what it holds
NARROW = 12.0  # a box less wide than this takes a smaller digit
GAP = 5.0  # between two ranks
SINGLE, DOUBLE = 21.0, 32.0  # height of a rank, and where passes are paired
DRAWN = {
    "pipeline-gpipe": schedules.gpipe(RANKS, MICRO_BATCHES),
    "pipeline-1f1b": schedules.one_f_one_b(RANKS, MICRO_BATCHES),
    "pipeline-interleaved": schedules.interleaved(RANKS, MICRO_BATCHES, CHUNKS),
    "pipeline-zb-h1": schedules.zero_bubble(RANKS, MICRO_BATCHES),
    "pipeline-dualpipe": schedules.dualpipe(RANKS, MICRO_BATCHES),
    "pipeline-dualpipe-v": schedules.dualpipe_v(RANKS, MICRO_BATCHES),
}
# Words of the legend, and the classes of chunk 0 and of any other.
KINDS = {
    Kind.FORWARD: ("forward", "ws-box ws-s2", "ws-box ws-s5"),
    Kind.BACKWARD: ("backward", "ws-fill ws-s0", "ws-fill ws-s6"),
    Kind.INPUT: ("input gradient", "ws-fill ws-s0", "ws-fill ws-s6"),
    Kind.WEIGHT: ("weight gradient", "ws-box ws-dash ws-s1", "ws-box ws-dash ws-s1"),
}
OTHER = {
    "pipeline-interleaved": "second chunk",
    "pipeline-dualpipe": "upwards",
    "pipeline-dualpipe-v": "upwards",
}


def fragments() -> dict[str, str]:
    """Each picture under the name by which a page embeds it, `diagrams/<name>.md`."""
    width = max(steps(one, one.makespan) for one in DRAWN.values())
    return {f"diagrams/{name}.md": figure(name, one, width) for name, one in DRAWN.items()}


def steps(schedule: Schedule, time: int) -> Fraction:
    """`time` in forward passes through a whole stage; the costs are those of a chunk."""
    return Fraction(time, schedule.chunks * schedule.costs.forward)


def figure(name: str, schedule: Schedule, width: Fraction) -> str:
    """The timeline of a schedule on an axis of `width` forward passes, with its figures."""
    unit = UNIT / (schedule.chunks * schedule.costs.forward)
    height = DOUBLE if any(one.paired for one in schedule.passes) else SINGLE
    end = LEFT + schedule.makespan * unit
    foot = schedule.ranks * (height + GAP)
    right = LEFT + float(width) * UNIT + RIGHT
    parts = []
    for rank in range(schedule.ranks):
        y = rank * (height + GAP)
        middle = y + height / 2 + 4.5
        parts.append(svg.text(0, middle, f"rank {rank}"))
        for since, until in _gaps(schedule, rank):
            x1, x2 = LEFT + since * unit, LEFT + until * unit
            parts.append(svg.line(x1, y + height / 2, x2, y + height / 2, "ws-line ws-grid"))
        held = Fraction(schedule.held(rank), schedule.chunks)
        parts.append(svg.text(right, middle, f"holds {_mixed(held)}", end="end"))
        for one in schedule.passes:
            if one.rank == rank:
                parts.append(_cell(one, y, height, unit))
    parts.append(svg.line(end, -2, end, foot, "ws-line"))
    parts.append(svg.text(end, foot + 12, _mixed(steps(schedule, schedule.makespan)), end="middle"))
    parts.extend(_legend(name, schedule, foot + 32))
    title = f"{schedule.name}, {schedule.ranks} ranks and {schedule.micro_batches} micro-batches"
    return (
        '<figure class="ws-diagram ws-timeline"><div class="ws-scroll" role="region" '
        f'tabindex="0" aria-label={attribute(title)}><svg role="img" '
        f'viewBox="0 -4 {svg.at(right)} {svg.at(foot + 42)}" xmlns="http://www.w3.org/2000/svg" '
        f'font-size="{svg.TEXT}" fill="currentColor"><title>{escape(title)}</title>'
        f"<desc>{escape(_told(schedule))}</desc>\n"
        + "\n".join(parts)
        + f"\n</svg></div><figcaption>{escape(_caption(title, schedule))}</figcaption></figure>\n"
    )


def _gaps(schedule: Schedule, rank: int) -> list[tuple[int, int]]:
    """When a rank has nothing to do."""
    busy = sorted({(one.start, one.end) for one in schedule.passes if one.rank == rank})
    ends = [0, *(end for _, end in busy)]
    starts = [*(start for start, _ in busy), schedule.makespan]
    return [(end, start) for end, start in zip(ends, starts, strict=True) if end < start]


def _cell(one: Pass, y: float, height: float, unit: float) -> str:
    """A pass as a box with its micro-batch; of a pair, forward above and backward below."""
    if one.paired:
        height /= 2
        y += 0 if one.kind is Kind.FORWARD else height
    x, width = LEFT + one.start * unit, one.length * unit
    return _box(one.kind, one.chunk, (x, y, width, height), str(one.micro_batch))


def _box(kind: Kind, chunk: int, where: tuple[float, float, float, float], words: str) -> str:
    x, y, width, height = where
    classes = KINDS[kind][2 if chunk else 1]
    filled = classes.startswith("ws-fill")
    shape = (
        f'<rect x="{svg.at(x + 0.7)}" y="{svg.at(y + 0.7)}" width="{svg.at(width - 1.4)}" '
        f'height="{svg.at(height - 1.4)}" class="{classes}"/>'
    )
    if chunk:
        bar = f'x="{svg.at(x + 2)}" y="{svg.at(y + height - 3.6)}" width="{svg.at(width - 4)}"'
        colour = "ws-on" if filled else f"ws-fill {classes.split()[-1]}"
        shape += f'<rect {bar} height="1.6" class="{colour}"/>'
    if words:
        base = y + height / 2 + (3.6 if chunk else 4.7)
        kinds = ["ws-on"] * filled + ["ws-small"] * (width < NARROW)
        shape += svg.text(x + width / 2, base, words, end="middle", kind=" ".join(kinds))
    return shape


def _legend(name: str, schedule: Schedule, y: float) -> list[str]:
    """What the boxes mean."""
    parts, x = [], LEFT
    used = [kind for kind in KINDS if any(one.kind is kind for one in schedule.passes)]
    entries = [(kind, 0, KINDS[kind][0]) for kind in used]
    if name in OTHER:
        entries.append((Kind.FORWARD, 1, OTHER[name]))
    for kind, chunk, words in entries:
        wide = 26.0 if kind is Kind.BACKWARD else 13.0
        parts.append(_box(kind, chunk, (x, y - 10.5, wide, 14), ""))
        parts.append(svg.text(x + wide + 5, y, words))
        x += wide + 5 + len(words) * svg.TEXT * 0.48 + 14
    return parts


def _mixed(value: Fraction) -> str:
    """A number of halves, thirds and so on, as people write it."""
    whole, rest = divmod(value, 1)
    part = {Fraction(0): "", Fraction(1, 2): "½"}.get(rest, f" {rest}")
    return f"{whole or ''}{part}".strip() or "0"


def _caption(title: str, schedule: Schedule) -> str:
    idle = [schedule.idle(rank) for rank in range(schedule.ranks)]
    share = 100 * max(idle) / schedule.makespan
    each = "each rank" if len(set(idle)) == 1 else "the idlest rank"
    return (
        f"{title}: the step takes {_mixed(steps(schedule, schedule.makespan))} units, of which "
        f"{each} idles for {_mixed(steps(schedule, max(idle)))} ({share:.0f} %). A forward pass "
        "through a stage takes 1 unit, a backward pass 2; messages take no time."
    )


def _told(schedule: Schedule) -> str:
    """The passes of each rank in words, for who cannot see the picture."""
    lines = []
    for rank in range(schedule.ranks):
        names = (
            f"{one.kind.value}{one.micro_batch}{chr(39) * one.chunk}"
            for one in schedule.passes
            if one.rank == rank
        )
        lines.append(f"Rank {rank}: {' '.join(names)}.")
    return " ".join(lines)

"""The plots of a calculator: bars against a limit, lines over an input, a timeline of ranks.

Where two configurations are compared, bars and timelines stand one beside the other on one scale,
and lines in one picture.
"""

from __future__ import annotations

from collections.abc import Sequence

from warpshelf.live import curves, spans, stacks
from warpshelf.live.labels import Plot

DRAW = {"bars": stacks.bars, "lines": curves.lines, "timeline": spans.timeline}


def figures(found: Sequence[Sequence[Plot]], names: Sequence[str]) -> list[str]:
    """A figure for each plot of one or two results; `names` tell the results apart."""
    drawn: list[str] = []
    for place in range(max((len(plots) for plots in found), default=0)):
        pair = [(name, plots[place]) for name, plots in zip(names, found, strict=True)
                if place < len(plots)]  # fmt: skip
        kinds = {plot["kind"] for _, plot in pair}
        for kind in DRAW:
            if kind in kinds:
                drawn += DRAW[kind]([one for one in pair if one[1]["kind"] == kind])
    return drawn

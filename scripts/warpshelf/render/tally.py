"""How many snippets are measured, checked, compiled only, stale or failed, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from warpshelf.core.markup import escape
from warpshelf.render import tables
from warpshelf.render.exhibit import Exhibit

NOT_YET = """\
!!! note "No GPU has been measured yet"
    Every result on the site comes from a CPU: errors, facts, figures of the compiler, and no times.
    Where a time would stand the page says *not measured on a GPU*. What follows about timing is how
    the first ones will be taken. The [page of results](/results/index.md) counts what there is.
"""


@dataclass(frozen=True)
class Tally:
    """How many snippets there are by the most that is claimed of them, and on which GPUs."""

    snippets: int
    measured: int
    checked: int
    compiled: int
    nothing: int
    stale: int
    failed: int
    gpus: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """What is measured on a GPU, in words."""
        if not self.gpus:
            return "No snippet has been measured on a GPU yet: no time of ours stands on this site."
        verb = "is" if self.measured == 1 else "are"
        of = tables.count(self.snippets, "snippet")
        return f"{self.measured} of {of} {verb} measured on a GPU: {'; '.join(self.gpus)}."


def tally(exhibits: Iterable[Exhibit]) -> Tally:
    """Count them; a snippet counts once by the most that a current record claims."""
    shown = list(exhibits)
    best = dict.fromkeys(("measured", "verified", "compiled", ""), 0)
    gpus: dict[str, None] = {}
    for exhibit in shown:
        known = {state.state for state in exhibit.states}
        best[next((state for state in best if state in known), "")] += 1
        gpus |= dict.fromkeys(state.device for state in exhibit.shown("measured"))
    amiss = {
        name: sum(any(state.state == name for state in one.states) for one in shown)
        for name in ("stale", "failed")
    }
    return Tally(
        len(shown),
        best["measured"],
        best["verified"],
        best["compiled"],
        best[""],
        amiss["stale"],
        amiss["failed"],
        tuple(gpus),
    )


def summary(exhibits: Iterable[Exhibit]) -> str:
    """The counts, each with its words, and the sentence about GPUs."""
    found = tally(exhibits)
    rows = (
        (found.measured, "measured on a GPU"),
        (found.checked, "checked with no GPU"),
        (found.compiled, "compiled only"),
        (found.nothing, "without a current record"),
        (found.stale, "stale on some machine"),
        (found.failed, "failed when last run"),
    )
    items = " ".join(f"<li><strong>{number}</strong> {words}</li>" for number, words in rows)
    return f'<p><strong>{escape(found.sentence)}</strong></p>\n<ul class="ws-counts">{items}</ul>\n'


def note(exhibits: Iterable[Exhibit]) -> str:
    """What the page that explains the numbers says of those that there are, as Markdown."""
    found = tally(exhibits)
    if found.gpus:
        said = f'!!! note "{escape(found.sentence)}"'
        return f"{said}\n    The [page of results](/results/index.md) has them all.\n"
    return NOT_YET

"""Where a warpgroup's sums may be touched while its products are in flight, the engine looks.

PTX leaves open what becomes of a sum that is read or written between its wgmma.mma_async and the
wait for it. ptxas mends what a compiler did to it, the engine tells of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from papergpu.layout import successors
from papergpu.program import PLAIN
from papergpu.steps import Label, Register, Step


def reached(steps: Sequence[Step]) -> set[int]:
    """Steps that may come while something is in flight: behind an issue, up to a wait for all."""
    waiting = [at for at, step in enumerate(steps) if step.name == "wgmma.issue"]
    found: set[int] = set()
    while waiting:
        for after in successors(steps, waiting.pop()):
            if after >= len(steps) or after in found:
                continue
            step = steps[after]
            if step.name == "wgmma.wait" and not step.imm and step.guard is None:
                continue
            found.add(after)
            waiting.append(after)
    return found


def watched(steps: list[Step], sums: Iterable[Register]) -> list[Step]:
    """The steps, with `wgmma.touch` before those that may touch sums in flight."""
    wanted = set(sums)
    made: list[Step] = []
    places = []
    risky = reached(steps)
    for at, step in enumerate(steps):
        places.append(len(made))
        touched = [one for one in dict.fromkeys((*step.reads, *step.writes)) if one in wanted]
        if touched and at in risky and not step.name.startswith("wgmma."):
            made.append(
                Step("wgmma.touch", PLAIN, (), tuple(touched), step.guard, step.negate, step.place,
                     step.form, step.owner, touched, count=len(touched))
            )  # fmt: skip
        made.append(step)
    places.append(len(made))
    labels = {
        id(one): one for step in steps for one in (step.imm, *step.items) if isinstance(one, Label)
    }
    for label in labels.values():
        label.at = places[label.at]
    return made

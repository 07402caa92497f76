"""Public kernels for the same job beside ours, both compiled by the same compiler: no times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.core.markup import attribute, escape
from warpshelf.look.builds import Build, of_view
from warpshelf.look.figures import products
from warpshelf.look.rivalry import Answer
from warpshelf.readings.rivals import Rival
from warpshelf.render import tables

HEAD = (
    "Build", "Registers", "Spilled", "Shared memory", "Instructions", "In the main loop",
    "For each multiply-add", "Main loop by kind",
)  # fmt: skip
USUAL = "sm_90"  # the architecture that the summary speaks of


class Pair(NamedTuple):
    """A public kernel and what it was compiled to, by architecture; `ours` likewise."""

    rival: Rival
    answer: Answer
    ours: dict[str, Build]

    @property
    def archs(self) -> list[str]:
        """The architectures that both are compiled for."""
        return sorted(self.ours.keys() & self.answer.builds.keys(), key=architectures.number)


def table(pairs: Sequence[Pair]) -> str:
    """Figures of both, by architecture, under a line that says where they differ; "" of none."""
    pairs = [one for one in pairs if one.archs]
    if not pairs:
        return ""
    bodies = [_body(one) for one in pairs]
    compilers = ", ".join(sorted({one.answer.compiler for one in pairs}))
    caption = (
        f"Public kernels for the same job, compiled alike\n{compilers}, at the same dtype, shape "
        "and divisibility. The main loop is that with most products, else most loads. No times"
    )
    inner = tables.table(caption, HEAD, bodies, "rivals")
    return tables.fold(_said(pairs), inner, sum(2 * len(one.archs) for one in pairs), "beside")


def _said(pairs: Iterable[Pair]) -> str:
    """In one line, how many of the figures that cost something ours has no more of."""
    builds = [(one.ours[arch], one.answer.builds[arch]) for one in pairs for arch in one.archs]
    kept = sum(_no_worse(ours, theirs) for ours, theirs in builds)
    names = ", ".join(dict.fromkeys(one.rival.name for one in pairs))
    return (
        f"Compiled beside {names}: no more spills and no more instructions in the main loop for "
        f"each multiply-add in {kept} of {tables.count(len(builds), 'build')}"
    )


def _no_worse(ours: Build, theirs: Build) -> bool:
    spills = ours["spilled_bytes"] <= theirs["spilled_bytes"]
    mine, other = _each(ours), _each(theirs)
    if mine is None or other is None:  # no products: what counts is the loop, or all of it
        mine, other = (_loop(one) or one["instructions"] for one in (ours, theirs))
    return spills and mine <= other


def _loop(build: Build) -> int:
    return sum(build["loop"].values())


def _each(build: Build) -> float | None:
    made = products(build["loop"])
    return _loop(build) / made if made else None


def _body(one: Pair) -> str:
    rival = one.rival
    link = f"<a href={attribute(rival.url)}>{escape(rival.kernel)}</a>"
    title = f"{escape(rival.beside.kernel)} ({escape(rival.beside.variant)}) beside "
    title += f"{escape(rival.name)}: {link}; {escape(rival.what)}"
    head = f'<tr><th scope="rowgroup" colspan="{len(HEAD)}">{title}</th></tr>'
    rows = []
    for arch in one.archs:
        rows.append(_row(f"{arch}, ours", one.ours[arch]))
        rows.append(_row(f"{arch}, {rival.name}", one.answer.builds[arch]))
    return f"<tbody>{head}" + "\n".join(rows) + "</tbody>"


def _row(name: str, build: Build) -> str:
    each = _each(build)
    kinds = sorted(build["loop"].items(), key=lambda pair: (-pair[1], pair[0]))
    return tables.row(
        name,
        (
            str(build["registers"]),
            units.size(build["spilled_bytes"]) if build["spilled_bytes"] else "none",
            units.size(build["shared_bytes"]) if build["shared_bytes"] else "none",
            units.integer(build["instructions"]),
            units.integer(_loop(build)) if build["loop"] else "no loop",
            units.significant(each) if each is not None else "none",
            ", ".join(f"{number} {kind}" for kind, number in kinds) or "no loop",
        ),
    )


def ours(views: Iterable[dict[str, object]], rival: Rival) -> dict[str, Build]:
    """What the kernel of ours that a rival stands beside was compiled to, by architecture."""
    return {
        str(view["arch"]): of_view(view)
        for view in views
        if (view["variant"], view["kernel"]) == (rival.beside.variant, rival.beside.kernel)
    }

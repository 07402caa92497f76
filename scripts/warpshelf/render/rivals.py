"""Public kernels for the same job beside ours, both compiled by the same compiler: no times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from warpshelf.contract import architectures
from warpshelf.core import units
from warpshelf.core.markup import attribute, escape
from warpshelf.look.builds import Build, of_view
from warpshelf.look.kept import Kept
from warpshelf.look.rivalry import Answer
from warpshelf.readings.rivals import Rival
from warpshelf.render import tables

HEAD = (
    "Build", "Registers", "Spilled", "Shared memory", "Instructions", "In the main loop",
    "An instruction does", "Main loop by kind",
)  # fmt: skip


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
    """Figures of both, by architecture, under a line that says how they compare; "" of none."""
    pairs = [one for one in pairs if one.archs and not one.rival.package]
    if not pairs:
        return ""
    bodies = [_body(one) for one in pairs]
    compilers = ", ".join(sorted({one.answer.compiler for one in pairs}))
    caption = (
        f"Public kernels for the same job, compiled alike\n{compilers}, at the same dtype, shape "
        "and divisibility. What an instruction of a warp does: multiply-adds of the matrix units, "
        "or of a lane where they are two thirds of all, else bytes of a lane to and from memory; "
        "in the main loop, or where there is none in all. No times"
    )
    inner = tables.table(caption, HEAD, bodies, "rivals")
    return tables.fold(_said(pairs), inner, sum(2 * len(one.archs) for one in pairs), "beside")


def _said(pairs: Iterable[Pair]) -> str:
    """In one line, in how many builds ours spills no more and its instructions do no less."""
    told = [
        verdict
        for one in pairs
        for arch in one.archs
        if (verdict := _no_worse(one.ours[arch], one.answer.builds[arch])) is not None
    ]
    names = ", ".join(dict.fromkeys(one.rival.name for one in pairs))
    if not told:
        return f"Compiled beside {names}"
    return (
        f"Compiled beside {names}: ours spills no more, and its instructions do no less each, in "
        f"{sum(told)} of {tables.count(len(told), 'build')}"
    )


def _no_worse(ours: Build, theirs: Build) -> bool | None:
    """None where what instructions do cannot be compared."""
    mine, other = _does(ours), _does(theirs)
    if mine is None or other is None or mine[1] != other[1]:
        return None
    return bool(ours["spilled_bytes"] <= theirs["spilled_bytes"] and mine[0] >= other[0])


def _does(build: Build) -> tuple[float, str] | None:
    """What one of a warp's instructions gets done on average, and of what."""
    instructions = sum(build["loop"].values()) or build["instructions"]
    if "matrix" in build["loop"]:
        # A matrix instruction of Blackwell does not say its shape.
        return (build["products"] / instructions, "products") if build["products"] else None
    if 3 * (scalar := build["loop"].get("multiply-add", 0)) >= 2 * instructions:
        return scalar / instructions, "multiply-adds"
    return (build["bytes"] / instructions, "bytes") if build["bytes"] else None


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
    return tables.row(name, cells(build))


def cells(build: Build) -> tuple[str, ...]:
    """A build's figures in words: what stands under HEAD, all but its name."""
    done = _does(build)
    kinds = sorted(build["loop"].items(), key=lambda pair: (-pair[1], pair[0]))
    return (
        str(build["registers"]),
        units.size(build["spilled_bytes"]) if build["spilled_bytes"] else "none",
        units.size(build["shared_bytes"]) if build["shared_bytes"] else "none",
        units.integer(build["instructions"]),
        units.integer(sum(build["loop"].values())) if build["loop"] else "no loop",
        f"{units.significant(done[0])} {done[1]}" if done else "not told",
        ", ".join(f"{number} {kind}" for kind, number in kinds) or "no loop",
    )


def ours(views: Iterable[Kept], rival: Rival) -> dict[str, Build]:
    """What the kernel of ours that a rival stands beside was compiled to, by architecture."""
    return {
        one.view["arch"]: of_view(one.view, one.files[f"{one.name}.sass.txt"].splitlines())
        for one in views
        if (one.view["variant"], one.view["kernel"]) == (rival.beside.variant, rival.beside.kernel)
    }

"""A view: what became of a kernel's source on one architecture, and what each line of it did.

`View` is the one type of it, and a JSON object as it is: worker/kernel_views.py makes it,
view_store.py keeps it with the others of its snippet, pages and the terminal show it. Its lists run
side by side, and refer to each other by index. Registers are those of a thread, bytes of shared
memory and `threads` those of a block.

The pieces of source files that a view shows are whole functions, not single lines.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypedDict

from warpshelf.contract.snippet import ID
from warpshelf.core.files import Shape, shape_of

SCHEMA = 1
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ARCH = re.compile(r"sm_[1-9][0-9]{1,2}")
NUMBERS = (
    "lanes", "requests", "sectors", "ideal_sectors", "shared_requests", "wavefronts",
    "ideal_wavefronts", "bytes", "operations",
)  # fmt: skip
LANES = 32


def _addresses_problem(value: object) -> str | None:
    known = value if isinstance(value, list) else []
    good = all(one is None or (type(one) is int and one >= 0) for one in known)
    return None if good and len(known) == LANES else f"is not a list of {LANES} addresses"


# `classes`, how often a warp executed an instruction of each, and NUMBERS that are not 0.
TALLY: Shape = {"classes": {"*": int}, **{f"{name}?": int for name in NUMBERS}}
Tally = Annotated[dict[str, Any], TALLY]
# A line of the source, and what it did: `at` is `file:line`, the name of a library's file, or
# `PTX`; `live` the most registers that are live at one of its machine instructions.
Line = Annotated[dict[str, Any], {"at": str, "live?": int, **TALLY}]
# A piece of one of the snippet's files, from the line `from` on.
Piece = TypedDict("Piece", {"file": str, "from": int, "text": list[str]})


class Ptx(TypedDict):
    """A kernel's PTX by line: its place in `View.lines` or -1, and how often a warp executed it."""

    text: list[str]
    line: list[int]
    run: list[int]


class Sass(TypedDict, total=False):
    """Machine code by instruction; a summary has `live` alone, the most of all instructions."""

    text: list[str]
    ptx: list[int]  # the place in `View.ptx` that the assembler made each from, or -1
    live: list[int]  # registers that are live at each
    control: list[int]  # its control code (look/binary.py)
    labels: dict[str, int]  # the instruction that a label stands in front of


class Loop(TypedDict):
    """A loop of machine code; what belongs to loops inside it is left out."""

    first: int  # instruction, and the last, both in it
    last: int
    depth: int  # 1 for one in no other
    kinds: dict[str, int]  # instructions by kind (look/figures.py)
    loads: int  # from global memory before the first is waited for, without copies in bulk
    bytes: int  # of a warp that these ask for
    operations: int  # most multiply-adds and matrix instructions between such an ask and its wait


class Access(TypedDict):
    """The worst request of an instruction of PTX that reads or writes memory."""

    ptx: int
    space: Annotated[str, ("global", "shared")]
    does: Annotated[str, ("load", "store", "atomic")]
    size: int  # bytes of a lane
    block: list[int]
    warp: int
    # Of each lane, None where it took no part, from the start of the block's shared memory, or from
    # a multiple of 128 bytes.
    addresses: Annotated[list[int | None], _addresses_problem]
    passes: int  # sectors or wavefronts
    ideal: int  # the fewest of them


class Pipe(TypedDict):
    """The cycles of one pipe, and what was counted for it in words."""

    pipe: str
    cycles: float
    of: str


class Bound(TypedDict):
    """The least cycles of an SM, the pipe that takes them, and all pipes that do anything."""

    limiter: str
    cycles: float
    pipes: list[Pipe]


class Residency(TypedDict):
    """Blocks and warps that an SM holds at once, the most warps that it could, and all limiters.

    With no blocks at all the limiters are what one block exceeds.
    """

    blocks: int
    warps: int
    most: int
    limiters: list[str]


class OccupancyChange(Residency):
    """Another use, in words, and what the SM would then hold."""

    change: str


class Occupancy(Residency):
    """What an SM holds now, and the nearest uses with which it would hold more or less."""

    changes: list[OccupancyChange]


class Build(TypedDict):
    """What is compared of two builds of a kernel, see look/builds.py."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    instructions: int
    loop: dict[str, int]  # machine instructions of the main loop by kind; empty where it has none
    products: int
    bytes: int


class Code(TypedDict):
    """The part of a view that is machine code and what it takes."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    sass: Sass
    loops: list[Loop]


class View(Code, total=False):
    """A view. A summary has no DETAILS, and instead the last two."""

    schema: int
    snippet: Annotated[str, ID]
    digest: Annotated[str, DIGEST]
    variant: str
    kernel: str
    language: Annotated[str, ("CUDA C++", "Triton")]
    arch: Annotated[str, ARCH]
    compiler: str
    case: dict[str, Any]
    launches: int
    grid: list[int]
    block: list[int]
    cluster: list[int]
    threads: int
    total: Tally
    occupancy: Occupancy
    bound: Bound
    lines: list[Line]  # those that did something, in order
    source: list[Piece]  # which hold all of `lines` that stand in the snippet's files
    ptx: Ptx
    accesses: list[Access]
    build: Build
    whole: bool  # whether the view is kept whole as well


DETAILS = ("lines", "source", "ptx", "accesses")
VIEW: dict[str, Shape] = {
    key: shape for key, shape in shape_of(View).items() if key not in ("build", "whole")
}
SUMMARY: dict[str, Shape] = {key: shape for key, shape in VIEW.items() if key not in DETAILS}
SUMMARY["sass"] = {"live": [int]}


def view_name(one: View) -> str:
    """The name of a view's file: `<variant>.<kernel>.<arch>`."""
    names = (re.sub(r"[^a-z0-9]+", "-", name.lower()) for name in (one["variant"], one["kernel"]))
    return ".".join((*(name.strip("-") for name in names), one["arch"]))


def executed_count(tally: Mapping[str, Any]) -> int:
    """Instructions of a warp that a line, or a kernel in all, executed."""
    return sum(tally["classes"].values())


def live_registers(one: Code) -> int:
    """The most registers that are live at an instruction."""
    return max(one["sass"]["live"], default=0)


# A line that goes on with what stands above it: indented, or opening or closing, or empty.
GOES_ON = re.compile(r"\s|[)}\]{]|$")
MARK = "--8<--"


def read_source(folder: Path, name: str) -> str | None:
    """A file of the snippet in `folder`, or shared by snippets; None where it is neither."""
    path = folder.parent.parent / name if name.startswith("snippets/") else folder / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def source_pieces(
    texts: Mapping[str, Sequence[str]], lines: Collection[tuple[str, int]]
) -> list[Piece]:
    """The pieces, by file and line, that hold all of `lines`.

    `texts` has the lines of each file; of one that is not there, nothing is shown. A piece is what
    stands at the margin with all that is indented below it: a function, with the decorators and
    template heads above.
    """
    found: list[Piece] = []
    for file in sorted({file for file, _ in lines if file in texts}):
        text = texts[file]
        wanted = {number for name, number in lines if name == file}
        starts = [
            number
            for number in range(1, len(text) + 1)
            if number == 1
            or (_is_separator(text[number - 2]) and not GOES_ON.match(text[number - 1]))
        ]
        for start, end in pairwise([*starts, len(text) + 1]):
            if wanted.isdisjoint(range(start, end)):
                continue
            block, before = list(text[start - 1 : end - 1]), found[-1] if found else None
            if before and (before["file"], before["from"] + len(before["text"])) == (file, start):
                before["text"] += block
            else:
                found.append({"file": file, "from": start, "text": block})
    for piece in found:
        kept = [at for at, line in enumerate(piece["text"]) if not _is_separator(line)]
        start, end = (kept[0], kept[-1] + 1) if kept else (0, 0)
        piece["from"], piece["text"] = piece["from"] + start, piece["text"][start:end]
    return [piece for piece in found if piece["text"]]


def snippet_pieces(folder: Path, lines: Collection[tuple[str, int]]) -> list[Piece]:
    """The pieces that hold `lines`, by file and line, of a snippet in `folder`."""
    texts = {name: read_source(folder, name) for name in {file for file, _ in lines}}
    return source_pieces(
        {name: text.splitlines() for name, text in texts.items() if text is not None}, lines
    )


def _is_separator(line: str) -> bool:
    """Whether a line separates: an empty one, or a mark of a section."""
    return not line.strip() or MARK in line


# How the lanes of a warp address memory, in words: `4 runs of 8 lanes side by side, …`.

WORD, BANKS = 4, 32  # bytes that a bank gives at once, and how many banks there are
SECTOR = 32  # bytes


def describe_pattern(access: Access) -> str:
    """Where the lanes of a request lie, and why it takes more passes than it must, if it does."""
    addresses = [one for one in access["addresses"] if one is not None]
    parts = [_describe_steps(addresses, access["size"])]
    if len(addresses) < LANES:
        parts.insert(0, f"{len(addresses)} of {LANES} lanes")
    if access["passes"] <= access["ideal"]:
        return ", ".join(parts)
    size = access["size"]
    words = {word for at in addresses for word in range(at // WORD, (at + size - 1) // WORD + 1)}
    if access["space"] == "global":
        sectors = {WORD * word // SECTOR for word in words}
        held = len(sectors) * SECTOR // WORD
        parts.append(f"{len(words)} of the {held} words of {len(sectors)} sectors used")
        return ", ".join(parts)
    # The bank that has most different words to give takes as many passes.
    given = Counter(word % BANKS for word in words)
    bank, most = min(given.items(), key=lambda one: (-one[1], one[0]))
    if len(given) == 1:
        parts.append(f"all lanes in bank {bank}")
    else:
        parts.append(f"{len(given)} of {BANKS} banks used")
        parts.append(f"bank {bank} has {most} different words to give")
    return ", ".join(parts)


def _describe_steps(addresses: Sequence[int], size: int) -> str:
    """Steps from lane to lane: one for all, or one inside runs of lanes and one between them."""
    count = len(addresses)
    if count < 2:
        return "one address"
    steps = [after - before for before, after in pairwise(addresses)]
    if len(set(steps)) == 1:
        return _describe_stride(steps[0], size)
    for length in (2, 4, 8, 16):
        inside = {step for at, step in enumerate(steps) if (at + 1) % length}
        between = {one - addresses[0] for one in addresses[length::length]}
        far = addresses[length] - addresses[0] if length < count else 0
        regular = {far * at for at in range(1, -(-count // length))}
        if count % length == 0 and len(inside) == 1 and between == regular:
            said = f"{count // length} runs of {length} lanes, each "
            said += _describe_stride(inside.pop(), size)
            if count == length:
                return said
            return f"{said}, " + (f"{abs(far):,} bytes apart" if far else "all from one address")
    return f"{len(set(addresses))} addresses without one stride"


def _describe_stride(step: int, size: int) -> str:
    if step == 0:
        return "at one address"
    return "side by side" if step == size else f"at a stride of {step:,} bytes"

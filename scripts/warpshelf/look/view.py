"""A view: what became of a kernel's source on one architecture, and what each line of it did.

It is one object, kept with the others of its snippet (look/view_store.py). Its lists run side by
side, and refer to each other by index:

- `lines` are the lines of the source that did something, in order, with what they did: `classes`,
  how often a warp executed an instruction of each, NUMBERS that are not 0, and `live`, the most
  registers that are live at one of their machine instructions. `at` is `file:line`, or the name
  of a library's file, or `PTX`.
- `source` are pieces of the snippet's files, each from the line `from` on, that hold all of `lines`
  which stand in them.
- `ptx` has the kernel's PTX: `text`, by line; `line`, the index into `lines` of each or -1; `run`,
  how often a warp executed it.
- `sass` has its machine code: `text`, by instruction; `ptx`, the index into `ptx.text` from which
  the assembler made each, or -1; `live`, the registers that are live at each; `control`, its
  control code as a number (look/binary.py); `labels`, by name the instruction in front of which it
  stands.
- `loops` are those of the machine code, from instruction `first` to `last`, both inside, in the
  order of `first`; `depth` is 1 for one in no other; `kinds` its instructions by kind
  (look/figures.py), those of inner loops left out; `loads` and `bytes` how many loads from global
  memory, and bytes of a warp, are asked for before the first of them is waited for; `operations`
  the most multiply-adds or matrix instructions that lie between such an ask and its wait.
- `accesses` have, for each instruction of PTX that reads or writes memory, its worst request: `ptx`
  the index into `ptx.text`; `space` (global, shared); `does` (load, store, atomic); `size` bytes of
  a lane; the `block` and `warp` that made it; `addresses`, 32 of them, null where a lane took no
  part, counted from the start of the block's shared memory, or from a multiple of 128 bytes;
  `passes`, sectors or wavefronts, and the `ideal` of it.

Registers and bytes are those of a thread and of a block; `threads` are those of a block.

The pieces of source files that a view shows are whole functions, not single lines.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from warpshelf.contract.snippet import ID
from warpshelf.core import files

SCHEMA = 1
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ARCH = re.compile(r"sm_[1-9][0-9]{1,2}")
NUMBERS = (
    "lanes", "requests", "sectors", "ideal_sectors", "shared_requests", "wavefronts",
    "ideal_wavefronts", "bytes", "operations",
)  # fmt: skip
LANES = 32

View = dict[str, Any]  # shaped as VIEW has it


def _addresses_problem(value: object) -> str | None:
    known = value if isinstance(value, list) else []
    good = all(one is None or (type(one) is int and one >= 0) for one in known)
    return None if good and len(known) == LANES else f"is no list of {LANES} addresses"


TALLY = {"classes": {"*": int}, **{f"{name}?": int for name in NUMBERS}}
LINE = {"at": str, "live?": int, **TALLY}
SOURCE = {"file": str, "from": int, "text": [str]}
PTX = {"text": [str], "line": [int], "run": [int]}
SASS = {"text": [str], "ptx": [int], "live": [int], "control": [int], "labels": {"*": int}}
LOOP = {
    "first": int,
    "last": int,
    "depth": int,
    "kinds": {"*": int},
    "loads": int,
    "bytes": int,
    "operations": int,
}
ACCESS = {
    "ptx": int,
    "space": ("global", "shared"),
    "does": ("load", "store", "atomic"),
    "size": int,
    "block": [int],
    "warp": int,
    "addresses": _addresses_problem,
    "passes": int,
    "ideal": int,
}
PIPE = {"pipe": str, "cycles": (int, float), "of": str}
BOUND = {"limiter": str, "cycles": (int, float), "pipes": [PIPE]}
RESIDENT = {"blocks": int, "warps": int, "most": int, "limiters": [str]}
OCCUPANCY = {**RESIDENT, "changes": [{"change": str, **RESIDENT}]}
VIEW = {
    "schema": int,
    "snippet": ID,
    "digest": DIGEST,
    "variant": str,
    "kernel": str,
    "language": ("CUDA C++", "Triton"),
    "arch": ARCH,
    "compiler": str,
    "case": {"*": object},
    "launches": int,
    "grid": [int],
    "block": [int],
    "cluster": [int],
    "threads": int,
    "registers": int,
    "spilled_bytes": int,
    "shared_bytes": int,
    "total": TALLY,
    "occupancy": OCCUPANCY,
    "bound": BOUND,
    "lines": [LINE],
    "source": [SOURCE],
    "ptx": PTX,
    "sass": SASS,
    "loops": [LOOP],
    "accesses": [ACCESS],
}
# What a table of totals is made of: a view without most of what has a place for each line of it.
DETAILS = ("lines", "source", "ptx", "accesses")
SUMMARY: dict[str, Any] = {key: shape for key, shape in VIEW.items() if key not in DETAILS}
SUMMARY["sass"] = {"live": [int]}  # the most of all instructions


def summarize_view(value: dict[str, Any]) -> dict[str, Any]:
    """What of a view's object a summary has."""
    found = {key: one for key, one in value.items() if key not in DETAILS}
    sass = found.get("sass")
    live = sass.get("live") if isinstance(sass, dict) else None
    if isinstance(live, list) and all(type(one) is int for one in live):
        found["sass"] = {"live": [max(live, default=0)]}
    return found


def view_problem(value: object, shape: files.Shape = VIEW) -> str | None:
    """The first thing in a value that is not as a view, or SUMMARY, has it; None if all is."""
    return files.shape_problem(value, shape, "the view")


# A line that goes on with what stands above it: indented, or opening or closing, or empty.
GOES_ON = re.compile(r"\s|[)}\]{]|$")
MARK = "--8<--"


def read_source(folder: Path, name: str) -> str | None:
    """A file of the snippet in `folder`, or shared by snippets; None where it is neither."""
    path = folder.parent.parent / name if name.startswith("snippets/") else folder / name
    return path.read_text(encoding="utf-8") if path.is_file() else None


def read_sources(folder: Path, names: Iterable[str]) -> dict[str, list[str]]:
    """The lines of those files that are the snippet's own, or shared by snippets."""
    found = {name: read_source(folder, name) for name in names}
    return {name: one.splitlines() for name, one in found.items() if one is not None}


def source_pieces(
    texts: Mapping[str, Sequence[str]], lines: Collection[tuple[str, int]]
) -> list[dict[str, Any]]:
    """`{"file", "from", "text"}` of each piece, by file and line, that hold all of `lines`.

    `texts` has the lines of each file; of one that is not there, nothing is shown. A piece is what
    stands at the margin with all that is indented below it: a function, with the decorators and
    template heads above.
    """
    found: list[dict[str, Any]] = []
    for file in sorted({file for file, _ in lines if file in texts}):
        text = texts[file]
        wanted = {number for name, number in lines if name == file and 0 < number <= len(text)}
        for start, end in _block_ranges(text):
            if not any(start <= number < end for number in wanted):
                continue
            block, before = list(text[start - 1 : end - 1]), found[-1] if found else None
            if before and (before["file"], before["from"] + len(before["text"])) == (file, start):
                before["text"] += block
            else:
                found.append({"file": file, "from": start, "text": block})
    for piece in found:
        lines_of = piece["text"]
        while lines_of and _is_separator(lines_of[-1]):
            lines_of.pop()
        while lines_of and _is_separator(lines_of[0]):
            del lines_of[0]
            piece["from"] += 1
    return [piece for piece in found if piece["text"]]


def _block_ranges(text: Sequence[str]) -> list[tuple[int, int]]:
    """Where each block begins, and the line behind its last; lines are numbered from 1."""
    starts = [1] if text else []
    for number in range(2, len(text) + 1):
        if _is_separator(text[number - 2]) and not GOES_ON.match(text[number - 1]):
            starts.append(number)
    return list(zip(starts, [*starts, len(text) + 1][1:], strict=True))


def _is_separator(line: str) -> bool:
    """Whether a line separates: an empty one, or a mark of a section."""
    return not line.strip() or MARK in line


# How the lanes of a warp address memory, in words: `4 runs of 8 lanes side by side, …`.

WORD, BANKS = 4, 32  # bytes that a bank gives at once, and how many banks there are
SECTOR = 32  # bytes

Access = dict[str, Any]  # as a view's `accesses` have it


def describe_pattern(access: Access) -> str:
    """Where the lanes of a request lie, and why it takes more passes than it must, if it does."""
    addresses, size = access["addresses"], access["size"]
    parts = [_describe_steps([one for one in addresses if one is not None], size)]
    taking = sum(one is not None for one in addresses)
    if taking < LANES:
        parts.insert(0, f"{taking} of {LANES} lanes")
    if access["passes"] > access["ideal"]:
        parts.append(
            _describe_banks(access) if access["space"] == "shared" else _describe_sectors(access)
        )
    return ", ".join(parts)


def _describe_steps(addresses: Sequence[int], size: int) -> str:
    """Steps from lane to lane: one for all, or one inside runs of lanes and one between them."""
    count = len(addresses)
    if count < 2:
        return "one address"
    steps = [after - before for before, after in zip(addresses, addresses[1:], strict=False)]
    if len(set(steps)) == 1:
        return _describe_stride(steps[0], size)
    for length in (2, 4, 8, 16):
        inside = {step for at, step in enumerate(steps) if (at + 1) % length}
        between = {one - addresses[0] for one in addresses[length::length]}
        far = addresses[length] - addresses[0] if length < count else 0
        regular = {far * at for at in range(1, -(-count // length))}
        if count % length == 0 and len(inside) == 1 and between == regular:
            stride = _describe_stride(inside.pop(), size)
            said = f"{count // length} runs of {length} lanes, each {stride}"
            return f"{said}, {_describe_gap(far)}" if count > length else said
    different = len(set(addresses))
    return f"{different} addresses without one stride"


def _describe_stride(step: int, size: int) -> str:
    if step == 0:
        return "at one address"
    return "side by side" if step == size else f"at a stride of {step:,} bytes"


def _describe_gap(step: int) -> str:
    return "all from one address" if step == 0 else f"{abs(step):,} bytes apart"


def _requested_words(access: Access) -> Iterator[int]:
    """The words that are asked for, by number, once for each lane that asks."""
    for one in access["addresses"]:
        if one is not None:
            yield from range(one // WORD, (one + access["size"] - 1) // WORD + 1)


def _describe_banks(access: Access) -> str:
    """Who gives them: the bank that has most different words to give takes as many passes."""
    given: dict[int, set[int]] = {}
    for word in _requested_words(access):
        given.setdefault(word % BANKS, set()).add(word)
    bank, most = min(given, key=lambda one: (-len(given[one]), one)), max(map(len, given.values()))
    if len(given) == 1:
        return f"all lanes in bank {bank}"
    return f"{len(given)} of {BANKS} banks used, bank {bank} has {most} different words to give"


def _describe_sectors(access: Access) -> str:
    asked = set(_requested_words(access))
    sectors = {WORD * word // SECTOR for word in asked}
    held = len(sectors) * SECTOR // WORD
    return f"{len(asked)} of the {held} words of {len(sectors)} sectors used"

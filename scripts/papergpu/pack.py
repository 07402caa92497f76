"""A launch as one file: its program, its memory and what it wants of the engine.

Nothing of this machine is in it: a page in a browser executes it, with the engine as WebAssembly.

The file is `PGPK`, four bytes of length, JSON of that length, and pieces of binary data, each at a
multiple of 16 bytes; the JSON says where. Compressed it takes some 10 KB beside its data.
"""

from __future__ import annotations

import ctypes
import gzip
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from papergpu import session
from papergpu.launch import Kernel, Memory, Options, describe_launch, merge_overlaps
from papergpu.pack_text import Piece, join_pieces, number_places, write_pack
from papergpu.program import POINTERS, Program, Three
from papergpu.records import read_instructions
from papergpu.session import Undo

KEPT = 64  # bytes: memory lies as far behind a multiple of it as it did here
LARGEST, MOST = 16 << 20, 100  # bytes of memory, and launches, of those that are written
SAME = ("code", "lists", "constants", "specials", "shared_constants")  # in launches of a kernel


def pack_launch(
    program: Program,
    own: npt.NDArray[np.uint8],
    ptx: str,
    grid: Three,
    block: Three,
    parameters: Sequence[bytes],
    touched: Sequence[Memory] = (),
    sources: Mapping[str, str] | None = None,
    **options: Unpack[Options],
) -> bytes:
    """The launch that a kernel of this program would make of these, and not its result.

    `own` is the memory of its module's variables, and `ptx` the module's text. Numbers that lie in
    a piece of memory are taken for pointers, in parameters and in memory, and each is noted.
    `sources` are texts to be shown beside it, by the names that files have in the PTX. The compiled
    engine is not needed.

    Raises:
        ValueError: the launch itself is not possible.
    """
    given, arrays, _ = describe_launch(
        program, read_instructions(program), own, grid, block, parameters, touched, **options
    )
    memory = order_memory(touched, own)
    held = [np.frombuffer(ctypes.string_at(one.at, one.size), np.uint8).copy() for one in memory]
    params = arrays["params"].copy()
    moves = [
        (at, *move)
        for at, data in ((-1, params), *enumerate(held))
        for move in _cut_pointers(data, memory)
    ]
    for name in POINTERS:
        setattr(given, name, None)
    pieces = [
        Piece(one.name, data.tobytes(), one.at % KEPT, one.read_only,
              one.at <= own.ctypes.data < one.at + one.size,
              None if one.written is None else one.written.tobytes())
        for one, data in zip(memory, held, strict=True)
    ]  # fmt: skip
    return write_pack(program, bytes(given), params.tobytes(), pieces, moves, ptx, sources or {})


def join_packs(packs: Sequence[bytes]) -> bytes:
    """One pack of several launches of a kernel: of all but the first what differs, as `others`.

    Raises:
        ValueError: they are launches of different kernels.
    """
    (head, pieces), *rest = map(_split, packs)
    others = []
    for more, given in rest:
        if any(given[more["arrays"][name]] != pieces[head["arrays"][name]] for name in SAME):
            raise ValueError(f"{more['kernel']} is another kernel than {head['kernel']}")

        def take(number: int | None, given: Sequence[bytes] = given) -> int | None:
            if number is None:
                return None
            pieces.append(given[number])
            return len(pieces) - 1

        others.append({
            "launch": take(more["launch"]),
            "params": take(more["arrays"]["params"]),
            "moves": more["moves"],
            "memory": [{**one, "data": take(one["data"]), "written": take(one["written"])}
                       for one in more["memory"]],
        })  # fmt: skip
    return join_pieces({**head, "others": others}, pieces)


def write_packs(folder: Path) -> Undo:
    """Write each launch into a folder from here on, until that is taken back: `3-softmax.pack.gz`.

    With it goes the text of each file of its source that is here. A launch with more than LARGEST
    bytes of memory is left out, and so are those after the first MOST.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = itertools.count(1)

    def write(
        kernel: Kernel, grid: Three, block: Three, parameters: Sequence[bytes],
        touched: Sequence[Memory], **options: Unpack[Options],
    ) -> None:  # fmt: skip
        number, program = next(count), kernel.program
        if number > MOST or sum(one.size for one in touched) > LARGEST:
            return
        files = {name for name in number_places(program.places)[0] if Path(name).is_file()}
        sources = {name: Path(name).read_text(errors="replace") for name in sorted(files)}
        data = pack_launch(
            program, kernel.memory, kernel.ptx, grid, block, parameters, touched, sources, **options
        )
        name = re.sub(r"\W+", "-", program.name)[:40]
        (folder / f"{number}-{name}.pack.gz").write_bytes(gzip.compress(data, mtime=0))

    return session.before_launch(write)


def order_memory(touched: Sequence[Memory], own: npt.NDArray[np.uint8]) -> list[Memory]:
    """The pieces of memory of a pack: as they are given, wherever they lie here, `own` last."""
    given = [*touched, Memory(own.ctypes.data, len(own), "the module's variables")]
    starts = [one.at for one in given if one.size]

    def first_given(one: Memory) -> int:
        return next(k for k, at in enumerate(starts) if one.at <= at < one.at + one.size)

    return sorted(merge_overlaps(given), key=first_given)


def _split(pack: bytes) -> tuple[dict[str, Any], list[bytes]]:
    start = 8 + int.from_bytes(pack[4:8], "little")
    head = json.loads(pack[8:start])
    return head, [pack[start + at : start + at + size] for at, size in head.pop("pieces")]


def _cut_pointers(
    data: npt.NDArray[np.uint8], memory: Sequence[Memory]
) -> list[tuple[int, int, int]]:
    """Make zeros of what points into `memory`: its byte, the piece and the byte there, of each."""
    words = data[: len(data) // 8 * 8].view(np.uint64)
    moves = []
    for number, one in enumerate(memory):
        for at in np.flatnonzero((words >= one.at) & (words <= one.at + one.size)):
            moves.append((int(at) * 8, number, int(words[at]) - one.at))
            words[at] = 0
    return moves

"""Packs in plain Python, and one of a text: what a browser makes, which has no numpy.

`papergpu.pack` says what a pack is, and makes one of a launch here.
"""

from __future__ import annotations

import binascii
import json
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from papergpu.decode import decode, layout_globals
from papergpu.errors import Unreadable, Unsupported
from papergpu.parse import parse
from papergpu.program import COUNT, LAUNCH, SAMPLE, Program, check_launch, lay_out
from papergpu.syntax_tree import Place, Variable
from papergpu.variables import variable_bytes

MAGIC = b"PGPK"
ALIGNED = 16  # bytes, of each piece
CALLERS = 8  # of a place, at most: functions that are inlined into each other
# Numbers of a tensor, as `struct` has them; bfloat16 is the upper half of a float32.
FORMATS = {"float64": "d", "float32": "f", "float16": "e", "bfloat16": "f", "int64": "q",
           "uint64": "Q", "int32": "i", "uint32": "I", "int16": "h", "uint16": "H", "int8": "b",
           "uint8": "B"}  # fmt: skip
TENSOR = re.compile(r"(?P<format>[a-z]+\d+)\[(?P<sides>[\d\s,x]+)\]\s*(?P<values>.*)")
VALUES = ("random", "counted", "ones", "zeros")
QUESTION = ("text", "kernel", "grid", "block", "dynamic", "arguments")
ROOM = 64 << 20  # bytes of all tensors
STEPS = 20_000_000  # instructions of a warp


class Piece(NamedTuple):
    """Memory of a launch: its name and what it holds; `written` says which bytes somebody wrote.

    It lies `behind` bytes after a multiple of 64. One is the module's `own`.
    """

    name: str
    data: bytes
    behind: int = 0
    read_only: bool = False
    own: bool = False
    written: bytes | None = None


def write_pack(
    program: Program, launch: bytes, params: bytes, memory: Sequence[Piece],
    moves: Sequence[Sequence[int]], ptx: str, sources: Mapping[str, str], **more: Any,
) -> bytes:  # fmt: skip
    """A pack of a program and the bytes of its launch, its parameters and its memory.

    Each of `moves` is where an address goes, the piece (-1 for parameters) and the byte, and where
    it points, the piece and the byte there. `more` goes into the head.
    """
    pieces: list[bytes] = []

    def add(data: bytes) -> int:
        pieces.append(data)
        return len(pieces) - 1

    names, which = _number_texts(program.names)
    forms, form = _number_texts(program.forms)
    files, places = number_places(program.places)
    head = {
        "kernel": program.name,
        "target": program.target,
        "launch": add(launch),
        "fields": lay_out(LAUNCH),
        "sample": lay_out(SAMPLE),
        "count": lay_out(COUNT),
        "arrays": {
            "code": add(program.instructions),
            "params": add(params),
            "constants": add(program.constants),
            **{name: add(getattr(program, name).tobytes())
               for name in ("lists", "specials", "shared_constants")},
        },
        "memory": [
            {"name": one.name, "size": len(one.data), "behind": one.behind, "data": add(one.data),
             "read_only": one.read_only, "own": one.own,
             "written": None if one.written is None else add(one.written)}
            for one in memory
        ],
        "moves": moves,
        "parameters": program.parameters,
        "handlers": names,
        "which": add(which),
        "forms": forms,
        "form": add(form),
        "files": files,
        "places": places,
        "named": program.named,
        "ptx": add(ptx.encode()),
        "sources": {name: add(text.encode()) for name, text in sources.items()},
        **more,
    }  # fmt: skip
    return join_pieces(head, pieces)


def join_pieces(head: dict[str, Any], pieces: Sequence[bytes]) -> bytes:
    """A file of them, the head saying where each piece lies."""
    spans, at = [], 0
    for piece in pieces:
        spans.append([at, len(piece)])
        at += -(-len(piece) // ALIGNED) * ALIGNED
    text = json.dumps({**head, "pieces": spans}, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNED)
    padded = (piece + bytes(-len(piece) % ALIGNED) for piece in pieces)
    return b"".join((MAGIC, len(text).to_bytes(4, "little"), text, *padded))


def number_places(
    places: Sequence[tuple[Place | None, int]],
) -> tuple[list[str], list[list[int]]]:
    """The files, and of each place its line of PTX, then file and line of it and of its callers."""
    files: dict[str, int] = {}
    found = []
    for place, line in places:
        row = [line]
        while place is not None and len(row) < 2 * CALLERS:
            row += [files.setdefault(place.file, len(files)), place.line]
            place = place.caller
        found.append(row)
    return [*files], found


def _number_texts(texts: Sequence[str]) -> tuple[list[str], bytes]:
    """The different ones, and the number of each, in two bytes."""
    table: dict[str, int] = {}
    numbers = [table.setdefault(one, len(table)) for one in texts]
    return [*table], array("H", numbers).tobytes()


# ---- a launch that somebody writes: PTX, and a line for each argument


class Tensor(NamedTuple):
    """An argument in memory; `data` is empty where nobody has written it."""

    name: str
    format: str
    sides: list[int]
    size: int
    data: bytes


def pack_text(
    text: str, kernel: str, grid: Sequence[int], block: Sequence[int], dynamic: int, arguments: str
) -> tuple[bytes, list[str]]:
    """The launch of a module's kernel, the first if none is named, and the names of its kernels.

    The text is PTX, or the small CUDA C of `papergpu.cuda_c`, whose lines are then shown.
    `arguments` has a line for each parameter: `x = float32[32, 64] random`, `n = 2048`, where names
    may be left out. The values of a tensor are one of VALUES, or numbers, taken over and over;
    where there are none, nobody has written it. Its head tells of `tensors` their format and sides.

    Raises:
        ValueError: the launch is not possible, or an argument cannot be read.
        Unreadable, Unsupported: the text is no PTX, or something in it is not executed.
    """
    ptx, sources = text, dict[str, str]()
    if not re.search(r"^\s*\.version\b", text, re.MULTILINE):
        try:
            from papergpu.cuda_c import FILE, compile_cuda
        except ImportError as error:
            raise Unsupported(f"CUDA C is read by pycparser: {error}; install it") from None
        ptx, sources = compile_cuda(text), {FILE: text}
    module = parse(ptx)
    kernels = {one.name: one for one in module.functions if one.kernel and one.body}
    name = kernel or next(iter(kernels), "")
    own = layout_globals(module)
    program = decode(module, name, own)
    lines = [line for line in map(str.strip, arguments.splitlines()) if line]
    wanted = kernels[name].parameters
    if len(lines) != len(wanted):
        kinds = ", ".join(map(_describe, wanted)) or "none"
        raise ValueError(f"{len(lines)} arguments for {len(wanted)} parameters: {kinds}")
    tensors, values, moves = list[Tensor](), list[bytes](), list[tuple[int, int, int, int]]()
    rows = zip(lines, wanted, program.parameters, strict=True)
    for number, (line, one, (_, at, size)) in enumerate(rows, 1):
        label, _, said = line.rpartition("=")
        found = _read_argument(label.strip() or f"argument {number}", said.strip(), one)
        if isinstance(found, Tensor):
            moves.append((-1, at, len(tensors), 0))
            tensors.append(found)
            found = bytes(size)
        values.append(found)
    if sum(one.size for one in tensors) > ROOM:
        raise ValueError(f"the tensors take more than {ROOM >> 20} MB together")
    pieces = [
        Piece(one.name, one.data or bytes(one.size), written=None if one.data else bytes(one.size))
        for one in tensors
    ]
    pieces.append(Piece("the module's variables", own.bytes.ljust(64, b"\0"), own=True))
    for at, symbol, behind in own.addresses:
        moves.append((len(tensors), at, len(tensors), own.symbols[symbol].at + behind))
    fixed = program.directives.get("reqnctapercluster", (1,))
    sides = [_three(one) for one in (grid, block, fixed)]
    check_launch(program, sides[0], sides[1], values, sides[2])
    numbers = program.number_launch(sides[0], sides[1], sides[2], dynamic, len(pieces[-1].data))
    numbers |= {"nallocs": len(pieces), "checks": 1, "profile": 1, "fatal": 1, "threads": 1}
    told = {one.name: [one.format, *one.sides] for one in tensors}
    pack = write_pack(
        program, _write_launch({**numbers, "limit": STEPS}), program.lay_parameters(values), pieces,
        moves, ptx, sources, tensors=told,
    )  # fmt: skip
    return pack, [*kernels]


def answered(question: str) -> str:
    """What a page is answered: JSON with a pack in base 64 and names of kernels, or an error."""
    asked = json.loads(question)
    try:
        pack, kernels = pack_text(*(asked[name] for name in QUESTION))
    except Unreadable as error:
        return json.dumps({"error": f"PTX line {error}"})
    except (ValueError, Unsupported) as error:
        return json.dumps({"error": str(error)})
    return json.dumps({"pack": binascii.b2a_base64(pack).decode(), "kernels": kernels})


def _three(sides: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*sides, 1, 1)[:3]
    return x, y, z


def _describe(one: Variable) -> str:
    if one.count * one.lanes != 1:
        return f"a structure of {variable_bytes(one)} bytes"
    return f"{one.type}, a number or a pointer" if one.type in ("u64", "b64") else one.type


def _read_argument(name: str, said: str, one: Variable) -> Tensor | bytes:
    size, what = variable_bytes(one), _describe(one)
    if found := TENSOR.fullmatch(said):
        if size != 8:
            raise ValueError(f"{name}: the parameter is {what}, no pointer: give a number")
        return _read_tensor(name, found)
    if one.count * one.lanes != 1:
        raise ValueError(f"{name}: {what} cannot be given here")
    try:
        if one.type[0] == "f":
            return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], float(said))
        value = int(said, 0)
        return value.to_bytes(size, "little", signed=value < 0)
    except (ValueError, OverflowError, struct.error):
        mend = "write a number, or a tensor such as float32[1024] random"
        raise ValueError(f"{name}: {said!r} is not for {what}; {mend}") from None


def _read_tensor(name: str, found: re.Match[str]) -> Tensor:
    """A tensor as it is written; what is random follows from its name alone."""
    format_, values = found["format"], found["values"]
    sides = [int(side) for side in re.findall(r"\d+", found["sides"])]
    if format_ not in FORMATS or not sides:
        raise ValueError(f"{name}: {format_} is none of {', '.join(FORMATS)}")
    code, count, kind = FORMATS[format_], prod(sides), format_.rstrip("0123456789")
    width = 2 if format_ == "bfloat16" else struct.calcsize(code)
    if count * width > ROOM:
        raise ValueError(f"{name} takes more than {ROOM >> 20} MB")
    if not values:
        return Tensor(name, format_, sides, count * width, b"")
    read = float if "float" in kind else int
    try:
        if values == "random":
            wide = {"float": 1, "bfloat": 1}.get(kind, 50)
            drawn = (one * wide for one in _draw(name, count))
            given = [abs(read(one)) if kind == "uint" else read(one) for one in drawn]
        elif values == "counted":
            given = [read(one) for one in range(1024 if width > 1 else 128)]
        else:
            said = {"ones": "1", "zeros": "0"}.get(values, values)
            given = [read(one) for one in re.split(r"[\s,]+", said)]
        data = struct.pack(f"<{count}{code}", *(given[at % len(given)] for at in range(count)))
    except (ValueError, struct.error, OverflowError):
        mend = f"write numbers that it can hold, or one of {', '.join(VALUES)}"
        raise ValueError(f"{name}: {values[:40]!r} is not for {format_}; {mend}") from None
    if format_ == "bfloat16":
        words = array("I", data)
        data = array("H", [one + 0x7FFF + (one >> 16 & 1) >> 16 for one in words]).tobytes()
    return Tensor(name, format_, sides, count * width, data)


def _draw(name: str, count: int) -> Iterator[float]:
    """Numbers between -2 and 2, more of them near 0."""
    state = sum(name.encode()) | 1
    for _ in range(count):
        total = 0.0
        for _ in range(4):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            total += (state >> 40) / 2**24
        yield total - 2


def _write_launch(numbers: Mapping[str, int | tuple[int, ...]]) -> bytes:
    """The bytes of `Launch` in core/core.hpp with these numbers; whatever points is zero."""
    places = lay_out(LAUNCH)
    data = bytearray(places[""])
    kinds = {name: kind for name, kind, _ in LAUNCH}
    for name, value in numbers.items():
        listed = value if isinstance(value, tuple) else (value,)
        code = "Q" if kinds[name] == "u8" else "I"
        struct.pack_into(f"<{len(listed)}{code}", data, places[name], *listed)
    return bytes(data)

"""A compiled GPU binary as a file: its sections and symbols, and where its code comes from.

It is an ELF file of 64 bits. `.text.K` has the code of a kernel K, `.nv.info` attributes of all of
them, `.nv_debug_ptx_txt` the PTX that they were made of, and `.nv_debug_line_sass` of each
instruction the line of that, as a program of DWARF's. pyelftools reads the same twenty times slower
and cannot write, as `join_binaries` does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

PTX, LINES = ".nv_debug_ptx_txt", ".nv_debug_line_sass"
INFO = ".nv.info"
SIZED, REGISTERS = 4, 0x2F  # an attribute of it with its size; registers by symbol
NAMING = (0x0A, 0x11, 0x12, 0x23, REGISTERS)  # attributes that begin with a symbol
EMPTY = 8  # the type of a section that has a size, and no bytes in the file
SECTION, SYMBOL = "<IIQQQQIIQQ", "<IBBHQQ"  # a row of the table of sections, and of symbols
RESERVED = 0xFF00  # from which on the index of a section stands for none
JOINED = re.compile(
    r"\.text\.|\.nv\.(?:constant\d|info\.|shared|global)|\.rela?\.(?:text|nv\.constant)"
)


class Section(NamedTuple):
    """A section: its name, its row in the table of sections as it stands there, where it begins."""

    name: str
    row: tuple[int, ...]
    offset: int


class Symbol(NamedTuple):
    """A row of the table of symbols; `section` is the index of the one that it is in."""

    name: str
    info: int
    other: int
    section: int
    value: int
    size: int

    @property
    def is_function(self) -> bool:
        """Whether it is a kernel, or what one calls; 1 in place of 2 is a variable."""
        return self.info & 15 == 2

    @property
    def is_local(self) -> bool:
        """Whether it stands before those that other files may ask for."""
        return self.info < 16


class Elf:
    """A binary, read; ValueError if it is no ELF file of 64 bits."""

    def __init__(self, data: bytes) -> None:
        if data[:5] != b"\x7fELF\x02":
            raise ValueError("the binary is no ELF file of 64 bits")
        self.data = data

    @cached_property
    def sections(self) -> list[Section]:
        """All sections, in order."""
        (table,) = struct.unpack_from("<Q", self.data, 40)
        size, count, names = struct.unpack_from("<HHH", self.data, 58)
        rows = [struct.unpack_from(SECTION, self.data, table + size * at) for at in range(count)]
        return [Section(self._read_string(rows[names][4] + row[0]), row, row[4]) for row in rows]

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The table of symbols."""
        table = self.find_section(".symtab")
        if table is None:
            return []
        texts = self.sections[table.row[6]].offset
        rows = struct.iter_unpack(SYMBOL, self.section_bytes(table))
        return [Symbol(self._read_string(texts + name), *rest) for name, *rest in rows]

    def find_section(self, *names: str) -> Section | None:
        """The first section of one of these names."""
        return next((one for one in self.sections if one.name in names), None)

    def section_bytes(self, one: Section | None) -> bytes:
        """The bytes of a section; none of none."""
        return (
            self.data[one.offset : one.offset + one.row[5]] if one and one.row[1] != EMPTY else b""
        )

    def read_relocations(self, one: Section) -> list[tuple[int, int]]:
        """Of a section of relocations the address of each, and the index of its symbol."""
        body = self.section_bytes(one)
        found = (struct.unpack_from("<QII", body, at) for at in _relocation_offsets(one, body))
        return [(address, symbol) for address, _, symbol in found]

    def symbol_index(self, symbol: str) -> int:
        """The index of a kernel, by which nvdisasm chooses it; ValueError if there is none."""
        for index, one in enumerate(self.symbols):
            if one.is_function and one.name == symbol:
                return index
        raise ValueError(f"the binary has no kernel {symbol}")

    def has_callees(self, symbol: str) -> bool:
        """Whether a kernel has functions in its section, beside itself."""
        home = self.symbols[self.symbol_index(symbol)].section
        return sum(one.is_function and one.section == home for one in self.symbols) > 1

    def _read_string(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()


def kernel_code(cubin: bytes, symbol: str) -> bytes:
    """The machine code of a kernel; ValueError if the binary has none of that name."""
    elf = Elf(cubin)
    if found := elf.section_bytes(elf.find_section(f".text.{symbol}")):
        return found
    raise ValueError(f"the binary has no kernel {symbol}")


def embedded_ptx(cubin: bytes) -> list[str]:
    """The lines of PTX that a binary says it was made of; none without line information."""
    elf = Elf(cubin)
    return elf.section_bytes(elf.find_section(PTX)).decode(errors="replace").split("\0")[:-1]


def sized_attributes(info: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Of attributes with a size: where the value of each begins, its number, its bytes."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == SIZED:
            yield at, attribute, size
            at += size


def line_table(cubin: bytes, symbol: str) -> list[tuple[int, int]]:
    """Where a kernel's code comes from: an address in it, and the line of PTX from there on."""
    elf = Elf(cubin)
    data = elf.section_bytes(elf.find_section(LINES))
    moved = elf.find_section(f".rela{LINES}", f".rel{LINES}")
    if not data or moved is None:
        return []
    # A sequence a kernel, and a relocation that says of which.
    numbers = [number for _, number in sorted(elf.read_relocations(moved))]
    kernels = [elf.sections[elf.symbols[number].section].name for number in numbers]
    at, sequence, rows = 0, 0, []
    while at < len(data):
        for address, line, ends in run_line_program(data, at):
            if kernels[sequence] == f".text.{symbol}":
                rows.append((address, line))
            sequence += ends
        at += struct.unpack_from("<I", data, at)[0] + 4
    return rows


def run_line_program(data: bytes, at: int) -> Iterator[tuple[int, int, bool]]:
    """What DWARF's program of lines says: an address, a line, whether a sequence ends."""
    size, version, header = struct.unpack_from("<IHI", data, at)
    if version not in (2, 3):
        raise ValueError(f"lines are told by DWARF {version}, of which 2 and 3 are read")
    least, _, base, span, first = struct.unpack_from("<BBbBB", data, at + 10)
    operands = data[at + 15 : at + 14 + first]  # of each standard opcode how many numbers follow
    end, at = at + 4 + size, at + 10 + header

    def read_leb128(signed: bool = False) -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    address, line = 0, 1
    while at < end:
        opcode, at = data[at], at + 1
        if opcode >= first:
            address += least * ((opcode - first) // span)
            line += base + (opcode - first) % span
            yield address, line, False
        elif opcode == 0:  # an extended one, behind its length
            length = read_leb128()
            kind, at = data[at], at + length
            if kind == 1:
                yield address, line, True
                address, line = 0, 1
            elif kind == 2:
                address = int.from_bytes(data[at - length + 1 : at], "little")
        elif opcode == 1:
            yield address, line, False
        elif opcode == 2:
            address += least * read_leb128()
        elif opcode == 3:
            line += read_leb128(signed=True)
        elif opcode == 8:
            address += least * ((255 - first) // span)
        elif opcode == 9:
            address, at = address + struct.unpack_from("<H", data, at)[0], at + 2
        else:
            for _ in range(operands[opcode - 1]):
                read_leb128()


def name_suffix(turn: int) -> str:
    """The end of the names of the binary of that number, which keeps them apart when joined."""
    return f"$of{turn}$"


Old = tuple[int, int]  # the number of a binary, and an index in it


def join_binaries(cubins: Sequence[bytes]) -> bytes:
    """One binary that has the code of several of one header, to be read and not to be run.

    What only a debugger asks for is left out, and variables that nothing refers to.
    """
    every = [Elf(cubin) for cubin in cubins]
    chosen = [
        (turn, index)
        for turn, elf in enumerate(every)
        for index, one in enumerate(elf.sections)
        if JOINED.match(one.name)
    ]
    places = {old: new for new, old in enumerate(chosen, 1)}
    table = [one for turn, elf in enumerate(every) for one in _kept_symbols(elf, turn, places)]
    table.sort(key=lambda one: not one[1].is_local)
    numbers = {old: new for new, (old, _) in enumerate(table, 1)}
    home = len(chosen) + 1  # of the table of symbols, behind all that it names
    texts, names = bytearray(1), bytearray(1)

    def add_string(pool: bytearray, name: str) -> int:
        pool += name.encode() + b"\0"
        return len(pool) - len(name.encode()) - 1

    def renumber_symbols(one: Section | None, turn: int) -> bytes:
        """The bytes of a section with the indices of symbols that the joined table has."""
        body = bytearray(every[turn].section_bytes(one))
        if one and one.name.startswith(".rel"):
            offsets = [at + 12 for at in _relocation_offsets(one, body)]
        else:
            offsets = [at for at, of, size in sized_attributes(body) if of in NAMING and size == 8]
        for at in offsets:
            (symbol,) = struct.unpack_from("<I", body, at)
            struct.pack_into("<I", body, at, numbers.get((turn, symbol), 0))
        return bytes(body)

    rows, bodies = [[0] * 10], [b""]
    for turn, index in chosen:
        one = every[turn].sections[index]
        body, row = every[turn].section_bytes(one), [*one.row]
        row[0] = add_string(texts, one.name + name_suffix(turn))
        row[7] = places.get((turn, row[7]), 0)
        if one.name.startswith(".text."):
            kernel = numbers.get((turn, one.row[7] & 0xFFFFFF), 0)
            row[6:8] = home, one.row[7] & 0xFF000000 | kernel
        elif one.name.startswith((".rel", INFO)):
            row[6], body = home, renumber_symbols(one, turn)
        rows.append(row)
        bodies.append(body)
    symbols = bytes(struct.calcsize(SYMBOL))
    for (turn, _), symbol in table:
        named = add_string(names, symbol.name + name_suffix(turn))
        symbols += struct.pack(SYMBOL, named, *symbol[1:])
    about = b"".join(renumber_symbols(elf.find_section(INFO), at) for at, elf in enumerate(every))
    local = 1 + sum(one.is_local for _, one in table)
    for name, kind, link, info, align, entry, given in (
        (".symtab", 2, home + 1, local, 8, struct.calcsize(SYMBOL), symbols),
        (".strtab", 3, 0, 0, 1, 0, bytes(names)),
        (INFO, 0x70000000, home, 0, 4, 0, about),
        (".shstrtab", 3, 0, 0, 1, 0, b""),
    ):
        rows.append([add_string(texts, name), kind, 0, 0, 0, 0, link, info, align, entry])
        bodies.append(given)
    bodies[-1] = bytes(texts)
    # The file: a header, the sections, and the table of these, whose last one has their names.
    whole = bytearray(cubins[0][:64])
    for row, body in zip(rows[1:], bodies[1:], strict=True):
        whole += bytes(-len(whole) % max(1, row[8]))
        row[4] = len(whole)
        row[5] = row[5] if row[1] == EMPTY else len(body)
        whole += body
    whole += bytes(-len(whole) % 8)
    struct.pack_into("<QQ", whole, 32, 0, len(whole))  # no table of what is loaded
    struct.pack_into("<HHHHH", whole, 54, 0, 0, 64, len(rows), len(rows) - 1)
    return bytes(whole) + b"".join(struct.pack(SECTION, *row) for row in rows)


def _relocation_offsets(one: Section, body: bytes | bytearray) -> range:
    """Where the relocations of a section of these begin."""
    return range(0, len(body), 24 if one.name.startswith(".rela") else 16)


def _kept_symbols(elf: Elf, turn: int, places: dict[Old, int]) -> Iterator[tuple[Old, Symbol]]:
    """The symbols of a binary that are joined, in the sections that these have then."""
    used = {
        symbol
        for index, one in enumerate(elf.sections)
        if (turn, index) in places and one.name.startswith(".rel")
        for _, symbol in elf.read_relocations(one)
    }
    for index, one in enumerate(elf.symbols[1:], 1):
        place = places.get((turn, one.section))
        absent = 0 < one.section < RESERVED and place is None
        if not absent and (index in used or one.info & 15 != 1):  # 1 is a variable
            yield (turn, index), one._replace(section=place or one.section)

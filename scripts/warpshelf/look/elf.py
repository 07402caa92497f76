"""A compiled GPU binary as a file: its sections and symbols, and where its code comes from.

It is an ELF file of 64 bits. `.text.K` has the code of a kernel K, `.nv.info` attributes of all of
them, `.nv_debug_ptx_txt` the PTX that they were made of, and `.nv_debug_line_sass` of each
instruction the line of that, as a program of DWARF's. pyelftools reads it twenty times slower.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

PTX, LINES = ".nv_debug_ptx_txt", ".nv_debug_line_sass"
INFO = ".nv.info"
SIZED, REGISTERS = 4, 0x2F  # an attribute of it with its size; registers by symbol
EMPTY = 8  # the type of a section that has a size, and no bytes in the file
FUNCTION = 2  # the type of a symbol that is a kernel, or what one calls


class Section(NamedTuple):
    """A section; `link` is the index of the one that it refers to."""

    name: str
    offset: int
    size: int
    link: int


class Symbol(NamedTuple):
    """A row of the table of symbols; `section` is the index of the one that it is in."""

    name: str
    kind: int
    section: int


class Elf:
    """A binary, read; ValueError if it is not a 64-bit ELF file."""

    def __init__(self, data: bytes) -> None:
        if data[:5] != b"\x7fELF\x02":
            raise ValueError("the binary is not a 64-bit ELF file")
        self.data = data

    @cached_property
    def sections(self) -> list[Section]:
        """All sections, in order."""
        (table,) = struct.unpack_from("<Q", self.data, 40)
        step, count, names = struct.unpack_from("<HHH", self.data, 58)
        rows = [struct.unpack_from("<IIQQQQI", self.data, table + step * at) for at in range(count)]
        return [
            Section(
                self._read_string(rows[names][4] + name), at, 0 if kind == EMPTY else size, link
            )
            for name, kind, _, _, at, size, link in rows
        ]

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The table of symbols."""
        table = self.find_section(".symtab")
        if table is None:
            return []
        texts = self.sections[table.link].offset
        rows = struct.iter_unpack("<IBxH16x", self.section_bytes(table))
        return [Symbol(self._read_string(texts + name), info & 15, at) for name, info, at in rows]

    def find_section(self, *names: str) -> Section | None:
        """The first section of one of these names."""
        return next((one for one in self.sections if one.name in names), None)

    def section_bytes(self, one: Section | None) -> bytes:
        """The bytes of a section; empty if there is none."""
        return self.data[one.offset : one.offset + one.size] if one else b""

    def symbol_index(self, symbol: str) -> int:
        """The index of a kernel, by which nvdisasm chooses it; ValueError if there is none."""
        for index, one in enumerate(self.symbols):
            if (one.kind, one.name) == (FUNCTION, symbol):
                return index
        raise ValueError(f"the binary has no kernel {symbol}")

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
    form = "<QII8x" if moved.name.startswith(".rela") else "<QII"
    relocations = struct.iter_unpack(form, elf.section_bytes(moved))
    numbers = [number for _, number in sorted((at, symbol) for at, _, symbol in relocations)]
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
        raise ValueError(f"lines are in DWARF {version}; only 2 and 3 can be read")
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

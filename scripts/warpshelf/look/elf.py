"""What a GPU binary holds beside its code, and the header that nvdisasm wants to see.

The binaries of ptxas before CUDA 13 have another ABI in their header than later ones. nvdisasm 13
reads them, and analyses no flow in them unless the header says what its own release would write;
the code is the same byte for byte.
"""

from __future__ import annotations

import inspect
import struct
from io import BytesIO
from typing import Any

OS_ABI, ABI_VERSION, FLAGS = 7, 8, 48  # bytes of the header
OLD, NEW = 51, (65, 8)  # OS ABI before CUDA 13; OS ABI and ABI version of it
RELEASE, WIDE = 0x6 << 24, 0x4  # of the flags: the ABI's own, and addresses of 64 bits
PTX, LINES = ".nv_debug_ptx_txt", ".nv_debug_line_sass"
SIZED, REGISTERS = 4, 0x2F  # an attribute of .nv.info with its size; registers by symbol
COUNTED = 254  # registers at most of a kernel whose live ones nvdisasm counts


def readable(cubin: bytes) -> bytes:
    """The same binary with a header that nvdisasm 13 analyses."""
    if cubin[OS_ABI] != OLD:
        return cubin
    header = bytearray(cubin)
    (flags,) = struct.unpack_from("<I", header, FLAGS)
    header[OS_ABI], header[ABI_VERSION] = NEW
    struct.pack_into("<I", header, FLAGS, RELEASE | (flags & 0xFF) << 8 | WIDE)
    return bytes(header)


def countable(cubin: bytes) -> bytes:
    """The same binary with no kernel of more registers than nvdisasm counts the live ones of.

    A thread has 255 at most, and nvdisasm 13 takes 254 at most. The code stays as it is.
    """
    from elftools.elf.elffile import ELFFile

    made = bytearray(cubin)
    found = ELFFile(BytesIO(cubin)).get_section_by_name(".nv.info")
    if found is None:
        return cubin
    data, at = found.data(), 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        if (form, attribute, size) == (SIZED, REGISTERS, 8):
            (count,) = struct.unpack_from("<I", data, at + 8)
            struct.pack_into("<I", made, found["sh_offset"] + at + 8, min(count, COUNTED))
        at += 4 + (size if form == SIZED else 0)
    return bytes(made)


def section(cubin: bytes, name: str) -> bytes:
    """The bytes of a section; none where there is no such section."""
    from elftools.elf.elffile import ELFFile

    found = ELFFile(BytesIO(cubin)).get_section_by_name(name)
    return bytes(found.data()) if found is not None else b""


def code(cubin: bytes, symbol: str) -> bytes:
    """The machine code of a kernel.

    Raises:
        ValueError: the binary has no such kernel.
    """
    if found := section(cubin, f".text.{symbol}"):
        return found
    raise ValueError(f"the binary has no kernel {symbol}")


def ptx(cubin: bytes) -> list[str]:
    """The lines of PTX that a binary says it was made of; none without line information."""
    return section(cubin, PTX).decode(errors="replace").split("\0")[:-1]


def lines(cubin: bytes, symbol: str) -> list[tuple[int, int]]:
    """Where a kernel's instructions come from: an address in it, and the line of PTX from there on.

    None without information on lines.
    """
    from elftools.dwarf.dwarfinfo import DebugSectionDescriptor, DwarfConfig, DWARFInfo
    from elftools.elf.elffile import ELFFile
    from elftools.elf.relocation import RelocationSection

    file, data = ELFFile(BytesIO(cubin)), section(cubin, LINES)
    named = (file.get_section_by_name(f"{kind}{LINES}") for kind in (".rela", ".rel"))
    moved = next((one for one in named if one is not None), None)
    if not data or not isinstance(moved, RelocationSection):
        return []
    symbols: Any = file.get_section(moved["sh_link"])
    # A sequence a kernel, and a relocation that says of which.
    kernels = [
        file.get_section(symbols.get_symbol(one["r_info_sym"])["st_shndx"]).name
        for one in sorted(moved.iter_relocations(), key=lambda one: one["r_offset"])
    ]
    whole = DebugSectionDescriptor(BytesIO(data), LINES, 0, len(data), 0)
    names = inspect.signature(DWARFInfo).parameters.keys() - {"config"}
    found = DWARFInfo(
        config=DwarfConfig(True, "CUDA", 8), **dict.fromkeys(names) | {"debug_line_sec": whole}
    )
    at, sequence, rows = 0, 0, []
    while at < len(data):
        program = found._parse_line_program_at_offset(at, found.structs)
        for state in (entry.state for entry in program.get_entries() if entry.state):
            if kernels[sequence] == f".text.{symbol}":
                rows.append((state.address, state.line))
            sequence += state.end_sequence
        at += program["unit_length"] + 4
    return rows


def number(cubin: bytes, symbol: str) -> int:
    """The index of a kernel in the table of symbols, by which nvdisasm chooses it.

    Raises:
        ValueError: the binary has no such kernel.
    """
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    table = ELFFile(BytesIO(cubin)).get_section_by_name(".symtab")
    symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
    for index, one in enumerate(symbols):
        if one.name == symbol and one["st_info"]["type"] == "STT_FUNC":
            return index
    raise ValueError(f"the binary has no kernel {symbol}")

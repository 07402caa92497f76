"""Control codes of machine instructions, and the lines of PTX that these come from."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.look.binary import MASK, SHIFT, control_bits, decode_control
from warpshelf.look.elf import Elf, run_line_program


def test_a_load_that_is_waited_for_says_so() -> None:
    """The upper halves of an LDG and of the FADD that waits for it, as nvdisasm prints them."""
    load = decode_control(control_bits(0x000EA8000C1E1900))
    assert (load.stall, load.writes, load.reads, load.waits) == (4, 2, None, ())
    assert str(load) == "B------:R-:W2:-:S04"
    add = decode_control(control_bits(0x004FC80000010000))
    assert (add.stall, add.writes, add.waits, add.yields) == (4, None, (2,), True)
    assert str(add) == "B--2---:R-:W-:Y:S04"


@given(st.integers(0, 2**64 - 1))
def test_nothing_of_a_code_is_lost(upper: int) -> None:
    code = control_bits(upper)
    one = decode_control(code)
    waits = sum(1 << board for board in one.waits)
    boards = [7 if board is None else board for board in (one.writes, one.reads)]
    back = (
        one.stall | (not one.yields) << 4 | boards[0] << 5 | boards[1] << 8 | waits << 11
        | one.reuses << 17
    )  # fmt: skip
    assert back == code == upper >> SHIFT & MASK
    assert len(str(one)) == len("B------:R-:W-:-:S00")


def encode_lines(opcodes: bytes, version: int = 2) -> bytes:
    """A program of lines: instructions of one byte, lines -5 to 8 and 10 opcodes, as NVRTC's."""
    head = struct.pack("<BBbBB", 1, 1, -5, 14, 10) + bytes([0, 1, 1, 1, 1, 0, 0, 0, 1]) + b"\0\0"
    rest = struct.pack("<HI", version, len(head)) + head + opcodes
    return struct.pack("<I", len(rest)) + rest


def test_each_opcode_of_a_program_of_lines_is_read() -> None:
    told = encode_lines(
        b"\x00\x09\x02" + (0x100).to_bytes(8, "little")  # at address 0x100
        + b"\x03\xff\x00\x01"  # 127 lines on, told
        + b"\x03\x7f\x02\x80\x01\x01"  # a line back and 128 bytes on, told
        + b"\x04\x02\x05\x07\x06\x07\x00\x05\x90\x01\x02\x03\x04"  # what tells no line
        + b"\x08\x09\x10\x00" + bytes([10 + 14 * 2 + 5 + 3])  # 17, 16 and 2 bytes on; 3 lines
        + b"\x00\x01\x01" + bytes([10 + 6])  # the end; of the next one a line
    )  # fmt: skip
    at = 0x100 + 128
    assert list(run_line_program(b"before" + told, 6)) == [
        (0x100, 128, False),
        (at, 127, False),
        (at + 17 + 16 + 2, 130, False),
        (at + 17 + 16 + 2, 130, True),
        (0, 2, False),
    ]


def test_what_is_no_binary_and_lines_of_another_version_are_refused() -> None:
    with pytest.raises(ValueError, match="not a 64-bit ELF file"):
        Elf(b"\x7fELF\x01" + bytes(60))
    with pytest.raises(ValueError, match="DWARF 5; only 2 and 3 can be read"):
        list(run_line_program(encode_lines(b"", version=5), 0))

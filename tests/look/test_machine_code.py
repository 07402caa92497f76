"""Machine code: its control codes, and its loops."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.look.binary import (
    MASK,
    SHIFT,
    Instruction,
    MachineCode,
    control_bits,
    decode_control,
)
from warpshelf.look.elf import Elf, run_line_program
from warpshelf.look.work import find_loops, find_successors

# Control codes of machine instructions, and the lines of PTX that these come from.


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


# Loops found in machine code that is written down here.

PLAIN = 0x7F1  # stalls for a cycle, sets and awaits nothing


def assemble_code(text: str) -> MachineCode:
    """Code from lines; `name:` is a label, `W2` behind a line sets scoreboard 2, `B2` awaits it."""
    made, labels = [], {}
    for line in text.strip().splitlines():
        words = line.strip()
        if words.endswith(":"):
            labels[words[:-1]] = len(made)
            continue
        words, _, said = words.partition("  ")
        control = PLAIN
        for one in said.split():
            if one[0] == "W":
                control = control & ~(7 << 5) | int(one[1]) << 5
            else:
                control |= 1 << 11 + int(one[1])
        made.append(Instruction(words, 1, 1, control))
    return MachineCode(tuple(made), labels)


def test_a_loop_in_a_loop() -> None:
    found = find_loops(
        assemble_code("""
        S2R R0, SR_TID.X
        outer:
        LDG.E R2, [R4.64]
        inner:
        FFMA R3, R2, R2, R3
        FFMA R3, R2, R2, R3
        @P0 BRA `(inner)
        STG.E [R4.64], R3
        @!P1 BRA `(outer)
        EXIT
    """)
    )
    assert [(one["first"], one["last"], one["depth"]) for one in found] == [(1, 6, 1), (2, 4, 2)]
    assert found[0]["kinds"] == {"control": 1, "load global 4": 1, "store global 4": 1}
    assert found[1]["kinds"] == {"control": 1, "multiply-add": 2}


def test_a_branch_forward_is_no_loop() -> None:
    made = assemble_code("""
        @P0 BRA `(behind)
        FADD R1, R1, R1
        behind:
        EXIT
    """)
    assert find_loops(made) == []
    assert find_successors(made) == [[1, 2], [2], []]


def test_a_way_back_that_is_also_entered_elsewhere_is_no_natural_loop() -> None:
    assert (
        find_loops(
            assemble_code("""
        @P0 BRA `(middle)
        head:
        FADD R1, R1, R1
        middle:
        FMUL R1, R1, R1
        @P1 BRA `(head)
        EXIT
    """)
        )
        == []
    )


def test_two_branches_to_one_head_are_one_loop() -> None:
    (found,) = find_loops(
        assemble_code("""
        head:
        FADD R1, R1, R1
        @P0 BRA `(head)
        FMUL R1, R1, R1
        @P1 BRA `(head)
        EXIT
    """)
    )
    assert (found["first"], found["last"]) == (0, 3)
    assert found["kinds"] == {"control": 2, "multiply-add": 2}


def test_a_branch_on_an_operand_goes_on_as_well() -> None:
    made = assemble_code("""
        head:
        BRA.DIV UR4, `(head)
        BRA P0, `(head)
        BRA `(head)
        EXIT
    """)
    assert find_successors(made) == [[1, 0], [2, 0], [0], []]


def test_bytes_in_flight_are_those_asked_for_before_the_first_is_awaited() -> None:
    (found,) = find_loops(
        assemble_code("""
        head:
        LDG.E.128 R4, [R2.64]  W0
        LDG.E.64 R8, [R2.64+0x10]  W1
        FFMA R1, R20, R20, R1
        FFMA R1, R21, R21, R1
        FFMA R1, R4, R8, R1  B0 B1
        @P0 BRA `(head)
        EXIT
    """)
    )
    assert (found["loads"], found["bytes"]) == (2, 32 * (16 + 8))
    assert found["operations"] == 2


def test_a_load_for_the_next_round_is_in_flight_over_the_whole_round() -> None:
    (found,) = find_loops(
        assemble_code("""
        head:
        FFMA R1, R4, R8, R1  B0
        LDG.E R4, [R2.64]  W0
        FFMA R1, R9, R9, R1
        FFMA R1, R9, R9, R1
        @P0 BRA `(head)
        EXIT
    """)
    )
    assert (found["loads"], found["bytes"], found["operations"]) == (1, 128, 2)


def test_copies_wait_by_groups() -> None:
    (found,) = find_loops(
        assemble_code("""
        head:
        LDGSTS.E.BYPASS.128 [R5], [R2.64]
        LDGDEPBAR
        DEPBAR.LE SB0, 0x2
        HMMA.16816.F32 R4, R8, R12, R4
        @P0 BRA `(head)
        EXIT
    """)
    )
    assert (found["loads"], found["bytes"]) == (3, 3 * 512)
    assert found["operations"] == 2

"""Loops found in machine code that is written down here."""

from warpshelf.look.binary import Instruction, MachineCode
from warpshelf.look.work import find_loops, find_successors

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

"""Control codes of machine instructions."""

from hypothesis import given
from hypothesis import strategies as st

from warpshelf.look.binary import MASK, SHIFT, code_of, control


def test_a_load_that_is_waited_for_says_so() -> None:
    """The upper halves of an LDG and of the FADD that waits for it, as nvdisasm prints them."""
    load = control(code_of(0x000EA8000C1E1900))
    assert (load.stall, load.writes, load.reads, load.waits) == (4, 2, None, ())
    assert str(load) == "B------:R-:W2:-:S04"
    add = control(code_of(0x004FC80000010000))
    assert (add.stall, add.writes, add.waits, add.yields) == (4, None, (2,), True)
    assert str(add) == "B--2---:R-:W-:Y:S04"


@given(st.integers(0, 2**64 - 1))
def test_nothing_of_a_code_is_lost(upper: int) -> None:
    code = code_of(upper)
    one = control(code)
    waits = sum(1 << board for board in one.waits)
    boards = [7 if board is None else board for board in (one.writes, one.reads)]
    back = (
        one.stall | (not one.yields) << 4 | boards[0] << 5 | boards[1] << 8 | waits << 11
        | one.reuses << 17
    )  # fmt: skip
    assert back == code == upper >> SHIFT & MASK
    assert len(str(one)) == len("B------:R-:W-:-:S00")

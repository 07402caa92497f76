"""Copies of registers that are on their way from tensor memory wait with them."""

from __future__ import annotations

import pytest
from papergpu.decode.walk import awaited
from papergpu.parse import parse
from papergpu.tree import Instruction

LOAD = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%a, %b}, [%t];"
WAIT = "tcgen05.wait::ld.sync.aligned;"
PACK = "mov.b64 %p, {%a, %b};"


def order(body: str) -> list[str]:
    text = f".version 8.7\n.target sm_100a\n.address_size 64\n.entry k() {{ {body} }}\n"
    block = parse(text).functions[0].body
    assert block is not None
    return [one.form.partition(".")[0] + "".join(f" {name}" for name in one.form.split(".")[1:2])
            if isinstance(one, Instruction) else type(one).__name__
            for one in awaited(block.items)]  # fmt: skip


def test_copies_go_behind_the_wait_and_stay_in_order() -> None:
    assert order(f"{LOAD} {PACK} mov.b64 %q, %p; {WAIT} ret;") == [
        "tcgen05 ld", "tcgen05 wait::ld", "mov b64", "mov b64", "ret"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("between", "expected"),
    [("add.u32 %c, %a, 1;", ["add u32"]),  # a sum that is too early stays where it is
     ("mov.b32 %c, %d;", ["mov b32"]),
     ("@%g mov.b32 %c, %a;", ["mov b32"])],
)  # fmt: skip
def test_whatever_else_stays_where_it_is(between: str, expected: list[str]) -> None:
    found = order(f"{LOAD} {between} {WAIT}")
    assert found == ["tcgen05 ld", *expected, "tcgen05 wait::ld"]


@pytest.mark.parametrize("between", ["add.u64 %r, %p, 1;", "L:", "bar.sync 0;", "{ ret; }"])
def test_a_copy_that_something_follows_is_not_held_back(between: str) -> None:
    found = order(f"{LOAD} {PACK} {between} {WAIT}")
    assert found.index("mov b64") == 1 and found[-1] == "tcgen05 wait::ld"


def test_without_a_load_nothing_moves() -> None:
    assert order(f"{PACK} {WAIT} {PACK}") == ["mov b64", "tcgen05 wait::ld", "mov b64"]

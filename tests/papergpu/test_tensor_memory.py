"""Tensor memory: who has it, how registers are moved to and from it, and what is found wrong.

Copies of registers that are on their way from tensor memory wait with them.
"""

from __future__ import annotations

import blackwell
import numpy as np
import numpy.typing as npt
import pytest
from blackwell import ALLOC, FREE, advance_address, execute_body, list_registers, move_words
from papergpu.decode.kernel import delay_load_copies
from papergpu.errors import Finding, Unsupported
from papergpu.parse import parse
from papergpu.syntax_tree import Instruction

Words = npt.NDArray[np.uint32]
# Registers of x1, and where register r of lane l lies, as "Data movement shape" shows.
SHAPES = {
    "32x32b": (1, lambda lane, r: (lane, r)),
    "16x64b": (1, lambda lane, r: (lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * r)),
    "16x128b": (2, lambda lane, r: (lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2))),
    "16x256b": (
        4,
        lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (lane % 4) + 8 * (r // 4)),
    ),
}
IMAGE = 64  # columns


def store_image(image: Words) -> str:
    """Writes `image`, of 128 lanes and 64 columns, from its parameter %l0."""
    return (
        advance_address(0, IMAGE)
        + move_words("ld", "%l0", 0, IMAGE)
        + f"""
    tcgen05.st.sync.aligned.32x32b.x64.b32 [%own], {list_registers(0, IMAGE)};
    tcgen05.wait::st.sync.aligned;
"""
    )


def load_image(
    form: str, count: int, half: str = "", lanes: int = 0, image: Words | None = None
) -> Words:
    """What each thread's registers hold after a tcgen05.ld of an image of one's own numbers."""
    image = np.arange(128 * IMAGE, dtype=np.uint32).reshape(128, IMAGE) if image is None else image
    found = np.zeros((128, count), np.uint32)
    body = ALLOC.format(columns=64) + store_image(image) + advance_address(1, count) + f"""
    add.u32 %x500, %own, {lanes << 16};
    tcgen05.ld.sync.aligned.{form}.b32 {list_registers(0, count)}, [%x500]{half};
    tcgen05.wait::ld.sync.aligned;
""" + move_words("st", "%l1", 0, count) + FREE.format(columns=64)  # fmt: skip
    execute_body(body, {"image": image, "found": found})
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("times", [1, 2, 4])
def test_load_gives_each_lane_what_the_figures_show(shape: str, times: int) -> None:
    each, where = SHAPES[shape]
    found = load_image(f"{shape}.x{times}", each * times)
    for thread in range(128):
        for r in range(each * times):
            row, column = where(thread % 32, r)
            assert found[thread, r] == (thread // 32 * 32 + row) * IMAGE + column


def test_load_of_sixteen_lanes_takes_the_upper_ones_as_well() -> None:
    assert load_image("16x64b.x1", 1, lanes=16)[40, 0] == (32 + 16 + 2) * IMAGE


def test_two_pieces_of_sixteen_lanes_lie_apart_by_what_is_said() -> None:
    found = load_image("16x32bx2.x4", 4, ", 20")
    for thread in range(128):
        lane = thread % 32
        first = (thread // 32 * 32 + lane % 16) * IMAGE + (20 if lane >= 16 else 0)
        assert list(found[thread]) == [first + k for k in range(4)]


def test_pack_takes_the_low_halves_of_two_columns() -> None:
    image = np.random.default_rng(0).integers(0, 1 << 32, (128, IMAGE), dtype=np.uint32)
    found = load_image("32x32b.x4.pack::16b", 4, image=image)
    low = image & 0xFFFF
    np.testing.assert_array_equal(found, low[:, 0:8:2] | low[:, 1:8:2] << 16)
    found = load_image("16x256b.x1.pack::16b", 4, image=image)
    assert found[1, 3] == low[8, 2 * 3] | low[8, 2 * 3 + 1] << 16


@pytest.mark.parametrize("shape", SHAPES)
def test_store_puts_back_what_load_takes(shape: str) -> None:
    each, where = SHAPES[shape]
    given = np.arange(128 * each * 2, dtype=np.uint32).reshape(128, -1)
    found = np.zeros((128, IMAGE), np.uint32)
    body = ALLOC.format(columns=64) + advance_address(0, each * 2)
    body += (
        move_words("ld", "%l0", 0, each * 2)
        + f"""
    tcgen05.st.sync.aligned.{shape}.x2.b32 [%own], {list_registers(0, each * 2)};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x64.b32 {list_registers(100, IMAGE)}, [%own];
    tcgen05.wait::ld.sync.aligned;
"""
        + advance_address(1, IMAGE)
        + move_words("st", "%l1", 100, IMAGE)
        + FREE.format(columns=64)
    )
    execute_body(body, {"given": given, "found": found})
    for thread in range(128):
        for r in range(each * 2):
            row, column = where(thread % 32, r)
            assert found[thread // 32 * 32 + row, column] == given[thread, r]


def test_unpack_spreads_halves_over_columns() -> None:
    given = np.random.default_rng(0).integers(0, 1 << 32, (128, 2), dtype=np.uint32)
    found = np.zeros((128, 4), np.uint32)
    body = ALLOC.format(columns=32) + advance_address(0, 2) + move_words("ld", "%l0", 0, 2) + """
    tcgen05.st.sync.aligned.32x32b.x2.unpack::16b.b32 [%own], {%x0, %x1};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {%x4, %x5, %x6, %x7}, [%own];
    tcgen05.wait::ld.sync.aligned;
""" + advance_address(1, 4) + move_words("st", "%l1", 4, 4) + FREE.format(columns=32)  # fmt: skip
    execute_body(body, {"given": given, "found": found})
    np.testing.assert_array_equal(found[:, 0::2], given & 0xFFFF)
    np.testing.assert_array_equal(found[:, 1::2], given >> 16)


def test_registers_of_a_load_hold_nothing_before_its_wait() -> None:
    image = np.arange(128 * IMAGE, dtype=np.uint32).reshape(128, IMAGE)
    found = np.zeros((128, 1), np.uint32)
    body = ALLOC.format(columns=64) + store_image(image) + advance_address(1, 1) + """
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%own];
    st.global.b32 [%l1], %x0;
    tcgen05.wait::ld.sync.aligned;
""" + FREE.format(columns=64)  # fmt: skip
    execute_body(body, {"image": image, "found": found})
    assert not (found == image[:, :1]).any()


def find_memory_misuse(middle: str, columns: int = 32, free: str | None = None, **more: int) -> str:
    """What is found in a kernel that allocates, does `middle` and frees."""
    body = ALLOC.format(columns=columns) + middle
    body += FREE.format(columns=columns) if free is None else free
    with pytest.raises(Finding) as found:
        execute_body(body, {"out": np.zeros(1024, np.uint32)}, **more)
    return str(found.value)


LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%x0}}, [{}];\n"
WAITED = "tcgen05.wait::ld.sync.aligned;\n"


def test_lanes_of_another_warp_are_found() -> None:
    said = find_memory_misuse(LOAD.format("%t") + WAITED)
    assert "to 127 alone" in said or "to 95 alone" in said or "to 63 alone" in said


def test_columns_that_are_not_allocated_are_found() -> None:
    assert "column 32 of tensor memory, which is not allocated" in find_memory_misuse(
        LOAD.format("%own+32") + WAITED
    )
    assert "which has 512" in find_memory_misuse(LOAD.format("%own+512") + WAITED)


def test_a_leak_is_found() -> None:
    assert "has not freed the 64 columns" in find_memory_misuse("", 64, free="ret;\n")


def test_freeing_twice_is_found() -> None:
    again = "@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 32;\n"
    assert "not allocated" in find_memory_misuse(again)


def test_freeing_another_number_of_columns_is_found() -> None:
    free = "bar.sync 0;\n@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 32;\nret;\n"
    assert "allocated 64" in find_memory_misuse("", 64, free=free)


def test_a_load_that_is_not_waited_for_is_found() -> None:
    assert "wait::ld" in find_memory_misuse(LOAD.format("%own"))


def test_a_store_that_is_not_waited_for_is_found() -> None:
    store = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%own], {%x0};\n"
    assert "wait::st" in find_memory_misuse(store + LOAD.format("%own") + WAITED)
    assert "wait::st" in find_memory_misuse(store)


def test_allocating_after_the_permit_is_given_up_is_found() -> None:
    middle = """
    @%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], 32;
"""
    assert "relinquish" in find_memory_misuse(middle)


@pytest.mark.parametrize("columns", [16, 48, 1024])
def test_a_number_of_columns_that_cannot_be_had_is_found(columns: int) -> None:
    assert "it must be 32, 64" in find_memory_misuse("", columns)


def test_allocating_more_than_there_is_waits_for_ever() -> None:
    more = "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], 256;\n"
    assert "columns of tensor memory" in find_memory_misuse(more, 512)


def test_allocating_waits_until_columns_are_freed() -> None:
    found = np.zeros(1, np.uint32)
    body = (
        ALLOC.format(columns=512)
        + """
    setp.eq.u32 %p2, %warp, 1;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address+4], 32;
    @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 512;
    bar.sync 0;
    ld.shared.b32 %x0, [address+4];
    @%p1 st.global.b32 [%l0], %x0;
    @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %x0, 32;
    ret;
"""
    )
    found[:] = 7
    execute_body(body, {"found": found})
    assert found[0] == 0


def test_a_form_that_nobody_has_is_refused() -> None:
    for form in (
        "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%x0}, [%own]",
        "tcgen05.shift.cta_group::1.down [%own]",
        "tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {%x0, %x1}, %x2, [%own]",
    ):
        with pytest.raises(Unsupported):
            execute_body(ALLOC.format(columns=32) + form + ";\n", {})


def test_the_helpers_agree() -> None:
    assert (
        blackwell.encode_shared_descriptor(0x400, 16, 1024, 2)
        == 0x40 | 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61
    )


# Registers on their way.

AWAITED = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%a, %b}, [%t];"
WAIT = "tcgen05.wait::ld.sync.aligned;"
PACK = "mov.b64 %p, {%a, %b};"


def order_instructions(body: str) -> list[str]:
    text = f".version 8.7\n.target sm_100a\n.address_size 64\n.entry k() {{ {body} }}\n"
    block = parse(text).functions[0].body
    assert block is not None
    return [one.form.partition(".")[0] + "".join(f" {name}" for name in one.form.split(".")[1:2])
            if isinstance(one, Instruction) else type(one).__name__
            for one in delay_load_copies(block.items)]  # fmt: skip


def test_copies_go_behind_the_wait_and_stay_in_order() -> None:
    assert order_instructions(f"{AWAITED} {PACK} mov.b64 %q, %p; {WAIT} ret;") == [
        "tcgen05 ld", "tcgen05 wait::ld", "mov b64", "mov b64", "ret"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("between", "expected"),
    [("add.u32 %c, %a, 1;", ["add u32"]),  # a sum that is too early stays where it is
     ("mov.b32 %c, %d;", ["mov b32"]),
     ("@%g mov.b32 %c, %a;", ["mov b32"])],
)  # fmt: skip
def test_whatever_else_stays_where_it_is(between: str, expected: list[str]) -> None:
    found = order_instructions(f"{AWAITED} {between} {WAIT}")
    assert found == ["tcgen05 ld", *expected, "tcgen05 wait::ld"]


@pytest.mark.parametrize("between", ["add.u64 %r, %p, 1;", "L:", "bar.sync 0;", "{ ret; }"])
def test_a_copy_that_something_follows_is_not_held_back(between: str) -> None:
    found = order_instructions(f"{AWAITED} {PACK} {between} {WAIT}")
    assert found.index("mov b64") == 1 and found[-1] == "tcgen05 wait::ld"


def test_without_a_load_nothing_moves() -> None:
    assert order_instructions(f"{PACK} {WAIT} {PACK}") == ["mov b64", "tcgen05 wait::ld", "mov b64"]

"""What the lanes of a warp do together, every form of it, held against numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
from ptx_launch import execute_ptx, launch_kernel, load_kernel, write_kernel

RANDOM = np.random.default_rng(17)
LOW, HIGH = 0x0000FFF5, 0xFFFF000A  # two masks that are all lanes, lane 0 in the first
# Lanes name the mask that they are of; %rd4 is where a lane reads 8 bytes, %rd5 where it writes 8.
PLACED = f"""
  mov.u32 %r10, %tid.x; mul.wide.u32 %rd2, %r10, 8;
  add.s64 %rd4, %rd0, %rd2; add.s64 %rd5, %rd1, %rd2;
  mov.u32 %r11, {LOW}; shr.u32 %r12, %r11, %r10; and.b32 %r12, %r12, 1;
  setp.ne.u32 %p9, %r12, 0; selp.b32 %r11, {LOW}, {HIGH}, %p9;
  ld.global.u32 %r1, [%rd4]; ld.global.u64 %rd6, [%rd4]; mov.b32 %f1, %r1;
  and.b32 %r2, %r1, 1; setp.ne.u32 %p1, %r2, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;
"""
MASKS = {"-1": [0xFFFFFFFF], "%r11": [LOW, HIGH]}


def list_lanes(mask: int) -> list[int]:
    return [lane for lane in range(32) if mask >> lane & 1]


def run_warp(body: str, given: np.ndarray) -> np.ndarray:
    out = np.zeros((32, 2), np.uint32)
    ptx = write_kernel(f"{PLACED}{body} st.global.v2.u32 [%rd5], {{%r3, %r4}}; ret;", 2)
    ptx = ptx.replace("8.8", "8.6").replace("sm_90a", "sm_100a")
    execute_ptx(ptx, given, out)
    return out


def to_signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


REDUCTIONS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b,
    "add.s32": lambda a, b: a + b,
    "and.b32": lambda a, b: a & b,
    "or.b32": lambda a, b: a | b,
    "xor.b32": lambda a, b: a ^ b,
    "min.u32": min,
    "max.u32": max,
    "min.s32": lambda a, b: min(a, b, key=to_signed),
    "max.s32": lambda a, b: max(a, b, key=to_signed),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", REDUCTIONS)
def test_a_reduction_over_lanes(form: str, mask: str) -> None:
    given = RANDOM.integers(0, 1 << 64, 32, np.uint64)
    if form == "and.b32":
        given |= np.uint64(0xFFFF0000)
    if form == "or.b32":
        given &= np.uint64(0xFFFF0000)
    got = run_warp(f"redux.sync.{form} %r3, %r1, {mask};", given)[:, 0]
    for one in MASKS[mask]:
        values = [int(given[lane]) & 0xFFFFFFFF for lane in list_lanes(one)]
        assert (got[list_lanes(one)] == reduce(REDUCTIONS[form], values) % (1 << 32)).all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("words", ["", ".abs", ".NaN", ".abs.NaN"])
@pytest.mark.parametrize("operation", ["min", "max"])
def test_a_reduction_of_floats_over_lanes(operation: str, words: str, mask: str) -> None:
    values = RANDOM.normal(size=32).astype(np.float32)
    values[[4, 17]] = np.nan  # one of each mask
    cells = np.zeros((32, 2), np.float32)
    cells[:, 0] = values
    got = run_warp(f"redux.sync.{operation}{words}.f32 %f3, %f1, {mask}; mov.b32 %r3, %f3;", cells)
    for one in MASKS[mask]:
        kept = values[list_lanes(one)]
        kept = np.abs(kept) if "abs" in words else kept
        fold = {"min": np.fmin, "max": np.fmax}[operation]
        want = np.float32(fold.reduce(kept))
        bits = 0x7FFFFFFF if "NaN" in words else int(want.view(np.uint32))
        assert (got[list_lanes(one), 0] == bits).all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("true", [0, 1, 16, 32])
def test_a_vote(true: int, mask: str) -> None:
    """`true` lanes vote: none, the lowest, the lower half, all. CUB has sync behind the vote."""
    given = (np.arange(32) < true).astype(np.uint64)
    out = run_warp(f"""
      vote.sync.all.pred %p2, %p1, {mask}; @%p2 add.u32 %r4, %r4, 1;
      vote.sync.any.pred %p3, %p1, {mask}; @%p3 add.u32 %r4, %r4, 2;
      vote.sync.uni.pred %p4, %p1, {mask}; @%p4 add.u32 %r4, %r4, 4;
      vote.sync.any.pred %p5, !%p1, {mask}; @%p5 add.u32 %r4, %r4, 8;
      vote.ballot.sync.b32 %r3, %p1, {mask};""", given)  # fmt: skip
    for one in MASKS[mask]:
        votes = [int(given[lane]) for lane in list_lanes(one)]
        said = (all(votes) + 2 * any(votes) + 4 * (all(votes) or not any(votes))
                + 8 * (not all(votes)))  # fmt: skip
        ballot = sum(1 << lane for lane in list_lanes(one) if given[lane])
        assert (out[list_lanes(one)] == (ballot, said)).all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_lanes_that_hold_the_same(kind: str, mask: str) -> None:
    given = RANDOM.integers(0, 4, 32, np.uint64)
    if kind == "b64":
        given <<= np.uint64(34)  # what differs stands in the upper half
    register = "%r1" if kind == "b32" else "%rd6"
    out = run_warp(f"match.any.sync.{kind} %r3, {register}, {mask};", given)[:, 0]
    for one in MASKS[mask]:
        for lane in list_lanes(one):
            same = [other for other in list_lanes(one) if given[other] == given[lane]]
            assert out[lane] == sum(1 << other for other in same)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("other", [None, 0, 31])
@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_whether_all_lanes_hold_the_same(kind: str, other: int | None, mask: str) -> None:
    """One lane may hold something else; lane 0 is of one mask, and lane 31 of the other."""
    given = np.full(32, 5 << (34 if kind == "b64" else 0), np.uint64)
    if other is not None:
        given[other] ^= np.uint64(1 << (34 if kind == "b64" else 0))
    register = "%r1" if kind == "b32" else "%rd6"
    out = run_warp(f"""
      setp.eq.u32 %p2, {1 if other is not None else 0}, 1; mov.u32 %r3, 99;
      match.all.sync.{kind} %r3|%p2, {register}, {mask}; selp.u32 %r4, 1, 0, %p2;
      """, given)  # fmt: skip
    for one in MASKS[mask]:
        same = other is None or not one >> other & 1
        assert (out[list_lanes(one)] == ((one, 1) if same else (0, 0))).all()


@pytest.mark.parametrize("mask", MASKS)
def test_one_lane_is_elected(mask: str) -> None:
    out = run_warp(f"""
      mov.u32 %r3, 99; elect.sync %r3|%p2, {mask}; selp.u32 %r4, 1, 0, %p2;
      elect.sync _|%p3, {mask}; @%p3 add.u32 %r4, %r4, 2;""", np.zeros(32, np.uint64))  # fmt: skip
    for one in MASKS[mask]:
        lanes = list_lanes(one)
        assert len(set(out[lanes, 0])) == 1 and out[lanes[0], 0] in lanes
        chosen = out[lanes, 0] == np.array(lanes)
        assert (out[lanes, 1] == 3 * chosen).all()


@pytest.mark.parametrize(("mode", "by", "clamp", "inside"), [
    ("up", 3, 0x1800, lambda lane: lane % 8 >= 3),
    ("down", 3, 0x181F, lambda lane: lane % 8 < 5),
    ("bfly", 9, 0x001F, lambda lane: True),
    ("bfly", 9, 0x1807, lambda lane: lane ^ 9 < lane // 8 * 8 + 8),
    ("idx", 6, 0x1807, lambda lane: True),
    ("idx", 6, 0x1805, lambda lane: False),
])  # fmt: skip
def test_a_shuffle_says_whether_it_was_within_bounds(
    mode: str, by: int, clamp: int, inside: Callable[[int], bool]
) -> None:
    """Within segments of 8 lanes; a lane that would read beyond one keeps its own."""
    given = RANDOM.integers(0, 1 << 32, 32, np.uint64)
    out = run_warp(f"""
      setp.eq.u32 %p2, %r10, 50; @!%p2 mov.u32 %r4, 0;
      shfl.sync.{mode}.b32 %r3|%p2, %r1, {by}, {clamp}, -1; selp.u32 %r4, 1, 0, %p2;
      """, given)  # fmt: skip
    for lane in range(32):
        from_ = {"up": lane - by, "down": lane + by, "bfly": lane ^ by,
                 "idx": lane // 8 * 8 + by}[mode]  # fmt: skip
        assert out[lane, 1] == inside(lane)
        assert out[lane, 0] == given[from_ if inside(lane) else lane]


def test_clocks_go_on_and_lanes_read_the_same() -> None:
    out = run_warp("""
      mov.u32 %r20, %clock; mov.u64 %rd20, %clock64; add.u32 %r21, %r20, %r20;
      mov.u32 %r22, %clock; mov.u64 %rd22, %clock64; sub.u32 %r3, %r22, %r20;
      sub.u64 %rd23, %rd22, %rd20; cvt.u32.u64 %r4, %rd23;""", np.zeros(32, np.uint64))  # fmt: skip
    assert (out == out[0]).all() and (out > 0).all() and (out < 100).all()


def test_the_upper_half_of_a_clock_that_has_just_begun() -> None:
    out = run_warp("mov.u32 %r3, %clock_hi; mov.u32 %r4, %globaltimer_hi;", np.zeros(32, np.uint64))
    assert not out.any()


def test_who_is_active() -> None:
    out = run_warp("""
      setp.lt.u32 %p2, %r10, 7; @%p2 bra LOW;
      activemask.b32 %r3; bra.uni ON;
    LOW:
      activemask.b32 %r3;
    ON:""", np.zeros(32, np.uint64))  # fmt: skip
    assert (out[:, 0] == np.where(np.arange(32) < 7, 0x7F, 0xFFFFFF80)).all()


def test_a_mask_may_name_lanes_that_the_block_does_not_have() -> None:
    """Of the last warp of 40 threads: CUDA asks only for those that have not exited."""
    kernel = load_kernel(write_kernel("""
      mov.u32 %r0, %tid.x; mul.wide.u32 %rd2, %r0, 8; add.s64 %rd2, %rd0, %rd2;
      setp.eq.u32 %p2, %r0, %r0; vote.sync.ballot.b32 %r1, %p2, -1;
      bar.warp.sync -1; redux.sync.add.u32 %r2, 1, -1; st.global.v2.u32 [%rd2], {%r1, %r2}; ret;
    """))  # fmt: skip
    out = np.zeros((40, 2), np.uint32)
    launch_kernel(kernel, out, block=40)
    assert (out[:32] == (0xFFFFFFFF, 32)).all() and (out[32:] == (0xFF, 8)).all()

"""Products and sums that a launch may make one, and those that it must not."""

from __future__ import annotations

import numpy as np
import ptx_launch
import pytest
from papergpu.formats import FORMATS
from papergpu.forms import type_bits
from papergpu.launch import Kernel, Settings
from papergpu.reals import real
from papergpu.reference import evaluate
from thread_forms import draw_patterns, launch_cells

KINDS = ("f32", "ftz.f32", "f64", "f32x2", "f16", "f16x2", "bf16", "bf16x2")
SHAPES = {
    "add {d}, {m}, {c}": ("fma", "abc"),
    "add {d}, {c}, {m}": ("fma", "abc"),
    "sub {d}, {m}, {c}": ("fms", "abc"),
    "sub {d}, {c}, {m}": ("fnma", "abc"),
}


def write_lane_kernel(kind: str, body: str) -> Kernel:
    """A kernel of three numbers of a lane in %a, %b and %c, whose result is in %d."""
    size = type_bits(kind.rpartition(".")[2])
    store = f"b{max(16, size)}"
    names = "".join(
        f"ld.global.b64 %rd2, [%rd1+{8 * at}]; " + (
            f"mov.b64 %{name}, %rd2;" if size == 64 else f"cvt.u{store[1:]}.u64 %{name}, %rd2;")
        for at, name in enumerate("abc")
    )  # fmt: skip
    stored = "mov.b64 %rd2, %d;" if size == 64 else f"cvt.u64.u{store[1:]} %rd2, %d;"
    return ptx_launch.load_kernel(f"""
        .version 8.7
        .target sm_100a
        .address_size 64
        .visible .entry k(.param .u64 p)
        {{
        .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
        .reg .{store} %a, %b, %c, %d, %e, %m;
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 32, %r1;
        ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r1, 32; add.s64 %rd1, %rd1, %rd2;
        {names}
        setp.ne.u32 %p, %r1, 3;
        {body}
        {stored}
        st.global.b64 [%rd1+24], %rd2;
        ret;
        }}""")


def draw_cells(kind: str, rows: int = 64) -> np.ndarray:
    random = np.random.default_rng(11)
    plain = kind.rpartition(".")[2]
    return np.stack([draw_patterns(plain, rows, random) for _ in range(4)], axis=1)


def run_both_ways(kernel: Kernel, cells: np.ndarray) -> tuple[list[int], list[int]]:
    """What comes out without fusing, and with it."""
    made = []
    for fuse in (False, True):
        here = cells.copy()
        launch_cells(kernel, here, Settings(checks=False, fuse=fuse))
        made.append([int(one) for one in here[:, 3]])
    return made[0], made[1]


def flip_sign(kind: str, bits: int) -> int:
    plain = kind.rpartition(".")[2]
    size = type_bits(plain)
    tops = [size - 1, size // 2 - 1] if plain.endswith("x2") else [size - 1]
    for top in tops:
        bits ^= 1 << top
    return bits


def encode_inexact(kind: str) -> int:
    """One and a little, in every half."""
    plain = kind.rpartition(".")[2]
    shape = FORMATS[plain.removesuffix("x2")]
    one = shape.encode(real(1)) + 1
    return one | one << shape.width if plain.endswith("x2") else one


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_product_and_its_sum_become_one(kind: str, shape: str) -> None:
    word, _, operands = shape.partition(" ")
    line = operands.format(d="%d", m="%m", c="%c")
    kernel = write_lane_kernel(kind, f"mul.{kind} %m, %a, %b; {word}.{kind} {line};")
    name = f"{SHAPES[shape][0]}.{kind}"
    assert [one[2] for one in kernel.program.fused] == [name]
    cells = draw_cells(kind)
    # A product that is not exact, taken from itself: what it lost is all that is left.
    for row in (0, 9):
        cells[row, :2] = cells[row + 1, :2] = encode_inexact(kind)
        product = evaluate(f"mul.{kind}", int(cells[row, 0]), int(cells[row, 1]))
        cells[row, 2], cells[row + 1, 2] = product, flip_sign(kind, product)
    apart, fused = run_both_ways(kernel, cells)
    fma = f"fma.rn.{kind}"
    for (a, b, c, _), one, other in zip(cells.tolist(), apart, fused, strict=True):
        product = evaluate(f"mul.{kind}", a, b)
        pair = (product, c) if line.index("%m") < line.index("%c") else (c, product)
        assert one == evaluate(f"{word}.{kind}", *pair)
        x = flip_sign(kind, a) if name.startswith("fnma") else a
        z = flip_sign(kind, c) if name.startswith("fms") else c
        assert other == evaluate(fma, x, b, z)
    assert apart != fused
    assert kernel.mutate(name) == 1
    assert run_both_ways(kernel, cells)[1] != fused


@pytest.mark.parametrize(
    "body",
    [
        "mul.rn.f32 %m, %a, %b; add.f32 %d, %m, %c;",
        "mul.f32 %m, %a, %b; add.rn.f32 %d, %m, %c;",
        "mul.f32 %m, %a, %b; add.ftz.f32 %d, %m, %c;",
        "mul.f32 %m, %a, %b; add.f32 %d, %m, %m;",
        "mul.f32 %m, %a, %b; add.f32 %d, %m, %c; mul.f32 %e, %m, %a; min.f32 %d, %d, %e;",
        "mul.f32 %m, %a, %b; mov.b32 %a, %c; add.f32 %d, %m, %c;",
        "mul.f32 %m, %a, %b; @%p add.f32 %d, %m, %c;",
        "mov.b32 %m, %c; @%p mul.f32 %m, %a, %b; add.f32 %d, %m, %c;",
        "mul.f32 %m, %a, %b; @%p bra L; L: add.f32 %d, %m, %c;",
    ],
)
def test_what_must_stay_apart(body: str) -> None:
    kernel = write_lane_kernel("f32", body)
    assert kernel.program.fused == []
    apart, fused = run_both_ways(kernel, draw_cells("f32"))
    assert apart == fused


def test_under_the_same_guard_both_are_one() -> None:
    kernel = write_lane_kernel(
        "f32", "mov.b32 %d, %c; @%p mul.f32 %m, %a, %b; @%p add.f32 %d, %m, %c;"
    )
    assert [one[2] for one in kernel.program.fused] == ["fma.f32"]
    cells = draw_cells("f32")
    _, fused = run_both_ways(kernel, cells)
    assert fused[3] == int(cells[3, 2])
    a, b, c = (int(one) for one in cells[4, :3])
    assert fused[4] == evaluate("fma.rn.f32", a, b, c)

"""Every form of one thread's instructions, run by the engine and held against exact arithmetic; and
products and sums that a launch may make one. Takes 12 s, as it executes every form there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import ptx_launch
import pytest
from papergpu.build import list_source_handlers
from papergpu.errors import Finding
from papergpu.floats import evaluate_exact
from papergpu.formats import FORMATS
from papergpu.forms import find_form, type_bits
from papergpu.launch import Kernel, Settings
from papergpu.reals import Real, real
from papergpu.reference import evaluate
from thread_forms import (
    SOURCES,
    Trial,
    build_trials,
    draw_patterns,
    launch_cells,
    list_forms,
    list_mistakes,
    pick_handler_forms,
)

COMPARISONS = ("set", "setp")  # more than half of all forms, and as many combinations


def binary_exponent(y: Real) -> int:
    """The exponent of the power of two below a number."""
    if not y.magnitude:
        return -1000
    power = y.magnitude.numerator.bit_length() - y.magnitude.denominator.bit_length()
    return power - (y.magnitude < Fraction(2) ** power)


def allowed_error(written: str, *operands: int) -> Fraction:
    """How far an approximate instruction may be from what it approximates, `evaluate_exact`."""
    found = find_form(written)
    opcode, kind = written.partition(".")[0], found.types[0]
    x, y = FORMATS[kind].decode(operands[0]), evaluate_exact(written, *operands)
    if kind != "f32":
        relative, absolute = {
            ("ex2", "f16"): (2**-9.9, 0.0), ("ex2", "bf16"): (2**-7, 0.0),
            ("tanh", "f16"): (0.0, 2**-10.987), ("tanh", "bf16"): (0.0, 2**-8),
        }.get((opcode, kind), (0.0, 0.0))  # fmt: skip
    else:
        ulp = 2.0 ** (max(binary_exponent(y), -126) - 23)
        wave = 2**-20.5 if abs(x.value) <= Fraction(2 * 3.141592653589793) else 2**-14.7
        near = Fraction(1, 2) < x.value < 2
        relative, absolute = {
            "rcp": (0.0, ulp), "div": (0.0, 2 * ulp), "ex2": (0.0, 2 * ulp), "sqrt": (2**-23, 0.0),
            "rsqrt": (2**-22.9, 0.0), "sin": (0.0, wave), "cos": (0.0, wave),
            "lg2": (0.0, 2**-22) if near else (2**-22, 0.0), "tanh": (2**-11, 0.0),
        }[opcode]  # fmt: skip
    return Fraction(relative) * y.magnitude + Fraction(absolute)


@cache
def group_by_opcode() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for form in list_forms():
        found.setdefault(form.partition(".")[0], []).append(form)
    return found


@cache
def cover_handlers() -> dict[str, str]:
    """The first form that each handler is used for."""
    return pick_handler_forms(list_forms())


@pytest.mark.parametrize("opcode", group_by_opcode())
def test_every_form_is_what_the_oracle_says(opcode: str) -> None:
    forms = group_by_opcode()[opcode]
    rows = 32 if opcode not in COMPARISONS else 16 * 2
    if opcode in COMPARISONS:  # each with a predicate, in one of two ways
        forms = [form for number, form in enumerate(forms) if number % 3 == len(form) % 3]
    trials = [Trial(form, negated=number % 2 == 1) for number, form in enumerate(forms)]
    one = build_trials(trials, rows)
    assert list_mistakes(one, one.run_trials()) == []


def test_each_handler_leaves_other_lanes_alone() -> None:
    forms = list(dict.fromkeys(cover_handlers().values()))
    trials = [Trial(form) for form in forms]
    one = build_trials(trials, 64, guarded=[True] * len(trials))
    assert list_mistakes(one, one.run_trials()) == []


def test_both_results_of_a_comparison() -> None:
    forms = [form for form in group_by_opcode()["setp"] if "x2" not in form][::7]
    one = build_trials([Trial(form, pair=True) for form in forms], 32)
    assert list_mistakes(one, one.run_trials()) == []


@pytest.mark.parametrize("form", ["min", "max"])
@pytest.mark.parametrize("words", ["", ".ftz", ".NaN", ".ftz.NaN", ".abs", ".NaN.abs"])
def test_of_three(form: str, words: str) -> None:
    written = f"{form}{words}.f32"
    one = build_trials([Trial(written, row=find_form(written, 4))], 512)
    assert list_mistakes(one, one.run_trials()) == []


def test_every_table_of_three_bits() -> None:
    one = build_trials([Trial("lop3.b32", table=table) for table in range(256)], 32)
    assert list_mistakes(one, one.run_trials()) == []


@pytest.mark.exhaustive("all handlers of a thread's instructions, spoilt")
def test_a_spoilt_handler_is_seen() -> None:
    """Every handler of a thread's instructions is used by a form, which fails once it is spoilt."""
    covered = cover_handlers()
    names = frozenset().union(*(list_source_handlers(source) for source in SOURCES))
    assert {name for name in names - set(covered) if not name.startswith(MOVES + FUSED)} == set()
    one = build_trials([Trial(form) for form in dict.fromkeys(covered.values())], 32)
    clean = one.run_trials()
    for name, form in covered.items():
        assert one.kernel.mutate(name, form)
        try:
            changed = any((a != b).any() for a, b in zip(one.run_trials(), clean, strict=True))
        except Finding:
            changed = True
        assert changed, f"nobody sees that {name} is wrong"


# Registers of other widths.

MOVES = ("pack.", "unpack.", "mov.")
FUSED = ("fms.", "fnma.")  # below


def move_pair(lines: str) -> tuple[list[int], list[int]]:
    """Two numbers of each lane, and what PTX makes of %d1 and %d2 in %d3 and %d4."""
    random = np.random.default_rng(3)
    cells = random.integers(0, 1 << 64, (32, 4), np.uint64)
    given = [int(one) for one in cells[5, :2]]
    kernel = ptx_launch.load_kernel(f"""
        .version 8.7
        .target sm_90
        .address_size 64
        .visible .entry k(.param .u64 p)
        {{
        .reg .b64 %rd<4>; .reg .b64 %d<6>; .reg .b32 %r<8>; .reg .b16 %h<8>; .reg .b8 %c<8>;
        .reg .b128 %q<3>; .reg .pred %p<3>;
        mov.u32 %r1, %tid.x;
        ld.param.u64 %rd1, [p];
        mul.wide.u32 %rd2, %r1, 32;
        add.s64 %rd1, %rd1, %rd2;
        ld.global.b64 %d1, [%rd1];
        ld.global.b64 %d2, [%rd1+8];
        mov.b64 %d3, 0;
        mov.b64 %d4, 0;
        {lines}
        st.global.b64 [%rd1+16], %d3;
        st.global.b64 [%rd1+24], %d4;
        ret;
        }}""")
    launch_cells(kernel, cells)
    return given, [int(one) for one in cells[5, 2:]]


PARTS = {
    "2x32": "mov.b64 {%r1, %r2}, %d1; mov.b64 %d3, {%r2, %r1};",
    "4x16": "mov.b64 {%h1, %h2, %h3, %h4}, %d1; mov.b64 %d3, {%h3, %h4, %h1, %h2};",
    "2x16": "mov.b64 {%r1, %r2}, %d1; mov.b32 {%h1, %h2}, %r1; mov.b32 {%h3, %h4}, %r2;"
            "mov.b32 %r3, {%h3, %h4}; mov.b32 %r4, {%h1, %h2}; mov.b64 %d3, {%r3, %r4};",
    "4x8": "mov.b64 {%r1, %r2}, %d1; mov.b32 {%c1, %c2, %c3, %c4}, %r1;"
           "mov.b32 %r1, {%c1, %c2, %c3, %c4}; mov.b64 %d3, {%r2, %r1};",
    "2x64": "mov.b128 %q1, {%d2, %d1}; mov.b128 %q2, %q1; mov.b128 {%d4, %d3}, %q2;",
}  # fmt: skip


@pytest.mark.parametrize("parts", PARTS)
def test_registers_are_packed_and_opened(parts: str) -> None:
    (a, b), (first, second) = move_pair(PARTS[parts])
    assert (first, second) == ((a, b) if parts == "2x64" else (a >> 32 | (a & 0xFFFFFFFF) << 32, 0))


def test_a_wider_register_is_read_by_its_low_bits_and_gets_the_sign() -> None:
    (a, b), (first, second) = move_pair("cvt.s64.s8 %d3, %d1; cvt.s16.s8 %d4, %d2;")
    low = [(one & 0xFF) - (256 if one & 0x80 else 0) for one in (a, b)]
    assert first == low[0] % (1 << 64)
    assert second == low[1] % (1 << 64)
    (a, b), (first, second) = move_pair("cvt.u16.u64 %d3, %d1; cvt.u8.u32 %d4, %d2;")
    assert (first, second) == (a & 0xFFFF, b & 0xFF)


# Approximations.

APPROXIMATE = [form for form in list_forms() if ".approx" in form or ".full" in form]


@pytest.mark.parametrize("form", [form for form in APPROXIMATE if not form.endswith("f64")])
def test_a_perturbed_approximation_stays_within_what_is_documented(form: str) -> None:
    one = build_trials([Trial(form)], 256, seed=7)
    plain, (outs,) = one.run_trials(), one.run_trials(Settings(checks=False, perturb=5))
    assert (one.run_trials(Settings(checks=False, perturb=5))[0] == outs).all()
    kind = form.rpartition(".")[2]
    inputs = one.inputs[0][:, : len(one.trials[0].operands)].tolist()
    pair = kind.endswith("x2")
    size = 16 if pair else 64
    single, shape = form.removesuffix("x2"), FORMATS[kind.removesuffix("x2")]
    for row, made in zip(inputs, outs[:, 0].tolist(), strict=True):
        for at in (0, 16) if pair else (0,):
            given = [bits >> at & ((1 << size) - 1) for bits in row]
            assert_within(single, given, made >> at & ((1 << size) - 1))
    assert (plain[0] != outs).any()
    assert shape.name in ("f16", "bf16", "f32")


def assert_within(form: str, given: Sequence[int], made: int) -> None:
    shape = FORMATS[form.rpartition(".")[2]]
    got, exact, rounded = shape.decode(made), evaluate_exact(form, *given), evaluate(form, *given)
    if got.kind != "finite" or not got.magnitude:
        assert made == rounded, f"{form} of {given}"
        return
    assert abs(got.value - exact.value) <= max(
        allowed_error(form, *given), abs(shape.decode(rounded).value - exact.value)
    ), f"{form} of {[hex(one) for one in given]} is {made:#x}"


# ---- products and sums that a launch may make one, and those that it must not

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

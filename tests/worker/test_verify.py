from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import numpy
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from warpshelf.worker import accuracy, verify
from warpshelf.worker.accuracy import Errors, WrongResult
from warpshelf.worker.watch import CallWatch

Tensor = torch.Tensor
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]


def draw_input(turn: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(turn)
    return (torch.randn(7, 5, generator=generator),)


def double_truth(x: Tensor) -> Tensor:
    return x.double() * 2


def double_input(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    return torch.mul(x, 2, out=out)


def check_call(
    function: Callable[..., object],
    draw: Callable[[int], tuple] = draw_input,
    reference: Callable[..., object] = double_truth,
    case: dict | None = None,
    ours: bool = True,
    tolerance: float = 5e-6,
) -> tuple[Errors, torch.dtype]:
    given = verify.CaseData(case or {}, draw, reference)
    return verify.check_function(function, given, lambda dtype: tolerance, CallWatch(), ours)


def test_a_sound_function_passes() -> None:
    errors, dtype = check_call(double_input)
    assert errors.relative == 0
    assert errors.largest == 0
    assert 1 < errors.scale < 20
    assert dtype is torch.float32
    assert check_call(lambda x: x + x, ours=False)[0].relative == 0


def test_errors_are_the_worse_of_both_calls() -> None:
    shift = itertools.cycle([1e-7, 3e-7])
    errors, _ = check_call(lambda x: double_input(x) * (1 + next(shift)))
    assert 2e-7 < errors.relative < 4e-7


# --- what a result must look like


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            lambda x: double_input(x)[:1],
            r"shape \(1, 5\) where the truth has \(7, 5\)",
        ),  # broadcasts
        (lambda x: double_input(x)[:, :1], r"shape \(7, 1\)"),
        (lambda x: double_input(x).sum(), r"shape \(\)"),
        (lambda x: double_input(x)[None], r"shape \(1, 7, 5\)"),
        (lambda x: double_input(x).double(), "dtype float64 where float32 is due"),
        (lambda x: double_input(x).half(), "dtype float16 where float32 is due"),
        (lambda x: double_input(x).to("meta"), "result on meta where the truth is on cpu"),
        (lambda x: None, "it returned NoneType where a tensor was due"),
        (lambda x: [double_input(x)], "it returned list"),
        (lambda x: double_input(x).numpy(), "it returned ndarray"),
        (lambda x: (double_input(x), 1.0), "it returned float"),
        (lambda x: (), "it returned an empty tuple"),
        (lambda x: (double_input(x), double_input(x)), "returned 2 tensors where 1 are due"),
        (lambda x: double_input(x) * math.nan, "NaN in 35 of 35 elements"),
        (
            lambda x: double_input(x).index_fill_(0, torch.tensor(3), math.nan),
            r"NaN in 5 .* at \(3, 0\)",
        ),
        (
            lambda x: double_input(x).index_fill_(0, torch.tensor(3), math.inf),
            "infinite where the truth",
        ),
        (torch.zeros_like, "relative error 1 over"),
        (lambda x: double_input(x) * 1.001, "relative error 0.001 over 5e-06"),
        (lambda x: double_input(x).roll(1), "relative error"),
        (lambda x: -double_input(x), "relative error 2 over"),
    ],
)
@pytest.mark.parametrize("ours", [True, False])
def test_a_wrong_result_is_refused(function: Callable[..., object], says: str, ours: bool) -> None:
    with pytest.raises(WrongResult, match=says) as wrong:
        check_call(function, ours=ours)
    assert "second" not in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_an_error_may_reach_the_tolerance_and_no_further() -> None:
    exact = (torch.ones(4, dtype=torch.float64),)
    off = 2.0**-20
    case = dict(draw=lambda turn: exact, reference=lambda x: x.clone())
    assert check_call(lambda x: x + off, **case, tolerance=off)[0].relative == off
    with pytest.raises(WrongResult, match="over"):
        check_call(lambda x: x + off, **case, tolerance=0.99 * off)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float8_e4m3fn, torch.float8_e5m2])
def test_poison_is_nan_in_each_floating_dtype(dtype: torch.dtype) -> None:
    with verify.PoisonMode():
        out = torch.empty(3, dtype=dtype)
    assert torch.isnan(out).all()
    with pytest.raises(WrongResult, match="never wrote 3 of 3"):
        accuracy.compare_output(out, torch.zeros(3, dtype=torch.float64), dtype)


FACTORIES = {
    "empty": lambda x: torch.empty(x.shape, dtype=x.dtype),
    "empty_like": lambda x: torch.empty_like(x),
    "new_empty": lambda x: x.new_empty(x.shape),
    "empty_strided": lambda x: torch.empty_strided(x.shape, (1, 7), dtype=x.dtype),
    "new_empty_strided": lambda x: x.new_empty_strided(x.shape, (5, 1)),
    "empty_permuted": lambda x: torch.empty_permuted(x.shape, (1, 0), dtype=x.dtype),
}


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_every_element_must_be_written(factory: str, dtype: torch.dtype) -> None:
    def draw_typed(turn: int) -> tuple[Tensor]:
        # -1, 255 and true are among the truths: poison on one call alone would miss them.
        return (torch.full((7, 5), [255, 1, -1][turn % 3]).to(dtype),)

    def leave_one(x: Tensor) -> Tensor:
        out = FACTORIES[factory](x)
        out[:, 1:] = x[:, 1:]
        out[1:, 0] = x[1:, 0]
        return out

    def copy_truth(x: Tensor) -> Tensor:
        return x.double() if dtype.is_floating_point else x.clone()

    says = r"never wrote 1 of 35 elements, the first at \(0, 0\)"
    if not dtype.is_floating_point:
        says = r"differs from the truth in 1 of 35 elements, the first at \(0, 0\)"
    with pytest.raises(WrongResult, match=says):
        check_call(leave_one, draw_typed, copy_truth)
    check_call(lambda x: FACTORIES[factory](x).copy_(x), draw_typed, copy_truth)


@pytest.mark.parametrize("value", [-1, 0, 1, 85, 255])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32])
def test_no_one_truth_hides_an_element_that_was_never_written(
    dtype: torch.dtype, value: int
) -> None:
    inputs = (torch.full((4,), value).to(dtype),)
    with pytest.raises(WrongResult, match="differs"):
        check_call(torch.empty_like, lambda turn: inputs, lambda x: x.clone())


def test_what_lies_beside_a_strided_result_is_poisoned_too() -> None:
    with verify.PoisonMode():
        out = torch.empty_strided((2, 2), (4, 1))
    assert torch.isnan(torch.as_strided(out, (6,), (1,))).all()


def test_poison_leaves_nothing_and_shapes_alone() -> None:
    with verify.PoisonMode():
        assert torch.empty(0, 3).shape == (0, 3)
        assert torch.empty(2, device="meta").shape == (2,)
        assert torch.zeros(3).tolist() == [0, 0, 0]
        assert torch.ones(2, 2).sum() == 4


# --- comparing


@pytest.mark.parametrize(
    ("out", "ref", "says"),
    [
        ([math.inf, 1], [math.inf, 1], None),
        ([-math.inf, 1], [-math.inf, 1], None),
        ([math.inf, 1], [-math.inf, 1], r"misses an infinity of the truth in 1 of 2"),
        ([1e38, 1], [math.inf, 1], r"misses an infinity .* at \(0,\)"),
        ([math.inf, math.inf], [math.inf, 1], r"infinite where the truth is finite .* at \(1,\)"),
        ([math.nan, 1], [math.inf, 1], "NaN"),
        ([math.nan, 1], [math.nan, 1], "NaN"),
    ],
)
def test_infinities_are_where_the_truth_has_them(
    out: list[float], ref: list[float], says: str | None
) -> None:
    pair = torch.tensor(out), torch.tensor(ref, dtype=torch.float64)
    if says is None:
        errors = accuracy.compare_output(*pair, torch.float32)
        assert errors == Errors(0.0, 0.0, 1.0)
        return
    with pytest.raises(WrongResult, match=says):
        accuracy.compare_output(*pair, torch.float32)


def test_an_error_beside_an_infinity_counts() -> None:
    out = torch.tensor([math.inf, 1.5])
    ref = torch.tensor([math.inf, 1.0], dtype=torch.float64)
    assert accuracy.compare_output(out, ref, torch.float32) == Errors(0.5, 0.5, 1.0)


def test_a_truth_of_zeros_allows_zeros_alone() -> None:
    zeros = torch.zeros(3, dtype=torch.float64)
    assert accuracy.compare_output(torch.zeros(3), zeros, torch.float32).relative == 0
    assert accuracy.compare_output(-torch.zeros(3), zeros, torch.float32).relative == 0
    assert (
        accuracy.compare_output(torch.tensor([0, 1e-45, 0]), zeros, torch.float32).relative
        == math.inf
    )


def test_nothing_is_compared_by_its_shape() -> None:
    empty = torch.zeros(0, 3, dtype=torch.float64)
    assert accuracy.compare_output(torch.zeros(0, 3), empty, torch.float32) == Errors(0, 0, 0)
    with pytest.raises(WrongResult, match="shape"):
        accuracy.compare_output(torch.zeros(3, 0), empty, torch.float32)
    with pytest.raises(WrongResult, match="dtype"):
        accuracy.compare_output(torch.zeros(0, 3), empty, torch.float16)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1.0, 1e200, 1e307])
def test_no_magnitude_hides_an_error(scale: float) -> None:
    ref = torch.tensor([3.0, 4.0], dtype=torch.float64) * scale
    out = torch.tensor([3.0, 4.5], dtype=torch.float64) * scale
    errors = accuracy.compare_output(out, ref, torch.float64)
    assert errors.relative == pytest.approx(0.1)
    assert errors.largest == pytest.approx(0.5 * scale)
    assert errors.scale == 4 * scale
    assert accuracy.compare_output(-ref, ref, torch.float64).relative == pytest.approx(2)


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool])
def test_integers_are_exact(dtype: torch.dtype) -> None:
    ref = torch.tensor([0, 1, 1]).to(dtype)
    assert accuracy.compare_output(ref.clone(), ref, dtype) == Errors(0, 0, 0)
    with pytest.raises(WrongResult, match=r"differs from the truth in 1 of 3 .* at \(1,\)"):
        accuracy.compare_output(torch.tensor([0, 0, 1]).to(dtype), ref, dtype)


def test_large_integers_are_exact() -> None:
    ref = torch.tensor([2**62])
    with pytest.raises(WrongResult, match="differs"):
        accuracy.compare_output(ref + 1, ref, torch.int64)


def test_an_integer_truth_of_a_floating_result_is_not_rounded() -> None:
    ref = torch.tensor([2**24 + 1])
    out = torch.tensor([2.0**24], dtype=torch.float32)
    assert accuracy.compare_output(out, ref, torch.float32).largest == 1


@st.composite
def draw_pairs(draw: st.DrawFn) -> tuple[torch.dtype, Tensor, Tensor]:
    dtype = draw(st.sampled_from(FLOATS))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    count = math.prod(shape)
    values = st.lists(st.floats(-1e4, 1e4, width=32), min_size=count, max_size=count)
    ref = torch.tensor(draw(values), dtype=torch.float64).reshape(shape)
    noise = draw(st.sampled_from([0.0, 1e-6, 1e-2, 10.0]))
    off = torch.tensor(draw(values), dtype=torch.float64).reshape(shape)
    out = (ref + noise * off).to(dtype)
    if len(shape) > 1 and draw(st.booleans()):
        out = out.transpose(0, 1).contiguous().transpose(0, 1)
    return dtype, out, ref


@given(draw_pairs())
def test_the_errors_are_numpy_s(pair: tuple[torch.dtype, Tensor, Tensor]) -> None:
    dtype, out, ref = pair
    assume(bool(torch.isfinite(out).all()))
    errors = accuracy.compare_output(out, ref, dtype)
    exact, truth = out.double().numpy().ravel(), ref.numpy().ravel()
    if not truth.size:
        assert errors == Errors(0, 0, 0)
        return
    assert errors.largest == numpy.abs(exact - truth).max()
    assert errors.scale == numpy.abs(truth).max()
    norm = numpy.linalg.norm(truth / (errors.scale or 1))
    off = numpy.linalg.norm((exact - truth) / (errors.scale or 1))
    expected = off / norm if norm else (math.inf if off else 0.0)
    assert errors.relative == pytest.approx(expected, rel=1e-9)


# --- what a function may not do


def write_in_place(x: Tensor) -> Tensor:
    return x.mul_(2).clone()


def write_one_element(x: Tensor) -> Tensor:
    out = double_input(x)
    x[6, 4] += 1
    return out


def write_and_restore(x: Tensor) -> Tensor:
    x += 1
    out = (x - 1) * 2
    x -= 1  # but for what rounding took
    return out


@pytest.mark.parametrize("function", [write_in_place, write_one_element, write_and_restore])
@pytest.mark.parametrize("ours", [True, False])
def test_inputs_are_left_as_they_were(function: Callable[..., object], ours: bool) -> None:
    with pytest.raises(WrongResult, match=r"^changed its input 0$"):
        check_call(function, ours=ours)


def test_the_sign_of_a_zero_and_the_payload_of_a_nan_are_part_of_an_input() -> None:
    before = (torch.tensor([0.0, 1.0]), torch.tensor([math.nan]), 3)
    kept = verify.input_fingerprints(before)
    verify.check_untouched(before, kept)
    before[0][0] = -0.0
    with pytest.raises(WrongResult, match="input 0"):
        verify.check_untouched(before, kept)
    before[0][0] = 0.0
    before[1].view(torch.int32)[0] += 1
    with pytest.raises(WrongResult, match="input 1"):
        verify.check_untouched(before, kept)


def draw_views(turn: int) -> tuple[Tensor]:
    return (draw_input(turn)[0][::2, 1:4],)


def write_past_view(x: Tensor) -> Tensor:
    torch.as_strided(x, (1,), (1,), 0).zero_()  # an element of the storage, not of the view
    return double_input(x)


def test_memory_beside_a_view_is_left_as_it_was() -> None:
    check_call(double_input, draw_views)
    with pytest.raises(WrongResult, match="changed its input 0"):
        check_call(write_past_view, draw_views)


def test_the_second_input_is_looked_at_as_well() -> None:
    def draw_pair(turn: int) -> tuple:
        return (*draw_input(turn), 2, *draw_input(turn + 10))

    def spoil_input(x: Tensor, factor: int, y: Tensor) -> Tensor:
        y.add_(1)
        return double_input(x)

    with pytest.raises(WrongResult, match="changed its input 2"):
        check_call(spoil_input, draw_pair, lambda x, factor, y: double_truth(x))


def make_stale() -> Callable[[Tensor], Tensor]:
    kept: list[Tensor] = []

    def return_first(x: Tensor) -> Tensor:
        if not kept:
            kept.append(double_input(x))
        return kept[0]

    return return_first


def cache_by_address() -> Callable[[Tensor], Tensor]:
    kept: dict[int, Tensor] = {}

    def return_cached(x: Tensor) -> Tensor:
        return kept.setdefault(x.data_ptr(), double_input(x)).clone()

    return return_cached


def share_buffer() -> Callable[[Tensor], Tensor]:
    buffer = torch.zeros(7, 5)

    def write_buffer(x: Tensor) -> Tensor:
        return torch.mul(x, 2, out=buffer)

    return write_buffer


def answer_once() -> Callable[[Tensor], Tensor]:
    calls = itertools.count()
    return lambda x: double_input(x) if next(calls) == 0 else torch.zeros_like(x)


def make_accumulating() -> Callable[[Tensor], Tensor]:
    total = torch.zeros(7, 5)

    def add_total(x: Tensor) -> Tensor:
        total.add_(x, alpha=2)
        return total.clone()

    return add_total


def spoil_later() -> Callable[[Tensor], Tensor]:
    calls = itertools.count()
    return lambda x: double_input(x) if next(calls) == 0 else write_in_place(x)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (make_stale, "right on its first call, wrong on the second: relative error"),
        (cache_by_address, "right on its first call, wrong on the second: relative error"),
        (answer_once, "right on its first call, wrong on the second: relative error 1"),
        (make_accumulating, "right on its first call, wrong on the second"),
        (spoil_later, "right on its first call, wrong on the second: changed its input 0"),
        (share_buffer, "the second call changed the result of the first: allocate a new output"),
    ],
)
def test_a_second_call_is_as_right_as_the_first(
    make: Callable[[], Callable[[Tensor], Tensor]], says: str
) -> None:
    with pytest.raises(WrongResult, match=says):
        check_call(make())


def test_a_library_may_keep_its_buffer() -> None:
    assert check_call(share_buffer(), ours=False)[0].relative == 0


def test_a_view_of_an_input_is_a_result() -> None:
    assert check_call(lambda x: x.T, reference=lambda x: x.double().T)[0].relative == 0


# --- inputs that are filled anew


def test_a_second_draw_lands_in_the_same_memory() -> None:
    seen: list[tuple[int, float]] = []

    def note_call(x: Tensor) -> Tensor:
        seen.append((x.data_ptr(), float(x[0, 0])))
        return double_input(x)

    check_call(note_call)
    (first, old), (second, new) = seen
    assert first == second
    assert old != new
    assert new == float(draw_input(1)[0][0, 0])


def test_strided_inputs_are_filled_in_place_and_keep_their_strides() -> None:
    old, new = (x.T for (x,) in (draw_input(0), draw_input(1)))
    again = verify.refill_inputs((old, 2.0, None), (new, 2.0, None))
    assert again[0] is old
    assert old.stride() == (1, 5)
    assert torch.equal(old, new)


@pytest.mark.parametrize(
    ("inputs", "fresh"),
    [
        ((torch.zeros(1, 5).expand(7, 5),), (torch.ones(1, 5).expand(7, 5),)),
        ((torch.zeros(7, 5),), (torch.ones(7, 4),)),
        ((torch.zeros(7, 5), 2), (torch.ones(7, 5), 3)),
        ((torch.zeros(7, 5), "a"), (torch.ones(7, 5), None)),
        ((torch.zeros(7, 5),), (3.0,)),
        ((torch.zeros(3), torch.zeros(1).expand(3)), (torch.ones(3), torch.ones(1).expand(3))),
    ],
)
def test_inputs_that_cannot_be_filled_are_replaced(inputs: tuple, fresh: tuple) -> None:
    assert verify.refill_inputs(inputs, fresh) is fresh
    assert not inputs[0].any()  # none was filled halfway


def test_a_nan_among_the_scalars_is_the_same_scalar() -> None:
    inputs = (torch.zeros(2), math.nan)
    assert verify.refill_inputs(inputs, (torch.ones(2), math.nan)) is inputs


def test_expanded_inputs_are_checked() -> None:
    def draw_rows(turn: int) -> tuple[Tensor]:
        return (draw_input(turn)[0][:1].expand(7, 5),)

    check_call(double_input, draw_rows)
    with pytest.raises(WrongResult, match="right on its first call"):
        check_call(make_stale(), draw_rows)


# --- several outputs, and their dtypes


def test_each_output_is_compared() -> None:
    def reduce_truth(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.double().amax(1), x.argmax(1)

    assert (
        check_call(lambda x: (x.amax(1), x.argmax(1)), reference=reduce_truth)[1] is torch.float32
    )
    with pytest.raises(WrongResult, match="output 1: differs from the truth in"):
        check_call(lambda x: (x.amax(1), x.argmin(1)), reference=reduce_truth)
    with pytest.raises(WrongResult, match="output 0: relative error"):
        check_call(lambda x: (x.amin(1), x.argmax(1)), reference=reduce_truth)
    with pytest.raises(WrongResult, match="output 1: dtype int32 where int64 is due"):
        check_call(lambda x: (x.amax(1), x.argmax(1).int()), reference=reduce_truth)
    with pytest.raises(WrongResult, match="returned 1 tensors where 2 are due"):
        check_call(lambda x: x.amax(1), reference=reduce_truth)


def test_the_first_floating_output_decides_the_tolerance() -> None:
    asked: list[torch.dtype] = []

    def ask_tolerance(dtype: torch.dtype) -> float:
        asked.append(dtype)
        return 0.0

    def take_both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.argmax(1), x.half()

    def take_both_truth(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.argmax(1), x.half().double()

    case = {"out": ["int64", "float16"]}
    given = verify.CaseData(case, draw_input, take_both_truth)
    found = verify.check_function(take_both, given, ask_tolerance, CallWatch(), ours=True)
    assert found[1] is torch.float16
    assert set(asked) == {torch.float16}
    assert check_call(lambda x: x.argmax(1), reference=lambda x: x.argmax(1))[1] is torch.int64


F32, F16 = torch.zeros(1), torch.zeros(1, dtype=torch.float16)
TRUTH, INDEX = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("case", "inputs", "refs", "dtypes"),
    [
        ({}, (F16, F32), (TRUTH,), [torch.float16]),
        ({}, (3, INDEX, F32), (TRUTH, INDEX), [torch.float32, torch.int64]),
        ({}, (INDEX,), (TRUTH, INDEX), [torch.float32, torch.int64]),
        ({}, (F16,), (INDEX > 0,), [torch.bool]),
        ({"out": "bfloat16"}, (F16,), (TRUTH, TRUTH), [torch.bfloat16, torch.bfloat16]),
        ({"out": ["float16", "int32"]}, (F32,), (TRUTH, INDEX), [torch.float16, torch.int32]),
    ],
)
def test_the_dtype_due_is_that_of_the_case_the_truth_or_the_first_input(
    case: dict, inputs: tuple, refs: tuple, dtypes: list
) -> None:
    assert accuracy.expected_dtypes(case, inputs, refs) == dtypes


@pytest.mark.parametrize("out", ["float", "fp32", "nn", "", None, 3, ["float32", "nn"]])
def test_an_out_that_is_no_dtype_is_refused(out: object) -> None:
    if out == "float":  # torch knows it by that name, too
        assert accuracy.expected_dtypes({"out": out}, (F32,), (TRUTH,)) == [torch.float32]
        return
    with pytest.raises(WrongResult, match="names no torch dtype"):
        accuracy.expected_dtypes({"out": out}, (F32,), (TRUTH,))


def test_an_out_for_each_output() -> None:
    with pytest.raises(WrongResult, match="names 2 dtypes for 1 outputs"):
        check_call(double_input, case={"out": ["float32", "float32"]})
    with pytest.raises(WrongResult, match="dtype float32 where bfloat16 is due"):
        check_call(double_input, case={"out": "bfloat16"})
    assert check_call(lambda x: (2 * x).bfloat16(), case={"out": "bfloat16"}, tolerance=5e-3)


# --- the reference


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (lambda x: x * 2, "returned torch.float32; compute it in float64"),
        (lambda x: (double_truth(x), x.half()), "returned torch.float16; compute it in float64"),
        (lambda x: double_truth(x).log(), "returned NaN"),
        (lambda x: [double_truth(x)], "returned list where a tensor was due"),
        (lambda x: None, "returned NoneType"),
        (lambda x: (), "returned an empty tuple"),
    ],
)
def test_a_truth_that_is_none_is_refused(reference: Callable[..., object], says: str) -> None:
    with pytest.raises(WrongResult, match=rf"reference\(\) {says}"):
        check_call(double_input, reference=reference)


def test_a_truth_may_hold_integers_and_infinities() -> None:
    endless = torch.tensor([math.inf], dtype=torch.float64)
    assert verify.reference_truth(lambda: (endless, INDEX), ()) == (endless, INDEX)


# --- limits


@pytest.mark.parametrize(
    ("dtype", "unit", "tolerance"),
    [
        (torch.float64, "fp64", 1e-12),
        (torch.float32, "fp32", 5e-6),
        (torch.float32, None, 5e-6),
        (torch.float32, "tf32", 1e-3),
        (torch.float16, "tf32", 1e-3),
        (torch.float64, "tf32", 1e-12),
        (torch.float16, "fp16", 1e-3),
        (torch.bfloat16, "bf16", 5e-3),
        (torch.int32, "int8", 0.0),
        (torch.bool, None, 0.0),
    ],
)
def test_the_tolerances(dtype: torch.dtype, unit: str | None, tolerance: float) -> None:
    assert accuracy.tolerance_of(dtype, unit, {}) == tolerance


def test_an_override_is_of_its_dtype_alone() -> None:
    overrides = {"float32": (1e-4, "why"), "tf32": (2e-3, "why"), "float8_e5m2": (0.1, "why")}
    assert accuracy.tolerance_of(torch.float32, "fp32", overrides) == 1e-4
    assert accuracy.tolerance_of(torch.float32, "tf32", overrides) == 2e-3
    assert accuracy.tolerance_of(torch.float16, "fp16", overrides) == 1e-3
    assert accuracy.tolerance_of(torch.float8_e5m2, "fp8", overrides) == 0.1
    assert accuracy.tolerance_of(torch.int32, "fp32", {"int32": (1, "why")}) == 0.0


def test_a_dtype_without_tolerance_is_refused() -> None:
    with pytest.raises(WrongResult, match="no tolerance is known for float8_e4m3fn; give one"):
        accuracy.tolerance_of(torch.float8_e4m3fn, "fp8", {"float32": (1e-4, "why")})


@pytest.mark.parametrize(
    ("largest", "scale", "limit"),
    [
        (0.1, 1.0, 0.2),  # twice the library's
        (0.0, 8.0, 16 * 2.0**-7),  # two units in the last place where it made no error
        (2.0**-8, 1.0, 2 * 2.0**-7),
        (0.0, 0.0, 0.0),
    ],
)
def test_the_limit_beside_a_library(largest: float, scale: float, limit: float) -> None:
    assert accuracy.library_limit(Errors(0.0, largest, scale), torch.bfloat16) == limit


def test_the_limit_is_wider_in_a_narrower_dtype() -> None:
    errors = Errors(0.0, 0.0, 2.0)
    assert accuracy.library_limit(errors, torch.float16) == 4 * 2.0**-10


def test_a_plain_loop_may_sum_in_another_order_than_the_library() -> None:
    """Of 256 products in float32: a loop of multiply-adds beside eight sums of 32."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(4096, 256, generator=generator) for _ in range(2))
    truth, plain = (a.double() * b.double()).sum(1), torch.zeros(4096)
    for k in range(256):
        plain = (a[:, k].double() * b[:, k].double() + plain.double()).float()  # an FMA
    split = (a.double() * b.double()).reshape(4096, 8, 32).sum(2).float().sum(1)
    ours, theirs = (accuracy.compare_output(x, truth, torch.float32) for x in (plain, split))
    assert ours.largest > 2 * theirs.largest  # that alone would call the loop wrong
    assert ours.largest < accuracy.library_limit(theirs, torch.float32)
    assert accuracy.library_limit(theirs, torch.float32) == pytest.approx(5e-6 * theirs.scale)


# --- in pieces, and within memory


@pytest.fixture(params=[1, 3, 2**23])
def chunk_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(accuracy, "CHUNK", request.param)
    return request.param


@pytest.mark.parametrize("transposed", [False, True])
def test_pieces_find_what_the_whole_does(chunk_size: int, transposed: bool) -> None:
    ref = torch.arange(1.0, 36, dtype=torch.float64).reshape(7, 5)
    out = ref.float()
    if transposed:
        out = out.T.contiguous().T
    assert accuracy.compare_output(out, ref, torch.float32) == Errors(0.0, 0.0, 35.0)
    out[3, 2] += 0.5
    out[6, 4] -= 1.0
    errors = accuracy.compare_output(out, ref, torch.float32)
    assert errors.largest == 1.0
    assert errors.relative == pytest.approx(math.sqrt(1.25) / float(ref.norm()))
    out[5, 1] = out[2, 3] = math.nan
    with pytest.raises(WrongResult, match=r"NaN in 2 of 35 elements, the first at \(2, 3\)"):
        accuracy.compare_output(out, ref, torch.float32)


def test_pieces_of_integers(chunk_size: int) -> None:
    ref = torch.arange(24).reshape(2, 3, 4)
    out = ref.clone()
    out[1, 0, 2] += 1
    out[1, 2, 3] += 1
    with pytest.raises(WrongResult, match=r"in 2 of 24 elements, the first at \(1, 0, 2\)"):
        accuracy.compare_output(out, ref, torch.int64)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool, torch.float8_e5m2])
def test_a_fingerprint_sees_every_change(
    chunk_size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "COPIED", 0)
    tensor = (torch.arange(21) % 2).to(dtype)
    kept = verify.take_fingerprint(tensor)
    assert kept.dtype is torch.int64 and len(kept) == -(-21 // chunk_size)
    assert torch.equal(verify.take_fingerprint(tensor), kept)
    for index in range(21):
        changed = tensor.clone()
        changed[index] = 1 - float(tensor[index])
        assert not torch.equal(verify.take_fingerprint(changed), kept)
    assert not torch.equal(verify.take_fingerprint(tensor.roll(1)), kept)
    assert torch.equal(verify.take_fingerprint(tensor), kept)  # to look is not to touch


def test_large_inputs_are_watched_as_small_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "COPIED", 0)
    check_call(double_input)
    for function in (write_in_place, write_one_element, write_and_restore):
        with pytest.raises(WrongResult, match="changed its input 0"):
            check_call(function)
    for make in (make_stale, answer_once, spoil_later, share_buffer):
        with pytest.raises(WrongResult):
            check_call(make())


def test_small_inputs_are_drawn_once_and_handed_out_as_copies() -> None:
    turns: list[int] = []

    def draw_counted(turn: int) -> tuple[Tensor, ...]:
        turns.append(turn)
        return draw_input(turn)

    given = verify.CaseData({}, draw_counted, double_truth)
    first, second = given.turn_inputs(0), given.turn_inputs(0)
    truth = given.turn_truth(0, first)
    first[0].zero_()
    assert torch.equal(second[0], draw_input(0)[0])
    assert given.turn_truth(0, second) is truth
    assert turns == [0]


PEAK = """
import torch
from measures import read_peak
from warpshelf.worker import accuracy, verify, watch

torch.set_num_threads(1)
accuracy.CHUNK = 2**16
n = 2**22

def draw(turn):
    generator = torch.Generator().manual_seed(turn)
    return tuple(torch.randn(n, generator=generator) for _ in range(2))

def triad(a, b):
    return torch.add(a, b, alpha=0.75)

def reference(a, b):
    return b.double().mul_(0.75).add_(a)

small = [part[:100].clone() for part in draw(0)]
told = lambda dtype: 1e-5, watch.CallWatch(), True
verify.check_function(triad, verify.CaseData({}, lambda turn: small, reference), *told)
before = read_peak()
verify.check_function(triad, verify.CaseData({}, draw, reference), *told)
after = read_peak()
print((after - before) / (2 * 4 * n + 4 * n + 8 * n))
"""


@pytest.mark.exhaustive("a process of its own, for its peak")
def test_a_large_case_takes_little_more_than_its_tensors_and_their_truth() -> None:
    if sys.platform != "linux":
        pytest.skip("ru_maxrss is in other units there")
    import measures

    # Tensors are then mapped each by itself, and what is freed goes back at once.
    environment = {**measures.ENVIRONMENT, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", PEAK], env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 1.5


@pytest.mark.parametrize(("free", "where"), [(8 * 24, "cuda"), (8 * 24 - 1, "cpu")])
def test_a_truth_that_would_fill_the_gpu_is_kept_in_the_machine(
    monkeypatch: pytest.MonkeyPatch, free: int, where: str
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 10**9))
    ref = SimpleNamespace(is_cuda=True, nbytes=12, cpu=lambda: "cpu")
    kept = verify._kept_truth([ref, ref])
    assert kept == ([ref, ref] if where == "cuda" else ["cpu", "cpu"])


def test_each_truth_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For all functions of a case, whatever it takes."""
    turns: list[float] = []

    def count_turns(x: Tensor) -> Tensor:
        turns.append(float(x.sum()))
        return double_truth(x)

    given = verify.CaseData({}, draw_input, count_turns)
    for _ in range(3):
        verify.check_function(double_input, given, lambda dtype: 1e-6, CallWatch(), ours=True)
    assert len(turns) == 2


def test_a_truth_that_is_its_input_is_not_kept() -> None:
    """In which the values of the second turn stand when the next function is checked."""

    def draw_double(turn: int) -> tuple[Tensor, ...]:
        return (draw_input(turn)[0].double(),)

    given = verify.CaseData({}, draw_double, lambda x: x.double())
    for _ in range(2):
        verify.check_function(torch.clone, given, lambda dtype: 0.0, CallWatch(), ours=True)

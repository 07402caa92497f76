"""Softmax: right on every case, and each case rejects kernels that are wrong in its way."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

SOURCE = Path(__file__).parents[1] / "snippets" / "softmax" / "softmax.py"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOLERANCES = {"float32": 5e-6, "float16": 1e-3, "bfloat16": 5e-3}


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


softmax = load(SOURCE)
CASES = [case for case in softmax.CASES if DEVICE == "cuda" or case["dtype"] != "bfloat16"]
PAIRS = [
    (name, case) for case in CASES for name in case.get("variants", list(softmax.VARIANTS))
]


def made(case: dict) -> tuple:
    return softmax.inputs(case, DEVICE, torch.Generator(DEVICE).manual_seed(5))


def wrong(module: ModuleType, name: str, case: dict) -> str:
    """What is wrong with a variant of `module` on a case; "" if nothing is."""
    inputs = made(case)
    out = module.VARIANTS[name](*inputs)
    truth = softmax.reference(*inputs)
    if out.shape != truth.shape or out.dtype != inputs[1].dtype:
        return f"{out.shape} {out.dtype}"
    error = float((out.double() - truth).norm())
    if not error <= TOLERANCES[case["dtype"]] * float(truth.norm()):  # NaN is wrong
        return f"off by {error}"
    return ""


@pytest.fixture
def poisoned(monkeypatch):
    """Outputs start as NaN, so that an element never written is seen."""
    empty = torch.empty

    def filled(*args, **kwargs):
        return empty(*args, **kwargs).fill_(math.nan)

    monkeypatch.setattr(torch, "empty", filled)


@pytest.mark.parametrize(("name", "case"), PAIRS, ids=str)
def test_right(name: str, case: dict, poisoned) -> None:
    assert wrong(softmax, name, case) == ""


def test_every_variant_meets_both_passes_and_every_dtype_it_can() -> None:
    met = {(name, case["pass"], case["dtype"]) for name, case in PAIRS}
    for name in softmax.VARIANTS:
        for which in ("forward", "backward"):
            assert {(name, which, "float32"), (name, which, "float16")} <= met


# What a mutant is called -> the text it replaces, what with, and how often the text must occur.
ONE_SUM = "tl.sum(tl.exp2((x.to(tl.float32) - top[:, None]) * LOG2E), axis=1)"
MUTANTS = {
    "one pass without the maximum": ("(x.to(tl.float32) - top[:, None])", "x.to(tl.float32)", 2),
    "online without the maximum": (
        "higher = tl.maximum(top, tl.max(tl.max(x, axis=2), axis=0))",
        "higher = tl.zeros([LANES], tl.float32)",
        1,
    ),
    "no mask": ('mask=col < n, other=float("-inf"),', "", 1),
    "masked logits are 0": ('other=float("-inf")', "other=0.0", 3),
    "one pass, masked logits are -100": (
        'mask=col < n, other=float("-inf")',
        "mask=col < n, other=-100.0",
        1,
    ),
    "online, masked logits are -100": (
        'mask=here < n, other=float("-inf")',
        "mask=here < n, other=-100.0",
        2,
    ),
    "sums without the last chunk": (
        "for start in tl.range(0, n, CHUNK)",
        "for start in tl.range(0, n // CHUNK * CHUNK, CHUNK)",
        2,
    ),
    "sums the first chunk only": (
        "for start in tl.range(0, n, CHUNK)",
        "for start in tl.range(0, min(n, CHUNK), CHUNK)",
        2,
    ),
    "never writes the last chunk": (
        "for done in tl.range(0, n, CHUNK)",
        "for done in tl.range(CHUNK, n, CHUNK)",
        2,
    ),
    "a program takes one row only": (
        "tl.range(tl.program_id(0), m, tl.num_programs(0))",
        "tl.range(tl.program_id(0), tl.program_id(0) + 1)",
        2,
    ),
    "one pass without the row stride": ("source[:, None] * x_stride", "source[:, None] * n", 1),
    "online without the row stride": ("row * x_stride", "row * n", 2),
    "backward without the row stride of y": ("source * y_stride", "source * n", 1),
    "backward without the row stride of dy": ("source * dy_stride", "source * n", 1),
    "backward online without the row stride of y": ("row * y_stride", "row * n", 1),
    "backward online without the row stride of dy": ("row * dy_stride", "row * n", 1),
    "columns taken as adjacent": ("else rows.contiguous()", "else rows", 1),
    "one pass sums in float16": (
        ONE_SUM,
        ONE_SUM.replace("LOG2E)", "LOG2E).to(tl.float16)") + ".to(tl.float32)",
        1,
    ),
    "online sums in float16": (
        "tl.sum(tl.sum(weight, axis=2), axis=0)",
        "tl.sum(tl.sum(weight.to(tl.float16), axis=2), axis=0)",
        1,
    ),
    "the sum is not rescaled when the maximum grows": (
        "total = total * tl.exp2((top - shift) * LOG2E)",
        "total = total",
        1,
    ),
    "lanes are not rescaled to the row's maximum": (
        "tl.sum(total * tl.exp2((top - row_top) * LOG2E), axis=0)",
        "tl.sum(total, axis=0)",
        1,
    ),
    "-inf is subtracted from -inf": (
        "shift = tl.where(higher == float(\"-inf\"), 0, higher)",
        "shift = higher",
        1,
    ),
    "whole tiles of rows only": ("triton.cdiv(m, rows)", "max(1, m // rows)", 1),
    "exp for exp2": ("LOG2E = tl.constexpr(1.4426950408889634)", "LOG2E = tl.constexpr(1.0)", 1),
    "backward without the sum": ("(dy - dot[:, None])", "dy", 1),
    "backward online without the sum": ("- dot)", "- 0)", 1),
    "backward multiplies in the input's dtype": (
        "y.to(tl.float32) * dy.to(tl.float32)",
        "(y * dy).to(tl.float32)",
        1,
    ),
}


def mutant(name: str, folder: Path) -> ModuleType:
    old, new, count = MUTANTS[name]
    text = SOURCE.read_text()
    assert text.count(old) == count, f"mutate what is there: {old!r} occurs {text.count(old)} times"
    path = folder / f"softmax_mutant_{list(MUTANTS).index(name)}.py"
    path.write_text(text.replace(old, new))
    return load(path)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MUTANTS)
def test_some_case_rejects(name: str, tmp_path: Path, poisoned) -> None:
    module = mutant(name, tmp_path)
    likely = PAIRS[::-1] if name.startswith("backward") else PAIRS  # the first that rejects ends it
    assert any(wrong(module, variant, case) for variant, case in likely)


def test_rows_too_long_for_one_pass() -> None:
    x = torch.zeros(1, softmax.MAX_N + 1, device=DEVICE)
    with pytest.raises(ValueError, match=r"N = 32769 exceeds MAX_N = 32768 \(forward\)"):
        softmax.one_pass("forward", x)
    y = torch.zeros(1, 20_000, device=DEVICE)
    with pytest.raises(ValueError, match=r"N = 20000 exceeds MAX_N / 2 = 16384 \(backward\)"):
        softmax.one_pass("backward", y, y)


@pytest.mark.parametrize("name", softmax.VARIANTS)
def test_refuses_what_has_no_rows_or_another_dtype(name: str) -> None:
    with pytest.raises(TypeError, match="int64 is none of float32"):
        softmax.VARIANTS[name]("forward", torch.zeros(2, 3, dtype=torch.int64, device=DEVICE))
    with pytest.raises(ValueError, match="0 dimensions"):
        softmax.VARIANTS[name]("forward", torch.zeros((), device=DEVICE))


@pytest.mark.parametrize("name", softmax.VARIANTS)
def test_more_dimensions_are_rows(name: str) -> None:
    x = torch.randn(2, 3, 33, device=DEVICE).transpose(0, 1)
    y = softmax.VARIANTS[name]("forward", x)
    assert y.shape == (3, 2, 33)
    assert torch.allclose(y, torch.softmax(x, -1), atol=1e-6)


def test_layouts_are_what_they_say() -> None:
    of = {case.get("layout"): made(case)[-1] for case in CASES}
    assert of["strided"].stride(0) > of["strided"].shape[1]
    assert of["transposed"].stride(1) != 1
    assert of["offset"].data_ptr() % 16 != 0
    masked = next(made(case)[-1] for case in CASES if case.get("layout") == "masked")
    assert torch.isinf(masked).any() and not torch.isinf(masked).all(-1).any()


def test_cost_counts_each_tensor_once() -> None:
    for case in CASES:
        tensors = [item for item in made(case) if isinstance(item, torch.Tensor)]
        tensors.append(tensors[0])  # the output is of the inputs' shape and dtype
        assert softmax.cost(case)["bytes"] == sum(t.numel() * t.element_size() for t in tensors)


def test_timed_sizes_leave_a_variant_each() -> None:
    for case in softmax.TIMED:
        short = case["n"] * (1 if case["pass"] == "forward" else 2) <= softmax.MAX_N
        assert case.get("variants") == (None if short else ["online"])


def test_demo_is_short_and_the_same_twice(capsys) -> None:
    softmax.demo()
    first = capsys.readouterr().out
    softmax.demo()
    assert capsys.readouterr().out == first
    assert "nan" not in first and len(first.splitlines()) <= 30
    assert first.count("True") == 2

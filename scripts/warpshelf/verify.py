"""Verification: a kernel's output against a float64 truth, with the ways to cheat closed.

A function is called twice on each case. Its inputs must come back untouched, down to the last byte
of their storage. Fresh memory is poisoned before it can be written, so an element that was never
written shows. The second call finds new values in the same tensors, so a result kept from the
first call shows. Errors are relative norms in float64; NaN passes no comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch.overrides import TorchFunctionMode

# Relative error ‖out − ref‖ / ‖ref‖ by the dtype of the output, or "tf32" where cost() says so.
TOLERANCES = {
    "float64": 1e-12,
    "float32": 5e-6,
    "tf32": 1e-3,
    "float16": 1e-3,
    "bfloat16": 5e-3,
}
LIBRARY_MARGIN = 2.0  # our largest error against that of the library in the same dtype
POISON = 255  # as a byte, everywhere: NaN in each floating dtype, -1 in each signed integer
OTHER_POISON = 85  # for integers and booleans on the second call, should the truth be -1 or true

Function = Callable[..., object]


class Wrong(Exception):
    """A function gave a wrong result; the text says how."""


@dataclass(frozen=True)
class Errors:
    """How far an output is from the truth: a relative norm, and the largest absolute error."""

    relative: float
    largest: float
    scale: float  # the largest magnitude of the truth

    def worst(self, other: Errors) -> Errors:
        """Of two comparisons, the larger of each error."""
        return Errors(
            max(self.relative, other.relative),
            max(self.largest, other.largest),
            max(self.scale, other.scale),
        )


class Poison(TorchFunctionMode):
    """Fills memory that a factory such as `torch.empty` hands out before anyone can read it.

    A dispatch mode would see more (factories called from C++), but its first use imports all of
    torch's compiler, two seconds in every child.
    """

    def __init__(self, byte: int = POISON) -> None:
        super().__init__()
        self.byte = byte

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if "empty" in getattr(func, "__name__", "") and isinstance(result, torch.Tensor):
            poison(result, self.byte)
        return result


def poison(tensor: torch.Tensor, byte: int = POISON) -> None:
    """Overwrite every element of a fresh tensor, and whatever else its storage holds.

    `byte` goes into integers, and into booleans as false unless it is POISON; a floating-point
    tensor gets NaN whatever it is.
    """
    if tensor.numel() == 0 or tensor.device.type == "meta":
        return
    if tensor.dtype is torch.bool:
        tensor.fill_(byte == POISON)
        return
    whole = tensor.dtype.is_floating_point or tensor.dtype.is_complex
    _storage(tensor).fill_(POISON if whole else byte)


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's whole storage."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def tensors_of(value: object, what: str) -> tuple[torch.Tensor, ...]:
    """A result as a tuple of tensors, at least one.

    Raises:
        Wrong: it is something else.
    """
    items = value if isinstance(value, tuple) else (value,)
    if not items:
        raise Wrong(f"{what} returned an empty tuple where a tensor was due")
    for item in items:
        if not isinstance(item, torch.Tensor):
            raise Wrong(f"{what} returned {type(item).__name__} where a tensor was due")
    return items


def expected_dtypes(case: dict, inputs: Iterable[object], refs: Sequence[torch.Tensor]) -> list:
    """The dtype that each output must have.

    It is the case's `out` where given, that of the truth for integers and booleans, and otherwise
    that of the first floating-point input.

    Raises:
        Wrong: `out` names something else than dtypes.
    """
    if "out" in case:
        out = case["out"]
        names = out if isinstance(out, list | tuple) else [out] * len(refs)
        dtypes = [getattr(torch, str(name), None) for name in names]
        if not all(isinstance(dtype, torch.dtype) for dtype in dtypes):
            raise Wrong(f"the case's `out` is {out!r}, which names no torch dtype")
        return dtypes
    floating = (
        item.dtype for item in inputs if isinstance(item, torch.Tensor) and item.is_floating_point()
    )
    first = next(floating, torch.float32)
    return [first if ref.is_floating_point() else ref.dtype for ref in refs]


def tolerance_of(
    dtype: torch.dtype, unit: str | None, overrides: dict[str, tuple[float, str]]
) -> float:
    """The relative error allowed; 0 for integers, which are compared exactly.

    Raises:
        Wrong: there is none for this dtype.
    """
    if not dtype.is_floating_point:
        return 0.0
    name = str(dtype).removeprefix("torch.")
    if unit == "tf32" and dtype is torch.float32:
        name = "tf32"
    if name in overrides:
        return overrides[name][0]
    if name not in TOLERANCES:
        raise Wrong(f"no tolerance is known for {name}; give one in TOLERANCE")
    return TOLERANCES[name]


def _first(mask: torch.Tensor) -> str:
    index = torch.nonzero(mask)[0].tolist()
    return f"{int(mask.sum())} of {mask.numel()} elements, the first at {tuple(index)}"


def compare(out: torch.Tensor, ref: torch.Tensor, dtype: torch.dtype) -> Errors:
    """Compare one output with the truth.

    Raises:
        Wrong: shape, dtype or device differ, an element was never written, is NaN, or is infinite
            where the truth is not, or an integer differs.
    """
    if out.shape != ref.shape:
        raise Wrong(f"shape {tuple(out.shape)} where the truth has {tuple(ref.shape)}")
    if out.dtype != dtype:
        raise Wrong(f"dtype {out.dtype} where {dtype} is due".replace("torch.", ""))
    if out.device.type != ref.device.type:
        raise Wrong(f"result on {out.device} where the truth is on {ref.device}")
    if out.numel() == 0:
        return Errors(0.0, 0.0, 0.0)
    if not dtype.is_floating_point:
        different = out != ref
        if different.any():
            raise Wrong(f"differs from the truth in {_first(different)}")
        return Errors(0.0, 0.0, 0.0)
    nan = torch.isnan(out)
    if nan.any():
        words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        untouched = out.contiguous().view(words[out.element_size()]) == -1
        if untouched.any():
            raise Wrong(f"never wrote {_first(untouched)}")
        raise Wrong(f"NaN in {_first(nan)}")
    exact, ref = out.double(), ref.double()
    endless = torch.isinf(ref)
    if (exact[endless] != ref[endless]).any():
        raise Wrong(f"misses an infinity of the truth in {_first(endless & (exact != ref))}")
    strays = torch.isinf(exact) & ~endless
    if strays.any():
        raise Wrong(f"infinite where the truth is finite in {_first(strays)}")
    truth = torch.where(endless, 0.0, ref)
    difference = torch.where(endless, 0.0, exact) - truth
    scale, largest = float(truth.abs().max()), float(difference.abs().max())
    if scale == 0:
        return Errors(0.0 if largest == 0 else math.inf, largest, scale)
    # Squares of float64 values beyond 1e154 or below 1e-162 would leave its range.
    norm = float(torch.linalg.vector_norm(truth / scale))
    off = float(torch.linalg.vector_norm(difference / scale))
    return Errors(off / norm, largest, scale)


def truth_of(reference: Function, inputs: Sequence[object]) -> tuple[torch.Tensor, ...]:
    """The reference's result.

    Raises:
        Wrong: it is not float64 (or integer), or holds NaN.
    """
    refs = tensors_of(reference(*inputs), "reference()")
    for ref in refs:
        if ref.is_floating_point() and ref.dtype is not torch.float64:
            raise Wrong(f"reference() returned {ref.dtype}; compute it in float64")
        if ref.is_floating_point() and torch.isnan(ref).any():
            raise Wrong("reference() returned NaN, which no kernel can be compared with")
    return refs


def copies(inputs: Sequence[object]) -> list[torch.Tensor | None]:
    """The bytes behind each input, to compare with later."""
    return [_storage(item).clone() if isinstance(item, torch.Tensor) else None for item in inputs]


def check_untouched(inputs: Sequence[object], before: Sequence[torch.Tensor | None]) -> None:
    """See that no byte behind any input has changed.

    Raises:
        Wrong: one has.
    """
    for index, (item, old) in enumerate(zip(inputs, before, strict=True)):
        if isinstance(item, torch.Tensor) and old is not None:
            now = _storage(item)
            if now.shape != old.shape or not torch.equal(now, old):
                raise Wrong(f"changed its input {index}")


def refill(inputs: Sequence[object], fresh: Sequence[object]) -> Sequence[object]:
    """Put fresh values into the very tensors of `inputs`; where that cannot be, use `fresh`."""
    for old, new in zip(inputs, fresh, strict=True):
        if not isinstance(old, torch.Tensor):
            if old != new and not (old != old and new != new):
                return fresh
        elif not isinstance(new, torch.Tensor) or old.shape != new.shape or _overlaps(old):
            return fresh
    for old, new in zip(inputs, fresh, strict=True):
        if isinstance(old, torch.Tensor):
            old.copy_(new)
    return inputs


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )


def check(
    function: Function,
    draw: Callable[[int], Sequence[object]],
    reference: Function,
    case: dict,
    *,
    ours: bool,
    tolerance: Callable[[torch.dtype], float] = lambda dtype: math.inf,
) -> tuple[Errors, torch.dtype]:
    """Call `function` twice on draws of a case and compare both results with the truth.

    `draw(round)` returns fresh inputs. `ours` turns on what a library need not do: writing every
    element of fresh memory, and returning a new result each time. `tolerance` gives the relative
    error allowed of the first floating-point output's dtype.

    Raises:
        Wrong: it is wrong in any way.
    """
    inputs, fresh = draw(0), draw(1)
    refs, later = truth_of(reference, inputs), truth_of(reference, fresh)
    dtypes = expected_dtypes(case, inputs, refs)
    if len(dtypes) != len(refs):
        raise Wrong(f"the case's `out` names {len(dtypes)} dtypes for {len(refs)} outputs")
    before = copies(inputs)
    outs = _call(function, inputs, POISON if ours else None)
    check_untouched(inputs, before)
    floating = [dtype for dtype in dtypes if dtype.is_floating_point]
    dtype = (floating or dtypes)[0]
    allowed = tolerance(dtype)
    errors = _compare_all(outs, refs, dtypes, allowed)
    kept = [out.clone() for out in outs]
    storages = {
        item.untyped_storage().data_ptr() for item in inputs if isinstance(item, torch.Tensor)
    }
    again = refill(inputs, fresh)
    before = copies(again)
    second = _call(function, again, OTHER_POISON if ours else None)
    try:
        check_untouched(again, before)
        errors = errors.worst(_compare_all(second, later, dtypes, allowed))
    except Wrong as wrong:
        raise Wrong(f"right on its first call, wrong on the second: {wrong}") from None
    for out, old in zip(outs, kept, strict=True):
        aliased = out.untyped_storage().data_ptr() in storages
        if ours and not aliased and not torch.equal(out, old):
            raise Wrong("the second call changed the result of the first: allocate a new output")
    return errors, dtype


def _call(
    function: Function, inputs: Sequence[object], byte: int | None
) -> tuple[torch.Tensor, ...]:
    if byte is not None:
        with Poison(byte):
            outs = tensors_of(function(*inputs), "it")
    else:
        outs = tensors_of(function(*inputs), "it")
    if any(out.is_cuda for out in outs):
        torch.cuda.synchronize()
    return outs


def _compare_all(
    outs: Sequence[torch.Tensor],
    refs: Sequence[torch.Tensor],
    dtypes: Sequence[torch.dtype],
    allowed: float,
) -> Errors:
    if len(outs) != len(refs):
        raise Wrong(f"returned {len(outs)} tensors where {len(refs)} are due")
    errors = Errors(0.0, 0.0, 0.0)
    for index, (out, ref, dtype) in enumerate(zip(outs, refs, dtypes, strict=True)):
        try:
            found = compare(out, ref, dtype)
            if not found.relative <= allowed:
                raise Wrong(f"relative error {found.relative:.2g} over {allowed:g}")
            errors = errors.worst(found)
        except Wrong as wrong:
            raise Wrong(f"output {index}: {wrong}" if len(outs) > 1 else str(wrong)) from None
    return errors


def library_limit(library: Errors, dtype: torch.dtype) -> float:
    """The largest absolute error allowed beside the library's: twice it, or two units in the last
    place of the largest value where that is more, since a lucky library rounds within a half."""
    return LIBRARY_MARGIN * max(library.largest, torch.finfo(dtype).eps * library.scale)

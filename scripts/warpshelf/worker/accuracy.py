"""How far an output is from the truth, and how far it may be: relative norms in float64.

They are taken in pieces, so that a comparison needs little memory. NaN passes no comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from warpshelf.contract.values import Case

# Relative error ‖out − ref‖ / ‖ref‖ by the dtype of the output, or "tf32" where cost() says so.
TOLERANCES = {"float64": 1e-12, "float32": 5e-6, "tf32": 1e-3, "float16": 1e-3, "bfloat16": 5e-3}
LIBRARY_MARGIN = 2.0  # our largest error against that of the library in the same dtype
NARROW = (torch.float32, torch.float64)  # dtypes of outputs that no wider one sums
CHUNK = 2**23  # elements compared at a time: 64 MiB in float64
WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by their bytes


class WrongResult(Exception):
    """A function gave a wrong result; the text says how."""


class Errors(NamedTuple):
    """How far an output is from the truth: a relative norm, and the largest absolute error."""

    relative: float
    largest: float
    scale: float  # the largest magnitude of the truth

    def max_with(self, other: Errors) -> Errors:
        """The larger of each error of two comparisons."""
        return Errors(*map(max, self, other))


def tensors_of(value: object, what: str) -> tuple[torch.Tensor, ...]:
    """A result as a tuple of tensors, at least one; WrongResult if it is something else."""
    items = value if isinstance(value, tuple) else (value,)
    if not items:
        raise WrongResult(f"{what} returned an empty tuple where a tensor was due")
    for item in items:
        if not isinstance(item, torch.Tensor):
            raise WrongResult(f"{what} returned {type(item).__name__} where a tensor was due")
    return items


def expected_dtypes(
    case: Case, inputs: Iterable[object], refs: Sequence[torch.Tensor]
) -> list[torch.dtype]:
    """The dtype that each output must have: the case's `out` where given, that of the truth for
    integers and booleans, else that of the first floating-point input. WrongResult if `out` names
    no dtypes."""
    if "out" in case:
        out = case["out"]
        names = out if isinstance(out, list | tuple) else [out] * len(refs)
        found = [getattr(torch, str(name), None) for name in names]
        dtypes = [dtype for dtype in found if isinstance(dtype, torch.dtype)]
        if len(dtypes) != len(names):
            raise WrongResult(f"the case's `out` is {out!r}, which names no torch dtype")
        return dtypes
    tensors = (item for item in inputs if isinstance(item, torch.Tensor))
    first = next((item.dtype for item in tensors if item.is_floating_point()), torch.float32)
    return [first if ref.is_floating_point() else ref.dtype for ref in refs]


def first_floating(dtypes: Sequence[torch.dtype]) -> torch.dtype:
    """The dtype that decides the tolerance."""
    return next((dtype for dtype in dtypes if dtype.is_floating_point), dtypes[0])


def tolerance_of(
    dtype: torch.dtype, unit: str | None, overrides: Mapping[str, tuple[float, str]]
) -> float:
    """The relative error allowed; 0 for integers. WrongResult if none is known for this dtype."""
    if not dtype.is_floating_point:
        return 0.0
    name = str(dtype).removeprefix("torch.")
    if unit == "tf32" and dtype is torch.float32:
        name = "tf32"
    if name in overrides:
        return overrides[name][0]
    if name not in TOLERANCES:
        raise WrongResult(f"no tolerance is known for {name}; give one in TOLERANCE")
    return TOLERANCES[name]


def library_limit(library: Errors, dtype: torch.dtype) -> float:
    """The largest absolute error allowed beside the library's: twice it, or two units in the last
    place of the largest value where that is more, since a lucky library rounds within a half.

    Where sums are as wide as the output, their order decides the error: a library that splits a sum
    of 256 terms in eight has a third of that of a plain loop. There it may be the tolerance of the
    largest value.
    """
    least = LIBRARY_MARGIN * torch.finfo(dtype).eps
    if dtype in NARROW:
        least = TOLERANCES[str(dtype).removeprefix("torch.")]
    return max(LIBRARY_MARGIN * library.largest, least * library.scale)


def split_chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Tensors of one shape as pieces of at most CHUNK elements, in the order of their elements."""
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), CHUNK):
        yield tuple(tensor[start : start + CHUNK] for tensor in flat)


def describe_marked(mask: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> str | None:
    """How many elements a mask marks, and the first of them; None where there is none."""
    count, first, start = 0, 0, 0
    for pieces in split_chunks(*tensors):
        marked = mask(*pieces)
        if here := int(marked.sum()):
            first = first if count else start + int(torch.nonzero(marked)[0])
            count += here
        start += marked.numel()
    if not count:
        return None
    index = torch.unravel_index(torch.tensor(first), tensors[0].shape)
    return f"{count} of {start} elements, the first at {tuple(int(place) for place in index)}"


def compare_output(out: torch.Tensor, ref: torch.Tensor, dtype: torch.dtype) -> Errors:
    """Compare one output with the truth, a piece at a time. WrongResult if shape, dtype or device
    differ, an element was never written, is NaN, or infinite where the truth is not, or an integer
    differs."""
    if out.shape != ref.shape:
        raise WrongResult(f"shape {tuple(out.shape)} where the truth has {tuple(ref.shape)}")
    if out.dtype != dtype:
        raise WrongResult(f"dtype {out.dtype} where {dtype} is due".replace("torch.", ""))
    if out.device.type != ref.device.type:
        raise WrongResult(f"result on {out.device} where the truth is on {ref.device}")
    if not dtype.is_floating_point and (different := describe_marked(torch.ne, out, ref)):
        raise WrongResult(f"differs from the truth in {different}")
    if not dtype.is_floating_point or out.numel() == 0:
        return Errors(0.0, 0.0, 0.0)
    if nan := describe_marked(torch.isnan, out):
        words = WORDS[out.element_size()]
        if untouched := describe_marked(lambda part: part.contiguous().view(words) == -1, out):
            raise WrongResult(f"never wrote {untouched}")
        raise WrongResult(f"NaN in {nan}")
    masks: dict[str, Callable[..., torch.Tensor]] = {
        "misses an infinity of the truth": lambda a, b: b.isinf() & (a.double() != b.double()),
        "infinite where the truth is finite": lambda a, b: a.double().isinf() & ~b.isinf(),
    }
    for says, mask in masks.items():
        if marked := describe_marked(mask, out, ref):
            raise WrongResult(f"{says} in {marked}")
    scale = largest = 0.0
    for truth, difference in _difference_chunks(out, ref):
        scale = max(scale, float(truth.abs().max()))
        largest = max(largest, float(difference.abs().max()))
    if scale == 0:
        return Errors(0.0 if largest == 0 else math.inf, largest, scale)
    # Squares of float64 values beyond 1e154 or below 1e-162 would leave its range.
    norms = [
        [float(torch.linalg.vector_norm(piece / scale)) for piece in pieces]
        for pieces in _difference_chunks(out, ref)
    ]
    whole, off = (math.hypot(*column) for column in zip(*norms, strict=True))
    return Errors(off / whole, largest, scale)


def _difference_chunks(
    out: torch.Tensor, ref: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Pieces of the truth, and of how a result differs, both 0 where both are infinite."""
    for piece, truth in split_chunks(out, ref):
        exact, truth = piece.double(), truth.double()
        endless = torch.isinf(truth)
        if endless.any():
            exact, truth = torch.where(endless, 0.0, exact), torch.where(endless, 0.0, truth)
        yield truth, exact - truth

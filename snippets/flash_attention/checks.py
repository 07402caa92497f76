"""What attention refuses, in one line that names the value, the limit and the mend."""

from __future__ import annotations

import math

import torch

from snippets.flash_attention.tiles import MAX_D

ALL = (-1, -1)  # a window without sides


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None,
    window: tuple[int, int] = ALL,
    who: str = "flash_attention",
) -> float:
    """The scale to use, after a look at what it is for.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, D is too large, the scale is not positive, or the
            window has not two sides of -1 and more.
    """
    named = {"q": q, "k": k, "v": v}
    for name, tensor in named.items():
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"{who}: {name} is {tensor.dtype}, none of float32, float16, "
                "bfloat16; convert it first"
            )
        if (tensor.dtype, tensor.device) != (q.dtype, q.device):
            raise TypeError(
                f"{who}: {name} is {tensor.dtype} on {tensor.device}, but q "
                f"{q.dtype} on {q.device}; bring them together"
            )
        if tensor.ndim != 4:
            raise ValueError(
                f"{who}: {name} has {tensor.ndim} dimensions; give it 4: "
                "sequence, head, position, column"
            )
    b, h_q, _, d = q.shape
    h_kv, s_kv = k.shape[1:3]
    if not 1 <= d <= MAX_D:
        raise ValueError(
            f"{who}: D = {d} is not from 1 to MAX_D = {MAX_D}; give the "
            "heads another width"
        )
    if not k.shape == v.shape == (b, h_kv, s_kv, d):
        shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in named.items())
        raise ValueError(
            f"{who}: the shapes {shapes} do not fit; make k and v alike, "
            "with the sequences and columns of q"
        )
    if h_q % max(h_kv, 1) != 0 or h_q > 0 == h_kv:
        raise ValueError(
            f"{who}: H_q = {h_q} is no multiple of H_kv = {h_kv}; let each "
            "head of k and v serve as many heads of q"
        )
    if len(window) != 2 or min(window) < -1:
        raise ValueError(
            f"{who}: window = {tuple(window)} is no pair of -1 and more; say "
            "how many keys a query sees to its left and right, -1 for all"
        )
    scale = d**-0.5 if scale is None else float(scale)
    if not 0 < scale < math.inf:
        raise ValueError(
            f"{who}: scale = {scale} is not positive and finite; for a "
            "negative one, negate q"
        )
    return scale


def check_results(
    q: torch.Tensor, rows: tuple[int, ...], who: str, **tensors: torch.Tensor | None
) -> None:
    """See that out and dout are as q, out perhaps float32, the rest float32 of `rows`.

    Raises:
        ValueError: one is not.
    """
    for name, x in tensors.items():
        wide = "out" not in name or name == "out" and x.dtype is torch.float32
        due = q.shape if "out" in name else rows, torch.float32 if wide else q.dtype
        if x is not None and (x.shape, x.dtype, x.device) != (*due, q.device):
            raise ValueError(
                f"{who}: {name} is {tuple(x.shape)} of {x.dtype} on {x.device}; with "
                f"this q it must be {tuple(due[0])} of {due[1]} on {q.device}"
            )

"""What hstu_attention refuses, each in one line that names the value and the mend."""

from __future__ import annotations

import math

import torch

from snippets.flash_attention.tiles import MAX_D, PACKED


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu: torch.Tensor,
    longest: float,
    alpha: float,
    targets: torch.Tensor | None,
    bias: torch.Tensor | None,
    window: int | None,
) -> None:
    """Raises:
    TypeError: a dtype is unknown, or dtypes or devices differ.
    ValueError: shapes do not fit, or a number is out of its range.
    """
    who = "hstu_attention"
    for name, x in {"q": q, "k": k, "v": v}.items():
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"{who}: {name} is {x.dtype}, none of float32, float16, bfloat16; "
                "convert it first"
            )
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(
                f"{who}: {name} is {x.dtype} on {x.device}, but q {q.dtype} on "
                f"{q.device}; bring them together"
            )
        if x.ndim != 3 or x.shape[:2] != q.shape[:2]:
            raise ValueError(
                f"{who}: {name} is {tuple(x.shape)} and q {tuple(q.shape)}; give all "
                "as (position, head, column), with the same positions and heads"
            )
        if not 1 <= x.shape[2] <= MAX_D:
            raise ValueError(
                f"{who}: {name} has {x.shape[2]} columns, not 1 to {MAX_D}; give "
                "the heads another width"
            )
        if len(x) > PACKED.value:
            raise ValueError(f"{who}: {name} has {len(x)} rows, over 2**30; split it")
    if q.shape != k.shape:
        raise ValueError(
            f"{who}: q is {tuple(q.shape)} and k {tuple(k.shape)}; make them alike"
        )
    lists = {"cu": (cu, len(cu) if cu.ndim else 0)}
    if targets is not None:
        lists["targets"] = (targets, len(cu) - 1 if cu.ndim else 0)
    for name, (x, size) in lists.items():
        if (x.dtype, x.device) != (torch.int32, q.device):
            raise TypeError(
                f"{who}: {name} is {x.dtype} on {x.device}; it must be torch.int32 on "
                f"{q.device}"
            )
        if tuple(x.shape) != (size,) or len(cu) == 0:
            raise ValueError(
                f"{who}: {name} is {tuple(x.shape)}; give cu one element more than "
                "there are sequences, and targets one for each"
            )
    if cu.is_cpu:
        starts = cu.tolist()
        if starts[0] != 0 or starts[-1] != len(q) or starts != sorted(starts):
            raise ValueError(
                f"{who}: cu does not rise from 0 to {len(q)}, the rows there are; give "
                "it where each sequence begins, and the end"
            )
        if targets is not None and bool(((targets < 0) | (targets > cu.diff())).any()):
            raise ValueError(
                f"{who}: targets are not from 0 to the length of their sequence; give "
                "how many of its last rows are targets"
            )
    if bias is not None:
        if (bias.dtype, bias.device) != (torch.float32, q.device):
            raise TypeError(
                f"{who}: bias is {bias.dtype} on {bias.device}; it must be "
                f"torch.float32 on {q.device}"
            )
        if bias.ndim != 2 or len(bias) != q.shape[1] or not 1 <= bias.shape[1] < 2**24:
            raise ValueError(
                f"{who}: bias is {tuple(bias.shape)}; give {q.shape[1]} rows, one a "
                "head, and a column a distance, under 2**24"
            )
        if bias.requires_grad:
            raise ValueError(
                f"{who}: bias requires a gradient, and these kernels have none of it; "
                "detach it"
            )
    if not (0 < longest <= PACKED.value and math.isfinite(alpha)):
        raise ValueError(
            f"{who}: longest = {longest} and alpha = {alpha}; give a positive number "
            "up to 2**30 and a finite one"
        )
    if window is not None and window < 0:
        raise ValueError(
            f"{who}: window = {window} is negative; give the rows to see, None for all"
        )

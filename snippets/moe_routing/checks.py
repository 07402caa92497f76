"""What the kernels of routing ask of their tensors, each refusal in one line."""

from __future__ import annotations

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_E = 1024  # experts that a program holds, a row at a time


def check_place(name: str, x: torch.Tensor) -> None:
    """See that a kernel can read x."""
    if x.is_meta or x.device.type == "cpu" and torch.cuda.is_available():
        raise TypeError(f"moe_routing: {name} is on {x.device}; move it to the GPU")


def check_beside(x: torch.Tensor, due: dict[str, tuple], *given) -> None:
    """See that what is given beside x has its due shape, on one device, or is None."""
    for (name, shape), one in zip(due.items(), given, strict=True):
        if one is None:
            continue
        whole = name in ("experts", "slots", "sources")
        told = one.shape, one.device, one.is_floating_point()
        if told != (shape, x.device, not whole):
            raise ValueError(
                f"moe_routing: {name} is {tuple(one.shape)} of {one.dtype} on "
                f"{one.device}; give {shape} of {'int32' if whole else 'float32'} on "
                f"{x.device}"
            )


def check_rows(name: str, x: torch.Tensor) -> None:
    """See that rows to move are a matrix of a known dtype."""
    if x.dtype not in DTYPES:
        raise TypeError(
            f"moe_routing: {name} is {x.dtype}, none of float32, float16, bfloat16; "
            "convert it first"
        )
    if x.ndim != 2:
        raise ValueError(f"moe_routing: {name} has {x.ndim} dimensions; give it 2")
    check_place(name, x)

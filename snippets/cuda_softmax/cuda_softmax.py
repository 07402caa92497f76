"""A softmax in CUDA C++ as an operator of torch: who has a row, and where it is kept.

Shapes  forward: x (..., N) -> y (..., N); backward: y, dy (..., N) -> dx (..., N),
        where dx = y * (dy - sum(y * dy)) by rows; float32, float16, bfloat16 or
        float64, N >= 0; any strides, rows with elements apart being copied
Bytes   forward: x read once, y written once; backward: y and dy read once, dx written
        once
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are float32
Raises  TypeError for other dtypes or two; ValueError for no dimension, other shapes, a
        row that a way does not hold, over 2**31 rows, or a way that is not in WAYS
Source  cuda-softmax, online-softmax, oneflow-softmax
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
TYPES = {
    torch.float32: "float",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.float64: "double",
}
WAYS = ("naive", "tree", "warps", "blocks", "streamed")
THREADS = {"warps": 32, "blocks": 1024}  # that may share a row
HELD = {"warps": 16, "blocks": 4}  # packs of all operands that a thread may hold


def _rows(x: torch.Tensor) -> torch.Tensor:
    """View (..., N) as (M, N) with elements of a row side by side; else a copy."""
    n = x.shape[-1]
    rows = x.reshape(x.numel() // n if n else 0, n)
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


def _wide(*matrices: torch.Tensor) -> bool:
    """Whether rows of all are whole packs of 16 bytes, and begin on 16."""
    return all(
        x.data_ptr() % 16 == 0
        and x.stride(0) * x.element_size() % 16 == 0
        and x.shape[1] * x.element_size() % 16 == 0
        for x in matrices
    )


# --8<-- [start:choice]
def most_of(way: str, operands: int) -> int:
    """How many packs of a row a thread of a way may hold, of one operand or of two."""
    return min(HELD[way] // operands, 8)


def packs_of(way: str, packs: int, operands: int = 1) -> int | None:
    """How many packs a thread of a way holds of rows of so many; None: too few."""
    fits = (p for p in (1, 2, 4, 8) if packs <= p * THREADS[way])
    held = next(fits, None)
    return held if held and held <= most_of(way, operands) else None


def best(packs: int, operands: int = 1) -> str:
    """The way for rows of so many packs: the fewest threads that hold one."""
    held = (way for way in THREADS if packs_of(way, packs, operands))
    return next(held, "streamed")
# --8<-- [end:choice]


# --8<-- [start:run]
def run(way: str | None, *tensors: torch.Tensor) -> torch.Tensor:
    """Softmax of x, or its gradient of y and dy, by a way of WAYS or the best one."""
    if way is not None and way not in WAYS:
        raise ValueError(f"cuda_softmax: no way {way!r}; there are {', '.join(WAYS)}")
    for x in tensors:
        if x.dtype not in TYPES:
            raise TypeError(
                f"cuda_softmax: dtype {x.dtype} is none of float32, float16, bfloat16, "
                "float64; convert first"
            )
        if x.ndim == 0:
            raise ValueError("cuda_softmax: a tensor of 0 dimensions has no row")
        if (x.dtype, x.shape) != (tensors[0].dtype, tensors[0].shape):
            raise ValueError(
                f"cuda_softmax: y is {tensors[0].dtype} {tuple(tensors[0].shape)} and "
                f"dy {x.dtype} {tuple(x.shape)}; they must be alike"
            )
    sources = [_rows(x) for x in tensors]
    m, n = sources[0].shape
    out = torch.empty(m, n, dtype=tensors[0].dtype, device=tensors[0].device)
    if not out.numel():
        return out.view(tensors[0].shape)
    width = 16 // out.element_size() if _wide(*sources, out) else 1
    packs = -(-n // width)
    way = way or best(packs, len(sources))
    kind = f"{len(sources) > 1:d}, {TYPES[out.dtype]}"
    if way in THREADS:
        held = packs_of(way, packs, len(sources))
        if held is None:
            most = most_of(way, len(sources)) * THREADS[way] * width
            raise ValueError(
                f"cuda_softmax: {way!r} holds {most} elements, not N = {n}; "
                "use streamed"
            )
        kernel = f"softmax_held<{kind}, {width}, {held}, {way == 'warps':d}>"
        threads = 256 if way == "warps" else -(-packs // (32 * held)) * 32
        blocks = -(-m // 8) if way == "warps" else m
    elif way == "streamed":
        kernel, blocks = f"softmax_streamed<{kind}, {width}>", m
        threads = min(-(-packs // 32) * 32, 1024)
    else:
        kernel = f"softmax_{way}<{kind}>"
        blocks, threads = (-(-m // 128), 128) if way == "naive" else (m, 256)
    if blocks > cuda.MAX_GRID[0]:
        raise ValueError(f"cuda_softmax: {m} rows are over {cuda.MAX_GRID[0]} blocks")
    a, b = sources[0], sources[-1]
    sizes = (np.int64(one) for one in (m, n, a.stride(0), b.stride(0)))
    KERNELS.launch(kernel, blocks, threads, a, b, out, *sizes)
    return out.view(tensors[0].shape)
# --8<-- [end:run]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::cuda_softmax", mutates_args=())
def operator(x: torch.Tensor) -> torch.Tensor:
    return run(None, x)


@torch.library.custom_op("warpshelf::cuda_softmax_backward", mutates_args=())
def gradient(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return run(None, y, dy)


@operator.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@gradient.register_fake
def _(y: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return torch.empty(y.shape, dtype=y.dtype, device=y.device)


def remember(ctx, inputs: tuple, output: torch.Tensor) -> None:
    ctx.save_for_backward(output)


def backward(ctx, dy: torch.Tensor) -> torch.Tensor:
    (y,) = ctx.saved_tensors
    return gradient(y, dy)


operator.register_autograd(backward, setup_context=remember)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension of x; differentiable once."""
    return operator(x)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Which way rows take, and every way against torch in float64."""
    draw = torch.Generator(device).manual_seed(0)
    print("bfloat16, N: " + ", ".join(
        f"{n} {best(n // 8)}" for n in (256, 2048, 4096, 32768, 65536)
    ))  # fmt: skip
    for m, n in ((5, 96), (3, 1000)):
        x = torch.randn(m, n, generator=draw, device=device) * 4
        y = torch.softmax(x.double(), -1)
        for way in WAYS:
            error = (run(way, x).double() - y).norm() / y.norm()
            print(f"{m} x {n} {way:9} {'right' if error < 5e-6 else 'wrong'}")
    x.requires_grad_()
    softmax(x)[:, 0].sum().backward()
    sums = x.grad.sum(-1).abs().max()
    print(f"rows of a gradient add up to 0: {'yes' if sums < 1e-6 else 'no'}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

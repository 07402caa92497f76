"""STREAM's copy, scale, add and triad: how close a kernel comes to memory's bandwidth.

Shapes  a, b (n,) float32 -> c (n,) float32; s a number; b only of add and triad;
        fill: c = s, of a's length; read: () the largest element, NaN passed over, of a
        read s times
Bytes   inputs read once, c written once: 8 * n for copy and scale, 12 * n for add and
        triad; 4 * n written by fill, 4 * n read by read
Error   bit for bit what torch gives, but triad, which may fuse its product and its sum,
        within 5e-6 of float64
Raises  ValueError if an input is not contiguous, nothing is read, or bulk copies are to
        read or fill; KeyError for another operation
Source  stream-benchmark, gpu-benches, cudadma
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
OPS = {"copy": "Copy", "scale": "Scale", "add": "Add", "triad": "Triad"}
ALONE = {"fill": "Fill"}  # writes, and reads nothing


@cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


def _output(a: torch.Tensor) -> torch.Tensor:
    """A new vector that starts where `a` does between 16-byte boundaries, so that both
    can move 16 bytes at a time."""
    offset = a.data_ptr() % 16 // 4
    return torch.empty(offset + a.numel(), dtype=a.dtype, device=a.device)[offset:]


def _run(kernel: str, op: str, a, b, s, tile: int, waves: int, block: int, shared=0):
    for name, x in (("a", a), ("b", a if b is None else b)):
        if not x.is_contiguous():
            raise ValueError(
                f"stream: {name} has stride {x.stride(0)}, it must be 1; pass "
                f"{name}.contiguous()"
            )
    if kernel == "stream_bulk" and op not in OPS:
        raise ValueError(f"stream: bulk copies do no {op}; float4 does")
    n = a.numel()
    grid = min(-(-n // tile), waves * _multiprocessors(a.device))
    if op == "read":
        return _read(kernel == "stream_float4", a, min(grid, 2**16), int(s))
    c = _output(a)
    if n:
        arguments = (a, a if b is None else b, c, np.float32(s), np.int64(n))
        name = f"{kernel}<{(OPS | ALONE)[op]}>"
        KERNELS.launch(name, grid, block, *arguments, shared=shared)
    return c


def _read(wide: bool, a: torch.Tensor, grid: int, rounds: int) -> torch.Tensor:
    """The largest element of a, of which each block leaves its own."""
    if not a.numel():
        raise ValueError("stream: a has no elements, and of those none is the largest")
    tops = torch.empty(grid, dtype=a.dtype, device=a.device)
    if rounds < 1 or (rounds > 1 and not wide):
        raise ValueError(f"stream: a cannot be read {rounds} times; float4 reads often")
    arguments = (a, tops, np.int64(a.numel()), np.int32(rounds))
    KERNELS.launch(f"stream_read<{wide:d}>", grid, 256, *arguments)
    return tops.amax()


# --8<-- [start:launch]
def floats(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """One element a step; 8 blocks of 256 threads fill a multiprocessor."""
    return _run("stream_float", op, a, b, s, tile=256, waves=8, block=256)


def float4s(op: str, a: torch.Tensor, b: torch.Tensor | None, s: float) -> torch.Tensor:
    """16 bytes an access, 4 loads in flight; a block a tile, spread by the hardware."""
    return _run("stream_float4", op, a, b, s, tile=4096, waves=4096, block=256)


def bulk_copies(
    op: str, a: torch.Tensor, b: torch.Tensor | None, s: float
) -> torch.Tensor:
    """Two resident blocks a multiprocessor, each with a ring of 12 tiles of 8 KiB."""
    ring = 12 * 8192
    return _run("stream_bulk", op, a, b, s, tile=2048, waves=2, block=160, shared=ring)
# --8<-- [end:launch]


def demo(device: str) -> None:
    """The four operations on 1009 whole numbers, against what they should be."""
    a = torch.arange(1009, dtype=torch.float32, device=device)
    b = a.flip(0).contiguous()
    for op, formula, second, expected in (
        ("copy", "a", None, a),
        ("scale", "3 a", None, 3 * a),
        ("add", "a + b", b, a + b),
        ("triad", "a + 3 b", b, a + 3 * b),
    ):
        c = float4s(op, a, second, 3.0)
        values = ", ".join(f"{v:.0f}" for v in c[:3].tolist())
        wrong = int((c != expected).sum())
        print(f"{op:5}  c = {formula:7} = {values}, ...  wrong elements: {wrong}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

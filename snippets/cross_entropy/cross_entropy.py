"""Cross-entropy of a projection, loss and gradients, without a matrix of all logits.

Shapes  hidden (..., D), weight (V, D), target (...) int64 or int32 -> loss, lse (...)
        float32, where x = hidden weight^T, lse = log(sum(exp(x))) by rows and
        loss = lse - x[target]; 0 where the target is ignore_index. hidden and weight
        float32, float16 or bfloat16, alike; any strides
FLOPs   forward 2 T V D with T rows; with both gradients 6 T V D as everyone counts it,
        8 T V D as "tiles" work it out, which make each logit twice
Bytes   never in memory: T * V logits, 16 or 32 bits each. In their place, backward: one
        slice of SLICE columns, and float32 sums of hidden's gradient
Error   relative to float64: 5e-6 float32, which is multiplied as such, 1e-3 float16,
        5e-3 bfloat16; sums and logits of "tiles" are float32, those of "logits" as wide
        as the inputs. The same inputs give the same bits on the same GPU
Raises  ValueError, TypeError for shapes, dtypes, devices and reductions other than
        these; for a target neither in 0 ... V - 1 nor ignore_index, ValueError on a
        CPU, and a device-side assertion on a GPU, for which nobody waits
Source  cut-cross-entropy, liger-kernel, online-softmax
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
LN2 = tl.constexpr(0.6931471805599453)


# --8<-- [start:tile]
@triton.jit
def load_tile(source, stride, row, col, rows, cols, ROWS: tl.constexpr,
              COLS: tl.constexpr, TMA: tl.constexpr):
    """Rows and columns of a matrix from (row, col) on; zeros past its end."""
    if TMA:
        tile = source.load([row, col])
    else:
        r = row + tl.arange(0, ROWS)
        c = col + tl.arange(0, COLS)
        # In 64 bits: a row's offset may pass 2**31.
        start = source + (r.to(tl.int64) * stride[0])[:, None]
        inside = (r < rows)[:, None] & (c < cols)[None, :]
        tile = tl.load(start + (c.to(tl.int64) * stride[1])[None, :], mask=inside,
                       other=0.0)
    return tile


@triton.jit
def project(hidden, weight, h_stride, w_stride, row, col, t, v, d, M: tl.constexpr,
            N: tl.constexpr, K: tl.constexpr, TMA: tl.constexpr):
    """Logits of M tokens and N words, float32; they stay in registers."""
    x = tl.zeros([M, N], tl.float32)
    for k in tl.range(0, d, K):
        h = load_tile(hidden, h_stride, row, k, t, d, M, K, TMA)
        w = load_tile(weight, w_stride, col, k, v, d, N, K, TMA)
        x = tl.dot(h, w.T, x, input_precision="ieee")
    return x


@triton.jit
def place(index, rows, cols, GROUP: tl.constexpr):
    """Row and column of a program's tile: GROUP rows of tiles go through all columns
    before the next begin, so that L2 keeps those rows while the columns stream by."""
    first = index // (GROUP * cols) * GROUP
    here = tl.minimum(rows - first, GROUP)
    index = index % (GROUP * cols)
    return first + index % here, index // here
# --8<-- [end:tile]


# --8<-- [start:forward]
@triton.jit
def cross_entropy_forward(top_out, total_out, picked, hidden, weight, target, h_stride,
                          w_stride, t, v, d, M: tl.constexpr, N: tl.constexpr,
                          K: tl.constexpr, GROUP: tl.constexpr, TMA: tl.constexpr):
    """Of M tokens and N words: maximum, sum of exponentials and the target's logit."""
    tile, part = place(tl.program_id(0), tl.cdiv(t, M), tl.cdiv(v, N), GROUP)
    x = project(hidden, weight, h_stride, w_stride, tile * M, part * N, t, v, d, M, N,
                K, TMA)
    row = tile * M + tl.arange(0, M)
    col = tl.arange(0, N)
    # Most tiles lie inside and hold no target: a branch for all of one, in place of two
    # selections a logit.
    left = tl.minimum(v - part * N, N)
    if left < N:
        x = tl.where((col < left)[None, :], x, float("-inf"))
    wanted = tl.load(target + row, mask=row < t, other=-1) - part * N
    inside = (wanted >= 0) & (wanted < left)
    if tl.max(inside.to(tl.int32), axis=0) > 0:
        hit = col[None, :] == wanted.to(tl.int32)[:, None]
        mine = tl.sum(tl.where(hit, x, 0.0), axis=1)
        tl.store(picked + row, mine, mask=inside)  # by one program alone
    top = tl.max(x, axis=1)
    # A row of -inf alone subtracts 0: -inf - -inf would be NaN.
    shift = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp2((x - shift[:, None]) * LOG2E), axis=1)
    at = tl.cast(part, tl.int64) * t + row
    tl.store(top_out + at, top, mask=row < t)
    tl.store(total_out + at, total, mask=row < t)
# --8<-- [end:forward]


# --8<-- [start:merge]
@triton.jit
def cross_entropy_merge(loss, lse, top_out, rest_out, picked, tops, totals, target, t,
                        parts, ignore_index, ROWS: tl.constexpr, PARTS: tl.constexpr):
    """Join the parts of each row, in their order: no lock, and always the same bits."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = row < t
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for first in tl.range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        at = part.to(tl.int64)[:, None] * t + row[None, :]
        inside = (part < parts)[:, None] & here[None, :]
        next_top = tl.load(tops + at, mask=inside, other=float("-inf"))
        next_total = tl.load(totals + at, mask=inside, other=0.0)
        higher = tl.maximum(top, tl.max(next_top, axis=0))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp2((top - shift) * LOG2E)
        fade = tl.exp2((next_top - shift[None, :]) * LOG2E)
        total += tl.sum(next_total * fade, axis=0)
        top = higher
    rest = tl.log2(total)
    mine = tl.load(picked + row, mask=here, other=0.0)
    due = (top - mine) + rest * LN2  # lse - mine would cancel where both are large
    wanted = tl.load(target + row, mask=here, other=ignore_index)
    tl.store(loss + row, tl.where(wanted == ignore_index, 0.0, due), mask=here)
    tl.store(lse + row, top + rest * LN2, mask=here)
    tl.store(top_out + row, top, mask=here)
    tl.store(rest_out + row, rest, mask=here)
# --8<-- [end:merge]


# --8<-- [start:tiles]
class Tile(NamedTuple):
    """M rows and N columns of a tile, K of what is summed at a time, and resources."""

    m: int
    n: int
    k: int
    warps: int
    stages: int


# 128 x 256 float32 sums are 128 registers for each of 256 threads.
TILES = {
    "descriptors": Tile(128, 256, 64, 8, 4),  # 48 KiB a stage, of 227
    "pointers": Tile(128, 256, 32, 8, 3),  # 24 KiB a stage, of 99 or 163
    "scattered": Tile(64, 64, 32, 8, 2),  # rows off 16 bytes: an address an element
    "exact": Tile(64, 64, 16, 8, 1),  # float32, which no matrix instruction multiplies
}
GROUP = 16  # rows of tiles: of 4096 columns in 16 bits 16 MiB, which L2 keeps


def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch
# --8<-- [end:tiles]


# --8<-- [start:descriptors]
def describable(tensor: torch.Tensor) -> bool:
    """Whether the copy engine takes it: columns adjacent, rows 16 bytes apart."""
    size = tensor.element_size()
    step = tensor.stride(0) if tensor.shape[0] > 1 else 16
    return (
        (tensor.stride(1) == 1 or tensor.shape[1] == 1)
        and 0 < step < 2**38
        and step * size % 16 == 0
        and tensor.data_ptr() % 16 == 0
    )


def described(tensor: torch.Tensor, rows: int, cols: int) -> TensorDescriptor:
    """A matrix as the copy engine sees it: in tiles of `rows` and `cols`."""
    step = tensor.stride(0) if tensor.shape[0] > 1 else 16
    shape = list(tensor.shape)
    return TensorDescriptor(tensor, shape, [max(step, 1), 1], [rows, cols])


def by_descriptor(wanted: bool | None, *matrices: torch.Tensor) -> bool:
    """Whether to read so: if it can be, and unless told otherwise if it pays."""
    if wanted is None:
        wanted = architecture() in (90, 100, 103)
    half = matrices[0].dtype is not torch.float32
    return wanted and half and all(map(describable, matrices))
# --8<-- [end:descriptors]


class Rows(NamedTuple):
    """What forward gives for each row, float32: p = exp2((x - top) * LOG2E - rest)."""

    loss: torch.Tensor
    lse: torch.Tensor
    top: torch.Tensor
    rest: torch.Tensor


def constants(tile: Tile, tma: bool) -> dict:
    """What a launch of a tile is compiled for."""
    return {
        "M": tile.m, "N": tile.n, "K": tile.k, "GROUP": GROUP, "TMA": tma,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip


def tile_of(tma: bool, *matrices: torch.Tensor) -> Tile:
    """The tile for reading these, by descriptor or not."""
    if matrices[0].dtype is torch.float32:
        return TILES["exact"]
    if tma:
        return TILES["descriptors"]
    return TILES["pointers" if all(map(describable, matrices)) else "scattered"]


# --8<-- [start:launch]
def merged(
    picked: torch.Tensor,
    tops: torch.Tensor,
    totals: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
) -> Rows:
    """Results of rows from (P, T) maxima and sums of their parts."""
    parts, t = tops.shape
    single = {"dtype": torch.float32, "device": tops.device}
    out = Rows(*(torch.empty(t, **single) for _ in Rows._fields))
    # One warp: each lane has all parts of its rows, and nothing crosses between lanes.
    cross_entropy_merge[(triton.cdiv(t, 128),)](
        *out, picked, tops, totals, target, t, parts, ignore_index, ROWS=128, PARTS=8,
        num_warps=1,
    )
    return out


def forward(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    descriptors: bool | None = None,
) -> Rows:
    """Losses of rows, logits in registers; `descriptors`: how tiles are read."""
    t, v, d = checked(hidden, weight, target, ignore_index)
    if not (t and v and d):
        return trivial(hidden, v, target, ignore_index)
    tma = by_descriptor(descriptors, hidden, weight)
    tile = tile_of(tma, hidden, weight)
    parts = triton.cdiv(v, tile.n)
    target = target.contiguous()
    single = {"dtype": torch.float32, "device": hidden.device}
    tops, totals = torch.empty((2, parts, t), **single)
    # A target out of range is in no tile, so its loss is NaN. It is never an address.
    picked = torch.full((t,), float("nan"), **single)
    h, w = hidden, weight
    if tma:
        h, w = described(h, tile.m, tile.k), described(w, tile.n, tile.k)
    with torch.cuda.device_of(hidden):
        cross_entropy_forward[(triton.cdiv(t, tile.m) * parts,)](
            tops, totals, picked, h, w, target, hidden.stride(), weight.stride(),
            t, v, d, **constants(tile, tma),
        )  # fmt: skip
        return merged(picked, tops, totals, target, ignore_index)
# --8<-- [end:launch]


def trivial(
    hidden: torch.Tensor, v: int, target: torch.Tensor, ignore_index: int
) -> Rows:
    """Rows where there is nothing to add up: all logits are 0, or there are none."""
    zero = torch.zeros(target.shape, dtype=torch.float32, device=hidden.device)
    rest = zero + math.log2(v) if v else zero - math.inf
    lse = rest * LN2.value
    return Rows(lse.masked_fill(target == ignore_index, 0), lse, zero, rest)


def checked(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int,
    **rows: torch.Tensor | None,
) -> tuple[int, int, int]:
    """T, V and D, after a look at all that they belong to, and at a number a row.

    Raises:
        TypeError, ValueError: see `check_forms` and `check_targets`; or of `rows`.
    """
    check_forms(hidden, weight, target)
    check_targets(target, len(weight), ignore_index)
    for name, x in rows.items():
        if x is not None and (x.shape, x.device) != (target.shape, target.device):
            raise ValueError(
                f"cross_entropy: {name} is {tuple(x.shape)} on {x.device}; make it "
                f"{tuple(target.shape)} on {target.device}, as target is"
            )
    return len(hidden), len(weight), hidden.shape[1]


def check_forms(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor
) -> None:
    """See that dtypes, devices and shapes fit.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit.
    """
    for name, x in {"hidden": hidden, "weight": weight}.items():
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"cross_entropy: {name} is {x.dtype}, none of float32, float16, "
                "bfloat16; convert it first"
            )
        if x.ndim != 2:
            raise ValueError(
                f"cross_entropy: {name} has {x.ndim} dimensions; give it 2, rows and "
                "columns"
            )
    if target.dtype not in (torch.int64, torch.int32):
        raise TypeError(
            f"cross_entropy: target is {target.dtype}, neither int64 nor int32; "
            "convert it first"
        )
    if weight.dtype != hidden.dtype:
        raise TypeError(
            f"cross_entropy: hidden is {hidden.dtype}, but weight {weight.dtype}; "
            "convert one"
        )
    if not hidden.device == weight.device == target.device:
        raise TypeError(
            f"cross_entropy: hidden is on {hidden.device}, weight on {weight.device}, "
            f"target on {target.device}; bring them together"
        )
    t, d = hidden.shape
    if weight.shape[1] != d or target.shape != (t,):
        shapes = f"hidden {(t, d)}, weight {tuple(weight.shape)}"
        raise ValueError(
            f"cross_entropy: the shapes {shapes}, target {tuple(target.shape)} do not "
            "fit; make them (T, D), (V, D), (T,)"
        )


def check_targets(target: torch.Tensor, v: int, ignore_index: int) -> None:
    """See that each is a word or ignored; a GPU is told to, and nobody waits for it.

    Raises:
        ValueError: one on a CPU is not.
    """
    legal = ((target >= 0) & (target < v)) | (target == ignore_index)
    if target.device.type == "cpu":
        if not legal.all():
            at = int(legal.int().argmin())
            raise ValueError(
                f"cross_entropy: target {int(target[at])} of row {at} is not in 0 ... "
                f"{v - 1}, nor ignore_index = {ignore_index}; correct it"
            )
    elif target.device.type == "cuda":
        torch._assert_async(legal.all(), "cross_entropy: a target is out of range")


def demo(device: str) -> None:
    """Losses and gradients against float64, logits of 1e4, and bytes never written."""
    from snippets.cross_entropy import gradients  # which imports this file

    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(70, 48, generator=generator).to(device, torch.float16)
    weight = torch.randn(1000, 48, generator=generator).to(device, torch.float16)
    target = torch.randint(1000, (70,), generator=generator).to(device)
    target[::7] = -100
    leaves = [x.clone().requires_grad_() for x in (hidden, weight)]
    loss = gradients.cross_entropy(*leaves, target)
    loss.backward()
    exact = [x.double().requires_grad_() for x in (hidden, weight)]
    truth = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, target)
    truth.backward()
    found, due = float(loss.detach()), float(truth.detach())
    print(f"mean loss {found:.4f}, by float64 {due:.4f}")
    for name, x, due in zip(("hidden", "weight"), leaves, exact, strict=True):
        close = bool((x.grad.double() - due.grad).norm() <= 1e-3 * due.grad.norm())
        print(f"gradient of {name} within 1e-3 of float64: {close}")
    rows = torch.tensor([[1e4], [-1e4]], device=device)
    words = torch.tensor([[1.0], [0.9999], [-1.0]], device=device)
    loss, lse = gradients.losses(rows, words, torch.tensor([1, 2], device=device))
    shown = ", ".join(f"{x:.4f}" for x in [*loss.tolist(), *lse.tolist()])
    print(f"logits of 1e4: losses and lse {shown}")
    t, v, d, b = 8192, 128256, 4096, 2
    print(f"{t} tokens of {d}, {v} words, {b} bytes an element:")
    print(f"  all logits        {t * v * b:13,} bytes, never written")
    tiles = triton.cdiv(v, TILES["pointers"].n)
    print(f"  parts of rows     {8 * t * tiles:13,} bytes, forward")
    print(f"  a slice, backward {t * gradients.SLICE * b:13,} bytes")
    print(f"  float32 sums      {t * d * 4:13,} bytes, backward")
    try:
        gradients.cross_entropy(hidden.cpu(), weight.cpu(), target.cpu() + 1000)
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

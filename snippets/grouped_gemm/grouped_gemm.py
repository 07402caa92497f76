"""Grouped matrix product: every expert's jagged rows by its own matrix in one launch.

Shapes  x (M, K), w (E, K, N), ends (E,) int32 -> y (M, N): rows ends[e - 1] to ends[e]
        of x by w[e]. ends ascends, up to M at most; rows past the last end give 0.
        weight_gradient: x (M, K), dy (M, N), ends -> dw (E, K, N), x' dy of each
        group, 0 for an empty one. float16 or bfloat16; any strides; any side may be 0
FLOPs   2 M N K, and as many for each gradient; what pads a group to its tile is extra
Bytes   x and y once, w of each group that has rows once; dw is written whole
Error   relative to float64: 1e-3 float16, 5e-3 bfloat16; sums are float32, rounded
        once. The same inputs, the same bits
Raises  ValueError, TypeError for shapes, dtypes and devices but these
Source  megablocks, triton-matmul
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets.grouped_gemm.tiles import (
    FEW,
    GROUP,
    LARGE,
    NAIVE,
    NARROW,
    POINTED,
    SMALL,
    Tile,
    architecture,
    checked,
    multiprocessors,
    place,
    store,
    tile_of,
    wide,
)
from snippets.grouped_gemm.weights import weight_gradient


# --8<-- [start:naive]
@triton.jit
def grouped_naive(y, x, w, ends, x_stride, w_stride, m, n, k, experts,
                  SIDE: tl.constexpr, DEPTH: tl.constexpr):
    """One tile of one group for each program, found by walking along the groups."""
    tiles_n = tl.cdiv(n, SIDE)
    index = tl.program_id(0) // tiles_n
    e = 0
    start = 0
    end = 0
    before = 0  # tiles of the groups already passed
    after = 0
    while (after <= index) & (e <= experts):
        start = end
        # After all experts the rows past the last end, which are 0.
        end = tl.load(ends + e, mask=e < experts, other=m)
        before = after
        after += tl.cdiv(end - start, SIDE)
        e += 1
    if index < after:
        e -= 1
        row = start + (index - before) * SIDE + tl.arange(0, SIDE)
        col = tl.program_id(0) % tiles_n * SIDE + tl.arange(0, SIDE)
        acc = tl.zeros([SIDE, SIDE], tl.float32)
        if e < experts:
            own = w + e.to(tl.int64) * w_stride[0]
            for at in tl.range(0, k, DEPTH):
                deep = at + tl.arange(0, DEPTH)
                left = tl.load(place(x, row, x_stride[0], deep, x_stride[1]),
                               mask=(row < end)[:, None] & (deep < k)[None, :],
                               other=0.0)
                right = tl.load(place(own, deep, w_stride[1], col, w_stride[2]),
                                mask=(deep < k)[:, None] & (col < n)[None, :],
                                other=0.0)
                acc = tl.dot(left, right, acc)
        tl.store(place(y, row, n, col, 1), acc.to(y.dtype.element_ty),
                 mask=(row < end)[:, None] & (col < n)[None, :])
# --8<-- [end:naive]


# --8<-- [start:schedule]
@triton.jit
def groups(ends, ends_stride, m, experts, BM: tl.constexpr, E: tl.constexpr):
    """Of each group its first row, its end, and how many tiles of rows end with it.

    One group more than there are experts takes the rows past the last end.
    """
    e = tl.arange(0, E)
    at = e.to(tl.int64) * ends_stride
    end = tl.load(ends + at, mask=e < experts, other=m)
    start = tl.load(ends + at - ends_stride, mask=(e > 0) & (e <= experts), other=0)
    start = tl.where(e > experts, m, start)
    return start, end, tl.cumsum(tl.cdiv(end - start, BM), 0)


@triton.jit
def group_of(index, tiles_n, start, end, passed, E: tl.constexpr):
    """The group of a tile, its rows, and the number of the tile in it.

    No walk: every lane asks its own groups, and sums say which it is.
    """
    done = passed * tiles_n <= index
    e = tl.sum(done.to(tl.int32), 0)
    here = tl.arange(0, E) == e
    first = tl.max(tl.where(done, passed, 0), 0) * tiles_n
    return (e, tl.sum(tl.where(here, start, 0), 0), tl.sum(tl.where(here, end, 0), 0),
            index - first)
# --8<-- [end:schedule]


# --8<-- [start:persistent]
@triton.jit
def grouped_persistent(y, x, w, ends, x_stride, w_stride, ends_stride, m, n, k, experts,
                       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                       GROUP: tl.constexpr, EVEN: tl.constexpr, E: tl.constexpr):
    start, end, passed = groups(ends, ends_stride, m, experts, BM, E)
    tiles_n = tl.cdiv(n, BN)
    tiles = tl.max(passed, 0) * tiles_n
    for index in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        e, first, last, rest = group_of(index, tiles_n, start, end, passed, E)
        i, j = tile_of(rest, tl.cdiv(last - first, BM), tiles_n, GROUP)
        row = first + i * BM + tl.arange(0, BM)
        col = j * BN + tl.arange(0, BN)
        deep = tl.arange(0, BK)
        # Rows past the last end have no matrix: no step, and the sums stay 0.
        depth = tl.where(e < experts, k, 0)
        own = w + e.to(tl.int64) * w_stride[0]
        acc = tl.zeros([BM, BN], tl.float32)
        for slab in tl.range(0, depth, BK):  # num_stages - 1 loads run ahead
            left_mask = (row < last)[:, None]
            right_mask = (col < n)[None, :]
            if not EVEN:
                left_mask = left_mask & (deep < k - slab)[None, :]
                right_mask = right_mask & (deep < k - slab)[:, None]
            # One address walks along k; a tile of them would fill the registers.
            far = slab.to(tl.int64)
            at = place(x + far * x_stride[1], row, x_stride[0], deep, x_stride[1])
            left = tl.load(at, mask=left_mask, other=0.0)
            at = place(own + far * w_stride[1], deep, w_stride[1], col, w_stride[2])
            right = tl.load(at, mask=right_mask, other=0.0)
            acc = tl.dot(left, right, acc)
        store(y, acc, first + i * BM, j * BN, last, n)
# --8<-- [end:persistent]


# --8<-- [start:descriptors]
@triton.jit
def grouped_described(y, x, w, ends, ends_stride, m, n, k, experts,
                      W_ALONG_K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr, GROUP: tl.constexpr, E: tl.constexpr):
    start, end, passed = groups(ends, ends_stride, m, experts, BM, E)
    tiles_n = tl.cdiv(n, BN)
    tiles = tl.max(passed, 0) * tiles_n
    for index in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        e, first, last, rest = group_of(index, tiles_n, start, end, passed, E)
        i, j = tile_of(rest, tl.cdiv(last - first, BM), tiles_n, GROUP)
        row, col = first + i * BM, j * BN
        depth = tl.where(e < experts, k, 0)
        acc = tl.zeros([BM, BN], tl.float32)
        for slab in tl.range(0, depth, BK):
            # A tile may bring rows of the next group along: they are not stored.
            left = x.load([row, slab])
            if W_ALONG_K:
                right = w.load([e, col, slab]).reshape(BN, BK).T
            else:
                right = w.load([e, slab, col]).reshape(BK, BN)
            acc = tl.dot(left, right, acc)
        store(y, acc, row, col, last, n)
# --8<-- [end:descriptors]


# --8<-- [start:launch]
def product(
    x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor, how: str | None = None
) -> torch.Tensor:
    """y, by "naive", "persistent" or "descriptors"; None for what suits.

    What the copy engine cannot take, "descriptors" leaves to "persistent".
    """
    checked(x, ends, w=w)
    (m, k), (experts, _, n) = x.shape, w.shape
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    if k == 0 or experts == 0:
        return y.zero_()
    with torch.cuda.device_of(x):
        if how == "naive":
            side = NAIVE.m
            bound = (m // side + min(experts + 1, m)) * triton.cdiv(n, side)
            grouped_naive[(bound,)](
                y, x, w, ends.contiguous(), x.stride(), w.stride(), m, n, k, experts,
                SIDE=side, DEPTH=NAIVE.k, num_warps=NAIVE.warps,
                num_stages=NAIVE.stages,
            )  # fmt: skip
            return y
        if how is None:
            how = "descriptors" if architecture() in (90, 100, 103) else "persistent"
        whole = n % 16 == 0 and k % 16 == 0 and wide(x, w)
        tile = LARGE if whole and m > FEW * experts else SMALL
        boxes = described(x, w, tile) if how == "descriptors" else None
        if boxes is None and tile is not SMALL:
            tile = POINTED
        if boxes is None and not whole:
            tile = NARROW
        # How the rows are shared out only the GPU knows: no more tiles than these.
        bound = (m // tile.m + min(experts + 1, m)) * triton.cdiv(n, tile.n)
        programs = min(bound, multiprocessors(x.device) * tile.blocks)
        told = {"BM": tile.m, "BN": tile.n, "BK": tile.k, "GROUP": GROUP,
                "E": triton.next_power_of_2(experts + 1),
                "num_warps": tile.warps, "num_stages": tile.stages}  # fmt: skip
        sides = ends.stride(0), m, n, k, experts
        if boxes is not None:
            grouped_described[(programs,)](
                y, *boxes, ends, *sides, W_ALONG_K=w.stride(2) != 1, maxnreg=128, **told
            )  # so that two fit an SM of sm_100 too
        else:
            grouped_persistent[(programs,)](
                y, x, w, ends, x.stride(), w.stride(), *sides, EVEN=k % tile.k == 0,
                **told,
            )
    return y


def described(
    x: torch.Tensor, w: torch.Tensor, tile: Tile
) -> tuple[TensorDescriptor, TensorDescriptor] | None:
    """x and w as the copy engine sees them, or None where it cannot.

    It wants neighbours along the last side, and all else on multiples of 16 bytes.
    """
    turned = w if w.stride(2) == 1 else w.mT
    for tensor in (x, turned):
        *steps, next_to = tensor.stride()
        if next_to != 1 or tensor.data_ptr() % 16:
            return None
        if any(step <= 0 or step * tensor.element_size() % 16 for step in steps):
            return None
        if any(step * tensor.element_size() >= 2**40 for step in steps):
            return None
    box = (1, tile.k, tile.n) if turned is w else (1, tile.n, tile.k)
    return (
        TensorDescriptor(x, list(x.shape), list(x.stride()), [tile.m, tile.k]),
        TensorDescriptor(turned, list(turned.shape), list(turned.stride()), list(box)),
    )
# --8<-- [end:launch]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::grouped_gemm", mutates_args=())
def operator(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return product(x, w, ends)


@torch.library.custom_op("warpshelf::grouped_gemm_weights", mutates_args=())
def weights(x: torch.Tensor, dy: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    return weight_gradient(x, dy, ends)


@operator.register_fake
def _(x, w, ends):
    return x.new_empty((x.shape[0], w.shape[2]))


@weights.register_fake
def _(x, dy, ends):
    return x.new_empty((ends.shape[0], x.shape[1], dy.shape[1]))


def remember(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


def backward(ctx, dy):
    x, w, ends = ctx.saved_tensors
    # By the same kernel: a transpose is other strides, and nothing moves.
    dx = operator(dy, w.mT, ends) if ctx.needs_input_grad[0] else None
    dw = weights(x, dy, ends) if ctx.needs_input_grad[1] else None
    return dx, dw, None


def weights_backward(ctx, ddw):
    x, dy, ends = ctx.saved_tensors
    dx = operator(dy, ddw.mT, ends) if ctx.needs_input_grad[0] else None
    ddy = operator(x, ddw, ends) if ctx.needs_input_grad[1] else None
    return dx, ddy, None


operator.register_autograd(backward, setup_context=remember)
weights.register_autograd(weights_backward, setup_context=remember)


def grouped_gemm(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows of group e by w[e], with gradients of x and w."""
    checked(x, ends, w=w)
    return operator(x, w, ends)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Skewed and empty groups against float64, their gradients, and a refusal."""
    generator = torch.Generator().manual_seed(0)
    sizes = [70, 0, 1, 40]
    ends = torch.tensor(sizes).cumsum(0).to(device, torch.int32)
    shapes = (111, 72), (4, 72, 40), (111, 40)
    x, w, dy = (
        torch.randn(shape, generator=generator).to(device, torch.bfloat16)
        for shape in shapes
    )
    leaves = [x.requires_grad_(), w.requires_grad_()]
    y = grouped_gemm(x, w, ends)
    grads = torch.autograd.grad(y, leaves, dy)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    parts = exact[0].split(sizes)
    truth = torch.cat([part @ own for part, own in zip(parts, exact[1], strict=True)])
    due = torch.autograd.grad(truth, exact, dy.double())
    print("rows of the groups:", sizes)
    for name, got, want in zip(
        ("y", "dx", "dw"), (y, *grads), (truth, *due), strict=True
    ):
        close = bool((got.double() - want).norm() <= 5e-3 * want.norm())
        print(f"{name} {tuple(got.shape)} within 5e-3 of float64: {close}")
    print("dw of the empty group is 0:", bool((grads[1][1] == 0).all()))
    try:
        grouped_gemm(x, w, ends.long())
    except TypeError as error:
        print(str(error).split(" on ")[0])


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

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

from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

DTYPES = (torch.float16, torch.bfloat16)
MAX_E = 1024  # groups whose ends a program holds in registers
STRIP = tl.constexpr(64)  # columns of sums that are turned round and stored at a time


# --8<-- [start:place]
@triton.jit
def place(base, row, row_stride, col, col_stride):
    """Addresses of a tile, in 64 bits: a row's offset may pass 2**31."""
    rows = row.to(tl.int64)[:, None] * row_stride
    return base + rows + (col.to(tl.int64) * col_stride)[None, :]


@triton.jit
def store(y, acc, first_row, first_col, end, n):
    """Write sums to rows up to `end`, a strip of columns at a time."""
    ROWS: tl.constexpr = acc.shape[0]
    COLS: tl.constexpr = acc.shape[1]
    if COLS > STRIP:  # what is turned round for a strip needs few registers
        HALF: tl.constexpr = COLS // 2
        left, right = acc.reshape(ROWS, 2, HALF).permute(0, 2, 1).split()
        store(y, left, first_row, first_col, end, n)
        store(y, right, first_row, first_col + HALF, end, n)
    else:
        row = first_row + tl.arange(0, ROWS)
        col = first_col + tl.arange(0, COLS)
        inside = (row < end)[:, None] & (col < n)[None, :]
        tl.store(place(y, row, n, col, 1), acc.to(y.dtype.element_ty), mask=inside)
# --8<-- [end:place]


# --8<-- [start:naive]
@triton.jit
def grouped_naive(y, x, w, ends, x_stride, w_stride, ends_stride, m, n, k, experts,
                  BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile of one group for each program, found by walking along the groups."""
    tiles_n = tl.cdiv(n, BN)
    index = tl.program_id(0) // tiles_n
    e = 0
    start = 0
    end = 0
    before = 0  # tiles of the groups already passed
    after = 0
    while (after <= index) & (e <= experts):
        start = end
        # After all experts the rows past the last end, which are 0.
        end = tl.load(ends + e.to(tl.int64) * ends_stride, mask=e < experts, other=m)
        before = after
        after += tl.cdiv(end - start, BM)
        e += 1
    if index < after:
        e -= 1
        row = start + (index - before) * BM + tl.arange(0, BM)
        col = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
        acc = tl.zeros([BM, BN], tl.float32)
        if e < experts:
            own = w + e.to(tl.int64) * w_stride[0]
            for at in tl.range(0, k, BK):
                deep = at + tl.arange(0, BK)
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


@triton.jit
def tile_of(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile by its number: down GROUP rows, then the next column."""
    first = index // (GROUP * tiles_n) * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)  # the last band may have fewer
    rest = index % (GROUP * tiles_n)
    return first + rest % rows, rest // rows
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


# --8<-- [start:weights]
@triton.jit
def grouped_weights(dw, x, dy, ends, x_stride, dy_stride, ends_stride, n, k, experts,
                    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
                    GROUP: tl.constexpr):
    """dw[e] = x' dy over the rows of group e: here the depth is what is jagged."""
    tiles_k, tiles_n = tl.cdiv(k, BM), tl.cdiv(n, BN)
    each = tiles_k * tiles_n
    for index in tl.range(tl.program_id(0), each * experts, tl.num_programs(0)):
        e = (index // each).to(tl.int64)
        last = tl.load(ends + e * ends_stride)
        first = tl.load(ends + (e - 1) * ends_stride, mask=e > 0, other=0)
        i, j = tile_of(index % each, tiles_k, tiles_n, GROUP)
        row = i * BM + tl.arange(0, BM)
        col = j * BN + tl.arange(0, BN)
        deep = tl.arange(0, BK)
        acc = tl.zeros([BM, BN], tl.float32)
        for slab in tl.range(first, last, BK):
            here = deep < last - slab
            far = slab.to(tl.int64)
            # Both: a row of the next group may hold an infinity, and 0 * inf is NaN.
            at = place(x + far * x_stride[0], row, x_stride[1], deep, x_stride[0])
            left = tl.load(at, mask=here[None, :] & (row < k)[:, None], other=0.0)
            at = place(dy + far * dy_stride[0], deep, dy_stride[0], col, dy_stride[1])
            right = tl.load(at, mask=here[:, None] & (col < n)[None, :], other=0.0)
            acc = tl.dot(left, right, acc)
        own = dw + e * k * n
        store(own, acc, i * BM, j * BN, k, n)
# --8<-- [end:weights]


# --8<-- [start:launch]
class Tile(NamedTuple):
    """A program's tile of sums, the depth of a slab, and how it is launched."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    blocks: int  # programs an SM has room for


# Full groups are bound by arithmetic: 128 x 128 sums in 64 registers a thread. Groups
# of few rows are bound by reading w, where a tile of 64 rows wastes less, and two
# programs an SM keep more of w in flight.
LARGE, SMALL = Tile(128, 128, 64, 8, 3, 1), Tile(64, 128, 64, 8, 3, 2)
NARROW = Tile(64, 128, 32, 8, 3, 2)  # where every element has its own address
NAIVE = Tile(64, 64, 32, 4, 1, 1)
GROUP = 8  # rows of tiles that share the columns of w while they are in the L2
FEW = 64  # rows of a mean group up to which tiles are small


def multiprocessors(device: torch.device) -> int:
    """How many a GPU has; 2 on a CPU, so that programs of small cases walk on."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch


def wide(*tensors: torch.Tensor) -> bool:
    """Whether all can be moved 16 bytes at a time, as the compiler sees it.

    It looks whether 16 divides. Elsewhere each element has an address of its own, and
    those of a large tile would not fit into registers.
    """
    for tensor in tensors:
        steps = [step for step in tensor.stride() if step != 1]
        if len(steps) == tensor.ndim or any(step % 16 for step in steps):
            return False
        if tensor.data_ptr() % 16 or any(side % 16 for side in tensor.shape[-1:]):
            return False
    return True


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
        if how is None:
            how = "descriptors" if architecture() in (90, 100, 103) else "persistent"
        whole = n % 16 == 0 and k % 16 == 0 and wide(x, w)
        tile = LARGE if whole and m > FEW * experts else SMALL
        if how == "naive":
            tile = NAIVE
        boxes = described(x, w, tile) if how == "descriptors" else None
        if how != "naive" and boxes is None and not whole:
            tile = NARROW
        # How the rows are shared out only the GPU knows: no more tiles than these.
        bound = (m // tile.m + min(experts + 1, m)) * triton.cdiv(n, tile.n)
        told = {"BM": tile.m, "BN": tile.n, "BK": tile.k,
                "num_warps": tile.warps, "num_stages": tile.stages}  # fmt: skip
        sides = ends.stride(0), m, n, k, experts
        if how == "naive":
            grouped_naive[(bound,)](
                y, x, w, ends, x.stride(), w.stride(), *sides, **told
            )
            return y
        told |= {"GROUP": GROUP, "E": triton.next_power_of_2(experts + 1)}
        programs = min(bound, multiprocessors(x.device) * tile.blocks)
        if boxes is not None:
            grouped_described[(programs,)](
                y, *boxes, ends, *sides, W_ALONG_K=w.stride(2) != 1, **told
            )
        else:
            grouped_persistent[(programs,)](
                y, x, w, ends, x.stride(), w.stride(), *sides, EVEN=k % tile.k == 0,
                **told,
            )
    return y


def weight_gradient(
    x: torch.Tensor, dy: torch.Tensor, ends: torch.Tensor
) -> torch.Tensor:
    """dw (E, K, N), x' dy of each group."""
    checked(x, ends, dy=dy)
    k, n, experts = x.shape[1], dy.shape[1], ends.shape[0]
    dw = torch.empty((experts, k, n), dtype=x.dtype, device=x.device)
    if dw.numel() == 0:
        return dw
    with torch.cuda.device_of(x):
        tile = LARGE if wide(x, dy) else NARROW
        tiles = triton.cdiv(k, tile.m) * triton.cdiv(n, tile.n) * experts
        programs = min(tiles, multiprocessors(x.device) * tile.blocks)
        grouped_weights[(programs,)](
            dw, x, dy, ends, x.stride(), dy.stride(), ends.stride(0), n, k, experts,
            BM=tile.m, BN=tile.n, BK=tile.k, GROUP=GROUP, num_warps=tile.warps,
            num_stages=tile.stages,
        )  # fmt: skip
    return dw


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


def checked(
    x: torch.Tensor,
    ends: torch.Tensor,
    w: torch.Tensor | None = None,
    dy: torch.Tensor | None = None,
) -> None:
    """See that the operands fit. That ends ascend to M at most only the GPU knows.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, or there are too many groups.
    """
    others = {"w": (w, 3), "dy": (dy, 2)}
    named = {"x": (x, 2), **{k: v for k, v in others.items() if v[0] is not None}}
    for name, (tensor, dimensions) in named.items():
        if tensor.dtype not in DTYPES:
            raise TypeError(
                f"grouped_gemm: {name} is {tensor.dtype}, none of float16, bfloat16; "
                "convert it first"
            )
        if (tensor.dtype, tensor.device) != (x.dtype, x.device):
            raise TypeError(
                f"grouped_gemm: {name} is {tensor.dtype} on {tensor.device}, but x "
                f"{x.dtype} on {x.device}; bring them together"
            )
        if tensor.ndim != dimensions:
            raise ValueError(
                f"grouped_gemm: {name} has {tensor.ndim} dimensions; give it "
                f"{dimensions}"
            )
    if ends.dtype != torch.int32 or ends.device != x.device:
        raise TypeError(
            f"grouped_gemm: ends is {ends.dtype} on {ends.device}; give int32 on "
            f"{x.device}"
        )
    if ends.ndim != 1:
        raise ValueError(f"grouped_gemm: ends has {ends.ndim} dimensions; give it 1")
    if x.device.type == "cpu" and torch.cuda.is_available():
        raise TypeError("grouped_gemm: x is on the CPU, which has a GPU; move it there")
    (m, k), experts = x.shape, ends.shape[0]
    if experts > MAX_E - 1:
        raise ValueError(
            f"grouped_gemm: {experts} groups exceed {MAX_E - 1}; split the call"
        )
    if m > 2**31 - 2**16:
        raise ValueError(f"grouped_gemm: x has {m} rows, over 2**31 - 2**16; split it")
    if w is not None and w.shape[:2] != (experts, k):
        raise ValueError(
            f"grouped_gemm: w is {tuple(w.shape)}; give it {experts} matrices of {k} "
            "rows, as ends and x say"
        )
    if dy is not None and dy.shape[0] != m:
        raise ValueError(
            f"grouped_gemm: dy has {dy.shape[0]} rows, but x {m}; make them alike"
        )


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

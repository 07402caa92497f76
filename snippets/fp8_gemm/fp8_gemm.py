"""FP8 products with a scale per tensor or per 128 values, and sums promoted every 128.

Shapes  quantise: x (M, K) bfloat16, float16 or float32, any strides -> q (M, K) e4m3,
        contiguous, and float32 scales, one for a "tensor" (), for each 128 along a
        "row" (M, K/128) or for each 128 x 128 "block" (M/128, K/128), rounded up, with
        x about q * scale. fp8_gemm: a (M, K) and b (N, K), both e4m3, any strides,
        with scales of two tensors, or of a's rows and b's blocks -> a b^T (M, N)
        bfloat16. Any side may be 0
FLOPs   2 M N K
Bytes   quantise: x read, q and scales written once; "tensor" reads x twice. fp8_gemm:
        a, b and both scales read once, c written once
Error   quantise is exact to the bit: scale = max |x| / 448, or the power of two above,
        and q = x * (1 / scale) rounded to nearest even; zeros keep their sign.
        fp8_gemm: 5e-3 relative to float64 on what q and scales stand for; a sum has no
        more than 128 products before float32 takes it over. The two together: within
        |x| |ew| + |ex| |w| + |ex| |ew|, where an e is |x| / 16 + scale / 1024
Raises  ValueError, TypeError for shapes, scales, dtypes and devices but these
Source  deepseek-v3, deepgemm, fp8-formats
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

from snippets.fp8_gemm import hopper
from snippets.fp8_gemm.quantise import (
    DEEP,
    E4M3,
    architecture,
    known,
    operand,
    quantised,
    together,
)
from snippets.fp8_gemm.tensor_core import emulated


# --8<-- [start:finish]
@triton.jit
def place(base, row, row_stride, col, col_stride):
    """Addresses of a tile, in 64 bits: a row's offset may pass 2**31."""
    rows = row.to(tl.int64)[:, None] * row_stride
    return base + rows + (col.to(tl.int64) * col_stride)[None, :]


@triton.jit
def finish(c, acc, first_row, first_col, m, n):
    row = first_row + tl.arange(0, acc.shape[0])
    col = first_col + tl.arange(0, acc.shape[1])
    inside = (row < m)[:, None] & (col < n)[None, :]
    tl.store(place(c, row, n, col, 1), acc.to(c.dtype.element_ty), mask=inside)
# --8<-- [end:finish]


# --8<-- [start:naive]
@triton.jit
def fp8_gemm_naive(c, a, b, a_scale, b_scale, a_stride, b_stride, a_scale_stride,
                   b_scale_stride, sizes, SIDE: tl.constexpr):
    """A program for each tile; two scales of tensors, or one of each row and block."""
    m, n, k = sizes
    across = tl.cdiv(n, SIDE)
    i, j = tl.program_id(0) // across, tl.program_id(0) % across
    row = i * SIDE + tl.arange(0, SIDE)
    col = j * SIDE + tl.arange(0, SIDE)
    acc = tl.zeros([SIDE, SIDE], tl.float32)
    for start in tl.range(0, k, DEEP):
        deep = start + tl.arange(0, DEEP)
        left = tl.load(place(a, row, a_stride[0], deep, a_stride[1]),
                       mask=(row < m)[:, None] & (deep < k)[None, :], other=0.0)
        right = tl.load(place(b, col, b_stride[0], deep, b_stride[1]),
                        mask=(col < n)[:, None] & (deep < k)[None, :], other=0.0)
        part = tl.dot(operand(left), operand(right).T)  # from 0: 128 products
        if a_scale_stride is not None:
            slab = start // DEEP
            at = row.to(tl.int64) * a_scale_stride[0] + slab * a_scale_stride[1]
            part *= tl.load(a_scale + at, mask=row < m, other=0.0)[:, None]
            at = col // DEEP * b_scale_stride[0] + slab * b_scale_stride[1]
            part *= tl.load(b_scale + at, mask=col < n, other=0.0)[None, :]
        acc += part
    if a_scale_stride is None:
        acc *= tl.load(a_scale) * tl.load(b_scale)
    finish(c, acc, i * SIDE, j * SIDE, m, n)
# --8<-- [end:naive]


# --8<-- [start:order]
@triton.jit
def tile_of(index, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Row and column of a tile by its number: down GROUP rows, then the next column."""
    first = index // (GROUP * tiles_n) * GROUP
    rows = tl.minimum(tiles_m - first, GROUP)  # the last group may have fewer
    rest = index % (GROUP * tiles_n)
    return first + rest % rows, rest // rows
# --8<-- [end:order]


# --8<-- [start:promote]
@triton.jit
def promoted(acc, left, right, row, first_col, j, a_scale, b_scale, a_scale_stride,
             b_scale_stride, m, BLOCKED: tl.constexpr, PROMOTE: tl.constexpr):
    """acc and the scaled product of slab j, 128 deep."""
    left, right = operand(left), operand(right)
    if BLOCKED:
        at = a_scale + row.to(tl.int64) * a_scale_stride[0] + j * a_scale_stride[1]
        scale = tl.load(at, mask=row < m, other=0.0)
        # A tile lies within one block of b, so this is one number.
        at = b_scale + first_col // DEEP * b_scale_stride[0] + j * b_scale_stride[1]
        scale *= tl.load(at)
        # From 0, so that the tensor core's sum ends here, and one FMA does both.
        acc += tl.dot(left, right.T) * scale[:, None]
    elif PROMOTE:
        acc += tl.dot(left, right.T)
    else:
        acc = tl.dot(left, right.T, acc)
    return acc
# --8<-- [end:promote]


# --8<-- [start:grouped]
@triton.jit
def fp8_gemm_grouped(c, a, b, a_scale, b_scale, a_stride, b_stride, a_scale_stride,
                     b_scale_stride, m, n, k, BM: tl.constexpr, BN: tl.constexpr,
                     GROUP: tl.constexpr, EVEN: tl.constexpr, BLOCKED: tl.constexpr,
                     PROMOTE: tl.constexpr):
    i, j = tile_of(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    row = i * BM + tl.arange(0, BM)
    col = j * BN + tl.arange(0, BN)
    deep = tl.arange(0, DEEP)
    a_at = place(a, row, a_stride[0], deep, a_stride[1])
    b_at = place(b, col, b_stride[0], deep, b_stride[1])
    acc = tl.zeros([BM, BN], tl.float32)
    for start in tl.range(0, k, DEEP):  # num_stages - 1 slabs are on their way
        a_mask, b_mask = (row < m)[:, None], (col < n)[:, None]
        if not EVEN:
            a_mask = a_mask & (deep < k - start)[None, :]
            b_mask = b_mask & (deep < k - start)[None, :]
        # The walk along k moves one address for all; what is added to it stays.
        far = tl.cast(start, tl.int64)
        left = tl.load(a_at + far * a_stride[1], mask=a_mask, other=0.0)
        right = tl.load(b_at + far * b_stride[1], mask=b_mask, other=0.0)
        acc = promoted(acc, left, right, row, j * BN, start // DEEP, a_scale, b_scale,
                       a_scale_stride, b_scale_stride, m, BLOCKED, PROMOTE)
    if not BLOCKED:
        acc *= tl.load(a_scale) * tl.load(b_scale)
    finish(c, acc, i * BM, j * BN, m, n)
# --8<-- [end:grouped]


# --8<-- [start:described]
@triton.jit
def fp8_gemm_described(c, a, b, a_scale, b_scale, a_scale_stride, b_scale_stride, m, n,
                       k, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr,
                       BLOCKED: tl.constexpr, PROMOTE: tl.constexpr):
    i, j = tile_of(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    row = i * BM + tl.arange(0, BM)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in tl.range(0, k, DEEP):
        left = a.load([i * BM, start])
        right = b.load([j * BN, start])
        acc = promoted(acc, left, right, row, j * BN, start // DEEP, a_scale, b_scale,
                       a_scale_stride, b_scale_stride, m, BLOCKED, PROMOTE)
    if not BLOCKED:
        acc *= tl.load(a_scale) * tl.load(b_scale)
    finish(c, acc, i * BM, j * BN, m, n)
# --8<-- [end:described]


# --8<-- [start:tiles]
class Tile(NamedTuple):
    """A program's tile of c, and how it is launched; slabs are 128 deep."""

    m: int
    n: int  # at most 128, and a divisor of it: one block of b's scales
    warps: int
    stages: int


TILES = (Tile(128, 128, 8, 4), Tile(64, 64, 4, 5))
NAIVE = Tile(64, 64, 4, 1)
# Where a block has 99 KiB, or decodes: float16 operands pass through registers.
SMALL = (Tile(64, 64, 4, 3),)
GROUP = 8  # rows of tiles: 132 programs then share about 8 + 17 panels, not 2 + 64
LARGE = 256  # rows and columns of c from which its tiles are of 128 x 128
RIDGE = 100  # multiply-adds that an SM could do while the L2 brings it a byte
SHORT = (89, 90)  # architectures whose tensor cores keep few bits of a sum of e4m3
ROOMY = (90, 100, 103)  # architectures with 227 KiB, and a copy engine


def multiprocessors(device: torch.device) -> int:
    """How many a GPU has; 2 on a CPU."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def chosen(m: int, n: int, sms: int, arch: int) -> Tile:
    """The tile whose waves take least: its operations, and what it asks of the L2."""

    def price(tile: Tile) -> int:
        waves = triton.cdiv(triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n), sms)
        return waves * (tile.m * tile.n + RIDGE * (tile.m + tile.n))

    return min(TILES if arch in ROOMY else SMALL, key=price)
# --8<-- [end:tiles]


def describable(x: torch.Tensor) -> bool:
    """Whether the copy engine takes it: neighbours along K, rows and start on 16."""
    step, next_to = x.stride()
    return (
        x.numel() > 0
        and (next_to == 1 or x.shape[1] == 1)
        and (x.shape[0] == 1 or 0 < step < 2**40 and step % 16 == 0)
        and x.data_ptr() % 16 == 0
    )


def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
    """A matrix as the copy engine sees it, in tiles of 128 columns."""
    pitch = x.stride(0) if x.shape[0] > 1 else (x.shape[1] + 15) // 16 * 16
    return TensorDescriptor(x, list(x.shape), [pitch, 1], [rows, DEEP.value])


# --8<-- [start:launch]
def product(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    promote: bool = True,
    how: str | None = None,
) -> torch.Tensor:
    """a b^T, scaled, in bfloat16.

    `promote=False` leaves a sum of two scaled tensors in the tensor core, whole. `how`
    is "naive", "pointers", "descriptors" or "specialised"; None for what suits. What
    the copy engine cannot take, the last two leave to "pointers"; what is not promoted,
    of odd depth or not for sm_90, the last leaves to "descriptors".
    """
    blocked = checked(a, b, a_scale, b_scale, promote)
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=torch.bfloat16, device=a.device)
    if k == 0:
        return c.zero_()
    if c.numel() == 0:
        return c
    with torch.cuda.device_of(a):
        arch = architecture()
        taken = arch in ROOMY and describable(a) and describable(b)
        paired = arch == 90 and promote and k % 2 == 0  # as the copy engine moves them
        if how is None:
            how = "specialised" if min(m, n) >= LARGE else "descriptors"
        if how == "specialised" and not paired:
            how = "descriptors"
        if how in ("descriptors", "specialised") and not taken:
            how = "pointers"
        if how == "specialised":
            hopper.launch(c, a, b, a_scale, b_scale, multiprocessors(a.device))
            return c
        strides = (a_scale.stride(), b_scale.stride()) if blocked else (None, None)
        given = known(a, arch), known(b, arch), a_scale, b_scale, a.stride(), b.stride()
        if how == "naive":
            side = NAIVE.m
            fp8_gemm_naive[(triton.cdiv(m, side) * triton.cdiv(n, side),)](
                c, *given, *strides, (m, n, k), SIDE=side, num_warps=NAIVE.warps,
                num_stages=NAIVE.stages,
            )  # fmt: skip
            return c
        tile = chosen(m, n, multiprocessors(a.device), arch)
        grid = (triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n),)
        constants = {
            "BM": tile.m, "BN": tile.n, "GROUP": GROUP, "BLOCKED": blocked,
            "PROMOTE": promote and arch in SHORT, "num_warps": tile.warps,
            "num_stages": tile.stages,
        }  # fmt: skip
        if how == "pointers":
            constants["EVEN"] = k % DEEP.value == 0
            fp8_gemm_grouped[grid](c, *given, *strides, m, n, k, **constants)
        else:
            fp8_gemm_described[grid](
                c, described(a, tile.m), described(b, tile.n), a_scale, b_scale,
                *strides, m, n, k, **constants,
            )  # fmt: skip
    return c
# --8<-- [end:launch]


def checked(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    promote: bool,
) -> bool:
    """Whether scales are those of rows and blocks; see that all fit.

    Raises:
        TypeError: a dtype or device is not what it must be.
        ValueError: shapes do not fit.
    """
    for name, x, dtype in (
        ("a", a, E4M3), ("b", b, E4M3),
        ("a_scale", a_scale, torch.float32), ("b_scale", b_scale, torch.float32),
    ):  # fmt: skip
        if x.dtype != dtype:
            raise TypeError(f"fp8_gemm: {name} is {x.dtype}, not {dtype}; convert it")
        together(name, x, a)
    for name, x in (("a", a), ("b", b)):
        if x.ndim != 2:
            raise ValueError(f"fp8_gemm: {name} has {x.ndim} dimensions; give it 2")
    (m, k), (n, depth) = a.shape, b.shape
    if k != depth:
        raise ValueError(
            f"fp8_gemm: a is {m} x {k} and b {n} x {depth}; give b as (N, K), K alike"
        )
    if a_scale.ndim == b_scale.ndim == 0:
        return False
    wide = triton.cdiv(k, DEEP.value)
    due = {"a_scale": (m, wide), "b_scale": (triton.cdiv(n, DEEP.value), wide)}
    for name, x in (("a_scale", a_scale), ("b_scale", b_scale)):
        if tuple(x.shape) != due[name]:
            raise ValueError(
                f"fp8_gemm: {name} is {tuple(x.shape)}, not {due[name]}; or give two "
                "scales of whole tensors, ()"
            )
    if not promote:
        raise ValueError(
            "fp8_gemm: promote is False, but scales of rows and blocks end each sum "
            "after 128 products; leave it True"
        )
    return True


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::fp8_gemm", mutates_args=())
def fp8_gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    a_scale: torch.Tensor,
    b_scale: torch.Tensor,
    promote: bool = True,
) -> torch.Tensor:
    return product(a, b, a_scale, b_scale, promote)


@torch.library.custom_op("warpshelf::fp8_quantise", mutates_args=())
def quantise(
    x: torch.Tensor, share: str, power: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    return quantised(x, share, power)


@fp8_gemm.register_fake
def _(a, b, a_scale, b_scale, promote=True):
    return a.new_empty((a.shape[0], b.shape[0]), dtype=torch.bfloat16)


@quantise.register_fake
def _(x, share, power=False):
    m, k = x.shape
    q = x.new_empty((m, k), dtype=E4M3)
    wide, tall = (k + 127) // 128, (m + 127) // 128
    if share == "row":
        return q, x.new_empty((wide, m), dtype=torch.float32).mT
    shape = (tall, wide) if share == "block" else ()
    return q, x.new_empty(shape, dtype=torch.float32)


def linear(x: torch.Tensor, w: torch.Tensor, power: bool = False) -> torch.Tensor:
    """x w^T through e4m3 as DeepSeek-V3 does it; weights would be kept quantised."""
    a, a_scale = quantise(x, "row", power)
    b, b_scale = quantise(w, "block", power)
    return fp8_gemm(a, b, a_scale, b_scale)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """What quantising costs, by its scales, and what promotion saves."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(48, 640, generator=generator)
    x[5, 7] = 1e5  # an outlier
    w = torch.randn(160, 640, generator=generator)
    truth = x.double() @ w.double().mT
    x, w = x.to(device), w.to(device)

    def off(c: torch.Tensor, due: torch.Tensor) -> float:
        return float((c.double().cpu() - due).norm() / due.norm())

    print("x w^T, 48 x 160 of depth 640, with an outlier of 100,000 in x")
    for shares in (("tensor", "tensor"), ("row", "block")):
        for power in (False, True):
            a, a_scale = quantise(x, shares[0], power)
            b, b_scale = quantise(w, shares[1], power)
            c = fp8_gemm(a, b, a_scale, b_scale)
            rest = [i for i in range(48) if i != 5]
            name = f"{shares[0]} by {shares[1]}{', powers of two' if power else ''}"
            print(f"  {name}: off by {off(c[rest], truth[rest]):.1%} in other rows")
    odd = torch.tensor([[0.0, -0.0, float("nan"), float("inf"), 448.0, 1.0]])
    q, scale = quantise(odd.to(device), "row")
    print("e4m3 of 0, -0, nan, inf, 448, 1:", q.float().flatten().tolist())
    print("their scale:", float(scale))
    print("emulated: sums of 14 bits, K products of numbers from 0 to 1 in e4m3")
    for k in (128, 1024, 4096):
        drawn = torch.rand(2, 16, k, generator=generator).to(E4M3)
        due = drawn[0].double() @ drawn[1].double().mT
        worst = [
            float(((emulated(*drawn, every) - due).abs() / due).max())
            for every in (None, 128)
        ]
        print(f"  K = {k}: left alone {worst[0]:.2%}, promoted {worst[1]:.2%}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

"""Products with weights of 3 or 4 bits, a few of them kept in 16 bits beside.

Shapes  x (..., K), weights (N, K) as `Packed` -> y (..., N); all float16 or all
        bfloat16. Any strides of x, any M, N >= 0; a scale and a whole zero point for
        each group of weights along K; any count of outliers
Bytes   x and y of 2; of N K weights BITS / 8 each, 4 a group, 4 an outlier, 4 a row
FLOPs   2 M N K
Error   relative to float64 on the weights as dequantised, each rounded once: 1e-3
        float16, 5e-3 bfloat16. Sums are float32, in an order of their own each time
        the same
Raises  ValueError, TypeError for shapes, groups, dtypes, devices and layouts but these.
        An outlier whose column lies beyond K counts for nothing
Source  task-circuit-quantization, gptq, marlin
"""

from __future__ import annotations

from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

from snippets.quant_matmul.packing import (
    SLAB,
    WIDE,
    WORDS,
    Packed,
    check_columns,
    dequantise,
    quantise,
)

DTYPES = (torch.float16, torch.bfloat16)
FEW = 64  # rows of x up to which weights are unpacked on their way


# --8<-- [start:unpack]
@triton.jit
def weights_of(words, step, SHIFT: tl.constexpr, BITS: tl.constexpr, like):
    """Weights of one code of each number, of the type that `like` points to.

    A pair of weights takes four instructions: a shift, a mask that also puts the code
    in the low bits of a float whose step is 1 (1024 + code, or 128 + code), an addition
    and a product. `step` is a scale and a zero point, as one number of 32 bits.
    """
    HALF: tl.constexpr = like.dtype.element_ty == tl.float16
    KIND: tl.constexpr = "f16x2" if HALF else "bf16x2"
    BASE: tl.constexpr = "0x64006400" if HALF else "0x43004300"
    ONE: tl.constexpr = "0x3C003C00" if HALF else "0x3F803F80"
    LESS: tl.constexpr = "0xBC00BC00" if HALF else "0xBF80BF80"  # -1
    MASK: tl.constexpr = "0x000F000F" if BITS == 4 else "0x00070007"
    return tl.inline_asm_elementwise(
        "{ .reg .b32 t, scale, zero, base, one, less, nil;"
        f" mov.b32 base, {BASE}; mov.b32 one, {ONE}; mov.b32 less, {LESS};"
        " mov.b32 nil, 0x80008000;"
        " prmt.b32 scale, $2, $3, 0x5410; prmt.b32 zero, $2, $3, 0x7632;"
        f" fma.rn.{KIND} zero, zero, one, base;"
        f" shr.u32 t, $1, {SHIFT}; lop3.b32 t, t, {MASK}, base, 0xEA;"
        f" fma.rn.{KIND} t, zero, less, t; fma.rn.{KIND} $0, t, scale, nil; }}",
        "=r,r,r,r", [words, step], dtype=like.dtype.element_ty, is_pure=True,
        pack=2)  # fmt: skip


@triton.jit
def with_top(codes, words, PLACE: tl.constexpr):
    """Codes of 3 bits, with one bit more: the topmost of each of `words`."""
    return tl.inline_asm_elementwise(
        f"{{ .reg .b32 t; shr.u32 t, $2, {15 - PLACE};"
        f" lop3.b32 $0, t, {0x10001 << PLACE}, $1, 0xEA; }}",
        "=r,r,r", [codes, words], dtype=tl.int16, is_pure=True, pack=2)  # fmt: skip
# --8<-- [end:unpack]


# --8<-- [start:split]
@triton.jit
def quant_split(part, x, codes, steps, x_rows, x_cols, m, n, k, pitch, each,
                BITS: tl.constexpr, GROUP: tl.constexpr, BN: tl.constexpr,
                BM: tl.constexpr, STAGES: tl.constexpr):
    """Products of BN rows of weights with BM rows of x, over `each` slabs."""
    WIDE: tl.constexpr = 64 if BITS == 4 else 32
    SLAB: tl.constexpr = 256 if BITS == 4 else 512
    TILES: tl.constexpr = 1 if BITS == 4 else 3
    HELD: tl.constexpr = 16 // BITS  # codes in a number of 16 bits
    EVEN: tl.constexpr = SLAB % GROUP == 0 or GROUP % SLAB == 0
    row = tl.program_id(0) * BN + tl.arange(0, BN)
    col = tl.program_id(2) * BM + tl.arange(0, BM)
    split = tl.program_id(1)
    # Weights are the first operand: the tensor core may take that one from registers.
    acc = tl.zeros([BN, BM], tl.float32)
    last = tl.minimum((split + 1) * each, tl.cdiv(k, SLAB))
    at = codes + row.to(tl.int64)[:, None] * pitch + tl.arange(0, WIDE)[None, :]
    live = (row < n)[:, None]
    xs = x + col.to(tl.int64)[None, :] * x_rows
    # Where there is no weight, a step of another stands: what such a weight meets of x
    # is 0, or its row is not stored.
    steps += tl.minimum(row, n - 1)
    for slab in tl.range(split * each, last, num_stages=STAGES):
        top = tl.zeros([BN, WIDE], tl.int16)
        for i in tl.static_range(SLAB // WIDE):
            if i % HELD == 0 and i < TILES * HELD:
                words = tl.load(at + (slab * TILES + i // HELD) * WIDE, mask=live,
                                other=0)  # fmt: skip
                if BITS == 3:
                    top = with_top(top, words, i // HELD)
            start = slab * SLAB + i * WIDE
            if not EVEN or i * WIDE % GROUP == 0:
                group = tl.minimum(start, k - 1) // GROUP
                step = tl.load(steps + group.to(tl.int64) * n)[:, None]
            held = words if i < TILES * HELD else top
            weight = weights_of(held, step, i % HELD * BITS, BITS, x)
            deep = start + tl.arange(0, WIDE)
            met = tl.load(xs + deep.to(tl.int64)[:, None] * x_cols,
                          mask=(deep < k)[:, None] & (col < m)[None, :], other=0.0)
            acc = tl.dot(weight, met, acc)
    at = part + (split.to(tl.int64) * m + col[None, :]) * n + row[:, None]
    tl.store(at, acc, mask=live & (col < m)[None, :])
# --8<-- [end:split]


# --8<-- [start:merge]
@triton.jit
def quant_merge(y, part, xt, starts, columns, values, m, n, k, splits,
                BR: tl.constexpr, SOME: tl.constexpr, BM: tl.constexpr):
    """Add the splits in their order, and the outliers of BR rows of weights."""
    row = tl.program_id(0) * BR + tl.arange(0, BR)
    col = tl.arange(0, BM)
    first = tl.load(starts + row, mask=row < n, other=0)
    last = tl.load(starts + row + 1, mask=row < n, other=0)
    kept = tl.zeros([BR, SOME, BM], tl.float32)
    for step in range(0, tl.max(last - first), SOME):
        at = first[:, None] + step + tl.arange(0, SOME)[None, :]
        deep = tl.load(columns + at, mask=at < last[:, None], other=0).to(tl.int32)
        deep &= 0xFFFF
        live = (at < last[:, None]) & (deep < k)
        value = tl.load(values + at, mask=live, other=0.0).to(tl.float32)
        where = deep.to(tl.int64)[:, :, None] * m + col[None, None, :]
        met = tl.load(xt + where, mask=live[:, :, None] & (col < m)[None, None, :],
                      other=0.0)  # fmt: skip
        kept += value[:, :, None] * met.to(tl.float32)
    at = col.to(tl.int64)[None, :] * n + row[:, None]
    live = (row < n)[:, None] & (col < m)[None, :]
    total = tl.zeros([BR, BM], tl.float32)
    for split in range(splits):
        here = part + tl.cast(split, tl.int64) * m * n
        total += tl.load(here + at, mask=live, other=0.0)
    tl.store(y + at, (total + tl.sum(kept, 1)).to(y.dtype.element_ty), mask=live)
# --8<-- [end:merge]


# --8<-- [start:write]
@triton.jit
def quant_unpack(weight, codes, steps, starts, columns, values, n, k,
                 BITS: tl.constexpr, GROUP: tl.constexpr, SLABS: tl.constexpr,
                 SOME: tl.constexpr):
    """One row of weights in 16 bits, then its outliers in their places."""
    WIDE: tl.constexpr = 64 if BITS == 4 else 32
    SLAB: tl.constexpr = 256 if BITS == 4 else 512
    TILES: tl.constexpr = 1 if BITS == 4 else 3
    HELD: tl.constexpr = 16 // BITS
    WORDS: tl.constexpr = SLAB * BITS // 16
    row = tl.program_id(0).to(tl.int64)
    weight += row * k
    for first in range(0, tl.cdiv(k, SLAB), SLABS):
        slab = first + tl.arange(0, SLABS)
        start = slab * SLAB
        at = slab[:, None] * WORDS + tl.arange(0, WIDE)[None, :]
        at += codes + row * (tl.cdiv(k, SLAB) * WORDS)
        live = (start < k)[:, None]
        top = tl.zeros([SLABS, WIDE], tl.int16)
        for i in tl.static_range(SLAB // WIDE):
            if i % HELD == 0 and i < TILES * HELD:
                words = tl.load(at + i // HELD * WIDE, mask=live, other=0)
                if BITS == 3:
                    top = with_top(top, words, i // HELD)
            group = (start + i * WIDE) // GROUP
            step = tl.load(steps + group.to(tl.int64) * n + row,
                           mask=start + i * WIDE < k, other=0)[:, None]  # fmt: skip
            held = words if i < TILES * HELD else top
            tile = weights_of(held, step, i % HELD * BITS, BITS, weight)
            deep = start[:, None] + i * WIDE + tl.arange(0, WIDE)[None, :]
            tl.store(weight + deep, tile, mask=deep < k)
    tl.debug_barrier()  # what an outlier is added to, another thread has written
    last = tl.load(starts + row + 1)
    for at in range(tl.load(starts + row), last, SOME):
        at += tl.arange(0, SOME)
        deep = tl.load(columns + at, mask=at < last, other=0).to(tl.int32) & 0xFFFF
        value = tl.load(values + at, mask=at < last, other=0.0)
        live = (at < last) & (deep < k)
        value += tl.load(weight + deep, mask=live, other=0.0)
        tl.store(weight + deep, value, mask=live)
# --8<-- [end:write]


# --8<-- [start:launch]
def checked(x: torch.Tensor, packed: Packed) -> int:
    """The group's length, if kernels can take what they are given."""
    codes, steps, starts, columns, values, bits = packed
    if bits not in SLAB:
        raise ValueError(f"quant_matmul: bits = {bits}; 3 and 4 are packed")
    if x.dtype not in DTYPES:
        raise TypeError(f"quant_matmul: x is {x.dtype}; float16 and bfloat16 are taken")
    whole, short = torch.int32, torch.int16
    rules = {
        "x": (x, 2, x.dtype), "codes": (codes, 2, short),
        "steps": (steps, 3, x.dtype), "starts": (starts, 1, whole),
        "columns": (columns, 1, short), "values": (values, 1, x.dtype),
    }  # fmt: skip
    for name, (tensor, sides, dtype) in rules.items():
        if tensor.dtype != dtype:
            raise TypeError(f"quant_matmul: {name} is {tensor.dtype}; make it {dtype}")
        if tensor.device != x.device:
            raise ValueError(f"quant_matmul: {name} is on {tensor.device}, x on "
                             f"{x.device}; move one")  # fmt: skip
        if tensor.ndim != sides:
            raise ValueError(f"quant_matmul: {name} has {tensor.ndim} dimensions; "
                             f"give it {sides}")  # fmt: skip
        if name != "x" and not tensor.is_contiguous():
            raise ValueError(f"quant_matmul: {name} has strides {tensor.stride()}; "
                             "pack the weights, or call contiguous()")  # fmt: skip
    n, k, groups = len(codes), x.shape[1], len(steps)
    group = k // groups if groups else WIDE[bits]
    if groups * group != k or group % WIDE[bits]:
        raise ValueError(f"quant_matmul: K = {k} in {groups} groups; a group must be "
                         f"whole, a multiple of {WIDE[bits]}")  # fmt: skip
    check_columns(k)
    pitch = triton.cdiv(k, SLAB[bits]) * WORDS[bits]
    due = {"codes": (codes, (n, pitch)), "steps": (steps, (groups, n, 2)),
           "starts": (starts, (n + 1,)), "values": (values, tuple(columns.shape))}
    for name, (tensor, shape) in due.items():
        if tensor.shape != shape:
            raise ValueError(f"quant_matmul: {name} {tuple(tensor.shape)} beside codes "
                             f"of {n} rows, K = {k}; {shape} is due")  # fmt: skip
    return group


def pairs(steps: torch.Tensor) -> torch.Tensor:
    """A scale and a zero point as one number of 32 bits, whose address 4 divides."""
    return (steps.clone() if steps.storage_offset() % 2 else steps).view(torch.int32)


def multiprocessors(device: torch.device) -> int:
    """How many a GPU has; 2 on a CPU, so that small cases are cut into a few parts."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def architecture(device: torch.device) -> int:
    """Of a GPU, or of the one whose machine code a CPU executes: 90 is sm_90."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        return 10 * major + minor
    return triton.runtime.driver.active.get_current_target().arch


class Tile(NamedTuple):
    """What a program multiplies, and with how many warps and slabs on their way."""

    rows: int  # of weights
    most: int  # rows of x
    warps: int
    slabs: int


def tile_of(m: int, bits: int, arch: int) -> Tile:
    """A tile for M rows of x: sixteen rows of weights for each warp.

    On sm_100 Triton has eight warps multiply from tensor memory, into which they would
    have to write each tile of weights first; sixteen keep it in registers.
    """
    rows, warps = (256, 16) if arch in (100, 103) else (128, 8)
    # With 64 rows of x, slabs of 512 fill shared memory, and sums the registers.
    cap = 64 if bits == 4 and warps == 8 else 32
    most = min(max(16, triton.next_power_of_2(m)), cap)
    return Tile(rows, most, warps, 3 if bits == 4 and most == 16 else 2)


def slabs_each(tiles: int, slabs: int, device: torch.device) -> int:
    """Slabs a program sums: so few that two programs an SM have work, if they can."""
    splits = max(1, 2 * multiprocessors(device) // tiles)
    return triton.cdiv(slabs, min(slabs, splits))


def fused(x: torch.Tensor, packed: Packed) -> torch.Tensor:
    """The product for at most FEW rows of x: weights are unpacked on their way."""
    group = checked(x, packed)
    codes, steps, starts, columns, values, bits = packed
    (m, k), n = x.shape, len(codes)
    if m > FEW:
        raise ValueError(f"quant_matmul: M = {m}; up to {FEW} rows are multiplied with "
                         "weights on their way, so unpack them first")  # fmt: skip
    y = x.new_empty(m, n)
    if m == 0 or n == 0 or k == 0:
        return y.zero_()
    tile = tile_of(m, bits, architecture(x.device))
    slabs, tiles = triton.cdiv(k, SLAB[bits]), triton.cdiv(n, tile.rows)
    each = slabs_each(tiles, slabs, x.device)
    splits = triton.cdiv(slabs, each)
    part = torch.empty(splits, m, n, dtype=torch.float32, device=x.device)
    # A column of x side by side: what one outlier meets is one sector, not one a row.
    xt = x.mT.contiguous() if len(values) else x
    wide = triton.next_power_of_2(m)
    with torch.cuda.device_of(x):
        quant_split[tiles, splits, triton.cdiv(m, tile.most)](
            part, x, codes, pairs(steps), *x.stride(), m, n, k, codes.shape[1], each,
            BITS=bits, GROUP=group, BN=tile.rows, BM=tile.most, STAGES=tile.slabs,
            num_warps=tile.warps)  # fmt: skip
        quant_merge[triton.cdiv(n, 16),](
            y, part, xt, starts, columns, values, m, n, k, splits, BR=16,
            SOME=min(128, 256 // wide), BM=wide, num_warps=4)  # fmt: skip
    return y


def written_out(packed: Packed, k: int) -> torch.Tensor:
    """The weights (N, K) in 16 bits."""
    codes, steps, starts, columns, values, bits = packed
    n = len(codes)
    weight = steps.new_empty(n, k)
    if weight.numel() == 0:
        return weight
    with torch.cuda.device_of(codes):
        quant_unpack[n,](
            weight, codes, pairs(steps), starts, columns, values, n, k, BITS=bits,
            GROUP=k // len(steps), SLABS=1024 // WIDE[bits], SOME=128,
            num_warps=4)  # fmt: skip
    return weight


def unpacked(x: torch.Tensor, packed: Packed) -> torch.Tensor:
    """The product for any M: weights are written in 16 bits, and read again."""
    checked(x, packed)
    return x @ written_out(packed, x.shape[1]).mT
# --8<-- [end:launch]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::quant_matmul", mutates_args=())
def product(
    x: torch.Tensor, codes: torch.Tensor, steps: torch.Tensor, starts: torch.Tensor,
    columns: torch.Tensor, values: torch.Tensor, bits: int,
) -> torch.Tensor:  # fmt: skip
    packed = Packed(codes, steps, starts, columns, values, bits)
    return fused(x, packed) if len(x) <= FEW else unpacked(x, packed)


@torch.library.custom_op("warpshelf::quant_matmul_backward", mutates_args=())
def product_backward(
    dy: torch.Tensor, k: int, codes: torch.Tensor, steps: torch.Tensor,
    starts: torch.Tensor, columns: torch.Tensor, values: torch.Tensor, bits: int,
) -> torch.Tensor:  # fmt: skip
    packed = Packed(codes, steps, starts, columns, values, bits)
    return dy @ written_out(packed, k)


@product.register_fake
def _(x, codes, *rest):
    return x.new_empty(len(x), len(codes))


@product_backward.register_fake
def _(dy, k, *rest):
    return dy.new_empty(len(dy), k)


def remember(ctx, inputs, output) -> None:
    x, *tensors, ctx.bits = inputs
    ctx.k = x.shape[1]
    ctx.save_for_backward(*tensors)


# Codes are whole numbers, and scales are taken as fixed: x alone has a gradient.
product.register_autograd(
    lambda ctx, dy: (product_backward(dy, ctx.k, *ctx.saved_tensors, ctx.bits),
                     *[None] * 6),
    setup_context=remember,
)  # fmt: skip


def quant_matmul(x: torch.Tensor, packed: Packed) -> torch.Tensor:
    """x (..., K) times the weights' transpose -> (..., N), differentiable in x."""
    if x.ndim == 0:
        raise ValueError("quant_matmul: x has 0 dimensions; give it K values at least")
    rows = x.reshape(-1, x.shape[-1]) if x.numel() else x.new_empty(
        x.shape[:-1].numel(), x.shape[-1])  # fmt: skip
    checked(rows, packed)
    return product(rows, *packed).reshape(*x.shape[:-1], len(packed.codes))
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Bits of a weight with everything counted, and products against float64."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 512, generator=generator).to(device, torch.float16)
    x = torch.randn(66, 512, generator=generator).to(device, torch.float16)
    kept = weight.abs() > 2.8
    for bits in (4, 3):
        packed = quantise(weight, bits, 64, kept)
        held = sum(t.numel() * t.element_size() * 8 for t in packed[:-1])
        print(f"{bits} bits, {len(packed.values)} of {weight.numel()} kept: "
              f"{held / weight.numel():.2f} bits a weight")  # fmt: skip
        truth = x.double() @ dequantise(packed, 512, torch.float64).mT
        for m in (3, 66):
            y = quant_matmul(x[:m], packed).double()
            error = (y - truth[:m]).norm() / truth[:m].norm()
            print(f"  {m} rows within 1e-3 of float64: {bool(error < 1e-3)}")
    try:
        quantise(weight, 4, 96, kept)
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

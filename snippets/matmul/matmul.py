"""Matrix product in Triton: which tile next, what is in flight, and a fused epilogue.

Shapes  a (M, K), b (K, N), bias (N,), residual (M, N) -> c (M, N), contiguous, where
        c = activation(a b + bias) + residual; bias, residual and activation may be
        None, and the last is else "relu", "silu" or "gelu_tanh". All float16, all
        bfloat16 or all float32; any strides; any side may be 0, and with K = 0 the
        product is 0
FLOPs   2 M N K, and as many again for each of da and db, which layer.py makes of it
Bytes   a and b, and bias and residual if given, read once, c written once. An
        activation with a gradient writes a b + bias too
Error   relative to float64: 5e-6 float32, which is multiplied as such, 1e-3 float16,
        5e-3 bfloat16; sums are float32, rounded once. The same inputs, the same bits
Raises  ValueError, TypeError for shapes, dtypes, devices and activations but these
Source  triton-matmul, siboehm-cuda-mmm
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

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = (None, "relu", "silu", "gelu_tanh")
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
STRIP = tl.constexpr(64)  # columns that an epilogue finishes at a time


# --8<-- [start:epilogue]
@triton.jit
def sigmoid(t):
    return 1 / (1 + tl.exp2(-LOG2E * t))


@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        z = tl.where(z < 0, 0.0, z)  # and NaN stays
    elif ACTIVATION == "silu":
        z = z * sigmoid(z)
    elif ACTIVATION == "gelu_tanh":  # (1 + tanh(u)) / 2 is sigmoid(2 u)
        z = z * sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))
    return z


@triton.jit
def place(base, row, row_stride, col, col_stride):
    """Addresses of a tile, in 64 bits: a row's offset may pass 2**31."""
    rows = row.to(tl.int64)[:, None] * row_stride
    return base + rows + (col.to(tl.int64) * col_stride)[None, :]


@triton.jit
def finish(out, acc, first_row, first_col, m, n, ACTIVATION: tl.constexpr):
    """Write activation(acc + bias) + residual, a strip of columns at a time."""
    ROWS: tl.constexpr = acc.shape[0]
    COLS: tl.constexpr = acc.shape[1]
    if COLS > STRIP:  # what is loaded and turned round for a strip needs few registers
        HALF: tl.constexpr = COLS // 2
        left, right = acc.reshape(ROWS, 2, HALF).permute(0, 2, 1).split()
        finish(out, left, first_row, first_col, m, n, ACTIVATION)
        finish(out, right, first_row, first_col + HALF, m, n, ACTIVATION)
    else:
        c, z, bias, residual, bias_stride, residual_stride = out
        row = first_row + tl.arange(0, ROWS)
        col = first_col + tl.arange(0, COLS)
        inside = (row < m)[:, None] & (col < n)[None, :]
        if bias is not None:
            at = bias + col.to(tl.int64) * bias_stride[0]
            acc += tl.load(at, mask=col < n, other=0.0).to(tl.float32)[None, :]
        if z is not None:  # what the gradient of the activation needs
            tl.store(place(z, row, n, col, 1), acc.to(z.dtype.element_ty), mask=inside)
        acc = activate(acc, ACTIVATION)
        if residual is not None:
            at = place(residual, row, residual_stride[0], col, residual_stride[1])
            acc += tl.load(at, mask=inside, other=0.0).to(tl.float32)
        tl.store(place(c, row, n, col, 1), acc.to(c.dtype.element_ty), mask=inside)
# --8<-- [end:epilogue]


# --8<-- [start:naive]
@triton.jit
def matmul_naive(a, b, out, a_stride, b_stride, m, n, k, BM: tl.constexpr,
                 BN: tl.constexpr, BK: tl.constexpr, ACTIVATION: tl.constexpr):
    tiles_n = tl.cdiv(n, BN)
    first_row = tl.program_id(0) // tiles_n * BM
    first_col = tl.program_id(0) % tiles_n * BN
    row = first_row + tl.arange(0, BM)
    col = first_col + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in tl.range(0, k, BK):
        deep = start + tl.arange(0, BK)
        left = tl.load(place(a, row, a_stride[0], deep, a_stride[1]),
                       mask=(row < m)[:, None] & (deep < k)[None, :], other=0.0)
        right = tl.load(place(b, deep, b_stride[0], col, b_stride[1]),
                        mask=(deep < k)[:, None] & (col < n)[None, :], other=0.0)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    finish(out, acc, first_row, first_col, m, n, ACTIVATION)
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


# --8<-- [start:grouped]
@triton.jit
def operands(a, b, a_stride, b_stride, i, j, start, m, n, k, BM: tl.constexpr,
             BN: tl.constexpr, BK: tl.constexpr, EVEN: tl.constexpr):
    """Of a and b what tile i, j needs at depth `start`; EVEN if none reaches past k."""
    row = i * BM + tl.arange(0, BM)
    col = j * BN + tl.arange(0, BN)
    deep = tl.arange(0, BK)
    start = tl.multiple_of(start, BK)
    # The walk along k moves one address for all; what is added to it stays.
    a += tl.cast(start, tl.int64) * a_stride[1]
    b += tl.cast(start, tl.int64) * b_stride[0]
    a_mask = (row < m)[:, None]
    b_mask = (col < n)[None, :]
    if not EVEN:
        a_mask = a_mask & (deep < k - start)[None, :]
        b_mask = b_mask & (deep < k - start)[:, None]
    a = place(a, row, a_stride[0], deep, a_stride[1])
    b = place(b, deep, b_stride[0], col, b_stride[1])
    return tl.load(a, mask=a_mask, other=0.0), tl.load(b, mask=b_mask, other=0.0)


@triton.jit
def matmul_grouped(a, b, out, a_stride, b_stride, m, n, k, BM: tl.constexpr,
                   BN: tl.constexpr, BK: tl.constexpr, ACTIVATION: tl.constexpr,
                   GROUP: tl.constexpr, EVEN: tl.constexpr):
    i, j = tile_of(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in tl.range(0, k, BK):  # num_stages - 1 loads run ahead of the product
        left, right = operands(a, b, a_stride, b_stride, i, j, start, m, n, k, BM, BN,
                               BK, EVEN)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    finish(out, acc, i * BM, j * BN, m, n, ACTIVATION)
# --8<-- [end:grouped]


# --8<-- [start:persistent]
@triton.jit
def matmul_persistent(a, b, out, a_stride, b_stride, m, n, k, BM: tl.constexpr,
                      BN: tl.constexpr, BK: tl.constexpr, ACTIVATION: tl.constexpr,
                      GROUP: tl.constexpr, EVEN: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    # Flattened, both loops are one: the next tile's loads start before this one ends.
    for index in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0),
                          flatten=True):
        i, j = tile_of(index, tiles_m, tiles_n, GROUP)
        acc = tl.zeros([BM, BN], tl.float32)
        for start in tl.range(0, k, BK):
            left, right = operands(a, b, a_stride, b_stride, i, j, start, m, n, k, BM,
                                   BN, BK, EVEN)
            acc = tl.dot(left, right, acc, input_precision="ieee")
        finish(out, acc, i * BM, j * BN, m, n, ACTIVATION)
# --8<-- [end:persistent]


# --8<-- [start:descriptors]
@triton.jit
def finish_described(c, z, acc, bias, residual, bias_stride, first_row, first_col, n,
                     ACTIVATION: tl.constexpr):
    """As `finish`, by the copy engine, which leaves out what lies past an edge."""
    ROWS: tl.constexpr = acc.shape[0]
    COLS: tl.constexpr = acc.shape[1]
    if COLS > STRIP:
        HALF: tl.constexpr = COLS // 2
        left, right = acc.reshape(ROWS, 2, HALF).permute(0, 2, 1).split()
        finish_described(c, z, left, bias, residual, bias_stride, first_row, first_col,
                         n, ACTIVATION)
        finish_described(c, z, right, bias, residual, bias_stride, first_row,
                         first_col + HALF, n, ACTIVATION)
    else:
        if bias is not None:
            col = first_col + tl.arange(0, COLS)
            at = bias + col.to(tl.int64) * bias_stride[0]
            acc += tl.load(at, mask=col < n, other=0.0).to(tl.float32)[None, :]
        if z is not None:
            z.store([first_row, first_col], acc.to(z.dtype))
        acc = activate(acc, ACTIVATION)
        if residual is not None:
            acc += residual.load([first_row, first_col]).to(tl.float32)
        c.store([first_row, first_col], acc.to(c.dtype))


@triton.jit
def matmul_described(c, z, a, b, bias, residual, bias_stride, m, n, k,
                     A_ALONG_M: tl.constexpr, B_ALONG_K: tl.constexpr, BM: tl.constexpr,
                     BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
                     ACTIVATION: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    for index in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0),
                          flatten=True):
        i, j = tile_of(index, tiles_m, tiles_n, GROUP)
        acc = tl.zeros([BM, BN], tl.float32)
        for start in tl.range(0, k, BK):
            # A descriptor's last dimension is the one whose elements are neighbours.
            left = a.load([start, i * BM]).T if A_ALONG_M else a.load([i * BM, start])
            right = b.load([j * BN, start]).T if B_ALONG_K else b.load([start, j * BN])
            acc = tl.dot(left, right, acc)
        finish_described(c, z, acc, bias, residual, bias_stride, i * BM, j * BN, n,
                         ACTIVATION)
# --8<-- [end:descriptors]


# --8<-- [start:tiles]
class Tile(NamedTuple):
    """A program's tile of c, the depth of a slab, and how it is launched."""

    m: int
    n: int
    k: int
    warps: int
    stages: int
    blocks: int  # programs an SM has room for


TILES = {
    # 227 KiB on chip, and a tile of sums that fills registers or tensor memory
    "descriptors": (Tile(128, 256, 64, 8, 4, 1), Tile(128, 128, 64, 8, 3, 2),
                    Tile(64, 64, 64, 4, 4, 2)),
    "pointers": (Tile(128, 256, 64, 8, 3, 1), Tile(128, 128, 64, 8, 3, 1),
                 Tile(64, 64, 64, 4, 4, 2)),
    # 163 KiB, that of an A100. Operands pass through registers, where the sums are: so
    # slabs are half as deep, and half as many addresses and masks stand beside them.
    "ampere": (Tile(128, 256, 32, 8, 4, 1), Tile(128, 128, 64, 8, 3, 1),
               Tile(64, 64, 64, 4, 4, 2)),
    # Beside 128 x 256 sums the addresses of two tiles and an epilogue would spill.
    "persistent": (Tile(128, 128, 64, 8, 3, 1), Tile(64, 64, 64, 4, 4, 2)),
    # 99 KiB
    "small": (Tile(128, 128, 32, 8, 3, 1), Tile(64, 64, 32, 4, 4, 2)),
    # float32, which no matrix instruction multiplies exactly
    "exact": (Tile(64, 64, 16, 8, 3, 2),),
}  # fmt: skip
NAIVE = Tile(64, 64, 32, 4, 1, 1)
GROUP = 8  # rows of tiles: 132 programs then share about 8 + 17 panels, not 3 + 64
RIDGE = 100  # operations that an SM could do while the L2 brings it a byte


def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch


def multiprocessors(device: torch.device) -> int:
    """How many a GPU has; 2 on a CPU, so that programs of small cases walk on."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def chosen(m: int, n: int, sms: int, table: str) -> Tile:
    """The tile whose waves take least: its operations, and what it asks of the L2."""

    def price(tile: Tile) -> int:
        waves = triton.cdiv(triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n), sms)
        return waves * (tile.m * tile.n + RIDGE * (tile.m + tile.n))

    return min(TILES[table], key=price)
# --8<-- [end:tiles]


# --8<-- [start:describe]
def along(tensor: torch.Tensor) -> torch.Tensor | None:
    """The matrix or its transpose as the copy engine takes it, or None: neighbours in
    rows, rows a multiple of 16 bytes apart, and the first of them on 16 bytes."""
    for each in (tensor, tensor.mT):
        rows, columns = each.shape
        step, next_to = each.stride()
        pitch = step * each.element_size()
        if (
            min(rows, columns) > 0
            and (next_to == 1 or columns == 1)
            and (rows == 1 or 0 < pitch < 2**40 and pitch % 16 == 0)
            and each.data_ptr() % 16 == 0
        ):
            return each
    return None


def described(tensor: torch.Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A matrix as the copy engine sees it, in tiles."""
    # One row has no stride to speak of, but the engine asks for a multiple of 16 bytes.
    pitch = tensor.stride(0) if tensor.shape[0] > 1 else (tensor.shape[1] + 7) // 8 * 8
    return TensorDescriptor(tensor, list(tensor.shape), [pitch, 1], [rows, columns])
# --8<-- [end:describe]


KERNELS = {"naive": matmul_naive, "grouped": matmul_grouped,
           "persistent": matmul_persistent}  # fmt: skip


def product(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str | None = None,
    keep: bool = False,
    how: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """c, and if `keep` also z = a b + bias.

    `how` is "naive", "grouped", "persistent" or "descriptors"; None for what suits.
    What the copy engine cannot take, "descriptors" leaves to "persistent".
    """
    checked(a, b, bias, residual, activation)
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    z = torch.empty_like(c) if keep else None
    if c.numel() == 0:
        return c, z
    with torch.cuda.device_of(a):
        arch = architecture()
        if how is None:
            how = "descriptors" if arch in (90, 100, 103) else "persistent"
        left, right = along(a), along(b)
        taken = a.dtype != torch.float32 and left is not None and right is not None
        taken &= along(c) is c and (residual is None or along(residual) is residual)
        if how == "descriptors" and not taken:
            how = "persistent"
        if k == 0:
            how = "naive"  # nothing is loaded, and so nothing ahead of its use
        table = "descriptors" if how == "descriptors" else "pointers"
        if a.dtype == torch.float32:
            table = "exact"
        elif arch not in (90, 100, 103):
            table = "ampere" if arch in (80, 87) else "small"
        if how == "persistent" and table in ("pointers", "ampere"):
            table = "persistent"
        sms = multiprocessors(a.device)
        tile = NAIVE if how == "naive" else chosen(m, n, sms, table)
        programs = triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n)
        if how in ("persistent", "descriptors"):
            programs = min(programs, sms * tile.blocks)
        constants = {
            "BM": tile.m, "BN": tile.n, "BK": tile.k, "ACTIVATION": activation,
            "num_warps": tile.warps, "num_stages": tile.stages,
        }  # fmt: skip
        strides = [x if x is None else x.stride() for x in (bias, residual)]
        if how != "naive":
            constants["GROUP"] = GROUP
        if how in ("grouped", "persistent"):
            constants["EVEN"] = k % tile.k == 0
        if how == "descriptors":
            constants |= {"A_ALONG_M": left is not a, "B_ALONG_K": right is not b}
            left_box = (tile.m, tile.k) if left is a else (tile.k, tile.m)
            right_box = (tile.k, tile.n) if right is b else (tile.n, tile.k)
            strip = (tile.m, min(tile.n, STRIP.value))
            ends = [x if x is None else described(x, *strip) for x in (c, z, residual)]
            matmul_described[(programs,)](
                *ends[:2], described(left, *left_box), described(right, *right_box),
                bias, ends[2], strides[0], m, n, k, **constants,
            )  # fmt: skip
        else:
            KERNELS[how][(programs,)](
                a, b, (c, z, bias, residual, *strides), a.stride(), b.stride(), m, n, k,
                **constants,
            )  # fmt: skip
    return c, z


def check(holds: bool, error: type[Exception], said: str) -> None:
    if not holds:
        raise error(f"matmul: {said}")


def check_alike(operands: dict[str, torch.Tensor | None]) -> None:
    """See that all are matrices, or a bias, of one dtype on one device."""
    given = {name: x for name, x in operands.items() if x is not None}
    first, a = next(iter(given.items()))
    for name, x in given.items():
        said, due = (f"{one.dtype} on {one.device}" for one in (x, a))
        sides = 1 if name == "bias" else 2
        check(x.dtype in DTYPES, TypeError, f"{name} is {x.dtype}, none of float16, "
              "bfloat16, float32; convert it first")  # fmt: skip
        check(said == due, TypeError,
              f"{name} is {said}, but {first} {due}; bring them together")  # fmt: skip
        check(x.ndim == sides, ValueError,
              f"{name} has {x.ndim} dimensions; give it {sides}")  # fmt: skip
    away = a.is_meta or a.device.type == "cpu" and torch.cuda.is_available()
    check(not away, TypeError, f"{first} is on {a.device}; move it to the GPU")


def checked(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str | None,
) -> None:
    """See that the operands fit; TypeError or ValueError says what does not."""
    known = ", ".join(map(str, ACTIVATIONS))
    check(activation in ACTIVATIONS, ValueError, f"activation {activation!r} is none "
          f"of {known}; apply another afterwards")  # fmt: skip
    check_alike({"a": a, "b": b, "bias": bias, "residual": residual})
    (m, k), (depth, n) = a.shape, b.shape
    check(k == depth, ValueError, f"a is {m} x {k} and b {depth} x {n}; make the inner "
          "sides alike")  # fmt: skip
    if bias is not None:
        check(bias.shape == (n,), ValueError,
              f"bias has {bias.shape[0]} numbers; give it {n}, as b")  # fmt: skip
    if residual is not None:
        shape = tuple(residual.shape)
        said = f"residual is {shape}; the product is {(m, n)}"
        check(shape == (m, n), ValueError, said)


def demo(device: str) -> None:
    """A layer against float64, by each kernel; the tile for some sizes of an H100."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((70, 96), (96, 136), (136,), (70, 136))
    drawn = [torch.randn(s, generator=generator).to(device).half() for s in shapes]
    a, b, bias, residual = (x.double() for x in drawn)
    truth = torch.nn.functional.silu(a @ b + bias) + residual
    print("silu(a b + bias) + residual, float16, 70 x 136 of depth 96")
    for how in (*KERNELS, "descriptors"):
        c = product(*drawn, "silu", how=how)[0].double()
        close = bool((c - truth).norm() <= 1e-3 * truth.norm())
        print(f"  {how}: within 1e-3 of float64: {close}")
    print("tiles for an H100, 132 multiprocessors")
    for m, n in ((8192, 8192), (4096, 4096), (2048, 2048), (1024, 1024), (16, 4096)):
        tile = chosen(m, n, 132, "descriptors")
        count = triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n)
        waves = triton.cdiv(count, 132)
        print(f"  {m} x {n}: {count} of {tile.m} x {tile.n}, {waves} waves")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

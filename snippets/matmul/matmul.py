"""Matrix product in Triton: which tile next, what is in flight, and a fused epilogue.

Shapes  a (M, K), b (K, N), bias (N,), residual (M, N) -> c (M, N), contiguous, where
        c = activation(a b + bias) + residual; bias, residual and activation may be
        None, and the last is else "relu", "silu" or "gelu_tanh". All float16, all
        bfloat16 or all float32; any strides; any side may be 0, and with K = 0 the
        product is 0
FLOPs   2 M N K, and as many again for each of da and db
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
def finish(c, z, acc, bias, residual, bias_stride, residual_stride, first_row,
           first_col, m, n, ACTIVATION: tl.constexpr):
    """Write activation(acc + bias) + residual, a strip of columns at a time."""
    ROWS: tl.constexpr = acc.shape[0]
    COLS: tl.constexpr = acc.shape[1]
    if COLS > STRIP:  # what is loaded and turned round for a strip needs few registers
        HALF: tl.constexpr = COLS // 2
        left, right = acc.reshape(ROWS, 2, HALF).permute(0, 2, 1).split()
        finish(c, z, left, bias, residual, bias_stride, residual_stride, first_row,
               first_col, m, n, ACTIVATION)
        finish(c, z, right, bias, residual, bias_stride, residual_stride, first_row,
               first_col + HALF, m, n, ACTIVATION)
    else:
        row = first_row + tl.arange(0, ROWS)
        col = first_col + tl.arange(0, COLS)
        inside = (row < m)[:, None] & (col < n)[None, :]
        if bias is not None:
            at = bias + col.to(tl.int64) * bias_stride
            acc += tl.load(at, mask=col < n, other=0.0).to(tl.float32)[None, :]
        if z is not None:  # what the gradient of the activation needs
            at = place(z, row, n, col, 1)
            tl.store(at, acc.to(z.dtype.element_ty), mask=inside)
        acc = activate(acc, ACTIVATION)
        if residual is not None:
            at = place(residual, row, residual_stride[0], col, residual_stride[1])
            acc += tl.load(at, mask=inside, other=0.0).to(tl.float32)
        tl.store(place(c, row, n, col, 1), acc.to(c.dtype.element_ty), mask=inside)
# --8<-- [end:epilogue]


# --8<-- [start:naive]
@triton.jit
def matmul_naive(c, z, a, b, bias, residual, a_stride, b_stride, bias_stride,
                 residual_stride, m, n, k, BM: tl.constexpr, BN: tl.constexpr,
                 BK: tl.constexpr, ACTIVATION: tl.constexpr):
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
    finish(c, z, acc, bias, residual, bias_stride, residual_stride, first_row,
           first_col, m, n, ACTIVATION)
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
    at = place(a, row, a_stride[0], deep, a_stride[1])
    left = tl.load(at, mask=a_mask, other=0.0)
    at = place(b, deep, b_stride[0], col, b_stride[1])
    right = tl.load(at, mask=b_mask, other=0.0)
    return left, right


@triton.jit
def matmul_grouped(c, z, a, b, bias, residual, a_stride, b_stride, bias_stride,
                   residual_stride, m, n, k, BM: tl.constexpr, BN: tl.constexpr,
                   BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
                   ACTIVATION: tl.constexpr):
    i, j = tile_of(tl.program_id(0), tl.cdiv(m, BM), tl.cdiv(n, BN), GROUP)
    acc = tl.zeros([BM, BN], tl.float32)
    for start in tl.range(0, k, BK):  # num_stages - 1 loads run ahead of the product
        left, right = operands(a, b, a_stride, b_stride, i, j, start, m, n, k, BM, BN,
                               BK, EVEN)
        acc = tl.dot(left, right, acc, input_precision="ieee")
    finish(c, z, acc, bias, residual, bias_stride, residual_stride, i * BM, j * BN,
           m, n, ACTIVATION)
# --8<-- [end:grouped]


# --8<-- [start:persistent]
@triton.jit
def matmul_persistent(c, z, a, b, bias, residual, a_stride, b_stride, bias_stride,
                      residual_stride, m, n, k, BM: tl.constexpr, BN: tl.constexpr,
                      BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
                      ACTIVATION: tl.constexpr):
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
        finish(c, z, acc, bias, residual, bias_stride, residual_stride, i * BM, j * BN,
               m, n, ACTIVATION)
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
            at = bias + col.to(tl.int64) * bias_stride
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
    """The matrix or its transpose as the copy engine takes it, or None.

    Neighbours in rows, rows 16 bytes apart, and the first of them on 16 bytes.
    """
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


def describable(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, residual: torch.Tensor | None
) -> bool:
    """Whether the copy engine takes a and b either way round, and the others as is."""
    ends = [x for x in (c, residual) if x is not None]
    return (
        a.dtype != torch.float32
        and along(a) is not None
        and along(b) is not None
        and all(along(x) is x for x in ends)
    )


# --8<-- [end:describe]


# --8<-- [start:launch]
KERNELS = {
    "naive": matmul_naive,
    "grouped": matmul_grouped,
    "persistent": matmul_persistent,
}


def stride_of(tensor: torch.Tensor | None) -> tuple[int, ...] | int | None:
    """What a kernel is told of an operand that may be absent."""
    if tensor is None:
        return None
    return tensor.stride() if tensor.ndim > 1 else tensor.stride(0)


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
        if how == "descriptors" and not describable(a, b, c, residual):
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
        if how != "naive":
            constants["GROUP"] = GROUP
        if how in ("grouped", "persistent"):
            constants["EVEN"] = k % tile.k == 0
        if how == "descriptors":
            left, right = along(a), along(b)
            constants |= {"A_ALONG_M": left is not a, "B_ALONG_K": right is not b}
            left_box = (tile.m, tile.k) if left is a else (tile.k, tile.m)
            right_box = (tile.k, tile.n) if right is b else (tile.n, tile.k)
            strip = (tile.m, min(tile.n, STRIP.value))
            ends = [x if x is None else described(x, *strip) for x in (c, z, residual)]
            matmul_described[(programs,)](
                *ends[:2], described(left, *left_box), described(right, *right_box),
                bias, ends[2], stride_of(bias), m, n, k, **constants,
            )  # fmt: skip
        else:
            KERNELS[how][(programs,)](
                c, z, a, b, bias, residual, a.stride(), b.stride(), stride_of(bias),
                stride_of(residual), m, n, k, **constants,
            )  # fmt: skip
    return c, z
# --8<-- [end:launch]


def check_alike(operands: dict[str, torch.Tensor | None]) -> None:
    """See that all are matrices, or a bias, of one dtype on one device. Raises as
    `checked` does."""
    first, a = next(iter(operands.items()))
    for name, tensor in operands.items():
        if tensor is None:
            continue
        if tensor.dtype not in DTYPES:
            raise TypeError(
                f"matmul: {name} is {tensor.dtype}, none of float16, bfloat16, "
                "float32; convert it first"
            )
        if (tensor.dtype, tensor.device) != (a.dtype, a.device):
            raise TypeError(
                f"matmul: {name} is {tensor.dtype} on {tensor.device}, but {first} "
                f"{a.dtype} on {a.device}; bring them together"
            )
        if tensor.ndim != (dimensions := 1 if name == "bias" else 2):
            raise ValueError(
                f"matmul: {name} has {tensor.ndim} dimensions; give it {dimensions}"
            )
    if a.is_meta or a.device.type == "cpu" and torch.cuda.is_available():
        raise TypeError(f"matmul: {first} is on {a.device}; move it to the GPU")


def checked(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str | None,
) -> None:
    """See that the operands fit.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, or the activation is unknown.
    """
    if activation not in ACTIVATIONS:
        known = ", ".join(map(str, ACTIVATIONS))
        raise ValueError(
            f"matmul: activation {activation!r} is none of {known}; "
            "apply another afterwards"
        )
    check_alike({"a": a, "b": b, "bias": bias, "residual": residual})
    (m, k), (depth, n) = a.shape, b.shape
    if k != depth:
        raise ValueError(
            f"matmul: a is {m} x {k} and b {depth} x {n}; make the inner sides alike"
        )
    if bias is not None and bias.shape != (n,):
        raise ValueError(f"matmul: bias has {bias.shape[0]} numbers; give it {n}, as b")
    if residual is not None and residual.shape != (m, n):
        raise ValueError(
            f"matmul: residual is {tuple(residual.shape)}; the product is {(m, n)}"
        )


# --8<-- [start:backward]
@triton.jit
def matmul_slope(dz, dc, z, size, BLOCK: tl.constexpr, ACTIVATION: tl.constexpr):
    """dz = dc * activation'(z), element by element."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(z + at, mask=at < size, other=0.0).to(tl.float32)
    if ACTIVATION == "relu":
        slope = tl.where(t > 0, 1.0, 0.0)
    elif ACTIVATION == "silu":
        part = sigmoid(t)
        slope = part * (1 + t * (1 - part))
    else:
        part = sigmoid(1.5957691216057308 * (t + 0.044715 * t * t * t))
        inner = 1.5957691216057308 * (1 + 3 * 0.044715 * t * t)
        slope = part * (1 + t * (1 - part) * inner)
    given = tl.load(dc + at, mask=at < size, other=0.0).to(tl.float32)
    tl.store(dz + at, (given * slope).to(dz.dtype.element_ty), mask=at < size)
# --8<-- [end:backward]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::matmul", mutates_args=())
def operator(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    activation: str | None,
    keep: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    c, z = product(a, b, bias, residual, activation, keep)
    return c, a.new_empty(0) if z is None else z


def check_slope(dc: torch.Tensor, z: torch.Tensor) -> None:
    """See that dc is as z. Raises as `checked` does."""
    check_alike({"dc": dc, "z": z})
    if dc.shape != z.shape:
        raise ValueError(
            f"matmul: dc is {tuple(dc.shape)}; with this z it must be {tuple(z.shape)}"
        )


@torch.library.custom_op("warpshelf::matmul_slope", mutates_args=())
def slope(dc: torch.Tensor, z: torch.Tensor, activation: str) -> torch.Tensor:
    """dz = dc * activation'(z)."""
    check_slope(dc, z)
    dc, z = dc.contiguous(), z.contiguous()
    dz = torch.empty_like(dc)
    if size := dz.numel():
        with torch.cuda.device_of(dz):
            matmul_slope[(triton.cdiv(size, 2048),)](
                dz, dc, z, size, BLOCK=2048, ACTIVATION=activation
            )
    return dz


@operator.register_fake
def _(a, b, bias, residual, activation, keep):
    shape = a.shape[0], b.shape[1]
    return a.new_empty(shape), a.new_empty(shape if keep else 0)


@slope.register_fake
def _(dc, z, activation):
    check_slope(dc, z)
    return dc.new_empty(dc.shape)


def remember(ctx, inputs, output) -> None:
    a, b, _, _, ctx.activation, _ = inputs
    z = output[1]
    ctx.mark_non_differentiable(z)
    ctx.save_for_backward(a, b, None if ctx.activation is None else z)


def backward(ctx, dc, _):
    a, b, z = ctx.saved_tensors
    if ctx.activation is not None and z.shape != dc.shape:
        raise RuntimeError("matmul: z was not kept; call matmul, or give keep=True")
    wanted = ctx.needs_input_grad
    dz = dc if ctx.activation is None else slope(dc, z, ctx.activation)
    # By the same kernel: a transpose is other strides, and nothing moves.
    da = operator(dz, b.mT, None, None, None, False)[0] if wanted[0] else None
    db = operator(a.mT, dz, None, None, None, False)[0] if wanted[1] else None
    dbias = dz.sum(0) if wanted[2] else None
    return da, db, dbias, dc if wanted[3] else None, None, None


operator.register_autograd(backward, setup_context=remember)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    activation: str | None = None,
) -> torch.Tensor:
    """activation(a b + bias) + residual, with gradients of all four tensors."""
    checked(a, b, bias, residual, activation)
    learns = any(x is not None and x.requires_grad for x in (a, b, bias))
    keep = activation is not None and learns and torch.is_grad_enabled()
    return operator(a, b, bias, residual, activation, keep)[0]
# --8<-- [end:operator]


def demo(device: str) -> None:
    """A layer and its gradients against float64; the tile for some sizes of an H100."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((70, 96), (96, 136), (136,), (70, 136))
    drawn = [torch.randn(shape, generator=generator).to(device, torch.float16)
             for shape in shapes]  # fmt: skip
    exact = [x.double().requires_grad_() for x in drawn]
    a, b, bias, residual = exact
    z = a @ b + bias
    truth = torch.nn.functional.silu(z) + residual
    print("silu(a b + bias) + residual, float16, 70 x 136 of depth 96")
    for how in ("naive", "grouped", "persistent", "descriptors"):
        c = product(*drawn, "silu", how=how)[0].double()
        close = bool((c - truth).norm() <= 1e-3 * truth.norm())
        print(f"  {how}: within 1e-3 of float64: {close}")
    leaves = [x.requires_grad_() for x in drawn]
    matmul(*leaves, "silu").sum().backward()
    truth.sum().backward()
    for name, leaf, due in zip(("a", "b", "bias", "residual"), leaves, exact,
                               strict=True):  # fmt: skip
        error = (leaf.grad.double() - due.grad).norm() / due.grad.norm()
        print(f"  gradient of {name}: within 1e-3: {bool(error <= 1e-3)}")
    print("tiles for an H100, 132 multiprocessors")
    for m, n in ((8192, 8192), (4096, 4096), (2048, 2048), (1024, 1024), (16, 4096)):
        tile = chosen(m, n, 132, "descriptors")
        count = triton.cdiv(m, tile.m) * triton.cdiv(n, tile.n)
        waves = triton.cdiv(count, 132)
        part = m * n / (waves * 132 * tile.m * tile.n)
        shape = f"{tile.m} x {tile.n}"
        print(f"  {m} x {n}: {count} of {shape}, {waves} waves, {part:.0%} of them c")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

"""Convolution along a line: depthwise as a copy, dense with GroupNorm and Mish in it.

Shapes  depthwise: x (B, D, L) float32, float16 or bfloat16, weight (D, W) with W from 1
        to 8, bias (D,) or none, of x's dtype -> (B, D, L); an output sees its input and
        the W - 1 before it, zeros before the start; SiLU follows if asked for;
        dense: x (B, C, T), weight (K, C, S) with S odd, at most 9, bias, gamma and beta
        (K,), all float32 -> (B, K, T), padded by S // 2, then normalised over groups
        of K / groups channels and all of T, then Mish
Bytes   depthwise: x read once and y written once; dense: x, weight and y once
FLOPs   depthwise: 2 W an output; dense: 2 C S an output
Error   float32 within 5e-6 of a float64 reference, float16 1e-3, bfloat16 5e-3; sums
        are float32, and the same bits every time
Raises  TypeError for another dtype; ValueError for other shapes or sides, for elements
        that do not lie side by side, more blocks than a grid has, more outputs of a
        group than fit on chip, or no such way
Source  causal-conv1d, vrushankdes-conv1d, vrushankdes-kernel-tips
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch

from snippets import cuda

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
TYPES = {torch.float32: "float", torch.float16: "Half", torch.bfloat16: "Bfloat16"}
DEPTHWISE = {"naive": 0, "packs": 1, "deep": 4}  # packs that a lane has on their way
DENSE = ("chain", "fused", "cluster")
MAX_WIDTH, MAX_TAPS = 8, 9
MAX_CLUSTER = 8  # blocks, on every GPU that has clusters

Tensor = torch.Tensor


def _refuse(what: str) -> None:
    raise ValueError(f"conv1d: {what}")


def _known(way: str, ways) -> None:
    if way not in ways:
        _refuse(f"no way {way!r}; there are {', '.join(ways)}")


def _like(name: str, x: Tensor, shape: tuple, dtype: torch.dtype) -> None:
    """Refuse what has another dtype or shape, or elements apart."""
    if x.dtype != dtype:
        raise TypeError(f"conv1d: {name} is {x.dtype}, not {dtype}; convert it")
    if tuple(x.shape) != shape:
        _refuse(f"{name} has shape {tuple(x.shape)}, not {shape}")
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        _refuse(
            f"elements of {name} lie {x.stride(-1)} apart, they must lie side by side; "
            f"pass {name}.contiguous()"
        )


def _three(name: str, x: Tensor) -> tuple[int, int, int]:
    if x.ndim != 3:
        _refuse(f"{name} has {x.ndim} dimensions, not 3; reshape it")
    return x.shape[0], x.shape[1], x.shape[2]


def _at_most(blocks: int) -> int:
    if blocks > cuda.MAX_GRID[0]:
        _refuse(f"{blocks} blocks are over 2**31 - 1; split it")
    return blocks


# --8<-- [start:depthwise]
def packed(x: Tensor) -> int:
    """How many elements a lane may load at a time: 16 bytes of them, or 1."""
    v = 16 // x.element_size()
    apart = (*x.stride()[:2], x.shape[2])
    aligned = x.data_ptr() % 16 == 0 and all(each % v == 0 for each in apart)
    return v if aligned else 1


def depthwise(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, silu: bool = False,
    way: str = "deep",
) -> Tensor:  # fmt: skip
    """y[b, d, l] = bias[d] + the sum of weight[d, w] x[b, d, l - W + 1 + w] over w."""
    _known(way, DEPTHWISE)
    if x.dtype not in TYPES:
        names = ", ".join(str(each).removeprefix("torch.") for each in TYPES)
        raise TypeError(f"conv1d: x is {x.dtype}, none of {names}; convert it")
    b, d, length = _three("x", x)
    width = weight.shape[-1] if weight.ndim else 0
    if not 1 <= width <= MAX_WIDTH:
        _refuse(f"a width of {width} is outside 1 ... {MAX_WIDTH}")
    _like("x", x, (b, d, length), x.dtype)
    _like("weight", weight, (d, width), x.dtype)
    if bias is not None:
        _like("bias", bias, (d,), x.dtype)
    y = torch.empty(b, d, length, dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y
    kernel, v, threads = f"depthwise_naive<{TYPES[x.dtype]}>", packed(x), 256
    elements = threads  # of a block
    if deep := DEPTHWISE[way]:
        deep *= 1 if v > 1 or way == "packs" else 2
        kernel = f"depthwise<{TYPES[x.dtype]}, {v}, {width}, {deep}>"
        warps = min(8, -(-length // (32 * v * deep)))  # a short row has short blocks
        threads, elements = 32 * warps, 32 * warps * v * deep
    across = -(-length // elements)
    extents = np.int32(d), np.int64(length)
    KERNELS.launch(
        kernel, _at_most(b * d * across), threads,
        x, *map(np.int64, x.stride()[:2]), weight, np.int64(weight.stride(0)),
        weight if bias is None else bias, y,
        *(extents if deep else (*extents, np.int32(width))),
        np.uint32(across), np.int32(bias is not None), np.int32(silu),
    )  # fmt: skip
    return y
# --8<-- [end:depthwise]


@cache
def _chip(device: torch.device) -> tuple[int, int]:
    """Multiprocessors, and bytes that a block can ask for beside a few of its own."""
    if device.type != "cuda":
        return 132, cuda.MAX_SHARED - 128
    found = torch.cuda.get_device_properties(device)
    return found.multi_processor_count, found.shared_memory_per_block_optin - 128


def _clusters(device: torch.device) -> bool:
    """Whether blocks of this device can be clusters; papergpu's can."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device)[0] >= 9


# --8<-- [start:parts]
def parts(units: int, channels: int, multiprocessors: int) -> int:
    """Blocks that share a group of channels: enough for all multiprocessors, if it can.

    A block has 16 channels at least, and a cluster 8 blocks at most.
    """
    wanted = min(-(-multiprocessors // units), -(-channels // 16), MAX_CLUSTER)
    return 1 << (wanted - 1).bit_length()


def at_once(t: int) -> int:
    """Times that a lane has sums of: few where there are few."""
    return 4 if t <= 4 else 8 if t <= 8 else 16


def on_chip(taps: int, each: int, t: int) -> int:
    """Bytes of a block: three slabs for each of 8 warps, and its outputs."""
    width = at_once(t) + 8 + 4 * (at_once(t) != 4)
    slab = 16 * (8 * taps + 4) + 8 * width
    return 4 * (3 * 8 * slab + each * t)
# --8<-- [end:parts]


# --8<-- [start:dense]
def dense(
    x: Tensor, weight: Tensor, bias: Tensor, groups: int, gamma: Tensor, beta: Tensor,
    eps: float = 1e-5, way: str = "cluster",
) -> Tensor:  # fmt: skip
    """Mish of the GroupNorm of x convolved with weight, plus bias."""
    _known(way, DENSE)
    b, c, t = _three("x", x)
    k, _, s = _three("weight", weight)
    if s % 2 == 0 or s > MAX_TAPS:
        _refuse(f"{s} taps; their number must be odd, and at most {MAX_TAPS}")
    if groups < 1 or k % groups:
        _refuse(f"{k} channels do not fall into {groups} equal groups")
    if max(c * s, k, t) >= 2**31 - 1024:
        _refuse(f"sides of {c} x {s}, {k} and {t} must stay below 2**31 - 1024")
    _like("x", x, (b, c, t), torch.float32)
    _like("weight", weight, (k, c, s), torch.float32)
    if not weight.is_contiguous():
        _refuse(
            f"weight has strides {weight.stride()}, it must be dense; pass "
            "weight.contiguous()"
        )
    for name, each in {"bias": bias, "gamma": gamma, "beta": beta}.items():
        _like(name, each, (k,), torch.float32)
    y = x.new_empty(b, k, t)
    if y.numel() == 0:
        return y
    strides, channels = map(np.int64, x.stride()[:2]), k // groups
    norm = gamma, beta, y
    if way == "chain":
        convolved = torch.empty_like(y)
        sides = *map(np.int32, (c, t, k, s)), np.int64(y.numel())
        blocks = _at_most(-(-y.numel() // 256))
        given = x, *strides, weight, bias, convolved
        KERNELS.launch("dense_conv", blocks, 256, *given, *sides)
        sides = *map(np.int32, (t, groups, channels)), np.float32(eps)
        blocks = _at_most(b * groups)
        KERNELS.launch("dense_norm", blocks, 256, convolved, *norm, *sides)
        return y
    multiprocessors, room = _chip(x.device)
    share = 1  # also where blocks cannot be clusters
    if way == "cluster" and _clusters(x.device):
        share = parts(b * groups, channels, multiprocessors)
    each = -(-channels // share)
    if (shared := on_chip(s, each, t)) > room:
        _refuse(
            f"{each} x {t} outputs take {shared} bytes of shared memory, over {room}; "
            'use the way "chain"'
        )
    rows = (*x.stride()[:2], c * s)
    wide = all(n % 4 == 0 for n in (t, *rows)) and all(
        one.data_ptr() % 16 == 0 for one in (x, weight)
    )
    sides = *map(np.int32, (c, t, k, groups, share, each)), np.float32(eps)
    KERNELS.launch(
        f"dense_fused<{s}, {at_once(t)}, {4 if wide else 1}, {str(share > 1).lower()}>",
        _at_most(b * groups * share), 256, x, *strides, weight, bias, *norm, *sides,
        shared=shared, cluster=share if share > 1 else None,
    )  # fmt: skip
    return y
# --8<-- [end:dense]


# --8<-- [start:moved]
def asked(way: str, width: int, size: int) -> float:
    """Bytes that a depthwise way asks of the caches for an output of a long row.

    size: of an element. A warp's first lane takes the pack before it, in a sector.
    """
    if way == "naive":
        return size * (width + 1)
    per_warp = 32 * 16 * DEPTHWISE[way]
    return size * (2 + 32 / per_warp * (width > 1))


def moved(way: str, b: int, c: int, t: int, k: int, s: int) -> int:
    """Bytes of a dense way if each kernel reads its tensors once from memory."""
    y = b * k * t
    between = {"chain": 2 * y}.get(way, 0)  # written, and read by the next kernel
    return 4 * (b * c * t + k * c * s + y + between)
# --8<-- [end:moved]


def demo(device: str) -> None:
    """Both by every way against torch, and what they move."""
    draw = torch.Generator(device).manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, device=device)

    x, weight, bias = normal(2, 3, 1000), normal(3, 4), normal(3)
    padded = torch.nn.functional.pad(x, (3, 0))
    y = torch.nn.functional.conv1d(padded, weight[:, None], bias, groups=3)
    y = torch.nn.functional.silu(y)
    print("depthwise   close to torch   bytes an output, float32   bfloat16")
    for way in DEPTHWISE:
        found = depthwise(x, weight, bias, True, way)
        close = "yes" if torch.allclose(found, y, atol=1e-5) else "no"
        sizes = [asked(way, 4, size) for size in (4, 2)]
        print(f"{way:11} {close:>14} {sizes[0]:26.3f} {sizes[1]:10.3f}")
    x, weight = normal(2, 20, 16), normal(64, 20, 5)
    bias, gamma, beta = normal(64), normal(64), normal(64)
    y = torch.nn.functional.conv1d(x, weight, bias, padding=2)
    y = torch.nn.functional.group_norm(y, 2, gamma, beta)
    y = torch.nn.functional.mish(y)
    print("\ndense       close to torch   bytes, B = 1, C = K = 1024, T = 16, S = 5")
    for way in DENSE:
        found = dense(x, weight, bias, 2, gamma, beta, way=way)
        close = "yes" if torch.allclose(found, y, atol=1e-4) else "no"
        print(f"{way:11} {close:>14} {moved(way, 1, 1024, 16, 1024, 5):12}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

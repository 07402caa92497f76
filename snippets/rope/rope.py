"""RoPE turns pairs of a head by its position: q and k in one launch, angles met once.

Shapes  q (B, S, H_q, D) and k (B, S, H_k, D) -> the same, or (B, H, S, D) with
        heads_first; float32, float16 or bfloat16, any strides. Of each head the first
        R columns turn, R even and at most D, and the others are copied. Pair i is
        columns i and i + R / 2 (half-split: NeoX, Llama), or 2 i and 2 i + 1
        (interleaved: RoFormer, GPT-J): (a, b) -> (a cos - b sin, b cos + a sin).
        Tables cos, sin (P, R / 2), row p for position p; or without tables
        angle = p * base**(-2 i / R). Position p = offset + s, or offset +
        positions[b, s], int32 or int64. Backward is the inverse: -sin
Bytes   q and k read once and written once; a row of the tables for each token
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16, at any position
        up to 2**24: angles are in turns, of two float32 parts, less whole turns
Raises  ValueError for shapes, offsets and overlaps that do not fit; TypeError for other
        dtypes or several devices. A position beyond the tables, or beyond 2**24 without
        tables, is not seen before the launch: its rows become NaN
Source  roformer, liger-kernel
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.language.extra import libdevice

MAX_P = 2**24  # float32 holds every integer up to here
MAX_D = 512
WARPS = 4
TILE = 4096  # columns of all heads of a program: 32 a thread, in 4 loads of bfloat16
HEADS = 8  # heads that share the angles of a token
ANGLES = 512  # of a program, 4 a thread: each is a cosine and a sine in registers


# --8<-- [start:angles]
TAU = tl.constexpr(6.283185307179586)


@triton.jit
def angles(cos_ptr, sin_ptr, positions_ptr, position_stride, token, length, s, offset,
           pair, here, count, R: tl.constexpr, TABLES: tl.constexpr):
    """cos and sin of a tile (tokens, pairs); NaN where there is no such position."""
    if positions_ptr is None:
        p = (s + offset).to(tl.int64)
    else:
        b = token // length
        at = b.to(tl.int64) * position_stride[0] + s.to(tl.int64) * position_stride[1]
        p = tl.load(positions_ptr + at, mask=here, other=0).to(tl.int64) + offset
    known = (p >= 0) & (p < count)
    inside = pair < R // 2
    if TABLES:
        at = p[:, None] * (R // 2) + pair[None, :]
        seen = known[:, None] & inside[None, :]
        nan = float("nan")
        cos = tl.load(cos_ptr + at, mask=seen, other=nan).to(tl.float32)
        sin = tl.load(sin_ptr + at, mask=seen, other=nan).to(tl.float32)
    else:
        # p * turns is large and only its fraction counts. As float32 it would keep few
        # digits of that; the product's own rounding error, which a fused multiply-add
        # gives exactly, and the part of `turns` that its first float lacks restore it.
        high = tl.load(cos_ptr + pair, mask=inside, other=0.0)[None, :]
        low = tl.load(sin_ptr + pair, mask=inside, other=0.0)[None, :]
        wide = p.to(tl.float32)[:, None]
        product = libdevice.mul_rn(wide, high)
        rest = tl.fma(wide, high, -product) + wide * low
        turn = (product - libdevice.rint(product)) + rest
        angle = tl.where(known[:, None], turn * TAU, float("nan"))
        # From -pi to pi the fast functions are within 2**-20, and have no slow path.
        cos = libdevice.fast_cosf(angle)
        sin = libdevice.fast_sinf(angle)
    return cos, sin
# --8<-- [end:angles]


# --8<-- [start:rotate]
@triton.jit
def rotate(y_ptr, x_ptr, y_stride, x_stride, cos, sin, token, length, first, heads,
           here, HEADS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
           R: tl.constexpr, D: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Turn a tile (tokens, heads, pairs) by the angles that its heads share."""
    b = (token // length).to(tl.int64)[:, None, None]
    s = (token % length).to(tl.int64)[:, None, None]
    head = first + tl.arange(0, HEADS)[None, :, None]
    h = head.to(tl.int64)
    x_ptr += b * x_stride[0] + s * x_stride[1] + h * x_stride[2]
    y_ptr += b * y_stride[0] + s * y_stride[1] + h * y_stride[2]
    row = here[:, None, None] & (head < heads)
    cos = cos[:, None, :]
    sin = sin[:, None, :]
    if INTERLEAVED:  # whole pairs come in one load, and are parted in registers
        col = tl.arange(0, 2 * PAIRS)[None, None, :]
        mask = row & (col < R)
        x = tl.load(x_ptr + col * x_stride[3], mask=mask, other=0.0).to(tl.float32)
        a, c = tl.split(x.reshape(x.shape[0], HEADS, PAIRS, 2))
        y = tl.join(a * cos - c * sin, c * cos + a * sin)
        y = y.reshape(x.shape[0], HEADS, 2 * PAIRS)
        tl.store(y_ptr + col * y_stride[3], y.to(y_ptr.dtype.element_ty), mask=mask)
    else:  # each half is a load of its own, and no lane needs what another has
        pair = tl.arange(0, PAIRS)[None, None, :]
        mask = row & (pair < R // 2)
        other = pair + R // 2
        a = tl.load(x_ptr + pair * x_stride[3], mask=mask, other=0.0).to(tl.float32)
        c = tl.load(x_ptr + other * x_stride[3], mask=mask, other=0.0).to(tl.float32)
        left = (a * cos - c * sin).to(y_ptr.dtype.element_ty)
        right = (c * cos + a * sin).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + pair * y_stride[3], left, mask=mask)
        tl.store(y_ptr + other * y_stride[3], right, mask=mask)
    if REST > 0:  # columns that do not turn; none to copy in place
        col = R + tl.arange(0, REST)[None, None, :]
        mask = row & (col < D)
        x = tl.load(x_ptr + col * x_stride[3], mask=mask)
        tl.store(y_ptr + col * y_stride[3], x, mask=mask)
# --8<-- [end:rotate]


# --8<-- [start:kernel]
@triton.jit
def rope_shared(q_out, k_out, q, k, cos_ptr, sin_ptr, positions, q_out_stride,
                k_out_stride, q_stride, k_stride, position_stride, tokens, length, h_q,
                h_k, offset, count, TOKENS: tl.constexpr, HEADS: tl.constexpr,
                PAIRS: tl.constexpr, REST: tl.constexpr, R: tl.constexpr,
                D: tl.constexpr, TABLES: tl.constexpr, INTERLEAVED: tl.constexpr,
                INVERSE: tl.constexpr):
    # The groups of heads of a few tokens are neighbours: L2 has the rows of the tables.
    of_q = tl.cdiv(h_q, HEADS)
    groups = of_q + tl.cdiv(h_k, HEADS)
    group = tl.program_id(0) % groups
    token = tl.program_id(0) // groups * TOKENS + tl.arange(0, TOKENS)
    here = token < tokens
    cos, sin = angles(cos_ptr, sin_ptr, positions, position_stride, token, length,
                      token % length, offset, tl.arange(0, PAIRS), here, count, R,
                      TABLES)
    if INVERSE:
        sin = -sin
    if group < of_q:
        rotate(q_out, q, q_out_stride, q_stride, cos, sin, token, length, group * HEADS,
               h_q, here, HEADS, PAIRS, REST, R, D, INTERLEAVED)
    else:
        rotate(k_out, k, k_out_stride, k_stride, cos, sin, token, length,
               (group - of_q) * HEADS, h_k, here, HEADS, PAIRS, REST, R, D, INTERLEAVED)
# --8<-- [end:kernel]


# --8<-- [start:alone]
@triton.jit
def rope_alone(out, x, cos_ptr, sin_ptr, positions, out_stride, x_stride,
               position_stride, length, heads, offset, count, PAIRS: tl.constexpr,
               REST: tl.constexpr, R: tl.constexpr, D: tl.constexpr,
               TABLES: tl.constexpr, INTERLEAVED: tl.constexpr, INVERSE: tl.constexpr):
    """One head of one token, by one warp; q and k are a launch each."""
    token = tl.program_id(0) // heads + tl.arange(0, 1)
    here = token >= 0
    cos, sin = angles(cos_ptr, sin_ptr, positions, position_stride, token, length,
                      token % length, offset, tl.arange(0, PAIRS), here, count, R,
                      TABLES)
    if INVERSE:
        sin = -sin
    rotate(out, x, out_stride, x_stride, cos, sin, token, length,
           tl.program_id(0) % heads, heads, here, 1, PAIRS, REST, R, D, INTERLEAVED)
# --8<-- [end:alone]


# --8<-- [start:launch]
class Turns(NamedTuple):
    """Where angles come from: tables, or the base of the frequencies."""

    cos: torch.Tensor | None = None
    sin: torch.Tensor | None = None
    positions: torch.Tensor | None = None
    offset: int = 0
    base: float = 10_000.0
    rotary_dim: int | None = None  # of heads, if there are no tables to tell
    interleaved: bool = False
    heads_first: bool = False


@functools.lru_cache(maxsize=64)
def frequencies(
    base: float, r: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turns a position of each pair, as a float32 and what that one lacks."""
    exponent = torch.arange(0, r, 2, dtype=torch.float64) / -max(r, 1)
    turns = base**exponent / (2 * math.pi)
    high = turns.float()
    return high.to(device), (turns - high.double()).float().to(device)


def turn(
    q: torch.Tensor,
    k: torch.Tensor,
    turns: Turns,
    inverse: bool = False,
    in_place: bool = False,
    variant: str = "shared",
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k turned forwards, or back; `in_place` writes over them."""
    r = check(q, k, turns)
    if in_place:
        for name, tensor in (("q", q), ("k", k)):
            if shared(tensor):
                raise ValueError(
                    f"rope: {name} has strides {tensor.stride()}, so elements share "
                    "memory; turn a copy"
                )
    outs = (q, k) if in_place else (torch.empty_like(q), torch.empty_like(k))
    # The kernels know (B, S, H, D) alone: another order of the strides is enough.
    views = [x.transpose(1, 2) if turns.heads_first else x for x in (*outs, q, k)]
    batch, length, h_q, d = views[2].shape
    h_k = views[3].shape[2]
    if batch * length * d == 0 or h_q + h_k == 0:
        return outs
    if turns.cos is None or turns.sin is None:
        given, count = frequencies(turns.base, r, q.device), MAX_P + 1
    else:
        given, count = (turns.cos.contiguous(), turns.sin.contiguous()), len(turns.cos)
    pairs = triton.next_power_of_2(max(r // 2, 1))
    rest = 0 if in_place or r == d else triton.next_power_of_2(d - r)
    steps = (0, 0) if turns.positions is None else turns.positions.stride()
    constants = {
        "PAIRS": pairs, "REST": rest, "R": r, "D": d, "TABLES": turns.cos is not None,
        "INTERLEAVED": turns.interleaved, "INVERSE": inverse,
    }  # fmt: skip
    with torch.cuda.device_of(q):
        if variant == "alone":
            for out, x in ((views[0], views[2]), (views[1], views[3])):
                if x.numel():
                    rope_alone[(batch * length * x.shape[2],)](
                        out, x, *given, turns.positions, out.stride(), x.stride(),
                        steps, length, x.shape[2], turns.offset, count,
                        num_warps=1, **constants,
                    )  # fmt: skip
            return outs
        heads = min(HEADS, triton.next_power_of_2(max(h_q, h_k)))
        tokens = min(TILE // (heads * max(2 * pairs, rest)), ANGLES // pairs, 128)
        tokens = max(1, tokens)
        groups = triton.cdiv(h_q, heads) + triton.cdiv(h_k, heads)
        rope_shared[(triton.cdiv(batch * length, tokens) * groups,)](
            *views, *given, turns.positions, *(x.stride() for x in views), steps,
            batch * length, length, h_q, h_k, turns.offset, count,
            TOKENS=tokens, HEADS=heads, num_warps=WARPS, **constants,
        )  # fmt: skip
    return outs
# --8<-- [end:launch]


def shared(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie at one address."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach = max(reach, stride * size)
    return False


def check(q: torch.Tensor, k: torch.Tensor, turns: Turns) -> int:
    """R, after a look at what is to be turned and by what.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, or R or the offset is out of range.
    """
    for name, x in (("q", q), ("k", k)):
        if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"rope: {name} is {x.dtype}, none of float32, float16, bfloat16; "
                "convert it first"
            )
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(
                f"rope: {name} is {x.dtype} on {x.device}, but q {q.dtype} on "
                f"{q.device}; bring them together"
            )
        if x.ndim != 4:
            raise ValueError(
                f"rope: {name} has {x.ndim} dimensions; give it 4: sequence, position, "
                "head, column"
            )
    batch, length, d = q.shape[0], q.shape[2 if turns.heads_first else 1], q.shape[3]
    if (k.shape[0], k.shape[2 if turns.heads_first else 1], k.shape[3]) != (
        batch, length, d
    ):  # fmt: skip
        raise ValueError(
            f"rope: q {tuple(q.shape)} and k {tuple(k.shape)} differ in more than "
            "heads; give both the same tokens and columns"
        )
    r = d if turns.rotary_dim is None else turns.rotary_dim
    count = MAX_P + 1
    if (turns.cos is None) != (turns.sin is None):
        raise ValueError("rope: one of cos and sin is None; give both, or neither")
    if turns.cos is not None and turns.sin is not None:
        if turns.cos.ndim != 2 or turns.cos.shape != turns.sin.shape:
            raise ValueError(
                f"rope: cos is {tuple(turns.cos.shape)} and sin "
                f"{tuple(turns.sin.shape)}; make both (P, R / 2)"
            )
        count, r = turns.cos.shape[0], 2 * turns.cos.shape[1]
        for name, x in (("cos", turns.cos), ("sin", turns.sin)):
            if not x.is_floating_point() or x.dtype is torch.float64:
                raise TypeError(
                    f"rope: {name} is {x.dtype}, none of float32, float16, bfloat16; "
                    "convert it first"
                )
    if r < 0 or r % 2 or r > d or d > MAX_D:
        raise ValueError(
            f"rope: R = {r} is no even number up to D = {d}, or D exceeds MAX_D = "
            f"{MAX_D}; turn fewer columns"
        )
    others = {"cos": turns.cos, "sin": turns.sin, "positions": turns.positions}
    for name, each in others.items():
        if each is not None and each.device != q.device:
            raise TypeError(
                f"rope: {name} is on {each.device}, but q on {q.device}; bring them "
                "together"
            )
    if turns.positions is not None:
        if turns.positions.dtype not in (torch.int32, torch.int64):
            raise TypeError(
                f"rope: positions are {turns.positions.dtype}, neither int32 nor "
                "int64; convert them first"
            )
        if turns.positions.shape != (batch, length):
            raise ValueError(
                f"rope: positions are {tuple(turns.positions.shape)}; with this q they "
                f"must be {(batch, length)}"
            )
    elif length and not 0 <= turns.offset <= count - length:
        raise ValueError(
            f"rope: positions {turns.offset} to {turns.offset + length - 1} are not "
            f"within the {count} that have angles; extend the tables or lower offset"
        )
    if not 0 < turns.base < math.inf:
        raise ValueError(f"rope: base = {turns.base} is not positive; use 10000")
    return r


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::rope", mutates_args=())
def turned(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    positions: torch.Tensor | None,
    offset: int,
    base: float,
    rotary_dim: int | None,
    interleaved: bool,
    heads_first: bool,
    inverse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    turns = (cos, sin, positions, offset, base, rotary_dim, interleaved, heads_first)
    return turn(q, k, Turns(*turns), inverse)


@turned.register_fake
def _(q, k, *turns):
    return torch.empty_like(q), torch.empty_like(k)


def remember(ctx, inputs, output) -> None:
    *ctx.turns, ctx.inverse = inputs[5:]
    ctx.save_for_backward(*inputs[2:5])


def gradients(ctx, dq, dk):
    # The transpose of a rotation is the rotation back: nothing of q or k is kept.
    given = (*ctx.saved_tensors, *ctx.turns, not ctx.inverse)
    return *turned(dq, dk, *given), *(None,) * 9


turned.register_autograd(gradients, setup_context=remember)


def rope(
    q: torch.Tensor, k: torch.Tensor, turns: Turns | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k turned, differentiable in both; tables get no gradient."""
    turns = Turns() if turns is None else turns
    check(q, k, turns)
    return turned(q, k, *turns, False)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """What a turn keeps, what float32 angles lose, and a refusal."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, 4, 64, generator=generator).to(device)
    k = torch.randn(1, 4, 2, 64, generator=generator).to(device)
    near = rope(q, k)
    far = rope(q, k, Turns(offset=999_000))
    norms = torch.stack([x.norm() / q.norm() for x in (near[0], far[0])])
    print("length after the turn:", *(f"{x:.4f}" for x in norms.tolist()))
    scores = [(a[0, 3, 0] @ b[0, 1, 0]).item() for a, b in (near, far)]
    print("q at 3 by k at 1: ", *(f"{x:.4f}" for x in scores), "(999,000 further)")
    back = turn(*far, Turns(offset=999_000), inverse=True)[0]
    print("turned back within 2e-6:", bool((back - q).norm() <= 2e-6 * q.norm()))
    p = 999_000 + torch.arange(4)
    rate = 10_000.0 ** (torch.arange(0, 64, 2, dtype=torch.float64) / -64)
    exact = p[:, None] * rate
    narrow = p[:, None].float() * rate.float()
    loss = (narrow.double().cos() - exact.cos()).abs().max().item()
    print(f"cos of float32 angles at 999,000 is off by {loss:.2f}")
    try:
        rope(q, k, Turns(offset=2**24))
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

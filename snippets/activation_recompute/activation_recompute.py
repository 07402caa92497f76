"""What a transformer layer keeps for its backward pass: all, a part, or its input.

Shapes  x (s, b, h), and of t ranks each a / t heads; with sequence parallelism also
        s / t of the sequence outside the products
Bytes   kept a layer and rank in 16 bits, beside 4 s b statistics of the two
        normalizations: s b h (34 + 5 a s / h) on one rank; s b h (10 + 24 / t +
        5 a s / (h t)) by tensor parallelism, s b h / t (34 + 5 a s / h) with sequence
        parallelism; without the term in s**2 where attention is recomputed, 2 s b h
        where the layer is
FLOPs   forward 24 b s h**2 + 4 b s**2 h, backward twice that; recomputed beside it:
        4 b s**2 h, or all of forward
Error   outputs and gradients within 1e-12 of the float64 layer on one process that
        keeps all
Raises  ValueError if the heads, the hidden size or the sequence do not split, or for a
        way of recomputing that is not in WAYS
Source  reducing-activation-recomputation, megatron-lm
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from snippets import ranks
from snippets.collectives import Library
from snippets.tensor_parallel.meeting import Copied, GatheredProduct, Scattered, Summed

WAYS = ("none", "selective", "full")
DROPPED = 0.1  # of the elements, by dropout
Parameters = dict[str, torch.Tensor]


class Sizes(NamedTuple):
    """Of a layer: sequence, batch, hidden, heads."""

    s: int
    b: int
    h: int
    a: int


SIZES = Sizes(s=24, b=2, h=64, a=8)


# --8<-- [start:layer]
def layer(x: torch.Tensor, w: Parameters, mine: Share, recompute: str) -> torch.Tensor:
    """A layer of Megatron's form, of which `mine` says what this rank computes.

    Each line that keeps something says what, in bytes by s b h at 16 bits.
    """
    normal = F.layer_norm(x, x.shape[-1:], w["norm1"], w["shift1"])  # 2: its input
    qkv = mine.spread(normal, w["qkv"])  # 2: its input
    q, k, v = qkv.view(*qkv.shape[:2], -1, 3 * mine.width).chunk(3, -1)
    if recompute == "selective":  # 6 / t: q, k and v
        mixed = checkpoint(attention, q, k, v, mine, use_reentrant=True)
    else:
        mixed = attention(q, k, v, mine)
    x = x + mine.drop(mine.gather(mixed, w["out"]), "out")  # 2 / t: its input; 1
    normal = F.layer_norm(x, x.shape[-1:], w["norm2"], w["shift2"])  # 2
    up = mine.spread(normal, w["up"])  # 2
    down = mine.gather(F.gelu(up), w["down"])  # 8 / t: of GeLU; 8 / t: of the product
    return x + mine.drop(down, "down")  # 1: a mask of one byte


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mine: Share
) -> torch.Tensor:
    """The part that keeps what grows with s**2, and is made anew for few operations."""
    s, b, heads, d = q.shape
    q, k, v = (x.reshape(s, b * heads, d).transpose(0, 1) for x in (q, k, v))  # 6 / t
    scores = torch.bmm(q, k.mT) / math.sqrt(d)
    weights = mine.drop(scores.softmax(-1), "weights")  # 2 a s / (h t), and its mask
    mixed = torch.bmm(weights, v)  # 2 a s / (h t)
    return mixed.transpose(0, 1).reshape(s, b, heads * d)
# --8<-- [end:layer]


# --8<-- [start:share]
class Share:
    """What one of t ranks has of a layer, and how it meets the others.

    `sequence`: whether it has s / t of the rows outside the products as well.
    """

    def __init__(self, sizes: Sizes, rank: int, t: int, sequence: bool) -> None:
        if sizes.a % t or sizes.h % sizes.a or (sequence and sizes.s % t):
            raise ValueError(
                f"activation_recompute: {sizes} does not split into {t}; heads must "
                "split over ranks, hidden over heads, and s for sequence parallelism"
            )
        self.sizes, self.rank, self.t = sizes, rank, t
        self.sequence = sequence and t > 1
        self.group = Library()
        self.width = sizes.h // sizes.a  # of a head

    def spread(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """x w^T with the rank's rows of w; x is gathered along the sequence first."""
        if self.sequence:
            return GatheredProduct.apply(x, w, None, self.group)
        return F.linear(Copied.apply(x, self.group) if self.t > 1 else x, w)

    def gather(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """x w^T with the rank's columns of w, summed over ranks: of the rank's rows."""
        part = F.linear(x, w)
        if self.sequence:
            return Scattered.apply(part, self.group)
        return Summed.apply(part, self.group) if self.t > 1 else part

    def drop(self, x: torch.Tensor, site: str) -> torch.Tensor:
        """Dropout by a mask that is the rank's part of that on one process."""
        s, b, h, a = self.sizes
        if site == "weights":
            whole = mask((s, s, b * a), site).permute(2, 0, 1).view(b, a, s, s)
            own = whole.chunk(self.t, 1)[self.rank].reshape(x.shape)
        else:
            whole = mask((s, b, h), site)
            own = whole
            if self.sequence:
                own = whole.chunk(self.t)[self.rank]
        zero = torch.zeros((), dtype=x.dtype)
        return torch.where(own.clone(), x, zero) / (1 - DROPPED)


def mask(shape: tuple[int, ...], site: str) -> torch.Tensor:
    """Which elements stay, the same at each call: nothing has to be kept."""
    draw = torch.Generator().manual_seed(len(site))
    return torch.rand(shape, generator=draw) >= DROPPED
# --8<-- [end:share]


# --8<-- [start:kept]
def kept(
    run: Callable[[], torch.Tensor], w: Parameters
) -> tuple[torch.Tensor, int, int]:
    """What `run` returns, the bytes it keeps for backward, and those of statistics.

    A storage counts once, however many keep a view of it; parameters do not count.
    """
    own = {one.untyped_storage().data_ptr() for one in w.values()}
    found: dict[int, torch.Tensor] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        if x.untyped_storage().data_ptr() not in own and x.numel() > 1:
            found[x.untyped_storage().data_ptr()] = x.detach()  # so it is not reused
        return x

    with saved_tensors_hooks(pack, lambda x: x):
        out = run()
    sizes = [(x.shape[-1] == 1, x.untyped_storage().nbytes()) for x in found.values()]
    return (
        out,
        sum(size for statistic, size in sizes if not statistic),
        sum(size for statistic, size in sizes if statistic),
    )
# --8<-- [end:kept]


def whole(
    sizes: Sizes, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, Parameters]:
    """Seeded x and dy (s, b, h), and the parameters as one process has them."""
    s, b, h, _ = sizes
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    x, dy = normal(s, b, h), normal(s, b, h)
    w = {
        "norm1": 1 + normal(h) / 8, "shift1": normal(h) / 8,
        "qkv": normal(3 * h, h) / math.sqrt(h), "out": normal(h, h) / math.sqrt(h),
        "norm2": 1 + normal(h) / 8, "shift2": normal(h) / 8,
        "up": normal(4 * h, h) / math.sqrt(h), "down": normal(h, 4 * h) / math.sqrt(h),
    }  # fmt: skip
    return x.to(dtype), dy.to(dtype), {name: one.to(dtype) for name, one in w.items()}


ROWS, COLUMNS = ("qkv", "up"), ("out", "down")  # along what a matrix is split


def part(name: str, one: torch.Tensor, rank: int, t: int) -> torch.Tensor:
    """The rank's part of a parameter, or of its gradient."""
    if name in ROWS:
        return one.chunk(t)[rank].clone()
    return one.chunk(t, 1)[rank].clone() if name in COLUMNS else one.clone()


def on_rank(
    rank: int, t: int, sequence: bool, recompute: str, dtype: torch.dtype, sizes: Sizes
) -> dict[str, Any]:
    """A layer forward and back: its output, gradients, and bytes that it kept."""
    if recompute not in WAYS:
        raise ValueError(
            f"activation_recompute: no way {recompute!r}; there are {', '.join(WAYS)}"
        )
    mine = Share(sizes, rank, t, sequence)
    x, dy, w = whole(sizes, dtype)
    w = {k: part(k, one, rank, t).requires_grad_() for k, one in w.items()}
    if mine.sequence:
        x, dy = (one.chunk(t)[rank].clone() for one in (x, dy))
    x.requires_grad_()

    def run() -> torch.Tensor:
        if recompute == "full":
            return checkpoint(layer, x, w, mine, "none", use_reentrant=True)
        return layer(x, w, mine, recompute)

    out, activations, statistics = kept(run, w)
    out.backward(dy)
    grads = {"x": x.grad} | {name: one.grad for name, one in w.items()}
    if mine.sequence:  # each rank saw its own rows
        shared = [name for name in w if name not in (*ROWS, *COLUMNS)]
        grads |= {name: mine.group.all_reduce(grads[name]) for name in shared}
    return {"out": out.detach(), "grads": grads, "bytes": activations,
            "statistics": statistics}  # fmt: skip


def each(rank: int, t: int, wanted: list[tuple]) -> list[dict[str, Any]]:
    """`on_rank` for each of what is wanted: (sequence, recompute, dtype, sizes)."""
    return [on_rank(rank, t, *one) for one in wanted]


def demo(device: str) -> None:
    """The bytes that a layer keeps, by way, on one rank and on two."""
    s, b, h, a = SIZES
    print(f"s {s}, b {b}, h {h}, a {a}, bfloat16: bytes kept, in s b h")
    one, both = (
        [(sequence, way, torch.bfloat16, SIZES) for sequence in ways for way in WAYS]
        for ways in ((False,), (False, True))
    )
    found = each(0, 1, one) + ranks.run(each, 2, both, backend="gloo")[0]
    names = ("one rank", "2 ranks", "2 ranks, sequence too")
    for at, name in enumerate(names):
        told = zip(WAYS, found[len(WAYS) * at :], strict=False)
        kept = (f"{way} {one['bytes'] / (s * b * h):g}" for way, one in told)
        print(f"{name:22}{', '.join(kept)}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

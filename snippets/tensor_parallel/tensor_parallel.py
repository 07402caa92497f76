"""A transformer on t ranks: matrices, heads and vocabulary in parts, or the sequence.

Shapes  ids, targets (s, b) -> loss (); of t ranks each has a / t heads, 4 h / t hidden
        columns and V / t words ("tensor"), beside that s / t of the rows outside the
        products ("sequence"), or s / t of all rows and whole weights ("ring")
Bytes   sent by a rank for a layer, with S = s b h numbers, forward and backward:
        tensor 4 S (t - 1) / t each; sequence 4 S (t - 1) / t and 6 S (t - 1) / t, since
        inputs of products are gathered again; ring 2 S (t - 1) / t and 6 S (t - 1) / t
Error   loss and gradients within 1e-12 of the float64 model on one process
Raises  ValueError if the heads, the hidden size, the vocabulary or the sequence do not
        split, or for a layout that is not in LAYOUTS
Source  megatron-lm, reducing-activation-recomputation,
        sequence-parallelism-system-perspective
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from snippets import ranks
from snippets.collectives import Library, Ring
from snippets.tensor_parallel.meeting import Copied, GatheredProduct, Scattered, Summed
from snippets.tensor_parallel.ring_rows import RingRows
from snippets.tensor_parallel.vocabulary import CrossEntropy, embedded

LAYOUTS = ("tensor", "sequence", "ring", "ring, scattered")
Parameters = dict[str, torch.Tensor]


class Sizes(NamedTuple):
    """Of a model: sequence, batch, hidden, heads, words, layers."""

    s: int
    b: int
    h: int
    a: int
    words: int
    layers: int


SIZES = Sizes(s=24, b=2, h=48, a=8, words=104, layers=2)


# --8<-- [start:model]
def model(
    ids: torch.Tensor, targets: torch.Tensor, w: Parameters, mine: Split
) -> torch.Tensor:
    """The mean loss of a GPT, tied words, of which `mine` says what is this rank's."""
    x = mine.embed(ids, w["words"])
    for at in range(mine.sizes.layers):
        x = layer(x, {k.split(".")[1]: w[k] for k in w if k.startswith(f"{at}.")}, mine)
    x = F.layer_norm(x, x.shape[-1:], w["norm"], w["shift"])
    return mine.loss(mine.spread(x, w["words"], None), targets)


def layer(x: torch.Tensor, w: Parameters, mine: Split) -> torch.Tensor:
    """Attention and a feed-forward. Ranks meet in `spread` and `gather`."""
    normal = F.layer_norm(x, x.shape[-1:], w["norm1"], w["shift1"])
    qkv = mine.spread(normal, w["qkv"], w["qkv_bias"])  # heads outermost in its columns
    q, k, v = qkv.view(*qkv.shape[:2], -1, 3 * mine.width).chunk(3, -1)
    x = x + mine.gather(mine.attention(q, k, v), w["out"], w["out_bias"])
    normal = F.layer_norm(x, x.shape[-1:], w["norm2"], w["shift2"])
    up = F.gelu(mine.spread(normal, w["up"], w["up_bias"]))
    return x + mine.gather(up, w["down"], w["down_bias"])
# --8<-- [end:model]


# --8<-- [start:split]
class Split:
    """What one rank of a group has of a model, and how it meets the others."""

    def __init__(self, sizes: Sizes, group: Library, layout: str) -> None:
        if layout not in LAYOUTS:
            raise ValueError(
                f"tensor_parallel: no layout {layout!r}; there are {', '.join(LAYOUTS)}"
            )
        self.sizes, self.group, self.layout = sizes, group, layout
        self.ring = layout.startswith("ring")
        self.rows = layout != "tensor"  # s / t of them outside the products
        parts = {"hidden size over heads": sizes.h % sizes.a}
        if not self.ring:
            parts |= {"heads over ranks": sizes.a % group.size}
            parts |= {"vocabulary over ranks": sizes.words % group.size}
        if self.rows:
            parts |= {"sequence over ranks": sizes.s % group.size}
        wrong = [name for name, left in parts.items() if left]
        if wrong:
            raise ValueError(
                f"tensor_parallel: {sizes} on {group.size} ranks: the {wrong[0]} does "
                "not split evenly; pad it, or take fewer ranks"
            )
        self.width = sizes.h // sizes.a  # of a head

    def spread(
        self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """x w^T by the rank's rows of w: columns of the result."""
        if self.layout == "sequence":
            return GatheredProduct.apply(x, w, bias, self.group)
        return F.linear(x if self.ring else Copied.apply(x, self.group), w, bias)

    def gather(
        self, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
    ) -> torch.Tensor:
        """x w^T by the rank's columns of w, summed over ranks; the bias once."""
        return self.meet(F.linear(x, w)) + bias

    def meet(self, part: torch.Tensor) -> torch.Tensor:
        """The sum of what ranks have in part: all of it, or the rank's rows."""
        if self.ring:
            return part
        return (Scattered if self.rows else Summed).apply(part, self.group)

    def embed(self, ids: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Vectors of the words: of all of them, or of the rank's rows."""
        if self.ring:
            return F.embedding(ids.chunk(self.group.size)[self.group.rank], words)
        return self.meet(embedded(ids, words, self.group.rank))

    def attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> torch.Tensor:
        """Causal, of the rank's heads over all tokens, or of its tokens with all."""
        s, b, heads, d = q.shape
        q, k, v = (x.permute(1, 2, 0, 3).reshape(b * heads, s, d) for x in (q, k, v))
        if self.ring:
            published = self.layout == "ring"
            mixed = RingRows.apply(q, k, v, self.group, published)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return mixed.view(b, heads, s, d).permute(2, 0, 1, 3).reshape(s, b, heads * d)

    def loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy; of a ring's rank the part that its rows have in it."""
        if self.ring:
            targets = targets.chunk(self.group.size)[self.group.rank]
            total = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            return total / self.group.size
        return CrossEntropy.apply(logits, targets, self.group).mean()

    def finish(self, grads: Parameters) -> Parameters:
        """Gradients of what all ranks hold whole and saw with other rows, summed."""
        rowed = [name for name in grads if self.ring or cut(name) is None]
        if self.rows:
            flat = self.group.all_reduce(torch.cat([grads[k].flatten() for k in rowed]))
            sizes = [grads[name].numel() for name in rowed]
            for name, total in zip(rowed, flat.split(sizes), strict=True):
                grads[name] = total.view(grads[name].shape)
        return grads
# --8<-- [end:split]


# --8<-- [start:cut]
CUT = {"words": 0, "qkv": 0, "qkv_bias": 0, "up": 0, "up_bias": 0, "out": 1, "down": 1}


def cut(name: str) -> int | None:
    """Along what a parameter is cut for ranks; None where all have the whole."""
    return CUT.get(name.split(".")[-1])
# --8<-- [end:cut]


def whole(sizes: Sizes) -> tuple[torch.Tensor, torch.Tensor, Parameters]:
    """Seeded ids and targets (s, b), and the parameters as one process has them."""
    s, b, h, _, words, layers = sizes
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    w = {"words": normal(words, h)}
    for at in range(layers):
        own = {
            "norm1": 1 + normal(h) / 8, "shift1": normal(h) / 8,
            "qkv": normal(3 * h, h) / math.sqrt(h), "qkv_bias": normal(3 * h) / 8,
            "out": normal(h, h) / math.sqrt(h), "out_bias": normal(h) / 8,
            "norm2": 1 + normal(h) / 8, "shift2": normal(h) / 8,
            "up": normal(4 * h, h) / math.sqrt(h), "up_bias": normal(4 * h) / 8,
            "down": normal(h, 4 * h) / math.sqrt(4 * h), "down_bias": normal(h) / 8,
        }  # fmt: skip
        w |= {f"{at}.{name}": one for name, one in own.items()}
    w |= {"norm": 1 + normal(h) / 8, "shift": normal(h) / 8}
    ids, targets = torch.randint(words, (2, s, b), generator=draw)
    return ids, targets, w


def part(name: str, one: torch.Tensor, mine: Split) -> torch.Tensor:
    """The rank's part of a parameter, or of its gradient."""
    dim = None if mine.ring else cut(name)
    if dim is None:
        return one.clone()
    return one.chunk(mine.group.size, dim)[mine.group.rank].clone()


def on_rank(
    group: Library, layout: str, sizes: Sizes, device: torch.device = ranks.CPU
) -> dict[str, Any]:
    """Loss and gradients of one rank, and what it has sent by the end of each phase.

    `sent` and `messages` stay 0 unless the group is a Ring; `calls` are by name.
    """
    mine = Split(sizes, group, layout)
    ids, targets, w = whole(sizes)
    ids, targets = ids.to(device), targets.to(device)
    w = {k: part(k, one, mine).to(device).requires_grad_() for k, one in w.items()}
    told: dict[str, Any] = {"sent": [0], "messages": [0], "calls": [{}]}

    def phase() -> None:
        wire = group.wire if isinstance(group, Ring) else ranks.Wire()
        told["sent"].append(wire.sent)
        told["messages"].append(wire.messages)
        told["calls"].append(dict(group.calls))

    loss = model(ids, targets, w, mine)
    phase()
    loss.backward()
    phase()
    grads = mine.finish({name: one.grad for name, one in w.items()})
    phase()
    loss = loss.detach()
    if mine.ring:
        loss = group.all_reduce(loss[None])[0]
    told["grads"] = {name: one.cpu() for name, one in grads.items()}
    return told | {"loss": float(loss)}


def each(rank: int, t: int, wanted: list[tuple[str, Sizes]]) -> list[dict[str, Any]]:
    """`on_rank` for each (layout, sizes) wanted, in messages that are counted."""
    return [on_rank(Ring(), *one, device=ranks.device()) for one in wanted]


def demo(device: str) -> None:
    """Bytes that a rank of four sends for two layers, their ends and a loss."""
    s, b, h = SIZES[:3]
    print(f"{SIZES}, 4 ranks")
    print("sent by a rank, in s b h (t - 1) / t numbers:")
    backend = "gloo" if device == "cpu" else None
    unit = s * b * h * torch.float64.itemsize * 3 / 4
    wanted = [(layout, SIZES) for layout in LAYOUTS]
    found = ranks.run(each, 4, wanted, backend=backend)[0]
    for layout, told in zip(LAYOUTS, found, strict=True):
        sent = told["sent"]
        shares = [(after - before) / unit for before, after in pairwise(sent)]
        names = zip(("forward", "backward", "gradients"), shares, strict=True)
        print(f"{layout:16}", ", ".join(f"{name} {share:.3f}" for name, share in names))
        print(f"{'':16} loss {told['loss']:.12f}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

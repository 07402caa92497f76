"""A gathering and a product in one loop: a shard is multiplied while the next arrives.

Shapes  gather_matmul: x (s / t, k) and w (n, k) on each of t ranks -> (s, n), all rows
        by the rank's w; matmul_scatter: x (s, k) and w (n, k) -> (s / t, n), the
        rank's rows of the sum over ranks
Bytes   sent by a rank: (t - 1) / t of the gathered or of the summed tensor, in t - 1
        messages: what the collective sends that the loop takes the place of
FLOPs   2 s n k, in t products
Error   outputs and gradients within 1e-12 of the float64 product on one process
Raises  ValueError for a way that is not in WAYS, or rows that do not split
Source  overlap-by-decomposition, pytorch-async-tensor-parallelism
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from snippets import ranks
from snippets.collectives import Ring

WAYS = ("collective", "ring", "both ways")
S, K, N = 48, 20, 28  # rows, columns of x, columns of a rank's result


class Event(NamedTuple):
    """What a rank did: "send", "arrive" or "product", and of whose shard."""

    what: str
    shard: int


Log = list[Event]


class Loop:
    """A rank of a ring, the way it gathers and scatters, and what it did, in order."""

    def __init__(self, ring: Ring, way: str) -> None:
        if way not in WAYS:
            raise ValueError(
                f"async_tensor_parallel: no way {way!r}; there are {', '.join(WAYS)}"
            )
        self.ring, self.way = ring, way
        self.log: Log = []
        others = ring.size - 1  # how many hops there are in each direction
        self.far = {1: others - others // 2, -1: others // 2}
        if way == "ring":
            self.far = {1: others}

    def note(self, what: list[str], shard: int) -> None:
        """Write down what is done, in order."""
        self.log += [Event(one, shard % self.ring.size) for one in what]

    # --8<-- [start:shards]
    def shards(self, x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Every rank's x, its own first; the next is on its way meanwhile."""
        ring, t = self.ring, self.ring.size
        if self.way == "collective":
            self.note(["send", "arrive"] * (t - 1), ring.rank)
            yield from enumerate(ring.all_gather(x).chunk(t))
            return
        here = dict.fromkeys(self.far, x)  # what goes on in each direction
        ready = [(ring.rank, x)]
        for hop in range(1, max(self.far.values()) + 1):
            coming = {}
            for end in (end for end, far in self.far.items() if hop <= far):
                self.note(["send"], ring.rank - end * (hop - 1))
                coming[end] = ring.pass_on([here[end]], end)
            yield from ready  # multiplied while those travel
            ready = []
            for end, arrive in coming.items():
                (here[end],) = arrive()
                owner = (ring.rank - end * hop) % t
                self.note(["arrive"], owner)
                ready.append((owner, here[end]))
        yield from ready
    # --8<-- [end:shards]

    # --8<-- [start:products]
    def gather_matmul(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """All ranks' rows times w^T: (s / t, k), (n, k) -> (s, n)."""
        y = x.new_empty(self.ring.size, len(x), len(w))
        for owner, shard in self.shards(x):
            self.note(["product"], owner)
            torch.mm(shard, w.T, out=y[owner])
        return y.flatten(0, 1)

    def gather_outer(self, x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        """dy^T times all ranks' rows: (s / t, k), (s, n) -> (n, k)."""
        parts = dy.chunk(self.ring.size)
        total = x.new_zeros(dy.shape[1], x.shape[1])
        for owner, shard in self.shards(x):
            self.note(["product"], owner)
            total.addmm_(parts[owner].T, shard)
        return total

    def matmul_scatter(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """The rank's rows of the ranks' sum of x w^T: (s, k), (n, k) -> (s / t, n)."""
        ring, t = self.ring, self.ring.size
        if len(x) % t:
            raise ValueError(
                f"async_tensor_parallel: {len(x)} rows do not split over {t}; pad them"
            )
        rows = x.chunk(t)
        if self.way == "collective":
            parts = []
            for owner in range(t):
                self.note(["product"], owner)
                parts.append(rows[owner] @ w.T)
            self.note(["send", "arrive"] * (t - 1), ring.rank)
            return ring.reduce_scatter(torch.cat(parts))
        coming: dict[int, Callable[[], list[torch.Tensor]]] = {}
        for hop in range(max(self.far.values()), 0, -1):
            totals = {}
            for end in (end for end, far in self.far.items() if hop <= far):
                owner = (ring.rank + end * hop) % t
                self.note(["product"], owner)
                totals[end] = rows[owner] @ w.T  # while the sum of those before travels
            for end, total in totals.items():
                owner = (ring.rank + end * hop) % t
                if end in coming:
                    self.note(["arrive"], owner)
                    total += coming[end]()[0]
                self.note(["send"], owner)
                coming[end] = ring.pass_on([total], end)
        self.note(["product"], ring.rank)
        total = rows[ring.rank] @ w.T
        for arrive in coming.values():
            self.note(["arrive"], ring.rank)
            total += arrive()[0]
        return total
    # --8<-- [end:products]


# --8<-- [start:gradients]
class GatherMatmul(torch.autograd.Function):
    """y = gathered(x) w^T; its gradients are a scattered product and a gathered one."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, w: torch.Tensor, loop: Loop
    ) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.loop = loop
        return loop.gather_matmul(x, w)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w = ctx.saved_tensors
        return ctx.loop.matmul_scatter(dy, w.T), ctx.loop.gather_outer(x, dy), None


class MatmulScatter(torch.autograd.Function):
    """y = scattered(x w^T); dy is gathered for both gradients, as it arrives once."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, w: torch.Tensor, loop: Loop
    ) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.loop = loop
        return loop.matmul_scatter(x, w)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w = ctx.saved_tensors
        rows, loop = x.chunk(ctx.loop.ring.size), ctx.loop
        dx, dw = torch.empty_like(x), torch.zeros_like(w)
        parts = dx.chunk(loop.ring.size)
        for owner, shard in loop.shards(dy):
            loop.note(["product"], owner)
            torch.mm(shard, w, out=parts[owner])
            dw.addmm_(shard.T, rows[owner])
        return dx, dw, None
# --8<-- [end:gradients]


# --8<-- [start:clock]
def clock(log: Log, product: float, link: float) -> float:
    """When a rank is done if it does `log` and all others alike, in the same unit.

    product: of one shard; link: to send one; those of the two directions side by side.
    """
    now, sent = 0.0, []
    for event in log:
        if event.what == "product":
            now += product
        elif event.what == "send":
            sent.append(now + link)
        else:
            now = max(now, sent.pop(0))
    return now
# --8<-- [end:clock]


def whole(t: int) -> dict[str, torch.Tensor]:
    """Seeded, float64: x1 (S, K) w1 (t N, K), then x2 (S, t K) w2 (N, t K), and dys."""
    draw = torch.Generator().manual_seed(0)
    shapes = {
        "x1": (S, K), "w1": (t * N, K), "dy1": (S, t * N),
        "x2": (S, t * K), "w2": (N, t * K), "dy2": (S, N),
    }  # fmt: skip
    return {
        name: torch.randn(shape, generator=draw, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def on_rank(rank: int, t: int, way: str) -> dict[str, Any]:
    """Both products forward and back: results, what was sent, and what came when."""
    told: dict[str, Any] = {}
    all_of = {name: x.to(ranks.device()) for name, x in whole(t).items()}
    both = (
        ("gather", GatherMatmul, {"x1": 0, "w1": 0, "dy1": 1}),
        ("scatter", MatmulScatter, {"x2": 1, "w2": 1, "dy2": 0}),
    )
    for name, function, cut in both:
        own = [all_of[k].chunk(t, dim)[rank].contiguous() for k, dim in cut.items()]
        x, w = (one.requires_grad_() for one in own[:2])
        loop = Loop(Ring(), way)
        counts = [(0, 0)]
        y = function.apply(x, w, loop)
        counts.append((loop.ring.wire.sent, loop.ring.wire.messages))
        forward, loop.log = loop.log, []
        y.backward(own[2])
        counts.append((loop.ring.wire.sent, loop.ring.wire.messages))
        told[name] = {
            "y": y.detach().cpu(), "dx": x.grad.cpu(), "dw": w.grad.cpu(),
            "counts": counts, "forward": forward, "backward": loop.log,
        }  # fmt: skip
    return told


def each(rank: int, t: int) -> dict[str, Any]:
    """`on_rank` for every way."""
    return {way: on_rank(rank, t, way) for way in WAYS}


def demo(device: str) -> None:
    """What rank 0 of four does, in order, and when it would be done."""
    t = 4
    backend = "gloo" if device == "cpu" else None
    told = ranks.run(each, t, backend=backend)[0]
    print(f"rank 0 of {t}; P: product, S: send, A: arrive, of whose shard")
    for name in ("gather", "scatter"):
        for way in WAYS:
            log = told[way][name]["forward"]
            line = " ".join(f"{one.what[0].upper()}{one.shard}" for one in log)
            print(f"{name:8}{way:12}{line}")
    print("done when, a product taking 1 and a shard's way 0.5, 1 and 2:")
    for way in WAYS:
        log = told[way]["gather"]["forward"]
        times = ", ".join(f"{clock(log, 1, link):g}" for link in (0.5, 1, 2))
        print(f"{'gather':8}{way:12}{times}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

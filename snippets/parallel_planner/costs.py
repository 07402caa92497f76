"""What a stage costs on its GPUs: the numbers that a planner weighs.

Anything with the method `stage` can stand in for `Transformer`, a profile for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum, isqrt
from typing import NamedTuple, Protocol

from snippets.model_flops.model_flops import (
    Decoder,
    activation_bytes,
    attention_weights,
)

SHORTEST = 1024  # tokens of a sequence that a context rank has, at least


def divisors(n: int) -> list[int]:
    """The divisors of `n`, from 1 up."""
    small = [i for i in range(1, isqrt(n) + 1) if n % i == 0]
    return small + [n // i for i in reversed(small) if i * i != n]


# --8<-- [start:interface]
@dataclass(frozen=True)
class Cluster:
    """GPUs in nodes; bytes, bytes/s and FLOP/s of one GPU."""

    gpus: int
    node: int = 8
    memory: float = 80e9
    usable: float = 0.9  # of the memory: what fits to the last byte does not fit
    rate: float = 989e12  # FLOP/s of products of 16 bits
    share: float = 0.6  # of it that large products reach in training
    bandwidth: float = 0.86 * 3.35e12  # of the memory
    link: float = 370e9  # in a node, bus bandwidth
    network: float = 50e9  # of a GPU, between nodes
    latency: float = 15e-6  # s of a message but for its bytes


class Layout(NamedTuple):
    """How a stage is spread over data * tensor * context GPUs."""

    data: int = 1
    tensor: int = 1
    context: int = 1
    expert: int = 1  # of the data * context ranks, those that share a layer's experts

    @property
    def gpus(self) -> int:
        """GPUs of the stage."""
        return self.data * self.tensor * self.context

    @property
    def words(self) -> str:
        """What is more than one of it."""
        told = [f"{name} {n}" for name, n in self._asdict().items() if n > 1]
        return ", ".join(told) or "one GPU"


class Cost(NamedTuple):
    """One stage on one GPU: seconds and bytes, nothing recomputed."""

    time: float  # s of a micro-batch, forward and backward
    again: float  # s more of a micro-batch, for each layer that is recomputed
    sync: float  # s after the last micro-batch: gradients, new weights
    state: float  # bytes of weights, gradients and optimizer
    kept: float  # bytes that a micro-batch in flight keeps
    saved: float  # bytes of them less, for each layer that is recomputed
    extra: float  # bytes beside them, whatever is in flight
    layers: int  # that could be recomputed


class Costs(Protocol):
    """What the planner asks."""

    units: int  # that are cut into stages, in order

    def stage(self, first: int, last: int, layout: Layout, sequences: int) -> Cost:
        """The cost of units first to last - 1, `sequences` in a micro-batch.

        A longer stage takes no less time and no fewer bytes than a part of it.
        """

    def layouts(self, most: int, sequences: int) -> Iterable[Layout]:
        """The ways to spread a stage over at most `most` GPUs, `sequences` at once."""
# --8<-- [end:interface]


# --8<-- [start:transformer]
@dataclass(frozen=True)
class Transformer:
    """The default: an embedding, the layers and the output matrix of a decoder.

    Operations over a rate, plus bytes over a bandwidth, plus messages that nothing
    hides but a ring's, which run under attention. Adam's state is split over the data
    ranks, gradients are summed in 32 bits, attention keeps no scores, a fused loss
    keeps its logits in 16, and norms are split over tensor ranks with the sequence. All
    layers count as those with experts, if any have them.
    """

    model: Decoder
    cluster: Cluster
    sequence: int

    @property
    def units(self) -> int:
        """The embedding, each layer, the output matrix."""
        return self.model.layers + 2

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """Of a layer: elements that all ranks have, of experts, met; width kept."""
        model, mixture = self.model, self.model.experts
        matrices = 3 if model.gated else 2
        shared = attention_weights(model)
        if mixture is None:
            dense = matrices * model.hidden * model.feed_forward
            return shared + dense, 0, shared + dense, model.feed_forward
        each = matrices * model.hidden * mixture.size
        shared += model.hidden * mixture.routed + mixture.shared * each
        width = (mixture.chosen + mixture.shared) * mixture.size
        return shared, mixture.routed * each, shared + mixture.chosen * each, width

    @cached_property
    def kept(self) -> tuple[int, int]:
        """Bytes of a token that a layer keeps, and that one made anew keeps."""
        plain = replace(
            self.model, layers=1, experts=None, latent=None, feed_forward=self.shape[3]
        )
        ways = ("selective", "full")
        whole, entry = (activation_bytes(plain, 1, recompute=way) for way in ways)
        # a gate's product is made anew from what went into it
        return whole - (2 * self.shape[3] if self.model.gated else 0), entry

    def stage(self, first: int, last: int, layout: Layout, sequences: int) -> Cost:
        """The cost of units first to last - 1; they split as `fits` allows."""
        model, cluster, (d, t, c, e) = self.model, self.cluster, layout
        layers = min(last, self.units - 1) - max(first, 1)
        head, table = last == self.units, first == 0
        vocabulary = model.hidden * model.vocabulary
        shared, routed, met, _ = self.shape
        tokens = sequences * self.sequence / (d * c)
        rate, copies = cluster.rate * cluster.share, d * c
        wide = cluster.link if layout.gpus <= cluster.node else cluster.network
        # a causal mask leaves half of the pairs; backward costs twice the forward
        widths = 2 * model.head_dim + (model.latent.rotary if model.latent else 0)
        pairs = tokens * (self.sequence + 1) / 2
        attention = 2 * model.heads * widths * pairs / t / rate
        # weights and results of products are read or written in three passes
        share = model.experts.chosen / model.experts.routed if routed else 0
        awake = 1 - (1 - share) ** max(int(tokens * e), 1)
        read = 2 * (shared + routed / e * awake) / t + tokens * self.kept[0] / t
        layer = 2 * met * tokens / t / rate + attention + read / cluster.bandwidth
        sums = 2 * self.collective(t, 2 * tokens * model.hidden * 2, cluster.link)
        keys = (c - 1) * tokens * 2 * max(model.kv_heads / t, 1) * model.head_dim * 2
        near = cluster.link if c * t <= cluster.node else cluster.network
        hops = (c - 1) * self.cluster.latency
        ring = max(0.0, keys / near + hops - attention)
        exchange = 0.0
        if e > 1:
            near = cluster.link if e * t <= cluster.node else cluster.network
            sent = tokens * model.experts.chosen * model.hidden * 2 / t
            exchange = 2 * self.collective(e, sent, near)
        forward = layer + sums + ring + exchange
        backward = 2 * layer + sums + 2 * ring + exchange
        output = head * 3 * 2 * vocabulary * tokens / t / rate
        wire = cluster.link if cluster.gpus <= cluster.node else cluster.network
        hop = tokens * model.hidden * 2 / t / wire + cluster.latency
        elements = layers * shared + (head + table) * vocabulary
        experts = layers * routed / e
        sync = fsum((
            self.collective(copies, 6 * elements / t, wide),
            self.collective(copies // e, 6 * experts / t, wide) if routed else 0.0,
        ))  # fmt: skip
        state = elements / t * (6 + 12 / copies) + experts / t * (6 + 12 * e / copies)
        return Cost(
            time=layers * (forward + backward) + output + (0 if head else 2 * hop),
            again=forward,
            sync=sync,
            state=state,
            kept=layers * tokens * self.kept[0] / t,
            saved=tokens * (self.kept[0] - self.kept[1]) / t,
            extra=tokens / t * (self.kept[0] + head * model.vocabulary * 2),
            layers=layers,
        )

    def layouts(self, most: int, sequences: int) -> Iterator[Layout]:
        """Ways to spread a stage over at most `most` GPUs."""
        model, mixture = self.model, self.model.experts
        for t in divisors(model.heads):
            grouped = model.kv_heads % t == 0 or t % model.kv_heads == 0
            if t > min(self.cluster.node, most) or not grouped:
                continue
            for c in divisors(self.sequence):
                if c * t > most or (c > 1 and self.sequence // c < SHORTEST):
                    break
                for d in divisors(sequences):
                    if d * c * t > most:
                        break
                    for e in divisors(d * c) if mixture else (1,):
                        if mixture is None or mixture.routed % e == 0:
                            yield Layout(d, t, c, e)

    def collective(self, ranks: int, size: float, rate: float) -> float:
        """Seconds of an exchange of `size` bytes among `ranks`; an own part stays."""
        if ranks <= 1:
            return 0.0
        return (ranks - 1) / ranks * size / rate + self.cluster.latency
# --8<-- [end:transformer]

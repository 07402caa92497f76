"""One layer of a decoder on one rank: its kernels, and the collectives that show.

Enters: a model, a plan that splits it and a software stack. Leaves: seconds, forward
and backward, of one micro-batch, by what they are spent on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import fsum

from snippets.comm_model import comm_model as comm
from snippets.comm_model.comm_model import Group
from snippets.model_flops.model_flops import Decoder
from snippets.training_time.kernels import (
    BYTES,
    GPU,
    Product,
    fused_attention,
    passes,
)

WORDS = {
    "recompute": ("none", "selective", "half", "full"),
    "schedule": ("1F1B", "ZB-H1", "DualPipe"),
    "exchange": ("pairs", "nodes"),
}


# --8<-- [start:plan]
@dataclass(frozen=True)
class Stack:
    """Software on a GPU: what it overlaps, and the one constant that is fitted.

    share: of the speed of all kernels here, that it reaches over a step. Gaps between
    launches, clocks that fall under load and worse kernels are all in there.
    """

    name: str
    gpu: GPU
    share: float
    fp8: bool = False  # products of the layers; attention and logits stay in 16 bits
    backward: bool = True  # a collective of backward runs beside a weight gradient
    tensor: bool = False  # products are cut up, to run beside their collectives
    data: bool = True  # gradients and weights travel under the passes
    gradient: int = 4  # bytes of a gradient as it is added up and sent
    grouped: bool = False  # one kernel multiplies for all experts, not one for each


@dataclass(frozen=True)
class Plan:
    """How a step is laid out: `batch` sequences on `gpus`."""

    gpus: int
    batch: int
    micro_batch: int
    sequence: int
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    chunks: int = 1  # of a stage, in an interleaved pipeline
    schedule: str = "1F1B"
    recompute: str = "none"  # "selective": the scores; "half": every other product
    scattered: bool = True  # sequence parallelism beside tensor parallelism
    zero: int = 1  # stage; 3 gathers the weights of each layer as it comes
    fused: bool = True  # attention keeps its scores on chip
    dropout: bool = False  # masks are made, kept and applied
    exchange: str = "pairs"  # a token goes to each of its experts, or once to "nodes"

    def __post_init__(self) -> None:
        sizes = {name: v for name, v in vars(self).items() if isinstance(v, int)}
        for name, value in sizes.items():
            least = 0 if name in ("zero", "scattered", "fused", "dropout") else 1
            _need(value >= least, name, value, f"use {least} or more")
        whole = self.tensor * self.pipeline * self.context
        _need(self.gpus % whole == 0, "gpus", self.gpus, f"use a multiple of {whole}")
        each = self.micro_batch * self.data
        _need(self.batch % each == 0, "batch", self.batch, f"use a multiple of {each}")
        cut = self.context * self.tensor
        what = f"use a multiple of {cut}"
        _need(self.sequence % cut == 0, "sequence", self.sequence, what)
        ranks = self.tensor * self.context * self.data
        what = f"use a divisor of {ranks}"
        _need(ranks % self.expert == 0, "expert", self.expert, what)
        for name, known in WORDS.items():
            value = getattr(self, name)
            _need(value in known, name, repr(value), f"use {', '.join(known)}")
        _need(self.zero <= 3, "zero", self.zero, "use 0, 1, 2 or 3")

    @property
    def data(self) -> int:
        """Groups that each see sequences of their own."""
        return self.gpus // (self.tensor * self.pipeline * self.context)

    @property
    def micro_batches(self) -> int:
        """Micro-batches that go through a pipeline in a step."""
        return self.batch // (self.micro_batch * self.data)

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch on a rank, before tensor parallelism scatters."""
        return self.micro_batch * self.sequence // self.context


def _need(good: bool, name: str, value: object, mend: str) -> None:
    if not good:
        raise ValueError(f"training_time: {name} = {value} cannot be; {mend}")


# --8<-- [end:plan]


# --8<-- [start:layer]
Ways = list[float]  # seconds forward and backward


def matrices(model: Decoder, plan: Plan, sparse: bool) -> list[Product]:
    """Forward products of a layer on a rank; `sparse`: with experts."""
    n, t, h = plan.tokens, plan.tensor, model.hidden
    heads, gates = model.heads // t, 2 if model.gated else 1
    wide = heads * model.head_dim
    found = [Product(n, h, wide)]
    if model.latent is None:
        kv = max(model.kv_heads // t, 1) * model.head_dim
        found += [Product(n, wide + 2 * kv, h)]
    else:
        low, rotary = model.latent.key_value_rank, model.latent.rotary
        rank = model.latent.query_rank
        found += [Product(n, rank, h), Product(n, wide + heads * rotary, rank)]
        found += [Product(n, low + rotary, h), Product(n, 2 * wide, low)]
    mixture = model.experts
    dense = model.feed_forward // t
    if sparse and mixture is not None:
        dense = mixture.shared * mixture.size // t
        own = mixture.routed // plan.expert
        rows = n / t * plan.expert * mixture.chosen / mixture.routed  # of each expert
        found += [Product(n / t, mixture.routed, h)]
        found += [Product(rows, gates * mixture.size, h, own)]
        found += [Product(rows, h, mixture.size, own)]
    if dense:
        found += [Product(n, gates * dense, h), Product(n, h, dense)]
    return found


def gradients(one: Product, stack: Stack) -> tuple[Product, Product]:
    """The two products of its backward pass: for the input and for the weight."""
    added = 2 * stack.gradient if stack.gradient > BYTES else BYTES  # read and written
    to_input = Product(one.m, one.k, one.n, one.batch)
    return to_input, Product(one.k, one.n, one.m, one.batch, added)


def products(model: Decoder, plan: Plan, stack: Stack, sparse: bool) -> list[Ways]:
    """Seconds of a layer's products; and, apart, of the weight gradients among them."""
    forward, backward, weights = [], [], []
    for each in matrices(model, plan, sparse):
        times, one = 1.0, each
        if not stack.grouped:
            times, one = each.batch, replace(each, batch=1)
        to_input, to_weight = gradients(one, stack)
        forward.append(times * one.seconds(stack.gpu, stack.fp8))
        backward.append(times * to_input.seconds(stack.gpu, stack.fp8))
        weights.append(times * to_weight.seconds(stack.gpu, stack.fp8))
    last = fsum(weights)
    return [[fsum(forward), fsum(backward) + last], [0.0, last]]


def attention(model: Decoder, plan: Plan, stack: Stack) -> Ways:
    """Seconds of scores, softmax and values."""
    gpu, s = stack.gpu, plan.sequence
    rows = plan.micro_batch * model.heads // plan.tensor
    rotary = model.latent.rotary if model.latent else 0
    if plan.fused:  # a causal mask spares half; backward makes the scores anew
        flops = rows * s * s * (2 * model.head_dim + rotary) / plan.context
        return [fused_attention(gpu, flops), fused_attention(gpu, 2.5 * flops)]
    both = Product(s, s, model.head_dim, rows), Product(s, model.head_dim, s, rows)
    multiplied = fsum(one.seconds(gpu) for one in both)
    # Softmax reads and writes, and reads once more backward; so does dropout, masked.
    scores, drop = rows * s * s, (2 * BYTES + 1) * plan.dropout
    forward, backward = (passes(gpu, scores * (n * BYTES + drop), 2) for n in (2, 3))
    return [multiplied + forward, 2 * multiplied + backward]


def memory(model: Decoder, plan: Plan, stack: Stack, sparse: bool) -> Ways:
    """Seconds of norms, residuals, activations, rotations and casts."""
    n, t, h = plan.tokens, plan.tensor, model.hidden
    own = n / t if plan.scattered else n
    mixture = model.experts if sparse else None
    wide = model.feed_forward / t
    if mixture is not None:
        wide = mixture.size * (mixture.chosen + mixture.shared) / t
    gates, mask = 2 if model.gated else 1, 1 if plan.dropout else 0
    rotated = (model.heads + model.kv_heads) * model.head_dim / t
    if model.positions:  # learned, and added once for all layers
        rotated = 0
    found = []
    for tensors in ((2, 3, gates + 1, 2), (4, 2, 2 * gates + 1, 2)):
        norm, residual, activation, turn = (BYTES * count for count in tensors)
        moved = own * h * 2 * (norm + residual + mask)
        moved += n * (wide * activation + rotated * turn)
        if mixture is not None:  # to the order of ranks and of experts, and back
            orders = 2 if plan.exchange == "pairs" else 1
            moved += n / t * mixture.chosen * h * 4 * orders * BYTES
        if stack.fp8:  # inputs of products: read in 16 bits, written in 8 both ways
            read = 2 * h + model.heads * model.head_dim / t + wide
            moved += n * read * (BYTES + 2)
        found.append(passes(stack.gpu, moved, 10 if stack.fp8 else 6))
    return found


# --8<-- [end:layer]


# --8<-- [start:collectives]
def group(gpu: GPU, ranks: int, apart: int = 1) -> Group:
    """Ranks that lie `apart`, as many of them in a node as that allows."""
    inside = max(1, min(ranks, gpu.machine.gpus // apart))
    while ranks % inside:
        inside -= 1
    return Group(gpu.machine, ranks, inside)


def tensor(model: Decoder, plan: Plan, stack: Stack, weights: float) -> Ways:
    """Seconds that show of a layer's collectives; `weights` is what can hide some."""
    if plan.tensor == 1:
        return [0.0, 0.0]
    size = plan.tokens * model.hidden * BYTES
    ranks = group(stack.gpu, plan.tensor)
    if plan.scattered:  # gathered before a half of the layer, scattered after it
        gather = comm.best("all_gather", size, ranks).total
        scatter = comm.best("reduce_scatter", size, ranks).total
        # A weight gradient gathers its input again, beside the other product or not.
        again = 0.0 if stack.backward else gather
        ways = [2 * (gather + scatter), 2 * (gather + scatter + again)]
    else:
        reduced = 2 * comm.best("all_reduce", size, ranks).total
        beside = weights if stack.backward else 0.0
        ways = [reduced, max(0.0, reduced - beside)]
    # Cut up, the first piece and the last still show, and pieces multiply more slowly.
    return [seconds / 2 for seconds in ways] if stack.tensor else ways


def context(model: Decoder, plan: Plan, stack: Stack) -> Ways:
    """Seconds to gather keys and values of the whole sequence, and add gradients up."""
    if plan.context == 1:
        return [0.0, 0.0]
    heads = max(model.kv_heads // plan.tensor, 1)
    whole = 2 * plan.tokens * plan.context * heads * model.head_dim * BYTES
    ranks = group(stack.gpu, plan.context, plan.tensor)
    gather = comm.best("all_gather", whole, ranks).total
    return [gather, gather + comm.best("reduce_scatter", whole, ranks).total]


def experts(model: Decoder, plan: Plan, stack: Stack) -> Ways:
    """Seconds in which tokens go to their experts and come back."""
    mixture = model.experts
    if mixture is None or plan.expert == 1:
        return [0.0, 0.0]
    ranks = group(stack.gpu, plan.expert, plan.tensor)
    token = plan.tokens / plan.tensor * model.hidden
    if plan.exchange == "nodes":
        routing = comm.Routing(mixture.routed, mixture.chosen, min(4, ranks.nodes))
        there, _ = comm.dispatch(token * (1 if stack.fp8 else BYTES), routing, ranks)
        back, _ = comm.dispatch(token * BYTES, routing, ranks)
        return [there + back, there + back]
    one = comm.all_to_all(token * mixture.chosen * BYTES, ranks).total
    return [2 * one, 2 * one]


# --8<-- [end:collectives]

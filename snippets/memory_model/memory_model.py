"""Peak memory of a training GPU: weights, gradients, state, activations, loss, buffers.

Shapes  a model layer by layer (model_configs) and a plan of tensor, pipeline, data,
        context and expert ranks
Bytes   a parameter: 2 weights, 2 or 4 gradients, 12 Adam's state, each divided by the
        ranks that ZeRO's stage shares it over; activations of the micro-batches that
        the schedule holds; logits; what a step makes and drops
Error   predictions() has it, by data set
Raises  ValueError for a plan that the model does not split into
Source  zero, megatron-lm, reducing-activation-recomputation, zero-bubble, simumax,
        torchtitan-benchmarks, pytorch-fsdp
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields, replace

from snippets.memory_model.held import held
from snippets.memory_model.kept import kept, passing
from snippets.memory_model.plan import Plan
from snippets.model_configs.layers import Attention, Layer, Model
from snippets.model_configs.model_configs import read

GIB = 2**30
WEIGHT, STATE = 2, 12  # bytes: 16 bits; a 32-bit copy and Adam's two moments
# What torch's allocator reserves over what is in use, of the blocks that no later size
# fits. Fitted on one run, which is marked so; SimuMax and ZB state what is in use.
RESERVED = 1.06


@dataclass(frozen=True)
class Memory:
    """Bytes at the peak of one pipeline rank."""

    rank: int
    weights: float
    gradients: float
    optimizer: float
    activations: float  # of layers, held for backward
    transient: float  # of the loss, or of one layer's backward, whichever is more
    buffers: float  # gathered weights, gradients on their way, idle space

    @property
    def total(self) -> float:
        """Bytes in all."""
        return (
            self.weights + self.gradients + self.optimizer + self.activations
            + self.transient + self.buffers
        )  # fmt: skip


# --8<-- [start:model]
def peak(model: Model, plan: Plan) -> Memory:
    """The rank that needs most."""
    return max(by_rank(model, plan), key=lambda one: one.total)


def by_rank(model: Model, plan: Plan) -> list[Memory]:
    """The peak of each pipeline rank."""
    plan.fits(model)
    return [_of_rank(model, plan, rank) for rank in range(plan.pipeline)]


def _of_rank(model: Model, plan: Plan, rank: int) -> Memory:
    first, last = plan.ends(rank)
    layers = Counter(one for slice_ in plan.layers(model, rank) for one in slice_)
    if last:
        layers.update(model.predicting)
    common, experts = elements(model, plan, layers, first, last)
    weights, gradients, state = sharded(plan, common, experts)
    once = math.fsum(n * kept(one, model.hidden, plan) for one, n in layers.items())
    loss = losses(model, plan) if last else 0.0
    layer = max((passing(one, model.hidden, plan) for one in layers), default=0.0)
    buffers = unused_gradients(model, plan, layers, last)
    if plan.zero > 1:
        whole, on_the_way = gathered(model, plan, layers, common + experts)
        buffers += whole
        layer += on_the_way
    activations = once * held(plan, rank)
    transient = max(loss, layer)  # never at once: the loss goes backward first
    made = Memory(rank, weights, gradients, state, activations, transient, buffers)
    if plan.stack == "fsdp":
        made = replace(made, buffers=buffers + (RESERVED - 1) * made.total)
    return made


# --8<-- [end:model]


# --8<-- [start:state]
def elements(
    model: Model, plan: Plan, layers: Counter[Layer], first: bool, last: bool
) -> tuple[float, float]:
    """Parameters of a rank: those that all data ranks share, and those of experts."""
    common = experts = 0.0
    for layer, count in layers.items():
        after = layer.feed_forward
        split = attention_weights(layer.attention, model.hidden, plan) + layer.joint
        whole = layer.attention.vectors + after.vectors + layer.norms
        if after.routed:
            router = model.hidden * after.routed
            whole += router
            split += after.common(model.hidden) - router
            each = after.expert(model.hidden) / plan.tensor + after.expert_vectors
            experts += count * after.routed / plan.expert * each
        else:
            split += after.expert(model.hidden)
        common += count * (split / plan.tensor + whole)
    table = vocabulary(model, plan) * model.hidden / plan.tensor
    common += table * (1 if first and last and model.tied else first + last)
    common += model.vectors if last else 0
    common += model.positions * model.hidden if first else 0
    return common, experts


def attention_weights(one: Attention, hidden: int, plan: Plan) -> int:
    """Elements on all tensor ranks, each of which has a head of keys at least.

    What leads down to a latent, or to the rank of queries, is on each of them whole.
    """
    if one.latent:
        down = hidden * (one.latent + one.rotary + one.query_rank)
        return one.weights(hidden) + (plan.tensor - 1) * down
    copies = max(plan.tensor - one.kv_heads, 0)
    return one.weights(hidden) + copies * (one.key + one.value) * hidden


def vocabulary(model: Model, plan: Plan) -> int:
    """Rows of the tables; Megatron makes them a multiple of 128 a tensor rank."""
    if plan.stack != "megatron":
        return model.vocabulary
    step = 128 * plan.tensor
    return -(-model.vocabulary // step) * step


def sharded(plan: Plan, common: float, experts: float) -> tuple[float, float, float]:
    """Bytes of weights, gradients and Adam's state after ZeRO's stage."""
    ranks = plan.data * plan.context
    part = common / ranks + experts / (ranks // plan.expert)
    if plan.stack == "fsdp":  # the 32-bit weights are the parameters themselves
        return 4 * part, plan.gradient * part, 8 * part
    whole = common + experts
    state, gradients, weights = (
        part if plan.zero >= stage else whole for stage in (1, 2, 3)
    )
    return WEIGHT * weights, plan.gradient * gradients, STATE * state


# --8<-- [end:state]


# --8<-- [start:buffers]
def losses(model: Model, plan: Plan) -> float:
    """Bytes of the logits and what becomes of them, where they are most."""
    logits = plan.tokens * vocabulary(model, plan) / plan.tensor
    outside = plan.tensor if plan.sequence_parallel else 1
    norm = 2 * 2 * plan.tokens * model.hidden / outside  # what the last takes and gives
    if plan.stack == "megatron":
        each = 2 if plan.fused_loss else 2 + 4  # in 32 bits its softmax stays beside
    else:
        # In 16 bits, then copies in 32: of the logits, their logarithms of softmax, its
        # gradient; where ranks share the vocabulary a fourth, in Python.
        each = 2 + 4 * (3 if plan.tensor == 1 else 4)
        norm += 2 * plan.tokens * model.hidden if plan.tensor > 1 else 0  # gathered
    return logits * each * (1 + len(model.predicting)) + norm


def unused_gradients(
    model: Model, plan: Plan, layers: Counter[Layer], last: bool
) -> float:
    """Bytes of the gradients in 16 bits that autograd is handed, and nobody reads.

    The true ones are added to the sum in place. Transformer Engine keeps one of these
    for each shape of a matrix.
    """
    if plan.stack != "megatron":
        return 0.0
    shapes = 0.0
    for one in {layer.attention for layer in layers}:
        shapes += attention_weights(one, model.hidden, plan)
    for after in {layer.feed_forward for layer in layers}:
        shapes += after.expert(model.hidden)
        shapes += after.common(model.hidden) if after.routed else 0
    if last:
        shapes += vocabulary(model, plan) * model.hidden
    return WEIGHT * shapes / plan.tensor


def gathered(
    model: Model, plan: Plan, layers: Counter[Layer], count: float
) -> tuple[float, float]:
    """Bytes of weights that lie whole, and of a layer's gradients before they part.

    The tables stay whole for the step, and two layers: one that works, one that comes.
    With ZeRO 2 all do; in FSDP with a pipeline as well, and gradients in 32 bits.
    """
    largest = max((one.parameters(model.hidden) for one in layers), default=0)
    on_the_way = (WEIGHT + 4) * largest / plan.tensor
    fsdp = plan.stack == "fsdp"
    if fsdp and plan.pipeline > 1:
        return (WEIGHT + 4) * count, 0.0
    if plan.zero == 2:  # else they are whole in `weights`
        return WEIGHT * count if fsdp else 0.0, on_the_way
    tables = model.vocabulary * model.hidden
    tables *= 1 if model.tied or plan.pipeline > 1 else 2
    return WEIGHT * (tables + 2 * largest) / plan.tensor, on_the_way


# --8<-- [end:buffers]


LLAMA = """{"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
    "vocab_size": 128256}"""
RUNS = {
    "data 64, ZeRO 1": Plan(8192, data=64),
    "data 64, FSDP": Plan(8192, data=64, zero=3, stack="fsdp"),
    "the same, layers recomputed": Plan(
        8192, data=64, zero=3, stack="fsdp", recompute="full"
    ),
    "tensor 8, data 8": Plan(8192, tensor=8, data=8),
    "tensor 8, pipeline 4, data 2": Plan(
        8192, tensor=8, pipeline=4, data=2, micro_batches=16
    ),
    "the same in 5 chunks": Plan(
        8192, tensor=8, pipeline=4, data=2, micro_batches=16, chunks=5,
        schedule="interleaved",
    ),
    "tensor 8, context 4, data 2, 64k": Plan(65_536, tensor=8, context=4, data=2),
}  # fmt: skip


def demo(device: str = "cpu") -> None:
    """Where the memory goes in seven ways of training one model on 64 GPUs."""
    model = read(LLAMA)
    print("Llama 3.1 70B, sequences of 8192, GiB on the fullest of 64 GPUs")
    parts = [field.name for field in fields(Memory)][1:]
    print(f"{'':34}" + "".join(f"{part[:9]:>10}" for part in (*parts, "total")))
    for name, plan in RUNS.items():
        made = peak(model, plan)
        cells = [getattr(made, part) / GIB for part in parts] + [made.total / GIB]
        print(f"{name:34}" + "".join(f"{cell:10.1f}" for cell in cells))


if __name__ == "__main__":
    demo()

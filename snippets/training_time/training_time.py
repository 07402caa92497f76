"""Time of a training step, term by term, with one constant for a GPU and its software.

Shapes  a decoder of `model_flops`, split by tensor, pipeline, data, context and expert
        parallelism; a rank holds a piece of every layer of its stage
FLOPs   each product in its rank's shape, and twice that backward; fused attention under
        a causal mask half of its scores, other attention all of them
Bytes   norms, residuals and activations: every tensor once in, once out; collectives
        by `comm_model`; the optimizer 30 for each parameter that it updates
Error   by data set, in the record
Raises  ValueError for sizes that do not split, and for what a plan cannot be
Source  calculon, megatron-interleaved-1f1b, reducing-activation-recomputation, zero,
        scaling-book
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import fsum

from snippets.comm_model import comm_model as comm
from snippets.model_flops import model_flops as arithmetic
from snippets.model_flops.model_flops import Decoder
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.schedule import Costs
from snippets.training_time import layers
from snippets.training_time.kernels import BYTES, GPUS, Product, passes
from snippets.training_time.layers import Plan, Stack, Ways

LOGIT = 28  # bytes of a logit: made in 16 bits, then loss and gradient in fp32
ADAM = 30  # bytes of a parameter's update: gradient, fp32 copy, moments in and out


# --8<-- [start:stacks]
def _stacks() -> dict[str, Stack]:
    a100, small = GPUS["A100"], GPUS["A100 40 GB"]
    h100, cool, h800, b200 = (
        GPUS[name] for name in ("H100", "H100 500 W", "H800", "B200")
    )
    early = {"backward": False, "data": False}
    titan = "torchtitan, H100 500 W"
    # The number is the share: fitted on runs of at most 64 GPUs, but for DeepSeek's.
    made = (
        Stack("Megatron-LM 2021, A100", a100, 0.833, gradient=2, **early),
        Stack("Megatron-LM 2022, A100", a100, 0.847, gradient=2),
        Stack("GPT-NeoX, A100 40 GB", small, 0.591, gradient=2, backward=False),
        Stack("NeMo 24.07, H100, fp8", h100, 0.673, fp8=True, tensor=True),
        Stack("Megatron Bridge, H100, fp8", h100, 0.843, fp8=True, tensor=True),
        Stack(f"{titan}, bf16, eager", cool, 0.555),
        Stack(f"{titan}, fp8", cool, 0.614, fp8=True),
        Stack(f"{titan}, fp8, async TP", cool, 0.614, fp8=True, tensor=True),
        Stack("DeepSeek, H800, fp8", h800, 0.449, fp8=True, grouped=True),
        Stack("Megatron Core, B200, bf16", b200, 0.606, **early),
    )
    return {one.name: one for one in made}


STACKS = _stacks()
# --8<-- [end:stacks]


# --8<-- [start:model]
@dataclass(frozen=True)
class Step:
    """Seconds of a step by what they are spent on; they add up to `total`."""

    products: float
    attention: float
    memory: float
    logits: float
    recomputed: float
    tensor: float
    context: float
    expert: float
    sends: float
    bubble: float
    data: float
    optimizer: float

    @property
    def total(self) -> float:
        """Seconds of the step."""
        return fsum(vars(self).values())


def step(model: Decoder, plan: Plan, stack: Stack) -> Step:
    """Seconds of a step on the last stage, which also makes the logits."""
    _splits(model, plan, stack)
    terms, weights = stage(model, plan, stack)
    ways = [fsum(term[way] for term in terms.values()) for way in (0, 1)]
    spent = {name: plan.micro_batches * fsum(term) for name, term in terms.items()}
    # Where layers do not divide, embedding and logits have places of their own.
    last = 0.0 if uneven(model, plan) else logits(model, plan, stack)
    held = sum(parameters(model, plan))
    shards = plan.data * plan.context if plan.zero else 1
    return Step(
        **spent,
        logits=plan.micro_batches * last,
        bubble=bubble(plan, ways, weights),
        data=data(model, plan, stack, ways),
        optimizer=passes(stack.gpu, ADAM * held / shards, 10),
    )


def stage(model: Decoder, plan: Plan, stack: Stack) -> tuple[dict[str, Ways], float]:
    """Seconds of a micro-batch in a stage by term, both ways; and of its weights."""
    names = ("products", "attention", "memory", "recomputed", "tensor", "context")
    slots = plan.pipeline * plan.chunks
    fullest = 1.0
    if uneven(model, plan):
        fullest = -(-(model.layers + 2) // slots) * slots / model.layers
    terms = {name: [0.0, 0.0] for name in (*names, "expert", "sends")}
    weights = 0.0
    dense = model.experts.dense_layers if model.experts else model.layers
    for count, sparse in ((dense, False), (model.layers - dense, True)):
        if not count:
            continue
        one = one_layer(model, plan, stack, sparse)
        late = one.pop("weights")
        if plan.recompute == "full":
            again = fsum(way[0] for way in one.values())
        elif plan.recompute == "half":  # the other products and attention are kept
            again = one["products"][0] / 2 + one["memory"][0]
        else:
            again = 0.0 if plan.fused else one["attention"][0]
            again *= plan.recompute == "selective"
        one["recomputed"] = [0.0, again]
        share = fullest * count / plan.pipeline
        for name, way in one.items():
            for i in (0, 1):
                terms[name][i] += share * way[i]
        weights += share * late[1]
    terms["sends"] = [sends(model, plan, stack)] * 2
    return terms, weights


def uneven(model: Decoder, plan: Plan) -> bool:
    """Whether the layers cannot be split evenly over the chunks of all stages."""
    return model.layers % (plan.pipeline * plan.chunks) != 0


def one_layer(
    model: Decoder, plan: Plan, stack: Stack, sparse: bool
) -> dict[str, Ways]:
    """Seconds of one layer by term; kernels at the stack's share of their speed."""
    multiplied, late = layers.products(model, plan, stack, sparse)
    kernels = {
        "products": multiplied,
        "weights": late,
        "attention": layers.attention(model, plan, stack),
        "memory": layers.memory(model, plan, stack, sparse),
    }
    found = {name: [one / stack.share for one in way] for name, way in kernels.items()}
    found["tensor"] = layers.tensor(model, plan, stack, found["weights"][1])
    found["context"] = layers.context(model, plan, stack)
    if sparse:
        exchanged = layers.experts(model, plan, stack)
        if plan.schedule == "DualPipe":  # under the kernels of a pass the other way
            work = fsum(multiplied) / stack.share
            exchanged = [max(0.0, one - work / 2) for one in exchanged]
        found["expert"] = exchanged
    return found


# --8<-- [end:model]


# --8<-- [start:step]
def logits(model: Decoder, plan: Plan, stack: Stack) -> float:
    """Seconds of a micro-batch's logits, loss and gradients, on the last stage."""
    n, wide, h = plan.tokens, model.vocabulary / plan.tensor, model.hidden
    three = Product(n, wide, h), Product(n, h, wide), Product(wide, h, n)
    multiplied = fsum(one.seconds(stack.gpu) for one in three)
    return (multiplied + passes(stack.gpu, LOGIT * n * wide, 6)) / stack.share


def sends(model: Decoder, plan: Plan, stack: Stack) -> float:
    """Seconds of a micro-batch's activations on their way to the next stages."""
    if plan.pipeline == 1:
        return 0.0
    size = plan.tokens * model.hidden * BYTES / plan.tensor
    near = plan.gpus <= stack.gpu.machine.gpus
    sent = comm.send(size, stack.gpu.machine, near).total
    # Interleaved, or with two ways to overlap, other chunks are at work meanwhile.
    return 0.0 if plan.chunks > 1 and stack.tensor else plan.chunks * sent


def bubble(plan: Plan, ways: Ways, weights: float) -> float:
    """Seconds in which a stage waits for others."""
    p, both = plan.pipeline, fsum(ways)
    if p == 1:
        return 0.0
    if plan.schedule == "1F1B":  # exact for any passes, interleaved or not
        return (p - 1) / plan.chunks * both
    unit = both / 300
    parts = ways[0], ways[1] - weights, weights
    costs = tuple(max(1, round(part / unit)) for part in parts)
    return unit * idle(plan.schedule, p, plan.micro_batches, costs)


@cache
def idle(schedule: str, p: int, m: int, costs: tuple[int, ...]) -> int:
    """Units of time that a rank of an executed schedule does nothing in."""
    build = {"ZB-H1": schedules.zero_bubble_h1, "DualPipe": schedules.dualpipe}
    made = build[schedule](p, m, Costs(*costs))
    return max(made.idle(rank) for rank in range(p))


def parameters(model: Decoder, plan: Plan) -> tuple[float, float]:
    """Of the last stage's rank: those that all data ranks hold, and experts'."""
    own = 0
    mixture = model.experts
    if mixture is not None:
        matrix = (3 if model.gated else 2) * model.hidden * mixture.size
        own = (model.layers - mixture.dense_layers) * mixture.routed * matrix
    table = model.vocabulary * model.hidden
    tables = table * (1 if model.tied else 2)
    dense = (arithmetic.parameters(model) - own - tables) / plan.pipeline
    dense += tables if plan.pipeline == 1 else table
    return dense / plan.tensor, own / plan.pipeline / plan.expert


def data(model: Decoder, plan: Plan, stack: Stack, ways: Ways) -> float:
    """Seconds that show of gradients and weights on their way between data ranks."""
    ranks = plan.data * plan.context
    if ranks == 1:
        return 0.0
    dense, own = parameters(model, plan)
    wide = layers.group(stack.gpu, ranks, plan.tensor)
    few = max(1, ranks * plan.tensor // plan.expert)
    narrow = layers.group(stack.gpu, few, max(1, plan.expert))
    found = []
    for size, who in ((dense, wide), (own, narrow)):
        reduce = "reduce_scatter" if plan.zero else "all_reduce"
        back = comm.best(reduce, size * stack.gradient, who).total
        ahead = comm.best("all_gather", size * BYTES, who).total if plan.zero else 0.0
        found.append([ahead, back] if size else [0.0, 0.0])
    ahead, back = (fsum(one[way] for one in found) for way in (0, 1))
    count = model.layers / plan.pipeline
    if plan.zero == 3:  # a layer's weights come under the layer before, twice
        forward = max(0.0, ahead - ways[0])
        backward = max(0.0, ahead + back - ways[1])
        return plan.micro_batches * (forward + backward) + (ahead + back) / count
    if not stack.data:
        return ahead + back
    # Under one micro-batch's passes, but for the last layer's.
    return fsum(
        max(one / count, one - way) for one, way in ((ahead, ways[0]), (back, ways[1]))
    )


# --8<-- [end:step]


def _splits(model: Decoder, plan: Plan, stack: Stack) -> None:
    what = []
    if model.heads % plan.tensor:
        what.append(f"tensor = {plan.tensor} does not divide {model.heads} heads")
    if model.experts and model.experts.routed % plan.expert:
        what.append(f"expert = {plan.expert} does not divide the experts")
    if plan.pipeline * plan.chunks > model.layers:
        what.append(f"{model.layers} layers for {plan.pipeline * plan.chunks} chunks")
    if plan.schedule == "1F1B" and plan.chunks > 1 and plan.pipeline == 1:
        what.append(f"chunks = {plan.chunks} need a pipeline")
    if plan.schedule != "1F1B" and plan.chunks > 1:
        what.append(f"{plan.schedule} has no chunks = {plan.chunks}")
    if stack.fp8 and not stack.gpu.fp8:
        what.append(f"{stack.gpu.name} has no fp8")
    if what:
        raise ValueError(f"training_time: {what[0]}; use another plan")


def mfu(model: Decoder, plan: Plan, stack: Stack, seconds: float) -> float:
    """Of the bf16 peak, by the operations of the model alone, with all of attention."""
    flops = arithmetic.training_flops_per_token(model, plan.sequence)
    tokens = plan.batch * plan.sequence
    return flops * tokens / (plan.gpus * seconds * stack.gpu.peak)


def demo() -> None:
    """Where the time of two steps goes, and what more GPUs bring at a fixed batch."""
    llama = arithmetic.MODELS["Llama 3.1 405B"]
    bridge = STACKS["Megatron Bridge, H100, fp8"]
    large = Plan(1024, 1536, 1, 8192, 8, 8, context=2, chunks=8)
    gpt, old = arithmetic.GPT3, STACKS["Megatron-LM 2021, A100"]
    early = {"recompute": "full", "scattered": False, "zero": 0, "fused": False}
    small = Plan(384, 1536, 1, 2048, 8, 12, dropout=True, **early)
    runs = (("Llama 3.1 405B", llama, large, bridge), ("GPT-3 175B", gpt, small, old))
    for name, model, plan, stack in runs:
        made = step(model, plan, stack)
        rate = plan.batch * plan.sequence / (plan.gpus * made.total)
        used = 100 * mfu(model, plan, stack, made.total)
        print(f"{name}, {plan.gpus} GPUs, {stack.name}")
        print(
            f"  {made.total:.2f} s, {rate:.0f} tokens/s a GPU, MFU {used:.1f} % of bf16"
        )
        parts = sorted(vars(made).items(), key=lambda part: -part[1])
        shares = (f"{what} {100 * part / made.total:.1f} %" for what, part in parts[:5])
        print(f"  {', '.join(shares)}")
    print("GPT-3 175B, batch 1536: GPUs, s a step, bubble, days for 300e9 tokens")
    for gpus in (384, 768, 1536, 3072):
        plan = Plan(gpus, 1536, 1, 2048, 8, 12, dropout=True, **early)
        made = step(gpt, plan, old)
        days = 300e9 / (plan.batch * plan.sequence) * made.total / 86400
        waits = 100 * made.bubble / made.total
        print(f"  {gpus:5}{made.total:9.2f}{waits:7.1f} %{days:7.1f}")


if __name__ == "__main__":
    demo()

"""The answers to the exercises of docs/training/, page by page."""

from __future__ import annotations

from bisect import bisect_left
from itertools import count
from math import ceil, frexp
from random import Random
from typing import NamedTuple

from snippets.float_formats.float_formats import E2M1, E4M3, E5M2, FORMATS, scaled
from snippets.model_flops.model_flops import (
    MODELS,
    Decoder,
    activation_bytes,
    attention_weights,
    cache_bytes_per_token,
    parameters,
    state_bytes,
)
from snippets.parallel_planner.costs import Layout
from snippets.parallel_planner.parallel_planner import Stage, step_time
from snippets.pipeline_schedules import clock
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.clock import Times
from snippets.pipeline_schedules.schedule import Schedule
from snippets.ring_orders import ring_orders as orders
from snippets.ring_steps import ring_steps as steps

# What a planner weighs.


def points_of_the_first_space() -> tuple[str]:
    powers = [2**i for i in range(10)]
    layers = heads = 96
    found = [
        (512 // t // p, t, p)
        for t in powers
        for p in powers
        if t <= 8 and heads % t == 0 and p <= layers and t * p <= 512
    ]
    return (f"{len(found)} triples",)


def what_uneven_costs() -> tuple[str, str]:
    def time_of_step(times: list[float]) -> float:
        return step_time([Stage(0, 1, Layout(), 0, t, 0, 0) for t in times], 16)

    return f"{time_of_step([10, 10, 10, 12]):.0f} ms", f"{time_of_step([10.5] * 4):.1f} ms"


def recompute_or_split() -> tuple[str, str]:
    wanted, freed = 8 * 10 * 1.0 - 60, 8 * 0.9
    layers = ceil(wanted / freed)
    return f"{layers} layers", f"{100 * layers / 3 / 10:.0f} %"


# What collectives cost, from their own messages.


def bytes_of_a_ring() -> tuple[str, str]:
    made = steps.ring(16)
    (sent,) = set(made.sent(4_000_000_000))
    return f"{sent / 1e9:.1f} GB", f"{sent / 50e9 * 1e3:.0f} ms"


def where_latency_is_half() -> str:
    made, latency, rate = steps.ring(256), 10e-6, 50e9
    waiting, known = made.time(0, latency, rate), 2**30
    sending = made.time(known, latency, rate) - waiting  # in proportion to the size
    return f"{known * waiting / sending / 1e6:.0f} MB"


def ring_against_halving() -> tuple[str, str]:
    ways = (steps.ring(64), steps.halving(64))
    first, second = (made.time(16_000_000, 5e-6, 50e9) * 1e6 for made in ways)
    return f"{first:,.0f} µs", f"{second:,.0f} µs"


def bus_bandwidth() -> tuple[str, str]:
    size, seconds, n = 2**30, 4.5e-3, 8
    bus = size / seconds * max(steps.ring(n).sent(size)) / size
    return f"{bus / 1e9:.0f} GB/s", f"{100 * bus / 450e9:.0f} %"


class _Bf16(NamedTuple):
    value: float

    def __add__(self, other: object) -> _Bf16:
        assert isinstance(other, _Bf16)
        total = self.value + other.value
        unit = 2.0 ** (frexp(total)[1] - 8)  # eight bits, the first of them implied
        return _Bf16(round(total / unit) * unit)  # halves go to the even one


def the_order_of_a_sum() -> str:
    parts = [[_Bf16(first)] * 4 for first in (256.0, 1.0, 1.0, 1.0)]
    (*some, last) = (f"{one.value:.0f}" for one in steps.ring(4).run(parts)[-1][0])
    return f"{', '.join(some)} and {last}"


# What a rank keeps and sends.

DATA_PARALLELISM_SMALL = MODELS["Llama 3.1 8B"]


def tokens_that_hide() -> tuple[str, str]:
    tokens = 350e12 / 50e9
    return f"{tokens:,.0f} tokens", f"{4 * 2**20 // tokens:.0f} ranks"


def the_first_stage_that_fits() -> tuple[str, str]:
    count, room = parameters(MODELS["Llama 2 13B"]), 60e9
    for stage in range(4):
        held = state_bytes(count, stage, 32)
        if held <= room:
            return f"stage {stage}", f"{held / 1e9:.1f} GB"
    raise AssertionError("none fits")


def traffic_with_accumulation() -> tuple[str, str]:
    count, batches, element = parameters(DATA_PARALLELISM_SMALL), 16, 2
    half = max(steps.reduce_scatter(64).sent(count)) * element
    first = 2 * half  # a reduce-scatter and an all-gather, once a step
    third = 3 * batches * half
    return f"{first / 1e9:.0f} GB", f"{third / 1e9:.0f} GB"


def a_bucket_for_a_thousand_ranks() -> tuple[str, str]:
    n, latency, rate, bucket = 1024, 5e-6, 50e9, 25e6
    waiting = 2 * (n - 1) * latency
    sending = 2 * (n - 1) / n * bucket / rate
    return f"{100 * waiting / (waiting + sending):.0f} %", f"{n * latency * rate / 1e6:.0f} MB"


# What tuning a model takes.

FINE_TUNING_SMALL, LARGE = MODELS["Llama 3.1 8B"], MODELS["Llama 3.1 70B"]


def _sum_of_sides(model: Decoder) -> int:
    """The sum of both sides of a layer's matrices: an adapter has rank times that."""
    h, f, values = model.hidden, model.feed_forward, model.heads * model.head_dim
    keys = model.kv_heads * model.head_dim
    shapes = [(h, values), (h, keys), (h, keys), (values, h), (h, f), (h, f), (f, h)]
    assert sum(p * q for p, q in shapes) == attention_weights(model) + 3 * h * f
    return sum(p + q for p, q in shapes)


def adapters_of_a_larger_model() -> tuple[str, str, str]:
    new = 16 * _sum_of_sides(LARGE) * LARGE.layers
    count, tables = parameters(LARGE), 2 * LARGE.vocabulary * LARGE.hidden
    plain = 2 * count + 16 * new
    quantized = (count - tables) * 4.127 / 8 + 2 * tables + 16 * new
    return f"{new / 1e6:.0f} million", f"{plain / 1e9:.0f} GB", f"{quantized / 1e9:.0f} GB"


def rank_of_one_percent() -> str:
    rank = 1
    while rank * _sum_of_sides(FINE_TUNING_SMALL) * FINE_TUNING_SMALL.layers < 0.01 * parameters(
        FINE_TUNING_SMALL
    ):
        rank += 1
    return f"{rank}"


def tokens_that_hide_offloading() -> tuple[str, str]:
    rate, bus, memory = 400e12, 32e9, 300e9
    over_bus = 4 / bus * rate / 6
    on_host = 28 / memory * rate / 6
    return f"{over_bus:,.0f} tokens", f"{over_bus + on_host:,.0f} tokens"


def padding() -> tuple[str, str]:
    lengths = (100, 900, 300, 2048, 150, 500)
    wasted = 1 - sum(lengths) / (len(lengths) * max(lengths))
    return f"{100 * wasted:.0f} %", f"{1 / (1 - wasted):.1f} times"


def logits_in_chunks() -> tuple[str, str]:
    row = 4 * FINE_TUNING_SMALL.vocabulary
    return f"{2 * 16384 * row / 1e9:.1f} GB", f"{2 * 1024 * row / 1e9:.1f} GB"


# What eight bits hold.


def the_gap_at_three_hundred() -> tuple[str, str]:
    return f"{E4M3.cast(300):g}", f"{E5M2.cast(300):g}"


def values_in_a_byte() -> tuple[str, str]:
    return tuple(f"{2 * len(form.values) - 1} values" for form in FORMATS[:2])


def what_becomes_zero() -> tuple[str, str]:
    counts = []
    for form in (E4M3, E5M2):
        low, high = 0.0, 8.0
        for _ in range(80):  # halve the interval between what is lost and what is kept
            middle = (low + high) / 2
            kept = scaled([8.0, middle], form)[1][1] > 0
            low, high = (low, middle) if kept else (middle, high)
        counts.append(8 / high)
    return f"{counts[0] / 1e3:.0f} thousand times", f"{counts[1] / 1e9:.1f} billion times"


def an_outlier_in_four_bits() -> tuple[str, str]:
    lost = []
    for largest in (4.0, 16.0):
        values = [k / 16 for k in range(1, 16)]
        lost.append(scaled([*values, largest], E2M1)[1].count(0.0))
    return f"{lost[0]}", f"{lost[1]}"


def bytes_of_the_scales() -> tuple[str, str]:
    elements = 8192 * 7168
    rows, blocks = elements / 128 * 4, elements / 128**2 * 4
    return f"{rows / 1e6:.2f} MB", f"{blocks / 1e3:.0f} kB"


# Bytes, loads and groups of a mixture of experts.

MIXTURE_OF_EXPERTS_PEAK, MIXTURE_OF_EXPERTS_NETWORK, BANDWIDTH = (
    989e12,
    50e9,
    3.35e12,
)  # data sheets: flop/s, bytes/s
DEEPSEEK = MODELS["DeepSeek-V3"]
assert DEEPSEEK.experts


def bytes_of_a_dispatch() -> tuple[str, str]:
    chosen, hidden = DEEPSEEK.experts.chosen, DEEPSEEK.hidden
    wide, narrow = (chosen * hidden * (out + 2) for out in (2, 1))
    return f"{wide / 2**10:.0f} KiB", f"{narrow / 2**10:.0f} KiB"


def against_the_network() -> tuple[str, str]:
    intensity = 4.5 * DEEPSEEK.experts.size / 2
    ratio = MIXTURE_OF_EXPERTS_PEAK / MIXTURE_OF_EXPERTS_NETWORK / intensity
    return f"{intensity:,.0f} flops a byte", f"{ratio:.1f} times"


def _draw_loads(tokens: int, experts: int, chosen: int, draws: int = 100) -> list[list[int]]:
    dice, found = Random(0), []
    for _ in range(draws):
        counts = [0] * experts
        for _ in range(tokens):
            for expert in dice.sample(range(experts), chosen):
                counts[expert] += 1
        found.append(counts)
    return found


def the_busiest_expert() -> tuple[str, str]:
    ratios = []
    for tokens in (256, 4096):
        loads = _draw_loads(tokens, 64, 2, 100 if tokens < 1000 else 10)
        mean = 2 * tokens / 64
        ratios.append(sum(map(max, loads)) / len(loads) / mean)
    return f"{ratios[0]:.1f} times", f"{ratios[1]:.1f} times"


def dropped_tokens() -> str:
    tokens, experts, chosen = 256, 64, 2
    places = int(1.25 * chosen * tokens / experts)
    loads = _draw_loads(tokens, experts, chosen)
    lost = sum(max(0, load - places) for counts in loads for load in counts)
    return f"{100 * lost / (len(loads) * chosen * tokens):.0f} %"


def conversations_for_full_groups() -> tuple[str, str]:
    experts = DEEPSEEK.experts
    group = 128 * experts.chosen / experts.routed
    enough = MIXTURE_OF_EXPERTS_PEAK / BANDWIDTH * experts.routed / experts.chosen
    return f"{group:.0f} tokens", f"{enough:,.0f} conversations"


# Schedules, from the model of them.

PIPELINE_PARALLELISM_LLAMA = MODELS["Llama 3.1 70B"]


def _idle_share(made: Schedule) -> float:
    return made.bubble / made.makespan


def micro_batches_for_five_percent() -> tuple[str, str]:
    p, most = 8, 0.05
    plain = bisect_left(
        range(256), -most, key=lambda m: -_idle_share(schedules.gpipe(p, max(m, 1)))
    )
    thin = next(m for m in count(p, p) if _idle_share(schedules.interleaved(p, m, 4)) <= most)
    return f"{plain}", f"{thin}"


def memory_of_the_first_rank() -> tuple[str, str]:
    p, m = 8, 32
    stage = (
        activation_bytes(PIPELINE_PARALLELISM_LLAMA, 8192, recompute="selective") / p / 8
    )  # tensor ranks
    made = schedules.one_f_one_b(p, m)
    first, last = (made.held(rank) * stage / 1e9 for rank in (0, p - 1))
    return f"{first:.0f} GB", f"{last:.0f} GB"


def a_split_backward_pass() -> tuple[str, str]:
    p, m = 8, 16
    before, after = schedules.one_f_one_b(p, m), schedules.zero_bubble_h1(p, m)
    saved = 1 - after.makespan / before.makespan
    return f"{100 * saved:.0f} %", f"{100 * _idle_share(after):.0f} %"


def the_price_of_interleaving() -> tuple[str, str]:
    p, m = 8, 16
    peak = [schedules.interleaved(p, m, v).peak for v in (2, 4)]
    return f"{peak[0]:g} micro-batches", f"{peak[1]:g} micro-batches"


def a_heavy_head() -> tuple[str, str]:
    p, made = 8, schedules.one_f_one_b(8, 32)
    stage, head, none = Times(10, 10, 10), Times(1, 1, 1), Times(0, 0, 0)
    even = clock.run(made, stage).makespan
    last = clock.run(made, clock.uneven(stage, p, none, head)).makespan
    spread = clock.run(made, stage.plus(head.times(1 / p))).makespan
    return f"{100 * (last / even - 1):.1f} %", f"{100 * (spread / even - 1):.1f} %"


# Attention on a ring.

SEQUENCE_PARALLELISM_LLAMA = MODELS["Llama 3.1 8B"]


def tokens_a_rank_needs() -> tuple[str, str]:
    rate, wire, element = 600e12, 50e9, 2
    full = element * rate / (2 * wire)
    sharing = SEQUENCE_PARALLELISM_LLAMA.heads // SEQUENCE_PARALLELISM_LLAMA.kv_heads
    return f"{full:,.0f} tokens", f"{2 * full / sharing:,.0f} tokens"


def what_the_order_costs() -> tuple[str, str]:
    ranks, tokens = 8, 256
    plain, zigzag = (orders.time(order, ranks, tokens) for order in ("plain", "zigzag"))
    return f"{plain / zigzag:.2f} times", f"{100 * orders.busy('plain', ranks, tokens):.0f} %"


def bytes_of_a_million_tokens() -> tuple[str, str]:
    ranks, tokens = 16, 2**20
    forward = (ranks - 1) * tokens // ranks * cache_bytes_per_token(SEQUENCE_PARALLELISM_LLAMA)
    return f"{forward / 1e9:.0f} GB", f"{forward / 50e9:.1f} s"


def striped_is_nearly_even() -> tuple[str, str]:
    ranks = 4
    ratio = [
        orders.time("striped", ranks, n) / orders.time("zigzag", ranks, n) - 1 for n in (16, 256)
    ]
    return f"{100 * ratio[0]:.0f} %", f"{100 * ratio[1]:.1f} %"


# Bytes and widths of a split layer.

TENSOR_PARALLELISM_PEAK, NVLINK, TENSOR_PARALLELISM_NETWORK = (
    989e12,
    450e9,
    50e9,
)  # data sheets: flop/s, bytes/s one way
TENSOR_PARALLELISM_LLAMA = MODELS["Llama 3.1 70B"]
RANKS = 8


def exchange_against_arithmetic() -> tuple[str, str]:
    intensity = 9 * 12288 / ((RANKS - 1) * 2)
    return (
        f"{100 * TENSOR_PARALLELISM_PEAK / NVLINK / intensity:.0f} %",
        f"{TENSOR_PARALLELISM_PEAK / TENSOR_PARALLELISM_NETWORK / intensity:.1f} times",
    )


def bytes_of_a_step() -> tuple[str, str]:
    layer = 8 * (RANKS - 1) / RANKS * 8192 * TENSOR_PARALLELISM_LLAMA.hidden * 2
    return f"{layer / 1e9:.2f} GB", f"{layer * TENSOR_PARALLELISM_LLAMA.layers / NVLINK:.2f} s"


def activations_in_two_parts() -> tuple[str, str]:
    each = 8192 * TENSOR_PARALLELISM_LLAMA.hidden * TENSOR_PARALLELISM_LLAMA.layers
    return f"{each * (10 + 24 / RANKS) / 1e9:.0f} GB", f"{each * 34 / RANKS / 1e9:.0f} GB"


def which_products_hide() -> tuple[str, str]:
    need = 2 * TENSOR_PARALLELISM_PEAK / (2 * NVLINK)
    heads = TENSOR_PARALLELISM_LLAMA.heads + 2 * TENSOR_PARALLELISM_LLAMA.kv_heads
    widths = {
        "Q, K and V": heads * TENSOR_PARALLELISM_LLAMA.head_dim / RANKS,
        "the output": TENSOR_PARALLELISM_LLAMA.heads * TENSOR_PARALLELISM_LLAMA.head_dim / RANKS,
        "gate and up": 2 * TENSOR_PARALLELISM_LLAMA.feed_forward / RANKS,
        "down": TENSOR_PARALLELISM_LLAMA.feed_forward / RANKS,
    }
    shown = [name for name, width in widths.items() if width < need]
    return " and ".join(shown), f"{100 * (1 - widths[shown[0]] / need):.0f} %"

"""What pipeline_schedules must show: the papers' figures, and the pages' pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from snippets.pipeline_schedules import clock, measured
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.automatic import automatic
from snippets.pipeline_schedules.clock import Times
from snippets.pipeline_schedules.schedule import Costs, Schedule

# p and m for which every formula is published: p even, m even, a multiple and >= 2 p.
SIZES = ((2, 6), (4, 8), (4, 32), (8, 24))
CHUNKS = (2, 3, 4)  # v of the interleaved schedule
UNEVEN = Costs(forward=4, input=5, weight=3)  # no two passes alike; W the shortest
PAIRED = Costs(forward=4, input=4, weight=3)  # DualPipe's formula needs F = I

MEGATRON = "megatron-interleaved-1f1b"
RECOMPUTATION = "reducing-activation-recomputation"
Row = tuple[str, float, float, str]  # name, value, expected, source


GOALS = (
    {
        "name": "Throughput, one constant a model",
        "sets": (measured.RATE,),
        "within": 0.05,
        "share": 1.0,
    },
    {
        "name": "Idle shares, no constant",
        "sets": (measured.IDLE,),
        "within": 0.05,
        "share": 1.0,
    },
    {"name": "Peak memory, no constant", "sets": (measured.MEMORY,), "worst": 0.055},
)


def predictions() -> list[dict[str, Any]]:
    """Idle shares, throughput and memory that the zero-bubble paper published."""
    return list(measured.predictions())


def facts() -> list[dict[str, Any]]:
    """The schedules against the formulas, on the table and on the clock."""
    return [*table_facts(), *clock_facts()]


def clock_facts() -> list[dict[str, Any]]:
    """What times and messages do, where a formula or a paper's figure is exact."""
    rows = []

    def fact(name: str, value: float, expected: float, allowed: float, of: str) -> None:
        row = {"name": name, "value": value, "expected": expected, "source": of}
        rows.append({**row, "tolerance": allowed, "unit": ""})

    rounding = 1e-12
    p, m = 8, 24
    f, i, w, c = 18.5, 18.1, 9.3, 0.6
    times = Times(f, i, w)
    made = clock.run(schedules.one_f_one_b(p, m), times)
    step = (m + p - 1) * (f + i + w)
    what = f"On the clock: step of 1F1B, p {p}, m {m}"
    fact(what, made.makespan, step, rounding, MEGATRON)
    made = clock.run(schedules.zero_bubble_h2(p, m), Times(i, i, i), c)
    step = m * 3 * i + (p - 1) * 2 * c  # m (F + I + W) + (p - 1) (F + I + 2 c - 2 W)
    what = "On the clock: step of ZB-H2 with messages, validated later"
    fact(what, made.step(validated_later=True), step, rounding, "zero-bubble")
    # One micro-batch goes down and comes back: nothing overlaps, so nothing can differ.
    for blocks in (False, True):
        made = clock.run(schedules.one_f_one_b(p, 1), times, c, blocks=blocks)
        step = p * (f + i + w) + 2 * (p - 1) * c
        what = f"On the clock: one micro-batch, receives block: {blocks}"
        fact(what, made.makespan, step, rounding, MEGATRON)
    # The slowest stage sets the pace, whatever the schedule.
    head = Times(4.0, 4.0, 4.0)
    slow = clock.uneven(times, p, Times(0, 0, 0), head)
    made = clock.run(schedules.one_f_one_b(p, m), slow)
    step = (m + p - 1) * (f + i + w) + m * 12.0
    what = "On the clock: a head on the last stage of 1F1B"
    fact(what, made.makespan, step, rounding, MEGATRON)
    by_hand = clock.run(schedules.zero_bubble_h1(p, m), times, c)
    found = automatic(p, m, times, c, p, 0.4)
    what = f"On the clock: searched order for {p} held, against ZB-H1"
    fact(what, found.span, by_hand.span, rounding, "zero-bubble")
    for setting, ours, published in measured.searched():
        what = f"Working share of ZB-2p, {setting.model}, m {setting.micro_batches}"
        fact(what, 1 - ours, 1 - published, 0.0015, "zero-bubble")
    return rows


def table_facts() -> list[dict[str, Any]]:
    """Idle time, activations and copies of every schedule against the formulas."""
    rows = []
    for p, m in SIZES:
        for made, checks in figures(p, m):
            costs = made.costs
            times = f"F {costs.forward}, I {costs.input}, W {costs.weight}"
            for name, value, expected, source in checks:
                rows.append(
                    {
                        "name": f"{made.name}, p {p}, m {m}, {times}: {name}",
                        "value": value,
                        "expected": expected,
                        "tolerance": 0,
                        "unit": "",
                        "source": source,
                    }
                )
    return rows


def figures(p: int, m: int) -> Iterator[tuple[Schedule, list[Row]]]:
    """Each schedule of `p` ranks and `m` micro-batches, and what is published of it."""
    f, i, w = UNEVEN.forward, UNEVEN.input, UNEVEN.weight
    both = (p - 1) * (f + i + w)

    made = schedules.gpipe(p, m, UNEVEN)
    share = (p - 1) / (m + p - 1)  # K = p, M = m
    yield (
        made,
        [
            ("idle share of the step", made.bubble / made.makespan, share, "gpipe"),
            ("bubble", made.bubble, both, MEGATRON),
            ("peak activations", made.peak, m, MEGATRON),
        ],
    )
    made = schedules.one_f_one_b(p, m, UNEVEN)
    yield (
        made,
        [
            ("bubble", made.bubble, both, MEGATRON),
            # NUM_OPT_ACTIVE_MINIBATCHES of a straight pipeline
            ("peak activations", made.peak, p, "pipedream"),
            ("activations of the last rank", made.held(p - 1), 1, "pipedream"),
        ],
    )
    for v in CHUNKS:
        made = schedules.interleaved(p, m, v, UNEVEN)
        useful = m * v * (f + i + w)
        # L (1 + (p - 1) / (p v)) layers, where a stage has L / p
        stages = (p * v + p - 1) / v
        yield (
            made,
            [
                ("bubble / useful", made.bubble / useful, (p - 1) / (v * m), MEGATRON),
                ("peak activations", made.peak, stages, RECOMPUTATION),
            ],
        )
    # T_F, T_B, T_W of the paper are f, i, w here.
    for build, times, most in (
        (schedules.zero_bubble_h1, 1, p),
        (schedules.zero_bubble_h2, 2, 2 * p - 1),
    ):
        made = build(p, m, UNEVEN)
        bubble = (p - 1) * (f + i - times * w)
        yield (
            made,
            [
                ("bubble", made.bubble, bubble, "zero-bubble"),
                ("peak activations", made.peak, most, "zero-bubble"),
                ("activations of the last rank", made.held(p - 1), most, "zero-bubble"),
            ],
        )
    made = schedules.zero_bubble_v(p, m)  # of F = I = W
    yield (
        made,
        [
            ("bubble", made.bubble, 0, "zero-bubble"),
            ("peak activations", made.peak, p, "zero-bubble"),
            ("activations of the last rank", made.held(p - 1) / 2, p, "zero-bubble"),
            ("copies of the parameters", made.copies, 1, "zero-bubble"),
        ],
    )
    # Here B is a whole backward pass, and F&B an overlapped pair, of the time of both.
    f, b, w = PAIRED.forward, PAIRED.backward, PAIRED.weight
    saved = (f + b) + b - 3 * w
    made = schedules.dualpipe(p, m, PAIRED)
    yield (
        made,
        [
            ("bubble", made.bubble, (p // 2 - 1) * saved, "deepseek-v3"),
            ("peak activations", made.peak, p + 1, "deepseek-v3"),
            ("copies of the parameters", made.copies, 2, "deepseek-v3"),
        ],
    )
    made = schedules.dualpipe_v(p, m, PAIRED)
    pp = 2 * p  # stages on half as many ranks; all is counted in them
    held = made.peak * made.chunks
    yield (
        made,
        [
            ("bubble", made.bubble, (pp // 2 - 1) * saved, "dualpipe"),
            ("peak activations, of half a stage", held, pp + 1, "dualpipe"),
            ("copies of the parameters", made.copies, 1, "dualpipe-without-the-dual"),
        ],
    )


NOTE = (
    "A forward pass through a stage takes 1 unit, a backward pass 2; "
    "messages take no time."
)


def timelines() -> list[dict[str, Any]]:
    """The pictures of 4 ranks and 8 micro-batches, on one scale."""
    p, m = 4, 8
    return [
        timeline("gpipe", schedules.gpipe(p, m)),
        timeline("1f1b", schedules.one_f_one_b(p, m)),
        timeline("interleaved", schedules.interleaved(p, m, 2), other="second chunk"),
        timeline("zb-h1", schedules.zero_bubble_h1(p, m)),
        timeline("zb-v", schedules.zero_bubble_v(p, m), other="upwards"),
        timeline("dualpipe", schedules.dualpipe(p, m), other="upwards"),
        timeline("dualpipe-v", schedules.dualpipe_v(p, m), other="upwards"),
    ]


def timeline(name: str, made: Schedule, other: str = "") -> dict[str, Any]:
    """A schedule as plain data; `other` says what a chunk that is not 0 means."""
    size = f"{made.ranks} ranks and {made.micro_batches} micro-batches"
    row: dict[str, Any] = {
        "name": name,
        "title": f"{made.name}, {size}",
        "note": NOTE,
        "unit": made.chunks * made.costs.forward,
        "held": [made.held(rank) / made.chunks for rank in range(made.ranks)],
        "passes": [
            {
                "rank": one.rank,
                "start": one.start,
                "end": one.end,
                "kind": one.kind.value,
                "micro_batch": one.micro_batch,
                "chunk": one.chunk,
            }
            for one in made.passes
        ],
    }
    return {**row, "other": other} if other else row

"""What pipeline_schedules must show: the papers' figures, and the pages' pictures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.pipeline_schedules import Costs, Schedule

# p and m for which every formula is published: p even, m even, a multiple and >= 2 p.
SIZES = ((2, 6), (4, 8), (4, 32), (8, 24))
CHUNKS = (2, 3, 4)  # v of the interleaved schedule
UNEVEN = Costs(forward=4, input=5, weight=3)  # no two passes alike; W the shortest
PAIRED = Costs(forward=4, input=4, weight=3)  # DualPipe's formula needs F = I

MEGATRON = "megatron-interleaved-1f1b"
RECOMPUTATION = "reducing-activation-recomputation"
Row = tuple[str, float, float, str]  # name, value, expected, source


def facts() -> list[dict[str, Any]]:
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

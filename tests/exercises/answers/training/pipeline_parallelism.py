"""Schedules, from the model of them."""

from bisect import bisect_left
from itertools import count

from snippets.model_flops.model_flops import MODELS, activation_bytes
from snippets.pipeline_schedules import clock
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.clock import Times

LLAMA = MODELS["Llama 3.1 70B"]


def _share(made: schedules.Schedule) -> float:
    return made.bubble / made.makespan


def micro_batches_for_five_percent() -> tuple[str, str]:
    p, most = 8, 0.05
    plain = bisect_left(range(256), -most, key=lambda m: -_share(schedules.gpipe(p, max(m, 1))))
    thin = next(m for m in count(p, p) if _share(schedules.interleaved(p, m, 4)) <= most)
    return f"{plain}", f"{thin}"


def memory_of_the_first_rank() -> tuple[str, str]:
    p, m = 8, 32
    stage = activation_bytes(LLAMA, 8192, recompute="selective") / p / 8  # tensor ranks
    made = schedules.one_f_one_b(p, m)
    first, last = (made.held(rank) * stage / 1e9 for rank in (0, p - 1))
    return f"{first:.0f} GB", f"{last:.0f} GB"


def a_split_backward_pass() -> tuple[str, str]:
    p, m = 8, 16
    before, after = schedules.one_f_one_b(p, m), schedules.zero_bubble_h1(p, m)
    saved = 1 - after.makespan / before.makespan
    return f"{100 * saved:.0f} %", f"{100 * _share(after):.0f} %"


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

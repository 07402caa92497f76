"""How many micro-batches' activations a rank holds at once, by schedule.

The counts are those of the executed tables of pipeline_schedules, written down so that
thousands of ranks cost nothing; that they are equal is a fact of this snippet.
"""

from __future__ import annotations

from snippets.memory_model.plan import Plan


# --8<-- [start:held]
def held(plan: Plan, rank: int) -> float:
    """Micro-batches of all the layers of `rank` whose activations are held at most."""
    p, m, v = plan.pipeline, plan.micro_batches, plan.chunks
    if plan.schedule == "gpipe":
        return m
    if plan.schedule == "1f1b":
        return min(p - rank, m)
    if plan.schedule == "interleaved":
        return min(2 * (p - 1 - rank) + (v - 1) * p + 1, m * v) / v
    # Weight passes that are put off keep their activations to the end.
    if plan.schedule == "zb-h1":
        return min(p, m)
    if plan.schedule == "zb-h2":
        return min(2 * p - 1, m)
    if plan.schedule == "zb-v":
        return min(p, m)
    if plan.schedule == "dualpipe":  # of two slices
        return min(p + 1, m) / 2
    if plan.schedule == "dualpipe-v":
        return min(p + 0.5, m)
    # Made by a search that fills what it is given, p or 2 p.
    return min(p if plan.schedule == "zb-1p" else 2 * p, m)


# --8<-- [end:held]

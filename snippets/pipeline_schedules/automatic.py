"""An order for measured times and a limit on memory."""

from __future__ import annotations

import heapq
import math
from itertools import product

from snippets.pipeline_schedules import clock
from snippets.pipeline_schedules.clock import Run, Times
from snippets.pipeline_schedules.schedule import Kind, Slot, Task, timed

EPSILON = 1e-9  # activations and times that differ by less are one


# --8<-- [start:automatic]
def automatic(
    p: int,
    m: int,
    times: Times,
    transfer: float = 0.0,
    limit: float | None = None,
    kept: float = 1.0,
    *,
    validated_later: bool = True,
) -> Run:
    """The best of a few greedy orders, within `limit` micro-batches held (default 2 p).

    ZB-H1 and ZB-H2 fix how far a rank runs ahead and how long weight passes wait. Here
    both follow from the times: rank r starts as many forward passes as fit until its
    first gradient comes back, and a weight pass runs where its rank would wait for that
    long, where memory is short, and at the end. The best has the shortest step, whether
    `validated_later` or not. Raises ValueError for a limit below p.
    """
    limit = 2 * p if limit is None else limit
    if p < 1 or m < 1 or limit < min(p, m):
        raise ValueError(
            f"pipeline_schedules: p = {p}, m = {m}, limit = {limit}; "
            "give 1 or more of each, and a limit of p or more"
        )
    tried = [
        _greedy(p, m, times, transfer, limit, kept, patient, fewer)
        for patient, fewer in product((False, True), (0, 1))
    ]

    def step(one: tuple[list[float], list[float], list[list[Slot]]]) -> float:
        starts, ends, _ = one
        spans = [end - start for start, end in zip(starts, ends, strict=True)]
        return round(max(spans if validated_later else ends) / max(tried[0][1]), 9)

    orders = min(tried, key=step)[2]
    name = f"Automatic, at most {limit:g} held"
    made = timed(name, orders, [[(rank, 0) for rank in range(p)]] * m, None)
    return clock.run(made, times, transfer, kept=kept)


def _greedy(
    p: int,
    m: int,
    times: Times,
    transfer: float,
    limit: float,
    kept: float,
    patient: bool,
    fewer: int,
) -> tuple[list[float], list[float], list[list[Slot]]]:
    """Starts, ends and order of each rank. `fewer` forward passes come first than fit.

    A rank takes a weight pass rather than wait at all or, if it is `patient`, rather
    than wait for as long; then it puts off no more than fill its wait at the end.
    """
    forward, weight = times.forward or EPSILON, times.weight or EPSILON
    trip = times.forward + times.input + 2 * transfer  # to the next rank and back
    ahead, queue = [], []
    for rank in range(p):
        want = math.ceil((p - 1 - rank) * trip / forward) - fewer
        want = max(want, p - 1 - rank)  # or the ranks to come cannot start
        ahead.append(min(want, max(0, math.floor(limit) - 1 - rank), m - 1))
        queue.append(math.ceil(rank * trip / weight) if patient else m)
    done = [{kind: 0 for kind in Kind} for _ in range(p)]
    held = [0.0] * p
    input_at = [[0.0 if rank == 0 else None] * m for rank in range(p)]
    gradient_at: list[list[float | None]] = [[None] * m for _ in range(p)]
    orders: list[list[Slot]] = [[] for _ in range(p)]
    starts, ends = [0.0] * p, [0.0] * p
    clockwork = [(0.0, rank) for rank in range(p)]
    asleep: dict[int, float] = {}  # ranks that wait for what nobody has begun

    def deliver(box: list[list[float | None]], rank: int, j: int, when: float) -> None:
        box[rank][j] = when
        if rank in asleep:
            heapq.heappush(clockwork, (max(when, asleep.pop(rank)), rank))

    while clockwork:
        now, rank = heapq.heappop(clockwork)
        have = done[rank]
        begun, back, over = have[Kind.FORWARD], have[Kind.INPUT], have[Kind.WEIGHT]
        if over == m:
            continue
        kind, at = Kind.WEIGHT, now
        fits = held[rank] + 1 <= limit + EPSILON
        if begun < m and begun - back <= ahead[rank] and fits:
            kind, at = Kind.FORWARD, input_at[rank][begun]
        elif back < m and (begun == m or begun - back > ahead[rank]):
            kind, at = Kind.INPUT, gradient_at[rank][back]
        late = at is None or at - now >= (times.weight if patient else EPSILON)
        if back > over and (late or back - over > queue[rank]):
            kind, at = Kind.WEIGHT, now
        if at is None:
            asleep[rank] = now
            continue
        if at > now:
            heapq.heappush(clockwork, (at, rank))
            continue
        j, end = have[kind], now + times.of(kind)
        have[kind] += 1
        starts[rank] = starts[rank] if orders[rank] else now
        ends[rank] = end
        orders[rank].append((Task(kind, j),))
        if kind is Kind.FORWARD:
            held[rank] += 1
            if rank + 1 < p:
                deliver(input_at, rank + 1, j, end + transfer)
            else:
                gradient_at[rank][j] = end
        elif kind is Kind.INPUT:
            held[rank] -= 1 - kept
            if rank:
                deliver(gradient_at, rank - 1, j, end + transfer)
        else:
            held[rank] -= kept
        heapq.heappush(clockwork, (end, rank))
    return starts, ends, orders


# --8<-- [end:automatic]

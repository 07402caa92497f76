"""The critical path of a step: back from its end, whom each moment waited for."""

from __future__ import annotations

from typing import Any, NamedTuple

from snippets.profiling.blame import between, host, place, sort_of
from snippets.profiling.trace import Span, Trace

QUICK = 20_000  # ns; a kernel that nothing holds back starts sooner after its launch


class Piece(NamedTuple):
    """A stretch of the path."""

    start: int  # ns
    end: int
    who: str  # host, launch, stream, or what runs on one
    what: str


# --8<-- [start:path]
def path(trace: Trace, step: Span) -> list[Piece]:
    """Pieces that follow each other from the step's start to its end, or to that of the
    last kernel that it launched.

    The host is taken as one, whichever of its threads is at work. It waits for the GPU
    in calls that say so. A kernel waits for its launch, for the one before it on its
    stream, or, where it is later than both, for what ended last on another.
    """
    device, own = trace.device, trace.of(step)
    last = max(own, key=lambda one: one.end, default=None)
    at, on = step.end, None  # None: on the host
    if last is not None and last.end > step.end:
        at, on = last.end, last
    seen = host(trace, step.track, step.start, at)
    waits = _waits(trace, step)
    found: list[Piece] = []

    def add(start: int, who: str, what: str) -> int:
        start = max(start, step.start)
        if start < at:
            found.append(Piece(start, at, who, what))
        return start

    while at > step.start:
        if on is None:
            on, start = _awaited(trace, device, waits, at, step.start)
            at = add(start, "host", place(between(seen, start, at)))
        else:
            at = add(on.start, sort_of(on), on.name)
            on, start, who, what = _before(trace, device, on, step.start)
            at = add(start, who, what)
    return found[::-1]


# --8<-- [end:path]


def _waits(trace: Trace, step: Span) -> list[tuple[Span, Any]]:
    """The calls in which the host waits, latest first, with a stream if it is told."""
    streams = {
        one.correlation: one.args.get("stream", -1)
        for one in trace.spans
        if one.kind == "cuda_sync"
    }
    found = [
        (one, streams.get(one.correlation, -1))
        for one in trace.spans
        if trace.waits(one) and step.start <= one.start
    ]
    return found[::-1]


def _awaited(
    trace: Trace, device: list[Span], waits: list[tuple[Span, Any]], at: int, begin: int
) -> tuple[Span | None, int]:
    """What the host waited for last before `at`, and till when; None for nothing."""
    for call, stream in waits:
        if call.start >= at:
            continue
        awaited = [
            one
            for one in device
            if call.start < one.end <= min(call.end, at)
            and stream in (-1, one.args.get("stream"))
            and _launched(trace, one, begin) <= call.start
        ]
        if awaited:
            last = max(awaited, key=lambda one: one.end)
            return last, last.end
    return None, begin


def _launched(trace: Trace, one: Span, otherwise: int) -> int:
    launch = trace.launches.get(one.correlation)
    return otherwise if launch is None else launch.start


def _before(
    trace: Trace, device: list[Span], one: Span, begin: int
) -> tuple[Span | None, int, str, str]:
    """What a kernel or copy waited for, since when, and how that is called."""
    launch = trace.launches.get(one.correlation)
    start = begin if launch is None else launch.start
    earlier = [
        other
        for other in device
        if other.end <= one.start and (other.start, other.end) < (one.start, one.end)
    ]
    own = [other for other in earlier if other.track == one.track]
    previous = max(own, key=lambda other: other.end, default=None)
    ready = start if previous is None else max(start, previous.end)
    others = [other for other in earlier if other.end > ready]
    if others and one.start - ready > QUICK:
        other = max(others, key=lambda other: other.end)
        return other, other.end, "stream", f"to stream {one.track[1]}"
    if previous is not None and previous.end >= start:
        return previous, previous.end, "stream", "from one to the next"
    return (
        None,
        start,
        "launch",
        "no launch in the trace" if launch is None else launch.name,
    )

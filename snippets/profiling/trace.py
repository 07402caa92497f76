"""A trace as torch.profiler exports it: spans by thread and stream, in nanoseconds.

The file is Chrome's trace format: a list of events, of which "X" has a start and a
length in microseconds. Nesting is not in the file. It follows from the times.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

OPERATOR = "cpu_op"
ANNOTATION = "user_annotation"  # record_function, and the profiler's own steps
RUNTIME = ("cuda_runtime", "cuda_driver")  # calls by which the host launches and waits
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
STEP = "ProfilerStep#"
# Calls in which the host does nothing until the GPU has come so far.
WAITS = (
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize",
    "cuCtxSynchronize", "cuStreamSynchronize", "hipDeviceSynchronize",
    "hipStreamSynchronize", "hipEventSynchronize",
)  # fmt: skip
Moment = tuple[
    int, int, tuple["Span", ...]
]  # from, until, what is open, outermost first
Intervals = list[tuple[int, int]]


# --8<-- [start:read]
class Span(NamedTuple):
    """Something that begins and ends on a thread of the host, or a stream of a GPU."""

    name: str
    kind: str  # the event's category
    track: tuple[str, str]  # process and thread; of a GPU its number and stream
    start: int  # ns
    end: int  # ns
    args: dict[str, Any]

    @property
    def correlation(self) -> int | None:
        """What a launch and its kernel have in common."""
        return self.args.get("correlation")


def read(content: bytes | str) -> Trace:
    """The spans of a file, which may be compressed. Other events are left out."""
    try:
        if isinstance(content, bytes) and content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        # A time has more digits than a float: 4650657915244.965.
        found = json.loads(content, parse_float=Decimal)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"profiling: {error}; give a trace in JSON, or by gzip"
        ) from None
    events = found.get("traceEvents") if isinstance(found, dict) else found
    if not isinstance(events, list):
        raise ValueError(
            "profiling: no list of traceEvents; export it by export_chrome_trace"
        )
    spans = []
    for event in events:
        if event.get("ph") != "X" or "cat" not in event:
            continue
        start, took = int(event["ts"] * 1000), int(event.get("dur", 0) * 1000)
        if took < 0:
            raise ValueError(
                f"profiling: {event['name']} lasts {event['dur']} us, below 0; "
                "record it again"
            )
        track = (str(event["pid"]), str(event["tid"]))
        spans.append(
            Span(event["name"], event["cat"], track, start, start + took,
                 event.get("args", {}))
        )  # fmt: skip
    return Trace(sorted(spans, key=lambda one: (one.start, -one.end)))


# --8<-- [end:read]


class Trace:
    """Spans by start, the outer of two that start together first."""

    def __init__(self, spans: list[Span]) -> None:
        self.spans = spans

    @cached_property
    def threads(self) -> dict[tuple[str, str], list[Span]]:
        """What the host did, by thread."""
        found = defaultdict(list)
        for one in self.spans:
            if one.kind in (OPERATOR, ANNOTATION, *RUNTIME):
                found[one.track].append(one)
        return dict(found)

    @cached_property
    def launches(self) -> dict[int, Span]:
        """The host's call behind a kernel or a copy, by correlation."""
        return {
            one.correlation: one
            for one in self.spans
            if one.kind in RUNTIME and one.correlation is not None
        }

    @cached_property
    def device(self) -> list[Span]:
        """What a GPU did."""
        return [one for one in self.spans if one.kind in DEVICE]

    @cached_property
    def steps(self) -> list[Span]:
        """The steps that the profiler marked, or the one that the whole trace is."""
        marked = [
            one
            for one in self.spans
            if one.kind == ANNOTATION and one.name.startswith(STEP)
        ]
        if marked or not self.threads:
            return marked
        track, most = max(self.threads.items(), key=lambda pair: len(pair[1]))
        end = max(one.end for spans in self.threads.values() for one in spans)
        start = min(spans[0].start for spans in self.threads.values())
        return [Span("the whole trace", ANNOTATION, track, start, end, {})]

    @cached_property
    def copies(self) -> dict[int, Span]:
        """Copies by the GPU, by correlation."""
        return {one.correlation: one for one in self.device if one.kind == "gpu_memcpy"}

    def waits(self, call: Span) -> bool:
        """Whether the host waits in a call, or in a copy that is over by its end."""
        if call.kind not in RUNTIME:
            return False
        copy = self.copies.get(call.correlation)
        return call.name in WAITS or (copy is not None and copy.end <= call.end)

    def of(self, step: Span) -> list[Span]:
        """What the GPU did for a step: all that was launched in it, whenever it ran."""
        found = []
        for one in self.device:
            launch = self.launches.get(one.correlation)
            at = one.start if launch is None else launch.start
            if step.start <= at < step.end:
                found.append(one)
        return found


# --8<-- [start:moments]
def moments(spans: Iterable[Span], start: int, end: int) -> Iterator[Moment]:
    """From start to end without a hole: what is open on a thread, in each moment.

    The innermost, which began last, owns the moment. What a span owns is its self time,
    so self times of a thread add up to the time that went by, even where spans cross.
    """
    opened: list[Span] = []
    at = start
    for span in [*spans, None]:
        until = end if span is None else min(max(span.start, start), end)
        while at < until:
            opened = [one for one in opened if one.end > at]
            stop = min([until, *(one.end for one in opened)])
            yield at, stop, tuple(opened)
            at = stop
        if span is not None:
            opened.append(span)


# --8<-- [end:moments]


def merged(spans: Iterable[Span]) -> Intervals:
    """The times in which at least one of them runs."""
    found: Intervals = []
    for start, end in sorted((one.start, one.end) for one in spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif start < end:
            found.append((start, end))
    return found


def both(ours: Intervals, others: Intervals) -> Intervals:
    """The times that lie in both."""
    found, i, j = [], 0, 0
    while i < len(ours) and j < len(others):
        start = max(ours[i][0], others[j][0])
        end = min(ours[i][1], others[j][1])
        if start < end:
            found.append((start, end))
        if ours[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(intervals: Intervals) -> int:
    """How long they are together, in ns."""
    return sum(end - start for start, end in intervals)

"""Where a step went: time by operator, gaps and who is to blame for them, overlap."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from snippets.profiling.trace import (
    ANNOTATION,
    OPERATOR,
    RUNTIME,
    STEP,
    Moment,
    Span,
    Trace,
    both,
    length,
    merged,
    moments,
)


class Gap(NamedTuple):
    """Time in which no operator runs, or where there is a GPU, nothing runs on that."""

    start: int  # ns
    end: int
    cause: str  # host, sync, launch or device
    place: str  # the innermost that the host was in for most of it
    after: str  # what ran before
    before: str  # and what came then

    @property
    def ns(self) -> int:
        return self.end - self.start


def works(one: Span) -> bool:
    return one.kind in (OPERATOR, *RUNTIME)


def owner(opened: tuple[Span, ...]) -> str:
    """Who owns a moment: an operator, or Python in what is annotated around it."""
    if not opened:
        return "Python"
    last = opened[-1]
    return last.name if works(last) else f"Python in {plain(last.name)}"


def plain(name: str) -> str:
    """A step without its number."""
    return STEP.rstrip("#") if name.startswith(STEP) else name


# --8<-- [start:operators]
def operators(trace: Trace, step: Span) -> Counter[str]:
    """Self time of a step by operator, in ns, which adds up to the step."""
    found: Counter[str] = Counter()
    spans = trace.threads.get(step.track, [])
    for start, end, opened in moments(spans, step.start, step.end):
        found[owner(opened)] += end - start
    return found


# --8<-- [end:operators]


def kernels(trace: Trace, step: Span) -> Counter[str]:
    """The GPU's time of a step by kernel, in ns; what runs at once counts twice."""
    found: Counter[str] = Counter()
    for one in trace.of(step):
        found[one.name] += one.end - one.start
    return found


# --8<-- [start:gaps]
def gaps(trace: Trace, step: Span) -> list[Gap]:
    """The gaps of a step, longest first: of the GPU, or of the thread without one."""
    device = around(trace, step)
    found = _device_gaps(trace, step, device) if device else _host_gaps(trace, step)
    return sorted(found, key=lambda gap: -gap.ns)


def _host_gaps(trace: Trace, step: Span) -> list[Gap]:
    """Between operators."""
    found: list[Gap] = []
    idle: list[Moment] = []
    last = ""
    spans = trace.threads.get(step.track, [])
    for moment in [*moments(spans, step.start, step.end), None]:
        work = [one for one in moment[2] if works(one)] if moment else []
        if moment and not work:
            idle.append(moment)
            continue
        now = work[0].name if work else ""
        if idle:
            found.append(Gap(idle[0][0], idle[-1][1], "host", place(idle), last, now))
        last, idle = now, []
    return found


def _device_gaps(trace: Trace, step: Span, device: list[Span]) -> list[Gap]:
    """In the step's window, each blamed by the launch of what comes after it."""
    found = []
    at, end = window(trace, step)
    seen, last = host(trace, step.track, at, end), ""
    for one in sorted(device, key=lambda one: one.start):
        if one.start > at:
            launch = trace.launches.get(one.correlation)
            gap = Gap(at, one.start, "", "", last, one.name)
            found += _blamed(trace, seen, gap, launch)
        if one.end > at:
            at, last = one.end, one.name
    return found


def _blamed(
    trace: Trace, seen: list[Moment], gap: Gap, launch: Span | None
) -> list[Gap]:
    """A gap, cut where the host came: it was late, from then on the launch takes."""
    if launch is None:
        return [gap._replace(cause="device", place="no launch in the trace")]
    if launch.start <= gap.start:  # launched in time
        return [gap._replace(cause="device", place=gap.after)]
    late = between(seen, gap.start, launch.start)
    opened = late[0][2]
    if any(trace.waits(one) for one in opened):  # it let the queue run empty
        cause, where = "sync", next(one.name for one in opened if works(one))
    else:
        cause, where = "host", place(late)
    rest = Gap(launch.start, gap.end, "launch", launch.name, gap.after, gap.before)
    before = gap._replace(end=launch.start, cause=cause, place=where)
    return [before, rest] if rest.ns else [before]


# --8<-- [end:gaps]


def host(trace: Trace, own: tuple[str, str], start: int, end: int) -> list[Moment]:
    """What the host does from start to end, by whichever thread is in an operator.

    Backward runs on a thread beside the step's own, which waits for it.
    """
    seen = list(moments(trace.threads.get(own, []), start, end))
    for track, spans in trace.threads.items():
        theirs = [one for one in spans if start < one.end and one.start < end]
        if track != own and theirs:
            seen = list(_laid_over(seen, list(moments(theirs, start, end))))
    return seen


def _laid_over(own: list[Moment], theirs: list[Moment]) -> Iterator[Moment]:
    """Both, of the same time; what they have open counts where ours has no operator."""
    i = j = 0
    while i < len(own) and j < len(theirs):
        a, b, opened = own[i]
        c, d, more = theirs[j]
        yield max(a, c), min(b, d), opened if any(map(works, opened)) else opened + more
        i, j = i + (b <= d), j + (d <= b)


def between(seen: list[Moment], start: int, end: int) -> list[Moment]:
    """The moments from start to end."""
    first = bisect_right(seen, start, key=lambda moment: moment[1])
    last = bisect_left(seen, end, key=lambda moment: moment[0])
    return [(max(a, start), min(b, end), opened) for a, b, opened in seen[first:last]]


def place(seen: Iterable[Moment]) -> str:
    """Where most of the time was spent: the innermost annotation, or the operator."""
    found: Counter[str] = Counter()
    for start, end, opened in seen:
        marks = [one for one in opened if one.kind == ANNOTATION]
        found[plain(marks[-1].name) if marks else owner(opened)] += end - start
    return found.most_common(1)[0][0] if found else ""


# --8<-- [start:repeated]
def repeated(trace: Trace) -> list[Gap]:
    """The gaps that every step has, each as long as in the step where it is shortest.

    What a busy machine adds falls now here, now there. What the program does comes
    back. On a GPU the first step does not count: what came before it is not recorded.
    """
    least: dict[tuple[str, ...], Gap] = {}
    cut = trace.device and len(trace.steps) > 1
    for number, step in enumerate(trace.steps[1:] if cut else trace.steps):
        found: dict[tuple[str, ...], Gap] = {}
        for gap in gaps(trace, step):  # of two alike the longer
            found.setdefault((gap.cause, gap.place, gap.after, gap.before), gap)
        if number == 0:
            least = found
        least = {
            key: min(gap, found[key], key=lambda one: one.ns)
            for key, gap in least.items()
            if key in found
        }
    return sorted(least.values(), key=lambda gap: -gap.ns)


# --8<-- [end:repeated]


def sort_of(one: Span) -> str:
    """Computation, communication or copy, by what is on the stream."""
    if one.kind != "kernel":
        return "copy"
    return "communication" if "nccl" in one.name.lower() else "computation"


# --8<-- [start:device]
def window(trace: Trace, step: Span) -> tuple[int, int]:
    """The step on the GPU, which runs behind the host: up to its last kernel.

    It begins where that of the step before ends, so that no time is lost between two.
    """
    own = trace.of(step)
    end = max((one.end for one in own), default=step.end)
    earlier = [one for one in trace.steps if one.end <= step.start]
    since = earlier[-1].start if earlier else None
    before = []
    for one in trace.device:
        at = trace.launches.get(one.correlation, one).start
        if at < step.start and one.end < end and (since is None or at >= since):
            before.append(one.end)
    start = max(before, default=step.start)
    return start if earlier else max(start, step.start), end


def around(trace: Trace, step: Span) -> list[Span]:
    """All that the GPU does in a step's window, cut at its ends."""
    if not trace.of(step):
        return []
    start, end = window(trace, step)
    return [
        one._replace(start=max(one.start, start), end=min(one.end, end))
        for one in trace.device
        if one.start < end and start < one.end
    ]


def use(trace: Trace, step: Span) -> dict[str, int]:
    """The GPU's time in a step's window, in ns.

    Communication that lies under a computation counts as computation; `hidden` says how
    much.
    """
    device = around(trace, step)
    start, end = window(trace, step)
    busy = merged(device)
    compute = merged(one for one in device if sort_of(one) == "computation")
    found = {
        "window": end - start,
        "busy": length(busy),
        "computation": length(compute),
    }
    found["idle"] = found["window"] - found["busy"]
    for sort in ("communication", "copy"):
        own = merged(one for one in device if sort_of(one) == sort)
        found[sort] = length(own)
        found[f"{sort} hidden"] = length(both(own, compute))
    return found


def idle(trace: Trace, step: Span) -> Counter[str]:
    """The gaps of a step by cause, in ns. They add up to what `use` calls idle."""
    found: Counter[str] = Counter()
    for gap in gaps(trace, step):
        found[gap.cause] += gap.ns
    return found


# --8<-- [end:device]

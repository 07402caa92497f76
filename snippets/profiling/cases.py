"""What profiling must show: counts that agree, times that add up, stalls found."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

import torch

from snippets.facts import fact
from snippets.model_flops.model_flops import Decoder
from snippets.profiling import blame, critical
from snippets.profiling.profiling import (
    MADE_UP,
    RECORDED,
    TOKENS,
    counted,
    expected,
    fused,
    stall,
)
from snippets.profiling.step import (
    GPT,
    PLANTS,
    SEQUENCE,
    SMALL,
    STALL,
    Recording,
    record,
)
from snippets.profiling.trace import Trace, length, merged, read

CLOCK = 0.03  # the share of a step by which its spans may miss the clock
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WHERE = {"a slow loader": LOADER, "Python between layers": "forward",
         "a log after the update": "log"}  # fmt: skip
MODELS = {"gated, shared keys": SMALL, "plain": GPT}
BY_HAND = "from the times that are written in the file"
HTA = "HolisticTraceAnalysis 0.5.0 on the same file"


def facts() -> list[dict[str, Any]]:
    """FLOPs, then the two traces that are kept, then what is recorded now."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = {(plant,): record(device, (plant,)) for plant in PLANTS}
    found[()] = record(device, summed=True)
    rows = [row for name, model in MODELS.items() for row in flops(name, model)]
    rows += estimated(found[()]) + attention()
    rows += kept(read(RECORDED.read_bytes())) + made_up(read(MADE_UP.read_bytes()))
    rows += against_clock(found[()], device)
    rows += [planted(plants, one) for plants, one in found.items()]
    return rows


def flops(name: str, model: Decoder) -> list[dict[str, Any]]:
    """FlopCounterMode against model_flops: products with weights, and of attention."""
    due, found = expected(model), counted(model)
    words = {"mm": "3 * 2 * weights met * tokens",
             "bmm": "3 * 4 * layers * heads * width * sequence * tokens"}  # fmt: skip
    rows = [
        fact(f"{name}: {kind} by FlopCounterMode", found.pop(kind), due[kind],
             f"model_flops: {what}", unit="FLOP")
        for kind, what in words.items()
    ]  # fmt: skip
    other = sum(found.values())
    return [
        *rows,
        fact(f"{name}: other operators", other, 0, "it counts products alone"),
    ]


def estimated(found: Recording) -> list[dict[str, Any]]:
    """torch.profiler's own estimate of what was recorded, a step."""
    steps, due = len(found.clock), expected(SMALL)
    return [
        fact(f"{kind} by torch.profiler", found.flops[f"aten::{kind}"],
             steps * due[kind], f"{steps} steps by model_flops", unit="FLOP")
        for kind in ("mm", "bmm")
    ]  # fmt: skip


def attention() -> list[dict[str, Any]]:
    """Fused attention: not seen on a CPU; in a flash kernel also what is made anew."""
    due = 4 * SMALL.heads * SMALL.head_dim * SEQUENCE * TOKENS
    on_cpu, on_gpu = fused("cpu"), fused("meta")
    words = "4 * heads * width * sequence * tokens"
    return [
        fact("fused on a CPU: counted", sum(on_cpu), 0, "it has no formula for it"),
        fact("flash kernel, forward: counted", on_gpu[0], due, words, unit="FLOP"),
        fact("flash kernel, backward: counted", on_gpu[1], 2.5 * due,
             "five products for two: the scores are made anew", unit="FLOP"),
    ]  # fmt: skip


def kept(trace: Trace) -> list[dict[str, Any]]:
    """The trace of a CPU that the page shows: two steps with two stalls."""
    rows = []
    for number, step in enumerate(trace.steps):
        took = blame.operators(trace, step)
        pieces = critical.path(trace, step)
        rows += [
            fact(f"kept, step {number}: self times", sum(took.values()),
                 step.end - step.start, "the step", unit="ns"),
            fact(f"kept, step {number}: critical path",
                 sum(piece.end - piece.start for piece in pieces),
                 step.end - step.start, "the step", unit="ns"),
        ]  # fmt: skip
    worst = blame.repeated(trace)
    for plant in PLANTS[:2]:
        found = [gap for gap in worst[:2] if gap.place == WHERE[plant]]
        rows.append(fact(f"kept: gaps named as {plant}", len(found), 1, "planted"))
        late = sum(gap.ns for gap in found) / 1e9
        rows.append(
            fact(f"kept: {plant}", late, STALL, "time.sleep, and waking", 0.1, "s")
        )
    long = sum(gap.ns > STALL * 1e8 for gap in worst)
    name = "kept: gaps longer than a tenth of a stall"
    return [*rows, fact(name, long, 2, "planted")]


def made_up(trace: Trace) -> list[dict[str, Any]]:
    """The trace of a GPU that was written by hand, in microseconds."""
    (step,) = trace.steps
    took, late = blame.use(trace, step), blame.idle(trace, step)
    path = critical.path(trace, step)
    on_path: Counter[str] = Counter()
    for piece in path:
        on_path[piece.who] += piece.end - piece.start
    busy = merged(trace.device)
    span = busy[-1][1] - busy[0][0]
    hidden = took["communication hidden"] / took["communication"]
    first, second = blame.gaps(trace, step)[:2]
    rows = [
        ("window", took["window"], 900), ("busy", took["busy"], 584),
        ("idle", took["idle"], 316), ("computation", took["computation"], 480),
        ("communication", took["communication"], 160),
        ("communication under computation", took["communication hidden"], 78),
        ("copies", took["copy"], 62),
        ("copies under computation", took["copy hidden"], 40),
        ("idle: the host late", late["host"], 217),
        ("idle: after a wait", late["sync"], 50),
        ("idle: launches", late["launch"], 28),
        ("idle: on the device", late["device"], 21),
        ("the loader's gap", first.ns * (first.place == LOADER), 216),
        ("the gap after aten::item", second.ns * (second.place == "aten::item"), 50),
        ("path: host", on_path["host"], 320), ("path: launches", on_path["launch"], 19),
        ("path: computation", on_path["computation"], 380),
        ("path: communication", on_path["communication"], 160),
        ("path: copies", on_path["copy"], 2),
        ("path: on streams", on_path["stream"], 19),
        ("path", sum(on_path.values()), 900),
    ]  # fmt: skip
    theirs = [
        ("from the first kernel to the last", span, 674),
        ("idle between them", span - length(busy), 90),
        ("computation", took["computation"], 480),
        ("other than computation", took["busy"] - took["computation"], 104),
    ]
    return [
        *(fact(f"made up: {name}", ns / 1e3, due, BY_HAND, unit="us")
          for name, ns, due in rows),
        *(fact(f"made up, as HTA has it: {name}", ns / 1e3, due, HTA, unit="us")
          for name, ns, due in theirs),
        fact("made up, as HTA has it: share hidden", hidden, 0.4875, HTA),
    ]  # fmt: skip


def against_clock(found: Recording, device: str) -> list[dict[str, Any]]:
    """What was recorded now, against torch's own sums and the machine's clock."""
    trace = read(found.content)
    took: Counter[str] = Counter()
    wrong = []
    for step, clock in zip(trace.steps, found.clock, strict=True):
        own = blame.operators(trace, step)
        took += own
        wrong.append(abs(sum(own.values()) / clock - 1))
    names = (
        found.averages if device == "cpu" else ()
    )  # a GPU's backward has its own thread
    due = found.averages
    far = max(
        (abs(took[name] / 1e3 / due[name] - 1) for name in names if due[name]),
        default=0,
    )
    return [
        fact("recorded now: self times of a step against the clock, median error",
             median(wrong), 0, "time.perf_counter_ns around the step", CLOCK),
        fact("recorded now: largest error of an operator's self time", far, 0,
             "key_averages of torch.profiler", 1e-6),
    ]  # fmt: skip


def planted(plants: tuple[str, ...], found: Recording) -> dict[str, Any]:
    """Whether the longest gap that all steps have is the one that was planted."""
    where, is_stall = stall(read(found.content))
    if not plants:
        return fact("nothing planted: stalls found", int(is_stall), 0, "none")
    (plant,) = plants
    right = int(is_stall and where == WHERE[plant])
    name = f"{plant}: found first, in {WHERE[plant].partition('#')[0]}"
    return fact(name, right, 1, f"{STALL} s of sleep in each step")

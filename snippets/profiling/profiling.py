"""A training step taken apart by its trace: time by operator, gaps and who is to blame.

Shapes  a trace of torch.profiler's, spans on threads and streams; a decoder that trains
        on 4 sequences of 32 tokens. `profiling.py FILE` reads any other
FLOPs   of a step, tokens * (6 * weights met + 12 * layers * heads * width * sequence),
        as model_flops has it; counted by FlopCounterMode, estimated by torch.profiler
Error   self times add up to the step to the nanosecond, and are torch's own; the step
        is the clock's within 3 %
Raises  ValueError for a file that is no trace, or a plant that is not in PLANTS
Source  torch-profiler, kineto, holistic-trace-analysis, trace-analysis-for-the-masses,
        perfetto-deep-linking
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from snippets.model_flops.model_flops import (
    Decoder,
    multiplied,
    six_n,
    training_flops_per_token,
)
from snippets.profiling.blame import idle, kernels, operators, repeated, use
from snippets.profiling.critical import path
from snippets.profiling.step import BATCH, PLANTS, SEQUENCE, SMALL, STALL, Model, record
from snippets.profiling.trace import Span, Trace, read

TOKENS = BATCH * SEQUENCE
HERE = Path(__file__).parent
RECORDED, MADE_UP = HERE / "recorded.trace.json.gz", HERE / "made_up.trace.json"
MS = 1e6  # ns


# --8<-- [start:program]
def report(trace: Trace) -> Iterator[str]:
    """A trace in lines: where its last step went, and the gaps that all steps have."""
    step = trace.steps[-1]
    took = step.end - step.start
    yield f"step {len(trace.steps)} of {len(trace.steps)}: {took / MS:.3f} ms"
    if trace.of(step):
        yield from on_device(trace, step)
    yield "host: " + shares(operators(trace, step), took, 3)
    for gap in repeated(trace)[:3]:
        where = f"{short(gap.after) or 'start'} to {short(gap.before) or 'end'}"
        yield f"gap {gap.ns / MS:.3f} ms, {gap.cause}: {short(gap.place)}; {where}"


def on_device(trace: Trace, step: Span) -> Iterator[str]:
    """What the GPU did for a step."""
    took = use(trace, step)
    whole = took.pop("window")
    hidden = {sort: took.pop(f"{sort} hidden") for sort in ("communication", "copy")}
    under = [
        f"{100 * ns / took[sort]:.1f} % of {sort}"
        for sort, ns in hidden.items()
        if took[sort]
    ]
    pieces: Counter[str] = Counter()
    for piece in path(trace, step):
        pieces[piece.who] += piece.end - piece.start
    yield f"on the GPU {whole / MS:.3f} ms: " + shares(took, whole)
    yield f"hidden under computation: {', '.join(under) or 'nothing'}"
    yield "idle, by cause: " + shares(idle(trace, step), whole)
    yield "kernels: " + shares(kernels(trace, step), whole, 3)
    yield "critical path: " + shares(pieces, sum(pieces.values()))


def shares(found: dict[str, int], whole: int, most: int = 4) -> str:
    """Those that are longest, in percent of the whole."""
    longest = sorted(found.items(), key=lambda pair: -pair[1])[:most]
    return ", ".join(f"{short(name)} {100 * ns / whole:.1f} %" for name, ns in longest)


def short(name: str) -> str:
    """A name, or its beginning."""
    return name if len(name) <= 27 else f"{name[:26]}…"


def stall(trace: Trace) -> tuple[str, bool]:
    """Where the longest gap lies that every step has, and whether it is a stall."""
    worst = repeated(trace)[0]
    return worst.place, worst.ns > STALL * 1e9 / 2


# --8<-- [end:program]


# --8<-- [start:flops]
def expected(model: Decoder) -> dict[str, int]:
    """FLOPs of a step by model_flops: products with weights, and attention's two."""
    whole = training_flops_per_token(model, SEQUENCE) * TOKENS
    weights = 3 * 2 * multiplied(model) * TOKENS
    return {"mm": weights, "bmm": whole - weights}


def counted(model: Decoder) -> dict[str, int]:
    """The same by FlopCounterMode, which sees every operator that torch dispatches."""
    draw = torch.Generator().manual_seed(0)
    shape = (BATCH, SEQUENCE + 1)
    tokens = torch.randint(model.vocabulary, shape, generator=draw)
    net = Model(model)
    with FlopCounterMode(display=False) as counter:
        y = net(tokens[:, :-1])
        F.cross_entropy(y.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    found = counter.get_flop_counts()["Global"]
    return {str(name).removeprefix("aten."): flops for name, flops in found.items()}


def fused(device: str) -> tuple[int, int]:
    """What FlopCounterMode counts of fused attention, forward and backward.

    On the meta device, that of the flash kernel that a GPU takes; nothing is computed.
    """
    shape = (BATCH, SMALL.heads, SEQUENCE, SMALL.head_dim)
    q, k, v = (torch.zeros(shape, device=device, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as forward:
        if device == "meta":
            aten = torch.ops.aten
            out, *kept = aten._scaled_dot_product_flash_attention(q, k, v)[:8]
        else:
            out = F.scaled_dot_product_attention(q, k, v)
    with FlopCounterMode(display=False) as backward:
        if device == "meta":
            aten._scaled_dot_product_flash_attention_backward(
                out, q, k, v, out, *kept[:5], 0.0, False, *kept[5:]
            )
        else:
            out.sum().backward()
    return forward.get_total_flops(), backward.get_total_flops()


# --8<-- [end:flops]


def demo(device: str) -> None:
    """FLOPs by three counters; a trace that was kept, one made up; planted stalls."""
    due = expected(SMALL)
    found = record(device, steps=1, summed=True).flops
    rows = {
        "model_flops": due,
        "FlopCounterMode": counted(SMALL),
        "torch.profiler": {name.removeprefix("aten::"): n for name, n in found.items()},
    }
    print(f"{'FLOPs of a step':18}{'weights':>10}{'attention':>10}{'add, mul':>10}")
    for name, row in rows.items():
        rest = sum(row.values()) - row["mm"] - row["bmm"]
        print(f"{name:18}{row['mm']:10}{row['bmm']:10}{rest:10}")
    print(f"{'6 N':18}{six_n(SMALL) * TOKENS:10}")
    for kept in (RECORDED, MADE_UP):
        print(f"\n{kept.name}")
        for line in report(read(kept.read_bytes())):
            print(line)
    print("\nrecorded now, by what was planted:")
    for plants in ((), *((plant,) for plant in PLANTS)):
        where, found_it = stall(read(record(device, plants).content))
        named = f"stall in {where}" if found_it else "no stall"
        print(f"{' '.join(plants) or 'nothing'}: {named}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print("\n".join(report(read(Path(sys.argv[1]).read_bytes()))))
    else:
        demo("cuda" if torch.cuda.is_available() else "cpu")

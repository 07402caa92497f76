"""A lower bound of a kernel in cycles of an SM, by pipe, from counts of its executed PTX.

What must be done (look/work.py has the rules) over what an SM does in a cycle at most. The cycles
are those of one SM that does all of the counted launch; over the SMs of a device, they are the
least that the launch takes there. It is no estimate: bank conflicts of registers, misses and all of
memory beyond L1 come on top, and pipes do not always work at the same time. Of waiting only that
counts which no block with wgmma is spared: for the copies of its operands, and for what is left
behind its products. Held against published timings in tests/look/published_sgemm.py, and against an
H200's in tests/look/test_measured_bounds.py.

What an SM does in a cycle is as NVIDIA publishes it. Where two publications differ the higher
figure stands here, since a bound must not be too high. What is not published is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from warpshelf.look.view import LANES, Bound, Pipe
from warpshelf.look.work import ExecutedInstruction, Work, count_tail, count_work

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")
# Results of a lane in a cycle of one SM, for ARCHS in order; a packed instruction makes two. The
# table of arithmetic instructions of the CUDA C++ Programming Guide has them, for sm_100 that of
# native throughputs in the Best Practices Guide, but for half precision, where white papers have
# half as many for GA102. sm_100's fma.f32x2 takes two of its 128 lanes. Its special functions,
# shared memory and matrix rate of f16 are in FlashAttention-4 (arXiv:2603.05451) too.
PIPES = {
    "FP32": (64, 128, 128, 128, 128),
    "FP64": (32, 2, 2, 64, 64),
    "FP16": (256, 256, 128, 256, 256),
    "special function": (16, 16, 16, 16, 16),
}
# Dense multiply-adds of matrices in a cycle of one SM, by the kind of operands. Published peaks
# give them, see tests/look/test_figures.py. Boards of sm_89 that are GeForce run half as fast with
# sums in FP32, others do not.
MATRIX = {
    "sm_80": {"f16": 1024, "bf16": 1024, "tf32": 512, "f64": 64, "s8": 2048, "s4": 4096},
    "sm_86": {"f16": 512, "bf16": 512, "tf32": 256, "s8": 1024},
    "sm_89": {"f16": 512, "bf16": 512, "tf32": 256, "s8": 1024, "f8": 1024},
    "sm_90": {"f16": 2048, "bf16": 2048, "tf32": 1024, "f64": 128, "s8": 4096, "f8": 4096},
    "sm_100": {
        "f16": 4096, "bf16": 4096, "tf32": 2048, "s8": 8192, "f8": 8192, "f4": 16384,
    },
}  # fmt: skip
# Of sm_90, the cycles until what an SM asks of the L2 is there, 258 in its near half (Luo et al.,
# arXiv:2501.12084), and the most bytes of it in a cycle: of an H200's 132 SMs gpu-benches sees 37.
LATENCY, PORT = 258, 64
ISSUE = 4  # instructions of warps that an SM issues in a cycle, as the Programming Guide has it
DIFFERENT = 1.3  # bounds apart by less say nothing about which is faster
PAIRED = frozenset(("sm_100",))  # where two multiply-adds of FP32 are one instruction
NOTHING = "nothing counted"


class VariantCost(NamedTuple):
    """What a variant did on a case: the cycles of its bound, and the sectors that it touched."""

    cycles: float
    sectors: int = 0


class Blocks(NamedTuple):
    """How many blocks were launched, and how many of them an SM holds at once."""

    launched: int
    resident: int


def cycle_bound(
    executed: Iterable[ExecutedInstruction], arch: str, blocks: Blocks | None = None
) -> Bound:
    """The least cycles of an SM for executed instructions; ValueError for other than ARCHS.

    Without `blocks`, what a block waits for is left out.
    """
    name = arch.rstrip("af")
    if name not in ARCHS:
        raise ValueError(f"no rates are known for {arch}; known are {', '.join(ARCHS)}")
    rows = list(executed)
    done = count_work(rows, name)
    floats = {pipe: done.float_results(pipe) for pipe in ("FP32", "FP64", "FP16")}
    found = [
        _warp_pipe(pipe, results, "multiply-adds", name)
        for pipe, results in floats.items()
        if results
    ]
    cycles, words = 0.0, []  # of all kinds of operands, which take turns
    for kind, count in sorted(done.products.items()):
        if rate := MATRIX[name].get(kind):  # what has none published is left out
            cycles += count / rate
            words.append(f"{_format_count(count)} multiply-adds of {kind} at {rate:,} a cycle")
    if words:
        found.append({"pipe": "matrix", "cycles": cycles, "of": ", ".join(words)})
    if done.operands and blocks:
        found.append(_waiting_pipe(done, cycles, *count_tail(rows, name), blocks))
    if done.functions:
        found.append(_warp_pipe("special function", done.functions, "special functions", name))
    # Shared memory, L1 and shuffles pass one stage, a wavefront in a cycle ("Profiling Guide" of
    # Nsight Compute, section "Metrics Decoder").
    parts = (
        (done.shared, "wavefronts of shared memory"),
        (done.operands, "of operands of products"),
        (done.memory, "of global memory"),
        (done.shuffles, "shuffles of a warp"),
    )
    if said := ", ".join(f"{_format_count(count)} {what}" for count, what in parts if count):
        cycles = sum(count for count, _ in parts)
        found.append({"pipe": "load and store", "cycles": cycles, "of": f"{said} at 1 a cycle"})
    issued = floats["FP32"] / LANES / (2 if name in PAIRED else 1)
    issued += floats["FP64"] / LANES + floats["FP16"] / LANES / 2
    issued += done.functions / LANES + done.shuffles + done.others
    if issued:
        said = f"{_format_count(issued)} instructions of a warp that must remain"
        said += f" at {ISSUE} a cycle"
        found.append({"pipe": "issue", "cycles": issued / ISSUE, "of": said})
    if not found:
        return {"limiter": NOTHING, "cycles": 0, "pipes": []}
    most = max(found, key=lambda one: one["cycles"])
    return {"limiter": most["pipe"], "cycles": most["cycles"], "pipes": found}


def round_bound(found: Bound) -> Bound:
    """The same with each count of cycles to a tenth, rounded down so that it stays a bound."""

    def round_down(cycles: float) -> float:
        tenths = math.floor(cycles * 10)
        return tenths // 10 if tenths % 10 == 0 else tenths / 10

    pipes: list[Pipe] = [{**one, "cycles": round_down(one["cycles"])} for one in found["pipes"]]
    return {**found, "cycles": round_down(found["cycles"]), "pipes": pipes}


def is_faster(one: VariantCost, other: VariantCost) -> bool:
    """Whether bounds say that one variant is faster than another, in the same precision.

    They do where they differ by more than a factor of DIFFERENT, and the faster one touches no more
    sectors of global memory: what L2 and memory take for a sector is in no bound.
    """
    return one.cycles * DIFFERENT < other.cycles and one.sectors <= other.sectors


def rank_variants(done: Mapping[str, VariantCost]) -> dict[str, tuple[int, int]]:
    """The first and the last place that each variant may have, from 1; the likeliest first."""
    found = {
        name: (
            1 + sum(is_faster(other, own) for other in done.values()),
            len(done) - sum(is_faster(own, other) for other in done.values()),
        )
        for name, own in done.items()
    }
    return dict(sorted(found.items(), key=lambda one: (sum(one[1]), done[one[0]].cycles, one[0])))


def _waiting_pipe(done: Work, products: float, tail: float, runs: float, blocks: Blocks) -> Pipe:
    """Blocks that take turns: a copy comes before their products, and a tail behind the last.

    What an mbarrier guards is filled again when the products of what it held are made. So each fill
    and its products have it for themselves, and those of a block share its mbarriers.
    """
    busy = min(blocks.launched, math.floor(runs))  # some may have nothing to do
    cycles = busy * LATENCY + products
    if done.barriers:
        held = done.fills * LATENCY + done.filled / PORT + products
        cycles = max(cycles, held * blocks.launched / done.barriers)
    cycles += busy * tail
    each = f"{busy:,} times {math.floor(cycles / max(1, busy)):,} cycles of a block"
    said = f"{each}, {math.floor(tail):,} of them behind its products, {blocks.resident} at a time"
    return {"pipe": "waiting", "cycles": cycles / blocks.resident, "of": said}


def _warp_pipe(pipe: str, results: int, what: str, arch: str) -> Pipe:
    """A pipe that makes results of lanes, such as `1,024 multiply-adds of a warp at 4 a cycle`."""
    rate = PIPES[pipe][ARCHS.index(arch)]
    of = Fraction(rate, LANES)
    each = f"{of.numerator} a cycle" if of.denominator == 1 else f"1 in {1 / of} cycles"
    said = f"{_format_count(results / LANES)} {what} of a warp at {each}"
    return {"pipe": pipe, "cycles": results / rate, "of": said}


def _format_count(count: float) -> str:
    return f"{math.floor(count):,}" if count >= 1 else f"{count:.2g}"

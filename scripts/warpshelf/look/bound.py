"""A lower bound of a kernel in cycles of an SM, by pipe, from counts of its executed PTX.

What must be done (look/work.py has the rules) over what an SM does in a cycle at most
(its sources stand below). The cycles are those of one SM that does all of the counted
launch; over the SMs of a device, they are the least that the launch takes there. It is no estimate:
waiting, bank conflicts of registers, misses and all of memory beyond L1 come on top, and pipes do
not always work at the same time. Held against published timings in tests/look/published_sgemm.py.

What an SM does in a cycle is as NVIDIA publishes it, by pipe and architecture. Where two
publications differ the higher figure stands here, since a bound must not be too high. What is not
published is left out. Matrix rates are derived: peak operations a second, dense, over SMs and the
clock that the peak is stated for, is a power of two to within 1 % in every case, and that power of
two is the rate. Those of sm_100 are multiples of sm_90's, as CUTLASS publishes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from warpshelf.look.work import LANES, ExecutedInstruction, Work, count_work

GUIDE = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/#arithmetic-instructions"
# Where the table of throughputs stands from CUDA 13 on.
PRACTICES = (
    "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/"
    "#throughput-of-native-arithmetic-instructions"
)
PROFILING = "https://docs.nvidia.com/nsight-compute/ProfilingGuide/#metrics-decoder"
ADVANCED = "https://docs.nvidia.com/nsight-graphics/AdvancedLearning/index.html"
BANKS = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/#shared-memory-and-memory-banks"
A100 = (
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/"
    "nvidia-ampere-architecture-whitepaper.pdf"
)
GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
ADA = (
    "https://images.nvidia.com/aem-dam/Solutions/Data-Center/l4/"
    "nvidia-ada-gpu-architecture-whitepaper-v2.1.pdf"
)
H100 = "https://resources.nvidia.com/en-us-hopper-architecture/nvidia-h100-tensor-c"
CUTLASS = "https://github.com/NVIDIA/cutlass/blob/main/media/docs/cpp/blackwell_functionality.md"
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")


@dataclass(frozen=True)
class Rate:
    """So many of the unit in a cycle of one SM, and where that is published."""

    amount: int
    unit: str
    source: str


@dataclass(frozen=True)
class Peak:
    """Published peaks of a device: 10**12 operations a second, dense, a multiply-add being two."""

    device: str
    sms: int
    mhz: int
    tera: dict[str, float]
    source: str

    def rate(self, kind: str) -> float:
        """Multiply-adds in a cycle of one SM, not yet rounded to a power of two."""
        return self.tera[kind] * 1e12 / 2 / self.sms / (self.mhz * 1e6)


# Results of a lane in a cycle of one SM, for ARCHS in order; a packed instruction makes two. The
# guide's table has them but for half precision, where white papers have half as many for GA102,
# and NVIDIA's later tables for sm_100. sm_100's fma.f32x2 takes two of its 128 lanes. Its special
# functions, shared memory and matrix rate of f16 are in FlashAttention-4 (arXiv:2603.05451) too.
PIPES = {
    "FP32": (64, 128, 128, 128, 128),
    "FP64": (32, 2, 2, 64, 64),
    "FP16": (256, 256, 128, 256, 256),
    "special function": (16, 16, 16, 16, 16),
    "shuffle": (32, 32, 32, 32, 32),
}
PEAKS = {
    "sm_80": (
        Peak("A100 SXM4", 108, 1410, {
            "f16": 312, "bf16": 312, "tf32": 156, "f64": 19.5, "s8": 624, "s4": 1248,
        }, A100),
    ),
    "sm_86": (Peak("RTX A6000", 84, 1800, {"f16": 154.8, "bf16": 154.8, "s8": 309.7}, GA102),),
    # With sums in FP16: GeForce boards run half as fast with sums in FP32, others do not.
    "sm_89": (Peak("RTX 4090", 128, 2520, {"f16": 330.3, "f8": 660.6, "s8": 660.6}, ADA),),
    "sm_90": (
        Peak("H100 SXM5", 132, 1830, {
            "f16": 989.4, "bf16": 989.4, "tf32": 494.7, "f8": 1978.9, "s8": 1978.9,
        }, H100),
        Peak("H100 SXM5", 132, 1980, {"f64": 66.9}, H100),
    ),
}  # fmt: skip
# Of which kind and how many times its rate, where a peak that no board halves is not at hand: what
# holds between the kinds of sm_80 and of sm_90.
ALIKE = {"bf16": ("f16", 1.0), "tf32": ("f16", 0.5)}
# The same in units of sm_90's rates.
BLACKWELL = {
    "f16": ("f16", 2), "bf16": ("bf16", 2), "tf32": ("tf32", 2), "s8": ("s8", 2), "f8": ("f8", 2),
    "f4": ("f8", 4),
}  # fmt: skip
WAVEFRONTS = Rate(1, "wavefronts", PROFILING)  # of L1 and shared memory together
BYTES = Rate(128, "bytes of a wavefront", BANKS)
TAGS = Rate(4, "lines of 128 bytes", ADVANCED)
ISSUE = Rate(4, "instructions of a warp", GUIDE)


def base_arch(arch: str) -> str:
    """An architecture without its suffix, `sm_90` of `sm_90a`.

    Raises:
        ValueError: there are no rates for it.
    """
    name = arch.rstrip("af")
    if name not in ARCHS:
        raise ValueError(f"no rates are known for {arch}; there are those of {', '.join(ARCHS)}")
    return name


def lane_rate(arch: str, pipe: str) -> Rate:
    """Results of a lane that a pipe of PIPES makes in a cycle.

    Raises:
        ValueError: there are no rates for the architecture.
    """
    name = base_arch(arch)
    source = PRACTICES if name == "sm_100" else GUIDE
    return Rate(PIPES[pipe][ARCHS.index(name)], "lanes", source)


def matrix_rate(arch: str, kind: str) -> Rate | None:
    """Dense multiply-adds of matrices with operands of a kind; None where nothing is published.

    Raises:
        ValueError: there are no rates for the architecture.
    """
    name = base_arch(arch)
    if name == "sm_100":
        if kind not in BLACKWELL:
            return None
        of, times = BLACKWELL[kind]
        base = matrix_rate("sm_90", of)
        return Rate(base.amount * times, "multiply-adds", CUTLASS) if base else None
    for peak in PEAKS[name]:
        if kind in peak.tera:
            amount = 1 << round(math.log2(peak.rate(kind)))
            return Rate(amount, "multiply-adds", peak.source)
    if kind in ALIKE:
        of, share = ALIKE[kind]
        base = matrix_rate(arch, of)
        return Rate(int(base.amount * share), "multiply-adds", base.source) if base else None
    return None


DIFFERENT = 1.3  # bounds apart by less say nothing about which is faster
PAIRED = frozenset(("sm_100",))  # where two multiply-adds of FP32 are one instruction
NOTHING = "nothing counted"


@dataclass(frozen=True)
class Pipe:
    """The cycles of one pipe, and what was counted for it in words."""

    pipe: str
    cycles: float
    of: str


@dataclass(frozen=True)
class Bound:
    """The least cycles of an SM, the pipe that takes them, and all pipes that do anything."""

    limiter: str
    cycles: float
    pipes: tuple[Pipe, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as BOUND of look/view.py has it; cycles are rounded down."""
        shown = [{**asdict(one), "cycles": _round_down(one.cycles)} for one in self.pipes]
        return {"limiter": self.limiter, "cycles": _round_down(self.cycles), "pipes": shown}


@dataclass(frozen=True)
class VariantCost:
    """What a variant did on a case: the cycles of its bound, and the sectors that it touched."""

    cycles: float
    sectors: int = 0

    def __add__(self, other: VariantCost) -> VariantCost:
        return VariantCost(self.cycles + other.cycles, self.sectors + other.sectors)


def cycle_bound(rows: Iterable[ExecutedInstruction], arch: str) -> Bound:
    """The least cycles of an SM for executed instructions.

    Raises:
        ValueError: there are no rates for the architecture.
    """
    name = base_arch(arch)
    done = count_work(rows, name)
    found = [
        *_float_pipes(done, name),
        *_matrix_pipes(done, name),
        *_special_pipes(done, name),
        *_memory_pipes(done),
        *_issue_pipes(done, name),
    ]
    most = max(found, key=lambda one: one.cycles, default=None)
    if most is None:
        return Bound(NOTHING, 0, ())
    return Bound(most.pipe, most.cycles, tuple(found))


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


def _float_pipes(done: Work, arch: str) -> list[Pipe]:
    found = []
    for pipe in ("FP32", "FP64", "FP16"):
        if count := done.float_results(pipe):
            rate = lane_rate(arch, pipe).amount
            what = f"{_format_count(count / LANES)} multiply-adds of a warp at {_format_rate(rate)}"
            found.append(Pipe(pipe, count / rate, what))
    return found


def _matrix_pipes(done: Work, arch: str) -> list[Pipe]:
    """One pipe for all kinds of operands, which take turns; what has no rate is left out."""
    cycles = 0.0
    words = []
    for kind, count in sorted(done.products.items()):
        if rate := matrix_rate(arch, kind):
            cycles += count / rate.amount
            words.append(
                f"{_format_count(count)} multiply-adds of {kind} at {rate.amount:,} a cycle"
            )
    return [Pipe("matrix", cycles, ", ".join(words))] if words else []


def _special_pipes(done: Work, arch: str) -> list[Pipe]:
    if not done.functions:
        return []
    rate = lane_rate(arch, "special function").amount
    what = (
        f"{_format_count(done.functions / LANES)} special functions of a warp "
        f"at {_format_rate(rate)}"
    )
    return [Pipe("special function", done.functions / rate, what)]


def _memory_pipes(done: Work) -> list[Pipe]:
    """Shared memory, L1 and shuffles pass one stage, a wavefront in a cycle."""
    parts = (
        (done.shared, "wavefronts of shared memory"),
        (done.memory, "of global memory"),
        (done.shuffles, "shuffles of a warp"),
    )
    cycles = sum(count for count, _ in parts) / WAVEFRONTS.amount
    words = ", ".join(f"{_format_count(count)} {what}" for count, what in parts if count)
    return [Pipe("load and store", cycles, f"{words} at 1 a cycle")] if words else []


def _issue_pipes(done: Work, arch: str) -> list[Pipe]:
    count = done.float_results("FP32") / LANES / (2 if arch in PAIRED else 1)
    count += done.float_results("FP64") / LANES + done.float_results("FP16") / LANES / 2
    count += done.functions / LANES + done.shuffles + done.others
    if not count:
        return []
    rate = ISSUE.amount
    what = f"{_format_count(count)} instructions of a warp that must remain at {rate} a cycle"
    return [Pipe("issue", count / rate, what)]


def _format_count(count: float) -> str:
    return f"{math.floor(count):,}" if count >= 1 else f"{count:.2g}"


def _format_rate(lanes: int) -> str:
    """`4 a cycle` of 128 lanes, `1 in 16 cycles` of 2."""
    of = Fraction(lanes, LANES)
    return f"{of.numerator} a cycle" if of.denominator == 1 else f"1 in {1 / of} cycles"


def _round_down(cycles: float) -> float:
    """A tenth of a cycle, rounded down so that it stays a bound; whole where it is."""
    tenths = math.floor(cycles * 10)
    return tenths // 10 if tenths % 10 == 0 else tenths / 10

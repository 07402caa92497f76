"""Figures of machine code by kind, the rates of what executes it, and occupancy.

Occupancy equals what NVIDIA's cuda_occupancy.h says, and what would change it does change it.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_views import make_view

from warpshelf.contract.values import OF_VIEWS
from warpshelf.core import files
from warpshelf.look import bound, figures, view
from warpshelf.look.figures import (
    KIB,
    KINDS,
    LIMITS,
    SMS,
    BlockUsage,
    base_kind,
    compute_residency,
    instruction_kind,
    limit_violations,
    occupancy_changes,
)
from warpshelf.look.view import View
from warpshelf.look.work import ExecutedInstruction

# Machine instructions by kind, and what LIMITS asks of views: a figure is kept to, or told.

FFMA = {"multiply-add": 64, "integer": 8, "load shared 16": 4, "control": 1}


def add_loop(kinds: dict[str, int]) -> View:
    found = make_view("tiled")
    found["loops"][0]["kinds"] = kinds
    return found


def widen_load() -> View:
    """The naive one, whose load moves 16 bytes a lane, and whose store moves 4."""
    found = copy.deepcopy(make_view())
    next(one for one in found["accesses"] if one["does"] == "load")["size"] = 16
    return found


# A view, a limit that it keeps to, one that it breaks, and how that is said.
FIGURES = [
    ("warps", make_view(), 64, 65, "warps = 64 is below the limit 65; use fewer registers"),
    (
        "sectors_over_ideal",
        make_view("tiled"),
        1,
        0.5,
        "= 1 exceeds the limit 0.5; let neighbouring",
    ),
    ("sectors_over_ideal", make_view(), 4.5, 4.4, "= 4.5 exceeds the limit 4.4; let neighbouring"),
    ("wavefronts_over_ideal", make_view(), 1, 0.9, "= 1 exceeds the limit 0.9; pad or swizzle"),
    ("wavefronts_over_ideal", make_view("tiled"), 16.5, 16, "= 16.5 exceeds the limit 16; pad"),
    ("wide_accesses", widen_load(), 0.8, 0.9, "= 0.8 is below the limit 0.9; let the compiler see"),
    ("wide_accesses", make_view(), 0, 0.1, "= 0 is below the limit 0.1; let the compiler see"),
    ("instructions_per_fma", add_loop(FFMA), 1.21, 1.2, "= 1.203 exceeds the limit 1.2; look at"),
]


def test_there_is_a_figure_for_every_key() -> None:
    assert LIMITS.keys() == set(OF_VIEWS) == {name for name, *_ in FIGURES}


@pytest.mark.parametrize(("name", "one", "kept", "not_kept", "said"), FIGURES)
def test_a_limit_that_is_not_kept_to_is_told(
    name: str, one: View, kept: float, not_kept: float, said: str
) -> None:
    assert limit_violations([one], {"*": {name: kept}}) == []
    (line,) = limit_violations([one], {one["kernel"]: {name: not_kept}})
    assert line.startswith(f"{one['kernel']} ({one['variant']}) on sm_90: {name} ")
    assert said in line and line.endswith(", or change LIMITS")


def test_a_figure_that_is_not_there_breaks_its_limit() -> None:
    (line,) = limit_violations([make_view()], {"*": {"instructions_per_fma": 2}})
    assert "instructions_per_fma is missing, but the limit is 2; " in line


def test_a_limit_is_for_the_kernels_that_its_key_names() -> None:
    both = [make_view(), make_view("tiled", kernel="transpose_tiled<Plain>")]
    limits = {"transpose_tiled": {"wavefronts_over_ideal": 1, "registers": 1}}
    (line,) = limit_violations(both, limits)
    assert line.startswith("transpose_tiled<Plain> (tiled)")
    assert len(limit_violations(both, {"*": {"warps": 65}})) == 2


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("FFMA", "multiply-add"),
        ("HMMA.16816.F32.BF16", "matrix"),
        ("HGMMA.64x128x16.F32.BF16", "matrix"),
        ("LDG.E", "load global 4"),
        ("LDG.E.128.CONSTANT", "load global 16"),
        ("LDG.E.U16", "load global 2"),
        ("STG.E.64", "store global 8"),
        ("LDS.U.128", "load shared 16"),
        ("LDSM.16.M88.4", "load shared 16"),
        ("LDSM.16.MT88", "load shared 4"),
        ("LDGSTS.E.BYPASS.LTC128B.128", "copy async 16"),
        ("SHFL.BFLY", "shuffle"),
        ("MUFU.EX2", "special"),
        ("IMAD.WIDE.U32", "integer"),
        ("UIADD3", "integer"),
        ("LOP3.LUT", "integer"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("@", "other"),
        ("NONSENSE", "other"),
    ],
)
def test_the_kind_of(opcode: str, expected: str) -> None:
    assert instruction_kind(opcode) == expected
    assert base_kind(instruction_kind(opcode)) in KINDS


# Rates are what NVIDIA publishes: derivations, and what is left out.


class Peak(NamedTuple):
    """Published peaks of a device: 10**12 operations a second, dense, a multiply-add being two."""

    device: str
    sms: int
    mhz: int
    tera: dict[str, float]
    source: str

    def compute_rate(self, kind: str) -> float:
        """Multiply-adds in a cycle of one SM, a power of two to within 1 %."""
        return self.tera[kind] * 1e12 / 2 / self.sms / (self.mhz * 1e6)


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
# In units of sm_90's rates, as CUTLASS publishes them.
BLACKWELL = {
    "f16": ("f16", 2), "bf16": ("bf16", 2), "tf32": ("tf32", 2), "s8": ("s8", 2), "f8": ("f8", 2),
    "f4": ("f8", 4),
}  # fmt: skip


@pytest.mark.parametrize("arch", PEAKS)
def test_matrix_rates_follow_from_published_peaks(arch: str) -> None:
    known = bound.MATRIX[arch]
    published = {kind: peak.compute_rate(kind) for peak in PEAKS[arch] for kind in peak.tera}
    for kind, rate in known.items():
        assert math.log2(rate).is_integer()
        of, share = (kind, 1.0) if kind in published else ALIKE[kind]
        assert rate == pytest.approx(published[of] * share, rel=0.01)
    assert published.keys() <= known.keys()


def test_those_of_blackwell_are_multiples_of_hopper() -> None:
    hopper = bound.MATRIX["sm_90"]
    due = {kind: times * hopper[of] for kind, (of, times) in BLACKWELL.items()}
    assert bound.MATRIX["sm_100"] == due


@pytest.mark.parametrize("arch", bound.ARCHS)
def test_what_is_not_published_is_left_out(arch: str) -> None:
    known = bound.MATRIX[arch]
    assert "b1" not in known
    assert ("f8" not in known) == (arch in ("sm_80", "sm_86"))
    assert ("f64" not in known) == (arch not in ("sm_80", "sm_90"))


def test_the_rates_give_the_published_peak_of_fp32() -> None:
    """19.5, 38.7, 82.6 and 66.9 Tflop/s."""
    for arch, at, tera in (("sm_80", 0, 19.5), ("sm_86", 0, 38.7), ("sm_89", 0, 82.6),
                           ("sm_90", 1, 66.9)):  # fmt: skip
        peak = PEAKS[arch][at]
        rate = bound.PIPES["FP32"][bound.ARCHS.index(arch)]
        assert 2 * rate * peak.sms * peak.mhz * 1e6 == pytest.approx(tera * 1e12, rel=0.01), arch


def test_an_architecture_without_rates_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rates are known for sm_75; known are sm_80"):
        bound.cycle_bound([ExecutedInstruction("bar.sync", {})], "sm_75")


# Occupancy.

DRIVER = Path(__file__).with_name("occupancy_driver.cpp")
CONFIGURATIONS = 50_000
# The bits of cudaOccLimitingFactor, and the column in which the driver prints each one's limit.
FACTORS = {
    "threads": (0x01, 2), "registers": (0x02, 3), "shared memory": (0x04, 4), "blocks": (0x08, 5),
    "barriers": (0x10, 6),
}  # fmt: skip

uses = st.builds(
    BlockUsage,
    registers=st.integers(0, 260),
    threads=st.integers(1, 1100),
    static=st.integers(0, 48 * KIB),
    dynamic=st.integers(0, 240 * KIB),
    barriers=st.integers(0, 16),
)
archs = st.sampled_from(sorted(SMS))


def find_header() -> Path:
    """The folder of cuda_occupancy.h in Triton's wheel."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        pytest.skip("Triton is not installed, so there is no cuda_occupancy.h to compare with")
    folder = Path(found.origin).parent / "backends" / "nvidia" / "include"
    if not (folder / "cuda_occupancy.h").is_file():
        pytest.skip(f"there is no cuda_occupancy.h in {folder}")
    return folder


def find_compiler() -> str:
    found = next((path for name in ("g++", "clang++", "c++") if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no C++ compiler (g++, clang++ or c++) to compile the header with")
    return found


def draw_configurations(count: int) -> list[tuple[str, BlockUsage]]:
    """As many as that, half near where something changes; the same at every run."""
    some = random.Random(20)
    found = []
    for _ in range(count):
        arch = some.choice(sorted(SMS))
        warps = some.randint(1, 33)
        threads = warps * 32 if some.random() < 0.7 else some.randint(1, 1100)
        shared = some.choice((0, some.randint(0, 240 * KIB), some.randint(0, 16 * KIB)))
        if some.random() < 0.4 and shared:  # as much as a whole number of blocks has
            has = SMS[arch]
            blocks = some.randint(1, 32)
            shared = max(0, has.shared // blocks - has.reserved + some.randint(-130, 130))
        fixed = some.randint(0, min(shared, 48 * KIB))
        barriers = some.choice((0, 1, 1, 1, some.randint(2, 16)))
        registers = some.randint(0, 257)
        found.append((arch, BlockUsage(registers, threads, fixed, shared - fixed, barriers)))
    return found


def write_line(arch: str, use: BlockUsage) -> str:
    has = SMS[arch]
    version = int(arch.removeprefix("sm_"))
    of = (
        version // 10, version % 10, has.threads, has.shared, has.reserved,
        has.shared - has.reserved, use.registers, use.threads, use.static, use.dynamic,
        use.barriers,
    )  # fmt: skip
    return " ".join(map(str, of))


def test_it_is_what_nvidias_header_says(tmp_path: Path) -> None:
    program = tmp_path / "driver"
    subprocess.run(
        [find_compiler(), "-O1", "-w", f"-I{find_header()}", str(DRIVER), "-o", str(program)],
        check=True,
    )
    given_ones = draw_configurations(CONFIGURATIONS)
    run = subprocess.run(
        [str(program)], input="\n".join(write_line(*one) for one in given_ones) + "\n",
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = run.stdout.splitlines()
    assert len(answers) == CONFIGURATIONS
    seen: set[tuple[str, ...]] = set()
    for (arch, use), answer in zip(given_ones, answers, strict=True):
        numbers = [int(word) for word in answer.split()]
        got = compute_residency(arch, use)
        seen.add(tuple(got["limiters"]))
        assert got["blocks"] == numbers[0], (arch, use, answer)
        bind = {name for name, (_, at) in FACTORS.items() if numbers[at] == numbers[0]}
        assert set(got["limiters"]) == bind, (arch, use, answer)
        # The header does not take its word back where barriers lower what it had before them.
        if numbers[6] >= min(numbers[2:6]):
            named = {name for name, (bit, _) in FACTORS.items() if numbers[1] & bit}
            assert named == bind, (arch, use, answer)
    assert {("registers",), ("shared memory",), ("threads",), ("blocks",), ("barriers",)} <= seen
    assert len(seen) > 10  # several limiters at once as well


@settings(max_examples=60)
@given(arch=archs, use=uses)
def test_the_changes_are_the_nearest_that_change_it(arch: str, use: BlockUsage) -> None:
    now = compute_residency(arch, use)
    for one in occupancy_changes(arch, use):
        shown, unit = one["change"].split(" ", 1)
        number = int(shown.replace(",", ""))
        if unit == "threads":
            assert number in (use.threads // 2, use.threads * 2)
            continue
        assert one["blocks"] != now["blocks"]
        count = use.registers if unit == "registers" else use.static + use.dynamic
        step = 1 if number < count else -1
        before = (
            BlockUsage(number + step, use.threads, use.static, use.dynamic, use.barriers)
            if unit == "registers"
            else BlockUsage(use.registers, use.threads, 0, number + step, use.barriers)
        )
        assert compute_residency(arch, before)["blocks"] == now["blocks"]


@settings(max_examples=60)
@given(arch=archs, use=uses)
def test_it_has_the_shape_of_a_view(arch: str, use: BlockUsage) -> None:
    shown = figures.describe_occupancy(arch, use)
    assert files.shape_problem(shown, view.VIEW["occupancy"], "occupancy") is None
    assert shown["warps"] <= shown["most"]


def test_a_kernel_whose_registers_and_threads_bind() -> None:
    """64 registers a thread, 256 threads: 65,536 / (64 * 256) = 4 blocks of an sm_90."""

    def expect_residency(blocks: int) -> dict[str, object]:
        return {"blocks": blocks, "warps": 8 * blocks, "most": 64, "limiters": ["registers"]}

    use = BlockUsage(registers=64, threads=256, static=16 * KIB)
    assert compute_residency("sm_90a", use) == expect_residency(4)
    # A warp is given 256 registers at a time, 8 a thread: 56 let a fifth block in, 72 put one out.
    assert list(occupancy_changes("sm_90", use))[:2] == [
        {"change": "48 registers", **expect_residency(5)},
        {"change": "65 registers", **expect_residency(3)},
    ]


def test_what_cannot_be_is_an_error() -> None:
    with pytest.raises(ValueError, match="the SM of sm_61 is unknown"):
        compute_residency("sm_61", BlockUsage(32, 128))
    with pytest.raises(ValueError, match="at least 1"):
        BlockUsage(32, 0)
    with pytest.raises(ValueError, match="dynamic = -1"):
        BlockUsage(32, 32, dynamic=-1)

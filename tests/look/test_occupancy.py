"""Occupancy equals what NVIDIA's cuda_occupancy.h says, and what would change it does change it."""

from __future__ import annotations

import importlib.util
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpshelf.core import files
from warpshelf.look import figures, view
from warpshelf.look.figures import (
    KIB,
    SMS,
    BlockUsage,
    compute_residency,
    occupancy_changes,
)

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

"""What an architecture takes of a snippet, known with no GPU: planted faults, and our own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import ROOT, Trial, exhaustive

from warpshelf.bench import compiling
from warpshelf.contract import architectures, snippet
from warpshelf.core.project import Project

HEAD = '''"""Kernels that some GPUs have no room for.

Shapes  x (M,) float32 -> y (M,) float32
Bytes   x read once, y written once
Error   none
Raises  nothing
Source  none
"""
'''
MODULE = (
    HEAD
    + """
import os
from pathlib import Path

import torch

from snippets.cuda import Source

SOURCE = Source(Path(__file__).with_suffix(".cu"))


def roomy(x):
    SOURCE.launch("roomy", 1, 64, x, shared=120 * 1024)
    return x


def slim(x):
    SOURCE.launch("slim", 1, 64, x, shared=4096)
    return x


def crowded(x):
    SOURCE.launch("crowded", 1, 1024, x)
    return x


def asynchronous(x):
    SOURCE.launch("asynchronous<1>", 1, 32, x)
    return x


def dies(x):
    os.abort()  # as LLVM does where it cannot select an instruction


def demo(device):
    print("nothing")


if __name__ == "__main__":
    demo("cpu")
"""
)
KERNELS = """
extern __shared__ float tile[];
extern "C" __global__ void slim(float* x) {
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
extern "C" __global__ void roomy(float* x) {
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
extern "C" __global__ void crowded(float* x) {
    float kept[90];
    #pragma unroll
    for (int i = 0; i < 90; i++) kept[i] = x[threadIdx.x + 1024 * i];
    for (int k = 0; k < 9; k++)
        #pragma unroll
        for (int i = 0; i < 90; i++) kept[i] = kept[i] * kept[(i + 7) % 90] + x[k];
    #pragma unroll
    for (int i = 0; i < 90; i++) x[threadIdx.x + 1024 * i] = kept[i];
}
template <int N> __global__ void asynchronous(float* x) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::
        "r"((unsigned)__cvta_generic_to_shared(tile)), "l"(x));
}
"""
CASES = """
from snippets.base import base

import torch

NEEDS = {needs}
VARIANTS = {{
    name: getattr(base, name) for name in {names}
}}
PEERS = {{"torch": lambda x: x}}
CASES = ({{"m": 64}},)
TIMED = ({{"m": 2**40}},)  # which no machine holds


def inputs(case, device, generator):
    return (torch.ones(case["m"], device=device),)


def reference(x):
    return x.double()
"""


def plant_snippet(trial: Trial, *names: str, needs: str = "{}", name: str = "planted") -> Path:
    """A snippet of these variants."""
    folder = trial.root / "snippets" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(MODULE)
    (folder / f"{name}.cu").write_text(KERNELS)
    cases = CASES.format(needs=needs, names=names)
    (folder / "cases.py").write_text(cases.replace("base", name))
    return folder


def test_shared_memory_that_a_gpu_lacks_is_told_in_one_line_each(trial: Trial) -> None:
    plant_snippet(trial, "roomy", "slim")
    done = trial.run_shelf(
        "reach", "planted", "--arch", "sm_86", "--arch", "sm_90", "--arch", "sm_120"
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    for sm, line in zip((120, 86), lines, strict=True):
        assert line == (
            f"snippets/planted/cases.py:7: sm_{sm}: variant 'roomy' cannot run on case "
            "{'m': 64}: roomy takes 122,880 bytes of shared memory a block, and "
            f"sm_{sm} gives at most 101,376; fix it, or exclude {sm} with "
            'NEEDS = {"variants": {"roomy": {"sm": ..., "why": ...}}}'
        )
    rows = {line.split("│")[1].strip(): line.split("│")[2:5] for line in done.stdout.splitlines()
            if "│" in line}  # fmt: skip
    assert [cell.strip() for cell in rows["roomy"]] == ["FAILS", "120 KiB", "FAILS"]
    assert [cell.strip() for cell in rows["slim"]] == ["4 KiB"] * 3


def test_what_needs_leaves_out_is_skipped_with_its_reason(trial: Trial) -> None:
    needs = '{"variants": {"roomy": {"sm": [80, 90], "why": "120 KiB of shared memory"}}}'
    plant_snippet(trial, "roomy", "slim", needs=needs)
    done = trial.run_shelf("reach", "planted", "--arch", "sm_86", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    [found] = json.loads(done.stdout)
    assert found["fits"] == {"slim": {"launches": 1, "shared_bytes": 4096}}
    assert found["skips"] == {
        "roomy": "needs SM 80 or 90 (120 KiB of shared memory); this GPU is SM 86"
    }
    needs = '{"sm": 90, "why": "wgmma"}'
    plant_snippet(trial, "roomy", needs=needs)
    done = trial.run_shelf("reach", "planted", "--arch", "sm_86")
    assert done.returncode == 0
    assert "everything needs SM 90 (wgmma); this GPU is SM 86" in done.stdout


def test_registers_and_instructions_that_are_not_there_are_told(trial: Trial) -> None:
    plant_snippet(trial, "crowded", "asynchronous", "slim")
    done = trial.run_shelf("reach", "planted", "--arch", "sm_75")
    assert done.returncode == 1
    first, second = sorted(done.stderr.splitlines())
    assert "'asynchronous'" in first and "does not compile: Feature 'cp.async' requires" in first
    assert "'crowded'" in second and "registers in each of 1024 threads" in second
    assert "too few registers for one block" in second


def test_a_compiler_that_dies_costs_one_variant(trial: Trial) -> None:
    plant_snippet(trial, "dies", "slim")
    one = snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "planted")
    [found] = compiling.compile_for_archs([one], ["sm_80"])
    [finding] = found.findings
    assert "sm_80: the compiler was ended by SIGABRT in variant 'dies' on case" in finding.what
    assert finding.mend.startswith("fix it, or exclude 80 with NEEDS = ")
    assert found.fits.keys() == {"slim"}


def test_a_snippet_that_cannot_be_imported_is_told(trial: Trial) -> None:
    folder = plant_snippet(trial, "slim")
    cases = folder / "cases.py"
    cases.write_text(cases.read_text().replace("import torch", "import torch\n1 / 0"))
    done = trial.run_shelf("reach", "planted", "--arch", "sm_80")
    assert done.returncode == 1
    assert "cases.py" in done.stderr and "raised ZeroDivisionError" in done.stderr


def test_wrong_words_are_wrong_usage(trial: Trial) -> None:
    plant_snippet(trial, "slim")
    done = trial.run_shelf("reach", "planted", "--arch", "sm_70")
    assert done.returncode == 2
    assert "sm_70 is not one of sm_75, sm_80" in " ".join(done.stderr.replace("│", " ").split())
    assert trial.run_shelf("reach", "nothing").returncode != 0


# A sample that takes few seconds: each limit of shared memory, each reason for SM 75, and both
# languages. `shelf reach` looks at every launch of every kernel for every architecture.
SAMPLE = (
    ("stencil", "sm_75"),
    ("stencil", "sm_120"),
    ("bulk_copy", "sm_75"),
    ("warp_primitives", "sm_75"),
    ("matmul_languages", "sm_86"),
    ("mlp_monolithic", "sm_120"),
)


@pytest.mark.parametrize(
    ("name", "arch"), exhaustive(SAMPLE, "a sample of all GPUs and snippets", light=2)
)
def test_no_launch_fails_that_needs_admits(name: str, arch: str) -> None:
    one = snippet.read_snippet(Project(ROOT), ROOT / "snippets" / name)
    [found] = compiling.compile_for_archs([one], [arch], largest=True)
    assert found.findings == []
    assert found.refusal is None and found.fits
    admitted = {
        variant
        for variant in (*found.fits, *found.skips)
        if architectures.is_covered(one.needs, variant, architectures.sm_version(arch))
    }
    assert found.fits.keys() == admitted

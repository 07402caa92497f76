"""A public kernel is compiled where it stands, whatever its file imports beside it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from warpshelf.worker import public_kernel

pytest.importorskip("triton")

KERNEL = """\
import triton
import triton.language as tl

import no_such_library.native as native
from library.helpers import twice

try:
    import no_such_option
    HAS = True
except ImportError:
    HAS = False


@triton.autotune([triton.Config({}, num_warps=4)], key=["n"])
@triton.jit
def scale(y, x, bias, n, BLOCK: tl.constexpr, KIND: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], KIND)
    for start in range(0, n, BLOCK):
        total += tl.load(x + start + at).to(KIND)
    if bias is not None:
        total += tl.load(bias + at)
    tl.store(y + at, twice(total))


if HAS:
    raise ImportError("what a file can do without is not replaced")
"""
HELPERS = """\
import triton


@triton.jit
def twice(x):
    return x * 2


print("imported")
"""
JOB = {
    "file": "src/library/ops/scale.py",
    "kernel": "scale",
    "signature": {"y": "*bf16", "x": "*bf16", "n": "i32"},
    "divisible": ["y", "x", "n"],
    "constants": {"BLOCK": 1024, "KIND": "tl.float32"},
    "absent": ["bias"],
    "options": {"num_warps": 4},
    "targets": [90],
}


@pytest.fixture
def library_checkout(tmp_path: Path) -> Path:
    library = tmp_path / "src" / "library"
    (library / "ops").mkdir(parents=True)
    for folder in (library, library / "ops"):
        (folder / "__init__.py").write_text("")
    (library / "helpers.py").write_text(HELPERS)
    (library / "ops" / "scale.py").write_text(KERNEL)
    return tmp_path


def run_public_kernel(root: Path, **changed: object) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "warpshelf.worker.public_kernel"],
        input=json.dumps({**JOB, "root": str(root), **changed}),
        capture_output=True,
        text=True,
        timeout=300,
    )
    return json.loads(done.stdout)


CUDA = """\
#include "shape.hpp"
#include <vector>

template <class T, int STEP>
__global__ void scale(T* y, const T* x, T by, int n) {
    extern __shared__ T tile[];
    for (int i = 0; i < n; i += STEP) {
        tile[threadIdx.x] = x[i * WIDTH + threadIdx.x];
        __syncthreads();
        y[i * WIDTH + threadIdx.x] = tile[WIDTH - 1 - threadIdx.x] * by + OFFSET;
        __syncthreads();
    }
}

int main() {
    std::vector<float> host(WIDTH);
    scale<float, 2><<<1, WIDTH>>>(nullptr, nullptr, 2.0f, 64);
}
"""


@pytest.mark.exhaustive("public kernels, compiled by their own means")
def test_one_in_cuda_is_compiled_with_its_host(tmp_path: Path) -> None:
    (tmp_path / "src" / "include").mkdir(parents=True)
    (tmp_path / "src" / "scale.cu").write_text(CUDA)
    (tmp_path / "src" / "include" / "shape.hpp").write_text("constexpr int WIDTH = 128;\n")
    job = {"file": "src/scale.cu", "kernel": "scale<float, 2>", "shared": 512,
           "flags": ["-DOFFSET=3.0f", "-Isrc/include"], "targets": [80, 90, 100]}  # fmt: skip
    found = run_public_kernel(tmp_path, **job)
    assert found["compiler"].startswith("nvcc ") and [*found["builds"]] == [
        "sm_80", "sm_90", "sm_100",
    ]  # fmt: skip
    for build in found["builds"].values():
        assert build["shared_bytes"] == 512 and build["spilled_bytes"] == 0
        assert build["loop"]["load global 4"] == build["loop"]["store shared 4"] > 0
    for changed, says in (
        ({"flags": ["-Isrc/include"]}, "OFFSET"),
        ({"kernel": "scale<float>"}, "CompileError"),
        ({"kernel": "none"}, "CompileError"),
    ):
        wrong = run_public_kernel(tmp_path, **job | changed)
        assert says in wrong["error"] and "\n" not in wrong["error"]


@pytest.mark.exhaustive("public kernels, compiled by their own means")
def test_its_figures_are_those_of_its_machine_code(library_checkout: Path) -> None:
    found = run_public_kernel(library_checkout)
    assert found["compiler"].startswith("Triton 3.")
    build = found["builds"]["sm_90"]
    assert build["spilled_bytes"] == 0 and build["shared_bytes"] == 0
    assert 8 <= build["registers"] <= 128 and build["instructions"] > 20
    # 1024 elements of 2 bytes by 128 threads: a load of 16 bytes each, and 8 additions.
    assert build["loop"]["load global 16"] * 8 == build["loop"]["multiply-add"] > 0
    narrow = run_public_kernel(library_checkout, divisible=["y"])["builds"]["sm_90"]
    assert "load global 16" not in narrow["loop"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"kernel": "none"}, "has no kernel none"),
        ({"file": "src/library/ops/none.py"}, "No such file"),
        ({"absent": []}, "takes bias, which signature and constants lack"),
        ({"constants": {**JOB["constants"], "MORE": 1}}, "does not take MORE; it takes y, x, bias"),
        ({"constants": {"BLOCK": 1000, "KIND": "tl.float32"}}, "power of 2"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(library_checkout: Path, changed: dict, says: str) -> None:
    found = run_public_kernel(library_checkout, **changed)
    assert set(found) == {"error"} and says in found["error"] and "\n" not in found["error"]


def test_a_job_without_a_file_has_an_answer_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    told = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    monkeypatch.setattr(sys, "stdout", told)
    public_kernel.main()
    assert json.loads(told.getvalue()) == {"error": "KeyError: 'file'"}


OWN = """\
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def scale(y, x):
    at = tl.arange(0, 128)
    tl.store(y + at, tl.load(x + at) * 2)


def binary(arch):
    source = ASTSource(fn=scale, signature={"y": "*fp32", "x": "*fp32"}, constexprs={})
    made = triton.compile(source, target=GPUTarget("cuda", int(arch[3:]), 32))
    return made.asm["cubin"], "scale", 4096
"""


@pytest.mark.exhaustive("public kernels, compiled by their own means")
def test_one_in_a_language_of_its_own_compiles_itself(tmp_path: Path) -> None:
    (tmp_path / "in_own.py").write_text(OWN)
    job = {"file": "in_own.py", "kernel": "scale", "package": "triton", "targets": [80, 90]}
    found = run_public_kernel(tmp_path, **job)
    assert found["compiler"].startswith("triton 3.") and [*found["builds"]] == ["sm_80", "sm_90"]
    for build in found["builds"].values():
        assert build["bytes"] == 8 and build["shared_bytes"] == 4096
    for changed, says in (
        ({"package": "no-such-language"}, "No package metadata was found for no-such-language"),
        ({"file": "none.py"}, "No such file"),
    ):
        wrong = run_public_kernel(tmp_path, **job | changed)
        assert says in wrong["error"] and "\n" not in wrong["error"]
    (tmp_path / "in_own.py").write_text("import triton\n")
    assert "has no attribute 'binary'" in run_public_kernel(tmp_path, **job)["error"]

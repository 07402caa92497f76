"""Ahead-of-time figures: what is read from binaries, and the limits set on it.
Takes 15 s, as it compiles.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from conftest import write_snippet

from warpshelf.contract.values import Obligations
from warpshelf.look import binary
from warpshelf.worker import compiled

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)
needs_nvrtc = pytest.mark.skipif(
    not list(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/**/libnvrtc.so*")),
    reason="NVRTC is not installed",
)


def compile_rows(
    path: Path, *, has_cuda: bool = False, archs: tuple[str, ...] = compiled.ARCHS
) -> dict:
    """Figures of the snippet at `path`, from a child that imports it without the interpreter:
    {"rows": [...], "broken": [...]} or {"error": text}."""
    code = f"""
        import importlib, json, sys
        sys.path.insert(0, {str(path.parents[2])!r})
        cases = importlib.import_module("snippets.{path.stem}.cases")
        from warpshelf.contract import values
        from warpshelf.worker import compiled
        needs = getattr(cases, "NEEDS", {{}})
        proof = values.read_obligations(cases, "kernel", needs)
        try:
            rows = compiled.compile_figures(
                proof, {path.stem!r}, has_cuda={has_cuda}, archs={archs}, needs=needs
            )
            broken = compiled.broken_limits(rows, proof.limits)
            print(json.dumps({{"rows": rows, "broken": broken}}))
        except RuntimeError as error:
            print(json.dumps({{"error": str(error)}}))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={
            **os.environ,
            "TRITON_INTERPRET": "0",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(SCRIPTS)]),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def write_self_importing(folder: Path, text: str) -> Path:
    """Write a snippet whose cases import what they need of `base`."""
    path = write_snippet(folder, text)
    cases = path.with_name("cases.py")
    own = f"from snippets.{folder.name}.{folder.name} import"
    cases.write_text(cases.read_text().replace("from snippets.base.base import", own))
    return path


def find_row(rows: list[dict], kernel: str, arch: str) -> dict:
    found = [row for row in rows if row["kernel"] == kernel and row["arch"] == arch]
    found = [row for row in found if row["variant"] != "asks"]
    assert len(found) == 1, f"{len(found)} rows of {kernel} on {arch}"
    return found[0]


@pytest.mark.exhaustive("all architectures, as `shelf run` compiles for them")
@needs_triton
def test_softmax_compiles_for_three_architectures_without_spilling() -> None:
    answer = compile_rows(ROOT / "snippets" / "softmax" / "softmax.py")
    assert answer["broken"] == []
    kernels = {
        ("one pass", "softmax_one_pass"),
        ("one pass", "softmax_backward_one_pass"),
        ("online", "softmax_online"),
        ("online", "softmax_backward_online"),
    }
    found = [(row["variant"], row["kernel"], row["arch"]) for row in answer["rows"]]
    assert sorted(found) == sorted((*pair, arch) for pair in kernels for arch in compiled.ARCHS)
    for row in answer["rows"]:
        assert row["language"] == "Triton" and row["compiler"].startswith("Triton 3.")
        assert 16 <= row["registers"] <= 64  # 1024 threads leave 64 each
        assert row["spilled_bytes"] == 0 and row["matrix_instructions"] is False
        assert 0 < row["shared_bytes"] <= 1024  # a few values a warp, no tile


TRITON = """
import os
import torch
import triton
import triton.language as tl

@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

@triton.jit
def product(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tile = i[:, None] * B + i[None, :]
    z = tl.dot(tl.load(x + tile), tl.load(x + tile))
    tl.store(y + tile, z.to(y.dtype.element_ty))

@triton.jit
def crowded(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = a * tl.sum(a) + 1
    tl.store(y + i, a * tl.sum(b) + b)

@triton.autotune([triton.Config({"B": 128}), triton.Config({"B": 256})], key=["n"])
@triton.jit
def tuned(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def run(kernel, **options):
    def call(x):
        y = torch.full_like(x, 7)
        kernel[(1,)](x, y, x.numel(), **options)
        assert bool((y == 7).all()), "a kernel was launched"
        return y
    return call

def asks(x):
    arch = triton.runtime.driver.active.get_current_target().arch
    return run(tuned)(x) if arch == 90 else run(add, B=1024)(x)

# ---- cases.py ----
import torch
from snippets.base.base import add, asks, crowded, product, run, tuned

VARIANTS = {
    "add": run(add, B=1024),
    "dot": run(product, B=64),
    "spill": run(crowded, B=8192, num_warps=1),
    "tuned": run(tuned),
    "asks": asks,
}
PEERS = {"torch": lambda x: x + 1}
NEEDS = {"variants": {"tuned": {"sm": "90-100"}, "dot": {"sm": [80, 90]}}}
LIMITS = {"crowded": {"spilled_bytes": 0}, "product": {"matrix_instructions": False}}
CASES = ({"n": 100, "dtype": "float16"},)
TIMED = (
    {"n": 8192, "dtype": "float16", "variants": ["add", "dot", "spill"]},
    {"n": 16384, "dtype": "float16", "variants": ["add", "dot", "spill"]},
    {"n": 2**40, "dtype": "float16", "variants": ["add", "dot", "spill"]},
)

def inputs(case, device, generator):
    fits = device == "meta" or case["n"] in (100, 16384)
    assert fits, "data of the largest that fits alone, or of CASES"
    return (torch.ones(case["n"], dtype=torch.float16, device=device),)

def reference(x):
    return x.double() + 1
"""


@pytest.fixture(scope="module")
def triton_rows(tmp_path_factory) -> dict:
    return compile_rows(
        write_self_importing(tmp_path_factory.mktemp("compiled") / "snippets" / "small", TRITON)
    )


@needs_triton
def test_figures_tell_kernels_apart(triton_rows: dict) -> None:
    rows = triton_rows["rows"]
    for arch in ("sm_80", "sm_90"):
        assert find_row(rows, "product", arch)["matrix_instructions"] is True
        assert find_row(rows, "product", arch)["shared_bytes"] >= 64 * 64 * 2
    for arch in compiled.ARCHS:
        assert find_row(rows, "add", arch)["matrix_instructions"] is False
        assert find_row(rows, "add", arch)["spilled_bytes"] == 0
        assert find_row(rows, "add", arch)["shared_bytes"] == 0
        assert find_row(rows, "crowded", arch)["spilled_bytes"] > 0
        assert find_row(rows, "crowded", arch)["registers"] >= 250


@needs_triton
def test_a_variant_is_compiled_for_its_architectures_alone(triton_rows: dict) -> None:
    def list_archs(variant: str) -> list[str]:
        return [row["arch"] for row in triton_rows["rows"] if row["variant"] == variant]

    assert list_archs("tuned") == ["sm_90", "sm_100"]
    assert list_archs("dot") == ["sm_80", "sm_90"]
    assert list_archs("add") == list(compiled.ARCHS)


@needs_triton
def test_a_wrapper_that_asks_is_told_what_is_compiled_for(triton_rows: dict) -> None:
    rows = [row for row in triton_rows["rows"] if row["variant"] == "asks"]
    chosen = {row["arch"]: row["kernel"] for row in rows}
    assert chosen == {"sm_80": "add", "sm_90": "tuned", "sm_100": "add"}


@needs_triton
def test_limits_of_a_real_binary(triton_rows: dict) -> None:
    broken = triton_rows["broken"]
    assert len(broken) == 5  # one kernel on three architectures, one on two
    assert sum("crowded (spill) on sm_90: spilled_bytes = " in line for line in broken) == 1
    assert sum("product (dot) on sm_80: matrix_instructions = True" in line for line in broken) == 1


@needs_triton
def test_a_kernel_that_does_not_compile_is_named(tmp_path: Path) -> None:
    text = TRITON.replace("tl.load(x + i, mask=i < n) + 1", "tl.nothing(x)")
    path = write_self_importing(tmp_path / "snippets" / "broken", text)
    error = compile_rows(path, archs=("sm_90",))["error"]
    assert error.startswith("broken: add did not compile for sm_90 on {'n': ")
    assert "nothing" in error


CUDA = """
template <int N>
__global__ void turn(float* x) {
    __shared__ float tile[64];
    float kept[N];
    for (int i = 0; i < N; i++) kept[i] = x[threadIdx.x + 64 * i];
    #pragma unroll 1
    for (int k = 0; k < 9; k++)
        for (int i = 0; i < N; i++) kept[i] = kept[i] * kept[(i + 7) % N] + x[k];
    tile[threadIdx.x] = kept[0];
    __syncthreads();
    for (int i = 0; i < N; i++) x[threadIdx.x + 64 * i] = kept[i] + tile[63 - threadIdx.x];
}
#if __CUDA_ARCH__ >= 700
#include <mma.h>
using namespace nvcuda;
__global__ void matrix(__half* x) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, __half> c;
    wmma::fill_fragment(c, __float2half(0));
    wmma::load_matrix_sync(a, x, 16);
    wmma::load_matrix_sync(b, x, 16);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(x, c, 16, wmma::mem_row_major);
}
#endif
"""
CUDA_SNIPPET = """
from pathlib import Path
import torch
from snippets import cuda

SOURCE = cuda.Source(Path(__file__).with_suffix(".cu"))

def turn(x):
    SOURCE.launch("turn<4>", 1, 64, x)
    SOURCE.launch("turn<4>", 1, 64, x, shared=4096)
    assert bool((x == 1).all()), "a kernel was launched"
    return x

def crowded(x):
    SOURCE.launch("turn<300>", 1, 64, x)
    return x

def matrix(x):
    SOURCE.launch("matrix", 1, 32, x.half())
    return x

# ---- cases.py ----
import torch
from snippets.base.base import crowded, matrix, turn

VARIANTS = {"turn": turn, "crowded": crowded, "matrix": matrix}
PEERS = {"torch": lambda x: x}
LIMITS = {"turn": {"spilled_bytes": 0}}
CASES = ({"n": 19200},)
TIMED = ()

def inputs(case, device, generator):
    return (torch.ones(case["n"], device=device),)

def reference(x):
    return x.tolist()  # not to be had without data, so that the size is estimated
"""


@needs_triton
@needs_nvrtc
def test_cuda_launches_are_compiled_and_not_run(tmp_path: Path) -> None:
    path = write_self_importing(tmp_path / "snippets" / "turned", CUDA_SNIPPET)
    path.with_suffix(".cu").write_text(CUDA)
    answer = compile_rows(path, has_cuda=True, archs=("sm_80", "sm_90"))
    rows = answer["rows"]
    assert len(rows) == 6
    for arch in ("sm_80", "sm_90"):
        row = find_row(rows, "turn<4>", arch)
        assert (row["variant"], row["language"]) == ("turn", "CUDA C++")
        assert row["shared_bytes"] == 64 * 4 + 4096  # static, and the most a launch asked for
        assert row["spilled_bytes"] == 0 and 8 <= row["registers"] <= 64
        assert row["matrix_instructions"] is False
        assert row["compiler"].startswith("NVRTC 1")
        assert find_row(rows, "turn<300>", arch)["spilled_bytes"] > 1000
        assert find_row(rows, "matrix", arch)["matrix_instructions"] is True
    assert len(answer["broken"]) == 2
    assert all(line.startswith("turn<300> (crowded) on sm_") for line in answer["broken"])


@pytest.mark.parametrize("given", [[], [torch.empty(3, device="meta")]])
def test_a_cuda_launch_needs_tensors_with_data_but_for_shapes(
    monkeypatch: pytest.MonkeyPatch, given: list[torch.Tensor]
) -> None:
    monkeypatch.delitem(sys.modules, "triton", raising=False)  # as where no kernel is in Triton
    source = importlib.import_module("snippets.cuda").Source(Path("none.cu"))

    def launch_given(x: torch.Tensor) -> None:
        source.launch("k", 1, 32, numpy.int32(7), *given)

    proof = Obligations(
        cases=({"n": 3},),
        variants={"v": launch_given},
        inputs=lambda case, device, generator: (torch.ones(case["n"], device=device),),
        reference=lambda x: x.double(),
    )
    with pytest.raises(RuntimeError, match="v did not compile for .*: its tensors are on"):
        compiled.compile_figures(proof, "one", has_cuda=True, needs={})
    recorder = compiled.LaunchRecorder("sm_90")
    with recorder.recording(True, shapes=True):
        launch_given(torch.ones(3))
    assert [*recorder.asked.values()] == [{"k": {"": (0, {}, 32)}}]


@needs_triton
@pytest.mark.exhaustive("a process of its own for one line")
def test_the_interpreter_is_refused(tmp_path: Path) -> None:
    code = """
        import triton
        from warpshelf.contract.values import Obligations
        from warpshelf.worker import compiled
        try:
            compiled.compile_figures(Obligations(), "x", has_cuda=False, needs={})
        except RuntimeError as error:
            print(error)
    """
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "set TRITON_INTERPRET=0" in done.stdout


ROW = {
    "kernel": "scale<float4>",
    "variant": "wide",
    "arch": "sm_90",
    "registers": 168,
    "spilled_bytes": 8,
    "shared_bytes": 2048,
    "matrix_instructions": False,
}


@pytest.mark.parametrize("key", ["scale<float4>", "scale", "*"])
def test_a_broken_limit_names_kernel_value_limit_and_mend(key: str) -> None:
    (line,) = compiled.broken_limits([ROW], {key: {"registers": 128, "shared_bytes": 2048}})
    assert line == (
        "scale<float4> (wide) on sm_90: registers = 168 exceeds the limit 128; "
        "use more warps or fewer elements a thread, or change LIMITS"
    )


def test_matrix_instructions_must_be_equal() -> None:
    assert compiled.broken_limits([ROW], {"*": {"matrix_instructions": False}}) == []
    (line,) = compiled.broken_limits([ROW], {"*": {"matrix_instructions": True}})
    assert "matrix_instructions = False differs from True" in line


def test_limits_that_fit_nothing() -> None:
    (line,) = compiled.broken_limits([ROW], {"scales": {"registers": 255}})
    assert line.startswith("LIMITS names the kernel 'scales', but those compiled are scale<float4>")
    (line,) = compiled.broken_limits([], {"*": {"spilled_bytes": 0}})
    assert "none" in line
    assert compiled.broken_limits([ROW], {"*": {"warps": 1}}) == []  # which is of the views


SASS = """
		Function : _Z4turnPf
	.headerflags	@"EF_CUDA_SM90"
        /*0040*/                   STL.128 [R1+0x10], R4 ;     /* 0x000 */
        /*0050*/              @!P0 STL.64 [R1], R2 ;           /* 0x000 */
        /*0060*/                   STL [R1+0x8], R9 ;          /* 0x000 */
        /*0070*/                   LDL.64 R2, [R1] ;           /* 0x000 */
        /*0080*/                   STL.U8 [R1+0x9], R9 ;       /* 0x000 */
		Function : other
        /*0040*/                   STG.E.128 [R2], R4 ;        /* 0x000 */
        /*0050*/                   HGMMA.64x64x16.F32 R4, gdesc[UR4], R4 ;
"""


def test_spilled_bytes_are_those_stored_to_local_memory() -> None:
    code = binary.split_functions(SASS)
    assert {name: binary.count_spill_bytes(text) for name, text in code.items()} == {
        "_Z4turnPf": 16 + 8 + 4 + 1,
        "other": 0,
    }


@pytest.mark.parametrize(
    "text", ["HMMA.16816.F32", "IMMA.16832", "HGMMA.64x64", "QGMMA.64x8", "UTCHMMA gdesc", "DMMA"]
)
def test_matrix_instructions_in_a_disassembly(text: str) -> None:
    assert binary.MATRIX_SASS.search(f"/*0040*/   {text} ;")


@pytest.mark.parametrize(
    "text",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32",
        "wmma.mma.sync.aligned.row.col.m16n16k16",
        "wgmma.mma_async.sync.aligned.m64n64k16",
        "tcgen05.mma.cta_group::1.kind::f16",
        "mma.sp.sync.aligned",
        "mma.sp::ordered_metadata.sync.aligned",
    ],
)
def test_matrix_instructions_in_ptx(text: str) -> None:
    assert binary.MATRIX_PTX.search(f"\t{text} {{%r1}};")


@pytest.mark.parametrize("text", ["wgmma.fence.sync.aligned", "fma.rn.f32", "tcgen05.alloc.sync"])
def test_other_ptx_is_not_taken_for_it(text: str) -> None:
    assert not binary.MATRIX_PTX.search(f"\t{text} %f1;")
    assert not binary.MATRIX_SASS.search("FFMA R1, R2 ; HFMA2 R3 ; IMAD R4")


@needs_triton
def test_a_file_that_is_no_binary_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cuobjdump -res-usage read nothing"):
        binary.function_usage(b"not a cubin")


def test_values_are_drawn_where_a_wrapper_reads_them_or_integers_lead() -> None:
    def draw_inputs(case: dict, device: str, generator: torch.Generator | None) -> tuple:
        x = torch.randn(case["m"], 1024, generator=generator, device=device)
        lengths = torch.full((2,), 7, device=device) if case["lengths"] else None
        return "forward", x.to(torch.bfloat16), lengths

    seen: list[torch.Tensor] = []

    def call_compiled(m: int, lengths: bool, function: Callable[..., object]) -> torch.Tensor:
        proof = Obligations(inputs=draw_inputs)
        compiled.CompileInputs(proof, {"m": m, "lengths": lengths}).call_function(function)
        return seen[-1]

    def check_arguments(kind: str, x: torch.Tensor, lengths: torch.Tensor | None) -> None:
        seen.append(x)
        assert (kind, x.dtype, x.device.type) == ("forward", torch.bfloat16, "cpu")
        assert x.stride() == (1024, 1) and x.data_ptr() % 16 == 0
        assert lengths is None or lengths.tolist() == [7, 7]

    def read_items(kind: str, x: torch.Tensor, lengths: torch.Tensor | None) -> None:
        check_arguments(kind, x, lengths)
        if not x.any().item():
            raise ValueError("zeros")

    def multiply_self(kind: str, x: torch.Tensor, lengths: torch.Tensor | None) -> None:
        y = x @ x.T
        y *= 2
        y[0] = 1
        seen.append(y)
        assert y.shape == (len(x), len(x)) and y.is_contiguous() and y.data_ptr() % 16 == 0
        assert y.T.untyped_storage().data_ptr() == y.data_ptr() and y[1:].argmax(-1).eq(0).all()

    def excuse_error(kind: str, x: torch.Tensor, lengths: torch.Tensor | None) -> None:
        check_arguments(kind, x, lengths)
        with contextlib.suppress(ValueError):  # of its own
            x.any().item()

    assert call_compiled(8, False, excuse_error).any()
    assert not call_compiled(8, False, check_arguments).any()
    assert (
        call_compiled(8, True, check_arguments).any() and call_compiled(8, False, read_items).any()
    )
    assert not call_compiled(8192, True, check_arguments).any()  # large beside the integers
    assert not call_compiled(8192, True, multiply_self)[:2].any()  # nobody computes with these


def test_beside_large_tensors_small_ones_are_computed_with() -> None:
    with compiled.HollowTensors():
        large, small = torch.randn(2**11, 2**11), torch.arange(4.0)
        assert not (large * 2 + 1).any() and (small + 1).tolist() == [1, 2, 3, 4]
        assert large[0].add_(1) is not None and not large.any()
        assert (large.requires_grad_() + 1).sum().backward() is None and large.grad is not None

"""Binaries: the one that a GPU's user gets, and what a block of it takes of an SM.

Views of a transpose, whose counts are worked out here by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, exhaustive

from warpshelf.bench import assemble
from warpshelf.bench.compiling import ARCHS
from warpshelf.bench.pool import Job, Pool
from warpshelf.contract import snippet
from warpshelf.contract.values import Obligations
from warpshelf.core import files
from warpshelf.core.project import Project
from warpshelf.look import binary, elf, figures, view, view_store
from warpshelf.records import claim_check, ledger
from warpshelf.worker import kernel_views, verify
from warpshelf.worker.context import JobContext, Task
from warpshelf.worker.launch_limits import MOST, ArchitectureFit, Launch, limit_memory

# The binary of PTX that was executed is the one that a GPU's user gets.

SOURCE = """
template <int N>
__global__ void scale(float* x, float by) {
    for (int i = 0; i < N; ++i)
        x[threadIdx.x + i * blockDim.x] *= by;
}
"""


@pytest.fixture
def compiled_scale(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The PTX of `scale<3>` for a target, and its symbol."""
    from papergpu import compiler

    unit = compiler.unit(SOURCE, None, (), request.param)
    made = compiler.compiled(unit, ["scale<3>"])
    return made.ptx, made.symbols["scale<3>"]


@pytest.mark.parametrize(
    "compiled_scale", exhaustive(["sm_90a", "sm_80", "sm_100a"], "all architectures"), indirect=True
)
def test_cuda_is_assembled_by_nvrtc(
    compiled_scale: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    ptx, symbol = compiled_scale
    target = request.node.callspec.params["compiled_scale"].removesuffix("a")
    made = kernel_views.assemble_kernel(ptx, symbol, target)
    assert made.language == "CUDA C++" and made.compiler.startswith("NVRTC 13.")
    code = binary.disassemble_kernel(made.binary, symbol)
    assert code.instructions[-1].opcode in ("EXIT", "BRA")
    # Every instruction comes from a line of PTX, and each store from the store that is there.
    lines = ptx.splitlines()
    assert all(0 < one.ptx <= len(lines) for one in code.instructions)
    stores = [lines[one.ptx - 1] for one in code.instructions if one.opcode.startswith("STG")]
    assert len(stores) == 3 and all(
        "st.global.b32" in line or "st.global.f32" in line for line in stores
    )
    assert max(one.live for one in code.instructions) >= 4


@pytest.mark.parametrize("compiled_scale", ["sm_90a"], indirect=True)
def test_other_ptx_is_told_apart(compiled_scale: tuple[str, str]) -> None:
    from papergpu import compiler

    ptx, symbol = compiled_scale
    made = elf.embedded_ptx(compiler.binary(ptx))
    assert kernel_views.same_ptx(made, ptx.splitlines())
    assert not kernel_views.same_ptx(made, ptx.replace("mul.f32", "add.f32").splitlines())
    assert not kernel_views.same_ptx(made, ptx.splitlines()[1:])
    assert not kernel_views.same_ptx([], ptx.splitlines())
    with pytest.raises(ValueError, match="was not made from CUDA"):
        compiler.binary(ptx + "\n")
    with pytest.raises(ValueError, match="no kernel nothing"):
        elf.kernel_code(compiler.binary(ptx), "nothing")
    assert symbol in ptx


@pytest.mark.parametrize("target", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
def test_triton_is_assembled_by_the_ptxas_it_brings(target: str) -> None:
    ptx = f"""\
.version 8.6
.target {target}{"a" if target != "sm_80" else ""}
.address_size 64
.visible .entry half(.param .u64 .ptr .global half_param_0)
.reqntid 32
{{
\t.reg .b64 %rd<3>;
\t.reg .b32 %r<2>;
\t.reg .f32 %f<3>;
\tld.param.u64 %rd1, [half_param_0];
\tmov.u32 %r1, %tid.x;
\tmul.wide.u32 %rd2, %r1, 4;
\tadd.s64 %rd1, %rd1, %rd2;
\tld.global.f32 %f1, [%rd1];
\tmul.f32 %f2, %f1, 0f3F000000;
\tst.global.f32 [%rd1], %f2;
\tret;
}}
"""
    made = kernel_views.assemble_kernel(ptx, "half", target)
    assert made.language == "Triton" and made.compiler.startswith("Triton 3.")
    code = binary.disassemble_kernel(made.binary, "half")
    names = [one.opcode.split(".")[0] for one in code.instructions]
    assert names.count("FMUL") == names.count("LDG") == names.count("STG") == 1
    # The header of ptxas before CUDA 13 is changed for nvdisasm alone, and nothing behind it.
    shown = binary.patch_header(made.binary)
    assert elf.kernel_code(shown, "half") == elf.kernel_code(made.binary, "half")
    assert len(shown) == len(made.binary)


# What a block takes, against what an SM of an architecture has.

# The most shared memory of a block, in KiB, from the CUDA C++ Programming Guide's table of
# technical specifications by compute capability.
MOST_SHARED = {
    "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227,
    "sm_103": 227, "sm_120": 99,
}  # fmt: skip


def test_every_architecture_has_its_limit() -> None:
    assert set(ARCHS) == MOST_SHARED.keys() <= figures.SMS.keys()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_block_may_have_so_much_shared_memory_and_no_byte_more(arch: str) -> None:
    most = MOST_SHARED[arch] * 1024
    assert Launch("k", 128, most).refusal_reason(arch) is None
    said = Launch("k", 128, most + 1).refusal_reason(arch)
    assert said == (
        f"k takes {most + 1:,} bytes of shared memory a block, and {arch} gives at most {most:,}"
    )


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        (Launch("k", 1024, 0, registers=64), None),
        (Launch("k", 1024, 0, registers=65), "65 registers in each of 1024 threads"),
        (Launch("k", 256, 0, registers=255), None),
        (Launch("k", 288, 0, registers=255), "too few registers for one block"),
        (Launch("k", 1056, 0, registers=8), "too few threads for one block"),
        (Launch("k", 128, 0, tensor=512), None),
        (Launch("k", 128, 0, tensor=1024), "1024 of 512 columns of tensor memory"),
    ],
)
def test_registers_threads_and_tensor_memory(launch: Launch, said: str | None) -> None:
    found = launch.refusal_reason("sm_100")
    assert found is None if said is None else re.search(said, found or "")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("k.cu(3): error: no such name\nmore", "no such name"),
        ("k.cu(3): error:  ", "raised RuntimeError: k.cu(3): error:"),  # of which nothing is said
    ],
)
def test_what_does_not_compile_is_a_miss_whatever_is_said(raised: str, said: str) -> None:
    def raise_given(x: torch.Tensor) -> None:
        raise RuntimeError(raised)

    context = JobContext({"arch": "sm_90"}, lambda message: None)
    context.proof = Obligations(
        variants={"v": raise_given}, inputs=lambda case, device, generator: (torch.ones(case["n"]),)
    )
    fit = ArchitectureFit(context)
    fit.call_case({"n": 3}, ["v"])
    assert fit.misses == {"v": [f"on case {{'n': 3}}: {said}"]}


def test_inputs_beyond_the_limit_are_not_made() -> None:
    with limit_memory():
        torch.empty(2**20)
        with pytest.raises(RuntimeError) as caught:
            torch.empty(MOST + 2**26, dtype=torch.uint8)
    assert verify.out_of_memory(caught.value)
    torch.empty(MOST + 2**26, dtype=torch.uint8)  # nothing touches it


# Views of a transpose, whose counts are worked out here by hand.

DIGEST = "sha256:" + "0" * 64
SIDE = 512  # of the matrix that is counted


@pytest.fixture(scope="module", params=exhaustive(claim_check.TARGETS, "all architectures"))
def transpose_views(request: pytest.FixtureRequest) -> dict[str, view.View]:
    """The views of `transpose` by variant, made here for each target in turn."""
    project = Project(ROOT)
    one = snippet.read_snippet(project, project.snippets / "transpose")
    details = assemble.job_details(one, ledger.describe_host(), request.param)
    with Pool(1) as pool:  # in a child, since the kernels that a process has loaded stay
        [outcome] = pool.run([Job(Task.VIEW, one.id, one.seconds, details)])
    answer = outcome.answer
    assert answer is not None and answer["failures"] == [], outcome
    found = {one["variant"]: one for one in answer["views"]}
    assert {one["arch"] for one in found.values()} == {request.param}
    return found


def find_line(found: view.View, *words: str) -> dict[str, Any]:
    """The line of the source, with its counts, in which all these words stand."""
    (at,) = [
        f"{piece['file']}:{piece['from'] + number}"
        for piece in found["source"]
        for number, text in enumerate(piece["text"])
        if all(word in text for word in words)
    ]
    (line,) = [one for one in found["lines"] if one["at"] == at]
    return line


def test_what_is_made_of_the_same_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPERGPU_CACHE", str(tmp_path))
    made: list[str] = []

    def make_word(word: str) -> Callable[[], bytes]:
        return lambda: (made.append(word), word.encode())[1]

    for decides in (("-c", 1), ("-c", 1), ("-c", 2)):
        assert kernel_views.load_or_make("sass", decides, make_word("text")) == b"text"
    assert made == ["text", "text"]
    for path in (tmp_path / "sass").glob("*/*"):
        path.write_bytes(path.read_bytes()[:-1])  # torn
    assert kernel_views.load_or_make("sass", ("-c", 1), make_word("again")) == b"again"


def test_each_is_shaped_and_kept(transpose_views: dict[str, view.View]) -> None:
    for one in transpose_views.values():
        assert files.shape_problem({**one, "digest": DIGEST}, view.VIEW, "it") is None
        assert view_store.compress_view({**one, "digest": DIGEST})


def test_a_naive_store_touches_32_sectors(transpose_views: dict[str, view.View]) -> None:
    requests = SIDE * SIDE // 32  # each element once, 32 of them a warp
    load, line = (find_line(transpose_views["naive"], words) for words in ("= x[", "y["))
    assert load["requests"] == line["requests"] == requests
    assert load["sectors"] == load["ideal_sectors"] == line["ideal_sectors"] == 4 * requests
    assert line["sectors"] == 32 * requests
    store = next(one for one in transpose_views["naive"]["accesses"] if one["does"] == "store")
    assert (store["passes"], store["ideal"], store["size"]) == (32, 4, 4)
    # A column of the result: a row of it further for each lane.
    lanes = store["addresses"]
    assert {b - a for a, b in zip(lanes, lanes[1:], strict=False)} == {4 * SIDE}


@pytest.mark.parametrize(("variant", "wavefronts"), [("tiled", 32), ("padded", 1), ("swizzled", 1)])
def test_a_column_of_a_tile_takes(
    transpose_views: dict[str, view.View], variant: str, wavefronts: int
) -> None:
    found = transpose_views[variant]
    line = find_line(found, "y[", "= tile[")
    requests = SIDE * SIDE // 32
    assert line["shared_requests"] == line["ideal_wavefronts"] == requests
    assert line["wavefronts"] == wavefronts * requests
    assert line["sectors"] == line["ideal_sectors"] == 4 * requests
    loads = [one for one in found["accesses"] if one["space"] == "shared" and one["does"] == "load"]
    assert loads and all(one["passes"] == wavefronts for one in loads)
    banks = {one // 4 % 32 for one in loads[0]["addresses"]}
    assert len(banks) == 32 // wavefronts


def test_every_instruction_stands_with_its_ptx_and_its_line(
    transpose_views: dict[str, view.View],
) -> None:
    for one in transpose_views.values():
        text = one["ptx"]["text"]
        assert all(0 <= at < len(text) for at in one["sass"]["ptx"])
        for name, at in zip(one["sass"]["text"], one["sass"]["ptx"], strict=True):
            words = name.split()
            opcode = words[1] if words[0].startswith("@") else words[0]
            if opcode.startswith("STG"):
                assert "st.global" in text[at]
            if opcode.startswith("LDS"):
                assert "ld.shared" in text[at]
        # What a warp executes is a line of the source, and what the source did is in the pieces.
        shown = {
            f"{piece['file']}:{piece['from'] + at}"
            for piece in one["source"]
            for at in range(len(piece["text"]))
        }
        files = {piece["file"] for piece in one["source"]}
        assert {line["at"] for line in one["lines"] if line["at"].split(":")[0] in files} <= shown
        executed = sum(sum(line["classes"].values()) for line in one["lines"])
        assert executed == sum(one["ptx"]["run"]) == sum(one["total"]["classes"].values())


def test_live_registers_fit_into_those_that_it_has(transpose_views: dict[str, view.View]) -> None:
    for one in transpose_views.values():
        assert 0 < max(one["sass"]["live"]) <= one["registers"]
        assert max(line.get("live", 0) for line in one["lines"]) == max(one["sass"]["live"])

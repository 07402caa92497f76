"""The binary of PTX that was executed is the one that a GPU's user gets."""

from __future__ import annotations

import pytest
from conftest import exhaustive

from warpshelf.look import binary, elf
from warpshelf.worker import kernel_views

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
    from papergpu import nvrtc

    unit = nvrtc.unit(SOURCE, None, (), request.param)
    made = nvrtc.compiled(unit, ["scale<3>"])
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
    from papergpu import nvrtc

    ptx, symbol = compiled_scale
    made = elf.embedded_ptx(nvrtc.binary(ptx))
    assert kernel_views.same_ptx(made, ptx.splitlines())
    assert not kernel_views.same_ptx(made, ptx.replace("mul.f32", "add.f32").splitlines())
    assert not kernel_views.same_ptx(made, ptx.splitlines()[1:])
    assert not kernel_views.same_ptx([], ptx.splitlines())
    with pytest.raises(ValueError, match="was not made from CUDA"):
        nvrtc.binary(ptx + "\n")
    with pytest.raises(ValueError, match="no kernel nothing"):
        elf.kernel_code(nvrtc.binary(ptx), "nothing")
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

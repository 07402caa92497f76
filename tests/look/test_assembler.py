"""PTX that was saved, as machine code."""

from __future__ import annotations

import pytest
from conftest import exhaustive

from warpshelf.look.ptx import PtxModule, assemble_modules, format_ptx, parse_module

PTX = """\
.version 7.0
.target {target}
.address_size 64

.visible .entry scale(.param .u64 scale_param_0)
{{
    .reg .b64 %rd<4>;
    .reg .f32 %f<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [scale_param_0];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.f32 %f1, [%rd2];
    mul.f32 %f2, %f1, 0f40000000;
    st.global.f32 [%rd2], %f2;
    ret;
}}

.visible .entry nothing()
{{
    ret;
}}
"""
TEXT = PTX.format(target="sm_80")


def test_a_kernel_is_found_by_its_name_or_by_the_mark_of_who_saved_it() -> None:
    assert parse_module("a.ptx", TEXT, "scale").symbol == "scale"
    marked = format_ptx(PtxModule("one, nothing", TEXT, "nothing"))
    assert marked.splitlines()[1:] == TEXT.splitlines()
    assert parse_module("a.ptx", marked, "scale").symbol == "nothing"
    alone = TEXT.partition(".visible .entry nothing")[0]
    assert parse_module("a.ptx", alone, "another_name").symbol == "scale"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT, "has no kernel tiled; there are scale, nothing"),
        ("int main() {}", "is not PTX with a kernel"),
        (TEXT.partition(".visible")[0], "is not PTX with a kernel"),
    ],
)
def test_what_has_no_such_kernel_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_module("a.ptx", text, "tiled")


def test_both_builds_are_assembled_by_one_assembler() -> None:
    twice = TEXT.replace("mul.f32 %f2, %f1, 0f40000000", "add.f32 %f2, %f1, %f1")
    who, (scale, nothing) = assemble_modules(
        [PtxModule("a.ptx", twice, "scale"), PtxModule("b.ptx", TEXT, "nothing")], "sm_90"
    )
    assert who.startswith("ptxas ")
    names = [text.split()[0] for text in scale["sass"]["text"]]
    assert any(name.startswith("LDG") for name in names) and "FADD" in names
    assert (scale["spilled_bytes"], scale["shared_bytes"], scale["loops"]) == (0, 0, [])
    assert len(nothing["sass"]["text"]) < len(names)


def test_what_no_assembler_takes_is_told_with_the_reason() -> None:
    own = PTX.format(target="sm_90a").replace(".version 7.0", ".version 8.0")
    with pytest.raises(ValueError, match=r"no assembler takes it for sm_100 \(ptxas [\d.]+: .*90a"):
        assemble_modules([PtxModule("a.ptx", own, "scale")], "sm_100")


@pytest.mark.parametrize("arch", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
def test_live_registers_are_counted_of_a_kernel_that_has_all_there_are(arch: str) -> None:
    names = [f"%f{number}" for number in range(250)]
    loads = "".join(f"ld.volatile.global.f32 {one}, [%rd1 + {4 * at}];\n"
                    for at, one in enumerate(names))  # fmt: skip
    stores = "".join(f"st.volatile.global.f32 [%rd1 + {4 * at}], {one};\n"
                     for at, one in enumerate(reversed(names)))  # fmt: skip
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry many(.param .u64 p)\n{\n"
        f".reg .f32 %f<250>;\n.reg .b64 %rd<2>;\nld.param.u64 %rd1, [p];\n{loads}{stores}ret;\n}}\n"
    )
    _, (made,) = assemble_modules((PtxModule("many", text, "many"),), arch)
    assert (made["registers"], made["spilled_bytes"]) == (255, 0)
    assert 250 < max(made["sass"]["live"]) <= 255

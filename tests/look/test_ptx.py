"""One kernel out of a module of PTX, and PTX that was saved, as machine code."""

from __future__ import annotations

import pytest
from conftest import exhaustive
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.look import ptx
from warpshelf.look.ptx import PtxModule, assemble_modules, format_ptx, parse_module

# One kernel out of a module of PTX.

MODULE = """\
.version 8.7
.target sm_90a
.extern .func (.param .b32 out) vprintf
(
\t.param .b64 a
);
.func (.param .b32 result) helper(
\t.param .b32 x
)
{
\tret;
}
.visible .entry scale(
\t.param .u64 scale_param_0
)
.maxntid 128
{
\t.reg .b32 %r<3>;
$L__func_begin0:
\t.loc\t1 12 0   // k.py:12:0
\tld.param.u64 \t%rd1, [scale_param_0]; // a comment
\t{ // callseq 0
\tcall.uni (r), helper, (p);
\t}
\t@%p1 bra $L__BB0_2;
\tadd.f32 %f1, %f1, %f1;
$L__BB0_2:
\tret;
$L__func_end0:
}
.entry other()
{
\tret;
}
\t.section\t.debug_abbrev
""".splitlines()


def test_bodies_reach_from_head_to_brace() -> None:
    found = ptx.function_ranges(MODULE)
    assert list(found) == ["helper", "scale", "other"]
    assert MODULE[found["scale"][0] - 1].startswith(".visible .entry scale")
    assert MODULE[found["scale"][-1] - 1] == "}"


def test_a_kernel_is_shown_without_what_is_for_debuggers() -> None:
    shown = ptx.kernel_lines(MODULE, "scale")
    assert [text for _, text in shown] == [
        ".visible .entry scale(",
        ".param .u64 scale_param_0",
        ")",
        "{",
        "ld.param.u64 %rd1, [scale_param_0];",
        "{",
        "call.uni (r), helper, (p);",
        "}",
        "@%p1 bra $L__BB0_2;",
        "add.f32 %f1, %f1, %f1;",
        "$L__BB0_2:",
        "ret;",
        "}",
    ]
    for number, text in shown:
        assert text.split()[0] in MODULE[number - 1]


def test_functions_that_it_reaches_are_shown_with_it() -> None:
    inside = MODULE.index("\tret;") + 1
    assert ptx.enclosing_kernel(MODULE, inside) == "helper"
    assert ptx.kernel_lines(MODULE, "scale", [inside])[0][1].startswith(".func")


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match="line 1 of the PTX is not in a kernel"):
        ptx.enclosing_kernel(MODULE, 1)
    with pytest.raises(KeyError):
        ptx.kernel_lines(MODULE, "scales")


WORDS = st.sampled_from(
    ["%r1", "%r12", "%rd3", "%p0", "%tid.x", "%clock64", "[%rd4+16]", "[%rd4+-8]", "+1", "%", "mov"]
)


@given(st.lists(st.lists(WORDS).map(" ".join)))
def test_registers_by_their_distance_and_back(lines: list[str]) -> None:
    assert ptx.decode_registers(ptx.encode_registers(lines)) == lines


def test_a_register_more_changes_one_line() -> None:
    before = ["add %r4, %r2, %r3;", "mul %r5, %r4, %r4;", "st [%rd1+4], %r5;"]
    after = ["mov %r5, %r3;", "mul %r6, %r5, %r5;", "st [%rd1+4], %r6;"]
    assert ptx.encode_registers(before)[0] == "add %r+4, %r-2, %r+1;"
    assert ptx.encode_registers(after)[1:] == ["mul %r+3, %r-1, %r+0;", "st [%rd+1+4], %r+1;"]


@pytest.mark.parametrize(("a", "both"), [("%rd1", True), ("{%r1, %r2, %r3, %r4}", False)])
def test_a_wgmma_reads_a_from_shared_memory_or_has_it(a: str, both: bool) -> None:
    form = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    line = f"\t@%p1 {form} {{%f1, %f2, %f3, %f4}}, {a}, %rd2, p, 1, 1;"
    assert ptx.reads_both(line) == both
    assert not ptx.reads_both("\tst.shared.v2.b32 {%r1, %r2}, %r3;")


# PTX that was saved, as machine code.

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

"""One kernel out of a module of PTX."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.look import ptx

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

"""PTX is read whole: what real compilers write, and of what is no PTX one line says why.

What `papergpu forms` prints: the table, and the forms of files.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from papergpu.__main__ import main
from papergpu.forms import FORMS
from papergpu.parse import Unreadable, parse
from papergpu.syntax_tree import (
    Address,
    Block,
    Float,
    Instruction,
    Integer,
    Label,
    Name,
    Negated,
    Place,
    Prototype,
    Targets,
    Variable,
    Vector,
)
from ptx_launch import run_python

ROOT = Path(__file__).resolve().parents[2]
TEXT = """\
// What a compiler says of itself.
.version 8.7
.target sm_90a, debug
.address_size 64
.extern .shared .align 16 .b8 tiles[];
.global .align 4 .u32 table[2][2] = {{1, 0x2}, {03, -4}};
.const .b64 where = generic(table)+8;
.extern .func (.param .b32 result) helper (.param .b64 given);
.visible .entry kernel(
  .param .u64 .ptr .global .align 16 a,
  .param .align 64 .b8 map[128]
)
.reqntid 128, 1, 1
.maxclusterrank 8
{
  .reg .pred %p<3>;
  .reg .b32 %r<9>, extra;
  .shared .align 8 .b64 barrier;
  .file 1 "kernel.py"
  .loc 1 3 5
  ld.param.b64 %rd1, [a];  /* a
  comment */ @!%p1 bra.uni $L_end;
  {
    .reg .b32 inner;
    .pragma "nounroll";
    .loc 1 7 2, function_name $L_name, inlined_at 1 3 5
    setp.lt.s32 %p1|%p2, %r1, -5;
    mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%r1, _}, {%r2}, {%r3}, {%r4, %r5};
  }
  add.f32 %r1, %r2, 0f3F800000;
  mov.f64 %rd2, 0d3FF0000000000000;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [tiles+16], [map, {%r1, %r2}], [barrier];
  call.uni (%r1), helper, (%rd1), proto;
  mov.u32 %r3, %tid.x;
  selp.b32 %r1, 1U, 0, !%p1;
  brx.idx %r1, places;
places: .branchtargets $L_one, $L_end;
proto: .callprototype (.param .b32 _) _ (.param .b64 _);
$L_one:
  st.shared.v2.b32 [%r1+-8], {%r2, %r3};
$L_end: ret;
}
.section .debug_info { .b8 1 .b32 .debug_line }
"""


def parse_kernel() -> Block:
    body = parse(TEXT).functions[1].body
    assert body
    return body


def index_instructions() -> dict[str, Instruction]:
    return {one.opcode: one for one in parse_kernel().iterate_instructions()}


def test_the_head_of_a_module() -> None:
    module = parse(TEXT)
    assert (module.version, module.target, module.address_size) == ((8, 7), "sm_90a", 64)
    assert module.files == {1: "kernel.py"}
    tiles, table, where = module.variables
    assert (tiles.space, tiles.type, tiles.align, tiles.count) == ("shared", "b8", 16, 0)
    assert tiles.linkage == ("extern",)
    assert table.count == 4 and table.values == (
        Integer(1), Integer(2), Integer(3), Negated("-", Integer(4))
    )  # fmt: skip
    assert where.values == (Name("table", 8),)


def test_functions_have_their_parameters_and_limits() -> None:
    helper, entry = parse(TEXT).functions
    assert not helper.kernel and helper.body is None and helper.results[0].name == "result"
    assert entry.kernel and entry.linkage == ("visible",)
    assert entry.directives == {"reqntid": (128, 1, 1), "maxclusterrank": (8,)}
    pointer, descriptor = entry.parameters
    assert (pointer.name, pointer.type, pointer.pointer) == ("a", "u64", "global")
    assert (descriptor.align, descriptor.count, descriptor.pointer) == (64, 128, None)


def test_a_body_keeps_its_order_and_its_scopes() -> None:
    kinds = [type(one).__name__ for one in parse_kernel().items]
    assert kinds == ["Variable"] * 4 + ["Instruction"] * 2 + ["Block"] + ["Instruction"] * 7 + [
        "Targets", "Prototype", "Label", "Instruction", "Label", "Instruction"
    ]  # fmt: skip
    registers = [one for one in parse_kernel().items if isinstance(one, Variable)]
    assert [(one.name, one.range) for one in registers] == [
        ("%p", 3), ("%r", 9), ("extra", None), ("barrier", None)
    ]  # fmt: skip
    [inner] = [one for one in parse_kernel().items if isinstance(one, Block)]
    assert inner.pragmas == ["nounroll"] and len(list(inner.iterate_instructions())) == 2
    found = {type(one): one for one in parse_kernel().items}
    assert found[Targets].labels == ("$L_one", "$L_end")
    assert found[Prototype].parameters[0].type == "b64"
    assert found[Label].name == "$L_end"


def test_operands_are_what_they_are() -> None:
    said = index_instructions()
    assert said["ld"].operands == (Name("%rd1"), Address(Name("a")))
    assert said["bra"].guard == "%p1" and said["bra"].unless
    pair, first, minus = said["setp"].operands
    assert pair == Vector((Name("%p1"), Name("%p2")), "|") and first == Name("%r1")
    assert minus == Negated("-", Integer(5))
    assert said["mma"].operands[0] == Vector((Name("%r1"), Name("_")))
    assert said["add"].operands[2] == Float(0x3F800000, 32)
    to, source, barrier = said["cp"].operands
    assert to == Address(Name("tiles", 16)) and barrier == Address(Name("barrier"))
    assert source == Address(Name("map"), (Vector((Name("%r1"), Name("%r2"))),))
    assert said["call"].operands[0] == Vector((Name("%r1"),), "(")
    assert said["selp"].operands[1:] == (
        Integer(1, True), Integer(0), Negated("!", Name("%p1"))
    )  # fmt: skip
    assert said["st"].operands[0] == Address(Name("%r1", -8))
    assert said["cp"].form.endswith("shared::cluster.global.mbarrier::complete_tx::bytes")


def test_each_instruction_knows_its_line_and_its_source() -> None:
    lines = TEXT.splitlines()
    for one in parse_kernel().iterate_instructions():
        assert one.opcode in lines[one.line - 1]
    assert index_instructions()["ld"].place == Place("kernel.py", 3, 5)
    called = Place("kernel.py", 3, 5)
    assert index_instructions()["mma"].place == Place("kernel.py", 7, 2, "$L_name", called)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        (".version 8.7", ".version eight", 2, "the version must be a number such as 8.7"),
        (".target", "target", 3, "expected '.target', found 'target'"),
        (".reqntid", ".reqntids", 13, "expected ';', found '.reqntids'"),
        ("ret;", "ret", 43, "'}' is not an operand"),
        ("[a];", "[a;", 21, "';' found instead of ','"),
        (".loc 1 3 5", ".lock 1 3 5", 20, "'.lock' is not a statement"),
        ("0f3F800000", "0f3F8000", 30, "'0f3F8000;' is not a word"),
        (".reg .b32 inner", ".reg inner", 24, "a variable has no type"),
        ("%tid.x;", "?;", 35, "is not a word of PTX"),
        ("%r2, 0f3F800000", "%r2,, 0f3F800000", 30, "'' is not an operand"),
        ("{%r4, %r5}", "{%r4 %r5}", 28, "'%r4 %r5' is not an operand"),
        ("(%rd1), proto", "(%rd1], proto", 34, "']' found instead of ','"),
        ("mov.u32 %r3", "mov.u32 %r3:", 35, "mov.u32 has malformed operands"),
        ("-5;", "--5;", 27, "'--5' is not an operand"),
        (", inlined_at 1 3 5", ", inlined 1 3 5", 26, "'.loc' is not a statement"),
        ("{ .b8 1 .b32 .debug_line }", "{ .b8 1", 44, "a .section has no end"),
    ],
)
def test_a_fault_is_told_with_its_line(old: str, new: str, line: int, says: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(Unreadable) as caught:
        parse(TEXT.replace(old, new))
    assert (caught.value.line, says in caught.value.what) == (line, True), str(caught.value)


def parse_body(text: str) -> list[object]:
    [made] = parse(f".version 8.7\n.target sm_90a\n.entry k() {{ {text} }}").functions
    assert made.body
    return made.body.items


@pytest.mark.parametrize(
    ("spread", "close"),
    [
        (
            "@ ! %p1 /* no; */ add.s32 %r1\t, // so, too;\n %r2,%r3 ;",
            "@!%p1 add.s32 %r1, %r2, %r3;",
        ),
        ("st.b32 [ %rd1 + -8 ] , { %r2 ,/**/%r3 };", "st.b32 [%rd1+-8], {%r2, %r3};"),
        ("cp.x [ map , { %r1 , %r2 } ], [ bar ];", "cp.x [map, {%r1, %r2}], [bar];"),
        ("shfl.x %r1 | %p1, ! %p2, - 5;", "shfl.x %r1|%p1, !%p2, -5;"),
        ("ret\n ;\n;; L : ret;", "ret; L: ret;"),
    ],
)
def test_spaces_and_comments_say_nothing(spread: str, close: str) -> None:
    """They may stand between any two words."""
    first, second = ([replace(one, line=0) for one in parse_body(text)] for text in (spread, close))
    assert first == second and len(first) == close.count(";") + close.count(":")


@given(st.text())
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    for tried in (text, TEXT + text, TEXT.replace("ret;", text)):
        try:
            parse(tried)
        except Unreadable as error:
            assert str(error).startswith(f"{error.line}: ") and "\n" not in str(error)


@given(st.data())
def test_a_damaged_module_is_read_or_refused(data: st.DataObject) -> None:
    words = TEXT.split(" ")
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(words) - 1))
        change = data.draw(st.sampled_from(["drop", "twice", "swap", "open", "close"]))
        if change == "drop":
            del words[at]
        elif change == "twice":
            words.insert(at, words[at])
        elif change == "swap":
            words[at], words[-at] = words[-at], words[at]
        else:
            words.insert(at, "{" if change == "open" else "]")
    try:
        parse(" ".join(words))
    except Unreadable as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("nested", ["{" * 5000, "ret " + "[" * 5000, "ret " + "-" * 5000])
def test_depth_exhausts_nothing(nested: str) -> None:
    with pytest.raises(Unreadable):
        parse(TEXT.replace("ret;", nested))


# What real compilers write.

COMPILED = """
import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def product(a, b, c, N, K, B: tl.constexpr):
    row = tl.program_id(0) * B + tl.arange(0, B)
    column, depth = tl.arange(0, B), tl.arange(0, 32)
    total = tl.zeros((B, B), tl.float32)
    for k in range(0, K, 32):
        left = tl.load(a + row[:, None] * K + k + depth[None, :])
        right = tl.load(b + (k + depth[:, None]) * N + column[None, :], mask=column[None, :] < N)
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * N + column[None, :], tl.exp(total).to(tl.bfloat16))

kinds = {"a": "*fp16", "b": "*fp16", "c": "*bf16", "N": "i32", "K": "i32", "B": "constexpr"}
for sm in (80, 90, 100):
    made = triton.compile(ASTSource(product, kinds, {"B": 64}), target=GPUTarget("cuda", sm, 32))
    open(f"{sys.argv[1]}/product_{sm}.ptx", "w").write(made.asm["ptx"])
"""


def compile_ladder(nvrtc: ModuleType, source: bytes, arch: str) -> bytes:
    """What NVRTC makes of the second rung of a ladder."""
    options = [f"--gpu-architecture=compute_{arch.removeprefix('sm_')}".encode(), b"-lineinfo"]
    _, program = nvrtc.nvrtcCreateProgram(source, b"ladder.cu", 0, None, None)
    nvrtc.nvrtcAddNameExpression(program, b"sgemm_coalesced<32>")
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    text = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
    nvrtc.nvrtcGetPTX(program, text)
    return text.rstrip(b"\0 ")


@pytest.fixture(scope="module")
def compiled_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what Triton makes of a product, and NVRTC of our ladder, for three targets."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    pytest.importorskip("triton")
    folder = tmp_path_factory.mktemp("ptx")
    script = folder / "product.py"
    script.write_text(COMPILED)
    done = run_python(str(script), str(folder))
    assert done.returncode == 0, done.stderr
    source = (ROOT / "snippets" / "sgemm" / "sgemm.cu").read_bytes()
    for arch in ("sm_80", "sm_90a", "sm_100a"):
        (folder / f"ladder_{arch}.ptx").write_bytes(compile_ladder(nvrtc, source, arch))
    return folder


def test_what_compilers_write_is_read(compiled_folder: Path, capsys: pytest.CaptureFixture) -> None:
    paths = sorted(compiled_folder.glob("*.ptx"))
    assert len(paths) == 6
    for path in paths:
        module = parse(path.read_text())
        found = list(module.iterate_instructions())
        if "product" in path.name:
            assert len(found) > 200 and all(one.place for one in found[10:])
            assert [one.name for one in module.functions if one.kernel] == ["product"]
    assert main(["forms", *map(str, paths)]) == 0
    assert "cvt.rn.bf16x2.f32" in capsys.readouterr().out


def test_files_may_be_named_behind_what_refers_to_them() -> None:
    head = ".version 8.7\n.target sm_90a\n.address_size 64\n"
    module = parse(f'{head}.entry k() {{ .loc 3 5 2\n ret; }}\n.file 3 "late.py"\n')
    assert next(module.iterate_instructions()).place == Place("late.py", 5, 2)


# The listing.

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def print_forms(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["forms", *arguments]) == 0
    return capsys.readouterr().out


def test_the_table_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    legend, *chapters = print_forms(capsys).split("\n\n")
    assert "opcode, least version of PTX, least target, types, and modifiers" in legend
    titles = [chapter.splitlines()[0] for chapter in chapters]
    assert titles == list(dict.fromkeys(form.chapter for form in FORMS))
    lines = [line for chapter in chapters for line in chapter.splitlines()[1:]]
    assert len(lines) == len(FORMS)
    for line, form in zip(lines, FORMS, strict=True):
        opcode, ptx, version, target, *rest = line.split()
        assert opcode == "|".join(form.slots[0][1])
        assert (ptx, version) == ("PTX", f"{form.version[0]}.{form.version[1]}")
        assert target == f"sm_{form.target}"
        assert rest[: len(form.operands)] == list(form.operands)
        assert len(rest) == len(form.operands) + len(form.slots) - 1
    fused = next(line for line, form in zip(lines, FORMS, strict=True) if form.name == "fma.float")
    assert fused.split() == ["fma", "PTX", "2.0", "sm_50", "t", "t", "t", "t",
                             "r=rn|rz|rm|rp", "ftz?", "sat?", "t=f32"]  # fmt: skip


def test_programs_read_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(print_forms(capsys, "--json"))
    for row, form in zip(rows, FORMS, strict=True):
        assert tuple(row["opcodes"]) == form.slots[0][1]
        modifiers = [(one["name"], tuple(one["choices"]), one["optional"])
                     for one in row["modifiers"]]  # fmt: skip
        assert tuple(modifiers) == form.slots[1:]
        assert (row["name"], row["chapter"]) == (form.name, form.chapter)
        assert row["target"] == f"sm_{form.target}"
        assert tuple(map(int, row["version"].split("."))) == form.version
        assert row["operands"] == (None if form.operands == ("-",) else list(form.operands))


def write_ptx_file(folder: Path, body: str) -> str:
    path = folder / "kernel.ptx"
    path.write_text(f"{HEAD}.entry k() {{ .reg .b32 %r<3>; {body} ret; }}\n")
    return str(path)


def test_the_forms_of_a_file_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_ptx_file(tmp_path, "add.u32 %r0, %r1, %r2; add.u32 %r0, %r0, %r2;")
    add, ret, total = print_forms(capsys, path).splitlines()
    assert add.split(None, 2) == ["2", "add.u32", "Integer arithmetic instructions"]
    assert ret.split(None, 2) == ["1", "ret", "Control flow instructions"]
    assert total == f"{path}: 3 instructions in 2 forms, 0 not in the table"
    assert json.loads(print_forms(capsys, "--json", path)) == {path: [
        {"form": "add.u32", "count": 2, "chapter": "Integer arithmetic instructions"},
        {"form": "ret", "count": 1, "chapter": "Control flow instructions"},
    ]}  # fmt: skip


def test_a_form_that_is_not_executed_is_said_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_ptx_file(tmp_path, "frob.b32 %r0, %r1;")
    assert main(["forms", path]) == 1
    out = capsys.readouterr().out
    assert "frob.b32" in out and "not in the table of forms" in out
    assert out.endswith("2 instructions in 2 forms, 1 not in the table\n")
    assert main(["forms", "--json", path]) == 1
    assert json.loads(capsys.readouterr().out)[path][0] == {
        "form": "frob.b32", "count": 1, "chapter": None
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "said"),
    [(None, r": cannot be read \(No such file or directory\); name a PTX file"),
     (b"\x7fELF\xff\xfe", ": is not text; name a PTX file, not a cubin"),
     (b"int main() {}", r":1: .*; name a PTX file as a compiler writes it")],
)  # fmt: skip
def test_what_is_no_ptx_is_one_line_and_the_next_file_is_read(
    data: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.ptx"
    if data is not None:
        path.write_bytes(data)
    right = write_ptx_file(tmp_path, "")
    assert main(["forms", str(path), right]) == 1
    shown = capsys.readouterr()
    assert f"{right}: 1 instructions in 1 forms" in shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith(str(path))
    assert re.fullmatch(said, line.removeprefix(str(path)))

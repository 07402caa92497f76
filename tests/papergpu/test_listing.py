"""What `python -m papergpu forms` prints: the table, and the forms of files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from papergpu.__main__ import main
from papergpu.forms import FORMS

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["forms", *arguments]) == 0
    return capsys.readouterr().out


def test_the_table_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    legend, *chapters = printed(capsys).split("\n\n")
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
    rows = json.loads(printed(capsys, "--json"))
    for row, form in zip(rows, FORMS, strict=True):
        assert tuple(row["opcodes"]) == form.slots[0][1]
        modifiers = [(one["name"], tuple(one["choices"]), one["optional"])
                     for one in row["modifiers"]]  # fmt: skip
        assert tuple(modifiers) == form.slots[1:]
        assert (row["name"], row["chapter"]) == (form.name, form.chapter)
        assert row["target"] == f"sm_{form.target}"
        assert tuple(map(int, row["version"].split("."))) == form.version
        assert row["operands"] == (None if form.operands == ("-",) else list(form.operands))


def file(folder: Path, body: str) -> str:
    path = folder / "kernel.ptx"
    path.write_text(f"{HEAD}.entry k() {{ .reg .b32 %r<3>; {body} ret; }}\n")
    return str(path)


def test_the_forms_of_a_file_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path, "add.u32 %r0, %r1, %r2; add.u32 %r0, %r0, %r2;")
    add, ret, total = printed(capsys, path).splitlines()
    assert add.split(None, 2) == ["2", "add.u32", "Integer arithmetic instructions"]
    assert ret.split(None, 2) == ["1", "ret", "Control flow instructions"]
    assert total == f"{path}: 3 instructions in 2 forms, 0 not in the table"
    assert json.loads(printed(capsys, "--json", path)) == {path: [
        {"form": "add.u32", "count": 2, "chapter": "Integer arithmetic instructions"},
        {"form": "ret", "count": 1, "chapter": "Control flow instructions"},
    ]}  # fmt: skip


def test_a_form_that_is_not_executed_is_said_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file(tmp_path, "frob.b32 %r0, %r1;")
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
    [(None, r": cannot be read \(No such file or directory\); name a file of PTX"),
     (b"\x7fELF\xff\xfe", ": is no text; name a file of PTX, not a cubin"),
     (b"int main() {}", r":1: .*; give PTX as a compiler writes it")],
)  # fmt: skip
def test_what_is_no_ptx_is_one_line_and_the_next_file_is_read(
    data: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "other.ptx"
    if data is not None:
        path.write_bytes(data)
    right = file(tmp_path, "")
    assert main(["forms", str(path), right]) == 1
    shown = capsys.readouterr()
    assert f"{right}: 1 instructions in 1 forms" in shown.out
    (line,) = shown.err.splitlines()
    assert line.startswith(str(path))
    assert re.fullmatch(said, line.removeprefix(str(path)))

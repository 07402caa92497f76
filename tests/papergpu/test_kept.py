"""Decoded kernels kept on disk: read back as they were, and decoded anew where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from executing import kernel_of, launch
from papergpu import kept
from papergpu.errors import Unsupported

BODY = """
  .loc 1 7 3
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p0, %r0, 20;
  .loc 1 9 1
  @%p0 add.u32 %r0, %r0, 5;
  mul.wide.u32 %rd1, %r0, 0;
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd1, %rd0, %rd1;
  ld.global.u32 %r2, [table+4];
  add.u32 %r0, %r0, %r2;
  st.global.u32 [%rd1], %r0;
  ret;
"""
PTX = '.file 1 "/somewhere/made.py"\n.global .align 4 .b32 table[2] = {3, 4};\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "folder", lambda: tmp_path)
    return tmp_path


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def runs(kernel: kept.Kernel) -> list[int]:
    out = np.zeros(32, np.uint32)
    launch(kernel, out)
    return out.tolist()


WANTED = [at + (9 if at < 20 else 4) for at in range(32)]


def test_a_kept_kernel_is_the_one_that_was_decoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ptx = kernel_of(BODY, module=PTX)
    first = kept.kernel(ptx, "k")
    assert len(files(folder)) == 1

    def never(*_: object) -> Sequence[object]:
        raise AssertionError("it is decoded again")

    monkeypatch.setattr(kept, "decode", never)
    second = kept.kernel(ptx, "k")
    for one in fields(first.program):
        before, after = (getattr(kernel.program, one.name) for kernel in (first, second))
        assert type(before) is type(after), one.name
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype and before.tobytes() == after.tobytes(), one.name
        else:
            assert before == after, one.name
    assert runs(first) == runs(second) == WANTED
    assert first.memory is not second.memory
    assert {second.program.where(at) for at in range(5)} >= {"made.py:7", "made.py:9"}


@pytest.mark.parametrize("spoil", ["cut", "altered", "emptied", "another"])
def test_a_broken_file_is_decoded_anew(folder: Path, spoil: str) -> None:
    ptx = kernel_of(BODY, module=PTX)
    kept.kernel(ptx, "k")
    (path,) = files(folder)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "altered": whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:],
            "emptied": b"",
            "another": b"PK" + whole[2:],
        }[spoil]
    )
    assert runs(kept.kernel(ptx, "k")) == WANTED
    assert path.read_bytes() == whole and len(files(folder)) == 1


def test_what_decides_a_program_is_in_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.kernel(kernel_of(BODY, module=PTX), "k")
    kept.kernel(kernel_of(BODY.replace("5;", "6;"), module=PTX), "k")
    monkeypatch.setattr(kept, "sources", lambda: b"other")
    kept.kernel(kernel_of(BODY, module=PTX), "k")
    assert len(files(folder)) == 3


def test_nothing_is_kept_of_what_is_refused_or_cannot_be_written(folder: Path) -> None:
    with pytest.raises(Unsupported):
        kept.kernel(kernel_of("fence.proxy.unheard;"), "k")
    assert not files(folder)
    (folder / "decoded").write_text("a file, and no folder")
    assert runs(kept.kernel(kernel_of(BODY, module=PTX), "k")) == WANTED

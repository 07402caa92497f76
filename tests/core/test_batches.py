"""Files that change together or not at all, also where a disk is full or a writer is stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warpshelf.core.files import Batch


def read_files(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*") if p.is_file()}


@pytest.fixture
def batch_root(tmp_path: Path) -> Path:
    for name, text in {"old": "1", "gone": "2", "same": "3"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def make_batch(root: Path) -> Batch:
    made = Batch()
    made.write(root / "old", "new")
    made.write(root / "a" / "b" / "fresh", "µ")
    made.write(root / "same", "3")
    made.remove(root / "gone")
    made.remove(root / "never")
    return made


def test_all_changes_are_made(batch_root: Path) -> None:
    assert make_batch(batch_root).commit() == [batch_root / "old", batch_root / "a" / "b" / "fresh"]
    assert read_files(batch_root) == {"old": "new", "a/b/fresh": "µ", "same": "3"}
    assert make_batch(batch_root).commit() == []


def break_call(monkeypatch: pytest.MonkeyPatch, name: str, call: int, error: BaseException) -> None:
    real, calls = getattr(os, name), [0]

    def call_or_break(*words: object, **more: object) -> object:
        calls[0] += 1
        if calls[0] == call:
            raise error
        return real(*words, **more)

    monkeypatch.setattr(os, name, call_or_break)


def test_putting_back_needs_no_room_and_keeps_what_a_file_is(
    batch_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (batch_root / "old").chmod(0o600)
    made = make_batch(batch_root)
    made.write(batch_root / "last", "4")
    calls, real = [0], os.replace

    def fill_disk(*words: object, **more: object) -> object:
        raise OSError(28, "No space left on device")

    def replace_or_fill_disk(old: Path, new: Path) -> None:
        calls[0] += 1
        if calls[0] == 2:
            monkeypatch.setattr(os, "fsync", fill_disk)
            fill_disk()
        real(old, new)

    monkeypatch.setattr(os, "replace", replace_or_fill_disk)
    before = read_files(batch_root)
    with pytest.raises(OSError, match="No space"):
        made.commit()
    assert read_files(batch_root) == before
    assert (batch_root / "old").stat().st_mode & 0o777 == 0o600


def test_where_a_disk_has_no_links_a_copy_is_put_back(
    batch_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_call(monkeypatch, "link", 1, OSError(95, "Operation not supported"))
    break_call(monkeypatch, "replace", 2, OSError(5, "Input/output error"))
    before = read_files(batch_root)
    with pytest.raises(OSError, match="Input/output"):
        make_batch(batch_root).commit()
    assert read_files(batch_root) == before


def test_a_file_that_cannot_be_read_stays_where_another_fails(
    batch_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.read_bytes

    def refuse_old_file(path: Path) -> bytes:
        if path.name == "old":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", refuse_old_file)
    break_call(monkeypatch, "replace", 2, OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        make_batch(batch_root).commit()
    assert read_files(batch_root)["old"] == "1"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize(
    ("name", "call"),
    [("fsync", 1), ("fsync", 2), ("chmod", 2), ("replace", 1), ("replace", 2),
     ("mkdir", 1), ("mkdir", 2), ("unlink", 1)],
)  # fmt: skip
def test_where_one_change_fails_none_is_made(
    batch_root: Path, monkeypatch: pytest.MonkeyPatch, name: str, call: int, error: BaseException
) -> None:
    before, folders = read_files(batch_root), sorted(batch_root.iterdir())
    break_call(monkeypatch, name, call, error)
    with pytest.raises(type(error)):
        make_batch(batch_root).commit()
    assert read_files(batch_root) == before
    assert sorted(batch_root.iterdir()) == folders

"""Files: read, written, and changed together or not at all."""

from __future__ import annotations

import json
import lzma
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core import project
from warpshelf.core.files import (
    DEEPEST,
    LARGEST_INTEGER,
    Batch,
    dump_json,
    has_text,
    json_flaw,
    pack_json,
    pretty_json,
    read_sections,
    replace_section,
    split_mapping,
    unpack_json,
    write_atomically,
)

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_writing_says_whether_the_file_changed(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "cpu.json"
    assert write_atomically(path, "one\n") is True
    assert write_atomically(path, "one\n") is False
    assert write_atomically(path, "two\n") is True
    assert path.read_bytes() == b"two\n"
    assert names_in(path.parent) == ["cpu.json"]


def test_what_is_already_there_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    write_atomically(path, "µ\n")
    os.utime(path, (1, 1))
    write_atomically(path, "µ\n")
    assert path.stat().st_mtime == 1


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX's")
def test_others_may_read_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    write_atomically(path, "one\n")
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("step", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
def test_a_writer_that_dies_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    path = tmp_path / "cpu.json"
    write_atomically(path, "old and whole\n")

    def die_writing(*args: object) -> None:
        # What is under way stands beside the old file, on the same file system.
        assert len(names_in(tmp_path)) == 2
        assert path.read_text() == "old and whole\n"
        raise error

    monkeypatch.setattr(os, step, die_writing)
    with pytest.raises(type(error)):
        write_atomically(path, "new\n" * 1000)
    monkeypatch.undo()
    assert path.read_text() == "old and whole\n"
    assert names_in(tmp_path) == ["cpu.json"]


def test_the_new_text_is_whole_before_it_takes_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = os.replace, []

    def note_replacement(source: str, target: Path) -> None:
        seen.append((Path(source).read_text(), Path(source).parent, Path(source).name[0]))
        real(source, target)

    monkeypatch.setattr(os, "replace", note_replacement)
    write_atomically(tmp_path / "cpu.json", "new\n")
    assert seen == [("new\n", tmp_path, ".")]


def test_text_that_has_no_bytes_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_atomically(tmp_path / "results" / "cpu.json", "\ud800")
    assert names_in(tmp_path) == []


def test_json_has_sorted_keys_one_item_a_line_and_letters_as_they_are() -> None:
    assert dump_json({"b": [1, 2.5], "a": "µ"}) == '{\n "a": "µ",\n "b": [\n  1,\n  2.5\n ]\n}\n'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_has_no_nan(value: float) -> None:
    with pytest.raises(ValueError):
        dump_json({"a": value})


@given(PLAIN)
def test_what_has_no_flaw_comes_back_from_json(value: object) -> None:
    assert json_flaw(value) is None
    text = dump_json(value)
    assert json.loads(text) == value
    assert dump_json(json.loads(text)) == text


def nest_item(levels: int, item: object = 0) -> object:
    for level in range(levels):
        item = [item] if level % 2 else {"a": item}
    return item


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [1, {"b": math.nan}]}, "holds nan"),
        ((1, math.inf), "holds inf"),
        ({"a": "\udfff"}, "surrogate"),
        ({"\ud800": 1}, "surrogate"),
        ({1: 2}, "not a string"),
        ({None: 2}, "not a string"),
        ([LARGEST_INTEGER], "out of range"),
        ([-LARGEST_INTEGER], "out of range"),
        ([{1, 2}], "holds a set"),
        ([b""], "holds a bytes"),
        (nest_item(DEEPEST + 1), "levels deep"),
        (nest_item(100_000), "levels deep"),
    ],
)
def test_a_flaw_is_named(value: object, says: str) -> None:
    assert says in (json_flaw(value) or "nothing")


@pytest.mark.parametrize("wrong", [LARGEST_INTEGER, -LARGEST_INTEGER, "\udfff", math.nan, b""])
@given(items=st.lists(st.integers(-9, 9) | st.none()) | st.lists(st.text()), data=st.data())
def test_a_flaw_is_found_wherever_it_stands_in_a_list(
    wrong: object, items: list[object], data: st.DataObject
) -> None:
    assert json_flaw(items) is None
    at = data.draw(st.integers(0, len(items)))
    assert json_flaw([*items[:at], wrong, *items[at:]]) is not None


def test_halves_of_a_pair_are_flaws_side_by_side() -> None:
    assert "surrogate" in (json_flaw(["\ud83d", "\ude00"]) or "nothing")


def test_the_limits_themselves_are_no_flaw() -> None:
    assert json_flaw(nest_item(DEEPEST)) is None
    assert json_flaw([LARGEST_INTEGER - 1, 1 - LARGEST_INTEGER, True, ("a", None)]) is None


def test_what_holds_itself_is_a_flaw() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert json_flaw(loop) is not None


def test_only_what_must_last_waits_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert write_atomically(tmp_path / "fragment.md", "one\n", durable=False) is True
    assert synced == [] and (tmp_path / "fragment.md").read_text() == "one\n"
    assert write_atomically(tmp_path / "cpu.json", "one\n") is True
    assert len(synced) == 1


def test_a_line_holds_what_belongs_together() -> None:
    value = {
        "name": "softmax",
        "few": ["a", "b"],
        "many": [f"row {at}" for at in range(30)],
        "cases": [{"m": 1, "results": [{"x": 1}, {"x": [1, 2]}]}, {"m": 2, "results": []}],
        "cells": [[1, 2], [3, 4]],
        "nothing": {},
    }
    text = pretty_json(value)
    assert json.loads(text) == value and list(json.loads(text)) == list(value)
    assert text.splitlines()[0] == '{"name":"softmax",'
    assert '  {"m":1,"results":[\n   {"x":1},\n   {"x":[1,2]}]},\n  {"m":2,' in text
    assert ' "cells":[\n  [1,2],\n  [3,4]],\n "nothing":{}}\n' in text
    assert text.count("\n") == 1 + 1 + 31 + 5 + 3 + 1
    assert pretty_json({}) == "{}\n"
    assert pretty_json({"a": {"b": {"c": [{}]}}}) == '{"a":{"b":{"c":[\n  {}]}}}\n'


def test_what_is_packed_is_the_same_bytes_and_comes_back(tmp_path: Path) -> None:
    value = {"views": ["ä" * 1000, 1.5, None]}
    assert pack_json(value) == pack_json(json.loads(json.dumps(value)))
    assert unpack_json(pack_json(value)) == value
    path = tmp_path / "cpu.xz"
    assert read_sections(path) == {}
    path.write_bytes(replace_section(path, "b", [1]) or b"")
    path.write_bytes(replace_section(path, "a", [2]) or b"")
    assert list(read_sections(path).items()) == [("a", [2]), ("b", [1])]
    path.write_bytes(replace_section(path, "b", None) or b"")
    assert read_sections(path) == {"a": [2]} and replace_section(path, "a", {}) is None


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: b"no archive at all", "is not an xz file"),
        (lambda: pack_json([1])[:-1], "is cut off"),
        (lambda: pack_json([1]) + b"more", "is cut off"),
        (lambda: lzma.compress(bytes(65 * 2**20), preset=0), "holds more than"),
        (lambda: lzma.compress(b"[" * 100_000), "nests too deep"),
        (lambda: lzma.compress(b"[1, "), "Expecting value"),
    ],
    ids=["none", "cut", "more", "large", "deep", "open"],
)
def test_what_was_not_packed_here_is_refused(make: Callable[[], bytes], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        unpack_json(make())


NAMES = st.from_regex(r"[a-z_][a-z0-9_-]{2,8}", fullmatch=True).filter(
    lambda name: yaml.safe_load(name) == name  # no number, and not `null`
)


@given(st.dictionaries(NAMES, PLAIN, max_size=4), st.sampled_from(["", "# one\n\n", "\n"]))
def test_each_key_of_a_mapping_has_its_value_on_its_lines(
    value: dict[str, object], above: str
) -> None:
    parts = [above + yaml.safe_dump({key: one}, allow_unicode=True) for key, one in value.items()]
    text = "".join(parts)
    found = list(split_mapping(text.encode("utf-8", "surrogatepass")))
    assert [name for name, *_ in found] == list(value)
    lines = text.split("\n")
    for name, line, part in found:
        assert lines[line - 1].startswith(f"{name}:")
        assert yaml.safe_load(part) == yaml.safe_load(text)[name]
        assert yaml.compose(part).start_mark.line >= line - 1


@given(st.binary(max_size=80) | st.text("a:\n -#\r\t", max_size=40).map(str.encode))
def test_no_text_of_a_mapping_is_lost(data: bytes) -> None:
    found = list(split_mapping(data))
    assert b"".join(part.lstrip(b"\n") for *_, part in found).count(b"\x00") == data.count(b"\x00")
    assert bool(found) == has_text(data)


# Files that change together or not at all, also where a disk is full or a writer is stopped.


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


@pytest.fixture
def git_checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_what_git_prints_is_handed_on(git_checkout: Path) -> None:
    assert project.git_line(git_checkout, "rev-parse", "--is-inside-work-tree") == "true"
    number = project.run_git(git_checkout, "hash-object", "-w", "--stdin", given=b"one\n")
    assert number is not None
    assert project.run_git(git_checkout, "cat-file", "blob", number.decode().strip()) == b"one\n"


def test_what_it_cannot_say_is_nothing(
    git_checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.git_line(git_checkout, "rev-parse", "HEAD") is None  # there is no commit yet
    assert project.git_line(tmp_path / "nowhere", "status") is None

    def raise_timeout(words: list[str], **more: object) -> None:
        raise subprocess.TimeoutExpired(words, 1)

    monkeypatch.setattr(subprocess, "run", raise_timeout)
    assert project.git_line(git_checkout, "status") is None
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert project.git_line(git_checkout, "status") is None  # git is not there

"""`--fix` changes what it says and not a byte besides."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest
from conftest import ROOT, Trial
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import write_library

from warpshelf.core.findings import Finding
from warpshelf.edit import autofix
from warpshelf.edit.autofix import fix_list, fix_lists
from warpshelf.readings.crosscheck import check_shelf
from warpshelf.readings.entries import EntryReader
from warpshelf.readings.model import KEYS, Shelf

PATH = "docs/kernels/softmax.yml"
TEXT = """\
# Softmax: 流水线, 𝔸, and what surrounds it.

- id: online-softmax   # the first one
  title: "Online normalizer calculation for softmax"   # as in the paper
  url: https://arxiv.org/abs/1805.02867
  kind: paper
  authors: [Maxim Milakov,
            Natalia Gimelshein]

  # The year of the preprint.
  year: 2018
  why: >-
    Shows how the maximum and the sum are found in one pass,
    which reads the row once less.
  tags: [
    softmax, # comment within
    bandwidth,
  ]
  also:
    # The authors' own code.
    - {what: code, url: 'https://github.com/NVIDIA/online-softmax'}
    - what: recording
      url: "https://www.youtube.com/watch?v=Cp7g1Ll4v0M"
# between the entries

- id: roofline
  title: 屋顶线模型
  title_en: The roofline model
  url: https://example.org/roofline?q=1
  kind: post
  why: |
    Tells which of two limits a kernel meets first.
  lang: zh
  added: "2026-11-21"
- {id: short, title: Short, url: https://example.org/short, kind: post, why: Is short.}
"""


def mend_text(text: str, newline: str = "\n") -> tuple[str, list[str]]:
    """The text after its mends, in the line ends given, and what was said of each."""
    data = text.replace("\n", newline).encode()
    after, done, left = fix_list(PATH, data)
    assert left is None
    assert fix_list(PATH, after) == (after, [], None)
    assert after.decode().count("\n") == after.decode().count(newline)
    return after.decode().replace(newline, "\n"), [str(one) for one in done]


def list_changed_lines(before: str, after: str) -> list[str]:
    """The lines that differ, as `-old` and `+new`."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm=""))
    return [line for line in lines[2:] if line[0] in "-+"]


ONE_LINE = {  # what is written instead, on the line that this stands on, and what is said
    "url: https://arxiv.org/abs/1805.02867": (
        "url: http://www.arxiv.org/pdf/1805.02867v2.pdf?utm_source=x",
        ":5: mended url: https://arxiv.org/abs/1805.02867, which was http://www.arxiv.org/pdf/",
    ),
    "'https://github.com/NVIDIA/online-softmax'": (
        "'https://www.github.com/NVIDIA/online-softmax.git'",
        ":21: mended also 1 url: https://github.com/NVIDIA/online-softmax, which was",
    ),
    '"https://www.youtube.com/watch?v=Cp7g1Ll4v0M"': (
        '"https://youtu.be/Cp7g1Ll4v0M"',
        ":23: mended also 2 url: https://www.youtube.com/watch?v=Cp7g1Ll4v0M, which was",
    ),
    "https://example.org/roofline?q=1": (
        "https://example.org/roofline?fbclid=3&q=1",
        ":29: mended url: https://example.org/roofline?q=1, which was",
    ),
    "https://example.org/short,": (
        "https://EXAMPLE.org/short,",
        ":35: mended url: https://example.org/short, which was https://EXAMPLE.org/short",
    ),
    '"Online normalizer calculation for softmax"': (
        '"Online normalizer calculation for softmax  "',
        ":4: mended title: without the spaces at its ends",
    ),
    "lang: zh": ("lang: zh_CN", ":33: mended lang: zh, which was zh_CN"),
    "\n  kind: post\n": ("\n  kind: post \t\n", ":30: mended spaces at the end of the line"),
    "-21\"": ("-21\"  # a comment   ", ""),
    "year: 2018": ("year: '2018'", ":11: mended year: 2018, without quotes"),
    "    bandwidth,\n": ("    bandwidth,  \n", ":17: mended spaces at the end of the line"),
    "in one pass,\n": ("in one pass, \n", ":13: mended spaces at the end of the line"),
    "\n\n  # The year": ("\n   \n  # The year", ":9: mended spaces at the end of the line"),
}  # fmt: skip


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("good", ONE_LINE)
def test_one_mend_changes_one_line(good: str, newline: str) -> None:
    bad, said = ONE_LINE[good]
    assert TEXT.count(good) == 1
    if good == '-21"':
        bad, good, said = bad, good + "  # a comment", ":34: mended spaces at the end of the line"
        wanted = TEXT.replace('-21"', good)
    else:
        wanted = TEXT
    before = wanted.replace(good, bad)
    after, done = mend_text(before, newline)
    assert after == wanted
    assert len(list_changed_lines(before, after)) == 2
    assert len(done) == 1 and done[0].startswith(PATH + said)


def test_quotes_are_put_around_what_yaml_reads_otherwise() -> None:
    text = """\
- id: a
  title: 1984
  url: https://x.org/a
  kind: book
  why: yes
  lang: no
  tags: [on, x]
  seed: [000, 12]
  added: 2026-11-21
"""
    after, done = mend_text(text)
    assert after == (
        text.replace("1984", '"1984"').replace("yes", '"yes"').replace(": no", ': "no"')
        .replace("[on", '["on"').replace("000, 12", '"000", "12"')
        .replace("2026-11-21", '"2026-11-21"')
    )  # fmt: skip
    assert done[0] == f"{PATH}:2: mended title: 1984, in quotes" and len(done) == 7


def test_of_a_key_written_twice_the_first_is_mended() -> None:
    data = b"- id: a\n  lang: cn\n  lang: fr\n"
    assert fix_list(PATH, data)[0] == data.replace(b"cn", b"zh")


LEFT = {
    "keys in another order": (
        "- why: >-\n    One\n    # no comment\n\n    two.\n  # Of the address.\n"
        "  url: https://x.org/a # one\n  also: []\n  title: A\n  id: a # two\n  kind: post"
    ),
    "an entry in braces": "- {title: A, id: a, url: https://x.org, kind: post, why: w}\n",
    "an unknown key": "- title: A\n  id: a\n  zzz: 1\n",
    "a key twice": "- title: A\n  id: a\n  id: b\n",
    "an address over lines": "- id: a\n  url: >-\n    http://arxiv.org/abs/1805.02867\n",
    "an unknown language": "- id: a\n  lang: klingon\n",
    "http elsewhere": "- id: a\n  url: http://example.org/a\n",
    "a short link": "- id: a\n  url: https://bit.ly/x\n",
    "no address": "- id: a\n  url: arxiv.org/pdf/1805.02867\n",
    "no value": "- id: a\n  lang:\n",
    "a broken file": "- id: [\n  lang: cn\n",
    "two documents": "- id: a\n  lang: cn\n---\n- id: b\n",
    "an anchor": "- id: &a b\n  lang: cn\n",
    "a mapping": "lang: cn\n",
    "nothing": "",
    "another line end": "- id: a\x85  url: https://x.org/a\x85  title: A\x85",
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_not_surely_right_is_left_alone(name: str) -> None:
    data = LEFT[name].encode()
    assert fix_list(PATH, data) == (data, [], None)


def test_bytes_that_are_no_text_are_left_alone() -> None:
    for data in (b"- id: caf\xe9\n  lang: cn\n", "- lang: cn\n".encode("utf-16")):
        assert fix_list(PATH, data) == (data, [], None)


def test_a_byte_order_mark_stays() -> None:
    after, done, _ = fix_list(PATH, b"\xef\xbb\xbf- id: a\n  lang: cn\n")
    assert after == b"\xef\xbb\xbf- id: a\n  lang: zh\n" and len(done) == 1


def test_a_file_that_would_read_otherwise_is_left_alone(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = trial.add_page("a.yml", TEXT.replace("lang: zh", "lang: cn"))
    bad = trial.add_page("b.yml", TEXT.replace("lang: zh", "lang: jp"))
    whole = autofix.value_edits

    def edit_too_much(path: str, text: str, reader: EntryReader) -> list[autofix.TextEdit]:
        found = list(whole(path, text, reader))
        if path == "docs/b.yml":
            found.append(autofix.TextEdit(len(text) - 60, len(text) - 50, "", found[0].mend))
        return found

    monkeypatch.setattr(autofix, "value_edits", edit_too_much)
    before = bad.read_bytes()
    done, left = fix_lists(trial.root)
    assert [str(one) for one in done] == ["docs/a.yml:33: mended lang: zh, which was cn"]
    assert left == [
        Finding("docs/b.yml", 33, "would read differently once corrected, so it was left alone",
                "fix it by hand")
    ]  # fmt: skip
    assert bad.read_bytes() == before and good.read_bytes() == TEXT.encode()
    monkeypatch.undo()
    assert trial.run_shelf("check", "--fix").stdout.startswith("docs/b.yml:33: mended lang: ja")


def test_a_killed_write_leaves_the_old_list(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    page = trial.add_page("a.yml", TEXT.replace("lang: zh", "lang: cn"))
    before = page.read_bytes()

    def interrupt_write(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt_write)
    with pytest.raises(KeyboardInterrupt):
        fix_lists(trial.root)
    assert page.read_bytes() == before
    assert sorted(path.name for path in page.parent.iterdir()) == ["a.yml", "index.md"]


def test_hidden_and_linked_files_are_left_alone(trial: Trial) -> None:
    text = "- id: a\n  lang: cn\n"
    hidden = trial.add_page(".meta.yml", text)
    outside = trial.root / "outside.yml"
    outside.write_text(text)
    (trial.root / "docs" / "linked.yml").symlink_to(outside)
    (trial.root / "docs" / "lost.yml").symlink_to("nowhere.yml")
    assert fix_lists(trial.root) == ([], [])
    assert hidden.read_text() == outside.read_text() == text


def test_lists_with_nothing_to_mend_are_not_written(tmp_path: Path) -> None:
    write_library(tmp_path, readings=200, topics=4)
    stamps = {path: path.stat() for path in tmp_path.rglob("*.yml")}
    assert fix_lists(tmp_path) == ([], [])
    assert all(path.stat().st_mtime_ns == was.st_mtime_ns for path, was in stamps.items())


def test_the_lists_of_the_shelf_are_mended_safely() -> None:
    """Our own lists, each with spaces and trackers in it: only those go."""
    for path in sorted((ROOT / "docs").glob("*/**/*.yml")):
        good = path.read_text(encoding="utf-8")
        good = fix_list(PATH, good.encode())[0].decode()
        bad = re.sub(r"(?m)^(  url: https://arxiv\.org/abs/\S+)$", r"\1?utm_source=x ", good)
        after, done, left = fix_list(PATH, bad.encode())
        assert left is None and after.decode() == good
        assert bool(done) == (bad != good)


# Any list

CHUNKS = {
    "id": ["id: name-{n}", "id: 'name-{n}'  # the name"],
    "title": ["title: Work {n}", 'title: " Work: {n} "', "title: '流水线 {n} '", "title: 12"],
    "title_en": ["title_en: >-\n    Work\n    {n}"],
    "url": [
        "url: https://arxiv.org/abs/1805.{n:05}", "url: http://arxiv.org/pdf/1805.{n:05}v1  ",
        'url: "https://x.org/{n}?utm_source=a#b"', "url: https://youtu.be/aaaaaaa{n:04}?t=3",
        "url: https://github.com/a/b-{n}.git # root",
    ],
    "kind": ["kind: paper", "# Of the kind.\n  kind: post"],
    "authors": ["authors: [Ada,\n            'Bob: Ross ']", "authors:\n    - Ada\n    - Bob"],
    "year": ["year: 2020", 'year: "2020"'],
    "why": ["why: >\n    Says,\n    and\n\n    that. ", "why: |\n    # Says\n    this.", "why: w"],
    "lang": ["lang: en", "lang: cn", "lang: no", 'lang: "zh-CN"'],
    "also": [
        'also:\n    # first\n    - {{what: code, url: "http://www.github.com/a/c-{n}/"}}',
        "also:\n    - what: preprint\n      url: https://arxiv.org/abs/1900.{n:05}v3\n\n",
    ],
    "added": ["added: 2026-11-21", 'added: "2026-11-21"'],
}  # fmt: skip


@st.composite
def draw_list(draw: st.DrawFn) -> str:
    """A list whose entries have their keys in any order, with anything that can be mended."""
    parts = [draw(st.sampled_from(["", "# A list.\n", "\n"]))]
    for number in range(draw(st.integers(1, 3))):
        keys = draw(st.lists(st.sampled_from(list(CHUNKS)), min_size=1, max_size=11, unique=True))
        keys = sorted(keys, key=KEYS.index) if draw(st.booleans()) else keys
        chunks = [draw(st.sampled_from(CHUNKS[key])).format(n=number) for key in keys]
        if chunks[0].startswith("#"):
            chunks[0] = chunks[0].partition("\n  ")[2]
        between = draw(st.sampled_from(["\n", "\n\n", "\n# Next.\n"]))
        parts.append("- " + "\n  ".join(chunks) + between)
    text = "".join(parts)
    return text.rstrip("\n") if draw(st.booleans()) else text


def find_faults(text: str) -> set[str]:
    shelf = Shelf()
    shelf.add_file(text.encode(), PATH)
    return {finding.what for finding in (*shelf.findings, *check_shelf(shelf))}


SAFE = re.compile(
    r"the url (?!http://)|ends in spaces|starts or ends in a space|YAML reads|is the number|"
    r"without quotes|is '(?:cn|zh-CN)', not a language"
)


@given(draw_list(), st.sampled_from(["\n", "\r\n"]))
def test_any_list_is_mended_whole(text: str, newline: str) -> None:
    after, done = mend_text(text, newline)
    reader, again = EntryReader(PATH, text.encode()), EntryReader(PATH, after.encode())
    assert not [what for what in find_faults(after) if SAFE.search(what)], after
    assert bool(done) == (after != text)
    assert [list(e.fields) for e in reader.entries] == [list(e.fields) for e in again.entries]
    assert after.count("#") == text.count("#")
    for line in text.splitlines():
        if line.lstrip().startswith("#") or line.strip() in ("Says,", "and", "this.", "- Bob"):
            assert line.strip() in after
    clean = TEXT[TEXT.index("# between") :]
    text = f"{text}\n{clean}"
    assert mend_text(text, newline)[0].endswith(f"\n{clean}")


@given(st.lists(st.sampled_from([
    "- ", "  ", "id: a", "lang: cn", "title: ' x '", "url: http://arxiv.org/abs/1805.02867v1", "\n",
    "\r\n", "\r", "\x85", "\u2028", ": ", "# c", "|\n", ">+\n", "  x\n", "? ", "{", "}", "[", "]",
    ",", '"', "'", "\\", "why: ", "year: '3'", "\t", "---\n", "...", "also:", "*a", "&a ", "流",
]), max_size=30).map("".join))  # fmt: skip
def test_no_text_breaks_the_mends(text: str) -> None:
    data = text.encode()
    after, done, left = fix_list(PATH, data)
    assert after == data or (done and not left)
    again = EntryReader(PATH, after)
    assert len(again.entries) == len(EntryReader(PATH, data).entries)
    assert left or fix_list(PATH, after) == (after, [], None)

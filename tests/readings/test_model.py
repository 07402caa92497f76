"""A reading list says what is wrong with it, where, and how to mend it; a good one is read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpshelf.core.findings import Finding, ShelfError, printable_line
from warpshelf.readings.crosscheck import check_shelf
from warpshelf.readings.entries import LARGEST, EntryReader
from warpshelf.readings.model import KEYS, Reading, Shelf, load_shelf

GOOD = """\
- id: online-softmax
  title: Online normalizer calculation for softmax
  url: https://arxiv.org/abs/1805.02867
  kind: paper
  authors: [Maxim Milakov, Natalia Gimelshein]
  year: 2018
  venue: arXiv
  why: "Shows how the maximum and the sum are found in one pass: one read of the row less."
  rating: 4
  level: intermediate
  lang: en
  tags: [softmax, memory-bandwidth]
  snippets: [softmax]
  needs: [roofline]
  also:
    - what: code
      url: https://github.com/NVIDIA/online-softmax
  seed: ["000", "001"]
  mended: The seed gave no link.
- id: roofline
  title: 屋顶线模型
  title_en: The roofline model
  url: https://example.org/roofline
  kind: post
  why: Tells which of two limits a kernel meets first.
  lang: zh
"""
SMALL = """\
- id: {id}
  title: {title}
  url: {url}
  kind: paper
  why: Says what limits a kernel.
"""


def make_list(name: str, title: str = "", url: str = "", more: str = "") -> str:
    text = SMALL.format(id=name, title=title or f"On {name}", url=url or f"https://x.org/{name}")
    return text + "".join(f"  {line}\n" for line in more.split("\n") if line)


def write_project(root: Path, **files: str | bytes) -> Path:
    """A project with a page and a list for each of `files`: name -> YAML."""
    docs = root / "docs" / "kernels"
    docs.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        data = text if isinstance(text, bytes) else text.encode()
        (docs / f"{name}.yml").write_bytes(data)
        page = f'# About {name}\n\n--8<-- "readings/kernels/{name}.md"\n'
        (docs / f"{name}.md").write_text(page, encoding="utf-8")
    return root


def shelf_of(*texts: str) -> Shelf:
    shelf = Shelf()
    for number, text in enumerate(texts):
        name = "abcdefgh"[number]
        shelf.add_file(text.encode(), f"docs/kernels/{name}.yml")
        shelf.topics[f"kernels/{name}"].page = shelf.topics[f"kernels/{name}"].shown = True
    return shelf


def only_finding(findings: list[Finding]) -> str:
    assert len(findings) == 1, [str(finding) for finding in findings]
    return str(findings[0])


def test_a_good_list_is_read_whole(tmp_path: Path) -> None:
    shelf = load_shelf(write_project(tmp_path, softmax=GOOD))
    assert shelf.findings == [] and check_shelf(shelf, {"softmax"}) == []
    assert list(shelf.readings) == ["online-softmax", "roofline"]
    reading = shelf.readings["online-softmax"]
    assert reading.authors == ["Maxim Milakov", "Natalia Gimelshein"]
    assert (reading.year, reading.rating, reading.also[0].what) == (2018, 4, "code")
    assert reading.path == "docs/kernels/softmax.yml"
    assert reading.where == "kernels/softmax"
    assert (reading.line, reading.line_of("why"), reading.line_of("also", 0, "url")) == (1, 8, 17)
    assert shelf.readings["roofline"].line == 20
    assert reading.target == "/kernels/softmax.md#reading-online-softmax"
    assert shelf.topics["kernels/softmax"].title == "About softmax"
    assert KEYS[:5] == ("id", "title", "title_en", "url", "kind") and KEYS[-1] == "added"


def test_line_ends_of_windows_are_read(tmp_path: Path) -> None:
    shelf = load_shelf(write_project(tmp_path, softmax=GOOD.replace("\n", "\r\n")))
    assert not shelf.findings and shelf.readings["roofline"].line == 20


def test_a_text_over_several_lines_is_one_sentence() -> None:
    shelf = shelf_of(make_list("a").replace("why: Says", "why: >\n    Says\n   "))
    assert not shelf.findings
    assert shelf.readings["a"].why == "Says what limits a kernel."


BAD_FILES = {
    "empty": (b"", None, "is empty"),
    "only a comment": (b"# soon\n", None, "is empty"),
    "a document of a comment": (b"---\n# licence\n---\n- id: a\n", 3, "a second YAML document"),
    "a comment before a fault": (b"---\n# licence\n...\n@\n", 4, "starts with @"),
    "a mapping": (b"id: a\n", 1, "is not a list"),
    "a text": (b"hello\n", 1, "is not a list"),
    "texts": (b"- hello\n", 1, "has no keys"),
    "a tab": (b"- id: a\n\ttitle: b\n", 2, "a tab indents the line"),
    "a tab after spaces": (b"- id: a\n  \ttitle: b\n", 2, "a tab indents the line"),
    "latin-1": (b"- id: a\n  title: caf\xe9\n", 2, "byte 0xe9 is not UTF-8"),
    "utf-16": ("- id: a\n".encode("utf-16"), 1, "is UTF-16"),
    "a control character": (b"- id: a\n  title: \x07\n", 2, "U+0007 is not allowed in YAML"),
    "an alias": (b"- id: &a b\n", 1, "the anchor &a is set"),
    "an unknown alias": (b"- id: *a\n", 1, "the alias *a is used"),
    "a bomb": (b"- &a [x, x]\n- &b [*a, *a]\n- &c [*b, *b]\n", 1, "the anchor &a is set"),
    "a tag": (b"- !!python/object/apply:os.system [ls]\n", 1, "the tag tag:yaml.org"),
    "a bare !": (b"- id: !x y\n", 1, "the tag !x is set"),
    "a colon": (b"- id: a\n  title: one: two\n", 2, "holds a colon and a space"),
    "an @": (b"- id: @a\n", 1, "starts with @"),
    "an open quote": (b'- id: a\n  title: "one\n  kind: paper\n', 2, "cannot be read here"),
    "an open bracket": (b"- id: a\n  tags: [x\n", 2, "cannot be read here"),
    "bad indent": (b"- id: a\n title: b\n", 2, "indent every key"),
    "two documents": (b"- id: a\n---\n- id: b\n", 2, "a second YAML document"),
    "deep": (b"- a: " + b"[" * 100_000, 1, "nested over"),
    "deep in blocks": (b"- " * 50_000, 1, "nested over"),
    "a list as a key": (b"- ? [a]\n  : b\n", 1, "a key is itself a list"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, name: str) -> None:
    data, line, words = BAD_FILES[name]
    shelf = load_shelf(write_project(tmp_path, softmax=data))
    said = only_finding(shelf.findings)
    place = "docs/kernels/softmax.yml" + (f":{line}: " if line else ": ")
    assert said.startswith(place) and words in said and "; " in said
    assert shelf.entries == []


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    shelf = load_shelf(write_project(tmp_path, softmax=b"#" * (LARGEST + 1)))
    assert f"holds {LARGEST + 1} bytes, over the limit of {LARGEST}" in only_finding(shelf.findings)


def test_an_empty_list_is_a_topic_without_readings(tmp_path: Path) -> None:
    shelf = load_shelf(write_project(tmp_path, softmax="[]\n"))
    assert not shelf.findings and shelf.topics["kernels/softmax"].readings == []


def test_a_byte_order_mark_is_named_and_the_list_read(tmp_path: Path) -> None:
    shelf = load_shelf(write_project(tmp_path, softmax=b"\xef\xbb\xbf" + GOOD.encode()))
    assert "byte order mark" in only_finding(shelf.findings) and len(shelf.readings) == 2


def test_the_wrong_ending_is_named(tmp_path: Path) -> None:
    write_project(tmp_path, softmax=GOOD)
    (tmp_path / "docs/kernels/gemm.yaml").write_text(GOOD)
    assert "rename it to gemm.yml" in only_finding(load_shelf(tmp_path).findings)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    (write_project(tmp_path, softmax=GOOD) / "docs/kernels/lost.yml").symlink_to("nowhere.yml")
    shelf = load_shelf(tmp_path)
    assert only_finding(shelf.findings).startswith("docs/kernels/lost.yml: cannot be read")
    assert len(shelf.readings) == 2


TRAPS = {
    "lang: no": 'lang: YAML reads no as true or false; write "no", in quotes',
    "venue: 2024-01-02": "venue: YAML reads 2024-01-02 as a date",
    "venue: 1.5": "venue: YAML reads 1.5 as a fraction",
    "venue: 0x10": "venue: YAML reads 0x10 as a number",
    "seed: [000]": 'seed: YAML reads 000 as a number; write "000", in quotes',
    "year: 12:30": "year: YAML reads 12:30 as a number",
    "venue:": "venue has no value; remove the key",
    "venue: ~": "venue has no value",
    "tags: [on]": "tags: YAML reads on as true or false",
}


@pytest.mark.parametrize("line", TRAPS)
def test_what_yaml_would_change_is_named(line: str) -> None:
    said = [str(f) for f in shelf_of(make_list("a", more=line)).findings]
    assert [one for one in said if TRAPS[line] in one] == said
    assert said[0].startswith("docs/kernels/a.yml:6: ")


NEXT = datetime.now(UTC).year + 1
WRONG = {
    "id: On_softmax": ("id is 'On_softmax'", "write it as in online-softmax"),
    "id: -a": ("id is '-a'", "online-softmax"),
    f"id: {'a' * 81}": ("id has 81 characters, over the limit of 80", "shorten"),
    "title: 1984": ("title is the number 1984, not text", 'write "1984", in quotes'),
    'title: ""': ("title is empty", "write it"),
    f"title: {'a' * 301}": ("title has 301 characters, over the limit of 300", "shorten"),
    'title: "a\\e[31m"': ("title holds the unseen character U+001B", "remove it"),
    'title: "a\\u202e"': ("title holds the unseen character U+202E", "remove it"),
    "title: 流水线": ("title is not in English", "set lang"),
    "title_en: Pipelines": ("title_en is given, but lang is en", "set lang"),
    "url: example.org": ("url the URL 'example.org' does not start with https://", "https://"),
    "url: javascript:alert(1)": ("does not start with https://", "https://"),
    'url: "https://x.org/a b"': ("holds a space", "https://"),
    "url: https://localhost/a": ("the host 'localhost' is not public", "link a page"),
    "url: https://10.0.0.1/a": ("the host '10.0.0.1' is not public", "link a page"),
    "url: https://me:word@x.org": ("names a user", "https://"),
    "kind: papers": ("kind is 'papers'", "write paper"),
    "kind: zzz": ("kind is 'zzz'", "write one of paper, post, talk"),
    'why: " "': ("why is empty", "write it"),
    f"why: {'a' * 301}": ("why has 301 characters, over the limit of 300", "shorten it"),
    "authors: Ada": ("authors is the text 'Ada', not a list", "write [Ada]"),
    "authors: [3]": ("authors 1 is the number 3, not text", 'write "3"'),
    'authors: [""]': ("authors 1 is empty", "write it"),
    'year: "2024"': ("year is the text '2024'", "write 2024, without quotes"),
    "year: 1949": (f"year is 1949, outside 1950 to {NEXT}", "write the year"),
    f"year: {NEXT + 1}": (f"year is {NEXT + 1}, outside 1950 to {NEXT}", "write the year"),
    "rating: 5": ("rating is '5', outside 1 to 4", "write 1, 2, 3 or 4"),
    "rating: 0": ("rating is '0', outside 1 to 4", "write 1, 2, 3 or 4"),
    "level: beginer": ("level is 'beginer'", "write beginner"),
    "lang: cn": ("lang is 'cn', not a language code", "write zh"),
    "lang: english": ("lang is 'english', not a language code", "two letters"),
    "tags: [GPU]": ("tags 1 is 'GPU', not of lower-case", "write it as"),
    "tags: [a, a]": ("tags names 'a' twice", "remove one"),
    f"tags: [{', '.join(f't{n}' for n in range(13))}]": ("tags has 13 items, over the limit of 12",
                                                         "drop some"),
    "snippets: [soft-max]": ("snippets 1 is 'soft-max', not a snippet id", "folder's name"),
    "needs: a": ("needs is the text 'a', not a list", "write [a]"),
    "also: [{what: pdf, url: https://x.org}]": ("also 1 what is 'pdf'", "write one of preprint"),
    "also: [{what: code}]": ("has no also 1 url", "add `url: …`"),
    "also: [{what: code, link: https://x.org}]": ("the key 'also 1 link' is unknown", "write url"),
    "also: [https://x.org]": ("also 1 is 'https://x.org'", "write keys `what` and `url`"),
    'seed: ["0"]': ("seed 1 is '0', not a seed number", "three digits"),
    "superseded_by: [a]": ("superseded_by is", "write text"),
    "author: [Ada]": ("the key 'author' is unknown", "write authors"),
    "titel: x": ("the key 'titel' is unknown", "write title"),
    "description: x": ("the key 'description' is unknown", "write why"),
    "zzz: x": ("the key 'zzz' is unknown", "the keys are id, title"),
    "<<: {year: 2020}": ("the key '<<' is unknown", "the keys are"),
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_field_is_named_with_its_line_and_mend(line: str) -> None:
    key = line.partition(":")[0]
    lines = make_list("a").rstrip("\n").split("\n")
    place = next((n for n, text in enumerate(lines) if text[2:].startswith(key + ":")), None)
    if place is None:
        lines.append(f"  {line}")
        place = len(lines) - 1
    else:
        lines[place] = lines[place][:2] + line
    shelf = shelf_of("# a comment\n" + "\n".join(lines) + "\n")
    wrong, mend = WRONG[line]
    said = [str(finding) for finding in shelf.findings if wrong in str(finding)]
    assert len(said) == 1, [str(finding) for finding in shelf.findings]
    of_whole_entry = "title is not in English" in wrong or "title_en is given" in wrong
    assert said[0].startswith(f"docs/kernels/a.yml:{2 if of_whole_entry else place + 2}: ")
    assert mend in said[0].partition("; ")[2]
    assert not shelf.readings and "a" in shelf.refused | {"a"}


@pytest.mark.parametrize("key", ["id", "title", "url", "kind", "why"])
def test_a_required_key_that_is_missing_is_named(key: str) -> None:
    text = "\n".join(
        line for line in make_list("a").split("\n") if not line[2:].startswith(key + ":")
    )
    text = text if text.startswith("-") else "- " + text[2:]
    said = only_finding(shelf_of(text).findings)
    assert f"has no {key}; add `{key}: …`" in said and said.startswith("docs/kernels/a.yml:1: ")


def test_a_title_in_another_script_wants_its_english() -> None:
    text = make_list("a", title="流水线", more="lang: zh")
    assert "give it as title_en" in only_finding(shelf_of(text).findings)
    assert not shelf_of(make_list("a", title="Kernels em CUDA", more="lang: pt")).findings


@pytest.mark.parametrize(
    ("url", "what", "mend"),
    [
        ("https://a; b", "holds a space, a backslash or a control character", "write it as https"),
        ("https://a;b", "the host 'a;b' is not public", "link a page on the web"),
    ],
)
def test_a_value_that_holds_a_semicolon_is_not_cut_at_it(url: str, what: str, mend: str) -> None:
    [finding] = shelf_of(make_list("a", url=f'"{url}"')).findings
    assert finding.what.endswith(what) and finding.mend.startswith(mend)


def test_a_key_written_twice_is_named_with_both_lines() -> None:
    said = only_finding(shelf_of(make_list("a", more="year: 2020\nyear: 2021")).findings)
    assert said.startswith("docs/kernels/a.yml:7: the key 'year' is written twice")
    assert "first on line 6" in said


def test_one_wrong_entry_leaves_the_others() -> None:
    shelf = shelf_of(make_list("a", more="year: soon") + make_list("b", more="needs: [a]"))
    assert "year is 'soon'; write a whole number" in only_finding(shelf.findings)
    assert list(shelf.readings) == ["b"] and shelf.refused == {"a"}
    assert check_shelf(shelf, ()) == []  # a is there, only not readable


def test_an_id_used_twice_names_the_first() -> None:
    findings = check_shelf(
        shelf_of(make_list("a"), make_list("b") + make_list("a", "Other", "https://x.org/2"))
    )
    said = "docs/kernels/b.yml:6: id 'a' is used twice; rename one (first at docs/kernels/a.yml:1)"
    assert only_finding(findings) == said


@pytest.mark.parametrize(
    "second",
    [
        make_list("b", url="https://arxiv.org/abs/2309.06180"),
        make_list("b", more="also: [{what: preprint, url: https://arxiv.org/abs/2309.06180}]"),
        make_list("b", more="also: [{what: published, url: https://arxiv.org/abs/2309.06180}]"),
    ],
)
def test_one_work_stands_once(second: str) -> None:
    said = only_finding(
        check_shelf(shelf_of(make_list("a", url="https://arxiv.org/abs/2309.06180"), second))
    )
    assert "arxiv:2309.06180 is on the shelf already, as 'On a'" in said
    assert "first at docs/kernels/a.yml:1" in said


def test_code_and_recordings_of_a_work_may_stand_on_their_own() -> None:
    more = "also: [{what: code, url: https://x.org/a}]"
    assert check_shelf(shelf_of(make_list("a") + make_list("b", more=more))) == []


def test_a_version_that_is_the_entry_itself_is_named() -> None:
    more = "also: [{what: preprint, url: https://www.x.org/a/}]"
    assert "is the entry's own url; remove it" in only_finding(
        check_shelf(shelf_of(make_list("a", more=more)))
    )


def test_one_title_has_one_identity() -> None:
    text = make_list("a", "Flash, Attention!") + make_list("b", "flash attention")
    said = only_finding(check_shelf(shelf_of(text)))
    assert said.startswith("docs/kernels/a.yml:7: the title 'flash attention' also stands at")
    assert "for url:x.org/a" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("needs: [onlin-softmax]", "needs names 'onlin-softmax', which is not the id of a reading; "
                                   "write online-softmax"),
        ("needs: [zzz]", "correct it, or remove it"),
        ("needs: [a]", "needs names the entry itself; remove it"),
        ("superseded_by: zzz", "superseded_by names 'zzz'"),
        ("snippets: [softmx]", "snippets names 'softmx', which is not a folder under snippets/; "
                               "write softmax"),
    ],
)  # fmt: skip
def test_a_reference_to_nothing_is_named(more: str, words: str) -> None:
    shelf = shelf_of(make_list("a", more=more) + make_list("online-softmax"))
    said = only_finding(check_shelf(shelf, {"softmax"}))
    assert words in said and said.startswith("docs/kernels/a.yml:6: ")


def test_snippets_are_unchecked_where_none_are_given() -> None:
    assert check_shelf(shelf_of(make_list("a", more="snippets: [softmax]"))) == []


def test_a_circle_of_needs_is_named_once() -> None:
    text = make_list("a", more="needs: [b]") + make_list("b", more="needs: [c]")
    text += make_list("c", more="needs: [b]") + make_list("d", more="needs: [a, b, c]")
    said = only_finding(check_shelf(shelf_of(text)))
    assert said == ("docs/kernels/a.yml:18: needs goes in a circle: b -> c -> b; remove 'b' here")
    text = make_list("a", more="superseded_by: b") + make_list("b", more="superseded_by: a")
    assert "superseded_by goes in a circle: a -> b -> a" in only_finding(
        check_shelf(shelf_of(text))
    )


def test_shared_needs_are_no_circle() -> None:
    text = make_list("a", more="needs: [b, c]") + make_list("b", more="needs: [d]")
    assert check_shelf(shelf_of(text + make_list("c", more="needs: [d]") + make_list("d"))) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://x.org/a?id=1&utm_source=b", "carries utm_source, which follows the reader; "
                                              "write https://x.org/a?id=1"),
        ("https://youtu.be/Cp7g1Ll4v0M?si=abc", "carries si, which follows the reader, and is "
         "not in the usual form of YouTube; write https://www.youtube.com/watch?v=Cp7g1Ll4v0M"),
        ("http://x.org/a", "the url http://x.org/a is http; write https://x.org/a"),
        ("https://bit.ly/abc", "bit.ly hides where the url leads"),
        ("https://t.co/abc", "t.co hides"),
        ("https://www.google.com/search?q=gpu", "is a search on google.com"),
        ("https://scholar.google.com/scholar?q=gpu", "is a search on scholar.google.com"),
        ("https://www.google.com/url?q=https://x.org", "is a search on google.com"),
        ("https://duckduckgo.com/?q=gpu", "is a search on duckduckgo.com"),
        ("https://www.baidu.com/s?wd=gpu", "is a search on baidu.com"),
        ("https://github.com/search?q=repo:a/b+x&type=code", "is a search on github.com"),
        ("https://www.youtube.com/results?search_query=gpu", "is a search on youtube.com"),
    ],
)  # fmt: skip
def test_an_address_that_should_be_another_is_named(url: str, words: str) -> None:
    assert words in only_finding(check_shelf(shelf_of(make_list("a", url=f'"{url}"'))))
    more = f'also: [{{what: annotated, url: "{url}"}}]'
    said = only_finding(check_shelf(shelf_of(make_list("a", more=more))))
    assert words in said and said.startswith("docs/kernels/a.yml:6: ")


def test_a_good_address_is_left_alone() -> None:
    for url in (
        "https://github.com/a/research",
        "https://research.google/x",
        "https://x.org/a?q=1",
        "https://github.com/google/search",
        "https://developers.google.com/search/docs",
    ):
        assert check_shelf(shelf_of(make_list("a", url=url))) == []


@given(st.permutations(make_list("a", more="year: 2020\nauthors: [Ada]").strip()[2:].split("\n")))
def test_keys_may_stand_in_any_order(lines: list[str]) -> None:
    text = "- " + "\n  ".join(line.strip() for line in lines) + "\n"
    shelf = shelf_of(text)
    assert [*shelf.findings, *check_shelf(shelf)] == []


def test_a_list_without_a_page_or_unseen_on_it_is_named(tmp_path: Path) -> None:
    write_project(tmp_path, softmax=make_list("a"), gemm=make_list("b"))
    (tmp_path / "docs/kernels/softmax.md").unlink()
    (tmp_path / "docs/kernels/gemm.md").write_text("# GEMM\n")
    said = [str(finding) for finding in check_shelf(load_shelf(tmp_path))]
    assert said == [
        "docs/kernels/gemm.md: does not show its reading list; "
        'add --8<-- "readings/kernels/gemm.md"',
        "docs/kernels/softmax.yml: has no page beside it; write docs/kernels/softmax.md, "
        "or move the entries to another topic",
    ]


def test_a_page_may_name_a_list_that_is_not_there_yet(tmp_path: Path) -> None:
    write_project(tmp_path, softmax=make_list("a"))
    (tmp_path / "docs/kernels/softmax.yml").unlink()
    shelf = load_shelf(tmp_path)
    assert shelf.topics["kernels/softmax"].readings == [] and check_shelf(shelf) == []


def test_other_bytes_can_be_read_in_place_of_a_file(tmp_path: Path) -> None:
    write_project(tmp_path, softmax=make_list("a"))
    shelf = load_shelf(tmp_path, instead={"docs/kernels/softmax.yml": make_list("b").encode()})
    assert list(shelf.readings) == ["b"]
    assert list(load_shelf(tmp_path).readings) == ["a"]


def test_hidden_files_are_left_alone(tmp_path: Path) -> None:
    write_project(tmp_path, softmax=make_list("a"))
    (tmp_path / "docs/.meta.yml").write_text("hello: 1\n")
    assert load_shelf(tmp_path).findings == []


def test_a_finding_is_one_line_and_in_order() -> None:
    finding = Finding("docs/a.yml", 3, "x\ny\x1b[31m\u202e\u2028", "a\rb")
    assert str(finding) == "docs/a.yml:3: x\\ny\\x1b[31m\\u202e\\u2028; a\\rb"
    assert str(Finding("docs/a.yml", None, "x", "")) == "docs/a.yml: x"
    unsorted = [Finding("b", None, "x", ""), Finding("a", 2, "x", ""), Finding("a", None, "x", "")]
    assert [(f.path, f.line) for f in sorted(unsorted)] == [("a", None), ("a", 2), ("b", None)]
    error = ShelfError([finding, *unsorted])
    assert len(str(error).split("\n")) == 4 and len(error.findings) == 4
    assert ShelfError(finding).findings == [finding]
    assert len(printable_line("x" * 5000)) == 1001


PIECES = [*"[]{}'\"#|>~1\t\n", "- ", "id: a", "  ", "&a ", "*a", "!!x ", ": ", "? ", "no", "\r\n"]
PIECES += ["---\n", "...\n", "%YAML 1.1\n", make_list("a"), GOOD]
YAML_LIKE = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from(PIECES), max_size=30).map(lambda parts: "".join(parts).encode()),
)


@settings(max_examples=300)
@given(YAML_LIKE)
def test_no_bytes_break_the_reader(data: bytes) -> None:
    shelf = Shelf()
    shelf.add_file(data, "docs/a.yml")
    check_shelf(shelf, ())
    for finding in shelf.findings:
        assert len(str(finding).splitlines()) == 1 and finding.mend
    reader = EntryReader("docs/a.yml", data)
    assert reader.findings or all(entry.line >= 1 for entry in reader.entries)


def test_the_model_is_strict() -> None:
    fields = {"id": "a", "title": "A", "url": "https://x.org", "kind": "post", "why": "w"}
    assert Reading.model_validate(fields).lang == "en"
    with pytest.raises(ValueError, match="int_type"):
        Reading.model_validate({**fields, "rating": 3.0})

"""A link is added whole or not at all, and what stood before it stays as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from warpshelf import links
from warpshelf.findings import ShelfError
from warpshelf.links import add, links_app
from warpshelf.project import Project
from warpshelf.readings import check, load

FIRST = """\
# Softmax, and what surrounds it.
- id: online-softmax
  title: "Online normalizer calculation for softmax"   # as in the paper
  url: https://arxiv.org/abs/1805.02867
  kind: paper
  why: 'Shows that one pass is enough.'
"""
URL = "https://example.org/a-post"
FIELDS = {"title": "How a GPU waits", "kind": "post", "why": "Says what a warp waits for."}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    docs = tmp_path / "docs" / "kernels"
    docs.mkdir(parents=True)
    for name in ("softmax", "gemm"):
        (docs / f"{name}.md").write_text(f'# {name}\n\n--8<-- "readings/kernels/{name}.md"\n')
    (docs / "softmax.yml").write_text(FIRST, encoding="utf-8")
    (docs / "plain.md").write_text("# Plain\n")
    for name in ("softmax", "stream"):
        (tmp_path / "snippets" / name).mkdir(parents=True)
        (tmp_path / "snippets" / name / f"{name}.py").write_text('"""x"""\n')
    return tmp_path


def listed(root: Path, name: str = "softmax") -> str:
    return (root / f"docs/kernels/{name}.yml").read_bytes().decode("utf-8")


def refusal(root: Path, topic: str = "kernels/softmax", url: str = URL, **fields: object) -> str:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    with pytest.raises(ShelfError) as caught:
        add(root, topic, url, ask=None, fields={**FIELDS, **fields})
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert len(caught.value.findings) == 1
    return str(caught.value)


def test_an_entry_is_appended_and_the_rest_stays(root: Path) -> None:
    entry = add(root, "kernels/softmax", URL, ask=None, fields=FIELDS)
    assert listed(root) == FIRST + (
        "- id: how-a-gpu-waits\n"
        "  title: How a GPU waits\n"
        "  url: https://example.org/a-post\n"
        "  kind: post\n"
        "  why: Says what a warp waits for.\n"
    )
    assert (entry.path, entry.line, entry.notes) == ("docs/kernels/softmax.yml", 7, [])
    assert entry.reading.id == "how-a-gpu-waits" and entry.text in listed(root)
    shelf = load(root)
    assert not shelf.findings and not check(shelf, {"softmax"}) and len(shelf.readings) == 2
    assert [path.name for path in (root / "docs/kernels").iterdir() if path.suffix == ".yml"] == [
        "softmax.yml"
    ]


def test_every_field_is_written_in_the_order_of_the_schema(root: Path) -> None:
    fields = {
        "snippet": None, "tags": ["gpu", "paged-attention"], "lang": "zh", "year": 2023,
        "level": "advanced", "authors": ["Ada Lovelace", "李: 明"], "venue": "SOSP '23",
        "why": 'Says "how": a page # of keys, ' + "and why that is a good idea " * 5,
        "title": "分页: 注意力", "title_en": "Paging", "snippets": ["stream"],
        "needs": ["online-softmax"], "id": "paging",
        "also": [{"what": "code", "url": "https://github.com/a/b"}], "seed": ["000"], "rating": 4,
    }  # fmt: skip
    fields.pop("snippet")
    entry = add(root, "kernels/softmax", "https://arxiv.org/abs/2309.06180", ask=None,
                fields=fields)  # fmt: skip
    assert listed(root).startswith(FIRST + "- id: paging\n")
    assert max(map(len, listed(root).splitlines())) <= 100
    reading = load(root).readings["paging"]
    said = reading.model_dump(exclude_defaults=True)
    wanted = {**fields, "why": str(fields["why"]).strip(), "kind": "paper"}
    assert said == {**wanted, "url": "https://arxiv.org/abs/2309.06180"}
    assert not check(load(root), {"stream"}) and entry.reading.id == "paging"


@pytest.mark.parametrize(
    ("before", "start"),
    [
        (FIRST.rstrip("\n"), FIRST),
        (FIRST.replace("\n", "\r\n"), FIRST.replace("\n", "\r\n")),
        (FIRST + "\n", FIRST + "\n"),
        (FIRST + "# the end\n", FIRST + "# the end\n"),
        (
            FIRST + "\n" + FIRST.replace("online", "on").replace("1805", "1905"),
            FIRST + "\n" + FIRST.replace("online", "on").replace("1805", "1905") + "\n",
        ),
        ("", ""),
        ("# nothing yet\n", "# nothing yet\n"),
        ("# nothing yet", "# nothing yet\n"),
    ],
)
def test_what_stood_there_stays_byte_for_byte(root: Path, before: str, start: str) -> None:
    before = before.replace("Online normalizer", "Offline normalizer", 1)
    start = start.replace("Online normalizer", "Offline normalizer", 1)
    (root / "docs/kernels/softmax.yml").write_bytes(before.encode())
    entry = add(root, "kernels/softmax", URL, ask=None, fields=FIELDS)
    newline = "\r\n" if "\r\n" in before else "\n"
    assert listed(root).startswith(start + "- id: how-a-gpu-waits" + newline)
    assert listed(root).endswith("  why: Says what a warp waits for." + newline)
    assert listed(root).count("\n") == listed(root).count(newline)
    assert listed(root).splitlines()[entry.line - 1] == "- id: how-a-gpu-waits"
    assert not load(root).findings


def test_an_indented_list_stays_indented(root: Path) -> None:
    indented = "".join(f"  {line}\n" for line in FIRST.splitlines())
    (root / "docs/kernels/softmax.yml").write_text(indented)
    add(root, "kernels/softmax", URL, ask=None, fields=FIELDS)
    assert listed(root).startswith(indented + "  - id: how-a-gpu-waits\n    title: ")
    assert len(load(root).readings) == 2 and not load(root).findings


def test_a_list_is_begun_where_the_page_stands(root: Path) -> None:
    entry = add(root, "kernels/gemm", URL, ask=None, fields=FIELDS)
    assert listed(root, "gemm").startswith("- id: how-a-gpu-waits\n") and entry.line == 1
    assert not entry.notes


def test_a_page_that_does_not_show_its_list_is_noted(root: Path) -> None:
    entry = add(root, "kernels/plain", URL, ask=None, fields=FIELDS)
    assert [str(note) for note in entry.notes] == [
        "docs/kernels/plain.md: does not show its reading list; "
        'add --8<-- "readings/kernels/plain.md"'
    ]


@pytest.mark.parametrize("topic", ["docs/kernels/gemm.yml", "kernels/gemm.md", "/kernels/gemm/"])
def test_a_topic_may_be_written_as_its_file(root: Path, topic: str) -> None:
    assert add(root, topic, URL, ask=None, fields=FIELDS).path == "docs/kernels/gemm.yml"


def test_an_unknown_topic_is_refused_with_the_topics(root: Path) -> None:
    said = refusal(root, topic="kernels/softmaxx")
    assert "there is no page docs/kernels/softmaxx.md" in said
    assert "write --topic kernels/softmax; topics: kernels/gemm, kernels/softmax" in said
    assert "topics: kernels/gemm" in refusal(root, topic="../../etc/passwd")
    (root / "secret.md").write_text("# x\n")
    assert "there is no page" in refusal(root, topic="../secret")
    assert "there is no page" in refusal(root, topic="")


@pytest.mark.parametrize(
    "url",
    ["https://arxiv.org/abs/1805.02867", "https://arxiv.org/pdf/1805.02867v2.pdf",
     "https://www.alphaxiv.org/abs/1805.02867", "https://doi.org/10.48550/arXiv.1805.02867"],
)  # fmt: skip
def test_a_work_on_the_shelf_is_refused_with_its_place(root: Path, url: str) -> None:
    said = refusal(root, topic="kernels/gemm", url=url)
    assert "arxiv:1805.02867 is on the shelf already" in said
    assert "'Online normalizer calculation for softmax' (online-softmax)" in said
    assert said.endswith("see docs/kernels/softmax.yml:2")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("javascript:alert(1)", "does not start with https://"),
        ("example.org/a", "does not start with https://"),
        ("https://x.org/a b", "holds a space"),
        ("http://x.org/a", "is http; write https://x.org/a"),
        ("https://bit.ly/x", "bit.ly hides where the url leads"),
        ("https://www.google.com/search?q=x", "is a search on google.com"),
        ("https://localhost/x", "is no public name"),
    ],
)
def test_a_wrong_address_is_refused(root: Path, url: str, words: str) -> None:
    assert words in refusal(root, url=url)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "papers"}, "kind is 'papers'; write paper"),
        ({"why": "x" * 301}, "over the limit of 300"),
        ({"year": 1800}, "year is 1800"),
        ({"lang": "jp"}, "write ja"),
        ({"tags": ["GPU"]}, "tags 1 is 'GPU'"),
        ({"snippets": ["streem"]}, "which is no folder under snippets/; write stream"),
        ({"needs": ["online-softmaxx"]}, "write online-softmax"),
        ({"id": "online-softmax"}, "id 'online-softmax' is used twice"),
        ({"title": "online normalizer calculation for Softmax"}, "also stands at"),
        ({"title": "a\x1b[31m"}, "unseen character U+001B"),
        ({"colour": "red"}, "the key 'colour' is unknown"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused(root: Path, fields: dict[str, object], words: str) -> None:
    assert words in refusal(root, **fields)


def test_a_circle_through_the_entry_is_refused_wherever_it_shows(root: Path) -> None:
    (root / "docs/kernels/softmax.yml").write_text(FIRST + "  needs: [waits]\n")
    assert "goes in a circle" in refusal(root, topic="kernels/gemm", id="waits",
                                         needs=["online-softmax"])  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- id: [\n", "cannot be read here"),
        (FIRST + "  colour: red\n", "the key 'colour' is unknown"),
        ("a: b\n", "is not a list"),
        ("[{id: a, title: A, url: https://x.org, kind: post, why: w}]\n", "written as [ … ]"),
        ("[]\n", "written as [ … ]"),
        (FIRST + "...\n", ""),
    ],
)
def test_a_list_that_cannot_take_an_entry_is_left_alone(root: Path, text: str, words: str) -> None:
    (root / "docs/kernels/softmax.yml").write_text(text)
    assert words in refusal(root)


def test_what_is_wrong_elsewhere_does_not_stand_in_the_way(root: Path) -> None:
    (root / "docs/kernels/gemm.yml").write_text("- id: [\n")
    (root / "docs/kernels/softmax.yml").write_text(FIRST + "  needs: [gone]\n")
    add(root, "kernels/softmax", URL, ask=None, fields=FIELDS)
    assert "how-a-gpu-waits" in load(root).readings


def test_the_command_line_starts_without_pydantic() -> None:
    code = "import sys, warpshelf.links; print(*{'pydantic', 'rapidfuzz'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_missing_fields_are_named_at_once(root: Path) -> None:
    said = refusal(root, title=None, kind="", why=None)
    assert said.endswith("an entry needs title, kind, why; add --title, --kind, --why")
    said = refusal(root, url="https://youtu.be/Cp7g1Ll4v0M", kind=None, why=None)
    assert said.endswith("an entry needs why; add --why")


def test_missing_fields_are_asked_for(root: Path) -> None:
    asked: list[str] = []

    def ask(key: str, question: str) -> str:
        asked.append(key)
        assert question
        return {"title": " On waiting ", "kind": "post", "why": "Says why."}[key]

    entry = add(root, "kernels/softmax", URL, ask=ask, fields={})
    assert asked == ["title", "kind", "why"] and entry.reading.title == "On waiting"
    with pytest.raises(ShelfError, match="an entry needs title; answer, or add --title"):
        add(root, "kernels/softmax", URL + "2", ask=lambda *_: " ", fields={})


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://arxiv.org/abs/2309.06180", "paper"),
        ("https://doi.org/10.1145/1345206.1345220", "paper"),
        ("https://ieeexplore.ieee.org/document/9622813", "paper"),
        ("https://youtu.be/Cp7g1Ll4v0M", "talk"),
        ("https://github.com/a/b", "code"),
    ],
)
def test_the_kind_is_read_from_the_address(root: Path, url: str, kind: str) -> None:
    fields = {"title": "T", "why": "W"}
    assert add(root, "kernels/gemm", url, ask=None, fields=fields).reading.kind == kind


def test_tracking_parameters_are_dropped(root: Path) -> None:
    url = " https://youtu.be/Cp7g1Ll4v0M?si=abc&t=5 "
    entry = add(root, "kernels/gemm", url, ask=None, fields=FIELDS)
    assert entry.reading.url == "https://youtu.be/Cp7g1Ll4v0M?t=5"


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("FlashAttention-2: Faster Attention", "flashattention-2"),
        ("Ça, c'est l'été!", "ca-cest-lete"),
        ("Online softmax", "online-softmax-2"),
        ("流水线", "reading"),
        ("How to optimize a CUDA matmul kernel for cuBLAS-like performance",
         "how-to-optimize-a-cuda-matmul-kernel-for"),
    ],
)  # fmt: skip
def test_ids_are_made_of_titles(root: Path, title: str, wanted: str) -> None:
    more = {"lang": "zh", "title_en": "Pipelines"} if title == "流水线" else {}
    fields = {**FIELDS, "title": title, **more}
    assert add(root, "kernels/gemm", URL, ask=None, fields=fields).reading.id == wanted


def test_a_killed_write_leaves_the_old_list(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(KeyboardInterrupt):
        add(root, "kernels/softmax", URL, ask=None, fields=FIELDS)
    assert listed(root) == FIRST
    assert len(list((root / "docs/kernels").iterdir())) == 4


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1, max_size=120),
    st.text("-:#'\"[]{}&*!|>%@`~?, \\ayno01.\t", min_size=1, max_size=20),
))  # fmt: skip
def test_any_text_is_written_as_it_is_meant(text: str) -> None:
    values = {
        "id": "a",
        "title": text,
        "authors": [text, "x"],
        "also": [{"what": "code", "url": text}],
    }
    for newline in ("\n", "\r\n"):
        data = links._dump(values, 2, newline).encode()
        reader = links.Reader("docs/a.yml", data)
        assert not reader.findings and reader.indent == 2
        assert [entry.fields for entry in reader.entries] == [values]


runner = CliRunner()


@pytest.fixture
def here(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(links, "find", lambda: Project(root))
    return root


def test_the_command_adds(here: Path) -> None:
    flags = ["--title", "How a GPU waits", "--kind", "post", "--why", "Says why.", "--year", "2024"]
    flags += ["--author", "Ada", "--author", "Bob", "--tag", "gpu", "--snippet", "softmax"]
    done = runner.invoke(links_app, ["add", URL, "--topic", "kernels/softmax", *flags])
    assert done.exit_code == 0, done.output
    assert "docs/kernels/softmax.yml:7: added 'how-a-gpu-waits'" in done.output
    reading = load(here).readings["how-a-gpu-waits"]
    assert (reading.authors, reading.tags, reading.year) == (["Ada", "Bob"], ["gpu"], 2024)
    assert reading.snippets == ["softmax"]


def test_the_command_answers_in_json(here: Path) -> None:
    flags = ["--title", "T", "--why", "W", "--json"]
    done = runner.invoke(
        links_app, ["add", "https://github.com/a/b", "--topic", "kernels/gemm", *flags]
    )
    assert json.loads(done.stdout) == {
        "id": "t", "title": "T", "url": "https://github.com/a/b", "kind": "code", "why": "W",
        "path": "docs/kernels/gemm.yml", "line": 1,
    }  # fmt: skip


def test_the_command_says_what_is_wrong_on_one_line(here: Path) -> None:
    done = runner.invoke(links_app, ["add", URL, "--topic", "kernels/softmax"])
    assert done.exit_code == 1 and done.stdout == ""
    assert done.stderr == (
        "docs/kernels/softmax.yml: an entry needs title, kind, why; add --title, --kind, --why\n"
    )
    assert runner.invoke(links_app, ["add", URL]).exit_code == 2


def test_the_command_asks_in_a_terminal(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["How a GPU waits", "post", "Says why."])
    monkeypatch.setattr(links, "_ask", lambda key, question: next(answers))
    monkeypatch.setattr(links, "_terminal", lambda: True)
    done = runner.invoke(links_app, ["add", URL, "--topic", "kernels/softmax"])
    assert done.exit_code == 0 and "how-a-gpu-waits" in listed(here)

"""BibTeX that a parser reads back, and CSL-JSON of the right shapes.

Exports and feeds: each format is read back by a program that knows it.
"""

from __future__ import annotations

import json
import logging
import xml.etree.ElementTree as xml
from pathlib import Path

import bibtexparser
import jsonschema
import pytest
from conftest import ROOT, Trial
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_exhibit, make_measured, make_record, make_verified

from warpshelf.catalogue import exports
from warpshelf.catalogue.exports import csl_item, format_bibtex
from warpshelf.readings import model
from warpshelf.readings.model import Reading, Shelf, load_shelf
from warpshelf.render.snippet_page import MachineState

TEXT = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=60).filter(str.strip)


def make_reading(**fields: object) -> Reading:
    base: dict[str, object] = {
        "id": "a-paper",
        "title": "On products",
        "url": "https://arxiv.org/abs/1805.02867",
        "kind": "paper",
        "why": "What a product is.",
    }
    return Reading.model_validate(base | fields)


def parse_bibtex_entry(text: str) -> dict[str, str]:
    """The fields of the one entry in `text`, its type and key among them."""
    library = bibtexparser.parse_string(text)
    assert library.failed_blocks == [] and len(library.entries) == 1
    entry = library.entries[0]
    fields = {name: field.value for name, field in entry.fields_dict.items()}
    return {**fields, "ENTRYTYPE": entry.entry_type, "ID": entry.key}


def test_a_paper_at_a_conference() -> None:
    found = parse_bibtex_entry(
        format_bibtex(
            make_reading(
                authors=["Ada Lovelace", "Ben van Werkhoven", "and others"],
                year=2018,
                venue="SC 2018",
                tags=["gemm", "tiling"],
                also=[{"what": "published", "url": "https://doi.org/10.1109/SC.2010.2"}],
            )
        )
    )
    assert found == {
        "ENTRYTYPE": "inproceedings",
        "ID": "a-paper",
        "title": "{On products}",
        "author": "Ada Lovelace and Ben van Werkhoven and others",
        "year": "2018",
        "booktitle": "SC 2018",
        "doi": "10.1109/sc.2010.2",
        "eprint": "1805.02867",
        "archiveprefix": "arXiv",
        "url": "https://arxiv.org/abs/1805.02867",
        "keywords": "gemm, tiling",
    }


@pytest.mark.parametrize(
    ("kind", "venue", "form", "field", "shown", "csl_type"),
    [
        ("paper", None, "misc", None, None, "article"),
        ("paper", "arXiv", "misc", None, None, "article"),
        ("paper", "The Journal of Supercomputing", "article", "journal", None, "article-journal"),
        ("paper", "Proceedings of the IEEE", "article", "journal", None, "article-journal"),
        ("paper", "MLSys 2023", "inproceedings", "booktitle", None, "paper-conference"),
        ("paper", "PhD thesis, UC Berkeley", "phdthesis", "school", "UC Berkeley", "thesis"),
        ("paper", "NVIDIA Technical Report 2", "techreport", "institution", None, "report"),
        ("book", "Morgan Kaufmann", "book", "publisher", None, "book"),
        ("post", "A blog", "misc", "howpublished", None, "post-weblog"),
        ("post", "PhD thesis, MIT", "misc", "howpublished", "MIT", "post-weblog"),
        ("book", "PhD thesis, MIT", "book", "publisher", "MIT", "book"),
        ("code", None, "misc", None, None, "software"),
        ("talk", "GTC 2025", "misc", "howpublished", None, "speech"),
    ],
)
def test_the_type_follows_kind_and_venue(
    kind: str, venue: str | None, form: str, field: str | None, shown: str | None, csl_type: str
) -> None:
    one = make_reading(kind=kind, venue=venue)
    found = parse_bibtex_entry(format_bibtex(one))
    assert found["ENTRYTYPE"] == form
    if field:
        assert found[field] == (shown or venue)
    assert csl_item(one)["type"] == csl_type
    assert csl_item(one).get("container-title") == venue


@pytest.mark.parametrize(
    ("name", "tex", "item"),
    [
        ("Tri Dao", "Tri Dao", {"family": "Dao", "given": "Tri"}),
        ("Ben van der Werf", "Ben van der Werf", {"family": "van der Werf", "given": "Ben"}),
        ("NVIDIA", "{NVIDIA}", {"literal": "NVIDIA"}),
        ("DeepSeek-AI", "{DeepSeek-AI}", {"literal": "DeepSeek-AI"}),
        ("PyTorch Team", "{PyTorch Team}", {"literal": "PyTorch Team"}),
        ("te42kyfo", "{te42kyfo}", {"literal": "te42kyfo"}),
        ("高庆东", "{高庆东}", {"literal": "高庆东"}),
        ("Smith, Adam", "{Smith, Adam}", {"family": "Adam", "given": "Smith,"}),
        ("and others", "others", {"literal": "others"}),
    ],
)
def test_names(name: str, tex: str, item: dict[str, str]) -> None:
    one = make_reading(authors=["Ada Lovelace", name])
    assert parse_bibtex_entry(format_bibtex(one))["author"] == f"Ada Lovelace and {tex}"
    assert csl_item(one)["author"][1] == item


def test_special_characters_cannot_break_out() -> None:
    hostile = r"50% of A_B & C# {x}} \input{y} $z$ ~ ^"
    found = parse_bibtex_entry(
        format_bibtex(make_reading(title=hostile, url="https://example.org/a%7Db#c?d={e}"))
    )
    assert found["title"] == (
        r"{50\% of A\_B \& C\# \textbraceleft{}x\textbraceright{}\textbraceright{} "
        r"\textbackslash{}input\textbraceleft{}y\textbraceright{} \$z\$"
        r" \textasciitilde{} \textasciicircum{}}"
    )
    assert found["url"] == "https://example.org/a%7Db#c?d=%7Be%7D"


def test_a_title_in_another_language_keeps_its_english() -> None:
    one = make_reading(title="矩阵乘", title_en="Products", lang="zh")
    assert parse_bibtex_entry(format_bibtex(one))["note"] == "Products"
    assert (csl_item(one)["title"], csl_item(one)["language"], csl_item(one)["note"]) == (
        "矩阵乘",
        "zh",
        "Products",
    )


@given(TEXT, TEXT, st.lists(TEXT, max_size=3, unique=True))
def test_any_text_is_read_back_as_one_entry(title: str, venue: str, authors: list[str]) -> None:
    try:
        one = make_reading(title=title, title_en=title, lang="zh", venue=venue, authors=authors)
    except ValueError:
        return
    found = parse_bibtex_entry(format_bibtex(one))
    assert found["ID"] == "a-paper"
    assert found["url"] == "https://arxiv.org/abs/1805.02867"
    assert set(csl_item(one)) >= {"id", "type", "title", "URL"}


def test_the_whole_shelf_is_valid(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    shelf = load_shelf(ROOT)
    library = bibtexparser.parse_string("\n".join(map(format_bibtex, shelf.readings.values())))
    assert library.failed_blocks == []
    assert {entry.key for entry in library.entries} == set(shelf.readings)
    assert caplog.records == []


SITE = "https://example.org/shelf/"
ATOM = "{http://www.w3.org/2005/Atom}"
LISTS = {
    "docs/kernels/products.yml": """\
- id: early
  title: Early & <b>bold</b>
  url: https://arxiv.org/abs/1805.02867
  kind: paper
  authors: [Ada Lovelace]
  year: 2018
  why: Shows [how] it began.
  level: beginner
  tags: [gemm]
  added: "2026-01-02"
- id: late
  title: 矩阵
  title_en: Matrices
  url: https://example.org/matrices
  kind: post
  why: Shows how it went on.
  lang: zh
  added: "2026-03-04"
- id: undated
  title: Undated
  url: https://example.org/undated
  kind: site
  why: Nobody knows when.
""",
    "docs/sessions/index.yml": """\
- id: talk
  title: A talk
  url: https://www.youtube.com/watch?v=ZLbVdvOoTKM
  kind: talk
  why: What was said.
  added: "2026-02-03"
""",
}
SAID = {"index": "A shelf.", "kernels/products": "What a product costs."}


@pytest.fixture
def loaded_shelf(trial: Trial) -> Shelf:
    for path in LISTS:
        where = path.removeprefix("docs/").removesuffix(".yml")
        trial.add_page(f"{where}.md", f'# Products\n\n--8<-- "readings/{where}.md"\n')
    found = model.load_shelf(trial.root, instead={p: t.encode() for p, t in LISTS.items()})
    assert found.findings == []
    return found


@pytest.fixture
def exported_files(loaded_shelf: Shelf) -> dict[str, str]:
    return exports.export_files(loaded_shelf, [], SITE, "Trial", SAID)


def test_each_topic_and_everything_has_each_format(exported_files: dict[str, str]) -> None:
    sets = ("all", "kernels/products", "sessions/index")
    wanted = {f"{name}.{form}" for name in sets for form in exports.FORMATS}
    assert set(exported_files) == wanted | {"schema.json", "measurements.xml"}


def test_bibtex_and_csl_hold_the_same_readings(exported_files: dict[str, str]) -> None:
    every = ["early", "late", "undated", "talk"]
    for name, ids in {"all": every, "sessions/index": ["talk"]}.items():
        library = bibtexparser.parse_string(exported_files[f"{name}.bib"])
        assert library.failed_blocks == []
        assert [entry.key for entry in library.entries] == ids
        assert [item["id"] for item in json.loads(exported_files[f"{name}.csl.json"])] == ids


def test_plain_json_keeps_to_its_schema(exported_files: dict[str, str]) -> None:
    schema = json.loads(exported_files["schema.json"])
    jsonschema.Draft202012Validator.check_schema(schema)
    for name in ("all", "kernels/products", "sessions/index"):
        jsonschema.validate(json.loads(exported_files[f"{name}.json"]), schema)
    wrong = json.loads(exported_files["all.json"])
    wrong["readings"][0]["rating"] = 7
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def test_plain_json_says_where_each_stands(exported_files: dict[str, str]) -> None:
    found = {one["id"]: one for one in json.loads(exported_files["all.json"])["readings"]}
    assert found["early"]["identity"] == "arxiv:1805.02867"
    assert found["early"]["topic"] == "kernels/products"
    assert found["early"]["page"] == f"{SITE}kernels/products/#reading-early"
    assert found["talk"]["page"] == f"{SITE}sessions/#reading-talk"
    assert found["late"]["lang"] == "zh" and found["early"]["lang"] == "en"


def read_feed_entries(feed: str) -> list[dict[str, str]]:
    root = xml.fromstring(feed)
    assert root.tag == f"{ATOM}feed"
    for name in ("id", "title", "updated", "author"):
        assert root.find(ATOM + name) is not None
    [own] = [link for link in root.iter(f"{ATOM}link") if link.get("rel") == "self"]
    assert own.get("href") == root.findtext(f"{ATOM}id")
    found = []
    for entry in root.iter(f"{ATOM}entry"):
        link = next(link for link in entry.iter(f"{ATOM}link") if link.get("rel") is None)
        names = ("id", "title", "updated", "summary")
        values = {name: entry.findtext(ATOM + name) or "" for name in names}
        found.append(values | {"link": link.get("href") or ""})
    assert len({entry["id"] for entry in found}) == len(found)
    return found


def test_new_readings_come_first_and_undated_ones_not_at_all(
    exported_files: dict[str, str],
) -> None:
    found = read_feed_entries(exported_files["all.xml"])
    assert [entry["title"] for entry in found] == ["Matrices", "A talk", "Early & <b>bold</b>"]
    assert found[0]["updated"] == "2026-03-04T00:00:00Z"
    assert found[0]["link"] == f"{SITE}kernels/products/#reading-late"
    assert found[0]["summary"] == "Shows how it went on."
    assert (
        xml.fromstring(exported_files["all.xml"]).findtext(f"{ATOM}updated") == found[0]["updated"]
    )
    assert [
        entry["title"] for entry in read_feed_entries(exported_files["sessions/index.xml"])
    ] == ["A talk"]


def test_a_feed_ends_somewhere(loaded_shelf: Shelf) -> None:
    one = loaded_shelf.readings["early"]
    text = exports.readings_feed([one] * (exports.MOST + 1), SITE, "T", SITE, f"{SITE}feed.xml")
    assert text.count("<entry>") == exports.MOST


def test_an_empty_feed_is_a_feed(exported_files: dict[str, str]) -> None:
    assert read_feed_entries(exported_files["measurements.xml"]) == []


def test_measurements_name_machine_and_record() -> None:
    there, here = make_measured(), make_verified(make_record(0) | {"date": "2020-01-02T03:04:05Z"})
    stale = MachineState(make_record() | {"date": "2026-11-11T00:00:00Z"}, "stale", "old-gpu")
    newest, oldest = read_feed_entries(
        exports.measurements_feed([make_exhibit(here, there, stale)], SITE, "Trial")
    )
    assert newest["title"] == f"softmax measured on {there.name}"
    assert newest["link"] == f"{SITE}records/softmax/{there.machine}.json"
    assert oldest["title"] == "softmax checked on a CPU"
    assert oldest["updated"] == "2020-01-02T03:04:05Z"


def test_text_for_language_models(loaded_shelf: Shelf, exported_files: dict[str, str]) -> None:
    overview = exports.llms_overview(loaded_shelf, SITE, "Trial", SAID)
    assert overview.startswith("# Trial\n\n> A shelf.\n")
    row = f"- [Products]({SITE}exports/kernels/products.txt): What a product costs."
    assert row in overview.splitlines()
    heads = [line for line in overview.splitlines() if line.startswith("## ")]
    assert heads == ["## Kernels", "## Sessions", "## Optional"]
    text = exported_files["kernels/products.txt"]
    assert "- [Matrices](https://example.org/matrices): Shows how it went on. (post)" in text
    assert exported_files["all.txt"].count("\n- ") == 4


def test_what_nobody_could_open_says_so(trial: Trial) -> None:
    entry = "- {id: lost, title: Lost, url: https://example.org/lost, kind: post, why: Listed."
    trial.add_page("kernels/a.md", '# A\n\n--8<-- "readings/kernels/a.md"\n')
    found = model.load_shelf(
        trial.root, instead={"docs/kernels/a.yml": f"{entry}, unread: true}}\n".encode()}
    )
    texts = exports.export_files(found, [], SITE, "Trial", SAID)
    assert texts["all.txt"].rstrip().endswith("Listed. (post, nobody here could open it)")
    assert json.loads(texts["all.json"])["readings"][0]["unread"] is True


@given(st.text(max_size=200))
def test_no_text_breaks_a_feed(text: str) -> None:
    try:
        one = model.Reading.model_validate(
            {"id": "a", "title": text, "url": "https://example.org", "kind": "post", "why": text,
             "added": "2026-01-02"}
        )  # fmt: skip
    except ValueError:
        return
    [entry] = read_feed_entries(exports.readings_feed([one], SITE, text, SITE, f"{SITE}feed.xml"))
    assert entry["title"].split() == one.title.split()


def test_the_site_serves_them(trial: Trial) -> None:
    config = trial.root / "mkdocs.yml"
    for path, text in LISTS.items():
        where = path.removeprefix("docs/").removesuffix(".yml")
        trial.add_page(f"{where}.md", f'# Products\n\n--8<-- "readings/{where}.md"\n')
        (trial.root / path).write_text(text, encoding="utf-8")
    assert trial.run_shelf("site", "--render-only").returncode == 0
    assert list((trial.root / "docs" / "exports").iterdir()) == []
    config.write_text(f"site_url: {SITE}\n" + config.read_text())
    assert trial.run_shelf("site", "--render-only").returncode == 0
    assert (trial.root / "docs" / "exports" / "kernels" / "products.bib").is_file()
    assert "Trial" in (trial.root / "docs" / "llms.txt").read_text(encoding="utf-8")
    (trial.root / "docs" / "sessions" / "index.yml").unlink()
    (trial.root / "docs" / "sessions" / "index.md").unlink()
    assert trial.run_shelf("site", "--render-only").returncode == 0
    assert not (trial.root / "docs" / "exports" / "sessions").exists()


def test_the_real_shelf_keeps_to_its_schema() -> None:
    shelf = model.load_shelf(ROOT)
    found = exports.export_files(shelf, [], SITE, "Warpshelf", {})
    everything = json.loads(found["all.json"])
    jsonschema.validate(everything, json.loads(found["schema.json"]))
    assert {one["id"] for one in everything["readings"]} == set(shelf.readings)
    assert Path(ROOT / ".gitignore").read_text().count("/docs/exports/") == 1

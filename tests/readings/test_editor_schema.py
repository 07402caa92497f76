"""What an editor is told of a reading list: all that a schema can express, and nothing stricter."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import jsonschema
import pytest
from conftest import ROOT, Trial
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import write_library
from pydantic import ValidationError

from tests.readings.test_identity import FORMS, KEPT
from tests.readings.test_model import GOOD, NEXT, TRAPS, WRONG, make_list
from warpshelf.readings import crosscheck
from warpshelf.readings.identity import url_problems
from warpshelf.readings.model import KEYS, Also, Reading

PROGRAM = Path(sysconfig.get_path("scripts")) / "check-jsonschema"
COMMITTED = ROOT / crosscheck.PLACE
SCHEMA = crosscheck.build_schema()
READING = SCHEMA["definitions"]["Reading"]


def find_refused(files: list[Path]) -> set[Path]:
    """Which of the files the committed schema refuses, by the program that editors' checks use."""
    words = [PROGRAM, "--schemafile", COMMITTED, "--output-format", "json", *files]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    answer = json.loads(done.stdout)
    assert answer.get("parse_errors", []) == [], answer["parse_errors"]
    found = {Path(error["filename"]) for error in answer.get("errors", [])}
    assert (done.returncode == 0) == (found == set())
    return found


def write_files(folder: Path, texts: list[str]) -> list[Path]:
    paths = [folder / f"{number}.yml" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_the_committed_schema_is_current() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == crosscheck.schema_text()
    assert crosscheck.schema_text().isascii()


def test_the_schema_is_one() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == jsonschema.Draft7Validator.META_SCHEMA["$schema"]
    assert subprocess.run([PROGRAM, "--check-metaschema", COMMITTED]).returncode == 0


def test_every_key_is_described() -> None:
    assert tuple(READING["properties"]) == KEYS
    assert READING["required"] == ["id", "title", "url", "kind", "why"]
    for part, model in ((READING, Reading), (SCHEMA["definitions"]["Also"], Also)):
        assert part["additionalProperties"] is False
        for key, said in part["properties"].items():
            assert said["description"] == model.model_fields[key].description
            assert said["description"].endswith(".") and len(said["description"]) < 100
    kinds = READING["properties"]["kind"]
    assert len(kinds["enum"]) == len(kinds["enumDescriptions"]) == 9
    assert "null" not in crosscheck.schema_text()


def test_settings_name_the_schema_for_the_lists() -> None:
    settings = json.loads((ROOT / crosscheck.SETTINGS).read_text(encoding="utf-8"))
    [(schema, pattern)] = settings["yaml.schemas"].items()
    assert (ROOT / schema).resolve() == COMMITTED
    assert pattern == "/docs/*/**/*.yml"  # the glossary beside the pages is no list
    assert f'"{schema}"' in (ROOT / "docs/about/contributing/index.md").read_text(encoding="utf-8")


def test_our_lists_are_accepted(tmp_path: Path) -> None:
    write_library(tmp_path, readings=60, topics=4)
    good = [
        GOOD,
        "[]\n",
        make_list("a", more="why: |\n  Says\n  so.").replace("  why: Says what", "# "),
    ]
    lists = [*(ROOT / "docs").glob("*/**/*.yml"), *(tmp_path / "docs").rglob("*.yml")]
    assert len(lists) > 30
    assert find_refused([*lists, *write_files(tmp_path, good)]) == set()


def spoil_list(line: str) -> str:
    """A small list with one line of it replaced, or one more."""
    key = line.partition(":")[0]
    text, count = re.subn(rf"(?m)^(- |  ){key}: .*$", lambda m: m[1] + line, make_list("a"))
    return text if count else text + f"  {line}\n"


BEYOND = {  # what no schema can tell: the present year, what YAML has read otherwise already
    f"year: {NEXT + 1}",
    "<<: {year: 2020}",
    "lang: no",
    "tags: [on]",
    "venue: 2024-01-02",
}


def test_wrong_values_are_refused(tmp_path: Path) -> None:
    lines = [line for line in (*WRONG, *TRAPS) if line not in BEYOND]
    paths = write_files(tmp_path, [spoil_list(line) for line in lines])
    missed = set(paths) - find_refused(paths)
    assert [line for line, path in zip(lines, paths, strict=True) if path in missed] == []


def test_keys_that_are_missing_are_refused(tmp_path: Path) -> None:
    texts = [
        re.sub(rf"(?m)^(- |  ){key}: .*\n", r"", make_list("a")) for key in READING["required"]
    ]
    texts = [text if text.startswith("-") else f"- {text.lstrip()}" for text in texts]
    paths = write_files(tmp_path, texts)
    assert find_refused(paths) == set(paths)


def is_accepted(url: str, also: bool = False) -> bool:
    part = SCHEMA["definitions"]["Also" if also else "Reading"]["properties"]["url"]
    return jsonschema.Draft7Validator(part).is_valid(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://arxiv.org/abs/2309.06180",
        "https://arxiv.org/abs/2309.06180v2",
        "https://arxiv.org/pdf/2309.06180",
        "http://x.org/a",
        "https://x.org/a?b=c&utm_source=x",
        "https://x.org/a?fbclid=x#d",
        "https://dx.doi.org/10.1145/1.2",
        "https://www.doi.org/10.1145/1.2",
        "https://youtu.be/Cp7g1Ll4v0M",
        "https://www.github.com/a/b",
        "https://github.com/a/b.git",
        "https://github.com/a/b/tree/main",
        "https://bit.ly/abc",
        "https://www.t.co/abc",
    ],
)
def test_addresses_in_another_form_are_refused(url: str) -> None:
    assert list(url_problems(url)) and not is_accepted(url)
    assert is_accepted(url, also=True) == (not list(url_problems(url, main=False)))


@pytest.mark.parametrize("url", [url for url in KEPT if not list(url_problems(url))])
def test_addresses_in_their_form_are_accepted(url: str) -> None:
    assert is_accepted(url) and is_accepted(url, also=True)


def test_no_form_is_refused_that_the_check_accepts() -> None:
    urls = [url for form, urls in FORMS.items() for url in (form, *urls)]
    assert [url for url in urls if not is_accepted(url) and not list(url_problems(url))] == []


TEXTS = st.one_of(
    st.text(max_size=12),
    st.text(st.characters(codec="utf-8"), max_size=400),
    st.sampled_from(
        ["a" * 300, " a\n" * 150, "  " + "a" * 300 + "\n", "流" * 120, "en", "zh", "x"]
    ),
)
VALUES = {
    "id": st.from_regex(r"[a-z0-9-]{1,81}", fullmatch=True),
    "title": TEXTS,
    "title_en": TEXTS,
    "url": st.sampled_from([*FORMS, *KEPT]),
    "kind": st.sampled_from(["paper", "posts"]),
    "authors": st.lists(TEXTS, max_size=3),
    "year": st.integers(1940, 2040),
    "why": TEXTS,
    "rating": st.integers(0, 5),
    "lang": st.sampled_from(["en", "zh", "cn", "de"]),
    "tags": st.lists(st.sampled_from(["a", "b-c", "D", "e" * 41]), max_size=13),
    "snippets": st.lists(st.sampled_from(["a", "b_c", "d-e"]), max_size=3),
    "also": st.lists(st.fixed_dictionaries({
        "what": st.sampled_from(["code", "pdf"]), "url": st.sampled_from(KEPT)}), max_size=2),
    "seed": st.lists(st.sampled_from(["000", "1"]), max_size=3),
    "superseded_by": st.from_regex(r"[a-z-]{0,5}", fullmatch=True),
    "added": st.one_of(st.dates().map(str), st.sampled_from(["2026-11-20", "2026-1-2"])),
}  # fmt: skip
FIELDS = {"id": "a", "title": "A", "url": "https://x.org/a", "kind": "post", "why": "Says so."}


@given(st.fixed_dictionaries({}, optional=VALUES))
def test_nothing_is_refused_that_the_check_accepts(more: dict[str, object]) -> None:
    fields = FIELDS | more
    urls = [fields["url"], *(version["url"] for version in fields.get("also", []))]
    try:
        Reading.model_validate(fields)
    except ValidationError:
        return
    if not any(list(url_problems(url)) for url in urls):
        jsonschema.Draft7Validator(SCHEMA).validate([fields])


@given(st.sampled_from(sorted(VALUES)), st.data())
def test_one_value_is_refused_by_both_or_accepted_by_both(key: str, data: st.DataObject) -> None:
    fields = FIELDS | {key: data.draw(VALUES[key])}
    if key == "title_en":
        fields["lang"] = "zh"
    beyond = key == "added" or (key == "year" and fields["year"] > 2026)
    try:
        Reading.model_validate(fields)
    except ValidationError:
        assert beyond or not jsonschema.Draft7Validator(SCHEMA).is_valid([fields]), fields


def test_the_command_prints_and_writes(trial: Trial) -> None:
    done = trial.run_shelf("schema")
    assert (done.returncode, done.stdout) == (0, crosscheck.schema_text())
    place = trial.root / crosscheck.PLACE
    assert not place.exists()
    assert trial.run_shelf("schema", "--write").stdout == f"wrote {crosscheck.PLACE}\n"
    assert place.read_text(encoding="utf-8") == crosscheck.schema_text()
    assert trial.run_shelf("schema", "--write").stdout == f"{crosscheck.PLACE} is current\n"
    assert trial.run_shelf("check").returncode == 0
    place.write_text("{}")
    said = trial.run_shelf("check").stderr
    assert said == (
        f"{crosscheck.PLACE}: is not the present schema of the readings; "
        "run `shelf schema --write` and commit the file\n"
    )


def test_a_pattern_is_plain_to_other_programs() -> None:
    """The patterns are those of JavaScript as well, where a needless backslash is an error."""
    patterns = re.findall(r'"pattern": *("(?:[^"\\]|\\.)*")', crosscheck.schema_text())
    assert len(patterns) > 20
    for pattern in map(json.loads, patterns):
        for escaped in re.findall(r"\\(.)", pattern):
            assert escaped in r"sdu.?*+^$()[]{}|/\\", pattern
        assert "(?P" not in pattern and "(?<" not in pattern


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_a_pattern_is_read_by_javascript() -> None:
    code = """
    const schema = JSON.parse(require('fs').readFileSync(process.argv[1], 'utf8'));
    const walk = (part) => {
      if (part && typeof part === 'object') for (const [key, value] of Object.entries(part))
        key === 'pattern' ? new RegExp(value, 'u') : walk(value);
    };
    walk(schema);
    """
    done = subprocess.run(["node", "-e", code, COMMITTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Each answer to an exercise is computed here: nothing that a page calls a result was typed.

A page's section `## Exercises`, or the page `# Exercises` of a folder, is an ordered list. An item
opens with the exercise's name in bold, asks, and folds its answer, whose results are in bold:

    1. **Tile intensity.** A block computes a tile of ... How many operations a byte are that?

        ??? success "Answer"

            `2 * 128 * 128 / (128 + 128)` operations a number: **32 operations a byte**.

`answers/<part>.py` has a function for each, named after it (`tile_intensity`, and with its page
before it, `blackwell_stages`, where two pages of a part ask exercises of one name). It computes the
results and returns them as the page words them: one text, or a tuple of them in the page's order.
It may import snippets, but neither a page nor a constant that is the result itself.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS, ANSWERS = ROOT / "docs", Path(__file__).parent / "answers"
# A section of a page, or a page of its own.
SECTION = re.compile(r"^##? Exercises\b[^\n]*\n(?P<body>.*?)(?=^## |\Z)", re.M | re.S)
ITEM = re.compile(r"^\d+\. +(?P<body>.*?)(?=^\d+\. |\Z)", re.M | re.S)
NAME = re.compile(r"\*\*(?P<name>[^*]+?)\.?\*\*")
FOLD = re.compile(r'^ {4}\?\?\? success "Answer"\n(?P<body>.*)\Z', re.M | re.S)
BOLD = re.compile(r"\*\*(?P<said>[^*]+?)\*\*")
FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.M | re.S)  # code, an exercise shown as one
FEWEST, MOST = 3, 5


class Exercise(NamedTuple):
    """One exercise of a page: its name, its question, and the bold results of its answer."""

    page: str
    name: str
    question: str
    results: tuple[str, ...]


def to_identifier(name: str) -> str:
    """`Tile intensity` as a function is named: `tile_intensity`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def read_exercises(page: str, text: str) -> list[Exercise]:
    """The exercises of one page. Raises ValueError for one that is not laid out as above."""
    section = SECTION.search(text)
    found = []
    for item in ITEM.finditer(section["body"]) if section else ():
        name, fold = NAME.match(item["body"]), FOLD.search(item["body"])
        if not name or not fold:
            raise ValueError(f"{page}: {item['body'][:60]!r} lacks its name or its answer")
        question = item["body"][name.end() : fold.start()].strip()
        results = tuple(" ".join(said.split()) for said in BOLD.findall(fold["body"]))
        found.append(Exercise(page, name["name"], question, results))
    return found


def find_pages_with_exercises() -> Iterator[tuple[str, str]]:
    for path in sorted(DOCS.rglob("*.md")):
        text = FENCE.sub("", path.read_text(encoding="utf-8"))
        if SECTION.search(text):
            page = path.relative_to(DOCS).with_suffix("").as_posix()
            yield page.removesuffix("/exercises"), text


ALL = [one for page, text in find_pages_with_exercises() for one in read_exercises(page, text)]


TWICE = {
    (part, name)
    for (part, name), count in Counter(
        (one.page.partition("/")[0], to_identifier(one.name)) for one in ALL
    ).items()
    if count > 1
}


def name_answering_function(one: Exercise) -> str:
    part, _, topic = one.page.partition("/")
    name = to_identifier(one.name)
    return f"{to_identifier(topic)}_{name}" if (part, name) in TWICE else name


@cache
def load_answers(part: str) -> dict[str, Callable[[], str | tuple[str, ...]]]:
    path = ANSWERS / f"{part}.py"
    if not path.is_file():
        return {}
    spec = importlib.util.spec_from_file_location(f"answers.{part}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        name: value
        for name, value in inspect.getmembers(module, inspect.isfunction)
        if value.__module__ == module.__name__ and not name.startswith("_")
    }


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.page}-{to_identifier(one.name)}")
def test_answer_is_what_is_computed(one: Exercise) -> None:
    part = one.page.partition("/")[0]
    known = load_answers(part)
    assert name_answering_function(one) in known, (
        f"write {name_answering_function(one)} in answers/{part}.py"
    )
    said = known[name_answering_function(one)]()
    assert one.results == (said if isinstance(said, tuple) else (said,))
    assert one.results and one.question


def test_pages_have_three_to_five_and_each_function_its_exercise() -> None:
    asked: dict[str, set[str]] = {}
    for one in ALL:
        asked.setdefault(one.page.partition("/")[0], set()).add(name_answering_function(one))
    many = Counter(one.page for one in ALL)
    assert {page: count for page, count in many.items() if not FEWEST <= count <= MOST} == {}
    assert len(ALL) == sum(len(names) for names in asked.values())  # no two of one name
    assert {path.stem for path in ANSWERS.glob("*.py")} == set(asked)
    for part, names in asked.items():
        assert set(load_answers(part)) == names, part


def test_an_exercise_is_read_whole() -> None:
    text = (
        '# T\n\n## Exercises\n\n1. **Tile reuse.** How often?\n\n    ??? success "Answer"\n\n'
        "        Since $a$: **8 times**,\n        or **0.5\n        bytes**.\n\n"
        '2. **Other.** And?\n\n    ??? success "Answer"\n        **1**\n\n## Readings\n'
    )
    first, second = read_exercises("p", text)
    assert first == Exercise("p", "Tile reuse", "How often?", ("8 times", "0.5 bytes"))
    assert second.results == ("1",)
    with pytest.raises(ValueError, match="lacks its name or its answer"):
        read_exercises("p", "## Exercises\n\n1. What is it?\n")

"""Calculators on their pages: the defaults answered at each build, and what is wrong, found."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import calculator_project
import pytest
from conftest import LIST, ROOT, TOPIC, Trial, exhaustive

from warpshelf.core.markup import remove_marks
from warpshelf.core.pages import load_pages
from warpshelf.core.project import Project
from warpshelf.live import form, runtime
from warpshelf.records import store
from warpshelf.site import project_content, rendering

PAGE = '# Doubled\n\n--8<-- "calculators/doubled.md"\n'
PRODUCTS = '# Products\n\n--8<-- "doubled/whole.md"\n\n--8<-- "readings/kernels/products.md"\n'


@pytest.fixture
def calculator_shelf(trial: Trial) -> Project:
    """A shelf with one model, its reading, and a page with its calculator."""
    calculator_project.write_calculator(trial)
    trial.add_page("calculators/doubled.md", PAGE)
    trial.add_page(f"{TOPIC}.md", PRODUCTS)
    (trial.root / "docs" / f"{TOPIC}.yml").write_text(LIST, encoding="utf-8")
    return Project(trial.root)


def write_packed_python(project: Project) -> Path:
    """Something in the place of Python for the browser."""
    place = runtime.runtime_dir(project)
    place.mkdir(parents=True)
    (place / "wasm.packed").write_bytes(b"\x1f\x8b\x00")
    (place / runtime.MANIFEST).write_text('{"weight": 5042823}')
    return place


def render_calculator(project: Project) -> tuple[str, list[str]]:
    """The fragment, and what was found wrong."""
    findings, _ = rendering.render_project(project)
    path = project.fragments / "calculators" / "doubled.md"
    return path.read_text(encoding="utf-8") if path.is_file() else "", list(map(str, findings))


def read_words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def test_the_defaults_stand_there_with_source_and_test(calculator_shelf: Project) -> None:
    text, findings = render_calculator(calculator_shelf)
    assert findings == []
    said = read_words(text)
    assert "4 B of plain things" in said and "2 * number ; from A paper on products" in said
    assert "checked by twice 2" in said
    plain = unescape(text)
    assert 'href="../../kernels/products/#reading-a-paper"' in plain
    assert 'href="../../kernels/products/#snippet-doubled"' in plain
    assert "\n\n" not in text.strip()  # one block of HTML


def test_without_python_the_form_is_shut_and_says_so(calculator_shelf: Project) -> None:
    text, _ = render_calculator(calculator_shelf)
    assert "<script" not in remove_marks(text) and "data-python" not in text
    assert text.count("<fieldset disabled>") == 2
    assert "This build has no Python for the browser" in read_words(text)
    assert list(calculator_shelf.published_runtime.glob("*/*")) == []


def test_with_python_the_files_lie_where_the_page_says(calculator_shelf: Project) -> None:
    place = write_packed_python(calculator_shelf)
    text, _ = render_calculator(calculator_shelf)
    plain = unescape(text)
    [models] = re.findall(r'data-models="\.\./\.\./runtime/([^"]+)"', plain)
    [python] = re.findall(r'data-python="\.\./\.\./runtime/([^"]+)/"', plain)
    assert (
        calculator_shelf.published_runtime / python / "wasm.packed"
    ).read_bytes() == b"\x1f\x8b\x00"
    assert python == place.name and 'data-weight="5042823"' in plain
    sent = json.loads((calculator_shelf.published_runtime / models).read_text(encoding="utf-8"))
    assert sent["contexts"]["doubled"]["page"] == "kernels/products/#snippet-doubled"
    own = {name for name in sent["files"] if name.startswith("snippets/")}
    assert own == {"snippets/doubled/calculator.py", "snippets/doubled/doubled.py"}
    assert plain.count('<script type="module" src="../../assets/calculators.js">') == 1


def test_another_model_is_another_file_and_the_old_one_goes(calculator_shelf: Project) -> None:
    write_packed_python(calculator_shelf)
    render_calculator(calculator_shelf)
    before = {path.name for path in calculator_shelf.published_runtime.glob("models-*")}
    path = calculator_shelf.snippets / "doubled" / "doubled.py"
    path.write_text(path.read_text() + "# changed\n")
    render_calculator(calculator_shelf)
    after = {path.name for path in calculator_shelf.published_runtime.glob("models-*")}
    assert len(before) == len(after) == 1 and before != after


def test_a_calculator_that_fails_is_withheld_alone(calculator_shelf: Project) -> None:
    path = calculator_shelf.snippets / "doubled" / "calculator.py"
    path.write_text(calculator_project.CALCULATOR + "\n\nraise RuntimeError('broken')\n")
    text, findings = render_calculator(calculator_shelf)
    assert read_words(text).startswith("The calculator is withheld")
    assert findings == ["snippets/doubled/calculator.py: fails: RuntimeError: broken; fix it"]
    assert (calculator_shelf.fragments / "doubled" / "whole.md").is_file()


def test_a_test_or_a_source_that_is_not_there_is_found(calculator_shelf: Project) -> None:
    text = calculator_project.CALCULATOR.replace('"a-paper"', '"no-paper"')
    (calculator_shelf.snippets / "doubled" / "calculator.py").write_text(text)
    _, findings = render_calculator(calculator_shelf)
    assert findings == [
        "snippets/doubled/calculator.py: the line 'doubled' has the source 'no-paper', not a "
        "reading id; name the id of a reading in docs/"
    ]


def test_a_page_that_embeds_no_calculator_of_ours_is_found(
    calculator_shelf: Project, trial: Trial
) -> None:
    trial.add_page("calculators/doubled.md", PAGE.replace("doubled.md", "trebled.md"))
    done = trial.run_shelf("check")
    assert "embeds the calculator of 'trebled', which has none" in done.stderr
    text, _ = render_calculator(calculator_shelf)
    assert text == ""  # what no page shows is not asked for


def test_bands_are_of_rows_that_nothing_was_fitted_on() -> None:
    errors = [0.5, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09]
    rows = [
        {"set": "a", "predicted": 100 * (1 + e), "published": 100.0, "fitted": e == 0.5}
        for e in errors
    ]

    class One:
        record = {"predictions": rows}

    class Shown:
        def select_states(self, *states: str) -> list[type[One]]:
            return [One]

    found = rendering.error_bands(Shown())["a"]  # type: ignore[arg-type]
    assert found["count"] == 9
    assert found["half"] == pytest.approx(0.05) and found["worst"] == pytest.approx(0.09)
    assert found["most"] == pytest.approx(0.09)


# The project's own.

NAMES = runtime.list_calculators(Project(ROOT))


@pytest.fixture(scope="module")
def own_calculators() -> dict[str, runtime.CalculatorSpec]:
    return runtime.describe_calculators(Project(ROOT), NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_line_has_a_formula_a_source_and_a_test_that_is_there(
    name: str, own_calculators: dict[str, runtime.CalculatorSpec]
) -> None:
    told = own_calculators[name]
    assert told["faults"] == []
    record = store.load_record(Project(ROOT), ROOT / "snippets" / name / "results" / "cpu.json")
    facts = {
        row["name"] for key in ("facts", "predictions", "goals") for row in record.get(key, ())
    }
    sets = {row["set"] for row in record.get("predictions", ())}
    readings = "\n".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.yml"))
    for row in told["result"]["rows"]:
        assert row["formula"], row["name"]
        assert row["test"] in facts, row
        assert re.search(rf"^- id: {re.escape(row['source'])}$", readings, re.M), row
    if band := told["result"]["band"]:
        assert band["set"] in sets


# One whose form takes a search for each answer.
ASKED = sorted(NAMES, key=lambda name: name == "parallel_planner")
each_asked = pytest.mark.parametrize(
    "name", exhaustive(ASKED, "a search for each answer", light=len(ASKED) - 1)
)


@each_asked
def test_whatever_a_form_takes_is_answered_or_refused_in_a_line(name: str) -> None:
    answered = 0
    for given in calculator_project.list_extremes(name):
        told = form.answer_question({"id": name, "configurations": [given]})
        answered += "answer" in told
        for error in told.get("errors", ()):
            assert 10 < len(error["line"]) < 300, given
    assert answered > 3


PASTED = [
    (name, one["name"])
    for name in NAMES
    for one in form.load_calculator(name).INPUTS
    if one["kind"] == "config"
]


@pytest.mark.parametrize(("name", "field"), PASTED)
def test_a_pasted_configuration_is_taken_and_its_unknown_field_named(name: str, field: str) -> None:
    [text] = calculator_project.list_configs("gemma-2-9b")
    told = form.answer_question({"id": name, "configurations": [{field: text}]})
    assert "made_up_field" in unescape(told["details"])
    assert told["answer"] != form.answer_question({"id": name, "configurations": [{}]})["answer"]
    [error] = form.answer_question({"id": name, "configurations": [{field: "{"}]})["errors"]
    assert error["line"] and "\n" not in error["line"]


def test_all_that_a_model_is_needed_for_take_one() -> None:
    wanted = {"inference_roofline", "memory_model", "parallel_planner", "training_time"}
    assert {name for name, _ in PASTED} >= wanted


def test_every_calculator_has_its_page_and_is_listed() -> None:
    pages = list((ROOT / "docs" / "calculators").glob("*.md"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in pages}
    found = project_content.find_embeds(load_pages(Project(ROOT))[0], rendering.CALCULATOR)
    shown = [match["id"] for _, match in found]
    assert sorted(shown) == NAMES
    for name in texts.keys() - {"index.md"}:
        assert f"]({name})" in texts["index.md"]

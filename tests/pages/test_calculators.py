"""Calculators in a browser: Python starts, and answers as it does here; without it the page stands.

The page is made up, with a made-up calculator, drawn by the same functions and served with the
site's own scripts, style sheets and Python; the models of all real calculators are asked as well.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import axe_playwright_python
import calculator_project
import pytest
from browser import NARROW, WIDE, Visit, open_context, serve_site
from calculator_project import list_variations
from conftest import ROOT, new_trial
from playwright.sync_api import Browser, Page, expect

from warpshelf.core.project import Project
from warpshelf.live import form, runtime

PROJECT = Project(ROOT)
ASSETS = ROOT / "docs" / "assets"
OURS = ("calculators.js", "calculators-worker.js", "calculators.css", "warpshelf.css", "site.css")
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LOOK = """async ([scheme, rules]) => {
  document.body.setAttribute('data-md-color-scheme', scheme);
  const {violations} = await axe.run(document, {resultTypes: ['violations'], runOnly: rules});
  return violations.flatMap(({id, nodes}) =>
    nodes.map(node => `${id}: ${node.html.slice(0, 200)} ${node.failureSummary}`));
}"""
HTML = """<!doctype html><html lang="en" style="font-size:125%"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width,initial-scale=1"><title>Calculator</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="../assets/warpshelf.css">
<link rel="stylesheet" href="../assets/site.css">
<style>body {{ margin: 8px; background: var(--md-default-bg-color);
color: var(--md-typeset-color) }}
a {{ color: var(--md-typeset-a-color) }}</style>
<script>{stub}</script></head><body data-md-color-scheme="default"><main class="md-typeset">
<h1>Calculator</h1>{body}</main></body></html>"""
# What Material's bundle leaves behind where navigation is instant.
INSTANT = """let heard = () => {};
window.document$ = { subscribe({ next }) { heard = next; next(); } };
window.renew = (html) => { document.querySelector("main").innerHTML = html; heard(); };"""
AROUND = {
    "sources": {"a-paper": ["A paper", "kernels/products/#reading-a-paper"]},
    "bands": {"Measured, 2024": {"count": 10, "half": 0.01, "most": 0.05, "worst": 0.125}},
    "page": "kernels/products/#snippet-doubled",
}
pytestmark = pytest.mark.exhaustive("Python in a browser; tests/live holds what it runs")
PATIENCE = 90_000  # ms that Python may take to start, on a machine that is busy


@pytest.fixture(scope="module")
def packed_python() -> Path:
    """Python for the browser."""
    try:
        return runtime.ensure_runtime(PROJECT)
    except runtime.MissingRuntimeError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def calculator_site(packed_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with one page, and the same page as it is without Python."""
    root = tmp_path_factory.mktemp("calculators")
    trial = new_trial(root / "trial")
    calculator_project.write_calculator(trial)
    site = root / "site"
    (site / "assets").mkdir(parents=True)
    for name in OURS:
        shutil.copyfile(ASSETS / name, site / "assets" / name)
    shutil.copytree(packed_python, site / "runtime" / "python")
    own = Project(trial.root)
    models = json.loads(
        runtime.models_file(PROJECT, {name: {} for name in runtime.list_calculators(PROJECT)})[1]
    )
    added = json.loads(runtime.models_file(own, {"doubled": AROUND})[1])
    for key in ("files", "contexts"):
        models[key] |= added[key]
    (site / "runtime" / "models.json").write_text(json.dumps(models), encoding="utf-8")
    told = runtime.describe_calculators(own, ["doubled"])["doubled"]
    (site / "page").mkdir()
    live = {"models": "runtime/models.json", "python": "runtime/python/"}
    for name, files, stub in (("index", live, ""), ("instant", live, INSTANT), ("shut", {}, "")):
        text = form.render_calculator(
            "doubled", told["inputs"], told["result"], AROUND, "../", files, 5_000_000
        )
        (site / "page" / f"{name}.html").write_text(
            HTML.format(stub=stub, body=text), encoding="utf-8"
        )
    return site


@pytest.fixture(scope="module")
def calculator_origin(calculator_site: Path) -> Iterator[str]:
    with serve_site(calculator_site) as address:
        yield address


@pytest.fixture(scope="module")
def warm_visit(browser: Browser, calculator_origin: str, calculator_site: Path) -> Iterator[Visit]:
    """A tab in which Python runs, on a page whose theme replaces pages instead of loading them."""
    context = open_context(browser, WIDE, accept_downloads=True)
    visit = Visit(context.new_page(), calculator_origin)
    tab = visit.open_page("page/instant.html")
    html = (calculator_site / "page" / "instant.html").read_text(encoding="utf-8")
    inside = html[html.index("<h1>") : html.index("</main>")]
    tab.evaluate("html => { window.fresh = html; }", inside)
    tab.locator("#calc-number").fill("3")
    wait_for_answer(tab, "6 B of plain things", PATIENCE)
    yield visit
    context.close()


@pytest.fixture
def calculator_visit(warm_visit: Visit) -> Iterator[Visit]:
    """The same tab, come anew to its page without losing Python; nothing may go wrong in it."""
    for list_ in (warm_visit.foreign, warm_visit.failed, warm_visit.console):
        list_.clear()
    warm_visit.tab.evaluate("history.replaceState(null, '', location.pathname); renew(fresh)")
    yield warm_visit
    assert (warm_visit.foreign, warm_visit.failed, warm_visit.console) == ([], [], [])


def wait_for_answer(tab: Page, answer: str, timeout: int = 10_000) -> None:
    """Wait until that is the answer, and nothing is being computed."""
    expect(tab.locator(".ws-calc-said")).to_contain_text(answer, timeout=timeout)
    expect(tab.locator(".ws-calc")).not_to_have_attribute("aria-busy", "true")


def read_query(tab: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(tab.url).query)


def click_compare(tab: Page) -> None:
    tab.get_by_role("button", name="Compare with a second").click()


# As one types.


def test_python_starts_when_a_value_changes_and_nobody_else_is_asked(
    browser: Browser, calculator_origin: str
) -> None:
    context = open_context(browser, WIDE)
    visit = Visit(context.new_page(), calculator_origin)
    sent: list[str] = []
    visit.tab.on("request", lambda request: sent.append(urlsplit(request.url).path))
    tab = visit.open_page("page/index.html")
    assert not [path for path in sent if "runtime" in path or "worker" in path]
    state = tab.locator(".ws-calc-state")
    expect(state).to_contain_text("Python starts in this page: 5.0 MB, once")
    tab.locator("#calc-number").fill("4")
    expect(state).to_contain_text("Starting Python")
    wait_for_answer(tab, "8 B of plain things", PATIENCE)
    expect(state).to_contain_text("Calculated in this page")
    assert "/runtime/python/wasm.packed" in sent and "/runtime/models.json" in sent
    context.set_offline(True)  # what is loaded is enough
    before = len(sent)
    tab.locator("#calc-often").fill("2")
    wait_for_answer(tab, "16 B of plain things")
    assert len(sent) == before
    assert (visit.foreign, visit.failed, visit.console) == ([], [], [])
    context.close()


def test_typing_changes_the_table_and_the_plot(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    cell = tab.locator(".ws-calc-table tbody td").first
    bar = tab.locator(".ws-plot rect")
    assert cell.inner_text() == "4 B" and tab.locator(".ws-plot svg desc").count() == 1
    before = float(bar.get_attribute("width") or 0)
    tab.locator("#calc-number").fill("250")
    wait_for_answer(tab, "500 B of plain things")
    assert cell.inner_text() == "500 B"
    assert float(bar.get_attribute("width") or 0) > 50 * before
    tab.get_by_label("Halved").check()
    tab.get_by_label("Kind").select_option("odd")
    wait_for_answer(tab, "250 B of odd things")
    link = tab.get_by_role("link", name="A paper")
    assert str(link.get_attribute("href")) == "../kernels/products/#reading-a-paper"
    expect(tab.locator(".ws-calc-band")).to_contain_text("all within 12.5 %")


def test_what_is_wrong_stands_at_its_input(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    number = tab.locator("#calc-number")
    number.fill("<b>x")
    line = tab.get_by_role("alert").filter(has_text="which is not a number")
    expect(line).to_have_text("Number is '<b>x', which is not a number; write one such as 2")
    expect(number).to_have_attribute("aria-invalid", "true")
    expect(tab.locator(".ws-calc-state")).to_contain_text("cannot be calculated")
    assert tab.locator(".ws-calc-result.ws-calc-old").count() == 1
    number.fill("3")
    wait_for_answer(tab, "6 B")
    assert tab.locator("[aria-invalid]").count() == tab.locator(".ws-calc-old").count() == 0
    tab.locator("#calc-often").fill("13")  # the model refuses it, and names the input
    expect(tab.locator("#calc-often")).to_have_attribute("aria-invalid", "true")
    tab.locator("#calc-often").fill("17")  # it names none
    alert = tab.locator(".ws-calc-form > .ws-calc-error")
    expect(alert).to_have_text("doubled: nothing is twice 17")
    assert tab.locator("[aria-invalid]").count() == 0
    tab.locator("#calc-often").fill("19")  # the model breaks
    expect(tab.locator(".ws-calc-state")).to_contain_text("Not calculated: RuntimeError: broken")
    tab.locator("#calc-often").fill("1")
    wait_for_answer(tab, "6 B")


def test_a_pasted_config_has_its_unknown_fields_named(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.locator("#calc-config").fill('{"size": 1,\n "colour": "<img src=x onerror=alert(1)>"}')
    notes = tab.locator(".ws-calc-notes")
    expect(notes).to_have_text("Unknown field: colour.")
    assert read_query(tab)["config"] == ['{"size":1,"colour":"<img src=x onerror=alert(1)>"}']
    tab.locator("#calc-config").fill('{"<img src=x onerror=alert(1)>": 1}')
    expect(notes).to_contain_text("<img src=x")
    assert notes.locator("img").count() == 0
    tab.locator("#calc-config").fill("{")
    expect(tab.get_by_role("alert").filter(has_text="no JSON")).to_be_visible()


# The address.


def test_the_address_holds_what_is_asked_and_back_undoes_it(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.locator("#calc-number").press("End")
    tab.locator("#calc-number").press_sequentially("00")
    wait_for_answer(tab, "400 B")
    assert read_query(tab) == {"number": ["200"]}
    tab.get_by_label("Halved").check()
    wait_for_answer(tab, "200 B")
    assert read_query(tab) == {"number": ["200"], "halved": ["1"]}
    tab.go_back()
    wait_for_answer(tab, "400 B")
    assert not tab.get_by_label("Halved").is_checked()
    tab.go_back()  # all that was typed in one go
    wait_for_answer(tab, "4 B of plain things")
    assert tab.locator("#calc-number").input_value() == "2" and read_query(tab) == {}
    tab.go_forward()
    wait_for_answer(tab, "400 B")
    tab.get_by_role("button", name="Defaults").click()
    wait_for_answer(tab, "4 B of plain things")
    assert read_query(tab) == {}


def test_an_address_that_is_shared_brings_its_answer(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.evaluate(
        "history.replaceState(null, '', '?number=8&two=1&b.number=16&b.kind=odd&other=1');"
        "renew(fresh)"
    )
    wait_for_answer(tab, "16 B of plain things")
    expect(tab.locator(".ws-calc-said")).to_contain_text("32 B of odd things")
    tab.locator("#calc-number-2").fill("3")
    expect(tab.locator(".ws-calc-said")).to_contain_text("6 B of odd things")
    assert read_query(tab) == {
        "number": ["8"], "two": ["1"], "b.number": ["3"], "b.kind": ["odd"], "other": ["1"],
    }  # fmt: skip


def test_what_is_too_long_for_an_address_is_said(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.locator("#calc-config").fill(json.dumps({"size": "x" * 7000}))
    expect(tab.locator(".ws-calc-state")).to_contain_text("so they cannot be shared")
    assert read_query(tab) == {}


# Two, and files.


def test_two_configurations_stand_side_by_side(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.locator("#calc-number").fill("4")
    wait_for_answer(tab, "8 B")
    click_compare(tab)
    second = tab.get_by_label("Number B, second")
    assert second.input_value() == "4"  # it starts as the first
    second.fill("12")
    expect(tab.locator(".ws-calc-answer")).to_have_count(2)
    expect(tab.locator(".ws-calc-said")).to_contain_text("24 B of plain things")
    heads = tab.locator(".ws-calc-table thead th").all_inner_texts()
    assert heads == ["Quantity", "First", "Second", "Ratio"]
    cells = tab.locator(".ws-calc-table tbody tr").first.locator("td").all_inner_texts()
    assert cells == ["8 B", "24 B", "3.00×"]
    first, other = tab.locator(".ws-plot rect").evaluate_all(
        "all => all.map(one => Number(one.getAttribute('width')))"
    )
    assert other == pytest.approx(3 * first, abs=0.2)  # on one scale
    assert tab.locator(".ws-calc-differs").count() == 1
    tab.get_by_role("button", name="One configuration").click()
    expect(tab.locator(".ws-calc-answer")).to_have_count(1)
    assert tab.locator("#calc-number-2").count() == 0 and read_query(tab) == {"number": ["4"]}


def test_the_answer_is_had_as_csv_and_json(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.locator("#calc-number").fill("0.1")
    wait_for_answer(tab, "0.2 B")
    with tab.expect_download() as told:
        tab.get_by_role("button", name="Download the lines as CSV").click()
    rows = list(csv.reader(io.StringIO(Path(told.value.path()).read_text(encoding="utf-8"))))
    assert told.value.suggested_filename == "doubled.csv"
    assert rows[1] == ["doubled", "0.2", "B", "2 * number", "a-paper", "twice 2"]
    click_compare(tab)
    with tab.expect_download() as told:
        tab.get_by_role("button", name="Download everything as JSON").click()
    whole = json.loads(Path(told.value.path()).read_text(encoding="utf-8"))
    assert [one["inputs"]["number"] for one in whole["configurations"]] == [0.1, 0.1]


# From page to page.


def test_it_starts_and_stops_with_its_page(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.locator("#calc-number").fill("5")
    wait_for_answer(tab, "10 B")
    tab.evaluate("history.pushState(null, '', 'other.html'); renew('<h1>Another page</h1>')")
    tab.wait_for_timeout(150)
    assert urlsplit(tab.url).path.endswith("/page/other.html") and read_query(tab) == {}
    tab.evaluate("history.pushState(null, '', 'instant.html?number=7'); renew(fresh)")
    wait_for_answer(tab, "14 B")
    tab.evaluate("heard()")  # the same page once more: nothing is doubled
    assert tab.locator(".ws-calc-tools").count() == 1
    tab.locator("#calc-number").fill("8")
    wait_for_answer(tab, "16 B")


# Without scripts, without Python, and where it does not come.


def test_without_scripts_the_defaults_are_there(browser: Browser, calculator_origin: str) -> None:
    context = open_context(browser, NARROW, java_script_enabled=False)
    tab = context.new_page()
    for page in ("index", "shut"):
        tab.goto(f"{calculator_origin}/page/{page}.html")
        assert "4 B of plain things" in tab.locator(".ws-calc-answer").inner_text()
        assert tab.locator(".ws-calc-table tbody td").first.inner_text() == "4 B"
        assert tab.locator(".ws-plot svg").count() == 1
        assert tab.locator("#calc-number").is_disabled()
        assert tab.get_by_role("button").count() == 0
    context.close()


def test_a_build_without_python_says_so(browser: Browser, calculator_origin: str) -> None:
    context = open_context(browser, WIDE)
    visit = Visit(context.new_page(), calculator_origin)
    tab = visit.open_page("page/shut.html")
    assert tab.locator("#calc-number").is_disabled()
    expect(tab.locator(".ws-calc-state")).to_contain_text("has no Python for the browser")
    assert tab.locator("script[src]").count() == 0
    assert (visit.foreign, visit.failed, visit.console) == ([], [], [])
    context.close()


def test_python_that_does_not_come_is_said_and_tried_again(
    browser: Browser, calculator_origin: str
) -> None:
    context = open_context(browser, WIDE)
    tab = context.new_page()
    tab.goto(f"{calculator_origin}/page/index.html")
    context.route("**/wasm.packed", lambda route: route.fulfill(status=503, body="later"))
    tab.locator("#calc-number").fill("4")
    state = tab.locator(".ws-calc-state")
    expect(state).to_contain_text("Not calculated", timeout=PATIENCE)
    expect(state).to_contain_text("503")
    assert "4 B of plain things" in tab.locator(".ws-calc-said").inner_text()
    context.unroute("**/wasm.packed")
    tab.locator("#calc-number").fill("5")
    wait_for_answer(tab, "10 B", PATIENCE)
    context.close()


# Who sees no picture, and has no pointer.


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_axe_finds_nothing(calculator_visit: Visit, width: int) -> None:
    tab = calculator_visit.tab
    tab.set_viewport_size({"width": width, "height": 4000})
    click_compare(tab)
    tab.locator("#calc-number-2").fill("900")
    expect(tab.locator(".ws-calc-said")).to_contain_text("1800 B")
    tab.locator("#calc-often").fill("x")
    expect(tab.locator("#calc-often")).to_have_attribute("aria-invalid", "true")
    tab.evaluate(AXE)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    found = {scheme: tab.evaluate(LOOK, [scheme, RULES]) for scheme in ("default", "slate")}
    tab.evaluate("document.body.setAttribute('data-md-color-scheme', 'default')")
    tab.set_viewport_size({"width": WIDE, "height": 800})
    assert found == {"default": [], "slate": []}


def test_all_of_it_is_had_with_the_keys(calculator_visit: Visit) -> None:
    tab = calculator_visit.tab
    tab.locator("#calc-kind").focus()
    tab.keyboard.press("ArrowDown")
    wait_for_answer(tab, "4 B of odd things")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Space")
    wait_for_answer(tab, "2 B of odd things")
    tab.get_by_role("button", name="Compare with a second").press("Enter")
    expect(tab.locator("#calc-number-2")).to_have_count(1)


# The same numbers as here.

NAMES = runtime.list_calculators(PROJECT)
ASK = """async ([python, models, questions]) => {
  const worker = new Worker(new URL('../assets/calculators-worker.js', location.href),
    { type: 'module' });
  const where = { python: new URL(python, location.href).href,
    models: new URL(models, location.href).href };
  const answers = [];
  for (const [number, question] of questions.entries()) {
    answers.push(await new Promise((done) => {
      worker.onmessage = ({ data }) => done(data);
      worker.onerror = (event) => done({ failed: event.message });
      worker.postMessage({ number, where, question });
    }));
  }
  worker.terminate();
  return answers;
}"""


def find_differences(there: Any, here: Any, place: str = "") -> list[str]:
    """Where two answers differ, numbers by more than their twelfth digit."""
    if isinstance(here, dict) and isinstance(there, dict):
        keys = sorted({*here, *there})
        pairs = [(there.get(key), here.get(key), f"{place}.{key}") for key in keys]
    elif isinstance(here, list) and isinstance(there, list) and len(here) == len(there):
        pairs = [(a, b, f"{place}[{n}]") for n, (a, b) in enumerate(zip(there, here, strict=True))]
    elif isinstance(here, float) and isinstance(there, int | float):
        return [] if math.isclose(there, here, rel_tol=1e-12) else [f"{place}: {there}, {here}"]
    else:
        return [] if there == here else [f"{place}: {there!r:.60}, {here!r:.60}"]
    return [line for a, b, where in pairs for line in find_differences(a, b, where)]


def test_what_differs_is_seen() -> None:
    here = {"a": [1, 2.0, "x"], "b": 0.3}
    assert find_differences({"a": [1, 2.0, "x"], "b": 0.1 + 0.2}, here) == []
    assert find_differences({"a": [1, 2.0000000001, "y"]}, here) == [
        ".a[1]: 2.0000000001, 2.0", ".a[2]: 'y', 'x'", ".b: None, 0.3",
    ]  # fmt: skip


def test_answers_are_those_of_cpython(browser: Browser, calculator_origin: str) -> None:
    """To twelve digits: models use what every machine rounds alike."""
    context = open_context(browser, WIDE)
    tab = context.new_page()
    tab.goto(f"{calculator_origin}/page/shut.html")
    asked = [
        {"id": name, "root": "", "configurations": [given]}
        for name in NAMES
        for given in list_variations(name)
    ]
    tab.set_default_timeout(240_000)
    told = tab.evaluate(ASK, ["../runtime/python/", "../runtime/models.json", asked])
    context.close()
    answered = 0
    for question, answer in zip(asked, told, strict=True):
        assert "failed" not in answer, f"{question}: {answer}"
        here: dict[str, Any] = form.answer_question(question)
        there = answer["answer"]
        if "errors" in here:  # what cannot be is refused in the same words
            assert there == here, question
            continue
        assert find_differences(json.loads(there["json"]), json.loads(here["json"])) == [], question
        answered += 1
    assert answered >= 3 * len(NAMES)

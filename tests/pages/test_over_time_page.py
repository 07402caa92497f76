"""Two kinds of GPU, their history and their disagreements, on the pages of a small site.

Every record is made up and committed one by one; the site is built from them as it always is.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import MORE, NARROW, WIDE, Visit, open_context, serve_site
from conftest import MKDOCS, ROOT, new_trial
from playwright.sync_api import Browser, expect
from records_project import NAME, SLUG, Repository, make_timed_case

from tests.pages.test_axe import AXE, COLOURS, LOOK, RULES, THIN

OLD = "sha256:" + "1" * 64
WHY = "The new driver spills registers"
THEME = f"""theme:
  name: material
  custom_dir: {ROOT / "docs" / "overrides" / "theme"}
  font: false
  palette: [{{scheme: default}}]
extra_css: [assets/warpshelf.css, assets/site.css]
extra_javascript: [assets/results.js]
"""
RESULTS = "\n\n".join(f'--8<-- "results/{name}.md"' for name in ("summary", "overview", "machines"))
KERNEL = f'# A product\n\n--8<-- "{NAME}/whole.md"\n'
ASSETS = ("warpshelf.css", "site.css", "results.js", "logo.svg", "opener.js")
PROOF = f"evidence/{NAME}.html"
HOME = '# Trial\n\n--8<-- "home/shelf.md"\n\n--8<-- "home/machines.md"\n'
# The theme's frame is looked at on the site itself.
OURS = LOOK.replace("axe.run(document,", "axe.run('article',")
assert OURS != LOOK
G9, Z1 = "Imaginary G9 80GB", "Imaginary Z1"
HERE = (f"{G9}, driver 590.1", f"{G9}, driver 580.2")


def measure_versions(repository: Repository) -> None:
    """Three versions on one GPU, a second opinion on it, and two versions on another."""
    small = repository.make_cpu_record()["cases"][0]
    due = [make_timed_case(1), make_timed_case(1, n=8192)]
    repository.write_record(repository.make_cpu_record(*due), "cpu")
    rows = (
        ("2031-01-15T00:00:00Z", 1.0, 1.0, {"driver": "550.1", "triton": "3.6.0"}, OLD),
        ("2031-03-15T00:00:00Z", 0.8, 1.0, {"driver": "550.1"}, ""),
        ("2031-06-15T00:00:00Z", 0.8, 1.4, {"driver": "580.2"}, ""),
    )
    for date, one, online, software, digest in rows:
        timed = [make_timed_case(one, online), make_timed_case(one, online, n=8192)]
        more = {"digest": digest} if digest else {}
        repository.commit_record(small, *timed, date=date, software=software, **more)
    done = repository.trial.run_shelf("history", NAME, "--because", WHY)
    assert done.returncode == 0, done.stderr
    repository.commit_all("Say why")
    opinion = [make_timed_case(1.3), make_timed_case(0.8, 1.4, n=8192)]
    second = {"date": "2031-07-01T00:00:00Z", "software": {"driver": "590.1"}}
    repository.commit_record(small, *opinion, key=f"{SLUG}.2", **second)
    for number, one in ((8, 0.5), (9, 0.45)):
        repository.commit_record(
            small,
            make_timed_case(one),
            make_timed_case(one, n=8192),
            key="imaginary-z1",
            slug="imaginary-z1",
            device=Z1,
            date=f"2031-0{number}-01T00:00:00Z",
        )


def build_history_site(root: Path) -> Path:
    """The site of such a project, in a folder."""
    repository = Repository(new_trial(root))
    trial = repository.trial
    theme = "theme: {name: material, font: false}\n"
    assert theme in MKDOCS
    (root / "mkdocs.yml").write_text(MKDOCS.replace(theme, THEME), encoding="utf-8")
    for name in ASSETS:
        (root / "docs" / "assets").mkdir(exist_ok=True)
        shutil.copy(ROOT / "docs" / "assets" / name, root / "docs" / "assets" / name)
    trial.add_page("index.md", HOME)
    trial.add_page("kernel.md", KERNEL)
    trial.add_page("results/index.md", f"# Results\n\n{RESULTS}\n")
    measure_versions(repository)
    done = trial.run_process("site")
    assert done.returncode == 0, done.stderr
    return root / "site"


@pytest.fixture(scope="module")
def history_origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_site(build_history_site(tmp_path_factory.mktemp("overtime") / "trial")) as address:
        yield address


@pytest.fixture(scope="module")
def history_visit(browser: Browser, history_origin: str) -> Iterator[Visit]:
    context = open_context(browser, WIDE, reduced_motion="reduce")
    yield Visit(context.new_page(), history_origin)
    context.close()


@pytest.mark.exhaustive(MORE)
def test_two_records_of_a_device_are_told_apart(history_visit: Visit) -> None:
    tab = history_visit.open_page("kernel/")
    for words in HERE:
        assert tab.locator(".ws-badge", has_text=f"verified and timed on {words}").count() > 0
    tab = history_visit.open_page(PROOF)
    assert tab.locator("h2").all_inner_texts() == [Z1, *HERE, "CPU", "On any machine"]
    for words in HERE:
        device, apart = words.split(", ")
        fold = tab.locator("details.ws-provenance", has_text=f"on {device}").filter(has_text=apart)
        path = fold.first.get_by_text("raw record").get_attribute("href") or ""
        assert path.endswith(f"{SLUG}.json" if words == HERE[1] else f"{SLUG}.2.json")
        assert tab.request.get(f"{history_visit.origin}/evidence/{path}").ok
    captions = tab.locator(".ws-plots figcaption").all_text_contents()
    assert all("driver 5" in caption for caption in captions if G9 in caption)
    assert (history_visit.foreign, history_visit.failed, history_visit.console) == ([], [], [])


@pytest.mark.exhaustive(MORE)
def test_their_disagreement_stands_above_the_times(history_visit: Visit) -> None:
    tab = history_visit.open_page("kernel/")
    said = tab.locator(".ws-apart").first
    assert said.is_visible()
    text = " ".join(said.inner_text().split())
    assert "disagree by more than the spread of both, in 2 of 6 times. Both are kept" in text
    assert "driver 590.1, CUDA 99.0, torch 2.13.0, Triton 3.7.1, SM clock 1980 MHz" in text
    assert "one pass, 4096 × 4096: 130 µs (127 µs to 134 µs) with driver 590.1; 80.0 µs" in text
    plots, above = tab.locator(".ws-plots").bounding_box(), said.bounding_box()
    assert plots and above and above["y"] + above["height"] <= plots["y"]


@pytest.mark.exhaustive(MORE)
def test_what_became_slower_has_its_reason(history_visit: Visit) -> None:
    said = history_visit.open_page("kernel/").locator(".ws-slower").first
    text = " ".join(said.inner_text().split())
    assert text.startswith(f"Slower than before on {HERE[1]}: {WHY}. online, ")
    assert "driver 550.1 → 580.2" in text


@pytest.mark.exhaustive(MORE)
def test_the_history_is_drawn_with_its_changes_and_its_table(history_visit: Visit) -> None:
    tab = history_visit.open_page(PROOF)
    plots = tab.locator("figure", has_text=re.compile("per second over time"))
    plot = plots.filter(has_text="550.1").first
    assert plot.locator(".ws-curve").count() > 3
    assert plot.locator("svg line.ws-changed").count() == 2 + 3  # in the area, in the legend
    for words in ("2: Triton 3.6.0 → 3.7.1", "3: driver 550.1 → 580.2", "version"):
        assert plot.locator("text", has_text=words).is_visible()
    folds = tab.locator("details.ws-history")
    assert folds.count() == 2  # the record that stands beside one was measured once
    fold = folds.filter(has_text="2 are slower than before, 0 faster")
    fold.locator("summary").click()
    rows = fold.locator("tbody").first.locator("tr")
    assert rows.count() == 1 + 3
    newest = rows.nth(1).inner_text()
    assert "1.40× slower" in newest and "driver 550.1 → 580.2" in newest
    assert "15 Jun 2031, commit " in newest
    expect(rows.last).to_contain_text("the first")


@pytest.mark.exhaustive(MORE)
def test_results_have_every_record_and_count_a_kind_once(history_visit: Visit) -> None:
    tab = history_visit.open_page("")
    assert "3 machines" in " ".join(tab.locator(".ws-counts").inner_text().split())
    assert f"{Z1}; {G9}." in tab.locator("article").inner_text()
    tab = history_visit.open_page("results/")
    assert tab.locator("table.ws-results tbody td:nth-child(2)").all_inner_texts() == [
        HERE[1], HERE[0], Z1, "CPU",
    ]  # fmt: skip
    choice = tab.get_by_role("combobox", name="Second machine")
    choice.select_option(f"{SLUG}.2")
    tab.get_by_role("combobox", name="First machine").select_option(SLUG)
    assert f"{HERE[1]}, then {HERE[0]}" in tab.locator(".ws-pair-names").inner_text()
    said = tab.locator(".ws-pair-said").inner_text()
    assert said == f"of 6 times, {HERE[0]} is faster in 1, slower in 1, tied in 4"


@pytest.mark.exhaustive("pages whose kinds are looked at without several records")
@pytest.mark.parametrize("page", ["kernel/", "results/"])
def test_axe_finds_nothing(history_visit: Visit, page: str) -> None:
    tab = history_visit.open_page(page)
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    tab.evaluate(THIN)
    tab.evaluate(AXE)
    found = {}
    for width in (WIDE, NARROW):
        tab.set_viewport_size({"width": width, "height": 4000})
        for scheme, rules in (("default", RULES), ("slate", COLOURS)):
            found[width, scheme] = tab.evaluate(OURS, [scheme, rules])
    tab.set_viewport_size({"width": WIDE, "height": 800})
    assert {where: wrong for where, wrong in found.items() if wrong} == {}


@pytest.mark.exhaustive(MORE)
def test_on_a_phone_only_tables_scroll(browser: Browser, history_origin: str) -> None:
    context = open_context(browser, NARROW)
    tab = Visit(context.new_page(), history_origin).open_page("kernel/")
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW
    assert tab.locator(".ws-apart").first.is_visible()
    context.close()

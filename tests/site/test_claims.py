"""Figures that others state, and no sentence of ours about a GPU that no record has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LIST, ROOT, TOPIC, Trial, sound_snippet
from made_up_records import make_exhibit, make_measured, make_record, make_verified

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import pages
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project
from warpshelf.readings import model
from warpshelf.records import ledger
from warpshelf.render import results
from warpshelf.render.snippet_page import SnippetPage
from warpshelf.site import inspection, project_content

# Figures that others state are checked against the shelf and against our cases.

FIGURE = """\
reported:
- figure: 2.5
  unit: TB/s
  what: Their product
  device: Imaginary G9
  setting: float32
  reading: a-paper
  place: Table 2
  case: {m: 4096}
"""


@pytest.fixture
def recorded_snippet(trial: Trial) -> Snippet:
    """A snippet with a current record of the CPU, whose list of what is due has one timed case."""
    project = Project(trial.root)
    trial.add_page(f"{TOPIC}.yml", LIST)
    trial.add_page(f"{TOPIC}.md", f'# Products\n\n--8<-- "readings/{TOPIC}.md"\n')
    one = snippet.read_snippet(project, trial.add_snippet("sound", sound_snippet()).parent)
    one.results.mkdir()
    found = make_record(0, snippet="sound", digest=one.digest)
    (one.results / "cpu.json").write_text(dump_json(found))
    return one


def write_claims(one: Snippet, text: str) -> Path:
    path = one.folder / "published.yml"
    path.write_text(text)
    return path


def find_claim_faults(one: Snippet, text: str) -> list[str]:
    write_claims(one, text)
    shelf = model.load_shelf(one.project.root)
    return [str(finding) for finding in project_content.check_published(one, shelf)]


def test_a_sound_figure_is_shown_with_the_reading_that_states_it(recorded_snippet: Snippet) -> None:
    assert find_claim_faults(recorded_snippet, FIGURE) == []
    shelf = model.load_shelf(recorded_snippet.project.root)
    shown, findings = project_content.build_snippet_page(
        recorded_snippet, shelf, ledger.load_ledger(recorded_snippet.project)
    )
    [claim] = shown.reported
    assert findings == []
    assert claim.source == ("A paper on products", f"/{TOPIC}.md#reading-a-paper")
    assert claim.url == "https://example.org/products"
    address = "https://example.org/here"
    write_claims(recorded_snippet, f"{FIGURE}  url: {address}\n")
    figures = project_content.load_published(recorded_snippet)[0].reported
    [claim] = project_content.list_claims(figures, shelf)
    assert claim.url == address


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "a-paper",
            "a-papre",
            ":7: the reading 'a-papre' is not on the shelf; write a-paper, or add the reading",
        ),
        ("m: 4096", "m: 4095", ":9: case matches none of the 1 timed cases, not one; give the"),
        ("m: 4096", "n: 2, o: 1", ":9: case matches none of the 1 timed cases"),
        (
            "{m: 4096}",
            "{m: 4096}\n  variant: two pass",
            ":10: variant is 'two pass', which that case does not have; write one of three passes",
        ),
        (
            "2.5\n  unit: TB/s",
            '2.5\n  unit: "%"\n  share_of: none',
            "share_of is 'none', which",
        ),
    ],
)
def test_what_does_not_fit_is_said(
    recorded_snippet: Snippet, old: str, new: str, said: str
) -> None:
    [line] = find_claim_faults(recorded_snippet, FIGURE.replace(old, new))
    assert line.startswith("snippets/sound/published.yml:") and said in line


def test_a_case_that_fits_several_is_said(recorded_snippet: Snippet) -> None:
    path = recorded_snippet.results / "cpu.json"
    due = make_record(0)["due"]
    timed = {**due[0], "case": {"m": 4096, "n": 2}, "timed": True}
    found = make_record(0, snippet="sound", digest=recorded_snippet.digest)
    path.write_text(dump_json(found | {"due": [timed, {**timed, "case": {"m": 4096, "n": 3}}]}))
    [line] = find_claim_faults(recorded_snippet, FIGURE)
    assert "case matches 2 of the 2 timed cases, not one" in line


def test_without_a_current_record_no_case_is_judged(recorded_snippet: Snippet) -> None:
    (recorded_snippet.results / "cpu.json").unlink()
    assert find_claim_faults(recorded_snippet, FIGURE.replace("4096", "1")) == []


def test_a_program_has_no_cases(recorded_snippet: Snippet) -> None:
    [line] = find_claim_faults(replace(recorded_snippet, kind="program"), FIGURE)
    assert "case is given, but a program has no cases; remove it" in line


def test_it_changes_no_digest_and_leaves_the_records_current(recorded_snippet: Snippet) -> None:
    before = recorded_snippet.digest
    write_claims(recorded_snippet, FIGURE)
    project = recorded_snippet.project
    again = snippet.read_snippet(project, recorded_snippet.folder)
    assert again.digest == before
    [found] = project_content.snippet_states(again, ledger.load_ledger(project))[0]
    assert found.state == "verified"


def test_the_check_of_a_project_reads_the_figures(recorded_snippet: Snippet) -> None:
    write_claims(recorded_snippet, FIGURE.replace("TB/s", "TB"))
    said = [str(finding) for finding in inspection.inspect_project(recorded_snippet.project)[0]]
    assert any(line.startswith("snippets/sound/published.yml:3: unit is 'TB'") for line in said)


# No sentence of ours claims a result on a GPU while no record of one is committed, nor denies one.
#
# What changes with the first record is computed where pages are rendered. The README is not
# rendered, so what it says is held against the records here.

DENIAL = "No GPU has been measured yet"
# Pages that speak of this project's own results; what others measured is told on the topic pages.
OURS = ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/results/*.md", "docs/about/*.md",
        "docs/*/index.md", "mkdocs.yml")  # fmt: skip
# Code; and figures that were written from a file beside the page, which says what made them where.
CODE = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)`*$|`[^`\n]+`|<!-- figures\b.*?<!-- end of figures -->",
    re.M | re.S,
)
MODEL = r"(?:NVIDIA|AMD|RTX|[ABHGV]\d{2,3}\w*|MI\d{3}\w*)\b"
NUMBER = r"(?:one|two|three|four|five|several|many|\d+)"
CLAIM = re.compile(
    r"\b(?:measured|timed|benchmarked|ran|run|verified) on (?:an? |the |our )?"
    rf"(?:{NUMBER} )?{MODEL}"
    rf"|\b(?:is|are|was|were|been) (?:verified and )?(?:measured|timed) on {NUMBER} GPUs?\b"
    r"|\b\d+(?:[.,]\d+)? ?(?:[TGP]?FLOP/s|[TG]B/s|[mµ]s)\b"
    r"|\bwe (?:measured|timed)\b"
)


def find_claims(text: str) -> list[str]:
    """What a text claims of a result on a GPU; code and what is denied are left out."""
    plain = " ".join(CODE.sub(" ", text).split())
    sentences = re.split(r"(?<=[.:;!?])\s+", plain)
    denied = re.compile(r"\b(?:no|not|none|never|nobody|nothing|until)\b", re.IGNORECASE)
    return [one for one in sentences if CLAIM.search(one) and not denied.search(one)]


@pytest.mark.parametrize(
    "text",
    [
        "Every kernel is measured on an H100.",
        "Softmax was timed on two GPUs.",
        "Our copy reaches 3.01 TB/s.",
        "It takes 12 µs. Nothing else does.",
        "We see 648 TFLOP/s; we measured it.",
        "Kernels run on NVIDIA A100 and H200 and their times are here: verified on H100.",
    ],
)
def test_a_claim_is_found(text: str) -> None:
    assert find_claims(text)


@pytest.mark.parametrize(
    "text",
    [
        "No kernel has been timed on an H100 yet.",
        "Nothing was measured on one GPU.",
        "`shelf run` times on a GPU: `3.01 TB/s`.",
        "One snippet at a time is timed on a GPU.",
        "A kernel limited by memory is measured against memory.",
    ],
)
def test_what_is_no_claim_is_none(text: str) -> None:
    assert find_claims(text) == []


@pytest.fixture(scope="module")
def shown_pages() -> list[SnippetPage]:
    """The snippets of this repository with their committed records; no checkout's own failures."""
    project = Project(ROOT)
    found = []
    for one in snippet.discover_snippets(project):
        states, _ = project_content.snippet_states(one, ledger.Ledger(project))
        found.append(make_exhibit(*states, id=one.id, kind=one.kind))
    return found


def list_claim_sources() -> list[Path]:
    return sorted({path for pattern in OURS for path in ROOT.glob(pattern)})


def test_the_readme_and_our_pages_claim_no_result_that_is_not_there(
    shown_pages: list[SnippetPage],
) -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    if results.count_snippets(shown_pages).gpus:
        assert DENIAL not in readme, "a GPU has been measured: say so in README.md"
        return
    assert DENIAL in readme
    found = {
        str(path): find_claims(path.read_text(encoding="utf-8")) for path in list_claim_sources()
    }
    assert {path: said for path, said in found.items() if said} == {}
    assert len(found) > 10


def test_no_page_has_typed_what_is_computed() -> None:
    """It would go on denying results after the first one."""
    written, _ = pages.load_pages(Project(ROOT))
    typed = re.compile(
        r"no (?:GPU|kernel|snippet)(?: here)? (?:has|have) (?:yet )?been (?:measured|timed)|"
        r"no (?:time|record of a GPU) is (?:recorded|there)",
        re.IGNORECASE,
    )
    found = {where for where, page in written.items() if typed.search(" ".join(page.text.split()))}
    assert found == set()
    embedded = {
        "index": ("home/machines", "home/invitation"),
        "about/numbers/index": ("results/note",),
    }
    for where, pieces in embedded.items():
        for piece in pieces:
            assert f'--8<-- "{piece}.md"' in written[where].text


def test_the_home_page_and_the_numbers_follow_the_records(shown_pages: list[SnippetPage]) -> None:
    without, with_one = (
        [make_exhibit(make_verified())],
        [make_exhibit(make_measured(), make_verified())],
    )
    assert "no GPU has been measured yet" in results.gpu_texts(without)["home/machines.md"]
    assert "hand in the first" in results.gpu_texts(without)["home/invitation.md"]
    told = {**results.gpu_texts(with_one), "results/summary.md": results.render_counts(with_one)}
    for name, text in told.items():
        assert "no gpu has" not in text.lower()
        assert "yet" not in text and "first" not in text
        assert name == "home/invitation.md" or "Imaginary G9 80GB" in text
    ours = results.count_snippets(shown_pages)
    assert bool(ours.gpus) != (
        "no GPU has been measured yet" in results.gpu_texts(shown_pages)["home/machines.md"]
    )
    assert sum(ours.said[words] for words in results.CLAIMED.values()) == ours.snippets

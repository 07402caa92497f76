"""Figures that others state are checked against the shelf and against our cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import LIST, TOPIC, Trial, sound_snippet
from made_up_records import make_record

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project
from warpshelf.readings import model
from warpshelf.records import ledger
from warpshelf.site import build_snippet_pages, inspection

FIGURE = """\
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
    path = one.folder / "reported.yml"
    path.write_text(text)
    return path


def find_claim_faults(one: Snippet, text: str) -> list[str]:
    write_claims(one, text)
    shelf = model.load_shelf(one.project.root)
    return [str(finding) for finding in build_snippet_pages.check_claims(one, shelf)]


def test_a_sound_figure_is_shown_with_the_reading_that_states_it(recorded_snippet: Snippet) -> None:
    assert find_claim_faults(recorded_snippet, FIGURE) == []
    shelf = model.load_shelf(recorded_snippet.project.root)
    shown, findings = build_snippet_pages.build_snippet_page(
        recorded_snippet, shelf, ledger.load_ledger(recorded_snippet.project)
    )
    [claim] = shown.reported
    assert findings == []
    assert claim.source == ("A paper on products", f"/{TOPIC}.md#reading-a-paper")
    assert claim.url == "https://example.org/products"
    address = "https://example.org/here"
    write_claims(recorded_snippet, f"{FIGURE}  url: {address}\n")
    [claim] = build_snippet_pages.load_claims(recorded_snippet, shelf)[0]
    assert claim.url == address


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "a-paper",
            "a-papre",
            ":6: the reading 'a-papre' is not on the shelf; write a-paper, or add the reading",
        ),
        ("m: 4096", "m: 4095", ":8: case matches none of the 1 timed cases, not one; give the"),
        ("m: 4096", "n: 2, o: 1", ":8: case matches none of the 1 timed cases"),
        (
            "{m: 4096}",
            "{m: 4096}\n  variant: two pass",
            ":9: variant is 'two pass', which that case does not have; write one of three passes",
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
    assert line.startswith("snippets/sound/reported.yml:") and said in line


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
    [found] = build_snippet_pages.snippet_states(again, ledger.load_ledger(project))[0]
    assert found.state == "verified"


def test_the_check_of_a_project_reads_the_figures(recorded_snippet: Snippet) -> None:
    write_claims(recorded_snippet, FIGURE.replace("TB/s", "TB"))
    said = [str(finding) for finding in inspection.inspect_project(recorded_snippet.project)[0]]
    assert any(line.startswith("snippets/sound/reported.yml:2: unit is 'TB'") for line in said)

"""What may be shown of a snippet: its state on each machine, its code, where it stands."""

from __future__ import annotations

import re
from html import unescape

import pytest
from conftest import ROOT, Trial, sound_snippet
from made_up_records import make_compiled, make_record, show_evidence

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import pages
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project
from warpshelf.readings.model import Shelf
from warpshelf.records import ledger
from warpshelf.records.ledger import Ledger
from warpshelf.render import listings
from warpshelf.render.fragments import build_fragments
from warpshelf.site import project_content

SLUG = "imaginary-g9-80gb"


@pytest.fixture
def one_snippet(trial: Trial) -> Snippet:
    project = Project(trial.root)
    return snippet.read_snippet(project, trial.add_snippet("sound", sound_snippet()).parent)


def make_current(one: Snippet, gpus: int = 1, **more: object) -> dict:
    """A record of the present code of `one`."""
    return make_record(gpus, **{"snippet": "sound", "digest": one.digest, **more})


def write_record(one: Snippet, found: dict) -> None:
    one.results.mkdir(exist_ok=True)
    (one.results / f"{found['machine']['slug']}.json").write_text(dump_json(found))


def collect_states(one: Snippet) -> dict[str, str]:
    """The state by machine, with nothing found wrong."""
    states, findings = project_content.snippet_states(one, ledger.load_ledger(one.project))
    assert findings == []
    return {state.machine: state.state for state in states}


def test_a_current_gpu_record_is_measured(one_snippet: Snippet) -> None:
    state = project_content.machine_state(
        one_snippet, SLUG, make_current(one_snippet), Ledger(one_snippet.project)
    )
    assert (state.state, state.machine) == ("measured", SLUG)


def test_a_current_cpu_record_is_verified(one_snippet: Snippet) -> None:
    for more in ({}, {"cases": [], "facts": [{"name": "a"}]}):
        state = project_content.machine_state(
            one_snippet, "cpu", make_current(one_snippet, 0, **more), Ledger(one_snippet.project)
        )
        assert (state.state, state.machine) == ("verified", "cpu")


@pytest.mark.parametrize(
    ("demo_alone", "code", "said"),
    [(True, None, "; its demo run again here"), (False, None, "; verified here"),
     (False, "sha256:" + "0" * 64, "")],
)  # fmt: skip
def test_a_page_says_what_this_checkout_did_beside_the_record(
    one_snippet: Snippet, demo_alone: bool, code: str | None, said: str
) -> None:
    write_record(one_snippet, make_current(one_snippet, 0))
    book = Ledger(one_snippet.project)
    book.save_verdict("sound", "cpu", code or one_snippet.digest, None, demo_alone=demo_alone)
    page = project_content.build_snippet_page(one_snippet, Shelf(), book)[0]
    origin = f"CPU, 6 May 2031, commit abc1234{said}"
    assert f"Checked on {origin}</summary>" in unescape(show_evidence(page))
    assert f"({origin})" in unescape(build_fragments(page)["whole"])


def test_a_cpu_record_of_which_nothing_ran_is_compiled_only(one_snippet: Snippet) -> None:
    skipped = {"name": "product", "role": "variant", "verdict": "skipped", "reason": "no host"}
    peer = {**skipped, "name": "torch", "role": "peer", "verdict": "passed"}
    cases = [{"case": {"m": 1}, "timed": False, "results": [skipped, peer]}]
    skips = [{"what": name, "reason": "no host"} for name in ("product", "other")]
    skips.append({"what": "third", "reason": "no clusters"})
    found = make_current(
        one_snippet, 0, cases=cases, skips=skips, compiled=[make_compiled("sm_90")]
    )
    state = project_content.machine_state(one_snippet, SLUG, found, Ledger(one_snippet.project))
    assert (state.state, state.reason) == ("compiled", "no host; no clusters")


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_record_of_other_code_is_stale(one_snippet: Snippet, gpus: int) -> None:
    found = make_current(one_snippet, gpus)
    one_snippet.path.write_text(one_snippet.path.read_text().replace("eye(2)", "eye(3)"))
    changed = snippet.read_snippet(one_snippet.project, one_snippet.folder)
    assert (
        project_content.machine_state(changed, SLUG, found, Ledger(one_snippet.project)).state
        == "stale"
    )


def test_a_failure_of_the_present_code_here_goes_before_its_record(one_snippet: Snippet) -> None:
    book = Ledger(one_snippet.project)
    book.save_verdict("sound", SLUG, one_snippet.digest, "sound.py: NaN")
    state = project_content.machine_state(one_snippet, SLUG, make_current(one_snippet), book)
    assert (state.state, state.reason) == ("failed", "sound.py: NaN")
    assert (
        project_content.machine_state(one_snippet, "cpu", make_current(one_snippet, 0), book).state
        == "verified"
    )
    book.save_verdict("sound", SLUG, one_snippet.digest, None)
    assert (
        project_content.machine_state(one_snippet, SLUG, make_current(one_snippet), book).state
        == "measured"
    )
    book.save_verdict("sound", SLUG, "sha256:" + "0" * 64, "of other code")
    assert (
        project_content.machine_state(one_snippet, SLUG, make_current(one_snippet), book).state
        == "measured"
    )


def test_without_records_it_is_not_measured(one_snippet: Snippet) -> None:
    assert collect_states(one_snippet) == {"cpu": "not measured"}


def test_why_it_is_not_measured_on_a_cpu_is_told(trial: Trial) -> None:
    text = sound_snippet().replace('{"seconds": 20}', '{"cpu": "clusters need a GPU"}')
    one = snippet.read_snippet(Project(trial.root), trial.add_snippet("sound", text).parent)
    [state], _ = project_content.snippet_states(one, Ledger(one.project))
    assert (state.state, state.reason) == ("not measured", "clusters need a GPU")


def test_every_machine_has_its_state(one_snippet: Snippet) -> None:
    write_record(one_snippet, make_current(one_snippet))
    assert collect_states(one_snippet) == {SLUG: "measured", "cpu": "not measured"}
    write_record(one_snippet, make_current(one_snippet, 0))
    write_record(one_snippet, make_record(snippet="sound", slug="older-g8"))
    assert collect_states(one_snippet) == {SLUG: "measured", "cpu": "verified", "older-g8": "stale"}


def test_a_failure_without_a_record_is_known(one_snippet: Snippet) -> None:
    ledger.load_ledger(one_snippet.project).save_verdict("sound", "cpu", one_snippet.digest, "NaN")
    assert collect_states(one_snippet) == {"cpu": "failed"}


def test_a_damaged_record_is_told_and_shown_nowhere(one_snippet: Snippet) -> None:
    write_record(one_snippet, make_current(one_snippet))
    path = one_snippet.results / f"{SLUG}.json"
    path.write_text(path.read_text()[:-9])
    states, findings = project_content.snippet_states(one_snippet, Ledger(one_snippet.project))
    assert [(state.machine, state.state) for state in states] == [("cpu", "not measured")]
    assert [finding.path for finding in findings] == [f"snippets/sound/results/{SLUG}.json"]


def test_a_broken_snippet_publishes_nothing(one_snippet: Snippet) -> None:
    found = make_current(one_snippet, 0, demo="never to be seen\n")
    write_record(one_snippet, found)
    one_snippet.path.write_text(one_snippet.path.read_text().replace("def demo", "def shown"))
    broken = snippet.read_snippet(one_snippet.project, one_snippet.folder)
    page, findings = project_content.build_snippet_page(
        broken, Shelf(), Ledger(one_snippet.project)
    )
    assert [finding.what for finding in findings] == ["demo is missing"]
    assert page.code == []
    assert [(state.state, state.record) for state in page.states] == [("failed", None)]
    for text in build_fragments(page).values():
        assert "never to be seen" not in text and "torch.matmul" not in text


def test_the_code_has_the_kernels_language_first(one_snippet: Snippet) -> None:
    assert [row[:3] for row in project_content.code_listings(one_snippet)] == [
        ("Python", "python", "sound.py")
    ]
    (one_snippet.folder / "sound.cu").write_text("__global__ void f() {}\n")
    rows = project_content.code_listings(one_snippet)
    assert [row[0] for row in rows] == ["CUDA C++", "Python"]
    assert rows[0][:4] == ("CUDA C++", "cuda", "sound.cu", "__global__ void f() {}\n")
    assert '<a href="../sources/sound/sound.cu" download="sound.cu">' in rows[0].ways
    (one_snippet.folder / "tiles.py").write_text("x = 1\n")
    rows = project_content.code_listings(one_snippet)
    assert [(row.label, row.name) for row in rows[2:]] == [("", "tiles.py")]
    (one_snippet.folder / "tiles.py").unlink()
    text = one_snippet.path.read_text()
    one_snippet.path.write_text(text.replace("import torch\n", "import torch\nimport triton\n"))
    both = snippet.read_snippet(one_snippet.project, one_snippet.folder)
    assert [row[0] for row in project_content.code_listings(both)] == ["Triton", "CUDA C++"]


def test_a_source_that_is_no_reading_is_named_without_a_link(one_snippet: Snippet) -> None:
    page, _ = project_content.build_snippet_page(one_snippet, Shelf(), Ledger(one_snippet.project))
    assert page.sources == [("none", None)]


def test_no_page_shows_a_section_twice() -> None:
    """What a page quotes stands open no more below it: there it includes `folded.md`."""
    twice, seen = [], 0
    project = Project(ROOT)
    ones = {one.id: one for one in snippet.discover_snippets(project)}
    for page in pages.load_pages(project)[0].values():
        wholes = re.findall(r'^\s*--8<-- "(\w+)/whole\.md"', page.text, re.M)
        for one in (ones[name] for name in wholes):
            for item in project_content.code_listings(one):
                opened = f"{one.id}/{item.name}:{listings.open_section(item.text, one.kind)}"
                twice += [f"{page.where}: {opened}"] if f'"{opened}"' in page.text else []
                seen += 1
    assert twice == [] and seen >= 3


def test_pages_are_found_by_what_they_embed(trial: Trial) -> None:
    trial.add_page("a.md", '# A\n\n--8<-- "part/code.md"\n\n--8<-- "both/timing.md"\n')
    trial.add_page("b/c.md", '=== "x"\n\n    --8<-- "both/whole.md"\n--8<-- "idea/idea.md"\n')
    trial.add_page("d.md", '--8<-- "both/whole.md"\n\n;--8<-- "escaped/whole.md"\n')
    trial.add_page("e.md", 'Write `--8<-- "inline/whole.md"`.\n\n--8<-- "unknown/whole.md"\n')
    ids = ("part", "both", "idea", "escaped", "inline", "nowhere")
    assert project_content.snippet_links(pages.load_pages(Project(trial.root))[0], ids) == {
        "part": "/a.md",
        "both": "/b/c.md#snippet-both",
        "idea": "/b/c.md#snippet-idea",
    }

"""What may be shown of a snippet: its state on each machine, its code, where it stands."""

from __future__ import annotations

import re
from html import unescape

import pytest
from conftest import ROOT, Trial, sound_snippet
from made_up_records import compiled, record

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
from warpshelf.site import build_snippet_pages

SLUG = "imaginary-g9-80gb"


@pytest.fixture
def sound(trial: Trial) -> Snippet:
    project = Project(trial.root)
    return snippet.read_snippet(project, trial.snippet("sound", sound_snippet()).parent)


def made(one: Snippet, gpus: int = 1, **more: object) -> dict:
    """A record of the present code of `one`."""
    return record(gpus, **{"snippet": "sound", "digest": one.digest, **more})


def put(one: Snippet, found: dict) -> None:
    one.results.mkdir(exist_ok=True)
    (one.results / f"{found['machine']['slug']}.json").write_text(dump_json(found))


def known(one: Snippet) -> dict[str, str]:
    """The state by machine, with nothing found wrong."""
    states, findings = build_snippet_pages.snippet_states(one, ledger.load_ledger(one.project))
    assert findings == []
    return {state.machine: state.state for state in states}


def test_a_current_gpu_record_is_measured(sound: Snippet) -> None:
    state = build_snippet_pages.machine_state(sound, SLUG, made(sound), Ledger(sound.project))
    assert (state.state, state.machine) == ("measured", SLUG)


def test_a_current_cpu_record_is_verified(sound: Snippet) -> None:
    for more in ({}, {"cases": [], "facts": [{"name": "a"}]}):
        state = build_snippet_pages.machine_state(
            sound, "cpu", made(sound, 0, **more), Ledger(sound.project)
        )
        assert (state.state, state.machine) == ("verified", "cpu")


@pytest.mark.parametrize(
    ("demo_alone", "code", "said"),
    [(True, None, "; its demo run again here"), (False, None, "; verified here"),
     (False, "sha256:" + "0" * 64, "")],
)  # fmt: skip
def test_a_page_says_what_this_checkout_did_beside_the_record(
    sound: Snippet, demo_alone: bool, code: str | None, said: str
) -> None:
    put(sound, made(sound, 0))
    book = Ledger(sound.project)
    book.save_verdict("sound", "cpu", code or sound.digest, None, demo_alone=demo_alone)
    drawn = build_fragments(build_snippet_pages.build_snippet_page(sound, Shelf(), book)[0])
    origin = f"CPU, 6 May 2031, commit abc1234{said}"
    assert f"Checked on {origin}</summary>" in unescape(drawn["provenance"])
    assert f"({origin})" in unescape(drawn["output"])


def test_a_cpu_record_of_which_nothing_ran_is_compiled_only(sound: Snippet) -> None:
    skipped = {"name": "product", "role": "variant", "verdict": "skipped", "reason": "no host"}
    peer = {**skipped, "name": "torch", "role": "peer", "verdict": "passed"}
    cases = [{"case": {"m": 1}, "timed": False, "results": [skipped, peer]}]
    skips = [{"what": name, "reason": "no host"} for name in ("product", "other")]
    skips.append({"what": "third", "reason": "no clusters"})
    found = made(sound, 0, cases=cases, skips=skips, compiled=[compiled("sm_90")])
    state = build_snippet_pages.machine_state(sound, SLUG, found, Ledger(sound.project))
    assert (state.state, state.reason) == ("compiled", "no host; no clusters")


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_record_of_other_code_is_stale(sound: Snippet, gpus: int) -> None:
    found = made(sound, gpus)
    sound.path.write_text(sound.path.read_text().replace("eye(2)", "eye(3)"))
    changed = snippet.read_snippet(sound.project, sound.folder)
    assert (
        build_snippet_pages.machine_state(changed, SLUG, found, Ledger(sound.project)).state
        == "stale"
    )


def test_a_failure_of_the_present_code_here_goes_before_its_record(sound: Snippet) -> None:
    book = Ledger(sound.project)
    book.save_verdict("sound", SLUG, sound.digest, "sound.py: NaN")
    state = build_snippet_pages.machine_state(sound, SLUG, made(sound), book)
    assert (state.state, state.reason) == ("failed", "sound.py: NaN")
    assert build_snippet_pages.machine_state(sound, "cpu", made(sound, 0), book).state == "verified"
    book.save_verdict("sound", SLUG, sound.digest, None)
    assert build_snippet_pages.machine_state(sound, SLUG, made(sound), book).state == "measured"
    book.save_verdict("sound", SLUG, "sha256:" + "0" * 64, "of other code")
    assert build_snippet_pages.machine_state(sound, SLUG, made(sound), book).state == "measured"


def test_without_records_it_is_not_measured(sound: Snippet) -> None:
    assert known(sound) == {"cpu": "not measured"}


def test_why_it_is_not_measured_on_a_cpu_is_told(trial: Trial) -> None:
    text = sound_snippet().replace('{"seconds": 20}', '{"cpu": "clusters need a GPU"}')
    one = snippet.read_snippet(Project(trial.root), trial.snippet("sound", text).parent)
    [state], _ = build_snippet_pages.snippet_states(one, Ledger(one.project))
    assert (state.state, state.reason) == ("not measured", "clusters need a GPU")


def test_every_machine_has_its_state(sound: Snippet) -> None:
    put(sound, made(sound))
    assert known(sound) == {SLUG: "measured", "cpu": "not measured"}
    put(sound, made(sound, 0))
    put(sound, record(snippet="sound", slug="older-g8"))
    assert known(sound) == {SLUG: "measured", "cpu": "verified", "older-g8": "stale"}


def test_a_failure_without_a_record_is_known(sound: Snippet) -> None:
    ledger.load_ledger(sound.project).save_verdict("sound", "cpu", sound.digest, "NaN")
    assert known(sound) == {"cpu": "failed"}


def test_a_damaged_record_is_told_and_shown_nowhere(sound: Snippet) -> None:
    put(sound, made(sound))
    path = sound.results / f"{SLUG}.json"
    path.write_text(path.read_text()[:-9])
    states, findings = build_snippet_pages.snippet_states(sound, Ledger(sound.project))
    assert [(state.machine, state.state) for state in states] == [("cpu", "not measured")]
    assert [finding.path for finding in findings] == [f"snippets/sound/results/{SLUG}.json"]


def test_a_broken_snippet_publishes_nothing(sound: Snippet) -> None:
    found = made(sound, 0, demo="never to be seen\n")
    put(sound, found)
    sound.path.write_text(sound.path.read_text().replace("def demo", "def shown"))
    broken = snippet.read_snippet(sound.project, sound.folder)
    page, findings = build_snippet_pages.build_snippet_page(broken, Shelf(), Ledger(sound.project))
    assert [finding.what for finding in findings] == ["demo is missing"]
    assert page.code == []
    assert [(state.state, state.record) for state in page.states] == [("failed", None)]
    for text in build_fragments(page).values():
        assert "never to be seen" not in text and "torch.matmul" not in text


def test_the_code_has_the_kernels_language_first(sound: Snippet) -> None:
    assert [row[:3] for row in build_snippet_pages.code_listings(sound)] == [
        ("Python", "python", "sound.py")
    ]
    (sound.folder / "sound.cu").write_text("__global__ void f() {}\n")
    rows = build_snippet_pages.code_listings(sound)
    assert [row[0] for row in rows] == ["CUDA C++", "Python"]
    assert rows[0][:4] == ("CUDA C++", "cuda", "sound.cu", "__global__ void f() {}\n")
    assert "](/sources/sound/sound.cu){ download=sound.cu }" in rows[0].ways
    text = sound.path.read_text()
    sound.path.write_text(text.replace("import torch\n", "import torch\nimport triton\n"))
    both = snippet.read_snippet(sound.project, sound.folder)
    assert [row[0] for row in build_snippet_pages.code_listings(both)] == ["Triton", "CUDA C++"]


def test_a_source_that_is_no_reading_is_named_without_a_link(sound: Snippet) -> None:
    page, _ = build_snippet_pages.build_snippet_page(sound, Shelf(), Ledger(sound.project))
    assert page.sources == [("none", None)]


def test_no_page_shows_a_section_twice() -> None:
    """What a page quotes stands open no more below it: there it includes `folded.md`."""
    twice, seen = [], 0
    project = Project(ROOT)
    ones = {one.id: one for one in snippet.discover_snippets(project)}
    for page in pages.load_pages(project)[0].values():
        wholes = re.findall(r'^\s*--8<-- "(\w+)/whole\.md"', page.text, re.M)
        for one in (ones[name] for name in wholes):
            for item in build_snippet_pages.code_listings(one):
                opened = f"{one.id}/{item.name}:{listings.open_section(item.text, one.kind)}"
                twice += [f"{page.where}: {opened}"] if f'"{opened}"' in page.text else []
                seen += 1
    assert twice == [] and seen > 20


def test_pages_are_found_by_what_they_embed(trial: Trial) -> None:
    trial.page("a.md", '# A\n\n--8<-- "part/code.md"\n\n--8<-- "both/timing.md"\n')
    trial.page("b/c.md", '=== "x"\n\n    --8<-- "both/whole.md"\n--8<-- "idea/idea.md"\n')
    trial.page("d.md", '--8<-- "both/whole.md"\n\n;--8<-- "escaped/whole.md"\n')
    trial.page("e.md", 'Write `--8<-- "inline/whole.md"`.\n\n--8<-- "unknown/whole.md"\n')
    ids = ("part", "both", "idea", "escaped", "inline", "nowhere")
    assert build_snippet_pages.snippet_links(pages.load_pages(Project(trial.root))[0], ids) == {
        "part": "/a.md",
        "both": "/b/c.md#snippet-both",
        "idea": "/b/c.md#snippet-idea",
    }

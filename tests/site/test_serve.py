"""The site rendered, built, and served while its sources change."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import LIST, ROOT, TOPIC, Trial, exhaustive, sound_snippet
from made_up_records import make_record
from made_up_views import make_view

from warpshelf.contract import snippet
from warpshelf.core import files as files_of
from warpshelf.core.files import dump_json, write_atomically
from warpshelf.core.project import Project
from warpshelf.look import view_store
from warpshelf.site import build, serve

PAGE = f"""\
# Products

The first words.

--8<-- "readings/{TOPIC}.md"

--8<-- "sound/whole.md"
"""
GLOSSARY = f"""\
- {{term: word, group: tools, forms: [words], at: {TOPIC}.md,
   says: What a text of ours is made of.}}
"""
DEADLINE = 90  # seconds after which a change will never arrive, however busy the machine is


@pytest.fixture
def page_trial(trial: Trial) -> Trial:
    """A project with a snippet and a reading on one page."""
    trial.add_snippet("sound", sound_snippet().replace("Source  none", "Source  a-paper"))
    trial.add_page(f"{TOPIC}.yml", LIST)
    trial.add_page(f"{TOPIC}.md", PAGE)
    return trial


def open_project(trial: Trial) -> Project:
    return Project(trial.root)


def lay_record(trial: Trial, gpus: int = 1, **more: object) -> None:
    """Lay down a record, of the present code unless `more` says otherwise."""
    one = snippet.read_snippet(open_project(trial), trial.root / "snippets" / "sound")
    found = make_record(gpus, **{"snippet": "sound", "digest": one.digest, **more})
    one.results.mkdir(exist_ok=True)
    (one.results / f"{found['machine']['slug']}.json").write_text(dump_json(found))


PUBLISHED = ("evidence", "records", "sources", "views")


def list_rendered_files(trial: Trial) -> dict[str, int]:
    """Every file that a rendering wrote, and when it was written."""
    return {
        path.relative_to(trial.root).as_posix(): path.stat().st_mtime_ns
        for folder in ("build/fragments", *(f"docs/{name}" for name in PUBLISHED))
        for path in (trial.root / folder).rglob("*")
        if path.is_file()
    }


def text_of(html: str) -> str:
    """What a reader sees of a page."""
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_a_second_rendering_writes_nothing(page_trial: Trial) -> None:
    lay_record(page_trial)
    first = build.update_fragments(open_project(page_trial))
    before = list_rendered_files(page_trial)
    assert first.findings == [] and first.changed == len(before) > 12
    assert build.update_fragments(open_project(page_trial)).changed == 0
    assert list_rendered_files(page_trial) == before


def test_what_is_no_longer_due_is_removed(page_trial: Trial) -> None:
    lay_record(page_trial)
    other = page_trial.add_snippet("other", sound_snippet())
    build.update_fragments(open_project(page_trial))
    kept = {name for name in list_rendered_files(page_trial) if "/other" not in name}
    assert kept < list_rendered_files(page_trial).keys()
    shutil.rmtree(other.parent)
    assert build.update_fragments(open_project(page_trial)).changed >= 11
    assert list_rendered_files(page_trial).keys() == kept
    assert not (page_trial.root / "build" / "fragments" / "other").exists()


def test_only_current_records_are_published(page_trial: Trial) -> None:
    lay_record(page_trial)
    lay_record(page_trial, 0)
    lay_record(page_trial, slug="older-g8", digest="sha256:" + "0" * 64)
    build.update_fragments(open_project(page_trial))
    published = page_trial.root / "docs" / "records" / "sound"
    assert sorted(path.name for path in published.iterdir()) == [
        "cpu.json",
        "imaginary-g9-80gb.json",
    ]
    committed = page_trial.root / "snippets/sound/results/imaginary-g9-80gb.json"
    assert json.loads((published / "imaginary-g9-80gb.json").read_text()) == json.loads(
        committed.read_text()
    )


def test_current_views_are_published_one_by_one_and_compressed(page_trial: Trial) -> None:
    one = snippet.read_snippet(open_project(page_trial), page_trial.root / "snippets" / "sound")
    made = [make_view(variant, snippet="sound", source=[]) for variant in ("naive", "tiled")]
    view_store.write_views(one, [*made, make_view("tiled", "sm_80")])
    assert build.update_fragments(open_project(page_trial)).findings == []
    published = {path.name: path for path in (page_trial.root / "docs/views/sound").iterdir()}
    assert sorted(published) == [
        "naive.transpose-naive.sm_90.json.gz",
        "tiled.transpose-tiled.sm_90.json.gz",
    ]
    assert {name: path.read_bytes() for name, path in published.items()} == view_store.page_files(
        one
    )[0]
    proof = (page_trial.root / "docs/evidence/sound.html").read_text()
    assert 'data-look="sound/tiled.transpose-tiled.sm_90"' in proof
    section = files_of.read_sections(one.results / view_store.PACK)["views"]
    section["views"][0]["ptx"]["text"] = ""
    (one.results / view_store.PACK).write_bytes(files_of.pack_json({"views": section}))
    [finding] = build.update_fragments(open_project(page_trial)).findings
    assert finding.path.endswith("results/cpu.xz") and "lists of ptx" in finding.what
    assert len(list((page_trial.root / "docs/views/sound").iterdir())) == 1


def test_a_trace_beside_a_snippet_is_published_as_it_is(page_trial: Trial) -> None:
    kept = page_trial.root / "snippets/sound/one.trace.json"
    kept.write_text('{"traceEvents": [\n{"name": "é"}\n]}\n', encoding="utf-8")
    build.update_fragments(open_project(page_trial))
    published = page_trial.root / "docs/sources/sound/one.trace.json"
    assert published.read_bytes() == kept.read_bytes()
    kept.unlink()
    build.update_fragments(open_project(page_trial))
    assert not published.exists() and (page_trial.root / "docs/sources/sound/sound.py").exists()


def test_a_changed_source_withdraws_what_was_published(page_trial: Trial) -> None:
    lay_record(page_trial)
    one = snippet.read_snippet(open_project(page_trial), page_trial.root / "snippets" / "sound")
    view_store.write_views(one, [make_view(snippet="sound")])
    build.update_fragments(open_project(page_trial))
    assert (page_trial.root / "docs" / "views" / "sound").is_dir()
    whole = page_trial.root / "build/fragments/sound/whole.md"
    assert "row sums" in whole.read_text()
    page_trial.add_snippet("sound", sound_snippet().replace("eye(2)", "eye(3)"))
    build.update_fragments(open_project(page_trial))
    assert not (page_trial.root / "docs" / "records" / "sound").exists()
    assert not (page_trial.root / "docs" / "views" / "sound").exists()
    assert "row sums" not in whole.read_text() and "withheld" in whole.read_text()


def test_a_broken_reading_costs_itself_alone(page_trial: Trial) -> None:
    broken = LIST.replace("a-paper", "b-paper").replace("products", "sums")
    text = LIST + broken.replace("kind: paper", "kind: papier")
    page_trial.add_page(f"{TOPIC}.yml", text)
    done = page_trial.run_shelf("site", "--render-only")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"docs/{TOPIC}.yml:9: kind is 'papier'; write paper")
    fragment = unescape((page_trial.root / f"build/fragments/readings/{TOPIC}.md").read_text())
    assert "reading-a-paper" in fragment and "b-paper" not in fragment


def test_a_broken_reading_leaves_the_build_with_status_1(page_trial: Trial) -> None:
    (page_trial.root / f"docs/{TOPIC}.yml").write_bytes(LIST.encode() + b"- id: [\xff\n")
    done = page_trial.run_process("site")
    assert done.returncode == 1
    assert f"docs/{TOPIC}.yml" in done.stderr and "Traceback" not in done.stderr
    seen = text_of((page_trial.root / "site/kernels/products/index.html").read_text())
    assert "The first words." in seen and "torch.matmul" in seen


def test_a_folder_that_is_no_snippet_costs_nothing_else(page_trial: Trial) -> None:
    (page_trial.root / "snippets" / "Bad-Name").mkdir()
    done = page_trial.run_shelf("site", "--render-only")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("snippets/Bad-Name/Bad-Name.py: 'Bad-Name' is not a snippet id; ")
    assert (page_trial.root / "build/fragments/sound/whole.md").is_file()


def test_the_reference_names_sound_snippets_and_all_modules(page_trial: Trial) -> None:
    page_trial.add_snippet("broken", "x = (\n")
    build.update_fragments(open_project(page_trial))
    folder = page_trial.root / "build/fragments/reference"
    sorts = {path.stem: path.read_text() for path in (folder / "snippets").iterdir()}
    assert sorts.pop("triton") == "::: sound\n"  # docs/kernels shows it
    assert sorts == dict.fromkeys(("cuda", "models", "models-2", "programs", "triton-2"), "\n")
    assert "<summary><code>pool</code>: " in (folder / "tooling.md").read_text()


@pytest.mark.exhaustive("a site, built twice")
def test_a_site_is_not_built_again_unless_something_changed(page_trial: Trial) -> None:
    same = "site/ is up to date: nothing that it shows has changed\n"
    page = page_trial.root / f"site/{TOPIC}/index.html"
    assert page_trial.run_process("site").stdout != same and page.is_file()
    assert page_trial.run_process("site").stdout == same
    page.write_text("spoilt")
    assert page_trial.run_process("site").stdout != same and "The first words." in page.read_text()
    (page_trial.root / "docs" / "picture.svg").write_text("<svg/>")
    assert (
        page_trial.run_process("site").stdout != same
        and (page_trial.root / "site/picture.svg").is_file()
    )
    assert page_trial.run_process("site").stdout == same


@pytest.mark.parametrize("words", [["site"], ["site", "--serve"]])
def test_without_mkdocs_one_line_says_so(
    page_trial: Trial, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None if name == "mkdocs" else object())
    done = page_trial.run_shelf(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "mkdocs: is not installed in this environment; run `make pages`, which installs it\n"
    )
    assert list_rendered_files(page_trial) == {}


# The watcher, by the events that it hears.


def make_event(kind: str, path: Path, to: Path | str = "") -> SimpleNamespace:
    return SimpleNamespace(event_type=kind, src_path=str(path), dest_path=str(to))


def test_the_watcher_hears_what_concerns_it(page_trial: Trial) -> None:
    docs, snippets = page_trial.root / "docs", page_trial.root / "snippets"
    watcher = serve.Watcher(open_project(page_trial))
    for heard in (
        make_event("opened", docs / "a.md"),
        make_event("closed_no_write", docs / "a.md"),
        make_event("modified", docs),
        make_event("modified", docs / ".a.md"),
        make_event("created", docs / "records" / "sound" / "cpu.json"),
        make_event("created", docs / "views" / "sound" / "a.b.sm_90.json.gz"),
        make_event("modified", docs / "picture.svg"),
        make_event("moved", docs / "4913", docs / "a.md~"),
        make_event("modified", snippets / "sound" / "__pycache__" / "sound.cpython-311.pyc"),
    ):
        watcher.dispatch(heard)
        assert watcher.changed == set() and not watcher.news.is_set(), heard
    due = {docs / "a.md", docs / "b.yml", snippets / "c.cu", docs / "d.yml", docs / "e.md"}
    watcher.dispatch(make_event("modified", docs / "a.md"))
    watcher.dispatch(make_event("deleted", docs / "b.yml"))
    watcher.dispatch(make_event("moved", docs / ".tmp12", snippets / "c.cu"))
    watcher.dispatch(make_event("moved", docs / "d.yml", docs / "e.md"))
    assert watcher.changed == due and watcher.news.is_set()


def test_prose_waits_until_its_page_is_shown(page_trial: Trial) -> None:
    page = page_trial.add_page(f"{TOPIC}.md", f"---\ntitle: A\n---\n{PAGE}")
    watcher = serve.Watcher(open_project(page_trial))
    for old, new, prose in (
        ("The first", "Other", True),
        ("title: A", "title: B", False),
        ("sound/whole", "sound/idea", False),
        ("# Products", "# Sums", False),
        ("Other", "More", True),
    ):
        page.write_text(page.read_text().replace(old, new))
        assert watcher.is_prose(page) is prose, new
    assert not watcher.is_prose(page_trial.root / f"docs/{TOPIC}.yml")


def test_a_half_saved_file_ends_no_watching(
    page_trial: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raise_gone(_: Project) -> build.RenderResult:
        raise FileNotFoundError("gone while it was read")

    monkeypatch.setattr(build, "update_fragments", raise_gone)
    serve.Watcher(open_project(page_trial)).handle_changes({page_trial.root / f"docs/{TOPIC}.yml"})
    assert capsys.readouterr().err == "not rendered: gone while it was read\n"


# The server, as a user starts it.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def find_marked_processes(mark: str) -> list[str]:
    """The command lines of the running processes that carry `mark` in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"TRIAL_MARK={mark}".encode() in path.read_bytes():
                found.append(path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def nothing_left(trial: Trial) -> bool:
    """Whether every process that `serve_trial` started has ended, within seconds."""
    deadline = time.monotonic() + 30
    while find_marked_processes(str(trial.root)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return find_marked_processes(str(trial.root)) == []


@contextmanager
def serve_trial(trial: Trial) -> Iterator[tuple[str, subprocess.Popen, Path]]:
    """Serve `trial`: the address, the process, and the file of what it says."""
    address = f"127.0.0.1:{free_port()}"
    log = trial.root / "serve.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "build.py"), "site", "--serve"]
            + ["--address", address],
            cwd=trial.root,
            env={**os.environ, "TRIAL_MARK": str(trial.root)},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield f"http://{address}/", process, log
    finally:
        with suppress(ProcessLookupError):  # a test that has failed leaves nothing behind either
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_shown(
    url: str, words: str, log: Path, seconds: float = DEADLINE, of: Callable[[str], str] = text_of
) -> None:
    """Wait until the page at `url` holds `words` in what `of` takes from it."""
    deadline = time.monotonic() + seconds
    text = ""
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = of(answer.read().decode())
        except (urllib.error.URLError, OSError):
            text = ""
        if words in text:
            return
        time.sleep(0.2)
    pytest.fail(f"{words!r} has not arrived in {seconds} s:\n{log.read_text()[-3000:]}")


proc = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


@proc
def test_every_change_arrives_on_the_served_page(page_trial: Trial) -> None:
    assert page_trial.run_shelf("run").returncode == 0
    with serve_trial(page_trial) as (root, process, log):
        page = f"{root}{TOPIC}/"
        wait_until_shown(page, "The first words.", log, 40)
        page_trial.add_page(f"{TOPIC}.md", PAGE.replace("The first", "Other"))
        wait_until_shown(page, "Other words.", log)
        assert re.findall(r"Rebuilding (\S+)", log.read_text()) == [f"{TOPIC}.md"]
        # As many editors save: the new file is moved over the old one.
        write_atomically(
            page_trial.root / f"docs/{TOPIC}.yml", LIST.replace("A paper on", "Notes on")
        )
        wait_until_shown(page, "Notes on products", log)
        page_trial.add_page("glossary.yml", GLOSSARY)  # which becomes settings of the site
        wait_until_shown(
            page, '<abbr title="What a text of ours is made of.">words</abbr>', log, of=str
        )
        text = (page_trial.root / "snippets/sound/sound.py").read_text()
        page_trial.add_snippet("sound", text.replace("torch.ones(2, 2)", "torch.ones(2, 3)"))
        # what its demo prints now, so it has run again
        wait_until_shown(page, "1.0, 1.0, 1.0", log)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(15) == 0, log.read_text()
        assert nothing_left(page_trial)
    assert "Traceback" not in log.read_text()


@proc
@pytest.mark.parametrize(
    "end",
    exhaustive([signal.SIGTERM, signal.SIGINT], "the server ends in other tests too", 0),
    ids=lambda end: end.name,
)
def test_a_run_under_way_ends_with_the_server(page_trial: Trial, end: int) -> None:
    with serve_trial(page_trial) as (root, process, log):
        wait_until_shown(f"{root}{TOPIC}/", "The first words.", log, 40)
        begins = "def demo(device):"
        endless = sound_snippet().replace(begins, f"{begins}\n    while True: pass\n")
        page_trial.add_snippet("sound", endless.replace('"seconds": 20', '"seconds": 600'))
        deadline = time.monotonic() + DEADLINE
        while "verifying sound" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "verifying sound" in log.read_text()
        os.kill(process.pid, end)
        assert process.wait(15) == 0, log.read_text()
        assert nothing_left(page_trial)

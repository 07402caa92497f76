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
from made_up_records import record
from made_up_views import view

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
def shelf(trial: Trial) -> Trial:
    """A project with a snippet and a reading on one page."""
    trial.snippet("sound", sound_snippet().replace("Source  none", "Source  a-paper"))
    trial.page(f"{TOPIC}.yml", LIST)
    trial.page(f"{TOPIC}.md", PAGE)
    return trial


def project(trial: Trial) -> Project:
    return Project(trial.root)


def put(trial: Trial, gpus: int = 1, **more: object) -> None:
    """Lay down a record, of the present code unless `more` says otherwise."""
    one = snippet.read_snippet(project(trial), trial.root / "snippets" / "sound")
    found = record(gpus, **{"snippet": "sound", "digest": one.digest, **more})
    one.results.mkdir(exist_ok=True)
    (one.results / f"{found['machine']['slug']}.json").write_text(dump_json(found))


def files(trial: Trial) -> dict[str, int]:
    """Every file that a rendering wrote, and when it was written."""
    return {
        path.relative_to(trial.root).as_posix(): path.stat().st_mtime_ns
        for folder in ("build/fragments", "docs/records", "docs/sources", "docs/views")
        for path in (trial.root / folder).rglob("*")
        if path.is_file()
    }


def text_of(html: str) -> str:
    """What a reader sees of a page."""
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_a_second_rendering_writes_nothing(shelf: Trial) -> None:
    put(shelf)
    first = build.update_fragments(project(shelf))
    before = files(shelf)
    assert first.findings == [] and first.changed == len(before) > 12
    assert build.update_fragments(project(shelf)).changed == 0
    assert files(shelf) == before


def test_what_is_no_longer_due_is_removed(shelf: Trial) -> None:
    put(shelf)
    other = shelf.snippet("other", sound_snippet())
    build.update_fragments(project(shelf))
    kept = {name for name in files(shelf) if "/other/" not in name}
    assert kept < files(shelf).keys()
    shutil.rmtree(other.parent)
    assert build.update_fragments(project(shelf)).changed >= 11
    assert files(shelf).keys() == kept
    assert not (shelf.root / "build" / "fragments" / "other").exists()


def test_only_current_records_are_published(shelf: Trial) -> None:
    put(shelf)
    put(shelf, 0)
    put(shelf, slug="older-g8", digest="sha256:" + "0" * 64)
    build.update_fragments(project(shelf))
    published = shelf.root / "docs" / "records" / "sound"
    assert sorted(path.name for path in published.iterdir()) == [
        "cpu.json",
        "imaginary-g9-80gb.json",
    ]
    committed = shelf.root / "snippets/sound/results/imaginary-g9-80gb.json"
    assert json.loads((published / "imaginary-g9-80gb.json").read_text()) == json.loads(
        committed.read_text()
    )


def test_current_views_are_published_one_by_one_and_compressed(shelf: Trial) -> None:
    one = snippet.read_snippet(project(shelf), shelf.root / "snippets" / "sound")
    made = [view(variant, snippet="sound", source=[]) for variant in ("naive", "tiled")]
    view_store.write_views(one, [*made, view("tiled", "sm_80")])
    assert build.update_fragments(project(shelf)).findings == []
    published = {path.name: path for path in (shelf.root / "docs/views/sound").iterdir()}
    assert sorted(published) == [
        "naive.transpose-naive.sm_90.json.gz",
        "tiled.transpose-tiled.sm_90.json.gz",
    ]
    assert {name: path.read_bytes() for name, path in published.items()} == view_store.page_files(
        one
    )[0]
    whole = (shelf.root / "build/fragments/sound/whole.md").read_text()
    assert 'data-look="sound/tiled.transpose-tiled.sm_90"' in whole
    section = files_of.read_sections(one.results / view_store.PACK)["views"]
    section["views"][0]["ptx"]["text"] = ""
    (one.results / view_store.PACK).write_bytes(files_of.pack_json({"views": section}))
    [finding] = build.update_fragments(project(shelf)).findings
    assert finding.path.endswith("results/cpu.xz") and "lists of ptx" in finding.what
    assert len(list((shelf.root / "docs/views/sound").iterdir())) == 1


def test_a_trace_beside_a_snippet_is_published_as_it_is(shelf: Trial) -> None:
    kept = shelf.root / "snippets/sound/one.trace.json"
    kept.write_text('{"traceEvents": [\n{"name": "é"}\n]}\n', encoding="utf-8")
    build.update_fragments(project(shelf))
    published = shelf.root / "docs/sources/sound/one.trace.json"
    assert published.read_bytes() == kept.read_bytes()
    kept.unlink()
    build.update_fragments(project(shelf))
    assert not published.exists() and (shelf.root / "docs/sources/sound/sound.py").exists()


def test_a_changed_source_withdraws_what_was_published(shelf: Trial) -> None:
    put(shelf)
    one = snippet.read_snippet(project(shelf), shelf.root / "snippets" / "sound")
    view_store.write_views(one, [view(snippet="sound")])
    build.update_fragments(project(shelf))
    assert (shelf.root / "docs" / "views" / "sound").is_dir()
    whole = shelf.root / "build/fragments/sound/whole.md"
    assert "row sums" in whole.read_text()
    shelf.snippet("sound", sound_snippet().replace("eye(2)", "eye(3)"))
    build.update_fragments(project(shelf))
    assert not (shelf.root / "docs" / "records" / "sound").exists()
    assert not (shelf.root / "docs" / "views" / "sound").exists()
    assert "row sums" not in whole.read_text() and "withheld" in whole.read_text()


def test_a_broken_reading_costs_itself_alone(shelf: Trial) -> None:
    broken = LIST.replace("a-paper", "b-paper").replace("products", "sums")
    text = LIST + broken.replace("kind: paper", "kind: papier")
    shelf.page(f"{TOPIC}.yml", text)
    done = shelf.shelf("site", "--render-only")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"docs/{TOPIC}.yml:9: kind is 'papier'; write paper")
    fragment = unescape((shelf.root / f"build/fragments/readings/{TOPIC}.md").read_text())
    assert "reading-a-paper" in fragment and "b-paper" not in fragment


def test_a_broken_reading_leaves_the_build_with_status_1(shelf: Trial) -> None:
    (shelf.root / f"docs/{TOPIC}.yml").write_bytes(LIST.encode() + b"- id: [\xff\n")
    done = shelf.process("site")
    assert done.returncode == 1
    assert f"docs/{TOPIC}.yml" in done.stderr and "Traceback" not in done.stderr
    seen = text_of((shelf.root / "site/kernels/products/index.html").read_text())
    assert "The first words." in seen and "torch.matmul" in seen


def test_a_folder_that_is_no_snippet_costs_nothing_else(shelf: Trial) -> None:
    (shelf.root / "snippets" / "Bad-Name").mkdir()
    done = shelf.shelf("site", "--render-only")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("snippets/Bad-Name/Bad-Name.py: 'Bad-Name' is not a snippet id; ")
    assert (shelf.root / "build/fragments/sound/whole.md").is_file()


def test_the_reference_names_sound_snippets_and_all_modules(shelf: Trial) -> None:
    shelf.snippet("broken", "x = (\n")
    build.update_fragments(project(shelf))
    folder = shelf.root / "build/fragments/reference"
    sorts = {path.stem: path.read_text() for path in (folder / "snippets").iterdir()}
    assert sorts.pop("triton") == "::: sound\n"
    assert sorts == dict.fromkeys(("cuda", "models", "programs"), "\n")
    assert "<summary><code>pool</code>: " in (folder / "tooling.md").read_text()


@pytest.mark.exhaustive("a site, built twice")
def test_a_site_is_not_built_again_unless_something_changed(shelf: Trial) -> None:
    same = "site/ is up to date: nothing that it shows has changed\n"
    page = shelf.root / f"site/{TOPIC}/index.html"
    assert shelf.process("site").stdout != same and page.is_file()
    assert shelf.process("site").stdout == same
    page.write_text("spoilt")
    assert shelf.process("site").stdout != same and "The first words." in page.read_text()
    (shelf.root / "docs" / "picture.svg").write_text("<svg/>")
    assert shelf.process("site").stdout != same and (shelf.root / "site/picture.svg").is_file()
    assert shelf.process("site").stdout == same


@pytest.mark.parametrize("words", [["site"], ["site", "--serve"]])
def test_without_mkdocs_one_line_says_so(
    shelf: Trial, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setattr(build, "find_spec", lambda name: None if name == "mkdocs" else object())
    done = shelf.shelf(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "mkdocs: is not installed in this environment; run `make pages`, which installs it\n"
    )
    assert files(shelf) == {}


# The watcher, by the events that it hears.


def event(kind: str, path: Path, to: Path | str = "") -> SimpleNamespace:
    return SimpleNamespace(event_type=kind, src_path=str(path), dest_path=str(to))


def test_the_watcher_hears_what_concerns_it(shelf: Trial) -> None:
    docs, snippets = shelf.root / "docs", shelf.root / "snippets"
    watcher = serve.Watcher(project(shelf))
    for heard in (
        event("opened", docs / "a.md"),
        event("closed_no_write", docs / "a.md"),
        event("modified", docs),
        event("modified", docs / ".a.md"),
        event("created", docs / "records" / "sound" / "cpu.json"),
        event("created", docs / "views" / "sound" / "a.b.sm_90.json.gz"),
        event("modified", docs / "picture.svg"),
        event("moved", docs / "4913", docs / "a.md~"),
        event("modified", snippets / "sound" / "__pycache__" / "sound.cpython-311.pyc"),
    ):
        watcher.dispatch(heard)
        assert watcher.changed == set() and not watcher.news.is_set(), heard
    due = {docs / "a.md", docs / "b.yml", snippets / "c.cu", docs / "d.yml", docs / "e.md"}
    watcher.dispatch(event("modified", docs / "a.md"))
    watcher.dispatch(event("deleted", docs / "b.yml"))
    watcher.dispatch(event("moved", docs / ".tmp12", snippets / "c.cu"))
    watcher.dispatch(event("moved", docs / "d.yml", docs / "e.md"))
    assert watcher.changed == due and watcher.news.is_set()


def test_prose_waits_until_its_page_is_shown(shelf: Trial) -> None:
    page = shelf.page(f"{TOPIC}.md", f"---\ntitle: A\n---\n{PAGE}")
    watcher = serve.Watcher(project(shelf))
    for old, new, prose in (
        ("The first", "Other", True),
        ("title: A", "title: B", False),
        ("sound/whole", "sound/idea", False),
        ("# Products", "# Sums", False),
        ("Other", "More", True),
    ):
        page.write_text(page.read_text().replace(old, new))
        assert watcher.is_prose(page) is prose, new
    assert not watcher.is_prose(shelf.root / f"docs/{TOPIC}.yml")


def test_a_half_saved_file_ends_no_watching(
    shelf: Trial, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Project) -> build.RenderResult:
        raise FileNotFoundError("gone while it was read")

    monkeypatch.setattr(build, "update_fragments", fail)
    serve.Watcher(project(shelf)).handle_changes({shelf.root / f"docs/{TOPIC}.yml"})
    assert capsys.readouterr().err == "not rendered: gone while it was read\n"


# The server, as a user starts it.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def marked(mark: str) -> list[str]:
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
    """Whether every process that `served` started has ended, within seconds."""
    deadline = time.monotonic() + 30
    while marked(str(trial.root)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return marked(str(trial.root)) == []


@contextmanager
def served(trial: Trial) -> Iterator[tuple[str, subprocess.Popen, Path]]:
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


def arrives(
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
def test_every_change_arrives_on_the_served_page(shelf: Trial) -> None:
    assert shelf.shelf("run").returncode == 0
    with served(shelf) as (root, process, log):
        page = f"{root}{TOPIC}/"
        arrives(page, "The first words.", log, 40)
        shelf.page(f"{TOPIC}.md", PAGE.replace("The first", "Other"))
        arrives(page, "Other words.", log)
        assert re.findall(r"Rebuilding (\S+)", log.read_text()) == [f"{TOPIC}.md"]
        # As many editors save: the new file is moved over the old one.
        write_atomically(shelf.root / f"docs/{TOPIC}.yml", LIST.replace("A paper on", "Notes on"))
        arrives(page, "Notes on products", log)
        shelf.page("glossary.yml", GLOSSARY)  # which becomes settings of the site
        arrives(page, '<abbr title="What a text of ours is made of.">words</abbr>', log, of=str)
        text = (shelf.root / "snippets/sound/sound.py").read_text()
        shelf.snippet("sound", text.replace("torch.ones(2, 2)", "torch.ones(2, 3)"))
        arrives(page, "1.0, 1.0, 1.0", log)  # what its demo prints now, so it has run again
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(15) == 0, log.read_text()
        assert nothing_left(shelf)
    assert "Traceback" not in log.read_text()


@proc
@pytest.mark.parametrize(
    "end",
    exhaustive([signal.SIGTERM, signal.SIGINT], "each of the signals"),
    ids=lambda end: end.name,
)
def test_a_run_under_way_ends_with_the_server(shelf: Trial, end: int) -> None:
    with served(shelf) as (root, process, log):
        arrives(f"{root}{TOPIC}/", "The first words.", log, 40)
        begins = "def demo(device):"
        endless = sound_snippet().replace(begins, f"{begins}\n    while True: pass\n")
        shelf.snippet("sound", endless.replace('"seconds": 20', '"seconds": 600'))
        deadline = time.monotonic() + DEADLINE
        while "verifying sound" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "verifying sound" in log.read_text()
        os.kill(process.pid, end)
        assert process.wait(15) == 0, log.read_text()
        assert nothing_left(shelf)

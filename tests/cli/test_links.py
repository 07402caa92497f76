"""`shelf links`: readings added from flags, the web and answers; what was found, told."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import ROOT, Trial
from hypothesis import given
from hypothesis import strategies as st
from reading_project import FIELDS, FIRST, URL, make_project, read_files, read_list
from typer.testing import CliRunner
from web_server import Web, serve_web

from warpshelf.cli import commands, links
from warpshelf.links.check_links import CheckResult, list_links
from warpshelf.links.health import Health, clean_title
from warpshelf.readings import model
from warpshelf.readings.model import load_shelf
from warpshelf.web import fetch

# `shelf links add`: from flags, from the web, from answers; and what it says.

FLAGS = ["--title", FIELDS["title"], "--kind", "post", "--why", FIELDS["why"]]
PAPER = "https://arxiv.org/abs/2309.06180"


@pytest.fixture
def reading_trial(tmp_path: Path) -> Trial:
    return Trial(make_project(tmp_path))


@pytest.fixture
def metadata_web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    with serve_web() as server:
        server.set_recorded_answer("/arxiv", "arxiv.xml", "application/atom+xml")
        monkeypatch.setattr(links, "_endpoints", lambda: server.endpoints)
        yield server


def add_link(shelf: Trial, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    return shelf.run_shelf("links", "add", url, "--topic", "kernels/softmax", *words)


def test_the_command_line_starts_without_the_extras() -> None:
    extras = "{'pydantic', 'rapidfuzz', 'httpx'}"
    code = f"import sys, warpshelf.cli.commands; print(*{extras} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_flags_are_enough_offline(reading_trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "create_client", lambda: pytest.fail("the web was asked"))
    flags = ["--year", "2024", "--author", "Ada", "--author", "Bob", "--tag", "gpu", "--rating",
             "3", "--snippet", "softmax", "--level", "beginner", "--needs", "online-softmax",
             "--venue", "A blog", "--also", "code=https://github.com/a/b.git", "--also",
             "published=https://dl.acm.org/doi/10.1145/1.2"]  # fmt: skip
    done = add_link(reading_trial, URL, "--offline", *FLAGS, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("docs/kernels/softmax.yml:7: added 'how-a-gpu-waits'\n- id: how")
    assert done.stdout.endswith(read_list(reading_trial.root).removeprefix(FIRST))
    reading = load_shelf(reading_trial.root).readings["how-a-gpu-waits"]
    assert (reading.authors, reading.tags, reading.year) == (["Ada", "Bob"], ["gpu"], 2024)
    assert (reading.snippets, reading.needs, reading.rating) == (["softmax"], ["online-softmax"], 3)
    assert [(version.what, version.url) for version in reading.also] == [
        ("code", "https://github.com/a/b"),
        ("published", "https://doi.org/10.1145/1.2"),
    ]


def test_what_the_web_says_is_filled_in(reading_trial: Trial, metadata_web: Web) -> None:
    done = add_link(reading_trial, "https://arxiv.org/pdf/2309.06180", "--why", "How pages help.",
               "--venue", "SOSP 2024", "--year", "2024", "--json")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["title"][:26], said["year"]) == ("Efficient Memory Managemen", 2024)
    assert said["authors"] == ["Woosuk Kwon", "Zhuohan Li", "Siyuan Zhuang"]
    assert (said["kind"], said["venue"], said["url"]) == ("paper", "SOSP 2024", PAPER)
    doi = "https://doi.org/10.1145/3600006.3613165"
    assert said["also"] == [{"what": "published", "url": doi}]
    assert (said["path"], said["line"]) == ("docs/kernels/softmax.yml", 7)


def test_without_a_network_the_flags_are_enough(reading_trial: Trial, metadata_web: Web) -> None:
    metadata_web.set_answer("/arxiv", "busy", status=503)
    done = add_link(reading_trial, PAPER, *FLAGS)
    assert done.returncode == 0
    assert done.stderr == ("note: the lookup failed: 127.0.0.1 answers 503 Service Unavailable\n")
    assert "how-a-gpu-waits" in load_shelf(reading_trial.root).readings


def test_an_address_that_tells_nothing_is_no_trouble(
    reading_trial: Trial, metadata_web: Web
) -> None:
    metadata_web.set_answer("/pages/example.org/a-post", "%PDF-1.7", "application/pdf")
    done = add_link(reading_trial, URL, *FLAGS)
    assert done.returncode == 0 and done.stderr.startswith("note: the address gave nothing")


def test_another_title_is_noted(reading_trial: Trial, metadata_web: Web) -> None:
    done = add_link(reading_trial, PAPER, *FLAGS)
    assert done.returncode == 0 and done.stderr.count("\n") == 1
    assert "note: the title is given as 'How a GPU waits', found as 'Efficient" in done.stderr


def test_a_repository_that_moved_is_added_where_it_is(
    reading_trial: Trial, metadata_web: Web
) -> None:
    metadata_web.set_recorded_answer("/repositories/1", "github.json", "application/json")
    metadata_web.set_redirect("/repos/rrze/gpu-benches", f"{metadata_web.base}/repositories/1")
    done = add_link(reading_trial, "https://github.com/RRZE/gpu-benches", "--why", "W.")
    assert done.returncode == 0
    assert "used here: https://github.com/te42kyfo/gpu-benches\n" in done.stderr
    assert (
        load_shelf(reading_trial.root).readings["gpu-benches"].url
        == "https://github.com/te42kyfo/gpu-benches"
    )


def test_what_the_web_says_cannot_colour_the_terminal(
    reading_trial: Trial, metadata_web: Web
) -> None:
    metadata_web.set_answer(
        "/pages/example.org/a-post", "<title>\x1b[31mRed &#27;]0;x&#7; \u202etxt</title>"
    )
    done = add_link(reading_trial, URL, "--kind", "post", "--why", "W.")
    assert done.returncode == 0
    assert not {"\x1b", "\x07", "\u202e"} & {
        *done.stdout,
        *done.stderr,
        *read_list(reading_trial.root),
    }


def test_a_dry_run_prints_the_entry_and_nothing_else(
    reading_trial: Trial, metadata_web: Web
) -> None:
    before = read_files(reading_trial.root)
    done = add_link(reading_trial, PAPER, "--why", "W.", "--dry-run")
    assert done.returncode == 0 and done.stdout.startswith("- id: efficient-memory-management-for")
    assert done.stderr == "" and read_files(reading_trial.root) == before


def test_what_is_wrong_is_said_on_one_line_before_the_web_is_asked(
    reading_trial: Trial, metadata_web: Web
) -> None:
    before = read_files(reading_trial.root)
    where = "docs/kernels/softmax.yml: "
    for url, flags, said in (
        ("https://arxiv.org/abs/1805.02867", [],
         f"{where}arxiv:1805.02867 is on the shelf already, as 'Online normalizer calculation for "
         "softmax' (online-softmax); see docs/kernels/softmax.yml:2\n"),
        ("nonsense", [], f"{where}the URL 'nonsense' does not start with https:// and a host; "
         "write it as https://…\n"),
        (URL, ["--also", "github.com/a/b"], "--also: is 'github.com/a/b'; write what=url, such as "
         "--also code=https://github.com/a/b\n"),
        (URL, ["--also", "code=here"], "--also: the URL 'here' does not start with https:// and a "
         "host; write it as https://…\n"),
    ):  # fmt: skip
        done = add_link(reading_trial, url, *flags)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert not metadata_web.asked and read_files(reading_trial.root) == before
    done = add_link(reading_trial, URL, "--offline")
    assert done.stderr == f"{where}an entry needs title, kind, why; add --title, --kind, --why\n"
    assert reading_trial.run_shelf("links", "add", URL).returncode == 2


# In a terminal.

runner = CliRunner()


def answer_questions(
    shelf: Trial, monkeypatch: pytest.MonkeyPatch, url: str, answers: list[str], *words: str
) -> tuple[int, str]:
    monkeypatch.setattr(links, "_is_interactive", lambda: True)
    monkeypatch.chdir(shelf.root)
    asked = ["links", "add", url, "--topic", "kernels/softmax", *words]
    given = "".join(f"{line}\n" for line in answers)
    done = runner.invoke(commands._with_links(asked), asked, input=given)
    return done.exit_code, done.output


def test_enter_accepts_what_was_found(
    reading_trial: Trial, metadata_web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, said = answer_questions(
        reading_trial, monkeypatch, PAPER, ["", "", "", "", "SOSP 2023", "", "", "W."]
    )
    assert status == 0, said
    reading = load_shelf(reading_trial.root).readings["efficient-memory-management-for-large"]
    assert (reading.venue, reading.year, reading.level) == ("SOSP 2023", 2023, None)
    assert reading.authors == ["Woosuk Kwon", "Zhuohan Li", "Siyuan Zhuang"] and reading.also
    assert "Kind (paper, post, talk, code, docs, course, book, tool, site) [paper]: " in said
    assert "Level (beginner, intermediate, advanced): " in said
    assert "at most 300 characters: " in said


def test_a_wrong_answer_is_asked_for_again(
    reading_trial: Trial, metadata_web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["", "papr", "paper", "-", "soon", "-", "", "expert", "advanced"]
    answers += ["GPU", "gpu, memory", "", "x" * 301, "W."]
    status, said = answer_questions(reading_trial, monkeypatch, PAPER, answers)
    assert status == 0, said
    for line in (
        "  kind is 'papr'; write paper", "  year is 'soon'; write a whole number",
        "  level is 'expert'; write one of beginner, intermediate, advanced",
        "  tags 1 is 'GPU'", "  an entry needs why", "  why has 301 characters, over the limit",
    ):  # fmt: skip
        assert line in said
    [reading] = load_shelf(reading_trial.root).topics["kernels/softmax"].readings[1:]
    assert (reading.authors, reading.year, reading.venue) == ([], None, "arXiv")
    assert (reading.level, reading.tags, reading.why) == ("advanced", ["gpu", "memory"], "W.")


def test_flags_are_not_asked_for(reading_trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*FLAGS, "--offline", "--author", "Ada", "--year", "2024", "--tag", "gpu"]
    status, said = answer_questions(reading_trial, monkeypatch, URL, ["", "beginner"], *words)
    assert status == 0, said
    asked = re.findall(r"^(Title|Kind|Authors|Year|Venue|Level|Tags|Why)\b", said, re.MULTILINE)
    assert asked == ["Venue", "Level"]
    assert load_shelf(reading_trial.root).readings["how-a-gpu-waits"].level == "beginner"


def test_a_title_in_another_script_asks_for_its_language(
    reading_trial: Trial, metadata_web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata_web.set_answer(
        "/pages/example.org/a-post", "<html lang=zh-CN><title>流水线并行</title>"
    )
    answers = ["", "en", "", "", "Pipelines", "post", "", "", "", "", "", "W."]
    status, said = answer_questions(reading_trial, monkeypatch, URL, answers)
    assert status == 0, said
    assert "  title is not in English; set lang" in said and "  an entry needs title_en" in said
    reading = load_shelf(reading_trial.root).readings["pipelines"]
    assert (reading.title, reading.lang, reading.title_en) == ("流水线并行", "zh", "Pipelines")


def test_what_the_work_says_of_itself_is_shown_and_not_written(
    reading_trial: Trial, metadata_web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata_web.set_recorded_answer(
        "/repos/te42kyfo/gpu-benches", "github.json", "application/json"
    )
    url = "https://github.com/te42kyfo/gpu-benches"
    status, said = answer_questions(
        reading_trial, monkeypatch, url, ["", "", "", "", "", "", "", "W."]
    )
    assert status == 0 and "its own summary: collection of benchmarks" in said
    assert "collection" not in read_list(reading_trial.root)


def test_an_end_of_the_answers_writes_nothing(
    reading_trial: Trial, metadata_web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_files(reading_trial.root)
    status, said = answer_questions(reading_trial, monkeypatch, PAPER, ["", ""])
    assert status == 1 and "Abort" in said and read_files(reading_trial.root) == before


def test_answers_that_cannot_be_written_are_given_back(
    reading_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    title = "Online normalizer calculation for softmax"
    answers = [title, "post", "", "", "", "", "", "Why it is worth it."]
    status, said = answer_questions(reading_trial, monkeypatch, URL, answers, "--offline")
    assert status == 1 and read_list(reading_trial.root) == FIRST
    assert f"nothing was written; your answers were:\n- title: {title}\n" in said
    assert "  why: Why it is worth it." in said


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal(reading_trial: Trial, metadata_web: Web) -> None:
    """As a person does it: a process of its own at a pseudo-terminal."""
    import pty

    code = (
        "import sys\nfrom warpshelf.cli import commands as cli, links\n"
        "from warpshelf.web.services import Endpoints\n"
        f"links._endpoints = lambda: {metadata_web.endpoints!r}\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    words = ["links", "add", PAPER, "--topic", "kernels/softmax"]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "PYTHONPATH": str(ROOT / "scripts")}
    process = subprocess.Popen([sys.executable, "-c", code, *words], cwd=reading_trial.root,
                               stdin=theirs, stdout=theirs, stderr=theirs,
                               env=environment)  # fmt: skip
    os.close(theirs)
    said, answers = "", iter(["", "", "", "", "", "", "", "How pages help."])
    until = time.monotonic() + 60
    with suppress(OSError):  # the end of a pseudo-terminal
        while time.monotonic() < until and process.poll() is None:
            if select.select([ours], [], [], 0.2)[0]:
                said += os.read(ours, 4096).decode(errors="replace")
                if said.endswith(": "):
                    os.write(ours, f"{next(answers)}\n".encode())
                    said += "\n"
    assert process.wait(10) == 0, said
    os.close(ours)
    [reading] = load_shelf(reading_trial.root).topics["kernels/softmax"].readings[1:]
    assert (reading.why, reading.year) == ("How pages help.", 2023)


# What was found, as lines and as Markdown: text from the web acts nowhere.

AT = "https://site.example.org"
HOSTILE = (
    "::error::x @everyone <script>alert(1)</script> `x` [a](https://evil.example.org) "
    "![b](//c) #12 owner/repo#3 ##[add-matcher]x | ``` </code><img src=x> &amp; a\\_b"
)
STATES = {
    "gone": Health("gone", since="2026-11-01", last_alive="2026-10-01", says="answered 404",
                   archived="https://web.archive.org/web/2020/x"),
    "moved": Health("moved", since="2026-11-01", moved_to="https://new.example.org/@you/x"),
    "titled": Health("alive", last_alive="2026-11-01", title_there=HOSTILE),
    "failing": Health("failing", since="2026-11-01", says="timed out"),
    "silent": Health("unreachable", since="2026-11-01", says="gave no answer"),
    "blocked": Health("blocked", since="2026-11-01", says="answered 403"),
    "alive": Health("alive", last_alive="2026-11-01"),
}  # fmt: skip


def make_survey(root: Path, states: dict[str, Health], ours: str = "Ours") -> CheckResult:
    """A survey of a list with a link for each state, in their order; arXiv's where a title is."""
    entries, health = [], {}
    for number, (name, state) in enumerate(states.items()):
        url = f"https://arxiv.org/abs/2309.{number:05}" if state.title_there else f"{AT}/{name}"
        entries.append(
            {"id": name, "title": f"{ours} {number}", "url": url, "kind": "post", "why": "W."}
        )
        health[url] = state
    (root / "docs").mkdir(exist_ok=True)
    (root / "docs" / "tiles.yml").write_text(json.dumps(entries, indent=0))
    shelf = model.load_shelf(root)
    assert not shelf.findings
    return CheckResult(list(list_links(shelf).values()), health, len(states), 0, 0)


def test_lines_stand_in_groups_with_a_place_each(tmp_path: Path) -> None:
    found = links.report_lines(make_survey(tmp_path, STATES))
    heads = [line for line in found if re.fullmatch(r"[A-Z][^:]*: \d+", line)]
    assert heads == [
        "Gone: 1", "Moved permanently: 1", "Different title: 1",
        "Failing, not yet long enough to be gone: 1", "No answer in several checks: 1",
        "Blocks programs: 1",
    ]  # fmt: skip
    assert found[1] == (
        f"docs/tiles.yml:5: {AT}/gone is gone since 2026-11-01, alive 2026-10-01: "
        "it answered 404; link another, or the archived copy https://web.archive.org/web/2020/x"
    )
    assert found[-1] == "7 links, 2 alive, 7 checked now" and len(found) == 13
    assert all(
        line.startswith("docs/tiles.yml:") for line in found if line not in heads[:] + found[-1:]
    )


def test_what_was_left_is_said(tmp_path: Path) -> None:
    found = make_survey(tmp_path, {"alive": STATES["alive"]})
    found.fresh, found.left, found.unread = 3, 2, 1
    assert links.report_lines(found) == [
        "1 link, 1 alive, 1 checked now, 3 seen alive recently and skipped, "
        "2 left for the next check, lists with errors left out: see `shelf check`"
    ]


def assert_inert(text: str) -> None:
    """Fail where `text` holds more markup than the report itself writes."""
    bare = re.sub(r"^## [A-Z][A-Za-z, ]*: \d+$", "", text, flags=re.M)
    bare = re.sub(r'<a href="[\w&#;]+">([\w&#;]+)</a>', r"\1", bare)
    bare = re.sub(r"<code>([^<>]*)</code>", r"\1", bare)
    bare = re.sub(r"^- ([\w&#;]+): ", r"\1", bare, flags=re.M)
    bare = re.sub(r"&#\d+;", "", bare)
    assert not re.search(r"[<>@`\[\]#|*_~!\\:/]", bare), bare


def test_markdown_holds_no_markup_of_others(tmp_path: Path) -> None:
    found = make_survey(tmp_path, STATES)
    text = links.report_markdown(found, "https://github.com/warpshelf/warpshelf")
    assert_inert(text)
    assert "## Different title: 1" in text and "everyone" in text
    place = "https&#58;&#47;&#47;github&#46;com&#47;warpshelf&#47;warpshelf&#47;blob&#47;main"
    assert f'<a href="{place}&#47;docs&#47;tiles&#46;yml&#35;L5">' in text
    # Whatever names a person stands in <code>, where GitHub notifies nobody.
    for name in re.findall(r".*(?:everyone|&#64;).*", text):
        assert re.search(r"<code>.*(?:everyone|&#64;).*</code>", name)


@given(st.text(min_size=1, max_size=200))
def test_no_text_acts(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    kept = clean_title(text)
    if kept is None:
        return
    state = Health("alive", last_alive="2026-11-01", title_there=kept)
    found = make_survey(tmp_path_factory.mktemp("any"), {"one": state})
    assert_inert(links.report_markdown(found))
    for line in links.report_lines(found):
        assert line.isprintable() and re.match(r"(?:docs/tiles\.yml:\d+: |[A-Z]|1 link, )", line)


def test_a_long_report_is_cut_at_a_line(tmp_path: Path) -> None:
    states = {f"gone-{number}": STATES["gone"] for number in range(400)}
    text = links.report_markdown(make_survey(tmp_path, states))
    assert 50_000 < len(text) < 65_536
    assert text.endswith("\n\nThe rest is cut, as a longer report would not fit.\n")
    assert_inert(text)


def test_all_well_is_said(tmp_path: Path) -> None:
    text = links.report_markdown(make_survey(tmp_path, {"alive": STATES["alive"]}))
    assert text == "1 link, 1 alive, 1 checked now.\n\nEvery link that was checked is alive.\n"


def test_json_has_every_link_and_what_fails(tmp_path: Path) -> None:
    said = links.report_json(make_survey(tmp_path, STATES))
    assert json.loads(json.dumps(said)) == said
    assert [link["state"] for link in said["links"]] == [state.state for state in STATES.values()]
    fails = {finding["group"]: finding["fails"] for finding in said["findings"]}
    assert fails == {
        "gone": True, "moved": True, "title": True, "failing": False, "unreachable": False,
        "blocked": False,
    }  # fmt: skip

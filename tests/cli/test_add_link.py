"""The workflow that makes a pull request of a form: its own scripts, with a stand-in for `gh`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from reading_project import (
    BASIC,
    FIELDS,
    FIRST,
    format_answers,
    make_project,
    read_files,
    read_list,
    split_code,
)
from web_server import Web, serve_web

from warpshelf.edit import forms

pytestmark = pytest.mark.skipif(
    os.name == "nt" or not (shutil.which("bash") and shutil.which("jq")), reason="needs bash and jq"
)
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/add-link.yml").read_text(encoding="utf-8"))
SCRIPTS = {
    job: [step["run"] for step in WORKFLOW["jobs"][job]["steps"] if "run" in step][-1]
    for job in ("entry", "propose")
}
# What GitHub runs a step with where no shell is named.
BASH = ["bash", "--noprofile", "--norc", "-e", "-c"]
SHA = "0123456789abcdef0123456789abcdef01234567"
GH = f"""#!{sys.executable}
import json, pathlib, sys
words = sys.argv[1:]
said = sys.stdin.read() if "--input" in words else None
files = [w for before, w in zip(words, words[1:]) if before == "--body-file"]
said = pathlib.Path(files[0]).read_text() if files else said
with open("../calls", "a") as log:
    log.write(json.dumps([words, said]) + "\\n")
if words[0] == "api" and "/git/ref/heads/" in words[1]:
    sys.exit(0 if pathlib.Path("../branch").exists() else 1)
if words[:2] == ["pr", "create"] and pathlib.Path("../forbidden").exists():
    sys.exit(1)
print("{SHA[::-1]}")
"""


@dataclass
class Run:
    """A run of the workflow on one issue: the repository, and what GitHub was told."""

    root: Path
    web: Web
    folder: Path
    log: str = ""
    calls: list[tuple[list[str], str | None]] = field(default_factory=list)

    def run_jobs(self, body: str) -> int:
        """Run both jobs on an issue with this text; the status of the second one."""
        event = {"action": "labeled", "issue": {"number": 12, "title": "@all", "body": body},
                 "label": {"name": "accepted"}}  # fmt: skip
        (self.folder / "event.json").write_text(json.dumps(event))
        shelf = self.root / ".venv" / "bin" / "shelf"
        shelf.parent.mkdir(parents=True, exist_ok=True)
        shelf.write_text(
            f"#!{sys.executable}\nimport sys; sys.path.insert(0, {str(ROOT / 'scripts')!r})\n"
            "from warpshelf.cli import commands as cli, links\n"
            "from warpshelf.web.services import Endpoints\n"
            f"links._endpoints = lambda: {self.web.endpoints!r}\n"
            "sys.exit(cli.main(sys.argv[1:]))\n"
        )
        (self.folder / "gh").write_text(GH)
        for program in (shelf, self.folder / "gh"):
            program.chmod(0o755)
        first = self._run_job("entry", self.root)
        assert first == 0, self.log
        work = self.folder / "work"
        work.mkdir()
        shutil.copytree(self.folder / "entry", work / "entry")
        status = self._run_job("propose", work)
        if (self.folder / "calls").exists():
            lines = (self.folder / "calls").read_text().splitlines()
            self.calls = [tuple(json.loads(line)) for line in lines]
        return status

    def _run_job(self, job: str, where: Path) -> int:
        environment = {
            **os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "ISSUE": "12",
            "RUNNER_TEMP": str(self.folder), "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GH_REPO": "warpshelf/warpshelf", "GITHUB_SHA": SHA, "GITHUB_REF_NAME": "main",
        }  # fmt: skip
        done = subprocess.run([*BASH, SCRIPTS[job]], cwd=where, env=environment, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)  # fmt: skip
        self.log += done.stdout
        return done.returncode

    def list_gh_calls(self, *words: str) -> list[tuple[list[str], str | None]]:
        """The calls of `gh` that start with these words."""
        return [call for call in self.calls if tuple(call[0][: len(words)]) == words]


@pytest.fixture
def workflow_run(tmp_path: Path) -> Iterator[Run]:
    (tmp_path / "repository").mkdir()
    root = make_project(tmp_path / "repository")
    with serve_web() as web:
        web.set_answer("/pages/example.org/a-post", f"<title>{FIELDS['title']}</title>")
        yield Run(root, web, tmp_path)


def test_an_accepted_form_becomes_a_pull_request(workflow_run: Run) -> None:
    web_says = f"<title>{FIELDS['title']}</title><meta name=author content='Ada Lovelace'>"
    workflow_run.web.set_answer("/pages/example.org/a-post", web_says)
    assert workflow_run.run_jobs(format_answers(BASIC)) == 0, workflow_run.log
    text = read_list(workflow_run.root)
    assert text.startswith(FIRST + "- id: how-a-gpu-waits\n") and "Ada Lovelace" in text
    git = "repos/warpshelf/warpshelf/git"
    [(_, blob)] = workflow_run.list_gh_calls("api", f"{git}/blobs")
    assert json.loads(blob or "") == {"content": text, "encoding": "utf-8"}
    [(tree, _)] = workflow_run.list_gh_calls("api", f"{git}/trees")
    assert "tree[][path]=docs/kernels/softmax.yml" in tree and f"base_tree={SHA[::-1]}" in tree
    [(commit, _)] = workflow_run.list_gh_calls("api", f"{git}/commits")
    assert "message=Add the reading how-a-gpu-waits to kernels/softmax" in commit
    assert f"parents[]={SHA}" in commit
    [(ref, _)] = workflow_run.list_gh_calls("api", f"{git}/refs")
    assert "ref=refs/heads/link-12" in ref
    [(pull, body)] = workflow_run.list_gh_calls("pr", "create")
    assert pull[2:8] == ["--base", "main", "--head", "link-12", "--title",
                         "Add the reading how-a-gpu-waits to kernels/softmax"]  # fmt: skip
    assert body == (
        "Adds the reading `how-a-gpu-waits` to `docs/kernels/softmax.yml`, as the form asks "
        "for.\n\nCloses #12\n\n"
    )
    assert not workflow_run.list_gh_calls("issue")


def test_a_bad_form_is_answered_and_the_label_comes_off(workflow_run: Run) -> None:
    before = read_files(workflow_run.root / "docs")
    assert (
        workflow_run.run_jobs(format_answers({**BASIC, "topic": forms.ANOTHER, "year": "soon"}))
        == 1
    )
    assert read_files(workflow_run.root / "docs") == before
    [(words, comment)] = workflow_run.list_gh_calls("issue", "comment")
    assert words[2] == "12"
    [block], _ = split_code(comment or "")
    assert block.splitlines() == [
        "topic: is 'another one (name it under notes)'; a maintainer replaces this with a topic "
        "from the list",
        "year: is 'soon', which is not a year; write its four digits",
    ]
    assert workflow_run.list_gh_calls("issue", "edit") == [
        (["issue", "edit", "12", "--remove-label", "accepted"], None)
    ]
    assert len(workflow_run.calls) == 2 and "::error title=No pull request::" in workflow_run.log


def test_what_the_schema_refuses_is_told_without_a_place(workflow_run: Run) -> None:
    assert workflow_run.run_jobs(format_answers({**BASIC, "why": "x" * 301})) == 1
    [(_, comment)] = workflow_run.list_gh_calls("issue", "comment")
    assert split_code(comment or "")[0] == [
        "why has 301 characters, over the limit of 300; shorten it\n"
    ]


HOSTILE = (
    "@all fixes #1 `` ``` [x](javascript:1) <b>\u2028::add-mask::a ::set-output name=path::x "
    "##[set-env name=PATH;]/tmp $(touch pwned) `touch pwned` '; touch pwned; ' \"${IFS}touch pwned "
    "${{ github.token }} \\n EOF"
)


def test_a_hostile_form_is_nothing_but_an_entry(workflow_run: Run) -> None:
    given = {**BASIC, "title": f"T {HOSTILE}", "why": f"::stop-commands::x\n{HOSTILE}"}
    given |= {"authors": "$(touch pwned)", "venue": "::add-path::/tmp", "notes": HOSTILE}
    assert workflow_run.run_jobs(format_answers(given)) == 0, workflow_run.log
    assert not list(workflow_run.folder.rglob("pwned"))
    for words, said in workflow_run.calls:
        if "/git/blobs" not in words[1]:
            assert "@all" not in f"{words} {(said or '').partition('```')[0]}"
    [(pull, body)] = workflow_run.list_gh_calls("pr", "create")
    assert re.fullmatch(r"Add the reading [a-z0-9-]+ to kernels/softmax", pull[7])
    blocks, around = split_code(body or "")
    assert "@" not in around and around.count("#") == 1  # Closes #12
    assert len(blocks) == 1 and "@all" in blocks[0]  # that the page has another title


def test_no_line_of_the_log_is_a_command_of_the_form_s(workflow_run: Run) -> None:
    """All that a stranger can choose stands between the two lines that stop commands."""
    given = {**BASIC, "why": f"{'w ' * 43}\n::add-mask::a\n##[group]x", "title": HOSTILE}
    workflow_run.run_jobs(format_answers(given))
    stop = re.search(r"^::stop-commands::([0-9a-f]{32})$", workflow_run.log, re.M)
    assert stop
    before, _, rest = workflow_run.log.partition(f"{stop[0]}\n")
    shown, _, after = rest.partition(f"::{stop[1]}::\n")
    assert "add-mask" in shown and "add-mask" not in before + after


def test_a_branch_that_is_there_is_left_alone(workflow_run: Run) -> None:
    (workflow_run.folder / "branch").touch()
    assert workflow_run.run_jobs(format_answers(BASIC)) == 1
    [(_, comment)] = workflow_run.list_gh_calls("issue", "comment")
    assert comment == "The branch `link-12` is there already. Delete it, and set the label again.\n"
    assert not workflow_run.list_gh_calls(
        "api", "repos/warpshelf/warpshelf/git/refs"
    ) and not workflow_run.list_gh_calls("pr")


def test_where_no_pull_request_may_be_opened_the_branch_is_named(workflow_run: Run) -> None:
    (workflow_run.folder / "forbidden").touch()
    assert workflow_run.run_jobs(format_answers(BASIC)) == 1
    [(_, comment)] = workflow_run.list_gh_calls("issue", "comment")
    assert "<https://github.com/warpshelf/warpshelf/compare/main...link-12?expand=1>" in (
        comment or ""
    )


def test_only_a_list_is_committed(workflow_run: Run) -> None:
    """Even if the first job were taken over, the second one writes a list or nothing."""
    (workflow_run.folder / "entry").mkdir()
    work = workflow_run.folder / "work"
    (work / "entry").mkdir(parents=True)
    (work / "entry" / "list.yml").write_text("[]\n")
    (workflow_run.folder / "gh").write_text(GH)
    (workflow_run.folder / "gh").chmod(0o755)
    for path in (
        ".github/workflows/x.yml",
        "docs/../x.yml",
        "docs/a.md",
        "docs/A.yml",
        "",
        "\ndocs/a.yml",
    ):
        said = {"ok": True, "path": path, "title": "t", "body": "b"}
        (work / "entry" / "report.json").write_text(json.dumps(said))
        assert workflow_run._run_job("propose", work) != 0
    calls = (workflow_run.folder / "calls").read_text()
    assert "git/blobs" not in calls and "git/refs" not in calls


def test_only_a_maintainer_s_label_starts_it() -> None:
    assert WORKFLOW[True] == {"issues": {"types": ["labeled"]}}
    starts = WORKFLOW["jobs"]["entry"]["if"]
    assert "github.event.label.name == 'accepted'" in starts and "'link')" in starts
    assert WORKFLOW["jobs"]["propose"]["needs"] == "entry"
    text = json.dumps(WORKFLOW)
    assert "issue.body" not in text and "issue.title" not in text

"""The workflow files: valid, pinned, with the least permission, and no stranger near our GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml

from warpshelf.readings import model

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
PROGRAMS = Path(sysconfig.get_path("scripts"))

HOSTED = re.compile(r"(ubuntu|macos|windows)-[\w.]+(?:-arm)?")
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read_workflow(path: Path) -> dict:
    """A workflow; its `on` arrives as the boolean True, which YAML 1.1 takes it for."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    workflow["on"] = workflow.pop(True)
    return workflow


def list_triggers(workflow: dict) -> set[str]:
    on = workflow["on"]
    return {on} if isinstance(on, str) else set(on)


def list_steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def run_program(program: str, *arguments: str | Path) -> None:
    done = subprocess.run(
        [PROGRAMS / program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{program}:\n{done.stdout}{done.stderr}"


def check_schema(name: str, *paths: Path) -> None:
    run_program("check-jsonschema", "--builtin-schema", name, *paths)


def test_schema() -> None:
    check_schema("vendor.github-workflows", *WORKFLOWS)
    check_schema("custom.github-workflows-require-timeout", *WORKFLOWS)


def test_issue_forms_schema() -> None:
    check_schema("vendor.github-issue-forms", *FORMS)
    check_schema("vendor.github-issue-config", GITHUB / "ISSUE_TEMPLATE" / "config.yml")


def test_security_audit() -> None:
    """Injection, credentials left behind, loose permissions, pins: nothing found, offline."""
    run_program(
        "zizmor",
        "--offline",
        "--no-progress",
        "--strict-collection",
        "--pedantic",
        *WORKFLOWS,
        ROOT / "scripts" / "papergpu" / "action.yml",
    )


@each_workflow
def test_each_pin_says_its_version(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if " uses: " in line]
    assert [line for line in lines if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


def test_one_action_has_one_pin() -> None:
    used = {
        step["uses"]
        for path in WORKFLOWS
        for step in list_steps(read_workflow(path))
        if "uses" in step
    }
    names = [name.partition("@")[0] for name in used]
    assert sorted(names) == sorted(set(names))


def list_writers() -> list[tuple[str, str]]:
    """The jobs, by workflow, that may write anything but the log of their run."""
    return [
        (path.stem, name)
        for path in WORKFLOWS
        for name, job in read_workflow(path)["jobs"].items()
        if "write" in dict(job.get("permissions", {})).values()
    ]


@pytest.mark.parametrize(("workflow", "name"), list_writers())
def test_jobs_that_write_run_nothing_of_ours(workflow: str, name: str) -> None:
    job = read_workflow(GITHUB / "workflows" / f"{workflow}.yml")["jobs"][name]
    used = {step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step}
    known = {
        "actions/attest",
        "actions/configure-pages",
        "actions/deploy-pages",
        "actions/download-artifact",
        "actions/upload-artifact",
    }
    assert used <= known
    assert job["if"].startswith("github.ref == 'refs/heads/main'")
    for step in job["steps"]:
        words = set(re.findall(r"[\w./-]+", step.get("run", "")))
        assert not words & {"shelf", "pip", "python", "python3", "git", "make", "curl"}, step


def is_hosted(job: dict) -> bool:
    """Whether a job runs on machines of GitHub's alone, whichever of its matrix it is."""
    named = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", str(job["runs-on"]))
    runners = job["strategy"]["matrix"][named[1]] if named else [job["runs-on"]]
    return all(HOSTED.fullmatch(str(name)) for name in runners)


@each_workflow
def test_pull_requests_reach_no_machine_of_ours(path: Path) -> None:
    workflow = read_workflow(path)
    assert not list_triggers(workflow) & {"pull_request_target", "workflow_run", "issue_comment"}
    if "pull_request" in list_triggers(workflow):
        assert all(map(is_hosted, workflow["jobs"].values()))


@each_workflow
def test_own_machines_start_by_hand_only(path: Path) -> None:
    workflow = read_workflow(path)
    for name, job in workflow["jobs"].items():
        if not is_hosted(job):
            assert list_triggers(workflow) == {"workflow_dispatch"}, name
            assert job["if"] == "github.repository == 'warpshelf/warpshelf'", name
            assert job["environment"], name


@each_workflow
def test_checkouts_leave_no_credentials(path: Path) -> None:
    for step in list_steps(read_workflow(path)):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize(
    ("workflow", "job"), [("pages", "build"), ("pull-request", "build"), ("pull-request", "check")]
)
def test_who_reads_the_history_of_records_has_all_of_it(workflow: str, job: str) -> None:
    """Blobs too: a clone without them would fetch each by itself."""
    found = read_workflow(GITHUB / "workflows" / f"{workflow}.yml")["jobs"][job]["steps"]
    [fetched] = [step["with"] for step in found if "actions/checkout@" in step.get("uses", "")]
    assert fetched["fetch-depth"] == 0 and "filter" not in fetched


def test_link_form_asks_for_the_fields_of_a_reading() -> None:
    """The form's answers are an entry; what only maintainers decide is not asked for."""
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "link.yml").read_text(encoding="utf-8"))
    fields = {item["id"]: item for item in form["body"] if "id" in item}
    entry = model.Reading.model_fields
    decided_here = {"id", "rating", "start", "unread", "minutes", "seed", "superseded_by", "mended",
                    "added"}  # fmt: skip
    assert set(fields) - {"topic", "notes", "own_words"} == set(entry) - decided_here
    asked = {name for name, item in fields.items() if item.get("validations", {}).get("required")}
    wanted = {name for name, field in entry.items() if field.is_required()} - decided_here
    assert asked - {"topic"} == wanted
    assert fields["kind"]["attributes"]["options"] == list(model.Kind.__args__)
    assert fields["level"]["attributes"]["options"] == list(model.Level.__args__)


def test_link_form_offers_every_topic() -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "link.yml").read_text(encoding="utf-8"))
    [topic] = [item for item in form["body"] if item.get("id") == "topic"]
    docs = ROOT / "docs"
    lists = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.glob("*/*.yml")}
    *options, another = topic["attributes"]["options"]
    assert set(options) == lists and len(options) == len(lists)
    assert another.startswith("another one")


# The check of the links: it blocks nobody, and its scripts do what they should on a stand-in.


def read_step(workflow: str, name: str) -> str:
    found = list_steps(read_workflow(GITHUB / "workflows" / f"{workflow}.yml"))
    [step] = [step for step in found if step.get("name") == name]
    return step["run"]


def run_step(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as GitHub does, in `folder`, whose programs come first."""
    names = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", **variables}
    return subprocess.run(
        ["bash", "-e", "-c", text], cwd=folder, env={**os.environ, **names}, capture_output=True,
        text=True, timeout=30, check=False,
    )  # fmt: skip


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


needs_bash = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("bash", "openssl")), reason="needs bash and openssl"
)


@needs_bash
@pytest.mark.parametrize(("found", "changed"), [(0, 0), (1, 1)])
def test_text_from_the_web_is_no_command(tmp_path: Path, found: int, changed: int) -> None:
    shelf = 'echo "::error::from the web"\necho hello > "$RUNNER_TEMP/links/report.md"\n'
    shelf += f"echo {changed} > docs/links.json\nexit {found}"
    write_program(tmp_path / ".venv" / "bin" / "shelf", shelf)
    (tmp_path / "docs").mkdir()
    (tmp_path / "merged.json").write_text("0\n")
    done = run_step(
        read_step("links", "Ask for every link"), tmp_path, RUNNER_TEMP=str(tmp_path),
        GITHUB_OUTPUT=str(tmp_path / "output"), GITHUB_STEP_SUMMARY=str(tmp_path / "summary"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    stop, error, resume = done.stdout.splitlines()
    assert stop.startswith("::stop-commands::") and error == "::error::from the web"
    assert len(resume) == 36 and resume == f"::{stop.removeprefix('::stop-commands::')}::"
    assert (tmp_path / "output").read_text() == f"found={found}\nchanged={changed}\n"
    assert (tmp_path / "summary").read_text() == "hello\n"
    assert (tmp_path / "links" / "links.json").read_text() == f"{changed}\n"


@needs_bash
def test_a_check_that_fails_itself_reports_nothing(tmp_path: Path) -> None:
    """With no network there is no report, and the last issue and states stay as they are."""
    write_program(tmp_path / ".venv" / "bin" / "shelf", "exit 1")
    done = run_step(
        read_step("links", "Ask for every link"), tmp_path, RUNNER_TEMP=str(tmp_path),
        GITHUB_OUTPUT=str(tmp_path / "output"), GITHUB_STEP_SUMMARY=str(tmp_path / "summary"),
    )  # fmt: skip
    assert done.returncode != 0 and not (tmp_path / "output").exists()


@needs_bash
@pytest.mark.parametrize(
    ("open_issue", "found", "calls"),
    [
        ("", "0", ["issue list"]),
        ("", "1", ["issue list", "label create", "issue create"]),
        ("7", "1", ["issue list", "issue edit"]),
        ("7", "0", ["issue list", "issue close"]),
    ],
)
def test_there_is_one_issue(tmp_path: Path, open_issue: str, found: str, calls: list[str]) -> None:
    write_program(
        tmp_path / "gh", f'echo "$@" >> calls\n[ "$2" = list ] && echo "{open_issue}" || true'
    )
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "report.md").write_text("What `$(touch acted)` was found\n")
    text = read_step("links", "Say what is to be mended")
    done = run_step(text, tmp_path, GH_REPO="owner/name", FOUND=found)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "calls").read_text().splitlines()
    assert [" ".join(line.split()[:2]) for line in said] == calls
    assert all(line.split()[2] == "7" for line in said[1:] if open_issue)
    body = (tmp_path / "body.md").read_text()
    assert body.startswith("What `$(touch acted)` was found\n\n")
    assert "https://github.com/owner/name/compare/main...link-states?expand=1" in body
    assert not (tmp_path / "acted").exists()


# The night: what a day trusts is repeated, and one issue says what does not hold.


@needs_bash
@pytest.mark.parametrize("failing", [True, False])
def test_what_fails_by_night_is_handed_over(tmp_path: Path, failing: bool) -> None:
    write_program(tmp_path / "make", f'echo "$*: <b>" >&2\nexit {2 * failing}')
    text = read_step("nightly", "Repeat it")
    done = run_step(text, tmp_path, RUNNER_TEMP=str(tmp_path), NAME="verify", COMMAND="make verify")
    assert (done.returncode, "verify: <b>" in done.stdout) == (int(failing), True), done.stderr
    said = [path.read_text() for path in (tmp_path / "said").iterdir()]
    assert len(said) == failing
    for one in said:
        head, _, line, *_ = one.splitlines()
        assert (head, line) == ("### `make verify` fails", "    verify: <b>")


def test_the_night_repeats_every_snippet_every_test_and_every_budget() -> None:
    workflow = read_workflow(GITHUB / "workflows" / "nightly.yml")
    rows = workflow["jobs"]["repeat"]["strategy"]["matrix"]["include"]
    commands = {row["command"] for row in rows}
    assert commands == {"make verify", "make test-all", "python scripts/budgets.py"}
    assert workflow["on"]["schedule"] == [{"cron": "23 2 * * *"}]
    made = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert {"verify", "test-all"} <= set(made)


@needs_bash
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    ("open_issue", "result", "calls"),
    [
        ("", "success", ["issue list"]),
        ("", "failure", ["issue list", "label create", "issue create"]),
        ("7", "failure", ["issue list", "issue edit"]),
        ("7", "success", ["issue list", "issue close"]),
        ("7", "skipped", ["issue list"]),
    ],
)
def test_there_is_one_issue_of_the_night(
    tmp_path: Path, open_issue: str, result: str, calls: list[str], told: bool
) -> None:
    write_program(
        tmp_path / "gh", f'echo "$@" >> calls\n[ "$2" = list ] && echo "{open_issue}" || true'
    )
    if told:
        (tmp_path / "said").mkdir()
        (tmp_path / "said" / "verify.md").write_text("`$(touch acted)` fails\n")
    text = read_step("nightly", "Say what fails")
    done = run_step(text, tmp_path, GH_REPO="owner/name", RESULT=result, RUN="12")
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "calls").read_text().splitlines()
    assert [" ".join(line.split()[:2]) for line in said] == calls
    assert all(line.split()[2] == "7" for line in said[1:] if open_issue)
    body = (tmp_path / "body.md").read_text()
    assert body.startswith("`$(touch acted)` fails\n" if told else "A job of the night ended")
    assert "https://github.com/owner/name/actions/runs/12" in body
    assert not (tmp_path / "acted").exists()


@needs_bash
@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq, as GitHub's machines have it")
@pytest.mark.parametrize("there", [True, False])
def test_the_states_are_one_commit_on_their_branch(tmp_path: Path, there: bool) -> None:
    answer = 'case "$*" in *PATCH*) exit 1 ;; esac' if not there else ""
    write_program(tmp_path / "gh", f'echo "$@" >> calls\necho sha\n{answer}\ncat > /dev/null')
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "links.json").write_text('{"schema": 1}\n')
    text = read_step("links", "Put the states on their branch")
    done = run_step(text, tmp_path, GITHUB_REPOSITORY="owner/name")
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "calls").read_text().splitlines()
    assert [line.split()[1].removeprefix("repos/owner/name/git/") for line in said[:5]] == [
        "ref/heads/main", "commits/sha", "blobs", "trees", "commits",
    ]  # fmt: skip
    assert "parents[]=sha" in said[4] and "tree[][path]=docs/links.json" in said[3]
    assert "refs/heads/link-states" in said[5] and "force=true" in said[5]
    assert len(said) == (6 if there else 7)
    if not there:
        assert "ref=refs/heads/link-states" in said[6]

"""The workflow files: valid, pinned, with the least permission, and no stranger near our GPU. And
the ways in for a borrowed GPU: each is run here as far as it can be, and ends with its file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import yaml
from made_up_records import make_record
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.test_project_files import EXTRAS, PROJECT, read_pins
from warpshelf.cli import commands
from warpshelf.core.project import Project
from warpshelf.readings import model
from warpshelf.records import bundle

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


# ---- recipes for a borrowed GPU

RECIPES = Project(ROOT).recipes
PAGE = (ROOT / "docs" / "about" / "measure.md").read_text(encoding="utf-8")
FORM_FOLDER = ROOT / ".github" / "ISSUE_TEMPLATE"
BESIDE = {"requirements.txt", "Containerfile.dockerignore"}  # what recipes use, none itself
NAMES = {path.name for path in RECIPES.iterdir() if path.is_file()} - BESIDE
MOST = 39  # lines
WIDEST = 88  # columns of code that is shown

needs_bash = pytest.mark.skipif(
    os.name == "nt" or shutil.which("bash") is None, reason="needs bash"
)


def read_recipe(name: str) -> str:
    return (RECIPES / name).read_text(encoding="utf-8")


def load_cells() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(read_recipe("notebook.ipynb"))["cells"]
    return found


def read_cell(cell: str) -> str:
    [found] = ["".join(one["source"]) for one in load_cells() if one["id"] == cell]
    return found


def run_linter(program: str, *arguments: str | Path) -> None:
    """Run a linter of the extra `lint`; there is none of them where it has no build."""
    [wanted] = [one for one in EXTRAS["lint"] if one.name.startswith(f"{program}-")]
    if wanted.marker and not wanted.marker.evaluate():
        return
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    found = shutil.which(program, path=path)
    assert found, f"{program} is not installed; it comes with the extra `lint`"
    done = subprocess.run([found, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_accepted(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """See that these are words of `run` that write a file within a budget."""
    assert {"--out", "--budget"} <= set(words)
    assert commands.main(["run", *words, "--help"]) == 0, capsys.readouterr().err


# What all of them share.


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_is_short_and_on_the_page(name: str) -> None:
    if name == "notebook.ipynb":
        lines = [line for cell in load_cells() for line in "".join(cell["source"]).splitlines()]
        assert f"\n```text\n{read_cell('run')}\n```\n" in PAGE
    else:
        lines = read_recipe(name).splitlines()
        assert f'--8<-- "{name}"' in PAGE
    assert len(lines) <= MOST
    if name != "notebook.ipynb":  # whose prose wraps
        assert [line for line in lines if len(line) > WIDEST] == []
    assert "records.json" in "\n".join(lines) or "records-" in "\n".join(lines)


@pytest.mark.parametrize("name", sorted(NAMES - {"notebook.ipynb"}))
def test_the_page_says_to_type_what_the_file_does(name: str) -> None:
    head = re.findall(r"^(?:#   |    )((?:\w+ )+.*?)(?:  +#.*)?$", read_recipe(name)[:1000], re.M)
    commands = [line for line in head if re.match(r"docker|python3|sbatch|sky|scp|modal", line)]
    assert commands
    assert [line for line in commands if f"\n{line}\n" not in PAGE] == []


def test_what_they_install_is_what_the_project_runs_with() -> None:
    """Nothing that it would refuse, and nothing older than it may be."""
    wanted = [Requirement(line) for line in PROJECT["dependencies"]]
    wanted += [Requirement(line) for line in PROJECT["optional-dependencies"]["run"]]
    known = {canonicalize_name(one.name): one for one in wanted}
    exact = {canonicalize_name(pin.name): str(pin.specifier).strip("=") for pin in read_pins()}
    lines = [
        line for line in read_recipe("requirements.txt").splitlines() if not line.startswith("#")
    ]
    asked = {canonicalize_name(one.name): one for one in map(Requirement, lines)}
    headers = asked.pop("cuda-toolkit")
    assert not headers.specifier and {"cccl", "crt"} <= headers.extras
    assert set(asked) == {
        "torch", "triton", "numpy", "pyyaml", "rich", "typer", "cuda-core"
    }  # fmt: skip
    for name, one in asked.items():
        assert one.specifier.contains(exact[name])
        floors = {str(part) for part in one.specifier if part.operator in (">=", "<")}
        assert floors <= {str(part) for part in known[name].specifier}, name


def test_what_they_leave_is_no_change_of_the_checkout() -> None:
    """A record would else say that it was made from a changed tree."""
    ignored = [
        line for line in read_recipe("Containerfile.dockerignore").splitlines() if line[0] != "#"
    ]
    left = ["records.json", "records-7.json", "warpshelf-7.log", "out/records.json"]
    for path in [*left, *(one.replace("**/", "scripts/") + "/file" for one in ignored)]:
        done = subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, timeout=30)
        assert done.returncode == 0, path


def test_each_form_that_is_linked_is_there() -> None:
    files = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *RECIPES.iterdir()]
    text = "".join(path.read_text(encoding="utf-8") for path in files if path.is_file())
    linked = set(re.findall(r"issues/new\?template=(\w+\.yml)", text))
    assert linked == {"link.yml", "records.yml"}
    assert [name for name in sorted(linked) if not (FORM_FOLDER / name).is_file()] == []


def test_the_form_takes_a_file() -> None:
    """A field that shows its text as code would take none."""
    form = yaml.safe_load((FORM_FOLDER / "records.yml").read_text(encoding="utf-8"))
    [file] = [item for item in form["body"] if item.get("id") == "file"]
    assert file["type"] == "textarea" and "render" not in file["attributes"]
    assert file["validations"]["required"]


# The notebook.


def test_the_notebook_is_one_and_holds_no_output() -> None:
    nbformat.validate(nbformat.read(RECIPES / "notebook.ipynb", as_version=4))
    code = [cell for cell in load_cells() if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * 2
    assert len(read_cell("run").splitlines()) == 3


@pytest.mark.exhaustive("a whole notebook, in a kernel of its own")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="clones this repository")
def test_the_notebook_ends_with_its_file_though_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a newcomer runs it, but for the clone's address, a shorter run, and pip's network."""
    book = nbformat.read(RECIPES / "notebook.ipynb", as_version=4)
    [cell] = [one for one in book.cells if one.id == "run"]
    assert cell.source.endswith("--budget 600")
    cell.source = cell.source.replace("--budget 600", "--budget 5 softmax")
    redirected = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{ROOT.as_uri()}.insteadOf",
        "GIT_CONFIG_VALUE_0": "https://github.com/warpshelf/warpshelf",
    }
    pip = {"PIP_NO_INDEX": "1", "PIP_DRY_RUN": "1"}  # this environment stays as it is
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    here = {"PATH": programs, "CUDA_VISIBLE_DEVICES": "", "IPYTHONDIR": str(tmp_path / "ipython")}
    for name, value in (redirected | pip | here).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    nbclient.NotebookClient(
        book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    said = {one.id: one.outputs for one in book.cells if one.cell_type == "code"}
    told = "".join(part.get("text", "") for part in said["download"])
    assert told.startswith("records.json: 0 records, none of a GPU: choose a runtime that has one")
    links = [part["data"].get("text/html", "") for part in said["download"] if "data" in part]
    assert any("records.json" in link for link in links)
    assert bundle.read_bundle(tmp_path / "records.json") == []
    assert (tmp_path / "warpshelf" / "scripts" / "build.py").is_file()


@pytest.mark.parametrize("colab", [True, False])
def test_the_notebook_names_the_gpu_and_hands_the_file_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    colab: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    measured = make_record()
    Path("records.json").write_text(bundle.bundle_text([measured]), encoding="utf-8")
    taken: list[str] = []
    google = types.SimpleNamespace(files=types.SimpleNamespace(download=taken.append))
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.colab", google if colab else None)
    exec(read_cell("download"), {})  # as the cell that it is
    said = capsys.readouterr().out
    assert said.startswith(f"records.json: 1 records, {measured['machine']['device']}\n")
    assert taken == (["records.json"] if colab else [])
    assert ("records.json" in said.partition("\n")[2]) is not colab


# The container.


def test_the_container_file(capsys: pytest.CaptureFixture[str]) -> None:
    run_linter("hadolint", RECIPES / "Containerfile")
    text = read_recipe("Containerfile")
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", text, re.M)
    [default] = re.findall(r"^CMD (.*)$", text, re.M)
    program, script, command, *words = json.loads(entry)
    assert (program, script, command) == ("python", "scripts/build.py", "run")
    assert_accepted([*words, *json.loads(default)], capsys)
    [volume] = re.findall(r"^VOLUME (.*)$", text, re.M)
    assert words == ["--out", f"{volume}/records.json"]
    copied = [one for line in re.findall(r"^COPY (.*) \S+$", text, re.M) for one in line.split()]
    assert "scripts/recipes/requirements.txt" in copied
    assert [one for one in copied if not (ROOT / one).exists()] == []


# Shell scripts: what they call is a stand-in that only notes its words.


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def read_noted_words(folder: Path) -> list[str]:
    """The words after `scripts/build.py run` of the one call that was noted in `folder`."""
    words = (folder / "called").read_text(encoding="utf-8").splitlines()
    assert words[:2] == ["scripts/build.py", "run"]
    return words[2:]


def run_bash(
    script: str | Path, *words: str, cwd: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(cwd / "bin"), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": str(cwd), **variables}
    return subprocess.run(
        ["bash", str(script), *words], cwd=cwd, env=environment, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip


def write_cluster(folder: Path, status: int) -> dict[str, str]:
    """A Slurm of stand-ins, on which a job of an hour has begun; its variables."""
    write_script(folder / "bin" / "srun", '"$@"')
    write_script(folder / "bin" / "scontrol", 'echo "$@" > requeued')
    write_script(folder / "bin" / "squeue", "date -d '+1 hour' +%Y-%m-%dT%H:%M:%S")
    run = f'[ "$1" = -c ] && exit 0\nprintf "%s\\n" "$@" > called\ntouch "$4"\nexit {status}'
    write_script(folder / ".venv" / "bin" / "python", run)
    return {"SLURM_SUBMIT_DIR": str(folder), "SLURM_JOB_ID": "7"}


@needs_bash
@pytest.mark.parametrize("status", [0, 1, 143])
def test_slurm_spends_what_the_job_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    run_linter("shellcheck", RECIPES / "slurm.sh")
    variables = write_cluster(tmp_path, status)
    done = run_bash(RECIPES / "slurm.sh", "softmax", cwd=tmp_path, **variables)
    assert (done.returncode, done.stderr) == (status, "")
    words = read_noted_words(tmp_path)
    assert_accepted(words, capsys)
    out, budget = words[words.index("--out") + 1], words[words.index("--budget") + 1]
    assert out == "records-7.json" and words[-1] == "softmax"
    assert 3600 - 120 - 30 <= int(budget) <= 3600 - 120
    assert done.stdout.startswith(f"{tmp_path / out} is the file to hand in")
    assert f"shelf import {out}" in done.stdout
    again = tmp_path / "requeued"
    assert again.exists() == (status == 143)  # SIGTERM: another job wants the GPU
    assert not again.exists() or again.read_text() == "requeue 7\n"


@needs_bash
def test_slurm_names_what_is_missing_before_it_begins(tmp_path: Path) -> None:
    variables = write_cluster(tmp_path, 0)
    write_script(tmp_path / ".venv" / "bin" / "python", "exit 1")
    done = run_bash(RECIPES / "slurm.sh", cwd=tmp_path, **variables)
    assert done.returncode == 1 and not (tmp_path / "called").exists()
    [line] = done.stderr.splitlines()
    assert line.startswith(".venv/bin/python: cannot import torch") and "requirements.txt" in line
    del variables["SLURM_SUBMIT_DIR"]
    done = run_bash(RECIPES / "slurm.sh", cwd=tmp_path, **variables)
    assert done.returncode == 1
    assert "start this with sbatch" in done.stderr


@needs_bash
@pytest.mark.parametrize("status", [0, 1])
def test_skypilot_keeps_its_file_outside_of_what_is_synced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    task = yaml.safe_load(read_recipe("skypilot.yaml"))
    for part in ("setup", "run"):
        path = tmp_path / f"{part}.sh"
        path.write_text(f"#!/bin/bash\n{task[part]}", encoding="utf-8")
        run_linter("shellcheck", path)
    made = f'printf "%s\\n" "$@" > called\nexit {status}'
    write_script(tmp_path / "measure" / "bin" / "python", made)
    variables = {name: str(value) for name, value in task["envs"].items()}
    done = run_bash(tmp_path / "run.sh", cwd=tmp_path, **variables)
    assert (done.returncode, done.stderr) == (status, "")
    words = read_noted_words(tmp_path)
    assert_accepted(words, capsys)
    assert words == ["--out", f"{tmp_path}/records.json", "--budget", variables["BUDGET"]]
    assert "scp warpshelf:records.json ." in read_recipe("skypilot.yaml")


def test_skypilot_has_only_keys_that_a_task_has() -> None:
    """By hand it is loaded by SkyPilot's own `Task.from_yaml`."""
    task = yaml.safe_load(read_recipe("skypilot.yaml"))
    assert set(task) == {"name", "workdir", "resources", "envs", "setup", "run"}
    assert task["workdir"] == {"url": "https://github.com/warpshelf/warpshelf", "ref": "main"}
    assert set(task["resources"]) == {"accelerators", "memory", "disk_size", "autostop"}
    assert task["resources"]["autostop"] == {"idle_minutes": 30, "down": True}


# Modal, of which only what the script calls is made up.


class Chain:
    """Takes any call, and notes it."""

    def __init__(self) -> None:
        self.calls: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        def record_call(*words: Any, **named: Any) -> Chain:
            self.calls[name] = (words, named)
            return self

        return record_call


class App:
    def __init__(self, name: str) -> None:
        self.options: dict[str, Any] = {}

    def function(self, **options: Any) -> Any:
        def keep_function(function: Any) -> Any:
            self.options = options
            function.with_options = lambda **named: self.options.update(named) or function
            function.remote = function
            return function

        return keep_function

    def local_entrypoint(self) -> Any:
        return lambda function: function


@pytest.fixture
def modal_app(monkeypatch: pytest.MonkeyPatch) -> Any:
    modal = types.ModuleType("modal")
    vars(modal).update(App=App, Image=Chain(), is_local=lambda: True)
    monkeypatch.setitem(sys.modules, "modal", modal)
    spec = importlib.util.spec_from_file_location("modal_app", RECIPES / "modal_app.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_modal_brings_the_file_home_from_the_gpu_that_was_asked_for(
    modal_app: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert modal_app.CHECKOUT == ROOT
    built = modal_app.image.calls
    assert Path(built["pip_install_from_requirements"][0][0]).samefile(RECIPES / "requirements.txt")
    assert built["add_local_dir"][0] == (ROOT, "/warpshelf")
    ignored = [
        line for line in read_recipe("Containerfile.dockerignore").splitlines() if line[0] != "#"
    ]
    assert sorted(built["add_local_dir"][1]["ignore"]) == sorted(ignored)
    (tmp_path / "records.json").write_bytes(b"{}")
    monkeypatch.setattr(modal_app, "CHECKOUT", tmp_path)
    called: list[Any] = []
    monkeypatch.setattr(modal_app.subprocess, "run", lambda *a, **k: called.append((a, k)))
    assert modal_app.main(gpu="T4", budget=60, ids="softmax stream") == b"{}"
    [((words,), named)] = called
    assert words[:3] == ["python", "scripts/build.py", "run"] and named["cwd"] == tmp_path
    assert words[-2:] == ["softmax", "stream"]
    assert_accepted(words[3:], capsys)
    options = modal_app.app.options
    assert options["gpu"] == "T4" and options["timeout"] > 60
    assert "-w records.json scripts/recipes/modal_app.py" in modal_app.__doc__

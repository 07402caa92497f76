"""The workflow files: valid, pinned, with the least permission, and no stranger near our GPU."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml

from warpshelf import readings

ROOT = Path(__file__).resolve().parents[1]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
PROGRAMS = Path(sysconfig.get_path("scripts"))

PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")
HOSTED = re.compile(r"(ubuntu|macos|windows)-[\w.]+")
# What somebody outside can choose the text of, put where a shell would read it as program text.
OUTSIDE = re.compile(r"\$\{\{[^}]*\b(github\.event|github\.head_ref|github\.ref_name|inputs)\b")

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> dict:
    """A workflow; its `on` arrives as the boolean True, which YAML 1.1 takes it for."""
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    workflow["on"] = workflow.pop(True)
    return workflow


def triggers(workflow: dict) -> set[str]:
    on = workflow["on"]
    return {on} if isinstance(on, str) else set(on)


def steps(workflow: dict) -> list[dict]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def run(program: str, *arguments: str | Path) -> None:
    done = subprocess.run(
        [PROGRAMS / program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{program}:\n{done.stdout}{done.stderr}"


def test_there_are_workflows() -> None:
    assert {path.stem for path in WORKFLOWS} == {"gpu", "pages", "pull-request"}


def schema(name: str, *paths: Path) -> None:
    run("check-jsonschema", "--builtin-schema", name, *paths)


def test_schema() -> None:
    schema("vendor.github-workflows", *WORKFLOWS)
    schema("custom.github-workflows-require-timeout", *WORKFLOWS)


def test_issue_forms_schema() -> None:
    schema("vendor.github-issue-forms", *FORMS)
    schema("vendor.github-issue-config", GITHUB / "ISSUE_TEMPLATE" / "config.yml")


def test_security_audit() -> None:
    """Injection, credentials left behind, loose permissions, pins: nothing found, offline."""
    run("zizmor", "--offline", "--no-progress", "--strict-collection", "--pedantic", *WORKFLOWS)


@each_workflow
def test_actions_are_pinned_by_commit(path: Path) -> None:
    used = [step["uses"] for step in steps(read(path)) if "uses" in step]
    assert used
    assert [name for name in used if not PINNED.fullmatch(name)] == []


@each_workflow
def test_each_pin_says_its_version(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if " uses: " in line]
    assert [line for line in lines if not re.search(r"@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line)] == []


def test_one_action_has_one_pin() -> None:
    used = {step["uses"] for path in WORKFLOWS for step in steps(read(path)) if "uses" in step}
    names = [name.partition("@")[0] for name in used]
    assert sorted(names) == sorted(set(names))


@each_workflow
def test_permissions_are_least(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        allowed = {"pages": "write", "id-token": "write"} if name == "deploy" else None
        assert job.get("permissions") == allowed, name


def test_only_pages_deploys() -> None:
    assert [path.stem for path in WORKFLOWS if "deploy" in read(path)["jobs"]] == ["pages"]


@each_workflow
def test_pull_requests_reach_no_machine_of_ours(path: Path) -> None:
    workflow = read(path)
    assert not triggers(workflow) & {"pull_request_target", "workflow_run", "issue_comment"}
    if "pull_request" in triggers(workflow):
        runners = [job["runs-on"] for job in workflow["jobs"].values()]
        assert [name for name in runners if not HOSTED.fullmatch(str(name))] == []


@each_workflow
def test_own_machines_start_by_hand_only(path: Path) -> None:
    workflow = read(path)
    for name, job in workflow["jobs"].items():
        if not HOSTED.fullmatch(str(job["runs-on"])):
            assert triggers(workflow) == {"workflow_dispatch"}, name
            assert job["if"] == "github.repository == 'warpshelf/warpshelf'", name
            assert job["environment"], name


@each_workflow
def test_no_outside_text_in_a_script(path: Path) -> None:
    for step in steps(read(path)):
        assert not OUTSIDE.search(step.get("run", "")), step


@each_workflow
def test_checkouts_leave_no_credentials(path: Path) -> None:
    for step in steps(read(path)):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_link_form_asks_for_the_fields_of_a_reading() -> None:
    """The form's answers are an entry; what only maintainers decide is not asked for."""
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "link.yml").read_text(encoding="utf-8"))
    fields = {item["id"]: item for item in form["body"] if "id" in item}
    entry = readings.Reading.model_fields
    decided_here = {"id", "rating", "seed", "superseded_by", "mended"}
    assert set(fields) - {"topic", "notes"} == set(entry) - decided_here
    asked = {name for name, item in fields.items() if item.get("validations", {}).get("required")}
    wanted = {name for name, field in entry.items() if field.is_required()} - decided_here
    assert asked - {"topic"} == wanted
    assert fields["kind"]["attributes"]["options"] == list(readings.Kind.__args__)
    assert fields["level"]["attributes"]["options"] == list(readings.Level.__args__)


def test_link_form_offers_every_topic() -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / "link.yml").read_text(encoding="utf-8"))
    [topic] = [item for item in form["body"] if item.get("id") == "topic"]
    docs = ROOT / "docs"
    lists = {path.relative_to(docs).with_suffix("").as_posix() for path in docs.glob("*/*.yml")}
    assert lists - set(topic["attributes"]["options"]) == set()

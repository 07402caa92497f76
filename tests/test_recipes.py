"""The ways in for a borrowed GPU: each is run here as far as it can be, and ends with its file."""

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
from warpshelf.records import bundle

ROOT = Path(__file__).resolve().parents[1]
RECIPES = Project(ROOT).recipes
PAGE = (ROOT / "docs" / "about" / "measure.md").read_text(encoding="utf-8")
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
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
    assert [name for name in sorted(linked) if not (FORMS / name).is_file()] == []


def test_the_form_takes_a_file() -> None:
    """A field that shows its text as code would take none."""
    form = yaml.safe_load((FORMS / "records.yml").read_text(encoding="utf-8"))
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


def write_program(path: Path, text: str) -> None:
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
    write_program(folder / "bin" / "srun", '"$@"')
    write_program(folder / "bin" / "scontrol", 'echo "$@" > requeued')
    write_program(folder / "bin" / "squeue", "date -d '+1 hour' +%Y-%m-%dT%H:%M:%S")
    run = f'[ "$1" = -c ] && exit 0\nprintf "%s\\n" "$@" > called\ntouch "$4"\nexit {status}'
    write_program(folder / ".venv" / "bin" / "python", run)
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
    write_program(tmp_path / ".venv" / "bin" / "python", "exit 1")
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
    write_program(tmp_path / "measure" / "bin" / "python", made)
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

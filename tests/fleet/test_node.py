"""What a node does with a task: in the copy that travels, in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import node_tasks
import pytest
from conftest import ROOT, Trial

from warpshelf.bench import assemble
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.fleet import node, run_cluster
from warpshelf.fleet.queue import Item, cpu_kind
from warpshelf.fleet.run_cluster import judge_answer

TASK = {"key": "one on cpu", "snippet": "one", "only": "cpu", "workers": 1, "seconds": 20.0}
ROW = {"snippet": "one", "state": "passed"}


@pytest.fixture
def checkout_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like the copy, whose command line a test writes."""
    (tmp_path / "scripts" / "warpshelf").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_runner(copy: Path, text: str) -> None:
    """Have `python -m warpshelf` do what `text` says."""
    (copy / "scripts" / "warpshelf" / "__main__.py").write_text(text)


def test_a_verdict_and_its_record_come_back(checkout_copy: Path) -> None:
    write_runner(
        checkout_copy,
        "import json, os, sys\n"
        "out = sys.argv[sys.argv.index('--out') + 1]\n"
        "json.dump({'records': [sys.argv[1:4]]}, open(out, 'w'))\n"
        f"print(json.dumps([{ROW!r} | {{'gpu': os.environ['CUDA_VISIBLE_DEVICES']}}]))\n",
    )
    assert node.run(TASK) == {"row": ROW | {"gpu": ""}, "record": ["run", "one", "--only"]}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "import sys; sys.exit('torch: is not installed; install it')",
            {"unfit": "torch: is not installed; install it"},
        ),
        (
            "import sys; print('[]'); sys.exit('F.json: No space left on device; see')",
            {"unfit": "No space left on device"},
        ),
        ("import os; os.kill(os.getpid(), 9)", "the runner was ended by signal 9: no output"),
        ("raise KeyError('x')", "the runner left with status 1: KeyError: 'x'"),
        ("print('no JSON')", "the runner left with status 0: no output"),
    ],
)
def test_a_runner_that_says_no_verdict(
    checkout_copy: Path, text: str, answer: dict[str, str] | str
) -> None:
    write_runner(checkout_copy, text)
    assert node.run(TASK) == ({"failed": answer} if isinstance(answer, str) else answer)


def test_a_folder_that_takes_no_files_makes_a_node_unfit(
    checkout_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.tempfile, "tempdir", str(checkout_copy / "gone"))
    assert node.run(TASK) == {"unfit": f"No such file or directory: {checkout_copy}/gone"}


def is_alive(number: int) -> bool:
    state = Path(f"/proc/{number}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_gone(number: int) -> bool:
    until = time.monotonic() + 10
    while is_alive(number) and time.monotonic() < until:
        time.sleep(0.02)
    return not is_alive(number)


LASTS = (
    "import os, subprocess, sys, time\n"
    "one = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "open('pids.part', 'w').write(f'{os.getpid()} {one.pid}')\n"
    "os.rename('pids.part', 'pids')\n"
    "time.sleep(60)\n"
)


@pytest.mark.alone
@pytest.mark.exhaustive("waits until a deadline is over")
def test_a_runner_that_hangs_is_ended_with_all_that_it_started(checkout_copy: Path) -> None:
    write_runner(checkout_copy, LASTS)
    answer = node.run(TASK | {"seconds": 2.0})
    assert answer == {"failed": "the runner was still running after 2 s"}
    assert all(wait_gone(int(word)) for word in (checkout_copy / "pids").read_text().split())


@pytest.mark.alone
def test_a_runner_dies_with_the_worker_that_started_it(checkout_copy: Path) -> None:
    write_runner(checkout_copy, LASTS)
    text = f"from warpshelf.fleet import node; node.run({TASK!r})"
    tooling = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    with subprocess.Popen([sys.executable, "-c", text], cwd=checkout_copy, env=tooling) as worker:
        until = time.monotonic() + 20
        while not (checkout_copy / "pids").exists() and time.monotonic() < until:
            time.sleep(0.02)
        worker.kill()
    assert wait_gone(int((checkout_copy / "pids").read_text().split()[0]))


def test_a_node_says_what_it_lacks(checkout_copy: Path) -> None:
    machine = {"slug": "cpu", "gpus": 0, "torch": "", "triton": None}
    question = {"key": "describe", "gpus": 0}
    write_runner(checkout_copy, f"import json; print(json.dumps({machine!r}))")
    said = "the Python of Ray lacks torch and triton"
    assert node.describe_machine(question) == {"unfit": said}
    machine |= {"torch": "2.13.0", "triton": "3.7.1"}
    write_runner(checkout_copy, f"import json; print(json.dumps({machine!r}))")
    assert node.describe_machine(question) == {"machine": machine}
    assert node.describe_machine(question | {"gpus": 2}) == {
        "unfit": "Ray counts 2 GPUs, but torch finds none"
    }
    write_runner(checkout_copy, "import typer_is_missing")
    assert node.describe_machine(question) == {
        "unfit": "ModuleNotFoundError: No module named 'typer_is_missing'"
    }


@pytest.fixture
def packed_copy(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The copy of a project with one sound snippet, which this process is in."""
    trial.add_sound_snippet()
    project = Project(trial.root)
    with run_cluster.pack_checkout(project, snippet.discover_snippets(project)) as folder:
        monkeypatch.chdir(folder)
        yield folder


def test_a_check_over_there_is_the_one_here(trial: Trial, packed_copy: Path) -> None:
    [sound] = snippet.discover_snippets(Project(trial.root))
    (packed_copy / ".shelf").mkdir(exist_ok=True)
    (packed_copy / ".shelf" / "commit").write_text("0123456789ab\n")
    item = Item(sound, cpu_kind(node_tasks.describe_cpu({"gpus": 0})["machine"]))
    answer = node_tasks.run_check(item.task_details())
    found = judge_answer(item, answer, "there")
    assert found.verdict is not None and found.verdict.state == "passed"
    assert found.record is not None
    assert (found.record["digest"], found.record["commit"]) == (sound.digest, "0123456789ab")
    # Called a GPU's it is refused at home: it leaves out what a GPU would have timed.
    gpu = node_tasks.describe_device("A1") | {
        "os": "Linux x86_64",
        "python": "3",
        "torch": "2",
        "triton": "3",
    }
    record = {**found.record, "machine": gpu}
    out = trial.root / "records.json"
    out.write_text(json.dumps({"schema": 1, "records": [found.record, record]}))
    said = trial.run_shelf("import", "records.json")
    assert (
        said.returncode == 1 and "sound on imaginary-a1: leaves out the timed case" in said.stderr
    )


def test_what_travels_is_what_a_run_reads(tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    snippets = root / "snippets"
    for name in ("search_methods", "autotune", "transpose"):
        shutil.copytree(ROOT / "snippets" / name, snippets / name)
    shutil.copy(ROOT / "mkdocs.yml", root)
    project = Project(root)
    chosen = snippet.discover_snippets(project)
    with run_cluster.pack_checkout(project, chosen) as folder:
        there = snippet.discover_snippets(Project(folder))
        assert [one.digest for one in there] == [one.digest for one in chosen]
        records = {path.relative_to(folder).parts[1] for path in folder.rglob("results/*")}
        assert records == {"autotune"}  # the others are read by none
        assert sum(path.stat().st_size for path in folder.rglob("*")) < 8 * 2**20
        assert (folder / "scripts" / "papergpu" / "core").is_dir()
    assert not folder.exists()


def test_the_commit_goes_along(packed_copy: Path) -> None:
    assert not (packed_copy / assemble.TRAVELS_WITH).exists()  # the trial has none
    with run_cluster.pack_checkout(Project(ROOT), []) as folder:
        told = assemble.checkout_commit(folder)
        assert told is not None and told == assemble.checkout_commit(ROOT)

"""A run that is stopped by a signal, and the same command once more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT, Trial, exhaustive

from warpshelf.bench import pool

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")

MODEL = '''"""What waits for a file, if it is told to.

Error   exact
Raises  nothing
Source  none
"""

import time
from pathlib import Path


def demo():
    while {waits} and not Path("go").exists():
        time.sleep(0.02)
    print("one")


if __name__ == "__main__":
    demo()
# ---- cases.py ----
"""What verifies it."""

NEEDS = {{"seconds": 600}}


def facts():
    with open("count.txt", "a") as file:
        file.write("{name}\\n")
    fact = {{"name": "a", "value": 1, "expected": 1, "tolerance": 0}}
    return [fact | {{"unit": "", "source": "none"}}]
'''


class Stage:
    """A project of two quick snippets, and a third that waits until `go` is called."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.file = trial.root / "go"
        self.count = trial.root / "count.txt"
        for name in ("first", "second", "third"):
            trial.add_snippet(name, MODEL.format(waits=name == "third", name=name))
        self.begun: list[subprocess.Popen[str]] = []

    def start_run(self, *words: str, ignored: bool = False) -> subprocess.Popen[str]:
        """Begin a run in a process of its own, as a shell would."""
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "build.py"), "run", *words],
            cwd=self.trial.root,
            env={**os.environ, "STAGE_MARK": str(self.trial.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_ignore_hangup if ignored else None,
        )
        self.begun.append(process)
        return process

    def count_runs(self) -> int:
        """How many snippets have been run to their end, each time counted."""
        return len(self.count.read_text().split())

    def has_records(self, *names: str, out: str | None = None) -> bool:
        """Whether just these have a record."""
        if out is None:
            found = [path.parents[1].name for path in self.trial.root.glob("snippets/*/results/*")]
        else:
            file = self.trial.root / out
            rows = json.loads(file.read_text())["records"] if file.exists() else []
            found = [row["snippet"] for row in rows]
        return sorted(found) == sorted(names)

    def list_processes(self) -> list[int]:
        """All that were begun and live."""
        mark, found = f"STAGE_MARK={self.trial.root}".encode(), []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found


def _ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.fixture
def stage(trial: Trial) -> Iterator[Stage]:
    stage = Stage(trial)
    yield stage
    for process in stage.begun:
        if process.poll() is None:
            process.kill()
        print(process.communicate())  # what a test that fails shows


def wait_until(true: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def read_states(run: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {row["snippet"]: row["state"] for row in json.loads(run.stdout)}


@pytest.mark.parametrize(
    ("name", "words", "status"),
    exhaustive(
        [
            ("SIGINT", ("--out", "records.json"), 130),
            ("SIGTERM", ("--force",), 143),
            ("SIGTERM", ("--force", "--out", "records.json"), 143),
            ("SIGHUP", (), 129),
        ],
        "every signal",
        light=2,
    ),
)
def test_a_stopped_run_keeps_what_passed_and_goes_on(
    stage: Stage, name: str, words: tuple[str, ...], status: int
) -> None:
    out = "records.json" if "--out" in words else None
    process = stage.start_run(*words, "--json")
    wait_until(lambda: stage.has_records("first", "second", out=out))
    process.send_signal(signal.Signals[name])
    printed, said = process.communicate(timeout=120)
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert f"not run on cpu (it was stopped by {name}): third" in said.splitlines()
    again = f"build.py run {' '.join([*words, '--json'])}`"
    assert [line for line in said.splitlines() if "continue with" in line and line.endswith(again)]
    assert {row["snippet"]: row["state"] for row in json.loads(printed)} == {
        "first": "passed", "second": "passed", "third": "left"
    }  # fmt: skip
    wait_until(lambda: not stage.list_processes(), 20)
    assert stage.has_records("first", "second", out=out)
    assert not list(stage.trial.root.glob("**/.*records.json"))
    before = stage.count_runs()
    stage.file.touch()
    finished = stage.trial.run_shelf("run", *words, "--json")
    assert read_states(finished) == {"first": "current", "second": "current", "third": "passed"}
    assert stage.count_runs() == before + 1  # what had passed was not run again
    assert stage.has_records("first", "second", "third", out=out)
    assert not (stage.trial.root / ".shelf" / "repeated.json").exists()


@pytest.mark.exhaustive("one more signal")
def test_what_nohup_has_ignored_stops_nothing(stage: Stage) -> None:
    process = stage.start_run("--out", "records.json", ignored=True)
    wait_until(lambda: stage.has_records("first", "second", out="records.json"))
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    stage.file.touch()
    _, said = process.communicate(timeout=120)
    assert (
        process.returncode,
        stage.has_records("first", "second", "third", out="records.json"),
    ) == (0, True), said


def test_a_run_killed_outright_leaves_a_whole_file_that_the_next_goes_on_with(stage: Stage) -> None:
    process = stage.start_run("--force", "--out", "records.json")
    wait_until(lambda: stage.has_records("first", "second", out="records.json"))
    process.kill()
    process.communicate(timeout=120)
    wait_until(lambda: not stage.list_processes(), 20)
    stage.file.touch()
    before = stage.count_runs()
    finished = stage.trial.run_shelf("run", "--force", "--out", "records.json", "--json")
    assert read_states(finished) == {"first": "current", "second": "current", "third": "passed"}
    assert stage.count_runs() == before + 1
    assert "records.json holds 3 records; to hand them in," in finished.stderr
    idle = stage.trial.run_shelf("run", "--force", "--out", "records.json")
    assert "has every record of this code already; name another file" in idle.stderr
    assert stage.count_runs() == before + 1
    assert stage.trial.run_shelf("run", "--force", "--out", "other.json").returncode == 0
    assert stage.count_runs() == before + 4


def test_a_forced_run_that_ended_begins_anew(stage: Stage) -> None:
    stage.file.touch()
    for count in (3, 6):
        assert stage.trial.run_shelf("run", "--force").returncode == 0
        assert stage.count_runs() == count


@pytest.mark.exhaustive("a budget, spent by the clock")
def test_what_a_budget_left_out_is_named_with_how_to_go_on(stage: Stage) -> None:
    run = stage.trial.run_shelf("run", "--budget", "4", "--workers", "3", "--out", "records.json")
    assert run.returncode == 0
    lines = run.stderr.splitlines()
    assert "not run on cpu (the budget was spent): third" in lines
    assert [one for one in lines if one.endswith("--budget 4 --workers 3 --out records.json`")]
    assert lines[-1] == "2 passed, 1 left"


def test_what_belongs_together_is_done_before_it_stops() -> None:
    done = []
    with pytest.raises(pool.Stopped, match="SIGTERM"), pool.raise_on_signal():
        with pool.defer_signals():
            with pool.defer_signals():
                signal.raise_signal(signal.SIGTERM)
                done.append("inner")
            done.append("outer")
        done.append("never")
    assert done == ["inner", "outer"]
    before = signal.getsignal(signal.SIGTERM)
    with pool.raise_on_signal():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before

"""A Ray cluster for tests, in a process of its own, and runs of a fleet on it, each in another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Trial

HERE = Path(__file__).parent
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
PATHS = os.pathsep.join([*(str(ROOT / one) for one in ("scripts", ".", "tests")), str(HERE)])
ELSEWHERE = os.environ.get("PYTHONPATH", "")
ENVIRONMENT = {**os.environ, **QUIET, "PYTHONPATH": f"{PATHS}{os.pathsep}{ELSEWHERE}"}
# It wants a GPU, costs nothing, and is not run on a CPU.
LIGHT = '''"""What only a GPU shows.

Error   exact
Raises  nothing
Source  none
"""


def demo():
    print("one")


if __name__ == "__main__":
    demo()
# ---- cases.py ----
"""What verifies it."""

NEEDS = {"gpus": 1}


def facts():
    fact = {"name": "a", "value": 1, "expected": 1, "tolerance": 0}
    return [fact | {"unit": "", "source": "none"}]
'''
# The same for a CPU, which really runs.
PLAIN = LIGHT.replace('NEEDS = {"gpus": 1}\n\n\n', "\n")


class LocalCluster:
    """A cluster in another process, to which nodes are added, and of which they are killed."""

    def __init__(self, **head: Any) -> None:
        words = [sys.executable, str(HERE / "ray_cluster.py"), json.dumps(head)]
        self.process = subprocess.Popen(
            words,
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.address: str = self._read_answer()["address"]

    def add_nodes(self, *accelerators: str, gpus: int = 1) -> list[str]:
        """Add a node for each; their ids."""
        nodes = [
            {"num_cpus": 1, "num_gpus": gpus, "resources": {f"accelerator_type:{one}": 1}}
            for one in accelerators
        ]
        ids: list[str] = self._send_order({"add": nodes})["nodes"]
        return ids

    def kill_node(self, node: str) -> None:
        self._send_order({"kill": node})

    def end_cluster(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.process.stdout.close()

    def _send_order(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return self._read_answer()

    def _read_answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.end_cluster()
            pytest.fail("the cluster did not come up")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class FleetRun:
    """One run of a fleet under way; its events so far."""

    process: subprocess.Popen[str]
    events: list[Any] = field(default_factory=list)
    reader: threading.Thread | None = None

    def wait_end(self, seconds: float = 90) -> FleetRun:
        assert self.reader is not None and self.process.stdout
        try:
            self.process.wait(seconds)
        finally:
            self.process.kill()
            self.reader.join()
            self.process.stdout.close()
        return self

    @property
    def verdicts(self) -> list[tuple[str, str, str]]:
        """Snippet, machine and state, in order of the names."""
        return sorted((one[0], one[1], one[2]) for one in self.verdict_rows)

    @property
    def verdict_rows(self) -> list[list[Any]]:
        """The verdicts, whole."""
        return [one for one in self.events if isinstance(one, list)]

    @property
    def final_answer(self) -> dict[str, Any]:
        """What was found at the end."""
        assert isinstance(self.events[-1], dict), self.events
        return self.events[-1]


@dataclass
class FleetTrial:
    """A project, a cluster, the file that the records go to, and the runs begun."""

    trial: Trial
    cluster: LocalCluster
    runs: list[FleetRun] = field(default_factory=list)

    @property
    def bundle_path(self) -> Path:
        return self.trial.root / "out.json"

    @property
    def parts_path(self) -> Path:
        return self.trial.root / "out.json.parts"

    def start_run(self, work: str, **more: Any) -> FleetRun:
        """Begin a run over all snippets of the project."""
        order = {
            "root": str(self.trial.root),
            "folder": str(self.trial.root),
            "address": self.cluster.address,
            "out": str(self.bundle_path),
            "work": work,
            **more,
        }
        with (self.trial.root / "stderr.txt").open("w") as said:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "fleet_driver.py"), json.dumps(order)],
                env=ENVIRONMENT,
                cwd=self.trial.root,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
        run = FleetRun(process)

        def read_events() -> None:
            assert process.stdout
            run.events.extend(json.loads(line) for line in process.stdout)

        run.reader = threading.Thread(target=read_events)
        run.reader.start()
        self.runs.append(run)
        return run

    def end_runs(self) -> None:
        """End the runs that a failed test has left under way."""
        for run in self.runs:
            if run.process.poll() is None:
                run.process.kill()
                run.wait_end()

    def run_to_end(self, work: str, **more: Any) -> FleetRun:
        run = self.start_run(work, **more).wait_end()
        if not run.events or not isinstance(run.events[-1], dict):
            pytest.fail((self.trial.root / "stderr.txt").read_text()[-2000:])
        return run

    def read_told(self) -> list[tuple[str, str, str]]:
        """What nodes did: snippet, machine, node."""
        file = self.trial.root / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def list_records(self) -> list[tuple[str, str]]:
        """What the bundle holds: snippet and machine."""
        records = json.loads(self.bundle_path.read_text())["records"]
        return sorted((one["snippet"], one["machine"]["slug"]) for one in records)


def await_text(path: Path, seconds: float = 60) -> str:
    """The text of a file, once there is any."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text()):
            return text
        time.sleep(0.05)
    pytest.fail(f"{path.name} never came")

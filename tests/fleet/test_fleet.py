"""A fleet on a Ray cluster of several nodes, with made-up accelerators."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from conftest import ROOT, Trial
from local_fleet import ENVIRONMENT, LIGHT, PLAIN, FleetTrial, LocalCluster, await_text

pytestmark = [
    pytest.mark.exhaustive("clusters of several nodes of Ray"),
    pytest.mark.alone,  # it starts many processes, and some tests watch the clock
]

A, B = "imaginary-a1", "imaginary-b2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A head with two cores and no GPU, two nodes with one kind of GPU, one with another."""
    made = LocalCluster(num_cpus=2)
    made.add_nodes("A1", "A1", "B2")
    yield made
    made.end_cluster()


@pytest.fixture
def fleet_trial(trial: Trial, cluster: LocalCluster) -> Iterator[FleetTrial]:
    """An empty project beside the cluster."""
    made = FleetTrial(trial, cluster)
    yield made
    made.end_runs()


def add_light(fleet_trial: FleetTrial, *names: str) -> None:
    for name in names:
        fleet_trial.trial.add_snippet(name, LIGHT)


def test_each_kind_gets_each_snippet_once_and_a_second_run_has_nothing_to_do(
    fleet_trial: FleetTrial,
) -> None:
    add_light(fleet_trial, "one", "two", "three")
    fleet_trial.trial.add_snippet("plain", PLAIN)
    run = fleet_trial.run_to_end("tell_record")
    wanted = sorted([(name, kind) for name in ("one", "two", "three") for kind in (A, B)])
    assert fleet_trial.list_records() == sorted([*wanted, ("plain", "cpu")])
    assert (
        sorted((name, kind) for name, kind, _ in fleet_trial.read_told())
        == fleet_trial.list_records()
    )
    assert not fleet_trial.parts_path.exists() and run.final_answer == {"findings": []}
    assert {state for *_, state in run.verdicts} == {"passed", "skipped"}
    again = fleet_trial.run_to_end("tell_record")
    assert len(fleet_trial.read_told()) == 7
    assert {state for *_, state in again.verdicts} == {"current", "skipped"}


def test_a_kind_that_nobody_has_is_named_and_the_others_are_served(fleet_trial: FleetTrial) -> None:
    add_light(fleet_trial, "one")
    fleet_trial.trial.add_snippet("many", LIGHT.replace('"gpus": 1', '"gpus": 8'))
    run = fleet_trial.run_to_end("tell_record", options={"kinds": ["B2", "Z9"]})
    assert run.final_answer["findings"] == ["--kinds: no node has Z9; the cluster has A1, B2"]
    assert fleet_trial.list_records() == [("one", B)]
    [refused] = [row for row in run.verdict_rows if row[0] == "many"]
    assert refused[2:4] == ["skipped", "B2: needs 8 GPUs; this machine has 1, CPU: needs a GPU"]


def test_what_a_lost_node_had_is_done_on_another_of_its_kind(fleet_trial: FleetTrial) -> None:
    add_light(fleet_trial, "one", "two", "three")
    first, second = fleet_trial.cluster.add_nodes("C3", "C3")
    options = {"kinds": ["C3"], "only": "gpu"}
    run = fleet_trial.start_run("stall_first", options=options)
    killed = await_text(fleet_trial.trial.root / "began")
    fleet_trial.cluster.kill_node(killed)
    run.wait_end()
    c = "imaginary-c3"
    assert run.verdicts == [(name, c, "passed") for name in ("one", "three", "two")]
    assert {node for *_, node in fleet_trial.read_told()} == {first, second} - {killed}
    # The last of its kind: what it had is left, with the reason, and what came home is kept.
    (fleet_trial.trial.root / "began").unlink()
    add_light(fleet_trial, "four")
    run = fleet_trial.start_run("stall_first", options=options, limits={"grace": 3.0})
    fleet_trial.cluster.kill_node(await_text(fleet_trial.trial.root / "began"))
    run.wait_end()
    assert ("four", c, "left") in run.verdicts
    assert run.final_answer["findings"] == [
        f"fleet: no node with C3 is left: 1 snippets were not run on {c}; "
        "add one and run again to continue"
    ]
    assert fleet_trial.list_records() == [(name, c) for name in ("one", "three", "two")]


def test_a_full_disk_is_told_once_and_the_work_is_done_elsewhere(fleet_trial: FleetTrial) -> None:
    add_light(fleet_trial, "one", "two", "three", "four")
    run = fleet_trial.run_to_end("fill_first_disk", options={"kinds": ["A1"], "only": "gpu"})
    full = (fleet_trial.trial.root / "full").read_text()
    [line] = run.final_answer["findings"]
    assert full[:6] in line and "No space left on device: 0 MiB free in " in line
    assert line.endswith("; free some space there")
    assert fleet_trial.list_records() == [(name, A) for name in ("four", "one", "three", "two")]
    assert {node for *_, node in fleet_trial.read_told()}.isdisjoint({full})


def test_a_full_disk_at_home_loses_nothing_that_had_arrived(fleet_trial: FleetTrial) -> None:
    add_light(fleet_trial, "one", "two", "three")
    options = {"kinds": ["B2"], "only": "gpu"}
    run = fleet_trial.run_to_end("tell_record", options=options, writes=1)
    assert run.final_answer["error"].count("\n") == 0
    assert "No space left on device; free some space and run again; " in run.final_answer["error"]
    [kept] = fleet_trial.parts_path.iterdir()
    assert not fleet_trial.bundle_path.exists() and kept.suffix == ".json"
    again = fleet_trial.run_to_end("tell_record", options=options)
    assert sorted(state for *_, state in again.verdicts) == ["current", "passed", "passed"]
    assert fleet_trial.list_records() == [(name, B) for name in ("one", "three", "two")]
    assert not fleet_trial.parts_path.exists()


def test_an_interrupted_run_keeps_what_came_home_and_the_next_goes_on(
    fleet_trial: FleetTrial,
) -> None:
    add_light(fleet_trial, "one", "two", "three")
    options = {"kinds": ["A1"], "only": "gpu"}
    run = fleet_trial.start_run("stall_first", options=options)
    until = time.monotonic() + 60
    while len(run.verdict_rows) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    run.process.send_signal(signal.SIGTERM)
    run.wait_end()
    assert len(fleet_trial.list_records()) == 2 and not fleet_trial.parts_path.exists()
    [left] = [row[3] for row in run.verdict_rows if row[2] == "left"]
    assert left == "it was stopped by SIGTERM"
    again = fleet_trial.run_to_end("tell_record", options=options)
    assert sorted(state for *_, state in again.verdicts) == ["current", "current", "passed"]


def test_a_node_that_does_not_answer_is_given_up(fleet_trial: FleetTrial) -> None:
    add_light(fleet_trial, "one")
    options = {"kinds": ["B2"], "only": "gpu"}
    run = fleet_trial.run_to_end(
        "ignore_interrupts", options=options, limits={"slack": 3.0 - 360.0}
    )  # of 6 minutes, 3 s
    assert run.verdicts == [("one", B, "left")]
    [line] = run.final_answer["findings"]
    assert " did not answer to one on imaginary-b2 within 3 s; look at its " in line


def test_what_the_budget_does_not_reach_is_left(fleet_trial: FleetTrial) -> None:
    add_light(fleet_trial, "one", "two")
    run = fleet_trial.run_to_end(
        "stall_first", options={"budget": 1.0, "only": "gpu", "kinds": ["B2"]}
    )
    assert run.verdicts == [("one", B, "left"), ("two", B, "left")]
    assert {row[3] for row in run.verdict_rows} == {"the budget was spent"}
    assert run.final_answer["findings"] == [] and fleet_trial.list_records() == []


def test_a_cluster_of_another_ray_is_refused_in_one_line(fleet_trial: FleetTrial) -> None:
    run = fleet_trial.run_to_end("tell_record", version="1.0.0")
    address, error = fleet_trial.cluster.address, run.final_answer["error"]
    assert error.startswith(f"{address}: runs other versions: Version mismatch: ")
    assert "Ray: 1.0.0" in error and "\n" not in error
    assert error.endswith("; use the same Ray and Python as the cluster")


HANGS = PLAIN.replace("def facts():", 'NEEDS = {"seconds": 2}\n\n\ndef facts():').replace(
    'print("one")', "import time\n\n    time.sleep(600)"
)


def test_a_ray_of_this_machine_really_checks_and_a_hanging_snippet_ends_alone(
    trial: Trial,
) -> None:
    trial.add_sound_snippet()
    trial.add_snippet("hangs", HANGS)
    script = str(ROOT / "scripts" / "build.py")
    words = ["run", "--on", "ray", "--only", "cpu", "--json"]
    done = subprocess.run(
        [sys.executable, script, *words],
        cwd=trial.root,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    rows = {row["snippet"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 1, done.stderr
    assert rows["sound"]["state"] == "passed" and rows["hangs"]["state"] == "failed"
    [line] = rows["hangs"]["findings"]
    assert line.startswith("snippets/hangs/hangs.py: still running after 2 s")
    said = trial.run_shelf("import", "records.json")
    assert said.returncode == 0 and said.stdout == "wrote snippets/sound/results/cpu.json\n"

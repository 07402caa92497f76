"""Under which schedule each call of a kernel runs, and what no schedule but one shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import papergpu
import pytest
import torch
from cudasnippet import CASES, SOUND, TARGETS, verified
from papergpu import session

from snippets import cuda
from warpshelf.worker.context import Context
from warpshelf.worker.watch import SCHEDULES, Watch, turn

# Right where the warps come in order, and no race: a warp takes the part whose turn it is.
IN_ORDER = """extern "C" __global__ void k(const int* x, int* y, int* turn, int n) {
    int part = 0;
    if (threadIdx.x % 32 == 0) part = atomicAdd(turn, 1);
    const int i = threadIdx.x, from = __shfl_sync(~0u, part, 0) * 32 + i % 32;
    if (i < n) y[i] = from < n ? x[from] : -1;
}
"""
# Its result is always right here. Only where warp 1 comes first do two warps write one element.
RACES = """extern "C" __global__ void k(const int* x, int* y, int* turn, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = x[i];
    if (i == 0) atomicExch(turn, 1);
    if (i == 32 && atomicAdd(turn, 0) == 0) y[0] = -1;
}
"""
READS = SOUND.replace("y[i] = x[i]", "y[i] = x[i] + 0 * y[i]").replace("int* y", "volatile int* y")


def met(call: Callable[[Watch], None], target: str, targets: list[str], **more: Any) -> set[str]:
    """The schedules that a variant meets on a case and a target."""
    watch = Watch(target)
    watch.begin(3, targets, **more)
    found = set()
    for _ in range(2):
        with watch.call():
            found.add(session.current().schedule)
    call(watch)
    return found


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(
    "targets", [TARGETS, TARGETS[:2], TARGETS[1:], (TARGETS[0], TARGETS[2])], ids=len
)
def test_two_calls_on_two_targets_meet_every_schedule(
    targets: tuple[str, ...], counted: bool
) -> None:
    found: set[str] = set()
    for target in targets:
        found |= met(lambda watch: None, target, list(targets), counted=counted)
    assert found == set(SCHEDULES)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_what_is_for_one_target_is_called_until_it_has_met_every_schedule(
    target: str, counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sm = target.removeprefix("sm_")
    cases = f'NEEDS = {{"variants": {{"ours": {{"sm": {sm}}}}}}}\n{CASES}'
    told: list[tuple[int, str]] = []
    with papergpu.on_launch(lambda one: told.append((one.grid[0], one.settings.schedule))):
        found = verified(tmp_path, monkeypatch, SOUND, cases, target=target)
    assert found["failures"] == []
    assert {schedule for _, schedule in told} == set(SCHEDULES)
    watch = Watch(target)
    watch.begin(0, [target], counted)
    assert not watch.left()  # nothing was launched yet, and perhaps never is


def test_seeds_differ_and_the_first_call_of_the_main_target_is_in_order() -> None:
    turns = [turn(index, call, rank) for index in (0, 1, 9) for call in range(9) for rank in (0, 1)]
    assert turn(4, 0, 0) == turn(4, 0, 2, counted=True) == turn(0, 0, 0)
    assert str(turn(4, 0, 0)) == 'papergpu.settings(schedule="robin", seed=0)'
    seeds = [one.seed for one in turns if one.seed]
    assert len(seeds) == len(set(seeds)) == len(turns) - 3
    assert turns == [
        turn(index, call, rank) for index in (0, 1, 9) for call in range(9) for rank in (0, 1)
    ]


def test_a_machine_with_a_gpu_is_left_alone() -> None:
    watch = Watch(None)
    before = session.current()
    with watch.call():
        assert session.current() is before
    assert (watch.under, watch.left(), watch.executes) == ("", False, False)


def test_settings_end_with_the_call() -> None:
    watch = Watch("sm_90")
    watch.begin(1, list(TARGETS))
    before = session.current()
    with pytest.raises(RuntimeError), watch.call():
        assert session.current() is not before
        raise RuntimeError
    assert session.current() is before
    assert watch.under == ' on sm_90 under papergpu.settings(schedule="robin", seed=0)'


@pytest.mark.parametrize("target", TARGETS)
def test_a_sound_kernel_passes_under_every_schedule(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verified(tmp_path, monkeypatch, SOUND, target=target)
    assert found["failures"] == []
    assert [len(row["results"]) for row in found["cases"]] == [2, 2, 2]


@pytest.fixture
def by_turns(monkeypatch: pytest.MonkeyPatch):
    """Has every call run as the first does."""
    in_order = turn(0, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr("warpshelf.worker.watch.turn", lambda *given: in_order)
        yield


@pytest.mark.parametrize("code", [IN_ORDER, RACES], ids=["wrong", "racy"])
def test_some_faults_are_not_seen_by_turns(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_turns: None
) -> None:
    assert verified(tmp_path, monkeypatch, code)["failures"] == []


def test_a_kernel_that_is_right_in_order_alone_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [failure] = verified(tmp_path, monkeypatch, IN_ORDER)["failures"]
    assert "differs from the truth" in failure["what"]
    assert "on sm_90 under papergpu.settings(schedule=" in failure["what"]
    assert 'schedule="robin", seed=0' not in failure["what"]


def test_a_race_under_another_schedule_is_rejected_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Context, "at", lambda self, place: said.append(place))
    with pytest.raises(papergpu.Finding, match=r"k at trial.cu:\d+"):
        verified(tmp_path, monkeypatch, RACES)
    assert said[-1].startswith("in variant 'ours' on case {'m': ")
    found = re.search(r'on sm_90 under papergpu.settings\(schedule="(\w+)", seed=(\d+)\)', said[-1])
    assert found and found[2] != "0"
    source = cuda.Source(tmp_path / "snippets" / "trial" / "trial.cu")
    x, y = torch.ones(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    repeated = papergpu.settings(schedule=found[1], seed=int(found[2]))
    with repeated, pytest.raises(papergpu.Finding, match=r"k at trial.cu:\d+"):
        source.launch("k", 1, 128, x, y, torch.zeros(1, dtype=torch.int32), np.int32(128))


def test_a_kernel_that_reads_what_nobody_wrote_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(papergpu.Finding, match=r"k at trial.cu:3, .*nobody"):
        verified(tmp_path, monkeypatch, READS, target="sm_80")

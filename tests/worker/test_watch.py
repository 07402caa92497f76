"""Under which schedule each call of a kernel runs, and what no schedule but one shows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import papergpu
import pytest
import torch
from conftest import exhaustive
from cuda_snippet import CASES, SOUND, TARGETS, verify_cuda
from papergpu import session

from snippets import cuda
from warpshelf.worker.context import JobContext
from warpshelf.worker.verify import PoisonMode
from warpshelf.worker.watch import SCHEDULES, CallWatch, settings_for_call

# Calls that are watched.

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


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("rank", range(3))
def test_three_calls_meet_every_schedule(rank: int, counted: bool) -> None:
    watch = CallWatch("sm_90")
    watch.begin_case(3, rank, counted)
    found = []
    for _ in SCHEDULES:
        with watch.watch_call():
            found.append(session.current_settings().schedule)
    assert sorted(found) == sorted(SCHEDULES)
    assert not watch.schedules_left()  # nothing was launched, and perhaps never is


@pytest.mark.parametrize("needs", ["", "NEEDS"])
@pytest.mark.parametrize("target", exhaustive(TARGETS, "all architectures"))
def test_every_case_meets_every_schedule_on_its_first_target_and_what_is_counted_on_each(
    needs: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sm = target.removeprefix("sm_")
    alone = f'NEEDS = {{"variants": {{"ours": {{"sm": {sm}}}}}}}\n' if needs else ""
    told: dict[str, set[str]] = {}
    places: list[str] = []
    monkeypatch.setattr(JobContext, "report_place", lambda self, place: places.append(place))

    def note_schedule(one: papergpu.Launched) -> None:
        told.setdefault(places[-1].partition(" on sm_")[0], set()).add(one.settings.schedule)

    with papergpu.on_launch(note_schedule):
        found = verify_cuda(tmp_path, monkeypatch, SOUND, alone + CASES, target=target)
    assert found["failures"] == []
    whole = bool(needs) or target == TARGETS[0]
    assert len(found["cases"]) == (3 if whole else 1)
    plain = {place: met for place, met in told.items() if place.endswith("}")}
    assert len(plain) == len(found["cases"])
    assert all(met == set(SCHEDULES) for met in plain.values())
    assert (len(told) > len(plain)) is whole  # views, on the first of its targets alone


def test_seeds_differ_and_the_first_call_of_the_main_target_is_in_order() -> None:
    turns = [
        settings_for_call(index, call, rank)
        for index in (0, 1, 9)
        for call in range(9)
        for rank in (0, 1)
    ]
    assert (
        settings_for_call(4, 0, 0)
        == settings_for_call(4, 0, 2, counted=True)
        == settings_for_call(0, 0, 0)
    )
    assert str(settings_for_call(4, 0, 0)) == 'papergpu.settings(schedule="robin", seed=0)'
    seeds = [one.seed for one in turns if one.seed]
    assert len(seeds) == len(set(seeds)) == len(turns) - 3
    assert turns == [
        settings_for_call(index, call, rank)
        for index in (0, 1, 9)
        for call in range(9)
        for rank in (0, 1)
    ]


def test_a_machine_with_a_gpu_is_left_alone() -> None:
    watch = CallWatch(None)
    before = session.current_settings()
    with watch.watch_call():
        assert session.current_settings() is before
    assert (watch.conditions, watch.schedules_left(), watch.executes) == ("", False, False)


def test_settings_end_with_the_call() -> None:
    watch = CallWatch("sm_90")
    watch.begin_case(1)
    before = session.current_settings()
    with pytest.raises(RuntimeError), watch.watch_call():
        assert session.current_settings() is not before
        raise RuntimeError
    assert session.current_settings() is before
    assert watch.conditions == ' on sm_90 under papergpu.settings(schedule="robin", seed=0)'


def test_a_call_that_is_not_specialized_says_so() -> None:
    watch = CallWatch("sm_90")
    watch.begin_case(1)
    with watch.watch_call(specialize=False):
        assert not session.current_settings().specialize
    assert watch.conditions.endswith("seed=0, specialize=False)")


@pytest.mark.parametrize("target", exhaustive(TARGETS, "all architectures"))
def test_a_sound_kernel_passes_under_every_schedule(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = verify_cuda(tmp_path, monkeypatch, SOUND, target=target)
    assert found["failures"] == []
    assert [len(row["results"]) for row in found["cases"]] == [2] * len(found["cases"])


@pytest.fixture
def fixed_order(monkeypatch: pytest.MonkeyPatch):
    """Has every call run as the first does."""
    in_order = settings_for_call(0, 0, 0)
    with monkeypatch.context() as patch:
        patch.setattr("warpshelf.worker.watch.settings_for_call", lambda *given: in_order)
        yield


@pytest.mark.parametrize("code", [IN_ORDER, RACES], ids=["wrong", "racy"])
def test_some_faults_are_not_seen_by_turns(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixed_order: None
) -> None:
    assert verify_cuda(tmp_path, monkeypatch, code)["failures"] == []


def test_a_kernel_that_is_right_in_order_alone_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [failure] = verify_cuda(tmp_path, monkeypatch, IN_ORDER)["failures"]
    assert "differs from the truth" in failure["what"]
    assert "on sm_90 under papergpu.settings(schedule=" in failure["what"]
    assert 'schedule="robin", seed=0' not in failure["what"]


def test_a_race_under_another_schedule_is_rejected_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(JobContext, "report_place", lambda self, place: said.append(place))
    with pytest.raises(papergpu.Finding, match=r"k at trial.cu:\d+"):
        verify_cuda(tmp_path, monkeypatch, RACES)
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
        verify_cuda(tmp_path, monkeypatch, READS)


# A kernel that reads fresh memory is found out; what torch has written raises no alarm.

Tensor = torch.Tensor
KERNELS = """__global__ void read(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = x[i];  // line 3
}
__global__ void even(float* x, int n) {
    const int i = threadIdx.x;
    if (i < n && i % 2 == 0) x[i] = 1;
}
"""
N = 32


@pytest.fixture(scope="module")
def kernel_source(tmp_path_factory: pytest.TempPathFactory) -> cuda.Source:
    path = tmp_path_factory.mktemp("kernels") / "kernels.cu"
    path.write_text(KERNELS)
    return cuda.Source(path)


def launch_read(source: cuda.Source, x: Tensor) -> Tensor:
    y = torch.zeros(N)
    source.launch("read", 1, 32, x, y, np.int32(N))
    return y


FRESH: dict[str, Callable[[], Tensor]] = {
    "empty": lambda: torch.empty(N),
    "empty_like": lambda: torch.empty_like(torch.ones(N)),
    "new_empty": lambda: torch.ones(1).new_empty(N),
    "empty_strided": lambda: torch.empty_strided((N,), (1,)),
    "a view": lambda: torch.empty(2, N)[1],
    "of other shape": lambda: torch.empty(4, N // 4).view(-1).detach(),
    "whose properties were asked": lambda: ask_properties(torch.empty(N)),
    "in inference mode": lambda: make_inferred(),
}


def ask_properties(x: Tensor) -> Tensor:
    assert x.shape == (N,) and x.stride() == (1,) and x.data_ptr() and x.is_contiguous()
    assert x.dtype is torch.float32 and torch.zeros_like(x).sum() == 0
    return x


@torch.inference_mode()
def make_inferred() -> Tensor:
    return torch.empty(N)


@pytest.mark.parametrize("made", FRESH)
def test_reading_what_nobody_wrote_is_found_with_its_line(
    kernel_source: cuda.Source, made: str
) -> None:
    with PoisonMode(marks=True):
        x = FRESH[made]()
        with pytest.raises(papergpu.Finding, match=r"read at kernels.cu:3, .*argument 0.*nobody"):
            launch_read(kernel_source, x)


def test_what_a_kernel_wrote_may_be_read_and_no_more(kernel_source: cuda.Source) -> None:
    with PoisonMode(marks=True):
        x = torch.empty(N)
        kernel_source.launch("even", 1, 32, x, np.int32(N))
        with pytest.raises(papergpu.Finding, match=r"thread \(1, 0, 0\): reads"):
            launch_read(kernel_source, x)
        assert (
            launch_read(kernel_source, torch.as_strided(x, (1,), (1,)).expand(1).repeat(N)).sum()
            == N
        )


def test_without_marks_poison_is_all(kernel_source: cuda.Source) -> None:
    with PoisonMode():
        assert launch_read(kernel_source, torch.empty(N)).isnan().all()


WRITES: dict[str, Callable[[Tensor], object]] = {
    "fill_": lambda x: x.fill_(1),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(torch.ones(N)),
    "a slice": lambda x: x[: N // 2].fill_(1),
    "setitem": lambda x: x.__setitem__(slice(None), 1),
    "out": lambda x: torch.mul(torch.ones(N), 2, out=x),
    "out of several": lambda x: torch.max(
        torch.ones(N, 2), 1, out=(x, torch.zeros(N, dtype=torch.int64))
    ),
    "random": lambda x: x.normal_(),
    "numpy": lambda x: x.numpy().fill(1),
    "data": lambda x: x.data.fill_(1),
    "a storage": lambda x: torch.empty(0).set_(x.untyped_storage()).fill_(1),
    "a list": lambda x: torch._foreach_add_([x], 1),
    "inference mode": lambda x: fill_in_inference(x),
    "dlpack": lambda x: torch.from_dlpack(x).fill_(1),
    "another dtype": lambda x: x.view(torch.int32).fill_(0),
    "index_put_": lambda x: x.index_put_((torch.arange(N),), torch.ones(N)),
}


@torch.inference_mode()
def fill_in_inference(x: Tensor) -> None:
    x.fill_(1)


@pytest.mark.parametrize("how", WRITES)
def test_what_torch_may_have_written_is_no_alarm(kernel_source: cuda.Source, how: str) -> None:
    with PoisonMode(marks=True):
        x = torch.empty(N)
        WRITES[how](x)
        launch_read(kernel_source, x)
    if how == "dlpack":
        return  # tensors of inference mode are not handed on
    with PoisonMode(marks=True), torch.inference_mode():
        x = torch.empty(N)  # counts no writes
        WRITES[how](x)
        launch_read(kernel_source, x)


def test_memory_that_is_kept_may_be_written_between_calls(kernel_source: cuda.Source) -> None:
    with PoisonMode(marks=True):
        x = torch.empty(N)
    x.fill_(1)
    with PoisonMode(marks=True):
        assert launch_read(kernel_source, x).sum() == N


def test_nothing_and_meta_tensors_are_left_alone() -> None:
    with PoisonMode(marks=True):
        assert torch.empty(0, 3).shape == (0, 3)
        assert torch.empty(2, device="meta").shape == (2,)
        assert torch.add(torch.empty(2, device="meta"), 1).shape == (2,)
        assert torch.empty(2, dtype=torch.bool).numel() == 2

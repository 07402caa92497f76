"""ranks: results come back, a failure names its rank and cause, and no process is ever left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from snippets import ranks

pytestmark = pytest.mark.alone


def sum_ranks(rank: int, world_size: int, start: int) -> dict[str, Any]:
    x = torch.tensor([start + rank], device=ranks.device())
    dist.all_reduce(x)
    return {"rank": rank, "world_size": world_size, "sum": x.cpu()}


def note_process_id(folder: str, rank: int) -> None:
    """Leave this rank's process id behind, for the test to look for."""
    Path(folder, str(rank)).write_text(str(os.getpid()))
    dist.barrier()


def raise_on_rank_1(rank: int, world_size: int, folder: str) -> None:
    note_process_id(folder, rank)
    if rank == 1:
        raise KeyError("no such block")
    dist.barrier()  # waits for rank 1 for ever


def leave_by_system_exit(rank: int, world_size: int, folder: str) -> None:
    note_process_id(folder, rank)
    if rank == 1:
        sys.exit(0)
    dist.barrier()


def exit_with_status_3(rank: int, world_size: int, folder: str) -> None:
    note_process_id(folder, rank)
    if rank == 1:
        os._exit(3)
    dist.barrier()


def kill_rank_1(rank: int, world_size: int, folder: str) -> None:
    note_process_id(folder, rank)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def exit_early(rank: int, world_size: int, folder: str) -> None:
    note_process_id(folder, rank)
    if rank == 1:
        os._exit(0)


def hang_on_rank_1(rank: int, world_size: int, folder: str) -> int:
    note_process_id(folder, rank)
    if rank == 1:
        time.sleep(60)
    return rank


def return_function(rank: int, world_size: int, folder: str) -> Any:
    note_process_id(folder, rank)
    return (lambda: rank) if rank == 1 else None


def pass_to_next_rank(rank: int, world_size: int) -> tuple[torch.Tensor, int]:
    """Send 3 float64 and 5 float32 to the next rank, and take what the previous one sends."""
    wire = ranks.Wire()
    sent = [torch.full((3,), rank, dtype=torch.float64), torch.ones(10)[::2]]
    arrive = wire.exchange(sent, (rank + 1) % world_size, (rank - 1) % world_size)
    return arrive()[0], wire.sent


def process_lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def read_process_ids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.iterdir()]


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_results_come_back_by_rank(world_size: int) -> None:
    results = ranks.run(sum_ranks, world_size, 10)
    expected = sum(range(10, 10 + world_size))
    assert [result["rank"] for result in results] == list(range(world_size))
    assert all(int(result["sum"]) == expected for result in results)
    assert all(result["world_size"] == world_size for result in results)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raise_on_rank_1, ["raised", "KeyError", "no such block", "test_ranks.py"]),
        (leave_by_system_exit, ["raised", "SystemExit"]),
        (exit_with_status_3, ["died", "exit status 3"]),
        (exit_early, ["died", "exit status 0"]),
        (kill_rank_1, ["died", "SIGKILL"]),
        (return_function, ["raised", "pickle"]),
    ],
)
def test_a_failure_names_its_rank_and_ends_all(
    function: Any,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    notes, left = tmp_path / "notes", tmp_path / "left"
    notes.mkdir()
    left.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(left))
    begin = time.monotonic()
    with pytest.raises(ranks.RankError) as caught:
        ranks.run(function, 3, str(notes), seconds=30)
    assert time.monotonic() - begin < 20, "the others were waited for"
    assert caught.value.rank == 1
    assert all(word in str(caught.value) for word in ["rank 1", *words]), str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(read_process_ids(notes)) == 3
    assert not any(map(process_lives, read_process_ids(notes)))
    assert list(left.iterdir()) == [], "files were left behind"
    assert capfd.readouterr().err == "", "more was said than the error"


@pytest.mark.exhaustive("waits until a deadline is over")
def test_a_rank_that_hangs_is_named_and_ended(tmp_path: Path) -> None:
    with pytest.raises(ranks.RankError, match="rank 1 did not return within 6 s") as caught:
        ranks.run(hang_on_rank_1, 3, str(tmp_path), seconds=6)
    assert caught.value.rank == 1
    assert len(read_process_ids(tmp_path)) == 3
    assert not any(map(process_lives, read_process_ids(tmp_path)))


def test_ranks_end_where_not_all_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    true_start = multiprocessing.process.BaseProcess.start

    def start_two_at_most(process: Any) -> None:  # whether it forks or spawns
        if len(started) == 2:
            raise BlockingIOError("no process to be had")
        true_start(process)
        started.append(process.pid)

    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", start_two_at_most)
    with pytest.raises(BlockingIOError):
        ranks.run(sum_ranks, 3, 10)
    assert len(started) == 2 and not any(map(process_lives, started))


@pytest.mark.parametrize("failures", [0, 1, ranks.STARTS - 1, ranks.STARTS])
def test_ranks_that_cannot_connect_start_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    connect = ranks.connect

    def connect_or_reset(rank: int, plan: ranks.Plan) -> None:
        if rank == 1:
            starts = len(list(tmp_path.iterdir()))
            (tmp_path / str(starts)).touch()
            if starts < failures:
                raise RuntimeError(f"{ranks.UNCONNECTED} with [pair.cc:144] reset by peer")
        connect(rank, plan)

    monkeypatch.setattr(ranks, "connect", connect_or_reset)
    monkeypatch.setattr(ranks, "may_fork", lambda: True)  # a spawned rank has its own connect
    if failures < ranks.STARTS:
        assert [found["sum"] for found in ranks.run(sum_ranks, 2, 10)] == [21, 21]
        assert len(list(tmp_path.iterdir())) == failures + 1
    else:
        with pytest.raises(ranks.RankError, match=f"rank 1 raised: .*{ranks.UNCONNECTED}"):
            ranks.run(sum_ranks, 2, 10)
        assert len(list(tmp_path.iterdir())) == ranks.STARTS


def test_no_rank_is_no_run() -> None:
    with pytest.raises(ValueError, match="world_size = 0 is below 1"):
        ranks.run(sum_ranks, 0, 10)


def start_process(function: Any, *args: Any) -> Any:
    """A process that may itself start ranks; forked where that is safe, since it is quick."""
    context: Any = multiprocessing.get_context("fork" if ranks.may_fork() else "spawn")
    process = context.Process(target=function, args=args, daemon=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: torch's own threads
        process.start()
    return process


def sum_many_times(rank: int, world_size: int, start: int) -> int:
    x = torch.tensor([start + rank])
    for _ in range(200):
        dist.all_reduce(x, dist.ReduceOp.MAX)
    return int(x)


def write_sums(folder: str, start: int) -> None:
    Path(folder, str(start)).write_text(str(ranks.run(sum_many_times, 3, start)))


def test_runs_beside_each_other_do_not_meet(tmp_path: Path) -> None:
    processes = [start_process(write_sums, str(tmp_path), base) for base in (100, 200, 300)]
    for process in processes:
        process.join(60)
    results = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert results == {str(base): str([base + 2] * 3) for base in (100, 200, 300)}


def sleep_on_rank_0(rank: int, world_size: int, folder: str) -> None:
    """One rank in Python, the other in C code that waits for it."""
    note_process_id(folder, rank)
    if rank == 0:
        time.sleep(60)
    dist.barrier()


def test_ranks_do_not_outlive_a_killed_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a killed parent cannot tidy up
    notes = tmp_path / "notes"
    notes.mkdir()
    parent = start_process(ranks.run, sleep_on_rank_0, 2, str(notes))
    try:
        deadline = time.monotonic() + 60
        while len([path for path in notes.iterdir() if path.read_text()]) < 2:
            assert time.monotonic() < deadline and parent.is_alive()
            time.sleep(0.02)
        assert all(map(process_lives, read_process_ids(notes)))
    finally:
        parent.kill()
        parent.join()
    deadline = time.monotonic() + 5
    while any(map(process_lives, read_process_ids(notes))):
        assert time.monotonic() < deadline, "a rank outlived its parent"
        time.sleep(0.02)


def test_beside_other_threads_ranks_are_spawned() -> None:
    results: list[Any] = []
    methods: list[bool] = []

    def run_in_thread() -> None:
        methods.append(ranks.may_fork())
        results.extend(ranks.run(divmod, 2, seconds=120))  # importable in a fresh process

    thread = threading.Thread(target=run_in_thread)
    thread.start()
    thread.join(150)
    assert methods == [False]
    assert results == [(0, 0), (0, 1)]


def test_a_wire_delivers_and_counts_its_bytes() -> None:
    results = ranks.run(pass_to_next_rank, 3)
    for rank, (received, sent) in enumerate(results):
        assert torch.equal(received, torch.full((3,), (rank - 1) % 3, dtype=torch.float64))
        assert sent == 3 * 8 + 5 * 4  # the view's elements, not its storage's

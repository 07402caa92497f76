"""Run one function in N torch.distributed processes, and hand back what each of them returned.

`run(function, world_size, *args)` starts the ranks, connects them (gloo on CPU, NCCL where there
are enough GPUs), waits, and returns the list of results by rank. Inside a rank, `device()` is
where its tensors belong and `Wire` sends point to point and counts the bytes.

    def total(rank: int, world_size: int, start: int) -> int:
        x = torch.tensor([start + rank], device=ranks.device())
        dist.all_reduce(x)
        return int(x)

    ranks.run(total, 4, 10)  # [46, 46, 46, 46]
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SETTLE = 0.2  # seconds in which the reports that follow a first failure may still come in
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
CPU = torch.device("cpu")


class RankError(RuntimeError):
    """A rank raised, died or did not finish in time; `rank` is its number."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank} {message}")
        self.rank = rank


class Wire:
    """This rank's point-to-point transfers; `sent` is how many bytes have left it."""

    def __init__(self) -> None:
        self.sent = 0

    def exchange(
        self, tensors: Sequence[torch.Tensor], to: int, source: int
    ) -> Callable[[], list[torch.Tensor]]:
        """Start sending `tensors` to rank `to` and receiving as many like them from `source`.

        Returns at once with a function that waits and gives the tensors received: what is
        computed between the two calls overlaps the transfer. Don't write to `tensors` before it.
        """
        outgoing = [tensor.contiguous() for tensor in tensors]
        incoming = [torch.empty_like(tensor) for tensor in outgoing]
        operations = [dist.P2POp(dist.isend, tensor, to) for tensor in outgoing]
        operations += [dist.P2POp(dist.irecv, tensor, source) for tensor in incoming]
        self.sent += sum(tensor.numel() * tensor.element_size() for tensor in outgoing)
        works = dist.batch_isend_irecv(operations)

        def arrive() -> list[torch.Tensor]:
            for work in works:
                work.wait()
            outgoing.clear()  # held until here: the transfer reads them
            return incoming

        return arrive


def device() -> torch.device:
    """Where the calling rank's tensors belong: its own GPU under NCCL, else the CPU."""
    return torch.device("cuda", dist.get_rank()) if dist.get_backend() == "nccl" else CPU


@dataclass(frozen=True)
class Plan:
    """What every rank must know to start."""

    world_size: int
    backend: str
    store: str  # path of the file through which the ranks find each other
    seconds: float
    parent: int  # process id


def run(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    backend: str | None = None,
    seconds: float = 60,
) -> list[Any]:
    """Call `function(rank, world_size, *args)` in `world_size` processes; return results by rank.

    Results are plain values and CPU tensors. `backend` is NCCL where `world_size` GPUs are
    present, else gloo. Whatever happens, no process is left when this returns.

    Raises ValueError for a world size below 1, and RankError, naming the rank and the cause, when
    a rank raises, dies, or has not returned after `seconds`.
    """
    if world_size < 1:
        raise ValueError(f"ranks: world_size = {world_size} is below 1; give at least one rank")
    if backend is None:
        backend = "nccl" if torch.cuda.device_count() >= world_size else "gloo"
    method = "fork" if backend == "gloo" and may_fork() else "spawn"
    context: Any = multiprocessing.get_context(method)
    processes: list[BaseProcess] = []
    with tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True) as folder:
        plan = Plan(world_size, backend, str(Path(folder, "store")), seconds, os.getpid())
        channels: list[Connection] = []
        try:
            for rank in range(world_size):
                ours, theirs = context.Pipe()
                channels.append(ours)
                process = context.Process(
                    target=rank_main, args=(rank, plan, theirs, function, args), daemon=True
                )
                with warnings.catch_warnings():
                    # Python 3.12 warns of threads in the parent; OpenMP's pool is the one that
                    # may_fork() lets pass, and rank_main() never uses it.
                    warnings.simplefilter("ignore", DeprecationWarning)
                    process.start()
                processes.append(process)
                theirs.close()
            results = gather(channels, processes, seconds)
            for channel in channels:
                channel.send_bytes(b"done")
            for process in processes:
                process.join(5)
            return results
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.join()
                process.close()
            for channel in channels:
                channel.close()


def may_fork() -> bool:
    """Whether a forked copy of this process can run torch on the CPU: a fraction of spawn's cost.

    Not with CUDA initialised (its context does not survive) nor with Python threads, whose locks
    may be held; macOS libraries do not survive a fork at all.
    """
    return (
        sys.platform == "linux"
        and not torch.cuda.is_initialized()
        and threading.active_count() == 1
    )


def gather(channels: list[Connection], processes: list[BaseProcess], seconds: float) -> list[Any]:
    """Each rank's result, or RankError for the rank that failed first."""
    deadline = time.monotonic() + seconds
    waiting = dict(enumerate(channels))
    results: dict[int, Any] = {}
    dead: list[int] = []
    raised: list[tuple[float, int, str]] = []
    while waiting and not dead:
        left = deadline - time.monotonic()
        ready = wait(list(waiting.values()), SETTLE if raised else max(left, 0))
        if not ready and not raised:
            names = ", ".join(map(str, waiting))
            raise RankError(
                min(waiting),
                f"did not return within {seconds:g} s (waiting for rank {names}); it hangs, "
                "or needs a larger `seconds`",
            )
        if not ready:
            break
        for rank in [rank for rank, channel in waiting.items() if channel in ready]:
            try:
                when, failure, value = pickle.loads(waiting.pop(rank).recv_bytes())
            except (EOFError, ConnectionError):
                dead.append(rank)
                continue
            if failure is None:
                results[rank] = value
            else:
                raised.append((when, rank, failure))
    # A rank that dies breaks its peers' connections, and one that raises may too: the cause is a
    # death if there is one, else what was raised first.
    if dead:
        process = processes[dead[0]]
        process.join(5)
        raise RankError(dead[0], f"died without an answer: {cause(process.exitcode)}")
    if raised:
        _, rank, failure = min(raised)
        raise RankError(rank, f"raised: {failure}")
    return [results[rank] for rank in range(len(channels))]


def cause(exitcode: int | None) -> str:
    """An exit code in words: "signal SIGKILL" or "exit status 3"."""
    if exitcode is None:
        return "its channel closed but the process goes on"
    if exitcode < 0:
        return f"signal {signal.Signals(-exitcode).name}"
    return f"exit status {exitcode}"


def rank_main(
    rank: int, plan: Plan, channel: Connection, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    """What one rank's process does; the answer goes through `channel`."""
    torch.set_num_threads(1)  # first: an OpenMP pool does not survive a fork, so it is never used
    die_with_parent(plan)
    try:
        connect(rank, plan)
        answer = (time.monotonic(), None, function(rank, plan.world_size, *args))
        message = pickle.dumps(answer)
    except BaseException as error:  # SystemExit and KeyboardInterrupt must reach the parent too
        last = traceback.format_exception_only(error)[-1].strip()
        message = pickle.dumps((time.monotonic(), f"{last}{place(error)}", None))
    with contextlib.suppress(EOFError, OSError):
        channel.send_bytes(message)
        channel.recv_bytes()  # the connections stay up until every rank has answered
    # Without the interpreter's shutdown, which could wait for a peer that is gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def place(error: BaseException) -> str:
    """Where `error` was raised, as " (file.py:12 in name)"."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})"


def die_with_parent(plan: Plan) -> None:
    """Tie this process's life to its parent's, and to the time limit where that is not possible."""
    # A C thread of its own: it ends this process even if Python is stuck, on every system.
    faulthandler.dump_traceback_later(plan.seconds + 10, exit=True, file=2)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != plan.parent:  # it ended before the line above
        os._exit(1)


def connect(rank: int, plan: Plan) -> None:
    """Join the process group: a file store needs no port, and gloo stays on the loopback."""
    if plan.backend == "nccl":
        torch.cuda.set_device(rank)
    if sys.platform in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    dist.init_process_group(
        plan.backend,
        init_method=Path(plan.store).as_uri(),
        rank=rank,
        world_size=plan.world_size,
        timeout=timedelta(seconds=plan.seconds),
    )

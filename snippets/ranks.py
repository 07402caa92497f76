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

import faulthandler
import logging
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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

LOOPBACK = {"linux": "lo", "darwin": "lo0"}
# Of gloo's connections over the loopback, one of thousands is reset on a busy machine. No rank has
# called its function then, so they may start anew.
UNCONNECTED = "Gloo connectFullMesh failed"
STARTS = 3
CPU = torch.device("cpu")
# torch warns of each rank that it ends; RankError says the same, and why.
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)


class RankError(RuntimeError):
    """A rank raised, died or did not finish in time; `rank` is its number."""

    def __init__(self, rank: int, message: str) -> None:
        super().__init__(f"rank {rank} {message}")
        self.rank = rank


class Wire:
    """This rank's point-to-point transfers; `sent` bytes have left it in `messages` tensors."""

    def __init__(self) -> None:
        self.sent = 0
        self.messages = 0

    def exchange(
        self,
        tensors: Sequence[torch.Tensor],
        to: int,
        source: int,
        into: list[torch.Tensor] | None = None,
    ) -> Callable[[], list[torch.Tensor]]:
        """Start sending `tensors` to rank `to` and receiving as many like them from `source`.

        Returns at once with a function that waits and gives the tensors received: what is
        computed between the two calls overlaps the transfer. Don't write to `tensors` before it.
        `into`: contiguous tensors to receive, where they are not like those that are sent.
        """
        outgoing = [tensor.contiguous() for tensor in tensors]
        incoming = [torch.empty_like(tensor) for tensor in outgoing] if into is None else into
        operations = [dist.P2POp(dist.isend, tensor, to) for tensor in outgoing]
        operations += [dist.P2POp(dist.irecv, tensor, source) for tensor in incoming]
        self.sent += sum(tensor.numel() * tensor.element_size() for tensor in outgoing)
        self.messages += len(outgoing)
        works = dist.batch_isend_irecv(operations)

        def arrive() -> list[torch.Tensor]:
            for work in works:
                work.wait()
            outgoing.clear()  # held until here: the transfer reads them
            return incoming

        return arrive

    def send(self, tensor: torch.Tensor, to: int) -> dist.Work:
        """Start sending to rank `to`. Keep `tensor` as it is until the work has been waited for."""
        self.sent += tensor.numel() * tensor.element_size()
        self.messages += 1
        return dist.isend(tensor, to)

    def receive(self, into: torch.Tensor, source: int) -> torch.Tensor:
        """What rank `source` sent next, once it is there."""
        dist.recv(into, source)
        return into


def device() -> torch.device:
    """Where the calling rank's tensors belong: its own GPU under NCCL, else the CPU."""
    return torch.device("cuda", dist.get_rank()) if dist.get_backend() == "nccl" else CPU


@dataclass(frozen=True)
class Plan:
    """What every rank must know to start."""

    world_size: int
    backend: str
    folder: Path  # where the ranks find each other, and leave their answers
    seconds: float

    def answer(self, rank: int, failure: str | None, value: Any = None) -> None:
        """Leave what `rank` returned, or why it failed; in one step, as it may be ended."""
        part = self.folder / f"{rank}.part"
        part.write_bytes(pickle.dumps((time.monotonic(), failure, value)))
        part.replace(self.folder / f"{rank}.answer")

    def answers(self) -> dict[int, tuple[float, str | None, Any]]:
        """When each rank answered, why it failed if it did, and what it returned."""
        paths = {rank: self.folder / f"{rank}.answer" for rank in range(self.world_size)}
        return {rank: pickle.loads(p.read_bytes()) for rank, p in paths.items() if p.exists()}


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
    deadline = time.monotonic() + seconds
    for left in reversed(range(STARTS)):
        try:
            return attempt(function, world_size, args, backend, method, seconds, deadline)
        except RankError as error:
            if UNCONNECTED not in str(error) or not left:
                raise
    raise AssertionError("the last attempt returns or raises")


def attempt(
    function: Callable[..., Any],
    world_size: int,
    args: tuple[Any, ...],
    backend: str,
    method: str,
    seconds: float,
    deadline: float,
) -> list[Any]:
    """Start the ranks once, and return their results by rank."""
    with tempfile.TemporaryDirectory(prefix="ranks-", ignore_cleanup_errors=True) as folder:
        plan = Plan(world_size, backend, Path(folder), seconds)
        context = start(method, plan, function, args)
        try:
            while not context.join(max(deadline - time.monotonic(), 0)):
                if time.monotonic() >= deadline:
                    raise late(plan)
        except (mp.ProcessRaisedException, mp.ProcessExitedException) as error:
            raise blame(plan, context, error.error_index) from None
        finally:
            for process in context.processes:
                process.kill()
            for process in context.processes:
                process.join()
            for path in context.error_files:  # torch leaves them behind
                Path(path).unlink(missing_ok=True)
        if len(plan.answers()) < world_size:
            raise blame(plan, context, None)
        return [value for _, _, value in plan.answers().values()]


def start(method: str, plan: Plan, *call: Any) -> mp.ProcessContext:
    """Start all ranks, or none."""
    known = mp.active_children()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads in the parent; OpenMP's pool is the one that
        # may_fork() lets pass, and rank_main() never uses it.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            job = (plan, *call)
            return mp.start_processes(rank_main, job, plan.world_size, False, True, method)
        except BaseException:
            for process in set(mp.active_children()) - set(known):
                process.kill()
                process.join()
            raise


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


def late(plan: Plan) -> RankError:
    """The error of a run that has reached its time limit."""
    waiting = sorted(set(range(plan.world_size)) - plan.answers().keys()) or [0]
    names = ", ".join(map(str, waiting))
    what = f"did not return within {plan.seconds:g} s (waiting for rank {names})"
    return RankError(waiting[0], f"{what}; it hangs, or needs a larger `seconds`")


def blame(plan: Plan, context: mp.ProcessContext, seen: int | None) -> RankError:
    """The error of the rank that failed first, which need not be the one that was `seen` first.

    A rank that fails breaks its peers' connections, and they fail too: the cause is a death if
    there is one, else what was raised first.
    """
    answers = plan.answers()
    raised = sorted((when, rank, why) for rank, (when, why, _) in answers.items() if why)
    explained = {rank for _, rank, _ in raised}
    for rank, process in enumerate(context.processes):
        code = process.exitcode
        ended = code == -signal.SIGTERM and rank != seen  # by torch, since another had failed
        if rank not in explained and not ended and (code or rank not in answers):
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            return RankError(rank, f"died without an answer: {how}")
    _, rank, why = raised[0]
    return RankError(rank, f"raised: {why}")


def rank_main(rank: int, plan: Plan, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """What one rank's process does."""
    torch.set_num_threads(1)  # first: an OpenMP pool does not survive a fork, so it is never used
    die_with_parent(plan)
    try:
        connect(rank, plan)
        plan.answer(rank, None, function(rank, plan.world_size, *args))
        if dist.is_initialized():
            dist.barrier()  # the connections stay up until every rank has answered
    except BaseException as error:  # SystemExit and KeyboardInterrupt must reach the parent too
        last = traceback.format_exception_only(error)[-1].strip()
        file, line, name, _ = traceback.extract_tb(error.__traceback__)[-1]
        plan.answer(rank, f"{last} ({Path(file).name}:{line} in {name})")
        raise RuntimeError(last) from error
    # Without the interpreter's shutdown, which could wait for a peer that is gone.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def die_with_parent(plan: Plan) -> None:
    """Tie this process's life to its parent's, and to the time limit where that is not possible."""
    # A C thread of its own: it ends this process even if Python is stuck, on every system.
    faulthandler.dump_traceback_later(plan.seconds + 10, exit=True, file=2)
    # On Linux torch has the kernel send this signal; Python's own handler waits for C code.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = mp.parent_process()
    if parent and os.getppid() != parent.pid:  # it ended before torch could ask for that
        os._exit(1)


def connect(rank: int, plan: Plan) -> None:
    """Join the process group: a file store needs no port, and gloo stays on the loopback."""
    own = torch.device("cuda", rank) if plan.backend == "nccl" else None
    if own is not None:
        torch.cuda.set_device(own)
    if sys.platform in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK[sys.platform])
    dist.init_process_group(
        plan.backend,
        init_method=(plan.folder / "store").as_uri(),
        rank=rank,
        world_size=plan.world_size,
        timeout=timedelta(seconds=plan.seconds),
        device_id=own,
    )

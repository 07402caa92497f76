"""A pool of child processes, one job each, with time limits, and the signals that stop a run."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import multiprocessing
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import ledger
from warpshelf.worker.context import Task, run_job

MOST_OUTPUT = 2**20  # bytes that a child may print before it is ended
PATIENCE = 5.0  # seconds that a child has to end after it was asked to
DYING = 60.0  # seconds that a job which wants the machine for itself waits for one that will not
# What a child that verifies may come to hold of a GPU's memory (a context, the allocator's cache,
# the inputs of a large case). It compiles: beside an H200 eight took as many seconds of CPU as
# of the clock.
GPU_SHARE = 8 * 2**30  # bytes
MOST_ON_GPU = 16
LOOK_SECONDS = 60.0  # to import torch and look at the GPU, with a cold disk
AHEAD = ("warpshelf.worker.preload",)  # to preload where children verify kernels without a GPU


def most_on_gpu(machine: Mapping[str, Any]) -> int:
    """How many children may verify on a machine's GPU at a time, by its memory."""
    return max(1, min(MOST_ON_GPU, (machine["memory_bytes"] or 0) // GPU_SHARE))


@dataclass(frozen=True)
class Job:
    """One piece of work: what to do, for which snippet, within how many seconds."""

    do: Task
    key: str
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)
    on_gpu: bool = False  # it holds a share of the GPU
    alone: bool = False  # nothing else may run meanwhile
    then: float = 0.0  # seconds more, from where the child says that its first part is done


Tell = Callable[[Job], None]  # hears that a job starts


@dataclass(frozen=True)
class Outcome:
    """How a job ended. `answer` is None where the child gave none; `cause` then says why."""

    job: Job
    answer: dict[str, Any] | None
    cause: str | None
    place: str
    output: bytes
    token: str
    seconds: float
    mend: str = ""  # what to do about the cause, where it is not the snippet's doing


class Pool:
    """Runs jobs in children, `workers` at a time and `most_on_gpu` of them on the GPU. A context
    manager: leaving it ends them all. `preload` are modules that the fork server imports for all,
    where there is one and this process has not started it yet."""

    def __init__(self, workers: int, preload: Sequence[str] = ()) -> None:
        self.workers = self.most_on_gpu = workers
        # "spawn" starts a fresh interpreter a job where there is no fork server (Windows).
        forks = "forkserver" in multiprocessing.get_all_start_methods()
        self.processes: Any = multiprocessing.get_context("forkserver" if forks else "spawn")
        if forks:
            wanted = ["__main__", "warpshelf.worker.jobs", *preload]
            self.processes.set_forkserver_preload(wanted)
            _start_server()
        self.running: list[_Child] = []
        self.dying: list[_Child] = []  # killed, and not gone yet

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.running:
            one.kill_tree()
        self.running.clear()

    def run(
        self,
        jobs: Iterable[Job],
        deadline: float = math.inf,
        began: Tell = lambda job: None,
    ) -> Iterator[Outcome]:
        """Run jobs and yield each outcome as it comes; `began` hears each start. Past `deadline`
        (by `time.monotonic`) no job starts, and those under way are ended and yield nothing."""
        pending = list(jobs)
        while pending or self.running:
            if time.monotonic() >= deadline:
                self.__exit__()
                return
            while (job := self._next_job(pending)) is not None:
                if job.alone and (stuck := self._wait_for_dying(deadline)):
                    cause = f"did not start: process {stuck.process.pid} of {stuck.job.key} was "
                    cause += "killed and has not ended"
                    mend = "restart the machine if it never does, and run again"
                    yield Outcome(job, None, cause, "", b"", "", 0.0, mend)
                    continue
                began(job)
                self.running.append(_Child(self.processes, job))
            if not self.running:
                continue
            handles = [it for one in self.running for it in (*one.open, one.process.sentinel)]
            until = min(deadline, *(one.limit for one in self.running))
            ready = wait(handles, timeout=max(0.0, until - time.monotonic()))
            for one in list(self.running):
                if outcome := one.poll_outcome(ended=one.process.sentinel in ready):
                    self.running.remove(one)
                    if not one.has_ended():
                        self.dying.append(one)
                    yield outcome

    def _next_job(self, pending: list[Job]) -> Job | None:
        if len(self.running) >= self.workers or any(one.job.alone for one in self.running):
            return None
        free = self.most_on_gpu - sum(one.job.on_gpu for one in self.running)
        for place, job in enumerate(pending):
            if (free > 0 or not job.on_gpu) and not (job.alone and self.running):
                return pending.pop(place)
        return None

    def _wait_for_dying(self, deadline: float) -> _Child | None:
        """Wait for the children that were killed; one that will not end, if there is one."""
        until = min(deadline, time.monotonic() + DYING)
        while True:
            self.dying = [one for one in self.dying if not one.has_ended()]
            if not self.dying or time.monotonic() >= until:
                return next(iter(self.dying), None)
            time.sleep(0.05)


def _start_server() -> None:
    """Start the fork server with this package importable there: it is not told `sys.path`, and
    skips, silently, what it cannot import."""
    from multiprocessing import forkserver  # Windows has none

    atexit.unregister(_end_server)  # once is enough, however many pools there are
    atexit.register(_end_server)
    before = os.environ.get("PYTHONPATH")
    ours = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ours, before)))
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _end_server() -> None:
    from multiprocessing import forkserver

    # By itself it would tear torch down for half a second more, and hold our output open meanwhile.
    if pid := getattr(forkserver._forkserver, "_forkserver_pid", None):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


class _Child:
    """One process, its pipes, and what came out of them so far."""

    def __init__(self, processes: Any, job: Job) -> None:
        self.job = job
        self.token = secrets.token_hex(16)
        self.output = bytearray()
        self.place = ""
        self.answer: dict[str, Any] | None = None
        self.answers, theirs = processes.Pipe(duplex=False)
        self.printed, printing = processes.Pipe(duplex=False)
        self.open: list[Connection] = [self.answers, self.printed]
        details = {**job.details, "do": job.do, "token": self.token}
        self.process = processes.Process(target=run_job, args=(details, theirs, printing))
        self.process.start()
        # Not before: the first child waits until the fork server has imported torch.
        self.started = time.monotonic()
        self.seconds = job.seconds  # that it has in all
        theirs.close()
        printing.close()

    @property
    def limit(self) -> float:
        return self.started + self.seconds

    def poll_outcome(self, ended: bool) -> Outcome | None:
        """Take in what is ready; the outcome once there is one."""
        self._read_output()
        flooded = len(self.output) > MOST_OUTPUT
        # A child that sends without pause has a limit as well.
        self._read_answers(most=1000 if ended or flooded else 1)
        if not (ended or flooded or time.monotonic() >= self.limit):
            return None
        self.kill_tree()
        answer, code = None, self.process.exitcode
        if flooded:
            cause: str | None = f"printed more than {MOST_OUTPUT} bytes"
        elif not ended:
            cause = f"still running after {self.seconds:.4g} s"
        elif answer := self.answer:
            cause = None
        elif code is not None and -code in list(signal.Signals):
            cause = f"was ended by {signal.Signals(-code).name}"
        else:
            cause = f"left with exit status {code} before it was done"
        seconds = time.monotonic() - self.started
        return Outcome(self.job, answer, cause, self.place, bytes(self.output), self.token, seconds)

    def _read_output(self) -> None:
        while self.printed in self.open and wait([self.printed], timeout=0):
            chunk = os.read(self.printed.fileno(), 2**16)
            self.output += chunk
            if not chunk:
                self.open.remove(self.printed)
            if len(self.output) > MOST_OUTPUT:
                return

    def _read_answers(self, most: int) -> None:
        for _ in range(most):
            if self.answers not in self.open or not wait([self.answers], timeout=0):
                return
            try:
                message = json.loads(self.answers.recv_bytes(2**28))
            except (EOFError, OSError, ValueError):
                self.open.remove(self.answers)
                return
            self.place = message.get("at", self.place)
            self.answer = message.get("answer", self.answer)
            if message.get("goes on") and self.seconds == self.job.seconds:
                self.seconds = time.monotonic() - self.started + self.job.then

    def kill_tree(self) -> None:
        if self.process.pid is not None:
            # The child leads its own process group, so its own children go with it.
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            if self.process.is_alive():
                self.process.kill()
            self.process.join(PATIENCE)
        self.answers.close()
        self.printed.close()

    def has_ended(self) -> bool:
        """Whether the child and all that it started have ended, and hold nothing any more."""
        number = self.process.pid
        return number is None or not (self.process.is_alive() or _any_of_group(number))


def _any_of_group(group: int) -> bool:
    """Whether a process of a group runs; a zombie does not."""
    try:
        os.killpg(group, 0)
    except (OSError, AttributeError):  # there is none; Windows has no groups
        return False
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in ("Z", "X"):
                return True
    return False


def describe_machine(pool: Pool, project: Project) -> dict[str, Any]:
    """The machine as a record has it."""
    job = Job(Task.DESCRIBE, "machine", LOOK_SECONDS, {"root": str(project.root)})
    (outcome,) = pool.run([job])
    answer = outcome.answer or {}
    if "machine" in answer:
        return dict(answer["machine"])
    what = outcome.cause or answer.get("failures", [{}])[0].get("what", "gave no answer")
    mend = "check that `import torch` works in this environment"
    raise ShelfError(Finding("torch", None, what, mend))


def local_machine(project: Project) -> dict[str, Any]:
    """The same, in its own pool; without torch, this machine as one without a GPU."""
    if find_spec("torch") is None or not ledger.may_have_gpu():
        return ledger.describe_host()
    with Pool(1) as pool:
        return describe_machine(pool, project)


def require_torch() -> None:
    """Raise ShelfError unless torch is installed."""
    if find_spec("torch") is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("torch", None, what, "run `make site`, which installs it"))


# Signals that ask a run to stop: the first raises `Stopped`, another ends the process. Ctrl-C sends
# SIGINT; Slurm, preemptible clouds and containers send SIGTERM a while before SIGKILL, and a
# terminal that is closed sends SIGHUP. What is ignored, as below nohup, stays ignored.
NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows lacks the last
_holding: list[bool] = []  # as many as there are blocks of `defer_signals` around what runs
_held: list[int] = []  # the signal that came meanwhile


class Stopped(BaseException):
    """A signal came; no `except Exception` on the way may catch it."""

    def __init__(self, number: int) -> None:
        self.name = signal.Signals(number).name
        self.status = 128 + number  # as a shell has it
        super().__init__(self.name)


@contextmanager
def defer_signals() -> Iterator[None]:
    """Hold `Stopped` back until the block is done, so that related changes stay together."""
    _holding.append(True)
    try:
        yield
    finally:
        _holding.pop()
        if _held and not _holding:
            raise Stopped(_held.pop())


@contextmanager
def raise_on_signal() -> Iterator[None]:
    """Have the first signal raise `Stopped` inside the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before: dict[signal.Signals, Any] = {}

    def handle_signal(number: int, frame: FrameType | None) -> None:
        restore_handlers()  # a second signal, from someone who will not wait, ends the process
        if _holding:
            _held.append(number)
        else:
            raise Stopped(number)

    def restore_handlers() -> None:
        while before:
            signal.signal(*before.popitem())

    for one in (getattr(signal, name, None) for name in NAMES):
        handler = signal.getsignal(one) if one else None
        if one and handler not in (None, signal.SIG_IGN):
            before[one] = handler
            signal.signal(one, handle_signal)
    try:
        yield
    finally:
        restore_handlers()

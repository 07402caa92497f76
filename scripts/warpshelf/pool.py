"""A pool of child processes: one job each, with a time limit, from a preloaded fork server."""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

MOST_OUTPUT = 2**20  # bytes that a child may print before it is ended
PATIENCE = 5.0  # seconds that a child has to end after it was asked to


@dataclass(frozen=True)
class Job:
    """One piece of work: what to do, for which snippet, within how many seconds."""

    do: str
    key: str
    seconds: float
    details: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How a job ended. `answer` is None where the child gave none; `cause` then says why."""

    job: Job
    answer: dict | None
    cause: str | None
    place: str
    output: bytes
    token: str
    seconds: float


class Pool:
    """Runs jobs in children, `workers` at a time. A context manager: leaving it ends them all."""

    def __init__(self, workers: int, environment: dict[str, str] | None = None) -> None:
        self.workers = workers
        self.environment = environment or {}
        # "spawn" starts a fresh interpreter a job where there is no fork server (Windows).
        methods = multiprocessing.get_all_start_methods()
        self.processes: Any = multiprocessing.get_context(
            "forkserver" if "forkserver" in methods else "spawn"
        )
        if "forkserver" in methods:
            self.processes.set_forkserver_preload(["__main__", "warpshelf.jobs"])
            _start_server()
        self.running: list[_Child] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self.running:
            child.end()
        self.running.clear()

    def run(
        self,
        jobs: Iterable[Job],
        deadline: float | None = None,
        began: Callable[[Job], None] = lambda job: None,
    ) -> Iterator[Outcome]:
        """Run jobs and yield each outcome as it comes; `began` hears each start.

        Past `deadline` (by `time.monotonic`) no job starts, and those under way are ended and
        yield nothing: what is not finished is left for the next run.
        """
        pending = list(jobs)[::-1]
        while pending or self.running:
            late = deadline is not None and time.monotonic() >= deadline
            if late:
                self.__exit__()
                return
            while pending and len(self.running) < self.workers:
                began(pending[-1])
                self.running.append(_Child(self.processes, pending.pop(), self.environment))
            yield from self._step(deadline)

    def _step(self, deadline: float | None) -> Iterator[Outcome]:
        now = time.monotonic()
        until = min(child.limit for child in self.running)
        if deadline is not None:
            until = min(until, deadline)
        handles = [handle for child in self.running for handle in child.handles()]
        ready = set(wait(handles, timeout=max(0.0, until - now)))
        for child in list(self.running):
            outcome = child.advance(ready)
            if outcome is not None:
                self.running.remove(child)
                yield outcome


def _start_server() -> None:
    """Start the fork server with this package importable there.

    The server skips, silently, what it cannot import, and it is not told `sys.path`; without this
    it would preload nothing, and each child would import torch by itself.
    """
    from multiprocessing import forkserver

    atexit.unregister(_end_server)  # once is enough, however many pools there are
    atexit.register(_end_server)
    before = os.environ.get("PYTHONPATH")
    ours = str(Path(__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (ours, before)))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _end_server() -> None:
    """End the fork server at once.

    By itself it would tear torch down for half a second more, and hold our output open meanwhile.
    """
    from multiprocessing import forkserver

    pid = getattr(forkserver._forkserver, "_forkserver_pid", None)
    if pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


class _Child:
    """One process, its pipes, and what came out of them so far."""

    def __init__(self, processes: Any, job: Job, environment: dict[str, str]) -> None:
        self.job = job
        self.token = secrets.token_hex(16)
        self.started = time.monotonic()
        self.limit = self.started + job.seconds
        self.output = bytearray()
        self.place = ""
        self.answer: dict | None = None
        self.answers, theirs = processes.Pipe(duplex=False)
        self.printed, printing = processes.Pipe(duplex=False)
        self.open = [self.answers, self.printed]
        details = {
            "environment": environment,
            **job.details,
            "do": job.do,
            "token": self.token,
        }
        from warpshelf import child

        self.process = processes.Process(target=child.main, args=(details, theirs, printing))
        self.process.start()
        theirs.close()
        printing.close()

    def handles(self) -> list[Connection | int]:
        return [*self.open, self.process.sentinel]

    def advance(self, ready: set) -> Outcome | None:
        """Take in what is ready; the outcome once there is one."""
        ended = self.process.sentinel in ready
        if self.printed in ready or ended:
            self._read_output(everything=ended)
        if self.answers in ready or ended:
            self._read_answers(everything=ended)
        if len(self.output) > MOST_OUTPUT:
            self.end()
            return self._outcome(None, f"printed more than {MOST_OUTPUT} bytes")
        if ended:
            self.end()
            return self._outcome(self.answer, None if self.answer else self._exit())
        if time.monotonic() >= self.limit:
            self.end()
            return self._outcome(None, f"still running after {self.job.seconds:g} s")
        return None

    def _read_output(self, everything: bool) -> None:
        while self.printed in self.open and len(self.output) <= MOST_OUTPUT:
            if not wait([self.printed], timeout=0):
                return
            chunk = os.read(self.printed.fileno(), 2**16)
            self.output += chunk
            if not chunk:
                self.open.remove(self.printed)
            if not everything:
                return

    def _read_answers(self, everything: bool) -> None:
        while self.answers in self.open and wait([self.answers], timeout=0):
            try:
                message = json.loads(self.answers.recv_bytes(2**28))
            except (EOFError, OSError, ValueError):
                self.open.remove(self.answers)
                return
            self.place = message.get("at", self.place)
            self.answer = message.get("answer", self.answer)
            if not everything:
                return

    def _exit(self) -> str:
        code = self.process.exitcode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                return f"was ended by {signal.Signals(-code).name}"
        return f"left with exit status {code} before it was done"

    def _outcome(self, answer: dict | None, cause: str | None) -> Outcome:
        seconds = time.monotonic() - self.started
        output = bytes(self.output)
        return Outcome(self.job, answer, cause, self.place, output, self.token, seconds)

    def end(self) -> None:
        """End the child and whatever it started, and reap it."""
        if self.process.pid is not None:
            # The child leads its own process group, so its own children go with it.
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            if self.process.is_alive():
                self.process.kill()
            self.process.join(PATIENCE)
        self.answers.close()
        self.printed.close()

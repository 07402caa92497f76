"""A job inside a child process: what it is told, how it answers, and the process around it.

A job is a dict. Its answer goes back as JSON over a pipe, after messages that say where the child
is, so that one that dies can still be placed; what the snippet prints goes to another pipe. The
parent imports this module as well, so torch stays out of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

from warpshelf.contract.values import MalformedCases, Obligations, read_obligations

Place = tuple[str, int]  # a file of the snippet's folder, and a line of it


class Task(StrEnum):
    """What a child can be asked to do, by the name of the function in `jobs` that does it."""

    DESCRIBE = "describe_machine"
    LOOK = "check_contract"
    DUE = "list_due"
    DEMO = "show_demo"
    VERIFY = "verify_snippet"
    GLANCE = "glance_at_snippet"
    JUDGE = "judge_snippet"
    TIME = "time_snippet"
    COMPILE = "compile_snippet"
    VIEW = "view_snippet"
    SPACE = "survey_space"
    REACH = "reach_architecture"


class JobError(Exception):
    """The snippet is wrong; `failures` are dicts with what and mend, and file and line if known."""

    def __init__(self, what: str, mend: str, place: Place | None = None) -> None:
        super().__init__(what)
        self.failures = [make_failure(what, mend, place)]


def make_failure(what: str, mend: str, place: Sequence[Any] | None) -> dict[str, Any]:
    """One thing that is wrong, as an answer has it."""
    file, line = place or (None, None)
    return {"file": file, "line": line, "what": what, "mend": mend}


def describe_error(error: BaseException) -> str:
    """What an exception says, in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"raised {type(error).__name__}: {lines[0]}"[:300]


class JobContext:
    """The context of a job: its description, the snippet's module, a way to report progress."""

    def __init__(self, job: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
        self.job = job
        self.say = say
        self.place_now = ""

    def report_place(self, place: str) -> None:
        """Tell the parent what comes next."""
        self.place_now = place
        self.say({"at": place})

    @cached_property
    def module(self) -> ModuleType:
        """The snippet, imported on first use from the job's checkout, first on the path."""
        self.report_place("at import")
        sys.path.insert(0, self.job["root"])
        package = f"snippets.{self.job['id']}"
        for known in [key for key in sys.modules if f"{key}.".startswith(f"{package}.")]:
            del sys.modules[known]  # of another checkout
        importlib.invalidate_caches()
        return importlib.import_module(f"{package}.{self.job['id']}")

    @cached_property
    def proof(self) -> Obligations:
        """What its cases.py says, imported on first use: a demo needs none, nor the peers in it.
        JobError if something there is malformed."""
        cases = importlib.import_module(f"{self.module.__package__}.cases")
        try:
            return read_obligations(cases, self.job["kind"], self.job["needs"])
        except MalformedCases as malformed:
            error = JobError("", "")
            error.failures = [
                make_failure(what, mend, self.definition_place(name))
                for name, what, mend in malformed.problems
            ]
            raise error from None

    def definition_place(self, name: str) -> Place | None:
        """Where the snippet, or its cases, defines a name."""
        found = self.job["places"].get(name)
        return (found[0], found[1]) if found else None

    def print_mark(self, name: str) -> None:
        """Put a mark between what was printed before, also by C code, and what comes."""
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)
        os.write(1, f"\n{self.job['token']} {name}\n".encode())


def cpu_seconds() -> float:
    """Seconds of CPU that this process and those of its children which have ended have taken. On a
    machine with other work they say more of a job than its minutes by the clock."""
    return sum(os.times()[:4])


def run_job(job: dict[str, Any], answers: Connection, output: Connection) -> None:
    """Run one job; the entry point of a child process."""
    os.setsid()  # so that the parent can end whatever the snippet starts
    if sys.platform == "linux":  # this process ends when the fork server does
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    with contextlib.suppress(ImportError, AttributeError, TypeError, OSError):
        from multiprocessing import forkserver  # and does not keep that one alive

        server: Any = forkserver._forkserver
        os.close(server._forkserver_alive_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    os.environ.update(job.get("environment", {}))
    os.chdir(job["root"])

    def send_message(message: dict[str, Any]) -> None:
        answers.send_bytes(json.dumps(message).encode())

    # And torch with it, once the environment stands.
    jobs = importlib.import_module("warpshelf.worker.jobs")
    # Two edits within a second may have one size, by which Python tells whether a .pyc is current.
    sys.dont_write_bytecode = True
    random.seed(0)
    gc.set_threshold(10_000)  # a compiler leaves little of what it allocates as garbage
    try:
        answer = getattr(jobs, job["do"])(JobContext(job, send_message))
    except JobError as error:
        answer = {"failures": error.failures}
    except BaseException as error:  # SystemExit and KeyboardInterrupt end the child, not the run
        what = f"raised {type(error).__name__}"
        if text := str(error).strip():
            what += f": {text.splitlines()[0]}"
        place = _error_place(error, os.path.dirname(job["path"])) if "path" in job else None
        answer = {"failures": [{**make_failure(what, "", place), "raised": True}]}
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    send_message({"answer": {**answer, "cpu_seconds": round(cpu_seconds(), 2)}})
    answers.close()
    os._exit(0)  # skips the snippet's own exit handlers


def _error_place(error: BaseException, folder: str) -> Place | None:
    """The snippet's file and line that an exception passed last."""
    inside = os.path.join(folder, "")
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno) for frame in frames]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 1))
    own = [
        (file.removeprefix(inside), line)
        for file, line in places
        if line and file.startswith(inside) and file.endswith(".py")
    ]
    return own[-1] if own else None

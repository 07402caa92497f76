"""What runs inside a child process: one job on one snippet.

A job is a dict; its answer goes back as JSON over a pipe, after short messages that say where the
child is, so that a child that dies can still be placed. Whatever the snippet prints goes to another
pipe. The parent imports this module as well, so torch stays out of it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from warpshelf.worker.context import JobContext, JobError, Place, Task, cpu_seconds, make_failure


def error_place(error: BaseException, folder: str) -> Place | None:
    """The snippet's file, and its line, where an exception passed last."""
    inside = os.path.join(folder, "")
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(inside):
        return error.filename.removeprefix(inside), error.lineno or 1
    places = [
        (frame.filename.removeprefix(inside), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(inside) and frame.filename.endswith(".py") and frame.lineno
    ]
    return places[-1] if places else None


def run_job(job: dict[str, Any], answers: Connection, output: Connection) -> None:
    """Run one job; the entry point of a child process."""
    os.setsid()  # so that the parent can end whatever the snippet starts
    die_with_parent()
    _close_server_pipe()
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

    from warpshelf.worker import jobs  # and torch with it, once the environment stands

    # Two edits within a second may have one size, by which Python tells whether a .pyc is current.
    sys.dont_write_bytecode = True
    random.seed(0)
    gc.set_threshold(10_000)  # a compiler leaves little of what it allocates as garbage
    context = JobContext(job, send_message)
    folder = str(Path(job["path"]).parent) if "path" in job else "\0"
    try:
        answer: dict[str, Any] = jobs.DOES[Task(job["do"])](context)
    except JobError as error:
        answer = {"failures": error.failures}
    except BaseException as error:  # SystemExit and KeyboardInterrupt end the child, not the run
        what = f"raised {type(error).__name__}"
        if text := str(error).strip():
            what += f": {text.splitlines()[0]}"
        place = error_place(error, folder)
        answer = {"failures": [{**make_failure(what, "", place), "raised": True}]}
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    send_message({"answer": {**answer, "cpu_seconds": round(cpu_seconds(), 2)}})
    answers.close()
    os._exit(0)  # skips the snippet's own exit handlers


def _close_server_pipe() -> None:
    """Close the pipe by which a child would keep the fork server alive after the parent's end."""
    from multiprocessing import forkserver

    with contextlib.suppress(AttributeError, TypeError, OSError):
        server: Any = forkserver._forkserver
        os.close(server._forkserver_alive_fd)


def die_with_parent() -> None:
    """Have the kernel end this process when the fork server ends (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

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
from typing import Any

from warpshelf.worker.context import JobContext, JobError, Place, Task, cpu_seconds, make_failure


def _error_place(error: BaseException, folder: str) -> Place | None:
    """The snippet's file and line that an exception passed last."""
    inside = os.path.join(folder, "")
    frames = traceback.extract_tb(error.__traceback__)
    places = [(frame.filename, frame.lineno or 0) for frame in frames]
    places = [(file, line) for file, line in places if file.endswith(".py") and line]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 1))
    own = [(file.removeprefix(inside), line) for file, line in places if file.startswith(inside)]
    return own[-1] if own else None


def run_job(job: dict[str, Any], answers: Connection, output: Connection) -> None:
    """Run one job; the entry point of a child process."""
    os.setsid()  # so that the parent can end whatever the snippet starts
    _die_with_parent()
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
    try:
        answer = jobs.DOES[Task(job["do"])](JobContext(job, send_message))
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


def _die_with_parent() -> None:
    """Have this process end when the fork server ends (Linux), and not keep that one alive."""
    from multiprocessing import forkserver

    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    with contextlib.suppress(AttributeError, TypeError, OSError):
        server: Any = forkserver._forkserver
        os.close(server._forkserver_alive_fd)

"""What runs inside a child process: one job on one snippet.

A job is a dict; its answer goes back as JSON over a pipe, after short messages that say where the
child is, so that a child that dies can still be placed. Whatever the snippet prints goes to another
pipe. The parent imports this module as well, so torch stays out of it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any


class JobError(Exception):
    """The snippet is wrong; `failures` are dicts with line, what and mend."""

    def __init__(self, what: str, mend: str, line: int | None = None) -> None:
        super().__init__(what)
        self.failures = [{"line": line, "what": what, "mend": mend}]


class Context:
    """What a job has at hand: its description, the snippet's module, a way to say where it is."""

    def __init__(self, job: dict, say: Callable[[dict], None]) -> None:
        self.job = job
        self.say = say
        self._module: ModuleType | None = None

    def at(self, place: str) -> None:
        """Tell the parent what comes next."""
        self.say({"at": place})

    @property
    def module(self) -> ModuleType:
        """The snippet, imported on first use."""
        if self._module is None:
            self.at("at import")
            self._module = load(Path(self.job["root"]), Path(self.job["path"]))
        return self._module

    def mark(self, name: str) -> None:
        """Put a mark between what was printed before and what comes."""
        sys.stdout.flush()
        sys.stderr.flush()
        flush_c_streams()
        os.write(1, f"\n{self.job['token']} {name}\n".encode())


def load(root: Path, path: Path) -> ModuleType:
    """Import a snippet from its file, with the checkout's root where `snippets` is found."""
    sys.path[:0] = [str(root), str(path.parent)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def flush_c_streams() -> None:
    """Flush what C code has printed, such as a kernel executed on the host."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def place_of(error: BaseException, folder: str) -> int | None:
    """The line of the snippet's own file where an exception passed last."""
    if isinstance(error, SyntaxError) and error.filename and error.filename.startswith(folder):
        return error.lineno
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(folder) and frame.filename.endswith(".py")
    ]
    return lines[-1] if lines else None


def main(job: dict, answers: Connection, output: Connection) -> None:
    """Run one job; the entry point of a child process."""
    os.setsid()  # so that the parent can end whatever the snippet starts
    die_with_parent()
    _let_go_of_server()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    os.environ.update(job.get("environment", {}))
    os.chdir(job["root"])

    def say(message: dict) -> None:
        answers.send_bytes(json.dumps(message).encode())

    from warpshelf import jobs

    random.seed(0)
    context = Context(job, say)
    folder = str(Path(job["path"]).parent) if "path" in job else "\0"
    try:
        answer: dict[str, Any] = getattr(jobs, job["do"])(context)
    except JobError as error:
        answer = {"failures": error.failures}
    except BaseException as error:  # SystemExit and KeyboardInterrupt end the child, not the run
        what = f"raised {type(error).__name__}"
        if text := str(error).strip():
            what += f": {text.splitlines()[0]}"
        line = place_of(error, folder)
        answer = {"failures": [{"line": line, "what": what, "mend": "", "raised": True}]}
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    say({"answer": answer})
    answers.close()
    os._exit(0)  # skips the snippet's own exit handlers


def _let_go_of_server() -> None:
    """Close the pipe by which a child would keep the fork server alive after the parent's end."""
    from multiprocessing import forkserver

    with contextlib.suppress(AttributeError, TypeError, OSError):
        os.close(forkserver._forkserver._forkserver_alive_fd)


def die_with_parent() -> None:
    """Have the kernel end this process when the fork server ends (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

"""The context of a job inside a child, and the jobs that there are, by name."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from warpshelf.contract.values import MalformedCases, Obligations, read_obligations

Place = tuple[str, int]  # a file of the snippet's folder, and a line of it


class Task(StrEnum):
    """What a child can be asked to do; `jobs.DOES` has the function that does it."""

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
        sys.path.insert(0, str(Path(self.job["root"])))
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
        import ctypes

        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)
        os.write(1, f"\n{self.job['token']} {name}\n".encode())


def cpu_seconds() -> float:
    """Seconds of CPU that this process and those of its children which have ended have taken. On a
    machine with other work they say more of a job than its minutes by the clock."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system

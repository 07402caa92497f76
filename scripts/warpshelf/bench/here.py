"""This machine: a child that has imported torch says what GPU there is."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from warpshelf.bench.pool import Job, Outcome, Pool
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.records import machine
from warpshelf.worker.task import Task

SECONDS = 60.0  # to import torch and look at the GPU, with a cold disk


def describe(pool: Pool, project: Project) -> dict[str, Any]:
    """The machine as a record has it.

    Raises:
        ShelfError: torch or the GPU gave no answer.
    """
    job = Job(Task.DESCRIBE, "machine", SECONDS, {"root": str(project.root)})
    for outcome in pool.run([job]):
        if outcome.answer and "machine" in outcome.answer:
            found: dict[str, Any] = outcome.answer["machine"]
            return found
        raise ShelfError(_nothing(outcome))
    raise AssertionError("a pool without a deadline yields every outcome")


def look(project: Project) -> dict[str, Any]:
    """The same, in a pool of its own; as a machine without a GPU where torch is missing.

    Raises:
        ShelfError: torch or the GPU gave no answer.
    """
    if find_spec("torch") is None or not machine.may_have_gpu():
        return machine.plain()
    with Pool(1) as pool:
        return describe(pool, project)


def _nothing(outcome: Outcome) -> Finding:
    failures = (outcome.answer or {}).get("failures", [{}])
    what = outcome.cause or failures[0].get("what", "gave no answer")
    return Finding("torch", None, what, "see that `import torch` works in this environment")


def need_torch() -> None:
    """See that torch is there.

    Raises:
        ShelfError: it is not.
    """
    if find_spec("torch") is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("torch", None, what, "run `make site`, which installs it"))

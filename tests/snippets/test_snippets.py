"""Every case of every snippet, on this machine: `pytest tests/snippets -k softmax`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest
from conftest import ROOT

from warpshelf.bench import assemble, demo
from warpshelf.bench.pool import Job, Outcome, Pool
from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project
from warpshelf.records import machine
from warpshelf.worker.task import Task

SNIPPETS = snippet.discover(Project(ROOT))


def ask(job: Job) -> Outcome:
    """Have one child do one job."""
    with Pool(1) as pool:
        [outcome] = pool.run([job])
    return outcome


@cache
def here() -> dict:
    """This machine."""
    answer = ask(Job(Task.DESCRIBE, "machine", 60, {"root": str(ROOT)})).answer
    assert answer is not None
    return answer["machine"]


def machine_of(one: Snippet) -> dict:
    """The machine that a snippet is verified as running on."""
    return here() if one.wants_gpu else machine.without_gpu(here())


def job(one: Snippet, do: Task, **details: object) -> Job:
    """A job on a snippet, as a run would ask it."""
    common = assemble.details(one, machine_of(one), interpret=machine_of(one)["gpus"] == 0)
    return Job(do, one.id, one.seconds, {**common, **details})


def cases() -> Iterator[tuple[Snippet, int | None]]:
    """Each snippet with each of its cases; programs and models have none, and come once."""
    for one in SNIPPETS:
        if one.findings or one.kind != "kernel":
            yield one, None
            continue
        outcome = ask(job(one, Task.LOOK, demo=False))
        count = len((outcome.answer or {}).get("cases", []))
        yield from ((one, index) for index in range(count) or [None])


def label(value: object) -> str:
    """A test's id: the snippet's, and the number of the case."""
    return value.id if isinstance(value, Snippet) else "facts" if value is None else f"case{value}"


def failures(one: Snippet, outcome: Outcome) -> list[str]:
    """What a child found wrong, as a run would say it."""
    return [str(finding) for finding in assemble.findings_of(one, outcome)]


@pytest.mark.parametrize(("one", "index"), list(cases()), ids=label)
def test_case(one: Snippet, index: int | None) -> None:
    assert not one.findings, one.findings
    if why := assemble.Gathered(one, machine_of(one), None).cannot_run():
        pytest.skip(why)
    if why := one.cannot_run(machine_of(one)["sm"], machine_of(one)["gpus"]):
        pytest.skip(why)
    chosen = None if index is None else [index]
    outcome = ask(job(one, Task.VERIFY, demo=False, cases=chosen))
    assert not failures(one, outcome)
    assert outcome.answer is not None
    rows = outcome.answer.get("cases", []) + outcome.answer.get("facts", [])
    if not rows:
        pytest.skip("; ".join(skip["reason"] for skip in outcome.answer["skips"]))


@pytest.mark.parametrize("one", SNIPPETS, ids=label)
def test_demo(one: Snippet) -> None:
    if why := one.cannot_run(machine_of(one)["sm"], machine_of(one)["gpus"]):
        pytest.skip(why)
    outcome = ask(job(one, Task.VERIFY, cases=[]))
    text = demo.checked(*demo.between_marks(outcome.output, outcome.token))
    assert text.strip()


def test_a_failing_case_is_seen() -> None:
    """The tests above rest on `failures`; see that it is not blind."""
    one = replace(SNIPPETS[0], needs={"seconds": 60})
    outcome = ask(replace(job(one, Task.VERIFY), seconds=0.01))
    assert "still running after 0.01 s" in failures(one, outcome)[0]

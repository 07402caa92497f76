"""Every snippet on this machine: `pytest tests/snippets -k softmax`. Takes 90 s, as each compiles.

One that is as its record says is verified by the case that rejects the most mutants; one that was
changed since, or of a model, whole. `make verify` verifies all, for every architecture.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from conftest import ROOT, snippets_of_the_shelf

from warpshelf.bench import assemble
from warpshelf.bench.pool import Job, Outcome, Pool
from warpshelf.contract.snippet import Snippet
from warpshelf.records import claim_check, ledger, store
from warpshelf.records.schema import Record
from warpshelf.worker.context import Task

SNIPPETS = snippets_of_the_shelf()


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
    return here() if one.wants_gpu else ledger.without_gpu(here())


def job(one: Snippet, do: Task, **details: object) -> Job:
    """A job on a snippet, as a run would ask it."""
    common = assemble.job_details(one, machine_of(one))
    return Job(do, one.id, one.seconds, {**common, **details})


def targets(one: Snippet) -> tuple[str | None, ...]:
    """The architectures whose PTX is executed here; None for the machine itself."""
    return assemble.SnippetRun(one, machine_of(one), None).targets


def failures(one: Snippet, outcome: Outcome) -> list[str]:
    """What a child found wrong, as a run would say it."""
    return [str(finding) for finding in assemble.outcome_findings(one, outcome)]


def verified(one: Snippet, target: str | None, **details: object) -> None:
    """Verify a snippet in a child: nothing fails, something was done, what is shown prints."""
    common = assemble.job_details(one, machine_of(one), target) | details
    outcome = ask(Job(Task.VERIFY, one.id, one.seconds, common))
    assert not failures(one, outcome)
    assert outcome.answer is not None
    rows = outcome.answer.get("cases", []) + outcome.answer.get("facts", [])
    assert rows, outcome.answer["skips"]
    if common["demo"]:
        assert assemble.validate_demo(*assemble.split_output(outcome.output, outcome.token)).strip()


def spare_what_runs_elsewhere(one: Snippet) -> None:
    """Skip the test of a snippet that this machine cannot run."""
    assert not one.findings, one.findings
    here = machine_of(one)
    if why := one.cannot_run(here["sm"], here["gpus"]):
        pytest.skip(why)


LONG = 2  # seconds that facts may take; of a program that takes longer its demo is enough


def shown(one: Snippet, record: Record, target: str | None) -> None:
    """See that a snippet's demo prints what its record says."""
    common = assemble.job_details(one, machine_of(one), target)
    outcome = ask(Job(Task.DEMO, one.id, one.seconds, common))
    assert not failures(one, outcome)
    [said] = assemble.split_output(outcome.output, outcome.token, runs=1)
    assert claim_check.texts_agree(record["demo"], assemble.validate_demo(said, said))


def only_shown(one: Snippet, record: Record) -> bool:
    """Whether the demo is enough of what is as its record says."""
    return one.kind != "kernel" and record.get("seconds", {}).get("verify", 0) > LONG


@pytest.mark.parametrize("one", SNIPPETS, ids=lambda one: one.id)
def test_as_recorded_by_what_tells_most_and_changed_by_all(one: Snippet) -> None:
    spare_what_runs_elsewhere(one)
    record = store.current_record(one, "cpu")
    target = targets(one)[0]
    if record is None:
        verified(one, target, share="some")
    elif only_shown(one, record):
        shown(one, record, target)
    else:
        verified(one, target, share="telling", demo=False)


@pytest.mark.exhaustive("the demos, which `make site` runs too")
@pytest.mark.parametrize("one", SNIPPETS, ids=lambda one: one.id)
def test_its_demo_prints_what_the_record_says(one: Snippet) -> None:
    spare_what_runs_elsewhere(one)
    record = store.current_record(one, "cpu")
    if record is None or only_shown(one, record):
        pytest.skip("the test above runs it")
    shown(one, record, targets(one)[0])


def test_a_failing_case_is_seen() -> None:
    """The tests above rest on `failures`; see that it is not blind."""
    one = replace(SNIPPETS[0], needs={"seconds": 60})
    outcome = ask(replace(job(one, Task.VERIFY), seconds=0.01))
    assert "still running after 0.01 s" in failures(one, outcome)[0]

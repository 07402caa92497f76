"""Every snippet on this machine: `pytest tests/snippets -k softmax`. Takes 60 s, as each compiles.

A kernel that is as its record says is verified by the case that rejects the most mutants, a model
or a program by its facts, or left to its demo where they take long; one that was changed since,
whole. `make verify` verifies all, for every architecture.
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
LONG = 2  # seconds that facts may take; what takes longer, and is as recorded, is left to its demo


def run_job(job: Job) -> Outcome:
    """Have one child do one job."""
    with Pool(1) as pool:
        [outcome] = pool.run([job])
    return outcome


@cache
def local_machine() -> dict:
    """This machine, as a child describes it."""
    answer = run_job(Job(Task.DESCRIBE, "machine", 60, {"root": str(ROOT)})).answer
    assert answer is not None
    return answer["machine"]


def machine_of(one: Snippet) -> dict:
    """The machine that a snippet is verified as running on."""
    return local_machine() if one.wants_gpu else ledger.without_gpu(local_machine())


def first_target(one: Snippet) -> str | None:
    """The first architecture whose PTX is executed here; None for the machine itself."""
    return assemble.SnippetRun(one, machine_of(one), None).targets[0]


def list_failures(one: Snippet, outcome: Outcome) -> list[str]:
    """What a child found wrong, as a run would say it."""
    return [str(finding) for finding in assemble.outcome_findings(one, outcome)]


def assert_verified(one: Snippet, **details: object) -> None:
    """Verify a snippet in a child: nothing fails, something was done, what is shown prints."""
    common = assemble.job_details(one, machine_of(one), first_target(one)) | details
    outcome = run_job(Job(Task.VERIFY, one.id, one.seconds, common))
    assert not list_failures(one, outcome)
    assert outcome.answer is not None
    rows = outcome.answer.get("cases", []) + outcome.answer.get("facts", [])
    assert rows, outcome.answer["skips"]
    if common["demo"]:
        assert assemble.validate_demo(*assemble.split_output(outcome.output, outcome.token)).strip()


def assert_shown(one: Snippet, record: Record) -> None:
    """See that a snippet's demo prints what its record says."""
    common = assemble.job_details(one, machine_of(one), first_target(one))
    outcome = run_job(Job(Task.DEMO, one.id, one.seconds, common))
    assert not list_failures(one, outcome)
    [said] = assemble.split_output(outcome.output, outcome.token, runs=1)
    assert claim_check.texts_agree(record["demo"], assemble.validate_demo(said, said))


def load_record(one: Snippet) -> Record | None:
    """The record of the present code; a snippet that this machine cannot run is skipped."""
    assert not one.findings, one.findings
    machine = machine_of(one)
    if why := one.cannot_run(machine["sm"], machine["gpus"]):
        pytest.skip(why)
    return store.current_record(one, "cpu")


def demo_is_enough(one: Snippet, record: Record) -> bool:
    """Whether what is as its record says is shown, by `make test-all`, rather than verified."""
    return one.kind != "kernel" and record.get("seconds", {}).get("verify", 0) > LONG


def verify_as_recorded(one: Snippet) -> None:
    """Verify a current record by the cases that tell most, else by every case with some views."""
    record = load_record(one)
    if record is None:
        assert_verified(one, share="some")
    elif demo_is_enough(one, record):
        pytest.skip("as its record says: `make site` and `make test-all` run its demo")
    else:
        assert_verified(one, share="telling", demo=False)


def show_as_recorded(one: Snippet) -> None:
    """See that the demo prints what the record says, if `verify_as_recorded` does not."""
    record = load_record(one)
    if record is None:
        pytest.skip("it runs when the rest is verified")
    assert_shown(one, record)


@pytest.mark.parametrize("one", SNIPPETS, ids=lambda one: one.id)
def test_as_recorded_by_what_tells_most_and_changed_by_all(one: Snippet) -> None:
    verify_as_recorded(one)


@pytest.mark.exhaustive("the demos, which `make site` runs too")
@pytest.mark.parametrize("one", SNIPPETS, ids=lambda one: one.id)
def test_its_demo_prints_what_the_record_says(one: Snippet) -> None:
    show_as_recorded(one)


def test_a_failing_case_is_seen() -> None:
    """The tests above rest on `list_failures`; see that it is not blind."""
    kernel = next(one for one in SNIPPETS if one.kind == "kernel")
    one = replace(kernel, needs={"seconds": 60})
    outcome = run_job(Job(Task.VERIFY, one.id, 0.01, assemble.job_details(one, machine_of(one))))
    assert "still running after 0.01 s" in list_failures(one, outcome)[0]

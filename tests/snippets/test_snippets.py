"""Every kernel on this machine: `pytest tests/snippets -k softmax`. Takes 40 s, as each compiles.

One that is as its record says is verified by the case that rejects the most mutants; one that was
changed since, whole. `make verify` verifies all, for every architecture.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from conftest import snippets_of_the_shelf
from verified_snippet import (
    list_failures,
    machine_of,
    run_job,
    show_as_recorded,
    verify_as_recorded,
)

from warpshelf.bench import assemble
from warpshelf.bench.pool import Job
from warpshelf.contract.snippet import Snippet
from warpshelf.worker.context import Task

KERNELS = [one for one in snippets_of_the_shelf() if one.kind == "kernel"]


@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_as_recorded_by_what_tells_most_and_changed_by_all(one: Snippet) -> None:
    verify_as_recorded(one)


@pytest.mark.exhaustive("the demos, which `make site` runs too")
@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_its_demo_prints_what_the_record_says(one: Snippet) -> None:
    show_as_recorded(one)


def test_a_failing_case_is_seen() -> None:
    """The tests above rest on `list_failures`; see that it is not blind."""
    one = replace(KERNELS[0], needs={"seconds": 60})
    outcome = run_job(Job(Task.VERIFY, one.id, 0.01, assemble.job_details(one, machine_of(one))))
    assert "still running after 0.01 s" in list_failures(one, outcome)[0]

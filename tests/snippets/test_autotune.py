"""The space of autotune: what it refuses, and that its record is what would be made again."""

from __future__ import annotations

import random

import pytest
import torch
from conftest import ROOT, snippets_of_the_shelf

from snippets.autotune import autotune, cases
from warpshelf.bench import assemble
from warpshelf.bench.pool import Job, Pool
from warpshelf.contract.values import Space
from warpshelf.core.project import Project
from warpshelf.records import ledger, space, store
from warpshelf.worker.context import Task

RECORD = ROOT / "snippets" / "autotune" / "results" / "cpu.json"


def test_every_refusal_names_the_mend() -> None:
    a = torch.randn(4, 4)
    for sizes, says in (
        ({"bx": 3}, "no size 'bx'; there are bm, bn"),
        ({"bm": 48}, "bm = 48 is none of (32, 64, 128); choose one"),
        ({"bm": 32, "bn": 32, "tm": 16}, "makes a block of 8 threads, not 64 to 512; choose"),
        ({"tm": 16, "tn": 16}, "makes 256 sums a thread"),
        ({"bk": 32}, "over 49152 bytes of shared memory"),
        ({"tm": 4, "tn": 4}, "a block of 1024 threads"),
        ({"bm": 64, "bn": 64, "tm": 4, "tn": 4}, "slabs that 256 threads do not share evenly"),
        ({"bm": 32, "bn": 32, "tm": 4, "tn": 4}, "one quad a thread, which cannot be spread"),
    ):
        with pytest.raises(ValueError, match="^autotune: ") as caught:
            autotune.multiply(a, a, **sizes)
        assert says in str(caught.value)
    with pytest.raises(TypeError, match="^autotune: a is torch.float16"):
        autotune.multiply(a.half(), a)
    with pytest.raises(ValueError, match="cannot be multiplied"):
        autotune.multiply(a, torch.randn(3, 4))
    with pytest.raises(ValueError, match="no matrix of sides up to"):
        autotune.multiply(a[0], a)


def test_what_is_not_finite_stays_where_it_is() -> None:
    a, b = torch.randn(40, 9), torch.randn(9, 36)
    a[7, 3], a[33, 8] = float("inf"), float("nan")
    for sizes in cases.CORNERS.values():
        found, due = autotune.multiply(a, b, **sizes), a.double() @ b.double()
        assert torch.equal(found.isnan(), due.isnan())
        assert torch.equal(found.isinf(), due.isinf())


def test_the_record_has_every_configuration_and_none_beats_the_multiply_adds() -> None:
    found = store.load_record(Project(ROOT), RECORD)["space"]
    declared = Space(**cases.SPACE).configurations()
    names = [tuple(map(str, one.values())) for one in declared]
    for lines in found["rows"].values():
        rows = [space.parse_row(line) for line in lines]
        assert [row.values for row in rows] == names
        # No SM can do its share of multiply-adds in less, at 128 of them a cycle.
        least = cases.SIDE**3 / (128 * cases.SMS)
        assert all(row.figures[4] >= least for row in rows)


@pytest.mark.exhaustive("configurations that a survey has compiled and counted")
def test_some_configurations_are_made_again_as_they_are_on_record() -> None:
    """On the main architecture, three of them: all take minutes."""
    record = store.load_record(Project(ROOT), RECORD)
    known = dict(line.split(": ") for line in record["space"]["rows"]["sm_90"])
    one = next(s for s in snippets_of_the_shelf() if s.id == "autotune")
    chosen = random.Random(0).sample(sorted(known), 3)
    details = assemble.job_details(one, ledger.describe_host(), "sm_90") | {
        "configurations": chosen
    }
    with Pool(1) as pool:
        [outcome] = pool.run([Job(Task.SPACE, one.id, 300, details)])
    assert outcome.answer is not None and outcome.answer["failures"] == [], outcome.cause
    lines = outcome.answer["space"]["rows"]["sm_90"]
    assert {line.split(": ")[0] for line in lines} == set(chosen)
    for line in lines:
        values, figures = line.split(": ")
        assert figures == known[values], values

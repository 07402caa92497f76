"""What a child has imported before it starts, and what it takes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from warpshelf.contract.values import Obligations
from warpshelf.worker.checks import Checks, Share, choose_cases, rank_cases
from warpshelf.worker.context import JobContext

# What a verification takes on: everything, or the share that a job asks for.

# Four cases that kill, and three that are counted, of which one kills as well.
PROOF = Obligations(
    cases=tuple({"n": 9 - n, "dtype": "float32"} for n in range(7)),
    counted=range(4, 7),
    kills=(("a",), ("b",), ("a", "b"), ("c",), (), ("b",), ()),
)


@pytest.mark.parametrize(
    ("share", "cases"),
    [(Share.ALL, [0, 1, 2, 3, 4, 5, 6]), (Share.SOME, [0, 1, 2, 3, 5]), (Share.TELLING, [2])],
)
def test_a_share_chooses_cases(share: Share, cases: list[int]) -> None:
    assert choose_cases(PROOF, share) == cases


@pytest.mark.parametrize(
    ("share", "viewed"), [("all", {*range(23)}), ("some", {0, 10, 20}), ("telling", set())]
)
def test_a_share_draws_views_of_cases(share: str, viewed: set[int]) -> None:
    drawn: set[int] = set()

    def note_case(message: dict) -> None:
        case, comma, _ = message["at"].partition("}, ")
        if comma:
            drawn.add(int(case.rpartition("'n': ")[2]) - 1)

    job = {"needs": {}, "machine": {"sm": None}, "places": {}, "id": "x", "share": share}
    context = JobContext(job, note_case)
    context.proof = Obligations(
        cases=tuple({"n": n + 1} for n in range(23)),
        kills=((),) * 23,
        variants={"twice": lambda x: 2 * x},
        inputs=lambda case, device, generator: (torch.ones(case["n"], device=device),),
        reference=lambda x: 2 * x.double(),
    )
    checks = Checks(context)
    for index in checks.due_cases():
        checks.verify_case(index, context.proof.cases[index], timed=False)
    assert drawn - {-1} == viewed  # -1 is the case whose side is empty
    assert checks.failures == {}


def test_cases_go_by_what_those_before_them_do_not_reject() -> None:
    assert rank_cases(PROOF, range(7)) == [2, 3, 5, 1, 0, 6, 4]
    assert rank_cases(PROOF, [0, 1]) == [1, 0]
    assert rank_cases(PROOF, []) == []


# What the fork server imports before its children, and nothing that a fork would break.

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
LOOK = """
import os, sys, threading
{before}
import warpshelf.worker.preload
import torch
found = [one for one in ("torch._dynamo", "triton", "papergpu.triton") if sys.modules.get(one)]
print(found, os.environ["TRITON_INTERPRET"],
      torch.cuda.is_initialized(), threading.active_count())
"""


def import_preload(before: str = "") -> str:
    """What stands in a process that has imported it."""
    return subprocess.run(
        [sys.executable, "-c", LOOK.format(before=before)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.strip()


@pytest.mark.exhaustive("all that is loaded ahead, in a process of its own")
def test_the_compilers_are_there_and_the_gpu_is_untouched() -> None:
    assert import_preload() == "['torch._dynamo', 'triton', 'papergpu.triton'] 0 False 1"


@pytest.mark.exhaustive("a process for each compiler that may be missing")
def test_what_is_missing_is_done_without() -> None:
    assert import_preload("sys.modules['triton'] = None") == "['torch._dynamo'] 0 False 1"
    assert (
        import_preload("sys.modules['torch._dynamo'] = sys.modules['triton'] = None")
        == "[] 0 False 1"
    )

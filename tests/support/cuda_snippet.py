"""A CUDA C++ snippet in a temporary folder, verified in this process from its PTX."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import papergpu
import pytest
from papergpu.counters import Tally, tally_instructions

from warpshelf.bench import assemble
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import claim_check, ledger
from warpshelf.worker import watch
from warpshelf.worker.context import JobContext

TARGETS = claim_check.TARGETS
MODULE = '''"""A kernel in CUDA C++.

Shapes  x (M,) int32 -> y (M,) int32
Bytes   x read once, y written once
Error   none
Raises  nothing
Source  none
"""

from pathlib import Path

import numpy as np
import torch

from snippets.cuda import Source

SOURCE = Source(Path(__file__).with_name("trial.cu"))


def kernel(x):
    y = torch.empty_like(x)
    if x.numel():
        turn = torch.zeros(1, dtype=torch.int32)
        SOURCE.launch("k", 1, 128, x.contiguous(), y, turn, np.int32(x.numel()))
    return y


def demo(device):
    print("nothing")


if __name__ == "__main__":
    demo("cpu")
'''
CASES = """import torch

from snippets.trial import trial

CASES = ({"m": 7}, {"m": 128}, {"m": 50})
TIMED = ({"m": 128},)
VARIANTS = {"ours": trial.kernel}
PEERS = {"torch": lambda x: (x + x) // 2}


def inputs(case, device, generator):
    size = (case["m"],)
    return (torch.randint(1, 100, size, dtype=torch.int32, generator=generator),)


def reference(x):
    return x
"""
SOUND = """extern "C" __global__ void k(const int* x, int* y, int* turn, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = x[i];
}
"""


def line_counts(launched: list[papergpu.Launched], snippet: str) -> list[dict[str, Any]]:
    """The lines of a snippet, in order, with what they did in some of its launches together."""
    tallies: dict[tuple[str, int], Tally] = {}
    for one in launched:
        if one.result.counts is not None:
            program = watch.fold_program(one.program, snippet)
            for _, place, _, tally in tally_instructions(program, one.result.counts):
                tallies.setdefault(watch.source_line(place), Tally()).add(tally)
    rows = ((at, watch.nonzero_tally(tally)) for at, tally in sorted(tallies.items()))
    return [
        {"at": f"{file}:{line}" if line else file, **row}
        for (file, line), row in rows
        if row.get("classes")
    ]


def verify_cuda(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, cases: str = CASES, **more: object
) -> dict[str, Any]:
    """What verifying a CUDA snippet in this process answers, and with it what was counted."""
    from warpshelf.worker import checks, jobs

    counted: list[watch.LaunchCounts] = []

    class Watched(watch.LaunchCounts):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            counted.append(self)

    home = folder / "snippets" / "trial"
    home.mkdir(parents=True)
    for name, text in (("trial.py", MODULE), ("cases.py", cases), ("trial.cu", code)):
        (home / name).write_text(text)
    one = snippet.read_snippet(Project(folder), home)
    assert not one.findings, one.findings
    target = str(more.pop("target", TARGETS[0]))
    details = {
        **assemble.job_details(one, ledger.describe_host(), target),
        "token": "x",
        "demo": False,
    }
    monkeypatch.setenv("PAPERGPU_TARGET", target)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(checks, "LaunchCounts", Watched)
    answer = jobs.verify_snippet(JobContext({**details, **more}, lambda message: None))
    rows = [
        {
            "variant": name,
            "kernel": done[0].name,
            "case": dict(case),
            "launches": len(done),
            "lines": line_counts(done, "trial"),
        }
        for one in counted
        for name, case, done in one.counted_launches()
    ]
    return {**answer, "counts": rows}

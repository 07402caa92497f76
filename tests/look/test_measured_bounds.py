"""No time that an H200 took is below its bound, and bounds order variants as it did; takes 90 s.

measured_bounds.py makes the bounds anew, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import permutations
from typing import Any

import measured_bounds
import pytest
from conftest import ROOT

from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.look.bound import VariantCost, is_faster
from warpshelf.records import store

# Told apart by what they do on an SM, while both wait for memory: about 1 % lies between them.
LEVEL = {("warps", "blocks"), ("blocks", "streamed")}
Row = dict[str, Any]
Pairs = set[tuple[str, str]]


def read_bounds(name: str) -> list[Row]:
    """Each case and variant of a snippet that has a time: `case`, `variant`, `time`, `bound`."""
    project = Project(ROOT)
    known = snippet.read_snippet(project, project.snippets / name)
    if not store.current_record(known, measured_bounds.MACHINE):
        pytest.skip(f"{name} has changed since it was timed")
    command = [sys.executable, measured_bounds.__file__, name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_below(rows: list[Row]) -> list[Row]:
    """Those that were timed below their bound; prints how far the closest is."""
    closest = min(rows, key=lambda one: one["time"]["p20"] / one["bound"])
    far = closest["time"]["p20"] / closest["bound"]
    print(f"{len(rows)} times, from {far:.2f} times their bound on: {closest}")
    return [one for one in rows if one["time"]["p20"] < one["bound"]]


def order_pairs(rows: list[Row]) -> tuple[Pairs, Pairs]:
    """Pairs that bounds tell apart where all SMs have blocks, and those that the GPU denies."""
    told, wrong = Pairs(), Pairs()
    for one, other in permutations(rows, 2):
        costs = [VariantCost(each["bound"], each["sectors"]) for each in (one, other)]
        if one["case"] != other["case"] or not (one["full"] and other["full"]):
            continue
        if is_faster(*costs):
            pair = one["variant"], other["variant"]
            told.add(pair)
            if one["time"]["median"] >= other["time"]["median"]:
                wrong.add(pair)
    return told, wrong


@pytest.mark.exhaustive("executes every timed case of ten snippets, which takes 5 minutes")
@pytest.mark.parametrize("name", measured_bounds.SIDES)
def test_no_time_is_below_its_bound_and_bounds_order_the_variants(name: str) -> None:
    rows = read_bounds(name)
    assert rows and find_below(rows) == []
    told, wrong = order_pairs(rows)
    if name == "hopper_gemm":
        others = {one["variant"] for one in rows} - {"one stage"}
        assert (told, wrong) == ({(one, "one stage") for one in others}, set())
        for one in rows:  # what holds up clusters is in no bound
            assert one["variant"] == "clusters" or one["time"]["median"] < 2 * one["bound"], one
    else:
        assert wrong == (LEVEL if name == "cuda_softmax" else set())
        assert name != "sgemm" or len(told) >= 24  # of 28

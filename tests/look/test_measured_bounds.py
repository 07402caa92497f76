"""No time that an H200 took is below its bound, and bounds order variants as it did; takes 40 s.

`test_measured_bounds.py SNIPPET` prints the bounds of what was timed, a line each, in a process of
its own. Of a timed case fewer blocks are executed, which do as much each: the sides in SIDES are
cut, none that a block goes along. Their cycles times how often they go into the whole, over the SMs
that have a block and the highest clock of the record, are a bound of the time in it.
"""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import papergpu
import pytest
import torch

from warpshelf.contract import snippet
from warpshelf.contract.values import Case, read_obligations
from warpshelf.core.project import Project
from warpshelf.look.bound import ARCHS, PIPES, VariantCost, is_faster
from warpshelf.records import store
from warpshelf.worker import kernel_views

ROOT = Path(__file__).resolve().parents[2]
MACHINE = "nvidia-h200"
SIDES = {
    "blas_fusion": {"m": 256, "n": 2**15},
    "conv1d": {"b": 1, "d": 8},
    "cuda_softmax": {"m": 16},
    "hopper_gemm": {"m": 256, "n": 256},
    "matmul_languages": {"m": 256, "n": 256},
    "rope": {"b": 1, "s": 16},
    "sgemm": {"m": 128, "n": 128},
    "softmax": {"m": 16},
    "stream": {"n": 2**18},
    "transpose": {"m": 512, "n": 512},
}
SPARE = 3  # one case in so many is executed, and the last; all of the longest ladder
ALIGNED = 16  # what divides a side of a timed case divides the cut one, up to this


def cut_case(case: Case, sides: dict[str, int]) -> tuple[Case, int]:
    """A case with smaller sides, and how many times as much the whole has, at least."""
    cut = {
        side: most - (most - case[side]) % min(ALIGNED, most)
        for side, most in sides.items()
        if case.get(side, 0) > most
    }
    return {**case, **cut}, math.prod(case[side] // kept for side, kept in cut.items())


def bound_times(name: str) -> Iterator[dict[str, Any]]:
    """Of each case and variant that the record has a time of: that, and its bound, in seconds."""
    project = Project(ROOT)
    path = project.snippets / name / "results" / f"{MACHINE}.json"
    record = store.load_record(project, path)
    proof = read_obligations(importlib.import_module(f"snippets.{name}.cases"), "kernel", {})
    assert proof.inputs is not None
    arch, sms = f"sm_{record['machine']['sm']}", record["machine"]["sms"]
    lanes = PIPES["FP32"][ARCHS.index(arch)]
    clock = record["ceilings"]["peak_flops_per_second"]["fp32"] / (2 * lanes * sms)
    papergpu.activate(arch)
    rows = record["cases"]
    for row in rows if name == "sgemm" else [*rows[:-1:SPARE], rows[-1]]:
        case, times = cut_case(row["case"], SIDES[name])
        for result in row["results"]:
            if result["role"] != "variant" or "time" not in result:
                continue
            launched: list[papergpu.Launched] = []
            inputs = proof.inputs(case, "cpu", torch.Generator().manual_seed(0))
            profile = papergpu.settings(profile=True, threads=1, checks=False)
            with profile, papergpu.on_launch(launched.append):
                proof.variants[result["name"]](*inputs)
            programs: dict[int, list[papergpu.Launched]] = {}
            for one in launched:
                programs.setdefault(id(one.program), []).append(one)
            made = [kernel_views.analyze_kernel(one, arch, name) for one in programs.values()]
            busy = [min(sms, times * one.blocks) for one in made]
            cycles = sum(
                one.cycle_bound()["cycles"] / used for one, used in zip(made, busy, strict=True)
            )
            yield {
                "case": row["case"], "variant": result["name"], "time": result["time"],
                "bound": times * cycles / clock, "full": min(busy) == sms,
                "sectors": times * sum(one.did.total.sectors for one in made),
            }  # fmt: skip


# Told apart by what they do on an SM, while both wait for memory: about 1 % lies between them.
LEVEL = {("warps", "blocks"), ("blocks", "streamed")}
Row = dict[str, Any]
Pairs = set[tuple[str, str]]


def read_bounds(name: str) -> list[Row]:
    """Each case and variant of a snippet that has a time: `case`, `variant`, `time`, `bound`."""
    project = Project(ROOT)
    known = snippet.read_snippet(project, project.snippets / name)
    if not store.current_record(known, MACHINE):
        pytest.skip(f"{name} has changed since it was timed")
    command = [sys.executable, __file__, name]
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


@pytest.mark.exhaustive("executes timed cases of ten snippets, which takes 2 minutes")
@pytest.mark.parametrize("name", SIDES)
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


if __name__ == "__main__":
    for found in bound_times(sys.argv[1]):
        print(json.dumps(found))

"""The bounds of what an H200 has timed: `measured_bounds.py SNIPPET` prints them, a line each.

Of a timed case fewer blocks are executed, which do as much each: the sides in SIDES are cut, none
that a block goes along. Their cycles times how often they go into the whole, over the SMs that
have a block and the highest clock of the record, are a bound of the time in it.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import papergpu
import torch

from warpshelf.contract.values import Case, read_obligations
from warpshelf.core.project import Project
from warpshelf.look.bound import ARCHS, PIPES
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
    for row in record["cases"]:
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


if __name__ == "__main__":
    for found in bound_times(sys.argv[1]):
        print(json.dumps(found))

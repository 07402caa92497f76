"""What the record of a CPU says that every record must show, whatever the machine skips."""

from __future__ import annotations

import json

import torch

from warpshelf.contract.values import Obligations
from warpshelf.worker.checks import Checks
from warpshelf.worker.context import JobContext

BFLOAT = {"m": 3, "dtype": "bfloat16"}


def draw_inputs(case, device, generator):
    made = torch.randn(case["m"], device=device, generator=generator)
    return (made.to(getattr(torch, case.get("dtype", "float32"))),)


def draw_by_data(case, device, generator):
    found = draw_inputs(case, device, generator)
    assert found[0].abs().max().item() >= 0  # which a tensor without data cannot say
    return found


def list_costs(**more: object) -> list[dict]:
    given = {
        "cases": ({"m": 3}, BFLOAT, {"m": 5, "variants": ["b"]}),
        "timed": ({"m": 2**40},),  # far more than fits
        "variants": {"a": lambda x: x, "b": lambda x: x},
        "peers": {"torch": lambda x: x, "other": lambda x: x},
        "inputs": draw_inputs,
        "reference": lambda x: x.double(),
    }
    job = {"needs": {}, "machine": {"sm": None}, "places": {}, "id": "x"}
    context = JobContext(job, lambda message: None)
    context.proof = Obligations(**(given | more))
    return Checks(context).due_rows()


def test_every_case_is_listed_even_one_that_is_skipped_here() -> None:
    found = list_costs()
    assert [(row["case"], row["timed"]) for row in found] == [
        ({"m": 3}, False),
        (BFLOAT, False),
        ({"m": 5, "variants": ["b"]}, False),
        ({"m": 2**40}, True),
    ]
    assert [row["variants"] for row in found] == [["a", "b"], ["a", "b"], ["b"], ["a", "b"]]
    assert [row["peers"] for row in found] == [["torch"]] * 3 + [["torch", "other"]]
    assert [row["tolerance"] for row in found] == [5e-6, 5e-3, 5e-6, 5e-6]
    assert (found[3]["bytes"], found[3]["unit"]) == (8 * 2**40, "fp32")
    assert json.loads(json.dumps(found)) == found


def test_a_tolerance_is_that_of_the_source() -> None:
    found = list_costs(tolerance={"float32": (1e-4, "a trial"), "bfloat16": (1e-2, "a trial")})
    assert [row["tolerance"] for row in found] == [1e-4, 1e-2, 1e-4, 1e-4]
    found = list_costs(cost=lambda case: {"unit": "tf32"})
    assert [row["tolerance"] for row in found] == [1e-3, 5e-3, 1e-3, 1e-3]


def test_inputs_that_need_data_are_made_once_for_each_form() -> None:
    found = list_costs(inputs=draw_by_data)
    assert [row["tolerance"] for row in found] == [5e-6, 5e-3, 5e-6, 5e-6]
    assert "bytes" not in found[3]  # it would have to be made


def test_the_dtype_that_counts_is_that_of_the_first_floating_output() -> None:
    pair = {"reference": lambda x: (x.argmax(), x.double())}
    assert [row["tolerance"] for row in list_costs(**pair)] == [5e-6, 5e-3, 5e-6, 5e-6]
    indices = {"reference": lambda x: x.argmax()}
    assert [row["tolerance"] for row in list_costs(**indices)] == [0.0] * 4
    named = list_costs(cases=({"m": 3, "out": "float16"},), timed=())
    assert [row["tolerance"] for row in named] == [1e-3]


def test_a_reference_that_fails_leaves_the_dtype_that_the_case_names() -> None:
    def raise_no_truth(x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no truth")

    assert [row["tolerance"] for row in list_costs(reference=raise_no_truth)] == [
        5e-6,
        5e-3,
        5e-6,
        5e-6,
    ]

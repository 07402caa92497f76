"""What launches did, by line, and what of it every record must show."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cuda_snippet import CASES, SOUND, verify_cuda
from papergpu.syntax_tree import Place

from warpshelf.contract.values import Obligations
from warpshelf.core.files import dump_json
from warpshelf.worker import watch
from warpshelf.worker.checks import Checks
from warpshelf.worker.context import JobContext

# What launches did, by line of the snippet, the same on every machine.

LAUNCH = SimpleNamespace


def make_proof(*cases: dict[str, Any], variants: tuple[str, ...] = ("a",)) -> Obligations:
    return Obligations(cases=cases, variants=dict.fromkeys(variants, lambda: None))


def test_the_largest_case_of_each_form_is_counted() -> None:
    cases = (
        {"m": 3, "n": 40, "dtype": "float16"},
        {"m": 12, "n": 11, "dtype": "float16"},
        {"m": 11, "n": 12, "dtype": "float16"},  # as large as the one before
        {"m": 1, "n": 2, "dtype": "float32", "scale": 1e9},
        {"m": 1000, "n": 1000, "dtype": "float16", "variants": ["b"]},
    )
    both = watch.LaunchCounts(make_proof(*cases, variants=("a", "b")))
    assert [index for index in range(5) if both.wants_case("a", index)] == [1, 3]
    assert [index for index in range(5) if both.wants_case("b", index)] == [3, 4]
    assert watch.case_size({"m": 0, "n": 7, "scale": 3, "head": 5}) == 7


def test_cases_that_are_there_to_be_counted_are_the_only_ones() -> None:
    cases = (
        {"m": 4000, "dtype": "float16"},
        {"m": 64, "dtype": "float16"},
        {"m": 32, "dtype": "float16", "variants": ["a", "b"]},
        {"m": 64, "dtype": "float16", "variants": ["b"]},
    )
    told = Obligations(
        cases=cases,
        counted=range(2, 4),
        variants=dict.fromkeys("abc", lambda: None),
    )
    found = watch.LaunchCounts(told)
    wanted = {
        name: [index for index in range(4) if found.wants_case(name, index)] for name in "abc"
    }
    assert wanted == {"a": [2], "b": [2, 3], "c": [0]}


def test_a_run_counts_what_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = CASES.replace("TIMED =", 'COUNTED = ({"m": 32}, {"m": 64})\nTIMED =')
    answer = verify_cuda(tmp_path, monkeypatch, SOUND, told)
    [row] = answer["counts"]
    assert row["case"] == {"m": 64}
    [copy] = [line for line in row["lines"] if line["at"] == "trial.cu:3"]
    assert copy["requests"] == 4  # of the four warps two load and store
    # They are verified as the others are: on every schedule, and in views.
    assert [row["case"]["m"] for row in answer["cases"]] == [7, 128, 50, 32, 64]
    assert [row["case"]["m"] for row in answer["due"] if not row["timed"]] == [7, 128, 50, 32, 64]
    wrong = SOUND.replace("y[i] = x[i]", "y[i] = n == 32 ? 0 : x[i]")
    [failure] = verify_cuda(tmp_path / "wrong", monkeypatch, wrong, told)["failures"]
    assert "is wrong on case {'m': 32}" in failure["what"]


def test_of_each_kernel_its_largest_case_is_kept() -> None:
    kept = watch.LaunchCounts(make_proof({"m": 4}, variants=("b", "a")))
    first, second = LAUNCH(name="first"), LAUNCH(name="second")
    kept.add_launches("b", {"m": 2}, [first, second, first])
    kept.add_launches("b", {"m": 5}, [first])
    kept.add_launches("b", {"m": 3}, [second])
    kept.add_launches("a", {"m": 1}, [second])
    kept.add_launches("a", {"m": 1}, [second, second])
    found = [(name, done[0].name, case, len(done)) for name, case, done in kept.counted_launches()]
    assert found == [
        ("a", "second", {"m": 1}, 1),
        ("b", "first", {"m": 5}, 1),
        ("b", "second", {"m": 3}, 1),
    ]


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("/home/a/shelf/snippets/softmax/softmax.py", "softmax.py"),
        ("/home/a/snippets/b/snippets/softmax/deep/tile.cuh", "deep/tile.cuh"),
        ("/home/a/shelf/snippets/sgemm/sgemm.cu", "snippets/sgemm/sgemm.cu"),
        ("/x/lib/python3.11/site-packages/triton/language/standard.py",
         "triton/language/standard.py"),
        ("/usr/lib/python3/dist-packages/nvidia/cu13/include/cuda_fp16.hpp",
         "nvidia/cu13/include/cuda_fp16.hpp"),
        ("/home/a/shelf/scripts/papergpu/deep/tile.cuh", "papergpu/deep/tile.cuh"),
        ("/opt/else/where.cuh", "where.cuh"),
        ("bare.cu", "bare.cu"),
    ],
)  # fmt: skip
def test_files_are_named_the_same_wherever_they_lie(file: str, named: str) -> None:
    place = Place(file, 3, 9)
    assert watch._fold_place(place, {}, "softmax") == Place(named, 3, 0)


def test_what_a_library_inlined_counts_for_the_line_that_asked() -> None:
    kernel = Place("/r/snippets/trial/trial.py", 20, 1)
    helper = Place("/r/snippets/trial/trial.py", 7, 3, "helper", kernel)
    inner = Place("/v/site-packages/triton/language/standard.py", 290, 5, "sum", helper)
    bare = Place(inner.file, inner.line, inner.column)
    deep = Place(inner.file, 263, 1, "_sum", bare)
    callers = {(inner.file, inner.line, inner.column): helper}
    assert watch._fold_place(inner, {}, "trial") == Place("trial.py", 7, 0, "helper")
    assert (
        watch._fold_place(deep, callers, "trial").line == 7
    )  # its caller's caller is known elsewhere
    assert watch._fold_place(deep, {}, "trial") == Place(
        "triton/language/standard.py", 263, 0, "_sum"
    )
    loop = {(inner.file, inner.line, inner.column): bare}
    assert watch._fold_place(bare, loop, "trial").file == "triton/language/standard.py"


def test_a_run_counts_each_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [row] = verify_cuda(tmp_path, monkeypatch, SOUND)["counts"]
    lines = {line["at"]: line for line in row["lines"]}
    assert {key: row[key] for key in ("variant", "kernel", "case", "launches")} == {
        "variant": "ours",
        "kernel": "k",
        "case": {"m": 128},
        "launches": 1,
    }
    copy = lines["trial.cu:3"]
    # Four warps load and store 32 int32 each: four sectors of 32 bytes a request.
    assert copy["classes"]["load global"] == copy["classes"]["store global"] == 4
    assert (copy["requests"], copy["sectors"], copy["ideal_sectors"]) == (8, 32, 32)
    assert copy["lanes"] == 32 * 28  # all, of the branch around it as well, which none takes
    assert not any(value == 0 for line in row["lines"] for value in line.values())
    assert not {"bytes", "operations", "wavefronts"} & copy.keys()


WAITS = SOUND.replace(
    "if (i < n)",
    "if (i == 32) while (atomicAdd(turn, 0) == 0) {}\n    if (i == 0) atomicExch(turn, 1);\n"
    "    if (i < n)",
)


def test_counts_are_the_same_on_any_number_of_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()
    for cores in (1, 2, 7):
        with monkeypatch.context() as patch:
            patch.setattr(os, "cpu_count", lambda n=cores: n)
            found = verify_cuda(tmp_path / str(cores), patch, WAITS)
        assert found["failures"] == []
        seen.add(dump_json(found["counts"]))
    assert len(seen) == 1


# What the record of a CPU says that every record must show, whatever the machine skips.

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

"""What launches did, by line of the snippet, the same on every machine."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda_snippet import CASES, SOUND, verify_cuda
from papergpu.syntax_tree import Place

from warpshelf.contract.values import Obligations
from warpshelf.core.files import dump_json
from warpshelf.worker import watch

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

"""Checking a kernel case by case, and the layouts that are drawn from a case."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CUT, sound_snippet, write_snippet, wrong_snippet

from warpshelf.bench import assemble
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger, schema
from warpshelf.worker import checks, costs, jobs, verify
from warpshelf.worker.context import JobContext, JobError

# Checking a kernel case by case: its views and empty sides, refusals, costs, and no memory.

CPU = {**ledger.describe_host(), "gpus": 0}


def verify_snippet(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, **more: object
) -> dict[str, Any]:
    """The answer of the verifying job on a snippet, in this process."""
    path = write_snippet(folder / "snippets" / "trial", text)
    one = snippet.read_snippet(Project(folder), path.parent)
    assert not one.findings, one.findings
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    details = {**assemble.job_details(one, CPU), "token": "x", "demo": False, **more}
    return jobs.verify_snippet(JobContext(details, lambda message: None))


@pytest.fixture
def verify_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    return lambda text, **more: verify_snippet(tmp_path, monkeypatch, text, **more)


def list_results(found: dict[str, Any], name: str = "product") -> list[dict[str, Any]]:
    assert found["failures"] == []
    return [result for row in found["cases"] for result in row["results"] if result["name"] == name]


def test_a_sound_kernel_refuses_nothing(verify_text) -> None:
    found = list_results(verify_text(sound_snippet()))
    assert len(found) == 4
    assert all(result["verdict"] == "passed" and "refuses" not in result for result in found)


REFUSES = """
def kernel(a, b):
    if not a.is_contiguous():
        raise ValueError(f"trial: a has strides {a.stride()}; pass a.contiguous()")
    if not a.numel():
        raise TypeError("trial: a is empty; pass at least one element")
    return a @ b
"""


def test_refusals_are_recorded_by_view(verify_text) -> None:
    found = verify_text(wrong_snippet(REFUSES))
    first, second, *_ = list_results(found)
    assert first["refuses"] == {
        "m empty": "trial: a is empty; pass at least one element",
        "k empty": "trial: a is empty; pass at least one element",
    }
    assert second["refuses"] == {
        "padded rows": "trial: a has strides (49, 1); pass a.contiguous()",
        "column-strided": "trial: a has strides (66, 2); pass a.contiguous()",
        "transposed": "trial: a has strides (1, 17); pass a.contiguous()",
        "expanded": "trial: a has strides (0, 1); pass a.contiguous()",
    }
    from warpshelf.core import files

    for row in found["cases"]:
        assert files.shape_problem(row, schema.CASE, "case") is None


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        ('ValueError("no")', "column-strided: raised ValueError: no"),
        ('ValueError("trial: no\\nand no")', "column-strided: raised ValueError: trial: no"),
        ('RuntimeError("trial: no")', "column-strided: raised RuntimeError: trial: no"),
        ('ValueError("other: no")', "column-strided: raised ValueError: other: no"),
    ],
)
def test_only_clear_words_are_a_refusal(verify_text, raised: str, says: str) -> None:
    raised = raised.replace("\n", "\\n")
    overlay = f"""
def kernel(a, b):
    if 1 not in a.stride():
        raise {raised}
    return a @ b
"""
    [failure] = verify_text(wrong_snippet(overlay))["failures"]
    assert failure["what"].startswith("variant 'product' is wrong on case {'m': 17, ")
    assert failure["what"].endswith(says)


def test_a_refusal_of_the_case_itself_is_a_failure(verify_text) -> None:
    overlay = '\ndef kernel(a, b):\n    raise ValueError("trial: never")\n'
    with pytest.raises(ValueError, match="trial: never"):
        verify_text(wrong_snippet(overlay))


def test_a_side_without_truth_must_be_refused(verify_text) -> None:
    mean = f"""
def kernel(a, b):
    @check
    return a.mean(1, keepdim=True) + b[:1].sum() * 0
{CUT}
def reference(a, b):
    return a.double().mean(1, keepdim=True) + b[:1].double().sum() * 0
PEERS = {{"torch": lambda a, b: a.mean(1, keepdim=True)}}
"""
    [failure] = verify_text(wrong_snippet(mean.replace("@check", "pass")))["failures"]
    says = "'k': 0}, k empty: returned a result where reference() returned NaN, which no kernel can"
    assert says in failure["what"]
    checked = "if not a.shape[1]:\n        raise ValueError('trial: a has no columns; give one')"
    [first, *_] = list_results(verify_text(wrong_snippet(mean.replace("@check", checked))))
    assert first["refuses"] == {"k empty": "trial: a has no columns; give one"}


def test_each_form_of_a_case_is_emptied_once(verify_text, monkeypatch) -> None:
    seen: list[str] = []
    at = JobContext.report_place

    def note_empty(self: JobContext, place: str) -> None:
        if "empty" in place:
            seen.append(place)
        at(self, place)

    monkeypatch.setattr(JobContext, "report_place", note_empty)
    text = sound_snippet().replace('"k": 16,', '"k": 16, "form": "other",')
    verify_text(text)
    assert [place.rpartition(", ")[2] for place in seen] == ["m empty", "n empty", "k empty"] * 2
    assert "'form': 'other'" in seen[3]


def test_a_side_is_emptied_where_views_are_drawn(verify_text) -> None:
    wrong = wrong_snippet("def kernel(a, b):\n    return a @ b * (1 - 0 // a.numel())\n")
    [failure] = verify_text(wrong)["failures"]
    assert "'m': 0" in failure["what"] and "raised ZeroDivisionError" in failure["what"]
    assert verify_text(wrong, share="telling")["failures"] == []


def test_a_share_has_one_view_of_a_case_and_leaves_out_what_is_there_to_be_counted(
    verify_text, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def note_views(self: JobContext, place: str) -> None:
        if "in variant 'product'" in place:
            seen.append(place.partition(" on case ")[2].partition("}")[2].removeprefix(", "))

    monkeypatch.setattr(JobContext, "report_place", note_views)
    text = sound_snippet().replace(
        "TIMED =",
        'COUNTED = ({"m": 8, "n": 8, "k": 8}, {"m": 8, "n": 8, "k": 9, "kills": ["x"]})\nTIMED =',
    )
    found = verify_text(text, share="some")
    sides = [list(row["case"].values()) for row in found["cases"]]
    assert [8, 8, 8] not in sides and sides[-1] == [8, 8, 9]
    assert found["due"] == []  # such an answer is no record
    drawn = [one for one in seen if one and "empty" not in one]
    assert len(drawn) == 1


CHANGES = f"""
def kernel(a, b):
    if len(a) > 1 and a.stride(0) == a.shape[1] + 16:
        b.zero_()
        raise ValueError("trial: a has padded rows; pass a.contiguous()")
    return a @ b
{CUT}
def inputs(case, device, generator):
    a = torch.randn(case["k"], case["m"], device=device, generator=generator)
    return a.t(), torch.randn(case["k"], device=device, generator=generator)
"""


def test_the_truth_of_a_view_is_that_of_inputs_which_no_call_has_changed(verify_text) -> None:
    [failure] = verify_text(wrong_snippet(CHANGES))["failures"]
    assert failure["what"].endswith("column-strided: relative error 1 over 5e-06")


def test_views_come_after_all_variants(verify_text, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(JobContext, "report_place", lambda self, place: seen.append(place))
    verify_text(f'{sound_snippet()}\n\nVARIANTS = {{**VARIANTS, "again": VARIANTS["product"]}}\n')
    of_second = [one for one in seen if "'m': 17" in one and "in variant" in one]
    plain = [place for place, one in enumerate(of_second) if one.endswith("}")]
    assert plain == list(range(len(plain))) and len(plain) < len(of_second)


ALIGNS = """
def kernel(a, b):
    from papergpu import session

    if not session.current_settings().specialize or a.storage_offset():
        raise RuntimeError("PassManager::run failed")
    return a @ b
"""


def test_what_must_be_aligned_meets_a_layout_as_it_comes(verify_text) -> None:
    [failure] = verify_text(wrong_snippet(ALIGNS), target="sm_90")["failures"]
    assert ", misaligned on sm_90" in failure["what"]
    assert failure["what"].endswith("raised RuntimeError: PassManager::run failed")
    aligned = wrong_snippet(ALIGNS.replace(" or a.storage_offset()", ""))
    assert verify_text(aligned, target="sm_90")["failures"] == []


# --- costs


def test_what_cost_leaves_out_has_its_default(verify_text) -> None:
    rows = verify_text(sound_snippet())["cases"]
    m, n, k = 17, 5, 33
    assert {key: rows[1][key] for key in ("bytes", "flops", "unit")} == {
        "bytes": 4 * (m * k + k * n + m * n),
        "flops": 2 * m * n * k,
        "unit": "fp32",
    }


def test_no_cost_is_a_cost_by_default(verify_text) -> None:
    text = sound_snippet()
    text = text[: text.index("\n\ndef cost(")] + "\n"
    row = verify_text(text)["cases"][0]
    assert (row["bytes"], row["flops"], row["unit"]) == (12, 0, "fp32")


def test_an_out_of_too_many_dtypes_fails_what_is_called(verify_text) -> None:
    out = '"k": 16,\n     "out": ["float16", "int64"],'
    found = verify_text(sound_snippet().replace('"k": 16,', out))
    [failure] = found["failures"]
    assert failure["what"].startswith("variant 'product' is wrong on case {'m': 64")
    assert failure["what"].endswith("the case's `out` names 2 dtypes for 1 outputs")
    assert [one["verdict"] for one in found["cases"][3]["results"]] == ["failed"]


def test_a_malformed_cost_is_told(verify_text) -> None:
    with pytest.raises(JobError, match=r"cost\(\)\.flops is 'many'.* on case \{'m': 1"):
        verify_text(wrong_snippet(f'{CUT}\ndef cost(case):\n    return {{"flops": "many"}}\n'))


def test_the_unit_of_an_input_is_that_of_its_dtype() -> None:
    def name_unit(*dtypes: torch.dtype) -> str:
        return costs.input_unit([None, 3, *(torch.zeros(1, dtype=dtype) for dtype in dtypes)])

    assert name_unit(torch.float16, torch.float32) == "fp16"
    assert name_unit(torch.int64, torch.bfloat16) == "bf16"
    assert name_unit(torch.float8_e4m3fn) == "fp8"
    assert name_unit(torch.int8) == "int8"
    assert name_unit() == "fp32"


# --- no memory

FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 96.00 GiB")
HUNGRY = """
    if a.shape[0] == 127:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 96.00 GiB")
"""
WHERE = {
    "variant": (f"def kernel(a, b):{HUNGRY}    return a @ b\n", "in variant 'product'"),
    "peer": (
        f'{CUT}\ndef library(a, b):{HUNGRY}    return a @ b\nPEERS = {{"torch": library}}\n',
        "in peer 'torch'",
    ),
    "reference": (
        f"{CUT}\ndef reference(a, b):{HUNGRY}    return a.double() @ b.double()\n",
        "in reference()",
    ),
    "inputs": (
        f"""{CUT}
def inputs(case, device, generator):
    a = torch.randn(case["m"], case["k"], device=device, generator=generator)
    b = torch.randn(case["k"], case["n"], device=device, generator=generator)
{HUNGRY}
    return a, b
""",
        "in inputs()",
    ),
}


@pytest.mark.parametrize("who", WHERE)
def test_a_case_that_memory_does_not_hold_is_skipped(verify_text, who: str) -> None:
    overlay, place = WHERE[who]
    found = verify_text(wrong_snippet(overlay))
    assert found["failures"] == []
    assert [row["case"]["m"] for row in found["cases"]] == [1, 17, 64]
    assert all(one["verdict"] == "passed" for row in found["cases"] for one in row["results"])
    [skip] = found["skips"]
    assert skip["what"] == "case {'m': 127, 'n': 31, 'k': 18}"
    assert skip["reason"].startswith(f"out of memory {place}")


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (FULL, True),
        (MemoryError(), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_what_counts_as_out_of_memory(error: Exception, is_one: bool) -> None:
    assert verify.out_of_memory(error) is is_one


def test_an_allocation_that_cannot_be_is_one() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert verify.out_of_memory(caught.value)


def test_zeros_of_fp8_are_found_where_it_has_no_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    any_of = torch.Tensor.any

    def refuse_fp8(x: torch.Tensor, *given: object) -> torch.Tensor:
        if x.dtype is torch.float8_e4m3fn:
            raise NotImplementedError("\"or_cuda\" not implemented for 'Float8_e4m3fn'")
        return any_of(x, *given)

    monkeypatch.setattr(torch.Tensor, "any", refuse_fp8)
    ones = torch.ones(4).to(torch.float8_e4m3fn)
    assert checks._input_problem((ones,)) is None
    what, _ = checks._input_problem((ones, ones.float().mul(0).to(ones.dtype)))
    assert what == "input 1 is all zeros"


# The views drawn from a case: the same values, laid out otherwise.

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
OTHERS = [torch.int64, torch.int8, torch.bool]


def fill_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) % 7 + 1).to(dtype)


def list_values(one: torch.Tensor) -> list[object]:
    return one.double().flatten().tolist()


@pytest.mark.parametrize("name", verify.VIEWS)
@pytest.mark.parametrize("dtype", FLOATS + OTHERS)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5), (5,), (1, 5), (5, 1), (1, 1), (), (0, 3)])
def test_a_view_has_the_values_or_those_of_its_first_slice(
    name: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    plain = fill_tensor(dtype, *shape)
    drawn = verify.draw_view(name, ("forward", plain, None, 2))
    if drawn is None:
        return
    which, view, nothing, number = drawn
    assert (which, nothing, number) == ("forward", None, 2)
    assert isinstance(view, torch.Tensor)
    assert (view.shape, view.dtype) == (plain.shape, plain.dtype)
    same = plain[:1].expand(plain.shape) if name == "expanded" else plain
    assert list_values(view) == list_values(same)


def draw_layout(name: str, *shape: int) -> tuple[tuple[int, ...], int] | None:
    drawn = verify.draw_view(name, (fill_tensor(torch.float32, *shape),))
    if drawn is None:
        return None
    [view] = drawn
    assert isinstance(view, torch.Tensor)
    return view.stride(), view.storage_offset()


@pytest.mark.parametrize(
    ("name", "shape", "found"),
    [
        ("padded rows", (3, 5), ((21, 1), 0)),
        ("padded rows", (2, 3, 5), ((63, 21, 1), 0)),
        ("padded rows", (1, 5), None),  # one row has no next
        ("padded rows", (5,), None),
        ("column-strided", (3, 5), ((10, 2), 0)),
        ("column-strided", (5,), ((2,), 0)),
        ("column-strided", (3, 1), ((2, 2), 0)),
        ("column-strided", (1, 1), None),
        ("transposed", (3, 5), ((1, 3), 0)),
        ("transposed", (2, 3, 5), ((15, 1, 3), 0)),
        ("transposed", (1, 5), None),
        ("transposed", (5,), None),
        ("transposed", (), None),
        ("misaligned", (3, 5), ((5, 1), 1)),
        ("misaligned", (1,), ((1,), 1)),
        ("misaligned", (0, 3), None),
        ("expanded", (3, 5), ((0, 1), 0)),
        ("expanded", (5,), ((0,), 0)),
        ("expanded", (1, 5), None),
        ("expanded", (), None),
    ],
)
def test_a_view_is_laid_out_as_it_says_or_not_drawn(
    name: str, shape: tuple[int, ...], found: tuple[tuple[int, ...], int] | None
) -> None:
    assert draw_layout(name, *shape) == found


@pytest.mark.parametrize("name", ["padded rows", "column-strided", "misaligned"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_lies_beside_a_view_is_nan(name: str, dtype: torch.dtype) -> None:
    [view] = verify.draw_view(name, (fill_tensor(dtype, 3, 5),)) or []
    assert isinstance(view, torch.Tensor)
    whole = torch.as_strided(view, (view.untyped_storage().nbytes() // view.itemsize,), (1,), 0)
    assert int(torch.isnan(whole.double()).sum()) == whole.numel() - 15 > 0


def test_only_floating_inputs_are_expanded() -> None:
    assert verify.draw_view("expanded", (fill_tensor(torch.int64, 3, 5),)) is None
    drawn = verify.draw_view(
        "expanded", (fill_tensor(torch.int64, 3, 5), fill_tensor(torch.float32, 3))
    )
    assert drawn is not None
    index, weights = drawn
    assert isinstance(index, torch.Tensor) and index.is_contiguous()
    assert isinstance(weights, torch.Tensor) and weights.stride() == (0,)


def test_small_inputs_are_drawn_in_every_view_and_large_ones_by_turns() -> None:
    small, large = (fill_tensor(torch.float32, 64, 256),), (fill_tensor(torch.float32, 64, 257),)
    assert [name for name, _ in verify.case_views(small, 3)] == list(verify.VIEWS)
    turns = [[name for name, _ in verify.case_views(large, index)] for index in range(6)]
    assert turns == [[name] for name in [*verify.VIEWS, "padded rows"]]


def test_a_turn_that_changes_nothing_is_passed_on() -> None:
    long = (fill_tensor(torch.float32, 20_000),)
    assert [name for name, _ in verify.case_views(long, 0)] == ["column-strided"]
    assert [name for name, _ in verify.case_views(long, 2)] == ["misaligned"]
    assert list(verify.case_views((2, None, "add"), 0)) == []


def test_the_inputs_themselves_stay_as_they_are() -> None:
    plain = fill_tensor(torch.float32, 3, 5)
    before = plain.clone()
    for _, drawn in verify.case_views((plain,), 0):
        assert isinstance(drawn[0], torch.Tensor)
        assert drawn[0].data_ptr() != plain.data_ptr()
    assert torch.equal(plain, before)

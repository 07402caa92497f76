"""No published GEMM timing goes below its kernel's bound, and far bounds order timings rightly.

The counts in published_sgemm.json.xz are kept from runs of published_sgemm.py; the bounds are made
anew from them here.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import published_sgemm
import pytest
from published_sgemm import Timing, load_table

from warpshelf.look.bound import VariantCost, cycle_bound, is_faster, round_bound
from warpshelf.look.work import ExecutedInstruction, count_work

KERNELS = load_table()["kernels"]
# In the wrong order: the second reads 512 rows where 64 are its tile's, its lanes 8 KiB apart. What
# comes from beyond L1, and how lanes' banks of L1 collide, counts in no bound.
BEYOND = {("FP16 V02", "FP16 V03 Vectorized")}
# And where no machine code says which loads were merged. The first one's narrow loads of global
# memory might be one in four, or in eight, and are not; the other's are wide already.
UNMERGED = {
    ("V01", "V02 Vectorized"),
    ("FP16 V00", "FP16 V02 Vectorized"),
    ("FP16 V01", "FP16 V02 Vectorized"),
}
# Across precisions, which is no order of variants: the least in half precision is half as much, and
# these kernels come nowhere near it.
ACROSS = {
    ("V02", "FP16 V03 Vectorized"),
    *((one, other) for one in ("V05 Vectorized", "V06 Vectorized")
      for other in ("FP16 V05", "FP16 V06")),
    ("V04 Vectorized", "FP16 V06"),
}  # fmt: skip


def bound_timings(seen: Callable[[ExecutedInstruction], ExecutedInstruction]) -> list[Timing]:
    return [
        published_sgemm.bound_timing(one, map(seen, published_sgemm.read_kept_rows(one)))
        for one in KERNELS
    ]


def count_products(rows: list[ExecutedInstruction]) -> float:
    """Multiply-adds, by whatever does them."""
    done = count_work(rows, published_sgemm.ARCH)
    return sum(map(done.float_results, ("FP32", "FP16"))) + sum(done.products.values())


def are_far_apart(one: float, other: float) -> bool:
    low, high = sorted((one, other))
    return is_faster(VariantCost(low), VariantCost(high))


def judge_pairs(found: list[Timing], alike: bool = True) -> tuple[int, set[tuple[str, str]]]:
    """Pairs of one device whose bounds are told apart, and those of them in the wrong order.

    `alike` are pairs of one precision, else those of two.
    """
    told = [
        (one, other)
        for one, other in combinations(found, 2)
        if one.device == other.device
        and alike == (one.half == other.half)
        and are_far_apart(one.bound, other.bound)
    ]
    wrong = {
        (one.name, other.name)
        for one, other in told
        if (one.bound < other.bound) != (one.published < other.published)
    }
    print(f"{len(told)} pairs told apart, {len(told) - len(wrong)} in the published order")
    return len(told), wrong


def test_all_are_kept_as_they_were_published() -> None:
    found = json.loads(lzma.decompress(published_sgemm.FILE.read_bytes()))["kernels"]
    assert [(one["name"], one["gflops"], one["device"]["name"]) for one in found] == [
        (one["name"], one["gflops"], one["on"]["name"]) for one in KERNELS
    ]
    assert [sum(one.get("half", False) == half for one in KERNELS) for half in (False, True)] == [
        23, 14,
    ]  # fmt: skip
    for one, kernel in zip(found, KERNELS, strict=True):
        assert one["columns_of_blocks"] == published_sgemm.count_blocks(kernel)[1]
        rows = published_sgemm.read_kept_rows(kernel)
        assert round_bound(cycle_bound(rows, published_sgemm.ARCH))["cycles"] == one["cycles"]
        size, columns = kernel["of"]["size"], kernel["tile"][1]
        assert size**2 * columns <= count_products(rows) <= 1.001 * size**2 * columns, one["name"]


def test_no_published_timing_goes_below_its_bound() -> None:
    found = bound_timings(lambda row: row)
    for one in found:
        print(
            f"{one.device} {one.name}: {one.published:.2f} ms, {one.published / one.bound:.2f} "
            f"times its bound by {one.limiter}"
        )
        assert one.published > one.bound, one
    closest = min(one.published / one.bound for one in found)
    assert closest < 2, "bounds that no kernel comes near say little"


def test_bounds_that_are_far_apart_order_the_timings() -> None:
    found = bound_timings(lambda row: row)
    told, wrong = judge_pairs([one for one in found if not one.half])
    assert not wrong
    assert told > 80  # of 121
    told, wrong = judge_pairs([one for one in found if one.half])
    assert wrong == BEYOND
    assert told > 70  # of 91
    told, wrong = judge_pairs(found, alike=False)
    assert wrong == ACROSS
    assert told > 140  # of 168


def test_so_it_is_with_no_machine_code_but_for_three_pairs() -> None:
    found = bound_timings(lambda row: replace(row, width=0))
    assert all(one.published > one.bound for one in found)
    told, wrong = judge_pairs(found)
    assert wrong == UNMERGED
    assert told > 120  # of 212


def test_taking_loads_as_they_stand_in_ptx_is_no_bound() -> None:
    """Why merging counts: some timings are below what all loads of PTX would take."""
    below = {
        one.name
        for one in bound_timings(lambda row: replace(row, width=1))
        if one.published < one.bound
    }
    assert "9: Autotuning" in below


def test_a_kernel_that_is_not_kept_is_named() -> None:
    with pytest.raises(KeyError, match=r"12: not in published_sgemm.json.xz; run"):
        published_sgemm.read_kept_rows({"repository": "siboehm/SGEMM_CUDA", "name": "12"})

"""The bound counts what must remain, and nothing that an assembler may remove or merge."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.core import files
from warpshelf.look.bound import (
    ARCHS,
    LATENCY,
    NOTHING,
    PORT,
    Blocks,
    VariantCost,
    cycle_bound,
    is_faster,
    rank_variants,
    round_bound,
)
from warpshelf.look.view import VIEW
from warpshelf.look.work import ExecutedInstruction, Work, assign_widths, count_work

archs = st.sampled_from(ARCHS)
runs = st.integers(0, 1 << 20)


def bound_cycles(rows: list[ExecutedInstruction], arch: str = "sm_80") -> dict[str, float]:
    return {one["pipe"]: one["cycles"] for one in cycle_bound(rows, arch)["pipes"]}


def make_full_warps(form: str, count: int) -> ExecutedInstruction:
    return ExecutedInstruction(form, {"executed": count, "lanes": 32 * count})


def make_shared_access(form: str, count: int, wavefronts: int = 1) -> ExecutedInstruction:
    tally = {"executed": count, "shared_requests": count, "wavefronts": count * wavefronts}
    return ExecutedInstruction(form, tally)


def make_memory_access(form: str, count: int, sectors: int, ideal: int) -> ExecutedInstruction:
    tally = {
        "executed": count, "requests": count, "sectors": count * sectors,
        "ideal_sectors": count * ideal,
    }  # fmt: skip
    return ExecutedInstruction(form, tally)


def test_a_loop_of_multiply_adds_by_hand() -> None:
    """128 lanes make 4 instructions of a warp in a cycle."""
    found = cycle_bound(
        [
            make_full_warps("fma.rn.f32", 1 << 20),
            make_shared_access("ld.shared.v4.f32", 1 << 17, 4),
        ],
        "sm_90a",
    )
    assert (found["limiter"], found["cycles"]) == ("load and store", 1 << 19)
    assert [tuple(one.values()) for one in found["pipes"]] == [
        ("FP32", 1 << 18, "1,048,576 multiply-adds of a warp at 4 a cycle"),
        ("load and store", 1 << 19, "524,288 wavefronts of shared memory at 1 a cycle"),
        ("issue", ((1 << 20) + (1 << 17)) / 4,
         "1,179,648 instructions of a warp that must remain at 4 a cycle"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "arch", "pipe", "least"),
    [
        ("fma.rn.f32", "sm_80", "FP32", 512),  # 64 lanes
        ("fma.rn.ftz.f32", "sm_86", "FP32", 256),
        ("fma.rn.f32x2", "sm_100a", "FP32", 512),  # two results a lane
        ("fma.rn.f64", "sm_80", "FP64", 1024),
        ("fma.rn.f64", "sm_89", "FP64", 16384),  # 2 lanes
        ("fma.rn.bf16x2", "sm_90", "FP16", 256),
        ("ex2.approx.ftz.f32", "sm_90", "special function", 2048),  # 16 lanes
        ("tanh.approx.f32", "sm_100", "special function", 2048),
        ("shfl.sync.bfly.b32", "sm_80", "load and store", 1024),
        ("add.rn.f32", "sm_86", "FP32", 256),  # told how to round: not fused
    ],
)
def test_a_thousand_instructions(form: str, arch: str, pipe: str, least: float) -> None:
    assert bound_cycles([make_full_warps(form, 1024)], arch)[pipe] == least


@pytest.mark.parametrize(
    "form",
    [
        "mov.f32", "mov.b64", "add.s32", "mad.lo.s32", "mad.wide.u32", "setp.lt.f32", "cvt.f32.f16",
        "neg.f32", "max.f32", "min.s32", "shl.b32", "cvta.to.global.u64", "bra", "ret",
        "selp.b32", "vote.sync.ballot.b32", "bar.warp.sync", "div.full.f32", "div.rn.f32",
        "prefetch.global.L2", "fma.rn.f32.f16", "ld.param.u64", "and.b32", "xor.b32",
    ],
)  # fmt: skip
def test_what_may_vanish_does_not_count(form: str) -> None:
    row = ExecutedInstruction(form, {"executed": 64, "lanes": 2048, "requests": 64, "sectors": 256})
    assert count_work([row], "sm_90") == Work()
    assert cycle_bound([row], "sm_90") == {"limiter": NOTHING, "cycles": 0, "pipes": []}


def test_local_memory_and_hints_do_not_count() -> None:
    local = make_memory_access("ld.local.v4.f32", 64, 16, 16)
    hint = ExecutedInstruction("cp.async.bulk.prefetch.L2.global", {"bytes": 1 << 20, "lanes": 1})
    assert count_work([local, hint], "sm_90") == Work()


def test_a_bulk_copy_passes_shared_memory() -> None:
    bulk = ExecutedInstruction(
        "cp.async.bulk.shared::cluster.global", {"bytes": 1 << 20, "lanes": 1}
    )
    assert count_work([bulk], "sm_90") == Work(shared=(1 << 20) / 128)


@given(multiplies=runs, adds=runs, fused=runs, share=st.floats(0, 1), arch=archs)
def test_fusing_never_goes_below(
    multiplies: int, adds: int, fused: int, share: float, arch: str
) -> None:
    """Whatever pairs of a multiply and an add the assembler makes into one."""
    pairs = int(min(multiplies, adds) * share)
    before = [
        make_full_warps("mul.f32", multiplies),
        make_full_warps("sub.ftz.f32", adds),
        make_full_warps("fma.rn.f32", fused),
    ]
    after = [make_full_warps("fma.rn.f32", fused + pairs + (multiplies - pairs) + (adds - pairs))]
    for pipe, least in bound_cycles(before, arch).items():
        assert least <= bound_cycles(after, arch)[pipe]


@given(
    groups=st.integers(1, 1 << 16),
    parts=st.sampled_from((1, 2, 4)),
    arch=archs,
    passes=st.lists(st.integers(1, 32), min_size=4, max_size=4),
    extra=st.integers(0, 32),
)
def test_merging_loads_never_goes_below(
    groups: int, parts: int, arch: str, passes: list[int], extra: int
) -> None:
    """A wide access passes at least as often as the part of it that passes most."""
    narrow = [make_shared_access("ld.shared.f32", groups, one) for one in passes[:parts]]
    wide = "ld.shared" + {1: "", 2: ".v2", 4: ".v4"}[parts] + ".f32"
    merged = replace(make_shared_access(wide, groups, max(passes[:parts]) + extra), width=4 * parts)
    before, after = bound_cycles(narrow, arch), bound_cycles([merged], arch)
    assert all(least <= after[pipe] for pipe, least in before.items())


@given(counts=st.lists(st.tuples(st.sampled_from(
    ("fma.rn.f32", "mul.f32", "add.f32", "ex2.approx.f32", "rcp.approx.f32", "shfl.sync.idx.b32",
     "fma.rn.f16x2", "bar.sync")), runs), max_size=8), arch=archs)  # fmt: skip
def test_more_work_takes_no_less_and_all_of_it_takes_most(
    counts: list[tuple[str, int]], arch: str
) -> None:
    rows = [make_full_warps(form, count) for form, count in counts]
    before = 0.0
    for end in range(len(rows) + 1):
        found = cycle_bound(rows[:end], arch)
        assert found["cycles"] >= before
        assert found["cycles"] == max((one["cycles"] for one in found["pipes"]), default=0)
        assert files.shape_problem(found, VIEW["bound"], "bound") is None
        assert round_bound(found)["cycles"] <= found["cycles"]
        before = found["cycles"]


@pytest.mark.parametrize(
    ("row", "wavefronts"),
    [
        (make_memory_access("ld.global.v4.f32", 8, 16, 16), 32),  # 512 bytes a request
        (make_memory_access("ld.global.v4.f32", 8, 32, 16), 32),
        (
            make_memory_access("ld.global.v4.f32", 8, 32, 4),
            16,
        ),  # 8 lines at least: two looks at tags
        (make_memory_access("ld.global.v4.f32", 8, 1, 1), 8),  # one for each request
        (make_memory_access("ld.global.f32", 8, 4, 4), 2),  # may be a quarter of a wider one
        (make_memory_access("st.global.v2.f32", 8, 8, 8), 8),
        (make_memory_access("ld.volatile.global.f32", 8, 4, 4), 8),
        (make_shared_access("ld.shared.v4.b32", 8, 4), 32),
        (make_shared_access("ld.shared.u8", 16), 1),
        (make_shared_access("ldmatrix.sync.aligned.m8n8.x4.shared.b16", 8, 4), 32),
        (ExecutedInstruction("cp.async.ca.shared.global", {"bytes": 4096, "lanes": 256}), 32),
        (ExecutedInstruction("atom.shared.add.u32", {"shared_requests": 8, "wavefronts": 256}), 8),
        (ExecutedInstruction("red.global.add.f32", {"requests": 8, "sectors": 256}), 8),
    ],
)
def test_accesses_by_hand(row: ExecutedInstruction, wavefronts: float) -> None:
    assert bound_cycles([row])["load and store"] == wavefronts


@pytest.mark.parametrize(
    ("form", "arch", "least"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80", 1024),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80", 2048),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_80", 512),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "sm_80", 16384),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "sm_80", 1024),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32", "sm_80", 1024),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "sm_90a", 512),
        ("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e5m2", "sm_90a", 256),
        ("tcgen05.mma.cta_group::1.kind::f16", "sm_100a", 256),
        ("tcgen05.mma.cta_group::2.kind::mxf4.block_scale.scale_vec::2X", "sm_100a", 64),
    ],
)
def test_matrix_instructions_by_their_operands(form: str, arch: str, least: float) -> None:
    rows = [ExecutedInstruction(form, {"executed": 1, "lanes": 32, "operations": 1 << 21})]
    assert bound_cycles(rows, arch)["matrix"] == least


def make_wgmma(form: str, count: int, operations: int, both: bool = True) -> ExecutedInstruction:
    tally = {"executed": 4 * count, "lanes": 128 * count, "operations": operations * count}
    return ExecutedInstruction(f"wgmma.mma_async.{form}", tally, 10, both=both)


@pytest.mark.parametrize(
    ("form", "both", "matrix", "reads"),
    [
        ("sync.aligned.m64n256k16.f32.bf16.bf16", True, 128, 80),  # 2 KB of A, 8 KB of B
        ("sync.aligned.m64n256k16.f32.bf16.bf16", False, 128, 64),
        ("sync.aligned.m64n64k16.f32.f16.f16", True, 32, 32),
        ("sync.aligned.m64n16k16.f32.f16.f16", True, 8, 20),
        ("sync.aligned.m64n128k8.f32.tf32.tf32", True, 64, 48),
        ("sync.aligned.m64n128k32.f32.e4m3.e4m3", True, 64, 48),
        ("sp.sync.aligned.m64n128k32.f32.f16.f16", True, 64, None),  # left out
    ],
)
def test_wgmma_reads_shared_memory(
    form: str, both: bool, matrix: float, reads: float | None
) -> None:
    n, k = map(int, re.findall(r"\.m64n(\d+)k(\d+)\.", form)[0])
    dense = k // 2 if form.startswith("sp") else k
    found = bound_cycles([make_wgmma(form, 1, 2 * 64 * n * dense, both)], "sm_90a")
    assert (found["matrix"], found.get("load and store")) == (matrix, reads)


@pytest.mark.parametrize(
    ("buffers", "resident", "cycles"),
    [
        # Each of 16 fills of 48 KB is on its way and multiplied before the next comes.
        (1, 1, 16 * (LATENCY + 49152 / PORT) + 16384 + 4 * 64),
        (4, 1, 4 * LATENCY + 16384 + 4 * 64),
        (1, 2, (16 * (LATENCY + 49152 / PORT) + 16384 + 4 * 64) / 2),
    ],
)
def test_blocks_wait_for_copies_and_for_what_is_left(
    buffers: int, resident: int, cycles: float
) -> None:
    """4 blocks of 2 warpgroups, each of 4 slabs; at the end each warp stores 16 wavefronts."""
    into = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    rows = [
        ExecutedInstruction("mbarrier.init.shared::cta.b64", {"lanes": 4 * buffers}, 1),
        ExecutedInstruction("mbarrier.arrive.expect_tx.shared::cta.b64", {"lanes": 16}, 2),
        ExecutedInstruction(into, {"lanes": 16, "bytes": 16 * 49152}, 3),
        make_wgmma("sync.aligned.m64n256k16.f32.f16.f16", 128, 1 << 19),
        replace(make_shared_access("st.volatile.shared.v4.b32", 32, 16), line=11),
    ]
    found = {one["pipe"]: one for one in cycle_bound(rows, "sm_90", Blocks(4, resident))["pipes"]}
    assert found["waiting"]["cycles"] == cycles
    assert f"64 of them behind its products, {resident} at a time" in found["waiting"]["of"]
    assert "waiting" not in bound_cycles(rows, "sm_90")  # not told of blocks
    # No more blocks wait than there are warpgroups that come to the end.
    more = {one["pipe"]: one for one in cycle_bound(rows, "sm_90", Blocks(99, 1))["pipes"]}
    assert more["waiting"]["of"].startswith("8 times")


def test_operands_without_a_rate_are_left_out() -> None:
    row = ExecutedInstruction("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
              {"executed": 1, "lanes": 32, "operations": 1 << 21})  # fmt: skip
    assert "matrix" not in bound_cycles([row])


def test_a_root_and_a_reciprocal_may_be_one() -> None:
    rows = [
        make_full_warps("sqrt.approx.f32", 8),
        make_full_warps("rcp.approx.f32", 6),
        make_full_warps("ex2.approx.f32", 1),
    ]
    assert bound_cycles(rows)["special function"] == 9 * 32 / 16


def test_machine_code_says_what_was_merged() -> None:
    """Of a loop unrolled twice: line 1 alone in both copies, 2 to 5 in one of 16 bytes, 6 gone."""
    rows = [
        ExecutedInstruction(form, {"executed": 8, "lanes": 256}, line)
        for line, form in enumerate(["ld.shared.f32"] * 6 + ["fma.rn.f32", "ld.global.f32"], 1)
    ]
    code = [(7, "FFMA"), (7, "FFMA"), (1, "LDS"), (1, "LDS"), (2, "LDS.128"), (2, "LDS.128")]
    widths = [row.width for row in assign_widths(rows, code)]
    assert widths == [4, 16, 16, 16, 16, 16, 0, -1]
    assert (
        count_work([ExecutedInstruction("ld.global.f32", {"requests": 8}, width=-1)], "sm_80")
        == Work()
    )


def test_with_copies_missing_it_may_be_merged_in_those() -> None:
    """Merged in the first copy of a loop, on its own in the second."""
    forms = ("ld.shared.b32", "ld.shared.b32", "fma.rn.f32")
    rows = [ExecutedInstruction(form, {"executed": 8}, line) for line, form in enumerate(forms, 1)]
    code = [(3, "FFMA"), (1, "LDS.64"), (3, "FFMA"), (1, "LDS"), (2, "LDS")]
    assert [row.width for row in assign_widths(rows, code)] == [8, 8, 0]


def test_variants_are_told_apart_only_by_more_than_a_third() -> None:
    done = {
        "naive": VariantCost(1400),
        "tiled": VariantCost(1000),
        "swizzled": VariantCost(1200),
        "bad": VariantCost(4000),
    }
    assert list(rank_variants(done).items()) == [
        ("tiled", (1, 2)), ("swizzled", (1, 3)), ("naive", (2, 3)), ("bad", (4, 4)),
    ]  # fmt: skip
    assert not is_faster(VariantCost(1.0), VariantCost(1.3))
    assert is_faster(VariantCost(1.0), VariantCost(1.31))


def test_a_lower_bound_with_more_sectors_says_nothing() -> None:
    """As of a naive transpose: L1 takes its scattered sectors quickly, and L2 does not."""
    done = {
        "naive": VariantCost(24, 45),
        "tiled": VariantCost(287, 10),
        "padded": VariantCost(33, 10),
    }
    assert rank_variants(done) == {"padded": (1, 2), "naive": (1, 3), "tiled": (2, 3)}


@given(
    st.lists(st.builds(VariantCost, st.floats(0, 1e6), st.integers(0, 9)), min_size=1, max_size=9)
)
def test_a_place_claims_no_more_than_the_bounds_allow(them: list[VariantCost]) -> None:
    done = {str(number): one for number, one in enumerate(them)}
    found = rank_variants(done)
    for one, own in done.items():
        for other, its in done.items():
            if is_faster(own, its):
                assert found[one][0] < found[other][0] and found[one][1] < found[other][1]
            elif not is_faster(its, own):
                assert found[one][0] <= found[other][1]  # they may be level


def test_an_architecture_without_rates_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rates are known for sm_120"):
        cycle_bound([], "sm_120")

"""What snippets/sgemm refuses, what it predicts, and that its peer computes in full float32."""

from __future__ import annotations

import re

import pytest
import torch
from conftest import exhaustive, read_demo

from snippets.sgemm import cases, sgemm
from warpshelf.look import binary

A, B = torch.ones(3, 4), torch.ones(4, 5)


@pytest.mark.parametrize(
    ("a", "b", "rung", "kind", "message"),
    [
        (A.double(), B, "naive", TypeError, r"sgemm: a is torch.float64, .*a\.float\(\)"),
        (A, B.half(), "naive", TypeError, "sgemm: b is torch.float16"),
        (A[0], B, "naive", ValueError, "sgemm: a has 1 dimensions, not 2"),
        (A, A, "naive", ValueError, r"sgemm: a \(3, 4\) on cpu and b \(3, 4\) on cpu cannot"),
        (A, B.to("meta"), "naive", ValueError, "b .* on meta cannot be multiplied"),
        (A, B, "fastest", ValueError, "sgemm: no rung 'fastest'; there are naive, coalesced"),
        (torch.empty(2**31, 0), B[:0], "naive", ValueError, "a is 2147483648 x 0, a side over"),
        (torch.empty(2**30, 0), torch.empty(0, 2**30), "naive", ValueError, "over 2..31 tiles"),
    ],
)
def test_what_cannot_be_multiplied_is_refused(a, b, rung, kind, message):
    with pytest.raises(kind, match=message):
        sgemm.multiply(a, b, rung)


@pytest.mark.parametrize("rung", sgemm.RUNGS)
def test_empty_sum_is_zero(rung):
    assert sgemm.multiply(torch.ones(3, 0), torch.ones(0, 5), rung).eq(0).all()


def test_rows_that_overlap_are_read_where_they_are(monkeypatch):
    """A Hankel matrix: row i begins one element after row i - 1."""
    x = torch.arange(40.0)
    a = x.as_strided((30, 9), (1, 1))
    monkeypatch.setattr(torch.Tensor, "contiguous", None)
    for rung in sgemm.RUNGS:
        assert torch.equal(sgemm.multiply(a, torch.eye(9), rung), a)


@pytest.mark.parametrize("arch", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
@pytest.mark.exhaustive("what each rung compiles to")
def test_compiled_rungs_load_as_predicted(arch):
    """Loads from shared memory by multiply-add, and barriers, in the machine code itself."""
    rungs = [sgemm.RUNGS[name] for name in ("float4", "warp tiles", "double buffered")]
    code, symbols = sgemm.KERNELS.cubin([rung.instance() for rung in rungs], arch)
    bodies = binary.split_functions(binary.run_cuobjdump("-sass", code))
    for rung in rungs:
        body = bodies[symbols[rung.instance()]]
        count = {op: len(re.findall(rf"\s{op}[.\s]", body)) for op in ("FFMA", "LDS", "BAR")}
        assert count["LDS"] / count["FFMA"] == sgemm.shared_loads(rung)
        assert "LDS.128" in body and not re.search(r"\sLDS(?!\.128)", body)
        assert count["BAR"] == 2  # of a slab; double buffered: one before the loop, one in it
        used = binary.function_usage(code)[symbols[rung.instance()]]
        limits = cases.LIMITS["*"]
        assert used.registers <= limits["registers"] and used.spilled_bytes == 0
        assert used.shared_bytes <= limits["shared_bytes"]


def test_predictions_are_those_of_counted_addresses():
    """The formulas against the addresses that the threads of one warp name."""
    for name, rows, columns in (
        ("naive", range(32), [0] * 32),
        ("coalesced", [0] * 32, range(32)),
    ):
        sectors = {("a", row) for row in rows} | {("b", column // 8) for column in columns}
        assert sgemm.global_bytes(sgemm.RUNGS[name]) == len(sectors) * 32 / 32
    for name in ("2-D coarse", "float4"):  # 16 patches of 8 x 8 to a row of the block's tile
        patches = [(lane // 16, lane % 16) for lane in range(32)]
        words = len({r for r, _ in patches}) * 8 + len({c for _, c in patches}) * 8
        assert sgemm.shared_words(sgemm.RUNGS[name]) == words / (32 * 64)
    for name in ("warp tiles", "double buffered"):
        rung = sgemm.RUNGS[name]
        across = rung.warp[1] // 8
        patches = [(lane // (2 * across) * 2 + lane % 2, lane // 2 % across) for lane in range(32)]
        assert len(set(patches)) == 32
        words = len({r for r, _ in patches}) * 8 + len({c for _, c in patches}) * 8
        assert sgemm.shared_words(rung) == words / (32 * 64)


def test_peer_computes_in_full_float32_and_leaves_the_setting(monkeypatch):
    matmul = torch.backends.cuda.matmul
    seen, mm = [], torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: seen.append(matmul.fp32_precision) or mm(a, b))
    before = matmul.fp32_precision
    matmul.fp32_precision = "tf32"
    try:
        assert torch.equal(cases.library(A, B), A @ B)
        assert seen == ["ieee"] and matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


def test_demo_finds_every_rung_within_its_error():
    lines = read_demo(sgemm).splitlines()
    assert len(lines) == 2 + len(sgemm.RUNGS)
    assert all(line.endswith("True") for line in lines[2:])

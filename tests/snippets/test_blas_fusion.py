"""What snippets/blas_fusion refuses, sides of 0, and its bytes as the executed code moves them."""

from __future__ import annotations

import papergpu
import pytest
import torch
from conftest import read_demo
from cuda_snippet import line_counts

from snippets import cuda
from snippets.blas_fusion import blas_fusion as ours
from snippets.blas_fusion import cases

A, P, R = torch.arange(12.0).reshape(3, 4), torch.ones(4), torch.ones(3)


def draw_job(job: str, m: int, n: int) -> tuple:
    return cases.inputs({"job": job, "m": m, "n": n}, "cpu", torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: ours.bicgk(A, P, R, "magic"),
            ValueError,
            "no way 'magic'; there are",
        ),
        (lambda: ours.bicgk(A, P.half(), R), TypeError, "p is torch.float16, not float32"),
        (lambda: ours.bicgk(A, R, R), ValueError, r"p has shape \(3,\), not \(4,\)"),
        (lambda: ours.bicgk(P, P, R), ValueError, "matrix has 1 dimensions, not 2"),
        (lambda: ours.bicgk(A.t(), R, P), ValueError, "elements of matrix lie 4 apart"),
        (lambda: ours.axpydot(A, A, A, 1.0), ValueError, "w has 2 dimensions, not 1"),
        (lambda: ours.axpydot(P[::2], P[:2], P[:2], 1.0), ValueError, "of w lie 2 apart"),
    ],
)
def test_what_cannot_be_computed_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^blas_fusion: .*{message}"):
        call()


def test_more_blocks_than_a_grid_has_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    with pytest.raises(ValueError, match="2 blocks are over"):
        ours.bicgk(torch.ones(17, 4), P, torch.ones(17))


@pytest.mark.parametrize("way", ours.WAYS)
@pytest.mark.parametrize(("m", "n"), [(0, 0), (0, 3), (3, 0)])
def test_without_rows_or_columns_sums_are_0(way, m, n):
    z, r = ours.axpydot(*(torch.ones(0),) * 3, 2.0, way)
    assert z.shape == (0,) and r == 0
    for job in ("bicgk", "gemver"):
        name, *given = draw_job(job, m, n)
        found, wanted = getattr(ours, name)(*given, way), cases.chain(name, *given)
        assert all(map(torch.equal, found, wanted))


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", ours.WAYS)
def test_what_begins_anywhere_and_rows_far_apart(way):
    _, w, v, u, a = draw_job("axpydot", 1, 1030)
    z, r = ours.axpydot(w[1:], v[1:], u[1:], a, way)
    torch.testing.assert_close(z, w[1:] - a * v[1:])
    torch.testing.assert_close(r, z @ u[1:])
    _, matrix, p, r = draw_job("bicgk", 19, 40)
    for view, right in ((matrix[:, 1:38], p[1:38]), (matrix[:, 4:36], p[:32])):
        q, s = ours.bicgk(view, right, r, way)
        torch.testing.assert_close(q, view @ right)
        torch.testing.assert_close(s, view.t() @ r)


@pytest.mark.exhaustive("the same bits again, under other schedules")
@pytest.mark.parametrize("job", ["axpydot", "bicgk", "gemver"])
def test_sums_are_the_same_bits_whatever_the_schedule(job):
    name, *given = draw_job(job, 70, 5000)
    for way in ours.WAYS:
        found = []
        for seed, schedule in enumerate(("robin", "far", "random")):
            with papergpu.settings(schedule=schedule, seed=seed):
                found.append(getattr(ours, name)(*given, way))
        for other in found[1:]:
            assert all(map(torch.equal, other, found[0]))


def test_strips_of_many_groups(monkeypatch):
    monkeypatch.setattr(ours, "BLOCKS", 1)
    assert ours.shares(600, 8, 4) == (1, 3, 256)
    name, *given = draw_job("gemver", 600, 8)
    for found, wanted in zip(ours.gemver(*given), cases.reference(name, *given), strict=True):
        assert (found - wanted).norm() < 5e-6 * wanted.norm()


@pytest.mark.parametrize("n", [1, 4, 1023, 1024, 4096, 16_384, 2**20])
@pytest.mark.parametrize("m", [1, 17, 512, 4096, 16_384, 2**20])
def test_shares_hold_every_row_and_column_once(m, n):
    for v in (1, 4):
        tiles, strips, rows = ours.shares(m, n, v)
        assert (tiles - 1) * 256 * v < n <= tiles * 256 * v
        assert (strips - 1) * rows < m <= strips * rows
        assert rows % 8 == 0 and ours.STRIPS[0] <= rows <= ours.STRIPS[1]


@pytest.mark.parametrize("way", ours.WAYS)
@pytest.mark.parametrize("job", ["axpydot", "bicgk", "gemver"])
def test_executed_code_moves_the_bytes_of_the_formula(job, way):
    """Its sectors: what `moved` counts, and vectors that each strip or tile reads again."""
    m, n = (1, 32_768) if job == "axpydot" else (64, 2048)
    name, *given = draw_job(job, m, n)
    found: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(found.append):
        getattr(ours, name)(*given, way)
    rows = line_counts(found, "blas_fusion")
    sectors = sum(line["sectors"] for line in rows if line.get("sectors"))
    tiles, strips, _ = ours.shares(m, n, 4)
    assert (tiles, strips) == (2, 4) or job == "axpydot"
    again = {  # by strip a vector along the columns, by tile one along the rows
        "axpydot": 0,
        "bicgk": (strips - 1) * n + (tiles - 1) * m,
        "gemver": 3 * (strips - 1) * n + 3 * (tiles - 1) * m,
    }[job]
    bytes_ = ours.moved(job, way, m, n) + 4 * again
    assert abs(32 * sectors - bytes_) <= 0.002 * bytes_


def test_demo_finds_both_ways_right():
    lines = read_demo(ours).splitlines()
    assert [line.split("right by ")[1] for line in lines[:3]] == ["chain, fused"] * 3

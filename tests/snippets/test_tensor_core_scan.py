"""What snippets/tensor_core_scan refuses, what it does with NaN, and how exact its sums are."""

from __future__ import annotations

import papergpu
import pytest
import torch
from conftest import read_demo

from snippets import cuda
from snippets.tensor_core_scan import tensor_core_scan as ours

WAYS = ("naive", "shuffles", "wmma", "mma")  # CUB is verified with the cases
X = torch.randn(3, 40, generator=torch.Generator().manual_seed(5)).half()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.run("sums", "magic", X), ValueError, "no way 'magic'; there are naive, sh"),
        (lambda: ours.scan(X.float()), TypeError, "dtype torch.float32 is neither float16 nor"),
        (lambda: ours.sums(X[0, 0]), ValueError, "a tensor of 0 dimensions has no row"),
    ],
)
def test_what_has_no_sum_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^tensor_core_scan: {message}"):
        call()


def test_more_rows_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    assert ours.sums(torch.ones(256, 4).half())[255] == 4
    with pytest.raises(ValueError, match="^tensor_core_scan: 257 rows are over 1 blocks"):
        ours.sums(torch.ones(257, 4).half())


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_nothing_add_up_to_nothing(way):
    for shape in ((0, 5), (5, 0), (2, 0, 3)):
        x = torch.ones(shape).half()
        assert torch.equal(ours.run("sums", way, x), x.sum(-1))
        assert ours.run("scan", way, x).shape == shape


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [16, 24, 60, 130, 300, 700])
def test_infinities_and_nan_go_no_further_than_additions_carry_them(way, n):
    x = torch.ones(7, n, dtype=torch.bfloat16)
    x[1, 3], x[2, n - 1], x[3, n // 2] = torch.inf, -torch.inf, torch.nan
    x[4, 2], x[4, n - 2] = torch.inf, -torch.inf  # NaN from there on
    x[5] = 3e38
    for job, wanted in (("sums", x.float().sum(-1)), ("scan", x.float().cumsum(-1))):
        found = ours.run(job, way, x)
        torch.testing.assert_close(
            found.float(), wanted.bfloat16().float(), equal_nan=True, rtol=0.01, atol=0
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [64, 512, 1024])
def test_sums_that_cancel_are_those_of_float32(way, n):
    """Two pieces of a sum of a thousand would be off by 2**-17 of it, 8e-3."""
    x = torch.rand(40, n // 2, generator=torch.Generator().manual_seed(6)) * 60
    x = torch.cat((x, -x.flip(-1)), dim=-1).half()
    last = ours.run("scan", way, x)[:, -1].double()
    assert last.abs().max() < 4e-7 * x[:, : n // 2].double().sum(-1).max() * 4


def test_rows_of_every_shape_and_place():
    x = torch.randn(3, 2, 5, 50, generator=torch.Generator().manual_seed(7)).half()
    for one in (x, x.mT, x[..., 3:], x[:, :1].expand(3, 4, 5, 50), x[..., ::2]):
        assert torch.allclose(ours.scan(one).double(), one.double().cumsum(-1), atol=0.05)
        assert torch.allclose(ours.sums(one).double(), one.double().sum(-1), atol=0.05)


@pytest.mark.parametrize(
    ("n", "kernel"),
    [
        (8, "short_rows<Products, __half, 1, 16, 1>"),
        (33, "short_rows<Products, __half, 0, 64, 1>"),
        (512, "short_rows<Products, __half, 1, 512, 1>"),
        (520, "long_rows<Products, __half, 1, 1>"),
    ],
)
def test_a_tile_has_as_many_rows_as_fit(n, kernel):
    found: list[papergpu.Launched] = []
    with papergpu.on_launch(found.append):
        y = ours.scan(torch.ones(2, n).half())
    assert [one.name for one in found] == [kernel]
    assert y[1].tolist() == torch.ones(n).cumsum(0).tolist()


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_a_row_past_2_to_the_31_is_reached():
    """Two rows farther apart than 2**31 elements, in memory of which only they are touched."""
    far = 2**31 + 64
    x = torch.empty(far + 64, dtype=torch.float16).as_strided((2, 64), (far, 1))
    x[0], x[1] = 0, 2
    for way in WAYS:
        assert ours.run("scan", way, x)[1].tolist() == list(range(2, 130, 2))


def test_demo_finds_every_way_right():
    lines = read_demo(ours).splitlines()
    assert [line.endswith("right by naive, shuffles, wmma, mma") for line in lines[:8]] == [
        True
    ] * 8
    assert lines[8].endswith("[19.0, 20.0, inf, inf]") and len(lines) == 9

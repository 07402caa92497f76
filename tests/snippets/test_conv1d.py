"""What snippets/conv1d refuses, every width and number of taps, and its bytes as executed."""

from __future__ import annotations

import papergpu
import pytest
import torch
import torch.nn.functional as F
from conftest import read_demo
from cuda_snippet import line_counts

from snippets import cuda
from snippets.conv1d import cases
from snippets.conv1d import conv1d as ours

X, TAPS = torch.arange(24.0).view(2, 3, 4), torch.ones(3, 4)
KERNEL, ONE = torch.ones(6, 3, 3), torch.ones(6)


def draw_signal(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run_dense(x=X, weight=KERNEL, bias=ONE, groups=2, gamma=ONE, beta=ONE, **more):
    return ours.dense(x, weight, bias, groups, gamma, beta, **more)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.depthwise(X, TAPS, way="magic"), ValueError, "no way 'magic'; there are"),
        (lambda: ours.depthwise(X.int(), TAPS), TypeError, "x is torch.int32, none of float32"),
        (lambda: ours.depthwise(X[0], TAPS), ValueError, "x has 2 dimensions, not 3; reshape"),
        (lambda: ours.depthwise(X, TAPS.half()), TypeError, "weight is torch.float16, not"),
        (lambda: ours.depthwise(X, TAPS[:2]), ValueError, r"weight has shape \(2, 4\), not"),
        (lambda: ours.depthwise(X, torch.ones(3, 9)), ValueError, r"width of 9 is outside 1 \.\."),
        (lambda: ours.depthwise(X, torch.tensor(1.0)), ValueError, "width of 0 is outside"),
        (lambda: ours.depthwise(X[..., ::2], TAPS), ValueError, "of x lie 2 apart, .* side by"),
        (lambda: ours.depthwise(X, TAPS, ONE), ValueError, r"bias has shape \(6,\), not \(3,\)"),
        (lambda: run_dense(way="deep"), ValueError, "no way 'deep'; there are chain, fused"),
        (lambda: run_dense(X.half()), TypeError, "x is torch.float16, not torch.float32"),
        (lambda: run_dense(weight=KERNEL[..., :2]), ValueError, "2 taps; their number must be odd"),
        (lambda: run_dense(weight=torch.ones(6, 3, 11)), ValueError, "11 taps; .* at most 9"),
        (lambda: run_dense(weight=KERNEL[:, :2]), ValueError, r"weight has shape \(6, 2, 3\), not"),
        (lambda: run_dense(weight=torch.ones(6, 6, 3)[:, ::2]), ValueError, "it must be dense"),
        (lambda: run_dense(groups=4), ValueError, "6 channels do not fall into 4 equal groups"),
        (lambda: run_dense(groups=0), ValueError, "6 channels do not fall into 0 equal groups"),
        (lambda: run_dense(gamma=ONE[:3]), ValueError, r"gamma has shape \(3,\), not \(6,\)"),
        (
            lambda: run_dense(torch.ones(2, 3, 60_000)),
            ValueError,
            '3 x 60000 .*; use the way "chain"',
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^conv1d: .*{message}"):
        call()


def test_more_blocks_than_a_grid_has_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (5, 1, 1))
    with pytest.raises(ValueError, match=r"6 blocks are over 2\*\*31 - 1; split it"):
        ours.depthwise(X, TAPS)
    monkeypatch.setattr(cuda, "MAX_GRID", (3, 1, 1))
    with pytest.raises(ValueError, match="4 blocks are over"):
        run_dense(way="fused")


@pytest.mark.parametrize("way", ours.DEPTHWISE)
def test_nothing_in_is_nothing_out(way):
    for shape in ((0, 3, 4), (2, 0, 4), (2, 3, 0)):
        x = torch.empty(shape)
        assert ours.depthwise(x, torch.ones(shape[1], 4), way=way).shape == shape
    for x in (X[:0], X[..., :0].contiguous()):
        assert run_dense(x, way="fused").shape == (len(x), 6, x.shape[2])


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("width", range(1, 9))
def test_every_width_by_packs_and_by_elements(width):
    taps, bias = draw_signal(2, width), draw_signal(2)
    for length in (520, 519):
        x = draw_signal(1, 2, length)
        wanted = cases.reference("depthwise", x, taps, bias, False)
        assert (ours.depthwise(x, taps, bias) - wanted).norm() < 1e-6 * wanted.norm()


def test_a_lane_loads_16_bytes_where_every_row_begins_on_them():
    x = torch.empty(2, 3, 16)
    assert ours.packed(x) == 4 and ours.packed(x.half()) == 8
    assert ours.packed(torch.empty(2, 3, 20).half()) == 1  # 4 is left of a pack
    assert ours.packed(torch.empty(97)[1:].view(2, 3, 16)) == 1
    assert ours.packed(torch.empty(2, 3, 18)[..., :16]) == 1
    assert ours.packed(torch.empty(2, 3, 20)[..., 4:]) == 4


def test_rows_may_lie_apart_or_be_one_row_over_and_over():
    taps, bias = draw_signal(3, 4), draw_signal(3)
    whole = draw_signal(4, 6, 300)
    for x in (whole[::2, ::2, 8:296], whole[::2, ::2, 1:], whole[:1, :1].expand(2, 3, 300)):
        wanted = cases.reference("depthwise", x, taps, bias, True)
        found = ours.depthwise(x, taps, bias, True)
        assert (found - wanted).norm() < 1e-6 * wanted.norm()
    x = whole[::2, ::2, 8:40]
    given = draw_signal(6, 3, 3), draw_signal(6), 2, draw_signal(6), draw_signal(6)
    for one in (x, whole[::2, ::2, 1:33]):
        wanted = cases.reference("dense", one, *given)
        assert (ours.dense(one, *given) - wanted).norm() < 2e-6 * wanted.norm()


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", ours.DEPTHWISE)
def test_rows_past_2_to_the_31_are_reached(way):
    """In memory of which only the rows themselves are touched."""
    memory = torch.empty(2**31 + 64, dtype=torch.float16)
    x = memory.as_strided((1, 2, 16), (0, 2**31 + 8, 1))
    x.copy_(draw_signal(1, 2, 16))
    taps = draw_signal(2, 4).half()
    wanted = cases.reference("depthwise", x, taps, None, False)
    assert (ours.depthwise(x, taps, way=way) - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("s", [1, 7, 9])
@pytest.mark.parametrize("t", [3, 8, 17])
def test_taps_and_times_of_any_number(s, t):
    x, weight = draw_signal(1, 5, t), draw_signal(8, 5, s)
    given = draw_signal(8), 2, draw_signal(8), draw_signal(8)
    wanted = cases.reference("dense", x, weight, *given)
    assert (ours.dense(x, weight, *given) - wanted).norm() < 2e-6 * wanted.norm()


@pytest.mark.parametrize("way", ours.DENSE)
def test_a_group_without_spread_is_its_beta(way):
    """One output a group is its own mean: epsilon alone keeps the quotient finite."""
    x, weight, beta = torch.ones(1, 2, 1), torch.ones(3, 2, 1), torch.tensor([-30.0, 1, 90])
    y = ours.dense(x, weight, torch.zeros(3), 3, torch.ones(3), beta, way=way)
    assert torch.allclose(y[0, :, 0], F.mish(beta), rtol=1e-6, atol=0)
    y = ours.dense(x * 2, weight, torch.ones(3), 1, torch.ones(3), beta, eps=1.0, way=way)
    assert torch.allclose(y[0, :, 0], F.mish(beta), rtol=1e-6, atol=0)


def test_epsilon_is_the_one_that_is_given():
    given = (
        draw_signal(2, 4, 12),
        draw_signal(6, 4, 3),
        draw_signal(6),
        2,
        draw_signal(6),
        draw_signal(6),
    )
    x, weight, bias, groups, gamma, beta = given
    y = F.conv1d(x, weight, bias, padding=1)
    for eps in (1e-3, 10.0):
        wanted = F.mish(F.group_norm(y, groups, gamma, beta, eps))
        for way in ours.DENSE:
            assert torch.allclose(ours.dense(*given, eps=eps, way=way), wanted, atol=1e-5)


@pytest.mark.parametrize("units", [1, 8, 64, 4096])
@pytest.mark.parametrize("channels", [1, 16, 17, 64, 100, 128, 1000])
def test_parts_fill_the_multiprocessors_and_hold_every_channel(units, channels):
    share = ours.parts(units, channels, 132)
    assert share in (1, 2, 4, 8)
    each = -(-channels // share)
    assert each * share >= channels
    assert share == 1 or units * share // 2 < 132 and (each > 8 or channels <= 16 * share)


@pytest.mark.exhaustive("the same bits again, under other schedules")
def test_sums_are_the_same_bits_whatever_the_schedule():
    given = (
        draw_signal(1, 200, 20),
        draw_signal(36, 200, 5),
        draw_signal(36),
        1,
        draw_signal(36),
        draw_signal(36),
    )
    for way in ours.DENSE:
        found = []
        for seed, schedule in enumerate(("robin", "far", "random")):
            with papergpu.settings(schedule=schedule, seed=seed):
                found.append(ours.dense(*given, way=way))
        for other in found[1:]:
            assert torch.equal(other, found[0])


def count_sectors(call) -> int:
    found: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(found.append):
        call()
    return sum(line.get("sectors") or 0 for line in line_counts(found, "conv1d"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("way", ["packs", "deep"])
def test_executed_code_asks_for_the_bytes_of_the_formula(way, dtype):
    """The rows by `asked`, less the pack before the first; and four taps a warp."""
    length = 16_384
    x, taps = torch.ones(1, 1, length, dtype=dtype), torch.ones(1, 4, dtype=dtype)
    size = x.element_size()
    warps = length * size // (512 * ours.DEPTHWISE[way])
    rows = length * ours.asked(way, 4, size) - 32
    assert count_sectors(lambda: ours.depthwise(x, taps, way=way)) * 32 == rows + 32 * 4 * warps


def test_fused_code_reads_taps_once_for_16_times():
    """All tensors once, and beside x what lies on either side of 16 times, none here."""
    b, c, t, k, s = 2, 64, 16, 32, 5
    given = torch.ones(b, c, t), torch.ones(k, c, s), torch.ones(k), 1, torch.ones(k), torch.ones(k)
    found = count_sectors(lambda: ours.dense(*given, way="fused"))
    # x once for each 16 rows, taps once for each image, y once.
    wide = 4 * (b * c * t * k // 16 + b * k * c * s + b * k * t) // 32
    assert wide < found < 1.05 * wide  # and bias, gamma, beta


def test_on_chip_is_what_a_block_of_the_page_has():
    assert ours.on_chip(5, 16, 16) == 4 * (24 * (16 * 44 + 8 * 28) + 256)
    assert [ours.at_once(t) for t in (1, 4, 5, 8, 9, 16, 17)] == [4, 4, 8, 8, 16, 16, 16]


def test_demo_is_close_to_torch_by_every_way():
    text = read_demo(ours)
    assert text.count("yes") == len(ours.DEPTHWISE) + len(ours.DENSE) and "no " not in text

"""Stencils and convolutions: what a block reads, marches and refuses."""

from __future__ import annotations

import json
import lzma

import numpy as np
import papergpu
import pytest
import torch
import torch.nn.functional as F
from conftest import read_demo
from cuda_snippet import line_counts

from snippets import cuda
from snippets.conv1d import cases as conv1d_cases
from snippets.conv1d import conv1d
from snippets.stencil import cases as stencil_cases
from snippets.stencil import stencil

# stencil: what it refuses, how far a block marches, and the accesses that it predicts.

STENCIL_X = torch.arange(60.0).view(3, 4, 5)
C0, C1 = -0.7, 0.35
DEPTHS = {"float4": 1, "two steps": 2, "four steps": 4}


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: stencil.advance(STENCIL_X, 1, C0, C1, "magic"),
            ValueError,
            "no way 'magic'; there are",
        ),
        (
            lambda: stencil.advance(STENCIL_X.half(), 1, C0, C1),
            TypeError,
            "x is torch.float16, not",
        ),
        (
            lambda: stencil.advance(STENCIL_X[0], 1, C0, C1),
            ValueError,
            "x has 2 dimensions, not 3; reshape",
        ),
        (
            lambda: stencil.advance(STENCIL_X[..., ::2], 1, C0, C1),
            ValueError,
            r"strides \(20, 5, 2\), it must be dense; pass x\.contiguous\(\)",
        ),
        (
            lambda: stencil.advance(STENCIL_X, 1.5, C0, C1),
            TypeError,
            r"steps = 1\.5 is no integer; pass int",
        ),
        (
            lambda: stencil.advance(STENCIL_X, -1, C0, C1),
            ValueError,
            "steps = -1 is below 0; no step",
        ),
        (
            lambda: stencil.advance(STENCIL_X, 2**31, C0, C1),
            ValueError,
            "over 1048576; call it several",
        ),
        (
            lambda: stencil.advance(torch.empty(0, 1, 2**31), 1, C0, C1),
            ValueError,
            "a side of 2147483648 is over 2147483392; split the grid",
        ),
    ],
)
def test_what_is_no_grid_or_no_number_of_steps_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^stencil: .*{message}"):
        call()


@pytest.mark.parametrize("way", stencil.WAYS)
def test_more_blocks_than_a_grid_may_have_are_refused(way, monkeypatch):
    rows, columns = stencil.WAYS[way].tile
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    x = torch.ones(1, rows, columns)
    steps = stencil.WAYS[way].depth
    assert torch.equal(stencil.advance(x, steps, C0, C1, way), x)
    with pytest.raises(ValueError, match=r"^stencil: a grid of 1 x .* takes 2 blocks, over 1;"):
        stencil.advance(torch.ones(1, rows + 1, columns), steps, C0, C1, way)


@pytest.mark.parametrize("way", stencil.WAYS)
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_the_result_is_a_grid_of_its_own(way, steps):
    kept = STENCIL_X.clone()
    y = stencil.advance(STENCIL_X, steps, C0, C1, way)
    assert y.untyped_storage().data_ptr() != STENCIL_X.untyped_storage().data_ptr()
    assert torch.equal(STENCIL_X, kept) and y.is_contiguous()
    assert torch.equal(y[0], STENCIL_X[0]) and torch.equal(y[:, :, -1], STENCIL_X[:, :, -1])
    for empty in (STENCIL_X[:0], STENCIL_X[:, :0], STENCIL_X[:, :, :0].contiguous()):
        assert stencil.advance(empty, steps, C0, C1, way).shape == empty.shape


@pytest.mark.exhaustive("the same bits again, under other schedules")
@pytest.mark.parametrize("steps", [1, 4, 7])
def test_every_way_gives_the_same_bits(steps):
    x = torch.randn(14, 33, 126, generator=torch.Generator().manual_seed(3))
    first, *others = (stencil.advance(x, steps, C0, C1, way) for way in stencil.WAYS)
    assert all(torch.equal(first, other) for other in others)


def test_steps_are_taken_as_many_at_a_time_as_there_are(monkeypatch):
    names = []
    with papergpu.on_launch(lambda one: names.append(one.name)):
        stencil.advance(torch.ones(3, 3, 8), 7, C0, C1, "four steps")
        stencil.advance(torch.ones(3, 3, 8), 3, C0, C1, "two steps")
        stencil.advance(torch.ones(3, 3, 7), 2, C0, C1, "two steps")
        stencil.advance(torch.ones(73)[1:].view(3, 3, 8), 2, C0, C1, "float4")
    assert names == [
        *("stencil_time<4, 1>", *["stencil_time<1, 1>"] * 3),
        *("stencil_time<2, 1>", "stencil_time<1, 1>"),
        "stencil_time<2, 0>",  # rows are no whole number of quads
        *("stencil_time<1, 0>", "stencil_time<1, 1>"),  # x alone begins off 16 bytes
    ]


@pytest.mark.parametrize("z", [1, 2, 7, 64, 512, 2**31 - 256])
@pytest.mark.parametrize("tiles", [1, 110, 132, 2**31 - 1])
def test_a_march_ends_when_no_other_ends_sooner(z, tiles):
    for depth, room in ((1, 264), (4, 132)):
        planes = stencil.march(z, tiles, depth, room)
        assert 1 <= planes <= z
        turns = -(-tiles * -(-z // planes) // room) * (planes + 2 * depth)
        assert turns <= -(-tiles // room) * (z + 2 * depth)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("kernel", ["naive", "tiled", "marching", *DEPTHS])
def test_cells_past_2_to_the_31_are_reached(kernel):
    """One block of a grid so large, in memory of which only its own cells are touched."""
    way = stencil.WAYS[kernel]
    sides = (1, 8, 307_000_000) if kernel == "naive" else (3, 3, 2**28)
    cells, apart = sides[0] * sides[1] * sides[2], 1024  # y lies between the rows of x
    memory = torch.empty(cells + apart)
    x, y = memory[:cells].view(sides), memory[apart:].view(sides)
    small = torch.randn(*sides[:2], 140, generator=torch.Generator().manual_seed(4))
    x[:, :, :140] = small
    name = way.kernel + (f"<{way.depth}, 1>" if way.kernel == "stencil_time" else "")
    numbers = (*map(np.int32, (*sides, sides[0])), np.float32(C0), np.float32(C1))
    stencil.KERNELS.launch(name, 1, way.threads, x, y, *numbers, shared=way.shared)
    expected = stencil_cases.reference(small, way.depth, C0, C1)[:, :, : way.tile[1]]
    assert (y[:, :, : way.tile[1]] - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (cells - sides[2]) > 2**31 - sides[2] and cells > 2**31


def count_row_sectors(n: int, tile: int, halo: int) -> int:
    """Sectors of a row of n cells, where each tile reads its own and `halo` a side."""
    ranges = ((max(0, a - halo), min(n, a + tile + halo)) for a in range(0, n, tile))
    return sum(-(-end // 8) - begin // 8 for begin, end in ranges)


def total_counts(launched: list[papergpu.Launched]) -> dict[str, int]:
    """Sectors, wavefronts, and warp instructions by class, of all lines together."""
    total: dict[str, int] = {}
    for line in line_counts(launched, "stencil"):
        own = {name: line.get(name, 0) for name in ("sectors", "wavefronts")}
        for name, number in (own | line["classes"]).items():
            total[name] = total.get(name, 0) + number
    return total


@pytest.mark.parametrize("way", DEPTHS)
def test_sectors_wavefronts_and_updates_are_those_predicted(way, monkeypatch):
    """On one slab of 12 planes: 3 tiles across, of which one has its halo on both sides."""
    monkeypatch.setattr(stencil, "_multiprocessors", lambda device: 100)
    monkeypatch.setattr(stencil, "march", lambda z, *rest: z)
    z, high, wide = 12, 60, 360
    depth, (rows, columns) = DEPTHS[way], stencil.WAYS[way].tile
    launched: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(launched.append):
        stencil.advance(torch.ones(z, high, wide), depth, C0, C1, way)
    total = total_counts(launched)
    tops = range(0, high, rows)
    held = sum(min(high, top + rows + depth) - max(0, top - depth) for top in tops)
    read = z * held * count_row_sectors(wide, columns, 4)
    written = z * high * count_row_sectors(wide, columns, 0)
    assert total["sectors"] == read + written
    blocks, marched = len(tops) * 3, z + depth
    # A warp stores two rows of 512 bytes for each level, and loads the one above and below.
    warps = blocks * 16 * marched * depth
    loads = total["wavefronts"] - warps * 2 * 4
    assert loads == warps * 2 * 4 if depth < 4 else 0 < loads < warps * 2 * 4  # faces need none
    # And updates two rows of quads, 8 multiply-adds, where any cell is on no face.
    needed = depth * (z - 2) * (high - 2) * (wide - 2)
    assert needed / 32 < total["multiply-add"] < warps * 8


def test_a_step_of_a_cell_is_8_flops():
    launched: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(launched.append):
        stencil.advance(torch.ones(6, 18, 34), 1, C0, C1, "naive")
    total = total_counts(launched)
    assert total["float"] == 6 * total["multiply-add"]  # five sums, a product, and two in one
    assert total["multiply-add"] == 4 * 16 * 2  # two warps have the 32 inner cells of a row


def test_halos_are_what_the_page_says():
    """By its formulas, from the sides of what a block holds and writes."""
    for way, depth in DEPTHS.items():
        rows, columns = 32 - 2 * depth, 128 - 8
        assert stencil.WAYS[way].tile == (rows, columns)
        assert stencil.moved(stencil.WAYS[way]) == 4 / depth * (32 * 128 / (rows * columns) + 1)
        assert stencil.updates(stencil.WAYS[way]) == 32 * 128 / (rows * columns)


def test_instructions_a_cell_beside_hotspot_are_what_the_page_says():
    folder = stencil_cases.__file__.rpartition("/")[0]
    with lzma.open(f"{folder}/../builds.xz") as file:
        theirs = json.load(file)["snippets"]["stencil"][0]["builds"]
    with lzma.open(f"{folder}/results/cpu.xz") as file:
        kept = json.load(file)["views"]["views"]
    views = {
        (one["variant"], one["kernel"], one["arch"]): one["loops"][0]["kinds"]
        for one in kept
        if one["loops"]
    }
    for arch in ("sm_80", "sm_90", "sm_100"):
        loop = theirs[arch]["loop"]
        cells = loop["store global 4"]
        assert cells == 4 and loop["multiply-add"] == 9 * cells
        hotspot = sum(loop.values()) / cells
        loop = views["marching", "stencil_marching", arch]
        assert sum(loop.values()) / loop["store global 4"] > 3 * hotspot
        loop = views["float4", "stencil_time<1, 1>", arch]
        cells = 4 * loop["store global 16"] * (120 * 30) / (128 * 32)  # what is no halo
        assert 7 * 4 * loop["store global 16"] <= loop["multiply-add"] <= 8 * 8
        ours_ = sum(loop.values()) / cells
        assert ours_ < hotspot if arch != "sm_100" else ours_ < 1.1 * hotspot
        asks = loop["load global 16"] + loop["store global 16"] + loop["load shared 16"]
        assert (asks + loop["store shared 16"]) / cells <= 7 / 6


def test_demo_finds_the_same_bits():
    lines = read_demo(stencil).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["yes"] * len(stencil.WAYS)


# conv1d: what it refuses, every width and number of taps, and its bytes as executed.

CONV1D_X, TAPS = torch.arange(24.0).view(2, 3, 4), torch.ones(3, 4)
KERNEL, ONE = torch.ones(6, 3, 3), torch.ones(6)


def draw_signal(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run_dense(x=CONV1D_X, weight=KERNEL, bias=ONE, groups=2, gamma=ONE, beta=ONE, **more):
    return conv1d.dense(x, weight, bias, groups, gamma, beta, **more)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: conv1d.depthwise(CONV1D_X, TAPS, way="magic"),
            ValueError,
            "no way 'magic'; there are",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X.int(), TAPS),
            TypeError,
            "x is torch.int32, none of float32",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X[0], TAPS),
            ValueError,
            "x has 2 dimensions, not 3; reshape",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X, TAPS.half()),
            TypeError,
            "weight is torch.float16, not",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X, TAPS[:2]),
            ValueError,
            r"weight has shape \(2, 4\), not",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X, torch.ones(3, 9)),
            ValueError,
            r"width of 9 is outside 1 \.\.",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X, torch.tensor(1.0)),
            ValueError,
            "width of 0 is outside",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X[..., ::2], TAPS),
            ValueError,
            "of x lie 2 apart, .* side by",
        ),
        (
            lambda: conv1d.depthwise(CONV1D_X, TAPS, ONE),
            ValueError,
            r"bias has shape \(6,\), not \(3,\)",
        ),
        (lambda: run_dense(way="deep"), ValueError, "no way 'deep'; there are chain, fused"),
        (lambda: run_dense(CONV1D_X.half()), TypeError, "x is torch.float16, not torch.float32"),
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
        conv1d.depthwise(CONV1D_X, TAPS)
    monkeypatch.setattr(cuda, "MAX_GRID", (3, 1, 1))
    with pytest.raises(ValueError, match="4 blocks are over"):
        run_dense(way="fused")


@pytest.mark.parametrize("way", conv1d.DEPTHWISE)
def test_nothing_in_is_nothing_out(way):
    for shape in ((0, 3, 4), (2, 0, 4), (2, 3, 0)):
        x = torch.empty(shape)
        assert conv1d.depthwise(x, torch.ones(shape[1], 4), way=way).shape == shape
    for x in (CONV1D_X[:0], CONV1D_X[..., :0].contiguous()):
        assert run_dense(x, way="fused").shape == (len(x), 6, x.shape[2])


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("width", range(1, 9))
def test_every_width_by_packs_and_by_elements(width):
    taps, bias = draw_signal(2, width), draw_signal(2)
    for length in (520, 519):
        x = draw_signal(1, 2, length)
        wanted = conv1d_cases.reference("depthwise", x, taps, bias, False)
        assert (conv1d.depthwise(x, taps, bias) - wanted).norm() < 1e-6 * wanted.norm()


def test_a_lane_loads_16_bytes_where_every_row_begins_on_them():
    x = torch.empty(2, 3, 16)
    assert conv1d.packed(x) == 4 and conv1d.packed(x.half()) == 8
    assert conv1d.packed(torch.empty(2, 3, 20).half()) == 1  # 4 is left of a pack
    assert conv1d.packed(torch.empty(97)[1:].view(2, 3, 16)) == 1
    assert conv1d.packed(torch.empty(2, 3, 18)[..., :16]) == 1
    assert conv1d.packed(torch.empty(2, 3, 20)[..., 4:]) == 4


def test_rows_may_lie_apart_or_be_one_row_over_and_over():
    taps, bias = draw_signal(3, 4), draw_signal(3)
    whole = draw_signal(4, 6, 300)
    for x in (whole[::2, ::2, 8:296], whole[::2, ::2, 1:], whole[:1, :1].expand(2, 3, 300)):
        wanted = conv1d_cases.reference("depthwise", x, taps, bias, True)
        found = conv1d.depthwise(x, taps, bias, True)
        assert (found - wanted).norm() < 1e-6 * wanted.norm()
    x = whole[::2, ::2, 8:40]
    given = draw_signal(6, 3, 3), draw_signal(6), 2, draw_signal(6), draw_signal(6)
    for one in (x, whole[::2, ::2, 1:33]):
        wanted = conv1d_cases.reference("dense", one, *given)
        assert (conv1d.dense(one, *given) - wanted).norm() < 2e-6 * wanted.norm()


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", conv1d.DEPTHWISE)
def test_rows_past_2_to_the_31_are_reached(way):
    """In memory of which only the rows themselves are touched."""
    memory = torch.empty(2**31 + 64, dtype=torch.float16)
    x = memory.as_strided((1, 2, 16), (0, 2**31 + 8, 1))
    x.copy_(draw_signal(1, 2, 16))
    taps = draw_signal(2, 4).half()
    wanted = conv1d_cases.reference("depthwise", x, taps, None, False)
    assert (conv1d.depthwise(x, taps, way=way) - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("s", [1, 7, 9])
@pytest.mark.parametrize("t", [3, 8, 17])
def test_taps_and_times_of_any_number(s, t):
    x, weight = draw_signal(1, 5, t), draw_signal(8, 5, s)
    given = draw_signal(8), 2, draw_signal(8), draw_signal(8)
    wanted = conv1d_cases.reference("dense", x, weight, *given)
    assert (conv1d.dense(x, weight, *given) - wanted).norm() < 2e-6 * wanted.norm()


@pytest.mark.parametrize("way", conv1d.DENSE)
def test_a_group_without_spread_is_its_beta(way):
    """One output a group is its own mean: epsilon alone keeps the quotient finite."""
    x, weight, beta = torch.ones(1, 2, 1), torch.ones(3, 2, 1), torch.tensor([-30.0, 1, 90])
    y = conv1d.dense(x, weight, torch.zeros(3), 3, torch.ones(3), beta, way=way)
    assert torch.allclose(y[0, :, 0], F.mish(beta), rtol=1e-6, atol=0)
    y = conv1d.dense(x * 2, weight, torch.ones(3), 1, torch.ones(3), beta, eps=1.0, way=way)
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
        for way in conv1d.DENSE:
            assert torch.allclose(conv1d.dense(*given, eps=eps, way=way), wanted, atol=1e-5)


@pytest.mark.parametrize("units", [1, 8, 64, 4096])
@pytest.mark.parametrize("channels", [1, 16, 17, 64, 100, 128, 1000])
def test_parts_fill_the_multiprocessors_and_hold_every_channel(units, channels):
    share = conv1d.parts(units, channels, 132)
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
    for way in conv1d.DENSE:
        found = []
        for seed, schedule in enumerate(("robin", "far", "random")):
            with papergpu.settings(schedule=schedule, seed=seed):
                found.append(conv1d.dense(*given, way=way))
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
    warps = length * size // (512 * conv1d.DEPTHWISE[way])
    rows = length * conv1d.asked(way, 4, size) - 32
    assert count_sectors(lambda: conv1d.depthwise(x, taps, way=way)) * 32 == rows + 32 * 4 * warps


def test_fused_code_reads_taps_once_for_16_times():
    """All tensors once, and beside x what lies on either side of 16 times, none here."""
    b, c, t, k, s = 2, 64, 16, 32, 5
    given = torch.ones(b, c, t), torch.ones(k, c, s), torch.ones(k), 1, torch.ones(k), torch.ones(k)
    found = count_sectors(lambda: conv1d.dense(*given, way="fused"))
    # x once for each 16 rows, taps once for each image, y once.
    wide = 4 * (b * c * t * k // 16 + b * k * c * s + b * k * t) // 32
    assert wide < found < 1.05 * wide  # and bias, gamma, beta


def test_on_chip_is_what_a_block_of_the_page_has():
    assert conv1d.on_chip(5, 16, 16) == 4 * (24 * (16 * 44 + 8 * 28) + 256)
    assert [conv1d.at_once(t) for t in (1, 4, 5, 8, 9, 16, 17)] == [4, 4, 8, 8, 16, 16, 16]


def test_demo_is_close_to_torch_by_every_way():
    text = read_demo(conv1d)
    assert text.count("yes") == len(conv1d.DEPTHWISE) + len(conv1d.DENSE) and "no " not in text

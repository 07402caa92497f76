"""What snippets/stencil refuses, how far a block marches, and the accesses that it predicts."""

from __future__ import annotations

import json
import lzma

import numpy as np
import papergpu
import pytest
import torch
from conftest import read_demo
from cuda_snippet import line_counts

from snippets import cuda
from snippets.stencil import cases
from snippets.stencil import stencil as ours

X = torch.arange(60.0).view(3, 4, 5)
C0, C1 = -0.7, 0.35
DEPTHS = {"float4": 1, "two steps": 2, "four steps": 4}


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: ours.advance(X, 1, C0, C1, "magic"),
            ValueError,
            "no way 'magic'; there are",
        ),
        (lambda: ours.advance(X.half(), 1, C0, C1), TypeError, "x is torch.float16, not"),
        (
            lambda: ours.advance(X[0], 1, C0, C1),
            ValueError,
            "x has 2 dimensions, not 3; reshape",
        ),
        (
            lambda: ours.advance(X[..., ::2], 1, C0, C1),
            ValueError,
            r"strides \(20, 5, 2\), it must be dense; pass x\.contiguous\(\)",
        ),
        (lambda: ours.advance(X, 1.5, C0, C1), TypeError, r"steps = 1\.5 is no integer; pass int"),
        (lambda: ours.advance(X, -1, C0, C1), ValueError, "steps = -1 is below 0; no step"),
        (lambda: ours.advance(X, 2**31, C0, C1), ValueError, "over 1048576; call it several"),
        (
            lambda: ours.advance(torch.empty(0, 1, 2**31), 1, C0, C1),
            ValueError,
            "a side of 2147483648 is over 2147483392; split the grid",
        ),
    ],
)
def test_what_is_no_grid_or_no_number_of_steps_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^stencil: .*{message}"):
        call()


@pytest.mark.parametrize("way", ours.WAYS)
def test_more_blocks_than_a_grid_may_have_are_refused(way, monkeypatch):
    rows, columns = ours.WAYS[way].tile
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    x = torch.ones(1, rows, columns)
    steps = ours.WAYS[way].depth
    assert torch.equal(ours.advance(x, steps, C0, C1, way), x)
    with pytest.raises(ValueError, match=r"^stencil: a grid of 1 x .* takes 2 blocks, over 1;"):
        ours.advance(torch.ones(1, rows + 1, columns), steps, C0, C1, way)


@pytest.mark.parametrize("way", ours.WAYS)
@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_the_result_is_a_grid_of_its_own(way, steps):
    kept = X.clone()
    y = ours.advance(X, steps, C0, C1, way)
    assert y.untyped_storage().data_ptr() != X.untyped_storage().data_ptr()
    assert torch.equal(X, kept) and y.is_contiguous()
    assert torch.equal(y[0], X[0]) and torch.equal(y[:, :, -1], X[:, :, -1])
    for empty in (X[:0], X[:, :0], X[:, :, :0].contiguous()):
        assert ours.advance(empty, steps, C0, C1, way).shape == empty.shape


@pytest.mark.exhaustive("the same bits again, under other schedules")
@pytest.mark.parametrize("steps", [1, 4, 7])
def test_every_way_gives_the_same_bits(steps):
    x = torch.randn(14, 33, 126, generator=torch.Generator().manual_seed(3))
    first, *others = (ours.advance(x, steps, C0, C1, way) for way in ours.WAYS)
    assert all(torch.equal(first, other) for other in others)


def test_steps_are_taken_as_many_at_a_time_as_there_are(monkeypatch):
    names = []
    with papergpu.on_launch(lambda one: names.append(one.name)):
        ours.advance(torch.ones(3, 3, 8), 7, C0, C1, "four steps")
        ours.advance(torch.ones(3, 3, 8), 3, C0, C1, "two steps")
        ours.advance(torch.ones(3, 3, 7), 2, C0, C1, "two steps")
        ours.advance(torch.ones(73)[1:].view(3, 3, 8), 2, C0, C1, "float4")
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
        planes = ours.march(z, tiles, depth, room)
        assert 1 <= planes <= z
        turns = -(-tiles * -(-z // planes) // room) * (planes + 2 * depth)
        assert turns <= -(-tiles // room) * (z + 2 * depth)


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("kernel", ["naive", "tiled", "marching", *DEPTHS])
def test_cells_past_2_to_the_31_are_reached(kernel):
    """One block of a grid so large, in memory of which only its own cells are touched."""
    way = ours.WAYS[kernel]
    sides = (1, 8, 307_000_000) if kernel == "naive" else (3, 3, 2**28)
    cells, apart = sides[0] * sides[1] * sides[2], 1024  # y lies between the rows of x
    memory = torch.empty(cells + apart)
    x, y = memory[:cells].view(sides), memory[apart:].view(sides)
    small = torch.randn(*sides[:2], 140, generator=torch.Generator().manual_seed(4))
    x[:, :, :140] = small
    name = way.kernel + (f"<{way.depth}, 1>" if way.kernel == "stencil_time" else "")
    numbers = (*map(np.int32, (*sides, sides[0])), np.float32(C0), np.float32(C1))
    ours.KERNELS.launch(name, 1, way.threads, x, y, *numbers, shared=way.shared)
    expected = cases.reference(small, way.depth, C0, C1)[:, :, : way.tile[1]]
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
    monkeypatch.setattr(ours, "_multiprocessors", lambda device: 100)
    monkeypatch.setattr(ours, "march", lambda z, *rest: z)
    z, high, wide = 12, 60, 360
    depth, (rows, columns) = DEPTHS[way], ours.WAYS[way].tile
    launched: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(launched.append):
        ours.advance(torch.ones(z, high, wide), depth, C0, C1, way)
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
        ours.advance(torch.ones(6, 18, 34), 1, C0, C1, "naive")
    total = total_counts(launched)
    assert total["float"] == 6 * total["multiply-add"]  # five sums, a product, and two in one
    assert total["multiply-add"] == 4 * 16 * 2  # two warps have the 32 inner cells of a row


def test_halos_are_what_the_page_says():
    """By its formulas, from the sides of what a block holds and writes."""
    for way, depth in DEPTHS.items():
        rows, columns = 32 - 2 * depth, 128 - 8
        assert ours.WAYS[way].tile == (rows, columns)
        assert ours.moved(ours.WAYS[way]) == 4 / depth * (32 * 128 / (rows * columns) + 1)
        assert ours.updates(ours.WAYS[way]) == 32 * 128 / (rows * columns)


def test_instructions_a_cell_beside_hotspot_are_what_the_page_says():
    folder = cases.__file__.rpartition("/")[0]
    with open(f"{folder}/rivals.json") as file:
        theirs = json.load(file)["rivals"][0]["builds"]
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
    lines = read_demo(ours).splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["yes"] * len(ours.WAYS)

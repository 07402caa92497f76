"""What snippets/warp_primitives refuses, and how far each of its ways reaches."""

from __future__ import annotations

import numpy as np
import papergpu
import pytest
import torch

from snippets import cuda
from snippets.warp_primitives import cases
from snippets.warp_primitives import warp_primitives as ours
from warpshelf.look import binary

X = torch.arange(12.0)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.total(X, "magic"), ValueError, "no way 'magic' to sum; there are shared, "),
        (lambda: ours.total(X, "redux"), TypeError, "redux adds int32; sum by shuffle"),
        (lambda: ours.total(X.half()), TypeError, "x is torch.float16, not float32 or int32"),
        (lambda: ours.total(X[::2]), ValueError, r"lie 2 apart, .*; pass x\.contiguous\(\)"),
        (lambda: ours.total(X.view(3, 4)), ValueError, r"2 dimensions, not 1; pass x\.flatten"),
        (lambda: ours.compact(X.int(), 1), TypeError, "x is torch.int32, not float32; convert"),
        (lambda: ours.compact(X, 1, "match"), ValueError, "no way 'match' to compact; there are"),
        (lambda: ours.histogram(X, 3), TypeError, "x is torch.float32, not int32; convert it"),
        (lambda: ours.histogram(X.int(), 0), ValueError, "bins = 0 is outside 1 ... 12288; count"),
        (lambda: ours.histogram(X.int(), 12_289), ValueError, "bins = 12289 is outside"),
        (lambda: ours.histogram(X.int(), 3, "ballot"), ValueError, "no way 'ballot' to count"),
    ],
)
def test_what_cannot_be_done_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^warp_primitives: .*{message}"):
        call()


@pytest.mark.parametrize("way", [*ours.RANKS, "lookback"])
def test_more_blocks_than_a_grid_has_are_refused(way, monkeypatch):
    size = 4096 if way == "lookback" else 1024
    monkeypatch.setattr(cuda, "MAX_GRID", (2, 1, 1))
    assert ours.compact(torch.ones(2 * size), 0.0, way).numel() == 2 * size
    with pytest.raises(ValueError, match=rf"^warp_primitives: x has {2 * size + 1} elements"):
        ours.compact(torch.ones(2 * size + 1), 0.0, way)


@pytest.mark.exhaustive("shapes beyond its cases")
def test_nothing_is_summed_kept_and_counted():
    for way in ours.SUMS:
        assert ours.total(torch.empty(0, dtype=torch.int32), way) == 0
    for way in (*ours.RANKS, "lookback"):
        assert ours.compact(torch.empty(0), 1.0, way).shape == (0,)
        assert ours.compact(torch.zeros(5000), 0.0, way).shape == (0,)
    for way in ours.COUNTERS:
        assert ours.histogram(torch.empty(0, dtype=torch.int32), 4, way).tolist() == [0] * 4


def test_as_many_bins_as_there_may_be():
    x = torch.tensor([0, ours.MAX_BINS - 1, ours.MAX_BINS, -1, -(2**31)], dtype=torch.int32)
    for way in ours.COUNTERS:
        counts = ours.histogram(x, ours.MAX_BINS, way)
        assert counts.nonzero().flatten().tolist() == [0, ours.MAX_BINS - 1]


@pytest.mark.exhaustive("the same bits again, under other schedules")
@pytest.mark.parametrize("way", cases.FLOATS)
def test_a_sum_is_the_same_bits_whatever_the_schedule(way, monkeypatch):
    """On several blocks, and on one of as many multiprocessors as a GPU has."""
    monkeypatch.setattr(ours, "_multiprocessors", lambda device: 2)
    x = torch.randn(70_001, generator=torch.Generator().manual_seed(1)) * 1e3
    sums = set()
    for seed, schedule in enumerate(("robin", "far", "random")):
        with papergpu.settings(schedule=schedule, seed=seed):
            sums.add(ours.total(x, way).item())
    assert len(sums) == 1
    assert abs(sums.pop() - x.double().sum().item()) < 1e-6 * x.double().abs().sum().item()


@pytest.mark.parametrize("known", [0, 3, 38, 39, 40, 69])
def test_a_tile_looks_back_to_the_first_sum_that_is_known(known):
    """The last of 71 tiles alone, where those before it have told what they keep."""
    own, up_to, tiles, size = 1 << 62, 1 << 63, 71, 4096
    x = torch.rand(tiles * size, generator=torch.Generator().manual_seed(2))
    kept = [int((tile > 0.7).sum()) for tile in x.split(size)]
    states = [own | count for count in kept[:-1]]
    for tile in (0, known):
        states[tile] = up_to | sum(kept[: tile + 1])
    signed = [word - (1 << 64) if word >> 63 else word for word in states]
    work = torch.tensor([tiles - 1, 0, *signed, 0])
    y = torch.full_like(x, -1)
    sizes = np.int64(x.numel()), np.float32(0.7)
    ours.KERNELS.launch("keep_looking_back<true>", 1, 256, x, y, work, *sizes)
    before = sum(kept[:-1])
    assert work[0] == tiles and work[1] == before + kept[-1]
    assert work[-1] == -(1 << 63) + before + kept[-1]  # known from now on
    assert torch.equal(y[before:][: kept[-1]], x[-size:][x[-size:] > 0.7])
    assert bool((y[:before] == -1).all()) and bool((y[before + kept[-1] :] == -1).all())


@pytest.mark.exhaustive("values beyond its cases, for which each way is compiled anew")
def test_words_of_integers_wrap():
    x = torch.full((5,), 2**30, dtype=torch.int32)
    for way in ours.SUMS:
        assert ours.total(x, way).item() == 2**30  # 5 * 2**30 less 2**32


@pytest.mark.exhaustive("what libraries of CUDA compile to")
def test_libraries_choose_one_instruction_for_integers_and_shuffles_for_floats():
    """What the page says of the machine code, and of ours beside it."""
    ways = {way: f"sum_of<{method}, {{}}>" for way, method in ours.SUMS.items()}
    names = [ways[way].format(t) for way in ("groups", "cub", "shuffle") for t in ("int", "float")]
    code, symbols = ours.LIBRARIES.cubin(names, "sm_90")
    bodies = binary.split_functions(binary.run_cuobjdump("-sass", code))
    for way, one in (("groups", "int"), ("cub", "int")):
        body = bodies[symbols[ways[way].format(one)]]
        assert "REDUX" in body and "SHFL" not in body and body.count("BAR.SYNC") == 1
    for way in ("groups", "cub", "shuffle"):
        body = bodies[symbols[ways[way].format("float")]]
        assert "SHFL" in body and "REDUX" not in body and body.count("BAR.SYNC") == 1
    cub, groups = (bodies[symbols[ways[way].format("float")]] for way in ("cub", "groups"))
    assert cub.count("SHFL") == 5 < groups.count("SHFL")  # one thread adds the words of the warps


def test_no_more_blocks_are_begun_than_have_room(monkeypatch):
    monkeypatch.setattr(ours, "_multiprocessors", lambda device: 2)
    grids = []
    with papergpu.on_launch(lambda one: grids.append(one.grid[0])):
        ours.total(torch.ones(60_000))
        for bins in (256, 8192, ours.MAX_BINS):
            ours.histogram(torch.zeros(40_000, dtype=torch.int32), bins)
    assert grids == [12, 1, 16, 6, 4]

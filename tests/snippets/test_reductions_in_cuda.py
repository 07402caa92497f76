"""Softmax, sums of warps, and scans in CUDA C++."""

from __future__ import annotations

import numpy as np
import papergpu
import pytest
import torch
from conftest import read_demo

from snippets import cuda
from snippets.cuda_softmax import cuda_softmax
from snippets.tensor_core_scan import tensor_core_scan
from snippets.warp_primitives import cases, warp_primitives
from warpshelf.look import binary

# cuda_softmax: what it refuses, which way rows take, and the rules of an operator.

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor")
CUDA_SOFTMAX_X = torch.randn(3, 40, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: cuda_softmax.run("magic", CUDA_SOFTMAX_X),
            ValueError,
            "no way 'magic'; there are naive, tree",
        ),
        (
            lambda: cuda_softmax.softmax(CUDA_SOFTMAX_X.int()),
            TypeError,
            "dtype torch.int32 is none of float32",
        ),
        (
            lambda: cuda_softmax.softmax(CUDA_SOFTMAX_X[0, 0]),
            ValueError,
            "a tensor of 0 dimensions has no row",
        ),
        (
            lambda: cuda_softmax.run(None, CUDA_SOFTMAX_X, CUDA_SOFTMAX_X[:2]),
            ValueError,
            r"y is .*\(3, 40\) and dy .*\(2, 40\);",
        ),
        (
            lambda: cuda_softmax.run(None, CUDA_SOFTMAX_X, CUDA_SOFTMAX_X.half()),
            ValueError,
            "dy torch.float16 .* must be alike",
        ),
        (
            lambda: cuda_softmax.run("warps", torch.ones(1, 1028)),
            ValueError,
            "'warps' holds 1024 elements",
        ),
        (
            lambda: cuda_softmax.run("blocks", torch.ones(1, 4097)),
            ValueError,
            "'blocks' holds 4096 elem",
        ),
        (
            lambda: cuda_softmax.run("blocks", *[torch.ones(1, 8200)] * 2),
            ValueError,
            "'blocks' holds 8192 elements",
        ),
    ],
)
def test_what_has_no_softmax_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^cuda_softmax: .*{message}"):
        call()


def test_cuda_softmax_more_rows_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    assert cuda_softmax.softmax(torch.zeros(8, 4))[7].tolist() == [0.25] * 4
    with pytest.raises(ValueError, match="^cuda_softmax: 9 rows are over 1 blocks"):
        cuda_softmax.softmax(torch.zeros(9, 4))


@pytest.mark.parametrize("way", cuda_softmax.WAYS)
def test_rows_of_nothing_and_of_minus_infinity_are_as_torch_has_them(way):
    for shape in ((0, 5), (5, 0), (2, 0, 3)):
        assert cuda_softmax.run(way, torch.ones(shape)).shape == shape
    x = torch.full((3, 9), -torch.inf)
    x[1, 4] = 2.0
    y = cuda_softmax.run(way, x)
    assert y[::2].isnan().all() and y[1].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("n", "dtype", "kernel"),
    [
        (40, torch.float32, "softmax_held<0, float, 4, 1, 1>"),
        (1024, torch.float32, "softmax_held<0, float, 4, 8, 1>"),
        (1028, torch.float32, "softmax_held<0, float, 4, 1, 0>"),
        (41, torch.float16, "softmax_held<0, __half, 1, 2, 1>"),  # rows begin anywhere
        (16_388, torch.float32, "softmax_streamed<0, float, 4>"),
    ],
)
def test_a_row_has_as_few_threads_as_can_hold_it(n, dtype, kernel):
    found: list[papergpu.Launched] = []
    with papergpu.on_launch(found.append):
        y = cuda_softmax.softmax(torch.zeros(2, n, dtype=dtype))
    assert [one.name for one in found] == [kernel]
    assert ((y - 1 / n).abs() < 1e-3 / n).all()


@pytest.mark.exhaustive("the rules of torch's operators, each form compiled anew")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_operators_keep_the_rules_of_operators(dtype):
    x = CUDA_SOFTMAX_X.to(dtype).requires_grad_()
    torch.library.opcheck(cuda_softmax.operator, (x,), test_utils=TESTS)
    y = cuda_softmax.softmax(x).detach()
    torch.library.opcheck(cuda_softmax.gradient, (y, y.clone()), test_utils=TESTS)


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 2, 40)])
def test_gradients_are_those_of_finite_differences(shape):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    assert torch.autograd.gradcheck(cuda_softmax.softmax, x.requires_grad_())
    assert torch.autograd.gradcheck(cuda_softmax.softmax, x.mT.detach().requires_grad_())


@pytest.mark.exhaustive("gradients, whose kernels have cases of their own")
def test_rows_of_y_and_of_its_gradient_may_lie_differently():
    y = torch.softmax(CUDA_SOFTMAX_X, -1)
    dy = torch.randn(3, 56, generator=torch.Generator().manual_seed(7))[:, :40]
    expected = y * (dy - (y * dy).sum(-1, keepdim=True))
    for way in cuda_softmax.WAYS:
        assert torch.allclose(cuda_softmax.run(way, y, dy), expected, atol=1e-6)
        assert torch.allclose(
            cuda_softmax.run(way, y, dy[:1].expand(3, 40))[0], expected[0], atol=1e-6
        )


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_cuda_softmax_a_row_past_2_to_the_31_is_reached():
    """Two rows farther apart than 2**31 elements, in memory of which only they are touched."""
    far = 2**31 + 64
    x = torch.empty(far + 64, dtype=torch.float16).as_strided((2, 64), (far, 1))
    x[0], x[1] = 0, torch.arange(64)
    for way in cuda_softmax.WAYS:
        y = cuda_softmax.run(way, x)
        assert (y.double() - torch.softmax(x.double(), -1)).abs().max() < 1e-3


def test_cuda_softmax_demo_finds_every_way_right():
    lines = read_demo(cuda_softmax).splitlines()
    assert len(lines) == 12 and sum(line.endswith("right") for line in lines) == 10
    assert lines[-1].endswith("yes")


# warp_primitives: what it refuses, and how far each of its ways reaches.

WARP_PRIMITIVES_X = torch.arange(12.0)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: warp_primitives.total(WARP_PRIMITIVES_X, "magic"),
            ValueError,
            "no way 'magic' to sum; there are shared, ",
        ),
        (
            lambda: warp_primitives.total(WARP_PRIMITIVES_X, "redux"),
            TypeError,
            "redux adds int32; sum by shuffle",
        ),
        (
            lambda: warp_primitives.total(WARP_PRIMITIVES_X.half()),
            TypeError,
            "x is torch.float16, not float32 or int32",
        ),
        (
            lambda: warp_primitives.total(WARP_PRIMITIVES_X[::2]),
            ValueError,
            r"lie 2 apart, .*; pass x\.contiguous\(\)",
        ),
        (
            lambda: warp_primitives.total(WARP_PRIMITIVES_X.view(3, 4)),
            ValueError,
            r"2 dimensions, not 1; pass x\.flatten",
        ),
        (
            lambda: warp_primitives.compact(WARP_PRIMITIVES_X.int(), 1),
            TypeError,
            "x is torch.int32, not float32; convert",
        ),
        (
            lambda: warp_primitives.compact(WARP_PRIMITIVES_X, 1, "match"),
            ValueError,
            "no way 'match' to compact; there are",
        ),
        (
            lambda: warp_primitives.histogram(WARP_PRIMITIVES_X, 3),
            TypeError,
            "x is torch.float32, not int32; convert it",
        ),
        (
            lambda: warp_primitives.histogram(WARP_PRIMITIVES_X.int(), 0),
            ValueError,
            "bins = 0 is outside 1 ... 12288; count",
        ),
        (
            lambda: warp_primitives.histogram(WARP_PRIMITIVES_X.int(), 12_289),
            ValueError,
            "bins = 12289 is outside",
        ),
        (
            lambda: warp_primitives.histogram(WARP_PRIMITIVES_X.int(), 3, "ballot"),
            ValueError,
            "no way 'ballot' to count",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^warp_primitives: .*{message}"):
        call()


@pytest.mark.parametrize("way", [*warp_primitives.RANKS, "lookback"])
def test_more_blocks_than_a_grid_has_are_refused(way, monkeypatch):
    size = 4096 if way == "lookback" else 1024
    monkeypatch.setattr(cuda, "MAX_GRID", (2, 1, 1))
    assert warp_primitives.compact(torch.ones(2 * size), 0.0, way).numel() == 2 * size
    with pytest.raises(ValueError, match=rf"^warp_primitives: x has {2 * size + 1} elements"):
        warp_primitives.compact(torch.ones(2 * size + 1), 0.0, way)


@pytest.mark.exhaustive("shapes beyond its cases")
def test_nothing_is_summed_kept_and_counted():
    for way in warp_primitives.SUMS:
        assert warp_primitives.total(torch.empty(0, dtype=torch.int32), way) == 0
    for way in (*warp_primitives.RANKS, "lookback"):
        assert warp_primitives.compact(torch.empty(0), 1.0, way).shape == (0,)
        assert warp_primitives.compact(torch.zeros(5000), 0.0, way).shape == (0,)
    for way in warp_primitives.COUNTERS:
        assert (
            warp_primitives.histogram(torch.empty(0, dtype=torch.int32), 4, way).tolist() == [0] * 4
        )


def test_as_many_bins_as_there_may_be():
    x = torch.tensor(
        [0, warp_primitives.MAX_BINS - 1, warp_primitives.MAX_BINS, -1, -(2**31)], dtype=torch.int32
    )
    for way in warp_primitives.COUNTERS:
        counts = warp_primitives.histogram(x, warp_primitives.MAX_BINS, way)
        assert counts.nonzero().flatten().tolist() == [0, warp_primitives.MAX_BINS - 1]


@pytest.mark.exhaustive("the same bits again, under other schedules")
@pytest.mark.parametrize("way", cases.FLOATS)
def test_a_sum_is_the_same_bits_whatever_the_schedule(way, monkeypatch):
    """On several blocks, and on one of as many multiprocessors as a GPU has."""
    monkeypatch.setattr(warp_primitives, "_multiprocessors", lambda device: 2)
    x = torch.randn(70_001, generator=torch.Generator().manual_seed(1)) * 1e3
    sums = set()
    for seed, schedule in enumerate(("robin", "far", "random")):
        with papergpu.settings(schedule=schedule, seed=seed):
            sums.add(warp_primitives.total(x, way).item())
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
    warp_primitives.KERNELS.launch("keep_looking_back<true>", 1, 256, x, y, work, *sizes)
    before = sum(kept[:-1])
    assert work[0] == tiles and work[1] == before + kept[-1]
    assert work[-1] == -(1 << 63) + before + kept[-1]  # known from now on
    assert torch.equal(y[before:][: kept[-1]], x[-size:][x[-size:] > 0.7])
    assert bool((y[:before] == -1).all()) and bool((y[before + kept[-1] :] == -1).all())


@pytest.mark.exhaustive("values beyond its cases, for which each way is compiled anew")
def test_words_of_integers_wrap():
    x = torch.full((5,), 2**30, dtype=torch.int32)
    for way in warp_primitives.SUMS:
        assert warp_primitives.total(x, way).item() == 2**30  # 5 * 2**30 less 2**32


@pytest.mark.exhaustive("what libraries of CUDA compile to")
def test_libraries_choose_one_instruction_for_integers_and_shuffles_for_floats():
    """What the page says of the machine code, and of ours beside it."""
    ways = {way: f"sum_of<{method}, {{}}>" for way, method in warp_primitives.SUMS.items()}
    names = [ways[way].format(t) for way in ("groups", "cub", "shuffle") for t in ("int", "float")]
    code, symbols = warp_primitives.LIBRARIES.cubin(names, "sm_90")
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
    monkeypatch.setattr(warp_primitives, "_multiprocessors", lambda device: 2)
    grids = []
    with papergpu.on_launch(lambda one: grids.append(one.grid[0])):
        warp_primitives.total(torch.ones(60_000))
        for bins in (256, 8192, warp_primitives.MAX_BINS):
            warp_primitives.histogram(torch.zeros(40_000, dtype=torch.int32), bins)
    assert grids == [12, 1, 16, 6, 4]


# tensor_core_scan: what it refuses, what it does with NaN, and how exact its sums are.

WAYS = ("naive", "shuffles", "wmma", "mma")  # CUB is verified with the cases
TENSOR_CORE_SCAN_X = torch.randn(3, 40, generator=torch.Generator().manual_seed(5)).half()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: tensor_core_scan.run("sums", "magic", TENSOR_CORE_SCAN_X),
            ValueError,
            "no way 'magic'; there are naive, sh",
        ),
        (
            lambda: tensor_core_scan.scan(TENSOR_CORE_SCAN_X.float()),
            TypeError,
            "dtype torch.float32 is neither float16 nor",
        ),
        (
            lambda: tensor_core_scan.sums(TENSOR_CORE_SCAN_X[0, 0]),
            ValueError,
            "a tensor of 0 dimensions has no row",
        ),
    ],
)
def test_what_has_no_sum_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^tensor_core_scan: {message}"):
        call()


def test_tensor_core_scan_more_rows_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    assert tensor_core_scan.sums(torch.ones(256, 4).half())[255] == 4
    with pytest.raises(ValueError, match="^tensor_core_scan: 257 rows are over 1 blocks"):
        tensor_core_scan.sums(torch.ones(257, 4).half())


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_nothing_add_up_to_nothing(way):
    for shape in ((0, 5), (5, 0), (2, 0, 3)):
        x = torch.ones(shape).half()
        assert torch.equal(tensor_core_scan.run("sums", way, x), x.sum(-1))
        assert tensor_core_scan.run("scan", way, x).shape == shape


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [16, 24, 60, 130, 300, 700])
def test_infinities_and_nan_go_no_further_than_additions_carry_them(way, n):
    x = torch.ones(7, n, dtype=torch.bfloat16)
    x[1, 3], x[2, n - 1], x[3, n // 2] = torch.inf, -torch.inf, torch.nan
    x[4, 2], x[4, n - 2] = torch.inf, -torch.inf  # NaN from there on
    x[5] = 3e38
    for job, wanted in (("sums", x.float().sum(-1)), ("scan", x.float().cumsum(-1))):
        found = tensor_core_scan.run(job, way, x)
        torch.testing.assert_close(
            found.float(), wanted.bfloat16().float(), equal_nan=True, rtol=0.01, atol=0
        )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [64, 512, 1024])
def test_sums_that_cancel_are_those_of_float32(way, n):
    """Two pieces of a sum of a thousand would be off by 2**-17 of it, 8e-3."""
    x = torch.rand(40, n // 2, generator=torch.Generator().manual_seed(6)) * 60
    x = torch.cat((x, -x.flip(-1)), dim=-1).half()
    last = tensor_core_scan.run("scan", way, x)[:, -1].double()
    assert last.abs().max() < 4e-7 * x[:, : n // 2].double().sum(-1).max() * 4


def test_rows_of_every_shape_and_place():
    x = torch.randn(3, 2, 5, 50, generator=torch.Generator().manual_seed(7)).half()
    for one in (x, x.mT, x[..., 3:], x[:, :1].expand(3, 4, 5, 50), x[..., ::2]):
        assert torch.allclose(
            tensor_core_scan.scan(one).double(), one.double().cumsum(-1), atol=0.05
        )
        assert torch.allclose(tensor_core_scan.sums(one).double(), one.double().sum(-1), atol=0.05)


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
        y = tensor_core_scan.scan(torch.ones(2, n).half())
    assert [one.name for one in found] == [kernel]
    assert y[1].tolist() == torch.ones(n).cumsum(0).tolist()


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
def test_tensor_core_scan_a_row_past_2_to_the_31_is_reached():
    """Two rows farther apart than 2**31 elements, in memory of which only they are touched."""
    far = 2**31 + 64
    x = torch.empty(far + 64, dtype=torch.float16).as_strided((2, 64), (far, 1))
    x[0], x[1] = 0, 2
    for way in WAYS:
        assert tensor_core_scan.run("scan", way, x)[1].tolist() == list(range(2, 130, 2))


def test_tensor_core_scan_demo_finds_every_way_right():
    lines = read_demo(tensor_core_scan).splitlines()
    assert [line.endswith("right by naive, shuffles, wmma, mma") for line in lines[:8]] == [
        True
    ] * 8
    assert lines[8].endswith("[19.0, 20.0, inf, inf]") and len(lines) == 9

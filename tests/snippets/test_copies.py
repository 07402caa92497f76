"""Copies: STREAM, copies in bulk, and the maps that these need."""

from __future__ import annotations

import importlib
import re

import numpy as np
import papergpu
import pytest
import torch
from conftest import exhaustive, read_demo
from cuda_snippet import line_counts

from snippets import tensor_maps
from snippets.bulk_copy import bulk_copy as ours
from snippets.bulk_copy import cases
from snippets.stream import stream
from warpshelf.worker import kernel_views

# stream: what it does alone: reading, writing, and reading again.

A = torch.arange(9000, dtype=torch.float32).roll(123)
WAYS = (stream.floats, stream.float4s)


@pytest.mark.parametrize("way", WAYS)
def test_the_largest_element_is_found_wherever_it_is(way):
    for n in (1, 2, 3, 4, 5, 7, 1023, 4096, 8999):
        for offset in range(4):
            a = A[offset : offset + n]
            assert way("read", a, None, 1) == a.max()
    a = A.clone()
    a[7], a[8] = torch.nan, torch.inf
    assert way("read", a, None, 1) == torch.inf
    assert way("read", torch.full((5,), -torch.inf), None, 1) == -torch.inf


@pytest.mark.parametrize("way", WAYS)
def test_fill_writes_every_element_and_no_more(way):
    for n in (1, 3, 4, 5, 4099):
        assert way("fill", A[1 : n + 1], None, 2.5).tolist() == [2.5] * n
    assert way("fill", A[:0], None, 1.0).shape == (0,)


def test_every_round_reads_all_of_it():
    for rounds in (1, 2, 5, 16):
        assert stream.float4s("read", A, None, rounds) == 8999


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stream.float4s("read", A[:0], None, 1), "a has no elements"),
        (lambda: stream.float4s("read", A, None, 0), "a cannot be read 0 times"),
        (lambda: stream.floats("read", A, None, 2), "a cannot be read 2 times; float4 reads often"),
        (lambda: stream.bulk_copies("fill", A, None, 1), "bulk copies do no fill; float4 does"),
        (lambda: stream.floats("read", A[::2], None, 1), "a has stride 2, it must be 1"),
    ],
)
def test_what_cannot_be_read_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^stream: {message}"):
        call()


# bulk_copy: what it refuses, rings that turn, extreme values, and its bytes as executed.

X = torch.arange(24.0).view(3, 8)
SOURCE = ours.KERNELS.path.read_text()


def draw_arguments(*shape: int, seed: int = 3) -> torch.Tensor:
    return 3.8 * torch.rand(shape, generator=torch.Generator().manual_seed(seed)) - 1.9


def run_bulk_copy(x: torch.Tensor) -> torch.Tensor:
    return ours.series(x, 2, "bulk copy")


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.series(X, 1, "magic"), ValueError, "no way 'magic'; there are direct,"),
        (lambda: ours.series(X.half(), 1), TypeError, "x is torch.float16, not torch.float32"),
        (lambda: ours.series(X[0], 1), ValueError, "x has 1 dimensions, not 2; reshape it"),
        (lambda: ours.series(X, 1.5), TypeError, r"degree = 1\.5 is no integer; pass int"),
        (lambda: ours.series(X, -1), ValueError, r"degree = -1 is outside 0 \.\.\. 64; split"),
        (lambda: ours.series(X, 65), ValueError, r"degree = 65 is outside 0 \.\.\. 64; split"),
        (lambda: ours.series(X[:, ::2], 1), ValueError, r"lie 2 apart, .* pass x\.contiguous\(\)"),
        (lambda: ours.series(X.t(), 1), ValueError, r"lie 8 apart, .* pass x\.contiguous\(\)"),
        (
            lambda: ours.series(torch.empty(1, 1).expand(2**30 + 1, 1), 1),
            ValueError,
            "x has 1073741825 tiles, over 1073741824; split it",
        ),
        (
            lambda: run_bulk_copy(X[:, :6]),
            ValueError,
            r'rows of 6 floats, 8 apart, .*, or use "cp\.async"',
        ),
        (
            lambda: run_bulk_copy(torch.ones(3, 10)[:, :8]),
            ValueError,
            "rows of 8 floats, 10 apart, from",
        ),
        (
            lambda: run_bulk_copy(torch.ones(25)[1:].view(3, 8)),
            ValueError,
            "from address 0x[0-9a-f]+4 on,",
        ),
        (
            lambda: run_bulk_copy(torch.ones(3, 5)),
            ValueError,
            "rows of 15 floats, 15 apart, .* pad the",
        ),
    ],
)
@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_what_cannot_be_computed_is_refused(call, kind, message, target, monkeypatch):
    monkeypatch.setenv("PAPERGPU_TARGET", target)
    launched = []
    with papergpu.on_launch(launched.append), pytest.raises(kind, match=f"^bulk_copy: .*{message}"):
        call()
    assert not launched


def test_bulk_copies_are_refused_where_there_are_none(monkeypatch):
    monkeypatch.setenv("PAPERGPU_TARGET", "sm_80")
    message = r'^bulk_copy: sm_80 has no bulk copies, sm_90 has; use the way "cp\.async"$'
    with pytest.raises(ValueError, match=message):
        run_bulk_copy(X)
    wanted = cases.reference(X, 2)
    for way in cases.ANY:
        assert torch.equal(ours.series(X, 2, way), wanted.float())


@pytest.mark.parametrize("way", ours.WAYS)
def test_nothing_in_is_nothing_out(way):
    for shape in ((0, 5), (5, 0), (0, 0)):
        assert ours.series(torch.empty(shape), 3, way).shape == shape


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("way", ours.WAYS)
def test_every_degree(way):
    x = draw_arguments(3, 132)
    for degree in (0, 1, 2, 3, 4, 5, 7, 8, 63, 64):
        wanted = cases.reference(x, degree)
        found = ours.series(x, degree, way)
        assert (found - wanted).norm() <= 2e-6 * wanted.norm()


@pytest.mark.exhaustive("shapes beyond its cases")
@pytest.mark.parametrize("way", ours.WAYS)
@pytest.mark.parametrize("tiles", [1, 2, 3, 4, 5, 7, 8, 9, 10, 17, 26])
def test_rings_turn_any_number_of_times(way, tiles, monkeypatch):
    """One block has all tiles: fewer than its ring, as many, and more."""
    monkeypatch.setattr(ours, "_blocks", lambda given, device: 1)
    x = draw_arguments(tiles, 148, seed=tiles)[:, :132]
    wanted = cases.reference(x, 3)
    assert (ours.series(x, 3, way) - wanted).norm() < 1e-6 * wanted.norm()


@pytest.mark.parametrize("blocks", [1, 2, 3, 5, 8])
def test_tiles_are_dealt_to_any_number_of_blocks(blocks, monkeypatch):
    monkeypatch.setattr(ours, "_blocks", lambda given, device: blocks)
    x = draw_arguments(5, 6160)[:, :6148]
    first, *others = (ours.series(x, 4, way) for way in ours.WAYS)
    wanted = cases.reference(x, 4)
    assert (first - wanted).norm() < 1e-6 * wanted.norm()
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.parametrize("way", ours.WAYS)
def test_bits_are_the_same_whatever_the_schedule(way):
    x = draw_arguments(23, 148)[:, :132]
    first = ours.series(x, 5, "direct")
    for seed, schedule in enumerate(("robin", "far", "random")):
        with papergpu.settings(schedule=schedule, seed=seed):
            assert torch.equal(ours.series(x, 5, way), first)


@pytest.mark.parametrize("way", ours.WAYS)
def test_extreme_values_keep_to_the_rule(way):
    x = torch.tensor([[torch.inf, -torch.inf, 2.0**127, -(2.0**127), 2.0**-149, -0.0, 2.0, -2.0]])
    found = ours.series(x, 1, way)[0].tolist()
    assert found == [torch.inf, -torch.inf, 2.0**126, -(2.0**126), 1, 1, 2, 0]
    found = ours.series(x, 2, way)[0].tolist()
    assert found == [torch.inf] * 4 + [1, 1, 3, 1]
    found = ours.series(x, 3, way)[0].tolist()
    assert found == [torch.inf, -torch.inf, torch.inf, -torch.inf, 1, 1, 4, 0]
    assert ours.series(x, 0, way)[0].tolist() == [1] * 8
    x[0, 3] = torch.nan
    assert ours.series(x, 1, way).isnan().nonzero().tolist() == [[0, 3]]


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", ours.WAYS)
def test_rows_past_2_to_the_31_are_reached(way):
    """In memory of which only the rows themselves are touched."""
    memory = torch.empty(2**31 + 64)
    x = memory.as_strided((2, 16), (2**31 + 8, 1))
    x.copy_(draw_arguments(2, 16))
    wanted = cases.reference(x, 2)
    assert (ours.series(x, 2, way) - wanted).norm() < 1e-6 * wanted.norm()


def test_16_bytes_are_moved_where_every_row_begins_and_ends_on_them():
    names = []
    wide = torch.ones(4, 16)
    with papergpu.on_launch(lambda one: names.append(one.name)):
        ours.series(wide, 1)
        ours.series(wide[:, 4:12], 1)
        ours.series(torch.ones(4, 3), 1)  # a single row of 12
        ours.series(wide[:1].expand(4, 16), 1)
        ours.series(wide[:, :6], 1)
        ours.series(wide[:, 1:9], 1)
        ours.series(torch.ones(4, 18)[:, :16], 1)
    assert names == ["series_async<float4>"] * 4 + ["series_async<float>"] * 3


def count_way(way: str, degree: int) -> dict[str, int]:
    """Sectors, wavefronts, and warp instructions by class, of a matrix of 12 whole tiles."""
    launched: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(launched.append):
        ours.series(torch.ones(12, ours.TILE), degree, way)
    total: dict[str, int] = {}
    for line in line_counts(launched, "bulk_copy"):
        own = {name: line.get(name) or 0 for name in ("sectors", "wavefronts")}
        for name, number in (own | line["classes"]).items():
            total[name] = total.get(name, 0) + number
    return total


@pytest.mark.parametrize("way", ours.WAYS)
def test_bytes_and_multiply_adds_are_those_of_the_page(way):
    """Each float is in one sector read and one written; the engine's own reads are nobody's."""
    elements = 12 * ours.TILE
    total, more = count_way(way, 8), count_way(way, 40)
    assert total["sectors"] == elements // 8 * (1 if way == "bulk copy" else 2)
    # Through shared memory a float is written once and read once, 128 bytes a wavefront.
    passes = {"direct": 0, "bulk copy": 1}.get(way, 2)
    assert total["wavefronts"] == passes * elements // 32
    assert more["multiply-add"] - total["multiply-add"] == 32 * elements // 32


def test_who_asks_for_copies_and_who_comes_to_barriers():
    """Instructions of warps for 12 tiles in two blocks, 6 each."""
    found = {way: count_way(way, 1) for way in ours.WAYS}
    for way in ("direct", "staged", "producers"):
        assert found[way]["load global"] == 12 * 16 and "async" not in found[way]
    # 16 copies a tile, and a commit and a wait of 8 warps; commits before the first.
    assert found["cp.async"]["async"] == 12 * (16 + 8 + 8) + 2 * 8 * 3
    assert found["bulk copy"]["async"] == 12
    assert not {"load global"} & (found["cp.async"].keys() | found["bulk copy"].keys())
    # And through shared memory: stored by who copies in registers, loaded by who computes.
    stored = {way: one.get("store shared", 0) for way, one in found.items()}
    loaded = {way: one.get("load shared", 0) for way, one in found.items()}
    whole = 12 * 16
    assert stored == {way: whole if way in ("staged", "producers") else 0 for way in ours.WAYS}
    assert loaded == {way: 0 if way == "direct" else whole for way in ours.WAYS}
    assert "barrier" not in found["direct"]
    assert found["staged"]["barrier"] == 12 * 2 * 8
    assert found["cp.async"]["barrier"] == 12 * 8
    # Two warps say that a half is full, four wait for it; of the last two of a block
    # nobody asks whether they are empty.
    assert found["producers"]["barrier"] == 12 * (2 + 4) + (12 - 4) * (4 + 2)


def test_a_ring_has_on_its_way_what_the_page_says():
    tile, stages = (int(re.search(rf"{name} = (\d+);", SOURCE)[1]) for name in ("TILE", "STAGES"))
    assert tile == ours.TILE
    assert ours.WAYS["cp.async"].ahead == stages - 1 and ours.WAYS["bulk copy"].ahead == stages
    found = {name: ours.in_flight(way) for name, way in ours.WAYS.items()}
    assert found == {
        "direct": (0, 64),
        "staged": (0, 64),
        "producers": (32, 32),
        "cp.async": (96, 96),
        "bulk copy": (128, 128),
    }
    for name, way in ours.WAYS.items():
        bounds = re.search(rf"__launch_bounds__\(([\w + ]+), (\d)\)\s+{way.kernel}\(", SOURCE)
        sizes = {"COPIERS": 64, "CONSUMERS": 128}
        assert eval(bounds[1], {}, sizes) == way.threads, name
        assert int(bounds[2]) == way.blocks


def test_demo_finds_the_same_bits():
    text = read_demo(ours)
    assert text.count("yes") == len(ours.WAYS) and " no" not in text


KEPT = ("BAR", "LDG.", "LDS.", "STS", "STG", "SYNCS.ARRIVE", "UBLKCP", "LDGSTS", "FFMA")


def list_machine_code(way: str, target: str) -> str:
    """Accesses, barriers and products of a way's kernel, in their order."""
    launched: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(launched.append):
        ours.series(torch.ones(1, ours.TILE), 8, way)
    [made] = kernel_views.build_views(
        [kernel_views.KernelLaunches(way, {}, launched)], target, ours.KERNELS.path.parent
    )
    words = [re.sub(r"^@\S+ +", "", one).split()[0] for one in made["sass"]["text"]]
    return " ".join(word for word in words if word.startswith(KEPT))


@pytest.mark.parametrize("target", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
@pytest.mark.exhaustive("what each way compiles to")
def test_loads_are_on_their_way_before_anyone_waits_for_room(target, monkeypatch):
    """And room is given back before anything is computed."""
    monkeypatch.setenv("PAPERGPU_TARGET", target)
    found = list_machine_code("producers", target)
    assert re.search(r"(LDG\.\S+ ){8}BAR\.SYNC\S* (STS\S* ){8}BAR\.ARV", found)
    assert re.search(r"BAR\.SYNC\S* (LDS\S* ){4}BAR\.ARV (FFMA\S* )+STG", found)
    found = list_machine_code("cp.async", target)
    assert re.search(r"BAR\.SYNC\S* (LDGSTS\S* ){2}(LDS\S* ){2}(FFMA\S* )+STG", found)
    if target != "sm_80":
        found = list_machine_code("bulk copy", target)
        assert re.search(r"(LDS\S* ){4}SYNCS\.ARRIVE\S* (FFMA\S* )+STG", found)
        assert found.count("UBLKCP") == 1 and "LDG" not in found


# tensor_maps: what can be mapped, and what cuda-core is asked for.


def make_half_matrix(*sides: int) -> torch.Tensor:
    """A matrix in float16."""
    return torch.ones(sides, dtype=torch.float16)


@pytest.mark.parametrize(
    ("x", "can"),
    [
        (make_half_matrix(3, 8), True),
        (make_half_matrix(3, 16)[:, 8:], True),
        (make_half_matrix(3, 9), False),  # every other row begins off 16 bytes
        (make_half_matrix(1, 9), True),  # there is no other row
        (make_half_matrix(33)[1:].view(4, 8), False),
        (make_half_matrix(8, 8).t(), False),
        (make_half_matrix(1, 8).expand(4, 8), False),
        (make_half_matrix(8, 8).int(), False),
        (make_half_matrix(8), False),
    ],
)
def test_what_can_be_mapped(x, can):
    assert tensor_maps.mappable(x) == can
    if can:
        made = tensor_maps.tensor_map(x, (8, 64))
        assert isinstance(made, np.void) and made.nbytes == 128
        return
    with pytest.raises(ValueError, match="cannot be mapped: rows must not be empty"):
        tensor_maps.tensor_map(x, (8, 64))


def test_a_box_has_lines_of_128_bytes():
    assert tensor_maps.tensor_map(make_half_matrix(8, 8).float(), (256, 32)).nbytes == 128
    for box in ((257, 64), (0, 64), (8, 32)):
        with pytest.raises(ValueError, match=r"a box of \d+ x \d+: it has 1 to 256 rows, of 128"):
            tensor_maps.tensor_map(make_half_matrix(8, 8), box)
    with pytest.raises(ValueError, match="cannot be mapped"):
        tensor_maps.tensor_map(make_half_matrix(0, 8), (8, 64))


class View:
    """Stands in for cuda-core's view of a tensor on a GPU."""

    asked: list[tuple] = []

    @classmethod
    def from_any_interface(cls, x: torch.Tensor, stream_ptr: int) -> View:
        view = cls()
        view.seen = tuple(x.shape), x.stride(), stream_ptr
        return view

    def as_tensor_map(self, box: tuple[int, int], **options: object) -> str:
        self.asked.append((*self.seen, box, options))
        return "a map"


def test_cuda_core_is_asked_by_the_numbers_of_the_driver(monkeypatch):
    driver = pytest.importorskip("cuda.bindings.driver")
    utils = pytest.importorskip("cuda.core.utils")
    assert hasattr(utils.StridedMemoryView, "as_tensor_map")
    names = {torch.float16: "FLOAT16", torch.float32: "FLOAT32", torch.float64: "FLOAT64",
             torch.bfloat16: "BFLOAT16"}  # fmt: skip
    assert {
        dtype: getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}")
        for dtype, name in names.items()
    } == tensor_maps.ELEMENTS
    monkeypatch.setattr(utils, "StridedMemoryView", View)
    x = torch.ones(100, 48, dtype=torch.bfloat16)[:, :40]
    assert tensor_maps._by_core(x, (128, 64)) == "a map"
    [(sides, strides, stream, box, options)] = View.asked
    assert (sides, strides, stream, box) == ((100, 40), (48, 1), -1, (128, 64))
    assert options == {
        "swizzle": int(driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B),
        "l2_promotion": int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
    }
    monkeypatch.delattr(View, "as_tensor_map")
    with pytest.raises(RuntimeError, match=r"need cuda-core 1\.0 or later"):
        tensor_maps._by_core(x, (128, 64))


def test_without_papergpu_a_cpu_is_told_what_is_missing(monkeypatch):
    def refuse_import(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(importlib, "import_module", refuse_import)
    with pytest.raises(RuntimeError, match=r"a tensor map: no GPU is here.*: no papergpu\.tens"):
        tensor_maps.tensor_map(make_half_matrix(8, 8), (8, 64))

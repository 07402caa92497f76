"""What snippets/transpose refuses, what it asks of the memories, and how far it reaches."""

from __future__ import annotations

import re
from pathlib import Path

import papergpu
import pytest
import torch
from conftest import exhaustive, read_demo
from cuda_snippet import line_counts

from snippets import cuda
from snippets.transpose import transpose
from snippets.transpose.transpose import WAYS
from warpshelf.look import binary

X = torch.arange(12.0).reshape(3, 4)
SIDE = 128  # of a matrix that is counted: whole tiles, and rows that begin on sectors


@pytest.mark.parametrize(
    ("x", "way", "kind", "message"),
    [
        (X, "fastest", ValueError, "transpose: no way 'fastest'; there are naive, tiled, padded"),
        (X.double(), "naive", TypeError, r"transpose: x is torch.float64, .*x\.float\(\)"),
        (X[0], "naive", ValueError, "transpose: x has 1 dimensions, not 2; reshape it"),
        (X.t(), "float4", ValueError, r"of a row lie 4 apart, .*; pass x\.contiguous\(\)"),
        (X[:, ::2], "tiled", ValueError, "of a row lie 2 apart"),
        (torch.empty(2**31, 0), "naive", ValueError, "x is 2147483648 x 0, a side over"),
        (torch.empty(1).expand(2**19, 2**28), "naive", ValueError, "of a row lie 0 apart"),
    ],
)
def test_what_cannot_be_transposed_is_refused(x, way, kind, message):
    with pytest.raises(kind, match=message):
        transpose.transpose(x, way)


def test_more_tiles_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (5, 1, 1))
    assert transpose.transpose(torch.ones(160, 32), "tiled").shape == (32, 160)
    with pytest.raises(ValueError, match=r"transpose: x, 161 x 32, has over 2\*\*31 tiles"):
        transpose.transpose(torch.ones(161, 32), "tiled")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (1, 1), (1, 65), (65, 1)])
def test_the_smallest_matrices(way, shape):
    x = torch.arange(float(shape[0] * shape[1])).reshape(shape)
    y = transpose.transpose(x, way)
    assert torch.equal(y, x.t()) and y.is_contiguous()
    assert y.numel() == 0 or y.data_ptr() != x.data_ptr()


def test_rows_of_one_element_may_lie_anywhere():
    """A column has no stride along its rows, whatever torch says of it."""
    x = torch.arange(40.0).reshape(8, 5)[:, 3:4]
    assert x.as_strided((8, 1), (5, 7), 3).stride() == (5, 7)
    for way in WAYS:
        assert torch.equal(transpose.transpose(x.as_strided((8, 1), (5, 7), 3), way), x.t())


@pytest.mark.exhaustive("shapes beyond its cases: offsets past 2**31")
@pytest.mark.parametrize("way", WAYS)
def test_offsets_past_an_int_are_reached(way, tmp_path: Path):
    """Eight rows that begin 2**29 elements apart, in a file of holes, so that it takes no room."""
    apart = 2**29
    path = str(tmp_path / "holes")
    whole = torch.from_file(path, shared=True, size=7 * apart + 8, dtype=torch.float32)
    x = whole.as_strided((8, 8), (apart, 1))
    for row in range(8):
        x[row] = torch.arange(8.0) + 10 * row
    assert torch.equal(transpose.transpose(x, way), x.t())


def launch_transpose(x: torch.Tensor, way: str) -> list[papergpu.Launched]:
    """What a way launches, counted."""
    heard: list[papergpu.Launched] = []
    with papergpu.settings(profile=True, threads=1), papergpu.on_launch(heard.append):
        y = transpose.transpose(x, way)
    assert torch.equal(y, x.t())
    return heard


@pytest.mark.parametrize("way", WAYS)
def test_each_way_asks_of_the_memories_what_is_predicted(way):
    """By hand: 32 sectors a store of the naive one, 32 wavefronts a load of the tiled one, else 1;
    of 16 bytes a lane 16 sectors and 4 wavefronts, which is the least."""
    x = torch.arange(float(SIDE * SIDE)).reshape(SIDE, SIDE)
    [one] = launch_transpose(x, way)
    text = Path(transpose.KERNELS.path).read_text().splitlines()
    found = {"load": {}, "store": {}}
    for line in line_counts([one], "transpose"):
        if "requests" not in line and "shared_requests" not in line:
            continue
        classes, number = line["classes"], int(line["at"].partition(":")[2])
        assert text[number - 1].strip(), line
        for does in ("load", "store"):
            if f"{does} global" in classes:
                assert line["requests"] == classes[f"{does} global"]
                found[does]["sectors"] = line["sectors"] / line["requests"]
            if f"{does} shared" in classes:
                assert line["shared_requests"] == classes[f"{does} shared"]
                passes = line["wavefronts"] / line["shared_requests"]
                assert found[does].setdefault("wavefronts", passes) == passes
    stores, loads = transpose.wavefronts(way)
    assert found["load"]["sectors"] == (16 if way == "float4" else 4)
    assert found["store"]["sectors"] == transpose.sectors(way, SIDE)
    assert found["store"].get("wavefronts", 0) == stores
    assert found["load"].get("wavefronts", 0) == loads
    by_hand = {"naive": (32, 0), "tiled": (4, 32), "padded": (4, 1), "swizzled": (4, 1)}
    assert (found["store"]["sectors"], loads) == by_hand.get(way, (16, 4))


@pytest.mark.parametrize(
    ("x", "kernel"),
    [
        (torch.ones(8, 12), "transpose_float4"),
        (torch.ones(9, 20)[:8, 4:16], "transpose_float4"),
        (torch.ones(8, 14)[:, :12], "transpose_tiled<Swizzled>"),  # rows of x are not aligned
        (torch.ones(97)[1:].view(8, 12), "transpose_tiled<Swizzled>"),  # nor is its start
        (torch.ones(8, 16)[:, :14], "transpose_tiled<Swizzled>"),  # its last quads are cut
        (torch.ones(6, 12), "transpose_tiled<Swizzled>"),  # rows of its transpose are not aligned
    ],
)
def test_16_bytes_are_moved_where_they_can_be(x, kernel):
    [one] = launch_transpose(x, "float4")
    assert one.name == kernel


@pytest.mark.parametrize("arch", exhaustive(["sm_90", "sm_80", "sm_100"], "all architectures"))
def test_compiled_loads_are_wide_and_all_on_their_way_at_once(arch):
    """In the machine code: four loads before the first store into the tile."""
    code, symbols = transpose.KERNELS.cubin([way.kernel for way in WAYS.values()], arch)
    bodies = binary.split_functions(binary.run_cuobjdump("-sass", code))
    for name in ("tiled", "padded", "swizzled", "float4"):
        body = bodies[symbols[WAYS[name].kernel]]
        found = re.findall(r"\s((?:LD|ST)[GS](?:\.\w+)*)", body)
        wide = ".128" if name == "float4" else ""
        kinds = [re.sub(r"\.(E|CONSTANT)", "", one) for one in found]
        assert kinds[:8] == [f"LDG{wide}"] * 4 + [f"STS{wide}"] * 4
        assert kinds[8:] == [f"LDS{wide}", f"STG{wide}"] * 4


def test_demo_finds_every_way_right():
    lines = read_demo(transpose).splitlines()
    assert len(lines) == 2 + len(WAYS)
    assert all(line.endswith("True") for line in lines[2:])

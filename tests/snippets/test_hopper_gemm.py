"""What snippets/hopper_gemm refuses, and which kernel it launches for a layout and a way."""

from __future__ import annotations

import re

import papergpu
import pytest
import torch
from conftest import read_demo

from snippets import cuda
from snippets.hopper_gemm import hopper_gemm as ours


def ones(*sides: int) -> torch.Tensor:
    """Ones in float16."""
    return torch.ones(sides, dtype=torch.float16)


@pytest.mark.parametrize(
    ("a", "b", "way", "kind", "message"),
    [
        (ones(8, 8), ones(8, 8), "magic", ValueError, "no way 'magic'; there are one stage, four"),
        (ones(8, 8).float(), ones(8, 8), "persistent", TypeError, "a is torch.float32, not float"),
        (ones(8, 8), ones(8, 8).bfloat16(), "persistent", TypeError, "and b is torch.bfloat16"),
        (ones(8), ones(8, 8), "persistent", ValueError, "a has 1 dimensions, not 2; reshape it"),
        (ones(8, 8), ones(16, 8), "persistent", ValueError, "a is 8 x 8 and b is 16 x 8; a's col"),
        (ones(8, 9), ones(9, 8), "persistent", ValueError, r"a has strides \(9, 1\) and begins 0"),
        (ones(8, 8), ones(65)[1:].view(8, 8), "persistent", ValueError, "begins 2 bytes past a mu"),
        (ones(2**31, 0), ones(0, 1), "persistent", ValueError, "a side is over 2147483136; split"),
    ],
)
def test_what_cannot_be_multiplied_is_refused(a, b, way, kind, message):
    with pytest.raises(kind, match=f"^hopper_gemm: .*{message}"):
        ours.product(a, b, way)


def test_more_tiles_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    with pytest.raises(ValueError, match=r"c, 129 x 8, has over 2\*\*31 tiles; split it"):
        ours.product(ones(129, 8), ones(8, 8))


def test_without_depth_or_sides_nothing_is_launched():
    assert not launch_product(ones(16, 0), ones(0, 16), "persistent")
    assert not ours.product(ones(16, 0), ones(0, 16)).any()
    assert ours.product(ones(0, 16), ones(16, 8)).shape == (0, 8)


def launch_product(a: torch.Tensor, b: torch.Tensor, way: str) -> list[papergpu.Launched]:
    found: list[papergpu.Launched] = []
    with papergpu.on_launch(found.append):
        ours.product(a, b, way)
    return found


@pytest.mark.parametrize(
    ("a", "b", "kernel"),
    [
        (ones(8, 16), ones(16, 8), "<__half, 1, 0, 4, 1>"),
        (ones(8, 16), ones(8, 16).t(), "<__half, 1, 1, 4, 1>"),
        (ones(16, 8).t(), ones(16, 8), "<__half, 0, 0, 4, 1>"),
        (ones(16, 8).t().bfloat16(), ones(8, 16).t().bfloat16(), "<__nv_bfloat16, 0, 1, 4, 1>"),
        (ones(1, 3), ones(1, 3).t(), "<__half, 1, 1, 4, 1>"),  # one row has none to lie apart from
    ],
)
def test_an_operand_is_read_as_it_lies(a, b, kernel):
    [one] = launch_product(a, b, "persistent")
    assert one.name == f"gemm_specialised{kernel}"


@pytest.mark.parametrize(
    ("way", "name", "blocks"),
    [
        ("one stage", "gemm_together<__half, 1, 0, 1>", 6),
        ("four stages", "gemm_together<__half, 1, 0, 4>", 6),
        ("specialised", "gemm_specialised<__half, 1, 0, 4, 1>", 6),
        ("persistent", "gemm_specialised<__half, 1, 0, 4, 1>", 2),
        ("clusters", "gemm_specialised<__half, 1, 0, 4, 2>", 2),
    ],
)
def test_a_block_has_a_tile_or_as_many_as_there_are(way, name, blocks):
    a, b = ones(136, 8), ones(8, 520)
    [one] = launch_product(a, b, way)
    assert (one.name, one.grid) == (name, (blocks, 1, 1))
    assert torch.equal(ours.product(a, b, way), torch.full((136, 520), 8).half())


def test_a_cluster_of_three_tiles_below_one_another_has_one_left_over():
    """The fourth block's rows are outside: it helps to load, and writes nothing."""
    a, b = ones(264, 72), ones(72, 264)
    [one] = launch_product(a, b, "clusters")
    assert one.grid == (2, 1, 1)
    assert torch.equal(ours.product(a, b), torch.full((264, 264), 72).half())


def test_a_block_has_no_more_shared_memory_than_it_needs(monkeypatch):
    text = ours.KERNELS.path.read_text()
    tile = re.search(r"ROWS = (\d+), COLUMNS = (\d+), DEPTH = (\d+)", text)
    assert [int(one) for one in tile.groups()] == [ours.ROWS, ours.COLUMNS, ours.DEPTH]
    enough = ours._shared
    for way in ours.WAYS:
        monkeypatch.setattr(ours, "_shared", lambda stages: enough(stages) - 8)
        if way not in ("one stage", "four stages"):
            with pytest.raises(papergpu.Finding, match="shared memory"):
                ours.product(ones(8, 256), ones(256, 8), way)
        monkeypatch.setattr(ours, "_shared", enough)
        assert (ours.product(ones(8, 256), ones(256, 8), way) == 256).all()


def test_demo_finds_every_way_right():
    lines = read_demo(ours).splitlines()
    assert [line.split("right: ")[1] for line in lines] == ["NN NT TN TT"] * 10

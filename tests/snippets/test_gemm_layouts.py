"""What snippets/gemm_layouts refuses, which kernel it chooses, and the banks that it predicts."""

from __future__ import annotations

import papergpu
import pytest
import torch
from conftest import read_demo
from cuda_snippet import line_counts

from snippets import cuda
from snippets.gemm_layouts import gemm_layouts as ours

A, B = torch.arange(12.0).reshape(3, 4), torch.arange(20.0).reshape(4, 5)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.product(A, B, "magic"), ValueError, "no way 'magic'; there are naive, tiled"),
        (lambda: ours.product(A.half(), B), TypeError, "a is torch.float16, not float32"),
        (lambda: ours.product(A, B.double()), TypeError, "b is torch.float64, not float32"),
        (lambda: ours.product(A[0], B), ValueError, "a has 1 dimensions, not 2; reshape it"),
        (lambda: ours.product(A, A), ValueError, "a is 3 x 4 and b is 3 x 4; a's columns must"),
        (lambda: ours.product(A[:, ::2], B[:2]), ValueError, r"strides \(4, 2\), one of which"),
        (
            lambda: ours.product(torch.empty(2**31, 0), torch.empty(0, 1)),
            ValueError,
            "a side is over 2147483392; split the product",
        ),
    ],
)
def test_what_cannot_be_multiplied_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^gemm_layouts: .*{message}"):
        call()


def test_more_tiles_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    assert ours.product(torch.ones(128, 1), torch.ones(1, 128)).shape == (128, 128)
    with pytest.raises(ValueError, match=r"gemm_layouts: c, 129 x 128, has over 2\*\*31 tiles"):
        ours.product(torch.ones(129, 1), torch.ones(1, 128))


def test_layouts_have_their_names_and_vectors_either():
    assert ours.layout(A, B) == "NN" and ours.layout(A, B.t()) == "NT"
    assert ours.layout(A.t(), B) == "TN" and ours.layout(A.t(), B.t()) == "TT"
    row, column = torch.ones(1, 7), torch.ones(7, 1)
    for way in ours.WAYS:
        assert ours.product(row, column, way).item() == 7
        assert torch.equal(ours.product(column.t(), row.t(), way), torch.full((1, 1), 7.0))
        assert ours.product(torch.ones(3, 0), torch.ones(0, 2), way).tolist() == [[0, 0]] * 3
        assert ours.product(torch.ones(0, 3), torch.ones(3, 2), way).shape == (0, 2)


def launch_product(*inputs: object, **settings: object) -> list[papergpu.Launched]:
    found: list[papergpu.Launched] = []
    with papergpu.settings(**settings), papergpu.on_launch(found.append):
        ours.product(*inputs)
    return found


@pytest.mark.parametrize(
    ("a", "b", "kernel"),
    [
        (A, B, "<Swizzled, 1, 0, 0>"),  # rows of b are no whole number of quads
        (A, torch.ones(4, 8), "<Swizzled, 1, 0, 1>"),
        (A, torch.ones(8, 4).t(), "<Swizzled, 1, 1, 1>"),
        (A, torch.ones(33)[1:].view(4, 8), "<Swizzled, 1, 0, 0>"),  # b begins off 16 bytes
        (torch.ones(4, 8).t(), torch.ones(4, 8), "<Swizzled, 0, 0, 1>"),
    ],
)
def test_16_bytes_are_moved_where_they_can_be(a, b, kernel):
    [one] = launch_product(a, b)
    assert one.name == f"gemm_tiled{kernel}"


@pytest.mark.parametrize("way", ours.PLACES)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_stores_to_a_slab_take_the_wavefronts_that_banks_predict(way, layout):
    """By hand: what lies along K 4, 2 and 1 a store of a word; what does not 4 of 16 bytes."""
    a, b = torch.ones(128, 16), torch.ones(16, 128)
    a = a if layout[0] == "N" else a.t().contiguous().t()
    b = b if layout[1] == "N" else b.t().contiguous().t()
    [one] = launch_product(a, b, way, profile=True, threads=1)
    text = ours.KERNELS.path.read_text().splitlines()
    found = {}
    for line in line_counts([one], "gemm_layouts"):
        if "store shared" in line["classes"]:
            code = text[int(line["at"].partition(":")[2]) - 1]
            found["quads[u][j]" in code] = line["wavefronts"] / line["shared_requests"]
    turned = {"tiled": 4, "padded": 2, "swizzled": 1}[way]
    assert ours.wavefronts(ours.words(way, along_k=True)) == turned
    assert ours.wavefronts(ours.words(way, along_k=False)) == 4
    both = {True: turned, False: 4}
    lie = {layout[0] == "N", layout[1] == "T"}  # whether each operand lies along K
    assert found == {one: both[one] for one in lie}


def test_demo_finds_every_way_right():
    lines = read_demo(ours).splitlines()
    assert [line.split("right: ")[1] for line in lines[: len(ours.WAYS)]] == ["NN NT TN TT"] * 4

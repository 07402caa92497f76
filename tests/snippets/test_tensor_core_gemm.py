"""What snippets/tensor_core_gemm refuses, which kernel it chooses, and the passes it predicts."""

from __future__ import annotations

import re

import papergpu
import pytest
import torch
from conftest import read_demo
from cuda_snippet import line_counts

from snippets import cuda
from snippets.tensor_core_gemm import tensor_core_gemm as ours

A, B = torch.ones(3, 4).half(), torch.ones(4, 5).half()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: ours.product(A, B, "magic"), ValueError, "no way 'magic'; there are wmma, shared"),
        (lambda: ours.product(A.float(), B), TypeError, "a is torch.float32, not float16 or"),
        (lambda: ours.product(A, B.bfloat16()), TypeError, "a is torch.float16 and b is torch.bf"),
        (lambda: ours.product(A[0], B), ValueError, "a has 1 dimensions, not 2; reshape it"),
        (lambda: ours.product(A, A), ValueError, "a is 3 x 4 and b is 3 x 4; a's columns must"),
        (lambda: ours.product(A, B.t()), ValueError, "elements of a row of b lie 5 apart"),
        (lambda: ours.product(A, B, "wmma"), ValueError, "'wmma' takes sides that are multiples"),
        (
            lambda: ours.product(torch.empty(2**31, 0).half(), torch.empty(0, 1).half()),
            ValueError,
            "a side is over 2147483392; split the product",
        ),
    ],
)
def test_what_cannot_be_multiplied_is_refused(call, kind, message):
    with pytest.raises(kind, match=f"^tensor_core_gemm: .*{message}"):
        call()


def test_more_tiles_than_a_grid_has_blocks_are_refused(monkeypatch):
    monkeypatch.setattr(cuda, "MAX_GRID", (1, 1, 1))
    with pytest.raises(ValueError, match=r"c, 129 x 8, has over 2\*\*31 tiles; split it"):
        ours.product(torch.ones(129, 8).half(), torch.ones(8, 8).half())


@pytest.mark.parametrize("way", ours.WAYS)
def test_without_depth_a_product_is_zero_and_without_sides_it_is_empty(way):
    zero = ours.product(torch.ones(16, 0).half(), torch.ones(0, 16).half(), way)
    assert zero.shape == (16, 16) and not zero.any()
    assert ours.product(torch.ones(0, 16).half(), torch.ones(16, 16).half(), way).shape == (0, 16)
    assert ours.product(torch.ones(16, 16).half(), torch.ones(16, 0).half(), way).shape == (16, 0)


def launch_one_product(
    a: torch.Tensor, b: torch.Tensor, way: str, **settings: object
) -> papergpu.Launched:
    found: list[papergpu.Launched] = []
    with papergpu.settings(**settings), papergpu.on_launch(found.append):
        ours.product(a, b, way)
    [one] = found
    return one


def ones(*sides: int) -> torch.Tensor:
    """Ones in float16."""
    return torch.ones(sides, dtype=torch.float16)


@pytest.mark.parametrize(
    ("a", "b", "wide"),
    [
        (ones(3, 8), ones(8, 16), 1),
        (ones(3, 7), ones(7, 16), 0),  # rows of a are no whole number of chunks
        (ones(3, 8), ones(8, 15), 0),
        (ones(25)[1:].view(3, 8), ones(8, 16), 0),  # a begins off 16 bytes
        (ones(3, 12)[:, :8], ones(8, 16), 0),  # and here every other row
        (ones(3, 16)[:, :8], ones(8, 16), 1),
    ],
)
def test_16_bytes_are_moved_where_they_can_be(a, b, wide):
    assert launch_one_product(a, b, "ldmatrix").name == f"gemm_ldmatrix<__half, {wide}>"


def test_shared_memory_is_that_of_the_slabs():
    """The bytes that are asked for are those of the kernels' places."""
    text = ours.KERNELS.path.read_text()
    assert re.search(r"STAGES = (\d+);", text)[1] == str(ours.STAGES)
    for way in ("cp.async", "ldmatrix"):
        a, b = ones(130, 200), ones(200, 136)
        assert torch.equal(ours.product(a, b, way), torch.full((130, 136), 200).half())
        less = {**ours.SHARED, way: ours.SHARED[way] - 32}  # 16 pad the last row
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Exception, match="shared memory"):
            patch.setattr(ours, "SHARED", less)
            ours.product(a, b, way)


def test_shared_memory_takes_the_cycles_that_the_page_predicts():
    """For a step of depth 4 of writing and 8 of reading: 12 passes of 128 bytes."""
    a, b = ones(128, 256), ones(256, 128)
    one = launch_one_product(a, b, "ldmatrix", profile=True, threads=1)
    text = ours.KERNELS.path.read_text().splitlines()
    found: dict[str, int] = {}
    for line in line_counts([one], "tensor_core_gemm"):
        if line.get("wavefronts"):
            code = text[int(line["at"].partition(":")[2]) - 1]
            what = "write" if "inside" in code else "read" if '"r"(at)' in code else "turned"
            found[what] = found.get(what, 0) + line["wavefronts"]
    assert found["write"] == 256 * 4 * 128 // 128
    assert found["read"] == 256 * 8
    assert found["turned"] == 2 * 128 * 128 * 2 // 128  # written and read, 2 bytes each


def test_demo_finds_every_way_right():
    lines = read_demo(ours).splitlines()
    assert len(lines) == 4 and not any("wrong" in line for line in lines)
    assert sum(line.count("right") for line in lines) == 14

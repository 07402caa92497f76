"""Maps for the copy engine: what can be mapped, and what cuda-core is asked for."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from snippets import tensor_maps


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

"""Maps for the copy engine: what can be mapped, and what the driver is asked for."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

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
        assert tensor_maps.tensor_map(x, (8, 64)).shape == (tensor_maps.BYTES,)
        return
    with pytest.raises(ValueError, match="cannot be mapped: rows must not be empty"):
        tensor_maps.tensor_map(x, (8, 64))


def test_a_box_has_lines_of_128_bytes():
    assert tensor_maps.tensor_map(make_half_matrix(8, 8).float(), (256, 32)).data_ptr() % 64 == 0
    for box in ((257, 64), (0, 64), (8, 32)):
        with pytest.raises(ValueError, match=r"a box of \d+ x \d+: it has 1 to 256 rows, of 128"):
            tensor_maps.tensor_map(make_half_matrix(8, 8), box)
    with pytest.raises(ValueError, match="cannot be mapped"):
        tensor_maps.tensor_map(make_half_matrix(0, 8), (8, 64))


def test_the_driver_is_asked_with_the_innermost_side_first(monkeypatch):
    driver = pytest.importorskip("cuda.bindings.driver")
    assert {
        torch.float16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        torch.float32: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        torch.float64: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        torch.bfloat16: driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    } == tensor_maps.ELEMENTS
    asked, answer = [], SimpleNamespace(opaque=range(16))

    def note_encoding(*given: object) -> tuple[int, SimpleNamespace]:
        asked.append([[int(n) for n in one] if isinstance(one, list) else one for one in given])
        return 0, answer

    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", note_encoding)
    made = tensor_maps._by_driver(4096, torch.bfloat16, (100, 40), 96, (128, 64))
    assert made == b"".join(n.to_bytes(8, "little") for n in range(16))
    [(element, rank, address, sizes, strides, box, steps, _, swizzle, *_)] = asked
    assert (int(element), rank, address) == (9, 2, 4096)
    assert (sizes, strides, box, steps) == ([40, 100], [96], [64, 128], [1, 1])
    assert swizzle == driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
    refused = SimpleNamespace(name="CUDA_ERROR_INVALID_VALUE")
    monkeypatch.setattr(driver, "cuTensorMapEncodeTiled", lambda *_: (refused, None))
    with pytest.raises(RuntimeError, match="refuses a tensor map: CUDA_ERROR_INVALID_VALUE"):
        tensor_maps._by_driver(4096, torch.bfloat16, (100, 40), 96, (128, 64))


def test_without_papergpu_a_cpu_is_told_what_is_missing(monkeypatch):
    def refuse_import(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.setattr(importlib, "import_module", refuse_import)
    tensor_maps._made.cache_clear()
    with pytest.raises(RuntimeError, match=r"a tensor map: no GPU is here.*: no papergpu\.tens"):
        tensor_maps.tensor_map(make_half_matrix(8, 8), (8, 64))

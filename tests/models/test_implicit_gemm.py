"""implicit_gemm: the product is torch's convolution, Winograd's outputs are exact."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts
from torch.nn import functional

from snippets.implicit_gemm import cases
from snippets.implicit_gemm import implicit_gemm as conv
from snippets.implicit_gemm.implicit_gemm import Shape

SMALL = st.integers(1, 3)
SIZES = st.tuples(
    SMALL, SMALL, st.integers(1, 6), st.integers(1, 6), SMALL, SMALL, SMALL,
    st.integers(1, 2), st.integers(0, 2),
)  # fmt: skip


@settings(max_examples=60)
@given(SIZES)
def test_the_product_is_the_convolution(sizes: tuple[int, ...]) -> None:
    _, _, h, w, _, r, s, _, pad = sizes
    assume(h + 2 * pad >= r and w + 2 * pad >= s)
    shape = Shape(*sizes)
    image, filters = cases.numbers(shape)
    x = torch.tensor(image).view(shape.n, shape.h, shape.w, shape.c).permute(0, 3, 1, 2)
    w = torch.tensor(filters).view(shape.k, shape.r, shape.s, shape.c).permute(0, 3, 1, 2)
    y = functional.conv2d(x.double(), w.double(), stride=shape.stride, padding=shape.pad)
    wanted = y.permute(0, 2, 3, 1).reshape(-1, shape.k).long().tolist()
    assert conv.implicit_gemm(shape, image, filters) == wanted
    assert cases.direct(shape, image, filters) == wanted


@given(st.lists(st.integers(-50, 50), min_size=7, max_size=7))
def test_winograd_is_the_sum_of_three_taps(numbers: list[int]) -> None:
    x, g = numbers[:4], numbers[4:]
    out, multiplications = conv.winograd(x, g)
    assert out == [sum(a * b for a, b in zip(x[i:], g, strict=False)) for i in range(2)]
    assert multiplications == 4


def test_facts_hold_and_a_wrong_place_breaks_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(cases.facts()) == []
    true = conv.source
    monkeypatch.setattr(conv, "source", lambda s, row, k: true(s, row, k) or 0)  # no padding
    assert broken_facts(cases.facts()) == ["implicit GEMM: wrong outputs"]


def test_a_window_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="5 x 3 taps do not fit into 4 x 4 with padding 0"):
        Shape(1, 1, 4, 4, 1, 5, 3)

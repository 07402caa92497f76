"""The views drawn from a case: the same values, laid out otherwise."""

from __future__ import annotations

import pytest
import torch

from warpshelf.worker import verify

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
OTHERS = [torch.int64, torch.int8, torch.bool]


def fill_tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count).reshape(shape) % 7 + 1).to(dtype)


def list_values(one: torch.Tensor) -> list[object]:
    return one.double().flatten().tolist()


@pytest.mark.parametrize("name", verify.VIEWS)
@pytest.mark.parametrize("dtype", FLOATS + OTHERS)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 5), (5,), (1, 5), (5, 1), (1, 1), (), (0, 3)])
def test_a_view_has_the_values_or_those_of_its_first_slice(
    name: str, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    plain = fill_tensor(dtype, *shape)
    drawn = verify.draw_view(name, ("forward", plain, None, 2))
    if drawn is None:
        return
    which, view, nothing, number = drawn
    assert (which, nothing, number) == ("forward", None, 2)
    assert isinstance(view, torch.Tensor)
    assert (view.shape, view.dtype) == (plain.shape, plain.dtype)
    same = plain[:1].expand(plain.shape) if name == "expanded" else plain
    assert list_values(view) == list_values(same)


def draw_layout(name: str, *shape: int) -> tuple[tuple[int, ...], int] | None:
    drawn = verify.draw_view(name, (fill_tensor(torch.float32, *shape),))
    if drawn is None:
        return None
    [view] = drawn
    assert isinstance(view, torch.Tensor)
    return view.stride(), view.storage_offset()


@pytest.mark.parametrize(
    ("name", "shape", "found"),
    [
        ("padded rows", (3, 5), ((21, 1), 0)),
        ("padded rows", (2, 3, 5), ((63, 21, 1), 0)),
        ("padded rows", (1, 5), None),  # one row has no next
        ("padded rows", (5,), None),
        ("column-strided", (3, 5), ((10, 2), 0)),
        ("column-strided", (5,), ((2,), 0)),
        ("column-strided", (3, 1), ((2, 2), 0)),
        ("column-strided", (1, 1), None),
        ("transposed", (3, 5), ((1, 3), 0)),
        ("transposed", (2, 3, 5), ((15, 1, 3), 0)),
        ("transposed", (1, 5), None),
        ("transposed", (5,), None),
        ("transposed", (), None),
        ("misaligned", (3, 5), ((5, 1), 1)),
        ("misaligned", (1,), ((1,), 1)),
        ("misaligned", (0, 3), None),
        ("expanded", (3, 5), ((0, 1), 0)),
        ("expanded", (5,), ((0,), 0)),
        ("expanded", (1, 5), None),
        ("expanded", (), None),
    ],
)
def test_a_view_is_laid_out_as_it_says_or_not_drawn(
    name: str, shape: tuple[int, ...], found: tuple[tuple[int, ...], int] | None
) -> None:
    assert draw_layout(name, *shape) == found


@pytest.mark.parametrize("name", ["padded rows", "column-strided", "misaligned"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_lies_beside_a_view_is_nan(name: str, dtype: torch.dtype) -> None:
    [view] = verify.draw_view(name, (fill_tensor(dtype, 3, 5),)) or []
    assert isinstance(view, torch.Tensor)
    whole = torch.as_strided(view, (view.untyped_storage().nbytes() // view.itemsize,), (1,), 0)
    assert int(torch.isnan(whole.double()).sum()) == whole.numel() - 15 > 0


def test_only_floating_inputs_are_expanded() -> None:
    assert verify.draw_view("expanded", (fill_tensor(torch.int64, 3, 5),)) is None
    drawn = verify.draw_view(
        "expanded", (fill_tensor(torch.int64, 3, 5), fill_tensor(torch.float32, 3))
    )
    assert drawn is not None
    index, weights = drawn
    assert isinstance(index, torch.Tensor) and index.is_contiguous()
    assert isinstance(weights, torch.Tensor) and weights.stride() == (0,)


def test_small_inputs_are_drawn_in_every_view_and_large_ones_by_turns() -> None:
    small, large = (fill_tensor(torch.float32, 64, 256),), (fill_tensor(torch.float32, 64, 257),)
    assert [name for name, _ in verify.case_views(small, 3)] == list(verify.VIEWS)
    turns = [[name for name, _ in verify.case_views(large, index)] for index in range(6)]
    assert turns == [[name] for name in [*verify.VIEWS, "padded rows"]]


def test_a_turn_that_changes_nothing_is_passed_on() -> None:
    long = (fill_tensor(torch.float32, 20_000),)
    assert [name for name, _ in verify.case_views(long, 0)] == ["column-strided"]
    assert [name for name, _ in verify.case_views(long, 2)] == ["misaligned"]
    assert list(verify.case_views((2, None, "add"), 0)) == []


def test_the_inputs_themselves_stay_as_they_are() -> None:
    plain = fill_tensor(torch.float32, 3, 5)
    before = plain.clone()
    for _, drawn in verify.case_views((plain,), 0):
        assert isinstance(drawn[0], torch.Tensor)
        assert drawn[0].data_ptr() != plain.data_ptr()
    assert torch.equal(plain, before)

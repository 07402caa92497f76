"""activation_recompute: what a layer keeps is counted, and each usual mistake keeps more."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from snippet_facts import broken_facts, read_facts

from snippets.activation_recompute import activation_recompute as ours
from snippets.activation_recompute import cases
from snippets.activation_recompute.activation_recompute import SIZES, Share

BLOCK = SIZES.s * SIZES.b * SIZES.h
SQUARE = SIZES.a * SIZES.s**2 * SIZES.b


def run_layer(way: str = "none", dtype: torch.dtype = torch.bfloat16) -> dict[str, Any]:
    return ours.on_rank(0, 1, False, way, dtype, SIZES)


def test_a_layer_keeps_what_the_formula_says() -> None:
    assert run_layer()["bytes"] == 34 * BLOCK + 5 * SQUARE
    assert run_layer()["statistics"] == 2 * 4 * SIZES.s * SIZES.b
    assert run_layer("selective")["bytes"] == 34 * BLOCK
    assert (run_layer("full")["bytes"], run_layer("full")["statistics"]) == (2 * BLOCK, 0)
    # Of 8 bytes an element all but the masks is four times as much.
    assert run_layer(dtype=torch.float64)["bytes"] == (4 * 32 + 2) * BLOCK + (4 * 4 + 1) * SQUARE


@pytest.mark.exhaustive("`shelf run` holds all facts")
def test_recomputing_changes_no_bit() -> None:
    truth = run_layer(dtype=torch.float64)
    for way in ("selective", "full"):
        found = run_layer(way, torch.float64)
        assert torch.equal(found["out"], truth["out"])
        for name, grad in truth["grads"].items():
            assert torch.equal(found["grads"][name], grad), (way, name)


def test_gradients_are_those_of_finite_differences() -> None:
    sizes = ours.Sizes(s=4, b=1, h=4, a=2)
    x, _, w = ours.whole(sizes, torch.float64)
    mine = Share(sizes, 0, 1, False)
    given = [one.requires_grad_() for one in (x, *w.values())]

    def apply_layer(*values: torch.Tensor) -> torch.Tensor:
        return ours.layer(values[0], dict(zip(w, values[1:], strict=True)), mine, "none")

    assert torch.autograd.gradcheck(apply_layer, given, fast_mode=True)


def keep_wide_mask(self: Share, x: torch.Tensor, site: str) -> torch.Tensor:
    own = ours.mask((1, 1, 1), site).expand(x.shape).to(x.dtype)
    return x * own.clone() / (1 - ours.DROPPED)


def clone_operands(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mine: Share) -> torch.Tensor:
    return TRUE(*(x.clone() for x in (q, k, v)), mine)


def scale_late(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mine: Share) -> torch.Tensor:
    s, b, heads, d = q.shape
    q, k, v = (x.reshape(s, b * heads, d).transpose(0, 1) for x in (q, k, v))
    weights = mine.drop(torch.bmm(q, k.mT).div(math.sqrt(d)).exp(), "weights")
    mixed = torch.bmm(weights / weights.sum(-1, keepdim=True), v)
    return mixed.transpose(0, 1).reshape(s, b, heads * d)


TRUE = ours.attention


@pytest.mark.parametrize(
    ("name", "wrong", "more"),
    [
        ("Share.drop", keep_wide_mask, 2 * BLOCK + 1 * SQUARE),  # and each x beside its mask
        ("attention", clone_operands, 0),
        ("attention", scale_late, 1),
    ],
)
def test_a_mistake_keeps_more(
    name: str, wrong: object, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = run_layer()["bytes"]
    monkeypatch.setattr(f"{ours.__name__}.{name}", wrong)
    found = run_layer()["bytes"]
    assert found >= due + more
    assert (found == due) is (wrong is clone_operands)  # q, k and v once, though elsewhere


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Share(SIZES, 0, 3, False), "does not split into 3; heads must split over"),
        (lambda: Share(SIZES._replace(h=60), 0, 2, False), "does not split into 2"),
        (lambda: Share(SIZES._replace(s=25), 0, 2, True), "does not split into 2"),
        (lambda: run_layer("some"), "no way 'some'; there are none, selective, full"),
    ],
)
def test_what_does_not_split_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^activation_recompute: .*{message}"):
        make()


def test_a_sequence_need_not_split_where_it_is_whole() -> None:
    Share(SIZES._replace(s=25), 0, 2, False)


def test_every_fact_holds() -> None:
    rows = read_facts(cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    assert sum("kept" in name for name in names) == 5 * 3 * 2
    assert sum("error" in name for name in names) == 5 * 3 * 2

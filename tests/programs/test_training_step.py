"""What one step of training keeps, and in which numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from snippet_facts import broken_facts, read_facts

from snippets.activation_recompute import activation_recompute as activation_recompute_ours
from snippets.activation_recompute import cases as activation_recompute_cases
from snippets.activation_recompute.activation_recompute import SIZES, Share
from snippets.fp8_training import cases as fp8_training_cases
from snippets.fp8_training import fp8_training as fp8_training_ours
from snippets.fp8_training import recipes
from snippets.fp8_training.recipes import BLOCK, E4M3, E5M2, Block, Current, Delayed

# activation_recompute: what a layer keeps is counted, and each usual mistake keeps more.


ACTIVATION_RECOMPUTE_BLOCK = SIZES.s * SIZES.b * SIZES.h
SQUARE = SIZES.a * SIZES.s**2 * SIZES.b


def run_layer(way: str = "none", dtype: torch.dtype = torch.bfloat16) -> dict[str, Any]:
    return activation_recompute_ours.on_rank(0, 1, False, way, dtype, SIZES)


def test_a_layer_keeps_what_the_formula_says() -> None:
    assert run_layer()["bytes"] == 34 * ACTIVATION_RECOMPUTE_BLOCK + 5 * SQUARE
    assert run_layer()["statistics"] == 2 * 4 * SIZES.s * SIZES.b
    assert run_layer("selective")["bytes"] == 34 * ACTIVATION_RECOMPUTE_BLOCK
    assert (run_layer("full")["bytes"], run_layer("full")["statistics"]) == (
        2 * ACTIVATION_RECOMPUTE_BLOCK,
        0,
    )
    # Of 8 bytes an element all but the masks is four times as much.
    assert (
        run_layer(dtype=torch.float64)["bytes"]
        == (4 * 32 + 2) * ACTIVATION_RECOMPUTE_BLOCK + (4 * 4 + 1) * SQUARE
    )


@pytest.mark.exhaustive("`shelf run` holds all facts")
def test_recomputing_changes_no_bit() -> None:
    truth = run_layer(dtype=torch.float64)
    for way in ("selective", "full"):
        found = run_layer(way, torch.float64)
        assert torch.equal(found["out"], truth["out"])
        for name, grad in truth["grads"].items():
            assert torch.equal(found["grads"][name], grad), (way, name)


def test_gradients_are_those_of_finite_differences() -> None:
    sizes = activation_recompute_ours.Sizes(s=4, b=1, h=4, a=2)
    x, _, w = activation_recompute_ours.whole(sizes, torch.float64)
    mine = Share(sizes, 0, 1, False)
    given = [one.requires_grad_() for one in (x, *w.values())]

    def apply_layer(*values: torch.Tensor) -> torch.Tensor:
        return activation_recompute_ours.layer(
            values[0], dict(zip(w, values[1:], strict=True)), mine, "none"
        )

    assert torch.autograd.gradcheck(apply_layer, given, fast_mode=True)


def keep_wide_mask(self: Share, x: torch.Tensor, site: str) -> torch.Tensor:
    own = activation_recompute_ours.mask((1, 1, 1), site).expand(x.shape).to(x.dtype)
    return x * own.clone() / (1 - activation_recompute_ours.DROPPED)


def clone_operands(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mine: Share) -> torch.Tensor:
    return TRUE(*(x.clone() for x in (q, k, v)), mine)


def scale_late(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mine: Share) -> torch.Tensor:
    s, b, heads, d = q.shape
    q, k, v = (x.reshape(s, b * heads, d).transpose(0, 1) for x in (q, k, v))
    weights = mine.drop(torch.bmm(q, k.mT).div(math.sqrt(d)).exp(), "weights")
    mixed = torch.bmm(weights / weights.sum(-1, keepdim=True), v)
    return mixed.transpose(0, 1).reshape(s, b, heads * d)


TRUE = activation_recompute_ours.attention


@pytest.mark.parametrize(
    ("name", "wrong", "more"),
    [
        (
            "Share.drop",
            keep_wide_mask,
            2 * ACTIVATION_RECOMPUTE_BLOCK + 1 * SQUARE,
        ),  # and each x beside its mask
        ("attention", clone_operands, 0),
        ("attention", scale_late, 1),
    ],
)
def test_a_mistake_keeps_more(
    name: str, wrong: object, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = run_layer()["bytes"]
    monkeypatch.setattr(f"{activation_recompute_ours.__name__}.{name}", wrong)
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
    rows = read_facts(activation_recompute_cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    assert sum("kept" in name for name in names) == 5 * 3 * 2
    assert sum("error" in name for name in names) == 5 * 3 * 2


# fp8_training: casts to the bit, and each usual mistake costs what the recipe was to save.


def draw_normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def test_a_cast_meets_the_end_of_the_range() -> None:
    x = draw_normal(8, 32)
    for dtype, bits in ((E4M3, 3), (E5M2, 2)):
        found = recipes.cast(x, x.abs().amax(), dtype)
        assert float(found.abs().amax()) == pytest.approx(float(x.abs().amax()), rel=1e-12)
        large = x.abs() > x.abs().amax() / 2**6  # no subnormal
        error = ((found - x) / x)[large].abs().amax()
        assert 2.0 ** -(bits + 3) < error <= 2.0 ** -(bits + 1)


def test_gradients_have_the_wider_range() -> None:
    x = torch.tensor([[1.0, 2.0**-20]], dtype=torch.float64)
    assert float(Current()(x, "0.up x", False)[0, 1]) == 0
    assert float(Current()(x, "0.up dy", False)[0, 1]) > 0


def test_a_delayed_scale_saturates_until_its_history_has_it() -> None:
    recipe = Delayed()
    x = draw_normal(4, 32)
    recipe(x, "w", False)
    largest = float(x.abs().amax())
    found = recipe(8 * x, "w", False)
    assert float(found.abs().amax()) == pytest.approx(largest, rel=1e-12)
    found = recipe(8 * x, "w", False)
    assert float(found.abs().amax()) == pytest.approx(8 * largest, rel=1e-12)
    for _ in range(recipes.HISTORY):
        recipe(x, "w", False)
    assert float(recipe(8 * x, "w", False).abs().amax()) == pytest.approx(largest, rel=1e-12)


def test_the_copy_for_the_backward_pass_is_of_the_same_bytes() -> None:
    recipe = Delayed()
    recipe(draw_normal(4, 32), "x", False)
    x = 3 * draw_normal(4, 32)
    assert torch.equal(recipe(x, "x", False), recipe(x, "x", True))
    assert len(recipe.past["x"]) == 2


def test_testing_leaves_no_trace_in_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8_training_ours, "TESTS", 2)
    model = fp8_training_ours.Model("delayed")
    model.loss(fp8_training_ours.words(0))
    before = {site: tuple(past) for site, past in model.recipe.past.items()}
    fp8_training_ours.tested(model)
    assert {site: tuple(past) for site, past in model.recipe.past.items()} == before


@pytest.mark.parametrize(("site", "rows", "shape"), [
    ("x", False, (1, BLOCK)), ("x", True, (BLOCK, 1)), ("w", False, (BLOCK, BLOCK)),
    ("w", True, (BLOCK, BLOCK)), ("dy", False, (1, BLOCK)), ("dy", True, (BLOCK, 1)),
])  # fmt: skip
def test_an_outlier_costs_its_block_alone(site: str, rows: bool, shape: tuple[int, int]) -> None:
    x = draw_normal(64, 48)
    loud = x.clone()
    loud[20, 37] = 1e6
    changed = (Block()(x, site, rows) != Block()(loud, site, rows)).nonzero()
    top, left = 20 // shape[0] * shape[0], 37 // shape[1] * shape[1]
    assert changed[:, 0].min() >= top and changed[:, 0].max() < top + shape[0]
    assert changed[:, 1].min() >= left and changed[:, 1].max() < left + shape[1]
    assert len(changed) > shape[0] * shape[1] / 2  # the rest of the block has become 0


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(ValueError, match="no recipe 'int8'; there are bfloat16, current"):
        fp8_training_ours.Model("int8")


def test_smooth_channels_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = fp8_training_ours.words(0)
    plain, smooth = (
        fp8_training_ours.Model("bfloat16"),
        fp8_training_ours.Model("bfloat16", smooth=True),
    )
    for model in (plain, smooth):
        model.recipe = fp8_training_cases.Uncast()
        model.loss(ids).backward()
    for name, w in plain.w.items():
        assert torch.allclose(w.grad, smooth.w[name].grad, rtol=1e-12, atol=1e-14), name
    right = float(smooth.loss(ids).detach())
    monkeypatch.setattr(fp8_training_ours.Model, "swiglu", scale_without_weights)
    assert abs(float(smooth.loss(ids).detach()) / right - 1) > 1e-3


def test_the_outlier_leaves_the_function_nearly_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8_training_ours, "TESTS", 2)
    model = fp8_training_ours.Model("bfloat16")
    before = fp8_training_ours.tested(model)
    kept = fp8_training_ours.plant(model)
    assert abs(fp8_training_ours.tested(model) / before - 1) < 0.02
    long = model.w["0.gate"][fp8_training_ours.CHANNEL]
    assert float(long.detach().norm()) > 100 and torch.equal(
        long, model.w["0.up"][fp8_training_ours.CHANNEL]
    )
    with torch.no_grad():
        for w in model.w.values():
            w += 1
    fp8_training_ours.put_back(model, kept)
    assert torch.equal(model.w["0.gate"][fp8_training_ours.CHANNEL], kept[0][2])


def scale_without_weights(self: fp8_training_ours.Model, x: torch.Tensor, at: int) -> torch.Tensor:
    z = fp8_training_ours.F.silu(self.product(x, f"{at}.gate")) * self.product(x, f"{at}.up")
    scale = z.detach().abs().amax(0).clamp(min=2.0**-20).log2().floor().exp2()
    return self.times(z / scale, self.w[f"{at}.down"], f"{at}.down")


def scale_channels_alike(self: fp8_training_ours.Model, x: torch.Tensor, at: int) -> torch.Tensor:
    z = fp8_training_ours.F.silu(self.product(x, f"{at}.gate")) * self.product(x, f"{at}.up")
    scale = z.detach().abs().amax().log2().floor().exp2()
    return self.times(z / scale, self.w[f"{at}.down"] * scale, f"{at}.down")


def test_one_scale_for_all_channels_keeps_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = fp8_training_cases.vanished()[1]
    monkeypatch.setattr(fp8_training_ours.Model, "swiglu", scale_channels_alike)
    lost = fp8_training_cases.vanished()[1]
    assert kept["value"] < 100 < 1000 < lost["value"]


def test_facts_name_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {
        row["name"]: row
        for row in fp8_training_cases.exact()
        + fp8_training_cases.products()
        + fp8_training_cases.vanished()
    }
    monkeypatch.setattr(recipes, "cast", lambda x, largest, dtype: x.to(dtype).to(x.dtype))
    spoilt = {row["name"]: row for row in fp8_training_cases.products()}
    name = "a product, one scale each: error"
    assert rows[name]["value"] < 1e-6 < 1e-3 < spoilt[name]["value"]
    lost = "current: outputs of SwiGLU beside the outlier that become 0"
    kept = "current, smooth: outputs of SwiGLU beside the outlier that become 0"
    assert rows[lost]["value"] > 1000 > 100 > rows[kept]["value"]

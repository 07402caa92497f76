"""fp8_training: casts to the bit, and each usual mistake costs what the recipe was to save."""

from __future__ import annotations

import pytest
import torch

from snippets.fp8_training import cases, recipes
from snippets.fp8_training import fp8_training as ours
from snippets.fp8_training.recipes import BLOCK, E4M3, E5M2, Block, Current, Delayed


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
    monkeypatch.setattr(ours, "TESTS", 2)
    model = ours.Model("delayed")
    model.loss(ours.words(0))
    before = {site: tuple(past) for site, past in model.recipe.past.items()}
    ours.tested(model)
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
        ours.Model("int8")


def test_smooth_channels_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = ours.words(0)
    plain, smooth = ours.Model("bfloat16"), ours.Model("bfloat16", smooth=True)
    for model in (plain, smooth):
        model.recipe = cases.Uncast()
        model.loss(ids).backward()
    for name, w in plain.w.items():
        assert torch.allclose(w.grad, smooth.w[name].grad, rtol=1e-12, atol=1e-14), name
    right = float(smooth.loss(ids).detach())
    monkeypatch.setattr(ours.Model, "swiglu", scale_without_weights)
    assert abs(float(smooth.loss(ids).detach()) / right - 1) > 1e-3


def test_the_outlier_leaves_the_function_nearly_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "TESTS", 2)
    model = ours.Model("bfloat16")
    before = ours.tested(model)
    kept = ours.plant(model)
    assert abs(ours.tested(model) / before - 1) < 0.02
    long = model.w["0.gate"][ours.CHANNEL]
    assert float(long.detach().norm()) > 100 and torch.equal(long, model.w["0.up"][ours.CHANNEL])
    with torch.no_grad():
        for w in model.w.values():
            w += 1
    ours.put_back(model, kept)
    assert torch.equal(model.w["0.gate"][ours.CHANNEL], kept[0][2])


def scale_without_weights(self: ours.Model, x: torch.Tensor, at: int) -> torch.Tensor:
    z = ours.F.silu(self.product(x, f"{at}.gate")) * self.product(x, f"{at}.up")
    scale = z.detach().abs().amax(0).clamp(min=2.0**-20).log2().floor().exp2()
    return self.times(z / scale, self.w[f"{at}.down"], f"{at}.down")


def scale_channels_alike(self: ours.Model, x: torch.Tensor, at: int) -> torch.Tensor:
    z = ours.F.silu(self.product(x, f"{at}.gate")) * self.product(x, f"{at}.up")
    scale = z.detach().abs().amax().log2().floor().exp2()
    return self.times(z / scale, self.w[f"{at}.down"] * scale, f"{at}.down")


def test_one_scale_for_all_channels_keeps_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cases.vanished()[1]
    monkeypatch.setattr(ours.Model, "swiglu", scale_channels_alike)
    lost = cases.vanished()[1]
    assert kept["value"] < 100 < 1000 < lost["value"]


def test_facts_name_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row["name"]: row for row in cases.exact() + cases.products() + cases.vanished()}
    monkeypatch.setattr(recipes, "cast", lambda x, largest, dtype: x.to(dtype).to(x.dtype))
    spoilt = {row["name"]: row for row in cases.products()}
    name = "a product, one scale each: error"
    assert rows[name]["value"] < 1e-6 < 1e-3 < spoilt[name]["value"]
    lost = "current: outputs of SwiGLU beside the outlier that become 0"
    kept = "current, smooth: outputs of SwiGLU beside the outlier that become 0"
    assert rows[lost]["value"] > 1000 > 100 > rows[kept]["value"]

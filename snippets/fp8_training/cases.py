"""What fp8_training must show: a small gap, an outlier that widens it, the mend."""

from __future__ import annotations

from typing import Any

import torch

from snippets.facts import fact
from snippets.fp8_training import fp8_training as trained
from snippets.fp8_training.fp8_training import RUNS, Model, Product, plant, train, words
from snippets.fp8_training.recipes import BLOCK, E4M3, Block, Current, Half

NEEDS = {"seconds": 300}  # a dozen trainings
PAPER = "scaling-fp8-trillion-tokens"
GAP = 0.01  # relative, of the loss after training
MENDED = 0.02  # some steps after the outlier, in which bfloat16 gains a little as well
BROKEN = 1.5  # times bfloat16's loss, and more


def facts() -> list[dict[str, Any]]:
    """Products, what an outlier makes of its neighbours, and losses by recipe."""
    return exact() + products() + vanished() + losses()


class Uncast(Half):
    """No cast at all."""

    def __call__(self, x: torch.Tensor, site: str, rows: bool) -> torch.Tensor:
        return x


def exact() -> list[dict[str, Any]]:
    """The model without casts against torch's own products and their gradients."""
    ours, theirs = Model("bfloat16"), Model("bfloat16")
    ours.recipe = Uncast()
    theirs.product = lambda x, name: x @ theirs.w[name].T  # type: ignore[method-assign]
    theirs.times = lambda x, w, name: x @ w.T  # type: ignore[method-assign]
    found = [model.loss(words(0)) for model in (ours, theirs)]
    for loss in found:
        loss.backward()
    pairs = [(ours.w[name].grad, theirs.w[name].grad) for name in ours.w]
    worst = max(float((a - b).norm() / b.norm()) for a, b in pairs)
    source = "torch's products and autograd, float64"
    return [
        fact("no casts: the loss", float(found[0].detach()), float(found[1].detach()),
             source, 1e-12),
        fact("no casts: largest error of a gradient", worst, 0, source, 1e-12),
    ]


def products() -> list[dict[str, Any]]:
    """A product by each scaling, against torch's product of the same bytes."""
    draw = torch.Generator().manual_seed(3)
    x, w = (torch.randn(n, 64, generator=draw, dtype=torch.float64) for n in (48, 32))
    kept = []
    for one in (x, w):
        scale = torch.finfo(E4M3).max / one.abs().amax()
        kept.append(((one * scale).to(E4M3), (1 / scale).float()))
    (a, by_a), (b, by_b) = kept
    due = torch._scaled_mm(a, b.T, scale_a=by_a, scale_b=by_b, out_dtype=torch.float32)
    found = Product.apply(x, w, Current(), "")
    error = float((found - due).norm() / due.norm())
    # Each block as a row of a matrix of its own must come out the same.
    rows = Block()(x, "x", False) / x
    apart = (
        Block()(x.unflatten(1, (-1, BLOCK)).flatten(0, 1), "x", False).view_as(x) / x
    )
    return [
        fact("a product, one scale each: error", error, 0,
             "torch._scaled_mm, float32 sums", 1e-6),
        fact("a scale for each block: error", float((rows - apart).abs().max()), 0,
             "each block cast as a matrix of its own"),
    ]  # fmt: skip


class Watched(Half):
    """A recipe, and what it makes of the outputs of SwiGLU that are not the outlier."""

    def __init__(self, recipe: Half) -> None:
        self.recipe, self.count, self.zero, self.due = recipe, 0, 0, 0

    def __call__(self, x: torch.Tensor, site: str, rows: bool) -> torch.Tensor:
        out = self.recipe(x, site, rows)
        if site.endswith("down x") and not rows:
            others = torch.arange(x.shape[1]) != trained.CHANNEL
            self.count += x[:, others].numel()
            self.zero += int((out[:, others] == 0).sum())
            # 2**-9 is the smallest number there; its half rounds to the even one, 0.
            least = x.abs().amax() / torch.finfo(E4M3).max * 2.0**-10
            self.due += int((x[:, others].abs() <= least).sum())
        return out


def vanished() -> list[dict[str, Any]]:
    """Of the other channels' numbers, how many become zero: counted, and due."""
    rows = []
    for name, smooth in (("current", False), ("current, smooth", True)):
        model = Model("current", smooth)
        plant(model)
        watched = model.recipe = Watched(model.recipe)
        with torch.no_grad():
            model.loss(words(0))
        what = f"{name}: outputs of SwiGLU beside the outlier that become 0"
        rows.append(fact(what, watched.zero, watched.due,
                         "those up to 2^-10 / 448 of the largest"))  # fmt: skip
    return rows


def losses() -> list[dict[str, Any]]:
    """After training, with the outlier, and some steps later, beside bfloat16."""
    told = {name: train(*run) for name, run in RUNS.items()}
    truth = told.pop("bfloat16")
    rows = []
    for name, mine in told.items():
        rows.append(
            fact(f"{name}: loss after {trained.STEPS} steps", mine["trained"],
                 truth["trained"], "bfloat16's, the same data and steps", GAP)
        )  # fmt: skip
        when = f"{trained.MORE} steps after the outlier"
        if "smooth" in name or name == "block":
            rows.append(fact(f"{name}: loss {when}", mine["later"], truth["later"],
                             f"bfloat16's then; {PAPER}", MENDED))  # fmt: skip
        else:
            lost = int(mine["later"] > BROKEN * truth["later"])
            what = f"{name}: loss {when} over {BROKEN:g} times bfloat16's"
            rows.append(fact(what, lost, 1, f"what {PAPER} describes"))
    return rows

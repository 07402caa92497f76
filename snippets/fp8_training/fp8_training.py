"""A transformer trained in simulated 8 bits, and the outlier that breaks it, mended.

Shapes  ids (b, s + 1) of V words -> loss (); products of a layer in 8 bits, forward and
        both of backward; embedding, norms, attention and head as they are
Error   the loss after training within 1 % of bfloat16's, for delayed, current and block
        scaling; with an outlier in SwiGLU not, unless its channels are scaled
Raises  ValueError for a recipe that is not in RECIPES
Source  scaling-fp8-trillion-tokens, transformer-engine-fp8-primer, deepseek-v3
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from snippets.fp8_training.recipes import RECIPES, Half

WORDS, S, BATCH, H, HEADS, INNER, LAYERS = 32, 32, 8, 32, 2, 64, 2
STEPS, MORE, RATE = 160, 16, 8e-3  # steps, steps after the outlier, of Adam
TESTS = 16  # batches that are not trained on
EXACT = torch.float64  # between casts: so small differences of machines stay small
CHANNEL, GROWTH = 5, 2.0**10  # of each SwiGLU, and the length of its vectors then
Parameters = dict[str, torch.Tensor]
Kept = list[tuple[str, Any, torch.Tensor]]  # of a parameter, where, and what


# --8<-- [start:product]
class Product(torch.autograd.Function):
    """x w^T with both in few bits, and so the two products of its gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, w: torch.Tensor, recipe: Half, name: str
    ) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        ctx.recipe, ctx.name = recipe, name
        return recipe(x, f"{name} x", False) @ recipe(w, f"{name} w", False).T

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, w = ctx.saved_tensors
        recipe, name = ctx.recipe, ctx.name
        dx = recipe(dy, f"{name} dy", False) @ recipe(w, f"{name} w", True)
        # Now rows are reduced: in blocks that is another cast of the same numbers.
        dw = recipe(dy, f"{name} dy", True).T @ recipe(x, f"{name} x", True)
        return dx, dw, None, None
# --8<-- [end:product]


# --8<-- [start:model]
class Model:
    """A small decoder; `smooth`: channels of SwiGLU get a scale of their own."""

    def __init__(self, recipe: str, smooth: bool = False) -> None:
        if recipe not in RECIPES:
            known = ", ".join(RECIPES)
            raise ValueError(f"fp8_training: no recipe {recipe!r}; there are {known}")
        self.recipe, self.smooth = RECIPES[recipe](), smooth
        self.w = start()

    def product(self, x: torch.Tensor, name: str) -> torch.Tensor:
        """x times the weights of that name, in the recipe's bits."""
        return self.times(x, self.w[name], name)

    def times(self, x: torch.Tensor, w: torch.Tensor, name: str) -> torch.Tensor:
        """x w^T at the place of that name."""
        return Product.apply(x, w, self.recipe, name)

    def swiglu(self, x: torch.Tensor, at: int) -> torch.Tensor:
        """Its product of two grows as the square of what both are aligned with."""
        z = F.silu(self.product(x, f"{at}.gate")) * self.product(x, f"{at}.up")
        w = self.w[f"{at}.down"]
        if self.smooth:  # a power of two for each channel, taken back in the weights
            scale = z.detach().abs().amax(0).clamp(min=2.0**-20).log2().floor().exp2()
            z, w = z / scale, w * scale
        return self.times(z, w, f"{at}.down")

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of each next word."""
        x = F.embedding(ids[:, :-1], self.w["words"])
        b, s, _ = x.shape
        x = (x + self.w["places"]).flatten(0, 1)
        for at in range(LAYERS):
            y = F.rms_norm(x, (H,), self.w[f"{at}.norm1"])
            qkv = self.product(y, f"{at}.qkv").view(b, s, 3, HEADS, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            mixed = mixed.transpose(1, 2).reshape(b * s, H)
            x = x + self.product(mixed, f"{at}.out")
            x = x + self.swiglu(F.rms_norm(x, (H,), self.w[f"{at}.norm2"]), at)
        logits = F.rms_norm(x, (H,), self.w["norm"]) @ self.w["head"].T
        return F.cross_entropy(logits, ids[:, 1:].flatten())
# --8<-- [end:model]


def start() -> Parameters:
    """Seeded parameters, as an optimizer would keep them."""
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw, dtype=EXACT) / math.sqrt(shape[-1])

    w = {"words": normal(WORDS, H), "places": normal(S, H),
         "norm": torch.ones(H, dtype=EXACT), "head": normal(WORDS, H)}  # fmt: skip
    for at in range(LAYERS):
        shapes = {"qkv": (3 * H, H), "out": (H, H), "gate": (INNER, H),
                  "up": (INNER, H), "down": (H, INNER)}  # fmt: skip
        w |= {f"{at}.{name}": normal(*shape) for name, shape in shapes.items()}
        w |= {f"{at}.norm{n}": torch.ones(H, dtype=EXACT) for n in (1, 2)}
    return {name: one.requires_grad_() for name, one in w.items()}


def words(step: int) -> torch.Tensor:
    """A batch (b, s + 1) of a language in which two words decide the next, mostly."""
    draw = torch.Generator().manual_seed(1)
    table = torch.randint(WORDS, (WORDS, WORDS), generator=draw)
    draw.manual_seed(1000 + step)
    ids = torch.randint(WORDS, (BATCH, S + 1), generator=draw)
    noise = torch.rand(BATCH, S + 1, generator=draw) < 0.1
    for at in range(2, S + 1):
        due = table[ids[:, at - 2] % 4, ids[:, at - 1]]
        ids[:, at] = torch.where(noise[:, at], ids[:, at], due)
    return ids


# --8<-- [start:outlier]
def plant(model: Model) -> Kept:
    """Let gate and up of a channel be one long vector, as late in long trainings.

    What they make grows as its square, and the weights after it shrink as much, so the
    function hardly changes. Returns what has to stay so.
    """
    kept: Kept = []
    with torch.no_grad():
        for at in range(LAYERS):
            down = (slice(None), CHANNEL)
            long = model.w[f"{at}.up"][CHANNEL] * GROWTH
            for name, place, one in (
                (f"{at}.gate", CHANNEL, long),
                (f"{at}.up", CHANNEL, long),
                (f"{at}.down", down, model.w[f"{at}.down"][down] / GROWTH**2),
            ):
                model.w[name][place] = one
                kept.append((name, place, one.clone()))
    return kept


def put_back(model: Model, kept: Kept) -> None:
    """Undo what a step has done to them."""
    with torch.no_grad():
        for name, place, one in kept:
            model.w[name][place] = one
# --8<-- [end:outlier]


def train(recipe: str, smooth: bool = False, steps: int = STEPS) -> dict[str, float]:
    """Losses on words that were not trained on: after training, then with an outlier.

    "trained" after so many steps; "at once" with the outlier there; "later" after MORE.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums in one order, on any machine
    try:
        model = Model(recipe, smooth)
        adam = torch.optim.Adam(model.w.values(), RATE, (0.9, 0.95))
        told: dict[str, float] = {}
        kept: Kept = []
        for step in range(steps + MORE):
            if step == steps:
                told["trained"] = tested(model)
                kept = plant(model)
                told["at once"] = tested(model)
            loss = model.loss(words(step))
            adam.zero_grad()
            loss.backward()
            for group in adam.param_groups:
                group["lr"] = RATE * min((step + 1) / 20, max(0.1, 1 - step / steps))
            adam.step()
            put_back(model, kept)
        told["later"] = tested(model)
    finally:
        torch.set_num_threads(threads)
    return told


def tested(model: Model) -> float:
    """The mean loss of batches that are not trained on."""
    model.recipe.learns = False
    with torch.no_grad():
        losses = [float(model.loss(words(-1 - at))) for at in range(TESTS)]
    model.recipe.learns = True
    return math.fsum(losses) / len(losses)


RUNS = {
    "bfloat16": ("bfloat16", False),
    "current": ("current", False),
    "delayed": ("delayed", False),
    "block": ("block", False),
    "delayed, smooth": ("delayed", True),
}


def demo(device: str) -> None:
    """Losses by recipe: trained, with an outlier, and after more steps."""
    steps = STEPS // 2
    print(f"{steps} steps, then a channel {GROWTH:g} times as long, {MORE} steps more")
    for name, (recipe, smooth) in RUNS.items():
        told = train(recipe, smooth, steps)
        line = ", ".join(f"{when} {loss:.2f}" for when, loss in told.items())
        print(f"{name:16}{line}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

"""Two softmax averages over disjoint keys as one: the rule in torch, in any precision.

What needs no Triton imports this: `snippets.ring_attention` does, on float64.
"""

from __future__ import annotations

import math

import torch


# --8<-- [start:merge]
def merge(
    out1: torch.Tensor, lse1: torch.Tensor, out2: torch.Tensor, lse2: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """out (..., D) and lse (...) over the keys of both sides; differentiable.

    lse = -inf says that no key was seen: such a side adds nothing, whatever is in its
    out. Where neither side saw a key, out is 0, lse is -inf and all gradients are 0.
    """
    # Any number near the larger does: it cancels, so no gradient goes through it.
    top = torch.maximum(lse1, lse2).detach()
    top = top.masked_fill(top == -math.inf, 0)  # -inf - -inf would be NaN
    exp1, exp2 = (lse1 - top).exp(), (lse2 - top).exp()
    total = exp1 + exp2
    none = total == 0
    total = total.masked_fill(none, 1)
    lse = (top + total.log()).masked_fill(none, -math.inf)
    # 0 times what a kernel left in a row without keys may be NaN.
    seen1, seen2 = (
        out.masked_fill((side == -math.inf)[..., None], 0)
        for out, side in ((out1, lse1), (out2, lse2))
    )
    weight1, weight2 = ((part / total)[..., None] for part in (exp1, exp2))
    return weight1 * seen1 + weight2 * seen2, lse


# --8<-- [end:merge]

"""The algebra of latent attention: what lets a decode step never expand its cache."""

from __future__ import annotations

import torch


# --8<-- [start:absorb]
def absorb(
    q_nope: torch.Tensor, q_rope: torch.Tensor, w_uk: torch.Tensor
) -> torch.Tensor:
    """Queries (B, T, H, D) taken into the latent space by w_uk (H, D, L); the columns
    that positions turn (B, T, H, R) go behind them, as they are."""
    return torch.cat([torch.einsum("bthd,hdl->bthl", q_nope, w_uk), q_rope], -1)


def lift(out: torch.Tensor, w_uv: torch.Tensor) -> torch.Tensor:
    """What attention found (B, T, H, L), taken out of the latent space by w_uv
    (H, L, D)."""
    return torch.einsum("bthl,hld->bthd", out, w_uv)


def unabsorbed(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    rows: torch.Tensor,
    w_uk: torch.Tensor,
    w_uv: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """The same from keys and values of every head, expanded from rows (B, S, L + R)."""
    latent, rope = rows.split([w_uk.shape[2], q_rope.shape[3]], -1)
    keys = torch.einsum("bsl,hdl->bhsd", latent, w_uk)
    values = torch.einsum("bsl,hld->bhsd", latent, w_uv)
    s = torch.einsum("bthd,bhsd->bhts", q_nope, keys)
    s = (s + torch.einsum("bthr,bsr->bhts", q_rope, rope)) * scale
    t, length = s.shape[2:]
    hidden = torch.ones(t, length, dtype=torch.bool, device=s.device)
    s = s.masked_fill(hidden.triu(length - t + 1), float("-inf"))
    return torch.einsum("bhts,bhsd->bthd", torch.softmax(s, -1), values)
# --8<-- [end:absorb]

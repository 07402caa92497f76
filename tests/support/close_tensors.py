"""Whether what a kernel gives is near its truth in float64."""

from __future__ import annotations

import torch


def is_close(x: torch.Tensor, truth: torch.Tensor, limit: float = 5e-6) -> bool:
    """Whether the norm of the error is at most `limit` of the truth's."""
    x, truth = x.detach().double(), truth.detach()
    return float((x - truth).norm()) <= limit * float(truth.norm())

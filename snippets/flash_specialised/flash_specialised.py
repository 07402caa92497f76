"""FlashAttention by specialised warps on Hopper: one warpgroup loads, two take turns.

The gradients are made so as well: `backward.gradients`.

Shapes  q, out (B, H_q, S, 128); k, v (B, H_kv, S, 128), float16 or bfloat16,
        contiguous; H_q a multiple of H_kv, S of 128, B H_q S < 2**31; lse (B, H_q, S)
        float32. out = softmax(q k^T / sqrt(128)) v, over all keys or those up to a
        query's own
FLOPs   4 B H_q S^2 128, and 10 for the gradients; causal half of it
Error   relative to float64: 1e-3 for float16, 8e-3 for bfloat16; sums are float32
Raises  TypeError for other dtypes and for devices that differ; ValueError for other
        shapes, layouts, or a way that is not in WAYS
Source  flash-attention-3
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from snippets import cuda, tensor_maps

KERNELS = cuda.Source(Path(__file__).with_suffix(".cu"))
TYPES = {torch.float16: "__half", torch.bfloat16: "__nv_bfloat16"}
WAYS = {"in turn": "InTurn", "ping-pong": "PingPong", "overlapped": "Overlapped"}
TILE, DIM = 128, 128  # queries and keys of a tile, and their width
LOG2E = 1.4426950408889634
SHARED = 5 * TILE * DIM * 2 + 9 * 8  # bytes: q, two stages of k and v, the barriers


# --8<-- [start:launch]
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = False,
    way: str = "overlapped",
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse, by a way of WAYS."""
    b, h, s, d = checked(q, k, v, way)
    out, lse = torch.empty_like(q), q.new_empty((b, h, s), dtype=torch.float32)
    if not out.numel():
        return out, lse
    maps = [
        tensor_maps.tensor_map(x.view(-1, d), (rows, 64))
        for x, rows in ((out, TILE // 2), (q, TILE), (k, TILE), (v, TILE))
    ]
    # The kernel reads by the maps alone; tensors are named to whoever watches.
    numbers = np.int32(s), np.int32(h // k.shape[1]), np.float32(d**-0.5 * LOG2E)
    KERNELS.launch(
        f"flash<{TYPES[q.dtype]}, {causal:d}, {WAYS[way]}>",
        (s // TILE, b * h),
        384,
        *(out, lse, q, k, v),
        *maps,
        *numbers,
        shared=SHARED,
    )
    return out, lse
# --8<-- [end:launch]


def checked(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, way: str = "overlapped"
) -> torch.Size:
    """The shape of q, after a look at all.

    Raises:
        TypeError: a dtype is not float16 or bfloat16, or dtypes or devices differ.
        ValueError: a shape, a layout or a way is none that the kernels take.
    """
    if way not in WAYS:
        raise ValueError(
            f"flash_specialised: no way {way!r}; there are {', '.join(WAYS)}"
        )
    for name, x in {"q": q, "k": k, "v": v}.items():
        if x.dtype not in TYPES or (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(
                f"flash_specialised: {name} is {x.dtype} on {x.device} and q {q.dtype} "
                f"on {q.device}; give all in float16, or all in bfloat16, on one device"
            )
        if not x.is_contiguous() or x.data_ptr() % 16:
            raise ValueError(
                f"flash_specialised: {name} is not contiguous from a multiple of 16 "
                "bytes on; give a copy"
            )
    fits = q.ndim == k.ndim == 4 and k.shape == (len(q), k.shape[1], *q.shape[2:])
    if not fits or v.shape != k.shape or q.shape[2] % TILE or q.shape[3] != DIM:
        raise ValueError(
            f"flash_specialised: q is {tuple(q.shape)}, k {tuple(k.shape)} and v "
            f"{tuple(v.shape)}; give q as (B, H_q, S, {DIM}), k and v as (B, H_kv, S, "
            f"{DIM}), S a multiple of {TILE}"
        )
    if q.shape[1] % max(k.shape[1], 1) or q.shape[1] > 0 == k.shape[1]:
        raise ValueError(
            f"flash_specialised: {q.shape[1]} heads of q on {k.shape[1]} of k; take a "
            "multiple"
        )
    if q.shape[:3].numel() >= 2**31 or len(q) * q.shape[1] > cuda.MAX_GRID[1]:
        raise ValueError(
            f"flash_specialised: q is {tuple(q.shape)}: over 2**31 rows, or over "
            f"{cuda.MAX_GRID[1]} heads; split the batch"
        )
    return q.shape


def demo(device: str) -> None:
    """Every way, over all keys and under a causal mask, against float64."""
    from snippets.flash_specialised.backward import gradients

    draw = torch.Generator().manual_seed(0)
    q, k, v, dout = (
        torch.randn(1, h, 384, DIM, generator=draw).to(device, torch.float16)
        for h in (2, 1, 1, 2)
    )
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    future = torch.ones(384, 384, dtype=torch.bool, device=device).triu(1)
    for causal in (False, True):
        scores = exact[0] @ exact[1].mT * DIM**-0.5
        if causal:
            scores = scores.masked_fill(future, float("-inf"))
        truth = torch.softmax(scores, -1) @ exact[2]
        due = torch.autograd.grad(truth, exact, dout.double(), retain_graph=True)
        which = "causal" if causal else "all keys"
        for way in WAYS:
            out, lse = attention(q, k, v, causal, way)
            error = (out.double() - truth).norm() / truth.norm()
            logs = (lse.double() - torch.logsumexp(scores, -1)).abs().max()
            print(f"{which:8} {way:10} right: {bool(error <= 1e-3 and logs <= 1e-5)}")
        found = gradients(dout, q, k, v, out, lse, causal)
        pairs = zip(found, due, strict=True)
        errors = [(x.double() - y).norm() / y.norm() for x, y in pairs]
        print(f"{which:8} {'gradients':10} right: {max(errors) <= 2e-3}")


if __name__ == "__main__":
    if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] != 9:
        raise SystemExit("flash_specialised: wgmma is an instruction of sm_90 alone")
    demo("cuda" if torch.cuda.is_available() else "cpu")

"""FlashAttention in steps: tiles, a causal mask, shared heads, descriptors, gradients.

Shapes  q, out, dout (B, H_q, S, D); k, v (B, H_kv, S, D), float16, contiguous; H_q a
        multiple of H_kv, S of 128, D one of 16, 32, 64, 128, B H_q S < 2**31;
        lse (B, H_q, S) float32. out = softmax(q k^T / sqrt(D)) v: `tiled` over all
        keys, the other steps over those up to a query's own. `tiled` and `causal` take
        H_q = H_kv alone
FLOPs   tiled 4 B H_q S^2 D; causal half of it; backward 2.5 times that as everyone
        counts it, and 3.5 times as these two kernels work it out
Error   relative to float64: 1e-3; sums are float32
Raises  ValueError, TypeError for shapes, layouts, dtypes and devices other than these
Source  flash-attention-2, triton-fused-attention
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

M, N = 128, 64  # queries and keys of a tile
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
LN2 = tl.constexpr(0.6931471805599453)


# --8<-- [start:step]
@triton.jit
def take_in(scores, values, top, total, acc):
    """One step of the online softmax, with a tile of scores to base 2."""
    higher = tl.maximum(top, tl.max(scores, axis=1))
    p = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(top - higher)
    total = total * fade + tl.sum(p, axis=1)
    acc = tl.dot(p.to(values.dtype), values, acc * fade[:, None])
    return higher, total, acc
# --8<-- [end:step]


# --8<-- [start:tiled]
@triton.jit
def flash_tiled(out, q, k, v, s, scale2, D: tl.constexpr, M: tl.constexpr,
                N: tl.constexpr):
    head = tl.program_id(1)
    first = tl.program_id(0) * M
    row, col = first + tl.arange(0, M), tl.arange(0, D)
    own = head.to(tl.int64) * s * D
    at = own + row[:, None] * D + col[None, :]
    queries = tl.load(q + at)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, s, N):
        key = start + tl.arange(0, N)
        here = own + key[:, None] * D + col[None, :]
        keys = tl.load(k + here)
        scores = tl.dot(queries, keys.T) * scale2
        values = tl.load(v + here)
        top, total, acc = take_in(scores, values, top, total, acc)
    tl.store(out + at, (acc / total[:, None]).to(tl.float16))
# --8<-- [end:tiled]


# --8<-- [start:causal]
@triton.jit
def flash_causal(out, q, k, v, s, scale2, D: tl.constexpr, M: tl.constexpr,
                 N: tl.constexpr):
    head = tl.program_id(1)
    first = tl.program_id(0) * M
    row, col = first + tl.arange(0, M), tl.arange(0, D)
    own = head.to(tl.int64) * s * D
    at = own + row[:, None] * D + col[None, :]
    queries = tl.load(q + at)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, first, N):  # every query of the tile sees these keys
        key = start + tl.arange(0, N)
        here = own + key[:, None] * D + col[None, :]
        keys = tl.load(k + here)
        scores = tl.dot(queries, keys.T) * scale2
        values = tl.load(v + here)
        top, total, acc = take_in(scores, values, top, total, acc)
    for start in range(first, first + M, N):  # the diagonal
        key = start + tl.arange(0, N)
        here = own + key[:, None] * D + col[None, :]
        keys = tl.load(k + here)
        scores = tl.dot(queries, keys.T) * scale2
        scores = tl.where(row[:, None] >= key[None, :], scores, float("-inf"))
        values = tl.load(v + here)
        top, total, acc = take_in(scores, values, top, total, acc)
    tl.store(out + at, (acc / total[:, None]).to(tl.float16))
# --8<-- [end:causal]


# --8<-- [start:grouped]
@triton.jit
def flash_grouped(out, lse, q, k, v, s, scale2, GROUP: tl.constexpr, D: tl.constexpr,
                  M: tl.constexpr, N: tl.constexpr):
    head = tl.program_id(1)
    first = tl.program_id(0) * M
    row, col = first + tl.arange(0, M), tl.arange(0, D)
    own = head.to(tl.int64) * s * D
    shared = (head // GROUP).to(tl.int64) * s * D
    at = own + row[:, None] * D + col[None, :]
    queries = tl.load(q + at)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, first, N):  # every query of the tile sees these keys
        key = start + tl.arange(0, N)
        here = shared + key[:, None] * D + col[None, :]
        keys = tl.load(k + here)
        scores = tl.dot(queries, keys.T) * scale2
        values = tl.load(v + here)
        top, total, acc = take_in(scores, values, top, total, acc)
    for start in range(first, first + M, N):  # the diagonal
        key = start + tl.arange(0, N)
        here = shared + key[:, None] * D + col[None, :]
        keys = tl.load(k + here)
        scores = tl.dot(queries, keys.T) * scale2
        scores = tl.where(row[:, None] >= key[None, :], scores, float("-inf"))
        values = tl.load(v + here)
        top, total, acc = take_in(scores, values, top, total, acc)
    tl.store(out + at, (acc / total[:, None]).to(tl.float16))
    logarithm = (top + tl.log2(total)) * LN2
    tl.store(lse + head.to(tl.int64) * s + row, logarithm)
# --8<-- [end:grouped]


# --8<-- [start:described]
@triton.jit
def flash_described(out, lse, q, k, v, s, scale2, GROUP: tl.constexpr, D: tl.constexpr,
                    M: tl.constexpr, N: tl.constexpr):
    head = tl.program_id(1)
    first = tl.program_id(0) * M
    row = first + tl.arange(0, M)
    own = head * s
    shared = head // GROUP * s
    queries = q.load([own + first, 0])
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, first, N):  # every query of the tile sees these keys
        keys = k.load([shared + start, 0])
        scores = tl.dot(queries, keys.T) * scale2
        values = v.load([shared + start, 0])
        top, total, acc = take_in(scores, values, top, total, acc)
    for start in range(first, first + M, N):  # the diagonal
        key = start + tl.arange(0, N)
        keys = k.load([shared + start, 0])
        scores = tl.dot(queries, keys.T) * scale2
        scores = tl.where(row[:, None] >= key[None, :], scores, float("-inf"))
        values = v.load([shared + start, 0])
        top, total, acc = take_in(scores, values, top, total, acc)
    out.store([own + first, 0], (acc / total[:, None]).to(tl.float16))
    logarithm = (top + tl.log2(total)) * LN2
    tl.store(lse + own + row, logarithm)
# --8<-- [end:described]


# --8<-- [start:queries]
@triton.jit
def flash_queries(dq, lse, delta, q, k, v, dout, s, scale, GROUP: tl.constexpr,
                  D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    head = tl.program_id(1)
    first = tl.program_id(0) * M
    row = first + tl.arange(0, M)
    own = head * s
    shared = head // GROUP * s
    queries = q.load([own + first, 0])
    do = dout.load([own + first, 0])
    logarithm = tl.load(lse + own + row) * LOG2E
    row_delta = tl.load(delta + own + row)
    acc = tl.zeros([M, D], tl.float32)
    for start in range(0, first + M, N):
        key = start + tl.arange(0, N)
        keys = k.load([shared + start, 0])
        scores = tl.dot(queries, keys.T) * (scale * LOG2E)
        p = tl.exp2(scores - logarithm[:, None])  # without a maximum: lse holds it
        p = tl.where(row[:, None] >= key[None, :], p, 0.0)
        values = v.load([shared + start, 0])
        ds = p * (tl.dot(do, values.T) - row_delta[:, None])
        acc = tl.dot(ds.to(tl.float16), keys, acc)
    dq.store([own + first, 0], (acc * scale).to(tl.float16))
# --8<-- [end:queries]


# --8<-- [start:keys]
@triton.jit
def flash_keys(dk, dv, lse, delta, q, k, v, dout, s, scale, GROUP: tl.constexpr,
               D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    shared = tl.program_id(1)
    first = tl.program_id(0) * N
    key = first + tl.arange(0, N)
    keys = k.load([shared * s + first, 0])
    values = v.load([shared * s + first, 0])
    dk_sum = tl.zeros([N, D], tl.float32)
    dv_sum = tl.zeros([N, D], tl.float32)
    for head in range(shared * GROUP, shared * GROUP + GROUP):
        for start in range(first, s, M):  # the queries that see these keys
            row = start + tl.arange(0, M)
            own = head * s
            queries = q.load([own + start, 0])
            do = dout.load([own + start, 0])
            logarithm = tl.load(lse + own + row) * LOG2E
            row_delta = tl.load(delta + own + row)
            # Transposed, p is the left operand of its product: it stays in registers.
            scores = tl.dot(keys, queries.T) * (scale * LOG2E)
            p = tl.exp2(scores - logarithm[None, :])
            p = tl.where(row[None, :] >= key[:, None], p, 0.0)
            dv_sum = tl.dot(p.to(tl.float16), do, dv_sum)
            ds = p * (tl.dot(values, do.T) - row_delta[None, :])
            dk_sum = tl.dot(ds.to(tl.float16), queries, dk_sum)
    dk.store([shared * s + first, 0], (dk_sum * scale).to(tl.float16))
    dv.store([shared * s + first, 0], dv_sum.to(tl.float16))
# --8<-- [end:keys]


# --8<-- [start:launch]
def tiled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Every query sees every key."""
    return launch(flash_tiled, q, k, v)


def causal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """A query sees the keys up to its own."""
    return launch(flash_causal, q, k, v)


def launch(kernel, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    b, h, s, d = checked(q, k, v, groups=False)
    out = torch.empty_like(q)
    if out.numel():
        scale2 = d**-0.5 * LOG2E.value
        kernel[(s // M, b * h)](out, q, k, v, s, scale2, d, M, N, num_warps=8)
    return out


def grouped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse; several heads of q may share one of k and v."""
    b, h, s, d = checked(q, k, v)
    out, lse = torch.empty_like(q), q.new_empty((b, h, s), dtype=torch.float32)
    if out.numel():
        scale2, group = d**-0.5 * LOG2E.value, h // k.shape[1]
        flash_grouped[(s // M, b * h)](
            out, lse, q, k, v, s, scale2, group, d, M, N, num_warps=8
        )
    return out, lse


def described(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same; the copy engine makes the addresses."""
    b, h, s, d = checked(q, k, v)
    out, lse = torch.empty_like(q), q.new_empty((b, h, s), dtype=torch.float32)
    if out.numel():
        scale2, group = d**-0.5 * LOG2E.value, h // k.shape[1]
        sources = [rows(x, size) for x, size in ((out, M), (q, M), (k, N), (v, N))]
        flash_described[(s // M, b * h)](
            sources[0], lse, *sources[1:], s, scale2, group, d, M, N, num_warps=8
        )
    return out, lse


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq, dk, dv, from what `grouped` or `described` returned and its gradient."""
    b, h, s, d = checked(q, k, v, out=out, dout=dout, lse=lse)
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    if not q.numel():
        return dq, dk.zero_(), dv.zero_()
    delta = (out.float() * dout).sum(-1)
    group = h // k.shape[1]
    numbers = (s, d**-0.5, group, d)
    sources = [rows(x, size) for x, size in ((q, M), (k, N), (v, N), (dout, M))]
    flash_queries[(s // M, b * h)](
        rows(dq, M), lse, delta, *sources, *numbers, M, N, num_warps=8
    )
    sources = [rows(x, N) for x in (q, k, v, dout)]  # dk and dv take registers
    flash_keys[(s // N, b * h // group)](
        rows(dk, N), rows(dv, N), lse, delta, *sources, *numbers, N, N, num_warps=8
    )
    return dq, dk, dv


def rows(tensor: torch.Tensor, size: int) -> TensorDescriptor:
    """All rows of all heads as one matrix, in tiles of `size` rows."""
    d = tensor.shape[-1]
    return TensorDescriptor.from_tensor(tensor.view(-1, d), [size, d])
# --8<-- [end:launch]


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    groups: bool = True,
    **more: torch.Tensor,
) -> torch.Size:
    """The shape of q, after a look at all.

    Raises:
        TypeError: a tensor is not float16, lse not float32, or devices differ.
        ValueError: a shape or a layout is none that the kernels take.
    """
    for name, x in {"q": q, "k": k, "v": v, **more}.items():
        due = torch.float32 if name == "lse" else torch.float16
        if (x.dtype, x.device) != (due, q.device):
            raise TypeError(
                f"flash_steps: {name} is {x.dtype} on {x.device}; it must be {due} on "
                f"{q.device}, where q is"
            )
        if not x.is_contiguous() or x.data_ptr() % 16:
            raise ValueError(
                f"flash_steps: {name} is not contiguous from a multiple of 16 bytes "
                "on; give a copy"
            )
        shape = {"k": k.shape, "v": k.shape, "lse": q.shape[:-1]}.get(name, q.shape)
        if x.shape != shape:
            raise ValueError(
                f"flash_steps: {name} is {tuple(x.shape)}, not {tuple(shape)}; make k "
                "and v alike, and the rest as q"
            )
    fits = q.ndim == 4 and k.shape == (q.shape[0], *k.shape[1:2], *q.shape[2:])
    if not fits or q.shape[2] % M or q.shape[3] not in (16, 32, 64, 128):
        raise ValueError(
            f"flash_steps: q is {tuple(q.shape)} and k {tuple(k.shape)}; give both as "
            f"(B, H, S, D), S a multiple of {M} and D 16, 32, 64 or 128"
        )
    h, h_kv = q.shape[1], k.shape[1]
    if h % max(h_kv, 1) or h > 0 == h_kv or h != h_kv and not groups:
        raise ValueError(
            f"flash_steps: {h} heads of q on {h_kv} of k; take a multiple, and as many "
            "for `tiled` and `causal`"
        )
    return q.shape


def relative(x: torch.Tensor, truth: torch.Tensor) -> float:
    """How far x is from the truth, by the norms."""
    return float((x.cpu().double() - truth).norm() / truth.norm())


def demo(device: str) -> None:
    """Four heads of queries, on four of keys or on two, against float64."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, dout = (
        torch.randn(1, h, 256, 64, generator=generator).to(device, torch.float16)
        for h in (4, 2, 2, 4)
    )
    wide = [x.repeat_interleave(2, 1) for x in (k, v)]
    leaves = [x.cpu().double().requires_grad_() for x in (q, k, v)]
    s = leaves[0] @ leaves[1].repeat_interleave(2, 1).mT / 8
    value = leaves[2].repeat_interleave(2, 1)
    all_keys = (torch.softmax(s, -1) @ value).detach()
    s = s.masked_fill(torch.ones(256, 256).triu(1) > 0, float("-inf"))
    truth = torch.softmax(s, -1) @ value
    due = torch.autograd.grad(truth, leaves, dout.cpu().double())
    truth = truth.detach()
    out, lse = grouped(q, k, v)
    found = {
        "tiled": (tiled(q, *wide), all_keys),
        "causal": (causal(q, *wide), truth),
        "grouped": (out, truth),
        "described": (described(q, k, v)[0], truth),
    }
    gradients = backward(q, k, v, out, lse, dout)
    for name, x, exact in zip(("dq", "dk", "dv"), gradients, due, strict=True):
        found[name] = (x, exact)
    for name, (x, exact) in found.items():
        verdict = relative(x, exact) <= 1e-3
        print(f"{name:9s} norm {float(exact.norm()):8.3f}, within 1e-3: {verdict}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

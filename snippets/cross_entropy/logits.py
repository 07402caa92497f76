"""Cross-entropy of logits that are all in memory, and their gradients over them."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

# Without a GPU it also has papergpu execute kernels on the CPU, those below too.
from snippets.cross_entropy.cross_entropy import LOG2E, Rows, checked, merged, trivial


# --8<-- [start:naive]
@triton.jit
def cross_entropy_rows(top_out, total_out, x_ptr, n, x_stride, LOADS: tl.constexpr,
                       LANES: tl.constexpr, WIDTH: tl.constexpr):
    """Of a row: maximum, and sum of exp(x - maximum)."""
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    load = tl.arange(0, LOADS)[:, None, None]
    lane = tl.arange(0, LANES)[None, :, None]
    col = (load * LANES + lane) * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    row = tl.program_id(0).to(tl.int64)  # T * V may pass 2**31
    # Each lane has a maximum and a sum of its own: none waits before the row ends.
    top = tl.full([LANES], float("-inf"), tl.float32)
    total = tl.zeros([LANES], tl.float32)
    for start in tl.range(0, n, CHUNK):
        here = start + col
        x = tl.load(x_ptr + row * x_stride + here, mask=here < n, other=float("-inf"))
        x = x.to(tl.float32)
        higher = tl.maximum(top, tl.max(tl.max(x, axis=2), axis=0))
        # A lane that has met only -inf subtracts 0: -inf - -inf would be NaN.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp2((x - shift[None, :, None]) * LOG2E)
        total = total * tl.exp2((top - shift) * LOG2E)
        total += tl.sum(tl.sum(weight, axis=2), axis=0)
        top = higher
    row_top = tl.max(top, axis=0)
    tl.store(top_out + row, row_top)
    shift = tl.where(row_top == float("-inf"), 0.0, row_top)
    total = tl.sum(total * tl.exp2((top - shift) * LOG2E), axis=0)
    tl.store(total_out + row, total)
# --8<-- [end:naive]


# --8<-- [start:naive-backward]
@triton.jit
def cross_entropy_rows_backward(x_ptr, top_ptr, rest_ptr, target_ptr, dloss_ptr,
                                dlse_ptr, n, x_stride, CHUNK: tl.constexpr):
    """Overwrite the logits by their gradients."""
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    at = x_ptr + row * x_stride + col
    x = tl.load(at, mask=col < n, other=0.0).to(tl.float32)
    wanted, dloss = tl.load(target_ptr + row), tl.load(dloss_ptr + row)
    p = tl.exp2((x - tl.load(top_ptr + row)) * LOG2E - tl.load(rest_ptr + row))
    dx = p * (dloss + tl.load(dlse_ptr + row)) - tl.where(col == wanted, dloss, 0.0)
    tl.store(at, dx.to(x_ptr.dtype.element_ty), mask=col < n)
# --8<-- [end:naive-backward]


# --8<-- [start:logits]
def forward_of_logits(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100
) -> Rows:
    """Losses of the rows of a matrix of logits (T, V), whose columns are adjacent."""
    t, v = logits.shape
    width = 16 // logits.element_size()
    block = triton.next_power_of_2(v)
    warps = max(1, min(block // (width * 32 * 4), 16))
    loads = max(1, min(block // (width * 32 * warps), 4))
    tops, totals = torch.empty((2, 1, t), dtype=torch.float32, device=logits.device)
    legal = target.clamp(0, v - 1).long()[:, None]
    picked = logits.gather(1, legal)[:, 0].float()
    picked = picked.masked_fill((target < 0) | (target >= v), float("nan"))
    with torch.cuda.device_of(logits):
        cross_entropy_rows[(t,)](
            tops, totals, logits, v, logits.stride(0),
            LOADS=loads, LANES=32 * warps, WIDTH=width, num_warps=warps,
        )  # fmt: skip
        return merged(picked, tops, totals, target, ignore_index)


def backward_of_logits_(
    logits: torch.Tensor,
    target: torch.Tensor,
    top: torch.Tensor,
    rest: torch.Tensor,
    dloss: torch.Tensor,
    dlse: torch.Tensor,
    ignore_index: int = -100,
) -> torch.Tensor:
    """Write the gradients of the logits over them, and return them."""
    dloss = dloss.masked_fill(target == ignore_index, 0).contiguous()
    t, v = logits.shape
    chunk = 32768 // logits.element_size()  # 128 bytes for each of 256 threads
    with torch.cuda.device_of(logits):
        cross_entropy_rows_backward[(t, triton.cdiv(v, chunk))](
            logits, top, rest, target, dloss, dlse, v, logits.stride(0),
            CHUNK=chunk, num_warps=8,
        )  # fmt: skip
    return logits


def given(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int = -100
) -> tuple[torch.Tensor, torch.Tensor]:
    """loss and lse of logits (T, V) that are there already, columns adjacent.

    Raises ValueError for other layouts, and what `checked` raises.
    """
    if logits.ndim != 2 or logits.shape[1] > 1 and logits.stride(1) != 1:
        raise ValueError(
            f"cross_entropy: logits {tuple(logits.shape)} with strides "
            f"{logits.stride()}; give a matrix whose columns are adjacent"
        )
    # As a product with a matrix of no columns would be: it has the rows and the words.
    none = logits.new_empty((logits.shape[1], 0))
    checked(logits[:, :0], none, target, ignore_index)
    if not logits.numel():
        return trivial(logits, logits.shape[1], target, ignore_index)[:2]
    return forward_of_logits(logits, target.contiguous(), ignore_index)[:2]


def whole(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    dloss: torch.Tensor | None = None,
    dlse: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """The naive way, all logits in memory: loss and lse; with dloss gradients too."""
    told = {"dloss": dloss, "dlse": dlse}
    t, v, d = checked(hidden, weight, target, ignore_index, **told)
    if not (t and v and d):
        rows = trivial(hidden, v, target, ignore_index)
        none = torch.zeros_like(hidden), torch.zeros_like(weight)
        return rows[:2] if dloss is None else (*rows[:2], *none)
    logits = hidden @ weight.T  # rounded to the dtype of both
    target = target.contiguous()
    rows = forward_of_logits(logits, target, ignore_index)
    if dloss is None:
        return rows[:2]
    dlse = torch.zeros_like(dloss) if dlse is None else dlse
    dx = backward_of_logits_(
        logits, target, rows.top, rows.rest, dloss, dlse.contiguous(), ignore_index
    )
    return *rows[:2], dx @ weight, dx.T @ hidden
# --8<-- [end:logits]

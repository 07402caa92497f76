"""SwiGLU fused moves three tensors forwards and five backwards, not five and eleven.

Shapes  forward: gate, up (..., F) -> y as gate, y = silu(gate) * up with
        silu(g) = g / (1 + exp(-g)); packed: x (..., 2 F) -> y (..., F), where gate is
        the left half of each row and up the right. backward: dy as y, gate, up ->
        dgate, dup; packed: dy, x -> dx as x. All of one dtype: float32, float16 or
        bfloat16; any strides
Bytes   forward: gate and up read once, y written once; backward: dy, gate and up read
        once, dgate and dup written once. silu is not kept but computed again
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; all is float32
        on chip. Any finite gate is safe; as in PyTorch, silu(-inf) is NaN
Raises  ValueError for shapes that do not fit, an odd 2 F, or in place where elements
        share memory; TypeError for other dtypes, or several dtypes or devices
Source  liger-kernel, glu-variants
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.language.extra import libdevice

WARPS = 4
BYTES = 32  # of each tensor for a thread: two loads of 16, so forwards four in flight


# --8<-- [start:kernel]
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction


@triton.jit
def sigmoid(g):
    # exp2 overflows to inf below -88, and 1 / inf is 0: no branch and no NaN. The fast
    # quotient is off by two units in the last place, of float32.
    return libdevice.fast_dividef(1.0, 1.0 + tl.exp2(g * -LOG2E))


@triton.jit
def place(m, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """Rows and columns of this program's tile, and which of them there are."""
    across = tl.cdiv(n, COLS)
    # int64: M * F may pass 2**31, and dense tensors come as a single row.
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    first = (tl.program_id(0) % across).to(tl.int64) * COLS
    col = first + tl.arange(0, COLS)[None, :]
    here = col < n
    if ROWS > 1:
        here = here & (row < m)
    return row, col, here


# --8<-- [start:forward]
@triton.jit
def swiglu_forward(y_ptr, gate_ptr, up_ptr, m, n, y_stride, gate_stride, up_stride,
                   ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col, here = place(m, n, ROWS, COLS)
    g = tl.load(gate_ptr + row * gate_stride + col, mask=here,
                eviction_policy="evict_first").to(tl.float32)
    u = tl.load(up_ptr + row * up_stride + col, mask=here,
                eviction_policy="evict_first").to(tl.float32)
    y = g * sigmoid(g) * u
    tl.store(y_ptr + row * y_stride + col, y.to(y_ptr.dtype.element_ty), mask=here)
# --8<-- [end:forward]


# --8<-- [start:backward]
@triton.jit
def swiglu_backward(dgate_ptr, dup_ptr, dy_ptr, gate_ptr, up_ptr, m, n, dgate_stride,
                    dup_stride, dy_stride, gate_stride, up_stride,
                    ROWS: tl.constexpr, COLS: tl.constexpr):
    # A thread reads all it needs of an element before it writes: dgate and dup may be
    # where gate and up are.
    row, col, here = place(m, n, ROWS, COLS)
    g = tl.load(gate_ptr + row * gate_stride + col, mask=here,
                eviction_policy="evict_first").to(tl.float32)
    u = tl.load(up_ptr + row * up_stride + col, mask=here,
                eviction_policy="evict_first").to(tl.float32)
    dy = tl.load(dy_ptr + row * dy_stride + col, mask=here,
                 eviction_policy="evict_first").to(tl.float32)
    share = sigmoid(g)
    silu = g * share
    # 1 - share is 0 where gate is large: its product with g cannot overflow.
    slope = share + silu * (1.0 - share)
    dgate, dup = dy * u * slope, dy * silu
    tl.store(dgate_ptr + row * dgate_stride + col,
             dgate.to(dgate_ptr.dtype.element_ty), mask=here)
    tl.store(dup_ptr + row * dup_stride + col, dup.to(dup_ptr.dtype.element_ty),
             mask=here)
# --8<-- [end:backward]
# --8<-- [end:kernel]


# --8<-- [start:unfused]
# --8<-- [start:twice]
@triton.jit
def swiglu_silu(s_ptr, gate_ptr, m, n, s_stride, gate_stride,
                ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col, here = place(m, n, ROWS, COLS)
    g = tl.load(gate_ptr + row * gate_stride + col, mask=here).to(tl.float32)
    s = g * sigmoid(g)
    tl.store(s_ptr + row * s_stride + col, s.to(s_ptr.dtype.element_ty), mask=here)


@triton.jit
def swiglu_product(y_ptr, a_ptr, b_ptr, m, n, y_stride, a_stride, b_stride,
                   ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col, here = place(m, n, ROWS, COLS)
    a = tl.load(a_ptr + row * a_stride + col, mask=here).to(tl.float32)
    b = tl.load(b_ptr + row * b_stride + col, mask=here).to(tl.float32)
    tl.store(y_ptr + row * y_stride + col, (a * b).to(y_ptr.dtype.element_ty),
             mask=here)
# --8<-- [end:twice]


@triton.jit
def swiglu_silu_backward(dgate_ptr, ds_ptr, gate_ptr, m, n, dgate_stride, ds_stride,
                         gate_stride, ROWS: tl.constexpr, COLS: tl.constexpr):
    row, col, here = place(m, n, ROWS, COLS)
    g = tl.load(gate_ptr + row * gate_stride + col, mask=here).to(tl.float32)
    ds = tl.load(ds_ptr + row * ds_stride + col, mask=here).to(tl.float32)
    share = sigmoid(g)
    dgate = ds * (share + g * share * (1.0 - share))
    tl.store(dgate_ptr + row * dgate_stride + col,
             dgate.to(dgate_ptr.dtype.element_ty), mask=here)
# --8<-- [end:unfused]


# --8<-- [start:launch]
def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """View (..., F) as (M, F) with adjacent columns; a copy where there is none."""
    f = tensor.shape[-1]
    rows = tensor.reshape(tensor.numel() // f if f else 0, f)
    # A column stride would turn each 16-byte load into eight scattered ones.
    return rows if f <= 1 or rows.stride(1) == 1 else rows.contiguous()


def launch(kernel, *tensors: torch.Tensor) -> None:
    """Run an element-wise kernel over (M, F) tensors of adjacent columns."""
    m, n = tensors[0].shape
    if m == 0 or n == 0:
        return
    if all(tensor.is_contiguous() for tensor in tensors):
        m, n = 1, m * n  # rows without gaps are one: no lane is idle at a row's end
    strides = [tensor.stride(0) if m > 1 else n for tensor in tensors]
    elements = WARPS * 32 * BYTES // tensors[0].element_size()
    cols = min(elements, triton.next_power_of_2(n))
    rows = min(elements // cols, triton.next_power_of_2(m))
    with torch.cuda.device_of(tensors[0]):
        kernel[(triton.cdiv(n, cols) * triton.cdiv(m, rows),)](
            *tensors, m, n, *strides, ROWS=rows, COLS=cols, num_warps=WARPS
        )


def forward(
    gate: torch.Tensor, up: torch.Tensor, variant: str = "fused"
) -> torch.Tensor:
    """silu(gate) * up."""
    check({"gate": gate, "up": up})
    sources = rows_of(gate), rows_of(up)
    y = torch.empty(sources[0].shape, dtype=gate.dtype, device=gate.device)
    if variant == "fused":
        launch(swiglu_forward, y, *sources)
    else:
        s = torch.empty_like(y)
        launch(swiglu_silu, s, sources[0])
        launch(swiglu_product, y, s, sources[1])
    return y.view(gate.shape)


def backward(
    dy: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    variant: str = "fused",
    into: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """dgate and dup; `into` (gate, up) where nobody needs these any more."""
    check({"gate": gate, "up": up, "dy": dy})
    if into is not None:
        check({"gate": gate, "dgate": into[0], "dup": into[1]})
    outs = [torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
            for _ in range(2)] if into is None else into  # fmt: skip
    targets = [rows_of(out) for out in outs]
    for name, out, rows in zip(("dgate", "dup"), outs, targets, strict=True):
        if out.numel() and rows.data_ptr() != out.data_ptr() or shared(out):
            raise ValueError(
                f"swiglu: {name} has strides {out.stride()} and cannot be written in "
                "place; give it adjacent columns, each element its own"
            )
    sources = rows_of(dy), rows_of(gate), rows_of(up)
    if variant == "fused":
        launch(swiglu_backward, *targets, *sources)
    else:
        s, ds = torch.empty_like(sources[0]), torch.empty_like(sources[0])
        launch(swiglu_silu, s, sources[1])
        launch(swiglu_product, ds, sources[0], sources[2])
        launch(swiglu_product, targets[1], sources[0], s)
        launch(swiglu_silu_backward, targets[0], ds, sources[1])
    return outs[0], outs[1]


def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """gate and up of a packed x: views, whose rows lie twice as far apart."""
    if x.ndim == 0 or x.shape[-1] % 2:
        raise ValueError(
            f"swiglu: x is {tuple(x.shape)}, whose rows have no halves; give it 2 F "
            "columns"
        )
    f = x.shape[-1] // 2
    return x[..., :f], x[..., f:]


def backward_packed(
    dy: torch.Tensor, x: torch.Tensor, variant: str = "fused"
) -> torch.Tensor:
    """dx, both halves written by the same kernel: nothing is joined afterwards."""
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    backward(dy, *halves(x), variant, halves(dx))
    return dx
# --8<-- [end:launch]


def shared(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie at one address."""
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach = max(reach, stride * size)
    return False


def check(named: dict[str, torch.Tensor]) -> None:
    """See that all tensors are like the first.

    Raises:
        TypeError: a dtype is none of the three, or dtypes or devices differ.
        ValueError: shapes differ, or have no dimension.
    """
    (name, gate), *others = named.items()
    if gate.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"swiglu: {name} is {gate.dtype}, none of float32, float16, bfloat16; "
            "convert it first"
        )
    if gate.device.type == "meta":
        raise TypeError(f"swiglu: {name} is on meta; bring all to one GPU")
    if gate.ndim == 0:
        raise ValueError(f"swiglu: {name} has 0 dimensions and so no row; give it one")
    for other, tensor in others:
        if (tensor.dtype, tensor.device) != (gate.dtype, gate.device):
            raise TypeError(
                f"swiglu: {other} is {tensor.dtype} on {tensor.device}, but {name} "
                f"{gate.dtype} on {gate.device}; bring them together"
            )
        if tensor.shape != gate.shape:
            raise ValueError(
                f"swiglu: {other} is {tuple(tensor.shape)}, but {name} "
                f"{tuple(gate.shape)}; give both one shape"
            )


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::swiglu", mutates_args=())
def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return forward(gate, up)


@torch.library.custom_op("warpshelf::swiglu_backward", mutates_args=())
def gated_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return backward(dy, gate, up)


@torch.library.custom_op("warpshelf::swiglu_packed", mutates_args=())
def packed(x: torch.Tensor) -> torch.Tensor:
    return forward(*halves(x))


@torch.library.custom_op("warpshelf::swiglu_packed_backward", mutates_args=())
def packed_backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return backward_packed(dy, x)


@gated.register_fake
def _(gate, up):
    return gate.new_empty(gate.shape)


@gated_backward.register_fake
def _(dy, gate, up):
    return gate.new_empty(gate.shape), up.new_empty(up.shape)


@packed.register_fake
def _(x):
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


@packed_backward.register_fake
def _(dy, x):
    return x.new_empty(x.shape)


def remember(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs)


# Never in place: a graph may be run twice, and others may have saved the same gate.
gated.register_autograd(
    lambda ctx, dy: gated_backward(dy, *ctx.saved_tensors), setup_context=remember
)
packed.register_autograd(
    lambda ctx, dy: packed_backward(dy, *ctx.saved_tensors), setup_context=remember
)


def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, differentiable; of one packed tensor if up is left out."""
    if up is None:
        check(dict(zip(("gate", "up"), halves(gate), strict=True)))
        return packed(gate)
    check({"gate": gate, "up": up})
    return gated(gate, up)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Gates at which exp overflows, the gradient against float64, and a refusal."""
    gate = torch.tensor([-1e4, -89.0, -1.0, 0.0, 1.0, 1e4], device=device)
    values = swiglu(gate, torch.full_like(gate, 2)).tolist()
    print("2 silu(gate):", " ".join(f"{value + 0.0:.4f}" for value in values))
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(64, n, generator=generator) for n in (1562, 781))
    leaf = x.to(device).requires_grad_()
    y = swiglu(leaf)
    (dx,) = torch.autograd.grad(y, leaf, dy.to(device))
    exact = x.double().requires_grad_()
    truth = torch.nn.functional.silu(exact[:, :781]) * exact[:, 781:]
    (due,) = torch.autograd.grad(truth, exact, dy.double())
    for name, got, want in (("y", y, truth), ("dx", dx, due)):
        close = bool((got.cpu().double() - want).norm() <= 5e-6 * want.norm())
        print(f"{name}: 64 packed rows of 2 * 781 within 5e-6 of float64: {close}")
    try:
        swiglu(torch.zeros(2, 7, device=device))
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

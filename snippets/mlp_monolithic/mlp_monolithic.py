"""A whole MLP in one kernel: its programs stay, and meet at a barrier after each layer.

Shapes  x (..., K), weights[i] (N_i, K_i) as torch.nn.Linear keeps them, biases[i]
        (N_i,) -> y (..., N_last) contiguous. Each layer but the last is followed by
        the activation; with "swiglu" such a weight has 2 F rows, gate above up, and
        the next layer takes F columns: silu(gate) * up. At most MAX_M rows of x; any
        number of layers; any strides but that a weight's columns are adjacent; all
        float16, all bfloat16 or all float32
Bytes   each weight read once, from HBM; what lies between layers stays in the L2 cache
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16 for each layer;
        sums are float32, in one order: the same inputs and programs, the same bits
Raises  ValueError, TypeError for shapes, dtypes, devices, rows, activations but these,
        and for more programs than can be resident at once
Source  mononn, learn-cuda-megakernel
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

MAX_M = 16  # rows that one matrix instruction takes: fewer cost the same
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = (None, "relu", "silu", "gelu_tanh", "swiglu")
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
ROWS = tl.constexpr(MAX_M)
COLS = 32  # columns of y in a tile; x is read once for each 32 (swiglu: 64) weight rows
AHEAD = tl.constexpr(8)  # steps to fetch at a barrier: 64 KB an SM, 8.4 MB on 132
BYTES = 256  # of a row of weights at a time: 16 lanes of 16 bytes
STAGES = 6  # five tiles of 8 KB on the way: 40 KB an SM, where 3.35 TB/s needs 15
FEWER = 5  # where a block has 99 KiB: six would take 100


# --8<-- [start:barrier]
@triton.jit
def arrive(counter):
    """Say that all that this program wrote is written."""
    tl.debug_barrier()  # one thread counts, for the stores of all
    tl.atomic_add(counter, 1, sem="release", scope="gpu")


@triton.jit
def wait(counter, all_of_them):
    """Wait until all have arrived: what they wrote may be read."""
    while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < all_of_them:
        pass
    tl.debug_barrier()  # one thread has seen it, for the loads of all


@triton.jit
def leave(counter, rounds):
    """The last to go sets the counter back to 0, for the next launch."""
    before = tl.atomic_add(counter, 1, sem="relaxed", scope="gpu")
    if before == rounds * tl.num_programs(0) - 1:
        tl.atomic_xchg(counter, 0, sem="relaxed", scope="gpu")
# --8<-- [end:barrier]


# --8<-- [start:finish]
@triton.jit
def sigmoid(t):
    return 1 / (1 + tl.exp2(-LOG2E * t))


@triton.jit
def activate(z, up, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        z = tl.where(z < 0, 0.0, z)  # and NaN stays
    elif ACTIVATION == "silu":
        z = z * sigmoid(z)
    elif ACTIVATION == "swiglu":
        z = z * sigmoid(z) * up
    elif ACTIVATION == "gelu_tanh":  # (1 + tanh(u)) / 2 is sigmoid(2 u)
        z = z * sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))
    return z


@triton.jit
def finish(y, y_stride, acc, up, bias, first_col, m, n,
           ACTIVATION: tl.constexpr):
    """Bias and activation of a tile whose sum is whole."""
    row = tl.arange(0, ROWS)
    col = first_col + tl.arange(0, acc.shape[1])
    if bias is not None:
        at = bias + col
        acc += tl.load(at, mask=col < n, other=0.0).to(tl.float32)[None, :]
        if ACTIVATION == "swiglu":
            at += n
            up += tl.load(at, mask=col < n, other=0.0).to(tl.float32)[None, :]
    z = activate(acc, up, ACTIVATION)
    tl.store(y + row.to(tl.int64)[:, None] * y_stride + col[None, :],
             z.to(y.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])
# --8<-- [end:finish]


# --8<-- [start:layer]
@triton.jit
def share_of(k, n, program, programs, COLS: tl.constexpr, DEEP: tl.constexpr):
    """Steps of a tile, of a program, and this program's first and last, all tiles in a
    row: no program has more than one step more than it must."""
    steps = tl.maximum(tl.cdiv(k, DEEP), 1)
    total = tl.cdiv(n, COLS) * steps
    each = tl.maximum(tl.cdiv(total, programs), 1)
    first = tl.minimum(program * each, total)
    return steps, each, first, tl.minimum(first + each, total)


@triton.jit
def layer(y, y_stride, x, x_stride, w, w_stride, bias, parts, counts, m, n, k,
          program, programs, COLS: tl.constexpr, DEEP: tl.constexpr,
          ACTIVATION: tl.constexpr):
    """This program's share of activation(x w^T + bias)."""
    steps, each, now, end = share_of(k, n, program, programs, COLS, DEEP)
    row = tl.arange(0, ROWS)
    deep = tl.arange(0, DEEP)
    size: tl.constexpr = ROWS * COLS
    inner = row[:, None] * COLS + tl.arange(0, COLS)[None, :]
    while now < end:
        tile = now // steps
        first = now % steps
        last = tl.minimum(first + end - now, steps)
        col = tile * COLS + tl.arange(0, COLS)
        # int64: an offset into a weight may pass 2**31.
        x_at = x + row.to(tl.int64)[:, None] * x_stride
        w_at = w + col.to(tl.int64)[None, :] * w_stride
        up_at = w_at + n.to(tl.int64) * w_stride
        acc = tl.zeros([ROWS, COLS], tl.float32)
        up = tl.zeros([ROWS, COLS], tl.float32)
        for step in range(first, last):
            at = step * DEEP + deep
            a = tl.load(x_at + at[None, :],
                        mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
            there = (at < k)[:, None] & (col < n)[None, :]
            down = at[:, None]
            acc = tl.dot(a, tl.load(w_at + down, mask=there, other=0.0), acc,
                         input_precision="ieee")
            if ACTIVATION == "swiglu":
                up = tl.dot(a, tl.load(up_at + down, mask=there, other=0.0), up,
                            input_precision="ieee")
        whole = last - first == steps
        if not whole:
            # Each leaves its part; the last to come adds all, in the programs' order.
            slot = parts + (2 * program + (first == 0).to(tl.int32)) * 2 * size
            tl.store(slot + inner, acc)
            if ACTIVATION == "swiglu":
                tl.store(slot + size + inner, up)
            first_of = tile * steps // each
            last_of = (tile * steps + steps - 1) // each
            tl.debug_barrier()  # one thread counts, for the stores of all
            before = tl.atomic_add(counts + tile, 1, sem="acq_rel", scope="gpu")
            if before == last_of - first_of:
                tl.debug_barrier()
                whole = True
                acc = tl.zeros([ROWS, COLS], tl.float32)
                up = tl.zeros([ROWS, COLS], tl.float32)
                for other in range(first_of, last_of + 1):
                    own = 2 * other + (other == first_of).to(tl.int32)
                    of = parts + own * 2 * size
                    acc += tl.load(of + inner)
                    if ACTIVATION == "swiglu":
                        up += tl.load(of + size + inner)
                tl.atomic_xchg(counts + tile, 0, sem="relaxed", scope="gpu")
        if whole:
            finish(y, y_stride, acc, up, bias, tile * COLS, m, n, ACTIVATION)
        now += last - first
# --8<-- [end:layer]


# --8<-- [start:fetch]
@triton.jit
def fetch(w, w_stride, n, k, program, programs, COLS: tl.constexpr,
          DEEP: tl.constexpr, GATED: tl.constexpr):
    """Have the L2 cache fetch the first AHEAD steps of this program's share."""
    steps, each, first, end = share_of(k, n, program, programs, COLS, DEEP)
    LINE: tl.constexpr = 1024 // w.dtype.element_ty.primitive_bitwidth  # 128 bytes
    line = tl.arange(0, DEEP // LINE) * LINE
    if k > 0:
        for now in range(first, tl.minimum(end, first + AHEAD)):
            # Past an edge the last row or element is asked for again: it is on its way.
            col = tl.minimum(now // steps * COLS + tl.arange(0, COLS), n - 1)
            at = tl.minimum(now % steps * DEEP + line, k - 1)
            lines = w + col.to(tl.int64)[:, None] * w_stride + at[None, :]
            fetch_line(lines)
            if GATED:
                fetch_line(lines + n.to(tl.int64) * w_stride)


@triton.jit
def fetch_line(lines):
    tl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l",
                              [lines], dtype=tl.int32, is_pure=False, pack=1)
# --8<-- [end:fetch]


# --8<-- [start:chain]
@triton.jit
def mlp_layer(y, y_stride, x, x_stride, w, w_stride, bias, parts, counts, m, n, k,
              COLS: tl.constexpr, DEEP: tl.constexpr, ACTIVATION: tl.constexpr):
    layer(y, y_stride, x, x_stride, w, w_stride, bias, parts, counts, m, n, k,
          tl.program_id(0), tl.num_programs(0), COLS, DEEP, ACTIVATION)
# --8<-- [end:chain]


# --8<-- [start:kernel]
@triton.jit
def mlp_whole(outs, out_strides, x, x_stride, weights, weight_strides, biases,
              widths, parts, counts, meeting, m, k, COLS: tl.constexpr,
              DEEP: tl.constexpr, ACTIVATION: tl.constexpr):
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    LAYERS: tl.constexpr = len(weights)
    for i in tl.static_range(LAYERS):
        if i == 0:
            layer(outs[0], out_strides[0], x, x_stride, weights[0], weight_strides[0],
                  biases[0], parts, counts, m, widths[0], k, program,
                  programs, COLS, DEEP, ACTIVATION if LAYERS > 1 else None)
        else:
            arrive(meeting)
            # What others do not write need not wait for them: ask for the weights now.
            fetch(weights[i], weight_strides[i], widths[i], widths[i - 1], program,
                  programs, COLS, DEEP, ACTIVATION == "swiglu" and i + 1 < LAYERS)
            wait(meeting, i * programs)
            layer(outs[i], out_strides[i], outs[i - 1], out_strides[i - 1],
                  weights[i], weight_strides[i], biases[i], parts, counts,
                  m, widths[i], widths[i - 1], program, programs, COLS, DEEP,
                  ACTIVATION if i + 1 < LAYERS else None)
    if LAYERS > 1:
        leave(meeting, LAYERS)
# --8<-- [end:kernel]


# --8<-- [start:launch]
def resident(device: torch.device) -> int:
    """Programs that run at once whatever they need: one for each multiprocessor."""
    if device.type != "cuda":
        if torch.cuda.is_available():
            raise ValueError(f"mlp_monolithic: x is on {device}, no GPU; move it there")
        return 4  # so few that tiles of small cases are shared
    return torch.cuda.get_device_properties(device).multi_processor_count


def stages() -> int:
    """Tiles in flight, and one more, for which a block of the current GPU has room."""
    roomy = (80, 87, 90, 100, 103)
    sm = triton.runtime.driver.active.get_current_target().arch
    return STAGES if sm in roomy else FEWER


# Counters are 0 between launches: each launch leaves them so, also in a CUDA graph.
# Of a stream they are used by one launch at a time.
COUNTERS: dict[tuple, torch.Tensor] = {}


def counters(device: torch.device, tiles: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A counter for each tile and the one of the barrier, for this stream."""
    on_gpu = torch.cuda.is_available()
    stream = torch.cuda.current_stream(device).cuda_stream if on_gpu else 0
    size = triton.next_power_of_2(tiles + 1)
    key = device, stream, size  # none is ever replaced: a graph may have its address
    if key not in COUNTERS:
        COUNTERS[key] = torch.zeros(size, dtype=torch.int32, device=device)
    return COUNTERS[key][1:], COUNTERS[key]


def forward(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor] = (),
    activation: str | None = "relu",
    variant: str = "monolithic",
    programs: int | None = None,
) -> torch.Tensor:
    """The MLP by one kernel, or by a "chain" of them, one a layer."""
    widths = check(x, weights, biases, activation)
    limit = resident(x.device)
    programs = limit if programs is None else programs
    if not 1 <= programs <= limit:
        raise ValueError(
            f"mlp_monolithic: {programs} programs, but {limit} multiprocessors hold "
            "one each for certain, and who waits for one that never starts waits for "
            f"ever; take 1 to {limit}"
        )
    rows = x.reshape(-1, x.shape[-1]) if x.numel() else x.new_empty(
        x.shape[:-1].numel(), x.shape[-1])  # fmt: skip
    if rows.shape[-1] > 1 and rows.stride(1) != 1:
        rows = rows.contiguous()  # MAX_M rows are soon copied; weights would not be
    m, k = rows.shape
    outs = tuple(x.new_empty(m, n) for n in widths)
    if m and widths[-1]:
        tiles = max(triton.cdiv(n, COLS) for n in widths)
        counts, meeting = counters(x.device, tiles)
        parts = x.new_empty(programs * 4 * MAX_M * COLS, dtype=torch.float32)
        given = [bias.contiguous() for bias in biases] or [None] * len(weights)
        options = {"COLS": COLS, "DEEP": BYTES // x.element_size(), "num_warps": 4,
                   "num_stages": stages()}  # fmt: skip
        with torch.cuda.device_of(x):
            if variant == "chain":
                for i, w in enumerate(weights):
                    last = i + 1 == len(weights)
                    mlp_layer[(programs,)](
                        outs[i], widths[i], rows, rows.stride(0), w, w.stride(0),
                        given[i], parts, counts, m, widths[i], k,
                        ACTIVATION=None if last else activation, **options,
                    )  # fmt: skip
                    rows, k = outs[i], widths[i]
            else:
                # Cooperative: the driver starts all programs together, or refuses.
                mlp_whole[(programs,)](
                    outs, tuple(widths), rows, rows.stride(0), tuple(weights),
                    tuple(w.stride(0) for w in weights), tuple(given), tuple(widths),
                    parts, counts, meeting, m, k,
                    ACTIVATION=activation, launch_cooperative_grid=True, **options,
                )  # fmt: skip
    return outs[-1].view(*x.shape[:-1], widths[-1])
# --8<-- [end:launch]


def check(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    activation: str | None,
) -> list[int]:
    """The columns that leave each layer.

    Raises:
        TypeError: a dtype is none of the three, or dtypes or devices differ.
        ValueError: shapes do not fit, x has too many rows, or the activation is none
            of ours.
    """
    if activation not in ACTIVATIONS:
        known = ", ".join(map(str, ACTIVATIONS))
        raise ValueError(
            f"mlp_monolithic: activation {activation!r} is unknown; take one of {known}"
        )
    if x.dtype not in DTYPES:
        raise TypeError(
            f"mlp_monolithic: x is {x.dtype}, none of float32, float16, bfloat16; "
            "convert it first"
        )
    if not weights or len(biases) not in (0, len(weights)):
        raise ValueError(
            f"mlp_monolithic: {len(weights)} weights and {len(biases)} biases; give at "
            "least one weight, and a bias for each or for none"
        )
    named = {f"weights[{i}]": w for i, w in enumerate(weights)}
    named |= {f"biases[{i}]": bias for i, bias in enumerate(biases)}
    for name, tensor in named.items():
        if (tensor.dtype, tensor.device) != (x.dtype, x.device):
            raise TypeError(
                f"mlp_monolithic: {name} is {tensor.dtype} on {tensor.device}, but x "
                f"{x.dtype} on {x.device}; bring them together"
            )
    if x.ndim == 0 or x.shape[:-1].numel() > MAX_M:
        raise ValueError(
            f"mlp_monolithic: x is {tuple(x.shape)}, not 0 to {MAX_M} rows; give it a "
            "dimension or two, and take matmul for more rows"
        )
    width, widths = x.shape[-1], []
    for i, w in enumerate(weights):
        gated = activation == "swiglu" and i + 1 < len(weights)
        if w.ndim != 2 or w.shape[1] != width or gated and w.shape[0] % 2:
            rows = "an even number of rows" if gated else "rows"
            raise ValueError(
                f"mlp_monolithic: weights[{i}] is {tuple(w.shape)}; give it {rows} of "
                f"{width}, as many as come from before it"
            )
        if width > 1 and w.stride(1) != 1:
            raise ValueError(
                f"mlp_monolithic: weights[{i}] has strides {w.stride()}, so each "
                "column would be a read of its own; give it adjacent columns"
            )
        if biases and biases[i].shape != w.shape[:1]:
            raise ValueError(
                f"mlp_monolithic: biases[{i}] is {tuple(biases[i].shape)}, but weights"
                f"[{i}] {tuple(w.shape)}; give it an element for each row"
            )
        width = w.shape[0] // 2 if gated else w.shape[0]
        widths.append(width)
    return widths


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::mlp_monolithic", mutates_args=())
def mlp(
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor],
    activation: str | None = "relu",
) -> torch.Tensor:
    """For inference: it has no gradient."""
    return forward(x, weights, biases, activation)


@mlp.register_fake
def _(x, weights, biases, activation="relu"):
    return x.new_empty(*x.shape[:-1], weights[-1].shape[0])
# --8<-- [end:operator]


def demo(device: str) -> None:
    """One launch for four layers, the same bits twice, and two refusals."""
    generator = torch.Generator().manual_seed(0)
    sides = (70, 200, 90, 130, 40)
    weights = [torch.randn(n, k, generator=generator) / k**0.5
               for k, n in zip(sides, sides[1:], strict=False)]  # fmt: skip
    x = torch.randn(3, 70, generator=generator)
    h = x.double()
    for i, w in enumerate(weights):
        h = h @ w.double().T
        h = h.relu() if i < 3 else h
    there = [w.to(device) for w in weights]
    y = mlp(x.to(device), there, [], "relu")
    error = (y.cpu().double() - h).norm() / h.norm()
    print(f"four layers in one launch, within 5e-6 of float64: {bool(error < 5e-6)}")
    again = mlp(x.to(device), there, [], "relu")
    print(f"the same bits again: {torch.equal(y, again)}")
    chain = forward(x.to(device), there, variant="chain")
    print(f"the same bits by a chain of four launches: {torch.equal(y, chain)}")
    for rows in (torch.zeros(17, 70, device=device), torch.zeros(1, 71, device=device)):
        try:
            mlp(rows, there, [], "relu")
        except ValueError as error:
            print(error)


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

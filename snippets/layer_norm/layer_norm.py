"""LayerNorm takes the mean before the variance, in one read or merged chunk by chunk.

Shapes  forward: x (..., N), weight and bias (N,) or None -> y as x, of its dtype, mean
        and rstd (M,) float32: mean and var are those of a row, var by N and not N - 1,
        rstd = 1 / sqrt(var + eps) and y = (x - mean) * rstd * weight + bias.
        backward: dy as y -> dx as x, dweight and dbias (N,) of the dtypes of theirs:
        with x_hat = (x - mean) * rstd and g = dy * weight,
        dx = rstd * (g - mean(g) - x_hat * mean(g * x_hat)) by rows,
        dweight = sum(dy * x_hat) and dbias = sum(dy) over rows. Each tensor is float32,
        float16 or bfloat16, and has any strides; M rows in all
Bytes   forward: x read once, y written once; backward: x and dy read once, dx written
        once. Weight and bias are small beside them
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are
        float32. The same inputs give the same bits on the same GPU
Raises  ValueError if "one pass" is given rows of more bytes than MAX_BYTES, or shapes
        that do not fit; TypeError for other dtypes, or tensors on several devices
Source  layer-norm, triton-layer-norm, liger-kernel, chan-variance
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl
from triton.language.extra import libdevice

# Bytes of a row of x that a program holds: 32 for each of 1024 threads of 64 registers.
# Backwards half of that, since dy, the weight and two sums over rows are there too.
MAX_BYTES = {"forward": 32_768, "backward": 16_384}
LOADS = 2  # 16-byte loads that a thread of "two reads" has in flight; 4 spill


# --8<-- [start:forward]
@triton.jit
def layer_norm_one_pass(y_ptr, mean_ptr, rstd_ptr, x_ptr, w_ptr, b_ptr, m, n, x_stride,
                        eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # int64: M * N may pass 2**31. Rows past the end repeat the last, and are dropped.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    source = tl.minimum(row, m - 1)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + source * x_stride + col, mask=col < n, other=0.0,
                eviction_policy="evict_first")
    if w_ptr is not None:  # asked for now, so that it comes while the row is summed
        w = tl.load(w_ptr + col, mask=col < n, other=0.0, eviction_policy="evict_last")
    x = x.to(tl.float32)
    mean = tl.sum(x, axis=1) / n
    # The row is here: to subtract first costs no read, and nothing cancels in squares.
    x = tl.where(col < n, x - mean[:, None], 0.0)
    # As x * x it would be fused with the addition of a neighbour lane, a * a + b * b,
    # one product rounded and the other not: lanes would differ in the sum of a row.
    rstd = tl.rsqrt(tl.sum(libdevice.mul_rn(x, x), axis=1) / n + eps)
    tl.store(mean_ptr + row, mean, mask=row < m)
    tl.store(rstd_ptr + row, rstd, mask=row < m)
    y = x * rstd[:, None]
    if w_ptr is not None:
        y = y * w.to(tl.float32)
    if b_ptr is not None:
        b = tl.load(b_ptr + col, mask=col < n, other=0.0, eviction_policy="evict_last")
        y = y + b.to(tl.float32)
    tl.store(y_ptr + row[:, None] * n + col, y.to(y_ptr.dtype.element_ty),
             mask=(row < m)[:, None] & (col < n), eviction_policy="evict_first")
# --8<-- [end:forward]


@triton.jit
def chunk(LOADS: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr):
    """Columns of a chunk: a lane is a thread, WIDTH elements its 16-byte load."""
    load = tl.arange(0, LOADS)[:, None, None]
    lane = tl.arange(0, LANES)[None, :, None]
    return (load * LANES + lane) * WIDTH + tl.arange(0, WIDTH)[None, None, :]


# --8<-- [start:merge]
@triton.jit
def take_in(count, mean, m2, row_ptr, here, n, LOADS: tl.constexpr, LANES: tl.constexpr,
            WIDTH: tl.constexpr, MASK: tl.constexpr):
    """Merge a chunk into each lane's count, mean and sum of squares around the mean."""
    if MASK:
        inside = here < n
        x = tl.load(row_ptr + here, mask=inside, other=0.0,
                    eviction_policy="evict_last").to(tl.float32)
        more = tl.sum(tl.sum(inside.to(tl.float32), axis=2), axis=0)
    else:
        x = tl.load(row_ptr + here, eviction_policy="evict_last").to(tl.float32)
        more = tl.full([LANES], LOADS * WIDTH, tl.float32)
    its_mean = tl.sum(tl.sum(x, axis=2), axis=0) / tl.maximum(more, 1.0)
    off = x - its_mean[None, :, None]
    if MASK:
        off = tl.where(inside, off, 0.0)
    its_m2 = tl.sum(tl.sum(off * off, axis=2), axis=0)
    grown = count + more
    share = more / tl.maximum(grown, 1.0)  # of a lane with nothing yet, 0
    step = its_mean - mean
    return grown, mean + step * share, m2 + its_m2 + step * step * count * share
# --8<-- [end:merge]


# --8<-- [start:long]
@triton.jit
def layer_norm_two_reads(y_ptr, mean_ptr, rstd_ptr, x_ptr, w_ptr, b_ptr, m, n, x_stride,
                         eps, LOADS: tl.constexpr, LANES: tl.constexpr,
                         WIDTH: tl.constexpr):
    CHUNK: tl.constexpr = LOADS * LANES * WIDTH
    col = chunk(LOADS, LANES, WIDTH)
    last = (n - 1) // CHUNK * CHUNK
    whole = n // CHUNK * CHUNK
    for index in tl.range(tl.program_id(0), m, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        row_ptr = x_ptr + row * x_stride
        count = tl.zeros([LANES], tl.float32)  # of each lane: no chunk waits for it
        mean = tl.zeros([LANES], tl.float32)
        m2 = tl.zeros([LANES], tl.float32)
        for start in tl.range(0, whole, CHUNK):
            count, mean, m2 = take_in(count, mean, m2, row_ptr, start + col, n, LOADS,
                                      LANES, WIDTH, False)
        if whole < n:
            count, mean, m2 = take_in(count, mean, m2, row_ptr, whole + col, n, LOADS,
                                      LANES, WIDTH, True)
        row_mean = tl.sum(count * mean, axis=0) / n
        off = mean - row_mean
        var = tl.sum(off * count * off + m2, axis=0) / n
        rstd = tl.rsqrt(var + eps)
        tl.store(mean_ptr + row, row_mean)
        tl.store(rstd_ptr + row, rstd)
        # Backwards: what was read last is the likeliest to be in L2 still.
        for done in tl.range(0, n, CHUNK):
            here = last - done + col
            x = tl.load(row_ptr + here, mask=here < n, other=0.0,
                        eviction_policy="evict_first")
            y = (x.to(tl.float32) - row_mean) * rstd
            if w_ptr is not None:
                w = tl.load(w_ptr + here, mask=here < n, other=0.0,
                            eviction_policy="evict_last")
                y = y * w.to(tl.float32)
            if b_ptr is not None:
                b = tl.load(b_ptr + here, mask=here < n, other=0.0,
                            eviction_policy="evict_last")
                y = y + b.to(tl.float32)
            tl.store(y_ptr + row * n + here, y.to(y_ptr.dtype.element_ty),
                     mask=here < n, eviction_policy="evict_first")
# --8<-- [end:long]


def rows_of(tensor: torch.Tensor) -> torch.Tensor:
    """View (..., N) as (M, N) with adjacent columns; a copy where there is none."""
    n = tensor.shape[-1]
    rows = tensor.reshape(tensor.numel() // n if n else tensor.shape[:-1].numel(), n)
    # A column stride would turn each 16-byte load into eight scattered ones.
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


def contiguous(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.contiguous()


def sms_and_cache(device: torch.device) -> tuple[int, int]:
    """Streaming multiprocessors and bytes of L2 of a device."""
    if device.type != "cuda":
        return 2, 50 * 2**20  # so few that programs of small cases take several rows
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.L2_cache_size


# --8<-- [start:launch]
def tile(n: int, size: int, thread_bytes: int) -> tuple[int, int, int]:
    """Columns, rows and warps of a block that holds rows of n elements of x."""
    block = triton.next_power_of_2(n)
    held = block * size
    rows = max(1, min(8192 // held, 128))
    return block, rows, max(4, min(rows * held // (32 * thread_bytes), 32))


def lanes(n: int, size: int, most: int, widest: int) -> tuple[int, int, int]:
    """LOADS, LANES and WIDTH of a block that passes over a row in chunks."""
    width = 16 // size
    block = triton.next_power_of_2(n)
    warps = max(1, min(block // (width * 32 * most), widest))
    return max(1, min(block // (width * 32 * warps), most)), 32 * warps, width


def chosen(which: str, variant: str | None, x: torch.Tensor) -> str:
    """The variant to use, one pass unless told otherwise or rows are too long."""
    held, most = x.shape[-1] * x.element_size(), MAX_BYTES[which]
    if variant is None:
        return "one pass" if held <= most else "two reads"
    if variant == "one pass" and held > most:
        raise ValueError(
            f"layer_norm: rows of {held} bytes exceed MAX_BYTES = {most} ({which}); "
            "use two reads"
        )
    return variant


def forward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    variant: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y, mean and rstd."""
    check(x, eps, {"weight": weight, "bias": bias}, {})
    variant = chosen("forward", variant, x)
    rows = rows_of(x)
    m, n = rows.shape
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    mean, rstd = torch.empty((2, m), dtype=torch.float32, device=x.device).unbind()
    tensors = (y, mean, rstd, rows, contiguous(weight), contiguous(bias))
    size = x.element_size()
    if n == 0:  # nothing sums to 0
        mean.zero_()
        rstd.fill_(eps**-0.5 if eps else float("inf"))
    elif m and variant == "one pass":
        block, many, warps = tile(n, size, 32)
        with torch.cuda.device_of(x):
            layer_norm_one_pass[(triton.cdiv(m, many),)](
                *tensors, m, n, rows.stride(0), eps,
                ROWS=many, BLOCK=block, num_warps=warps,
            )  # fmt: skip
    elif m:
        loads, threads, width = lanes(n, size, LOADS, 16 if n * size <= 131_072 else 32)
        # As many rows in flight as L2 holds for the second reading; one an SM at least.
        sms, cache = sms_and_cache(x.device)
        most = max(1, min(2048 // threads, cache // (sms * n * size)))
        with torch.cuda.device_of(x):
            # Fused, a lane would add its product unrounded to a neighbour's rounded
            # one, and lanes that hold the same sum would differ in its last bit.
            layer_norm_two_reads[(min(m, sms * most),)](
                *tensors, m, n, rows.stride(0), eps,
                LOADS=loads, LANES=threads, WIDTH=width, num_warps=threads // 32,
                enable_fp_fusion=False,
            )  # fmt: skip
    return y.view(x.shape), mean, rstd
# --8<-- [end:launch]


def check(
    x: torch.Tensor,
    eps: float,
    columns: dict[str, torch.Tensor | None],
    alike: dict[str, torch.Tensor | None],
) -> None:
    """See that x can be normalised, that `columns` are (N,), and `alike` as x.

    Raises:
        TypeError: a dtype is none of the three, or a tensor is on another device.
        ValueError: a shape does not fit, or eps is negative.
    """
    if x.ndim == 0:
        raise ValueError("layer_norm: x has 0 dimensions and so no row; give it one")
    due = {"x": x.shape, **dict.fromkeys(columns, x.shape[-1:])}
    for name, tensor in {"x": x, **columns, **alike}.items():
        if tensor is None:
            continue
        if tensor.dtype not in (torch.float32, torch.float16, torch.bfloat16):
            raise TypeError(
                f"layer_norm: {name} is {tensor.dtype}, none of float32, float16, "
                "bfloat16; convert it first"
            )
        if tensor.device != x.device or x.device.type == "meta":
            raise TypeError(
                f"layer_norm: {name} is on {tensor.device}; bring all to one GPU"
            )
        if tensor.shape != due.get(name, x.shape):
            raise ValueError(
                f"layer_norm: {name} is {tuple(tensor.shape)}; with x "
                f"{tuple(x.shape)} it must be {tuple(due.get(name, x.shape))}"
            )
    if not 0 <= eps < float("inf"):
        raise ValueError(f"layer_norm: eps = {eps} is not from 0 up; give it 1e-5")


# --8<-- [start:naive]
def naive(x: torch.Tensor) -> torch.Tensor:
    """What one read seems to allow: var = mean(x * x) - mean(x)**2, in float32."""
    mean = x.mean(-1, keepdim=True)
    var = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) * torch.rsqrt(var.clamp(min=0) + 1e-5)
# --8<-- [end:naive]


def demo(device: str) -> None:
    """A row by hand, rows far from 0, and the gradients against float64."""
    from snippets.layer_norm import gradients  # which imports this file

    x = torch.tensor([[1.0, 2.0, 3.0, 6.0]], device=device)
    for variant in ("one pass", "two reads"):
        y, mean, rstd = forward(x, None, None, 1e-5, variant)
        row = " ".join(f"{value:.4f}" for value in y[0].tolist())
        print(f"{variant}: {row}, mean {float(mean):.4f}, rstd {float(rstd):.4f}")
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(64, 1000, generator=generator) for _ in range(2))
    for shift in (0, 10, 1000):
        far = x + shift
        truth = torch.nn.functional.layer_norm(far.double(), (1000,))
        said = []
        for name, y in (
            ("one pass", forward(far.to(device), None, None, 1e-5, "one pass")[0]),
            ("two reads", forward(far.to(device), None, None, 1e-5, "two reads")[0]),
            ("mean of squares", naive(far)),
        ):
            error = float((y.cpu().double() - truth).norm() / truth.norm())
            said.append(f"{name} {error < 1e-4}")
        print(f"mean {shift}, within 1e-4 of float64: " + ", ".join(said))
    w, b = (torch.randn(1000, generator=generator) for _ in range(2))
    given = [each.to(device).requires_grad_() for each in (x, w, b)]
    y = gradients.layer_norm(*given)
    found = torch.autograd.grad(y, given, dy.to(device))
    exact = [each.double().requires_grad_() for each in (x, w, b)]
    truth = torch.nn.functional.layer_norm(exact[0], (1000,), *exact[1:])
    due = torch.autograd.grad(truth, exact, dy.double())
    names = ("y", "dx", "dweight", "dbias")
    for name, got, want in zip(names, (y, *found), (truth, *due), strict=True):
        close = bool((got.cpu().double() - want).norm() <= 5e-6 * want.norm())
        print(f"{name}: within 5e-6 of float64: {close}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

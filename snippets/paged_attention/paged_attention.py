"""Decoding over a paged cache: the heads that share keys read each page once, together.

Shapes  q (B, T, H_q, D): the last T tokens of B sequences, T mostly 1; k, v (P, PAGE,
        H_kv, D): pages of PAGE keys, H_q a multiple of H_kv; table (B, W), int32 or
        int64: the pages of a sequence, in order; lengths (B,), int32 or int64, with the
        T new keys; out as q, lse (B, T, H_q) float32. Else float32, float16 or
        bfloat16, and any strides. 1 <= D <= 256. Token i sees the first
        length - T + i + 1 keys; one that sees none has out = 0 and lse = -inf. Entries
        of the table and slots of a page past a sequence's end are never used
Bytes   4 S H_kv D in 16 bits, S the sum of the lengths: each live key and value once.
        A cut adds 8 H_q D a token and part, a sixteenth of that at most
Error   relative to float64: 5e-6 float32, which is multiplied as such, 1e-3 float16,
        5e-3 bfloat16; sums are float32. The same inputs give the same bits
Raises  ValueError, TypeError for shapes, scales, dtypes and devices other than these.
        What stands in `lengths` and `table` is on the GPU and is not looked at: a
        length past `longest` counts as `longest`
Source  paged-attention, flash-decoding
"""

from __future__ import annotations

import math

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

from snippets.paged_attention.by_head import paged_by_head

MAX_D = 256
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
LN2 = tl.constexpr(0.6931471805599453)


# A batch grows and shrinks by the step: none of these may cost a compilation.
NUMBERS = ["batch", "tokens", "h_q", "h_kv", "rows", "longest", "chunk"]


# --8<-- [start:pages]
@triton.jit
def pages_of(table, stride, start, last, PAGE: tl.constexpr, N: tl.constexpr):
    """The pages of the keys start ... start + N - 1; past the last key, its page."""
    at = start if PAGE % N == 0 else start + tl.arange(0, N)  # one page, or several
    index = tl.minimum(at // PAGE, tl.maximum(last - 1, 0) // PAGE)
    return tl.load(table + index * stride)


@triton.jit
def slots_of(start, PAGE: tl.constexpr, N: tl.constexpr):
    """Where in their pages these keys are; `start` is a multiple of N."""
    if N % PAGE == 0:  # alike for every tile, so that the loop need not work it out
        slot = tl.arange(0, N) % PAGE
    elif PAGE % N == 0:
        slot = start % PAGE + tl.arange(0, N)
    else:
        slot = (start + tl.arange(0, N)) % PAGE
    return slot.to(tl.int64)


@triton.jit
def load_rows(source, stride, page, slot, here, D: tl.constexpr, WIDTH: tl.constexpr):
    """Keys or values of one head, zeros where not `here`."""
    col = tl.arange(0, WIDTH)
    # int64: pages lie further apart than 2**31 elements in a cache of some GiB.
    row = source + page.to(tl.int64) * stride[0] + slot * stride[1]
    inside = here[:, None]
    if D < WIDTH:
        inside = inside & (col < D)[None, :]
    return tl.load(row[:, None] + (col * stride[3])[None, :], mask=inside, other=0.0)
# --8<-- [end:pages]


# --8<-- [start:kernel]
@triton.jit(do_not_specialize=NUMBERS)
def paged_parts(out, lse, q, k, v, table, lengths, out_stride, q_stride, k_stride,
                v_stride, table_stride, length_stride, batch, h_kv, longest, chunk,
                scale2, TOKENS: tl.constexpr, GROUP: tl.constexpr, PAGE: tl.constexpr,
                D: tl.constexpr, WIDTH: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                CUT: tl.constexpr):
    # A program is a head of keys in one part of a sequence, with all queries that share
    # it, M rows a tile: tokens by heads. First parts start first, since they are full.
    TILES: tl.constexpr = (TOKENS * GROUP + M - 1) // M
    tile = tl.program_id(0) % TILES
    h = tl.program_id(0) // TILES % h_kv
    b = tl.cast(tl.program_id(0) // (TILES * h_kv) % batch, tl.int64)
    part = tl.program_id(0) // (TILES * h_kv * batch)
    length = tl.minimum(tl.load(lengths + b * length_stride[0]).to(tl.int32), longest)
    first = part * chunk
    if CUT:  # noqa: SIM102, since it is known when compiled
        if first >= length:
            return  # the merge knows which parts there are
    last = tl.minimum(first + chunk, length)

    member = tile * M + tl.arange(0, M)
    real = member < TOKENS * GROUP
    token = member // GROUP
    head = (h * GROUP + member % GROUP).to(tl.int64)
    limit = length - TOKENS + 1 + token  # how many keys a row sees
    col = tl.arange(0, WIDTH)
    inside = real[:, None] & (col < D)[None, :]
    at = b * q_stride[0] + token.to(tl.int64) * q_stride[1] + head * q_stride[2]
    queries = tl.load(q + at[:, None] + (col * q_stride[3])[None, :],
                      mask=inside, other=0.0)
    k += tl.cast(h, tl.int64) * k_stride[2]
    v += tl.cast(h, tl.int64) * v_stride[2]
    table += b * table_stride[0]

    acc = tl.zeros([M, WIDTH], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)  # of scale2 * s, logarithms to base 2
    total = tl.zeros([M], tl.float32)
    # A tile ahead, so that the copies of keys never wait for the table.
    coming = pages_of(table, table_stride[1], first, last, PAGE, N)
    for start in tl.range(first, last, N):
        page = coming
        coming = pages_of(table, table_stride[1], start + N, last, PAGE, N)
        slot = slots_of(start, PAGE, N)
        pos = start + tl.arange(0, N)
        here = pos < last
        keys = load_rows(k, k_stride, page, slot, here, D, WIDTH)
        s = tl.dot(queries, keys.T, input_precision="ieee")
        s = tl.where(pos[None, :] < limit[:, None], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=1) * scale2)
        # A row that has seen no key yet subtracts 0: -inf - -inf would be NaN.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s * scale2 - shift[:, None])
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(p, axis=1)
        acc = acc * fade[:, None]
        values = load_rows(v, v_stride, page, slot, here, D, WIDTH)
        acc = tl.dot(p.to(values.dtype), values, acc, input_precision="ieee")
        top = higher
    total = tl.where(total > 0, total, 1.0)  # nothing seen: acc is 0 and top is -inf
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    to = b * out_stride[0] + token.to(tl.int64) * out_stride[1] + head * out_stride[2]
    row = (b * TOKENS + token) * (h_kv * GROUP) + head
    logarithm = top + tl.log2(total)
    if CUT:  # out is (parts, B, T, H_q, D) here, and lse (parts, B, T, H_q) to base 2
        to += tl.cast(part, tl.int64) * out_stride[4]
        row += tl.cast(part, tl.int64) * (batch * TOKENS * h_kv * GROUP)
    else:
        logarithm = logarithm * LN2
    tl.store(out + to[:, None] + (col * out_stride[3])[None, :], result, mask=inside)
    tl.store(lse + row, logarithm, mask=real)
# --8<-- [end:kernel]


# --8<-- [start:merge]
@triton.jit(do_not_specialize=NUMBERS)
def paged_merge(out, lse, part_out, part_lse, lengths, out_stride, length_stride, rows,
                tokens, h_q, longest, chunk, D: tl.constexpr, WIDTH: tl.constexpr,
                PARTS: tl.constexpr, STEP: tl.constexpr):
    # A program is a query; its parts are weighted by their share of the sum.
    query = tl.program_id(0)
    h, token, b = query % h_q, query // h_q % tokens, query // (h_q * tokens)
    b, token = tl.cast(b, tl.int64), tl.cast(token, tl.int64)
    length = tl.minimum(tl.load(lengths + b * length_stride[0]).to(tl.int32), longest)
    parts = tl.cdiv(tl.maximum(length, 0), chunk)  # the rest was never written
    part = tl.arange(0, PARTS)
    logs = tl.load(part_lse + part.to(tl.int64) * rows + query,
                   mask=part < parts, other=float("-inf"))
    top = tl.max(logs, axis=0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp2(logs - shift), axis=0)
    total = tl.where(total > 0, total, 1.0)
    col = tl.arange(0, WIDTH)
    acc = tl.zeros([WIDTH], tl.float32)
    for start in tl.range(0, parts, STEP):
        some = start + tl.arange(0, STEP)
        row = some.to(tl.int64) * rows + query
        weight = tl.exp2(tl.load(part_lse + row, mask=some < parts,
                                 other=float("-inf")) - shift)
        x = tl.load(part_out + row[:, None] * D + col[None, :],
                    mask=(some < parts)[:, None] & (col < D)[None, :], other=0.0)
        acc += tl.sum(x * weight[:, None], axis=0)
    at = b * out_stride[0] + token * out_stride[1] + h.to(tl.int64) * out_stride[2]
    tl.store(out + at + col * out_stride[3], (acc / total).to(out.dtype.element_ty),
             mask=col < D)
    tl.store(lse + query, (top + tl.log2(total)) * LN2)
# --8<-- [end:merge]


# --8<-- [start:launch]
def tile_of(width: int, rows: int, dtype: torch.dtype) -> dict:
    """Rows and keys of a tile, warps, and tiles in flight, by the width of a head."""
    if dtype is torch.float32:  # no matrix instruction multiplies it exactly
        return {"M": 16, "N": 16, "num_warps": width // 32 if width > 128 else 4,
                "num_stages": 2}  # fmt: skip
    # Matrix instructions take 16 rows and more. 32 KiB of keys and values a tile and
    # two tiles in flight: three such programs fit a multiprocessor of 227 KiB.
    m = min(64, max(16, triton.next_power_of_2(rows)))
    n = max(32, min(64 if m == 64 else 128, 8192 // width))
    return {"M": m, "N": n, "num_warps": 8 if m == 64 else 4, "num_stages": 3}


def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # so few that small cases are cut into a few parts
    return torch.cuda.get_device_properties(device).multi_processor_count


def chunk_of(programs: int, rows: int, longest: int, n: int, places: int) -> int:
    """Keys a part, a multiple of n: one that fills the GPU's places, or nearly.

    A part writes and reads 8 bytes an element of `rows` rows, and reads 4 an element of
    its keys: with 32 keys a row, at most a sixteenth more.
    """
    shortest = max(256, 32 * rows)
    most = max(1, -(-longest // shortest))
    best, filled = 1, 0.0
    for waves in (1, 2, 3, 4):
        parts = max(1, min(most, waves * places // max(programs, 1)))
        turns = -(-programs * parts // places)
        share = programs * parts / (turns * places)
        if share > filled + 0.1:  # fewer parts unless more of them pay
            best, filled = parts, share
    return max(1, -(-longest // (best * n))) * n


def decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    longest: int | None = None,
    chunk: int | None = None,
    by_head: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse; `chunk`: keys a part, None for what suits; `by_head`: naively."""
    scale, longest = checked(q, k, v, table, lengths, scale, longest)
    if chunk is not None and chunk < 1:
        raise ValueError(f"paged_attention: chunk = {chunk} keys a part; give 1 up")
    b, t, h_q, d = q.shape
    page, h_kv = k.shape[1:3]
    out = torch.empty_like(q)
    lse = torch.empty((b, t, h_q), dtype=torch.float32, device=q.device)
    if q.numel() == 0 or longest == 0 or k.numel() == 0:
        return out.zero_(), lse.fill_(float("-inf"))
    group = h_q // h_kv
    width = max(16, triton.next_power_of_2(d))
    strides = [x.stride() for x in (q, k, v, table, lengths)]
    scale2 = scale * LOG2E.value
    with torch.cuda.device_of(q):
        if by_head:
            # Fused, a lane would add its product unrounded to a neighbour's rounded
            # one, and lanes that hold the same sum would differ in its last bit.
            paged_by_head[(b * t * h_q,)](
                out, lse, q, k, v, table, lengths, (out.stride(), *strides),
                (t, h_q, group, longest), scale2, PAGE=page, D=d,
                num_warps=4 if width <= 64 else 8, enable_fp_fusion=False,
            )  # fmt: skip
            return out, lse
        tile = tile_of(width, t * group, q.dtype)
        programs = b * h_kv * triton.cdiv(t * group, tile["M"])
        if chunk is None:
            places = 2 * multiprocessors(q.device)
            chunk = chunk_of(programs, t * group, longest, tile["N"], places)
        chunk = triton.cdiv(chunk, tile["N"]) * tile["N"]
        parts = triton.cdiv(longest, chunk)
        if parts == 1:
            target, target_lse, target_stride = out, lse, out.stride()
        else:
            target = q.new_empty((parts, *q.shape), dtype=torch.float32)
            target_lse = lse.new_empty((parts, *lse.shape))
            target_stride = (*target.stride()[1:], target.stride(0))
        paged_parts[(programs * parts,)](
            target, target_lse, q, k, v, table, lengths, target_stride, *strides,
            b, h_kv, longest, chunk, scale2, TOKENS=t, GROUP=group, PAGE=page, D=d,
            WIDTH=width, CUT=parts > 1, **tile,
        )  # fmt: skip
        if parts > 1:
            # One warp: each lane has all parts of its columns, and sums them alone.
            paged_merge[(b * t * h_q,)](
                out, lse, target, target_lse, lengths, out.stride(), lengths.stride(),
                b * t * h_q, t, h_q, longest, chunk, D=d, WIDTH=width,
                PARTS=triton.next_power_of_2(parts), STEP=max(1, 1024 // width),
                num_warps=1,
            )  # fmt: skip
    return out, lse
# --8<-- [end:launch]


def checked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None,
    longest: int | None,
) -> tuple[float, int]:
    """The scale and the longest length to use, after a look at what they are for.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, or a number is out of its range.
    """
    named = {"q": q, "k": k, "v": v, "table": table, "lengths": lengths}
    for name, tensor in named.items():
        whole = name in ("table", "lengths")
        known = (
            (torch.int32, torch.int64)
            if whole
            else (torch.float32, torch.float16, torch.bfloat16)
        )
        if tensor.dtype not in known:
            raise TypeError(
                f"paged_attention: {name} is {tensor.dtype}, none of "
                f"{', '.join(str(x)[6:] for x in known)}; convert it first"
            )
        if tensor.device != q.device or not whole and tensor.dtype != q.dtype:
            raise TypeError(
                f"paged_attention: {name} is {tensor.dtype} on {tensor.device}, but q "
                f"{q.dtype} on {q.device}; bring them together"
            )
        due = {"table": 2, "lengths": 1}.get(name, 4)
        if tensor.ndim != due:
            raise ValueError(
                f"paged_attention: {name} has {tensor.ndim} dimensions; give it {due}"
            )
    b, _, h_q, d = q.shape
    page, h_kv = k.shape[1:3]
    if not 1 <= d <= MAX_D:
        raise ValueError(
            f"paged_attention: D = {d} is not from 1 to MAX_D = {MAX_D}; give the "
            "heads another width"
        )
    if k.shape != v.shape or k.shape[3] != d or page == 0:
        shapes = ", ".join(f"{name} {tuple(named[name].shape)}" for name in "qkv")
        raise ValueError(
            f"paged_attention: the shapes {shapes} do not fit; make k and v alike, "
            "with the columns of q and pages of one slot or more"
        )
    if h_q % max(h_kv, 1) != 0 or h_q > 0 == h_kv:
        raise ValueError(
            f"paged_attention: H_q = {h_q} is no multiple of H_kv = {h_kv}; let each "
            "head of k and v serve as many heads of q"
        )
    if not table.shape[0] == lengths.shape[0] == b:
        raise ValueError(
            f"paged_attention: {table.shape[0]} rows of the table and "
            f"{lengths.shape[0]} lengths for {b} sequences; give each one of both"
        )
    room = table.shape[1] * page
    longest = room if longest is None else longest
    most = min(room, 2**30)
    if not 0 <= longest <= most:
        raise ValueError(
            f"paged_attention: longest = {longest} is not from 0 to {most}, for which "
            "the table has room; give it more columns, or a bound that fits"
        )
    scale = d**-0.5 if scale is None else float(scale)
    if not 0 < scale < math.inf:
        raise ValueError(
            f"paged_attention: scale = {scale} is not positive and finite; for a "
            "negative one, negate q"
        )
    return scale, longest


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::paged_attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    longest: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    return decode(q, k, v, table, lengths, scale, longest)


@attention.register_fake
def _(q, k, v, table, lengths, scale, longest):
    return torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def paged_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    longest: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse, for inference; scale is 1 / sqrt(D) unless given. `longest` bounds
    the lengths: unless given, all that the table holds, as no length is known here."""
    told = checked(q, k, v, table, lengths, scale, longest)
    return attention(q, k, v, table, lengths, *told)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """A cache whose pages lie anywhere, read by three kernels; then how it is cut."""
    generator = torch.Generator().manual_seed(0)
    lengths = [0, 1, 40, 700]
    pages = [-(-length // 16) for length in lengths]
    order = torch.randperm(sum(pages), generator=generator).tolist()
    table = torch.full((4, max(pages)), 10**9)  # what is past an end must not be read
    for row, count in enumerate(pages):
        table[row, :count] = torch.tensor([order.pop() for _ in range(count)])
    print(f"{sum(pages)} pages of 16 keys; those of the sequence of 40:")
    print(f"  {table[2, :3].tolist()}")
    q = torch.randn(4, 1, 8, 64, generator=generator)
    k, v = torch.randn(2, sum(pages), 16, 2, 64, generator=generator)
    told = [x.to(device) for x in (q, k, v, table, torch.tensor(lengths))]
    ways = {"a head": {"by_head": True}, "a group": {"chunk": 2**30},
            "parts of 128 keys": {"chunk": 128}}  # fmt: skip
    for name, way in ways.items():
        out, lse = (x.cpu() for x in decode(*told, **way))
        worst = 0.0
        for row, length in enumerate(lengths):
            at = table[row, : pages[row]]
            keys, values = (
                x[at].flatten(0, 1)[:length].repeat_interleave(4, 1).double()
                for x in (k, v)
            )
            s = torch.einsum("hd,nhd->hn", q[row, 0].double(), keys) / 8
            truth = torch.einsum("hn,nhd->hd", torch.softmax(s, -1), values)
            worst = max(worst, float((out[row, 0] - truth).norm()))
        print(f"{name}: right {worst < 1e-5}, lse of no key {float(lse[0, 0, 0])}")
    print("cut for 132 multiprocessors, 4 heads of queries a head of keys:")
    for b, h, longest in ((1, 8, 1024), (1, 8, 131_072), (16, 8, 8192), (256, 8, 8192)):
        chunk = chunk_of(b * h, 4, longest, 64, 264)
        parts = -(-longest // chunk)
        print(f"  {b:3} x {h} heads of {longest:6}: {parts:2} parts of {chunk}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

"""Latent attention decodes from one row a token: all heads read it, as key and value.

Shapes  q (B, T, H, L + R): the last T tokens of B sequences, queries in the latent
        space (absorbed: W_UK is in them) and R turned columns; cache (P, PAGE, L + R):
        a row a token, latent first, shared by all heads; table (B, W), int32 or int64:
        the pages of a sequence, in order; lengths (B,), int32 or int64, with the T new
        tokens; out (B, T, H, L), before W_UV; lse (B, T, H) float32. Else float32,
        float16 or bfloat16, and any strides. L and R are powers of two from 16, up to
        512 and 64. Token i sees the first length - T + i + 1 rows; one that sees none
        has out = 0 and lse = -inf. Entries of the table and slots of a page past a
        sequence's end are never used
Bytes   2 S (L + R) in 16 bits, S the sum of the lengths: each live row once, 1152
        bytes. A cut adds 8 H T L a part, which the choice of parts weighs
FLOPs   2 S H T (2 L + R)
Error   relative to float64: 5e-6 float32, which is multiplied as such, 1e-3 float16,
        5e-3 bfloat16; sums are float32. The same inputs give the same bits
Raises  ValueError, TypeError for shapes, scales, dtypes and devices other than these.
        What stands in `lengths` and `table` is on the GPU and is not looked at: a
        length past `longest` counts as `longest`
Source  deepseek-v2, flash-mla
"""

from __future__ import annotations

import math

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

from snippets.mla_decode import seesaw
from snippets.mla_decode.absorbed import absorb, lift, unabsorbed
from snippets.mla_decode.by_head import mla_by_head

WAYS = ("by head", "tiles", "seesaw")
MAX_L, MAX_R = 512, 64
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E): one instruction
LN2 = tl.constexpr(0.6931471805599453)
# A batch grows and shrinks by the step: none of these may cost a compilation.
NUMBERS = ["batch", "tokens", "h", "rows", "longest", "chunk"]


# --8<-- [start:pages]
@triton.jit
def pages_of(table, stride, start, last, PAGE: tl.constexpr, N: tl.constexpr):
    """The pages of the rows start ... start + N - 1; past the last row, its page."""
    at = start if PAGE % N == 0 else start + tl.arange(0, N)  # one page, or several
    index = tl.minimum(at // PAGE, tl.maximum(last - 1, 0) // PAGE)
    return tl.load(table + index * stride)


@triton.jit
def slots_of(start, PAGE: tl.constexpr, N: tl.constexpr):
    """Where in their pages these rows are; `start` is a multiple of N."""
    if N % PAGE == 0:  # alike for every tile, so that the loop need not work it out
        slot = tl.arange(0, N) % PAGE
    elif PAGE % N == 0:
        slot = start % PAGE + tl.arange(0, N)
    else:
        slot = (start + tl.arange(0, N)) % PAGE
    return slot.to(tl.int64)
# --8<-- [end:pages]


# --8<-- [start:kernel]
@triton.jit(do_not_specialize=NUMBERS)
def mla_parts(out, lse, q, cache, table, lengths, q_stride, stride, table_stride,
              length_stride, batch, h, longest, chunk, scale2, TOKENS: tl.constexpr,
              PAGE: tl.constexpr, L: tl.constexpr, R: tl.constexpr, M: tl.constexpr,
              N: tl.constexpr, TURNED: tl.constexpr, CUT: tl.constexpr):
    # A program is M queries, tokens by heads, in one part of a sequence. Tiles of the
    # same rows are neighbours: the second finds them in L2.
    tiles = tl.cdiv(TOKENS * h, M)
    tile = tl.program_id(0) % tiles
    b = (tl.program_id(0) // tiles % batch).to(tl.int64)
    part = tl.program_id(0) // (tiles * batch)
    length = tl.minimum(tl.load(lengths + b * length_stride[0]).to(tl.int32), longest)
    first = part * chunk
    if CUT:  # noqa: SIM102, since it is known when compiled
        if first >= length:
            return  # the merge knows which parts there are
    last = tl.minimum(first + chunk, length)

    member = tile * M + tl.arange(0, M)
    real = member < TOKENS * h
    token, head = (member // h).to(tl.int64), (member % h).to(tl.int64)
    limit = length - TOKENS + 1 + member // h  # how many rows a query sees
    col, turned = tl.arange(0, L), L + tl.arange(0, R)
    q += b * q_stride[0]
    at = q + token * q_stride[1] + head * q_stride[2]
    latent_q = tl.load(at[:, None] + (col * q_stride[3])[None, :],
                       mask=real[:, None], other=0.0)
    rope_q = tl.load(at[:, None] + (turned * q_stride[3])[None, :],
                     mask=real[:, None], other=0.0)
    table += b * table_stride[0]

    # TURNED, the columns of the sums are their rows: see tile_of.
    acc = tl.zeros([L, M] if TURNED else [M, L], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)  # of scale2 * s, logarithms to base 2
    total = tl.zeros([M], tl.float32)
    # A tile ahead, so that the copies of rows never wait for the table.
    coming = pages_of(table, table_stride[1], first, last, PAGE, N)
    for start in tl.range(first, last, N):
        page = coming
        coming = pages_of(table, table_stride[1], start + N, last, PAGE, N)
        pos = start + tl.arange(0, N)
        here = (pos < last)[:, None]
        # int64: pages lie further apart than 2**31 elements in a cache of some GiB.
        slot = slots_of(start, PAGE, N)
        row = (cache + page.to(tl.int64) * stride[0] + slot * stride[1])[:, None]
        latent = tl.load(row + (col * stride[2])[None, :], mask=here, other=0.0)
        rope = tl.load(row + (turned * stride[2])[None, :], mask=here, other=0.0)
        s = tl.zeros([M, N], tl.float32)
        # Always so. But 64 queries are for two warp groups, and where the compiler sees
        # that the weights of scores are multiplied next, each group makes all of them.
        # It does not see out of an `if`: there each makes half.
        if M < 64 or start < last:
            s = tl.dot(rope_q, rope.T, s, input_precision="ieee")
            s = tl.dot(latent_q, latent.T, s, input_precision="ieee")
        s = tl.where(pos[None, :] < limit[:, None], s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, axis=1) * scale2)
        # A query that has seen no row yet subtracts 0: -inf - -inf would be NaN.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s * scale2 - shift[:, None])
        fade = tl.exp2(top - shift)
        total = total * fade + tl.sum(p, axis=1)
        # The values are the latent columns that the scores came from: no second load.
        weight = p.to(latent.dtype)
        if TURNED:
            acc = acc * fade[None, :]
            acc = tl.dot(latent.T, weight.T, acc, input_precision="ieee")
        else:
            acc = acc * fade[:, None]
            acc = tl.dot(weight, latent, acc, input_precision="ieee")
        top = higher
    total = tl.where(total > 0, total, 1.0)  # nothing seen: acc is 0 and top is -inf
    acc = (acc.T if TURNED else acc) * (1.0 / total)[:, None]
    logarithm = top + tl.log2(total)
    if CUT:  # out is (parts, B, T, H, L) here, and lse (parts, B, T, H) to base 2
        b += tl.cast(part, tl.int64) * batch
    else:
        logarithm = logarithm * LN2
    query = b * (TOKENS * h) + member
    tl.store(out + query[:, None] * L + col[None, :], acc.to(out.dtype.element_ty),
             mask=real[:, None])
    tl.store(lse + query, logarithm, mask=real)
# --8<-- [end:kernel]


# --8<-- [start:merge]
@triton.jit(do_not_specialize=NUMBERS)
def mla_merge(out, lse, part_out, part_lse, lengths, length_stride, rows, tokens, h,
              longest, chunk, L: tl.constexpr, PARTS: tl.constexpr, STEP: tl.constexpr):
    # A program is a query; its parts are weighted by their share of the sum. What we
    # write is ours, so it is contiguous.
    query = tl.program_id(0).to(tl.int64)
    b = query // (h * tokens)
    length = tl.minimum(tl.load(lengths + b * length_stride[0]).to(tl.int32), longest)
    parts = tl.cdiv(tl.maximum(length, 0), chunk)  # the rest was never written
    part = tl.arange(0, PARTS)
    logs = tl.load(part_lse + part.to(tl.int64) * rows + query,
                   mask=part < parts, other=float("-inf"))
    top = tl.max(logs, axis=0)
    shift = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(tl.exp2(logs - shift), axis=0)
    total = tl.where(total > 0, total, 1.0)
    col = tl.arange(0, L)
    acc = tl.zeros([L], tl.float32)
    for start in tl.range(0, parts, STEP):
        some = start + tl.arange(0, STEP)
        row = some.to(tl.int64) * rows + query
        weight = tl.exp2(tl.load(part_lse + row, mask=some < parts,
                                 other=float("-inf")) - shift)
        x = tl.load(part_out + row[:, None] * L + col[None, :],
                    mask=(some < parts)[:, None], other=0.0)
        acc += tl.sum(x * weight[:, None], axis=0)
    tl.store(out + query * L + col, (acc / total).to(out.dtype.element_ty))
    tl.store(lse + query, (top + tl.log2(total)) * LN2)
# --8<-- [end:merge]


# --8<-- [start:launch]
def architecture() -> int:
    """SM version of the current GPU; 90 where Triton interprets."""
    if triton.knobs.runtime.interpret:
        return 90
    return triton.runtime.driver.active.get_current_target().arch


def tile_of(width: int, rows: int, dtype: torch.dtype, arch: int) -> dict:
    """Queries and cache rows of a tile, warps, tiles in flight; `width` is L."""
    if dtype is torch.float32:  # no matrix instruction multiplies it exactly
        warps = max(4, width // 32)
        return {"M": 16, "N": 16, "TURNED": False, "num_warps": warps, "num_stages": 2}
    if arch not in (80, 87, 90, 100, 103):  # 99 KiB of shared memory, not 163 or more
        return {"M": 16, "N": 32, "TURNED": False, "num_warps": 4, "num_stages": 2}
    if rows <= 16:  # 32 cache rows are 36 KiB: 72 KiB in flight
        return {"M": 16, "N": 32, "TURNED": False, "num_warps": 4, "num_stages": 3}
    if arch in (80, 87):
        return {"M": 32, "N": 32, "TURNED": False, "num_warps": 8, "num_stages": 3}
    if arch == 90:
        # A warp group's instructions take 64 queries. Their sums are half of the
        # register file: 64 rows a tile instead of 32, and it spills.
        return {"M": 64, "N": 32, "TURNED": False, "num_warps": 8, "num_stages": 3}
    # Tensor memory is 128 lanes high, so the 512 columns of the sums become its lanes.
    # Sums of 64 queries by 512 columns would leave the weights no place beside them.
    return {"M": 32, "N": 64, "TURNED": True, "num_warps": 8, "num_stages": 3}


def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # so few that small cases are cut into a few parts
    return torch.cuda.get_device_properties(device).multi_processor_count


def chunk_of(b: int, rows: int, tile: dict, longest: int, places: int) -> int:
    """Cache rows a part: the cut that takes least time, if all that bounds it is bytes.

    A place of the GPU reads its part of L + R columns in 16 bits. What a part adds for
    the merge, L sums of 4 bytes a query, written and read, all places share.
    """
    n = tile["N"]
    programs = b * triton.cdiv(rows, tile["M"])

    def time(parts: int) -> int:
        turns = triton.cdiv(programs * parts, places)
        kept = 0 if parts == 1 else 2 * 4 * b * rows * parts
        return turns * triton.cdiv(longest, parts) * 2 * places + kept

    # The best of one turn, were every place taken; and whole turns of them.
    even = min(math.isqrt(longest * places // (4 * b * rows)), places // programs)
    tried = [1, even, *(turns * places // programs for turns in (1, 2, 3, 4))]
    most = triton.cdiv(longest, 2 * n)
    best = min((max(1, min(parts, most)) for parts in tried), key=time)
    return max(1, triton.cdiv(longest, best * n)) * n


def decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    rope: int = 64,
    longest: int | None = None,
    chunk: int | None = None,
    way: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse; `chunk`: rows a part, `way`: of WAYS; None for what suits."""
    longest = checked(q, cache, table, lengths, scale, rope, longest)
    if chunk is not None and chunk < 1:
        raise ValueError(f"mla_decode: chunk = {chunk} rows a part; give 1 up")
    b, t, h, width = q.shape
    latent, page = width - rope, cache.shape[1]
    out = q.new_empty((b, t, h, latent))
    lse = q.new_empty((b, t, h), dtype=torch.float32)
    if q.numel() == 0 or longest == 0 or cache.numel() == 0:
        return out.zero_(), lse.fill_(float("-inf"))
    given = (q, cache, table, lengths)
    strides = tuple(x.stride() for x in given)
    scale2 = scale * LOG2E.value
    with torch.cuda.device_of(q):
        arch = architecture()
        fits = arch == 90 and seesaw.fits(q, cache, rope)
        way = way or ("seesaw" if fits and t * h > 16 else "tiles")
        if way not in WAYS or way == "seesaw" and not fits:
            raise ValueError(f"mla_decode: no way {way!r} for these; leave it out")
        if way == "by head":
            mla_by_head[(b * t * h,)](
                out, lse, *given, strides, (t, h, longest), scale2, PAGE=page,
                L=latent, R=rope, enable_fp_fusion=False,  # or lanes' sums would differ
            )  # fmt: skip
            return out, lse
        tile = tile_of(latent, t * h, q.dtype, arch)
        if way == "seesaw":
            tile |= {"M": seesaw.ROWS, "N": seesaw.ROWS}
        programs = b * triton.cdiv(t * h, tile["M"])
        if chunk is None:
            places = multiprocessors(q.device) * (2 if tile["M"] == 16 else 1)
            chunk = chunk_of(b, t * h, tile, longest, places)
        chunk = triton.cdiv(min(chunk, longest), tile["N"]) * tile["N"]
        parts = triton.cdiv(longest, chunk)
        target, target_lse = out, lse
        if parts > 1:
            target = q.new_empty((parts, b, t, h, latent), dtype=torch.float32)
            target_lse = lse.new_empty((parts, b, t, h))
        if way == "seesaw":
            seesaw.launch(target, target_lse, *given, longest, chunk, scale2)
        else:
            mla_parts[(programs * parts,)](
                target, target_lse, *given, *strides, b, h, longest, chunk, scale2,
                TOKENS=t, PAGE=page, L=latent, R=rope, CUT=parts > 1, **tile,
            )  # fmt: skip
        if parts > 1:
            mla_merge[(b * t * h,)](
                out, lse, target, target_lse, lengths, lengths.stride(), b * t * h, t,
                h, longest, chunk, L=latent, PARTS=triton.next_power_of_2(parts),
                STEP=max(1, 2048 // latent),
            )  # fmt: skip
    return out, lse
# --8<-- [end:launch]


def checked(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    rope: int,
    longest: int | None,
) -> int:
    """The longest length to use, after a look at what it is for.

    Raises:
        TypeError: a dtype is unknown, or dtypes or devices differ.
        ValueError: shapes do not fit, or a number is out of its range.
    """
    floats = (torch.float32, torch.float16, torch.bfloat16)
    whole = (torch.int32, torch.int64)
    wanted = ((q, "q", 4, floats), (cache, "cache", 3, floats),
              (table, "table", 2, whole), (lengths, "lengths", 1, whole))  # fmt: skip
    for tensor, name, due, known in wanted:
        if tensor.dtype not in known:
            raise TypeError(
                f"mla_decode: {name} is {tensor.dtype}, none of "
                f"{', '.join(str(x)[6:] for x in known)}; convert it first"
            )
        if tensor.device != q.device or known is floats and tensor.dtype != q.dtype:
            raise TypeError(
                f"mla_decode: {name} is {tensor.dtype} on {tensor.device}, but q "
                f"{q.dtype} on {q.device}; bring them together"
            )
        if tensor.ndim != due:
            given = f"{name} has {tensor.ndim} dimensions"
            raise ValueError(f"mla_decode: {given}; give it {due}")
    b, _, _, width = q.shape
    latent = width - rope
    for name, size, most in (("L", latent, MAX_L), ("R", rope, MAX_R)):
        if not 16 <= size <= most or size & (size - 1):
            raise ValueError(
                f"mla_decode: {name} = {size}, of {width} columns with rope = {rope}, "
                f"is no power of two from 16 to {most}; give q L + R columns"
            )
    if cache.shape[2] != width or cache.shape[1] == 0:
        raise ValueError(
            f"mla_decode: q {tuple(q.shape)} and cache {tuple(cache.shape)} do not "
            "fit; give both as many columns, and pages one slot or more"
        )
    if not table.shape[0] == lengths.shape[0] == b:
        raise ValueError(
            f"mla_decode: {table.shape[0]} rows of the table and {lengths.shape[0]} "
            f"lengths for {b} sequences; give each one of both"
        )
    room = table.shape[1] * cache.shape[1]
    longest, most = room if longest is None else longest, min(room, 2**30)
    if not 0 <= longest <= most:
        raise ValueError(
            f"mla_decode: longest = {longest} is not from 0 to {most}, for which the "
            "table has room; give it more columns, or a bound that fits"
        )
    if not 0 < scale < math.inf:
        raise ValueError(f"mla_decode: scale = {scale} is none; give a positive one")
    return longest


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::mla_decode", mutates_args=())
def attention(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    rope: int,
    longest: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    return decode(q, cache, table, lengths, scale, rope, longest)


@attention.register_fake
def _(q, cache, table, lengths, scale, rope, longest):
    out = q.new_empty((*q.shape[:3], q.shape[3] - rope))
    return out, q.new_empty(q.shape[:3], dtype=torch.float32)


def mla_decode(
    q: torch.Tensor,
    cache: torch.Tensor,
    table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    rope: int = 64,
    longest: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """out and lse, for inference. `scale` is the model's: for heads of 128 + 64
    columns 1 / sqrt(192), and never 1 / sqrt(L + R). `longest` bounds the lengths:
    unless given, all that the table holds, as no length is known here."""
    longest = checked(q, cache, table, lengths, scale, rope, longest)
    return attention(q, cache, table, lengths, scale, rope, longest)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Keys and values of four heads expanded, against rows that are never expanded."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    t, h, d, latent, rope, length = 2, 4, 32, 64, 16, 100
    q_nope, q_rope, rows = draw(1, t, h, d), draw(1, t, h, rope), draw(1, length, 80)
    w_uk, w_uv = draw(h, d, latent) / 8, draw(h, latent, d) / 8
    scale = (d + rope) ** -0.5
    exact = [x.double() for x in (q_nope, q_rope, rows, w_uk, w_uv)]
    wanted = unabsorbed(*exact, scale)
    pages = torch.randperm(7, generator=generator)  # of 16 rows, in no order
    cache = torch.full((7, 16, latent + rope), float("nan"))
    for page, piece in zip(pages.tolist(), rows[0].split(16), strict=True):
        cache[page, : len(piece)] = piece
    q = absorb(q_nope, q_rope, w_uk)
    told = [x.to(device) for x in (q, cache, pages[None], torch.tensor([length]))]
    ways = {"a head": {"way": "by head"}, "one part": {"chunk": 2**30},
            "parts of 32 rows": {"chunk": 32}}  # fmt: skip
    for name, way in ways.items():
        out, _ = decode(*told, scale, rope, **way)
        error = (lift(out.cpu(), w_uv) - wanted).norm() / wanted.norm()
        print(f"{name}: as expanded keys and values give, {float(error) < 1e-5}")
    print("bytes a token and layer, 128 heads of 128 + 64, in 16 bits:")
    print(f"  expanded {2 * 128 * (192 + 128)}, latent {2 * 576}")
    print("operations a byte of cache, by heads of queries:")
    for h in (16, 64, 128):
        print(f"  {h:3}: {2 * h * (576 + 512) / 1152:.0f}")
    print("cut for 132 multiprocessors, 128 heads, a token a sequence:")
    tile = tile_of(512, 128, torch.bfloat16, 90)
    for b, longest in ((1, 1024), (1, 131_072), (16, 8192), (132, 8192)):
        chunk = chunk_of(b, 128, tile, longest, 132)
        parts = -(-longest // chunk)
        print(f"  {b:3} of {longest:6} rows: {parts:2} parts of {chunk}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

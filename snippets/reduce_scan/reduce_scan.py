"""Reductions and scans of rows and of segments run at a copy's speed in equal shares.

Shapes  rows: x (..., N) -> sum or logsumexp (...,) of x's dtype, or max, whose index
        (...,) int64 is that of the first of equals. segment_sum: x (N,) and offsets
        (S + 1,) int32 or int64 -> y (S,), y[s] = sum(x[offsets[s] : offsets[s + 1]]).
        scan: x and gates as x, or None for gates of 1 -> h as x,
        h[i] = gates[i] * h[i - 1] + x[i], begun anew in each row of x (..., N), or in
        x (N,) at each of offsets. float32, float16 or bfloat16; any strides
Bytes   rows, segment_sum: x read once; scan: x and gates read once, h written once.
        What lies past a share's last start of a segment is read twice by scan: all of
        one row without offsets
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are
        float32, carries float64. The same inputs give the same bits on the same GPU
Raises  ValueError, TypeError for shapes, dtypes and devices other than these. On a GPU
        offsets are not looked into, since that would wait for it: they must rise from
        0 or more to N or less, by 0 where a segment is empty. Products of gates are
        formed, and must not overflow
Source  decoupled-look-back, gpu-gems-scan, cub
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

ROW_BYTES = 8192  # of rows that a block has in flight: 64 for each of 128 threads
TILE = 2048  # elements of a share that are scanned together: 16 for each of 128 threads
ENDS = 256  # ends of segments that a block looks at together
SHARES = 4  # for each multiprocessor: 16 warps, of at most 128 registers a thread
LOG2E = tl.constexpr(1.4426950408889634)  # exp(t) = exp2(t * LOG2E)
LN2 = tl.constexpr(0.6931471805599453)
COUNTS = ("n", "count", "tiles")  # of which no code is made for 1 alone


# --8<-- [start:combine]
@triton.jit
def add(x, y):
    return x + y


@triton.jit
def larger(x, y):
    return tl.maximum(x, y)


@triton.jit
def first_max(x, i, y, j):
    """The larger, NaN above all; of equals the one further left, whoever asks first."""
    x_wins = (x > y) | ((x != x) & (y == y))
    tie = (x == y) | ((x != x) & (y != y))
    left = x_wins | (tie & (i < j))
    return tl.where(left, x, y), tl.where(left, i, j)


@triton.jit
def finite(top):
    """What to subtract: an infinite maximum less itself would be NaN."""
    return tl.where(tl.abs(top) == float("inf"), 0.0, top)


@triton.jit
def log_add(top, total, other_top, other_total):
    """Sums of exp(x - top), brought to the larger of two maxima."""
    higher = tl.maximum(top, other_top)
    shift = finite(higher)
    total = total * tl.exp2((finite(top) - shift) * LOG2E)
    other_total = other_total * tl.exp2((finite(other_top) - shift) * LOG2E)
    return higher, total + other_total


@triton.jit
def add_within(opens, x, other_opens, y):
    """Sums that begin anew where a segment opens. It does not commute."""
    return opens | other_opens, tl.where(other_opens != 0, y, x + y)


@triton.jit
def then(a, b, other_a, other_b):
    """h -> a * h + b and after it the other, as one such map. It does not commute."""
    return a * other_a, other_a * b + other_b


@triton.jit
def then_within(opens, a, b, other_opens, other_a, other_b):
    """The same, but past an opening nothing is known of what came before."""
    # Chosen, not multiplied by 0: an infinity must not pass from segment to segment.
    new = other_opens != 0
    b = tl.where(new, other_b, other_a * b + other_b)
    return opens | other_opens, tl.where(new, other_a, a * other_a), b
# --8<-- [end:combine]


# --8<-- [start:each]
@triton.jit
def reduce_each(y_ptr, index_ptr, x_ptr, offsets_ptr, n, x_stride, OP: tl.constexpr,
                BLOCK: tl.constexpr):
    """A program for each row or segment, and a tree in each round."""
    row = tl.program_id(0).to(tl.int64)
    begin, size = row * x_stride, tl.cast(n, tl.int64)
    if offsets_ptr is not None:
        begin = tl.load(offsets_ptr + row).to(tl.int64)
        size = tl.load(offsets_ptr + row + 1) - begin
    top, index, total = float("-inf"), tl.cast(0, tl.int64), 0.0
    for start in range(0, size, BLOCK):
        here = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + begin + here, mask=here < size,
                    other=0.0 if OP == "sum" else float("-inf")).to(tl.float32)
        if OP == "sum":
            total += tl.reduce(x, 0, add)
        elif OP == "max":
            best, place = tl.reduce((x, here), 0, first_max)
            top, index = first_max(top, index, best, place)
        else:
            weight = tl.where(x == float("-inf"), 0.0, 1.0)
            best, weight = tl.reduce((x, weight), 0, log_add)
            top, total = log_add(top, total, best, weight)
    if OP == "logsumexp":
        total = top + tl.log2(total) * LN2
    if OP == "max":
        tl.store(index_ptr + row, index)
        total = top
    tl.store(y_ptr + row, total.to(y_ptr.dtype.element_ty))


@triton.jit
def scan_each(h_ptr, x_ptr, gates_ptr, offsets_ptr, BLOCK: tl.constexpr):
    """A program for each segment: every tile waits for the one before."""
    row = tl.program_id(0)
    begin = tl.load(offsets_ptr + row).to(tl.int64)
    size = tl.load(offsets_ptr + row + 1) - begin
    last = tl.arange(0, BLOCK) == BLOCK - 1
    carry = tl.cast(0.0, tl.float64)  # of all tiles before: rounded once for each
    for start in range(0, size, BLOCK):
        here = start + tl.arange(0, BLOCK)
        at = begin + here
        before = carry.to(tl.float32)
        h = tl.load(x_ptr + at, mask=here < size, other=0.0).to(tl.float32)
        if gates_ptr is None:
            h = tl.associative_scan(h, 0, add)
            carry += tl.sum(tl.where(last, h, 0.0), 0)
            h += before
        else:
            a = tl.load(gates_ptr + at, mask=here < size, other=1.0).to(tl.float32)
            a, h = tl.associative_scan((a, h), 0, then)
            h += a * before
            carry = tl.sum(tl.where(last, h, 0.0), 0).to(tl.float64)
        tl.store(h_ptr + at, h.to(h_ptr.dtype.element_ty), mask=here < size)
# --8<-- [end:each]


# --8<-- [start:rows]
@triton.jit(do_not_specialize=("m", "tiles"))
def reduce_rows(y_ptr, second_ptr, x_ptr, weight_ptr, m, n, x_stride, tiles,
                OP: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
                WIDTH: tl.constexpr):
    """Some rows, or a part of each; or what the parts left, beside their second_ptr."""
    # int64: M * N may pass 2**31. Rows past the end repeat the last, and are dropped.
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    COLS: tl.constexpr = LANES * WIDTH
    begin = tl.program_id(1).to(tl.int64) * tiles * COLS
    size = tl.minimum(n - begin, tiles * COLS).to(tl.int32)
    source = tl.minimum(row, m - 1)[:, None, None] * x_stride + begin
    lane = tl.arange(0, LANES)[None, :, None]
    col = lane * WIDTH + tl.arange(0, WIDTH)[None, None, :]
    top = tl.full([ROWS, LANES], float("-inf"), tl.float32)
    index = tl.full([ROWS, LANES], 2**31 - 1, tl.int32)
    total = tl.zeros([ROWS, LANES], tl.float32)
    for start in tl.range(0, size, COLS):
        here = start + col
        x = tl.load(x_ptr + source + here, mask=here < size,
                    other=0.0 if OP == "sum" else float("-inf"),
                    eviction_policy="evict_first").to(tl.float32)
        # First the 16 bytes of a lane, axis 2, within a thread: the tree comes later.
        if OP == "sum":
            total += tl.reduce(x, 2, add)
        elif OP == "max":
            here = here + tl.zeros([ROWS, LANES, WIDTH], tl.int32)
            best, place = tl.reduce((x, here), 2, first_max)
            top, index = first_max(top, index, best, place)
        else:
            higher = tl.maximum(top, tl.max(x, axis=2))
            shift = finite(higher)
            part = tl.exp2((x - shift[:, :, None]) * LOG2E)
            if weight_ptr is not None:  # x is a part's maximum, and this its sum
                part = part * tl.load(weight_ptr + source + here, mask=here < size,
                                      other=0.0)
            total = total * tl.exp2((top - shift) * LOG2E) + tl.sum(part, axis=2)
            top = higher
    out = row * tl.num_programs(1) + tl.program_id(1)
    if OP == "sum":
        y = tl.reduce(total, 1, add)
    elif OP == "max":
        y, index = tl.reduce((top, index), 1, first_max)
        if weight_ptr is None:
            place = begin + index
        else:  # index is a part's number, and this its index
            place = tl.load(weight_ptr + tl.minimum(row, m - 1) * x_stride + index)
        tl.store(second_ptr + out, place, mask=row < m)
    else:
        y, total = tl.reduce((top, total), 1, log_add)
        if second_ptr is None:
            y += tl.log2(total) * LN2
        else:
            tl.store(second_ptr + out, total, mask=row < m)
    tl.store(y_ptr + out, y.to(y_ptr.dtype.element_ty), mask=row < m)
# --8<-- [end:rows]


# --8<-- [start:segments]
@triton.jit
def first_above(ends_ptr, count, at):
    """How many of the rising ends are at most `at`."""
    low, high = tl.cast(0, tl.int64), tl.cast(count, tl.int64)
    while low < high:
        middle = (low + high) // 2
        if tl.load(ends_ptr + middle) > at:
            high = middle
        else:
            low = middle + 1
    return low


@triton.jit
def load_tile(ptr, start, begin, end, other: tl.constexpr, RAGGED: tl.constexpr,
              TILE: tl.constexpr):
    """A tile of begin ... end - 1. A mask that may end anywhere cuts 16-byte loads into
    single ones, so only a ragged tile has it; another is there or is not."""
    each = tl.arange(0, TILE)
    if RAGGED:
        low = tl.minimum(begin - start, TILE).to(tl.int32)  # 32 bits for each element
        high = tl.maximum(tl.minimum(end - start, TILE), 0).to(tl.int32)
        x = tl.load(ptr + start + each, mask=(each >= low) & (each < high), other=other)
    else:
        there = (start >= begin) & (start + TILE <= end)
        x = tl.load(ptr + start + each, mask=there, other=other,
                    eviction_policy="evict_first")
    return x


@triton.jit
def store_tile(ptr, start, end, x, RAGGED: tl.constexpr, TILE: tl.constexpr):
    each = tl.arange(0, TILE)
    x = x.to(ptr.dtype.element_ty)
    if RAGGED:
        tl.store(ptr + start + each, x, mask=each < (end - start).to(tl.int32))
    else:
        tl.store(ptr + start + each, x, eviction_policy="evict_first")


@triton.jit
def mark_ends(marks_ptr, ends_ptr, k, count, start, stamp, PAST: tl.constexpr,
              BACK: tl.constexpr, TILE: tl.constexpr, ENDS: tl.constexpr):
    """Whether a segment opens at each element of a tile, or BACK ends with it; and the
    next k. Passed are ends up to start + TILE - 1 + PAST, or BACK all after start.

    Triton has no scatter into shared memory. So a program has a tile of marks in global
    memory, which stays in L1 and L2, and a stamp for each of its tiles: what is marked
    with another is left from an earlier one, and nothing need be cleared."""
    each = tl.arange(0, ENDS)
    tl.debug_barrier()  # the marks of the tile before have been read
    more = True
    while more:
        index = k - 1 - each if BACK else k + each
        there = (index >= 0) & (index < count)
        end = tl.load(ends_ptr + index, mask=there, other=0).to(tl.int64)
        # Between -1 and TILE + 1 it fits 32 bits, however far away the end is.
        place = tl.minimum(tl.maximum(end - start, -1), TILE + 1).to(tl.int32)
        passed = there & ((place > 0) if BACK else (place < TILE + PAST))
        place = place - 1 if BACK else place
        within = passed & (place >= 0) & (place < TILE)
        tl.store(marks_ptr + place, stamp, mask=within)
        here = tl.sum(passed.to(tl.int32))
        k = k - here if BACK else k + here
        more = here == ENDS
    tl.debug_barrier()
    marks = tl.load(marks_ptr + tl.arange(0, TILE), eviction_policy="evict_last")
    return (marks == stamp).to(tl.int32), k


@triton.jit
def sum_tile(y_ptr, part_ptr, marks_ptr, x, ends_ptr, k, first, count, start, stamp,
             carry, TILE: tl.constexpr, ENDS: tl.constexpr):
    """Writes the sums that end in a tile; the next k, and the sum that goes on."""
    opens, done = mark_ends(marks_ptr, ends_ptr, k, count, start, stamp, 1, False, TILE,
                            ENDS)
    opens, x = tl.associative_scan((opens, x.to(tl.float32)), 0, add_within)
    x = tl.where(opens != 0, x, x + carry)
    while k < done:
        index = k + tl.arange(0, ENDS)
        there = (index > 0) & (index < done)
        end = tl.load(ends_ptr + index, mask=there, other=0).to(tl.int64)
        begin = tl.load(ends_ptr + index - 1, mask=there, other=0).to(tl.int64)
        place = tl.minimum(tl.maximum(end - 1 - start, 0), TILE - 1).to(tl.int32)
        y = tl.where(end > begin, tl.gather(x, place, 0), 0.0)
        tl.store(y_ptr + index - 1, y.to(y_ptr.dtype.element_ty), mask=there)
        # Of the first, not rounded: shares before may have more of it.
        part = part_ptr + tl.zeros([ENDS], tl.int32)
        tl.store(part, y, mask=there & (index == first))
        k += ENDS
    last = tl.arange(0, TILE) == TILE - 1
    carry = tl.sum(tl.where(last, x, 0.0), 0)
    end = tl.load(ends_ptr + done - 1, mask=done > 0, other=-1)
    # No segment goes on where one ends with the tile.
    return done, tl.where(end == start + TILE, 0.0, carry)


@triton.jit(do_not_specialize=COUNTS)
def segment_sums(y_ptr, first_ptr, state_ptr, marks_ptr, x_ptr, ends_ptr, n, count,
                 tiles, TILE: tl.constexpr, ENDS: tl.constexpr):
    """Sums of the segments that end in a share, as far as they lie in it."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    low = program.to(tl.int64) * tiles * TILE
    high = tl.minimum(low + tiles * TILE, n)
    whole = low + (high - low) // TILE * TILE
    x = load_tile(x_ptr, low, low, whole, 0.0, False, TILE)
    k = tl.cast(0, tl.int64)  # before the first share also what ends at 0 is written
    if program > 0:
        k = first_above(ends_ptr, count, low)
    first = k
    marks_ptr += program * TILE
    part_ptr = state_ptr + 2 * programs + program
    stamp = tl.cast(0, marks_ptr.dtype.element_ty)
    carry = 0.0
    for start in range(low, whole, TILE):
        # Of the next tile while this one is scanned.
        after = load_tile(x_ptr, start + TILE, low, whole, 0.0, False, TILE)
        stamp += 1
        k, carry = sum_tile(y_ptr, part_ptr, marks_ptr, x, ends_ptr, k, first, count,
                            start, stamp, carry, TILE, ENDS)
        x = after
    if whole < high:
        x = load_tile(x_ptr, whole, low, high, 0.0, True, TILE)
        stamp += 1
        k, carry = sum_tile(y_ptr, part_ptr, marks_ptr, x, ends_ptr, k, first, count,
                            whole, stamp, carry, TILE, ENDS)
    tl.store(first_ptr + program, tl.where(k > first, first - 1, -1))
    tl.store(state_ptr + program, tl.where(k > first, 1.0, 0.0))
    tl.store(state_ptr + programs + program, carry)


@triton.jit(do_not_specialize=("shares",))
def join_sums(y_ptr, first_ptr, state_ptr, shares, BLOCK: tl.constexpr):
    """What the shares before have of the segment that ends first in a share."""
    program = tl.arange(0, BLOCK)
    after = (program > 0) & (program < shares)
    opens = tl.load(state_ptr + program - 1, mask=after, other=0.0).to(tl.int32)
    x = tl.load(state_ptr + shares + program - 1, mask=after, other=0.0)
    _, x = tl.associative_scan((opens, x), 0, add_within)
    first = tl.load(first_ptr + program, mask=after, other=-1)
    x += tl.load(state_ptr + 2 * shares + program, mask=first >= 0, other=0.0)
    tl.store(y_ptr + first, x.to(y_ptr.dtype.element_ty), mask=first >= 0)


@triton.jit(do_not_specialize=COUNTS)
def spread(dx_ptr, marks_ptr, dy_ptr, ends_ptr, n, count, tiles, TILE: tl.constexpr,
           ENDS: tl.constexpr):
    """Each element gets what its segment has: the gradient of a sum."""
    low = tl.program_id(0).to(tl.int64) * tiles * TILE
    high = tl.minimum(low + tiles * TILE, n)
    k = first_above(ends_ptr, count, low - 1)
    each = tl.arange(0, ENDS)
    marks_ptr += tl.program_id(0) * TILE
    for start in range(low, high, TILE):
        before = k
        tl.debug_barrier()
        more = True
        while more:  # as mark_ends, but a mark is an end's number
            there = k + each < count
            end = tl.load(ends_ptr + k + each, mask=there, other=0).to(tl.int64)
            more_there = k + each + 1 < count
            after = tl.load(ends_ptr + k + each + 1, mask=more_there, other=-1)
            passed = there & (end < start + TILE)
            # Of ends in one place, where segments are empty, the last.
            tl.store(marks_ptr + (end - start), (k + 1 + each).to(tl.int32),
                     mask=passed & (end >= start) & (end != after))
            here = tl.sum(passed.to(tl.int32))
            k += here
            more = here == ENDS
        tl.debug_barrier()
        # An older mark is less than what the share had passed before this tile.
        segment = tl.load(marks_ptr + tl.arange(0, TILE), eviction_policy="evict_last")
        segment = tl.maximum(segment, before.to(tl.int32))
        segment = tl.associative_scan(segment, 0, larger)
        # Before the first offset and from the last on there is no segment.
        within = (segment > 0) & (segment < count)
        dx = tl.load(dy_ptr + segment - 1, mask=within, other=0.0)
        if start + TILE <= high:
            store_tile(dx_ptr, start, high, dx, False, TILE)
        else:
            store_tile(dx_ptr, start, high, dx, True, TILE)
# --8<-- [end:segments]


# --8<-- [start:scan]
@triton.jit
def load_cut(ptr, start, begin, end, other: tl.constexpr, TILE: tl.constexpr):
    """A tile that may be cut on either side, and seldom is."""
    if (start >= begin) & (start + TILE <= end):
        x = load_tile(ptr, start, begin, end, other, False, TILE)
    else:
        x = load_tile(ptr, start, begin, end, other, True, TILE)
    return x.to(tl.float32)


@triton.jit(do_not_specialize=COUNTS)
def share_maps(state_ptr, x_ptr, gates_ptr, ends_ptr, n, count, tiles,
               BACK: tl.constexpr, TILE: tl.constexpr):
    """What a share makes of the h that comes in: a * h + b, or b if something opens."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    low = program.to(tl.int64) * tiles * TILE
    high = tl.minimum(low + tiles * TILE, n)
    begin, end, opens = low, high, 0.0
    if ends_ptr is not None:  # then only what lies past the last opening matters
        k = first_above(ends_ptr, count, low if BACK else high - 1)
        k = k if BACK else k - 1
        if (k >= 0) & (k < count):
            cut = tl.load(ends_ptr + k).to(tl.int64)
            if BACK:
                opens = tl.where(cut <= high, 1.0, 0.0)
                end = tl.minimum(cut, high)
            else:
                opens = tl.where(cut >= low, 1.0, 0.0)
                begin = tl.maximum(cut, low)
    gates_end = end
    if BACK and gates_ptr is not None:
        gates_ptr += 1  # h comes to an element by the gate of the next
        gates_end = tl.minimum(end, n - 1)
    edge = tl.arange(0, TILE) == (0 if BACK else TILE - 1)
    total = tl.zeros([TILE], tl.float32)
    a, b = 1.0, 0.0
    for start in range(low + (begin - low) // TILE * TILE, end, TILE):
        x = load_cut(x_ptr, start, begin, end, 0.0, TILE)
        if gates_ptr is None:
            total += x
        else:
            gate = load_cut(gates_ptr, start, begin, gates_end, 1.0, TILE)
            # Not tl.reduce, which may exchange its arguments: maps do not commute.
            gate, x = tl.associative_scan((gate, x), 0, then, reverse=BACK)
            tile_a = tl.sum(tl.where(edge, gate, 0.0), 0)
            tile_b = tl.sum(tl.where(edge, x, 0.0), 0)
            if BACK:  # the tile comes before those that are already in a and b
                a, b = then(tile_a, tile_b, a, b)
            else:
                a, b = then(a, b, tile_a, tile_b)
    if gates_ptr is None:
        b = tl.sum(total, 0)
    tl.store(state_ptr + program, opens)
    tl.store(state_ptr + programs + program, a)
    tl.store(state_ptr + 2 * programs + program, b)


@triton.jit
def scan_tile(h_ptr, marks_ptr, x, gates_ptr, ends_ptr, k, low, high, n, count, start,
              stamp, carry, BACK: tl.constexpr, RAGGED: tl.constexpr,
              TILE: tl.constexpr, ENDS: tl.constexpr):
    """Writes a tile of h; the next k, and the h that goes on."""
    h = x.to(tl.float32)
    before = carry.to(tl.float32)
    edge = tl.arange(0, TILE) == (0 if BACK else TILE - 1)
    if ends_ptr is not None:
        opens, k = mark_ends(marks_ptr, ends_ptr, k, count, start, stamp, 0, BACK, TILE,
                             ENDS)
    if gates_ptr is None and ends_ptr is None:
        h = tl.associative_scan(h, 0, add, reverse=BACK)
        # In float64: it is the sum of all tiles before, and rounded once for each.
        carry += tl.sum(tl.where(edge, h, 0.0), 0)
        h += before
    elif gates_ptr is None:
        opens, h = tl.associative_scan((opens, h), 0, add_within, reverse=BACK)
        h = tl.where(opens != 0, h, h + before)
    else:
        if BACK:  # h comes to an element by the gate of the next
            a = load_tile(gates_ptr + 1, start, low, n - 1, 1.0, True, TILE)
        else:
            a = load_tile(gates_ptr, start, low, high, 1.0, RAGGED, TILE)
        a = a.to(tl.float32)
        if ends_ptr is None:
            a, h = tl.associative_scan((a, h), 0, then, reverse=BACK)
            h += a * before
        else:
            maps = tl.associative_scan((opens, a, h), 0, then_within, reverse=BACK)
            h = tl.where(maps[0] != 0, maps[2], maps[2] + maps[1] * before)
    if gates_ptr is not None or ends_ptr is not None:
        carry = tl.sum(tl.where(edge, h, 0.0), 0).to(tl.float64)
    store_tile(h_ptr, start, high, h, RAGGED, TILE)
    return k, carry


@triton.jit(do_not_specialize=COUNTS)
def scan_shares(h_ptr, state_ptr, marks_ptr, x_ptr, gates_ptr, ends_ptr, n, count,
                tiles, BACK: tl.constexpr, PROGRAMS: tl.constexpr, TILE: tl.constexpr,
                ENDS: tl.constexpr):
    program, programs = tl.program_id(0), tl.num_programs(0)
    low = program.to(tl.int64) * tiles * TILE
    high = tl.minimum(low + tiles * TILE, n)
    whole = low + (high - low) // TILE * TILE  # from here on a ragged tile, or nothing
    step = -TILE if BACK else TILE
    start = whole - TILE if BACK else low
    x = load_tile(x_ptr, start, low, whole, 0.0, False, TILE)
    carry = tl.cast(0.0, tl.float64)
    if PROGRAMS > 1:  # the maps of all shares before, in their order, applied to 0
        each = tl.arange(0, PROGRAMS)
        before = each < (programs - 1 - program if BACK else program)
        other = state_ptr + (programs - 1 - each if BACK else each)
        opens = tl.load(other, mask=before, other=0.0).to(tl.int32)
        a = tl.load(other + programs, mask=before, other=1.0)
        b = tl.load(other + 2 * programs, mask=before, other=0.0).to(tl.float64)
        maps = tl.associative_scan((opens, a, b), 0, then_within)
        carry = tl.sum(tl.where(each == PROGRAMS - 1, maps[2], 0.0), 0)
    k = tl.cast(0, tl.int64)
    stamp = 0
    if ends_ptr is not None:
        k = first_above(ends_ptr, count, high if BACK else low - 1)
        marks_ptr += program * TILE
        stamp = tl.cast(0, marks_ptr.dtype.element_ty)
    for ragged in tl.static_range(2):
        if ragged == (0 if BACK else 1):
            if whole < high:
                last = load_tile(x_ptr, whole, low, high, 0.0, True, TILE)
                stamp += 1
                k, carry = scan_tile(h_ptr, marks_ptr, last, gates_ptr, ends_ptr, k,
                                     low, high, n, count, whole, stamp, carry, BACK,
                                     True, TILE, ENDS)
        else:
            for _ in range(low, whole, TILE):
                # Of the next tile while this one is scanned.
                after = load_tile(x_ptr, start + step, low, whole, 0.0, False, TILE)
                stamp += 1
                k, carry = scan_tile(h_ptr, marks_ptr, x, gates_ptr, ends_ptr, k, low,
                                     whole, n, count, start, stamp, carry, BACK, False,
                                     TILE, ENDS)
                x = after
                start += step
# --8<-- [end:scan]


def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # so few that shares of small cases have several tiles
    return torch.cuda.get_device_properties(device).multi_processor_count


def refuse(kind: type[Exception], said: str) -> None:
    raise kind(f"reduce_scan: {said}")


def check(given: dict[str, torch.Tensor | None], offsets: torch.Tensor | None) -> None:
    """See that tensors are of one device and of dtypes that the kernels take.

    Raises:
        TypeError: a dtype is none of the three, or a tensor is on another device.
        ValueError: offsets are no list, or gates not as x.
    """
    x = next(iter(given.values()))
    for name, tensor in {**given, "offsets": offsets}.items():
        dtypes = (torch.float32, torch.float16, torch.bfloat16)
        if name == "offsets":
            dtypes = (torch.int32, torch.int64)
        if tensor is None:
            continue
        if tensor.dtype not in dtypes:
            known = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
            refuse(TypeError, f"{name}: {tensor.dtype} is none of {known}; convert it")
        if tensor.device != x.device or x.is_meta:
            refuse(TypeError, f"{name} is on {tensor.device}; bring all to one GPU")
        if name == "gates" and tensor.shape != x.shape:
            told = f"{tuple(tensor.shape)}; they must be as x, {tuple(x.shape)}"
            refuse(ValueError, f"gates are {told}")
    if offsets is not None and (offsets.ndim != 1 or len(offsets) == 0):
        shape = tuple(offsets.shape)
        refuse(ValueError, f"offsets are {shape}; give a list, one more than segments")


def check_offsets(offsets: torch.Tensor, n: int) -> None:
    """On a CPU, where it waits for nothing, see that offsets rise within 0 ... n."""
    if offsets.device.type == "cpu" and len(offsets):
        low, high = int(offsets[0]), int(offsets[-1])
        if low < 0 or high > n or bool((offsets.diff() < 0).any()):
            where = f"from {low} to {high} do not rise within 0 and {n}"
            refuse(ValueError, f"offsets {where}; sort them")


def flat(x: torch.Tensor, name: str) -> torch.Tensor:
    if x.ndim != 1:
        refuse(ValueError, f"{name} is {tuple(x.shape)}; with offsets it must be flat")
    return x.contiguous()


def rows_of(x: torch.Tensor) -> torch.Tensor:
    """View (..., N) as (M, N) with adjacent columns; a copy where there is none."""
    if x.ndim == 0:
        refuse(ValueError, "x has 0 dimensions and so no row; give it one")
    n = x.shape[-1]
    rows = x.reshape(x.numel() // n if n else x.shape[:-1].numel(), n)
    return rows if n <= 1 or rows.stride(1) == 1 else rows.contiguous()


# --8<-- [start:launch]
def shares_of(n: int, device: torch.device, held: int = SHARES) -> tuple[int, int]:
    """Programs, `held` resident on each multiprocessor, and the tiles of each."""
    tiles = triton.cdiv(n, TILE)
    share = triton.cdiv(tiles, held * multiprocessors(device))
    return triton.cdiv(tiles, share), share


def marks_of(programs: int, wide: bool, device: torch.device) -> torch.Tensor:
    """A tile of marks for each program, as wide as x: both are then laid out alike."""
    dtype = torch.int32 if wide else torch.int16
    return torch.zeros(programs * TILE, dtype=dtype, device=device)


def rows(op: str, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """sum, max (and its index) or logsumexp of the last dimension."""
    check({"x": x}, None)
    if op not in ("sum", "max", "logsumexp"):
        refuse(ValueError, f"op {op!r} is none of sum, max, logsumexp; choose one")
    source = rows_of(x)
    m, n = source.shape
    if op == "max" and n == 0 and m > 0:
        refuse(ValueError, "N = 0 has no max; give each row an element")
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    index = torch.empty(m, dtype=torch.int64, device=x.device) if op == "max" else None
    if m:
        size = x.element_size()
        width = 16 // size
        cols = min(max(triton.next_power_of_2(n), width), ROW_BYTES // size)
        many = min(ROW_BYTES // (cols * size), 128)
        tiles = max(1, triton.cdiv(n, cols))
        # Rows too few for all multiprocessors are cut into parts of four tiles or more,
        # and of less than 2**31 elements: positions in a part are 32 bits wide.
        parts = 2 * SHARES * multiprocessors(x.device) // triton.cdiv(m, many)
        parts = max(1, min(parts, tiles // 4), triton.cdiv(tiles * cols, 2**30))
        tiles = triton.cdiv(tiles, parts)
        parts = max(1, triton.cdiv(n, tiles * cols))
        shape = {"ROWS": many, "LANES": cols // width, "WIDTH": width, "num_warps": 4}
        with torch.cuda.device_of(x):
            outs, ins = (y, index), (source, None)
            if parts > 1:
                first = torch.empty(m, parts, dtype=torch.float32, device=x.device)
                second = None if op == "sum" else torch.empty_like(
                    first, dtype=torch.int64 if op == "max" else torch.float32
                )  # fmt: skip
                reduce_rows[(triton.cdiv(m, many), parts)](
                    first, second, *ins, m, n, source.stride(0), tiles, OP=op, **shape,
                    enable_fp_fusion=False,  # or lanes round one sum in two ways
                )  # fmt: skip
                ins, n, tiles = (first, second), parts, triton.cdiv(parts, 1024)
                shape = {"ROWS": 1, "LANES": 256, "WIDTH": 4, "num_warps": 4}
            reduce_rows[(triton.cdiv(m, shape["ROWS"]), 1)](
                *outs, *ins, m, n, ins[0].stride(0), tiles, OP=op, **shape,
                enable_fp_fusion=False,
            )  # fmt: skip
    y = y.view(x.shape[:-1])
    return y if index is None else (y, index.view(x.shape[:-1]))


def sums(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Of each segment of x its sum."""
    check({"x": x}, offsets)
    x, offsets = flat(x, "x"), offsets.contiguous()
    check_offsets(offsets, len(x))
    y = torch.zeros(len(offsets) - 1, dtype=x.dtype, device=x.device)
    if x.numel() and y.numel():
        programs, tiles = shares_of(len(x), x.device)
        state = torch.empty(3, programs, dtype=torch.float32, device=x.device)
        first = torch.empty(programs, dtype=torch.int64, device=x.device)
        marks = marks_of(programs, x.element_size() == 4, x.device)
        with torch.cuda.device_of(x):
            segment_sums[(programs,)](
                y, first, state, marks, x, offsets, len(x), len(offsets), tiles,
                TILE=TILE, ENDS=ENDS, num_warps=4,
            )  # fmt: skip
            if programs > 1:  # a segment may lie in several
                block = triton.next_power_of_2(programs)
                join_sums[(1,)](y, first, state, programs, BLOCK=block, num_warps=8)
    return y


def spread_over(dy: torch.Tensor, offsets: torch.Tensor, n: int) -> torch.Tensor:
    """(N,): each element has what its segment has in dy, or 0."""
    check({"dy": dy}, offsets)
    dy, offsets = flat(dy, "dy"), offsets.contiguous()
    if len(dy) != len(offsets) - 1:
        due = f"with {len(offsets)} offsets it must be ({len(offsets) - 1},)"
        refuse(ValueError, f"dy is ({len(dy)},); {due}")
    check_offsets(offsets, n)
    dx = torch.empty(n, dtype=dy.dtype, device=dy.device)
    if n:
        programs, tiles = shares_of(n, dy.device)
        marks = marks_of(programs, True, dy.device)
        with torch.cuda.device_of(dy):
            spread[(programs,)](
                dx, marks, dy, offsets, n, len(offsets), tiles,
                TILE=TILE, ENDS=ENDS, num_warps=4,
            )  # fmt: skip
    return dx


def scanned(
    x: torch.Tensor,
    gates: torch.Tensor | None,
    offsets: torch.Tensor | None,
    back: bool = False,
) -> torch.Tensor:
    """The scan, or back: h[i] = gates[i + 1] * h[i + 1] + x[i]."""
    check({"x": x, "gates": gates}, offsets)
    h = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if offsets is not None:
        flat(x, "x")
        check_offsets(offsets, len(x))
    elif rows_of(x).shape[0] > 1 and x.numel():
        offsets = torch.arange(0, x.numel() + 1, x.shape[-1], device=x.device)
    if x.numel() == 0:
        return h
    x = x.contiguous()
    gates = None if gates is None else gates.contiguous()
    offsets = None if offsets is None else offsets.contiguous()
    n, count = x.numel(), 0 if offsets is None else len(offsets)
    # Triples take more registers than pairs: 168 a thread leave room for three blocks.
    triples = gates is not None and offsets is not None
    programs, tiles = shares_of(n, x.device, 3 if triples else SHARES)
    state = torch.empty(3, programs, dtype=torch.float32, device=x.device)
    marks = None
    if offsets is not None:
        marks = marks_of(programs, x.element_size() == 4, x.device)
    told = (x, gates, offsets, n, count, tiles)
    with torch.cuda.device_of(x):
        if programs > 1:
            share_maps[(programs,)](state, *told, BACK=back, TILE=TILE, num_warps=4)
        most = triton.next_power_of_2(programs)
        scan_shares[(programs,)](
            h, state, marks, *told, BACK=back, PROGRAMS=most,
            TILE=TILE, ENDS=ENDS, num_warps=4,
        )  # fmt: skip
    return h
# --8<-- [end:launch]


# --8<-- [start:alone]
def rows_alone(op: str, x: torch.Tensor, offsets: torch.Tensor | None = None):
    """Each row, or segment of a flat x, by a program of its own."""
    check({"x": x}, offsets)
    if offsets is None:
        source, shape = rows_of(x), x.shape[:-1]
        (m, n), stride = source.shape, source.stride(0)
    else:
        check_offsets(offsets, len(flat(x, "x")))
        source, offsets = x.contiguous(), offsets.contiguous()
        m, n, stride, shape = len(offsets) - 1, 0, 0, (len(offsets) - 1,)
    if op == "max" and n == 0 and m > 0:
        refuse(ValueError, "N = 0 has no max; give each row an element")
    y = torch.empty(m, dtype=x.dtype, device=x.device)
    index = torch.empty(m, dtype=torch.int64, device=x.device) if op == "max" else None
    if m:
        with torch.cuda.device_of(x):
            reduce_each[(m,)](
                y, index, source, offsets, n, stride, OP=op, BLOCK=1024,
                enable_fp_fusion=False,  # or lanes round one sum in two ways
            )  # fmt: skip
    return y.view(shape) if index is None else (y.view(shape), index.view(shape))


def scan_alone(x, gates, offsets):
    """Each row, or segment of a flat x, by a program of its own."""
    check({"x": x, "gates": gates}, offsets)
    h = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    if offsets is None:
        count = rows_of(x).shape[0]
        offsets = torch.arange(count + 1, device=x.device) * (n // max(count, 1))
    else:  # what lies before the first and after the last is scanned too
        check_offsets(offsets, len(flat(x, "x")))
        ends = offsets.new_tensor([0, n])
        offsets = torch.cat([ends[:1], offsets, ends[1:]])
    if n:
        gates = None if gates is None else gates.contiguous()
        with torch.cuda.device_of(x):
            scan_each[(len(offsets) - 1,)](
                h, x.contiguous(), gates, offsets, BLOCK=1024
            )
    return h
# --8<-- [end:alone]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::segment_sum", mutates_args=())
def segment_sum(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Sums of segments; differentiable in x."""
    return sums(x, offsets)


@torch.library.custom_op("warpshelf::segment_spread", mutates_args=())
def segment_spread(dy: torch.Tensor, offsets: torch.Tensor, n: int) -> torch.Tensor:
    return spread_over(dy, offsets, n)


@torch.library.custom_op("warpshelf::scan", mutates_args=())
def gated_scan(
    x: torch.Tensor,
    gates: torch.Tensor | None,
    offsets: torch.Tensor | None,
    back: bool,
) -> torch.Tensor:
    return scanned(x, gates, offsets, back)


@segment_sum.register_fake
def _(x, offsets):
    return x.new_empty(offsets.shape[0] - 1)


@segment_spread.register_fake
def _(dy, offsets, n):
    return dy.new_empty(n)


@gated_scan.register_fake
def _(x, gates, offsets, back):
    return x.new_empty(x.shape)


def remember_offsets(ctx, inputs, output) -> None:
    x, offsets = inputs
    ctx.n = x.shape[0]
    ctx.save_for_backward(offsets)


def gradient_of_sums(ctx, dy):
    return segment_spread(dy, *ctx.saved_tensors, ctx.n), None


def gradient_of_spread(ctx, dx):
    return segment_sum(dx, *ctx.saved_tensors), None, None


def remember_offsets_only(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[1])


def remember_scan(ctx, inputs, output) -> None:
    _, gates, offsets, ctx.back = inputs
    ctx.save_for_backward(gates, offsets, None if gates is None else output)


def gradient_of_scan(ctx, dh):
    """dx is the scan the other way; a gate's is that times the h that it let in."""
    gates, offsets, h = ctx.saved_tensors
    if gates is not None and ctx.back:
        refuse(ValueError, "a scan back with gates has no gradient; reverse x instead")
    dx = gated_scan(dh, gates, offsets, not ctx.back)
    if gates is None:
        return dx, None, None, None
    dgates = dx.new_zeros(dx.numel() + 1)  # an offset of N meets the one too many
    torch.mul(dx.reshape(-1)[1:], h.reshape(-1)[:-1], out=dgates[1:-1])
    if offsets is None:
        dgates[:: dx.shape[-1]] = 0
    else:
        dgates[offsets.long()] = 0
    return dx, dgates[:-1].view(dx.shape), None, None


segment_sum.register_autograd(gradient_of_sums, setup_context=remember_offsets)
segment_spread.register_autograd(
    gradient_of_spread, setup_context=remember_offsets_only
)
gated_scan.register_autograd(gradient_of_scan, setup_context=remember_scan)


def scan(
    x: torch.Tensor,
    gates: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
) -> torch.Tensor:
    """h[i] = gates[i] * h[i - 1] + x[i]; differentiable in x and gates."""
    check({"x": x, "gates": gates}, offsets)
    return gated_scan(x, gates, offsets, False)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Ties, empty segments, an infinity that stays where it is, and a gradient."""
    nan = float("nan")
    x = torch.tensor([[1.0, 7, 7, 0], [nan, 7, 7, nan]], device=device)
    print("max of rows:", *(each.tolist() for each in rows("max", x)))
    print("logsumexp of 1e4, 1e4:", rows("logsumexp", x.new_full((2,), 1e4)).item())
    offsets = torch.tensor([0, 2, 2, 5, 6], device=device)
    x = torch.tensor([1.0, 2, float("inf"), 3, 4, 5], device=device)
    print("segments:", segment_sum(x, offsets).tolist())
    print("their scan:", scan(x, None, offsets).tolist())
    gates = torch.tensor([9.0, 0.5, 9, 0.5, 0.5, 9], device=device)
    print("h = gate * h + x:", scan(x.clamp(max=8), gates, offsets).tolist())
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50_000, generator=generator).to(device).requires_grad_()
    gates = torch.rand(50_000, generator=generator).to(device).requires_grad_()
    dh = torch.randn(50_000, generator=generator).to(device)
    found = torch.autograd.grad(scan(x, gates), (x, gates), dh)
    dx, h = [0.0] * 50_001, [0.0]
    for each, gate in zip(x.tolist(), gates.tolist(), strict=True):
        h.append(gate * h[-1] + each)
    after = [*gates.tolist()[1:], 0.0]
    for i in reversed(range(50_000)):
        dx[i] = after[i] * dx[i + 1] + dh[i].item()
    dgates = [a * b for a, b in zip(dx[:-1], h[:-1], strict=True)]
    for name, got, due in zip(("dx", "dgates"), found, (dx[:-1], dgates), strict=True):
        want = torch.tensor(due, dtype=torch.float64)
        close = bool((got.cpu().double() - want).norm() <= 5e-6 * want.norm())
        print(f"{name} of 50,000 within 5e-6 of float64: {close}")


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

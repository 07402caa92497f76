"""Sums of segments of unlike length in equal shares: a scan stops where one opens.

Shapes  x (N,) and offsets (S + 1,) int32 or int64 -> y (S,) of x's dtype, y[s] =
        sum(x[offsets[s] : offsets[s + 1]]). Its gradient spreads dy (S,) over (N,).
        float32, float16 or bfloat16; any strides
Bytes   x and offsets read once, y written once, however uneven the segments are
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are
        float32. The same inputs give the same bits on the same GPU
Raises  ValueError, TypeError for shapes, dtypes and devices other than these. On a GPU
        offsets are not looked into, since that would wait for it: they must rise from
        0 or more to N or less, by 0 where a segment is empty
Source  gpu-gems-scan, cub
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

TILE = 2048  # elements of a share that are scanned together: 16 for each of 128 threads
ENDS = 256  # ends of segments that a block looks at together
SHARES = 4  # for each multiprocessor: 16 warps, of at most 128 registers a thread
COUNTS = ("n", "count", "tiles")  # of which no code is made for 1 alone


# --8<-- [start:each]
@triton.jit
def add(x, y):
    return x + y


@triton.jit
def sum_each(y_ptr, x_ptr, offsets_ptr, BLOCK: tl.constexpr):
    """A program for each segment, and a tree in each round."""
    segment = tl.program_id(0)
    begin = tl.load(offsets_ptr + segment).to(tl.int64)
    size = tl.load(offsets_ptr + segment + 1) - begin
    total = 0.0
    for start in range(0, size, BLOCK):
        here = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + begin + here, mask=here < size, other=0.0)
        total += tl.reduce(x.to(tl.float32), 0, add)
    tl.store(y_ptr + segment, total.to(y_ptr.dtype.element_ty))
# --8<-- [end:each]


# --8<-- [start:within]
@triton.jit
def add_within(opens, x, other_opens, y):
    """Sums that begin anew where a segment opens. It does not commute."""
    return opens | other_opens, tl.where(other_opens != 0, y, x + y)
# --8<-- [end:within]


@triton.jit
def larger(x, y):
    return tl.maximum(x, y)


# --8<-- [start:tiles]
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
# --8<-- [end:tiles]


# --8<-- [start:marks]
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
# --8<-- [end:marks]


# --8<-- [start:segments]
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
# --8<-- [end:segments]


# --8<-- [start:spread]
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
# --8<-- [end:spread]


def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # so few that shares of small cases have several tiles
    return torch.cuda.get_device_properties(device).multi_processor_count


def refuse(kind: type[Exception], said: str) -> None:
    raise kind(f"segment_reduce: {said}")


def check(x: torch.Tensor, offsets: torch.Tensor, n: int, name: str = "x") -> None:
    """See that x is a list of a dtype that kernels take, and offsets cut 0 ... n."""
    floats = (torch.float32, torch.float16, torch.bfloat16)
    for what, tensor, dtypes in (
        (name, x, floats),
        ("offsets", offsets, (torch.int32, torch.int64)),
    ):
        if tensor.dtype not in dtypes:
            known = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
            refuse(TypeError, f"{what}: {tensor.dtype} is none of {known}; convert it")
        if tensor.device != x.device or x.is_meta:
            refuse(TypeError, f"{what} is on {tensor.device}; bring all to one GPU")
    if offsets.ndim != 1 or len(offsets) == 0:
        shape = tuple(offsets.shape)
        refuse(ValueError, f"offsets are {shape}; give a list, one more than segments")
    if x.ndim != 1:
        refuse(ValueError, f"{name} is {tuple(x.shape)}; with offsets it must be flat")
    check_offsets(offsets, n)


def check_offsets(offsets: torch.Tensor, n: int) -> None:
    """On a CPU, where it waits for nothing, see that offsets rise within 0 ... n."""
    if offsets.device.type == "cpu" and len(offsets):
        low, high = int(offsets[0]), int(offsets[-1])
        if low < 0 or high > n or bool((offsets.diff() < 0).any()):
            where = f"from {low} to {high} do not rise within 0 and {n}"
            refuse(ValueError, f"offsets {where}; sort them")


def sums_alone(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Of each segment of x its sum, by a program of its own."""
    check(x, offsets, x.numel())
    y = torch.empty(len(offsets) - 1, dtype=x.dtype, device=x.device)
    if len(y):
        with torch.cuda.device_of(x):
            sum_each[(len(y),)](y, x.contiguous(), offsets.contiguous(), BLOCK=1024)
    return y


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


def sums(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Of each segment of x its sum."""
    check(x, offsets, x.numel())
    x, offsets = x.contiguous(), offsets.contiguous()
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
    check(dy, offsets, n, "dy")
    dy, offsets = dy.contiguous(), offsets.contiguous()
    if len(dy) != len(offsets) - 1:
        due = f"with {len(offsets)} offsets it must be ({len(offsets) - 1},)"
        refuse(ValueError, f"dy is ({len(dy)},); {due}")
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
# --8<-- [end:launch]


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::segment_sum", mutates_args=())
def segment_sum(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Sums of segments; differentiable in x."""
    return sums(x, offsets)


@torch.library.custom_op("warpshelf::segment_spread", mutates_args=())
def segment_spread(dy: torch.Tensor, offsets: torch.Tensor, n: int) -> torch.Tensor:
    return spread_over(dy, offsets, n)


@segment_sum.register_fake
def _(x, offsets):
    return x.new_empty(offsets.shape[0] - 1)


@segment_spread.register_fake
def _(dy, offsets, n):
    return dy.new_empty(n)


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


segment_sum.register_autograd(gradient_of_sums, setup_context=remember_offsets)
segment_spread.register_autograd(
    gradient_of_spread, setup_context=remember_offsets_only
)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Empty segments, an infinity that stays where it is, and a gradient."""
    offsets = torch.tensor([0, 2, 2, 5, 6], device=device)
    x = torch.tensor([1.0, 2, float("inf"), 3, 4, 5], device=device, requires_grad=True)
    y = segment_sum(x, offsets)
    print("sums:", y.tolist())
    (dx,) = torch.autograd.grad(y, x, torch.tensor([1.0, 2, 3, 4], device=device))
    print("1, 2, 3, 4 spread over them:", dx.tolist())
    x = torch.ones(50_000, device=device)
    offsets = torch.tensor([0, 1, 30_001, 50_000], device=device)
    print("of 50,000 ones:", segment_sum(x, offsets).tolist())


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

"""A running sum of everything reads its input once if each tile asks those before it.

Shapes  x (N,) -> y (N,) of x's dtype, y[i] = x[0] + ... + x[i]; float32, float16 or
        bfloat16; any strides
Bytes   look back: x read once, y written once. Beside them a tile of 4096 tells its sum
        in two words of 8 bytes and asks for 32 such words, and for 32 more as long as
        none of them is a whole prefix: 8.1 bytes an element of float32 if it asks once.
        In shares: x read twice, 12 bytes an element
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; a tile's sums
        are float32, what goes from tile to tile is float64. Alone and in shares the
        same inputs give the same bits on the same GPU. Looking back, the float64 sums
        are added in the order in which they come, and may differ in their last bits
Raises  ValueError, TypeError for shapes, dtypes and devices other than these
Source  decoupled-look-back, gpu-gems-scan, cub
"""

from __future__ import annotations

import torch

if not torch.cuda.is_available():
    import papergpu  # executes the kernels' PTX on a CPU; github.com/warpshelf has it

    papergpu.activate()

import triton
import triton.language as tl

SHARES = 2  # for each multiprocessor: 16 warps, of at most 128 registers a thread
TILE = tl.constexpr(4096)  # elements that are scanned together: 16 for each thread
WARPS = 8


# --8<-- [start:alone]
@triton.jit
def add(x, y):
    return x + y


@triton.jit
def load(x_ptr, start, end):
    """A tile. Only one that the end cuts is masked: masks part loads of 16 bytes."""
    each = tl.arange(0, TILE)
    x_ptr += start
    if start + TILE <= end:
        x = tl.load(x_ptr + each)
    else:
        x = tl.load(x_ptr + each, mask=each < (end - start).to(tl.int32), other=0.0)
    return x.to(tl.float32)


@triton.jit
def store(y_ptr, start, end, y):
    each = tl.arange(0, TILE)
    y_ptr, y = y_ptr + start, y.to(y_ptr.dtype.element_ty)
    if start + TILE <= end:
        tl.store(y_ptr + each, y)
    else:
        tl.store(y_ptr + each, y, mask=each < (end - start).to(tl.int32))


@triton.jit
def scan_tile(y_ptr, x, start, end, before):
    """Writes a tile of y, and returns what goes on to the next, in float64."""
    y = tl.associative_scan(x, 0, add)
    store(y_ptr, start, end, y + before.to(tl.float32))
    return before + tl.sum(x, 0)


@triton.jit(do_not_specialize=("n",))
def scan_alone(y_ptr, x_ptr, n):
    """One program: every tile waits for the one before."""
    carry = tl.cast(0.0, tl.float64)
    for start in range(0, tl.cast(n, tl.int64), TILE):
        carry = scan_tile(y_ptr, load(x_ptr, start, n), start, n, carry)
# --8<-- [end:alone]


# --8<-- [start:shares]
@triton.jit
def share(n, tiles):
    """Where this program's share of the tiles begins and ends."""
    low = tl.program_id(0).to(tl.int64) * tiles * TILE
    return low, tl.minimum(low + tiles * TILE, n)


@triton.jit(do_not_specialize=("n", "tiles"))
def share_sums(sums_ptr, x_ptr, n, tiles):
    """First launch: what each share adds up to."""
    low, high = share(n, tiles)
    total = tl.zeros([TILE], tl.float32)
    for start in range(low, high, TILE):
        total += load(x_ptr, start, high)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(total.to(tl.float64), 0))


@triton.jit(do_not_specialize=("n", "tiles"))
def scan_shares(y_ptr, sums_ptr, x_ptr, n, tiles, SHARES: tl.constexpr):
    """Second launch: each share again, from the sum of all shares before it."""
    low, high = share(n, tiles)
    each = tl.arange(0, SHARES)
    earlier = each < tl.program_id(0)
    carry = tl.sum(tl.load(sums_ptr + each, mask=earlier, other=0.0), 0)
    for start in range(low, high, TILE):
        carry = scan_tile(y_ptr, load(x_ptr, start, high), start, high, carry)
# --8<-- [end:shares]


# --8<-- [start:states]
# A tile tells those after it one word, so that nothing else need be ordered: a float64
# whose two lowest bits say what it is the sum of. A word of 0 says nothing yet.
OWN = tl.constexpr(1)  # of the tile alone
UP_TO = tl.constexpr(2)  # of all tiles up to its end
KIND = tl.constexpr(3)  # the two bits
ASKED = tl.constexpr(32)  # tiles that are asked at a time


@triton.jit
def tell(word_ptr, total, kind: tl.constexpr):
    word = (total.to(tl.int64, bitcast=True) & ~KIND) | kind
    tl.atomic_xchg(word_ptr, word, sem="relaxed")


@triton.jit
def look_back(words_ptr, tile):
    """The sum of all tiles before this one: back to the first that knows its prefix."""
    each = tl.arange(0, ASKED)
    before = tl.cast(0.0, tl.float64)
    last = tile - 1
    more = True
    while more:
        at = last - each
        words = tl.zeros([ASKED], tl.int64)
        while tl.min(words & KIND, 0) == 0:  # until each of them has told something
            # Atomic, so that all warps of the block see the same.
            words = tl.atomic_add(words_ptr + at, 0, mask=at >= 0, sem="relaxed")
            words = tl.where(at >= 0, words, UP_TO)  # before the first there is 0
        known = (words & KIND) == UP_TO
        nearest = tl.min(tl.where(known, each, ASKED), 0)
        sums = (words & ~KIND).to(tl.float64, bitcast=True)
        before += tl.sum(tl.where(each <= nearest, sums, 0.0), 0)
        more = nearest == ASKED
        last -= ASKED
    return before
# --8<-- [end:states]


# --8<-- [start:lookback]
@triton.jit(do_not_specialize=("n",))
def scan_once(y_ptr, work_ptr, x_ptr, n):
    """One launch. work: how many tiles have begun, and a word of each; 0 before."""
    # Numbered as programs start, so whoever is waited for is already running.
    tile = tl.atomic_add(work_ptr, 1, sem="relaxed")
    start = tile * TILE
    x = load(x_ptr, start, n)
    own = tl.sum(x, 0).to(tl.float64)
    before = tl.cast(0.0, tl.float64)
    if tile > 0:
        tell(work_ptr + 1 + tile, own, OWN)
        before = look_back(work_ptr + 1, tile)
    tell(work_ptr + 1 + tile, before + own, UP_TO)
    scan_tile(y_ptr, x, start, n, before)
# --8<-- [end:lookback]


def multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 2  # so few that shares of small cases have several tiles
    return torch.cuda.get_device_properties(device).multi_processor_count


# --8<-- [start:launch]
def scan(x: torch.Tensor, way: str = "look back") -> torch.Tensor:
    """The running sums of x (N,), "alone", "in shares" or by "look back"."""
    if way not in ("alone", "in shares", "look back"):
        known = "alone, in shares, look back"
        raise ValueError(f"prefix_scan: way {way!r} is none of {known}; choose one")
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        known = "float32, float16, bfloat16; convert it"
        raise TypeError(f"prefix_scan: {x.dtype} is none of {known}")
    if x.ndim != 1 or x.is_meta:
        where = f"{tuple(x.shape)} on {x.device}"
        raise ValueError(f"prefix_scan: x is {where}; give a list")
    x, n = x.contiguous(), len(x)
    y = torch.empty_like(x)
    if n == 0:
        return y
    tiles = triton.cdiv(n, TILE.value)
    with torch.cuda.device_of(x):
        if way == "alone":
            scan_alone[(1,)](y, x, n, num_warps=WARPS)
        elif way == "look back":
            work = torch.zeros(1 + tiles, dtype=torch.int64, device=x.device)
            scan_once[(tiles,)](y, work, x, n, num_warps=WARPS)
        else:
            each = triton.cdiv(tiles, SHARES * multiprocessors(x.device))
            programs = triton.cdiv(tiles, each)
            sums = torch.empty(programs, dtype=torch.float64, device=x.device)
            share_sums[(programs,)](sums, x, n, each, num_warps=WARPS)
            most = triton.next_power_of_2(programs)
            scan_shares[(programs,)](y, sums, x, n, each, SHARES=most, num_warps=WARPS)
    return y
# --8<-- [end:launch]


def demo(device: str) -> None:
    """Each way on ones, and what an infinity does."""
    x = torch.ones(100_000, device=device)
    for way in ("alone", "in shares", "look back"):
        y = scan(x, way)
        print(f"{way:9} the first and the last: {y[0].item():.0f}, {y[-1].item():.0f}")
    x[50_000] = float("inf")
    print("about an infinity:", scan(x)[49_998:50_002].tolist())


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")

"""Scans with gates and segments in equal shares: a share is one map of what comes in.

Shapes  x and gates (N,) or (..., N), or None for gates of 1 -> h as x,
        h[i] = gates[i] * h[i - 1] + x[i], begun anew in each row of x (..., N), or in
        x (N,) at each of offsets, int32 or int64. float32, float16 or bfloat16; any
        strides
Bytes   x and gates read once, h written once. What lies past a share's last start of a
        segment is read twice: all of one row without offsets
Error   relative to float64: 5e-6 float32, 1e-3 float16, 5e-3 bfloat16; sums are
        float32, carries float64. The same inputs give the same bits on the same GPU
Raises  ValueError, TypeError for shapes, dtypes and devices other than these. On a GPU
        offsets are not looked into, since that would wait for it: they must rise from
        0 or more to N or less, by 0 where a segment is empty. Products of gates are
        formed, and must not overflow
Source  gpu-gems-scan, decoupled-look-back
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from snippets.segment_reduce.segment_reduce import (
    COUNTS,
    ENDS,
    SHARES,
    TILE,
    add,
    add_within,
    first_above,
    load_tile,
    mark_ends,
    marks_of,
    shares_of,
    store_tile,
)


# --8<-- [start:combine]
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


def refuse(kind: type[Exception], said: str) -> None:
    raise kind(f"gated_scan: {said}")


def check(
    x: torch.Tensor, gates: torch.Tensor | None, offsets: torch.Tensor | None
) -> None:
    """See that all are of one device, gates as x, and offsets cut a flat x."""
    floats = (torch.float32, torch.float16, torch.bfloat16)
    for name, tensor in (("x", x), ("gates", gates), ("offsets", offsets)):
        dtypes = (torch.int32, torch.int64) if name == "offsets" else floats
        if tensor is None:
            continue
        if tensor.dtype not in dtypes:
            known = ", ".join(str(each).removeprefix("torch.") for each in dtypes)
            refuse(TypeError, f"{name}: {tensor.dtype} is none of {known}; convert it")
        if tensor.device != x.device or x.is_meta:
            refuse(TypeError, f"{name} is on {tensor.device}; bring all to one GPU")
    if gates is not None and gates.shape != x.shape:
        told = f"{tuple(gates.shape)}; they must be as x, {tuple(x.shape)}"
        refuse(ValueError, f"gates are {told}")
    if x.ndim == 0:
        refuse(ValueError, "x has 0 dimensions and so no row; give it one")
    if offsets is None:
        return
    if offsets.ndim != 1 or len(offsets) == 0:
        shape = tuple(offsets.shape)
        refuse(ValueError, f"offsets are {shape}; give a list, one more than segments")
    if x.ndim != 1:
        refuse(ValueError, f"x is {tuple(x.shape)}; with offsets it must be flat")
    if offsets.device.type == "cpu":  # where it waits for nothing
        low, high = int(offsets[0]), int(offsets[-1])
        if low < 0 or high > len(x) or bool((offsets.diff() < 0).any()):
            where = f"from {low} to {high} do not rise within 0 and {len(x)}"
            refuse(ValueError, f"offsets {where}; sort them")


def openings(x: torch.Tensor, offsets: torch.Tensor | None) -> torch.Tensor | None:
    """The offsets, or for rows of x where each begins; None for one row."""
    n = x.shape[-1]
    if offsets is None and x.numel() > n:
        offsets = torch.arange(0, x.numel() + 1, n, device=x.device)
    return None if offsets is None else offsets.contiguous()


def scan_alone(
    x: torch.Tensor, gates: torch.Tensor | None, offsets: torch.Tensor | None
) -> torch.Tensor:
    """Each row, or segment of a flat x, by a program of its own."""
    check(x, gates, offsets)
    h = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return h
    cuts = openings(x, offsets)
    ends = torch.tensor([0, x.numel()], device=x.device)
    # What lies before the first and after the last is scanned too.
    cuts = ends if cuts is None else torch.cat([ends[:1], cuts.long(), ends[1:]])
    gates = None if gates is None else gates.contiguous()
    with torch.cuda.device_of(x):
        scan_each[(len(cuts) - 1,)](h, x.contiguous(), gates, cuts, BLOCK=1024)
    return h


# --8<-- [start:launch]
def scanned(
    x: torch.Tensor,
    gates: torch.Tensor | None,
    offsets: torch.Tensor | None,
    back: bool = False,
) -> torch.Tensor:
    """The scan, or back: h[i] = gates[i + 1] * h[i + 1] + x[i]."""
    check(x, gates, offsets)
    h = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel() == 0:
        return h
    offsets, x = openings(x, offsets), x.contiguous()
    gates = None if gates is None else gates.contiguous()
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


# --8<-- [start:operator]
@torch.library.custom_op("warpshelf::scan", mutates_args=())
def gated_scan(
    x: torch.Tensor,
    gates: torch.Tensor | None,
    offsets: torch.Tensor | None,
    back: bool,
) -> torch.Tensor:
    return scanned(x, gates, offsets, back)


@gated_scan.register_fake
def _(x, gates, offsets, back):
    return x.new_empty(x.shape)


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


gated_scan.register_autograd(gradient_of_scan, setup_context=remember_scan)


def scan(
    x: torch.Tensor,
    gates: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
) -> torch.Tensor:
    """h[i] = gates[i] * h[i - 1] + x[i]; differentiable in x and gates."""
    check(x, gates, offsets)
    return gated_scan(x, gates, offsets, False)
# --8<-- [end:operator]


def demo(device: str) -> None:
    """Segments, an infinity that stays where it is, gates, and a gradient."""
    offsets = torch.tensor([0, 2, 2, 5, 6], device=device)
    x = torch.tensor([1.0, 2, float("inf"), 3, 4, 5], device=device)
    print("scan of segments:", scan(x, None, offsets).tolist())
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

"""Matrices for tests of papergpu: as bits, and in kernels of a warp or a warpgroup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from papergpu.launch import Result, Settings
from ptx_launch import HEAD, execute_ptx

# Matrices for tests of papergpu: numbers as bits, and kernels of one instruction on a warp.

Words = npt.NDArray[np.uint32]
Reals = npt.NDArray[np.float64]
WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
          "u4": 4, "b1": 1, "f64": 64, "f32": 32, "s32": 32, "e2m3": 8, "e3m2": 8, "e2m1": 8,
          "packed": 4}  # fmt: skip
# Bits of exponent and mantissa, and where the number begins in its byte; of "packed", e2m1 too, two
# fill a byte. By the chapter "Data Types" and the packing that `cvt` and `mma` share.
SMALL = {"e2m3": (2, 3, 0), "e3m2": (3, 2, 0), "e2m1": (2, 1, 2), "packed": (2, 1, 0)}


def list_small_numbers(kind: str) -> Reals:
    """The number of each code of a type of 4 or 6 bits."""
    exponent, mantissa, _ = SMALL[kind]
    sign, power, rest = np.meshgrid(
        (1.0, -1.0), range(1 << exponent), range(1 << mantissa), indexing="ij"
    )
    bias, fraction = (1 << exponent - 1) - 1, rest / (1 << mantissa)
    found = np.where(
        power == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (power - bias)
    )
    return (sign * found).ravel()


def encode_numbers(values: Reals, kind: str) -> npt.NDArray[np.uint64]:
    """Each number as the bits of a type; what it cannot hold is not asked for."""
    import torch

    if kind == "f64":
        return values.astype(np.float64).view(np.uint64)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint64)
    if kind in ("bf16", "f32", "tf32"):
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        return bits >> np.uint64(16) if kind == "bf16" else bits
    if kind in ("e4m3", "e5m2"):
        shape = torch.float8_e4m3fn if kind == "e4m3" else torch.float8_e5m2
        eight = torch.tensor(values).to(shape).view(torch.uint8).numpy()
        return eight.astype(np.uint64)
    if kind in SMALL:
        numbers = list_small_numbers(kind)
        codes = np.abs(values[..., None] - numbers).argmin(-1)
        np.testing.assert_array_equal(numbers[codes], values)
        return codes.astype(np.uint64) << np.uint64(SMALL[kind][2])
    return values.astype(np.int64).view(np.uint64) & np.uint64((1 << WIDTHS[kind]) - 1)


def draw_matrix(generator: np.random.Generator, kind: str, *shape: int) -> Reals:
    """Numbers that a type holds, whose products and sums are exact."""
    if kind in SMALL:
        return generator.choice(list_small_numbers(kind), shape)
    low, high = {"u8": (0, 256), "s8": (-128, 128), "u4": (0, 16), "s4": (-8, 8), "b1": (0, 2),
                 "e5m2": (-4, 5), "e4m3": (-8, 9)}.get(kind, (-30, 31))  # fmt: skip
    found = generator.integers(low, high, shape).astype(np.float64)
    return found / 4 if kind in ("f16", "bf16", "tf32", "f32", "f64") else found


def pack_registers(elements: npt.NDArray[np.uint64], kind: str) -> npt.NDArray[np.uint64]:
    """Registers of lanes: (lane, element) becomes (register, lane), low elements first."""
    width = WIDTHS[kind]
    per = max(1, 32 // width)
    lanes, count = elements.shape
    parts = elements.reshape(lanes, count // per, per)
    shifts = (np.arange(per) * width).astype(np.uint64)
    return np.bitwise_or.reduce(parts << shifts, axis=2).T.copy()


def unpack_registers(registers: npt.NDArray[np.uint64], kind: str) -> npt.NDArray[np.uint64]:
    """(register, lane) becomes (lane, element)."""
    width = WIDTHS[kind]
    per = max(1, 32 // width)
    shifts = (np.arange(per) * width).astype(np.uint64)
    mask = np.uint64((1 << width) - 1 if width < 64 else 2**64 - 1)
    parts = (registers.T[:, :, None] >> shifts) & mask
    return parts.reshape(registers.shape[1], -1)


def decode_sums(bits: npt.NDArray[np.uint64], kind: str) -> Reals:
    """The numbers of bits of a type of sums."""
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(np.float64)
    words = bits.astype(np.uint32)
    return words.view(np.float32 if kind == "f32" else np.int32).astype(np.float64)


def run_instruction(
    form: str,
    given: Sequence[tuple[str, npt.NDArray[np.uint64]]],
    result: tuple[str, int],
    settings: Settings | None = None,
    selector: int | None = None,
) -> npt.NDArray[np.uint64]:
    """Run `form {d}, {a}, ...` on one warp.

    `given` are the kinds (b32 or b64) and registers of the operands, (register, lane); `result` the
    kind and how many. With a `selector` the last operand is a register alone, and it comes behind.
    Returns the result's registers.
    """  # fmt: skip
    text, arrays = write_instruction_ptx(form, given, result, selector)
    execute_ptx(text, *arrays, settings=settings)
    return arrays[0].astype(np.uint64)


def write_instruction_ptx(
    form: str,
    given: Sequence[tuple[str, npt.NDArray[np.uint64]]],
    result: tuple[str, int],
    selector: int | None = None,
) -> tuple[str, list[npt.NDArray[np.generic]]]:
    """The PTX of `run_instruction`, and the arrays that it is launched with."""
    lines, operands = [], []
    everything = [(result[0], result[1], None), *((kind, len(one), one) for kind, one in given)]
    arrays: list[npt.NDArray[np.generic]] = []
    for place, (kind, count, values) in enumerate(everything):
        size = 8 if kind == "b64" else 4
        lines.append(f".reg .{kind} %v{place}_<{count}>;")
        operands.append("{" + ", ".join(f"%v{place}_{k}" for k in range(count)) + "}")
        array = np.zeros((count, 32), np.uint64 if size == 8 else np.uint32)
        if values is not None:
            array[:] = values
        arrays.append(array)
    body = []
    for place, (kind, count, values) in enumerate(everything):
        size = 8 if kind == "b64" else 4
        body.append(f"ld.param.u64 %p{place}, [p{place}];")
        body.append(f"mad.wide.u32 %q{place}, %lane, {size}, %p{place};")
        if values is not None:
            body += [f"ld.global.{kind} %v{place}_{k}, [%q{place}+{k * 32 * size}];"
                     for k in range(count)]  # fmt: skip
    if selector is not None:
        operands[-1:] = [operands[-1].strip("{}"), str(selector)]
    body.append(f"{form} {', '.join(operands)};")
    body += [f"st.global.{result[0]} [%q0+{k * 32 * (8 if result[0] == 'b64' else 4)}], %v0_{k};"
             for k in range(result[1])]  # fmt: skip
    places = range(len(everything))
    text = (
        HEAD + f".visible .entry k({', '.join(f'.param .u64 p{k}' for k in places)}) {{\n"
        + f".reg .b64 %p<{len(everything)}>, %q<{len(everything)}>;\n.reg .b32 %lane;\n"
        + "\n".join(lines) + "\nmov.u32 %lane, %tid.x;\n" + "\n".join(body) + "\nret;\n}\n"
    )  # fmt: skip
    return text, arrays


# Kernels of one wgmma for tests: tiles in shared memory as the PTX ISA lays them out.

MODE = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True)
class Tile:
    """A matrix in shared memory: its bytes, and the descriptor of each step along k."""

    bytes: np.ndarray
    descriptors: tuple[int, ...]


def swizzle_chunk(row: int, chunk: int, width: int) -> int:
    """Where chunk of 16 bytes lies in a row of a pattern of 8 rows of `width` bytes."""
    return chunk ^ {128: row % 8, 64: row // 2 % 4, 32: row // 4 % 2}[width]


def lay_tile(lines: Reals, kind: str, width: int, across: bool, base: int = 0) -> Tile:
    """A matrix of which line i is row i of A (column i of B), its numbers those along k.

    `width` is that of the swizzle, 0 for none. `across` puts numbers side by side that have one k.
    `base` is by how many rows of 128 bytes the pattern begins later than a multiple of 1024.
    """
    size = WIDTHS[kind] // 8
    count, depth = lines.shape
    bits = encode_numbers(lines, kind).astype(f"u{size}")
    per = 16 // size
    step = 32 // size  # of k
    found = np.full(base * 128 + 2048 * count + 8192, 0x3C, np.uint8)
    descriptors = []

    def put_chunk(at: int, chunk: np.ndarray) -> None:
        found[base * 128 + at : base * 128 + at + 16] = np.ascontiguousarray(chunk).view(np.uint8)

    if not across and not width:
        lead, stride = 144, 2 * 144 * (depth // step)  # neither is what it would be without gaps
        for i in range(count):
            for c in range(depth // per):
                put_chunk(i // 8 * stride + c * lead + i % 8 * 16, bits[i, c * per : (c + 1) * per])
        starts = [2 * lead * s for s in range(depth // step)]
    elif not across:
        lead, stride = 16, 8 * width + (1024 if base == 0 else 0)
        assert depth * size == width
        for i in range(count):
            for c in range(depth // per):
                at = i // 8 * stride + i % 8 * width + swizzle_chunk(i, c, width) * 16
                put_chunk(at, bits[i, c * per : (c + 1) * per])
        starts = [32 * s for s in range(depth // step)]
    elif not width:
        stride, lead = 144, 144 * (count // 8) + 16
        for k in range(depth):
            for i in range(0, count, 8):
                put_chunk(i // 8 * stride + k // 8 * lead + k % 8 * 16, bits[i : i + 8, k])
        starts = [2 * lead * s for s in range(depth // step)]
    else:
        group = width // size  # of m or n
        stride = 8 * width
        lead = stride * (depth // 8) + 1024
        for k in range(depth):
            for i in range(0, count, 8):
                at = i // group * lead + k // 8 * stride + k % 8 * width
                put_chunk(at + swizzle_chunk(k, i % group // 8, width) * 16, bits[i : i + 8, k])
        starts = [2 * stride * s for s in range(depth // step)]
    for start in starts:
        whole = (base * 128 + start) >> 4
        descriptors.append(
            whole | lead >> 4 << 16 | stride >> 4 << 32 | base << 49 | MODE[width] << 62
        )
    return Tile(found, tuple(descriptors))


def locate_sum(lane: int, i: int) -> tuple[int, int]:
    """Row and column of sum i of a thread of the 128, by the ISA's formula for matrix D."""
    return lane // 32 * 16 + lane % 32 // 4 + 8 * (i // 2 % 2), i // 4 * 8 + lane % 4 * 2 + (i & 1)


def locate_a(thread: int, i: int, per: int) -> tuple[int, int]:
    """Row and column of element i of matrix A in registers, `per` elements to each."""
    register, e = divmod(i, per)
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register % 2)
    return row, thread % 4 * per + e + register // 2 * 4 * per


FRAME = (
    HEAD
    + """
.visible .entry k(.param .u64 out, .param .u64 sums, .param .u64 data, .param .u64 places,
                  .param .u64 regs, .param .u32 words) {{
    .shared .align 1024 .b8 tiles[{size}];
    .reg .b32 %d<128>, %a<{na}>, %i, %s, %v, %y, %n, %warp; .reg .pred %q, %scale, %who;
    .reg .b64 %out, %sums, %data, %places, %regs, %x, %base, %da<{steps}>, %db<{steps}>;
    ld.param.u64 %out, [out]; ld.param.u64 %sums, [sums]; ld.param.u64 %data, [data];
    ld.param.u64 %places, [places]; ld.param.u64 %regs, [regs]; ld.param.u32 %n, [words];
    mov.u32 %s, tiles; mov.u32 %i, %tid.x; shr.u32 %warp, %i, 5;
more: setp.ge.u32 %q, %i, %n; @%q bra done;
    mad.wide.u32 %x, %i, 4, %data; ld.global.b32 %v, [%x]; mad.lo.u32 %y, %i, 4, %s;
    st.shared.b32 [%y], %v; add.u32 %i, %i, 128; bra more;
done:
    bar.sync 0; fence.proxy.async; mov.u32 %i, %tid.x;
    shr.u32 %v, %s, 4; cvt.u64.u32 %base, %v;
    {load_descriptors}
    mad.wide.u32 %x, %i, 4, %sums; {load_sums}
    mad.wide.u32 %x, %i, 4, %regs; {load_a}
    setp.ne.u32 %scale, {scale}, 0;
    {body}
    mad.wide.u32 %x, %i, 4, %out; {store}
    ret;
}}
"""
)


def run_wgmma(
    form: str,
    kinds: tuple[str, str, str],
    a: Reals,
    b: Reals,
    c: Reals,
    *,
    width_a: int = 128,
    width_b: int = 128,
    across_a: bool = False,
    across_b: bool = False,
    in_registers: bool = False,
    base: int = 0,
    scale: int = 1,
    scales: tuple[int, int] = (1, 1),
    body: str | None = None,
    threads: int = 128,
    settings: Settings | None = None,
    answer: list[Result] | None = None,
    sparse: tuple[np.ndarray, int] | None = None,
) -> Reals:
    """c + a b by wgmma of a form without its head, of steps along k.

    `body`, if it is given, is what is executed, with `ISSUE` for the products. `sparse` are the
    metadata, (step, thread), and the selector; then `a` has half of what `b` has along k.
    """  # fmt: skip
    d_kind, a_kind, b_kind = kinds
    n = b.shape[1]
    left = lay_tile(a, a_kind, width_a, across_a, base)
    right = lay_tile(b.T, b_kind, width_b, across_b, base)
    gap = -len(left.bytes) % 1024
    data = np.concatenate([left.bytes, np.zeros(gap, np.uint8), right.bytes])
    data = np.concatenate([data, np.zeros(-len(data) % 4, np.uint8)])
    offset = (len(left.bytes) + gap) >> 4
    rights = right.descriptors[:: 2 if sparse else 1]
    steps = len(rights)
    places = np.array([*left.descriptors, *(one + offset for one in rights)], np.uint64)
    per_d = 2 if d_kind == "f16" else 1
    count = n // 2 // per_d
    where = [[locate_sum(thread, i) for i in range(n // 2)] for thread in range(128)]
    sums = pack_registers(
        encode_numbers(np.array([[c[at] for at in row] for row in where]), d_kind), d_kind
    )
    per_a = 32 // WIDTHS[a_kind]
    fragments = []
    for step in range(steps):
        k = 32 * 8 // WIDTHS[a_kind]
        piece = a[:, step * k : (step + 1) * k]
        elements = np.array([[piece[locate_a(thread, i, per_a)] for i in range(4 * per_a)]
                             for thread in range(128)])  # fmt: skip
        fragments.append(pack_registers(encode_numbers(elements, a_kind), a_kind))
    if sparse:
        fragments.append(sparse[0])
    regs = np.concatenate(fragments).astype(np.uint32)
    whole = a_kind in ("s8", "u8", "b1")
    results = "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"
    issue = []
    for step in range(steps):
        first = f"%da{step}"
        if in_registers:
            first = "{" + ", ".join(f"%a{4 * step + i}" for i in range(4)) + "}"
        tail = "" if whole else f", {scales[0]}, {scales[1]}"
        if WIDTHS[a_kind] == 16:
            tail += ("" if in_registers else f", {int(across_a)}") + f", {int(across_b)}"
        take = "%scale" if step == 0 else "1"
        head = "sp.sync" if sparse else "sync"
        meta = f"%a{4 * steps + step}, {sparse[1]}, " if sparse else ""
        issue.append(
            f"wgmma.mma_async.{head}.aligned.{form} {results}, {first}, %db{step}, "
            f"{meta}{take}{tail};"
        )
    body = body or ("wgmma.fence.sync.aligned; ISSUE wgmma.commit_group.sync.aligned;"
                    "wgmma.wait_group.sync.aligned 0;")  # fmt: skip
    text = FRAME.format(
        size=len(data) + 16, steps=steps, na=len(regs), scale=scale,
        load_descriptors="".join(
            f"ld.global.u64 %d{letter}{s}, [%places+{8 * (s + steps * (letter == 'b'))}];"
            f"add.u64 %d{letter}{s}, %d{letter}{s}, %base;"
            for letter in "ab" for s in range(steps)),
        load_sums="".join(f"ld.global.b32 %d{i}, [%x+{512 * i}];" for i in range(count)),
        load_a="".join(f"ld.global.b32 %a{i}, [%x+{512 * i}];" for i in range(len(regs))),
        body=body.replace("ISSUE", "\n".join(issue)),
        store="".join(f"st.global.b32 [%x+{512 * i}], %d{i};" for i in range(count)),
    )  # fmt: skip
    out = np.zeros((count, 128), np.uint32)
    done = execute_ptx(text, out, sums.astype(np.uint32), data, places, regs, len(data) // 4,
                       block=threads, settings=settings)  # fmt: skip
    if answer is not None:
        answer.append(done)
    elements = decode_sums(unpack_registers(out.astype(np.uint64), d_kind), d_kind)
    found = np.full((64, n), np.nan)
    for thread in range(128):
        for i in range(n // 2):
            found[where[thread][i]] = elements[thread, i]
    return found

"""Matrices for tests of papergpu: numbers as bits, and kernels of one instruction on a warp."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from papergpu.launch import Settings
from ptx_launch import HEAD, execute_ptx

Words = npt.NDArray[np.uint32]
Reals = npt.NDArray[np.float64]
WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
          "u4": 4, "b1": 1, "f64": 64, "f32": 32, "s32": 32}  # fmt: skip


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
    return values.astype(np.int64).view(np.uint64) & np.uint64((1 << WIDTHS[kind]) - 1)


def draw_matrix(generator: np.random.Generator, kind: str, *shape: int) -> Reals:
    """Numbers that a type holds, whose products and sums are exact."""
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

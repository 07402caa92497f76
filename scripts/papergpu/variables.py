"""The memory of a module: where its variables stand, and what they hold at first.

The first 16 bytes are what a cooperative grid synchronises by. Behind the variables stands the heap
of a module that asks for memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from papergpu.errors import Unsupported
from papergpu.forms import type_bits
from papergpu.ir import Symbol, literal_bits
from papergpu.program import CONST, GLOBAL
from papergpu.syntax_tree import Module, Name, Variable

HEAP = "$heap"  # the variable that stands for the memory that malloc gives
HEAP_BYTES = 8 << 20  # as much as CUDA has unless it is asked for more


def element_bytes(one: Variable) -> int:
    """Bytes of one element of a variable."""
    return max(1, type_bits(one.type) // 8) * one.lanes


def variable_bytes(one: Variable) -> int:
    """Bytes of a variable, 0 of an open array."""
    return element_bytes(one) * one.count


def align_offset(at: int, one: Variable) -> int:
    by = one.align or element_bytes(one)
    return -(-at // by) * by


@dataclass(frozen=True)
class Globals:
    """A module's own memory: its bytes, and (byte, symbol, offset) of each address in it."""

    symbols: dict[str, Symbol]
    bytes: bytes
    addresses: tuple[tuple[int, str, int], ...]
    functions: frozenset[str] = frozenset()  # those whose addresses it holds


@dataclass(frozen=True)
class Outline:
    """What a module declares: the parameters of its kernels, its variables, and its memory."""

    kernels: dict[str, tuple[Variable, ...]]
    variables: tuple[Variable, ...]
    memory: Globals


def function_addresses(module: Module) -> dict[str, int]:
    """A number for each function by its name, at which there is no memory."""
    return {
        one.name: 0x7F00_0000_0000_0000 | zlib.crc32(one.name.encode()) << 4
        for one in module.functions
        if not one.kernel
    }


def layout_globals(module: Module, before: Globals | None = None) -> Globals:
    """Where the variables of a module stand in memory of its own, and what it holds at first.

    Those that `before` has stay where they are. The first 16 bytes are what a cooperative grid
    synchronises by; a module that asks for memory has its heap behind the variables.
    """
    symbols: dict[str, Symbol] = dict(before.symbols) if before else {}
    data = bytearray(before.bytes if before else 16)
    code = function_addresses(module)
    functions = set(before.functions if before else ())
    addresses: list[tuple[int, str, int]] = list(before.addresses if before else ())
    for one in module.variables:
        if one.space not in ("global", "const") or one.name in symbols:
            continue
        at = align_offset(len(data), one)
        size = variable_bytes(one)
        data.extend(bytes(at - len(data) + size))
        # Both lie in one piece; those of .const are addressed from its start.
        symbols[one.name] = Symbol(GLOBAL if one.space == "global" else CONST, at)
        each = max(1, type_bits(one.type) // 8)
        for number, value in enumerate(one.values or ()):
            here = at + number * each
            if isinstance(value, Name) and value.text in code:
                functions.add(value.text)
                data[here : here + each] = code[value.text].to_bytes(8, "little")[:each]
            elif isinstance(value, Name):
                addresses.append((here, value.text, value.offset))
            elif (known := literal_bits(value, one.type)) is not None:
                data[here : here + each] = (known & (1 << 8 * each) - 1).to_bytes(each, "little")
            else:
                raise Unsupported(f"PTX line {one.line}: the value {value} of {one.name}")
    if HEAP not in symbols and any(one.name == "malloc" for one in module.functions):
        data.extend(bytes(-len(data) % 256))
        symbols[HEAP] = Symbol(GLOBAL, len(data))
        data.extend(HEAP_BYTES.to_bytes(8, "little") + bytes(HEAP_BYTES - 8))
    return Globals(symbols, bytes(data) + bytes(16), tuple(addresses), frozenset(functions))


def outline_module(module: Module, before: Globals | None = None) -> Outline:
    """What a module declares, its memory as `layout_globals` has it; first values are left out."""
    kernels = {
        one.name: tuple(one.parameters) for one in module.functions if one.kernel and one.body
    }
    variables = tuple(
        replace(one, values=None) for one in module.variables if one.space in ("global", "const")
    )
    return Outline(kernels, variables, layout_globals(module, before))


def layout_parameters(parameters: Iterable[Variable]) -> list[tuple[str, int, int]]:
    """(name, byte, bytes) of each parameter of a kernel."""
    found, at = [], 0
    for one in parameters:
        at = align_offset(at, one)
        found.append((one.name, at, element_bytes(one) * one.count))
        at += element_bytes(one) * one.count
    return found

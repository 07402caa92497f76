"""From a module's tree to the program that the engine runs."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from papergpu.decode import (
    alu,
    calls,
    control,
    launch_control,
    matrix,
    memory,
    tcgen05,
    transfer,
    warp,
)
from papergpu.decode.awaited import awaited
from papergpu.decode.inflight import watched
from papergpu.decode.rules import RULES
from papergpu.errors import Unsupported
from papergpu.forms import Unknown, find
from papergpu.fuse import pairs
from papergpu.layout import place, starts
from papergpu.program import (
    BIT,
    BRANCH,
    EXIT,
    GENERIC,
    GLOBAL,
    INSTRUCTION,
    LOCAL,
    LONG,
    PARAM,
    SHARED,
    Program,
)
from papergpu.tree import (
    Block,
    Function,
    Instruction,
    Module,
    Name,
    Operand,
    Prototype,
    Targets,
    Variable,
)
from papergpu.tree import (
    Label as LabelHere,
)
from papergpu.writer import Label, Register, Scope, Symbol, Writer, bits, room

__all__ = ["Globals", "decode", "laid_out", "memory_of"]
# They note their rules when they are imported.
RULE_MODULES = (
    alu, calls, control, launch_control, matrix, memory, tcgen05, transfer, warp
)  # fmt: skip

RESERVED, RESERVED_BYTES = "%reserved_smem_offset_1", 288


def size_of(one: Variable) -> int:
    """Bytes of one element of a variable."""
    return max(1, bits(one.type) // 8) * one.lanes


def aligned(at: int, one: Variable) -> int:
    by = one.align or size_of(one)
    return -(-at // by) * by


@dataclass(frozen=True)
class Globals:
    """A module's own memory: its bytes, and (byte, symbol, offset) of each address in it."""

    symbols: dict[str, Symbol]
    bytes: bytes
    addresses: tuple[tuple[int, str, int], ...]
    functions: frozenset[str] = frozenset()  # those whose addresses it holds


def function_addresses(module: Module) -> dict[str, int]:
    """A number for each function by its name, at which there is no memory."""
    return {
        one.name: 0x7F00_0000_0000_0000 | zlib.crc32(one.name.encode()) << 4
        for one in module.functions
        if not one.kernel
    }


def memory_of(module: Module, before: Globals | None = None) -> Globals:
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
        at = aligned(len(data), one)
        size = size_of(one) * one.count
        data.extend(bytes(at - len(data) + size))
        # Both lie in one piece; those of .const are addressed from its start.
        symbols[one.name] = Symbol(GLOBAL if one.space == "global" else 4, at)
        each = max(1, bits(one.type) // 8)
        for number, value in enumerate(one.values or ()):
            here = at + number * each
            if isinstance(value, Name) and value.text in code:
                functions.add(value.text)
                data[here : here + each] = code[value.text].to_bytes(8, "little")[:each]
                continue
            if isinstance(value, Name):
                addresses.append((here, value.text, value.offset))
                continue
            known = Writer({}).value(value, one.type)
            if known is None:
                raise Unsupported(f"PTX line {one.line}: the value {value} of {one.name}")
            data[here : here + each] = (known & (1 << 8 * each) - 1).to_bytes(each, "little")
    if calls.HEAP not in symbols and any(one.name == "malloc" for one in module.functions):
        data.extend(bytes(-len(data) % 256))
        symbols[calls.HEAP] = Symbol(GLOBAL, len(data))
        data.extend(calls.HEAP_BYTES.to_bytes(8, "little") + bytes(calls.HEAP_BYTES - 8))
    return Globals(symbols, bytes(data) + bytes(16), tuple(addresses), frozenset(functions))


def laid_out(parameters: Iterable[Variable]) -> list[tuple[str, int, int]]:
    """(name, byte, bytes) of each parameter of a kernel."""
    found, at = [], 0
    for one in parameters:
        at = aligned(at, one)
        found.append((one.name, at, size_of(one) * one.count))
        at += size_of(one) * one.count
    return found


class _Walk:
    """Goes through a kernel, and through what it calls, in the order of the text."""

    def __init__(self, module: Module, kernel: Function, globals_: Globals) -> None:
        self.functions = {one.name: one for one in module.functions if one.body}
        symbols = dict(globals_.symbols)
        self.shared = self.reserved = 0
        self.open: list[Variable] = []
        self.parameters = laid_out(kernel.parameters)
        for name, at, _ in self.parameters:
            symbols[name] = Symbol(PARAM, at)
        self.writer = Writer(symbols)
        for one in self.shared_variables(module, kernel):
            if one.count == 0 or "extern" in one.linkage:
                self.open.append(one)
                continue
            at = aligned(self.shared, one)
            symbols[one.name] = Symbol(SHARED, at)
            self.shared = at + size_of(one) * one.count
        if any(RESERVED in str(one.operands) for one in module.instructions()):
            # Cooperative groups of several warps meet in memory that every block has.
            at = -(-self.shared // 16) * 16
            symbols[RESERVED] = Symbol(SHARED, at)
            self.shared = at + RESERVED_BYTES
            self.reserved = at + 1
        self.static = self.shared
        if self.open:
            # Dynamic memory begins behind the static one, as its widest alignment asks.
            self.static = -(-self.shared // 16) * 16
            for one in self.open:
                self.static = aligned(self.static, one)
            for one in self.open:
                symbols[one.name] = Symbol(SHARED, self.static)
        self.calling: list[str] = [kernel.name]
        self.addresses = function_addresses(module)
        self.taken = self.functions.keys() & globals_.functions
        for function in module.functions:
            for item in _items(function.body) if function.body else ():
                if isinstance(item, Instruction) and item.opcode in ("mov", "st", "cvta"):
                    names = {operand.text for operand in item.operands if isinstance(operand, Name)}
                    self.taken |= names & self.functions.keys()
        for name in self.taken:
            symbols.setdefault(name, Symbol(GENERIC, self.addresses[name]))

    def shared_variables(self, module: Module, kernel: Function) -> list[Variable]:
        """Those of the module, and those within the functions that the kernel reaches."""
        found = [one for one in module.variables if one.space == "shared"]
        waiting, seen = [kernel], {kernel.name}
        while waiting:
            one = waiting.pop(0)
            assert one.body is not None
            for item in _items(one.body):
                if isinstance(item, Variable) and item.space == "shared":
                    found.append(item)
                elif isinstance(item, Instruction) and item.opcode == "call":
                    for operand in item.operands:
                        name = operand.text if isinstance(operand, Name) else ""
                        if name in self.functions and name not in seen:
                            seen.add(name)
                            waiting.append(self.functions[name])
        return found

    def block(self, block: Block, scope: Scope | None = None) -> None:
        scope = scope or Scope()
        for item in block.items:
            if isinstance(item, LabelHere):
                scope.labels[item.name] = Label()
            elif isinstance(item, Targets):
                scope.tables[item.name] = item.labels
        self.writer.scopes.append(scope)
        for item in awaited(block.items):
            if isinstance(item, Instruction):
                self.instruction(item)
            elif isinstance(item, Variable):
                self.variable(item, scope)
            elif isinstance(item, LabelHere):
                self.writer.put(scope.labels[item.name])
            elif isinstance(item, Block):
                self.block(item)
        self.writer.scopes.pop()

    def variable(self, one: Variable, scope: Scope) -> None:
        if one.space == "reg":
            kind = one.type
            if one.range is not None:
                scope.ranges[one.name] = (kind, one.range)
            else:
                scope.registers[one.name] = Register(room(kind), kind)
        elif one.space in ("local", "param"):
            at = aligned(-(-self.writer.local // 8) * 8, one)
            scope.symbols[one.name] = Symbol(LOCAL, at)
            self.writer.local = at + size_of(one) * one.count
        elif one.space != "shared":
            raise Unsupported(f"PTX line {one.line}: a variable of .{one.space} in a function")

    def instruction(self, one: Instruction) -> None:
        writer = self.writer
        writer.current = one
        writer.guard, writer.negate = None, False
        if one.guard:
            writer.guard = writer.register(one.guard)
            writer.negate = one.unless
            if writer.guard is None:
                raise writer.refuse(f"its predicate {one.guard} is not declared")
        if one.opcode == "call":
            self.call(one)
            return
        try:
            found = find(one.form, len(one.operands))
        except Unknown as error:
            raise writer.refuse(str(error)) from None
        rule = RULES.get(one.opcode)
        try:
            (rule or alu.plain)(writer, one, found)
        except (IndexError, ValueError) as error:
            raise writer.refuse(f"its operands do not fit it ({error})") from None

    def call(self, one: Instruction) -> None:
        """A call is the callee's body in its place."""
        writer = self.writer
        operands = list(one.operands)
        results = list(writer.vector(operands.pop(0))) if _parenthesised(operands[0]) else []
        target = operands.pop(0)
        given: list[Operand] = []
        if operands and _parenthesised(operands[0]):
            given = list(writer.vector(operands.pop(0)))
        name = target.text if isinstance(target, Name) else ""
        if calls.built_in(writer, name, results, given):
            return
        end = Label()
        guard, negate = writer.guard, writer.negate
        if guard is not None:
            # Only some lanes make the call: the others go round it.
            writer.negate = not negate
            writer.emit("", BRANCH, imm=end)
            writer.guard = None
        if name not in self.functions and writer.register(name) is not None:
            self.through_pointer(one, target, results, given, end)
        else:
            self.inlined(name, results, given, end)
        writer.put(end)
        writer.current = one

    def through_pointer(
        self, one: Instruction, target: Operand, results: list[Operand], given: list[Operand],
        end: Label,
    ) -> None:  # fmt: skip
        """A call through a register: a comparison with each function whose address is taken."""
        writer = self.writer
        where = writer.source(target, "u64")
        shape = (len(results), len(given))
        for name in sorted(self.taken):
            callee = self.functions[name]
            if (len(callee.results), len(callee.parameters)) != shape:
                continue
            other, same = Label(), writer.temporary(BIT)
            writer.emit("setp.eq.u64", d=same, a=where,
                        b=writer.constant(self.addresses[name], LONG), flags=0)  # fmt: skip
            writer.guard, writer.negate = same, True
            writer.emit("", BRANCH, imm=other)
            writer.guard = None
            if name in self.calling:
                writer.emit("call.again")
            else:
                self.inlined(name, results, given, end)
                writer.emit("", BRANCH, imm=end)
            writer.put(other)
            writer.current = one
            if len(writer.steps) > 1_000_000:
                raise writer.refuse("calls through pointers are nested too deeply to be executed")
        writer.emit("call.nowhere", a=where)

    def inlined(
        self, name: str, results: list[Operand], given: list[Operand], end: Label
    ) -> None:
        """The body of a function, whose parameters are what is given to it."""
        writer = self.writer
        callee = self.functions.get(name)
        if callee is None or callee.body is None:
            raise writer.refuse(f"{name or 'what is called'} has no body here to be executed")
        if name in self.calling:
            raise writer.refuse(f"{name} calls itself, which is not executed: write it as a loop")
        scope = Scope()
        for variables, operands_given in ((callee.results, results), (callee.parameters, given)):
            if len(variables) != len(operands_given):
                raise writer.refuse(f"{name} takes another number of operands")
            for variable, operand in zip(variables, operands_given, strict=True):
                if variable.space == "reg":
                    if not isinstance(operand, Name):
                        raise writer.refuse("a constant is passed in a register")
                    register = writer.register(operand.text)
                    if register is None:
                        raise writer.refuse(f"{operand.text} is not declared")
                    scope.registers[variable.name] = register
                    continue
                symbol = writer.symbol(operand.text) if isinstance(operand, Name) else None
                if symbol is None:
                    raise writer.refuse(f"{operand} is no parameter that can be passed")
                scope.symbols[variable.name] = symbol
        outer, writer.scopes = writer.scopes, [writer.scopes[0]]
        self.calling.append(name)
        writer.ends.append(end)
        self.block(callee.body, scope)
        writer.ends.pop()
        self.calling.pop()
        writer.scopes = outer


def _parenthesised(operand: object) -> bool:
    from papergpu.tree import Vector

    return isinstance(operand, Vector) and operand.opening == "("


def _items(block: Block) -> Iterable[object]:
    for item in block.items:
        yield item
        if isinstance(item, Block):
            yield from _items(item)
        elif isinstance(item, Prototype):
            continue


def decode(module: Module, name: str, globals_: Globals | None = None) -> Program:
    """The kernel `name` of `module`, decoded; `globals_` say where the module's variables stand.

    Raises:
        Unsupported: it has an instruction that is not executed, or there is no such kernel.
    """
    kernels = {one.name: one for one in module.functions if one.kernel and one.body}
    if name not in kernels:
        raise Unsupported(f"the module has no kernel {name}: it has {', '.join(kernels) or 'none'}")
    kernel = kernels[name]
    walk = _Walk(module, kernel, globals_ or memory_of(module))
    assert kernel.body is not None
    walk.block(kernel.body)
    writer = walk.writer
    writer.guard = None
    writer.emit("", EXIT)
    if writer.in_flight:
        sums = [one for one, written in writer.in_flight.items() if written]
        writer.steps = watched(writer.steps, sums)
    return _finished(walk, kernel, module)


def _finished(walk: _Walk, kernel: Function, module: Module) -> Program:
    writer = walk.writer
    steps = writer.steps
    top = 128  # 0 stands for "no register"
    data = bytearray(top)
    shared = []
    for one in writer.constants.values():
        one.at = top
        value = one.constant or 0
        if one.width == 4:
            block = value.to_bytes(4, "little") * 32
        else:
            block = value.to_bytes(8 if one.width >= 256 else 4, "little") * 32
            if one.width == 512:
                block += bytes(256)
        data += block
        if one.shared:
            shared.append(one.at | int(one.width == 256))
        top += len(block)
    for special in writer.specials.values():
        special.at = top
        top += special.width
    fused = pairs(steps, starts(steps))
    top = place(steps, top)

    lists: list[int] = []
    records = []
    for step in steps:
        if step.items:
            step.fields.setdefault("list", len(lists))
            lists += [_number(one) for one in step.items]
        values = {key: _number(one) for key, one in step.fields.items()}
        guard = step.guard.at if step.guard is not None else -1
        imm = values.get("imm", 0)
        imm = imm - (1 << 64) if imm >= 1 << 63 else imm
        records.append(
            (0, values.get("d", 0), values.get("a", 0), values.get("b", 0), values.get("c", 0),
             values.get("e", 0), guard, imm, values.get("list", 0), values.get("count", 0),
             values.get("flags", 0), int(step.negate and guard >= 0), step.kind,
             values.get("space", 0), values.get("base", 0), step.place, step.owner)
        )  # fmt: skip
    specials = [number for key, one in writer.specials.items() for number in (key, one.at)]
    return Program(
        name=kernel.name,
        target=module.target,
        instructions=np.array(records, dtype=INSTRUCTION),
        names=[step.name for step in steps],
        lists=np.array([*lists, 0], np.uint32),
        constants=bytes(data),
        registers=top + 64,
        specials=np.array(specials, np.uint32),
        shared_constants=np.array(shared, np.uint32),
        parameters=walk.parameters,
        shared=walk.static,
        reserved=walk.reserved,
        local=-(-max(16, writer.local) // 16) * 16,
        places=list(writer.places),
        granule=writer.granules[0],
        global_granule=writer.granules[1],
        tensor=writer.tensor,
        directives=dict(kernel.directives),
        forms=[step.form for step in steps],
        fused=[
            (one.product, one.sum, one.name, one.operands[0].at, one.operands[1].at,
             one.operands[2].at)
            for one in fused
        ],  # fmt: skip
    )


def _number(one: Register | Label | int) -> int:
    return one if isinstance(one, int) else one.at

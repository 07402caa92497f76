"""The walk through a kernel and what it calls, statement by statement, as its rules say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from papergpu.decode import alu, async_copies, control, matrix, memory, tcgen05
from papergpu.errors import Unsupported
from papergpu.forms import Matched, UnknownForm, find_form
from papergpu.ir import Label, Scope, Symbol
from papergpu.program import BIT, BRANCH, GENERIC, LOCAL, LONG, PARAM, SHARED
from papergpu.syntax_tree import (
    Address,
    Block,
    Function,
    Instruction,
    Module,
    Name,
    Negated,
    Operand,
    Targets,
    Variable,
    Vector,
)
from papergpu.syntax_tree import Label as LabelHere
from papergpu.variables import (
    Globals,
    align_offset,
    function_addresses,
    layout_parameters,
    variable_bytes,
)
from papergpu.writer import RULES, Rule, Writer

# ---- copies of what `tcgen05.ld` brings, put where its values are there. The wait is one more
# instruction, and LLVM does not know that it is what delivers the registers: it may move a plain
# copy of them before it. ptxas puts that right by tracking the registers; here the copies are moved
# behind the wait. Whatever else reads them too early still reads nonsense

T = TypeVar("T")
LOAD = "tcgen05.ld"
CONTROL = ("bra", "brx", "ret", "exit", "call", "bar", "barrier")


def _operand_names(operands: Iterable[Operand]) -> Iterator[str]:
    """The registers and symbols that operands name."""
    for one in operands:
        if isinstance(one, Name):
            yield one.text
        elif isinstance(one, Vector):
            yield from _operand_names(one.items)
        elif isinstance(one, Negated):
            yield from _operand_names((one.operand,))
        elif isinstance(one, Address):
            yield from _operand_names((one.base, *one.more))


def delay_load_copies(items: Sequence[T]) -> list[T]:
    """The items of a block, with copies of loaded registers behind the wait for them."""
    if not any(isinstance(one, Instruction) and one.form.startswith(LOAD) for one in items):
        return [*items]
    found: list[T] = []
    held: list[T] = []
    loaded: set[str] = set()  # registers that are on their way, and copies of them
    kept: set[str] = set()  # what the copies that are held back name

    def flush_held() -> None:
        found.extend(held)
        held.clear()
        loaded.clear()
        kept.clear()

    for item in items:
        if not isinstance(item, Instruction):
            if loaded and not isinstance(item, Variable):
                flush_held()
            found.append(item)
            continue
        named = set(_operand_names(item.operands))
        kind = item.modifiers[0] if item.opcode == "tcgen05" and item.modifiers else ""
        if kind == "wait::ld":
            found.append(item)
            flush_held()
        elif kind == "ld":
            if kept & named:
                flush_held()
            found.append(item)
            loaded |= set(_operand_names(item.operands[:1]))
        elif loaded and item.opcode == "mov" and not item.guard and loaded & named:
            held.append(item)
            loaded |= set(_operand_names(item.operands[:1]))
            kept |= named
        else:
            if kept & named or (loaded and item.opcode in CONTROL):
                flush_held()
            found.append(item)
    flush_held()
    return found


# They note their rules when they are imported.
RULE_MODULES = (alu, control, matrix, memory, tcgen05, async_copies)

RESERVED, RESERVED_BYTES = "%reserved_smem_offset_1", 288


class KernelDecoder:
    """Walks through a kernel, and through what it calls, in the order of the text."""

    def __init__(self, module: Module, kernel: Function, globals_: Globals) -> None:
        self.functions = {one.name: one for one in module.functions if one.body}
        symbols = dict(globals_.symbols)
        self.shared = self.reserved = 0
        self.plans: dict[tuple[str, int], tuple[Rule, Matched]] = {}  # of a form with its operands
        self.open: list[Variable] = []
        self.parameters = layout_parameters(kernel.parameters)
        for name, at, _ in self.parameters:
            symbols[name] = Symbol(PARAM, at)
        self.writer = Writer(symbols)
        self.addresses = function_addresses(module)
        self.taken = self.functions.keys() & globals_.functions
        callable_ = self.functions.keys() & self.addresses.keys()
        for item in module.iterate_instructions() if callable_ else ():
            if item.opcode in ("mov", "st", "cvta"):
                names = {operand.text for operand in item.operands if isinstance(operand, Name)}
                self.taken |= names & callable_
        for one in self.find_shared_variables(module, kernel):
            if one.count == 0 or "extern" in one.linkage:
                self.open.append(one)
                continue
            at = align_offset(self.shared, one)
            symbols[one.name] = Symbol(SHARED, at)
            self.shared = at + variable_bytes(one)
        if RESERVED in module.text:
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
                self.static = align_offset(self.static, one)
            for one in self.open:
                symbols[one.name] = Symbol(SHARED, self.static)
        self.calling: list[str] = [kernel.name]
        for name in self.taken:
            symbols.setdefault(name, Symbol(GENERIC, self.addresses[name]))

    def find_shared_variables(self, module: Module, kernel: Function) -> list[Variable]:
        """Those within the functions that the kernel reaches, and those of the module they name."""
        found = list[Variable]()
        waiting, named = [kernel], {kernel.name}
        while waiting:
            one = waiting.pop(0)
            assert one.body is not None
            for item in _iterate_items(one.body):
                if isinstance(item, Variable) and item.space == "shared":
                    found.append(item)
                elif isinstance(item, Instruction):
                    for name in _operand_names(item.operands):
                        if name in self.functions and name not in named:
                            waiting.append(self.functions[name])
                        named.add(name)
        reached = [one for one in module.variables if one.space == "shared"]
        # A pointer, which may lie in memory, reaches functions that nobody names here.
        if not self.taken:
            reached = [one for one in reached if one.name in named]
        return reached + found

    def decode_block(self, block: Block, scope: Scope | None = None) -> None:
        scope = scope or Scope()
        for item in block.items:
            if isinstance(item, LabelHere):
                scope.labels[item.name] = Label()
            elif isinstance(item, Targets):
                scope.tables[item.name] = item.labels
        self.writer.scopes.append(scope)
        for item in delay_load_copies(block.items):
            if isinstance(item, Instruction):
                self.decode_instruction(item)
            elif isinstance(item, Variable):
                self.declare_variable(item, scope)
            elif isinstance(item, LabelHere):
                self.writer.place_label(scope.labels[item.name])
            elif isinstance(item, Block):
                self.decode_block(item)
        self.writer.scopes.pop()

    def declare_variable(self, one: Variable, scope: Scope) -> None:
        if one.space == "reg":
            kind = one.type
            if one.range is not None:
                scope.ranges[one.name] = (kind, one.range)
            else:
                self.writer.name_register(scope, one.name, kind)
        elif one.space in ("local", "param"):
            at = align_offset(-(-self.writer.local // 8) * 8, one)
            scope.symbols[one.name] = Symbol(LOCAL, at)
            self.writer.local = at + variable_bytes(one)
        elif one.space != "shared":
            raise Unsupported(f"PTX line {one.line}: a variable of .{one.space} in a function")

    def decode_instruction(self, one: Instruction) -> None:
        writer = self.writer
        writer.current = one
        writer.guard, writer.negate = None, False
        if one.guard:
            writer.guard = writer.find_register(one.guard)
            writer.negate = one.unless
            if writer.guard is None:
                raise writer.refuse(f"its predicate {one.guard} is not declared")
        if one.opcode == "call":
            self.decode_call(one)
            return
        shape = (one.form, len(one.operands))
        plan = self.plans.get(shape)
        if plan is None:
            try:
                plan = self.plans[shape] = (
                    RULES.get(one.opcode, alu.decode_plain),
                    find_form(*shape),
                )
            except UnknownForm as error:
                raise writer.refuse(str(error)) from None
        rule, found = plan
        try:
            rule(writer, one, found)
        except (IndexError, ValueError) as error:
            raise writer.refuse(f"its operands do not fit ({error})") from None

    def decode_call(self, one: Instruction) -> None:
        """A call is the callee's body in its place."""
        writer = self.writer
        operands = list(one.operands)
        results = (
            list(writer.vector_items(operands.pop(0))) if _is_parenthesised(operands[0]) else []
        )
        target = operands.pop(0)
        given: list[Operand] = []
        if operands and _is_parenthesised(operands[0]):
            given = list(writer.vector_items(operands.pop(0)))
        name = target.text if isinstance(target, Name) else ""
        if control.decode_builtin_call(writer, name, results, given):
            return
        end = Label()
        guard, negate = writer.guard, writer.negate
        if guard is not None:
            # Only some lanes make the call: the others go round it.
            writer.negate = not negate
            writer.emit("", BRANCH, imm=end)
            writer.guard = None
        if name not in self.functions and writer.find_register(name) is not None:
            self.call_through_pointer(one, target, results, given, end)
        else:
            self.inline_function(name, results, given, end)
        writer.place_label(end)
        writer.current = one

    def call_through_pointer(
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
                self.inline_function(name, results, given, end)
                writer.emit("", BRANCH, imm=end)
            writer.place_label(other)
            writer.current = one
            if len(writer.steps) > 1_000_000:
                raise writer.refuse("calls through pointers are nested too deeply")
        writer.emit("call.nowhere", a=where)

    def inline_function(
        self, name: str, results: list[Operand], given: list[Operand], end: Label
    ) -> None:
        """The body of a function, its parameters bound to what is given."""
        writer = self.writer
        callee = self.functions.get(name)
        if callee is None or callee.body is None:
            raise writer.refuse(f"{name or 'the called function'} has no body here")
        if name in self.calling:
            raise writer.refuse(f"{name} calls itself, which is not supported: write it as a loop")
        scope = Scope()
        for variables, operands_given in ((callee.results, results), (callee.parameters, given)):
            if len(variables) != len(operands_given):
                raise writer.refuse(f"{name} takes a different number of operands")
            for variable, operand in zip(variables, operands_given, strict=True):
                if variable.space == "reg":
                    if not isinstance(operand, Name):
                        raise writer.refuse("a constant is passed in a register")
                    register = writer.find_register(operand.text)
                    if register is None:
                        raise writer.refuse(f"{operand.text} is not declared")
                    scope.registers[variable.name] = register
                    continue
                symbol = writer.find_symbol(operand.text) if isinstance(operand, Name) else None
                if symbol is None:
                    raise writer.refuse(f"{operand} is not a parameter that can be passed")
                scope.symbols[variable.name] = symbol
        outer, writer.scopes = writer.scopes, [writer.scopes[0]]
        self.calling.append(name)
        writer.ends.append(end)
        self.decode_block(callee.body, scope)
        writer.ends.pop()
        self.calling.pop()
        writer.scopes = outer


def _is_parenthesised(operand: object) -> bool:
    return isinstance(operand, Vector) and operand.opening == "("


def _iterate_items(block: Block) -> Iterable[object]:
    for item in block.items:
        yield item
        if isinstance(item, Block):
            yield from _iterate_items(item)

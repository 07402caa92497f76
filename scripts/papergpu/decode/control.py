"""Branches, calls of what has no body, barriers, the end, and what a warp's lanes do together."""

from __future__ import annotations

from collections.abc import Sequence

from papergpu.forms import Matched, type_bits
from papergpu.ir import Register
from papergpu.program import (
    BARRIER,
    BRANCH,
    CLUSTER,
    EXIT,
    GENERIC,
    LOCAL,
    LONG,
    MEET,
    NONE,
    SHARED,
    TABLE,
    WORD,
)
from papergpu.syntax_tree import Instruction, Name, Operand, Vector
from papergpu.variables import HEAP
from papergpu.writer import Writer, register_rule


@register_rule("bra")
def decode_bra(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("", BRANCH, imm=writer.find_label(_label_name(writer, one.operands[0])))


@register_rule("brx")
def decode_brx(writer: Writer, one: Instruction, found: Matched) -> None:
    table = _label_name(writer, one.operands[1])
    for scope in reversed(writer.scopes):
        if table in scope.tables:
            labels = [writer.find_label(name) for name in scope.tables[table]]
            writer.emit("", TABLE, a=writer.source(one.operands[0], "u32"), items=labels)
            return
    raise writer.refuse(f"there is no table {table}")


@register_rule("ret", "exit")
def decode_exit(writer: Writer, one: Instruction, found: Matched) -> None:
    if one.opcode == "ret" and writer.ends:
        writer.emit("", BRANCH, imm=writer.ends[-1])
    else:
        writer.emit("", EXIT)


# What needs no operand here. Hints change how quickly something goes, not what comes out, and
# launches run one after the other: what griddepcontrol waits for has ended.
BARE = {"trap": "trap", "brkpt": "trap", "nanosleep": "yield", "pmevent": "yield"} | dict.fromkeys(
    ("setmaxnreg", "discard", "applypriority", "prefetch", "prefetchu", "griddepcontrol"), "nop"
)


@register_rule(*BARE)
def decode_bare(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit(BARE[one.opcode])


@register_rule("createpolicy")
def decode_createpolicy(writer: Writer, one: Instruction, found: Matched) -> None:
    """What a cache should keep: caches do not change results, so any policy is 0."""
    target = writer.target(one.operands[0], "b64")
    writer.emit("mov.u64", d=target, a=writer.constant(0, LONG))


@register_rule("bar", "barrier")
def decode_bar(writer: Writer, one: Instruction, found: Matched) -> None:
    words = set(one.modifiers)
    if "cluster" in words:
        flags = (1 if "arrive" in words else 0) | (2 if "wait" in words else 0)
        flags |= 4 if "aligned" in words else 0
        writer.emit("", CLUSTER, flags=flags)
        return
    if "warp" in words:
        writer.emit("bar.warp", MEET, e=writer.source(one.operands[0], "b32"))
        return
    aligned = one.opcode == "bar" or "aligned" in words
    flags = (1 if aligned else 0) | (2 if "arrive" in words else 0)
    operands = list(one.operands)
    target: Register | None = None
    predicate: Register | None = None
    if "red" in words:
        kind = next(i for i, name in enumerate(("popc", "and", "or"), 1) if name in words)
        flags |= kind << 2
        target = writer.target(operands.pop(0))
        predicate, negated = writer.predicate(operands.pop())
        flags |= 32 if negated else 0
    number = writer.source(operands[0], "u32")
    count = writer.source(operands[1], "u32") if len(operands) > 1 else None
    flags |= 16 if count is not None else 0
    step = writer.emit("", BARRIER, d=target, a=number, b=count, c=predicate, flags=flags)
    if target is not None:
        step.reads += (target,)


def _label_name(writer: Writer, operand: Operand) -> str:
    if not isinstance(operand, Name):
        raise writer.refuse(f"{operand} is not a label")
    return operand.text


# ---- calls of the functions that every CUDA program has and that have no body in PTX

WIDTHS = {"vprintf": (8, 8), "__assertfail": (8, 8, 4, 8, 8), "malloc": (8,), "free": (8,)}
LAUNCHES = ("cudaLaunchDevice", "cudaGetParameterBuffer", "cudaDeviceSynchronize", "__cudaCDP",
            "cudaCDP")  # fmt: skip


def decode_builtin_call(
    writer: Writer, name: str, results: Sequence[Operand], given: Sequence[Operand]
) -> bool:
    """Emit a call of one of them; false if it is none."""
    if name.startswith(LAUNCHES):
        raise writer.refuse(f"{name}: kernels that launch kernels are not supported")
    if name not in WIDTHS:
        return False
    widths = WIDTHS[name]
    if len(given) != len(widths):
        raise writer.refuse(f"{name} takes {len(widths)} operands but has {len(given)}")
    values = [_read_argument(writer, one, width) for one, width in zip(given, widths, strict=True)]
    if name == "vprintf":
        made = writer.temporary()
        writer.emit("printf", d=made, a=values[0], b=values[1])
        _write_result(writer, results, made)
    elif name == "__assertfail":
        message, file, line, function, _ = values
        writer.emit("assertfail", a=message, b=file, c=line, e=function)
    elif name == "malloc":
        made = writer.temporary(LONG)
        writer.emit("heap.take", d=made, a=values[0], b=_heap_address(writer))
        _write_result(writer, results, made)
    else:
        writer.emit("heap.give", a=values[0], b=_heap_address(writer))
    return True


def _heap_address(writer: Writer) -> Register:
    symbol = writer.find_symbol(HEAP)
    if symbol is None:
        raise writer.refuse("this module declares no malloc")
    return writer.symbol_address(symbol, 0, LONG)


def _local_offset(writer: Writer, operand: Operand) -> int:
    """The byte of local memory where a parameter of a call stands."""
    symbol = writer.find_symbol(operand.text) if isinstance(operand, Name) else None
    if symbol is None or symbol.space != LOCAL:
        raise writer.refuse(f"{operand} is not a parameter that can be passed")
    return symbol.at


def _read_argument(writer: Writer, operand: Operand, width: int) -> Register:
    if isinstance(operand, Name):
        register = writer.find_register(operand.text)
        if register is not None:
            return register
    made = writer.temporary(LONG if width == 8 else WORD)
    name = "ld.u64_64" if width == 8 else "ld.u32_32"
    writer.emit(name, writes=[made], imm=_local_offset(writer, operand), base=NONE, space=LOCAL)
    return made


def _write_result(writer: Writer, results: Sequence[Operand], made: Register) -> None:
    if not results:
        return
    name = "st.u64_64" if made.width == LONG else "st.u32_32"
    writer.emit(name, reads=[made], imm=_local_offset(writer, results[0]), base=NONE, space=LOCAL)


# ---- clusters that have not begun, taken back by those that run

DIMENSIONS = "xyz"


@register_rule("clusterlaunchcontrol")
def decode_clusterlaunchcontrol(writer: Writer, one: Instruction, found: Matched) -> None:
    if one.modifiers[0] == "try_cancel":
        space = SHARED if "s" in found.slots else GENERIC
        flags = (0 if space == SHARED else 1) | (2 if "m" in found.slots else 0)
        writer.emit("clc.try", a=writer.pointer(one.operands[0], space),
                    b=writer.pointer(one.operands[1], space), flags=flags)  # fmt: skip
        return
    answer = writer.source(one.operands[1], "b128")
    what = one.modifiers[1]
    if what == "is_canceled":
        writer.emit("clc.canceled", d=writer.target(one.operands[0], "pred"), a=answer)
        return
    parts = writer.vector_items(one.operands[0])
    numbers = range(len(parts)) if len(parts) > 1 else [DIMENSIONS.index(what[-1])]
    for number, part in zip(numbers, parts, strict=True):
        if number < len(DIMENSIONS) and not (isinstance(part, Name) and part.text == "_"):
            writer.emit("clc.ctaid", d=writer.target(part), a=answer, imm=number)


# ---- what the lanes of a warp do together


def _target_pair(writer: Writer, operand: Operand) -> tuple[Register | None, Register | None]:
    """`d|p`, each of them there unless it is `_`."""
    parts = operand.items if isinstance(operand, Vector) else (operand,)
    found = [
        None if isinstance(part, Name) and part.text == "_" else writer.target(part)
        for part in parts
    ]
    return found[0], found[1] if len(found) > 1 else None


@register_rule("shfl")
def decode_shfl(writer: Writer, one: Instruction, found: Matched) -> None:
    target, inside = _target_pair(writer, one.operands[0])
    a, b, c, mask = (writer.source(part, "b32") for part in one.operands[1:5])
    writer.emit(f"shfl.{found.slots['m']}", MEET, d=target, a=a, b=b, c=c, e=mask, list=inside,
                count=int(inside is not None))  # fmt: skip


@register_rule("vote")
def decode_vote(writer: Writer, one: Instruction, found: Matched) -> None:
    predicate, negated = writer.predicate(one.operands[1])
    writer.emit(f"vote.{found.slots['m']}", MEET, d=writer.target(one.operands[0]), a=predicate,
                e=writer.source(one.operands[2], "b32"), imm=int(negated))  # fmt: skip


@register_rule("activemask")
def decode_activemask(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("activemask", d=writer.target(one.operands[0]))


@register_rule("elect")
def decode_elect(writer: Writer, one: Instruction, found: Matched) -> None:
    target, chosen = _target_pair(writer, one.operands[0])
    if chosen is None:
        raise writer.refuse("it has no predicate")
    writer.emit("elect", MEET, d=target, e=writer.source(one.operands[1], "b32"), list=chosen,
                count=1)  # fmt: skip


@register_rule("redux")
def decode_redux(writer: Writer, one: Instruction, found: Matched) -> None:
    kind, what = found.slots["t"], found.slots["m"]
    shown = "u32" if what in ("add", "and", "or", "xor") else kind
    flags = (1 if "NaN" in found.slots else 0) | (2 if "abs" in found.slots else 0)
    writer.emit(f"redux.{what}.{shown}", MEET, d=writer.target(one.operands[0]),
                a=writer.source(one.operands[1], kind), flags=flags,
                e=writer.source(one.operands[2], "b32"))  # fmt: skip


@register_rule("match")
def decode_match(writer: Writer, one: Instruction, found: Matched) -> None:
    target, same = _target_pair(writer, one.operands[0])
    if target is None:
        raise writer.refuse("it has no result")
    writer.emit(f"match.{found.slots['m']}.b{type_bits(found.slots['t'])}", MEET, d=target,
                a=writer.source(one.operands[1], found.slots["t"]),
                e=writer.source(one.operands[2], "b32"), list=same,
                count=int(same is not None))  # fmt: skip

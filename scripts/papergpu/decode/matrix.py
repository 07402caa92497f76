"""Products of matrices within a warp and a warpgroup, sparse ones too, and how matrices move."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from papergpu.forms import Matched
from papergpu.ir import AddressFields, Register, Step, parse_space
from papergpu.program import GENERIC, RETRY, SHARED, SYNC
from papergpu.syntax_tree import Instruction, Operand, Vector
from papergpu.writer import Writer, register_rule

# As `Element` in core/matrix.hpp numbers them.
NAMES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1", "f64", "f32", "s32",
         "e2m3", "e3m2", "e2m1")  # fmt: skip
ELEMENTS = {name: number for number, name in enumerate(NAMES)}
# Bits of an element where it lies in memory or in a register.
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
        "u4": 4, "b1": 1, "f64": 64, "f32": 32, "s32": 32, "e2m3": 8, "e3m2": 8,
        "e2m1": 8}  # fmt: skip
SMALL = "elements of less than a byte must be row by row in a, column by column in b"
SATURATE, EXCLUSIVE, NEGATE = 1 << 16, 1 << 17, 1 << 18
A_ACROSS, B_ACROSS, A_SHARED, NEW_IF_TRUE = 1 << 19, 1 << 20, 1 << 21, 1 << 22
SELECTOR, ORDERED, SPARSE = 23, 1 << 25, 1 << 26
SCALES, PACKED, FRACTIONS = 16, 1 << 19, 1 << 20
# Of products with scaled blocks, by kind, size of the vector of factors and their type: k, and how
# many factors there are along it.
SCALED = {("mxf8f6f4", "", "ue8m0"): (32, 1), ("mxf8f6f4", "1X", "ue8m0"): (32, 1),
          ("mxf4", "", "ue8m0"): (64, 2), ("mxf4", "2X", "ue8m0"): (64, 2),
          ("mxf4nvf4", "2X", "ue8m0"): (64, 2), ("mxf4nvf4", "4X", "ue4m3"): (64, 4)}  # fmt: skip


def full_mask(writer: Writer) -> Register:
    """The mask of what a whole warp does."""
    return writer.constant(0xFFFFFFFF, 128)


def parse_shape(found: Matched) -> tuple[int, int, int]:
    """m, n and k of `m16n8k16`."""
    m, n, k = (int(part) for part in re.findall(r"\d+", found.slots["s"]))
    return m, n, k


@dataclass
class Product:
    """d = a b + c: its shape and types, and flags of what else is said of it."""

    shape: tuple[int, int, int]
    d: str
    a: str
    b: str
    c: str
    flags: int = 0

    @property
    def packed_shape(self) -> int:
        """The shape in one number; k of single bits counts words of 32."""
        m, n, k = self.shape
        return m | n << 8 | (k // 32 if self.a == "b1" else k) << 20

    @property
    def packed_types(self) -> int:
        """Types and flags in one number."""
        kinds = ELEMENTS[self.a] | ELEMENTS[self.b] << 4 | ELEMENTS[self.d] << 8
        return kinds | ELEMENTS[self.c] << 12 | self.flags


def read_product(writer: Writer, found: Matched) -> Product:
    """The product of a form; types of a and b go together: the same, or of one width and sort."""
    slots = found.slots
    a = slots.get("a", "f16")  # wmma does not write halves out
    b, d = slots.get("b", a), slots["d"]
    groups = (("e4m3", "e5m2", "e2m3", "e3m2", "e2m1"), ("s8", "u8"), ("s4", "u4"))
    if a != b and not any(a in group and b in group for group in groups):
        raise writer.refuse(f"{a} cannot be multiplied by {b}")
    exclusive = slots.get("o") == "xor"
    flags = (SATURATE if "satfinite" in slots else 0) | (EXCLUSIVE if exclusive else 0)
    return Product(parse_shape(found), d, a, b, slots.get("c", d), flags)


def count_registers(kind: str, rows: int, columns: int) -> int:
    """How many registers of a thread hold its part of a matrix."""
    width = 64 if kind == "f64" else 32
    return max(1, rows * columns * BITS[kind] // (width * 32))


def source_fragment(
    writer: Writer, operand: Operand, kind: str, count: int, what: str
) -> list[Register]:
    """The registers of a matrix that is read."""
    parts = writer.vector_items(operand)
    if len(parts) != count:
        raise writer.refuse(f"{what} has {len(parts)} registers but takes {count}")
    return [writer.source(part, "f64" if kind == "f64" else "b32") for part in parts]


def target_fragment(writer: Writer, operand: Operand, kind: str, count: int) -> list[Register]:
    """The registers of a matrix that is written."""
    parts = writer.vector_items(operand)
    if len(parts) != count:
        raise writer.refuse(f"its result has {len(parts)} registers but takes {count}")
    return [writer.target(part, "f64" if kind == "f64" else "b32") for part in parts]


# Products of a warp.


@register_rule("mma")
def decode_mma(writer: Writer, one: Instruction, found: Matched) -> None:
    if "v" in found.slots:
        decode_sparse_mma(writer, one, found)
        return
    slots, what = found.slots, read_product(writer, found)
    m, n, k = what.shape
    if "block_scale" in slots:
        decode_scaled_mma(writer, one, found, what)
        return
    if found.form.name == "mma.quarters":
        # a and b are of four products at once.
        sums = {"f16": 4, "f32": 8}
        counts = {"d": sums[what.d], "a": 2, "b": 2, "c": sums[what.c]}
        what.flags |= SATURATE if slots["la"] == "col" else 0
        what.flags |= EXCLUSIVE if slots["lb"] == "row" else 0
        emit_product(writer, one, "mma.quarters", what, counts)
        return
    counts = {"d": count_registers(what.d, m, n), "a": count_registers(what.a, m, k),
              "b": count_registers(what.b, k, n), "c": count_registers(what.c, m, n)}  # fmt: skip
    emit_product(writer, one, choose_mma_handler(what.a), what, counts)


def decode_scaled_mma(writer: Writer, one: Instruction, found: Matched, what: Product) -> None:
    """Blocks along k of a and b have factors, which lanes give in a word each."""
    kind, size = (found.slots.get(slot, "").rpartition(":")[2] for slot in "gx")
    packed = kind != "mxf8f6f4"
    depth, scales = SCALED.get((kind, size, found.slots["t"]), (0, 0))
    if depth != what.shape[2] or (packed and {what.a, what.b} != {"e2m1"}):
        raise writer.refuse("its kind, shape, types and size of factors do not go together")
    targets = target_fragment(writer, one.operands[0], "f32", 4)
    given: list[Register] = []
    for operand, count, name in zip(one.operands[1:4], (4, 2, 4), "abc", strict=True):
        given += source_fragment(writer, operand, "b32", count, name)
    for factors, where in (one.operands[4:6], one.operands[6:8]):
        given.append(writer.source(factors, "b32"))
        given += [writer.source(one, "u16") for one in writer.vector_items(where)]
    what.flags |= scales << SCALES | packed * PACKED | (found.slots["t"] == "ue4m3") * FRACTIONS
    writer.emit("mma.scaled", SYNC, writes=targets, reads=given, e=full_mask(writer),
                imm=what.packed_shape, flags=what.packed_types)  # fmt: skip


def choose_mma_handler(a: str) -> str:
    """The engine's handler of products of a type."""
    if a == "f64":
        return "mma.double"
    return "mma.integer" if a in ("s8", "u8", "s4", "u4", "b1") else "mma.float"


def selector_flags(writer: Writer, operand: Operand, a: str, k: int) -> int:
    """Flags of which lanes give the metadata of a sparse a."""
    # A row has 4 bits of metadata for each 4 elements, or 2 of tf32; a group of four lanes has two
    # rows, and each lane that gives metadata gives 32 bits.
    giving = k // (2 if a == "tf32" else 4) * 4 * 2 // 32
    found = writer.constant_value(operand)
    if not 0 <= found < 4 // giving:
        raise writer.refuse(f"its sparsity selector is {found}: use one below {4 // giving}")
    return found << SELECTOR


def emit_product(
    writer: Writer, one: Instruction, name: str, what: Product, counts: dict[str, int],
    used: dict[str, int] | None = None,
) -> None:  # fmt: skip
    """Take down a product. Where `used` registers hold a matrix, the others hold it again."""
    targets = target_fragment(writer, one.operands[0], what.d, counts["d"])
    given: list[Register] = []
    kinds = {"a": what.a, "b": what.b, "c": what.c}
    for operand, (letter, kind) in zip(one.operands[1:], kinds.items(), strict=True):
        parts = source_fragment(writer, operand, kind, counts[letter], letter)
        given += parts[: used[letter]] if used and letter in used else parts
    writer.emit(name, SYNC, writes=targets, reads=given, e=full_mask(writer), imm=what.packed_shape,
                flags=what.packed_types)  # fmt: skip


@register_rule("wmma")
def decode_wmma(writer: Writer, one: Instruction, found: Matched) -> None:
    if found.form.name.startswith("wmma.mma"):
        decode_wmma_product(writer, one, found)
    else:
        decode_wmma_move(writer, one, found)


def count_wmma_registers(kind: str, rows: int, columns: int, of_sums: bool) -> int:
    """As `count_registers`, but fragments of halves have eight registers in any shape."""
    return 8 if kind == "f16" and not of_sums else count_registers(kind, rows, columns)


def decode_wmma_product(writer: Writer, one: Instruction, found: Matched) -> None:
    slots, what = found.slots, read_product(writer, found)
    (m, n, k), d, a, b, c = what.shape, what.d, what.a, what.b, what.c
    if BITS[a] < 8 and (slots["la"], slots["lb"]) != ("row", "col"):
        raise writer.refuse(SMALL)
    counts = {"d": count_wmma_registers(d, m, n, True), "a": count_wmma_registers(a, m, k, False),
              "b": count_wmma_registers(b, k, n, False),
              "c": count_wmma_registers(c, m, n, True)}  # fmt: skip
    used = {"a": count_registers(a, m, k), "b": count_registers(b, k, n)}
    emit_product(writer, one, choose_mma_handler(a), what, counts, used)


def decode_wmma_move(writer: Writer, one: Instruction, found: Matched) -> None:
    """A fragment's matrix from memory, or to it, with or without a stride."""
    slots = found.slots
    m, n, k = parse_shape(found)
    which, kind = slots["w"], slots["t"]
    load = "load" in slots
    rows, columns = {"a": (m, k), "b": (n, k)}.get(which, (m, n))
    across = slots["l"] == ("row" if which == "b" else "col")
    of_sums = which in "cd"
    if BITS[kind] < 8 and across:
        raise writer.refuse(
            "elements of less than a byte are row by row in a, column by column in b"
        )
    count = count_wmma_registers(kind, rows, columns, of_sums)
    memory, registers = (one.operands[1], one.operands[0]) if load else one.operands[:2]
    fields = writer.address(memory, parse_space(slots.get("ss", "")))
    stride = writer.narrow_source(one.operands[2], "u32") if len(one.operands) > 2 else None
    flags = rows | columns << 8 | BITS[kind] << 16 | across << 23
    flags |= (of_sums and kind != "f16") << 24
    if load:
        writer.emit("wmma.load", SYNC, writes=target_fragment(writer, registers, kind, count),
                    c=stride, flags=flags, e=full_mask(writer), **fields)  # fmt: skip
    else:
        given = source_fragment(writer, registers, kind, count, "its matrix")
        writer.emit("wmma.store", SYNC, reads=given, c=stride, flags=flags, e=full_mask(writer),
                    **fields)  # fmt: skip


# Products of a warpgroup.


def mark_in_flight(writer: Writer, registers: Iterable[Register], written: bool) -> None:
    """These are read or written while the warp goes on, so they share their places with none."""
    fresh = []
    for register in registers:
        if register.constant is not None:
            continue
        register.keep = True
        if register not in writer.in_flight:
            fresh.append(register)
        writer.in_flight[register] = written or writer.in_flight.get(register, False)
    if fresh:
        for step in writer.steps:
            if step.name == "wgmma.fence":  # its list is of the registers that products use
                watch_registers(step, fresh)


def watch_registers(fence: Step, registers: Sequence[Register]) -> None:
    """A fence notes what these registers hold."""
    fence.items = [*fence.items, *registers]
    fence.count = len(fence.items)
    fence.reads += tuple(registers)


@register_rule("wgmma")
def decode_wgmma(writer: Writer, one: Instruction, found: Matched) -> None:
    what = found.form.name
    if what == "wgmma.fence":
        fence = writer.emit("wgmma.fence", SYNC, e=full_mask(writer))
        watch_registers(fence, list(writer.in_flight))
    elif what == "wgmma.commit":
        writer.emit("wgmma.commit", SYNC, e=full_mask(writer))
    elif what == "wgmma.wait":
        # All lanes, then all again until it is done.
        writer.emit("bar.warp", SYNC, e=full_mask(writer))
        writer.emit("wgmma.wait", RETRY, imm=writer.constant_value(one.operands[0]))
    else:
        decode_mma_async(writer, one, found)


def decode_mma_async(writer: Writer, one: Instruction, found: Matched) -> None:
    slots, what = found.slots, read_product(writer, found)
    (m, n, k), d, a = what.shape, what.d, what.a
    if is_integer_product(a) and n > 32 and n % 16:
        raise writer.refuse(f"no shape {slots['s']} for {a}")
    results = target_fragment(writer, one.operands[0], d, count_registers(d, m, n) // 4)
    given: list[Register] = []
    first = None
    if isinstance(one.operands[1], Vector):
        given = source_fragment(writer, one.operands[1], a, 4, "a")
    else:
        what.flags |= A_SHARED
        first = writer.source(one.operands[1], "b64")
    second = writer.source(one.operands[2], "b64")
    rest = list(one.operands[3:])
    if "sp" in slots:
        what.flags |= SPARSE | selector_flags(writer, rest[1], a, k)
        given = [*given, writer.source(rest[0], "b32")]
        rest = rest[2:]
    scale, negated = writer.predicate(rest[0])
    what.flags |= NEW_IF_TRUE if negated else 0
    what.flags |= scale_flags(writer, a, [writer.constant_value(operand) for operand in rest[1:]],
                              in_registers=first is None)  # fmt: skip
    mark_in_flight(writer, results, written=True)
    mark_in_flight(writer, given, written=False)
    step = writer.emit("wgmma.issue", SYNC, writes=results, reads=given, a=first, b=second, c=scale,
                       e=full_mask(writer), imm=what.packed_shape,
                       flags=what.packed_types)  # fmt: skip
    step.reads += tuple(results)


def scale_flags(writer: Writer, a: str, numbers: Sequence[int], in_registers: bool) -> int:
    """Flags of imm-scale-a, imm-scale-b, imm-trans-a and imm-trans-b, as far as a type has them."""
    scales = 0 if is_integer_product(a) else 2
    across = 0 if BITS[a] != 16 else 1 if in_registers else 2
    if len(numbers) != scales + across:
        raise writer.refuse(f"it takes {scales} scales and {across} transpositions")
    if any(one not in (-1, 1) for one in numbers[:scales]):
        raise writer.refuse("imm-scale-a and imm-scale-b must be 1 or -1")
    if any(one not in (0, 1) for one in numbers[scales:]):
        raise writer.refuse("imm-trans-a and imm-trans-b must be 0 or 1")
    flags = NEGATE if scales and numbers[0] != numbers[1] else 0
    flags |= B_ACROSS if across and numbers[-1] else 0
    return flags | (A_ACROSS if across == 2 and numbers[2] else 0)


def is_integer_product(kind: str) -> bool:
    """Whether products of a type are integers, which take no scales and no transposition."""
    return kind in ("s8", "u8", "b1")


# ---- products of a warp whose matrix a is sparse


def decode_sparse_mma(writer: Writer, one: Instruction, found: Matched) -> None:
    what = read_product(writer, found)
    (m, n, k), d, a, b, c = what.shape, what.d, what.a, what.b, what.c
    if d != c:
        raise writer.refuse(f"its sums are {c} but its result is {d}: both must be one type")
    what.flags |= selector_flags(writer, one.operands[5], a, k)
    what.flags |= ORDERED if found.slots["v"] == "sp::ordered_metadata" else 0
    targets = target_fragment(writer, one.operands[0], d, count_registers(d, m, n))
    given = [
        *source_fragment(writer, one.operands[1], a, count_registers(a, m, k // 2), "a"),
        *source_fragment(writer, one.operands[2], b, count_registers(b, k, n), "b"),
        *source_fragment(writer, one.operands[3], c, count_registers(c, m, n), "c"),
        writer.source(one.operands[4], "b32"),
    ]
    kind = choose_mma_handler(a).removeprefix("mma.")
    writer.emit(f"mma.sparse.{kind}", SYNC, writes=targets, reads=given, e=full_mask(writer),
                imm=what.packed_shape, flags=what.packed_types)  # fmt: skip


# ---- matrices between shared memory and registers

# Flags of the handlers in core/matrix_mma.cpp.
TRANSPOSED, BYTES, NARROW_AT = 1, 2, 8
NARROW = {"b6x16_p32": 6, "b4x16_p64": 4}


def move_flags(found: Matched) -> int:
    """How a matrix is moved."""
    flags = TRANSPOSED if "trans" in found.slots else 0
    flags |= BYTES if found.slots["s"] != "m8n8" else 0
    return flags | NARROW.get(found.slots.get("f", ""), 0) << NARROW_AT


def matrix_address(writer: Writer, found: Matched, memory: Operand) -> AddressFields:
    """The fields of where its rows lie, which is shared memory."""
    fields = writer.address(memory, parse_space(found.slots.get("ss", "")))
    if fields["space"] not in (SHARED, GENERIC):
        raise writer.refuse("its matrices must be in shared memory")
    return fields


@register_rule("ldmatrix")
def decode_ldmatrix(writer: Writer, one: Instruction, found: Matched) -> None:
    """Matrices of rows of 16 bytes, each row where a lane says; of 16 rows two registers."""
    count = int(found.slots["n"][1:]) * (2 if found.slots["s"] == "m16n16" else 1)
    targets = target_fragment(writer, one.operands[0], "b32", count)
    flags, fields = move_flags(found), matrix_address(writer, found, one.operands[1])
    name = "ldmatrix.bytes" if flags & BYTES else "ldmatrix"
    writer.emit(name, SYNC, writes=targets, flags=flags, e=full_mask(writer), **fields)


@register_rule("stmatrix")
def decode_stmatrix(writer: Writer, one: Instruction, found: Matched) -> None:
    given = source_fragment(writer, one.operands[1], "b32", int(found.slots["n"][1:]), "its matrix")
    fields = matrix_address(writer, found, one.operands[0])
    writer.emit(
        "stmatrix", SYNC, reads=given, flags=move_flags(found), e=full_mask(writer), **fields
    )


@register_rule("movmatrix")
def decode_movmatrix(writer: Writer, one: Instruction, found: Matched) -> None:
    writer.emit("movmatrix", SYNC, d=writer.target(one.operands[0]),
                a=writer.source(one.operands[1], "b32"), e=full_mask(writer))  # fmt: skip

"""Copies that go on while a thread does something else, tensor maps, and mbarriers."""

from __future__ import annotations

from papergpu.forms import Matched, type_bits
from papergpu.ir import Register
from papergpu.program import BIT, CONST, GENERIC, GLOBAL, LONG, NONE, PARAM, RETRY, SHARED, WIDE
from papergpu.syntax_tree import Address, Instruction, Name, Negated, Operand
from papergpu.writer import Writer, register_rule

REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
# Element types of reductions, by their numbers in `tensormap`.
ELEMENTS = {"u32": 2, "b32": 2, "s32": 3, "u64": 4, "b64": 4, "s64": 5, "f16": 6, "f32": 7,
            "f64": 9, "bf16": 10}  # fmt: skip
FIELDS = ("global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
          "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity",
          "fill_mode")  # fmt: skip
# Flags of the handlers in core/copies.cpp and core/tensors.cpp.
MULTICAST, REDUCES, BYTE_MASK = 1, 2, 4
ROWS, TENSOR_REDUCES, PAIR, IMAGES, OFFSETS = 2, 4, 8, 16, 32
# And of those in core/mbarriers.cpp.
WIDE_ADDRESS, RELAXED, COUNTED, EXPECTS, DROPS, NO_COMPLETE, ELSEWHERE, COMPLETES, PARITY = (
    1 << k for k in range(9)
)


def _shared_address(writer: Writer, operand: Operand, space: str) -> tuple[Register, int]:
    """A register with an address of shared memory, and 1 if it is generic, in 64 bits."""
    if space or writer.address(operand, GENERIC)["space"] == SHARED:
        return writer.pointer(operand, SHARED), 0
    return writer.pointer(operand, GENERIC), WIDE_ADDRESS


def _generic_address(writer: Writer, operand: Operand) -> Register:
    """A register with a generic address: of a parameter or a constant too, which is named."""
    found = writer.address(operand, GENERIC)
    space = found["space"]
    if found["base"] == NONE and space != GENERIC:
        name = {PARAM: "param", CONST: "const"}.get(space)
        if name is None:
            raise writer.refuse("a tensor map must be in global memory, .const or a parameter")
        made = writer.temporary(LONG)
        offset = found["imm"]
        writer.emit(f"cvta.{name}", d=made, a=writer.constant(offset, LONG))
        return made
    return writer.pointer(operand, GENERIC)


@register_rule("cp")
def decode_cp(writer: Writer, one: Instruction, found: Matched) -> None:
    words = set(one.modifiers)
    if "tensor" in words:
        _decode_bulk_tensor(writer, one, found)
    elif "bulk" in words:
        _decode_bulk(writer, one, found)
    elif "mbarrier" in words:
        at, wide = _shared_address(writer, one.operands[0], found.slots.get("s", ""))
        writer.emit("cp.async.mbarrier", a=at, flags=wide | (2 if "noinc" in words else 0))
    elif "k" in found.slots:
        _decode_group(writer, one, found.slots["k"], "cp.async", 0)
    else:
        _decode_cp_async(writer, one, found)


def _decode_group(writer: Writer, one: Instruction, what: str, name: str, flags: int) -> None:
    if what == "commit_group":
        writer.emit(f"{name}.commit")
    elif what == "wait_all":
        writer.emit(f"{name}.wait_all")
    else:
        how = "wait_group" if name == "cp.async" else "wait"
        writer.emit(f"{name}.{how}", imm=writer.constant_value(one.operands[0]), flags=flags)


def _decode_cp_async(writer: Writer, one: Instruction, found: Matched) -> None:
    """`cp.async`: of 4, 8 or 16 bytes by each thread."""
    size = writer.constant_value(one.operands[2])
    if size not in ((16,) if found.slots["c"] == "cg" else (4, 8, 16)):
        raise writer.refuse(f"it copies {size} bytes: it must be 16, or 4 or 8 with .ca")
    more = list(one.operands[3:])
    if "f" in found.slots:
        more.pop()
    given: Register | int = 0
    ignored: Register | int = 0
    negated = False
    if more and _is_predicate(writer, more[0]):
        ignored, negated = writer.predicate(more[0])
    elif more:
        given = writer.source(more[0], "u32")
    if len(more) > 1:
        raise writer.refuse("it has one operand too many")
    to = writer.address(one.operands[0], SHARED)
    source = writer.address(one.operands[1], GLOBAL)
    base, offset = source.get("a"), source["imm"]
    wide = source["base"] == WIDE
    if base is None or abs(offset) >= 1 << 31:
        base, offset, wide = writer.pointer(one.operands[1], GLOBAL), 0, True
    writer.note_access(SHARED, size)
    writer.note_access(GLOBAL, size)
    writer.emit("cp.async", a=to.get("a"), b=base,
                reads=[one for one in (given, ignored) if isinstance(one, Register)],
                items=[offset & 0xFFFFFFFF, given, ignored], imm=to["imm"], base=to["base"],
                space=SHARED, flags=int(wide) | (2 if negated else 0) | size << 8)  # fmt: skip


def _is_predicate(writer: Writer, operand: Operand) -> bool:
    if isinstance(operand, Negated) and operand.sign == "!":
        return True
    register = writer.find_register(operand.text) if isinstance(operand, Name) else None
    return register is not None and register.width == BIT


def _reduction_flags(found: Matched) -> int:
    """The flags of a reduction's operation and type, if it is one."""
    if "a" not in found.slots:
        return 0
    kind = ELEMENTS[found.slots["t"]] << 16 if "t" in found.slots else 0
    return REDUCES | REDUCTIONS.index(found.slots["a"]) << 8 | kind


def _decode_bulk(writer: Writer, one: Instruction, found: Matched) -> None:
    """`cp.async.bulk` and `cp.reduce.async.bulk`, of bytes that lie one behind the other."""
    name, operands = found.form.name, list(one.operands)
    if name == "bulk.group":
        _decode_group(writer, one, found.slots["k"], "bulk", int("read" in found.slots))
        return
    if "f" in found.slots:
        policy = operands.pop(-2 if "cp_mask" in found.slots else -1)
        if isinstance(policy, Address):
            raise writer.refuse("its cache policy is missing")
    if name == "bulk.prefetch":
        writer.emit("bulk.prefetch", b=writer.pointer(operands[0], GLOBAL),
                    e=writer.source(operands[1], "u32"))  # fmt: skip
        return
    size = writer.source(operands[2], "u32")
    if name == "bulk.load":
        mask = [writer.source(operands[4], "u16")] if "multicast::cluster" in found.slots else []
        writer.emit("bulk.load", a=writer.pointer(operands[0], SHARED),
                    b=writer.pointer(operands[1], GLOBAL), c=writer.pointer(operands[3], SHARED),
                    e=size, reads=mask, flags=MULTICAST if mask else 0)  # fmt: skip
    elif "shared::cluster" in found.slots:
        writer.emit("bulk.across", a=writer.pointer(operands[0], SHARED),
                    b=writer.pointer(operands[1], SHARED), c=writer.pointer(operands[3], SHARED),
                    e=size, flags=_reduction_flags(found))  # fmt: skip
    else:
        mask = [writer.source(operands[3], "u16")] if "cp_mask" in found.slots else []
        writer.emit("bulk.store", a=writer.pointer(operands[1], SHARED),
                    b=writer.pointer(operands[0], GLOBAL), e=size, reads=mask,
                    flags=_reduction_flags(found) | (BYTE_MASK if mask else 0))  # fmt: skip


def _decode_bulk_tensor(writer: Writer, one: Instruction, found: Matched) -> None:
    """`cp.async.bulk.tensor` and its relatives: the box at some coordinates of a tensor map."""
    operands = list(one.operands)
    if "f" in found.slots:
        operands.pop()
    modes = [found.slots[key] for key in ("l", "l2") if key in found.slots]
    if len(modes) > 1:
        raise writer.refuse("its mode occurs twice")
    rows = bool(modes) and modes[0] in ("tile::gather4", "tile::scatter4")
    loads = "mbarrier::complete_tx::bytes" in found.slots
    mapped = operands.pop(1 if loads else 0)
    if not isinstance(mapped, Address) or len(mapped.more) != 1:
        raise writer.refuse("its tensor map has no coordinates")
    rank = int(found.slots["n"][0])
    coordinates = [writer.source(part, "s32") for part in writer.vector_items(mapped.more[0])]
    if len(coordinates) != (5 if rows else rank):
        raise writer.refuse(f"it has {len(coordinates)} coordinates")
    at = _generic_address(writer, Address(mapped.base))
    flags = rank << 8 | (ROWS if rows else 0)
    if modes and modes[0] in ("im2col", "im2col_no_offs"):
        flags |= IMAGES
    if modes and modes[0] == "im2col":
        flags |= OFFSETS
        given = operands.pop(2 if loads else 0)
        offsets = [writer.source(part, "u16") for part in writer.vector_items(given)]
        if len(offsets) != rank - 2:
            raise writer.refuse(f"it has {len(offsets)} im2col offsets for {rank} dimensions")
        coordinates += offsets
    if len(operands) != (2 + ("multicast::cluster" in found.slots) if loads
                         else "prefetch" not in found.slots):  # fmt: skip
        raise writer.refuse("it has too many or too few operands for its mode")
    if "prefetch" in found.slots:
        writer.emit("bulk.tensor.prefetch", b=at, reads=coordinates, flags=flags)
    elif not loads:
        if "a" in found.slots:
            flags |= TENSOR_REDUCES | REDUCTIONS.index(found.slots["a"]) << 16
        writer.emit("bulk.tensor.store", a=writer.pointer(operands[0], SHARED), b=at,
                    reads=coordinates, flags=flags)  # fmt: skip
    else:
        if "multicast::cluster" in found.slots:
            flags |= MULTICAST
            coordinates.append(writer.source(operands[2], "u16"))
        groups = [found.slots[key] for key in ("g", "g2") if key in found.slots]
        if len(groups) > 1:
            raise writer.refuse("its group of blocks occurs twice")
        flags |= PAIR if groups == ["cta_group::2"] else 0
        writer.emit("bulk.tensor.load", a=writer.pointer(operands[0], SHARED), b=at,
                    c=writer.pointer(operands[1], SHARED), reads=coordinates,
                    flags=flags)  # fmt: skip


def decode_async_store(writer: Writer, one: Instruction, found: Matched) -> None:
    """`st.async`, `red.async` and `st.bulk`."""
    operands = one.operands
    if found.form.name == "st.bulk":
        at, wide = _shared_address(writer, operands[0], found.slots.get("s", ""))
        if wide:
            long, at = at, writer.temporary()
            converted = writer.temporary(LONG)
            writer.emit("cvta.to.shared", d=converted, a=long)
            writer.emit("mov.narrow", d=at, a=converted)
        if writer.constant_value(operands[2]) != 0:
            raise writer.refuse("it may only write 0")
        writer.emit("st.bulk", a=at, e=writer.source(operands[1], "u64"))
        return
    kind = found.slots["t"]
    values = [writer.source(part, kind) for part in writer.vector_items(operands[1])]
    to, wide = _shared_address(writer, operands[0], found.slots.get("s", ""))
    bar, wide_bar = _shared_address(writer, operands[2], found.slots.get("s", ""))
    if wide or wide_bar:
        raise writer.refuse("generic addresses are not supported here: write .shared::cluster")
    writer.note_access(SHARED, type_bits(kind) // 8)
    writer.emit("st.async", a=to, c=bar, reads=values, imm=type_bits(kind) // 8,
                flags=_reduction_flags(found))  # fmt: skip


def decode_proxy_fence(writer: Writer, one: Instruction, found: Matched, scope: int) -> None:
    """A fence between what ordinary instructions and what copies do to memory."""
    kind = found.slots["k"]
    if kind == "async" and found.slots.get("s") != "global":
        writer.emit("fence.proxy")
    elif kind == "tensormap::generic":
        writer.emit("fence", imm=scope)
        if found.slots["o"] == "acquire":
            if writer.constant_value(one.operands[1]) != 128:
                raise writer.refuse("a tensor map has 128 bytes")
            writer.emit("tensormap.acquire", a=_generic_address(writer, one.operands[0]))
    else:
        writer.emit("nop")


@register_rule("tensormap")
def decode_tensormap(writer: Writer, one: Instruction, found: Matched) -> None:
    operands = one.operands
    if found.form.name == "tensormap.copy":
        if writer.constant_value(operands[2]) != 128:
            raise writer.refuse("a tensor map has 128 bytes")
        writer.emit("tensormap.copy", a=writer.pointer(operands[0], GLOBAL),
                    b=writer.pointer(operands[1], SHARED))  # fmt: skip
        return
    field = found.slots["k"]
    shared = found.slots.get("s") == "shared::cta"
    at = writer.pointer(operands[0], SHARED if shared else GENERIC)
    dimension = 0
    if field in ("box_dim", "global_dim", "global_stride", "element_stride"):
        dimension = writer.constant_value(operands[1])
        if not 0 <= dimension < (4 if field == "global_stride" else 5):
            raise writer.refuse(f"a tensor map has no {field} {dimension}")
    kind = "b64" if field in ("global_address", "global_stride") else "b32"
    writer.emit("tensormap.replace", a=at, b=writer.source(operands[-1], kind),
                imm=FIELDS.index(field), count=dimension, flags=int(shared))  # fmt: skip


@register_rule("mbarrier")
def decode_mbarrier(writer: Writer, one: Instruction, found: Matched) -> None:
    what, operands = found.slots["k"], list(one.operands)
    space = found.slots.get("s", "")
    if what == "pending_count":
        writer.emit("mbarrier.pending_count", d=writer.target(operands[0], "u32"),
                    a=writer.source(operands[1], "b64"))  # fmt: skip
        return
    target = None
    if not isinstance(operands[0], Address):
        sink = operands.pop(0)
        if not (isinstance(sink, Name) and sink.text == "_"):
            target = writer.target(sink, "b64")
    at, flags = _shared_address(writer, operands.pop(0), space)
    flags |= RELAXED if found.slots.get("o") == "relaxed" else 0
    flags |= ELSEWHERE if space == "shared::cluster" or not space else 0
    if what == "init":
        writer.emit("mbarrier.init", a=at, b=writer.source(operands[0], "u32"), flags=flags)
    elif what == "inval":
        writer.emit("mbarrier.inval", a=at, flags=flags)
    elif what in ("expect_tx", "complete_tx"):
        flags |= COMPLETES if what == "complete_tx" else 0
        writer.emit("mbarrier.bytes", a=at, b=writer.source(operands[0], "u32"), flags=flags)
    elif what in ("arrive", "arrive_drop"):
        flags |= DROPS if what == "arrive_drop" else 0
        extra = found.slots.get("e")
        if extra == "expect_tx":
            flags |= EXPECTS
        elif operands:
            flags |= COUNTED
        flags |= NO_COMPLETE if extra == "noComplete" else 0
        given = writer.source(operands[0], "u32") if operands else None
        writer.emit("mbarrier.arrive", d=target, a=at, b=given, flags=flags)
    else:
        parity = "parity" in found.slots
        flags |= PARITY if parity else 0
        waited = writer.source(operands[0], "u32" if parity else "b64")
        kind = RETRY if what == "try_wait" else 0
        writer.emit(f"mbarrier.{what}", kind, d=target, a=at, b=waited, flags=flags)

"""What a decoder has written, as the arrays that the engine runs.

PTX leaves open what becomes of a sum that is read or written between its wgmma.mma_async and the
wait for it. ptxas mends what a compiler did to it, the engine tells of it, where
`insert_touches` has it look.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence

from papergpu.decode.kernel import KernelDecoder
from papergpu.ir import Label, Register, Step
from papergpu.program import PLAIN, Program
from papergpu.register_allocation import (
    allocate_registers,
    find_block_starts,
    find_fused_pairs,
    find_successors,
)
from papergpu.syntax_tree import Function, Module


def find_steps_in_flight(steps: Sequence[Step]) -> set[int]:
    """Steps that may come while something is in flight: behind an issue, up to a wait for all."""
    waiting = [at for at, step in enumerate(steps) if step.name == "wgmma.issue"]
    found: set[int] = set()
    while waiting:
        for after in find_successors(steps, waiting.pop()):
            if after >= len(steps) or after in found:
                continue
            step = steps[after]
            if step.name == "wgmma.wait" and not step.imm and step.guard is None:
                continue
            found.add(after)
            waiting.append(after)
    return found


def insert_touches(steps: list[Step], sums: Iterable[Register]) -> list[Step]:
    """The steps, with `wgmma.touch` before those that may touch sums in flight."""
    wanted = set(sums)
    made: list[Step] = []
    places = []
    risky = find_steps_in_flight(steps)
    for at, step in enumerate(steps):
        places.append(len(made))
        touched = [one for one in dict.fromkeys((*step.reads, *step.writes)) if one in wanted]
        if touched and at in risky and not step.name.startswith("wgmma."):
            made.append(
                Step("wgmma.touch", PLAIN, (), tuple(touched), step.guard, step.negate, step.place,
                     step.form, step.owner, touched, count=len(touched))
            )  # fmt: skip
        made.append(step)
    places.append(len(made))
    labels = {
        id(one): one for step in steps for one in (step.imm, *step.items) if isinstance(one, Label)
    }
    for label in labels.values():
        label.at = places[label.at]
    return made


RECORD = struct.Struct("<Q5Iiq3I4B2I").pack  # as INSTRUCTION has it


def encode_program(decoder: KernelDecoder, kernel: Function, module: Module) -> Program:
    writer = decoder.writer
    steps = writer.steps
    top = 128  # 0 stands for "no register"
    data = bytearray(top)
    shared = []
    for one in writer.constants.values():
        one.at = top
        value = one.constant or 0
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
    fused = find_fused_pairs(steps, find_block_starts(steps))
    top = allocate_registers(steps, top)

    lists: list[int] = []
    records = [_pack_step(step, lists) for step in steps]
    specials = [number for key, one in writer.specials.items() for number in (key, one.at)]
    return Program(
        name=kernel.name,
        target=module.target,
        instructions=b"".join(records),
        names=[step.name for step in steps],
        lists=array("I", [*lists, 0]),
        constants=bytes(data),
        registers=top + 64,
        specials=array("I", specials),
        shared_constants=array("I", shared),
        parameters=decoder.parameters,
        shared=decoder.static,
        reserved=decoder.reserved,
        local=-(-max(16, writer.local) // 16) * 16,
        places=list(writer.places),
        granule=writer.granules[0],
        global_granule=writer.granules[1],
        tensor=writer.tensor,
        directives=dict(kernel.directives),
        forms=[step.form for step in steps],
        fused=[
            (one.product, one.sum, one.name, a.at, b.at, c.at)
            for one in fused
            for a, b, c in [one.operands]
        ],
        named=[
            (name, one.type, one.at, one.first, one.last)
            for name, one in writer.named
            if one.at >= 0
        ],
    )


def _pack_step(step: Step, lists: list[int]) -> bytes:
    """A step as the engine has it; what it lists is put behind `lists`."""
    listed, count, imm, guard = step.list, step.count, step.imm, step.guard
    if listed is None:
        listed = len(lists) if step.items else 0
    lists += [one if isinstance(one, int) else one.at for one in step.items]
    if not isinstance(imm, int):
        imm = imm.at
    registers = (step.d, step.a, step.b, step.c, step.e)
    return RECORD(
        0, *[0 if one is None else one.at for one in registers], -1 if guard is None else guard.at,
        imm - (1 << 64) if imm >= 1 << 63 else imm,
        listed if isinstance(listed, int) else listed.at,
        count if isinstance(count, int) else count.at,
        step.flags, step.negate and guard is not None, step.kind, step.space, step.base, step.place,
        step.owner,
    )  # fmt: skip

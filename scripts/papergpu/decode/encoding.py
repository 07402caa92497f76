"""What the walk has taken down, as the arrays that the engine runs."""

from __future__ import annotations

import numpy as np

from papergpu.decode.walk import Walk
from papergpu.fuse import pairs
from papergpu.layout import place, starts
from papergpu.program import INSTRUCTION, Program
from papergpu.steps import Label, Register
from papergpu.tree import Function, Module


def encoded(walk: Walk, kernel: Function, module: Module) -> Program:
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
            (
                one.product,
                one.sum,
                one.name,
                one.operands[0].at,
                one.operands[1].at,
                one.operands[2].at,
            )
            for one in fused
        ],  # fmt: skip
    )


def _number(one: Register | Label | int) -> int:
    return one if isinstance(one, int) else one.at

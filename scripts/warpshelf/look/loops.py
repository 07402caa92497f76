"""The loops of machine code, what they are made of, and what they have in flight."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from warpshelf.look.binary import Instruction, MachineCode, decode_control
from warpshelf.look.figures import access_width, base_kind, instruction_kind

LEAVES = {"EXIT", "RET", "KILL", "BRX", "BRXU", "JMX", "JMXU"}
LANES = 32


@dataclass(frozen=True)
class Loop:
    """A loop from instruction `first` to `last`, both in it; `depth` is 1 for one in no other.

    `kinds` are its instructions by kind, those of loops inside left out. `loads` and `bytes`: as
    many loads of global memory, and bytes of a whole warp, are asked for before the first of them
    is waited for. `operations`: the most multiply-adds and matrix instructions between such a
    request and its wait. Copies in bulk do not say their bytes, and are not in `loads`.
    """

    first: int
    last: int
    depth: int
    kinds: dict[str, int] = field(default_factory=dict)
    loads: int = 0
    bytes: int = 0
    operations: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def find_loops(code: MachineCode) -> list[Loop]:
    """The loops of a kernel: natural ones, those with one head taken together."""
    bodies = _loop_bodies(code)
    found = []
    for head, body in sorted(bodies.items()):
        inner = set[int]().union(*(one for at, one in bodies.items() if at != head and at in body))
        own = [at for at in sorted(body) if at not in inner]
        depth = sum(head in one for one in bodies.values())
        counted = Counter(instruction_kind(code.instructions[at].opcode) for at in own)
        flight = _loads_in_flight([code.instructions[at] for at in own])
        found.append(Loop(min(body), max(body), depth, dict(sorted(counted.items())), *flight))
    return sorted(found, key=lambda one: (one.first, -one.last))


def find_successors(code: MachineCode) -> list[list[int]]:
    """The instructions that may come after each."""
    found: list[list[int]] = []
    for at, one in enumerate(code.instructions):
        after = [at + 1] if at + 1 < len(code.instructions) else []
        name = one.opcode.split(".")[0]
        goes = code.labels.get(one.target or "")
        if name in ("BRA", "JMP", "UBRA"):
            always = not one.is_guarded and not _is_conditional(one)
            found.append(([] if always else after) + ([goes] if goes is not None else []))
        elif name in LEAVES:
            found.append(after if one.is_guarded else [])
        elif name == "CALL":  # which returns, and what it calls is reached
            found.append(after + ([goes] if goes is not None else []))
        else:
            found.append(after)
    return found


def _is_conditional(branch: Instruction) -> bool:
    """Whether a branch without a guard has a condition as an operand: `BRA P0, ...`, `BRA.DIV`."""
    operand = branch.text.split("`")[0].split(None, 1)[1:] or [""]
    return "P" in operand[0] or ".DIV" in branch.opcode or ".CONV" in branch.opcode


def _loop_bodies(code: MachineCode) -> dict[int, set[int]]:
    after = find_successors(code)
    before: list[list[int]] = [[] for _ in after]
    for at, targets in enumerate(after):
        for one in targets:
            before[one].append(at)
    above = _find_dominators(after, before)
    bodies: dict[int, set[int]] = {}
    for tail, targets in enumerate(after):
        for head in targets:
            if not above[tail] >> head & 1:
                continue
            body, waiting = bodies.setdefault(head, {head}), [tail]
            while waiting:
                one = waiting.pop()
                if one not in body:
                    body.add(one)
                    waiting += before[one]
    return bodies


def _find_dominators(after: Sequence[Sequence[int]], before: Sequence[Sequence[int]]) -> list[int]:
    """Which instructions every way to an instruction leads through, as the bits of a number."""
    if not after:
        return []
    everything = (1 << len(after)) - 1
    found = [everything] * len(after)
    found[0] = 1
    changed = True
    while changed:
        changed = False
        for at in range(1, len(after)):
            if len(before[at]) == 1 and before[at][0] == at - 1:
                new = found[at - 1] | 1 << at
            else:
                new = everything
                for one in before[at]:
                    new &= found[one]
                new = new | 1 << at
            if new != found[at]:
                found[at], changed = new, True
    return found


def _loads_in_flight(body: Sequence[Instruction]) -> tuple[int, int, int]:
    """Loads, bytes and operations of a loop that has gone round often enough."""
    asked: list[tuple[int | None, int, int]] = []  # scoreboard or None, bytes, operations since
    groups = 0  # how many of the copies that are asked for were closed into groups
    closed: list[int] = []
    most = (0, 0)
    between = 0
    rounds = 2 + max((_pending_groups(one) for one in body), default=0)
    for one in (one for _ in range(rounds) for one in body):
        code = decode_control(one.control)
        base, *modifiers = one.opcode.split(".")
        if code.waits:
            between = max((between, *(since for board, _, since in asked if board in code.waits)))
            asked = [each for each in asked if each[0] is None or each[0] not in code.waits]
        if base == "LDGDEPBAR":
            open_ = sum(board is None for board, _, _ in asked) - groups
            closed.append(open_)
            groups += open_
        elif base == "DEPBAR":
            while len(closed) > _pending_groups(one):
                for _ in range(done := closed.pop(0)):
                    first = next(at for at, each in enumerate(asked) if each[0] is None)
                    between = max(between, asked[first][2])
                    del asked[first]
                groups -= done
        if base_kind(instruction_kind(one.opcode)) in ("multiply-add", "matrix"):
            asked = [(board, size, since + 1) for board, size, since in asked]
        if base == "LDG" and code.writes is not None:
            asked.append((code.writes, LANES * access_width(base, modifiers), 0))
        elif base == "LDGSTS":
            asked.append((None, LANES * access_width(base, modifiers), 0))
        most = max(most, (len(asked), sum(size for _, size, _ in asked)))
    return most[0], most[1], between


def _pending_groups(one: Instruction) -> int:
    """How many groups of copies may be on their way behind a DEPBAR; 0 of anything else."""
    found = re.fullmatch(r"(?:@\S+ )?DEPBAR\.LE SB\d+, (0x[0-9a-f]+).*", one.text)
    return int(found[1], 16) if found else 0

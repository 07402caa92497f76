"""Registers get their places in a warp's memory: those that never live together share one.

What lives where is found by data flow over the program's blocks, so that a value that a loop
carries around keeps its place however its instructions are laid out.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from papergpu.program import BIT, BRANCH, EXIT, TABLE
from papergpu.steps import Label, Register, Step


def successors(steps: Sequence[Step], at: int) -> list[int]:
    """The instructions that may come after one."""
    step = steps[at]
    if step.kind == BRANCH:
        target = step.fields["imm"]
        assert isinstance(target, Label)
        return [target.at, at + 1] if step.guard is not None else [target.at]
    if step.kind == TABLE:
        found = [one.at for one in step.items if isinstance(one, Label)]
        return [*found, at + 1] if step.guard is not None else found
    if step.kind == EXIT:
        return [at + 1] if step.guard is not None else []
    return [at + 1]


def starts(steps: Sequence[Step]) -> set[int]:
    """Where blocks begin that are only entered at their first instruction."""
    found = {0, len(steps)}
    for at, step in enumerate(steps):
        if step.kind in (BRANCH, TABLE, EXIT):
            found.add(at + 1)
            found.update(next_ for next_ in successors(steps, at) if next_ < len(steps))
    return found


def spans(steps: Sequence[Step]) -> dict[Register, tuple[int, int]]:
    """The first and the last instruction between which each register holds something wanted."""
    count = len(steps)
    order = sorted(starts(steps))
    blocks = list(zip(order[:-1], order[1:], strict=True))
    block_of = {first: number for number, (first, _) in enumerate(blocks)}

    numbers: dict[Register, int] = {}
    used, defined = [], []
    for first, last in blocks:
        use = define = 0
        for at in range(first, last):
            step = steps[at]
            for one in step.reads:
                bit = 1 << numbers.setdefault(one, len(numbers))
                if not define & bit:
                    use |= bit
            for one in step.writes:
                define |= 1 << numbers.setdefault(one, len(numbers))
        used.append(use)
        defined.append(define)
    follow = [
        [block_of[after] for after in successors(steps, last - 1) if after < count]
        for _, last in blocks
    ]
    entering = list(used)
    leaving = [0] * len(blocks)
    before: list[list[int]] = [[] for _ in blocks]
    for number, nexts in enumerate(follow):
        for after in nexts:
            before[after].append(number)
    waiting = set(range(len(blocks)))
    while waiting:
        number = max(waiting)
        waiting.discard(number)
        out = 0
        for after in follow[number]:
            out |= entering[after]
        leaving[number] = out
        fresh = used[number] | (out & ~defined[number])
        if fresh != entering[number]:
            entering[number] = fresh
            waiting.update(before[number])

    found: dict[Register, tuple[int, int]] = {}
    low = [count] * len(numbers)
    high = [-1] * len(numbers)

    def mark(live: int, at: int) -> None:
        while live:
            bit = live & -live
            number = bit.bit_length() - 1
            low[number] = min(low[number], at)
            high[number] = max(high[number], at)
            live ^= bit

    for number, (first, last) in enumerate(blocks):
        mark(entering[number], first)
        mark(leaving[number], last - 1)
        for at in range(first, last):
            step = steps[at]
            for one in (*step.reads, *step.writes):
                number_of = numbers[one]
                if at < low[number_of]:
                    low[number_of] = at
                if at > high[number_of]:
                    high[number_of] = at
    for one, number in numbers.items():
        found[one] = (low[number], high[number])
    return found


def place(steps: Sequence[Step], start: int) -> int:
    """Give every register that is no constant its place, from byte `start`; returns the end."""
    living = spans(steps)
    top = start
    free: dict[int, list[int]] = {}
    active: list[tuple[int, int, int]] = []
    # Predicates are packed, 32 to the room of a register.
    for one, (first, last) in sorted(living.items(), key=lambda pair: pair[1][0]):
        if one.constant is not None or one.special is not None:
            continue
        while active and active[0][0] < first:
            _, at, width = heapq.heappop(active)
            free.setdefault(width, []).append(at)
        pool = free.setdefault(one.width, [])
        if not pool or one.keep:
            if one.width == BIT:
                pool.extend(range(top + 124, top - 4, -4))
                top += 128
            else:
                pool.append(top)
                top += one.width
            if one.keep and one.width != BIT:
                one.at = pool.pop()
                continue
        one.at = pool.pop()
        if not one.keep:
            heapq.heappush(active, (last, one.at, one.width))
    return top

"""A warp's sum in five steps: who takes from whom in a butterfly and in a tree.

Shapes  a value a lane, 32 lanes; a step adds to each lane the value of another
FLOPs   32 additions a step, log2(32) = 5 steps; all are needed in a butterfly, 31 in a
        tree
Error   exact on whole numbers
Raises  ValueError for a number of lanes that is no power of two
Source  cuda-warp-primitives
"""

from __future__ import annotations

from collections.abc import Sequence

# --8<-- [start:model]
LANES = 32


def offsets(lanes: int = LANES) -> list[int]:
    """Half of the lanes, a quarter, ... one."""
    if lanes < 1 or lanes & (lanes - 1):
        raise ValueError(f"warp_shuffles: {lanes} lanes are no power of two")
    return [lanes >> step for step in range(1, lanes.bit_length())]


def xor_step(values: Sequence[int], offset: int) -> list[int]:
    """`value += __shfl_xor_sync(mask, value, offset)` in every lane."""
    return [value + values[lane ^ offset] for lane, value in enumerate(values)]


def down_step(values: Sequence[int], offset: int) -> list[int]:
    """`value += __shfl_down_sync(mask, value, offset)`; beyond the edge, its own."""
    last = len(values)
    return [
        value + values[lane + offset if lane + offset < last else lane]
        for lane, value in enumerate(values)
    ]


def butterfly(values: Sequence[int]) -> list[list[int]]:
    """The lanes' values before the first step and after each."""
    steps = [list(values)]
    for offset in offsets(len(values)):
        steps.append(xor_step(steps[-1], offset))
    return steps


def tree(values: Sequence[int]) -> list[list[int]]:
    """The same with `down_step`: only lane 0 ends with the sum of all."""
    steps = [list(values)]
    for offset in offsets(len(values)):
        steps.append(down_step(steps[-1], offset))
    return steps


def needed(lanes: int = LANES) -> list[int]:
    """Lanes of each step of the tree whose sum reaches lane 0: the first `offset`."""
    return offsets(lanes)


# --8<-- [end:model]


def demo() -> None:
    """Both sums of 0 to 31, and how many lanes are right after each step."""
    values = list(range(LANES))
    total = sum(values)
    print(f"the sum of 0 to {LANES - 1} is {total}")
    for name, run in (("butterfly", butterfly), ("tree", tree)):
        print(f"\n{name}: offset, lane 0, lane 1, lane 31, lanes that hold the sum")
        for offset, held in zip(offsets(), run(values)[1:], strict=True):
            right = held.count(total)
            print(f"{offset:8}{held[0]:8}{held[1]:8}{held[31]:8}{right:8}")


if __name__ == "__main__":
    demo()

"""What a tool would count."""

from itertools import permutations


def sectors_of_a_stride() -> tuple[str, str]:
    counts = [len({lane * stride * 4 // 32 for lane in range(32)}) for stride in (1, 2)]
    return f"{counts[1]} sectors", f"{counts[1] / counts[0]:g} times"


def conflicts_of_a_column() -> tuple[str, ...]:
    def degree(pitch: int) -> int:
        banks = [lane * pitch % 32 for lane in range(32)]
        return max(map(banks.count, banks))

    return tuple(f"{degree(pitch)}" for pitch in (32, 33, 34))


def pairs_that_race() -> tuple[str, str]:
    def races(stride: int) -> int:
        # thread i writes x[i] and reads x[i + stride]
        return sum(i == j + stride for i, j in permutations(range(64), 2))

    return f"{races(1)} pairs", f"{races(32)} pairs"


def lanes_that_work() -> str:
    branches = ((sum(lane % 3 == 0 for lane in range(32)), 10),)
    branches += ((32 - branches[0][0], 6),)
    issued = sum(length for _, length in branches)
    return f"{sum(lanes * length for lanes, length in branches) / issued:.2f} lanes"

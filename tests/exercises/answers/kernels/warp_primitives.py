"""Warp primitives: the lanes are simulated."""

from snippets.warp_shuffles import warp_shuffles as shuffles

LANES = range(shuffles.LANES)


def slot_of_a_lane() -> tuple[str, str]:
    mask = sum(1 << lane for lane in LANES if lane % 3 == 0)
    return f"0x{mask:08x}", str((mask & ((1 << 18) - 1)).bit_count())


def sum_of_a_block() -> tuple[str, str]:
    warps = 1024 // shuffles.LANES
    return f"{warps} words", f"{len(shuffles.offsets()) + len(shuffles.offsets(warps))} shuffles"


def four_sums_at_once() -> tuple[str, str]:
    rows = [[1 << lane if row == 0 else 3 * row + lane for lane in LANES] for row in range(4)]
    held = [{row: rows[row][lane] for row in range(4)} for lane in LANES]
    taken = 0
    for offset in shuffles.offsets():
        many = len(held[0])
        after = []
        for lane, mine in enumerate(held):
            other = held[lane ^ offset]
            keep = sorted(mine)
            if many > 1:  # the lower lane keeps the first half of the rows
                half = many // 2
                keep = keep[half:] if lane & offset else keep[:half]
            after.append({row: mine[row] + other[row] for row in keep})
        taken += max(1, many // 2)
        held = after
    for mine in held:
        [(row, total)] = mine.items()
        assert total == sum(rows[row])
    assert {row for mine in held for row in mine} == set(range(4))
    return f"{4 * len(shuffles.offsets())} shuffles", f"{taken} shuffles"


def a_divergent_loop() -> str:
    wanted = sum(range(1, 33))
    return f"{100 * wanted / (32 * 32):.1f} %"

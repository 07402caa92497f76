"""Matrix multiplication."""

from math import ceil

from snippets.tile_order import tile_order as tiles

SECTOR, WORD = 32, 4  # bytes


def tile_intensity() -> str:
    side, depth = 128, 8
    loaded = WORD * 2 * side * depth
    return f"{2 * side * side * depth / loaded:.0f} operations a byte"


def wasted_wave() -> str:
    tiles, sms = 133, 132
    offered = ceil(tiles / sms) * sms
    return f"{100 * (offered - tiles) / offered:.1f} %"


def sectors_of_the_naive_kernel() -> str:
    a = {row * 4096 * WORD // SECTOR for row in range(32)}  # a row of A is longer than a sector
    moved = (len(a) + 1) * SECTOR
    return f"{100 * 33 * WORD / moved:.1f} %"


def loads_of_a_patch() -> tuple[str, str, str]:
    rows, columns = 8, 4
    words = (rows + columns) / (rows * columns)
    return f"{words} words", f"{words / 4:.3f} instructions", f"{rows * columns} registers"


def panels_of_a_wave() -> tuple[str, str]:
    plain, grouped = (
        sum(tiles.panels(tiles.waves(order, 128)[0]))
        for order in (tiles.row_major(64, 64), tiles.grouped(64, 64, 8))
    )
    return f"{plain} panels", f"{grouped} panels"

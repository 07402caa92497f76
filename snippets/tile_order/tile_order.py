"""The order of a product's tiles decides how often device memory must be read.

Shapes  C of rows x columns tiles; a tile needs a panel of A, its row of tiles, and a
        panel of B, its column. The blocks that run at a time are a wave
Bytes   a wave of r rows and c columns reads r + c panels where the L2 keeps what a wave
        shares, and nothing from one wave to the next; r * c tiles need 2 r c panels
        where nothing is shared
Error   exact: whole numbers. All blocks of a wave walk along K in step
Raises  ValueError for sizes below 1
Source  triton-matmul, cutlass-efficient-gemm
"""

from __future__ import annotations

from math import ceil

# --8<-- [start:model]
Place = tuple[int, int]  # row and column of a tile in C


def row_major(rows: int, columns: int) -> list[Place]:
    """Along a row, then the next: the order of a plain grid."""
    return grouped(rows, columns, 1)


def grouped(rows: int, columns: int, group: int) -> list[Place]:
    """Down `group` rows, then the next column; after the last, the next group."""
    for name, size in (("rows", rows), ("columns", columns), ("group", group)):
        if size < 1:
            raise ValueError(f"tile_order: {name} = {size} must be 1 or more")
    order = []
    for first in range(0, rows, group):
        height = min(group, rows - first)  # the last group may be lower
        for i in range(height * columns):
            order.append((first + i % height, i // height))
    return order


def waves(order: list[Place], resident: int) -> list[list[Place]]:
    """The tiles that run together, `resident` at a time."""
    if resident < 1:
        raise ValueError(f"tile_order: resident = {resident} must be 1 or more")
    return [order[i : i + resident] for i in range(0, len(order), resident)]


def panels(wave: list[Place]) -> tuple[int, int]:
    """Different panels of A and of B that the tiles of a wave read."""
    return len({row for row, _ in wave}), len({column for _, column in wave})


def traffic(order: list[Place], resident: int) -> int:
    """Panels read from device memory by all waves."""
    return sum(sum(panels(wave)) for wave in waves(order, resident))


def best_group(rows: int, columns: int, resident: int) -> int:
    """The group that reads the fewest panels; the smallest of several."""
    return min(
        range(1, rows + 1),
        key=lambda g: (traffic(grouped(rows, columns, g), resident), g),
    )


# --8<-- [end:model]


def demo() -> None:
    """Panels and bytes of an 8192-cubed bf16 product on 132 SMs, by group."""
    side, tile_m, tile_n, sms = 8192, 128, 256, 132
    rows, columns = side // tile_m, side // tile_n
    whole = 2 * (side * side + side * side)  # bytes of A and B in bf16
    print(f"C of {rows} x {columns} tiles of {tile_m} x {tile_n}, {sms} at a time")
    print(
        f"{ceil(rows * columns / sms)} waves; A and B once are {whole / 2**20:.0f} MiB"
    )
    print(
        f"{'group':>7}{'first wave, A + B':>20}{'panels':>9}{'MiB':>8}{'of A + B':>10}"
    )
    for group in (1, 2, 4, 8, 16, 32, rows):
        order = grouped(rows, columns, group)
        a, b = panels(waves(order, sms)[0])
        read = 0
        for wave in waves(order, sms):
            of_a, of_b = panels(wave)
            read += 2 * side * (of_a * tile_m + of_b * tile_n)
        said = f"{a} + {b}"
        print(
            f"{group:7}{said:>20}{traffic(order, sms):9}"
            f"{read / 2**20:8.0f}{read / whole:10.1f}"
        )


if __name__ == "__main__":
    demo()

"""Time tiles of a stencil: a halo read and recomputed, against sweeps over memory.

FLOPs   a tile of n cells advances T steps by n + 2 r (T - t) updates in step t
Bytes   words for a cell and a step: ((n + 2 r T) / n + 1) / T in one dimension, with
        the square of the bracket where two dimensions are tiled and a third is streamed
Error   exact: whole numbers, any update rule
Raises  ValueError for tiles, radii or depths below 1
Source  nguyen-35d-blocking, meng-skadron-ghost-zones
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Rule = Callable[[Sequence[int]], int]  # a cell from its 2 r + 1 neighbours


# --8<-- [start:model]
@dataclass
class Count:
    """Words of memory read and written, and updates, the repeated ones among them."""

    read: int = 0
    written: int = 0
    updates: int = 0


def total(neighbours: Sequence[int]) -> int:
    """A rule: the sum, with weights that no symmetry hides."""
    return sum((i + 1) * value for i, value in enumerate(neighbours)) % 97


# --8<-- [start:sweep]
def step(cells: Sequence[int], r: int, rule: Rule = total) -> list[int]:
    """The cells that have all their neighbours, a step later: 2 r fewer."""
    return [rule(cells[i : i + 2 * r + 1]) for i in range(len(cells) - 2 * r)]


def sweep(
    cells: Sequence[int], n: int, r: int, depth: int, rule: Rule = total
) -> tuple[list[int], Count]:
    """A ring of cells, `depth` steps later: each tile alone, with its halo."""
    _positive(n=n, r=r, depth=depth)
    out, count = [], Count()
    for start in range(0, len(cells), n):
        end, reach = min(start + n, len(cells)), r * depth
        held = [cells[i % len(cells)] for i in range(start - reach, end + reach)]
        count.read += len(held)
        for _ in range(depth):
            held = step(held, r, rule)
            count.updates += len(held)
        count.written += len(held)
        out += held
    return out, count
# --8<-- [end:sweep]


def words(n: int, r: int, depth: int, tiled: int = 1) -> float:
    """Words of memory for a cell and a step, `tiled` dimensions in tiles of n."""
    return (((n + 2 * r * depth) / n) ** tiled + 1) / depth


def repeated(n: int, r: int, depth: int, tiled: int = 1) -> float:
    """Updates for one that is needed."""
    widths = (n + 2 * r * (depth - t) for t in range(1, depth + 1))
    return sum(width**tiled for width in widths) / (depth * n**tiled)


# --8<-- [end:model]


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"time_tiles: {name} = {number} must be 1 or more")


def demo() -> None:
    """Bytes and updates for each depth, planes of 64 by 64 cells, streamed."""
    print("tiles of 64 x 64, r = 1, fp32")
    print("T   bytes a cell and step   of 8 / T   updates for one   on chip, KiB")
    for depth in (1, 2, 4, 8, 16):
        moved = 4 * words(64, 1, depth, tiled=2)
        more = repeated(64, 1, depth, tiled=2)
        held = 4 * depth * 3 * (64 + 2 * depth) ** 2 / 1024
        print(
            f"{depth:<4}{moved:14.2f}{moved * depth / 8:18.2f}{more:16.2f}{held:15,.0f}"
        )


if __name__ == "__main__":
    demo()

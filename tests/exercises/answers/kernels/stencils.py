"""Stencils."""

from snippets.time_tiles.time_tiles import repeated, words

MEMORY, PEAK = 3.35e12, 67e12  # bytes and fp32 flops a second of an H100


def bytes_of_a_depth() -> tuple[str, ...]:
    one, four = (4 * words(64, 1, depth, tiled=2) for depth in (1, 4))
    return f"{four:.2f} bytes", f"{one / four:.2f} times"


def where_the_storage_ends() -> str:
    fits = [t for t in range(1, 20) if 4 * 3 * t * (64 + 2 * t) ** 2 <= 227 * 1024]
    return f"T = {max(fits)}"


def repeated_updates() -> tuple[str, ...]:
    return tuple(f"{repeated(64, r, 8, tiled=2):.2f}" for r in (4, 1))


def when_arithmetic_takes_over() -> str:
    return f"T = {(8 / MEMORY) / (8 / PEAK):.0f}"

"""Softmax."""

from snippets.online_softmax_steps.online_softmax_steps import Part, online

MEMORY, EXPONENTIALS = 3.35e12, 3.9e12  # bytes and exponentials a second of an H100


def exponentials_of_a_block() -> tuple[str, ...]:
    row = [float(i % 7) for i in range(4096)]
    return tuple(f"{online(row, block)[1]}" for block in (1, 16))


def three_passes_against_one() -> tuple[str, ...]:
    size = 16_384 * 8192 * 2
    return tuple(f"{1e6 * passes * size / MEMORY:.0f} µs" for passes in (3 + 1, 1 + 1))


def capacity() -> tuple[str, ...]:
    block = 227 * 1024 // 4
    return f"{block:,} columns", f"{8 * block:,} columns"


def the_second_wall() -> str:
    return f"{EXPONENTIALS / (MEMORY / 4):.1f} exponentials"


def a_merge() -> tuple[str, ...]:
    row = Part(3, 2) + Part(1, 10)
    return f"m = {row.m:.0f}", f"d = {row.d:.3f}", f"{1 / row.d:.3f}"

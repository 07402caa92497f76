"""Scheduling: waves and shares by the page's own model."""

from math import ceil

from snippets.stream_k import stream_k as streams


def a_tile_too_many() -> tuple[str, str]:
    blocks, at_once = 1060, 132 * 2
    waves = ceil(blocks / at_once)
    return f"{waves} waves", f"{100 * blocks / (waves * at_once):.1f} %"


def smaller_tiles() -> tuple[str, str]:
    made = streams.data_parallel((2304 // 128) ** 2, 1, 132)
    return f"{100 * made.efficiency:.1f} %", f"{2 * 128 * 128 / (128 + 128):.0f} operations"


def equal_shares() -> tuple[str, str, str]:
    whole = streams.data_parallel(162, 128, 132)
    made = streams.stream_k(162, 128, 132)
    faster = whole.makespan / made.makespan
    return f"{made.makespan} iterations", f"{faster:.2f} times", f"{made.shared} tiles"


def launches_of_a_token() -> tuple[str, str, str]:
    kernels = 32 * 7
    stream, graph = kernels * 2.1e-3, kernels * 1.3e-3  # ms
    return f"{stream:.2f} ms", f"{graph:.2f} ms", f"{100 * (stream - graph) / 2:.1f} %"


def a_fair_stride() -> tuple[str, str]:
    costs = [row + 1 for row in range(64)]

    def worst(order: list[int]) -> str:
        loads = [sum(order[block::8]) for block in range(8)]
        return f"{max(loads) / (sum(loads) / 8):.2f} times"

    return worst(costs), worst(costs[:32] + costs[32:][::-1])

"""Attention."""

from math import ceil

from snippets.attention_tiles.attention_tiles import Tile, count, tiles

MEMORY, PEAK = 3.35e12, 989  # bytes a second, Tflop/s in bf16: an H100
PRODUCTS, EXPONENTIALS = 8192, 16  # a cycle and SM of a B200


def causal_share() -> tuple[str, ...]:
    grid = tiles(8192, 8192)
    whole, edge, none = (count(grid, kind) for kind in Tile)
    formed = whole + edge
    return f"{100 * formed / (formed + none):.1f} %", f"{100 * edge / formed:.1f} %"


def taking_turns() -> tuple[str, ...]:
    side, d = 128, 64
    products = 4 * d * side**2 / PRODUCTS
    exponentials = side**2 / EXPONENTIALS
    share = products / (products + exponentials)
    return f"{products:.0f} cycles", f"{exponentials:.0f} cycles", f"{100 * share:.0f} %"


def filling_sms() -> tuple[str, ...]:
    parts = ceil(132 / (4 * 8))
    return f"{parts} parts", f"{ceil(32_768 / parts)} keys"


def the_cache_s_time() -> tuple[str, ...]:
    keys, d, shared = 32_768, 128, 4
    size = 2 * d * 2  # bytes of a key and its value
    flops = shared * 4 * d
    time = 8 * keys * size / MEMORY
    return f"{flops / size:.0f} flops a byte", f"{1e6 * time:.0f} µs"


def seven_products() -> str:
    return f"{0.7 * PEAK * 5 / 7:.0f} Tflop/s"

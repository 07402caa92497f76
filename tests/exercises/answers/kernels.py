"""The answers to the exercises of docs/kernels/, page by page."""

from fractions import Fraction
from itertools import product
from math import ceil, comb, erf, log2, sqrt

from snippets.attention_tiles.attention_tiles import Tile, count, tiles
from snippets.bank_conflicts import bank_conflicts as banks
from snippets.float_sums import float_sums as sums
from snippets.fused_traffic.fused_traffic import VERSIONS, Operation, traffic
from snippets.implicit_gemm.implicit_gemm import Shape, winograd
from snippets.online_softmax_steps.online_softmax_steps import Part, online
from snippets.scan_steps import scan_steps as scans
from snippets.sectors import sectors
from snippets.stream_k import stream_k as streams
from snippets.tile_order import tile_order as orders
from snippets.time_tiles.time_tiles import repeated, words
from snippets.warp_shuffles import warp_shuffles as shuffles

# AMD GPUs.

MATRIX_CORES, AMD_CLOCK = 1216, 2100e6  # an MI325X
TILES, DIES = 16, 8  # tiles of a side, and dies


def balance() -> str:
    return f"{1307e12 / 5.3e12:.0f} operations a byte"


def accumulators() -> tuple[str, str]:
    side, waves, lanes, file = 256, 8, 64, 512 * 1024
    return f"{side * side // (waves * lanes)} registers", f"{100 * side * side * 4 / file:.0f} %"


def peak_from_cycles() -> str:
    operations, cycles = 2 * 32 * 32 * 16, 32
    return f"{operations * MATRIX_CORES * AMD_CLOCK / cycles / 1e12:,.0f} Tflop/s"


def _count_panels(tiles: list[int]) -> str:
    rows, columns = {one // TILES for one in tiles}, {one % TILES for one in tiles}
    return f"{len(rows) + len(columns)} panels"


def panels() -> tuple[str, str, str]:
    every = range(TILES * TILES)
    own = len(every) // DIES
    patch = [row * TILES + column for row in range(4) for column in range(8)]
    assert len(patch) == own
    return _count_panels([*every[::DIES]]), _count_panels([*every[:own]]), _count_panels(patch)


# Attention.

ATTENTION_MEMORY, ATTENTION_PEAK = 3.35e12, 989  # bytes a second, Tflop/s in bf16: an H100
PRODUCTS, ATTENTION_EXPONENTIALS = 8192, 16  # a cycle and SM of a B200


def causal_share() -> tuple[str, ...]:
    grid = tiles(8192, 8192)
    whole, edge, none = (count(grid, kind) for kind in Tile)
    formed = whole + edge
    return f"{100 * formed / (formed + none):.1f} %", f"{100 * edge / formed:.1f} %"


def taking_turns() -> tuple[str, ...]:
    side, d = 128, 64
    products = 4 * d * side**2 / PRODUCTS
    exponentials = side**2 / ATTENTION_EXPONENTIALS
    share = products / (products + exponentials)
    return f"{products:.0f} cycles", f"{exponentials:.0f} cycles", f"{100 * share:.0f} %"


def filling_sms() -> tuple[str, ...]:
    parts = ceil(132 / (4 * 8))
    return f"{parts} parts", f"{ceil(32_768 / parts)} keys"


def the_cache_s_time() -> tuple[str, ...]:
    keys, d, shared = 32_768, 128, 4
    size = 2 * d * 2  # bytes of a key and its value
    flops = shared * 4 * d
    time = 8 * keys * size / ATTENTION_MEMORY
    return f"{flops / size:.0f} flops a byte", f"{1e6 * time:.0f} µs"


def seven_products() -> str:
    return f"{0.7 * ATTENTION_PEAK * 5 / 7:.0f} Tflop/s"


# Auto-tuning: counting, and the least of many normal errors.


def trials_for_the_best_hundredth() -> tuple[str, str]:
    def least_trials(missed: float) -> int:
        return next(t for t in range(1, 10_000) if 0.99**t <= missed)

    return f"{least_trials(0.05)} trials", f"{least_trials(0.01)} trials"


def twenty_of_thirty_six() -> tuple[str, str]:
    threads = [
        width * height
        for width, height in product([2**i for i in range(5, 11)], [2**i for i in range(6)])
    ]

    def count_pairs(least: int, most: int) -> str:
        return f"{sum(least <= count <= most for count in threads)} pairs"

    return count_pairs(64, 1024), count_pairs(128, 512)


def the_luckiest() -> str:
    # E[max of n] is the integral of 1 - F(x)^n above zero, less that of F(x)^n below.
    step, expected = 0.001, 0.0
    for i in range(-8000, 8000):
        x = (i + 0.5) * step
        below = (0.5 * (1 + erf(x / sqrt(2)))) ** 1000
        expected += step * ((1 - below) if x > 0 else -below)
    return f"{expected:.1f} %"


def seven_good_ones() -> tuple[str, str]:
    missed = comb(400 - 7, 60) / comb(400, 60)
    return f"{(400 + 1) / (7 + 1):.1f} evaluations", f"{100 * (1 - missed):.0f} %"


# Bank conflicts: every answer is counted by the page's own model.

BANK_CONFLICTS_LANES = range(32)


def stride_of_six() -> tuple[str, str]:
    narrow = banks.wavefronts([4 * 6 * lane for lane in BANK_CONFLICTS_LANES])
    wide = banks.wavefronts([16 * 6 * lane for lane in BANK_CONFLICTS_LANES], 16)
    return f"{narrow} wavefronts", f"{wide} wavefronts"


def a_tile_of_doubles() -> tuple[str, str, str]:
    plain, padded = (
        banks.wavefronts([8 * side * lane for lane in BANK_CONFLICTS_LANES], 8) for side in (32, 33)
    )
    return f"{plain} wavefronts", f"{padded} wavefronts", f"{100 / 33:.1f} %"


def where_the_chunk_goes() -> str:
    return f"byte {banks.chunk(3, 5, 128, banks.MODES['128-byte'])}"


def the_price_of_padding() -> tuple[str, str]:
    unused = 2 * 4 * 128 * 16
    return f"{unused / 1024:.0f} KiB", f"{100 * unused / (227 * 1024):.1f} %"


def mend_the_quads() -> tuple[str, str]:
    apart = [4 * 8 * (lane % 16) for lane in BANK_CONFLICTS_LANES]
    beside = [4 * 4 * (lane % 16) for lane in BANK_CONFLICTS_LANES]
    return (
        f"{banks.wavefronts(apart, 16)} wavefronts",
        f"{banks.wavefronts(beside, 16)} wavefronts",
    )


# Blackwell.

BLACKWELL_FLOPS = 8192  # bf16, a cycle and SM
BLOCK = 227 * 1024  # bytes of shared memory
COLUMNS, LEAST = 512, 32


def columns() -> tuple[str, ...]:
    sums = 192  # one column for each: 128 lanes are the rows, a sum is 32 bits
    asked = LEAST
    while asked < sums:
        asked *= 2
    return f"{sums} columns", f"{asked} columns", f"{COLUMNS // sums} tiles"


def _stage_bytes(rows: int, columns: int, depth: int = 64) -> int:
    return 2 * depth * (rows + columns)


def blackwell_stages() -> tuple[str, ...]:
    said = []
    for loaded in (_stage_bytes(128, 256), _stage_bytes(128, 256 // 2)):
        said += [f"{loaded / 1024:.0f} KB", f"{BLOCK // loaded} stages"]
    return tuple(said)


def bytes_a_cycle() -> tuple[str, ...]:
    said = []
    # Rows of A in an SM, columns of its product, columns of B in its shared memory.
    for rows, across, held in ((128, 128, 128), (128, 256, 256), (128, 256, 128)):
        cycles = 2 * rows * across * 16 / BLACKWELL_FLOPS
        said.append(f"{_stage_bytes(rows, held, depth=16) / cycles:.0f}")
    return tuple(said)


def bytes_of_a_format() -> tuple[str, ...]:
    bits = [element + 8 / block for element, block in ((8, 32), (4, 32), (4, 16))]
    return tuple(f"{one / 8 * 4096**2 / 1e6:.1f} MB" for one in bits)


def a_ring_over_the_rack() -> tuple[str, ...]:
    pairs = ((8, 450e9), (72, 900e9))
    return tuple(f"{1e3 * 2 * (p - 1) / p * 1e9 / rate:.2f} ms" for p, rate in pairs)


# Convolution.

CONVOLUTION_MEMORY, CONVOLUTION_PEAK = 3.35e12, 989e12  # bytes and bf16 flops a second of an H100
LAYER = Shape(8, 256, 56, 56, 256, 3, 3, pad=1)


def dense_or_not() -> tuple[str, ...]:
    m, n, k = LAYER.gemm
    image, filters, out = m * LAYER.c, n * k, m * n
    dense = 2 * m * n * k / (2 * (image + filters + out))
    one = Shape(8, 1, 56, 56, 1, 3, 3, pad=1)  # a channel by itself, 256 times
    rows, _, taps = one.gemm
    depthwise = 2 * rows * taps / (2 * (rows + taps + rows))
    return f"{dense:.0f} flops a byte", f"{depthwise:.1f} flops a byte"


def what_im2col_writes() -> tuple[str, ...]:
    m, n, k = LAYER.gemm
    size = 2 * m * k
    moved, products = 2 * size / CONVOLUTION_MEMORY, 2 * m * n * k / CONVOLUTION_PEAK
    return f"{size / 1e6:.0f} MB", f"{1e6 * moved:.0f} µs", f"{1e6 * products:.0f} µs"


def neighbours() -> tuple[str, ...]:
    own, width = 8, 4
    return f"{100 * (width - 1) / own:.1f} %", f"{32 * own * 2 // 32} sectors"


def multiplications_saved() -> tuple[str, ...]:
    _, taken = winograd((1, 2, 3, 4), (1, 2, 3))
    small = (2 * 3) ** 2 / taken**2
    large = (4 * 3) ** 2 / (4 + 3 - 1) ** 2
    return f"{small:.2f}", f"{large:.0f}"


# Kernel fusion.

FUSION_MEMORY = 3.35e12  # bytes a second
TENSOR = 8192**2 * 2


def _count_moved_tensors(name: str, wanted: tuple[str, ...] = ("sum",)) -> int:
    return sum(one.moved for one in traffic(VERSIONS[name], ["skip"], wanted))


def an_epilogue_s_worth() -> tuple[str, ...]:
    saved = [
        _count_moved_tensors(name) - _count_moved_tensors("epilogue")
        for name in ("four kernels", "two kernels")
    ]
    return tuple(f"{1e6 * one * TENSOR / FUSION_MEMORY:.0f} µs" for one in saved)


def launches_or_bytes() -> tuple[str, ...]:
    size = 3e-6 * FUSION_MEMORY
    return f"{size / 1e6:.1f} MB", f"{size / 8 / 1e6:.2f} million elements"


def axpydot() -> tuple[str, ...]:
    axpy, dot = Operation("z", ("w", "v")), Operation("r", ("z", "u"))
    apart, fused = (
        sum(one.moved for one in traffic(kernels, ["w", "v", "u"], ["z"]))
        for kernels in (((axpy,), (dot,)), ((axpy, dot),))
    )
    return f"{apart} vectors", f"{fused} vectors", f"{apart / fused:.2f} times"


def kept_for_the_backward_pass() -> str:
    return f"{_count_moved_tensors('epilogue', ('sum', 'biased'))} tensors"


# Matrix multiplication.

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
        sum(orders.panels(orders.waves(order, 128)[0]))
        for order in (orders.row_major(64, 64), orders.grouped(64, 64, 8))
    )
    return f"{plain} panels", f"{grouped} panels"


# GPU architecture: an H100's counts, as the page gives them.


def warps_to_hide_a_load() -> tuple[str, str]:
    issued, wait = 12, 600
    return f"{1 + wait / issued:.0f} warps", f"{100 * 16 * issued / (issued + wait):.1f} %"


def what_fits() -> tuple[str, str]:
    threads, registers, shared = 384, 168, 100
    warps = threads // 32
    blocks = min(65_536 // (threads * registers), 227 // shared, 64 // warps, 32)
    return f"{blocks} block", f"{blocks * warps} warps"


def cheap_and_dear() -> str:
    return f"{4 * 1024 // 16} operations"


def a_word_from_afar() -> tuple[str, str]:
    rate = 132 * 128 * 1.755e9
    return f"{rate / 1e12:.1f} TB/s", f"{rate / 3.35e12:.1f} times"


# Memory bandwidth: sectors are counted by the page's own model.


def every_third_float() -> tuple[str, str, str]:
    addresses = sectors.strided(3)
    used = sectors.efficiency(addresses)
    return (
        f"{sectors.sectors(addresses)} sectors",
        f"{100 * used:.0f} %",
        f"{3.35 * used:.2f} TB/s",
    )


def structures() -> tuple[str, str]:
    together, apart = sectors.strided(6), sectors.strided(1)
    return f"{sectors.sectors(together)} sectors", f"{sectors.sectors(apart)} sectors"


def another_card() -> tuple[str, str]:
    each = 2e12 * 400e-9 / 114
    return f"{each:,.0f} bytes", f"{ceil(each / 256 / 16)} loads"


def head_and_tail() -> tuple[str, str, str]:
    start, count = 4, 1000
    places = [start + 4 * i for i in range(count)]
    head = next(i for i, place in enumerate(places) if place % 16 == 0)
    quads, tail = divmod(count - head, 4)
    return f"{head} elements", f"{quads} quads", f"{tail} element"


def stages_of_a_ring() -> tuple[str, str]:
    stages = 40 // 8 + 1
    return f"{stages} stages", f"{100 * stages * 8 / 227:.0f} %"


# Performance models: bounds of an H100 SXM by its data sheet.

BANDWIDTH, BF16, FP8, PERFORMANCE_MODELS_EXPONENTIALS = 3.35e12, 989e12, 1979e12, 3.9e12


def side_of_the_ridge() -> tuple[str, str]:
    def first_side(rate: float, element: int) -> int:
        return next(
            n for n in range(1, 10_000) if 2 * n**3 / (3 * element * n * n) >= rate / BANDWIDTH
        )

    return str(first_side(BF16, 2)), str(first_side(FP8, 1))


def a_decoding_step() -> tuple[str, str]:
    n = 8192

    def memory_time(m: int) -> float:
        return 2 * (n * n + 2 * m * n) / BANDWIDTH

    most = max(m for m in range(1, 2000) if memory_time(m) >= 2 * m * n * n / BF16)
    return f"{most} tokens", f"{1e6 * memory_time(1):.1f} µs"


def threads_for_a_copy() -> str:
    each = BANDWIDTH * 600e-9 / (132 * 512)
    return f"{ceil(each / 16)} loads"


def softmax_in_three_passes() -> tuple[str, str]:
    elements = 4096 * 32768
    least, taken = 4 * 2 * elements, 4 * 4 * elements
    return f"{taken / least:.1f} times", f"{1e6 * taken / BANDWIDTH:.0f} µs"


def exponentials() -> str:
    return f"{BANDWIDTH / PERFORMANCE_MODELS_EXPONENTIALS:.2f} bytes"


# Normalization.

NORM_MEMORY, NORM_MATRIX = 3.35e12, 2 * 32_768 * 4096  # bytes a second, and of a matrix of bf16


def _passes(count: int) -> str:
    return f"{1e6 * count * NORM_MATRIX / NORM_MEMORY:.0f} µs"


def bytes_of_a_norm() -> tuple[str, ...]:
    return _passes(1 + 1), _passes(2 + 1)


def a_residual_before_it() -> tuple[str, ...]:
    return _passes((2 + 1) + (1 + 1)), _passes(2 + 2)


def parts_of_one_percent() -> str:
    parts, size = 264, 2
    return f"{ceil(Fraction(8 * parts * 100, 3 * size)):,} rows"


def a_row_each_in_l2() -> tuple[str, ...]:
    return tuple(f"{50_000_000 // 132 // size:,} columns" for size in (4, 2))


def two_chunks_merged() -> tuple[str, ...]:
    both = [1, 3, 8]
    mean = sum(both) / len(both)
    return f"mean {mean:.0f}", f"{sum((x - mean) ** 2 for x in both):.0f}"


# Reductions and scans.

REDUCTIONS_MEMORY = 3.35e12  # bytes a second
SMS, REDUCTIONS_CLOCK = 132, 1.755e9


def words_of_a_scan() -> tuple[str, ...]:
    x = list(range(64))  # any: words for one number are what counts
    schemes = (scans.scan_then_propagate, scans.reduce_then_scan, scans.look_back)
    words = [scheme(x, 8)[1].words / len(x) for scheme in schemes]
    return tuple(f"{1e3 * one * 4 * 2**30 / REDUCTIONS_MEMORY:.2f} ms" for one in words)


def warps_and_work() -> tuple[str, ...]:
    counts = [scheme(range(32))[1] for scheme in (scans.hillis_steele, scans.blelloch)]
    return tuple(f"{one.additions} additions in {one.steps} steps" for one in counts)


def short_rows() -> tuple[str, ...]:
    rows = SMS * REDUCTIONS_CLOCK / log2(32)
    return tuple(f"{REDUCTIONS_MEMORY / (size * rows):.0f} numbers" for size in (4, 2))


def depth() -> tuple[str, ...]:
    n, lanes, u = 2**20, 1024, 2.0**-24
    depths = (n - 1, n / lanes - 1 + log2(lanes), log2(n))
    return tuple(f"{one * u:.1e}" for one in depths)


def a_stuck_accumulator() -> tuple[str, ...]:
    ones, bits = [1.0] * 4096, sums.BITS["bf16"]
    return f"{sums.sequential(ones, bits)[0]:.0f}", f"{sums.lanes(ones, bits)[0]:.0f}"


# Scheduling: waves and shares by the page's own model.


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

    def worst_load(order: list[int]) -> str:
        loads = [sum(order[block::8]) for block in range(8)]
        return f"{max(loads) / (sum(loads) / 8):.2f} times"

    return worst_load(costs), worst_load(costs[:32] + costs[32:][::-1])


# Softmax.

SOFTMAX_MEMORY, SOFTMAX_EXPONENTIALS = 3.35e12, 3.9e12  # bytes and exponentials a second of an H100


def exponentials_of_a_block() -> tuple[str, ...]:
    row = [float(i % 7) for i in range(4096)]
    return tuple(f"{online(row, block)[1]}" for block in (1, 16))


def three_passes_against_one() -> tuple[str, ...]:
    size = 16_384 * 8192 * 2
    return tuple(f"{1e6 * passes * size / SOFTMAX_MEMORY:.0f} µs" for passes in (3 + 1, 1 + 1))


def capacity() -> tuple[str, ...]:
    block = 227 * 1024 // 4
    return f"{block:,} columns", f"{8 * block:,} columns"


def the_second_wall() -> str:
    return f"{SOFTMAX_EXPONENTIALS / (SOFTMAX_MEMORY / 4):.1f} exponentials"


def a_merge() -> tuple[str, ...]:
    row = Part(3, 2) + Part(1, 10)
    return f"m = {row.m:.0f}", f"d = {row.d:.3f}", f"{1 / row.d:.3f}"


# Stencils.

STENCILS_MEMORY, STENCILS_PEAK = 3.35e12, 67e12  # bytes and fp32 flops a second of an H100


def bytes_of_a_depth() -> tuple[str, ...]:
    one, four = (4 * words(64, 1, depth, tiled=2) for depth in (1, 4))
    return f"{four:.2f} bytes", f"{one / four:.2f} times"


def where_the_storage_ends() -> str:
    fits = [t for t in range(1, 20) if 4 * 3 * t * (64 + 2 * t) ** 2 <= 227 * 1024]
    return f"T = {max(fits)}"


def repeated_updates() -> tuple[str, ...]:
    return tuple(f"{repeated(64, r, 8, tiled=2):.2f}" for r in (4, 1))


def when_arithmetic_takes_over() -> str:
    return f"T = {(8 / STENCILS_MEMORY) / (8 / STENCILS_PEAK):.0f}"


# Tensor cores.

SIDE, BYTES = 16, 2  # of a tile of WMMA; of an element
SHARED_BYTES = 128  # that a multiprocessor reads or writes a cycle


def fragments_from_global_memory() -> str:
    rows = columns = 2
    asked = (rows + columns) * SIDE * SIDE * BYTES
    share = Fraction(asked, rows * columns * SIDE**3)
    return {Fraction(1, 8): "an eighth of a byte"}[share]


def a_wider_block() -> str:
    def busy_share(rows: int, columns: int, own: int = 64) -> float:
        warps = rows * columns // own**2
        moved = BYTES * (rows + columns + warps * 2 * own)
        return (rows * columns / 2048) / ceil(moved / SHARED_BYTES)

    assert round(100 * busy_share(128, 128)) == 67
    return f"{100 * busy_share(128, 256):.0f} %"


def tensor_cores_stages() -> tuple[str, str]:
    slab = (128 + 256) * 64 * BYTES
    fit = 227 * 1024 // slab
    words = {3: "three", 4: "four"}
    return words[fit], words[fit - 1]


def who_frees_a_stage() -> str:
    blocks, warpgroups = 2, 2
    return f"{blocks * warpgroups * 4}"


# TPUs.

TPU_FLOPS, HBM = 1.97e14, 8.1e11  # a v5e


def one_array() -> tuple[str, str]:
    array = 2 * 128**2 * 1.5e9
    return f"{array / 1e12:.0f} Tflop/s", f"{TPU_FLOPS / array:.0f} arrays"


def _used_share(size: int, array: int) -> str:
    return f"{100 * (size / (ceil(size / array) * array)) ** 2:.0f} %"


def padding() -> tuple[str, str, str]:
    assert _used_share(128, 128) == "100 %"
    return _used_share(192, 128), _used_share(192, 256), _used_share(128, 256)


def batch() -> tuple[str, str]:
    return f"{TPU_FLOPS / HBM:.0f} rows", f"{TPU_FLOPS / (22 * HBM):.0f} rows"


def around_a_ring() -> tuple[str, str]:
    chips, size, both_ways = 16, 1e9, 2e11
    arriving = size * (chips - 1) / chips
    return f"{1e3 * arriving / both_ways:.1f} ms", f"{2e3 * arriving / both_ways:.1f} ms"


# Warp primitives: the lanes are simulated.

WARP_PRIMITIVES_LANES = range(shuffles.LANES)


def slot_of_a_lane() -> tuple[str, str]:
    mask = sum(1 << lane for lane in WARP_PRIMITIVES_LANES if lane % 3 == 0)
    return f"0x{mask:08x}", str((mask & ((1 << 18) - 1)).bit_count())


def sum_of_a_block() -> tuple[str, str]:
    warps = 1024 // shuffles.LANES
    return f"{warps} words", f"{len(shuffles.offsets()) + len(shuffles.offsets(warps))} shuffles"


def four_sums_at_once() -> tuple[str, str]:
    rows = [
        [1 << lane if row == 0 else 3 * row + lane for lane in WARP_PRIMITIVES_LANES]
        for row in range(4)
    ]
    held = [{row: rows[row][lane] for row in range(4)} for lane in WARP_PRIMITIVES_LANES]
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

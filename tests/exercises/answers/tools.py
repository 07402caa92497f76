"""The answers to the exercises of docs/tools/, page by page."""

from collections import Counter
from itertools import permutations
from math import ceil, isqrt, log, log2
from pathlib import Path
from statistics import NormalDist, fmean, harmonic_mean

from snippets.profiling import critical
from snippets.profiling.trace import read

# Measuring without being fooled.


def the_mean_of_rates() -> tuple[str, str]:
    rates = (1000, 3000)
    return f"{fmean(rates):,.0f} GB/s", f"{harmonic_mean(rates):,.0f} GB/s"


def one_pass_of_triad() -> tuple[str, str]:
    array = 128 * 2**20 * 8
    seconds = 3 * array / 3.35e12
    return f"{3 * array / 1e9:.2f} GB", f"{seconds * 1e3:.2f} ms"


def bytes_in_flight() -> tuple[str, str]:
    flight = 3.35e12 * 600e-9
    return f"{flight / 1e6:.1f} MB", f"{flight / 132 / 16:.0f} threads"


def runs_that_tell_two_kernels_apart() -> tuple[str, str]:
    sure = NormalDist().inv_cdf(0.975)
    needed = []
    for difference in (0.03, 0.01):
        runs = 1
        while sure * 0.02 * (2 / runs) ** 0.5 > difference:
            runs += 1
        needed.append(f"{runs}")
    return needed[0], needed[1]


def a_pair_of_cards() -> str:
    apart = NormalDist(0, 0.08 * 2**0.5)
    return f"{100 * 2 * apart.cdf(-0.05):.0f} %"


# Reading a trace.

COMPUTE = ((0, 30), (34, 60), (70, 96))  # ms, on one stream
NETWORK = ((20, 40), (52, 68))  # and on the other
STEP = 100


def _covered_length(spans: list[tuple[int, int]]) -> int:
    """What the intervals cover together."""
    return len({moment for start, end in spans for moment in range(start, end)})


def idle_time() -> str:
    return f"{STEP - _covered_length([*COMPUTE, *NETWORK])} ms"


def hidden_communication() -> str:
    compute = {moment for start, end in COMPUTE for moment in range(start, end)}
    network = {moment for start, end in NETWORK for moment in range(start, end)}
    return f"{100 * len(compute & network) / len(network):.0f} %"


def the_late_rank() -> tuple[str, str, str]:
    lengths = {0: 9.8, 1: 4.1, 2: 9.5, 3: 7.0}
    late = min(lengths, key=lengths.__getitem__)
    skew = max(lengths.values()) - lengths[late]
    return f"rank {late}", f"{lengths[late]} ms", f"{skew:.1f} ms"


def a_kernel_not_worth_it() -> tuple[str, str]:
    shares = (0.03, 0.40)
    gains = [share * (1 - 1 / speedup) for share, speedup in zip(shares, (3, 1.1), strict=True)]
    return f"{100 * gains[0]:.1f} %", f"{100 * gains[1]:.1f} %"


def what_the_step_waits_for() -> tuple[str, str]:
    kept = Path(critical.__file__).with_name("made_up.trace.json")
    trace = read(kept.read_bytes())
    (step,) = trace.steps
    took: Counter[str] = Counter()
    for piece in critical.path(trace, step):
        took[piece.who] += piece.end - piece.start
    return f"{took['communication'] / 1e3:.0f} µs", f"{took['copy'] / 1e3:.0f} µs"


# What a tool would count.


def sectors_of_a_stride() -> tuple[str, str]:
    counts = [len({lane * stride * 4 // 32 for lane in range(32)}) for stride in (1, 2)]
    return f"{counts[1]} sectors", f"{counts[1] / counts[0]:g} times"


def conflicts_of_a_column() -> tuple[str, ...]:
    def conflict_degree(pitch: int) -> int:
        banks = [lane * pitch % 32 for lane in range(32)]
        return max(map(banks.count, banks))

    return tuple(f"{conflict_degree(pitch)}" for pitch in (32, 33, 34))


def pairs_that_race() -> tuple[str, str]:
    def count_races(stride: int) -> int:
        # thread i writes x[i] and reads x[i + stride]
        return sum(i == j + stride for i, j in permutations(range(64), 2))

    return f"{count_races(1)} pairs", f"{count_races(32)} pairs"


def lanes_that_work() -> str:
    branches = ((sum(lane % 3 == 0 for lane in range(32)), 10),)
    branches += ((32 - branches[0][0], 6),)
    issued = sum(length for _, length in branches)
    return f"{sum(lanes * length for lanes, length in branches) / issued:.2f} lanes"


# Reading a profile: the figures are those of the four reports on the page.

N = 2048


def sms_from_a_report() -> str:
    blocks, waves = 16_384, 102.40
    return f"{blocks / waves / min(16, 4, 16, 4):.0f} SMs"


def issue_from_warps() -> str:
    return f"{100 * (1 - 3.93 / 12.27):.1f} %"


def bytes_twice() -> tuple[str, str]:
    compulsory = 4 * 4 * N * N
    naive, quads = 60.13e9 * 72.83e-3, 21.62e9 * 8.92e-3
    return f"{naive / compulsory:.0f} times", f"{quads / compulsory:.1f} times"


def occupancy_by_hand() -> tuple[str, str]:
    def share_of_warps(registers: int) -> str:
        threads, warps = 256, 32
        blocks = min(65_536 // (registers * threads), 64 // 32, warps // (threads // 32))
        return f"{100 * blocks * (threads // 32) / warps:.0f} %"

    return share_of_warps(128), share_of_warps(96)


def who_is_to_blame() -> str:
    return f"{1 / (1 - 0.04):.2f} times"


# Tests that can fail.

UNIT = 2**-24  # unit roundoff of fp32


def a_tolerance_that_hides() -> tuple[str, str, str]:
    n = 4096
    cells = (n * UNIT, log2(n) * UNIT, 1 / n)
    return tuple(f"{cell:.1e}" for cell in cells)


def runs_until_a_race_shows() -> str:
    return f"{ceil(log(0.05) / log(1 - 1 / 20_000)):,} runs"


def integers_that_stay_exact() -> tuple[str, str]:
    terms = 1024
    return f"{isqrt(2**24 // terms)}", f"{isqrt(2**11 // terms)}"


def where_an_index_overflows() -> str:
    side = isqrt(2**31)
    while side * side - 1 < 2**31:  # the last element's index must pass 2**31 - 1
        side += 1
    return f"{side:,}"

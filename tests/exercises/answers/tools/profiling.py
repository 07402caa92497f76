"""Reading a trace."""

from collections import Counter
from pathlib import Path

from snippets.profiling import critical
from snippets.profiling.trace import read

COMPUTE = ((0, 30), (34, 60), (70, 96))  # ms, on one stream
NETWORK = ((20, 40), (52, 68))  # and on the other
STEP = 100


def _length(spans: list[tuple[int, int]]) -> int:
    """What the intervals cover together."""
    return len({moment for start, end in spans for moment in range(start, end)})


def idle_time() -> str:
    return f"{STEP - _length([*COMPUTE, *NETWORK])} ms"


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

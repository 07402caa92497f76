"""Speculative decoding."""

from math import ceil

PEAK, BANDWIDTH = 989e12, 3.35e12  # an H100 SXM's data sheet, bf16


def _expected(kept: float, guesses: int) -> float:
    return sum(kept**i for i in range(guesses + 1))


def tokens_a_round() -> str:
    return f"{_expected(0.8, 4):.2f} tokens"


def how_far_to_guess() -> tuple[str, str]:
    kept, cost = 0.8, 0.1
    gains = {k: _expected(kept, k) / (1 + k * cost) for k in range(1, 30)}
    best = max(gains, key=gains.__getitem__)
    assert all(gains[k] > 0.96 * gains[best] for k in range(4, 9))  # "the top is flat"
    return f"{best} guesses", f"{gains[best]:.2f} times"


def overlap() -> tuple[str, str]:
    target, draft = (0.5, 0.3, 0.2), (0.7, 0.2, 0.1)
    kept = sum(map(min, target, draft))
    more = [max(0.0, p - q) for p, q in zip(target, draft, strict=True)]
    first, second, third = (f"{round(one / sum(more), 6):g}" for one in more)
    return f"{100 * kept:.0f} %", f"{first}, {second} and {third}"


def the_end_of_free() -> str:
    guesses, bytes_a_weight = 4, 2
    per_sequence = 2 * (guesses + 1) / bytes_a_weight
    return f"{ceil(PEAK / BANDWIDTH / per_sequence)} sequences"


def awake_experts() -> tuple[str, str]:
    experts, used, tokens = 256, 8, 4
    awake = experts * (1 - (1 - used / experts) ** tokens)
    return f"{awake:.1f} experts", f"{awake / used:.1f} times"

"""Bytes, loads and groups of a mixture of experts."""

from random import Random

from snippets.model_flops.model_flops import MODELS

PEAK, NETWORK, BANDWIDTH = 989e12, 50e9, 3.35e12  # data sheets: flop/s, bytes/s
DEEPSEEK = MODELS["DeepSeek-V3"]
assert DEEPSEEK.experts


def bytes_of_a_dispatch() -> tuple[str, str]:
    chosen, hidden = DEEPSEEK.experts.chosen, DEEPSEEK.hidden
    wide, narrow = (chosen * hidden * (out + 2) for out in (2, 1))
    return f"{wide / 2**10:.0f} KiB", f"{narrow / 2**10:.0f} KiB"


def against_the_network() -> tuple[str, str]:
    intensity = 4.5 * DEEPSEEK.experts.size / 2
    ratio = PEAK / NETWORK / intensity
    return f"{intensity:,.0f} flops a byte", f"{ratio:.1f} times"


def _loads(tokens: int, experts: int, chosen: int, draws: int = 100) -> list[list[int]]:
    dice, found = Random(0), []
    for _ in range(draws):
        counts = [0] * experts
        for _ in range(tokens):
            for expert in dice.sample(range(experts), chosen):
                counts[expert] += 1
        found.append(counts)
    return found


def the_busiest_expert() -> tuple[str, str]:
    ratios = []
    for tokens in (256, 4096):
        loads = _loads(tokens, 64, 2, 100 if tokens < 1000 else 10)
        mean = 2 * tokens / 64
        ratios.append(sum(map(max, loads)) / len(loads) / mean)
    return f"{ratios[0]:.1f} times", f"{ratios[1]:.1f} times"


def dropped_tokens() -> str:
    tokens, experts, chosen = 256, 64, 2
    places = int(1.25 * chosen * tokens / experts)
    loads = _loads(tokens, experts, chosen)
    lost = sum(max(0, load - places) for counts in loads for load in counts)
    return f"{100 * lost / (len(loads) * chosen * tokens):.0f} %"


def conversations_for_full_groups() -> tuple[str, str]:
    experts = DEEPSEEK.experts
    group = 128 * experts.chosen / experts.routed
    enough = PEAK / BANDWIDTH * experts.routed / experts.chosen
    return f"{group:.0f} tokens", f"{enough:,.0f} conversations"

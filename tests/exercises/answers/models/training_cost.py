"""What a training run costs."""

from math import sqrt

from snippets.model_flops.model_flops import MODELS, six_n, training_flops_per_token

PEAK = 989e12  # an H100 SXM's data sheet: bf16 flop/s
HOUR = 3600


def hours_of_a_run() -> tuple[str, str]:
    hours = 6 * 13e9 * 2e12 / (0.4 * PEAK) / HOUR
    days = hours / 0.9 / 256 / 24
    return f"{hours:,.0f} GPU-hours", f"{days:.1f} days"


def a_published_run() -> str:
    return f"{100 * 6 * 70e9 * 1.4e12 / (600_000 * HOUR * PEAK):.0f} %"


def price_of_recomputation() -> tuple[str, str]:
    executed = 8 / 6 * 0.4
    return f"{100 * executed:.0f} %", f"{100 * (1 - 6 / 8):.0f} %"


def what_the_rule_leaves_out() -> tuple[str, str]:
    model = MODELS["Llama 3.1 8B"]
    extra = [
        training_flops_per_token(model, s, causal=True) / six_n(model) - 1 for s in (8192, 131072)
    ]
    return f"{100 * extra[0]:.0f} %", f"{100 * extra[1]:.0f} %"


def how_often_to_save() -> tuple[str, str]:
    stop, between = 30, 6 * HOUR
    every = sqrt(2 * stop * between)
    lost = stop / every + every / (2 * between)
    return f"{every / 60:.0f} minutes", f"{100 * lost:.1f} %"

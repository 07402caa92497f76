"""What a rank keeps and sends."""

from snippets.model_flops.model_flops import MODELS, parameters, state_bytes
from snippets.ring_steps import ring_steps as steps

SMALL = MODELS["Llama 3.1 8B"]


def tokens_that_hide() -> tuple[str, str]:
    tokens = 350e12 / 50e9
    return f"{tokens:,.0f} tokens", f"{4 * 2**20 // tokens:.0f} ranks"


def the_first_stage_that_fits() -> tuple[str, str]:
    count, room = parameters(MODELS["Llama 2 13B"]), 60e9
    for stage in range(4):
        held = state_bytes(count, stage, 32)
        if held <= room:
            return f"stage {stage}", f"{held / 1e9:.1f} GB"
    raise AssertionError("none fits")


def traffic_with_accumulation() -> tuple[str, str]:
    count, batches, element = parameters(SMALL), 16, 2
    half = max(steps.reduce_scatter(64).sent(count)) * element
    first = 2 * half  # a reduce-scatter and an all-gather, once a step
    third = 3 * batches * half
    return f"{first / 1e9:.0f} GB", f"{third / 1e9:.0f} GB"


def a_bucket_for_a_thousand_ranks() -> tuple[str, str]:
    n, latency, rate, bucket = 1024, 5e-6, 50e9, 25e6
    waiting = 2 * (n - 1) * latency
    sending = 2 * (n - 1) / n * bucket / rate
    return f"{100 * waiting / (waiting + sending):.0f} %", f"{n * latency * rate / 1e6:.0f} MB"

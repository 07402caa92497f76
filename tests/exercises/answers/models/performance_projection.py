"""Predicting a step."""

from math import prod

from snippets.model_flops.model_flops import MODELS, attention_weights
from snippets.training_time.layers import Plan
from snippets.training_time.training_time import bubble

LLAMA = MODELS["Llama 3.1 8B"]


def losses_multiply() -> tuple[str, str]:
    shares = [prod((0.70, 0.88, 0.92, m / (m + 7))) for m in (16, 64)]
    return f"{100 * shares[0]:.0f} %", f"{100 * shares[1]:.0f} %"


def a_faster_kernel() -> tuple[str, str]:
    share = 0.18
    return f"{1 / (1 - share + share / 2):.2f} times", f"{1 / (1 - share):.2f} times"


def a_layer_as_a_sum() -> tuple[str, str]:
    tokens, rate, bandwidth, gap = 4096, 0.7 * 989e12, 0.9 * 3.35e12, 3e-6
    h, f, d = LLAMA.hidden, LLAMA.feed_forward, LLAMA.head_dim
    values = LLAMA.heads * d
    widths = (h + 2 * LLAMA.kv_heads * d, h, 2 * f)  # of Q, K, V; of the output; of gate and up
    products = [2 * tokens * h * width / rate for width in widths]
    products.append(2 * tokens * f * h / rate)
    assert abs(sum(products) * rate / (2 * tokens) - attention_weights(LLAMA) - 3 * h * f) < 1
    attention = 2 * values * tokens * (tokens + 1) / rate  # causal: half of 4 d a pair and head
    small = [2 * h, 2 * h, 3 * h, 3 * h, 2 * (values + LLAMA.kv_heads * d), 3 * f]
    memory = [2 * tokens * elements / bandwidth for elements in small]
    kernels = [*products, attention, *memory]
    time = sum(kernels) + gap * len(kernels)
    return f"{time * 1e3:.2f} ms", f"{100 * sum(products) / time:.0f} %"


def what_stays_exposed() -> str:
    bytes_sent = 2 * 7 / 8 * 64 * 2**20
    exposed = max(0, 20e-6 + bytes_sent / 450e9 - 200e-6)
    return f"{exposed * 1e6:.0f} µs"


def twice_the_gpus() -> tuple[str, str]:
    def step(gpus: int) -> float:
        plan = Plan(gpus, 1536, 1, 2048, tensor=8, pipeline=12)
        forward, backward = 1.0, 2.0
        return plan.micro_batches * (forward + backward) + bubble(plan, [forward, backward], 1.0)

    first, second = step(384) / step(768), step(1536) / step(3072)
    return f"{first:.2f} times", f"{second:.2f} times"

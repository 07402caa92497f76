"""Serving by roofline: a pass takes the time of its bytes, operations and messages.

Shapes  a batch of sequences gets new tokens, some each: a prompt's in prefill, one in a
        decode step, the guesses and one more in a speculative check
FLOPs   2 for each weight that a token meets, 4 for each head, column and key that it
        sees; latent attention, absorbed: 2 (2 rank + rotary) for each head and key
Bytes   weights once a pass, of experts those that wake; the cache once a pass, or once
        for each query head; what lies between two kernels, written and read. Tensor
        ranks all-reduce a layer's output twice; experts exchange tokens
Error   on published rows, by data set, in the record. Constants are in machines.py; the
        rows that they are fitted on are marked
Raises  ValueError for a layout that does not divide the model, a number below its
        least, and bits for which a GPU has no rate
Source  tensorrt-llm-performance, databricks-llm-inference, llm-viewer, deepseek-v2,
        speculative-decoding, deepseek-inference-system
"""

from __future__ import annotations

from math import fsum
from typing import NamedTuple

from snippets.inference_roofline.machines import GROUPED, MACHINES, Machine
from snippets.inference_roofline.passes import Costs, Pass, Serving, passed
from snippets.model_flops.model_flops import (
    MODELS,
    Decoder,
    cache_bytes_per_token,
    parameters,
)


# --8<-- [start:speeds]
class Draft(NamedTuple):
    """Speculation: guesses of a round, how many are kept, and what one costs."""

    guesses: int
    acceptance: float  # probability that a guess is kept, each alike
    cost: float = 0.0  # of a decode step of the model, where no `model` guesses
    model: Decoder | None = None  # served as the model is

    @property
    def tokens(self) -> float:
        """Tokens of a round: the kept guesses, and one of the model's own."""
        return fsum(self.acceptance**i for i in range(self.guesses + 1))


class Speeds(NamedTuple):
    """Seconds to the first token, for each more, and for all; output tokens/s a GPU."""

    first: float
    each: float
    total: float
    throughput: float


def prefill(costs: Costs, batch: int, length: int) -> Pass:
    """The pass that reads `batch` prompts of `length` tokens and gives the first."""
    check(costs, batch=batch, prompt=length)
    return passed(costs, batch, length, length, True)


def step(costs: Costs, batch: int, keys: float, rows: int = 1) -> Pass:
    """A pass that decodes `rows` tokens of each sequence, which has `keys` already."""
    check(costs, batch=batch, rows=rows)
    return passed(costs, batch, rows, keys, False)


def token_time(costs: Costs, batch: int, keys: float, draft: Draft | None) -> float:
    """Seconds for a token of each sequence; with guesses the mean over a round."""
    if draft is None:
        return step(costs, batch, keys).total
    need(draft.guesses >= 1, f"guesses = {draft.guesses} is below 1; give at least one")
    need(0 <= draft.acceptance <= 1,
         f"acceptance = {draft.acceptance} is no share; give 0 to 1")  # fmt: skip
    guess = draft.cost * step(costs, batch, keys).total
    if draft.model is not None:
        guess = step(costs._replace(model=draft.model), batch, keys).total
    checked = step(costs, batch, keys, draft.guesses + 1).total
    return (checked + draft.guesses * guess) / draft.tokens


def generate(
    costs: Costs, batch: int, prompt: int, answer: int, draft: Draft | None = None
) -> Speeds:
    """A static batch: prompts of `prompt` tokens, then `answer` tokens of each.

    A step's time grows linearly with the keys but where a window fills, so the middle
    of either piece stands for all of it.
    """
    check(costs, batch=batch, prompt=prompt, answer=answer)
    first = prefill(costs, batch, prompt).total
    ends = [prompt + 0.5, prompt + answer - 0.5]
    full = costs.serving.window + 0.5  # between the last step within it and the next
    if costs.serving.windowed and ends[0] < full < ends[1]:
        ends.insert(1, full)
    pieces = [] if answer == 1 else list(zip(ends, ends[1:], strict=False))
    rest = fsum(
        (b - a) * token_time(costs, batch, (a + b) / 2, draft) for a, b in pieces
    )
    total = first + rest
    throughput = batch * answer / total / costs.serving.tensor
    return Speeds(first, rest / max(answer - 1, 1), total, throughput)
# --8<-- [end:speeds]


# --8<-- [start:memory]
def weight_bytes(model: Decoder, serving: Serving) -> float:
    """Bytes of weights on a GPU; both tables stay in 16 bits."""
    tables = model.vocabulary * model.hidden * (1 if model.tied else 2)
    routed, mixture = 0, model.experts
    if mixture is not None:
        each = (3 if model.gated else 2) * model.hidden * mixture.size
        routed = (model.layers - mixture.dense_layers) * mixture.routed * each
    whole, latent = 0, model.latent
    if latent is not None:  # into the ranks, which all heads need
        ranks = latent.query_rank + latent.key_value_rank + latent.rotary
        whole = model.layers * model.hidden * ranks
    rest, t = parameters(model) - tables - routed - whole, serving.tensor
    held = rest / t + whole + routed / (serving.expert if serving.expert > 1 else t)
    return tables * 2 / t + held * serving.weights / 8


def cache_bytes(model: Decoder, serving: Serving, tokens: int) -> float:
    """Bytes of cache on a GPU for a sequence of `tokens`; of a window what it sees."""
    row = cache_bytes_per_token(model, 1) / model.layers * serving.cache / 8
    if model.latent is None:  # a latent row is on every rank
        row *= max(model.kv_heads / serving.tensor, 1) / model.kv_heads
    near = min(tokens, serving.window) if serving.window else tokens
    return row * (serving.windowed * near + (model.layers - serving.windowed) * tokens)


def most(
    model: Decoder, serving: Serving, machine: Machine, tokens: int, usable: float = 0.9
) -> int:
    """Sequences of `tokens` that fit beside the weights in `usable` of the memory."""
    room = usable * machine.memory - weight_bytes(model, serving)
    return max(int(room / cache_bytes(model, serving, tokens)), 0)
# --8<-- [end:memory]


def check(costs: Costs, **least: float) -> None:
    """Refuse what the model cannot be served as, and numbers below 1."""
    model, serving = costs.model, costs.serving
    for name, value in least.items():
        need(value >= 1, f"{name} = {value} is below 1; give at least one")
    t, e, keys = serving.tensor, serving.expert, model.kv_heads
    need(t >= 1 and model.heads % t == 0,
         f"tensor = {t} does not divide {model.heads} heads; use a divisor")
    need(keys % t == 0 or t % keys == 0,
         f"tensor = {t} neither divides {keys} heads of keys nor is a multiple of it")
    need(e >= 1, f"expert = {e} is below 1; give at least one")
    if e > 1:
        need(model.experts is not None, f"expert = {e} for no experts; use 1")
        routed = model.experts.routed
        need(e % t == 0, f"expert = {e} is no multiple of tensor = {t}; use one")
        need(e <= routed, f"expert = {e} is more than {routed} experts; use fewer")
    need(0 <= serving.windowed <= model.layers,
         f"windowed = {serving.windowed} of {model.layers} layers; use fewer")
    known = sorted(costs.machine.rates.keys() & costs.engine.products.keys())
    need(serving.activations in known,
         f"no rate is known for products of {serving.activations} bits on this GPU; "
         f"use one of {', '.join(map(str, known))}")  # fmt: skip


def need(good: bool, what: str) -> None:
    """Raise ValueError unless `good`."""
    if not good:
        raise ValueError(f"inference_roofline: {what}")


def demo(device: str = "cpu") -> None:
    """A model served in two ways by batch: where its time goes, what guesses do."""
    model, prompt, answer = MODELS["Llama 3.1 70B"], 2048, 512
    ways = {
        "16 bits": Serving(tensor=4),
        "8 bits": Serving(weights=8, activations=8, cache=8, tensor=4),
    }
    print("Llama 3.1 70B on 4 H100; a step's parts, a token and the first token in ms")
    print(f"prompts of {prompt} tokens, answers of {answer}")
    head = ("batch", "product", "attent.", "between", "message", "gaps", "token",
            "first", "out/s/GPU", "guessing")  # fmt: skip
    for name, serving in ways.items():
        costs = Costs(model, serving, MACHINES["H100"], GROUPED["H100"])
        fit = most(model, serving, MACHINES["H100"], prompt + answer)
        print(f"\n{name}: at most {fit} fit\n{''.join(f'{one:>10}' for one in head)}")
        for batch in (1, 8, 32, 128, 256):
            if batch > fit:
                continue
            parts = step(costs, batch, prompt + answer / 2)
            told = generate(costs, batch, prompt, answer)
            small = Draft(4, 0.8, model=MODELS["Llama 3.1 8B"])
            gain = told.each / generate(costs, batch, prompt, answer, small).each
            cells = [f"{1e3 * one:10.2f}" for one in (*parts, told.each, told.first)]
            print(f"{batch:10}{''.join(cells)}{told.throughput:10.0f}{gain:9.2f}x")
    print("\nguessing: 4 guesses of Llama 3.1 8B a round, kept with probability 0.8")


if __name__ == "__main__":
    demo()

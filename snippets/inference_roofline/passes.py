"""What a pass over all layers takes on each GPU: bytes, operations, messages, gaps."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from snippets.inference_roofline.machines import NODE, Engine, Machine
from snippets.model_flops.model_flops import Decoder

# Kernels of a layer: two norms with their sums, four products, turning and storing
# keys, attention, the activation; with tensor ranks two all-reduces more.
KERNELS = 9


# --8<-- [start:serving]
@dataclass(frozen=True)
class Serving:
    """How a model is served: bits of an element, and how many GPUs share what."""

    weights: int = 16
    activations: int = 16  # inputs of the products; the rest stays in 16 bits
    cache: int = 16
    tensor: int = 1  # GPUs that split each layer, and hold one batch
    expert: int = 1  # GPUs that share a layer's experts, of expert / tensor batches
    window: int = 0  # keys that a token sees in a windowed layer
    windowed: int = 0  # layers with a window
# --8<-- [end:serving]


class Pass(NamedTuple):
    """Seconds of one pass over all layers."""

    products: float
    attention: float
    between: float  # norms, sums and activations: read and written again
    messages: float
    gaps: float

    @property
    def total(self) -> float:
        """Seconds until the next pass can start: one after the other."""
        return fsum(self)


# --8<-- [start:model]
class Costs(NamedTuple):
    """A model, how it is served, and on what."""

    model: Decoder
    serving: Serving
    machine: Machine
    engine: Engine

    @property
    def bandwidth(self) -> float:
        """Bytes a second that long reads get."""
        return self.machine.bandwidth * self.engine.bandwidth

    @property
    def sparse(self) -> int:
        """Layers with experts."""
        mixture = self.model.experts
        return 0 if mixture is None else self.model.layers - mixture.dense_layers

    # --8<-- [start:product]
    def product(
        self, rows: float, inner: float, outer: float, read: float = 0, bits: int = 0
    ) -> float:
        """Seconds of x (rows, inner) w: its operations, then its bytes.

        `read` weights where it is not all of them, `bits` if not those of the rest.
        Loads run under the operations of a tile, but not in its prologue, its epilogue
        and a last wave that is half empty: the sum is nearer to what is measured than
        the larger of the two.
        """
        size = bits or self.serving.weights
        bits = bits or self.serving.activations
        rate = self.machine.rates[bits] * self.engine.products[bits]
        moved = (read or inner * outer) * size / 8
        moved += rows * (inner * bits / 8 + outer * 2)
        return 2 * rows * inner * outer / rate + moved / self.bandwidth
    # --8<-- [end:product]


def attention_products(costs: Costs, rows: float) -> float:
    """Seconds of a layer's products around attention."""
    model, t = costs.model, costs.serving.tensor
    queries = model.heads * model.head_dim / t
    out = costs.product(rows, queries, model.hidden)
    latent = model.latent
    if latent is None:
        keys = max(model.kv_heads / t, 1) * model.head_dim
        return out + costs.product(rows, model.hidden, queries + 2 * keys)
    rank, wide = latent.key_value_rank, queries + model.heads * latent.rotary / t
    parts = [
        out,
        costs.product(rows, model.hidden, rank + latent.rotary),
        2 * costs.product(rows, queries, rank),  # W_UK and W_UV, a head each its own
    ]
    if latent.query_rank:
        parts.append(costs.product(rows, model.hidden, latent.query_rank))
    parts.append(costs.product(rows, latent.query_rank or model.hidden, wide))
    return fsum(parts)


def dense_products(costs: Costs, rows: float, width: float) -> float:
    """Seconds of a feed-forward layer that has `width` columns on each GPU."""
    gates = 2 if costs.model.gated else 1
    up = costs.product(rows, costs.model.hidden, gates * width)
    return up + costs.product(rows, width, costs.model.hidden)


# --8<-- [start:experts]
def expert_products(costs: Costs, rows: float) -> float:
    """Seconds of a layer of experts on each GPU, tokens spread evenly over them."""
    model, serving, mixture = costs.model, costs.serving, costs.model.experts
    split = 1 if serving.expert > 1 else serving.tensor
    tokens = rows * max(serving.expert / serving.tensor, 1)  # of all batches
    asleep = (1 - mixture.chosen / mixture.routed) ** max(int(tokens), 1)
    awake = mixture.routed / serving.expert * (1 - asleep)
    met = tokens * mixture.chosen / serving.expert
    width, gates = mixture.size / split, 2 if model.gated else 1
    read = awake * model.hidden * width
    parts = [
        costs.product(met, model.hidden, gates * width, gates * read),
        costs.product(met, width, model.hidden, read),
        costs.product(rows, model.hidden, mixture.routed, bits=16),  # router
    ]
    if mixture.shared:
        shared = mixture.shared * mixture.size / serving.tensor
        parts.append(dense_products(costs, rows, shared))
    return fsum(parts)
# --8<-- [end:experts]


def prompt_attention(costs: Costs, batch: float, rows: int) -> float:
    """Seconds of attention in prompts of `rows` tokens, all layers, keys expanded."""
    model, serving = costs.model, costs.serving
    widths = 2 * model.head_dim + (model.latent.rotary if model.latent else 0)
    full = near = rows * (rows + 1) / 2
    if 0 < serving.window < rows:
        beyond = rows - serving.window
        near -= beyond * (beyond + 1) / 2
    pairs = serving.windowed * near + (model.layers - serving.windowed) * full
    operations = 2 * model.heads / serving.tensor * widths * batch * pairs
    return operations / (costs.machine.rates[16] * costs.engine.attention)


# --8<-- [start:step_attention]
def step_attention(costs: Costs, batch: float, rows: int, keys: float) -> float:
    """Seconds of attention, all layers, of `rows` tokens of a sequence with `keys`."""
    model, serving, engine = costs.model, costs.serving, costs.engine
    heads = model.heads / serving.tensor
    if model.latent is None:
        own = max(model.kv_heads / serving.tensor, 1)
        elements, widths = 2 * own * model.head_dim, 2 * model.head_dim
    else:  # one row for all heads, so each tensor rank has all of it
        latent, own = model.latent, 1
        elements = latent.key_value_rank + latent.rotary
        widths = 2 * latent.key_value_rank + latent.rotary
    near = min(keys, serving.window) if serving.window else keys
    seen = serving.windowed * near + (model.layers - serving.windowed) * keys
    read = batch * seen * elements * serving.cache / 8
    operations = 2 * heads * rows * widths * batch * seen
    times = [
        read / costs.bandwidth,
        operations / (costs.machine.rates[16] * engine.attention),
    ]
    if not engine.grouped:
        again = read * heads / own * rows
        times.append(again / (costs.machine.ports * engine.ports))
    return max(times)
# --8<-- [end:step_attention]


def between(costs: Costs, rows: float) -> float:
    """Seconds of what a layer reads and writes between its products."""
    model, t, mixture = costs.model, costs.serving.tensor, costs.model.experts
    size = costs.serving.activations / 8
    norms = 2 * model.hidden * (2 + size)
    sums = 2 * model.hidden * 3 * 2  # two summands and the sum
    turned = (model.heads + 2 * model.kv_heads) * model.head_dim * 2 * 2 / t
    width = model.feed_forward
    if mixture is not None:
        width = (mixture.chosen + mixture.shared) * mixture.size
    activation = width / t * ((2 if model.gated else 1) * 2 + size)
    return rows * (norms + sums + turned + activation) / costs.bandwidth


def messages(costs: Costs, rows: float) -> float:
    """Seconds of a pass's collectives, by rings or better within a node."""
    model, serving, machine = costs.model, costs.serving, costs.machine
    t, e, parts = serving.tensor, serving.expert, []
    exchanges = costs.sparse if e > 1 else 0
    if t > 1:
        size = 2 * (t - 1) / t * rows * model.hidden * 2
        reduces = 2 * model.layers - exchanges
        parts.append(reduces * (size / machine.link + costs.engine.message))
    if exchanges:
        chosen, nodes = model.experts.chosen, e / NODE
        sent = rows / t * model.hidden * (serving.activations / 8 + 2)  # there and back
        near, far = chosen * (1 - 1 / min(e, NODE)), 0.0
        if nodes > 1:  # once to each node that has a chosen expert, and on from there
            far = (nodes - 1) * (1 - (1 - 1 / nodes) ** chosen)
        slowest = max(sent * near / machine.link, sent * far / machine.network)
        parts.append(exchanges * (slowest + 2 * costs.engine.message))
    return fsum(parts)


def passed(costs: Costs, batch: int, rows: int, keys: float, prompt: bool) -> Pass:
    """One pass: `rows` new tokens of each of `batch` sequences, which have `keys`."""
    model, serving, n = costs.model, costs.serving, batch * rows
    logits = batch if prompt else n  # a prompt's last token alone is asked for
    products = [
        model.layers * attention_products(costs, n),
        (model.layers - costs.sparse)
        * dense_products(costs, n, model.feed_forward / serving.tensor),
        costs.sparse * expert_products(costs, n) if costs.sparse else 0.0,
        costs.product(logits, model.hidden, model.vocabulary / serving.tensor, bits=16),
    ]
    seconds = prompt_attention(costs, batch, rows)
    if not prompt:
        seconds = step_attention(costs, batch, rows, keys)
    kernels = model.layers * (KERNELS + 2 * (serving.tensor > 1))
    return Pass(
        fsum(products),
        seconds,
        model.layers * between(costs, n),
        messages(costs, n),
        kernels * costs.engine.gap,
    )
# --8<-- [end:model]

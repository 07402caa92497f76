"""model_flops: its facts hold, a wrong configuration breaks one, and torch counts the same."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from snippet_facts import broken_facts
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from snippets.model_flops import cases
from snippets.model_flops import model_flops as arithmetic
from snippets.model_flops.model_flops import MODELS, Decoder, Experts, Latent


def test_facts_hold() -> None:
    rows = cases.facts()
    assert broken_facts(rows) == []
    assert len({row["name"] for row in rows}) == len(rows) >= 20
    assert all(row["source"] and row["expected"] for row in rows)


def test_every_model_has_a_fact() -> None:
    names = [row["name"] for row in cases.facts()]
    assert all(any(name.startswith(f"{model}:") for name in names) for model in MODELS)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [
        ("Llama 2 7B", {"feed_forward": 11264}),  # rounded up to 1024 instead of 256
        ("Llama 2 13B", {"tied": True}),
        ("Llama 2 70B", {"kv_heads": 64}),  # no sharing of K and V
        ("Llama 3.1 8B", {"vocabulary": 128000}),  # without the special tokens
        ("Llama 3.1 70B", {"gated": False}),
        ("Llama 3.1 405B", {"layers": 125}),
        ("Mixtral 8x7B", {"experts": Experts(routed=8, chosen=1, size=14336)}),
        ("Mixtral 8x7B", {"experts": Experts(routed=7, chosen=2, size=14336)}),
        ("DeepSeek-V3", {"latent": None}),
        ("DeepSeek-V3", {"experts": replace(MODELS["DeepSeek-V3"].experts, shared=0)}),
        ("DeepSeek-V3", {"experts": replace(MODELS["DeepSeek-V3"].experts, dense_layers=0)}),
    ],
)
def test_a_wrong_configuration_breaks_a_fact(
    name: str, mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, name, replace(MODELS[name], **mistake))
    assert any(fact.startswith(f"{name}:") for fact in broken_facts(cases.facts()))


@pytest.mark.parametrize("mistake", [{"gated": True}, {"tied": False}, {"layers": 95}])
def test_a_wrong_gpt_3_breaks_a_fact(
    mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "GPT3", replace(arithmetic.GPT3, **mistake))
    assert "GPT-3 175B: parameters" in broken_facts(cases.facts())


widths = st.integers(1, 64)
experts = st.builds(
    Experts,
    routed=st.integers(4, 64),
    chosen=st.integers(1, 4),
    size=widths,
    shared=st.integers(0, 3),
    dense_layers=st.integers(0, 2),
)
latents = st.builds(Latent, query_rank=widths, key_value_rank=widths, rotary=widths)


def build_decoders(mixture: Any, latent: Any) -> Any:
    return st.builds(
        Decoder,
        layers=st.integers(2, 100),
        hidden=widths,
        heads=widths,
        kv_heads=widths,
        head_dim=widths,
        feed_forward=widths,
        vocabulary=widths,
        gated=st.booleans(),
        tied=st.booleans(),
        biases=st.booleans(),
        positions=st.integers(0, 64),
        experts=mixture,
        latent=latent,
    )


dense = build_decoders(st.none(), st.none())
mixtures = build_decoders(experts, st.none() | latents)
anything = st.one_of(dense, mixtures, build_decoders(st.none(), latents))
quick = settings(max_examples=60)


@quick
@given(anything)
def test_layers_add_parameters_and_flops(model: Decoder) -> None:
    deeper = replace(model, layers=model.layers + 1)
    assert arithmetic.parameters(deeper) > arithmetic.parameters(model)
    assert arithmetic.flops_per_token(deeper, 7) > arithmetic.flops_per_token(model, 7)


@quick
@given(anything)
def test_active_is_at_most_all(model: Decoder) -> None:
    total, active = arithmetic.parameters(model), arithmetic.parameters(model, active=True)
    assert active <= total
    if model.experts is None or model.layers <= model.experts.dense_layers:
        assert active == total
    elif model.experts.chosen < model.experts.routed:
        assert active < total


@quick
@given(anything, st.integers(1, 512))
def test_a_causal_mask_leaves_about_half_of_attention(model: Decoder, sequence: int) -> None:
    weights = 2 * arithmetic.multiplied(model)
    full = arithmetic.flops_per_token(model, sequence) - weights
    seen = arithmetic.flops_per_token(model, sequence, causal=True) - weights
    assert 2 * sequence * seen == (sequence + 1) * full
    assert arithmetic.training_flops_per_token(model, sequence) == 3 * (full + weights)


@quick
@given(st.integers(1, 10**12), st.integers(1, 1024))
def test_zero_falls_with_stages_and_ranks(count: int, ranks: int) -> None:
    by_stage = [arithmetic.state_bytes(count, stage, ranks) for stage in range(4)]
    assert by_stage[0] == 16 * count
    assert by_stage == sorted(by_stage, reverse=True)
    for stage in (1, 2, 3):
        assert arithmetic.state_bytes(count, stage, ranks + 1) < by_stage[stage]
        assert arithmetic.state_bytes(count, stage, 1) == 16 * count


@quick
@given(dense, st.integers(1, 512), st.integers(1, 8), st.booleans())
def test_recomputing_more_keeps_less(
    model: Decoder, sequence: int, batch: int, dropout: bool
) -> None:
    kept = [
        arithmetic.activation_bytes(model, sequence, batch, recompute, dropout)
        for recompute in ("none", "selective", "full")
    ]
    assert kept[0] > kept[1] > kept[2] > 0
    assert kept[0] == batch * arithmetic.activation_bytes(model, sequence, 1, "none", dropout)


@quick
@given(anything)
def test_a_latent_or_fewer_heads_shrink_the_cache(model: Decoder) -> None:
    cached = arithmetic.cache_bytes_per_token(model)
    assert arithmetic.cache_bytes_per_token(model, element=1) * 2 == cached
    if model.latent is None:
        more = replace(model, kv_heads=model.kv_heads + 1)
        assert arithmetic.cache_bytes_per_token(more) > cached


def test_what_is_not_covered_is_refused() -> None:
    with pytest.raises(ValueError, match="ZeRO stage 4 is not 0, 1, 2 or 3"):
        arithmetic.state_bytes(1, 4)
    with pytest.raises(ValueError, match="ranks = 0 is below 1"):
        arithmetic.state_bytes(1, 1, 0)
    with pytest.raises(ValueError, match="recompute = 'some' is unknown; use none, selective"):
        arithmetic.activation_bytes(arithmetic.GPT3, 8, recompute="some")
    for name in ("Mixtral 8x7B", "DeepSeek-V3"):
        with pytest.raises(ValueError, match="covers dense models"):
            arithmetic.activation_bytes(MODELS[name], 8)


class Heads(torch.nn.Module):
    """Attention over heads, K and V shared by groups of them."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.width, self.share = model.head_dim, model.heads // model.kv_heads
        values, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
        self.into = torch.nn.ModuleList(
            [torch.nn.Linear(model.hidden, size, model.biases) for size in (values, keys, keys)]
        )
        self.out = torch.nn.Linear(values, model.hidden, model.biases)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (f(x).unflatten(-1, (-1, self.width)).transpose(1, 2) for f in self.into)
        k, v = k.repeat_interleave(self.share, 1), v.repeat_interleave(self.share, 1)
        return self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


class LatentHeads(torch.nn.Module):
    """Multi-head latent attention, its low ranks multiplied out as in training."""

    def __init__(self, model: Decoder, rank: Latent) -> None:
        super().__init__()
        self.heads, self.width, self.rank = model.heads, model.head_dim, rank
        norm = torch.nn.RMSNorm

        def make_linear(inner: int, outer: int) -> torch.nn.Linear:
            return torch.nn.Linear(inner, outer, bias=False)

        self.queries = torch.nn.Sequential(
            make_linear(model.hidden, rank.query_rank),
            norm(rank.query_rank),
            make_linear(rank.query_rank, model.heads * (model.head_dim + rank.rotary)),
        )
        self.down = make_linear(model.hidden, rank.key_value_rank + rank.rotary)
        self.up = torch.nn.Sequential(
            norm(rank.key_value_rank),
            make_linear(rank.key_value_rank, model.heads * 2 * model.head_dim),
        )
        self.out = make_linear(model.heads * model.head_dim, model.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.queries(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        low, rotary = self.down(x).split([self.rank.key_value_rank, self.rank.rotary], -1)
        k, v = self.up(low).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(2, -1)
        k = torch.cat([k, rotary[:, None].expand(-1, self.heads, -1, -1)], -1)
        return self.out(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


class FeedForward(torch.nn.Module):
    def __init__(self, model: Decoder, width: int) -> None:
        super().__init__()
        count = 2 if model.gated else 1
        self.into = torch.nn.ModuleList(
            [torch.nn.Linear(model.hidden, width, model.biases) for _ in range(count)]
        )
        self.out = torch.nn.Linear(width, model.hidden, model.biases)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *gate = (f(x) for f in self.into)
        return self.out(functional.silu(first) * gate[0] if gate else functional.gelu(first))


class Mixture(torch.nn.Module):
    """All tokens meet the same experts: which they are changes no count."""

    def __init__(self, model: Decoder, experts: Experts) -> None:
        super().__init__()
        self.router = torch.nn.Linear(model.hidden, experts.routed, bias=False)
        count = experts.shared + experts.routed
        self.experts = torch.nn.ModuleList([FeedForward(model, experts.size) for _ in range(count)])
        self.met = experts.shared + experts.chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.router(x).sigmoid().sum(-1, keepdim=True)
        return sum((weight * expert(x) for expert in self.experts[: self.met]), x)


class Net(torch.nn.Module):
    """The model that a `Decoder` describes, for torch to count."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        norm = torch.nn.LayerNorm if model.biases else torch.nn.RMSNorm
        self.table = torch.nn.Embedding(model.vocabulary, model.hidden)
        self.positions = torch.nn.Embedding(model.positions, model.hidden)
        self.layers = torch.nn.ModuleList()
        for index in range(model.layers):
            attention = LatentHeads(model, model.latent) if model.latent else Heads(model)
            if model.experts and index >= model.experts.dense_layers:
                second: torch.nn.Module = Mixture(model, model.experts)
            else:
                second = FeedForward(model, model.feed_forward)
            for operation in (attention, second):
                self.layers.append(torch.nn.Sequential(norm(model.hidden), operation))
        self.norm = norm(model.hidden)
        self.output = torch.nn.Linear(model.hidden, model.vocabulary, bias=False)
        if model.tied:
            self.output.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.output(self.norm(x))


TWO_OF_SIX = Experts(routed=6, chosen=2, size=56)
WITH_SHARED = Experts(routed=5, chosen=2, size=20, shared=1, dense_layers=1)
LOW = Latent(query_rank=20, key_value_rank=12, rotary=4)
NETS = {
    "gpt": Decoder(2, 48, 3, 3, 16, 192, 101, gated=False, tied=True, biases=True, positions=37),
    "llama": Decoder(3, 64, 4, 2, 16, 88, 103),
    "wide heads": Decoder(1, 24, 5, 5, 8, 40, 11),
    "mixtral": Decoder(2, 32, 4, 2, 8, 56, 50, experts=TWO_OF_SIX),
    "deepseek": Decoder(3, 32, 4, 4, 8, 56, 50, experts=WITH_SHARED, latent=LOW),
}


@pytest.mark.parametrize("name", NETS)
def test_torch_counts_the_same(name: str) -> None:
    model, batch, sequence = NETS[name], 3, 29
    with torch.device("meta"):
        net = Net(model)
        tokens = torch.zeros(batch, sequence, dtype=torch.long)
    assert sum(p.numel() for p in net.parameters()) == arithmetic.parameters(model)
    with FlopCounterMode(display=False) as forward:
        loss = net(tokens).sum()
    per_token = arithmetic.flops_per_token(model, sequence)
    assert forward.get_total_flops() == batch * sequence * per_token
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    training = arithmetic.training_flops_per_token(model, sequence)
    assert backward.get_total_flops() == batch * sequence * (training - per_token)


def test_it_needs_the_standard_library_alone() -> None:
    tree = ast.parse(Path(arithmetic.__file__).read_text())
    modules = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert modules <= sys.stdlib_module_names - {"os", "pathlib", "subprocess"}  # nor files


def test_demo_shows_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    arithmetic.demo()
    shown = capsys.readouterr().out
    assert all(name in shown for name in MODELS)
    assert len(shown.splitlines()) <= 30

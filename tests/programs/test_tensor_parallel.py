"""Layers cut across ranks, with what is sent behind the products or beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import read_demo
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts, plant_in_ranks, read_facts

from snippets.async_tensor_parallel import async_tensor_parallel as ours
from snippets.async_tensor_parallel import cases as async_tensor_parallel_cases
from snippets.async_tensor_parallel.async_tensor_parallel import Event, Log, Loop
from snippets.collectives import Library, Ring
from snippets.tensor_parallel import cases as tensor_parallel_cases
from snippets.tensor_parallel import meeting, ring_rows, vocabulary
from snippets.tensor_parallel import tensor_parallel as tp

# tensor_parallel: its facts hold, and each of the usual mistakes breaks at least one of them.


TRUTH = tp.on_rank(Library(), "tensor", tp.SIZES)


def test_tensor_parallel_facts_hold() -> None:
    rows = read_facts(tensor_parallel_cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    for t in (2, 4, 8):
        for layout in tp.LAYOUTS:
            own = [name for name in names if name.startswith(f"{t} ranks, {layout}")]
            assert len(own) >= 2 + 2 * 3
    assert sum("torch's" in name for name in names) == 2 * (7 + 9)


def test_one_rank_is_the_model_that_torch_makes() -> None:
    """Without our own functions of autograd: the layers of torch, and its cross-entropy."""
    ids, targets, w = tp.whole(tp.SIZES)
    w = {name: one.requires_grad_() for name, one in w.items()}
    s, b, h, a, *_ = tp.SIZES
    x = F.embedding(ids, w["words"])
    for at in range(tp.SIZES.layers):
        p = {k: w[f"{at}.{k}"] for k in ("qkv", "out", "up", "down", "qkv_bias", "out_bias",
             "up_bias", "down_bias", "norm1", "norm2", "shift1", "shift2")}  # fmt: skip
        y = F.layer_norm(x, (h,), p["norm1"], p["shift1"]) @ p["qkv"].T + p["qkv_bias"]
        q, k, v = y.view(s, b, a, 3, h // a).permute(3, 1, 2, 0, 4)
        scores = q @ k.mT / math.sqrt(h // a)
        weights = scores.masked_fill(torch.ones(s, s).triu(1).bool(), -math.inf).softmax(-1)
        mixed = (weights @ v).permute(2, 0, 1, 3).reshape(s, b, h)
        x = x + mixed @ p["out"].T + p["out_bias"]
        y = F.layer_norm(x, (h,), p["norm2"], p["shift2"])
        x = x + F.gelu(y @ p["up"].T + p["up_bias"]) @ p["down"].T + p["down_bias"]
    logits = F.layer_norm(x, (h,), w["norm"], w["shift"]) @ w["words"].T
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    assert TRUTH["loss"] == pytest.approx(float(loss.detach()), rel=1e-14)
    for name, one in w.items():
        assert torch.allclose(TRUTH["grads"][name], one.grad, rtol=1e-11, atol=1e-13), name


def add_bias_on_every_rank(
    self: tp.Split, x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor
) -> torch.Tensor:
    return self.meet(F.linear(x, w, bias))


def skip_sum_of_norms(self: tp.Split, grads: tp.Parameters) -> tp.Parameters:
    return grads


def skip_sum_of_gradient(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
    return dy, None


def double_gradient(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
    return 2 * dy, None


def multiply_own_rows(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, w = ctx.saved_tensors
    own = dy.chunk(ctx.group.size)[ctx.group.rank]
    db = dy.flatten(0, -2).sum(0) if ctx.biased else None
    dw = own.flatten(0, -2).mT @ x.flatten(0, -2)
    return ctx.group.reduce_scatter(dy @ w), dw, db, None


def embed_unmasked(ids: torch.Tensor, words: torch.Tensor, rank: int) -> torch.Tensor:
    return F.embedding((ids - rank * len(words)).clamp(0, len(words) - 1), words)


TRUE_AROUND, TRUE_ALL_REDUCE = ring_rows.around, Library.all_reduce


def lag_by_one(x: torch.Tensor, ring: Ring) -> list[torch.Tensor]:
    found = TRUE_AROUND(x, ring)
    return found[1:] + found[:1]


def keep_own_largest(self: Library, x: torch.Tensor, how: str = "sum") -> torch.Tensor:
    """Each rank subtracts its own: the sums of exponentials then do not belong together."""
    return x if how == "max" else TRUE_ALL_REDUCE(self, x, how)


def all_reduce_twice(self: Library, x: torch.Tensor, how: str = "sum") -> torch.Tensor:
    TRUE_ALL_REDUCE(self, x, how)
    return TRUE_ALL_REDUCE(self, x, how)


TENSOR_PARALLEL_MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "bias on every rank": (tp.Split, "gather", add_bias_on_every_rank, "2 ranks, tensor: error"),
    "norms not summed": (tp.Split, "finish", skip_sum_of_norms, "sequence: largest error"),
    "gradient not summed": (
        meeting.Copied, "backward", staticmethod(skip_sum_of_gradient), "tensor: larg",
    ),
    "gradient summed twice": (
        meeting.Summed, "backward", staticmethod(double_gradient), "tensor: l",
    ),
    "not gathered again": (
        meeting.GatheredProduct, "backward", staticmethod(multiply_own_rows), "backward: sent",
    ),
    "words unmasked": (tp, "embedded", embed_unmasked, "tensor: error of the loss"),
    "ring one behind": (ring_rows, "around", lag_by_one, "ring: error of the loss"),
    "largest of its own": (Library, "all_reduce", keep_own_largest, "tensor: error of the loss"),
    "summed twice": (Library, "all_reduce", all_reduce_twice, "tensor, forward: sent"),
}  # fmt: skip


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", TENSOR_PARALLEL_MUTANTS)
def test_tensor_parallel_a_mistake_breaks_a_fact(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_in_ranks(monkeypatch, __name__, name, "TENSOR_PARALLEL_MUTANTS")
    failing = broken_facts(tensor_parallel_cases.of_ranks(2, TRUTH))
    assert any(TENSOR_PARALLEL_MUTANTS[name][3] in fact for fact in failing), failing
    assert tp.embedded is vocabulary.embedded, "the mistake leaked into this process"


def test_the_loss_bears_logits_that_overflow() -> None:
    logits = torch.tensor([[[1e4, -1e4, 0.0]], [[-1e4, 1e4, 1e4]]], dtype=torch.float64)
    targets = torch.tensor([[1], [2]])
    found = vocabulary.CrossEntropy.apply(logits, targets, Library())
    due = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    assert torch.allclose(found.flatten(), due)


def test_gradients_are_those_of_finite_differences() -> None:
    draw = torch.Generator().manual_seed(1)
    logits = torch.randn(3, 2, 5, generator=draw, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[0, 4], [2, 2], [1, 3]])
    assert torch.autograd.gradcheck(
        lambda x: vocabulary.CrossEntropy.apply(x, targets, Library()), [logits]
    )
    q, k, v = (
        torch.randn(2, 4, 3, generator=draw, dtype=torch.float64, requires_grad=True)
        for _ in range(3)
    )
    assert torch.autograd.gradcheck(
        lambda *x: ring_rows.RingRows.apply(*x, Ring(), True), [q, k, v]
    )


@pytest.mark.parametrize(
    ("change", "layout", "size", "message"),
    [
        ({"a": 7}, "tensor", 1, "the hidden size over heads does not split evenly"),
        ({}, "tensor", 3, "the heads over ranks does not split evenly"),
        ({"words": 99}, "tensor", 2, "the vocabulary over ranks does not split evenly"),
        ({"s": 25}, "sequence", 2, "the sequence over ranks does not split evenly"),
        ({"s": 25}, "ring", 2, "the sequence over ranks does not split evenly"),
        ({}, "rows", 2, "no layout 'rows'; there are tensor, sequence, ring"),
    ],
)
def test_what_does_not_split_is_refused(
    change: dict[str, int], layout: str, size: int, message: str
) -> None:
    group = Library()
    group.size = size
    with pytest.raises(ValueError, match=f"^tensor_parallel: .*{message}"):
        tp.Split(tp.SIZES._replace(**change), group, layout)


def test_what_need_not_split_is_let_be() -> None:
    group = Library()
    group.size = 2
    tp.Split(tp.SIZES._replace(s=25), group, "tensor")
    tp.Split(tp.SIZES._replace(words=99, a=3), group, "ring")


@pytest.mark.alone
def test_the_demo_finds_one_loss() -> None:
    lines = read_demo(tp).splitlines()
    assert len(set(line.split()[-1] for line in lines if " loss " in line)) == 1


# async_tensor_parallel: its facts hold, and each of the usual mistakes breaks one of them.


TRUE_SHARDS, TRUE_SCATTER, TRUE_NOTE = Loop.shards, Loop.matmul_scatter, Loop.note
TRUE_PASS_ON = Ring.pass_on


def test_async_tensor_parallel_facts_hold() -> None:
    rows = read_facts(async_tensor_parallel_cases)
    names = [row["name"] for row in rows]
    assert (
        len(names)
        == len(set(names))
        == 3 * 3 * 2 * (3 + 4 + 2 + len(async_tensor_parallel_cases.LINKS))
    )
    assert broken_facts(rows) == []


@pytest.mark.exhaustive("facts once more, on two ranks")
@pytest.mark.alone
def test_two_ranks_meet_as_well() -> None:
    assert broken_facts(async_tensor_parallel_cases.of_ranks(2)) == []


def gather_all_first(self: Loop, x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    """Everything is there before anything is multiplied."""
    return iter(list(TRUE_SHARDS(self, x)))


def shift_owners(self: Loop, x: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    t = self.ring.size
    return (((owner + 1) % t, shard) for owner, shard in TRUE_SHARDS(self, x))


def keep_own(self: Loop, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    TRUE_SCATTER(self, x, w)
    return x.chunk(self.ring.size)[self.ring.rank] @ w.T


def roll_rows(self: Loop, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return TRUE_SCATTER(self, x.roll(len(x) // self.ring.size, 0), w)


def pass_on_one_way(self: Ring, tensors: Any, hops: int = 1) -> Any:
    return TRUE_PASS_ON(self, tensors, 1)


def pass_on_twice(self: Ring, tensors: Any, hops: int = 1) -> Any:
    TRUE_PASS_ON(self, tensors, hops)()
    return TRUE_PASS_ON(self, tensors, hops)


ASYNC_TENSOR_PARALLEL_MUTANTS: dict[str, tuple[Any, str, Any, str]] = {
    "all gathered first": (Loop, "shards", gather_all_first, "ring: transfers under a product"),
    "another's shard": (Loop, "shards", shift_owners, "ring: error of y"),
    "what came is not added": (Loop, "matmul_scatter", keep_own, "scatter, ring: error of y"),
    "sums of another's rows": (Loop, "matmul_scatter", roll_rows, "gather, ring: error of dx"),
    "both go one way": (Ring, "pass_on", pass_on_one_way, "both ways: error of"),
    "sent twice": (Ring, "pass_on", pass_on_twice, "forward: sent by a rank"),
}


@pytest.mark.exhaustive("all usual mistakes, each with ranks of its own")
@pytest.mark.alone
@pytest.mark.parametrize("name", ASYNC_TENSOR_PARALLEL_MUTANTS)
def test_async_tensor_parallel_a_mistake_breaks_a_fact(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_in_ranks(monkeypatch, __name__, name, "ASYNC_TENSOR_PARALLEL_MUTANTS")
    failing = broken_facts(async_tensor_parallel_cases.of_ranks(4))
    assert any(ASYNC_TENSOR_PARALLEL_MUTANTS[name][3] in fact for fact in failing), failing
    assert Loop.shards is TRUE_SHARDS, "the mistake leaked into this process"


def record_gather_log(way: str, t: int) -> Log:
    """What rank 0 of t does to gather, without another rank: all have the same shard."""
    ring = Ring()
    ring.size = t
    ring.pass_on = lambda tensors, hops=1: lambda: list(tensors)  # type: ignore[method-assign]
    ring.all_gather = lambda x: x.repeat(t, 1)  # type: ignore[method-assign]
    loop = Loop(ring, way)
    loop.gather_matmul(torch.ones(2, 3), torch.ones(4, 3))
    return loop.log


@given(st.sampled_from(ours.WAYS), st.integers(2, 40), st.floats(0.01, 20))
def test_the_clock_is_its_formula_on_any_number_of_ranks(way: str, t: int, link: float) -> None:
    log = record_gather_log(way, t)
    assert {one.shard for one in log if one.what == "product"} == set(range(t))
    assert ours.clock(log, 1, link) == pytest.approx(
        async_tensor_parallel_cases.done(way, t, link)[0], rel=1e-12
    )
    assert async_tensor_parallel_cases.hidden(log) == (0 if way == "collective" else t - 1)


@given(st.integers(2, 40), st.floats(0.01, 20))
def test_a_loop_is_never_later_than_the_collective(t: int, link: float) -> None:
    due, _ = async_tensor_parallel_cases.done("collective", t, link)
    for way in ours.WAYS[1:]:
        found, _ = async_tensor_parallel_cases.done(way, t, link)
        assert max(t, link) <= found <= due + 1e-9
    assert (
        async_tensor_parallel_cases.done("both ways", t, link)[0]
        <= async_tensor_parallel_cases.done("ring", t, link)[0] + 1e-9
    )


def test_the_clock_waits_for_what_was_sent_first() -> None:
    log = [Event("send", 0), Event("product", 0), Event("send", 1), Event("arrive", 0)]
    assert ours.clock(log, 1, 3) == 3
    assert ours.clock([*log, Event("arrive", 1)], 1, 3) == 4


def test_one_rank_needs_nobody() -> None:
    x, w = torch.randn(4, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    for way in ours.WAYS:
        loop = Loop(Ring(), way)
        given = [one.clone().requires_grad_() for one in (x, w)]
        assert torch.allclose(loop.gather_matmul(x, w), x @ w.T)
        assert torch.allclose(loop.matmul_scatter(x, w), x @ w.T)
        for function in (ours.GatherMatmul, ours.MatmulScatter):
            assert torch.autograd.gradcheck(lambda *a, f=function, o=loop: f.apply(*a, o), given)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="no way 'push'; there are collective, ring, both ways"):
        Loop(Ring(), "push")
    ring = Ring()
    ring.size = 3
    with pytest.raises(ValueError, match="^async_tensor_parallel: 4 rows do not split over 3; pad"):
        Loop(ring, "ring").matmul_scatter(torch.ones(4, 3), torch.ones(2, 3))

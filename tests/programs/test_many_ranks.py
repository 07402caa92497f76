"""many_ranks: its facts hold, CommDebugMode counts as it does, and a rank that differs is seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from snippet_facts import broken_facts, read_facts

from snippets import ranks
from snippets.collectives import Library
from snippets.many_ranks import cases, many_ranks
from snippets.many_ranks.many_ranks import Call
from snippets.tensor_parallel import tensor_parallel as tp

TRUE_STEPS = many_ranks.STEPS


def test_facts_hold() -> None:
    rows = read_facts(cases)
    names = [row["name"] for row in rows]
    assert len(names) == len(set(names))
    assert broken_facts(rows) == []
    for size in (512, 4096):
        for way in many_ranks.STEPS:
            assert sum(name.startswith(f"{size} ranks, {way}") for name in names) >= 7


def test_a_call_knows_what_a_ring_sends_for_it() -> None:
    assert Call("all_gather", 800, 8).sent == 700
    assert Call("reduce_scatter", 800, 8).sent == 700
    assert Call("all_reduce", 800, 8).sent == 1400
    assert Call("all_reduce", 800, 1).sent == 0


def count_calls_twice(at: int, count: int) -> tuple[dict[str, int], dict[str, int]]:
    """A step under both, on a rank of 4,096: CommDebugMode's counts, and ours."""
    from torch.distributed.tensor.debug import CommDebugMode  # 3 s, which collection need not take

    dist.destroy_process_group()
    with many_ranks.pretend(77, 4096):
        mesh = many_ranks.mesh_of(4096, 8)
        with CommDebugMode() as mode:
            calls = many_ranks.by_hand(mesh, "sequence")
        theirs: Counter[str] = Counter()
        for name, n in mode.get_comm_counts().items():
            key = str(name).split(".")[-1].strip("_").removesuffix("_base")
            theirs[{"allreduce": "all_reduce", "allgather": "all_gather"}.get(key, key)] += n
    return dict(theirs), dict(Counter(call.kind for call in calls))


@pytest.mark.alone
def test_comm_debug_mode_counts_as_many() -> None:
    [(theirs, ours)] = ranks.run(count_calls_twice, 1, backend="gloo")
    assert theirs == ours
    assert sum(ours.values()) == 15 + 10 + 3 + 1


def skip_sum_on_one_rank(mesh: Any) -> list[Call]:
    """Rank 9 alone leaves out the sum of its gradients."""
    calls = TRUE_STEPS["tensor"](mesh)
    return calls[:-1] if dist.get_rank() == 9 else calls


def reduce_over_all_ranks(mesh: Any) -> list[Call]:
    with many_ranks.Recorder() as recorder:
        Library().all_reduce(torch.zeros(7, dtype=torch.float64))
    return TRUE_STEPS["tensor"](mesh)[:-1] + recorder.calls


@pytest.mark.alone
@pytest.mark.parametrize(
    ("step", "what"),
    [(skip_sum_on_one_rank, "that call other than 0"), (reduce_over_all_ranks, "bytes")],
)
def test_a_rank_that_calls_otherwise_is_seen(
    step: Any, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_ranks, "STEPS", {"tensor": step})
    asked = [0, 9, 511]
    told = many_ranks.told_by(asked, 512, 8)
    failing = broken_facts(cases.of_many(512, "tensor", asked, [one["tensor"] for one in told]))
    assert any(what in name for name in failing), failing


def test_groups_are_refused_that_do_not_divide() -> None:
    with pytest.raises(ValueError, match="^many_ranks: 100 ranks do not split into groups of 8"):
        many_ranks.mesh_of(100, 8)


def pretend_within_rank(rank: int, size: int) -> None:
    with many_ranks.pretend(0, 64):
        pass


@pytest.mark.alone
def test_a_rank_does_not_pretend_to_be_another() -> None:
    with pytest.raises(ranks.RankError, match="this process is a rank; ask one that is not"):
        ranks.run(pretend_within_rank, 1, backend="gloo")


def test_padding_is_none_where_rows_split() -> None:
    layers, ends = cases.padded(1)
    w = tp.whole(tp.SIZES)[2]
    own = sum(one.numel() // (1 if tp.cut(k) is None else 8) for k, one in w.items())
    assert layers + ends == own + w["words"].numel() // 8


def test_this_small_model_is_padded_eightfold_as_the_page_says() -> None:
    assert sum(cases.padded(512)) == 8 * sum(cases.padded(64))

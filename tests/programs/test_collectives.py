"""Collectives: what they move between ranks, and whether every rank calls the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import exhaustive
from snippet_facts import broken_facts, read_facts

from snippets import ranks
from snippets.collectives import Library, Ring
from snippets.many_ranks import cases, many_ranks
from snippets.many_ranks.many_ranks import Call
from snippets.tensor_parallel import tensor_parallel as tp

# collectives: snippets/collectives.py: both sorts give the same, and a ring sends what its formulas
# say.


WORD = torch.float64.itemsize


def draw_rows_of_rank(rank: int, rows: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rank)
    return torch.randn(rows, 3, generator=draw, dtype=torch.float64)


def call_every_collective(rank: int, size: int, rows: int) -> list[dict[str, Any]]:
    """What each collective gives, and what a ring has sent for it, by sort."""
    told = []
    for group in (Library(), Ring()):
        found: dict[str, Any] = {}
        calls = {
            "sum": lambda group=group: group.all_reduce(draw_rows_of_rank(rank, rows)),
            "max": lambda group=group: group.all_reduce(draw_rows_of_rank(rank, rows), "max"),
            "gather": lambda group=group: group.all_gather(draw_rows_of_rank(rank, rows)),
            "scatter": lambda group=group: group.reduce_scatter(
                draw_rows_of_rank(rank, rows * size)
            ),
            "turned": lambda group=group: group.all_reduce(draw_rows_of_rank(rank, rows).T),
            "exchange": lambda group=group: torch.cat(
                group.all_to_all(list(draw_rows_of_rank(rank, rows * size).split(rows)))
            ),
            "columns": lambda group=group: torch.cat(
                group.all_to_all(draw_rows_of_rank(rank, rows * size).T.chunk(size, 1)), 1
            ),
            "uneven": lambda group=group: torch.cat(
                group.all_to_all(  # rank r has r + 1 rows for each
                    [draw_rows_of_rank(rank, rank + 1) + to for to in range(size)],
                    [torch.empty(one + 1, 3, dtype=torch.float64) for one in range(size)],
                )
            ),
        }
        for name, call in calls.items():
            wire = getattr(group, "wire", None)
            before = (wire.sent, wire.messages) if wire else (0, 0)
            found[name] = call()
            after = (wire.sent, wire.messages) if wire else (0, 0)
            found[f"{name} sent"] = tuple(b - a for a, b in zip(before, after, strict=True))
        found["calls"] = dict(group.calls)
        told.append(found)
    return told


@pytest.mark.alone
@pytest.mark.parametrize(
    ("size", "rows"), exhaustive([(2, 3), (1, 4), (4, 5), (3, 1)], "every number of ranks")
)
def test_both_sorts_give_what_torch_says_on_one_process(size: int, rows: int) -> None:
    told = ranks.run(call_every_collective, size, rows, backend="gloo")
    own_rows = [draw_rows_of_rank(rank, rows) for rank in range(size)]
    many = torch.stack([draw_rows_of_rank(rank, rows * size) for rank in range(size)])
    for rank, sorts in enumerate(told):
        for found in sorts:
            assert torch.allclose(found["sum"], sum(own_rows), rtol=1e-14, atol=1e-14)
            assert torch.allclose(found["turned"], sum(own_rows).T, rtol=1e-14, atol=1e-14)
            assert torch.equal(found["max"], torch.stack(own_rows).amax(0))
            assert torch.equal(found["gather"], torch.cat(own_rows))
            due = many.sum(0).chunk(size)[rank]
            assert torch.allclose(found["scatter"], due, rtol=1e-14, atol=1e-14)
            assert torch.equal(
                found["exchange"], torch.cat([one.split(rows)[rank] for one in many])
            )
            assert torch.equal(
                found["uneven"],
                torch.cat([draw_rows_of_rank(one, one + 1) + rank for one in range(size)]),
            )
            assert torch.equal(found["columns"], found["exchange"].T)
            calls = {"all_reduce": 3, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 3}
            assert found["calls"] == (calls if size > 1 else {})


@pytest.mark.alone
@pytest.mark.parametrize(
    ("size", "rows"), exhaustive([(2, 4), (1, 4), (4, 5)], "every number of ranks")
)
def test_a_ring_sends_what_its_formulas_say(size: int, rows: int) -> None:
    other = size - 1
    for rank, (_, ring) in enumerate(ranks.run(call_every_collective, size, rows, backend="gloo")):
        piece = -(-rows * 3 // size) * WORD  # padded so that it splits
        assert ring["sum sent"] == ring["max sent"] == (2 * other * piece, 2 * other)
        assert ring["gather sent"] == (other * rows * 3 * WORD, other)
        assert ring["scatter sent"] == (other * rows * 3 * WORD, other)
        assert ring["exchange sent"] == (other * rows * 3 * WORD, other)
        assert ring["uneven sent"] == (other * (rank + 1) * 3 * WORD, other)


def reduce_in_two_groups(rank: int, size: int) -> tuple[float, float, torch.Tensor]:
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[rank // 2]
    x = torch.tensor([float(rank)])
    ring = Ring(mine)
    return (
        float(ring.all_reduce(x)),
        float(Library(mine).all_reduce(x)),
        ring.all_gather(x) + 10 * ring.rank,
    )


@pytest.mark.alone
def test_a_group_keeps_to_itself() -> None:
    told = ranks.run(reduce_in_two_groups, 4, backend="gloo")
    assert [one[:2] for one in told] == [(1, 1), (1, 1), (5, 5), (5, 5)]
    assert [one[2].tolist() for one in told] == [[0, 1], [10, 11], [2, 3], [12, 13]]


def test_without_a_group_each_returns_what_it_is_given() -> None:
    x = draw_rows_of_rank(0, 4)
    for group in (Library(), Ring()):
        assert (group.rank, group.size) == (0, 1)
        assert torch.equal(group.all_reduce(x), x)
        assert torch.equal(group.all_gather(x), x)
        assert torch.equal(group.reduce_scatter(x), x)
        assert torch.equal(group.all_to_all([x])[0], x)
        assert not group.calls


def test_rows_that_do_not_split_are_refused() -> None:
    group = Library()
    group.size = 3
    with pytest.raises(ValueError, match=r"^collectives: 4 rows do not split over 3 ranks; pad"):
        group.reduce_scatter(draw_rows_of_rank(0, 4))


# many_ranks: its facts hold, CommDebugMode counts as it does, and a rank that differs is seen.


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

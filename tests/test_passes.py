from __future__ import annotations

import pytest

from warpshelf.passes import Costs, Job, Kind, Schedule, timed

ONE = [[(0, 0)]]  # the way of one micro-batch over one rank


def forward(j: int, chunk: int = 0) -> tuple[Job, ...]:
    return (Job(Kind.FORWARD, j, chunk),)


def backward(j: int, chunk: int = 0) -> tuple[Job, ...]:
    return (Job(Kind.BACKWARD, j, chunk),)


def spans(made: Schedule) -> list[tuple[int, str, int, int]]:
    return [
        (one.rank, f"{one.kind.value}{one.micro_batch}", one.start, one.end) for one in made.passes
    ]


def test_a_rank_waits_for_its_input_and_for_itself() -> None:
    chain = [[(0, 0), (1, 0)]] * 2
    orders = [[forward(0), forward(1), backward(0), backward(1)]] * 2
    made = timed("two", orders, chain, Costs(2, 1, 1))
    assert spans(made) == [
        (0, "F0", 0, 2),
        (0, "F1", 2, 4),
        (1, "F0", 2, 4),
        (1, "F1", 4, 6),
        (1, "B0", 6, 8),
        (0, "B0", 8, 10),
        (1, "B1", 8, 10),
        (0, "B1", 10, 12),
    ]
    assert made.makespan == 12 and [made.idle(0), made.idle(1)] == [4, 4]


def test_halves_of_a_backward_pass_take_its_time_and_hold_until_the_second_is_done() -> None:
    order = [forward(0), (Job(Kind.INPUT, 0),), forward(1), backward(1), (Job(Kind.WEIGHT, 0),)]
    made = timed("split", [order], ONE * 2, Costs(1, 2, 3))
    assert [one.length for one in made.passes] == [1, 2, 1, 5, 3]
    assert made.held(0) == 2
    whole = timed("whole", [[forward(0), backward(0), forward(1), backward(1)]], ONE * 2, None)
    assert whole.held(0) == 1


def test_a_pair_takes_the_time_of_both_and_counts_once() -> None:
    first = [forward(0), (*forward(1, 1), *backward(0)), backward(1, 1)]
    made = timed("pair", [first], [[(0, 0)], [(0, 1)]], Costs(1, 1, 1))
    pair = [one for one in made.passes if one.paired]
    assert [(one.start, one.length) for one in pair] == [(1, 3), (1, 3)]
    assert made.makespan == 6 and made.idle(0) == 0


def test_an_order_that_can_never_go_on_is_refused() -> None:
    with pytest.raises(ValueError, match=r"knot: ranks \[0\] wait for each other"):
        timed("knot", [[backward(0), forward(0)]], ONE, None)

"""Searches over a space whose answer is known, and what a search is charged for."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path

import pytest

from snippets.search_methods import search_methods as methods
from snippets.search_methods.search_methods import METHODS, Enough, Space, Trials

SIZES = (3, 4, 5)
POINTS = [(a, b, c) for a in range(3) for b in range(4) for c in range(5) if a + b + c != 4]


def make_bowl(hole: tuple[int, int, int] = (2, 1, 3)) -> Space:
    """A valley with one lowest place, and some places forbidden."""
    costs = {
        point: 10.0 + sum((x - y) ** 2 for x, y in zip(point, hole, strict=True))
        for point in POINTS
    }
    return Space("bowl", SIZES, costs)


def test_a_configuration_is_charged_once_and_what_is_forbidden_is_free() -> None:
    trials = Trials(make_bowl(), most=10)
    assert trials((0, 0, 4)) is None and trials.reached == []
    assert trials((0, 0, 0)) == trials((0, 0, 0)) == 10 + 4 + 1 + 9
    assert trials.reached == [10 / 24]
    assert trials((2, 1, 2)) == 11 and trials((0, 0, 0)) == 24
    assert trials.reached == [10 / 24, 10 / 11]
    assert trials.needed(0.9) == 2 and math.isinf(trials.needed())


def test_a_search_stops_at_its_goal_and_at_its_budget() -> None:
    trials = Trials(make_bowl(), most=2)
    trials((0, 0, 0))
    with pytest.raises(Enough):
        trials((0, 0, 1))
    trials = Trials(make_bowl(), most=9, share=10 / 11)
    with pytest.raises(Enough):
        trials((2, 1, 2))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_method_finds_the_best_and_repeats_itself(method: str, seed: int) -> None:
    one, other = (methods.search(make_bowl(), method, seed, share=1.0) for _ in range(2))
    assert one.reached == other.reached and one.reached[-1] == 1
    assert len(one.reached) <= len(POINTS)
    assert one.reached == sorted(one.reached)


@pytest.mark.parametrize("method", ["basin hopping", "Bayesian"])
def test_a_valley_is_found_sooner_than_at_random(method: str) -> None:
    space = make_bowl()
    needed = [methods.search(space, method, seed).needed() for seed in range(10)]
    assert sum(needed) / 10 < methods.expected_at_random(space)


def test_the_expectation_is_that_of_drawing_without_replacement() -> None:
    space = Space("two good of five", (5,), {(i,): 1.0 if i < 2 else 9.0 for i in range(5)})
    # The first good one of 5 in random order: 1 with 2/5, 2 with 3/10, 3 with 1/5, 4 with 1/10.
    assert methods.expected_at_random(space) == pytest.approx(0.4 + 0.6 + 0.6 + 0.4)


def make_space_record(gpus: int, figures: str, *lines: str) -> dict:
    return {
        "machine": {"gpus": gpus, "device": "Imaginary G9"},
        "space": {
            "parameters": [{"name": "tile", "values": [16, 32]}, {"name": "ab", "values": ["x"]}],
            "figures": figures.split(),
            "rows": {"sm_90": lines},
        },
    }


def test_a_measured_space_is_preferred_and_what_spills_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "RESULTS", tmp_path)
    with pytest.raises(FileNotFoundError, match="^search_methods: .* run autotune first"):
        methods.spaces()
    made = make_space_record(
        0, "registers spilled_bytes cycles", "16 x: 32 0 7e3", "32 x: 64 4 5e3"
    )
    space = made.pop("space")
    (tmp_path / "cpu.json").write_text(json.dumps(made | {"packed": ["space"]}))
    (tmp_path / "cpu.xz").write_bytes(
        lzma.compress(json.dumps({"record": {"space": space}}).encode())
    )
    assert methods.spaces() == [Space("compiled for sm_90", (2, 1), {(0, 0): 7e3})]
    made = make_space_record(
        1, "median p20 p80 n", "16 x: 3e-3 2e-3 4e-3 15", "32 x: 2e-3 1e-3 3e-3 15"
    )
    (tmp_path / "imaginary-g9.json").write_text(json.dumps(made))
    due = Space("Imaginary G9", (2, 1), {(0, 0): 3e-3, (1, 0): 2e-3})
    assert methods.spaces() == [due]

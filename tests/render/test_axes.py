"""Scales put values where they belong, and their ticks are round."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import steady

from warpshelf.render import axes, svg
from warpshelf.render.axes import Scale

RATES = st.floats(min_value=1e-20, max_value=1e20)


def test_a_scale_has_its_ends_where_they_are_said_to_be() -> None:
    for log in (False, True):
        scale = Scale(2, 32, 100, 20, log)
        assert [scale(2), scale(32)] == pytest.approx([100, 20])
    assert Scale(2, 32, 0, 100)(17) == pytest.approx(50)
    assert Scale(2, 32, 0, 100, log=True)(8) == pytest.approx(50)
    assert Scale(0, 10, 4, 104)(-1) == pytest.approx(-6)  # what lies beyond is drawn beyond


def test_the_area_lies_between_its_margins() -> None:
    x, y = axes.across(0, 1), axes.upwards(0, 1)
    assert (x(0), x(1)) == (axes.LEFT, svg.WIDTH - axes.RIGHT)
    assert (y(0), y(1)) == (axes.TOP + axes.AREA, axes.TOP)


@steady
@given(RATES)
def test_steps_are_round_few_and_reach_the_most(most: float) -> None:
    step, top = axes.rounded(most)
    lead = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(lead - f) for f in (1, 2, 5, 10)) < 1e-6
    assert most <= top * (1 + 1e-9) and 2 <= round(top / step) <= 7


@steady
@given(RATES, st.floats(1.5, 30))
def test_decades_are_on_their_scale_and_few(low: float, wide: float) -> None:
    scale = axes.upwards(low, low * 10**wide, log=True)
    found = axes.decades(scale)
    assert 1 <= len(found) <= axes.MOST
    assert all(scale.low / 1.001 <= value <= scale.high * 1.001 for value in found)


def test_labels_are_in_the_units_of_the_axis() -> None:
    assert axes.labelled([0, 5e11, 1e12], axes.prefix("TB/s")) == [
        (0, "0"),
        (5e11, "0.5"),
        (1e12, "1"),
    ]
    assert [axes.prefix(unit) for unit in ("B/s", "kB/s", "PFLOP/s")] == [1.0, 1e3, 1e15]


def test_labels_that_would_touch_are_left_out_but_the_name_never() -> None:
    x = axes.across(1, 1000, log=True)
    ticks = [(float(n), str(n)) for n in range(900, 1001, 10)]
    drawn = list(axes.sizes(x, ticks, "n"))
    assert len(drawn) < len(ticks) / 2 and ">900<" in drawn[0] and ">n<" in drawn[-1]
    assert len(list(axes.columns(x, ticks, "n"))) == 2 * len(ticks) + 1

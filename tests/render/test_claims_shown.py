"""What others state and what a model predicts, beside what was measured."""

from __future__ import annotations

import html
import re
from html import unescape

import pytest
from made_up_records import (
    make_case,
    make_exhibit,
    make_goals,
    make_measured,
    make_predictions,
    make_record,
    make_result,
    make_verified,
    show_evidence,
)
from support.shown_html import plain_words as words

from warpshelf.readings.published import PublishedFigure
from warpshelf.render.claims import matches_case, render_claims
from warpshelf.render.fragments import PLACE, build_fragments
from warpshelf.render.snippet_page import Claim, MachineState, SourceLink

LINK = "/kernels/softmax.md#reading-a"


def make_claim(title: str = "A paper", **more: object) -> Claim:
    given: dict = {
        "figure": 2.0,
        "unit": "TB/s",
        "what": "Their softmax",
        "device": "Imaginary G9",
        "setting": "float32, 4096 columns",
        "reading": "a-paper",
        "place": "Table 2",
        "case": {"m": 4096, "dtype": "float32"},
    }
    return Claim(
        PublishedFigure(**given | more), SourceLink(title, LINK), "https://example.org/a?b=1&c=2"
    )


def show_claims(*states: MachineState, claims: tuple[Claim, ...] = ()) -> str:
    return render_claims(make_exhibit(*states, reported=claims or (make_claim(),)), PLACE)


def test_a_figure_stands_with_its_device_setting_and_place() -> None:
    html = show_claims(make_verified())
    said = "Reported elsewhere: one figure from one source, none of them measured here"
    assert f"<summary>{said}</summary>" in unescape(html)
    cells = [words(cell).strip() for cell in re.findall(r"<t[hd][^>]*>.*?</t[hd]>", html)]
    assert cells[:5] == ["What", "Figure", "Device", "Setting", "Place"]
    assert cells[5:] == [
        "A paper", "Their softmax", "2 TB/s", "Imaginary G9", "float32, 4096 columns", "Table 2"
    ]  # fmt: skip
    assert 'href="https://example.org/a?b=1&c=2"' in unescape(html)
    assert 'Reported in: <a href="../kernels/softmax/#reading-a">A paper</a>' in html
    assert "Measured here" not in html


@pytest.mark.parametrize(
    ("figure", "unit", "said"),
    [(19721.0, "GFLOP/s", "19721 GFLOP/s"), (2788000, "GPU hours", "2 788 000 GPU hours"),
     (1.5, "×", "1.5×"), (41.5, "%", "41.5 %")],
)  # fmt: skip
def test_a_figure_is_written_as_it_is_stated(figure: float, unit: str, said: str) -> None:
    html = show_claims(claims=(make_claim(figure=figure, unit=unit, case=None),))
    assert said in words(html).replace("\u202f", " ")


def test_without_figures_nothing_is_shown() -> None:
    assert render_claims(make_exhibit(make_verified()), PLACE) == ""


def test_it_stands_on_the_page_apart_from_what_was_measured() -> None:
    whole = show_evidence(make_exhibit(make_verified(), reported=(make_claim(),)))
    ours, apart = whole.split('<details class="ws-fold ws-claims"')
    assert "Their softmax" in apart and "Their softmax" not in ours
    assert "errors" in ours


def make_fast_machine(median: float = 134_217_728 / 1e12) -> MachineState:
    """A machine on which the large case takes so long that its rate is 1 TB/s."""
    peer = make_result("torch", median * 0.8, "peer")
    rows = [make_result("one pass", median), make_result("online", median * 2), peer]
    return make_measured(make_record(cases=[make_case(4096, 4096, rows, timed=True)]))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "1.00 TB/s, 0.500× of it, on Imaginary G9 80GB"),
        ({"variant": "online"}, "500 GB/s, 0.250× of it"),
        ({"figure": 500, "unit": "GB/s"}, "1.00 TB/s, 2.00× of it"),
        ({"figure": 1.25, "unit": "TFLOP/s"}, "625 GFLOP/s, 0.500× of it"),
        ({"figure": 268.435456, "unit": "µs"}, "134 µs, 2.00× of it"),
        ({"figure": 160, "unit": "%", "share_of": "torch"}, "80.0 %, 0.500× of it"),
    ],
)
def test_a_current_record_of_such_a_device_stands_beside_it(more: dict, said: str) -> None:
    html = show_claims(make_fast_machine(), claims=(make_claim(**more),))
    assert said in words(html)
    assert "one figure from one source, 1 of them measured here as well" in words(html)


@pytest.mark.parametrize(
    "more",
    [
        {"device": "Imaginary G7"},
        {"device": "8 × Imaginary G9"},
        {"device": "Imaginary G9 40GB"},
        {"case": None},
        {"case": {"m": 4095}},
        {"case": {"m": 4096, "dtype": "float16"}},
        {"variant": "fancy"},
        {"unit": "%", "share_of": "fancy"},
    ],
)
def test_nothing_else_is_set_against_it(more: dict) -> None:
    html = show_claims(make_fast_machine(), claims=(make_claim(**more),))
    assert "none of them measured here" in words(html) and "× of it" not in words(html)


@pytest.mark.parametrize("state", ["stale", "failed"])
def test_a_record_of_other_code_is_not_set_against_it(state: str) -> None:
    found = make_fast_machine().record
    html = show_claims(MachineState(found, state, "imaginary-g9-80gb"))
    assert "none of them measured here" in words(html)


def test_a_variant_that_failed_is_not_set_against_it() -> None:
    row = make_result("one pass", 1e-4) | {"verdict": "failed", "reason": "wrong"}
    found = make_record(cases=[make_case(4096, 4096, [row], timed=True)])
    assert "none of them measured here" in words(show_claims(make_measured(found)))


def test_figures_without_a_measurement_say_so_beside_those_with_one() -> None:
    html = show_claims(
        make_fast_machine(), claims=(make_claim(), make_claim(device="Imaginary G7", what="Old"))
    )
    assert "Measured here" in html and "not measured here on such a device" in words(html)
    assert "2 figures from one source, 1 of them measured here as well" in words(html)


def test_many_figures_are_folded_and_grouped_by_their_source() -> None:
    claims = tuple(make_claim(f"Paper {i % 2}", what=f"Kernel {i}") for i in range(5))
    html = show_claims(claims=claims)
    assert html.count("rowgroup") == 2 and html.count("<tbody>") == 2
    assert "<details" in html and " open>" not in html
    assert " open>" in show_claims(claims=claims[:4])


def test_a_case_is_named_by_some_of_its_values() -> None:
    ours = {"m": 1, "causal": True, "out": ["a", "b"], "d": 128}
    assert matches_case({"m": 1, "causal": True}, ours) and matches_case({"out": ["a", "b"]}, ours)
    assert not matches_case({"m": True}, ours) and not matches_case({"causal": 1}, ours)
    assert not matches_case({"k": 1}, ours) and not matches_case({"out": ["a"]}, ours)


def test_hostile_words_do_nothing() -> None:
    bad = '<script>alert(1)</script> | [x](y) --8<-- "z" **b** &lt;'
    html = show_claims(
        make_fast_machine(),
        claims=(make_claim(bad, what=bad, device="G9 " + bad[:90], setting=bad),),
    )
    assert "<script" not in html and "--8<--" not in html
    assert bad in words(html)


def make_predicted_state(**more: object) -> MachineState:
    found = make_record(
        0, kind="model", **{"predictions": make_predictions(), "goals": make_goals()} | more
    )
    return MachineState(found, "verified", "cpu")


def test_errors_stand_by_set_with_what_they_are_held_to() -> None:
    page = words(build_fragments(make_exhibit(make_predicted_state(), kind="model"))["predictions"])
    assert "Rows Mean error Median Worst Within 5 % Within 10 %" in page
    assert "Paper, table 1 and 1 fitted 2 5.0 % 5.0 % 6.0 % 1 of 2 2 of 2" in page
    assert "Blog 1 50.0 % 50.0 % 50.0 % 0 of 1 0 of 1" in page
    assert "table 1 2 of 2 rows within 10 %; a run fails below 100 % of rows" in page
    assert "median error 6.00 %; a run fails over 6 %" in page


def test_every_row_stands_beside_what_was_published() -> None:
    page = words(show_evidence(make_exhibit(make_predicted_state(), kind="model")))
    assert "small fitted on it 101 TFLOP/s 100 TFLOP/s +1.0 % Online normalizer" in page
    assert "middle 96 TFLOP/s 100 TFLOP/s −4.0 %" in page
    assert "a <b> node 0.75 TFLOP/s 0.5 TFLOP/s +50.0 %" in page


def test_the_plot_has_a_mark_for_each_row_and_says_the_sets() -> None:
    text = build_fragments(make_exhibit(make_predicted_state(), kind="model"))["predictions"]
    plot = re.search(r"<svg.*?</svg>", text, re.DOTALL)
    assert plot
    drawn = plot.group()
    assert drawn.count('class="ws-s0" fill="currentColor"') == 2 + 1  # and one in the legend
    assert drawn.count('class="ws-s0" fill="none"') == 1  # fitted
    assert drawn.count('class="ws-s1" fill="currentColor"') == 1 + 1
    told = html.unescape(drawn)
    assert "<desc>Paper, table 1: median 5.0 %; Blog: median 50.0 %</desc>" in told
    heights = [float(one) for one in re.findall(r'<circle cx="[^"]+" cy="([^"]+)"', drawn)]
    assert heights[0] < heights[1]  # 1 % too large lies above 4 % too small
    assert "Hollow rows were used to fit a constant." in html.unescape(text)


def test_without_fitted_rows_none_is_called_hollow() -> None:
    rows = [one | {"fitted": False} for one in make_predictions()]
    assert (
        "Hollow"
        not in build_fragments(make_exhibit(make_predicted_state(predictions=rows)))["predictions"]
    )


def test_a_set_of_fitted_rows_alone_has_no_errors() -> None:
    rows = [one | {"fitted": one["set"] == "Blog"} for one in make_predictions()]
    page = words(
        build_fragments(
            make_exhibit(make_predicted_state(predictions=rows, goals=make_goals()[:1]))
        )["predictions"]
    )
    assert "Blog and 1 fitted 0 none none none none none" in page


def test_a_stale_record_shows_no_prediction() -> None:
    stale = MachineState(make_predicted_state().record, "stale", "cpu")
    page = words(build_fragments(make_exhibit(stale, kind="model"))["predictions"])
    assert "5.0 %" not in page
    assert "Source changed since" in page

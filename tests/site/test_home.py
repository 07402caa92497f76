"""The generated parts of the front page."""

from __future__ import annotations

import re
from html import unescape

from made_up_records import (
    make_exhibit,
    make_facts,
    make_ladder,
    make_measured,
    make_record,
    make_verified,
)

from warpshelf.readings.model import Shelf
from warpshelf.render.snippet_page import MachineState
from warpshelf.site import rendering

PAGES = {"softmax": "/kernels/softmax.md#snippet-softmax"}
HOSTILE = '<script>alert(1)</script> **x** [y](javascript:z) `--8<-- "/etc/passwd"`'


def read_fragment(fragment: str) -> str:
    """What a reader sees of an HTML fragment."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", fragment)).split())


def test_no_record_is_said() -> None:
    for states in ((), (MachineState(None, "not measured", "cpu"),)):
        card = rendering.render_result([make_exhibit(*states)], PAGES)
        assert read_fragment(card) == "No result of the present code is recorded yet."
    assert rendering.render_result([], {}) == rendering.render_result([make_exhibit()], PAGES)


def test_withheld_records_count_for_nothing() -> None:
    for state in ("stale", "failed"):
        shown = [make_exhibit(MachineState(make_record(), state, "imaginary-g9-80gb"))]
        assert "No result" in rendering.render_result(shown, PAGES)
        assert read_fragment(rendering.render_counts(Shelf(), shown)) == (
            "0 readings 1 snippet 0 checks passed 0 machines"
        )


def test_a_check_on_the_cpu_is_a_result() -> None:
    card = rendering.render_result([make_exhibit(make_verified())], PAGES)
    seen = read_fragment(card)
    assert "row sums 1.000 to 1.000" in seen
    assert "Checked on CPU, 6 May 2031, commit abc1234" in seen
    assert "worst error, float32 3.10e-8 of 5.00e-6 allowed, 4 checks" in seen
    assert "fastest" not in seen and "timed" not in seen
    assert "[See the kernel and every case](/kernels/softmax.md#snippet-softmax)" in seen


def test_a_measured_result_comes_before_a_check() -> None:
    checked = make_exhibit(make_verified(make_record(0, date="2032-01-01T00:00:00Z")), id="other")
    for shown in (
        [checked, make_exhibit(make_measured(), make_verified())],
        [make_exhibit(make_measured()), checked],
    ):
        seen = read_fragment(rendering.render_result(shown, PAGES))
        assert "Verified and timed on Imaginary G9 80GB, 6 May 2031" in seen
        # 8 * 4096**2 bytes in the shortest of our own medians, 49.1 microseconds
        assert "fastest, 4096 × 4096" in seen and "2.73 TB/s by one pass" in seen


def test_the_last_measured_comes_first() -> None:
    older = make_exhibit(make_measured(make_record(demo="older\n")))
    newer = make_exhibit(
        make_measured(make_record(demo="newer\n", date="2031-05-07T00:00:00Z")), id="other"
    )
    for shown in ([older, newer], [newer, older]):
        assert "newer" in rendering.render_result(
            shown, {}
        ) and "older" not in rendering.render_result(shown, {})


def test_without_a_page_there_is_no_link() -> None:
    assert "](" not in rendering.render_result([make_exhibit(make_verified())], {})


def test_a_programs_facts_count_but_are_no_kernel_result() -> None:
    found = make_record(0, cases=[], kind="program", facts=make_facts())
    shown = [make_exhibit(make_verified(found), kind="program")]
    assert "No result" in rendering.render_result(shown, PAGES)
    assert "2 checks passed 1 machine" in read_fragment(rendering.render_counts(Shelf(), shown))


def test_counts_hold_what_passed_and_no_peer() -> None:
    shown = [
        make_exhibit(make_measured(), make_verified()),
        make_exhibit(make_verified(), id="other"),
    ]
    # 2 variants on 2 small cases, and on the GPU 3 variants on the timed one
    assert (
        read_fragment(rendering.render_counts(Shelf(), shown))
        == "0 readings 2 snippets 15 checks passed 2 machines"
    )
    one = [make_exhibit(make_verified(make_record(0, cases=make_ladder(False)[:1])))]
    one[0].states[0].record["cases"][0]["results"].pop(0)
    assert (
        read_fragment(rendering.render_counts(Shelf(), one))
        == "0 readings 1 snippet 1 check passed 1 machine"
    )


def test_hostile_names_are_text() -> None:
    found = make_record(demo=HOSTILE, commit=HOSTILE, device=HOSTILE)
    for case in found["cases"]:
        case["case"] = {HOSTILE: HOSTILE, "dtype": HOSTILE}
        for row in case["results"]:
            row["name"] = HOSTILE
    card = rendering.render_result([make_exhibit(make_measured(found), title=HOSTILE)], PAGES)
    assert read_fragment(card).count("<script>alert(1)</script>") >= 6
    body = card.rpartition("\n\n")[0]
    for mark in ("<script", "**", "](", "--8<--", "`"):
        assert mark not in body, mark

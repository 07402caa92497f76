"""Records side by side and over time, as a page shows them: words, plots, tables."""

from __future__ import annotations

import copy
import re
from html import unescape

from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_records import (
    make_case,
    make_exhibit,
    make_machine,
    make_measured,
    make_record,
    make_result,
    make_verified,
    show_evidence,
)
from made_up_records import plain_words as words

from warpshelf.records.history import Version
from warpshelf.records.store import record_keys
from warpshelf.render import plots, results
from warpshelf.render.fragments import build_fragments
from warpshelf.render.plots import RecordHistory
from warpshelf.render.results import render_disagreements
from warpshelf.render.snippet_page import MachineState, SnippetPage
from warpshelf.site import rendering

SLUG = "imaginary-g9-80gb"
DRIVERS = ("driver 1", "driver 2", "driver 3")
BAD = '<script>alert(1)</script> "x" --8<-- "y" [a](b)'


def make_timed(
    *factors: float, n: int = 1, date: str = "2031-05-06T07:08:09Z", **more: object
) -> dict:
    """A record of `n` timed cases, in which functions take such factors of the usual."""
    software = more.pop("software", {})
    rows = [make_result(f"way {at}", 1e-4 * factor) for at, factor in enumerate(factors)]
    rows.append(make_result("torch", 1e-4, "peer"))
    cases = [make_case(4096, 4096 + at, copy.deepcopy(rows), timed=True) for at in range(n)]
    return make_record(cases=cases, date=date, **more) | {"machine": make_machine() | software}


def make_machine_page(*records: dict, apart: tuple[str, ...] = DRIVERS) -> SnippetPage:
    """An exhibit of one machine with several records, told apart by such words."""
    states = [
        MachineState(found, "measured", key, apart=words)
        for found, key, words in zip(records, record_keys(SLUG), apart, strict=False)
    ]
    return make_exhibit(*states, make_verified())


def over_time(*records: dict, slower: str = "", **more: object) -> SnippetPage:
    """An exhibit of one machine, whose versions are `records`, the newest last."""
    path = f"snippets/softmax/results/{SLUG}.json"
    versions = [Version(one, f"{at:040x}", path) for at, one in enumerate(records)]
    versions[-1] = versions[-1]._replace(slower=slower)
    return make_exhibit(
        make_measured(records[-1]), make_verified(), history={SLUG: versions}, **more
    )


# Side by side.


def test_where_records_disagree_is_said_above_the_times() -> None:
    shown = make_machine_page(make_timed(1.0, 1.0), make_timed(1.3, 1.02))
    text = words(render_disagreements(shown))
    assert text.startswith("Two records of Imaginary G9 80GB disagree by more than the spread of")
    assert "in 1 of 3 times. Both are kept" in text
    assert (
        "way 0, 4096 × 4096 scale 1 float32: 100 µs (98.0 µs to 103 µs) with driver 1; 130 µs"
        in text
    )
    assert "way 1" not in text and text.count("SM clock 1980 MHz") == 2
    whole = build_fragments(shown)["whole"]
    assert whole.index("ws-apart") < whole.index("ws-plots")


def test_many_disagreements_fold_and_many_records_are_all_there() -> None:
    html = render_disagreements(
        make_machine_page(make_timed(1.0, n=5), make_timed(1.3, n=5), make_timed(2.0, n=5))
    )
    assert '<details class="ws-fold ws-apart"><summary>' in html
    text = words(html)
    assert "Three records" in text and "All are kept" in text and "in 5 of 10 times" in text
    assert text.count("with driver 3") == 5


def test_records_that_agree_by_now_say_so() -> None:
    text = words(render_disagreements(make_machine_page(make_timed(1.0), make_timed(1.001))))
    assert "Two records of Imaginary G9 80GB agree within the spread of both" in text
    assert render_disagreements(make_machine_page(make_timed(1.0))) == ""
    stale = MachineState(make_timed(3.0), "stale", f"{SLUG}.2", apart="driver 2")
    assert render_disagreements(make_exhibit(make_measured(make_timed(1.0)), stale)) == ""


def test_a_kind_of_machine_counts_once() -> None:
    shown = [make_machine_page(make_timed(1.0), make_timed(1.3))]
    assert results.count_snippets(shown).gpus == ("Imaginary G9 80GB",)
    from warpshelf.readings.model import Shelf

    assert "<strong>2</strong> machines" in rendering.render_counts(Shelf(), shown)


def test_columns_are_named_by_what_all_their_records_share() -> None:
    first = make_machine_page(make_timed(1.0), make_timed(1.3))
    other = make_machine_page(
        make_timed(1.0), make_timed(1.3), apart=("made by Ada", "made by Grace")
    )
    alone = make_exhibit(make_measured(make_timed(1.0)), id="alone")
    names = [one.name for one in results.rank_machines([first])]
    assert names == ["Imaginary G9 80GB, driver 1", "Imaginary G9 80GB, driver 2"]
    names = [one.name for one in results.rank_machines([first, other, alone])]
    assert names == ["Imaginary G9 80GB", "Imaginary G9 80GB, second record"]
    html = results.side_by_side([first, other])
    assert 'data-name="Imaginary G9 80GB, second record"' in unescape(html)
    assert "Imaginary G9 80GB, second record <small>made by Grace</small>" in unescape(html)


# Over time.


def show_history(page: SnippetPage) -> str:
    """The history of its newest machine."""
    return plots.render_history(page, page.states[0])


def test_two_versions_are_drawn_and_one_is_not() -> None:
    first = make_timed(1.0, 1.0, software={"driver": "550.1"})
    again = make_timed(0.8, 1.001, date="2031-09-01T00:00:00Z")
    shown = over_time(first, again)
    html = show_history(shown)
    assert html.count("<figure") == 1 and html.count('class="ws-changed"') == 2
    text = words(html)
    assert "2: driver 550.1 → 999.1" in text and "A dotted line is a change" in text
    assert "of 3 times of the last one 0 are slower than before, 1 faster" in text
    assert "80.0 µs 1.68 TB/s 1.25× faster" in text
    assert "from 6 May 2031 to 1 Sep 2031" in text and "commit 00000000" in text
    assert "ws-history" in show_evidence(shown)
    assert "ws-history" not in show_evidence(over_time(again))


def test_an_axis_that_does_not_start_at_0_says_so() -> None:
    near = show_history(over_time(make_timed(1.0), make_timed(1.05)))
    assert "The axis starts at 1.20 TB/s" in words(near)
    far = show_history(over_time(make_timed(1.0), make_timed(3.0)))
    assert "The axis starts" not in words(far) and "dotted" not in far


def test_earlier_times_stand_in_no_ones_place() -> None:
    stale = MachineState(make_timed(1.0), "stale", SLUG)
    versions = [Version(make_timed(one), None, "x") for one in (1.0, 2.0)]
    shown = make_exhibit(stale, make_verified(), history={SLUG: versions})
    assert all(
        "µs" not in text for text in (show_evidence(shown), *build_fragments(shown).values())
    )


def test_what_changed_most_is_drawn_and_the_table_has_all() -> None:
    first, last = make_timed(1.0, n=5), make_timed(1.0, n=5)
    last["cases"][3]["results"][0]["time"] = make_result("x", 3e-4)["time"]
    html = plots.render_history(shown := over_time(first, last), shown.states[0])
    assert html.count("<figure") == plots.FIGURES == 2
    assert "over time, 4096 × 4099" in words(html.partition("</figure>")[0])
    assert html.count('scope="rowgroup"') == 5


def test_many_changes_do_not_fill_the_legend() -> None:
    several = [make_timed(1.0, software={"driver": str(at)}) for at in range(20)]
    html = show_history(over_time(*several))
    assert "further changes: see below" in words(html)
    assert words(html).count("driver 18 → 19") == 2  # told to who sees no plot, and in the table


def test_a_function_that_came_later_has_no_earlier_time() -> None:
    html = show_history(over_time(make_timed(1.0), make_timed(1.0, 1.0)))
    assert words(html).count("no time") == 1


def test_a_case_without_a_cost_has_a_table_alone() -> None:
    first, last = make_timed(1.0), make_timed(2.0)
    for one in (first, last):
        for key in ("bytes", "flops", "unit"):
            del one["cases"][0][key]
    html = show_history(over_time(first, last))
    assert "<figure" not in html and "2.00× slower" in words(html)


def test_slower_has_its_reason_or_the_lack_of_one() -> None:
    first, last = make_timed(1.0, 1.0), make_timed(1.3, 1.6)
    unsaid = words(build_fragments(over_time(first, last))["whole"])
    assert "Slower than before on Imaginary G9 80GB : not explained yet. way 1," in unsaid
    assert "100 µs (98.0 µs to 103 µs) against 160 µs" in unsaid and "and 1 more" in unsaid
    said = words(build_fragments(over_time(first, last, slower="It spills"))["whole"])
    assert "Slower than before on Imaginary G9 80GB : It spills. way 1," in said
    faster = build_fragments(over_time(last, first, slower="no more"))["whole"]
    assert "ws-slower" not in faster


def test_hostile_words_do_nothing() -> None:
    first = make_timed(1.0, software={"driver": BAD})
    last = make_timed(2.0, origin={"who": BAD})
    last["cases"][0]["results"][0]["name"] = first["cases"][0]["results"][0]["name"] = BAD
    shown = over_time(first, last, slower=BAD)
    html = show_history(shown) + build_fragments(shown)["whole"]
    html += render_disagreements(make_machine_page(first, last, apart=(BAD, BAD)))
    html += results.side_by_side([make_machine_page(first, last, apart=(BAD, BAD))])
    assert "<script" not in html and "--8<--" not in html and "](b)" not in html
    assert BAD in unescape(html)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.floats(1e-9, 1e9), st.integers(0, 2**62), st.sampled_from(["1", "2", None])),
        min_size=2,
        max_size=8,
    )
)
def test_any_versions_give_sound_pieces(rows: list[tuple[float, int, str | None]]) -> None:
    several = [
        make_record(cases=[make_case(1, 2, [make_result("a", median)], timed=True, bytes=size)])
        | {"machine": make_machine() | {"driver": driver}}
        for median, size, driver in rows
    ]
    html = plots.render_history(shown := over_time(*several), shown.states[0])
    html += plots.slowdown_notice(shown, shown.states[0])
    assert not re.search(r"(?<![\w/])(nan|inf|None)(?![\w.])", words(html))
    assert html.count("<tr") == html.count("</tr>") and "\n\n" not in html
    for number in re.findall(r' (?:x|y|x1|y1|x2|y2)="([^"]*)"', html):
        assert -1 <= float(number) <= 2000
    told = RecordHistory(SLUG, shown.history[SLUG], True).describe_versions()
    assert len(told) == len(rows) and told[0]["changed"] == ""

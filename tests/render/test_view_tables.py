"""The table of what the machine does with each kernel: its figures, and what it does not claim."""

from __future__ import annotations

import html
import re

import pytest
from made_up_records import (
    make_case,
    make_exhibit,
    make_record,
    make_result,
    make_verified,
    show_evidence,
)
from made_up_views import ARCHS, CASE, make_view

from warpshelf.look.bound import VariantCost
from warpshelf.look.view import View, view_name
from warpshelf.look.view_store import summarize_view
from warpshelf.render import views
from warpshelf.render.snippet_page import SnippetPage


def keep_both_views(**changes: object) -> list[View]:
    """Both kernels on each architecture, with changes by variant: `naive={"registers": 40}`."""
    found = []
    for variant in ("naive", "tiled"):
        for arch in ARCHS:
            one = make_view(variant, arch, **changes.get(variant, {}))  # type: ignore[arg-type]
            found.append(summarize_view(one, True))
    return found


def make_bounds(naive: float, tiled: float) -> dict[str, dict[str, object]]:
    """Changes that give the two such bounds."""
    given = {"naive": naive, "tiled": tiled}
    return {
        name: {"bound": {"limiter": "load and store", "cycles": cycles, "pipes": []}}
        for name, cycles in given.items()
    }


def show_table(one: SnippetPage) -> str:
    """The text of the table, a line for each row, its cells parted by bars."""
    text = re.sub(r"</t[hd]>", "|", show_evidence(one))
    text = re.sub(r"</tr>|</summary>|</caption>", "\n", text)
    return html.unescape(re.sub(r"<[^>]*>", "", text))


def test_a_row_has_what_was_counted_beside_its_ideal() -> None:
    text = show_table(make_exhibit(views=keep_both_views()))
    tiled = next(line for line in text.splitlines() if line.strip().startswith("tiled"))
    cells = [cell.strip() for cell in tiled.split("|")]
    assert cells[:8] == [
        "tiled transpose_tiled",
        "4224 load and store",
        "864",
        "32",
        "1024 ideal",
        "4224 16.5× ideal",
        "24 11 live",
        "64 of 64 by threads",
    ]
    naive = next(line for line in text.splitlines() if line.strip().startswith("naive"))
    assert "4608 4.50× ideal| none|" in naive


def test_a_small_bound_is_not_rounded_away() -> None:
    text = show_table(make_exhibit(views=keep_both_views(**make_bounds(2.5, 4224))))
    assert "2.50 load and store| 800" in text


def test_it_says_of_what_and_that_it_is_no_time() -> None:
    text = show_table(make_exhibit(views=keep_both_views()))
    for arch in ARCHS:
        assert f"Executed from its PTX for {arch} on a CPU: counts, no times" in text
    assert "NVRTC 12.8" in text and "64 × 64 float32" in text and "A bound is not a time" in text
    assert not re.search(r"\d\s*(ns|µs|ms|s)\b", text)


def test_the_floor_is_that_of_the_same_case() -> None:
    cost = {"bytes": 32768, "flops": 4096, "unit": "fp32"}
    other = make_case(1, 1, [make_result("naive")], bytes=8)
    same = {"case": dict(CASE), "timed": False, "results": [make_result("naive")], **cost}
    found = show_table(
        make_exhibit(make_verified(make_record(0, [other, same])), views=keep_both_views())
    )
    assert found.count("32 KiB to and from memory, 4096 operations of fp32") == len(ARCHS)
    found = show_table(
        make_exhibit(make_verified(make_record(0, [other])), views=keep_both_views())
    )
    assert "to and from memory" not in found


@pytest.mark.parametrize(
    ("naive", "said", "first"),
    [
        (16896, "the bound of naive is 4.00× that of tiled", "tiled"),
        (4000, "the bounds do not separate the variants", "naive"),
        (5000, "the bounds do not separate the variants", "tiled"),
        (1000, "the bounds do not separate the variants", "naive"),  # it touches more sectors
    ],
)
def test_variants_are_ordered_and_told_apart_only_where_bounds_are(
    naive: float, said: str, first: str
) -> None:
    text = show_table(make_exhibit(views=keep_both_views(**make_bounds(naive, 4224))))
    assert text.splitlines()[0] == f"What the machine does with it: on sm_90 {said}"
    names = re.findall(r"^\s*(naive|tiled) ", text, re.M)
    assert names[0] == names[2] == first
    assert ("1 of 2" in text) == ("do not separate" not in said) == ("Rank by bound" in text)


def test_a_variant_of_two_kernels_counts_with_both() -> None:
    first, second = keep_both_views(**make_bounds(1000, 4224))[::2]
    both = [first, second | {"variant": "naive"}]
    sectors = first["total"]["sectors"] + second["total"]["sectors"]
    assert views.variant_totals(both) == {"naive": VariantCost(5224, sectors)}


def test_several_cases_stand_apart() -> None:
    other = keep_both_views(naive={"case": {**CASE, "m": 96}})
    text = show_table(make_exhibit(views=other))
    assert "Rank by bound" not in text  # nothing of one case is compared with another
    assert "no times; 96 × 64" in text and "no times; 64 × 64" in text


def test_it_is_part_of_the_evidence_where_there_are_views() -> None:
    with_views = make_exhibit(make_verified(), views=keep_both_views())
    assert views.views_table(with_views) in show_evidence(with_views)
    assert "ws-look" not in show_evidence(make_exhibit(make_verified()))


def test_each_row_names_its_view_where_that_is_whole() -> None:
    first, *others = keep_both_views()
    slim = first | {"whole": False}
    text = show_evidence(make_exhibit(views=[slim, *others]))
    named = re.findall(r'data-look="softmax/([^"]*)"', text)
    assert sorted(named) == sorted(map(view_name, others))
    whole = show_evidence(make_exhibit(views=keep_both_views()))
    assert text == whole.replace(f' data-look="softmax/{view_name(first)}"', "")

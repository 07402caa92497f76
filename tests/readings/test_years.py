"""The year that a venue or an arXiv number tells."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf.readings.fields import FIRST_YEAR
from warpshelf.readings.years import meant, named

NEXT = datetime.now(UTC).year + 1
PREPRINT = "https://arxiv.org/abs/2307.08691"


@pytest.mark.parametrize(
    ("venue", "years"),
    [
        ("ICLR 2024", [2024]),
        ("CVPR2016", [2016]),
        ("Neurocomputing 568 (2024)", [2024]),
        ("NVIDIA Technical Report NVR-2016-002", [2016]),
        ("SC'11", [2011]),
        ("SC\u201911", [2011]),
        ("ISCA '99", [1999]),
        ("GTC 2021, session S31151", [2021]),
        ("GTC 2021, held again in 2022", [2021, 2022]),
        ("SOSP 2023, a paper of SOSP 2023", [2023]),
        ("session S2025", []),
        ("Computing 102, pages 1989-2005", []),
        ("Journal 14(4)", []),
        ("arXiv", []),
        (f"ICLR {NEXT}", [NEXT]),
        (f"ICLR {NEXT + 1}", []),
        ("Part 120245", []),
        ("", []),
    ],
)
def test_a_venue_names_its_years(venue: str, years: list[int]) -> None:
    assert named(venue) == years


@pytest.mark.parametrize(
    ("url", "venue", "years"),
    [
        (PREPRINT, "ICLR 2024", [2024]),
        (PREPRINT, "arXiv", [2023]),
        (PREPRINT, "ARXIV ", [2023]),
        (PREPRINT, None, None),  # where it appeared is not said, so neither is its year
        (PREPRINT, "Journal of Machine Learning Research", None),
        ("https://arxiv.org/abs/math/0309136", "arXiv", [2003]),
        ("https://arxiv.org/abs/hep-th/9901001", "arXiv", [1999]),
        ("https://doi.org/10.48550/arXiv.2307.08691", "arXiv", [2023]),
        ("https://example.org/2019/a", "arXiv", None),
        ("https://example.org/2019/a", "PPoPP 2020", [2020]),
    ],
)
def test_who_says_which_year(url: str, venue: str | None, years: list[int] | None) -> None:
    told = meant(url, venue)
    assert (told and told[0]) == years


def test_an_address_that_is_none_is_said_to_be() -> None:
    with pytest.raises(ValueError, match="does not start with"):
        meant("example.org", "arXiv")


@given(st.text(max_size=80))
def test_any_venue_can_be_asked(venue: str) -> None:
    found = named(venue)
    assert len(found) == len(set(found)) and all(FIRST_YEAR <= year <= NEXT for year in found)


@given(st.integers(FIRST_YEAR, NEXT), st.from_regex(r"[A-Z]{2,8}", fullmatch=True))
def test_a_conference_and_its_year_name_it(year: int, conference: str) -> None:
    assert named(f"{conference} {year}") == named(f"{conference}{year}") == [year]

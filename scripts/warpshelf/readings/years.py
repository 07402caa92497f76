"""The year of a work: that of the version which its venue names.

A preprint and its publication often fall into different years. The list, the exports and the sort
by year can hold one, and it is the venue's, so that "ICLR 2024" never stands beside 2023. Where
there is only a preprint, arXiv's number tells the year.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from warpshelf.readings.fields import FIRST_YEAR
from warpshelf.readings.identity import identity

# 2024 in `ICLR 2024`, `CVPR2016` and `NVR-2016-002`; not in `S20241` or the pages `1989-2005`.
NAMED = re.compile(r"(?<!\d)(?<!\d-)(?<!\b[A-Za-z])(?:19|20)\d\d(?!\d|-\d{4})|[\'\u2019]\d\d(?!\w)")
NUMBER = re.compile(r"arxiv:(?:.+/)?(\d\d)\d\d")  # 2307.08691, and math/0309136 of before 2007
PREPRINT = "arxiv"


def named(venue: str) -> list[int]:
    """The years that the text of a venue names: 2024 in `ICLR 2024`, 2011 in `SC'11`."""
    texts = NAMED.findall(venue)
    found = (int(text) if len(text) == 4 else _century(int(text[1:])) for text in texts)
    return [year for year in dict.fromkeys(found) if FIRST_YEAR <= year <= _last()]


def meant(url: str, venue: str | None) -> tuple[list[int], str] | None:
    """The years that an entry's `year` may be, and who says so; None where nobody does.

    The venue says it where it names a year. Where the preprint is all there is, which is so if the
    venue is arXiv, its number says it.

    Raises:
        ValueError: `url` is not an absolute http or https URL.
    """
    if venue and (years := named(venue)):
        return years, f"its venue is {venue}"
    number = NUMBER.match(identity(url))
    if venue and venue.strip().lower() == PREPRINT and number:
        year = _century(int(number[1]))
        return [year], f"its arXiv number is of {year}"
    return None


def _century(two: int) -> int:
    return 2000 + two if 2000 + two <= _last() else 1900 + two


def _last() -> int:
    return datetime.now(UTC).year + 1

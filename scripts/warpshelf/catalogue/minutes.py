"""How long a step of a path takes: counted for a page of ours, estimated for a reading.

An estimate is a number of minutes that its entry gives, or else what its kind usually takes. It is
shown with "about", and the fragment `paths/minutes.md` says by what rule it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from warpshelf.core.pages import FRONT, Page
from warpshelf.readings.model import Reading
from warpshelf.render import listings
from warpshelf.render.exhibit import Exhibit

WORDS = 120  # a minute, of prose that is thought about
LINES = 10  # a minute, of code that is understood
RUN = 3  # to start a snippet and look at what it prints
KINDS = {
    "paper": 90, "post": 30, "talk": 60, "code": 60, "docs": 30, "course": 600, "book": 900,
    "tool": 20, "site": 60,
}  # fmt: skip
MANY = 20  # minutes from which on only every fifth is told
INCLUDE = re.compile(r'^[ \t]*-+8<-+[ \t]+"(?P<target>[^"\n]+)"[ \t]*$', re.M)
FENCE = re.compile(
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*\n(?P<code>.*?)^[ \t]*(?P=fence)", re.M | re.S
)
LIST = re.compile(r"^## Readings\b.*", re.M | re.S)  # what is read elsewhere
TAG = re.compile(r"<[^>]*>")
WORD = re.compile(r"\w[\w’'-]*")


def of_page(page: Page, shown: Mapping[str, Exhibit]) -> int:
    """Minutes for one of our pages, by its words and the code that it shows."""
    text = FRONT.sub("", page.text, count=1)
    text = LIST.sub("", text)
    code = sum(_lines(found["code"]) for found in FENCE.finditer(text))
    code += sum(_embedded(found["target"], shown) for found in INCLUDE.finditer(text))
    prose = TAG.sub(" ", INCLUDE.sub(" ", FENCE.sub(" ", text)))
    return max(1, round(len(WORD.findall(prose)) / WORDS + code / LINES))


def of_reading(reading: Reading) -> int:
    """Minutes for a reading: those of its entry, or those of its kind."""
    return reading.minutes or KINDS[reading.kind]


def of_run(exhibit: Exhibit | None) -> int:
    """Minutes to run a snippet, and to read the part of it that opens first."""
    return RUN + round(opened(exhibit) / LINES) if exhibit else RUN


def opened(exhibit: Exhibit) -> int:
    """Lines of code that a page shows of a snippet before anything is unfolded."""
    total = 0
    for one in exhibit.code:
        first = listings.opening(one.text, exhibit.kind)
        total += _lines(listings.section(one.text, first) if first else one.text)
    return total


def told(minutes: int) -> str:
    """In words: `7 min`, `1 h 30 min`, `12 h`."""
    rounded = minutes if minutes < MANY else 5 * round(minutes / 5)
    hours, rest = divmod(rounded, 60)
    if hours >= 10:  # over so long, minutes are no help
        return f"{round(rounded / 60)} h"
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest or not hours))


def rule() -> str:
    """The fragment `paths/minutes.md`: how the minutes of a step are made."""
    kinds = ", ".join(f"{told(minutes)} for a {kind}" for kind, minutes in KINDS.items())
    kinds = kinds.replace("a docs", "a manual's section").replace("for a code", "for a repository")
    return (
        f"Minutes of our own pages are counted: {WORDS} words a minute, {LINES} lines of code a"
        " minute, without the list of readings. Those of a reading are an estimate, which its entry"
        f" gives or its kind: {kinds}. To run a snippet takes {RUN} minutes more than to read what"
        " its page shows of it.\n"
    )


def _embedded(target: str, shown: Mapping[str, Exhibit]) -> int:
    """Lines of code behind `<id>/whole.md`, `<id>/code.md` or `<id>/<file>:<section>`."""
    name, _, section = target.partition(":")
    first, _, file = name.partition("/")
    exhibit = shown.get(first)
    if exhibit is None:
        return 0
    if file in ("whole.md", "code.md"):
        return opened(exhibit)
    texts = [one.text for one in exhibit.code if one.name == file]
    if not texts or section not in listings.section_names(texts[0]):
        return 0
    return _lines(listings.section(texts[0], section))


def _lines(code: str) -> int:
    included = INCLUDE.sub("", code)  # counted where it is embedded
    return sum(bool(line.strip()) for line in included.split("\n"))

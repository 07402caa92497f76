"""When two titles name one work: on the shelf, and behind a link; and which year is the work's.

On the shelf two titles are alike where they have the same words, left aside case, punctuation,
spaces, articles and the like, and plurals; or where they differ in one slip of one long word; or,
if they are long, in one word that one of them leaves out; or where one is the other without its
subtitle. Numbers always tell works apart, and so do words of a few letters: FlashAttention-2 and
FlashAttention-3, part I and part II, GEMM and GEMV. They are found without comparing each with
each.

Behind a link the title comes from the web, with its markup, and only ours is asked whether it can
be the same; so more is forgiven.

The year of a work is that of the version which its venue names. A preprint and its publication
often fall into different years. The list, the exports and the sort by year can hold one, and it is
the venue's, so that "ICLR 2024" never stands beside 2023. Where there is only a preprint, arXiv's
number tells the year.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

from warpshelf.readings.identity import work_identity
from warpshelf.readings.model import FIRST_YEAR

TOKEN = re.compile(r"\d+(?:\.\d+)*|[^\W\d_]+")
NUMBER = re.compile(r"\d.*|[ivx]+|.")  # of a part: 2, II, B
SIGNS = str.maketrans({"'": "", "\u2019": "", "\u02bc": ""})
SUBTITLE = re.compile(r"\s*[:\uff1a]\s*|\s+[-\u2013\u2014|]\s+|\s*\u2014\s*")
SMALL = {
    "a", "an", "and", "as", "at", "by", "for", "from", "in", "is", "of", "on", "or", "the", "to",
    "via", "with",
}  # fmt: skip
SERIES = {  # as _stem leaves them
    "appendix", "chapter", "day", "episod", "lectur", "lesson", "modul", "part", "session",
    "supplement", "volum", "week",
}  # fmt: skip
# Words that make a work of their own out of another's title.
MARKS = SERIES | {"addendum", "beyond", "extended", "reply", "revisited", "slid", "toward",
                  "without"}  # fmt: skip
PREFIXES = {
    "a", "an", "anti", "as", "auto", "co", "de", "di", "dis", "en", "hyper", "im", "in", "inter",
    "intra", "ir", "macro", "micro", "mini", "mono", "multi", "non", "over", "pre", "re", "semi",
    "sub", "super", "un", "under",
}  # fmt: skip
LONG = 6  # letters from which one slip leaves a word what it was
MANY = 8  # words from which one may be missing
LATIN = re.compile(r"[a-z\u00df-\u024f]+")
ACCENT = re.compile("(?<=[a-z])[\u0300-\u036f]+")  # of other scripts they make other letters
MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|\\[A-Za-z]+|[${}\\^]")  # MathML of Crossref, TeX of arXiv
# Of a work behind a link, in per cent:
CLOSE = 86  # two titles of one work; below, they name two
AKIN = 62  # the words of a preprint's and of its publication's title
NAMED = 75  # a repository's name and a title
SAID = 60  # the words of what a repository says of itself
MOST = 20  # entries of one title that are each compared with the next


class TitleKey(NamedTuple):
    """A title as it is compared: `words` without the small ones, and the parts around a colon."""

    words: tuple[str, ...]
    whole: str
    head: str  # before the subtitle; empty where there is none
    tail: str  # the subtitle, where one knows a work by it


class TitlePair(NamedTuple):
    """Two entries, by their numbers in the list, and how they are alike: SAME, NEAR or PART."""

    first: int
    second: int
    how: str


SAME, NEAR, PART = "same", "near", "part"


def split_words(text: str) -> tuple[str, ...]:
    """The words and numbers of `text`, without case, punctuation, accents and apostrophes."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(SIGNS)
    if not folded.isascii():
        apart = unicodedata.normalize("NFD", folded)
        folded = unicodedata.normalize("NFC", ACCENT.sub("", apart))
    folded = re.sub(r"(?<=\w)\+\+", "plusplus ", folded)
    folded = re.sub(r"(?<=\w)#", "sharp ", folded)
    return tuple(TOKEN.findall(folded))


def parse_title(text: str, headed: int = 0) -> TitleKey:
    """How `text` is compared; without its subtitle too, if at least `headed` words are left then.

    0 compares it as a whole only.
    """
    words = _key_words(text)
    whole = _join_words(words) or text
    head = tail = ""
    if headed and len(parts := SUBTITLE.split(text, maxsplit=1)) == 2:
        before, after = _key_words(parts[0]), _key_words(parts[1])
        if after and not _is_series_part(after):
            enough = len(before) >= headed and len("".join(before)) >= 4
            head = _join_words(before) if enough else ""
            tail = _join_words(after) if len(after) >= 4 and not _is_series_part(before) else ""
    return TitleKey(words, whole, head, tail)


def similar_pairs(titles: Sequence[TitleKey]) -> Iterator[TitlePair]:
    """Each pair of titles that are alike, the earlier one first; work grows with their number.

    Of many with the very same words, each is paired with the first MOST.
    """
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(titles):
        group = groups.setdefault(one.whole, [])
        yield from (TitlePair(first, number, SAME) for first in group)
        if len(group) < MOST:
            group.append(number)
    firsts = [group[0] for group in groups.values()]
    found = {(min(pair), max(pair)) for pair in _typo_pairs(titles, firsts)}
    found |= {(min(pair), max(pair)) for pair in _missing_word_pairs(titles, firsts)}
    parts = {(min(pair), max(pair)) for pair in _subtitle_pairs(titles, groups)} - found
    yield from (TitlePair(first, second, NEAR) for first, second in sorted(found))
    yield from (TitlePair(first, second, PART) for first, second in sorted(parts))


def _is_series_part(words: Sequence[str]) -> bool:
    """Whether a part of a title says which of several it is."""
    return any(word in SERIES or NUMBER.fullmatch(word) for word in words)


def _key_words(text: str) -> tuple[str, ...]:
    """What tells a title from others: its words without the small ones and without plurals."""
    found = split_words(text)
    return tuple(_strip_plural(word) for word in found if word not in SMALL) or found


def _strip_plural(word: str) -> str:
    """A word without its plural: `caches` and `cache` are `cach`, `batches` and `batch` `batch`."""
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-3] + "y" if word.endswith("ies") else word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


def _join_words(words: Sequence[str]) -> str:
    """Words in one, so that `flash attention` is `FlashAttention`; numbers stay apart."""
    return "".join(f"|{word}|" if word[0].isdigit() else word for word in words)


def _typo_pairs(titles: Sequence[TitleKey], numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Titles that differ in one letter of one long word, or in two that changed places."""
    buckets: dict[tuple[str, ...], list[int]] = {}
    for number in numbers:
        words = titles[number].words
        for place, word in enumerate(words):
            if len(word) >= LONG - 1 and LATIN.fullmatch(word):
                buckets.setdefault((*words[:place], "", *words[place + 1 :]), []).append(number)
    for key, bucket in buckets.items():
        if len(bucket) < 2:
            continue
        # Two words within one slip of each other are the same with at most one letter less each.
        place = key.index("")
        shorter: dict[str, list[int]] = {}
        for number in bucket:
            word = titles[number].words[place]
            near: set[int] = set()
            for text in {word, *(word[:n] + word[n + 1 :] for n in range(len(word)))}:
                near.update(shorter.get(text, ()))
                shorter.setdefault(text, []).append(number)
            yield from (
                (other, number) for other in near if _is_typo(titles[other].words[place], word)
            )


def _is_typo(a: str, b: str) -> bool:
    if max(len(a), len(b)) < LONG or OSA.distance(a, b, score_cutoff=1) > 1:
        return False
    long, short = max(a, b, key=len), min(a, b, key=len)
    # `asymmetric` is not a misspelt `symmetric`.
    return not (long.endswith(short) and long.removesuffix(short) in PREFIXES)


def _missing_word_pairs(
    titles: Sequence[TitleKey], numbers: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Long titles of which one leaves out a word of the other."""
    whole = {titles[number].words: number for number in numbers}
    for number in numbers:
        words = titles[number].words
        if len(words) < MANY:
            continue
        for place, word in enumerate(words):
            rest = (*words[:place], *words[place + 1 :])
            if len(word) > 3 and word not in MARKS and LATIN.fullmatch(word) and rest in whole:
                yield whole[rest], number


def _subtitle_pairs(
    titles: Sequence[TitleKey], groups: dict[str, list[int]]
) -> Iterator[tuple[int, int]]:
    """A title that is another's without subtitle, or that other's subtitle alone."""
    for number, one in enumerate(titles):
        for part in (one.head, one.tail):
            if part and part != one.whole:
                yield from ((other, number) for other in groups.get(part, ()))


def same_work(ours: Iterable[str], there: str, *, version: bool = False) -> bool:
    """Whether one of `ours` names the work that the web calls `there`.

    `version` forgives another wording, as between a preprint and its publication.
    """
    return any(
        _same_title(_parse_web_title(title), _parse_web_title(there), version) for title in ours
    )


def names_repository(ours: Iterable[str], repository: str, says: str = "") -> bool:
    """Whether one of `ours` can be the title of `repository` (`owner/name`), which says `says`."""
    owner, _, name = repository.partition("/")
    for title in ours:
        close = "".join(split_words(title))
        for word in ("".join(split_words(name)), "".join(split_words(owner))):
            if word and close and (word in close or close in word):
                return True
            if word and close and fuzz.ratio(word, close) >= NAMED:
                return True
        if (
            says
            and fuzz.token_set_ratio(" ".join(split_words(title)), _parse_web_title(says).whole)
            >= SAID
        ):
            return True
    return False


def _parse_web_title(text: str) -> TitleKey:
    """A title with markup, by all its words; `head` is all of it where there is no subtitle."""
    bare = MARKUP.sub(" ", html.unescape(text))
    found, head = split_words(bare), split_words(SUBTITLE.split(bare, maxsplit=1)[0])
    return TitleKey(found, " ".join(found), " ".join(head), "")


def _same_title(ours: TitleKey, there: TitleKey, version: bool) -> bool:
    if not ours.whole or not there.whole:
        return not there.whole  # what has no words there says nothing against ours
    if there.head == ours.whole or ours.head == there.whole:
        return True
    if _title_numbers(ours) != _title_numbers(there) and not version:
        # "V2" is not "V3"; but a subtitle with a number may have been left away.
        return False
    if fuzz.ratio("".join(ours.words), "".join(there.words)) >= CLOSE:
        return True
    if version:
        same = ours.head == there.head and ours.head not in ("", ours.whole)
        return same or fuzz.token_set_ratio(ours.whole, there.whole) >= AKIN
    return False


def _title_numbers(title: TitleKey) -> list[str]:
    return sorted(word for word in title.words if word[0].isdigit())


# 2024 in `ICLR 2024`, `CVPR2016` and `NVR-2016-002`; not in `S20241` or the pages `1989-2005`.
YEAR = re.compile(r"(?<!\d)(?<!\d-)(?<!\b[A-Za-z])(?:19|20)\d\d(?!\d|-\d{4})|[\'\u2019]\d\d(?!\w)")
ARXIV_NUMBER = re.compile(
    r"arxiv:(?:.+/)?(\d\d)\d\d"
)  # 2307.08691, and math/0309136 of before 2007
PREPRINT = "arxiv"


def venue_years(venue: str) -> list[int]:
    """The years that the text of a venue names: 2024 in `ICLR 2024`, 2011 in `SC'11`."""
    texts = YEAR.findall(venue)
    found = (int(text) if len(text) == 4 else _full_year(int(text[1:])) for text in texts)
    return [year for year in dict.fromkeys(found) if FIRST_YEAR <= year <= _latest_year()]


def expected_years(url: str, venue: str | None) -> tuple[list[int], str] | None:
    """The years that an entry's `year` may be, and who says so; None where nobody does.

    The venue says it where it names a year. Where the preprint is all there is, which is so if the
    venue is arXiv, its number says it.

    Raises:
        ValueError: `url` is not an absolute http or https URL.
    """
    if venue and (years := venue_years(venue)):
        return years, f"its venue is {venue}"
    number = ARXIV_NUMBER.match(work_identity(url))
    if venue and venue.strip().lower() == PREPRINT and number:
        year = _full_year(int(number[1]))
        return [year], f"its arXiv number is of {year}"
    return None


def _full_year(two: int) -> int:
    return 2000 + two if 2000 + two <= _latest_year() else 1900 + two


def _latest_year() -> int:
    return datetime.now(UTC).year + 1

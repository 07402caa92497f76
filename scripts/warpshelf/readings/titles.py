"""When two titles name one work: on the shelf, and behind a link; and which year is the work's.

On the shelf two titles are alike where they have the same words, left aside case, punctuation,
small words and plurals; or where they differ in one slip of one long word; or, if they are long, in
one word that one of them leaves out; or where one is the other without its subtitle. Numbers always
tell works apart, and so do short words: FlashAttention-2 and -3, part I and part II, GEMM and GEMV.
A title behind a link comes from the web, with its markup, and is compared with ours alone; so more
is forgiven.

The year of a work is that of the version which its venue names: a preprint and its publication
often fall into different years, and "ICLR 2024" never stands beside 2023. Where there is only a
preprint, arXiv's number tells the year.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rapidfuzz import fuzz
from rapidfuzz.distance import OSA

from warpshelf.readings.identity import work_identity
from warpshelf.readings.model import FIRST_YEAR, latest_year

TOKEN = re.compile(r"\d+(?:\.\d+)*|[^\W\d_]+")
NUMBER = re.compile(r"\d.*|[ivx]+|.")  # of a part: 2, II, B
SIGNS = str.maketrans({"'": "", "\u2019": "", "\u02bc": ""})
SUBTITLE = re.compile(r"\s*[:\uff1a]\s*|\s+[-\u2013\u2014|]\s+|\s*\u2014\s*")
SMALL = {
    "a", "an", "and", "as", "at", "by", "for", "from", "in", "is", "of", "on", "or", "the", "to",
    "via", "with",
}  # fmt: skip
SERIES = {  # as _key_words leaves them
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
SAME, NEAR, PART = "same", "near", "part"  # how two titles are alike


class TitleKey(NamedTuple):
    """A title as it is compared: `words` without the small ones, and the parts around a colon."""

    words: tuple[str, ...]
    whole: str
    head: str  # before the subtitle; empty where there is none
    tail: str  # the subtitle, where one knows a work by it


def split_words(text: str) -> tuple[str, ...]:
    """The words and numbers of `text`, without case, punctuation, accents and apostrophes."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(SIGNS)
    if not folded.isascii():
        apart = unicodedata.normalize("NFD", folded)
        folded = unicodedata.normalize("NFC", ACCENT.sub("", apart))
    folded = re.sub(r"(?<=\w)\+\+", "plusplus ", folded)
    return tuple(TOKEN.findall(re.sub(r"(?<=\w)#", "sharp ", folded)))


def _key_words(text: str) -> tuple[str, ...]:
    """Its words without the small ones and the plurals: `caches` and `cache` are `cach`."""
    found = []
    for word in split_words(text):
        if word in SMALL:
            continue
        if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
            word = word[:-3] + "y" if word.endswith("ies") else word[:-1]
        found.append(word[:-1] if len(word) > 4 and word.endswith("e") else word)
    return tuple(found) or split_words(text)


def _join_words(words: Sequence[str]) -> str:
    """Words in one, so that `flash attention` is `FlashAttention`; numbers stay apart."""
    return "".join(f"|{word}|" if word[0].isdigit() else word for word in words)


def _is_series_part(words: Sequence[str]) -> bool:
    """Whether a part of a title says which of several it is."""
    return any(word in SERIES or NUMBER.fullmatch(word) for word in words)


def parse_title(text: str, headed: int = 0) -> TitleKey:
    """How `text` is compared; without its subtitle too, if at least `headed` words are left then.

    0 compares it as a whole only.
    """
    words, head, tail = _key_words(text), "", ""
    if headed and len(parts := SUBTITLE.split(text, maxsplit=1)) == 2:
        before, after = map(_key_words, parts)
        if after and not _is_series_part(after):
            if len(before) >= headed and len("".join(before)) >= 4:
                head = _join_words(before)
            if len(after) >= 4 and not _is_series_part(before):
                tail = _join_words(after)
    return TitleKey(words, _join_words(words) or text, head, tail)


def similar_pairs(titles: Sequence[TitleKey]) -> Iterator[tuple[int, int, str]]:
    """Each pair of titles that are alike by their numbers, the earlier first, and how: SAME, ...

    Of many with the very same words, each is paired with the first MOST.
    """
    groups: dict[str, list[int]] = {}
    for number, one in enumerate(titles):
        group = groups.setdefault(one.whole, [])
        yield from ((first, number, SAME) for first in group)
        if len(group) < MOST:
            group.append(number)
    firsts = {group[0]: titles[group[0]].words for group in groups.values()}
    near = {(min(pair), max(pair)) for pair in [*_typo_pairs(firsts), *_shorter_pairs(firsts)]}
    parts = {  # a title that is another's without its subtitle, or that other's subtitle alone
        (min(number, other), max(number, other))
        for number, one in enumerate(titles)
        for part in {one.head, one.tail} - {"", one.whole}
        for other in groups.get(part, ())
    }
    yield from ((*pair, NEAR) for pair in sorted(near))
    yield from ((*pair, PART) for pair in sorted(parts - near))


def _typo_pairs(titles: dict[int, tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    """Titles that differ in one letter of one long word, or in two that changed places.

    Two words within one slip of each other are the same with at most one letter less each.
    """
    buckets: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for number, words in titles.items():
        for place, word in enumerate(words):
            if len(word) >= LONG - 1 and LATIN.fullmatch(word):
                others = (*words[:place], "", *words[place + 1 :])
                buckets.setdefault(others, []).append((number, word))
    for bucket in buckets.values():
        shorter: dict[str, list[tuple[int, str]]] = {}
        for number, word in bucket if len(bucket) > 1 else ():
            near: dict[int, str] = {}
            for text in {word, *(word[:n] + word[n + 1 :] for n in range(len(word)))}:
                same = shorter.setdefault(text, [])
                near.update(same)
                same.append((number, word))
            yield from ((one, number) for one, theirs in near.items() if _is_typo(theirs, word))


def _is_typo(a: str, b: str) -> bool:
    if max(len(a), len(b)) < LONG or OSA.distance(a, b, score_cutoff=1) > 1:
        return False
    long, short = max(a, b, key=len), min(a, b, key=len)
    # `asymmetric` is not a misspelt `symmetric`.
    return not (long.endswith(short) and long.removesuffix(short) in PREFIXES)


def _shorter_pairs(titles: dict[int, tuple[str, ...]]) -> Iterator[tuple[int, int]]:
    """Long titles of which one leaves out a word of the other."""
    whole = {words: number for number, words in titles.items()}
    for number, words in titles.items():
        for place, word in enumerate(words if len(words) >= MANY else ()):
            rest = (*words[:place], *words[place + 1 :])
            if len(word) > 3 and word not in MARKS and LATIN.fullmatch(word) and rest in whole:
                yield whole[rest], number


def same_work(ours: Iterable[str], there: str, *, version: bool = False) -> bool:
    """Whether one of `ours` names the work that the web calls `there`.

    `version` forgives another wording, as between a preprint and its publication.
    """
    web = _parse_web_title(there)
    return any(_is_same_title(_parse_web_title(title), web, version) for title in ours)


def names_repository(ours: Iterable[str], repository: str, says: str = "") -> bool:
    """Whether one of `ours` can be the title of `repository` (`owner/name`), which says `says`."""
    names = ["".join(split_words(name)) for name in repository.split("/", 1)]
    for title in ours:
        words = split_words(title)
        close = "".join(words)
        for name in names if close else ():
            if name and (name in close or close in name or fuzz.ratio(name, close) >= NAMED):
                return True
        about = _parse_web_title(says).whole
        if says and fuzz.token_set_ratio(" ".join(words), about) >= SAID:
            return True
    return False


def _parse_web_title(text: str) -> TitleKey:
    """A title with markup, by all its words; `head` is all of it where there is no subtitle."""
    bare = MARKUP.sub(" ", html.unescape(text))
    found, head = split_words(bare), split_words(SUBTITLE.split(bare, maxsplit=1)[0])
    return TitleKey(found, " ".join(found), " ".join(head), "")


def _is_same_title(ours: TitleKey, there: TitleKey, version: bool) -> bool:
    if not ours.whole or not there.whole:
        return not there.whole  # what has no words there says nothing against ours
    if there.head == ours.whole or ours.head == there.whole:
        return True
    numbers = [sorted(word for word in one.words if word[0].isdigit()) for one in (ours, there)]
    if numbers[0] != numbers[1] and not version:
        return False  # "V2" is not "V3"; but a subtitle with a number may have been left away
    if fuzz.ratio("".join(ours.words), "".join(there.words)) >= CLOSE:
        return True
    same_head = ours.head == there.head and ours.head not in ("", ours.whole)
    return version and (same_head or fuzz.token_set_ratio(ours.whole, there.whole) >= AKIN)


# 2024 in `ICLR 2024`, `CVPR2016` and `NVR-2016-002`; not in `S20241` or the pages `1989-2005`.
YEAR = re.compile(r"(?<!\d)(?<!\d-)(?<!\b[A-Za-z])(?:19|20)\d\d(?!\d|-\d{4})|[\'\u2019]\d\d(?!\w)")
ARXIV_NUMBER = re.compile(r"arxiv:(?:.+/)?(\d\d)\d\d")  # 2307.08691; math/0309136 before 2007


def venue_years(venue: str) -> list[int]:
    """The years that the text of a venue names: 2024 in `ICLR 2024`, 2011 in `SC'11`."""
    found = (int(t) if len(t) == 4 else _full_year(int(t[1:])) for t in YEAR.findall(venue))
    return [year for year in dict.fromkeys(found) if FIRST_YEAR <= year <= latest_year()]


def expected_years(url: str, venue: str | None) -> tuple[list[int], str] | None:
    """The years that an entry's `year` may be, and who says so; None where nobody does.

    The venue says it where it names a year. Where the preprint is all there is, which is so if the
    venue is arXiv, its number says it. Raises ValueError if `url` is not a web address.
    """
    if venue and (years := venue_years(venue)):
        return years, f"its venue is {venue}"
    number = ARXIV_NUMBER.match(work_identity(url))
    if venue and venue.strip().lower() == "arxiv" and number:
        year = _full_year(int(number[1]))
        return [year], f"its arXiv number is of {year}"
    return None


def _full_year(two: int) -> int:
    return 2000 + two if 2000 + two <= latest_year() else 1900 + two

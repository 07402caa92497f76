"""What the value of each key of a reading may be, for the check and for editors.

A type's validators say what is wrong in our words. What of it JSON Schema can express stands beside
them, so that an editor refuses the same values while they are typed (`warpshelf.readings.editors`).
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints

from warpshelf.core import markup
from warpshelf.readings import spelling
from warpshelf.readings.identity import TRACKING, identity

ISO_639_1 = (
    "aa ab ae af ak am an ar as av ay az ba be bg bi bm bn bo br bs ca ce ch co cr cs cu cv cy da "
    "de dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy "
    "hz ia id ie ig ii ik io is it iu ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg "
    "li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne ng nl nn no nr nv ny oc oj om or "
    "os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st su sv sw ta "
    "te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
LANGUAGES = frozenset(ISO_639_1.split())
MISTAKEN = {"cn": "zh", "jp": "ja", "gr": "el", "cz": "cs", "dk": "da", "ua": "uk", "eng": "en"}
KEBAB = r"^[a-z0-9]+(?:-[a-z0-9]+)*$"
SNIPPET = r"^[a-z][a-z0-9_]*$"
OTHER_SCRIPT = re.compile(  # Cyrillic, Hebrew, Arabic, Indic, Thai, kana, Chinese, Hangul
    "[\u0400-\u052f\u0590-\u06ff\u0900-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


def meant_language(code: str) -> str | None:
    """The language that a code of another kind surely means: `cn`, `zh-CN` and `ZH` mean `zh`."""
    plain = code.strip().lower()
    first = re.sub(r"[-_](?:[a-z]{2}|[a-z]{4})$", "", plain)
    meant = MISTAKEN.get(first, first)
    return meant if meant in LANGUAGES else None


def _line(text: str) -> str:
    shown = " ".join(text.split())
    if unseen := markup.UNSEEN.search(shown):
        raise ValueError(f"holds the unseen character U+{ord(unseen[0]):04X}; remove it")
    if not shown:
        raise ValueError("is empty; write it, or remove the key")
    return shown


def _web(url: str) -> str:
    identity(url)
    host = re.sub(r"^[a-z]+://([^/?#:]*).*", r"\1", url, flags=re.IGNORECASE | re.DOTALL)
    if "." not in host.strip(".") or re.fullmatch(r"[\d.]+", host):
        raise ValueError(f"the host {host!r} is no public name; link a page on the web")
    return url


def _year(year: int) -> int:
    last = datetime.now(UTC).year + 1
    if not FIRST_YEAR <= year <= last:
        raise ValueError(
            f"is {year}, outside {FIRST_YEAR} to {last}; write the year it was published"
        )
    return year


def _day(text: str) -> str:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or day.isoformat() != text:
        raise ValueError(f'is {text!r}, no date; write it as "2026-11-20", in quotes')
    if not date(2020, 1, 1) <= day <= datetime.now(UTC).date() + timedelta(days=1):
        raise ValueError(f"is {text}, which cannot be; write the day it was put on the shelf")
    return text


def _language(lang: str) -> str:
    if lang not in LANGUAGES:
        mend = meant_language(lang) or "two letters of ISO 639-1, such as en or zh"
        raise ValueError(f"is {lang!r}, no language code; write {mend}")
    return lang


def _unlike(items: list[Any]) -> list[Any]:
    for place, item in enumerate(items):
        if item in items[:place]:
            raise ValueError(f"names {str(item)!r} twice; remove one")
    return items


def _within(longest: int) -> AfterValidator:
    def shorter(text: str) -> str:
        if len(text) > longest:
            raise ValueError(f"has {len(text)} characters, over the limit of {longest}; shorten it")
        return text

    return AfterValidator(shorter)


def _hint(**more: Any) -> Any:
    """What an editor is told beside the type."""
    return Field(json_schema_extra=more)


def _text(longest: int) -> Any:
    """Text of 1 to `longest` seen characters, a run of white space counting as one."""
    seen = rf"[^\s{_escaped(markup.UNSEEN.pattern[1:-1])}]"
    pattern = rf"^\s*(?:{seen}|\s+(?={seen})){{1,{longest}}}\s*$"
    said = f"Write 1 to {longest} characters, none of them unseen."
    return _hint(pattern=pattern, patternErrorMessage=said)


def _escaped(characters: str) -> str:
    """A range of characters written out, without the surrogates, which no text can hold."""
    plain = characters.replace("\ud800-\udfff", "")
    return "".join(c if c.isascii() and c.isprintable() else f"\\u{ord(c):04x}" for c in plain)


def _address(main: bool = False) -> Any:
    """The rules for an address that a pattern can tell; `main` for the work's own."""
    names = "|".join(sorted(re.escape(name) for name in TRACKING))
    short = "|".join(sorted(re.escape(host) for host in spelling.SHORTENERS))
    rules = {
        r"^https://(?![\d.]+(?:[:/?#]|$))[^\s/?#@\\]+\.[^\s/?#@\\]+(?:[/?#][^\s\\]*)?$": (
            "Write the whole address, https:// and a public host, without spaces."
        ),
        rf"^(?!https://(?!web\.archive\.org/)[^#]*[?&](?:utm_[^=&#]*|{names})=)": (
            "Leave out the parameters that follow the reader, such as utm_source or si."
        ),
        rf"^(?!https?://(?:www\.)?(?:{short})(?:[/?#]|$))": (
            "Write the address that the short link leads to."
        ),
        r"^(?!https?://(?:(?:dx|www)\.doi\.org|www\.arxiv\.org|www\.github\.com|youtu\.be)/)": (
            "Write https://doi.org/..., https://arxiv.org/abs/..., https://github.com/... or "
            "https://www.youtube.com/watch?v=..."
        ),
        r"^(?!https?://github\.com/[^/?#]+/[^/?#]+(?:\.git|/tree/(?:main|master|HEAD))/?$)": (
            "Write the root of the repository, https://github.com/owner/name."
        ),
    }
    if main:
        versioned = r"(?:pdf|html)/|abs/[^/?#]+v\d+(?:[?#]|$)"
        said = "Write https://arxiv.org/abs/ and the identifier without its version."
        rules[rf"^(?!https?://(?:www\.|export\.)?arxiv\.org/(?:{versioned}))"] = said
    parts = [{"pattern": rule, "patternErrorMessage": said} for rule, said in rules.items()]
    return _hint(allOf=parts)


FIRST_YEAR = 1950
DAY = r"^20[2-9]\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])$"
UNLIKE = AfterValidator(_unlike)
ONCE = _hint(uniqueItems=True)
Sentence = Annotated[str, AfterValidator(_line), _within(300), _text(300)]
Name = Annotated[str, AfterValidator(_line), _within(120), _text(120)]
Id = Annotated[str, StringConstraints(pattern=KEBAB, max_length=80)]
Tag = Annotated[str, StringConstraints(pattern=KEBAB, max_length=40)]
Snippet = Annotated[str, StringConstraints(pattern=SNIPPET, max_length=80)]
Seed = Annotated[str, StringConstraints(pattern=r"^\d{3}$")]
Url = Annotated[str, Field(max_length=500), AfterValidator(_web), _address()]
Address = Annotated[str, Field(max_length=500), AfterValidator(_web), _address(main=True)]
Year = Annotated[int, AfterValidator(_year), _hint(minimum=FIRST_YEAR)]
Minutes = Annotated[int, Field(ge=1, le=6000)]
Rating = Annotated[int, Field(ge=1, le=4)]
Day = Annotated[str, AfterValidator(_day), _hint(pattern=DAY, format="date")]
Language = Annotated[str, AfterValidator(_language), _hint(enum=sorted(LANGUAGES))]
Kind = Literal["paper", "post", "talk", "code", "docs", "course", "book", "tool", "site"]
Level = Literal["beginner", "intermediate", "advanced"]
What = Literal[
    "preprint", "published", "code", "slides", "recording", "annotated", "archive", "translation"
]

"""What a terminal is asked for a new reading; Enter takes what was found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

import typer

from warpshelf.core.findings import visible
from warpshelf.edit.addition import Addition
from warpshelf.readings.fields import OTHER_SCRIPT, Kind, Level
from warpshelf.web.metadata import TITLE

LEAVE = "-"  # the answer that leaves out what was found
# In the order of asking. {kinds} and {levels} are those of the schema.
QUESTIONS = {
    "title": "Title, as on the work",
    "lang": "Its language, two letters",
    "title_en": "Its title in English",
    "kind": "Kind ({kinds})",
    "authors": "Authors, with commas",
    "year": "Year",
    "venue": "Venue: conference, journal, blog or channel",
    "level": "Level ({levels})",
    "tags": "Tags, with commas",
    "why": "Why: what one knows after reading it, in your words, at most {limit} characters",
}
NEEDED = ("title", "kind", "why", "lang", "title_en")
LANGUAGE = ("lang", "title_en")  # what only a title in another language needs
LISTS = ("authors", "tags")


def ask(addition: Addition, known: Mapping[str, Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an entry: `known` as they are, the rest by answers, with `offered` as theirs.

    A wrong answer is refused with its reason and asked for again. An empty answer takes what is
    offered, or leaves out what need not be there; `-` leaves it out in any case.

    Raises:
        typer.Abort: the input ended.
    """
    values = {**{key: value for key, value in offered.items() if key not in QUESTIONS}, **known}
    foreign = bool(OTHER_SCRIPT.search(known.get("title", "")))
    typer.echo(f"Enter takes what is in [ ]; {LEAVE} leaves it out.", err=True)
    for key, question in QUESTIONS.items():
        if key in known or key == "title_en" and values.get("lang", "en") == "en":
            continue
        if key == "lang" and not foreign and "lang" not in offered:
            continue
        needed = key in NEEDED and (foreign or key not in LANGUAGE)
        beside = {k: values[k] for k in ("title", "lang") if k in values and key in LANGUAGE}
        value = _answer(addition, key, question, offered.get(key), needed, beside)
        foreign = foreign or key == "title" and bool(OTHER_SCRIPT.search(value))
        if value not in (None, []):
            values[key] = value
    return values


def _answer(
    addition: Addition, key: str, question: str, offered: Any, needed: bool, beside: Any
) -> Any:
    choices = {"kinds": Kind, "levels": Level}
    words = {name: ", ".join(get_args(choice)) for name, choice in choices.items()}
    text = question.format(**words, limit=TITLE)
    shown = visible(", ".join(offered) if isinstance(offered, list) else str(offered or ""))
    while True:
        answer = typer.prompt(text, default=shown, show_default=bool(shown), err=True).strip()
        if answer == LEAVE:
            answer = ""
        elif answer == shown and offered is not None:
            return offered
        if not answer:
            if not needed:
                return None
            typer.echo(f"  an entry needs {key}", err=True)
            continue
        value = answered(key, answer)
        said = addition.refusal(**{**beside, key: value})
        if said is None:
            return value
        typer.echo(f"  {visible(said)}", err=True)


def answered(key: str, answer: str) -> Any:
    """An answer as the value of a key; the schema says whether it is one."""
    if key in LISTS:
        return [part.strip() for part in re.split("[,;]", answer) if part.strip()]
    return int(answer) if key == "year" and re.fullmatch("[0-9]{1,6}", answer) else answer

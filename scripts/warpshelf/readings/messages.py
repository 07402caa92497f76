"""What pydantic found in an entry, said in the words of the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError
from rapidfuzz import fuzz, process

from warpshelf.core.findings import Finding
from warpshelf.readings.entries import Entry

# What people write for a key that has another name here.
ALIASES = {
    "author": "authors", "link": "url", "href": "url", "note": "why", "notes": "why",
    "description": "why", "summary": "why", "reason": "why", "type": "kind", "language": "lang",
    "date": "year", "published": "year", "journal": "venue", "conference": "venue", "name": "title",
    "stars": "rating", "tag": "tags", "difficulty": "level", "prerequisites": "needs",
    "replaced_by": "superseded_by", "see_also": "also",
}  # fmt: skip
WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number, as in 12 or 0.5",
    "dict_type": "keys and values such as {m: 4096}",
    "list_type": "a list such as [a, b]",
    "model_type": "keys `what` and `url`",
    "bool_type": "true, or leave the key out",
}
PATTERNS = {
    "snippets": ("no snippet's id", "write the folder's name under snippets/, such as softmax"),
    "seed": ("no seed's number", 'write three digits in quotes, such as "000"'),
}


def nearest(word: str, known: Iterable[str], alike: int = 60) -> str | None:
    """The one of `known` most like `word`, if it is at least `alike` per cent alike."""
    found = process.extractOne(word.lower(), list(known), scorer=fuzz.ratio, score_cutoff=alike)
    return found[0] if found else None


def explain(error: ValidationError, path: str, entry: Entry, keys: Sequence[str]) -> list[Finding]:
    """One finding for each thing that `error` says about `entry`, on the line of the key.

    `keys` are those an entry may have.

    A place that the reader of the file already refused is left out.
    """
    findings = []
    for problem in error.errors(include_url=False):
        place = tuple(part for part in problem["loc"] if part != "nullable")
        if entry.refused & {place[:length] for length in range(1, len(place) + 1)}:
            continue
        line = next(
            (entry.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in entry.lines),
            entry.line,
        )
        if problem["type"] == "extra_forbidden":
            known = keys if len(place) == 1 else ("what", "url")
            what, mend = f"the key {_name(place)!r} is unknown", _nearest(str(place[-1]), known)
        else:
            what, mend = _words(problem, place, entry)
        findings.append(Finding(path, line, what, mend))
    return findings


def name_of(entry: Entry) -> str:
    """How an entry is spoken of."""
    found = (entry.fields.get(key) for key in ("title", "id", "what"))
    return str(next((name for name in found if name), "the entry"))


def _words(problem: Any, place: tuple[str | int, ...], entry: Entry) -> tuple[str, str]:
    name = _name(place)
    kind, value, context = problem["type"], problem["input"], problem.get("ctx", {})
    shown = f"{str(value)[:60]!r}"
    title = name_of(entry)[:60]
    if kind == "missing":
        return f"{title!r} has no {name}", f"add `{place[-1]}: …`"
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ")
        choices = expected.split(", ")
        near = nearest(str(value), choices)
        mend = f"write {near}" if near else f"write one of {', '.join(choices)}"
        return f"{name} is {shown}", mend
    if kind in WANTED:
        if kind == "string_type" and isinstance(value, int):
            return f"{name} is the number {value}, not text", f'write "{value}", in quotes'
        if kind == "int_type" and str(value).isdigit():
            return f"{name} is the text {shown}", f"write {value}, without quotes"
        if kind == "list_type" and isinstance(value, str):
            return f"{name} is the text {shown}, not a list", f"write [{value}]"
        return f"{name} is {shown}", f"write {WANTED[kind]}"
    if kind == "string_pattern_mismatch":
        default = (
            "not of lower-case letters and digits joined by -",
            "write it as in online-softmax",
        )
        what, mend = PATTERNS.get(str(place[0]), default)
        return f"{name} is {shown}, {what}", mend
    if kind == "string_too_long":
        limit = context["max_length"]
        return f"{name} has {len(value)} characters, over the limit of {limit}", "shorten it"
    if kind == "too_long":
        limit = context["max_length"]
        return f"{name} has {len(value)} items, over the limit of {limit}", "drop some"
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"{name} is {shown}, outside 1 to 4", "write 1, 2, 3 or 4, or remove the key"
    text = str(context.get("error", problem["msg"]))
    what, _, mend = text.partition("; ")
    return f"{name} {what}" if name else what, mend or "write it as https://…"


def _name(place: tuple[str | int, ...]) -> str:
    """`("also", 0, "url")` as `also 1 url`."""
    return " ".join(str(part + 1) if isinstance(part, int) else part for part in place)


def _nearest(key: str, known: Sequence[str]) -> str:
    guess = ALIASES.get(key.lower().replace("-", "_"))
    near = nearest(key, known)
    if guess in known:
        return f"write {guess}"
    return f"write {near}" if near else f"remove it; the keys are {', '.join(known)}"

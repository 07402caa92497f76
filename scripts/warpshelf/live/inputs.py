"""The inputs of a calculator: what `INPUTS` must say, and the values that texts of a form mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

KINDS = ("integer", "number", "choice", "flag", "config")
NEEDED = ("name", "label", "group", "kind", "default", "help")
LIMITS = ("least", "most", "unit")
LONGEST = 20_000  # characters of a pasted config.json
TRUE, FALSE = "1", "0"  # a flag as a form and an address have it


class InputError(ValueError):
    """What is wrong with the text of one input, in one line."""

    def __init__(self, name: str, line: str) -> None:
        super().__init__(line)
        self.name = name


def faults(spec: object) -> Iterator[str]:
    """What is wrong with `INPUTS`, a line each."""
    if not isinstance(spec, Sequence) or isinstance(spec, str) or not spec:
        yield "INPUTS is no tuple of inputs"
        return
    names: set[str] = set()
    for place, one in enumerate(spec):
        where = f"INPUTS[{place}]"
        if not isinstance(one, dict):
            yield f"{where} is no dict"
            continue
        if lacking := [key for key in NEEDED if key not in one]:
            yield f"{where} lacks {lacking[0]!r}"
            continue
        name = one["name"]
        if not isinstance(name, str) or not name.isidentifier() or name in names:
            yield f"{where} is called {name!r}, which is no name of its own"
            continue
        names.add(name)
        if one["kind"] not in KINDS:
            yield f"{where} has the kind {one['kind']!r}, not one of {', '.join(KINDS)}"
        elif one["kind"] == "choice" and not one.get("choices"):
            yield f"{where} lacks 'choices'"
        elif one["kind"] in ("integer", "number") and (
            lacking := [key for key in LIMITS if key not in one]
        ):
            yield f"{where} lacks {lacking[0]!r}"
        else:
            yield from _default(where, one)


def _default(where: str, one: Mapping[str, Any]) -> Iterator[str]:
    try:
        read = typed([one], {one["name"]: text_of(one, one["default"])})
    except InputError as error:
        yield f"{where} has a default that it refuses: {error}"
    else:
        if read[one["name"]] != one["default"]:
            yield f"{where} has the default {one['default']!r}, which no text of its kind means"


def text_of(one: Mapping[str, Any], value: Any) -> str:
    """`value` of an input as a form shows it."""
    if one["kind"] == "flag":
        return TRUE if value else FALSE
    if isinstance(value, float):
        shown = f"{value:.12g}"
        return shown.replace("e+", "e")
    return str(value)


def limit_of(one: Mapping[str, Any], key: str) -> str:
    """The least or the most of an input as people write it: `1000`, `1e9`."""
    value = one[key]
    short = f"{value:g}".replace("e+0", "e").replace("e+", "e")
    return short if float(short) == value else text_of(one, value)


def typed(spec: Sequence[Mapping[str, Any]], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of each input, of the text that is given for it, else its default.

    Raises:
        InputError: a text means no value that the input may have.
    """
    return {
        one["name"]: _value(one, given[one["name"]]) if one["name"] in given else one["default"]
        for one in spec
    }


def _value(one: Mapping[str, Any], text: str) -> Any:
    name, kind = one["name"], one["kind"]
    if kind == "flag":
        return text == TRUE
    if kind == "config":
        if len(text) > LONGEST:
            line = f"{one['label']} has {len(text)} characters; paste at most {LONGEST}"
            raise InputError(name, line)
        return text
    if kind == "choice":
        if text not in one["choices"]:
            known = ", ".join(one["choices"])
            raise InputError(name, f"{one['label']} is {text!r:.60}; choose one of {known}")
        return text
    return _number(one, text)


def _number(one: Mapping[str, Any], text: str) -> int | float:
    """A number within the limits of its input; 8192, 8_192, 8 192 and 8.192e3 are one."""
    name, label = one["name"], one["label"]
    example = text_of(one, one["default"])
    plain = "".join(text.split()).replace("_", "")
    if not plain:
        raise InputError(name, f"{label} is empty; write a number such as {example}")
    try:
        value: int | float = int(plain)
    except ValueError:
        try:
            value = float(plain)
        except ValueError:
            line = f"{label} is {text.strip()!r:.60}, which is no number; write one such as "
            raise InputError(name, line + example) from None
    if not math.isfinite(value):
        raise InputError(name, f"{label} is not finite; write a number such as {example}")
    least, most = limit_of(one, "least"), limit_of(one, "most")
    if not one["least"] <= value <= one["most"]:
        side = "below" if value < one["least"] else "above"
        limit = least if side == "below" else most
        line = f"{label} = {text.strip()[:40]} is {side} {limit}; write {least} to {most}"
        raise InputError(name, line)
    if one["kind"] == "number":
        return value if isinstance(one["default"], int) else float(value)
    if value != int(value):
        line = f"{label} = {text.strip()[:40]} is no whole number; write one such as {example}"
        raise InputError(name, line)
    return int(value)

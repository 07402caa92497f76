"""The fields of a pasted config.json: read by name, checked, and seen to be read."""

from __future__ import annotations

import json
from typing import Any

LONGEST = 1_000_000  # characters; the largest published config.json has a tenth of it
LARGEST = 10**9  # no width, vocabulary or number of tokens is larger
MOST_LAYERS = 10_000


def parse(text: str) -> dict[str, Any]:
    """The object that `text` is in JSON; a ValueError says where it is broken."""
    if len(text) > LONGEST:
        raise ValueError(
            f"model_configs: {len(text)} characters exceed {LONGEST}; "
            "paste a config.json alone"
        )
    try:
        found = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"model_configs: line {error.lineno}, column {error.colno} is no JSON: "
            f"{error.msg}; paste the whole config.json"
        ) from None
    except (ValueError, RecursionError):  # a number of thousands of digits; depth
        raise ValueError(
            "model_configs: numbers or nesting beyond any model's; paste a config.json"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(
            f"model_configs: {_shown(found)} is no object of fields; paste the whole "
            "config.json, from { to }"
        )
    return found


class Fields:
    """The fields of one object, of which `seen` have been asked for."""

    def __init__(self, values: dict[str, Any], where: str = "") -> None:
        self.values, self.where = values, where
        self.seen: set[str] = set()
        self.within: list[Fields] = []

    def has(self, *names: str) -> bool:
        """Whether any of the names is there and not null."""
        self.seen.update(names)
        return any(self.values.get(name) is not None for name in names)

    def integer(
        self,
        *names: str,
        default: int | None = None,
        least: int = 1,
        most: int = LARGEST,
    ) -> int:
        """A whole number, under the first of the names that is there."""
        name, value = self._first(names)
        if value is None:
            if default is None:
                raise ValueError(self._missing(names))
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(self._wrong(name, value, "a whole number"))
        if not least <= value <= most:
            raise ValueError(self._wrong(name, value, f"from {least} to {most}"))
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """true or false."""
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(self._wrong(name, value, "true or false"))
        return value

    def word(self, *names: str, default: str = "") -> str:
        """A string."""
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ValueError(self._wrong(name, value, "a string"))
        return value

    def integers(self, *names: str) -> list[int] | None:
        """A list of whole numbers, None where there is none."""
        name, value = self._first(names)
        if value is None:
            return None
        if not isinstance(value, list) or any(type(one) is not int for one in value):
            raise ValueError(self._wrong(name, value, "a list of whole numbers"))
        return value

    def words(self, *names: str) -> list[str] | None:
        """A list of strings, None where there is none."""
        name, value = self._first(names)
        if value is None:
            return None
        if not isinstance(value, list) or any(type(one) is not str for one in value):
            raise ValueError(self._wrong(name, value, "a list of strings"))
        return value

    def inner(self, name: str) -> Fields:
        """The fields of an object inside; none where it is not there."""
        _, value = self._first((name,))
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise ValueError(self._wrong(name, value, "an object of fields"))
        self.within.append(Fields(value, f"{self.where}{name}."))
        return self.within[-1]

    def unread(self) -> list[str]:
        """Names that nobody has asked for, of values that say something."""
        found = [
            f"{self.where}{name}"
            for name, value in self.values.items()
            if name not in self.seen
            and value  # null, false, 0 and what is empty do not
        ]
        return found + [name for one in self.within for name in one.unread()]

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        self.seen.update(names)
        for name in names:
            if self.values.get(name) is not None:
                return name, self.values[name]
        return names[0], None

    def _missing(self, names: tuple[str, ...]) -> str:
        others = f" (or {', '.join(names[1:])})" if names[1:] else ""
        return f"model_configs: no {self.where}{names[0]}{others}; add it"

    def _wrong(self, name: str, value: Any, due: str) -> str:
        return f"model_configs: {self.where}{name} = {_shown(value)} is not {due}"


def _shown(value: Any) -> str:
    """A value on one line, cut where it is long."""
    try:
        shown = json.dumps(value)
    except ValueError:  # a number of too many digits to print
        shown = "a number beyond any model's"
    return shown if len(shown) <= 40 else shown[:37] + "..."

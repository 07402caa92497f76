"""What data read from a file must look like, as data; the first place that departs, in words.

A shape is one of
  a type, or a tuple of types     the value is an instance; a bool is no int
  a tuple of texts                the value is one of them
  a compiled pattern              the value is text, and matches whole
  a list of one shape             the value is a list of such values
  a dict                          the value is an object with just these keys: one that ends in "?"
                                  may be absent, and the key "*" stands for any
  a function                      it returns what is wrong with the value, or None
"""

from __future__ import annotations

import math
import re
from typing import Any

from warpshelf.core.files import LARGEST_INTEGER

Shape = Any  # as above; a recursive alias would say no more
NUMBER = (int, float)


def shape_problem(value: object, shape: Shape, place: str) -> str | None:
    """The first thing in `value` that is not as `shape` has it, said with its place; None if none.

    Floats must be finite and integers within what `core.files.dump` writes.
    """
    if isinstance(shape, dict):
        return _problem_in_dict(value, shape, place)
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{place} is no list"
        if shape[0] in (int, str) and _is_uniform(
            value, shape[0]
        ):  # a view has long lists of these
            return None
        for index, item in enumerate(value):
            if found := shape_problem(item, shape[0], f"{place}[{index}]"):
                return found
        return None
    if isinstance(shape, re.Pattern):
        good = isinstance(value, str) and shape.fullmatch(value)
        return None if good else f"{place} is {value!r:.60}"
    if isinstance(shape, tuple) and isinstance(shape[0], str):
        known = ", ".join(shape)
        return None if value in shape else f"{place} is {value!r:.60}, not one of {known}"
    if callable(shape) and not isinstance(shape, type):
        found = shape(value)
        return f"{place} {found}" if found else None
    return _problem_in_value(value, shape if isinstance(shape, tuple) else (shape,), place)


def order_keys(value: object, shape: Shape) -> Any:
    """A value that is as `shape` has it, its keys in the order of the shape; others sorted."""
    if isinstance(shape, list) and isinstance(value, list):
        return [order_keys(item, shape[0]) for item in value]
    if not isinstance(value, dict):
        return value
    if not isinstance(shape, dict) or "*" in shape:
        inner = shape["*"] if isinstance(shape, dict) else object
        return {key: order_keys(value[key], inner) for key in sorted(value)}
    names = {key.rstrip("?"): inner for key, inner in shape.items()}
    return {key: order_keys(value[key], inner) for key, inner in names.items() if key in value}


def _is_uniform(values: list[Any], kind: type) -> bool:
    """Whether all are of one type and within what is written, told in one go."""
    if not {*map(type, values)} <= {kind}:
        return False
    return kind is str or not values or max(max(values), -min(values)) < LARGEST_INTEGER


def _problem_in_value(value: object, kinds: tuple[type, ...], place: str) -> str | None:
    if isinstance(value, bool) and bool not in kinds and object not in kinds:
        return f"{place} is {value!r}"
    if not isinstance(value, kinds):
        return f"{place} is {value!r:.60}"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is {value!r}"
    if isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
        return f"{place} is out of range"
    return None


def _problem_in_dict(value: object, shape: dict[str, Shape], place: str) -> str | None:
    if not isinstance(value, dict):
        return f"{place} is no object"
    if "*" in shape:
        pairs = ((item, shape["*"], f"{place}.{key}") for key, item in value.items())
        return next((found for pair in pairs if (found := shape_problem(*pair))), None)
    names = {key.rstrip("?") for key in shape}
    if unknown := sorted(value.keys() - names, key=str):
        return f"{place} has the unknown key {unknown[0]!r:.60}"
    for key, inner in shape.items():
        name = key.rstrip("?")
        if name not in value:
            if key == name:
                return f"{place} lacks {name!r}"
        elif found := shape_problem(value[name], inner, f"{place}.{name}"):
            return found
    return None

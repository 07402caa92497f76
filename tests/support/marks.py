"""Marks of parameters, for all tests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def exhaustive(values: Iterable[object], why: str, light: int = 1) -> list[object]:
    """Parameters, of which all but the first `light` wait for `make test-all`, for this reason.

    A tuple holds the parameters of one call.
    """
    first, later = [*values][:light], [*values][light:]
    split = (value if isinstance(value, tuple) else (value,) for value in later)
    return [*first, *(pytest.param(*one, marks=pytest.mark.exhaustive(why)) for one in split)]

"""A fact as the cases of a model state it: what the model says against what it must."""

from __future__ import annotations

from typing import Any


def fact(
    name: str,
    value: float,
    expected: float,
    source: str,
    tolerance: float = 0,
    unit: str = "",
) -> dict[str, Any]:
    """One row of facts().

    tolerance: relative error up to which it holds; 0 asks for equality. source: the id of
    a reading, or words that say where `expected` comes from.
    """
    return {
        "name": name,
        "value": value,
        "expected": expected,
        "tolerance": tolerance,
        "unit": unit,
        "source": source,
    }

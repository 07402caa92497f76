"""What online_softmax_steps must show: the whole row's sum, and the picture."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

from snippets.facts import fact
from snippets.online_softmax_steps import online_softmax_steps as softmax
from snippets.online_softmax_steps.online_softmax_steps import ROW, Part

SOURCE = "online-softmax"


def facts() -> list[dict[str, Any]]:
    """Sums against the whole row's, and exponentials against the count."""
    whole, n = softmax.direct(ROW), len(ROW)
    parts = [softmax.direct(ROW[i : i + 3]) for i in range(0, n, 3)]
    backwards = reduce(add, reversed(parts), Part())
    rows = [
        ("blocks of 4: maximum", softmax.online(ROW, 4)[0][-1].after.m, whole.m, 0.0),
        ("blocks of 4: sum", softmax.online(ROW, 4)[0][-1].after.d, whole.d, 1e-12),
        ("one by one: sum", softmax.online(ROW, 1)[0][-1].after.d, whole.d, 1e-12),
        ("merged backwards: sum", backwards.d, whole.d, 1e-12),
        ("one by one: exponentials", softmax.online(ROW, 1)[1], 2 * n, 0.0),
        ("blocks of 4: exponentials", softmax.online(ROW, 4)[1], n + n / 4, 0.0),
    ]
    return [
        fact(name, value, expected, SOURCE, tolerance)
        for name, value, expected, tolerance in rows
    ]


def grids() -> tuple[dict[str, Any], ...]:
    """Blocks as columns: the row itself, then what the pass knows after each block."""
    steps, _ = softmax.online(ROW, 4)
    lines = [
        *(
            (f"x {k}", [(f"{ROW[4 * i + k]:.0f}", -1) for i in range(len(steps))])
            for k in range(4)
        ),
        ("its maximum", [(f"{one.m:.0f}", -1) for one in steps]),
        (
            "maximum so far",
            [(f"{s.after.m:.0f}", 1 if s.after.m > s.before.m else -1) for s in steps],
        ),
        ("sum before", [(f"{one.before.d:.3f}", -1) for one in steps]),
        (
            "rescaled by",
            [(f"{one.factor:.3f}", 1 if one.factor < 1 else -1) for one in steps],
        ),
        ("sum so far", [(f"{one.after.d:.3f}", 0) for one in steps]),
    ]
    return (
        {
            "name": "steps",
            "caption": "A row of sixteen in four blocks. Where a block moves the "
            "maximum, the sum so far is rescaled by the exponential of the old maximum "
            "minus the new; elsewhere the factor is 1.",
            "across": "block",
            "down": "after it",
            "columns": [str(i) for i in range(len(steps))],
            "rows": [name for name, _ in lines],
            "cells": [cells for _, cells in lines],
            "legend": [(1, "a new maximum, and the factor it costs"), (0, "the sum")],
        },
    )

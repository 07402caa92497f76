"""The space that a kernel's parameters span: what SPACE must be, and its configurations.

A configuration is a value for each parameter that `allowed` lets pass. On a CPU each of them is
verified, compiled and counted, on a GPU verified and timed, and the record has them all, so that a
search over them can be run again with neither.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warpshelf.core.files import json_flaw

KEYS = ("parameters", "allowed", "run", "case", "counted", "scaled", "timed")
FUNCTIONS = ("allowed", "run", "counted", "scaled")
CASES = ("case", "timed")
MOST = 4096  # configurations; each is compiled for every architecture
MEND = f"write a dict of {', '.join(KEYS)}"

Configuration = dict[str, Any]
Value = int | float | str | bool


@dataclass(frozen=True)
class Space:
    """What SPACE says, its shape checked.

    `parameters`: the values of each, in order. `allowed(**configuration)`: whether it can be
    launched at all. `run(*inputs, **configuration)`: the kernel. `case`: a case of inputs() on
    which every configuration is verified. `counted(**configuration)`: a small case whose executed
    instructions are counted, and `scaled(cycles, **configuration)`: what the bound of it in SM
    cycles makes of the busiest SM in the case `timed`, which is the one that a GPU times.
    """

    parameters: Mapping[str, tuple[Value, ...]]
    allowed: Callable[..., object]
    run: Callable[..., object]
    case: dict[str, Any]
    counted: Callable[..., dict[str, Any]]
    scaled: Callable[..., float]
    timed: dict[str, Any]

    def configurations(self) -> Iterator[Configuration]:
        """Those allowed; the last parameter changes first."""
        for values in itertools.product(*self.parameters.values()):
            configuration = dict(zip(self.parameters, values, strict=True))
            if self.allowed(**configuration):
                yield configuration


def space_problem(value: object) -> str | None:
    """Why a SPACE is malformed, or None; `allowed` is called on every configuration."""
    if not isinstance(value, dict) or value.keys() != set(KEYS):
        return f"SPACE is {value!r:.80}"
    for name in FUNCTIONS:
        if not callable(value[name]):
            return f"SPACE[{name!r}] is {value[name]!r:.80}, no function"
    for name in CASES:
        if not isinstance(value[name], dict) or json_flaw(value[name]):
            return f"SPACE[{name!r}] is {value[name]!r:.80}, no case"
    if what := _parameters_problem(value["parameters"]):
        return what
    try:
        size = sum(1 for _ in Space(**value).configurations())
    except Exception as error:  # whatever allowed() does
        return f"SPACE['allowed'] raised {type(error).__name__}: {error}"
    if not 2 <= size <= MOST:
        return f"SPACE allows {size} configurations, and 2 to {MOST} can be searched"
    return None


def _parameters_problem(value: object) -> str | None:
    if not isinstance(value, dict) or not value:
        return f"SPACE['parameters'] is {value!r:.80}"
    for name, values in value.items():
        place = f"SPACE['parameters'][{name!r:.40}]"
        if not isinstance(name, str) or not name.isidentifier():
            return f"{place} has no name that a function could take"
        if not isinstance(values, tuple) or not values:
            return f"{place} is {values!r:.80}, no tuple of values"
        words = [str(one) for one in values]  # as a row of a record has them, between blanks
        plain = all(isinstance(one, int | float | str) for one in values)
        if not plain or json_flaw(values) or any(w.split() != [w] or ":" in w for w in words):
            return f"{place} is {values!r:.80}, not plain values"
        if len(set(values)) < len(values):
            return f"{place} has a value twice"
    return None

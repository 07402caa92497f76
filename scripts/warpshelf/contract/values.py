"""What the contract asks of the values of cases.py, SPACE among them, and those values, typed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from warpshelf.core import files
from warpshelf.core.files import LARGEST_INTEGER, json_flaw

# The space that a kernel's parameters span: what SPACE must be, and its configurations.
#
# A configuration is a value for each parameter that `allowed` lets pass. On a CPU each of them is
# verified, compiled and counted, on a GPU verified and timed, and the record has them all, so that
# a search over them can be run again with neither.

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


LISTS = ("CASES", "TIMED", "COUNTED")  # of cases; the last may be left out
UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
MAXIMA = ("registers", "spilled_bytes", "shared_bytes")  # of LIMITS
OF_VIEWS = (
    "warps", "sectors_over_ideal", "wavefronts_over_ideal", "wide_accesses", "instructions_per_fma",
)  # fmt: skip
FACT_KEYS = ("name", "value", "expected", "tolerance", "unit", "source")

Case = dict[str, Any]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Obligations:
    """What cases.py says, its shape checked: nothing else asks the module for its names.

    Of a program or a model only `facts`, and what it predicts and draws, are there.
    """

    cases: tuple[Case, ...] = ()  # of CASES, then of COUNTED
    counted: range = range(0)  # the numbers of the latter
    kills: tuple[tuple[str, ...], ...] = ()  # of each case, the mutants that it rejects
    timed: tuple[Case, ...] = ()
    variants: Mapping[str, Function] = field(default_factory=dict)
    peers: Mapping[str, Function] = field(default_factory=dict)
    inputs: Function | None = None
    reference: Function | None = None
    cost: Function | None = None
    facts: Function | None = None
    predictions: Function | None = None
    goals: Any = ()  # of predictions; looked at together with what that returns
    timelines: Function | None = None
    grids: Function | None = None
    tolerance: Mapping[str, tuple[float, str]] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    space: Space | None = None

    def variants_for(self, case: Case) -> list[str]:
        """The variants that a case is for, in the order of VARIANTS."""
        chosen = case.get("variants", self.variants)
        return [name for name in self.variants if name in chosen]


class Problem(NamedTuple):
    """What is malformed: the name, what is wrong with it, and the mend."""

    name: str
    what: str
    mend: str


class MalformedCases(Exception):
    """The values of cases.py are not as the contract has them."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(problem.what for problem in problems))
        self.problems = problems


def read_obligations(module: ModuleType, kind: str, needs: Mapping[str, Any]) -> Obligations:
    """What an imported cases.py says. Its names are known to be there, from its source.

    Raises:
        Malformed: something is not of its shape.
    """
    names = vars(module)
    if kind != "kernel":
        return Obligations(
            facts=names["facts"],
            predictions=names.get("predictions"),
            goals=names.get("GOALS", ()),
            timelines=names.get("timelines"),
            grids=names.get("grids"),
        )
    if problems := _kernel_problems(names, needs):
        raise MalformedCases(problems)
    cases = (*names["CASES"], *names.get("COUNTED", ()))
    return Obligations(
        cases=tuple(_without_kills(case) for case in cases),
        counted=range(len(names["CASES"]), len(cases)),
        kills=tuple(tuple(case.get("kills", ())) for case in cases),
        timed=tuple(names["TIMED"]),
        variants=dict(names["VARIANTS"]),
        peers=dict(names["PEERS"]),
        inputs=names["inputs"],
        reference=names["reference"],
        cost=names.get("cost"),
        tolerance=names.get("TOLERANCE", {}),
        limits=names.get("LIMITS", {}),
        space=Space(**names["SPACE"]) if "SPACE" in names else None,
    )


def _without_kills(case: Case) -> Case:
    return {key: value for key, value in case.items() if key != "kills"}


def _kernel_problems(names: Mapping[str, Any], needs: Mapping[str, Any]) -> list[Problem]:
    rows: list[Problem] = []
    lists = {name: names[name] for name in LISTS if name in names}
    for name, cases in lists.items():
        rows.extend(_case_problems(name, cases))
    for name in ("VARIANTS", "PEERS"):
        rows.extend(_function_problems(name, names[name]))
    if rows:
        return rows
    variants, peers = names["VARIANTS"], names["PEERS"]
    if shared := sorted(variants.keys() & peers.keys()):
        rows.append(
            Problem("PEERS", f"{shared[0]!r} is a variant as well", "name one of them anew")
        )
    for name in sorted(needs.get("variants", {}).keys() - {*variants, *peers}, key=str):
        what = f"NEEDS['variants'] names {name!r}, which is no variant"
        rows.append(Problem("NEEDS", what, "mend it"))
    for name, cases in lists.items():
        for index, case in enumerate(cases):
            rows.extend(_direction_problems(f"{name}[{index}]", name, case, list(variants)))
    return [
        *rows,
        *_tolerance_problems(names.get("TOLERANCE", {})),
        *_limit_problems(names.get("LIMITS", {})),
        *_space_problems(names),
    ]


def _space_problems(names: Mapping[str, Any]) -> list[Problem]:
    what = space_problem(names["SPACE"]) if "SPACE" in names else None
    return [Problem("SPACE", what, MEND)] if what else []


def _case_problems(name: str, value: object) -> list[Problem]:
    mend = "make it a tuple of dicts of plain values"
    if not isinstance(value, list | tuple) or (name == "CASES" and not value):
        return [Problem(name, f"{name} is {short_repr(value)}", mend)]
    for index, case in enumerate(value):
        if not isinstance(case, dict):
            return [Problem(name, f"{name}[{index}] is {short_repr(case)}", mend)]
        if what := json_flaw(case):
            return [Problem(name, f"{name}[{index}] cannot be recorded: it {what}", mend)]
    return []


def _function_problems(name: str, value: object) -> list[Problem]:
    if not isinstance(value, dict) or not value:
        return [
            Problem(name, f"{name} is {short_repr(value)}", "make it a dict of name to function")
        ]
    return [
        Problem(name, f"{name}[{key!r:.80}] is no function", "give a callable")
        for key, function in value.items()
        if not isinstance(key, str) or not callable(function)
    ]


def _direction_problems(place: str, name: str, case: Case, variants: list[str]) -> list[Problem]:
    """What a case says beside its properties: whom it is for, which mutants it rejects."""
    rows = []
    chosen = case.get("variants", [])
    if not isinstance(chosen, list | tuple) or any(item not in variants for item in chosen):
        what = f"{place}['variants'] is {short_repr(chosen)}"
        rows.append(Problem(name, what, "name variants of VARIANTS in a list"))
    kills = case.get("kills", [])
    if name == "TIMED" and "kills" in case:
        rows.append(Problem(name, f"{place} has kills", "leave it to CASES, which are verified"))
    elif not isinstance(kills, list | tuple) or not all(isinstance(one, str) for one in kills):
        what = f"{place}['kills'] is {short_repr(kills)}"
        rows.append(Problem(name, what, "name mutants in a list"))
    return rows


def _tolerance_problems(value: object) -> list[Problem]:
    mend = 'write TOLERANCE = {"float32": (1e-5, "why")}'
    if not isinstance(value, dict):
        return [Problem("TOLERANCE", f"TOLERANCE is {short_repr(value)}", mend)]
    rows = []
    for key, pair in value.items():
        good = isinstance(pair, tuple) and len(pair) == 2 and _is_amount(pair[0])
        if not good or not isinstance(pair[1], str) or not pair[1].strip():
            rows.append(Problem("TOLERANCE", f"TOLERANCE[{key!r:.80}] is {short_repr(pair)}", mend))
    return rows


def _not_whole(value: object) -> str | None:
    whole = isinstance(value, int) and _is_amount(value)
    return None if whole else f"is {short_repr(value)}, no whole number"


def _no_ratio(value: object) -> str | None:
    return None if _is_amount(value) else f"is {short_repr(value)}, no number of 0 or more"


LIMITS_SHAPE = {
    **{f"{name}?": _not_whole for name in MAXIMA},
    **{f"{name}?": _no_ratio for name in OF_VIEWS},
    "matrix_instructions?": bool,
}


def _limit_problems(value: object) -> list[Problem]:
    mend = 'write LIMITS = {"*": {"registers": 128, "spilled_bytes": 0}}'
    if not isinstance(value, dict):
        return [Problem("LIMITS", f"LIMITS is {short_repr(value)}", mend)]
    for kernel, limits in value.items():
        if what := files.shape_problem(limits, LIMITS_SHAPE, f"LIMITS[{kernel!r:.80}]"):
            return [Problem("LIMITS", what, mend)]
    return []


COST_SHAPE = {"bytes?": _not_whole, "flops?": _not_whole, "unit?": UNITS}


def cost_problem(cost: object) -> str | None:
    """Why what cost() returned is malformed, or None: any of `bytes`, `flops` and `unit`."""
    return files.shape_problem(cost, COST_SHAPE, "cost()")


def case_form(case: Case) -> tuple[tuple[str, str], ...]:
    """What of a case is not its size: dtype, pass, causal and the like."""
    return tuple(
        (key, str(value))
        for key, value in sorted(case.items())
        if key != "variants" and (isinstance(value, bool) or not isinstance(value, int | float))
    )


def side_keys(case: Case) -> list[str]:
    """The keys of a case that are sides of its tensors: one letter, and a whole number."""
    return [key for key, value in case.items() if len(key) == 1 and type(value) is int]


def fact_problem(fact: object) -> str | None:
    """Why a row of facts() is malformed, or None."""
    if not isinstance(fact, dict) or set(fact) != set(FACT_KEYS):
        return f"facts() holds {short_repr(fact)}, not a dict of {', '.join(FACT_KEYS)}"
    for key in ("value", "expected", "tolerance"):
        good = _is_amount if key == "tolerance" else _is_finite if key == "expected" else _is_number
        if not good(fact[key]):
            return f"fact {fact['name']!r:.80}: its {key} is {short_repr(fact[key])}"
    for key in ("name", "unit", "source"):
        if not isinstance(fact[key], str):
            return f"fact {fact['name']!r:.80}: its {key} is {short_repr(fact[key])}"
    if not fact["source"].strip():
        return f"fact {fact['name']!r} names no source"
    return None


def fact_holds(fact: dict[str, Any]) -> bool:
    """Whether value and expected agree: relatively, or absolutely where 0 is expected."""
    value, expected, tolerance = fact["value"], fact["expected"], fact["tolerance"]
    if not math.isfinite(value):
        return False
    if tolerance == 0:
        # Exact beyond 2**53 too, where a difference would be rounded.
        return bool(value == expected)
    return bool(abs(value - expected) <= tolerance * (abs(expected) if expected else 1.0))


def _is_number(value: object) -> bool:
    """A float, or an integer that a record can hold."""
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_INTEGER


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and _is_number(value) and math.isfinite(value)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and _is_finite(value) and value >= 0


def short_repr(value: object) -> str:
    """A value as a finding shows it."""
    return f"{value!r:.80}"

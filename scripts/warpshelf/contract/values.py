"""What the contract asks of the values of cases.py, SPACE among them, and those values, typed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from warpshelf.core.files import LARGEST_INTEGER, NUMBER, json_flaw, shape_problem

Case = dict[str, Any]
Configuration = dict[str, Any]
Function = Callable[..., Any]

# What single values must be: as functions of a shape (core/files.py), with the words for a finding.


def short_repr(value: object) -> str:
    """A value as a finding shows it."""
    return f"{value!r:.80}"


def amount_problem(value: Any) -> str | None:
    """Why it is no finite number of 0 or more that a record can hold, or None."""
    good = shape_problem(value, NUMBER, "") is None and value >= 0
    return None if good else f"is {short_repr(value)}, no number of 0 or more"


def whole_problem(value: object) -> str | None:
    """Why it is no such number that is whole, or None."""
    good = isinstance(value, int) and amount_problem(value) is None
    return None if good else f"is {short_repr(value)}, no whole number"


def words_problem(value: object) -> str | None:
    """Why it is no text that says something, or None."""
    good = isinstance(value, str) and value.strip()
    return None if good else f"is {short_repr(value)}, no words"


# The space that a kernel's parameters span: what SPACE must be, and its configurations.
#
# A configuration is a value for each parameter that `allowed` lets pass. On a CPU each of them is
# verified, compiled and counted, on a GPU verified and timed, and the record has them all, so that
# a search over them can be run again with neither.

SPACE_KEYS = ("parameters", "allowed", "run", "case", "counted", "scaled", "timed")
MOST = 4096  # configurations; each is compiled for every architecture


@dataclass(frozen=True)
class Space:
    """What SPACE says, its shape checked.

    `parameters`: the values of each, in order. `allowed(**configuration)`: whether it can be
    launched at all. `run(*inputs, **configuration)`: the kernel. `case`: a case of inputs() on
    which every configuration is verified. `counted(**configuration)`: a small case whose executed
    instructions are counted, and `scaled(cycles, **configuration)`: what the bound of it in SM
    cycles makes of the busiest SM in the case `timed`, which is the one that a GPU times.
    """

    parameters: Mapping[str, tuple[int | float | str | bool, ...]]
    allowed: Callable[..., object]
    run: Callable[..., object]
    case: Case
    counted: Callable[..., Case]
    scaled: Callable[..., float]
    timed: Case

    def configurations(self) -> Iterator[Configuration]:
        """Those allowed; the last parameter changes first."""
        for values in itertools.product(*self.parameters.values()):
            configuration = dict(zip(self.parameters, values, strict=True))
            if self.allowed(**configuration):
                yield configuration


def space_problem(value: object) -> str | None:
    """Why a SPACE is malformed, or None; `allowed` is called on every configuration."""
    if not isinstance(value, dict) or value.keys() != set(SPACE_KEYS):
        return f"SPACE is {short_repr(value)}"
    for name in SPACE_KEYS[1:]:
        said = f"SPACE[{name!r}] is {short_repr(value[name])}"
        if name not in ("case", "timed"):
            if not callable(value[name]):
                return f"{said}, no function"
        elif not isinstance(value[name], dict) or json_flaw(value[name]):
            return f"{said}, no case"
    parameters = value["parameters"]
    if not isinstance(parameters, dict) or not parameters:
        return f"SPACE['parameters'] is {short_repr(parameters)}"
    for name, values in parameters.items():
        place = f"SPACE['parameters'][{name!r:.40}]"
        if not isinstance(name, str) or not name.isidentifier():
            return f"{place} has no name that a function could take"
        if not isinstance(values, tuple) or not values:
            return f"{place} is {short_repr(values)}, no tuple of values"
        words = [str(one) for one in values]  # as a row of a record has them, between blanks
        plain = all(isinstance(one, int | float | str) for one in values)
        if not plain or json_flaw(values) or any(w.split() != [w] or ":" in w for w in words):
            return f"{place} is {short_repr(values)}, not plain values"
        if len(set(values)) < len(values):
            return f"{place} has a value twice"
    try:
        size = sum(1 for _ in Space(**value).configurations())
    except Exception as error:  # whatever allowed() does
        return f"SPACE['allowed'] raised {type(error).__name__}: {error}"
    if not 2 <= size <= MOST:
        return f"SPACE allows {size} configurations, and 2 to {MOST} can be searched"
    return None


# All that cases.py says.

MENDS = {
    "CASES": "make it a tuple of dicts of plain values",
    "TIMED": "make it a tuple of dicts of plain values",
    "COUNTED": "make it a tuple of dicts of plain values",  # it may be left out
    "VARIANTS": "make it a dict of name to function",
    "PEERS": "make it a dict of name to function",
    "TOLERANCE": 'write TOLERANCE = {"float32": (1e-5, "why")}',
    "LIMITS": 'write LIMITS = {"*": {"registers": 128, "spilled_bytes": 0}}',
    "SPACE": f"write a dict of {', '.join(SPACE_KEYS)}",
}
LISTS = ("CASES", "TIMED", "COUNTED")
UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
OF_VIEWS = (
    "warps", "sectors_over_ideal", "wavefronts_over_ideal", "wide_accesses", "instructions_per_fma",
)  # fmt: skip
LIMITS_SHAPE = {
    "registers?": whole_problem,
    "spilled_bytes?": whole_problem,
    "shared_bytes?": whole_problem,
    **{f"{name}?": amount_problem for name in OF_VIEWS},
    "matrix_instructions?": bool,
}
COST_SHAPE = {"bytes?": whole_problem, "flops?": whole_problem, "unit?": UNITS}


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
        MalformedCases: something is not of its shape.
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
    # What compares values with each other takes them to be well formed each.
    problems = list(_form_problems(names)) or list(_relation_problems(names, needs))
    if problems:
        raise MalformedCases(problems)
    cases = (*names["CASES"], *names.get("COUNTED", ()))
    return Obligations(
        cases=tuple({k: v for k, v in case.items() if k != "kills"} for case in cases),
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


def _form_problems(names: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the lists of cases and of functions, each by itself."""
    for name in LISTS:
        value = names.get(name, ())
        if not isinstance(value, list | tuple) or (name == "CASES" and not value):
            yield Problem(name, f"{name} is {short_repr(value)}", MENDS[name])
            continue
        for index, case in enumerate(value):
            flaw = json_flaw(case)
            if not isinstance(case, dict):
                yield Problem(name, f"{name}[{index}] is {short_repr(case)}", MENDS[name])
            elif flaw:
                what = f"{name}[{index}] cannot be recorded: it {flaw}"
                yield Problem(name, what, MENDS[name])
    for name in ("VARIANTS", "PEERS"):
        value = names[name]
        if not isinstance(value, dict) or not value:
            yield Problem(name, f"{name} is {short_repr(value)}", MENDS[name])
            continue
        for key, function in value.items():
            if not isinstance(key, str) or not callable(function):
                yield Problem(name, f"{name}[{key!r:.80}] is no function", "give a callable")


def _relation_problems(names: Mapping[str, Any], needs: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with names of variants and mutants, and with TOLERANCE, LIMITS and SPACE."""
    variants, peers = list(names["VARIANTS"]), names["PEERS"]
    if shared := sorted(peers.keys() & variants):
        yield Problem("PEERS", f"{shared[0]!r} is a variant as well", "name one of them anew")
    for name in sorted(needs.get("variants", {}).keys() - {*variants, *peers}, key=str):
        what = f"NEEDS['variants'] names {name!r}, which is no variant"
        yield Problem("NEEDS", what, "mend it")
    for name, index, case in ((n, i, c) for n in LISTS for i, c in enumerate(names.get(n, ()))):
        place = f"{name}[{index}]"
        chosen, kills = case.get("variants", []), case.get("kills", [])
        if not isinstance(chosen, list | tuple) or any(item not in variants for item in chosen):
            what = f"{place}['variants'] is {short_repr(chosen)}"
            yield Problem(name, what, "name variants of VARIANTS in a list")
        if name == "TIMED" and "kills" in case:
            yield Problem(name, f"{place} has kills", "leave it to CASES, which are verified")
        elif not isinstance(kills, list | tuple) or not all(isinstance(one, str) for one in kills):
            what = f"{place}['kills'] is {short_repr(kills)}"
            yield Problem(name, what, "name mutants in a list")
    tolerance, limits = names.get("TOLERANCE", {}), names.get("LIMITS", {})
    if not isinstance(tolerance, dict):
        what = f"TOLERANCE is {short_repr(tolerance)}"
        yield Problem("TOLERANCE", what, MENDS["TOLERANCE"])
        tolerance = {}
    for key, pair in tolerance.items():
        good = isinstance(pair, tuple) and len(pair) == 2 and not amount_problem(pair[0])
        if not good or words_problem(pair[1]):
            what = f"TOLERANCE[{key!r:.80}] is {short_repr(pair)}"
            yield Problem("TOLERANCE", what, MENDS["TOLERANCE"])
    wrong = {"LIMITS": shape_problem(limits, {"*": LIMITS_SHAPE}, "LIMITS")}
    wrong["SPACE"] = space_problem(names["SPACE"]) if "SPACE" in names else None
    yield from (Problem(name, what, MENDS[name]) for name, what in wrong.items() if what)


def cost_problem(cost: object) -> str | None:
    """Why what cost() returned is malformed, or None: any of `bytes`, `flops` and `unit`."""
    return shape_problem(cost, COST_SHAPE, "cost()")


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


def _number_problem(value: object) -> str | None:
    """Of a float, which need not be finite, or an integer that a record can hold."""
    whole = type(value) is int and abs(value) < LARGEST_INTEGER
    return None if whole or isinstance(value, float) else f"is {short_repr(value)}, no number"


FACT_SHAPE = {
    "name": str, "value": _number_problem, "expected": NUMBER, "tolerance": amount_problem,
    "unit": str, "source": words_problem,
}  # fmt: skip


def fact_problem(fact: object) -> str | None:
    """Why a row of facts() is malformed, or None."""
    name = fact.get("name") if isinstance(fact, dict) else fact
    return shape_problem(fact, FACT_SHAPE, f"fact {short_repr(name)}")


def fact_holds(fact: dict[str, Any]) -> bool:
    """Whether value and expected agree: relatively, or absolutely where 0 is expected."""
    value, expected, tolerance = fact["value"], fact["expected"], fact["tolerance"]
    if not math.isfinite(value):
        return False
    if tolerance == 0:
        # Exact beyond 2**53 too, where a difference would be rounded.
        return bool(value == expected)
    return bool(abs(value - expected) <= tolerance * (abs(expected) if expected else 1.0))

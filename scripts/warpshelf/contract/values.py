"""What the contract asks of the values of cases.py, and those values, typed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from warpshelf.core.files import NUMBER, Shape, json_flaw, shape_problem

Case = dict[str, Any]
Configuration = dict[str, Any]
Function = Callable[..., Any]

# What single values must be: as functions of a shape (core/files.py), with the words for a finding.


def short_repr(value: object) -> str:
    """A value as a finding shows it."""
    return f"{value!r:.80}"


def problem_unless(test: Callable[[Any], object], otherwise: str) -> Callable[[object], str | None]:
    """What is wrong with a value that `test` refuses, as a shape asks it; `otherwise` says why."""
    return lambda value: None if test(value) else f"is {short_repr(value)}, {otherwise}"


def is_amount(value: Any) -> bool:
    """Whether it is a finite number of 0 or more that a record can hold."""
    return shape_problem(value, NUMBER, "") is None and value >= 0


amount_problem = problem_unless(is_amount, "not a number of 0 or more")
whole_problem = problem_unless(lambda v: isinstance(v, int) and is_amount(v), "not a whole number")
words_problem = problem_unless(lambda v: isinstance(v, str) and v.strip(), "not a text")


# The space that a kernel's parameters span. On a CPU each configuration is verified, compiled and
# counted, on a GPU verified and timed; a search over their records can be run again with neither.

MOST = 4096  # configurations; each is compiled for every architecture


@dataclass(frozen=True)
class Space:
    """What SPACE says, its shape checked."""

    parameters: Mapping[str, tuple[int | float | str | bool, ...]]  # the values of each, in order
    allowed: Callable[..., object]  # (**configuration): whether it can be launched at all
    run: Callable[..., object]  # (*inputs, **configuration): the kernel
    case: Case  # on which every configuration is verified
    counted: Callable[..., Case]  # (**configuration): a small case, to count instructions
    # (cycles, **configuration): of the busiest SM in the case `timed`, by those of the counted one
    scaled: Callable[..., float]
    timed: Case  # which a GPU times

    def configurations(self) -> Iterator[Configuration]:
        """Those allowed; the last parameter changes first."""
        for values in itertools.product(*self.parameters.values()):
            configuration = dict(zip(self.parameters, values, strict=True))
            if self.allowed(**configuration):
                yield configuration


# All that cases.py says.

LISTS = ("CASES", "TIMED", "COUNTED")
UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
OF_VIEWS = (
    "warps", "sectors_over_ideal", "wavefronts_over_ideal", "wide_accesses", "instructions_per_fma",
)  # fmt: skip
LIMITS_SHAPE = {
    **dict.fromkeys(("registers?", "spilled_bytes?", "shared_bytes?"), whole_problem),
    **{f"{name}?": amount_problem for name in OF_VIEWS},
    "matrix_instructions?": bool,
}
COST_SHAPE = {"bytes?": whole_problem, "flops?": whole_problem, "unit?": UNITS}


def _cases_problem(value: object) -> str | None:
    if not isinstance(value, list | tuple):
        return f"is {short_repr(value)}"
    for index, case in enumerate(value):
        flaw = json_flaw(case) if isinstance(case, dict) else "is not a dict"
        if flaw:
            return f"cannot be recorded: number {index} {flaw}"
    return None


def _functions_problem(value: object) -> str | None:
    if not isinstance(value, dict) or not value:
        return f"is {short_repr(value)}"
    odd = [k for k, function in value.items() if not isinstance(k, str) or not callable(function)]
    return f"names {short_repr(odd[0])}, which is not a function" if odd else None


def _parameters_problem(value: object) -> str | None:
    if not isinstance(value, dict) or not value:
        return f"is {short_repr(value)}"
    for name, values in value.items():
        said = f"has {name!r:.40}"
        if not isinstance(name, str) or not name.isidentifier():
            return f"{said}, not a parameter name"
        if not isinstance(values, tuple) or not values:
            return f"{said} with {short_repr(values)}, not a tuple of values"
        words = [str(one) for one in values]  # as a row of a record has them, between blanks
        plain = all(isinstance(one, int | float | str) for one in values)
        if not plain or json_flaw(values) or any(w.split() != [w] or ":" in w for w in words):
            return f"{said} with {short_repr(values)}, not plain values"
        if len(set(values)) < len(values):
            return f"{said} with the same value twice"
    return None


_function_problem = problem_unless(callable, "not a function")
_case_problem = problem_unless(lambda v: isinstance(v, dict) and not json_flaw(v), "not a case")
_pair_problem = problem_unless(
    lambda v: isinstance(v, tuple) and len(v) == 2 and is_amount(v[0]) and not words_problem(v[1]),
    "not an error with a reason",
)
CASES_MEND = "make it a tuple of dicts of plain values"
FUNCTIONS_MEND = "make it a dict of name to function"
SPACE_SHAPE = {
    "parameters": _parameters_problem,
    **dict.fromkeys(("allowed", "run", "counted", "scaled"), _function_problem),
    **dict.fromkeys(("case", "timed"), _case_problem),
}
# How each value of a kernel must be, and the mend. Some may be left out.
FORMS: dict[str, tuple[Shape, str]] = {
    "CASES": (lambda v: _cases_problem(v) or (None if v else f"is {v!r}"), CASES_MEND),
    "TIMED": (_cases_problem, CASES_MEND),
    "COUNTED": (_cases_problem, CASES_MEND),
    "VARIANTS": (_functions_problem, FUNCTIONS_MEND),
    "PEERS": (_functions_problem, FUNCTIONS_MEND),
    "TOLERANCE": ({"*": _pair_problem}, 'write TOLERANCE = {"float32": (1e-5, "why")}'),
    "LIMITS": ({"*": LIMITS_SHAPE}, 'write LIMITS = {"*": {"registers": 128, "spilled_bytes": 0}}'),
    "SPACE": (SPACE_SHAPE, f"write a dict of {', '.join(SPACE_SHAPE)}"),
}


@dataclass(frozen=True)
class Obligations:
    """What cases.py says, its shape checked: nothing else asks the module for its names. Of a
    program or a model only `facts`, and what it predicts and draws, are there."""

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


class MalformedCases(Exception):
    """The values of cases.py break the contract: (name, what is wrong, mend) each."""

    def __init__(self, problems: list[tuple[str, str, str]]) -> None:
        super().__init__("; ".join(what for _, what, _ in problems))
        self.problems = problems


def read_obligations(module: ModuleType, kind: str, needs: Mapping[str, Any]) -> Obligations:
    """What an imported cases.py says, whose names are known to be there from its source;
    MalformedCases if something is not of its shape."""
    names = vars(module)
    if kind != "kernel":
        offers = ("facts", "predictions", "timelines", "grids")
        offered: dict[str, Any] = {name: names.get(name) for name in offers}
        return Obligations(**offered, goals=names.get("GOALS", ()))
    told = {n: shape_problem(names[n], shape, n) for n, (shape, _) in FORMS.items() if n in names}
    problems = [(name, what, FORMS[name][1]) for name, what in told.items() if what]
    problems = problems or list(_name_problems(names, needs))
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


def _name_problems(
    names: Mapping[str, Any], needs: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """What is wrong with the names in well-formed values, and with the size of SPACE."""
    variants, peers = list(names["VARIANTS"]), names["PEERS"]
    if shared := sorted(peers.keys() & variants):
        yield "PEERS", f"{shared[0]!r} is also a variant", "rename one of them"
    for name in sorted(needs.get("variants", {}).keys() - {*variants, *peers}, key=str):
        yield "NEEDS", f"NEEDS['variants'] names {name!r}, which is not a variant", "fix the name"
    for name, index, case in ((n, i, c) for n in LISTS for i, c in enumerate(names.get(n, ()))):
        place = f"{name}[{index}]"
        chosen, kills = case.get("variants", []), case.get("kills", [])
        if not isinstance(chosen, list | tuple) or any(item not in variants for item in chosen):
            what = f"{place}['variants'] is {short_repr(chosen)}"
            yield name, what, "list names from VARIANTS"
        if name == "TIMED" and "kills" in case:
            yield name, f"{place} has kills", "move it to CASES, which are verified"
        elif not isinstance(kills, list | tuple) or not all(isinstance(one, str) for one in kills):
            yield name, f"{place}['kills'] is {short_repr(kills)}", "write a list of mutants"
    if "SPACE" in names:
        try:
            size = sum(1 for _ in Space(**names["SPACE"]).configurations())
        except Exception as error:  # whatever allowed() does
            what = f"SPACE['allowed'] raised {type(error).__name__}: {error}"
            yield "SPACE", what, "make it accept every configuration"
        else:
            if not 2 <= size <= MOST:
                what = f"SPACE allows {size} configurations, outside 2 to {MOST}"
                yield "SPACE", what, "change the parameters or allowed()"


def cost_problem(cost: object) -> str | None:
    """Why what cost() returned is malformed, or None: any of `bytes`, `flops` and `unit`."""
    return shape_problem(cost, COST_SHAPE, "cost()")


def case_form(case: Case) -> tuple[tuple[str, str], ...]:
    """The part of a case that is not its size: dtype, pass, causal and the like."""
    return tuple(
        (key, str(value))
        for key, value in sorted(case.items())
        if key != "variants" and (isinstance(value, bool) or not isinstance(value, int | float))
    )


def side_keys(case: Case) -> list[str]:
    """The keys of a case that are sides of its tensors: one letter, and a whole number."""
    return [key for key, value in case.items() if len(key) == 1 and type(value) is int]


FACT_SHAPE = {
    "name": str,
    "value": problem_unless(  # it need not be finite: then the fact does not hold
        lambda v: isinstance(v, float) or not shape_problem(v, int, ""), "not a number"
    ),
    "expected": NUMBER,
    "tolerance": amount_problem,
    "unit": str,
    "source": words_problem,
}


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

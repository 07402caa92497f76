"""What the contract asks of a snippet's values once it is imported."""

from __future__ import annotations

import math
from types import ModuleType

from warpshelf.files import LARGEST_INTEGER, flaw

UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
LIMIT_KEYS = ("registers", "spilled_bytes", "shared_bytes", "matrix_instructions")
FACT_KEYS = ("name", "value", "expected", "tolerance", "unit", "source")


def problems(module: ModuleType, kind: str, needs: dict) -> list[tuple[str, str, str]]:
    """What is malformed: (attribute, what, mend) rows. Names are known to be there."""
    if kind != "kernel":
        return []
    rows: list[tuple[str, str, str]] = []
    for name in ("CASES", "TIMED"):
        rows.extend(_cases(name, getattr(module, name)))
    for name in ("VARIANTS", "PEERS"):
        value = getattr(module, name)
        if not isinstance(value, dict) or not value:
            rows.append((name, f"{name} is {_short(value)}", "make it a dict of name to function"))
            continue
        for key, function in value.items():
            if not isinstance(key, str) or not callable(function):
                rows.append((name, f"{name}[{key!r}] is no function", "give a callable"))
    if rows:
        return rows
    known = {*module.VARIANTS, *module.PEERS}
    if shared := sorted(module.VARIANTS.keys() & module.PEERS.keys()):
        rows.append(("PEERS", f"{shared[0]!r} is a variant as well", "name one of them anew"))
    for name in sorted(needs.get("variants", {}).keys() - known, key=str):
        rows.append(("NEEDS", f"NEEDS['variants'] names {name!r}, which is no variant", "mend it"))
    for name in ("CASES", "TIMED"):
        for index, case in enumerate(getattr(module, name)):
            chosen = case.get("variants", [])
            if not isinstance(chosen, list | tuple) or any(
                item not in list(module.VARIANTS) for item in chosen
            ):
                what = f"{name}[{index}]['variants'] is {_short(chosen)}"
                rows.append((name, what, "name variants of VARIANTS in a list"))
    return [*rows, *_tolerance(module), *_limits(module)]


def _cases(name: str, value: object) -> list[tuple[str, str, str]]:
    mend = "make it a tuple of dicts of plain values"
    if not isinstance(value, list | tuple) or (name == "CASES" and not value):
        return [(name, f"{name} is {_short(value)}", mend)]
    for index, case in enumerate(value):
        if not isinstance(case, dict):
            return [(name, f"{name}[{index}] is {_short(case)}", mend)]
        if what := flaw(case):
            return [(name, f"{name}[{index}] cannot be recorded: it {what}", mend)]
    return []


def _tolerance(module: ModuleType) -> list[tuple[str, str, str]]:
    mend = 'write TOLERANCE = {"float32": (1e-5, "why")}'
    value = getattr(module, "TOLERANCE", {})
    if not isinstance(value, dict):
        return [("TOLERANCE", f"TOLERANCE is {_short(value)}", mend)]
    rows = []
    for key, pair in value.items():
        good = isinstance(pair, tuple) and len(pair) == 2 and _amount(pair[0])
        if not good or not isinstance(pair[1], str) or not pair[1].strip():
            rows.append(("TOLERANCE", f"TOLERANCE[{key!r}] is {_short(pair)}", mend))
    return rows


def _limits(module: ModuleType) -> list[tuple[str, str, str]]:
    mend = 'write LIMITS = {"*": {"registers": 128, "spilled_bytes": 0}}'
    value = getattr(module, "LIMITS", {})
    if not isinstance(value, dict):
        return [("LIMITS", f"LIMITS is {_short(value)}", mend)]
    for kernel, limits in value.items():
        if not isinstance(limits, dict) or not all(map(_limit, limits, limits.values())):
            return [("LIMITS", f"LIMITS[{kernel!r}] is {_short(limits)}", mend)]
    return []


def _limit(key: object, value: object) -> bool:
    if key == "matrix_instructions":
        return isinstance(value, bool)
    return key in LIMIT_KEYS and isinstance(value, int) and _amount(value)


def cost_problem(cost: object) -> str | None:
    """Why a cost is malformed, or None."""
    if not isinstance(cost, dict) or not {"bytes", "flops", "unit"} <= cost.keys():
        return f"cost() returned {_short(cost)}"
    for key in ("bytes", "flops"):
        value = cost[key]
        if not isinstance(value, int) or not _amount(value):
            return f"cost()[{key!r}] is {_short(value)}, no whole number"
    if cost["unit"] not in UNITS:
        return f"cost()['unit'] is {_short(cost['unit'])}, none of {', '.join(UNITS)}"
    return None


def fact_problem(fact: object) -> str | None:
    """Why a row of facts() is malformed, or None."""
    if not isinstance(fact, dict) or set(fact) != set(FACT_KEYS):
        return f"facts() holds {_short(fact)}, not a dict of {', '.join(FACT_KEYS)}"
    for key in ("value", "expected", "tolerance"):
        good = _amount if key == "tolerance" else _finite if key == "expected" else _number
        if not good(fact[key]):
            return f"fact {fact['name']!r:.80}: its {key} is {_short(fact[key])}"
    for key in ("name", "unit", "source"):
        if not isinstance(fact[key], str):
            return f"fact {fact['name']!r:.80}: its {key} is {_short(fact[key])}"
    if not fact["source"].strip():
        return f"fact {fact['name']!r} names no source"
    return None


def fact_holds(fact: dict) -> bool:
    """Whether value and expected agree: relatively, or absolutely where 0 is expected."""
    value, expected, tolerance = fact["value"], fact["expected"], fact["tolerance"]
    if not math.isfinite(value):
        return False
    if tolerance == 0:
        return value == expected  # exact beyond 2**53 too, where a difference would be rounded
    return abs(value - expected) <= tolerance * (abs(expected) if expected else 1.0)


def _number(value: object) -> bool:
    """A float, or an integer that a record can hold."""
    if isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < LARGEST_INTEGER


def _finite(value: object) -> bool:
    return _number(value) and math.isfinite(value)  # type: ignore[arg-type]


def _amount(value: object) -> bool:
    return _finite(value) and value >= 0  # type: ignore[operator]


def _short(value: object) -> str:
    return f"{value!r:.80}"

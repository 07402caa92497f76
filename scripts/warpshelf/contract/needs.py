"""What a snippet asks of a machine: the entries of NEEDS, and what is wrong with one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from warpshelf.contract import architectures

NEEDS_KEYS: dict[str, Any] = {
    "gpus": int,
    "seconds": (int, float),
    "cpu": str,
    "variants": dict,
    "why": str,  # beside `sm`: why on no other architecture
    "modules": list,  # of an extra; beside what `run` brings
    "records": list,  # of other snippets, which it reads
}
REASONS = ("cpu", "why")
EXTRAS = {"optuna": "search", "scipy": "search", "simpy": "events"}  # of pyproject.toml, by module
LISTS = {"modules": "name what it imports", "records": "name snippets by their ids"}


def need_problems(key: object, value: Any) -> Iterator[tuple[str, str]]:
    """What is wrong with one entry of NEEDS: (what, mend)."""
    said = f"NEEDS[{key!r}] is {value!r}"
    if key == "sm":
        if not _valid_architectures(value):
            yield said, f"write {architectures.FORMS}"
    elif not isinstance(key, str) or key not in NEEDS_KEYS:
        known = ", ".join(("sm", *NEEDS_KEYS))
        yield f"NEEDS has the unknown key {key!r}", f"known are {known}"
    elif not isinstance(value, NEEDS_KEYS[key]) or isinstance(value, bool):
        yield said, "give a reason in words" if key in REASONS else "mend it"
    elif key in REASONS and not value.strip():
        yield said, "give a reason in words"
    elif key == "seconds" and not 0 < value <= 3600:
        yield said, "keep it from 1 to 3600"
    elif key in LISTS:
        if not value or not all(isinstance(one, str) and one.isidentifier() for one in value):
            yield said, LISTS[key]
    elif key == "variants":
        for name, limits in value.items():
            if not _valid_limits(limits):
                what = f"NEEDS['variants'][{name!r}] is {limits!r}"
                yield what, 'write {"sm": 90, "why": "wgmma", "cpu": "why not there"}'


def _valid_limits(value: object) -> bool:
    if not isinstance(value, dict) or not value.keys() <= {"sm", *REASONS}:
        return False
    reasons = [value[key] for key in REASONS if key in value]
    if not all(isinstance(why, str) and why.strip() for why in reasons):
        return False
    return _valid_architectures(value["sm"]) if "sm" in value else "why" not in value


def _valid_architectures(value: object) -> bool:
    try:
        architectures.parse_architectures(value)
    except ValueError:
        return False
    return True

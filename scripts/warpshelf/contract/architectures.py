"""The GPU architectures that a kernel is for, as SM versions: `90`, `[90, 100]`, `">=80"`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

FORMS = '90, [90, 100], ">=80" or "80-90"'
RANGE = re.compile(r">= ?(?P<from>\d{2,3})|(?P<low>\d{2,3}) ?- ?(?P<high>\d{2,3})", re.ASCII)


@dataclass(frozen=True)
class Architectures:
    """A set of SM versions, or all from `low` to `high` (None: without end)."""

    exactly: tuple[int, ...] = ()
    low: int = 0
    high: int | None = None

    def covers(self, sm: int) -> bool:
        """Whether it is for GPUs of SM version `sm`."""
        if self.exactly:
            return sm in self.exactly
        return self.low <= sm and (self.high is None or sm <= self.high)

    def __str__(self) -> str:
        if self.exactly:
            return "SM " + " or ".join(map(str, self.exactly))
        return f"SM {self.low} " + ("or above" if self.high is None else f"to {self.high}")

    def refusal(self, sm: int | None) -> str | None:
        """Why it does not run on a GPU of SM version `sm`; None where it does."""
        return None if self.covers(sm or 0) else f"needs {self}; this GPU is SM {sm}"


def parse(value: object) -> Architectures:
    """What `"sm"` says in NEEDS.

    Raises:
        ValueError: it is of none of the forms.
    """
    if isinstance(value, str) and (found := RANGE.fullmatch(value)):
        if found["from"]:
            return Architectures(low=int(found["from"]))
        if int(found["low"]) <= int(found["high"]):
            return Architectures(low=int(found["low"]), high=int(found["high"]))
    listed = value if isinstance(value, list | tuple) else [value]
    versions = [one for one in listed if type(one) is int and 10 <= one < 1000]
    if versions and len(versions) == len(listed):
        return Architectures(exactly=tuple(sorted(set(versions))))
    raise ValueError(f"is {value!r:.60}, none of {FORMS}")


def number(target: str) -> int:
    """90 of "sm_90"."""
    return int(target.removeprefix("sm_"))


def compiled_for(needs: dict[str, Any]) -> str:
    """What nvcc is to compile a snippet's .cu for: `native`, or the one GPU that it is for.

    A kernel for one architecture alone has features that no later one keeps: `sm_90a`.
    """
    versions = {one for each in of(needs) for one in each.exactly}
    return f"sm_{versions.pop()}a" if len(versions) == 1 else "native"


def of(needs: dict[str, Any], variant: str | None = None) -> tuple[Architectures, ...]:
    """What NEEDS asks of a GPU for the snippet and, where given, one of its variants: all hold."""
    own = needs.get("variants", {}).get(variant, {})
    return tuple(parse(limits["sm"]) for limits in (needs, own) if "sm" in limits)


def covered(needs: dict[str, Any], variant: str | None, sm: int) -> bool:
    """Whether NEEDS lets the variant run on a GPU of SM version `sm`."""
    return all(each.covers(sm) for each in of(needs, variant))

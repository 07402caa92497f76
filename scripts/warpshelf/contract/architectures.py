"""What NEEDS of a snippet may say, and the GPU architectures that it is for, as SM versions.

What NEEDS says enters, and what the language of a snippet asks by itself, which stands here once,
so that thirty snippets need not say the same; whether a GPU is among them, and why not, leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpshelf.contract import syntax
from warpshelf.contract.syntax import ParsedModule

FORMS = '90, [90, 100], ">=80" or "80-90"'
# Those of which the site says what runs there, each with cards that have it, as NVIDIA lists them
# (https://developer.nvidia.com/cuda-gpus).
CARDS = {
    75: ("T4", "RTX 20 series"),
    80: ("A100", "A30"),
    86: ("A10", "A40", "RTX A6000", "RTX 30 series"),
    89: ("L4", "L40S", "RTX 6000 Ada", "RTX 40 series"),
    90: ("H100", "H200", "GH200"),
    100: ("B200", "GB200"),
    103: ("B300", "GB300"),
    120: ("RTX PRO 6000 Blackwell", "RTX 50 series"),
}
KNOWN = tuple(CARDS)
LANGUAGE = "language"  # the key of what a language asks: NEEDS itself cannot have it
RANGE = re.compile(r">= ?(?P<from>\d{2,3})|(?P<low>\d{2,3}) ?- ?(?P<high>\d{2,3})", re.ASCII)


@dataclass(frozen=True)
class Architectures:
    """A set of SM versions, or all from `low` to `high` (None: without end); `why` no other."""

    exactly: tuple[int, ...] = ()
    low: int = 0
    high: int | None = None
    why: str = ""

    def covers(self, sm: int) -> bool:
        """Whether it is for GPUs of SM version `sm`."""
        if self.exactly:
            return sm in self.exactly
        return self.low <= sm and (self.high is None or sm <= self.high)

    def __str__(self) -> str:
        if self.exactly:
            return "SM " + " or ".join(map(str, self.exactly))
        return f"SM {self.low} " + ("or above" if self.high is None else f"to {self.high}")

    def refusal_reason(self, sm: int | None) -> str | None:
        """Why it does not run on a GPU of SM version `sm`; None where it does."""
        if self.covers(sm or 0):
            return None
        return f"needs {self}{f' ({self.why})' if self.why else ''}; this GPU is SM {sm}"


def parse_architectures(value: object) -> Architectures:
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


def sm_version(target: str) -> int:
    """90 of "sm_90"."""
    return int(target.removeprefix("sm_"))


def nvcc_target(needs: dict[str, Any]) -> str:
    """What nvcc is to compile a snippet's .cu for: `native`, or the one GPU that it is for.

    A kernel for one architecture alone has features that no later one keeps: `sm_90a`.
    """
    versions = {one for each in required_architectures(needs) for one in each.exactly}
    return f"sm_{versions.pop()}a" if len(versions) == 1 else "native"


def required_architectures(
    needs: dict[str, Any], variant: str | None = None
) -> tuple[Architectures, ...]:
    """What NEEDS asks of a GPU for the snippet and, where given, one of its variants: all hold.

    What the snippet's language asks is among it: see `language_minimum`.
    """
    parts = (needs, needs.get(LANGUAGE, {}), needs.get("variants", {}).get(variant, {}))
    return tuple(
        replace(parse_architectures(limits["sm"]), why=limits.get("why", ""))
        for limits in parts
        if "sm" in limits
    )


def is_covered(needs: dict[str, Any], variant: str | None, sm: int) -> bool:
    """Whether NEEDS lets the variant run on a GPU of SM version `sm`."""
    return all(each.covers(sm) for each in required_architectures(needs, variant))


LEAST = 80
TILES = {"sm": f">={LEAST}", "why": "Triton multiplies tiles from there on"}
GLUON = {"sm": f">={LEAST}", "why": "Gluon compiles from there on"}
PRODUCT = re.compile(r"\btl\.dot(_scaled)?\(")


def language_minimum(root: Path, parsed: ParsedModule) -> dict[str, str] | None:
    """The need that the language of a snippet brings, itself and through others of snippets/.

    Triton names SM 80 as the least that it supports (its README, "Supported Hardware"). What it
    still compiles for SM 75 was looked at with 3.7: kernels without products of tiles pass;
    those with `tl.dot` have no matrix instructions there since 3.3 (triton-lang/triton, pull
    request 5066) and are spelled out in scalar products, which takes minutes to compile and may
    not fit; Gluon's layouts name instructions that LLVM cannot select there, which ends the
    process.
    """
    pending, seen = [parsed], {parsed.path}
    while pending:
        one = pending.pop()
        if any(name.startswith("triton.experimental.gluon") for name in one.imports):
            return dict(GLUON)
        if PRODUCT.search(one.text):
            return dict(TILES)
        for name in one.imports:
            path = root.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith("snippets.") and path.is_file() and path not in seen:
                seen.add(path)
                try:
                    pending.append(syntax.parse_python(path))
                except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
                    continue
    return None


# What a snippet asks of a machine: the entries of NEEDS, and what is wrong with one.

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
            yield said, f"write {FORMS}"
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
        parse_architectures(value)
    except ValueError:
        return False
    return True

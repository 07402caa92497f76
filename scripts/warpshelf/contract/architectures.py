"""What NEEDS of a snippet may say, and the GPU architectures it is for, as SM versions: those that
NEEDS names, and those that its language has, which no snippet need say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpshelf.contract.syntax import ParsedModule, walk_imports
from warpshelf.contract.values import problem_unless
from warpshelf.core.files import Shape, shape_problem

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
        """Why it does not run on a GPU of SM version `sm`; None if it does."""
        why = f" ({self.why})" if self.why else ""
        return None if self.covers(sm or 0) else f"needs {self}{why}; this GPU is SM {sm}"


def parse_architectures(value: object) -> Architectures:
    """What `"sm"` says in NEEDS; ValueError if it has none of the forms."""
    if isinstance(value, str) and (found := RANGE.fullmatch(value)):
        if found["from"]:
            return Architectures(low=int(found["from"]))
        if int(found["low"]) <= int(found["high"]):
            return Architectures(low=int(found["low"]), high=int(found["high"]))
    listed: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    if listed and all(type(one) is int and 10 <= one < 1000 for one in listed):
        return Architectures(exactly=tuple(sorted(set(listed))))
    raise ValueError(f"is {value!r:.60}, not one of {FORMS}")


def sm_version(target: str) -> int:
    """90 of "sm_90"."""
    return int(target.removeprefix("sm_"))


def nvcc_target(needs: dict[str, Any]) -> str:
    """What nvcc is to compile a snippet's .cu for: `native`, or the one GPU that it is for, with
    the features that no later one keeps: `sm_90a`."""
    versions = {one for each in required_architectures(needs) for one in each.exactly}
    return f"sm_{versions.pop()}a" if len(versions) == 1 else "native"


def required_architectures(
    needs: dict[str, Any], variant: str | None = None
) -> tuple[Architectures, ...]:
    """What NEEDS and the language, which is in it as LANGUAGE, ask of a GPU for a snippet, or for
    one variant of it: all hold."""
    parts = (needs, needs.get(LANGUAGE, {}), needs.get("variants", {}).get(variant, {}))
    return tuple(
        replace(parse_architectures(limits["sm"]), why=limits.get("why", ""))
        for limits in parts
        if "sm" in limits
    )


def is_covered(needs: dict[str, Any], variant: str | None, sm: int) -> bool:
    """Whether NEEDS lets the variant run on a GPU of SM version `sm`."""
    return all(each.covers(sm) for each in required_architectures(needs, variant))


TILES = {"sm": ">=80", "why": "Triton multiplies tiles from there on"}
GLUON = {"sm": ">=80", "why": "Gluon compiles from there on"}
PRODUCT = re.compile(r"\btl\.dot(_scaled)?\(")


def language_minimum(root: Path, parsed: ParsedModule) -> dict[str, str] | None:
    """The need that the language of a snippet brings, itself and through others of snippets/.

    Triton supports SM 80 and above (its README). With 3.7, kernels without `tl.dot` pass for SM 75;
    those with it have no matrix instructions there since 3.3 (triton-lang/triton, pull request
    5066) and take minutes to compile; Gluon's layouts end the process in LLVM.
    """
    for one in filter(None, walk_imports(root, parsed.path)):
        if any(name.startswith("triton.experimental.gluon") for name in one.imports):
            return dict(GLUON)
        if PRODUCT.search(one.text):
            return dict(TILES)
    return None


# What a snippet asks of a machine: the entries of NEEDS, and what is wrong with them.

EXTRAS = {"optuna": "search", "scipy": "search", "simpy": "events"}  # of pyproject.toml, by module


def _sm_problem(value: object) -> str | None:
    try:
        parse_architectures(value)
    except ValueError as error:
        return str(error)
    return None


_reason_problem = problem_unless(lambda v: isinstance(v, str) and v.strip(), "not a reason")
_names_problem = problem_unless(
    lambda v: isinstance(v, list) and v and all(isinstance(n, str) and n.isidentifier() for n in v),
    "not a list of names",
)
LIMITS = {"sm?": _sm_problem, "cpu?": _reason_problem, "why?": _reason_problem}
NEEDS = {
    **LIMITS,  # "cpu": why not on one; "why", beside "sm": why on no other architecture
    "gpus?": int,
    "seconds?": problem_unless(
        lambda v: type(v) in (int, float) and 0 < v <= 3600, "not from 1 to 3600"
    ),
    "variants?": {"*": object},  # LIMITS each
    "modules?": _names_problem,  # of an extra; beside what `run` brings
    "records?": _names_problem,  # of other snippets, which it reads
}


def needs_problems(needs: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    """What is wrong with NEEDS: (what, mend)."""
    yield from _limits_problems(needs, NEEDS, "NEEDS")
    variants = needs.get("variants")
    for name, limits in variants.items() if isinstance(variants, dict) else ():
        yield from _limits_problems(limits, LIMITS, f"NEEDS.variants.{name}")


def _limits_problems(limits: Any, shape: Shape, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(limits, dict):
        yield f"{place} is not an object", "write a dict"
        return
    known = f"known are {', '.join(key.rstrip('?') for key in shape)}"
    for key, value in limits.items():
        if what := shape_problem({key: value}, shape, place):
            yield what, "fix it" if f"{key}?" in shape else known
    if "why" in limits and "sm" not in limits:
        yield f"{place} has 'why' without 'sm'", "add the sm that it explains"

"""What is the same on every machine: compiled figures, facts, predictions, pictures, demos.

Enters: a record, and that of the CPU, both of the present code; or what two runs of a demo()
printed. Leaves: in what they differ that does not depend on the machine, in words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from warpshelf.contract.snippet import Snippet
from warpshelf.records.schema import Record

EXPECTED = 1e-6  # by which what a fact expects, a formula's value, may differ between machines
DRAWN = ("timelines", "grids")


def reproducibility_errors(claim: Record, truth: Record, snippet: Snippet) -> Iterator[str]:
    """In what `claim` differs from `truth`, the record of the CPU, though no machine would."""
    if snippet.kind == "kernel":
        yield from _compiled_errors(claim, truth)
    if snippet.kind == "kernel" or snippet.cannot_run(None, 0) is None:
        yield from _fact_errors(claim, truth)
        for key in DRAWN:
            if claim.get(key) != truth.get(key):
                yield f"draws other {key} than a CPU"
    yield from _demo_errors(claim, truth, snippet)


def _demo_errors(claim: Record, truth: Record, snippet: Snippet) -> Iterator[str]:
    """What a demo printed: the same on every machine, see `texts_agree`."""
    ran = snippet.cannot_run(claim["machine"]["sm"], claim["machine"]["gpus"]) is None
    if not ran and claim["demo"]:
        yield "has the output of a demo, though the snippet does not run there"
    if ran and truth["demo"] and not texts_agree(truth["demo"], claim["demo"]):
        where = first_difference(truth["demo"], claim["demo"])
        yield f"its demo printed other than on a CPU: {where}"


def _compiled_errors(claim: Record, truth: Record) -> Iterator[str]:
    """Figures of code compiled ahead of time, which are the same wherever that is done."""
    mine, due = (
        {_build_key(row): row for row in one.get("compiled", ())} for one in (claim, truth)
    )
    if len(mine) < len(claim.get("compiled", ())):
        yield "has the figures of a compiled kernel twice"
    if not mine and claim["machine"]["triton"] is None:
        return  # whose ptxas and cuobjdump read the binaries
    for kernel, variant, _, arch in sorted(due.keys() - mine.keys()):
        yield f"leaves out the compiled figures of {kernel} in {variant!r} for {arch}"
    for kernel, variant, _, arch in sorted(mine.keys() - due.keys()):
        yield f"has compiled figures of {kernel} in {variant!r} for {arch}, which are not due"
    for key in sorted(mine.keys() & due.keys()):
        if mine[key]["compiler"] == due[key]["compiler"] and mine[key] != due[key]:
            odd = next(name for name in mine[key] if mine[key][name] != due[key][name])
            told = f"{mine[key][odd]} {odd}, not {due[key][odd]}"
            yield f"says that {key[0]} in {key[1]!r} for {key[3]} has {told}"


def _build_key(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return row["kernel"], row["variant"], row["language"], row["arch"]


def _fact_errors(claim: Record, truth: Record) -> Iterator[str]:
    wanted = {_fact_key(fact): fact for fact in truth.get("facts", ())}
    found = {_fact_key(fact): fact for fact in claim.get("facts", ())}
    for key in wanted.keys() - found.keys():
        yield f"leaves out the fact {key[0]!r}, or has it with another tolerance, unit or source"
    for key in found.keys() - wanted.keys():
        yield f"has the fact {key[0]!r}, which is not due so"
    if len(claim.get("facts", ())) != len(truth.get("facts", ())) and wanted.keys() == found.keys():
        yield "has a fact twice"
    for key in wanted.keys() & found.keys():
        due, said = wanted[key]["expected"], found[key]["expected"]
        if not math.isclose(due, said, rel_tol=EXPECTED):
            yield f"expects {said} of the fact {key[0]!r}, not {due}"
    figures, told = (
        {_prediction_key(row): row for row in one.get("predictions", ())} for one in (truth, claim)
    )
    for name, *_ in sorted(figures.keys() - told.keys()):
        yield f"leaves out the prediction {name!r}, or has it with another published figure"
    for name, *_ in sorted(told.keys() - figures.keys()):
        yield f"has the prediction {name!r}, which is not due so"
    for row in sorted(figures.keys() & told.keys()):
        ours, theirs = figures[row]["predicted"], told[row]["predicted"]
        if not math.isclose(ours, theirs, rel_tol=RELATIVE):
            yield f"predicts {theirs} of {row[0]!r}, not {ours}"
    if claim.get("goals") != truth.get("goals"):
        yield "asks for other goals of its predictions"


def _prediction_key(row: Mapping[str, Any]) -> tuple[str, str, float, str, str, bool]:
    return row["name"], row["set"], row["published"], row["unit"], row["source"], row["fitted"]


def _fact_key(fact: Mapping[str, Any]) -> tuple[str, float, str, str]:
    return fact["name"], fact["tolerance"], fact["unit"], fact["source"]


NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
RELATIVE = 1e-3  # by which a number may differ from machine to machine


def texts_agree(first: str, second: str) -> bool:
    """Whether two texts are the same but for numbers that are close.

    Blanks beside a number do not count: a column has one more where 10.001 becomes 9.999.
    """
    old, new = ([part.strip(" \t") for part in NUMBER.split(text)] for text in (first, second))
    if old != new:
        return False
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(a == b or math.isclose(float(a), float(b), rel_tol=RELATIVE) for a, b in pairs)


def first_difference(first: str, second: str) -> str:
    """The first line in which two texts differ, from both."""
    old, new = first.splitlines(), second.splitlines()
    for index in range(max(len(old), len(new))):
        a = old[index] if index < len(old) else "nothing"
        b = new[index] if index < len(new) else "nothing"
        if a != b:
            return f"line {index + 1} is {b!r:.80} where {a!r:.80} stood"
    return "the line ends differ"

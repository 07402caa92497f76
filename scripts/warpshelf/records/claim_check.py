"""Whether a record claims what is due, and says what is the same on every machine.

What is due stands in the record of the CPU, which anyone can make again. So a record from a machine
that nobody else has cannot leave out what went wrong there, nor allow itself a larger error.
Compiled figures, facts, predictions, pictures and what a demo prints do not depend on the machine.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from warpshelf.contract import architectures
from warpshelf.contract.snippet import Snippet
from warpshelf.records import space
from warpshelf.records.schema import Record

OUT_OF_MEMORY = "out of memory"  # how the reason begins for which a case to time is skipped
COST = ("bytes", "flops", "unit")
ONLY_PASSED = {"time", "untimed", "refuses", "max_error_limit"}  # keys of a result
MAIN = "sm_90"  # of the targets that a CPU executes, the one whose results its record has
TARGETS = (MAIN, "sm_80", "sm_100")  # what kernels are executed for where there is no GPU

EXPECTED = 1e-6  # by which what a fact expects, a formula's value, may differ between machines
RELATIVE = 1e-3  # by which a number may differ from machine to machine
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
BUILD = ("kernel", "variant", "language", "arch")  # what a row of compiled figures is known by
# The rows that a formula computes: their keys, what else they may be stated with, the value that
# machines agree on, how closely, and the words where they do not.
FORMULAS = {
    "facts": (
        ("name", "tolerance", "unit", "source"), "tolerance, unit or source",
        "expected", EXPECTED, "expects {} of the fact {!r}, not {}",
    ),
    "predictions": (
        ("name", "set", "published", "unit", "source", "fitted"), "published figure",
        "predicted", RELATIVE, "predicts {} of {!r}, not {}",
    ),
}  # fmt: skip


def claim_errors(claim: Record, truth: Record, snippet: Snippet) -> list[str]:
    """What `claim` lacks, adds or loosens against `truth`, the record of the CPU, in words."""
    found: list[str] = []
    if snippet.kind == "kernel":
        found += [*_kernel_errors(claim, truth, snippet), *_compiled_errors(claim, truth)]
    if snippet.kind == "kernel" or snippet.cannot_run(None, 0) is None:
        found += _formula_errors(claim, truth)
        pictures = [key for key in ("timelines", "grids") if claim.get(key) != truth.get(key)]
        found += [f"has other {key} than the CPU's record" for key in pictures]
    ran = snippet.cannot_run(claim["machine"]["sm"], claim["machine"]["gpus"]) is None
    if not ran and claim["demo"]:
        found.append("has a demo's output, though the snippet does not run there")
    if ran and truth["demo"] and not texts_agree(truth["demo"], claim["demo"]):
        where = first_difference(truth["demo"], claim["demo"])
        found.append(f"its demo printed something else than on a CPU: {where}")
    return found


def texts_agree(first: str, second: str) -> bool:
    """Whether two texts are the same but for numbers that are close."""
    # Blanks beside a number do not count: a column has one more where 10.001 becomes 9.999.
    old, new = ([part.strip(" \t") for part in NUMBER.split(text)] for text in (first, second))
    if old != new:
        return False
    pairs = zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    return all(a == b or math.isclose(float(a), float(b), rel_tol=RELATIVE) for a, b in pairs)


def first_difference(first: str, second: str) -> str:
    """The first line in which two texts differ, from both."""
    lines = zip_longest(first.splitlines(), second.splitlines(), fillvalue="nothing")
    for number, (a, b) in enumerate(lines, 1):
        if a != b:
            return f"line {number} is {b!r:.80} instead of {a!r:.80}"
    return "the line endings differ"


def due_from_row(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is due of a case, from its row in the record of a CPU; None where that does not tell.

    What a variant or a peer did there is due of it everywhere, and what it was allowed. Where none
    passed, or the case is timed, which a CPU does not do, the record has a row of its own.
    """
    allowed = {one.get("tolerance") for one in row["results"] if one["verdict"] == "passed"}
    if row["timed"] or len(allowed) != 1:
        return None
    variants, peers = (
        [one["name"] for one in row["results"] if one["role"] == role]
        for role in ("variant", "peer")
    )
    due = {"case": row["case"], "timed": False, "variants": variants, "peers": peers}
    return due | {"tolerance": allowed.pop()}


def skip_reason(
    needs: Mapping[str, Any], name: str, sm: int | None, on_cpu: bool = False
) -> str | None:
    """Why NEEDS spares a variant or peer for SM version `sm`: of a GPU, or executed `on_cpu`."""
    own = needs.get("variants", {}).get(name, {})
    if on_cpu and "cpu" in own:
        return str(own["cpu"])
    asked = architectures.required_architectures(dict(needs), name) if sm is not None else ()
    return next((why for each in asked if (why := each.refusal_reason(sm))), None)


def _index_rows(record: Record, part: str, keys: tuple[str, ...]) -> dict[tuple[Any, ...], Any]:
    return {tuple(row[key] for key in keys): row for row in record.get(part, ())}


def _compiled_errors(claim: Record, truth: Record) -> Iterator[str]:
    """Figures of code compiled ahead of time, which are the same wherever that is done."""
    mine, due = (_index_rows(one, "compiled", BUILD) for one in (claim, truth))
    if len(mine) < len(claim.get("compiled", ())):
        yield "has the figures of a compiled kernel twice"
    if not mine and claim["machine"]["triton"] is None:
        return  # whose ptxas and cuobjdump read the binaries
    for kernel, variant, _, arch in sorted(due.keys() - mine.keys()):
        yield f"leaves out the compiled figures of {kernel} in {variant!r} for {arch}"
    for kernel, variant, _, arch in sorted(mine.keys() - due.keys()):
        yield f"has compiled figures of {kernel} in {variant!r} for {arch}, which are not expected"
    for key in sorted(mine.keys() & due.keys()):
        if mine[key]["compiler"] == due[key]["compiler"] and mine[key] != due[key]:
            odd = next(name for name in mine[key] if mine[key][name] != due[key][name])
            told = f"{mine[key][odd]} {odd}, not {due[key][odd]}"
            yield f"gives {key[0]} in {key[1]!r} for {key[3]}: {told}"


def _formula_errors(claim: Record, truth: Record) -> Iterator[str]:
    for part, (keys, more, value, near, says) in FORMULAS.items():
        mine, due = (_index_rows(one, part, keys) for one in (claim, truth))
        what = part.removesuffix("s")
        for name, *_ in sorted(due.keys() - mine.keys()):
            yield f"leaves out the {what} {name!r}, or has it with another {more}"
        for name, *_ in sorted(mine.keys() - due.keys()):
            yield f"has the {what} {name!r}, which is not expected like this"
        if mine.keys() == due.keys() and len(claim.get(part, ())) != len(truth.get(part, ())):
            yield f"has a {what} twice"
        for key in sorted(mine.keys() & due.keys()):
            if not math.isclose(mine[key][value], due[key][value], rel_tol=near):
                yield says.format(mine[key][value], key[0], due[key][value])
    if claim.get("goals") != truth.get("goals"):
        yield "has other goals for its predictions"


def _kernel_errors(claim: Record, truth: Record, snippet: Snippet) -> Iterator[str]:
    machine, due = claim["machine"], truth.get("due", [])
    on_cpu = machine["gpus"] == 0
    if not due:
        yield "cannot be checked: the CPU record does not say what to expect"
        return
    if on_cpu and _sorted_due(claim) != _sorted_due(truth):
        yield "expects other results than the source"
    why = snippet.cannot_run(machine["sm"], machine["gpus"])
    # Results are of a GPU's SM version, on a CPU of that of the PTX which it executed.
    executed = architectures.sm_version(MAIN) if MAIN in claim.get("targets", ()) else None
    sm = executed if on_cpu else int(machine["sm"])
    names = {name for row in due for name in (*row["variants"], *row["peers"])}
    spared = {name: skip_reason(snippet.needs, name, sm, on_cpu) for name in names}
    skips = claim.get("skips", ())
    for what, reason in ((skip["what"], skip["reason"]) for skip in skips):
        case = _oversized_case(what, reason)
        large = reason.isprintable() and any(row["case"] == case for row in due)
        variant = any(what in row["variants"] for row in due) and spared[what] == reason
        if not (large or variant or (what, reason) == ("everything", why)):
            yield f"says that {what!r:.60} was not run because {reason!r:.60}; no run here says so"
    if why:
        if claim.get("cases"):
            yield f"has results, though the snippet does not run there: {why}"
        return
    yield from space.space_errors(claim, truth)
    checked = {_case_label(row): row for row in truth.get("cases", ())}
    left: dict[str, list[dict[str, Any]]] = {}
    for row in due:
        if not (on_cpu and row["timed"]):
            left.setdefault(_case_label(row), []).append(row)
    for row in claim.get("cases", ()):
        label = _case_label(row)
        if wanted := left.get(label):
            yield from _case_errors(row, wanted.pop(0), spared)
            if beside := checked.get(label):
                yield from _cpu_case_errors(row, beside)
        else:
            yield f"has a case that is not expected: {label}"
    oversized = [_oversized_case(skip["what"], skip["reason"]) for skip in skips]
    for label, rows in left.items():
        for row in rows:
            if not (row["timed"] and row["case"] in oversized):
                yield f"leaves out {label}"


def _sorted_due(record: Record) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in record.get("due", ()))


def _case_label(row: Mapping[str, Any]) -> str:
    return f"the {'timed ' if row['timed'] else ''}case {json.dumps(row['case'], sort_keys=True)}"


def _oversized_case(what: str, reason: str) -> Any:
    """The case that was skipped for want of memory, as `case {'m': 4096}`; None for other skips."""
    if not reason.startswith(OUT_OF_MEMORY):
        return None
    try:
        return json.loads(json.dumps(ast.literal_eval(what.removeprefix("case "))))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _case_errors(
    row: Mapping[str, Any], due: Mapping[str, Any], spared: Mapping[str, str | None]
) -> Iterator[str]:
    """What the results of a case claim other than is `due`; `spared` has why NEEDS skips one."""
    where = f"on {_case_label(row)}"
    left = {(role, name) for role in ("variant", "peer") for name in due[f"{role}s"]}
    for result in row["results"]:
        what = f"{result['role']} {result['name']!r}"
        if (result["role"], result["name"]) not in left:
            yield f"has the {what}, which is not expected {where}"
            continue
        left.remove((result["role"], result["name"]))
        verdict, reason, needs = result["verdict"], result.get("reason", ""), spared[result["name"]]
        if verdict == "skipped" and needs is None:
            yield f"skips the {what} {where}, for which NEEDS gives no reason"
        elif verdict == "skipped" and reason != needs:
            yield f"skips the {what} {where} because it {reason!r:.60}; NEEDS says {needs!r:.60}"
        elif verdict != "skipped" and needs is not None:
            yield f"has a result of the {what} {where}, which NEEDS excludes: {needs}"
        if verdict == "failed" and not reason.strip():
            yield f"does not say why the {what} failed {where}"
        if verdict != "passed":
            if odd := sorted(result.keys() & ONLY_PASSED):
                yield f"has the {odd[0]} of the {what} {where}, which did not pass"
            continue
        if result.get("tolerance") != due["tolerance"]:
            allowed = f"{result.get('tolerance')} {where}, not {due['tolerance']}"
            yield f"allows the {what} an error of {allowed}"
        if row["timed"] and not result.keys() & {"time", "untimed"}:
            yield f"has neither a time of the {what} {where} nor a reason for none"
        if not row["timed"] and "untimed" in result:
            yield f"gives a reason for having no time of the {what} {where}, which is not timed"
        if row["timed"] and "refuses" in result:
            yield f"has views of the {what} {where}, which is only timed"
    for role, name in sorted(left, reverse=True):
        yield f"leaves out the {role} {name!r} {where}"
    yield from _cost_errors(row, due, [key for key in COST if key in due])


def _cost_errors(
    row: Mapping[str, Any], due: Mapping[str, Any], keys: list[str] | tuple[str, ...]
) -> Iterator[str]:
    for key in keys:
        if row.get(key) != due.get(key):
            yield f"states {row.get(key)} {key} on {_case_label(row)}, not {due.get(key)}"


def _cpu_case_errors(row: Mapping[str, Any], checked: Mapping[str, Any]) -> Iterator[str]:
    """What a case and its results leave out or add beside those of a CPU, where both passed."""
    yield from _cost_errors(row, checked, COST)
    passed = (one for one in checked["results"] if one["verdict"] == "passed")
    known = {(one["role"], one["name"]): one for one in passed}
    peers = [one for one in row["results"] if one["role"] == "peer"]
    measured = bool(peers) and peers[0]["verdict"] == "passed"  # the yardstick of the others
    for result in row["results"]:
        truth = known.get((result["role"], result["name"]))
        if truth is None or result["verdict"] != "passed":
            continue
        where = f"the {result['role']} {result['name']!r}"
        at = f"on {_case_label(row)}"
        if "max_error" in truth and "max_error" not in result:
            yield f"leaves out the largest error of {where} {at}"
        if measured and "max_error_limit" in truth and "max_error_limit" not in result:
            yield f"leaves out the limit of the largest error of {where} {at}"
        refused, due = (set(one.get("refuses", ())) for one in (result, truth))
        if refused != due:
            odd = ", ".join(sorted(refused ^ due))
            yield f"disagrees with a CPU on the views that {where} refuses {at}: {odd}"

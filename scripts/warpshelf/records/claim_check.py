"""Whether a record claims what is due, and says what is the same on every machine.

What is due stands in the record of the CPU, which anyone can make again. So a record from a machine
that nobody else has cannot leave out what went wrong there, nor allow itself a larger error.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from warpshelf.contract import architectures
from warpshelf.contract.snippet import Snippet
from warpshelf.records import space
from warpshelf.records.schema import Record

# What is the same on every machine: compiled figures, facts, predictions, pictures, demos.
#
# Enters: a record, and that of the CPU, both of the present code; or what two runs of a demo()
# printed. Leaves: in what they differ that does not depend on the machine, in words.

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


OUT_OF_MEMORY = "out of memory"  # how the reason begins for which a case to time is skipped
COST = ("bytes", "flops", "unit")
ONLY_PASSED = {"time", "untimed", "refuses", "max_error_limit"}  # keys of a result
MAIN = "sm_90"  # of the targets that a CPU executes, the one whose results its record has
TARGETS = (MAIN, "sm_80", "sm_100")  # what kernels are executed for where there is no GPU


def claim_errors(claim: Record, truth: Record, snippet: Snippet) -> list[str]:
    """What `claim` leaves out, adds or loosens, in words.

    `truth` is the record of the CPU; both are whole, and of the present code of `snippet`.
    """
    found = list(_kernel_errors(claim, truth, snippet)) if snippet.kind == "kernel" else []
    return [*found, *reproducibility_errors(claim, truth, snippet)]


def due_from_row(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """What is due of a case, from its row in the record of a CPU; None where that does not tell.

    What a variant or a peer did there is due of it everywhere, and what it was allowed. Where none
    passed, or the case is timed, which a CPU does not do, the record has a row of its own.
    """
    names = {
        role: [one["name"] for one in row["results"] if one["role"] == role]
        for role in ("variant", "peer")
    }
    allowed = {one.get("tolerance") for one in row["results"] if one["verdict"] == "passed"}
    if row["timed"] or len(allowed) != 1:
        return None
    return {
        "case": row["case"],
        "timed": False,
        "variants": names["variant"],
        "peers": names["peer"],
        "tolerance": allowed.pop(),
    }


def skip_reason(
    needs: Mapping[str, Any], name: str, sm: int | None, on_cpu: bool = False
) -> str | None:
    """Why NEEDS spares a variant or peer for SM version `sm`: of a GPU, or executed `on_cpu`.

    `sm` is None where nothing is compiled for a GPU, as in a program.
    """
    own = needs.get("variants", {}).get(name, {})
    if on_cpu and "cpu" in own:
        return str(own["cpu"])
    if sm is None:
        return None
    refusals = (
        each.refusal_reason(sm) for each in architectures.required_architectures(dict(needs), name)
    )
    return next((why for why in refusals if why), None)


def _sm_version(claim: Record) -> int | None:
    """The SM version that a record's results are of; on a CPU that of the PTX it executed."""
    if claim["machine"]["gpus"]:
        return int(claim["machine"]["sm"])
    targets = claim.get("targets", ())
    return architectures.sm_version(MAIN) if MAIN in targets else None


def _kernel_errors(claim: Record, truth: Record, snippet: Snippet) -> Iterator[str]:
    due, on_cpu = truth.get("due", []), claim["machine"]["gpus"] == 0
    if not due:
        yield "cannot be checked: the record of the CPU does not say what is due"
        return
    if on_cpu and _due_rows(claim) != _due_rows(truth):
        yield "says other than the source what is due"
    machine = claim["machine"]
    why = snippet.cannot_run(machine["sm"], machine["gpus"])
    yield from _skip_errors(claim, due, snippet, why)
    if why:
        if claim.get("cases"):
            yield f"has results, though the snippet does not run there: {why}"
        return
    checked = {_case_key(row): row for row in truth.get("cases", ())}
    yield from space.space_errors(claim, truth)
    left: dict[str, list[dict[str, Any]]] = {}
    for row in due:
        if not (on_cpu and row["timed"]):
            left.setdefault(_case_key(row), []).append(row)
    for row in claim.get("cases", ()):
        if wanted := left.get(_case_key(row)):
            yield from _case_errors(row, wanted.pop(0), claim, snippet)
            if beside := checked.get(_case_key(row)):
                yield from _cpu_case_errors(row, beside)
        else:
            yield f"has a case that is not due: {_case_label(row)}"
    for row in (row for rows in left.values() for row in rows):
        if not _may_skip(row, claim, snippet):
            yield f"leaves out {_case_label(row)}"


def _due_rows(record: Record) -> list[str]:
    """What a record says is due, in no order."""
    return sorted(json.dumps(row, sort_keys=True) for row in record.get("due", ()))


def _case_key(row: Mapping[str, Any]) -> str:
    return json.dumps([row["case"], row["timed"]], sort_keys=True)


def _case_label(row: Mapping[str, Any]) -> str:
    return f"the {'timed ' if row['timed'] else ''}case {json.dumps(row['case'], sort_keys=True)}"


def _may_skip(row: Mapping[str, Any], claim: Record, snippet: Snippet) -> bool:
    """Whether a machine may have no results of a case."""
    return row["timed"] and any(
        skip["reason"].startswith(OUT_OF_MEMORY) and _names_case(skip["what"], row["case"])
        for skip in claim.get("skips", ())
    )


def _names_case(what: str, case: object) -> bool:
    """Whether a skip is of this case: `case {'m': 4096}`."""
    try:
        named = json.loads(json.dumps(ast.literal_eval(what.removeprefix("case "))))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
    return bool(named == case)


def _case_errors(
    row: Mapping[str, Any], due: Mapping[str, Any], claim: Record, snippet: Snippet
) -> Iterator[str]:
    where = f"on {_case_label(row)}"
    left = {("variant", name) for name in due["variants"]}
    left |= {("peer", name) for name in due["peers"]}
    for result in row["results"]:
        what = f"{result['role']} {result['name']!r}"
        if (result["role"], result["name"]) not in left:
            yield f"has the {what}, which is not due {where}"
            continue
        left.remove((result["role"], result["name"]))
        on_cpu = not claim["machine"]["gpus"]
        spared = skip_reason(snippet.needs, result["name"], _sm_version(claim), on_cpu)
        reason = result.get("reason", "")
        if result["verdict"] == "skipped" and spared is None:
            yield f"skips the {what} {where}, for which NEEDS gives no reason"
        elif result["verdict"] == "skipped" and reason != spared:
            yield f"skips the {what} {where} because it {reason!r:.60}; NEEDS says {spared!r:.60}"
        elif result["verdict"] != "skipped" and spared is not None:
            yield f"has a result of the {what} {where}, which NEEDS excludes: {spared}"
        if result["verdict"] == "failed" and not reason.strip():
            yield f"says of the {what} that it failed {where}, and not why"
        if result["verdict"] != "passed":
            if odd := sorted(result.keys() & ONLY_PASSED):
                yield f"has the {odd[0]} of the {what} {where}, which did not pass"
            continue
        if result.get("tolerance") != due["tolerance"]:
            allowed = f"{result.get('tolerance')} {where}, not {due['tolerance']}"
            yield f"allows the {what} an error of {allowed}"
        if row["timed"] and not result.keys() & {"time", "untimed"}:
            yield f"has neither a time of the {what} {where} nor a reason"
        if not row["timed"] and "untimed" in result:
            yield f"gives a reason for having no time of the {what} {where}, which is not timed"
        if row["timed"] and "refuses" in result:
            yield f"has views of the {what} {where}, which is only timed"
    for role, name in sorted(left, reverse=True):
        yield f"leaves out the {role} {name!r} {where}"
    for key in COST:
        if key in due and row.get(key) != due[key]:
            yield f"states {row.get(key)} {key} {where}, not {due[key]}"


def _cpu_case_errors(row: Mapping[str, Any], checked: Mapping[str, Any]) -> Iterator[str]:
    """What a case and its results leave out or add beside those of a CPU, where both passed."""
    for key in COST:
        if row.get(key) != checked.get(key):
            yield f"states {row.get(key)} {key} on {_case_label(row)}, not {checked.get(key)}"
    passed = (one for one in checked["results"] if one["verdict"] == "passed")
    known = {(one["role"], one["name"]): one for one in passed}
    peers = [one for one in row["results"] if one["role"] == "peer"]
    measured = bool(peers) and peers[0]["verdict"] == "passed"  # the yardstick of the others
    for result in row["results"]:
        truth = known.get((result["role"], result["name"]))
        if truth is None or result["verdict"] != "passed":
            continue
        what = f"{result['role']} {result['name']!r}"
        if "max_error" in truth and "max_error" not in result:
            yield f"leaves out the largest error of the {what} on {_case_label(row)}"
        if measured and "max_error_limit" in truth and "max_error_limit" not in result:
            yield f"leaves out the limit of the largest error of the {what} on {_case_label(row)}"
        refused, due = (set(one.get("refuses", ())) for one in (result, truth))
        if refused != due:
            odd = ", ".join(sorted(refused ^ due))
            yield (
                f"says other than a CPU which views the {what} refuses on {_case_label(row)}: {odd}"
            )


def _skip_errors(
    claim: Record, due: list[dict[str, Any]], snippet: Snippet, why: str | None
) -> Iterator[str]:
    """The list of what was not run, which a page shows with its reasons."""
    on_cpu = not claim["machine"]["gpus"]
    names = {name for row in due for name in row["variants"]}
    known = {name: skip_reason(snippet.needs, name, _sm_version(claim), on_cpu) for name in names}
    if why:
        known["everything"] = why
    for skip in claim.get("skips", ()):
        what, reason = skip["what"], skip["reason"]
        memory = reason.startswith(OUT_OF_MEMORY) and reason.isprintable()
        if (
            known.get(what) == reason
            or memory
            and any(_names_case(what, row["case"]) for row in due)
        ):
            continue
        yield f"says that {what!r:.60} was not run because {reason!r:.60}; no run here says so"

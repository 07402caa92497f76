"""A plan in words: what runs where, why, about how long it takes, and what a budget leaves out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from warpshelf.bench.estimate import BASES
from warpshelf.bench.plan import Plan, Turn
from warpshelf.core import units

NAMED = 5  # snippets that a line names before it counts the rest


def lines(plan: Plan) -> list[str]:
    """What is said before a run starts: a line or more for each machine, and the time in all."""
    told = [turn for turn in plan.turns if turn.parts or turn.skipped] or plan.turns
    found = [line for turn in told for line in _turn(plan, turn)]
    if sum(bool(turn.parts) for turn in plan.turns) > 1:
        found.append(f"in all about {units.duration(plan.seconds)}")
    if left := plan.left:
        names = list(dict.fromkeys(name for name, _ in left))
        shown = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
        budget = units.duration(plan.budget or 0.0)
        share = f"{len(left)} of {plan.verdicts}"
        found.append(f"a budget of {budget} is likely to leave out {share}: {shown}")
    return found


def device(where: dict[str, Any]) -> str:
    """A machine as people name it."""
    if not where["gpus"]:
        return "CPU"
    parts = [where["device"], f"SM {where['sm']}", units.size(where["memory_bytes"])]
    return ", ".join(parts) + (f", {where['gpus']} of them" if where["gpus"] > 1 else "")


def _turn(plan: Plan, turn: Turn) -> Iterator[str]:
    reasons = Counter(part.why for part in turn.parts)
    said = [f"{len(turn.parts)} to run"]
    if turn.parts:
        said[0] += f" ({_counted(reasons)})"
    if turn.current:
        said.append(f"{len(turn.current)} current")
    line = f"{device(turn.where)}: {', '.join(said)}"
    if turn.parts:
        line += f"; about {units.duration(span(plan, turn))} with {turn.workers} "
        line += "worker" if turn.workers == 1 else "workers"
        bases = Counter(part.basis for part in turn.parts)
        line += f", judged by {_judged({one: bases[one] for one in BASES if bases[one]})}"
    yield line
    for reason, count in Counter(why for _, why in turn.skipped).most_common():
        yield f"  {count} skipped: {reason}"
    for only, count in Counter(part.only for part in turn.parts if part.only).most_common():
        yield f"  {count} only compiled: {only}"


def _counted(counts: dict[str, int]) -> str:
    """`40 never run, 8 changed …`; a single reason for a single thing needs no number."""
    if sum(counts.values()) == 1:
        return next(iter(counts))
    return ", ".join(f"{count} {what}" for what, count in counts.items())


def _judged(bases: dict[str, int]) -> str:
    if len(bases) == 1:
        return next(iter(bases))
    return ", ".join(f"{what} ({count})" for what, count in bases.items())


def span(plan: Plan, turn: Turn) -> float:
    """How long one turn of a plan takes, in seconds."""
    ends = plan.ends
    before = 0.0
    for one in plan.turns:
        end = max((ends[part.id, one.slug] for part in one.parts), default=before)
        if one is turn:
            return end - before
        before = end
    raise ValueError("a turn of another plan")


def rows(plan: Plan) -> list[dict[str, Any]]:
    """Each snippet on each machine, as `--plan --json` gives it, those that run first."""
    left = set(plan.left)
    found: list[dict[str, Any]] = []
    for turn in plan.turns:
        for part in turn.parts:
            row: dict[str, Any] = {"state": "run", "why": part.why, "only_compiled": part.only}
            row["seconds"] = round(sum(one.seconds for one in part.jobs), 1)
            row |= {"judged_by": part.basis, "left_out": (part.id, turn.slug) in left}
            found.append({"snippet": part.id, "machine": turn.slug, **row})
        for snippet, why in turn.skipped:
            row = {"state": "skipped", "why": why}
            found.append({"snippet": snippet.id, "machine": turn.slug, **row})
        for snippet in turn.current:
            found.append({"snippet": snippet.id, "machine": turn.slug, "state": "current"})
    return found


def as_json(plan: Plan) -> str:
    """The plan for a program."""
    machines = [
        {
            "machine": turn.where,
            "workers": turn.workers,
            "to_run": len(turn.parts),
            "skipped": len(turn.skipped),
            "current": len(turn.current),
            "seconds": round(span(plan, turn), 1),
        }
        for turn in plan.turns
    ]
    found = {"machines": machines, "seconds": round(plan.seconds, 1), "budget": plan.budget}
    return json.dumps({**found, "snippets": rows(plan)}, indent=1)


def show(plan: Plan) -> None:
    """Print the plan, and a line for each snippet that runs or is skipped."""
    from warpshelf.cli import printing

    out = printing.console()
    for line in lines(plan):
        printing.say(out, line, hanging=2)
    listed = [row for row in rows(plan) if row["state"] != "current"]
    if not listed:
        return
    table = printing.columns(
        "snippet", "machine", "about", "why", left=("snippet", "machine", "why")
    )
    for row in listed:
        table.add_row(*_cells(row))
    out.print()
    printing.put(out, table)


def _cells(row: dict[str, Any]) -> Iterable[str]:
    from rich.markup import escape

    if row["state"] == "skipped":
        return row["snippet"], row["machine"], "", escape(f"skipped: {row['why']}")
    why = f"{row['why']}; {row['judged_by']}"
    if row["only_compiled"]:
        why += f"; only compiled: {row['only_compiled']}"
    if row["left_out"]:
        why += "; left out by the budget"
    return row["snippet"], row["machine"], units.duration(row["seconds"]), escape(why)

"""What a run says at its end: what it left out and how to go on, and how its file is handed in."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from warpshelf.bench.run import Verdict

# What becomes of the file of `--out`, in the words of the recipes as well.
HAND_IN = (
    "to hand {them} in, drop the file into the form at "
    "https://github.com/warpshelf/warpshelf/issues/new?template=records.yml, or, in a checkout of "
    "the same commit, run `shelf import {file}`, commit snippets/*/results and open a pull "
    "request; docs/about/measure.md has more"
)


def command(words: Sequence[str]) -> str:
    """The command line that goes on: the same again, as it was typed."""
    script = Path(sys.argv[0]).name
    program = ["shelf"]
    if script.endswith(".py") and script != "__main__.py":
        program = [sys.orig_argv[0], sys.argv[0]]
    return shlex.join([*program, *words])


def left(verdicts: Iterable[Verdict], words: Sequence[str]) -> list[str]:
    """A line for each machine on which something was left, by name, and how to go on."""
    by_machine: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.state == "left":
            key = verdict.machine, verdict.note
            by_machine.setdefault(key, []).append(verdict.snippet)
    found = [
        f"left on {machine}, since {note}: {', '.join(names)}"
        for (machine, note), names in by_machine.items()
    ]
    if found:
        found.append(f"what has passed is kept; go on with `{command(words)}`")
    return found


def handing_in(file: Path, count: int, idle: bool = False) -> list[str]:
    """What to do with a file that has so many records; of an `idle` forced run what else."""
    if not count:
        return []
    if idle:
        return [f"{file} has every record of this code already; name another file to begin anew"]
    them, records = ("it", "1 record") if count == 1 else ("them", f"{count} records")
    return [f"{file} holds {records}; " + HAND_IN.format(them=them, file=file.name)]


def counted(verdicts: Iterable[Verdict]) -> str:
    """How many verdicts there are of each kind."""
    counts = Counter(verdict.state for verdict in verdicts)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no snippets"


def as_json(verdicts: Iterable[Verdict]) -> str:
    """The verdicts for a program."""
    rows = [
        {
            "snippet": verdict.snippet,
            "machine": verdict.machine,
            "state": verdict.state,
            "note": verdict.note,
            "seconds": round(verdict.seconds, 3),
            "findings": [str(finding) for finding in verdict.findings],
            "errors": list(verdict.told),
        }
        for verdict in verdicts
    ]
    return json.dumps(rows, indent=1)

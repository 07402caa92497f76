"""What this checkout has seen on this machine: which code passed, and what failed.

Committed records say what the project claims. The ledger says what was tried here: a check on the
CPU is repeated once in every checkout, and a snippet whose last run failed publishes nothing until
it passes, whatever record of it is committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warpshelf.core import shapes
from warpshelf.core.files import dump, write_atomically
from warpshelf.core.project import Project
from warpshelf.core.shapes import NUMBER

Entry = dict[str, Any]  # one verdict, and what each task took when it last found nothing wrong
ENTRY = {"digest": str, "failure?": str, "seconds?": {"*": NUMBER}}
LEDGER = {"*": {"*": ENTRY}}  # by snippet and machine


@dataclass
class Ledger:
    """Verdicts by snippet and machine, kept in a file that is never committed."""

    project: Project
    entries: dict[str, dict[str, Entry]] = field(default_factory=dict)

    def passed(self, snippet: str, machine: str, digest: str) -> bool:
        """Whether this very code passed here."""
        entry = self._entry(snippet, machine)
        return entry.get("digest") == digest and not entry.get("failure")

    def failure(self, snippet: str, machine: str, digest: str) -> str | None:
        """The line with which this very code failed when it last ran here."""
        entry = self._entry(snippet, machine)
        failure: str | None = entry.get("failure")
        return failure if entry.get("digest") == digest else None

    def seconds(self, snippet: str, machine: str) -> dict[str, float]:
        """What its tasks took when they last ran here."""
        return dict(self._entry(snippet, machine).get("seconds", {}))

    def machines(self, snippet: str) -> list[str]:
        """The machines on which it was tried from this checkout."""
        return list(self.entries.get(snippet, {}))

    def note(
        self,
        snippet: str,
        machine: str,
        digest: str,
        failure: str | None,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        """Keep a verdict and what each task took, at once."""
        entry: Entry = {"digest": digest}
        if failure:
            entry["failure"] = failure
        if spent := self.seconds(snippet, machine) | dict(seconds or {}):
            entry["seconds"] = spent
        self.entries.setdefault(snippet, {})[machine] = entry
        write_atomically(self.project.ledger, dump(self.entries))

    def _entry(self, snippet: str, machine: str) -> Entry:
        return self.entries.get(snippet, {}).get(machine, {})


def load(project: Project) -> Ledger:
    """Read the ledger; a missing or damaged one is an empty one, since it only saves work."""
    try:
        value = json.loads(project.ledger.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return Ledger(project)
    return Ledger(project, {} if shapes.problem(value, LEDGER, "ledger") else value)

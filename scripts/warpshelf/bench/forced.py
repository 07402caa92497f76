"""A forced run that was not finished: what it has done so far, so that the next one goes on.

Without `--force` the records and the ledger say what is done. A forced run repeats what is current,
so it keeps a list of its own, in a file that is never committed; a run that ends removes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from warpshelf.core import shapes
from warpshelf.core.files import dump, write_atomically
from warpshelf.core.project import Project
from warpshelf.core.shapes import NUMBER

FILE = {"snippets": [str], "began": NUMBER, "done": [[str]]}
LONGEST = 86_400.0  # seconds after which a forced run begins anew


@dataclass
class Forced:
    """The list of a forced run over `snippets`; it is in `path` from the first verdict on."""

    path: Path
    snippets: list[str]
    began: float
    done: set[tuple[str, ...]] = field(default_factory=set)

    def has(self, snippet: str, machine: str, digest: str) -> bool:
        """Whether this run has had this very code pass on a machine."""
        return (snippet, machine, digest) in self.done

    def add(self, snippet: str, machine: str, digest: str) -> None:
        """Keep that it passed, at once."""
        self.done.add((snippet, machine, digest))
        done = [list(one) for one in sorted(self.done)]
        text = dump({"snippets": self.snippets, "began": self.began, "done": done})
        write_atomically(self.path, text, durable=False)

    def finish(self) -> None:
        """The run has left nothing out: the next one begins anew."""
        self.path.unlink(missing_ok=True)


def carry_on(project: Project, snippets: Iterable[str], now: float | None = None) -> Forced:
    """The forced run over just these snippets that was stopped within a day, or a new one."""
    names, now = sorted(snippets), time.time() if now is None else now
    fresh = Forced(project.forced, names, now)
    try:
        found = json.loads(project.forced.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return fresh
    if shapes.problem(found, FILE, "forced") or found["snippets"] != names:
        return fresh
    if not 0 <= now - found["began"] <= LONGEST:
        return fresh
    return Forced(project.forced, names, found["began"], {tuple(one) for one in found["done"]})

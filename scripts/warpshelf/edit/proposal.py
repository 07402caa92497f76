"""What GitHub is told of a form: a pull request's words, or why there is none.

Titles and texts of others stand in code fences that nothing in them can close: there GitHub makes
no mention, reference or closing keyword of them. Nowhere else does a word of theirs stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from warpshelf.core.findings import LONGEST, Finding, visible
from warpshelf.edit.addition import Added

MOST = 50  # findings or notes that are told
LABEL = "accepted"


def fenced(lines: Iterable[str]) -> str:
    """A code block of GitHub's Markdown that shows `lines`, each on one line, and nothing else."""
    kept = [visible(line)[:LONGEST] for line in lines]
    longest = max((len(run) for line in kept for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}text", *kept, fence])


def accepted(entry: Added, number: int | None, notes: Sequence[str] = ()) -> dict[str, Any]:
    """The pull request for an entry that was written, from the issue `number`.

    Its title and the first part of its body hold only the entry's id and path, which are plain.
    """
    where = entry.path.removeprefix("docs/").removesuffix(".yml")
    body = [f"Adds the reading `{entry.reading.id}` to `{entry.path}`, as the form asks for."]
    if number is not None:
        body.append(f"Closes #{number}")
    if notes:
        body += ["To look at before it is merged:", fenced(notes[:MOST])]
    return {
        "ok": True,
        "path": entry.path,
        "title": f"Add the reading {entry.reading.id} to {where}",
        "body": "\n\n".join(body) + "\n",
    }


def refused(findings: Sequence[Finding], path: str | None = None) -> dict[str, Any]:
    """The comment on an issue whose form cannot become an entry of the list at `path`."""
    lines = [_told(finding, path) for finding in findings[:MOST]]
    if len(findings) > MOST:
        lines.append(f"and {len(findings) - MOST} more")
    body = [
        "The form cannot become an entry as it is:",
        fenced(lines),
        "Whoever opened the issue can mend its text; then a maintainer sets the label "
        f"`{LABEL}` again.",
    ]
    return {"ok": False, "comment": "\n\n".join(body) + "\n"}


def _told(finding: Finding, path: str | None) -> str:
    """The finding without its place, where that is in the list that was not written."""
    return f"{finding.what}; {finding.mend}" if finding.path == path else str(finding)

"""What git says of a checkout, or nothing: a copy without version control works as well."""

from __future__ import annotations

import subprocess
from pathlib import Path

PATIENCE = 120.0  # seconds; the whole history of a large checkout takes a few


def run_git(root: Path, *words: str, given: bytes = b"") -> bytes | None:
    """What `git words` prints in `root`, handed `given` on its input; None where it fails.

    So it does where git is not installed, where it knows nothing of `root`, and where it hangs.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words],
            input=given,
            capture_output=True,
            check=True,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def git_line(root: Path, *words: str) -> str | None:
    """The same as text, without the space around it."""
    answer = run_git(root, *words)
    return None if answer is None else answer.decode("utf-8", "replace").strip()

"""Where things are in a checkout, and what git says of it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from warpshelf.core.findings import Finding, ShelfError


@dataclass(frozen=True)
class Project:
    """A checkout; every path that the tooling reads or writes starts here."""

    root: Path

    @property
    def docs(self) -> Path:
        """What people read and write: pages and readings."""
        return self.root / "docs"

    @property
    def snippets(self) -> Path:
        """One folder a snippet, and the modules that snippets share."""
        return self.root / "snippets"

    @property
    def recipes(self) -> Path:
        """Ways to run on machines that are not ours: scripts and settings that pages embed."""
        return self.root / "scripts" / "recipes"

    @property
    def fragments(self) -> Path:
        """Rendered Markdown, never committed."""
        return self.root / "build" / "fragments"

    @property
    def published_records(self) -> Path:
        """Copies of the records, laid where the site serves them; never committed."""
        return self.docs / "records"

    @property
    def published_sources(self) -> Path:
        """Copies of the snippets' files, laid where the site serves them; never committed."""
        return self.docs / "sources"

    @property
    def published_views(self) -> Path:
        """Copies of the views, laid where the site serves them; never committed."""
        return self.docs / "views"

    @property
    def published_runtime(self) -> Path:
        """What a browser computes with, laid where the site serves it; never committed."""
        return self.docs / "runtime"

    @property
    def exports(self) -> Path:
        """The lists in formats for other programs, laid where the site serves them."""
        return self.docs / "exports"

    @property
    def ledger(self) -> Path:
        """What this checkout has verified on this machine; never committed."""
        return self.root / ".shelf" / "ledger.json"

    @property
    def repeated(self) -> Path:
        """What a run that repeats what is current has done so far; never committed."""
        return self.root / ".shelf" / "repeated.json"

    def relative_path(self, path: Path) -> str:
        """`path` as people write it: relative to the root, with forward slashes."""
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return path.as_posix()


def find_project(start: Path | None = None) -> Project:
    """Return the project around `start` (the working directory unless told).

    Outside any checkout, the one that holds this file serves.

    Raises:
        ShelfError: there is no checkout at either place.
    """
    here = (start or Path.cwd()).resolve()
    own = Path(__file__).resolve().parents[3]
    for folder in (here, *here.parents, own):
        if (folder / "mkdocs.yml").is_file() and (folder / "snippets").is_dir():
            return Project(folder)
    raise ShelfError(
        [
            Finding(
                str(here),
                None,
                "is not inside a Warpshelf checkout",
                "change into the folder that holds mkdocs.yml and snippets/",
            )
        ]
    )


# What git says of a checkout, or nothing: a copy without version control works as well.

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

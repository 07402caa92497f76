"""Where things are in a checkout, and what git says of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from warpshelf.core.findings import Finding, ShelfError

LIST = "readings"  # the page of a topic's folder that has its list; the build writes it
MADE = "---\n# The build writes this page: what is changed here is lost.\n"  # how it begins


def is_made(page: Path) -> bool:
    """Whether the build has written a page below docs/."""
    return page.stem == LIST and page.is_file() and page.read_bytes().startswith(MADE.encode())


class Project:
    """A checkout; every path that the tooling reads or writes starts here."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.docs = root / "docs"  # what people read and write: pages and readings
        self.snippets = root / "snippets"  # a folder each, and the modules that they share
        self.recipes = root / "scripts" / "recipes"  # to run on machines that are not ours
        # Never committed: rendered Markdown, copies where the site serves them, and what ran here.
        self.fragments = root / "build" / "fragments"
        self.published_records = self.docs / "records"
        self.published_sources = self.docs / "sources"  # the snippets' files
        self.published_views = self.docs / "views"
        self.published_evidence = self.docs / "evidence"  # a page of each snippet, as HTML
        self.published_runtime = self.docs / "runtime"  # what a browser computes with
        self.exports = self.docs / "exports"  # the lists in formats for other programs
        self.published = (
            self.published_records, self.published_sources, self.published_views,
            self.published_evidence, self.published_runtime, self.exports,
        )  # fmt: skip
        self.ledger = root / ".shelf" / "ledger.json"  # what was verified on this machine
        self.repeated = root / ".shelf" / "repeated.json"  # how far a run got that repeats all

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Project) and other.root == self.root

    def __hash__(self) -> int:
        return hash(self.root)

    def relative_path(self, path: Path) -> str:
        """`path` as people write it: relative to the root, with forward slashes."""
        return (path.relative_to(self.root) if path.is_relative_to(self.root) else path).as_posix()


def find_project(start: Path | None = None) -> Project:
    """The project around `start` or the working directory, else the one that holds this file."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[3]):
        if (folder / "mkdocs.yml").is_file() and (folder / "snippets").is_dir():
            return Project(folder)
    what = "is not inside a Warpshelf checkout"
    mend = "change into the folder that holds mkdocs.yml and snippets/"
    raise ShelfError(Finding(str(here), None, what, mend))


# What Git says about a checkout, or nothing: a copy without version control works too.

PATIENCE = 120.0  # seconds; the whole history of a large checkout takes a few


def run_git(root: Path, *words: str, given: bytes = b"") -> bytes | None:
    """What `git words` prints in `root`, given `given`; None if it fails, is missing or hangs."""
    words = ("git", "-C", str(root), *words)
    try:
        return subprocess.run(
            words, input=given, capture_output=True, check=True, timeout=PATIENCE
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def git_line(root: Path, *words: str) -> str | None:
    """The same as text, without the space around it."""
    answer = run_git(root, *words)
    return None if answer is None else answer.decode("utf-8", "replace").strip()

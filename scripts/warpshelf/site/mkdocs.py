"""MkDocs, called as the program that it is: no module of the tooling imports it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project


def needed() -> None:
    """Raises ShelfError where MkDocs is not installed."""
    if find_spec("mkdocs") is None:
        what = "is not installed in this environment"
        raise ShelfError(Finding("mkdocs", None, what, "run `make pages`, which installs it"))


def build(project: Project, target: Path) -> int:
    """Build the rendered project into `target`, strictly; the status that MkDocs ends with."""
    words = command("build", "--strict", "--site-dir", str(target))
    return subprocess.run(words, cwd=project.root, env=environment(), check=False).returncode


def command(*words: str) -> list[str]:
    """The command line that runs it with `words`."""
    return [sys.executable, "-m", "mkdocs", *words]


def environment() -> dict[str, str]:
    """This process's environment, in which a child finds the tooling as well."""
    ours = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": paths}

"""The copy of a checkout that travels to the nodes of a cluster.

Enters: a project. Leaves: a folder with what a run reads, and nothing of what it wrote: the
tooling, the snippets, the records that snippets read, the commit. A snippet's digest there is the
one here.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import warpshelf
from warpshelf.bench import assemble
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project

TOOLING = Path(warpshelf.__file__).parents[1]
PACKAGES = ("warpshelf", "papergpu")


@contextmanager
def packed(project: Project, snippets: Iterable[Snippet]) -> Iterator[Path]:
    """The copy, in a temporary folder of its own; gone when this is left."""
    with tempfile.TemporaryDirectory(prefix="shelf-parcel-") as name:
        folder = Path(name)
        leave = shutil.ignore_patterns("__pycache__", ".*", "*.egg-info")
        for package in PACKAGES:
            shutil.copytree(TOOLING / package, folder / "scripts" / package, ignore=leave)
        # Views and records are most of a checkout's bytes, and a run there starts from none.
        without = shutil.ignore_patterns("__pycache__", ".*", "results")
        shutil.copytree(project.snippets, folder / "snippets", ignore=without)
        for id_ in {id_ for one in snippets for id_ in one.needs.get("records", ())}:
            for path in sorted((project.snippets / id_ / "results").glob("*.json")):
                target = folder / path.relative_to(project.root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
        shutil.copyfile(project.root / "mkdocs.yml", folder / "mkdocs.yml")
        if commit := assemble.commit(project.root):
            note = folder / assemble.TRAVELS_WITH
            note.parent.mkdir(exist_ok=True)
            note.write_text(f"{commit}\n", encoding="utf-8")
        yield folder

"""What a browser needs beside Python: the models as they are, and what draws their results.

All calculators share one file, so that who goes from one to another loads nothing again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from warpshelf.contract import syntax
from warpshelf.contract.digest import FORM_FILE
from warpshelf.core.project import Project

FILE = FORM_FILE
TOOLING = Path(__file__).parents[1]
RESPOND = "warpshelf/live/respond.py"


def calculators(project: Project) -> list[str]:
    """The snippets that have a calculator, by name."""
    return sorted(path.parent.name for path in project.snippets.glob(f"*/{FILE}"))


def sources(root: Path, first: Iterable[Path], package: str) -> dict[str, Path]:
    """The files below `root` that those of `first` import from `package`, themselves included.

    By their path relative to `root`, with the `__init__.py` of each folder that has one.

    Raises:
        SyntaxError, OSError: one of them cannot be read.
    """
    found: dict[str, Path] = {}
    pending = list(first)
    while pending:
        path = pending.pop()
        name = path.relative_to(root).as_posix()
        if name in found:
            continue
        found[name] = path
        for parent in path.relative_to(root).parents:
            if (inner := root / parent / "__init__.py").is_file() and parent != Path():
                pending.append(inner)
        for module in syntax.parse(path).imports:
            if module.split(".")[0] != package:
                continue
            place = root.joinpath(*module.split("."))
            pending += [p for p in (place.with_suffix(".py"), place / "__init__.py") if p.is_file()]
    return dict(sorted(found.items()))


def models(project: Project, name: str) -> dict[str, Path]:
    """The files of snippets that a calculator runs."""
    return sources(project.root, [project.snippets / name / FILE], "snippets")


def drawing() -> dict[str, Path]:
    """The files of the tooling that answer a question."""
    return sources(TOOLING.parent, [TOOLING.parent / RESPOND], "warpshelf")


def text(project: Project, contexts: Mapping[str, Mapping[str, Any]]) -> str:
    """The file for the browser: source texts by path, and the context of each calculator."""
    files = dict(drawing())
    for name in contexts:
        files |= models(project, name)
    texts = {name: path.read_text(encoding="utf-8") for name, path in sorted(files.items())}
    return json.dumps({"files": texts, "contexts": contexts}, ensure_ascii=False, sort_keys=True)


def named(text: str) -> str:
    """The name of such a file: another text has another, so that no cache mixes the two."""
    return f"models-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"

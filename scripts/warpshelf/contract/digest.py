"""Which files decide what a snippet computes, and one number over all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from warpshelf.contract import syntax

# A record is bound to the code and to the method that verified and timed it. Raise this when the
# worker changes so that a verdict or a time means something else: every record goes stale.
METHOD = 6

CASES_FILE = "cases.py"
# What is shown beside a snippet, and computes nothing in it: see `Snippet.calls`.
CALLS_FILE = "explore.txt"
# Its form, of which no record holds anything: it counts only where another file imports it.
FORM_FILE = "calculator.py"
# Why a record is slower than the one before it: words about records, which change none.
SLOWER_FILE = "slower.yml"
# What machines wrote, and what others state, changes nothing that a snippet computes either.
IGNORED = (
    "results", "reported.yml", "rivals.yml", "rivals.json", "__pycache__", CALLS_FILE, FORM_FILE,
    SLOWER_FILE,
)  # fmt: skip


def files(root: Path, folder: Path) -> list[Path]:
    """Every file whose change may change what the snippet in `folder` computes.

    These are the files of the folder, and those of each local module that they import, directly
    or through another: `snippets/cuda.py` brings its neighbours `snippets/cuda.*` along, and a
    module inside another snippet's folder brings that folder. The records that NEEDS of cases.py
    names are read, so they count as well.
    """
    found: dict[Path, None] = {}
    pending = list(_folder_files(folder))
    while pending:
        path = pending.pop()
        if path in found:
            continue
        found[path] = None
        if path.suffix != ".py":
            continue
        try:
            imports = syntax.parse(path).imports
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            continue  # it still counts by its bytes
        for name in imports:
            pending.extend(_module_files(root, path.parent, name))
        if path.name == CASES_FILE:
            found |= dict.fromkeys(_records(root, path))
    return sorted(found)


def _records(root: Path, cases: Path) -> Iterator[Path]:
    try:
        needs = syntax.parse(cases).literal("NEEDS")
    except (ValueError, TypeError):
        return  # it names none, or is malformed
    names = needs.get("records", ()) if isinstance(needs, dict) else ()
    for name in names if isinstance(names, list) else ():
        yield from (root / "snippets" / str(name) / "results").glob("*.json")


def _folder_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(p in IGNORED or p.startswith(".") for p in parts):
            yield path


def _module_files(root: Path, beside: Path, name: str) -> Iterator[Path]:
    for base in (root, beside):
        module = base.joinpath(*name.split("."))
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if not path.is_file() or not path.is_relative_to(root / "snippets"):
                continue
            if path.parent == root / "snippets":
                yield from path.parent.glob(f"{path.stem}.*")
            else:
                yield path
                yield from _folder_files(path.parent)


def digest(root: Path, files: Iterable[Path]) -> str:
    """`sha256:…` over the method's version and each file's path and text.

    Line ends count as one character whatever they are, so that a checkout on Windows agrees.
    """
    total = hashlib.sha256(f"method {METHOD}\n".encode())
    for path in files:
        content = path.read_bytes().replace(b"\r\n", b"\n")
        name = path.relative_to(root).as_posix()
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return f"sha256:{total.hexdigest()}"


def of_folder(root: Path, folder: Path) -> str:
    """The digest of the snippet in `folder`, as its files are now."""
    return digest(root, files(root, folder))

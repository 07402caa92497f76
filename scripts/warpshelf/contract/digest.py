"""Which files decide what a snippet computes, and one number over all of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from warpshelf.contract import definitions
from warpshelf.contract.definitions import Part, SourceDigest

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


def dependency_files(root: Path, folder: Path) -> list[Path]:
    """Every file that may decide what the snippet in `folder` computes.

    These are the files of the folder, and of the modules of ours that they reach, directly or
    through another: `snippets/cuda.py` brings its neighbours `snippets/cuda.*` along. The records
    that NEEDS of cases.py names are read, so they count as well.
    """
    return sorted(root / path for path in _Dependencies(root, folder).sources)


def record_files(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """The files with the records of the snippets of these names, which a snippet may read."""
    for name in names:
        results = root / "snippets" / name / "results"
        yield from (path for path in results.glob("*") if path.suffix in (".json", ".xz"))


def _folder_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(p in IGNORED or p.startswith(".") for p in parts):
            yield path


def folder_digest(root: Path, folder: Path) -> str:
    """`sha256:…` over the method's version and all that decides what the snippet in `folder` does.

    Its own files count whole, modules elsewhere by the names of theirs that are used, and by what
    these use in turn. Comments, docstrings and formatting count nowhere, nor do line ends.
    """
    total = hashlib.sha256(f"method {METHOD}\n".encode())
    for name, said in sorted(_Dependencies(root, folder).hash_parts().items()):
        total.update(f"{name}\0{said}\0".encode())
    return f"sha256:{total.hexdigest()}"


class _Dependencies:
    """What a snippet reaches from its own files on. Paths are texts relative to the root."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.found: dict[str, str] = {}  # a file, or it, ":" and what of it counts -> the hash
        self.sources: dict[str, SourceDigest] = {}
        self.pending: list[tuple[str, str]] = []  # modules, and which of their names
        self.find_module = cache(self._find_module)
        self.untold = False  # a package is passed around, and what of it, nobody can say
        for path in self._list_files(folder):
            source = self._add_whole(path)
            for use in {*source.all_uses(), *source.script.uses}:
                self._follow_use(path, use, own=True)
            if path.endswith(f"/{CASES_FILE}"):
                for record in record_files(root, source.reads):
                    self._add_whole(record.relative_to(root).as_posix())
        seen = set()
        while self.pending:
            path, name = one = self.pending.pop()
            if one not in seen and path not in self.found:
                seen.add(one)
                self._add_part(path, name)

    def hash_parts(self) -> dict[str, str]:
        """The hash of each part that counts."""
        if self.untold or any(source.literal for source in self.sources.values()):
            # A file can tell its comments or lines: all count by their bytes.
            read = {path: (self.root / path).read_bytes() for path in self.sources}
            lines = {path: data.replace(b"\r\n", b"\n") for path, data in read.items()}
            return {path: hashlib.sha256(data).hexdigest() for path, data in lines.items()}
        # Of a file that counts whole, names came first or not as the order of sets had it.
        whole = self.found.keys()
        return {k: said for k, said in self.found.items() if k.partition(":")[0] not in whole - {k}}

    def _list_files(self, folder: Path) -> list[str]:
        """The files of a folder that can count."""
        found = (path for path in folder.rglob("*") if path.is_file())
        return [
            path.relative_to(self.root).as_posix()
            for path in found
            if not any(p in IGNORED or p.startswith(".") for p in path.relative_to(folder).parts)
        ]

    def _load_source(self, path: str) -> SourceDigest:
        if path not in self.sources:
            content = (self.root / path).read_bytes()
            suffix = Path(path).suffix
            self.sources[path] = definitions.digest_source(self.root, content, suffix)
        return self.sources[path]

    def _add_whole(self, path: str) -> SourceDigest:
        source = self._load_source(path)
        self.found[path] = source.whole
        return source

    def _add_part(self, path: str, name: str) -> None:
        """Count a name of a module elsewhere; "*": all of it; "": what importing it does."""
        source = self._load_source(path)
        part = source.parts.get(name) or source.imports.get(name) if name else source.rest
        if part is None:
            part = Part(source.whole, [*source.all_uses()])
        if part.hash:
            self.found[f"{path}:{name}"] = part.hash
        for use in part.uses:
            self._follow_use(path, use)
        if name:
            self.pending.append((path, ""))
        elif path.count("/") == 1:
            for beside in (self.root / "snippets").glob(f"{Path(path).stem}.*"):
                if (near := f"snippets/{beside.name}") != path:
                    self._add_whole(near)

    def _follow_use(self, path: str, use: str, own: bool = False) -> None:
        """Note what a file uses; `own`: all of the file counts already."""
        if use == definitions.NEAR and not own and path.count("/") > 1:
            for near in self._list_files((self.root / path).parent):
                for inner in self._add_whole(near).all_uses():
                    self._follow_use(near, inner, own=True)
        elif use.startswith(":"):
            if not own and use != definitions.NEAR:
                self.pending.append((path, use[1:]))
        elif target := self.find_module(path.rpartition("/")[0], use.rstrip("!")):
            self.pending.append((target[0], "" if use.endswith("!") else target[1]))

    def _find_module(self, folder: str, dotted: str) -> tuple[str, str] | None:
        """The module of ours that a dotted name leads to, and which of its names ("*": all)."""
        plain = dotted.lstrip(".")
        up = len(dotted) - len(plain) - 1
        names = plain.split(".")
        bases = [folder.rsplit("/", up)[0]] if up >= 0 else ["", folder]
        for base in bases if names[0] == "snippets" else bases[-1:]:
            for count in range(len(names), 0, -1):
                module = "/".join((*base.split("/"), *names[:count])).lstrip("/")
                for file in (f"{module}.py", f"{module}/__init__.py"):
                    if file.startswith("snippets/") and os.path.isfile(f"{self.root}/{file}"):
                        return file, names[count] if count < len(names) else "*"
        if names[0] == "snippets" and os.path.isdir(f"{self.root}/{'/'.join(names)}"):
            self.untold = True
        return None

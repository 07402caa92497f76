"""Every link of the shelf and the places that name it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from warpshelf.core.findings import Finding, ShelfError
from warpshelf.readings import model
from warpshelf.readings.entries import KeyPath
from warpshelf.readings.model import Reading, Shelf


@dataclass
class Link:
    """An address on the shelf and the places that name it, in the order of the files."""

    url: str
    places: list[tuple[Reading, KeyPath]] = field(default_factory=list)

    @property
    def reading(self) -> Reading:
        """The reading that it is the address of, or else the first that names it."""
        return self._own[0]

    @property
    def role(self) -> str:
        """`url`, or what it is to its reading: `preprint`, `code`."""
        reading, place = self._own
        return "url" if place == ("url",) else reading.also[int(place[1])].what

    @property
    def where(self) -> tuple[str, int]:
        """The file and line that name it."""
        reading, place = self._own
        return reading.path, reading.line_of(*place)

    @property
    def _own(self) -> tuple[Reading, KeyPath]:
        return next((found for found in self.places if found[1] == ("url",)), self.places[0])


def listed(shelf: Shelf) -> dict[str, Link]:
    """Every address that the shelf's entries name, in the order of the files."""
    links: dict[str, Link] = {}
    for reading in shelf.entries:
        places: list[tuple[KeyPath, str]] = [(("url",), reading.url)]
        places += [(("also", n, "url"), version.url) for n, version in enumerate(reading.also)]
        for place, url in places:
            links.setdefault(url, Link(url)).places.append((reading, place))
    return links


def since(root: Path, revision: str) -> set[str]:
    """The addresses of the readings here that `revision` does not have.

    Raises:
        ShelfError: `revision` is no commit of this repository.
    """
    old = _addresses_at(root, revision)
    return {url for url in listed(model.load(root)) if url not in old}


def _addresses_at(root: Path, revision: str) -> set[str]:
    asked = ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"]
    commit = _git(root, *asked)
    if commit is None:
        what = f"{revision!r} is no commit of this repository"
        raise ShelfError(Finding("--changed-since", None, what, "fetch it, or name another"))
    name = commit.decode().strip()
    listed = _git(root, "ls-tree", "-r", "-z", "--name-only", name, "--", "docs") or b""
    found: set[str] = set()
    for path in filter(lambda path: path.endswith(b".yml"), listed.split(b"\0")):
        try:
            text = _git(root, "show", f"{name}:./{path.decode()}") or b""
            found |= set(_urls(yaml.safe_load(text)))
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError):
            continue  # what could not be read then counts as new
    return found


def _urls(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [value["url"]] if isinstance(value.get("url"), str) else []
        return own + [url for inner in value.values() for url in _urls(inner)]
    return [url for inner in value for url in _urls(inner)] if isinstance(value, list) else []


def _git(root: Path, *words: str) -> bytes | None:
    """The output of a Git command; None where it fails."""
    try:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False)
    except OSError as error:
        what = f"cannot be run ({error.strerror})"
        raise ShelfError(Finding("git", None, what, "install it, or leave the option")) from None
    return done.stdout if done.returncode == 0 else None

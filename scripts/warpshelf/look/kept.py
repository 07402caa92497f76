"""The views of a snippet as they are kept, in `results/views/`, and read again.

A view lies in three files, so that a page loads what it shows and a change of code reads as text:
`<name>.json`, its PTX as `<name>.ptx.txt` and its machine code as `<name>.sass.txt`, a line for
each instruction. In the first, the lists that refer to others, the registers that are live and the
addresses of lanes have each number as the difference from the one before; in the second registers
are numbered so. `<name>` is `<variant>.<kernel>.<arch>`.

A view of other code than the present is as good as none. It is neither shown nor an error.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import flaw, write_atomically
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.look import ptx, view
from warpshelf.look.view import View

FOLDER = "views"  # in a snippet's results
NAME = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+\.sm_[0-9]+")
TEXTS = {"ptx": ".ptx.txt", "sass": ".sass.txt"}  # what lies beside the JSON, by key of a view
DIFFERENCES = (("sass", "ptx"), ("sass", "live"), ("ptx", "line"))
LARGEST = 8 * 2**20  # bytes of a file to read; a real one holds well under a mebibyte
MOST = 25 * 1024  # bytes of a file, compressed as servers do


class Kept(NamedTuple):
    """A view, `<variant>.<kernel>.<arch>` as its files are called, and their texts by file name."""

    name: str
    view: View
    files: Mapping[str, str]


def name_of(one: View) -> str:
    """What a view's files are called."""
    words = [
        re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")
        for part in (one["variant"], one["kernel"])
    ]
    return f"{words[0]}.{words[1]}.{one['arch']}"


def files_of(one: View) -> dict[str, str]:
    """The files that a view is kept in, by name.

    Raises:
        ValueError: one of them is larger than a page should load.
    """
    slim = {**one, **{key: dict(one[key]) for key in TEXTS}}
    found = {}
    for key, ending in TEXTS.items():
        text = slim[key].pop("text")
        lines = ptx.relative(text) if key == "ptx" else text
        found[name_of(one) + ending] = "".join(f"{line}\n" for line in lines)
    for key, column in DIFFERENCES:
        slim[key][column] = _differences(slim[key][column])
    slim["accesses"] = [
        {**access, "addresses": _differences(access["addresses"])} for access in one["accesses"]
    ]
    # A key to a line, and what is long on one line, so that changes are seen where they are.
    rows = [f"{json.dumps(key)}: {_text(value)}" for key, value in slim.items()]
    found[f"{name_of(one)}.json"] = "{\n" + ",\n".join(rows) + "\n}\n"
    for name, text in found.items():
        if (size := len(gzip.compress(text.encode(), 9))) > MOST:
            raise ValueError(f"{name} has {size} bytes when compressed, and {MOST} are the limit")
    return found


def _differences(numbers: Sequence[int | None]) -> list[int | None]:
    """Each number as the difference from the one before, the first from 0; None stays None."""
    before, found = 0, list[int | None]()
    for one in numbers:
        found.append(None if one is None else one - before)
        before = before if one is None else one
    return found


def _sums(numbers: Sequence[int | None]) -> list[int | None]:
    total, found = 0, list[int | None]()
    for one in numbers:
        total += one or 0
        found.append(None if one is None else total)
    return found


def _text(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(_short(one) for one in value) + "\n]"
    return _short(value)


def _short(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def write(snippet: Snippet, views: Iterable[View]) -> bool:
    """Keep these views of a snippet and no others; whether anything has changed.

    Raises:
        ShelfError: two are called the same, or one is too large; what was kept stays.
    """
    folder = snippet.results / FOLDER
    texts: dict[str, str] = {}
    try:
        for one in views:
            made = files_of({**one, "digest": snippet.digest})
            if twice := texts.keys() & made.keys():
                raise ValueError(f"{min(twice)} would be of two views: name one variant anew")
            texts |= made
    except ValueError as error:
        where = snippet.project.relative(folder)
        raise ShelfError(Finding(where, None, str(error), "make it smaller")) from None
    changed = False
    for name, text in texts.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
            changed = True
    for path in folder.glob("*"):
        if path.name not in texts and not path.name.startswith("."):
            path.unlink()
            changed = True
    return changed


def views_of(snippet: Snippet) -> tuple[list[Kept], list[Finding]]:
    """The current views of a snippet by name, and what is wrong with the files that hold none."""
    return _all(snippet, whole=True)


def summaries_of(snippet: Snippet) -> tuple[list[Kept], list[Finding]]:
    """As `views_of`, but of each view its `view.SUMMARY` alone, read in a quarter of the time.

    What is left out is not looked at: a fault in it is for `views_of` to find.
    """
    return _all(snippet, whole=False)


def _all(snippet: Snippet, *, whole: bool) -> tuple[list[Kept], list[Finding]]:
    found: list[Kept] = []
    findings: list[Finding] = []
    if snippet.findings:
        return found, findings
    folder = snippet.results / FOLDER
    names = {path.name for path in folder.glob("*") if not path.name.startswith(".")}
    stems = {name.removesuffix(".json") for name in names if name.endswith(".json")}
    for stray in sorted(
        names - {stem + end for stem in stems for end in (".json", *TEXTS.values())}
    ):
        findings.append(_finding(snippet, folder / stray, "is of no view"))
    for stem in sorted(stems):
        path = folder / f"{stem}.json"
        try:
            texts = {name: _read(folder / name) for name in _files(stem)}
            value = _parsed(texts[path.name], whole=whole)
            if value.get("digest") != snippet.digest:
                continue
            sides = {key: texts[stem + ending] for key, ending in TEXTS.items()}
            _decode(value, sides if whole else {})
            _check(value, snippet.id, stem, whole=whole)
            found.append(Kept(stem, value, texts))
        except (OSError, ValueError, RecursionError) as error:
            what = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            findings.append(_finding(snippet, path, what))
    return found, findings


def _files(stem: str) -> list[str]:
    return [f"{stem}.json", *(stem + ending for ending in TEXTS.values())]


def _finding(snippet: Snippet, path: Path, what: str) -> Finding:
    mend = f"make it again with `shelf run {snippet.id} --force`, or remove it"
    return Finding(snippet.project.relative(path), None, what, mend)


def _read(path: Path) -> str:
    if path.stat().st_size > LARGEST:
        raise ValueError(f"is larger than {LARGEST} bytes")
    return path.read_text(encoding="utf-8")


def _parsed(text: str, *, whole: bool) -> View:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not the JSON of a view: {error}") from None
    if isinstance(value, dict) and not whole:
        value = view.summary(value)
    if wrong := flaw(value):
        raise ValueError(wrong)
    if not isinstance(value, dict):
        raise ValueError("the view is no object")
    return value


def _decode(value: View, texts: Mapping[str, str]) -> None:
    """Put back what is kept as differences, and the lines of `texts`, by key of the view."""
    holders = [(value.get(key), column) for key, column in DIFFERENCES]
    rows = value.get("accesses")
    holders += [(one, "addresses") for one in (rows if isinstance(rows, list) else ())]
    for holder, name in holders:
        if not isinstance(holder, dict):
            continue
        numbers = holder.get(name)
        if isinstance(numbers, list) and all(one is None or type(one) is int for one in numbers):
            holder[name] = _sums(numbers)
    for key, text in texts.items():
        if isinstance(value.get(key), dict):
            lines = text.splitlines()
            value[key]["text"] = ptx.absolute(lines) if key == "ptx" else lines


def _check(value: View, snippet: str, name: str, *, whole: bool) -> None:
    """Raises ValueError where a current view is malformed, or lies under another's name."""
    if wrong := view.problem(value, view.VIEW if whole else view.SUMMARY):
        raise ValueError(wrong)
    if value["snippet"] != snippet or name != name_of(value) or not NAME.fullmatch(name):
        of = f"{value['variant']}, {value['kernel']}, of {value['snippet']} on {value['arch']}"
        raise ValueError(f"is the view of {of}, and not called so")
    if not whole:
        return
    sides = (
        ("ptx", value["ptx"], "line", value["lines"]),
        ("sass", value["sass"], "ptx", value["ptx"]["text"]),
    )
    for side, lists, refers, other in sides:
        if len({len(one) for one in lists.values() if isinstance(one, list)}) > 1:
            raise ValueError(f"the lists of {side} are not of one length")
        if not all(-1 <= at < len(other) for at in lists[refers]):
            raise ValueError(f"{side}.{refers} refers to what is not there")

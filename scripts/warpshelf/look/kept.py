"""The views of a snippet as they are kept, packed in `results/cpu.xz`, and read again.

Of each kernel the view on USUAL is kept whole, and of other architectures one for each way that
they multiply matrices and USUAL does not: the shortest in the snippet, if it is short. Of the
others the totals are kept, which is what a table needs; `shelf look` makes the rest when asked.

Nothing is kept that the checkout has elsewhere. The source is not, and a line is kept as its place
in the syntax (contract/anchors.py), so that a comment changes no view. Of a whole view, the lists
that refer to others, the registers that are live and the addresses of lanes have each number as the
difference from the one before; in PTX registers are numbered so. A page loads the same, with lines
and source put back, as one compressed file a view: `<variant>.<kernel>.<arch>.json.gz`.

Views of other code than the present are as good as none: neither shown nor an error.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.contract import anchors
from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.files import flaw
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.look import builds, ptx, view
from warpshelf.look.builds import Build
from warpshelf.look.view import NUMBERS, View

PACK = "cpu.xz"  # in a snippet's results
SECTION = "views"  # of it
USUAL = "sm_90"
NAME = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+\.sm_[0-9]+")
SIDES = ("ptx", "sass")
DIFFERENCES = (("sass", "ptx"), ("sass", "live"), ("ptx", "line"))
HERE = ("schema", "snippet", "digest")  # of a view, said once for all that are kept together
SHORT = 900  # machine instructions of a view that is kept to show another way
MOST = 80 * 1024  # bytes of what a page loads at once
# How machine code multiplies matrices: a warp, four warps together, or the tensor core by itself.
WAYS = {
    "mma": re.compile(r"\b[HIDQBO]MMA\b"),
    "wgmma": re.compile(r"\b[HIQB]GMMA\b"),
    "tcgen05": re.compile(r"\bUTC[A-Z]*MMA\b"),
}


class Kept(NamedTuple):
    """A view, `<variant>.<kernel>.<arch>` as its file is called, and what it comes to.

    Where it is not `whole`, the view is its `view.SUMMARY` alone.
    """

    name: str
    view: View
    build: Build
    whole: bool = True


def name_of(one: View) -> str:
    """What the file of a view is called."""
    words = [
        re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")
        for part in (one["variant"], one["kernel"])
    ]
    return f"{words[0]}.{words[1]}.{one['arch']}"


def of(one: View, whole: bool = True) -> Kept:
    """A view that was just made, as it would be read again."""
    build = builds.of_view(one, one["sass"]["text"])
    return Kept(name_of(one), one if whole else view.summary(one), build, whole)


def page(one: View) -> bytes:
    """What a page loads of a whole view.

    Raises:
        ValueError: it is larger than a page should load.
    """
    text = json.dumps(_slim(one), separators=(",", ":"), ensure_ascii=False)
    data = gzip.compress(text.encode("utf-8"), 6, mtime=0)
    if len(data) > MOST:
        what = f"has {len(data)} bytes when compressed, and {MOST} are the limit"
        raise ValueError(f"{name_of(one)} {what}")
    return data


def pages(snippet: Snippet) -> tuple[dict[str, bytes], list[Finding]]:
    """What pages load, by file name, of views kept whole; and what is wrong with others."""
    found, findings = views_of(snippet)
    return {f"{one.name}.json.gz": page(one.view) for one in found}, findings


def _slim(one: View) -> dict[str, Any]:
    """A whole view with its texts in one piece each, and numbers as differences."""
    slim = {**one, **{key: dict(one[key]) for key in SIDES}}
    for key in SIDES:
        lines = slim[key]["text"]
        slim[key]["text"] = "\n".join(ptx.relative(lines) if key == "ptx" else lines)
    for key, column in DIFFERENCES:
        slim[key][column] = _differences(slim[key][column])
    slim["accesses"] = [
        {**access, "addresses": _differences(access["addresses"])} for access in one["accesses"]
    ]
    return slim


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


def write(snippet: Snippet, views: Iterable[View]) -> bool:
    """Keep these views of a snippet and no others; whether anything has changed.

    Raises:
        ShelfError: two are called the same, or one is too large; what was kept stays.
    """
    path = snippet.results / PACK
    made = sorted(views, key=name_of)
    named = _places(snippet.folder, anchors.Anchors.of)
    try:
        rows = []
        whole = _chosen(made)
        for one, other in zip(made, made[1:], strict=False):
            if name_of(one) == name_of(other):
                what = "would be of two views: name one variant anew"
                raise ValueError(f"{name_of(one)} {what}")
        for one in made:
            if name_of(one) in whole:
                page(one)
            rows.append(_row(one, name_of(one) in whole, named))
    except ValueError as error:
        where = snippet.project.relative(path)
        raise ShelfError(Finding(where, None, str(error), "make it smaller")) from None
    section = {"schema": view.SCHEMA, "digest": snippet.digest, "views": rows} if rows else None
    data = files.with_section(path, SECTION, section)
    if data is not None:
        return files.write_atomically(path, data)
    changed = path.is_file()
    path.unlink(missing_ok=True)
    return changed


def _row(one: View, whole: bool, named: Callable[[str], str]) -> dict[str, Any]:
    """A view as it is kept."""
    found = _slim(one) if whole else view.summary(one)
    row = {key: value for key, value in found.items() if key not in (*HERE, "source")}
    if whole:
        row["lines"] = [{**line, "at": named(line["at"])} for line in row["lines"]]
    return {**row, "build": builds.of_view(one, one["sass"]["text"])}


def _chosen(views: Sequence[View]) -> set[str]:
    """The names of the views to keep whole."""
    ways = {name_of(one): _ways(one["sass"]["text"]) for one in views}
    usual = {
        (one["variant"], one["kernel"]): ways[name_of(one)] for one in views if one["arch"] == USUAL
    }
    found: set[str] = set()
    shortest: dict[tuple[str, frozenset[str]], View] = {}
    for one in views:
        name, key = name_of(one), (one["variant"], one["kernel"])
        if one["arch"] == USUAL or key not in usual:
            found.add(name)
        elif ways[name] and ways[name] != usual[key] and len(one["sass"]["text"]) <= SHORT:
            group = one["arch"], ways[name]
            before = shortest.setdefault(group, one)
            if len(one["sass"]["text"]) < len(before["sass"]["text"]):
                shortest[group] = one
    return found | {name_of(one) for one in shortest.values()}


def _ways(sass: Sequence[str]) -> frozenset[str]:
    text = "\n".join(sass)
    return frozenset(name for name, form in WAYS.items() if form.search(text))


def views_of(snippet: Snippet) -> tuple[list[Kept], list[Finding]]:
    """The current views that are kept whole, by name, and what is wrong with others."""
    return _all(snippet, whole=True)


def summaries_of(snippet: Snippet) -> tuple[list[Kept], list[Finding]]:
    """Every current view of a snippet, of each its `view.SUMMARY` alone.

    What is left out is not looked at: a fault in it is for `views_of` to find.
    """
    return _all(snippet, whole=False)


def _all(snippet: Snippet, *, whole: bool) -> tuple[list[Kept], list[Finding]]:
    found: list[Kept] = []
    path = snippet.results / PACK
    if snippet.findings:
        return found, []
    try:
        rows = list(_rows(files.sections(path).get(SECTION), snippet.digest))
    except (OSError, ValueError) as error:
        what = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return found, [_finding(snippet, path, what)]
    findings = []
    for at, row in enumerate(rows):
        try:
            if wrong := "is no object" if not isinstance(row, dict) else None:
                raise ValueError(wrong)
            if not whole or "lines" in row:
                found.append(_read(snippet, row, whole=whole))
        except (ValueError, LookupError, SyntaxError, RecursionError) as error:
            said = str(error.args[0] if error.args else error)
            findings.append(_finding(snippet, path, f"view {at}: {said}"))
    return sorted(found, key=lambda one: one.name), findings


def _rows(section: object, digest: str) -> list[Any]:
    """What is kept of each view of the present code.

    Raises:
        ValueError: it is nothing that was kept.
    """
    if section is None:
        return []
    if not isinstance(section, dict) or not isinstance(section.get("views"), list):
        raise ValueError("holds no views where they should be")
    if section.get("digest") != digest or section.get("schema") != view.SCHEMA:
        return []
    return list(section["views"])


def _read(snippet: Snippet, row: dict[str, Any], *, whole: bool) -> Kept:
    """The view that a row keeps.

    Raises:
        ValueError, LookupError, SyntaxError: it keeps none, or none of this source.
    """
    value = {key: one for key, one in row.items() if key != "build"}
    value |= {"schema": view.SCHEMA, "snippet": snippet.id, "digest": snippet.digest}
    kept_whole = "lines" in row
    if kept_whole:
        _decode(value, texts=whole)
    if not whole:
        value = view.summary(value)
    elif isinstance(value["lines"], list):
        _place(snippet.folder, value)
    if wrong := flaw(value) or builds.problem(row.get("build")):
        raise ValueError(wrong)
    _check(value, whole=whole)
    return Kept(name_of(value), value, row["build"], kept_whole)


def _finding(snippet: Snippet, path: Path, what: str) -> Finding:
    mend = f"make it again with `shelf run {snippet.id} --force`, or remove it"
    return Finding(snippet.project.relative(path), None, what, mend)


def _decode(value: View, *, texts: bool) -> None:
    """Put back what is kept as differences, and with `texts` the lines of both sides."""
    holders = [(value.get(key), column) for key, column in DIFFERENCES]
    rows = value.get("accesses")
    if texts:
        holders += [(one, "addresses") for one in (rows if isinstance(rows, list) else ())]
    for holder, name in holders:
        if not isinstance(holder, dict):
            continue
        numbers = holder.get(name)
        if isinstance(numbers, list) and all(one is None or type(one) is int for one in numbers):
            holder[name] = _sums(numbers)
    for key in SIDES if texts else ():
        side = value.get(key)
        if isinstance(side, dict) and isinstance(side.get("text"), str):
            lines = side["text"].split("\n")
            side["text"] = ptx.absolute(lines) if key == "ptx" else lines


def _places(folder: Path, change: Callable[..., Any]) -> Callable[[str], str]:
    """What turns the line in a `file:line` of the snippet in `folder` into its anchor, or back.

    The places of other files stay as they are.
    """
    texts: dict[str, str | None] = {}

    def changed(at: str) -> str:
        file, colon, place = at.rpartition(":")
        if not colon:
            return at
        if file not in texts:
            texts[file] = view.text(folder, file)
        text = texts[file]
        suffix = Path(file).suffix
        if text is None or suffix not in (".py", *anchors.CPP_SUFFIXES):
            return at
        found = anchors.of_text(text, suffix)
        return f"{file}:{change(found, int(place) if place.isdecimal() else place)}"

    return changed


def _place(folder: Path, value: View) -> None:
    """Put the lines of a view where its source has them now, and the source beside them."""
    lined = _places(folder, anchors.Anchors.line)
    value["lines"] = [
        {**line, "at": lined(line["at"])} if isinstance(line, dict) and "at" in line else line
        for line in value["lines"]
    ]
    where = [
        (file, int(number))
        for line in value["lines"]
        if isinstance(line, dict)
        for file, colon, number in [str(line.get("at")).rpartition(":")]
        if colon and number.isdecimal()
    ]
    texts = view.texts(folder, {file for file, _ in where})
    value["source"] = view.pieces(texts, where)


def _check(value: View, *, whole: bool) -> None:
    """Raises ValueError where a current view is malformed, or contradicts itself."""
    if wrong := view.problem(value, view.VIEW if whole else view.SUMMARY):
        raise ValueError(wrong)
    name = name_of(value)
    if not NAME.fullmatch(name):
        raise ValueError(f"{value['variant']}, {value['kernel']}: no file is called {name}")
    if not whole:
        return
    sides = (
        ("ptx", value["ptx"], "line", value["lines"]),
        ("sass", value["sass"], "ptx", value["ptx"]["text"]),
    )
    for side, lists, refers, other in sides:
        if len({len(one) for one in lists.values() if isinstance(one, list)}) > 1:
            raise ValueError(f"{name}: the lists of {side} are not of one length")
        if not all(-1 <= at < len(other) for at in lists[refers]):
            raise ValueError(f"{name}: {side}.{refers} refers to what is not there")
    for what, count in _tallies([value["total"]]).items():
        if (mine := _tallies(value["lines"])[what]) != count:
            raise ValueError(f"{name}: has {mine:,} {what} in its lines, and {count:,} in all")


def _tallies(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What rows come to together, by name."""
    return dict(_summed(rows))


def _summed(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    yield "executed", sum(sum(row["classes"].values()) for row in rows)
    for name in NUMBERS:
        yield name, sum(row.get(name, 0) for row in rows)

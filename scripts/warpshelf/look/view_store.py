"""The views of a snippet as they are kept, packed in `results/cpu.xz`, and read again.

Of each kernel the view on USUAL is kept whole, and of other architectures one for each way that
they multiply matrices and USUAL does not: the shortest in the snippet, if it is short. Of the
others the totals are kept, which is what a table needs; `shelf look` makes the rest when asked.

Nothing is kept that the checkout has elsewhere. The source is not, and a line is kept as its place
in the syntax (contract/syntax.py), so that a comment changes no view. Of a whole view, the lists
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

from warpshelf.contract import syntax
from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.files import json_flaw
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


class StoredView(NamedTuple):
    """A view, `<variant>.<kernel>.<arch>` as its file is called, and what it comes to.

    Where it is not `whole`, the view is its `view.SUMMARY` alone.
    """

    name: str
    view: View
    build: Build
    whole: bool = True


def view_name(one: View) -> str:
    """What the file of a view is called."""
    words = [
        re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")
        for part in (one["variant"], one["kernel"])
    ]
    return f"{words[0]}.{words[1]}.{one['arch']}"


def stored_view(one: View, whole: bool = True) -> StoredView:
    """A view that was just made, as it would be read again."""
    build = builds.build_from_view(one, one["sass"]["text"])
    return StoredView(view_name(one), one if whole else view.summarize_view(one), build, whole)


def compress_view(one: View) -> bytes:
    """What a page loads of a whole view.

    Raises:
        ValueError: it is larger than a page should load.
    """
    text = json.dumps(_compact_view(one), separators=(",", ":"), ensure_ascii=False)
    data = gzip.compress(text.encode("utf-8"), 6, mtime=0)
    if len(data) > MOST:
        what = f"has {len(data)} bytes when compressed, and {MOST} are the limit"
        raise ValueError(f"{view_name(one)} {what}")
    return data


def page_files(snippet: Snippet) -> tuple[dict[str, bytes], list[Finding]]:
    """What pages load, by file name, of views kept whole; and what is wrong with others."""
    found, findings = load_views(snippet)
    return {f"{one.name}.json.gz": compress_view(one.view) for one in found}, findings


def _compact_view(one: View) -> dict[str, Any]:
    """A whole view with its texts in one piece each, and numbers as differences."""
    slim = {**one, **{key: dict(one[key]) for key in SIDES}}
    for key in SIDES:
        lines = slim[key]["text"]
        slim[key]["text"] = "\n".join(ptx.encode_registers(lines) if key == "ptx" else lines)
    for key, column in DIFFERENCES:
        slim[key][column] = _delta_encode(slim[key][column])
    slim["accesses"] = [
        {**access, "addresses": _delta_encode(access["addresses"])} for access in one["accesses"]
    ]
    return slim


def _delta_encode(numbers: Sequence[int | None]) -> list[int | None]:
    """Each number as the difference from the one before, the first from 0; None stays None."""
    before, found = 0, list[int | None]()
    for one in numbers:
        found.append(None if one is None else one - before)
        before = before if one is None else one
    return found


def _delta_decode(numbers: Sequence[int | None]) -> list[int | None]:
    total, found = 0, list[int | None]()
    for one in numbers:
        total += one or 0
        found.append(None if one is None else total)
    return found


def write_views(snippet: Snippet, views: Iterable[View]) -> bool:
    """Keep these views of a snippet and no others; whether anything has changed.

    Raises:
        ShelfError: two are called the same, or one is too large; what was kept stays.
    """
    path = snippet.results / PACK
    made = sorted(views, key=view_name)
    named = _anchor_mapper(snippet.folder, syntax.Anchors.anchor_at)
    try:
        rows = []
        whole = _select_whole(made)
        for one, other in zip(made, made[1:], strict=False):
            if view_name(one) == view_name(other):
                what = "would be of two views: name one variant anew"
                raise ValueError(f"{view_name(one)} {what}")
        for one in made:
            if view_name(one) in whole:
                compress_view(one)
            rows.append(_encode_row(one, view_name(one) in whole, named))
    except ValueError as error:
        where = snippet.project.relative_path(path)
        raise ShelfError(Finding(where, None, str(error), "make it smaller")) from None
    section = {"schema": view.SCHEMA, "digest": snippet.digest, "views": rows} if rows else None
    data = files.replace_section(path, SECTION, section)
    if data is not None:
        return files.write_atomically(path, data)
    changed = path.is_file()
    path.unlink(missing_ok=True)
    return changed


def _encode_row(one: View, whole: bool, named: Callable[[str], str]) -> dict[str, Any]:
    """A view as it is kept."""
    found = _compact_view(one) if whole else view.summarize_view(one)
    row = {key: value for key, value in found.items() if key not in (*HERE, "source")}
    if whole:
        row["lines"] = [{**line, "at": named(line["at"])} for line in row["lines"]]
    return {**row, "build": builds.build_from_view(one, one["sass"]["text"])}


def _select_whole(views: Sequence[View]) -> set[str]:
    """The names of the views to keep whole."""
    ways = {view_name(one): _mma_kinds(one["sass"]["text"]) for one in views}
    usual = {
        (one["variant"], one["kernel"]): ways[view_name(one)]
        for one in views
        if one["arch"] == USUAL
    }
    found: set[str] = set()
    shortest: dict[tuple[str, frozenset[str]], View] = {}
    for one in views:
        name, key = view_name(one), (one["variant"], one["kernel"])
        if one["arch"] == USUAL or key not in usual:
            found.add(name)
        elif ways[name] and ways[name] != usual[key] and len(one["sass"]["text"]) <= SHORT:
            group = one["arch"], ways[name]
            before = shortest.setdefault(group, one)
            if len(one["sass"]["text"]) < len(before["sass"]["text"]):
                shortest[group] = one
    return found | {view_name(one) for one in shortest.values()}


def _mma_kinds(sass: Sequence[str]) -> frozenset[str]:
    text = "\n".join(sass)
    return frozenset(name for name, form in WAYS.items() if form.search(text))


def load_views(snippet: Snippet) -> tuple[list[StoredView], list[Finding]]:
    """The current views that are kept whole, by name, and what is wrong with others."""
    return _load_stored(snippet, whole=True)


def load_summaries(snippet: Snippet) -> tuple[list[StoredView], list[Finding]]:
    """Every current view of a snippet, of each its `view.SUMMARY` alone.

    What is left out is not looked at: a fault in it is for `load_views` to find.
    """
    return _load_stored(snippet, whole=False)


def _load_stored(snippet: Snippet, *, whole: bool) -> tuple[list[StoredView], list[Finding]]:
    found: list[StoredView] = []
    path = snippet.results / PACK
    if snippet.findings:
        return found, []
    try:
        rows = list(_current_rows(files.read_sections(path).get(SECTION), snippet.digest))
    except (OSError, ValueError) as error:
        what = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        return found, [_make_finding(snippet, path, what)]
    findings = []
    for at, row in enumerate(rows):
        try:
            if wrong := "is no object" if not isinstance(row, dict) else None:
                raise ValueError(wrong)
            if not whole or "lines" in row:
                found.append(_decode_row(snippet, row, whole=whole))
        except (ValueError, LookupError, SyntaxError, RecursionError) as error:
            said = str(error.args[0] if error.args else error)
            findings.append(_make_finding(snippet, path, f"view {at}: {said}"))
    return sorted(found, key=lambda one: one.name), findings


def _current_rows(section: object, digest: str) -> list[Any]:
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


def _decode_row(snippet: Snippet, row: dict[str, Any], *, whole: bool) -> StoredView:
    """The view that a row keeps.

    Raises:
        ValueError, LookupError, SyntaxError: it keeps none, or none of this source.
    """
    value = {key: one for key, one in row.items() if key != "build"}
    value |= {"schema": view.SCHEMA, "snippet": snippet.id, "digest": snippet.digest}
    kept_whole = "lines" in row
    if kept_whole:
        _restore_columns(value, texts=whole)
    if not whole:
        value = view.summarize_view(value)
    elif isinstance(value["lines"], list):
        _restore_lines(snippet.folder, value)
    if wrong := json_flaw(value) or builds.build_problem(row.get("build")):
        raise ValueError(wrong)
    _check_view(value, whole=whole)
    return StoredView(view_name(value), value, row["build"], kept_whole)


def _make_finding(snippet: Snippet, path: Path, what: str) -> Finding:
    mend = f"make it again with `shelf run {snippet.id} --force`, or remove it"
    return Finding(snippet.project.relative_path(path), None, what, mend)


def _restore_columns(value: View, *, texts: bool) -> None:
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
            holder[name] = _delta_decode(numbers)
    for key in SIDES if texts else ():
        side = value.get(key)
        if isinstance(side, dict) and isinstance(side.get("text"), str):
            lines = side["text"].split("\n")
            side["text"] = ptx.decode_registers(lines) if key == "ptx" else lines


def _anchor_mapper(folder: Path, change: Callable[..., Any]) -> Callable[[str], str]:
    """What turns the line in a `file:line` of the snippet in `folder` into its anchor, or back.

    The places of other files stay as they are.
    """
    texts: dict[str, str | None] = {}

    def map_place(at: str) -> str:
        file, colon, place = at.rpartition(":")
        if not colon:
            return at
        if file not in texts:
            texts[file] = view.read_source(folder, file)
        text = texts[file]
        suffix = Path(file).suffix
        if text is None or suffix not in (".py", *syntax.CPP_SUFFIXES):
            return at
        found = syntax.cached_anchors(text, suffix)
        return f"{file}:{change(found, int(place) if place.isdecimal() else place)}"

    return map_place


def _restore_lines(folder: Path, value: View) -> None:
    """Put the lines of a view where its source has them now, and the source beside them."""
    lined = _anchor_mapper(folder, syntax.Anchors.find_line)
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
    texts = view.read_sources(folder, {file for file, _ in where})
    value["source"] = view.source_pieces(texts, where)


def _check_view(value: View, *, whole: bool) -> None:
    """Raises ValueError where a current view is malformed, or contradicts itself."""
    if wrong := view.view_problem(value, view.VIEW if whole else view.SUMMARY):
        raise ValueError(wrong)
    name = view_name(value)
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
    for what, count in _sum_tallies([value["total"]]).items():
        if (mine := _sum_tallies(value["lines"])[what]) != count:
            raise ValueError(f"{name}: has {mine:,} {what} in its lines, and {count:,} in all")


def _sum_tallies(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What rows come to together, by name."""
    return dict(_iter_tallies(rows))


def _iter_tallies(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    yield "executed", sum(sum(row["classes"].values()) for row in rows)
    for name in NUMBERS:
        yield name, sum(row.get(name, 0) for row in rows)

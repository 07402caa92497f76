"""The views of a snippet as they are kept, packed in `results/cpu.xz`, and read again.

Of each kernel of a variant one view on USUAL is kept whole, whatever its template arguments: the
shortest, none over LONG unless the variant has no other, and none over LONGEST. Of other
architectures one is kept for each way that they multiply matrices and USUAL does not: the shortest
in the snippet, if it is short. Of the others the totals are kept, which is what a table needs;
`shelf look` makes the rest when asked.

Nothing is kept that the checkout has elsewhere. The source is not, and a line is kept as its place
in the syntax (contract/syntax.py), so that a comment changes no view. Of a whole view, the lists
that refer to others, the registers that are live and the addresses of lanes have each number as the
difference from the one before; in PTX registers are numbered so. A page loads the same, with lines
and source put back, as one compressed file a view: `<variant>.<kernel>.<arch>.json.gz`. In the pack
the numbers of registers stand apart from the text, which then repeats itself, and these and what
refers are written a letter a number: a fifth less.

Views of other code than the present are as good as none: neither shown nor an error.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import count as count_up
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from warpshelf.contract import syntax
from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.look import builds, ptx, view
from warpshelf.look.view import DETAILS, NUMBERS, View, view_name

PACK = "cpu.xz"  # in a snippet's results
SECTION = "views"  # of it
USUAL = "sm_90"
NAME = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+\.sm_[0-9]+")
DIFFERENCES = (("sass", "ptx"), ("sass", "live"), ("ptx", "line"))
SIDES = ("ptx", "sass")
NUMBERED = re.compile(r"(%[a-z]+|\bU?R)(0|[1-9]\d*|#)(?!\w)")  # registers, with numbers or apart
HERE = ("schema", "snippet", "digest")  # of a view, said once for all that are kept together
SHORT = 450  # machine instructions of a view that is kept to show another way
LONGEST = 2000  # machine instructions of any view that is kept whole
LONG = 800  # of one that a reader follows line by line
MOST = 80 * 1024  # bytes of what a page loads at once
ZERO = ord("#")  # JSON writes the letters from here on as they are, all but one
HALF, HALVES = 0xD800, 0x800  # the first half of a surrogate pair, which is no letter; all
# How machine code multiplies matrices: a warp, four warps together, or the tensor core by itself.
WAYS = {
    "mma": re.compile(r"\b[HIDQBO]MMA\b"),
    "wgmma": re.compile(r"\b[HIQB]GMMA\b"),
    "tcgen05": re.compile(r"\bUTC[A-Z]*MMA\b"),
}


def summarize_view(one: View, whole: bool) -> View:
    """The summary of a view, which is kept `whole` or not."""
    found = cast(View, {key: value for key, value in one.items() if key not in DETAILS})
    build = builds.build_from_view(one)
    return {**found, "sass": {"live": [view.live_registers(one)]}, "build": build, "whole": whole}


def compress_view(one: View) -> bytes:
    """What a page loads of a whole view; ValueError if it is larger than a page should load."""
    text = json.dumps(_compact_view(one), separators=(",", ":"), ensure_ascii=False)
    data = gzip.compress(text.encode("utf-8"), 6, mtime=0)
    if len(data) > MOST:
        what = f"has {len(data)} bytes when compressed, and {MOST} are the limit"
        raise ValueError(f"{view_name(one)} {what}")
    return data


def page_files(snippet: Snippet) -> tuple[dict[str, bytes], list[Finding]]:
    """What pages load, by file name, of views kept whole; and what is wrong with others."""
    found, findings = load_views(snippet)
    return {f"{view_name(one)}.json.gz": compress_view(one) for one in found}, findings


def _compact_view(one: View) -> dict[str, Any]:
    """A whole view with its texts in one piece each, and numbers as differences."""
    slim: dict[str, Any] = {**one, "ptx": {**one["ptx"]}, "sass": {**one["sass"]}}
    slim["ptx"]["text"] = "\n".join(ptx.encode_registers(one["ptx"]["text"]))
    slim["sass"]["text"] = "\n".join(one["sass"]["text"])
    slim["accesses"] = [{**access} for access in one["accesses"]]
    _change_columns(slim, _delta_encode)
    return slim


def _change_columns(value: dict[str, Any], change: Callable[[Any], Any]) -> None:
    """Let `change` turn all that is kept as differences into these, or back."""
    columns = [(value[side], column) for side, column in DIFFERENCES]
    for holder, column in (*columns, *((one, "addresses") for one in value["accesses"])):
        holder[column] = change(holder[column])


def _number_mapper(change: Callable[[str, tuple[str, str, int]], str]) -> Callable[[str], str]:
    """What lets `change` write each register of a line: `change` is told of its number, its kind,
    the instruction that it is of, and how many it has before."""

    def map_line(line: str) -> str:
        name, places = (*line.split(" "), "")[line.startswith("@")], count_up()
        return NUMBERED.sub(
            lambda found: f"{found[1]}{change(found[2], (found[1], name, next(places)))}", line
        )

    return map_line


def _split_numbers(lines: list[str]) -> dict[str, Any]:
    """PTX or machine code, and apart the numbers of its registers, by kind: each as the difference
    from the one that stood at the same place of the same instruction before."""
    numbers: dict[str, list[int]] = {}
    before: Counter[tuple[str, str, int]] = Counter()

    def take_number(number: str, place: tuple[str, str, int]) -> str:
        far = int(number) - before[place]
        before[place] += far
        numbers.setdefault(place[0], []).append(far)
        return "#"

    text = "\n".join(map(_number_mapper(take_number), lines))
    return {"text": text, "numbers": {kind: _write_letters(all_) for kind, all_ in numbers.items()}}


def _join_numbers(side: dict[str, Any]) -> list[str]:
    """The lines that `_split_numbers` was given; ValueError if there are too few numbers."""
    numbers = {kind: _read_letters(text)[::-1] for kind, text in side.pop("numbers").items()}
    before: Counter[tuple[str, str, int]] = Counter()

    def put_number(_: str, place: tuple[str, str, int]) -> str:
        if not numbers.get(place[0]):
            raise ValueError(f"lacks numbers of its registers {place[0]}")
        before[place] += numbers[place[0]].pop()
        return str(before[place])

    return list(map(_number_mapper(put_number), side["text"].split("\n")))


def _write_letters(numbers: Iterable[int]) -> str:
    """A letter for each number, the first ones for 0, -1, 1, -2; ValueError if one is too large."""
    letters = (ZERO + (2 * one if one >= 0 else -2 * one - 1) for one in numbers)
    return "".join(chr(one + HALVES * (one >= HALF)) for one in letters)


def _read_letters(text: object) -> list[int]:
    """The numbers that `_write_letters` was given; ValueError if this is not what it wrote."""
    if not isinstance(text, str) or (text and ord(min(text)) < ZERO):
        raise ValueError("has numbers that are not written as letters")
    codes = (ord(one) - ZERO for one in text)
    numbers = (one - HALVES * (one >= HALF - ZERO) for one in codes)
    return [one >> 1 ^ -(one & 1) for one in numbers]


def _delta_encode(numbers: Iterable[int | None]) -> list[int | None]:
    """Each number as the difference from the one before, the first from 0; None stays None."""
    before, found = 0, list[int | None]()
    for one in numbers:
        found.append(None if one is None else one - before)
        before = before if one is None else one
    return found


def _delta_decode(numbers: Iterable[int | None]) -> list[int | None]:
    total, found = 0, list[int | None]()
    for one in numbers:
        if one is not None and type(one) is not int:
            raise TypeError
        total += one or 0
        found.append(None if one is None else total)
    return found


def write_views(snippet: Snippet, views: Iterable[View]) -> bool:
    """Keep these views of a snippet and no others; True if anything changed.

    ShelfError, and what was kept stays, if two are called the same, or one is too large.
    """
    path = snippet.results / PACK
    made = sorted(views, key=view_name)
    whole = _select_whole(made)
    named = _anchor_mapper(snippet.folder, lambda found, line: found.anchor_at(int(line)))
    rows = []
    try:
        for one, other in pairwise(made):
            if view_name(one) == view_name(other):
                what = "is the name of two views: rename one variant"
                raise ValueError(f"{view_name(one)} {what}")
        for one in made:
            row: dict[str, Any] = {**summarize_view(one, False)}
            if view_name(one) in whole:
                compress_view(one)
                lines = [{**line, "at": named(line["at"])} for line in one["lines"]]
                row = {**_compact_view(one), "lines": lines, "build": row["build"]}
                row["ptx"] |= _split_numbers(one["ptx"]["text"])
                row["sass"] |= _split_numbers(one["sass"]["text"])
                for side, column in DIFFERENCES:
                    row[side][column] = _write_letters(row[side][column])
            unkept = (*HERE, "source", "whole")
            rows.append({key: value for key, value in row.items() if key not in unkept})
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


def _select_whole(views: Sequence[View]) -> set[str]:
    """The names of the views to keep whole."""
    texts = {view_name(one): "\n".join(one["sass"]["text"]) for one in views}
    ways = {
        name: frozenset(way for way, form in WAYS.items() if form.search(text))
        for name, text in texts.items()
    }
    usual = {
        (one["variant"], one["kernel"]): ways[view_name(one)]
        for one in views
        if one["arch"] == USUAL
    }

    def length(one: View) -> int:
        return len(one["sass"]["text"])

    kernels: dict[tuple[str, str], View] = {}
    for one in sorted(views, key=length):
        if one["arch"] == USUAL:
            kernels.setdefault((one["variant"], one["kernel"].partition("<")[0]), one)
    found: set[str] = set()
    shown: set[str] = set()  # variants
    for one in kernels.values():
        if length(one) <= (LONGEST if one["variant"] not in shown else LONG):
            found.add(view_name(one))
            shown.add(one["variant"])
    others: dict[tuple[str, frozenset[str]], list[View]] = {}
    for one in views:
        name, key = view_name(one), (one["variant"], one["kernel"])
        if key not in usual:
            found.add(name)
        elif one["arch"] == USUAL:
            continue
        elif ways[name] and ways[name] != usual[key] and length(one) <= SHORT:
            others.setdefault((one["arch"], ways[name]), []).append(one)
    shortest = [min(alike, key=length) for alike in others.values()]
    return found | set(map(view_name, shortest))


def load_views(snippet: Snippet) -> tuple[list[View], list[Finding]]:
    """The current views that are kept whole, by name, and what is wrong with others."""
    return _load_stored(snippet, whole=True)


def load_summaries(snippet: Snippet) -> tuple[list[View], list[Finding]]:
    """The summary of every current view of a snippet, by name, and what is wrong with others.

    What is left out is not looked at: a fault in it is for `load_views` to find.
    """
    return _load_stored(snippet, whole=False)


def _load_stored(snippet: Snippet, *, whole: bool) -> tuple[list[View], list[Finding]]:
    found: list[View] = []
    findings: list[Finding] = []
    path = snippet.results / PACK

    def tell_finding(what: str) -> None:
        mend = f"make it again with `shelf run {snippet.id} --force`, or remove it"
        findings.append(Finding(snippet.project.relative_path(path), None, what, mend))

    if snippet.findings:
        return [], []
    try:
        section = files.read_sections(path).get(SECTION) or {"views": []}
        if not isinstance(section, dict) or not isinstance(section.get("views"), list):
            raise ValueError("has no list of views")
    except (OSError, ValueError) as error:
        tell_finding(error.strerror or str(error) if isinstance(error, OSError) else str(error))
        return [], findings
    if (section.get("schema"), section.get("digest")) != (view.SCHEMA, snippet.digest):
        return [], []
    for at, row in enumerate(section["views"]):
        try:
            if not isinstance(row, dict):
                raise ValueError("is not an object")
            if not whole or "lines" in row:
                found.append(_decode_row(snippet, row, whole=whole))
        except (ValueError, LookupError, SyntaxError, RecursionError) as error:
            tell_finding(f"view {at}: {error.args[0] if error.args else error}")
    return sorted(found, key=view_name), findings


def _decode_row(snippet: Snippet, row: dict[str, Any], *, whole: bool) -> View:
    """The view that a row keeps, or its summary; an error if it keeps none, or of other source."""
    value = {key: one for key, one in row.items() if key != "build"}
    value |= {"schema": view.SCHEMA, "snippet": snippet.id, "digest": snippet.digest, "source": []}
    with suppress(TypeError, KeyError, AttributeError):  # the shape says what is wrong
        if whole:
            for side in SIDES:
                value[side] = {**value[side]}
                value[side]["text"] = _join_numbers(value[side])
            for side, column in DIFFERENCES:
                value[side][column] = _read_letters(value[side][column])
            _change_columns(value, _delta_decode)
        else:
            value = {key: one for key, one in value.items() if key not in DETAILS}
            live = row["sass"]["live"]
            if "lines" in row:
                live = _delta_decode(_read_letters(live))
            most = max(live, default=0)
            value["sass"] = {"live": [most]}
    wrong = (
        files.json_flaw(value)
        or files.shape_problem(row.get("build"), builds.BUILD, "the build")
        or files.shape_problem(value, view.VIEW if whole else view.SUMMARY, "the view")
    )
    if wrong:
        raise ValueError(wrong)
    if whole:
        _restore_lines(snippet.folder, value)
    found = cast(View, value)
    if not NAME.fullmatch(name := view_name(found)):
        raise ValueError(f"{value['variant']}, {value['kernel']}: no file is called {name}")
    if whole:
        _check_lists(name, value)
        return found
    return {**found, "build": row["build"], "whole": "lines" in row}


def _anchor_mapper(
    folder: Path, change: Callable[[syntax.Anchors, str], object]
) -> Callable[[str], str]:
    """What turns the line in a `file:line` of the snippet in `folder` into its anchor, or back."""
    texts: dict[str, str | None] = {}

    def map_place(at: str) -> str:
        file, colon, place = at.rpartition(":")
        suffix = Path(file).suffix
        if not colon or suffix not in (".py", *syntax.CPP_SUFFIXES):
            return at
        if file not in texts:
            texts[file] = view.read_source(folder, file)
        if (text := texts[file]) is None:
            return at
        found = syntax.cached_anchors(text, suffix)
        return f"{file}:{change(found, place)}"

    return map_place


def _restore_lines(folder: Path, value: dict[str, Any]) -> None:
    """Put the lines of a view where its source has them now, and the source beside them."""
    lined = _anchor_mapper(folder, syntax.Anchors.find_line)
    value["lines"] = [{**line, "at": lined(line["at"])} for line in value["lines"]]
    places = [line["at"].rpartition(":") for line in value["lines"]]
    where = [(file, int(line)) for file, colon, line in places if colon and line.isdecimal()]
    value["source"] = view.snippet_pieces(folder, where)


def _check_lists(name: str, value: dict[str, Any]) -> None:
    """Raises ValueError where lists of a view do not fit each other."""
    for side, refers, other in (
        ("ptx", "line", value["lines"]),
        ("sass", "ptx", value["ptx"]["text"]),
    ):
        lists = value[side]
        if len({len(one) for one in lists.values() if isinstance(one, list)}) > 1:
            raise ValueError(f"{name}: the lists of {side} differ in length")
        if not all(-1 <= at < len(other) for at in lists[refers]):
            raise ValueError(f"{name}: {side}.{refers} refers to a missing item")
    lines, total = value["lines"], value["total"]
    counts = [("executed", sum(map(view.executed_count, lines)), view.executed_count(total))]
    counts += [(of, sum(line.get(of, 0) for line in lines), total.get(of, 0)) for of in NUMBERS]
    for what, mine, count in counts:
        if mine != count:
            raise ValueError(f"{name}: has {mine:,} {what} in its lines, and {count:,} in all")

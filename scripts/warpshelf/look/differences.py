"""What is different between two views of a kernel: figures, main loop, lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from warpshelf.look import figures
from warpshelf.look.figures import KINDS, group
from warpshelf.look.view import View

COUNTED = ("sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
Line = dict[str, int]


@dataclass(frozen=True)
class Change:
    """A figure before and after; None where there is none."""

    figure: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class Changed:
    """A line of source, `at` file:line where it stands now or stood, and what changed of it."""

    at: str
    text: str
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Difference:
    """What differs between two builds of a kernel; `counts` says whether executed counts could be
    compared, which are of the same case alone."""

    variant: str
    kernel: str
    figures: tuple[Change, ...]
    lines: tuple[Changed, ...] = ()
    counts: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def pairs(before: Iterable[View], after: Iterable[View]) -> list[tuple[View | None, View | None]]:
    """Views of the same variant and kernel side by side, None where there is no counterpart.

    A variant's kernels of different names belong together where each side has just one left over.
    """
    old = {(one["variant"], one["kernel"]): one for one in before}
    new = {(one["variant"], one["kernel"]): one for one in after}
    found: list[tuple[View | None, View | None]] = [(old.get(key), new[key]) for key in new]
    gone = [old[key] for key in old if key not in new]
    for at, (was, now) in enumerate(found):
        if was is not None or now is None:
            continue
        mine = [one for one in gone if one["variant"] == now["variant"]]
        others = [key for key in new if key not in old and key[0] == now["variant"]]
        if len(mine) == len(others) == 1:
            found[at] = (mine[0], now)
            gone.remove(mine[0])
    return found + [(one, None) for one in gone]


def difference(before: View, after: View) -> Difference:
    """What differs between the views of a kernel at two times."""
    same = before["case"] == after["case"] and before["arch"] == after["arch"]
    was, now = code(before), code(after)
    if same:
        was, now = figures.did(before) | was, figures.did(after) | now
    lines = _lines(before, after) if same else ()
    return Difference(after["variant"], after["kernel"], changes(was, now), lines, same)


def code(one: Mapping[str, Any]) -> dict[str, float]:
    """Figures of machine code, with the instructions of the main loop by kind."""
    found = figures.code(dict(one))
    loop = figures.main_loop(one["loops"])
    for name, number in sorted(loop["kinds"].items()) if loop else ():
        found[f"main loop: {name}"] = number
    return found


def changes(before: Mapping[str, float], after: Mapping[str, float]) -> tuple[Change, ...]:
    """The figures that differ, in order; of instructions by kind, one that is not there is 0."""
    found = []
    for name in dict.fromkeys((*after, *before)):
        was, now = (side.get(name, _none(name, side)) for side in (before, after))
        if was != now:
            found.append(Change(name, was, now))
    return tuple(found)


def _none(name: str, side: Mapping[str, float]) -> float | None:
    """What a figure is that a build lacks: of a kind it has no instruction, if it has the code."""
    where, _, kind = name.partition(": ")
    there = where != "main loop" or "main loop: instructions" in side
    return 0 if there and group(kind) in KINDS else None


def _lines(before: View, after: View) -> tuple[Changed, ...]:
    """The lines that did something else, told apart by their text: a change moves those below."""
    was, now = _by_text(before), _by_text(after)
    found = []
    for key in dict.fromkeys((*now, *was)):
        at = (now.get(key) or was[key])[0]
        found_changes = changes(was.get(key, ("", {}))[1], now.get(key, ("", {}))[1])
        if found_changes:
            found.append(Changed(at, key[1], found_changes))
    return tuple(found)


def _by_text(view: View) -> dict[tuple[str, str], tuple[str, Line]]:
    """By file and text of a line: where it stands first, and its counts, those alike together."""
    texts = sources(view)
    found: dict[tuple[str, str], tuple[str, Line]] = {}
    for line in view["lines"]:
        file = line["at"].rpartition(":")[0] or line["at"]
        at, own = found.setdefault((file, texts.get(line["at"], "")), (line["at"], {}))
        own["executed"] = own.get("executed", 0) + sum(line["classes"].values())
        for name in COUNTED:
            if name in line:
                own[name] = own.get(name, 0) + line[name]
        own["live"] = max(own.get("live", 0), line.get("live", 0))
    return found


def sources(view: View) -> dict[str, str]:
    """The text of each line of source that a view shows, by `file:line`, without its margins."""
    return {
        f"{piece['file']}:{number}": text.strip()
        for piece in view["source"]
        for number, text in enumerate(piece["text"], piece["from"])
    }

"""What is different between two views of a kernel: figures, main loop, lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from warpshelf.look import figures
from warpshelf.look.figures import KINDS, base_kind
from warpshelf.look.view import View

COUNTED = ("sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")
Line = dict[str, int]


@dataclass(frozen=True)
class FigureChange:
    """A figure before and after; None where there is none."""

    figure: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class LineChange:
    """A line of source, `at` file:line where it stands now or stood, and what changed of it."""

    at: str
    text: str
    changes: tuple[FigureChange, ...]


@dataclass(frozen=True)
class Difference:
    """What differs between two builds of a kernel; `counts` says whether executed counts could be
    compared, which are of the same case alone."""

    variant: str
    kernel: str
    figures: tuple[FigureChange, ...]
    lines: tuple[LineChange, ...] = ()
    counts: bool = True

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def pair_views(
    before: Iterable[View], after: Iterable[View]
) -> list[tuple[View | None, View | None]]:
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


def compare_views(before: View, after: View) -> Difference:
    """What differs between the views of a kernel at two times."""
    same = before["case"] == after["case"] and before["arch"] == after["arch"]
    was, now = machine_figures(before), machine_figures(after)
    if same:
        was, now = figures.executed(before) | was, figures.executed(after) | now
    lines = _changed_lines(before, after) if same else ()
    return Difference(after["variant"], after["kernel"], changed_figures(was, now), lines, same)


def machine_figures(one: Mapping[str, Any]) -> dict[str, float]:
    """Figures of machine code, with the instructions of the main loop by kind."""
    found = figures.code_figures(dict(one))
    loop = figures.main_loop(one["loops"])
    for name, number in sorted(loop["kinds"].items()) if loop else ():
        found[f"main loop: {name}"] = number
    return found


def changed_figures(
    before: Mapping[str, float], after: Mapping[str, float]
) -> tuple[FigureChange, ...]:
    """The figures that differ, in order; of instructions by kind, one that is not there is 0."""
    found = []
    for name in dict.fromkeys((*after, *before)):
        was, now = (side.get(name, _missing_figure(name, side)) for side in (before, after))
        if was != now:
            found.append(FigureChange(name, was, now))
    return tuple(found)


def _missing_figure(name: str, side: Mapping[str, float]) -> float | None:
    """What a figure is that a build lacks: of a kind it has no instruction, if it has the code."""
    where, _, kind = name.partition(": ")
    there = where != "main loop" or "main loop: instructions" in side
    return 0 if there and base_kind(kind) in KINDS else None


def _changed_lines(before: View, after: View) -> tuple[LineChange, ...]:
    """The lines that did something else, told apart by their text: a change moves those below."""
    was, now = _lines_by_text(before), _lines_by_text(after)
    found = []
    for key in dict.fromkeys((*now, *was)):
        at = (now.get(key) or was[key])[0]
        found_changes = changed_figures(was.get(key, ("", {}))[1], now.get(key, ("", {}))[1])
        if found_changes:
            found.append(LineChange(at, key[1], found_changes))
    return tuple(found)


def _lines_by_text(view: View) -> dict[tuple[str, str], tuple[str, Line]]:
    """By file and text of a line: where it stands first, and its counts, those alike together."""
    texts = source_lines(view)
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


def source_lines(view: View) -> dict[str, str]:
    """The text of each line of source that a view shows, by `file:line`, without its margins."""
    return {
        f"{piece['file']}:{number}": text.strip()
        for piece in view["source"]
        for number, text in enumerate(piece["text"], piece["from"])
    }

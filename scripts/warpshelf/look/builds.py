"""What one compares of two builds of a kernel, and the differences between two views.

Two kernels that do the same job share it out in other ways: tiles of other sides, more or fewer
warps, loops that the compiler unrolled. What still compares is how much an instruction of a warp
gets done: `products` are the multiply-adds of matrix instructions, `bytes` what a lane loads from
and stores to global memory, both of the main loop, or of all there is where there is no loop.

What became of public kernels that stand beside a snippet's is kept in its rivals.json, written by
machine. An answer belongs to an entry of rivals.yml by the digest of what it was compiled from. One
of another entry, or of an entry since changed, is as good as none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from warpshelf.core import files
from warpshelf.core.files import json_flaw, write_atomically
from warpshelf.core.findings import Finding
from warpshelf.look import binary, figures
from warpshelf.look.binary import disassemble_kernel
from warpshelf.look.figures import KINDS, base_kind
from warpshelf.look.view import ARCH, View
from warpshelf.look.work import find_loops

Build = dict[str, Any]  # shaped as BUILD has it
BUILD = {
    "registers": int,
    "spilled_bytes": int,
    "shared_bytes": int,
    "instructions": int,
    "loop": {"*": int},  # machine instructions of the main loop by kind; empty where it has none
    "products": int,
    "bytes": int,
}
# HMMA.16816 multiplies 16x16 by 16x8 in a warp; HGMMA.64x128x16 is issued by each of four warps.
WARP = re.compile(r"\b[HIQDO]MMA\.(?:SP\.)?(16|8)(8|16)(\d{1,3})\b")
GROUP = re.compile(r"\b[HIQB]GMMA\.(?:SP\.)?64x(\d+)x(\d+)\b")
MOVES = ("load global", "store global", "copy async")


def build_problem(value: object) -> str | None:
    """The first thing in a value that is not as a build has it; None if all is."""
    return files.shape_problem(value, BUILD, "the build")


def build_from_view(view: View, sass: Sequence[str]) -> Build:
    """That of a view, or of its summary; `sass` are the texts of its machine instructions."""
    taken = {key: view[key] for key in ("registers", "spilled_bytes", "shared_bytes")}
    return taken | _instruction_figures(sass, view["loops"])


def build_from_binary(cubin: bytes, symbol: str, shared: int) -> Build:
    """That of a kernel in a binary, which is launched with `shared` bytes of shared memory.

    Raises:
        RuntimeError: no tool can read the binary.
    """
    used, code = binary.function_usage(cubin)[symbol], disassemble_kernel(cubin, symbol)
    return {
        "registers": used.registers,
        "spilled_bytes": used.spilled_bytes,
        "shared_bytes": max(shared, used.shared_bytes),
        **_instruction_figures(
            [one.text for one in code.instructions], [one.as_dict() for one in find_loops(code)]
        ),
    }


def _instruction_figures(sass: Sequence[str], found: Sequence[dict[str, Any]]) -> Build:
    main = _hot_loop(found)
    own = [*range(len(sass))] if main is None else _loop_instructions(main, found)
    texts = [sass[at] for at in own]
    kinds = figures.count_kinds(texts) if main is None else main["kinds"]
    made, of = _matrix_products(texts)
    return {
        "instructions": len(sass),
        "loop": dict(main["kinds"]) if main else {},
        # Between its first and last instruction may lie some that are not the loop's.
        "products": made * kinds.get("matrix", 0) // of if of else 0,
        "bytes": sum(
            number * int(name.rsplit(" ", 1)[1])
            for name, number in kinds.items()
            if base_kind(name) in MOVES and name[-1].isdigit()
        ),
    }


def _hot_loop(found: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The loop in which most is made, if each goes round ten times for once of that around it.

    A kernel that takes tile after tile may have more of its products in the outer loop, which
    begins and ends each tile, than in the inner one, where it spends its time.
    """
    main = figures.main_loop(found)
    while main is not None:
        outer = main
        inner = [
            one
            for one in found
            if one["depth"] == outer["depth"] + 1
            and outer["first"] <= one["first"] <= one["last"] <= outer["last"]
            and 10 * figures.count_products(one["kinds"]) > figures.count_products(outer["kinds"])
        ]
        if not inner:
            break
        main = figures.main_loop(inner)
    return main


def _loop_instructions(main: dict[str, Any], found: Sequence[dict[str, Any]]) -> list[int]:
    """The instructions of a loop, those of loops inside it left out."""
    inner = {
        at
        for one in found
        if one["depth"] > main["depth"]
        for at in range(one["first"], one["last"] + 1)
    }
    return [at for at in range(main["first"], main["last"] + 1) if at not in inner]


def _matrix_products(texts: Iterable[str]) -> tuple[int, int]:
    """Multiply-adds of a warp in matrix instructions whose shape their names say; and how many."""
    total = number = 0
    for text in texts:
        if found := GROUP.search(text):
            total += 64 * int(found[1]) * int(found[2]) // 4
        elif found := WARP.search(text):
            total += int(found[1]) * int(found[2]) * int(found[3])
        else:
            continue
        number += 1
    return total, number


FILE = "rivals.json"
SCHEMA = 1
LARGEST = 2**20  # bytes of the file; a real one holds a few kibibytes
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ANSWER = {"digest": DIGEST, "compiler": str, "builds": {"*": BUILD}}
SHAPE = {"schema": int, "rivals": [ANSWER]}


class CompiledRival(NamedTuple):
    """What one kernel was compiled to: by whom, and its figures by architecture."""

    compiler: str
    builds: dict[str, Build]


def rival_problem(value: object) -> str | None:
    """The first thing in an answer of the compiler's that is not as it should be, in words."""
    if wrong := files.shape_problem(
        value, {k: v for k, v in ANSWER.items() if k != "digest"}, "it"
    ):
        return wrong
    builds: dict[str, Any] = value["builds"] if isinstance(value, dict) else {}
    return next(
        (f"{name!r} is no architecture" for name in builds if not ARCH.fullmatch(name)), None
    )


def write_rivals(folder: Path, answers: dict[str, CompiledRival]) -> bool:
    """Keep these answers, by digest, in a snippet's folder; whether anything has changed."""
    rows = ",\n".join(  # a line a kernel, so that a difference shows as one
        json.dumps({"digest": digest, **one._asdict()}, sort_keys=True, ensure_ascii=False)
        for digest, one in answers.items()
    )
    return write_atomically(folder / FILE, f'{{"schema": {SCHEMA}, "rivals": [\n{rows}\n]}}\n')


def load_rivals(folder: Path, shown: str) -> tuple[dict[str, CompiledRival], list[Finding]]:
    """The answers in a snippet's folder, called `shown`, by digest; none without a file."""
    path = folder / FILE
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"is larger than {LARGEST} bytes")
        value = json.loads(path.read_text(encoding="utf-8"))
        if wrong := json_flaw(value) or files.shape_problem(value, SHAPE, "it"):
            raise ValueError(wrong)
        if value["schema"] != SCHEMA:
            raise ValueError(f"is of schema {value['schema']}, not {SCHEMA}")
        for row in value["rivals"]:
            if wrong := rival_problem({key: row[key] for key in ("compiler", "builds")}):
                raise ValueError(wrong)
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        what = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        mend = "make it again with `shelf rivals`, or remove it"
        return {}, [Finding(f"{shown}/{FILE}", None, what, mend)]
    rows = value["rivals"]
    return {row["digest"]: CompiledRival(row["compiler"], row["builds"]) for row in rows}, []


# What is different between two views of a kernel: figures, main loop, lines.

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

"""What is compared of two builds of a kernel, and the differences between two views.

Two kernels that do the same job share it out in other ways: tiles of other sides, more or fewer
warps, loops that the compiler unrolled. What still compares is how much an instruction of a warp
gets done: `products` are the multiply-adds of matrix instructions, `bytes` what a lane loads from
and stores to global memory, both of the main loop, or of all there is where there is no loop.

What became of public kernels that stand beside a snippet's is kept in snippets/builds.xz, written
by machine. An answer belongs to an entry of the snippet's published.yml by the digest of what it
was compiled from. One of another entry, or of an entry since changed, is as good as none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.findings import Finding, ShelfError
from warpshelf.core.project import Project
from warpshelf.look import binary, figures, view
from warpshelf.look.figures import KINDS, base_kind
from warpshelf.look.view import Build, Code, Loop, View, executed_count
from warpshelf.look.work import describe_code

BUILD = files.shape_of(Build)
# HMMA.16816 multiplies 16x16 by 16x8 in a warp; HGMMA.64x128x16 is issued by each of four warps.
WARP = re.compile(r"\b[HIQDO]MMA\.(?:SP\.)?(16|8)(8|16)(\d{1,3})\b")
GROUP = re.compile(r"\b[HIQB]GMMA\.(?:SP\.)?64x(\d+)x(\d+)\b")
MOVES = ("load global", "store global", "copy async")
ROUNDS = 10  # turns of an inner loop for each turn of the one around it, at least


def build_from_view(one: Code) -> Build:
    """The build that a view shows."""
    texts, found = one["sass"]["text"], one["loops"]
    own = list(range(len(texts)))
    if main := _hot_loop(found):
        inner = [
            range(other["first"], other["last"] + 1)
            for other in found
            if other["depth"] > main["depth"]
        ]
        own = [
            at for at in own[main["first"] : main["last"] + 1] if not any(at in r for r in inner)
        ]
    products = [made for at in own if (made := _matrix_products(texts[at]))]
    kinds = figures.count_kinds(texts) if main is None else main["kinds"]
    return {
        "registers": one["registers"],
        "spilled_bytes": one["spilled_bytes"],
        "shared_bytes": one["shared_bytes"],
        "instructions": len(texts),
        "loop": dict(main["kinds"]) if main else {},
        # Between its first and last instruction may lie some that are not the loop's.
        "products": sum(products) * kinds.get("matrix", 0) // max(1, len(products)),
        "bytes": sum(
            number * int(name.rsplit(" ", 1)[1])
            for name, number in kinds.items()
            if base_kind(name) in MOVES and name[-1].isdigit()
        ),
    }


def build_from_binary(cubin: bytes, symbol: str, shared: int) -> Build:
    """The build of a kernel in a binary, launched with `shared` bytes of shared memory."""
    code = binary.disassemble_kernel(cubin, symbol)
    made = describe_code(code, binary.function_usage(cubin)[symbol])
    return build_from_view({**made, "shared_bytes": max(shared, made["shared_bytes"])})


def _hot_loop(found: Sequence[Loop]) -> Loop | None:
    """The loop with the most work, if each runs ROUNDS times for each turn of the one around it.

    A kernel that takes tile after tile may have more of its products in the outer loop, which
    begins and ends each tile, than in the inner one, where it spends its time.
    """
    main, inner = None, list(found)
    while outer := figures.main_loop(inner):
        main = outer
        inner = [
            one
            for one in found
            if one["depth"] == outer["depth"] + 1
            and outer["first"] <= one["first"] <= one["last"] <= outer["last"]
            and ROUNDS * figures.count_products(one["kinds"])
            > figures.count_products(outer["kinds"])
        ]
    return main


def _matrix_products(text: str) -> int:
    """Multiply-adds of a warp in a matrix instruction whose name says its shape; 0 of others."""
    if found := GROUP.search(text):
        return 64 * int(found[1]) * int(found[2]) // 4
    return math.prod(map(int, found.groups())) if (found := WARP.search(text)) else 0


FILE = "snippets/builds.xz"
SCHEMA = 2
LARGEST = 2**22  # bytes of the file; a real one holds some fifty kibibytes


ANSWER = {"compiler": str, "builds": {"*": BUILD}}
SHAPE = {"schema": int, "snippets": {"*": [{"digest": view.DIGEST, **ANSWER}]}}


class CompiledRival(NamedTuple):
    """What one kernel was compiled to: by whom, and its figures by architecture."""

    compiler: str
    builds: dict[str, Build]


def rival_problem(value: object) -> str | None:
    """The first thing that is wrong in an answer of the compiler's, in words."""
    wrong = files.shape_problem(value, ANSWER, "it")
    names = value["builds"] if isinstance(value, dict) and not wrong else ()
    strange = [name for name in names if not view.ARCH.fullmatch(name)]
    return f"{strange[0]!r} is not an architecture" if strange else wrong


def write_rivals(snippet: Snippet, answers: dict[str, CompiledRival]) -> bool:
    """Keep these answers, by digest, as those of a snippet; True if anything changed.

    Raises:
        ShelfError: the file is broken, so that the answers of others would be lost.
    """
    known, findings = _read_file(snippet.project)
    if findings:
        raise ShelfError(findings)
    mine = [{"digest": digest, **one._asdict()} for digest, one in answers.items()]
    told = {"schema": SCHEMA, "snippets": dict(sorted({**known, snippet.id: mine}.items()))}
    return files.write_atomically(snippet.project.root / FILE, files.pack_json(told))


def load_rivals(snippet: Snippet) -> tuple[dict[str, CompiledRival], list[Finding]]:
    """The answers of a snippet, by digest, and what is wrong with the file."""
    kept, findings = _read_file(snippet.project)
    rows = kept.get(snippet.id, [])
    return {row["digest"]: CompiledRival(row["compiler"], row["builds"]) for row in rows}, findings


def check_file(project: Project, ids: Container[str]) -> list[Finding]:
    """What is wrong with the file as a whole, where these are the ids of snippets."""
    kept, findings = _read_file(project)
    return findings + [
        Finding(FILE, None, f"{name!r:.60} is not a snippet", "remove its lines")
        for name in kept
        if name not in ids
    ]


def _read_file(project: Project) -> tuple[dict[str, Any], list[Finding]]:
    """The rows of each snippet; none without a file."""
    path = project.root / FILE
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"is larger than {LARGEST} bytes")
        return _parse_packed(path.read_bytes()), []
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        what = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        mend = "restore it with `git checkout`, or remove it and run `shelf rivals` of each"
        return {}, [Finding(FILE, None, what, mend)]


@lru_cache(maxsize=1)
def _parse_packed(data: bytes) -> dict[str, Any]:
    value: Any = files.unpack_json(data)
    if wrong := files.json_flaw(value) or files.shape_problem(value, SHAPE, "it"):
        raise ValueError(wrong)
    if value["schema"] != SCHEMA:
        raise ValueError(f"has schema {value['schema']}, not {SCHEMA}")
    found: dict[str, Any] = value["snippets"]
    for row in chain.from_iterable(found.values()):
        if wrong := rival_problem({key: row[key] for key in ANSWER}):
            raise ValueError(wrong)
    return found


# What is different between two views of a kernel: figures, main loop, lines.

COUNTED = ("sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")


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
    """What differs between two builds of a kernel; with `counts` what was executed as well."""

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
    found: list[tuple[View | None, View | None]] = []
    gone = {key: one for key, one in old.items() if key not in new}
    for key, now in new.items():
        was = old.get(key)
        mine = [one for one in gone if one[0] == key[0]]
        others = [one for one in new if one not in old and one[0] == key[0]]
        if was is None and len(mine) == len(others) == 1:
            was = gone.pop(mine[0])
        found.append((was, now))
    return found + [(one, None) for one in gone.values()]


def compare_views(before: View, after: View) -> Difference:
    """What differs between the views of a kernel at two times."""
    same = before["case"] == after["case"] and before["arch"] == after["arch"]
    was, now = machine_figures(before), machine_figures(after)
    changes: list[LineChange] = []
    if same:
        was, now = figures.executed_figures(before) | was, figures.executed_figures(after) | now
        # Lines are told apart by their text: a change moves those below.
        old, new = _lines_by_text(before), _lines_by_text(after)
        for key in dict.fromkeys((*new, *old)):
            counts = (side.get(key, ("", {}))[1] for side in (old, new))
            if found := changed_figures(*counts):
                changes.append(LineChange((new.get(key) or old[key])[0], key[1], found))
    found = changed_figures(was, now)
    return Difference(after["variant"], after["kernel"], found, tuple(changes), same)


def machine_figures(one: Code) -> dict[str, float]:
    """Figures of machine code, with the instructions of the main loop by kind."""
    loop = figures.main_loop(one["loops"])
    kinds = sorted(loop["kinds"].items()) if loop else ()
    return figures.code_figures(one) | {f"main loop: {name}": number for name, number in kinds}


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


def _lines_by_text(one: View) -> dict[tuple[str, str], tuple[str, dict[str, int]]]:
    """By file and text of a line: where it stands first, and its counts, those alike together."""
    texts = source_lines(one)
    found: dict[tuple[str, str], tuple[str, dict[str, int]]] = {}
    for line in one["lines"]:
        file = line["at"].rpartition(":")[0] or line["at"]
        _, own = found.setdefault((file, texts.get(line["at"], "")), (line["at"], {}))
        counts = {name: line[name] for name in COUNTED if name in line}
        for name, number in {"executed": executed_count(line), **counts}.items():
            own[name] = own.get(name, 0) + number
        own["live"] = max(own.get("live", 0), line.get("live", 0))
    return found


def source_lines(one: View) -> dict[str, str]:
    """The text of each line of source that a view shows, by `file:line`, without its margins."""
    return {
        f"{piece['file']}:{number}": text.strip()
        for piece in one["source"]
        for number, text in enumerate(piece["text"], piece["from"])
    }

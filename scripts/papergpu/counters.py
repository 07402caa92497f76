"""What launches did, line by line of their source.

The engine counts for each of its instructions (`Result.counts`); this puts those of one instruction
of PTX together, and those of one line. What was inlined counts for the line that it stands in, and
is also shown at each line that it was inlined into, up to the kernel's own.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from papergpu.program import Program
from papergpu.records import Access, merge_samples, read_instructions, worst_accesses
from papergpu.session import Launched
from papergpu.syntax_tree import Place

# ---- the class of an instruction, by its form: what a table of counts tells apart

SPACES = ("global", "shared", "local", "parameter", "constant", "generic")
CLASSES = (
    "multiply-add", "float", "special function", "integer", "conversion", "move", "matrix",
    *(f"load {space}" for space in SPACES),
    *(f"store {space}" for space in SPACES if space != "constant"),
    *(f"atomic {space}" for space in SPACES if space in ("global", "shared", "generic")),
    "shuffle and vote", "async", "barrier", "control", "hint",
)  # fmt: skip
FLOATS = frozenset(
    ("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64", "tf32",
     "e4m3x2", "e5m2x2", "e4m3x4", "e5m2x4", "ue8m0x2")
)  # fmt: skip
# Opcodes whose class does not depend on their modifiers.
BY_OPCODE = {
    "multiply-add": "fma mad mad24 madc dp2a dp4a",
    "special function": "ex2 lg2 sin cos rcp sqrt rsqrt tanh",
    "integer": "addc subc mul24 sad popc clz bfind fns brev bfe bfi bmsk szext and or xor not cnot "
    "lop3 shl shr shf rem prmt rem vadd vsub vmin vmax vabsdiff vmad vset vshl vshr "
    + " ".join(
        f"v{one}{n}"
        for one in ("add", "sub", "avrg", "absdiff", "min", "max", "set")
        for n in (2, 4)
    ),
    "float": "copysign testp",
    "conversion": "cvt",
    "move": "mov selp slct cvta isspacep mapa getctarank",
    "matrix": "mma tcgen05",
    "shuffle and vote": "shfl vote match activemask redux elect movmatrix",
    "async": "cp tensormap multimem",
    "barrier": "bar barrier membar fence mbarrier",
    "control": "bra brx call ret exit trap brkpt nanosleep pmevent setmaxnreg griddepcontrol "
    "stacksave stackrestore alloca clusterlaunchcontrol",
    "hint": "prefetch prefetchu discard applypriority createpolicy",
}
# Those of numbers that may be integers or floats.
BY_TYPE = frozenset(("add", "sub", "mul", "div", "min", "max", "abs", "neg", "setp", "set"))
ACCESSES = {"ld": "load", "ldu": "load", "st": "store", "atom": "atomic", "red": "atomic"}
NAMES = {"param": "parameter", "const": "constant"}
_OPCODES = {word: name for name, words in BY_OPCODE.items() for word in words.split()}


@cache
def classify_form(form: str) -> str:
    """The class of a form as it is written: `integer` of `add.s32`.

    Raises:
        KeyError: its opcode is none that this knows.
    """
    opcode, *modifiers = form.split(".")
    if opcode in ACCESSES:
        if "async" in modifiers:
            return "async"
        space = next((one for one in map(_space_name, modifiers) if one in SPACES), "generic")
        return f"{ACCESSES[opcode]} {space}"
    if opcode in ("ldmatrix", "stmatrix"):
        return "load shared" if opcode == "ldmatrix" else "store shared"
    if opcode == "wmma":
        access = {"load": "load", "store": "store"}.get(modifiers[0] if modifiers else "")
        if access is None:
            return "matrix"
        space = next((one for one in map(_space_name, modifiers) if one in SPACES), "generic")
        return f"{access} {space}"
    if opcode == "wgmma":
        return "matrix" if modifiers[:1] == ["mma_async"] else "barrier"
    if opcode == "mbarrier":
        return "barrier"
    if opcode in BY_TYPE:
        return "float" if FLOATS.intersection(modifiers) else "integer"
    return _OPCODES[opcode]


def _space_name(modifier: str) -> str:
    name = modifier.partition("::")[0]
    return NAMES.get(name, name)


Counts = npt.NDArray[np.void]
Where = tuple[str, int]  # a file, and a line in it


@dataclass
class Tally:
    """What some instructions did together.

    `executed` are warp-instructions, those of which no lane took part included, `lanes` the lanes
    that took part in them. `requests` are accesses of global and local memory, `sectors` the pieces
    of 32 bytes that they touched, `ideal_sectors` how many the same different bytes would fill side
    by side. `wavefronts` are passes through the banks of shared memory, `ideal_wavefronts` those
    without a conflict. `bytes` were copied asynchronously, and `operations` done by matrix
    instructions, a multiply-add being two. `classes` are the warp-instructions by class.
    """

    executed: int = 0
    lanes: int = 0
    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    shared_requests: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    bytes: int = 0
    operations: int = 0
    classes: dict[str, int] = field(default_factory=dict)

    @property
    def active_lanes(self) -> float:
        """Lanes that took part in an instruction, on average."""
        return self.lanes / self.executed if self.executed else 0.0

    def add(self, other: Tally) -> None:
        """Count another one's as well."""
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, count in other.classes.items():
            self.classes[name] = self.classes.get(name, 0) + count

    def as_dict(self) -> dict[str, Any]:
        """For JSON, in an order that is always the same."""
        found: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        found["classes"] = {one: self.classes[one] for one in CLASSES if self.classes.get(one)}
        return found


NUMBERS = tuple(one.name for one in fields(Tally) if one.name != "classes")


@dataclass
class Line:
    """A line of the source: what it did itself, and what was inlined into it."""

    file: str
    line: int
    own: Tally = field(default_factory=Tally)
    inlined: Tally = field(default_factory=Tally)

    @property
    def total(self) -> Tally:
        """Both together."""
        found = Tally()
        found.add(self.own)
        found.add(self.inlined)
        return found

    def as_dict(self) -> dict[str, Any]:
        """For JSON, in an order that is always the same."""
        return {"file": self.file, "line": self.line, "own": self.own.as_dict(),
                "inlined": self.inlined.as_dict()}  # fmt: skip


@dataclass
class Profile:
    """What launches did: of which kernels and how many, in all, and by line in order.

    `worst` are requests by the line that they stand in: what cost most beyond its ideal there.
    """

    kernels: dict[str, int]
    total: Tally
    lines: list[Line]
    worst: dict[Where, Access] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, in an order that is always the same."""
        return {
            "kernels": dict(sorted(self.kernels.items())),
            "total": self.total.as_dict(),
            "lines": [one.as_dict() for one in self.lines],
        }


class Collected:
    """Collects launches as they end, and adds up their counts by program.

    `with papergpu.settings(profile=True), papergpu.on_launch(collected): ...`, and then
    `collected.profile()`.
    """

    def __init__(self) -> None:
        self._kernels: dict[str, int] = {}
        self._summed: dict[int, tuple[Program, dict[str, npt.NDArray[np.uint64]]]] = {}
        self._samples: dict[int, Counts] = {}

    def __call__(self, launched: Launched) -> None:
        """Take in one launch; skip one that was not counted."""
        if launched.result.counts is not None:
            self.add(launched.program, launched.result.counts, launched.result.samples)

    def add(self, program: Program, counts: Counts, samples: Counts | None = None) -> None:
        """Take in the counts of one launch of a program, and its samples."""
        self._kernels[program.name] = self._kernels.get(program.name, 0) + 1
        names = counts.dtype.names or ()
        if id(program) not in self._summed:
            self._summed[id(program)] = program, {name: counts[name].copy() for name in names}
        else:
            for name, array in self._summed[id(program)][1].items():
                array += counts[name]
        if samples is not None:
            before = self._samples.get(id(program))
            self._samples[id(program)] = (
                samples if before is None else merge_samples(before, samples)
            )

    def profile(self) -> Profile:
        """What they did together."""
        total, lines = Tally(), dict[Where, Line]()

        def get_line(where: Where) -> Line:
            return lines.setdefault(where, Line(*where))

        for program, arrays in self._summed.values():
            callers = _find_callers(program)
            for ptx, place, _, tally in tally_instructions(program, arrays):
                total.add(tally)
                own, *outer = _trace_inlining(place, ptx, callers)
                get_line(own).own.add(tally)
                for where in outer:
                    get_line(where).inlined.add(tally)
        worst: dict[Where, Access] = {}
        for key, samples in self._samples.items():
            for one in worst_accesses(self._summed[key][0], samples):
                (where, *_) = _trace_inlining(one.place, one.line, {})
                last = worst.setdefault(where, one)
                if one.passes - one.ideal > last.passes - last.ideal:
                    worst[where] = one
        return Profile(self._kernels, total, [lines[where] for where in sorted(lines)], worst)


def profile_launches(launches: Iterable[tuple[Program, Counts]]) -> Profile:
    """What launches did together; each is its program and the counts of its result."""
    collected = Collected()
    for program, counts in launches:
        collected.add(program, counts)
    return collected.profile()


def tally_instructions(
    program: Program, counts: Counts | Mapping[str, npt.NDArray[np.uint64]]
) -> Iterator[tuple[int, Place | None, str, Tally]]:
    """Of each instruction of PTX that was executed its line, its place, its form and its counts.

    Lines of PTX are from 1, in the text that was decoded (`Launched.ptx`). `counts` are those of a
    launch, or sums by name of field over several.
    """
    owners = read_instructions(program)["owner"]
    if not len(owners):
        return
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    # An instruction that became several was executed as often as any of them.
    sums: dict[str, list[int]] = {}
    fields_of = counts if isinstance(counts, Mapping) else counts.dtype.names or ()
    for name in fields_of:
        array = counts[name]
        reduce = np.maximum if name in ("run", "lanes") else np.add
        sums[name] = reduce.reduceat(array, starts).tolist()
    names = [(("run" if one == "executed" else one), one) for one in NUMBERS]
    known = [(mine, sums[theirs]) for theirs, mine in names if theirs in sums]
    for number, start in enumerate(starts.tolist()):
        form = program.forms[start]
        executed = sums["run"][number]
        if not executed or not form:
            continue
        place, ptx = program.find_place(start)
        tally = Tally(classes={classify_form(form): executed})
        for mine, values in known:
            setattr(tally, mine, values[number])
        yield ptx, place, form, tally


def _find_callers(program: Program) -> dict[tuple[str, int, int], Place]:
    """Where each place that code was inlined at was inlined itself."""
    found: dict[tuple[str, int, int], Place] = {}
    for place, _ in program.places:
        if place is not None and place.caller is not None:
            found.setdefault((place.file, place.line, place.column), place.caller)
    return found


def _trace_inlining(
    place: Place | None, ptx: int, callers: Mapping[tuple[str, int, int], Place]
) -> list[Where]:
    """The line that an instruction stands in, then those that it was inlined into."""
    if place is None or not place.line:
        return [("PTX", ptx)]
    found: list[Where] = [(place.file, place.line)]
    one = place.caller
    while one is not None and (one.file, one.line) not in found:
        found.append((one.file, one.line))
        one = one.caller or callers.get((one.file, one.line, one.column))
    return found


# The columns of the table: the heading, and what stands there for a tally.
COLUMNS: tuple[tuple[str, Callable[[Tally], str]], ...] = (
    ("instr", lambda one: str(one.executed)),
    ("lanes", lambda one: f"{one.active_lanes:.1f}"),
    ("fma", lambda one: _format_count(one.classes.get("multiply-add", 0))),
    ("requests", lambda one: _format_count(one.requests)),
    ("sectors", lambda one: _format_count(one.sectors)),
    ("/ideal", lambda one: _format_ratio(one.sectors, one.ideal_sectors)),
    ("wavefronts", lambda one: _format_count(one.wavefronts)),
    ("/ideal", lambda one: _format_ratio(one.wavefronts, one.ideal_wavefronts)),
    ("async B", lambda one: _format_count(one.bytes)),
    ("matrix op", lambda one: _format_count(one.operations)),
)  # fmt: skip


def _format_count(count: int) -> str:
    return str(count) if count else ""


def _format_ratio(count: int, ideal: int) -> str:
    return f"{count / ideal:.2f}" if ideal else ""


def format_table(
    profile: Profile, sources: Mapping[str, str] | None = None, file: str | None = None
) -> str:
    """The lines as a table of text, with their source beside them.

    `sources` are the texts of files that cannot be read by their names; `file` is the one to show,
    all without it. A line's numbers are its own with those inlined into it, so that they may add up
    to more than the total. Below a line that has a request of twice its ideal the worst is named.
    """
    shown = [one for one in profile.lines if file is None or one.file == file]
    tallies = [*(one.total for one in shown), profile.total]
    cells = [[column(one) for one in tallies] for _, column in COLUMNS]
    kept = [(head, column) for (head, _), column in zip(COLUMNS, cells, strict=True) if any(column)]
    widths = [max(len(head), *map(len, column)) for head, column in kept]

    def format_row(number: int | None) -> str:
        parts = [head if number is None else column[number] for head, column in kept]
        return "  ".join(part.rjust(width) for part, width in zip(parts, widths, strict=True))

    rows: list[str] = []
    texts = {name: text.splitlines() for name, text in (sources or {}).items()}
    before = None
    for number, one in enumerate(shown):
        if one.file != before:
            rows.append(f"{format_row(None)}  {one.file}")
            before = one.file
            linecache.checkcache(one.file)  # it may have been edited since it was shown
        lines = texts[one.file] if one.file in texts else linecache.getlines(one.file)
        text = lines[one.line - 1].rstrip("\n") if 0 < one.line <= len(lines) else ""
        rows.append(f"{format_row(number)}  {one.line:5}  {text}".rstrip())
        worst = profile.worst.get((one.file, one.line))
        if worst is not None and worst.passes >= 2 * worst.ideal:
            rows.append(f"{'':{len(format_row(None))}}         worst: {worst.cost_summary}")
    rows.append(f"{format_row(len(shown))}  total")
    return "\n".join(rows)


PAGE = """<!doctype html><meta charset="utf-8"><title>papergpu</title><style>
html { margin: 1em; color-scheme: light dark }
table { border-collapse: collapse; font: 12px monospace }
td { padding: 0 .6em; text-align: right; white-space: pre }
td:last-child { text-align: left }
.head { font-weight: bold }
.found td { color: light-dark(#b00, #f77); white-space: normal }
.most { background: light-dark(#fe9, #540) }
</style><table>
"""
NEAR = 4  # lines of the source that are shown around one with counts or a finding


def format_page(profile: Profile, findings: Iterable[tuple[str, int, str]]) -> str:
    """A page of HTML: the source with what each of its lines did, and below it what it did wrong.

    A finding is a file, a line and what is said. Lines far from any that did something are left
    out; that with most instructions stands out.
    """
    said: dict[Where, list[str]] = {}
    for file, line, text in findings:
        said.setdefault((file, line), []).append(text)
    tallies: dict[Where, Tally] = {(one.file, one.line): one.total for one in profile.lines}
    most = max((one.executed for one in tallies.values()), default=0)
    kept = [(head, column) for head, column in COLUMNS if any(map(column, tallies.values()))]
    rows = [[*(head for head, _ in kept), "line", ""]]
    marks = ["head"]
    for file in dict.fromkeys(file for file, _ in [*said, *tallies]):
        lines = dict(enumerate(map(str.rstrip, linecache.getlines(file)), 1))
        rows.append([file or "the program"])
        marks.append("head")
        told = {line for name, line in [*said, *tallies] if name == file}
        near = {n for line in told for n in range(line - NEAR, line + NEAR + 1)}
        for n in sorted(told | near & lines.keys()):
            tally = tallies.get((file, n))
            cells = [column(tally) if tally else "" for _, column in kept]
            rows.append([*cells, str(n or ""), lines.get(n, "")])
            marks.append("most" if tally and tally.executed == most else "")
            rows += [[text] for text in said.get((file, n), ())]
            marks += ["found"] * (len(rows) - len(marks))
    return PAGE + "".join(
        f'<tr class="{mark}">' + "".join(
            f'<td colspan="{1 if len(row) > 1 else len(rows[0])}">{escape(cell)}</td>'
            for cell in row)
        for mark, row in zip(marks, rows, strict=True))  # fmt: skip

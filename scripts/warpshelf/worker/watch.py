"""The schedule under which each call of a kernel runs on a CPU, and what its launches did.

The first call of a variant on a case runs its warps by turns, the next each as far as it goes, the
one after that at random; the seed, which orders blocks and warps, is another for every call. On
each further target the rotation begins one schedule later. A variant meets all three schedules on
a case before its views come. One call of some cases is counted: by turns, with blocks and warps in
order, on one thread, so that every machine counts the same.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from warpshelf.contract import values
from warpshelf.contract.values import Case, Obligations

if TYPE_CHECKING:
    import papergpu
    from papergpu.counters import Tally
    from papergpu.program import Program
    from papergpu.syntax_tree import Place

SCHEDULES = ("robin", "far", "random")


class CallSettings(NamedTuple):
    """How the warps of one call run, as `papergpu.settings` takes it."""

    schedule: str
    seed: int
    specialize: bool = True

    def __str__(self) -> str:
        more = "" if self.specialize else ", specialize=False"
        return f'papergpu.settings(schedule="{self.schedule}", seed={self.seed}{more})'


def settings_for_call(index: int, call: int, rank: int, counted: bool = False) -> CallSettings:
    """That of a call of a variant on case number `index`; `rank` is the number of the target among
    those that it is for. A `counted` case begins by turns whatever the target, and goes on with the
    other two."""
    if counted:
        schedule = SCHEDULES[0] if call == 0 else SCHEDULES[1 + (rank + call - 1) % 2]
    else:
        schedule = SCHEDULES[(rank + call) % len(SCHEDULES)]
    first = call == 0 and (counted or rank == 0)
    return CallSettings(schedule, 0 if first else 100 * index + len(SCHEDULES) * call + rank)


class CallWatch:
    """Stands around the calls of a variant on a case; one of no target lets them be. `tell` hears
    before each call under what it runs."""

    def __init__(self, target: str | None = None, tell: Callable[[str], None] = lambda text: None):
        self.target = target
        self.executes = target is not None  # PTX, here
        self.launched: list[papergpu.Launched] = []  # by the call that is counted
        self._tell = tell
        self._begun = 0, 0, False
        self._calls = 0
        self._met: set[str] = set()
        self._turn: CallSettings | None = None

    def begin_case(
        self, index: int, rank: int = 0, counted: bool = False, further: bool = False
    ) -> None:
        """A variant comes to case number `index`; for `further` calls."""
        self._begun = index, rank, counted
        self._calls, self._turn = len(SCHEDULES) if further else 0, None
        self._met.clear()
        self.launched.clear()

    @contextlib.contextmanager
    def watch_call(self, specialize: bool = True) -> Iterator[None]:
        """Around one call, for whose integers and alignments Triton may `specialize` a kernel."""
        if not self.executes:
            yield
            return
        import papergpu

        index, rank, counted = self._begun
        counts = counted and self._calls == 0
        turn = settings_for_call(index, self._calls, rank, counted)._replace(specialize=specialize)
        self._turn = turn
        self._calls += 1
        self._tell(self.conditions)

        def note_launch(launched: papergpu.Launched) -> None:
            self._met.add(turn.schedule)
            if counts:
                self.launched.append(launched)

        chosen = papergpu.settings(**turn._asdict(), profile=counts, threads=int(counts))
        with chosen, papergpu.on_launch(note_launch):
            yield

    @property
    def conditions(self) -> str:
        """Under what the latest call ran, in the words that repeat it; nothing before the first."""
        return f" on {self.target} under {self._turn}" if self._turn else ""

    def schedules_left(self) -> bool:
        """Whether a schedule is left to meet; a variant that launches nothing has none."""
        return bool(self._met) and self._calls < len(SCHEDULES)


class LaunchCounts:
    """The counted launches of a snippet's variants, on one target: of what `wanted_cases` launch,
    the largest of each kernel."""

    def __init__(self, proof: Obligations) -> None:
        self._wanted = {name: wanted_cases(proof, name) for name in proof.variants}
        self._kept: dict[tuple[str, str], tuple[Case, list[papergpu.Launched]]] = {}

    def wants_case(self, name: str, index: int) -> bool:
        """Whether case number `index` is to be counted for a variant."""
        return index in self._wanted[name]

    def add_launches(self, name: str, case: Case, launched: Sequence[papergpu.Launched]) -> None:
        """Take in what a variant launched on a case."""
        kernels: dict[str, list[papergpu.Launched]] = {}
        for one in launched:
            kernels.setdefault(one.name, []).append(one)
        for kernel, done in kernels.items():
            before = self._kept.get((name, kernel))
            if before is None or case_size(before[0]) < case_size(case):
                self._kept[name, kernel] = case, done

    def counted_launches(self) -> list[tuple[str, Case, list[papergpu.Launched]]]:
        """By variant and kernel: the variant, the case, and the launches that are counted."""
        return [(name, *self._kept[name, kernel]) for name, kernel in sorted(self._kept)]


def case_size(case: Case) -> int:
    """How large a case is: the product of its sides."""
    return math.prod(max(1, case[side]) for side in values.side_keys(case))


def wanted_cases(proof: Obligations, name: str) -> set[int]:
    """The numbers of the cases to count for a variant: of COUNTED, or of each form the largest.
    Forms are told apart since another may launch other kernels. Of equal cases it is the first."""
    cases = proof.cases
    mine = [index for index, case in enumerate(cases) if name in proof.variants_for(case)]
    rising = sorted(mine, key=lambda index: (case_size(cases[index]), -index))
    largest = {values.case_form(cases[index]): index for index in rising}
    return {index for index in mine if index in proof.counted} or {*largest.values()}


# Lines of the snippet, as its views have them. What was inlined from a library counts for the line
# that asked for it, where the compiler says which, and else stands under the library's own name.

UNKNOWN = "PTX"  # stands for the instructions of which the compiler names no line
LIBRARIES = {"/site-packages/": "", "/dist-packages/": "", "/papergpu/": "papergpu/", "/": ""}
At = tuple[str, int, int]


def source_line(place: Place | None) -> tuple[str, int]:
    """The file and the line of a folded place, as a record names them; line 0 where it has none."""
    return (place.file, place.line) if place is not None and place.line else (UNKNOWN, 0)


def nonzero_tally(tally: Tally) -> dict[str, Any]:
    """What a tally holds that is not 0, as a record has it: how often is the sum over classes."""
    return {key: value for key, value in tally.as_dict().items() if value and key != "executed"}


def fold_program(program: Program, snippet: str) -> Program:
    """The same program, each instruction of which stands in one line alone. `snippet` is the id of
    the snippet whose files are named as they are in its folder."""
    places = {place for place, _ in program.places if place is not None}
    callers: dict[At, Place] = {}
    for place, _ in program.places:
        if place is not None and place.caller is not None:
            callers.setdefault((place.file, place.line, place.column), place.caller)
    known = {place: _fold_place(place, callers, snippet) for place in places}
    folded = [(None if place is None else known[place], line) for place, line in program.places]
    return replace(program, places=folded)


def _fold_place(place: Place, callers: dict[At, Place], snippet: str) -> Place:
    """The innermost line of the snippets in which a place stands; without one, its own."""
    own = {f"/snippets/{snippet}/": "", "/snippets/": "snippets/"}
    passed: set[At] = set()
    one: Place | None = place
    while one is not None and (at := (one.file, one.line, one.column)) not in passed:
        if one.line and (name := _file_name(one.file, own)):
            return replace(one, file=name, column=0, caller=None)
        passed.add(at)
        one = one.caller or callers.get(at)
    return replace(place, file=_file_name(place.file, LIBRARIES), column=0, caller=None)


def _file_name(file: str, folders: Mapping[str, str]) -> str:
    """The name of a file within the first of `folders` that it lies in, behind what stands for it.
    By its path alone: compilers keep what they made, and may name the checkout that it was for."""
    file = f"/{file}"
    found = (prefix + file.rpartition(name)[2] for name, prefix in folders.items() if name in file)
    return next(found, "")

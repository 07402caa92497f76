"""Every form of one thread's instructions as PTX that tries it over many values, lane by lane."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from itertools import product

import numpy as np
import numpy.typing as npt
import ptx_launch
from papergpu.decode import decode
from papergpu.formats import FORMATS
from papergpu.forms import FORMS, Form, Matched, find_form, type_bits
from papergpu.launch import Kernel, Settings
from papergpu.parse import parse
from papergpu.reals import real
from papergpu.reference import evaluate_all

# Patterns to try of each type: edges, where something happens, and random ones.

Values = npt.NDArray[np.uint64]
SMALL = {"e4m3x2": 8, "e5m2x2": 8, "e2m3x2": 6, "e3m2x2": 6, "e2m1x2": 4, "ue8m0x2": 8}


@cache
def list_edges(kind: str) -> list[int]:
    """Patterns of a type at which something happens."""
    if kind in FORMATS:
        shape = FORMATS[kind]
        one = shape.encode(real(1))
        unit = 1 << shape.saved
        top = 1 << (shape.width - 1)
        inf = shape.max_finite + 1 << shape.saved
        near = [0, unit, (1 << shape.mantissa) - 1 << shape.saved,
                1 << shape.mantissa + shape.saved,
                one - unit, one, one + unit, shape.encode(real(2)), shape.encode(real(3)),
                shape.encode(real(Fraction(1, 2))), shape.encode(real(Fraction(5, 2))),
                shape.max_finite << shape.saved, inf, inf + unit, shape.nan or inf]  # fmt: skip
        return near + [value | top for value in near]
    size = type_bits(kind)
    numbers = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000,
               0x12345678, (1 << size - 1) - 1, 1 << size - 1, (1 << size - 1) + 1]  # fmt: skip
    return [one % (1 << size) for number in numbers for one in (number, -number)]


def draw_patterns(kind: str, count: int, random: np.random.Generator) -> Values:
    """Patterns of a type: edges, and random ones, floats of exponents near one another too."""
    if kind in ("pred", "preds"):
        return random.integers(0, 2, count, np.uint64)
    if kind.endswith("x2"):
        size = SMALL.get(kind) or type_bits(kind) // 2
        shift = 4 if kind == "e2m1x2" else 8 if kind in SMALL else size
        single = f"u{size}" if kind in SMALL else kind.removesuffix("x2")
        halves = [draw_patterns(single, count, random) for _ in range(2)]
        return halves[0] | halves[1] << np.uint64(shift)
    size = type_bits(kind)
    chosen = random.integers(0, 1 << size, count, np.uint64, endpoint=False) if size < 64 else (
        random.integers(0, 1 << 64, count, np.uint64))  # fmt: skip
    known = np.array(list_edges(kind), np.uint64)
    picked = known[random.integers(0, len(known), count)]
    how = random.random(count)
    if kind in FORMATS:  # exponents about that of 1
        shape = FORMATS[kind]
        exponent = shape.bias + random.integers(-6, 7, count)
        field = np.uint64(((1 << shape.exponent) - 1) << shape.mantissa + shape.saved)
        moved = exponent.astype(np.uint64) << np.uint64(shape.mantissa + shape.saved)
        close = (chosen & ~field) | (moved & field)
        return np.where(how < 0.4, picked, np.where(how < 0.75, close, chosen))
    small = chosen & np.uint64(31)
    return np.where(how < 0.5, picked, np.where(how < 0.6, small, chosen))


# Every form of one thread's instructions as PTX that tries it over many values, lane by lane.

UNCHECKED = Settings(checks=False)
CARRIES = ("add.carry", "addc", "sub.borrow", "subc", "mad.carry", "madc")


def expand_form(form: Form) -> Iterator[str]:
    """Every instruction that a row of the table stands for."""
    choices = [(*names, "") if optional else names for _, names, optional in form.slots]
    for words in product(*choices):
        yield ".".join(filter(None, words))


def list_forms() -> list[str]:
    """Every form whose result is a function of one thread's operands."""
    found = [one for form in FORMS if form.operands != ("-",) for one in expand_form(form)]
    return list(dict.fromkeys(found))


def register_type(kind: str) -> str:
    """The type of register that an operand lies in."""
    if kind in ("pred", "preds", "bool"):
        return "pred"
    size = type_bits(kind)
    return "b8" if kind == "e2m1x2" else f"b{max(16, 32 if 16 < size <= 32 else size)}"


@dataclass(frozen=True)
class Trial:
    """An instruction to try: its form, whether `p|q` is asked, and what stands in `imm8`."""

    form: str
    pair: bool = False
    table: int = 0xCA
    negated: bool = False
    row: Matched | None = None

    @cached_property
    def matched_form(self) -> Matched:
        return self.row or find_form(self.form)

    @cached_property
    def results(self) -> tuple[str, ...]:
        kind = self.matched_form.types[0]
        if kind == "preds" or self.pair:
            return "pred", "pred"
        if kind == "bool":
            return "b32", "pred"
        return (kind, "b32") if self.has_carry else (kind,)

    @cached_property
    def has_carry(self) -> bool:
        return self.matched_form.form.name in CARRIES

    @cached_property
    def operands(self) -> tuple[str, ...]:
        kinds = tuple(one for one in self.matched_form.types[1:] if one != "imm8")
        return (*kinds, "b32") if self.has_carry else kinds


class Text:
    """PTX of trials, one behind the other, each over the same number of lanes."""

    def __init__(self, target: str = "sm_100a", version: str = "9.0") -> None:
        self.head = f".version {version}\n.target {target}\n.address_size 64\n"
        self.lines: list[str] = []
        self.count = 0
        self.line_of: dict[int, str] = {}

    def load_operand(self, kind: str) -> str:
        """A register with the next operand of this lane."""
        at, self.count = self.count, self.count + 1
        store = register_type(kind)
        line = f"ld.global.b64 %rd2, [%rd1+{8 * at}];"
        name = f"%{store}_{at}"
        self.lines.append(f".reg .{store} {name};")
        if store == "b64":
            self.lines.append(f"ld.global.b64 {name}, [%rd1+{8 * at}];")
        elif store == "pred":
            self.lines += [line, f"setp.ne.b64 {name}, %rd2, 0;"]
        elif store == "b8":
            self.lines += [line, "cvt.u16.u64 %h1, %rd2;", f"mov.b16 {{{name}, %c1}}, %h1;"]
        else:
            self.lines += [line, f"cvt.u{store[1:]}.u64 {name}, %rd2;"]
        return name

    def store_result(self, kind: str, name: str) -> None:
        at, self.count = self.count, self.count + 1
        store = register_type(kind)
        if store == "pred":
            self.lines.append(f"selp.b64 %rd2, 1, 0, {name};")
        elif store == "b8":
            self.lines += [f"mov.b16 %h1, {{{name}, 0}};", "cvt.u64.u16 %rd2, %h1;"]
        elif store != "b64":
            self.lines.append(f"cvt.u64.u{store[1:]} %rd2, {name};")
        self.lines.append(f"st.global.b64 [%rd1+{8 * at}], {'%rd2' if store != 'b64' else name};")

    def add_trial(self, trial: Trial, guarded: bool) -> tuple[list[int], list[int], int | None]:
        """Where its operands, what its results held and come to hold, and its guard lie."""
        self.lines.append("{")
        first = self.count
        names = [self.load_operand(kind) for kind in trial.operands]
        olds = [self.load_operand(kind) for kind in trial.results]
        guard = self.load_operand("pred") if guarded else None
        given = list(names)
        if trial.has_carry:
            carry = given.pop()
            word = "sub" if "sub" in trial.form else "add"
            top = "0" if word == "sub" else "0xffffffff"
            self.lines.append(f"{word}.cc.u32 %r1, {top}, {carry};")
        types = [one for one in trial.matched_form.types[1:]]
        if "imm8" in types:
            given.insert(types.index("imm8"), hex(trial.table))
        if trial.negated and types[-1] == "pred":
            given[-1] = "!" + given[-1]
        targets = olds[:1] if trial.has_carry else olds
        at = f"@{guard} " if guard else ""
        self.line_of[len(self.lines)] = trial.form
        if types[0] == "f32" and len(types) == 5:  # four that become one
            given[:4] = ["{" + ", ".join(given[:4]) + "}"]
        self.lines.append(f"{at}{trial.form} {'|'.join(targets)}, {', '.join(given)};")
        if trial.has_carry:
            word = "subc" if "sub" in trial.form else "addc"
            self.lines.append(f"{word}.u32 {olds[1]}, 0, 0;")
            self.lines.append(f"and.b32 {olds[1]}, {olds[1]}, 1;")
        outs = self.count
        for kind, name in zip(trial.results, olds, strict=True):
            self.store_result(kind, name)
        self.lines.append("}")
        return (
            list(range(first, first + len(names) + len(olds))),
            list(range(outs, outs + len(olds))),
            first + len(names) + len(olds) if guarded else None,
        )

    def write_module(self) -> str:
        body = "\n".join(self.lines)
        return (
            f"{self.head}.visible .entry k(.param .u64 p)\n{{\n"
            ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .b16 %h<2>; .reg .b8 %c<2>;\n"
            "mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r1, %r2, 32, %r1;\n"
            f"ld.param.u64 %rd1, [p]; mul.wide.u32 %rd2, %r1, {8 * self.count};\n"
            f"add.s64 %rd1, %rd1, %rd2;\n{body}\nret;\n}}\n"
        )


# What the engine makes of them.


@dataclass
class Tried:
    """Trials in one kernel: what went in, and what came out."""

    trials: list[Trial]
    inputs: list[Values]  # operands, then what the results held before: one column each
    guards: list[Values | None]
    kernel: Kernel
    cells: Values
    places: list[tuple[list[int], list[int], int | None]]

    def run_trials(self, settings: Settings | None = None) -> list[Values]:
        cells = self.cells.copy()
        launch_cells(self.kernel, cells, settings)
        return [cells[:, outs] for _, outs, _ in self.places]


def launch_cells(one: Kernel, cells: Values, settings: Settings | None = None) -> None:
    """Launch with a thread for each row of cells."""
    assert len(cells) % 32 == 0
    ptx_launch.launch_kernel(one, cells, grid=len(cells) // 32, settings=settings or UNCHECKED)


def build_trials(
    trials: Sequence[Trial], rows: int = 64, guarded: Sequence[bool] | None = None, seed: int = 0
) -> Tried:
    """A kernel of trials with values for them."""
    text = Text()
    places = [
        text.add_trial(one, bool(guarded and guarded[number])) for number, one in enumerate(trials)
    ]
    cells = np.zeros((rows, text.count), np.uint64)
    inputs: list[Values] = []
    guards: list[Values | None] = []
    for trial, (ins, _, guard) in zip(trials, places, strict=True):
        random = np.random.default_rng(zlib.crc32(trial.form.encode()) + seed)
        kinds = [*trial.operands, *trial.results]
        if trial.has_carry:
            kinds[len(trial.operands) - 1] = "pred"  # a carry of 0 or 1
        for at, kind in zip(ins, kinds, strict=True):
            cells[:, at] = draw_patterns(kind, rows, random)
        if guard is not None:
            cells[:, guard] = random.integers(0, 2, rows, np.uint64)
        inputs.append(cells[:, ins])
        guards.append(None if guard is None else cells[:, guard])
    return Tried(
        list(trials), inputs, guards, ptx_launch.load_kernel(text.write_module()), cells, places
    )


def expect_results(trial: Trial, row: Sequence[int]) -> tuple[int, ...]:
    """What the oracle says of one lane."""
    given = [int(one) for one in row[: len(trial.operands)]]
    types = trial.matched_form.types[1:]
    if "imm8" in types:
        given.insert(types.index("imm8"), trial.table)
    if trial.negated and types[-1] == "pred":
        given[-1] ^= 1
    return evaluate_all(trial.form, *given)[: len(trial.results)]


def list_mistakes(one: Tried, outs: Sequence[Values], limit: int = 5) -> list[str]:
    """Where results are not the oracle's, in words."""
    said: list[str] = []
    for trial, ins, guard, got in zip(one.trials, one.inputs, one.guards, outs, strict=True):
        count = len(trial.operands)
        for lane, row in enumerate(ins.tolist()):
            if guard is not None and not guard[lane]:
                want = tuple(
                    old & 1
                    if register_type(kind) == "pred"
                    else old & ((1 << int(register_type(kind)[1:])) - 1)
                    for old, kind in zip(row[count:], trial.results, strict=True)
                )
                if trial.has_carry:
                    want = (want[0], row[count - 1])
            else:
                want = extend_result(trial, expect_results(trial, row))
            if tuple(got[lane].tolist()) != want:
                shown = ", ".join(f"{value:#x}" for value in row[:count])
                made, right = (
                    [f"{value:#x}" for value in both] for both in (got[lane].tolist(), want)
                )
                said.append(f"{trial.form} of {shown} is {made}, not {right}")
                break
        if len(said) >= limit:
            break
    return said


def extend_result(trial: Trial, found: tuple[int, ...]) -> tuple[int, ...]:
    """Results as the harness stores them: what is narrower than its register has its sign above."""
    kind = trial.results[0]
    if kind == "s8" and found[0] >> 7:
        return (found[0] | 0xFF00, *found[1:])
    return found


# What handlers there are.

SOURCES = (
    "integers.cpp", "floats.cpp", "approximate.cpp", "halves.cpp", "conversions.cpp", "small.cpp",
)  # fmt: skip


def pick_handler_forms(forms: Sequence[str]) -> dict[str, str]:
    """The first form that each handler is used for."""
    text = Text()
    for one in forms:
        text.add_trial(Trial(one), False)
    program = decode(parse(text.write_module()), "k")
    found: dict[str, str] = {}
    wanted = set(forms)
    for name, form in zip(program.names, program.forms, strict=True):
        if name and form in wanted:
            found.setdefault(name, form)
    return found


def evaluate_columns(
    forms: Sequence[str], columns: Sequence[Sequence[npt.ArrayLike]]
) -> list[Values]:
    """The first result of forms of operands that are given, all equally many."""
    text = Text()
    trials = [Trial(form) for form in forms]
    places = [text.add_trial(one, False) for one in trials]
    rows = len(np.asarray(columns[0][0]))
    cells = np.zeros((-(-rows // 32) * 32, text.count), np.uint64)
    for (ins, _, _), given in zip(places, columns, strict=True):
        for at, column in zip(ins, given, strict=False):
            cells[:rows, at] = column
    launch_cells(ptx_launch.load_kernel(text.write_module()), cells)
    return [cells[:rows, outs[0]] for _, outs, _ in places]

"""A launch executed step by step, on this side of the browser: for programs, and at a terminal."""

from __future__ import annotations

import cmd
import ctypes
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from papergpu import session
from papergpu.errors import Finding
from papergpu.launch import Kernel, Memory, Options, Settings, describe_launch
from papergpu.program import Three
from papergpu.records import SAMPLE, load_engine, take_printed
from papergpu.session import Undo

STATES = ("went on", "at a breakpoint", "waits", "ended", "found")
DTYPES = {"f32": "f4", "f64": "f8", "f16": "f2", "u32": "u4", "s32": "i4", "b32": "u4", "u64": "u8",
          "s64": "i8", "b64": "u8", "u16": "u2", "s16": "i2", "b16": "u2", "u8": "u1"}  # fmt: skip


class _Standing(ctypes.Structure):
    """The layout of `Standing` in core/stepper.cpp; the groups behind it are not read."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ("registers", "shared", "steps")),
        *((name, ctypes.c_uint32) for name in ("pc", "lanes", "live", "done", "block", "warp")),
    ]


class Warp(NamedTuple):
    """Where a warp stands: in front of instruction `pc`, with the lanes of that mask.

    `block` is its number in the grid, `number` that of the warp in its block. `registers` and
    `shared` are addresses of what it holds and of its block's shared memory.
    """

    block: int
    number: int
    pc: int
    lanes: int
    done: bool
    steps: int
    registers: int
    shared: int


class Stepper:
    """A launch that goes on a few instructions at a time, and back.

    It takes what `Kernel.launch` takes. The memory that it touches is as before when it is closed.
    Runs and accesses of instructions are there if its settings have `profile`.
    """

    def __init__(
        self, kernel: Kernel, grid: Three, block: Three, parameters: Sequence[bytes],
        touched: Sequence[Memory] = (), **options: Unpack[Options],
    ) -> None:  # fmt: skip
        self.kernel, self.grid = kernel, grid
        self.given, self.arrays, self.memory = describe_launch(
            kernel.program, kernel.code, kernel.memory, grid, block, parameters, touched, **options
        )
        self.engine = load_engine()
        self._saved = [(view, view.copy()) for view in _view_all(self.memory)]
        self._log: list[tuple[int, int]] = []  # warps, or -1 for all, and how many instructions
        self._at: ctypes.c_void_p | None = None
        self.last = -1  # the warp that went last
        self._begin()

    def _begin(self) -> None:
        self.close()
        self.arrays["counts"][:] = 0
        found = self.engine.papergpu_step_begin(ctypes.byref(self.given))
        if not found:
            raise self.finding()
        self._at, self.last = ctypes.c_void_p(found), -1

    def close(self) -> None:
        """End it, and put all memory back; doing so twice changes nothing more."""
        if self._at:
            self.engine.papergpu_step_end(self._at)
            take_printed(self.given)
            self._at = None
        for view, saved in self._saved:
            view[:] = saved

    def step(self, most: int = 1, only: int = -1, breaks: Iterable[int] = ()) -> str:
        """Execute at most so many instructions, and say why it stopped: one of STATES.

        `only` is the warp that goes, or -1 for all of them in turn; `breaks` are instructions
        before which it stops.
        """
        bits = np.zeros(len(self.kernel.code) // 8 + 1, np.uint8)
        for pc in breaks:
            bits[pc >> 3] |= 1 << (pc & 7)
        before, left, state = self.given.steps, most, STATES[0]
        while left > 0 and state == STATES[0]:
            state = STATES[self.engine.papergpu_step(
                self._at, min(left, 1 << 30), only, bits.ctypes.data
            )]  # fmt: skip
            left = most - (self.given.steps - before)
        self.last = self.engine.papergpu_step_last(self._at)
        self._log.append((only, self.given.steps - before))
        return state

    def back(self, most: int = 1) -> None:
        """As it was so many instructions ago: all before them is executed again."""
        log, left = self._log, most
        self._log = []
        while log and left:
            only, count = log.pop()
            if count > left:
                log.append((only, count - left))
            left -= min(count, left)
        self._begin()
        for only, count in log:
            if count:
                self.step(count, only)

    def finding(self) -> Finding:
        """What it did wrong, after the state `found`."""
        return self.kernel.read_finding(self.given, [one.name for one in self.memory])

    def warps(self) -> list[Warp]:
        """Those of the blocks that run, in the order of their numbers."""
        found = []
        for k in range(self.engine.papergpu_step_warps(self._at)):
            at = self.engine.papergpu_step_warp(self._at, k)
            one = _Standing.from_address(at)
            found.append(Warp(one.block, one.warp, one.pc, one.lanes, bool(one.done), one.steps,
                              one.registers, one.shared))  # fmt: skip
        return found

    def registers(self, warp: Warp) -> Iterator[tuple[str, str, npt.NDArray[Any]]]:
        """The name, the type and the 32 values of each register that is there where it stands."""
        for name, type_, at, first, last in self.kernel.program.named:
            if not first <= warp.pc <= last + 1 or "128" in type_:
                continue
            if type_ == "pred":
                bits = ctypes.c_uint32.from_address(warp.registers + at).value
                yield name, type_, np.array([bits >> lane & 1 for lane in range(32)])
                continue
            width = np.dtype(DTYPES.get(type_, "u4"))
            slot = np.dtype("u8" if width.itemsize == 8 else "u4")
            raw = _view(warp.registers + at, 32 * slot.itemsize).view(slot)
            yield name, type_, raw.astype(f"u{width.itemsize}").view(width)

    def access(self, pc: int, shared: bool) -> np.void | None:
        """What instruction `pc` accessed when it was executed last: a SAMPLE, or nothing."""
        at = self.engine.papergpu_step_access(self._at, pc, int(shared))
        return _view(at, SAMPLE.itemsize).view(SAMPLE)[0] if at else None


def _view(at: int, size: int) -> npt.NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(at))


def _view_all(memory: Iterable[Memory]) -> Iterator[npt.NDArray[np.uint8]]:
    for one in memory:
        if one.size:
            yield _view(one.at, one.size)
        if one.written is not None:
            yield one.written


def debug_launches(wanted: str = "") -> Undo:
    """Open a terminal's debugger before each launch of a kernel whose name has that text."""
    stop: list[bool] = []

    def debug(
        kernel: Kernel, grid: Three, block: Three, parameters: Sequence[bytes],
        touched: Sequence[Memory], **options: Unpack[Options],
    ) -> None:  # fmt: skip
        if stop or wanted not in kernel.program.name:
            return
        options["settings"] = replace(options.get("settings") or Settings(), profile=True)
        stepper = Stepper(kernel, grid, block, parameters, touched, **options)
        try:
            terminal = Terminal(stepper)
            terminal.cmdloop()
        finally:
            stepper.close()
        if terminal.left:
            stop.append(True)

    return session.before_launch(debug)


SHOWN = (0, 1, 2, 3, 31)  # lanes
SHORT = {"EOF": "quit", "b": "break", "c": "continue", "l": "list", "m": "memory", "n": "next",
         "q": "quit", "r": "registers", "s": "step", "w": "warps"}  # fmt: skip
MOST = 40  # warps that are listed


class Terminal(cmd.Cmd):
    """Commands at a prompt. An empty line repeats the last one."""

    prompt = "(papergpu) "

    def __init__(self, stepper: Stepper) -> None:
        super().__init__()
        self.stepper, self.program = stepper, stepper.kernel.program
        self.only = -1
        self.breaks: set[tuple[str, int]] = set()
        self.left = False
        places = [self.program.find_place(pc) for pc in range(len(self.program.names))]
        self.lines: list[tuple[str, int]] = []  # of each instruction, of the source or of the PTX
        for place, line in places:
            while place is not None and place.caller is not None:
                place = place.caller
            self.lines.append((place.file, place.line) if place and place.line else ("", line))
        (a, b, c), warps = stepper.grid, stepper.warps()
        self.intro = (
            f"{self.program.name}, grid ({a}, {b}, {c}), {len(warps)} warps at once. "
            "help lists what can be said."
        )
        ptx = stepper.kernel.ptx.splitlines()
        self.texts: dict[str, Sequence[str]] = {"": ptx}

    def emptyline(self) -> bool:
        """Repeat."""
        return self.onecmd(self.lastcmd) if self.lastcmd else False

    def default(self, line: str) -> None:
        """Refuse what is no command."""
        print(f"no command {line.split()[0]!r}: help lists them")

    def onecmd(self, line: str) -> bool:
        """One line; what is wrong with it is said in one."""
        word, _, rest = line.strip().partition(" ")
        line = f"{SHORT.get(word, word)} {rest}"
        try:
            return bool(super().onecmd(line))
        except ValueError as error:
            print(error)
            return False

    def text_of(self, file: str, line: int) -> str:
        """A line of a file, or of the PTX."""
        if file not in self.texts:
            path = Path(file)
            self.texts[file] = (
                path.read_text(errors="replace").splitlines() if path.is_file() else []
            )
        lines = self.texts[file]
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def place_of(self, pc: int) -> str:
        """`file:line`, and what stands there."""
        if pc >= len(self.lines):
            return "its end"
        file, line = self.lines[pc]
        return f"{Path(file).name or 'PTX'}:{line}  {self.text_of(file, line)}"

    def current(self) -> int:
        """The warp that commands speak of: the chosen one, or who went last."""
        return self.only if self.only >= 0 else max(0, self.stepper.last)

    def tell(self, state: str) -> None:
        """Where it stands now, and why."""
        stepper = self.stepper
        if state == "found":
            print(f"found: {stepper.finding()}")
        elif state == "waits":
            print("this warp waits for others: choose another one, or `warp all`")
        elif state == "ended":
            print("ended" if self.only < 0 else "this warp has ended")
        one = stepper.warps()[self.current()]
        if not one.done:
            said = f"{state}: " if state == "at a breakpoint" else ""
            print(f"{said}block {one.block}, warp {one.number}, lanes {one.lanes:#010x}: "
                  f"{self.place_of(one.pc)}")  # fmt: skip

    def do_step(self, text: str) -> None:
        """step [N]: execute N instructions of the chosen warp, or of all in turn."""
        self.tell(self.stepper.step(_number(text, 1), self.only, self.stops()))

    def do_next(self, text: str) -> None:
        """next: execute the current warp until it leaves its line."""
        k = self.current()
        state, first = "went on", self.line_of(k)
        while state == "went on" and self.line_of(k) == first:
            state = self.stepper.step(1, k, self.stops())
        self.tell(state)

    def line_of(self, k: int) -> tuple[str, int]:
        """The line before which a warp stands."""
        pc = self.stepper.warps()[k].pc
        return self.lines[pc] if pc < len(self.lines) else ("", 0)

    def do_continue(self, text: str) -> None:
        """continue: execute to a breakpoint, a finding or the end."""
        self.tell(self.stepper.step(1 << 62, self.only, self.stops()))

    def do_back(self, text: str) -> None:
        """back [N]: as it was N instructions ago."""
        self.stepper.back(_number(text, 1))
        self.tell("went on")

    def stops(self) -> list[int]:
        """The first instruction of each line with a breakpoint, wherever that line is entered."""
        return [pc for pc, line in enumerate(self.lines)
                if line in self.breaks and (not pc or self.lines[pc - 1] != line)]  # fmt: skip

    def do_break(self, text: str) -> None:
        """break [[FILE:]LINE]: stop before a line of the source, or no longer; list those."""
        if text.strip():
            name, _, line = text.strip().rpartition(":")
            files = Counter(file for file, at in self.lines if at == _number(line, 0)
                            and file.endswith(name))  # fmt: skip
            if not files:
                raise ValueError(f"no instruction comes from line {text.strip()}")
            self.breaks ^= {(files.most_common(1)[0][0], int(line))}
        for file, at in sorted(self.breaks):
            print(f"{Path(file).name or 'PTX'}:{at}  {self.text_of(file, at)}")

    def do_warp(self, text: str) -> None:
        """warp BLOCK WARP: have only that one go; warp all: all in turn."""
        words = text.split()
        if words == ["all"]:
            self.only = -1
        elif words:
            block, number = (_number(word, 0) for word in [*words, "0"][:2])
            found = [k for k, one in enumerate(self.stepper.warps())
                     if (one.block, one.number) == (block, number)]  # fmt: skip
            if not found:
                raise ValueError(f"no warp {number} of block {block} is there now: see warps")
            self.only = found[0]
        self.tell("went on")

    def do_warps(self, text: str) -> None:
        """warps: where each stands."""
        warps = [one for one in self.stepper.warps() if not one.done]
        for one in warps[:MOST]:
            print(f"block {one.block:3} warp {one.number:2}  lanes {one.lanes:#010x}  "
                  f"{one.steps:6} executed  {self.place_of(one.pc)}")  # fmt: skip
        if len(warps) > MOST:
            print(f"and {len(warps) - MOST} more")

    def do_list(self, text: str) -> None:
        """list: the lines around, with how often a warp executed each."""
        file, line = self.line_of(self.current())
        runs = Counter[int]()
        for (where, at), count in zip(self.lines, self.stepper.arrays["counts"], strict=True):
            if where == file:
                runs[at] = max(runs[at], int(count["run"]))
        self.text_of(file, line)
        if not self.texts[file]:
            raise ValueError(f"{Path(file).name} is not here")
        for at in range(max(1, line - 5), min(len(self.texts[file]), line + 6) + 1):
            mark = "=>" if at == line else " *" if (file, at) in self.breaks else "  "
            print(f"{mark} {at:4} {runs[at] or '':>6}  {self.texts[file][at - 1]}")

    def do_registers(self, text: str) -> None:
        """registers [NAME ...]: values in some lanes, or in all of those that are named."""
        warp, names = self.stepper.warps()[self.current()], text.split()
        for name, type_, values in self.stepper.registers(warp):
            if not names:
                print(f"{name:8} {type_:5} lanes 0, 1, 2, 3, 31: {_format(values[[*SHOWN]])}")
            elif name in names:
                print(f"{name} {type_}: {_format(values)}")

    def do_memory(self, text: str) -> None:
        """memory [WHICH [FROM [COUNT]] [TYPE]]: numbers of a tensor, or `shared`; or list all."""
        words, stepper = text.split(), self.stepper
        if not words:
            for number, one in enumerate(stepper.memory):
                print(f"{number}: {one.name}, {one.size} bytes")
            print(f"shared: {stepper.given.shared} bytes")
            return
        which, *numbers = words
        dtype = numbers.pop() if numbers and numbers[-1] in DTYPES else "f32"
        start, count = [*(_number(one, 0) for one in numbers), *(0, 16)[len(numbers) :]][:2]
        names = {one.name: one for one in reversed(stepper.memory)}
        names |= {str(number): one for number, one in enumerate(stepper.memory)}
        if which == "shared":
            data = _view(stepper.warps()[self.current()].shared, stepper.given.shared)
        elif which in names:
            data = _view(names[which].at, names[which].size)
        else:
            raise ValueError(f"no memory {which}: `memory` lists it")
        width = np.dtype(DTYPES[dtype])
        whole = data[: len(data) // width.itemsize * width.itemsize].view(width)
        print(_format(whole[start : start + count]))

    def do_access(self, text: str) -> None:
        """access: what the last instruction of the current warp accessed, and what that cost."""
        pc = self.stepper.warps()[self.current()].pc
        for at, shared in ((at, shared) for at in (pc - 1, pc) for shared in (True, False)):
            one = self.stepper.access(at, shared) if 0 <= at < len(self.lines) else None
            if one is None:
                continue
            mask, addresses = int(one["mask"]), [int(value) for value in one["addresses"]]
            taken = [value for lane, value in enumerate(addresses) if mask >> lane & 1]
            what = "wavefronts of shared memory" if shared else "sectors of global memory"
            print(f"{self.place_of(at)}\n{one['passes']} {what}, at best {one['ideal']}; "
                  f"{one['size']} bytes a lane")  # fmt: skip
            if shared:
                print("banks:", *(value // 4 % 32 for value in taken))
            else:
                print(f"from {self.name_of(min(taken))} to {self.name_of(max(taken))}")
            return
        print("the last instruction accessed no memory of threads in common")

    def name_of(self, at: int) -> str:
        """An address of global memory as a byte of a tensor."""
        for one in self.stepper.memory:
            if one.at <= at < one.at + one.size:
                return f"byte {at - one.at} of {one.name}"
        return hex(at)

    def do_finish(self, text: str) -> bool:
        """finish: leave this launch, which then runs whole; the next one stops again."""
        return True

    def do_quit(self, text: str) -> bool:
        """quit: leave, and let all launches run whole."""
        self.left = True
        return True


def _format(values: npt.NDArray[Any]) -> str:
    if values.dtype.kind == "f":
        return "  ".join(f"{value:g}" for value in values)
    return "  ".join(str(value) if abs(int(value)) < 1 << 24 else hex(value) for value in values)


def _number(text: str, usual: int) -> int:
    text = text.strip()
    if text and not text.isdigit():
        raise ValueError(f"{text!r} is no number")
    return int(text or usual)

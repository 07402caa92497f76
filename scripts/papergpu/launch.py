"""Launches of a decoded kernel: what it may touch, how it is scheduled, what it did wrong."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from papergpu.build import get_handler
from papergpu.errors import Finding, Unsupported, find_kind
from papergpu.program import Program, Three, check_launch
from papergpu.records import (
    ALLOC,
    COUNT,
    INSTRUCTION,
    READ_ONLY,
    SAMPLE,
    UNWRITTEN,
    Launch,
    load_engine,
    relocate_samples,
    take_printed,
)
from papergpu.variables import Globals

SCHEDULES = {"robin": 0, "far": 1, "random": 2}
ORDERS = {"forward": 0, "backward": 1}
AUTOTUNE = ("first", "all")
WENT_ON = 2  # the engine's answer for a launch that has a finding and went on to its end


@dataclass(frozen=True)
class Memory:
    """Memory that a launch may touch: `size` bytes from the address `at`, by name in findings.

    `written` has a byte for each of its bytes, 1 where somebody has written it; without it all are.
    """

    at: int
    size: int
    name: str = "a tensor"
    read_only: bool = False
    written: npt.NDArray[np.uint8] | None = None


@dataclass(frozen=True)
class Settings:
    """How kernels are executed.

    `checks` looks for races, unwritten memory and misused barriers and masks; out of bounds is
    always found. `profile` counts. `schedule` is robin, far (one warp as far as it goes) or random;
    `seed` orders blocks and warps, 0 as they are numbered. `limit` is how many instructions a warp
    may execute, and `threads` over how many of this machine's the blocks go, 0 all. `perturb`, if
    it is not 0, seeds an error within what is documented for approximate instructions. `order` is
    the one in which products of matrices are summed along k, forward or backward: PTX leaves it
    open. `fuse` makes one of products and sums that do not say how they are rounded, as ptxas may.
    Without `specialize` Triton compiles one kernel for all integers and alignments. `autotune`
    takes the first of a tuner's configurations that runs, or all to time each. A `fatal` finding
    ends its launch; otherwise one that races, or reads what nobody wrote, goes on to its end.
    With `kernel` only those are checked and counted whose name has it.
    """

    checks: bool = True
    profile: bool = False
    schedule: str = "robin"
    seed: int = 0
    limit: int = 2_000_000_000
    threads: int = 0
    perturb: int = 0
    order: str = "forward"
    fuse: bool = False
    specialize: bool = True
    autotune: str = "first"
    fatal: bool = False
    kernel: str = ""


class Options(TypedDict, total=False):
    """The options of a launch beside its grid, block, parameters and memory.

    `dynamic` is its bytes of dynamic shared memory, `cluster` the blocks of a cluster;
    `cooperative` lets the grid synchronise. `settings` say how it is executed.
    """

    dynamic: int
    cluster: Three
    cooperative: bool
    settings: Settings | None


DEFAULTS: Options = {"dynamic": 0, "cluster": (1, 1, 1), "cooperative": False, "settings": None}


@dataclass
class Result:
    """What a launch did: warp-instructions in all, and counts for each instruction if asked.

    `samples`, if asked as well, are the worst requests of instructions, in order: those of global
    memory, and those of shared memory; `papergpu.records` says which they are and reads them.
    `printed` is what its threads printed, which has been written to stdout.
    """

    steps: int
    counts: npt.NDArray[np.void] | None = None
    printed: str = ""
    samples: npt.NDArray[np.void] | None = None


@dataclass
class Kernel:
    """A kernel that can be launched; `ptx` is the text of its module, where that is known."""

    program: Program
    memory: npt.NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    ptx: str = ""
    code: npt.NDArray[np.void] = field(init=False)
    spoilt: tuple[str, str] = ("", "")  # the handler that `mutate` spoils, and how

    def __post_init__(self) -> None:
        held = aligned_zeros(len(self.program.instructions))
        held[:] = np.frombuffer(self.program.instructions, np.uint8)
        self.code = held.view(INSTRUCTION)
        run: dict[str, int] = {"": 0}
        for number, name in enumerate(self.program.names):
            if name in run:
                continue
            try:
                run[name] = get_handler(name)
            except KeyError:
                form = self.program.forms[number]
                where = self.program.locate_instruction(number)
                raise Unsupported(f"{form} at {where}: the engine has no {name}") from None
        self.code["run"] = [run[name] for name in self.program.names]

    def fuse_code(self) -> npt.NDArray[np.void]:
        """Its code with every pair that may be fused made one."""
        code = aligned_zeros(self.code.nbytes).view(INSTRUCTION)
        code[:] = self.code
        for product, total, name, a, b, c in self.program.fused:
            code[product]["run"] = get_handler("nop")
            one = code[total]
            run = get_handler(f"mutant.{self.spoilt[1]}" if name == self.spoilt[0] else name)
            one["run"], one["a"], one["b"], one["c"] = run, a, b, c
        return code

    def mutate(self, name: str, form: str = "", way: str = "") -> int:
        """Spoil handler `name`, so that tests show that they would see it.

        `way` is one of core/launch.cpp: what it makes in lane 0 is wrong, of those that also make
        a predicate the `first` or the `second` result, or what it is `given`; a `lane` is left
        out, or `nothing` is done; with `same` nothing is wrong. Of instructions of that `form`
        alone, if one is named. Returns how many that changes; `mutate("")` undoes it.
        """
        run = self.code["run"]
        pairs = list(zip(self.program.names, self.program.forms, strict=True))
        for number, (one, _) in enumerate(pairs):
            if one:
                run[number] = get_handler(one)
        chosen = [at for at, (one, of) in enumerate(pairs) if one == name and form in ("", of)]
        self.spoilt = name, way
        if name:
            load_engine().papergpu_mutant(get_handler(name))
            run[chosen] = get_handler(f"mutant.{way}")
        return len(chosen) + sum(one[2] == name for one in self.program.fused)

    def launch(
        self,
        grid: Three,
        block: Three,
        parameters: Sequence[bytes],
        touched: Sequence[Memory] = (),
        **options: Unpack[Options],
    ) -> Result:
        """Execute it, and return when it has ended.

        `parameters` are the bytes of each, `touched` the memory that it may touch.

        Raises:
            Finding: it did something that it may not.
            ValueError: the launch itself is not possible.
            TypeError: there is no such option.
        """
        settings = options.get("settings") or Settings()
        code = self.fuse_code() if settings.fuse and self.program.fused else self.code
        given, arrays, ordered = describe_launch(
            self.program, code, self.memory, grid, block, parameters, touched, **options
        )
        failed = load_engine().papergpu_launch(ctypes.byref(given))
        printed = take_printed(given)
        if printed:
            sys.stdout.write(printed)
            sys.stdout.flush()
        result = Result(given.steps, printed=printed)
        if given.profile:
            samples = arrays["samples"][: given.nsamples]
            result.counts = arrays["counts"]
            result.samples = relocate_samples(samples, arrays["allocs"])
        if failed:
            finding = self.read_finding(given, [one.name for one in ordered])
            finding.result = result if failed == WENT_ON else None
            raise finding
        return result

    def read_finding(self, given: Launch, names: Sequence[str]) -> Finding:
        """What the engine found, in a reader's words."""
        program, pc = self.program, given.fault_pc
        text = given.error.decode(errors="replace")
        kind = find_kind(text)
        text = re.sub(r"\$(\d+)", lambda m: names[int(m[1])], text)
        text = re.sub(r"@(\d+)", lambda m: program.locate_instruction(int(m[1])), text)
        (a, b, c), (x, y, z) = given.fault_block, given.fault_thread
        place, _ = program.find_place(pc)
        where = program.locate_instruction(pc)
        return Finding(program.name, where, (a, b, c), (x, y, z), text, place, kind)


def describe_launch(
    program: Program,
    code: npt.NDArray[np.void],
    own: npt.NDArray[np.uint8],
    grid: Three,
    block: Three,
    parameters: Sequence[bytes],
    touched: Sequence[Memory] = (),
    **options: Unpack[Options],
) -> tuple[Launch, dict[str, npt.NDArray[Any]], list[Memory]]:
    """What `Kernel.launch` gives the engine: the launch, the arrays that it points to, and the
    memory that it may touch. `code` are the program's instructions, with their handlers, and `own`
    is the memory of its module's variables.

    Raises:
        ValueError: the launch itself is not possible.
        TypeError: there is no such option.
    """
    unknown = ", ".join(options.keys() - DEFAULTS.keys())
    if unknown:
        raise TypeError(f"no launch option {unknown}: use {', '.join(DEFAULTS)}")
    chosen: Options = {**DEFAULTS, **options}
    settings, dynamic = chosen["settings"] or Settings(), chosen["dynamic"]
    cluster = chosen["cluster"]
    check_launch(program, grid, block, parameters, cluster)
    given = Launch()
    values = program.lay_parameters(parameters)
    held = aligned_zeros(len(values))
    held[:] = np.frombuffer(values, np.uint8)
    variables = Memory(own.ctypes.data, len(own), "the module's variables")
    ordered = merge_overlaps([*touched, variables])
    allocs = np.zeros(len(ordered), ALLOC)
    for number, one in enumerate(ordered):
        shadow = one.written.ctypes.data if one.written is not None else 0
        flags = (READ_ONLY if one.read_only else 0) | (UNWRITTEN if shadow else 0)
        allocs[number] = (one.at, one.at + one.size, flags, number, shadow)
    counts = np.zeros(len(code), COUNT)
    samples = np.empty(2 * len(code) if settings.profile else 0, SAMPLE)
    constants = np.frombuffer(program.constants, np.uint8)
    arrays = {
        "code": code, "constants": constants, "allocs": allocs, "counts": counts,
        "samples": samples, "params": held, "globals": own, "consts": own,
        **{name: np.frombuffer(getattr(program, name) or array("I", [0]), np.uint32)
           for name in ("lists", "specials", "shared_constants")},
    }  # fmt: skip
    for name, values_at in arrays.items():
        setattr(given, name, values_at.ctypes.data)
    for name, value in program.number_launch(grid, block, cluster, dynamic, len(own)).items():
        setattr(given, name, value)
    given.nallocs = len(allocs)
    given.checks, given.profile = int(settings.checks), int(settings.profile)
    given.fatal = int(settings.fatal)
    given.cooperative = int(chosen["cooperative"])
    given.schedule = SCHEDULES[settings.schedule]
    given.threads = settings.threads or os.cpu_count() or 1
    given.perturb, given.seed, given.limit = settings.perturb, settings.seed, settings.limit
    own[:16] = 0  # where a cooperative grid synchronises
    given.order = ORDERS[settings.order]
    return given, arrays, ordered


def aligned_zeros(size: int, by: int = 128) -> npt.NDArray[np.uint8]:
    """Zeros whose address is a multiple of `by`."""
    whole = np.zeros(size + by, np.uint8)
    start = -whole.ctypes.data % by
    return whole[start : start + size]


def merge_overlaps(memory: Sequence[Memory]) -> list[Memory]:
    """Pieces of memory in order, overlapping ones merged, and with them their names."""
    found: list[Memory] = []
    for one in sorted((one for one in memory if one.size), key=lambda one: one.at):
        last = found[-1] if found else None
        if last is not None and one.at < last.at + last.size:
            end = max(last.at + last.size, one.at + one.size)
            name = (
                last.name if one.name in last.name.split(" and ") else f"{last.name} and {one.name}"
            )
            found[-1] = replace(last, size=end - last.at, name=name, written=None,
                                read_only=last.read_only and one.read_only)  # fmt: skip
        else:
            found.append(one)
    return found


def fill_memory(memory: npt.NDArray[np.uint8], globals_: Globals, start: int = 0) -> None:
    """Write the initial values of a module's variables from byte `start` on."""
    memory[start : len(globals_.bytes)] = np.frombuffer(globals_.bytes[start:], np.uint8)
    for at, name, offset in globals_.addresses:
        if at >= start:
            address = memory.ctypes.data + globals_.symbols[name].at + offset
            memory[at : at + 8] = np.frombuffer(address.to_bytes(8, "little"), np.uint8)


def bind_memory(program: Program, globals_: Globals, ptx: str = "") -> Kernel:
    """A kernel with its module's memory of its own; `ptx` is the module's text."""
    memory = aligned_zeros(max(64, len(globals_.bytes)))
    fill_memory(memory, globals_)
    return Kernel(program, memory, ptx)

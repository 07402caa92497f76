"""A view of each kernel that counted launches ran, with the binary that a GPU would get."""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from warpshelf.contract import architectures
from warpshelf.contract.values import Case
from warpshelf.look import binary, bound, elf, figures, ptx
from warpshelf.look.view import SCHEMA, Bound, Line, View, snippet_pieces
from warpshelf.look.work import ExecutedInstruction, assign_widths, describe_code
from warpshelf.worker import watch

if TYPE_CHECKING:
    from papergpu import Launched
    from papergpu.counters import Tally


# The binary that a GPU would get of PTX which was executed here is its own compiler's. It is kept,
# by all that decides it, once it is seen to be of that PTX, and the same code without line numbers.

FORMAT = 1  # of what is kept: raise it where it would be made otherwise today
LIMIT = 1 << 20  # bytes of each of the 256 folders that it is spread over
TRIES = 16
ASK, FIXED = 0xFFFFFFFF, 0x0040000  # of personality(2): what holds, ADDR_NO_RANDOMIZE


class KernelBinary(NamedTuple):
    """A binary with information on lines, and who made it: `compiler` in words."""

    binary: bytes
    language: str
    compiler: str


def assemble_kernel(ptx: str, symbol: str, target: str) -> KernelBinary:
    """The binary of a kernel whose module is `ptx`, for `target`. RuntimeError if its code depends
    on the information on lines, or it was made of other PTX."""
    from papergpu import compiler

    own = compiler.knows_source(ptx)  # so it was made from CUDA C++

    def make_binary(lines: bool, fits: Callable[[bytes], bool], otherwise: str) -> bytes:
        # A compiler may write something else the next time: NVRTC one of several texts of a large
        # kernel, also in one process; an assembler goes by where its own memory lies.
        for turn in range(TRIES):
            with nullcontext() if turn else at_fixed_addresses():
                if own:
                    made = compiler.binary(ptx, lines=lines)
                else:
                    made = compile_cubin(triton_compiler(target), ptx, lines=lines)
            if fits(made):
                return made
        raise RuntimeError(f"{symbol}: {otherwise}")

    def make_verified() -> bytes:
        executed = ptx.splitlines()
        otherwise = f"its binary for {target} was made of other PTX"
        made = make_binary(True, lambda one: same_ptx(elf.embedded_ptx(one), executed), otherwise)
        code = elf.kernel_code(made, symbol)
        otherwise = f"its code for {target} is different without line information"
        make_binary(False, lambda one: elf.kernel_code(one, symbol) == code, otherwise)
        return made

    by = compiler.describe_build(ptx) if own else triton_compiler(target).hash()
    made = load_or_make("binaries", (target, symbol, by, ptx), make_verified)
    if own:
        return KernelBinary(made, "CUDA C++", f"NVRTC {binary.compiler_release(made)}")
    import triton

    return KernelBinary(made, "Triton", f"Triton {triton.__version__}")


def load_or_make(folder: str, decides: Sequence[object], make: Callable[[], bytes]) -> bytes:
    """What was made before of the same, or is made and kept from now on."""
    from papergpu import file_cache

    text = "\0".join(map(str, (FORMAT, *decides))).encode()
    key = hashlib.blake2b(text, digest_size=20).hexdigest()
    path = file_cache.cache_dir() / folder / key[:2] / key[2:]
    with suppress(zlib.error):
        return zlib.decompress(file_cache.read_cached(path) or b"")
    made = make()
    file_cache.write_cached(path, zlib.compress(made), LIMIT)
    return made


@contextmanager
def at_fixed_addresses() -> Iterator[None]:
    """Programs that are started inside have their memory where they had it before, on Linux. ptxas
    13.1 writes one of several binaries of a few kernels, by where its memory happens to lie."""
    personality = getattr(ctypes.CDLL(None), "personality", None) if os.name == "posix" else None
    before = personality(ASK) if personality is not None else -1
    if personality is None or before < 0:
        yield
        return
    personality(before | FIXED)
    try:
        yield
    finally:
        personality(before)


def same_ptx(made: Sequence[str], executed: Sequence[str]) -> bool:
    """Whether a binary was made of the PTX that was executed, line by line. The binary holds it
    without what is for debuggers; what was executed may lack constants that nothing names."""
    pairs = list(zip(map(ptx.strip_comment, made), map(ptx.strip_comment, executed), strict=False))
    return any(one for one, _ in pairs) and all(
        one == other or not other or (not one and other.startswith((".", "$")))
        for one, other in pairs
    )


def triton_compiler(target: str) -> Any:
    """Triton's own compiler for a target. papergpu puts one in its place that makes no binary."""
    from triton.backends import backends
    from triton.backends.compiler import GPUTarget

    asked: Any = GPUTarget("cuda", architectures.sm_version(target), 32)
    (found,) = [one.compiler for one in backends.values() if one.compiler.supports_target(asked)]
    real = next(one for one in found.__mro__ if one.__module__.startswith("triton."))
    return real(asked)


def compile_cubin(
    compiler: Any, ptx: str, options: Mapping[str, Any] | None = None, lines: bool = True
) -> bytes:
    """The binary that Triton's compiler makes of PTX, with the `options` of a launch."""
    import triton

    parsed = compiler.parse_options(dict(options or {}))
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = not lines
        made: bytes = compiler.make_cubin(ptx, {}, parsed, compiler.target.arch)
    return made


Where = tuple[str, int]  # a file as a record names it, and a line; line 0 of what has none
NOWHERE = ("", 0)
FIGURES = ("registers", "spilled_bytes", "shared_bytes", "warps", "cycles")


class KernelLaunches(NamedTuple):
    """The launches of one program that stand for a variant and a kernel."""

    variant: str
    case: Case
    launched: Sequence[Launched]


def select_launches(
    kept: Iterable[tuple[str, Case, Sequence[Launched]]],
) -> Iterator[KernelLaunches]:
    """What is to be viewed for each variant and the launches of one kernel. Of a kernel that was
    compiled more than once it is the program that executed most."""
    for variant, case, launched in kept:
        programs: dict[int, list[Launched]] = {}
        executed: Counter[int] = Counter()
        for one in launched:
            if one.result.counts is not None:
                programs.setdefault(id(one.program), []).append(one)
                executed[id(one.program)] += int(one.result.counts["run"].sum())
        if programs:
            yield KernelLaunches(variant, case, programs[max(programs, key=executed.__getitem__)])


def kernel_ptx(one: KernelLaunches) -> dict[str, str]:
    """The PTX whole, and the name that the kernel has in it."""
    text = one.launched[0].ptx
    symbol = ptx.enclosing_kernel(text.splitlines(), ExecutionCounts(one.launched, "").somewhere)
    return {"symbol": symbol, "ptx": text}


def build_views(several: Sequence[KernelLaunches], target: str, folder: Path) -> list[View]:
    """What became of kernels of the snippet in `folder`, and what their launches did; all but the
    snippet's digest. RuntimeError if the machine code of one is not that of the PTX executed."""
    return [_build_view(one, target, folder) for one in several]


def _build_view(one: KernelLaunches, target: str, folder: Path) -> View:
    variant, case, launched = one
    made = analyze_kernel(launched, target, folder.name)
    first, did, symbol = launched[0], made.did, made.symbol
    lines = did.line_rows(made.code)
    wanted = {one.ptx for one in made.code.instructions} | did.where.keys()
    shown = ptx.kernel_lines(first.ptx.splitlines(), symbol, wanted)
    at = {number: index for index, (number, _) in enumerate(shown)}
    told = describe_code(made.code, made.used, at)
    order = {where: index for index, where in enumerate(lines)}
    return {
        "schema": SCHEMA,
        "snippet": folder.name,
        "variant": variant,
        "kernel": first.name,
        "language": made.assembled.language,
        "arch": made.arch,
        "compiler": made.assembled.compiler,
        "case": dict(case),
        "launches": len(launched),
        "grid": list(first.grid),
        "block": list(first.block),
        "cluster": list(first.cluster),
        "threads": made.takes.threads,
        "registers": told["registers"],
        "spilled_bytes": told["spilled_bytes"],
        "shared_bytes": first.shared,
        "total": watch.nonzero_tally(did.total),
        "occupancy": figures.describe_occupancy(made.arch, made.takes),
        "bound": bound.round_bound(made.cycle_bound()),
        "lines": list(lines.values()),
        "source": snippet_pieces(folder, [where for where in lines if where[1]]),
        "ptx": {
            "text": [line.replace(f"{symbol}_param_", "param_") for _, line in shown],
            "line": [order.get(did.where.get(number, NOWHERE), -1) for number, _ in shown],
            "run": [did.run.get(number, 0) for number, _ in shown],
        },
        "sass": told["sass"],
        "loops": told["loops"],
        "accesses": [
            {
                "ptx": at[one.line],
                "space": one.space,
                "does": one.does,
                "size": one.size,
                "block": list(one.block),
                "warp": one.warp,
                "addresses": list(one.addresses),
                "passes": one.passes,
                "ideal": one.ideal,
            }
            for one in did.accesses
            if one.line in at
        ],
    }


def kernel_figures(one: KernelLaunches, target: str, snippet: str) -> dict[str, float]:
    """The figures of FIGURES of a kernel alone: of a thread, a block, an SM and the launches."""
    made = analyze_kernel(one.launched, target, snippet)
    numbers = (
        made.used.registers,
        made.used.spilled_bytes,
        one.launched[0].shared,
        figures.compute_residency(made.arch, made.takes)["warps"],
        made.cycle_bound()["cycles"],
    )
    return dict(zip(FIGURES, numbers, strict=True))


class AnalyzedKernel(NamedTuple):
    """What launches of one program did, the machine code of it, and what that takes."""

    did: ExecutionCounts
    symbol: str
    assembled: KernelBinary
    code: binary.MachineCode
    used: binary.ResourceUsage
    arch: str
    takes: figures.BlockUsage
    blocks: int

    def cycle_bound(self) -> Bound:
        """The least cycles of an SM that does all of the launches."""
        made_of = [(one.ptx, one.opcode) for one in self.code.instructions]
        resident = figures.compute_residency(self.arch, self.takes)["blocks"]
        blocks = bound.Blocks(self.blocks, max(1, resident))
        return bound.cycle_bound(assign_widths(self.did.rows, made_of), self.arch, blocks)


def analyze_kernel(launched: Sequence[Launched], target: str, snippet: str) -> AnalyzedKernel:
    """What launches of one program of a snippet did, with its binary for a target."""
    did, first = ExecutionCounts(launched, snippet), launched[0]
    symbol = ptx.enclosing_kernel(first.ptx.splitlines(), did.somewhere)
    made = assemble_kernel(first.ptx, symbol, target)
    known = [(tool, os.stat(tool)) for tool in binary.find_tools("nvdisasm")]
    tools = [(tool, found.st_size, found.st_mtime_ns) for tool, found in known]
    code = binary.disassemble_kernel(
        made.binary, symbol, lambda of, ask: load_or_make("sass", (tools, of), ask)
    )
    # The PTX spares a slow disassembly.
    used = binary.function_usage(made.binary, first.ptx)[symbol]
    dynamic = max(0, first.shared - used.shared_bytes)
    takes = figures.BlockUsage(used.registers, math.prod(first.block), used.shared_bytes, dynamic)
    arch = f"sm_{architectures.sm_version(target)}"
    blocks = sum(math.prod(one.grid) for one in launched)
    return AnalyzedKernel(did, symbol, made, code, used, arch, takes, blocks)


class ExecutionCounts:
    """What launches of one program did, by line of PTX and by line of the snippet."""

    def __init__(self, launched: Sequence[Launched], snippet: str) -> None:
        from papergpu.counters import Tally, tally_instructions
        from papergpu.records import merge_samples, worst_accesses

        program = watch.fold_program(launched[0].program, snippet)
        self.where: dict[int, Where] = {}  # by line of PTX
        for place, number in program.places:
            self.where.setdefault(number, watch.source_line(place))
        self.run: dict[int, int] = {}
        self.total = Tally()
        self.rows: list[ExecutedInstruction] = []
        self._tallies: dict[Where, Tally] = {}
        text = launched[0].ptx.splitlines()
        for one in launched:
            assert one.result.counts is not None
            for number, place, form, tally in tally_instructions(program, one.result.counts):
                self.run[number] = self.run.get(number, 0) + tally.executed
                self.total.add(tally)
                both = ptx.reads_both(text[number - 1])
                self.rows.append(ExecutedInstruction(form, tally.as_dict(), number, both=both))
                self._tallies.setdefault(watch.source_line(place), Tally()).add(tally)
        samples = merge_samples(
            *(one.result.samples for one in launched if one.result.samples is not None)
        )
        self.accesses = worst_accesses(program, samples)
        self.somewhere = min(self.run)

    def line_rows(self, code: binary.MachineCode) -> dict[Where, Line]:
        """The lines that did something, or of which there is machine code, as a view has them."""
        live: dict[Where, int] = {}
        for one in code.instructions:
            if one.ptx in self.where:
                where = self.where[one.ptx]
                live[where] = max(live.get(where, 0), one.live)
        found = {}
        for where in sorted({*self._tallies, *live}):
            known = self._tallies.get(where)
            row = watch.nonzero_tally(known) if known else {"classes": {}}
            at = f"{where[0]}:{where[1]}" if where[1] else where[0]
            found[where] = {"at": at, **row, **({"live": live[where]} if where in live else {})}
        return found

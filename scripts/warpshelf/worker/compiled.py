"""Ahead-of-time figures of a snippet's kernels, with or without a GPU; nothing is launched.

Runs in a child process that imported the snippet with TRITON_INTERPRET=0. Triton's driver is
replaced by one that claims to be each architecture in turn, and every launch compiles and stops
there. CUDA C++ launches are observed and compiled by NVRTC. Inputs lie on the CPU.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from warpshelf.contract.architectures import covered
from warpshelf.contract.values import OF_VIEWS, Case, Obligations, form
from warpshelf.look.binary import Usage, release, usage
from warpshelf.worker import costs

ARCHS = ("sm_80", "sm_90", "sm_100")
CASE_BYTES = 512 * 2**20  # compulsory bytes of the largest case whose inputs are made
MENDS = {
    "registers": "use more warps or fewer elements a thread",
    "spilled_bytes": "use more warps or fewer elements a thread",
    "shared_bytes": "use smaller tiles or fewer stages",
    "matrix_instructions": "look at the operands' types and tile sizes",
}


Row = dict[str, Any]  # one row of the record's "compiled"


class Taker(Protocol):
    """Says for which architecture a launch compiles, and takes what it was compiled to."""

    arch: str

    def take(self, name: str, kernel: Any) -> None:
        """Take a Triton kernel, compiled and not launched."""
        ...


class Driver:
    """Stands in for Triton's driver: its current device is an architecture, none is touched.

    It is the one that is compiled for, so that a wrapper that asks chooses as it does there.
    """

    def __init__(self, found: Taker) -> None:
        self._found = found

    @property
    def sm(self) -> int:
        """The SM version."""
        return sm(self._found.arch)

    def get_current_device(self) -> int:
        """The SM version as the device index, so that Triton caches by architecture."""
        return self.sm

    def get_current_stream(self, device: int | None = None) -> int:
        """The null stream; nothing is put on it."""
        return 0

    def get_current_target(self) -> Any:
        """A CUDA target of this SM version with 32 threads a warp."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.sm, 32)


class Figures:
    """Rows of figures; of all that one (variant, kernel, arch) compiled to, the worst is kept."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], Row] = {}
        self.variant = ""
        self.arch = ARCHS[0]
        self._known: dict[int, Usage] = {}  # by id; Triton's own cache keeps each kernel alive

    def take(self, name: str, kernel: Any) -> None:
        """Add the figures of a Triton kernel."""
        import triton

        if id(kernel) not in self._known:
            used = usage(kernel.asm["cubin"], kernel.asm["ptx"])[kernel.metadata.name]
            self._known[id(kernel)] = used.with_dynamic(kernel.metadata.shared)
        compiler = f"Triton {triton.__version__}"
        self.add(name, self.arch, "Triton", compiler, self._known[id(kernel)])

    def add(self, kernel: str, arch: str, language: str, compiler: str, used: Usage) -> None:
        """Worst: the most spilled bytes, then registers, then shared memory. Matrix instructions
        in any of them count."""
        row: Row = {
            "kernel": kernel,
            "variant": self.variant,
            "language": language,
            "arch": arch,
            "registers": used.registers,
            "spilled_bytes": used.spilled_bytes,
            "shared_bytes": used.shared_bytes,
            "matrix_instructions": used.matrix_instructions,
            "compiler": compiler,
        }
        key = (self.variant, kernel, arch)
        old = self.rows.setdefault(key, row)
        weight = ("spilled_bytes", "registers", "shared_bytes")
        matrix = old["matrix_instructions"] or used.matrix_instructions
        worst = max(old, row, key=lambda each: [each[name] for name in weight])
        self.rows[key] = {**worst, "matrix_instructions": matrix}


def sm(arch: str) -> int:
    """90 of "sm_90"."""
    return int(arch.removeprefix("sm_"))


@contextmanager
def triton_compiles(found: Taker) -> Iterator[None]:
    """Every Triton launch inside compiles for `found.arch`, and `found` takes the kernel.

    An autotuned kernel is compiled with the first configuration that its pruning leaves.
    """
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.driver import driver
    from triton.runtime.jit import JITFunction

    if "papergpu" in sys.modules:  # a snippet asks for it where there is no GPU; here it compiles
        importlib.import_module("papergpu").deactivate()
    if triton.knobs.runtime.interpret:
        raise RuntimeError(
            "Triton was imported with TRITON_INTERPRET=1 and compiles nothing; "
            "set TRITON_INTERPRET=0 before the snippet is imported"
        )
    stand_in, before = Driver(found), driver._active
    run, tune = JITFunction.run, Autotuner.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        found.take(self.__name__, kernel)
        return kernel

    def first_config(self: Any, *args: Any, **options: Any) -> Any:
        all_configs = self.configs
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        self.configs = self.prune_configs(options)[:1]
        try:
            return tune(self, *args, **options)
        finally:
            self.configs = all_configs

    JITFunction.run, Autotuner.run = compile_only, first_config
    driver.set_active(stand_in)
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run = run, tune
        driver._active = before


@contextmanager
def cuda_compiles(found: Figures) -> Iterator[None]:
    """CUDA C++ launches inside are noted; at the end each is compiled for its architectures."""
    cuda: Any = importlib.import_module("snippets.cuda")
    # source, arch -> name -> variant -> most dynamic shared memory that a launch asks for
    noted: dict[tuple[Any, str], dict[str, dict[str, int]]] = {}

    def note(source: Any, name: str, grid: Any, block: Any, args: Any, shared: int) -> None:
        asked = noted.setdefault((source, found.arch), {}).setdefault(name, {})
        asked[found.variant] = max(shared, asked.get(found.variant, 0))

    before, cuda.observer = cuda.observer, note
    try:
        yield
    finally:
        cuda.observer = before
    for (source, arch), names in noted.items():
        cubin, mangled = source.cubin(list(names), arch)
        used, compiler = usage(cubin), f"NVRTC {release(cubin)}"
        for name, asked in names.items():
            for found.variant, shared in asked.items():
                own = used[mangled[name]].with_dynamic(shared)
                found.add(name, arch, "CUDA C++", compiler, own)


def largest(cases: list[Case], size: Callable[[Case], int]) -> tuple[list[Case], bool]:
    """Of each form the case of the most bytes up to CASE_BYTES, the later where two are equal;
    and whether a form has none so small."""
    best: dict[tuple[tuple[str, str], ...], tuple[int, Case]] = {}
    for case in cases:
        taken = size(case)
        if taken <= CASE_BYTES and taken >= best.get(form(case), (0,))[0]:
            best[form(case)] = (taken, case)
    missing = {form(case) for case in cases} - best.keys()
    return [case for _, case in best.values()], bool(missing)


def figures(
    proof: Obligations,
    snippet_id: str,
    *,
    has_cuda: bool,
    archs: tuple[str, ...] = ARCHS,
    needs: dict[str, Any],
) -> list[Row]:
    """The record's "compiled" rows: one by variant, kernel and architecture, sorted so.

    Each variant is called on the largest TIMED case of each form (dtype, pass and the like), and
    on those of CASES if that compiled nothing or a form has no case of at most CASE_BYTES.
    Architectures that NEEDS does not cover are left out. `shared_bytes` is static and dynamic,
    without what the system reserves; `spilled_bytes` is as warpshelf.look.binary counts it.
    RuntimeError naming snippet, variant and case if a call or a compilation fails.
    """
    wanted = {
        variant: tuple(arch for arch in archs if covered(needs, variant, sm(arch)))
        for variant in proof.variants
    }
    found = Figures()
    with ExitStack() as stack:
        if "triton" in sys.modules:
            stack.enter_context(triton_compiles(found))
        if has_cuda:
            stack.enter_context(cuda_compiles(found))
        for case, variants in plan(proof):
            call(proof, snippet_id, case, {name: wanted[name] for name in variants}, found)
    variant_order, arch_order = list(proof.variants), list(archs)
    return sorted(
        found.rows.values(),
        key=lambda row: (
            variant_order.index(row["variant"]),
            row["kernel"],
            arch_order.index(row["arch"]),
        ),
    )


def plan(proof: Obligations) -> list[tuple[Case, list[str]]]:
    """Cases to call, each with its variants: these share the inputs, which are slow to make."""
    chosen: dict[str, tuple[Case, list[str]]] = {}
    known: dict[str, int] = {}

    def size(case: Case) -> int:
        key = repr(case)
        if key not in known:
            known[key] = int(costs.guess(proof, case)["bytes"])
        return known[key]

    for variant in proof.variants:
        for cases in (proof.timed, proof.cases):
            mine = [case for case in cases if variant in proof.applies(case)]
            best, missing = largest(mine, size)
            for case in best:
                chosen.setdefault(repr(case), (case, []))[1].append(variant)
            if best and not missing:
                break
    return list(chosen.values())


def call(
    proof: Obligations,
    snippet_id: str,
    case: Case,
    wanted: dict[str, tuple[str, ...]],
    found: Figures,
) -> None:
    """Call variants on a case's inputs, compiling for the architectures wanted of each."""
    import torch

    assert proof.inputs is not None
    if not any(wanted.values()):
        return
    made = proof.inputs(case, "cpu", torch.Generator("cpu").manual_seed(0))
    for found.variant, archs in wanted.items():
        for found.arch in archs:
            try:
                proof.variants[found.variant](*made)
            except Exception as error:
                raise RuntimeError(
                    f"{snippet_id}: {found.variant} did not compile for {found.arch} on "
                    f"{case}: {type(error).__name__}: {error}"
                ) from error


def broken_limits(rows: list[Row], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """One line for each figure over its limit in LIMITS, and for each key that fits no kernel.

    A key is a kernel's name, with or without template arguments, or "*" for all. Numbers are
    maxima; `matrix_instructions` must be equal.
    """
    lines = []
    kernels = sorted({row["kernel"] for row in rows})
    for key, bounds in limits.items():
        mine = [row for row in rows if key in ("*", row["kernel"], row["kernel"].split("<")[0])]
        if not mine:
            lines.append(
                f"LIMITS names the kernel {key!r}, but those compiled are "
                f"{', '.join(kernels) or 'none'}; name one of them"
            )
        for name, limit in bounds.items():
            if name in OF_VIEWS:  # those are known where it is executed
                continue
            if name not in MENDS:
                lines.append(
                    f"LIMITS[{key!r}] has the key {name!r}, which is no figure; "
                    f"use one of {', '.join(MENDS)}"
                )
                continue
            for row in mine:
                value = row[name]
                exact = name == "matrix_instructions"
                if value == limit if exact else value <= limit:
                    continue
                verb = "differs from" if exact else "exceeds the limit"
                lines.append(
                    f"{row['kernel']} ({row['variant']}) on {row['arch']}: {name} = {value} "
                    f"{verb} {limit}; {MENDS[name]}, or change LIMITS"
                )
    return lines

"""What each launch of a kernel asks of one architecture, and which of them cannot be there.

A snippet's cases enter, those to time among them; they are called as where that GPU is, compiled
for it, and nothing is launched. What leaves is by variant the most that a block takes, and every
reason for which a launch would fail: it does not compile, or a block takes more shared memory,
registers or threads than an SM of the architecture has. Inputs that are large have shapes and no
data, so that sizes that no CPU holds are looked at as well.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from warpshelf.contract import architectures
from warpshelf.contract.values import Case
from warpshelf.look import binary, figures
from warpshelf.worker import compiled, costs, memory
from warpshelf.worker.context import JobContext, describe_error

SMALL = 4 * 2**20  # bytes of a case up to which its inputs are made with their data
MOST = 3 * 2**30  # bytes of inputs with data that are made where a variant cannot do without
TENSOR_MEMORY = 512  # columns of an SM, where it has any
SAID = re.compile(r"\berror\s*: (?P<what>.+)")


@dataclass(frozen=True)
class Launch:
    """What a block of one launch takes; `registers` of a thread, 0 where the compiler sees to it.

    `tensor` are columns of tensor memory.
    """

    kernel: str
    threads: int
    shared: int
    registers: int = 0
    tensor: int = 0

    def refusal_reason(self, arch: str) -> str | None:
        """Why an SM of the architecture has no room for one block; None where it has."""
        has = figures.sm_limits(arch)
        most = has.shared - has.reserved
        if self.shared > most:
            return (
                f"{self.kernel} takes {self.shared:,} bytes of shared memory a block, "
                f"and {arch} gives at most {most:,}"
            )
        if self.tensor > TENSOR_MEMORY:
            return f"{self.kernel} takes {self.tensor} columns of tensor memory of {TENSOR_MEMORY}"
        use = figures.BlockUsage(self.registers, self.threads, dynamic=self.shared)
        found = figures.compute_residency(arch, use)
        if found["blocks"]:
            return None
        return (
            f"{self.kernel} takes {self.registers} registers in each of {self.threads} threads, "
            f"and {arch} has too few {' and '.join(found['limiters'])} for one block"
        )


@dataclass
class LaunchDemand:
    """Launches of a kernel of CUDA C++ by one variant: the most of what they ask, and where."""

    shared: int
    threads: int
    case: Case


@dataclass
class LaunchRecorder:
    """Takes what is launched: compiled.triton_compiles and the observer of snippets.cuda tell it.

    CUDA C++ is compiled at the end, all kernels of a file at once.
    """

    arch: str
    variant: str = ""
    case: Case = field(default_factory=dict)
    taken: list[Launch] = field(default_factory=list)  # of Triton, in the call under way
    noted: dict[Any, dict[str, dict[str, LaunchDemand]]] = field(default_factory=dict)

    def take_kernel(self, name: str, kernel: Any) -> None:
        """Take a Triton kernel, which the compiler keeps within the registers of its threads."""
        known = kernel.metadata
        tensor = getattr(known, "tmem_size", None) or 0
        self.taken.append(Launch(name, 32 * known.num_warps, known.shared, tensor=tensor))

    def note_launch(
        self, source: Any, name: str, grid: Any, block: Sequence[int], args: Any, shared: int
    ) -> None:
        """Note a launch of CUDA C++."""
        threads = block[0] * block[1] * block[2]
        by_variant = self.noted.setdefault(source, {}).setdefault(name, {})
        asked = by_variant.setdefault(self.variant, LaunchDemand(shared, threads, self.case))
        if shared > asked.shared:
            asked.shared, asked.case = shared, self.case
        asked.threads = max(threads, asked.threads)


@dataclass
class ArchitectureFit:
    """By variant how many launches fit and the most shared memory of one, and what does not fit."""

    context: JobContext
    arch: str
    fits: dict[str, dict[str, int]] = field(default_factory=dict)
    misses: dict[str, list[str]] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)

    def add_launch(self, variant: str, launch: Launch, case: Case) -> None:
        """Keep a launch that was compiled."""
        if why := launch.refusal_reason(self.arch):
            self.add_miss(variant, why, case)
            return
        known = self.fits.setdefault(variant, {"launches": 0, "shared_bytes": 0})
        known["launches"] += 1
        known["shared_bytes"] = max(known["shared_bytes"], launch.shared)

    def add_miss(self, variant: str, why: str, case: Case) -> None:
        """Keep a reason for which a launch of a variant fails."""
        shown = {key: value for key, value in case.items() if key != "variants"}
        self.misses.setdefault(variant, []).append(f"on case {shown}: {why}")

    def list_failures(self) -> list[dict[str, str]]:
        """One a variant: its first, and how many more there are."""
        found = []
        for variant, (first, *others) in self.misses.items():
            more = f" (and {len(others)} more)" if others else ""
            what = f"{self.arch}: variant {variant!r} cannot run {first}{more}"
            found.append({"variant": variant, "what": what})
        return found


def check_architecture(context: JobContext) -> dict[str, Any]:
    """The job: every variant that NEEDS admits on the job's `arch`, but those in `without`.

    With `largest` each is called on the largest case of each form alone, as for a record.
    """
    job, proof = context.job, context.proof
    arch = job["arch"]
    wanted = [
        name
        for name in proof.variants
        if name not in job["without"]
        and architectures.is_covered(job["needs"], name, architectures.sm_version(arch))
    ]
    found, launches = ArchitectureFit(context, arch), LaunchRecorder(arch)
    with ExitStack() as stack:
        stack.enter_context(limit_memory())
        if "triton" in sys.modules:
            stack.enter_context(compiled.triton_compiles(launches))
        if job["has_cuda"]:
            stack.enter_context(cuda_notes(launches))
        for case, names in _planned_calls(context, job["largest"]):
            mine = [name for name in names if name in wanted]
            if mine:
                _call_case(found, launches, case, mine)
        _compile_noted(found, launches)
    return {
        "fits": found.fits,
        "failures": found.list_failures(),
        "unseen": found.unseen,
        "variants": list(proof.variants),
    }


def _planned_calls(context: JobContext, largest: bool) -> Iterator[tuple[Case, list[str]]]:
    proof = context.proof
    if largest:
        yield from compiled.plan_calls(proof)
        return
    for case in (*proof.cases, *proof.timed):
        yield case, proof.variants_for(case)


@contextmanager
def cuda_notes(launches: LaunchRecorder) -> Iterator[None]:
    """Launches of CUDA C++ inside are noted, those of tensors without data as well."""
    cuda: Any = importlib.import_module("snippets.cuda")
    before = cuda.observer, cuda._device
    cuda.observer, cuda._device = launches.note_launch, lambda where, types: torch.device("cpu")
    try:
        yield
    finally:
        cuda.observer, cuda._device = before


@contextmanager
def limit_memory() -> Iterator[None]:
    """What is inside may come to hold MOST bytes; a request for more fails, where Linux counts."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        yield
        return
    resource = importlib.import_module("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    held = int(status.partition("VmData:")[2].split()[0]) * 1024
    resource.setrlimit(resource.RLIMIT_DATA, (held + MOST, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _call_case(
    found: ArchitectureFit, launches: LaunchRecorder, case: Case, names: Sequence[str]
) -> None:
    """Call variants on one case: with shapes alone where it is large and they can do without."""
    context, proof = found.context, found.context.proof
    assert proof.inputs is not None
    size = costs.estimate_cost(proof, case)["bytes"]
    ways = ["cpu"] if size <= SMALL else ["meta", "cpu"]
    made: dict[str, Any] = {}
    for name in names:
        context.report_place(f"in variant {name!r} on case {case} for {found.arch}")
        launches.variant, launches.case = name, case
        why = ""
        for way in ways:
            launches.taken.clear()
            try:
                if way not in made:
                    drawn = None if way == "meta" else torch.Generator(way).manual_seed(0)
                    made[way] = proof.inputs(case, way, drawn)
                proof.variants[name](*made[way])
            except Exception as error:
                why = _compiler_complaint(error)
                if way == "meta" or memory.out_of_memory(error):
                    continue  # whatever needs data, or more of it than there is room for
                found.add_miss(name, why, case)
            for launch in launches.taken:
                found.add_launch(name, launch, case)
            break
        else:
            found.unseen.append(f"{name!r} on case {case}: {why}")


def _compile_noted(found: ArchitectureFit, launches: LaunchRecorder) -> None:
    """Compile what was noted of CUDA C++, and look at each launch."""
    for source, names in launches.noted.items():
        found.context.report_place(f"while compiling {source.path.name} for {found.arch}")
        for batch in _compile_batches(source, list(names), found.arch):
            if isinstance(batch, tuple):
                name, why = batch
                for variant, asked in names[name].items():
                    found.add_miss(variant, f"{name} does not compile: {why}", asked.case)
                continue
            for name, used in batch.items():
                for variant, asked in names[name].items():
                    shared = used.shared_bytes + asked.shared
                    launch = Launch(name, asked.threads, shared, used.registers)
                    found.add_launch(variant, launch, asked.case)


def _compile_batches(
    source: Any, names: list[str], arch: str
) -> Iterator[dict[str, binary.ResourceUsage] | tuple[str, str]]:
    """The usage of all kernels at once; where that fails, of each or why it does not compile."""
    try:
        cubin, mangled = source.cubin(names, arch)
    except Exception as error:
        if len(names) == 1:
            yield names[0], _compiler_complaint(error)
            return
        for name in names:
            yield from _compile_batches(source, [name], arch)
        return
    used = binary.function_usage(cubin, "")  # spills and matrix instructions are not asked for
    yield {name: used[mangled[name]] for name in names}


def _compiler_complaint(error: Exception) -> str:
    """The first thing that a compiler complains of, or what the exception says."""
    found = SAID.search(str(error))
    return found["what"].strip()[:200] if found else describe_error(error)

"""What each launch of a kernel asks of one architecture, and which of them cannot run.

Each case is called as where that GPU is, compiled for it, and nothing is launched. A launch fails
if it does not compile, or a block takes more than an SM has. Large inputs have shapes and no data,
so that sizes that no CPU holds are looked at as well.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from warpshelf.contract import architectures
from warpshelf.contract.values import Case
from warpshelf.look import binary, figures
from warpshelf.worker import costs, verify
from warpshelf.worker.compiled import LaunchRecorder, plan_calls
from warpshelf.worker.context import JobContext, describe_error

SMALL = 4 * 2**20  # bytes of a case up to which its inputs are made with their data
MOST = 3 * 2**30  # bytes of inputs with data that are made where a variant cannot do without
TENSOR_MEMORY = 512  # columns of an SM, where it has any
SAID = re.compile(r"\berror\s*: (?P<what>.+)")


class Launch(NamedTuple):
    """What a block of one launch takes; `registers` of a thread, 0 where the compiler sees to it.
    `tensor` are columns of tensor memory."""

    kernel: str
    threads: int
    shared: int
    registers: int = 0
    tensor: int = 0

    def refusal_reason(self, arch: str) -> str | None:
        """Why an SM of the architecture has no room for one block; None if it has."""
        has = figures.sm_limits(arch)
        most = has.shared - has.reserved
        if self.shared > most:
            return (
                f"{self.kernel} takes {self.shared:,} bytes of shared memory a block, "
                f"and {arch} gives at most {most:,}"
            )
        if self.tensor > TENSOR_MEMORY:
            return f"{self.kernel} takes {self.tensor} of {TENSOR_MEMORY} columns of tensor memory"
        use = figures.BlockUsage(self.registers, self.threads, dynamic=self.shared)
        found = figures.compute_residency(arch, use)
        if found["blocks"]:
            return None
        return (
            f"{self.kernel} takes {self.registers} registers in each of {self.threads} threads, "
            f"and {arch} has too few {' and '.join(found['limiters'])} for one block"
        )


class ArchitectureFit:
    """By variant how many launches fit and the most shared memory of one, and what does not fit."""

    def __init__(self, context: JobContext) -> None:
        self.context = context
        self.arch: str = context.job["arch"]
        self.fits: dict[str, dict[str, int]] = {}
        self.misses: dict[str, list[str]] = {}
        self.unseen: list[str] = []
        self.recorder = LaunchRecorder(self.arch)

    def _judge_launch(self, variant: str, case: Case, launch: Launch | str) -> None:
        """Keep a launch of a variant if it fits, and else why not; a text says why it fails."""
        if why := launch if isinstance(launch, str) else launch.refusal_reason(self.arch):
            shown = {key: value for key, value in case.items() if key != "variants"}
            self.misses.setdefault(variant, []).append(f"on case {shown}: {why}")
        elif isinstance(launch, Launch):
            known = self.fits.setdefault(variant, {"launches": 0, "shared_bytes": 0})
            known["launches"] += 1
            known["shared_bytes"] = max(known["shared_bytes"], launch.shared)

    def call_case(self, case: Case, names: Sequence[str]) -> None:
        """Call variants on one case: with shapes alone where it is large and these do."""
        proof = self.context.proof
        assert proof.inputs is not None
        small = costs.estimate_cost(proof, case)["bytes"] <= SMALL
        made: dict[str, Any] = {}
        for name in names:
            self.context.report_place(f"in variant {name!r} on case {case} for {self.arch}")
            self.recorder.variant, self.recorder.case = name, case
            why = ""
            for way in ("cpu",) if small else ("meta", "cpu"):
                self.recorder.kernels.clear()
                try:
                    if way not in made:
                        drawn = None if way == "meta" else torch.Generator(way).manual_seed(0)
                        made[way] = proof.inputs(case, way, drawn)
                    proof.variants[name](*made[way])
                except Exception as error:
                    why = _compiler_complaint(error)
                    if way == "meta" or verify.out_of_memory(error):
                        continue  # whatever needs data, or more of it than there is room for
                    self._judge_launch(name, case, why)
                for kernel, built in self.recorder.kernels:
                    known = built.metadata  # the compiler keeps within the registers of its threads
                    tensor = getattr(known, "tmem_size", None) or 0
                    launch = Launch(kernel, 32 * known.num_warps, known.shared, tensor=tensor)
                    self._judge_launch(name, case, launch)
                break
            else:
                self.unseen.append(f"{name!r} on case {case}: {why}")

    def compile_noted(self) -> None:
        """Compile what was noted of CUDA C++, and look at each launch."""
        for (source, _), names in self.recorder.asked.items():
            self.context.report_place(f"while compiling {source.path.name} for {self.arch}")
            for name, used in _compile_kernels(source, list(names), self.arch):
                for variant, (shared, case, threads) in names[name].items():
                    if isinstance(used, str):
                        self._judge_launch(variant, case, f"{name} does not compile: {used}")
                        continue
                    launch = Launch(name, threads, used.shared_bytes + shared, used.registers)
                    self._judge_launch(variant, case, launch)


def check_architecture(context: JobContext) -> dict[str, Any]:
    """The job: every variant that NEEDS admits on the job's `arch`, but those in `without`. With
    `largest` each is called on the largest case of each form alone, as for a record."""
    job, proof, found = context.job, context.proof, ArchitectureFit(context)
    sm = architectures.sm_version(found.arch)
    covered = {name for name in proof.variants if architectures.is_covered(job["needs"], name, sm)}
    wanted = covered.difference(job["without"])
    planned = [(case, proof.variants_for(case)) for case in (*proof.cases, *proof.timed)]
    with limit_memory(), found.recorder.recording(job["has_cuda"], shapes=True):
        for case, names in plan_calls(proof) if job["largest"] else planned:
            if mine := [name for name in names if name in wanted]:
                found.call_case(case, mine)
        found.compile_noted()
    failures = []  # one a variant: its first, and how many more there are
    for variant, (first, *others) in found.misses.items():
        more = f" (and {len(others)} more)" if others else ""
        what = f"{found.arch}: variant {variant!r} cannot run {first}{more}"
        failures.append({"variant": variant, "what": what})
    known = {"fits": found.fits, "unseen": found.unseen, "variants": list(proof.variants)}
    return {**known, "failures": failures}


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


def _compile_kernels(
    source: Any, names: list[str], arch: str
) -> Iterator[tuple[str, binary.ResourceUsage | str]]:
    """Of each kernel its usage, or why it does not compile: of all at once, unless one fails."""
    try:
        cubin, mangled = source.cubin(names, arch)
    except Exception as error:
        if len(names) == 1:
            yield names[0], _compiler_complaint(error)
            return
        for name in names:
            yield from _compile_kernels(source, [name], arch)
        return
    used = binary.function_usage(cubin, "")  # spills and matrix instructions are not asked for
    for name in names:
        yield name, used[mangled[name]]


def _compiler_complaint(error: Exception) -> str:
    """The first thing that a compiler complains of, or what the exception says."""
    found = SAID.search(str(error))
    what = found["what"].strip()[:200] if found else ""
    return what or describe_error(error)

"""Ahead-of-time figures of a snippet's kernels, with or without a GPU; nothing is launched.

Triton's driver is replaced by one that claims to be each architecture in turn, and every launch
compiles and stops there; launches of CUDA C++ are observed, and compiled by NVRTC. Inputs lie on
the CPU, and hold nothing where their layout decides everything.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from warpshelf.contract.architectures import is_covered, sm_version
from warpshelf.contract.values import Case, Obligations, case_form
from warpshelf.look.binary import ResourceUsage, compiler_release, function_usage
from warpshelf.worker import costs, kernel_views

ARCHS = ("sm_80", "sm_90", "sm_100")
CASE_BYTES = 512 * 2**20  # compulsory bytes of the largest case whose inputs are made
DRAWN_BYTES = 16 * 2**20  # of a floating-point tensor whose values are drawn; larger ones are zeros
READS = frozenset(
    """
    item tolist numpy equal allclose nonzero unique masked_select __bool__ __int__ __float__
    __index__ __contains__
    """.split()  # noqa: SIM905 (a word a line would be a page)
)
MENDS = {
    "registers": "use more warps or fewer elements a thread",
    "spilled_bytes": "use more warps or fewer elements a thread",
    "shared_bytes": "use smaller tiles or fewer stages",
    "matrix_instructions": "look at the operands' types and tile sizes",
}

Row = dict[str, Any]  # one row of the record's "compiled"
Demand = tuple[int, Case, int]  # of launches: the most shared bytes, in which case; most threads


class LaunchRecorder:
    """Takes what is launched inside `recording`, where kernels compile for `arch` and nothing runs.
    `variant` and `case` are those that are being called."""

    def __init__(self, arch: str) -> None:
        self.arch, self.variant, self.case = arch, "", Case()
        self.kernels: list[tuple[str, Any]] = []  # of Triton: name, and what it was compiled to
        # Of CUDA C++: source and architecture -> name -> variant -> demand
        self.asked: dict[tuple[Any, str], dict[str, dict[str, Demand]]] = {}

    @contextmanager
    def recording(self, has_cuda: bool, shapes: bool = False) -> Iterator[None]:
        """Launches inside are recorded. With `shapes` those of tensors without data are as well;
        else Triton makes no binary, and the PTX is that of kernels which are executed."""
        with ExitStack() as stack:
            if "triton" in sys.modules:
                self._record_triton(stack, to_ptx=not shapes)
            if has_cuda:
                cuda = importlib.import_module("snippets.cuda")
                _replace_until(stack, cuda, "observer", self._note_launch)
                if shapes:
                    device = torch.device("cpu")
                    _replace_until(stack, cuda, "_device", lambda where, types: device)
            yield

    def _record_triton(self, stack: ExitStack, to_ptx: bool) -> None:
        """Have every launch compile; one that is autotuned with the first configuration that its
        pruning leaves."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.driver import driver
        from triton.runtime.jit import JITFunction

        if "papergpu" in sys.modules:  # a snippet asks for it where there is no GPU
            importlib.import_module("papergpu").deactivate()
        if triton.knobs.runtime.interpret:
            raise RuntimeError(
                "Triton was imported with TRITON_INTERPRET=1 and compiles nothing; "
                "set TRITON_INTERPRET=0 before the snippet is imported"
            )
        if to_ptx:
            front = importlib.import_module("papergpu.triton")
            stack.enter_context(front.compile_to_ptx(sm_version(self.arch)))
        run, tune = JITFunction.run, Autotuner.run

        def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
            made = run(kernel, *args, grid=grid, warmup=True, **options)
            self.kernels.append((kernel.__name__, made))
            return made

        def first_config(tuner: Any, *args: Any, **options: Any) -> Any:
            all_configs = tuner.configs
            tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
            tuner.configs = tuner.prune_configs(options)[:1]
            try:
                return tune(tuner, *args, **options)
            finally:
                tuner.configs = all_configs

        # The device is the one that is compiled for, so that a wrapper that asks chooses as it does
        # there, and Triton caches by architecture. Its stream is the null stream, of no use here.
        stand_in = SimpleNamespace(
            get_current_device=lambda: sm_version(self.arch),
            get_current_stream=lambda device=None: 0,
            get_current_target=lambda: GPUTarget("cuda", sm_version(self.arch), 32),
        )
        _replace_until(stack, JITFunction, "run", compile_only)
        _replace_until(stack, Autotuner, "run", first_config)
        _replace_until(stack, driver, "_active", stand_in)

    def _note_launch(
        self, source: Any, name: str, grid: Any, block: Sequence[int], args: Any, shared: int
    ) -> None:
        asked = self.asked.setdefault((source, self.arch), {}).setdefault(name, {})
        most, case, threads = asked.get(self.variant, (-1, self.case, 0))
        if shared > most:
            most, case = shared, self.case
        asked[self.variant] = most, case, max(threads, math.prod(block))


def _replace_until(stack: ExitStack, owner: object, name: str, value: object) -> None:
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, value)


@cache
def _kernel_usage(kernel: Any, arch: str) -> tuple[str, ResourceUsage]:
    """The compiler of a Triton kernel and what its binary takes, kept by all that decides it."""
    import triton

    ptx, meta, compiler = kernel.asm["ptx"], kernel.metadata, kernel_views.triton_compiler(arch)
    options = {
        name: getattr(meta, name)
        for name in ("enable_fp_fusion", "ptx_options")
        if getattr(meta, name, None) is not None
    }

    def make_usage() -> bytes:
        used = function_usage(kernel_views.compile_cubin(compiler, ptx, options), ptx)[meta.name]
        return json.dumps(asdict(used)).encode()

    decides = (arch, options, compiler.hash(), ptx)
    used = json.loads(kernel_views.load_or_make("figures", decides, make_usage))
    return f"Triton {triton.__version__}", ResourceUsage(**used).with_dynamic(meta.shared)


def _source_usage(
    source: Any, names: list[str], arch: str
) -> Iterator[tuple[str, str, ResourceUsage]]:
    """The same of kernels of a .cu file, each behind its name."""
    from papergpu import compiler

    def make_rows() -> bytes:
        cubin, mangled = source.cubin(names, arch)
        used, compiler = function_usage(cubin), f"NVRTC {compiler_release(cubin)}"
        rows = [(name, compiler, asdict(used[mangled[name]])) for name in names]
        return json.dumps(rows).encode()

    text = source.path.read_text()
    folders = [source.path.parent, *(Path(one[2:]) for one in source.options if one[:2] == "-I")]
    headers = [path.read_text(errors="replace") for path in compiler.find_includes(text, folders)]
    version = compiler.load_bindings().nvrtcVersion()
    decides = (arch, names, source.path, source.options, version, text, *headers)
    rows = kernel_views.load_or_make("figures", decides, make_rows)
    for name, release, used in json.loads(rows):
        yield name, release, ResourceUsage(**used)


class ValueRead(Exception):
    """A wrapper reads a value of its inputs."""


class HollowTensors(TorchFunctionMode):
    """Large floating-point tensors are zeros in untouched memory, and so is what follows from them,
    in its layout; what is not of floating point, such as an index, is computed. Where `unread`,
    asking for a value is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = False
        self._held: dict[int, torch.Tensor] = {}  # by address, at which nothing else begins then

    def hollow_like(self, layout: torch.Tensor) -> torch.Tensor:
        """Zeros on the CPU in the layout of a tensor without data; their memory is not mapped."""
        from papergpu.launch import aligned_zeros

        flat = torch.from_numpy(aligned_zeros(max(1, layout.untyped_storage().nbytes())))
        place = layout.storage_offset(), layout.shape, layout.stride()
        made = torch.empty(0, dtype=layout.dtype).set_(flat.untyped_storage(), *place)
        self._held[made.untyped_storage().data_ptr()] = made
        return made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        told = kwargs or {}
        if self.unread and getattr(func, "__name__", "") in READS:
            raise ValueRead
        if func in (torch.randn, torch.rand, torch.zeros):
            undrawn = {"device": "meta"} | dict.fromkeys({"generator"} & {*told})
            shape = func(*args, **(told | undrawn))
            if shape.is_floating_point() and shape.untyped_storage().nbytes() >= DRAWN_BYTES:
                return self.hollow_like(shape)
        elif found := self._hollow_result(func, args, told):
            return found[0]
        return func(*args, **told)

    def _hollow_result(self, func: Any, args: Any, told: Any) -> tuple[Any] | None:
        """A function's result on hollow tensors; None if it has to be called."""
        given, form = tree_flatten((args, told))
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        own = isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket)  # may launch
        learns = any(one.requires_grad for one in tensors)
        hollow = any(one.untyped_storage().data_ptr() in self._held for one in tensors)
        if own or learns or not hollow:
            return None
        bare: list[Any] = [_to_meta(one) for one in given]
        try:
            of, by_name = tree_unflatten(bare, form)
            made = func(*of, **by_name)
        except Exception:  # whatever needs data
            return None
        if func is torch.Tensor.__setitem__:
            return (None,) if given[0].is_floating_point() else None
        for one, other in zip(given, bare, strict=True):
            if isinstance(one, torch.Tensor) and made is other:  # which it changed, or left
                return None if made.requires_grad or not one.is_floating_point() else (one,)
        parts, form = tree_flatten(made)
        places = {one.untyped_storage()._cdata for one in bare if isinstance(one, torch.Tensor)}
        for one in parts:
            fresh = isinstance(one, torch.Tensor) and one.is_meta and one.is_floating_point()
            if not fresh or one.untyped_storage()._cdata in places:  # a view is made by asking
                return None
        return (tree_unflatten([self.hollow_like(one) for one in parts], form),) if parts else None


def _to_meta(item: object) -> object:
    """The layout of a tensor, without data; anything else as it is, but that nothing is drawn."""
    if isinstance(item, torch.Tensor):
        return torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="meta")
    return None if isinstance(item, torch.Generator) else item


class CompileInputs:
    """The inputs of a case for compiling: hollow where all are of floating point, unless a wrapper
    reads a value; else drawn as ever, as lengths or pages are, but for large tensors."""

    def __init__(self, proof: Obligations, case: Case) -> None:
        assert proof.inputs is not None
        self._make, self._case = proof.inputs, case
        self._hollow = HollowTensors()
        self._bare: Sequence[object] | None = None
        self._real: Sequence[object] | None = None
        try:
            made = self._make(case, "meta", None)
        except Exception:  # whatever needs data
            return
        tensors = [item for item in made if isinstance(item, torch.Tensor)]
        if all(item.is_floating_point() and item.is_meta for item in tensors):
            hollow = self._hollow.hollow_like
            self._bare = [hollow(one) if isinstance(one, torch.Tensor) else one for one in made]

    def call_function(self, function: Callable[..., object]) -> None:
        """Call a function on them."""
        if self._bare is not None:
            try:
                self._hollow.unread = True
                with self._hollow:
                    function(*self._bare)
                return
            except Exception:  # if it is the wrapper's own, it comes again
                self._bare = None
        self._hollow.unread = False
        with self._hollow:
            if self._real is None:
                self._real = self._make(self._case, "cpu", torch.Generator("cpu").manual_seed(0))
            function(*self._real)


def compile_figures(
    proof: Obligations,
    snippet_id: str,
    *,
    has_cuda: bool,
    archs: tuple[str, ...] = ARCHS,
    needs: dict[str, Any],
) -> list[Row]:
    """The record's "compiled" rows: one by variant, kernel and architecture that NEEDS covers, in
    this order. RuntimeError naming snippet, variant and case if a call or a compilation fails.

    `shared_bytes` is static and dynamic, without what the system reserves.
    """
    rows: dict[tuple[str, str, str], Row] = {}

    def add_row(
        key: tuple[str, str, str], language: str, compiler: str, used: ResourceUsage
    ) -> None:
        # Of all that one kernel compiled to, the most spilled bytes are kept, then registers, then
        # shared memory. Matrix instructions in any of them count.
        row: Row = dict(zip(("variant", "kernel", "arch"), key, strict=True))
        row |= {"language": language, "compiler": compiler, **asdict(used)}
        old = rows.get(key, row)
        weight = ("spilled_bytes", "registers", "shared_bytes")
        worst = max(old, row, key=lambda each: [each[name] for name in weight])
        matrix = old["matrix_instructions"] or used.matrix_instructions
        rows[key] = {**worst, "matrix_instructions": matrix}

    recorder = LaunchRecorder(archs[0])
    with recorder.recording(has_cuda):
        for case, variants in plan_calls(proof):
            inputs = None
            for variant, arch in itertools.product(variants, archs):
                if not is_covered(needs, variant, sm_version(arch)):
                    continue
                inputs = inputs or CompileInputs(proof, case)
                recorder.variant, recorder.arch = variant, arch
                recorder.kernels.clear()
                try:
                    inputs.call_function(proof.variants[variant])
                    for name, kernel in recorder.kernels:
                        add_row((variant, name, arch), "Triton", *_kernel_usage(kernel, arch))
                except Exception as error:
                    raise RuntimeError(
                        f"{snippet_id}: {variant} did not compile for {arch} on {case}: "
                        f"{type(error).__name__}: {error}"
                    ) from error
    for (source, arch), names in recorder.asked.items():
        for name, compiler, used in _source_usage(source, list(names), arch):
            for variant, (shared, _, _) in names[name].items():
                whole = used.with_dynamic(shared)
                add_row((variant, name, arch), "CUDA C++", compiler, whole)
    order = list(proof.variants)
    places = {key: (order.index(key[0]), key[1], archs.index(key[2])) for key in rows}
    return [rows[key] for key in sorted(rows, key=places.__getitem__)]


def plan_calls(proof: Obligations) -> list[tuple[Case, list[str]]]:
    """Cases to call, each with the variants that share its inputs: of each form (dtype, pass and
    so on) the largest of TIMED of at most CASE_BYTES, and of CASES too where there is none."""
    chosen: dict[str, tuple[Case, list[str]]] = {}
    sizes: dict[str, int] = {}

    def case_bytes(case: Case) -> int:
        if repr(case) not in sizes:
            sizes[repr(case)] = int(costs.estimate_cost(proof, case)["bytes"])
        return sizes[repr(case)]

    for variant in proof.variants:
        for cases in (proof.timed, proof.cases):
            best: dict[object, Case] = {}
            mine = [case for case in cases if variant in proof.variants_for(case)]
            for case in mine:
                form = case_form(case)
                if CASE_BYTES >= case_bytes(case) >= case_bytes(best.get(form, case)):
                    best[form] = case
            for case in best.values():
                chosen.setdefault(repr(case), (case, []))[1].append(variant)
            if best and all(case_form(case) in best for case in mine):
                break
    return list(chosen.values())


def broken_limits(rows: list[Row], limits: Mapping[str, Mapping[str, int]]) -> list[str]:
    """One line for each figure over its limit in LIMITS, and for each key that fits no kernel: a
    kernel's name, with or without template arguments, or "*" for all. Figures of views are left to
    who makes those."""
    lines = []
    for key, bounds in limits.items():
        mine = [row for row in rows if key in ("*", row["kernel"], row["kernel"].split("<")[0])]
        if not mine:
            kernels = ", ".join(sorted({row["kernel"] for row in rows})) or "none"
            what = f"LIMITS names the kernel {key!r}, but those compiled are {kernels}"
            lines.append(f"{what}; name one of them")
        known = ((row, name) for name in bounds if name in MENDS for row in mine)
        for row, name in known:
            value, limit = row[name], bounds[name]
            exact = name == "matrix_instructions"
            if value != limit if exact else value > limit:
                verb = "differs from" if exact else "exceeds the limit"
                lines.append(
                    f"{row['kernel']} ({row['variant']}) on {row['arch']}: {name} = {value} "
                    f"{verb} {limit}; {MENDS[name]}, or change LIMITS"
                )
    return lines

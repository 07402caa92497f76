"""Every wrong call of a kernel is right or refused in one line: no garbage, no message of another.

Takes 15 s. Of all calls it is tried whether they are refused before anything is launched; some are
executed, and by the exhaustive test all. Each call that is neither is printed.

A call is sound if its result is right, or if it is refused: by a ValueError or a TypeError of one
line that begins with the snippet's name, and says what is wrong and, behind a semicolon, the mend.
Layouts are left out: `worker.verify` draws views of every case.
"""

from __future__ import annotations

import importlib
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from conftest import snippets_of_the_shelf

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")
resource = pytest.importorskip("resource")  # which Windows has not

from snippets import cuda  # noqa: E402
from warpshelf.contract import architectures, values  # noqa: E402
from warpshelf.contract.snippet import Snippet  # noqa: E402
from warpshelf.contract.values import Case, Obligations  # noqa: E402
from warpshelf.records import claim_check  # noqa: E402
from warpshelf.worker import accuracy, costs, verify  # noqa: E402
from warpshelf.worker.accuracy import WrongResult  # noqa: E402
from warpshelf.worker.watch import CallWatch  # noqa: E402

if torch.cuda.is_available():
    pytest.skip("what reads past an end would take the GPU down", allow_module_level=True)

# Wrong calls of a snippet's variants, made of its own smallest cases, and what each comes to.

TARGET = claim_check.MAIN
DTYPES = (torch.float64, torch.float32, torch.float16, torch.int32, torch.int64)
NUMBERS = (0, -1, 2**31)


class Wrong(NamedTuple):
    """A value made wrong: of which kind that is, how, and what a refusal says of it, as a pattern.

    The kind is one of: dtype, shape, dimensions, device, number.
    """

    kind: str
    how: str
    value: Any
    said: str


class WrongCall(NamedTuple):
    """A call of a variant on a case, one of whose inputs is wrong."""

    variant: str
    case: Case
    index: int
    wrong: Wrong
    inputs: Sequence[Any]

    @property
    def place(self) -> str:
        """Which input is wrong, and of which kind that is."""
        return f"{self.index} {self.wrong.kind}"

    def __str__(self) -> str:
        return f"{self.variant!r} on {self.case}, its input {self.index} {self.wrong.how}"


def read_proof(one: Snippet) -> Obligations:
    """What a snippet's cases.py says."""
    cases = importlib.import_module(f"snippets.{one.id}.cases")
    return values.read_obligations(cases, one.kind, one.needs)


def make_wrong(value: object) -> Iterator[Wrong]:
    """An input in every way wrong."""
    if type(value) is int:
        for number in NUMBERS:
            if number != value:
                yield Wrong("number", f"= {number}", number, str(number))
    if not isinstance(value, torch.Tensor):
        return
    for dtype in DTYPES:
        if dtype is not value.dtype:
            name = str(dtype).removeprefix("torch.")
            yield Wrong("dtype", f"of {name}", value.to(dtype), name)
    for dim, size in enumerate(value.shape):
        if size > 1:
            short = value.narrow(dim, 0, size - 1).clone(memory_format=torch.contiguous_format)
            yield Wrong("shape", f"one shorter in dimension {dim}", short, r"\d")
    yield Wrong("dimensions", "of a dimension more", value[None], r"\d")
    yield Wrong("device", "on another device", value.to("meta"), "meta")


def smallest_cases(proof: Obligations, variant: str) -> list[int]:
    """The numbers of a variant's smallest cases: one of each form that its inputs take."""
    found: dict[object, tuple[int, int]] = {}
    for index, case in enumerate(proof.cases):
        if variant in proof.variants_for(case):
            inputs = draw_inputs(proof, index)
            form = tuple(
                x.ndim if torch.is_tensor(x) else x if isinstance(x, str) else type(x)
                for x in inputs
            )
            size = sum(x.numel() for x in inputs if torch.is_tensor(x))
            if size and (form not in found or size < found[form][0]):
                found[form] = size, index
    return [index for _, index in found.values()]


def draw_inputs(proof: Obligations, index: int) -> tuple[Any, ...]:
    """The inputs of a case, of one's own."""
    assert proof.inputs is not None
    return proof.inputs(proof.cases[index], "cpu", torch.Generator().manual_seed(index))


def list_calls(one: Snippet, proof: Obligations) -> list[WrongCall]:
    """Every wrong call of a snippet."""
    sm = architectures.sm_version(TARGET)
    return [
        WrongCall(
            name, proof.cases[index], at, wrong, (*inputs[:at], wrong.value, *inputs[at + 1 :])
        )
        for name in proof.variants
        if not claim_check.skip_reason(one.needs, name, sm, on_cpu=True)
        for index in smallest_cases(proof, name)
        for inputs in [draw_inputs(proof, index)]
        for at, value in enumerate(inputs)
        for wrong in make_wrong(value)
    ]


@contextmanager
def dropped_launches() -> Iterator[list[object]]:
    """Note each launch, of Triton and of CUDA C++, in place of compiling and executing it; what it
    would write holds NaN, or 0."""
    noted: list[object] = []

    def note(kernel: object, *_: object, **__: object) -> None:
        noted.append(kernel)

    with pytest.MonkeyPatch.context() as patch, verify.PoisonMode(0):
        patch.setattr(triton.runtime.jit.JITFunction, "run", note)
        patch.setattr(cuda, "observer", note)
        yield noted


def refusal_flaw(one: Snippet, error: Exception, said: str) -> str | None:
    """What a refusal lacks."""
    text = str(error)
    if verify.out_of_memory(error):
        return None  # which tells nothing of the call
    if type(error) not in (ValueError, TypeError) or not re.match(rf"{one.id}(\.cu)?: ", text):
        return f"{type(error).__name__}: {text}".splitlines()[0][:200]
    if "\n" in text:
        return f"says more than a line: {text!r}"
    if "; " not in text:
        return f"names no mend: {text}"
    if not re.search(said, text):
        return f"does not say {said}: {text}"
    return None


def call_flaw(one: Snippet, proof: Obligations, call: WrongCall, execute: bool) -> str | None:
    """What is wrong with a call, if it is neither right nor refused.

    Without `execute` no kernel runs: of a call that launches some, only what the reference refuses
    is found wrong.
    """
    function = proof.variants[call.variant]
    with dropped_launches() as launched:
        try:
            function(*call.inputs)
        except Exception as error:
            flaw = refusal_flaw(one, error, call.wrong.said)
            if flaw is None or not launched:  # of what was never written anything may come
                return flaw
    if any(torch.is_tensor(x) and x.device.type == "meta" for x in call.inputs):
        return "is not refused, and there is nothing to read"
    try:
        assert proof.reference is not None
        refs = verify.reference_truth(proof.reference, call.inputs)
    except WrongResult:
        return None  # NaN, which nothing can be compared with
    except Exception as error:
        if verify.out_of_memory(error):
            return None
        return f"is not refused, though the reference does: {verify.describe_wrong(error)}"
    if not execute:
        return None
    try:
        check_result(proof, call, refs)
    except WrongResult as wrong:
        return f"is wrong: {wrong}"
    except Exception as error:
        return refusal_flaw(one, error, call.wrong.said)
    return None


def check_result(proof: Obligations, call: WrongCall, refs: Sequence[torch.Tensor]) -> None:
    """Execute a call and compare, as `verify.check_view` does, but in whichever dtypes come: those
    due follow from what the input was. WrongResult if it is wrong in any way."""
    before = verify.input_fingerprints(call.inputs)
    with CallWatch(TARGET).watch_call(), verify.PoisonMode(marks=True):
        outs = accuracy.tensors_of(proof.variants[call.variant](*call.inputs), "it")
    verify.check_untouched(call.inputs, before)
    if len(outs) != len(refs):
        raise WrongResult(f"returned {len(outs)} tensors where {len(refs)} are due")
    unit = costs.declared_cost(proof, call.case).get("unit")
    allowed = max(accuracy.tolerance_of(out.dtype, unit, proof.tolerance) for out in outs)
    for out, ref in zip(outs, refs, strict=True):
        off = accuracy.compare_output(out, ref, out.dtype if ref.is_floating_point() else ref.dtype)
        if not off.relative <= allowed:
            raise WrongResult(f"relative error {off.relative:.2g} over {allowed:g}")


# Which are tried, and which are known to be neither right nor refused.

KERNELS = [one for one in snippets_of_the_shelf() if one.kind == "kernel"]
ROOM = 3 * 2**30  # bytes; what 2**31 elements take shall be refused at once

# What is neither, by snippet: of which kind the mistake is, and in which inputs. An entry that is
# no longer true fails, and is struck out.
Entries = dict[str, dict[str, tuple[int, ...]]]
OPEN: Entries = {  # records of a GPU hold for their code: mend them when they are measured again
    "blas_fusion": {"shape": (1, 2, 3, 4, 5, 6, 7), "dimensions": (2, 3, 4, 5, 6, 7)},  # no mend
    "conv1d": {"shape": (1, 2, 3, 5, 6), "dimensions": (2, 3, 5, 6), "number": (4,)},  # no mend
    "matmul_languages": {"device": (0, 1)},  # launched
    "rope": {"number": (6,)},  # an offset past the tables reads past their end
    "softmax": {"device": (1, 2), "shape": (1, 2), "dimensions": (2,)},  # y and dy of two shapes
    "stream": {"dtype": (1, 2), "shape": (1, 2), "dimensions": (1, 2), "number": (3,)},  # launched
}
UNTOLD: Entries = {  # no check on the host can tell
    "flash_attention": {"number": (3, 4)},  # backward, out and lse are those of another window
    "flash_varlen": {"number": (3, 4)},
    "mla_decode": {"shape": (1,)},  # the table, which is on the GPU, names more pages
}


@pytest.fixture(autouse=True)
def _small_machine() -> Iterator[None]:
    """A thread, and memory for nothing that is large."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    torch.set_num_threads(threads)


def listed_places(entries: Entries, one: Snippet) -> set[str]:
    """The places of a snippet's calls that are listed."""
    listed = entries.get(one.id, {}).items()
    return {f"{index} {kind}" for kind, indices in listed for index in indices}


def check_calls(one: Snippet, share: float, listed: set[str]) -> None:
    """See that of a snippet's wrong calls only those listed above are neither right nor refused.

    A share of them, drawn at random, is executed; and of each place that is `listed` as many as it
    takes to see that the entry is true.
    """
    proof, flaws, draw = read_proof(one), dict[str, list[str]](), random.Random(one.id)
    for call in list_calls(one, proof):
        drawn = draw.random() < share
        if call.place in listed and call.place in flaws:
            continue
        if flaw := call_flaw(one, proof, call, drawn or call.place in listed):
            flaws.setdefault(call.place, []).append(f"{one.id}, {call}, {flaw}")
    known = listed_places(OPEN, one) | listed_places(UNTOLD, one)
    new = [line for place in flaws.keys() - known for line in flaws[place]]
    assert not new, "\n".join(["neither right nor refused:", *sorted(new)])
    assert not listed - flaws.keys(), "mended: strike it out"


@pytest.mark.filterwarnings("ignore::UserWarning")  # what references meet in wrong inputs
@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_wrong_calls_are_right_or_refused(one: Snippet) -> None:
    check_calls(one, 0.01, listed_places(OPEN, one))


@pytest.mark.exhaustive("all wrong calls, executed")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_all_wrong_calls_executed_are_right_or_refused(one: Snippet) -> None:
    check_calls(one, 1, listed_places(OPEN, one) | listed_places(UNTOLD, one))

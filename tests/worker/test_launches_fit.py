"""What a block takes, against what an SM of an architecture has."""

from __future__ import annotations

import re

import pytest
import torch

from warpshelf.bench.compiling import ARCHS
from warpshelf.contract.values import Obligations
from warpshelf.look import figures
from warpshelf.worker import verify
from warpshelf.worker.context import JobContext
from warpshelf.worker.launch_limits import MOST, ArchitectureFit, Launch, limit_memory

# The most shared memory of a block, in KiB, from the CUDA C++ Programming Guide's table of
# technical specifications by compute capability.
MOST_SHARED = {
    "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227,
    "sm_103": 227, "sm_120": 99,
}  # fmt: skip


def test_every_architecture_has_its_limit() -> None:
    assert set(ARCHS) == MOST_SHARED.keys() <= figures.SMS.keys()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_block_may_have_so_much_shared_memory_and_no_byte_more(arch: str) -> None:
    most = MOST_SHARED[arch] * 1024
    assert Launch("k", 128, most).refusal_reason(arch) is None
    said = Launch("k", 128, most + 1).refusal_reason(arch)
    assert said == (
        f"k takes {most + 1:,} bytes of shared memory a block, and {arch} gives at most {most:,}"
    )


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        (Launch("k", 1024, 0, registers=64), None),
        (Launch("k", 1024, 0, registers=65), "65 registers in each of 1024 threads"),
        (Launch("k", 256, 0, registers=255), None),
        (Launch("k", 288, 0, registers=255), "too few registers for one block"),
        (Launch("k", 1056, 0, registers=8), "too few threads for one block"),
        (Launch("k", 128, 0, tensor=512), None),
        (Launch("k", 128, 0, tensor=1024), "1024 of 512 columns of tensor memory"),
    ],
)
def test_registers_threads_and_tensor_memory(launch: Launch, said: str | None) -> None:
    found = launch.refusal_reason("sm_100")
    assert found is None if said is None else re.search(said, found or "")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        ("k.cu(3): error: no such name\nmore", "no such name"),
        ("k.cu(3): error:  ", "raised RuntimeError: k.cu(3): error:"),  # of which nothing is said
    ],
)
def test_what_does_not_compile_is_a_miss_whatever_is_said(raised: str, said: str) -> None:
    def raise_given(x: torch.Tensor) -> None:
        raise RuntimeError(raised)

    context = JobContext({"arch": "sm_90"}, lambda message: None)
    context.proof = Obligations(
        variants={"v": raise_given}, inputs=lambda case, device, generator: (torch.ones(case["n"]),)
    )
    fit = ArchitectureFit(context)
    fit.call_case({"n": 3}, ["v"])
    assert fit.misses == {"v": [f"on case {{'n': 3}}: {said}"]}


def test_inputs_beyond_the_limit_are_not_made() -> None:
    with limit_memory():
        torch.empty(2**20)
        with pytest.raises(RuntimeError) as caught:
            torch.empty(MOST + 2**26, dtype=torch.uint8)
    assert verify.out_of_memory(caught.value)
    torch.empty(MOST + 2**26, dtype=torch.uint8)  # nothing touches it

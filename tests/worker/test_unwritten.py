"""A kernel that reads fresh memory is found out; what torch has written raises no alarm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import papergpu
import pytest
import torch

from snippets import cuda
from warpshelf.worker.verify import PoisonMode

Tensor = torch.Tensor
KERNELS = """__global__ void read(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = x[i];  // line 3
}
__global__ void even(float* x, int n) {
    const int i = threadIdx.x;
    if (i < n && i % 2 == 0) x[i] = 1;
}
"""
N = 32


@pytest.fixture(scope="module")
def kernel_source(tmp_path_factory: pytest.TempPathFactory) -> cuda.Source:
    path = tmp_path_factory.mktemp("kernels") / "kernels.cu"
    path.write_text(KERNELS)
    return cuda.Source(path)


def launch_read(source: cuda.Source, x: Tensor) -> Tensor:
    y = torch.zeros(N)
    source.launch("read", 1, 32, x, y, np.int32(N))
    return y


FRESH: dict[str, Callable[[], Tensor]] = {
    "empty": lambda: torch.empty(N),
    "empty_like": lambda: torch.empty_like(torch.ones(N)),
    "new_empty": lambda: torch.ones(1).new_empty(N),
    "empty_strided": lambda: torch.empty_strided((N,), (1,)),
    "a view": lambda: torch.empty(2, N)[1],
    "of other shape": lambda: torch.empty(4, N // 4).view(-1).detach(),
    "whose properties were asked": lambda: ask_properties(torch.empty(N)),
    "in inference mode": lambda: make_inferred(),
}


def ask_properties(x: Tensor) -> Tensor:
    assert x.shape == (N,) and x.stride() == (1,) and x.data_ptr() and x.is_contiguous()
    assert x.dtype is torch.float32 and torch.zeros_like(x).sum() == 0
    return x


@torch.inference_mode()
def make_inferred() -> Tensor:
    return torch.empty(N)


@pytest.mark.parametrize("made", FRESH)
def test_reading_what_nobody_wrote_is_found_with_its_line(
    kernel_source: cuda.Source, made: str
) -> None:
    with PoisonMode(marks=True):
        x = FRESH[made]()
        with pytest.raises(papergpu.Finding, match=r"read at kernels.cu:3, .*argument 0.*nobody"):
            launch_read(kernel_source, x)


def test_what_a_kernel_wrote_may_be_read_and_no_more(kernel_source: cuda.Source) -> None:
    with PoisonMode(marks=True):
        x = torch.empty(N)
        kernel_source.launch("even", 1, 32, x, np.int32(N))
        with pytest.raises(papergpu.Finding, match=r"thread \(1, 0, 0\): reads"):
            launch_read(kernel_source, x)
        assert (
            launch_read(kernel_source, torch.as_strided(x, (1,), (1,)).expand(1).repeat(N)).sum()
            == N
        )


def test_without_marks_poison_is_all(kernel_source: cuda.Source) -> None:
    with PoisonMode():
        assert launch_read(kernel_source, torch.empty(N)).isnan().all()


WRITES: dict[str, Callable[[Tensor], object]] = {
    "fill_": lambda x: x.fill_(1),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(torch.ones(N)),
    "a slice": lambda x: x[: N // 2].fill_(1),
    "setitem": lambda x: x.__setitem__(slice(None), 1),
    "out": lambda x: torch.mul(torch.ones(N), 2, out=x),
    "out of several": lambda x: torch.max(
        torch.ones(N, 2), 1, out=(x, torch.zeros(N, dtype=torch.int64))
    ),
    "random": lambda x: x.normal_(),
    "numpy": lambda x: x.numpy().fill(1),
    "data": lambda x: x.data.fill_(1),
    "a storage": lambda x: torch.empty(0).set_(x.untyped_storage()).fill_(1),
    "a list": lambda x: torch._foreach_add_([x], 1),
    "inference mode": lambda x: fill_in_inference(x),
    "dlpack": lambda x: torch.from_dlpack(x).fill_(1),
    "another dtype": lambda x: x.view(torch.int32).fill_(0),
    "index_put_": lambda x: x.index_put_((torch.arange(N),), torch.ones(N)),
}


@torch.inference_mode()
def fill_in_inference(x: Tensor) -> None:
    x.fill_(1)


@pytest.mark.parametrize("how", WRITES)
def test_what_torch_may_have_written_is_no_alarm(kernel_source: cuda.Source, how: str) -> None:
    with PoisonMode(marks=True):
        x = torch.empty(N)
        WRITES[how](x)
        launch_read(kernel_source, x)
    if how == "dlpack":
        return  # tensors of inference mode are not handed on
    with PoisonMode(marks=True), torch.inference_mode():
        x = torch.empty(N)  # counts no writes
        WRITES[how](x)
        launch_read(kernel_source, x)


def test_memory_that_is_kept_may_be_written_between_calls(kernel_source: cuda.Source) -> None:
    with PoisonMode(marks=True):
        x = torch.empty(N)
    x.fill_(1)
    with PoisonMode(marks=True):
        assert launch_read(kernel_source, x).sum() == N


def test_nothing_and_meta_tensors_are_left_alone() -> None:
    with PoisonMode(marks=True):
        assert torch.empty(0, 3).shape == (0, 3)
        assert torch.empty(2, device="meta").shape == (2,)
        assert torch.add(torch.empty(2, device="meta"), 1).shape == (2,)
        assert torch.empty(2, dtype=torch.bool).numel() == 2

"""The GPU's side of timing, on a timeline in place of a device."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from simulated import Fake, Timeline, Torch, posix, smi

from warpshelf.worker import gpu, timing
from warpshelf.worker.gpu import MOST_PASSES, CudaClock
from warpshelf.worker.timing import FEWEST, Summary, Untimed

__all__ = ["smi"]

UUID = "22222222-d72c-4106-c12f-20bd9faed9f6"
FLUSH = 1e-4  # seconds of one pass


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    """The timeline that the clock runs on."""
    line = Timeline()
    monkeypatch.setattr(gpu, "torch", Torch(line, FLUSH, UUID))
    return line


def kernels(line: Timeline, count: int, host: float, device: float) -> Callable[[], object]:
    """A call that launches `count` kernels."""

    def call() -> None:
        for _ in range(count):
            line.enqueue(host, device)

    return call


def test_a_call_enqueued_within_the_flush_is_held(line: Timeline) -> None:
    sample = CudaClock().measure(kernels(line, 1, 2e-5, 5e-5))
    assert sample.held
    assert sample.seconds == pytest.approx(5e-5)


def test_a_call_that_outlasts_the_flush_is_void_and_the_next_flush_longer(line: Timeline) -> None:
    clock, call = CudaClock(), kernels(line, 20, 2e-5, 1e-6)  # 400 µs of enqueueing, 20 of work
    first, *later = (clock.measure(call) for _ in range(6))
    assert not first.held
    assert first.seconds > 1e-4  # mostly the wait for the host
    assert clock.passes == 8 and later[-1].held
    assert later[-1].seconds == pytest.approx(2e-5)


def test_a_call_that_waits_for_the_device_is_never_held(line: Timeline) -> None:
    def call() -> None:
        line.enqueue(1e-5, 5e-5)
        line.synchronize()
        line.enqueue(1e-5, 5e-5)

    clock = CudaClock()
    found = timing.interleave({"waits": call}, clock, warm_up=0)
    assert isinstance(found["waits"], Untimed)
    assert clock.passes == MOST_PASSES


def test_every_published_sample_is_held(line: Timeline) -> None:
    calls = {"quick": kernels(line, 1, 1e-5, 5e-5), "many": kernels(line, 40, 2e-5, 1e-6)}
    found = timing.interleave(calls, CudaClock(), warm_up=0)
    quick, many = found["quick"], found["many"]
    assert isinstance(quick, Summary) and isinstance(many, Summary)
    assert quick.median == pytest.approx(5e-5) and many.median == pytest.approx(4e-5)
    assert many.p80 == pytest.approx(4e-5)  # none with a wait among them
    assert min(quick.n, many.n) >= FEWEST


def test_the_flush_only_reads(line: Timeline) -> None:
    clock = CudaClock()
    clock.measure(kernels(line, 1, 1e-5, 1e-5))
    assert set(gpu.torch.written) == {clock.total}  # a single number
    assert clock.total == "result of (1,)" and clock.buffer == f"buffer of {gpu.FLUSH // 4}"


@posix
def test_the_machine_is_described_by_the_gpu_that_torch_uses(line: Timeline, smi: Fake) -> None:
    smi.machine(["11111111-d72c-4106-c12f-20bd9faed9f6", UUID], "570.1")
    found = gpu.describe()
    assert (found["driver"], found["slug"], found["sm"]) == ("570.1", "imaginary-g9", 90)
    assert f"-i GPU-{UUID}" in smi.arguments and "-i 0" not in smi.arguments


@pytest.mark.parametrize("chosen", ["none", "ieee", "tf32"])
def test_the_precision_of_products_is_set_and_put_back(chosen: str) -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        matmul.fp32_precision = chosen  # as a snippet may; allow_tf32 then raises
        if chosen == "tf32":
            with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
                _ = matmul.allow_tf32
        for wanted in ("tf32", "ieee"):
            with gpu.matmul_precision(wanted):
                assert matmul.fp32_precision == wanted
            assert matmul.fp32_precision == chosen
    finally:
        matmul.fp32_precision = before


def test_a_snippet_may_use_the_older_setting() -> None:
    matmul = torch.backends.cuda.matmul
    try:
        matmul.allow_tf32 = True
        with gpu.matmul_precision("ieee"):
            assert matmul.fp32_precision == "ieee"
        assert matmul.allow_tf32 is True  # and it can be read again
    finally:
        matmul.allow_tf32 = False
        matmul.fp32_precision = "none"

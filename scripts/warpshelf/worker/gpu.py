"""The GPU's side of timing: events, a cold cache, and the ceilings measured in the same run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from warpshelf.records import limits, machine
from warpshelf.worker import timing
from warpshelf.worker.driver import Driver
from warpshelf.worker.timing import Sample, Summary

FLUSH = 256 * 2**20  # bytes read between calls: at least twice the largest L2
MOST_PASSES = 32  # of the flush, while the host takes longer to enqueue a call
COPY = 2**30  # bytes of the array whose copy measures the bandwidth
PRODUCT = 8192  # side of the square product which measures the matrix rate
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def describe() -> dict[str, Any]:
    """This machine as a record has it."""
    found = {**machine.plain(), "torch": str(torch.__version__).split("+")[0]}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "slug": machine.slug(properties.name),
            "device": properties.name,
            "gpus": torch.cuda.device_count(),
            "memory_bytes": properties.total_memory,
            "sm": properties.major * 10 + properties.minor,
            "sms": properties.multi_processor_count,
            "driver": driver().version(),
            "cuda": torch.version.cuda,
        }
    return found


def driver() -> Driver:
    """What NVIDIA's driver says of the GPU that torch uses."""
    return Driver(str(torch.cuda.get_device_properties(0).uuid))


def _event() -> Any:
    events: Any = torch.cuda  # torch leaves the arguments of Event untyped
    return events.Event(enable_timing=True)


class CudaClock:
    """Times one call by CUDA events, with a cold L2 cache.

    The flush only reads: it leaves in the cache nothing that would have to be written back while
    the call runs. It also keeps the GPU busy while the host enqueues the call. Whether that was
    long enough is seen from the first event: had the GPU reached it before the host was done, it
    might have waited for the host between the events, and the sample is not held. Then the next
    flush takes twice as many passes, up to MOST_PASSES.
    """

    def __init__(self) -> None:
        self.buffer = torch.ones(FLUSH // 4, dtype=torch.int32, device="cuda")
        self.total = torch.empty((1,), dtype=torch.int64, device="cuda")
        self.passes = 1

    def measure(self, call: Callable[[], object]) -> Sample:
        """Seconds between the events around `call`; held if the GPU never waited for the host."""
        start, end = _event(), _event()
        for _ in range(self.passes):
            torch.sum(self.buffer, dim=0, keepdim=True, out=self.total)
        start.record()
        call()
        end.record()
        held = not start.query()
        end.synchronize()
        if not held:
            self.passes = min(2 * self.passes, MOST_PASSES)
        return Sample(float(start.elapsed_time(end)) / 1e3, held)


def ceilings(clock: timing.Clock, description: dict[str, Any], units: set[str]) -> dict[str, Any]:
    """What this GPU does now: a large copy, a large matrix product in each unit, and its peaks.

    Rates in bytes and FLOPs per second. Units without a plain torch product (fp8) are left out, and
    so is what could not be timed.
    """
    bus_bits = getattr(torch.cuda.get_device_properties(0), "memory_bus_width", None)
    found = limits.peaks(description, bus_bits, *driver().highest_clocks())
    if rate := _copy_rate(clock):
        found["copy_bytes_per_second"] = rate
    rates = {unit: _product_rate(clock, unit) for unit in sorted(units & limits.PRODUCT_UNITS)}
    found["matrix_flops_per_second"] = {unit: rate for unit, rate in rates.items() if rate}
    return {key: _rounded(value) for key, value in found.items()}


def _copy_rate(clock: timing.Clock) -> float | None:
    source = torch.randint(0, 255, (COPY,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = timing.interleave({"copy": lambda: target.copy_(source)}, clock)["copy"]
    return 2 * COPY / copy.median if isinstance(copy, Summary) else None


def _product_rate(clock: timing.Clock, unit: str) -> float | None:
    dtype = DTYPES.get(unit, torch.float32)
    a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=dtype) for _ in range(2))
    with matmul_precision("tf32" if unit == "tf32" else "ieee"):
        product = timing.interleave({unit: lambda: a @ b}, clock)[unit]
    return 2 * PRODUCT**3 / product.median if isinstance(product, Summary) else None


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Have float32 products on the GPU computed in "ieee" or "tf32", then as before.

    The older `allow_tf32` is not even read: it raises once a snippet has set `fp32_precision`.
    """
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        yield
    finally:
        matmul.fp32_precision = before


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.4g}")

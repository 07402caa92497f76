"""The GPU's side of timing: events, a cold cache, and the ceilings measured in the same run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from warpshelf import machine, timing

FLUSH = 256 * 2**20  # bytes written between calls: several times the largest L2
COPY = 2**30  # bytes of the array whose copy measures the bandwidth
PRODUCT = 8192  # side of the square product which measures the matrix rate
PRODUCT_UNITS = {"fp32", "tf32", "fp16", "bf16"}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class CudaClock:
    """Times one call by CUDA events, with the L2 cache overwritten before it.

    The flush also keeps the GPU busy while the host enqueues the call, so the time holds no wait
    for the host.
    """

    def __init__(self) -> None:
        self.flush = torch.empty(FLUSH, dtype=torch.uint8, device="cuda")

    def measure(self, call: Callable[[], object]) -> float:
        """Seconds between the events around `call`."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.flush.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3


def ceilings(clock: timing.Clock, description: dict, units: set[str]) -> dict:
    """What this GPU does now: a large copy, a large matrix product in each unit, and its peaks.

    Rates in bytes and FLOPs per second. Units without a plain torch product (fp8) are left out.
    """
    bus_bits = getattr(torch.cuda.get_device_properties(0), "memory_bus_width", None)
    found = {
        "copy_bytes_per_second": _copy_rate(clock),
        "matrix_flops_per_second": {
            unit: _product_rate(clock, unit) for unit in sorted(units & PRODUCT_UNITS)
        },
        **machine.peaks(description, bus_bits),
    }
    return {key: _rounded(value) for key, value in found.items()}


def _copy_rate(clock: timing.Clock) -> float:
    source = torch.randint(0, 255, (COPY,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = timing.interleave({"copy": lambda: target.copy_(source)}, clock)["copy"]
    return 2 * COPY / copy.median


def _product_rate(clock: timing.Clock, unit: str) -> float:
    dtype = DTYPES.get(unit, torch.float32)
    a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=dtype) for _ in range(2))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = unit == "tf32"
    try:
        product = timing.interleave({unit: lambda: a @ b}, clock)[unit]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    return 2 * PRODUCT**3 / product.median


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return float(f"{value:.4g}")  # type: ignore[str-bytes-safe]

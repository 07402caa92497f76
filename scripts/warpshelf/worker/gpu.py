"""A GPU: what NVIDIA's driver says about it (it is read, never set), the clock that times calls on
it with a cold cache, and its ceilings, which are measured in the same run.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from time import perf_counter
from typing import Any
from weakref import WeakKeyDictionary

import torch

from warpshelf.records import ledger, limits
from warpshelf.worker import timing
from warpshelf.worker.timing import Sample, Summary

PATIENCE = 20.0  # seconds for nvidia-smi, which may hang where a driver is ill
INTERVAL = 200  # milliseconds between two readings under load
LISTED = re.compile(r"\(UUID: (?:MIG-GPU|GPU|MIG)-(?P<uuid>[0-9a-fA-F-]+)")
REASON_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")  # since R535; old
FIELDS = ("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")


def run_smi(*words: str) -> list[str]:
    """The lines that nvidia-smi prints; none if it is missing or does not answer."""
    command = ["nvidia-smi", *words]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return answer.stdout.decode(errors="replace").strip().splitlines()


def _parse_number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        if math.isfinite(found := float(text)):
            return found
    return None


def decode_reasons(text: str) -> list[str]:
    """The names of the reasons in a bit mask such as 0x0000000000000004."""
    with contextlib.suppress(ValueError):
        bits = int(text, 16)
        return [name for bit, name in limits.REASONS.items() if bits & bit]
    return []


class NvidiaDriver:
    """What nvidia-smi says about the GPU whose uuid CUDA gives, with or without its prefix: their
    numbers of it may differ. That of a MIG slice leads to its GPU, which alone has clocks. A GPU
    that nvidia-smi does not list is not asked about."""

    def __init__(self, uuid: str) -> None:
        self.uuid = re.sub(r"^(?:MIG-GPU|GPU|MIG)-", "", uuid.strip()).lower()

    @cached_property
    def gpu(self) -> str | None:
        """The name of the GPU to nvidia-smi: GPU-…"""
        parent = None
        for line in run_smi("-L"):
            if found := LISTED.search(line):
                if line.startswith("GPU "):
                    parent = f"GPU-{found['uuid']}"
                if found["uuid"].lower() == self.uuid:
                    return parent
        return None

    def query_fields(self, *fields: str) -> list[str] | None:
        """The values of some fields; None if the driver does not give one."""
        if self.gpu is None:
            return None
        lines = run_smi("-i", self.gpu, *_query_options(fields)) or [""]
        return _split_values(lines[0], len(fields))

    def driver_version(self) -> str | None:
        """The driver's version."""
        answer = self.query_fields("driver_version")
        return answer[0] if answer else None

    def highest_clocks(self) -> tuple[float | None, float | None]:
        """The highest clocks of the SMs and of the memory in MHz, each None where not known."""
        sm, memory = self.query_fields("clocks.max.sm", "clocks.max.mem") or ("", "")
        return _parse_number(sm), _parse_number(memory)


def _query_options(fields: tuple[str, ...]) -> list[str]:
    return [f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def _split_values(line: str, count: int) -> list[str] | None:
    values = [value.strip() for value in line.split(",")]
    return values if len(values) == count and any(values) else None


class LoadMonitor:
    """Reads clocks, temperature and power every INTERVAL, by a process that a context keeps. Only
    what was read inside `under_load()` counts: an idle GPU lowers its clocks and cools down."""

    def __init__(self, driver: NvidiaDriver) -> None:
        self.driver = driver
        self.fields: tuple[str, ...] = FIELDS
        self.spans: list[tuple[int, int]] = []  # of the file's bytes, written under load
        self.process: subprocess.Popen[bytes] | None = None
        self.text = b""

    def __enter__(self) -> LoadMonitor:
        self.file = tempfile.TemporaryFile()
        if self.driver.gpu is None:
            return self
        known = (name for name in REASON_FIELDS if self.driver.query_fields(name))
        if field := next(known, None):  # its name depends on the driver
            self.fields = (*FIELDS, field)
        words = ["-i", self.driver.gpu, "-lms", str(INTERVAL), *_query_options(self.fields)]
        no = subprocess.DEVNULL
        command = ["nvidia-smi", *words]
        with contextlib.suppress(OSError):
            self.process = subprocess.Popen(command, stdin=no, stdout=self.file, stderr=no)
        return self

    def __exit__(self, *error: object) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.file.seek(0)
        self.text = self.file.read()
        self.file.close()

    @contextlib.contextmanager
    def under_load(self) -> Iterator[None]:
        """Open while the GPU is under load."""
        start = self._bytes_written()
        try:
            yield
        finally:
            self.spans.append((start, self._bytes_written()))

    def _bytes_written(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def load_conditions(self) -> dict[str, Any]:
        """What a record has of the readings under load: `load` and, if any, `slowed_by`; empty
        where there was none. Clocks in MHz and power in watts are medians."""
        readings, end = [], 0
        for line in self.text.splitlines(keepends=True):
            start, end = end, end + len(line)
            # A line that was begun before the load, or ended after it, is left out.
            whole = any(first <= start and end <= last for first, last in self.spans)
            values = _split_values(line.decode(errors="replace"), len(self.fields))
            if values and whole and line.endswith(b"\n"):
                readings.append(values)
        if not readings:
            return {}
        sm, memory, celsius, watts = (
            [number for text in column if (number := _parse_number(text)) is not None]
            for column in [*zip(*readings, strict=True)][: len(FIELDS)]
        )
        load = {
            "sm_mhz": median(sm) if sm else None,
            "sm_mhz_lowest": min(sm, default=None),
            "memory_mhz": median(memory) if memory else None,
            "celsius_highest": max(celsius, default=None),
            "watts": round(median(watts), 1) if watts else None,
            "readings": len(readings),
        }
        told = len(self.fields) > len(FIELDS)
        names = {name for values in readings if told for name in decode_reasons(values[-1])}
        slowed = [name for name in limits.REASONS.values() if name in names]
        return {"load": load, **({"slowed_by": slowed} if slowed else {})}


FLUSH = 2 * limits.MOST_L2  # bytes written between calls
MOST_PASSES = 32  # of the flush, while the host takes longer to enqueue a call
LATE = 5e-4  # seconds that a device which has nothing to do is waited for at most
PATIENT = 3  # samples in a row not held behind so many, by which a call is known to wait
COPY = 2**30  # bytes of the array whose copy measures the bandwidth
PRODUCT = 8192  # side of the square product which measures the matrix rate
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def machine_description() -> dict[str, Any]:
    """This machine as a record has it."""
    found = {**ledger.describe_host(), "torch": str(torch.__version__).split("+")[0]}
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        found |= {
            "slug": ledger.device_slug(properties.name),
            "device": properties.name,
            "gpus": torch.cuda.device_count(),
            "memory_bytes": properties.total_memory,
            "sm": properties.major * 10 + properties.minor,
            "sms": properties.multi_processor_count,
            "driver": current_driver().driver_version(),
            "cuda": torch.version.cuda,
        }
    return found


def current_driver() -> NvidiaDriver:
    """What NVIDIA's driver says about the GPU that torch uses."""
    return NvidiaDriver(str(torch.cuda.get_device_properties(0).uuid))


class CudaClock:
    """Times one call by CUDA events, with an L2 cache that holds nothing of its own.

    The flush writes, as the work before a kernel does in any program, and keeps the GPU busy while
    the host enqueues the call. Had the GPU reached the first event before the host was done, it
    might have waited for the host between the events, and the sample is not held: the next flush
    before this call has twice as many passes, up to MOST_PASSES. What is not held behind these
    either waits for the GPU inside, or takes longer to enqueue than to run: it is timed on an idle
    GPU, the host's part with it. Work that the device still does behind the last event, the call
    left outside.
    """

    def __init__(self) -> None:
        self.buffer = torch.empty(FLUSH // 4, dtype=torch.int32, device="cuda")
        self.habits: WeakKeyDictionary[timing.Call, _Habit] = WeakKeyDictionary()

    def measure(self, call: timing.Call) -> Sample:
        """Seconds between the events around `call`; held if the GPU never waited for the host."""
        cuda: Any = torch.cuda  # torch leaves the arguments of Event untyped
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        habit = self.habits.setdefault(call, _Habit())
        host = habit.unheld >= PATIENT
        for _ in range(1 if host else habit.passes):
            self.buffer.zero_()
        if host:
            cuda.synchronize()
        start.record()
        call()
        end.record()
        held = not start.query()
        end.synchronize()
        ended = perf_counter()
        cuda.synchronize()
        late = perf_counter() - ended > LATE
        if held or habit.passes == MOST_PASSES:
            habit.unheld = 0 if held else habit.unheld + 1
        else:
            habit.passes *= 2
        return Sample(float(start.elapsed_time(end)) / 1e3, held, host, late)


@dataclass
class _Habit:
    """Of a call: the passes of the flush before it, and samples in a row not held behind most."""

    passes: int = 1
    unheld: int = 0


def measure_ceilings(
    clock: timing.Clock, description: dict[str, Any], units: set[str]
) -> dict[str, Any]:
    """What this GPU does now: a large copy, a large matrix product in each unit but those without a
    plain torch product (fp8), and its peaks, in bytes and FLOPs per second."""
    bus_bits = getattr(torch.cuda.get_device_properties(0), "memory_bus_width", None)
    found = limits.peak_rates(description, bus_bits, *current_driver().highest_clocks())
    if cache := getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0):
        found["l2_bytes"] = min(cache, limits.MOST_L2)
    if rate := _copy_rate(clock):
        found["copy_bytes_per_second"] = rate
    rates = {unit: _product_rate(clock, unit) for unit in sorted(units & limits.PRODUCT_UNITS)}
    found["matrix_flops_per_second"] = {unit: rate for unit, rate in rates.items() if rate}
    return {key: _round_values(value) for key, value in found.items()}


def _copy_rate(clock: timing.Clock) -> float | None:
    source = torch.randint(0, 255, (COPY,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return _call_rate(clock, 2 * COPY, lambda: target.copy_(source))


def _product_rate(clock: timing.Clock, unit: str) -> float | None:
    """Of the faster layout: on an H200 a second operand by columns gave 8 % more in bf16."""
    dtype = DTYPES.get(unit, torch.float32)
    a, b = (torch.randn(PRODUCT, PRODUCT, device="cuda", dtype=dtype) for _ in range(2))
    with matmul_precision("tf32" if unit == "tf32" else "ieee"):
        return _call_rate(clock, 2 * PRODUCT**3, lambda: a @ b, lambda: a @ b.mT)


def _call_rate(clock: timing.Clock, amount: float, *calls: timing.Call) -> float | None:
    found = timing.time_interleaved({str(call): call for call in calls}, clock).values()
    return max((amount / one.median for one in found if isinstance(one, Summary)), default=None)


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Have float32 products on the GPU computed in "ieee" or "tf32", then as before. The older
    `allow_tf32` is not even read: it raises once a snippet has set `fp32_precision`."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = precision
    try:
        yield
    finally:
        matmul.fp32_precision = before


def _round_values(value: object) -> object:
    if isinstance(value, int):
        return value
    if isinstance(value, dict):
        return {key: _round_values(item) for key, item in value.items()}
    return float(f"{value:.4g}")

"""What the host code of kernels asks about its GPU, answered without one."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from papergpu import session
from papergpu.session import Launched

# Bytes of shared memory that a block may ask for.
SHARED = {80: 166_912, 86: 101_376, 87: 166_912, 89: 101_376, 90: 232_448, 100: 232_448,
          103: 232_448, 120: 101_376, 121: 101_376}  # fmt: skip
PROCESSORS = 4  # as %nsmid says


def count_threads(sm: int) -> int:
    """The most threads that an SM holds at once."""
    return 1536 if sm in (86, 87, 89, 120, 121) else 2048


def parse_target(target: str | int) -> int:
    """90 of "sm_90", "sm_90a", "90" and 90.

    Raises:
        ValueError: it is not supported.
    """
    text = str(target).removeprefix("sm_").removesuffix("a")
    if not text.isdigit() or int(text) not in SHARED:
        known = ", ".join(f"sm_{one}" for one in SHARED)
        raise ValueError(f"{target!r} is not a supported target: use one of {known}")
    return int(text)


def device_properties(sm: int) -> Any:
    """What `torch.cuda.get_device_properties` returns."""
    return SimpleNamespace(
        name=f"papergpu sm_{sm}",
        gcnArchName="",  # inductor asks for it where torch was built without CUDA
        major=sm // 10,
        minor=sm % 10,
        total_memory=1 << 34,
        multi_processor_count=PROCESSORS,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=count_threads(sm),
        regs_per_multiprocessor=65_536,
        shared_memory_per_block=49_152,
        shared_memory_per_block_optin=SHARED[sm],
        shared_memory_per_multiprocessor=SHARED[sm] + 1024,
        L2_cache_size=50 << 20,
        clock_rate=1_000_000,
        memory_clock_rate=1_000_000,
        memory_bus_width=1024,
        is_integrated=0,
        is_multi_gpu_board=0,
    )


class Clock:
    """Time as launches make it pass: one millisecond a warp-instruction, the same each time."""

    def __init__(self) -> None:
        self.now = 0

    def advance(self, launched: Launched) -> None:
        self.now += launched.result.steps


class TorchInterface:
    """Just enough of `torch.cuda` for `triton.testing`: events, streams and waiting."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.Stream = SimpleNamespace

    def Event(self, enable_timing: bool = False, **_: Any) -> Event:
        return Event(self._clock)

    def synchronize(self, device: Any = None) -> None:
        """All launches have ended."""

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def current_stream(self, device: Any = None) -> Any:
        return SimpleNamespace(cuda_stream=0)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        yield


class Event:
    """A moment on a clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self.at = clock, 0

    def record(self, stream: Any = None) -> None:
        self.at = self._clock.now

    def synchronize(self) -> None:
        """It has always happened."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds; never none, for they are divided by."""
        return float(max(1, end.at - self.at))


class Benchmarker:
    """Times a call for the tuner: once is enough where every time is the same."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(
        self, call: Callable[[], Any], quantiles: Any = None, return_mode: str = "mean", **_: Any
    ) -> Any:
        before = self._clock.now
        call()
        time = float(max(1, self._clock.now - before))
        if quantiles is not None:
            return [time] * len(quantiles) if len(quantiles) > 1 else time
        return [time] if return_mode == "all" else time


def tuner_patches(tuner: Any) -> Iterator[tuple[Any, str, Any]]:
    """For Triton's class of tuners: unless all are asked for, the first that runs is the best."""
    prune, bench = tuner.prune_configs, tuner._bench
    told: set[str] = set()

    def prune_configs(self: Any, named: Any) -> Any:
        found = prune(self, named)
        self._found = False
        name = self.base_fn.__name__
        if session.current_settings().autotune == "first" and name not in told:
            told.add(name)
            print(f"papergpu: {name} takes the first of {len(found)} configurations that runs; "
                  "--autotune all, or papergpu.settings(autotune='all'), times each",
                  file=sys.stderr)  # fmt: skip
        return found

    def bench_first(self: Any, *given: Any, config: Any, **named: Any) -> list[float]:
        if session.current_settings().autotune == "first" and self._found:
            return [math.inf] * 3
        times: list[float] = bench(self, *given, config=config, **named)
        self._found = times[0] < math.inf
        return times

    yield tuner, "prune_configs", prune_configs
    yield tuner, "_bench", bench_first


def compiler_patches(target: Any, patch: Callable[[Any], None]) -> Iterator[tuple[Any, str, Any]]:
    """torch.compile, whose inductor is loaded and patched once somebody asks for it."""
    import torch

    compile_graph = torch.compile

    def compile_to_triton(*given: Any, **named: Any) -> Any:
        if torch.compile is compile_to_triton:
            patch(inductor_patches(target))
            torch.compile = compile_graph
        return compile_graph(*given, **named)

    yield torch, "compile", compile_to_triton


def inductor_patches(target: Any) -> Iterator[tuple[Any, str, Any]]:
    """For inductor: what it writes for tensors of the CPU is Triton, for a target.

    Of several configurations the first is taken, as its own trials take thousands of runs.
    """
    import triton
    from torch._inductor import config
    from torch._inductor.runtime import triton_helpers, triton_heuristics

    build = triton.compile

    def build_for_target(src: Any, target_given: Any = None, *more: Any, **named: Any) -> Any:
        given = named.pop("target", target_given)
        ours = target if getattr(given, "backend", "") == "cpu" else given
        return build(src, ours, *more, **named)

    yield config, "cpu_backend", "triton"
    yield config, "compile_threads", 1  # other processes have none of this
    yield triton_helpers, "set_driver_to_cpu", lambda: None
    yield triton_heuristics.CachingAutotuner, "bench", lambda *_, **__: 0.0
    yield triton, "compile", build_for_target

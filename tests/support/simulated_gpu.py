"""A GPU machine that is not there: its nvidia-smi, and a timeline in place of its device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

posix = pytest.mark.skipif(sys.platform == "win32", reason="the fake nvidia-smi is a shell script")


class Fake:
    """An nvidia-smi that does what it is told, and notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nvidia-smi"
        self.noted = folder / "arguments"

    def set_script(self, script: str) -> None:
        self.path.write_text(f'#!/bin/sh\necho "$@" >> "{self.noted}"\n{script}\n')
        self.path.chmod(0o755)

    def set_output(self, text: str) -> None:
        (self.path.parent / "answer").write_text(f"{text}\n")
        self.set_script(
            f'while IFS= read -r line; do echo "$line"; done < "{self.path.parent}/answer"'
        )

    def set_machine(self, uuids: list[str], answer: str, valid: str = "event") -> None:
        """Be a machine of such GPUs that says `answer`, one value a field, to whatever is asked.

        `valid` is the word in the one field of reasons that this driver knows.
        """
        folder = self.path.parent
        listed = [f"GPU {i}: Imaginary (UUID: GPU-{uuid})" for i, uuid in enumerate(uuids)]
        (folder / "list").write_text("\n".join(listed) + "\n")
        other = "throttle" if valid == "event" else "event"
        self.set_script(
            f"""
case "$*" in
-L) exec /bin/cat "{folder}/list" ;;
*clocks_{other}_reasons*) echo "Field is not a valid field to query."; exit 2 ;;
*-lms*) while :; do echo "{answer}"; /bin/sleep 0.02; done ;;
*query-gpu=clocks_*) echo "{answer.rpartition(", ")[2]}" ;;
*) echo "{answer}" ;;
esac"""
        )

    @property
    def arguments(self) -> str:
        return self.noted.read_text()


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The only program on the path: nvidia-smi, which does nothing until it is told what."""
    folder = tmp_path / "driver"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return Fake(folder)


class Timeline:
    """A host that enqueues work and a device that does it in order, each at its own time.

    The device has an L2 of `cache` bytes and moves `rate` bytes a second. What is read comes from
    memory, where it is not in the L2; what is written stays there until a later line takes its
    place, which costs the time of its way back. `slowness` is what the clock's state at a time
    multiplies the device's time by.
    """

    def __init__(self, cache: int = 50 * 2**20, rate: float = 3e12) -> None:
        # Seconds; the device's is when its stream will have done all, and another stream its part.
        self.host = self.device = self.other = 0.0
        self.cache, self.rate = cache, rate
        self.dirty = 0.0  # bytes in the L2 that memory does not have yet
        self.slowness: Callable[[float], float] = lambda now: 1.0

    def enqueue_work(self, host: float, device: float) -> None:
        """The host takes `host` to enqueue work that takes the device `device`."""
        self.host += host
        start = max(self.device, self.host)
        self.device = start + device * self.slowness(start)

    def enqueue_beside(self, host: float, device: float) -> None:
        """The same on another stream, for which nothing waits."""
        self.host += host
        self.other = max(self.other, self.host) + device

    def move_bytes(self, read: float, written: float, host: float = 5e-6) -> None:
        """Work of a kernel that moves so many bytes, each once, and finds none in the L2."""
        evicted = min(self.dirty, max(0.0, read + written - (self.cache - self.dirty)))
        kept = min(written, self.cache)
        self.enqueue_work(host, (read + evicted + written - kept) / self.rate)
        self.dirty = self.dirty - evicted + kept

    def wait_for_device(self) -> None:
        self.host = max(self.host, self.device, self.other) + 1e-5


class Event:
    """A CUDA event on a timeline."""

    def __init__(self, line: Timeline) -> None:
        self.line = line
        self.at = 0.0

    def record(self) -> None:
        self.line.enqueue_work(2e-6, 0.0)
        self.at = self.line.device

    def query(self) -> bool:
        return self.line.host >= self.at

    def synchronize(self) -> None:
        self.line.host = max(self.line.host, self.at)

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.at - self.at)


class Buffer:
    """Memory of the device that a flush writes."""

    def __init__(self, line: Timeline, size: int) -> None:
        self.line, self.size = line, size

    def zero_(self) -> None:
        self.line.move_bytes(0, self.size)


class Torch:
    """As much of torch as the clock uses, on a timeline."""

    int32 = SimpleNamespace(itemsize=4)

    def __init__(self, line: Timeline, uuid: str) -> None:
        self.line = line
        device = SimpleNamespace(
            uuid=uuid, name="Imaginary G9", total_memory=2**36, major=9, minor=0,
            multi_processor_count=100, memory_bus_width=5120, L2_cache_size=line.cache,
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(line),
            get_device_properties=lambda index: device,
            is_available=lambda: True,
            device_count=lambda: 1,
            synchronize=line.wait_for_device,
        )
        self.version = SimpleNamespace(cuda="99.0")
        self.__version__ = "2.13.0+cu999"

    def empty(self, count: int, dtype: SimpleNamespace, device: str) -> Buffer:
        return Buffer(self.line, count * dtype.itemsize)

"""A GPU machine that is not there: its nvidia-smi, and a timeline in place of its device."""

from __future__ import annotations

import sys
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
    """A host that enqueues work and a device that does it in order, each at its own time."""

    def __init__(self) -> None:
        self.host = self.device = 0.0  # seconds; the device's is when it will have done all

    def enqueue_work(self, host: float, device: float) -> None:
        """The host takes `host` to enqueue work that takes the device `device`."""
        self.host += host
        self.device = max(self.device, self.host) + device

    def wait_for_device(self) -> None:
        self.host = max(self.host, self.device)


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


class Torch:
    """As much of torch as the clock uses, on a timeline; a pass of its flush takes `flush`."""

    int32 = int64 = None

    def __init__(self, line: Timeline, flush: float, uuid: str) -> None:
        self.line, self.flush = line, flush
        self.written: list[object] = []  # memory that the flush writes to
        device = SimpleNamespace(
            uuid=uuid, name="Imaginary G9", total_memory=2**36, major=9, minor=0,
            multi_processor_count=100, memory_bus_width=5120,
        )  # fmt: skip
        self.cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(line),
            get_device_properties=lambda index: device,
            is_available=lambda: True,
            device_count=lambda: 1,
        )
        self.version = SimpleNamespace(cuda="99.0")
        self.__version__ = "2.13.0+cu999"

    def ones(self, count: int, **more: object) -> str:
        return f"buffer of {count}"

    def empty(self, shape: tuple[int, ...], **more: object) -> str:
        return f"result of {shape}"

    def sum(self, buffer: str, out: str, **more: object) -> None:
        assert buffer.startswith("buffer")
        self.written.append(out)
        self.line.enqueue_work(5e-6, self.flush)

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpshelf import machine, schema
from warpshelf.files import dump, flaw

H100 = {"sm": 90, "sms": 132}
BUS_BITS = 5120

posix = pytest.mark.skipif(sys.platform == "win32", reason="the fake nvidia-smi is a shell script")


class Fake:
    """An nvidia-smi that does what it is told, and notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "nvidia-smi"
        self.noted = folder / "arguments"

    def does(self, script: str) -> None:
        self.path.write_text(f'#!/bin/sh\necho "$@" >> "{self.noted}"\n{script}\n')
        self.path.chmod(0o755)

    def prints(self, text: str) -> None:
        (self.path.parent / "answer").write_text(f"{text}\n")
        self.does(f'while IFS= read -r line; do echo "$line"; done < "{self.path.parent}/answer"')

    @property
    def arguments(self) -> str:
        return self.noted.read_text()


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Fake(tmp_path)


@pytest.mark.parametrize(
    ("device", "slug"),
    [
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("  Tesla  V100-SXM2 ", "tesla-v100-sxm2"),
        ("GeForce RTX™ 4090 (Laptop)", "geforce-rtx-4090-laptop"),
        ("../../x", "x"),
        ("///", "gpu"),
        ("", "gpu"),
        ("x" * 500, "x" * machine.LONGEST_SLUG),
        ("x" * (machine.LONGEST_SLUG - 1) + " y", "x" * (machine.LONGEST_SLUG - 1)),
    ],
)
def test_a_slug_is_a_file_name(device: str, slug: str) -> None:
    assert machine.slug(device) == slug


@given(st.text(max_size=200))
def test_every_slug_is_one_that_a_record_may_have(device: str) -> None:
    assert schema.MACHINE.fullmatch(machine.slug(device))


@posix
def test_the_peaks_of_an_h100(smi: Fake) -> None:
    smi.prints("1980, 2619")
    found = machine.peaks(H100, BUS_BITS)
    assert found["peak_bytes_per_second"] == pytest.approx(3.352e12, rel=1e-3)
    rates = found["peak_flops_per_second"]
    assert rates["bf16"] == rates["fp16"] == pytest.approx(1.0705e15, rel=1e-3)
    # The data sheet's dense figures, at the boost clock of the sheet, lie just below these.
    assert rates["fp32"] == pytest.approx(66.9e12, rel=1e-2)
    assert rates["fp8"] == 2 * rates["fp16"] == 4 * rates["tf32"]
    assert "-i 0" in smi.arguments
    assert "--query-gpu=clocks.max.sm,clocks.max.mem" in smi.arguments


@posix
@pytest.mark.parametrize(
    ("answer", "gpu", "bus_bits", "known"),
    [
        ("1980, 2619", H100, None, {"peak_flops_per_second"}),
        ("1980, 2619", H100 | {"sm": 42}, BUS_BITS, {"peak_bytes_per_second"}),
        ("[N/A], 2619", H100, BUS_BITS, {"peak_bytes_per_second"}),
        ("1980, [Not Supported]", H100, BUS_BITS, {"peak_flops_per_second"}),
        ("nan, inf", H100, BUS_BITS, set()),
        ("0, 0", H100, BUS_BITS, set()),
        ("-1980, -2619", H100, BUS_BITS, set()),
        ("1980", H100, BUS_BITS, set()),
        ("", H100, BUS_BITS, set()),
    ],
)
def test_a_rate_that_is_not_known_is_absent(
    smi: Fake, answer: str, gpu: dict, bus_bits: int | None, known: set[str]
) -> None:
    smi.prints(answer)
    assert machine.peaks(gpu, bus_bits).keys() == known


@posix
def test_the_first_gpu_s_line_is_read(smi: Fake) -> None:
    smi.prints("999.1, one\n888.2, two")
    assert machine.query("driver_version", "name") == ["999.1", "one"]


@posix
@pytest.mark.parametrize(
    "script",
    [
        "exit 9",
        'echo "1, 2, 3, 4"; exit 9',
        "true",
        "echo",
        "printf '\\n\\n'",
        "printf '\\377\\376\\n'",
        "echo No devices were found",
        "echo '1, 2, 3, 4, 5'",
        "kill -9 $$",
    ],
)
def test_an_nvidia_smi_that_gives_no_answer_is_none(smi: Fake, script: str) -> None:
    smi.does(script)
    assert machine.query("clocks.sm", "clocks.mem", "temperature.gpu", "power.draw") is None
    assert machine.conditions() == {}
    assert machine.peaks(H100, BUS_BITS) == {}


@posix
def test_an_nvidia_smi_that_hangs_is_none(smi: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "PATIENCE", 0.2)
    smi.does("exec /bin/sleep 30")
    started = time.monotonic()
    assert machine.query("driver_version") is None
    assert time.monotonic() - started < 10
    assert "driver_version" in smi.arguments


def test_without_nvidia_smi_nothing_is_known(smi: Fake) -> None:
    assert machine.query("driver_version") is None
    assert machine.conditions() == {}
    assert machine.peaks(H100, BUS_BITS) == {}


@posix
def test_an_nvidia_smi_that_may_not_be_run_is_none(smi: Fake) -> None:
    smi.path.write_text("\x7fELF no program")
    smi.path.chmod(0o755)
    assert machine.query("driver_version") is None


@posix
def test_conditions_are_numbers_or_unknown(smi: Fake) -> None:
    smi.prints("1980, 2619, 41, [N/A]")
    found = machine.conditions()
    assert found == {"sm_mhz": 1980, "memory_mhz": 2619, "celsius": 41, "watts": None}
    smi.prints("nan, inf, 41, -inf")
    assert flaw(machine.conditions()) is None
    assert "NaN" not in dump(machine.conditions())


def test_this_machine_is_described_as_a_record_has_it() -> None:
    found = machine.describe()
    assert schema.problem(found, schema.MACHINE_SHAPE, "machine") is None
    assert (found["gpus"] == 0) == (found["slug"] == "cpu")
    cpu = machine.without_gpu(found)
    assert schema.problem(cpu, schema.MACHINE_SHAPE, "machine") is None
    assert (cpu["slug"], cpu["device"], cpu["gpus"], cpu["sm"]) == ("cpu", "CPU", 0, None)
    assert cpu["torch"] == found["torch"]


@posix
def test_nvidia_smi_alone_is_reason_enough_to_ask_torch(smi: Fake) -> None:
    smi.prints("")
    assert machine.may_have_gpu()

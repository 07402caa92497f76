from __future__ import annotations

import time

import pytest
from simulated import Fake, posix, smi

from warpshelf.core.files import dump, flaw
from warpshelf.worker import gpu
from warpshelf.worker.gpu import Driver, Watch

__all__ = ["smi"]

FIRST = "11111111-d72c-4106-c12f-20bd9faed9f6"
SECOND = "22222222-d72c-4106-c12f-20bd9faed9f6"
SLICE = "c7384736-a75d-5afc-978f-d2f1294409fd"
ANSWER = "1980, 2619, 64, 512.5, 0x0000000000000004"


@posix
@pytest.mark.parametrize("written", [SECOND, f"GPU-{SECOND}", f"GPU-{SECOND.upper()}\n"])
def test_the_gpu_is_asked_by_its_uuid_whatever_its_number(smi: Fake, written: str) -> None:
    smi.machine([FIRST, SECOND], "570.1")
    found = Driver(written)
    assert found.version() == "570.1"
    asked = [line for line in smi.arguments.splitlines() if line != "-L"]
    assert asked == [f"-i GPU-{SECOND} --query-gpu=driver_version --format=csv,noheader,nounits"]


@posix
@pytest.mark.parametrize("listed", [f"MIG-{SLICE}", f"MIG-GPU-{SLICE}/1/0"])
def test_a_slice_leads_to_its_gpu(smi: Fake, listed: str) -> None:
    smi.prints(
        f"GPU 0: Imaginary (UUID: GPU-{FIRST})\n"
        f"GPU 1: Imaginary (UUID: GPU-{SECOND})\n"
        f"  MIG 1g.10gb     Device  0: (UUID: {listed})"
    )
    assert Driver(SLICE).gpu == f"GPU-{SECOND}"
    assert Driver(FIRST).gpu == f"GPU-{FIRST}"


@posix
def test_a_gpu_that_is_not_listed_is_not_asked_about(smi: Fake) -> None:
    smi.machine([FIRST], "570.1")
    assert Driver(SECOND).version() is None
    assert smi.arguments.splitlines() == ["-L"]


@posix
def test_the_highest_clocks(smi: Fake) -> None:
    smi.machine([FIRST], "1980, [N/A]")
    assert Driver(FIRST).highest_clocks() == (1980, None)
    smi.machine([FIRST], "nan, inf")
    assert Driver(FIRST).highest_clocks() == (None, None)
    smi.machine([FIRST], "1980")
    assert Driver(FIRST).highest_clocks() == (None, None)


SILENT = [
    "exit 9",
    "true",
    "echo",
    "printf '\\n\\n'",
    "printf '\\377\\376\\n'",
    "echo No devices were found",
    "echo '1, 2, 3, 4, 5'",
    "kill -9 $$",
]


@posix
@pytest.mark.parametrize("script", [*SILENT, 'echo "1, 2, 3, 4"; exit 9'])
def test_an_nvidia_smi_that_gives_no_answer_is_none(smi: Fake, script: str) -> None:
    lists = f'[ "$*" = -L ] && echo "GPU 0: Imaginary (UUID: GPU-{FIRST})" && exit'
    for before in ("", lists):
        smi.does(f"{before}\n{script}")
        found = Driver(FIRST)
        assert found.query(*gpu.FIELDS) is None
        assert found.highest_clocks() == (None, None)


@posix
@pytest.mark.parametrize("script", SILENT)
def test_a_watch_that_hears_nothing_says_nothing(smi: Fake, script: str) -> None:
    smi.does(f'[ "$*" = -L ] && echo "GPU 0: Imaginary (UUID: GPU-{FIRST})" && exit\n{script}')
    with Watch(Driver(FIRST)) as watch, watch.load():
        time.sleep(0.1)
    assert watch.conditions() == {}


@posix
def test_an_nvidia_smi_that_hangs_is_none(smi: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PATIENCE", 0.2)
    smi.does("exec /bin/sleep 30")
    started = time.monotonic()
    assert Driver(FIRST).version() is None
    assert time.monotonic() - started < 10
    assert smi.arguments.splitlines() == ["-L"]


def test_without_nvidia_smi_nothing_is_known(smi: Fake) -> None:
    found = Driver(FIRST)
    assert (found.version(), found.highest_clocks()) == (None, (None, None))
    with Watch(found) as watch, watch.load():
        pass
    assert watch.conditions() == {}


@posix
def test_an_nvidia_smi_that_may_not_be_run_is_none(smi: Fake) -> None:
    smi.path.write_text("\x7fELF no program")
    smi.path.chmod(0o755)
    assert Driver(FIRST).version() is None


# Under load.


def readings(smi: Fake, answer: str, valid: str = "event") -> dict:
    smi.machine([FIRST], answer, valid)
    with Watch(Driver(FIRST)) as watch:
        with watch.load():
            deadline = time.monotonic() + 10
            while watch._written() < 3 * len(answer) and time.monotonic() < deadline:
                time.sleep(0.02)
        found = watch.process
    assert found is not None and found.poll() is not None  # it is gone
    return watch.conditions()


@posix
@pytest.mark.parametrize("valid", ["event", "throttle"])
def test_conditions_are_read_while_the_gpu_works(smi: Fake, valid: str) -> None:
    found = readings(smi, ANSWER, valid)
    count = found["load"].pop("readings")
    assert count >= 2
    assert found == {
        "load": {
            "sm_mhz": 1980,
            "sm_mhz_lowest": 1980,
            "memory_mhz": 2619,
            "celsius_highest": 64,
            "watts": 512.5,
        },
        "slowed_by": ["software power cap"],
    }
    [asked] = [line for line in smi.arguments.splitlines() if "-lms" in line]
    assert f"-i GPU-{FIRST}" in asked and f"clocks_{valid}_reasons.active" in asked


@posix
def test_a_driver_that_gives_no_reasons_still_gives_clocks(smi: Fake) -> None:
    smi.machine([FIRST], "1980, 2619, 64, 512.5")
    smi.does(smi.path.read_text().replace("*clocks_throttle_reasons*", "*_reasons*"))
    with Watch(Driver(FIRST)) as watch, watch.load():
        time.sleep(0.5)
    found = watch.conditions()
    assert found["load"]["sm_mhz"] == 1980 and "slowed_by" not in found


@posix
def test_conditions_are_numbers_or_unknown(smi: Fake) -> None:
    found = readings(smi, "nan, [N/A], 64, inf, [N/A]")
    assert found["load"] | {"readings": 0} == {
        "sm_mhz": None,
        "sm_mhz_lowest": None,
        "memory_mhz": None,
        "celsius_highest": 64,
        "watts": None,
        "readings": 0,
    }
    assert flaw(found) is None and "NaN" not in dump(found)


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        ("0x0000000000000000", []),
        ("0x0000000000000001", []),  # idle
        ("0x0000000000000004", ["software power cap"]),
        ("0x0000000000000068", ["hardware slowdown", "software thermal slowdown",
                                "hardware thermal slowdown"]),
        ("0x0000000000000088", ["hardware slowdown", "hardware power brake"]),
        ("[N/A]", []),
    ],
)  # fmt: skip
def test_the_reasons_of_lower_clocks(bits: str, names: list[str]) -> None:
    assert gpu.reasons(bits) == names


def test_only_whole_readings_under_load_count() -> None:
    """Written in three spans: idle, under load, idle again; the spans cut two lines in two."""
    idle, busy = "300, 400, 30, 70.0\n", "1980, 2619, 64, 512.5\n"
    watch = Watch(Driver(FIRST))
    watch.text = (idle * 2 + busy * 3 + idle).encode()
    start, end = len(idle * 2), len(idle * 2 + busy * 3)
    for first, last in ((start, end), (start - 5, end + 7)):
        watch.spans = [(first, last)]
        load = watch.conditions()["load"]
        assert (load["readings"], load["sm_mhz_lowest"]) == (3, 1980)
    watch.spans = [(start + 3, start + 3 + len(busy))]
    assert watch.conditions() == {}  # no whole line lies inside
    watch.spans = [(start, start + len(busy)), (end - len(busy), end)]
    assert watch.conditions()["load"]["readings"] == 2

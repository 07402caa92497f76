"""The GPU's side of timing, on a timeline in place of a device, and what its driver says."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from simulated_gpu import Fake, Timeline, Torch, posix, smi

from warpshelf.core.files import dump_json, json_flaw
from warpshelf.records import limits
from warpshelf.worker import gpu, timing
from warpshelf.worker.gpu import CudaClock, LoadMonitor, NvidiaDriver
from warpshelf.worker.timing import FEWEST, Summary

__all__ = ["smi"]

UUID = "22222222-d72c-4106-c12f-20bd9faed9f6"
MB, RATE, CACHE = 2**20, 3e12, 50 * 2**20  # of the simulated device: bytes a second, bytes of L2
LEAST = {"peak_bytes_per_second": RATE, "l2_bytes": CACHE}


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Timeline:
    """The timeline that the clock runs on."""
    line = Timeline(CACHE, RATE)
    monkeypatch.setattr(gpu, "torch", Torch(line, UUID))
    monkeypatch.setattr(gpu, "perf_counter", lambda: line.host)
    return line


def make_launches(line: Timeline, count: int, host: float, device: float) -> Callable[[], object]:
    def launch_all() -> None:
        for _ in range(count):
            line.enqueue_work(host, device)

    return launch_all


def make_waiting(line: Timeline, launches: int = 2, device: float = 5e-5) -> Callable[[], object]:
    """A call that reads a number back between its launches."""

    def launch_waiting() -> None:
        for _ in range(launches):
            line.enqueue_work(1e-5, device)
            line.wait_for_device()

    return launch_waiting


def time_call(call: Callable[[], object]) -> Summary:
    """The time of one call, which it must have."""
    found = timing.time_interleaved({"call": call}, CudaClock())["call"]
    assert isinstance(found, Summary), found
    return found


def test_a_call_enqueued_within_the_flush_is_held(timeline: Timeline) -> None:
    sample = CudaClock().measure(make_launches(timeline, 1, 2e-5, 5e-5))
    assert sample.held and not sample.host
    assert sample.seconds == pytest.approx(5e-5)


def test_a_call_that_outlasts_the_flush_is_void_and_the_next_flush_longer(
    timeline: Timeline,
) -> None:
    """400 µs of enqueueing, 20 of work."""
    clock, call = CudaClock(), make_launches(timeline, 20, 2e-5, 1e-6)
    first, *later = (clock.measure(call) for _ in range(6))
    assert not first.held
    assert first.seconds > 1e-4  # mostly the wait for the host
    assert clock.habits[call].passes == 8 and later[-1].held
    assert later[-1].seconds == pytest.approx(2e-5)


def test_a_call_that_waits_for_the_device_is_timed_with_the_host(timeline: Timeline) -> None:
    found = time_call(make_waiting(timeline))
    assert found.host and found.n >= FEWEST
    # Two launches, the wait after the first, and the host's way to the second and to the event.
    assert found.median == pytest.approx(2 * 5e-5 + 2e-5 + 2e-5, rel=0.2)


def test_a_call_that_waits_costs_its_neighbours_nothing(timeline: Timeline) -> None:
    clock, quick = CudaClock(), make_launches(timeline, 1, 1e-5, 5e-5)
    found = timing.time_interleaved({"waits": make_waiting(timeline), "quick": quick}, clock)
    assert found["quick"].median == pytest.approx(5e-5) and not found["quick"].host
    assert clock.habits[quick].passes == 1


def test_a_host_that_is_late_now_and_then_makes_no_call_wait(timeline: Timeline) -> None:
    """Every fifth call the host is busy with something else for 5 ms, longer than any flush."""
    turns = iter(range(10**6))

    def launch_late() -> None:
        timeline.enqueue_work(5e-3 if next(turns) % 5 == 4 else 1e-5, 5e-5)

    found = time_call(launch_late)
    assert not found.host and found.void > 0
    assert found.median == pytest.approx(5e-5) and found.p80 == pytest.approx(5e-5)


def test_every_published_sample_is_held(timeline: Timeline) -> None:
    calls = {
        "quick": make_launches(timeline, 1, 1e-5, 5e-5),
        "many": make_launches(timeline, 40, 2e-5, 1e-6),
    }
    found = timing.time_interleaved(calls, CudaClock(), warm_up=0)
    quick, many = found["quick"], found["many"]
    assert isinstance(quick, Summary) and isinstance(many, Summary)
    assert quick.median == pytest.approx(5e-5) and many.median == pytest.approx(4e-5)
    assert many.p80 == pytest.approx(4e-5)  # none with a wait among them
    assert min(quick.n, many.n) >= FEWEST


@given(st.integers(0, 1024), st.integers(0, 1024), st.integers(1, 40))
def test_no_right_kernel_is_refused_whatever_it_reads_and_writes(
    read: int, written: int, launches: int
) -> None:
    """MB, by a device that leaves up to a whole L2 of what was written for later."""
    assume(read + written)
    line = Timeline(CACHE, RATE)

    def move_all() -> None:
        for _ in range(launches):
            line.move_bytes(read * MB / launches, written * MB / launches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "torch", Torch(line, UUID))
        patch.setattr(gpu, "perf_counter", lambda: line.host)
        found = time_call(move_all)
    cost = {"bytes": (read + written) * MB, "written": written * MB, "flops": 0, "unit": "fp32"}
    assert timing.impossible_reason("right", found, limits.least_seconds(cost, LEAST)) is None


@pytest.mark.parametrize(("read", "written"), [(512, 512), (512, 0), (0, 512), (64, 64), (256, 1)])
def test_a_kernel_that_leaves_work_out_is_named(
    timeline: Timeline, read: int, written: int
) -> None:
    """Half of what is due, in MB."""
    found = time_call(lambda: timeline.move_bytes(read * MB / 4, written * MB / 4))
    cost = {"bytes": (read + written) * MB, "written": written * MB, "flops": 0, "unit": "fp32"}
    why = timing.impossible_reason("half", found, limits.least_seconds(cost, LEAST))
    assert why is not None and "of what the hardware allows" in why


def test_a_call_finds_a_cache_that_has_to_be_written_back(timeline: Timeline) -> None:
    """And leaves one: what a copy moves in all is what it reads and writes."""
    found = time_call(lambda: timeline.move_bytes(64 * MB, 64 * MB))
    assert found.median == pytest.approx(128 * MB / RATE)


def test_a_clock_that_is_lowered_meanwhile_is_in_the_spread(timeline: Timeline) -> None:
    calls = {name: make_launches(timeline, 1, 1e-5, 1e-3) for name in ("ours", "theirs")}
    timeline.slowness = lambda now: 1.0 if now % 0.02 < 0.01 else 1.5
    found = timing.time_interleaved(calls, CudaClock())
    assert found["ours"].p80 >= 1.4 * found["ours"].p20  # so that no such pair is told apart
    ours, theirs = (found[name].as_dict() for name in calls)
    assert limits.times_tie(ours, theirs)


def test_work_that_goes_on_on_another_stream_is_named(timeline: Timeline) -> None:
    def launch_beside() -> None:
        timeline.enqueue_work(1e-5, 1e-6)
        timeline.enqueue_beside(1e-5, 5e-3)

    calls = {"beside": launch_beside, "alone": make_launches(timeline, 1, 1e-5, 5e-5)}
    found = timing.time_interleaved(calls, CudaClock())
    assert found["beside"] == timing.GOES_ON
    assert found["alone"].median == pytest.approx(5e-5)


@posix
def test_the_machine_is_described_by_the_gpu_that_torch_uses(timeline: Timeline, smi: Fake) -> None:
    smi.set_machine(["11111111-d72c-4106-c12f-20bd9faed9f6", UUID], "570.1")
    found = gpu.machine_description()
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


# --- what the driver says

FIRST = "11111111-d72c-4106-c12f-20bd9faed9f6"
SECOND = "22222222-d72c-4106-c12f-20bd9faed9f6"
SLICE = "c7384736-a75d-5afc-978f-d2f1294409fd"
ANSWER = "1980, 2619, 64, 512.5, 0x0000000000000004"


@posix
@pytest.mark.parametrize("written", [SECOND, f"GPU-{SECOND}", f"GPU-{SECOND.upper()}\n"])
def test_the_gpu_is_asked_by_its_uuid_whatever_its_number(smi: Fake, written: str) -> None:
    smi.set_machine([FIRST, SECOND], "570.1")
    found = NvidiaDriver(written)
    assert found.driver_version() == "570.1"
    asked = [line for line in smi.arguments.splitlines() if line != "-L"]
    assert asked == [f"-i GPU-{SECOND} --query-gpu=driver_version --format=csv,noheader,nounits"]


@posix
@pytest.mark.parametrize("listed", [f"MIG-{SLICE}", f"MIG-GPU-{SLICE}/1/0"])
def test_a_slice_leads_to_its_gpu(smi: Fake, listed: str) -> None:
    smi.set_output(
        f"GPU 0: Imaginary (UUID: GPU-{FIRST})\n"
        f"GPU 1: Imaginary (UUID: GPU-{SECOND})\n"
        f"  MIG 1g.10gb     Device  0: (UUID: {listed})"
    )
    assert NvidiaDriver(SLICE).gpu == f"GPU-{SECOND}"
    assert NvidiaDriver(FIRST).gpu == f"GPU-{FIRST}"


@posix
def test_a_gpu_that_is_not_listed_is_not_asked_about(smi: Fake) -> None:
    smi.set_machine([FIRST], "570.1")
    assert NvidiaDriver(SECOND).driver_version() is None
    assert smi.arguments.splitlines() == ["-L"]


@posix
def test_the_highest_clocks(smi: Fake) -> None:
    smi.set_machine([FIRST], "1980, [N/A]")
    assert NvidiaDriver(FIRST).highest_clocks() == (1980, None)
    smi.set_machine([FIRST], "nan, inf")
    assert NvidiaDriver(FIRST).highest_clocks() == (None, None)
    smi.set_machine([FIRST], "1980")
    assert NvidiaDriver(FIRST).highest_clocks() == (None, None)


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
        smi.set_script(f"{before}\n{script}")
        found = NvidiaDriver(FIRST)
        assert found.query_fields(*gpu.FIELDS) is None
        assert found.highest_clocks() == (None, None)


@posix
@pytest.mark.parametrize("script", SILENT)
def test_a_watch_that_hears_nothing_says_nothing(smi: Fake, script: str) -> None:
    smi.set_script(
        f'[ "$*" = -L ] && echo "GPU 0: Imaginary (UUID: GPU-{FIRST})" && exit\n{script}'
    )
    with LoadMonitor(NvidiaDriver(FIRST)) as watch, watch.under_load():
        time.sleep(0.1)
    assert watch.load_conditions() == {}


@posix
def test_an_nvidia_smi_that_hangs_is_none(smi: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PATIENCE", 0.2)
    smi.set_script("exec /bin/sleep 30")
    started = time.monotonic()
    assert NvidiaDriver(FIRST).driver_version() is None
    assert time.monotonic() - started < 10
    assert smi.arguments.splitlines() == ["-L"]


def test_without_nvidia_smi_nothing_is_known(smi: Fake) -> None:
    found = NvidiaDriver(FIRST)
    assert (found.driver_version(), found.highest_clocks()) == (None, (None, None))
    with LoadMonitor(found) as watch, watch.under_load():
        pass
    assert watch.load_conditions() == {}


@posix
def test_an_nvidia_smi_that_may_not_be_run_is_none(smi: Fake) -> None:
    smi.path.write_text("\x7fELF no program")
    smi.path.chmod(0o755)
    assert NvidiaDriver(FIRST).driver_version() is None


# Under load.


def monitor_load(smi: Fake, answer: str, valid: str = "event") -> dict:
    smi.set_machine([FIRST], answer, valid)
    with LoadMonitor(NvidiaDriver(FIRST)) as watch:
        with watch.under_load():
            deadline = time.monotonic() + 10
            while watch._bytes_written() < 3 * len(answer) and time.monotonic() < deadline:
                time.sleep(0.02)
        found = watch.process
    assert found is not None and found.poll() is not None  # it is gone
    return watch.load_conditions()


@posix
@pytest.mark.parametrize("valid", ["event", "throttle"])
def test_conditions_are_read_while_the_gpu_works(smi: Fake, valid: str) -> None:
    found = monitor_load(smi, ANSWER, valid)
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
    smi.set_machine([FIRST], "1980, 2619, 64, 512.5")
    smi.set_script(smi.path.read_text().replace("*clocks_throttle_reasons*", "*_reasons*"))
    with LoadMonitor(NvidiaDriver(FIRST)) as watch, watch.under_load():
        time.sleep(0.5)
    found = watch.load_conditions()
    assert found["load"]["sm_mhz"] == 1980 and "slowed_by" not in found


@posix
def test_conditions_are_numbers_or_unknown(smi: Fake) -> None:
    found = monitor_load(smi, "nan, [N/A], 64, inf, [N/A]")
    assert found["load"] | {"readings": 0} == {
        "sm_mhz": None,
        "sm_mhz_lowest": None,
        "memory_mhz": None,
        "celsius_highest": 64,
        "watts": None,
        "readings": 0,
    }
    assert json_flaw(found) is None and "NaN" not in dump_json(found)


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
    assert gpu.decode_reasons(bits) == names


def test_only_whole_readings_under_load_count() -> None:
    """Written in three spans: idle, under load, idle again; the spans cut two lines in two."""
    idle, busy = "300, 400, 30, 70.0\n", "1980, 2619, 64, 512.5\n"
    watch = LoadMonitor(NvidiaDriver(FIRST))
    watch.text = (idle * 2 + busy * 3 + idle).encode()
    start, end = len(idle * 2), len(idle * 2 + busy * 3)
    for first, last in ((start, end), (start - 5, end + 7)):
        watch.spans = [(first, last)]
        load = watch.load_conditions()["load"]
        assert (load["readings"], load["sm_mhz_lowest"]) == (3, 1980)
    watch.spans = [(start + 3, start + 3 + len(busy))]
    assert watch.load_conditions() == {}  # no whole line lies inside
    watch.spans = [(start, start + len(busy)), (end - len(busy), end)]
    assert watch.load_conditions()["load"]["readings"] == 2

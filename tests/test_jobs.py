"""The timing job, with an invented clock and ceilings: everything of it but the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import sound_snippet, wrong_snippet

from warpshelf import assemble, jobs, schema, snippet
from warpshelf.child import Context
from warpshelf.pool import Job, Outcome
from warpshelf.project import Project

GPU = {
    "slug": "imaginary-g9",
    "device": "Imaginary G9",
    "gpus": 1,
    "memory_bytes": 2**36,
    "sm": 90,
    "sms": 100,
    "driver": "1.2",
    "cuda": "13.0",
    "torch": "2.13.0",
    "triton": "3.7.1",
    "python": "3.11.7",
    "os": "Linux x86_64",
}
CEILINGS = {
    "copy_bytes_per_second": 3e12,
    "matrix_flops_per_second": {"fp32": 5e13},
    "peak_bytes_per_second": 3.3e12,
    "peak_flops_per_second": {"fp32": 6e13},
}
TWO = '''
def slow(a, b):
    return a @ b


def wrong(a, b):
    return (a @ b) * 0.999


VARIANTS = {"product": lambda a, b: kernel(a, b), "slow": slow}
PEERS = {"torch": lambda a, b: a @ b, "half": lambda a, b: (a.half() @ b.half()).float()}
TIMED = ({"m": 64, "n": 64, "k": 64}, {"m": 128, "n": 32, "k": 32})
'''


class Clock:
    """Takes `seconds` for every call, a little more each time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0

    def measure(self, call) -> float:
        call()
        self.calls += 1
        return self.seconds * (1 + 1e-4 * self.calls)


def timed(
    monkeypatch: pytest.MonkeyPatch, folder: Path, overlay: str, seconds: float
) -> tuple[snippet.Snippet, dict]:
    """The answer of the timing job on a snippet."""
    from warpshelf import gpu, machine

    path = folder / "snippets" / "trial" / "trial.py"
    path.parent.mkdir(parents=True)
    path.write_text(wrong_snippet(overlay))
    one = snippet.read(Project(folder), path.parent)
    assert not one.findings
    monkeypatch.setattr(gpu, "CudaClock", lambda: Clock(seconds))
    monkeypatch.setattr(gpu, "ceilings", lambda clock, machine, units: CEILINGS)
    monkeypatch.setattr(machine, "conditions", lambda: {"sm_mhz": 1980.0, "celsius": 40.0})
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    details = {**assemble.details(one, GPU, interpret=False), "token": "x"}
    return one, jobs.time_snippet(Context(details, lambda message: None))


def test_what_passes_is_timed_and_makes_a_sound_record(monkeypatch, tmp_path) -> None:
    one, answer = timed(monkeypatch, tmp_path, TWO, 1e-3)
    assert answer["failures"] == []
    assert [case["case"]["m"] for case in answer["cases"]] == [64, 128]
    for case in answer["cases"]:
        results = {result["name"]: result for result in case["results"]}
        assert list(results) == ["product", "slow", "torch", "half"]
        for name in ("product", "slow", "torch"):
            assert results[name]["verdict"] == "passed"
            assert 1e-3 < results[name]["time"]["p20"] <= results[name]["time"]["p80"] < 2e-3
        # The untrusted peer is wrong: that is recorded, and it has no time.
        assert results["half"]["verdict"] == "failed"
        assert "relative error" in results["half"]["reason"]
        assert "time" not in results["half"]
    work = assemble.Gathered(one, GPU, None)
    for job in work.jobs(60):
        work.take(Outcome(job, {"cases": [], "failures": []}, None, "", _demo("t"), "t", 1.0))
    timing_job = work.timing_job()
    assert timing_job is not None and timing_job.do == "time_snippet"
    work.take(Outcome(timing_job, answer, None, "", b"", "", 2.0))
    assert work.verified and not work.findings
    record = work.record()
    assert schema.problem(record) is None
    assert schema.contradiction(record) is None
    assert record["ceilings"] == CEILINGS
    assert record["conditions"]["before"] == {"sm_mhz": 1980.0, "celsius": 40.0}


def _demo(token: str) -> bytes:
    mark = b"\n" + token.encode()
    return b"".join((mark, b" demo 1\nhi\n", mark, b" demo 2\nhi\n", mark, b" end\n"))


def test_a_wrong_variant_has_no_time_and_fails_the_run(monkeypatch, tmp_path) -> None:
    overlay = TWO.replace('"slow": slow', '"slow": wrong')
    _, answer = timed(monkeypatch, tmp_path, overlay, 1e-3)
    [failure] = answer["failures"]
    assert failure["what"].startswith("variant 'slow' is wrong on case {'m': 64")
    for case in answer["cases"]:
        assert [result["name"] for result in case["results"]] == ["product", "torch", "half"]


def test_a_time_that_the_hardware_cannot_reach_is_refused(monkeypatch, tmp_path) -> None:
    _, answer = timed(monkeypatch, tmp_path, TWO, 1e-12)
    assert {failure["what"].split("'")[1] for failure in answer["failures"]} == {"product", "slow"}
    assert all("% of what the hardware allows" in f["what"] for f in answer["failures"])
    for case in answer["cases"]:
        assert all("time" not in result for result in case["results"])


def test_a_gpu_times_kernels_alone(tmp_path) -> None:
    path = tmp_path / "snippets" / "trial" / "trial.py"
    path.parent.mkdir(parents=True)
    path.write_text(sound_snippet())
    one = snippet.read(Project(tmp_path), path.parent)
    work = assemble.Gathered(one, {**GPU, "gpus": 0, "slug": "cpu"}, None)
    assert work.timing_job() is None
    assert [job.do for job in work.jobs(60)] == ["verify_snippet"]
    assert isinstance(work.jobs(60)[0], Job)

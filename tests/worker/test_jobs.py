"""The timing job, with an invented clock and ceilings: everything of it but the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import weakref
from functools import partial
from html import unescape
from pathlib import Path
from pprint import pformat
from types import SimpleNamespace

import pytest
import torch
from conftest import CUT, sound_snippet, write_snippet, wrong_snippet
from made_up_records import make_goals, make_grids, make_predictions, make_timelines
from simulated_gpu import posix, smi

from warpshelf.bench import assemble
from warpshelf.bench.pool import Job, Outcome
from warpshelf.contract import snippet
from warpshelf.contract.values import Obligations
from warpshelf.core.project import Project
from warpshelf.records import schema, space
from warpshelf.render import figures
from warpshelf.worker import gpu, jobs, timing
from warpshelf.worker.checks import Checks, Share, choose_cases, rank_cases
from warpshelf.worker.context import JobContext, JobError, Task
from warpshelf.worker.gpu import NvidiaDriver
from warpshelf.worker.timing import Sample, Summary

__all__ = ["smi"]

UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"

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
TWO = f"""{CUT}
def slow(a, b):
    return a @ b


def wrong(a, b):
    return (a @ b) * 0.999


VARIANTS = {{"product": lambda a, b: base.kernel(a, b), "slow": slow}}
HALF = lambda a, b: (a.half() @ b.half()).float()
PEERS = {{"torch": lambda a, b: a @ b, "half": HALF}}
TIMED = ({{"m": 64, "n": 64, "k": 64}}, {{"m": 128, "n": 32, "k": 32}})
"""


class Clock:
    """Takes `seconds` for every call, a little more each time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0
        self.held = lambda call: True
        self.scale = lambda call: 1.0

    def measure(self, call) -> Sample:
        call()
        self.calls += 1
        seconds = self.seconds * (1 + 1e-4 * self.calls) * self.scale(call)
        return Sample(seconds, self.held(call))


def is_call_of(call, kind: str, name: str) -> bool:
    """Whether a timed call is of this variant or peer."""
    function = sys.modules["snippets.trial.cases"].__dict__[kind][name]
    return call.func is function


def time_snippet(
    monkeypatch: pytest.MonkeyPatch, folder: Path, overlay: str, clock: Clock
) -> tuple[snippet.Snippet, dict]:
    """The answer of the timing job on a snippet."""
    from warpshelf.worker import gpu

    path = write_snippet(folder / "snippets" / "trial", wrong_snippet(overlay))
    one = snippet.read_snippet(Project(folder), path.parent)
    assert not one.findings
    monkeypatch.setattr(gpu, "CudaClock", lambda: clock)
    monkeypatch.setattr(gpu, "measure_ceilings", lambda clock, machine, units: CEILINGS)
    monkeypatch.setattr(gpu, "current_driver", lambda: NvidiaDriver(UUID))
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    details = {**assemble.job_details(one, GPU), "token": "x"}
    return one, jobs.time_snippet(JobContext(details, lambda message: None))


@posix
def test_what_passes_is_timed_and_makes_a_sound_record(monkeypatch, tmp_path, smi) -> None:
    smi.set_machine([UUID], "1980, 2619, 64, 512.5, 0x0000000000000004")
    monkeypatch.setattr(gpu, "INTERVAL", 20)
    clock = Clock(1e-3)
    clock.held = lambda call: not time.sleep(0.004)  # so that the driver is read meanwhile
    one, answer = time_snippet(monkeypatch, tmp_path, TWO, clock)
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
    record = make_record(one, answer)
    assert schema.shape_problem(record) is None
    assert schema.validation_error(record) is None
    assert record["ceilings"] == CEILINGS
    load = record["conditions"]["load"]
    assert (load["sm_mhz"], load["celsius_highest"]) == (1980, 64)
    assert record["conditions"]["slowed_by"] == ["software power cap"]


def test_inputs_of_a_timed_case_are_let_go_before_the_next_is_verified(
    monkeypatch, tmp_path
) -> None:
    drawn: list[weakref.ref] = []
    left: list[int] = []
    verify_case = Checks.verify_case

    def count_left(self: Checks, *of: object, **by: object) -> dict:
        left.append(sum(one() is not None for one in drawn))
        return verify_case(self, *of, **by)

    def summarise_calls(calls: dict, clock: Clock, **by: object) -> dict[str, Summary]:
        drawn.extend(weakref.ref(item) for call in calls.values() for item in call.args)
        assert all(one() is not None for one in drawn[-2:])
        return {name: Summary(1e-3, 1e-3, 1e-3, 15) for name in calls}

    monkeypatch.setattr(Checks, "verify_case", count_left)
    monkeypatch.setattr(timing, "time_interleaved", summarise_calls)
    _, answer = time_snippet(monkeypatch, tmp_path, TWO, Clock(1e-3))
    assert answer["failures"] == [] and len(answer["cases"]) == 2
    assert left == [0, 0] and len(drawn) == 2 * 3 * 2


def make_record(one: snippet.Snippet, answer: dict) -> dict:
    """The record of a run on the imaginary GPU whose timing job answered so."""
    work = assemble.SnippetRun(one, GPU, None)
    for job in work.untimed_jobs():
        work.add_outcome(
            Outcome(job, {"cases": [], "failures": []}, None, "", _print_demo("t"), "t", 1.0)
        )
    timing_job = work.timing_job()
    assert timing_job is not None and timing_job.do is Task.TIME
    work.add_outcome(Outcome(timing_job, answer, None, "", b"", "", 2.0))
    assert not work.awaited and not work.findings
    return work.build_record()


def _print_demo(token: str) -> bytes:
    mark = b"\n" + token.encode()
    return b"".join((mark, b" demo 1\nhi\n", mark, b" demo 2\nhi\n", mark, b" end\n"))


def test_a_wrong_variant_has_no_time_and_fails_the_run(monkeypatch, tmp_path) -> None:
    overlay = TWO.replace('"slow": slow', '"slow": wrong')
    _, answer = time_snippet(monkeypatch, tmp_path, overlay, Clock(1e-3))
    [failure] = answer["failures"]
    assert failure["what"].startswith("variant 'slow' is wrong on case {'m': 64")
    for case in answer["cases"]:
        assert [result["name"] for result in case["results"]] == ["product", "torch", "half"]


LAZY = """
calls = 0


def lazy(a, b):
    global calls
    calls += 1
    y = a @ b
    if calls > 2:
        y[len(y) // 2 :] = 0
    return y


"""


def test_a_function_that_does_less_once_it_is_timed_is_named(monkeypatch, tmp_path) -> None:
    """It is right in both calls that verify it: as a variant it fails the run, as a peer it is
    recorded as failed."""
    overlay = TWO.replace("\nVARIANTS", f"{LAZY}VARIANTS").replace('"slow": slow', '"slow": lazy')
    _, answer = time_snippet(monkeypatch, tmp_path / "ours", overlay, Clock(1e-3))
    [failure] = answer["failures"]
    said = "'slow' is right when it is verified, and wrong after it was timed: relative error 0.7"
    assert failure["what"].startswith(said)
    peer = TWO.replace("\nVARIANTS", f"{LAZY}VARIANTS").replace("lambda a, b: a @ b", "lazy")
    _, answer = time_snippet(monkeypatch, tmp_path / "theirs", peer, Clock(1e-3))
    assert answer["failures"] == []
    failed = next(one for one in answer["cases"][0]["results"] if one["name"] == "torch")
    assert failed["verdict"] == "failed" and "wrong after it was timed" in failed["reason"]
    assert "time" not in failed


def test_a_time_that_the_hardware_cannot_reach_is_refused(monkeypatch, tmp_path) -> None:
    _, answer = time_snippet(monkeypatch, tmp_path, TWO, Clock(1e-12))
    assert {failure["what"].split("'")[1] for failure in answer["failures"]} == {"product", "slow"}
    assert all("% of what the hardware allows" in f["what"] for f in answer["failures"])
    for case in answer["cases"]:
        assert all("time" not in result for result in case["results"])


def test_a_peer_with_an_impossible_time_is_recorded_as_failed(monkeypatch, tmp_path) -> None:
    clock = Clock(1e-3)
    clock.scale = lambda call: 1e-9 if is_call_of(call, "PEERS", "torch") else 1.0
    one, answer = time_snippet(monkeypatch, tmp_path, TWO, clock)
    assert answer["failures"] == []  # it is untrusted, so the run goes on
    for case in answer["cases"]:
        results = {result["name"]: result for result in case["results"]}
        assert "time" in results["product"] and "time" in results["slow"]
        peer = results["torch"]
        assert peer["verdict"] == "failed" and "time" not in peer
        assert "% of what the hardware allows" in peer["reason"]
    found = make_record(one, answer)
    assert schema.shape_problem(found) is None and schema.validation_error(found) is None
    shown = unescape(figures.render_timing(found))
    assert "failed: 'torch' took" in shown and "torch failed" in shown


def test_a_function_that_waits_for_the_host_has_a_reason_in_place_of_a_time(
    monkeypatch, tmp_path
) -> None:
    clock = Clock(1e-3)
    clock.held = lambda call: not is_call_of(call, "VARIANTS", "slow")
    one, answer = time_snippet(monkeypatch, tmp_path, TWO, clock)
    assert answer["failures"] == []
    for case in answer["cases"]:
        results = {result["name"]: result for result in case["results"]}
        assert results["product"]["time"]["void"] == 0
        assert results["slow"]["verdict"] == "passed" and "time" not in results["slow"]
        assert "waited for the host" in results["slow"]["untimed"]
    found = make_record(one, answer)
    assert schema.shape_problem(found) is None and schema.validation_error(found) is None
    assert "waited for the host" in figures.render_timing(found)


def test_a_gpu_times_kernels_alone(tmp_path) -> None:
    path = write_snippet(tmp_path / "snippets" / "trial", sound_snippet())
    one = snippet.read_snippet(Project(tmp_path), path.parent)
    work = assemble.SnippetRun(one, {**GPU, "gpus": 0, "slug": "cpu"}, None)
    assert work.timing_job() is None
    assert [job.do for job in work.untimed_jobs()] == [Task.VERIFY]
    assert isinstance(work.untimed_jobs()[0], Job)


PREDICTS = f"""
def predictions():
    return {pformat(make_predictions(), width=60)}


GOALS = {pformat(make_goals(), width=60)}
"""
MODEL = f'''"""What it predicts.

Error   told by set
Raises  nothing
Source  none
"""


def demo():
    print("nothing")


if __name__ == "__main__":
    demo()
{CUT}
def facts():
    fact = {{"name": "a", "value": 1, "expected": 1, "tolerance": 0}}
    return [fact | {{"unit": "", "source": "x"}}]

'''


def verify_model(tmp_path: Path, text: str) -> dict:
    """What comes of verifying a model's text."""
    path = write_snippet(tmp_path / "snippets" / "trial", text)
    one = snippet.read_snippet(Project(tmp_path), path.parent)
    assert not one.findings
    details = {**assemble.job_details(one, GPU | {"slug": "cpu", "gpus": 0}), "token": "x"}
    answer: dict = jobs.verify_snippet(JobContext(details, lambda message: None))
    return answer


def test_predictions_are_recorded_with_the_goals_that_they_meet(tmp_path) -> None:
    answer = verify_model(tmp_path, MODEL + PREDICTS)
    assert answer["predictions"] == make_predictions() and answer["goals"] == make_goals()
    assert answer["failures"] == []
    assert "predictions" not in verify_model(tmp_path, MODEL)


def test_a_missed_goal_fails_at_its_line(tmp_path) -> None:
    text = MODEL + PREDICTS.replace("'within': 0.1", "'within': 0.055")
    [failure] = verify_model(tmp_path, text)["failures"]
    assert failure["what"] == (
        "goal 'table 1': 1 of 2 rows within 5.5 % where it asks for 100 % of rows within 5.5 %"
    )
    cases = (tmp_path / "snippets" / "trial" / "cases.py").read_text().splitlines()
    at = next(n for n, line in enumerate(cases, 1) if line.startswith("GOALS"))
    assert (failure["file"], failure["line"]) == ("cases.py", at)


def test_a_prediction_that_is_no_number_is_told(tmp_path) -> None:
    text = MODEL + PREDICTS.replace("101.0", 'float("nan")')
    with pytest.raises(JobError, match=r"predictions\(\)\[0\].predicted is nan"):
        verify_model(tmp_path, text)
    with pytest.raises(JobError, match="names the set 'Memoir', which has no rows"):
        verify_model(tmp_path, MODEL + PREDICTS.replace("'Blog']", "'Memoir']"))


def test_pictures_are_asked_of_a_module_that_has_some() -> None:
    said: list[dict] = []
    context = JobContext({"places": {"timelines": ["cases.py", 7]}}, said.append)
    context.proof = Obligations()
    assert jobs.pictures_of(context) == {} and said == []
    context.proof = Obligations(timelines=make_timelines)
    assert jobs.pictures_of(context) == {"timelines": make_timelines()}
    assert said == [{"at": "in timelines()"}]
    context.proof = Obligations(timelines=lambda: make_timelines() * 2)
    with pytest.raises(JobError, match="'one-by-one' occurs twice") as caught:
        jobs.pictures_of(context)
    assert caught.value.failures[0]["line"] == 7
    context.proof = Obligations(timelines=make_timelines, grids=make_grids)
    assert jobs.pictures_of(context) == {"timelines": make_timelines(), "grids": make_grids()}


def test_pictures_of_a_run_are_recorded(tmp_path) -> None:
    path = tmp_path / "snippets" / "trial" / "trial.py"
    path.parent.mkdir(parents=True)
    path.write_text(sound_snippet())
    here = GPU | {"slug": "cpu", "gpus": 0}
    work = assemble.SnippetRun(snippet.read_snippet(Project(tmp_path), path.parent), here, None)
    for job in work.untimed_jobs():
        answer = {"failures": [], "timelines": make_timelines(), "grids": make_grids()}
        work.add_outcome(Outcome(job, answer, None, "", _print_demo("t"), "t", 1.0))
    record = work.build_record()
    assert record["timelines"] == make_timelines() and record["grids"] == make_grids()
    assert schema.shape_problem(record) is None and schema.validation_error(record) is None


SPANNED = f"""{TWO}

def tiled(a, b, tile, order):
    return a @ b if order == "rows" else wrong(a, b) if tile == BAD else slow(a, b)


BAD = 0
SPACE = {{
    "parameters": {{"tile": (*range(40),), "order": ("rows", "columns")}},
    "allowed": lambda tile, order: True,
    "run": tiled,
    "case": {{"m": 5, "n": 3, "k": 4}},
    "counted": lambda **configuration: {{"m": 8, "n": 8, "k": 8}},
    "scaled": lambda cycles, **configuration: cycles,
    "timed": {{"m": 32, "n": 32, "k": 32}},
}}
"""


def test_every_configuration_of_a_space_is_verified_and_timed(monkeypatch, tmp_path) -> None:
    overlay = SPANNED.replace("BAD = 0", "BAD = -1")
    one, answer = time_snippet(monkeypatch, tmp_path, overlay, Clock(1e-3))
    assert answer["failures"] == []
    record = make_record(one, answer)
    assert schema.shape_problem(record) is None and schema.validation_error(record) is None
    found = record["space"]
    assert [each["name"] for each in found["parameters"]] == ["tile", "order"]
    rows = [space.parse_row(line) for line in found["rows"]["sm_90"]]
    assert [row.values for row in rows] == [
        (str(tile), order) for tile in range(40) for order in ("rows", "columns")
    ]
    assert all(1e-3 < row.figures[0] < 3e-3 and row.figures[3] == 15 for row in rows)
    assert (found["flops"], found["unit"]) == (2 * 32**3, "fp32")


def test_a_wrong_configuration_fails_the_run_and_is_named(monkeypatch, tmp_path) -> None:
    _, answer = time_snippet(monkeypatch, tmp_path, SPANNED, Clock(1e-3))
    [failure] = answer["failures"]
    assert failure["what"].startswith(
        "the configuration {'tile': 0, 'order': 'columns'} is wrong on {'m': 5"
    )
    assert failure["file"] == "cases.py" and failure["line"]


def test_an_impossible_time_of_a_configuration_fails_the_run(monkeypatch, tmp_path) -> None:
    overlay = SPANNED.replace("BAD = 0", "BAD = -1").replace("range(40)", "range(2)")
    clock = Clock(1e-3)
    monkeypatch.setitem(CEILINGS["peak_flops_per_second"], "fp32", 2 * 32**3 / 2e-3)
    _, answer = time_snippet(monkeypatch, tmp_path, overlay, clock)
    assert any("of what the hardware allows" in one["what"] for one in answer["failures"])


def test_what_will_be_timed_is_called_once_beside_other_children(monkeypatch) -> None:
    """So that it is compiled; what is wrong with a call is said where it is timed."""
    called: list[tuple[str, object]] = []

    def note(name: str, x: object) -> None:
        called.append((name, x))
        if name == "wrong":
            raise ValueError("wrong: no")

    def draw(case: dict, index: int, turn: int) -> tuple[int]:
        if case["m"] == 2:
            raise RuntimeError("too large")
        return (case["m"],)

    names = ("fast", "wrong", "left out")
    proof = SimpleNamespace(
        timed=({"m": 1}, {"m": 2}, {"m": 3}),
        variants={name: partial(note, name) for name in names},
        peers={"torch": partial(note, "torch")},
        variants_for=lambda case: names[:2],
    )
    context = SimpleNamespace(report_place=lambda place: None)
    monkeypatch.setattr(jobs.torch.cuda, "synchronize", lambda: None)
    jobs._compile_timed(SimpleNamespace(proof=proof, context=context, draw_inputs=draw))
    assert called == [(name, m) for m in (1, 3) for name in ("fast", "wrong", "torch")]


# What a verification takes on: everything, or the share that a job asks for.

# Four cases that kill, and three that are counted, of which one kills as well.
PROOF = Obligations(
    cases=tuple({"n": 9 - n, "dtype": "float32"} for n in range(7)),
    counted=range(4, 7),
    kills=(("a",), ("b",), ("a", "b"), ("c",), (), ("b",), ()),
)


@pytest.mark.parametrize(
    ("share", "cases"),
    [(Share.ALL, [0, 1, 2, 3, 4, 5, 6]), (Share.SOME, [0, 1, 2, 3, 5]), (Share.TELLING, [2])],
)
def test_a_share_chooses_cases(share: Share, cases: list[int]) -> None:
    assert choose_cases(PROOF, share) == cases


@pytest.mark.parametrize(
    ("share", "viewed"), [("all", {*range(23)}), ("some", {0, 10, 20}), ("telling", set())]
)
def test_a_share_draws_views_of_cases(share: str, viewed: set[int]) -> None:
    drawn: set[int] = set()

    def note_case(message: dict) -> None:
        case, comma, _ = message["at"].partition("}, ")
        if comma:
            drawn.add(int(case.rpartition("'n': ")[2]) - 1)

    job = {"needs": {}, "machine": {"sm": None}, "places": {}, "id": "x", "share": share}
    context = JobContext(job, note_case)
    context.proof = Obligations(
        cases=tuple({"n": n + 1} for n in range(23)),
        kills=((),) * 23,
        variants={"twice": lambda x: 2 * x},
        inputs=lambda case, device, generator: (torch.ones(case["n"], device=device),),
        reference=lambda x: 2 * x.double(),
    )
    checks = Checks(context)
    for index in checks.due_cases():
        checks.verify_case(index, context.proof.cases[index], timed=False)
    assert drawn - {-1} == viewed  # -1 is the case whose side is empty
    assert checks.failures == {}


def test_cases_go_by_what_those_before_them_do_not_reject() -> None:
    assert rank_cases(PROOF, range(7)) == [2, 3, 5, 1, 0, 6, 4]
    assert rank_cases(PROOF, [0, 1]) == [1, 0]
    assert rank_cases(PROOF, []) == []


# What the fork server imports before its children, and nothing that a fork would break.

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
LOOK = """
import os, sys, threading
{before}
import warpshelf.worker.preload
import torch
found = [one for one in ("torch._dynamo", "triton", "papergpu.triton") if sys.modules.get(one)]
print(found, os.environ["TRITON_INTERPRET"],
      torch.cuda.is_initialized(), threading.active_count())
"""


def import_preload(before: str = "") -> str:
    """What stands in a process that has imported it."""
    return subprocess.run(
        [sys.executable, "-c", LOOK.format(before=before)],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout.strip()


@pytest.mark.exhaustive("all that is loaded ahead, in a process of its own")
def test_the_compilers_are_there_and_the_gpu_is_untouched() -> None:
    assert import_preload() == "['torch._dynamo', 'triton', 'papergpu.triton'] 0 False 1"


@pytest.mark.exhaustive("a process for each compiler that may be missing")
def test_what_is_missing_is_done_without() -> None:
    assert import_preload("sys.modules['triton'] = None") == "['torch._dynamo'] 0 False 1"
    assert (
        import_preload("sys.modules['torch._dynamo'] = sys.modules['triton'] = None")
        == "[] 0 False 1"
    )

"""A run on a borrowed machine: with a GPU that is not there, and with little more than torch."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator

import pytest
from conftest import CUT, ROOT, Trial, sound_snippet, wrong_snippet
from made_up_records import make_machine as imaginary
from made_up_records import make_result

from warpshelf.bench import pool
from warpshelf.bench import run as runs
from warpshelf.bench.pool import Job, Outcome, Pool
from warpshelf.bench.run import Eta, Options, Plan, Run, Verdict
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger, store
from warpshelf.site import inspection
from warpshelf.worker.context import Task

# A run on a machine with a GPU that is not there: its children run here, its times are made up.

GPU = imaginary()
SLUG = GPU["slug"]
MODEL = '''"""What is the same on any machine.

Error   exact
Raises  nothing
Source  none
"""


def demo():
    print("one")


if __name__ == "__main__":
    demo()
# ---- cases.py ----
"""What verifies it."""


def facts():
    fact = {"name": "a", "value": 1, "expected": 1, "tolerance": 0}
    return [fact | {"unit": "", "source": "none"}]
'''
TRITON = '''"""A tensor times two.

Shapes  x (N,) float32 -> (N,) float32
Bytes   8 * N
Error   exact
Raises  nothing
Source  none
"""

import torch

if not torch.cuda.is_available():
    import papergpu

    papergpu.activate()

import triton
import triton.language as tl


@triton.jit
def twice_kernel(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def twice(x):
    y = torch.empty_like(x)
    twice_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), SIZE=128)
    return y


def demo(device):
    print(twice(torch.ones(2, device=device)).tolist())


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
# ---- cases.py ----
"""What verifies it."""

import torch

from snippets.scale import scale

NEEDS = {"cpu": "a trial"}
CASES = ({"n": 5},)
TIMED = ({"n": 512},)
VARIANTS = {"twice": lambda x: scale.twice(x)}
PEERS = {"torch": lambda x: 2 * x}


def inputs(case, device, generator):
    return (torch.randn(case["n"], device=device, generator=generator),)


def reference(x):
    return 2 * x.double()
'''


class Simulated(Pool):
    """Children of this machine, in which the GPU is only described, and timed as a test says."""

    asked: list[Job] = []
    seconds = 0.0  # that a timing takes
    answers_for_gpu = False  # where a child here cannot stand for one with a GPU

    def run(
        self,
        jobs: Iterable[Job],
        deadline: float = math.inf,
        began: Callable[[Job], None] = lambda job: None,
    ) -> Iterator[Outcome]:
        real = []
        for job in jobs:
            self.asked.append(job)
            if job.do is Task.DESCRIBE:
                yield self.give_answer(job, {"machine": GPU})
            elif job.on_gpu and self.answers_for_gpu:
                yield self.give_answer(job, {"cases": answer_timing(job)["cases"]}, print_demo())
            elif job.do is Task.TIME:
                began(job)
                time.sleep(self.seconds)
                if time.monotonic() < deadline:
                    yield self.give_answer(job, answer_timing(job))
            else:
                real.append(job)
        yield from super().run(real, deadline, began)

    def give_answer(self, job: Job, answer: dict, output: bytes = b"") -> Outcome:
        return Outcome(job, answer, None, "", output, "mark", 0.1)


def print_demo() -> bytes:
    """What a child that ran a demo twice has printed."""
    return b"\nmark demo 1\nhi\n\nmark demo 2\nhi\n\nmark end\n"


def answer_timing(job: Job) -> dict:
    """What the timing job answers of the sound snippet."""
    row = {"case": {"m": 512, "n": 512, "k": 512}, "timed": True, "bytes": 3 * 2**20}
    row |= {"flops": 2**28, "unit": "fp32"}
    found = [make_result("product", 1e-3), make_result("torch", 1e-3, "peer")]
    return {"cases": [row | {"results": found}], "skips": [], "failures": [], "ceilings": {}}


@pytest.fixture
def simulated_pool(monkeypatch: pytest.MonkeyPatch) -> type[Simulated]:
    """A machine whose driver is there, and its pool."""
    monkeypatch.setattr(ledger, "may_have_gpu", lambda: True)
    monkeypatch.setattr(runs, "Pool", Simulated)
    monkeypatch.setattr(Simulated, "asked", [])
    return Simulated


def run_trial(trial: Trial, events: list[object] | None = None, **options: object) -> list[Verdict]:
    project = Project(trial.root)
    heard = events if events is not None else []
    return Run(project, Options(**options), heard.append).run_stale(
        snippet.discover_snippets(project)
    )


def index_states(verdicts: list[Verdict]) -> dict[tuple[str, str], str]:
    return {(one.snippet, one.machine): one.state for one in verdicts}


def test_a_plain_run_makes_the_records_of_gpu_and_cpu(
    trial: Trial, simulated_pool: type[Simulated]
) -> None:
    trial.add_snippet("sound", sound_snippet())
    trial.add_snippet("counts", MODEL)
    trial.add_page("all.md", '# All\n\n--8<-- "sound/whole.md"\n\n--8<-- "counts/whole.md"\n')
    events: list[object] = []
    verdicts = run_trial(trial, events, origin={"who": "Ada Lovelace"})
    assert index_states(verdicts) == {
        ("sound", SLUG): "passed",
        ("sound", "cpu"): "passed",
        ("counts", "cpu"): "passed",  # a GPU changes nothing of it
    }
    plan, outlook = events[:2]
    assert isinstance(plan, Plan) and plan.verdicts == 3
    assert isinstance(outlook, Eta) and outlook.seconds_left() == 0  # all of it is over
    folder = trial.root / "snippets" / "sound" / "results"
    read = (json.loads((folder / f"{name}.json").read_text()) for name in (SLUG, "cpu"))
    gpu, cpu = map(store.restore_rows, read)
    assert gpu["machine"] == GPU and gpu["cases"][-1]["results"][0]["time"]
    assert gpu["origin"] == {"who": "Ada Lovelace"} and "origin" not in cpu
    assert cpu["machine"]["gpus"] == 0 and not any(case["timed"] for case in cpu["cases"])
    assert "time" not in json.dumps(cpu["cases"]).replace('"timed"', "")
    # So that the mend which `shelf check` names works here: it finds no record missing or stale.
    found = [str(one) for one in inspection.inspect_project(Project(trial.root))[0]]
    assert not [line for line in found if "record" in line or "stale" in line]
    assert index_states(run_trial(trial)) == dict.fromkeys(index_states(verdicts), "current")


def test_the_children_of_the_cpu_see_no_gpu(trial: Trial, simulated_pool: type[Simulated]) -> None:
    trial.add_snippet("sound", sound_snippet())
    run_trial(trial)
    verify = [job for job in simulated_pool.asked if job.do is Task.VERIFY]
    gpu, cpu = (job.details["environment"] for job in verify)
    both = {"TRITON_INTERPRET": "0", "TRITON_DEFAULT_FP_FUSION": "1"}
    assert gpu == {**both, "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # of each of a child a core
    assert cpu == {**both, "CUDA_VISIBLE_DEVICES": ""}
    assert [job.on_gpu for job in verify] == [True, False]
    [timed] = [job for job in simulated_pool.asked if job.do is Task.TIME]
    assert timed.alone


def test_the_gpu_comes_first_and_a_budget_may_end_there(
    trial: Trial, simulated_pool: type[Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        trial.add_snippet(name, sound_snippet())
    out = trial.root / "records.json"
    run_trial(trial, out=out)
    order = [job.do for job in simulated_pool.asked]
    assert order == [Task.DESCRIBE, *[Task.VERIFY] * 2, *[Task.TIME] * 2, *[Task.VERIFY] * 2]
    made = [
        (item["snippet"], item["machine"]["slug"])
        for item in json.loads(out.read_text())["records"]
    ]
    assert made[:2] == [("one", SLUG), ("two", SLUG)]
    assert sorted(made[2:]) == [("one", "cpu"), ("two", "cpu")]
    assert not list(trial.root.glob("snippets/*/results/*"))
    out.unlink()
    monkeypatch.setattr(Simulated, "seconds", 1.5)
    assert index_states(run_trial(trial, out=out, budget=1.0, force=True)) == {
        ("one", SLUG): "left", ("two", SLUG): "left", ("one", "cpu"): "left", ("two", "cpu"): "left"
    }  # fmt: skip


def test_what_fails_on_the_gpu_is_still_checked_on_the_cpu(
    trial: Trial, simulated_pool: type[Simulated]
) -> None:
    text = sound_snippet().replace("return torch.matmul(a, b, out=out)", BROKEN_ON_GPU)
    trial.add_snippet("sound", text)
    verdicts = run_trial(trial)
    assert index_states(verdicts) == {("sound", SLUG): "failed", ("sound", "cpu"): "passed"}
    names = [path.name for path in (trial.root / "snippets/sound/results").iterdir()]
    assert names == ["cpu.json"]


BROKEN_ON_GPU = """import os

    # The child of the CPU is shown no GPU.
    wrong = 0 if os.environ.get("CUDA_VISIBLE_DEVICES") == "" else 1
    return torch.matmul(a, b, out=out) + wrong"""


def test_what_only_compiles_on_a_cpu_is_compiled_once(
    trial: Trial, simulated_pool: type[Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trial.add_snippet("scale", TRITON)
    monkeypatch.setattr(Simulated, "answers_for_gpu", True)
    assert index_states(run_trial(trial)) == {("scale", SLUG): "passed", ("scale", "cpu"): "passed"}
    [compiling] = [job for job in simulated_pool.asked if job.do is Task.COMPILE]
    assert not compiling.on_gpu  # it takes no share of the GPU: it is compiled ahead of time
    assert compiling.details["environment"]["CUDA_VISIBLE_DEVICES"] == ""
    project = Project(trial.root)
    gpu, cpu = (
        store.load_record(project, path.parent / "results" / f"{name}.json")
        for name in (SLUG, "cpu")
    )
    assert gpu["compiled"] == cpu["compiled"] != []


def test_what_a_record_has_of_compiling_is_not_compiled_on_a_borrowed_gpu(
    trial: Trial, simulated_pool: type[Simulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trial.add_snippet("scale", TRITON)
    monkeypatch.setattr(Simulated, "answers_for_gpu", True)
    run_trial(trial)
    (path.parent / "results" / f"{SLUG}.json").unlink()
    for force, compiled in ((False, 0), (True, 1)):
        simulated_pool.asked.clear()
        run_trial(trial, force=force)
        assert sum(job.do is Task.COMPILE for job in simulated_pool.asked) == compiled
        gpu, cpu = (
            store.load_record(Project(trial.root), path.parent / "results" / f"{name}.json")
            for name in (SLUG, "cpu")
        )
        assert gpu["compiled"] == cpu["compiled"] != []


def test_comparing_makes_no_record_of_the_cpu(
    trial: Trial, simulated_pool: type[Simulated]
) -> None:
    trial.add_snippet("sound", sound_snippet())
    assert index_states(run_trial(trial, both=False)) == {("sound", SLUG): "passed"}


def test_a_variant_wrong_everywhere_fails_on_both(
    trial: Trial, simulated_pool: type[Simulated]
) -> None:
    overlay = f'{CUT}VARIANTS = {{"product": lambda a, b: base.kernel(a, b) * 1.01}}\n'
    trial.add_snippet("wrong", wrong_snippet(overlay))
    assert set(index_states(run_trial(trial)).values()) == {"failed"}


@pytest.mark.parametrize(
    ("gib", "most"), [(None, 1), (7, 1), (8, 1), (16, 2), (24, 3), (80, 10), (192, 16)]
)
def test_how_many_share_a_gpu_depends_on_its_memory(gib: int | None, most: int) -> None:
    assert pool.most_on_gpu({"memory_bytes": gib and gib * 2**30}) == most


# On a borrowed GPU machine there is little more than torch: the runner must do with that.

# What the tooling uses elsewhere, and what the runner may not need. Some versions of typer bring
# pydantic along, so it is our own module that needs it which must stay out.
ABSENT = (
    "mkdocs", "material", "mkdocstrings", "pymdownx", "markdown", "rapidfuzz", "httpx",
    "watchdog", "pytest", "hypothesis", "playwright", "cuda", "warpshelf.readings.model",
)  # fmt: skip
RUN = f"""
import runpy, sys


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {ABSENT!r} or name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Absent())
build = {str(ROOT / "scripts" / "build.py")!r}
sys.argv = [build, *sys.argv[1:]]
runpy.run_path(build, run_name="__main__")
"""


def test_the_runner_needs_nothing_but_torch_and_the_command_line(trial: Trial) -> None:
    trial.add_snippet("sound", sound_snippet())
    words = ["run", "--out", "records.json", "--budget", "540"]
    run = subprocess.run(
        [sys.executable, "-c", RUN, *words], cwd=trial.root, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    [record] = json.loads((trial.root / "records.json").read_text())["records"]
    assert record["snippet"] == "sound"


def test_what_needs_more_says_what_to_install(trial: Trial) -> None:
    for words, absent in ((["check"], "rapidfuzz"), (["site"], "mkdocs")):
        text = RUN.replace(repr(ABSENT), repr((absent,)))
        run = subprocess.run(
            [sys.executable, "-c", text, *words], cwd=trial.root, capture_output=True, text=True
        )
        assert run.returncode == 1
        assert "Traceback" not in run.stderr
        assert run.stderr.startswith(f"{absent}: is not installed in this environment; run ")

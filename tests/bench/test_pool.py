"""Children: one job each, with a time limit, and nothing left of them; and how quick they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import CUT, ROOT, Trial
from measures import COUNT, take_pace, time_situations

from warpshelf.bench import assemble, pool
from warpshelf.bench.pool import Job, Outcome, Pool
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project
from warpshelf.worker.context import Task

# Children: one job each, with a time limit, and nothing left of them afterwards.

pytestmark = pytest.mark.alone

MODEL = '''"""What a child does.

Error   exact
Raises  nothing
Source  none
"""

import os
import subprocess
import sys
import time


def demo():
{demo}
'''
CASES = """import time


def facts():
{facts}
"""
FACT = {"name": "a", "value": 1, "expected": 1, "tolerance": 0, "unit": "", "source": "none"}
LOOP = "while True: time.sleep(0.01)"
ends = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


def make_job(
    trial: Trial, demo: str, name: str = "given", seconds: float = 30, **more: object
) -> Job:
    """A job whose snippet runs the statements `demo`, and has one fact."""
    facts = str(more.pop("facts", f"return [{FACT}]"))
    lines = ["\n".join(f"    {line}" for line in text.splitlines()) for text in (facts, demo)]
    text = MODEL.format(demo=lines[1]) + CUT + CASES.format(facts=lines[0])
    path = trial.add_snippet(name, text)
    details = {"root": str(trial.root), "path": str(path), "id": name, "kind": "model"}
    details |= {"needs": {}, "demo": True}
    details |= {"places": {"facts": ["cases.py", 4]}}
    return Job(Task.VERIFY, name, seconds, details | {"limit": seconds} | more)


def run_jobs(*jobs: Job) -> Outcome:
    with Pool(2) as children:
        [found] = children.run(jobs)
        assert children.running == []
    return found


def comes_true(true: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return true()


def is_alive(number: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{number}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def read_numbers(folder: Path) -> list[int]:
    return [int(path.read_text() or 0) for path in folder.glob("*.pid")]


def leave_number(folder: Path, name: str) -> str:
    """A statement by which a process leaves its number in `folder`."""
    path = str(folder / f"{name}.pid")
    return f"open({path!r}, 'w').write(str(os.getpid()))"


def test_an_answer_comes_with_what_was_printed(trial: Trial) -> None:
    found = run_jobs(make_job(trial, "print('hello', flush=True)\nos.write(2, b'raw\\n')"))
    assert found.cause is None
    spent = {key: found.answer.pop(key) for key in ("cpu_seconds", "demo_seconds")}
    assert 0 <= spent["demo_seconds"] <= spent["cpu_seconds"] < 60
    assert found.answer == {"facts": [{**FACT, "verdict": "passed"}], "failures": []}
    assert (found.job.key, found.place) == ("given", "in facts()")
    marks = [f"\n{found.token} {name}\n" for name in ("demo 1", "demo 2", "end")]
    said = "hello\nraw\n"
    assert found.output.decode() == marks[0] + said + marks[1] + said + marks[2]
    assert 0 < found.seconds < 30


def test_tokens_are_never_the_same_twice(trial: Trial) -> None:
    jobs = [make_job(trial, "pass", f"given_{n}") for n in range(3)]
    with Pool(2) as children:
        found = list(children.run(jobs))
    assert sorted(one.job.key for one in found) == ["given_0", "given_1", "given_2"]
    assert len({one.token for one in found}) == 3


def test_what_raises_is_answered_with_its_line_and_place(trial: Trial) -> None:
    found = run_jobs(make_job(trial, "print('before')\nraise ValueError('no\\nsecond line')"))
    assert found.cause is None and found.answer is not None
    [failure] = found.answer["failures"]
    assert failure["what"] == "raised ValueError: no"
    assert Path(found.job.details["path"]).read_text().splitlines()[failure["line"] - 1] == (
        "    raise ValueError('no\\nsecond line')"
    )
    assert found.place == "in demo()"
    assert b"before" in found.output


@pytest.mark.parametrize("leave", ["sys.exit(3)", "raise KeyboardInterrupt"])
def test_leaving_politely_is_an_answer(trial: Trial, leave: str) -> None:
    found = run_jobs(make_job(trial, leave))
    assert found.answer is not None
    assert found.answer["failures"][0]["what"].startswith("raised ")


@pytest.mark.parametrize(
    ("leave", "cause"),
    [
        ("os._exit(7)", "left with exit status 7 before it was done"),
        ("os._exit(0)", "left with exit status 0 before it was done"),
        ("os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("os.abort()", "was ended by SIGABRT"),
    ],
)
def test_a_child_that_dies_is_placed(trial: Trial, leave: str, cause: str) -> None:
    found = run_jobs(make_job(trial, f"print('last words', flush=True)\n{leave}"))
    assert (found.answer, found.cause, found.place) == (None, cause, "in demo()")
    assert b"last words" in found.output


def test_a_timeout_ends_the_child(trial: Trial) -> None:
    found = run_jobs(make_job(trial, f"print('tick', flush=True)\n{LOOP}", seconds=1.5))
    assert (found.answer, found.cause) == (None, "still running after 1.5 s")
    assert 1.5 <= found.seconds < 10
    assert found.place == "in demo()" and b"tick" in found.output


def test_endless_output_ends_the_child(trial: Trial) -> None:
    found = run_jobs(make_job(trial, "while True: print('x' * 4096)"))
    assert (found.answer, found.cause) == (None, f"printed more than {pool.MOST_OUTPUT} bytes")
    assert pool.MOST_OUTPUT < len(found.output) <= pool.MOST_OUTPUT + 2**17
    assert found.seconds < 20


def test_a_child_that_tells_its_place_without_pause_has_its_limit(trial: Trial) -> None:
    flood = """\
frame = sys._getframe()
while "answers" not in frame.f_locals:
    frame = frame.f_back
answers, until = frame.f_locals["answers"], time.monotonic() + 8
while time.monotonic() < until:
    answers.send_bytes(b'{"at": "in a flood"}')
"""
    found = run_jobs(make_job(trial, flood, seconds=1))
    assert (found.answer, found.cause) == (None, "still running after 1 s")
    assert found.place == "in a flood" and found.seconds < 6


def test_output_up_to_the_limit_is_kept_whole(trial: Trial) -> None:
    half = pool.MOST_OUTPUT // 2 - 500  # demo() runs twice, with marks around
    found = run_jobs(make_job(trial, f"sys.stdout.write('y' * {half})"))
    assert found.cause is None
    assert found.output.count(b"y") == 2 * half


def test_a_large_answer_arrives_whole(trial: Trial) -> None:
    # The last letter differs: an answer cut short would not end in it.
    found = run_jobs(make_job(trial, "raise ValueError('x' * 2**20 + 'z')"))
    assert found.answer is not None
    assert found.answer["failures"][0]["what"] == "raised ValueError: " + "x" * 2**20 + "z"


def test_the_environment_reaches_the_child(trial: Trial) -> None:
    say = "print(os.environ.get('SHELF_TWO'))"
    own = make_job(trial, say, environment={"SHELF_TWO": "b c"})
    assert b"b c\n" in run_jobs(own).output
    assert "SHELF_TWO" not in os.environ


def test_children_share_no_state(trial: Trial) -> None:
    say = "os.environ['SHELF_LEAK'] = 'x'\nsys.shelf_leak = 1"
    ask = "print('leak' if 'SHELF_LEAK' in os.environ or hasattr(sys, 'shelf_leak') else 'clean')"
    with Pool(1) as children:
        found = list(children.run([make_job(trial, say, "first"), make_job(trial, ask, "second")]))
    assert [one.job.key for one in found] == ["first", "second"]
    assert b"clean\n" in found[1].output


def test_a_start_is_told_and_never_more_run_than_workers(trial: Trial) -> None:
    began: list[str] = []
    jobs = [make_job(trial, "time.sleep(0.05)", f"given_{n}") for n in range(4)]
    with Pool(2) as children:
        for number, _ in enumerate(children.run(jobs, began=lambda one: began.append(one.key)), 1):
            assert len(children.running) < 2 and len(began) <= number + 1
    assert began == [f"given_{n}" for n in range(4)]


def test_past_the_deadline_nothing_starts(trial: Trial) -> None:
    began: list[Job] = []
    with Pool(2) as children:
        found = list(children.run([make_job(trial, "pass")], time.monotonic() - 1, began.append))
    assert (found, began) == ([], [])


@ends
@pytest.mark.exhaustive("waits until a deadline is over")
def test_a_deadline_ends_children_and_yields_nothing(trial: Trial, tmp_path: Path) -> None:
    jobs = [make_job(trial, f"{leave_number(tmp_path, n)}\n{LOOP}", n) for n in ("one", "two")]
    with Pool(2) as children:
        list(children.run([make_job(trial, "pass")]))  # the fork server is up from here on
        started = time.monotonic()
        assert list(children.run(jobs, started + 3)) == []
        assert time.monotonic() - started >= 3
        assert children.running == []
        assert len(read_numbers(tmp_path)) == 2
        assert comes_true(lambda: not any(map(is_alive, read_numbers(tmp_path))))


@ends
def test_leaving_the_context_ends_every_child(trial: Trial, tmp_path: Path) -> None:
    jobs = [make_job(trial, "pass", "quick")]
    jobs += [make_job(trial, f"{leave_number(tmp_path, n)}\n{LOOP}", n) for n in ("one", "two")]
    with pytest.raises(KeyboardInterrupt), Pool(3) as children:
        for _ in children.run(jobs):
            assert comes_true(
                lambda: len(read_numbers(tmp_path)) == 2 and all(read_numbers(tmp_path))
            )
            assert all(map(is_alive, read_numbers(tmp_path)))
            raise KeyboardInterrupt
    assert comes_true(lambda: not any(map(is_alive, read_numbers(tmp_path))))


@ends
@pytest.mark.parametrize("after", [LOOP, "pass", "os._exit(1)"], ids=["killed", "done", "died"])
def test_what_a_child_started_ends_with_it(trial: Trial, tmp_path: Path, after: str) -> None:
    start = "process = subprocess.Popen(['sleep', '1000'])\n"
    path = str(tmp_path / "sleep.pid")
    start += f"open({path!r}, 'a').write(f'{{process.pid}}\\n')\n"
    found = run_jobs(make_job(trial, start + after, seconds=2 if after == LOOP else 30))
    assert (found.answer is None) == (after != "pass")
    sleeping = [int(line) for line in (tmp_path / "sleep.pid").read_text().split()]
    assert sleeping
    assert comes_true(lambda: not any(map(is_alive, sleeping)))


def test_an_interrupt_is_the_parents_to_handle(trial: Trial) -> None:
    found = run_jobs(
        make_job(trial, "os.kill(os.getpid(), 2)\ntime.sleep(0.05)\nprint('still here')")
    )
    assert found.cause is None and b"still here" in found.output


@ends
def test_nothing_outlives_the_command(trial: Trial) -> None:
    """The fork server would tear torch down for half a second, and hold our output meanwhile."""
    script = (
        "from multiprocessing import forkserver\n"
        "from warpshelf.bench.pool import Pool\n"
        "with Pool(1):\n"
        "    print(forkserver._forkserver._forkserver_pid)\n"
    )
    paths = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    answer = subprocess.run(
        [sys.executable, "-c", script], env=paths, check=True, capture_output=True, text=True
    )
    assert not is_alive(int(answer.stdout))
    assert answer.stderr == ""


# A GPU has room for few, and a timing wants all of it.


def make_long_job(trial: Trial, name: str, folder: Path, **more: bool) -> Job:
    """A job that notes when it begins and ends."""
    note = f"open({str(folder / name)!r}, 'a').write(f'{{time.monotonic()}}\\n')"
    return replace(make_job(trial, f"{note}\ntime.sleep(0.3)\n{note}", name), **more)


def read_spans(folder: Path) -> dict[str, tuple[float, float]]:
    """When each job began and ended."""
    found = {
        path.name: [float(line) for line in path.read_text().split()] for path in folder.iterdir()
    }
    return {name: (min(times), max(times)) for name, times in found.items()}


def is_overlapping(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def test_no_more_share_the_gpu_than_it_has_room_for(trial: Trial, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    jobs = [make_long_job(trial, f"gpu_{n}", notes, on_gpu=True) for n in range(3)]
    jobs += [make_long_job(trial, f"cpu_{n}", notes) for n in range(2)]
    with Pool(4) as children:
        children.most_on_gpu = 1
        list(children.run(jobs))
    times = read_spans(notes)
    assert len(times) == 5
    shared = [times[f"gpu_{n}"] for n in range(3)]
    assert not any(is_overlapping(shared[a], shared[b]) for a, b in ((0, 1), (0, 2), (1, 2)))
    # What needs no GPU does not wait for it.
    assert any(is_overlapping(times[f"cpu_{n}"], one) for n in range(2) for one in shared)
    assert max(times["cpu_0"][1], times["cpu_1"][1]) < shared[2][1]


def test_what_wants_the_machine_alone_has_it(trial: Trial, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    jobs = [make_long_job(trial, "first", notes), make_long_job(trial, "alone", notes, alone=True)]
    jobs += [make_long_job(trial, "later", notes), make_long_job(trial, "also", notes, alone=True)]
    with Pool(4) as children:
        assert len(list(children.run(jobs))) == 4
    times = read_spans(notes)
    for name in ("alone", "also"):
        assert not any(is_overlapping(times[name], times[one]) for one in times if one != name)


@pytest.mark.exhaustive("waits until a deadline is over")
def test_no_timing_begins_before_a_killed_child_is_gone(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone_at: list[float] = []

    def linger_one_second(group: int) -> bool:
        """As a process that the driver holds on to: it ends a second after it was killed."""
        gone_at[:] = gone_at or [time.monotonic() + 1]
        return time.monotonic() < gone_at[0]

    monkeypatch.setattr(pool, "_any_of_group", linger_one_second)
    began: dict[str, float] = {}
    jobs = [
        make_job(trial, LOOP, "hangs", seconds=1),
        replace(make_job(trial, "pass", "timed"), alone=True),
    ]
    with Pool(2) as children:
        found = list(
            children.run(jobs, began=lambda one: began.update({one.key: time.monotonic()}))
        )
    assert [one.cause for one in found] == ["still running after 1 s", None]
    assert began["timed"] >= gone_at[0]


@pytest.mark.exhaustive("waits until a deadline is over")
def test_while_a_killed_child_will_not_end_nothing_is_timed(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_any_of_group", lambda group: True)
    monkeypatch.setattr(pool, "DYING", 0.3)
    began: list[str] = []
    timed = [replace(make_job(trial, "pass", name), alone=True) for name in ("timed", "too")]
    with Pool(2) as children:
        jobs = [make_job(trial, LOOP, "hangs", seconds=1), *timed]
        found = list(children.run(jobs, began=lambda one: began.append(one.key)))
    assert began == ["hangs"]
    for one in found[1:]:
        assert one.answer is None
        assert re.fullmatch(
            r"did not start: process \d+ of hangs was killed and has not ended", one.cause or ""
        )
    snippet = Snippet(Project(trial.root), "timed", trial.root / "snippets" / "timed")
    [line] = assemble.outcome_findings(snippet, found[1])
    assert "process" in line.what and line.mend.startswith("restart the machine")


@ends
def test_a_group_is_gone_once_all_of_it_only_waits_to_be_reaped() -> None:
    process = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"], start_new_session=True)
    assert pool._any_of_group(process.pid)
    os.killpg(process.pid, 9)
    assert comes_true(lambda: not pool._any_of_group(process.pid))  # nobody has waited for it yet
    process.wait()
    assert not pool._any_of_group(process.pid)


# The runner is quick enough that nobody leaves verification out.

ATTEMPTS = 4  # these are wall-clock times, and the machine may be busy for a while
LIMITS = {"cold": 6.0, "one changed": 2.5, "helper changed": 6.0, "nothing changed": 1.5}


@pytest.mark.exhaustive("forty snippets, verified three times")
def test_forty_snippets_are_verified_in_seconds(tmp_path: Path) -> None:
    late: dict[str, float] = {}
    for attempt in range(ATTEMPTS):
        root = tmp_path / str(attempt)
        root.mkdir()
        before = take_pace()
        results = time_situations(root)
        pace = max(1.0, before, take_pace())
        assert {name: count for name, (_, count) in results.items()} == {
            "cold": COUNT,
            "one changed": 1,
            "helper changed": COUNT,
            "nothing changed": 0,
        }
        late = {name: took for name, (took, _) in results.items() if took > pace * LIMITS[name]}
        if not late:
            return
    raise AssertionError(f"too late in each of {ATTEMPTS} attempts, in the last: {late}")

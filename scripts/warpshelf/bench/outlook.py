"""What is left of a run: its plan and each start and end of a job go in, seconds come out.

A machine twice as slow as those that the plan rests on shows it after a few jobs: what the jobs
that ended took, beside what they were expected to, scales what is still to come.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from warpshelf.bench import schedule
from warpshelf.bench.estimate import Expected
from warpshelf.bench.plan import Plan
from warpshelf.bench.pool import Job, Outcome, most_on_gpu
from warpshelf.bench.schedule import Load

PRIOR = 30.0  # seconds as expected that it takes to doubt the plan: the first jobs say little
OVERDUE = 0.1  # of what a job has run, that one which should have ended is taken to need still

Key = tuple[str, str, str, str | None]  # machine, snippet, task, target


def key_of(job: Job) -> Key:
    """What tells a job from all others of a run."""
    slug = job.details.get("machine", {}).get("slug", "")
    return slug, job.key, job.do, job.details.get("target")


@dataclass
class Ratio:
    """What jobs took, over what they were expected to; `prior` until there are some."""

    took: float = 0.0
    expected: float = 0.0

    def over(self, prior: float) -> float:
        """The ratio, drawn to `prior` by PRIOR seconds."""
        return (PRIOR * prior + self.took) / (PRIOR + self.expected)


class Outlook:
    """Hears of a run's jobs, and says what is left."""

    def __init__(self, plan: Plan, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.batches: list[tuple[dict[Key, Expected], int, int]] = []
        for turn in plan.turns:
            for batch in turn.batches():
                jobs = {key_of(one.job): one for part in batch for one in part.jobs}
                self.batches.append((jobs, turn.workers, most_on_gpu(turn.where)))
        self.running: dict[Key, float] = {}  # since when
        self.all = Ratio()
        self.each: dict[tuple[str, str], Ratio] = {}  # by task and basis

    def began(self, job: Job) -> None:
        """A job has started."""
        self.running[key_of(job)] = self.now()

    def ended(self, outcome: Outcome) -> None:
        """A job is over; one that failed says nothing of what others take."""
        key = key_of(outcome.job)
        self.running.pop(key, None)
        one = next((jobs.pop(key) for jobs, *_ in self.batches if key in jobs), None)
        if one is None or outcome.answer is None or outcome.answer.get("failures"):
            return
        for ratio in (self.all, self.each.setdefault((one.job.do, one.basis), Ratio())):
            ratio.took += outcome.seconds
            ratio.expected += one.seconds

    def settled(self, snippet: str, slug: str) -> None:
        """A snippet has its verdict: whatever it had still to do is dropped."""
        for jobs, *_ in self.batches:
            for key in [key for key in jobs if key[:2] == (slug, snippet)]:
                del jobs[key]
                self.running.pop(key, None)

    def seconds(self, one: Expected) -> float:
        """What a job is expected to take, by what the run has shown so far."""
        ratio = self.each.get((one.job.do, one.basis), Ratio())
        return min(one.seconds * ratio.over(self.all.over(1.0)), one.job.seconds)

    def left(self) -> float:
        """Seconds until all is done."""
        now, total = self.now(), 0.0
        for jobs, workers, most in self.batches:
            loads = [self._load(key, one, now) for key, one in jobs.items()]
            total = max(schedule.ends(loads, workers, most, total), default=total)
        return total

    def _load(self, key: Key, one: Expected, now: float) -> Load:
        seconds, since = self.seconds(one), self.running.get(key)
        if since is not None:
            elapsed = now - since
            seconds = max(seconds - elapsed, OVERDUE * elapsed)
            seconds = max(0.0, min(seconds, one.job.seconds - elapsed))
        return Load(seconds, one.job.on_gpu, one.job.alone, since is not None)

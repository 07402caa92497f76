"""What a fleet has to do: each stale snippet once on each kind of machine that can run it.

Enters: snippets, the kinds of a cluster, the records that are here. Leaves: items, and the verdicts
on those that need no run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from warpshelf.bench import assemble, pool
from warpshelf.bench.plan import COMPILE_SECONDS
from warpshelf.bench.run import Verdict
from warpshelf.contract.snippet import Snippet
from warpshelf.records import store
from warpshelf.records.machine import without_gpu

# Beside its jobs a run imports torch, and the first on a node compiles the engine of papergpu.
START = 180.0  # seconds
NONE, PLACED, BROUGHT = range(3)  # where a current record is, if there is one
Held = Mapping[str, Mapping[str, tuple[str, str]]]  # digest and date, by snippet and machine


@dataclass(frozen=True)
class Kind:
    """One kind of machine in the cluster: what Ray calls its accelerator, None for a CPU.

    `machine` is as the records have it, with the GPUs of a whole node. `cpus` is how many of a
    node's cores one item may use.
    """

    accelerator: str | None
    machine: dict[str, Any] = field(hash=False)
    cpus: int = 1

    @property
    def slug(self) -> str:
        """What a record of it is named after."""
        return str(self.machine["slug"])

    @property
    def name(self) -> str:
        """What people call it."""
        return self.accelerator or "CPU"


@dataclass(frozen=True)
class Item:
    """One snippet to run once on one kind of machine."""

    snippet: Snippet
    kind: Kind
    workers: int | None = None

    @property
    def key(self) -> str:
        """Its name, as the cluster sees it."""
        return f"{self.snippet.id} on {self.kind.slug}"

    @property
    def gpus(self) -> int:
        """How many GPUs it holds while it runs."""
        return max(1, self.snippet.needs.get("gpus", 1)) if self.kind.accelerator else 0

    @property
    def cpus(self) -> int:
        """How many cores it holds: those that go with its GPUs."""
        return self.kind.cpus * max(1, self.gpus)

    @cached_property
    def limit(self) -> float:
        """Seconds after which its runner hangs: all its jobs in a row, each to its own limit."""
        work = assemble.Gathered(self.snippet, self.kind.machine, None)
        jobs = [*work.jobs(COMPILE_SECONDS), work.timing_job()]
        return START + pool.LOOK_SECONDS + sum(job.seconds for job in jobs if job is not None)

    def task(self) -> dict[str, Any]:
        """What the node is told."""
        return {
            "key": self.key,
            "snippet": self.snippet.id,
            "digest": self.snippet.digest,
            "slug": self.kind.slug,
            "only": "gpu" if self.kind.accelerator else "cpu",
            "workers": self.workers or max(1, self.cpus),
            "seconds": self.limit,
        }


@dataclass
class Agenda:
    """The items to run, the stalest first, and what is settled without."""

    items: list[Item] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def agenda(
    snippets: Iterable[Snippet],
    kinds: list[Kind],
    held: Held,
    force: bool = False,
    workers: int | None = None,
) -> Agenda:
    """What is due on which of `kinds`, given the records of this checkout and those of `held`."""
    found = Agenda()
    rows: list[tuple[str, Item]] = []
    for snippet in snippets:
        if snippet.findings:
            found.verdicts.append(Verdict(snippet.id, "failed", "not run", snippet.findings))
            continue
        able, refused = _able(snippet, kinds)
        found.verdicts.extend(refused)
        made = _made(snippet, held)
        for kind in able:
            current, date = made.get(kind.slug, (NONE, ""))
            if current >= (BROUGHT if force else PLACED):
                found.verdicts.append(Verdict(snippet.id, "current", machine=kind.slug))
            else:
                rows.append((date, Item(snippet, kind, workers)))
    rows.sort(key=lambda row: (row[0], row[1].key))
    found.items = [item for _, item in rows]
    return found


def _able(snippet: Snippet, kinds: list[Kind]) -> tuple[list[Kind], list[Verdict]]:
    """The kinds that can run a snippet; the verdicts on the others, one if no GPU's can."""
    able: list[Kind] = []
    why: dict[Kind, str] = {}
    for kind in kinds:
        if kind.accelerator is None:
            # Of a kernel that cannot be executed there, what is due is listed all the same.
            reason = None if snippet.kind == "kernel" else snippet.cannot_run(None, 0)
            if reason:
                why[kind] = reason
            else:
                able.append(kind)
        elif snippet.wants_gpu:
            reason = snippet.cannot_run(kind.machine["sm"], kind.machine["gpus"])
            if reason:
                why[kind] = reason
            else:
                able.append(kind)
    if len(why) > 1 and not any(kind.accelerator for kind in able):
        reasons = ", ".join(f"{kind.name}: {reason}" for kind, reason in why.items())
        return able, [Verdict(snippet.id, "skipped", reasons, machine="any kind of this cluster")]
    return able, [
        Verdict(snippet.id, "skipped", reason, machine=kind.slug) for kind, reason in why.items()
    ]


def _made(snippet: Snippet, held: Held) -> dict[str, tuple[int, str]]:
    """Of each machine that a snippet has a record of: whether it is current, and when it was made.

    A record in its place and one that was brought home count alike, but where all is forced: what
    was brought home is this run's own, cut short, and another file begins another run.
    """
    records, _ = store.load_all(snippet)
    rows = [
        (one["machine"]["slug"], PLACED, one["digest"], one["date"]) for one in records.values()
    ]
    rows += [(slug, BROUGHT, *row) for slug, row in held.get(snippet.id, {}).items()]
    made: dict[str, tuple[int, str]] = {}
    for slug, where, digest, date in rows:
        state = where if digest == snippet.digest else NONE
        made[slug] = max(made.get(slug, (NONE, "")), (state, date))
    return made


def cpu(machine: dict[str, Any]) -> Kind:
    """The CPU, as one of the kinds; any node's will do."""
    return Kind(None, without_gpu(machine))

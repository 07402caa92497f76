"""What the zero-bubble paper measured, and the same by schedules on the clock."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from snippets.pipeline_schedules import clock
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.automatic import automatic
from snippets.pipeline_schedules.clock import Run, Table, Times
from snippets.pipeline_schedules.schedule import Schedule

FOLDER = Path(__file__).parent
PAPER = "Zero bubble, 2024"
IDLE, CLOSED = f"{PAPER}: idle share", f"{PAPER}: closed forms"  # of the same
RATE = f"{PAPER}: throughput"
COUNTED = f"{PAPER}: operations"  # throughput again, without a profile
MEMORY = f"{PAPER}: peak memory"
FITTED = (
    "ZB-1p"  # on its run with the fewest micro-batches; the profile is of its runtime
)


class Setting(NamedTuple):
    """A model on a pipeline, and what its passes were profiled to take, in ms."""

    model: str
    layers: int
    hidden: int
    heads: int
    sequence: int
    micro_batch: int
    ranks: int
    micro_batches: int
    forward_ms: float
    input_ms: float
    weight_ms: float
    transfer_ms: float

    @property
    def deep(self) -> int:
        """Layers of a stage: the first has one less beside the embedding, the last too."""
        return (self.layers + 2) // self.ranks

    @property
    def profiled(self) -> Times:
        """A stage's passes, in ms."""
        return Times(self.forward_ms, self.input_ms, self.weight_ms)

    @property
    def counted(self) -> Times:
        """A stage's passes by matrix operations alone, in T operations.

        24 h^2 a token and layer forward for the weights and as many for each gradient;
        4 s h for scores and values forward, twice that for their gradients.
        """
        h, s = self.hidden, self.sequence
        tokens = self.micro_batch * s * self.deep / 1e12
        weights, scores = 24 * h * h * tokens, 4 * s * h * tokens
        return Times(weights + scores, weights + 2 * scores, weights)

    @property
    def layer_bytes(self) -> float:
        """Activations that a layer keeps of a micro-batch: sbh (34 + 5 a s / h)."""
        h, s, b, a = self.hidden, self.sequence, self.micro_batch, self.heads
        return s * b * (34 * h + 5 * a * s)

    @property
    def kept(self) -> float:
        """The share of them that a weight pass needs: inputs and gradients, 32 sbh."""
        return 32 * self.hidden / (34 * self.hidden + 5 * self.heads * self.sequence)


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def settings() -> list[Setting]:
    """The runs whose passes the authors profiled, from their repository."""
    kinds = (str, *[int] * 7, *[float] * 4)
    return [
        Setting(*(kind(cell) for kind, cell in zip(kinds, row.values(), strict=True)))
        for row in rows("profiled.tsv")
    ]


def _one_each(s: Setting) -> Schedule:
    # one layer a chunk, as their script asks for
    return schedules.interleaved(s.ranks, s.micro_batches, s.deep)


BUILDERS: dict[str, Callable[[Setting], Schedule]] = {
    "1F1B": lambda s: schedules.one_f_one_b(s.ranks, s.micro_batches),
    "1F1B-I": _one_each,
    "ZB-H1": lambda s: schedules.zero_bubble_h1(s.ranks, s.micro_batches),
    "ZB-H2": lambda s: schedules.zero_bubble_h2(s.ranks, s.micro_batches),
}


@cache
def table(setting: Setting, schedule: str) -> Table:
    """The table of a schedule, made once."""
    return Table(BUILDERS[schedule](setting))


@cache
def executed(setting: Setting, schedule: str, counted: bool, blocks: bool) -> Run:
    """A step on the clock. ZB-1p and ZB-2p are the orders for p and 2 p held."""
    s = setting
    times, transfer = s.profiled, s.transfer_ms
    if counted:  # the share of a transfer in a stage's work is that of the profile
        times = s.counted
        transfer *= _sum(times) / _sum(s.profiled)
    if schedule == "ZB-1p":
        schedule = "ZB-H1"  # which the search finds again: a fact of cases.py
    if schedule == "ZB-2p":
        return automatic(s.ranks, s.micro_batches, times, transfer, 2 * s.ranks, s.kept)
    found = table(s, schedule)
    thin = times.times(1 / found.made.chunks)
    return clock.run(found, thin, transfer, blocks=blocks, kept=s.kept)


def _sum(times: Times) -> float:
    return math.fsum((times.forward, times.input, times.weight))


def step(setting: Setting, schedule: str, counted: bool = False) -> float:
    """A step of a real run: Megatron's two schedules wait for each message."""
    megatron = schedule.startswith("1F1B")
    made = executed(setting, schedule, counted, megatron)
    return made.step(validated_later=schedule == "ZB-2p")


def idle(setting: Setting, schedule: str) -> float:
    """The idle share as the paper computes it: from profiled times, nothing blocks."""
    made = executed(setting, schedule, False, False)
    return made.bubble(made.step(validated_later=schedule in ("ZB-H2", "ZB-2p")))


def closed(setting: Setting, schedule: str) -> float:
    """The idle share by formula, where all passes are alike and messages take nothing."""
    p, m = setting.ranks, setting.micro_batches
    over = {"1F1B": 1, "1F1B-I": setting.deep, "ZB-H1": 3}[schedule]
    return (p - 1) / (over * m + p - 1)


def peak(setting: Setting, schedule: str) -> float:
    """The most that a rank has, in GB: activations and 16 bytes a weight of its layers.

    The peak is on the second stage, which has neither embedding nor head.
    """
    s = setting
    made = executed(s, schedule, False, schedule.startswith("1F1B"))
    slices = made.table.slices
    sizes = [s.layer_bytes * s.deep * s.ranks / slices] * slices
    sizes[0] -= s.layer_bytes
    sizes[-1] -= s.layer_bytes
    states = 16 * 12 * s.hidden**2 * s.deep
    return (max(made.held(sizes)[1:-1]) + states) / 1e9


def rate(setting: Setting, schedule: str, counted: bool = False) -> float:
    """Samples a GPU in the unit of the times, with no constant yet."""
    samples = setting.micro_batches * setting.micro_batch / setting.ranks
    return samples / step(setting, schedule, counted)


def predictions() -> Iterator[dict[str, Any]]:
    """Each published row beside what its setting gives."""
    known = {(s.model, s.micro_batches): s for s in settings()}
    published = rows("published.tsv")
    scales: dict[tuple[str, bool], float] = {}  # one constant a model
    for row in published:
        s = known[row["model"], int(row["micro_batches"])]
        name, value = row["schedule"], float(row["value"])
        base = {
            "name": f"{s.model}, {s.ranks} ranks, m {s.micro_batches}, {name}",
            "published": value,
            "unit": row["unit"].removesuffix("1"),
            "source": "zero-bubble",
            "fitted": False,
        }
        if row["set"] == "memory":
            yield {**base, "set": MEMORY, "predicted": peak(s, name)}
        elif row["set"] == "throughput":
            for title, counted in ((RATE, False), (COUNTED, True)):
                key = s.model, counted
                if key not in scales:
                    scales[key] = _scale(s.model, counted, known, published)
                predicted = rate(s, name, counted) * scales[key]
                fitted = name == FITTED and s == _first(s.model, known)
                yield {**base, "set": title, "predicted": predicted, "fitted": fitted}
        elif name != "ZB-2p":  # whose share is near 0: facts of cases.py
            yield {**base, "set": IDLE, "predicted": idle(s, name)}
            if name != "ZB-H2":  # whose formula says 0
                yield {**base, "set": CLOSED, "predicted": closed(s, name)}


def searched() -> Iterator[tuple[Setting, float, float]]:
    """The idle share of ZB-2p, ours and published."""
    known = {(s.model, s.micro_batches): s for s in settings()}
    for row in rows("published.tsv"):
        if row["set"] == "idle share" and row["schedule"] == "ZB-2p":
            s = known[row["model"], int(row["micro_batches"])]
            yield s, idle(s, "ZB-2p"), float(row["value"])


def _first(model: str, known: dict[tuple[str, int], Setting]) -> Setting:
    return min((s for (name, _), s in known.items() if name == model), key=_fewest)


def _fewest(setting: Setting) -> int:
    return setting.micro_batches


def _scale(
    model: str,
    counted: bool,
    known: dict[tuple[str, int], Setting],
    published: list[dict[str, str]],
) -> float:
    """Measured over predicted on the one row of a model that its constant is from."""
    s = _first(model, known)
    [row] = [
        row
        for row in published
        if row["set"] == "throughput"
        and (row["model"], int(row["micro_batches"])) == (model, s.micro_batches)
        and row["schedule"] == FITTED
    ]
    return float(row["value"]) / rate(s, FITTED, counted)

"""The pipeline calculator: a step on the clock, as a form, rows and plots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snippets.pipeline_schedules import clock
from snippets.pipeline_schedules import pipeline_schedules as schedules
from snippets.pipeline_schedules.automatic import automatic
from snippets.pipeline_schedules.clock import Run, Table, Times
from snippets.pipeline_schedules.schedule import Schedule

SEARCHED = "searched"
BUILDERS: dict[str, Callable[[int, int, int], Schedule]] = {
    "GPipe": lambda p, m, v: schedules.gpipe(p, m),
    "1F1B": lambda p, m, v: schedules.one_f_one_b(p, m),
    "interleaved": lambda p, m, v: schedules.interleaved(p, m, v),
    "ZB-H1": lambda p, m, v: schedules.zero_bubble_h1(p, m),
    "ZB-H2": lambda p, m, v: schedules.zero_bubble_h2(p, m),
    "ZB-V": lambda p, m, v: schedules.zero_bubble_v(p, m),
    "DualPipe": lambda p, m, v: schedules.dualpipe(p, m),
    "DualPipeV": lambda p, m, v: schedules.dualpipe_v(p, m),
}
MOST = 20_000  # operations of a schedule: a second or so in a browser
COMPARED = 6_000  # of all schedules together
DRAWN = 1_200  # operations of a timeline that can still be read


def _number(
    name: str,
    label: str,
    group: str,
    default: float,
    most: float,
    unit: str,
    help_: str,
) -> dict[str, Any]:
    whole = isinstance(default, int)
    return {
        "name": name,
        "label": label,
        "group": group,
        "kind": "integer" if whole else "number",
        "default": default,
        "least": 1 if whole else 0.0,
        "most": most,
        "unit": unit,
        "help": help_,
    }


INPUTS: tuple[dict[str, Any], ...] = (
    {
        "name": "schedule",
        "label": "Schedule",
        "group": "Pipeline",
        "kind": "choice",
        "choices": (*BUILDERS, SEARCHED),
        "default": "1F1B",
        "help": "The order of each rank's passes; searched looks for one, given the times.",
    },
    _number("stages", "Pipeline ranks", "Pipeline", 4, 128, "", "How many ranks in a row."),
    _number(
        "micro_batches", "Micro-batches", "Pipeline", 8, 4096, "",
        "Of a step, through one pipeline.",
    ),
    _number(
        "chunks", "Chunks a rank", "Pipeline", 2, 16, "",
        "Slices of the model on a rank, for the interleaved schedule alone.",
    ),
    _number(
        "limit", "Memory limit", "Pipeline", 0.0, 1024.0, "micro-batches",
        "Activations that a rank may hold, for the searched schedule; 0 is twice the ranks.",
    ),
    _number(
        "forward", "Forward pass", "Times of a stage", 10.0, 1e6, "ms",
        "One micro-batch through all layers of a rank.",
    ),
    _number(
        "input", "Input gradient", "Times of a stage", 10.0, 1e6, "ms",
        "The part of the backward pass that the stage before waits for.",
    ),
    _number(
        "weight", "Weight gradient", "Times of a stage", 10.0, 1e6, "ms",
        "The other part, which nobody waits for.",
    ),
    _number(
        "first", "Embedding", "Times of a stage", 0.0, 1e6, "ms",
        "What the first stage takes more, in each of its three passes.",
    ),
    _number(
        "last", "Head and loss", "Times of a stage", 0.0, 1e6, "ms",
        "What the last stage takes more, in each of its three passes.",
    ),
    _number(
        "transfer", "Message", "Messages", 0.5, 1e6, "ms",
        "One boundary's activations or gradients, from rank to rank.",
    ),
    {
        "name": "blocks",
        "label": "Receives block",
        "group": "Messages",
        "kind": "flag",
        "default": False,
        "help": "Whether a rank that receives computes nothing meanwhile.",
    },
    _number(
        "update", "Optimizer step", "Update", 0.0, 1e6, "ms", "Once a step, on each rank."
    ),
    {
        "name": "validated_later",
        "label": "Validate after the update",
        "group": "Update",
        "kind": "flag",
        "default": False,
        "help": "Ranks update once they are done, and roll back if a check fails later.",
    },
)  # fmt: skip


def calculate(**inputs: Any) -> dict[str, Any]:
    """The step, what is idle, what is held, the timeline, and all schedules beside it."""
    given = {one["name"]: one["default"] for one in INPUTS} | inputs
    _check(given)
    name, p, m = given["schedule"], given["stages"], given["micro_batches"]
    made = _run(name, given)
    step = made.step(given["update"], validated_later=given["validated_later"])
    idle, held = made.bubble(step), made.held()
    most = max(held)
    where = held.index(most)
    return {
        "answer": f"{step:.4g} ms a step, {100 * idle:.3g} % of it idle; "
        f"rank {where} holds {most:.4g} micro-batches",
        "rows": (
            _row(
                "step", step, "ms", "longest path through the table, and the update",
                "zero-bubble", "On the clock: step of 1F1B, p 8, m 24",
            ),
            _row(
                "idle share", 100 * idle, "%", "1 - work of all ranks / (ranks * step)",
                "zero-bubble", "On the clock: step of 1F1B, p 8, m 24",
            ),
            _row(
                "work of a rank", step * (1 - idle), "ms",
                "micro-batches * (forward + input + weight), over the ranks",
                "megatron-interleaved-1f1b", "On the clock: a head on the last stage of 1F1B",
            ),
            _row(
                "activations held at most", most, "micro-batches",
                "forward passes begun less last gradients done, of a stage",
                "reducing-activation-recomputation",
                "GPipe, p 2, m 6, F 4, I 5, W 3: peak activations",
            ),
            _row(
                "copies of the parameters", made.table.made.copies, "",
                "slices held by all ranks / slices of the model",
                "dualpipe", "DualPipe, p 2, m 6, F 4, I 4, W 3: copies of the parameters",
            ),
        ),
        "plots": tuple(_plots(made, given, held)),
        "band": {"set": "Zero bubble, 2024: throughput", "within": 0.05},
        "notes": tuple(_notes(name, p, m)),
    }  # fmt: skip


def _row(
    name: str, value: float, unit: str, formula: str, source: str, test: str
) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "unit": unit,
        "formula": formula,
        "source": source,
        "test": test,
    }


def _check(given: dict[str, Any]) -> None:
    known = {one["name"] for one in INPUTS}
    if unknown := sorted(set(given) - known):
        raise ValueError(f"pipeline calculator: no input {unknown[0]!r}; see INPUTS")
    for one in INPUTS:
        value = given[one["name"]]
        if one["kind"] == "choice" and value not in one["choices"]:
            choices = ", ".join(one["choices"])
            raise ValueError(
                f"pipeline calculator: no {one['name']} {value!r}; there are {choices}"
            )
        if "least" in one and not one["least"] <= value <= one["most"]:
            raise ValueError(
                f"pipeline calculator: {one['name']} = {value}; "
                f"give {one['least']:g} to {one['most']:g}"
            )
    work = given["forward"] + given["input"] + given["weight"]
    if work <= 0:
        raise ValueError("pipeline calculator: all passes take 0 ms; give one a time")
    count = _operations(given["schedule"], given)
    if count > MOST:
        raise ValueError(
            f"pipeline calculator: {count} operations exceed {MOST}; "
            "take fewer ranks, micro-batches or chunks"
        )


def _operations(name: str, given: dict[str, Any]) -> int:
    chunks = given["chunks"] if name == "interleaved" else 1 + (name[-1] == "V")
    return 3 * int(given["stages"] * given["micro_batches"] * chunks)


def _run(name: str, given: dict[str, Any]) -> Run:
    """A schedule on the clock; times are those of a stage, which its chunks share."""
    p, m = given["stages"], given["micro_batches"]
    stage = Times(given["forward"], given["input"], given["weight"])
    if name == SEARCHED:
        limit = given["limit"] or 2 * p
        later = given["validated_later"]
        table = automatic(
            p, m, stage, given["transfer"], limit, validated_later=later
        ).table
    else:
        table = Table(BUILDERS[name](p, m, given["chunks"]))
    ends = [Times(*[given[end]] * 3) for end in ("first", "last")]
    each = clock.uneven(stage.times(1 / table.made.chunks), table.slices, *ends)
    return clock.run(table, each, given["transfer"], blocks=given["blocks"])


def _plots(made: Run, given: dict[str, Any], held: list[float]) -> list[dict[str, Any]]:
    plots = []
    if len(made.ends) <= DRAWN:
        plots.append(_timeline(made))
    steps: list[tuple[str, float]] = []
    total = sum(_operations(name, given) for name in (*BUILDERS, SEARCHED))
    if total <= COMPARED:
        for name in (*BUILDERS, SEARCHED):
            try:
                one = made if name == given["schedule"] else _run(name, given)
            except ValueError:
                continue  # a schedule that is not made for these sizes
            later = given["validated_later"]
            steps.append((name, one.step(given["update"], validated_later=later)))
        plots.append(
            {
                "kind": "bars",
                "title": "A step under each schedule",
                "x": "schedule",
                "y": "step, ms",
                "series": ({"name": "step", "points": tuple(steps)},),
                "limit": {
                    "name": "work alone",
                    "value": made.step() * (1 - made.bubble()),
                },
            }
        )
    ranks = tuple((f"rank {rank}", value) for rank, value in enumerate(held))
    plots.append(
        {
            "kind": "bars",
            "title": "Activations held at most",
            "x": "rank",
            "y": "micro-batches of a stage",
            "series": ({"name": "held", "points": ranks},),
            "limit": None,
        }
    )
    return plots


def _timeline(made: Run) -> dict[str, Any]:
    kinds = {
        "F": "forward",
        "B": "backward",
        "I": "input gradient",
        "W": "weight gradient",
    }
    series: dict[str, list[tuple[int, float, float, str]]] = {}
    rows = zip(made.table.operations, made.ends, made.lengths, strict=True)
    for passes, end, length in rows:
        name = (
            "forward and backward" if len(passes) > 1 else kinds[passes[0].kind.value]
        )
        label = " and ".join(str(one.micro_batch) for one in passes)
        series.setdefault(name, []).append((passes[0].rank, end - length, end, label))
    return {
        "kind": "timeline",
        "title": made.table.made.name,
        "x": "time, ms",
        "y": "rank",
        "series": tuple(
            {"name": name, "points": tuple(of)} for name, of in series.items()
        ),
        "limit": None,
    }


def _notes(name: str, p: int, m: int) -> list[str]:
    notes = [
        "Tensor and data parallelism are inside the times of a pass and of the update.",
        "A pass takes the same time whatever else runs. Measured steps take longer than "
        "their profiled passes on the clock, by a factor that one run of a model tells.",
    ]
    if name.startswith("DualPipe"):
        notes.append(
            "An overlapped pair takes as long as its two passes: what it hides is not counted."
        )
    if m < 2 * p:
        notes.append(
            "With fewer than two micro-batches a rank, fill and drain are most of it."
        )
    return notes

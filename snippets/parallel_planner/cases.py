"""What parallel_planner must show: no plan is better, and how far its costs are off."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

from snippets.facts import fact
from snippets.memory_model.memory_model import by_rank
from snippets.memory_model.plan import Plan as Trained
from snippets.model_configs.model_configs import read
from snippets.model_flops.model_flops import MODELS, Decoder, Experts
from snippets.parallel_planner.costs import (
    Cluster,
    Costs,
    Layout,
    Transformer,
    divisors,
)
from snippets.parallel_planner.parallel_planner import (
    Plan,
    Stage,
    even,
    mixed,
    step_time,
)
from snippets.training_time.layers import Plan as Timed
from snippets.training_time.training_time import STACKS, step

A100 = {"rate": 312e12, "bandwidth": 0.86 * 2.039e12, "link": 222e9, "network": 25e9}
HERE = Path(__file__).parent
MEGATRON = "Megatron-LM, 2021, their layouts by the planner's costs"
GOALS = ({"name": "the planner's costs", "sets": (MEGATRON,), "worst": 0.20},)

DENSE = Decoder(4, 4096, 32, 8, 128, 14336, 32000)  # 6 units, so up to 6 stages
SPARSE = Decoder(
    4, 2048, 16, 4, 128, 8192, 32000, experts=Experts(routed=8, chosen=2, size=8192)
)


def facts() -> list[dict[str, Any]]:
    """The planner against enumeration, the formula against execution, bytes, sizes."""
    return (
        enumerated_facts() + executed_facts() + byte_facts() + timed_facts()
        + large_facts()
    )  # fmt: skip


def enumerated_facts() -> list[dict[str, Any]]:
    """The least time of every plan there is, up to 6 stages on 8 GPUs."""
    rows = []
    for name, model, gpus, memory, link, batch in (
        ("dense, 8 GPUs, fast links", DENSE, 8, 9e9, 370e9, 8),
        ("dense, 8 GPUs, slow links", DENSE, 8, 8e9, 15e9, 8),
        ("dense, 8 GPUs, little memory", DENSE, 8, 4e9, 15e9, 8),
        ("dense, 6 GPUs, little memory", DENSE, 6, 5e9, 60e9, 8),
        ("experts, 8 GPUs, little memory", SPARSE, 8, 5e9, 15e9, 4),
    ):
        cluster = Cluster(gpus, memory=memory, link=link)
        costs = Transformer(model, cluster, 2048)
        for what, found, plan in (
            ("the plan", every(costs, cluster, batch), mixed(costs, cluster, batch)),
            ("one layout", alike(costs, cluster, batch), even(costs, cluster, batch)),
        ):
            times = [step_time(*one) for one in found]
            rows.append(
                fact(f"{name}, {what}: a step", plan.time, min(times),
                     f"least of {len(times):,} plans, enumerated", 1e-12, "s")
            )  # fmt: skip
    return rows


Planned = tuple[tuple[Stage, ...], int]  # and the micro-batches


def every(costs: Costs, cluster: Cluster, batch: int) -> Iterator[Planned]:
    """Every plan that uses all GPUs and fits, by plain loops."""
    for m in divisors(batch):
        layouts = list(costs.layouts(cluster.gpus, batch // m))
        for p in range(1, min(costs.units, cluster.gpus) + 1):
            for cuts in ends(costs.units, p):
                for widths in ends(cluster.gpus, p):
                    ways = []
                    for i in range(p):
                        gpus = widths[i + 1] - widths[i]
                        some = [one for one in layouts if one.gpus == gpus]
                        ways.append(
                            stages(costs, cluster, cuts[i : i + 2], some, batch // m,
                                   min(p - i, m))
                        )  # fmt: skip
                    for chosen in product(*ways):
                        yield chosen, m


def alike(costs: Costs, cluster: Cluster, batch: int) -> Iterator[Planned]:
    """Every plan whose stages share a layout, at most 8 sequences a rank at once."""
    for m in divisors(batch):
        for layout in costs.layouts(cluster.gpus, batch // m):
            if batch // m // layout.data > 8:
                continue
            for p in range(1, min(costs.units, cluster.gpus // layout.gpus) + 1):
                for cuts in ends(costs.units, p):
                    ways = [
                        stages(costs, cluster, cuts[i : i + 2], [layout], batch // m,
                               min(p - i, m))
                        for i in range(p)
                    ]  # fmt: skip
                    for chosen in product(*ways):
                        yield chosen, m


def ends(count: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Where to cut `count` in a row into `parts`, with both ends."""
    for inner in combinations(range(1, count), parts - 1):
        yield (0, *inner, count)


def stages(
    costs: Costs,
    cluster: Cluster,
    cuts: Sequence[int],
    layouts: Sequence[Layout],
    sequences: int,
    flight: int,
) -> list[Stage]:
    """A stage's layouts with any number of layers recomputed, those that fit."""
    found = []
    for layout in layouts:
        cost = costs.stage(cuts[0], cuts[1], layout, sequences)
        for again in range(cost.layers + 1):
            held = cost.state + cost.extra + flight * (cost.kept - again * cost.saved)
            if held <= cluster.memory * cluster.usable * (1 + 1e-9):
                time = cost.time + again * cost.again
                found.append(Stage(*cuts, layout, again, time, cost.sync, held))
    return found


def executed_facts() -> list[dict[str, Any]]:
    """1F1B run pass by pass, with the times of a plan's stages, against the formula."""
    rows = []
    for name, gpus, batch in (("Llama 3.1 70B", 64, 256), ("Llama 3.1 405B", 512, 256)):
        cluster = Cluster(gpus)
        costs = Transformer(MODELS[name], cluster, 8192)
        plan = even(costs, cluster, batch)
        times = []
        for one in plan.stages:
            cost = costs.stage(one.first, one.last, one.layout, plan.sequences)
            forward = cost.time / 3
            times.append((forward, one.time - forward))
        told = executed(times, plan.micro_batches)
        due = plan.time - max(one.sync for one in plan.stages)
        what = f"{name} on {gpus} GPUs, {len(plan.stages)} stages: passes of a step"
        rows.append(fact(what, told, due, "sum t + (m - 1) max t, alpa", 1e-3, "s"))
    return rows


def executed(times: Sequence[tuple[float, float]], m: int) -> float:
    """When 1F1B ends: forward and backward seconds by stage, messages in them."""
    p = len(times)
    orders = []
    for i in range(p):
        ahead = min(p - i, m)
        order = [("F", j) for j in range(ahead)]
        for j in range(m):
            order.append(("B", j))
            if ahead + j < m:
                order.append(("F", ahead + j))
        orders.append(order)
    done: dict[tuple[str, int, int], float] = {}
    free, at = [0.0] * p, [0] * p
    while any(at[i] < len(orders[i]) for i in range(p)):
        for i in range(p):
            while at[i] < len(orders[i]):
                kind, j = orders[i][at[i]]
                before = ("F", i - 1, j) if kind == "F" else ("B", i + 1, j)
                if before[1] in range(p) and before not in done:
                    break
                start = max(free[i], done.get(before, 0.0))
                free[i] = done[kind, i, j] = start + times[i][kind == "B"]
                at[i] += 1
    return max(free)


SEVENTY = """{"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672,
    "vocab_size": 128256}"""


def byte_facts() -> list[dict[str, Any]]:
    """Bytes of each stage of a layout against the model that published runs are of."""
    rows, d, t, p, m, s = [], 2, 8, 4, 64, 8192
    cluster, model = Cluster(d * t * p), MODELS["Llama 3.1 70B"]
    costs = Transformer(model, cluster, s)
    for way in ("none", "full"):
        run = Trained(s, micro_batches=m, data=d, tensor=t, pipeline=p, recompute=way)
        for told in by_rank(read(SEVENTY), run):
            i = told.rank
            first = model.layers * i // p + (1 if i else 0)
            last = model.layers * (i + 1) // p + (2 if i == p - 1 else 1)
            cost = costs.stage(first, last, Layout(d, t), d)
            again = cost.layers if way == "full" else 0
            held = cost.state + cost.extra
            held += min(p - i, m) * (cost.kept - again * cost.saved)
            rows.append(
                fact(f"Llama 3.1 70B, stage {i + 1} of {p}, recomputed {way}: bytes",
                     held, told.total, "memory_model", 0.05, "B")
            )  # fmt: skip
    return rows


STACK = "Megatron-LM 2022, A100"


def timed_facts() -> list[dict[str, Any]]:
    """The layout that our costs prefer, timed by the model that published runs are of.

    Of all layouts with stages of equally many layers, all of them recomputed or none.
    """
    rows = []
    for name, gpus, batch in (
        ("Llama 3.1 8B", 64, 256),
        ("Llama 3.1 70B", 64, 256),
        ("Llama 3.1 70B", 512, 512),
    ):
        model = MODELS[name]
        costs = Transformer(model, Cluster(gpus, **A100), 8192)
        found = []
        for layout, p, micro, way in product(
            costs.layouts(gpus, batch), divisors(model.layers), (1, 2, 4, 8), WAYS
        ):
            d, t, c, _ = layout
            if layout.gpus * p != gpus or batch % (micro * d):
                continue
            ours = alike_in(costs, layout, p, batch, micro, way == "full")
            if ours is not None:
                run = Timed(gpus, batch, micro, 8192, t, p, c, recompute=way)
                theirs = step(model, run, STACKS[STACK]).total
                found.append((round(ours, 9), c, t, theirs))
        least = min(theirs for *_, theirs in found)
        what = f"{name} on {gpus} A100: step of the layout preferred, of {len(found)}"
        rows.append(fact(what, min(found)[-1], least, "training_time, its best layout",
                         0.05, "s"))  # fmt: skip
    return rows


WAYS = ("none", "full")


def alike_in(
    costs: Transformer, layout: Layout, p: int, batch: int, micro: int, again: bool
) -> float | None:
    """Seconds of a step in `p` stages of equally many layers, if they fit."""
    each, cluster = costs.model.layers // p, costs.cluster
    b = micro * layout.data
    found = []
    for i in range(p):
        first, last = (1 + each * i if i else 0), 1 + each * (i + 1) + (i == p - 1)
        cost = costs.stage(first, last, layout, b)
        layers = cost.layers if again else 0
        held = cost.state + cost.extra
        held += min(p - i, batch // b) * (cost.kept - layers * cost.saved)
        if held > cluster.memory * cluster.usable:
            return None
        time = cost.time + layers * cost.again
        found.append(Stage(first, last, layout, layers, time, cost.sync, held))
    return step_time(found, batch // b)


def large_facts() -> list[dict[str, Any]]:
    """Plans for thousands of GPUs keep to what they must."""
    rows = []
    for name, gpus, batch, length in (
        ("Llama 3.1 405B", 10_000, 2048, 8192),
        ("DeepSeek-V3", 10_000, 15_360, 4096),
    ):
        cluster = Cluster(gpus)
        costs = Transformer(MODELS[name], cluster, length)
        plan = even(costs, cluster, batch)
        most = max(one.bytes for one in plan.stages)
        again = sum(checked(plan, costs, cluster))
        rows += [
            fact(f"{name} on {gpus} GPUs: bytes of the fullest, over those there are",
                 max(most / (cluster.memory * cluster.usable), 1), 1, "at most 1"),
            fact(f"{name} on {gpus} GPUs: GPUs of the plan, over those there are",
                 max(plan.gpus / gpus, 1), 1, "at most 1"),
            fact(f"{name} on {gpus} GPUs: units in stages", again, costs.units,
                 "each once, in order"),
        ]  # fmt: skip
    return rows


def checked(plan: Plan, costs: Costs, cluster: Cluster) -> Iterator[int]:
    """Units of each stage, after a look at its order, time and bytes."""
    end = 0
    for i, one in enumerate(plan.stages):
        cost = costs.stage(one.first, one.last, one.layout, plan.sequences)
        flight = min(len(plan.stages) - i, plan.micro_batches)
        held = cost.state + cost.extra
        held += flight * (cost.kept - one.recomputed * cost.saved)
        same = abs(held - one.bytes) <= 1e-9 * held
        right = abs(cost.time + one.recomputed * cost.again - one.time) <= 1e-12
        yield one.last - one.first if one.first == end and same and right else -1
        end = one.last


def predictions() -> list[dict[str, Any]]:
    """Megatron's runs of 2021 in their layouts, all layers recomputed, by our costs."""
    with (HERE / "published.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = []
    for row in rows:
        layers, hidden, s = (int(row[k]) for k in ("layers", "hidden", "sequence"))
        vocabulary, batch = int(row["vocabulary"]), int(row["batch"])
        flops = 96 * batch * s * layers * hidden**2
        flops *= 1 + s / 6 / hidden + vocabulary / 16 / layers / hidden
        seconds = step_time(*theirs(row))
        found.append({
            "set": MEGATRON,
            "name": f"{row['name']} on {row['gpus']} A100",
            "predicted": flops / seconds / int(row["gpus"]) / 1e12,
            "published": float(row["value"]),
            "unit": row["unit"],
            "source": row["source"],
            "fitted": row["name"] == "39.1B",
        })  # fmt: skip
    return found


def theirs(row: dict[str, str]) -> Planned:
    """A published run as stages: layers cut evenly, all of them recomputed."""
    names = ("layers", "hidden", "heads", "sequence", "vocabulary", "batch")
    layers, hidden, heads, s, vocabulary, batch = (int(row[k]) for k in names)
    names = ("micro_batch", "tensor", "pipeline", "data", "gpus")
    micro, t, p, d, gpus = (int(row[k]) for k in names)
    model = Decoder(layers, hidden, heads, heads, hidden // heads, 4 * hidden,
                    vocabulary, gated=False, tied=True, biases=True,
                    positions=s)  # fmt: skip
    cluster = Cluster(gpus, share=0.6, **A100)
    costs, found = Transformer(model, cluster, s), []
    for i in range(p):
        first = layers * i // p + (1 if i else 0)
        last = layers * (i + 1) // p + (2 if i == p - 1 else 1)
        cost = costs.stage(first, last, Layout(d, t), micro * d)
        again, layout = cost.layers, Layout(d, t)
        time = cost.time + again * cost.again
        found.append(Stage(first, last, layout, again, time, cost.sync, 0.0))
    return tuple(found), batch // (micro * d)

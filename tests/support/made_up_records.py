"""Made-up records, exhibits and reading lists for tests; no number here was measured."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

from warpshelf.contract.digest import METHOD
from warpshelf.records.limits import FLOPS_PER_CLOCK
from warpshelf.records.space import COMPILED, TIMES, format_row
from warpshelf.render import fragments
from warpshelf.render.listings import Listing
from warpshelf.render.snippet_page import MachineState, SnippetPage, SourceLink

TODAY = "2026-11-22T07:08:09Z"  # a day on which records could be made
GPU = "Imaginary G9 80GB"
CODE = '''"""Row softmax in one pass."""

import triton


# --8<-- [start:kernel]
@triton.jit
def softmax(x, y, n):
    row = triton.language.program_id(0)


# --8<-- [end:kernel]
def demo():
    print("row sums")
'''
CUDA = """#include <cuda.h>
// --8<-- [start:kernel]
__global__ void softmax(const float* x, float* y) {}
// --8<-- [end:kernel]
"""


def set_at(way: str, value: object) -> Callable[[Any], None]:
    """What sets, or by a function changes, what stands at a way such as `cases.2.results.0`."""

    def set_value(found: Any) -> None:
        *keys, last = (int(key) if key.isdigit() else key for key in way.split("."))
        for key in keys:
            found = found[key]
        found[last] = value(found[last]) if callable(value) else value

    return set_value


def remove_at(way: str) -> Callable[[Any], None]:
    """What takes away what stands at a way."""
    above, _, last = way.rpartition(".")
    key = int(last) if last.isdigit() else last

    def remove_value(found: Any) -> None:
        for one in above.split(".") if above else ():
            found = found[int(one) if one.isdigit() else one]
        del found[key]

    return remove_value


def make_machine(slug: str = "imaginary-g9-80gb", device: str = GPU, gpus: int = 1) -> dict:
    """The machine of a record: a GPU, or the CPU for `gpus` 0."""
    gpu = gpus > 0
    return {
        "slug": slug if gpu else "cpu",
        "device": device if gpu else "CPU",
        "gpus": gpus,
        "memory_bytes": 80 * 2**30 if gpu else None,
        "sm": 90 if gpu else None,
        "sms": 128 if gpu else None,
        "driver": "999.1" if gpu else None,
        "cuda": "99.0" if gpu else None,
        "torch": "2.13.0",
        "triton": "3.7.1",
        "python": "3.11.7",
        "os": "Linux x86_64",
    }


def make_result(
    name: str, median: float | None = None, role: str = "variant", **more: object
) -> dict:
    """A result that passed; timed where `median`, in seconds, is given."""
    found: dict = {
        "name": name,
        "role": role,
        "verdict": "passed",
        "error": 3.1e-8,
        "tolerance": 5e-6,
        "max_error": 1.25e-9,
        "max_error_limit": 4e-9,
    }
    if median is not None:
        found["time"] = {"median": median, "p20": median * 0.98, "p80": median * 1.03, "n": 120}
    return found | more


def make_record(
    gpus: int = 1,
    cases: list[dict] | None = None,
    date: str = "2031-05-06T07:08:09Z",
    slug: str = "imaginary-g9-80gb",
    device: str = GPU,
    **more: object,
) -> dict:
    """A record of a kernel, of the GPU for `gpus` above 0, with the cases of a ladder."""
    found: dict = {
        "schema": 1,
        "method": 1,
        "snippet": "softmax",
        "kind": "kernel",
        "digest": "sha256:" + "5a" * 32,
        "date": date,
        "commit": "abc1234",
        "command": "shelf run softmax",
        "machine": make_machine(slug, device, gpus),
        "demo": "shape (37, 781)\nrow sums 1.000 to 1.000\n",
        "cases": make_ladder(gpus > 0) if cases is None else cases,
        "compiled": [make_compiled(arch) for arch in ("sm_80", "sm_90", "sm_100")],
        "skips": [{"what": "bulk copy", "reason": "needs SM 90 or above; this GPU is SM 80"}],
    }
    if not gpus:
        found["due"] = list_due(make_ladder() if cases is None else cases)
        found["targets"] = ["sm_80", "sm_90", "sm_100"]
    if gpus:
        found["ceilings"] = {
            "copy_bytes_per_second": 3.0e12,
            "matrix_flops_per_second": {"bf16": 7.9e14, "fp32": 5.5e13},
            "peak_bytes_per_second": 3.35e12,
            "peak_flops_per_second": {"bf16": 1.07e15, "fp32": 6.7e13},
        }
        load = {"sm_mhz": 1980, "memory_mhz": 2619, "celsius_highest": 55, "watts": 320}
        found["conditions"] = {"load": load, "slowed_by": ["software power cap"]}
    return found | more


def make_honest(found: dict, **more: object) -> dict:
    """A record as this checkout would have made it today, so that neither import nor check objects.

    What is made up of the GPU is made up in keeping with one clock, and with what every GPU obeys.
    """
    known = {"method": METHOD, "date": TODAY, "command": f"shelf run {found['snippet']}"}
    made = copy.deepcopy(found | known | {"skips": []} | more)
    machine = made["machine"]
    if machine["gpus"]:
        made.setdefault("origin", {"who": "Ada Lovelace"})
        rates = FLOPS_PER_CLOCK[machine["sm"]]
        peaks = {unit: rate * machine["sms"] * 1980e6 for unit, rate in rates.items()}
        made["ceilings"]["peak_flops_per_second"] = peaks
    return made


def make_compiled(arch: str, kernel: str = "softmax_one_pass", **more: object) -> dict:
    """The compile figures of a kernel on one architecture."""
    return {
        "kernel": kernel,
        "variant": "one pass",
        "language": "Triton",
        "arch": arch,
        "registers": 32,
        "spilled_bytes": 0,
        "shared_bytes": 49152,
        "matrix_instructions": False,
        "compiler": "Triton 3.7.1",
    } | more


def make_case(m: int, n: int, results: list[dict], timed: bool = False, **more: object) -> dict:
    """A case of `m` rows and `n` columns of float32, read once and written once."""
    sides = {"m": m, "n": n, "scale": 1.0, "dtype": "float32"}
    cost = {"bytes": 8 * m * n, "flops": 5 * m * n, "unit": "fp32"}
    return {"case": sides, "timed": timed, "results": results} | cost | more


def make_ladder(timed: bool = True) -> list[dict]:
    """Two small cases, and a timed one with three variants, a slow peer and a failed one."""
    small = [make_result("one pass"), make_result("online"), make_result("torch", role="peer")]
    failed = {
        "name": "fancy",
        "role": "peer",
        "verdict": "failed",
        "reason": "error 3e-2 over 5e-3",
    }
    found = [make_case(1, 1, small), make_case(37, 781, [*small, failed])]
    if timed:
        times = {"three passes": 8.1e-5, "one pass": 4.91e-5, "online": 4.93e-5}
        large = [make_result(name, time) for name, time in times.items()]
        large += [make_result("torch", 5.71e-5, "peer"), failed]
        found.append(make_case(4096, 4096, large, timed=True))
    return found


def list_due(cases: list[dict]) -> list[dict]:
    """What the record of the CPU says that every record must show, were it such cases."""
    found = []
    for row in cases:
        names: dict[str, list[str]] = {"variant": [], "peer": []}
        for one in row["results"]:
            names[one["role"]].append(one["name"])
        made = {"case": row["case"], "timed": row["timed"], "tolerance": 5e-6}
        made |= {"variants": names["variant"], "peers": names["peer"]}
        costs = ("bytes", "flops", "unit")
        cost = {key: row[key] for key in costs if key in row} if row["timed"] else {}
        found.append(made | cost)
    return found


def make_sweep(names: tuple[str, ...] = ("one pass", "online"), sizes: int = 6) -> list[dict]:
    """Timed cases that differ in one side, on which the variants slow down by turns."""
    found = []
    for power in range(sizes):
        n = 1024 << power
        ideal = 8 * 4096 * n / 3.0e12 + 2e-6
        results = [make_result(name, ideal * (1.1 + 0.3 * i)) for i, name in enumerate(names)]
        results.append(make_result("torch", ideal * 1.25, "peer"))
        found.append(make_case(4096, n, results, timed=True))
    return found


def make_exhibit(*states: MachineState, **more: object) -> SnippetPage:
    """The exhibit of a kernel with the given states."""
    given: dict = {
        "id": "softmax",
        "kind": "kernel",
        "title": "Row softmax in one pass: a program owns a row and keeps it on chip.",
        "sections": {
            "Shapes": "x (M, N) float32, rows contiguous -> y (M, N) float32",
            "Bytes": "x read once, y written once: 8 * M * N",
            "Error": "within 5e-6 of a float64 reference; a NaN fails",
            "Raises": "ValueError if N > MAX_N",
            "Source": "online-softmax",
        },
        "code": [
            Listing("Triton", "python", "softmax.py", CODE),
            Listing("CUDA C++", "cuda", "softmax.cu", CUDA),
        ],
        "sources": [
            SourceLink(
                "Online normalizer calculation", "/kernels/softmax.md#reading-online-softmax"
            )
        ],
        "states": states,
    }
    return SnippetPage(**given | more)


def make_measured(found: dict | None = None) -> MachineState:
    """A machine whose record may be shown with its times."""
    found = found or make_record()
    return MachineState(found, "measured", found["machine"]["slug"])


def make_verified(found: dict | None = None) -> MachineState:
    """The CPU, checked."""
    return MachineState(found or make_record(0), "verified", "cpu")


def make_facts() -> list[dict]:
    """Three facts: exact and large, off by little, and text that must stay text."""
    rows = (("parameters", 6738415616, 6738415616, 0.0), ("FLOPs", 1.0005e21, 1e21, 0.01))
    return [
        {
            "name": name,
            "value": value,
            "expected": expected,
            "tolerance": tolerance,
            "unit": "",
            "source": "online-softmax",
            "verdict": "passed",
        }
        for name, value, expected, tolerance in rows
    ]


def make_predictions() -> list[dict]:
    """Rows of two sets, one of which has a row that was fitted on."""
    rows = (
        ("Paper, table 1", "small", 101.0, 100, True),
        ("Paper, table 1", "middle", 96.0, 100, False),
        ("Paper, table 1", "large", 212.0, 200, False),
        ("Blog", "a <b> node", 0.75, 0.5, False),
    )
    more = {"unit": "TFLOP/s", "source": "online-softmax"}
    return [
        {"set": one, "name": name, "predicted": ours, "published": theirs, "fitted": fitted, **more}
        for one, name, ours, theirs, fitted in rows
    ]


def make_goals() -> list[dict]:
    """Goals that `make_predictions` meets."""
    return [
        {"name": "table 1", "sets": ["Paper, table 1"], "within": 0.1, "share": 1},
        {"name": "all", "sets": ["Paper, table 1", "Blog"], "median": 0.06},
    ]


def make_grids() -> list[dict]:
    """Two pictures of cells: a lane by bank, and one cell with neither colour nor legend."""
    cells = [[["0", 2], ["1", -1]], [["", -1], ["3", 7]]]
    legend = [[2, "first half"], [7, "second half"]]
    axes = {"across": "bank", "down": "row"}
    padded = {"name": "padded", "caption": "Padded by a word.", "legend": legend}
    single = {"name": "single", "caption": "A cell.", "columns": ["0"], "rows": ["a"]}
    return [
        padded | axes | {"columns": ["0", "1"], "rows": ["0", "1"], "cells": cells},
        single | axes | {"cells": [[["", -1]]]},
    ]


def make_space(gpus: int = 0, **more: object) -> dict:
    """Four configurations, as a record of `gpus` GPUs has them."""
    found = {
        "parameters": [{"name": "tile", "values": [16, 32]}, {"name": "order", "values": [0, 1]}],
        "case": {"m": 3},
        "timed": {"m": 4096},
        "figures": list(TIMES if gpus else COMPILED),
        "rows": {
            target: [
                format_row((t, o), (2e-3, 1e-3, 3e-3, 15) if gpus else (32, 0, 64, 48, 9.5 * t))
                for t in (16, 32)
                for o in (0, 1)
            ]
            for target in (("sm_90",) if gpus else ("sm_80", "sm_90"))
        },
    }
    return copy.deepcopy(found | more)


def make_timelines() -> list[dict]:
    """Two timelines of two ranks: one pass after the other, and a pair on the second rank."""
    rows = [(0, 0, 2, "F", 0, 0), (1, 2, 4, "F", 0, 0), (1, 4, 8, "B", 0, 0), (0, 8, 12, "B", 0, 0)]
    pair = [(0, 0, 2, "F", 0, 0), (0, 3, 5, "I", 0, 0), (0, 5, 7, "W", 0, 0)]
    pair += [(1, 0, 6, "F", 1, 1), (1, 0, 6, "B", 0, 0)]
    keys = ("rank", "start", "end", "kind", "micro_batch", "chunk")
    common = {"note": "Invented.", "unit": 2, "held": [1, 1.5]}
    return [
        {
            "name": name,
            "title": f"{name} on two ranks",
            **common,
            **more,
            "passes": [dict(zip(keys, row, strict=True)) for row in passes],
        }
        for name, passes, more in (("one-by-one", rows, {}), ("pair", pair, {"other": "upwards"}))
    ]


# Words of titles, by their part in one; and the syllables that names of systems are made of.
MANNERS = (
    "Accurate", "Adaptive", "Asynchronous", "Automatic", "Communication-Avoiding",
    "Deterministic", "Distributed", "Efficient", "Elastic", "Fast", "Hierarchical",
    "High-Throughput", "Locality-Aware", "Memory-Efficient", "Portable", "Practical",
    "Predictable", "Scalable", "Topology-Aware", "Understanding",
)  # fmt: skip
ACTS = (
    "Autotuning", "Batching", "Benchmarking", "Checkpointing", "Compilation", "Compression",
    "Decoding", "Execution", "Factorization", "Fusion", "Inference", "Modelling", "Offloading",
    "Partitioning", "Pipelining", "Prefetching", "Pruning", "Quantization", "Recomputation",
    "Scheduling", "Serving", "Sharding", "Simulation", "Speculation", "Tiling", "Training",
    "Transposition", "Tuning", "Vectorization",
)  # fmt: skip
THINGS = (
    "Activations", "Attention Kernels", "Block-Sparse Matrices", "Collectives", "Convolutions",
    "Diffusion Models", "Embedding Tables", "Graph Neural Networks", "Key-Value Caches",
    "Language Models", "Matrix Products", "Mixtures of Experts", "Optimizer States",
    "Reductions", "Recurrent Networks", "Recommendation Models", "Softmax Layers",
    "Sparse Tensors", "Stencils", "Tensor Contractions", "Transformers", "Vision Models",
)  # fmt: skip
PLACES = (
    "Ampere", "Commodity Clusters", "Dragonfly Networks", "GPUs", "Hopper",
    "Heterogeneous Memory", "Many-Core Processors", "Mobile Devices", "Multi-Tenant Clusters",
    "Spot Instances", "Tensor Cores", "Thousands of Accelerators", "Unreliable Networks",
    "Wafer-Scale Engines",
)  # fmt: skip
SYLLABLES = (
    "ba", "che", "dor", "fi", "gul", "ha", "jen", "ka", "lo", "mir", "nu", "pax", "que", "ros",
    "ti", "vel", "wu", "xan", "yor", "zep",
)  # fmt: skip


def make_titles(count: int) -> list[str]:
    """Titles as papers and posts have them, no two of them alike."""
    chance = random.Random(20)
    found: dict[str, str] = {}
    while len(found) < count:
        name = "".join(chance.choices(SYLLABLES, k=4)).capitalize()
        manner, act = chance.choice(MANNERS), chance.choice(ACTS)
        thing, place = chance.choice(THINGS), chance.choice(PLACES)
        title = chance.choice(
            (
                f"{name}: {manner} {act} of {thing} on {place}",
                f"{manner} {act} of {thing} on {place} with {name}",
                f"How {name} makes {act.lower()} of {thing.lower()} on {place} "
                f"{manner.lower()} and cheap",
                f"{name}, part {len(found)}: {act} for {thing}",
                f"{name}是{name}的{thing}",
            )
        )
        found.setdefault(name, title)
    return list(found.values())


def write_library(root: Path, readings: int = 10_000, topics: int = 200) -> None:
    """Reading lists and their pages below `root`/docs, with nothing wrong in them."""
    chance = random.Random(10)
    rows = make_titles(readings)
    for topic in range(topics):
        where = root / "docs" / f"part-{topic % 5}" / f"topic-{topic:03}"
        where.parent.mkdir(parents=True, exist_ok=True)
        numbers = range(topic * readings // topics, (topic + 1) * readings // topics)
        text = "".join(_format_row(number, rows[number], chance) for number in numbers)
        where.with_suffix(".yml").write_text(text, encoding="utf-8")
        include = f'--8<-- "readings/part-{topic % 5}/topic-{topic:03}.md"'
        where.with_suffix(".md").write_text(f"# Topic {topic}\n\n{include}\n", encoding="utf-8")


def _format_row(number: int, title: str, chance: random.Random) -> str:
    other = not title.isascii()
    year = 2000 + number % 25
    authors = ", ".join(f"A. Author{name}" for name in chance.sample(range(999), 4))
    lines = [f"id: work-{number}", f'title: "{title}"']
    lines += [f'title_en: "English of {number}"'] if other else []
    lines += [
        f"url: https://arxiv.org/abs/{1000 + number // 90000:04}.{10000 + number % 90000}",
        "kind: paper" if number % 3 else "kind: post",
        f"authors: [{authors}]",
        f"year: {year}",
        f"venue: Imaginary Systems {year}",
        "why: >-",
        f"  Tells what bounds {chance.choice(THINGS).lower()} on {chance.choice(PLACES)}, and how",
        f"  {chance.choice(ACTS).lower()} moves that bound.",
        f"lang: {'zh' if other else 'en'}",
        f"tags: [topic-{number % 40}, gpu]",
    ]
    lines += [f"needs: [work-{chance.randrange(number)}]"] if number % 3 == 2 else []
    lines += [
        "also:",
        f'  - {{what: code, url: "https://github.com/someone/work-{number}"}}',
        f'added: "2026-{1 + number % 9:02}-{1 + number % 27:02}"',
    ]
    return "- " + "\n  ".join(lines) + "\n"


def show_evidence(page: SnippetPage) -> str:
    """What the page of its evidence holds, without its head and foot."""
    text = fragments.render_evidence(page, None, "Home")
    return text.partition('<div id="evidence">\n')[2].rpartition("\n</div>\n</main>")[0]


def plain_words(html: str) -> str:
    """The text between all tags, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


def table_rows(html: str) -> list[list[str]]:
    """The words in each cell, row by row."""
    found = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    return [[plain_words(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in found]

"""What activation_recompute must show: the bytes of formulas, unchanged results."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from snippets import ranks
from snippets.activation_recompute.activation_recompute import (
    COLUMNS,
    ROWS,
    SIZES,
    WAYS,
    each,
    on_rank,
)
from snippets.facts import fact

LIMIT = 1e-12  # relative: thousands of float64 roundings
PAPER = "reducing-activation-recomputation"
OTHER = SIZES._replace(s=40, b=3, h=96, a=4)  # another share of attention
RUNS = (
    (torch.bfloat16, SIZES),
    (torch.bfloat16, OTHER),
    (torch.float64, SIZES),  # for the errors
)
LAYOUTS = {1: (False,), 2: (False, True), 4: (False, True)}  # sequence too


def facts() -> list[dict[str, Any]]:
    """Bytes by layout, way and size; operations by way; errors by layout and way."""
    rows = []
    for t, layouts in LAYOUTS.items():
        wanted = [
            (sequence, way, dtype, sizes)
            for sequence in layouts
            for way in WAYS
            for dtype, sizes in RUNS
        ]
        told = [each(0, 1, wanted)]
        if t > 1:  # bytes are counted, not seconds: they are the same on a CPU
            told = ranks.run(each, t, wanted, backend="gloo")
        for (sequence, way, dtype, sizes), *by_rank in zip(wanted, *told, strict=True):
            name = f"{t} ranks" if t > 1 else "one rank"
            name += f"{', sequence too' * sequence}, {way}"
            if dtype == torch.float64:
                rows += errors(name, by_rank, sequence)
            else:
                rows += bytes_of(name, by_rank[0], t, sequence, way, sizes)
    return rows + operations()


def bytes_of(
    name: str, told: dict[str, Any], t: int, sequence: bool, way: str, sizes: Any
) -> list[dict[str, Any]]:
    """What a rank kept, against the paper's formula for its way."""
    s, b, h, a = sizes
    square = 5 * a * s / h if way == "none" else 0
    if way == "full":
        words, due = "2 s b h", 2
    else:
        due = 34 + square if t == 1 or sequence else 10 + 24 / t + square / t
        words = "s b h (34 + 5 a s / h)" if t == 1 or sequence else "s b h (10 + 24 / t"
        words += "" if t == 1 or sequence else " + 5 a s / (h t))"
        words = words if way == "none" else words.replace(" + 5 a s / h", "")
        words = words if way == "none" else words.replace(" + 5 a s / (h t)", "")
    shared = t if sequence else 1  # of the rows
    words += " / t" if sequence else ""
    statistics = 0 if way == "full" else 4 * s * b / shared  # two normalizations' two
    size = torch.bfloat16.itemsize
    name = f"{name}, {'s b h a'}: {s} {b} {h} {a}"
    return [
        fact(f"{name}: kept", told["bytes"], s * b * h * due / shared,
             f"{words}, after {PAPER}", unit="B"),
        fact(f"{name}: statistics", told["statistics"], size * statistics,
             "4 s b numbers", unit="B"),
    ]  # fmt: skip


def errors(
    name: str, told: list[dict[str, Any]], sequence: bool
) -> list[dict[str, Any]]:
    """The largest relative error of the output, and of any gradient."""
    truth = on_rank(0, 1, False, "none", torch.float64, SIZES)
    rowed = sequence and len(told) > 1

    def joined(values: list[torch.Tensor], dim: int | None) -> torch.Tensor:
        return values[0] if dim is None else torch.cat(values, dim)

    def error(found: torch.Tensor, due: torch.Tensor) -> float:
        return float((found - due).norm() / due.norm())

    along = {name: 0 for name in ROWS} | {name: 1 for name in COLUMNS}
    along |= {"x": 0} if rowed else {}
    out = joined([one["out"] for one in told], 0 if rowed else None)
    worst = max(
        error(joined([one["grads"][key] for one in told], along.get(key)), due)
        for key, due in truth["grads"].items()
    )
    source = "the float64 layer on one process, nothing recomputed"
    return [
        fact(f"{name}: output's error", error(out, truth["out"]), 0, source, LIMIT),
        fact(f"{name}: largest error of a gradient", worst, 0, source, LIMIT),
    ]


def operations() -> list[dict[str, Any]]:
    """Floating-point operations of products, forward and back."""
    s, b, h, _ = SIZES
    forward = 24 * b * s * h**2 + 4 * b * s**2 * h
    again = {"none": 0, "selective": 4 * b * s**2 * h, "full": forward}
    words = {"none": "", "selective": " + 4 b s^2 h", "full": " + forward"}
    rows = []
    for way in WAYS:
        with FlopCounterMode(display=False) as counter:
            on_rank(0, 1, False, way, torch.float64, SIZES)
        due = 3 * forward + again[way]
        source = f"3 (24 b s h^2 + 4 b s^2 h){words[way]}, after {PAPER}"
        rows.append(fact(f"{way}: operations", counter.get_total_flops(), due, source))
    return rows

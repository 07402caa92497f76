"""What fused_traffic must show: the counts of each version, and its picture."""

from __future__ import annotations

from typing import Any

from snippets.facts import fact
from snippets.fused_traffic import fused_traffic as fused
from snippets.fused_traffic.fused_traffic import VERSIONS, Operation

SOURCE = "filipovic-kernel-fusion-blas"
GIVEN, WANTED = ["skip"], ["sum"]


def moved(name: str) -> int:
    """Tensors that a version moves."""
    return sum(one.moved for one in fused.traffic(VERSIONS[name], GIVEN, WANTED))


def axpydot() -> tuple[int, int]:
    """z = w - a v, then z' u: apart, and fused as BLAS calls can be."""
    axpy, dot = Operation("z", ("w", "v")), Operation("r", ("z", "u"))
    given, wanted = ["w", "v", "u"], ["z"]  # r is one number
    apart = fused.traffic(((axpy,), (dot,)), given, wanted)
    together = fused.traffic(((axpy, dot),), given, wanted)
    return sum(one.moved for one in apart), sum(one.moved for one in together)


def facts() -> list[dict[str, Any]]:
    """Counts by hand against the model's."""
    apart, together = axpydot()
    rows = [
        ("four kernels: tensors moved", moved("four kernels"), 1 + 2 + 2 + 3),
        ("two kernels: tensors moved", moved("two kernels"), 1 + 3),
        ("epilogue: tensors moved", moved("epilogue"), 1 + 1),
        ("axpy and dot apart: vectors moved", apart, 3 + 2),
        ("axpy and dot fused: vectors moved", together, 3 + 1),
    ]
    return [fact(*row, SOURCE) for row in rows]


def grids() -> tuple[dict[str, Any], ...]:
    """Who reads and writes what, for each version."""
    tensors = ["product", "biased", "gelu", "skip", "sum"]
    rows, cells = [], []
    for name, kernels in VERSIONS.items():
        made = fused.traffic(kernels, GIVEN, WANTED)
        for at, one in enumerate(made):
            rows.append(f"{name}, {at + 1}" if len(made) > 1 else name)
            cells.append([look(tensor, one) for tensor in tensors])
    return (
        {
            "name": "traffic",
            "caption": "Which kernel reads or writes which tensor. One that a version "
            "does not touch never exists in memory.",
            "across": "tensor",
            "down": "kernel",
            "columns": tensors,
            "rows": rows,
            "cells": cells,
            "legend": [(2, "read"), (1, "written")],
        },
    )


def look(tensor: str, one: fused.Traffic) -> tuple[str, int]:
    """A kernel's dealings with a tensor."""
    if tensor in one.reads:
        return "read", 2
    return ("write", 1) if tensor in one.writes else ("", -1)

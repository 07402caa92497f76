"""What many_ranks must show: real ranks' calls, and the same counts at thousands."""

from __future__ import annotations

import math
from typing import Any

import torch

from snippets import ranks as processes
from snippets.facts import fact
from snippets.many_ranks.many_ranks import STEPS, Call, on_rank, told_by
from snippets.tensor_parallel import tensor_parallel as tp

NEEDS = {"seconds": 120}
WORD = torch.float64.itemsize
T = 8  # ranks that share a matrix


def facts() -> list[dict[str, Any]]:
    """Real ranks against pretended ones, then the calls of 512 and 4,096."""
    rows = real(8, 2)
    for ranks in (512, 4096):
        asked = [0, 1, T - 1, T, ranks // 2 + 3, ranks - 1]
        told = told_by(asked, ranks, T)
        for way in STEPS:
            rows += of_many(ranks, way, asked, [one[way] for one in told])
    return rows


def real(ranks: int, t: int) -> list[dict[str, Any]]:
    """Of ranks that are there, how many call other than the pretended one does."""
    there = processes.run(on_rank, ranks, t, backend="gloo")
    pretended = told_by(list(range(ranks)), ranks, t)
    pairs = list(zip(there, pretended, strict=True))
    what = f"{ranks} real ranks in groups of {t}"
    return [
        fact(f"{what}, {way}: that call otherwise than pretended",
             sum(one[way] != two[way] for one, two in pairs), 0,
             "the same step on processes that exchange tensors")
        for way in STEPS
    ]  # fmt: skip


def of_many(
    ranks: int, way: str, asked: list[int], told: list[list[Call]]
) -> list[dict[str, Any]]:
    """The calls of a step on so many ranks, and whether all call alike."""
    calls, name = told[0], f"{ranks} ranks, {way}"
    names = ", ".join(map(str, asked[1:]))
    rows = [
        fact(f"{name}: of ranks {names}, that call other than 0",
             sum(one != calls for one in told), 0,
             "or a rank would wait for a call that never comes")
    ]  # fmt: skip
    for what, kind, size, count, whole, words in due(way, ranks):
        like = [one for one in calls if (one.kind, one.size) == (kind, size)]
        rows += [
            fact(f"{name}: {what}", len(like), count, words),
            fact(f"{name}: {what}, bytes", sum(one.bytes for one in like), whole * WORD,
                 words, unit="B"),
            fact(f"{name}: {what}, sent on a ring", sum(one.sent for one in like),
                 (2 if kind == "all_reduce" else 1) * whole * WORD * (size - 1) / size,
                 "(P - 1) / P of the bytes, twice for an all-reduce", 1e-4, "B"),
        ]  # fmt: skip
    return rows


Due = tuple[str, str, int, int, int, str]


def due(way: str, ranks: int) -> list[Due]:
    """What, its kind and group, how many of it, of how many numbers in all, why."""
    s, b, h, _, _, layers = tp.SIZES
    d, block = ranks // T, s * b * h
    own, rowed = 0, 0
    for name, one in tp.whole(tp.SIZES)[2].items():
        own += one.numel() // (1 if tp.cut(name) is None else T)
        rowed += one.numel() if tp.cut(name) is None else 0
    grads: Due = ("all-reduce of gradients", "all_reduce", d, 1, own, "the rank's Psi")
    if way == "tensor":
        shared = (4 * layers + 2) * block + 3 * s * b
        words = "(4 L + 2) s b h, and 3 s b of the loss"
        inner = ("all-reduces within a group", "all_reduce", T, 4 * layers + 4)
        return [(*inner, shared, words), grads]
    if way == "sequence":
        summed = 3 * s * b + rowed
        return [
            ("all-gathers within a group", "all_gather", T, 6 * layers + 3,
             (6 * layers + 3) * block, "(6 L + 3) s b h"),
            ("reduce-scatters within a group", "reduce_scatter", T, 4 * layers + 2,
             (4 * layers + 2) * block, "(4 L + 2) s b h"),
            ("all-reduces within a group", "all_reduce", T, 3, summed,
             "3 s b of the loss, and what all ranks hold whole"),
            grads,
        ]  # fmt: skip
    of_layers, of_ends = padded(d)
    whole = of_layers + of_ends
    shared = (4 * layers + 2) * block + 3 * s * b
    words = "padded so that the first dimension of each parameter splits over ranks"
    return [
        ("all-reduces within a group", "all_reduce", T, 4 * layers + 5, shared,
         "(4 L + 2) s b h, and 3 s b of the loss, in three"),
        ("all-gathers of weights", "all_gather", d, 2 * layers + 1, whole + of_layers,
         f"L + 1 forward, L backward; {words}"),
        ("reduce-scatters of gradients", "reduce_scatter", d, layers + 1, whole,
         f"L + 1; {words}"),
    ]  # fmt: skip


def padded(d: int) -> tuple[int, int]:
    """Numbers that FSDP2 gathers for all layers, and for the ends, over d ranks."""
    found = [0, 0]
    w = tp.whole(tp.SIZES)[2]
    for name, one in (*w.items(), ("words", w["words"])):  # torch's are not tied
        shape = list(one.shape)
        dim = tp.cut(name)
        if dim is not None:
            shape[dim] //= T
        rows = math.ceil(shape[0] / d) * d
        found["." not in name] += rows * math.prod(shape[1:])
    return found[0], found[1]

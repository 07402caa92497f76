"""What moe_all_to_all must show: one process's layer, and bytes by where copies go."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from snippets import ranks
from snippets.facts import fact
from snippets.moe_all_to_all import moe_all_to_all as ours
from snippets.moe_all_to_all.moe_all_to_all import E, H, K, T, Want, each, whole
from snippets.moe_all_to_all.routing import Route, route

NEEDS = {"seconds": 120}
LIMIT = 1e-12  # relative: thousands of float64 roundings
WORD = torch.float64.itemsize
WANTS = {
    "learned": Want(), "uniform": Want("uniform"), "skewed": Want("skewed"),
    "capacity 2": Want(capacity=2), "skewed, capacity 2": Want("skewed", 2),
    "local": Want(local=True),
}  # fmt: skip
STEPS, DROP = 12, 0.3  # of gating dropout


def facts() -> list[dict[str, Any]]:
    """Errors, bytes and messages on 2, 4 and 8 ranks; gating dropout on 4."""
    rows = []
    for size in (2, 4, 8):
        rows += of_ranks(size)
    return rows + dropout(4)


def of_ranks(size: int) -> list[dict[str, Any]]:
    """Every way on so many ranks."""
    rows = []
    # Bytes are counted, not seconds: they are the same on a CPU.
    told = ranks.run(each, size, list(WANTS.values()), backend="gloo")
    for (name, want), found in zip(WANTS.items(), zip(*told, strict=True), strict=True):
        what = f"{size} ranks, {name}"
        due = one_process(size, want)
        rows += errors(what, list(found), due)
        rows += traffic(what, list(found), want, due["routes"])
    return rows


def one_process(size: int, want: Want) -> dict[str, Any]:
    """y, gradients, and routes by rank: a loop over experts, of each rank's tokens."""
    x, dy, bias, w = whole(want.skew)
    for one in (x, *w.values()):
        one.requires_grad_()
    logits, rows, routes = x @ w["router"].T + bias, [], []
    each_has = E // size
    parts = zip(logits.chunk(size), x.chunk(size), strict=True)
    for rank, (part, own) in enumerate(parts):
        among = range(rank * each_has, (rank + 1) * each_has) if want.local else None
        chosen = route(part, K, among)
        routes.append(chosen)
        y = torch.zeros(len(own), H, dtype=x.dtype)
        taken = dict.fromkeys(range(E), 0)
        for token in range(len(own)):
            for at, expert in enumerate(chosen.expert[token].tolist()):
                taken[expert] += 1
                if want.capacity and taken[expert] > want.capacity:
                    continue
                hidden = F.gelu(w["up"][expert] @ own[token])
                answer = chosen.weight[token, at] * (w["down"][expert] @ hidden)
                y = y.index_add(0, torch.tensor([token]), answer[None])
        rows.append(y)
    y = torch.cat(rows)
    y.backward(dy)
    grads = {"x": x.grad} | {name: one.grad for name, one in w.items()}
    return {"y": y.detach(), "grads": grads, "routes": routes}


def errors(what: str, found: list[dict[str, Any]], due: Any) -> list[dict[str, Any]]:
    """Relative errors of y, and the largest of a gradient."""
    def far(ours: torch.Tensor, truth: torch.Tensor) -> float:
        # A gate over a single expert has no gradient: 0 but for roundings.
        return float((ours - truth).norm() / max(truth.norm(), 0.1))

    y = far(torch.cat([one["y"] for one in found]), due["y"])
    worst = [far(one["grads"]["router"], due["grads"]["router"]) for one in found]
    for name in ("x", "up", "down"):
        parts = torch.cat([one["grads"][name] for one in found])
        worst.append(far(parts, due["grads"][name]))
    source = "a loop over experts on one process, float64"
    most = math.nan if any(map(math.isnan, worst)) else max(worst)
    return [
        fact(f"{what}: error of y", y, 0, source, LIMIT),
        fact(f"{what}: largest error of a gradient", most, 0, source, LIMIT),
    ]


def traffic(
    what: str, found: list[dict[str, Any]], want: Want, routes: list[Route]
) -> list[dict[str, Any]]:
    """Bytes and messages of all ranks, and copies that the busiest received."""
    size = len(found)
    counts = torch.stack([one.counts(E) for one in routes])  # (from, expert)
    by_rank = counts.view(size, size, E // size).sum(-1)  # (from, to)
    away = int(by_rank.sum() - by_rank.diagonal().sum())
    asked = size * (size - 1)  # pairs of ranks
    rows_each = E // size * (want.capacity or 0)
    if want.local:
        due, words = [0, 0], "nobody is asked"
        messages = [0, 0]
    elif want.capacity:
        due = [2 * asked * rows_each * H * WORD] * 2
        words = "2 (R - 1) / R E C h of each rank, whatever the routing"
        messages = [2 * asked] * 2
    else:
        due = [2 * away * H * WORD + asked * E // size * WORD, 2 * away * H * WORD]
        words = "2 h for each copy whose expert is elsewhere, and counts before"
        messages = [3 * asked, 2 * asked]
    if want.skew == "uniform":
        words += "; K T (1 - 1 / R) of them"
        due[1] = 2 * K * T * (size - 1) // size * H * WORD
    rows = []
    for way, name in enumerate(("forward", "backward")):
        before = [one["sent"][0] if way else (0, 0) for one in found]
        pairs = list(zip((one["sent"][way] for one in found), before, strict=True))
        sent, told = (sum(now[k] - then[k] for now, then in pairs) for k in (0, 1))
        rows += [
            fact(f"{what}, {name}: sent by all", sent, due[way], words, unit="B"),
            fact(f"{what}, {name}: messages of all", told, messages[way],
                 "R - 1 of each rank for an all-to-all"),
        ]  # fmt: skip
    if not want.local and not want.capacity:
        expected, source = {
            "learned": (int(by_rank.sum(0).max()), "counts of the routing"),
            "uniform": (K * T // size, "K T / R"),
            "skewed": (min(K, E // size) * T, "all copies of its experts"),
        }[want.skew]
        busiest = max(one["received"] for one in found)
        name = f"{what}: copies of the busiest rank"
        rows.append(fact(name, busiest, expected, source))
    return rows


def dropout(size: int) -> list[dict[str, Any]]:
    """Bytes of a run with gating dropout against those of one without."""
    told = ranks.run(ours.steps_of, size, STEPS, DROP, backend="gloo")
    full = ranks.run(ours.steps_of, size, STEPS, 0.0, backend="gloo")
    local = sum(ours.stays_local(step, DROP) for step in range(STEPS))
    name = f"{size} ranks, gating dropout {DROP:g}, {STEPS} steps"
    return [
        fact(f"{name}: local steps", told[0][1], local, "the seeds' draws"),
        fact(f"{name}: ranks that count other", sum(one[1] != local for one in told), 0,
             "all ranks draw the same"),
        fact(f"{name}: share of bytes sent",
             sum(one[0] for one in told) / sum(one[0] for one in full),
             1 - local / STEPS, "1 - local steps / steps, after gating-dropout", 1e-12),
    ]  # fmt: skip

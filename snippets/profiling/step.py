"""A small training step to look at: a decoder, its batches, stalls to plant in it."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, Dataset

from snippets.model_flops.model_flops import Decoder

SMALL = Decoder(2, 64, 4, 2, 16, 192, 128)  # two heads share a key; gated
GPT = Decoder(3, 48, 3, 3, 16, 192, 160, gated=False, tied=True)
SEQUENCE, BATCH = 32, 4
STALL = 0.03  # s; long beside every operator of the step
PLANTS = ("a slow loader", "Python between layers", "a log after the update")
KEPT = ("correlation", "stream", "device", "bytes", "Input Dims")


# --8<-- [start:model]
class Attention(nn.Module):
    """Causal attention in two matrix products, so that counters see them."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.heads, self.kv_heads = model.heads, model.kv_heads
        self.width = model.head_dim
        rows = (model.heads + 2 * model.kv_heads) * model.head_dim
        self.qkv = nn.Linear(model.hidden, rows, bias=False)
        self.out = nn.Linear(model.heads * model.head_dim, model.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        parts = [self.heads, self.kv_heads, self.kv_heads]
        qkv = self.qkv(x).view(b, s, -1, self.width).transpose(1, 2)
        q, k, v = qkv.split(parts, 1)
        k, v = (y.repeat_interleave(self.heads // self.kv_heads, 1) for y in (k, v))
        hidden = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.mT / self.width**0.5).masked_fill(hidden, -torch.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, -1))


class FeedForward(nn.Module):
    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.gated = model.gated
        rows = model.feed_forward * (2 if model.gated else 1)
        self.up = nn.Linear(model.hidden, rows, bias=False)
        self.down = nn.Linear(model.feed_forward, model.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = self.up(x)
        if self.gated:
            gate, up = up.chunk(2, -1)
            return self.down(F.silu(gate) * up)
        return self.down(F.gelu(up))


class Model(nn.Module):
    """A decoder of the sizes of `Decoder`; Python sleeps `between` its first layers."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.table = nn.Embedding(model.vocabulary, model.hidden)
        self.attention = nn.ModuleList(Attention(model) for _ in range(model.layers))
        self.feed_forward = nn.ModuleList(
            FeedForward(model) for _ in range(model.layers)
        )
        self.norm = nn.LayerNorm(model.hidden, elementwise_affine=False)
        self.head = nn.Linear(model.hidden, model.vocabulary, bias=False)
        if model.tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor, between: float = 0) -> torch.Tensor:
        x = self.table(tokens)
        for number, (mix, feed) in enumerate(
            zip(self.attention, self.feed_forward, strict=True)
        ):
            if number == 1:
                rest(between)
            x = x + mix(self.norm(x))
            x = x + feed(self.norm(x))
        return self.head(self.norm(x))


# --8<-- [end:model]


def rest(seconds: float) -> None:
    """Sleep; and if for nothing, do not even let another process in."""
    if seconds:
        time.sleep(seconds)


class Batches(Dataset[torch.Tensor]):
    """Rows of tokens; the first of each batch keeps its reader waiting."""

    def __init__(self, model: Decoder, steps: int, stall: float) -> None:
        draw = torch.Generator().manual_seed(0)
        shape = (steps * BATCH, SEQUENCE + 1)
        self.rows = torch.randint(model.vocabulary, shape, generator=draw)
        self.stall = stall

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % BATCH == 0:
            rest(self.stall)
        return self.rows[index]


class Recording(NamedTuple):
    """A trace, and what it can be held against; sums by operator where asked for."""

    content: bytes
    clock: list[int]  # ns of each step, by the machine's clock
    averages: dict[str, float]  # self time of all steps in us, by torch
    flops: dict[str, int]  # as torch.profiler estimates them


# --8<-- [start:record]
def record(
    device: str, plants: tuple[str, ...] = (), steps: int = 4, summed: bool = False
) -> Recording:
    """Train for a few steps after two that are not kept, with stalls where told."""
    for plant in plants:
        if plant not in PLANTS:
            raise ValueError(
                f"profiling: no plant {plant!r}; there are {', '.join(PLANTS)}"
            )
    loader, between, log = (STALL if plant in plants else 0 for plant in PLANTS)
    torch.manual_seed(0)
    net = Model(SMALL).to(device)
    update = torch.optim.AdamW(net.parameters(), 1e-3)
    batches = iter(DataLoader(Batches(SMALL, steps + 2, loader), BATCH))
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if device == "cuda" else []
    plan = schedule(wait=0, warmup=2, active=steps, repeat=1)
    clock = []
    with undisturbed(), profile(
        activities=activities, schedule=plan, record_shapes=True, with_flops=True
    ) as run:
        for _ in range(steps + 2):
            begun = time.perf_counter_ns()
            tokens = next(batches).to(device)
            with record_function("forward"):
                y = net(tokens[:, :-1], between)
                loss = F.cross_entropy(y.flatten(0, 1), tokens[:, 1:].flatten())
            with record_function("backward"):
                loss.backward()
            with record_function("update"):
                update.step()
                update.zero_grad()
            with record_function("log"):
                rest(log)
            clock.append(time.perf_counter_ns() - begun)
            run.step()
    sums = _sums(run) if summed else ({}, {})
    return Recording(_exported(run), clock[2:], *sums)


# --8<-- [end:record]


@contextmanager
def undisturbed() -> Iterator[None]:
    """No operator waits for threads of its own, and Kineto writes nothing to stderr."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(null)
        torch.set_num_threads(threads)


def _exported(run: profile) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        run.export_chrome_trace(str(path))
        return path.read_bytes()


def _sums(run: profile) -> tuple[dict[str, float], dict[str, int]]:
    rows = [
        row for row in run.key_averages() if row.key.startswith(("aten::", "autograd"))
    ]
    times = {row.key: row.self_cpu_time_total for row in rows}
    return times, {row.key: row.flops for row in rows if row.flops}


# --8<-- [start:scrubbed]
def scrubbed(content: bytes, note: str) -> str:
    """A trace to hand on: times from 0, and no word of the machine that it was made on.

    Host, paths, process numbers and thread names go. What is measured stays.
    """
    found = json.loads(content)
    events = [one for one in found["traceEvents"] if one["ph"] in "Xsf"]
    events = [one for one in events if one.get("cat") != "Trace"]
    begin = min(one["ts"] for one in events)
    numbers: dict[str, dict[Any, int]] = {"pid": {}, "tid": {}}
    for one in events:
        one["ts"] = round(one["ts"] - begin, 3)
        for key, known in numbers.items():
            if one.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
                one[key] = known.setdefault(one[key], len(known) + 1)
        if "args" in one:
            one["args"] = {key: one["args"][key] for key in KEPT if key in one["args"]}
    head = {"note": note, "schemaVersion": 1, "displayTimeUnit": "ms"}
    rows = ",\n".join(json.dumps(one, separators=(",", ":")) for one in events)
    return f'{json.dumps(head)[:-1]}, "traceEvents": [\n{rows}\n]}}\n'


# --8<-- [end:scrubbed]

"""Sound kernels of Triton, and faults that FAULT plants in them: `faulty_triton.py sm_90`.

Prints, as JSON, for each kernel and each of its faults what was found, or why its result is wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import papergpu.triton as papergpu
import torch
import triton
import triton.language as tl
from papergpu.errors import Finding


@triton.jit
def locked(x_ptr, out_ptr, lock_ptr, count_ptr, N: tl.constexpr, FAULT: tl.constexpr):
    """Rows are added up under a lock, as in the tutorial on layer norm."""
    at = tl.arange(0, N)
    x = tl.load(x_ptr + tl.program_id(0) * N + at)
    if FAULT != 1:
        while tl.atomic_cas(lock_ptr, 0, 1) == 1:
            pass
    count = tl.load(count_ptr)
    if count == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        x += tl.load(out_ptr + at)
    tl.store(out_ptr + at, x)
    if FAULT != 2:
        tl.debug_barrier()
    if FAULT == 3:
        tl.atomic_xchg(lock_ptr, 0, sem="relaxed")
    else:
        tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def split(a_ptr, b_ptr, c_ptr, K: tl.constexpr, FAULT: tl.constexpr):
    """A product whose depth is split over programs."""
    at, depth = tl.arange(0, 32), tl.program_id(0) * 32 + tl.arange(0, 32)
    a = tl.load(a_ptr + at[:, None] * K + depth[None, :])
    b = tl.load(b_ptr + depth[:, None] * 32 + at[None, :])
    c = c_ptr + at[:, None] * 32 + at[None, :]
    if FAULT == 1:
        tl.store(c, tl.load(c) + tl.dot(a, b))
    else:
        tl.atomic_add(c, tl.dot(a, b), sem="relaxed")


@triton.jit
def product(a_ptr, b_ptr, c_ptr, K: tl.constexpr, FAULT: tl.constexpr):
    """A product of tiles that are copied ahead."""
    row, column, depth = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 32)
    total = tl.zeros((64, 64), tl.float32)
    for k in tl.range(0, K, 32, num_stages=3):
        a = tl.load(a_ptr + row[:, None] * K + k + depth[None, :])
        b = tl.load(b_ptr + (k + depth[:, None]) * 64 + column[None, :])
        total = tl.dot(a, b, total)
    width: tl.constexpr = 65 if FAULT == 1 else 64
    tl.store(c_ptr + row[:, None] * width + column[None, :], total)


@triton.jit
def last(
    x_ptr, part_ptr, out_ptr, count_ptr, P: tl.constexpr, N: tl.constexpr, FAULT: tl.constexpr
):
    """The last of the programs adds up what all have found."""
    pid = tl.program_id(0)
    tl.store(part_ptr + pid, tl.sum(tl.load(x_ptr + pid * N + tl.arange(0, N)), 0))
    tl.debug_barrier()
    if FAULT == 1:
        before = tl.atomic_add(count_ptr, 1, sem="relaxed")
    else:
        before = tl.atomic_add(count_ptr, 1)
    if before == P - (2 if FAULT == 2 else 1):
        tl.store(out_ptr, tl.sum(tl.load(part_ptr + tl.arange(0, P)), 0))


@triton.jit
def shifted(x_ptr, out_ptr, n, B: tl.constexpr, FAULT: tl.constexpr):
    """Each element becomes the one before it."""
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(x_ptr + at - 1, mask=(at > 0) & (at < n), other=0)
    if FAULT == 1:
        tl.store(x_ptr + at, x, mask=at < n)
    elif FAULT == 2:
        tl.store(out_ptr + at, x)
    else:
        tl.store(out_ptr + at, x, mask=at < n)


def draw_whole_numbers(*shape: int) -> torch.Tensor:
    return torch.randint(-4, 5, shape).float()


def run_locked(fault: int) -> bool:
    x, out = draw_whole_numbers(12, 512), torch.zeros(512)
    locks = torch.zeros(2, dtype=torch.int32)
    locked[(12,)](x, out, locks, locks[1:], N=512, FAULT=fault)
    return bool((out == x.sum(0)).all())


def run_split(fault: int) -> bool:
    a, b, c = draw_whole_numbers(32, 128), draw_whole_numbers(128, 32), torch.zeros(32, 32)
    split[(4,)](a, b, c, K=128, FAULT=fault)
    return bool((c == a @ b).all())


def run_product(fault: int) -> bool:
    a, b, c = (
        draw_whole_numbers(64, 256).half(),
        draw_whole_numbers(256, 64).half(),
        torch.zeros(64, 64),
    )
    product[(1,)](a, b, c, K=256, FAULT=fault)
    return bool((c == a.float() @ b.float()).all())


def run_last(fault: int) -> bool:
    x, part, out = draw_whole_numbers(16, 256), torch.zeros(16), torch.zeros(1)
    last[(16,)](x, part, out, torch.zeros(1, dtype=torch.int32), P=16, N=256, FAULT=fault)
    return bool(out[0] == x.sum())


def run_shifted(fault: int) -> bool:
    x, out = draw_whole_numbers(1000), torch.zeros(1000)
    wanted = torch.cat([torch.zeros(1), x[:-1]])
    shifted[(8,)](x, out, 1000, B=128, FAULT=fault)
    return bool(((x if fault == 1 else out) == wanted).all())


RUNS: dict[str, tuple[Callable[[int], bool], int]] = {
    "locked": (run_locked, 3), "split": (run_split, 1), "product": (run_product, 1),
    "last": (run_last, 2), "shifted": (run_shifted, 2),
}  # fmt: skip


def run_fault(run: Callable[[int], bool], fault: int, target: str) -> list[str]:
    """What is found in each of a few runs; of a fault, until something is."""
    found = []
    for schedule, seed in (("robin", 0), ("random", 1), ("far", 2)):
        settings = papergpu.Settings(threads=2, schedule=schedule, seed=seed, limit=2_000_000)
        with papergpu.active(target, settings):
            try:
                found.append("" if run(fault) else "its result is wrong")
            except Finding as finding:
                found.append(str(finding))
                if fault:
                    break
    return found


def main(target: str) -> None:
    torch.manual_seed(0)
    outcome = {
        f"{name} {fault}": run_fault(run, fault, target)
        for name, (run, faults) in RUNS.items()
        for fault in range(faults + 1)
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1])

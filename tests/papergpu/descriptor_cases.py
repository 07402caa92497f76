"""Triton's tensor descriptors; `python descriptor_cases.py sm_90` prints what is wrong there."""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl
from papergpu.launch import Settings
from papergpu.triton import active
from ptx_launch import catch_error, list_cases
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def increase(a, b, M: tl.constexpr, N: tl.constexpr, TIMES: tl.constexpr):
    m, n = tl.program_id(0), tl.program_id(1)
    for i in range(TIMES):
        at = (m * TIMES + i) * M
        b.store([at, n * N], a.load([at, n * N]) + 1)


@triton.jit
def increase_made(x, y, rows, columns, M: tl.constexpr, N: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    b = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [M, N])
    at = [tl.program_id(0) * M, tl.program_id(1) * N]
    b.store(at, a.load(at) + 1)


@triton.jit
def combine(x, y, rows, columns, M: tl.constexpr, N: tl.constexpr, MOST: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    b = tl.make_tensor_descriptor(y, [rows, columns], [columns, 1], [M, N])
    at = [tl.program_id(0) * M, tl.program_id(1) * N]
    if MOST:
        b.atomic_max(at, a.load(at))
    else:
        b.atomic_add(at, a.load(at))


@triton.jit
def cubes(a, b, D: tl.constexpr):
    at = [tl.program_id(0) * D, tl.program_id(1) * D, tl.program_id(2) * 16]
    b.store(at, a.load(at) * 2)


@triton.jit
def product(
    a, b, c, K, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, SPECIALIZED: tl.constexpr
):
    m, n = tl.program_id(0) * M, tl.program_id(1) * N
    out = tl.zeros((M, N), tl.float32)
    for k in tl.range(0, K, D, warp_specialize=SPECIALIZED):
        out = tl.dot(a.load([m, k]), b.load([n, k]).T, out)
    c.store([m, n], out.to(tl.float16))


@triton.jit
def move_rows(a, b, rows, COUNT: tl.constexpr):
    i = tl.load(rows + tl.arange(0, COUNT))
    b.scatter(a.gather(i, 16), i, 16)


def describe_tensor(tensor: torch.Tensor, *block: int) -> TensorDescriptor:
    return TensorDescriptor.from_tensor(tensor, list(block))


def draw_numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randint(-50, 50, shape).to(dtype)


def case_of_the_host(target: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32):
        x = draw_numbers(100, 80, dtype=dtype)
        y = torch.zeros_like(x)
        increase[(4, 3)](describe_tensor(x, 16, 32), describe_tensor(y, 16, 32), 16, 32, 2)
        assert torch.equal(y, x + 1), dtype


def case_of_the_device(target: str) -> None:
    for dtype in (torch.float32, torch.float16):
        x = draw_numbers(100, 80, dtype=dtype)
        y = torch.zeros_like(x)
        increase_made[(7, 3)](x, y, 100, 80, 16, 32)
        assert torch.equal(y, x + 1), dtype


def case_three_dimensions(target: str) -> None:
    x = draw_numbers(10, 12, 48)
    y = torch.zeros_like(x)
    cubes[(3, 3, 3)](describe_tensor(x, 4, 4, 16), describe_tensor(y, 4, 4, 16), 4)
    assert torch.equal(y, 2 * x)


def case_reductions(target: str) -> None:
    for dtype in (torch.float32, torch.float16, torch.int32):
        x, y = draw_numbers(40, 80, dtype=dtype), draw_numbers(40, 80, dtype=dtype)
        want = y + x
        combine[(3, 3)](x, y, 40, 80, 16, 32, False)
        assert torch.equal(y, want), dtype
    x, y = draw_numbers(40, 80, dtype=torch.int32), draw_numbers(40, 80, dtype=torch.int32)
    want = torch.maximum(x, y)
    combine[(3, 3)](x, y, 40, 80, 16, 32, True)
    assert torch.equal(y, want)


def case_products(target: str) -> None:
    a, b = torch.randn(200, 160).half(), torch.randn(136, 160).half()
    want = a.float() @ b.float().T
    for stages in (1, 3):
        c = torch.zeros(200, 136).half()
        given = describe_tensor(a, 64, 32), describe_tensor(b, 64, 32), describe_tensor(c, 64, 64)
        product[(4, 3)](*given, 160, 64, 64, 32, False, num_stages=stages)
        torch.testing.assert_close(c.float(), want, atol=0.05, rtol=1e-2)


def case_products_of_warps_with_roles(target: str) -> None:
    a, b = torch.randn(200, 160).half(), torch.randn(136, 160).half()
    want = a.float() @ b.float().T
    # On sm_90, Triton 3.7 compiles this only so that two groups of warps store the same tile, which
    # the checks find rightly.
    side, some = (64, (1, 3)) if target == "sm_90" else (128, (2, 3))
    for stages in some:
        c = torch.zeros(200, 136).half()
        given = (
            describe_tensor(a, side, 32),
            describe_tensor(b, 64, 32),
            describe_tensor(c, side, 64),
        )
        run = product[(-(-200 // side), 3)]
        with active(target, Settings(threads=1, checks=target != "sm_90")):
            run(*given, 160, side, 64, 32, True, num_stages=stages)
        torch.testing.assert_close(c.float(), want, atol=0.05, rtol=1e-2)


def case_rows(target: str) -> None:
    if target == "sm_90":
        return  # it has no gather in hardware
    x = torch.randn(64, 96).half()
    y = torch.zeros_like(x)
    rows = torch.randperm(64)[:32].int()
    move_rows[(1,)](describe_tensor(x, 1, 32), describe_tensor(y, 1, 32), rows, 32)
    want = torch.zeros_like(x)
    want[rows.long(), 16:48] = x[rows.long(), 16:48]
    assert torch.equal(y, want)


def main(target: str) -> dict[str, str]:
    torch.manual_seed(0)
    triton.set_allocator(lambda size, align, stream: torch.zeros(size, dtype=torch.uint8))
    found = {}
    for name in list_cases(__file__):
        said = {}
        for seed, schedule in enumerate(("robin", "random")):
            with active(target, Settings(threads=1, seed=seed, schedule=schedule)):
                said[schedule] = catch_error(globals()[name], target)
        found[name] = "".join(f"{how}: {text[-1500:]}" for how, text in said.items() if text)
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))

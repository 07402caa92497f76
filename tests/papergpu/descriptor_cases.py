"""Triton's tensor descriptors, also in Gluon; `python descriptor_cases.py sm_90` prints what is
wrong there."""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl
from papergpu.errors import Finding
from papergpu.launch import Settings
from papergpu.triton import active
from ptx_launch import catch_error, list_cases
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia import blackwell, hopper
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
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


# Gluon: layouts, barriers, copies and tensor memory by hand.


@gluon.jit
def fetch(a_map, b_map, a, b, bar, row, column, k):
    mbarrier.expect(bar, a_map.block_type.nbytes + b_map.block_type.nbytes)
    tma.async_copy_global_to_shared(a_map, [row, k], bar, a)
    tma.async_copy_global_to_shared(b_map, [k, column], bar, b)


@gluon.jit
def give(c_map, value, row, column):
    c = gl.allocate_shared_memory(c_map.dtype, c_map.block_type.shape, c_map.layout)
    c.store(value.to(c_map.dtype))
    hopper.fence_async_shared()
    tma.async_copy_shared_to_global(c_map, [row, column], c)
    tma.store_wait(0)


@gluon.jit
def multiply_in_registers(a_map, b_map, c_map, K, D: gl.constexpr, WAITS: gl.constexpr):
    M: gl.constexpr = c_map.block_type.shape[0]
    N: gl.constexpr = c_map.block_type.shape[1]
    a = gl.allocate_shared_memory(a_map.dtype, [M, D], a_map.layout)
    b = gl.allocate_shared_memory(b_map.dtype, [D, N], b_map.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(bar, count=1)
    row, column = gl.program_id(0) * M, gl.program_id(1) * N
    sums = gl.zeros((M, N), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16]))
    for k in range(0, K, D):
        fetch(a_map, b_map, a, b, bar, row, column, k)
        if WAITS:
            mbarrier.wait(bar, phase=k // D & 1)
        sums = hopper.warpgroup_mma(a, b, sums, is_async=True)
        sums = hopper.warpgroup_mma_wait(0, deps=(sums,))
    give(c_map, sums, row, column)


@gluon.jit
def fetch_all(a_map, b_map, c_map, a, b, ready, free, done, sums, row, column, K, D: gl.constexpr):
    for k in range(0, K, D):
        stage = k // D & 1
        mbarrier.wait(free.index(stage), phase=(k // D // 2 & 1) ^ 1)
        fetch(a_map, b_map, a.index(stage), b.index(stage), ready.index(stage), row, column, k)


@gluon.jit
def multiply_all(
    a_map, b_map, c_map, a, b, ready, free, done, sums, row, column, K, D: gl.constexpr
):
    for k in range(0, K, D):
        stage = k // D & 1
        mbarrier.wait(ready.index(stage), phase=k // D // 2 & 1)
        blackwell.tcgen05_mma(
            a.index(stage), b.index(stage), sums, use_acc=k > 0, mbarriers=[free.index(stage)]
        )
    blackwell.tcgen05_commit(done)


@gluon.jit
def give_all(a_map, b_map, c_map, a, b, ready, free, done, sums, row, column, K, D: gl.constexpr):
    mbarrier.wait(done, phase=0)
    layout: gl.constexpr = blackwell.get_tmem_reg_layout(gl.float32, sums.shape, sums.layout, 4)
    give(c_map, sums.load(layout), row, column)


@gluon.jit
def multiply_in_tensor_memory(a_map, b_map, c_map, K, D: gl.constexpr):
    M: gl.constexpr = c_map.block_type.shape[0]
    N: gl.constexpr = c_map.block_type.shape[1]
    a = gl.allocate_shared_memory(a_map.dtype, [2, M, D], a_map.layout)
    b = gl.allocate_shared_memory(b_map.dtype, [2, D, N], b_map.layout)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(2):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=1)
    mbarrier.init(done, count=1)
    layout: gl.constexpr = blackwell.TensorMemoryLayout([M, N], col_stride=1)
    sums = blackwell.allocate_tensor_memory(gl.float32, [M, N], layout)
    row, column = gl.program_id(0) * M, gl.program_id(1) * N
    given = (a_map, b_map, c_map, a, b, ready, free, done, sums, row, column, K, D)
    gl.warp_specialize(
        [(give_all, given), (fetch_all, given), (multiply_all, given)], [1, 1], [24, 24]
    )


def case_gluon(target: str) -> None:
    a, b = (torch.randint(-4, 5, shape).half() for shape in ((256, 320), (320, 128)))
    c = torch.zeros(256, 128).half()
    m = 64 if target == "sm_90" else 128
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    shapes = ((a, [m, 64]), (b, [64, 64]), (c, [m, 64]))
    maps = [GluonDescriptor.from_tensor(x, shape, layout) for x, shape in shapes]
    grid = (256 // m, 2)
    if target == "sm_100":
        multiply_in_tensor_memory[grid](*maps, 320, D=64)
    else:
        multiply_in_registers[grid](*maps, 320, D=64, WAITS=True)
    assert torch.equal(c.double(), a.double() @ b.double())
    if target == "sm_90":
        try:
            multiply_in_registers[grid](*maps, 320, D=64, WAITS=False)
        except Finding as finding:
            assert finding.kind in ("mbarrier", "asynchronous"), finding
        else:
            raise AssertionError("no wait, and nothing was found")


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

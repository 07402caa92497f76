"""The worst request of each instruction: its lanes, their addresses and what they cost, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import papergpu
import pytest
from papergpu.counters import Collected, format_table, tally_instructions
from papergpu.cuda import Source
from papergpu.launch import Memory, Result, Settings, aligned_zeros
from papergpu.records import ALLOC, SAMPLE, Access, merge_samples, relocate_samples, worst_accesses
from ptx_launch import launch_kernel, load_kernel, write_kernel

SETTINGS = Settings(checks=False, profile=True, threads=1)
SOURCE = Source(r"""
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void naive(const float* x, float* y, int n) {
  int i = blockIdx.y * 32 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
  y[j * n + i] = x[i * n + j];
}
template <int PITCH> __global__ void tiled(const float* x, float* y, int n) {
  __shared__ float tile[32 * PITCH];
  extern __shared__ float more[];
  int i = blockIdx.y * 32, j = blockIdx.x * 32;
  tile[threadIdx.y * PITCH + threadIdx.x] = x[(i + threadIdx.y) * n + j + threadIdx.x];
  __syncthreads();
  y[(j + threadIdx.y) * n + i + threadIdx.x] = tile[threadIdx.x * PITCH + threadIdx.y];
}
__global__ void vectors(const float4* x, float4* y) {
  y[threadIdx.x] = x[threadIdx.x * 2];
}
__global__ void masked(int* y) { if (threadIdx.x % 3 == 1) y[threadIdx.x * 16 + 24] = 1; }
__global__ void atomics(int* y) {
  __shared__ int bins[4];
  atomicAdd(&bins[threadIdx.x / 8], (int)threadIdx.x);
  __syncthreads();
  atomicAdd(y + threadIdx.x * 8, bins[0]);
}
__global__ void uneven(int* y) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, b = blockIdx.x;
  y[1024 * (b % 5) + lane * (b % 7 == 3 && warp >= 1 ? 16 : b % 2 ? 4 : 1) + b / 7 % 2] = b;
}
__global__ void cluster(int* y) {
  __shared__ int mine[64];
  auto c = cg::this_cluster();
  mine[threadIdx.x] = 5;
  c.sync();
  int* there = c.map_shared_rank(mine, threadIdx.x < 4 ? c.block_rank() : 1 - c.block_rank());
  y[threadIdx.x] = there[threadIdx.x + 32];
  c.sync();
}
""", name="samples.cu")  # fmt: skip


def launch_sampled(
    name: str, grid: Any, block: Any, *arguments: Any, **more: Any
) -> papergpu.Launched:
    seen: list[papergpu.Launched] = []
    with papergpu.on_launch(seen.append):
        SOURCE.launch(name, grid, block, *arguments, **{"settings": SETTINGS, **more})
    (one,) = seen
    return one


def index_accesses(one: papergpu.Launched) -> dict[str, Access]:
    """Its accesses, by space and what they do; a kernel here has one of each."""
    assert one.result.samples is not None
    found = worst_accesses(one.program, one.result.samples)
    assert len({(each.space, each.does) for each in found}) == len(found)
    # Each names its line of the text.
    lines = one.ptx.splitlines()
    assert all(each.form.split(".")[0] in lines[each.line - 1] for each in found)
    return {f"{each.does} {each.space}": each for each in found}


def stride_addresses(stride: int, start: int = 0) -> tuple[int, ...]:
    return tuple(start + stride * lane for lane in range(32))


def allocate_floats(count: int, start: int = 0) -> Any:
    """Zeros whose address is so many bytes above a multiple of 128."""
    return aligned_zeros(4 * count + start).view("f4")[start // 4 :]


def test_a_naive_transpose() -> None:
    n = 64
    one = launch_sampled(
        "naive", (2, 2), (32, 32), allocate_floats(n * n), allocate_floats(n * n), n
    )
    found = index_accesses(one)
    assert list(found) == ["load global", "store global"]
    load, store = found.values()
    assert (load.size, load.passes, load.ideal, load.addresses) == (4, 4, 4, stride_addresses(4))
    assert (store.size, store.passes, store.ideal) == (4, 32, 4)
    assert store.addresses == stride_addresses(4 * n)
    assert (store.block, store.warp) == ((0, 0, 0), 0)
    assert store.place is not None and store.place.line == 6
    assert one.shared == 0


@pytest.mark.parametrize(("pitch", "wavefronts"), [(32, 32), (33, 1), (36, 4)])
def test_columns_of_a_tile(pitch: int, wavefronts: int) -> None:
    one = launch_sampled(
        f"tiled<{pitch}>",
        (1, 1),
        (32, 32),
        allocate_floats(1024),
        allocate_floats(1024),
        32,
        shared=64,
    )
    found = index_accesses(one)
    load = found["load shared"]
    assert (load.passes, load.ideal, load.size) == (wavefronts, 1, 4)
    assert load.addresses == stride_addresses(4 * pitch)
    banks = [at // 4 % 32 for at in load.addresses if at is not None]
    assert max(map(banks.count, banks)) == wavefronts
    assert (found["store shared"].passes, found["store global"].passes) == (1, 4)
    assert one.shared == 4 * 32 * pitch + 64


def test_vectors() -> None:
    found = index_accesses(
        launch_sampled("vectors", 1, 32, allocate_floats(256), allocate_floats(128))
    )
    load, store = found["load global"], found["store global"]
    assert (load.size, load.passes, load.ideal, load.addresses) == (
        16,
        32,
        16,
        stride_addresses(32),
    )
    assert (store.size, store.passes, store.ideal, store.addresses) == (
        16,
        16,
        16,
        stride_addresses(16),
    )


def test_lanes_that_take_no_part() -> None:
    (store,) = index_accesses(
        launch_sampled("masked", 1, 32, allocate_floats(1024).view("i4"))
    ).values()
    # Lane 1 is at byte 160 of the array, and 32 of its line.
    assert store.addresses == tuple(64 * lane - 32 if lane % 3 == 1 else None for lane in range(32))
    assert (store.passes, store.ideal) == (11, 2)


def test_atomics() -> None:
    found = index_accesses(launch_sampled("atomics", 1, 32, allocate_floats(256).view("i4")))
    shared, global_ = found["atomic shared"], found["atomic global"]
    assert (shared.passes, shared.ideal) == (8, 1)
    assert shared.addresses == tuple(lane // 8 * 4 for lane in range(32))
    assert (global_.passes, global_.ideal, global_.addresses) == (32, 4, stride_addresses(32))


def launch_uneven(**settings: Any) -> papergpu.Launched:
    how = Settings(checks=False, profile=True, **settings)
    return launch_sampled("uneven", 61, 96, allocate_floats(8192).view("i4"), settings=how)


def test_the_first_of_the_worst() -> None:
    """Of blocks 3, 10, 17 ... warps 1 and 2 cost most, each its own way."""
    (store,) = index_accesses(launch_uneven(threads=1)).values()
    assert (store.block, store.warp, store.passes, store.ideal) == ((3, 0, 0), 1, 32, 4)
    assert store.addresses == stride_addresses(64)


@pytest.mark.parametrize("settings", [{"threads": 4}, {"threads": 1, "seed": 9}, {"threads": 3}])
def test_samples_do_not_depend_on_the_order_of_blocks(settings: dict[str, int]) -> None:
    first, again = launch_uneven(threads=1).result.samples, launch_uneven(**settings).result.samples
    assert first is not None and again is not None
    assert first.tobytes() == again.tobytes()


def test_nothing_is_kept_without_profile() -> None:
    result = launch_sampled(
        "masked", 1, 32, allocate_floats(1024).view("i4"), settings=Settings()
    ).result
    assert result.samples is None and result.counts is None


def test_shared_memory_of_a_cluster() -> None:
    one = launch_sampled("cluster", 2, 32, allocate_floats(32).view("i4"), cluster=2)
    load = index_accesses(one)["load shared"]
    assert load.block == (0, 0, 0)
    assert load.addresses == tuple(
        4 * (lane + 32) + (0 if lane < 4 else 1 << 24) for lane in range(32)
    )


def sample_body(body: str, *arrays: Any, parameters: int = 1, **more: Any) -> list[Access]:
    one = load_kernel(write_kernel(f"mov.u32 %r0, %laneid;\n{body}\nret;", parameters, TILE))
    result: Result = launch_kernel(one, *arrays, settings=SETTINGS, **more)
    assert result.samples is not None and result.counts is not None
    executed = {line: form for line, _, form, _ in tally_instructions(one.program, result.counts)}
    found = worst_accesses(one.program, result.samples)
    assert all(executed[each.line] == each.form for each in found)
    return found


TILE = ".shared .align 1024 .b8 tile[8192];"
ADDRESSES = """mul.lo.u32 %r1, %r0, {}; mov.u32 %r2, tile; add.u32 %r2, %r2, %r1;
mul.wide.u32 %rd1, %r0, {}; add.u64 %rd1, %rd0, %rd1;"""


def test_both_sides_of_a_copy() -> None:
    copy = ADDRESSES.format(132, 64) + "\ncp.async.ca.shared.global [%r2], [%rd1], 4;"
    from_, to = sample_body(copy, allocate_floats(1024))
    assert (from_.space, from_.does, from_.passes, from_.ideal) == ("global", "load", 32, 4)
    assert (to.space, to.does, to.passes, to.ideal) == ("shared", "store", 1, 1)
    assert (from_.addresses, to.addresses) == (stride_addresses(64), stride_addresses(132))
    assert from_.line == to.line and from_.form == to.form


def test_rows_of_matrices() -> None:
    two = ADDRESSES.format(128, 0)
    two += "\nldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r20, %r21}, [%r2];"
    (load,) = sample_body(two, allocate_floats(32))
    assert (load.space, load.does, load.size) == ("shared", "load", 16)
    assert load.addresses == (*stride_addresses(128)[:16], *[None] * 16)
    assert (load.passes, load.ideal) == (16, 2)


def test_one_access_of_an_instruction_that_became_several() -> None:
    body = ADDRESSES.format(0, 8) + "\natom.global.add.v2.f32 {%f1, %f2}, [%rd1], {%f3, %f4};"
    (found,) = sample_body(body, allocate_floats(64))
    assert (found.does, found.form.split(".")[0]) == ("atomic", "atom")


def test_a_row_that_begins_within_a_sector() -> None:
    (load,) = sample_body(
        ADDRESSES.format(0, 4) + "\nld.global.b32 %r3, [%rd1+4];", allocate_floats(64)
    )
    assert (load.passes, load.ideal, load.addresses) == (5, 4, stride_addresses(4, 4))


def test_the_worst_in_time() -> None:
    """In a loop the lanes move apart, and the second turn's sectors are the first of the most."""
    body = """mov.u32 %r5, 4; mov.u32 %r6, 0;
    L: mul.wide.u32 %rd1, %r0, %r5; add.u64 %rd1, %rd0, %rd1; ld.global.b32 %r3, [%rd1];
    add.u32 %r5, %r5, 14; add.u32 %r5, %r5, 14; min.u32 %r5, %r5, 88;
    add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 6; @%p1 bra L;"""
    (load,) = sample_body(body, allocate_floats(1024))
    assert (load.passes, load.ideal, load.addresses) == (32, 4, stride_addresses(32))


@pytest.mark.parametrize("start", [0, 32, 64, 96])
def test_addresses_are_no_machines(start: int) -> None:
    """Memory begins a line, wherever it lies."""
    body = ADDRESSES.format(0, 4) + "\nld.global.b32 %r3, [%rd1+256];"
    (load,) = sample_body(body, allocate_floats(256, start))
    assert load.addresses == stride_addresses(4)


def test_lanes_in_several_pieces_of_memory() -> None:
    body = """add.u64 %rd3, %rd4, 512; setp.lt.u32 %p1, %r0, 8;
    @%p1 add.u64 %rd3, %rd1, 260; ld.global.b32 %r3, [%rd3];"""
    body = ADDRESSES.format(0, 4).replace("%rd1", "%rd4") + body
    for first in (True, False):  # whichever lies lower
        data = aligned_zeros(4096)
        low, high = data[:1024], data[2048:3072]
        arrays = (low, high) if first else (high, low)
        (load,) = sample_body(body, *arrays, parameters=2)
        assert load.addresses == (*[4] * 8, *(128 + 4 * lane for lane in range(8, 32)))
        assert load.passes == 4


def test_memory_that_is_in_no_piece() -> None:
    """Of what nobody named lines are as they lie."""
    one = np.zeros(1, SAMPLE)
    one["mask"], one["size"], one["space"] = 0b101, 4, 5
    one["addresses"][0, :3] = 4096 + 200, 77, 4096 + 132
    for memory in (np.zeros(0, ALLOC), np.array([(64, 4096 + 150, 0, 0, 0)], ALLOC)):
        assert relocate_samples(one, memory)["addresses"][0, :3].tolist() == [72, 0, 4]
    assert len(relocate_samples(np.zeros(0, SAMPLE), np.zeros(0, ALLOC))) == 0


def test_launches_together() -> None:
    text = write_kernel(
        "mov.u32 %r0, %laneid; ld.global.b32 %r1, [%rd1]; mul.wide.u32 %rd2, %r0, %r1;\n"
        "add.u64 %rd2, %rd0, %rd2; st.global.b32 [%rd2], %r0; ret;",
        2,
    )
    one, data = load_kernel(text), allocate_floats(2048)
    done = []
    for stride in (8, 128, 4, 128):
        result = launch_kernel(one, data, np.array([stride], np.uint32), settings=SETTINGS)
        assert result.samples is not None
        done.append(result.samples)
    load, store = worst_accesses(one.program, merge_samples(*done))
    assert (load.passes, store.passes, store.addresses) == (1, 32, stride_addresses(128))
    assert merge_samples(*done).tobytes() == merge_samples(done[1], done[0]).tobytes()


def test_the_table_names_the_worst_of_a_line() -> None:
    seen = Collected()
    with papergpu.on_launch(seen):
        for n in (64, 32):
            side = n // 32
            SOURCE.launch(
                "naive",
                (side, side),
                (32, 32),
                allocate_floats(n * n),
                allocate_floats(n * n),
                n,
                settings=SETTINGS,
            )
        SOURCE.launch(
            "vectors", 1, 32, allocate_floats(256), allocate_floats(128), settings=SETTINGS
        )
    (file,) = {one.file for one in seen.profile().lines if one.file.endswith("samples.cu")}
    text = format_table(seen.profile(), {file: SOURCE.text}, file)
    rows = text.splitlines()
    (at,) = (k for k, row in enumerate(rows) if row.endswith("y[j * n + i] = x[i * n + j];"))
    assert rows[at + 1].strip() == (
        "worst: store global, 4 bytes a lane: block (0, 0, 0), warp 0, 32 sectors for 4: 32 lanes "
        "at +0 +256 +512 +768 ... +7936"
    )
    assert text.count("worst:") == 2, "the load of vectors as well, and no other line"
    assert "load global, 16 bytes a lane" in text
    assert seen.profile().as_dict().keys() == {"kernels", "total", "lines"}


def test_a_result_has_room_for_what_is_not_a_tensor() -> None:
    """Memory is named by pieces, and the module's own is one of them."""
    text = write_kernel(
        "mov.u32 %r0, %laneid; mov.u64 %rd1, table; mul.wide.u32 %rd2, %r0, 4;\n"
        "add.u64 %rd1, %rd1, %rd2; ld.global.b32 %r1, [%rd1+128];\n"
        "st.global.b32 [%rd0], %r1; ret;",
        module=".global .align 128 .b32 table[64];",
    )
    one, data = load_kernel(text), allocate_floats(32)
    result = launch_kernel(one, np.uint64(data.ctypes.data), settings=SETTINGS,
                           touched=[Memory(data.ctypes.data, data.nbytes)])  # fmt: skip
    assert result.samples is not None
    load, store = worst_accesses(one.program, result.samples)
    assert (load.addresses, store.addresses) == (stride_addresses(4), (0,) * 32)

"""papergpu.cuda: a .cu file on tensors and arrays of the CPU, from its text to what it finds.
Takes 10 s, as NVRTC compiles each kernel.
"""

import ctypes
import re
from pathlib import Path

import numpy as np
import papergpu
import pytest
from papergpu.cuda import (
    CompileError,
    Finding,
    Memory,
    Source,
    Unsupported,
    match_symbols,
    parse_symbol,
)
from papergpu.cuda_arguments import pack_parameter
from papergpu.syntax_tree import Variable
from ptx_launch import write_kernel

BASIC = r"""
struct Pair { int first; float second; };
struct View { float* data; long long n; };
__constant__ float table[4];
__device__ int counter = 5;
namespace inner { __device__ double kept[2]; }

__device__ int twice(int a) { return a * 2; }

template <typename T, int N = 2>
__global__ void scale(T* p, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) p[i] = p[i] * by * T(N);
}
__global__ void all_kinds(double* out, unsigned char a, short b, unsigned c, long long d, float e,
                          double f, bool g, Pair h) {
    out[0] = a; out[1] = b; out[2] = c; out[3] = d; out[4] = e; out[5] = f; out[6] = g;
    out[7] = h.first; out[8] = h.second;
}
__global__ void constants(float* out) {
    out[threadIdx.x] = table[threadIdx.x] * twice(3);
    atomicAdd(&counter, 1);
    if (threadIdx.x == 0) inner::kept[1] += 0.5;
}
__global__ void dynamic(int* out) {
    extern __shared__ int tile[];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
__global__ void through(View view) { view.data[threadIdx.x] += view.n; }
__global__ void beyond(float* p) { p[threadIdx.x + 1] = 1; }
static __global__ void hidden(int* p) { *p = 3; }
namespace one { __global__ void same(int* p) { *p = 1; } }
namespace two { __global__ void same(int* p) { *p = 2; } }
"""


@pytest.fixture(scope="module")
def basic_source() -> Source:
    return Source(BASIC, name="basic.cu")


def test_a_template_is_named_as_in_cpp_and_takes_a_tensor(basic_source):
    import torch

    x = torch.arange(10, dtype=torch.float32)
    basic_source.launch("scale<float>", 3, 4, x, 1.5, 9)
    assert x.tolist() == [3.0 * k for k in range(9)] + [9.0]
    y = np.arange(4, dtype=np.int64)
    basic_source.launch("scale<long, 5>", (1, 1, 1), (4,), y, 1, np.int32(4))
    assert y.tolist() == [0, 5, 10, 15]


INSTANCES = r"""
__device__ int calls;
template <int N> __global__ void alone(int* y) { *y = N; }
template <int N> __global__ void counting(int* y) { y[0] += N; y[1] = ++calls; }
"""


def test_instances_are_compiled_together_only_where_they_share_variables():
    source, launched = Source(INSTANCES), []
    y = np.zeros(2, np.int32)
    with papergpu.on_launch(launched.append):
        for n in range(1, 4):
            source.launch(f"alone<{n}>", 1, 1, y)
            assert y[0] == n
        for n in range(1, 4):
            source.launch(f"counting<{n}>", 1, 1, y)
            assert y.tolist() == [3 + n * (n + 1) // 2, n], "the count is of all instances"
    assert source.globals("calls").tolist() == [3]
    assert [one.ptx.count(".entry") for one in launched] == [1, 1, 1, 1, 2, 3]
    with pytest.raises(ValueError, match="its template arguments are wrong"):
        source.launch("alone<int>", 1, 1, y)


def test_every_kind_of_argument_becomes_its_parameter(basic_source):
    import torch

    class Pair(ctypes.Structure):
        _fields_ = [("first", ctypes.c_int), ("second", ctypes.c_float)]

    out = np.zeros(9)
    basic_source.launch(
        "all_kinds", 1, 1, out, 200, -3, 4_000_000_000, -(2**40), 0.5, 2, True, Pair(7, 8.5)
    )
    assert out.tolist() == [200, -3, 4e9, -(2.0**40), 0.5, 2, 1, 7, 8.5]
    same = np.zeros(9)
    pair = np.zeros(1, [("first", "i4"), ("second", "f4")])[0]
    basic_source.launch(
        "all_kinds",
        1,
        1,
        torch.from_numpy(same),
        np.uint8(1),
        ctypes.c_short(2),
        np.uint32(3),
        np.int64(4),
        np.float32(5),
        ctypes.c_double(6),
        np.bool_(False),
        pair,
    )
    assert same.tolist() == [1, 2, 3, 4, 5, 6, 0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("u8", 256, "256 does not fit an integer of 1 bytes"),
        ("u32", -(2**31) - 1, "does not fit an integer of 4 bytes"),
        ("u32", 1.0, "is a float, but the kernel takes an integer of 4 bytes: pass an int"),
        ("u32", np.int64(1), "is int64 of 8 bytes, but the kernel takes an integer of 4 bytes"),
        ("u32", np.float32(1), "pass np.int32"),
        ("f32", np.int32(1), "pass np.float32"),
        ("f32", np.ones(3), "is memory, but the kernel takes a float of 4 bytes"),
        ("f32", 1e300, "exceeds a float of 4 bytes"),
        ("f32", 2**24 + 1, "pass a float"),
        ("u64", "text", "is a str"),
        ("u64", ctypes.c_int(1), "match its layout"),
    ],
)
def test_what_does_not_fit_a_parameter_is_refused(kind, value, says):
    with pytest.raises((TypeError, ValueError), match=re.escape(says)):
        pack_parameter(value, Variable("param", kind, "p", 1), "a.cu: k: argument 0")


def test_a_number_of_arguments_that_is_not_the_kernels(basic_source):
    with pytest.raises(TypeError, match=r"basic.cu: dynamic got 2 arguments, expected 1"):
        basic_source.launch("dynamic", 1, 1, np.zeros(1, np.int32), 1)


def test_variables_are_read_and_written_and_live_from_launch_to_launch(basic_source):
    table, counter = basic_source.globals("table", np.float32), basic_source.globals("counter")
    table[:] = [1, 2, 3, 4]
    start = int(counter[0])
    out = np.zeros(4, np.float32)
    for _ in range(2):
        basic_source.launch("constants", 1, 4, out)
    assert out.tolist() == [6, 12, 18, 24]
    basic_source.launch("scale<short>", 1, 1, np.zeros(1, np.int16), 1, 1)  # compiled once more
    basic_source.launch("constants", 1, 4, out)
    assert counter[0] == start + 12, "the view is of the variable, still"
    assert basic_source.globals("inner::kept", np.float64)[1] == 1.5
    with pytest.raises(ValueError, match="no variable 'nothing' that a kernel uses; it has"):
        basic_source.globals("nothing")


def test_settings_and_callbacks_hold_for_cuda_as_for_triton(basic_source):
    import torch

    x, seen = torch.ones(4), []
    with papergpu.settings(profile=True, seed=3), papergpu.on_launch(seen.append):
        basic_source.launch("scale<float>", (2, 1), 2, x, 3.0, 4)
        basic_source.launch("scale<float>", 1, 4, x, 1.0, 4, settings=papergpu.Settings(seed=5))
    basic_source.launch("scale<float>", 1, 4, x, 1.0, 4)
    assert [(one.name, one.grid, one.block, one.cluster) for one in seen] == [
        ("scale<float>", (2, 1, 1), (2, 1, 1), (1, 1, 1)),
        ("scale<float>", (1, 1, 1), (4, 1, 1), (1, 1, 1)),
    ]
    assert [(one.settings.profile, one.settings.seed) for one in seen] == [(True, 3), (False, 5)]
    first, second = (one.result for one in seen)
    assert second.counts is None and first.counts["run"].sum() == first.steps > 0


def test_dynamic_shared_memory_is_as_large_as_the_launch_says(basic_source):
    out = np.zeros(8, np.int32)
    basic_source.launch("dynamic", 1, 8, out, shared=32)
    assert out.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    with pytest.raises(Finding, match="at byte 28 of shared memory, which has 28"):
        basic_source.launch("dynamic", 1, 8, out, shared=28)


def test_memory_behind_a_pointer_in_a_structure_is_declared(basic_source):
    class View(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("n", ctypes.c_longlong)]

    data = np.zeros(4, np.float32)
    view = View(data.ctypes.data, 7)
    basic_source.launch("through", 1, 4, view, touching=[data])
    assert data.tolist() == [7] * 4
    named = Memory(data.ctypes.data, 12, "the first three")
    with pytest.raises(Finding, match="at byte 12 of the first three, which has 12"):
        basic_source.launch("through", 1, 4, view, touching=[named])


def test_a_finding_names_the_line_of_the_file_and_the_argument(tmp_path):
    import torch

    path = tmp_path / "beyond.cu"
    path.write_text("// one\n__global__ void beyond(float* p) {\n    p[threadIdx.x + 1] = 1;\n}\n")
    with pytest.raises(Finding) as found:
        Source(path).launch("beyond", 1, 4, torch.zeros(4))
    assert re.search(
        r"^beyond at \S*beyond\.cu:3, block \(0, 0, 0\), thread \(3, 0, 0\): ", str(found.value)
    )
    assert "byte 16 of argument 0 (float32, 4), which has 16" in str(found.value)


def test_kernels_are_found_by_their_names_and_named_where_they_are_not(basic_source):
    out = np.zeros(1, np.int32)
    for name, value in (("one::same", 1), ("two::same", 2), ("hidden", 3)):
        basic_source.launch(name, 1, 1, out)
        assert out[0] == value
    with pytest.raises(ValueError, match="'same' means several kernels"):
        basic_source.launch("same", 1, 1, out)
    with pytest.raises(ValueError, match="no kernel 'nothing'; it has scale, all_kinds"):
        basic_source.launch("nothing", 1, 1, out)


def test_an_error_is_shown_as_the_compiler_says_it(tmp_path):
    path = tmp_path / "wrong.cu"
    path.write_text("__global__ void k(int* p) {\n    *p = nobody;\n}\n")
    with pytest.raises(CompileError) as said:
        Source(path).launch("k", 1, 1, np.zeros(1, np.int32))
    assert f'{path}(2): error: identifier "nobody" is undefined' in str(said.value)


HOSTED = r"""
#include <iostream>
#include "common.h"
namespace one { template <class T> __global__ void fill(T* p) { *p = beyond<1>((int*)p); } }
namespace { template <int N> __global__ void hidden(int* p) { *p = N; } }
extern "C" __global__ void plain(float* p) { *p = other() * INFINITY; }
int main() { one::fill<int><<<1, 1>>>(nullptr); std::cout << std::string("host"); }
"""


def test_a_file_with_a_hosts_part_is_compiled_whole_by_nvcc(tmp_path):
    (tmp_path / "common.h").write_text(
        "#include <string>\nvoid report(std::string s) { exit(1); }\n"
        "template <int N> __device__ int beyond(const int* p) {\n    __shared__ int held[9 + N];\n"
        "    held[threadIdx.x] = *p; __syncthreads();\n    return held[0] + p[N];\n}\n"
        "__device__ int other() { __shared__ int more[99]; more[0] = 1; return more[0]; }\n"
    )
    path = tmp_path / "main.cu"
    path.write_text(HOSTED)
    source = Source(path)
    x, y = np.zeros(1, np.int32), np.zeros(1, np.float32)
    source.launch("hidden<5>", 1, 1, x)
    source.launch("plain", 1, 1, y)
    assert (x[0], y[0]) == (5, np.inf)
    for name, value in (("one::fill<int>", x), ("one::fill<float>", y)):
        with pytest.raises(Finding, match="reads 4 bytes at byte 4") as found:
            source.launch(name, 1, 1, value)
        place = found.value.place
        assert (place.file, place.line) == (str(tmp_path / "common.h"), 6)
        assert source.kernel(name).program.shared == 40  # what it reaches, and nothing else


def test_symbols_are_read_as_names():
    assert parse_symbol("_ZN3one4sameEPi") == ("one", "same")
    assert parse_symbol("_ZN3one5twiceIfEEvPT_") == ("one", "twice")
    assert (
        parse_symbol("_ZN55_GLOBAL__N__b6e5a0e6_5_a_cu_2a6b1b0c_00000000_12345678904kepiE")[-1]
        != ""
    )
    assert parse_symbol("_Z5scalePf") == ("scale",) and parse_symbol("plain") == ("plain",)
    assert match_symbols(["_ZN3one4sameEPi", "_Z4samePi"], "same") == ["_Z4samePi"]


PRINTING = r"""
#include <stdio.h>
#include <assert.h>
__global__ void hello(int n) {
    if (threadIdx.x < 2)
        printf("%d/%u %5.2f|%-4s|%c %lld %#x %e %%\n", threadIdx.x, blockIdx.x, 1.5f, "ab", 'z',
               -(1LL << 40), 255, 12345.678);
    if (threadIdx.x == 3) printf("%*d\n", 6, printf(""));
}
__global__ void bad_format() { printf("%y\n", 1); }
__global__ void check(const int* p) {
    assert(p[threadIdx.x] > 0);
}
"""


def test_printf_prints_block_after_block(capsys):
    source = Source(PRINTING)
    result = source.launch("hello", 2, 32, 3)
    line = "{0}/{1}  1.50|ab  |z -1099511627776 0xff 1.234568e+04 %\n"
    said = "".join(line.format(t, b) for b in range(2) for t in range(2))
    said = said.replace(line.format(1, 0), line.format(1, 0) + "     0\n") + "     0\n"
    assert capsys.readouterr().out == said == result.printed
    with pytest.raises(Finding, match="printf's format has %y, which CUDA does not print"):
        source.launch("bad_format", 1, 1)


def test_an_assertion_that_fails_is_found_where_it_stands():
    source = Source(PRINTING, name="printing.cu")
    source.launch("check", 1, 3, np.array([1, 2, 3], np.int32))
    says = r"thread \(1, 0, 0\): the assertion `p\[threadIdx.x\] > 0` of printing.cu:12 fails"
    with pytest.raises(Finding, match=says):
        source.launch("check", 1, 3, np.array([1, -2, 3], np.int32))


HEAP = r"""
__global__ void lists(long long* out) {
    int* p = (int*)malloc(16 * (threadIdx.x + 1));
    p[4 * threadIdx.x + 3] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = p[4 * threadIdx.x + 3];
    free(p);
    double* q = new double(0.5);
    out[threadIdx.x] += (long long)(*q * 2);
    delete q;
}
__global__ void twice() { void* p = malloc(8); free(p); free(p); }
__global__ void much(int* out) { *out = malloc(1 << 30) == nullptr; }
"""


def test_the_heap_gives_memory_and_finds_what_is_freed_twice():
    source = Source(HEAP)
    out = np.zeros(40, np.int64)
    source.launch("lists", 1, 40, out)
    assert out.tolist() == list(range(1, 41))
    none = np.zeros(1, np.int32)
    source.launch("much", 1, 1, none)
    assert none[0] == 1
    with pytest.raises(Finding, match="a second time: free it once"):
        source.launch("twice", 1, 1)


GROUPS = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

__global__ void rounds(int* data, int* out) {
    cg::grid_group grid = cg::this_grid();
    for (int round = 0; round < 3; ++round) {
        data[grid.thread_rank()] += 1;
        grid.sync();
        out[grid.thread_rank()] += data[(grid.thread_rank() + 37) % grid.size()];
        grid.sync();
    }
}
__global__ void groups(const int* in, int* out) {
    auto block = cg::this_thread_block();
    auto tile = cg::tiled_partition<16>(block);
    int v = in[block.thread_rank()];
    out[block.thread_rank()] = cg::reduce(tile, v, cg::plus<int>());
    out[64 + block.thread_rank()] = cg::inclusive_scan(tile, v);
    if (v % 2) {
        cg::coalesced_group active = cg::coalesced_threads();
        out[128 + block.thread_rank()] = active.size() * 100 + active.thread_rank();
    }
    __shared__ int tile_of_memory[64];
    cg::memcpy_async(block, tile_of_memory, in, sizeof(int) * 64);
    cg::wait(block);
    out[192 + block.thread_rank()] = tile_of_memory[63 - block.thread_rank()];
}
__global__ void wide(int* out) {
    __shared__ cg::block_tile_memory<128> memory;
    auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
    out[threadIdx.x] = cg::reduce(tile, (int)threadIdx.x, cg::plus<int>());
}
__global__ void __cluster_dims__(2, 1, 1) neighbours(int* out) {
    __shared__ int mine;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) mine = 100 + blockIdx.x;
    cluster.sync();
    int* other = cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1);
    if (threadIdx.x == 0) out[blockIdx.x] = *other;
    cluster.sync();
}
"""


@pytest.fixture(scope="module")
def groups_source() -> Source:
    return Source(GROUPS)


def test_a_cooperative_grid_synchronises(groups_source):
    data, out = np.zeros(160, np.int32), np.zeros(160, np.int32)
    for launch in range(2):
        data[:] = out[:] = 0
        groups_source.launch("rounds", 5, 32, data, out, cooperative=True)
        assert (data == 3).all() and (out == 6).all(), launch
    with pytest.raises(Finding, match="traps"):
        groups_source.launch("rounds", 5, 32, data, out)


def test_groups_of_threads_reduce_scan_and_copy(groups_source):
    values = np.random.default_rng(0).integers(0, 50, 64).astype(np.int32)
    out = np.zeros(256, np.int32)
    groups_source.launch("groups", 1, 64, values, out)
    tiles = values.reshape(4, 16)
    assert (out[:64].reshape(4, 16) == tiles.sum(1)[:, None]).all()
    assert (out[64:128].reshape(4, 16) == tiles.cumsum(1)).all()
    odd = (values % 2).reshape(2, 32).astype(bool)
    rank = odd.cumsum(1) - 1
    assert (out[128:192].reshape(2, 32) == np.where(odd, odd.sum(1)[:, None] * 100 + rank, 0)).all()
    assert (out[192:] == values[::-1]).all()


def test_a_group_of_several_warps_reduces(groups_source):
    out = np.zeros(128, np.int32)
    groups_source.launch("wide", 1, 128, out)
    assert out.tolist() == [sum(range(64))] * 64 + [sum(range(64, 128))] * 64


def test_a_cluster_reads_its_neighbours_shared_memory(groups_source):
    out = np.zeros(4, np.int32)
    groups_source.launch("neighbours", 4, 32, out)  # as __cluster_dims__ says
    assert out.tolist() == [101, 100, 103, 102]


LIBRARIES = r"""
#include <cooperative_groups.h>
#include <cub/cub.cuh>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <thrust/device_vector.h>

template <int B> __global__ void sorted(const int* in, int* out, int* total) {
    using Load = cub::BlockLoad<int, B, 2, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Sort = cub::BlockRadixSort<int, B, 2>;
    using Sum = cub::BlockReduce<int, B>;
    using Scan = cub::WarpScan<int>;
    __shared__ union { typename Load::TempStorage load; typename Sort::TempStorage sort;
                       typename Sum::TempStorage sum; typename Scan::TempStorage scan[B / 32]; } t;
    int v[2];
    Load(t.load).Load(in, v); __syncthreads();
    Sort(t.sort).Sort(v); __syncthreads();
    out[2 * threadIdx.x] = v[0]; out[2 * threadIdx.x + 1] = v[1];
    int sum = Sum(t.sum).Sum(v); __syncthreads();
    if (threadIdx.x == 0) total[0] = sum;
    int before; Scan(t.scan[threadIdx.x / 32]).ExclusiveSum(1, before);
    if (threadIdx.x == 33) total[1] = before;
}
__global__ void piped(const float4* in, float4* out) {
    __shared__ float4 tile[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], cuda::aligned_size_t<16>(16), bar);
    bar.arrive_and_wait();
    float4 v = tile[63 - threadIdx.x];
    out[threadIdx.x] = v;
}
__global__ void staged(const int* in, int* out) {
    __shared__ int stages[2][64];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
    auto block = cooperative_groups::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int use = 0, fetch = 0; use < 4; ++use) {
        for (; fetch < 4 && fetch < use + 2; ++fetch) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, stages[fetch % 2], in + 64 * fetch,
                               cuda::aligned_size_t<4>(256), pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[64 * use + threadIdx.x] = stages[use % 2][63 - threadIdx.x];
        pipe.consumer_release();
    }
}
"""


@pytest.mark.exhaustive("headers of a library")
def test_cub_and_the_barriers_of_libcudacxx_work():
    source = Source(LIBRARIES)
    values = np.random.default_rng(1).integers(-999, 999, 128).astype(np.int32)
    out, total = np.zeros(128, np.int32), np.zeros(2, np.int32)
    source.launch("sorted<64>", 1, 64, values, out, total)
    assert (out == np.sort(values)).all() and total.tolist() == [values.sum(), 1]
    given = np.arange(256, dtype=np.float32).reshape(64, 4)
    turned = np.zeros_like(given)
    source.launch("piped", 1, 64, given, turned)
    assert (turned == given[::-1]).all()
    lines = np.arange(256, dtype=np.int32).reshape(4, 64)
    mirrored = np.zeros_like(lines)
    source.launch("staged", 1, 64, lines, mirrored)
    assert (mirrored == lines[:, ::-1]).all()


def test_wmma_and_small_formats_on_every_target():
    import torch

    text = r"""
    #include <mma.h>
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    #include <cuda_fp8.h>
    using namespace nvcuda;
    __global__ void product(const half* a, const half* b, float* c) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> z;
        wmma::fill_fragment(z, 0.0f);
        wmma::load_matrix_sync(x, a, 16); wmma::load_matrix_sync(y, b, 16);
        wmma::mma_sync(z, x, y, z);
        wmma::store_matrix_sync(c, z, 16, wmma::mem_row_major);
    }
    __global__ void formats(const float* in, float* out) {
        float v = in[threadIdx.x];
        out[threadIdx.x] = __half2float(__float2half(v));
        out[32 + threadIdx.x] = __bfloat162float(__float2bfloat16(v));
        out[64 + threadIdx.x] = float(__nv_fp8_e4m3(v));
    }
    """
    rng = np.random.default_rng(2)
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    x = torch.from_numpy(rng.standard_normal(32).astype(np.float32))
    for target in ("sm_80", "sm_90a", "sm_100a"):
        source = Source(text, target=target)
        c = np.zeros((16, 16), np.float32)
        source.launch("product", 1, 32, a, b, c)
        assert np.allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4), target
        out = torch.zeros(96)
        source.launch("formats", 1, 32, x, out)
        for at, kind in enumerate((torch.float16, torch.bfloat16, torch.float8_e4m3fn)):
            assert torch.equal(out[32 * at : 32 * at + 32], x.to(kind).float()), (target, kind)
        assert f".target {target}" in source.ptx
    with pytest.raises(
        ValueError, match="there is no target 'sm_70': choose sm_80, sm_90a, sm_100a"
    ):
        Source(text, target="sm_70")


def test_what_was_compiled_is_kept_until_a_header_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERGPU_CACHE", str(tmp_path / "kept"))
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "value.h").write_text("#define VALUE 1\n")
    text = '#include "lib/value.h"\n__global__ void k(int* p) { *p = VALUE; }'

    def compile_ptx() -> str:
        return Source(text, [f"-I{tmp_path}"]).ptx

    first = compile_ptx()
    files = list((tmp_path / "kept" / "ptx").iterdir())
    assert len(files) == 1 and compile_ptx() == first
    (folder / "value.h").write_text("#define VALUE 2\n")
    assert compile_ptx() != first
    assert len(list((tmp_path / "kept" / "ptx").iterdir())) == 2
    assert not list(Path(tmp_path / "kept" / "ptx").glob("*.tmp"))


def test_what_is_not_executed_is_refused_with_its_line():
    text = "__global__ void k(cudaTextureObject_t t, float* p) {\n *p = tex2D<float>(t, 0, 0);\n}"
    with pytest.raises(Unsupported, match=r"tex\.2d\S* at PTX line \d+"):
        Source(text).launch("k", 1, 1, 0, np.zeros(1, np.float32))


POINTERS = r"""
typedef float (*Of)(float, float);
__device__ __noinline__ float plus(float a, float b) { return a + b; }
__device__ __noinline__ float times(float a, float b) { return a * b; }
__device__ Of table[2] = {plus, times};
__global__ void apply(float* p) { p[threadIdx.x] = table[threadIdx.x % 2](p[threadIdx.x], 3.0f); }
__global__ void wild(float* p) { ((Of)p)(1, 2); }
struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float a;
    __device__ Square(float a) : a(a) {}
    __device__ float area() const override { return a * a; }
};
struct Circle : Shape {
    float r;
    __device__ Circle(float r) : r(r) {}
    __device__ float area() const override { return 3 * r * r; }
};
__global__ void areas(float* out) {
    float side = threadIdx.x;
    Shape* shape = threadIdx.x % 2 ? (Shape*)new Square(side) : (Shape*)new Circle(side);
    out[threadIdx.x] = shape->area();
    delete shape;
}
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void recursive(int* out) { out[threadIdx.x] = fib(threadIdx.x); }
"""


def test_calls_through_pointers_and_virtual_ones_find_their_functions():
    source = Source(POINTERS)
    p, out = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    source.launch("apply", 1, 8, p)
    assert p.tolist() == [3, 3, 5, 9, 7, 15, 9, 21]
    source.launch("areas", 1, 8, out)
    assert out.tolist() == [0, 1, 12, 9, 48, 25, 108, 49]
    with pytest.raises(Finding, match="calls a function at 0x[0-9a-f]+, where none is"):
        source.launch("wild", 1, 1, p)


def test_what_nvrtc_writes_into_is_nobody_elses() -> None:
    """Python has one object for all bytes of length 1, and an empty log is as long."""
    Source("__global__ void quiet(int* y) { *y = 1; }\n", name="quiet.cu").ptx  # noqa: B018
    assert bytes([0x20]) == b" " and ord(bytes([0x20])) == 32
    assert bytes([32])[0] == 32 and bytes([32]) == b" "
    assert [b"a b"[1:2]] == [bytes([32])] and b"a b"[1:2][0] == 32


def test_ptx_is_executed_as_it_is() -> None:
    source = Source(write_kernel("st.global.u32 [%rd0], 7;"), name="seven.ptx")
    x = np.zeros(1, np.uint32)
    source.launch("k", 1, 1, x)
    assert x[0] == 7
    with pytest.raises(ValueError, match=r"^seven\.ptx: no kernel 'other'; it has k$"):
        source.launch("other", 1, 1, x)

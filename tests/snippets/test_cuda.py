"""snippets/cuda.py, on a CPU and on a GPU that is made up, and STREAM, its first user."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import papergpu
import pytest
import torch
from conftest import exhaustive

from snippets import cuda
from snippets.stream import cases, stream

KERNELS = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T, int REPEAT>
__global__ void scale(const T* x, T* y, T a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = x[i];
    for (int k = 0; k < REPEAT; ++k) y[i] *= a;
}

// x (rows, columns) -> y (columns, rows), in 16 x 8 tiles.
template <bool SYNC>
__global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[16][8 + 1];
    const int r = blockIdx.y * 16 + threadIdx.y, c = blockIdx.x * 8 + threadIdx.x;
    if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
    if (SYNC) __syncthreads();
    const int t = threadIdx.y * 8 + threadIdx.x, tr = t % 16, tc = t / 16;
    const int out_r = blockIdx.y * 16 + tr, out_c = blockIdx.x * 8 + tc;
    if (out_r < rows && out_c < columns) y[out_c * rows + out_r] = tile[tr][tc];
}

// Each of six rows of y (6, blockDim.x) shows one way for lanes to exchange values.
__global__ void lanes(const int* x, int* y) {
    const int t = threadIdx.x, n = blockDim.x, lane = t % 32;
    int sum = x[t], scan = x[t], eights = x[t];
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
    for (int d = 1; d < 32; d *= 2) {
        const int below = __shfl_up_sync(0xffffffff, scan, d);
        if (lane >= d) scan += below;
    }
    for (int d = 4; d; d /= 2) eights += __shfl_down_sync(0xffffffff, eights, d, 8);
    y[t] = sum;
    y[n + t] = scan;
    y[2 * n + t] = __shfl_sync(0xffffffff, eights, lane & ~7);
    y[3 * n + t] = __popc(__ballot_sync(0xffffffff, x[t] & 1));
    y[4 * n + t] = __any_sync(0xffffffff, x[t] == 7) * 2 + __all_sync(0xffffffff, x[t] >= 0);
    // Half a warp alone, while the other half is elsewhere.
    if (lane < 16) y[5 * n + t] = __shfl_xor_sync(0x0000ffff, x[t], 1);
    else y[5 * n + t] = __popc(__match_any_sync(0xffff0000, x[t] % 4));
}

// Sum of x (n,) by one block: shared memory of the warps, and warps that leave early.
__global__ void __launch_bounds__(1024) total(const float* x, double* y, int n) {
    __shared__ double warps[32];
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (threadIdx.x == 0) *y = sum;
}

__global__ void histogram(const int* x, int* count, int* extremes, float* sum, int n) {
    extern __shared__ int bins[];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    const int every = __syncthreads_count(threadIdx.x % 2);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&bins[x[i]], 1);
        atomicMax(&extremes[0], x[i]);
        atomicMin(&extremes[1], x[i]);
        atomicAdd(sum, 0.5f);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&count[threadIdx.x], bins[threadIdx.x]);
    if (threadIdx.x == 0) atomicExch(&extremes[2], every);
    if (threadIdx.x == 1) atomicCAS(&extremes[3], 0, blockIdx.x + 1);
}

__global__ void reverse(const double* x, double* y) {  // 10000 doubles, above 48 KB
    extern __shared__ __align__(16) double whole[];
    for (int i = threadIdx.x; i < 10000; i += blockDim.x) whole[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < 10000; i += blockDim.x) y[i] = whole[9999 - i];
}

__global__ void unwritten(float* y) {
    __shared__ float fixed[4];
    extern __shared__ float sized[];
    y[0] = fixed[threadIdx.x], y[1] = sized[threadIdx.x];
    fixed[threadIdx.x] = sized[threadIdx.x] = 1;
}

__global__ void halves(const float* x, float* y, float* z, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        y[i] = __half2float(__float2half(x[i]));
        z[i] = __bfloat162float(__float2bfloat16(x[i]));
    }
}

__global__ void divergent(float* y) {
    if (threadIdx.x < 8)
        __syncthreads();  // line A
    y[threadIdx.x] = 1;
    __syncthreads();  // line B
}

__global__ void missing_lane(float* y) {
    if (threadIdx.x < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffffff, y[threadIdx.x], 1);
    __syncthreads();
}

__global__ void early_exit(float* y, int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();
    y[threadIdx.x] = __shfl_sync(0xffffffff, float(n), 0);
}

#if __CUDA_ARCH__ >= 1200
__global__ void only_elsewhere(float* y) { *y = 1; }
#endif

__global__ void __cluster_dims__(2, 1, 1) neighbours(int* y) {
    __shared__ int mine;
    int there, other;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(there));
    mine = 10 * there;
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&mine));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(at), "r"(there ^ 1));
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(other) : "r"(at));
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    y[blockIdx.x] = other;
}
"""


@pytest.fixture(scope="module")
def kernel_source(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "kernels.cu"
    path.write_text(KERNELS)
    return cuda.Source(path)


def test_template_instance_and_scalar_arguments(kernel_source):
    x = torch.randn(1000)
    y = torch.full((1001,), -7.0)
    kernel_source.launch("scale<float, 2>", 4, 256, x, y, np.float32(1.5), np.int32(1000))
    torch.testing.assert_close(y[:1000], x * 1.5 * 1.5, rtol=0, atol=0)
    assert y[1000] == -7


def test_two_dimensional_blocks_share_a_tile(kernel_source):
    x = torch.randn(37, 21)
    y = torch.empty(21, 37)
    sizes = np.int32(37), np.int32(21)
    kernel_source.launch("transpose<true>", (3, 3), (8, 16), x, y, *sizes)
    assert torch.equal(y, x.T)
    with pytest.raises(RuntimeError, match="kernels.cu:22.*put a barrier"):
        kernel_source.launch("transpose<false>", (3, 3), (8, 16), x, y, *sizes)


def test_lanes_exchange_values(kernel_source):
    x = torch.randint(0, 100, (64,), dtype=torch.int32)
    y = torch.empty(6, 64, dtype=torch.int32)
    kernel_source.launch("lanes", 1, 64, x, y)
    warps = x.view(2, 32)
    assert torch.equal(y[0].view(2, 32), warps.sum(1, keepdim=True).expand(2, 32).int())
    assert torch.equal(y[1].view(2, 32), warps.cumsum(1).int())
    assert torch.equal(y[2].view(8, 8), x.view(8, 8).sum(1, keepdim=True).expand(8, 8).int())
    assert torch.equal(y[3].view(2, 32)[:, 0], (warps % 2).sum(1).int())
    assert torch.equal(y[4].view(2, 32)[:, 0], (warps == 7).any(1).int() * 2 + 1)
    halves = y[5].view(2, 2, 16)
    assert torch.equal(halves[:, 0].view(2, 8, 2), warps[:, :16].reshape(2, 8, 2).flip(2))
    upper = warps[:, 16:] % 4
    assert torch.equal(halves[:, 1], (upper[:, :, None] == upper[:, None, :]).sum(2).int())


@pytest.mark.parametrize("threads", [32, 1024])
def test_block_reduction(kernel_source, threads):
    x = torch.randn(5000)
    y = torch.zeros((), dtype=torch.float64)
    kernel_source.launch("total", 1, threads, x, y, np.int32(5000))
    assert y.item() == pytest.approx(x.double().sum().item(), rel=1e-12)


def test_atomics_and_counting_barriers(kernel_source):
    x = torch.randint(0, 16, (3000,), dtype=torch.int32)
    count, total = torch.zeros(16, dtype=torch.int32), torch.zeros(())
    extremes = torch.tensor([-1, 99, 0, 0], dtype=torch.int32)
    kernel_source.launch("histogram", 3, 96, x, count, extremes, total, np.int32(3000), shared=64)
    assert torch.equal(count, torch.bincount(x, minlength=16).int())
    assert extremes.tolist()[:3] == [x.max(), x.min(), 48]
    assert extremes[3] in (1, 2, 3) and total == 1500


def test_dynamic_shared_memory_above_48_kb(kernel_source):
    x = torch.randn(10000, dtype=torch.float64)
    y = torch.empty_like(x)
    kernel_source.launch("reverse", 1, 64, x, y, shared=80000)
    assert torch.equal(y, x.flip(0))


def test_shared_memory_that_nobody_has_written_is_not_read(kernel_source):
    with pytest.raises(RuntimeError, match="unwritten at kernels.cu.*shared memory, which nobody"):
        kernel_source.launch("unwritten", 3, 1, torch.zeros(2), shared=16)


def test_sixteen_bit_floats_round_as_torch_does(kernel_source):
    bits = torch.randint(-(2**31), 2**31 - 1, (20000,), dtype=torch.int32).view(torch.float32)
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 65504, 65519, 65520, 6.1e-5])
    tiny = torch.tensor([1, 2, 3, 4, 5, 6, 7]) * 2.0**-26  # ties among the smallest halves
    x = torch.cat([bits, torch.randn(5000), torch.randn(5000) * 1e-5, special, tiny])
    y, z = torch.empty_like(x), torch.empty_like(x)
    kernel_source.launch("halves", 1, 32, x, y, z, np.int32(x.numel()))
    torch.testing.assert_close(y, x.half().float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(z, x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("divergent", (), "waits for other lanes of its warp"),
        ("missing_lane", (), "waits for other lanes of its warp"),
        ("early_exit", (np.int32(5),), "which have ended: let them reach it"),
    ],
)
def test_who_waits_for_nobody_is_told_where(kernel_source, name, args, said):
    with pytest.raises(RuntimeError, match=rf"{name} at kernels.cu:\d+, block .*{said}"):
        kernel_source.launch(name, 2, 32, torch.zeros(32), *args)


X = torch.zeros(1)


@pytest.mark.parametrize(
    ("name", "grid", "block", "args", "kind", "message"),
    [
        ("nothing", 1, 1, (X,), ValueError, "no kernel 'nothing'; it has scale"),
        ("scale<float>", 1, 1, (X,), ValueError, "template arguments are wrong"),
        ("only_elsewhere", 1, 1, (X,), ValueError, "guard such as __CUDA_ARCH__"),
        ("unwritten", 1, 1, (3,), TypeError, r"argument 3 is a int.*np\.int32"),
        ("unwritten", 1, 1, (X, 0.5), TypeError, "argument 0.5 is a float"),
        ("unwritten", 1, 1, (np.int32(3),), ValueError, "its tensors are on no device"),
        ("unwritten", 1, 1, (torch.zeros(1, device="meta"),), ValueError, "on meta"),
        ("unwritten", 1, 1, (X, torch.zeros(1, device="meta")), ValueError, "on cpu, meta"),
        ("early_exit", 1, 1, (X,), TypeError, "got 1 arguments, expected 2"),
        ("early_exit", 1, 1, (X, np.int64(1)), TypeError, "int64 .*takes an integer of 4 bytes"),
        ("scale<float, 1>", 1, 1, (X, X, np.int32(1), np.int32(1)), TypeError, "a float of 4"),
        ("early_exit", 1, 1, (X, X), TypeError, "argument 1 is memory"),
        ("unwritten", 0, 1, (X,), ValueError, "grid 0 is outside"),
        ("unwritten", (1, 65536), 1, (X,), ValueError, "grid .* is outside"),
        ("unwritten", 1, 1025, (X,), ValueError, "block 1025 is outside"),
        ("unwritten", 1, (32, 33), (X,), ValueError, "over 1024 threads"),
        ("unwritten", 1, (1, 1, 1, 1), (X,), ValueError, "block .* is outside"),
    ],
)
def test_wrong_calls_are_refused(kernel_source, name, grid, block, args, kind, message):
    with pytest.raises(kind, match=message):
        kernel_source.launch(name, grid, block, *args)


def test_wrong_shared_size_is_refused(kernel_source):
    with pytest.raises(ValueError, match="shared = 300000 is outside"):
        kernel_source.launch("unwritten", 1, 1, torch.zeros(2), shared=300_000)
    with pytest.raises(ValueError, match="on no device"):
        kernel_source.launch("unwritten", 1, 1)


def test_compile_error_names_file_and_line(tmp_path):
    path = tmp_path / "broken.cu"
    path.write_text("__global__ void f(float* x) {\n    *x = undefined_name;\n}\n")
    for compile_it in (
        lambda: cuda.Source(path).launch("f", 1, 1, torch.zeros(1)),
        lambda: cuda.Source(path).cubin(["f"], "sm_90"),
    ):
        with pytest.raises(RuntimeError, match=rf"{path}:2: .*undefined_name"):
            compile_it()


def test_without_papergpu_it_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "papergpu.cuda", None)
    path = tmp_path / "alone.cu"
    path.write_text("__global__ void f(float* x) { *x = 1; }\n")
    with pytest.raises(RuntimeError, match="alone.cu: no GPU is here.*papergpu executes"):
        cuda.Source(path).launch("f", 1, 1, torch.zeros(1))


@pytest.mark.parametrize(("target", "expected"), [("sm_80", 0), ("sm_90", 1), ("sm_100", 1)])
def test_the_environment_names_the_architecture(tmp_path, monkeypatch, target, expected):
    monkeypatch.setenv("PAPERGPU_TARGET", target)
    path = tmp_path / f"{target}.cu"
    path.write_text("__global__ void f(int* y) { *y = __CUDA_ARCH__ >= 900; }\n")
    y = torch.full((1,), 7, dtype=torch.int32)
    cuda.Source(path).launch("f", 1, 1, y)
    assert y == expected


def test_settings_hold_and_listeners_hear_each_launch_once(kernel_source):
    heard = []
    x = torch.arange(4, dtype=torch.float32)
    with papergpu.on_launch(heard.append), papergpu.settings(profile=True, schedule="far", seed=5):
        kernel_source.launch("scale<float, 1>", 2, 64, x, x.clone(), np.float32(2), np.int32(4))
    kernel_source.launch("scale<float, 1>", 2, 64, x, x.clone(), np.float32(2), np.int32(4))
    [one] = heard
    assert (one.name, one.grid, one.block) == ("scale<float, 1>", (2, 1, 1), (64, 1, 1))
    assert (one.settings.schedule, one.settings.seed) == ("far", 5)
    assert one.result.counts["lanes"].sum() > 0
    y = torch.zeros(2, dtype=torch.int32)
    with papergpu.on_launch(heard.append):
        kernel_source.launch("neighbours", 2, 1, y)  # a cluster by the kernel's own attribute
        kernel_source.launch("neighbours", 2, 1, y, cluster=2)
    assert y.tolist() == [10, 0] and len(heard) == 3


def test_memory_that_nobody_wrote_is_known_by_its_elements(kernel_source):
    x, y = papergpu.unwritten(torch.empty(9)), torch.zeros(9)
    ends = x[2:5], x[5:]  # views of one storage, each with its own part
    kernel_source.launch("scale<float, 1>", 1, 32, y, ends[0], np.float32(1), np.int32(3))
    kernel_source.launch("scale<float, 1>", 1, 32, ends[0], y, np.float32(1), np.int32(3))
    for view, thread in ((x, 0), (ends[1], 0), (x[3:], 2)):
        says = rf"scale.*thread \({thread}, 0, 0\): reads .* argument 0 \(float32, {len(view)}\)"
        with pytest.raises(RuntimeError, match=says):
            kernel_source.launch(
                "scale<float, 1>", 1, 32, view, y, np.float32(1), np.int32(len(view))
            )
    with pytest.raises(TypeError, match="takes an integer of 4 bytes"):
        kernel_source.launch("early_exit", 1, 1, y, x)
    kernel_source.launch("scale<float, 1>", 1, 32, x.fill_(1), y, np.float32(1), np.int32(9))
    assert y.sum() == 9


def test_marked_memory_ends_where_its_view_does(kernel_source):
    x, y = papergpu.unwritten(torch.empty(64))[:8], torch.ones(64)
    with pytest.raises(RuntimeError, match="writes 4 bytes at byte 32 of argument 1"):
        kernel_source.launch("scale<float, 1>", 1, 32, y, x, np.float32(1), np.int32(9))


def test_options_reach_both_compilers_and_key_the_cache(tmp_path):
    path = tmp_path / "option.cu"
    path.write_text("__global__ void f(float* x) { *x = VALUE; }\n")
    x = torch.zeros(1)
    for value in (3, 4):
        cuda.Source(path, [f"-DVALUE={value}"]).launch("f", 1, 1, x)
        assert x == value
    path.write_text("__global__ void f(float* x) { *x = VALUE + 1; }\n")
    cuda.Source(path, ["-DVALUE=4"]).launch("f", 1, 1, x)
    assert x == 5
    assert cuda.Source(path, ["-DVALUE=4"]).cubin(["f"], "sm_90")[0]


def test_observer_sees_the_launch_and_nothing_runs(kernel_source, monkeypatch):
    seen = []
    monkeypatch.setattr(cuda, "observer", lambda *call: seen.append(call))
    y = torch.zeros(2)
    kernel_source.launch("only_elsewhere", 3, (4, 2), y, shared=8)
    assert seen == [(kernel_source, "only_elsewhere", (3, 1, 1), (4, 2, 1), (y,), 8)]
    with pytest.raises(TypeError, match="a int"):
        kernel_source.launch("only_elsewhere", 3, 4, 5)


# The GPU path: cuda-core compiles for real, and what would need a GPU is noted instead.


class OnGPU(torch.Tensor):
    """A tensor that says it lies on the fourth GPU."""

    device = property(lambda self: torch.device("cuda", 3))

    @classmethod
    def make_zeros(cls, *size: int) -> OnGPU:
        return torch.zeros(size).as_subclass(cls)


class Machine:
    """A GPU of sm_90 as cuda-core and torch show it; `calls` is what it was asked to do."""

    def __init__(self, monkeypatch) -> None:
        self.calls: list[tuple] = []
        self.most_shared = 200_000
        self.sizes = (8, 8, 8, 4, 8)  # of a kernel's parameters
        self.refusal: Exception | None = None
        core = importlib.import_module("cuda.core")
        fake = SimpleNamespace(
            Device=lambda index: SimpleNamespace(
                set_current=lambda: self.calls.append(("current", index))
            ),
            LaunchConfig=self.make_config,
            Program=lambda *args: SimpleNamespace(
                compile=lambda *rest, **named: self.load_program(
                    core.Program(*args), *rest, **named
                )
            ),
            ProgramOptions=core.ProgramOptions,
            Stream=core.Stream,
            launch=self.launch_kernel,
        )
        driver = SimpleNamespace(
            CUdevice=lambda index: f"device {index}",
            CUfunction_attribute=SimpleNamespace(
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic shared"
            ),
            cuKernelSetAttribute=self.set_attribute,
        )
        streams = {3: 0x7654321076543210}
        monkeypatch.setattr(cuda, "_core", lambda: fake)
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
        monkeypatch.setattr(torch.cuda, "device", self.enter_device)
        monkeypatch.setattr(
            torch.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=streams[index])
        )

    def make_config(self, *, grid, block, shmem_size, cluster=None) -> SimpleNamespace:
        return SimpleNamespace(grid=grid, block=block, shmem_size=shmem_size, cluster=cluster)

    @contextmanager
    def enter_device(self, index: int) -> Iterator[None]:
        self.calls.append(("enter", index))
        yield
        self.calls.append(("leave", index))

    def load_program(self, program, *args, **named):
        code = program.compile(*args, **named)
        assert code.code[:4] == b"\x7fELF"
        sizes = [SimpleNamespace(size=size) for size in self.sizes]
        self.calls.append(("compile", *code.symbol_mapping))
        return SimpleNamespace(
            get_kernel=lambda name: SimpleNamespace(handle=name, arguments_info=sizes)
        )

    def set_attribute(self, attribute, value, kernel, device):
        self.calls.append((attribute, value, kernel, device))
        return (0 if value <= self.most_shared else SimpleNamespace(name="CUDA_ERROR_INVALID"),)

    def launch_kernel(self, stream, config, kernel, *args):
        if self.refusal:
            raise self.refusal
        self.calls.append(("launch", stream.__cuda_stream__()[1], config, kernel.handle, *args))


@pytest.fixture
def gpu(monkeypatch):
    caches = (cuda._compile, cuda._config, cuda._gpu_kernel, cuda._stream)
    for each in caches:
        each.cache_clear()
    yield Machine(monkeypatch)
    for each in caches:
        each.cache_clear()


NINE = np.int64(-9)


def launch_on_gpu(source: cuda.Source, *, grid=1, n=NINE, **named) -> tuple[OnGPU, ...]:
    tensors = tuple(OnGPU.make_zeros(4) for _ in range(3))
    source.launch("stream_float4<Triad>", grid, (4, 5, 6), *tensors, np.float32(0.5), n, **named)
    return tensors


def test_gpu_launch_hands_cuda_core_what_it_expects(gpu):
    tensors = launch_on_gpu(cuda.Source(stream.KERNELS.path), grid=(2**31 - 1, 2, 3))
    *_, launched, left = gpu.calls
    assert gpu.calls[0] == ("compile", "stream_float4<Triad>")
    assert gpu.calls[-4:-2] == [("enter", 3), ("current", 3)] and left == ("leave", 3)
    what, handle, config, kernel, *values = launched
    assert (what, handle, kernel) == ("launch", 0x7654321076543210, "stream_float4<Triad>")
    assert (config.grid, config.block) == ((2**31 - 1, 2, 3), (4, 5, 6))
    assert (config.cluster, config.shmem_size) == (None, 0)
    assert values == [*(t.data_ptr() for t in tensors), 0.5, -9]
    assert [type(v) for v in values] == [int, int, int, np.float32, np.int64]


def test_gpu_kernel_is_compiled_once_and_by_device(gpu):
    source = cuda.Source(stream.KERNELS.path)
    launch_on_gpu(source)
    launch_on_gpu(source, grid=2)
    launch_on_gpu(cuda.Source(stream.KERNELS.path))
    assert [call[0] for call in gpu.calls].count("compile") == 1
    launch_on_gpu(cuda.Source(stream.KERNELS.path, ["-DX=1"]))
    assert [call[0] for call in gpu.calls].count("compile") == 2
    cuda._gpu_kernel(source.path, source.path.read_text(), (), "stream_float4<Triad>", 1)
    assert gpu.calls[-2:] == [("current", 1), ("leave", 1)]


def test_gpu_tensor_maps_are_handed_over_as_they_are(gpu):
    class TensorMapDescriptor:
        """Stands in for cuda-core's, which takes a GPU to make."""

    gpu.sizes = (8, 128)
    tensor, tensor_map = OnGPU.make_zeros(4), TensorMapDescriptor()
    source = cuda.Source(stream.KERNELS.path)
    source.launch("stream_bulk<Copy>", 1, 160, tensor, tensor_map)
    launched = gpu.calls[-2]
    assert launched[0] == "launch" and launched[-2:] == (tensor.data_ptr(), tensor_map)
    with pytest.raises(TypeError, match=r"\('V128', 'P8'\) for parameters \('\?8', '\?128'\)"):
        source.launch("stream_bulk<Copy>", 1, 160, tensor_map, tensor)


def test_gpu_arguments_unlike_the_parameters_are_refused(gpu):
    with pytest.raises(TypeError, match=r"'i4'\) for parameters .*'\?8'\)"):
        launch_on_gpu(cuda.Source(stream.KERNELS.path), n=np.int32(9))
    assert not any(call[0] == "launch" for call in gpu.calls)


def test_gpu_kernel_is_allowed_the_shared_memory_it_asks_for(gpu):
    source = cuda.Source(stream.KERNELS.path)
    for shared in (0, 98_304, 65_536, 98_304):
        launch_on_gpu(source, shared=shared)
    asked = [call for call in gpu.calls if call[0] == "dynamic shared"]
    assert asked == [("dynamic shared", 98_304, "stream_float4<Triad>", "device 3")]
    launches = [call[2].shmem_size for call in gpu.calls if call[0] == "launch"]
    assert launches == [0, 98_304, 65_536, 98_304]
    with pytest.raises(RuntimeError, match="shared 220000: .* refused: CUDA_ERROR_INVALID"):
        launch_on_gpu(source, shared=220_000)


def test_gpu_clusters_divide_the_grid(gpu, monkeypatch):
    source = cuda.Source(stream.KERNELS.path)
    launch_on_gpu(source, grid=(8, 6), cluster=(4, 2))
    config = next(call[2] for call in gpu.calls if call[0] == "launch")
    assert (config.grid, config.cluster) == ((2, 3, 1), (4, 2, 1))  # as cuda-core counts: clusters
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace(__version__="0.3.2"))
    with pytest.raises(RuntimeError, match="clusters need cuda-core 0.4 or later, this is 0.3.2"):
        launch_on_gpu(source, grid=2, cluster=2)


def test_gpu_failure_names_the_kernel_and_its_launch(gpu):
    gpu.refusal = OSError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many")
    wanted = r"stream.cu: stream_float4<Triad>: grid \(1, 1, 1\), block \(4, 5, 6\).*OUT_OF_RES"
    with pytest.raises(RuntimeError, match=wanted):
        launch_on_gpu(cuda.Source(stream.KERNELS.path))


@pytest.mark.parametrize(
    ("grid", "cluster", "message"),
    [
        (8, 16, r"cluster 16 is outside 1\.\.\(8, 8, 8\)"),
        (64, (4, 4), "cluster .* is over 8 blocks"),
        (9, 2, "grid 9 is no multiple of cluster 2; round it up"),
    ],
)
def test_clusters_that_cannot_be_are_refused(kernel_source, grid, cluster, message):
    with pytest.raises(ValueError, match=message):
        kernel_source.launch("unwritten", grid, 1, torch.zeros(2), shared=16, cluster=cluster)


def test_the_blocks_of_a_cluster_read_each_other(kernel_source):
    y = torch.zeros(6, dtype=torch.int32)
    kernel_source.launch("neighbours", 6, 1, y, cluster=2)
    assert y.tolist() == [10, 0, 10, 0, 10, 0]


def test_older_and_missing_cuda_core(monkeypatch):
    cuda._core.cache_clear()
    old = SimpleNamespace(Program=object)
    monkeypatch.setitem(sys.modules, "cuda.core", SimpleNamespace(__version__="0.3.2"))
    monkeypatch.setitem(sys.modules, "cuda.core.experimental", old)
    assert cuda._core() is old
    cuda._core.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.core.experimental", None)  # an import of it fails
    with pytest.raises(RuntimeError, match="needs cuda-core: pip install cuda-core 'cuda-b"):
        cuda._core()


def test_missing_nvrtc_is_one_clear_error(tmp_path, monkeypatch):
    def miss_nvrtc(*_):
        raise OSError('Failure finding "libnvrtc.so":\n  No such file\n  listdir("/usr/lib")')

    core = SimpleNamespace(ProgramOptions=dict, Program=miss_nvrtc)
    monkeypatch.setattr(cuda, "_core", lambda: core)
    path = tmp_path / "f.cu"
    path.write_text("__global__ void f(float* x) {}\n")
    wanted = r"^f\.cu: NVRTC: Failure .*nvrtc.so\":; pip install cuda-core .*nvrtc==1\d\.\*'$"
    with pytest.raises(RuntimeError, match=wanted):
        cuda.Source(path).cubin(["f"], "sm_90")


@pytest.mark.exhaustive("a process of its own for one line")
def test_cpu_launches_leave_cuda_core_alone(kernel_source):
    code = (
        "import sys, torch; from snippets import cuda; x = torch.ones(1, dtype=torch.float64);"
        f"cuda.Source({str(kernel_source.path)!r})"
        ".launch('reverse', 1, 64, x.expand(10000).contiguous(),"
        "torch.empty(10000, dtype=torch.float64), shared=80000);"
        "assert not [m for m in sys.modules if m.startswith('cuda.core')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_unknown_options_are_refused(tmp_path):
    path = tmp_path / "f.cu"
    path.write_text("__global__ void f(float* x) { *x = 1; }\n")
    with pytest.raises(ValueError, match=r"f.cu: options \('--no_such=1',\): .*no_such"):
        cuda.Source(path, ["--no_such=1"]).cubin(["f"], "sm_90")
    few = cuda.Source(path, ["--maxrregcount=32", "--use_fast_math", "-UNDEBUG"])
    assert few.cubin(["f"], "sm_90")[0][:4] == b"\x7fELF"


# STREAM


def seed_generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def case_is_of(variant, case) -> bool:
    """Whether a case is meant for a variant of ours; others take the four operations."""
    name = next((name for name, one in cases.VARIANTS.items() if one is variant), None)
    return name in case["variants"] if name and "variants" in case else case["op"] in stream.OPS


def failing_cases(variant, op: str = "") -> Iterator[dict]:
    """The cases in which a variant is not what torch computes, or changes its inputs.

    Bit for bit, except that a triad may round a product that torch keeps whole, or keep it whole
    where torch rounds it: then a unit of a result below 8.
    """
    of = [c for c in cases.CASES if op in c["op"] and case_is_of(variant, c)]
    for i, case in enumerate(of):
        arguments = cases.inputs(case, "cpu", seed_generator(i))
        before = [x.clone() if isinstance(x, torch.Tensor) else x for x in arguments]
        expected = cases.library(*arguments)
        out = variant(*arguments)
        slack = 2**-20 if case["op"] == "triad" else 0
        same = out.shape == expected.shape and torch.allclose(out, expected, rtol=0, atol=slack)
        tensors = [pair for pair in zip(arguments, before, strict=True) if torch.is_tensor(pair[0])]
        if not same or not all(torch.equal(now, then) for now, then in tensors):
            yield case


@pytest.fixture
def poisoned_outputs(monkeypatch):
    """Outputs begin as NaN, so that an element nobody wrote shows."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **kw: empty(*size, **kw).fill_(torch.nan))


@pytest.mark.parametrize("name", ["float", "float4", "bulk copy"])
def test_stream_is_torch_in_every_case(poisoned_outputs, name):
    assert list(failing_cases(cases.VARIANTS[name])) == []


def test_stream_reference_is_torch_in_float64():
    for i, case in enumerate(cases.CASES):
        arguments = cases.inputs(case, "cpu", seed_generator(i))
        doubled = [x.double() if isinstance(x, torch.Tensor) else x for x in arguments]
        assert torch.equal(cases.reference(*arguments), cases.library(*doubled))
        assert cases.reference(*arguments).dtype == torch.float64


def test_stream_cases_cover_every_operation_and_alignment():
    for op in stream.OPS:
        assert {c.get("offset", 0) % 4 for c in cases.CASES if c["op"] == op} - {0}
        assert [c["n"] for c in cases.TIMED if c["op"] == op][0] == 2**28
    assert cases.cost({"op": "triad", "n": 10}) == {"flops": 20}


def edit_stream_source(tmp_path: Path, *edits: tuple[str, str]) -> cuda.Source:
    text = stream.KERNELS.path.read_text()
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (tmp_path / "stream.cu").write_text(text)
    return cuda.Source(tmp_path / "stream.cu")


@pytest.mark.parametrize(
    ("name", "op", "old", "new"),
    [
        ("float4", "copy", "n, thread_of_grid()", "n, thread_of_grid() + 1"),
        ("float4", "copy", "tile += gridDim.x", "tile += 1 << 30"),
    ],
)
def test_stream_cases_reject_kernels_wrong_where_tiles_outnumber_blocks(
    poisoned_outputs, tmp_path, monkeypatch, name, op, old, new
):
    monkeypatch.setattr(stream, "KERNELS", edit_stream_source(tmp_path, (old, new)))
    run = stream._run  # with fewer blocks than tiles, as on a GPU in the largest case
    monkeypatch.setattr(stream, "_run", lambda *args, **kw: run(*args, **{**kw, "waves": 8}))
    assert any(failing_cases(cases.VARIANTS[name], op))


# The ring of bulk copies, whose copies land as late as it allows.


@pytest.mark.parametrize(
    ("op", "old", "new"),
    [
        ("copy", "bulk_store_wait_read<LAG>()", "bulk_store_wait_read<LAG + 1>()"),
        ("scale", "            fence_copies();\n", ""),
        ("triad", "k - LAG + SLOTS < own", "k - LAG + SLOTS < own - 1"),
        ("scale", "k / SLOTS & 1", "k / (SLOTS + 1) & 1"),
    ],
    ids=["slot-reused-early", "store-without-a-fence", "tile-not-loaded", "wrong-parity"],
)
def test_ring_with_a_broken_protocol_is_rejected(
    poisoned_outputs, tmp_path, monkeypatch, op, old, new
):
    monkeypatch.setattr(stream, "KERNELS", edit_stream_source(tmp_path, (old, new)))
    try:
        assert any(failing_cases(stream.bulk_copies, op))
    except RuntimeError as error:
        assert "stream_bulk" in str(error) and "stream.cu:" in str(error)


@pytest.mark.parametrize(
    ("arch", "kernels"),
    [
        ("sm_80", ("stream_float", "stream_float4")),
        ("sm_90", ("stream_float", "stream_float4", "stream_bulk")),
        ("sm_100", ("stream_float", "stream_float4", "stream_bulk")),
    ],
)
def test_stream_compiles_ahead_of_time(arch, kernels):
    names = [f"{kernel}<{op}>" for kernel in kernels for op in ("Copy", "Triad")]
    code, symbols = stream.KERNELS.cubin(names, arch)
    assert code[:4] == b"\x7fELF" and list(symbols) == names
    for name, symbol in symbols.items():
        assert name.partition("<")[0] in symbol and symbol.encode() in code
    with pytest.raises(ValueError, match="no kernel 'stream_nothing'"):
        stream.KERNELS.cubin(["stream_nothing"], arch)


def test_bulk_copies_are_for_what_has_them(monkeypatch):
    monkeypatch.setenv("PAPERGPU_TARGET", "sm_80")
    with pytest.raises(ValueError, match="guard such as __CUDA_ARCH__"):
        stream.bulk_copies("copy", torch.zeros(100), None, 1.0)
    assert cases.NEEDS["variants"]["bulk copy"]["sm"] == ">=90"


def test_demo_finds_no_wrong_element(capsys):
    stream.demo("cpu")
    first = capsys.readouterr().out
    stream.demo("cpu")
    assert capsys.readouterr().out == first
    assert len(first.splitlines()) == 4
    assert all(line.endswith("wrong elements: 0") for line in first.splitlines())


@pytest.mark.parametrize(
    "path",
    exhaustive(sorted(Path(cuda.__file__).parent.glob("*/*.cu")), "a second compiler"),
    ids=lambda path: path.stem,
)
def test_nvcc_takes_each_file_as_it_is(path, tmp_path):
    """The line that stands below each listing, for an architecture that need not be here."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("there is no nvcc")
    command = [nvcc, "-std=c++17", "-arch=sm_90a", "-c", path.name, "-o", str(tmp_path / "x.o")]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr

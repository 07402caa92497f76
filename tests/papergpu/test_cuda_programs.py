"""Whole CUDA programs, compiled by nvcc and run in a process of their own. Takes 20 s."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from marks import exhaustive
from papergpu import toolkit
from papergpu.errors import Unavailable

try:
    toolkit.find_nvcc()
except Unavailable as error:
    pytest.skip(str(error), allow_module_level=True)

SCRIPTS = Path(toolkit.__file__).parents[1]
# Everything that a program does with its device, once.
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#define OK(call) if (cudaError_t e = call) printf("%s: %s\n", #call, cudaGetErrorName(e)), exit(3)

__constant__ float scale[2];
__device__ int counter;
__managed__ int kept = 40;

template <class T> __global__ void axpb(T* y, const T* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = scale[0] * x[i] + scale[1], atomicAdd(&counter, 1);
    if (!i) printf("axpb of %d\n", n);
}
__global__ void add(int* at, int value) { atomicAdd(at, value); }
__global__ void wait_for_all(int* at) {
    atomicAdd(at, 1);
    cooperative_groups::this_grid().sync();
    if (!threadIdx.x && *(volatile int*)at != gridDim.x * blockDim.x) atomicAdd(at, 1000);
}
__global__ void rank(unsigned* at) {
    if (!threadIdx.x) at[blockIdx.x] = cooperative_groups::this_cluster().block_rank();
}
__global__ void reversed(int* at) {
    extern __shared__ int held[];
    held[threadIdx.x] = at[threadIdx.x];
    __syncthreads();
    at[threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

int main(int argc, char** argv) {
    const int n = 1000;
    printf("begins with %s\n", argc > 1 ? argv[1] : "nothing");
    std::vector<float> host(n);
    for (int i = 0; i < n; ++i) host[i] = i;
    float *x, *y, given[2] = {2, 1};
    OK(cudaMalloc(&x, n * sizeof(float)));
    OK(cudaMalloc(&y, n * sizeof(float)));
    OK(cudaMemcpyToSymbol(scale, given, sizeof given));
    cudaStream_t s, other;
    cudaEvent_t begin, end;
    OK(cudaStreamCreate(&s)); OK(cudaStreamCreate(&other));
    OK(cudaEventCreate(&begin)); OK(cudaEventCreate(&end));
    OK(cudaMemcpyAsync(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice, s));
    OK(cudaEventRecord(begin, s));
    axpb<<<(n + 255) / 256, 256, 0, s>>>(y, x, n);
    OK(cudaEventRecord(end, s));
    OK(cudaMemcpyAsync(host.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost, s));
    OK(cudaStreamSynchronize(s));
    float ms;
    OK(cudaEventElapsedTime(&ms, begin, end));
    int count;
    OK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
    printf("%g %g, %d elements, time passed: %d\n", host[1], host[n - 1], count, ms > 0);

    add<<<1, 2>>>(&kept, 1);
    OK(cudaDeviceSynchronize());
    printf("kept %d\n", kept);

    int *d, *pinned;
    OK(cudaMalloc(&d, 512)); OK(cudaHostAlloc(&pinned, 512, 0));
    OK(cudaMemset(d, 0, 512));
    cudaGraph_t graph; cudaGraphExec_t ready;
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    add<<<1, 32, 0, s>>>(d, 1);
    OK(cudaEventRecord(begin, s)); OK(cudaStreamWaitEvent(other, begin, 0));
    add<<<1, 1, 0, other>>>(d, 100);
    OK(cudaEventRecord(end, other)); OK(cudaStreamWaitEvent(s, end, 0));
    OK(cudaStreamEndCapture(s, &graph));
    OK(cudaGraphInstantiate(&ready, graph, 0));
    for (int k = 0; k < 3; ++k) OK(cudaGraphLaunch(ready, s));
    OK(cudaMemcpy(pinned, d, 4, cudaMemcpyDefault));
    printf("graph %d\n", *pinned);

    OK(cudaMemset(d, 0, 512));
    void* args[] = {&d};
    OK(cudaLaunchCooperativeKernel((void*)wait_for_all, dim3(4), dim3(64), args));
    OK(cudaMemcpy(&count, d, 4, cudaMemcpyDeviceToHost));
    printf("together %d\n", count);

    cudaLaunchConfig_t how{};
    how.gridDim = 4, how.blockDim = 32;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = 2, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    how.attrs = &cluster, how.numAttrs = 1;
    OK(cudaLaunchKernelEx(&how, rank, (unsigned*)d));
    unsigned ranks[4];
    OK(cudaMemcpy(ranks, d, 16, cudaMemcpyDeviceToHost));
    printf("ranks %u %u %u %u\n", ranks[0], ranks[1], ranks[2], ranks[3]);

    std::vector<int> page(2048, 7);
    int* there;
    OK(cudaHostRegister(page.data(), page.size() * 4, 0));
    OK(cudaHostGetDevicePointer((void**)&there, page.data(), 0));
    add<<<1, 1>>>(there + 5, 1);
    OK(cudaDeviceSynchronize());
    OK(cudaHostUnregister(page.data()));
    printf("registered %d %d\n", page[5], page[6]);

    char rows[3][8] = {"one", "two", "six"}, back[3][4];
    char* pitched; size_t pitch;
    OK(cudaMallocPitch(&pitched, &pitch, 8, 3));
    OK(cudaMemcpy2D(pitched, pitch, rows, 8, 8, 3, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, 4, pitched, pitch, 4, 3, cudaMemcpyDeviceToHost));
    printf("rows %s %s %s\n", back[0], back[1], back[2]);

    cudaFuncAttributes of; cudaDeviceProp device; int most;
    OK(cudaFuncGetAttributes(&of, reversed)); OK(cudaGetDeviceProperties(&device, 0));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, reversed, 256, 0));
    OK(cudaFuncSetAttribute(reversed, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000));
    for (int i = 0; i < 128; ++i) pinned[i] = i;
    reversed<<<1, 128, 100000>>>(pinned);
    OK(cudaDeviceSynchronize());
    const int sm = 10 * device.major, threads = of.maxThreadsPerBlock;
    printf("%d threads, %d blocks of sm_%d, %d\n", threads, most, sm, pinned[0]);
    auto call = [](void* said) { printf("%s\n", (char*)said); };
    OK(cudaLaunchHostFunc(s, call, (void*)"called"));

    add<<<1, 2048>>>(d, 1);
    const char* said = cudaGetErrorString(cudaGetLastError());
    printf("%s, then %s\n", said, cudaGetErrorString(cudaGetLastError()));
    OK(cudaFree(x)); OK(cudaFree(nullptr)); OK(cudaFreeHost(pinned));
    return argc > 2 ? atoi(argv[2]) : 0;
}
"""
SAID = """\
begins with words
axpb of 1000
3 1999, 1000 elements, time passed: 1
kept 42
graph 396
together 256
ranks 0 1 0 1
registered 8 7
rows one two six
1024 threads, 8 blocks of sm_90, 127
called
invalid configuration argument, then no error
"""
# Faults by name: what the program does, and what is said of it, with its exit status.
FAULTS = {
    "kernel": ("add<<<1, 64>>>(d + 120, 1);", r"faults\.cu:6: error: .* at byte 512 of "
               r"allocation #1 \(512 bytes\), .*\[add, block \(0, 0, 0\), thread \(8, 0, 0\)\] "
               r"\[bounds\]$"),
    "unwritten": ("int* u; cudaMalloc(&u, 64); add<<<1, 1>>>(u, 1);", r"allocation #2.*written"),
    "freed": ("cudaFree(d); add<<<1, 1>>>(d, 1);",
              r"cu:6: error: changes 4 bytes in allocation #1 \(512 bytes\), which was freed: "),
    "twice": ("cudaFree(d); cudaFree(d);", r"cudaFree: 0x\w+ was freed before; free it once"),
    "copy": ("cudaMemcpy(h, d, 516, cudaMemcpyDeviceToHost);",
             r"cudaMemcpy reads 516 bytes at byte 0 of allocation #1, which has 512; copy less"),
    "gone": ("cudaFree(d); cudaMemset(d, 0, 4);", r"cudaMemset writes allocation #1 after it was"),
    "direction": ("cudaMemcpy(d, h, 4, cudaMemcpyDeviceToHost);", "goes to the host by its kind"),
    "shared": ("add<<<1, 1, 50000>>>(d, 1);", "asks for 50000 bytes of dynamic shared memory"),
    "symbol": ("cudaMemcpyToSymbol(held, h, 12);", "of 12 bytes at byte 0 of held, which has 8"),
    "early": ("int* m; cudaMallocManaged(&m, 512); memset(m, 0, 512);"
              "add<<<1, 64>>>(m, 1); m[3]++;",
              r"host touches byte 12 of allocation #2, which a stream has changed: wait for it"),
    "async": ("int* p; cudaMallocHost(&p, 512); memset(p, 1, 512); h[0] = p[2];"
              "cudaMemcpyAsync(p, d, 512, cudaMemcpyDeviceToHost, 0); h[0] = p[2];",
              r"host touches byte 8 of allocation #2, which a stream has changed: wait for it"),
    "device": ("h[0] = d[1]; if (cudaGetLastError()) cudaFree(h);",  # which is no call's error
               r"host touches byte 4 of allocation #1, which is on the device: "),
    "later": ("int* p; cudaMallocHost(&p, 512); cudaFreeHost(p); h[0] = p[2];",
              r"host touches 0x\w+, where nothing is allocated, or no longer"),
}  # fmt: skip
FAULTY = r"""#include <cstring>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
__device__ int held[2];
__global__ void add(int* at, int value) { atomicAdd(at + threadIdx.x, value + held[0]); }
int main(int argc, char** argv) {
    static char h[1024];
    int* d;
    cudaMalloc(&d, 512);
    cudaMemset(d, 0, 512);
    switch (atoi(argv[1])) { CASES }
    cudaError_t error = cudaDeviceSynchronize();
    if (argc > 2) puts(cudaGetErrorString(error));
    return error ? 5 : 0;
}
"""


def run_papergpu(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the command line, or another program, with this checkout's package."""
    command = words if words[0].startswith("/") else (sys.executable, "-m", "papergpu", *words)
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS), **more}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of a program that is right."""
    path = tmp_path_factory.mktemp("programs") / "right.cu"
    path.write_text(PROGRAM)
    return path


def test_a_program_runs_as_it_is(program: Path) -> None:
    done = run_papergpu("run", str(program), "words")
    assert done.stdout == SAID, done.stderr
    # A block too large is refused as a GPU refuses it, and is told of as well.
    assert done.returncode == 1 and "more than 1024 threads" in done.stderr
    *_, last = done.stderr.splitlines()
    assert re.fullmatch(r"papergpu: \d+ launches, 0\.\d\d M warp-instructions, 1 finding", last)


ASKS = """
#include <cstdio>
__global__ void fill(int* x) { x[threadIdx.x] = threadIdx.x; }
int main() {
    cudaDeviceProp p;
    int *x, blocks, last;
    cudaMalloc(&x, 128), fill<<<1, 32>>>(x), cudaMemcpy(&last, x + 31, 4, cudaMemcpyDefault);
    cudaGetDeviceProperties(&p, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fill, 256, 0);
    printf("%d %d %d %d\\n", p.major, p.maxThreadsPerMultiProcessor, blocks, last);
}
"""


@pytest.mark.parametrize(
    ("target", "says"),
    exhaustive([("sm_120", "12 1536 6 31\n"), ("sm_80", "8 2048 8 31\n")], "both"),
)
def test_the_device_is_the_targets(tmp_path: Path, target: str, says: str) -> None:
    (tmp_path / "asks.cu").write_text(ASKS)
    done = run_papergpu("run", "--target", target, str(tmp_path / "asks.cu"))
    assert (done.stdout, done.returncode) == (says, 0), done.stderr


def test_the_examples_have_the_faults_that_the_readme_shows() -> None:
    readme = (SCRIPTS / "papergpu" / "README.md").read_text()
    shown = re.search(r"reduce\.cu:12: error: .*?\n(?:.*\n)?.*\[bounds\]", readme)
    for name, says in (("reduce.cu", shown and shown[0]), ("double.py", "double.py:14: error: ")):
        done = run_papergpu("run", str(SCRIPTS / "papergpu" / "examples" / name))
        assert says and done.returncode == 1
        assert " ".join(says.split()) in " ".join(done.stderr.split()), done.stderr


WAITS = r"""
#include <cstdio>
#include <cstring>
#include <thread>
__global__ void add(int* at, int value) { at[threadIdx.x] += value; }
__global__ void flag(int* at) { at[threadIdx.x] = 7; __threadfence_system(); }
void tell(void* at) { printf("%d\n", *(int*)at); }
void copy(int* d) {
    int* p;
    cudaMallocHost(&p, 40000);
    for (int k = 0; k < 50; ++k, memset(p, k, 40000))
        cudaMemcpyAsync(p, d, 40000, cudaMemcpyDeviceToHost, 0), cudaStreamSynchronize(0), ++p[k];
}
int main() {
    int *m, *p, *d;
    cudaMallocManaged(&m, 40000), cudaMallocHost(&p, 40000), cudaMalloc(&d, 40000);
    memset(m, 0, 40000), memset(p, 1, 40000), cudaMemset(d, 0, 40000);
    cudaEvent_t e;
    cudaEventCreate(&e);
    add<<<1, 64>>>(m, 1), cudaEventRecord(e), cudaEventSynchronize(e), m[0]++;
    add<<<1, 64>>>(m, 1), m[9000]++;  // which the kernel leaves alone
    cudaMemcpy(d, m, 256, cudaMemcpyDefault), m[1]++;
    std::thread one(copy, d), other(copy, d);
    one.join(), other.join();
    cudaMemcpyAsync(p, d, 256, cudaMemcpyDeviceToHost, 0), p[9000]++;
    cudaLaunchHostFunc(0, tell, p);
    flag<<<1, 64>>>(m);
    while (*(volatile int*)m != 7);  // told while it runs
    printf("%d %d %d %d\n", m[0], m[9000], p[1], p[9000]);
}
"""


def test_a_host_that_waits_is_not_told_of(tmp_path: Path) -> None:
    (tmp_path / "waits.cu").write_text(WAITS)
    done = run_papergpu("run", str(tmp_path / "waits.cu"))
    assert (done.stdout, done.returncode) == ("3\n7 1 2 16843010\n", 0), done.stderr


@pytest.mark.exhaustive("each way to the same runtime")
def test_a_program_of_nvidias_runtime_finds_ours(program: Path, tmp_path: Path) -> None:
    shared = ["-cudart", "shared", "-L", str(toolkit.find_nvcc().parents[1] / "lib")]
    ptx = ["-gencode", "arch=compute_90a,code=compute_90a", "--compress-mode=none"]
    linked = tmp_path / "libcudart.so"
    linked.symlink_to(toolkit.find_nvcc().parents[1] / "lib" / toolkit.RUNTIME)
    made = tmp_path / "made"
    command = [toolkit.find_nvcc(), *ptx, *shared, "-L", tmp_path, program, "-o", made]
    subprocess.run(command, check=True, capture_output=True)
    assert run_papergpu("run", str(made), "words").stdout == SAID


@pytest.mark.exhaustive("each way to the same runtime")
def test_what_nvcc_would_make_runs_by_itself(program: Path, tmp_path: Path) -> None:
    made, part = tmp_path / "made", tmp_path / "part.o"
    done = run_papergpu("nvcc", "-arch=sm_70", "-rdc=true", "-c", str(program), "-o", str(part))
    assert done.returncode == 0, done.stderr
    assert run_papergpu("nvcc", str(part), "-o", str(made)).returncode == 0
    done = run_papergpu(str(made), "words", "4")
    assert done.stdout == SAID and done.returncode == 1


# What a program of the driver's interface does: a module of its own, a tensor map's entry point.
DRIVER = r"""
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
const char* name_of(CUresult error) {
    const char* name;
    return cuGetErrorName(error, &name), name;
}
#define OK(call) if (CUresult e = call) printf("%s: %s\n", #call, name_of(e)), exit(3)
int main(int argc, char** argv) {
    const bool wrong = argc > 2;
    CUdevice device; CUcontext context; CUmodule module; CUfunction twice, other;
    OK(cuInit(0)); OK(cuDeviceGet(&device, 0));
    char name[64]; int major;
    OK(cuDeviceGetName(name, sizeof name, device));
    OK(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    OK(cuCtxCreate(&context, nullptr, 0, device));
    OK(cuModuleLoad(&module, argv[1])); OK(cuModuleGetFunction(&twice, module, "twice"));
    const CUresult unknown = cuModuleGetFunction(&other, module, "thrice");
    printf("%s %d %d %d\n", name, major, cuModuleLoad(&module, "none.ptx"), unknown);

    void *found, *lacking;
    cudaDriverEntryPointQueryResult how;
    const auto find = cudaGetDriverEntryPointByVersion;
    if (find("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &how)) return 4;
    const auto encode = (PFN_cuTensorMapEncodeTiled_v12000)found;
    const int rows = 40, columns = 64;
    std::vector<float> x(rows * columns), y(48 * columns);
    for (int i = 0; i < rows * columns; ++i) x[i] = i;
    CUdeviceptr in, out, scale; size_t bytes; CUstream stream; CUevent begin, end; float ms;
    OK(cuMemAlloc(&in, 4 * x.size())); OK(cuMemAlloc(&out, 4 * y.size()));
    OK(cuStreamCreate(&stream, 0)); OK(cuEventCreate(&begin, 0)); OK(cuEventCreate(&end, 0));
    OK(cuMemcpyHtoDAsync(in, x.data(), 4 * x.size(), stream));
    OK(cuModuleGetGlobal(&scale, &bytes, module, "scale"));
    OK(cuMemsetD32(scale, 0x40000000, bytes / 4));
    CUtensorMap map;
    cuuint64_t sizes[] = {columns, rows}, strides[] = {cuuint64_t(columns * 4 + wrong)};
    cuuint32_t box[] = {32, 16}, steps[] = {1, 1};
    OK(encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)in, sizes, strides, box, steps,
              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    void* given[] = {&map, &out, (void*)&columns};
    OK(cuEventRecord(begin, stream));
    OK(cuLaunchKernel(twice, 2, 3, 1, 128, 1, 1, 0, stream, given, nullptr));
    OK(cuEventRecord(end, stream)); OK(cuStreamSynchronize(stream));
    OK(cuEventElapsedTime(&ms, begin, end));
    OK(cuMemcpyDtoH(y.data(), out, 4 * y.size()));
    int differ = 0;
    for (int i = 0; i < 48 * columns; ++i)
        differ += y[i] != (i < rows * columns ? 2 * x[i] : 0);
    printf("%d differ, %zu bytes\n", differ, bytes);
    OK(cuMemFree(in)); OK(cuMemFree(out)); OK(cuModuleUnload(module)); OK(cuCtxDestroy(context));
    return find("cuGreenCtxCreate", &lacking, 12000, cudaEnableDefault, &how) ? 0 : 6;
}
"""
LOADED = r"""
#include <cuda.h>
#include <cuda/barrier>
namespace cde = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" { __device__ float scale; }
extern "C" __global__ void twice(const __grid_constant__ CUtensorMap in, float* out, int pitch) {
    __shared__ alignas(128) float tile[16][32];
    __shared__ barrier bar;
    if (!threadIdx.x) init(&bar, blockDim.x), cde::fence_proxy_async_shared_cta();
    __syncthreads();
    barrier::arrival_token token;
    if (!threadIdx.x) {
        const int x = blockIdx.x * 32, y = blockIdx.y * 16;
        cde::cp_async_bulk_tensor_2d_global_to_shared(&tile, &in, x, y, bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, sizeof tile);
    } else token = bar.arrive();
    bar.wait(std::move(token));
    out += blockIdx.y * 16 * pitch + blockIdx.x * 32;
    for (int i = threadIdx.x; i < 16 * 32; i += blockDim.x)
        out[i / 32 * pitch + i % 32] = scale * tile[i / 32][i % 32];
}
"""


def test_a_program_of_the_drivers_interface(tmp_path: Path) -> None:
    """What it lacks is refused by its name."""
    made, loaded = tmp_path / "program", tmp_path / "loaded.ptx"
    (tmp_path / "program.cpp").write_text(DRIVER)
    (tmp_path / "loaded.cu").write_text(LOADED)
    for words in (("-ptx", "loaded.cu", "-o", loaded), ("program.cpp", "-lcuda", "-o", made)):
        done = run_papergpu("nvcc", *(str(tmp_path / w if "." in str(w) else w) for w in words))
        assert done.returncode == 0, done.stderr
    done = run_papergpu(str(made), str(loaded))
    assert done.stdout == "papergpu sm_90 9 301 500\n0 differ, 4 bytes\n", done.stderr
    assert "error: cuGreenCtxCreate is not there: papergpu's driver lacks it [host]" in done.stderr
    done = run_papergpu(str(made), str(loaded), "wrong")
    assert "CUDA_ERROR_INVALID_VALUE" in done.stdout and done.returncode == 1
    assert "a tensor map has a stride of 257 bytes in dimension 1: a multiple of 16" in done.stderr


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a fault for each number."""
    cases = " ".join(
        f"case {number}: {{ {text} break; }}" for number, (text, _) in enumerate(FAULTS.values())
    )
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.cu").write_text(FAULTY.replace("CASES", cases))
    made = folder / "faults"
    done = run_papergpu("nvcc", str(folder / "faults.cu"), "-o", str(made))
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize("name", exhaustive(FAULTS, "each fault of a host", 4))
def test_a_fault_is_a_line_and_the_status_1(faulty: Path, name: str) -> None:
    done = run_papergpu(str(faulty), str([*FAULTS].index(name)))
    said, *rest = done.stderr.splitlines()
    assert re.search(FAULTS[name][1], said) and "error: " in said
    assert rest == [line for line in rest if line.startswith("papergpu: ")] and done.returncode == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [([], "no error"), (["--fatal"], "unspecified launch fail.*"), (["--kernel", "x"], "no error")],
)
def test_a_program_goes_on_behind_what_does_not_end_a_launch(
    faulty: Path, options: list[str], said: str
) -> None:
    done = run_papergpu("run", *options, str(faulty), str([*FAULTS].index("unwritten")), "say")
    assert re.fullmatch(said, done.stdout.strip())
    assert ("nobody has written" in done.stderr) == ("x" not in options)


@pytest.mark.parametrize("name", ["report.json", "report.sarif", "report.html"])
def test_a_report_holds_what_was_found(faulty: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert run_papergpu("run", "--report", str(path), str(faulty), "0").returncode == 1
    if name == "report.html":
        text = path.read_text()
        assert "atomicAdd(at + threadIdx.x, value + held[0])" in text
        assert re.search(
            r'<tr class="found"><td colspan="\d+">\S*faults.cu:6: error: changes', text
        )
        return
    found = json.loads(path.read_text())
    if name == "report.json":
        [one] = found["findings"]
        assert found["launches"] == 1 and one["line"] == 6 and one["kernel"] == "add"
        assert one["thread"] == [8, 0, 0] and one["what"].startswith("changes 4 bytes at byte 512")
    else:
        [result] = found["runs"][0]["results"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == (faulty.parent / "faults.cu").as_uri()
        assert place["region"] == {"startLine": 6}


def test_the_action_marks_the_line_of_a_finding(faulty: Path) -> None:
    action = yaml.safe_load((SCRIPTS / "papergpu" / "action.yml").read_text())
    install, run = action["runs"]["steps"]
    assert "pip install" in install["run"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", run["run"]], cwd=faulty.parent, capture_output=True,
        text=True, env={**os.environ, "PATH": path, "RUN": f"--kernel add {faulty} 0"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.startswith("::error file=faults.cu,line=6::changes 4 bytes at byte 512")
    assert "faults.cu:6: error: " in done.stderr and "1 finding" in done.stderr


def test_a_report_that_cannot_be_written_is_a_line(faulty: Path, tmp_path: Path) -> None:
    done = run_papergpu("run", "--report", str(tmp_path / "none" / "r.json"), str(faulty), "0")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "r.json: no report (No such file or directory); name another file" in done.stderr


PRODUCTS = r"""
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cmath>
#include <cstdio>
#define AT(p, i, j, ld, t) float(t ? p[(j) + (i) * ld] : p[(i) + (j) * ld])
template <class T> void product(cublasHandle_t h, cudaDataType type, const char* name) {
    const int m = 5, n = 7, k = 6, batch = 2, ld = 8, stride = 8 * ld;
    T *a, *b, *c;
    for (T** p : {&a, &b, &c}) cudaMallocManaged(p, batch * stride * sizeof(T));
    int wrong = 0;
    for (int ta = 0; ta < 2; ++ta)
        for (int tb = 0; tb < 2; ++tb) {
            for (int i = 0; i < batch * stride; ++i)
                a[i] = T(i % 5 - 2), b[i] = T(i % 3), c[i] = T(i % 4);
            const float alpha = 2, beta = -1;
            wrong += cublasGemmStridedBatchedEx(
                h, cublasOperation_t(ta), cublasOperation_t(tb), m, n, k, &alpha, a, type, ld,
                stride, b, type, ld, stride, &beta, c, type, ld, stride, batch, CUBLAS_COMPUTE_32F,
                CUBLAS_GEMM_DEFAULT);
            for (int x = 0; x < batch; ++x)
                for (int i = 0; i < m; ++i)
                    for (int j = 0; j < n; ++j) {
                        float sum = -float((i + j * ld + x * stride) % 4);
                        for (int q = 0; q < k; ++q)
                            sum += 2 * AT((a + x * stride), i, q, ld, ta)
                                   * AT((b + x * stride), q, j, ld, tb);
                        wrong += float(c[i + j * ld + x * stride]) != sum;
                    }
        }
    printf("%s wrong %d\n", name, wrong);
}
int main(int argc, char**) {
    cublasHandle_t h;
    cublasCreate(&h);
    product<float>(h, CUDA_R_32F, "float");
    product<__half>(h, CUDA_R_16F, "half");
    product<__nv_bfloat16>(h, CUDA_R_16BF, "bfloat16");
    float *x, *y, *bias, alpha = 3, beta = 1, dot;
    for (float** p : {&x, &y, &bias}) cudaMallocManaged(p, 64);
    for (int i = 0; i < 16; ++i) x[i] = i, y[i] = 1, bias[i] = i / 4.f;
    cublasSaxpy(h, 4, &alpha, x, 2, y, -1);
    cublasSdot(h, 4, x, 1, y, 1, &dot);
    printf("%g %g %g %g, %g\n", y[0], y[1], y[2], y[3], dot);
    cublasSgemv(h, CUBLAS_OP_T, 2, 3, &alpha, x, 4, bias, 1, &beta, y, 2);
    printf("%g %g %g\n", y[0], y[2], y[4]);
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t square, row;
    cublasLtEpilogue_t end = CUBLASLT_EPILOGUE_GELU_BIAS;
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &end, sizeof end);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, 2, 2, 2);
    float zero = 0, one = 1;
    cublasLtMatmul(nullptr, desc, &one, x, square, x, square, &zero, y, square, y, square, nullptr,
                   nullptr, 0, 0);
    printf("%.4f %.4f %.4f %.4f\n", y[0], y[1], y[2], y[3]);
    float* unwritten;
    cudaMalloc(&unwritten, 64);
    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, unwritten, 2, x, 2, &zero, y, 2);
    cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 99, &one, x, 2, x, 99, &zero, y, 2);
    cublasSscal(h, 17, &one, y, 1);
}
"""


def test_products_of_cublas_are_right_and_their_operands_checked(tmp_path: Path) -> None:
    (tmp_path / "products.cu").write_text(PRODUCTS)
    made = tmp_path / "products"
    done = run_papergpu(
        "nvcc", str(tmp_path / "products.cu"), "-lcublas", "-lcublasLt", "-o", str(made)
    )
    assert done.returncode == 0, done.stderr
    done = run_papergpu(str(made))
    gelu = [0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))
            for v in (2, 3.25, 6, 11.25)]  # fmt: skip
    assert done.stdout.splitlines() == [
        "float wrong 0", "half wrong 0", "bfloat16 wrong 0",
        "19 13 7 1, 30",
        f"{19 + 3 * 0.25:g} {7 + 3 * 1.25:g} {1 + 3 * 2.25:g}",
        " ".join(f"{v:.4f}" for v in gelu),
    ]  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "error" in line]
    assert (
        "cublasGemm reads A where nobody wrote, in allocation #13 (64 bytes): write it" in said[0]
    )
    assert re.search(
        r"reads A, 2 x 99, 792 bytes from byte 0 of allocation #10 \(64 bytes\)", said[1]
    )
    assert "cublasSscal writes 68 bytes at byte 0 of allocation #11, which has 64" in said[2]
    assert len(said) == 3 and done.returncode == 1


def test_a_program_without_a_fault_says_nothing_and_keeps_its_status(faulty: Path) -> None:
    done = run_papergpu(str(faulty), "99")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_what_cannot_begin_is_a_line_and_the_status_2(tmp_path: Path) -> None:
    done = run_papergpu("run", str(tmp_path / "none.cu"))
    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and "no such program" in line
    bad = tmp_path / "bad.cu"
    bad.write_text("__global__ void f() { undeclared; }\nint main() {}\n")
    done = run_papergpu("run", str(bad))
    assert done.returncode == 2 and 'bad.cu(1): error: identifier "undeclared"' in done.stderr


def test_options_of_architectures_are_ours() -> None:
    given = ["-O3", "-arch", "sm_70", "-gencode=arch=compute_80,code=sm_80", "-dc", "a.cu"]
    command = toolkit.nvcc_command([*given, "-cudart", "static"], "sm_100")
    assert command[1:3] == ["-gencode", "arch=compute_100a,code=compute_100a"]
    assert command[-3:] == ["-O3", "-c", "a.cu"]
    assert "-cudart" in toolkit.nvcc_command(["a.cu"])

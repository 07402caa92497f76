// C = A B of float16 or bfloat16 on the tensor cores of sm_90, with sums in float32.
// The copy engine reads A (M, K) and B (K, N), which lie by rows or by columns as their
// maps say. C (M, N) is dense, by rows.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Index = long long;  // M * N may pass 2**31

// A block's tile is ROWS x COLUMNS, half of the rows for each of two warpgroups; slabs
// are DEPTH deep: 128 bytes, what one line of the swizzle spans.
constexpr int ROWS = 128, COLUMNS = 256, DEPTH = 64, LINE = 128, GROUP = 128;
constexpr unsigned LEFT = ROWS * LINE, RIGHT = COLUMNS * LINE;  // bytes of a slab
constexpr unsigned WAY_OUT = 8 * 16 * LINE;  // bytes in which 8 warps turn their sums

struct Corner {
    int row, column;
};

// Tiles, of so many rows, are numbered down groups of 16 times ROWS: 132 that run
// together then read about as many rows of A as columns of B, and share them in the L2.
template <int TALL = ROWS>
__device__ Corner corner_of(int tile, int M, int N) {
    constexpr int HIGH = 16 * ROWS / TALL;
    const int down = (M + TALL - 1) / TALL, across = (N + COLUMNS - 1) / COLUMNS;
    const int group = tile / (HIGH * across), first = HIGH * group;
    const int height = min(HIGH, down - first), inside = tile - first * across;
    return {(first + inside % height) * TALL, inside / height * COLUMNS};
}

// --8<-- [start:barriers]
// A barrier in shared memory counts arrivals, and bytes that are still to land. It has
// phases, even and odd in turn; who waits names the one that has to be over.
__device__ void init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

__device__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void arrive_and_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     barrier),
                 "r"(bytes)
                 : "memory");
}

__device__ void wait(unsigned barrier, unsigned parity) {
    unsigned over;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(over)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!over);
}
// --8<-- [end:barriers]

// --8<-- [start:copies]
// What the copy engine is told of a matrix: a parameter, since the host writes it.
struct alignas(64) Map {
    unsigned long long words[16];
};

// One thread asks the copy engine for a box of a matrix: `x` along its lines, `y`
// across. What is outside arrives as zeros.
__device__ void copy(unsigned to, const Map& map, int x, int y, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// The same for all blocks of a cluster: it lands at one place in each, and each one's
// barrier counts it.
template <int CLUSTER>
__device__ void copy_to_all(unsigned to, const Map& map, int x, int y,
                            unsigned barrier) {
    constexpr unsigned short ALL = (1 << CLUSTER) - 1;
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(ALL)
        : "memory");
}

// A slab of SIDE rows of A (columns of B) from `first` on. If its lines go along K, one
// box has them all; else they go across, 64 elements each, in SIDE / 64 boxes.
template <bool ALONG_K, int SIDE, int CLUSTER = 1>
__device__ void fetch(unsigned to, const Map& map, int first, int k,
                      unsigned barrier) {
#pragma unroll
    for (int s = 0; s < SIDE; s += ALONG_K ? SIDE : 64) {
        const int x = ALONG_K ? k : first + s, y = ALONG_K ? first : k;
        if (CLUSTER == 1) copy(to + s * LINE, map, x, y, barrier);
        else copy_to_all<CLUSTER>(to + s * LINE, map, x, y, barrier);
    }
}
// --8<-- [end:copies]

// --8<-- [start:wgmma]
// What the tensor cores have to know of 64 rows, or 256 columns, of a slab: where it
// is, how far apart its groups of 8 lines are, and those of 64 elements across.
using Described = unsigned long long;
template <bool ALONG_K>
__device__ Described described(unsigned at) {
    const unsigned across = ALONG_K ? 16 : 64 * LINE, down = 8 * LINE;
    return (at & 0x3ffff) >> 4 |  // without the block's number in its cluster
           Described(across >> 4) << 16 | Described(down >> 4) << 32 |
           1ull << 62;  // a swizzle of 128 bytes
}

#define EIGHT(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), \
                 "+f"((d)[4]), "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7])
#define SIXTY_FOUR(d) EIGHT(d), EIGHT(d + 8), EIGHT(d + 16), EIGHT(d + 24), \
                      EIGHT(d + 32), EIGHT(d + 40), EIGHT(d + 48), EIGHT(d + 56)

// 64 x 256 sums of products over 16, of a warpgroup; they are made some time later.
#define MULTIPLY(T, NAME) \
    template <bool A_ALONG_K, bool B_ALONG_K> \
    __device__ void mma(float (&d)[128], Described a, Described b, T) { \
        asm volatile( \
            "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n256k16.f32." NAME "." NAME " {" \
            "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
            "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
            "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
            "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, " \
            "%58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, " \
            "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
            "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, " \
            "%100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
            "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
            "%122, %123, %124, %125, %126, %127}, " \
            "%128, %129, add, 1, 1, %130, %131;\n}" \
            : SIXTY_FOUR(d), SIXTY_FOUR(d + 64) \
            : "l"(a), "l"(b), "n"(!A_ALONG_K), "n"(!B_ALONG_K)); \
    }
MULTIPLY(__half, "f16")
MULTIPLY(__nv_bfloat16, "bf16")
// --8<-- [end:wgmma]

// --8<-- [start:begin]
// A slab's products, begun: four steps of 16.
template <class T, bool A_ALONG_K, bool B_ALONG_K>
__device__ void begin(float (&sums)[128], unsigned left, unsigned right) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16)
        mma<A_ALONG_K, B_ALONG_K>(
            sums, described<A_ALONG_K>(left + k * (A_ALONG_K ? 2 : LINE)),
            described<B_ALONG_K>(right + k * (B_ALONG_K ? 2 : LINE)), T());
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until no more than so many slabs' products are still being made.
template <int MOST>
__device__ void finish() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(MOST) : "memory");
}
// --8<-- [end:begin]

// --8<-- [start:write]
template <class T>
__device__ unsigned rounded(float low, float high);
template <>
__device__ unsigned rounded<__half>(float low, float high) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}
template <>
__device__ unsigned rounded<__nv_bfloat16>(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}

// A warp writes 16 x 256 sums, 64 columns at a time: turned round in its 2 KiB of
// shared memory, so that a row's 128 bytes leave at once.
template <class T>
__device__ void write(T* C, const float (&sums)[128], unsigned way_out, int row,
                      int column, int M, int N) {
    const int lane = threadIdx.x % 32;
    const unsigned own = way_out + threadIdx.x / 32 % 8 * 16 * LINE;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            const float* const d = sums + 32 * part + 8 * pair;
            const int r = lane % 16, chunk = 2 * pair + lane / 16;
            const unsigned to = own + r * LINE + (chunk ^ r % 8) * 16;
            asm volatile(
                "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                ::"r"(to), "r"(rounded<T>(d[0], d[1])), "r"(rounded<T>(d[2], d[3])),
                "r"(rounded<T>(d[4], d[5])), "r"(rounded<T>(d[6], d[7]))
                : "memory");
        }
        __syncwarp();  // the sums are there
#pragma unroll
        for (int r = lane / 8; r < 16; r += 4) {
            const int c = lane % 8, m = row + r, n = column + 64 * part + 8 * c;
            uint4 chunk;
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
                         : "r"(own + r * LINE + (c ^ r % 8) * 16)
                         : "memory");
            if (m >= M) continue;
            T* const to = C + m * Index(N) + n;
            if (N % 8 == 0 && n < N) {
                *reinterpret_cast<uint4*>(to) = chunk;
                continue;
            }
            const unsigned words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                const unsigned bits = words[j / 2] >> j % 2 * 16;
                if (n + j < N) reinterpret_cast<unsigned short*>(to)[j] = bits;
            }
        }
        __syncwarp();  // they are read: the next part may come
    }
}
// --8<-- [end:write]

extern __shared__ __align__(1024) unsigned char memory[];

// --8<-- [start:together]
// Both warpgroups multiply, and a thread of theirs asks for what is next: a stage is
// free when the products of both are made.
template <class T, bool A_ALONG_K, bool B_ALONG_K, int STAGES>
__global__ void __launch_bounds__(2 * GROUP)
gemm_together(const T*, const T*, const __grid_constant__ Map a_map,
              const __grid_constant__ Map b_map, T* C, int M, int N, int K) {
    const auto base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned way_out = base + STAGES * (LEFT + RIGHT), full = way_out + WAY_OUT;
    const int warpgroup = threadIdx.x / GROUP, slabs = (K + DEPTH - 1) / DEPTH;
    const Corner tile = corner_of(blockIdx.x, M, N);
    const auto ask = [&](int slab) {
        const unsigned stage = slab % STAGES, to = base + stage * (LEFT + RIGHT);
        const unsigned barrier = full + 8 * stage;
        arrive_and_expect(barrier, LEFT + RIGHT);
        fetch<A_ALONG_K, ROWS>(to, a_map, tile.row, slab * DEPTH, barrier);
        fetch<B_ALONG_K, COLUMNS>(to + LEFT, b_map, tile.column, slab * DEPTH, barrier);
    };
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) init(full + 8 * s, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int s = 0; s < min(STAGES, slabs); ++s) ask(s);
    }
    __syncthreads();  // the barriers are there

    float sums[128] = {};
    for (int slab = 0; slab < slabs; ++slab) {
        const unsigned stage = slab % STAGES, from = base + stage * (LEFT + RIGHT);
        wait(full + 8 * stage, slab / STAGES % 2);
        begin<T, A_ALONG_K, B_ALONG_K>(sums, from + warpgroup * 64 * LINE, from + LEFT);
        finish<(STAGES > 1)>();
        const int over = slab - (STAGES > 1);  // the newest slab that is done with
        __syncthreads();  // for all
        if (threadIdx.x == 0 && over >= 0 && over + STAGES < slabs) ask(over + STAGES);
    }
    finish<0>();
    write(C, sums, way_out, tile.row + threadIdx.x / 32 * 16, tile.column, M, N);
}
// --8<-- [end:together]

// --8<-- [start:clusters]
__device__ unsigned rank_in_cluster() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// All threads of a cluster meet, or those of a block that has none.
template <int CLUSTER>
__device__ void meet() {
    if (CLUSTER == 1) {
        __syncthreads();
        return;
    }
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" :::
                     "memory");
}

// Arrive at the same barrier in a block of the cluster.
__device__ void arrive_in(unsigned rank, unsigned barrier) {
    asm volatile(
        "{\n.reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n}" ::"r"(
            barrier),
        "r"(rank)
        : "memory");
}
// --8<-- [end:clusters]

// --8<-- [start:specialised]
// One warpgroup asks, with few registers; two multiply, with many, and do not wait for
// one another. All take tile after tile, so that slabs of the next are on their way
// while the sums of this one are written. Blocks of a cluster have tiles below one
// another: each asks for its rows of A, and for its part of B for all.
template <class T, bool A_ALONG_K, bool B_ALONG_K, int STAGES, int CLUSTER>
__global__ void __launch_bounds__(3 * GROUP, 1)
gemm_specialised(const T*, const T*, const __grid_constant__ Map a_map,
                 const __grid_constant__ Map b_map, T* C, int M, int N, int K,
                 int tiles) {
    constexpr int PART = COLUMNS / CLUSTER;
    const auto base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned way_out = base + STAGES * (LEFT + RIGHT);
    const unsigned full = way_out + WAY_OUT, empty = full + 8 * STAGES;
    const int slabs = (K + DEPTH - 1) / DEPTH;
    const unsigned rank = CLUSTER == 1 ? 0 : rank_in_cluster();
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            init(full + 8 * s, 1);
            init(empty + 8 * s, 8 * CLUSTER);  // warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet<CLUSTER>();  // the barriers are there

    unsigned stage = 0, round = 0;
    const auto next = [&] {
        if (++stage == STAGES) stage = 0, round ^= 1;
    };
    const int first = blockIdx.x / CLUSTER, step = gridDim.x / CLUSTER;
    if (threadIdx.x < GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int t = first; t < tiles; t += step) {
                const Corner tile = corner_of<CLUSTER * ROWS>(t, M, N);
                const int row = tile.row + rank * ROWS;
                const int column = tile.column + rank * PART;
                for (int k = 0; k < slabs * DEPTH; k += DEPTH, next()) {
                    const unsigned to = base + stage * (LEFT + RIGHT);
                    const unsigned part = to + LEFT + rank * PART * LINE;
                    const unsigned barrier = full + 8 * stage;
                    wait(empty + 8 * stage, round ^ 1);  // in the first round at once
                    arrive_and_expect(barrier, LEFT + RIGHT);
                    fetch<A_ALONG_K, ROWS>(to, a_map, row, k, barrier);
                    fetch<B_ALONG_K, PART, CLUSTER>(part, b_map, column, k, barrier);
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int half = threadIdx.x / GROUP - 1, lane = threadIdx.x % 32;
        const auto leave = [&](unsigned s) {  // a warp has done with a stage
            if (CLUSTER == 1 && lane == 0) arrive(empty + 8 * s);
            if (CLUSTER > 1 && lane < CLUSTER) arrive_in(lane, empty + 8 * s);
        };
        for (int t = first; t < tiles; t += step) {
            const Corner tile = corner_of<CLUSTER * ROWS>(t, M, N);
            float sums[128] = {};
            unsigned before = 0;  // the stage of the slab before
            for (int slab = 0; slab < slabs; ++slab, next()) {
                const unsigned from = base + stage * (LEFT + RIGHT);
                wait(full + 8 * stage, round);
                begin<T, A_ALONG_K, B_ALONG_K>(sums, from + half * 64 * LINE,
                                               from + LEFT);
                finish<1>();
                if (slab > 0) leave(before);
                before = stage;
            }
            finish<0>();
            leave(before);
            const int row = tile.row + rank * ROWS + 64 * half;
            write(C, sums, way_out, row + threadIdx.x / 32 % 4 * 16, tile.column, M, N);
        }
    }
    if (CLUSTER > 1) meet<CLUSTER>();  // nobody leaves while others copy to it
}
// --8<-- [end:specialised]

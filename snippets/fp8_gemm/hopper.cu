// c = a b^T of e4m3, scaled, in bfloat16, on sm_90: a warpgroup that loads, and two
// groups that multiply and promote in turn. To the copy engine a is (M, K / 2) and b
// (N, K / 2), of pairs.
#include <cuda_bf16.h>

// A tile of c is 128 x 128, half of its rows for each of two warpgroups; a slab is 128
// deep, and a line of it 128 bytes, swizzled.
constexpr int TILE = 128, GROUP = 128, STAGES = 6, BAND = 8;
constexpr unsigned LINE = 128, BYTES = TILE * LINE;

// --8<-- [start:barriers]
__device__ void wait(unsigned barrier, unsigned parity) {
    unsigned over;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
    } while (!over);
}

__device__ void init(unsigned barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(barrier), "r"(arrivals) : "memory");
}

// Which slab of which tile is next; stages follow each other from tile to tile.
struct Ring {
    unsigned stage = 0, round = 0;
    __device__ void next() {
        if (++stage == STAGES) stage = 0, ++round;
    }
};
// --8<-- [end:barriers]

// --8<-- [start:wgmma]
using Described = unsigned long long;
__device__ Described described(unsigned at) {
    return (at & 0x3ffff) >> 4 | Described(8 * LINE >> 4) << 32 | 1ull << 62;
}

#define EIGHT(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), \
                 "+f"((d)[4]), "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7])
#define THIRTY_TWO(d) EIGHT(d), EIGHT(d + 8), EIGHT(d + 16), EIGHT(d + 24)
#define SUMS(d) THIRTY_TWO(d), THIRTY_TWO(d + 32)

// 64 x 128 sums of products over 32, of a warpgroup, which begin anew unless they add.
__device__ void multiply(float (&d)[64], Described a, Described b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, "
        "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
        "%62, %63}, %64, %65, add, 1, 1;\n}"
        : SUMS(d) : "l"(a), "l"(b), "r"(int(add)));
}
__device__ void begin(float (&d)[64]) {
    asm volatile("wgmma.fence.sync.aligned;" : SUMS(d)::"memory");
}
__device__ void finish(float (&d)[64]) {
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
                 : SUMS(d)::"memory");
}
// --8<-- [end:wgmma]

// --8<-- [start:copies]
struct alignas(64) Map {
    unsigned long long words[16];
};

__device__ void fetch(unsigned to, const Map& map, int row, int deep,
                      unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
        ::"r"(to), "l"(&map), "r"(deep), "r"(row), "r"(barrier) : "memory");
}
// --8<-- [end:copies]

__device__ unsigned rounded(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}

extern __shared__ __align__(1024) unsigned char memory[];

// --8<-- [start:kernel]
// A block takes every so-manyth tile, down BAND rows of tiles and then the next column.
// Scales are those of a's rows and b's blocks every 128; or, not BLOCKED, two numbers.
template <bool BLOCKED>
__global__ void __launch_bounds__(3 * GROUP, 1)
hopper(__nv_bfloat16* c, const unsigned char*, const unsigned char*,
       const float* a_scale, const float* b_scale, const __grid_constant__ Map a_map,
       const __grid_constant__ Map b_map, long long a_row, long long a_slab,
       long long b_block, long long b_slab, int m, int n, int k) {
    const auto base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned full = base + STAGES * 2 * BYTES, empty = full + 8 * STAGES;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            init(full + 8 * s, 1);
            init(empty + 8 * s, 8);  // warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();  // the barriers are there
    const int tiles_m = (m + TILE - 1) / TILE, tiles_n = (n + TILE - 1) / TILE;
    const int slabs = (k + TILE - 1) / TILE, number = threadIdx.x / GROUP;
    Ring ring;
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        const int band = tile / (BAND * tiles_n) * BAND, rest = tile % (BAND * tiles_n);
        const int high = min(tiles_m - band, BAND);
        const int row = (band + rest % high) * TILE, col = rest / high * TILE;
        if (number == 2) {
            for (int j = 0; j < slabs && threadIdx.x % GROUP == 0; ++j, ring.next()) {
                const unsigned to = base + ring.stage * 2 * BYTES;
                const unsigned landed = full + 8 * ring.stage;
                wait(empty + 8 * ring.stage, ring.round % 2 ^ 1);  // at first at once
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                             ::"r"(landed), "r"(2 * BYTES) : "memory");
                fetch(to, a_map, row, j * TILE / 2, landed);
                fetch(to + BYTES, b_map, col, j * TILE / 2, landed);
            }
            continue;
        }
        const int lane = threadIdx.x % 32;
        const int mine = row + threadIdx.x / 32 * 16 + lane / 4;  // and 8 below
        const float* const scale_a = a_scale + mine * a_row;
        const float* const scale_b = b_scale + col / TILE * b_block;
        float sums[64] = {}, part[64];
        for (int j = 0; j < slabs; ++j, ring.next()) {
            float scale[2] = {1, 1};
            if (BLOCKED)
                for (int r = 0; r < 2; ++r)
                    scale[r] = mine + 8 * r < m ? scale_a[j * a_slab + 8 * r * a_row] *
                                                      scale_b[j * b_slab] : 0;
            const unsigned at = base + ring.stage * 2 * BYTES;
            wait(full + 8 * ring.stage, ring.round % 2);
            begin(part);
#pragma unroll
            for (int deep = 0; deep < TILE; deep += 32)
                multiply(part, described(at + number * BYTES / 2 + deep),
                         described(at + BYTES + deep), deep > 0);
            finish(part);
            if (lane == 0)
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                             ::"r"(empty + 8 * ring.stage) : "memory");
            // The tensor core's sum ends here; the other group multiplies meanwhile.
#pragma unroll
            for (int i = 0; i < 64; ++i) sums[i] += part[i] * scale[i % 4 / 2];
        }
        const float whole = BLOCKED ? 1 : *a_scale * *b_scale;
        // Of 16 columns of a row, which four lanes write, a lane has two of the first
        // eight and two of the others. They trade, so that each has four in a row.
        const int odd = lane % 2, four = col + lane % 4 / 2 * 4 + odd * 8;
#pragma unroll
        for (int i = 0; i < 64; i += i % 4 ? 6 : 2) {
            const unsigned near = rounded(sums[i] * whole, sums[i + 1] * whole);
            const unsigned far = rounded(sums[i + 4] * whole, sums[i + 5] * whole);
            const unsigned other = __shfl_xor_sync(~0u, odd ? near : far, 1);
            const uint2 both = odd ? uint2{other, far} : uint2{near, other};
            const int r = mine + i % 4 / 2 * 8, at = four + i / 8 * 16;
            __nv_bfloat16* const to = c + (long long)r * n + at;
            if (r < m && at + 4 <= n && n % 4 == 0)
                *reinterpret_cast<uint2*>(to) = both;
            else
                for (int e = 0; r < m && e < min(4, n - at); ++e)
                    to[e] = reinterpret_cast<const __nv_bfloat16*>(&both)[e];
        }
    }
}
// --8<-- [end:kernel]

// C = A B of float16 on tensor cores, with sums in float32: what a block computes is
// 128 x 128, in slabs 32 deep. M and N are multiples of 128, K of 32; rows of A (M, K)
// and of B (K, N) begin on 16 bytes and lie lda and ldb elements apart. C is dense.
// --8<-- [start:kernel]
#include <cuda_fp16.h>

constexpr int SIDE = 128, DEPTH = 32, STAGES = 4, THREADS = 128;
constexpr int SLAB = SIDE * DEPTH * sizeof(__half), STAGE = 2 * SLAB;  // bytes

// Where a slab keeps its chunks of 16 bytes: eight that are read together, of as many
// rows of A or depths of B, lie in different banks.
__device__ int place_a(int row, int chunk) {
    return 64 * row + 16 * (chunk ^ row / 2 % 4);
}
__device__ int place_b(int k, int chunk) { return 256 * k + 16 * (chunk ^ k % 8); }

__device__ void copy(unsigned to, const __half* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}

// Four matrices of 8 x 8, of which each lane gets two neighbours; B's turned.
#define LOAD_MATRICES(NAME, TURN) \
    __device__ void NAME(unsigned (&to)[4], unsigned at) { \
        asm volatile("ldmatrix.sync.aligned.m8n8.x4" TURN ".shared.b16 " \
                     "{%0, %1, %2, %3}, [%4];" \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) \
                     : "r"(at) : "memory"); \
    }
LOAD_MATRICES(load_a, "")
LOAD_MATRICES(load_b, ".trans")

// 16 x 8 sums of products over 16.
__device__ void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__global__ void __launch_bounds__(THREADS, 2)
gemm_cuda(__half* __restrict__ C, const __half* __restrict__ A,
          const __half* __restrict__ B, int N, int K, long long lda, long long ldb) {
    extern __shared__ __align__(128) unsigned char memory[];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, slabs = K / DEPTH;
    const int row = blockIdx.x * SIDE, column = blockIdx.y * SIDE;
    A += (row + threadIdx.x / 4) * lda + threadIdx.x % 4 * 8;
    B += threadIdx.x / 16 * ldb + column + threadIdx.x % 16 * 8;
    const int to_a = place_a(threadIdx.x / 4, threadIdx.x % 4);
    const int to_b = SLAB + place_b(threadIdx.x / 16, threadIdx.x % 16);

    const auto ask = [&](int slab) {
        if (slab < slabs) {
            const unsigned to = base + slab % STAGES * STAGE;
#pragma unroll
            for (int u = 0; u < 4; ++u) {
                copy(to + to_a + place_a(32 * u, 0), A + 32 * u * lda);
                copy(to + to_b + place_b(8 * u, 0), B + 8 * u * ldb);
            }
            A += DEPTH;
            B += DEPTH * ldb;
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // if only an empty one
    };
    for (int slab = 0; slab < STAGES - 1; ++slab) ask(slab);

    // A warp has a quarter of the tile: 4 x 8 pieces of 16 x 8.
    float sums[4][8][4] = {};
    for (int slab = 0; slab < slabs; ++slab) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // this slab is there for all, and the one before is read
        ask(slab + STAGES - 1);
        const unsigned from = base + slab % STAGES * STAGE;
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            unsigned a[4][4], b[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                load_a(a[i], from + place_a(warp / 2 * 64 + 16 * i + lane % 16,
                                            k / 8 + lane / 16));
#pragma unroll
            for (int j = 0; j < 4; ++j)
                load_b(b[j], from + SLAB + place_b(k + lane % 16,
                                                   warp % 2 * 8 + 2 * j + lane / 16));
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    multiply(sums[i][j], a[i], b[j / 2] + j % 2 * 2);
        }
    }

    // A lane has two neighbours of a row: through shared memory they become chunks.
    __syncthreads();  // the last slab is read
    constexpr int PITCH = 64 + 8;  // halves from row to row
    __half* const quarter = reinterpret_cast<__half*>(memory) + warp * 64 * PITCH;
    __half* const own = quarter + lane / 4 * PITCH + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            const auto [s0, s1, s2, s3] = sums[i][j];
            __half* const to = own + 16 * i * PITCH + 8 * j;
            *reinterpret_cast<__half2*>(to) = __floats2half2_rn(s0, s1);
            *reinterpret_cast<__half2*>(to + 8 * PITCH) = __floats2half2_rn(s2, s3);
        }
    __syncwarp();  // every lane's sums are there
    C += (row + warp / 2 * 64LL) * N + column + warp % 2 * 64;
#pragma unroll
    for (int r = lane / 8; r < 64; r += 4)
        *reinterpret_cast<uint4*>(C + 1LL * r * N + lane % 8 * 8) =
            *reinterpret_cast<const uint4*>(quarter + r * PITCH + lane % 8 * 8);
}
// --8<-- [end:kernel]

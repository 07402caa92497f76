// C = A B in float32 by one kernel whose sizes are template arguments: the space that
// is searched. A (M, K), B (K, N) and C (M, N) are row-major; a row of A begins lda
// elements after the last, one of B ldb; rows of C are dense. M, N and K are any
// numbers from 0 on.

using Index = long long;  // M * K may pass 2**31

// --8<-- [start:quads]
// Whether every fourth element of every row lies on a 16-byte boundary.
__device__ inline bool aligned(const float* x, Index ld) {
    return reinterpret_cast<unsigned long long>(x) % 16 == 0 && ld % 4 == 0;
}

// 16 bytes in one access; both ends lie on a 16-byte boundary.
__device__ inline void copy4(float* to, const float* from) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
}

// Four elements along a row, of which `left` are there; the others are zero.
__device__ inline float4 load4(const float* x, bool vector, int left) {
    if (vector && left >= 4) return *reinterpret_cast<const float4*>(x);
    return make_float4(left > 0 ? x[0] : 0, left > 1 ? x[1] : 0, left > 2 ? x[2] : 0,
                       left > 3 ? x[3] : 0);
}

__device__ inline void store4(float* x, bool vector, int left, float4 value) {
    if (vector && left >= 4) {
        *reinterpret_cast<float4*>(x) = value;
        return;
    }
    if (left > 0) x[0] = value.x;
    if (left > 1) x[1] = value.y;
    if (left > 2) x[2] = value.z;
    if (left > 3) x[3] = value.w;
}
// --8<-- [end:quads]

// --8<-- [start:tile]
constexpr int PAD = 4;  // after each row of a: its scattered stores meet fewer banks

// Of a thread: its sums, and its part of the slab that is on its way.
template <int BM, int BN, int BK, int TM, int TN>
constexpr int VALUES = TM * TN + BK * (BM + BN) / (BM * BN / (TM * TN));

// Blocks that an SM must have room for: 16 warps, so 128 registers a thread, where a
// thread holds up to 72 values, else 8.
template <int THREADS, int VALUES>
constexpr int ROOM = (VALUES <= 72 ? 512 : 256) / THREADS;

// A block has BM x BN of C, a thread TM x TN of it; BK steps of k lie in shared memory,
// A transposed. With SPREAD the quads of a thread's patch lie apart, those of its
// neighbours between them. With two BUFFERS the next slab is loaded while the present
// one is multiplied.
template <int BM, int BN, int BK, int TM, int TN, int SPREAD, int BUFFERS>
__global__ void __launch_bounds__(
    BM* BN / (TM * TN), ROOM<BM * BN / (TM * TN), VALUES<BM, BN, BK, TM, TN>>)
sgemm_tile(const float* __restrict__ A, const float* __restrict__ B,
           float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    constexpr int DOWN = BM / TM, ACROSS = BN / TN, THREADS = DOWN * ACROSS;
    constexpr int QUADS_A = BM * BK / 4 / THREADS, QUADS_B = BK * BN / 4 / THREADS;
    static_assert(QUADS_A * 4 * THREADS == BM * BK, "every thread loads as much of A");
    static_assert(QUADS_B * 4 * THREADS == BK * BN, "every thread loads as much of B");
    static_assert(TM % 4 == 0 && TN % 4 == 0, "a patch is made of quads");
    __shared__ __align__(16) float a[BUFFERS][BK][BM + PAD], b[BUFFERS][BK][BN];

    const int t = threadIdx.x, tiles = (N + BN - 1) / BN;
    const int row0 = blockIdx.x / tiles * BM, column0 = blockIdx.x % tiles * BN;
    const int down = t / ACROSS, across = t % ACROSS;
    const bool vector_a = aligned(A, lda), vector_b = aligned(B, ldb);
    float4 next_a[QUADS_A], next_b[QUADS_B];
    float sum[TM][TN] = {};

    int left = K;  // steps of k that were not loaded yet
    auto load = [&] {
#pragma unroll
        for (int i = 0; i < QUADS_A; ++i) {
            const int at = i * THREADS + t, row = row0 + at / (BK / 4);
            const int k = at % (BK / 4) * 4;
            next_a[i] = load4(A + row * lda + k, vector_a, row < M ? left - k : 0);
        }
#pragma unroll
        for (int i = 0; i < QUADS_B; ++i) {
            const int at = i * THREADS + t, k = at / (BN / 4);
            const int column = column0 + at % (BN / 4) * 4;
            const int there = k < left ? N - column : 0;
            next_b[i] = load4(B + k * ldb + column, vector_b, there);
        }
        A += BK, B += BK * ldb, left -= BK;
    };
    auto keep = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < QUADS_A; ++i) {
            const int at = i * THREADS + t, row = at / (BK / 4), k = at % (BK / 4) * 4;
            a[buffer][k][row] = next_a[i].x;
            a[buffer][k + 1][row] = next_a[i].y;
            a[buffer][k + 2][row] = next_a[i].z;
            a[buffer][k + 3][row] = next_a[i].w;
        }
#pragma unroll
        for (int i = 0; i < QUADS_B; ++i) {
            const int at = i * THREADS + t;
            float* to = &b[buffer][at / (BN / 4)][at % (BN / 4) * 4];
            *reinterpret_cast<float4*>(to) = next_b[i];
        }
    };
    // Where the quad begins that holds row (column) i of the patch.
    auto row = [&](int i) {
        return SPREAD ? i / 4 * (4 * DOWN) + down * 4 : down * TM + i / 4 * 4;
    };
    auto column = [&](int j) {
        return SPREAD ? j / 4 * (4 * ACROSS) + across * 4 : across * TN + j / 4 * 4;
    };
// --8<-- [start:multiply]
    auto multiply = [&](int buffer) {
#pragma unroll 8
        for (int k = 0; k < BK; ++k) {
            alignas(16) float x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                copy4(&x[i], &a[buffer][k][row(i)]);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                copy4(&y[j], &b[buffer][k][column(j)]);
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += x[i] * y[j];
        }
    };
// --8<-- [end:multiply]

    load();
    if constexpr (BUFFERS == 1) {
        for (int steps = (K + BK - 1) / BK; steps > 0; --steps) {
            keep(0);
            __syncthreads();  // the slab is complete
            if (left > 0) load();
            multiply(0);
            __syncthreads();  // and nobody reads it any more
        }
    } else {
        keep(0);
        __syncthreads();
        int now = 0;
        for (int steps = (K + BK - 1) / BK; steps > 0; --steps, now ^= 1) {
            const bool more = left > 0;
            if (more) load();
            multiply(now);
            if (more) keep(now ^ 1);
            __syncthreads();
        }
    }

    const bool vector_c = aligned(C, N);
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int r = row0 + row(i) + i % 4, c = column0 + column(j);
            const float* q = &sum[i][j];
            const float4 quad = {q[0], q[1], q[2], q[3]};
            if (r < M) store4(C + r * Index(N) + c, vector_c, N - c, quad);
        }
}
// --8<-- [end:tile]

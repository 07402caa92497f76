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

__device__ inline void store4(float* x, bool vector, int left, const float* value) {
    if (vector && left >= 4) return copy4(x, value);
#pragma unroll
    for (int j = 0; j < 4; ++j)
        if (j < left) x[j] = value[j];
}
// --8<-- [end:quads]

// --8<-- [start:tile]
constexpr int PAD = 4;  // after each row of a: its scattered stores meet fewer banks

// A block has BM x BN of C, a thread TM x TN of it; BK steps of k lie in shared memory,
// A transposed. With SPREAD the quads of a thread's patch lie apart, those of its
// neighbours between them. With two BUFFERS the next slab is loaded while the present
// one is multiplied.
template <int BM, int BN, int BK, int TM, int TN, int SPREAD, int BUFFERS>
__global__ void __launch_bounds__(BM* BN / (TM * TN))
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

    auto load = [&](int k0) {
#pragma unroll
        for (int i = 0; i < QUADS_A; ++i) {
            const int at = i * THREADS + t, row = row0 + at / (BK / 4);
            const int k = k0 + at % (BK / 4) * 4;
            next_a[i] = load4(A + row * lda + k, vector_a, row < M ? K - k : 0);
        }
#pragma unroll
        for (int i = 0; i < QUADS_B; ++i) {
            const int at = i * THREADS + t, k = k0 + at / (BN / 4);
            const int column = column0 + at % (BN / 4) * 4;
            next_b[i] = load4(B + k * ldb + column, vector_b, k < K ? N - column : 0);
        }
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
    auto multiply = [&](int buffer) {
#pragma unroll 8
        for (int k = 0; k < BK; ++k) {
            float4 x[TM / 4];
            alignas(16) float y[TN];
#pragma unroll
            for (int i = 0; i < TM; i += 4)
                x[i / 4] = *reinterpret_cast<const float4*>(&a[buffer][k][row(i)]);
#pragma unroll
            for (int j = 0; j < TN; j += 4)
                copy4(&y[j], &b[buffer][k][column(j)]);
#pragma unroll
            for (int i = 0; i < TM; i += 4)
#pragma unroll
                for (int j = 0; j < TN; ++j) {
                    const float v = y[j];
                    sum[i][j] += x[i / 4].x * v;
                    sum[i + 1][j] += x[i / 4].y * v;
                    sum[i + 2][j] += x[i / 4].z * v;
                    sum[i + 3][j] += x[i / 4].w * v;
                }
        }
    };

    load(0);
    if constexpr (BUFFERS == 1) {
        for (int k0 = 0; k0 < K; k0 += BK) {
            keep(0);
            __syncthreads();  // the slab is complete
            if (k0 + BK < K) load(k0 + BK);
            multiply(0);
            __syncthreads();  // and nobody reads it any more
        }
    } else {
        keep(0);
        __syncthreads();
        int now = 0;
        for (int k0 = 0; k0 < K; k0 += BK, now ^= 1) {
            const bool more = k0 + BK < K;
            if (more) load(k0 + BK);
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
            alignas(16) const float quad[4] = {sum[i][j], sum[i][j + 1], sum[i][j + 2],
                                               sum[i][j + 3]};
            if (r < M) store4(C + r * Index(N) + c, vector_c, N - c, quad);
        }
}
// --8<-- [end:tile]

// C = A B in float32, as a ladder. A (M, K), B (K, N) and C (M, N) are row-major; a row
// of A begins lda elements after the last, one of B ldb; rows of C are dense. M, N and
// K are any numbers from 0 on.

using Index = long long;  // M * K may pass 2**31

struct Corner {
    int row, column;
};

// Where this block's tile of BM x BN begins. Tiles are numbered along the rows of C, so
// that one dimension of the grid, of up to 2**31 blocks, is enough for every M and N.
template <int BM, int BN>
__device__ Corner tile_of_block(int N) {
    const int tile = blockIdx.x, across = (N + BN - 1) / BN;
    return {tile / across * BM, tile % across * BN};
}

// --8<-- [start:naive]
// A thread an element of C. Threads next to each other take rows: 32 of A at once.
template <int T>
__global__ void __launch_bounds__(T* T)
sgemm_naive(const float* __restrict__ A, const float* __restrict__ B,
            float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    const Corner tile = tile_of_block<T, T>(N);
    const int row = tile.row + threadIdx.x, column = tile.column + threadIdx.y;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * lda + k] * B[k * ldb + column];
    C[row * Index(N) + column] = sum;
}
// --8<-- [end:naive]

// --8<-- [start:coalesced]
// The same, but threads next to each other take columns: neighbours in B and C.
template <int T>
__global__ void __launch_bounds__(T* T)
sgemm_coalesced(const float* __restrict__ A, const float* __restrict__ B,
                float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    const Corner tile = tile_of_block<T, T>(N);
    const int row = tile.row + threadIdx.y, column = tile.column + threadIdx.x;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += A[row * lda + k] * B[k * ldb + column];
    C[row * Index(N) + column] = sum;
}
// --8<-- [end:coalesced]

// --8<-- [start:shared]
// A block keeps a T x T tile of A and one of B on chip: each element is loaded once a
// block and used T times. What lies beyond the matrices is zero, and adds nothing.
template <int T>
__global__ void __launch_bounds__(T* T)
sgemm_shared(const float* __restrict__ A, const float* __restrict__ B,
             float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    __shared__ float a[T][T], b[T][T];
    const Corner tile = tile_of_block<T, T>(N);
    const int x = threadIdx.x, y = threadIdx.y;
    const int row = tile.row + y, column = tile.column + x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += T) {
        a[y][x] = row < M && k0 + x < K ? A[row * lda + k0 + x] : 0;
        b[y][x] = k0 + y < K && column < N ? B[(k0 + y) * ldb + column] : 0;
        __syncthreads();  // the tiles are complete
        for (int k = 0; k < T; ++k) sum += a[y][k] * b[k][x];
        __syncthreads();  // and nobody reads them any more
    }
    if (row < M && column < N) C[row * Index(N) + column] = sum;
}
// --8<-- [end:shared]

// --8<-- [start:coarse_1d]
// A thread computes TM elements of a column: one element of B serves TM multiply-adds.
template <int BM, int BN, int BK, int TM>
__global__ void __launch_bounds__(BM* BN / TM)
sgemm_coarse_1d(const float* __restrict__ A, const float* __restrict__ B,
                float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    static_assert(BM * BK == BM * BN / TM && BK * BN == BM * BN / TM, "a load each");
    __shared__ float a[BM][BK], b[BK][BN];
    const Corner tile = tile_of_block<BM, BN>(N);
    const int t = threadIdx.x;
    const int row = tile.row + t / BN * TM, column = tile.column + t % BN;
    const int a_row = t / BK, a_k = t % BK, b_k = t / BN;
    const bool row_of_a = tile.row + a_row < M;
    float sum[TM] = {};
    A += (tile.row + a_row) * lda + a_k, B += b_k * ldb + column;
    for (int k0 = 0; k0 < K; k0 += BK, A += BK, B += BK * ldb) {
        a[a_row][a_k] = row_of_a && k0 + a_k < K ? *A : 0;
        b[b_k][t % BN] = k0 + b_k < K && column < N ? *B : 0;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            const float y = b[k][t % BN];
#pragma unroll
            for (int i = 0; i < TM; ++i) sum[i] += a[t / BN * TM + i][k] * y;
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)
        if (row + i < M && column < N) C[(row + i) * Index(N) + column] = sum[i];
}
// --8<-- [end:coarse_1d]

// --8<-- [start:coarse_2d]
// A thread computes a patch of TM x TN: TM + TN elements serve TM * TN multiply-adds.
template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM* BN / (TM * TN), 2)
sgemm_coarse_2d(const float* __restrict__ A, const float* __restrict__ B,
                float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    constexpr int THREADS = BM * BN / (TM * TN);
    __shared__ float a[BM][BK], b[BK][BN];
    const Corner tile = tile_of_block<BM, BN>(N);
    const int t = threadIdx.x, row = t / (BN / TN) * TM, column = t % (BN / TN) * TN;
    float sum[TM][TN] = {};
    for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
        for (int i = 0; i < BM * BK; i += THREADS) {
            const int r = (i + t) / BK, k = (i + t) % BK;
            const bool in = tile.row + r < M && k0 + k < K;
            a[r][k] = in ? A[(tile.row + r) * lda + k0 + k] : 0;
        }
#pragma unroll
        for (int i = 0; i < BK * BN; i += THREADS) {
            const int k = (i + t) / BN, c = (i + t) % BN;
            const bool in = k0 + k < K && tile.column + c < N;
            b[k][c] = in ? B[(k0 + k) * ldb + tile.column + c] : 0;
        }
        __syncthreads();
#pragma unroll 1
        for (int k = 0; k < BK; ++k) {  // unrolled, it has no registers for two blocks
            float x[TM], y[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) x[i] = a[row + i][k];
#pragma unroll
            for (int j = 0; j < TN; ++j) y[j] = b[k][column + j];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j)
            if (const int r = tile.row + row + i, c = tile.column + column + j;
                r < M && c < N)
                C[r * Index(N) + c] = sum[i][j];
}
// --8<-- [end:coarse_2d]

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

// --8<-- [start:slabs]
// With it the four scattered stores of a transposed quad meet 32 different banks.
constexpr int PAD = 4;

// What a block has of A and B for BK steps of k. A is transposed, so that a thread
// finds the rows of its patch side by side, as it does the columns of B.
template <int BM, int BN, int BK>
struct Slab {
    float a[BK][BM + PAD], b[BK][BN];
};

// A thread's part of every slab: four elements along a row of A, four along one of B.
template <int BM, int BN, int BK>
struct Quads {
    static_assert(BN == 16 * BK && BM == 16 * BK, "one each for every 8 x 8 of C");
    float4 a, b;
    const float *next_a, *next_b;
    Index step_b;
    int columns_b;  // from the thread's first on
    bool row_of_a, vector_a, vector_b;

    __device__ Quads(const float* A, const float* B, int M, int N, Index lda,
                     Index ldb, Corner tile) {
        const int row = tile.row + a_row(), column = tile.column + b_column();
        next_a = A + row * lda + a_k(), next_b = B + b_k() * ldb + column;
        row_of_a = row < M, columns_b = N - column;
        vector_a = aligned(A, lda), vector_b = aligned(B, ldb);
        step_b = BK * ldb;
    }
    static __device__ int a_row() { return threadIdx.x / (BK / 4); }
    static __device__ int a_k() { return threadIdx.x % (BK / 4) * 4; }
    static __device__ int b_k() { return threadIdx.x / (BN / 4); }
    static __device__ int b_column() { return threadIdx.x % (BN / 4) * 4; }

    __device__ void load(int left) {  // the next slab, of whose k so many are there
        a = load4(next_a, vector_a, row_of_a ? left - a_k() : 0);
        b = load4(next_b, vector_b, b_k() < left ? columns_b : 0);
        next_a += BK, next_b += step_b;
    }

    __device__ void store(Slab<BM, BN, BK>& slab) const {
        slab.a[a_k()][a_row()] = a.x;
        slab.a[a_k() + 1][a_row()] = a.y;
        slab.a[a_k() + 2][a_row()] = a.z;
        slab.a[a_k() + 3][a_row()] = a.w;
        *reinterpret_cast<float4*>(&slab.b[b_k()][b_column()]) = b;
    }
};
// --8<-- [end:slabs]

// --8<-- [start:patch]
// A thread's 8 x 8 patch: four squares of 4 x 4, DOWN rows and RIGHT columns apart.
template <int DOWN, int RIGHT>
struct Patch {
    int row, column;  // of its first square, in the block's tile
    alignas(16) float sum[8][8] = {};

    template <int BM, int BN, int BK>
    __device__ void multiply(const Slab<BM, BN, BK>& slab) {
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            alignas(16) float x[8], y[8];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                copy4(&x[half * 4], &slab.a[k][row + half * DOWN]);
                copy4(&y[half * 4], &slab.b[k][column + half * RIGHT]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j) sum[i][j] += x[i] * y[j];
        }
    }

    __device__ void store(float* C, int M, int N, Corner tile) const {
        const bool vector = aligned(C, N);
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int r = tile.row + row + i / 4 * DOWN + i % 4;
                const int c = tile.column + column + half * RIGHT;
                float* at = C + r * Index(N) + c;
                if (r < M) store4(at, vector, N - c, &sum[i][half * 4]);
            }
    }
};
// --8<-- [end:patch]

// --8<-- [start:float4]
// 16 bytes an access, from global memory and from shared.
template <int BM, int BN, int BK>
__global__ void __launch_bounds__(BM* BN / 64, 2)
sgemm_float4(const float* __restrict__ A, const float* __restrict__ B,
             float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    __shared__ __align__(16) Slab<BM, BN, BK> slab;
    const Corner tile = tile_of_block<BM, BN>(N);
    Quads<BM, BN, BK> quads(A, B, M, N, lda, ldb, tile);
    const int row = threadIdx.x / (BN / 8) * 8, column = threadIdx.x % (BN / 8) * 8;
    Patch<4, 4> patch{row, column};  // its squares touch
    for (int left = K; left > 0; left -= BK) {
        quads.load(left);
        quads.store(slab);
        __syncthreads();
        patch.multiply(slab);
        __syncthreads();
    }
    patch.store(C, M, N, tile);
}
// --8<-- [end:float4]

// --8<-- [start:warp_tiles]
// Where a thread's patch begins when each warp has a tile of WM x WN of its own: its
// lanes lie in WM / 8 rows of squares, the squares of a patch half a warp's tile apart.
// Lanes i and i ^ 1 share columns, i and i ^ 2 rows, as CUTLASS deals them: in every
// load a lane has a neighbour that asks for the same 16 bytes.
template <int BN, int WM, int WN>
__device__ Patch<WM / 2, WN / 2> patch_in_warp() {
    static_assert(WM * WN == 32 * 64, "a warp has 32 patches of 8 x 8");
    constexpr int ACROSS = WN / 8;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = lane / (2 * ACROSS) * 2 + lane % 2, column = lane / 2 % ACROSS;
    return {warp / (BN / WN) * WM + row * 4, warp % (BN / WN) * WN + column * 4};
}

template <int BM, int BN, int BK, int WM, int WN>
__global__ void __launch_bounds__(BM* BN / 64, 2)
sgemm_warp_tiles(const float* __restrict__ A, const float* __restrict__ B,
                 float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    __shared__ __align__(16) Slab<BM, BN, BK> slab;
    const Corner tile = tile_of_block<BM, BN>(N);
    Quads<BM, BN, BK> quads(A, B, M, N, lda, ldb, tile);
    auto patch = patch_in_warp<BN, WM, WN>();
    for (int left = K; left > 0; left -= BK) {
        quads.load(left);
        quads.store(slab);
        __syncthreads();
        patch.multiply(slab);
        __syncthreads();
    }
    patch.store(C, M, N, tile);
}
// --8<-- [end:warp_tiles]

// --8<-- [start:double_buffered]
// While one slab is multiplied, the next is on its way into registers; it then goes to
// the other half of shared memory, which nobody reads: one barrier a slab, not two.
template <int BM, int BN, int BK, int WM, int WN>
__global__ void __launch_bounds__(BM* BN / 64, 2)
sgemm_double_buffered(const float* __restrict__ A, const float* __restrict__ B,
                      float* __restrict__ C, int M, int N, int K, Index lda,
                      Index ldb) {
    __shared__ __align__(16) Slab<BM, BN, BK> slabs[2];
    const Corner tile = tile_of_block<BM, BN>(N);
    Quads<BM, BN, BK> quads(A, B, M, N, lda, ldb, tile);
    auto patch = patch_in_warp<BN, WM, WN>();
    quads.load(K);
    quads.store(slabs[0]);
    __syncthreads();
    int now = 0;
    for (int left = K - BK; left > -BK; left -= BK, now ^= 1) {
        if (left > 0) quads.load(left);
        patch.multiply(slabs[now]);
        if (left > 0) quads.store(slabs[now ^ 1]);
        __syncthreads();
    }
    patch.store(C, M, N, tile);
}
// --8<-- [end:double_buffered]

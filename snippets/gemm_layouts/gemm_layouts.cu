// C = A B in float32, where A (M, K) and B (K, N) may each lie by rows or by columns:
// neighbours are lda or ldb elements apart in one direction, and side by side in the
// other. C (M, N) is dense, by rows. M, N and K are any numbers from 0 on.

using Index = long long;  // M * K may pass 2**31

struct Corner {
    int row, column;
};

// Where this block's tile of ROWS x COLUMNS begins. Tiles are numbered along the rows
// of C, so that one dimension of the grid, of up to 2**31 blocks, is enough.
template <int ROWS, int COLUMNS>
__device__ Corner tile_of_block(int N) {
    const int tile = blockIdx.x, across = (N + COLUMNS - 1) / COLUMNS;
    return {tile / across * ROWS, tile % across * COLUMNS};
}

// --8<-- [start:naive]
// A thread an element of C; a warp has 32 columns of one row. A_ALONG_K says that A
// lies by rows, B_ALONG_K that B lies by columns: its neighbours go along K.
template <bool A_ALONG_K, bool B_ALONG_K>
__global__ void __launch_bounds__(256)
gemm_naive(const float* __restrict__ A, const float* __restrict__ B,
           float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    const Corner tile = tile_of_block<8, 32>(N);
    const int row = tile.row + threadIdx.y, column = tile.column + threadIdx.x;
    if (row >= M || column >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k)
        sum += A[A_ALONG_K ? row * lda + k : k * lda + row] *
               B[B_ALONG_K ? column * ldb + k : k * ldb + column];
    C[row * Index(N) + column] = sum;
}
// --8<-- [end:naive]

constexpr int SIDE = 128, DEPTH = 16, THREADS = 256;

// --8<-- [start:places]
// Where a slab, DEPTH rows of SIDE elements, keeps element i of row k, in words. Four
// neighbours along i, from a multiple of 4 on, stay together in each.
struct Plain {
    static constexpr int words = DEPTH * SIDE;
    static __device__ int at(int k, int i) { return k * SIDE + i; }
};

struct Padded {  // by 4 words, or quads would not begin on 16 bytes
    static constexpr int words = DEPTH * (SIDE + 4);
    static __device__ int at(int k, int i) { return k * (SIDE + 4) + i; }
};

struct Swizzled {  // each group of 4 rows has another order of its 8-word pieces
    static constexpr int words = DEPTH * SIDE;
    static __device__ int at(int k, int i) { return k * SIDE + (i ^ k / 4 % 4 * 8); }
};
// --8<-- [end:places]

// --8<-- [start:operand]
// What a thread carries of an operand from global memory to a slab: two quads of four
// neighbours in memory. Beyond the operand's edges there are zeros.
template <class Place, bool ALONG_K, bool WIDE>
struct Operand {
    float quads[2][4];
    // Along K four lanes have a row's 64 bytes; else 32 lanes have 512 side by side.
    int own = threadIdx.x, first_i = ALONG_K ? own / 4 : own % 32 * 4;
    int first_k = ALONG_K ? own % 4 * 4 : own / 32;

    __device__ int i(int u) const { return first_i + (ALONG_K ? 64 * u : 0); }
    __device__ int k(int u) const { return first_k + (ALONG_K ? 0 : 8 * u); }

    // `x` is the slab's corner, of which `is` x `ks` elements are inside.
    __device__ void load(const float* x, Index ld, int is, int ks) {
#pragma unroll
        for (int u = 0; u < 2; ++u) {
            const float* from = x + (ALONG_K ? i(u) * ld + k(u) : k(u) * ld + i(u));
            if (WIDE) {  // a quad is inside whole, or not at all
                const bool inside = i(u) < is && k(u) < ks;
                const float4 quad = inside ? *reinterpret_cast<const float4*>(from)
                                           : make_float4(0, 0, 0, 0);
                quads[u][0] = quad.x, quads[u][1] = quad.y;
                quads[u][2] = quad.z, quads[u][3] = quad.w;
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const bool inside = ALONG_K ? i(u) < is && k(u) + j < ks
                                                : i(u) + j < is && k(u) < ks;
                    quads[u][j] = inside ? from[j] : 0;
                }
            }
        }
    }

    __device__ void store(float* slab) const {
#pragma unroll
        for (int u = 0; u < 2; ++u) {
            if (ALONG_K) {  // turned: the quad becomes part of a column
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    slab[Place::at(k(u) + j, i(u))] = quads[u][j];
            } else {
                *reinterpret_cast<float4*>(slab + Place::at(k(u), i(u))) =
                    make_float4(quads[u][0], quads[u][1], quads[u][2], quads[u][3]);
            }
        }
    }
};
// --8<-- [end:operand]

// --8<-- [start:kernel]
// A tile of 128 x 128 by 256 threads, 8 x 8 elements each. Whatever the layouts, a slab
// of A and one of B lie along M and along N in shared memory, so that the inner loop is
// one and the same; what differs is how they get there.
template <class Place, bool A_ALONG_K, bool B_ALONG_K, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2)
gemm_tiled(const float* __restrict__ A, const float* __restrict__ B,
           float* __restrict__ C, int M, int N, int K, Index lda, Index ldb) {
    __shared__ __align__(16) float a_slab[Place::words], b_slab[Place::words];
    const Corner tile = tile_of_block<SIDE, SIDE>(N);
    A += A_ALONG_K ? tile.row * lda : tile.row;
    B += B_ALONG_K ? tile.column * ldb : tile.column;
    const Index next_a = A_ALONG_K ? DEPTH : DEPTH * lda;
    const Index next_b = B_ALONG_K ? DEPTH : DEPTH * ldb;
    Operand<Place, A_ALONG_K, WIDE> a;
    Operand<Place, B_ALONG_K, WIDE> b;

    // A warp has 4 x 8 quads of the tile, and the same again 64 rows or columns on.
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp / 2 * 16 + lane / 8 * 4, column = warp % 2 * 32 + lane % 8 * 4;
    float sums[8][8] = {};
    for (int left = K; left > 0; left -= DEPTH) {
        a.load(A, lda, M - tile.row, left);
        b.load(B, ldb, N - tile.column, left);
        A += next_a, B += next_b;
        __syncthreads();  // the slabs are read
        a.store(a_slab);
        b.store(b_slab);
        __syncthreads();  // the slabs are complete
#pragma unroll 2
        for (int k = 0; k < DEPTH; ++k) {
            float4 rows[2], columns[2];
#pragma unroll
            for (int u = 0; u < 2; ++u) {
                const float* const from = a_slab + Place::at(k, row + 64 * u);
                rows[u] = *reinterpret_cast<const float4*>(from);
                const float* const there = b_slab + Place::at(k, column + 64 * u);
                columns[u] = *reinterpret_cast<const float4*>(there);
            }
            const float left_side[8] = {rows[0].x, rows[0].y, rows[0].z, rows[0].w,
                                        rows[1].x, rows[1].y, rows[1].z, rows[1].w};
            const float right_side[8] = {columns[0].x, columns[0].y, columns[0].z,
                                         columns[0].w, columns[1].x, columns[1].y,
                                         columns[1].z, columns[1].w};
#pragma unroll
            for (int r = 0; r < 8; ++r)
#pragma unroll
                for (int c = 0; c < 8; ++c) sums[r][c] += left_side[r] * right_side[c];
        }
    }

#pragma unroll
    for (int r = 0; r < 8; ++r) {
        const int m = tile.row + row + r % 4 + r / 4 * 64;
        if (m >= M) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int n = tile.column + column + 64 * half;
            float* const to = C + m * Index(N) + n;
            const float* const four = sums[r] + 4 * half;
            if (N % 4 == 0 && n < N) {
                *reinterpret_cast<float4*>(to) =
                    make_float4(four[0], four[1], four[2], four[3]);
            } else {
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    if (n + j < N) to[j] = four[j];
            }
        }
    }
}
// --8<-- [end:kernel]

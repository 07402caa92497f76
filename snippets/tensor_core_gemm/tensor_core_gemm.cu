// C = A B of float16 or bfloat16 on tensor cores, with sums in float32. Rows of A
// (M, K) and of B (K, N) lie lda and ldb elements apart, elements of a row side by
// side. C (M, N) is dense, by rows.
#include <mma.h>

namespace wmma = nvcuda::wmma;
using Index = long long;  // M * K may pass 2**31

struct Corner {
    int row, column;
};

// Where this block's tile of ROWS x COLUMNS begins. Tiles are numbered down groups of 8
// rows of them, so that blocks which run together share what they read in the L2.
template <int ROWS, int COLUMNS>
__device__ Corner tile_of_block(int M, int N) {
    const int down = (M + ROWS - 1) / ROWS, across = (N + COLUMNS - 1) / COLUMNS;
    const int group = blockIdx.x / (8 * across), first = 8 * group;
    const int height = min(8, down - first), inside = blockIdx.x - first * across;
    return {(first + inside % height) * ROWS, inside / height * COLUMNS};
}

// --8<-- [start:elements]
// Eight elements of a row, 16 bytes, are what is moved at a time.
constexpr int CHUNK = 8;

// The chunk at `from`, of which so many elements are `inside` the matrix; zeros beyond.
template <bool WIDE, class T>
__device__ uint4 chunk_of(const T* from, int inside) {
    if (WIDE) {  // it is inside whole, or not at all
        return inside > 0 ? *reinterpret_cast<const uint4*>(from) : uint4{};
    }
    unsigned words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        const auto* const bits = reinterpret_cast<const unsigned short*>(from) + 2 * w;
        words[w] = 2 * w < inside ? bits[0] : 0;
        if (2 * w + 1 < inside) words[w] |= unsigned(bits[1]) << 16;
    }
    return {words[0], words[1], words[2], words[3]};
}

// Two sums, rounded to the type of C.
__device__ unsigned rounded(float low, float high, __half) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}
__device__ unsigned rounded(float low, float high, __nv_bfloat16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}

// A chunk of a row of C, which is N long, at `column`.
template <class T>
__device__ void store_chunk(T* row, uint4 chunk, int column, int N) {
    if (N % CHUNK == 0 && column < N) {
        *reinterpret_cast<uint4*>(row + column) = chunk;
        return;
    }
    const unsigned words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) {
        const auto bits = static_cast<unsigned short>(words[j / 2] >> j % 2 * 16);
        if (column + j < N) reinterpret_cast<unsigned short*>(row)[column + j] = bits;
    }
}
// --8<-- [end:elements]

template <class T>
using LeftTile = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major>;
template <class T>
using RightTile = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major>;
using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

// --8<-- [start:write]
constexpr int PITCH = 20;  // floats from row to row of `scratch`

// A warp writes its tile of 16 x 16 sums. Which lane has which of them is not said, so
// they go through shared memory.
template <class T>
__device__ void write(T* C, const Sums& sums, float* scratch, int row, int column,
                      int M, int N) {
    wmma::store_matrix_sync(scratch, sums, PITCH, wmma::mem_row_major);
    __syncwarp();  // every lane's sums are there
    const int r = threadIdx.x % 32 / 2, c = threadIdx.x % 2 * CHUNK;
    const float4 low = *reinterpret_cast<const float4*>(scratch + r * PITCH + c);
    const float4 high = *reinterpret_cast<const float4*>(scratch + r * PITCH + c + 4);
    const uint4 chunk = {rounded(low.x, low.y, T()), rounded(low.z, low.w, T()),
                         rounded(high.x, high.y, T()), rounded(high.z, high.w, T())};
    if (row + r < M) store_chunk(C + (row + r) * Index(N), chunk, column + c, N);
    __syncwarp();  // they are read: the next tile may come
}
// --8<-- [end:write]

constexpr int THREADS = 128;

// A block's tile is SIDE x SIDE, of which a warp has a quarter; slabs are DEPTH deep.
constexpr int SIDE = 128, OWN = 64, DEPTH = 32;
constexpr int PARTS = SIDE * DEPTH / CHUNK / THREADS;  // chunks a thread moves of each

// --8<-- [start:places]
// Where a slab of A keeps its chunks, by row, and a slab of B its own, by k. The slab
// of B is the `second` of a pair.
struct Padded {  // by a chunk, so that eight rows begin in eight groups of banks
    static constexpr int left = DEPTH + CHUNK, right = SIDE + CHUNK;
    static constexpr int second = SIDE * left, elements = second + DEPTH * right;
    static __device__ int a(int row, int chunk) { return row * left + CHUNK * chunk; }
    static __device__ int b(int k, int chunk) { return k * right + CHUNK * chunk; }
};

struct Swizzled {  // 128 bytes are two rows of A, or half a row of B, in another order
    static constexpr int second = SIDE * DEPTH, elements = 2 * second;
    static __device__ int a(int row, int chunk) {
        return row * DEPTH + CHUNK * (chunk ^ row / 2 % 4);
    }
    static __device__ int b(int k, int chunk) {
        return k * SIDE + CHUNK * (chunk ^ k % 8);
    }
};
// --8<-- [end:places]

// --8<-- [start:operands]
// What a thread reads of A and B for its block's tile, a pair of slabs after the other.
// Rows and columns beyond the edges are the last ones over again, since their sums are
// not written. Only beyond the depth K there have to be zeros.
template <class T, class Place, bool WIDE>
struct Operands {
    const T *a[PARTS], *b;  // chunks in so many rows of A; in B they lie 8 rows apart
    Index ldb;
    int columns, left;  // from here on to the edge of B, and of the depth

    __device__ Operands(const T* A, const T* B, Index lda, Index ldb, Corner tile,
                        int M, int N, int K)
        : ldb(ldb), left(K) {
#pragma unroll
        for (int u = 0; u < PARTS; ++u) {
            const int row = min(tile.row + int(threadIdx.x) / 4 + 32 * u, M - 1);
            a[u] = A + row * lda + CHUNK * (threadIdx.x % 4);
        }
        const int column = tile.column + CHUNK * (int(threadIdx.x) % 16);
        columns = N - column;
        b = B + threadIdx.x / 16 * ldb + (WIDE ? min(column, N - CHUNK) : column);
    }

    // Where chunk u of this thread goes.
    static __device__ int place(int u) {
        if (u < PARTS)
            return Place::a(threadIdx.x / 4, threadIdx.x % 4) + Place::a(32 * u, 0);
        return Place::second + Place::b(threadIdx.x / 16, threadIdx.x % 16) +
               Place::b(8 * (u - PARTS), 0);
    }

    // f(chunk, address, elements inside) for each chunk of this thread.
    template <class F>
    __device__ void each(F f) const {
        left >= DEPTH ? each<true>(f) : each<false>(f);
    }

    template <bool WHOLE, class F>
    __device__ void each(F f) const {
#pragma unroll
        for (int u = 0; u < PARTS; ++u)
            f(u, a[u], WHOLE ? CHUNK : left - CHUNK * (int(threadIdx.x) % 4));
#pragma unroll
        for (int u = 0; u < PARTS; ++u) {
            const bool inside = WHOLE || int(threadIdx.x) / 16 + 8 * u < left;
            f(PARTS + u, b + 8 * u * ldb, inside ? (WIDE ? CHUNK : columns) : 0);
        }
    }

    __device__ void next() {
#pragma unroll
        for (int u = 0; u < PARTS; ++u) a[u] += DEPTH;
        b += DEPTH * ldb;
        left -= DEPTH;
    }
};
// --8<-- [end:operands]

// The sums of a warp: 4 x 4 tiles of 16 x 16, from slabs that are in shared memory.
template <class T, class Place>
struct WarpTile {
    Sums sums[4][4];
    int row = threadIdx.x / 64 * OWN, column = threadIdx.x / 32 % 2 * OWN;

    __device__ WarpTile() {
        for (auto& some : sums)
            for (auto& one : some) wmma::fill_fragment(one, 0);
    }

    __device__ void multiply(const T* slabs) {
#pragma unroll
        for (int k = 0; k < DEPTH; k += 16) {
            LeftTile<T> a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i)
                wmma::load_matrix_sync(a[i], slabs + Place::a(row + 16 * i, k / CHUNK),
                                       Place::left);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                RightTile<T> b;
                const T* const right = slabs + Place::second;
                wmma::load_matrix_sync(b, right + Place::b(k, column / CHUNK + 2 * j),
                                       Place::right);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    wmma::mma_sync(sums[i][j], a[i], b, sums[i][j]);
            }
        }
    }

    __device__ void write(T* C, void* shared, Corner tile, int M, int N) const {
        auto* const own = static_cast<float*>(shared) + threadIdx.x / 32 * 16 * PITCH;
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                ::write(C, sums[i][j], own, tile.row + row + 16 * i,
                        tile.column + column + 16 * j, M, N);
    }
};

// --8<-- [start:shared]
// A block shares what its warps multiply: each element is read from global memory once
// for 128 products. While a slab is on its way, nothing is multiplied.
template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2)
gemm_shared(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, int M,
            int N, int K, Index lda, Index ldb) {
    __shared__ __align__(128) T slabs[Padded::elements];
    const Corner tile = tile_of_block<SIDE, SIDE>(M, N);
    Operands<T, Padded, WIDE> operands(A, B, lda, ldb, tile, M, N, K);
    WarpTile<T, Padded> own;
    for (; operands.left > 0; operands.next()) {
        uint4 chunks[2 * PARTS];
        operands.each([&](int u, const T* from, int inside) {
            chunks[u] = chunk_of<WIDE>(from, inside);
        });
        __syncthreads();  // the slabs before are read
#pragma unroll
        for (int u = 0; u < 2 * PARTS; ++u)
            *reinterpret_cast<uint4*>(slabs + operands.place(u)) = chunks[u];
        __syncthreads();  // the slabs are complete
        own.multiply(slabs);
    }
    __syncthreads();  // the last slabs are read, and make room
    own.write(C, slabs, tile, M, N);
}
// --8<-- [end:shared]

// --8<-- [start:pipeline]
// Slabs on their way into shared memory: STAGES - 1 of them while one is multiplied.
constexpr int STAGES = 4;

// 16 bytes from global to shared memory, past the registers: they land at any time
// until awaited. Of what is outside nothing is read, and zeros are written.
template <bool WIDE, class T>
__device__ void copy(unsigned to, const T* from, int inside) {
    if (WIDE) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :: "r"(to), "l"(from), "r"(inside > 0 ? 16 : 0) : "memory");
        return;
    }
    const uint4 chunk = chunk_of<false>(from, inside);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(to), "r"(chunk.x),
                 "r"(chunk.y), "r"(chunk.z), "r"(chunk.w) : "memory");
}

template <class T, class Place, bool WIDE>
struct Pipeline {
    static constexpr unsigned BYTES = Place::elements * sizeof(T);  // of a stage
    Operands<T, Place, WIDE> operands;  // of the slabs that are asked for next
    unsigned base, asked = 0, taken = 0;  // shared addresses; stages begin so far on

    __device__ Pipeline(Operands<T, Place, WIDE> operands, const void* memory)
        : operands(operands),
          base(static_cast<unsigned>(__cvta_generic_to_shared(memory))) {
        for (int s = 0; s < STAGES - 1; ++s) ask();
    }

    // A group ends even where there is no slab left to copy: the newest groups are
    // then always as many.
    __device__ void ask() {
        if (operands.left > 0) {
            operands.each([&](int u, const T* from, int inside) {
                const unsigned at = operands.place(u) * sizeof(T);
                copy<WIDE>(base + asked + at, from, inside);
            });
            operands.next();
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        asked = asked == (STAGES - 1) * BYTES ? 0 : asked + BYTES;
    }

    // Where the next slabs are, in bytes, when they are there for all threads. All have
    // read those before, and their stage is free.
    __device__ unsigned take() {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        const unsigned found = taken;
        taken = taken == (STAGES - 1) * BYTES ? 0 : taken + BYTES;
        return found;
    }

    __device__ void end() {
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();  // nothing lands or is read any more
    }
};
// --8<-- [end:pipeline]

extern __shared__ __align__(128) unsigned char memory[];

// --8<-- [start:async]
template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2)
gemm_async(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, int M,
           int N, int K, Index lda, Index ldb) {
    const Corner tile = tile_of_block<SIDE, SIDE>(M, N);
    Pipeline<T, Padded, WIDE> pipeline({A, B, lda, ldb, tile, M, N, K}, memory);
    WarpTile<T, Padded> own;
    for (int k = 0; k < K; k += DEPTH) {
        const unsigned slabs = pipeline.take();
        pipeline.ask();
        own.multiply(reinterpret_cast<const T*>(memory + slabs));
    }
    pipeline.end();
    own.write(C, memory, tile, M, N);
}
// --8<-- [end:async]

// --8<-- [start:fragments]
// Four matrices of 8 x 8 elements: lanes 8 m to 8 m + 7 have the addresses of the rows
// of the m-th, and each lane gets two neighbours of each.
__device__ void load_matrices(unsigned (&to)[4], unsigned at) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ void load_transposed(unsigned (&to)[4], unsigned at) {
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// 16 x 8 sums of products over 16.
#define MULTIPLY(T, NAME) \
    __device__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned* b, T) { \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 " \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
    }
MULTIPLY(__half, "f16")
MULTIPLY(__nv_bfloat16, "bf16")

// What a warp multiplies at a time: 64 rows of A and 64 columns of B, 16 deep.
struct Fragments {
    unsigned a[4][4], b[4][4];

    // Where a lane finds its first row in a pair of slabs, in bytes. The others are so
    // far on that only one or two bits of the chunk's number change.
    static __device__ unsigned left() {
        const int lane = threadIdx.x % 32, row = threadIdx.x / 64 * OWN + lane % 16;
        return 2 * Swizzled::a(row, lane / 16);
    }
    static __device__ unsigned right() {
        const int lane = threadIdx.x % 32, column = threadIdx.x / 32 % 2 * OWN / CHUNK;
        return 2 * (Swizzled::second + Swizzled::b(lane % 16, column + lane / 16));
    }

    template <int K>
    __device__ void load(unsigned slabs, unsigned left, unsigned right) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_matrices(a[i], slabs + (left ^ K / CHUNK * 16) + 32 * i * DEPTH);
            load_transposed(b[i], slabs + (right ^ i * 32) + 2 * K * SIDE);
        }
    }
};
// --8<-- [end:fragments]

// --8<-- [start:turned]
// A warp writes its 64 x 64 sums, of which a lane has two neighbours of a row. They are
// turned round in shared memory, a row of eight chunks, so that 16 bytes leave at once.
template <class T>
__device__ void write_quarter(T* C, const float (&sums)[4][8][4], unsigned* scratch,
                              Corner tile, int M, int N) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned* const own = scratch + warp * OWN * OWN / 2;  // words of two elements
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int r = 16 * i + 8 * half + lane / 4;
                own[r * 32 + (j ^ r % 8) * 4 + lane % 4] =
                    rounded(sums[i][j][2 * half], sums[i][j][2 * half + 1], T());
            }
    __syncwarp();  // every lane's sums are there
    const int row = tile.row + warp / 2 * OWN, column = tile.column + warp % 2 * OWN;
#pragma unroll 4
    for (int r = lane / 8; r < OWN; r += 4) {
        const int c = lane % 8;
        const uint4 chunk = reinterpret_cast<const uint4*>(own)[r * 8 + (c ^ r % 8)];
        if (row + r < M)
            store_chunk(C + (row + r) * Index(N), chunk, column + CHUNK * c, N);
    }
}
// --8<-- [end:turned]

// --8<-- [start:ldmatrix]
// While a warp multiplies 16 of a slab's depth, the next 16 are on their way to its
// registers, also from one slab to the next.
template <class T, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2)
gemm_ldmatrix(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C,
              int M, int N, int K, Index lda, Index ldb) {
    const Corner tile = tile_of_block<SIDE, SIDE>(M, N);
    Pipeline<T, Swizzled, WIDE> pipeline({A, B, lda, ldb, tile, M, N, K}, memory);
    const unsigned left = pipeline.base + Fragments::left();
    const unsigned right = pipeline.base + Fragments::right();
    float sums[4][8][4] = {};
    Fragments parts[2];
    unsigned slabs = pipeline.take();
    if (K > 0) parts[0].load<0>(slabs, left, right);
    for (int k = 0; k < K; k += DEPTH) {
        pipeline.ask();
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            if (step == 0) {
                parts[1].load<16>(slabs, left, right);
            } else if (k + DEPTH < K) {
                slabs = pipeline.take();
                parts[0].load<0>(slabs, left, right);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 8; ++j)
                    mma(sums[i][j], parts[step].a[i], parts[step].b[j / 2] + j % 2 * 2,
                        T());
        }
    }
    pipeline.end();
    write_quarter(C, sums, reinterpret_cast<unsigned*>(memory), tile, M, N);
}
// --8<-- [end:ldmatrix]

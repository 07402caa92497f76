// Sums (SCAN = false) and running sums of rows of 16-bit numbers, M x N, rows `apart`
// elements apart, the result dense: by additions and shuffles, or products with ones.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#ifndef WITHOUT_LIBRARIES  // of what takes far longer to compile
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#endif

using namespace nvcuda;
using Index = long long;  // M * N may pass 2**31

constexpr unsigned ALL = 0xffffffff;  // every lane takes part
constexpr int LANES = 32, WARPS = 8, PACK = 8, HALF = LANES * PACK, TILE = 2 * HALF;

// --8<-- [start:naive]
// A thread a row: neighbours read elements a row apart, one after the other.
template <bool SCAN, class T>
__global__ void __launch_bounds__(128)
naive_rows(const T* x, T* out, Index m, Index n, Index apart) {
    const Index row = blockIdx.x * Index(128) + threadIdx.x;
    if (row >= m) return;
    float sum = 0;
    for (Index i = 0; i < n; ++i) {
        sum += float(x[row * apart + i]);
        if (SCAN) out[row * n + i] = T(sum);
    }
    if (!SCAN) out[row] = T(sum);
}
// --8<-- [end:naive]

// --8<-- [start:held]
// Two numbers of 16 bits side by side, and the float32 of both.
#define PAIRS(T, T2, PAIRED, PARTED) \
    __device__ unsigned paired(float low, float high, T) { \
        const T2 both = PAIRED(low, high); \
        return reinterpret_cast<const unsigned&>(both); \
    } \
    __device__ float2 parted(unsigned both, T) { \
        return PARTED(reinterpret_cast<const T2&>(both)); \
    }
PAIRS(__half, __half2, __floats2half2_rn, __half22float2)
PAIRS(__nv_bfloat16, __nv_bfloat162, __floats2bfloat162_rn, __bfloat1622float2)

// What a lane has of a warp's tile of 512: eight elements of the first half, side by
// side, and eight of the second. Beyond the row are zeros.
template <class T>
struct Held {
    unsigned pair[2][PACK / 2];

    static __device__ int place(int half) {
        return half * HALF + threadIdx.x % LANES * PACK;
    }

    // WIDE: as 16 bytes, since rows are whole packs and begin on 16.
    template <bool WIDE>
    __device__ void load(int half, const T* from, Index left) {
        uint4 words = {};
        if (WIDE && left > 0) words = *reinterpret_cast<const uint4*>(from);
        set(half, words);
        if (WIDE) return;
#pragma unroll
        for (int e = 0; e < PACK; ++e)
            if (e < left)
                pair[half][e / 2] |=
                    unsigned(reinterpret_cast<const unsigned short*>(from)[e])
                    << e % 2 * 16;
    }

    template <bool WIDE>
    __device__ void store(int half, T* to, Index left) const {
        // Nobody reads it here again; and the compiler may part what it knows to be 16.
        if (WIDE && left > 0) __stcs(reinterpret_cast<uint4*>(to), get(half));
        if (WIDE) return;
#pragma unroll
        for (int e = 0; e < PACK; ++e)
            if (e < left)
                reinterpret_cast<unsigned short*>(to)[e] =
                    pair[half][e / 2] >> e % 2 * 16;
    }

    __device__ void set(int half, uint4 words) {
        pair[half][0] = words.x, pair[half][1] = words.y;
        pair[half][2] = words.z, pair[half][3] = words.w;
    }

    __device__ uint4 get(int half) const {
        return {pair[half][0], pair[half][1], pair[half][2], pair[half][3]};
    }

    __device__ void parts(int half, float (&to)[PACK]) const {
#pragma unroll
        for (int e = 0; e < PACK; e += 2) {
            const float2 both = parted(pair[half][e / 2], T());
            to[e] = both.x, to[e + 1] = both.y;
        }
    }

    __device__ void join(int half, const float (&from)[PACK]) {
#pragma unroll
        for (int e = 0; e < PACK; e += 2)
            pair[half][e / 2] = paired(from[e], from[e + 1], T());
    }
};
// --8<-- [end:held]

// --8<-- [start:shuffles]
// By additions in a lane and shuffles between lanes; SEGMENT elements belong together.
template <class T>
struct Shuffles {
    static constexpr int BLOCKS = 4;  // that a multiprocessor is to have room for
    struct Scratch {};
    float own[2] = {};

    __device__ explicit Shuffles(Scratch*) {}

    template <int SEGMENT>
    __device__ void add(const Held<T>& x) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float of[PACK];
            x.parts(h, of);
#pragma unroll
            for (int e = 0; e < PACK; ++e) own[h] += of[e];
        }
    }

    // Sums of segments, each told by a lane that has it.
    template <int SEGMENT, class Tell>
    __device__ void sums(const Held<T>&, Tell tell) const {
        constexpr int lanes = (SEGMENT < HALF ? SEGMENT : HALF) / PACK;
        const int lane = threadIdx.x % LANES;
        float of[2] = {own[0], own[1]};
        if (SEGMENT == TILE) of[0] += of[1];
#pragma unroll
        for (int h = 0; h < (SEGMENT == TILE ? 1 : 2); ++h) {
#pragma unroll
            for (int apart = lanes / 2; apart > 0; apart /= 2)
                of[h] += __shfl_xor_sync(ALL, of[h], apart);
            if (lane % lanes == 0) tell((h * LANES + lane) / lanes, of[h]);
        }
    }

    template <int SEGMENT, class Tell>
    static __device__ void alone(const Held<T>& x, Tell tell) {
        Shuffles way(nullptr);
        way.template add<SEGMENT>(x);
        way.template sums<SEGMENT>(x, tell);
    }

    // What is before the tile is added to all of it.
    template <int SEGMENT>
    __device__ void scan(const Held<T>& x, float before, float (&y)[2][PACK]) const {
        constexpr int lanes = (SEGMENT < HALF ? SEGMENT : HALF) / PACK;
        const int lane = threadIdx.x % lanes;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float sum = 0;
            x.parts(h, y[h]);
#pragma unroll
            for (int e = 0; e < PACK; ++e) y[h][e] = sum += y[h][e];
#pragma unroll
            for (int apart = 1; apart < lanes; apart *= 2) {
                const float other = __shfl_up_sync(ALL, sum, apart, lanes);
                if (lane >= apart) sum += other;
            }
            const float left = __shfl_up_sync(ALL, sum, 1, lanes);
            const float first = lane ? before + left : before;
#pragma unroll
            for (int e = 0; e < PACK; ++e) y[h][e] += first;
            if (SEGMENT == TILE) before += __shfl_sync(ALL, sum, LANES - 1);
        }
    }
};
// --8<-- [end:shuffles]

// --8<-- [start:pieces]
// float32 as three numbers of 8 bits: what bfloat16 cuts off is the next piece's.
__device__ unsigned cut(float& low, float& high) {
    const unsigned a = __float_as_uint(low), b = __float_as_uint(high);
    low -= __uint_as_float(a & 0xffff0000), high -= __uint_as_float(b & 0xffff0000);
    return __byte_perm(a, b, 0x7632);
}
// --8<-- [end:pieces]

// --8<-- [start:wmma]
// By products as WMMA has them: half a tile is a matrix of 16 rows, and nothing says
// who has which element of it. So everything goes through shared memory.
template <class T>
struct Wmma {
    static constexpr int SIDE = 16, BLOCKS = 3;
    template <class E>
    using Left = wmma::fragment<wmma::matrix_a, SIDE, SIDE, SIDE, E, wmma::row_major>;
    template <class E>
    using Right = wmma::fragment<wmma::matrix_b, SIDE, SIDE, SIDE, E, wmma::row_major>;
    using Sums = wmma::fragment<wmma::accumulator, SIDE, SIDE, SIDE, float>;

    struct Scratch {
        alignas(32) T x[HALF];
        alignas(32) float sums[HALF];
        alignas(32) __nv_bfloat16 piece[HALF];
    };
    Scratch& own;
    Sums of_rows[2];  // in each column

    __device__ explicit Wmma(Scratch* scratch) : own(*scratch) {
        wmma::fill_fragment(of_rows[0], 0);
        wmma::fill_fragment(of_rows[1], 0);
    }

    __device__ Left<T> matrix(const Held<T>& x, int half) const {
        Left<T> a;
        __syncwarp();  // nobody reads the one before
        *reinterpret_cast<uint4*>(own.x + threadIdx.x % LANES * PACK) = x.get(half);
        __syncwarp();  // it is there
        wmma::load_matrix_sync(a, own.x, SIDE);
        return a;
    }

    template <int SEGMENT>
    __device__ void add(const Held<T>& x) {
        Right<T> right;
        wmma::fill_fragment(right, T(1.0f));
#pragma unroll
        for (int h = 0; h < 2; ++h)
            wmma::mma_sync(of_rows[h], matrix(x, h), right, of_rows[h]);
    }

    template <int SEGMENT, class Tell>
    __device__ void sums(const Held<T>&, Tell tell) const {
        constexpr int rows = (SEGMENT < HALF ? SEGMENT : HALF) / SIDE;
        const int lane = threadIdx.x % LANES;
        float of[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            __syncwarp();  // nobody reads the one before
            wmma::store_matrix_sync(own.sums, of_rows[h], SIDE, wmma::mem_row_major);
            __syncwarp();  // it is there
            of[h] = own.sums[lane % SIDE * SIDE];
        }
        if (SEGMENT == TILE) of[0] += of[1];
#pragma unroll
        for (int h = 0; h < (SEGMENT == TILE ? 1 : 2); ++h) {
#pragma unroll
            for (int apart = rows / 2; apart > 0; apart /= 2)
                of[h] += __shfl_xor_sync(ALL, of[h], apart);
            if (lane < SIDE && lane % rows == 0) tell((h * SIDE + lane) / rows, of[h]);
        }
    }

    // X U + L (X J), with X J in three pieces.
    template <int SEGMENT>
    __device__ void scan(const Held<T>& x, float before, float (&y)[2][PACK]) const {
        constexpr int rows = (SEGMENT < HALF ? SEGMENT : HALF) / SIDE;
        const int lane = threadIdx.x % LANES;
        Right<T> upper;
        Left<__nv_bfloat16> lower;
        __syncwarp();
        for (int i = lane; i < HALF; i += LANES) {
            const int row = i / SIDE, column = i % SIDE;
            own.x[i] = T(row <= column ? 1.0f : 0.0f);
            own.piece[i] = column < row && column / rows == row / rows ? 1.0f : 0.0f;
        }
        __syncwarp();  // the triangles are there
        wmma::load_matrix_sync(upper, own.x, SIDE);
        wmma::load_matrix_sync(lower, own.piece, SIDE);
        bool finite = true;
        float first = before;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            Sums sums;
            wmma::fill_fragment(sums, 0);
            wmma::mma_sync(sums, matrix(x, h), upper, sums);
            if (rows > 1) {
                float left[PACK];
                wmma::store_matrix_sync(own.sums, of_rows[h], SIDE,
                                        wmma::mem_row_major);
                __syncwarp();  // the sums of rows are there
#pragma unroll
                for (int e = 0; e < PACK; ++e) left[e] = own.sums[lane * PACK + e];
#pragma unroll
                for (int piece = 0; piece < 3; ++piece) {
                    Right<__nv_bfloat16> right;
                    __syncwarp();  // nobody reads the one before
#pragma unroll
                    for (int e = 0; e < PACK; e += 2)
                        reinterpret_cast<unsigned*>(own.piece)[(lane * PACK + e) / 2] =
                            cut(left[e], left[e + 1]);
                    __syncwarp();  // it is there
                    wmma::load_matrix_sync(right, own.piece, SIDE);
                    wmma::mma_sync(sums, lower, right, sums);
                }
            }
            __syncwarp();
            wmma::store_matrix_sync(own.sums, sums, SIDE, wmma::mem_row_major);
            __syncwarp();  // the running sums are there
#pragma unroll
            for (int e = 0; e < PACK; ++e)
                y[h][e] = first + own.sums[lane * PACK + e];
            if (SEGMENT == TILE) first += own.sums[HALF - 1];
            finite = finite && isfinite(y[h][0]);
        }
        // 0 times infinity is NaN, and would reach the elements before it.
        if (!__all_sync(ALL, finite))
            Shuffles<T>(nullptr).template scan<SEGMENT>(x, before, y);
    }
};
// --8<-- [end:wmma]

// --8<-- [start:mma]
// d += a b of 16 x 16 by 16 x 8, and two ones side by side.
#define MULTIPLY(T, NAME, ONES) \
    __device__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, \
                        unsigned b1, T) { \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 " \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
    } \
    __device__ unsigned ones(T) { return ONES; }
MULTIPLY(__half, "f16", 0x3c003c00)
MULTIPLY(__nv_bfloat16, "bf16", 0x3f803f80)
// --8<-- [end:mma]

// --8<-- [start:products]
// By products whose operands are where they were loaded. Four lanes have a group of 32
// elements, which is a row of A or a column of B; which of its places an element has
// is all one, as long as the ones beside it agree.
template <class T>
struct Products {
    static constexpr int BLOCKS = 4;
    struct Scratch {};
    float of_groups[2][4] = {};  // in lane t of four: of groups 2t and 2t + 1 of a half

    __device__ explicit Products(Scratch*) {}

    static __device__ int four() { return threadIdx.x % LANES / 4; }
    static __device__ int in_four() { return threadIdx.x % 4; }

    // Ones times B: the sums of its columns. Of segments of 16, the upper rows of ones
    // ask for one half of a group and the lower ones for the other.
    template <int SEGMENT>
    __device__ void add(const Held<T>& x) {
        const unsigned one = ones(T());
        const unsigned low = SEGMENT > 16 || in_four() < 2 ? one : 0;
        const unsigned high = SEGMENT > 16 || in_four() >= 2 ? one : 0;
        const unsigned a[4] = {low, high, low, high};
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int i = 0; i < 4; i += 2)
                mma(of_groups[h], a, x.pair[h][i], x.pair[h][i + 1], T());
    }

    template <int SEGMENT, class Tell>
    __device__ void sums(const Held<T>& x, Tell tell) const {
        const int t = in_four();
        if (SEGMENT == 16) {
            bool finite = true;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                finite = finite && isfinite(of_groups[i / 4][i % 4]);
            if (!__all_sync(ALL, finite))  // 0 times infinity is NaN
                return Shuffles<T>::template alone<SEGMENT>(x, tell);
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (four() == 0)
                    tell(16 * (i / 4) + 4 * t + 2 * (i % 2) + i % 4 / 2,
                         of_groups[i / 4][i % 4]);
            return;
        }
        constexpr int groups = SEGMENT / 32;
        float of[2][2];
#pragma unroll
        for (int i = 0; i < 4; ++i) of[i / 2][i % 2] = of_groups[i / 2][i % 2];
        if (groups == 16) of[0][0] += of[1][0], of[0][1] += of[1][1];
#pragma unroll
        for (int h = 0; h < (groups == 16 ? 1 : 2); ++h) {
            if (groups == 1) {
                if (four() == 0) tell(8 * h + 2 * t, of[h][0]);
                if (four() == 0) tell(8 * h + 2 * t + 1, of[h][1]);
                continue;
            }
            of[h][0] += of[h][1];
            if (groups >= 4) of[h][0] += __shfl_xor_sync(ALL, of[h][0], 1);
            if (groups >= 8) of[h][0] += __shfl_xor_sync(ALL, of[h][0], 2);
            if (four() == 0 && 2 * t % groups == 0)
                tell((8 * h + 2 * t) / groups, of[h][0]);
        }
    }

    // X U + L (S J): the sums S lie as a product has them, and so as B wants them.
    template <int SEGMENT>
    __device__ void scan(const Held<T>& x, float before, float (&y)[2][PACK]) const {
        const int row = four(), t = in_four();
        float first[4] = {before, before, before, before};
        if (SEGMENT > 32) {
            constexpr int groups = SEGMENT > 32 ? SEGMENT / 32 : 1;
            const auto earlier = [](int row, int column) {
                return column < row && column / groups == row / groups ? 0x3f80u : 0;
            };
            unsigned a[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int of = row + i % 2 * 8, column = 2 * t + i / 2 * 8;
                a[i] = earlier(of, column) | earlier(of, column + 1) << 16;
            }
            float left[2][2];
#pragma unroll
            for (int i = 0; i < 4; ++i) left[i / 2][i % 2] = of_groups[i / 2][i % 2];
#pragma unroll
            for (int piece = 0; piece < 3; ++piece) {
                const unsigned low = cut(left[0][0], left[0][1]);
                mma(first, a, low, cut(left[1][0], left[1][1]), __nv_bfloat16());
            }
        }
        // A lane has places 8t to 8t + 7 of a row, in pairs, and a column of ones is
        // that of place 8 (row / 2) + 2 q + row % 2.
        const bool before_it = t < row / 2 && (SEGMENT > 16 || t / 2 == row / 4);
        const bool beside_it = t == row / 2;
        const unsigned one = ones(T()), less = before_it ? one : 0;
        const unsigned up_to = before_it || beside_it ? one : 0;
        const unsigned same = !beside_it ? less : row % 2 ? one : one & 0xffff;
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            float d[4] = {first[0], first[1], first[2], first[3]};
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const unsigned a[4] = {x.pair[0][i], x.pair[1][i], x.pair[0][i + 1],
                                       x.pair[1][i + 1]};
                mma(d, a, i < q ? up_to : i > q ? less : same,
                    i + 1 < q ? up_to : i + 1 > q ? less : same, T());
            }
            y[0][2 * q] = d[0], y[0][2 * q + 1] = d[1];
            y[1][2 * q] = d[2], y[1][2 * q + 1] = d[3];
        }
        // 0 times infinity is NaN, and would reach the elements before it.
        if (!__all_sync(ALL, isfinite(y[0][0]) && isfinite(y[1][0])))
            Shuffles<T>(nullptr).template scan<SEGMENT>(x, before, y);
    }
};
// --8<-- [end:products]

// --8<-- [start:short]
// A warp has as many rows as its tile has segments, each padded with zeros.
template <template <class> class Way, class T, bool WIDE, int SEGMENT, bool SCAN>
__global__ void __launch_bounds__(WARPS * LANES)
short_rows(const T* x, T* out, Index m, Index n, Index apart) {
    __shared__ typename Way<T>::Scratch scratch[WARPS];
    const int warp = threadIdx.x / LANES;
    const Index row = (blockIdx.x * Index(WARPS) + warp) * (TILE / SEGMENT);
    if (row >= m) return;  // a warp as a whole
    Held<T> here;
    Index at[2], left[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int place = Held<T>::place(h);
        at[h] = row + place / SEGMENT;
        left[h] = at[h] < m ? n - place % SEGMENT : 0;
        here.template load<WIDE>(h, x + at[h] * apart + place % SEGMENT, left[h]);
    }
    Way<T> way(scratch + warp);
    way.template add<SEGMENT>(here);
    if (!SCAN) {
        way.template sums<SEGMENT>(here, [=](int segment, float sum) {
            if (row + segment < m) out[row + segment] = T(sum);
        });
        return;
    }
    float y[2][PACK];
    way.template scan<SEGMENT>(here, 0, y);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        here.join(h, y[h]);
        const Index to = at[h] * n + Held<T>::place(h) % SEGMENT;
        here.template store<WIDE>(h, out + to, left[h]);
    }
}
// --8<-- [end:short]

// --8<-- [start:long]
// A block has a row, each warp a tile at a time; the next is asked for before this one
// is added up.
template <template <class> class Way, class T, bool WIDE, bool SCAN>
__global__ void __launch_bounds__(WARPS * LANES, Way<T>::BLOCKS)
long_rows(const T* x, T* out, Index m, Index n, Index apart) {
    __shared__ typename Way<T>::Scratch scratch[WARPS];
    __shared__ float totals[2][WARPS];
    const int warp = threadIdx.x / LANES, warps = blockDim.x / LANES;
    const Index step = Index(warps) * TILE;
    x += blockIdx.x * apart;
    const auto load = [&](Index tile, Held<T>& to) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const Index at = tile + Held<T>::place(h);
            to.template load<WIDE>(h, x + at, n - at);
        }
    };
    Held<T> next;
    load(warp * TILE, next);
    if (!SCAN) {
        Way<T> way(scratch + warp);
        for (Index tile = warp * TILE; tile < n; tile += step) {
            const Held<T> here = next;
            load(tile + step, next);
            way.template add<TILE>(here);
        }
        way.template sums<TILE>(next, [&](int, float sum) { totals[0][warp] = sum; });
        __syncthreads();  // every warp's is there
        float sum = 0;
        for (int w = 0; w < warps; ++w) sum += totals[0][w];
        if (threadIdx.x == 0) out[blockIdx.x] = T(sum);
        return;
    }
    float running = 0;
    int turn = 0;
    for (Index tile = warp * TILE; tile - warp * TILE < n; tile += step, turn ^= 1) {
        Held<T> here = next;
        load(tile + step, next);
        Way<T> way(scratch + warp);
        way.template add<TILE>(here);
        way.template sums<TILE>(
            here, [&](int, float sum) { totals[turn][warp] = sum; });
        __syncthreads();  // every warp's is there; the others' turn has been read
        float before = running;
        for (int w = 0; w < warps; ++w) {
            const float total = totals[turn][w];
            before += w < warp ? total : 0.0f;
            running += total;
        }
        float y[2][PACK];
        way.template scan<TILE>(here, before, y);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const Index at = tile + Held<T>::place(h);
            here.join(h, y[h]);
            here.template store<WIDE>(h, out + blockIdx.x * n + at, n - at);
        }
    }
}
// --8<-- [end:long]

#ifndef WITHOUT_LIBRARIES
// --8<-- [start:cub]
template <bool WIDE, bool SCAN, class T>
__global__ void __launch_bounds__(WARPS * LANES)
cub_rows(const T* x, T* out, Index m, Index n, Index apart) {
    using Scan = cub::BlockScan<float, WARPS * LANES>;
    using Reduce = cub::BlockReduce<float, WARPS * LANES>;
    __shared__ union {
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
    } scratch;
    x += blockIdx.x * apart, out += SCAN ? blockIdx.x * n : blockIdx.x;
    float running = 0;
    for (Index tile = 0; tile < n; tile += WARPS * HALF) {
        const Index at = tile + threadIdx.x * PACK;
        Held<T> here;
        here.template load<WIDE>(0, x + at, n - at);
        float y[PACK], total;
        here.parts(0, y);
        if (!SCAN) {
#pragma unroll
            for (int e = 0; e < PACK; ++e) running += y[e];
            continue;
        }
        Scan(scratch.scan).InclusiveSum(y, y, total);
        __syncthreads();  // the scratch is free
#pragma unroll
        for (int e = 0; e < PACK; ++e) y[e] += running;
        here.join(0, y);
        running += total;
        here.template store<WIDE>(0, out + at, n - at);
    }
    if (SCAN) return;
    running = Reduce(scratch.reduce).Sum(running);
    if (threadIdx.x == 0) *out = T(running);
}
// --8<-- [end:cub]
#endif

// Sums of a tile as products whose operands are where they were loaded.
#pragma once
#include "tile.cuh"

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

    // --8<-- [start:adding]
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
    // --8<-- [end:adding]

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

    // --8<-- [start:scanning]
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
    // --8<-- [end:scanning]
};
// --8<-- [end:products]

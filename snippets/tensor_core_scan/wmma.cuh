// Sums of a tile as products of WMMA fragments, as they were published.
#pragma once
#include <mma.h>

#include "tile.cuh"

using namespace nvcuda;

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

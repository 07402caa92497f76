// Sums (SCAN = false) and running sums of rows of 16-bit numbers, M x N, rows `apart`
// elements apart, the result dense: by additions and shuffles, or products with ones.
#include "products.cuh"
#include "tile.cuh"
#include "wmma.cuh"
#ifndef WITHOUT_LIBRARIES  // of what takes far longer to compile
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#endif

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

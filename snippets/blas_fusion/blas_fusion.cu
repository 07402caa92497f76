// Calls of BLAS one kernel each, and fused: the same kernels with more of their work
// switched on. Matrices lie by rows. V is how many elements a thread reads at a time: 4
// where all begins on 16 bytes, else 1.

using Index = long long;  // a matrix may have more than 2**31 elements

constexpr unsigned ALL = 0xffffffff;  // every lane takes part
constexpr int LANES = 32, THREADS = 256, WARPS = THREADS / LANES;

template <int V>
struct alignas(4 * V) Pack {
    float of[V];
};

template <int V>
__device__ Pack<V> load(const float* from, bool there) {
    return there ? *reinterpret_cast<const Pack<V>*>(from) : Pack<V>{};
}

template <int V>
__device__ void store(float* to, const Pack<V>& x) {
    if constexpr (V == 4)  // by name: the compiler made four stores of a plain one
        __stwb(reinterpret_cast<float4*>(to),
               make_float4(x.of[0], x.of[1], x.of[2], x.of[3]));
    else
        *to = x.of[0];
}

// --8<-- [start:order]
// The sum of a block's values, in its first thread, always in the same order.
__device__ float of_block(float value, float* scratch) {
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(ALL, value, offset);
    if (lane == 0) scratch[warp] = value;
    __syncthreads();  // every warp's word is there
    if (warp == 0) {
        value = lane < WARPS ? scratch[lane] : 0.0f;
        for (int offset = LANES / 2; offset > 0; offset /= 2)
            value += __shfl_xor_sync(ALL, value, offset);
    }
    return value;
}

// The sum of all blocks' values. The last block to come adds them, in the order of the
// blocks and not of their coming: the same bits every time.
__device__ void of_grid(float value, float* parts, unsigned* ticket, float* sum) {
    __shared__ float scratch[WARPS];
    __shared__ bool last;
    value = of_block(value, scratch);
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = value;
        __threadfence();  // the part is there before it is counted
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
        __threadfence();  // the parts are read after they are counted
    }
    __syncthreads();  // all know whether they are the last
    if (!last) return;
    value = 0;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < gridDim.x; i += THREADS)
        value += __ldcg(parts + i);
    value = of_block(value, scratch);
    if (threadIdx.x == 0) *sum = value;
}
// --8<-- [end:order]

// --8<-- [start:vectors]
// AXPY: z = w - a v. DOT: the sum of z u; without AXPY z is w, and is not written.
constexpr int DEEP = 4;  // packs of each vector that a thread has on their way

template <int V, bool AXPY, bool DOT>
__global__ void __launch_bounds__(THREADS, 3)
vectors(const float* __restrict__ w, const float* __restrict__ v,
        const float* __restrict__ u, float* __restrict__ z, float* parts,
        unsigned* ticket, float* sum, Index n, float a) {
    const Index first = blockIdx.x * Index(THREADS * DEEP) + threadIdx.x;
    const Index packs = n / V, rest = n - V * packs;
    Pack<V> ws[DEEP], vs[DEEP], us[DEEP];  // all on their way before the first is used
#pragma unroll
    for (int d = 0; d < DEEP; ++d) {
        const Index i = first + d * THREADS;
        ws[d] = load<V>(w + V * i, i < packs);
        if (AXPY) vs[d] = load<V>(v + V * i, i < packs);
        if (DOT) us[d] = load<V>(u + V * i, i < packs);
    }
    float value = 0;
#pragma unroll
    for (int d = 0; d < DEEP; ++d) {
        const Index i = first + d * THREADS;
#pragma unroll
        for (int e = 0; e < V; ++e) {
            if (AXPY) ws[d].of[e] -= a * vs[d].of[e];
            if (DOT) value += ws[d].of[e] * us[d].of[e];
        }
        if (AXPY && i < packs) store(z + V * i, ws[d]);
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x < rest) {  // up to three elements
        const Index i = V * packs + threadIdx.x;
        float one = w[i];
        if (AXPY) z[i] = one -= a * v[i];
        if (DOT) value += one * u[i];
    }
    if (DOT) of_grid(value, parts, ticket, sum);
}
// --8<-- [end:vectors]

constexpr int STRIP = 256, GROUP = 8;  // rows of a block at most; rows at a time

// --8<-- [start:fold]
// Lane l has the warp's sum of value l / 4. A lane gives away half of what it has, and
// keeps half: 4 + 2 + 1 shuffles, and two more, for what 40 would do one by one.
__device__ float fold(float (&values)[GROUP]) {
#pragma unroll
    for (int half = GROUP / 2, offset = LANES / 2; half > 0; half /= 2, offset /= 2) {
        const bool upper = threadIdx.x & offset;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const float given = upper ? values[i] : values[i + half];
            const float kept = upper ? values[i + half] : values[i];
            values[i] = kept + __shfl_xor_sync(ALL, given, offset);
        }
    }
    float sum = values[0] + __shfl_xor_sync(ALL, values[0], 2);
    return sum + __shfl_xor_sync(ALL, sum, 1);
}
// --8<-- [end:fold]

// --8<-- [start:sweep]
// One pass over a matrix: THREADS * V columns and up to STRIP rows of it a block.
// RANKS: B = A + u1 v1^T + u2 v2^T, or the first alone, is written; B may be A itself.
// ROWS: the block's share of B right. COLUMNS: its share of B^T left.
template <int V, int RANKS, bool ROWS, bool COLUMNS>
__global__ void __launch_bounds__(THREADS, RANKS > 0 ? 2 : 3)
sweep(const float* a, Index apart, float* b, const float* __restrict__ u1,
      const float* __restrict__ v1, const float* __restrict__ u2,
      const float* __restrict__ v2, const float* __restrict__ right,
      const float* __restrict__ left, float* __restrict__ row_parts,
      float* __restrict__ column_parts, Index m, Index n, int strip) {
    __shared__ float lefts[STRIP], u1s[STRIP], u2s[STRIP], sums[WARPS][STRIP];
    const Index tiles = (n + THREADS * V - 1) / (THREADS * V);
    const Index tile = blockIdx.x % tiles, band = blockIdx.x / tiles;
    const int own = threadIdx.x, lane = own % LANES, warp = own / LANES;
    const Index column = (tile * THREADS + own) * V, top = band * strip;
    const int rows = m - top < strip ? m - top : strip;
    const bool there = column < n;
    if (COLUMNS) lefts[own] = own < rows ? left[top + own] : 0;
    if (RANKS > 0) u1s[own] = own < rows ? u1[top + own] : 0;
    if (RANKS > 1) u2s[own] = own < rows ? u2[top + own] : 0;
    Pack<V> rights, v1s, v2s, total{};
    if (ROWS) rights = load<V>(right + column, there);
    if (RANKS > 0) v1s = load<V>(v1 + column, there);
    if (RANKS > 1) v2s = load<V>(v2 + column, there);
    if (COLUMNS || RANKS > 0) __syncthreads();  // the factors of the rows are there
#pragma unroll 1
    for (int row = 0; row < rows; row += GROUP) {
        Pack<V> group[GROUP];  // all on their way before the first is used
        float across[GROUP] = {};
#pragma unroll
        for (int g = 0; g < GROUP; ++g)
            group[g] = load<V>(a + (top + row + g) * apart + column,
                               there && row + g < rows);
#pragma unroll
        for (int g = 0; g < GROUP; ++g) {
#pragma unroll
            for (int e = 0; e < V; ++e) {
                float& one = group[g].of[e];
                if (RANKS > 0) one += u1s[row + g] * v1s.of[e];
                if (RANKS > 1) one += u2s[row + g] * v2s.of[e];
                if (ROWS) across[g] += one * rights.of[e];
                if (COLUMNS) total.of[e] += one * lefts[row + g];
            }
            if (RANKS > 0 && there && row + g < rows)
                store(b + (top + row + g) * n + column, group[g]);
        }
        if (ROWS) {
            const float sum = fold(across);
            if (lane % 4 == 0) sums[warp][row + lane / 4] = sum;
        }
    }
    if (COLUMNS && there) store(column_parts + band * n + column, total);
    if (ROWS) {
        __syncthreads();  // every warp's sums of rows are there
        float sum = 0;
        for (int w = 0; w < WARPS; ++w) sum += own < rows ? sums[w][own] : 0;
        if (own < rows) row_parts[tile * m + top + own] = sum;
    }
}
// --8<-- [end:sweep]

// --8<-- [start:gather]
// y = a times the sum of the parts, in their order, and `plus` where there is one.
template <bool PLUS>
__global__ void __launch_bounds__(128)
gather(const float* __restrict__ parts, const float* __restrict__ plus,
       float* __restrict__ y, Index n, Index count, float a) {
    const Index i = blockIdx.x * Index(128) + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
#pragma unroll 8
    for (Index k = 0; k < count; ++k) sum += parts[k * n + i];
    y[i] = PLUS ? a * sum + plus[i] : a * sum;
}
// --8<-- [end:gather]

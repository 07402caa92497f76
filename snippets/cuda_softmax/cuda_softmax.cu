// Softmax of rows and its gradient, one operation for both: BACK = false makes y of x,
// BACK = true makes dx = y (dy - sum(y dy)) of y and dy. Rows of M x N lie `a_apart`
// and `b_apart` elements apart, elements of a row side by side; the result is dense.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Index = long long;  // M * N may pass 2**31

constexpr unsigned ALL = 0xffffffff;  // every lane takes part
constexpr int LANES = 32, TREE = 256, ROWS = 8;  // rows of a block of warps

template <class T>
struct Sum {
    using type = float;
};
template <>
struct Sum<double> {
    using type = double;
};

// --8<-- [start:operation]
__device__ float power(float t) { return exp2f(t * 1.4426950408889634f); }
__device__ double power(double t) { return exp(t); }

// What is known of some of a row: its maximum and the sum of exp(x - maximum); of a
// gradient the sum of y dy alone. Aligned, so that both are one access.
template <class S>
struct alignas(2 * sizeof(S)) Stat {
    S top, sum;
};

template <class S>
__device__ S lowest() {
    return S(__int_as_float(0xff800000));  // -inf
}

// Of K elements, those beyond the row being -inf, or 0 of a gradient: the maximum
// first, then the sum of exponentials below it. Of a gradient one look is enough.
template <bool BACK, class S, int K>
__device__ void look(Stat<S>& known, const S (&a)[K], const S (&b)[K]) {
#pragma unroll
    for (int i = 0; i < K; ++i)
        if (BACK) known.sum += a[i] * b[i];
        else known.top = max(known.top, a[i]);
}

template <class S, int K>
__device__ void look_again(Stat<S>& known, const S (&a)[K]) {
    const S from = known.top == lowest<S>() ? S(0) : known.top;  // -inf - -inf is NaN
#pragma unroll
    for (int i = 0; i < K; ++i) known.sum += power(a[i] - from);
}

template <bool BACK, class S, int K>
__device__ Stat<S> stat_of(const S (&a)[K], const S (&b)[K]) {
    Stat<S> found = {lowest<S>(), 0};
    look<BACK>(found, a, b);
    if (!BACK) look_again(found, a);
    return found;
}

// The online recurrence: a sum is rescaled where the other maximum is higher.
template <bool BACK, class S>
__device__ Stat<S> join(Stat<S> one, Stat<S> other) {
    if (BACK) return {one.top, one.sum + other.sum};
    const S top = max(one.top, other.top), shift = top == lowest<S>() ? S(0) : top;
    const S sum = one.sum * power(one.top - shift);
    return {top, sum + other.sum * power(other.top - shift)};
}

template <bool BACK, class S>
__device__ S result(S a, S b, Stat<S> of_row) {
    return BACK ? a * (b - of_row.sum) : power(a - of_row.top) / of_row.sum;
}
// --8<-- [end:operation]

// --8<-- [start:naive]
// A thread a row. Neighbours read elements a row apart, and each one twice.
template <bool BACK, class T>
__global__ void __launch_bounds__(128)
softmax_naive(const T* a, const T* b, T* out, Index m, Index n, Index a_apart,
              Index b_apart) {
    using S = typename Sum<T>::type;
    const Index row = blockIdx.x * Index(128) + threadIdx.x;
    if (row >= m) return;
    a += row * a_apart, b += row * b_apart, out += row * n;
    Stat<S> of_row = {lowest<S>(), 0};
    for (Index i = 0; i < n; ++i) {
        const S one[1] = {S(a[i])}, other[1] = {S(b[i])};
        of_row = join<BACK>(of_row, stat_of<BACK>(one, other));
    }
    for (Index i = 0; i < n; ++i) out[i] = T(result<BACK>(S(a[i]), S(b[i]), of_row));
}
// --8<-- [end:naive]

// --8<-- [start:tree]
// A block a row: neighbours read neighbours. What threads know is joined by halves.
template <bool BACK, class T>
__global__ void __launch_bounds__(TREE)
softmax_tree(const T* a, const T* b, T* out, Index m, Index n, Index a_apart,
             Index b_apart) {
    using S = typename Sum<T>::type;
    __shared__ Stat<S> known[TREE];
    const int own = threadIdx.x;
    a += blockIdx.x * a_apart, b += blockIdx.x * b_apart, out += blockIdx.x * n;
    Stat<S> mine = {lowest<S>(), 0};
    for (Index i = own; i < n; i += TREE) {
        const S one[1] = {S(a[i])}, other[1] = {S(b[i])};
        mine = join<BACK>(mine, stat_of<BACK>(one, other));
    }
    known[own] = mine;
    for (int half = TREE / 2; half > 0; half /= 2) {
        __syncthreads();  // those to be joined are there
        if (own < half) known[own] = join<BACK>(known[own], known[own + half]);
    }
    __syncthreads();  // the row's is there
    const Stat<S> of_row = known[0];
    for (Index i = own; i < n; i += TREE)
        out[i] = T(result<BACK>(S(a[i]), S(b[i]), of_row));
}
// --8<-- [end:tree]

// --8<-- [start:packs]
// V elements side by side: 16 bytes, or one where rows do not begin on 16.
template <class T, int V>
struct Pack {
    alignas(sizeof(T) * V) T of[V];
};

// As 16 bytes, whatever they are: the compiler then makes one access of them.
template <class T, int V>
__device__ Pack<T, V> load(const T* from) {
    Pack<T, V> found;
    if constexpr (V == 1) found.of[0] = *from;
    else reinterpret_cast<uint4&>(found) = *reinterpret_cast<const uint4*>(from);
    return found;
}

template <class T, int V>
__device__ void store(T* to, const Pack<T, V>& what) {
    if constexpr (V == 1) *to = what.of[0];
    else *reinterpret_cast<uint4*>(to) = reinterpret_cast<const uint4&>(what);
}

template <class S, class T, int V>
__device__ void unpack(const Pack<T, V>& pack, S (&to)[V]) {
#pragma unroll
    for (int e = 0; e < V; ++e) to[e] = S(pack.of[e]);
}

// Forgets that a pack was unpacked before: 16 bits would be kept as 32, and spill.
template <class T, int V>
__device__ void forget(Pack<T, V>& pack) {
    if constexpr (V == 8) {
        uint4& words = reinterpret_cast<uint4&>(pack);
        asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
    }
}
// --8<-- [end:packs]

// --8<-- [start:all]
// Of all that share a row, in every one of them: a warp by shuffles alone, a block by a
// word a warp.
template <bool BACK, bool ALONE, class S>
__device__ Stat<S> of_all(Stat<S> mine, Stat<S>* scratch) {
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        mine = join<BACK>(mine, {__shfl_xor_sync(ALL, mine.top, offset),
                                 __shfl_xor_sync(ALL, mine.sum, offset)});
    if (ALONE) return mine;
    const int lane = threadIdx.x % LANES, warps = blockDim.x / LANES;
    if (lane == 0) scratch[threadIdx.x / LANES] = mine;
    __syncthreads();  // every warp's is there
    mine = lane < warps ? scratch[lane] : Stat<S>{lowest<S>(), 0};
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        mine = join<BACK>(mine, {__shfl_xor_sync(ALL, mine.top, offset),
                                 __shfl_xor_sync(ALL, mine.sum, offset)});
    return mine;
}
// --8<-- [end:all]

// --8<-- [start:held]
// A warp (ALONE) or a block has a row, and keeps it in registers as it was read: PER
// packs a thread. So each element crosses memory once each way.
template <bool BACK, class T, int V, int PER, bool ALONE>
__global__ void __launch_bounds__(ALONE ? ROWS * LANES : 1024)
softmax_held(const T* a, const T* b, T* out, Index m, Index n, Index a_apart,
             Index b_apart) {
    using S = typename Sum<T>::type;
    __shared__ Stat<S> scratch[LANES];
    const int threads = ALONE ? LANES : blockDim.x, own = threadIdx.x % threads;
    const Index row = ALONE ? blockIdx.x * Index(ROWS) + threadIdx.x / LANES
                            : Index(blockIdx.x);
    if (row >= m) return;  // a warp as a whole
    a += row * a_apart, b += row * b_apart, out += row * n;
    Pack<T, V> as[PER], bs[BACK ? PER : 1];
#pragma unroll
    for (int p = 0; p < PER; ++p) {
        const Index i = (Index(p) * threads + own) * V;
        if (i < n) {
            as[p] = load<T, V>(a + i);
            if (BACK) bs[p] = load<T, V>(b + i);
        } else {
#pragma unroll
            for (int e = 0; e < V; ++e) {
                as[p].of[e] = T(BACK ? S(0) : lowest<S>());
                if (BACK) bs[p].of[e] = T(S(0));
            }
        }
    }
    Stat<S> mine = {lowest<S>(), 0};
#pragma unroll
    for (int p = 0; p < PER; ++p) {
        S ones[V], others[V] = {};
        unpack(as[p], ones);
        if (BACK) unpack(bs[p], others);
        look<BACK>(mine, ones, others);
        forget(as[p]);
        if (BACK) forget(bs[p]);
    }
#pragma unroll
    for (int p = 0; p < PER && !BACK; ++p) {
        S ones[V];
        unpack(as[p], ones);
        look_again(mine, ones);
        forget(as[p]);
    }
    const Stat<S> of_row = of_all<BACK, ALONE>(mine, scratch);
#pragma unroll
    for (int p = 0; p < PER; ++p) {
        const Index i = (Index(p) * threads + own) * V;
        if (i >= n) continue;
        S ones[V], others[V] = {};
        unpack(as[p], ones);
        if (BACK) unpack(bs[p], others);
        Pack<T, V> made;
#pragma unroll
        for (int e = 0; e < V; ++e)
            made.of[e] = T(result<BACK>(ones[e], others[e], of_row));
        store(out + i, made);
    }
}
// --8<-- [end:held]

// --8<-- [start:streamed]
// A block a row of any length, read twice: forwards, and then backwards, since what was
// read last is the likeliest to be in the L2 still.
template <bool BACK, class T, int V>
__global__ void __launch_bounds__(1024)
softmax_streamed(const T* a, const T* b, T* out, Index m, Index n, Index a_apart,
                 Index b_apart) {
    using S = typename Sum<T>::type;
    __shared__ Stat<S> scratch[LANES];
    const Index first = Index(threadIdx.x) * V, step = Index(blockDim.x) * V;
    a += blockIdx.x * a_apart, b += blockIdx.x * b_apart, out += blockIdx.x * n;
    Stat<S> mine = {lowest<S>(), 0};
    for (Index i = first; i < n; i += step) {
        S ones[V], others[V] = {};
        unpack(load<T, V>(a + i), ones);
        if (BACK) unpack(load<T, V>(b + i), others);
        mine = join<BACK>(mine, stat_of<BACK>(ones, others));
    }
    const Stat<S> of_row = of_all<BACK, false>(mine, scratch);
    const Index last = first < n ? (n - 1 - first) / step * step + first : -1;
    for (Index i = last; i >= 0; i -= step) {
        S ones[V], others[V] = {};
        unpack(load<T, V>(a + i), ones);
        if (BACK) unpack(load<T, V>(b + i), others);
        Pack<T, V> made;
#pragma unroll
        for (int e = 0; e < V; ++e)
            made.of[e] = T(result<BACK>(ones[e], others[e], of_row));
        store(out + i, made);
    }
}
// --8<-- [end:streamed]

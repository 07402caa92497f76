// Two convolutions along a line. Depthwise and causal: each channel has W taps of its
// own, and an output sees its input and the W - 1 before it. Dense: every output
// channel sees all C inputs through S taps, and GroupNorm and Mish follow.

using Index = long long;  // a tensor may have more than 2**31 elements

constexpr unsigned ALL = 0xffffffff;  // every lane takes part
constexpr int LANES = 32, THREADS = 256, WARPS = THREADS / LANES;

struct Half {
    unsigned short bits;
};
struct Bfloat16 {
    unsigned short bits;
};

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(Bfloat16 x) {
    return __uint_as_float(unsigned(x.bits) << 16);
}
__device__ inline float wide(Half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ inline void round_to(float* to, float x) { *to = x; }
__device__ inline void round_to(Half* to, float x) {
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
}
__device__ inline void round_to(Bfloat16* to, float x) {
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
}

// Two neighbours in one word, the first below.
__device__ inline unsigned both(Half, float first, float second) {
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
__device__ inline unsigned both(Bfloat16, float first, float second) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

template <class T, int V>
struct Pack {
    alignas(V * sizeof(T)) T of[V];
};

template <class T, int V>
__device__ Pack<T, V> load(const T* from, bool there) {
    return there ? *reinterpret_cast<const Pack<T, V>*>(from) : Pack<T, V>{};
}

template <class T, int V>
__device__ void store(T* to, const float (&y)[V]) {
    if constexpr (V == 1) {
        round_to(to, y[0]);
    } else if constexpr (V == 4) {  // by name: a plain store may become four
        __stwb(reinterpret_cast<float4*>(to), make_float4(y[0], y[1], y[2], y[3]));
    } else {
        const T t{};
        __stwb(reinterpret_cast<uint4*>(to),
               make_uint4(both(t, y[0], y[1]), both(t, y[2], y[3]),
                          both(t, y[4], y[5]), both(t, y[6], y[7])));
    }
}

// x / (1 + exp(-x)). By name: what __expf and __fdividef do about the smallest numbers
// costs three instructions more, and their results are added to 1.
__device__ inline float silu_of(float x) {
    float e, one_over;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * -1.4426950408889634f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(one_over) : "f"(1.0f + e));
    return x * one_over;
}

// --8<-- [start:naive]
// A thread an output; each input is asked for W times. Rows are numbered through all
// images, and have `across` blocks each.
template <class T>
__global__ void __launch_bounds__(THREADS)
depthwise_naive(const T* __restrict__ x, Index image, Index channel,
                const T* __restrict__ taps, Index tap_row, const T* __restrict__ bias,
                T* __restrict__ y, int channels, Index length, int width,
                unsigned across, int biased, int silu) {
    const unsigned row = blockIdx.x / across;
    const Index at = blockIdx.x % across * Index(THREADS) + threadIdx.x;
    if (at >= length) return;
    const unsigned own = row % channels;
    const T* const from = x + row / channels * image + own * channel;
    float sum = biased ? wide(bias[own]) : 0.0f;
    for (int w = 0; w < width; ++w) {
        const Index i = at - (width - 1) + w;
        if (i >= 0) sum += wide(taps[own * tap_row + w]) * wide(from[i]);
    }
    round_to(y + row * length + at, silu ? silu_of(sum) : sum);
}
// --8<-- [end:naive]

// --8<-- [start:packs]
// V elements a load, 16 bytes or one element. A warp has DEEP * 32 packs of a row side
// by side: pack d of a lane is d * 32 packs after its first.
template <class T, int V, int W, int DEEP>
__global__ void __launch_bounds__(THREADS)
depthwise(const T* __restrict__ x, Index image, Index channel,
          const T* __restrict__ taps, Index tap_row, const T* __restrict__ bias,
          T* __restrict__ y, int channels, Index length, unsigned across, int biased,
          int silu) {
    constexpr int NEAR = (W - 1 + V - 1) / V;  // packs before a lane's that it needs
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const unsigned row = blockIdx.x / across, part = blockIdx.x % across;
    const unsigned own = row % channels;
    const T* const from = x + row / channels * image + own * channel;
    const Index begin =
        (part * Index(blockDim.x / LANES) + warp) * (LANES * DEEP) + lane;
    const Index packs = length / V;
    if (begin - lane >= packs) return;  // the whole warp

    // All on their way before the first is used. Of the packs before the warp's the
    // last lanes load what the first will need.
    Pack<T, V> packed[DEEP], before{};
    if (NEAR > 0)
        before = load<T, V>(from + (begin - LANES) * V,
                            lane >= LANES - NEAR && begin >= LANES);
#pragma unroll
    for (int d = 0; d < DEEP; ++d) {
        const Index i = begin + d * LANES;
        packed[d] = load<T, V>(from + i * V, i < packs);
    }
    float tap[W];
#pragma unroll
    for (int w = 0; w < W; ++w) tap[w] = wide(taps[own * tap_row + w]);
    const float start = biased ? wide(bias[own]) : 0.0f;

    // Element i - j lies n packs before element i, where i begins a pack. What comes
    // round from the last lanes is what the first need with the next pack.
    auto from_below = [&](const Pack<T, V>& pack, int j) {
        const int n = (j + V - 1) / V;
        return __shfl_sync(ALL, wide(pack.of[n * V - j]), (lane - n) & (LANES - 1));
    };
    float round[W];
#pragma unroll
    for (int j = 1; j < W; ++j) round[j] = from_below(before, j);
#pragma unroll
    for (int d = 0; d < DEEP; ++d) {
        float seen[W - 1 + V], out[V];
#pragma unroll
        for (int j = 1; j < W; ++j) {
            const float below = from_below(packed[d], j);
            seen[W - 1 - j] = lane < (j + V - 1) / V ? round[j] : below;
            round[j] = below;
        }
#pragma unroll
        for (int e = 0; e < V; ++e) seen[W - 1 + e] = wide(packed[d].of[e]);
#pragma unroll
        for (int e = 0; e < V; ++e) {
            out[e] = start;
#pragma unroll
            for (int w = 0; w < W; ++w) out[e] += tap[w] * seen[e + w];
            if (silu) out[e] = silu_of(out[e]);
        }
        const Index i = begin + d * LANES;
        if (i < packs) store(y + row * length + i * V, out);
    }
}
// --8<-- [end:packs]

// --8<-- [start:sum]
// The sum of a block's values, in every thread, always in the same order.
__device__ inline float of_block(float value, float* words) {
    for (int offset = LANES / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(ALL, value, offset);
    if (threadIdx.x % LANES == 0) words[threadIdx.x / LANES] = value;
    __syncthreads();  // every warp's word is there
    value = 0;
    for (int w = 0; w < WARPS; ++w) value += words[w];
    return value;
}

// x tanh(log(1 + exp x)), without a difference of near numbers.
__device__ inline float mish(float x) {
    const float e = expf(fminf(x, 20.0f));  // from there on tanh is 1
    const float n = e * (e + 2.0f);
    return x * (n / (n + 2.0f));
}
// --8<-- [end:sum]

// --8<-- [start:chain]
// A thread an output, over all channels and taps.
__global__ void __launch_bounds__(THREADS)
dense_conv(const float* __restrict__ x, Index image, Index channel,
           const float* __restrict__ taps, const float* __restrict__ bias,
           float* __restrict__ y, int C, int T, int K, int S, Index outputs) {
    const Index at = blockIdx.x * Index(THREADS) + threadIdx.x;
    if (at >= outputs) return;
    const int t = at % T, k = at / T % K;
    const float* const from = x + at / T / K * image;
    float sum = 0;
    for (int c = 0; c < C; ++c)
        for (int s = 0; s < S; ++s) {
            const int i = t + s - S / 2;
            if (0 <= i && i < T)
                sum += taps[(Index(k) * C + c) * S + s] * from[c * channel + i];
        }
    y[at] = sum + bias[k];
}

// GroupNorm and Mish, a block an image and group, whose n outputs lie side by side.
__global__ void __launch_bounds__(THREADS)
dense_norm(const float* __restrict__ x, const float* __restrict__ gamma,
           const float* __restrict__ beta, float* __restrict__ y, int T, int groups,
           int channels, float eps) {
    __shared__ float words[2][WARPS];
    const Index n = Index(channels) * T, first = blockIdx.x * n;
    float sum = 0, squares = 0;
    for (Index i = threadIdx.x; i < n; i += THREADS) sum += x[first + i];
    const float mean = of_block(sum, words[0]) / n;
    for (Index i = threadIdx.x; i < n; i += THREADS) {
        const float off = x[first + i] - mean;
        squares += off * off;
    }
    const float scale = rsqrtf(of_block(squares, words[1]) / n + eps);
    for (Index i = threadIdx.x; i < n; i += THREADS) {
        const int k = blockIdx.x % groups * channels + i / T;
        y[first + i] = mish((x[first + i] - mean) * scale * gamma[k] + beta[k]);
    }
}
// --8<-- [end:chain]

// --8<-- [start:slab]
// What a warp stages at a time: 8 input channels at TIMES times and 4 on either side,
// and 16 output channels' taps on them. A lane has 2 of the 16 rows at all times and
// every fourth input channel: 32 lanes read taps from 32 banks. Pitches are odd numbers
// of 16 bytes, so that what is copied to 8 rows goes to different banks too.
constexpr int DEPTH = 8, ROWS = 16, SIDE = 4, STAGES = 3, SPLIT = 4;

template <int S, int TIMES>
struct Slab {
    static_assert(S % 2 == 1 && S / 2 <= SIDE, "the sides hold half of the taps");
    static constexpr int PITCH = DEPTH * S + 4;
    static constexpr int SPAN = TIMES + 2 * SIDE;
    static constexpr int WIDTH = SPAN + (TIMES == 4 ? 0 : 4);
    static constexpr int FLOATS = ROWS * PITCH + DEPTH * WIDTH;
    static constexpr int SHARE = ROWS * TIMES + 4;  // sums of the lanes of a channel
    static_assert(SPLIT * SHARE <= STAGES * FLOATS, "the shares lie where slabs lay");
};

// Global memory to shared, past the registers; zeros for what is not there, and then
// nothing is read, wherever `from` is.
template <int V>
__device__ void copy(float* to, const float* from, bool there) {
    const unsigned at = __cvta_generic_to_shared(to);
    if constexpr (V == 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at),
                     "l"(from), "r"(there ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at),
                     "l"(from), "r"(there ? 4 : 0)
                     : "memory");
}
// --8<-- [end:slab]

// --8<-- [start:cluster]
__device__ inline unsigned blocks_of_cluster() {
    unsigned size;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    return size;
}

// All threads of all blocks meet; what they wrote before is there for all.
__device__ inline void meet() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The word that stands at this place in the shared memory of another block.
__device__ inline float word_of(unsigned rank, const float* word) {
    const unsigned here = __cvta_generic_to_shared(word);
    float value;
    asm volatile(
        "{\n.reg .u32 there;\nmapa.shared::cluster.u32 there, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [there];\n}"
        : "=f"(value)
        : "r"(here), "r"(rank)
        : "memory");
    return value;
}

// The sum over the block, or over all blocks of its cluster, in the order of the ranks.
template <bool CLUSTER>
__device__ float of_group(float value, float* words, float* own) {
    value = of_block(value, words);
    if constexpr (CLUSTER) {
        if (threadIdx.x == 0) *own = value;
        meet();
        value = 0;
        for (unsigned rank = 0; rank < blocks_of_cluster(); ++rank)
            value += word_of(rank, own);
    }
    return value;
}
// --8<-- [end:cluster]

// --8<-- [start:fused]
// Convolution, GroupNorm and Mish. A block, or a cluster of `parts`, has a group of
// channels of an image at all times; a block has `each` of the channels.
template <int S, int TIMES, int V, bool CLUSTER>
__global__ void __launch_bounds__(THREADS, 2)
dense_fused(const float* __restrict__ x, Index image, Index channel,
            const float* __restrict__ taps, const float* __restrict__ bias,
            const float* __restrict__ gamma, const float* __restrict__ beta,
            float* __restrict__ y, int C, int T, int K, int groups, int parts,
            int each, float eps) {
    using Stage = Slab<S, TIMES>;
    constexpr int PITCH = Stage::PITCH, WIDTH = Stage::WIDTH;
    constexpr int REGION = STAGES * Stage::FLOATS;  // of a warp
    extern __shared__ __align__(16) float memory[];
    __shared__ float words[2][WARPS], sums_of_block[2];
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int channels = K / groups, unit = blockIdx.x / parts;
    const int group = unit % groups, low = blockIdx.x % parts * each;
    const int first = group * channels + min(low, channels);
    const int last = group * channels + min(low + each, channels);
    const float* const from = x + unit / groups * image;
    float* const stages = memory + warp * REGION;
    float* const held = memory + WARPS * REGION;  // outputs of the block

// --8<-- [start:ask]
    auto ask = [&](int stage, int k, int t, int c) {
        constexpr int HIGH = V == 4 ? ROWS : 1;  // rows of taps that are copied at once
        float* const to = stages + stage * Stage::FLOATS;
        if (c < C) {
#pragma unroll
            for (int high = 0; high < ROWS; high += HIGH) {
                const int row = high + lane % HIGH;
                const float* const line = taps + (Index(k + row) * C + c) * S;
#pragma unroll
                for (int at = lane / HIGH * V; at < DEPTH * S; at += LANES / HIGH * V)
                    copy<V>(to + row * PITCH + at, line + at,
                            k + row < last && at < (C - c) * S);
            }
            const int row = lane % DEPTH;
            const float* const line = from + (c + row) * channel + t - SIDE;
#pragma unroll
            for (int i = lane / DEPTH * V; i < Stage::SPAN; i += LANES / DEPTH * V) {
                const int at = (i + SIDE) % Stage::SPAN;  // the sides last
                const int when = t - SIDE + at;
                copy<V>(to + ROWS * PITCH + row * WIDTH + at, line + at,
                        c + row < C && 0 <= when && when < T);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
// --8<-- [end:ask]

// --8<-- [start:loop]
    const int tall = lane / SPLIT, deep = lane % SPLIT;
    for (int k = first; k < last; k += ROWS) {
        for (int t = 0; t < T; t += TIMES) {
            float sums[2][TIMES] = {};  // of rows `tall` and `tall` + 8
            // Input channels are dealt to the warps by slabs. Each waits for itself.
            constexpr int STEP = WARPS * DEPTH;
            const int begin = warp * DEPTH;
            ask(0, k, t, begin);
            ask(1, k, t, begin + STEP);
            for (int c = begin, now = 0; c < C; c += STEP) {
                asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
                __syncwarp();  // this slab is there for all lanes, the last one is read
                ask(now == 0 ? STAGES - 1 : now - 1, k, t, c + 2 * STEP);
                const float* const stage = stages + now * Stage::FLOATS;
#pragma unroll
                for (int i = deep; i < DEPTH; i += SPLIT) {
                    float seen[Stage::SPAN];
                    const float* const line = stage + ROWS * PITCH + i * WIDTH;
#pragma unroll
                    for (int e = 0; e < Stage::SPAN; e += 4) {
                        const auto four = load<float, 4>(line + e, true);
#pragma unroll
                        for (int f = 0; f < 4; ++f) seen[e + f] = four.of[f];
                    }
#pragma unroll
                    for (int s = 0; s < S; ++s)
#pragma unroll
                        for (int r = 0; r < 2; ++r) {
                            const float tap = stage[(tall + 8 * r) * PITCH + i * S + s];
#pragma unroll
                            for (int e = 0; e < TIMES; ++e)
                                sums[r][e] += tap * seen[SIDE - S / 2 + s + e];
                        }
                }
                now = now == STAGES - 1 ? 0 : now + 1;
            }
            __syncwarp();  // all lanes have read the last slab
#pragma unroll
            for (int r = 0; r < 2; ++r)
#pragma unroll
                for (int e = 0; e < TIMES; e += 4)
                    *reinterpret_cast<float4*>(stages + deep * Stage::SHARE +
                                               (tall + 8 * r) * TIMES + e) =
                        make_float4(sums[r][e], sums[r][e + 1], sums[r][e + 2],
                                    sums[r][e + 3]);
            __syncthreads();  // every lane's share of the sums is there
            const int row = threadIdx.x / TIMES, when = t + threadIdx.x % TIMES;
            if (row < ROWS && k + row < last && when < T) {
                float sum = 0;
                for (int w = 0; w < WARPS; ++w)
#pragma unroll
                    for (int i = 0; i < SPLIT; ++i)
                        sum += memory[w * REGION + i * Stage::SHARE + threadIdx.x];
                held[(k - first + row) * T + when] = sum + bias[k + row];
            }
            __syncthreads();  // the shares are read, and the outputs there
        }
    }

// --8<-- [end:loop]
// --8<-- [start:norm]
    const int own = (last - first) * T;
    const float n = float(channels) * T;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < own; i += THREADS) sum += held[i];
    const float mean = of_group<CLUSTER>(sum, words[0], &sums_of_block[0]) / n;
    for (int i = threadIdx.x; i < own; i += THREADS) {
        const float off = held[i] - mean;
        squares += off * off;
    }
    const float variance =
        of_group<CLUSTER>(squares, words[1], &sums_of_block[1]) / n;
    const float scale = rsqrtf(variance + eps);
    float* const to = y + (Index(unit / groups) * K + first) * T;
    for (int i = threadIdx.x * V; i < own; i += THREADS * V) {
        const int k = first + i / T;
        const float factor = scale * gamma[k], plus = beta[k];
        const auto pack = load<float, V>(held + i, true);
        float out[V];
#pragma unroll
        for (int e = 0; e < V; ++e) out[e] = mish((pack.of[e] - mean) * factor + plus);
        store(to + i, out);
    }
    if (CLUSTER) meet();  // no block leaves while another reads its sums
// --8<-- [end:norm]
}
// --8<-- [end:fused]

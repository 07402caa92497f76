// A tile of 512 numbers of 16 bits in the lanes of a warp, and its sums by shuffles.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Index = long long;  // M * N may pass 2**31

constexpr unsigned ALL = 0xffffffff;  // every lane takes part
constexpr int LANES = 32, WARPS = 8, PACK = 8, HALF = LANES * PACK, TILE = 2 * HALF;

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

// Sums of products: 8 rows by 8 columns at a time, in registers.
#include "matrix.hpp"
#ifdef __FMA__
#include <immintrin.h>
#endif

namespace {

// Products are exact: fused where the machine can, which only matters where they leave the range of f32.
inline __attribute__((always_inline)) Eight fused(f32 a, Eight b, Eight c) {
#ifdef __FMA__
    return Eight(_mm256_fmadd_ps(_mm256_set1_ps(a), __m256(b), __m256(c)));
#else
    return a * b + c;
#endif
}

// Calls f(byte of a's number in its image, its image, b's row) for each k in order.
template <bool back, u32 per, class F> inline __attribute__((always_inline)) void along(u32 words, F f) {
    for (u32 j = 0; j < words; ++j)
        for (u32 t = 0; t < 4; ++t)
            for (u32 e = 0; e < per; ++e) {
                const u32 w = back ? words - 1 - j : j, s = back ? 3 - t : t, o = back ? per - 1 - e : e;
                f(w, 32 * o + s, (w * per + o) * 32 + s * 8);
            }
}

template <bool back, u32 per> void sum(const f32* a, u32 stride, const f32* b, u32 words, Sums<f32>& d) {
    Eight s[8];
    for (int r = 0; r < 8; ++r) {
        if (back) s[r] = Eight{};
        else memcpy(&s[r], d.x[r], 32);
    }
    along<back, per>(words, [&](u32 image, u32 at, u32 row) __attribute__((always_inline)) {
        Eight v;
        memcpy(&v, b + row, 32);
        const f32* p = a + image * stride + at;
        _Pragma("GCC unroll 8") for (int r = 0; r < 8; ++r) s[r] = fused(p[4 * r], v, s[r]);
    });
    for (int r = 0; r < 8; ++r) {
        if (back) {
            Eight c;
            memcpy(&c, d.x[r], 32);
            s[r] += c;
        }
        memcpy(d.x[r], &s[r], 32);
    }
}

template <u32 per> void sum(const s32* a, u32 stride, const s32* b, u32 words, Sums<s32>& d) {
    EightInts s[8] = {};
    along<false, per>(words, [&](u32 image, u32 at, u32 row) __attribute__((always_inline)) {
        EightInts v;
        memcpy(&v, b + row, 32);
        const s32* p = a + image * stride + at;
        _Pragma("GCC unroll 8") for (int r = 0; r < 8; ++r) s[r] += p[4 * r] * v;
    });
    memcpy(d.x, s, sizeof s);
}

}  // namespace

void multiply(const f32* a, u32 stride, const f32* b, u32 words, u32 per, u32 order, Sums<f32>& d) {
    switch (per) {
    case 1: order ? sum<true, 1>(a, stride, b, words, d) : sum<false, 1>(a, stride, b, words, d); break;
    case 2: order ? sum<true, 2>(a, stride, b, words, d) : sum<false, 2>(a, stride, b, words, d); break;
    default: order ? sum<true, 4>(a, stride, b, words, d) : sum<false, 4>(a, stride, b, words, d); break;
    }
}

void multiply(const s32* a, u32 stride, const s32* b, u32 words, u32 per, Sums<s32>& d) {
    if (per == 4) sum<4>(a, stride, b, words, d);
    else sum<8>(a, stride, b, words, d);
}

void count_bits(const s32* a, u32 stride, const s32* b, u32 words, bool exclusive, Sums<s32>& d) {
    memset(d.x, 0, sizeof d.x);
    for (u32 j = 0; j < words; ++j)
        for (u32 t = 0; t < 4; ++t)
            for (int r = 0; r < 8; ++r)
                for (int n = 0; n < 8; ++n) {
                    const u32 x = u32(a[j * stride + 4 * r + t]), y = u32(b[32 * j + 8 * t + n]);
                    d.x[r][n] += __builtin_popcount(exclusive ? x ^ y : x & y);
                }
}

// Matrices of floats for the tensor cores: elements of all formats made floats, and their products.
#pragma once
#include "core.hpp"
#if defined(__FMA__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace tcgen {
enum Format : u8 { F16, BF16, TF32, E4M3, E5M2, E2M3, E3M2, E2M1, U8, S8, UE8M0, UE4M3 };
}
using namespace tcgen;

// The value of each byte of a format of up to 8 bits.
const float* format_table(Format f);

typedef float Eight __attribute__((vector_size(32), aligned(4)));
static inline Eight fused(Eight a, Eight b, Eight c) {
#ifdef __FMA__
    return (Eight)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// out[n][0..15] = sum over k of a[k * lda + 0..15] * b[n * depth + k], for `count` n, a multiple of 4.
void multiply16(const float* a, u32 lda, const float* b, u32 count, u32 depth, float* out);

// Products of small matrices, and the values of narrow formats.
#include "panels.hpp"

namespace {

float small(u32 bits, int exponent, int mantissa, int bias) {  // sign, exponent, mantissa; no infinities
    const u32 e = bits >> mantissa & ((1u << exponent) - 1), m = bits & ((1u << mantissa) - 1);
    const float v = e ? std::ldexp(float((1u << mantissa) + m), int(e) - bias - mantissa)
                      : std::ldexp(float(m), 1 - bias - mantissa);
    return bits >> (exponent + mantissa) & 1 ? -v : v;
}

struct Tables {
    float all[12][256];
    Tables() {
        const float nan = as<float>(0x7fffffffu);
        for (u32 b = 0; b < 256; ++b) {
            all[E4M3][b] = (b & 0x7f) == 0x7f ? nan : small(b, 4, 3, 7);
            all[UE4M3][b] = (b & 0x7f) == 0x7f ? nan : small(b & 0x7f, 4, 3, 7);
            const u32 e = b >> 2 & 31;
            all[E5M2][b] = e == 31 ? (b & 3 ? nan : b & 0x80 ? -INFINITY : INFINITY) : small(b, 5, 2, 15);
            all[E2M3][b] = small(b & 0x3f, 2, 3, 1);
            all[E3M2][b] = small(b & 0x3f, 3, 2, 3);
            all[E2M1][b] = small(b & 0xf, 2, 1, 1);
            all[U8][b] = float(b);
            all[S8][b] = float(s8(b));
            all[UE8M0][b] = b == 255 ? nan : std::ldexp(1.0f, int(b) - 127);
        }
    }
};

template <int N> static inline void some(const float* a, u32 lda, const float* b, u32 depth, float* out) {
    Eight c[N][2] = {};
    for (u32 k = 0; k < depth; ++k) {
        const Eight x = *(const Eight*)(a + size_t(k) * lda), y = *(const Eight*)(a + size_t(k) * lda + 8);
        for (int n = 0; n < N; ++n) {
            const float s = b[size_t(n) * depth + k];
            const Eight v = {s, s, s, s, s, s, s, s};
            c[n][0] = fused(x, v, c[n][0]);
            c[n][1] = fused(y, v, c[n][1]);
        }
    }
    for (int n = 0; n < N; ++n) {
        *(Eight*)(out + n * 16) = c[n][0];
        *(Eight*)(out + n * 16 + 8) = c[n][1];
    }
}

}  // namespace

const float* format_table(Format f) {
    static const Tables tables;
    return tables.all[f];
}

void multiply16(const float* a, u32 lda, const float* b, u32 count, u32 depth, float* out) {
    for (u32 n = 0; n < count; n += 4) some<4>(a, lda, b + size_t(n) * depth, depth, out + size_t(n) * 16);
}

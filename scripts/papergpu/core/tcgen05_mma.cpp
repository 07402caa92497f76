// What tcgen05.mma computes, when it lands.
#include "tensor_memory.hpp"
#include <algorithm>
#if defined(__FMA__) || defined(__F16C__)
#include <immintrin.h>
#endif

// ---- Products of small matrices, and the values of narrow formats.

namespace {

typedef float Eight __attribute__((vector_size(32), aligned(4)));
static inline Eight fused(Eight a, Eight b, Eight c) {
#ifdef __FMA__
    return (Eight)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

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

// The value of each byte of a format of up to 8 bits.
const float* format_table(Format f) {
    static const Tables tables;
    return tables.all[f];
}

// out[n][0..15] = sum over k of a[k * lda + 0..15] * b[n * depth + k], for `count` n, a multiple of 4.
void multiply16(const float* a, u32 lda, const float* b, u32 count, u32 depth, float* out) {
    for (u32 n = 0; n < count; n += 4) some<4>(a, lda, b + size_t(n) * depth, depth, out + size_t(n) * 16);
}

// ---- tcgen05.mma

constexpr u32 LANES = TENSOR_LANES;

static inline float half(u16 bits) { return float(as<f16>(bits)); }

// 16 bytes made floats; `packed` says that elements of 4 bits fill them. Returns how many.
u32 expand(Format f, const u8* p, bool packed, float* to) {
    switch (f) {
    case F16:
#ifdef __F16C__
        _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)));
#else
        for (int k = 0; k < 8; ++k) {
            u16 b;
            memcpy(&b, p + 2 * k, 2);
            to[k] = half(b);
        }
#endif
        return 8;
    case BF16: {
        u16 t[8];
        memcpy(t, p, 16);
        for (int k = 0; k < 8; ++k) to[k] = as<float>(u32(t[k]) << 16);
        return 8;
    }
    case TF32: {
        u32 t[4];
        memcpy(t, p, 16);
        for (int k = 0; k < 4; ++k) to[k] = as<float>(t[k] & 0xffffe000u);
        return 4;
    }
    case E2M1: {
        const float* v = format_table(f);
        const int n = packed ? 16 : 8;
        for (int k = 0; k < n; ++k) {
            to[2 * k] = v[p[k] & 15];
            to[2 * k + 1] = v[p[k] >> 4];
        }
        return u32(2 * n);
    }
    case E2M3:
    case E3M2: {
        const float* v = format_table(f);
        for (int k = 0; k < 4; ++k) {
            const u32 t = p[3 * k] | p[3 * k + 1] << 8 | p[3 * k + 2] << 16;
            for (int e = 0; e < 4; ++e) to[4 * k + e] = v[t >> 6 * e & 63];
        }
        return 16;
    }
    default: {
        const float* v = format_table(f);
        for (int k = 0; k < 16; ++k) to[k] = v[p[k]];
        return 16;
    }
    }
}

struct Room {
    std::vector<float> rows, a, b, folded, out;
};
Room& scratch() {
    static thread_local Room r;
    return r;
}

// A of one block, as [k][lane of D].
void read_a(const Mma& x, size_t q, float* a) {
    Block& b = *x.blocks[q];
    float piece[32];
    if (x.a_in_tensor) {
        const u32* T = tensor_words(b) + size_t(x.a & 0xffff) * LANES;
        const u32 each = x.k / 8;  // elements of a word
        for (u32 c = 0; c < 8; ++c)
            for (u32 l = 0; l < LANES; ++l) {
                const u32 word = T[size_t(c) * LANES + l];
                for (u32 e = 0; e < each; ++e) {
                    float v;
                    if (each == 1) v = as<float>(word & 0xffffe000u);
                    else if (each == 2)
                        v = x.a_format == F16 ? half(u16(word >> 16 * e)) : as<float>(word >> 16 * e << 16);
                    else if (each == 4) v = format_table(x.a_format)[word >> 8 * e & 255];
                    else v = format_table(E2M1)[word >> 4 * e & 15];
                    a[size_t(c * each + e) * LANES + l] = v;
                }
            }
    } else {
        const Slices& s = x.a_slices[q];
        const u32 rows = x.rows();
        const bool packed = x.kind >= KIND_MXF4;
        std::vector<float>& r = scratch().rows;
        r.resize(size_t(x.k) * rows);
        if (s.along_k)
            for (u32 m = 0; m < rows; ++m) {
                u32 k = 0;
                for (u32 j = 0; j < 2; ++j) {
                    const u32 n = expand(x.a_format, b.shared + s.at[m * 2 + j], packed, piece);
                    for (u32 e = 0; e < n; ++e) r[size_t(k++) * rows + m] = piece[e];
                }
            }
        else {
            const u32 across = u32(s.at.size()) / x.k;
            for (u32 k = 0; k < x.k; ++k) {
                float* to = &r[size_t(k) * rows];
                for (u32 c = 0; c < across; ++c) to += expand(x.a_format, b.shared + s.at[k * across + c], packed, to);
            }
        }
        for (u32 g = 0; g < 8; ++g)
            if (x.has(g)) {
                const u32 m = x.row_of(16 * g);
                for (u32 k = 0; k < x.k; ++k) memcpy(a + size_t(k) * LANES + 16 * g, &r[size_t(k) * rows + m], 64);
            }
    }
    if (x.a_negated)
        for (size_t k = 0; k < size_t(x.k) * LANES; ++k) a[k] = -a[k];
}

// All of B, as [n][k].
void read_b(const Mma& x, float* to) {
    const u32 rows = x.n / x.group;
    const bool packed = x.kind >= KIND_MXF4;
    float piece[32];
    for (size_t q = 0; q < x.blocks.size(); ++q, to += size_t(rows) * x.k) {
        const Slices& s = x.b_slices[q];
        const u8* shared = x.blocks[q]->shared;
        if (s.along_k) {
            float* at = to;
            for (u32 c = 0; c < rows * 2; ++c) {
                const u32 n = expand(x.b_format, shared + s.at[c], packed, piece);
                memcpy(at, piece, n * 4);
                at += n;
            }
        } else {
            const u32 across = u32(s.at.size()) / x.k;
            for (u32 k = 0; k < x.k; ++k) {
                u32 n = 0;
                for (u32 c = 0; c < across; ++c) {
                    const u32 count = expand(x.b_format, shared + s.at[k * across + c], packed, piece);
                    for (u32 e = 0; e < count; ++e) to[size_t(n++) * x.k + k] = piece[e];
                }
            }
        }
    }
    if (x.b_negated) {
        to -= size_t(x.n) * x.k;
        for (size_t k = 0; k < size_t(x.n) * x.k; ++k) to[k] = -to[k];
    }
}

// The scale s of row (or column) r that the quarter p of the lanes sees.
float scale(const Mma& x, const Block& b, u32 address, u32 id, u32 p, u32 r, u32 s) {
    const u32 word = ((const u32*)b.tensor)[size_t((address & 0xffff) + r / 32) * LANES + 32 * p + r % 32];
    return format_table(x.scale_format)[word >> 8 * (id + s) & 255];
}

static inline bool usual(float v) { return v > 0x1p-30f && v < 0x1p30f; }

// 16 lanes of D and `count` of its columns: out is added to what is there.
void finish(const Mma& x, u32* T, u32 lane, u32 count, const float* out, u32 lanes) {
    const float by = std::ldexp(1.0f, -int(x.scale_d));
    for (u32 n = 0; n < count; ++n) {
        u32* d = T + size_t(n) * LANES + lane;
        alignas(64) u32 t[16];
        const float* o = out + n * 16;
        if (x.result == D_F32) {
            if (!x.accumulate) memcpy(t, o, 64);
            else {
                float old[16], s[16];
                memcpy(old, d, 64);
                if (x.scale_d)
                    for (int l = 0; l < 16; ++l) old[l] *= by;
                for (int l = 0; l < 16; ++l) s[l] = o[l] + old[l];
                memcpy(t, s, 64);
            }
        } else if (x.result == D_F16) {
            for (int l = 0; l < 16; ++l) {
                const float old = x.accumulate ? half(u16(d[l])) * by : 0.0f;
                t[l] = as<u16>(f16(x.accumulate ? o[l] + old : o[l]));
            }
        } else {
            for (int l = 0; l < 16; ++l) {
                const s64 sum = s64(s32(o[l])) + (x.accumulate ? s64(s32(d[l])) : 0);
                t[l] = u32(x.saturate ? std::clamp<s64>(sum, -2147483648ll, 2147483647ll) : sum);
            }
        }
        if (lanes == 0xffff) memcpy(d, t, 64);
        else
            for (int l = 0; l < 16; ++l)
                if (lanes >> l & 1) d[l] = t[l];
    }
}

}  // namespace

void run_mma(const Mma& x) {
    Room& r = scratch();
    r.a.resize(size_t(x.k) * LANES);
    r.b.resize(size_t(x.n) * x.k);
    r.out.resize(256 * 16);
    read_b(x, r.b.data());
    const u32 count = x.columns(), depth = x.scales ? x.k / x.scales : x.k;
    for (size_t q = 0; q < x.blocks.size(); ++q) {
        Block& b = *x.blocks[q];
        u32* T = tensor_words(b) + size_t(x.d & 0xffff) * LANES;
        std::fill(r.a.begin(), r.a.end(), 0.0f);
        read_a(x, q, r.a.data());
        for (u32 p = 0; p < 4; ++p) {  // the quarters of the lanes
            const float* panel = r.b.data() + size_t(p * x.folds() / 4) * count * x.k;
            float as_[32][4], bs[256][4];
            bool fold = true;
            if (x.scales) {
                for (u32 s = 0; s < x.scales; ++s) {
                    for (u32 l = 0; l < 32; ++l)
                        fold &= usual(as_[l][s] = scale(x, b, x.a_scales, x.a_scale_id, p, x.row_of(32 * p + l), s));
                    for (u32 n = 0; n < count; ++n)
                        fold &= usual(bs[n][s] = scale(x, b, x.b_scales, x.b_scale_id, p, n, s));
                }
                if (fold) {  // exact: a few bits each, and no exponent at its end
                    r.folded.resize(size_t(count) * x.k);
                    for (u32 k = 0; k < x.k; ++k)
                        for (u32 l = 0; l < 32; ++l) r.a[size_t(k) * LANES + 32 * p + l] *= as_[l][k / depth];
                    for (u32 n = 0; n < count; ++n)
                        for (u32 k = 0; k < x.k; ++k)
                            r.folded[size_t(n) * x.k + k] = panel[size_t(n) * x.k + k] * bs[n][k / depth];
                    panel = r.folded.data();
                }
            }
            for (u32 g = 2 * p; g < 2 * p + 2; ++g)
                if (x.has(g)) {
                    const u32 lane = 16 * g, off = x.masked ? x.disabled[4 * q + lane / 32] >> lane % 32 & 0xffff : 0;
                    if (off == 0xffff) continue;
                    if (fold) multiply16(&r.a[lane], LANES, panel, count, x.k, r.out.data());
                    else
                        for (u32 n = 0; n < count; ++n)
                            for (u32 l = 0; l < 16; ++l) {
                                double sum = 0;
                                for (u32 s = 0; s < x.scales; ++s) {
                                    double part = 0;
                                    for (u32 k = s * depth; k < (s + 1) * depth; ++k)
                                        part += double(r.a[size_t(k) * LANES + lane + l]) * panel[size_t(n) * x.k + k];
                                    sum += part * as_[lane % 32 + l][s] * bs[n][s];
                                }
                                r.out[n * 16 + l] = float(sum);
                            }
                    finish(x, T, lane, count, r.out.data(), ~off & 0xffff);
                }
        }
    }
}

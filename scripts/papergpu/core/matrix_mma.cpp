// Products of matrices in registers: mma and wmma.mma.
#include "matrix.hpp"
#include <algorithm>
#ifdef __AVX2__
#include <immintrin.h>
#endif

// ---- Sums of products: 8 rows by 8 columns at a time, in registers.

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

// ---- mma and wmma.mma

namespace {

void operations(Warp& w, const Inst& i, u64 n) {
    if (launch_of(w).profile) count_of(w, i).operations += n;
}

// The list: d, a, b, c, each image by image: all that lie beside each other along m or n, then on along k;
// of sums those beside each other along m, then on along n.
struct Lists {
    const u32 *d, *a, *b, *c;
};
Lists lists_of(const Warp& w, const Inst& i, const Product& p, u32 sums) {  // registers of d and c, of 64 sums each
    const u32* q = list(w, i);
    const u32 na = p.m / 8 * p.words(), nb = p.n / 8 * p.words(), blocks = p.m / 8 * (p.n / 8);
    (void)sums;
    const u32 nd = blocks * (p.d == F16 ? 1 : 2);
    return {q, q + nd, q + nd + na, q + nd + na + nb};
}

void floats(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const Lists q = lists_of(w, i, p, 0);
    const u32 per = per_word(p.a), words = p.words(), down = p.m / 8, image = per * 32, order = launch_of(w).order;
    alignas(64) f32 a[2048], b[512];
    alignas(64) u32 t[32];
    for (u32 j = 0; j < down * words; ++j) numbers(p.a, (const u32*)(R + q.a[j]), a + j * image);
    static thread_local Sums<f32> d[16];
    for (u32 n = 0; n < p.n / 8; ++n) {
        for (u32 j = 0; j < words; ++j) {
            turned((const u32*)(R + q.b[j * (p.n / 8) + n]), t);
            numbers(p.b, t, b + j * image);
        }
        for (u32 r = 0; r < down; ++r) {
            Sums<f32>& s = d[n * down + r];
            load_sums(R, q.c + (n * down + r) * (p.c == F16 ? 1 : 2), p.c, s);
            multiply(a + r * image, down * image, b, words, per, order, s);
        }
    }
    for (u32 k = 0; k < down * (p.n / 8); ++k) store_sums(R, q.d + k * (p.d == F16 ? 1 : 2), p.d, d[k]);
    operations(w, i, 2ull * p.m * p.n * p.k);
}
void integers(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const Lists q = lists_of(w, i, p, 0);
    const u32 per = per_word(p.a), words = p.words(), down = p.m / 8, image = per * 32;
    alignas(64) s32 a[2048], b[512];
    alignas(64) u32 t[32];
    for (u32 j = 0; j < down * words; ++j) numbers(p.a, (const u32*)(R + q.a[j]), a + j * image);
    static thread_local Sums<s32> d[16];
    for (u32 n = 0; n < p.n / 8; ++n) {
        for (u32 j = 0; j < words; ++j) {
            turned((const u32*)(R + q.b[j * (p.n / 8) + n]), t);
            numbers(p.b, t, b + j * image);
        }
        for (u32 r = 0; r < down; ++r) {
            Sums<s32>& s = d[n * down + r];
            Sums<s32> c;
            load_sums(R, q.c + (n * down + r) * 2, c);
            if (p.a == B1) count_bits(a + r * image, down * image, b, words, p.exclusive, s);
            else multiply(a + r * image, down * image, b, words, per, s);
            add_sums(s, c, p.saturate);
        }
    }
    for (u32 k = 0; k < down * (p.n / 8); ++k) store_sums(R, q.d + k * 2, d[k]);
    operations(w, i, 2ull * p.m * p.n * (p.a == B1 ? p.k * 32 : p.k));
}
// 64 bits: a register holds 8 rows of 4 numbers.
void doubles(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const Lists q = lists_of(w, i, p, 0);
    const u32 words = p.k / 4, down = p.m / 8;
    const bool back = launch_of(w).order;
    static thread_local f64 d[4][2][32];
    for (u32 r = 0; r < down; ++r)
        for (u32 n = 0; n < p.n / 8; ++n)
            for (u32 e = 0; e < 2; ++e)
                for (u32 l = 0; l < 32; ++l) {
                    const u32 row = l / 4, column = l % 4 * 2 + e, block = n * down + r;
                    const f64 c = ((const f64*)(R + q.c[2 * block + e]))[l];
                    f64 s = back ? 0 : c;
                    for (u32 j = 0; j < p.k; ++j) {
                        const u32 k = back ? p.k - 1 - j : j;
                        s = std::fma(((const f64*)(R + q.a[k / 4 * down + r]))[row * 4 + k % 4],
                                     ((const f64*)(R + q.b[k / 4 *(p.n / 8) + n]))[column * 4 + k % 4], s);
                    }
                    d[block][e][l] = back ? s + c : s;
                }
    for (u32 k = 0; k < down * (p.n / 8); ++k)
        for (u32 e = 0; e < 2; ++e) memcpy(R + q.d[2 * k + e], d[k][e], 256);
    operations(w, i, 2ull * p.m * p.n * p.k);
}

// Volta's m8n8k4: four products, each of 8 lanes: 4 * u and on, and 16 + 4 * u and on. flags as before;
// saturate: a lies column by column, exclusive: b row by row.
void quarters(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const u32* q = list(w, i);
    const bool back = launch_of(w).order;
    const u32 nd = p.d == F16 ? 4 : 8, nc = p.c == F16 ? 4 : 8;
    const u32 *qa = q + nd, *qb = qa + 2, *qc = qb + 2;
    (void)nc;
    auto half = [R](u32 at, u32 lane, u32 k) { return widen_half(((const u32*)(R + at))[lane] >> 16 * k & 0xffff); };
    static thread_local f32 d[32][8];
    for (u32 u = 0; u < 4; ++u) {
        auto lane = [u](u32 k) { return k < 4 ? 4 * u + k : 16 + 4 * u + k - 4; };  // its k-th lane, of 8
        f32 a[8][4], b[4][8], s[8][8];
        for (u32 x = 0; x < 8; ++x)
            for (u32 e = 0; e < 4; ++e) {
                const f32 va = half(qa[e / 2], lane(x), e % 2), vb = half(qb[e / 2], lane(x), e % 2);
                if (p.saturate) a[x / 4 * 4 + e][x % 4] = va;
                else a[x][e] = va;
                if (p.exclusive) b[x % 4][x / 4 * 4 + e] = vb;
                else b[e][x] = vb;
            }
        auto where = [](bool narrow, u32 x, u32 e, u32& r, u32& n) {
            if (narrow) {
                r = x;
                n = e;
            } else {
                r = x / 4 * 4 + (x & 1) + (e & 2);
                n = (e & 4) + (x & 2) + (e & 1);
            }
        };
        for (u32 x = 0; x < 8; ++x)
            for (u32 e = 0; e < 8; ++e) {
                u32 r, n;
                where(p.c == F16, x, e, r, n);
                const f32 c = p.c == F16 ? half(qc[e / 2], lane(x), e % 2) : ((const f32*)(R + qc[e]))[lane(x)];
                f32 t = back ? 0 : c;
                for (u32 k = 0; k < 4; ++k) t += a[r][back ? 3 - k : k] * b[back ? 3 - k : k][n];
                s[r][n] = back ? t + c : t;
            }
        for (u32 x = 0; x < 8; ++x)
            for (u32 e = 0; e < 8; ++e) {
                u32 r, n;
                where(p.d == F16, x, e, r, n);
                d[lane(x)][e] = s[r][n];
            }
    }
    for (u32 l = 0; l < 32; ++l)
        for (u32 e = 0; e < nd; ++e) {
            if (p.d == F16) ((u32*)(R + q[e]))[l] = narrow_half(d[l][2 * e]) | u32(narrow_half(d[l][2 * e + 1])) << 16;
            else ((f32*)(R + q[e]))[l] = d[l][e];
        }
    operations(w, i, 2ull * 4 * 8 * 8 * 4);
}

// Scaled blocks: along k each row of a and each column of b has a factor for every k / scales elements. The list:
// d, a, b, c; then of a and of b the factors, which byte of them is the first, and which lanes of four give them.
enum { SCALES = 16, PACKED = 1 << 19, FRACTIONS = 1 << 20 };  // flags; FRACTIONS: factors are ue4m3, not ue8m0

u32 same_in_all(const Warp& w, u32 at, const char* what, u32 below, u32 step) {
    const u32 found = get<u16>(w.R, at, 0);
    for (int l = 1; l < 32; ++l)
        if (get<u16>(w.R, at, l) != found) fault_lane(l, "gives another %s than lane 0: all must give one", what);
    if (found >= below || found % step)
        fault("gives the %s %u: it must be a multiple of %u below %u", what, found, step, below);
    return found;
}

void scaled(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const u32 scales = i.flags >> SCALES & 7, depth = p.k / scales, per = i.flags & PACKED ? 8 : 4;
    const u32 *q = list(w, i), *qa = q + 4, *qb = qa + 4, *qc = qb + 2, *qs = qc + 4;
    alignas(64) f32 a[1024], b[512];
    auto widen = [&](u32 kind, u32 at, f32* to) {
        if (per == 8) spread((const u32*)(R + at), 8, 4, to, widen_small<2, 1>);
        else numbers(kind, (const u32*)(R + at), to);
    };
    for (u32 j = 0; j < 4; ++j) widen(p.a, qa[j], a + j * per * 32);
    for (u32 j = 0; j < 2; ++j) widen(p.b, qb[j], b + j * per * 32);
    const u32 bytes = scales == 4 ? 1 : 4;  // from which the first factor may be taken
    const u32 at_a = same_in_all(w, qs[1], "byte-id-a", bytes, scales),
              lane_a = same_in_all(w, qs[2], "thread-id-a", 2, 1);
    const u32 at_b = same_in_all(w, qs[4], "byte-id-b", bytes, scales),
              lane_b = same_in_all(w, qs[5], "thread-id-b", 4, 1);
    auto factor = [&](u32 at, u32 lane, u32 byte) {
        const u32 x = ((const u32*)(R + at))[lane] >> 8 * byte & 255;
        return i.flags & FRACTIONS ? f64(widen_e4m3(x & 127)) : x == 255 ? f64(NAN) : std::ldexp(1.0, int(x) - 127);
    };
    Sums<f32> d[2];
    for (u32 r = 0; r < 16; ++r) {
        if (r % 8 == 0) load_sums(R, qc + r / 4, F32, d[r / 8]);
        for (u32 n = 0; n < 8; ++n) {
            f64 sum = 0;  // exact but for factors that are far apart
            for (u32 s = 0; s < scales; ++s) {
                f64 part = 0;
                for (u32 k = s * depth; k < (s + 1) * depth; ++k)
                    part += f64(number(a, per, 2, r, k)) * number(b, per, 1, n, k);
                sum += part * factor(qs[0], r % 8 * 4 + 2 * lane_a + r / 8, at_a + s) *
                       factor(qs[3], n * 4 + lane_b, at_b + s);
            }
            f32& to = d[r / 8].x[r % 8][column(n)];
            to = f32(to + sum);
        }
    }
    for (u32 r = 0; r < 2; ++r) store_sums(R, q + 2 * r, F32, d[r]);
    operations(w, i, 2ull * p.m * p.n * p.k);
}

Add mma_floats("mma.float", floats), mma_integers("mma.integer", integers), mma_doubles("mma.double", doubles),
    mma_quarters("mma.quarters", quarters), mma_scaled("mma.scaled", scaled);

}  // namespace

// ---- Products of a warp with a sparse matrix a: mma.sp.

namespace {

// The list: d, a, b, c as in matrix_mma.cpp, a with half of k; then the metadata.
struct SparseLists {
    const u32 *d, *a, *b, *c, *e;
};
SparseLists sparse_lists_of(const Warp& w, const Inst& i, const Product& p) {
    const u32* q = list(w, i);
    const u32 sums = p.d == F16 ? 2 : 4, words = p.words();
    return {q, q + sums, q + sums + words, q + sums + 2 * words, q + 2 * sums + 2 * words};
}

template <class T> void product(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const SparseLists q = sparse_lists_of(w, i, p);
    const Kept at((const u32*)(R + q.e[0]), p, i.flags);
    const u32 per = per_word(p.a), words = p.words(), size = 32 * per;
    T a[1024], b[1024];
    for (u32 j = 0; j < words; ++j) {
        numbers(p.a, (const u32*)(R + q.a[j]), a + j * size);
        numbers(p.b, (const u32*)(R + q.b[j]), b + j * size);
    }
    Sums<T> d[2] = {};
    const bool back = launch_of(w).order;
    for (u32 r = 0; r < 2; ++r) {
        if constexpr (std::is_same_v<T, f32>) {
            load_sums(R, q.c + r * (p.c == F16 ? 1 : 2), p.c, d[r]);
            multiply_kept(a, b, per, at, p.k / 2, 8 * r, back, d[r]);
        } else {
            Sums<s32> c;
            load_sums(R, q.c + 2 * r, c);
            multiply_kept(a, b, per, at, p.k / 2, 8 * r, back, d[r]);
            add_sums(d[r], c, p.saturate);
        }
    }
    for (u32 r = 0; r < 2; ++r) {
        if constexpr (std::is_same_v<T, f32>) store_sums(R, q.d + r * (p.d == F16 ? 1 : 2), p.d, d[r]);
        else store_sums(R, q.d + 2 * r, d[r]);
    }
    if (launch_of(w).profile) count_of(w, i).operations += p.m * p.n * p.k;  // of what is kept
}

Add sparse_floats("mma.sparse.float", product<f32>), sparse_integers("mma.sparse.integer", product<s32>);

}  // namespace

// ---- Matrices between memory and registers: ldmatrix, stmatrix, movmatrix, wmma.load, wmma.store.

namespace {

// 8 rows of 8 halves, their rows and columns changed over.
void transpose(const u32* from, u32* to) {
    u16 m[8][8], t[8][8];
    memcpy(m, from, 128);
    for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) t[c][r] = m[r][c];
    memcpy(to, t, 128);
}

// Row r of matrix k lies where lane 8 * k + r says. What the other lanes say is no matter.
struct RowAddresses {
    u64 at[32];
    RowAddresses(Warp& w, const Inst& i, Access access) {
        const u32 m = w.m;
        w.m = i.count >= 4 ? ~0u : (1u << 8 * i.count) - 1;
        if (addresses(w, i, at, 16, access) != SHARED)
            fault_lane(0, "gives an address that is not of shared memory, where matrices of 8 by 8 lie");
        w.m = m;
    }
};

// Flags: transposed, of bytes, and above them the bits of an element where it has less than 8.
enum { TRANSPOSED = 1, BYTES = 2, NARROW_AT = 8 };

// A row of 16 elements of 6 or 4 bits, and padding behind them, to bytes: each in the low bits of its own.
void unpack(const u8* row, u32 bits, u8* to) {
    u128 packed;
    memcpy(&packed, row, 16);
    for (u32 k = 0; k < 16; ++k) to[k] = bits == 8 ? row[k] : u8(packed >> bits * k & ((1u << bits) - 1));
}
// Of 16 rows of 16 bytes the columns: register 0 has the first 8, register 1 the others, 4 bytes down a lane.
void turn(const u8 m[16][16], u32* first, u32* second) {
    for (u32 l = 0; l < 32; ++l) {
        u8 low[4], high[4];
        for (u32 k = 0; k < 4; ++k) {
            low[k] = m[l % 4 * 4 + k][l / 4];
            high[k] = m[l % 4 * 4 + k][l / 4 + 8];
        }
        memcpy(first + l, low, 4);
        memcpy(second + l, high, 4);
    }
}
// 16 rows of 8 bytes, of which a lane holds two columns of two rows, to 8 columns of 16 bytes.
void columns(const u32* from, u32* to) {
    u8 m[8][16];
    for (u32 l = 0; l < 32; ++l)
        for (u32 e = 0; e < 4; ++e) m[l % 4 * 2 + e % 2][l / 4 + e / 2 * 8] = u8(from[l] >> 8 * e);
    memcpy(to, m, 128);
}

void load_bytes(Warp& w, const Inst& i) {
    const RowAddresses rows(w, i, READ);
    const u32* q = list(w, i);
    const u32 bits = i.flags >> NARROW_AT;
    u8 m[32][16];
    for (u32 r = 0; r < 8 * i.count; ++r) unpack((const u8*)rows.at[r], bits ? bits : 8, m[r]);
    for (u32 k = 0; k < i.count; ++k) {
        if (!(i.flags & TRANSPOSED)) memcpy(w.R + q[k], m[8 * k], 128);
        else if (k % 2 == 0) turn(m + 8 * k, (u32*)(w.R + q[k]), (u32*)(w.R + q[k + 1]));
    }
}
Add bytes("ldmatrix.bytes", load_bytes);
HANDLER(
    "ldmatrix", const RowAddresses rows(w, i, READ); const u32* q = list(w, i); for (u32 k = 0; k < i.count; ++k) {
        alignas(64) u32 image[32];
        for (int r = 0; r < 8; ++r) memcpy(image + 4 * r, (const u8*)rows.at[8 * k + r], 16);
        if (i.flags) transpose(image, (u32*)(R + q[k]));
        else memcpy(R + q[k], image, 128);
    })
// Warps that hold the same matrix may all write it: what a row would not change is no clash.
HANDLER(
    "stmatrix", w.compares = launch_of(w).checks; w.clash = 0; const RowAddresses rows(w, i, WRITE); w.compares = false;
    const u32* q = list(w, i); for (u32 k = 0; k < i.count; ++k) {
        alignas(64) u32 image[32];
        if (i.flags & BYTES) columns((const u32*)(R + q[k]), image);
        else if (i.flags) transpose((const u32*)(R + q[k]), image);
        else memcpy(image, R + q[k], 128);
        for (u32 t = w.clash >> 8 * k & 255; t; t &= t - 1) {
            const int r = lowest(t), lane = int(8 * k) + r;
            check_clash(w, lane, rows.at[lane], image + 4 * r, SHARED);
        }
        for (int r = 0; r < 8; ++r) memcpy((u8*)rows.at[8 * k + r], image + 4 * r, 16);
    })
HANDLER("movmatrix", alignas(64) u32 image[32]; memcpy(image, R + i.a, 128); transpose(image, (u32*)(R + i.d));)

// A matrix of `rows` by `columns`, whose images are registers column of images by column, in memory: its
// rows (or, with flag 1, its columns) lie `stride` elements apart. c: the register of the stride. imm: as
// below. A fragment with more registers than images holds them again.
struct Fragment {
    u32 rows, columns, bits, per;
    bool turned;  // per: elements in a word; 0: one in each of two registers
    explicit Fragment(const Inst& i)
        : rows(i.flags & 255), columns(i.flags >> 8 & 255), bits(i.flags >> 16 & 127),
          per(bits == 32 && i.flags >> 24 & 1 ? 0
              : bits >= 32                    ? 1
                                              : 32 / bits),
          turned(i.flags >> 23 & 1) {
        if (bits == 64 && i.flags >> 24 & 1) per = 0;
    }
};

// Calls f(register in the list, lane, bit in its word, host address) for every piece of the matrix, the
// pieces that lie within one word side by side taken as one where they are so in memory too.
template <class F> void each_piece(Warp& w, const Inst& i, Access access, F f) {
    const Fragment m(i);
    const Launch& l = launch_of(w);
    const Gang& g = *w.block->gang;
    const u64 base = i.base == NONE ? 0 : i.base == WIDE ? get<u64>(w.R, i.a, 0) : get<u32>(w.R, i.a, 0);
    u64 start = base + u64(i.imm);
    Space space = Space(i.space);
    if (i.base == NONE && space == SHARED) start += u64(w.block->rank) << 24;
    if (space == LOCAL || space == PARAM || space == CONST)
        fault("a matrix of wmma lies in global or shared memory only");
    if (space == GENERIC || space == GLOBAL)
        space = start >= u64(g.shared) && start < u64(g.shared) + g.blocks.size() * g.stride ? SHARED : GLOBAL;
    const bool window = Space(i.space) == SHARED;
    if (window) start = u32(start);
    const u32 lines = m.turned ? m.columns : m.rows, length = (m.turned ? m.rows : m.columns) * m.bits / 8;
    const u64 stride = u64(s64(s32(i.c ? get<u32>(w.R, i.c, 0) : length * 8 / m.bits)));
    for (int k = 1; k < 32; ++k) {
        const u64 other = i.base == NONE ? base : i.base == WIDE ? get<u64>(w.R, i.a, k) : get<u32>(w.R, i.a, k);
        if (other != base)
            fault_lane(k, "gives another address than lane 0: the lanes of a warp load one matrix, from one address");
    }
    const s64 step = s64(stride) * m.bits / 8;
    if (start % 16 || (length >= 16 && step % 16))
        fault("has rows at %#llx and %lld bytes apart: both must be multiples of 16", (unsigned long long)start,
              (long long)step);
    u8* line[128];
    const u32 mask = w.m;
    w.m = 1;
    for (u32 k = 0; k < lines; ++k)
        line[k] = window ? shared_at(w, u32(start + k * step), length, access == READ ? "reads" : "writes")
                         : global_at(w, start + k * step, length, access, access == READ ? "reads" : "writes");
    w.m = mask;
    const u32 wide = m.per ? 4 * m.per : 8, down = m.rows / 8, images = down * (m.columns / wide);
    const bool whole = m.per <= 1 || !m.turned;  // a word's elements lie side by side in memory
    const u32 pieces = m.per == 0 ? 2
                       : whole    ? 1
                                  : m.per,
              size = m.per == 0 ? m.bits / 8
                     : whole    ? std::max(4u, m.bits / 8)
                                : m.bits / 8;
    for (u32 q = 0; q < images; ++q)
        for (u32 p = 0; p < pieces; ++p) {
            u64 at[32];
            for (u32 z = 0; z < 32; ++z) {
                const u32 r = q % down * 8 + z / 4, c = q / down * wide + (m.per ? z % 4 * m.per + p : z % 4 * 2 + p);
                at[z] = m.turned ? u64(line[c] + u64(r) * m.bits / 8) : u64(line[r] + u64(c) * m.bits / 8);
            }
            if (l.checks) check_access(w, at, ~0u, int(size), access, space);
            if (l.profile) count_access(w, i, at, ~0u, int(size), space, access);
            for (u32 z = 0; z < 32; ++z) f(m.per ? q : 2 * q + p, z, m.per ? p * m.bits : 0, size, (u8*)at[z]);
        }
}

HANDLER("wmma.load", const u32* q = list(w, i); const Fragment m(i); const u32 n = i.count;
        const u32 images = m.rows * m.columns * m.bits / 8 / (m.bits == 64 ? 256 : 128);
        if (m.bits < 32) for (u32 k = 0; k < images; ++k) memset(R + q[k], 0, 128);
        each_piece(w, i, READ,
                   [&](u32 k, u32 lane, u32 bit, u32 size, const u8* at) {
                       if (size == 8) {
                           u64 x;
                           memcpy(&x, at, 8);
                           ((u64*)(R + q[k]))[lane] = x;
                       } else if (size == 4) {
                           u32 x;
                           memcpy(&x, at, 4);
                           ((u32*)(R + q[k]))[lane] = x;
                       } else {
                           u32 x = 0;
                           memcpy(&x, at, size);
                           ((u32*)(R + q[k]))[lane] |= x << bit;
                       }
                   });
        for (u32 k = images; k < n; ++k) memcpy(R + q[k], R + q[k % images], 128);)
HANDLER("wmma.store", const u32* q = list(w, i);
        each_piece(w, i, WRITE, [&](u32 k, u32 lane, u32 bit, u32 size, u8* at) {
            if (size == 8) {
                memcpy(at, &((const u64*)(R + q[k]))[lane], 8);
                return;
            }
            const u32 x = ((const u32*)(R + q[k]))[lane] >> bit;
            memcpy(at, &x, size);
        });)

}  // namespace

// Products of matrices in registers: mma and wmma.mma.
#include "matrix.hpp"

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

Add mma_floats("mma.float", floats), mma_integers("mma.integer", integers), mma_doubles("mma.double", doubles),
    mma_quarters("mma.quarters", quarters);

}  // namespace

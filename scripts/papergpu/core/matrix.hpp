// What products of matrices share: elements, images of registers, and the sum of products itself.
//
// Every fragment of mma, wmma and wgmma is made of images: one register, whose 32 words are 8 rows of
// 4 words. A word holds 1, 2, 4 or 8 neighbours along k (of a sum's operands) or along n (of sums of
// 16 bits); sums of 32 and 64 bits are two registers, the even columns and the odd ones.
#pragma once
#include "core.hpp"
#include <vector>

enum Element : u32 { F16, BF16, TF32, E4M3, E5M2, S8, U8, S4, U4, B1, F64, F32, S32, E2M3, E3M2, E2M1 };
// Elements in a word of 32 bits; those of 6 and 4 bits have a byte each.
static inline u32 per_word(u32 element) {
    return element <= BF16 ? 2 : element == TF32 ? 1 : element <= U8 || element >= E2M3 ? 4 : element <= U4 ? 8 : 1;
}

// What the flags of a product say.
struct Product {
    u32 m, n, k, a, b, d, c;
    bool saturate, exclusive, negate;
    static Product of(const Inst& i) {
        const u32 f = i.flags;
        const u64 s = u64(i.imm);
        return {u32(s & 255), u32(s >> 8 & 511), u32(s >> 20 & 511), f & 15,           f >> 4 & 15, f >> 8 & 15,
                f >> 12 & 15, bool(f >> 16 & 1), bool(f >> 17 & 1),  bool(f >> 18 & 1)};
    }
    u32 words() const { return k / per_word(a) / 4; }  // images along k
};

// The most that any instruction has: 16 or 32 rows, k of 8 images of 8 elements.
struct Rows {
    alignas(64) f32 x[2048];
};  // operand a, image by image, element by element of the words
struct Counts {
    alignas(64) s32 x[2048];
};

static inline f32 widen_half(u32 h) {
    const u32 sign = (h & 0x8000) << 16, rest = (h & 0x7fff) << 13;
    const f32 number = as<f32>(rest) * 0x1p112f;
    return as<f32>((rest >= 0xf800000 ? rest | 0x7f800000 : as<u32>(number)) | sign);
}
static inline f32 widen_e4m3(u32 v) {
    const u32 sign = (v & 0x80) << 24, rest = (v & 0x7f) << 20;
    const f32 number = as<f32>(rest) * 0x1p120f;
    return as<f32>(((v & 0x7f) == 0x7f ? 0x7fffffff : as<u32>(number)) | sign);
}
// Numbers without infinities, in the low bits of v.
template <u32 exponent, u32 mantissa> static inline f32 widen_small(u32 v) {
    const u32 sign = v >> (exponent + mantissa) << 31, rest = v << (32 - exponent - mantissa) >> (9 - exponent);
    return as<f32>(as<u32>(as<f32>(rest) * as<f32>((255u - (1u << (exponent - 1))) << 23)) | sign);
}

// 32 words of an image to their numbers: element e of word l becomes to[32 * e + l].
template <class F>
static inline __attribute__((always_inline)) void spread(const u32* image, u32 per, u32 bits, f32* to, F f) {
    for (u32 e = 0; e < per; ++e)
        for (int l = 0; l < 32; ++l) to[32 * e + l] = f(image[l] >> bits * e);
}
static inline void numbers(u32 element, const u32* image, f32* to) {
    switch (element) {
    case F16: spread(image, 2, 16, to, [](u32 x) { return widen_half(x & 0xffff); }); break;
    case BF16: spread(image, 2, 16, to, [](u32 x) { return as<f32>(x << 16); }); break;
    case TF32: spread(image, 1, 32, to, [](u32 x) { return as<f32>(x & ~0x1fffu); }); break;
    case E4M3: spread(image, 4, 8, to, [](u32 x) { return widen_e4m3(x & 0xff); }); break;
    case E5M2: spread(image, 4, 8, to, [](u32 x) { return widen_half((x & 0xff) << 8); }); break;
    case E2M3: spread(image, 4, 8, to, widen_small<2, 3>); break;
    case E3M2: spread(image, 4, 8, to, widen_small<3, 2>); break;
    case E2M1: spread(image, 4, 8, to, [](u32 x) { return widen_small<2, 1>(x >> 2); }); break;
    }
}
static inline void numbers(u32 element, const u32* image, s32* to) {
    switch (element) {
    case S8:
        for (int e = 0; e < 4; ++e)
            for (int l = 0; l < 32; ++l) to[32 * e + l] = s8(image[l] >> 8 * e);
        break;
    case U8:
        for (int e = 0; e < 4; ++e)
            for (int l = 0; l < 32; ++l) to[32 * e + l] = u8(image[l] >> 8 * e);
        break;
    case S4:
        for (int e = 0; e < 8; ++e)
            for (int l = 0; l < 32; ++l) to[32 * e + l] = s32(image[l] << (28 - 4 * e)) >> 28;
        break;
    case U4:
        for (int e = 0; e < 8; ++e)
            for (int l = 0; l < 32; ++l) to[32 * e + l] = image[l] >> 4 * e & 15;
        break;
    case B1: memcpy(to, image, 128); break;
    }
}

// Operand b's image with its rows side by side: word t of row n goes to t * 8 + n, the even n before the
// odd ones, as sums are kept.
static inline void turned(const u32* image, u32* to) {
    for (int t = 0; t < 4; ++t)
        for (int n = 0; n < 8; ++n) to[t * 8 + n] = image[(n % 4 * 2 + n / 4) * 4 + t];
}

typedef f32 Eight __attribute__((vector_size(32), aligned(4)));
typedef s32 EightInts __attribute__((vector_size(32), aligned(4)));

// Sums of 8 rows by 8 columns: row r's even columns, then its odd ones.
template <class T> struct Sums {
    alignas(64) T x[8][8];
};

// d += a * b over `words` images. Image j of a stands at a + j * stride. `order` 1 goes from the end of k
// to its start, and adds what d was last.
void multiply(const f32* a, u32 stride, const f32* b, u32 words, u32 per, u32 order, Sums<f32>& d);
void multiply(const s32* a, u32 stride, const s32* b, u32 words, u32 per, Sums<s32>& d);
// Bits of words: what both have, or what one of them has.
void count_bits(const s32* a, u32 stride, const s32* b, u32 words, bool exclusive, Sums<s32>& d);

// Sums of 16 bits in one register, and of 32 bits in two.
static inline void load_sums(const u8* R, const u32* q, u32 kind, Sums<f32>& d) {
    if (kind == F16) {
        alignas(64) f32 t[64];
        numbers(F16, (const u32*)(R + q[0]), t);
        for (int r = 0; r < 8; ++r)
            for (int e = 0; e < 2; ++e) memcpy(&d.x[r][4 * e], t + 32 * e + 4 * r, 16);
    } else
        for (int r = 0; r < 8; ++r)
            for (int e = 0; e < 2; ++e) memcpy(&d.x[r][4 * e], R + q[e] + 16 * r, 16);
}
static inline u16 narrow_half(f32 x) { return as<u16>(f16(x)); }
static inline void store_sums(u8* R, const u32* q, u32 kind, const Sums<f32>& d) {
    if (kind == F16) {
        u32* to = (u32*)(R + q[0]);
        for (int r = 0; r < 8; ++r)
            for (int t = 0; t < 4; ++t) to[4 * r + t] = narrow_half(d.x[r][t]) | u32(narrow_half(d.x[r][4 + t])) << 16;
    } else
        for (int r = 0; r < 8; ++r)
            for (int e = 0; e < 2; ++e) memcpy(R + q[e] + 16 * r, &d.x[r][4 * e], 16);
}
static inline void load_sums(const u8* R, const u32* q, Sums<s32>& d) {
    for (int r = 0; r < 8; ++r)
        for (int e = 0; e < 2; ++e) memcpy(&d.x[r][4 * e], R + q[e] + 16 * r, 16);
}
static inline void store_sums(u8* R, const u32* q, const Sums<s32>& d) {
    for (int r = 0; r < 8; ++r)
        for (int e = 0; e < 2; ++e) memcpy(R + q[e] + 16 * r, &d.x[r][4 * e], 16);
}

// d = c + products, whose sums cannot overflow on their own.
static inline void add_sums(Sums<s32>& d, const Sums<s32>& c, bool saturate) {
    for (int r = 0; r < 8; ++r)
        for (int n = 0; n < 8; ++n) {
            const s64 s = s64(d.x[r][n]) + c.x[r][n];
            d.x[r][n] = saturate ? s32(s < INT32_MIN ? INT32_MIN : s > INT32_MAX ? INT32_MAX : s) : s32(u32(s));
        }
}

// ---- Matrices in shared memory, as the descriptors of wgmma say where they lie.

// A matrix in shared memory: 64 bits as PTX lays them out.
struct Descriptor {
    u64 start, lead, stride;
    u32 base, swizzle;
    bool across;  // swizzle: bytes of a row of its pattern, or 0
    Descriptor(u64 x, bool across)
        : start((x & 0x3fff) << 4), lead((x >> 16 & 0x3fff) << 4), stride((x >> 32 & 0x3fff) << 4), base(x >> 49 & 7),
          swizzle(x >> 62 ? 256 >> (x >> 62) : 0), across(across) {}
    // 16 bytes: 8 rows make a block, and `chunk` counts along k; across, row counts along k and block along m or n.
    u64 at(u32 block, u32 row, u32 chunk) const {
        if (!swizzle) return start + block * stride + chunk * lead + row * 16;
        const u32 wide = swizzle / 16;
        const u64 x = across ? start + block / wide * lead + chunk * stride + row * swizzle + block % wide * 16
                             : start + block * stride + row * swizzle + chunk * 16;
        return x ^ ((((x >> 7) - base) & (wide - 1)) << 4);
    }
};

static inline void image(const u8* shared, const Descriptor& d, u32 block, u32 chunk, u32* to) {
    if (!d.across) {
        for (u32 r = 0; r < 8; ++r) memcpy(to + 4 * r, shared + d.at(block, r, chunk), 16);
        return;
    }
    u16 t[8][8], k[8][8];
    for (u32 r = 0; r < 8; ++r) memcpy(k[r], shared + d.at(block, r, chunk), 16);
    for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) t[c][r] = k[r][c];
    memcpy(to, t, 128);
}

// What products read of shared memory, in pieces as long as they come.
struct Pieces {
    std::vector<u64> chunks_read;  // a bit for each 16 bytes
    void clear(const Warp& w) { chunks_read.assign(launch_of(w).shared / 1024 + 1, 0); }
    void add(u64 at) { chunks_read[at >> 10] |= 1ull << (at >> 4 & 63); }
    template <class F> void each(const Warp& w, F f) const {  // f(address, bytes)
        u64 from = 0, to = 0;
        const u8* const shared = w.block->shared;
        for (u64 k = 0; k < chunks_read.size(); ++k)
            for (u64 left = chunks_read[k]; left;) {
                const u64 first = u64(__builtin_ctzll(left)),
                          n = ~(left >> first) ? u64(__builtin_ctzll(~(left >> first))) : 64 - first;
                const u64 at = k * 1024 + first * 16;
                if (at != to) {
                    if (to > from) f(shared + from, to - from);
                    from = at;
                }
                to = at + n * 16;
                left = first + n == 64 ? 0 : left & ~0ull << (first + n);
            }
        if (to > from) f(shared + from, to - from);
    }
};

// ---- Sparse matrices a, of which metadata says what of each chunk of k is kept: mma.sp and wgmma.mma_async.sp.

// Flags beside those of a product: where the selector's bits begin, and whether the metadata is ordered.
enum { SELECTOR = 23, ORDERED = 1 << 25 };

// Of 16 rows and `kept` columns of a: where along k each stands.
struct Kept {
    u8 k[16][32];

    Kept(const u32* metadata, const Product& p, u32 flags) {
        const u32 kept = p.k / 2, selector = flags >> SELECTOR & 3, bytes = 4 / per_word(p.a);
        const bool pairs = p.a != TF32;  // 2 of 4 are kept; of tf32 1 of 2, each as two halves
        const u32 chunks = kept / (pairs ? 2 : 1), of_word = bytes == 1 ? 8 : 4;
        for (u32 r = 0; r < 16; ++r)
            for (u32 c = 0; c < chunks; ++c) {
                // A group of four lanes has rows r and r + 8. Of 16 and 32 bits a lane holds both rows, and the
                // next one what follows along k; of 8 bits a lane holds one row, and the next one the other.
                const u32 part = c / of_word;
                const u32 lane = r % 8 * 4 + (bytes == 1         ? 2 * (chunks > of_word ? part : selector) + r / 8
                                              : chunks > of_word ? 2 * selector + part
                                                                 : selector);
                const u32 shift = (bytes == 1 ? 0 : 16 * (r / 8)) + 4 * (c % of_word);
                const u32 said = metadata[lane] >> shift & 15, low = said & 3, high = said >> 2;
                if (pairs ? low == high || (flags & ORDERED && low > high) : said != 4 && said != 14)
                    fault_lane(
                        int(lane),
                        "gives the sparsity metadata %#x, whose bits %u to %u keep elements %u and %u of row %u: "
                        "%s",
                        metadata[lane], shift, shift + 3, low, high, r,
                        !pairs        ? "of tf32 they are 0b0100 or 0b1110"
                        : low == high ? "they must differ"
                                      : "with .sp::ordered_metadata they must increase");
                if (pairs) {
                    k[r][2 * c] = u8(4 * c + low);
                    k[r][2 * c + 1] = u8(4 * c + high);
                } else k[r][c] = u8(2 * c + low / 2);
            }
    }
};

// Number (row, column along k) of images that lie `down` beside each other.
template <class T> static inline T number(const T* x, u32 per, u32 down, u32 row, u32 k) {
    const u32 image = k / (4 * per) * down + row / 8;
    return x[image * 32 * per + k % per * 32 + row % 8 * 4 + k / per % 4];
}
static inline u32 column(u32 n) { return n % 2 * 4 + n / 2; }  // in a row of sums

// Adds to d the products of 8 rows of a, from `first` on, with 8 columns of b. `back` goes from the end of k to its
// start, and adds what d was last.
static inline void multiply_kept(const f32* a, const f32* b, u32 per, const Kept& at, u32 kept, u32 first, bool back,
                                 Sums<f32>& d) {
    for (u32 r = 0; r < 8; ++r)
        for (u32 n = 0; n < 8; ++n) {
            f32& sum = d.x[r][column(n)];
            f32 s = back ? 0 : sum;
            for (u32 j = 0; j < kept; ++j) {
                const u32 x = back ? kept - 1 - j : j;
                s = std::fma(number(a, per, 2, first + r, x), number(b, per, 1, n, at.k[first + r][x]), s);
            }
            sum = back ? s + sum : s;
        }
}
static inline void multiply_kept(const s32* a, const s32* b, u32 per, const Kept& at, u32 kept, u32 first, bool,
                                 Sums<s32>& d) {
    for (u32 r = 0; r < 8; ++r)
        for (u32 n = 0; n < 8; ++n)
            for (u32 j = 0; j < kept; ++j)
                d.x[r][column(n)] += number(a, per, 2, first + r, j) * number(b, per, 1, n, at.k[first + r][j]);
}

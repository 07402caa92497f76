// Sparse matrices a, of which metadata says what of each chunk of k is kept: mma.sp and wgmma.mma_async.sp.
#pragma once
#include "matrix.hpp"

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

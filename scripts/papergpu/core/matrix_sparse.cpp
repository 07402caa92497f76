// Products with a sparse matrix a, of which metadata says what of each chunk of k is kept: mma.sp.
#include "matrix.hpp"

namespace {

// The list: d, a, b, c as in matrix_mma.cpp, a with half of k; then the metadata. Flags beside those of a product:
enum { SELECTOR = 23, ORDERED = 1 << 25 };  // the selector's bits begin there

// Of 16 rows and `kept` columns of a: where along k each stands.
struct Kept {
    u8 k[16][32];

    Kept(const u8* R, u32 at, const Product& p, const Inst& i) {
        const u32* metadata = (const u32*)(R + at);
        const u32 kept = p.k / 2, selector = i.flags >> SELECTOR & 3, bytes = 4 / per_word(p.a);
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
                if (pairs ? low == high || (i.flags & ORDERED && low > high) : said != 4 && said != 14)
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

struct Lists {
    const u32 *d, *a, *b, *c, *e;
};
Lists lists_of(const Warp& w, const Inst& i, const Product& p) {
    const u32* q = list(w, i);
    const u32 sums = p.d == F16 ? 2 : 4, words = p.words();
    return {q, q + sums, q + sums + words, q + sums + 2 * words, q + 2 * sums + 2 * words};
}

// Number (row, column along k) of images that lie `down` beside each other.
template <class T> T number(const T* x, u32 per, u32 down, u32 row, u32 k) {
    const u32 image = k / (4 * per) * down + row / 8;
    return x[image * 32 * per + k % per * 32 + row % 8 * 4 + k / per % 4];
}
u32 column(u32 n) { return n % 2 * 4 + n / 2; }  // in a row of sums

void floats(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const Lists q = lists_of(w, i, p);
    const Kept at(R, q.e[0], p, i);
    const u32 per = per_word(p.a), words = p.words(), kept = p.k / 2;
    const bool back = launch_of(w).order;
    f32 a[1024], b[1024];
    for (u32 j = 0; j < words; ++j) {
        numbers(p.a, (const u32*)(R + q.a[j]), a + j * 32 * per);
        numbers(p.b, (const u32*)(R + q.b[j]), b + j * 32 * per);
    }
    Sums<f32> d[2];
    for (u32 r = 0; r < 2; ++r) load_sums(R, q.c + r * (p.c == F16 ? 1 : 2), p.c, d[r]);
    for (u32 r = 0; r < 16; ++r)
        for (u32 n = 0; n < 8; ++n) {
            f32& sum = d[r / 8].x[r % 8][column(n)];
            f32 s = back ? 0 : sum;
            for (u32 j = 0; j < kept; ++j) {
                const u32 x = back ? kept - 1 - j : j;
                s = std::fma(number(a, per, 2, r, x), number(b, per, 1, n, at.k[r][x]), s);
            }
            sum = back ? s + sum : s;
        }
    for (u32 r = 0; r < 2; ++r) store_sums(R, q.d + r * (p.d == F16 ? 1 : 2), p.d, d[r]);
    if (launch_of(w).profile) count_of(w, i).operations += p.m * p.n * p.k;  // of what is kept
}

void integers(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const Lists q = lists_of(w, i, p);
    const Kept at(R, q.e[0], p, i);
    const u32 per = per_word(p.a), words = p.words(), kept = p.k / 2;
    s32 a[1024], b[1024];
    for (u32 j = 0; j < words; ++j) {
        numbers(p.a, (const u32*)(R + q.a[j]), a + j * 32 * per);
        numbers(p.b, (const u32*)(R + q.b[j]), b + j * 32 * per);
    }
    Sums<s32> d[2] = {}, c;
    for (u32 r = 0; r < 16; ++r)
        for (u32 n = 0; n < 8; ++n)
            for (u32 j = 0; j < kept; ++j)
                d[r / 8].x[r % 8][column(n)] += number(a, per, 2, r, j) * number(b, per, 1, n, at.k[r][j]);
    for (u32 r = 0; r < 2; ++r) {
        load_sums(R, q.c + 2 * r, c);
        add_sums(d[r], c, p.saturate);
    }
    for (u32 r = 0; r < 2; ++r) store_sums(R, q.d + 2 * r, d[r]);
    if (launch_of(w).profile) count_of(w, i).operations += p.m * p.n * p.k;
}

Add sparse_floats("mma.sparse.float", floats), sparse_integers("mma.sparse.integer", integers);

}  // namespace

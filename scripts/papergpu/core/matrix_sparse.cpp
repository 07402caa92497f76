// Products of a warp with a sparse matrix a: mma.sp.
#include "matrix_sparse.hpp"

namespace {

// The list: d, a, b, c as in matrix_mma.cpp, a with half of k; then the metadata.
struct Lists {
    const u32 *d, *a, *b, *c, *e;
};
Lists lists_of(const Warp& w, const Inst& i, const Product& p) {
    const u32* q = list(w, i);
    const u32 sums = p.d == F16 ? 2 : 4, words = p.words();
    return {q, q + sums, q + sums + words, q + sums + 2 * words, q + 2 * sums + 2 * words};
}

template <class T> void product(Warp& w, const Inst& i) {
    const Product p = Product::of(i);
    u8* R = w.R;
    const Lists q = lists_of(w, i, p);
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

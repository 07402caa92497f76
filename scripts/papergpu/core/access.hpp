// Loads and stores: where their lanes access memory, if that is simple.
#pragma once
#include "core.hpp"
#include <algorithm>
#ifdef __AVX2__
#include <immintrin.h>
#endif

// The allocation that holds [lo, hi), or null.
const Alloc* holder(Gang& g, u64 lo, u64 hi);

// While it is there an access is known to be volatile, relaxed or ordered, and of scope .cta, if its flags say so (2
// acquires or releases, 4 strong, 8 narrow).
struct Strong {
    Warp& w;
    Strong(Warp& w, const Inst& i) : w(w) {
        w.strong = i.flags & 6;
        w.narrow = i.flags & 8;
    }
    ~Strong() { w.strong = w.narrow = false; }
};

// Where the lanes access memory, if that is simple: all the same bytes, at base; each those behind the
// lane's before, from base on; or those t behind base, a multiple of 128. In the last case lanes that do
// not execute stand where the first one does that executes.
enum Shape { SAME, ROW, MIXED };
struct Where {
    u8* base;
    Space space;
    Shape shape;
    alignas(64) u32 t[32];
};

// Whether n lanes hold first, first + step, and so on.
template <class T> inline __attribute__((always_inline)) bool runs(const T* r, u32 n, T first, T step) {
#ifdef __AVX2__  // compilers would reduce all lanes to one, by shuffles
    __m256i due, more, off = _mm256_setzero_si256();
    if constexpr (sizeof(T) == 8) {
        const __m256i lanes = _mm256_setr_epi64x(0, 1, 2, 3);
        due = _mm256_mul_epu32(lanes, _mm256_set1_epi64x(s64(step)));
        due = _mm256_add_epi64(due, _mm256_set1_epi64x(s64(first)));
        more = _mm256_set1_epi64x(s64(4 * step));
    } else {
        const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        due = _mm256_mullo_epi32(lanes, _mm256_set1_epi32(int(step)));
        due = _mm256_add_epi32(due, _mm256_set1_epi32(int(first)));
        more = _mm256_set1_epi32(int(8 * step));
    }
    for (u32 k = 0; k < n; k += 32 / sizeof(T)) {
        off = _mm256_or_si256(off, _mm256_xor_si256(_mm256_loadu_si256((const __m256i*)(r + k)), due));
        due = sizeof(T) == 8 ? _mm256_add_epi64(due, more) : _mm256_add_epi32(due, more);
    }
    return _mm256_testz_si256(off, off);
#else
    T off = 0;
    for (u32 k = 0; k < n; ++k) off |= r[k] ^ (first + k * step);
    return !off;
#endif
}

// Whether none of 32 lanes is above `most`, or has one of these bits.
inline __attribute__((always_inline)) bool within(const u32* t, u32 most, u32 bits) {
#ifdef __AVX2__
    const __m256i top = _mm256_set1_epi32(int(most)), low = _mm256_set1_epi32(int(bits));
    __m256i off = _mm256_setzero_si256();
    for (u32 k = 0; k < 32; k += 8) {
        const __m256i x = _mm256_load_si256((const __m256i*)(t + k));
        const __m256i over = _mm256_xor_si256(_mm256_max_epu32(x, top), top);
        off = _mm256_or_si256(off, _mm256_or_si256(over, _mm256_and_si256(x, low)));
    }
    return _mm256_testz_si256(off, off);
#else
    u32 hi = 0, bad = 0;
    for (int k = 0; k < 32; ++k) {
        hi = std::max(hi, t[k]);
        bad |= t[k];
    }
    return hi <= most && !(bad & bits);
#endif
}

template <class T> inline __attribute__((always_inline)) Shape shape_of(const T* r, u32 n) {
    const T first = r[0];
    if (r[31] - first == T(31 * n)) return runs<T>(r, 32, first, n) ? ROW : MIXED;
    return r[31] == first && runs<T>(r, 32, first, 0) ? SAME : MIXED;
}

// Tells checks and counters of an access.
void note(Warp& w, const Inst& i, u32 n, Access access, Where& at);

// False where it is not simple: then `addresses` does it, or says what is wrong.
inline __attribute__((always_inline)) bool locate(Warp& w, const Inst& i, u32 n, Access access, Where& to) {
    const u8* R = w.R;
    const u32 m = w.m;
    Block& b = *w.block;
    const Launch& l = *w.launch;
    const int first = lowest(m);
    u32* const t = to.t;
    to.shape = MIXED;
    if (i.space == SHARED) {
        const u32 imm = i.base == NONE ? u32(i.imm) : u32(i.imm) - (b.rank << 24);
        if (i.base == NONE) to.shape = SAME;
        else if (m == ~0u && i.base == NARROW) to.shape = shape_of((const u32*)(R + i.a), n);
        to.space = SHARED;
        to.base = b.shared;
        if (to.shape != MIXED) {
            const u32 at = (i.base == NONE ? 0 : *(const u32*)(R + i.a)) + imm;
            if (at & (n - 1) || u64(at) + (to.shape == ROW ? 32 * n : n) > l.shared) return false;
            to.base += at;
        } else {
            if (i.base == NARROW) {
                const u32* r = (const u32*)(R + i.a);
                for (int k = 0; k < 32; ++k) t[k] = r[k] + imm;
            } else {
                const u64* r = (const u64*)(R + i.a);
                for (int k = 0; k < 32; ++k) t[k] = u32(r[k]) + imm;
            }
            if (m != ~0u) {
                const u32 f = t[first];
                for (int k = 0; k < 32; ++k) t[k] = m >> k & 1 ? t[k] : f;
            }
            if (n > l.shared || !within(t, u32(l.shared - n), n - 1)) return false;
        }
    } else {
        if ((i.space != GLOBAL && i.space != GENERIC) || i.base != WIDE) return false;
        const u64* r = (const u64*)(R + i.a);
        const u64 f = r[first];
        if (m == ~0u) to.shape = shape_of(r, n);
        to.space = GLOBAL;
        u64 from = f + u64(i.imm), end = from + (to.shape == ROW ? 32 * n : n);
        u32 bad = u32(from);
        if (to.shape == MIXED) {
            u64 far = 0;
            s32 least = 0, most = 0;
            for (int k = 0; k < 32; ++k) {
                const u64 d = r[k] - f;
                far |= m >> k & 1 ? d + 0x40000000u : 0;
                t[k] = u32(d);
            }
            if (far >> 31) return false;
            if (m != ~0u)
                for (int k = 0; k < 32; ++k) t[k] = m >> k & 1 ? t[k] : 0;
            for (int k = 0; k < 32; ++k) {
                least = std::min(least, s32(t[k]));
                most = std::max(most, s32(t[k]));
            }
            end += u64(s64(most));
            from += u64(s64(least));
            const u64 base = from & ~u64(127);
            const u32 more = u32(from - base) - u32(least);
            for (int k = 0; k < 32; ++k) {
                t[k] += more;
                bad |= t[k];
            }
            to.base = (u8*)base;
        } else to.base = (u8*)from;
        if (bad & (n - 1)) return false;
        const Alloc* a = holder(*b.gang, from, end);
        if (!a || a->flags) return false;
    }
    if (__builtin_expect(l.checks | l.profile, 0)) note(w, i, n, access, to);
    return true;
}

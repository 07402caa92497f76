// Loads, of memory and of parameters.
#include "access.hpp"
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace {

// After a load: what is acquired by it.
void loaded(Warp& w, const Inst& i, const u64* A, Space space) {
    if (i.flags & 6 && launch_of(w).checks) check_obtain(w, A, w.m, i.flags & 2 ? 1 : 0, space);
    if (i.flags & 6 && w.steps >= w.patience) {
        w.yield = true;
        w.patience = w.steps + 64;
    }  // it may be a spin
}

typedef u32 Four __attribute__((vector_size(16)));
typedef u32 Eight __attribute__((vector_size(32)));

// 16 bytes of each lane, to the register of each word.
inline void transpose(const u8* s, const u32* t, u32* const* d) {
    for (int k = 0; k < 32; k += 8) {
        Eight x[4];
        for (int j = 0; j < 4; ++j) {
            Four a, b;
            memcpy(&a, s + t[k + j], 16);
            memcpy(&b, s + t[k + j + 4], 16);
            x[j] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
        }
        const Eight p = __builtin_shufflevector(x[0], x[1], 0, 8, 1, 9, 4, 12, 5, 13),
                    q = __builtin_shufflevector(x[2], x[3], 0, 8, 1, 9, 4, 12, 5, 13);
        const Eight u = __builtin_shufflevector(x[0], x[1], 2, 10, 3, 11, 6, 14, 7, 15),
                    v = __builtin_shufflevector(x[2], x[3], 2, 10, 3, 11, 6, 14, 7, 15);
        const Eight e0 = __builtin_shufflevector(p, q, 0, 1, 8, 9, 4, 5, 12, 13),
                    e1 = __builtin_shufflevector(p, q, 2, 3, 10, 11, 6, 7, 14, 15);
        const Eight e2 = __builtin_shufflevector(u, v, 0, 1, 8, 9, 4, 5, 12, 13),
                    e3 = __builtin_shufflevector(u, v, 2, 3, 10, 11, 6, 7, 14, 15);
        memcpy(d[0] + k, &e0, 32);
        memcpy(d[1] + k, &e1, 32);
        memcpy(d[2] + k, &e2, 32);
        memcpy(d[3] + k, &e3, 32);
    }
}

template <class T, class D> inline __attribute__((always_inline)) void gather(const u8* s, const u32* t, D* d) {
#ifdef __AVX2__
    if constexpr (sizeof(T) == 4 && sizeof(D) == 4) {
        for (int k = 0; k < 32; k += 8) {
            const __m256i x = _mm256_i32gather_epi32((const int*)s, _mm256_load_si256((const __m256i*)(t + k)), 1);
            _mm256_storeu_si256((__m256i*)(d + k), x);
        }
        return;
    }
#endif
#pragma GCC unroll 8
    for (int k = 0; k < 32; ++k) d[k] = (D) * (const T*)(s + t[k]);
}

// The `v` elements of each lane, to v registers.
template <class T, class D> inline __attribute__((always_inline)) void fetch(const Where& at, u32 v, D* const* to) {
    const u8* const s = at.base;
    const T* x = (const T*)s;
    if (at.shape == SAME) {
        for (u32 e = 0; e < v; ++e) {
            const D c = (D)x[e];
            D* d = to[e];
            for (int k = 0; k < 32; ++k) d[k] = c;
        }
    } else if (v == 1) {
        D* d = to[0];
        if (at.shape == ROW) {
            _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) d[k] = (D)x[k];
        } else gather<T, D>(s, at.t, d);
    } else if (sizeof(T) == 4 && sizeof(D) == 4 && v == 4) {
        if (at.shape == MIXED) return transpose(s, at.t, (u32* const*)to);
        alignas(64) u32 t[32];
        for (int k = 0; k < 32; ++k) t[k] = 16 * k;
        transpose(s, t, (u32* const*)to);
    } else if (v == 2) {
        D *d0 = to[0], *d1 = to[1];
        if (at.shape == ROW) {
            _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) {
                d0[k] = (D)x[2 * k];
                d1[k] = (D)x[2 * k + 1];
            }
        } else
            for (int k = 0; k < 32; ++k) {
                const T* y = (const T*)(s + at.t[k]);
                d0[k] = (D)y[0];
                d1[k] = (D)y[1];
            }
    } else
        for (u32 e = 0; e < v; ++e) {
            D* d = to[e];
            for (u32 k = 0; k < 32; ++k)
                d[k] = (D)((const T*)(s + (at.shape == ROW ? k * v * u32(sizeof(T)) : at.t[k])))[e];
        }
}

template <class T, class D> void load_any(Warp& w, const Inst& i) {
    u64 A[32];
    const int v = i.count;
    const Strong strong(w, i);
    const Space space = addresses(w, i, A, sizeof(T) * v, READ);
    const u32* q = list(w, i);
    u8* R = w.R;
    for (int e = 0; e < v; ++e) {
        D* d = (D*)(R + q[e]);
        for (u32 t = w.m; t; t &= t - 1) {
            const int k = lowest(t);
            T x;
            memcpy(&x, (const u8*)A[k] + e * sizeof(T), sizeof x);
            d[k] = (D)x;
        }
    }
    loaded(w, i, A, space);
}

// T in memory, D in the register: lists[k] is the register of element k. flags: 2 acquire or release,
// 4 volatile, or ordered at all.
template <class T, class D> void load(Warp& w, const Inst& i) {
    Where at;
    const u32 v = i.count;
    if (__builtin_expect(i.flags & 6, 0) || !locate(w, i, u32(sizeof(T)) * v, READ, at)) return load_any<T, D>(w, i);
    const u32* q = list(w, i);
    u8* R = w.R;
    D* to[8];
    const u32 m = w.m;
    if (m == ~0u) {
        if (v == 1) {
            to[0] = (D*)(R + q[0]);
            return fetch<T, D>(at, 1, to);
        }
        for (u32 e = 0; e < v; ++e) to[e] = (D*)(R + q[e]);
        return fetch<T, D>(at, v, to);
    }
    alignas(64) D t[8][32];
    for (u32 e = 0; e < v; ++e) to[e] = t[e];
    fetch<T, D>(at, v, to);
    for (u32 e = 0; e < v; ++e) {
        D* d = (D*)(R + q[e]);
        const D* x = t[e];
        for (int k = 0; k < 32; ++k) d[k] = m >> k & 1 ? x[k] : d[k];
    }
}

#define LOADS(name, T, D) Add load_##name("ld." #name, load<T, D>)
// The second part of the name is the register's width.
LOADS(u8_32, u8, u32);
LOADS(s8_32, s8, s32);
LOADS(u16_32, u16, u32);
LOADS(s16_32, s16, s32);
LOADS(u32_32, u32, u32);
LOADS(u8_64, u8, u64);
LOADS(s8_64, s8, s64);
LOADS(u16_64, u16, u64);
LOADS(s16_64, s16, s64);
LOADS(u32_64, u32, u64);
LOADS(s32_64, s32, s64);
LOADS(u64_64, u64, u64);

// 128 bits: the register holds the 32 low halves, then the 32 high ones.
void load128(Warp& w, const Inst& i) {
    u64 A[32];
    const int v = i.count;
    const Strong strong(w, i);
    const Space space = addresses(w, i, A, 16 * v, READ);
    const u32* q = list(w, i);
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        for (int e = 0; e < v; ++e)
            for (int h = 0; h < 2; ++h) memcpy(w.R + q[e] + 256 * h + 8 * k, (const u8*)A[k] + 16 * e + 8 * h, 8);
    }
    loaded(w, i, A, space);
}
Add load_b128("ld.b128", load128);

// Parameters are the same for all lanes.
template <class T, class D> void parameter(Warp& w, const Inst& i) {
    const Launch& l = launch_of(w);
    const u32* q = list(w, i);
    for (u32 e = 0; e < i.count; ++e) {
        T t;
        memcpy(&t, l.params + i.imm + e * sizeof(T), sizeof t);
        each<D>(w, q[e], [t](int) __attribute__((always_inline)) { return (D)t; });
    }
}
#define PARAMETERS(name, T, D) Add parameter_##name("ldp." #name, parameter<T, D>)
PARAMETERS(u8_32, u8, u32);
PARAMETERS(s8_32, s8, s32);
PARAMETERS(u16_32, u16, u32);
PARAMETERS(s16_32, s16, s32);
PARAMETERS(u32_32, u32, u32);
PARAMETERS(u8_64, u8, u64);
PARAMETERS(s8_64, s8, s64);
PARAMETERS(u16_64, u16, u64);
PARAMETERS(s16_64, s16, s64);
PARAMETERS(u32_64, u32, u64);
PARAMETERS(s32_64, s32, s64);
PARAMETERS(u64_64, u64, u64);

}  // namespace

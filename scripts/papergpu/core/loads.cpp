// Loads, of memory and of parameters.
#include "access.hpp"
#include "checks.hpp"
#include <algorithm>

namespace {

// After a load: what is acquired by it.
void loaded(Warp& w, const Inst& i, const u64* A, Space space) {
    if (i.flags & 6 && launch_of(w).checks) check_obtain(w, A, w.m, i.flags >> 1 & 1 | i.flags & 8, space);
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
            INDEPENDENT for (int k = 0; k < 32; ++k) d[k] = (D)x[k];
        } else gather<T, D>(s, at.t, d);
    } else if (sizeof(T) == 4 && sizeof(D) == 4 && v == 4) {
        if (at.shape == MIXED) {
            const u32 *a = at.t, *b = a + 16;
            if (!runs(a, 16, *a, 0u) || !runs(b, 16, *b, 0u)) return transpose(s, a, (u32* const*)to);
            const T *x0 = (const T*)(s + *a), *x1 = (const T*)(s + *b);
            for (u32 e = 0; e < 4; ++e) {
                D *d = to[e], y0 = (D)x0[e], y1 = (D)x1[e];
                for (int k = 0; k < 16; ++k) d[k] = y0;
                for (int k = 16; k < 32; ++k) d[k] = y1;
            }
            return;
        }
        alignas(64) u32 t[32];
        for (int k = 0; k < 32; ++k) t[k] = 16 * k;
        transpose(s, t, (u32* const*)to);
    } else if (v == 2) {
        D *d0 = to[0], *d1 = to[1];
        if (at.shape == ROW) {
            INDEPENDENT for (int k = 0; k < 32; ++k) {
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
// 4 volatile, or ordered at all, 8 within a block alone.
template <class T, class D> void load(Warp& w, const Inst& i) {
    Where at;
    const u32 v = i.count;
    if (__builtin_expect(i.flags & 6, 0) || !locate(w, i, u32(sizeof(T)) * v, READ, at)) return load_any<T, D>(w, i);
    const u32* q = list(w, i);
    u8* R = w.R;
    const u32 m = w.m;
    const bool all = m == ~0u;
    alignas(64) D t[8][32];
    D* to[8];
    for (u32 e = 0; e < v; ++e) to[e] = all ? (D*)(R + q[e]) : t[e];
    fetch<T, D>(at, v, to);
    if (all) return;
    for (u32 e = 0; e < v; ++e) {
        D* d = (D*)(R + q[e]);
        const D* x = t[e];
        for (int k = 0; k < 32; ++k) d[k] = m >> k & 1 ? x[k] : d[k];
    }
}

#define LOADS(name, T, D) Add load_##name("ld." #name, load<T, D>)
#define RARE_LOADS(name, T, D) Add load_##name("ld." #name, load_any<T, D>)
// The second part of the name is the register's width.
LOADS(u8_32, u8, u32);
LOADS(s8_32, s8, s32);
LOADS(u16_32, u16, u32);
LOADS(s16_32, s16, s32);
LOADS(u32_32, u32, u32);
RARE_LOADS(u8_64, u8, u64);
RARE_LOADS(s8_64, s8, s64);
RARE_LOADS(u16_64, u16, u64);
RARE_LOADS(s16_64, s16, s64);
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

// ---- Stores. Where checks are on, lanes that write one place have to agree.

namespace {

Space store_addresses(Warp& w, const Inst& i, u64* A, int bytes) {
    const Strong strong(w, i);
    w.clash = 0;
    w.compares = launch_of(w).checks;
    const Space space = addresses(w, i, A, bytes, WRITE);
    w.compares = false;
    if (i.flags & 6 && launch_of(w).checks) check_publish(w, A, w.m, i.flags & 10, space);
    return space;
}
// Before a store: what it would change of another thread's, with nothing between.
template <class F> void clashes(Warp& w, const u64* A, Space space, F value) {
    u8 own[256];
    for (u32 t = w.clash; t; t &= t - 1) {
        value(lowest(t), own);
        check_clash(w, lowest(t), A[lowest(t)], own, space);
    }
}
// After a store: lanes that write one place in one instruction have to agree, as which of them stays is
// not said.
template <class F> void agree(const Warp& w, const Inst& i, const u64* A, int bytes, Space space, F value) {
    if (space == LOCAL || i.flags & 6) return;
    u8 own[256];
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        value(k, own);
        if (!memcmp((const u8*)A[k], own, bytes)) continue;
        for (u32 o = w.m; o; o &= o - 1)
            if (lowest(o) != k && A[lowest(o)] == A[k])
                return found(w, w.pc, k,
                             "writes another value than lane %d of its warp to one place, in one instruction: let one of "
                             "them write, or use an atomic",
                             lowest(o));
    }
}

// Each lane's value, where it belongs.
template <class F> void put_values(Warp& w, const u64* A, Space space, F value) {
    if (w.clash) clashes(w, A, space, value);
    for (u32 t = w.m; t; t &= t - 1) value(lowest(t), (u8*)A[lowest(t)]);
}

// Puts what a lane stores, element by element.
template <class T, class D> auto value_of(const Warp& w, const Inst& i) {
    return [R = w.R, q = list(w, i), v = i.count](int k, u8* to) {
        for (u32 e = 0; e < v; ++e) {
            const T x = (T)((const D*)(R + q[e]))[k];
            memcpy(to + e * sizeof(T), &x, sizeof x);
        }
    };
}

template <class T, class D> void store_any(Warp& w, const Inst& i) {
    u64 A[32];
    const int n = int(sizeof(T) * i.count);
    const Space space = store_addresses(w, i, A, n);
    const auto value = value_of<T, D>(w, i);
    put_values(w, A, space, value);
    if (launch_of(w).checks) agree(w, i, A, n, space, value);
}

// v elements of each lane, side by side.
template <class T, class D>
inline __attribute__((always_inline)) void side_by_side(const u8* R, const u32* q, u32 v, T* to) {
    if (v == 4) {
        const D *a = (const D*)(R + q[0]), *b = (const D*)(R + q[1]), *c = (const D*)(R + q[2]),
                *d = (const D*)(R + q[3]);
        INDEPENDENT for (int k = 0; k < 32; ++k) {
            to[4 * k] = (T)a[k];
            to[4 * k + 1] = (T)b[k];
            to[4 * k + 2] = (T)c[k];
            to[4 * k + 3] = (T)d[k];
        }
    } else if (v == 2) {
        const D *a = (const D*)(R + q[0]), *b = (const D*)(R + q[1]);
        INDEPENDENT for (int k = 0; k < 32; ++k) {
            to[2 * k] = (T)a[k];
            to[2 * k + 1] = (T)b[k];
        }
    } else
        for (u32 e = 0; e < v; ++e) {
            const D* a = (const D*)(R + q[e]);
            for (int k = 0; k < 32; ++k) to[v * k + e] = (T)a[k];
        }
}

template <int n> inline void scatter(const u8* s, u8* base, const u32* t, u32 m) {
    if (m == ~0u) {
#pragma GCC unroll 8
        for (int k = 0; k < 32; ++k) memcpy(base + t[k], s + n * k, n);
    } else
        for (; m; m &= m - 1) {
            const int k = lowest(m);
            memcpy(base + t[k], s + n * k, n);
        }
}

// Whether a lane finds another value than its own where it has stored: then another lane stored there as well.
template <class T, class D> bool differs(const Warp& w, const Inst& i, const Where& at) {
    if (w.m == ~0u) {
        u32 back = 0;
        for (int k = 0; k < 31; ++k) back |= u32(at.t[k + 1] <= at.t[k]);
        if (!back) return false;  // each has its own place
    }
    const u32* q = list(w, i);
    bool found = false;
    for (u32 e = 0; e < i.count; ++e) {
        const D* d = (const D*)(w.R + q[e]);
        for (int k = 0; k < 32; ++k) {
            T x;
            memcpy(&x, at.base + at.t[k] + e * sizeof(T), sizeof x);
            found |= (w.m >> k & 1) & (x != (T)d[k]);
        }
    }
    return found;
}

// For checks, by lanes: where they write a place that another thread has written, or one place.
template <class T, class D> __attribute__((noinline)) void store_again(Warp& w, const Inst& i, const Where& at) {
    u64 A[32];
    const u32 n = u32(sizeof(T)) * i.count;
    for (u32 k = 0; k < 32; ++k) A[k] = u64(at.base) + (at.shape == ROW ? k * n : at.t[k]);
    const auto value = value_of<T, D>(w, i);
    if (w.clash) put_values(w, A, at.space, value);
    agree(w, i, A, int(n), at.space, value);
}

template <class T, class D> void store_at(Warp& w, const Inst& i, const Where& at) {
    const u32 v = i.count, n = u32(sizeof(T)) * v, m = w.m;
    const u32* q = list(w, i);
    const u8* R = w.R;
    const bool row = at.shape == ROW;  // then all lanes execute
    if (v == 1) {
        const D* s = (const D*)(R + q[0]);
        if (row) {
            T* x = (T*)at.base;
            INDEPENDENT for (int k = 0; k < 32; ++k) x[k] = (T)s[k];
        } else if (m == ~0u) {
#pragma GCC unroll 8
            for (int k = 0; k < 32; ++k) *(T*)(at.base + at.t[k]) = (T)s[k];
        } else
            for (u32 t = m; t; t &= t - 1) {
                const int k = lowest(t);
                *(T*)(at.base + at.t[k]) = (T)s[k];
            }
        return;
    }
    if (row) return side_by_side<T, D>(R, q, v, (T*)at.base);
    alignas(64) T t[8 * 32];
    side_by_side<T, D>(R, q, v, t);
    if (n == 16) scatter<16>((const u8*)t, at.base, at.t, m);
    else if (n == 8) scatter<8>((const u8*)t, at.base, at.t, m);
    else
        for (u32 x = m; x; x &= x - 1) {
            const int k = lowest(x);
            memcpy(at.base + at.t[k], t + v * k, n);
        }
}

template <class T, class D> void store(Warp& w, const Inst& i) {
    Where at;
    const bool checks = w.launch->checks;
    w.compares = checks;
    w.clash = 0;
    const bool simple = !(i.flags & 6) && locate(w, i, u32(sizeof(T)) * i.count, WRITE, at);
    w.compares = false;
    if (__builtin_expect(!simple, 0)) return store_any<T, D>(w, i);
    if (at.shape == SAME)
        for (u32 k = 0; k < 32; ++k) at.t[k] = 0;
    if (__builtin_expect(w.clash, 0)) return store_again<T, D>(w, i, at);
    store_at<T, D>(w, i, at);
    if (checks && at.shape != ROW && differs<T, D>(w, i, at)) store_again<T, D>(w, i, at);
}

#define STORES(name, T, D) Add store_##name("st." #name, store<T, D>)
#define RARE_STORES(name, T, D) Add store_##name("st." #name, store_any<T, D>)
// The second part of the name is the register's width.
STORES(u8_32, u8, u32);
STORES(u16_32, u16, u32);
STORES(u32_32, u32, u32);
RARE_STORES(u8_64, u8, u64);
RARE_STORES(u16_64, u16, u64);
STORES(u32_64, u32, u64);
STORES(u64_64, u64, u64);

// 128 bits: the register holds the 32 low halves, then the 32 high ones.
void store128(Warp& w, const Inst& i) {
    u64 A[32];
    const int n = int(16 * i.count);
    const Space space = store_addresses(w, i, A, n);
    const auto value = [R = w.R, q = list(w, i), v = i.count](int k, u8* to) {
        for (u32 e = 0; e < v; ++e)
            for (u32 h = 0; h < 2; ++h) memcpy(to + 16 * e + 8 * h, R + q[e] + 256 * h + 8 * u32(k), 8);
    };
    put_values(w, A, space, value);
    if (launch_of(w).checks) agree(w, i, A, n, space, value);
}
Add store_b128("st.b128", store128);

}  // namespace

// ---- Atomics on memory.

namespace {

// Operand b, and c of cas; d is 0 for red. flags: 1 acquires, 2 releases, 4 lets others run.
template <class T, class F> void atomic(Warp& w, const Inst& i, F f) {
    u64 A[32];
    const Launch& l = launch_of(w);
    // What the checks note of atomics has to have the order in which they happen: whoever comes last at a place
    // has seen the others there, and may then use it as its own.
    std::unique_lock<std::mutex> in_turn;
    if (l.checks && l.threads > 1) in_turn = std::unique_lock(tracked(w).atomics);
    const Strong scope(w, i);
    const Space space = addresses(w, i, A, sizeof(T), ATOMIC);
    u8* R = w.R;
    if (l.checks) check_publish(w, A, w.m, i.flags & 11, space);
    typedef std::conditional_t<sizeof(T) == 8, u64, std::conditional_t<sizeof(T) == 4, u32, u16>> Bits;
    const bool alone = l.threads <= 1 || space == SHARED;
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        Bits* at = (Bits*)A[k];
        if (alone) {
            const T old = as<T>(*at);
            *at = as<Bits>(f(old, get<T>(R, i.b, k), k));
            if (i.d) put<T>(R, i.d, k, old);
            continue;
        }
        Bits before = __atomic_load_n(at, __ATOMIC_RELAXED);
        for (;;) {
            const Bits after = as<Bits>(f(as<T>(before), get<T>(R, i.b, k), k));
            if (__atomic_compare_exchange_n(at, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) break;
        }
        if (i.d) put<T>(R, i.d, k, as<T>(before));
    }
    if (l.checks) check_obtain(w, A, w.m, i.flags & 11, space);
    // Whoever changes the same place over and over may be waiting for somebody.
    if (i.flags & 4) w.yield = true;
}
#define ATOMIC_OP(name, T, ...) \
    HANDLER("atom." name, atomic<T>(w, i, [R, &i](T t, T b, int l) -> T { \
                (void)R; \
                (void)i; \
                (void)l; \
                (void)t; \
                (void)b; \
                return __VA_ARGS__; \
            });)
// A number's operations in so many bits, unsigned and signed.
#define ATOMICS(bits, U, S) \
    ATOMIC_OP("add.b" #bits, U, U(t + b)); \
    ATOMIC_OP("and.b" #bits, U, U(t& b)); \
    ATOMIC_OP("or.b" #bits, U, U(t | b)); \
    ATOMIC_OP("xor.b" #bits, U, U(t ^ b)); \
    ATOMIC_OP("exch.b" #bits, U, b); \
    ATOMIC_OP("cas.b" #bits, U, t == b ? get<U>(R, i.c, l) : t); \
    ATOMIC_OP("min.u" #bits, U, std::min(t, b)); \
    ATOMIC_OP("max.u" #bits, U, std::max(t, b)); \
    ATOMIC_OP("min.s" #bits, S, std::min(t, b)); \
    ATOMIC_OP("max.s" #bits, S, std::max(t, b)); \
    ATOMIC_OP("inc.u" #bits, U, t >= b ? U(0) : U(t + 1)); \
    ATOMIC_OP("dec.u" #bits, U, t == 0 || t > b ? b : U(t - 1))
ATOMICS(32, u32, s32);
ATOMICS(64, u64, s64);
ATOMIC_OP("cas.b16", u16, t == b ? get<u16>(R, i.c, l) : t);
ATOMIC_OP("exch.b16", u16, b);
ATOMIC_OP("add.f32", f32, t + b);
ATOMIC_OP("add.f64", f64, t + b);

f16 sum16(f16 a, f16 b) { return f16(f32(a) + f32(b)); }
u16 round_bf16(f32 f) {
    u32 u = as<u32>(f);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : u16((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
u16 sumbf(u16 a, u16 b) { return round_bf16(widen(bf16{a}) + widen(bf16{b})); }
ATOMIC_OP("add.f16", f16, sum16(t, b));
ATOMIC_OP("add.bf16", u16, sumbf(t, b));
ATOMIC_OP("add.f16x2", u32,
          u32(as<u16>(sum16(as<f16>(u16(t)), as<f16>(u16(b))))) |
              u32(as<u16>(sum16(as<f16>(u16(t >> 16)), as<f16>(u16(b >> 16))))) << 16);
ATOMIC_OP("add.bf16x2", u32, u32(sumbf(u16(t), u16(b))) | u32(sumbf(u16(t >> 16), u16(b >> 16))) << 16);

}  // namespace

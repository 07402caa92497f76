// Stores. Where checks are on, lanes that write one place have to agree.
#include "access.hpp"

namespace {

Space store_addresses(Warp& w, const Inst& i, u64* A, int bytes) {
    const Strong strong(w, i);
    w.clash = 0;
    w.compares = launch_of(w).checks;
    const Space space = addresses(w, i, A, bytes, WRITE);
    w.compares = false;
    if (i.flags & 6 && launch_of(w).checks) check_publish(w, A, w.m, i.flags & 2, space);
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
                fault_lane(k,
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
        _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) {
            to[4 * k] = (T)a[k];
            to[4 * k + 1] = (T)b[k];
            to[4 * k + 2] = (T)c[k];
            to[4 * k + 3] = (T)d[k];
        }
    } else if (v == 2) {
        const D *a = (const D*)(R + q[0]), *b = (const D*)(R + q[1]);
        _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) {
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
            _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) x[k] = (T)s[k];
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
// The second part of the name is the register's width.
STORES(u8_32, u8, u32);
STORES(u16_32, u16, u32);
STORES(u32_32, u32, u32);
STORES(u8_64, u8, u64);
STORES(u16_64, u16, u64);
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

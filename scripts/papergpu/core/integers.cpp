// Integers, bits and predicates of one thread.
#include "compare.hpp"
#include <algorithm>
#include <array>
#include <limits>

namespace {

// A name ends in the type that matters: u or s where the sign does, else u.
#define SHIFTS(U, S, bits) \
    HANDLER("shl.u" #bits, each<U>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                U a = get<U>(R, i.a, l); \
                u32 b = get<u32>(R, i.b, l); \
                return U(b < bits ? a << (b & (bits - 1)) : 0); \
            });) \
    HANDLER("shr.u" #bits, each<U>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                U a = get<U>(R, i.a, l); \
                u32 b = get<u32>(R, i.b, l); \
                return U(b < bits ? a >> b : 0); \
            });) \
    HANDLER("shr.s" #bits, each<S>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                S a = get<S>(R, i.a, l); \
                u32 b = get<u32>(R, i.b, l); \
                return S(a >> (b < bits ? b : bits - 1)); \
            });)
#define INTEGERS(U, S, bits) \
    BINARY("add.u" #bits, U, U, a + b) \
    BINARY("sub.u" #bits, U, U, a - b) BINARY("mul.lo.u" #bits, U, U, u64(a) * u64(b)) TERNARY("mad.lo.u" #bits, U, U, \
                                                                                               u64(a) * u64(b) + c) \
        BINARY("and.u" #bits, U, U, a& b) BINARY("or.u" #bits, U, U, a | b) BINARY("xor.u" #bits, U, U, a ^ b) \
            UNARY("not.u" #bits, U, U, ~a) UNARY("neg.u" #bits, U, U, -a) \
                BINARY("min.u" #bits, U, U, a < b ? a : b) BINARY("max.u" #bits, U, U, a > b ? a : b) \
                    BINARY("min.s" #bits, S, S, a < b ? a : b) BINARY("max.s" #bits, S, S, a > b ? a : b) \
                        UNARY("abs.s" #bits, S, S, a < 0 ? -(U)a : a) SHIFTS(U, S, bits) \
                            BINARY("div.u" #bits, U, U, b ? a / b : U(-1)) BINARY("rem.u" #bits, U, U, b ? a % b : a) \
                                BINARY("div.s" #bits, S, S, \
                                       b == 0    ? S(-1) \
                                       : b == -1 ? S(-(U)a) \
                                                 : S(a / b)) \
                                    BINARY("rem.s" #bits, S, S, \
                                           b == 0    ? a \
                                           : b == -1 ? S(0) \
                                                     : S(a % b)) \
                                        HANDLER("selp.u" #bits, each<U>(w, i.d, \
                                                                        [R, i = i, p = predicate(w, i.c)](int l) \
                                                                            __attribute__((always_inline)) { \
                                                                                U a = get<U>(R, i.a, l), \
                                                                                  b = get<U>(R, i.b, l); \
                                                                                return p >> l & 1 ? a : b; \
                                                                            });)
INTEGERS(u16, s16, 16)
INTEGERS(u32, s32, 32) INTEGERS(u64, s64, 64) BINARY("mul.hi.u16", u16, u16, u32(a) * b >> 16)
    BINARY("mul.hi.s16", s16, s16, s32(a) * b >> 16) BINARY("mul.hi.u32", u32, u32, u64(a) * b >> 32)
        BINARY("mul.hi.s32", s32, s32, s64(a) * b >> 32) BINARY("mul.hi.u64", u64, u64, u128(a) * b >> 64)
            BINARY("mul.hi.s64", s64, s64, s128(a) * b >> 64) TERNARY("mad.hi.u16", u16, u16, (u32(a) * b >> 16) + c)
                TERNARY("mad.hi.s16", s16, s16, (s32(a) * b >> 16) + c)
                    TERNARY("mad.hi.u32", u32, u32, (u64(a) * b >> 32) + c)
                        TERNARY("mad.hi.s32", s32, s32, u32(s64(a) * b >> 32) + u32(c))
                            TERNARY("mad.hi.u64", u64, u64, u64(u128(a) * b >> 64) + c)
                                TERNARY("mad.hi.s64", s64, s64, u64(s128(a) * b >> 64) + u64(c))
                                    BINARY("mul.wide.u16", u32, u16, u32(a) * b)
                                        BINARY("mul.wide.s16", s32, s16, s32(a) * b)
                                            BINARY("mul.wide.u32", u64, u32, u64(a) * b)
                                                BINARY("mul.wide.s32", s64, s32, s64(a) * b)
#define MAD_WIDE(name, D, T) \
    HANDLER("mad.wide." name, each<D>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                T a = get<T>(R, i.a, l), b = get<T>(R, i.b, l); \
                D c = get<D>(R, i.c, l); \
                return D(u64(D(a) * D(b)) + u64(c)); \
            });)
                                                    MAD_WIDE("u16", u32, u16) MAD_WIDE("s16", s32, s16)
                                                        MAD_WIDE("u32", u64, u32) MAD_WIDE("s32", s64, s32)

    // Registers of another width.
    HANDLER("mov.wide",
            each<u64>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { return u64(get<u32>(R, i.a, l)); });)
        UNARY("mov.u32", u32, u32, a) UNARY("mov.u64", u64, u64, a) HANDLER("mov.narrow",
                each<u32>(w, i.d,
                          [R, i = i](int l) __attribute__((always_inline)) { return u32(get<u64>(R, i.a, l)); });)
            HANDLER("mov.u128", u64 t[64]; memcpy(t, R + i.a, sizeof t);
                    for (int l = 0; l < 32; ++l) if (w.m >> l & 1) for (int h = 0; h < 2; ++h)
                        memcpy(R + i.d + 256 * h + 8 * l, t + 32 * h + l, 8);)
#define PACK(name, BIG, SMALL, K) \
    HANDLER("pack." name, std::array<u32, K> q; std::copy_n(list(w, i), K, q.begin()); \
            each<BIG>(w, i.d, [R, q](int l) __attribute__((always_inline)) { \
                BIG r = 0; \
                _Pragma("GCC unroll 4") for (int k = 0; k < K; ++k) r |= \
                    (sizeof(SMALL) < 4 ? BIG(get<u32>(R, q[k], l) & ((1ull << 8 * sizeof(SMALL)) - 1)) \
                                       : BIG(get<SMALL>(R, q[k], l))) \
                    << (8 * sizeof(SMALL) * k); \
                return r; \
            });) \
    HANDLER("unpack." name, const u32* q = list(w, i); alignas(64) BIG t[32]; \
            for (int l = 0; l < 32; ++l) t[l] = get<BIG>(R, i.a, l); \
            for (int k = 0; k < K; ++k) each<SMALL>(w, q[k], [t = &t[0], k](int l) __attribute__((always_inline)) { \
                return SMALL(t[l] >> (8 * sizeof(SMALL) * k)); \
            });)
                PACK("2x16", u32, u16, 2) PACK("2x32", u64, u32, 2) PACK("4x16", u64, u16, 4) PACK("4x8", u32, u8, 4)
                    PACK("2x8", u16, u8, 2)
                        HANDLER("pack.2x64", const u32* q = list(w, i); u64 t[64]; memcpy(t, R + q[0], 256);
                                memcpy(t + 32, R + q[1], 256);
                                for (int l = 0; l < 32; ++l) if (w.m >> l & 1) for (int h = 0; h < 2; ++h)
                                    memcpy(R + i.d + 256 * h + 8 * l, t + 32 * h + l, 8);)
                            HANDLER("unpack.2x64", const u32* q = list(w, i); u64 t[64]; memcpy(t, R + i.a, sizeof t);
                                    for (int h = 0; h < 2; ++h) for (int l = 0; l < 32; ++l) if (w.m >> l & 1)
                                        memcpy(R + q[h] + 8 * l, t + 32 * h + l, 8);)

    // Predicates.
    HANDLER("and.pred", set_predicate(w, i.d, predicate(w, i.a) & predicate(w, i.b));)
        HANDLER("or.pred", set_predicate(w, i.d, predicate(w, i.a) | predicate(w, i.b));)
            HANDLER("xor.pred", set_predicate(w, i.d, predicate(w, i.a) ^ predicate(w, i.b));)
                HANDLER("not.pred", set_predicate(w, i.d, ~predicate(w, i.a));)
                    HANDLER("mov.pred", set_predicate(w, i.d, predicate(w, i.a));)

#define COMPARE(name, T, op) HANDLER("setp." name, compare<T>(w, i, [](T a, T b) { return a op b; });)
#define COMPARES(type, T) \
    COMPARE("eq." type, T, ==) \
    COMPARE("ne." type, T, !=) COMPARE("lt." type, T, <) COMPARE("le." type, T, <=) COMPARE("gt." type, T, >) \
        COMPARE("ge." type, T, >=)
                        COMPARES("u16", u16) COMPARES("s16", s16) COMPARES("u32", u32) COMPARES("s32", s32)
                            COMPARES("u64", u64) COMPARES("s64", s64)

    // Bits.
    TERNARY("lop3", u32, u32, [=] {
        const u32 t = u32(i.imm);
        u32 r = 0;
        for (int k = 0; k < 8; ++k)
            if (t >> k & 1) r |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
        return r;
    }()) static inline u32 picked(u32 a, u32 b, u32 c) {
    const u32 t = (c & 4 ? b : a) >> 8 * (c & 3) & 255;
    return c & 8 ? (t & 128 ? 255 : 0) : t;
}
HANDLER(
    "prmt", const u32 c = get<u32>(R, i.c, 0);
    if (!constant(w, i.c) || c & 0x8888) {
        each<u32>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) {
            const u32 a = get<u32>(R, i.a, l), b = get<u32>(R, i.b, l), c = get<u32>(R, i.c, l);
            return picked(a, b, c) | picked(a, b, c >> 4) << 8 | picked(a, b, c >> 8) << 16 |
                   picked(a, b, c >> 12) << 24;
        });
        return;
    } const u32* p = (const u32*)(R + (c & 4 ? i.b : i.a)),
    *q = (const u32*)(R + (c >> 4 & 4 ? i.b : i.a)), *r = (const u32*)(R + (c >> 8 & 4 ? i.b : i.a)),
    *s = (const u32*)(R + (c >> 12 & 4 ? i.b : i.a));
    const u32 j = 8 * (c & 3), k = 8 * (c >> 4 & 3), m = 8 * (c >> 8 & 3), n = 8 * (c >> 12 & 3);
    each<u32>(w, i.d, [p, q, r, s, j, k, m, n](int l) __attribute__((always_inline)) {
        return (p[l] >> j & 255) | (q[l] >> k & 255) << 8 | (r[l] >> m & 255) << 16 | s[l] >> n << 24;
    });)
TERNARY("shf.l.wrap", u32, u32, (u64(b) << 32 | a) << (c & 31) >> 32)
TERNARY("shf.r.wrap", u32, u32, (u64(b) << 32 | a) >> (c & 31))
    TERNARY("shf.l.clamp", u32, u32, (u64(b) << 32 | a) << std::min(c, 32u) >> 32)
        TERNARY("shf.r.clamp", u32, u32, (u64(b) << 32 | a) >> std::min(c, 32u))
#define BITS(U, S, bits) \
    HANDLER("popc.u" #bits, \
            each<u32>(w, i.d, [R, i = i](int l) { return u32(__builtin_popcountll(get<U>(R, i.a, l))); });) \
    HANDLER("clz.u" #bits, each<u32>(w, i.d, [R, i = i](int l) { \
                const U a = get<U>(R, i.a, l); \
                return a ? u32(__builtin_clzll(a)) - (64 - bits) : u32(bits); \
            });) \
    UNARY("brev.u" #bits, U, U, [=] { \
        U x = a, r = 0; \
        for (int k = 0; k < bits; ++k) { \
            r = U(r << 1) | (x & 1); \
            x >>= 1; \
        } \
        return r; \
    }()) \
    HANDLER("bfe.u" #bits, each<U>(w, i.d, [R, i = i](int l) { \
                const U a = get<U>(R, i.a, l); \
                const u32 b = get<u32>(R, i.b, l) & 255, c = get<u32>(R, i.c, l) & 255; \
                if (b >= bits || !c) return U(0); \
                const U v = a >> b; \
                return c >= bits ? v : U(v & ((U(1) << c) - 1)); \
            });) \
    HANDLER("bfe.s" #bits, each<U>(w, i.d, [R, i = i](int l) { \
                const U a = get<U>(R, i.a, l); \
                const u32 b = get<u32>(R, i.b, l) & 255, c = get<u32>(R, i.c, l) & 255; \
                if (!c) return U(0); \
                const u32 top = std::min<u32>(b + c - 1, bits - 1); \
                const U sign = a >> top & 1 ? ~U(0) : U(0); \
                if (b >= bits) return sign; \
                const U v = U(S(a) >> b); \
                const u32 k = std::min<u32>(c, bits - b); \
                return k >= bits ? v : U((v & ((U(1) << k) - 1)) | (sign << k)); \
            });) \
    HANDLER("bfi.u" #bits, each<U>(w, i.d, [R, i = i](int l) { \
                const U a = get<U>(R, i.a, l), b = get<U>(R, i.b, l); \
                const u32 p = get<u32>(R, i.c, l) & 255, c = get<u32>(R, i.e, l) & 255; \
                if (p >= bits || !c) return b; \
                const U k = (c >= bits ? ~U(0) : (U(1) << c) - 1) << p; \
                return U((b & ~k) | ((a << p) & k)); \
            });)
            BITS(u32, s32, 32) BITS(u64, s64, 64)

}  // namespace

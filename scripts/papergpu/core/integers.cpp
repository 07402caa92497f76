// Integers, bits and predicates of one thread.
#include "core.hpp"
#include "numbers.hpp"
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

// ---- Integers of one thread that few programs need: carries, 24 bits, pairs of 16, dot products, bit fields.

namespace {

// CC.CF of each lane is a bit of warp.carry. flags: 1 it comes in, 2 it goes out.
template <class U, class F> static void carried(Warp& w, const Inst& i, bool borrow, F f) {
    const u32 in = i.flags & 1 ? w.carry : 0;
    u32 out = 0;
    for (u32 t = w.m; t; t &= t - 1) {
        const int l = lowest(t);
        const u128 c = in >> l & 1;
        const u128 x = u128(f(l)), y = u128(get<U>(w.R, borrow ? i.b : i.e, l)), s = borrow ? x - y - c : x + y + c;
        put<U>(w.R, i.d, l, U(s));
        out |= u32(s >> (8 * sizeof(U)) & 1) << l;
    }
    if (i.flags & 2) w.carry = (w.carry & ~w.m) | out;
}
#define CARRIED(name, U, S) \
    HANDLER("addc." name, carried<U>(w, i, false, [R, &i](int l) { return get<U>(R, i.a, l); });) \
    HANDLER("subc." name, carried<U>(w, i, true, [R, &i](int l) { return get<U>(R, i.a, l); });) \
        HANDLER("madc.lo." name, carried<U>(w, i, false, [R, &i](int l) { \
                    return U(u64(get<U>(R, i.a, l)) * u64(get<U>(R, i.b, l))); \
                });)
CARRIED("u32", u32, s32)
CARRIED("u64", u64, s64)
#define CARRIED_HIGH(name, U, T, WIDE, bits) \
    HANDLER("madc.hi." name, carried<U>(w, i, false, [R, &i](int l) { \
                return U(WIDE(get<T>(R, i.a, l)) * WIDE(get<T>(R, i.b, l)) >> bits); \
            });)
    CARRIED_HIGH("u32", u32, u32, u64, 32) CARRIED_HIGH("s32", u32, s32, s64, 32)
        CARRIED_HIGH("u64", u64, u64, u128, 64) CARRIED_HIGH("s64", u64, s64, s128, 64)

            static inline s32 clamp32(s64 x) {
    return x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : s32(x);
}
BINARY("add.sat.s32", s32, s32, clamp32(s64(a) + b))
BINARY("sub.sat.s32", s32, s32, clamp32(s64(a) - b))
    TERNARY("mad.sat.s32", s32, s32, clamp32((s64(a) * b >> 32) + c)) static inline s64 low24(s32 x) {
    return s32(u32(x) << 8) >> 8;
}
static inline u64 low24(u32 x) { return x & 0xffffffu; }
BINARY("mul24.lo.u32", u32, u32, low24(a) * low24(b))
BINARY("mul24.lo.s32", s32, s32, low24(a) * low24(b)) BINARY("mul24.hi.u32", u32, u32, low24(a) * low24(b) >> 16)
    BINARY("mul24.hi.s32", s32, s32, low24(a) * low24(b) >> 16)
        TERNARY("mad24.lo.u32", u32, u32, low24(a) * low24(b) + c)
            TERNARY("mad24.lo.s32", s32, s32, low24(a) * low24(b) + c)
                TERNARY("mad24.hi.u32", u32, u32, (low24(a) * low24(b) >> 16) + c)
                    TERNARY("mad24.hi.s32", s32, s32, (low24(a) * low24(b) >> 16) + c)
                        TERNARY("mad24.sat.s32", s32, s32, clamp32((low24(a) * low24(b) >> 16) + c))
#define SAD(name, T, U) TERNARY("sad." name, T, T, U(c) + (a < b ? U(b) - U(a) : U(a) - U(b)))
                            SAD("u16", u16, u16) SAD("s16", s16, u16) SAD("u32", u32, u32) SAD("s32", s32, u32)
                                SAD("u64", u64, u64) SAD("s64", s64, u64)
                                    BINARY("min.relu.s32", s32, s32, std::max(std::min(a, b), 0))
                                        BINARY("max.relu.s32", s32, s32, std::max(std::max(a, b), 0))

    // Two of 16 bits.
    template <class T, class F>
    static inline u32 both(u32 a, u32 b, F f) {
    return u32(u16(f(T(a), T(b)))) | u32(u16(f(T(a >> 16), T(b >> 16)))) << 16;
}
#define PAIRED(name, T, ...) BINARY(name, u32, u32, both<T>(a, b, [](T x, T y) { return __VA_ARGS__; }))
PAIRED("add.u16x2", u16, x + y)
PAIRED("min.u16x2", u16, std::min(x, y)) PAIRED("max.u16x2", u16, std::max(x, y))
    PAIRED("min.s16x2", s16, std::min(x, y)) PAIRED("max.s16x2", s16, std::max(x, y))
        PAIRED("min.relu.s16x2", s16, std::max<s16>(std::min(x, y), 0))
            PAIRED("max.relu.s16x2", s16, std::max<s16>(std::max(x, y), 0))

    // Dot products. b's half says which of its bytes dp2a takes.
    template <class A, class B>
    static inline u32 dot4(u32 a, u32 b, u32 c) {
    for (int k = 0; k < 4; ++k) c += u32(s32(A(a >> 8 * k)) * s32(B(b >> 8 * k)));
    return c;
}
template <class A, class B> static inline u32 dot2(u32 a, u32 b, u32 c) {
    for (int k = 0; k < 2; ++k) c += u32(s32(A(a >> 16 * k)) * s32(B(b >> 8 * k)));
    return c;
}
#define DOTS(x, y, A4, A2, B) \
    TERNARY("dp4a." x "." y, u32, u32, dot4<A4, B>(a, b, c)) \
    TERNARY("dp2a.lo." x "." y, u32, u32, dot2<A2, B>(a, b, c)) \
        TERNARY("dp2a.hi." x "." y, u32, u32, dot2<A2, B>(a, b >> 16, c))
DOTS("u32", "u32", u8, u16, u8)
DOTS("u32", "s32", u8, u16, s8) DOTS("s32", "u32", s8, s16, u8) DOTS("s32", "s32", s8, s16, s8)

    template <class P>
    static inline u32 differences(u32 a, u32 b, bool total, u32 c) {
    const int bits = 8 * sizeof(P);
    u32 r = total ? c : 0;
    for (int k = 0; k < 32 / bits; ++k) {
        const s32 d = s32(P(a >> bits * k)) - s32(P(b >> bits * k));
        r += u32(d < 0 ? -d : d) << (total ? 0 : bits * k);
    }
    return r;
}
TERNARY("vabsdiff2", u32, u32, differences<u16>(a, b, false, c))
TERNARY("vabsdiff2.add", u32, u32, differences<u16>(a, b, true, c))
    TERNARY("vabsdiff4", u32, u32, differences<u8>(a, b, false, c))
        TERNARY("vabsdiff4.add", u32, u32, differences<u8>(a, b, true, c))

// The highest bit that is no sign, or with flag 1 how far from the top it is; all ones if there is none.
#define FIND(name, T, bits) \
    HANDLER("bfind." name, each<u32>(w, i.d, [R, i = i](int l) { \
                const T a = get<T>(R, i.a, l); \
                const u64 x = std::make_unsigned_t<T>(a < 0 ? ~a : a); \
                const u32 at = x ? 63 - __builtin_clzll(x) : ~0u; \
                return i.flags & 1 && x ? bits - 1 - at : at; \
            });)
            FIND("u32", u32, 32) FIND("s32", s32, 32) FIND("u64", u64, 64) FIND("s64", s64, 64)
                HANDLER("fns", each<u32>(w, i.d,
                                         [R, i = i](int l) {
                                             const u32 mask = get<u32>(R, i.a, l), base = get<u32>(R, i.b, l);
                                             const s64 offset = get<s32>(R, i.c, l);
                                             if (!offset) return base < 32 && mask >> base & 1 ? base : ~0u;
                                             s64 count = std::abs(offset);
                                             for (s64 at = base; at >= 0 && at < 32; at += offset > 0 ? 1 : -1)
                                                 if (mask >> at & 1 && --count == 0) return u32(at);
                                             return ~0u;
                                         });)
    // flag 1: wrap
    HANDLER("bmsk", each<u32>(w, i.d,
                              [R, i = i](int l) __attribute__((always_inline)) {
                                  const u32 a = get<u32>(R, i.a, l), b = get<u32>(R, i.b, l), from = a & 31, n = b & 31;
                                  const bool clamp = !(i.flags & 1);
                                  const u32 low = clamp && a >= 32 ? 0 : ~0u << from;
                                  const u32 beyond = from + n >= 32 || (clamp && (a >= 32 || b >= 32)) ? 0
                                                     : n ? ~0u << ((from + n) & 31)
                                                         : ~0u;
                                  return low & ~beyond;
                              });)
#define EXTEND(name, is_signed) \
    HANDLER("szext." name, each<u32>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                const u32 a = get<u32>(R, i.a, l), b = get<u32>(R, i.b, l), n = b & 31; \
                const bool all = b >= 32 && !(i.flags & 1); \
                const u32 mask = all ? 0 : ~0u << n, sign = n && !all && is_signed ? a >> ((n - 1) & 31) & 1 : 0; \
                return (a & ~mask) | (sign ? mask : 0); \
            });)
        EXTEND("u32", false) EXTEND("s32", true) UNARY("cnot.u16", u16, u16, a == 0) UNARY("cnot.u32", u32, u32, a == 0)
            UNARY("cnot.u64", u64, u64, a == 0)

    // prmt's modes: four bytes forward or backward from c, its byte or half four times or twice, or clamped at c.
    template <class F>
    static inline u32 bytes(u32 a, u32 b, F f) {
    const u64 v = u64(b) << 32 | a;
    u32 r = 0;
    for (u32 k = 0; k < 4; ++k) r |= (u32(v >> 8 * (f(k) & 7)) & 255) << 8 * k;
    return r;
}
#define MODE(name, ...) TERNARY("prmt." name, u32, u32, bytes(a, b, [c = c & 3](u32 k) { return u32(__VA_ARGS__); }))
MODE("f4e", c + k)
MODE("b4e", c - k) MODE("rc8", c + 0 * k) MODE("ecl", std::max(c, k)) MODE("ecr", std::min(c, k))
    MODE("rc16", (c & 1) * 2 + (k & 1))

// slct: by the sign of c. flag 1 makes a subnormal c a zero.
#define SELECT(name, U) \
    HANDLER("slct." name ".s32", each<U>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                return get<s32>(R, i.c, l) >= 0 ? get<U>(R, i.a, l) : get<U>(R, i.b, l); \
            });) \
    HANDLER("slct." name ".f32", each<U>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                f32 c = get<f32>(R, i.c, l); \
                if (i.flags & 1 && std::fabs(c) < 0x1p-126f) c = 0; \
                return c >= 0 ? get<U>(R, i.a, l) : get<U>(R, i.b, l); \
            });)
        SELECT("u16", u16) SELECT("u32", u32) SELECT("u64", u64)

    // The predicate of lop3: d is not zero, and or or with predicate c; flag 1 says or.
    HANDLER("lop3.bool", u32 p = 0; for (int l = 0; l < 32; ++l) p |= u32(get<u32>(R, i.a, l) != 0) << l;
            set_predicate(w, i.d, i.flags & 1 ? p | predicate(w, i.c) : p & predicate(w, i.c));)
    // set of pairs: two predicates make the halves, imm in those that hold.
    HANDLER("set.pair",
            each<u32>(w, i.d,
                      [i = i, p = predicate(w, i.a), q = predicate(w, i.b)](int l) __attribute__((always_inline)) {
                          const u32 v = u32(i.imm);
                          return (p >> l & 1 ? v : 0) | (q >> l & 1 ? v << 16 : 0);
                      });)

    // cvt.pack: a above b, each clamped; below four bits, eight bits and more go above what c held.
    template <class T>
    static inline u32 clamped(s32 x, int bits, bool is_signed) {
    const s64 low = is_signed ? -(s64(1) << (bits - 1)) : 0,
              high = is_signed ? (s64(1) << (bits - 1)) - 1 : (s64(1) << bits) - 1;
    return u32(x < low ? low : x > high ? high : x) & ((1u << bits) - 1);
}
#define PACKED(name, bits, is_signed) \
    HANDLER("cvt.pack." name, each<u32>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                const u32 x = clamped<s32>(get<s32>(R, i.a, l), bits, is_signed), \
                          y = clamped<s32>(get<s32>(R, i.b, l), bits, is_signed); \
                const u32 c = bits == 16 ? 0 : get<u32>(R, i.c, l); \
                return (bits == 16 ? 0 : c << (2 * bits & 31)) | x << bits | y; \
            });)
PACKED("u16", 16, false)
PACKED("s16", 16, true) PACKED("u8", 8, false) PACKED("s8", 8, true) PACKED("u4", 4, false) PACKED("s4", 4, true)
    PACKED("u2", 2, false) PACKED("s2", 2, true)

}  // namespace

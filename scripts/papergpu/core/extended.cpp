// Integers of one thread that few programs need: carries, 24 bits, pairs of 16, dot products, bit fields.
#include "core.hpp"
#include <algorithm>

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

// cvt to and from floats of 4, 6 and 8 bits, scales (ue8m0) and tf32.
#include "numbers.hpp"

namespace {

// A format: its bias, bits of exponent and mantissa, its largest finite pattern, and its NaN (the largest where it has none).
template <int BIAS, int EXPONENT, int MANTISSA, u32 LARGEST, u32 NAN_> struct Shape {
    static const u32 sign = 1u << (EXPONENT + MANTISSA);
    static inline u32 down(f32 x, bool relu) {  // always .rn.satfinite
        const u32 u = as<u32>(x), m = u & 0x7fffffffu;
        u32 q = rounded<BIAS, MANTISSA>(choose(m < 0x7f800000u, m, 0x7f7fffffu), RN, false);
        q = choose(q > LARGEST, LARGEST, q);
        const u32 r = choose(u >> 31, relu ? 0 : q | sign, q);
        return choose(m > 0x7f800000u, NAN_, r);
    }
    static inline f32 up(u32 b) {
        const u32 m = b & (sign - 1), e = m >> MANTISSA;
        const f32 tiny = f32(s32(m)) * as<f32>(u32(127 + 1 - BIAS - MANTISSA) << 23);
        f32 r = e ? as<f32>((m << (23 - MANTISSA)) + (u32(127 - BIAS) << 23)) : tiny;
        if (NAN_ != LARGEST && m > LARGEST)
            r = EXPONENT == 5 && m == 0x7c ? as<f32>(0x7f800000u) : as<f32>(0x7fffffffu);
        return as<f32>(as<u32>(r) | (b & sign ? 0x80000000u : 0));
    }
};
typedef Shape<7, 4, 3, 0x7e, 0x7f> E4M3;
typedef Shape<15, 5, 2, 0x7b, 0x7f> E5M2;
typedef Shape<1, 2, 3, 0x1f, 0x1f> E2M3;
typedef Shape<3, 3, 2, 0x1f, 0x1f> E3M2;
typedef Shape<1, 2, 1, 0x7, 0x7> E2M1;

// The first operand is the upper one.
template <class S, int bits> static void from_floats(Warp& w, const Inst& i) {
    each<u32>(w, i.d, [R = w.R, i = i, relu = bool(i.flags & RELU)](int l) __attribute__((always_inline)) {
        return S::down(get<f32>(R, i.a, l), relu) << bits | S::down(get<f32>(R, i.b, l), relu);
    });
}
template <class S> static void from_halves(Warp& w, const Inst& i) {
    each<u32>(w, i.d, [R = w.R, i = i, relu = bool(i.flags & RELU)](int l) __attribute__((always_inline)) {
        const u32 a = get<u32>(R, i.a, l);
        return S::down(from_half(a >> 16), relu) << 8 | S::down(from_half(a & 0xffff), relu);
    });
}
// Looked up: there are no more than 256.
template <class S> static const u16* halves() {
    static u16 table[256];
    static const bool made = [] {
        for (u32 k = 0; k < 256; ++k) table[k] = u16(to_half(S::up(k & (S::sign * 2 - 1))));
        return true;
    }();
    (void)made;
    return table;
}
template <class S, int bits> static void to_halves(Warp& w, const Inst& i) {
    const u16* table = halves<S>();
    const u32* a = (const u32*)(w.R + i.a);
    const bool relu = i.flags & RELU;
    alignas(64) u32 t[32];
    for (int l = 0; l < 32; ++l)
        t[l] = table[a[l] & ((1u << bits) - 1)] | u32(table[a[l] >> bits & ((1u << bits) - 1)]) << 16;
    if (relu)
        for (int l = 0; l < 32; ++l) {
            const u32 x = t[l] & 0xffff, y = t[l] >> 16;
            t[l] = (x & 0x8000 ? 0 : x) | (y & 0x8000 ? 0 : y) << 16;
        }  // NaN has no sign here
    each<u32>(w, i.d, [t = &t[0]](int l) __attribute__((always_inline)) { return t[l]; });
}
#define SMALL(name, S, bits) \
    HANDLER("cvt." name ".f32", (from_floats<S, bits>(w, i));) HANDLER("cvt.f16x2." name, (to_halves<S, bits>(w, i));)
SMALL("e4m3x2", E4M3, 8)
SMALL("e5m2x2", E5M2, 8) SMALL("e2m3x2", E2M3, 8) SMALL("e3m2x2", E3M2, 8) SMALL("e2m1x2", E2M1, 4)
    HANDLER("cvt.e4m3x2.f16x2", from_halves<E4M3>(w, i);) HANDLER("cvt.e5m2x2.f16x2", from_halves<E5M2>(w, i);)

    // Powers of two from 2**-127; 255 is NaN. The sign does not count.
    static inline u32 scale(f32 x, u32 mode, bool finite) {
    const u32 m = as<u32>(x) & 0x7fffffffu;
    u32 e = m >> 23;
    if (mode == RP && m & 0x7fffff && m > 0x400000u && m < 0x7f800000u) ++e;
    return m > 0x7f800000u ? 255 : finite && e > 254 ? 254 : e;
}
HANDLER("cvt.ue8m0x2.f32", each<u32>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) {
            return scale(get<f32>(R, i.a, l), u32(i.imm), i.flags & SATFINITE) << 8 |
                   scale(get<f32>(R, i.b, l), u32(i.imm), i.flags & SATFINITE);
        });)
HANDLER("cvt.ue8m0x2.bf16x2", each<u32>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) {
            const u32 a = get<u32>(R, i.a, l);
            return scale(from_brain(a >> 16), u32(i.imm), i.flags & SATFINITE) << 8 |
                   scale(from_brain(a & 0xffff), u32(i.imm), i.flags & SATFINITE);
        });)
static inline u32 power(u32 x) { return x == 255 ? 0x7fff : x ? x << 7 : 0x40; }
HANDLER("cvt.bf16x2.ue8m0x2", each<u32>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) {
            const u32 a = get<u32>(R, i.a, l);
            return power(a >> 8 & 255) << 16 | power(a & 255);
        });)

// 10 bits of mantissa in the upper 19 of a float.
static inline u32 tensor(f32 x, u32 mode, u32 flags) {
    const u32 u = as<u32>(x), m = u & 0x7fffffffu, rest = m & 0x1fff;
    const u32 up = mode == RN ? rest > 0x1000 || (rest == 0x1000 && m & 0x2000) : mode == RNA ? rest >= 0x1000 : 0;
    u32 q = m < 0x7f800000u ? (m & ~0x1fffu) + (up ? 0x2000u : 0) : m;
    if (flags & SATFINITE && q == 0x7f800000u) q = 0x7f7fe000u;
    if (u >> 31) q = flags & RELU ? 0 : q | 0x80000000u;
    return m > 0x7f800000u ? 0x7fffe000u : q;
}
HANDLER("cvt.tf32.f32", each<u32>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) {
            return tensor(get<f32>(R, i.a, l), u32(i.imm), i.flags);
        });)

}  // namespace

// ---- cvt.rs: floats to fewer bits, rounded away from zero where random bits and what is dropped carry.

namespace {

// What a format keeps: its bias, bits of mantissa, its sign, its largest finite pattern, what stands for more
// and for NaN.
struct Kept {
    s32 bias, mantissa;
    u32 sign, largest, beyond, nan;
};
constexpr Kept F16_ = {15, 10, 0x8000, 0x7bff, 0x7c00, 0x7fff}, BF16_ = {127, 7, 0x8000, 0x7f7f, 0x7f80, 0x7fff},
               E4M3_ = {7, 3, 0x80, 0x7e, 0x7e, 0x7f}, E5M2_ = {15, 2, 0x80, 0x7b, 0x7b, 0x7f},
               E2M3_ = {1, 3, 0x20, 0x1f, 0x1f, 0x1f}, E3M2_ = {3, 2, 0x20, 0x1f, 0x1f, 0x1f}, E2M1_ = {1, 1, 8, 7, 7, 7};

// `count` random bits are added to the highest of those that are dropped.
u32 down(const Kept& to, f32 x, u32 random, u32 count, u32 flags) {
    const u32 u = as<u32>(x), m = u & 0x7fffffffu;
    if (m > 0x7f800000u) return to.nan;
    u32 q = ~0u;
    if (m < 0x7f800000u) {
        const u32 field = m >> 23, power = field ? field : 1;
        const u64 whole = (m & 0x7fffff) | (field ? 0x800000 : 0);
        const s32 above = s32(power) - (128 - to.bias), low = above < 0 ? above : 0, dropped = 23 - to.mantissa - low;
        if (dropped > 40) q = 0;  // less than any random bits make up for
        else {
            const u64 rest = whole & ((1ull << dropped) - 1), carry = ((rest << count >> dropped) + random) >> count;
            q = u32((whole >> dropped) + carry) + (u32(above - low) << to.mantissa);
        }
    }
    if (q > to.largest) q = flags & SATFINITE ? to.largest : to.beyond;
    return u >> 31 ? flags & RELU ? 0 : q | to.sign : q;
}

u32 reversed(u32 x, u32 bits) {
    u32 r = 0;
    for (u32 k = 0; k < bits; ++k) r |= (x >> k & 1) << (bits - 1 - k);
    return r;
}

// The first float becomes the upper half, and has the upper half of the random bits.
void pair(Warp& w, const Inst& i, const Kept& to, u32 count) {
    for (u32 t = w.m; t; t &= t - 1) {
        const int l = lowest(t);
        const u32 r = get<u32>(w.R, i.c, l), mask = (1u << count) - 1;
        const u32 high = down(to, get<f32>(w.R, i.a, l), r >> 16 & mask, count, i.flags),
                  low = down(to, get<f32>(w.R, i.b, l), r & mask, count, i.flags);
        put<u32>(w.R, i.d, l, high << 16 | low);
    }
}

// Four floats, the first the uppermost, and random bits of which two share 16: one of them takes them turned round.
void four(Warp& w, const Inst& i, const Kept& to) {
    const u32* q = list(w, i);
    const bool nibbles = to.sign == 8;
    for (u32 t = w.m; t; t &= t - 1) {
        const int l = lowest(t);
        const u32 r = get<u32>(w.R, q[4], l);
        // Of 4 bits each the pairs have alternate bytes.
        const u32 upper = nibbles ? (r >> 16 & 0xff00) | (r >> 8 & 0xff) : r >> 16,
                  lower = nibbles ? (r >> 8 & 0xff00) | (r & 0xff) : r & 0xffff;
        const u32 random[4] = {reversed(upper, 16), upper, reversed(lower, 16), lower};
        u32 d = 0;
        for (u32 k = 0; k < 4; ++k)
            d = d << (nibbles ? 4 : 8) | down(to, get<f32>(w.R, q[k], l), random[k], 16, i.flags);
        put<u32>(w.R, i.d, l, d);
    }
}

HANDLER("cvt.rs.f16x2", pair(w, i, F16_, 13);)
HANDLER("cvt.rs.bf16x2", pair(w, i, BF16_, 16);)
HANDLER("cvt.rs.e4m3x4", four(w, i, E4M3_);)
HANDLER("cvt.rs.e5m2x4", four(w, i, E5M2_);)
HANDLER("cvt.rs.e2m3x4", four(w, i, E2M3_);)
HANDLER("cvt.rs.e3m2x4", four(w, i, E3M2_);)
HANDLER("cvt.rs.e2m1x4", four(w, i, E2M1_);)

}  // namespace

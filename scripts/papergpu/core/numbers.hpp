// Floating formats by their bits: how patterns become float, how a float is rounded to fewer bits, and
// what is done to operands and results by modifiers. All of it vectorises.
#pragma once
#include "core.hpp"

// As decode/alu.py numbers them, in `imm`; and `flags`.
enum Rounding : u32 { RN, RZ, RM, RP, RNA };
enum { FTZ = 1, SAT = 2, RELU = 4, SATFINITE = 8, STRICT = 16, ABS = 32, XORSIGN = 64 };  // STRICT is .NaN

static inline f32 canonical(f32 x) { return x == x ? x : as<f32>(0x7fffffffu); }
static inline f64 canonical(f64 x) { return x == x ? x : as<f64>(0x7ff8000000000000ull); }
// A subnormal number becomes a zero of its sign.
static inline f32 flushed(f32 x) {
    const u32 u = as<u32>(x);
    return u & 0x7f800000u ? x : as<f32>(u & 0x80000000u);
}
static inline f64 flushed(f64 x) { return x; }
// Between 0 and 1; NaN and -0 become +0.
template <class T> static inline T saturated(T x) { return x > T(0) ? x < T(1) ? x : T(1) : T(0); }

static inline f32 from_brain(u32 b) { return as<f32>(b << 16); }

// The magnitude u (bits of a float, finite) in E exponent bits of that bias and M mantissa bits. The
// patterns above the largest are those of what is too large.
template <int BIAS, int M> static inline u32 rounded(u32 u, u32 mode, bool negative) {
    const u32 field = u >> 23, normal = u32(field != 0), power = field + 1 - normal;  // with the bias of float
    const u32 whole = (u & 0x7fffff) | normal << 23;
    const s32 above = s32(power) - (128 - BIAS), low = above < 0 ? above : 0, wanted = 23 - M - low,
              shift = wanted > 25 ? 25 : wanted;
    const u32 q = whole >> shift, rest = whole & ((1u << shift) - 1), half = 1u << shift >> 1;
    const u32 nearest = u32(rest + (q & 1) > half) & u32(half != 0), away = u32(rest >= half) & u32(half != 0),
              up = u32(rest != 0);
    const u32 add = mode == RN ? nearest : mode == RNA ? away : mode == (negative ? RM : RP) ? up : 0;
    return q + add + (u32(above - low) << M);
}
static inline u32 to_half(f32 x, u32 mode = RN, bool finite = false) {
    const u32 u = as<u32>(x), m = u & 0x7fffffffu, sign = u >> 31;
    const u32 q = rounded<15, 10>(choose(m < 0x7f800000u, m, 0x7f7fffffu), mode, sign);
    const u32 inward = u32(mode == RZ) | (u32(mode == RP) & sign) | (u32(mode == RM) & ~sign & 1);
    const u32 beyond = choose(bool(u32(finite) | (inward & u32(m < 0x7f800000u))), 0x7bffu, 0x7c00u);
    return choose(m > 0x7f800000u, 0x7fffu, choose(q > 0x7bff, beyond, q) | sign << 15);
}
static inline u32 to_brain(f32 x, u32 mode = RN, bool finite = false) {
    const u32 u = as<u32>(x), m = u & 0x7fffffffu;
    const bool negative = u >> 31;
    u32 q = m + (mode == RN                     ? 0x7fff + (m >> 16 & 1)
                 : mode == RNA                  ? 0x8000
                 : mode == (negative ? RM : RP) ? 0xffffu
                                                : 0);
    q = m < 0x7f800000u ? q >> 16 : 0x7f80;
    if (finite && q == 0x7f80) q = 0x7f7f;
    return m > 0x7f800000u ? 0x7fff : q | (negative ? 0x8000u : 0);
}
// The nearest bf16, and f16 of a double, quicker than by any mode.
static inline u32 brain_of(f32 x) {
    const u32 u = as<u32>(x), q = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return choose((u & 0x7fffffffu) > 0x7f800000u, 0x7fffu, q);
}
static inline u32 half_of(f64 x) {
    const u64 u = as<u64>(x) & ~(1ull << 63), sign = as<u64>(x) >> 48 & 0x8000;
    const u64 normal = (u - (1008ull << 52) + ((1ull << 41) - 1) + (u >> 42 & 1)) >> 42,
              tiny = as<u64>(as<f64>(u) + 0x1p28) - as<u64>(0x1p28);
    const u64 q = choose(u < as<u64>(0x1p-14), tiny, choose(u >= as<u64>(0x1p16), u64(0x7c00), normal));
    return u32(choose(u > 0x7ff0000000000000ull, u64(0x7fff), q | sign));
}
static inline u32 brain_of(f64 x) {
    const u64 u = as<u64>(x) & ~(1ull << 63), sign = as<u64>(x) >> 48 & 0x8000;
    const u64 normal = (u - (896ull << 52) + ((1ull << 44) - 1) + (u >> 45 & 1)) >> 45,
              tiny = as<u64>(as<f64>(u) + 0x1p-81) - as<u64>(0x1p-81);
    const u64 q = choose(u < as<u64>(0x1p-126), tiny, choose(u >= as<u64>(0x1p128), u64(0x7f80), normal));
    return u32(choose(u > 0x7ff0000000000000ull, u64(0x7fff), q | sign));
}
// Rounded to odd, so that a second rounding is right in any mode.
static inline f32 odd(f64 x) {
    const f32 f = f32(x);
    const f64 back = f64(f);
    u32 u = as<u32>(f);
    const bool over = std::fabs(back) > std::fabs(x), exact = back == x || x != x;
    u = exact ? u : (over ? u - 1 : u) | 1;
    return as<f32>(u);
}

// ---- setp: comparisons of any type.

// d, and in register e the opposite (both combined with predicate c). flags: 1 and, 2 or, 3 xor; 4 c is negated; 8 there is an e.
static inline __attribute__((always_inline)) void combine(Warp& w, const Inst& i, u32 p) {
    u32 q = ~p;
    if (i.flags & 3) {
        u32 c = predicate(w, i.c);
        if (i.flags & 4) c = ~c;
        const u32 o = i.flags & 3;
        p = o == 1 ? p & c : o == 2 ? p | c : p ^ c;
        q = o == 1 ? q & c : o == 2 ? q | c : q ^ c;
    }
    set_predicate(w, i.d, p);
    if (i.flags & 8) set_predicate(w, i.e, q);
}
template <class F> static inline __attribute__((always_inline)) u32 ballot(F f) {
    u32 p = 0;
    alignas(64) u32 t[32];
    for (int l = 0; l < 32; ++l) t[l] = f(l) ? 1u << l : 0;
    for (int l = 0; l < 32; ++l) p |= t[l];
    return p;
}
template <class T, class F> static inline __attribute__((always_inline)) void compare(Warp& w, const Inst& i, F f) {
    const u8* R = w.R;
    combine(w, i, ballot([R, i = i, f](int l) __attribute__((always_inline)) {
                return f(get<T>(R, i.a, l), get<T>(R, i.b, l));
            }));
}

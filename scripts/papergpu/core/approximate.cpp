// Approximate functions: rounded correctly, or moved within what the PTX ISA documents if the launch asks.
#ifdef __AVX512F__
#pragma GCC target("prefer-vector-width=512")  // for what is done in double
#endif
#include "core.hpp"
#include "numbers.hpp"
#include <limits>

// ---- Powers, logarithms, waves and hyperbolic tangents in double, to about 2**-51 and so that loops of them
// vectorise: what they give is rounded to float, where it is the nearest but for one operand in millions.

// The sum of coefficients times powers of r, the first of the highest power.
static inline __attribute__((always_inline)) f64 polynomial(f64, f64 sum) { return sum; }
template <class... Rest>
static inline __attribute__((always_inline)) f64 polynomial(f64 r, f64 sum, f64 next, Rest... rest) {
    return polynomial(r, fused_near(sum, r, next), rest...);
}
static inline __attribute__((always_inline)) f64 pick(bool a, f64 x, f64 y) {
    const u64 m = 0 - u64(a);
    return as<f64>((as<u64>(x) & m) | (as<u64>(y) & ~m));
}
static const f64 SHIFT = 0x1.8p52;  // added, it leaves the nearest whole number in the lower bits

// 2**r - 1 by r, for |r| up to a half: ln(2)**k / k!
static inline __attribute__((always_inline)) f64 power_less_one(f64 r) {
    return polynomial(r, 1.3691488853904128e-12, 2.5678435993488206e-11, 4.4455382718708114e-10, 7.054911620801123e-09,
                      1.0178086009239699e-07, 1.3215486790144307e-06, 1.5252733804059841e-05, 1.5403530393381608e-04,
                      1.3333558146428443e-03, 9.6181291076284772e-03, 5.5504108664821580e-02, 2.4022650695910072e-01,
                      6.9314718055994531e-01) *
           r;
}
static inline __attribute__((always_inline)) f64 exponent_two(f64 x) {
    x = pick(x < -1000, -1000, pick(x > 1000, 1000, x));
    const f64 t = x + SHIFT, r = x - (t - SHIFT);
    const f64 scale = as<f64>((as<u64>(t) + 1023) << 52);
    return pick(x == x, (1 + power_less_one(r)) * scale, x);
}
static inline __attribute__((always_inline)) f64 logarithm_two(f64 x) {
    const u64 u = as<u64>(x),
              moved = u - as<u64>(0x1.6a09e667f3bcdp-1);  // so that the mantissa is from sqrt(1/2) to sqrt(2)
    const f64 m = as<f64>(u - (moved & 0xfff0000000000000ull));
    const f64 e = as<f64>(((moved ^ 1ull << 63) >> 52) | 0x4330000000000000ull) - (0x1p52 + 2048);
    const f64 s = (m - 1) / (m + 1), q = s * s;
    const f64 two = 2 * s, ln = fused_close(two * q,
                                            polynomial(q, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                                       1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3),
                                            two);
    const f64 hi = ln * 0x1.71547652b82fep0, lo = fused_close(ln, 0x1.71547652b82fep0, -hi);
    const f64 r = e + (hi + (lo + ln * 0x1.777d0ffda0d24p-56));
    return pick(x > 0, pick(x < HUGE_VAL, r, x), pick(x == 0, -HUGE_VAL, as<f64>(0x7ff8000000000000ull)));
}
// Up to |x| = 2**20; from there on the library's.
template <int quarters> static inline __attribute__((always_inline)) f64 wave(f64 x) {
    const f64 t = x * 0x1.45f306dc9c883p-1 + SHIFT, k = t - SHIFT;
    f64 r = fused_close(-k, 0x1.921fb54442d18p0, x);
    r = fused_close(-k, 0x1.1a62633145c07p-54, r);
    r = fused_close(-k, -0x1.f1976b7ed8fbcp-110, r);
    const u64 n = as<u64>(t) + quarters;
    const f64 q = r * r;
    const f64 sine = fused_close(r * q,
                                 polynomial(q, 2.8114572543455206e-15, -7.6471637318198164e-13, 1.6059043836821613e-10,
                                            -2.5052108385441720e-08, 2.7557319223985893e-06, -1.9841269841269841e-04,
                                            8.3333333333333332e-03, -1.6666666666666666e-01),
                                 r),
              cosine = fused_close(q * q,
                                   polynomial(q, -1.5619206968586225e-16, 4.7794773323873853e-14,
                                              -1.1470745597729725e-11, 2.0876756987868100e-09, -2.7557319223985888e-07,
                                              2.4801587301587302e-05, -1.3888888888888889e-03, 4.1666666666666664e-02),
                                   1 - 0.5 * q);
    const f64 v = pick(n & 1, cosine, sine);
    return as<f64>(as<u64>(v) ^ (n & 2) << 62);
}
static inline __attribute__((always_inline)) f64 hyperbolic_tangent(f64 x) {
    const f64 z = pick(x < -30, -30, pick(x > 30, 30, x)), y = z * 0x1.71547652b82fep1,
              low = fused_close(z, 0x1.71547652b82fep1, -y) + z * 0x1.777d0ffda0d24p-55;
    const f64 t = y + SHIFT, r = (y - (t - SHIFT)) + low;
    const f64 scale = as<f64>((as<u64>(t) + 1023) << 52);
    const f64 m = fused_close(scale, power_less_one(r), scale - 1), v = m / (m + 2);
    return pick(x == x, as<f64>((as<u64>(v) & ~(1ull << 63)) | (as<u64>(x) & 1ull << 63)), x);
}


// ---- the approximate functions

namespace {

// From -1 to 1, by the seed and an operand's bits.
static inline f64 wobble(u64 seed, u64 bits) {
    u64 x = (bits + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 30) * 0x94d049bb133111ebull;
    x ^= x >> 31;
    return f64(s64(x) >> 11) * 0x1p-52;
}
static inline f64 ulp(f64 y) {
    y *= 1 - 0x1p-40;  // rather that of the numbers below
    const int e = y == 0 ? -126 : std::ilogb(y);
    return std::ldexp(1.0, (e < -126 ? -126 : e) - 23);
}

const f64 LESS = 1 - 0x1p-20;  // for y is known to 2**-50 alone

// What a result may be away from the exact y at x.
struct Ulps1 {
    static f64 of(f64, f64 y) { return ulp(y); }
};
struct Ulps2 {
    static f64 of(f64, f64 y) { return 2 * ulp(y); }
};
struct Root {
    static f64 of(f64, f64 y) { return std::fabs(y) * 0x1p-23; }
};
struct Inverse {
    static f64 of(f64, f64 y) { return std::fabs(y) * 0x1.125fbep-23; }
};  // 2**-22.9
struct Wave {
    static f64 of(f64 x, f64) { return std::fabs(x) <= 6.283185307179586 ? 0x1.6a09e6p-21 : 0x1.3b2c47p-15; }
};  // 2**-20.5, 2**-14.7
struct Logarithm {
    static f64 of(f64 x, f64 y) { return x > 0.5 && x < 2 ? 0x1p-22 : std::fabs(y) * 0x1p-22; }
};
struct Tangent {
    static f64 of(f64, f64 y) { return std::fabs(y) * 0x1p-11; }
};

// r is y rounded to f32; it stays what it is where it is exact by definition, and a bound says no more than its half ulp.
template <class E> static inline f32 moved(f32 r, f64 x, f64 y, u64 seed, u64 bits, f64 limit) {
    if (!(r - r == 0) || r == 0 || x == 0) return r;
    const f64 bound = E::of(x, y) * LESS, t = y + wobble(seed, bits) * bound;
    const f32 q = f32(std::fabs(t) > limit ? std::copysign(limit, t) : t);
    return std::fabs(f64(q) - y) <= bound && q - q == 0 ? q : r;
}
template <class E, bool ftz, class F>
static void approximate(Warp& w, const Inst& i, F f, f64 limit = std::numeric_limits<f64>::infinity()) {
    const u64 seed = launch_of(w).perturb;
    auto value = [R = w.R, i = i, f](int l) __attribute__((always_inline)) {
        const f32 x = get<f32>(R, i.a, l);
        return f(f64(ftz ? flushed(x) : x));
    };
    if (!seed) {
        each<f32>(w, i.d, [value](int l) __attribute__((always_inline)) {
            const f32 r = canonical(f32(value(l)));
            return ftz ? flushed(r) : r;
        });
        return;
    }
    each<f32>(w, i.d, [R = w.R, i = i, value, seed, limit](int l) {
        const f64 y = value(l);
        const f32 x = get<f32>(R, i.a, l);
        const f32 r = moved<E>(canonical(f32(y)), f64(ftz ? flushed(x) : x), y, seed, as<u32>(x), limit);
        return ftz ? flushed(r) : r;
    });
}
#define APPROXIMATE(name, E, limit, ...) \
    HANDLER(name ".approx.f32", \
            (approximate<E, false>(w, i, [](f64 a) __attribute__((always_inline)) { return __VA_ARGS__; }, limit));) \
    HANDLER(name ".approx.ftz.f32", \
            (approximate<E, true>(w, i, [](f64 a) __attribute__((always_inline)) { return __VA_ARGS__; }, limit));)
APPROXIMATE("ex2", Ulps2, INFINITY, exponent_two(a))
APPROXIMATE("lg2", Logarithm, INFINITY, logarithm_two(a)) APPROXIMATE("rcp", Ulps1, INFINITY, 1 / a)
    APPROXIMATE("rsqrt", Inverse, INFINITY, 1 / std::sqrt(a)) APPROXIMATE("sqrt", Root, INFINITY, std::sqrt(a))
        HANDLER("tanh.approx.f32",
                (approximate<Tangent, false>(
                    w, i, [](f64 a) __attribute__((always_inline)) { return hyperbolic_tangent(a); }, 1));)
    // Angles so large that the turns in them do not fit are left to the library.
    template <int quarters, bool ftz>
    static void waves(Warp& w, const Inst& i) {
    u32 large = 0;
    const u32* a = (const u32*)(w.R + i.a);
    for (int l = 0; l < 32; ++l) large |= u32((a[l] & 0x7fffffffu) > 0x49800000u);
    if (large) approximate<Wave, ftz>(w, i, [](f64 x) { return quarters ? std::cos(x) : std::sin(x); }, 1);
    else approximate<Wave, ftz>(w, i, [](f64 x) __attribute__((always_inline)) { return wave<quarters>(x); }, 1);
}
HANDLER("sin.approx.f32", (waves<0, false>(w, i));)
HANDLER("sin.approx.ftz.f32", (waves<0, true>(w, i));) HANDLER("cos.approx.f32", (waves<1, false>(w, i));)
    HANDLER("cos.approx.ftz.f32", (waves<1, true>(w, i));)

    // Quotients. div.approx gives 0 where the divisor's magnitude is above 2**126: its reciprocal is flushed.
    template <bool ftz, bool full>
    static void quotient(Warp& w, const Inst& i) {
    const u64 seed = launch_of(w).perturb;
    auto value = [R = w.R, i = i](int l) __attribute__((always_inline)) {
        const f32 a = get<f32>(R, i.a, l), b = get<f32>(R, i.b, l), x = ftz ? flushed(a) : a, y = ftz ? flushed(b) : b;
        const f32 big = std::fabs(y), zero = as<f32>(as<u32>(y) & 0x80000000u);
        const bool beyond = !full && big > 0x1p126f && big < std::numeric_limits<f32>::infinity();
        return beyond ? x * zero : x / y;  // infinity times zero is NaN
    };
    if (!seed) {
        each<f32>(w, i.d, [value](int l) __attribute__((always_inline)) {
            const f32 r = canonical(value(l));
            return ftz ? flushed(r) : r;
        });
        return;
    }
    each<f32>(w, i.d, [R = w.R, i = i, value, seed](int l) {
        const f32 a = get<f32>(R, i.a, l), b = get<f32>(R, i.b, l);
        const f64 x = ftz ? flushed(a) : a, y = ftz ? flushed(b) : b;
        const f32 r = moved<Ulps2>(canonical(value(l)), x, x / y, seed, u64(as<u32>(a)) << 32 | as<u32>(b), INFINITY);
        return ftz ? flushed(r) : r;
    });
}
HANDLER("div.full.f32", (quotient<false, true>(w, i));)
HANDLER("div.full.ftz.f32", (quotient<true, true>(w, i));) HANDLER("div.approx.f32", (quotient<false, false>(w, i));)
    HANDLER("div.approx.ftz.f32", (quotient<true, false>(w, i));)

    // f64 by its upper half alone: 20 bits of mantissa, subnormal numbers zeros, the lower half zero.
    static inline f64 upper(f64 x) {
    const u64 u = as<u64>(x) & ~0xffffffffull;
    return as<f64>(u & 0x7ff0000000000000ull ? u : u & 1ull << 63);
}
static inline f64 rounded_upper(f64 x) {
    const u64 u = as<u64>(canonical(x));
    return x - x == 0 ? upper(as<f64>(u + 0x7fffffffull + (u >> 32 & 1))) : as<f64>(u);
}
UNARY("rcp.approx.ftz.f64", f64, f64, rounded_upper(1 / upper(a)))
UNARY("rsqrt.approx.ftz.f64", f64, f64, rounded_upper(1 / std::sqrt(upper(a))))
    // Rounded from the root's and the quotient's own errors, of numbers that are far from the smallest.
    static inline f64 inverse_root(f64 given) {
    const bool tiny = std::fabs(given) < 0x1p-900;
    const f64 a = tiny ? given * 0x1p200 : given;
    const f64 s = std::sqrt(a), y = 1 / s, lost = std::fma(-s, s, a);
    const f64 r = a > 0 && s - s == 0 ? y + y * (std::fma(-s, y, 1.0) - lost / (2 * a)) : y;
    return canonical(tiny ? r * 0x1p100 : r);
}
UNARY("rsqrt.approx.f64", f64, f64, inverse_root(a))

// Halves: f16 to 2**-9.9 relative (ex2) and 2**-10.987 absolute (tanh), bf16 to 2**-7 and 2**-8.
template <bool half, bool power> struct Narrow {
    static inline f64 up(u32 v) { return half ? from_half(v) : from_brain(v); }
    static inline u32 down(f64 v) { return half ? half_of(v) : brain_of(v); }
    static inline f64 exact(f64 a) { return power ? exponent_two(a) : hyperbolic_tangent(a); }
    static u32 moved(u32 bits, f64 a, u64 seed) {
        const f64 y = exact(a);
        const u32 r = down(y);
        if (!(up(r) - up(r) == 0) || up(r) == 0 || a == 0) return r;
        const f64 bound = LESS * (power ? y * (half ? 0x1.125fbep-10 : 0x1p-7) : half ? 0x1.024ap-11 : 0x1p-8);
        f64 t = y + wobble(seed, bits) * bound;
        if (!power && std::fabs(t) > 1) t = std::copysign(1.0, t);
        return std::fabs(up(down(t)) - y) <= bound ? down(t) : r;
    }
};
template <bool half, bool power, int pairs> static void small(Warp& w, const Inst& i) {
    typedef Narrow<half, power> N;
    const bool ftz = !half && power;  // ex2.approx.ftz.bf16
    alignas(64) u32 made[32] = {};
    const u64 seed = launch_of(w).perturb;
    for (int k = 0; k < pairs; ++k) {
        auto given = [R = w.R, i = i, k](int l)
                         __attribute__((always_inline)) { return get<u32>(R, i.a, l) >> 16 * k & 0xffff; };
        auto value = [given](int l) __attribute__((always_inline)) {
            const f32 a = half ? from_half(given(l)) : from_brain(given(l));
            return f64(ftz ? flushed(a) : a);
        };
        auto kept = [](u32 r) __attribute__((always_inline)) { return ftz && !(r & 0x7f80) ? r & 0x8000 : r; };
        if (seed)
            for (int l = 0; l < 32; ++l) made[l] |= kept(N::moved(given(l), value(l), seed)) << 16 * k;
        else
            for (int l = 0; l < 32; ++l) made[l] |= kept(N::down(N::exact(value(l)))) << 16 * k;
    }
    each<u32>(w, i.d, [t = &made[0]](int l) __attribute__((always_inline)) { return t[l]; });
}
#define SMALL(name, power) \
    HANDLER(name ".approx.f16", (small<true, power, 1>(w, i));) \
    HANDLER(name ".approx.f16x2", (small<true, power, 2>(w, i));) \
        HANDLER(name ".approx.bf16", (small<false, power, 1>(w, i));) \
            HANDLER(name ".approx.bf16x2", (small<false, power, 2>(w, i));)
SMALL("ex2", true) SMALL("tanh", false)

}  // namespace

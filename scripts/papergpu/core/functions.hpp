// Powers, logarithms, waves and hyperbolic tangents in double, to about 2**-51 and so that loops of them
// vectorise: what they give is rounded to float, where it is the nearest but for one operand in millions.
#pragma once
#include "core.hpp"

// The sum of coefficients times powers of r, the first of the highest power.
static inline __attribute__((always_inline)) f64 polynomial(f64, f64 sum) { return sum; }
template <class... Rest>
static inline __attribute__((always_inline)) f64 polynomial(f64 r, f64 sum, f64 next, Rest... rest) {
    return polynomial(r, __builtin_fma(sum, r, next), rest...);
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
    const f64 two = 2 * s, ln = __builtin_fma(two * q,
                                              polynomial(q, 1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                                         1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3),
                                              two);
    const f64 hi = ln * 0x1.71547652b82fep0, lo = __builtin_fma(ln, 0x1.71547652b82fep0, -hi);
    const f64 r = e + (hi + (lo + ln * 0x1.777d0ffda0d24p-56));
    return pick(x > 0, pick(x < HUGE_VAL, r, x), pick(x == 0, -HUGE_VAL, as<f64>(0x7ff8000000000000ull)));
}
// Up to |x| = 2**20; from there on the library's.
template <int quarters> static inline __attribute__((always_inline)) f64 wave(f64 x) {
    const f64 t = x * 0x1.45f306dc9c883p-1 + SHIFT, k = t - SHIFT;
    f64 r = __builtin_fma(-k, 0x1.921fb54442d18p0, x);
    r = __builtin_fma(-k, 0x1.1a62633145c07p-54, r);
    r = __builtin_fma(-k, -0x1.f1976b7ed8fbcp-110, r);
    const u64 n = as<u64>(t) + quarters;
    const f64 q = r * r;
    const f64 sine = __builtin_fma(r * q,
                                   polynomial(q, 2.8114572543455206e-15, -7.6471637318198164e-13,
                                              1.6059043836821613e-10, -2.5052108385441720e-08, 2.7557319223985893e-06,
                                              -1.9841269841269841e-04, 8.3333333333333332e-03, -1.6666666666666666e-01),
                                   r),
              cosine =
                  __builtin_fma(q * q,
                                polynomial(q, -1.5619206968586225e-16, 4.7794773323873853e-14, -1.1470745597729725e-11,
                                           2.0876756987868100e-09, -2.7557319223985888e-07, 2.4801587301587302e-05,
                                           -1.3888888888888889e-03, 4.1666666666666664e-02),
                                1 - 0.5 * q);
    const f64 v = pick(n & 1, cosine, sine);
    return as<f64>(as<u64>(v) ^ (n & 2) << 62);
}
static inline __attribute__((always_inline)) f64 hyperbolic_tangent(f64 x) {
    const f64 z = pick(x < -30, -30, pick(x > 30, 30, x)), y = z * 0x1.71547652b82fep1,
              low = __builtin_fma(z, 0x1.71547652b82fep1, -y) + z * 0x1.777d0ffda0d24p-55;
    const f64 t = y + SHIFT, r = (y - (t - SHIFT)) + low;
    const f64 scale = as<f64>((as<u64>(t) + 1023) << 52);
    const f64 m = __builtin_fma(scale, power_less_one(r), scale - 1), v = m / (m + 2);
    return pick(x == x, as<f64>((as<u64>(v) & ~(1ull << 63)) | (as<u64>(x) & 1ull << 63)), x);
}

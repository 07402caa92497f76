// cvt from floats to whole numbers: to integers, and to floats that are whole.
#include "conversions.hpp"

namespace {

// To a whole number, clamped; NaN is 0, or the sign bit of 64 bits where one of the types has them.
template <class D, class S> static void float_to_integer(Warp& w, const Inst& i) {
    typedef std::conditional_t<(sizeof(D) == 8), D, std::conditional_t<std::is_signed_v<D>, s32, u32>> Slot;
    const u32 mode = u32(i.imm);
    const bool ftz = i.flags & FTZ;
    auto f = [R = w.R, i = i, mode, ftz](int l, auto round) __attribute__((always_inline)) -> Slot {
        f64 x = wide<S>(R, i.a, l);
        if (ftz) x = std::fabs(x) < 0x1p-126 ? 0 : x;
        const f64 r = round(x), low = f64(std::numeric_limits<D>::min()), high = f64(std::numeric_limits<D>::max());
        const bool under = r < low, over = sizeof(D) == 8 ? r >= high : r > high;
        const Slot v = (Slot)(D)(under || over || r != r ? 0 : r);
        const D none = sizeof(D) == 8 || std::is_same_v<S, f64> ? D(sizeof(D) == 8 ? 1ull << 63 : 0) : D(0);
        return r != r  ? Slot(none)
               : under ? Slot(std::numeric_limits<D>::min())
               : over  ? Slot(std::numeric_limits<D>::max())
                       : v;
    };
    switch (mode) {
    case RN:
        each<Slot>(w, i.d,
                   [f](int l) __attribute__((always_inline)) { return f(l, [](f64 x) { return std::nearbyint(x); }); });
        break;
    case RZ:
        each<Slot>(w, i.d,
                   [f](int l) __attribute__((always_inline)) { return f(l, [](f64 x) { return std::trunc(x); }); });
        break;
    case RM:
        each<Slot>(w, i.d,
                   [f](int l) __attribute__((always_inline)) { return f(l, [](f64 x) { return std::floor(x); }); });
        break;
    default:
        each<Slot>(w, i.d,
                   [f](int l) __attribute__((always_inline)) { return f(l, [](f64 x) { return std::ceil(x); }); });
    }
}
// Rounded to a whole number of the same type.
static inline f64 whole(f64 x, u32 mode) {
    return mode == RN ? std::nearbyint(x) : mode == RZ ? std::trunc(x) : mode == RM ? std::floor(x) : std::ceil(x);
}
template <class T> static void whole_float(Warp& w, const Inst& i) {
    const u32 mode = u32(i.imm), flags = i.flags;
    auto value = [R = w.R, i = i, mode, flags](int l) __attribute__((always_inline)) {
        f64 x = wide<T>(R, i.a, l);
        if (flags & FTZ && std::is_same_v<T, f32>) x = std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
        x = canonical(whole(x, mode));
        return flags & SAT ? saturated(x) : x;
    };
    if constexpr (std::is_same_v<T, f64>)
        each<f64>(w, i.d, [value](int l) __attribute__((always_inline)) { return value(l); });
    else if constexpr (std::is_same_v<T, f32>)
        each<f32>(w, i.d, [value](int l) __attribute__((always_inline)) { return canonical(f32(value(l))); });
    else each<u32>(w, i.d, [value](int l) __attribute__((always_inline)) { return Narrow<T>::of(value(l), RN); });
}
#define TO(s, S) \
    CVT("cvt.u16." s, float_to_integer<u16, S>) \
    CVT("cvt.s16." s, float_to_integer<s16, S>) CVT("cvt.u32." s, float_to_integer<u32, S>) \
        CVT("cvt.s32." s, float_to_integer<s32, S>) CVT("cvt.u64." s, float_to_integer<u64, S>) \
            CVT("cvt.s64." s, float_to_integer<s64, S>) CVT("cvt.whole." s, whole_float<S>)
#define TO_BYTE(s, S) CVT("cvt.u8." s, float_to_integer<u8, S>) CVT("cvt.s8." s, float_to_integer<s8, S>)
TO("f16", f16)
TO("bf16", bf16) TO("f32", f32) TO("f64", f64) TO_BYTE("f16", f16) TO_BYTE("f32", f32) TO_BYTE("f64", f64)

}  // namespace

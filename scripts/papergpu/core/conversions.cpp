// cvt from integers of any width, to integers and to floats.
#include "numbers.hpp"
#include <limits>
#include <utility>

// ---- What conversions share: doubles as numbers of any type, rounded once in any mode.

#define CVT(name, ...) static Add PAPER_JOIN(add_, __COUNTER__)(name, __VA_ARGS__);

// A magnitude of 64 bits as a double, its last bit odd where something was lost of it.
static inline f64 sticky(u64 x) {
    if (x >> 53) {
        const int s = 11 - __builtin_clzll(x);
        return f64((x >> s) | ((x & ((1ull << s) - 1)) != 0)) * f64(1ull << s);
    }
    return f64(x);
}
static inline f32 f32_of(f64 x, u32 mode) {
    f32 r = f32(x);
    const f64 back = r;
    if (mode == RZ && std::fabs(back) > std::fabs(x)) r = as<f32>(as<u32>(r) - 1);
    if (mode == RM && back > x)
        r = r > 0 ? as<f32>(as<u32>(r) - 1) : r == 0 ? as<f32>(0x80000001u) : as<f32>(as<u32>(r) + 1);
    if (mode == RP && back < x) r = r < 0 ? as<f32>(as<u32>(r) - 1) : r == 0 ? as<f32>(1u) : as<f32>(as<u32>(r) + 1);
    if (mode == RP && back < x && as<u32>(f32(x)) == 0x80000000u) r = as<f32>(1u);
    return canonical(r);
}
template <class D> struct Narrow;
template <> struct Narrow<f32> {
    static inline u32 of(f64 x, u32 mode, bool = false) { return as<u32>(f32_of(x, mode)); }
};
template <> struct Narrow<f16> {
    static inline u32 of(f64 x, u32 mode, bool finite = false) { return to_half(odd(x), mode, finite); }
};
template <> struct Narrow<bf16> {
    static inline u32 of(f64 x, u32 mode, bool finite = false) { return to_brain(odd(x), mode, finite); }
};

template <class T> static inline f64 wide(const u8* R, u32 at, int l) {
    if constexpr (std::is_same_v<T, f16>) return from_half(get<u32>(R, at, l) & 0xffff);
    else if constexpr (std::is_same_v<T, bf16>) return from_brain(get<u32>(R, at, l) & 0xffff);
    else return get<T>(R, at, l);
}

// ---- cvt from integers, to integers and to floats

namespace {

// Exact integers of type S rounded to D.
template <class D, class S> static void integer_to_float(Warp& w, const Inst& i) {
    typedef std::conditional_t<(sizeof(S) == 8), u64, u32> Slot;
    (void)sizeof(Slot);
    const u32 mode = u32(i.imm);
    auto value = [R = w.R, i = i](int l) __attribute__((always_inline)) { return get<S>(R, i.a, l); };
    if constexpr (std::is_same_v<D, f64>) {
        if (mode == RN || sizeof(S) < 8)
            each<f64>(w, i.d, [value](int l) __attribute__((always_inline)) { return f64(value(l)); });
        else
            each<f64>(w, i.d, [value, mode](int l) {
                const S v = value(l);
                const bool negative = v < 0;
                const u64 u = negative ? -u64(v) : u64(v);
                const int s = u >> 53 ? 11 - __builtin_clzll(u) : 0;
                u64 q = u >> s;
                const u64 rest = u & ((1ull << s) - 1);
                if (rest && mode == (negative ? RM : RP)) ++q;
                const f64 r = f64(q) * f64(1ull << s);
                return negative ? -r : r;
            });
    } else if constexpr (std::is_same_v<D, f32>) {
        if (mode == RN) each<f32>(w, i.d, [value](int l) __attribute__((always_inline)) { return f32(value(l)); });
        else
            each<u32>(w, i.d, [value, mode](int l) {
                const S v = value(l);
                const bool n = v < 0;
                const f64 t = sticky(n ? -u64(v) : u64(v));
                return Narrow<f32>::of(n ? -t : t, mode);
            });
    } else if constexpr (sizeof(S) < 8) {
        each<u32>(w, i.d,
                  [value, mode](int l) __attribute__((always_inline)) { return Narrow<D>::of(f64(value(l)), mode); });
    } else
        each<u32>(w, i.d, [value, mode](int l) {
            const S v = value(l);
            const bool n = v < 0;
            const f64 t = sticky(n ? -u64(v) : u64(v));
            return Narrow<D>::of(n ? -t : t, mode);
        });
}
// The register's other bits hold the sign, or zeros.
template <class D, class S> static void integer_to_integer(Warp& w, const Inst& i) {
    typedef std::conditional_t<(sizeof(D) == 8), D, std::conditional_t<std::is_signed_v<D>, s32, u32>> Slot;
    if (!(i.flags & SAT)) {
        each<Slot>(w, i.d,
                   [R = w.R, i = i](int l) __attribute__((always_inline)) { return Slot(D(get<S>(R, i.a, l))); });
        return;
    }
    each<Slot>(w, i.d, [R = w.R, i = i](int l) __attribute__((always_inline)) {
        const S v = get<S>(R, i.a, l);
        const D low = std::numeric_limits<D>::min(), high = std::numeric_limits<D>::max();
        return Slot(std::cmp_less(v, low) ? low : std::cmp_greater(v, high) ? high : D(v));
    });
}
#define TO(s, S) \
    CVT("cvt.u8." s, integer_to_integer<u8, S>) \
    CVT("cvt.s8." s, integer_to_integer<s8, S>) CVT("cvt.u16." s, integer_to_integer<u16, S>) \
        CVT("cvt.s16." s, integer_to_integer<s16, S>) CVT("cvt.u32." s, integer_to_integer<u32, S>) \
            CVT("cvt.s32." s, integer_to_integer<s32, S>) CVT("cvt.u64." s, integer_to_integer<u64, S>) \
                CVT("cvt.s64." s, integer_to_integer<s64, S>) CVT("cvt.f16." s, integer_to_float<f16, S>) \
                    CVT("cvt.f32." s, integer_to_float<f32, S>) CVT("cvt.f64." s, integer_to_float<f64, S>)
#define TO_BRAIN(s, S) CVT("cvt.bf16." s, integer_to_float<bf16, S>)
TO("u8", u8)
TO("s8", s8) TO("u16", u16) TO("s16", s16) TO("u32", u32) TO("s32", s32) TO("u64", u64) TO("s64", s64)
    TO_BRAIN("u16", u16) TO_BRAIN("s16", s16) TO_BRAIN("u32", u32) TO_BRAIN("s32", s32) TO_BRAIN("u64", u64)
        TO_BRAIN("s64", s64)

}  // namespace

// ---- cvt between floats of 16, 32 and 64 bits, alone and in pairs.

namespace {

template <class D> static inline u32 limited(u32 x, u32 flags) {
    const bool half = std::is_same_v<D, f16>;
    const u32 top = half ? 0x7c00 : 0x7f80, one = half ? 0x3c00 : 0x3f80;
    if (flags & RELU) x = x & 0x8000 && (x & 0x7fff) <= top ? 0 : x;
    if (flags & SAT) x = (x & 0x7fff) > top || x & 0x8000 ? 0 : x > one ? one : x;
    return x;
}
template <class D, class T> static inline u32 nearest(T x) {
    if constexpr (std::is_same_v<D, f16>) return half_of(x);
    else return brain_of(x);
}
template <class S> static inline auto value_of(const u8* R, u32 at, int l) {
    if constexpr (std::is_same_v<S, f64>) return get<f64>(R, at, l);
    else return f32(wide<S>(R, at, l));
}
template <class D, class S> static void float_to_float(Warp& w, const Inst& i) {
    const u32 mode = u32(i.imm), flags = i.flags;
    if constexpr (std::is_same_v<D, f64>) {
        each<f64>(w, i.d, [R = w.R, i = i, flags](int l) __attribute__((always_inline)) {
            f64 x = canonical(wide<S>(R, i.a, l));
            if (flags & FTZ && std::is_same_v<S, f32>) x = std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
            return flags & SAT ? saturated(x) : x;
        });
    } else if constexpr (std::is_same_v<D, f32>) {
        each<f32>(w, i.d, [R = w.R, i = i, flags, mode](int l) __attribute__((always_inline)) {
            f32 x;
            if constexpr (std::is_same_v<S, f64>) x = f32_of(wide<S>(R, i.a, l), mode);
            else x = canonical(f32(wide<S>(R, i.a, l)));
            if (flags & FTZ) x = flushed(x);
            return flags & SAT ? saturated(x) : x;
        });
    } else if (mode == RN && !flags) {
        each<u32>(w, i.d, [R = w.R, i = i](int l) __attribute__((always_inline)) {
            return nearest<D>(value_of<S>(R, i.a, l));
        });
    } else {
        each<u32>(w, i.d, [R = w.R, i = i, flags, mode](int l) __attribute__((always_inline)) {
            f64 x = wide<S>(R, i.a, l);
            if (flags & FTZ && std::is_same_v<S, f32>) x = std::fabs(x) < 0x1p-126 ? std::copysign(0.0, x) : x;
            return limited<D>(Narrow<D>::of(x, mode, flags & SATFINITE), flags);
        });
    }
}
#undef TO
#define TO(d, D, s, S) CVT("cvt." d "." s, float_to_float<D, S>)
TO("f16", f16, "f16", f16)
TO("f16", f16, "bf16", bf16) TO("f16", f16, "f32", f32) TO("f16", f16, "f64", f64) TO("bf16", bf16, "f16", f16)
    TO("bf16", bf16, "f32", f32) TO("bf16", bf16, "f64", f64) TO("f32", f32, "f16", f16) TO("f32", f32, "bf16", bf16)
        TO("f32", f32, "f32", f32) TO("f32", f32, "f64", f64) TO("f64", f64, "f16", f16) TO("f64", f64, "bf16", bf16)
            TO("f64", f64, "f32", f32) TO("f64", f64, "f64", f64)

    // Two floats in one register, the first of them in the upper half.
    template <class D>
    static void pair(Warp& w, const Inst& i) {
    if (i.imm == RN && !i.flags) {
        each<u32>(w, i.d, [R = w.R, i = i](int l) __attribute__((always_inline)) {
            return nearest<D>(get<f32>(R, i.a, l)) << 16 | nearest<D>(get<f32>(R, i.b, l));
        });
        return;
    }
    each<u32>(w, i.d, [R = w.R, i = i, flags = i.flags, mode = u32(i.imm)](int l) __attribute__((always_inline)) {
        u32 r = 0;
        for (int k = 0; k < 2; ++k) {
            const f32 x = get<f32>(R, k ? i.a : i.b, l);
            const u32 q =
                std::is_same_v<D, f16> ? to_half(x, mode, flags & SATFINITE) : to_brain(x, mode, flags & SATFINITE);
            r |= limited<D>(q, flags) << 16 * k;
        }
        return r;
    });
}
CVT("cvt.f16x2.f32", pair<f16>) CVT("cvt.bf16x2.f32", pair<bf16>)

}  // namespace

// ---- cvt from floats to whole numbers: to integers, and to floats that are whole.

namespace {

// All lanes as doubles that are whole, by their mode. Rounding stands apart from clamping, for each of four
// modes and four types times eight results would be a loop of its own.
template <class S> __attribute__((noinline)) static void wholes(const u8* R, const Inst& i, f64* to) {
    const bool ftz = i.flags & FTZ;
    auto all = [R, a = i.a, ftz, to](auto round) __attribute__((always_inline)) {
        for (int l = 0; l < 32; ++l) {
            f64 x = wide<S>(R, a, l);
            if (ftz) x = std::fabs(x) < 0x1p-126 ? 0 : x;
            to[l] = round(x);
        }
    };
    switch (u32(i.imm)) {
    case RN: return all([](f64 x) { return std::nearbyint(x); });
    case RZ: return all([](f64 x) { return std::trunc(x); });
    case RM: return all([](f64 x) { return std::floor(x); });
    default: return all([](f64 x) { return std::ceil(x); });
    }
}
// Clamped to D; NaN is `none`.
template <class D> static inline __attribute__((always_inline)) auto clamp(f64 r, D none) {
    typedef std::conditional_t<(sizeof(D) == 8), D, std::conditional_t<std::is_signed_v<D>, s32, u32>> Slot;
    const f64 low = f64(std::numeric_limits<D>::min()), high = f64(std::numeric_limits<D>::max());
    const bool under = r < low, over = sizeof(D) == 8 ? r >= high : r > high;
    const Slot v = (Slot)(D)(under || over || r != r ? 0 : r);
    return r != r  ? Slot(none)
           : under ? Slot(std::numeric_limits<D>::min())
           : over  ? Slot(std::numeric_limits<D>::max())
                   : v;
}
template <class D> __attribute__((noinline)) static void clamped(Warp& w, u32 d, const f64* from, D none) {
    each<decltype(clamp<D>(0, none))>(
        w, d, [from, none](int l) __attribute__((always_inline)) { return clamp<D>(from[l], none); });
}
// To a whole number, clamped; NaN is 0, or the sign bit of 64 bits where one of the types has them.
template <class D, class S> static void float_to_integer(Warp& w, const Inst& i) {
    const D none = sizeof(D) == 8 || std::is_same_v<S, f64> ? D(sizeof(D) == 8 ? 1ull << 63 : 0) : D(0);
    if constexpr (sizeof(D) == 4 && std::is_same_v<S, f32>)
        if (i.imm == RZ && !(i.flags & FTZ)) {  // what a cast in C++ is
            each<D>(w, i.d, [R = w.R, a = i.a](int l) __attribute__((always_inline)) {
                return clamp<D>(std::trunc(f64(get<f32>(R, a, l))), D(0));
            });
            return;
        }
    alignas(64) f64 r[32];
    wholes<S>(w.R, i, r);
    clamped<D>(w, i.d, r, none);
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
#undef TO
#define TO(s, S) \
    CVT("cvt.u16." s, float_to_integer<u16, S>) \
    CVT("cvt.s16." s, float_to_integer<s16, S>) CVT("cvt.u32." s, float_to_integer<u32, S>) \
        CVT("cvt.s32." s, float_to_integer<s32, S>) CVT("cvt.u64." s, float_to_integer<u64, S>) \
            CVT("cvt.s64." s, float_to_integer<s64, S>) CVT("cvt.whole." s, whole_float<S>)
#define TO_BYTE(s, S) CVT("cvt.u8." s, float_to_integer<u8, S>) CVT("cvt.s8." s, float_to_integer<s8, S>)
TO("f16", f16)
TO("bf16", bf16) TO("f32", f32) TO("f64", f64) TO_BYTE("f16", f16) TO_BYTE("f32", f32) TO_BYTE("f64", f64)

}  // namespace

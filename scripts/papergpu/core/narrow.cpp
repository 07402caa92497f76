// cvt between floats of 16, 32 and 64 bits, alone and in pairs.
#include "conversions.hpp"

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

// cvt from integers of any width, to integers and to floats.
#include "conversions.hpp"

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

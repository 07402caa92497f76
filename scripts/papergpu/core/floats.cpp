// Arithmetic on f32 and f64, rounded to nearest, in the plain form and with .ftz; all else is
// below, in any rounding.
#include "numbers.hpp"
#include <cfenv>

namespace {

static inline f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
static inline f64 fused(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
template <class T> static inline __attribute__((always_inline)) T least(T a, T b) {
    const bool first = a < b || (a == b && std::signbit(a));
    const T r = first ? a : b;
    return a != a ? canonical(b) : b != b ? a : r;
}
template <class T> static inline __attribute__((always_inline)) T most(T a, T b) {
    const bool first = a > b || (a == b && !std::signbit(a));
    const T r = first ? a : b;
    return a != a ? canonical(b) : b != b ? a : r;
}
template <class T> static inline __attribute__((always_inline)) T strict(T r, T a, T b) {
    return a != a || b != b ? canonical(T(NAN)) : r;
}

#define FLUSHED1(name, T, ...) UNARY(name, T, T, [=](T a) { return flushed(canonical(T(__VA_ARGS__))); }(flushed(a)))
#define FLUSHED2(name, T, ...) \
    BINARY(name, T, T, [=](T a, T b) { return flushed(canonical(T(__VA_ARGS__))); }(flushed(a), flushed(b)))
#define FLUSHED3(name, T, ...) \
    TERNARY(name, T, T, \
            [=](T a, T b, T c) { return flushed(canonical(T(__VA_ARGS__))); }(flushed(a), flushed(b), flushed(c)))

#define FLOATS(name, T) \
    BINARY("add." name, T, T, canonical(a + b)) \
    BINARY("sub." name, T, T, canonical(a - b)) BINARY("mul." name, T, T, canonical(a* b)) \
        BINARY("div." name, T, T, canonical(a / b)) TERNARY("fma." name, T, T, canonical(fused(a, b, c))) \
            UNARY("sqrt." name, T, T, canonical(std::sqrt(a))) UNARY("rcp." name, T, T, canonical(T(1) / a)) \
                BINARY("min." name, T, T, least(a, b)) BINARY("max." name, T, T, most(a, b))
FLOATS("f32", f32)
FLOATS("f64", f64) FLUSHED2("add.ftz.f32", f32, a + b) FLUSHED2("sub.ftz.f32", f32, a - b)
    FLUSHED2("mul.ftz.f32", f32, a* b) FLUSHED2("div.ftz.f32", f32, a / b) FLUSHED3("fma.ftz.f32", f32, fused(a, b, c))
        FLUSHED1("sqrt.ftz.f32", f32, std::sqrt(a)) FLUSHED1("rcp.ftz.f32", f32, 1 / a)
            BINARY("min.NaN.f32", f32, f32, strict(least(a, b), a, b))
                BINARY("max.NaN.f32", f32, f32, strict(most(a, b), a, b))
    // Of two or three with whatever flags say; the sign that xorsign makes is no NaN's.
    template <bool top, bool three>
    static void extremes(Warp& w, const Inst& i) {
    const bool ftz = i.flags & FTZ;
    const u32 strictly = i.flags & STRICT ? ~0u : 0, magnitude = i.flags & ABS ? 0x7fffffffu : ~0u,
              xorsign = i.flags & XORSIGN ? 0x80000000u : 0;
    auto prepared = [ftz, magnitude](u32 u) __attribute__((always_inline)) {
        return as<f32>(choose(bool(u32(ftz) & u32(!(u & 0x7f800000u))), u & 0x80000000u, u) & magnitude);
    };
    // By the order of patterns, negative ones turned over; NaN, beyond all of them, made the last choice or the first.
    auto two = [strictly](f32 a, f32 b) __attribute__((always_inline)) {
        const u32 x = as<u32>(a), y = as<u32>(b);
        const bool p = a != a, q = b != b;
        const s32 m = s32(x ^ (0 - (x >> 31)) >> 1), n = s32(y ^ (0 - (y >> 31)) >> 1);
        const u32 r = choose(p, y, choose(q, x, choose(top ? m >= n : m <= n, x, y)));
        return as<f32>(choose(bool((u32(p) & u32(q)) | ((u32(p) | u32(q)) & strictly)), 0x7fffffffu, r));
    };
    each<f32>(w, i.d, [R = w.R, i = i, prepared, two, xorsign](int l) __attribute__((always_inline)) {
        const u32 a = get<u32>(R, i.a, l), b = get<u32>(R, i.b, l), sign = (a ^ b) & xorsign;
        f32 r = two(prepared(a), prepared(b));
        if (three) r = two(r, prepared(get<u32>(R, i.c, l)));
        return as<f32>(choose(r == r, (as<u32>(r) & ~xorsign) | sign, as<u32>(r)));
    });
}
HANDLER("min.any.f32", i.c ? extremes<false, true>(w, i) : extremes<false, false>(w, i);)
HANDLER("max.any.f32", i.c ? extremes<true, true>(w, i) : extremes<true, false>(w, i);)

// What a product and a difference become where a launch fuses them: a * b - c, and c - a * b.
#define DIFFERENCES(name, T) \
    TERNARY("fms." name, T, T, canonical(fused(a, b, -c))) TERNARY("fnma." name, T, T, canonical(fused(-a, b, c)))
    DIFFERENCES("f32", f32) DIFFERENCES("f64", f64) FLUSHED3("fms.ftz.f32", f32, fused(a, b, -c))
        FLUSHED3("fnma.ftz.f32", f32, fused(-a, b, c))

    // Signs; a NaN is not touched.
    UNARY("neg.f32", u32, u32, a ^ 0x80000000u) UNARY("neg.f64", u64, u64, a ^ 1ull << 63)
        UNARY("abs.f32", u32, u32, a & 0x7fffffffu) UNARY("abs.f64", u64, u64, a & ~(1ull << 63))
            UNARY("neg.ftz.f32", u32, f32, as<u32>(flushed(a)) ^ 0x80000000u)
                UNARY("abs.ftz.f32", u32, f32, as<u32>(flushed(a)) & 0x7fffffffu)
                    BINARY("copysign.f32", u32, u32, (b & 0x7fffffffu) | (a & 0x80000000u))
                        BINARY("copysign.f64", u64, u64, (b & ~(1ull << 63)) | (a & 1ull << 63))

#define FCOMPARE(name, G, T, V, ...) \
    HANDLER("setp." name, compare<G>(w, i, [](G x, G y) __attribute__((always_inline)) { \
                const T a = V(x), b = V(y); \
                return __VA_ARGS__; \
            });)
#define FCOMPARES(type, G, T, V) \
    FCOMPARE("eq." type, G, T, V, a == b) \
    FCOMPARE("ne." type, G, T, V, a<b || a> b) FCOMPARE("lt." type, G, T, V, a < b) \
        FCOMPARE("le." type, G, T, V, a <= b) FCOMPARE("gt." type, G, T, V, a > b) \
            FCOMPARE("ge." type, G, T, V, a >= b) FCOMPARE("equ." type, G, T, V, !(a < b || a > b)) \
                FCOMPARE("neu." type, G, T, V, a != b) FCOMPARE("ltu." type, G, T, V, !(a >= b)) \
                    FCOMPARE("leu." type, G, T, V, !(a > b)) FCOMPARE("gtu." type, G, T, V, !(a <= b)) \
                        FCOMPARE("geu." type, G, T, V, !(a < b)) FCOMPARE("num." type, G, T, V, a == a && b == b) \
                            FCOMPARE("nan." type, G, T, V, a != a || b != b)
                            FCOMPARES("f32", f32, f32, f32) FCOMPARES("ftz.f32", f32, f32, flushed)
                                FCOMPARES("f64", f64, f64, f64)

// testp; both zeros are normal.
#define TEST(name, ...) \
    HANDLER("testp." name ".f32", set_predicate(w, i.d, ballot([R, i = i](int l) __attribute__((always_inline)) { \
                                                    const f32 a = get<f32>(R, i.a, l), least = 0x1p-126f; \
                                                    (void)least; \
                                                    return __VA_ARGS__; \
                                                }));) \
    HANDLER("testp." name ".f64", set_predicate(w, i.d, ballot([R, i = i](int l) __attribute__((always_inline)) { \
                                                    const f64 a = get<f64>(R, i.a, l), least = 0x1p-1022; \
                                                    (void)least; \
                                                    return __VA_ARGS__; \
                                                }));)
                                    TEST("finite", a - a == 0) TEST("infinite", std::fabs(a) == INFINITY)
                                        TEST("number", a == a) TEST("notanumber", a != a)
                                            TEST("normal", a - a == 0 && (a == 0 || std::fabs(a) >= least))
                                                TEST("subnormal", a != 0 && std::fabs(a) < least)

}  // namespace

// ---- Arithmetic on floats in any rounding, with .ftz and .sat: the processor's own rounding is set for a loop
// that the compiler can neither move nor fold, since it may not look into it.

namespace {

#define LOOP(name, T, N, ...) \
    __attribute__((noipa)) void name(T* d, const T* p, const T* q, const T* r) { \
        for (int l = 0; l < N; ++l) { \
            const T a = p[l], b = q[l], c = r[l]; \
            (void)b; \
            (void)c; \
            d[l] = __VA_ARGS__; \
        } \
    }
#define LOOPS(suffix, T, N, fused) \
    LOOP(add##suffix, T, N, a + b) \
    LOOP(sub##suffix, T, N, a - b) LOOP(mul##suffix, T, N, a* b) LOOP(div##suffix, T, N, a / b) \
        LOOP(fma##suffix, T, N, fused(a, b, c)) LOOP(rcp##suffix, T, N, T(1) / a) \
            LOOP(sqrt##suffix, T, N, std::sqrt(a))
LOOPS(_f32, f32, 32, __builtin_fmaf)
LOOPS(_f64, f64, 32, __builtin_fma) LOOP(add_pair, f32, 64, a + b) LOOP(sub_pair, f32, 64, a - b)
    LOOP(mul_pair, f32, 64, a* b) LOOP(fma_pair, f32, 64, __builtin_fmaf(a, b, c))

        template <class T>
        using Loop = void (*)(T*, const T*, const T*, const T*);

template <class T, int N> static void run_loop(Loop<T> loop, u32 mode, T* d, const T* a, const T* b, const T* c) {
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (mode == RN) {
        loop(d, a, b, c);
        return;
    }
    const int before = fegetround();
    fesetround(modes[mode]);
    loop(d, a, b, c);
    fesetround(before);
}
template <class T, int N> static void flush(T* to, const T* from) {
    for (int l = 0; l < N; ++l) to[l] = flushed(from[l]);
}
template <class T, int N> static void finish(T* d, u32 flags) {
    for (int l = 0; l < N; ++l) d[l] = canonical(d[l]);
    if (flags & FTZ)
        for (int l = 0; l < N; ++l) d[l] = flushed(d[l]);
    if (flags & SAT)
        for (int l = 0; l < N; ++l) d[l] = saturated(d[l]);
}
// Lanes are of 4 or 8 bytes; N may be twice their number.
template <class Lane> static void keep(Warp& w, u32 d, const void* from) {
    if (w.m == ~0u) {
        memcpy(w.R + d, from, 32 * sizeof(Lane));
        return;
    }
    for (int l = 0; l < 32; ++l)
        if (w.m >> l & 1) ((Lane*)(w.R + d))[l] = ((const Lane*)from)[l];
}
template <class T, int N> static void directed(Warp& w, const Inst& i, Loop<T> loop) {
    alignas(64) T t[4][N];
    const T* given[3];
    const u32 at[3] = {i.a, i.b, i.c};
    for (int k = 0; k < 3; ++k) {
        given[k] = (const T*)(w.R + (at[k] ? at[k] : i.a));
        if (i.flags & FTZ) {
            flush<T, N>(t[k], given[k]);
            given[k] = t[k];
        }
    }
    run_loop<T, N>(loop, u32(i.imm), t[3], given[0], given[1], given[2]);
    finish<T, N>(t[3], i.flags);
    if (sizeof(T) * N == 128) keep<u32>(w, i.d, t[3]);
    else keep<u64>(w, i.d, t[3]);
}
#define ANY(op) \
    HANDLER(#op ".any.f32", (directed<f32, 32>(w, i, op##_f32));) \
    HANDLER(#op ".any.f64", (directed<f64, 32>(w, i, op##_f64));)
ANY(add)
ANY(sub) ANY(mul) ANY(div) ANY(fma) ANY(rcp) ANY(sqrt)
#define PAIR(op) HANDLER(#op ".any.f32x2", (directed<f32, 64>(w, i, op##_pair));)
    PAIR(add) PAIR(sub) PAIR(mul) PAIR(fma)

    // Two floats in each lane, rounded to nearest.
    template <class F>
    static inline __attribute__((always_inline)) void pairs(Warp& w, const Inst& i, F f) {
    const f32 *a = (const f32*)(w.R + i.a), *b = (const f32*)(w.R + i.b), *c = (const f32*)(w.R + (i.c ? i.c : i.a));
    alignas(64) f32 t[64];
    for (int l = 0; l < 64; ++l) t[l] = canonical(f(a[l], b[l], c[l]));
    keep<u64>(w, i.d, t);
}
HANDLER("add.f32x2", pairs(w, i, [](f32 a, f32 b, f32) { return a + b; });)
HANDLER("sub.f32x2", pairs(w, i, [](f32 a, f32 b, f32) { return a - b; });)
    HANDLER("mul.f32x2", pairs(w, i, [](f32 a, f32 b, f32) { return a * b; });)
        HANDLER("fma.f32x2", pairs(w, i, [](f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); });)

            HANDLER("fms.f32x2", pairs(w, i, [](f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, -c); });)
                HANDLER("fnma.f32x2", pairs(w, i, [](f32 a, f32 b, f32 c) { return __builtin_fmaf(-a, b, c); });)

    // a (and b of fma) of 16 bits, the rest and the result f32.
    template <bool half>
    static inline f32 up(u32 x) {
    return half ? from_half(x & 0xffff) : from_brain(x & 0xffff);
}
template <bool half, bool fused> static void mixed(Warp& w, const Inst& i, Loop<f32> loop) {
    alignas(64) f32 t[2][32], d[32];
    for (int l = 0; l < 32; ++l) t[0][l] = up<half>(get<u32>(w.R, i.a, l));
    if (fused)
        for (int l = 0; l < 32; ++l) t[1][l] = up<half>(get<u32>(w.R, i.b, l));
    run_loop<f32, 32>(loop, u32(i.imm), d, t[0], fused ? t[1] : (const f32*)(w.R + i.b),
                      fused ? (const f32*)(w.R + i.c) : t[0]);
    finish<f32, 32>(d, i.flags);
    keep<u32>(w, i.d, d);
}
#define MIXED(op, fused) \
    HANDLER(#op ".mixed.f16", (mixed<true, fused>(w, i, op##_f32));) \
    HANDLER(#op ".mixed.bf16", (mixed<false, fused>(w, i, op##_f32));)
MIXED(add, false) MIXED(sub, false) MIXED(fma, true)

}  // namespace

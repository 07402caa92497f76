// Arithmetic on f32 and f64, rounded to nearest, in the plain form and with .ftz; all else is
// below, in any rounding.
#include "numbers.hpp"
#include <cfenv>
#ifdef __wasm__
#include <wasm_simd128.h>
#endif

namespace {

// Results of all lanes, of 4 or 8 bytes each, to those that execute.
template <class Lane> static void keep(Warp& w, u32 d, const void* from) {
    if (w.m == ~0u) {
        memcpy(w.R + d, from, 32 * sizeof(Lane));
        return;
    }
    for (int l = 0; l < 32; ++l)
        if (w.m >> l & 1) ((Lane*)(w.R + d))[l] = ((const Lane*)from)[l];
}
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
    BINARY("sub." name, T, T, canonical(a - b)) \
    BINARY("mul." name, T, T, canonical(a* b)) BINARY("div." name, T, T, canonical(a / b)) \
        UNARY("sqrt." name, T, T, canonical(std::sqrt(a))) UNARY("rcp." name, T, T, canonical(T(1) / a)) \
            BINARY("min." name, T, T, least(a, b)) BINARY("max." name, T, T, most(a, b))
FLOATS("f32", f32)
FLOATS("f64", f64)
FLUSHED2("add.ftz.f32", f32, a + b) FLUSHED2("sub.ftz.f32", f32, a - b) FLUSHED2("mul.ftz.f32", f32, a* b)
    FLUSHED2("div.ftz.f32", f32, a / b) FLUSHED1("sqrt.ftz.f32", f32, std::sqrt(a)) FLUSHED1("rcp.ftz.f32", f32, 1 / a)
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

// A product and a sum in one: a * b + c; and what they become where a launch fuses a product and a difference:
// a * b - c, and c - a * b.
#ifdef __wasm__
// Four lanes at a time in double. The second rounding, to float, is wrong only where the first left a number that lies
// in the middle of two floats, or one below the normal floats: where lanes might, all are computed by `fused`. (What
// became zero was exact before: a sum of that size has lost nothing.)
template <bool flush> static void fused_lanes(Warp& w, const Inst& i, f32 sign_a, f32 sign_c) {
    const f32 *a = (const f32*)(w.R + i.a), *b = (const f32*)(w.R + i.b), *c = (const f32*)(w.R + i.c);
    alignas(64) f32 held[3][32], d[32];
    const bool plain = sign_a > 0 && sign_c > 0 && !flush;
    for (int l = 0; !plain && l < 32; ++l) {
        held[0][l] = sign_a * (flush ? flushed(a[l]) : a[l]);
        held[1][l] = flush ? flushed(b[l]) : b[l];
        held[2][l] = sign_c * (flush ? flushed(c[l]) : c[l]);
    }
    if (!plain) a = held[0], b = held[1], c = held[2];
    const v128_t low = wasm_i64x2_const(0x1fffffff, 0x1fffffff), middle = wasm_i64x2_const(0x10000000, 0x10000000),
                 least = wasm_f32x4_const(0x1p-125f, 0x1p-125f, 0x1p-125f, 0x1p-125f),
                 zero = wasm_f32x4_const(0, 0, 0, 0),
                 none = wasm_i32x4_const(0x7fffffff, 0x7fffffff, 0x7fffffff, 0x7fffffff);
    v128_t doubt = zero;
    auto two = [&](v128_t x, v128_t y, v128_t z) __attribute__((always_inline)) {
        const v128_t s =
            wasm_f64x2_add(wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(x), wasm_f64x2_promote_low_f32x4(y)),
                           wasm_f64x2_promote_low_f32x4(z));
        doubt = wasm_v128_or(doubt, wasm_i64x2_eq(wasm_v128_and(s, low), middle));
        return wasm_f32x4_demote_f64x2_zero(s);
    };
    for (int l = 0; l < 32; l += 4) {
        const v128_t x = wasm_v128_load(a + l), y = wasm_v128_load(b + l), z = wasm_v128_load(c + l);
        const v128_t first = two(x, y, z), second = two(wasm_i64x2_shuffle(x, x, 1, 1), wasm_i64x2_shuffle(y, y, 1, 1),
                                                        wasm_i64x2_shuffle(z, z, 1, 1));
        const v128_t r = wasm_i64x2_shuffle(first, second, 0, 2);
        const v128_t tiny = wasm_v128_and(wasm_f32x4_lt(wasm_f32x4_abs(r), least), wasm_f32x4_ne(r, zero));
        doubt = wasm_v128_or(doubt, tiny);
        wasm_v128_store(d + l, wasm_v128_bitselect(r, none, wasm_f32x4_eq(r, r)));
    }
    if (wasm_v128_any_true(doubt))
        for (int l = 0; l < 32; ++l) d[l] = canonical(fused(a[l], b[l], c[l]));
    for (int l = 0; flush && l < 32; ++l) d[l] = flushed(d[l]);
    keep<u32>(w, i.d, d);
}
#define FUSED32(name, a_, c_) \
    HANDLER(name ".f32", fused_lanes<false>(w, i, a_ 1.0f, c_ 1.0f);) \
    HANDLER(name ".ftz.f32", fused_lanes<true>(w, i, a_ 1.0f, c_ 1.0f);)
#else
#define FUSED32(name, a_, c_) \
    TERNARY(name ".f32", f32, f32, canonical(fused(a_ a, b, c_ c))) FLUSHED3(name ".ftz.f32", f32, fused(a_ a, b, c_ c))
#endif
#define FUSED(name, a_, c_) FUSED32(name, a_, c_) TERNARY(name ".f64", f64, f64, canonical(fused(a_ a, b, c_ c)))
FUSED("fma", +, +)
FUSED("fms", +, -) FUSED("fnma", -, +)

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
// that the compiler can neither move nor fold, since it may not look into it. WebAssembly has one rounding alone:
// there the others are made of the nearest number and of the sign of what it lacks.

namespace {

#ifdef __wasm__
struct Rounded {
    explicit Rounded(u32) {}
};
template <class T> static inline T settle(T s, f64 lacks, u32 mode, bool finite = true) {
    typedef std::conditional_t<sizeof(T) == 4, u32, u64> Bits;
    if (s != s) return s;
    if (s - s != 0) {  // too large, unless an operand was infinite
        if (!finite) return s;
        lacks = s > 0 ? -1 : 1;
    }
    const bool up = lacks > 0 && (mode == RP || (mode == RZ && s < 0)),
               down = lacks < 0 && (mode == RM || (mode == RZ && s > 0));
    if (!up && !down) return s;
    if (s == 0) return as<T>(Bits(1) | Bits(down) << (8 * sizeof(T) - 1));
    return as<T>(Bits(as<Bits>(s) + (up == (s > 0) ? 1 : -1)));
}
static inline bool finite(f64 x) { return x - x == 0; }
static inline f64 lost(f64 a, f64 b, f64 s) {  // a + b - s, exactly
    const f64 back = s - a;
    return (a - (s - back)) + (b - back);
}
static inline f64 tail(f64 a, f64 b, f64 p) {  // a * b - p: at least its sign
    if (std::fabs(p) < 0x1p-900 && a != 0 && b != 0) {
        int ea, eb;
        a = std::frexp(a, &ea);
        b = std::frexp(b, &eb);
        p = std::ldexp(p, -(ea + eb));
    }
    return std::fma(a, b, -p);
}
template <class T> static inline T sum_zero(T s, bool opposed, u32 mode) {  // x - x is -0 downwards
    return s == 0 && mode == RM && opposed ? T(-0.0) : s;
}
static inline f64 add(f64 a, f64 b, f64, u32 mode) {
    const f64 s = settle(a + b, lost(a, b, a + b), mode, finite(a) && finite(b));
    return sum_zero(s, a != 0 || b != 0 || std::signbit(a) != std::signbit(b), mode);
}
static inline f64 sub(f64 a, f64 b, f64 c, u32 mode) { return add(a, -b, c, mode); }
static inline f64 mul(f64 a, f64 b, f64, u32 mode) {
    return settle(a * b, tail(a, b, a * b), mode, finite(a) && finite(b));
}
static inline f64 div(f64 a, f64 b, f64, u32 mode) {
    const f64 q = a / b, r = -tail(q, b, a);
    return settle(q, b > 0 ? r : -r, mode, finite(a) && finite(b) && b != 0);
}
static inline f64 rcp(f64 a, f64, f64, u32 mode) { return div(1, a, 0, mode); }
static inline f64 sqrt(f64 a, f64, f64, u32 mode) {
    const f64 s = std::sqrt(a);
    return settle(s, -tail(s, s, a), mode, finite(a));
}
static inline f64 fma(f64 a, f64 b, f64 c, u32 mode) {
    if (c == 0 && a != 0 && b != 0) return mul(a, b, c, mode);
    const f64 near = fused(a, b, c), p = a * b, e = std::fma(a, b, -p), s = p + c, t = lost(p, c, s), d = s - near;
    const f64 u = t + e, v = lost(t, e, u), x = d + u, y = lost(d, u, x);
    const f64 below = p == 0 && a != 0 && b != 0 ? std::signbit(a) == std::signbit(b) ? 1 : -1 : 0;
    const f64 lacks = x != 0 ? x : y + v != 0 ? y + v : below;
    const f64 r = settle(near, lacks, mode, finite(a) && finite(b) && finite(c));
    const bool zeros = p == 0 && c == 0;
    return lacks ? r : sum_zero(r, !zeros || std::signbit(p) != std::signbit(c), mode);
}
// Of f32 in double: exact, or odd where something is lost.
static inline f32 narrow(f64 s, u32 mode, bool finite) { return settle(f32(s), s - f64(f32(s)), mode, finite); }
static inline f64 odd_beside(f64 s, f64 lacks) {
    if (!finite(s) || lacks == 0 || s == 0) return s;
    return as<f64>((as<u64>(s) - u64((lacks < 0) == (s > 0))) | 1);
}
static inline f32 add(f32 a, f32 b, f32, u32 mode) {
    const f64 s = sum_odd(a, b);
    return s == 0 ? f32(add(f64(a), f64(b), 0, mode)) : narrow(s, mode, finite(a) && finite(b));
}
static inline f32 sub(f32 a, f32 b, f32 c, u32 mode) { return add(a, -b, c, mode); }
static inline f32 mul(f32 a, f32 b, f32, u32 mode) { return narrow(f64(a) * f64(b), mode, finite(a) && finite(b)); }
static inline f32 div(f32 a, f32 b, f32, u32 mode) {
    const f64 q = f64(a) / f64(b), r = std::fma(-q, f64(b), f64(a));
    return narrow(odd_beside(q, b > 0 ? r : -r), mode, finite(a) && finite(b) && b != 0);
}
static inline f32 rcp(f32 a, f32, f32, u32 mode) { return div(1, a, 0, mode); }
static inline f32 sqrt(f32 a, f32, f32, u32 mode) {
    const f64 s = std::sqrt(f64(a));
    return narrow(odd_beside(s, std::fma(-s, s, f64(a))), mode, finite(a));
}
static inline f32 fma(f32 a, f32 b, f32 c, u32 mode) {
    const f64 p = f64(a) * f64(b), s = sum_odd(p, c);
    return s == 0 ? f32(add(p, f64(c), 0, mode)) : narrow(s, mode, finite(a) && finite(b) && finite(c));
}
#define ROUNDED(op, T, ...) mode == RN ? T(__VA_ARGS__) : op(a, b, c, mode)
#else
struct Rounded {  // in this rounding while it lives
    const u32 mode;
    const int before;
    explicit Rounded(u32 wanted) : mode(wanted), before(wanted == RN ? FE_TONEAREST : fegetround()) {
        static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
        if (mode != RN) fesetround(modes[mode]);
    }
    ~Rounded() {
        if (mode != RN) fesetround(before);
    }
};
#define ROUNDED(op, T, ...) __VA_ARGS__
#endif

#define LOOP(op, suffix, T, N, ...) \
    __attribute__((noipa)) void op##suffix(T* d, const T* p, const T* q, const T* r, u32 mode) { \
        for (int l = 0; l < N; ++l) { \
            const T a = p[l], b = q[l], c = r[l]; \
            (void)b; \
            (void)c; \
            (void)mode; \
            d[l] = ROUNDED(op, T, __VA_ARGS__); \
        } \
    }
#define LOOPS(suffix, T, N) \
    LOOP(add, suffix, T, N, a + b) \
    LOOP(sub, suffix, T, N, a - b) \
    LOOP(mul, suffix, T, N, a* b) LOOP(div, suffix, T, N, a / b) LOOP(fma, suffix, T, N, fused(a, b, c)) \
        LOOP(rcp, suffix, T, N, T(1) / a) LOOP(sqrt, suffix, T, N, std::sqrt(a))
LOOPS(_f32, f32, 32)
LOOPS(_f64, f64, 32)
LOOP(add, _pair, f32, 64, a + b) LOOP(sub, _pair, f32, 64, a - b) LOOP(mul, _pair, f32, 64, a* b)
    LOOP(fma, _pair, f32, 64, fused(a, b, c))

        template <class T>
        using Loop = void(*)(T*, const T*, const T*, const T*, u32);

template <class T> static void run_loop(Loop<T> loop, u32 mode, T* d, const T* a, const T* b, const T* c) {
    const Rounded held(mode);
    loop(d, a, b, c, mode);
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
    run_loop<T>(loop, u32(i.imm), t[3], given[0], given[1], given[2]);
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
    HANDLER("fma.f32x2", pairs(w, i, [](f32 a, f32 b, f32 c) { return fused(a, b, c); });)

    HANDLER("fms.f32x2", pairs(w, i, [](f32 a, f32 b, f32 c) { return fused(a, b, -c); });)
    HANDLER("fnma.f32x2", pairs(w, i, [](f32 a, f32 b, f32 c) { return fused(-a, b, c); });)

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
    run_loop<f32>(loop, u32(i.imm), d, t[0], fused ? t[1] : (const f32*)(w.R + i.b),
                  fused ? (const f32*)(w.R + i.c) : t[0]);
    finish<f32, 32>(d, i.flags);
    keep<u32>(w, i.d, d);
}
#define MIXED(op, fused) \
    HANDLER(#op ".mixed.f16", (mixed<true, fused>(w, i, op##_f32));) \
    HANDLER(#op ".mixed.bf16", (mixed<false, fused>(w, i, op##_f32));)
MIXED(add, false) MIXED(sub, false) MIXED(fma, true)

}  // namespace

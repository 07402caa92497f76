// Arithmetic on f16 and bf16, alone and in pairs.
#include "numbers.hpp"

namespace {

struct Half {
    static inline f32 up(u32 x) { return from_half(x); }
    template <class T> static inline u32 down(T x) { return half_of(x); }
    static const u32 one = 0x3c00, infinity = 0x7c00;
};
struct Brain {
    static inline f32 up(u32 x) { return from_brain(x); }
    template <class T> static inline u32 down(T x) { return brain_of(x); }
    static const u32 one = 0x3f80, infinity = 0x7f80;
};

// A float has 24 bits, more than twice those of either format and two: what is added or multiplied in it
// and rounded once more is right. fma keeps what its sum loses.
template <class K> static inline u32 flush(u32 x) {
    const u32 e = x & 0x7fff;
    return choose(e < (K::infinity == 0x7c00 ? 0x400u : 0x80u), x & 0x8000, x);
}
template <class K> static inline u32 finish(u32 x, u32 flags) {
    if (flags & FTZ) x = flush<K>(x);
    const u32 m = x & 0x7fff;
    if (flags & SAT) x = choose(bool(u32(m > K::infinity) | (x >> 15 & 1)), 0u, choose(x > K::one, K::one, x));
    if (flags & RELU) x = choose(bool((x >> 15 & 1) & u32(m <= K::infinity)), 0u, x);
    return x;
}
template <class K> static inline u32 order(u32 x) { return choose(x & 0x8000, 0xffff - x, x + 0x8000); }
template <class K, bool top> struct Extreme {
    static inline u32 f(u32 a, u32 b, u32) {
        const bool na = (a & 0x7fff) > K::infinity, nb = (b & 0x7fff) > K::infinity,
                   first = top ? order<K>(a) >= order<K>(b) : order<K>(a) <= order<K>(b);
        return choose(bool(u32(na) & u32(nb)), 0x7fffu, choose(na, b, choose(nb, a, choose(first, a, b))));
    }
};
template <class K, bool top> struct Strict {
    static inline u32 f(u32 a, u32 b, u32) {
        return choose(bool(u32((a & 0x7fff) > K::infinity) | u32((b & 0x7fff) > K::infinity)), 0x7fffu,
                      Extreme<K, top>::f(a, b, 0));
    }
};
// min and max with flags: .NaN and .xorsign.abs.
template <class K, bool top> static inline u32 extreme(u32 a, u32 b, u32 flags) {
    const u32 sign = (a ^ b) & 0x8000;
    if (flags & ABS) a &= 0x7fff, b &= 0x7fff;
    const u32 r = flags & STRICT ? Strict<K, top>::f(a, b, 0) : Extreme<K, top>::f(a, b, 0);
    return choose(bool(u32((flags & XORSIGN) != 0) & u32((r & 0x7fff) <= K::infinity)), (r & 0x7fff) | sign, r);
}

// Plain, and with whatever flags say.
template <class K, bool pair, class F>
static inline __attribute__((always_inline)) void half(Warp& w, const Inst& i, u32 flags, F f) {
    auto one = [flags, f](u32 x, u32 y, u32 z) __attribute__((always_inline)) {
        if (flags & FTZ) x = flush<K>(x), y = flush<K>(y), z = flush<K>(z);
        return finish<K>(f(x, y, z), flags);
    };
    each<u32>(w, i.d, [R = w.R, i = i, one](int l) __attribute__((always_inline)) {
        const u32 a = get<u32>(R, i.a, l), b = get<u32>(R, i.b, l), c = get<u32>(R, i.c, l),
                  r = one(a & 0xffff, b & 0xffff, c & 0xffff);
        return pair ? r | one(a >> 16, b >> 16, c >> 16) << 16 : r;
    });
}
// Arithmetic in stages, each a loop that vectorises: to float, the operation, to 16 bits, what flags say.
template <class K, int operands, class F>
static __attribute__((noinline)) void stages(const Warp& w, const Inst& i, u32 flags, int shift, u32* t, F f) {
    alignas(64) f32 v[3][32] = {};
    const u32 at[3] = {i.a, i.b, i.c};
    for (int o = 0; o < operands; ++o) {
        const u32* given = (const u32*)(w.R + at[o]);
        for (int l = 0; l < 32; ++l) t[l] = given[l] >> shift & 0xffff;
        if (flags & FTZ)
            for (int l = 0; l < 32; ++l) t[l] = flush<K>(t[l]);
        for (int l = 0; l < 32; ++l) v[o][l] = K::up(t[l]);
    }
    for (int l = 0; l < 32; ++l) t[l] = f(v[0][l], v[1][l], v[2][l]);
    if (flags)
        for (int l = 0; l < 32; ++l) t[l] = finish<K>(t[l], flags);
}
template <class K, bool pair, int operands, class F>
static inline __attribute__((always_inline)) void arithmetic(Warp& w, const Inst& i, u32 flags, F f) {
    alignas(64) u32 low[32], high[32];
    stages<K, operands>(w, i, flags, 0, low, f);
    if (pair) {
        stages<K, operands>(w, i, flags, 16, high, f);
        for (int l = 0; l < 32; ++l) low[l] |= high[l] << 16;
    }
    each<u32>(w, i.d, [t = &low[0]](int l) __attribute__((always_inline)) { return t[l]; });
}
#define OF(name, type, K, pair, operands, ...) \
    HANDLER(name "." type, \
            arithmetic<K, pair, operands>(w, i, 0, [](f32 x, f32 y, f32 z) __attribute__((always_inline)) { \
                (void)z; \
                return K::down(__VA_ARGS__); \
            });)
#define ANY(name, type, K, pair, operands, ...) \
    HANDLER(name ".any." type, \
            arithmetic<K, pair, operands>(w, i, i.flags, [](f32 x, f32 y, f32 z) __attribute__((always_inline)) { \
                (void)z; \
                return K::down(__VA_ARGS__); \
            });)
#define F16(name, n, ...) \
    OF(name, "f16", Half, false, n, __VA_ARGS__) \
    OF(name, "f16x2", Half, true, n, __VA_ARGS__) ANY(name, "f16", Half, false, n, __VA_ARGS__) \
        ANY(name, "f16x2", Half, true, n, __VA_ARGS__)
// bf16 has no flags but fma's .relu.
#define BF16(name, n, ...) \
    OF(name, "bf16", Brain, false, n, __VA_ARGS__) OF(name, "bf16x2", Brain, true, n, __VA_ARGS__)
F16("add", 2, x + y)
F16("sub", 2, x - y) F16("mul", 2, x* y) F16("fma", 3, sum_odd(f64(x* y), f64(z))) BF16("add", 2, x + y)
    BF16("sub", 2, x - y) BF16("mul", 2, x* y) BF16("fma", 3, sum_odd(f64(x) * f64(y), f64(z)))
        ANY("fma", "bf16", Brain, false, 3, sum_odd(f64(x) * f64(y), f64(z)))
            ANY("fma", "bf16x2", Brain, true, 3, sum_odd(f64(x) * f64(y), f64(z)))
#define DIFFERENCES(type, K, pair) \
    OF("fms", type, K, pair, 3, sum_odd(f64(x) * f64(y), f64(-z))) \
    OF("fnma", type, K, pair, 3, sum_odd(f64(-x) * f64(y), f64(z)))
                DIFFERENCES("f16", Half, false) DIFFERENCES("f16x2", Half, true) DIFFERENCES("bf16", Brain, false)
                    DIFFERENCES("bf16x2", Brain, true)
    // Signs, of both halves at once.
    UNARY("neg.f16", u32, u32, (a ^ 0x8000) & 0xffff) UNARY("abs.f16", u32, u32, a & 0x7fff)
        UNARY("neg.bf16", u32, u32, (a ^ 0x8000) & 0xffff) UNARY("abs.bf16", u32, u32, a & 0x7fff)
            UNARY("neg.f16x2", u32, u32, a ^ 0x80008000u) UNARY("abs.f16x2", u32, u32, a & 0x7fff7fffu)
                UNARY("neg.bf16x2", u32, u32, a ^ 0x80008000u) UNARY("abs.bf16x2", u32, u32, a & 0x7fff7fffu)
                    UNARY("neg.any.f16", u32, u32, flush<Half>(a & 0xffff) ^ 0x8000)
                        UNARY("abs.any.f16", u32, u32, flush<Half>(a & 0xffff) & 0x7fff)
                            UNARY("neg.any.f16x2", u32, u32,
                                  (flush<Half>(a & 0xffff) | flush<Half>(a >> 16) << 16) ^ 0x80008000u)
                                UNARY("abs.any.f16x2", u32, u32,
                                      (flush<Half>(a & 0xffff) | flush<Half>(a >> 16) << 16) & 0x7fff7fffu)
#define EXTREMES(type, K, pair) \
    HANDLER("min." type, half<K, pair>(w, i, 0, \
                                       [](u32 x, u32 y, u32) \
                                           __attribute__((always_inline)) { return Extreme<K, false>::f(x, y, 0); });) \
    HANDLER("max." type, half<K, pair>(w, i, 0, \
                                       [](u32 x, u32 y, u32) \
                                           __attribute__((always_inline)) { return Extreme<K, true>::f(x, y, 0); });) \
        HANDLER("min.any." type, half<K, pair>(w, i, i.flags & FTZ, \
                                               [flags = i.flags](u32 x, u32 y, u32) __attribute__((always_inline)) { \
                                                   return extreme<K, false>(x, y, flags); \
                                               });) \
            HANDLER("max.any." type, \
                    half<K, pair>(w, i, i.flags & FTZ, \
                                  [flags = i.flags](u32 x, u32 y, u32) \
                                      __attribute__((always_inline)) { return extreme<K, true>(x, y, flags); });)
                                    EXTREMES("f16", Half, false) EXTREMES("f16x2", Half, true)
                                        EXTREMES("bf16", Brain, false) EXTREMES("bf16x2", Brain, true)

    // setp: imm says in bits 0 to 3 whether less, equal, greater and unordered hold; flag 16 is .ftz. Of pairs
    // the lower half makes d, the upper one e.
    template <class K>
    static u32 half_holds(const Warp& w, const Inst& i, int from) {
    const u32 t = u32(i.imm), less = t & 1, same = t >> 1 & 1, more = t >> 2 & 1, none = t >> 3 & 1;
    const bool ftz = i.flags & 16;
    alignas(64) f32 v[2][32];
    u32 p = 0;
    for (int o = 0; o < 2; ++o) {
        const u32* given = (const u32*)(w.R + (o ? i.b : i.a));
        for (int l = 0; l < 32; ++l) {
            const u32 x = given[l] >> from & 0xffff;
            v[o][l] = K::up(ftz ? flush<K>(x) : x);
        }
    }
    for (int l = 0; l < 32; ++l) {
        const f32 x = v[0][l], y = v[1][l];
        p |= ((u32(x < y) & less) | (u32(x == y) & same) | (u32(x > y) & more) | (u32((x != x) | (y != y)) & none))
             << l;
    }
    return p;
}
template <class K> static void compare_pair(Warp& w, const Inst& i) {
    u32 p[2] = {half_holds<K>(w, i, 0), half_holds<K>(w, i, 16)};
    const u32 o = i.flags & 3, c = o ? i.flags & 4 ? ~predicate(w, i.c) : predicate(w, i.c) : 0;
    for (u32& x : p) x = o == 1 ? x & c : o == 2 ? x | c : o == 3 ? x ^ c : x;
    set_predicate(w, i.d, p[0]);
    if (i.flags & 8) set_predicate(w, i.e, p[1]);
}
HANDLER("setp.f16", combine(w, i, half_holds<Half>(w, i, 0));)
HANDLER("setp.bf16", combine(w, i, half_holds<Brain>(w, i, 0));) HANDLER("setp.f16x2", compare_pair<Half>(w, i);)
    HANDLER("setp.bf16x2", compare_pair<Brain>(w, i);)

}  // namespace

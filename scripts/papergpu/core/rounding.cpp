// Arithmetic on floats in any rounding, with .ftz and .sat: the processor's own rounding is set for a loop
// that the compiler can neither move nor fold, since it may not look into it.
#include "numbers.hpp"
#include <cfenv>

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

// Atomics on memory.
#include "checks.hpp"
#include <algorithm>

namespace {

// Operand b, and c of cas; d is 0 for red. flags: 1 acquires, 2 releases, 4 lets others run.
template <class T, class F> void atomic(Warp& w, const Inst& i, F f) {
    u64 A[32];
    const Launch& l = launch_of(w);
    // What the checks note of atomics has to have the order in which they happen: whoever comes last at a place
    // has seen the others there, and may then use it as its own.
    std::unique_lock<std::mutex> in_turn;
    if (l.checks && l.threads > 1) in_turn = std::unique_lock(tracked(w).atomics);
    const Space space = addresses(w, i, A, sizeof(T), ATOMIC);
    u8* R = w.R;
    if (l.checks) check_publish(w, A, w.m, i.flags & 3, space);
    typedef std::conditional_t<sizeof(T) == 8, u64, std::conditional_t<sizeof(T) == 4, u32, u16>> Bits;
    const bool alone = l.threads <= 1 || space == SHARED;
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        Bits* at = (Bits*)A[k];
        if (alone) {
            const T old = as<T>(*at);
            *at = as<Bits>(f(old, get<T>(R, i.b, k), k));
            if (i.d) put<T>(R, i.d, k, old);
            continue;
        }
        Bits before = __atomic_load_n(at, __ATOMIC_RELAXED);
        for (;;) {
            const Bits after = as<Bits>(f(as<T>(before), get<T>(R, i.b, k), k));
            if (__atomic_compare_exchange_n(at, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) break;
        }
        if (i.d) put<T>(R, i.d, k, as<T>(before));
    }
    if (l.checks) check_obtain(w, A, w.m, i.flags & 3, space);
    // Whoever changes the same place over and over may be waiting for somebody.
    if (i.flags & 4) w.yield = true;
}
#define ATOMIC_OP(name, T, ...) \
    HANDLER("atom." name, atomic<T>(w, i, [R, &i](T t, T b, int l) -> T { \
                (void)R; \
                (void)i; \
                (void)l; \
                (void)t; \
                (void)b; \
                return __VA_ARGS__; \
            });)
// A number's operations in so many bits, unsigned and signed.
#define ATOMICS(bits, U, S) \
    ATOMIC_OP("add.b" #bits, U, U(t + b)); \
    ATOMIC_OP("and.b" #bits, U, U(t& b)); \
    ATOMIC_OP("or.b" #bits, U, U(t | b)); \
    ATOMIC_OP("xor.b" #bits, U, U(t ^ b)); \
    ATOMIC_OP("exch.b" #bits, U, b); \
    ATOMIC_OP("cas.b" #bits, U, t == b ? get<U>(R, i.c, l) : t); \
    ATOMIC_OP("min.u" #bits, U, std::min(t, b)); \
    ATOMIC_OP("max.u" #bits, U, std::max(t, b)); \
    ATOMIC_OP("min.s" #bits, S, std::min(t, b)); \
    ATOMIC_OP("max.s" #bits, S, std::max(t, b)); \
    ATOMIC_OP("inc.u" #bits, U, t >= b ? U(0) : U(t + 1)); \
    ATOMIC_OP("dec.u" #bits, U, t == 0 || t > b ? b : U(t - 1))
ATOMICS(32, u32, s32);
ATOMICS(64, u64, s64);
ATOMIC_OP("cas.b16", u16, t == b ? get<u16>(R, i.c, l) : t);
ATOMIC_OP("exch.b16", u16, b);
ATOMIC_OP("add.f32", f32, t + b);
ATOMIC_OP("add.f64", f64, t + b);

f16 sum16(f16 a, f16 b) { return f16(f32(a) + f32(b)); }
u16 round_bf16(f32 f) {
    u32 u = as<u32>(f);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : u16((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
u16 sumbf(u16 a, u16 b) { return round_bf16(widen(bf16{a}) + widen(bf16{b})); }
ATOMIC_OP("add.f16", f16, sum16(t, b));
ATOMIC_OP("add.bf16", u16, sumbf(t, b));
ATOMIC_OP("add.f16x2", u32,
          u32(as<u16>(sum16(as<f16>(u16(t)), as<f16>(u16(b))))) |
              u32(as<u16>(sum16(as<f16>(u16(t >> 16)), as<f16>(u16(b >> 16))))) << 16);
ATOMIC_OP("add.bf16x2", u32, u32(sumbf(u16(t), u16(b))) | u32(sumbf(u16(t >> 16), u16(b >> 16))) << 16);

}  // namespace

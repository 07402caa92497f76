// setp: comparisons of any type.
#pragma once
#include "core.hpp"

// d, and in register e the opposite (both combined with predicate c). flags: 1 and, 2 or, 3 xor; 4 c is negated; 8 there is an e.
static inline __attribute__((always_inline)) void combine(Warp& w, const Inst& i, u32 p) {
    u32 q = ~p;
    if (i.flags & 3) {
        u32 c = predicate(w, i.c);
        if (i.flags & 4) c = ~c;
        const u32 o = i.flags & 3;
        p = o == 1 ? p & c : o == 2 ? p | c : p ^ c;
        q = o == 1 ? q & c : o == 2 ? q | c : q ^ c;
    }
    set_predicate(w, i.d, p);
    if (i.flags & 8) set_predicate(w, i.e, q);
}
template <class F> static inline __attribute__((always_inline)) u32 ballot(F f) {
    u32 p = 0;
    alignas(64) u32 t[32];
    for (int l = 0; l < 32; ++l) t[l] = f(l) ? 1u << l : 0;
    for (int l = 0; l < 32; ++l) p |= t[l];
    return p;
}
template <class T, class F> static inline __attribute__((always_inline)) void compare(Warp& w, const Inst& i, F f) {
    const u8* R = w.R;
    combine(w, i, ballot([R, i = i, f](int l) __attribute__((always_inline)) {
                return f(get<T>(R, i.a, l), get<T>(R, i.b, l));
            }));
}

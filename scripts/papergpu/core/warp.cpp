// What lanes of a warp do together. Their mask is in register e, and turn.cpp has waited for them all.
#include "core.hpp"

namespace {

// d and, if count says so, a predicate in register `list`: the lane that each reads from is within bounds.
// `by` and `clamp` are asked for a lane's operands.
template <int mode, class B, class C>
inline __attribute__((always_inline)) void exchange(Warp& w, const Inst& i, B by,
                                                    C clamp) {  // 0 up, 1 down, 2 bfly, 3 idx
    const u8* R = w.R;
    const u32 m = w.m;
    const u32* a = (const u32*)(R + i.a);
    alignas(64) s32 from[32];
    alignas(64) u32 t[32];
    u32 ok = 0;
    for (int l = 0; l < 32; ++l) {
        const s32 s = s32(by(l) & 31), last = s32(clamp(l) & 31), seg = s32(clamp(l) >> 8 & 31), low = l & seg,
                  high = low | (last & ~seg);
        const s32 j = mode == 0 ? l - s : mode == 1 ? l + s : mode == 2 ? l ^ s : low | (s & ~seg);
        const bool p = mode == 0 ? j >= high : j <= high;
        from[l] = p ? j & 31 : l;
        ok |= p ? 1u << l : 0;
    }
    for (int l = 0; l < 32; ++l) t[l] = a[from[l]];
    if (m != ~0u && w.launch->checks)
        for (u32 x = m; x; x &= x - 1)
            if (!(m >> from[lowest(x)] & 1))
                fault_lane(lowest(x), "reads the register of lane %d, which does not take part: the mask is %#x",
                           from[lowest(x)], m);
    if (i.d) each<u32>(w, i.d, [t = &t[0]](int l) __attribute__((always_inline)) { return t[l]; });
    if (i.count) set_predicate(w, i.list, ok);
}
template <int mode> void shuffle(Warp& w, const Inst& i) {
    const u32* b = (const u32*)(w.R + i.b);
    const u32* c = (const u32*)(w.R + i.c);
    if (constant(w, i.b) && constant(w, i.c))
        exchange<mode>(w, i, [b = b[0]](int) { return b; }, [c = c[0]](int) { return c; });
    else exchange<mode>(w, i, [b](int l) { return b[l]; }, [c](int l) { return c[l]; });
}
Add shfl_up("shfl.up", shuffle<0>), shfl_down("shfl.down", shuffle<1>), shfl_bfly("shfl.bfly", shuffle<2>),
    shfl_idx("shfl.idx", shuffle<3>);

// The lanes that name the same mask act together.
template <class F> void apart(Warp& w, const Inst& i, F f) {
    const u32 all = w.m;
    u32 left = all;
    const u32* masks = (const u32*)(w.R + i.e);
    if (constant(w, i.e)) return f(all, masks[0]);
    while (left) {
        const u32 mask = masks[lowest(left)];
        u32 same = 0;
        for (u32 t = left; t; t &= t - 1)
            if (masks[lowest(t)] == mask) same |= t & -t;
        w.m = same;
        f(same, mask);
        left &= ~same;
    }
    w.m = all;
}
static u32 voted(Warp& w, const Inst& i) {
    const u32 p = predicate(w, i.a);
    return i.negate && i.guard < 0 ? ~p : i.imm ? ~p : p;
}
HANDLER("vote.all", apart(w, i, [&](u32 m, u32) { set_predicate(w, i.d, (voted(w, i) & m) == m ? ~0u : 0); });)
HANDLER("vote.any", apart(w, i, [&](u32 m, u32) { set_predicate(w, i.d, voted(w, i) & m ? ~0u : 0); });)
HANDLER("vote.uni", apart(w, i, [&](u32 m, u32) {
            const u32 v = voted(w, i) & m;
            set_predicate(w, i.d, v == 0 || v == m ? ~0u : 0);
        });)
HANDLER("vote.ballot", apart(w, i, [&](u32 m, u32) {
            const u32 v = voted(w, i) & m;
            each<u32>(w, i.d, [v](int) { return v; });
        });)
HANDLER("activemask", const u32 m = w.m; each<u32>(w, i.d, [m](int) { return m; });)
HANDLER("elect", apart(w, i, [&](u32 m, u32) {
            if (i.d) {
                const u32 l = lowest(m);
                each<u32>(w, i.d, [l](int) { return l; });
            }
            set_predicate(w, i.list, 1u << lowest(m));
        });)
// Lanes meet at many instructions; this one alone orders what they did to memory.
HANDLER("bar.warp", (void)i; if (launch_of(w).checks) check_warp_sync(w, w.m);)
template <class T, class F> void reduce(Warp& w, const Inst& i, F f) {
    apart(w, i, [&](u32 m, u32) {
        T v = get<T>(w.R, i.a, lowest(m));
        for (u32 t = m & (m - 1); t; t &= t - 1) v = f(v, get<T>(w.R, i.a, lowest(t)));
        each<T>(w, i.d, [v](int) { return v; });
    });
}
#define REDUX(name, T, ...) \
    HANDLER("redux." name, reduce<T>(w, i, [&i](T a, T b) -> T { \
                (void)i; \
                return __VA_ARGS__; \
            });)
REDUX("add.u32", u32, a + b)
REDUX("and.u32", u32, a& b) REDUX("or.u32", u32, a | b) REDUX("xor.u32", u32, a ^ b)
    REDUX("min.u32", u32, a < b ? a : b) REDUX("max.u32", u32, a > b ? a : b) REDUX("min.s32", s32, a < b ? a : b)
        REDUX("max.s32", s32, a > b ? a : b)
    // flags: 1 NaN, 2 abs
    static inline f32 least(f32 a, f32 b, u32 flags, bool most) {
    if (flags & 2) {
        a = std::fabs(a);
        b = std::fabs(b);
    }
    if (a != a || b != b) return flags & 1 || (a != a && b != b) ? as<f32>(0x7fffffffu) : a != a ? b : a;
    const bool first = a < b || (a == b && std::signbit(a));
    return first != most ? a : b;
}
static f32 only(f32 a, u32 flags) {
    if (a != a) return as<f32>(0x7fffffffu);
    return flags & 2 ? std::fabs(a) : a;
}
HANDLER("redux.min.f32", reduce<f32>(w, i, [&i](f32 a, f32 b) { return least(a, b, i.flags, false); });
        each<f32>(w, i.d, [R, i = i](int l) { return only(get<f32>(R, i.d, l), i.flags); });)
HANDLER("redux.max.f32", reduce<f32>(w, i, [&i](f32 a, f32 b) { return least(a, b, i.flags, true); });
        each<f32>(w, i.d, [R, i = i](int l) { return only(get<f32>(R, i.d, l), i.flags); });)
template <class T> void match_any(Warp& w, const Inst& i) {
    apart(w, i, [&](u32 m, u32) {
        u32 t[32] = {};
        for (u32 s = m; s; s &= s - 1)
            for (u32 o = m; o; o &= o - 1)
                if (get<T>(w.R, i.a, lowest(s)) == get<T>(w.R, i.a, lowest(o))) t[lowest(s)] |= o & -o;
        for (u32 s = m; s; s &= s - 1) put<u32>(w.R, i.d, lowest(s), t[lowest(s)]);
    });
}
template <class T> void match_all(Warp& w, const Inst& i) {
    apart(w, i, [&](u32 m, u32) {
        bool same = true;
        for (u32 s = m; s; s &= s - 1) same &= get<T>(w.R, i.a, lowest(s)) == get<T>(w.R, i.a, lowest(m));
        each<u32>(w, i.d, [v = same ? m : 0](int) { return v; });
        if (i.count) set_predicate(w, i.list, same ? ~0u : 0);
    });
}
Add any32("match.any.b32", match_any<u32>), any64("match.any.b64", match_any<u64>),
    all32("match.all.b32", match_all<u32>), all64("match.all.b64", match_all<u64>);

HANDLER("nop", (void)i; (void)w;)
HANDLER("yield", (void)i; w.yield = true;)
HANDLER("trap", (void)i; fault("the kernel traps here, as an assertion does that fails");)
HANDLER("clock32", const u32 t = u32(w.steps); each<u32>(w, i.d, [t](int) { return t; });
        if (w.steps % 64 == 0) w.yield = true;)
HANDLER("clock64", const u64 t = w.steps; each<u64>(w, i.d, [t](int) { return t; });
        if (w.steps % 64 == 0) w.yield = true;)
HANDLER("fence", if (launch_of(w).checks) check_fence(w, u32(i.imm));)

}  // namespace

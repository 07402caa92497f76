// Addresses from one space to another, and of one block of a cluster to another's. A generic address is the
// host's own.
#include "core.hpp"

namespace {

// The list: where each of the module's constants begins and ends, in the memory of its variables.
bool of_constant(const Warp& w, const Inst& i, u64 address) {
    const u64 at = address - u64(launch_of(w).consts);
    const u32* q = list(w, i);
    bool found = false;
    for (u32 k = 0; k < i.count; k += 2) found |= at >= q[k] && at < q[k + 1];
    return found && at < launch_of(w).nconsts;
}

HANDLER("cvta.shared", each<u64>(w, i.d,
                                 [R, i = i, at = u64(w.block->gang->shared), stride = w.block->gang->stride,
                                  c = u64(w.block->cluster)](int l) {
                                     u32 a = get<u32>(R, i.a, l);
                                     return at + (c + (a >> 24)) * stride + (a & 0xffffff);
                                 }););

HANDLER("cvta.to.shared", each<u64>(w, i.d,
                                    [R, i = i, at = u64(w.block->gang->shared), stride = w.block->gang->stride,
                                     c = u64(w.block->cluster)](int l) {
                                        u64 a = get<u64>(R, i.a, l) - at;
                                        u64 k = a / stride;
                                        return ((k - c) << 24) | (a - k * stride);
                                    }););

HANDLER("cvta.local", each<u64>(w, i.d, [R, i = i, at = u64(w.local), n = u64(launch_of(w).local)](int l) {
            return at + l * n + get<u64>(R, i.a, l);
        }););

HANDLER("cvta.to.local", each<u64>(w, i.d, [R, i = i, at = u64(w.local), n = u64(launch_of(w).local)](int l) {
            return get<u64>(R, i.a, l) - at - l * n;
        }););

HANDLER("cvta.param",
        each<u64>(w, i.d, [R, i = i, at = u64(launch_of(w).params)](int l) { return at + get<u64>(R, i.a, l); }););

HANDLER("cvta.to.param",
        each<u64>(w, i.d, [R, i = i, at = u64(launch_of(w).params)](int l) { return get<u64>(R, i.a, l) - at; }););

HANDLER("cvta.const",
        each<u64>(w, i.d, [R, i = i, at = u64(launch_of(w).consts)](int l) { return at + get<u64>(R, i.a, l); }););

HANDLER("cvta.to.const",
        each<u64>(w, i.d, [R, i = i, at = u64(launch_of(w).consts)](int l) { return get<u64>(R, i.a, l) - at; }););

// The address of a module's variable: the register's constant is its offset.
HANDLER("cvta.symbol",
        each<u64>(w, i.d, [R, i = i, at = u64(launch_of(w).globals)](int l) { return at + get<u64>(R, i.a, l); }););

HANDLER(
    "isspacep.shared", const Gang& g = *w.block->gang; u32 p = 0; for (int l = 0; l < 32; ++l) {
        u64 a = get<u64>(R, i.a, l);
        if (a >= u64(g.shared) && a < u64(g.shared) + g.blocks.size() * g.stride) p |= 1u << l;
    } set_predicate(w, i.d, p););

HANDLER(
    "isspacep.local", const Gang& g = *w.block->gang; u32 p = 0; for (int l = 0; l < 32; ++l) {
        u64 a = get<u64>(R, i.a, l);
        if (a >= u64(g.local) && a < u64(g.local) + g.local_bytes) p |= 1u << l;
    } set_predicate(w, i.d, p););

HANDLER(
    "isspacep.global", const Gang& g = *w.block->gang; u32 p = 0; for (int l = 0; l < 32; ++l) {
        u64 a = get<u64>(R, i.a, l);
        if (!(a >= u64(g.shared) && a < u64(g.local) + g.local_bytes) && !of_constant(w, i, a)) p |= 1u << l;
    } set_predicate(w, i.d, p););

HANDLER(
    "isspacep.param", const Launch& n = launch_of(w); u32 p = 0; for (int l = 0; l < 32; ++l) {
        u64 a = get<u64>(R, i.a, l);
        if (a >= u64(n.params) && a < u64(n.params) + n.nparams) p |= 1u << l;
    } set_predicate(w, i.d, p););
HANDLER("isspacep.const", u32 p = 0; for (int l = 0; l < 32; ++l) p |= u32(of_constant(w, i, get<u64>(R, i.a, l)))
                                                                      << l;
        set_predicate(w, i.d, p););

// mapa: the same place in the shared memory of block `b` of the cluster
HANDLER("mapa.shared",
        each<u32>(w, i.d, [R, i = i](int l) { return (get<u32>(R, i.a, l) & 0xffffff) | get<u32>(R, i.b, l) << 24; }););

HANDLER("mapa.generic", const Gang& g = *w.block->gang;
        each<u64>(w, i.d, [R, i = i, at = u64(g.shared), stride = g.stride, c = w.block->cluster](int l) {
            u64 a = get<u64>(R, i.a, l) - at;
            return at + (c + get<u32>(R, i.b, l)) * stride + a % stride;
        }););

HANDLER("getctarank.shared", each<u32>(w, i.d, [R, i = i](int l) { return get<u32>(R, i.a, l) >> 24; }););

HANDLER("getctarank.generic", const Gang& g = *w.block->gang;
        each<u32>(w, i.d, [R, i = i, at = u64(g.shared), stride = g.stride, c = w.block->cluster](int l) {
            return u32((get<u64>(R, i.a, l) - at) / stride) - c;
        }););

}  // namespace

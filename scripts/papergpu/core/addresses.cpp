// Where the lanes of an instruction access memory, whether they may, and what is said if not.
#include "access.hpp"
#include "core.hpp"
#include <algorithm>

namespace {

const char* verb(Access access) { return access == READ ? "reads" : access == WRITE ? "writes" : "changes"; }

// Python knows the names of allocations: $k is the k-th, and $k+n its byte n.
[[noreturn]] void outside(Warp& w, int lane, u64 at, u64 bytes, Access access) {
    const Launch& l = launch_of(w);
    int best = -1;
    u64 least = ~0ull;
    for (u32 k = 0; k < l.nallocs; ++k) {
        const u64 d = at < l.allocs[k].lo ? l.allocs[k].lo - at : at + bytes - l.allocs[k].hi;
        if (d < least) least = d, best = int(k);
    }
    if (at < 4096)
        fault_lane(lane, "%s %llu bytes at address %llu: a null pointer", verb(access), (unsigned long long)bytes,
                   (unsigned long long)at);
    if (best < 0 || least > 1ull << 30)
        fault_lane(lane, "%s %llu bytes at %#llx, which is in no tensor that this launch may touch", verb(access),
                   (unsigned long long)bytes, (unsigned long long)at);
    const Alloc& a = l.allocs[best];
    if (at < a.lo)
        fault_lane(lane, "%s %llu bytes %llu bytes before the start of $%u: mask it, or mend the offset", verb(access),
                   (unsigned long long)bytes, (unsigned long long)(a.lo - at), a.name);
    fault_lane(lane, "%s %llu bytes at byte %llu of $%u, which has %llu: mask it, or mend the offset", verb(access),
               (unsigned long long)bytes, (unsigned long long)(at - a.lo), a.name, (unsigned long long)(a.hi - a.lo));
}

void special_alloc(const Warp& w, const Alloc& a, u64 at, u64 bytes, Access access, int lane) {
    if (a.flags & READ_ONLY && access != READ)
        fault_lane(lane, "%s byte %llu of $%u, which the launch declares as only read: declare it, or write elsewhere",
                   verb(access), (unsigned long long)(at - a.lo), a.name);
    if (a.flags & UNWRITTEN) {
        u8* mark = (u8*)(a.shadow + (at - a.lo));
        if (access != WRITE && launch_of(w).checks) {
            const void* hole = memchr(mark, 0, bytes);
            if (hole)
                found(w, w.pc, lane, "reads byte %llu of $%u, which nobody has written: write it first, or mask it",
                      (unsigned long long)((const u8*)hole - (const u8*)a.shadow), a.name);
        }
        if (access != READ) memset(mark, 1, bytes);
    }
}

}  // namespace

u8* shared_at(Warp& w, u32 address, u64 bytes, const char* what) {
    Block& b = *w.block;
    const Launch& l = launch_of(w);
    const u32 rank = address >> 24, at = address & 0xffffff;
    Block* to = rank == b.rank ? &b : rank < product(l.cluster) ? &b.gang->blocks[b.cluster + rank] : nullptr;
    if (!to) fault("%s shared memory of block %u of a cluster of %u", what, rank, product(l.cluster));
    if (u64(at) + bytes > l.shared)
        fault("%s %llu bytes at byte %u of shared memory, which has %u: ask for more at the launch, or mend the offset",
              what, (unsigned long long)bytes, at, l.shared);
    return to->shared + at;
}

u8* global_at(Warp& w, u64 address, u64 bytes, Access access, const char* what) {
    (void)what;
    Gang& g = *w.block->gang;
    if (address >= u64(g.shared) && address + bytes <= u64(g.shared) + g.blocks.size() * g.stride) return (u8*)address;
    const Alloc* a = holder(g, address, address + bytes);
    if (!a) outside(w, w.m ? lowest(w.m) : 0, address, bytes, access);
    if (a->flags) special_alloc(w, *a, address, bytes, access, w.m ? lowest(w.m) : 0);
    return (u8*)address;
}

// The allocation that holds [lo, hi), or null.
const Alloc* holder(Gang& g, u64 lo, u64 hi) {
    const Launch& l = *g.launch;
    if (g.holder < l.nallocs && lo >= l.allocs[g.holder].lo && hi <= l.allocs[g.holder].hi) return &l.allocs[g.holder];
    // sorted by lo, and apart from each other
    u32 a = 0, b = l.nallocs;
    while (a < b) {
        const u32 k = (a + b) / 2;
        if (l.allocs[k].lo <= lo) a = k + 1;
        else b = k;
    }
    if (a && lo >= l.allocs[a - 1].lo && hi <= l.allocs[a - 1].hi) {
        g.holder = a - 1;
        return &l.allocs[a - 1];
    }
    return nullptr;
}

Space addresses(Warp& w, const Inst& i, u64* A, int n, Access access) {
    const u8* R = w.R;
    const u32 m = w.m;
    Block& b = *w.block;
    Gang& g = *b.gang;
    const Launch& l = *g.launch;
    const int first = lowest(m);
    Space space = Space(i.space);
    if (space == SHARED) {
        alignas(64) u32 t[32];
        const u32 imm = u32(i.imm);
        if (i.base == WIDE) {
            const u64* r = (const u64*)(R + i.a);
            for (int k = 0; k < 32; ++k) t[k] = u32(r[k]) + imm;
        } else if (i.base == NARROW) {
            const u32* r = (const u32*)(R + i.a);
            for (int k = 0; k < 32; ++k) t[k] = r[k] + imm;
        } else
            for (int k = 0; k < 32; ++k) t[k] = imm + (b.rank << 24);
        if (m != ~0u) {
            const u32 f = t[first];
            for (int k = 0; k < 32; ++k) t[k] = m >> k & 1 ? t[k] : f;
        }
        u32 hi = 0, bad = 0;
        const u32 own = b.rank << 24;
        for (int k = 0; k < 32; ++k) {
            t[k] -= own;
            hi = std::max(hi, t[k]);
            bad |= t[k];
        }
        if (__builtin_expect(bad & (n - 1), 0)) {
            for (int k = 0; k < 32; ++k)
                if (t[k] & (n - 1))
                    fault_lane(k, "%s %d bytes at byte %u of shared memory, not a multiple of %d: align it",
                               verb(access), n, t[k] & 0xffffff, n);
        }
        if (__builtin_expect(u64(hi) + n <= l.shared, 1)) {
            const u64 at = u64(b.shared);
            for (int k = 0; k < 32; ++k) A[k] = at + t[k];
        } else
            for (int k = 0; k < 32; ++k) {
                const u32 address = t[k] + own, rank = address >> 24, at = address & 0xffffff;
                if (rank >= product(l.cluster))
                    fault_lane(k, "%s %d bytes at %#x, which is in no block's shared memory", verb(access), n, address);
                if (at + n > l.shared)
                    fault_lane(k,
                               "%s %d bytes at byte %u of shared memory, which has %u: ask for more at the launch, or "
                               "mend the offset",
                               verb(access), n, at, l.shared);
                A[k] = u64(g.blocks[b.cluster + rank].shared) + at;
            }
    } else if (space == LOCAL || space == PARAM || space == CONST) {
        const u64 size = space == LOCAL ? l.local : space == PARAM ? l.nparams : l.nconsts;
        const u64 start = space == LOCAL ? u64(w.local) : space == PARAM ? u64(l.params) : u64(l.consts);
        for (int k = 0; k < 32; ++k) {
            const int s = m >> k & 1 ? k : first;
            const u64 at = (i.base == WIDE     ? ((const u64*)(R + i.a))[s]
                            : i.base == NARROW ? ((const u32*)(R + i.a))[s]
                                               : 0) +
                           u64(i.imm);
            if (at + n > size || at > size)
                fault_lane(s, "%s %d bytes at byte %lld of %s, which has %llu", verb(access), n, (long long)at,
                           space == LOCAL   ? "its local memory"
                           : space == PARAM ? "the parameters"
                                            : "constant memory",
                           (unsigned long long)size);
            A[k] = start + at + (space == LOCAL ? u64(s) * l.local : 0);
        }
        return space;
    } else {
        const u64 imm = u64(i.imm);
        if (i.base == WIDE) {
            const u64* r = (const u64*)(R + i.a);
            for (int k = 0; k < 32; ++k) A[k] = r[k] + imm;
        } else if (i.base == NARROW) {
            const u32* r = (const u32*)(R + i.a);
            for (int k = 0; k < 32; ++k) A[k] = u64(r[k]) + imm;
        } else
            for (int k = 0; k < 32; ++k) A[k] = imm;
        if (m != ~0u) {
            const u64 f = A[first];
            for (int k = 0; k < 32; ++k) A[k] = m >> k & 1 ? A[k] : f;
        }
        s64 lo = s64(A[0]), hi = s64(A[0]);
        u64 bad = 0;
        for (int k = 0; k < 32; ++k) {
            lo = std::min(lo, s64(A[k]));
            hi = std::max(hi, s64(A[k]));
            bad |= A[k];
        }
        if (__builtin_expect(bad & u64(n - 1), 0)) {
            for (int k = 0; k < 32; ++k)
                if (A[k] & u64(n - 1))
                    fault_lane(k, "%s %d bytes at %#llx, not a multiple of %d: align it", verb(access), n,
                               (unsigned long long)A[k], n);
        }
        const u64 shared = u64(g.shared), local = u64(g.local);
        if (u64(lo) >= shared && u64(hi) < local + g.local_bytes) {
            if (u64(hi) < local) {
                space = SHARED;
                for (int k = 0; k < 32; ++k)
                    if ((A[k] - shared) % g.stride + n > l.shared)
                        fault_lane(k,
                                   "%s %d bytes at byte %llu of shared memory, which has %u: ask for more at the "
                                   "launch, or mend the offset",
                                   verb(access), n, (unsigned long long)((A[k] - shared) % g.stride), l.shared);
            } else {
                for (int k = 0; k < 32; ++k) {
                    const u64 own = u64(w.local) + u64(m >> k & 1 ? k : first) * l.local;
                    if (A[k] < own || A[k] + n > own + l.local)
                        fault_lane(k, "%s %d bytes in local memory that is not its own", verb(access), n);
                }
                return LOCAL;
            }
        } else {
            space = GLOBAL;
            const Alloc* a = holder(g, u64(lo), u64(hi) + n);
            if (__builtin_expect(!a || a->flags, 0))
                for (int k = 0; k < 32; ++k) {
                    if (!(m >> k & 1)) continue;
                    if (A[k] >= u64(l.params) && A[k] + n <= u64(l.params) + l.nparams) continue;
                    if (A[k] >= u64(l.globals) && A[k] + n <= u64(l.globals) + l.nconsts) continue;
                    if (A[k] >= shared && A[k] + n <= shared + g.blocks.size() * g.stride) continue;
                    const Alloc* own = a ? a : holder(g, A[k], A[k] + n);
                    if (!own) outside(w, k, A[k], n, access);
                    if (own->flags) special_alloc(w, *own, A[k], n, access, k);
                }
        }
    }
    if (l.checks) check_access(w, A, m, n, access, space);
    if (l.profile) count_access(w, i, A, m, n, space, access);
    return space;
}

// Tells checks and counters of an access.
void note(Warp& w, const Inst& i, u32 n, Access access, Where& at) {
    if (at.shape != MIXED) {
        if (w.launch->checks) check_simple(w, u64(at.base), at.shape == ROW, int(n), access, at.space);
        if (w.launch->profile) count_simple(w, i, u64(at.base), at.shape == ROW, int(n), at.space, access);
        return;
    }
    if (w.launch->checks) check_offsets(w, at.base, at.t, w.m, int(n), access, at.space);
    if (!w.launch->profile) return;
    alignas(64) u32 t[32];
    const u32 first = at.space == SHARED ? 0 : u32(u64(at.base) & 1023);
    for (u32 k = 0; k < 32; ++k) t[k] = first + at.t[k];
    count_offsets(w, i, t, w.m, int(n), at.space, access, u64(at.base) - first);
}

// ---- Addresses from one space to another, and of one block of a cluster to another's. A generic address is the
// host's own.

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

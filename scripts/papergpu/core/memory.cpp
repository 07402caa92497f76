// Loads, stores, atomics and addresses.
#include "core.hpp"
#include <algorithm>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace {

u32 product(const u32* v) { return v[0] * v[1] * v[2]; }

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

void special_alloc(Warp& w, const Alloc& a, u64 at, u64 bytes, Access access, int lane) {
    if (a.flags & READ_ONLY && access != READ)
        fault_lane(lane, "%s byte %llu of $%u, which the launch declares as only read: declare it, or write elsewhere",
                   verb(access), (unsigned long long)(at - a.lo), a.name);
    if (a.flags & UNWRITTEN) {
        u8* mark = (u8*)(a.shadow + (at - a.lo));
        if (access != WRITE) {
            const void* hole = memchr(mark, 0, bytes);
            if (hole)
                fault_lane(lane, "reads byte %llu of $%u, which nobody has written: write it first, or mask it",
                           (unsigned long long)((const u8*)hole - (const u8*)a.shadow), a.name);
        }
        if (access != READ) memset(mark, 1, bytes);
    }
    (void)w;
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
                    fault_lane(k, "%s %d bytes at byte %u of shared memory, which is no multiple of %d: align it",
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
                    fault_lane(k, "%s %d bytes at %#llx, which is no multiple of %d: align it", verb(access), n,
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
    if (l.checks) check_access(w, i, A, m, n, access, space);
    if (l.profile) count_access(w, i, A, m, n, space, access);
    return space;
}

namespace {

// What the checks do around a load or a store that is volatile, relaxed or ordered (flags: 2 acquires or
// releases, 4 strong), and around a store whose lanes may write the same place.
struct Strong {
    Warp& w;
    Strong(Warp& w, const Inst& i) : w(w) { w.strong = i.flags & 6; }
    ~Strong() { w.strong = false; }
};
void loaded(Warp& w, const Inst& i, const u64* A, Space space) {
    if (i.flags & 6 && launch_of(w).checks) check_obtain(w, A, w.m, i.flags & 2 ? 1 : 0, space);
    if (i.flags & 6 && w.steps >= w.patience) {
        w.yield = true;
        w.patience = w.steps + 64;
    }  // it may be a spin
}
Space store_addresses(Warp& w, const Inst& i, u64* A, int bytes) {
    const Strong strong(w, i);
    w.clash = 0;
    w.compares = launch_of(w).checks;
    const Space space = addresses(w, i, A, bytes, WRITE);
    w.compares = false;
    if (i.flags & 6 && launch_of(w).checks) check_publish(w, A, w.m, i.flags & 2, space);
    return space;
}
// Before a store: what it would change of another thread's, with nothing between.
template <class F> void clashes(Warp& w, const u64* A, Space space, F value) {
    u8 own[256];
    for (u32 t = w.clash; t; t &= t - 1) {
        value(lowest(t), own);
        check_clash(w, lowest(t), A[lowest(t)], own, space);
    }
}
// After a store: lanes that write one place in one instruction have to agree, as which of them stays is
// not said.
template <class F> void agree(const Warp& w, const Inst& i, const u64* A, int bytes, Space space, F value) {
    if (space == LOCAL || i.flags & 6) return;
    u8 own[256];
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        value(k, own);
        if (!memcmp((const u8*)A[k], own, bytes)) continue;
        for (u32 o = w.m; o; o &= o - 1)
            if (lowest(o) != k && A[lowest(o)] == A[k])
                fault_lane(k,
                           "writes another value than lane %d of its warp to one place, in one instruction: let one of "
                           "them write, or use an atomic",
                           lowest(o));
    }
}

// Where the lanes access memory, if that is simple: all the same bytes, at base; each those behind the
// lane's before, from base on; or those t behind base, a multiple of 128. In the last case lanes that do
// not execute stand where the first one does that executes.
enum Shape { SAME, ROW, MIXED };
struct Where {
    u8* base;
    Space space;
    Shape shape;
    alignas(64) u32 t[32];
};

template <class T> inline __attribute__((always_inline)) Shape shape_of(const T* r, u32 n) {
    const T first = r[0];
    T off = 0;
    if (r[31] - first == T(31 * n)) {
        for (u32 k = 0; k < 32; ++k) off |= r[k] ^ (first + k * n);
        return off ? MIXED : ROW;
    }
    if (r[31] == first) {
        for (u32 k = 0; k < 32; ++k) off |= r[k] ^ first;
        return off ? MIXED : SAME;
    }
    return MIXED;
}

// Tells checks and counters of an access.
__attribute__((noinline)) void note(Warp& w, const Inst& i, u32 n, Access access, Where& at) {
    if (at.shape != MIXED) {
        if (w.launch->checks) check_simple(w, i, u64(at.base), at.shape == ROW, int(n), access, at.space);
        if (w.launch->profile) count_simple(w, i, u64(at.base), at.shape == ROW, int(n), at.space, access);
        return;
    }
    alignas(64) u32 t[32];
    const u64 base = at.space == SHARED ? u64(w.block->shared) : u64(at.base) & ~u64(1023), first = u64(at.base) - base;
    for (u32 k = 0; k < 32; ++k) t[k] = u32(first) + (at.shape == MIXED ? at.t[k] : at.shape == ROW ? k * n : 0);
    if (w.launch->checks) check_offsets(w, i, (u8*)base, t, w.m, int(n), access, at.space);
    if (w.launch->profile) count_offsets(w, i, t, w.m, int(n), at.space, access);
}

// False where it is not simple: then `addresses` does it, or says what is wrong.
inline __attribute__((always_inline)) bool locate(Warp& w, const Inst& i, u32 n, Access access, Where& to) {
    const u8* R = w.R;
    const u32 m = w.m;
    Block& b = *w.block;
    const Launch& l = *w.launch;
    const int first = lowest(m);
    u32* const t = to.t;
    to.shape = MIXED;
    if (i.space == SHARED) {
        const u32 imm = i.base == NONE ? u32(i.imm) : u32(i.imm) - (b.rank << 24);
        if (i.base == NONE) to.shape = SAME;
        else if (m == ~0u && i.base == NARROW) to.shape = shape_of((const u32*)(R + i.a), n);
        to.space = SHARED;
        to.base = b.shared;
        if (to.shape != MIXED) {
            const u32 at = (i.base == NONE ? 0 : *(const u32*)(R + i.a)) + imm;
            if (at & (n - 1) || u64(at) + (to.shape == ROW ? 32 * n : n) > l.shared) return false;
            to.base += at;
        } else {
            if (i.base == NARROW) {
                const u32* r = (const u32*)(R + i.a);
                for (int k = 0; k < 32; ++k) t[k] = r[k] + imm;
            } else {
                const u64* r = (const u64*)(R + i.a);
                for (int k = 0; k < 32; ++k) t[k] = u32(r[k]) + imm;
            }
            if (m != ~0u) {
                const u32 f = t[first];
                for (int k = 0; k < 32; ++k) t[k] = m >> k & 1 ? t[k] : f;
            }
            u32 hi = 0, bad = 0;
            for (int k = 0; k < 32; ++k) {
                hi = std::max(hi, t[k]);
                bad |= t[k];
            }
            if (bad & (n - 1) || u64(hi) + n > l.shared) return false;
        }
    } else {
        if ((i.space != GLOBAL && i.space != GENERIC) || i.base != WIDE) return false;
        const u64* r = (const u64*)(R + i.a);
        const u64 f = r[first];
        if (m == ~0u) to.shape = shape_of(r, n);
        to.space = GLOBAL;
        u64 from = f + u64(i.imm), end = from + (to.shape == ROW ? 32 * n : n);
        u32 bad = u32(from);
        if (to.shape == MIXED) {
            u64 far = 0;
            s32 least = 0, most = 0;
            for (int k = 0; k < 32; ++k) {
                const u64 d = r[k] - f;
                far |= m >> k & 1 ? d + 0x40000000u : 0;
                t[k] = u32(d);
            }
            if (far >> 31) return false;
            if (m != ~0u)
                for (int k = 0; k < 32; ++k) t[k] = m >> k & 1 ? t[k] : 0;
            for (int k = 0; k < 32; ++k) {
                least = std::min(least, s32(t[k]));
                most = std::max(most, s32(t[k]));
            }
            end += u64(s64(most));
            from += u64(s64(least));
            const u64 base = from & ~u64(127);
            const u32 more = u32(from - base) - u32(least);
            for (int k = 0; k < 32; ++k) {
                t[k] += more;
                bad |= t[k];
            }
            to.base = (u8*)base;
        } else to.base = (u8*)from;
        if (bad & (n - 1)) return false;
        const Alloc* a = holder(*b.gang, from, end);
        if (!a || a->flags) return false;
    }
    if (__builtin_expect(l.checks | l.profile, 0)) note(w, i, n, access, to);
    return true;
}

typedef u32 Four __attribute__((vector_size(16)));
typedef u32 Eight __attribute__((vector_size(32)));

// 16 bytes of each lane, to the register of each word.
inline void transpose(const u8* s, const u32* t, u32* const* d) {
    for (int k = 0; k < 32; k += 8) {
        Eight x[4];
        for (int j = 0; j < 4; ++j) {
            Four a, b;
            memcpy(&a, s + t[k + j], 16);
            memcpy(&b, s + t[k + j + 4], 16);
            x[j] = __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7);
        }
        const Eight p = __builtin_shufflevector(x[0], x[1], 0, 8, 1, 9, 4, 12, 5, 13),
                    q = __builtin_shufflevector(x[2], x[3], 0, 8, 1, 9, 4, 12, 5, 13);
        const Eight u = __builtin_shufflevector(x[0], x[1], 2, 10, 3, 11, 6, 14, 7, 15),
                    v = __builtin_shufflevector(x[2], x[3], 2, 10, 3, 11, 6, 14, 7, 15);
        const Eight e0 = __builtin_shufflevector(p, q, 0, 1, 8, 9, 4, 5, 12, 13),
                    e1 = __builtin_shufflevector(p, q, 2, 3, 10, 11, 6, 7, 14, 15);
        const Eight e2 = __builtin_shufflevector(u, v, 0, 1, 8, 9, 4, 5, 12, 13),
                    e3 = __builtin_shufflevector(u, v, 2, 3, 10, 11, 6, 7, 14, 15);
        memcpy(d[0] + k, &e0, 32);
        memcpy(d[1] + k, &e1, 32);
        memcpy(d[2] + k, &e2, 32);
        memcpy(d[3] + k, &e3, 32);
    }
}

template <class T, class D> inline __attribute__((always_inline)) void gather(const u8* s, const u32* t, D* d) {
#ifdef __AVX2__
    if constexpr (sizeof(T) == 4 && sizeof(D) == 4) {
        for (int k = 0; k < 32; k += 8) {
            const __m256i x = _mm256_i32gather_epi32((const int*)s, _mm256_load_si256((const __m256i*)(t + k)), 1);
            _mm256_storeu_si256((__m256i*)(d + k), x);
        }
        return;
    }
#endif
#pragma GCC unroll 8
    for (int k = 0; k < 32; ++k) d[k] = (D) * (const T*)(s + t[k]);
}

// The `v` elements of each lane, to v registers.
template <class T, class D> inline __attribute__((always_inline)) void fetch(const Where& at, u32 v, D* const* to) {
    const u8* const s = at.base;
    const T* x = (const T*)s;
    if (at.shape == SAME) {
        for (u32 e = 0; e < v; ++e) {
            const D c = (D)x[e];
            D* d = to[e];
            for (int k = 0; k < 32; ++k) d[k] = c;
        }
    } else if (v == 1) {
        D* d = to[0];
        if (at.shape == ROW) {
            _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) d[k] = (D)x[k];
        } else gather<T, D>(s, at.t, d);
    } else if (sizeof(T) == 4 && sizeof(D) == 4 && v == 4) {
        if (at.shape == MIXED) return transpose(s, at.t, (u32* const*)to);
        alignas(64) u32 t[32];
        for (int k = 0; k < 32; ++k) t[k] = 16 * k;
        transpose(s, t, (u32* const*)to);
    } else if (v == 2) {
        D *d0 = to[0], *d1 = to[1];
        if (at.shape == ROW) {
            _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) {
                d0[k] = (D)x[2 * k];
                d1[k] = (D)x[2 * k + 1];
            }
        } else
            for (int k = 0; k < 32; ++k) {
                const T* y = (const T*)(s + at.t[k]);
                d0[k] = (D)y[0];
                d1[k] = (D)y[1];
            }
    } else
        for (u32 e = 0; e < v; ++e) {
            D* d = to[e];
            for (u32 k = 0; k < 32; ++k)
                d[k] = (D)((const T*)(s + (at.shape == ROW ? k * v * u32(sizeof(T)) : at.t[k])))[e];
        }
}

template <class T, class D> void load_any(Warp& w, const Inst& i) {
    u64 A[32];
    const int v = i.count;
    const Strong strong(w, i);
    const Space space = addresses(w, i, A, sizeof(T) * v, READ);
    const u32* q = list(w, i);
    u8* R = w.R;
    for (int e = 0; e < v; ++e) {
        D* d = (D*)(R + q[e]);
        for (u32 t = w.m; t; t &= t - 1) {
            const int k = lowest(t);
            T x;
            memcpy(&x, (const u8*)A[k] + e * sizeof(T), sizeof x);
            d[k] = (D)x;
        }
    }
    loaded(w, i, A, space);
}

// T in memory, D in the register: lists[k] is the register of element k. flags: 2 acquire or release,
// 4 volatile, or ordered at all.
template <class T, class D> void load(Warp& w, const Inst& i) {
    Where at;
    const u32 v = i.count;
    if (__builtin_expect(i.flags & 6, 0) || !locate(w, i, u32(sizeof(T)) * v, READ, at)) return load_any<T, D>(w, i);
    const u32* q = list(w, i);
    u8* R = w.R;
    D* to[8];
    const u32 m = w.m;
    if (m == ~0u) {
        if (v == 1) {
            to[0] = (D*)(R + q[0]);
            return fetch<T, D>(at, 1, to);
        }
        for (u32 e = 0; e < v; ++e) to[e] = (D*)(R + q[e]);
        return fetch<T, D>(at, v, to);
    }
    alignas(64) D t[8][32];
    for (u32 e = 0; e < v; ++e) to[e] = t[e];
    fetch<T, D>(at, v, to);
    for (u32 e = 0; e < v; ++e) {
        D* d = (D*)(R + q[e]);
        const D* x = t[e];
        for (int k = 0; k < 32; ++k) d[k] = m >> k & 1 ? x[k] : d[k];
    }
}

template <class T, class D> void store_any(Warp& w, const Inst& i) {
    u64 A[32];
    const int v = i.count;
    const Space space = store_addresses(w, i, A, sizeof(T) * v);
    const u32* q = list(w, i);
    const u8* R = w.R;
    const auto value = [&](int k, u8* to) {
        for (int e = 0; e < v; ++e) {
            const T x = (T)((const D*)(R + q[e]))[k];
            memcpy(to + e * sizeof(T), &x, sizeof x);
        }
    };
    if (w.clash) clashes(w, A, space, value);
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        for (int e = 0; e < v; ++e) {
            const T x = (T)((const D*)(R + q[e]))[k];
            memcpy((u8*)A[k] + e * sizeof(T), &x, sizeof x);
        }
    }
    if (launch_of(w).checks) agree(w, i, A, sizeof(T) * v, space, value);
}

// v elements of each lane, side by side.
template <class T, class D>
inline __attribute__((always_inline)) void side_by_side(const u8* R, const u32* q, u32 v, T* to) {
    if (v == 4) {
        const D *a = (const D*)(R + q[0]), *b = (const D*)(R + q[1]), *c = (const D*)(R + q[2]),
                *d = (const D*)(R + q[3]);
        _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) {
            to[4 * k] = (T)a[k];
            to[4 * k + 1] = (T)b[k];
            to[4 * k + 2] = (T)c[k];
            to[4 * k + 3] = (T)d[k];
        }
    } else if (v == 2) {
        const D *a = (const D*)(R + q[0]), *b = (const D*)(R + q[1]);
        _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) {
            to[2 * k] = (T)a[k];
            to[2 * k + 1] = (T)b[k];
        }
    } else
        for (u32 e = 0; e < v; ++e) {
            const D* a = (const D*)(R + q[e]);
            for (int k = 0; k < 32; ++k) to[v * k + e] = (T)a[k];
        }
}

template <int n> inline void scatter(const u8* s, u8* base, const u32* t, u32 m) {
    if (m == ~0u) {
#pragma GCC unroll 8
        for (int k = 0; k < 32; ++k) memcpy(base + t[k], s + n * k, n);
    } else
        for (; m; m &= m - 1) {
            const int k = lowest(m);
            memcpy(base + t[k], s + n * k, n);
        }
}

// The same where lanes may write one place, or a place that another thread has written.
template <class T, class D> void store_checked(Warp& w, const Inst& i, const Where& at) {
    u64 A[32];
    const u32 v = i.count;
    const u32* q = list(w, i);
    const u8* R = w.R;
    for (int k = 0; k < 32; ++k) A[k] = u64(at.base) + at.t[k];
    const auto value = [&](int k, u8* to) {
        for (u32 e = 0; e < v; ++e) {
            const T x = (T)((const D*)(R + q[e]))[k];
            memcpy(to + e * sizeof(T), &x, sizeof x);
        }
    };
    if (w.clash) clashes(w, A, at.space, value);
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        for (u32 e = 0; e < v; ++e) {
            const T x = (T)((const D*)(R + q[e]))[k];
            memcpy((u8*)A[k] + e * sizeof(T), &x, sizeof x);
        }
    }
    bool differs = false;
    for (u32 e = 0; e < v; ++e) {
        const D* d = (const D*)(R + q[e]);
        for (int k = 0; k < 32; ++k) {
            T x;
            memcpy(&x, at.base + at.t[k] + e * sizeof(T), sizeof x);
            differs |= (w.m >> k & 1) & (x != (T)d[k]);
        }
    }
    if (differs) agree(w, i, A, int(sizeof(T) * v), at.space, value);
}

template <class T, class D> void store(Warp& w, const Inst& i) {
    Where at;
    const u32 v = i.count, n = u32(sizeof(T)) * v, m = w.m;
    const u32 checks = w.launch->checks;
    w.compares = checks;
    w.clash = 0;
    if (__builtin_expect(i.flags & 6, 0) || !locate(w, i, n, WRITE, at)) {
        w.compares = false;
        return store_any<T, D>(w, i);
    }
    w.compares = false;
    const u32* q = list(w, i);
    const u8* R = w.R;
    const bool row = at.shape == ROW;  // then all lanes execute
    if (at.shape == SAME || (at.shape == ROW && checks))
        for (u32 k = 0; k < 32; ++k) at.t[k] = row ? k * n : 0;
    if (__builtin_expect(checks && (w.clash || !row), 0)) return store_checked<T, D>(w, i, at);
    if (v == 1) {
        const D* s = (const D*)(R + q[0]);
        if (row) {
            T* x = (T*)at.base;
            _Pragma("GCC ivdep") for (int k = 0; k < 32; ++k) x[k] = (T)s[k];
        } else if (m == ~0u) {
#pragma GCC unroll 8
            for (int k = 0; k < 32; ++k) *(T*)(at.base + at.t[k]) = (T)s[k];
        } else
            for (u32 t = m; t; t &= t - 1) {
                const int k = lowest(t);
                *(T*)(at.base + at.t[k]) = (T)s[k];
            }
        return;
    }
    if (row) return side_by_side<T, D>(R, q, v, (T*)at.base);
    alignas(64) T t[8 * 32];
    side_by_side<T, D>(R, q, v, t);
    if (n == 16) scatter<16>((const u8*)t, at.base, at.t, m);
    else if (n == 8) scatter<8>((const u8*)t, at.base, at.t, m);
    else
        for (u32 x = m; x; x &= x - 1) {
            const int k = lowest(x);
            memcpy(at.base + at.t[k], t + v * k, n);
        }
}
#define LOADS(name, T, D) Add load_##name("ld." #name, load<T, D>);
#define STORES(name, T, D) Add store_##name("st." #name, store<T, D>);
// The second part of the name is the register's width.
LOADS(u8_32, u8, u32)
LOADS(s8_32, s8, s32) LOADS(u16_32, u16, u32) LOADS(s16_32, s16, s32) LOADS(u32_32, u32, u32) LOADS(u8_64, u8, u64)
    LOADS(s8_64, s8, s64) LOADS(u16_64, u16, u64) LOADS(s16_64, s16, s64) LOADS(u32_64, u32, u64)
        LOADS(s32_64, s32, s64) LOADS(u64_64, u64, u64) STORES(u8_32, u8, u32) STORES(u16_32, u16, u32)
            STORES(u32_32, u32, u32) STORES(u8_64, u8, u64) STORES(u16_64, u16, u64) STORES(u32_64, u32, u64)
                STORES(u64_64, u64, u64)

    // 128 bits: the register holds the 32 low halves, then the 32 high ones.
    void load128(Warp& w, const Inst& i) {
    u64 A[32];
    const int v = i.count;
    const Strong strong(w, i);
    const Space space = addresses(w, i, A, 16 * v, READ);
    const u32* q = list(w, i);
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        for (int e = 0; e < v; ++e)
            for (int h = 0; h < 2; ++h) memcpy(w.R + q[e] + 256 * h + 8 * k, (const u8*)A[k] + 16 * e + 8 * h, 8);
    }
    loaded(w, i, A, space);
}
void store128(Warp& w, const Inst& i) {
    u64 A[32];
    const int v = i.count;
    const Space space = store_addresses(w, i, A, 16 * v);
    const u32* q = list(w, i);
    const u8* R = w.R;
    const auto value = [&](int k, u8* to) {
        for (int e = 0; e < v; ++e)
            for (int h = 0; h < 2; ++h) memcpy(to + 16 * e + 8 * h, R + q[e] + 256 * h + 8 * k, 8);
    };
    if (w.clash) clashes(w, A, space, value);
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        for (int e = 0; e < v; ++e)
            for (int h = 0; h < 2; ++h) memcpy((u8*)A[k] + 16 * e + 8 * h, w.R + q[e] + 256 * h + 8 * k, 8);
    }
    if (launch_of(w).checks) agree(w, i, A, 16 * v, space, value);
}
Add load_b128("ld.b128", load128), store_b128("st.b128", store128);

// Parameters are the same for all lanes.
template <class T, class D> void parameter(Warp& w, const Inst& i) {
    const Launch& l = launch_of(w);
    const u32* q = list(w, i);
    for (u32 e = 0; e < i.count; ++e) {
        T t;
        memcpy(&t, l.params + i.imm + e * sizeof(T), sizeof t);
        each<D>(w, q[e], [t](int) __attribute__((always_inline)) { return (D)t; });
    }
}
#define PARAMETERS(name, T, D) Add parameter_##name("ldp." #name, parameter<T, D>);
PARAMETERS(u8_32, u8, u32)
PARAMETERS(s8_32, s8, s32) PARAMETERS(u16_32, u16, u32) PARAMETERS(s16_32, s16, s32) PARAMETERS(u32_32, u32, u32)
    PARAMETERS(u8_64, u8, u64) PARAMETERS(s8_64, s8, s64) PARAMETERS(u16_64, u16, u64) PARAMETERS(s16_64, s16, s64)
        PARAMETERS(u32_64, u32, u64) PARAMETERS(s32_64, s32, s64) PARAMETERS(u64_64, u64, u64)

    // The list: where each of the module's constants begins and ends, in the memory of its variables.
    bool of_constant(const Warp& w, const Inst& i, u64 address) {
    const u64 at = address - u64(launch_of(w).consts);
    const u32* q = list(w, i);
    bool found = false;
    for (u32 k = 0; k < i.count; k += 2) found |= at >= q[k] && at < q[k + 1];
    return found && at < launch_of(w).nconsts;
}

    // ---- addresses from one space to another. A generic address is the host's own.
    HANDLER("cvta.shared", each<u64>(w, i.d,
                                     [R, i = i, at = u64(w.block->gang->shared), stride = w.block->gang->stride,
                                      c = u64(w.block->cluster)](int l) {
                                         u32 a = get<u32>(R, i.a, l);
                                         return at + (c + (a >> 24)) * stride + (a & 0xffffff);
                                     });)
        HANDLER("cvta.to.shared", each<u64>(w, i.d,
                                            [R, i = i, at = u64(w.block->gang->shared), stride = w.block->gang->stride,
                                             c = u64(w.block->cluster)](int l) {
                                                u64 a = get<u64>(R, i.a, l) - at;
                                                u64 k = a / stride;
                                                return ((k - c) << 24) | (a - k * stride);
                                            });)
            HANDLER("cvta.local", each<u64>(w, i.d,
                                            [R, i = i, at = u64(w.local), n = u64(launch_of(w).local)](int l) {
                                                return at + l * n + get<u64>(R, i.a, l);
                                            });)
                HANDLER("cvta.to.local", each<u64>(w, i.d,
                                                   [R, i = i, at = u64(w.local), n = u64(launch_of(w).local)](int l) {
                                                       return get<u64>(R, i.a, l) - at - l * n;
                                                   });)
                    HANDLER("cvta.param", each<u64>(w, i.d,
                                                    [R, i = i, at = u64(launch_of(w).params)](int l) {
                                                        return at + get<u64>(R, i.a, l);
                                                    });)
                        HANDLER("cvta.to.param", each<u64>(w, i.d,
                                                           [R, i = i, at = u64(launch_of(w).params)](int l) {
                                                               return get<u64>(R, i.a, l) - at;
                                                           });)
                            HANDLER("cvta.const", each<u64>(w, i.d,
                                                            [R, i = i, at = u64(launch_of(w).consts)](int l) {
                                                                return at + get<u64>(R, i.a, l);
                                                            });)
                                HANDLER("cvta.to.const", each<u64>(w, i.d,
                                                                   [R, i = i, at = u64(launch_of(w).consts)](int l) {
                                                                       return get<u64>(R, i.a, l) - at;
                                                                   });)
    // The address of a module's variable: the register's constant is its offset.
    HANDLER("cvta.symbol",
            each<u64>(w, i.d, [R, i = i, at = u64(launch_of(w).globals)](int l) { return at + get<u64>(R, i.a, l); });)
        HANDLER(
            "isspacep.shared", const Gang& g = *w.block->gang; u32 p = 0; for (int l = 0; l < 32; ++l) {
                u64 a = get<u64>(R, i.a, l);
                if (a >= u64(g.shared) && a < u64(g.shared) + g.blocks.size() * g.stride) p |= 1u << l;
            } set_predicate(w, i.d, p);)
            HANDLER(
                "isspacep.local", const Gang& g = *w.block->gang; u32 p = 0; for (int l = 0; l < 32; ++l) {
                    u64 a = get<u64>(R, i.a, l);
                    if (a >= u64(g.local) && a < u64(g.local) + g.local_bytes) p |= 1u << l;
                } set_predicate(w, i.d, p);)
                HANDLER(
                    "isspacep.global", const Gang& g = *w.block->gang; u32 p = 0; for (int l = 0; l < 32; ++l) {
                        u64 a = get<u64>(R, i.a, l);
                        if (!(a >= u64(g.shared) && a < u64(g.local) + g.local_bytes) && !of_constant(w, i, a))
                            p |= 1u << l;
                    } set_predicate(w, i.d, p);)
                    HANDLER(
                        "isspacep.param", const Launch& n = launch_of(w); u32 p = 0; for (int l = 0; l < 32; ++l) {
                            u64 a = get<u64>(R, i.a, l);
                            if (a >= u64(n.params) && a < u64(n.params) + n.nparams) p |= 1u << l;
                        } set_predicate(w, i.d, p);) HANDLER(
                            "isspacep.const", u32 p = 0;
                            for (int l = 0; l < 32; ++l) p |= u32(of_constant(w, i, get<u64>(R, i.a, l))) << l;
                            set_predicate(w, i.d, p);)
    // mapa: the same place in the shared memory of block `b` of the cluster
    HANDLER("mapa.shared",
            each<u32>(w, i.d,
                      [R, i = i](int l) { return (get<u32>(R, i.a, l) & 0xffffff) | get<u32>(R, i.b, l) << 24; });)
        HANDLER("mapa.generic", const Gang& g = *w.block->gang;
                each<u64>(w, i.d,
                          [R, i = i, at = u64(g.shared), stride = g.stride, c = w.block->cluster](int l) {
                              u64 a = get<u64>(R, i.a, l) - at;
                              return at + (c + get<u32>(R, i.b, l)) * stride + a % stride;
                          });)
            HANDLER("getctarank.shared", each<u32>(w, i.d, [R, i = i](int l) { return get<u32>(R, i.a, l) >> 24; });)
                HANDLER("getctarank.generic", const Gang& g = *w.block->gang;
                        each<u32>(w, i.d,
                                  [R, i = i, at = u64(g.shared), stride = g.stride, c = w.block->cluster](int l) {
                                      return u32((get<u64>(R, i.a, l) - at) / stride) - c;
                                  });)

    // ---- atomics: operand b, and c of cas; d is 0 for red. flags: 1 acquires, 2 releases.
    template <class T, class F>
    void atomic(Warp& w, const Inst& i, F f) {
    u64 A[32];
    const Launch& l = launch_of(w);
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
#define ATOMICS(bits, U, S) \
    ATOMIC_OP("add.b" #bits, U, U(t + b)) \
    ATOMIC_OP("and.b" #bits, U, U(t& b)) ATOMIC_OP("or.b" #bits, U, U(t | b)) ATOMIC_OP("xor.b" #bits, U, U(t ^ b)) \
        ATOMIC_OP("exch.b" #bits, U, b) ATOMIC_OP("cas.b" #bits, U, t == b ? get<U>(R, i.c, l) : t) \
            ATOMIC_OP("min.u" #bits, U, std::min(t, b)) ATOMIC_OP("max.u" #bits, U, std::max(t, b)) \
                ATOMIC_OP("min.s" #bits, S, std::min(t, b)) ATOMIC_OP("max.s" #bits, S, std::max(t, b)) \
                    ATOMIC_OP("inc.u" #bits, U, t >= b ? U(0) : U(t + 1)) \
                        ATOMIC_OP("dec.u" #bits, U, t == 0 || t > b ? b : U(t - 1))
ATOMICS(32, u32, s32)
ATOMICS(64, u64, s64) ATOMIC_OP("cas.b16", u16, t == b ? get<u16>(R, i.c, l) : t) ATOMIC_OP("exch.b16", u16, b)
    ATOMIC_OP("add.f32", f32, t + b) ATOMIC_OP("add.f64", f64, t + b) static inline f16 sum16(f16 a, f16 b) {
    return f16(f32(a) + f32(b));
}
static inline u16 round_bf16(f32 f) {
    u32 u = as<u32>(f);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : u16((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static inline u16 sumbf(u16 a, u16 b) { return round_bf16(widen(bf16{a}) + widen(bf16{b})); }
ATOMIC_OP("add.f16", f16, sum16(t, b))
ATOMIC_OP("add.bf16", u16, sumbf(t, b))
    ATOMIC_OP("add.f16x2", u32,
              u32(as<u16>(sum16(as<f16>(u16(t)), as<f16>(u16(b))))) |
                  u32(as<u16>(sum16(as<f16>(u16(t >> 16)), as<f16>(u16(b >> 16))))) << 16)
        ATOMIC_OP("add.bf16x2", u32, u32(sumbf(u16(t), u16(b))) | u32(sumbf(u16(t >> 16), u16(b >> 16))) << 16)

}  // namespace

// Copies in bulk: cp.async.bulk and its reductions, st.async and st.bulk.
#include "async.hpp"
#include "checks.hpp"
#include <algorithm>
#include <limits>

namespace {

typedef unsigned long long ull;

// ---- cp.async.bulk: a the shared memory that is written or read, b global memory (or, of shared to shared,
// the source), c the mbarrier, e the size; lists[0] the mask of a multicast, or of bytes.
enum { MULTICAST = 1, REDUCES = 2, BYTE_MASK = 4, OF_CLUSTER = 8 };  // and the operation << 8, the type << 16

void sized(int lane, u32 n) {
    if (n % 16) fault_lane(lane, "copies %u bytes in bulk, not a multiple of 16", n);
}

void of_one_block(int lane, const char* what, u32 to, u32 bar) {
    if (to >> 24 != bar >> 24)
        fault_lane(lane, "%s block %u of its cluster, and signals an mbarrier of block %u: both must be of one block",
                   what, to >> 24, bar >> 24);
}

u8* barrier_at(Warp& w, int lane, u32 address) {
    return shared_bytes(w, lane, address, 8, 8, "signals the mbarrier at");
}

u8* global_bytes(Warp& w, int lane, u64 at, u64 n, Access access) {
    if (at % 16)
        fault_lane(lane, "%s %#llx in bulk, not a multiple of 16: align it", access == READ ? "reads" : "writes",
                   (ull)at);
    const u32 m = w.m;
    w.m = 1u << lane;
    u8* found = n ? global_at(w, at, n, access, "copies") : (u8*)at;
    w.m = m;
    return found;
}

void delivered(Gang& g, u8* at, u64 n) {  // into shared memory
    if (!g.launch->checks) return;
    async_let_go(g, at, n, WRITE);
    async_wrote(g, at, n);
}

void load(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    const u32* q = list(w, i);
    const u32 blocks = product(launch_of(w).cluster);
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const u32 n = get<u32>(w.R, i.e, lane), to = get<u32>(w.R, i.a, lane), bar = get<u32>(w.R, i.c, lane);
        sized(lane, n);
        u8* from = global_bytes(w, lane, get<u64>(w.R, i.b, lane), n, READ);
        of_one_block(lane, "copies into", to, bar);
        u32 mask = i.flags & MULTICAST ? get<u16>(w.R, q[0], lane) : 1u << (to >> 24);
        if (!mask || mask >> blocks)
            fault_lane(lane, "copies to the blocks of mask %#x of a cluster of %u", mask, blocks);
        if (checks && n) check_bytes(w, from, n, READ, GLOBAL);
        auto seen = std::make_shared<Clock>();  // of w, with what it writes by this
        for (; mask; mask &= mask - 1) {
            const u32 rank = u32(lowest(mask)) << 24;
            u8* at = shared_bytes(w, lane, rank | (to & 0xffffff), n, 16, "copies to");
            u8* b = barrier_at(w, lane, rank | (bar & 0xffffff));
            if (checks) {
                async_proxy_write(w, at, n);
                async_guard(w, lane, at, n, WRITE);
            }
            memset(at, 0xff, n);
            Flight& one = begin_flight(w, lane);
            one.into = &block_at(g, at);
            one.land = [&g, at, b, from, n, seen] {
                memcpy(at, from, n);
                delivered(g, at, n);
                mbarrier_complete_tx(g, b, n, g.launch->checks ? seen.get() : nullptr);
            };
            profiled(w, n);
        }
        if (checks) check_release(w, *seen);
    }
}

// Shared memory of this block to that of another (or the same) of its cluster.
void across(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const u32 n = get<u32>(w.R, i.e, lane), to = get<u32>(w.R, i.a, lane), from = get<u32>(w.R, i.b, lane),
                  bar = get<u32>(w.R, i.c, lane);
        sized(lane, n);
        of_one_block(lane, "copies into", to, bar);
        u8* at = shared_bytes(w, lane, to, n, 16, "copies to");
        u8* source = shared_bytes(w, lane, from, n, 16, "copies from");
        u8* b = barrier_at(w, lane, bar);
        const bool reduces = i.flags & REDUCES;
        const Reduction op = Reduction(i.flags >> 8 & 255);
        const Element type = Element(i.flags >> 16);
        Clock seen;
        if (checks) {
            async_proxy_read(w, source, n, "copies");
            async_guard(w, lane, source, n, READ);
            if (!reduces) {
                async_proxy_write(w, at, n);
                async_guard(w, lane, at, n, WRITE);
            } else check_bytes(w, at, n, ATOMIC, SHARED);
            check_release(w, seen);
        }
        if (!reduces) memset(at, 0xff, n);
        Flight& one = begin_flight(w, lane);
        one.into = &block_at(g, at);
        one.land = [=, &g] {
            if (g.launch->checks) async_let_go(g, source, n, READ);
            if (reduces) reduce_into(op, type, at, source, n, true);
            else {
                memcpy(at, source, n);
                delivered(g, at, n);
            }
            mbarrier_complete_tx(g, b, n, g.launch->checks ? &seen : nullptr);
        };
        profiled(w, n);
    }
}

void store(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const Launch& l = launch_of(w);
    const u32* q = list(w, i);
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const u32 n = get<u32>(w.R, i.e, lane);
        sized(lane, n);
        const u32 mask = i.flags & BYTE_MASK ? get<u16>(w.R, q[0], lane) : 0xffff;
        const bool reduces = i.flags & REDUCES;
        const Reduction op = Reduction(i.flags >> 8 & 255);
        const Element type = Element(i.flags >> 16);
        u8* to = global_bytes(w, lane, get<u64>(w.R, i.b, lane), n, reduces ? ATOMIC : WRITE);
        u8* from = shared_bytes(w, lane, get<u32>(w.R, i.a, lane), n, 16, "copies from");
        if (l.checks) {
            async_proxy_read(w, from, n, "copies");
            async_guard(w, lane, from, n, READ);
            if (n && mask == 0xffff) check_bytes(w, to, n, reduces ? ATOMIC : WRITE, GLOBAL);
        }
        auto held = std::make_shared<std::vector<u8>>(n);
        Flight& one = begin_flight(w, lane);
        one.group = w.async->bulk[lane];
        one.fetch = [&g, held, from, n] {
            if (n) memcpy(held->data(), from, n);
            if (g.launch->checks) async_let_go(g, from, n, READ);
        };
        one.land = [=, &g] {
            if (reduces) reduce_into(op, type, to, held->data(), n, g.launch->threads <= 1);
            else if (mask == 0xffff) {
                if (n) memcpy(to, held->data(), n);
            } else
                for (u32 k = 0; k < n; ++k)
                    if (mask >> (k & 15) & 1) to[k] = (*held)[k];
        };
        profiled(w, n);
    }
}

void prefetch(Warp& w, const Inst& i) {
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const u32 n = get<u32>(w.R, i.e, lane);
        sized(lane, n);
        global_bytes(w, lane, get<u64>(w.R, i.b, lane), n, READ);
    }
}
void bulk_commit(Warp& w, const Inst&) {
    for (u32 t = w.m; t; t &= t - 1) ++w.async->bulk[lowest(t)];
}
void bulk_wait(Warp& w, const Inst& i) { land_bulk(w, w.m, u32(i.imm), i.flags & 1); }
Add b1("bulk.load", load), b2("bulk.across", across), b3("bulk.store", store), b4("bulk.prefetch", prefetch),
    b5("bulk.commit", bulk_commit), b6("bulk.wait", bulk_wait);

// ---- st.async and red.async: lists the values, c the mbarrier; flags: REDUCES, the operation and the type; imm bytes of a value
void store_async(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    const u32* q = list(w, i);
    const u32 each = u32(i.imm), n = each * i.count;
    struct One {
        u8* at;
        u8* bar;
        u8 value[32];
    };
    auto all = std::make_shared<std::vector<One>>();
    const bool reduces = i.flags & REDUCES;
    Clock seen;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const u32 to = get<u32>(w.R, i.a, lane), bar = get<u32>(w.R, i.c, lane);
        One one;
        of_one_block(lane, "writes to", to, bar);
        one.at = shared_bytes(w, lane, to, n, n, "writes");
        one.bar = barrier_at(w, lane, bar);
        for (u32 k = 0; k < i.count; ++k) {
            if (each == 8) {
                const u64 v = get<u64>(w.R, q[k], lane);
                memcpy(one.value + 8 * k, &v, 8);
            } else {
                const u32 v = get<u32>(w.R, q[k], lane);
                memcpy(one.value + 4 * k, &v, 4);
            }
        }
        if (checks && !reduces) {
            async_guard(w, lane, one.at, n, WRITE);
        } else if (checks) check_bytes(w, one.at, n, ATOMIC, SHARED);
        if (!reduces) memset(one.at, 0xff, n);
        all->push_back(one);
    }
    if (checks) check_release(w, seen);
    const Reduction op = Reduction(i.flags >> 8 & 255);
    const Element type = Element(i.flags >> 16);
    Flight& flight = begin_flight(w, lowest(w.m));
    flight.into = &block_at(g, all->front().at);
    flight.land = [=, &g] {
        for (One& one : *all) {
            if (reduces) reduce_into(op, type, one.at, one.value, n, true);
            else {
                memcpy(one.at, one.value, n);
                if (g.launch->checks) async_let_go(g, one.at, n, WRITE);
            }
            mbarrier_complete_tx(g, one.bar, n, g.launch->checks ? &seen : nullptr);
        }
    };
}
Add c1("st.async", store_async);

// st.bulk: zeros, at once. a where, e how many
HANDLER(
    "st.bulk", for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const u64 n = get<u64>(w.R, i.e, lane);
        if (n % 8) fault_lane(lane, "writes %llu bytes in bulk, not a multiple of 8", (ull)n);
        u8* at = shared_bytes(w, lane, get<u32>(w.R, i.a, lane), n, 8, "writes");
        if (launch_of(w).checks && n) {
            Gang& g = *w.block->gang;
            for (u64 k = 0; k < n; k += 8) {
                u64 A[32];
                A[lane] = u64(at) + k;
                if (g.held || g.proxies) async_touch(w, A, 1u << lane, 8, WRITE);
            }
            check_bytes(w, at, n, WRITE, SHARED);
        }
        if (n) memset(at, 0, n);
    })

}  // namespace

// ---- cp.async: copies of 4, 8 or 16 bytes for each lane, from global to shared memory.

namespace {

typedef unsigned long long ull;

// Lists: the bytes added to the source's address; the registers of the source's size and of the predicate
// that says to ignore the source, 0 where there is none. flags: 1 the source's address is in 64 bits; 2 the
// predicate is negated. `count`, above its list, is no matter; `imm` is the destination's.
void begin_copy(Warp& w, const Inst& i) {
    const u32* q = list(w, i);
    const u32 all = w.m;
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    const int bytes = int(i.flags >> 8);
    Async& a = *w.async;
    a.copies.emplace_back();
    Copy& c = a.copies.back();
    c.number = ++g.order;
    c.pc = w.pc;
    c.left = all;
    c.bytes = bytes;
    u32 ignored = q[2] ? predicate(w, q[2]) : 0;
    if (i.flags & 2) ignored = ~ignored;
    u32 whole = 0;
    for (u32 t = all; t; t &= t - 1) {
        const int lane = lowest(t);
        u32 size = q[1] ? get<u32>(w.R, q[1], lane) : u32(bytes);
        if (size > u32(bytes))
            fault_lane(lane, "copies %u bytes by a cp.async of %d: its source is larger than its destination", size,
                       bytes);
        if (q[2] && ignored >> lane & 1) size = 0;
        c.size[lane] = size;
        c.group[lane] = a.groups[lane];
        c.from[lane] = 0;
        if (size == u32(bytes)) whole |= 1u << lane;
    }
    Inst to = i;
    to.space = SHARED;
    to.flags = 0;
    to.count = 0;
    addresses(w, to, c.to, bytes, WRITE);
    Inst from = i;
    from.a = i.b;
    from.imm = s32(q[0]);
    from.space = GLOBAL;
    from.base = i.flags & 1 ? WIDE : NARROW;
    from.flags = 0;
    from.count = 0;
    if (whole) {
        w.m = whole;
        addresses(w, from, c.from, bytes, READ);
        w.m = all;
    }
    for (u32 t = all & ~whole; t; t &= t - 1) {
        const int lane = lowest(t);
        if (!c.size[lane]) continue;
        const u64 at = (i.flags & 1 ? get<u64>(w.R, i.b, lane) : get<u32>(w.R, i.b, lane)) + u64(from.imm);
        if (at % bytes) fault_lane(lane, "reads at %#llx, not a multiple of %d: align it", (ull)at, bytes);
        w.m = 1u << lane;
        c.from[lane] = u64(global_at(w, at, c.size[lane], READ, "reads"));
        w.m = all;
        if (checks) check_bytes(w, (u8*)c.from[lane], c.size[lane], READ, GLOBAL);
    }
    for (u32 t = all; t; t &= t - 1) {
        const int lane = lowest(t);
        memset((u8*)c.to[lane], 0xff, bytes);
        // Of what cp.async brings no fence between the proxies is asked: neither Triton nor CUTLASS puts one everywhere.
        if (checks) {
            async_hold(g, (u8*)c.to[lane], bytes, w.pc, WRITE);
            async_wrote(g, (u8*)c.to[lane], bytes);
        }
    }
    g.flights->rounds = 0;
    u64 copied = 0;
    for (u32 t = all; t; t &= t - 1) copied += c.size[lowest(t)];
    profiled(w, copied);
}

// With `waited` the lanes themselves have waited for it: it is as if they wrote now, each for itself.
void land_lanes(Warp& w, Copy& c, u32 m, bool waited) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    for (u32 t = m; t; t &= t - 1) {
        const int lane = lowest(t);
        u8* to = (u8*)c.to[lane];
        const u32 n = c.size[lane];
        if (n == 16 && c.bytes == 16) memcpy(to, (u8*)c.from[lane], 16);
        else {
            if (n) memcpy(to, (u8*)c.from[lane], n);
            memset(to + n, 0, c.bytes - n);
        }
        if (checks) {
            async_let_go(g, to, c.bytes, WRITE);
            async_wrote(g, to, c.bytes);
        }
    }
    if (checks && waited) shared_access(w, c.pc, c.to, m, c.bytes, WRITE, WEAK);
    c.left &= ~m;
}

void drop_landed(Async& a) {
    std::erase_if(a.copies, [](const Copy& c) { return !c.left; });
}

// What lanes m have committed, but for their n latest groups.
void land_groups(Warp& w, u32 m, u32 n) {
    Async& a = *w.async;
    for (Copy& c : a.copies) {
        u32 due = 0;
        for (u32 t = c.left & m; t; t &= t - 1) {
            const int lane = lowest(t);
            if (c.group[lane] + n < a.groups[lane]) due |= 1u << lane;
        }
        if (due) land_lanes(w, c, due, true);
    }
    drop_landed(a);
}

}  // namespace

void land_until(Warp& w, u32 m, u64 number, bool waited) {
    Async& a = *w.async;
    for (Copy& c : a.copies)
        if (c.number <= number && c.left & m) land_lanes(w, c, c.left & m, waited);
    drop_landed(a);
}

namespace {

void commit(Warp& w, const Inst&) {
    for (u32 t = w.m; t; t &= t - 1) ++w.async->groups[lowest(t)];
}
void wait_group(Warp& w, const Inst& i) { land_groups(w, w.m, u32(i.imm)); }
void wait_all(Warp& w, const Inst&) { land_until(w, w.m, ~0ull, true); }
Add a1("cp.async", begin_copy), a2("cp.async.commit", commit), a3("cp.async.wait_group", wait_group),
    a4("cp.async.wait_all", wait_all);

}  // namespace

// ---- Reductions in bulk: the elements that an asynchronous copy adds to what is there, or else combines with it.

namespace {

f32 wide(u16 v, Element type) { return type == F16 ? f32(as<f16>(v)) : widen(bf16{v}); }
u16 narrow(f32 v, Element type) {
    if (type == F16) return as<u16>(f16(v));
    const u32 u = as<u32>(v);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : u16((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
template <class T> T plain(Reduction op, T a, T b) {
    if constexpr (std::is_integral_v<T>) switch (op) {
        case INC: return a >= b ? T(0) : T(a + 1);
        case DEC: return a == 0 || a > b ? b : T(a - 1);
        case AND: return a & b;
        case OR: return a | b;
        case XOR: return a ^ b;
        case ADD: return T(u64(a) + u64(b));
        default: break;
        }
    return op == ADD ? T(a + b) : op == MIN ? std::min(a, b) : std::max(a, b);
}
u16 half(Reduction op, Element type, u16 a, u16 b) {
    const f32 x = wide(a, type), y = wide(b, type);
    if (op == ADD) return narrow(x + y, type);
    if (x != x && y != y) return 0x7fff;
    if (x != x) return b;
    if (y != y) return a;
    const bool first = x < y || (x == y && std::signbit(x));
    return first == (op == MIN) ? a : b;
}
template <class Bits, class F> void one_by_one(u8* to, const u8* from, u64 n, bool alone, F f) {
    for (u64 k = 0; k < n; k += sizeof(Bits)) {
        Bits* at = (Bits*)(to + k);
        Bits v;
        memcpy(&v, from + k, sizeof v);
        if (alone) {
            *at = f(*at, v);
            continue;
        }
        Bits before = __atomic_load_n(at, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(at, &before, f(before, v), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
    }
}
template <class T, class Bits> void typed(Reduction op, u8* to, const u8* from, u64 n, bool alone) {
    one_by_one<Bits>(to, from, n, alone, [op](Bits a, Bits b) { return as<Bits>(plain<T>(op, as<T>(a), as<T>(b))); });
}

}  // namespace

void reduce_into(Reduction op, Element type, u8* to, const u8* from, u64 n, bool alone) {
    switch (type) {
    case U32: return typed<u32, u32>(op, to, from, n, alone);
    case S32: return typed<s32, u32>(op, to, from, n, alone);
    case U64: return typed<u64, u64>(op, to, from, n, alone);
    case S64: return typed<s64, u64>(op, to, from, n, alone);
    case F32: return typed<f32, u32>(op, to, from, n, alone);
    case F64: return typed<f64, u64>(op, to, from, n, alone);
    case F16:
    case BF16: return one_by_one<u16>(to, from, n, alone, [op, type](u16 a, u16 b) { return half(op, type, a, b); });
    default: fault("reduces elements of a type that has no such operation");
    }
}

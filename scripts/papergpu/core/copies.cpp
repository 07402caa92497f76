// Copies in bulk: cp.async.bulk and its reductions, st.async and st.bulk.
#include "async.hpp"

namespace {

typedef unsigned long long ull;

// ---- cp.async.bulk: a the shared memory that is written or read, b global memory (or, of shared to shared,
// the source), c the mbarrier, e the size; lists[0] the mask of a multicast, or of bytes.
enum { MULTICAST = 1, REDUCES = 2, BYTE_MASK = 4, OF_CLUSTER = 8 };  // and the operation << 8, the type << 16

void sized(int lane, u32 n) {
    if (n % 16) fault_lane(lane, "copies %u bytes in bulk, which are no multiple of 16", n);
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
        fault_lane(lane, "%s %#llx in bulk, which is no multiple of 16: align it", access == READ ? "reads" : "writes",
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
            if (checks) async_guard(w, lane, at, n, WRITE);
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
            if (!reduces) async_guard(w, lane, at, n, WRITE);
            else check_bytes(w, at, n, ATOMIC, SHARED);
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
        if (n % 8) fault_lane(lane, "writes %llu bytes in bulk, which are no multiple of 8", (ull)n);
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

// cp.async: copies of 4, 8 or 16 bytes for each lane, from global to shared memory.
#include "async.hpp"

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
        if (at % bytes) fault_lane(lane, "reads at %#llx, which is no multiple of %d: align it", (ull)at, bytes);
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

void land_lanes(Warp& w, Copy& c, u32 m) {
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
        if (due) land_lanes(w, c, due);
    }
    drop_landed(a);
}

}  // namespace

void land_until(Warp& w, u32 m, u64 number) {
    Async& a = *w.async;
    for (Copy& c : a.copies)
        if (c.number <= number && c.left & m) land_lanes(w, c, c.left & m);
    drop_landed(a);
}

namespace {

void commit(Warp& w, const Inst&) {
    for (u32 t = w.m; t; t &= t - 1) ++w.async->groups[lowest(t)];
}
void wait_group(Warp& w, const Inst& i) { land_groups(w, w.m, u32(i.imm)); }
void wait_all(Warp& w, const Inst&) { land_until(w, w.m, ~0ull); }
Add a1("cp.async", begin_copy), a2("cp.async.commit", commit), a3("cp.async.wait_group", wait_group),
    a4("cp.async.wait_all", wait_all);

}  // namespace

// Vector clocks over the warps of a gang, and over the lanes of one warp.
#include "shadow.hpp"

namespace {

void join(Clock& into, const Clock& from) {
    if (into.size() < from.size()) into.resize(from.size(), 0);
    u32* a = into.data();
    const u32* b = from.data();
    const size_t n = from.size();
    for (size_t k = 0; k < n; ++k) a[k] = std::max(a[k], b[k]);
}

// Times have 25 bits where reads keep them: beyond, what was done before is forgotten.
__attribute__((noinline)) void start_anew(Gang& g) {
    Checker& c = *g.checker;
    c.time = 1;
    for (auto& s : c.shadows) s->forget();
    for (Warp& v : g.warps) {
        std::fill(v.clock.begin(), v.clock.end(), 1);
        std::fill(v.synced, v.synced + 32, 1);
        v.touched = 0;
        v.floor = v.within = 1;
    }
    for (auto& o : c.own) {
        for (auto& e : o.reads) e.time = 0;
        for (auto& e : o.writes) e.time = 0;
    }
}

u32 next_time(Gang& g) {
    Checker& c = *g.checker;
    if (__builtin_expect(c.time >= (1u << 25) - 4, 0)) start_anew(g);
    return ++c.time;
}

void tick(Warp& w) { own_time(w) = next_time(*w.block->gang); }

u32 manner_of(const Warp& w, Access access) { return access == ATOMIC ? CHANGED : w.strong ? STRONG : WEAK; }

}  // namespace

// What others may still do is at their own time or later.
void clocks_new_floor(Warp& w) {
    const Block& b = *w.block;
    const Gang& g = *b.gang;
    const u32 per = u32(b.warps.size()), first = b.cluster * per, n = per * product(g.launch->cluster);
    const u32* clock = w.clock.data();
    u32 floor = ~0u;
    for (u32 k = first; k < first + n; ++k) {
        const Warp& v = g.warps[k];
        if (&v == &w) continue;
        floor = std::min(floor, v.touched <= clock[k] ? v.done ? ~0u : v.clock[k] : clock[k] + 1);
    }
    w.within = ~0u;
    for (int l = 0; l < 32; ++l) w.within = std::min(w.within, w.synced[l] | (0 - (~w.live >> l & 1)));
    w.floor = std::max(1u, std::min({floor, w.within, own_time(w)}));
}

void check_warp_sync(Warp& w, u32 mask) {
    if (w.touched >= own_time(w)) tick(w);
    const u32 t = own_time(w);
    if (mask == ~0u) {
        u32 old = 0;
        for (int l = 0; l < 32; ++l) {
            old |= w.synced[l] ^ t;
            w.synced[l] = t;
        }
        if (!old) return;
    } else
        for (u32 s = mask; s; s &= s - 1) w.synced[lowest(s)] = t;
    w.floor = 0;
}

void check_release(Warp& w, Clock& into) {
    orders_commit(w);
    const u32 t = own_time(w);
    // Its time goes on to that of the gang: those that meet at a barrier then publish about the same.
    if (w.touched >= t) {
        own_time(w) = checker(w).time;
        join(into, w.clock);
        tick(w);
    } else {
        own_time(w) = t - 1;
        join(into, w.clock);
        own_time(w) = t;
    }
}

void check_acquire(Warp& w, const Clock& from) {
    if (from.empty()) return;
    const u32 t = own_time(w);
    join(w.clock, from);
    own_time(w) = std::max(t, checker(w).time);
    w.floor = 0;
}

void check_meet(Block& b, u32 id) {
    Clock& clock = b.barriers[id].clock;
    const u32 now = next_time(*b.gang) - 1;
    for (const Warp* w : b.warps)
        for (const Group& o : w->others)
            if (o.state == AT_BARRIER && o.barrier == id && w->touched <= clock[w->index]) clock[w->index] = now;
}

void check_begin(Block& b) {
    Gang& g = *b.gang;
    Launch& l = *g.launch;
    Tracked& t = *(Tracked*)l.shadow;
    if (!g.checker) {
        g.checker = std::make_shared<Checker>();
        g.checker->shadows.resize(g.blocks.size());
        g.checker->fences.resize(g.blocks.size());
        g.checker->own.resize(g.warps.size());
        const u32 nwarps = u32(b.warps.size());
        for (auto& s : g.checker->shadows) s = std::make_unique<Shadow>(l, nwarps * product(l.cluster));
    }
    Checker& c = *g.checker;
    const size_t number = &b - g.blocks.data();
    if (!number) {
        if (c.time > 1u << 24) {
            c.time = 0;
            for (auto& s : c.shadows) s->forget();
        }
        c.time += 2;
        c.gang = ++t.gangs;
        c.ids_begin = c.ids < c.ids_end ? c.ids : t.epochs.load();
        c.shared.clear();
        c.imports.clear();
        for (auto& o : c.own) {
            for (auto& e : o.reads) e = {0, 0};
            for (auto& e : o.writes) e = {0, 0, 0};
            std::fill(o.fine, o.fine + 64, 0);
            o.pending.clear();
            o.pending_shared.clear();
            o.known.clear();
            o.record = nullptr;
        }
    }
    c.fences[number].any.clear();
    c.fences[number].wide.clear();
    Shadow& s = *c.shadows[number];
    b.shadow = &s;
    s.own = &b;
    s.begin(l);
    for (Warp* w : b.warps) {
        w->clock.assign(g.warps.size(), c.time - 1);
        own_time(*w) = c.time;
        std::fill(w->synced, w->synced + 32, c.time);
        w->touched = 0;
        w->floor = w->within = c.time;
        w->clash = 0;
        w->strong = w->compares = false;
    }
}

void check_access(Warp& w, const u64* at, u32 mask, int bytes, Access access, Space space) {
    const u32 manner = manner_of(w, access);
    if (space == SHARED) {
        const Gang& g = *w.block->gang;
        if (g.held || g.proxies) async_touch(w, at, mask, bytes, access);
        shared_access(w, w.pc, at, mask, bytes, access, manner);
    } else if (space == GLOBAL) global_access(w, w.pc, at, mask, u64(bytes), access, manner);
}

void check_offsets(Warp& w, u8* base, const u32* at, u32 mask, int bytes, Access access, Space space) {
    const u32 manner = manner_of(w, access);
    if (space == SHARED) {
        const Gang& g = *w.block->gang;
        if (g.held || g.proxies) {
            u64 A[32];
            for (int k = 0; k < 32; ++k) A[k] = u64(base) + at[k];
            async_touch(w, A, mask, bytes, access);
        }
        shared_offsets(w, *w.block, w.pc, at, mask, bytes, access, manner);
    } else global_offsets(w, w.pc, u64(base), at, mask, u32(bytes), access, manner);
}

void check_simple(Warp& w, u64 at, bool row, int bytes, Access access, Space space) {
    const u32 manner = manner_of(w, access);
    const Gang& g = *w.block->gang;
    if (space == SHARED && !g.held && !g.proxies)
        return shared_simple(w, w.pc, u32(at - u64(w.block->shared)), row, bytes, access, manner);
    if (space == GLOBAL && global_simple(w, w.pc, at, row, u32(bytes), access, manner)) return;
    const u64 base = space == SHARED ? u64(w.block->shared) : at;
    u32 offsets[32];
    for (int k = 0; k < 32; ++k) offsets[k] = u32(at - base) + (row ? u32(k * bytes) : 0);
    check_offsets(w, (u8*)base, offsets, w.m, bytes, access, space);
}

void note_clash(Warp& w, int lane, u64 at, u32 bytes, u64 what) {
    auto& all = checker(w).clashes[lane];
    if (!(w.clash >> lane & 1)) all.clear();
    w.clash |= 1u << lane;
    all.push_back({at, what, bytes});
}

void check_clash(Warp& w, int lane, u64 at, const void* value, Space space) {
    for (const Clash& one : checker(w).clashes[lane]) {
        if (!memcmp((const u8*)one.at, (const u8*)value + (one.at - at), one.bytes)) continue;
        if (space == SHARED) shared_clash(w, lane, one.at, s64(one.what));
        else global_clash(w, lane, one.at, u32(one.what));
    }
}

void check_bytes(Warp& w, const u8* at, u64 bytes, Access access, Space space) {
    if (!bytes) return;
    Gang& g = *w.block->gang;
    const u64 address = u64(at);
    if (space == SHARED) {
        const u64 k = (address - u64(g.shared)) / g.stride;
        shared_bytes(w, g.blocks[k], u32(address - u64(g.shared) - k * g.stride), bytes, access,
                     access == ATOMIC ? CHANGED : ASYNC);
    } else if (space == GLOBAL) global_access(w, ~0u, &address, 1, bytes, access, access == ATOMIC ? CHANGED : ASYNC);
}

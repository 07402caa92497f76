// Vector clocks over the warps of a gang, and over the lanes of one warp.
#include "checks.hpp"
#include <algorithm>

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
        o.effect = 0;
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

u32 manner_of(const Warp& w, Access access, Space space) {
    const u32 manner = access == ATOMIC ? CHANGED : w.strong ? STRONG : WEAK;
    return manner | (w.narrow && manner && space == GLOBAL ? u32(NARROWLY) : 0);
}

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

u32 check_moment(Warp& w) {
    const u32 t = own_time(w);
    tick(w);
    w.floor = 0;
    return t;
}
void check_known(Warp& w, const Warp& other, u32 time) {
    u32& known = w.clock[other.index];
    if (&w == &other || known >= time || time > checker(w).time) return;  // later than now: of times before these
    known = time;
    w.floor = 0;
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

static void publish(Warp& w, Clock& into) {
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

void check_release(Warp& w, Clock& into) {
    orders_commit(w, true);
    publish(w, into);
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
            o.effect = 0;
            o.doubt.reset();
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
        w->strong = w->narrow = w->compares = false;
    }
}

void check_effect(Warp& w) {
    auto& own = checker(w).own[w.index];
    own.effect = own_time(w);
    if (__builtin_expect(!own.doubt, 1)) return;
    const auto doubt = std::move(own.doubt);
    found(*doubt->by, doubt->pc, doubt->lane, "%s", doubt->what.c_str());
}

void check_access(Warp& w, const u64* at, u32 mask, int bytes, Access access, Space space) {
    if (access != READ) check_effect(w);
    const u32 manner = manner_of(w, access, space);
    if (space == SHARED) {
        const Gang& g = *w.block->gang;
        if (g.held || g.proxies) async_touch(w, at, mask, bytes, access);
        shared_access(w, w.pc, at, mask, bytes, access, manner);
    } else if (space == GLOBAL) global_access(w, w.pc, at, mask, u64(bytes), access, manner);
}

void check_offsets(Warp& w, u8* base, const u32* at, u32 mask, int bytes, Access access, Space space) {
    if (access != READ) check_effect(w);
    const u32 manner = manner_of(w, access, space);
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
    if (access != READ) check_effect(w);
    const u32 manner = manner_of(w, access, space);
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
    if (access != READ) check_effect(w);
    Gang& g = *w.block->gang;
    const u64 address = u64(at);
    if (space == SHARED) {
        const u64 k = (address - u64(g.shared)) / g.stride;
        shared_bytes(w, g.blocks[k], u32(address - u64(g.shared) - k * g.stride), bytes, access,
                     access == ATOMIC ? CHANGED : ASYNC);
    } else if (space == GLOBAL) global_access(w, ~0u, &address, 1, bytes, access, access == ATOMIC ? CHANGED : ASYNC);
}

// ---- What is published through memory and who has taken it: releases, acquires, fences, atomics.
//
// A release appends a record to the log of its address; whoever acquires the address has seen the log
// up to there. A relaxed atomic or a strong store releases what has been fenced before, and a relaxed
// atomic or a strong load acquires as soon as a fence follows; or a barrier, as in the programming guide's
// sum by the last block. What says .cta is for its block alone.

namespace {

// The addresses that lanes synchronise at: each its own, or its page where there are many.
u32 distinct(const u64* at, u32 mask, u64* found) {
    u32 n = 0;
    for (u32 t = mask; t; t &= t - 1) {
        const u64 a = at[lowest(t)];
        bool known = false;
        for (u32 k = 0; k < n && !known; ++k) known = found[k] == a;
        if (known) continue;
        if (n == 4) {
            n = 0;
            for (u32 s = mask; s; s &= s - 1) {
                const u64 p = (at[lowest(s)] & ~4095ull) | 1;
                bool had = false;
                for (u32 k = 0; k < n && !had; ++k) had = found[k] == p;
                if (!had) found[n++] = p;
            }
            return n;
        }
        found[n++] = a;
    }
    return n;
}

bool knows(const Warp& w, const Import& one) { return one.warp == w.index || one.time <= w.clock[one.warp]; }

void import(Warp& w, Sync* sync, u32 upto) {
    Checker& c = checker(w);
    size_t looked = 0;
    for (size_t k = c.imports.size(); k-- && looked++ < 16;) {
        Import& one = c.imports[k];
        if (one.warp == w.index && one.what.sync == sync && one.what.upto >= upto) return;
    }
    w.touched = own_time(w);
    c.imports.push_back({w.index, own_time(w), {sync, upto}});
}

// What w has seen that is also in `fenced`.
Clock both(const Warp& w, const Clock& fenced) {
    Clock out(w.clock);
    for (size_t k = 0; k < out.size(); ++k) out[k] = std::min(out[k], k < fenced.size() ? fenced[k] : 0);
    return out;
}

Sync& sync_at(Tracked& t, u64 at) {  // the lock is held
    Sync*& s = t.syncs[at];
    if (!s) s = &t.all.emplace_back();
    return *s;
}

u64 own_block(const Warp& w) {
    const Gang& g = *w.block->gang;
    return u64(g.checker->gang) << 32 | u64(w.block - g.blocks.data());
}

// What was released there: by its own block, and if `wide` by others; the lock is held.
void take(Warp& w, Sync& s, u32 upto, bool wide = true) {
    auto same = s.joined.find(checker(w).gang);
    if (same != s.joined.end() && (wide || w.block->gang->blocks.size() == 1)) check_acquire(w, same->second);
    auto own = s.own.find(own_block(w));
    if (own != s.own.end()) check_acquire(w, own->second);
    if (upto) import(w, &s, upto);
}

// All that w has done may be seen from here on: its own time moves on.
void move_on(Warp& w) {
    Clock none;
    publish(w, none);
}

bool covers(const Record& r, const Epoch& e) {
    return r.gang == e.gang && e.warp < r.clock.size() && r.clock[e.warp] >= e.time;
}

}  // namespace

void orders_commit(Warp& w, bool wide) {
    Checker& c = checker(w);
    auto& own = c.own[w.index];
    if (!own.pending_shared.empty()) {
        for (u64 a : own.pending_shared) {
            auto it = c.shared.find(a);
            if (it != c.shared.end()) check_acquire(w, it->second);
        }
        own.pending_shared.clear();
    }
    if (own.pending.empty()) return;
    std::lock_guard<std::mutex> held(tracked(w).lock);
    for (const Seen& one : own.pending) take(w, *one.sync, wide ? one.upto : 0, wide);
    if (wide) own.pending.clear();
}

void check_fence(Warp& w, u32 scope) {
    if (!scope) return;
    orders_commit(w, scope > 1);
    Checker& c = checker(w);
    auto& f = c.fences[w.block - w.block->gang->blocks.data()];
    join(f.any, w.clock);
    if (scope > 1) join(f.wide, w.clock);
    move_on(w);
}

void check_publish(Warp& w, const u64* at, u32 mask, u32 order, Space space) {
    Checker& c = checker(w);
    Gang& g = *w.block->gang;
    auto& f = c.fences[w.block - g.blocks.data()];
    const bool releases = order & 2, narrow = order & 8;
    if (!releases && f.any.empty()) return;
    u64 found[32];
    const u32 n = distinct(at, mask, found);
    if (space == SHARED) {
        const Clock clock = releases ? w.clock : both(w, f.any);
        for (u32 t = mask; t; t &= t - 1) join(c.shared[at[lowest(t)]], clock);
    } else if (space == GLOBAL && narrow) {
        Tracked& t = tracked(w);
        const Clock clock = releases ? w.clock : both(w, f.any);
        std::lock_guard<std::mutex> held(t.lock);
        for (u32 k = 0; k < n; ++k) join(sync_at(t, found[k]).own[own_block(w)], clock);
        t.any.store(true, std::memory_order_release);
    } else if (space == GLOBAL) {
        Tracked& t = tracked(w);
        const Clock near = releases ? w.clock : both(w, g.blocks.size() > 1 ? f.wide : f.any);
        const Clock far = releases ? w.clock : both(w, f.wide);
        auto& own = c.own[w.index];
        std::vector<Seen> seen;
        for (const Import& one : c.imports)
            if (knows(w, one)) {
                bool had = false;
                for (Seen& k : seen)
                    if (k.sync == one.what.sync) {
                        k.upto = std::max(k.upto, one.what.upto);
                        had = true;
                        break;
                    }
                if (!had) seen.push_back(one.what);
            }
        std::lock_guard<std::mutex> held(t.lock);
        const Record* record = own.record;
        const bool again = record && record->clock == far && record->seen.size() == seen.size() &&
                           std::equal(seen.begin(), seen.end(), record->seen.begin(), [](const Seen& a, const Seen& b) {
                               return a.sync == b.sync && a.upto == b.upto;
                           });
        if (!again) {
            t.records.push_back({c.gang, w.index, far, std::move(seen)});
            own.record = record = &t.records.back();
        }
        for (u32 k = 0; k < n; ++k) {
            Sync& s = sync_at(t, found[k]);
            join(s.joined[c.gang], near);
            if (g.blocks.size() > 1) join(s.own[own_block(w)], near);
            if (!s.log.empty() && s.log.back() == record) continue;
            s.of[c.gang].push_back(u32(s.log.size()));
            s.log.push_back(record);
        }
        t.any.store(true, std::memory_order_release);
    }
    if (!releases) return;
    orders_commit(w, true);
    move_on(w);
}

void check_obtain(Warp& w, const u64* at, u32 mask, u32 order, Space space) {
    Checker& c = checker(w);
    auto& own = c.own[w.index];
    if (space == SHARED) {
        if (c.shared.empty()) return;
        for (u32 t = mask; t; t &= t - 1) {
            const u64 a = at[lowest(t)];
            auto it = c.shared.find(a);
            if (it == c.shared.end()) continue;
            if (order & 1) check_acquire(w, it->second);
            else if (std::find(own.pending_shared.begin(), own.pending_shared.end(), a) == own.pending_shared.end())
                own.pending_shared.push_back(a);
        }
        return;
    }
    Tracked& t = tracked(w);
    if (space != GLOBAL || !t.any.load(std::memory_order_acquire)) return;
    std::lock_guard<std::mutex> held(t.lock);
    u64 before = 0;
    for (u32 s = mask; s; s &= s - 1)
        for (int wide = 0; wide < 2; ++wide) {
            const u64 key = wide ? (at[lowest(s)] & ~4095ull) | 1 : at[lowest(s)];
            if (key == before) continue;
            before = key;
            auto it = t.syncs.find(key);
            if (it == t.syncs.end()) continue;
            const u32 upto = order & 8 ? 0 : u32(it->second->log.size());
            if (order & 1) {
                take(w, *it->second, upto);
                continue;
            }
            bool had = false;
            for (Seen& one : own.pending)
                if (one.sync == it->second) {
                    one.upto = std::max(one.upto, upto);
                    had = true;
                }
            if (!had) own.pending.push_back({it->second, upto});
        }
}

// Whether w comes after what `e` did: by the clocks of its gang, or by what it has acquired from others.
bool orders_seen(Warp& w, const Epoch& e) {
    Checker& c = checker(w);
    if (e.gang == c.gang) return e.warp == w.index || e.time <= w.clock[e.warp];
    auto& known = c.own[w.index].known[u64(e.gang) << 32 | e.warp];
    if (known >= e.time) return true;
    std::lock_guard<std::mutex> held(tracked(w).lock);
    std::unordered_map<Sync*, u32> visited;
    std::deque<Seen> next;
    const auto visit = [&](const Seen& one) {
        u32& upto = visited[one.sync];
        if (upto < one.upto) {
            upto = one.upto;
            next.push_back(one);
        }
    };
    for (size_t k = c.imports.size(); k--;)
        if (knows(w, c.imports[k])) visit(c.imports[k].what);
    while (!next.empty()) {
        const Seen one = next.front();
        next.pop_front();
        auto places = one.sync->of.find(e.gang);
        if (places != one.sync->of.end())
            for (u32 place : places->second)
                if (place < one.upto && covers(*one.sync->log[place], e)) {
                    known = std::max(known, one.sync->log[place]->clock[e.warp]);
                    return true;
                }
        for (u32 k = 0; k < one.upto; ++k)
            for (const Seen& further : one.sync->log[k]->seen) visit(further);
    }
    return false;
}

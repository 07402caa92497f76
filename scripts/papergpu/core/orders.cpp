// What is published through memory and who has taken it: releases, acquires, fences, atomics.
//
// A release appends a record to the log of its address; whoever acquires the address has seen the log
// up to there. A relaxed atomic or a strong store releases what has been fenced before, and a relaxed
// atomic or a strong load acquires as soon as a fence or a barrier follows.
#include "checks.hpp"
#include <algorithm>

namespace {

void join(Clock& into, const Clock& from) {
    if (into.size() < from.size()) into.resize(from.size(), 0);
    for (size_t k = 0; k < from.size(); ++k) into[k] = std::max(into[k], from[k]);
}

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

void take(Warp& w, Sync& s, u32 upto) {  // the lock is held
    auto same = s.joined.find(checker(w).gang);
    if (same != s.joined.end()) check_acquire(w, same->second);
    import(w, &s, upto);
}

// All that w has done may be seen from here on: its own time moves on.
void move_on(Warp& w) {
    Clock none;
    check_release(w, none);
}

bool covers(const Record& r, const Epoch& e) {
    return r.gang == e.gang && e.warp < r.clock.size() && r.clock[e.warp] >= e.time;
}

}  // namespace

void orders_commit(Warp& w) {
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
    for (const Seen& one : own.pending) take(w, *one.sync, one.upto);
    own.pending.clear();
}

void check_fence(Warp& w, u32 scope) {
    if (!scope) return;
    orders_commit(w);
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
    const bool releases = order & 2;
    if (!releases && f.any.empty()) return;
    u64 found[32];
    const u32 n = distinct(at, mask, found);
    if (space == SHARED) {
        const Clock clock = releases ? w.clock : both(w, f.any);
        for (u32 t = mask; t; t &= t - 1) join(c.shared[at[lowest(t)]], clock);
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
            Sync*& s = t.syncs[found[k]];
            if (!s) {
                t.all.emplace_back();
                s = &t.all.back();
            }
            join(s->joined[c.gang], near);
            if (!s->log.empty() && s->log.back() == record) continue;
            s->of[c.gang].push_back(u32(s->log.size()));
            s->log.push_back(record);
        }
        t.any.store(true, std::memory_order_release);
    }
    if (releases) move_on(w);
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
            const u32 upto = u32(it->second->log.size());
            if (order & 1) {
                take(w, *it->second, upto);
                continue;
            }
            bool had = false;
            for (Seen& one : own.pending)
                if (one.sync == it->second) {
                    one.upto = upto;
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

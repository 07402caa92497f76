// What is in flight: begun, landed as late as a program allows, and guarded meanwhile.
#include "async.hpp"
#include <algorithm>
#include <set>

namespace {

// Handlers that read shared memory by the async proxy.
bool by_proxy(Handler run) {
    static const std::set<Handler> all = [] {
        std::set<Handler> found;
        for (auto& [name, handler] : handlers())
            for (const char* start : {"bulk.", "wgmma", "tcgen05"})
                if (name.rfind(start, 0) == 0) found.insert(handler);
        return found;
    }();
    return all.count(run) > 0;
}

bool uses_proxy(const Launch& l) {
    for (u32 k = 0; k < l.ncode; ++k)
        if (l.code[k].run && by_proxy(l.code[k].run)) return true;
    return false;
}

const char* doing(Access access) { return access == READ ? "reads" : access == WRITE ? "writes" : "changes"; }

void prepare(Gang& g) {
    const Launch& l = *g.launch;
    g.flights = std::make_shared<Flights>();
    g.flights->blocks.resize(g.blocks.size());
    g.flights->warps.resize(g.warps.size());
    g.proxies = l.checks && uses_proxy(l);
    if (l.checks)
        for (AsyncBlock& b : g.flights->blocks) {
            b.pc.resize(l.shared / 4 + 8);
            b.writing.resize(l.shared / 4 + 8);
            b.reading.resize(l.shared / 4 + 8);
            b.written.resize(l.shared / 16 + 4);
            b.touched.resize(l.shared / 16 + 4);
        }
}

}  // namespace

void async_begin(Block& b) {
    Gang& g = *b.gang;
    if (!g.flights) prepare(g);
    Flights& f = *g.flights;
    b.async = &f.blocks[&b - g.blocks.data()];
    b.async->mbarriers.clear();
    b.async->invalid.clear();
    if (&b == g.blocks.data()) {
        f.all.clear();
        f.changed.clear();
        f.epoch = f.rounds = 0;
        g.held = 0;
    }
    for (Warp* w : b.warps) {
        w->async = &f.warps[w->index];
        w->async->copies.clear();
        memset(w->async->groups, 0, sizeof w->async->groups);
        memset(w->async->bulk, 0, sizeof w->async->bulk);
        memset(w->async->parked, 0, sizeof w->async->parked);
        memset(w->async->epoch, 0, sizeof w->async->epoch);
    }
    if (g.launch->checks) {
        std::fill(b.async->writing.begin(), b.async->writing.end(), 0);
        std::fill(b.async->reading.begin(), b.async->reading.end(), 0);
        std::fill(b.async->written.begin(), b.async->written.end(), 0);
        std::fill(b.async->touched.begin(), b.async->touched.end(), 0);
        b.async->fences = UNTOUCHED + 1;
    }
}

void async_warp_end(Warp& w) {
    if (!w.async->copies.empty()) land_until(w, ~0u, ~0ull);
}

void async_end(Block& b) {
    Gang& g = *b.gang;
    Flights& f = *g.flights;
    for (size_t k = 0; k < f.all.size();) {
        Flight& one = *f.all[k];
        if (one.into == &b) {
            if (g.launch->checks)
                fault("the block ends, and the copy at @%u into its shared memory has not landed: wait for it first",
                      one.pc);
        } else if (!one.warp || one.warp->block != &b || one.into) {
            ++k;
            continue;
        }
        land_flight(g, k);
    }
}

u64 async_begin_flight(Gang& g, std::function<void()> land) {
    Flights& f = *g.flights;
    f.all.push_back(std::make_unique<Flight>());
    f.all.back()->number = ++g.order;
    f.all.back()->land = std::move(land);
    f.rounds = 0;
    return g.order;
}

Flight& begin_flight(Warp& w, int lane) {
    Gang& g = *w.block->gang;
    Flights& f = *g.flights;
    f.all.push_back(std::make_unique<Flight>());
    Flight& one = *f.all.back();
    one.number = ++g.order;
    one.warp = &w;
    one.lane = lane;
    one.pc = w.pc;
    f.rounds = 0;
    return one;
}

void land_flight(Gang& g, size_t k) {
    Flights& f = *g.flights;
    std::unique_ptr<Flight> one = std::move(f.all[k]);
    f.all.erase(f.all.begin() + k);
    f.rounds = 0;
    try {
        if (one->fetch && !one->fetched) one->fetch();
        one->land();
    } catch (const Fault& e) {
        if (!one->warp) throw;
        throw Fault("when the copy at @" + std::to_string(one->pc) + " lands, it " + e.what());
    }
}

void async_land_now(Gang& g, u64 number) {
    Flights& f = *g.flights;
    for (size_t k = 0; k < f.all.size(); ++k)
        if (f.all[k]->number == number) return land_flight(g, k);
}

bool async_land(Gang& g) {
    Flights& f = *g.flights;
    if (!f.all.empty()) {
        land_flight(g, random_number(g) % f.all.size());
        return true;
    }
    // Those that wait with a time limit go on with nothing done: they may have something else to do.
    bool any = false;
    for (AsyncBlock& b : f.blocks) any |= !b.mbarriers.empty();
    if (!any || f.rounds >= 256) return false;
    ++f.rounds;
    ++f.epoch;
    return true;
}

void land_bulk(Warp& w, u32 m, u32 n, bool only_read) {
    Gang& g = *w.block->gang;
    Flights& f = *g.flights;
    for (size_t k = 0; k < f.all.size();) {
        Flight& one = *f.all[k];
        if (one.warp != &w || one.group == ~0u || !(m >> one.lane & 1) || one.group + n >= w.async->bulk[one.lane]) {
            ++k;
            continue;
        }
        if (!only_read) {
            land_flight(g, k);
            continue;
        }
        if (!one.fetched) {
            one.fetch();
            one.fetched = true;
        }
        ++k;
    }
}

// ---- who must not touch what

void async_hold(Gang& g, const u8* at, u64 bytes, u32 pc, Access access) {
    AsyncBlock& a = *block_at(g, at).async;
    const u32 first = offset_at(g, at) / 4, n = u32(bytes + 3) / 4;
    std::vector<u16>& counts = access == READ ? a.reading : a.writing;
    for (u32 k = first; k < first + n; ++k) {
        a.pc[k] = pc;
        ++counts[k];
    }
    g.held += n;
}

void async_let_go(Gang& g, const u8* at, u64 bytes, Access access) {
    AsyncBlock& a = *block_at(g, at).async;
    const u32 first = offset_at(g, at) / 4, n = u32(bytes + 3) / 4;
    std::vector<u16>& counts = access == READ ? a.reading : a.writing;
    for (u32 k = first; k < first + n; ++k) --counts[k];
    g.held -= n;
}

void async_touch(Warp& w, const u64* A, u32 mask, int bytes, Access access) {
    Gang& g = *w.block->gang;
    AsyncBlock* a = w.block->async;
    const u64 base = u64(w.block->shared), size = launch_of(w).shared;
    for (u32 t = mask; t; t &= t - 1) {
        const int lane = lowest(t);
        AsyncBlock* here = a;
        u64 at = A[lane] - base;
        if (at >= size) {
            const u8* p = (const u8*)A[lane];
            if (p < g.shared || p >= g.shared + g.blocks.size() * g.stride) continue;
            here = block_at(g, p).async;
            at = offset_at(g, p);
        }
        if (g.held)
            for (u64 k = at / 4; k <= (at + bytes - 1) / 4; ++k) {
                if (here->writing[k])
                    fault_lane(
                        lane, "%s byte %llu of shared memory, which the copy at @%u has not yet delivered: wait for it",
                        doing(access), (unsigned long long)at, here->pc[k]);
                if (access != READ && here->reading[k])
                    fault_lane(
                        lane,
                        "%s byte %llu of shared memory, which what was begun at @%u may still read: wait for it first",
                        doing(access), (unsigned long long)at, here->pc[k]);
            }
        if (g.proxies)
            for (u64 k = at / 16; k <= (at + bytes - 1) / 16; ++k) {
                if (here->touched[k]) here->touched[k] = here->fences;
                if (access != READ) here->written[k] = here->fences;
            }
    }
}

void async_guard(Warp& w, int lane, const u8* at, u64 bytes, Access access) {
    Gang& g = *w.block->gang;
    AsyncBlock& a = *block_at(g, at).async;
    const u32 first = offset_at(g, at) / 4, n = u32(bytes + 3) / 4;
    if (g.held) {
        u32 busy = 0;
        for (u32 k = first; k < first + n; ++k) busy |= a.writing[k] | (access == READ ? 0 : a.reading[k]);
        if (busy)
            for (u32 k = 0; k < n; ++k) {
                u64 A[32];
                A[lane] = u64(at) + 4 * k;
                async_touch(w, A, 1u << lane, 4, access);
            }
    }
    check_bytes(w, at, bytes, access, SHARED);
    async_hold(g, at, bytes, w.pc, access);
}

void async_wrote(Gang& g, const u8* at, u64 bytes) {
    if (!g.proxies) return;
    AsyncBlock& a = *block_at(g, at).async;
    const u32 first = offset_at(g, at);
    for (u64 k = first / 16; k <= (first + bytes - 1) / 16; ++k) {
        a.written[k] = 0;
        a.touched[k] = UNTOUCHED;
    }
}

void async_proxy_read(Warp& w, const u8* at, u64 bytes, const char* what) {
    Gang& g = *w.block->gang;
    if (!g.proxies || !bytes) return;
    AsyncBlock& a = *block_at(g, at).async;
    const u32 first = offset_at(g, at);
    for (u64 k = first / 16; k <= (first + bytes - 1) / 16; ++k)
        if (a.written[k] == a.fences)
            fault("%s byte %llu of shared memory, which ordinary stores wrote with no fence since: add "
                  "fence.proxy.async before it",
                  what, (unsigned long long)std::max<u64>(first, 16 * k));
}

void async_proxy_write(Warp& w, const u8* at, u64 bytes) {
    Gang& g = *w.block->gang;
    if (!bytes) return;
    AsyncBlock& a = *block_at(g, at).async;
    const u32 first = offset_at(g, at);
    for (u64 k = first / 16; k <= (first + bytes - 1) / 16; ++k)
        if (a.touched[k] == a.fences)
            fault("overwrites byte %llu of shared memory, where ordinary loads or stores used what a copy had brought, "
                  "with no fence since: add fence.proxy.async behind those",
                  (unsigned long long)std::max<u64>(first, 16 * k));
}

u8* shared_bytes(Warp& w, int lane, u32 address, u64 bytes, u32 by, const char* what) {
    const Launch& l = launch_of(w);
    const u32 rank = address >> 24, at = address & 0xffffff;
    if (at % by) fault_lane(lane, "%s byte %u of shared memory, not a multiple of %u: align it", what, at, by);
    if (rank >= product(l.cluster))
        fault_lane(lane, "%s shared memory of block %u of a cluster of %u", what, rank,
                   product(l.cluster));
    if (at + bytes > l.shared)
        fault_lane(
            lane,
            "%s %llu bytes at byte %u of shared memory, which has %u: ask for more at the launch, or mend the offset",
            what, (unsigned long long)bytes, at, l.shared);
    return cluster_block(w, rank).shared + at;
}

void profiled(Warp& w, u64 bytes) {
    if (launch_of(w).profile) w.block->gang->counts[w.pc].bytes += bytes;
}

namespace {

// fence.proxy.async. Whoever makes it, it counts for the whole cluster: never a false alarm.
HANDLER(
    "fence.proxy", (void)i; if (launch_of(w).checks) {
        const u32* c = launch_of(w).cluster;
        for (u32 k = 0; k < product(c); ++k) ++cluster_block(w, k).async->fences;
    })

}  // namespace

// Global memory: accesses of two warps with nothing that orders them, also of blocks that ran one
// after the other. A cell for each granule holds the number of an epoch: what one warp did at one
// time with one instruction.
#include "checks.hpp"
#include <algorithm>

// ---- Cells of global memory, by pages: one word says of 32 bytes which epoch touched them all, and only where
// several did each granule has a cell of its own.

enum Which { WRITES, READS, OTHERS };

// Its words are plain ones that several threads change: a lost one costs a finding, and never makes a wrong
// one, as whatever they hold did touch that place.
struct Page {
    static constexpr u64 BYTES = 4096;
    static constexpr u32 SPAN = 5, SPANS = BYTES >> SPAN;  // log2 of the bytes of a span; spans in a page
    static constexpr u32 APART = ~0u;
    u32 whole[SPANS];  // the epoch of all cells of a span, 0 if it has none; or APART, and each cell says
    u32 cells[1];

    // The cells of a span, which speak for themselves from now on. It has 1 << log of them.
    u32* apart(u32 span, u32 log) {
        u32* c = cells + (span << log);
        const u32 e = whole[span];
        if (e != APART) {
            std::fill_n(c, 1u << log, e);
            __atomic_store_n(&whole[span], APART, __ATOMIC_RELEASE);
        }
        return c;
    }
    // Whether one of n cells from `a` on may hold another epoch than `id` or none.
    bool differ(u32 a, u32 n, u32 log, u32 id) const {
        u32 odd = 0;
        for (u32 k = a >> log, last = (a + n - 1) >> log; k <= last; ++k)
            odd |= u32(whole[k] != 0) & u32(whole[k] != id);
        return odd;
    }
    void mark(u32 a, u32 n, u32 log, u32 id) {
        const u32 per = 1u << log;
        for (u32 here; n; a += here, n -= here) {
            const u32 span = a >> log, at = a & (per - 1);
            here = std::min(n, per - at);
            if (here == per) whole[span] = id;
            else if (whole[span] != id) std::fill_n(apart(span, log) + at, here, id);
        }
    }
    // f(k, m, epoch) of each m cells from the k-th of these on that are of one epoch.
    template <class F> void visit(u32 a, u32 n, u32 log, F f) const {
        const u32 per = 1u << log;
        for (u32 k = 0, here; k < n; k += here) {
            const u32 span = (a + k) >> log, at = (a + k) & (per - 1);
            here = std::min(n - k, per - at);
            const u32 e = __atomic_load_n(&whole[span], __ATOMIC_ACQUIRE);
            if (e != APART) f(k, here, e);
            else
                for (u32 j = 0; j < here; ++j) f(k + j, 1u, cells[(span << log) + at + j]);
        }
    }
};

// The page of that number in a region, or null if there is none yet; and made if there is none.
static inline Page* page_of(const Region& r, Which which, u64 number) {
    return r.pages[which * r.count + number].load(std::memory_order_acquire);
}
Page& page(Region& r, Which which, u64 number, u32 shift);
// The region that holds an address, or null.
Region* region(Checker& c, Tracked& t, u64 at);
void more_epochs(std::atomic<Epoch*>& piece);  // unless it has some

// ---- What the checks keep of the global memory of a launch: its regions, and their pages, made as they are touched.

namespace {

std::mutex spare_lock;
std::vector<Page*> spares[3];  // of 1, 2 and 4 bytes a cell, for the next launch
std::vector<Epoch*>
    spare_epochs;  // of EPOCHS each: to have them zeroed by the kernel anew costs more than to fill them

Page* fresh_page(u32 shift) {
    Page* p = nullptr;
    {
        std::lock_guard<std::mutex> held(spare_lock);
        auto& some = spares[shift];
        if (!some.empty()) {
            p = some.back();
            some.pop_back();
        }
    }
    if (!p) p = (Page*)aligned_alloc(64, sizeof(Page::whole) + (Page::BYTES >> shift) * sizeof(u32));
    if (!p) fault("no memory for the checks of global memory: launch without them");
    memset(p->whole, 0, sizeof p->whole);
    return p;
}

void keep_page(Page* p, u32 shift) {
    auto& some = spares[shift];
    if (some.size() < 16384) some.push_back(p);
    else free(p);
}

}  // namespace

Page& page(Region& r, Which which, u64 number, u32 shift) {
    auto& slot = r.pages[which * r.count + number];
    Page* p = slot.load(std::memory_order_acquire);
    if (p) return *p;
    Page* made = fresh_page(shift);
    if (slot.compare_exchange_strong(p, made)) return *made;
    std::lock_guard<std::mutex> held(spare_lock);
    keep_page(made, shift);
    return *p;
}

void more_epochs(std::atomic<Epoch*>& piece) {
    Epoch* made = nullptr;
    {
        std::lock_guard<std::mutex> held(spare_lock);
        if (piece.load()) return;
        if (!spare_epochs.empty()) {
            made = spare_epochs.back();
            spare_epochs.pop_back();
        }
    }
    if (!made) made = new Epoch[EPOCHS];
    Epoch* none = nullptr;
    if (!piece.compare_exchange_strong(none, made)) delete[] made;
}

Region* region(Checker& c, Tracked& t, u64 at) {
    if (c.region && at >= c.region->lo && at < c.region->hi) return c.region;
    auto next =
        std::upper_bound(t.regions.begin(), t.regions.end(), at, [](u64 x, const Region& r) { return x < r.lo; });
    if (next == t.regions.begin() || at >= (--next)->hi) return nullptr;
    return c.region = &*next;
}

void check_new_launch(Launch& l) {
    Tracked* t = new Tracked;
    l.shadow = t;
    while ((1u << t->shift) > std::max(1u, l.global_granule)) --t->shift;
    for (u32 k = 0; k < l.nallocs; ++k) {
        const Alloc& a = l.allocs[k];
        if (a.flags & READ_ONLY) continue;
        Region r{a.lo, a.hi, a.lo & ~u64((1 << Page::SPAN) - 1), a.name, nullptr, 0};
        r.count = (a.hi - r.start + Page::BYTES - 1) / Page::BYTES;
        r.pages.reset(new std::atomic<Page*>[3 * r.count]());
        t->regions.push_back(std::move(r));
    }
}

void check_end_launch(Launch& l) {
    delete (Tracked*)l.shadow;
    l.shadow = nullptr;
}

Tracked::~Tracked() {
    std::lock_guard<std::mutex> held(spare_lock);
    for (Region& r : regions)
        for (u64 k = 0; k < 3 * r.count; ++k)
            if (Page* p = r.pages[k].load()) keep_page(p, shift);
    for (u32 k = 0; k < EPOCH_PIECES && table[k].load(); ++k)
        if (spare_epochs.size() < 2) spare_epochs.push_back(table[k]);
        else delete[] table[k].load();
}

// ---- accesses of two warps with nothing that orders them

namespace {

u32 new_epoch(Warp& w, u32 pc, u32 manner) {
    Checker& c = checker(w);
    Tracked& t = tracked(w);
    if (c.ids == c.ids_end) {
        const u32 n = t.epochs.fetch_add(64);
        if (n / EPOCHS + 1 >= EPOCH_PIECES) fault("the checks cannot follow so many accesses: launch without them");
        auto& piece = t.table[n / EPOCHS];
        if (!piece.load(std::memory_order_acquire)) more_epochs(piece);
        c.ids = n;
        c.ids_end = n + 64;
    }
    const u32 id = c.ids++;
    t.table[id / EPOCHS].load(std::memory_order_relaxed)[id % EPOCHS] = {c.gang,  own_time(w), w.block->linear,
                                                                         w.index, pc,          manner};
    return id;
}

// Everything about an access that is the same for all its lanes.
struct Touch {
    Warp& w;
    Checker& c;
    Tracked& t;
    u32 pc;
    Access access;
    u32 manner, narrowly, id;
    Checker::Own& own;

    Touch(Warp& w, u32 pc, Access access, u32 how)
        : w(w), c(checker(w)), t(tracked(w)), pc(pc), access(access), manner(how & 7), narrowly(how & NARROWLY),
          own(c.own[w.index]) {
        const u32 time = own_time(w);
        if (access == READ) {
            auto& slot = own.reads[manner == SCALAR];
            if (!slot.id || slot.time != time) slot = {new_epoch(w, pc, manner), time};
            id = slot.id;
        } else {
            auto& slot = own.writes[pc % 8];
            if (!slot.id || slot.time != time || slot.pc != pc) { slot = {new_epoch(w, pc, how), time, pc}; }
            id = slot.id;
        }
    }

    const char* verb() const { return access == READ ? "reads" : access == WRITE ? "writes" : "changes"; }

    // A race with what an epoch did, at a place of a region.
    void race(const Region& r, u64 at, int lane, u32 other, bool wrote) const {
        if (launch_of(w).error[0]) return;
        const Epoch& e = epoch(t, other);
        const Launch& l = launch_of(w);
        const u32 x = e.block % l.grid[0], y = e.block / l.grid[0] % l.grid[1], z = e.block / (l.grid[0] * l.grid[1]);
        const bool same = e.block == w.block->linear;
        char who[80], where[40] = "", what[300];
        const u32 warp = e.warp % u32(w.block->warps.size());
        if (same) snprintf(who, sizeof who, "warp %u of this block", warp);
        else snprintf(who, sizeof who, "block (%u, %u, %u)", x, y, z);
        if (wrote && e.pc != ~0u) snprintf(where, sizeof where, " at @%u", e.pc);
        const char* mend = "use atomics, or a release and an acquire between them, or two launches";
        if (same) mend = "put a barrier between them";
        else if (strong(manner) && strong(e.manner & 7))
            mend = "one says .cta, so it is atomic for its block alone: say .gpu";
        snprintf(what, sizeof what, "%s byte %llu of $%u, which %s %s%s, and nothing orders the two: %s", verb(),
                 (unsigned long long)(at - r.lo), r.name, who, wrote ? "wrote" : "has read", where, mend);
        auto& reader = same && !wrote ? c.own[e.warp] : own;
        // If the read came first, something may have come of it already.
        if (!same || (wrote ? access != READ : reader.effect >= e.time)) found(w, w.pc, lane, "%s", what);
        else if (!reader.doubt) reader.doubt.reset(new Doubt{what, &w, w.pc, lane});
    }

    // Whether what an epoch did comes before this access.
    bool seen(u32 other) const {
        u32& fine = own.fine[other % 64];
        if (fine == other) return true;
        if (!orders_seen(w, epoch(t, other))) return false;
        fine = other;
        return true;
    }
    static bool strong(u32 manner) { return manner == STRONG || manner == CHANGED; }
    bool harmless(u32 other) const {
        const Epoch& e = epoch(t, other);
        const u32 how = e.manner & 7;
        if (e.block != w.block->linear) return strong(manner) && strong(how) && !narrowly && !(e.manner & NARROWLY);
        return (strong(manner) && strong(how)) || (manner == SCALAR && how == CHANGED) ||
               (manner == CHANGED && how == SCALAR);
    }
    bool mine(u32 other) const {
        if (other < c.ids_begin) return false;  // and its epoch, which is far, need not be looked at
        const Epoch& e = epoch(t, other);
        return e.gang == c.gang && e.warp == w.index;
    }

    // `bytes` from `at` on, each lane's behind the one's before it.
    void range(Region& r, u64 at, u64 bytes, int lane, u64 each) const {
        for (;;) {
            const u64 from = at - r.start, first = from % Page::BYTES, here = std::min(bytes, Page::BYTES - first);
            const u32 a = u32(first >> t.shift), n = u32(((first + here - 1) >> t.shift) - a + 1);
            piece(r, at, from / Page::BYTES, a, n, lane, each);
            if (here == bytes) return;
            at += here;
            bytes -= here;
            lane = std::min(31, lane + int(here / each));
        }
    }

    // Whether this very epoch did the same before at all these bytes, which one span holds. Then all that matters
    // has been said, by it or by whoever came there since.
    bool again(const Region& r, u64 at, u64 bytes) const {
        const u64 from = at - r.start, first = from % Page::BYTES;
        const Page* p = page_of(r, access == READ ? READS : WRITES, from / Page::BYTES);
        if (!p || (first & 31) + bytes > 1u << Page::SPAN) return false;
        const u32 e = p->whole[first >> Page::SPAN];
        if (e != Page::APART) return e == id;
        u32 off = 0;
        for (u64 k = first >> t.shift, last = (first + bytes - 1) >> t.shift; k <= last; ++k) off |= p->cells[k] ^ id;
        return !off;
    }

private:
    void piece(Region& r, u64 at, u64 number, u32 a, u32 n, int lane, u64 each) const {
        const u32 shift = t.shift, log = Page::SPAN - shift;
        const auto place = [&](u32 k) { return at + (u64(k) << shift); };
        const auto who = [&](u32 k) { return std::min(31, lane + int((u64(k) << shift) / each)); };
        Page* writes = page_of(r, WRITES, number);
        if (writes && writes->differ(a, n, log, id)) {
            u32 fine = 0;
            writes->visit(a, n, log, [&](u32 k, u32 m, u32 e) {
                if (!e || e == id || e == fine) return;
                if (seen(e) || harmless(e)) {
                    fine = e;
                    return;
                }
                if (access != WRITE || !w.compares) return race(r, place(k), who(k), e, true);
                for (; m--; ++k) note_clash(w, who(k), place(k), 1u << shift, e);
            });
        }
        if (access == READ) {
            if (manner != STRONG) note_read(r, number, a, n, log);
            return;
        }
        for (Which which : {READS, OTHERS})
            if (const Page* reads = page_of(r, which, number)) {
                u32 fine = 0;
                reads->visit(a, n, log, [&](u32 k, u32, u32 e) {
                    if (!e || e == fine) return;
                    if (!seen(e) && !harmless(e)) race(r, place(k), who(k), e, false);
                    fine = e;
                });
            }
        (writes ? *writes : page(r, WRITES, number, shift)).mark(a, n, log, id);
    }

    // A cell of READS stays with the warp that read it first; what others read goes to OTHERS.
    void note_read(Region& r, u64 number, u32 a, u32 n, u32 log) const {
        Page& reads = page(r, READS, number, t.shift);
        const u32 per = 1u << log;
        if (!((a | n) & (per - 1))) {  // spans as a whole
            u32* x = reads.whole + (a >> log);
            const u32 spans = n >> log, e = x[0];
            u32 odd = 0, unlike = 0;
            for (u32 k = 0; k < spans; ++k) {
                odd |= u32(x[k] != 0) & u32(x[k] != id);
                unlike |= x[k] ^ e;
            }
            if (!odd) {
                for (u32 k = 0; k < spans; ++k) x[k] = id;
                return;
            }
            if (!unlike && e != Page::APART && !mine(e)) {  // all by one other warp
                u32* others = page(r, OTHERS, number, t.shift).whole + (a >> log);
                for (u32 k = 0; k < spans; ++k) others[k] = id;
                return;
            }
        }
        u32 decided = 0;
        bool over = true;
        const auto takes = [&](u32 e) {
            if (e && e != decided) {
                decided = e;
                over = mine(e);
            }
            return !e || over;
        };
        for (u32 here; n; a += here, n -= here) {
            const u32 span = a >> log, at = a & (per - 1), e = __atomic_load_n(&reads.whole[span], __ATOMIC_ACQUIRE);
            here = std::min(n, per - at);
            if (e == id) continue;
            if (e != Page::APART) {
                (takes(e) ? reads : page(r, OTHERS, number, t.shift)).mark(a, here, log, id);
                continue;
            }
            u32* c = reads.cells + a;
            u32 taken = 0;
            for (u32 j = 0; j < here; ++j)
                if (c[j] == id || takes(c[j])) {
                    c[j] = id;
                    ++taken;
                }
            if (taken == per) reads.whole[span] = id;
            if (taken == here) continue;
            Page& others = page(r, OTHERS, number, t.shift);
            if (!taken) others.mark(a, here, log, id);
            else
                for (u32 j = 0; j < here; ++j)
                    if (c[j] != id) others.mark(a + j, 1, log, id);
        }
    }
};

}  // namespace

const Epoch& epoch(Tracked& t, u32 id) { return t.table[id / EPOCHS].load(std::memory_order_acquire)[id % EPOCHS]; }

void global_access(Warp& w, u32 pc, const u64* at, u32 m, u64 bytes, Access access, u32 manner) {
    Tracked& t = tracked(w);
    const Touch touch(w, pc, access, manner);
    const Gang& g = *w.block->gang;
    const u64 shared = u64(g.shared), shared_end = shared + g.blocks.size() * g.stride;
    w.touched = own_time(w);
    for (u32 left = m; left;) {
        const int first = lowest(left);
        int last = first;
        // The lanes that follow one behind the other, or at the same place, are one piece.
        while (last < 31 && left >> (last + 1) & 1 && at[last + 1] == at[last] + bytes) ++last;
        const u64 length = at[last] + bytes - at[first];
        while (last < 31 && left >> (last + 1) & 1 && at[last + 1] == at[last]) ++last;
        left &= last == 31 ? 0 : ~0u << (last + 1);
        Region* r = region(touch.c, t, at[first]);
        if (r && first == last && at[first] + length <= r->hi && touch.again(*r, at[first], length)) continue;
        if (r && at[first] + length <= r->hi) touch.range(*r, at[first], length, first, bytes);
        else if (at[first] >= shared && at[first] < shared_end)
            for (int k = first; k <= last; ++k) shared_access(w, pc, at, 1u << k, int(bytes), access, manner & 7);
        else if (r)
            for (int k = first; k <= last; ++k)
                if (Region* one = region(touch.c, t, at[k])) touch.range(*one, at[k], bytes, k, bytes);
    }
}

bool global_simple(Warp& w, u32 pc, u64 at, bool row, u32 bytes, Access access, u32 manner) {
    const u64 length = row ? 32 * bytes : bytes;
    Region* r = region(checker(w), tracked(w), at);
    if (!r || at + length > r->hi) return false;
    const Touch touch(w, pc, access, access == READ && manner == WEAK && !row ? u32(SCALAR) : manner);
    w.touched = own_time(w);
    touch.range(*r, at, length, lowest(w.m), bytes);
    return true;
}

void global_offsets(Warp& w, u32 pc, u64 base, const u32* at, u32 m, u32 bytes, Access access, u32 manner) {
    if (m == ~0u || at[0] == at[31]) {
        u32 row = 0, same = 0;
        for (u32 k = 0; k < 32; ++k) {
            row |= at[k] ^ (at[0] + k * bytes);
            same |= at[k] ^ at[0];
        }
        if ((!same || (!row && m == ~0u)) && global_simple(w, pc, base + at[0], same, bytes, access, manner)) return;
    }
    u64 all[32];
    for (int k = 0; k < 32; ++k) all[k] = base + at[k];
    global_access(w, pc, all, m, bytes, access, manner);
}

void global_clash(Warp& w, int lane, u64 at, u32 id) {
    const Touch touch(w, 0, WRITE, WEAK);
    if (Region* r = region(checker(w), tracked(w), at)) touch.race(*r, at, lane, id, true);
}

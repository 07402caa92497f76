// Global memory: accesses of two warps with nothing that orders them, also of blocks that ran one
// after the other. A cell for each granule holds the number of an epoch: what one warp did at one
// time with one instruction. Cells are plain words that several threads change: a lost one costs a
// finding, and never makes a wrong one.
#include "checks.hpp"
#include <algorithm>

namespace {

constexpr u64 PAGE = 4096;
enum Which { WRITES, READS, OTHERS };

std::mutex spare_lock;
std::vector<u32*> spares[3];  // pages of 1024, 2048 and 4096 cells for the next launch

u32* fresh_page(u32 shift) {
    const size_t bytes = (PAGE >> shift) * sizeof(u32);
    {
        std::lock_guard<std::mutex> held(spare_lock);
        auto& some = spares[2 - shift];
        if (!some.empty()) {
            u32* p = some.back();
            some.pop_back();
            memset(p, 0, bytes);
            return p;
        }
    }
    void* p = aligned_alloc(64, bytes);
    if (!p) fault("no memory for the checks of global memory: launch without them");
    memset(p, 0, bytes);
    return (u32*)p;
}

void keep_page(u32* p, u32 shift) {
    auto& some = spares[2 - shift];
    if (some.size() < 16384) some.push_back(p);
    else free(p);
}

inline u32* page(Region& r, Which which, u64 number, u32 shift) {
    auto& slot = r.pages[which * r.count + number];
    u32* p = slot.load(std::memory_order_acquire);
    if (p) return p;
    u32* made = fresh_page(shift);
    if (slot.compare_exchange_strong(p, made)) return made;
    std::lock_guard<std::mutex> held(spare_lock);
    keep_page(made, shift);
    return p;
}

inline Region* region(Checker& c, Tracked& t, u64 at) {
    if (c.region && at >= c.region->lo && at < c.region->hi) return c.region;
    auto next =
        std::upper_bound(t.regions.begin(), t.regions.end(), at, [](u64 x, const Region& r) { return x < r.lo; });
    if (next == t.regions.begin() || at >= (--next)->hi) return nullptr;
    return c.region = &*next;
}

u32 new_epoch(Warp& w, u32 pc, u32 manner) {
    Checker& c = checker(w);
    Tracked& t = tracked(w);
    if (c.ids == c.ids_end) {
        const u32 n = t.epochs.fetch_add(64);
        if (n / PIECE + 1 >= PIECES) fault("the checks cannot follow so many accesses: launch without them");
        auto& piece = t.table[n / PIECE];
        if (!piece.load(std::memory_order_acquire)) {
            Epoch *made = new Epoch[PIECE], *none = nullptr;
            if (!piece.compare_exchange_strong(none, made)) delete[] made;
        }
        c.ids = n;
        c.ids_end = n + 64;
    }
    const u32 id = c.ids++;
    t.table[id / PIECE].load(std::memory_order_relaxed)[id % PIECE] = {c.gang,  own_time(w), w.block->linear,
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
    u32 manner, id;
    Checker::Own& own;

    Touch(Warp& w, u32 pc, Access access, u32 manner)
        : w(w), c(checker(w)), t(tracked(w)), pc(pc), access(access), manner(manner), own(c.own[w.index]) {
        const u32 time = own_time(w);
        if (access == READ) {
            auto& slot = own.reads[manner == SCALAR];
            if (!slot.id || slot.time != time) slot = {new_epoch(w, pc, manner), time};
            id = slot.id;
        } else {
            auto& slot = own.writes[pc % 8];
            if (!slot.id || slot.time != time || slot.pc != pc) { slot = {new_epoch(w, pc, manner), time, pc}; }
            id = slot.id;
        }
    }

    const char* verb() const { return access == READ ? "reads" : access == WRITE ? "writes" : "changes"; }

    [[noreturn]] void race(const Region& r, u64 at, int lane, u32 other, bool wrote) const {
        const Epoch& e = epoch(t, other);
        const Launch& l = launch_of(w);
        const u32 x = e.block % l.grid[0], y = e.block / l.grid[0] % l.grid[1], z = e.block / (l.grid[0] * l.grid[1]);
        const bool same = e.block == w.block->linear;
        char who[80], where[40] = "";
        const u32 warp = e.warp % u32(w.block->warps.size());
        if (same) snprintf(who, sizeof who, "warp %u of this block", warp);
        else snprintf(who, sizeof who, "block (%u, %u, %u)", x, y, z);
        if (wrote && e.pc != ~0u) snprintf(where, sizeof where, " at @%u", e.pc);
        fault_lane(lane, "%s byte %llu of $%u, which %s %s%s, and nothing orders the two: %s", verb(),
                   (unsigned long long)(at - r.lo), r.name, who, wrote ? "wrote" : "has read", where,
                   same ? "put a barrier between them"
                        : "use atomics, or a release and an acquire between them, or two launches");
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
        if (e.block == w.block->linear &&
            ((manner == SCALAR && e.manner == CHANGED) || (manner == CHANGED && e.manner == SCALAR)))
            return true;
        return strong(manner) && strong(e.manner);
    }
    bool mine(u32 other) const {
        const Epoch& e = epoch(t, other);
        return e.gang == c.gang && e.warp == w.index;
    }

    // `bytes` from `at` on, each lane's behind the one's before it.
    void range(Region& r, u64 at, u64 bytes, int lane, u64 each) const {
        const u32 shift = t.shift;
        while (bytes) {
            const u64 from = at - r.start, number = from / PAGE, first = from % PAGE,
                      here = std::min(bytes, PAGE - first);
            const u32 a = u32(first >> shift), n = u32(((first + here - 1) >> shift) - a + 1);
            piece(r, at, number, a, n, lane, each);
            at += here;
            bytes -= here;
            lane = std::min(31, lane + int(here / each));
        }
    }

    void piece(Region& r, u64 at, u64 number, u32 a, u32 n, int lane, u64 each) const {
        const u32 shift = t.shift;
        u32* writes = r.pages[number].load(std::memory_order_acquire);
        const auto place = [&](u32 k) { return at + (u64(k) << shift); };
        const auto who = [&](u32 k) { return std::min(31, lane + int((u64(k) << shift) / each)); };
        if (writes) {
            u32 odd = 0;
            for (u32 k = 0; k < n; ++k) odd |= writes[a + k] && writes[a + k] != id;
            if (odd)
                for (u32 k = 0, fine = 0; k < n; ++k) {
                    const u32 e = writes[a + k];
                    if (!e || e == id || e == fine) continue;
                    if (!seen(e) && !harmless(e)) {
                        if (access != WRITE || !w.compares) race(r, place(k), who(k), e, true);
                        note_clash(w, who(k), place(k), 1u << shift, e);
                        continue;
                    }
                    fine = e;
                }
        }
        if (access == READ) {
            if (manner == STRONG) return;
            u32* reads = page(r, READS, number, shift) + a;
            u32 odd = 0;
            for (u32 k = 0; k < n; ++k) odd |= reads[k] && reads[k] != id;
            if (!odd) {
                for (u32 k = 0; k < n; ++k) reads[k] = id;
                return;
            }
            odd = 0;
            for (u32 k = 0; k < n; ++k) odd |= reads[k] ^ reads[0];
            if (!odd && !mine(reads[0])) {  // all by one other warp
                u32* others = page(r, OTHERS, number, shift) + a;
                for (u32 k = 0; k < n; ++k) others[k] = id;
                return;
            }
            u32 decided = 0;
            bool over = false;
            u32* others = nullptr;
            for (u32 k = 0; k < n; ++k) {
                const u32 e = reads[k];
                if (e == id) continue;
                if (e && e != decided) {
                    decided = e;
                    over = mine(e);
                }
                if (!e || over) {
                    reads[k] = id;
                    continue;
                }
                if (!others) others = page(r, OTHERS, number, shift) + a;
                others[k] = id;
            }
            return;
        }
        for (Which which : {READS, OTHERS})
            if (u32* reads = r.pages[which * r.count + number].load(std::memory_order_acquire)) {
                u32 fine = 0;
                for (u32 k = 0; k < n; ++k) {
                    const u32 e = reads[a + k];
                    if (!e || e == fine) continue;
                    if (!seen(e) && !harmless(e)) race(r, place(k), who(k), e, false);
                    fine = e;
                }
            }
        if (!writes) writes = page(r, WRITES, number, shift);
        for (u32 k = 0; k < n; ++k) writes[a + k] = id;
    }
};

}  // namespace

const Epoch& epoch(Tracked& t, u32 id) { return t.table[id / PIECE].load(std::memory_order_acquire)[id % PIECE]; }

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
        if (r && at[first] + length <= r->hi) touch.range(*r, at[first], length, first, bytes);
        else if (at[first] >= shared && at[first] < shared_end)
            for (int k = first; k <= last; ++k) shared_access(w, pc, at, 1u << k, int(bytes), access, manner);
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
    fault_lane(lane, "writes what another warp wrote, and nothing orders the two");
}

void check_new_launch(Launch& l) {
    Tracked* t = new Tracked;
    l.shadow = t;
    while ((1u << t->shift) > std::max(1u, l.global_granule)) --t->shift;
    for (u32 k = 0; k < l.nallocs; ++k) {
        const Alloc& a = l.allocs[k];
        if (a.flags & READ_ONLY) continue;
        Region r{a.lo, a.hi, a.lo & ~15ull, a.name, nullptr, 0};
        r.count = (a.hi - r.start + PAGE - 1) / PAGE;
        r.pages.reset(new std::atomic<u32*>[3 * r.count]());
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
            if (u32* p = r.pages[k].load()) keep_page(p, shift);
    for (u32 k = 0; k < PIECES && table[k].load(); ++k) delete[] table[k].load();
}

// Global memory: accesses of two warps with nothing that orders them, also of blocks that ran one
// after the other. A cell for each granule holds the number of an epoch: what one warp did at one
// time with one instruction.
#include "global_pages.hpp"

namespace {

u32 new_epoch(Warp& w, u32 pc, u32 manner) {
    Checker& c = checker(w);
    Tracked& t = tracked(w);
    if (c.ids == c.ids_end) {
        const u32 n = t.epochs.fetch_add(64);
        if (n / PIECE + 1 >= PIECES) fault("the checks cannot follow so many accesses: launch without them");
        auto& piece = t.table[n / PIECE];
        if (!piece.load(std::memory_order_acquire)) more_epochs(piece);
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
                if (access != WRITE || !w.compares) race(r, place(k), who(k), e, true);
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
        if (r && first == last && at[first] + length <= r->hi && touch.again(*r, at[first], length)) continue;
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

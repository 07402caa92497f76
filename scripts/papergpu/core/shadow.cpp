// The shadow of a block's shared memory: what it begins as, and what is said where an access clashes with it.
#include "shadow.hpp"

Shadow::Shadow(const Launch& l, u32 warps) : reads(2 * warps), last(2 * warps), fresh(warps) {
    while ((1u << shift) > std::max(1u, l.granule)) --shift;
    cells = ((l.shared + 15) / 16 * 16 + 64) >> shift;
}

void Shadow::begin(const Launch& l) {
    writes.assign(cells, -1);
    spans.assign((cells >> SPAN) + 1, s64(1) << 32 << SPAN);
    if (l.reserved)  // as if written before
        for (u32 k = (l.reserved - 1) >> shift, end = k + (288 >> shift); k < end; ++k) {
            writes[k] = 0;
            spans[k >> SPAN] -= s64(1) << 32;
        }
    for (auto& some : fresh)
        if (some) some->clear();
}

void Shadow::forget() {
    for (s64& e : writes)
        if (e >= 0) e &= 0xffffffff;
    for (s64& one : spans) one = one >> 32 << 32;
    for (auto& r : reads)
        if (r) std::fill(r.get(), r.get() + cells, 0);
    for (auto& some : fresh)
        if (some) some->clear();
    std::fill(last.begin(), last.end(), 0);
    newest = 0;
}

void Shown::race(u32 cell, int lane, u32 warp, u32 other, bool wrote, u32 where) const {
    const Warp& v = w.block->gang->warps[first + warp];
    const Launch& l = launch_of(w);
    char who[120], what[40];
    const u32 t = v.first + other, x = t % l.block[0], y = t / l.block[0] % l.block[1],
              z = t / (l.block[0] * l.block[1]);
    if (other > 31) snprintf(who, sizeof who, "another thread of its warp");
    else if (v.block == w.block) snprintf(who, sizeof who, "thread (%u, %u, %u)", x, y, z);
    else
        snprintf(who, sizeof who, "thread (%u, %u, %u) of block (%u, %u, %u)", x, y, z, v.block->at[0], v.block->at[1],
                 v.block->at[2]);
    if (where < 0xffff) snprintf(what, sizeof what, "%s at @%u", wrote ? "wrote" : "read", where);
    else snprintf(what, sizeof what, "%s before", wrote ? "wrote" : "read");
    fault_lane(lane, "%s byte %u of shared memory, which %s %s, with no barrier between: put a barrier%s between them",
               verb(), cell << s.shift, who, what,
               warp == me           ? " of the warp"
               : v.block != w.block ? " of the cluster"
                                    : "");
}

// The write that a cell holds, seen from `lane`: true if this access clashes with it.
bool Shown::after_write(s64 e, int lane) const {
    const u32 warp = u32(e) >> 5 & 511, t = u32(e >> 32), how = u32(e) >> 30;
    if (warp == me) {
        const u32 other = u32(e) & 31;
        if (int(other) == lane || how == ASYNC || manner == ASYNC || t < w.floor) return false;
        return !met(lane, other, t) && !(how == CHANGED && manner != WEAK) && !(how != WEAK && manner == CHANGED);
    }
    return t > w.clock[first + warp] && (how == WEAK || how == ASYNC || manner == WEAK || manner == ASYNC);
}

void Shown::check_write(u32 cell, int lane) const {
    const s64 e = s.writes[cell];
    if (e < 0) {
        if (access == WRITE) return;
        fault_lane(lane,
                   "%s byte %u of shared memory, which nobody in this block has written: write it first, or mask it",
                   verb(), cell << s.shift);
    }
    if (!after_write(e, lane)) return;
    if (access == WRITE && w.compares) {
        note_clash(w, lane, u64(s.own->shared) + (u64(cell) << s.shift), 1u << s.shift, u64(e));
        return;
    }
    race(cell, lane, u32(e) >> 5 & 511, u32(e) & 31, true, u32(e) >> 14 & 0xffff);
}

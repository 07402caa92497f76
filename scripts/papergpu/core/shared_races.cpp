// Shared memory: who wrote and read each granule, what nobody wrote, and accesses with nothing between.
#include "checks.hpp"
#include <algorithm>

namespace {

s64 written(u32 time, u32 manner, u32 pc, u32 warp, u32 lane) {
    return s64(time) << 32 | manner << 30 | std::min(pc, 0xffffu) << 14 | warp << 5 | lane;
}

// Everything about an access that is the same for all its lanes.
struct Shown {
    Warp& w;
    Shadow& s;
    u32 pc;
    Access access;
    u32 manner;
    u32 first, me, time;  // the cluster's first warp in the gang; w in its cluster; its time

    Shown(Warp& w, Block& b, u32 pc, Access access, u32 manner)
        : w(w), s(*b.shadow), pc(pc), access(access), manner(manner),
          first(w.block->cluster * u32(w.block->warps.size())), me(w.index - first), time(own_time(w)) {
        if (!w.floor) clocks_new_floor(w);
    }

    const char* verb() const { return access == READ ? "reads" : access == WRITE ? "writes" : "changes"; }

    [[noreturn]] void race(u32 cell, int lane, u32 warp, u32 other, bool wrote, u32 where) const {
        const Warp& v = w.block->gang->warps[first + warp];
        const Launch& l = launch_of(w);
        char who[120], what[40];
        const u32 t = v.first + other, x = t % l.block[0], y = t / l.block[0] % l.block[1],
                  z = t / (l.block[0] * l.block[1]);
        if (other > 31) snprintf(who, sizeof who, "another thread of its warp");
        else if (v.block == w.block) snprintf(who, sizeof who, "thread (%u, %u, %u)", x, y, z);
        else
            snprintf(who, sizeof who, "thread (%u, %u, %u) of block (%u, %u, %u)", x, y, z, v.block->at[0],
                     v.block->at[1], v.block->at[2]);
        if (where < 0xffff) snprintf(what, sizeof what, "%s at @%u", wrote ? "wrote" : "read", where);
        else snprintf(what, sizeof what, "%s before", wrote ? "wrote" : "read");
        fault_lane(lane,
                   "%s byte %u of shared memory, which %s %s, with no barrier between: put a barrier%s between them",
                   verb(), cell << s.shift, who, what,
                   warp == me           ? " of the warp"
                   : v.block != w.block ? " of the cluster"
                                        : "");
    }

    // Whether lane `lane` of this warp, now, comes after lane `other` of it at `t`.
    bool met(int lane, u32 other, u32 t) const {
        return t < w.synced[lane] && (t < w.synced[other] || !(w.live >> other & 1));
    }

    // The write that a cell holds, seen from `lane`: true if this access clashes with it.
    bool after_write(s64 e, int lane) const {
        const u32 warp = u32(e) >> 5 & 511, t = u32(e >> 32), how = u32(e) >> 30;
        if (warp == me) {
            const u32 other = u32(e) & 31;
            if (int(other) == lane || how == ASYNC || manner == ASYNC || t < w.floor) return false;
            return !met(lane, other, t) && !(how == CHANGED && manner != WEAK) && !(how != WEAK && manner == CHANGED);
        }
        return t > w.clock[first + warp] && (how == WEAK || how == ASYNC || manner == WEAK || manner == ASYNC);
    }

    void check_write(u32 cell, int lane) const {  // of what was written before
        const s64 e = s.writes[cell];
        if (e < 0) {
            if (access == WRITE) return;
            fault_lane(
                lane, "%s byte %u of shared memory, which nobody in this block has written: write it first, or mask it",
                verb(), cell << s.shift);
        }
        if (!after_write(e, lane)) return;
        if (access == WRITE && w.compares) {
            note_clash(w, lane, u64(s.own->shared) + (u64(cell) << s.shift), 1u << s.shift, u64(e));
            return;
        }
        race(cell, lane, u32(e) >> 5 & 511, u32(e) & 31, true, u32(e) >> 14 & 0xffff);
    }

    // Whether a write must look at who has read.
    bool unseen_readers() const { return s.newest >= w.floor; }

    void check_reads(u32 cell, u32 n, int lane, u32 log) const {  // `lane` and those after it write 1 << log cells each
        const u32 warps = u32(s.reads.size()) / 2;
        for (u32 number = 0; number < 2 * warps; ++number) {
            const u32* r = s.reads[number].get();
            const u32 v = number % warps;
            if (!r) continue;
            if (v != me) {
                const u32 seen = w.clock[first + v];
                if (s.last[number] <= seen) continue;
                for (u32 k = 0; k < n; ++k)
                    if (r[cell + k] >> 6 > seen) race(cell + k, lane + int(k >> log), v, r[cell + k] & 31, false, ~0u);
            } else if (number == me && manner != ASYNC && s.last[me] >= w.floor) {
                for (u32 k = 0; k < n; ++k) {
                    const u32 e = r[cell + k], t = e >> 6;
                    const int mine = lane + int(k >> log);
                    if (!e || t < w.floor || (int(e & 31) == mine && !(e & 32))) continue;
                    if (int(e & 31) != mine ? !met(mine, e & 31, t) : t >= w.synced[mine])
                        race(cell + k, mine, v, int(e & 31) != mine ? e & 31 : 32, false, ~0u);
                }
            }
        }
    }

    u32* readers() const {
        const u32 number = manner == ASYNC ? me + u32(s.reads.size()) / 2 : me;
        auto& mine = s.reads[number];
        if (!mine) mine.reset(new u32[s.cells]());
        s.last[number] = time;
        s.newest = std::max(s.newest, time);
        return mine.get();
    }
};

inline void note_read(u32& cell, u32 stamp) {  // the same time and another lane: several lanes
    const u32 old = cell;
    cell = (old ^ stamp) >> 6 == 0 && old != stamp ? stamp | 32 : stamp;
}

// All 32 lanes, one behind the other, each of 1 << log cells.
template <int log> void row(const Shown& a, u32 cell) {
    constexpr u32 n = 32u << log;
    Shadow& s = a.s;
    const Warp& w = a.w;
    const s64 limit = (s64(w.floor) << 32) - 1;
    s64* e = s.writes.data() + cell;
    s64 bad = 0;
    if (a.access == WRITE)
        for (u32 k = 0; k < n; ++k) bad |= limit - e[k];
    else
        for (u32 k = 0; k < n; ++k) bad |= (limit - e[k]) | e[k];
    if (bad < 0)
        for (u32 k = 0; k < n; ++k)
            if (e[k] > limit || e[k] < 0) a.check_write(cell + k, int(k >> log));
    if (a.access == READ) {
        if (a.manner != WEAK) return;
        u32* r = a.readers() + cell;
        const u32 stamp = a.time << 6;
        for (u32 k = 0; k < n; ++k) note_read(r[k], stamp | (k >> log));
        return;
    }
    if (a.unseen_readers()) a.check_reads(cell, n, 0, log);
    const s64 stamp = written(a.time, a.manner, a.pc, a.me, 0);
    for (u32 k = 0; k < n; ++k) e[k] = stamp | (k >> log);
}

typedef s64 Wide __attribute__((vector_size(32)));
typedef u32 Four __attribute__((vector_size(16)));

// Whether one of the 1 << log cells from `cell` on is younger than `limit` or, unless a write asks, unwritten.
template <int log> inline s64 doubtful(const s64* e, s64 limit, bool write) {
    if constexpr (log < 2) {
        s64 bad = 0;
        for (u32 k = 0; k < 1u << log; ++k) bad |= write ? limit - e[k] : (limit - e[k]) | e[k];
        return bad;
    } else {
        Wide bad = {};
        for (u32 k = 0; k < 1u << log; k += 4) {
            Wide x;
            memcpy(&x, e + k, 32);
            bad |= limit - x;
            if (!write) bad |= x;
        }
        return bad[0] | bad[1] | bad[2] | bad[3];
    }
}

template <int log> inline void note_reads(u32* r, u32 stamp) {
    if constexpr (log < 2)
        for (u32 k = 0; k < 1u << log; ++k) note_read(r[k], stamp);
    else
        for (u32 k = 0; k < 1u << log; k += 4) {
            Four old;
            memcpy(&old, r + k, 16);
            const Four now = (Four)((((old ^ stamp) >> 6) == 0) & (old != stamp)) & 32;
            const Four x = now | stamp;
            memcpy(r + k, &x, 16);
        }
}

// Lanes that read the same place as the lane before, or as the one 16 before, are noted with it.
template <int log> void apart_reads(const Shown& a, const u32* cells, u32 m) {
    const s64 limit = (s64(a.w.floor) << 32) - 1;
    const s64* e = a.s.writes.data();
    u32 first = m, several = 0, other = 0;
    for (int l = 0; l < 16; ++l) other |= cells[l] ^ cells[l + 16];
    if (m == ~0u && !other) {
        first = 0xffff;
        several = ~0u;
    }
    u32 same = 0;
    for (int l = 1; l < 32; ++l) same |= u32(cells[l] == cells[l - 1]) << l;
    same &= m & m << 1;
    first &= ~same;
    u32* r = a.manner == WEAK ? a.readers() : nullptr;
    const u32 stamp = a.time << 6;
    for (u32 t = first; t; t &= t - 1) {
        const int l = lowest(t);
        const u32 cell = cells[l];
        if (__builtin_expect(doubtful<log>(e + cell, limit, false) < 0, 0)) {
            for (u32 o = m; o; o &= o - 1)
                if (cells[lowest(o)] == cell)
                    for (u32 k = 0; k < 1u << log; ++k)
                        if (e[cell + k] > limit || e[cell + k] < 0) a.check_write(cell + k, lowest(o));
        }
        if (r) note_reads<log>(r + cell, stamp | u32(l) | ((several | same >> 1) >> l & 1) << 5);
    }
}

template <int log> void apart(const Shown& a, const u32* cells, u32 m) {
    constexpr u32 n = 1u << log;
    Shadow& s = a.s;
    const Warp& w = a.w;
    if (a.access == READ) return apart_reads<log>(a, cells, m);
    const s64 limit = (s64(w.floor) << 32) - 1;
    s64* e = s.writes.data();
    const bool write = a.access == WRITE;
    s64 bad = 0;
    for (int l = 0; l < 32; ++l) bad |= doubtful<log>(e + cells[l], limit, write);
    if (bad < 0 && a.manner == CHANGED) {  // atomics among themselves
        bad = 0;
        for (int l = 0; l < 32; ++l)
            for (u32 k = 0; k < n; ++k) {
                const s64 x = e[cells[l] + k];
                bad |= x | -s64((u32(x) >> 30) != CHANGED && x > limit);
            }
    }
    if (bad < 0)
        for (u32 t = m; t; t &= t - 1)
            for (u32 k = 0; k < n; ++k) {
                const s64 x = e[cells[lowest(t)] + k];
                if (x > limit || x < 0) a.check_write(cells[lowest(t)] + k, lowest(t));
            }
    if (a.unseen_readers())
        for (u32 t = m; t; t &= t - 1) a.check_reads(cells[lowest(t)], n, lowest(t), 31);
    const s64 stamp = written(a.time, a.manner, a.pc, a.me, 0);
    for (u32 t = m; t; t &= t - 1)
        for (u32 k = 0; k < n; ++k) e[cells[lowest(t)] + k] = stamp | lowest(t);
}

// All lanes of m read the same n cells.
void one_place(const Shown& a, u32 cell, u32 n, u32 m) {
    const u32 lane = u32(lowest(m));
    const s64 limit = (s64(a.w.floor) << 32) - 1;
    for (u32 k = 0; k < n; ++k) {
        const s64 e = a.s.writes[cell + k];
        if (e > limit || e < 0)
            for (u32 t = m; t; t &= t - 1) a.check_write(cell + k, lowest(t));
    }
    if (a.manner != WEAK) return;
    u32* r = a.readers() + cell;
    const u32 stamp = a.time << 6 | lane | (m & (m - 1) ? 32 : 0);
    for (u32 k = 0; k < n; ++k) note_read(r[k], stamp);
}

template <int log> void at_once(const Shown& a, const u32* cells, u32 m) {
    bool in_row = m == ~0u, same = a.access == READ;
    u32 other = 0;
    for (u32 l = 0; l < 32; ++l) other |= cells[l] ^ (cells[0] + (l << log));
    in_row &= !other;
    if (in_row) return row<log>(a, cells[0]);
    if (same) {
        other = 0;
        for (u32 l = 0; l < 32; ++l) other |= cells[l] ^ cells[0];
        if (!other) return one_place(a, cells[0], 1u << log, m);
    }
    apart<log>(a, cells, m);
}

}  // namespace

void shared_offsets(Warp& w, Block& b, u32 pc, const u32* at, u32 m, int bytes, Access access, u32 manner) {
    const Shown a(w, b, pc, access, manner);
    alignas(64) u32 cells[32];
    const u32 shift = a.s.shift;
    for (int l = 0; l < 32; ++l) cells[l] = at[l] >> shift;
    w.touched = a.time;
    switch (std::max(1u, u32(bytes) >> shift)) {
    case 1: return at_once<0>(a, cells, m);
    case 2: return at_once<1>(a, cells, m);
    case 4: return at_once<2>(a, cells, m);
    case 8: return at_once<3>(a, cells, m);
    case 16: return at_once<4>(a, cells, m);
    case 32: return at_once<5>(a, cells, m);
    }
    for (u32 t = m; t; t &= t - 1) shared_bytes(w, b, at[lowest(t)], u64(bytes), access, manner);
}

void shared_simple(Warp& w, u32 pc, u32 at, bool in_row, int bytes, Access access, u32 manner) {
    const Shown a(w, *w.block, pc, access, manner);
    const u32 cell = at >> a.s.shift, cells = std::max(1u, u32(bytes) >> a.s.shift);
    if (cells > 32 || (!in_row && access != READ)) {
        u32 offsets[32];
        for (int k = 0; k < 32; ++k) offsets[k] = at + (in_row ? u32(k * bytes) : 0);
        return shared_offsets(w, *w.block, pc, offsets, w.m, bytes, access, manner);
    }
    w.touched = a.time;
    if (!in_row) return one_place(a, cell, cells, w.m);
    switch (cells) {
    case 1: return row<0>(a, cell);
    case 2: return row<1>(a, cell);
    case 4: return row<2>(a, cell);
    case 8: return row<3>(a, cell);
    case 16: return row<4>(a, cell);
    default: return row<5>(a, cell);
    }
}

void shared_access(Warp& w, u32 pc, const u64* at, u32 m, int bytes, Access access, u32 manner) {
    Gang& g = *w.block->gang;
    alignas(64) u32 offsets[32];
    for (u32 left = m; left;) {  // the block of its cluster that each accesses
        const u64 k = (at[lowest(left)] - u64(g.shared)) / g.stride, base = u64(g.blocks[k].shared);
        u32 same = 0;
        for (u32 t = left; t; t &= t - 1)
            if (at[lowest(t)] - base < g.stride) same |= t & -t;
        for (int l = 0; l < 32; ++l) offsets[l] = u32((same >> l & 1 ? at[l] : at[lowest(same)]) - base);
        shared_offsets(w, g.blocks[k], pc, offsets, same, bytes, access, manner);
        left &= ~same;
    }
}

void shared_bytes(Warp& w, Block& b, u32 offset, u64 bytes, Access access, u32 manner) {
    const Shown a(w, b, ~0u, access, manner);
    Shadow& s = a.s;
    const u32 first = offset >> s.shift, last = u32((offset + bytes - 1) >> s.shift);
    w.touched = a.time;
    for (u32 k = first; k <= last; ++k)
        if (s.writes[k] < 0 || u32(s.writes[k] >> 32) >= w.floor) a.check_write(k, 0);
    if (access == READ) {
        u32* r = a.readers();
        for (u32 k = first; k <= last; ++k) r[k] = a.time << 6;
        return;
    }
    if (a.unseen_readers()) a.check_reads(first, last - first + 1, 0, 31);
    const s64 stamp = written(a.time, manner, 0xffff, a.me, 0);
    for (u32 k = first; k <= last; ++k) s.writes[k] = stamp;
}

void shared_clash(Warp& w, int lane, u64 at, s64 e) {
    Gang& g = *w.block->gang;
    Block& b = g.blocks[(at - u64(g.shared)) / g.stride];
    Shown(w, b, ~0u, WRITE, WEAK)
        .race(u32(at - u64(b.shared)) >> b.shadow->shift, lane, u32(e) >> 5 & 511, u32(e) & 31, true,
              u32(e) >> 14 & 0xffff);
}

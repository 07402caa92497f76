// Shared memory: what nobody wrote, and accesses with nothing between.
#include "checks.hpp"

// ---- The shadow of a block's shared memory: what it begins as, and what is said where an access clashes with it.

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
    if (l.error[0]) return;
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
    found(w, w.pc, lane, "%s byte %u of shared memory, which %s %s, with no barrier between: put a barrier%s between them",
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
        return found(w, w.pc, lane,
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

// ---- Who read which cell of shared memory: noted when somebody writes there and asks.

namespace {

inline void note_read(u32& cell, u32 stamp) {  // the same time and another lane: several lanes
    const u32 old = cell;
    cell = (old ^ stamp) >> 6 == 0 && old != stamp ? stamp | 32 : stamp;
}

// Lanes that read the same place as the lane before, or as the one 16 before, are noted with it.
template <int log> void note_apart(u32* r, const u32* cells, u32 m, u32 stamp) {
    u32 first = m, several = 0, other = 0, same = 0;
    for (int l = 0; l < 16; ++l) other |= cells[l] ^ cells[l + 16];
    if (m == ~0u && !other) {
        first = 0xffff;
        several = ~0u;
    }
    for (int l = 1; l < 32; ++l) same |= u32(cells[l] == cells[l - 1]) << l;
    same &= m & m << 1;
    first &= ~same;
    for (u32 t = first; t; t &= t - 1) {
        const u32 l = u32(lowest(t)), mark = stamp | l | ((several | same >> 1) >> l & 1) << 5;
        u32* const to = r + cells[l];
        for (u32 k = 0; k < 1u << log; ++k) note_read(to[k], mark);
    }
}

void note(u32* r, const Reading& one) {
    const u32 stamp = one.time << 6, n = 1u << one.log, m = one.lanes;
    if (one.shape == Reading::IN_ROW)
        for (u32 k = 0; k < 32 * n; ++k) note_read(r[one.cells[0] + k], stamp | k >> one.log);
    else if (one.shape == Reading::ONE_PLACE)
        for (u32 k = 0; k < n; ++k) note_read(r[one.cells[0] + k], stamp | u32(lowest(m)) | (m & (m - 1) ? 32 : 0));
    else switch (one.log) {
        case 0: return note_apart<0>(r, one.cells, m, stamp);
        case 1: return note_apart<1>(r, one.cells, m, stamp);
        case 2: return note_apart<2>(r, one.cells, m, stamp);
        case 3: return note_apart<3>(r, one.cells, m, stamp);
        case 4: return note_apart<4>(r, one.cells, m, stamp);
        default: return note_apart<5>(r, one.cells, m, stamp);
        }
}

// Whether a reading is this one, but for its time.
bool alike(const Reading& one, Reading::Shape shape, const u32* cells, u32 lanes, u32 log) {
    if (one.lanes != lanes || one.log != log || one.shape != shape) return false;
    u32 off = one.cells[0] ^ cells[0];
    for (int l = 0; shape == Reading::APART && l < 32; ++l) off |= one.cells[l] ^ cells[l];
    return !off;
}

}  // namespace

void Shadow::note_fresh(u32 number) {
    Fresh* some = number < fresh.size() ? fresh[number].get() : nullptr;
    if (!some || !some->n) return;
    auto& mine = reads[number];
    if (!mine) mine.reset(new u32[cells]());
    for (u32 k = 0; k < some->n; ++k) note(mine.get(), some->all[k]);
    some->n = 0;
}

u32* Shown::readers(u32 number) const {
    auto& mine = s.reads[number];
    if (!mine) mine.reset(new u32[s.cells]());
    s.last[number] = time;
    s.newest = std::max(s.newest, time);
    return mine.get();
}

void Shown::note_reads(u32 cell, u32 n) const {
    const u32 number = manner == ASYNC ? me + u32(s.fresh.size()) : me;
    s.note_fresh(number);
    std::fill_n(readers(number) + cell, n, time << 6);
}

void Shown::note_reading(Reading::Shape shape, const u32* cells, u32 lanes, u32 log) const {
    auto& slot = s.fresh[me];
    if (!slot) slot = std::make_unique<Shadow::Fresh>();
    Shadow::Fresh& some = *slot;
    u8& last = some.of[pc % 64];
    if (some.all[last].time == time && alike(some.all[last], shape, cells, lanes, log)) return;  // in a loop
    if (some.n >= 16 && some.all[some.n - 1].time != time) {
        // What all have seen by now nobody will ask about.
        const Gang& g = *w.block->gang;
        u32 seen = w.within - 1;
        for (u32 k = first, end = first + u32(s.fresh.size()); k < end; ++k)
            if (k != w.index && !g.warps[k].done) seen = std::min(seen, g.warps[k].clock[w.index]);
        if (some.all[some.n - 1].time <= seen) some.n = 0;
    }
    if (some.n == 64) s.note_fresh(me);
    last = u8(some.n);
    Reading& one = some.all[some.n++];
    one.time = time;
    one.lanes = lanes;
    one.log = log;
    one.shape = shape;
    if (shape == Reading::APART) memcpy(one.cells, cells, sizeof one.cells);
    else one.cells[0] = cells[0];
    s.last[me] = time;
    s.newest = std::max(s.newest, time);
}

// `lane` and those after it write 1 << log cells each.
void Shown::check_reads_of(u32 number, u32 cell, u32 n, int lane, u32 log) const {
    const u32 warps = u32(s.fresh.size()), v = number % warps;
    const u32* r = s.reads[number].get();
    if (!r) return;
    if (v != me) {
        const u32 seen = w.clock[first + v];
        if (s.last[number] <= seen) return;
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

// Whether a cell was read at `bound` or later and, if by this warp, not just by the lane that writes it.
bool Shown::doubtful_reads(u32 number, u32 bound, const u32* cells, u32 n, u32 m, u32 log) const {
    const u32* r = s.reads[number].get();
    const u32 own = number == me ? ~0u : 0;
    const auto doubt = [bound, own](u32 e, u32 lane) {
        return u32((e >> 6) >= bound) & u32((e & 63) != (lane | ~own));
    };
    u32 bad = 0;
    if (!m)
        for (u32 k = 0; k < n; ++k) bad |= doubt(r[cells[0] + k], k >> log);
    for (; m; m &= m - 1)
        for (u32 k = 0; k < 1u << log; ++k) bad |= doubt(r[cells[lowest(m)] + k], u32(lowest(m)));
    return bad;
}

void Shown::look_for_reads(const u32* cells, u32 n, u32 m, u32 log) const {
    const u32 warps = u32(s.fresh.size());
    bool doubt = false;
    for (u32 number = 0; number < 2 * warps; ++number) {
        const u32 v = number % warps;
        if (v == me && (number != me || manner == ASYNC)) continue;
        const u32 bound = v == me ? std::max(w.floor, w.within) : w.clock[first + v] + 1;
        if (s.last[number] < bound) continue;
        s.note_fresh(number);
        doubt |= doubtful_reads(number, bound, cells, n, m, log);
    }
    if (!doubt) return;
    for (u32 number = 0; !m && number < 2 * warps; ++number) check_reads_of(number, cells[0], n, 0, log);
    for (; m; m &= m - 1)
        for (u32 number = 0; number < 2 * warps; ++number)
            check_reads_of(number, cells[lowest(m)], 1u << log, lowest(m), 31);
}

// ---- what nobody wrote, and accesses with nothing between

namespace {

s64 written(const Shown& a, u32 pc) {
    return s64(a.time) << 32 | a.manner << 30 | std::min(pc, 0xffffu) << 14 | a.me << 5;
}

// All 32 lanes, one behind the other, each of 1 << log cells.
void row(const Shown& a, u32 cell, u32 log) {
    const u32 n = 32u << log, last = cell + n - 1;
    Shadow& s = a.s;
    s64* e = s.writes.data() + cell;
    if (!a.settled(cell, last)) {
        s64 bad = 0;
        for (u32 k = 0; k < n; ++k) bad |= a.doubt(e[k], k >> log);
        for (u32 k = 0; bad && k < n; ++k)
            if (a.doubt(e[k], k >> log)) a.check_write(cell + k, int(k >> log));
    }
    if (a.access == READ) {
        if (a.manner == WEAK) a.note_reading(Reading::IN_ROW, &cell, ~0u, log);
        return;
    }
    a.check_reads(&cell, n, 0, log);
    if (s.wrote(cell, last, a.time)) s.fill_holes(cell, last);
    const s64 stamp = written(a, a.pc);
    for (u32 k = 0; k < n; ++k) e[k] = stamp | (k >> log);
}

// The lanes of m write 1 << log cells each.
template <int log> void write_apart(const Shown& a, const u32* cells, u32 m, bool holes) {
    s64* const e = a.s.writes.data();
    const s64 stamp = written(a, a.pc);
    for (; m; m &= m - 1) {
        const u32 l = u32(lowest(m)), cell = cells[l];
        for (u32 k = 0; k < 1u << log; ++k) {
            if (holes) a.s.fill_hole(cell + k);
            e[cell + k] = stamp | l;
        }
    }
}

// The lanes of m access 1 << log cells each; the others stand where one of them does.
void apart(const Shown& a, const u32* cells, u32 m, u32 log) {
    u32 lo, hi;
    bounds(cells, lo, hi);
    hi += (1u << log) - 1;
    if (!a.settled(lo, hi)) {
        const s64* e = a.s.writes.data();
        s64 bad = 0;
        for (u32 k = 0; k < 1u << log; ++k)
            for (u32 l = 0; l < 32; ++l) bad |= a.doubt(e[cells[l] + k], l) & -s64(m >> l & 1);
        for (u32 t = bad ? m : 0; t; t &= t - 1)
            for (u32 k = cells[lowest(t)], end = k + (1u << log); k < end; ++k)
                if (a.doubt(e[k], u32(lowest(t)))) a.check_write(k, lowest(t));
    }
    if (a.access == READ) {
        if (a.manner == WEAK) a.note_reading(Reading::APART, cells, m, log);
        return;
    }
    a.check_reads(cells, 1u << log, m, log);
    const bool holes = a.s.wrote(lo, hi, a.time);
    switch (log) {
    case 0: return write_apart<0>(a, cells, m, holes);
    case 1: return write_apart<1>(a, cells, m, holes);
    case 2: return write_apart<2>(a, cells, m, holes);
    case 3: return write_apart<3>(a, cells, m, holes);
    case 4: return write_apart<4>(a, cells, m, holes);
    default: return write_apart<5>(a, cells, m, holes);
    }
}

// All lanes of m read the same 1 << log cells.
void one_place(const Shown& a, u32 cell, u32 m, u32 log) {
    const u32 n = 1u << log;
    if (!a.settled(cell, cell + n - 1))
        for (u32 k = cell; k < cell + n; ++k)
            for (u32 t = a.doubt(a.s.writes[k], ~0u) ? m : 0; t; t &= t - 1) a.check_write(k, lowest(t));
    if (a.manner == WEAK) a.note_reading(Reading::ONE_PLACE, &cell, m, log);
}

// A lane's bytes are 1 << the result cells; false where they are not, or too many.
bool log_of(const Shown& a, int bytes, u32& log) {
    const u32 n = std::max(1u, u32(bytes) >> a.s.shift);
    log = u32(__builtin_ctz(n));
    return n <= 32 && !(n & (n - 1));
}

}  // namespace

void shared_offsets(Warp& w, Block& b, u32 pc, const u32* at, u32 m, int bytes, Access access, u32 manner) {
    const Shown a(w, b, pc, access, manner);
    const u32 shift = a.s.shift;
    u32 log;
    if (!log_of(a, bytes, log)) {
        for (u32 t = m; t; t &= t - 1) shared_bytes(w, b, at[lowest(t)], u64(bytes), access, manner);
        return;
    }
    alignas(64) u32 cells[32];
    for (int l = 0; l < 32; ++l) cells[l] = at[l] >> shift;
    if (access != READ && m == ~0u) {
        u32 other = 0;
        for (u32 l = 0; l < 32; ++l) other |= cells[l] ^ (cells[0] + (l << log));
        if (!other) return row(a, cells[0], log);
    }
    apart(a, cells, m, log);
}

void shared_simple(Warp& w, u32 pc, u32 at, bool in_row, int bytes, Access access, u32 manner) {
    const Shown a(w, *w.block, pc, access, manner);
    u32 log;
    if (!log_of(a, bytes, log) || (!in_row && access != READ)) {
        u32 offsets[32];
        for (int k = 0; k < 32; ++k) offsets[k] = at + (in_row ? u32(k * bytes) : 0);
        return shared_offsets(w, *w.block, pc, offsets, w.m, bytes, access, manner);
    }
    if (in_row) row(a, at >> a.s.shift, log);
    else one_place(a, at >> a.s.shift, w.m, log);
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
    const u32 first = offset >> s.shift, last = u32((offset + bytes - 1) >> s.shift), n = last - first + 1;
    if (!a.settled(first, last))
        for (u32 k = first; k <= last; ++k)
            if (s.writes[k] < 0 || u32(s.writes[k] >> 32) >= w.floor) a.check_write(k, 0);
    if (access == READ) return a.note_reads(first, n);
    a.check_reads(&first, n, 0, 31);
    if (s.wrote(first, last, a.time)) s.fill_holes(first, last);
    std::fill_n(s.writes.data() + first, n, written(a, ~0u));
}

void shared_clash(Warp& w, int lane, u64 at, s64 e) {
    Gang& g = *w.block->gang;
    Block& b = g.blocks[(at - u64(g.shared)) / g.stride];
    Shown(w, b, ~0u, WRITE, WEAK)
        .race(u32(at - u64(b.shared)) >> b.shadow->shift, lane, u32(e) >> 5 & 511, u32(e) & 31, true,
              u32(e) >> 14 & 0xffff);
}

// Shared memory: what nobody wrote, and accesses with nothing between.
#include "shadow.hpp"

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

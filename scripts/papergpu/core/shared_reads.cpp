// Who read which cell of shared memory: noted when somebody writes there and asks.
#include "shadow.hpp"

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

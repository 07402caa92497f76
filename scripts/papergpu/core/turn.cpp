// One warp's turn: its instructions, one after the other, for the group of lanes that is the current one.
#include "running.hpp"

namespace {

inline u32 executing(const Warp& w, const Inst& i, u32 m) {
    if (i.guard >= 0) m &= *(const u32*)(w.R + i.guard) ^ (0u - i.negate);
    return m;
}
inline void count(Count& c, u32 m) {
    ++c.run;
    c.lanes += u32(__builtin_popcount(m));
}

// From where the current group stands, executes at most so many instructions, as long as they are PLAIN:
// those leave the groups as they are. Nothing but this loop is what each instruction costs.
template <bool counted> __attribute__((noinline)) u64 straight(Warp& w, const Inst* code, Count* counts, u64 most) {
    u32 pc = w.pc;
    const u32 cur = w.cur;
    const Inst *at = code + pc, *const begin = at, *const end = at + most;
    for (; at != end && at->kind == PLAIN; ++at, ++pc) {
        const u32 m = executing(w, *at, cur);
        w.m = m;
        w.pc = pc;
        ++w.steps;
        if (counted) count(counts[pc], m);
        if (m) at->run(w, *at);
    }
    w.pc = pc;
    return u64(at - begin);
}

}  // namespace

Turn run(Warp& w, u64 quantum) {
    Launch& l = launch_of(w);
    const Inst* const code = l.code;
    Count* const counts = l.profile ? w.block->gang->counts : nullptr;
    const u8* const R = w.R;
    for (Group& o : w.others)
        if (o.state == POLLING) o.state = READY;
    if (!w.cur && !pick(w)) return STUCK;
    bool moved = false;
    w.yield = false;
    while (quantum) {
        u32 until = ~0u;  // where another group may be met
        if (__builtin_expect(!w.others.empty(), 0)) {
            settle(w);
            for (const Group& o : w.others)
                if ((o.state == READY || o.state == AT_SYNC) && o.pc > w.pc && o.pc < until) until = o.pc;
        }
        const u64 most = std::min<u64>(quantum, until - w.pc),
                  n = counts ? straight<true>(w, code, counts, most) : straight<false>(w, code, counts, most);
        quantum -= n;
        if (!w.others.empty()) w.fair += u32(n);
        if (n) moved = true;
        if (n == most) continue;
        --quantum;
        const Inst& i = code[w.pc];
        const u32 m = executing(w, i, w.cur);
        w.m = m;
        ++w.steps;
        // A branch is executed by all that come to it, whether they take it or not.
        if (counts) count(counts[w.pc], i.kind == BRANCH || i.kind == EXIT ? w.cur : m);
        switch (i.kind) {
        case BRANCH:
            moved = true;
            if (w.steps > l.limit)
                fault("a warp has executed %llu instructions and has not ended: the kernel hangs, or the limit is too "
                      "low for it",
                      (unsigned long long)w.steps);
            if (m == w.cur) w.pc = u32(i.imm);
            else if (!m) ++w.pc;
            else {
                w.others.push_back({w.pc + 1, w.cur & ~m, READY, 0});
                w.cur = m;
                w.pc = u32(i.imm);
            }
            break;
        case TABLE: {
            moved = true;
            const u32* to = list(w, i);
            u32 left = m;
            const u32 pc = w.pc, rest = w.cur & ~m;
            if (rest) w.others.push_back({pc + 1, rest, READY, 0});
            while (left) {
                const u32 k = get<u32>(w.R, i.a, lowest(left));
                if (k >= i.count) fault_lane(lowest(left), "brx.idx takes entry %u of a table of %u", k, i.count);
                u32 same = 0;
                for (u32 t = left; t; t &= t - 1)
                    if (get<u32>(w.R, i.a, lowest(t)) == k) same |= t & -t;
                w.others.push_back({to[k], same, READY, 0});
                left &= ~same;
            }
            if (m) {
                w.cur = 0;
                pick(w);
            } else ++w.pc;
            break;
        }
        case EXIT:
            moved = true;
            if (!m) {
                ++w.pc;
                break;
            }
            w.live &= ~m;
            w.cur &= ~m;
            for (Group& o : w.others)
                if (o.state == AT_SYNC) o.state = READY;  // they may have waited for these
            if (w.cur) ++w.pc;
            if (!w.live) {
                ended(w);
                return DONE;
            }
            if (!w.cur && !pick(w)) return STUCK;
            break;
        case SYNC: {
            if (!m) {
                ++w.pc;
                break;
            }
            u32 need = get<u32>(R, i.e, lowest(m));
            if (i.e >= l.nconstants)
                for (u32 t = m; t; t &= t - 1) need |= get<u32>(R, i.e, lowest(t));
            if (l.checks)
                for (u32 t = i.e < l.nconstants ? m & ~need : m; t; t &= t - 1)
                    if (!(get<u32>(R, i.e, lowest(t)) >> lowest(t) & 1))
                        fault_lane(lowest(t),
                                   "the mask %#x does not name lane %d, which executes this: add it to the mask, or "
                                   "keep it out",
                                   get<u32>(R, i.e, lowest(t)), lowest(t));
            if (l.checks && need & ~w.live)
                fault("the mask %#x names lane %d, which %s: name the lanes that are there", need,
                      lowest(need & ~w.live),
                      lowest(need & ~w.live) >= int(std::min<u32>(32, product(l.block) - w.first))
                          ? "the block does not have"
                          : "has ended");
            if (need & w.live & ~m) {
                stop(w, m, AT_SYNC);
                if (!w.cur) return moved ? RAN : STUCK;
                break;
            }
            moved = true;
            i.run(w, i);
            ++w.pc;
            break;
        }
        case BARRIER:
            if (!m) {
                ++w.pc;
                break;
            }
            barrier(w, i);
            if (!w.cur) return moved ? RAN : STUCK;
            moved = true;
            break;
        case CLUSTER:
            if (!m) {
                ++w.pc;
                break;
            }
            cluster_barrier(w, i);
            if (!w.cur) return moved ? RAN : STUCK;
            moved = true;
            break;
        case RETRY:
            if (m) {
                w.again = false;
                i.run(w, i);
                if (w.again) {
                    w.again = false;
                    stop(w, m, POLLING);
                    if (!w.cur) return moved ? RAN : STUCK;
                    break;
                }
            }
            moved = true;
            ++w.pc;
            break;
        }
        if (w.yield) return YIELDED;
        if (!w.cur) return moved ? RAN : STUCK;
    }
    return RAN;
}

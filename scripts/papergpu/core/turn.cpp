// One warp's turn: its instructions, one after the other, for the group of lanes that is the current one.
#include "running.hpp"
#include <cstdarg>
#include <mutex>
#include <utility>

// ---- How a finding ends a launch: it is thrown, and says in words what happened.

namespace {

thread_local int faulty_lane = -1;

}  // namespace

void fault(const char* format, ...) {
    char text[800];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    throw Fault(text);
}

void fault_lane(int lane, const char* format, ...) {
    char text[800];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    faulty_lane = lane;
    throw Fault(text);
}

void note_finding(Launch& l, const Warp* w, u32 pc, u32 lane, const char* what) {
    static std::mutex lock;
    std::lock_guard<std::mutex> held(lock);
    if (l.error[0]) return;
    if (w) {
        l.fault_pc = pc;
        l.fault_place = l.code[pc].place;
        for (int d = 0; d < 3; ++d) l.fault_block[d] = w->block->at[d];
        thread_at(l, *w, lane, l.fault_thread);
    }
    snprintf(l.error, sizeof l.error, "%s", what);
}

void note_fault(Launch& l, const Warp* w, const std::exception& error) {
    const int lane = std::exchange(faulty_lane, -1);
    note_finding(l, w, w ? w->pc : 0, lane >= 0 ? u32(lane) : w && w->m ? u32(lowest(w->m)) : 0, error.what());
}

void found(const Warp& w, u32 pc, int lane, const char* format, ...) {
    Launch& l = launch_of(w);
    if (l.error[0]) return;
    char text[800];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    note_finding(l, &w, pc, u32(lane), text);
    if (l.fatal) throw Fault(text);
}

// ---- Groups of the lanes of a warp: those that stand at one place, of which one is the current group.

bool pick(Warp& w) {
    int best = -1;
    for (size_t k = 0; k < w.others.size(); ++k)
        if (w.others[k].state == READY && (best < 0 || w.others[k].pc < w.others[best].pc)) best = int(k);
    if (best < 0) return false;
    w.pc = w.others[best].pc;
    w.cur = w.others[best].mask;
    w.others.erase(w.others.begin() + best);
    return true;
}

// Groups that meet become one; and the lowest goes first, so that those behind catch up. A group that
// waits for another to do something must not keep it from doing it: after a while it gives way.
void settle(Warp& w) {
    for (size_t k = 0; k < w.others.size();) {
        Group& o = w.others[k];
        if (o.pc == w.pc && (o.state == READY || o.state == AT_SYNC)) {
            w.cur |= o.mask;
            w.others.erase(w.others.begin() + k);
        } else ++k;
    }
    bool ready = false;
    int best = -1;
    for (size_t k = 0; k < w.others.size(); ++k)
        if (w.others[k].state == READY) {
            ready = true;
            if (w.others[k].pc < w.pc && (best < 0 || w.others[k].pc < w.others[best].pc)) best = int(k);
        }
    if (!ready) {
        w.fair = 0;
        return;
    }
    ++w.fair;
    if (w.fair > 20000) {  // the other way round for as long
        if (w.fair > 40000) {
            w.fair = 0;
            return;
        }
        if (w.fair == 20001) {
            best = -1;
            for (size_t k = 0; k < w.others.size(); ++k)
                if (w.others[k].state == READY) best = int(k);
        } else return;
    }
    if (best >= 0) {
        Group o = w.others[best];
        w.others[best] = {w.pc, w.cur, READY, 0};
        w.pc = o.pc;
        w.cur = o.mask;
    }
}

void stop(Warp& w, u32 mask, State state, u32 barrier) {
    // It will be executed again once it need not wait, and counted then.
    if (launch_of(w).profile && (state == AT_SYNC || state == POLLING)) {
        Count& c = w.block->gang->counts[w.pc];
        --c.run;
        c.lanes -= u32(__builtin_popcount(w.m));
    }
    w.others.push_back({w.pc, mask, state, barrier});
    w.cur &= ~mask;
    if (w.cur) ++w.pc;
    else pick(w);
}

// ---- Special registers.

namespace {

enum Special {
    TID_X,
    TID_Y,
    TID_Z,
    NTID_X,
    NTID_Y,
    NTID_Z,
    CTAID_X,
    CTAID_Y,
    CTAID_Z,
    NCTAID_X,
    NCTAID_Y,
    NCTAID_Z,
    LANEID,
    WARPID,
    NWARPID,
    LT,
    LE,
    EQ,
    GT,
    GE,
    DYNAMIC_SMEM,
    TOTAL_SMEM,
    SMID,
    NSMID,
    CLUSTER_CTARANK,
    CLUSTER_NCTARANK,
    CLUSTER_CTAID_X,
    CLUSTER_CTAID_Y,
    CLUSTER_CTAID_Z,
    CLUSTER_NCTAID_X,
    CLUSTER_NCTAID_Y,
    CLUSTER_NCTAID_Z,
    CLUSTERID_X,
    CLUSTERID_Y,
    CLUSTERID_Z,
    NCLUSTERID_X,
    NCLUSTERID_Y,
    NCLUSTERID_Z,
    IS_EXPLICIT
};

}  // namespace

u32 special(const Launch& l, const Warp& w, u32 which, u32 lane) {
    const Block& b = *w.block;
    const u32 t = w.first + lane;
    switch (which) {
    case TID_X: return t % l.block[0];
    case TID_Y: return t / l.block[0] % l.block[1];
    case TID_Z: return t / (l.block[0] * l.block[1]);
    case NTID_X:
    case NTID_Y:
    case NTID_Z: return l.block[which - NTID_X];
    case CTAID_X:
    case CTAID_Y:
    case CTAID_Z: return b.at[which - CTAID_X];
    case NCTAID_X:
    case NCTAID_Y:
    case NCTAID_Z: return l.grid[which - NCTAID_X];
    case LANEID: return lane;
    case WARPID: return w.id;
    case NWARPID: return u32(b.warps.size());
    case LT: return (1u << lane) - 1;
    case LE: return u32((2ull << lane) - 1);
    case EQ: return 1u << lane;
    case GT: return ~u32((2ull << lane) - 1);
    case GE: return ~((1u << lane) - 1);
    case DYNAMIC_SMEM: return l.dynamic_shared;
    case TOTAL_SMEM: return l.shared;
    case SMID: return b.linear % 4;
    case NSMID: return 4;
    case CLUSTER_CTARANK: return b.rank;
    case CLUSTER_NCTARANK: return product(l.cluster);
    case CLUSTER_CTAID_X:
    case CLUSTER_CTAID_Y:
    case CLUSTER_CTAID_Z: return b.at[which - CLUSTER_CTAID_X] % l.cluster[which - CLUSTER_CTAID_X];
    case CLUSTER_NCTAID_X:
    case CLUSTER_NCTAID_Y:
    case CLUSTER_NCTAID_Z: return l.cluster[which - CLUSTER_NCTAID_X];
    case CLUSTERID_X:
    case CLUSTERID_Y:
    case CLUSTERID_Z: return b.at[which - CLUSTERID_X] / l.cluster[which - CLUSTERID_X];
    case NCLUSTERID_X:
    case NCLUSTERID_Y:
    case NCLUSTERID_Z: return l.grid[which - NCLUSTERID_X] / l.cluster[which - NCLUSTERID_X];
    case IS_EXPLICIT: return product(l.cluster) > 1;
    }
    return 0;
}

void thread_at(const Launch& l, const Warp& w, u32 lane, u32* at) {
    for (u32 d = 0; d < 3; ++d) at[d] = special(l, w, TID_X + d, lane);
}

// ---- a turn

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
        case SYNC:
        case MEET: {
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
            if (const u32 lost = l.checks ? need & ~w.live : 0) {
                const u32 threads = std::min<u32>(32, product(l.block) - w.first);
                const u32 absent = threads < 32 ? lost >> threads << threads : 0;
                if (i.kind == SYNC || lost != absent)
                    fault("the mask %#x names lane %d, which %s: name the lanes that are there", need, lowest(lost),
                          lost == absent ? "the block does not have" : "has ended");
            }
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

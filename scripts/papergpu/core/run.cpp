// Runs a launch: blocks over threads, warps in turn, the groups of lanes within a warp.
#include "core.hpp"
#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <mutex>
#include <thread>
#include <sys/mman.h>

std::map<std::string, Handler>& handlers() {
    static std::map<std::string, Handler> all;
    return all;
}
std::map<std::string, std::string>& sources() {
    static std::map<std::string, std::string> all;
    return all;
}

namespace {

thread_local int faulty_lane = -1;

struct Memory {  // pages that are zero until they are written
    u8* at = nullptr;
    u64 size = 0;
    explicit Memory(u64 bytes) : size(std::max<u64>(bytes, 4096)) {
        void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) fault("no memory for %llu bytes of registers and shared memory", (unsigned long long)size);
        at = (u8*)p;
    }
    ~Memory() {
        if (at) munmap(at, size);
    }
    Memory(const Memory&) = delete;
};

u64 next_random(u64& s) {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

enum Turn { RAN, YIELDED, STUCK, DONE };

struct Resident {
    Gang gang;
    std::unique_ptr<Memory> memory;
    bool fresh = true;
};

u32 product(const u32* v) { return v[0] * v[1] * v[2]; }

// ---- groups of lanes

bool pick(Warp& w) {  // the lowest group that is ready becomes the current one
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

void stop(Warp& w, u32 mask, State state, u32 barrier = 0) {  // these lanes of the current group wait where it stands
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

// ---- barriers

void complete(Block& b, u32 id) {
    Barrier& bar = b.barriers[id];
    Launch& l = *b.gang->launch;
    for (Warp* w : b.warps)
        for (Group& o : w->others)
            if (o.state == AT_BARRIER && o.barrier == id) {
                const Inst& i = l.code[o.pc];
                const u32 red = i.flags >> 2 & 3;
                if (red == 1) {
                    for (int k = 0; k < 32; ++k)
                        if (o.mask >> k & 1) put<u32>(w->R, i.d, k, bar.votes);
                } else if (red) {
                    u32& p = *(u32*)(w->R + i.d);
                    p = (p & ~o.mask) | ((red == 2 ? bar.reduced == 0 : bar.reduced != 0) ? o.mask : 0);
                }
                o.state = READY;
                ++o.pc;
                if (l.checks) {
                    check_acquire(*w, bar.clock);
                    check_warp_sync(*w, o.mask);
                }
            }
    bar.arrived = 0;
    bar.needed = 0;
    bar.pc = ~0u;
    bar.votes = 0;
    bar.reduced = 0;
    std::fill(bar.clock.begin(), bar.clock.end(), 0);
}

u32 lanes_alive(Block& b) {
    u32 n = 0;
    for (Warp* w : b.warps) n += __builtin_popcount(w->live);
    return n;
}

// A barrier without a count is done when every thread that has not exited is there.
bool all_there(Block& b, u32 id) {
    Barrier& bar = b.barriers[id];
    return bar.arrived && (bar.needed ? bar.arrived >= bar.needed : bar.arrived >= lanes_alive(b));
}

void barrier(Warp& w, const Inst& i) {
    Block& b = *w.block;
    Launch& l = *b.gang->launch;
    const u32 m = w.m;
    if (i.flags & 1 && m != w.live) return stop(w, m, AT_SYNC);  // aligned: the whole warp, together
    const u32 id = get<u32>(w.R, i.a, lowest(m)), count = i.flags & 16 ? get<u32>(w.R, i.b, lowest(m)) : 0;
    if (id > 15) fault("there is no barrier %u of a block: use one from 0 to 15", id);
    if (count & 31)
        fault("barrier %u is given %u threads, which are not whole warps: give a multiple of 32", id, count);
    if (count > b.warps.size() * 32)
        fault("barrier %u waits for %u threads, and the block has %u: give as many as come, or it never opens", id,
              count, product(l.block));
    Barrier& bar = b.barriers[id];
    if (bar.arrived && bar.needed != count)
        fault("barrier %u waits for %u threads here, and for %u where other threads of the block wait, @%u: give both "
              "the same count",
              id, count ? count : product(l.block), bar.needed ? bar.needed : product(l.block), bar.pc);
    // Roles of a block that has been split meet at other barriers from wherever they are.
    if (l.checks && i.flags & 1 && !count && !id && bar.arrived && bar.pc != w.pc)
        fault("threads of one block wait at barrier %u in two places, here and @%u: move it out of the branch", id,
              bar.pc);
    if (l.checks && !count && lanes_alive(b) != product(l.block))
        fault("barrier %u is not reached by %u of the block's %u threads, which have ended: let them reach it, then "
              "return",
              id, product(l.block) - lanes_alive(b), product(l.block));
    bar.needed = count;
    bar.pc = w.pc;
    bar.arrived += count && m == w.live ? 32 : __builtin_popcount(m);
    if (i.flags >> 2 & 3) {
        u32 p = predicate(w, i.c);
        if (i.flags & 32) p = ~p;
        const u32 red = i.flags >> 2 & 3;
        bar.votes += __builtin_popcount(p & m);
        bar.reduced += red == 2 ? __builtin_popcount(~p & m) : __builtin_popcount(p & m);
    }
    if (l.checks) check_release(w, bar.clock);
    const bool arrive = i.flags & 2;
    if (arrive) {
        if (l.checks) check_warp_sync(w, m);
        ++w.pc;
        if (all_there(b, id)) complete(b, id);
        return;
    }
    w.others.push_back({w.pc, m, AT_BARRIER, id});
    w.cur &= ~m;
    if (all_there(b, id)) complete(b, id);
    if (w.cur) ++w.pc;
    else pick(w);
}

void cluster_barrier(Warp& w, const Inst& i) {  // flags: 1 arrive, 2 wait
    Block& b = *w.block;
    Gang& g = *b.gang;
    Launch& l = *g.launch;
    const u32 m = w.m;
    if (i.flags & 4 && m != w.live) return stop(w, m, AT_SYNC);
    Gang::Cluster& c = g.clusters[b.cluster / product(l.cluster)];
    if (i.flags & 1) {
        w.phase = c.generation + 1;
        c.arrived += __builtin_popcount(m);
        if (l.checks) check_release(w, c.clock);
        u32 all = 0;
        for (u32 k = 0; k < product(l.cluster); ++k) all += lanes_alive(g.blocks[b.cluster + k]);
        if (c.arrived >= all) {
            c.arrived = 0;
            ++c.generation;
            c.seen = c.clock;
            for (u32 k = 0; k < product(l.cluster); ++k)
                for (Warp* v : g.blocks[b.cluster + k].warps)
                    for (Group& o : v->others)
                        if (o.state == AT_CLUSTER) {
                            o.state = READY;
                            ++o.pc;
                            if (l.checks) {
                                check_acquire(*v, c.seen);
                                check_warp_sync(*v, o.mask);
                            }
                        }
        }
    }
    if (i.flags & 2 && s32(c.generation - w.phase) < 0) return stop(w, m, AT_CLUSTER);
    if (i.flags & 2 && l.checks) {
        check_acquire(w, c.seen);
        check_warp_sync(w, m);
    }
    ++w.pc;
}

void ended(Warp& w) {
    Block& b = *w.block;
    Launch& l = *b.gang->launch;
    (void)l;
    matrix_end(w);
    w.done = true;
    tensor_warp_end(w);
    async_warp_end(w);
    --b.alive;
    if (!b.alive) {
        tensor_end(b);
        async_end(b);
        if (l.checks) check_end(b);
        return;
    }
    for (u32 id = 0; id < 16; ++id)
        if (b.barriers[id].arrived && !b.barriers[id].needed) {
            if (l.checks)
                fault("warp %u ends here, and the other threads of its block wait for it at barrier %u, @%u: let it "
                      "reach the barrier, then return",
                      w.id, id, b.barriers[id].pc);
            if (all_there(b, id)) complete(b, id);
        }
}

// ---- one warp's turn

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
        if (counts) count(counts[w.pc], m);
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
            if (l.checks) check_warp_sync(w, m);
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

// ---- blocks

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

void begin(Resident& r, Launch& l, u64 number, Count* counts) {  // blocks of the gang: `number`-th of the launch
    Gang& g = r.gang;
    g.counts = counts;
    const u32 per = product(l.cluster), threads = product(l.block), nwarps = (threads + 31) / 32;
    const u32 n = l.cooperative ? product(l.grid) : per;
    if (r.fresh) {
        g.launch = &l;
        g.blocks.resize(n);
        g.warps.resize(size_t(n) * nwarps);
        g.clusters.resize(n / per);
        g.stride = (u64(l.shared) + 1023) / 1024 * 1024;
        g.local_bytes = u64(n) * nwarps * 32 * l.local;
        const u64 regs = (u64(l.nregs) + 63) / 64 * 64;
        r.memory = std::make_unique<Memory>(1024 + n * g.stride + 4096 + g.local_bytes + 64 + n * nwarps * regs +
                                            n * u64(l.tensor));
        u8* at = (u8*)((u64(r.memory->at) + 1023) / 1024 * 1024);
        g.shared = at;
        at += n * g.stride + 4096;
        g.local = at;
        at += (g.local_bytes + 63) / 64 * 64;
        for (Warp& w : g.warps) {
            w.R = at;
            at += regs;
        }
        for (Block& b : g.blocks) {
            b.tensor = l.tensor ? at : nullptr;
            at += l.tensor;
            b.async = nullptr;
            b.shadow = nullptr;
        }
        for (Warp& w : g.warps) {
            w.async = nullptr;
            w.matrix = nullptr;
        }
    }
    g.rng = (l.seed + 1) * 0x9e3779b97f4a7c15ull ^ (number + 1) * 0xbf58476d1ce4e5b9ull;
    if (!g.rng) g.rng = 1;
    g.order = 0;
    g.holder = 0;
    g.held = 0;
    for (auto& c : g.clusters) {
        c.arrived = 0;
        c.generation = 0;
        std::fill(c.clock.begin(), c.clock.end(), 0);
        std::fill(c.seen.begin(), c.seen.end(), 0);
    }
    const u32 cl[3] = {l.grid[0] / l.cluster[0], l.grid[1] / l.cluster[1], l.grid[2] / l.cluster[2]};
    for (u32 k = 0; k < n; ++k) {
        Block& b = g.blocks[k];
        const u64 c = l.cooperative ? k / per : number;
        const u32 q = k % per;
        const u32 ci[3] = {u32(c % cl[0]), u32(c / cl[0] % cl[1]), u32(c / (u64(cl[0]) * cl[1]))};
        const u32 ri[3] = {q % l.cluster[0], q / l.cluster[0] % l.cluster[1], q / (l.cluster[0] * l.cluster[1])};
        for (int d = 0; d < 3; ++d) b.at[d] = ci[d] * l.cluster[d] + ri[d];
        b.gang = &g;
        b.rank = q;
        b.cluster = k - q;
        b.linear = (b.at[2] * l.grid[1] + b.at[1]) * l.grid[0] + b.at[0];
        b.shared = g.shared + k * g.stride;
        b.alive = nwarps;
        b.tensor_memory.reset();
        memset(b.shared, 0xff, l.shared);
        if (l.reserved) memset(b.shared + l.reserved - 1, 0, 288);
        b.warps.resize(nwarps);
        for (auto& bar : b.barriers) {
            bar.arrived = bar.needed = bar.votes = bar.reduced = 0;
            bar.pc = ~0u;
            std::fill(bar.clock.begin(), bar.clock.end(), 0);
        }
        for (u32 v = 0; v < nwarps; ++v) {
            Warp& w = g.warps[size_t(k) * nwarps + v];
            b.warps[v] = &w;
            w.block = &b;
            w.launch = &l;
            w.id = v;
            w.index = k * nwarps + v;
            w.first = v * 32;
            w.live = w.cur = threads - w.first >= 32 ? ~0u : (1u << (threads - w.first)) - 1;
            w.pc = 0;
            w.again = w.yield = w.done = false;
            w.steps = 0;
            w.patience = 0;
            w.fair = 0;
            w.carry = 0;
            w.phase = 0;
            w.others.clear();
            w.local = g.local + u64(w.index) * 32 * l.local;
            matrix_begin(w);
            if (r.fresh) {
                memcpy(w.R, l.constants, l.nconstants);
                if (q)
                    for (u32 s = 0; s < l.nshared_constants;
                         ++s) {  // addresses of shared memory carry the block's rank
                        const u32 at = l.shared_constants[s] & ~1u;
                        const bool wide = l.shared_constants[s] & 1;
                        for (int z = 0; z < 32; ++z)
                            if (wide) ((u64*)(w.R + at))[z] += u64(q) << 24;
                            else ((u32*)(w.R + at))[z] += q << 24;
                    }
            }
            for (u32 s = 0; s < l.nspecials; ++s)
                for (u32 z = 0; z < 32; ++z)
                    put<u32>(w.R, l.specials[2 * s + 1], z, special(l, w, l.specials[2 * s], z));
        }
        async_begin(b);
        if (l.checks) check_begin(b);
    }
    r.fresh = false;
}

[[noreturn]] void deadlock(Gang& g) {
    std::string said;
    int n = 0;
    Warp* first = nullptr;
    Launch& l = *g.launch;
    for (Warp& w : g.warps)
        for (Group& o : w.others) {
            if (!first) {
                first = &w;
                w.pc = o.pc;
                w.m = o.mask;
            }
            if (++n > 6) continue;
            char t[200];
            const Inst& i = l.code[o.pc];
            const char* what = "waits";
            std::string more;
            if (o.state == AT_BARRIER) {
                what = "waits at barrier";
                more = " " + std::to_string(o.barrier) + ", where " +
                       std::to_string(w.block->barriers[o.barrier].arrived) + " threads are of " +
                       std::to_string(w.block->barriers[o.barrier].needed ? w.block->barriers[o.barrier].needed
                                                                          : lanes_alive(*w.block));
            } else if (o.state == AT_SYNC) {
                what = "waits for other lanes of its warp";
            } else if (o.state == AT_CLUSTER) what = "waits for its cluster";
            else if (o.state == POLLING) {
                w.m = o.mask;
                what = "waits for";
                more = matrix_waiting(w, i);
                if (more.empty()) more = tensor_waiting(w, i);
                if (more.empty()) more = async_waiting(w, i);
                more = " " + more;
            }
            snprintf(t, sizeof t, "%swarp %u of block (%u, %u, %u), lanes %#x, @%u %s", said.empty() ? "" : "; ", w.id,
                     w.block->at[0], w.block->at[1], w.block->at[2], o.mask, o.pc, what);
            said += t + more;
        }
    if (n > 6) said += "; and " + std::to_string(n - 6) + " more";
    throw Fault("no thread can go on: " + said + ": let those that are waited for come there, or wait for fewer");
}

Warp* running(Gang& g, Warp* set, bool write) {
    static thread_local Warp* now;
    if (write) now = set;
    (void)g;
    return now;
}

Turn turn(Gang& g, u64 slice) {
    Launch& l = *g.launch;
    u64 spent = 0;
    std::vector<u32> order(g.warps.size());
    for (u32 k = 0; k < order.size(); ++k) order[k] = k;
    if (l.schedule != ROBIN || l.seed)
        for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[next_random(g.rng) % k]);
    u64 quiet = 0;
    bool spun = false;
    while (spent < slice) {
        bool ran = false, yielded = false, alive = false;
        if (l.schedule == RANDOM)
            for (size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[next_random(g.rng) % k]);
        for (u32 k : order) {
            Warp& w = g.warps[k];
            if (w.done) continue;
            running(g, &w, true);
            const u64 before = w.steps;
            const u64 quantum = l.schedule == FAR ? slice : l.schedule == RANDOM ? 1 + next_random(g.rng) % 200 : 256;
            const Turn t = run(w, quantum);
            spent += w.steps - before;
            if (t == DONE || t == RAN) ran = true;
            else if (t == YIELDED) yielded = true;
            if (!w.done) alive = true;
        }
        if (!alive) break;
        if (!ran) {
            running(g, nullptr, true);
            if (!async_land(g) && !yielded) deadlock(g);
        } else if (++quiet % 4096 == 0) async_land(g);
        spun |= yielded;
        if (spun && spent > 50'000) break;  // what is waited for may be another block's to do
    }
    __atomic_fetch_add(&l.steps, spent, __ATOMIC_RELAXED);
    for (const Warp& w : g.warps)
        if (!w.done) return RAN;
    return DONE;
}

void work(Launch& l, std::atomic<u64>& next, const std::vector<u32>& order, u64 total, std::atomic<bool>& stop,
          std::mutex& lock) {
    std::vector<std::unique_ptr<Resident>> all, spare;
    Resident* now = nullptr;
    // As many at a time as a GPU could have, and as memory allows.
    const u64 each =
        u64(product(l.cluster)) * (l.shared + l.tensor + (product(l.block) + 31) / 32 * u64(l.nregs + 32 * l.local));
    const u64 most = std::clamp<u64>((2ull << 30) / std::max<u64>(each, 1), 2, 2048);
    // Each thread counts on its own, and adds what it has counted at the end.
    std::vector<Count> own(l.profile ? l.ncode : 0);
    Count* const counts = own.data();
    struct Added {
        Launch& l;
        std::vector<Count>& own;
        std::mutex& lock;
        ~Added() {
            std::lock_guard<std::mutex> held(lock);
            const u64* from = (const u64*)own.data();
            u64* to = (u64*)l.counts;
            for (size_t k = 0; k < own.size() * (sizeof(Count) / 8); ++k) to[k] += from[k];
        }
    };
    try {
        Added added{l, own, lock};
        for (;;) {
            if (stop) return;
            bool finished = false;
            for (size_t k = 0; k < all.size() && !stop; ++k) {
                now = all[k].get();
                if (turn(now->gang, 2'000'000) == DONE) {
                    spare.push_back(std::move(all[k]));
                    all.erase(all.begin() + k);
                    --k;
                    finished = true;
                }
            }
            // Those that have not ended may wait for others that have not begun.
            if (all.empty() || (!finished && all.size() < most)) {
                const u64 n = next++;
                if (n < total) {
                    if (spare.empty()) {
                        spare.push_back(std::make_unique<Resident>());
                        spare.back()->gang.cancel = [&next, &order, total]() -> s64 {
                            const u64 k = next++;
                            return k < total ? s64(order.empty() ? k : order[k]) : -1;
                        };
                    }
                    all.push_back(std::move(spare.back()));
                    spare.pop_back();
                    now = all.back().get();
                    begin(*now, l, order.empty() ? n : order[n], counts);
                } else if (all.empty()) return;
            }
        }
    } catch (const std::exception& e) {
        std::lock_guard<std::mutex> held(lock);
        if (stop.exchange(true)) return;
        Warp* w = now ? running(now->gang, nullptr, false) : nullptr;
        if (now && !w)
            for (Warp& v : now->gang.warps)
                if (!v.done) {
                    w = &v;
                    break;
                }
        snprintf(l.error, sizeof l.error, "%s", e.what());
        if (w) {
            l.fault_pc = w->pc;
            l.fault_place = l.code[w->pc].place;
            for (int d = 0; d < 3; ++d) l.fault_block[d] = w->block->at[d];
            const u32 lane = faulty_lane >= 0 ? faulty_lane : w->m ? lowest(w->m) : 0;
            for (int d = 0; d < 3; ++d) l.fault_thread[d] = special(l, *w, TID_X + d, lane);
        }
        faulty_lane = -1;
    }
}

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

u64 random_number(Gang& g) { return next_random(g.rng); }

Block& cluster_block(Warp& w, u32 rank) {
    Block& b = *w.block;
    if (rank >= product(launch_of(w).cluster))
        fault("there is no block %u in a cluster of %u", rank, product(launch_of(w).cluster));
    return b.gang->blocks[b.cluster + rank];
}

#pragma GCC visibility push(default)
extern "C" {
Handler papergpu_handler(const char* name) {
    auto& all = handlers();
    auto it = all.find(name);
    return it == all.end() ? nullptr : it->second;
}
// All names, each on a line.
const char* papergpu_names() {
    static std::string all;
    all.clear();
    for (auto& [name, run] : handlers()) all += name + "\n";
    return all.c_str();
}
u32 papergpu_sizes(u32 which) {
    const u32 sizes[] = {sizeof(Inst), sizeof(Launch), sizeof(Count), sizeof(Alloc)};
    return sizes[which];
}

// 0, or 1 with launch.error and where it was.
int papergpu_launch(Launch* given) {
    Launch& l = *given;
    l.error[0] = 0;
    l.steps = 0;
    const u64 blocks = u64(product(l.grid)), total = l.cooperative ? 1 : blocks / product(l.cluster);
    if (l.checks) check_new_launch(l);
    std::vector<u32> order;
    if (l.seed) {
        order.resize(total);
        for (u64 k = 0; k < total; ++k) order[k] = u32(k);
        u64 s = l.seed * 0x9e3779b97f4a7c15ull | 1;
        for (u64 k = total; k > 1; --k) std::swap(order[k - 1], order[next_random(s) % k]);
    }
    std::atomic<u64> next{0};
    std::atomic<bool> stop{false};
    std::mutex lock;
    const u64 n = std::max<u64>(1, std::min<u64>(l.threads, total));
    if (n == 1) work(l, next, order, total, stop, lock);
    else {
        std::vector<std::thread> pool;
        for (u64 k = 0; k < n; ++k) pool.emplace_back([&] { work(l, next, order, total, stop, lock); });
        for (auto& t : pool) t.join();
    }
    if (l.checks) check_end_launch(l);
    return stop ? 1 : 0;
}
}
#pragma GCC visibility pop

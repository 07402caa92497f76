// Barriers of a block and of a cluster, and what the end of a warp does to them.
#include "running.hpp"

u32 lanes_alive(const Block& b) {
    u32 n = 0;
    for (const Warp* w : b.warps) n += __builtin_popcount(w->live);
    return n;
}

namespace {

void complete(Block& b, u32 id) {
    Barrier& bar = b.barriers[id];
    Launch& l = *b.gang->launch;
    if (l.checks) check_meet(b, id);
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

// A barrier without a count is done when every thread that has not exited is there.
bool all_there(Block& b, u32 id) {
    const Barrier& bar = b.barriers[id];
    return bar.arrived && (bar.needed ? bar.arrived >= bar.needed : bar.arrived >= lanes_alive(b));
}

}  // namespace

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
        if (launch_of(w).checks) check_effect(w);
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

void cluster_barrier(Warp& w, const Inst& i) {
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
    matrix_end(w);
    w.done = true;
    tensor_warp_end(w);
    async_warp_end(w);
    --b.alive;
    if (!b.alive) {
        tensor_end(b);
        async_end(b);
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

Block& cluster_block(Warp& w, u32 rank) {
    Block& b = *w.block;
    if (rank >= product(launch_of(w).cluster))
        fault("there is no block %u in a cluster of %u", rank, product(launch_of(w).cluster));
    return b.gang->blocks[b.cluster + rank];
}

// ---- The turns of a gang: which of its warps goes on when, and when what is in flight lands.

Warp* running(Warp* set, bool write) {
    static thread_local Warp* now;
    if (write) now = set;
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
            running(&w, true);
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
            running(nullptr, true);
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

u64 random_number(Gang& g) { return next_random(g.rng); }

// ---- What is said where no thread can go on.

void deadlock(Gang& g) {
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

// The turns of a gang: which of its warps goes on when, and when what is in flight lands.
#include "running.hpp"

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

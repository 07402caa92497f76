// Groups of the lanes of a warp: those that stand at one place, of which one is the current group.
#include "running.hpp"

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

// A launch executed a few instructions at a time, for somebody who looks on: a page in a browser.
#include "running.hpp"

namespace {

// A warp as it stands (the page that reads it has the same layout).
struct Standing {
    u64 registers, shared, steps;
    u32 pc, lanes, live, done, block, warp;
    u32 ngroups;  // that are not the current one, of which eight are told
    struct {
        u32 pc, lanes, state, barrier;
    } groups[8];
};
// What papergpu_step says.
enum { WENT_ON, AT_BREAKPOINT, WAITS, ENDED, FOUND };

struct Seat {  // a gang, with what its warps did since all had a turn
    Resident resident;
    u32 next = 0;
    bool ran = false, yielded = false, over = false;
};

struct Stepper {
    Launch& l;
    std::vector<std::unique_ptr<Seat>> seats;
    Samples samples;
    u64 begun = 0, total;
    u32 each, turn = 0, last = 0;  // warps of a gang; whose turn it is; who had the last one
    u64 left = 0, rng;             // instructions that a warp has left in its turn
    std::function<s64()> cancel = [this]() -> s64 { return begun < total ? s64(begun++) : -1; };

    explicit Stepper(Launch& given) : l(given), samples(l.ncode), rng(l.seed * 2 + 1) {
        total = product(l.grid) / gang_blocks(l);
        each = u32(gang_blocks(l)) * ((product(l.block) + 31) / 32);
        const u64 fit = std::clamp<u64>(ROOM / std::max<u64>(gang_bytes(l), 1), 1, 256);
        while (begun < total && seats.size() < fit) {
            seats.push_back(std::make_unique<Seat>());
            seat(*seats.back());
        }
    }
    void seat(Seat& s) {
        s.resident.gang.cancel = cancel;
        s.next = 0;
        begin(s.resident, l, begun++, l.counts, &samples);
    }
    Warp& warp(u32 k) { return seats[k / each]->resident.gang.warps[k % each]; }

    // One instruction of warp k, at most; false if it could not go on.
    bool once(u32 k) {
        Warp& w = warp(k);
        Seat& s = *seats[k / each];
        if (w.done) return false;
        running(&w, true);
        last = k;
        samples.kept[2 * w.pc] = samples.kept[2 * w.pc + 1] = 0;  // so that the last access is the one that is kept
        const u64 before = w.steps;
        const Turn did = run(w, 1);
        l.steps += w.steps - before;
        s.ran |= did == RAN || did == DONE;
        s.yielded |= did == YIELDED;
        return did != STUCK;
    }
    // All warps of a gang had their turn: the next gang takes the place of one that has ended.
    void round(Seat& s) {
        Gang& g = s.resident.gang;
        s.next = 0;
        if (std::all_of(g.warps.begin(), g.warps.end(), [](const Warp& w) { return w.done; })) {
            if (begun < total) seat(s);
            else s.over = true;
        } else if (!s.ran) {
            running(nullptr, true);
            if (!async_land(g) && !s.yielded) deadlock(g);
        }
        s.ran = s.yielded = false;
    }
    int step(u64 most, s64 only, const u8* breaks) {
        for (const u64 end = l.steps + most; l.steps < end;) {
            u32 k = u32(only);
            if (only < 0) {
                u32 looked = 0;
                while (seats[turn]->over) {
                    if (++looked == seats.size()) return ENDED;
                    turn = (turn + 1) % seats.size();
                }
                k = turn * each + seats[turn]->next;
            }
            const bool went = once(k);
            if (only >= 0 && !went && (warp(k).done || !async_land(seats[k / each]->resident.gang)))
                return warp(k).done ? ENDED : WAITS;
            if (only < 0 && (!went || !left--)) {
                left = l.schedule == FAR ? ~0ull : l.schedule == RANDOM ? next_random(rng) % 200 : 0;
                if (++seats[turn]->next == each) round(*seats[turn]);
                turn = (turn + 1) % seats.size();
            }
            if (l.error[0]) return FOUND;
            const Warp& w = warp(k);
            if (went && breaks && w.cur && breaks[w.pc >> 3] >> (w.pc & 7) & 1) return AT_BREAKPOINT;
        }
        return WENT_ON;
    }
};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
// A launch that has not begun to go; null if it is not possible, and launch.error says why.
Stepper* papergpu_step_begin(Launch* l) {
    l->error[0] = 0;
    l->steps = 0;
    if (l->checks) check_new_launch(*l);
    try {
        return new Stepper(*l);
    } catch (const std::exception& e) {
        note_finding(*l, nullptr, 0, 0, e.what());
        return nullptr;
    }
}
void papergpu_step_end(Stepper* s) {
    Launch& l = s->l;
    delete s;
    if (l.checks) check_end_launch(l);
}
// At most so many instructions, of all warps in turn or only of one; ends early behind an instruction that stands
// before one whose bit of `breaks` is set.
int papergpu_step(Stepper* s, u32 most, s32 only, const u8* breaks) {
    try {
        return s->step(most, only, breaks);
    } catch (const std::exception& e) {
        const Warp* w = running(nullptr, false);
        note_fault(s->l, w ? w : &s->warp(s->last), e);
        return FOUND;
    }
}
u32 papergpu_step_warps(Stepper* s) { return u32(s->seats.size()) * s->each; }
u32 papergpu_step_last(Stepper* s) { return s->last; }
const Standing* papergpu_step_warp(Stepper* s, u32 k) {
    static Standing t;
    const Warp& w = s->warp(k);
    t = {u64(w.R), u64(w.block->shared), w.steps, w.pc, w.cur, w.live, w.done, w.block->linear,
         w.id,     u32(w.others.size()), {}};
    for (u32 g = 0; g < std::min(8u, t.ngroups); ++g)
        t.groups[g] = {w.others[g].pc, w.others[g].mask, w.others[g].state, w.others[g].barrier};
    return &t;
}
// The access that an instruction made when it was executed last, of global or of shared memory; null if it made none.
const Sample* papergpu_step_access(Stepper* s, u32 pc, u32 shared) {
    const size_t slot = 2 * size_t(pc) + shared;
    return s->samples.kept[slot] ? &s->samples.all[s->samples.place[slot]] : nullptr;
}
}
#pragma GCC visibility pop

// What the parts that run a launch share: a warp's groups of lanes, its block's barriers, its turns.
#pragma once
#include "samples.hpp"
#include <algorithm>

enum Turn { RAN, YIELDED, STUCK, DONE };

static inline u64 next_random(u64& s) {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

// ---- groups.cpp: of the lanes of a warp those that stand at one place
bool pick(Warp& w);  // the lowest group that is ready becomes the current one; false if none is
void settle(Warp& w);
void stop(Warp& w, u32 mask, State state, u32 barrier = 0);  // these lanes of the current group wait where it stands

// ---- barriers.cpp
u32 lanes_alive(const Block& b);
void barrier(Warp& w, const Inst& i);
void cluster_barrier(Warp& w, const Inst& i);  // flags: 1 arrive, 2 wait
void ended(Warp& w);                           // none of its lanes is left

// ---- turn.cpp: a warp executes at most so many instructions
Turn run(Warp& w, u64 quantum);

// ---- special.cpp: what a special register, by its number in papergpu/program.py, is for a lane
u32 special(const Launch& l, const Warp& w, u32 which, u32 lane);
void thread_at(const Launch& l, const Warp& w, u32 lane, u32* at);  // its %tid

// ---- resident.cpp: blocks that run at the same time, with their memory
struct Memory {  // pages that are zero until they are written
    u8* at = nullptr;
    u64 size = 0;
    explicit Memory(u64 bytes);
    ~Memory();
    Memory(const Memory&) = delete;
};
struct Resident {
    Gang gang;
    std::unique_ptr<Memory> memory;
    bool fresh = true;
};
// Blocks of the gang: `number`-th of the launch.
void begin(Resident& r, Launch& l, u64 number, Count* counts, Samples* samples);

// ---- hangs.cpp
[[noreturn]] void deadlock(Gang& g);  // a finding that says who waits for what

// ---- faults.cpp
int take_faulty_lane();  // the lane that fault_lane named in this thread, or -1; it is forgotten then

// ---- schedule.cpp
Warp* running(Warp* set, bool write);  // the warp whose turn it is in this thread, or null
Turn turn(Gang& g, u64 slice);         // of a gang, for about so many instructions

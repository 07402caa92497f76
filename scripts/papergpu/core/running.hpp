// What the parts that run a launch share: a warp's groups of lanes, its block's barriers, its turns.
#pragma once
#include "core.hpp"
#include <algorithm>

// ---- Of each instruction the request that costs most beyond its ideal, with the addresses of its lanes.

// One request, as Python reads it (papergpu/records.py has the same layout). `at` is an address of global
// memory, or a byte of the block's shared memory, and 0 of lanes that took no part; `passes` are sectors of
// global memory, or wavefronts of shared memory.
struct Sample {
    u64 at[32];
    u32 mask, size, passes, ideal;
    u32 block[3], warp;
    u32 instruction;
    u8 space, does, unused[2];
};
static_assert(sizeof(Sample) == 296);

// Those of a launch, or of one thread of the host. An instruction has one of global memory, slot 2 * pc, and
// one of shared memory behind it.
struct Samples {
    std::vector<u64> kept;  // the rank of what a slot has, 0 where it has nothing
    std::vector<u32> place;
    std::vector<Sample> all;
    explicit Samples(u32 instructions) : kept(2 * size_t(instructions)), place(kept.size()) {}

    // The more beyond its ideal, the higher; of equals the first block of the grid, then its first warp. No
    // two warps share a rank, so that it is no matter in which order threads of the host come.
    static u64 rank(u32 passes, u32 ideal, u64 early) {
        return u64(passes > ideal ? passes - ideal : 0) << 48 | early;
    }
    static u64 early(u32 block, u32 warp) { return (1ull << 48) - 1 - (u64(block) << 5 | warp); }
    // Where the sample of a slot is to be written, which from now on has this rank.
    Sample& take(size_t slot, u64 rank) {
        if (!kept[slot]) {
            place[slot] = u32(all.size());
            all.emplace_back();
        }
        kept[slot] = rank;
        return all[place[slot]];
    }
    void merge(const Samples& other) {
        for (size_t k = 0; k < kept.size(); ++k)
            if (other.kept[k] > kept[k]) take(k, other.kept[k]) = other.all[other.place[k]];
    }
    // All of them in order of their slots; returns how many.
    u32 write(Sample* to) const {
        u32 n = 0;
        for (size_t k = 0; k < kept.size(); ++k)
            if (kept[k]) to[n++] = all[place[k]];
        return n;
    }
};

// ---- what runs a launch

enum Turn { RAN, YIELDED, STUCK, DONE };

static inline u64 next_random(u64& s) {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

// ---- turn.cpp: of the lanes of a warp those that stand at one place
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

// ---- turn.cpp: what a special register, by its number in papergpu/program.py, is for a lane
u32 special(const Launch& l, const Warp& w, u32 which, u32 lane);
// Keeps a finding, if it is the first of its launch.
void note_finding(Launch& l, const Warp* w, u32 pc, u32 lane, const char* what);
// The same of what was thrown while a warp, or none that is known, had its turn.
void note_fault(Launch& l, const Warp* w, const std::exception& error);
void thread_at(const Launch& l, const Warp& w, u32 lane, u32* at);  // its %tid

// ---- launch.cpp: blocks that run at the same time, with their memory
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
// Blocks of a gang of the launch, and bytes that they take.
u64 gang_blocks(const Launch& l);
u64 gang_bytes(const Launch& l);
// Blocks of the gang: `number`-th of the launch.
void begin(Resident& r, Launch& l, u64 number, Count* counts, Samples* samples);

// ---- barriers.cpp
[[noreturn]] void deadlock(Gang& g);  // a finding that says who waits for what

// ---- barriers.cpp
Warp* running(Warp* set, bool write);  // the warp whose turn it is in this thread, or null
Turn turn(Gang& g, u64 slice);         // of a gang, for about so many instructions

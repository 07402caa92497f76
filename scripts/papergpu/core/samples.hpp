// Of each instruction the request that costs most beyond its ideal, with the addresses of its lanes.
#pragma once
#include "core.hpp"

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

// What the checks keep: clocks, who touched which memory, and what was published where.
//
// Time is counted for a gang as a whole: a warp's own entry of its clock is drawn from the gang's
// counter, so that times of different warps can be compared. After a barrier of the whole block all
// that was done before is older than `Warp::floor`, which makes most checks one comparison.
#pragma once
#include "core.hpp"
#include <atomic>
#include <mutex>
#include <unordered_map>

// How an access takes part in races: two that are STRONG or ATOMIC do not race; ASYNC is a copy that
// landed on behalf of a warp, and of no lane.
// In global memory, SCALAR is a weak load of one place by all lanes: between warps of one block it and
// an atomic pass, as every warp loads for itself what is one value to Triton's language (its tutorial on
// layer norm reads a count so, and changes it by an atomic).
enum Manner : u32 { WEAK, STRONG, CHANGED, ASYNC, SCALAR };

// What one warp did at one time with one instruction (for reads: the first one).
struct Epoch {
    u32 gang, time, block, warp, pc, manner;
};

struct Record;
// Something that is released and acquired: an address, or for wide atomics a page of them.
struct Sync {
    std::vector<const Record*> log;
    std::unordered_map<u32, std::vector<u32>> of;  // of a gang: its places in the log
    std::unordered_map<u32, Clock> joined;         // of a gang: all that it released
};
struct Seen {
    Sync* sync;
    u32 upto;
};  // the first `upto` entries of a log
struct Record {
    u32 gang, warp;
    Clock clock;
    std::vector<Seen> seen;
};
struct Import {
    u32 warp, time;
    Seen what;
};

// A lane writes `bytes` at `at` that another thread wrote, with nothing between: `what` says who.
struct Clash {
    u64 at, what;
    u32 bytes;
};
struct Checker {  // of a gang
    u32 time = 0, gang = 0;
    std::vector<std::unique_ptr<Shadow>> shadows;
    struct Fences {
        Clock any, wide;
    };
    std::vector<Fences> fences;             // of each block: what was fenced, and for other blocks
    std::unordered_map<u64, Clock> shared;  // addresses of shared memory that were released
    std::vector<Import> imports;            // what warps know of other gangs
    struct Own {                            // of each warp
        struct {
            u32 id, time;
        } reads[2] = {};  // of several places, and scalar
        struct {
            u32 id, time, pc;
        } writes[8] = {};
        u32 fine[64] = {};          // epochs that are known to be seen
        std::vector<Seen> pending;  // acquired as soon as there is a fence or a barrier
        std::vector<u64> pending_shared;
        std::unordered_map<u64, u32> known;  // of (gang, warp): a time that is seen
        const Record* record = nullptr;
    };
    std::vector<Own> own;
    std::vector<Clash> clashes[32];   // of the lanes in Warp::clash
    struct Region* region = nullptr;  // of global memory, accessed last
    u32 ids = 0, ids_end = 0;         // numbers of epochs not yet given out
    u32 ids_begin = 0;                // those of this gang are none below it
};

// What is kept of the global memory of one launch.
struct Region {
    u64 lo, hi, start;
    u32 name;
    std::unique_ptr<std::atomic<struct Page*>[]> pages;  // three for each 4096 bytes: writes, reads, reads by others
    u64 count;
};
constexpr u32 PIECE = 1 << 20, PIECES = 4000;
struct Tracked {
    u32 shift = 2;
    std::vector<Region> regions;
    std::atomic<u32> gangs{0}, epochs{64};
    std::unique_ptr<std::atomic<Epoch*>[]> table;  // of PIECE epochs each
    std::mutex atomics;                            // held while one is noted and done, and taken before `lock`
    std::mutex lock;                               // of the following
    std::unordered_map<u64, Sync*> syncs;
    std::deque<Sync> all;
    std::deque<Record> records;
    std::atomic<bool> any{false};
    Tracked() : table(new std::atomic<Epoch*>[PIECES]()) {}
    ~Tracked();
};

static inline Checker& checker(const Warp& w) { return *w.block->gang->checker; }
static inline Tracked& tracked(const Warp& w) { return *(Tracked*)launch_of(w).shadow; }
static inline u32& own_time(Warp& w) { return w.clock[w.index]; }

void clocks_new_floor(Warp& w);
void note_clash(Warp& w, int lane, u64 at, u32 bytes, u64 what);
[[noreturn]] void shared_clash(Warp& w, int lane, u64 at, s64 entry);
[[noreturn]] void global_clash(Warp& w, int lane, u64 at, u32 id);
void shared_access(Warp& w, u32 pc, const u64* at, u32 mask, int bytes, Access access, u32 manner);
// The same for offsets to the shared memory of block b.
void shared_offsets(Warp& w, Block& b, u32 pc, const u32* at, u32 mask, int bytes, Access access, u32 manner);
void shared_simple(Warp& w, u32 pc, u32 at, bool row, int bytes, Access access, u32 manner);
void shared_bytes(Warp& w, Block& b, u32 offset, u64 bytes, Access access, u32 manner);
void global_access(Warp& w, u32 pc, const u64* at, u32 mask, u64 bytes, Access access, u32 manner);
bool global_simple(Warp& w, u32 pc, u64 at, bool row, u32 bytes, Access access, u32 manner);
void global_offsets(Warp& w, u32 pc, u64 base, const u32* at, u32 mask, u32 bytes, Access access, u32 manner);
void orders_commit(Warp& w);
bool orders_seen(Warp& w, const Epoch& e);
const Epoch& epoch(Tracked& t, u32 id);

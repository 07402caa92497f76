// What copies, mbarriers and tensor maps share: what is in flight, and who must not touch it.
#pragma once
#include "core.hpp"
#include <deque>
#include <unordered_map>
#include <unordered_set>

// One thing in flight. A store reads its source first (`fetch`), and writes when it lands.
struct Flight {
    u64 number = 0;
    Warp* warp = nullptr;
    int lane = 0;
    u32 pc = 0;       // who began it, and where
    u32 group = ~0u;  // the bulk group of that thread, if it has one
    bool fetched = false;
    Block* into = nullptr;  // the block whose shared memory it writes
    std::function<void()> fetch, land;
};

// An mbarrier: its 64 bits in memory must be `value`, or somebody has overwritten it.
// Bits 0-19 arrivals pending, 20-39 arrivals expected, 40-60 bytes pending (signed), 61-63 phase.
struct Mbarrier {
    u64 value = 0;
    u32 pc = 0;
    bool used = false;
    Clock arriving, seen;
};

constexpr u32 UNTOUCHED = 1;

struct AsyncBlock {
    std::unordered_map<u32, Mbarrier> mbarriers;  // by their byte of shared memory
    std::unordered_set<u32> invalid;              // where some were, and were invalidated
    std::vector<u32> pc;                          // of each word: the last that began to write or to read it
    std::vector<u16> writing, reading;            // of each word: how many in flight
    std::vector<u32> written;                     // of each 16 bytes: `fences` at the last ordinary store
    std::vector<u32> touched;                     // or access since a copy landed; UNTOUCHED, or 0 where none did
    u32 fences;
};

// cp.async of up to 32 lanes by one instruction.
struct Copy {
    u64 number;
    u32 pc, left;
    int bytes;
    u64 to[32], from[32];
    u32 size[32], group[32];
};

struct Async {
    std::deque<Copy> copies;
    u32 groups[32], bulk[32];   // that each lane has committed
    u32 parked[32], epoch[32];  // of try_wait: its instruction + 1, and when it began
};

struct Flights {
    std::vector<std::unique_ptr<Flight>> all;
    std::vector<AsyncBlock> blocks;
    std::vector<Async> warps;
    std::unordered_map<u64, u32> changed;  // tensor maps that were changed at an instruction, and not acquired since
    u32 epoch = 0;                         // how often those that wait with a time limit were sent on
    u32 rounds = 0;                        // that since anything happened
};

static inline Block& block_at(Gang& g, const u8* at) { return g.blocks[u64(at - g.shared) / g.stride]; }
static inline u32 offset_at(Gang& g, const u8* at) { return u32(u64(at - g.shared) % g.stride); }
static inline void join(Clock& into, const Clock& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t k = 0; k < from.size(); ++k)
        if (into[k] < from[k]) into[k] = from[k];
}
// Notes a flight that the current instruction of lane `lane` begins.
Flight& begin_flight(Warp& w, int lane);
// Lands what threads of warp w, lanes m, have committed in bulk but for their `n` latest groups (or only reads its
// sources); and all of cp.async that they had begun when the gang's order was `number`.
void land_until(Warp& w, u32 m, u64 number, bool waited = false);
void land_bulk(Warp& w, u32 m, u32 n, bool only_read);
void land_flight(Gang& g, size_t k);

// Shared memory of a lane's address of 32 bits, aligned as `by` says.
u8* shared_bytes(Warp& w, int lane, u32 address, u64 bytes, u32 by, const char* what);

// Operations of reductions, and element types as tensormap.replace numbers them.
enum Reduction : u32 { ADD, MIN, MAX, INC, DEC, AND, OR, XOR };
enum Element : u32 {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F32_FTZ,
    F64,
    BF16,
    TF32,
    TF32_FTZ,
    U4,
    U4_PADDED,
    U6_PADDED
};
void reduce_into(Reduction op, Element type, u8* to, const u8* from, u64 bytes, bool alone);
// Something that lane `lane` begins now reads or writes shared memory from now on: nothing else may be in its way.
void async_guard(Warp& w, int lane, const u8* at, u64 bytes, Access access);
void async_wrote(Gang& g, const u8* at, u64 bytes);  // by the async proxy: no ordinary store is left there
void profiled(Warp& w, u64 bytes);

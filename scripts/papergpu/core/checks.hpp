// What the checks keep: clocks, who touched which memory, and what was published where.
//
// Time is counted for a gang as a whole: a warp's own entry of its clock is drawn from the gang's
// counter, so that times of different warps can be compared. After a barrier of the whole block all
// that was done before is older than `Warp::floor`, which makes most checks one comparison.
#pragma once
#include "core.hpp"
#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>

// How an access takes part in races: two that are STRONG or CHANGED, which is atomic, do not race, unless they are
// of two blocks and one says NARROWLY that it is so for its block alone; ASYNC is a copy that landed on behalf of a
// warp, and of no lane.
// In global memory, SCALAR is a weak load of one place by all lanes: between warps of one block it and
// an atomic pass, as every warp loads for itself what is one value to Triton's language (its tutorial on
// layer norm reads a count so, and changes it by an atomic).
enum Manner : u32 { WEAK, STRONG, CHANGED, ASYNC, SCALAR, NARROWLY = 8 };

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
    std::unordered_map<u64, Clock> own;            // of a gang and a block of it: what that released for itself alone
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
// A read of a warp that raced with a write of its block. Triton has several warps load what one of
// them stores in place, and drops what the others loaded; so it is told when what the reader has may
// reach others.
struct Doubt {
    std::string what;
    const Warp* by;  // who came second, and is named
    u32 pc;
    int lane;
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
        u32 effect = 0;  // its time when it last did something that others see
        std::unique_ptr<Doubt> doubt;
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
struct Tracked {
    u32 shift = 2;
    std::vector<Region> regions;
    std::atomic<u32> gangs{0}, epochs{64};
    std::unique_ptr<std::atomic<Epoch*>[]> table;  // of EPOCHS each
    std::mutex atomics;                            // held while one is noted and done, and taken before `lock`
    std::mutex lock;                               // of the following
    std::unordered_map<u64, Sync*> syncs;
    std::deque<Sync> all;
    std::deque<Record> records;
    std::atomic<bool> any{false};
    Tracked() : table(new std::atomic<Epoch*>[EPOCH_PIECES]()) {}
    ~Tracked();
};

static inline Checker& checker(const Warp& w) { return *w.block->gang->checker; }
static inline Tracked& tracked(const Warp& w) { return *(Tracked*)launch_of(w).shadow; }
static inline u32& own_time(Warp& w) { return w.clock[w.index]; }

void clocks_new_floor(Warp& w);
void note_clash(Warp& w, int lane, u64 at, u32 bytes, u64 what);
void shared_clash(Warp& w, int lane, u64 at, s64 entry);
void global_clash(Warp& w, int lane, u64 at, u32 id);
void shared_access(Warp& w, u32 pc, const u64* at, u32 mask, int bytes, Access access, u32 manner);
// The same for offsets to the shared memory of block b.
void shared_offsets(Warp& w, Block& b, u32 pc, const u32* at, u32 mask, int bytes, Access access, u32 manner);
void shared_simple(Warp& w, u32 pc, u32 at, bool row, int bytes, Access access, u32 manner);
void shared_bytes(Warp& w, Block& b, u32 offset, u64 bytes, Access access, u32 manner);
void global_access(Warp& w, u32 pc, const u64* at, u32 mask, u64 bytes, Access access, u32 manner);
bool global_simple(Warp& w, u32 pc, u64 at, bool row, u32 bytes, Access access, u32 manner);
void global_offsets(Warp& w, u32 pc, u64 base, const u32* at, u32 mask, u32 bytes, Access access, u32 manner);
void orders_commit(Warp& w, bool wide);
bool orders_seen(Warp& w, const Epoch& e);
const Epoch& epoch(Tracked& t, u32 id);

// ---- The shadow of a block's shared memory, and one access as the checks look at it.

// The least and the greatest of 32 numbers. (g++ 12 does not vectorise a loop of both.)
static inline void bounds(const u32* t, u32& least, u32& greatest) {
    typedef u32 Eight __attribute__((vector_size(32)));
    Eight a, b;
    memcpy(&a, t, 32);
    b = a;
    for (int k = 8; k < 32; k += 8) {
        Eight x;
        memcpy(&x, t + k, 32);
        a = x < a ? x : a;
        b = x > b ? x : b;
    }
    const auto fold = [&](Eight x, Eight y) {
        a = x < a ? x : a;
        b = y > b ? y : b;
    };
    fold(__builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3), __builtin_shufflevector(b, b, 4, 5, 6, 7, 0, 1, 2, 3));
    fold(__builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5), __builtin_shufflevector(b, b, 2, 3, 0, 1, 6, 7, 4, 5));
    fold(__builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6), __builtin_shufflevector(b, b, 1, 0, 3, 2, 5, 4, 7, 6));
    least = a[0];
    greatest = b[0];
}

// What one warp read of shared memory at one time by one instruction: `cells` of each lane in `lanes`, or
// those from cells[0] on where the lanes stand in a row, or all read the same.
struct alignas(64) Reading {
    enum Shape : u32 { APART, IN_ROW, ONE_PLACE };
    u32 cells[32];
    u32 time, lanes, log;  // a lane reads 1 << log cells
    Shape shape;
};

// Who wrote and read one block's shared memory, a cell for each granule.
// A write: time << 32 | manner << 30 | pc << 14 | warp of the cluster << 5 | lane; -1 if nobody wrote.
// A read:  time << 6 | 32 if several lanes read at that time | lane.
// Most accesses need neither: a barrier has come after all that was written to the spans they lie in, and
// before what they read is written. So a span says how young it is, and reads are noted in their cells
// only when a writer asks who read: until then they wait in `fresh`, where most are forgotten.
struct Shadow {
    static constexpr u32 SPAN = 4;  // a span has 1 << SPAN cells
    struct Fresh {
        u32 n = 0;
        u8 of[64] = {};  // by instruction: the last that it put here, which may be noted by now
        Reading all[64] = {};
        void clear() {
            n = 0;
            for (u8& k : of) all[k].time = 0;
        }
    };
    std::vector<s64> writes;
    std::vector<s64> spans;  // how many of its cells nobody wrote << 32 | the time of the last write
    const Block* own = nullptr;
    std::vector<std::unique_ptr<u32[]>> reads;  // of each warp of the cluster, once it reads; then of copies for it
    std::vector<u32> last;                      // the time of its last read
    std::vector<std::unique_ptr<Fresh>> fresh;  // of each warp: reads that are not yet in `reads`
    u32 newest = 0, cells = 0, shift = 2;

    Shadow(const Launch& l, u32 warps);
    void begin(const Launch& l);  // it is nobody's
    void forget();                // all times are 0 now, and nobody has read
    // Whether of the cells from lo to hi none was written at `floor` or later, nor, if that matters, by nobody.
    bool settled(u32 lo, u32 hi, u32 floor, bool holes_matter) const {
        const u32 from = lo >> SPAN, to = hi >> SPAN;
        if (to - from > 512) return false;
        const s64 mask = holes_matter ? s64(-1) : s64(0xffffffff);
        if (to - from < 12) {  // few: not worth the vectors
            for (u32 k = from; k <= to; ++k)
                if ((spans[k] & mask) >= s64(floor)) return false;
            return true;
        }
        s64 most = 0;
        for (u32 k = from; k <= to; ++k) most = std::max(most, spans[k] & mask);
        return most < s64(floor);
    }
    // The spans from that of lo to that of hi are as young as time; true if some cell there may be unwritten.
    bool wrote(u32 lo, u32 hi, u32 time) {
        s64 all = 0;
        for (u32 k = lo >> SPAN; k <= hi >> SPAN; ++k) {
            const s64 x = spans[k];
            all |= x;
            spans[k] = (x & ~0xffffffffll) | std::max(x & 0xffffffff, s64(time));
        }
        return all >> 32;
    }
    void fill_hole(u32 cell) { spans[cell >> SPAN] += writes[cell] >> 63 << 32; }  // before it is written
    void fill_holes(u32 lo, u32 hi) {
        for (u32 k = lo, end; k <= hi; k = end) {
            end = std::min(((k >> SPAN) + 1) << SPAN, hi + 1);
            s64 unwritten = 0;
            for (u32 c = k; c < end; ++c) unwritten += writes[c] >> 63;
            spans[k >> SPAN] += unwritten << 32;
        }
    }
    void note_fresh(u32 number);  // those of a warp, in their cells
};

// Everything about an access that is the same for all its lanes.
struct Shown {
    Warp& w;
    Shadow& s;
    u32 pc;
    Access access;
    u32 manner;
    u32 first, me, time;  // the cluster's first warp in the gang; w in its cluster; its time

    Shown(Warp& w, Block& b, u32 pc, Access access, u32 manner)
        : w(w), s(*b.shadow), pc(pc), access(access), manner(manner),
          first(w.block->cluster * u32(w.block->warps.size())), me(w.index - first), time(own_time(w)) {
        if (!w.floor) clocks_new_floor(w);
        w.touched = time;
    }

    const char* verb() const { return access == READ ? "reads" : access == WRITE ? "writes" : "changes"; }
    void race(u32 cell, int lane, u32 warp, u32 other, bool wrote, u32 where) const;

    // Whether lane `lane` of this warp, now, comes after lane `other` of it at `t`.
    bool met(int lane, u32 other, u32 t) const {
        return t < w.synced[lane] && (t < w.synced[other] || !(w.live >> other & 1));
    }

    bool settled(u32 lo, u32 hi) const { return s.settled(lo, hi, w.floor, access != WRITE); }
    // Whether check_write must look at what a cell holds: not 0, unless that is old, the lane's own, met since,
    // or, as this is, an atomic. A loop of it is vectorised.
    s64 doubt(s64 e, u32 lane) const {
        const s64 who = e & 0x3fff, t = e >> 32;
        const bool apart = (who != s64(me << 5 | lane)) & ((who >> 5 != me) | (t >= s64(w.within))),
                   both = (manner == CHANGED) & ((u32(e) >> 30) == CHANGED);
        return s64((t >= s64(w.floor)) & apart & !both) | (access == WRITE ? 0 : e >> 63);
    }
    void check_write(u32 cell, int lane) const;  // of what was written before

    // Who has read what is written now: cells of each lane of m, or where m is 0 `n` of them from cells[0] on,
    // 1 << log of a lane.
    void check_reads(const u32* cells, u32 n, u32 m, u32 log) const {
        if (s.newest >= w.floor) look_for_reads(cells, n, m, log);
    }
    void look_for_reads(const u32* cells, u32 n, u32 m, u32 log) const;
    // To be noted: a lane's number is told where they are apart, the first of `lanes` where all read the same.
    void note_reading(Reading::Shape shape, const u32* cells, u32 lanes, u32 log) const;
    void note_reads(u32 cell, u32 n) const;  // at once, by no lane

private:
    bool after_write(s64 e, int lane) const;
    void check_reads_of(u32 number, u32 cell, u32 n, int lane, u32 log) const;
    bool doubtful_reads(u32 number, u32 bound, const u32* cells, u32 n, u32 m, u32 log) const;
    u32* readers(u32 number) const;
};

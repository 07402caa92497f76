// What all parts of the engine share: registers, warps, blocks, a launch, and how handlers are written.
//
// A warp's registers lie in one piece of memory, lane beside lane: 32 x 4 bytes for anything of up to
// 32 bits, 32 x 8 for 64 bits, 32 x 16 for 128 (the 32 low halves, then the 32 high ones), and one
// 32-bit mask for a predicate. An instruction names registers by their byte in that memory.
#pragma once
#include "portable.hpp"
#include <cstdio>
#include <functional>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

struct bf16 {
    u16 bits;
};

struct Warp;
struct Block;
struct Gang;
struct Launch;
struct Inst;
typedef void (*Handler)(Warp&, const Inst&);

// How an instruction is driven; everything but PLAIN is looked at by turn.cpp.
enum Kind : u8 {
    PLAIN,   // the handler, then the next instruction
    BRANCH,  // to instruction `imm`
    TABLE,   // brx: to lists[list + register a], of `count`
    EXIT,
    BARRIER,  // bar, barrier: flags say which
    SYNC,     // waits until all lanes of the mask in register `e` stand here, none missing, then the handler
    RETRY,    // the handler sets warp.again while it has to wait
    CLUSTER,  // barrier.cluster
    MEET,     // SYNC, but a mask may name lanes that the block does not have
};

// One decoded instruction. Python writes arrays of these (papergpu/program.py has the same layout); where a pointer
// stands there are 8 bytes, however many it has.
struct alignas(64) Inst {
    Handler run;
    alignas(8) u32 d;
    u32 a, b, c, e;     // registers, by their byte; 0 where there is none
    s32 guard;          // the predicate's register, or -1
    s64 imm;
    u32 list, count;  // a piece of the launch's lists
    u32 flags;        // of the handler
    u8 negate, kind, space, base;
    u32 place, owner;  // its number in the table of places; the instruction of PTX that it is a part of
};
static_assert(sizeof(Inst) == 64);

// Spaces, as `space` says them, and as an address turns out to be.
enum Space : u8 { GENERIC, SHARED, LOCAL, PARAM, CONST, GLOBAL };
// What an address starts from, `base`: only `imm`, or register `a` of 32 or 64 bits.
enum Base : u8 { NONE, NARROW, WIDE };
enum Access : u8 { READ, WRITE, ATOMIC };

struct Count {
    u64 run, lanes, requests, sectors, ideal_sectors, wavefronts, ideal_wavefronts, bytes, operations, shared_requests;
};

// Memory that a launch may touch.
struct Alloc {
    u64 lo, hi;
    u32 flags, name;
    u64 shadow;
};
enum { UNWRITTEN = 1, READ_ONLY = 2 };  // of Alloc.flags: `shadow` then is a byte for each byte, 1 if written

struct Fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};
// Ends the launch with what was found: the place, the block and the thread are added by launch.cpp.
[[noreturn]] void fault(const char* format, ...) __attribute__((format(printf, 1, 2)));
// The same, naming the lane of the current warp that did it.
[[noreturn]] void fault_lane(int lane, const char* format, ...) __attribute__((format(printf, 2, 3)));
// Notes what a warp did wrong at `pc`, after which a GPU would go on; so does the launch, unless it is fatal. Only
// the first finding of a launch is kept.
void found(const Warp& w, u32 pc, int lane, const char* format, ...) __attribute__((format(printf, 4, 5)));

// A vector clock over the warps of a gang.
typedef std::vector<u32> Clock;

enum State : u8 { READY, AT_BARRIER, AT_SYNC, AT_CLUSTER, POLLING };
struct Group {
    u32 pc, mask;
    State state;
    u32 barrier;
};

struct Warp {
    u8* R;              // registers
    u32 m;              // lanes that execute the current instruction
    u32 pc, cur, live;  // the current group: where, which lanes; all lanes that have not exited
    bool again, yield;  // set by handlers: not done, stay here; or end this turn
    Block* block;
    Launch* launch;
    u32 id;                     // in its block
    u32 first;                  // threads of the block before it
    u8* local;                  // lane l's local memory: local + l * launch.local
    u32 carry;                  // CC.CF of each lane
    std::vector<Group> others;  // groups that are not the current one
    u64 steps;                  // warp-instructions since it began
    u64 patience;               // steps after which a strong load ends this turn: it may be a spin
    u32 fair;                   // steps for which the lowest group need not come first
    Clock clock;                // what it has seen of each warp of the gang; checks only
    u32 synced[32];             // its own time at each lane's last synchronisation; checks only
    u32 phase;                  // of its cluster's barrier, that it last arrived for
    u32 index;                  // in its gang
    u64 early;                  // the higher, the earlier in the grid: running.hpp
    u32 touched, floor;     // its time at its last access; all that is older than floor it has seen (0: to be computed)
    u32 within;             // what its lanes did before this they have all seen: known where floor is; checks only
    u32 clash;              // lanes that write what another thread wrote, with nothing between; checks only
    bool strong, narrow;  // of the access now: volatile, relaxed or ordered; of scope .cta
    bool compares;        // its handler looks at `clash`
    bool done;
    struct Async* async;    // what it has in flight, owned by async.cpp
    struct Matrix* matrix;  // its products in flight, owned by matrix_group.cpp
};

struct Barrier {
    u32 arrived = 0, needed = 0, pc = ~0u;
    Clock clock;
    u32 reduced = 0, votes = 0;
};

struct Block {
    Gang* gang;
    u32 rank, cluster;  // rank in its cluster, and the cluster's first block in the gang
    u32 at[3];          // ctaid
    u32 linear;         // of the grid
    u8* shared;         // its shared memory, launch.shared bytes
    std::vector<Warp*> warps;
    Barrier barriers[16];
    u32 alive;   // warps that have not ended
    u8* tensor;  // tensor memory of sm_100: 128 lanes x 512 columns x 4 bytes, or null
    std::shared_ptr<struct TensorMemory> tensor_memory;  // who has what of it, owned by tensor_memory.cpp
    struct AsyncBlock* async;                            // what it has in flight, owned by async.cpp
    struct Shadow* shadow;                               // who wrote and read its shared memory, owned by clocks.cpp
};

// Blocks that run at the same time: one, a cluster, or a whole cooperative grid.
struct Gang {
    Launch* launch;
    Count* counts;  // the counts of the host's thread that runs it, by instruction
    u64* ranks;     // and of the requests that it has kept: running.hpp
    struct Samples* samples;  // those, owned by launch.cpp
    std::vector<Block> blocks;
    std::vector<Warp> warps;
    u8* shared;
    u64 stride;  // of all blocks, one behind the other
    struct Cluster {
        u32 arrived, generation;
        Clock clock, seen;
    };
    std::vector<Cluster> clusters;
    u8* local;
    u64 local_bytes;                          // of all warps
    u64 rng;                                  // state of the schedule's random numbers
    u32 holder;                               // the allocation that was accessed last
    u64 order;                                // of things begun, for what is in flight
    std::function<s64()> cancel;              // takes a cluster that has not begun out of the launch: its number, or -1
    std::shared_ptr<struct Checker> checker;  // owned by the checks
    std::shared_ptr<struct Flights> flights;  // what is in flight, owned by async.cpp
    u32 held = 0;          // words of shared memory that something in flight reads or writes; checks only
    bool proxies = false;  // the program has copies that read shared memory by another proxy; checks only
};

// A launch, as Python gives it (papergpu/launch.py has the same layout).
struct Launch {
    alignas(8) const Inst* code;
    alignas(8) const u32* lists;
    alignas(8) const u8* constants;
    alignas(8) const Alloc* allocs;
    alignas(8) Count* counts;
    alignas(8) const u8* params;
    alignas(8) u8* globals;
    alignas(8) u8* consts;
    alignas(8) const u32* specials;
    alignas(8) const u32* shared_constants;
    alignas(8) void* shadow;
    alignas(8) struct Sample* samples;  // room for two an instruction, where profile
    alignas(8) u32 ncode;
    u32 nconstants, nregs, shared, local, nallocs, nspecials, nshared_constants, nparams, nconsts;
    u32 grid[3], block[3], cluster[3];
    u32 static_shared, dynamic_shared, sm, tensor;
    u32 checks, profile, cooperative, schedule, threads, granule, global_granule, perturb, order;
    u32 reserved;  // 1 + where the 288 bytes of shared memory begin that groups of warps meet by, or 0
    u32 nsamples;  // an answer
    u32 fatal;     // the first finding ends it
    u64 seed, limit;
    // answers
    u64 steps;
    u32 fault_place, fault_pc, fault_block[3], fault_thread[3];
    char error[1024];
};
enum Schedule { ROBIN, FAR, RANDOM };

// ---- how handlers are written
std::map<std::string, Handler>& handlers();
std::map<std::string, std::string>& sources();  // the file that each handler stands in
struct Add {
    Add(const char* name, Handler run, const char* file = __builtin_FILE());
};
#define PAPER_JOIN2(a, b) a##b
#define PAPER_JOIN(a, b) PAPER_JOIN2(a, b)
// HANDLER("name", statements) with Warp& w, const Inst& i and u8* R.
#define HANDLER(name, ...) \
    static Add PAPER_JOIN(add_, __COUNTER__)(name, [](Warp& w, const Inst& i) { \
        u8* R = w.R; \
        (void)R; \
        __VA_ARGS__ \
    });

template <class T> static inline T get(const u8* R, u32 at, int lane) {
    if constexpr (sizeof(T) >= 4) return ((const T*)(R + at))[lane];
    else {
        u32 x = ((const u32*)(R + at))[lane];
        T t;
        memcpy(&t, &x, sizeof t);
        return t;
    }
}
template <class T> static inline void put(u8* R, u32 at, int lane, T v) {
    if constexpr (sizeof(T) >= 4) ((T*)(R + at))[lane] = v;
    else {
        u32 x = 0;
        memcpy(&x, &v, sizeof v);
        ((u32*)(R + at))[lane] = x;
    }
}
static inline u32 predicate(const Warp& w, u32 at) { return *(const u32*)(w.R + at); }
static inline void set_predicate(Warp& w, u32 at, u32 v) {
    u32& p = *(u32*)(w.R + at);
    p = (p & ~w.m) | (v & w.m);
}

// d[lane] = f(lane) for the lanes that execute. f is inlined and vectorised: it must capture by value
// (a capture by reference costs 7 times as much) and may be asked about lanes that do not execute.
template <class T, class F> static inline __attribute__((always_inline)) void each(Warp& w, u32 d, F f) {
    u8* R = w.R;
    const u32 m = w.m;
    typedef std::conditional_t<(sizeof(T) >= 4), T, u32> Slot;
    alignas(64) Slot t[32];
    // One loop for whole and partial warps: half of what there is to compile.
    u8* const to = m == ~0u ? R + d : (u8*)t;
    INDEPENDENT for (int l = 0; l < 32; ++l) put<T>(to, 0, l, f(l));
    if (m == ~0u) return;
    Slot* const all = (Slot*)(R + d);
    INDEPENDENT for (int l = 0; l < 32; ++l) all[l] = m >> l & 1 ? t[l] : all[l];
}
// HANDLERs of one, two and three operands of type T, called a, b, c, with a result of type D.
#define UNARY(name, D, T, ...) \
    HANDLER(name, each<D>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                T a = get<T>(R, i.a, l); \
                (void)a; \
                return (D)(__VA_ARGS__); \
            });)
#define BINARY(name, D, T, ...) \
    HANDLER(name, each<D>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                T a = get<T>(R, i.a, l), b = get<T>(R, i.b, l); \
                return (D)(__VA_ARGS__); \
            });)
#define TERNARY(name, D, T, ...) \
    HANDLER(name, each<D>(w, i.d, [R, i = i](int l) __attribute__((always_inline)) { \
                T a = get<T>(R, i.a, l), b = get<T>(R, i.b, l), c = get<T>(R, i.c, l); \
                return (D)(__VA_ARGS__); \
            });)

static inline f32 widen(bf16 x) {
    u32 u = u32(x.bits) << 16;
    f32 f;
    memcpy(&f, &u, 4);
    return f;
}
static inline const u32* list(const Warp& w, const Inst& i) { return w.launch->lists + i.list; }
static inline Launch& launch_of(const Warp& w) { return *w.launch; }
static inline u32 product(const u32* v) { return v[0] * v[1] * v[2]; }
static inline int lowest(u32 m) { return __builtin_ctz(m); }
// Constants stand before all other registers, and hold the same in every lane.
static inline bool constant(const Warp& w, u32 at) { return at < w.launch->nconstants; }

// ---- addresses.cpp
// Where each executing lane of `i` accesses `bytes` bytes: `at` becomes host addresses, and what the
// checks and counters want to know is told to them. Faults if one is outside what may be touched.
// Returns the space that it turned out to be.
Space addresses(Warp& w, const Inst& i, u64* at, int bytes, Access access);
// The same for one address of the shared window (rank << 24 | offset); bytes may be any number.
u8* shared_at(Warp& w, u32 address, u64 bytes, const char* what);
// The same for one address of global memory (or generic).
u8* global_at(Warp& w, u64 address, u64 bytes, Access access, const char* what);

// ---- clocks.cpp: what the checks look at. All are called only where launch.checks.
void check_access(Warp& w, const u64* at, u32 mask, int bytes, Access access, Space space);
// The same for offsets `at` to `base`; lanes that do not execute stand where one does.
void check_offsets(Warp& w, u8* base, const u32* at, u32 mask, int bytes, Access access, Space space);
// The same where all 32 lanes stand in a row from `at` on, or those that execute all at one place.
void check_simple(Warp& w, u64 at, bool row, int bytes, Access access, Space space);
// Bytes that something asynchronous reads or writes on behalf of warp w, now.
void check_bytes(Warp& w, const u8* at, u64 bytes, Access access, Space space);
// What a warp has read may reach others from now on: it writes, prints, or votes with another warp.
void check_effect(Warp& w);
void check_warp_sync(Warp& w, u32 mask);         // lanes of mask have met
u32 check_moment(Warp& w);                       // the time of what it has done last; what it does next is later
void check_known(Warp& w, const Warp& other, u32 time);  // it comes after all that the other did until then
void check_release(Warp& w, Clock& into);        // what w did is published
void check_acquire(Warp& w, const Clock& from);  // w sees what was published
// Before an atomic or a strong store, and after an atomic or a strong load: order 1 acquires, 2 releases;
// with neither it does so together with a fence.
void check_publish(Warp& w, const u64* at, u32 mask, u32 order, Space space);
void check_obtain(Warp& w, const u64* at, u32 mask, u32 order, Space space);
// A lane of `clash` writes `value` at `at`: a race if what it clashes with is not the same there.
void check_clash(Warp& w, int lane, u64 at, const void* value, Space space);
void check_fence(Warp& w, u32 scope);
void check_meet(Block& b, u32 id);  // a barrier opens: who waits there has done nothing since it came
void check_begin(Block& b);         // shared memory is nobody's
void check_new_launch(Launch& l);
void check_end_launch(Launch& l);

// ---- counters.cpp, where launch.profile
// An access of the lanes of mask, `bytes` each, at host addresses.
void count_access(Warp& w, const Inst& i, const u64* at, u32 mask, int bytes, Space space, Access access = READ);
// The same for offsets to a base that is a multiple of 128 bytes, or of 1024 in shared memory.
void count_offsets(Warp& w, const Inst& i, const u32* at, u32 mask, int bytes, Space space, Access access, u64 base);
// Of all lanes: the same bytes, or in a row from `at` on.
void count_simple(Warp& w, const Inst& i, u64 at, bool row, int bytes, Space space, Access access);
static inline Count& count_of(const Warp& w, const Inst&) {
    return w.block->gang->counts[w.pc];
}  // an instruction may be a copy

// ---- async.cpp
// Something begins that ends later: `land` is called when no thread of the gang can go on, in an
// order drawn from the seed, or by async_land_now. Returns its number.
u64 async_begin_flight(Gang& g, std::function<void()> land);
void async_land_now(Gang& g, u64 number);  // nothing if it has landed
// Shared memory that something in flight, begun by the instruction `pc`, has still to read (then
// nobody may write it) or to write (then nobody may touch it); and that it has done so. Checks only;
// `at` must be a multiple of 4.
void async_hold(Gang& g, const u8* at, u64 bytes, u32 pc, Access access);
void async_let_go(Gang& g, const u8* at, u64 bytes, Access access);
// Called by check_access where gang.held or gang.proxies: ordinary accesses to shared memory.
void async_touch(Warp& w, const u64* at, u32 mask, int bytes, Access access);
// The async proxy reads these bytes of shared memory now: a finding if ordinary stores wrote them and no
// fence.proxy.async came since. Checks only.
void async_proxy_read(Warp& w, const u8* at, u64 bytes, const char* what);
// A copy of the async proxy will write them: a finding if ordinary loads or stores used what another had brought
// and no fence.proxy.async came since. The copy may overtake a load that is still on its way. Checks only.
void async_proxy_write(Warp& w, const u8* at, u64 bytes);
bool async_land(Gang& g);  // let the next thing in flight land; false if there is none
void async_begin(Block& b);
void async_end(Block& b);
void async_warp_end(Warp& w);
std::string async_waiting(Warp& w, const Inst& i);  // what a RETRY instruction waits for, in words

// ---- mbarriers.cpp. `at` is where the mbarrier lies, in the shared memory of any block of the gang; `seen` is what
// those who wait on it may then see, if checks are on. A wrong address or count is a finding.
void mbarrier_arrive(Gang& g, u8* at, u32 count, const Clock* seen = nullptr);
void mbarrier_expect_tx(Gang& g, u8* at, u64 bytes);
void mbarrier_complete_tx(Gang& g, u8* at, u64 bytes, const Clock* seen = nullptr);

// ---- matrix_group.cpp: products of a warpgroup in flight
void matrix_begin(Warp& w);
void matrix_end(Warp& w);
std::string matrix_waiting(Warp& w, const Inst& i);  // what a RETRY instruction waits for; empty if it is none of these

// ---- barriers.cpp
u64 random_number(Gang& g);
Block& cluster_block(Warp& w, u32 rank);  // another block of w's cluster

// ---- tensor_memory.cpp
void tensor_end(Block& b);  // its columns are free again: a finding if some are still allocated
void tensor_warp_end(Warp& w);
std::string tensor_waiting(Warp& w, const Inst& i);  // what tcgen05.alloc waits for; empty if `i` is none

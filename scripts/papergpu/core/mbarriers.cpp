// mbarriers: 64 bits in shared memory that count arrivals and bytes, phase after phase.
#include "async.hpp"

namespace {

constexpr s64 MOST = (1 << 20) - 1;
struct Fields {
    s64 pending, expected, tx;
    u32 phase;
};
Fields fields(u64 v) { return {s64(v & MOST), s64(v >> 20 & MOST), s64(v << 3) >> 43, u32(v >> 61)}; }
u64 packed(const Fields& f) {
    return u64(f.pending) | u64(f.expected) << 20 | (u64(f.tx) & 0x1fffff) << 40 | u64(f.phase) << 61;
}

typedef unsigned long long ull;

Mbarrier* known(Gang& g, const u8* at) {
    AsyncBlock& a = *block_at(g, at).async;
    auto it = a.mbarriers.find(offset_at(g, at));
    return it == a.mbarriers.end() ? nullptr : &it->second;
}

Mbarrier& mbarrier(Gang& g, const u8* at, const char* what) {
    Mbarrier* m = known(g, at);
    const u32 byte = offset_at(g, at);
    if (!m)
        fault("%s byte %u of shared memory, where no mbarrier is: initialise it with mbarrier.init first, and let the "
              "others wait for that",
              what, byte);
    u64 now;
    memcpy(&now, at, 8);
    if (now != m->value)
        fault("%s the mbarrier at byte %u of shared memory, initialised at @%u, and a store has overwritten it: keep "
              "data apart from it",
              what, byte, m->pc);
    return *m;
}

void keep(Gang& g, u8* at, Mbarrier& m, Fields f) {
    if (!f.pending && !f.tx) {
        f.phase = (f.phase + 1) & 7;
        f.pending = f.expected;
        if (g.launch->checks) m.seen = m.arriving;
    }
    m.used = true;
    m.value = packed(f);
    memcpy(at, &m.value, 8);
    g.flights->rounds = 0;
}

void arrive(Gang& g, u8* at, Mbarrier& m, u64 count, s64 tx, bool drop, bool whole) {
    Fields f = fields(m.value);
    const u32 byte = offset_at(g, at);
    if (!count || count > u64(MOST))
        fault("arrives with a count of %llu at an mbarrier: from 1 to %lld", (ull)count, (long long)MOST);
    f.tx += tx;
    if (f.tx > MOST)
        fault("the mbarrier at byte %u of shared memory would expect %lld bytes; the limit is %lld", byte,
              (long long)f.tx, (long long)MOST);
    if (s64(count) > f.pending)
        fault("arrives %llu times at the mbarrier at byte %u of shared memory, which in this phase waits for %lld of "
              "%lld arrivals: initialise it with as many as arrive",
              (ull)count, byte, (long long)f.pending, (long long)f.expected);
    f.pending -= s64(count);
    if (drop) f.expected -= s64(count);
    if (!whole && !f.pending && !f.tx)
        fault("arrives with .noComplete at the mbarrier at byte %u of shared memory, and completes its phase: leave "
              "out .noComplete",
              byte);
    keep(g, at, m, f);
}

void expect(Gang& g, u8* at, Mbarrier& m, s64 tx) {
    Fields f = fields(m.value);
    f.tx += tx;
    if (f.tx > MOST || f.tx < -MOST)
        fault("the mbarrier at byte %u of shared memory %s %lld bytes; the limit is %lld: expect the bytes that "
              "its copies bring",
              offset_at(g, at), f.tx > 0 ? "would expect" : "has got more than it expects, by",
              (long long)std::abs(f.tx), (long long)MOST);
    keep(g, at, m, f);
}

// flags: 1 the address is generic, in 64 bits; 2 relaxed; 4 a count in b; 8 expect_tx with b; 16 drop; 32 noComplete; 64 of another block; 128 complete_tx
enum {
    WIDE_ADDRESS = 1,
    RELAXED = 2,
    COUNTED = 4,
    EXPECTS = 8,
    DROPS = 16,
    NO_COMPLETE = 32,
    CLUSTER_WIDE = 64,
    COMPLETES = 128,
    PARITY = 256
};

u8* place(Warp& w, const Inst& i, int lane, const char* what) {
    Gang& g = *w.block->gang;
    u8* at;
    if (i.flags & WIDE_ADDRESS) {
        at = (u8*)get<u64>(w.R, i.a, lane);
        if (at < g.shared || at + 8 > g.shared + g.blocks.size() * g.stride)
            fault_lane(lane, "%s %#llx, which is not shared memory", what, (ull)at);
        if (u64(at) & 7)
            fault_lane(lane, "%s byte %u of shared memory, not a multiple of 8: align it", what,
                       offset_at(g, at));
    } else at = shared_bytes(w, lane, get<u32>(w.R, i.a, lane), 8, 8, what);
    if (!(i.flags & CLUSTER_WIDE) && &block_at(g, at) != w.block)
        fault_lane(lane, "%s an mbarrier of block %u of its cluster: say .shared::cluster", what, block_at(g, at).rank);
    return at;
}

void init(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const u32 count = get<u32>(w.R, i.b, lane);
        u8* at = place(w, i, lane, "initialises");
        if (!count || count > MOST)
            fault_lane(lane, "initialises an mbarrier with %u arrivals: from 1 to %lld", count, (long long)MOST);
        if (launch_of(w).checks) {
            const u64 where[32] = {u64(at)};
            if (g.held) async_touch(w, where, 1, 8, WRITE);
            if (Mbarrier* m = known(g, at)) {
                u64 now;
                memcpy(&now, at, 8);
                if (now == m->value && m->used)
                    fault_lane(lane,
                               "initialises the mbarrier at byte %u of shared memory, which @%u has initialised: "
                               "mbarrier.inval it first, or initialise it once",
                               offset_at(g, at), m->pc);
            }
            check_bytes(w, at, 8, WRITE, SHARED);
        }
        Mbarrier& m = block_at(g, at).async->mbarriers[offset_at(g, at)];
        block_at(g, at).async->invalid.erase(offset_at(g, at));
        m = Mbarrier{};
        m.pc = w.pc;
        m.value = packed({count, count, 0, 0});
        memcpy(at, &m.value, 8);
    }
    g.flights->rounds = 0;
}

void inval(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        u8* at = place(w, i, lane, "invalidates");
        mbarrier(g, at, "invalidates");
        block_at(g, at).async->mbarriers.erase(offset_at(g, at));
        block_at(g, at).async->invalid.insert(offset_at(g, at));
        memset(at, 0xff, 8);
        if (launch_of(w).checks) check_bytes(w, at, 8, WRITE, SHARED);
    }
}

void arrives(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        u8* at = place(w, i, lane, "arrives at");
        Mbarrier& m = mbarrier(g, at, "arrives at");
        const u32 b = i.flags & (COUNTED | EXPECTS) ? get<u32>(w.R, i.b, lane) : 0;
        const u64 state = m.value;
        if (checks) check_bytes(w, at, 8, ATOMIC, SHARED);
        if (checks && !(i.flags & RELAXED)) check_release(w, m.arriving);
        if (i.flags & EXPECTS && b > MOST)
            fault_lane(lane, "expects %u bytes at an mbarrier; the limit is %lld", b, (long long)MOST);
        arrive(g, at, m, i.flags & COUNTED ? b : 1, i.flags & EXPECTS ? b : 0, i.flags & DROPS,
               !(i.flags & NO_COMPLETE));
        if (i.d) put<u64>(w.R, i.d, lane, state);
    }
}

void bytes(Warp& w, const Inst& i) {  // expect_tx and complete_tx
    Gang& g = *w.block->gang;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        u8* at = place(w, i, lane, "expects bytes at");
        const u32 b = get<u32>(w.R, i.b, lane);
        if (b > MOST)
            fault_lane(lane, "%s %u bytes at an mbarrier; the limit is %lld",
                       i.flags & COMPLETES ? "completes" : "expects", b, (long long)MOST);
        expect(g, at, mbarrier(g, at, "expects bytes at"), i.flags & COMPLETES ? -s64(b) : s64(b));
    }
}

// Whether the phase that `asked` names, by its parity or by the state of an arrival, is complete.
bool complete(Warp& w, const Inst& i, int lane, u8*& at, Mbarrier*& m) {
    Gang& g = *w.block->gang;
    at = place(w, i, lane, "waits at");
    m = &mbarrier(g, at, "waits at");
    const u32 phase = fields(m->value).phase;
    if (i.flags & PARITY) {
        const u32 parity = get<u32>(w.R, i.b, lane) & 1;  // of what is wider, such as -1, the last bit
        return (phase & 1) != parity;
    }
    const u32 of = fields(get<u64>(w.R, i.b, lane)).phase;
    if (phase != of && phase != ((of + 1) & 7))
        fault_lane(lane,
                   "waits with the state of a phase that is long over at the mbarrier at byte %u of shared memory: "
                   "wait with the state of the latest arrival",
                   offset_at(g, at));
    return phase != of;
}

void passed(Warp& w, const Inst& i, u8* at, Mbarrier* m) {
    if (!launch_of(w).checks) return;
    check_bytes(w, at, 8, ATOMIC, SHARED);
    if (!(i.flags & RELAXED)) check_acquire(w, m->seen);
}

void test_wait(Warp& w, const Inst& i) {
    u32 done = 0;
    u8* at;
    Mbarrier* m;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        if (complete(w, i, lane, at, m)) {
            done |= 1u << lane;
            passed(w, i, at, m);
        }
    }
    set_predicate(w, i.d, done);
    if (done != w.m) w.yield = true;
    if (done && launch_of(w).checks && !(i.flags & RELAXED)) check_warp_sync(w, done);
}

void try_wait(Warp& w, const Inst& i) {
    u32 done = 0;
    u8* at;
    Mbarrier* m;
    Flights& f = *w.block->gang->flights;
    Async& a = *w.async;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        if (complete(w, i, lane, at, m)) done |= 1u << lane;
    }
    bool late = done == w.m;
    if (!late)
        for (u32 t = w.m; t; t &= t - 1) {
            const int lane = lowest(t);
            if (a.parked[lane] != w.pc + 1) {
                a.parked[lane] = w.pc + 1;
                a.epoch[lane] = f.epoch;
            } else if (a.epoch[lane] != f.epoch) late = true;
        }
    if (!late) {
        w.again = true;
        return;
    }
    for (u32 t = w.m; t; t &= t - 1) a.parked[lowest(t)] = 0;
    for (u32 t = done; t; t &= t - 1) {
        complete(w, i, lowest(t), at, m);
        passed(w, i, at, m);
    }
    set_predicate(w, i.d, done);
    if (done && launch_of(w).checks && !(i.flags & RELAXED)) check_warp_sync(w, done);
}

// Arrives when the cp.async that the thread has begun have landed. flags: 1 generic; 2 noinc
void async_arrive(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks, noinc = i.flags & 2;
    Inst plain = i;
    plain.flags &= WIDE_ADDRESS;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        u8* at = place(w, plain, lane, "arrives at");
        Mbarrier& m = mbarrier(g, at, "arrives at");
        if (!noinc) {
            Fields f = fields(m.value);
            if (++f.pending > MOST)
                fault_lane(lane, "the mbarrier at byte %u of shared memory has more than %lld arrivals pending",
                           offset_at(g, at), (long long)MOST);
            keep(g, at, m, f);
        }
        Clock seen;
        if (checks) check_release(w, seen);
        Flight& one = begin_flight(w, lane);
        const u64 until = g.order;
        Warp* self = &w;
        one.land = [&g, self, lane, at, seen, until] {
            land_until(*self, 1u << lane, until);
            mbarrier_arrive(g, at, 1, g.launch->checks ? &seen : nullptr);
        };
    }
}

Add a1("mbarrier.init", init), a2("mbarrier.inval", inval), a3("mbarrier.arrive", arrives), a4("mbarrier.bytes", bytes),
    a5("mbarrier.test_wait", test_wait), a6("mbarrier.try_wait", try_wait), a7("cp.async.mbarrier", async_arrive);
HANDLER("mbarrier.pending_count", each<u32>(w, i.d, [R, i = i](int l) { return u32(get<u64>(R, i.a, l) & 0xfffff); });)

std::string described(Gang& g, u8* at) {
    Mbarrier& m = *known(g, at);
    const Fields f = fields(m.value);
    std::string s = "the mbarrier at byte " + std::to_string(offset_at(g, at)) + " of shared memory, initialised at @" +
                    std::to_string(m.pc) + ", which lacks ";
    if (f.pending) s += std::to_string(f.pending) + " of " + std::to_string(f.expected) + " arrivals";
    if (f.tx)
        s += (f.pending ? " and " : "") + (f.tx > 0
                                               ? std::to_string(f.tx) + " bytes"
                                               : "an expect_tx of the " + std::to_string(-f.tx) + " bytes that came");
    if (!f.pending && !f.tx) s += "nothing: its phase is over";
    return s;
}

}  // namespace

void mbarrier_arrive(Gang& g, u8* at, u32 count, const Clock* seen) {
    // What arrives late where an mbarrier was invalidated does no harm as long as nothing else lies there.
    if (!known(g, at) && block_at(g, at).async->invalid.count(offset_at(g, at))) {
        u64 now;
        memcpy(&now, at, 8);
        if (now == ~0ull) return;
        fault("arrives at byte %u of shared memory, where an mbarrier was invalidated, and something else lies now: "
              "wait for what arrives, then invalidate it",
              offset_at(g, at));
    }
    Mbarrier& m = mbarrier(g, at, "arrives at");
    if (seen) join(m.arriving, *seen);
    arrive(g, at, m, count, 0, false, true);
}

void mbarrier_expect_tx(Gang& g, u8* at, u64 n) { expect(g, at, mbarrier(g, at, "expects bytes at"), s64(n)); }

void mbarrier_complete_tx(Gang& g, u8* at, u64 n, const Clock* seen) {
    Mbarrier& m = mbarrier(g, at, "brings bytes to");
    if (seen) join(m.arriving, *seen);
    expect(g, at, m, -s64(n));
}

std::string async_waiting(Warp& w, const Inst& i) {
    if (i.run != try_wait) return "something in flight";
    Gang& g = *w.block->gang;
    for (u32 t = w.m; t; t &= t - 1) {
        u8* at;
        Mbarrier* m;
        const int lane = lowest(t);
        if (!complete(w, i, lane, at, m))
            return described(g, at) + (i.flags & PARITY
                                           ? ", for its phase of parity " + std::to_string(get<u32>(w.R, i.b, lane) & 1)
                                           : "");
    }
    return "an mbarrier";
}

// ---- clusterlaunchcontrol: clusters that have not begun are taken back, and whoever did it does their work.

namespace {

enum { WIDE_ADDRESSES = 1, ALL = 2 };

// Where the answer goes and the mbarrier stand, in each block that hears of it.
u8* place(Warp& w, const Inst& i, u32 at, int lane, u64 bytes, u32 by, const char* what) {
    if (!(i.flags & WIDE_ADDRESSES)) {
        const u32 address = get<u32>(w.R, at, lane);
        if (address >> 24 != w.block->rank)
            fault_lane(lane, "%s shared memory of block %u of its cluster: it must be its own", what, address >> 24);
        return shared_bytes(w, lane, address, bytes, by, what);
    }
    u8* p = (u8*)get<u64>(w.R, at, lane);
    if (p < w.block->shared || p + bytes > w.block->shared + launch_of(w).shared || u64(p) % by)
        fault_lane(lane, "%s %#llx, which is not %llu aligned bytes of its block's shared memory", what,
                   (unsigned long long)p, (unsigned long long)bytes);
    return p;
}

// a: 16 bytes of shared memory; b: the mbarrier
void try_cancel(Warp& w, const Inst& i) {
    Gang* g = w.block->gang;
    const Launch& l = launch_of(w);
    const bool checks = l.checks;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        u8* to = place(w, i, i.a, lane, 16, 16, "clusterlaunchcontrol.try_cancel answers to");
        u8* bar = place(w, i, i.b, lane, 8, 8, "clusterlaunchcontrol.try_cancel signals");
        std::vector<std::pair<u8*, u8*>> all;
        const u32 n = i.flags & ALL ? product(l.cluster) : 1;
        for (u32 k = 0; k < n; ++k) {
            Block& b = n == 1 ? *w.block : cluster_block(w, k);
            all.push_back({b.shared + (to - w.block->shared), b.shared + (bar - w.block->shared)});
        }
        auto seen = std::make_shared<Clock>();
        if (checks) check_release(w, *seen);
        if (checks)
            for (auto& [at, one] : all) async_guard(w, lane, at, 16, WRITE);
        async_begin_flight(*g, [=] {
            const s64 taken = g->cancel ? g->cancel() : -1;
            u32 answer[4] = {};
            if (taken >= 0) {
                const u32 x = g->launch->grid[0] / g->launch->cluster[0],
                          y = g->launch->grid[1] / g->launch->cluster[1];
                answer[0] = 1;
                answer[1] = u32(taken % x) * g->launch->cluster[0];
                answer[2] = u32(taken / x % y) * g->launch->cluster[1];
                answer[3] = u32(taken / (s64(x) * y)) * g->launch->cluster[2];
            }
            for (auto& [at, one] : all) {
                memcpy(at, answer, 16);
                if (checks) {
                    async_let_go(*g, at, 16, WRITE);
                    async_wrote(*g, at, 16);
                }
                mbarrier_complete_tx(*g, one, 16, checks ? seen.get() : nullptr);
            }
        });
    }
}
Add add_try("clc.try", try_cancel);

// A register of 128 bits holds the 32 low halves, then the 32 high ones.
static inline u32 word(const u8* R, u32 at, int lane, u32 k) {
    return u32(get<u64>(R, at + (k & 2) * 128, lane) >> 32 * (k & 1));
}
HANDLER("clc.canceled", u32 p = 0; for (int k = 0; k < 32; ++k) p |= (word(R, i.a, k, 0) & 1) << k;
        set_predicate(w, i.d, p);)
HANDLER(
    "clc.ctaid", for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        if (!(word(R, i.a, k, 0) & 1))
            fault_lane(k, "asks which cluster was canceled, and none was: ask is_canceled first");
        put<u32>(R, i.d, k, word(R, i.a, k, 1 + u32(i.imm)));
    })

}  // namespace

// clusterlaunchcontrol: clusters that have not begun are taken back, and whoever did it does their work.
#include "async.hpp"

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

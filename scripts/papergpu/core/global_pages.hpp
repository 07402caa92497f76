// Cells of global memory, by pages: one word says of 32 bytes which epoch touched them all, and only where
// several did each granule has a cell of its own.
#pragma once
#include "checks.hpp"
#include <algorithm>

enum Which { WRITES, READS, OTHERS };

// Its words are plain ones that several threads change: a lost one costs a finding, and never makes a wrong
// one, as whatever they hold did touch that place.
struct Page {
    static constexpr u64 BYTES = 4096;
    static constexpr u32 SPAN = 5, SPANS = BYTES >> SPAN;  // log2 of the bytes of a span; spans in a page
    static constexpr u32 APART = ~0u;
    u32 whole[SPANS];  // the epoch of all cells of a span, 0 if it has none; or APART, and each cell says
    u32 cells[1];

    // The cells of a span, which speak for themselves from now on. It has 1 << log of them.
    u32* apart(u32 span, u32 log) {
        u32* c = cells + (span << log);
        const u32 e = whole[span];
        if (e != APART) {
            std::fill_n(c, 1u << log, e);
            __atomic_store_n(&whole[span], APART, __ATOMIC_RELEASE);
        }
        return c;
    }
    // Whether one of n cells from `a` on may hold another epoch than `id` or none.
    bool differ(u32 a, u32 n, u32 log, u32 id) const {
        u32 odd = 0;
        for (u32 k = a >> log, last = (a + n - 1) >> log; k <= last; ++k)
            odd |= u32(whole[k] != 0) & u32(whole[k] != id);
        return odd;
    }
    void mark(u32 a, u32 n, u32 log, u32 id) {
        const u32 per = 1u << log;
        for (u32 here; n; a += here, n -= here) {
            const u32 span = a >> log, at = a & (per - 1);
            here = std::min(n, per - at);
            if (here == per) whole[span] = id;
            else if (whole[span] != id) std::fill_n(apart(span, log) + at, here, id);
        }
    }
    // f(k, m, epoch) of each m cells from the k-th of these on that are of one epoch.
    template <class F> void visit(u32 a, u32 n, u32 log, F f) const {
        const u32 per = 1u << log;
        for (u32 k = 0, here; k < n; k += here) {
            const u32 span = (a + k) >> log, at = (a + k) & (per - 1);
            here = std::min(n - k, per - at);
            const u32 e = __atomic_load_n(&whole[span], __ATOMIC_ACQUIRE);
            if (e != APART) f(k, here, e);
            else
                for (u32 j = 0; j < here; ++j) f(k + j, 1u, cells[(span << log) + at + j]);
        }
    }
};

// The page of that number in a region, or null if there is none yet; and made if there is none.
static inline Page* page_of(const Region& r, Which which, u64 number) {
    return r.pages[which * r.count + number].load(std::memory_order_acquire);
}
Page& page(Region& r, Which which, u64 number, u32 shift);
// The region that holds an address, or null.
Region* region(Checker& c, Tracked& t, u64 at);
void more_epochs(std::atomic<Epoch*>& piece);  // unless it has some

// What the checks keep of the global memory of a launch: its regions, and their pages, made as they are touched.
#include "global_pages.hpp"

namespace {

std::mutex spare_lock;
std::vector<Page*> spares[3];      // of 1, 2 and 4 bytes a cell, for the next launch
std::vector<Epoch*> spare_epochs;  // of PIECE each: to have them zeroed by the kernel anew costs more than to fill them

Page* fresh_page(u32 shift) {
    Page* p = nullptr;
    {
        std::lock_guard<std::mutex> held(spare_lock);
        auto& some = spares[shift];
        if (!some.empty()) {
            p = some.back();
            some.pop_back();
        }
    }
    if (!p) p = (Page*)aligned_alloc(64, sizeof(Page::whole) + (Page::BYTES >> shift) * sizeof(u32));
    if (!p) fault("no memory for the checks of global memory: launch without them");
    memset(p->whole, 0, sizeof p->whole);
    return p;
}

void keep_page(Page* p, u32 shift) {
    auto& some = spares[shift];
    if (some.size() < 16384) some.push_back(p);
    else free(p);
}

}  // namespace

Page& page(Region& r, Which which, u64 number, u32 shift) {
    auto& slot = r.pages[which * r.count + number];
    Page* p = slot.load(std::memory_order_acquire);
    if (p) return *p;
    Page* made = fresh_page(shift);
    if (slot.compare_exchange_strong(p, made)) return *made;
    std::lock_guard<std::mutex> held(spare_lock);
    keep_page(made, shift);
    return *p;
}

void more_epochs(std::atomic<Epoch*>& piece) {
    Epoch* made = nullptr;
    {
        std::lock_guard<std::mutex> held(spare_lock);
        if (piece.load()) return;
        if (!spare_epochs.empty()) {
            made = spare_epochs.back();
            spare_epochs.pop_back();
        }
    }
    if (!made) made = new Epoch[PIECE];
    Epoch* none = nullptr;
    if (!piece.compare_exchange_strong(none, made)) delete[] made;
}

Region* region(Checker& c, Tracked& t, u64 at) {
    if (c.region && at >= c.region->lo && at < c.region->hi) return c.region;
    auto next =
        std::upper_bound(t.regions.begin(), t.regions.end(), at, [](u64 x, const Region& r) { return x < r.lo; });
    if (next == t.regions.begin() || at >= (--next)->hi) return nullptr;
    return c.region = &*next;
}

void check_new_launch(Launch& l) {
    Tracked* t = new Tracked;
    l.shadow = t;
    while ((1u << t->shift) > std::max(1u, l.global_granule)) --t->shift;
    for (u32 k = 0; k < l.nallocs; ++k) {
        const Alloc& a = l.allocs[k];
        if (a.flags & READ_ONLY) continue;
        Region r{a.lo, a.hi, a.lo & ~u64((1 << Page::SPAN) - 1), a.name, nullptr, 0};
        r.count = (a.hi - r.start + Page::BYTES - 1) / Page::BYTES;
        r.pages.reset(new std::atomic<Page*>[3 * r.count]());
        t->regions.push_back(std::move(r));
    }
}

void check_end_launch(Launch& l) {
    delete (Tracked*)l.shadow;
    l.shadow = nullptr;
}

Tracked::~Tracked() {
    std::lock_guard<std::mutex> held(spare_lock);
    for (Region& r : regions)
        for (u64 k = 0; k < 3 * r.count; ++k)
            if (Page* p = r.pages[k].load()) keep_page(p, shift);
    for (u32 k = 0; k < PIECES && table[k].load(); ++k)
        if (spare_epochs.size() < 2) spare_epochs.push_back(table[k]);
        else delete[] table[k].load();
}

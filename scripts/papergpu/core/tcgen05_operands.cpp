// Shared-memory descriptors of sm_100, and tcgen05.cp, which copies what one names.
#include "async.hpp"
#include "tensor_memory.hpp"
#include <algorithm>

Slices slices(Warp& w, u64 descriptor, u32 rows, u32 chunks, bool transposed, u32 depth, u32 width, char name) {
    const u32 start = u32(descriptor & 0x3fff) << 4, leading = u32(descriptor >> 16 & 0x3fff) << 4,
              stride = u32(descriptor >> 32 & 0x3fff) << 4;
    const u32 version = descriptor >> 46 & 7, phase = descriptor >> 49 & 7, absolute = descriptor >> 52 & 1,
              mode = descriptor >> 61;
    if (version != 1)
        fault("the descriptor of %c, %#llx, has %u in bits 46 to 48, and on sm_100 they must be 1: build it for sm_100",
              name, (unsigned long long)descriptor, version);
    if (absolute)
        fault("the descriptor of %c, %#llx, gives its leading dimension as an address, which sm_100 has not: give it "
              "as an offset",
              name, (unsigned long long)descriptor);
    if (descriptor >> 53 & 0xff || mode == 3 || mode == 5 || mode == 7)
        fault("the descriptor of %c, %#llx, has reserved bits set, or swizzle %u: use 0, 1, 2, 4 or 6", name,
              (unsigned long long)descriptor, mode);
    // Bytes of a row (of a column, if transposed) within the pattern, and which bits of its address are changed.
    const u32 bytes = mode == 0 ? 16 : mode == 6 ? 32 : mode == 4 ? 64 : 128;
    const auto swizzled = [=](u32 at) {
        const u32 line = (at >> 7) - phase;
        if (mode == 2) return at ^ (line & 7) << 4;
        if (mode == 4) return at ^ (line & 3) << 4;
        if (mode == 6) return at ^ (line & 1) << 4;
        if (mode == 1) return at ^ (line & 3) << 5;
        return at;
    };
    Slices s;
    s.along_k = !transposed;
    if (!transposed) {
        if (mode == 1)
            fault("the descriptor of %c, %#llx, swizzles pieces of 32 bytes, which is for transposed matrices alone: "
                  "use another swizzle",
                  name, (unsigned long long)descriptor);
        s.at.reserve(rows * chunks);
        for (u32 r = 0; r < rows; ++r)
            for (u32 j = 0; j < chunks; ++j)
                s.at.push_back(swizzled(start + r / 8 * stride + r % 8 * bytes + j * (mode == 0 ? leading : 16)));
    } else {
        const u32 across = rows * width / 16, row = bytes / 16, deep = mode == 1 ? 4 : 8;
        s.at.reserve(depth * across);
        for (u32 k = 0; k < depth; ++k)
            for (u32 c = 0; c < across; ++c)
                s.at.push_back(swizzled(
                    start + (mode == 0 ? c * stride + k / 8 * leading + k % 8 * 16
                                       : c % row * 16 + c / row * leading + k % deep * bytes + k / deep * stride)));
    }
    const u32 size = launch_of(w).shared;
    for (u32 at : s.at)
        if (at + 16 > size)
            fault("the descriptor of %c, %#llx, reaches byte %u of shared memory, which has %u: mend its address or "
                  "its offsets",
                  name, (unsigned long long)descriptor, at + 15, size);
    return s;
}

Held hold_slices(Warp& w, int lane, Block& b, const Slices& s, u32 used, const char* what) {
    Held h;
    if (!launch_of(w).checks) return h;
    std::vector<u32> at = s.at;
    std::sort(at.begin(), at.end());
    at.erase(std::unique(at.begin(), at.end()), at.end());
    for (size_t k = 0; k < at.size();) {
        size_t e = k + 1;
        while (used == 16 && e < at.size() && at[e] == at[e - 1] + 16) ++e;
        h.ranges.push_back({b.shared + at[k], u32(e - k - 1) * 16 + used});
        k = e;
    }
    for (auto [p, n] : h.ranges) {
        async_proxy_read(w, p, n, what);
        async_guard(w, lane, p, n, READ);
    }
    return h;
}

void let_go_slices(Gang& g, const Held& h) {
    for (auto [p, n] : h.ranges) async_let_go(g, p, n, READ);
}

namespace {

enum Copy : u32 { C128x256, C4x256, C128x128, C64x02_13, C64x01_23, C32x4 };

// a: the address; b: the descriptor; flags: cta_group, and the shape from bit 4 on
void copy(Warp& w, const Inst& i) {
    const u32 shape = i.flags >> 4, chunks = shape <= C4x256 ? 2 : 1;
    const u32 rows = shape == C4x256 ? 4 : shape == C32x4 ? 32 : shape == C64x02_13 || shape == C64x01_23 ? 64 : 128;
    for (u32 m = w.m; m; m &= m - 1) {
        const u32 lane = lowest(m), address = get<u32>(w.R, i.a, lane), column = address & 0xffff,
                  first = address >> 16;
        const Slices s = slices(w, get<u64>(w.R, i.b, lane), rows, chunks, false, 0, 1, 'S');
        std::vector<Patch> patches;
        std::vector<Block*> blocks = tensor_group(w, i.flags & 15);
        if (shape == C4x256 ? first > 31 : first)
            fault_lane(
                lane,
                "tcgen05.cp writes from lane %u of tensor memory on, and its shape begins at lane 0: mend the address",
                first);
        std::vector<Held> held;
        for (Block* b : blocks) {
            tensor_allocated(*b, column, column + 4 * chunks, "tcgen05.cp writes");
            Patch p{b, shape == C4x256 ? 0x55u << first / 16 : 0xffu, column, column + 4 * chunks, true};
            if (launch_of(w).checks) tensor_collides(w, p, w.index * 32 + lane, "tcgen05.cp writes");
            patches.push_back(p);
            held.push_back(hold_slices(w, int(lane), *b, s, 16, "tcgen05.cp reads"));
        }
        Gang* g = w.block->gang;
        tensor_queue(w, lane, patches, [=] {
            for (size_t q = 0; q < blocks.size(); ++q) {
                u32* T = tensor_words(*blocks[q]);
                for (u32 r = 0; r < rows; ++r)
                    for (u32 j = 0; j < chunks; ++j) {
                        u32 piece[4];
                        memcpy(piece, blocks[q]->shared + s.at[r * chunks + j], 16);
                        u32 to[4], n = 1;
                        to[0] = r;
                        switch (shape) {
                        case C4x256: to[0] = first + 32 * r; break;
                        case C64x02_13:
                            to[1] = r + 64;
                            n = 2;
                            break;
                        case C64x01_23:
                            to[0] = r % 32 + 64 * (r / 32);
                            to[1] = to[0] + 32;
                            n = 2;
                            break;
                        case C32x4:
                            for (n = 0; n < 4; ++n) to[n] = r + 32 * n;
                            break;
                        }
                        for (u32 k = 0; k < n; ++k)
                            for (u32 c = 0; c < 4; ++c) T[size_t(column + 4 * j + c) * TENSOR_LANES + to[k]] = piece[c];
                    }
                let_go_slices(*g, held[q]);
            }
        });
    }
}
Add add_copy("tcgen05.cp", copy);

bool is_mbarrier(Gang& g, const u8* at) { return block_at(g, at).async->mbarriers.count(offset_at(g, at)); }

// a: the mbarrier; b: the mask of blocks; flags: cta_group, 4 to all blocks of the mask
void commit(Warp& w, const Inst& i) {
    for (u32 m = w.m; m; m &= m - 1) {
        const u32 lane = lowest(m);
        Block& b = *w.block;
        Gang* g = b.gang;
        tensor_group(w, i.flags & 3);
        const char* what = "tcgen05.commit arrives at an mbarrier of 8 bytes in";
        u8* at = i.base == WIDE ? global_at(w, get<u64>(w.R, i.a, lane), 8, ATOMIC, what)
                                : shared_at(w, get<u32>(w.R, i.a, lane), 8, what);
        if (at < g->shared || at >= g->shared + g->blocks.size() * g->stride)
            fault_lane(lane, "tcgen05.commit is given an mbarrier that is not in shared memory");
        std::vector<u8*> all;
        if (i.flags & 4) {
            const u32 mask = get<u32>(w.R, i.b, lane) & 0xffff;
            const u64 offset = u64(at - g->shared) % g->stride;
            for (u32 t = mask; t; t &= t - 1) all.push_back(cluster_block(w, u32(lowest(t))).shared + offset);
        } else all.push_back(at);
        const bool checks = launch_of(w).checks;
        auto seen = std::make_shared<Clock>();
        if (checks) check_release(w, *seen);
        for (u8* one : all)
            if (!is_mbarrier(*g, one)) mbarrier_arrive(*g, one, 1);  // which finds it
        // One that has been given up since hears of nothing: Triton gives up those of a loop's last steps so.
        tensor_queue(w, lane, {}, [=] {
            for (u8* one : all)
                if (is_mbarrier(*g, one)) mbarrier_arrive(*g, one, 1, checks ? seen.get() : nullptr);
        });
    }
}
Add add_commit("tcgen05.commit", commit);

}  // namespace

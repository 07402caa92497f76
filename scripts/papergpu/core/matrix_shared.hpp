// Matrices in shared memory, as the descriptors of wgmma say where they lie.
#pragma once
#include "matrix.hpp"
#include <vector>

// A matrix in shared memory: 64 bits as PTX lays them out.
struct Descriptor {
    u64 start, lead, stride;
    u32 base, swizzle;
    bool across;  // swizzle: bytes of a row of its pattern, or 0
    Descriptor(u64 x, bool across)
        : start((x & 0x3fff) << 4), lead((x >> 16 & 0x3fff) << 4), stride((x >> 32 & 0x3fff) << 4), base(x >> 49 & 7),
          swizzle(x >> 62 ? 256 >> (x >> 62) : 0), across(across) {}
    // 16 bytes: 8 rows make a block, and `chunk` counts along k; across, row counts along k and block along m or n.
    u64 at(u32 block, u32 row, u32 chunk) const {
        if (!swizzle) return start + block * stride + chunk * lead + row * 16;
        const u32 wide = swizzle / 16;
        const u64 x = across ? start + block / wide * lead + chunk * stride + row * swizzle + block % wide * 16
                             : start + block * stride + row * swizzle + chunk * 16;
        return x ^ ((((x >> 7) - base) & (wide - 1)) << 4);
    }
};

static inline void image(const u8* shared, const Descriptor& d, u32 block, u32 chunk, u32* to) {
    if (!d.across) {
        for (u32 r = 0; r < 8; ++r) memcpy(to + 4 * r, shared + d.at(block, r, chunk), 16);
        return;
    }
    u16 t[8][8], k[8][8];
    for (u32 r = 0; r < 8; ++r) memcpy(k[r], shared + d.at(block, r, chunk), 16);
    for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) t[c][r] = k[r][c];
    memcpy(to, t, 128);
}

// What products read of shared memory, in pieces as long as they come.
struct Pieces {
    std::vector<u64> chunks_read;  // a bit for each 16 bytes
    void clear(const Warp& w) { chunks_read.assign(launch_of(w).shared / 1024 + 1, 0); }
    void add(u64 at) { chunks_read[at >> 10] |= 1ull << (at >> 4 & 63); }
    template <class F> void each(const Warp& w, F f) const {  // f(address, bytes)
        u64 from = 0, to = 0;
        const u8* const shared = w.block->shared;
        for (u64 k = 0; k < chunks_read.size(); ++k)
            for (u64 left = chunks_read[k]; left;) {
                const u64 first = u64(__builtin_ctzll(left)),
                          n = ~(left >> first) ? u64(__builtin_ctzll(~(left >> first))) : 64 - first;
                const u64 at = k * 1024 + first * 16;
                if (at != to) {
                    if (to > from) f(shared + from, to - from);
                    from = at;
                }
                to = at + n * 16;
                left = first + n == 64 ? 0 : left & ~0ull << (first + n);
            }
        if (to > from) f(shared + from, to - from);
    }
};

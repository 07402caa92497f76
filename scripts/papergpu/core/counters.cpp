// What an access costs in sectors of global memory and wavefronts of shared memory, and what it need cost.
#include "running.hpp"
#include <algorithm>

namespace {

// The lanes that are the first with their number, of 32 numbers.
u32 firsts(const u32* t) {
    alignas(64) u32 p[64], again[32] = {};
    for (int k = 0; k < 32; ++k) {
        p[k] = ~0u;
        p[32 + k] = t[k];
    }
    for (int r = 1; r < 32; ++r)
        for (int k = 0; k < 32; ++k) again[k] |= u32(p[32 + k] == p[32 + k - r]);
    u32 twice = 0;
    for (int k = 0; k < 32; ++k) twice |= again[k] << k;
    return ~twice;
}

// Lanes that take no part want what the lane before them wants, so that they change nothing.
void filled(const u32* t, u32 mask, u32* to) {
    u32 last = t[lowest(mask)];
    for (int k = 0; k < 32; ++k) to[k] = last = mask >> k & 1 ? t[k] : last;
}

struct Counted {
    u32 count, ideal;
};

// Sectors are pieces of 32 bytes. The ideal moves the different bytes that are asked for, side by side.
Counted sectors(const u32* t, u32 bytes) {
    u32 back = 0, asked = 1, found = 1;
    for (int k = 1; k < 32; ++k) {
        back |= t[k] < t[k - 1];
        asked += t[k] != t[k - 1];
        found += t[k] >> 5 != t[k - 1] >> 5;
    }
    if (back) {
        alignas(64) u32 s[32];
        for (int k = 0; k < 32; ++k) s[k] = t[k] >> 5;
        found = u32(__builtin_popcount(firsts(s)));
        asked = bytes == 32 ? found : u32(__builtin_popcount(firsts(t)));
    }
    return {bytes <= 32 ? found : asked * (bytes / 32), (asked * bytes + 31) / 32};
}

// Lanes that are served together want words of 4, 8 or 16 bytes from 32, 16 or 8 banks of that width:
// as many wavefronts as the busiest bank has different words. (Shared memory has banks of 4 bytes; words
// that are aligned take two or four of them together.)
u32 passes(const u32* word, u32 lanes, u32 banks) {
    u32 met = 0, seen[32];
    u8 next[32], first[32];
    u32 n = 0, most = 0;
    u8 load[32];
    for (u32 t = lanes; t; t &= t - 1) {
        const u32 x = word[lowest(t)], b = x & (banks - 1);
        if (!(met >> b & 1)) {
            met |= 1u << b;
            seen[n] = x;
            next[n] = 255;
            first[b] = u8(n++);
            load[b] = 1;
            most = std::max(most, 1u);
            continue;
        }
        u32 k = first[b];
        while (seen[k] != x && next[k] != 255) k = next[k];
        if (seen[k] == x) continue;
        seen[n] = x;
        next[n] = first[b];
        first[b] = u8(n++);
        most = std::max<u32>(most, ++load[b]);
    }
    return most;
}

// Atomics of lanes that name one word take turns as well.
u32 turns(const u32* word, u32 lanes, u32 banks) {
    u8 load[32] = {};
    u32 most = 0;
    for (u32 t = lanes; t; t &= t - 1) most = std::max<u32>(most, ++load[word[lowest(t)] & (banks - 1)]);
    return most;
}

// Whether each lane wants what its neighbour does, one lane or two away.
bool alike(const u32* t, u32 mask) {
    for (int step = 1; step <= 2; ++step) {
        bool same = true;
        for (u32 m = mask; m && same; m &= m - 1) {
            const int k = lowest(m), o = k ^ step;
            same = !(mask >> o & 1) || t[k] == t[o];
        }
        if (same) return true;
    }
    return false;
}

Counted wavefronts(const u32* t, u32 mask, u32 bytes, Access access, bool merges) {
    const u32 width = bytes <= 4 ? 4 : bytes, shift = u32(__builtin_ctz(width));
    alignas(64) u32 word[32];
    const bool all = mask == ~0u;
    for (int k = 0; k < 32; ++k) word[k] = t[k] >> shift;
    if (width == 4 && access != ATOMIC) {
        if (!all) filled(word, mask, word);
        u32 met = 0, lo = ~0u, hi = 0;
        for (int k = 0; k < 32; ++k) {
            lo = std::min(lo, word[k]);
            hi = std::max(hi, word[k]);
            met |= 1u << (word[k] & 31);
        }
        if (hi - lo < 32 || met == ~0u) return {1, 1};  // no two words of one bank
        u8 load[32] = {};
        u32 most = 0;
        for (u32 f = firsts(word); f; f &= f - 1) most = std::max<u32>(most, ++load[word[lowest(f)] & 31]);
        return {most, 1};
    }
    // 64 bits go by halves, 128 by quarters of the warp; a load on sm_70 and sm_75 by twice as many
    // lanes where neighbours want the same.
    const u32 banks = 128 / width, each = merges && width > 4 && access == READ && alike(t, mask) ? 2 * banks : banks;
    Counted found{0, 0};
    for (u32 start = 0; start < 32; start += each) {
        const u32 lanes = mask & (each == 32 ? ~0u : ((1u << each) - 1) << start);
        if (!lanes) continue;
        ++found.ideal;
        if (access == ATOMIC) {
            found.count += turns(word, lanes, banks);
            continue;
        }
        u32 met = 0, unlike = 0;
        for (u32 k = start; k < start + each; ++k) {
            met |= 1u << (word[k] & (banks - 1));
            unlike |= word[k] ^ word[start];
        }
        // All lanes alike, or each in a bank of its own.
        const bool free = all && (!unlike || (each == banks && u32(__builtin_popcount(met)) == banks));
        found.count += free ? 1 : passes(word, lanes, banks);
    }
    return found;
}

// Keeps a request of the current instruction; `at` are host addresses.
__attribute__((noinline)) void keep(Warp& w, size_t slot, u64 rank, const u64* at, Sample s) {
    const Block& b = *w.block;
    const Gang& g = *b.gang;
    bool own = true;
    for (u32 k = 0; k < 32; ++k) {
        if (!(s.mask >> k & 1)) continue;
        s.at[k] = at[k];
        own = own && (s.space != SHARED || at[k] - u64(b.shared) < g.stride);
    }
    if (s.space == SHARED)
        for (u32 m = s.mask; m; m &= m - 1) {
            u64& x = s.at[lowest(m)];
            const u64 from = x - u64(g.shared);
            // With bytes of other blocks of the cluster: as an address of its shared memory.
            x = from % g.stride + (own ? 0 : u64(g.blocks[from / g.stride].rank) << 24);
        }
    for (int d = 0; d < 3; ++d) s.block[d] = b.at[d];
    s.warp = w.id;
    s.instruction = w.pc;
    g.samples->take(slot, rank) = s;
}

// Looks whether a request is the worst so far of its instruction: lane k accesses memory at at(k).
template <class F>
inline __attribute__((always_inline)) void sample(Warp& w, u32 mask, int bytes, Space space, Access access,
                                                  Counted found, F at) {
    const size_t slot = 2 * size_t(w.pc) + (space == SHARED);
    const u64 rank = Samples::rank(found.count, found.ideal, w.early);
    if (__builtin_expect(rank <= w.block->gang->ranks[slot], 1)) return;
    u64 t[32];
    for (u32 k = 0; k < 32; ++k) t[k] = at(k);
    keep(w, slot, rank, t, {{}, mask, u32(bytes), found.count, found.ideal, {}, 0, 0, space, access, {}});
}

// Counts a request of offsets, and says what it was.
Counted count_request(Warp& w, const Inst& i, const u32* t, u32 mask, int bytes, Space space, Access access) {
    Count& c = count_of(w, i);
    alignas(64) u32 s[32];
    ++(space == SHARED ? c.shared_requests : c.requests);
    if (mask != ~0u && space != SHARED) {
        filled(t, mask, s);
        t = s;
    }
    if (space == SHARED) {
        const Counted found = wavefronts(t, mask, u32(bytes), access, w.launch->sm < 80);
        c.wavefronts += found.count;
        c.ideal_wavefronts += found.ideal;
        return found;
    }
    const Counted found = sectors(t, u32(bytes));
    c.sectors += found.count;
    c.ideal_sectors += found.ideal;
    return found;
}

}  // namespace

void count_offsets(Warp& w, const Inst& i, const u32* t, u32 mask, int bytes, Space space, Access access, u64 base) {
    const Counted found = count_request(w, i, t, mask, bytes, space, access);
    sample(w, mask, bytes, space, access, found, [=](u32 k) { return base + t[k]; });
}

void count_simple(Warp& w, const Inst& i, u64 at, bool row, int bytes, Space space, Access access) {
    Count& c = count_of(w, i);
    const u32 n = u32(bytes);
    const auto address = [=](u32 k) { return row ? at + k * n : at; };
    if (space != SHARED) {
        const Counted found{row ? (u32(at & 31) + 32 * n + 31) / 32 : (n + 31) / 32, row ? n : (n + 31) / 32};
        ++c.requests;
        c.sectors += found.count;
        c.ideal_sectors += found.ideal;
        return sample(w, w.m, bytes, space, access, found, address);
    }
    ++c.shared_requests;
    // Whether in a row or the same, the lanes of a piece have no conflict.
    const u32 width = n <= 4 ? 4 : n,
              each = 128 / width * (!row && width > 4 && access == READ && w.launch->sm < 80 ? 2 : 1);
    u32 pieces = 0;
    for (u32 start = 0; start < 32; start += each)
        pieces += ((w.m >> start) & (each == 32 ? ~0u : (1u << each) - 1)) != 0;
    c.wavefronts += pieces;
    c.ideal_wavefronts += pieces;
    sample(w, w.m, bytes, space, access, {pieces, pieces}, address);
}

void count_access(Warp& w, const Inst& i, const u64* at, u32 mask, int bytes, Space space, Access access) {
    if (!mask) return;
    u64 lo = ~0ull, hi = 0;
    for (int k = 0; k < 32; ++k)
        if (mask >> k & 1) {
            lo = std::min(lo, at[k]);
            hi = std::max(hi, at[k]);
        }
    const u64 base = lo & ~1023ull;
    alignas(64) u32 t[32];
    if (hi - base < ~0u) {
        for (int k = 0; k < 32; ++k) t[k] = u32(at[k] - base);
        return count_offsets(w, i, t, mask, bytes, space, access, base);
    }
    // Further apart than 32 bits say: sectors are numbered anew, in order, each lane's bytes in its own place.
    u64 order[32];
    int n = 0;
    for (u32 m = mask; m; m &= m - 1) order[n++] = at[lowest(m)] >> 5;
    std::sort(order, order + n);
    n = int(std::unique(order, order + n) - order);
    for (int k = 0; k < 32; ++k)
        t[k] = u32(std::lower_bound(order, order + n, at[k] >> 5) - order) << 6 | u32(at[k] & 31);
    const Counted found = count_request(w, i, t, mask, bytes, space, access);
    sample(w, mask, bytes, space, access, found, [=](u32 k) { return at[k]; });
}

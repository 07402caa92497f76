// The copies of boxes that tensor maps describe.
#include "tensor_maps.hpp"
#include <algorithm>
#include <optional>

namespace {

// a shared memory, b the map's address, c the mbarrier; lists: coordinates, im2col's offsets, the mask of a multicast.
// Of 16 on, in `flags`: whether the map is of im2col, and whether there are offsets.
enum { MULTICAST = 1, ROWS = 2, REDUCES = 4, PAIR = 8, IMAGES = 16, OFFSETS = 32 };
// and the dimensions << 8, the operation << 16

// What an instruction says of where its box lies: the innermost coordinate first, and what is added to W, H and D.
struct Place {
    s32 c[5];
    u32 offset[3] = {};
    u32 count;  // of the registers that said it
};

Place place_of(Warp& w, const Inst& i, int lane) {
    const u32* q = list(w, i);
    Place at;
    at.count = i.flags & ROWS ? 5 : i.flags >> 8 & 255;
    for (u32 k = 0; k < at.count; ++k) at.c[k] = get<s32>(w.R, q[k], lane);
    if (i.flags & OFFSETS)
        for (u32 k = 0, n = at.count - 2; k < n; ++k) at.offset[k] = get<u16>(w.R, q[at.count++], lane);
    return at;
}

Map map_of(Warp& w, const Inst& i, int lane) {
    return map_at(w, lane, get<u64>(w.R, i.b, lane), i.flags >> 8 & 255, i.flags & IMAGES ? IM2COL : TILED,
                  i.flags & ROWS);
}

// Pixel after pixel of a box of im2col: along W, then H and D, then from image to image.
struct Pixels {
    const Raw& m;
    const u32 spatial;
    s64 at[4], lower[3], upper[3];  // W, H, D as many as there are, then N

    Pixels(const Raw& raw, int lane, const Place& p) : m(raw), spatial(raw.rank - 2) {
        static const char* const names[3] = {"W", "H", "D"};
        static const u32 most[3] = {0xffff, 0xff, 0x1f};
        for (u32 d = 0; d < spatial; ++d) {
            if (p.offset[d] > most[spatial - 1])
                fault_lane(lane, "copies with the im2col offset %u in dimension %s: up to %u in a tensor map of %u",
                           p.offset[d], names[d], most[spatial - 1], m.rank);
            const s64 first = m.lower[d], last = s64(m.sizes[d + 1]) - 1 + m.upper[d], c = p.c[d + 1];
            if (c < first || c > last)
                fault_lane(lane,
                           "copies pixels from %lld on in dimension %s, outside of its tensor map's bounding box of "
                           "%lld to %lld",
                           (long long)c, names[d], (long long)first, (long long)last);
            if ((c - first) % m.steps[d + 1])
                fault_lane(lane,
                           "copies pixels from %lld on in dimension %s, which is not executed: the element stride %u "
                           "does not lead there from the bounding box's corner %lld",
                           (long long)c, names[d], m.steps[d + 1], (long long)first);
            at[d] = c + p.offset[d], lower[d] = first + p.offset[d], upper[d] = last + p.offset[d];
        }
        at[spatial] = p.c[m.rank - 1];
    }
    // Whether the pixel lies in the tensor, with its address for channel 0.
    bool find(u64& address) const {
        bool in = true;
        address = m.base;
        for (u32 d = 0; d <= spatial; ++d) {
            in &= at[d] >= 0 && at[d] < s64(m.sizes[d + 1]);
            address += u64(at[d]) * m.strides[d];
        }
        return in;
    }
    void next() {
        for (u32 d = 0; d < spatial; ++d) {
            at[d] += m.steps[d + 1];
            if (at[d] <= upper[d]) return;
            at[d] = lower[d];
        }
        ++at[spatial];
    }
};

struct Piece {
    u64 global;
    u32 at, bytes;
};  // of the box that lies within the tensor

std::vector<Piece> pieces(Warp& w, int lane, const Map& map, const Place& place, bool rows4, Access access) {
    const Raw& m = map.raw;
    const s32* c = place.c;
    const u32 bits = BITS[m.type], rank = m.rank;
    std::vector<Piece> found;
    found.reserve(map.rows);
    if (s64(c[0]) * bits % 8) fault_lane(lane, "copies a box that begins within a byte, at element %d", c[0]);
    const s64 lo = std::max<s64>(0, -s64(c[0])), hi = std::min<s64>(m.box[0], s64(m.sizes[0]) - c[0]);
    std::optional<Pixels> pixels;
    if (m.mode == IM2COL) pixels.emplace(m, lane, place);
    if (lo >= hi) return found;
    const u32 keep = w.m;
    w.m = 1u << lane;
    const bool checks = launch_of(w).checks;
    u32 k[5] = {};
    for (u32 row = 0; row < map.rows; ++row) {
        u64 at = m.base + u64((c[0] + lo) * bits / 8);
        bool in = true;
        if (pixels) {
            u64 pixel;
            in = pixels->find(pixel);
            pixels->next();
            at += pixel - m.base;
        } else if (rows4) {
            const s64 y = c[1 + row];
            in = y >= 0 && y < m.sizes[1];
            at += u64(y) * m.strides[0];
        } else
            for (u32 d = 1; d < rank; ++d) {
                const s64 x = s64(c[d]) + s64(k[d]) * m.steps[d];
                in &= x >= 0 && x < s64(m.sizes[d]);
                at += u64(x) * m.strides[d - 1];
            }
        if (in) {
            const u32 n = u32((hi - lo) * bits / 8);
            global_at(w, at, n, access, "copies");
            if (checks) check_bytes(w, (u8*)at, n, access, GLOBAL);
            found.push_back({at, row * map.inner + u32(lo * bits / 8), n});
        }
        for (u32 d = 1; d < rank && ++k[d] == map.spread[d]; ++d) k[d] = 0;
    }
    w.m = keep;
    return found;
}

// Where the hardware puts a byte: 16-byte pieces (32 with that atomicity) change places by the address's own bits.
u64 swizzled(u64 at, const Raw& m) {
    switch (m.swizzle) {
    case 1: return at ^ (at >> 3 & 0x10);
    case 2: return at ^ (at >> 3 & 0x30);
    case 3: return m.atomicity ? at ^ (at >> 2 & 0x60) : at ^ (at >> 3 & 0x70);
    }
    return at;
}

// Between a row as it is numbered in the box and shared memory.
template <class F> void each_run(const Raw& m, u8* box, const Piece& p, F f) {  // f(shared, bytes done before, bytes)
    if (!m.swizzle) {
        f(box + p.at, 0u, p.bytes);
        return;
    }
    for (u32 k = 0; k < p.bytes;) {
        const u64 at = u64(box) + p.at + k;
        const u32 n = std::min<u32>(p.bytes - k, 16 - (at & 15));
        f((u8*)swizzled(at, m), k, n);
        k += n;
    }
}

void fill(const Raw& m, u8* box, u64 bytes) {
    if (!m.fill) {
        memset(box, 0, bytes);
        return;
    }
    const u32 size = BITS[m.type] / 8;  // a NaN
    for (u64 k = 0; k < bytes; ++k) box[k] = k % size == size - 1 ? 0x7f : 0xff;
}

void load(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    const u32* q = list(w, i);
    const u32 blocks = launch_of(w).cluster[0] * launch_of(w).cluster[1] * launch_of(w).cluster[2];
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const Place place = place_of(w, i, lane);
        const Map map = map_of(w, i, lane);
        const u32 to = get<u32>(w.R, i.a, lane), bar = get<u32>(w.R, i.c, lane);
        if (i.flags & PAIR ? (to >> 25 != bar >> 25) : (to >> 24 != bar >> 24))
            fault_lane(
                lane,
                "copies into block %u of its cluster, and signals an mbarrier of block %u: both must be of one block",
                to >> 24, bar >> 24);
        u32 mask = i.flags & MULTICAST ? get<u16>(w.R, q[place.count], lane) : 1u << (to >> 24);
        if (!mask || mask >> blocks)
            fault_lane(lane, "copies to the blocks of mask %#x of a cluster of %u", mask, blocks);
        auto parts = std::make_shared<const std::vector<Piece>>(pieces(w, lane, map, place, i.flags & ROWS, READ));
        u64 inside = 0;
        for (const Piece& p : *parts) inside += p.bytes;
        auto seen = std::make_shared<Clock>();  // of w, with what it writes by this
        for (; mask; mask &= mask - 1) {
            const u32 rank = u32(lowest(mask)), of = i.flags & PAIR ? (rank & ~1u) | (bar >> 24 & 1) : rank;
            u8* at = shared_bytes(w, lane, rank << 24 | (to & 0xffffff), map.bytes, 128, "copies to");
            u8* b = shared_bytes(w, lane, of << 24 | (bar & 0xffffff), 8, 8, "signals the mbarrier at");
            if (checks) async_guard(w, lane, at, map.bytes, WRITE);
            memset(at, 0xff, map.bytes);
            Flight& one = begin_flight(w, lane);
            one.into = &block_at(g, at);
            one.land = [&g, at, b, map, parts, inside, seen] {
                if (inside < map.bytes) fill(map.raw, at, map.bytes);
                for (const Piece& p : *parts)
                    each_run(map.raw, at, p, [&p](u8* s, u32 done, u32 n) { memcpy(s, (u8*)p.global + done, n); });
                if (g.launch->checks) {
                    async_let_go(g, at, map.bytes, WRITE);
                    async_wrote(g, at, map.bytes);
                }
                mbarrier_complete_tx(g, b, map.bytes, g.launch->checks ? seen.get() : nullptr);
            };
            profiled(w, inside);
        }
        if (checks) check_release(w, *seen);
    }
}

void store(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks, reduces = i.flags & REDUCES;
    const Reduction op = Reduction(i.flags >> 16);
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const Place place = place_of(w, i, lane);
        const Map map = map_of(w, i, lane);
        if (map.raw.mode == IM2COL)
            for (u32 d = 0; d + 2 < map.raw.rank; ++d)
                if (map.raw.lower[d] < 0 || map.raw.upper[d] > 0)
                    fault_lane(
                        lane,
                        "copies to pixels of a bounding box whose corners %d and %d leave the tensor: none below "
                        "0, none above",
                        map.raw.lower[d], map.raw.upper[d]);
        const u32 type = map.raw.type;
        if (reduces && (op >= AND   ? type < U32 || type > S64
                        : op >= INC ? type != U32
                        : op == ADD ? type == U8 || type == U16 || type == U4
                                    : type < U32 || type == F32 || type == F64 || type == U4))
            fault_lane(lane, "reduces elements of the type %u of its tensor map by an operation that it has not", type);
        u8* from = shared_bytes(w, lane, get<u32>(w.R, i.a, lane), map.bytes, 128, "copies from");
        auto parts = std::make_shared<const std::vector<Piece>>(
            pieces(w, lane, map, place, i.flags & ROWS, reduces ? ATOMIC : WRITE));
        if (checks) {
            async_proxy_read(w, from, map.bytes, "copies");
            async_guard(w, lane, from, map.bytes, READ);
        }
        auto held = std::make_shared<std::vector<u8>>(map.bytes);
        Flight& one = begin_flight(w, lane);
        one.group = w.async->bulk[lane];
        // The box's bytes in its own order, one part behind the other.
        one.fetch = [&g, held, from, map, parts] {
            for (const Piece& p : *parts)
                each_run(map.raw, from, p,
                         [&p, &held](u8* s, u32 done, u32 n) { memcpy(held->data() + p.at + done, s, n); });
            if (g.launch->checks) async_let_go(g, from, map.bytes, READ);
        };
        one.land = [&g, held, parts, reduces, op, type] {
            for (const Piece& p : *parts) {
                if (reduces)
                    reduce_into(op, Element(type), (u8*)p.global, held->data() + p.at, p.bytes, g.launch->threads <= 1);
                else memcpy((u8*)p.global, held->data() + p.at, p.bytes);
            }
        };
        u64 inside = 0;
        for (const Piece& p : *parts) inside += p.bytes;
        profiled(w, inside);
    }
}

void prefetch(Warp& w, const Inst& i) {
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        const Map map = map_of(w, i, lane);
        if (map.raw.mode == IM2COL) Pixels(map.raw, lane, place_of(w, i, lane));
    }
}
Add a1("bulk.tensor.load", load), a2("bulk.tensor.store", store), a3("bulk.tensor.prefetch", prefetch);

}  // namespace

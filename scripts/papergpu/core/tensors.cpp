// The copies of boxes that tensor maps describe.
#include "async.hpp"
#include <algorithm>
#include <optional>

// ---- Tensor maps, as an instruction reads them.

// 128 bytes, as papergpu/tensormap.py writes them and tensormap.replace changes them.
struct Raw {
    u64 base, strides[4];
    u32 sizes[5], box[5], steps[5];  // box of an im2col map: channels, pixels
    u8 type, rank, interleave, swizzle, atomicity, promotion, fill, mode;
    s16 lower[3], upper[3];  // an im2col map's corners, of W, H and D
    u64 magic;
};
static_assert(sizeof(Raw) == 128);
constexpr u64 MAGIC = 0x70616d7265706170;  // "papermap"
enum Mode : u8 { TILED, IM2COL };          // `mode` of a map

constexpr u32 BITS[16] = {8, 16, 32, 32, 64, 64, 16, 32, 32, 64, 16, 32, 32, 4, 4, 6};

struct Map {
    Raw raw;
    u64 at;
    u32 inner, rows, spread[5];
    u64 bytes;
};  // spread: how many of each dimension are copied

// The map at a generic address, as an instruction of `rank` dimensions and that mode uses it.
Map map_at(Warp& w, int lane, u64 address, u32 rank, Mode mode, bool rows4);

// ---- Tensor maps: what an instruction makes of one, and how a kernel changes one.

typedef unsigned long long ull;

Map map_at(Warp& w, int lane, u64 address, u32 rank, Mode mode, bool rows4) {
    const Launch& l = launch_of(w);
    Map map;
    map.at = address;
    Raw& m = map.raw;
    if (address % 64)
        fault_lane(lane, "uses a tensor map at %#llx, not a multiple of 64: align it", (ull)address);
    const bool given = (address >= u64(l.params) && address + 128 <= u64(l.params) + l.nparams) ||
                       (address >= u64(l.consts) && address + 128 <= u64(l.consts) + l.nconsts);
    if (!given) {
        const Gang& g = *w.block->gang;
        if (address >= u64(g.shared) && address < u64(g.local) + g.local_bytes)
            fault_lane(lane, "uses a tensor map that does not lie in global memory, constant memory or the parameters: "
                             "copy it there");
        const u32 keep = w.m;
        w.m = 1u << lane;
        global_at(w, address, 128, READ, "reads");
        w.m = keep;
        if (l.checks) check_bytes(w, (u8*)address, 128, READ, GLOBAL);
    }
    memcpy(&m, (u8*)address, 128);
    if (m.magic != MAGIC)
        fault_lane(lane,
                   "finds no tensor map at %#llx: pass the map itself as a __grid_constant__ parameter, or its "
                   "address in global memory",
                   (ull)address);
    if (l.checks) {
        auto& changed = w.block->gang->flights->changed;
        auto it = changed.find(address);
        if (it != changed.end())
            fault_lane(lane,
                       "uses a tensor map that was changed at @%u: add fence.proxy.tensormap::generic.acquire on it in "
                       "between",
                       it->second);
    }
    const u32 bits = BITS[m.type & 15];
#define REFUSE(condition, ...) \
    if (condition) fault_lane(lane, "uses a tensor map " __VA_ARGS__)
    REFUSE(m.rank != rank, "of %u dimensions by an instruction of %u", m.rank, rank);
    REFUSE(m.mode != mode, "of %s by an instruction of %s", m.mode ? "im2col" : "tiles", mode ? "im2col" : "tiles");
    REFUSE(m.type > 13 || m.type == F32_FTZ || m.type == TF32 || m.type == TF32_FTZ,
           "of an element type (%u) that is not executed", m.type);
    REFUSE(m.interleave, "with an interleaved layout, which is not executed");
    REFUSE(m.swizzle > 3, "with the swizzle mode %u, which is not executed", m.swizzle);
    REFUSE(m.atomicity > 1 || (m.atomicity && m.swizzle != 3),
           "with the swizzle atomicity %u in mode %u, which is not executed", m.atomicity, m.swizzle);
    REFUSE(m.base % 16, "whose base %#llx is not a multiple of 16: align it", (ull)m.base);
    for (u32 d = 0; d + 1 < rank; ++d)
        REFUSE(m.strides[d] % 16 || m.strides[d] >> 40,
               "whose stride %u is %llu bytes: it must be a multiple of 16 below 2^40", d, (ull)m.strides[d]);
    for (u32 d = 0; d < rank; ++d) {
        REFUSE(!m.sizes[d], "whose size %u is 0", d);
        REFUSE(!mode && (!m.box[d] || m.box[d] > 256), "whose box is %u in dimension %u: from 1 to 256", m.box[d], d);
        REFUSE(d && (!m.steps[d] || m.steps[d] > 8), "whose element stride is %u in dimension %u: from 1 to 8",
               m.steps[d], d);
    }
    map.inner = m.box[0] * bits / 8;
    map.rows = 1;
    map.spread[0] = m.box[0];
    REFUSE(m.box[0] * bits % 128, "whose box is %u elements wide, of %u bits: a row must be a multiple of 16 bytes",
           m.box[0], bits);
    const u32 span = m.swizzle ? 16u << m.swizzle : 0;
    REFUSE(span && map.inner > span, "whose box is %u bytes wide, and its swizzle spans %u: make the box narrower",
           map.inner, span);
    REFUSE(
        span && map.inner < span,
        "whose box is %u bytes wide in a swizzle of %u, which leaves gaps and is not executed: take a smaller swizzle",
        map.inner, span);
    REFUSE(rows4 && m.box[1] != 1, "whose box has %u rows for a gather or scatter of 4: it must have 1", m.box[1]);
#undef REFUSE
    if (mode == IM2COL) {
        map.rows = m.box[1];
        map.bytes = u64(map.rows) * map.inner;
        return map;
    }
    for (u32 d = 1; d < rank; ++d) {
        map.spread[d] = (m.box[d] + m.steps[d] - 1) / m.steps[d];
        map.rows *= map.spread[d];
    }
    if (rows4) map.rows = 4;
    map.bytes = u64(map.rows) * map.inner;
    return map;
}

namespace {

// ---- changing a map. a its address (flags 1: of shared memory, in 32 bits), b the value, imm the field, count the dimension
enum Field { BASE, RANK, BOX, SIZE, STRIDE, STEP, TYPE, INTERLEAVE, SWIZZLE, ATOMICITY, FILL };

u8* own_bytes(Warp& w, int lane, const Inst& i, Access access) {
    if (i.flags & 1) return shared_bytes(w, lane, get<u32>(w.R, i.a, lane), 128, 64, "changes");
    const u64 at = get<u64>(w.R, i.a, lane);
    if (at % 64) fault_lane(lane, "changes a tensor map at %#llx, not a multiple of 64: align it", (ull)at);
    const u32 keep = w.m;
    w.m = 1u << lane;
    u8* found = global_at(w, at, 128, access, "changes");
    w.m = keep;
    return found;
}

void replace(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const bool checks = launch_of(w).checks;
    for (u32 t = w.m; t; t &= t - 1) {
        const int lane = lowest(t);
        u8* at = own_bytes(w, lane, i, WRITE);
        const u32 d = i.count;
        Raw m;
        memcpy(&m, at, 128);
        if (m.magic && m.magic != MAGIC)
            fault_lane(lane, "changes something other than a tensor map: copy one there first, or 128 bytes of zeros");
        if (m.mode) fault_lane(lane, "changes a tensor map of im2col by an instruction for tiles");
        m.magic = MAGIC;
        const u64 v = i.imm == BASE || i.imm == STRIDE ? get<u64>(w.R, i.b, lane) : get<u32>(w.R, i.b, lane);
        switch (i.imm) {
        case BASE: m.base = v; break;
        case RANK:
            if (v > 4) fault_lane(lane, "gives a tensor map %llu dimensions less one: 0 to 4", (ull)v);
            m.rank = u8(v + 1);
            break;
        case BOX: m.box[d] = u32(v); break;
        case SIZE: m.sizes[d] = u32(v); break;
        case STRIDE: m.strides[d] = v; break;
        case STEP: m.steps[d] = u32(v); break;
        case TYPE:
            if (v > 15) fault_lane(lane, "gives a tensor map the element type %llu: 0 to 15", (ull)v);
            m.type = u8(v);
            break;
        case INTERLEAVE: m.interleave = u8(v); break;
        case SWIZZLE: m.swizzle = u8(v); break;
        case ATOMICITY: m.atomicity = u8(v); break;
        case FILL: m.fill = u8(v); break;
        }
        if (checks) {
            const Space space = i.flags & 1 ? SHARED : GLOBAL;
            if (space == SHARED && g.held)
                for (u64 k = 0; k < 128; k += 8) {
                    u64 A[32];
                    A[lane] = u64(at) + k;
                    async_touch(w, A, 1u << lane, 8, WRITE);
                }
            check_bytes(w, at, 128, WRITE, space);
            if (space == GLOBAL) g.flights->changed[u64(at)] = w.pc;
        }
        memcpy(at, &m, 128);
    }
}

// The whole warp copies one map: a where to (global), b where from (shared)
void copy_map(Warp& w, const Inst& i) {
    Gang& g = *w.block->gang;
    const int lane = lowest(w.m);
    u8* from = shared_bytes(w, lane, get<u32>(w.R, i.b, lane), 128, 64, "copies from");
    Inst to = i;
    to.flags = 0;
    u8* at = own_bytes(w, lane, to, WRITE);
    if (launch_of(w).checks) {
        check_warp_sync(w, w.m);
        check_bytes(w, from, 128, READ, SHARED);
        check_bytes(w, at, 128, WRITE, GLOBAL);
        g.flights->changed[u64(at)] = w.pc;
    }
    memcpy(at, from, 128);
}
void acquire_map(Warp& w, const Inst& i) {
    for (u32 t = w.m; t; t &= t - 1) w.block->gang->flights->changed.erase(get<u64>(w.R, i.a, lowest(t)));
}
Add b1("tensormap.replace", replace), b2("tensormap.copy", copy_map), b3("tensormap.acquire", acquire_map);

}  // namespace

// ---- copies of boxes

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
            if (checks) {
                async_proxy_write(w, at, map.bytes);
                async_guard(w, lane, at, map.bytes, WRITE);
            }
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
            fault_lane(lane, "reduces elements of the type %u of its tensor map by an operation that it lacks", type);
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

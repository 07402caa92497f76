// Tensor maps: what an instruction makes of one, and how a kernel changes one.
#include "tensor_maps.hpp"

typedef unsigned long long ull;

Map map_at(Warp& w, int lane, u64 address, u32 rank, Mode mode, bool rows4) {
    const Launch& l = launch_of(w);
    Map map;
    map.at = address;
    Raw& m = map.raw;
    if (address % 64)
        fault_lane(lane, "uses a tensor map at %#llx, which is no multiple of 64: align it", (ull)address);
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
                   "uses what is no tensor map at %#llx: pass the map itself as a __grid_constant__ parameter, or its "
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
    REFUSE(m.base % 16, "whose base %#llx is no multiple of 16: align it", (ull)m.base);
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
    if (at % 64) fault_lane(lane, "changes a tensor map at %#llx, which is no multiple of 64: align it", (ull)at);
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
            fault_lane(lane, "changes what is no tensor map: copy one there first, or 128 bytes of zeros");
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

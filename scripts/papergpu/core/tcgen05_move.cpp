// tcgen05.ld, tcgen05.st and their waits. Both end as late as they may: when they are waited for.
#include "tensor_memory.hpp"

namespace {

enum Shape : u32 { S32x32b, S16x64b, S16x128b, S16x256b, S16x32bx2 };

// Columns of 32 bits that `count` registers of each lane cover, of values that are not packed.
u32 width(u32 shape, u32 count) {
    switch (shape) {
    case S16x64b: return count * 2;
    case S16x128b: return count * 2;
    case S16x256b: return count * 2;
    default: return count;
    }
}

// Where register r of lane l lies: its row and its column from the start.
static inline void spot(const Move& m, int l, u32 r, u32& row, u32& column) {
    switch (m.shape) {
    case S16x64b:
        row = l / 4 + 8 * (l & 1);
        column = (l >> 1 & 1) + 2 * r;
        break;
    case S16x128b:
        row = l / 4 + 8 * (r & 1);
        column = (l & 3) + 4 * (r >> 1);
        break;
    case S16x256b:
        row = l / 4 + 8 * (r >> 1 & 1);
        column = (r & 1) + 2 * (l & 3) + 8 * (r >> 2);
        break;
    case S16x32bx2:
        row = l & 15;
        column = r;
        break;
    default: row = l; column = r;
    }
}

// f(word of tensor memory, register, lane, the word behind it) for all that a move moves.
template <class F> void every(Block& b, const Move& m, F f) {
    u32* T = tensor_words(b);
    const u32 each = m.packed ? 2 : 1;
    for (u32 r = 0; r < m.count; ++r)
        for (int l = 0; l < 32; ++l) {
            u32 row, column;
            spot(m, l, r, row, column);
            const u32 at = m.column + column * each + (m.shape == S16x32bx2 && l >= 16 ? m.half : 0);
            u32* word = T + size_t(at) * TENSOR_LANES + m.lane + row;
            f(word, r, l, word + TENSOR_LANES);
        }
}

void load_now(Warp& w, const Move& m) {
    Block& b = *w.block;
    u8* R = w.R;
    if (m.shape == S32x32b && !m.packed) {
        const u32* T = tensor_words(b) + size_t(m.column) * TENSOR_LANES + m.lane;
        for (u32 r = 0; r < m.count; ++r) memcpy(R + m.registers[r], T + size_t(r) * TENSOR_LANES, 128);
    } else if (m.packed)
        every(b, m, [&](const u32* t, u32 r, int l, const u32* next) {
            ((u32*)(R + m.registers[r]))[l] = (*t & 0xffff) | *next << 16;
        });
    else every(b, m, [&](const u32* t, u32 r, int l, const u32*) { ((u32*)(R + m.registers[r]))[l] = *t; });
}

void store_now(Block& b, const Move& m) {
    if (m.shape == S32x32b && !m.packed) {
        u32* T = tensor_words(b) + size_t(m.column) * TENSOR_LANES + m.lane;
        for (u32 r = 0; r < m.count; ++r) memcpy(T + size_t(r) * TENSOR_LANES, &m.data[r * 32], 128);
    } else if (m.packed)
        every(b, m, [&](u32* t, u32 r, int l, u32* next) {
            const u32 v = m.data[r * 32 + l];
            *t = v & 0xffff;
            *next = v >> 16;
        });
    else every(b, m, [&](u32* t, u32 r, int l, u32*) { *t = m.data[r * 32 + l]; });
}

// a: the address; list: registers; flags: shape, 16 packed; imm: columns between the halves of 16x32bx2
Move begin(Warp& w, const Inst& i, bool write) {
    const char* what = write ? "tcgen05.st writes" : "tcgen05.ld reads";
    const u32* a = (const u32*)(w.R + i.a);
    for (int l = 1; l < 32; ++l)
        if (a[l] != a[0])
            fault_lane(l, "%s at %#x, and lane 0 at %#x: all lanes of a warp must give one address", what, a[l], a[0]);
    Move m{};
    m.shape = i.flags & 15;
    m.packed = i.flags & 16;
    m.pc = w.pc;
    m.count = i.count;
    m.registers = list(w, i);
    m.lane = a[0] >> 16;
    m.column = a[0] & 0xffff;
    m.half = u32(i.imm);
    const u32 own = w.id % 4 * 32, rows = m.shape == S32x32b ? 32 : 16;
    if (m.lane != own && !(rows == 16 && m.lane == own + 16))
        fault("%s from lane %u of tensor memory on, and warp %u reaches lanes %u to %u alone: add %u << 16 to the "
              "address, its warp %% 4 times 32",
              what, m.lane, w.id, own, own + 31, own);
    u32 lo = m.column, hi = m.column + width(m.shape, m.count) * (m.packed ? 2 : 1);
    tensor_allocated(*w.block, lo, hi, what);
    if (m.shape == S16x32bx2) {
        tensor_allocated(*w.block, lo + m.half, hi + m.half, what);
        hi = std::max(hi, hi + m.half);
    }
    m.patch = {w.block, (rows == 32 ? 3u : 1u) << m.lane / 16, lo, hi, write};
    if (launch_of(w).checks) {
        tensor_collides(w, m.patch, NO_QUEUE, what);
        auto& mine = tensor_of(*w.block).moves[w.id];
        for (auto& one : mine.stores)
            if (one.patch.lanes & m.patch.lanes && one.patch.lo < hi && lo < one.patch.hi)
                fault("%s columns %u to %u of tensor memory, which the store @%u has still to write: wait for it with "
                      "tcgen05.wait::st",
                      what, lo, hi - 1, one.pc);
        if (write)
            for (auto& one : mine.loads)
                if (one.patch.lanes & m.patch.lanes && one.patch.lo < hi && lo < one.patch.hi)
                    fault("%s columns %u to %u of tensor memory, which the load @%u has still to read: wait for it "
                          "with tcgen05.wait::ld",
                          what, lo, hi - 1, one.pc);
    }
    return m;
}

HANDLER("tcgen05.ld", Move m = begin(w, i, false);
        for (u32 r = 0; r < m.count; ++r) memset(R + m.registers[r], 0xff, 128);  // until it is waited for
        tensor_of(*w.block).moves[w.id].loads.push_back(std::move(m));)
HANDLER("tcgen05.st", Move m = begin(w, i, true); m.data.resize(m.count * 32);
        for (u32 r = 0; r < m.count; ++r) memcpy(&m.data[r * 32], R + m.registers[r], 128);
        tensor_of(*w.block).moves[w.id].stores.push_back(std::move(m));)
HANDLER("tcgen05.wait.ld", (void)i; auto& all = tensor_of(*w.block).moves[w.id].loads;
        for (auto& m : all) load_now(w, m); all.clear();)
HANDLER("tcgen05.wait.st", (void)i; auto& all = tensor_of(*w.block).moves[w.id].stores;
        for (auto& m : all) store_now(*w.block, m); all.clear();)

}  // namespace

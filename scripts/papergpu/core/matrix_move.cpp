// Matrices between memory and registers: ldmatrix, stmatrix, movmatrix, wmma.load, wmma.store.
#include "matrix.hpp"
#include <algorithm>

namespace {

// 8 rows of 8 halves, their rows and columns changed over.
void transpose(const u32* from, u32* to) {
    u16 m[8][8], t[8][8];
    memcpy(m, from, 128);
    for (int r = 0; r < 8; ++r)
        for (int c = 0; c < 8; ++c) t[c][r] = m[r][c];
    memcpy(to, t, 128);
}

// Row r of matrix k lies where lane 8 * k + r says. What the other lanes say is no matter.
struct RowAddresses {
    u64 at[32];
    RowAddresses(Warp& w, const Inst& i, Access access) {
        const u32 m = w.m;
        w.m = i.count >= 4 ? ~0u : (1u << 8 * i.count) - 1;
        if (addresses(w, i, at, 16, access) != SHARED)
            fault_lane(0, "gives an address that is not of shared memory, where matrices of 8 by 8 lie");
        w.m = m;
    }
};

// Flags: transposed, of bytes, and above them the bits of an element where it has less than 8.
enum { TRANSPOSED = 1, BYTES = 2, NARROW_AT = 8 };

// A row of 16 elements of 6 or 4 bits, and padding behind them, to bytes: each in the low bits of its own.
void unpack(const u8* row, u32 bits, u8* to) {
    u128 packed;
    memcpy(&packed, row, 16);
    for (u32 k = 0; k < 16; ++k) to[k] = bits == 8 ? row[k] : u8(packed >> bits * k & ((1u << bits) - 1));
}
// Of 16 rows of 16 bytes the columns: register 0 has the first 8, register 1 the others, 4 bytes down a lane.
void turn(const u8 m[16][16], u32* first, u32* second) {
    for (u32 l = 0; l < 32; ++l) {
        u8 low[4], high[4];
        for (u32 k = 0; k < 4; ++k) {
            low[k] = m[l % 4 * 4 + k][l / 4];
            high[k] = m[l % 4 * 4 + k][l / 4 + 8];
        }
        memcpy(first + l, low, 4);
        memcpy(second + l, high, 4);
    }
}
// 16 rows of 8 bytes, of which a lane holds two columns of two rows, to 8 columns of 16 bytes.
void columns(const u32* from, u32* to) {
    u8 m[8][16];
    for (u32 l = 0; l < 32; ++l)
        for (u32 e = 0; e < 4; ++e) m[l % 4 * 2 + e % 2][l / 4 + e / 2 * 8] = u8(from[l] >> 8 * e);
    memcpy(to, m, 128);
}

void load_bytes(Warp& w, const Inst& i) {
    const RowAddresses rows(w, i, READ);
    const u32* q = list(w, i);
    const u32 bits = i.flags >> NARROW_AT;
    u8 m[32][16];
    for (u32 r = 0; r < 8 * i.count; ++r) unpack((const u8*)rows.at[r], bits ? bits : 8, m[r]);
    for (u32 k = 0; k < i.count; ++k) {
        if (!(i.flags & TRANSPOSED)) memcpy(w.R + q[k], m[8 * k], 128);
        else if (k % 2 == 0) turn(m + 8 * k, (u32*)(w.R + q[k]), (u32*)(w.R + q[k + 1]));
    }
}
Add bytes("ldmatrix.bytes", load_bytes);
HANDLER(
    "ldmatrix", const RowAddresses rows(w, i, READ); const u32* q = list(w, i); for (u32 k = 0; k < i.count; ++k) {
        alignas(64) u32 image[32];
        for (int r = 0; r < 8; ++r) memcpy(image + 4 * r, (const u8*)rows.at[8 * k + r], 16);
        if (i.flags) transpose(image, (u32*)(R + q[k]));
        else memcpy(R + q[k], image, 128);
    })
// Warps that hold the same matrix may all write it: what a row would not change is no clash.
HANDLER(
    "stmatrix", w.compares = launch_of(w).checks; w.clash = 0; const RowAddresses rows(w, i, WRITE); w.compares = false;
    const u32* q = list(w, i); for (u32 k = 0; k < i.count; ++k) {
        alignas(64) u32 image[32];
        if (i.flags & BYTES) columns((const u32*)(R + q[k]), image);
        else if (i.flags) transpose((const u32*)(R + q[k]), image);
        else memcpy(image, R + q[k], 128);
        for (u32 t = w.clash >> 8 * k & 255; t; t &= t - 1) {
            const int r = lowest(t), lane = int(8 * k) + r;
            check_clash(w, lane, rows.at[lane], image + 4 * r, SHARED);
        }
        for (int r = 0; r < 8; ++r) memcpy((u8*)rows.at[8 * k + r], image + 4 * r, 16);
    })
HANDLER("movmatrix", alignas(64) u32 image[32]; memcpy(image, R + i.a, 128); transpose(image, (u32*)(R + i.d));)

// A matrix of `rows` by `columns`, whose images are registers column of images by column, in memory: its
// rows (or, with flag 1, its columns) lie `stride` elements apart. c: the register of the stride. imm: as
// below. A fragment with more registers than images holds them again.
struct Fragment {
    u32 rows, columns, bits, per;
    bool turned;  // per: elements in a word; 0: one in each of two registers
    explicit Fragment(const Inst& i)
        : rows(i.flags & 255), columns(i.flags >> 8 & 255), bits(i.flags >> 16 & 127),
          per(bits == 32 && i.flags >> 24 & 1 ? 0
              : bits >= 32                    ? 1
                                              : 32 / bits),
          turned(i.flags >> 23 & 1) {
        if (bits == 64 && i.flags >> 24 & 1) per = 0;
    }
};

// Calls f(register in the list, lane, bit in its word, host address) for every piece of the matrix, the
// pieces that lie within one word side by side taken as one where they are so in memory too.
template <class F> void each_piece(Warp& w, const Inst& i, Access access, F f) {
    const Fragment m(i);
    const Launch& l = launch_of(w);
    const Gang& g = *w.block->gang;
    const u64 base = i.base == NONE ? 0 : i.base == WIDE ? get<u64>(w.R, i.a, 0) : get<u32>(w.R, i.a, 0);
    u64 start = base + u64(i.imm);
    Space space = Space(i.space);
    if (i.base == NONE && space == SHARED) start += u64(w.block->rank) << 24;
    if (space == LOCAL || space == PARAM || space == CONST)
        fault("a matrix of wmma lies in global or shared memory only");
    if (space == GENERIC || space == GLOBAL)
        space = start >= u64(g.shared) && start < u64(g.shared) + g.blocks.size() * g.stride ? SHARED : GLOBAL;
    const bool window = Space(i.space) == SHARED;
    if (window) start = u32(start);
    const u32 lines = m.turned ? m.columns : m.rows, length = (m.turned ? m.rows : m.columns) * m.bits / 8;
    const u64 stride = u64(s64(s32(i.c ? get<u32>(w.R, i.c, 0) : length * 8 / m.bits)));
    for (int k = 1; k < 32; ++k) {
        const u64 other = i.base == NONE ? base : i.base == WIDE ? get<u64>(w.R, i.a, k) : get<u32>(w.R, i.a, k);
        if (other != base)
            fault_lane(k, "gives another address than lane 0: the lanes of a warp load one matrix, from one address");
    }
    const s64 step = s64(stride) * m.bits / 8;
    if (start % 16 || (length >= 16 && step % 16))
        fault("has rows at %#llx and %lld bytes apart: both must be multiples of 16", (unsigned long long)start,
              (long long)step);
    u8* line[128];
    const u32 mask = w.m;
    w.m = 1;
    for (u32 k = 0; k < lines; ++k)
        line[k] = window ? shared_at(w, u32(start + k * step), length, access == READ ? "reads" : "writes")
                         : global_at(w, start + k * step, length, access, access == READ ? "reads" : "writes");
    w.m = mask;
    const u32 wide = m.per ? 4 * m.per : 8, down = m.rows / 8, images = down * (m.columns / wide);
    const bool whole = m.per <= 1 || !m.turned;  // a word's elements lie side by side in memory
    const u32 pieces = m.per == 0 ? 2
                       : whole    ? 1
                                  : m.per,
              size = m.per == 0 ? m.bits / 8
                     : whole    ? std::max(4u, m.bits / 8)
                                : m.bits / 8;
    for (u32 q = 0; q < images; ++q)
        for (u32 p = 0; p < pieces; ++p) {
            u64 at[32];
            for (u32 z = 0; z < 32; ++z) {
                const u32 r = q % down * 8 + z / 4, c = q / down * wide + (m.per ? z % 4 * m.per + p : z % 4 * 2 + p);
                at[z] = m.turned ? u64(line[c] + u64(r) * m.bits / 8) : u64(line[r] + u64(c) * m.bits / 8);
            }
            if (l.checks) check_access(w, at, ~0u, int(size), access, space);
            if (l.profile) count_access(w, i, at, ~0u, int(size), space, access);
            for (u32 z = 0; z < 32; ++z) f(m.per ? q : 2 * q + p, z, m.per ? p * m.bits : 0, size, (u8*)at[z]);
        }
}

HANDLER("wmma.load", const u32* q = list(w, i); const Fragment m(i); const u32 n = i.count;
        const u32 images = m.rows * m.columns * m.bits / 8 / (m.bits == 64 ? 256 : 128);
        if (m.bits < 32) for (u32 k = 0; k < images; ++k) memset(R + q[k], 0, 128);
        each_piece(w, i, READ,
                   [&](u32 k, u32 lane, u32 bit, u32 size, const u8* at) {
                       if (size == 8) {
                           u64 x;
                           memcpy(&x, at, 8);
                           ((u64*)(R + q[k]))[lane] = x;
                       } else if (size == 4) {
                           u32 x;
                           memcpy(&x, at, 4);
                           ((u32*)(R + q[k]))[lane] = x;
                       } else {
                           u32 x = 0;
                           memcpy(&x, at, size);
                           ((u32*)(R + q[k]))[lane] |= x << bit;
                       }
                   });
        for (u32 k = images; k < n; ++k) memcpy(R + q[k], R + q[k % images], 128);)
HANDLER("wmma.store", const u32* q = list(w, i);
        each_piece(w, i, WRITE, [&](u32 k, u32 lane, u32 bit, u32 size, u8* at) {
            if (size == 8) {
                memcpy(at, &((const u64*)(R + q[k]))[lane], 8);
                return;
            }
            const u32 x = ((const u32*)(R + q[k]))[lane] >> bit;
            memcpy(at, &x, size);
        });)

}  // namespace

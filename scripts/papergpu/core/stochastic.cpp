// cvt.rs: floats to fewer bits, rounded away from zero where random bits and what is dropped carry.
#include "numbers.hpp"

namespace {

// What a format keeps: its bias, bits of mantissa, its sign, its largest finite pattern, what stands for more
// and for NaN.
struct Kept {
    s32 bias, mantissa;
    u32 sign, largest, beyond, nan;
};
constexpr Kept F16_ = {15, 10, 0x8000, 0x7bff, 0x7c00, 0x7fff}, BF16_ = {127, 7, 0x8000, 0x7f7f, 0x7f80, 0x7fff},
               E4M3 = {7, 3, 0x80, 0x7e, 0x7e, 0x7f}, E5M2 = {15, 2, 0x80, 0x7b, 0x7b, 0x7f},
               E2M3 = {1, 3, 0x20, 0x1f, 0x1f, 0x1f}, E3M2 = {3, 2, 0x20, 0x1f, 0x1f, 0x1f}, E2M1 = {1, 1, 8, 7, 7, 7};

// `count` random bits are added to the highest of those that are dropped.
u32 down(const Kept& to, f32 x, u32 random, u32 count, u32 flags) {
    const u32 u = as<u32>(x), m = u & 0x7fffffffu;
    if (m > 0x7f800000u) return to.nan;
    u32 q = ~0u;
    if (m < 0x7f800000u) {
        const u32 field = m >> 23, power = field ? field : 1;
        const u64 whole = (m & 0x7fffff) | (field ? 0x800000 : 0);
        const s32 above = s32(power) - (128 - to.bias), low = above < 0 ? above : 0, dropped = 23 - to.mantissa - low;
        if (dropped > 40) q = 0;  // less than any random bits make up for
        else {
            const u64 rest = whole & ((1ull << dropped) - 1), carry = ((rest << count >> dropped) + random) >> count;
            q = u32((whole >> dropped) + carry) + (u32(above - low) << to.mantissa);
        }
    }
    if (q > to.largest) q = flags & SATFINITE ? to.largest : to.beyond;
    return u >> 31 ? flags & RELU ? 0 : q | to.sign : q;
}

u32 reversed(u32 x, u32 bits) {
    u32 r = 0;
    for (u32 k = 0; k < bits; ++k) r |= (x >> k & 1) << (bits - 1 - k);
    return r;
}

// The first float becomes the upper half, and has the upper half of the random bits.
void pair(Warp& w, const Inst& i, const Kept& to, u32 count) {
    for (u32 t = w.m; t; t &= t - 1) {
        const int l = lowest(t);
        const u32 r = get<u32>(w.R, i.c, l), mask = (1u << count) - 1;
        const u32 high = down(to, get<f32>(w.R, i.a, l), r >> 16 & mask, count, i.flags),
                  low = down(to, get<f32>(w.R, i.b, l), r & mask, count, i.flags);
        put<u32>(w.R, i.d, l, high << 16 | low);
    }
}

// Four floats, the first the uppermost, and random bits of which two share 16: one of them takes them turned round.
void four(Warp& w, const Inst& i, const Kept& to) {
    const u32* q = list(w, i);
    const bool nibbles = to.sign == 8;
    for (u32 t = w.m; t; t &= t - 1) {
        const int l = lowest(t);
        const u32 r = get<u32>(w.R, q[4], l);
        // Of 4 bits each the pairs have alternate bytes.
        const u32 upper = nibbles ? (r >> 16 & 0xff00) | (r >> 8 & 0xff) : r >> 16,
                  lower = nibbles ? (r >> 8 & 0xff00) | (r & 0xff) : r & 0xffff;
        const u32 random[4] = {reversed(upper, 16), upper, reversed(lower, 16), lower};
        u32 d = 0;
        for (u32 k = 0; k < 4; ++k)
            d = d << (nibbles ? 4 : 8) | down(to, get<f32>(w.R, q[k], l), random[k], 16, i.flags);
        put<u32>(w.R, i.d, l, d);
    }
}

HANDLER("cvt.rs.f16x2", pair(w, i, F16_, 13);)
HANDLER("cvt.rs.bf16x2", pair(w, i, BF16_, 16);)
HANDLER("cvt.rs.e4m3x4", four(w, i, E4M3);)
HANDLER("cvt.rs.e5m2x4", four(w, i, E5M2);)
HANDLER("cvt.rs.e2m3x4", four(w, i, E2M3);)
HANDLER("cvt.rs.e3m2x4", four(w, i, E3M2);)
HANDLER("cvt.rs.e2m1x4", four(w, i, E2M1);)

}  // namespace

// tcgen05.mma as a thread issues it: its descriptors, what it will touch, and its place in the queue.
#include "tcgen05_mma.hpp"

namespace {

Format narrow(u32 code, const char* which) {
    static const Format all[] = {E4M3, E5M2, E4M3, E2M3, E3M2, E2M1};
    if (code > 5 || code == 2)
        fault("the instruction descriptor gives %s the type %u, and this kind has 0 (e4m3), 1 (e5m2), 3 (e2m3), 4 "
              "(e3m2) and 5 (e2m1)",
              which, code);
    return all[code];
}
Format format(u32 kind, u32 code, const char* which) {
    switch (kind) {
    case KIND_F16:
        if (code > 1)
            fault("the instruction descriptor gives %s the type %u, and kind::f16 has 0 (f16) and 1 (bf16)", which,
                  code);
        return code ? BF16 : F16;
    case KIND_TF32:
        if (code != 2)
            fault("the instruction descriptor gives %s the type %u, and kind::tf32 has 2 alone", which, code);
        return TF32;
    case KIND_I8:
        if (code > 1)
            fault("the instruction descriptor gives %s the type %u, and kind::i8 has 0 (u8) and 1 (s8)", which, code);
        return code ? S8 : U8;
    case KIND_MXF4:
    case KIND_MXF4NVF4:
        if (code != 1)
            fault("the instruction descriptor gives %s the type %u, and this kind has 1 (e2m1) alone", which, code);
        return E2M1;
    default: return narrow(code, which);
    }
}

bool can_transpose(Format f) {
    return f == F16 || f == BF16 || f == TF32 || f == E4M3 || f == E5M2 || f == U8 || f == S8;
}
// Of 16 bytes of shared memory, those that hold 16 elements: the rest is padding.
u32 used_of(Format f, u32 kind) { return kind >= KIND_MXF4 ? 16 : f == E2M1 ? 8 : f == E2M3 || f == E3M2 ? 12 : 16; }
u32 bytes_of(Format f) { return f == F16 || f == BF16 ? 2 : f == TF32 ? 4 : 1; }

// a: A, by descriptor or address; b: B; c: instruction descriptor; e: whether D is added to.
// list: D, the scales of A and B, the lanes that are disabled. flags as decode/tcgen05.py writes them.
void issue(Warp& w, const Inst& i) {
    const u32 f = i.flags;
    const u32* q = list(w, i);
    Block& b = *w.block;
    Gang* g = b.gang;
    const bool checks = launch_of(w).checks;
    for (u32 lanes = w.m; lanes; lanes &= lanes - 1) {
        const u32 lane = lowest(lanes);
        auto made = std::make_shared<Mma>();
        Mma& x = *made;
        x.group = f & 3;
        x.a_in_tensor = f & 4;
        x.weights = f & 8;
        x.kind = f >> 4 & 15;
        x.scales = f >> 8 & 15;
        x.masked = f >> 12 & 1;
        x.scale_d = f >> 16;
        x.accumulate = predicate(w, i.e) >> lane & 1;
        x.d = get<u32>(w.R, q[0], lane);
        if (x.scales) {
            x.a_scales = get<u32>(w.R, q[1], lane) & 0x3fffffff;
            x.b_scales = get<u32>(w.R, q[2], lane) & 0x3fffffff;
        }
        if (x.masked)
            for (u32 k = 0; k < 4 * x.group; ++k) x.disabled[k] = get<u32>(w.R, q[1 + k], lane);
        if (x.weights && i.count > 1 && get<u64>(w.R, q[1], lane))
            fault_lane(lane, "tcgen05.mma.ws is given a zero-column mask, which is not executed here");
        read_descriptor(x, get<u32>(w.R, i.c, lane), launch_of(w).sm);
        x.blocks = tensor_group(w, x.group);
        if (x.a_in_tensor) {
            x.a = get<u32>(w.R, i.a, lane);
            if (x.a_transposed)
                fault_lane(lane, "the instruction descriptor transposes A, and A lies in tensor memory, where it "
                                 "cannot be transposed");
            if (x.a >> 16 != x.d >> 16)
                fault_lane(lane,
                           "A lies from lane %u of tensor memory on, and D from lane %u: both must begin at one lane",
                           x.a >> 16, x.d >> 16);
            if (x.kind == KIND_F8F6F4 || x.kind == KIND_MXF8F6F4)
                if (x.a_format > E5M2)
                    fault_lane(lane, "A of 4 or 6 bits in tensor memory is not executed here: put it in shared memory");
            if (x.weights && x.m != 128)
                fault_lane(lane, "tcgen05.mma.ws with A in tensor memory is executed here with M 128 alone");
        }
        if (x.a_transposed && !can_transpose(x.a_format))
            fault_lane(lane, "the instruction descriptor transposes A, whose type cannot be transposed");
        if (x.b_transposed && !can_transpose(x.b_format))
            fault_lane(lane, "the instruction descriptor transposes B, whose type cannot be transposed");
        const u32 from = x.d >> 16;
        if (from && !(from == 16 && x.rows() * x.folds() != 128))
            fault_lane(lane, "D lies from lane %u of tensor memory on, and with M %u it begins at lane 0%s", from, x.m,
                       x.m == 64 && x.group == 1 && !x.weights ? " or 16" : "");
        std::vector<Patch> patches;
        const auto touch = [&](u32 mask, u32 lo, u32 columns, bool write, const char* what) {
            for (Block* one : x.blocks) {
                tensor_allocated(*one, lo, lo + columns, what);
                patches.push_back({one, mask, lo, lo + columns, write});
                if (checks) tensor_collides(w, patches.back(), w.index * 32 + lane, what);
            }
        };
        u32 mask = 0;
        for (u32 k = 0; k < 8; ++k) mask |= u32(x.has(k)) << k;
        touch(mask, x.d & 0xffff, x.columns(), true, "tcgen05.mma writes");
        if (x.a_in_tensor) touch(mask, x.a & 0xffff, 8, false, "tcgen05.mma reads A from");
        if (x.scales) {
            touch(0xff, x.a_scales & 0xffff, (x.rows() + 31) / 32, false, "tcgen05.mma reads scales of A from");
            touch(0xff, x.b_scales & 0xffff, (x.columns() + 31) / 32, false, "tcgen05.mma reads scales of B from");
        }
        for (Block* one : x.blocks) {
            if (!x.a_in_tensor) {
                x.a_slices.push_back(
                    slices(w, get<u64>(w.R, i.a, lane), x.rows(), 2, x.a_transposed, x.k, bytes_of(x.a_format), 'A'));
                x.held.push_back(hold_slices(w, int(lane), *one, x.a_slices.back(), used_of(x.a_format, x.kind),
                                             "tcgen05.mma reads A"));
            }
            x.b_slices.push_back(
                slices(w, get<u64>(w.R, i.b, lane), x.n / x.group, 2, x.b_transposed, x.k, bytes_of(x.b_format), 'B'));
            x.held.push_back(
                hold_slices(w, int(lane), *one, x.b_slices.back(), used_of(x.b_format, x.kind), "tcgen05.mma reads B"));
        }
        if (launch_of(w).profile) count_of(w, i).operations += 2ull * x.m * x.n * x.k;
        tensor_queue(w, lane, std::move(patches), [made, g] {
            run_mma(*made);
            for (auto& h : made->held) let_go_slices(*g, h);
        });
    }
}
Add add_issue("tcgen05.mma", issue);

}  // namespace

void read_descriptor(Mma& x, u32 t, u32 sm) {
    const auto bits = [t](u32 at, u32 n) { return t >> at & ((1u << n) - 1); };
    const bool scaled = x.kind >= KIND_MXF8F6F4;
    const u32 group = x.group;
    if (bits(2, 1)) fault("the instruction descriptor %#x asks for a sparse A, which is not executed here", t);
    u32 reserved = scaled ? 0x48u : 0x20800040u;
    if (x.kind == KIND_MXF4 || x.kind == KIND_MXF4NVF4) reserved |= 1u << 12;
    if (!x.weights && !scaled) reserved |= 0xc0000000u;
    if (bits(0, 2) || t & reserved)
        fault("the instruction descriptor %#x has reserved bits set: build it as this kind asks", t);
    x.saturate = !scaled && bits(3, 1);
    if (x.saturate && x.kind != KIND_I8)
        fault("the instruction descriptor %#x saturates, which kind::i8 alone does", t);
    const u32 d = scaled ? 1 : bits(4, 2);
    if (x.kind == KIND_I8 ? d != 2 : x.kind == KIND_TF32 ? d != 1 : d > 1)
        fault("the instruction descriptor %#x gives D the type %u, which this kind has not", t, d);
    x.result = d == 0 ? D_F16 : d == 1 ? D_F32 : D_S32;
    x.a_format = format(x.kind, bits(7, 3), "A");
    x.b_format = format(x.kind, bits(10, x.kind == KIND_MXF4 || x.kind == KIND_MXF4NVF4 ? 2 : 3), "B");
    if (x.kind == KIND_F16 && x.result == D_F16 && (x.a_format == BF16 || x.b_format == BF16))
        fault("the instruction descriptor %#x gives D the type f16, and A or B bf16: D must be f32", t);
    x.a_negated = bits(13, 1);
    x.b_negated = bits(14, 1);
    x.a_transposed = bits(15, 1);
    x.b_transposed = bits(16, 1);
    if (x.kind == KIND_I8 && (x.a_negated || x.b_negated))
        fault("the instruction descriptor %#x negates, which kind::i8 does not", t);
    x.n = bits(17, 6) * 8;
    x.m = bits(24, 5) * 16;
    x.k = x.kind == KIND_F16 ? 16 : x.kind == KIND_TF32 ? 8 : x.kind == KIND_MXF4 || x.kind == KIND_MXF4NVF4 ? 64 : 32;
    if (scaled) {
        x.b_scale_id = bits(4, 2);
        x.a_scale_id = bits(29, 2);
        x.scale_format = bits(23, 1) ? UE8M0 : UE4M3;
        if (bits(31, 1)) fault("the instruction descriptor %#x asks for a K of 96, which is not of sm_%u", t, sm);
        if (x.scale_format == UE4M3 && x.kind != KIND_MXF4NVF4)
            fault("the instruction descriptor %#x gives the scales the type ue4m3, which kind::mxf4nvf4 alone has", t);
        if (x.scales == 4 && (x.a_scale_id || x.b_scale_id))
            fault("the instruction descriptor %#x has a scale-factor id, and with 4 scales it must be 0", t);
        if (x.scales == 2 && (x.a_scale_id & 1 || x.b_scale_id & 1))
            fault("the instruction descriptor %#x has an odd scale-factor id, and with 2 scales it must be 0 or 2", t);
    }
    if (x.weights && bits(30, 2)) fault("the instruction descriptor %#x shifts B, which is not executed here", t);
    const bool m_fits = x.weights    ? x.m == 32 || x.m == 64 || x.m == 128
                        : group == 2 ? x.m == 128 || x.m == 256
                                     : x.m == 128 || (x.m == 64 && !scaled);
    const u32 step = x.weights ? 0 : group == 2 ? 16 : x.m == 64 || scaled ? 8 : 16;
    const bool n_fits = x.weights ? x.n == 64 || x.n == 128 || x.n == 256 : x.n && x.n % step == 0 && x.n <= 256;
    if (!m_fits || !n_fits)
        fault("the instruction descriptor %#x asks for M %u and N %u, which cta_group::%u has not in this kind", t, x.m,
              x.n, group);
}

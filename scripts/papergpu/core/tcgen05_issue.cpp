// tcgen05.mma as a thread issues it: its descriptors, what it will touch, and its place in the queue.
#include "async.hpp"
#include "tensor_memory.hpp"
#include <algorithm>

// ---- Shared-memory descriptors of sm_100, and tcgen05.cp, which copies what one names.

Slices slices(Warp& w, u64 descriptor, u32 rows, u32 chunks, bool transposed, u32 depth, u32 width, char name) {
    const u32 start = u32(descriptor & 0x3fff) << 4, leading = u32(descriptor >> 16 & 0x3fff) << 4,
              stride = u32(descriptor >> 32 & 0x3fff) << 4;
    const u32 version = descriptor >> 46 & 7, phase = descriptor >> 49 & 7, absolute = descriptor >> 52 & 1,
              mode = descriptor >> 61;
    if (version != 1)
        fault("the descriptor of %c, %#llx, has %u in bits 46 to 48, and on sm_100 they must be 1: build it for sm_100",
              name, (unsigned long long)descriptor, version);
    if (absolute)
        fault("the descriptor of %c, %#llx, gives its leading dimension as an address, which sm_100 lacks: give it "
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

// ---- tcgen05.mma as a thread issues it

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
        return code ? Format::BF16 : Format::F16;
    case KIND_TF32:
        if (code != 2)
            fault("the instruction descriptor gives %s the type %u, and kind::tf32 has 2 alone", which, code);
        return Format::TF32;
    case KIND_I8:
        if (code > 1)
            fault("the instruction descriptor gives %s the type %u, and kind::i8 has 0 (u8) and 1 (s8)", which, code);
        return code ? Format::S8 : Format::U8;
    case KIND_MXF4:
    case KIND_MXF4NVF4:
        if (code != 1)
            fault("the instruction descriptor gives %s the type %u, and this kind has 1 (e2m1) alone", which, code);
        return E2M1;
    default: return narrow(code, which);
    }
}

bool can_transpose(Format f) {
    return f == Format::F16 || f == Format::BF16 || f == Format::TF32 || f == E4M3 || f == E5M2 || f == Format::U8 || f == Format::S8;
}
// Of 16 bytes of shared memory, those that hold 16 elements: the rest is padding.
u32 used_of(Format f, u32 kind) { return kind >= KIND_MXF4 ? 16 : f == E2M1 ? 8 : f == E2M3 || f == E3M2 ? 12 : 16; }
u32 bytes_of(Format f) { return f == Format::F16 || f == Format::BF16 ? 2 : f == Format::TF32 ? 4 : 1; }

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
        fault("the instruction descriptor %#x gives D the type %u, which this kind lacks", t, d);
    x.result = d == 0 ? D_F16 : d == 1 ? D_F32 : D_S32;
    x.a_format = format(x.kind, bits(7, 3), "A");
    x.b_format = format(x.kind, bits(10, x.kind == KIND_MXF4 || x.kind == KIND_MXF4NVF4 ? 2 : 3), "B");
    if (x.kind == KIND_F16 && x.result == D_F16 && (x.a_format == Format::BF16 || x.b_format == Format::BF16))
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

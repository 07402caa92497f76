// wgmma: products of a warpgroup, of four warps, that go on while the warps do something else.
//
// What is issued is computed as late as a kernel may count on: when the first of the four warps waits for
// it. Until then sums keep their old values, and operands in shared memory are read where they lie. Matrix A
// in registers is read when it is issued: PTX leaves open what becomes of it if it is overwritten before the
// wait, but Triton does that and leaves the rest to ptxas.
#include "matrix.hpp"
#include <deque>

namespace {

enum { A_ACROSS = 1 << 19, B_ACROSS = 1 << 20, A_SHARED = 1 << 21, NEW_IF_TRUE = 1 << 22, SPARSE = 1 << 26 };

struct Issued {
    const Inst* inst;
    u64 a, b;
    bool keep;
    u32 image[4][32], metadata[32];
};  // descriptors, whether it adds to what is there, A of registers, what is kept of a sparse A

}  // namespace

struct Matrix {
    std::deque<Issued> waiting;    // issued and not computed
    u64 computed = 0, issued = 0;  // in all
    std::vector<u64> groups;       // what was issued when each group was committed
    bool fenced = false;
    std::vector<u8> seen;  // registers at the last fence, where they lie; checks only
    u32 read_at[4] = {};   // when each of the four warps has read operands last; checks only
};

namespace {

Matrix& matrix(Warp& w) {
    if (!w.matrix) w.matrix = new Matrix;
    return *w.matrix;
}

struct Registers {
    const u32 *d, *a;
    u32 nd, na;
};
Registers registers(const Warp& w, const Inst& i, const Product& p) {
    const u32* q = list(w, i);
    const u32 nd = p.n / 8 * (p.d == F16 ? 2 : 4);
    return {q, q + nd, nd, i.flags & A_SHARED ? 0u : 4u};
}

// How many pieces of 16 bytes B has along k; A has two.
u32 along(const Inst& i) { return i.flags & SPARSE ? 4 : 2; }

// Calls f(address) for every 16 bytes of shared memory that warp w's share reads.
template <class F> void chunks(const Warp& w, const Inst& i, u64 a, u64 b, F f) {
    const Product p = Product::of(i);
    if (i.flags & A_SHARED) {
        const Descriptor d(a, i.flags & A_ACROSS);
        for (u32 n = 0; n < 2; ++n)
            for (u32 c = 0; c < 2; ++c)
                for (u32 r = 0; r < 8; ++r) f(d.at(w.id % 4 * 2 + n, r, c), 'A');
    }
    const Descriptor d(b, i.flags & B_ACROSS);
    for (u32 n = 0; n < p.n / 8; ++n)
        for (u32 c = 0; c < along(i); ++c)
            for (u32 r = 0; r < 8; ++r) f(d.at(n, r, c), 'B');
}
void add_read(const Warp& w, const Issued& o, Pieces& read) {
    chunks(w, *o.inst, o.a, o.b, [&](u64 at, char) { read.add(at); });
}

// From its issue until it is computed nobody may write what a product reads.
void hold(Warp& w, const Issued& o) {
    static thread_local Pieces read;
    read.clear(w);
    add_read(w, o, read);
    Gang& g = *w.block->gang;
    read.each(w, [&](const u8* at, u64 n) {
        async_proxy_read(w, at, n, "multiplies");
        check_bytes(w, at, n, READ, SHARED);
    });
    read.each(w, [&](const u8* at, u64 n) { async_hold(g, at, n, u32(o.inst - launch_of(w).code), READ); });
}
void let_go(Warp& w, const Issued& o, Pieces& all) {
    static thread_local Pieces read;
    read.clear(w);
    add_read(w, o, read);
    add_read(w, o, all);
    Gang& g = *w.block->gang;
    read.each(w, [&](const u8* at, u64 n) { async_let_go(g, at, n, READ); });
}

template <class T> void set_zero(Sums<T>& s) { memset(s.x, 0, sizeof s.x); }

// The same of a sparse A.
template <class T>
void compute_kept(const Warp& w, const Issued& o, const Product& p, const Registers& q, const u32 (*image_a)[32]) {
    const Inst& i = *o.inst;
    const Kept at(o.metadata, p, i.flags);
    const Descriptor db(o.b, i.flags & B_ACROSS);
    const u32 per = per_word(p.a), size = per * 32;
    alignas(64) u32 image_b[32];
    alignas(64) T a[512], b[512];
    u8* R = w.R;
    for (u32 j = 0; j < 4; ++j) numbers(p.a, image_a[j], a + j * size);
    if (p.negate)
        for (u32 k = 0; k < 4 * size; ++k) a[k] = -a[k];
    for (u32 n = 0; n < p.n / 8; ++n) {
        for (u32 j = 0; j < 4; ++j) {
            image(w.block->shared, db, n, j, image_b);
            numbers(p.b, image_b, b + j * size);
        }
        for (u32 r = 0; r < 2; ++r) {
            const u32* d = q.d + (n * 2 + r) * (p.d == F16 ? 1 : 2);
            Sums<T> s = {}, c = {};
            if constexpr (std::is_same_v<T, f32>) {
                if (o.keep) load_sums(R, d, p.d, s);
                multiply_kept(a, b, per, at, p.k / 2, 8 * r, launch_of(w).order, s);
                store_sums(R, d, p.d, s);
            } else {
                if (o.keep) load_sums(R, d, c);
                multiply_kept(a, b, per, at, p.k / 2, 8 * r, false, s);
                add_sums(s, c, p.saturate);
                store_sums(R, d, s);
            }
        }
    }
}

// Warp w's 16 rows of one product.
void compute(Warp& w, const Issued& o) {
    const Inst& i = *o.inst;
    const Product p = Product::of(i);
    const Registers q = registers(w, i, p);
    u8* R = w.R;
    Launch& l = launch_of(w);
    const u32 per = per_word(p.a), size = per * 32;
    const u8* shared = w.block->shared;
    alignas(64) u32 image_a[4][32], image_b[32], t[32];
    static_assert(sizeof image_a == sizeof o.image);
    const Descriptor da(o.a, i.flags & A_ACROSS), db(o.b, i.flags & B_ACROSS);
    if (i.flags & A_SHARED)
        for (u32 j = 0; j < 4; ++j) image(shared, da, w.id % 4 * 2 + j % 2, j / 2, image_a[j]);
    else memcpy(image_a, o.image, sizeof image_a);
    if (i.flags & SPARSE) p.a <= E5M2 ? compute_kept<f32>(w, o, p, q, image_a) : compute_kept<s32>(w, o, p, q, image_a);
    else if (p.a <= E5M2) {
        alignas(64) f32 a[512], b[256];
        Sums<f32> s;
        for (u32 j = 0; j < 4; ++j) numbers(p.a, image_a[j], a + j * size);
        if (p.negate)
            for (u32 k = 0; k < 4 * size; ++k) a[k] = -a[k];
        for (u32 n = 0; n < p.n / 8; ++n) {
            for (u32 j = 0; j < 2; ++j) {
                image(shared, db, n, j, image_b);
                turned(image_b, t);
                numbers(p.b, t, b + j * size);
            }
            for (u32 r = 0; r < 2; ++r) {
                const u32* d = q.d + (n * 2 + r) * (p.d == F16 ? 1 : 2);
                if (o.keep) load_sums(R, d, p.d, s);
                else set_zero(s);
                multiply(a + r * size, 2 * size, b, 2, per, l.order, s);
                store_sums(R, d, p.d, s);
            }
        }
    } else {
        alignas(64) s32 a[512], b[256];
        Sums<s32> s, c;
        for (u32 j = 0; j < 4; ++j) numbers(p.a, image_a[j], a + j * size);
        for (u32 n = 0; n < p.n / 8; ++n) {
            for (u32 j = 0; j < 2; ++j) {
                image(shared, db, n, j, image_b);
                turned(image_b, t);
                numbers(p.b, t, b + j * size);
            }
            for (u32 r = 0; r < 2; ++r) {
                const u32* d = q.d + (n * 2 + r) * 2;
                if (o.keep) load_sums(R, d, c);
                else set_zero(c);
                if (p.a == B1) count_bits(a + r * size, 2 * size, b, 2, p.exclusive, s);
                else multiply(a + r * size, 2 * size, b, 2, per, s);
                add_sums(s, c, p.saturate);
                store_sums(R, d, s);
            }
        }
    }
    Matrix& m = *w.matrix;
    if (l.checks)
        for (u32 k = 0; k < q.nd; ++k) memcpy(m.seen.data() + q.d[k], R + q.d[k], 128);
}

u64 uniform(Warp& w, u32 at, const char* what) {
    const u64* x = (const u64*)(w.R + at);
    if (launch_of(w).checks)
        for (int k = 1; k < 32; ++k)
            if (x[k] != x[0])
                fault_lane(k, "gives another descriptor of %s than lane 0, and all lanes of a warpgroup give the same",
                           what);
    return x[0];
}

HANDLER(
    "wgmma.fence", Matrix& m = matrix(w); const u32* q = list(w, i); m.fenced = true; if (launch_of(w).checks) {
        m.seen.resize(launch_of(w).nregs);
        for (u32 k = 0; k < i.count; ++k) memcpy(m.seen.data() + q[k], R + q[k], 128);
    })

// a, b: the descriptors, where they are in shared memory; c: whether to add to what is there; the list: d, a, and the metadata.
HANDLER(
    "wgmma.issue", Matrix& m = matrix(w); Launch& l = launch_of(w); const Product p = Product::of(i);
    const Registers q = registers(w, i, p); if (w.block->warps.size() < w.id / 4 * 4 + 4) fault(
        "wgmma is of four warps, and only %u of this warpgroup are in the block: launch a multiple of 128 threads",
        u32(w.block->warps.size()) % 4);
    const u32 adds = predicate(w, i.c) ^ (i.flags & NEW_IF_TRUE ? ~0u : 0);
    Issued o{&i, i.flags & A_SHARED ? uniform(w, i.a, "A") : 0, uniform(w, i.b, "B"), bool(adds & 1), {}, {}};
    if (!(i.flags & A_SHARED)) for (u32 j = 0; j < 4; ++j) memcpy(o.image[j], R + q.a[j], 128); if (i.flags & SPARSE) {
        memcpy(o.metadata, R + q.a[q.na], 128);
        (void)Kept(o.metadata, p, i.flags);  // whether it has a meaning is said here
        if (Descriptor(o.b, false).swizzle == 32 && !(i.flags & B_ACROSS))
            fault(
                "multiplies by a matrix B of 64 bytes along k in a swizzle of 32, which is not executed: take a wider "
                "swizzle");
    } chunks(w, i, o.a, o.b,
             [&](u64 at, char which) {
                 if (at + 16 > l.shared)
                     fault(
                         "reads matrix %c up to byte %llu of shared memory, which has %u: mend its descriptor, or ask "
                         "for more at the launch",
                         which, (unsigned long long)at + 16, l.shared);
             });
    if (l.checks) {
        if (adds != 0 && adds != ~0u) fault("its lanes do not agree on scale-d");
        if (!m.fenced) fault("there is no wgmma.fence before the first wgmma.mma_async of a warp: add one");
        // Of A's registers it is not asked: LLVM makes them behind Triton's fence, and ptxas mends that.
        for (u32 k = 0; k < q.nd; ++k)
            if (memcmp(m.seen.data() + q.d[k], R + q.d[k], 128))
                fault("a register of its sums was written since the last wgmma.fence: put a wgmma.fence between");
        hold(w, o);
    } if (l.profile) count_of(w, i)
        .operations += 2ull * 16 * p.n *
                       (p.a == B1          ? p.k * 32
                        : i.flags & SPARSE ? p.k / 2
                                           : p.k);
    m.waiting.push_back(o); ++m.issued;)

// The list: sums that the next instruction reads or writes. Only where a product may be in flight.
HANDLER(
    "wgmma.touch", if (!launch_of(w).checks || !w.matrix) return; const u32* q = list(w, i);
    for (const Issued& o : w.matrix->waiting) {
        const Registers own = registers(w, *o.inst, Product::of(*o.inst));
        for (u32 k = 0; k < own.nd; ++k)
            for (u32 n = 0; n < i.count; ++n)
                if (own.d[k] == q[n])
                    fault("reads or writes a sum of the wgmma.mma_async of @%u, which is in flight: put a "
                          "wgmma.wait_group between, and keep the compiler from moving this before it (asm "
                          "volatile(\"\" : \"+f\"(sum)))",
                          u32(o.inst - launch_of(w).code));
    })

HANDLER("wgmma.commit", Matrix& m = matrix(w); (void)i; m.groups.push_back(m.issued);)

// imm: how many groups may go on.
HANDLER(
    "wgmma.wait", Matrix& m = matrix(w); const u64 may = u64(i.imm);
    const u64 upto = m.groups.size() > may ? m.groups[m.groups.size() - 1 - may] : 0; Block& b = *w.block;
    const u32 first = w.id / 4 * 4;
    // A product is one operation of four warps: whoever has waited for it knows that none reads its operands any
    // more. CUTLASS has one thread of them tell so.
    const auto know = [&] {
        for (u32 k = 0; k < 4; ++k)
            if (m.read_at[k]) check_known(w, *b.warps[first + k], m.read_at[k]);
    };
    if (m.computed >= upto) return know(); for (u32 k = first; k < first + 4; ++k) {
        Warp& v = *b.warps[k];
        if (v.matrix && v.matrix->issued >= upto) continue;
        if (v.done)
            fault("warp %u has ended and has not executed the wgmma.mma_async that warp %u waits for: all four warps "
                  "of a warpgroup execute it",
                  v.id, w.id);
        w.again = true;
        return;
    } static thread_local Pieces read[4];
    const bool checks = launch_of(w).checks; if (checks) for (Pieces & one : read) one.clear(w);
    for (; m.computed < upto;) {  // one after the other, of all four warps
        const Inst* const one = m.waiting.front().inst;
        for (u32 k = first; k < first + 4; ++k) {
            Warp& v = *b.warps[k];
            Matrix& n = *v.matrix;
            if (n.waiting.empty()) continue;  // it has ended without waiting
            const Issued& o = n.waiting.front();
            if (o.inst != one)
                fault("warp %u executes the wgmma.mma_async of @%u where warp %u executes that of @%u: all four warps "
                      "of a warpgroup execute the same",
                      w.id, u32(one - launch_of(w).code), v.id, u32(o.inst - launch_of(w).code));
            compute(v, o);
            if (checks) let_go(v, o, read[k - first]);
            if (&n != &m) {
                n.waiting.pop_front();
                ++n.computed;
            }
        }
        m.waiting.pop_front();
        ++m.computed;
    } if (!checks) return;
    for (u32 k = 0; k < 4; ++k) {
        Warp& v = *b.warps[first + k];
        read[k].each(v, [&](const u8* at, u64 n) { check_bytes(v, at, n, READ, SHARED); });
        const u32 time = check_moment(v);
        for (u32 j = first; j < first + 4; ++j)
            if (b.warps[j]->matrix) b.warps[j]->matrix->read_at[k] = time;
    } know();)

}  // namespace

void matrix_begin(Warp& w) {
    if (w.matrix) *w.matrix = Matrix();
}

void matrix_end(Warp& w) {
    if (!w.matrix) return;
    Matrix& m = *w.matrix;
    Block& b = *w.block;
    const Launch& l = launch_of(w);
    if (l.checks && !m.waiting.empty()) {
        const bool committed = !m.groups.empty() && m.groups.back() > m.computed;
        fault("ends while the wgmma.mma_async of @%u is in flight: %s before its sums are read",
              u32(m.waiting.front().inst - l.code),
              committed ? "wgmma.wait_group 0" : "wgmma.commit_group, then wgmma.wait_group 0,");
    }
    m.computed += m.waiting.size();
    m.waiting.clear();
    if (b.alive == 1)
        for (Warp* v : b.warps) {
            delete v->matrix;
            v->matrix = nullptr;
        }
}

std::string matrix_waiting(Warp& w, const Inst& i) {
    static const Handler wait = handlers().at("wgmma.wait");
    if (i.run != wait) return "";
    const u64 may = u64(i.imm);
    const Matrix& m = *w.matrix;
    const u64 upto = m.groups.size() > may ? m.groups[m.groups.size() - 1 - may] : 0;
    for (u32 k = w.id / 4 * 4; k < w.id / 4 * 4 + 4; ++k) {
        Warp& v = *w.block->warps[k];
        if (!v.matrix || v.matrix->issued < upto)
            return "warp " + std::to_string(k) + " to execute the wgmma.mma_async of its warpgroup";
    }
    return "its wgmma.mma_async";
}

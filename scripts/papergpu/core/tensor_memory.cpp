// Who has which columns of tensor memory, and what is on its way there.
#include "tensor_memory.hpp"
#include <algorithm>

namespace {

u32 cluster_size(const Launch& l) { return product(l.cluster); }

bool meet(const Patch& a, const Patch& b) {
    return a.block == b.block && a.lanes & b.lanes && a.lo < b.hi && b.lo < a.hi && (a.write || b.write);
}

// Where so many columns are free in all these blocks, or -1.
int room(const std::vector<Block*>& blocks, u32 columns) {
    for (u32 at = 0; at + columns <= TENSOR_COLUMNS; at += 32) {
        bool free = true;
        for (Block* b : blocks)
            for (auto& p : tensor_of(*b).pieces) free &= p.at + p.columns <= at || at + columns <= p.at;
        if (free) return int(at);
    }
    return -1;
}

void take(Block& b, u32 at, u32 columns, u32 pc) {
    tensor_of(b).pieces.push_back({at, columns, pc});
    memset(tensor_words(b) + size_t(at) * TENSOR_LANES, 0xff,
           size_t(columns) * TENSOR_LANES * 4);  // nobody has written it
}

// a: where the address goes; b: columns; flags: the cta_group; base: WIDE if a is a generic address
void alloc(Warp& w, const Inst& i) {
    Block& b = *w.block;
    const int lane = lowest(w.m);
    const u32 columns = get<u32>(w.R, i.b, lane);
    u8* to = i.base == WIDE ? global_at(w, get<u64>(w.R, i.a, lane), 4, WRITE, "tcgen05.alloc writes")
                            : shared_at(w, get<u32>(w.R, i.a, lane), 4, "tcgen05.alloc writes");
    if (columns < 32 || columns > 512 || columns & (columns - 1))
        fault("tcgen05.alloc asks for %u columns: it must be 32, 64, 128, 256 or 512", columns);
    std::vector<Block*> blocks = tensor_group(w, i.flags);
    TensorMemory& mine = tensor_of(b);
    if (mine.relinquished)
        fault("tcgen05.alloc comes after tcgen05.relinquish_alloc_permit of the same block: allocate first, then "
              "relinquish");
    int at = -1;
    if (blocks.size() == 1) {
        at = room(blocks, columns);
        if (at >= 0) take(b, u32(at), columns, w.pc);
    } else if (mine.granted >= 0) {
        at = mine.granted;
        mine.granted = -1;
    } else {  // both blocks of the pair must ask
        TensorMemory& other = tensor_of(*(blocks[0] == &b ? blocks[1] : blocks[0]));
        mine.wanted = columns;
        if (other.wanted) {
            if (other.wanted != columns)
                fault("tcgen05.alloc of cta_group::2 asks for %u columns here and for %u in the other block of the "
                      "pair: ask for as many",
                      columns, other.wanted);
            at = room(blocks, columns);
            if (at >= 0) {
                for (Block* one : blocks) take(*one, u32(at), columns, w.pc);
                other.granted = at;
                mine.wanted = other.wanted = 0;
            }
        }
    }
    if (at < 0) {
        w.again = true;
        return;
    }
    const u32 address = u32(at);
    if (launch_of(w).checks) {
        const u64 one = u64(to);
        u64 A[32];
        for (u64& x : A) x = one;
        check_access(w, A, 1u << lane, 4, WRITE, SHARED);
    }
    memcpy(to, &address, 4);
}
Add add_alloc("tcgen05.alloc", alloc);

void dealloc(Warp& w, const Inst& i) {
    const int lane = lowest(w.m);
    const u32 at = get<u32>(w.R, i.a, lane), columns = get<u32>(w.R, i.b, lane);
    tensor_group(w, i.flags);
    TensorMemory& t = tensor_of(*w.block);
    if (at >> 16)
        fault("tcgen05.dealloc is given the address %#x, whose lane is not 0: give it what tcgen05.alloc wrote", at);
    auto p = std::find_if(t.pieces.begin(), t.pieces.end(),
                          [&](auto& one) { return one.at == at && one.columns == columns; });
    if (p == t.pieces.end()) {
        for (auto& one : t.pieces)
            if (one.at == at)
                fault("tcgen05.dealloc is given %u columns at %u, where @%u allocated %u: free what was allocated",
                      columns, at, one.pc, one.columns);
        fault("tcgen05.dealloc is given %u columns at %u, which are not allocated: free what tcgen05.alloc gave, once",
              columns, at);
    }
    if (launch_of(w).checks) tensor_collides(w, {w.block, 0xff, at, at + columns, true}, NO_QUEUE, "frees");
    t.pieces.erase(p);
}
Add add_dealloc("tcgen05.dealloc", dealloc);

HANDLER("tcgen05.relinquish", tensor_group(w, i.flags); tensor_of(*w.block).relinquished = true;)

}  // namespace

TensorMemory& tensor_of(Block& b) {
    if (!b.tensor_memory) {
        b.tensor_memory = std::make_shared<TensorMemory>();
        b.tensor_memory->moves.resize(b.warps.size());
    }
    return *b.tensor_memory;
}

std::vector<Block*> tensor_group(Warp& w, u32 group) {
    Block& b = *w.block;
    TensorMemory& t = tensor_of(b);
    if (t.group && t.group != group)
        fault("cta_group::%u is used here, and cta_group::%u before: a kernel uses one of them", group, t.group);
    t.group = group;
    if (group == 1) return {&b};
    if (cluster_size(launch_of(w)) % 2)
        fault("cta_group::2 needs clusters of an even number of blocks, and this launch has clusters of %u: launch it "
              "with a cluster",
              cluster_size(launch_of(w)));
    Block& first = b.gang->blocks[b.cluster + (b.rank & ~1u)];
    return {&first, &first + 1};
}

void tensor_allocated(Block& b, u32 lo, u32 hi, const char* what) {
    if (hi > TENSOR_COLUMNS)
        fault("%s columns %u to %u of tensor memory, which has 512: mend the address", what, lo, hi - 1);
    for (u32 at = lo; at < hi;) {
        bool found = false;
        for (auto& p : tensor_of(b).pieces)
            if (p.at <= at && at < p.at + p.columns) {
                at = p.at + p.columns;
                found = true;
                break;
            }
        if (!found)
            fault("%s column %u of tensor memory, which is not allocated: allocate it with tcgen05.alloc, and free it "
                  "last",
                  what, at);
    }
}

void tensor_collides(Warp& w, const Patch& p, u32 queue, const char* what) {
    TensorMemory& t = tensor_of(*p.block);
    for (auto& f : t.flights)
        if (f.queue != queue && meet(f.patch, p))
            fault("%s columns %u to %u of tensor memory, which @%u, still in flight, %s: let tcgen05.commit arrive at "
                  "an mbarrier behind it, and wait for that",
                  what, p.lo, p.hi - 1, f.pc, f.patch.write ? "writes" : "reads");
    for (u32 v = 0; v < t.moves.size(); ++v) {
        if (queue == NO_QUEUE && p.block == w.block && v == w.id && strcmp(what, "frees"))
            continue;  // a warp's own loads and stores
        for (auto& one : t.moves[v].loads)
            if (meet(one.patch, p))
                fault("%s columns %u to %u of tensor memory, which the load @%u of warp %u has still to read: wait for "
                      "it with tcgen05.wait::ld",
                      what, p.lo, p.hi - 1, one.pc, v);
        for (auto& one : t.moves[v].stores)
            if (meet(one.patch, p))
                fault("%s columns %u to %u of tensor memory, which the store @%u of warp %u has still to write: wait "
                      "for it with tcgen05.wait::st",
                      what, p.lo, p.hi - 1, one.pc, v);
    }
}

void tensor_queue(Warp& w, u32 lane, std::vector<Patch> patches, std::function<void()> run) {
    Block& b = *w.block;
    TensorMemory& t = tensor_of(b);
    const u32 id = w.index * 32 + lane;
    const u64 number = ++t.numbers;
    auto& mine = t.queues[id];
    // A commit arrives as soon as all before it has landed: at once if there is nothing.
    if (patches.empty()) {
        if (mine.empty()) run();
        else mine.push_back({std::move(run), {}, w.pc, number});
        return;
    }
    for (auto& p : patches) tensor_of(*p.block).flights.push_back({p, w.pc, id, number});
    mine.push_back({std::move(run), std::move(patches), w.pc, number});
    std::weak_ptr<TensorMemory> state = b.tensor_memory;
    // Whichever of a thread's flights lands, the oldest of its works is done.
    async_begin_flight(*b.gang, [state, id] {
        auto t = state.lock();
        if (!t) return;
        auto& queue = t->queues[id];
        for (bool first = true; !queue.empty() && (first || queue.front().patches.empty()); first = false) {
            Work one = std::move(queue.front());
            queue.pop_front();
            one.run();
            for (auto& p : one.patches)
                std::erase_if(tensor_of(*p.block).flights,
                              [&](auto& f) { return f.queue == id && f.number == one.number; });
        }
    });
}

void tensor_end(Block& b) {
    if (!b.tensor_memory) return;
    TensorMemory& t = *b.tensor_memory;
    const bool checks = b.gang->launch->checks;
    for (auto& [id, queue] : t.queues)
        while (!queue.empty()) {
            Work one = std::move(queue.front());
            queue.pop_front();
            if (checks && !one.patches.empty())
                fault("the block ends, and what @%u asked of the tensor core is still in flight: wait for it with "
                      "tcgen05.commit and its mbarrier",
                      one.pc);
            one.run();  // an arrival that nobody waits for
        }
    if (checks && !t.pieces.empty())
        fault("the block ends, and has not freed the %u columns of tensor memory that @%u allocated: free them with "
              "tcgen05.dealloc",
              t.pieces[0].columns, t.pieces[0].pc);
    b.tensor_memory.reset();
}

void tensor_warp_end(Warp& w) {
    if (!w.block->tensor_memory || !launch_of(w).checks) return;
    auto& m = w.block->tensor_memory->moves[w.id];
    if (!m.stores.empty())
        fault("the warp ends, and has not waited for the store to tensor memory @%u: add tcgen05.wait::st",
              m.stores[0].pc);
    if (!m.loads.empty())
        fault("the warp ends, and has not waited for the load from tensor memory @%u: add tcgen05.wait::ld before its "
              "registers are read",
              m.loads[0].pc);
}

std::string tensor_waiting(Warp& w, const Inst& i) {
    if (i.run != alloc) return "";
    std::string said = "columns of tensor memory";
    for (auto& p : tensor_of(*w.block).pieces)
        said += ", of which @" + std::to_string(p.pc) + " holds " + std::to_string(p.columns);
    if (i.flags == 2) said += ", with the other block of its pair";
    return said + ": free them, or ask for fewer";
}

// ---- tcgen05.ld, tcgen05.st and their waits. Both end as late as they may: when they are waited for.

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
        if (write) check_effect(w);
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

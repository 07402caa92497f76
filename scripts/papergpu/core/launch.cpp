// A launch: its blocks over threads of this machine, and its end by a finding.
#include "core.hpp"
#include "running.hpp"
#include <atomic>
#include <mutex>

// ---- Blocks that run at the same time: their memory, and how they begin.

Memory::Memory(u64 bytes) : size(std::max<u64>(bytes, 4096)) {
    at = reserve_zeros(size);
    if (!at) fault("no memory for %llu bytes of registers and shared memory", (unsigned long long)size);
}
Memory::~Memory() {
    if (at) release_zeros(at, size);
}

u64 gang_blocks(const Launch& l) { return product(l.cooperative ? l.grid : l.cluster); }
u64 gang_bytes(const Launch& l) {
    const u64 warps = (product(l.block) + 31) / 32;
    return gang_blocks(l) * (l.shared + l.tensor + warps * u64(l.nregs + 32 * l.local));
}

void begin(Resident& r, Launch& l, u64 number, Count* counts, Samples* samples) {
    Gang& g = r.gang;
    g.counts = counts;
    g.samples = samples;
    g.ranks = samples->kept.data();
    const u32 per = product(l.cluster), threads = product(l.block), nwarps = (threads + 31) / 32;
    const u32 n = u32(gang_blocks(l));
    if (r.fresh) {
        g.launch = &l;
        g.blocks.resize(n);
        g.warps.resize(size_t(n) * nwarps);
        g.clusters.resize(n / per);
        g.stride = (u64(l.shared) + 1023) / 1024 * 1024;
        g.local_bytes = u64(n) * nwarps * 32 * l.local;
        const u64 regs = (u64(l.nregs) + 63) / 64 * 64;
        r.memory = std::make_unique<Memory>(1024 + n * g.stride + 4096 + g.local_bytes + 64 + n * nwarps * regs +
                                            n * u64(l.tensor));
        u8* at = (u8*)((u64(r.memory->at) + 1023) / 1024 * 1024);
        g.shared = at;
        at += n * g.stride + 4096;
        g.local = at;
        at += (g.local_bytes + 63) / 64 * 64;
        for (Warp& w : g.warps) {
            w.R = at;
            at += regs;
        }
        for (Block& b : g.blocks) {
            b.tensor = l.tensor ? at : nullptr;
            at += l.tensor;
            b.async = nullptr;
            b.shadow = nullptr;
        }
        for (Warp& w : g.warps) {
            w.async = nullptr;
            w.matrix = nullptr;
        }
    }
    g.rng = (l.seed + 1) * 0x9e3779b97f4a7c15ull ^ (number + 1) * 0xbf58476d1ce4e5b9ull;
    if (!g.rng) g.rng = 1;
    g.order = 0;
    g.holder = 0;
    g.held = 0;
    for (auto& c : g.clusters) {
        c.arrived = 0;
        c.generation = 0;
        std::fill(c.clock.begin(), c.clock.end(), 0);
        std::fill(c.seen.begin(), c.seen.end(), 0);
    }
    const u32 cl[3] = {l.grid[0] / l.cluster[0], l.grid[1] / l.cluster[1], l.grid[2] / l.cluster[2]};
    for (u32 k = 0; k < n; ++k) {
        Block& b = g.blocks[k];
        const u64 c = l.cooperative ? k / per : number;
        const u32 q = k % per;
        const u32 ci[3] = {u32(c % cl[0]), u32(c / cl[0] % cl[1]), u32(c / (u64(cl[0]) * cl[1]))};
        const u32 ri[3] = {q % l.cluster[0], q / l.cluster[0] % l.cluster[1], q / (l.cluster[0] * l.cluster[1])};
        for (int d = 0; d < 3; ++d) b.at[d] = ci[d] * l.cluster[d] + ri[d];
        b.gang = &g;
        b.rank = q;
        b.cluster = k - q;
        b.linear = (b.at[2] * l.grid[1] + b.at[1]) * l.grid[0] + b.at[0];
        b.shared = g.shared + k * g.stride;
        b.alive = nwarps;
        b.tensor_memory.reset();
        memset(b.shared, 0xff, l.shared);
        if (l.reserved) memset(b.shared + l.reserved - 1, 0, 288);
        b.warps.resize(nwarps);
        for (auto& bar : b.barriers) {
            bar.arrived = bar.needed = bar.votes = bar.reduced = 0;
            bar.pc = ~0u;
            std::fill(bar.clock.begin(), bar.clock.end(), 0);
        }
        for (u32 v = 0; v < nwarps; ++v) {
            Warp& w = g.warps[size_t(k) * nwarps + v];
            b.warps[v] = &w;
            w.block = &b;
            w.launch = &l;
            w.id = v;
            w.index = k * nwarps + v;
            w.early = Samples::early(b.linear, v);
            w.first = v * 32;
            w.live = w.cur = threads - w.first >= 32 ? ~0u : (1u << (threads - w.first)) - 1;
            w.pc = 0;
            w.again = w.yield = w.done = false;
            w.steps = 0;
            w.patience = 0;
            w.fair = 0;
            w.carry = 0;
            w.phase = 0;
            w.others.clear();
            w.local = g.local + u64(w.index) * 32 * l.local;
            matrix_begin(w);
            if (r.fresh) {
                memcpy(w.R, l.constants, l.nconstants);
                if (q)
                    for (u32 s = 0; s < l.nshared_constants;
                         ++s) {  // addresses of shared memory carry the block's rank
                        const u32 at = l.shared_constants[s] & ~1u;
                        const bool wide = l.shared_constants[s] & 1;
                        for (int z = 0; z < 32; ++z)
                            if (wide) ((u64*)(w.R + at))[z] += u64(q) << 24;
                            else ((u32*)(w.R + at))[z] += q << 24;
                    }
            }
            for (u32 s = 0; s < l.nspecials; ++s)
                for (u32 z = 0; z < 32; ++z)
                    put<u32>(w.R, l.specials[2 * s + 1], z, special(l, w, l.specials[2 * s], z));
        }
        async_begin(b);
        if (l.checks) check_begin(b);
    }
    r.fresh = false;
}

// ---- a launch

namespace {

void work(Launch& l, std::atomic<u64>& next, const std::vector<u32>& order, u64 total, std::atomic<bool>& stop,
          std::mutex& lock, Samples& sampled) {
    std::vector<std::unique_ptr<Resident>> all, spare;
    Resident* now = nullptr;
    // As many at a time as a GPU could have, and as memory allows.
    const u64 most = std::clamp<u64>(ROOM / std::max<u64>(gang_bytes(l), 1), 2, 2048);
    // Each thread counts on its own, and adds what it has counted at the end.
    std::vector<Count> own(l.profile ? l.ncode : 0);
    Count* const counts = own.data();
    Samples samples(l.profile ? l.ncode : 0);
    struct Added {
        Launch& l;
        std::vector<Count>& own;
        const Samples& samples;
        Samples& sampled;
        std::mutex& lock;
        ~Added() {
            std::lock_guard<std::mutex> held(lock);
            const u64* from = (const u64*)own.data();
            u64* to = (u64*)l.counts;
            for (size_t k = 0; k < own.size() * (sizeof(Count) / 8); ++k) to[k] += from[k];
            sampled.merge(samples);
        }
    };
    try {
        Added added{l, own, samples, sampled, lock};
        for (;;) {
            if (stop) return;
            bool finished = false;
            for (size_t k = 0; k < all.size() && !stop; ++k) {
                now = all[k].get();
                if (turn(now->gang, 2'000'000) == DONE) {
                    spare.push_back(std::move(all[k]));
                    all.erase(all.begin() + k);
                    --k;
                    finished = true;
                }
            }
            // Those that have not ended may wait for others that have not begun.
            if (all.empty() || (!finished && all.size() < most)) {
                const u64 n = next++;
                if (n < total) {
                    if (spare.empty()) {
                        spare.push_back(std::make_unique<Resident>());
                        spare.back()->gang.cancel = [&next, &order, total]() -> s64 {
                            const u64 k = next++;
                            return k < total ? s64(order.empty() ? k : order[k]) : -1;
                        };
                    }
                    all.push_back(std::move(spare.back()));
                    spare.pop_back();
                    now = all.back().get();
                    begin(*now, l, order.empty() ? n : order[n], counts, &samples);
                } else if (all.empty()) return;
            }
        }
    } catch (const std::exception& e) {
        std::lock_guard<std::mutex> held(lock);
        if (stop.exchange(true)) return;
        const Warp* w = now ? running(nullptr, false) : nullptr;
        if (now && !w)
            for (const Warp& v : now->gang.warps)
                if (!v.done) {
                    w = &v;
                    break;
                }
        note_fault(l, w, e);
    }
}

}  // namespace

#pragma GCC visibility push(default)
// 0, or with launch.error and where it was: 1 if the launch was ended there, 2 if it went on to its end.
extern "C" int papergpu_launch(Launch* given) {
    Launch& l = *given;
    l.error[0] = 0;
    l.steps = 0;
    const u64 blocks = u64(product(l.grid)), total = l.cooperative ? 1 : blocks / product(l.cluster);
    if (l.checks) check_new_launch(l);
    std::vector<u32> order;
    if (l.seed) {
        order.resize(total);
        for (u64 k = 0; k < total; ++k) order[k] = u32(k);
        u64 s = l.seed * 0x9e3779b97f4a7c15ull | 1;
        for (u64 k = total; k > 1; --k) std::swap(order[k - 1], order[next_random(s) % k]);
    }
    std::atomic<u64> next{0};
    std::atomic<bool> stop{false};
    std::mutex lock;
    Samples sampled(l.profile ? l.ncode : 0);
    const u64 n = std::max<u64>(1, std::min<u64>(l.threads, total));
    if (n == 1) work(l, next, order, total, stop, lock, sampled);
    else on_threads(n, [&] { work(l, next, order, total, stop, lock, sampled); });
    if (l.profile) l.nsamples = sampled.write(l.samples);
    if (l.checks) check_end_launch(l);
    return stop ? 1 : l.error[0] ? 2 : 0;
}
#pragma GCC visibility pop

// ---- The handlers by name, as Python asks for them.

std::map<std::string, Handler>& handlers() {
    static std::map<std::string, Handler> all;
    return all;
}
std::map<std::string, std::string>& sources() {
    static std::map<std::string, std::string> all;
    return all;
}

Add::Add(const char* name, Handler run, const char* file) {
    sources()[name] = file;
    if (!handlers().emplace(name, run).second) {
        fprintf(stderr, "papergpu: two handlers are called %s\n", name);
        abort();
    }
}

#pragma GCC visibility push(default)
extern "C" {
Handler papergpu_handler(const char* name) {
    auto& all = handlers();
    auto it = all.find(name);
    return it == all.end() ? nullptr : it->second;
}
// All names, each on a line.
const char* papergpu_names() {
    static std::string all;
    all.clear();
    for (auto& [name, run] : handlers()) all += name + "\n";
    return all.c_str();
}
u32 papergpu_sizes(u32 which) {
    const u32 sizes[] = {sizeof(Inst), sizeof(Launch), sizeof(Count), sizeof(Alloc), sizeof(Sample)};
    return sizes[which];
}
}
#pragma GCC visibility pop

// ---- For tests of tests: handlers that stand in for another one and do its work wrongly. Only a kernel whose
// instructions were given them runs them.

namespace {

Handler original = nullptr;

void flip(Warp& w, u32 at) {  // the lowest bit of lane 0, or of a predicate, where lane 0 executes
    if (at && w.m & 1) *(u32*)(w.R + at) ^= 1;
}

// Its result is wrong: d, or of its list the first.
HANDLER("mutant.", original(w, i); flip(w, i.d ? i.d : i.count ? list(w, i)[0] : 0);)
// Of those whose `list` is no list but a predicate, their second result: d is wrong, or the predicate is.
HANDLER("mutant.first", original(w, i); flip(w, i.d);)
HANDLER("mutant.second", original(w, i); flip(w, i.count ? i.list : 0);)
// It sees a wrong value: of its list the first, or b.
HANDLER("mutant.given", const u32 at = i.count ? list(w, i)[0] : i.b; flip(w, at); original(w, i); flip(w, at);)
// The lowest of the lanes that execute it is left out.
HANDLER("mutant.lane", const u32 m = w.m; w.m &= m - 1; if (w.m) original(w, i); w.m = m;)
HANDLER("mutant.nothing", (void)w; (void)i;)
// Nothing is wrong: what tells it from its original looks at no more than its address.
HANDLER("mutant.same", original(w, i);)

}  // namespace

#pragma GCC visibility push(default)
extern "C" void papergpu_mutant(Handler of) { original = of; }
// The names that handlers of one source file have, each on a line.
extern "C" const char* papergpu_names_of(const char* file) {
    static std::string all;
    all.clear();
    for (auto& [name, from] : sources())
        if (from.size() >= strlen(file) && !from.compare(from.size() - strlen(file), std::string::npos, file))
            all += name + "\n";
    return all.c_str();
}
#pragma GCC visibility pop

// Blocks that run at the same time: their memory, and how they begin.
#include "running.hpp"
#include <sys/mman.h>

Memory::Memory(u64 bytes) : size(std::max<u64>(bytes, 4096)) {
    void* p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) fault("no memory for %llu bytes of registers and shared memory", (unsigned long long)size);
    at = (u8*)p;
}
Memory::~Memory() {
    if (at) munmap(at, size);
}

void begin(Resident& r, Launch& l, u64 number, Count* counts, Samples* samples) {
    Gang& g = r.gang;
    g.counts = counts;
    g.samples = samples;
    g.ranks = samples->kept.data();
    const u32 per = product(l.cluster), threads = product(l.block), nwarps = (threads + 31) / 32;
    const u32 n = l.cooperative ? product(l.grid) : per;
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

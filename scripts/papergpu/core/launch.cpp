// A launch: its blocks over threads of this machine, and its end by a finding.
#include "running.hpp"
#include <atomic>
#include <mutex>
#include <thread>

namespace {

void work(Launch& l, std::atomic<u64>& next, const std::vector<u32>& order, u64 total, std::atomic<bool>& stop,
          std::mutex& lock, Samples& sampled) {
    std::vector<std::unique_ptr<Resident>> all, spare;
    Resident* now = nullptr;
    // As many at a time as a GPU could have, and as memory allows.
    const u64 each =
        u64(product(l.cluster)) * (l.shared + l.tensor + (product(l.block) + 31) / 32 * u64(l.nregs + 32 * l.local));
    const u64 most = std::clamp<u64>((2ull << 30) / std::max<u64>(each, 1), 2, 2048);
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
        const int lane = take_faulty_lane();
        std::lock_guard<std::mutex> held(lock);
        if (stop.exchange(true)) return;
        Warp* w = now ? running(nullptr, false) : nullptr;
        if (now && !w)
            for (Warp& v : now->gang.warps)
                if (!v.done) {
                    w = &v;
                    break;
                }
        snprintf(l.error, sizeof l.error, "%s", e.what());
        if (w) {
            l.fault_pc = w->pc;
            l.fault_place = l.code[w->pc].place;
            for (int d = 0; d < 3; ++d) l.fault_block[d] = w->block->at[d];
            thread_at(l, *w, lane >= 0 ? u32(lane) : w->m ? u32(lowest(w->m)) : 0, l.fault_thread);
        }
    }
}

}  // namespace

#pragma GCC visibility push(default)
// 0, or 1 with launch.error and where it was.
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
    else {
        std::vector<std::thread> pool;
        for (u64 k = 0; k < n; ++k) pool.emplace_back([&] { work(l, next, order, total, stop, lock, sampled); });
        for (auto& t : pool) t.join();
    }
    if (l.profile) l.nsamples = sampled.write(l.samples);
    if (l.checks) check_end_launch(l);
    return stop ? 1 : 0;
}
#pragma GCC visibility pop

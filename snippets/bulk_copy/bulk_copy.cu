// y = 1 + v + v^2 + ... + v^degree with v = x / 2, of a float32 matrix whose rows may
// lie apart. Five kernels stream it in tiles of one row each and do the same
// arithmetic; they differ in who copies a tile, who computes on it, and who waits for
// whom. The degree sets how much arithmetic there is for a byte.

using Index = long long;        // elements, also from the first to the last row
constexpr int TILE = 2048;      // floats of a tile: 8 KiB
constexpr int STAGES = 4;       // tiles of a ring that asynchronous copies fill
constexpr int CONSUMERS = 128;  // threads that compute where others copy
static_assert(STAGES > 1, "one tile is read while others are on their way");

// --8<-- [start:tiles]
// Tiles are numbered along a row, then down. A block has every gridDim.x-th of them.
struct Tiles {
    const float* x;
    float* y;
    Index stride, columns;
    int across, count;       // tiles of a row, and of this block
    int row, part;           // of the tile where this is now
    int rows_on, parts_on;   // from there to the block's next

    __device__ Tiles(const float* x, Index stride, float* y, int rows, Index columns)
        : x(x), y(y), stride(stride), columns(columns),
          across(int((columns + TILE - 1) / TILE)) {
        const int blocks = gridDim.x, block = blockIdx.x, all = rows * across;
        count = (all - block + blocks - 1) / blocks;
        row = block / across, part = block % across;
        rows_on = blocks / across, parts_on = blocks % across;
    }
    __device__ int floats() const {  // the last tile of a row may have fewer
        return int(min(Index(TILE), columns - Index(part) * TILE));
    }
    __device__ const float* from() const {
        return x + row * stride + Index(part) * TILE;
    }
    __device__ float* to() const { return y + row * columns + Index(part) * TILE; }
    __device__ void next() {
        row += rows_on, part += parts_on;
        if (part >= across) part -= across, ++row;
    }
};
// --8<-- [end:tiles]

// --8<-- [start:share]
// What one of THREADS threads has of a tile: packs of 16 bytes, or single floats where
// rows do not begin and end on 16 bytes.
template <class Pack, int THREADS>
struct Share {
    static constexpr int WIDTH = sizeof(Pack) / 4, PACKS = TILE / (WIDTH * THREADS);
    static constexpr int FLOATS = WIDTH * PACKS;
    Pack packs[PACKS];

    // To copy, threads side by side take packs side by side, across the whole tile. To
    // compute, each warp has a part of the tile for itself, as in a kernel whose lanes
    // exchange what they have: so it needs what other warps have copied.
    static __device__ int dealt(int thread, int k) {
        return (k * THREADS + thread) * WIDTH;
    }
    static __device__ int own(int thread, int k) {
        return ((thread / 32 * PACKS + k) * 32 + thread % 32) * WIDTH;
    }

    // From memory, first to leave the caches: x is not read again. No barrier is passed
    // by such a load, as it may be by one of what the compiler knows to be constant.
    template <class At>
    __device__ void start(const float* from, int floats, int thread, At at) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            packs[k] = Pack();
            if (const int i = at(thread, k); i < floats)
                packs[k] = __ldcs(reinterpret_cast<const Pack*>(from + i));
        }
    }
    template <class At>
    __device__ void load(const float* tile, int floats, int thread, At at) {
#pragma unroll
        for (int k = 0; k < PACKS; ++k) {
            packs[k] = Pack();
            if (const int i = at(thread, k); i < floats)
                packs[k] = *reinterpret_cast<const Pack*>(tile + i);
        }
    }
    template <class At>
    __device__ void store(float* to, int floats, int thread, At at) const {
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            if (const int i = at(thread, k); i < floats)
                *reinterpret_cast<Pack*>(to + i) = packs[k];
    }
    // To memory, and y is not read again either.
    __device__ void finish(float* to, int floats, int thread) const {
#pragma unroll
        for (int k = 0; k < PACKS; ++k)
            if (const int i = own(thread, k); i < floats)
                __stcs(reinterpret_cast<Pack*>(to + i), packs[k]);
    }

    // Horner's rule, for all of a thread's floats at once: chains that do not wait for
    // one another.
    __device__ void compute(int degree) {
        auto& v = reinterpret_cast<float(&)[FLOATS]>(packs);
        float sum[FLOATS];
#pragma unroll
        for (int i = 0; i < FLOATS; ++i) v[i] *= 0.5f, sum[i] = 1;
#pragma unroll 4
        for (int d = 0; d < degree; ++d)
#pragma unroll
            for (int i = 0; i < FLOATS; ++i) sum[i] = fmaf(sum[i], v[i], 1.0f);
#pragma unroll
        for (int i = 0; i < FLOATS; ++i) v[i] = sum[i];
    }
};
// --8<-- [end:share]

// --8<-- [start:direct]
// No shared memory: what a thread loads, it computes on. Eight blocks of 256 threads
// fill a multiprocessor; while one computes, others load.
template <class Pack>
__global__ void __launch_bounds__(256, 8)
series_direct(const float* __restrict__ x, Index stride, float* __restrict__ y,
              int rows, Index columns, int degree) {
    using Mine = Share<Pack, 256>;
    Tiles tile(x, stride, y, rows, columns);
#pragma unroll 1
    for (int k = 0; k < tile.count; ++k, tile.next()) {
        Mine mine;
        mine.start(tile.from(), tile.floats(), threadIdx.x, Mine::own);
        mine.compute(degree);
        mine.finish(tile.to(), tile.floats(), threadIdx.x);
    }
}
// --8<-- [end:direct]

// --8<-- [start:staged]
// All copy, all wait, all compute, all wait. Only other blocks load meanwhile.
template <class Pack>
__global__ void __launch_bounds__(256, 8)
series_staged(const float* __restrict__ x, Index stride, float* __restrict__ y,
              int rows, Index columns, int degree) {
    using Mine = Share<Pack, 256>;
    __shared__ __align__(16) float stage[TILE];
    Tiles tile(x, stride, y, rows, columns);
#pragma unroll 1
    for (int k = 0; k < tile.count; ++k, tile.next()) {
        Mine mine;
        mine.start(tile.from(), tile.floats(), threadIdx.x, Mine::dealt);
        mine.store(stage, tile.floats(), threadIdx.x, Mine::dealt);
        __syncthreads();  // the tile is complete
        mine.load(stage, tile.floats(), threadIdx.x, Mine::own);
        mine.compute(degree);
        mine.finish(tile.to(), tile.floats(), threadIdx.x);
        __syncthreads();  // all have read it
    }
}
// --8<-- [end:staged]

// --8<-- [start:named]
// A block has 16 barriers by number; __syncthreads is number 0. Who syncs waits until
// so many threads are there, who arrives is counted and goes on.
constexpr int COPIERS = 64;
enum { FULL = 1, EMPTY = 3 };  // two of each: one for either half of the ring

__device__ void sync(int barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(COPIERS + CONSUMERS)
                 : "memory");
}
__device__ void arrive(int barrier) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(COPIERS + CONSUMERS)
                 : "memory");
}
// --8<-- [end:named]

// --8<-- [start:producers]
// Two warps copy through their registers, four compute. The copiers have a tile on its
// way before they ask whether there is room for it; a half is free as soon as its
// floats are in the consumers' registers, before anything is computed.
template <class Pack>
__global__ void __launch_bounds__(COPIERS + CONSUMERS, 4)
series_producers(const float* __restrict__ x, Index stride, float* __restrict__ y,
                 int rows, Index columns, int degree) {
    __shared__ __align__(16) float ring[2][TILE];
    Tiles tile(x, stride, y, rows, columns);
    if (threadIdx.x >= CONSUMERS) {
        using Mine = Share<Pack, COPIERS>;
        const int thread = threadIdx.x - CONSUMERS;
#pragma unroll 1
        for (int k = 0; k < tile.count; ++k, tile.next()) {
            Mine mine;
            mine.start(tile.from(), tile.floats(), thread, Mine::dealt);
            if (k >= 2) sync(EMPTY + k % 2);
            mine.store(ring[k % 2], tile.floats(), thread, Mine::dealt);
            arrive(FULL + k % 2);
        }
    } else {
        using Mine = Share<Pack, CONSUMERS>;
#pragma unroll 1
        for (int k = 0; k < tile.count; ++k, tile.next()) {
            Mine mine;
            sync(FULL + k % 2);
            mine.load(ring[k % 2], tile.floats(), threadIdx.x, Mine::own);
            if (k + 2 < tile.count) arrive(EMPTY + k % 2);
            mine.compute(degree);
            mine.finish(tile.to(), tile.floats(), threadIdx.x);
        }
    }
}
// --8<-- [end:producers]

// --8<-- [start:async]
__device__ unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Straight from global to shared memory. 16 bytes pass the L1 by; 4 cannot.
__device__ void copy_async(float4* to, const float4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)),
                 "l"(from) : "memory");
}
__device__ void copy_async(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)),
                 "l"(from) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most PENDING of this thread's last groups are still on their way.
template <int PENDING>
__device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Every thread copies and computes. A group a tile, also where no tile is left, so that
// the same number is pending in each round.
template <class Pack>
__global__ void __launch_bounds__(256, 4)
series_async(const float* __restrict__ x, Index stride, float* __restrict__ y,
             int rows, Index columns, int degree) {
    using Mine = Share<Pack, 256>;
    __shared__ __align__(16) float ring[STAGES][TILE];
    Tiles tile(x, stride, y, rows, columns), ahead = tile;
    const auto fetch = [&](int k) {
        if (k < tile.count) {
#pragma unroll
            for (int j = 0; j < Mine::PACKS; ++j)
                if (const int i = Mine::dealt(threadIdx.x, j); i < ahead.floats())
                    copy_async(reinterpret_cast<Pack*>(ring[k % STAGES] + i),
                               reinterpret_cast<const Pack*>(ahead.from() + i));
            ahead.next();
        }
        commit();
    };
#pragma unroll 1
    for (int k = 0; k < STAGES - 1; ++k) fetch(k);
#pragma unroll 1
    for (int k = 0; k < tile.count; ++k, tile.next()) {
        wait<STAGES - 2>();  // for what this thread has copied of tile k
        __syncthreads();  // so have all, and all have read tile k - 1
        fetch(k + STAGES - 1);
        Mine mine;
        mine.load(ring[k % STAGES], tile.floats(), threadIdx.x, Mine::own);
        mine.compute(degree);
        mine.finish(tile.to(), tile.floats(), threadIdx.x);
    }
}
// --8<-- [end:async]

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900  // the copy engine of Hopper
// --8<-- [start:barriers]
using Barrier = unsigned long long;

__device__ void init(Barrier* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and holds the phase until so many bytes have landed as well.
__device__ void arrive_and_expect(Barrier* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}
// Until the phase of this parity is over: 0 for the first, 1 for the second, 0 again.
__device__ void wait_for(Barrier* barrier, unsigned parity) {
    unsigned over;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(over) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    } while (!over);
}
__device__ void fence_barriers() {  // their first values, before the engine counts
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A load may still be on its way when the warp arrives at a barrier, and the engine may
// overtake it: without this a few loads among 65,536 tiles were wrong on an H200.
__device__ void fence_loads() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ void copy_bulk(float* to, const float* from, unsigned bytes,
                          Barrier* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1], %2, [%3];"
        ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}
// --8<-- [end:barriers]

// --8<-- [start:bulk]
// One thread copies: it names a tile, and the engine moves it. The other lanes of its
// warp have nothing to do.
template <class Pack>
__global__ void __launch_bounds__(CONSUMERS + 32, 4)
series_bulk(const float* __restrict__ x, Index stride, float* __restrict__ y, int rows,
            Index columns, int degree) {
    static_assert(sizeof(Pack) == 16, "rows of bulk copies begin and end on 16 bytes");
    using Mine = Share<Pack, CONSUMERS>;
    __shared__ __align__(128) float ring[STAGES][TILE];
    __shared__ Barrier full[STAGES], empty[STAGES];
    Tiles tile(x, stride, y, rows, columns);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) {
            init(&full[i], 1);
            init(&empty[i], CONSUMERS / 32);
        }
        fence_barriers();
    }
    __syncthreads();  // the barriers are there
    if (threadIdx.x == CONSUMERS) {
#pragma unroll 1
        for (int k = 0; k < tile.count; ++k, tile.next()) {
            const int stage = k % STAGES, round = k / STAGES;
            if (round > 0) wait_for(&empty[stage], (round - 1) % 2);
            const unsigned bytes = 4 * tile.floats();
            arrive_and_expect(&full[stage], bytes);
            copy_bulk(ring[stage], tile.from(), bytes, &full[stage]);
        }
    } else if (threadIdx.x < CONSUMERS) {
#pragma unroll 1
        for (int k = 0; k < tile.count; ++k, tile.next()) {
            const int stage = k % STAGES, round = k / STAGES;
            Mine mine;
            wait_for(&full[stage], round % 2);
            mine.load(ring[stage], tile.floats(), threadIdx.x, Mine::own);
            fence_loads();
            __syncwarp();  // all lanes have read
            if (threadIdx.x % 32 == 0) arrive(&empty[stage]);
            mine.compute(degree);
            mine.finish(tile.to(), tile.floats(), threadIdx.x);
        }
    }
}
// --8<-- [end:bulk]
#endif

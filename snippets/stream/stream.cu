// The four STREAM operations in three ways of moving the same bytes: one float a step,
// 16 bytes a step with several loads in flight, and a ring of bulk copies that one
// thread keeps full. Beside them what only writes, and what only reads.

struct Fill {
    static constexpr int inputs = 0;
    static constexpr bool computes = true;
    static __device__ float of(float, float, float s) { return s; }
};
struct Copy {
    static constexpr int inputs = 1;
    static constexpr bool computes = false;
    static __device__ float of(float a, float, float) { return a; }
};
struct Scale {
    static constexpr int inputs = 1;
    static constexpr bool computes = true;
    static __device__ float of(float a, float, float s) { return s * a; }
};
struct Add {
    static constexpr int inputs = 2;
    static constexpr bool computes = true;
    static __device__ float of(float a, float b, float) { return a + b; }
};
struct Triad {
    static constexpr int inputs = 2;
    static constexpr bool computes = true;
    static __device__ float of(float a, float b, float s) { return a + s * b; }
};

// n may pass 2**31, so indices are 64-bit throughout.
using Index = long long;

__device__ inline Index thread_of_grid() {
    return blockIdx.x * Index(blockDim.x) + threadIdx.x;
}
__device__ inline Index threads_of_grid() { return gridDim.x * Index(blockDim.x); }

// --8<-- [start:float]
template <class Op>
__global__ void stream_float(const float* __restrict__ a, const float* __restrict__ b,
                             float* __restrict__ c, float s, Index n) {
    for (Index i = thread_of_grid(); i < n; i += threads_of_grid())
        c[i] = Op::of(Op::inputs ? a[i] : 0, Op::inputs == 2 ? b[i] : 0, s);
}
// --8<-- [end:float]

// The elements before c reaches a 16-byte boundary. All n where an input does not reach
// one at the same element: nothing can move 16 bytes at a time then, and plain accesses
// do the whole work.
template <class Op>
__device__ Index head_of(const float* a, const float* b, const float* c, Index n) {
    const auto misaligned = [](const float* p) {
        return reinterpret_cast<unsigned long long>(p) / 4 % 4;
    };
    const bool alike = (Op::inputs == 0 || misaligned(a) == misaligned(c)) &&
                       (Op::inputs < 2 || misaligned(b) == misaligned(c));
    const Index head = (4 - misaligned(c)) % 4;
    return alike && head < n ? head : n;
}

// What 16-byte accesses leave over: [0, head) and the last n - body < 4 elements.
template <class Op>
__device__ void plain(const float* __restrict__ a, const float* __restrict__ b,
                      float* __restrict__ c, float s, Index head, Index body, Index n,
                      Index thread, Index threads) {
    const auto one = [&](Index i) {
        c[i] = Op::of(Op::inputs ? a[i] : 0, Op::inputs == 2 ? b[i] : 0, s);
    };
    for (Index i = thread; i < head; i += threads) one(i);
    for (Index i = body + thread; i < n; i += threads) one(i);
}

template <class Op>
__device__ float4 of4(float4 a, float4 b, float s) {
    return make_float4(Op::of(a.x, b.x, s), Op::of(a.y, b.y, s), Op::of(a.z, b.z, s),
                       Op::of(a.w, b.w, s));
}

// --8<-- [start:kernel]
constexpr int LOADS = 4;  // float4 of each input that a thread has in flight

// A block moves tiles of LOADS * blockDim.x float4. Nothing is read twice, hence the
// streaming accesses: they are the first to leave the caches.
template <class Op>
__global__ void __launch_bounds__(256)
stream_float4(const float* __restrict__ a, const float* __restrict__ b,
              float* __restrict__ c, float s, Index n) {
    const Index head = head_of<Op>(a, b, c, n), quads = (n - head) / 4;
    const float4* a4 = reinterpret_cast<const float4*>(a + head);
    const float4* b4 = reinterpret_cast<const float4*>(b + head);
    float4* c4 = reinterpret_cast<float4*>(c + head);
    const int step = blockDim.x;
#pragma unroll 1
    for (Index tile = blockIdx.x; tile * LOADS * step < quads; tile += gridDim.x) {
        const Index first = tile * LOADS * step + threadIdx.x;
        float4 x[LOADS] = {}, y[LOADS] = {};
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            if (first + k * step >= quads) continue;
            if (Op::inputs) x[k] = __ldcs(a4 + first + k * step);
            if (Op::inputs == 2) y[k] = __ldcs(b4 + first + k * step);
        }
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            if (first + k * step < quads)
                __stcs(c4 + first + k * step, of4<Op>(x[k], y[k], s));
    }
    plain<Op>(a, b, c, s, head, head + quads * 4, n, thread_of_grid(),
              threads_of_grid());
}
// --8<-- [end:kernel]

// --8<-- [start:read]
// Reads alone: of what a block has read, its largest element is left, which is the same
// in whatever order. WIDE: 16 bytes an access, LOADS of them in flight. What is read
// more than once is another block's the next time, so that no L1 has it.
template <bool WIDE>
__global__ void __launch_bounds__(256)
stream_read(const float* __restrict__ a, float* __restrict__ top_of, Index n,
            int rounds) {
    __shared__ float tops[8];
    float top = -__int_as_float(0x7f800000);
    Index done = 0;
    if (WIDE) {
        const Index head = (16 - reinterpret_cast<unsigned long long>(a) % 16) / 4 % 4;
        const Index quads = head < n ? (n - head) / 4 : 0;
        const float4* a4 = reinterpret_cast<const float4*>(a + head);
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
            Index t = (blockIdx.x + Index(round)) % gridDim.x;
#pragma unroll 1
            for (; t * LOADS * 256 < quads; t += gridDim.x) {
                const Index first = t * LOADS * 256 + threadIdx.x;
                float4 x[LOADS];
#pragma unroll
                for (int k = 0; k < LOADS; ++k)
                    x[k] = first + k * 256 < quads ? a4[first + k * 256]
                                                   : make_float4(top, top, top, top);
#pragma unroll
                for (int k = 0; k < LOADS; ++k)
                    top = fmaxf(top, fmaxf(fmaxf(x[k].x, x[k].y),
                                           fmaxf(x[k].z, x[k].w)));
            }
        }
        if (thread_of_grid() < min(head, n)) top = fmaxf(top, a[thread_of_grid()]);
        done = min(head + quads * 4, n);
    }
    for (done += thread_of_grid(); done < n; done += threads_of_grid())
        top = fmaxf(top, a[done]);
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, apart));
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = top;
    __syncthreads();  // every warp's is there
    if (threadIdx.x) return;
    for (int warp = 1; warp < 8; ++warp) top = fmaxf(top, tops[warp]);
    top_of[blockIdx.x] = top;
}
// --8<-- [end:read]

// Bulk copies are PTX of sm_90 and later; host execution leaves them out.
#if __CUDA_ARCH__ >= 900
using Barrier = unsigned long long;

__device__ inline unsigned shared_address(const void* p) {
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ inline void barrier_init(Barrier* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ inline void barrier_arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 ::"r"(shared_address(barrier)) : "memory");
}

// Arrives, and makes the phase wait for so many bytes of bulk copies as well.
__device__ inline void barrier_expect(Barrier* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

__device__ inline void barrier_wait(Barrier* barrier, unsigned parity) {
    unsigned complete = 0;
    while (!complete)
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(complete)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
}

// Initialized barriers become visible to the copy engine.
__device__ inline void fence_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// What this thread read and wrote in shared memory comes before what the copy engine
// does next.
__device__ inline void fence_copies() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline unsigned long long streaming_policy() {
    unsigned long long policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ inline void bulk_load(float* to, const float* from, unsigned bytes,
                                 Barrier* barrier, unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1], %2, [%3], %4;"
        ::"r"(shared_address(to)), "l"(from), "r"(bytes), "r"(shared_address(barrier)),
          "l"(policy) : "memory");
}

// One bulk group a store, so that stores can be counted.
__device__ inline void bulk_store(float* to, const float* from, unsigned bytes,
                                  unsigned long long policy) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;"
        ::"l"(to), "r"(shared_address(from)), "r"(bytes), "l"(policy) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the last PENDING stores have read their shared memory.
template <int PENDING>
__device__ void bulk_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

__device__ inline void bulk_store_wait() {
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// --8<-- [start:bulk]
constexpr int TILE = 2048;      // floats of a bulk copy: 8 KiB
constexpr int RING = 12;        // tiles in shared memory, 96 KiB: two blocks fit
constexpr int LAG = 2;          // stores that may still read when their successors load
constexpr int CONSUMERS = 128;  // threads that compute; one more warp has the producer

// One thread issues every copy of its block: loads up to SLOTS tiles ahead, and a store
// once the consumers have computed a tile in place. A slot is loaded again when its
// store has been read.
template <class Op>
__global__ void __launch_bounds__(CONSUMERS + 32, 2)
stream_bulk(const float* a, const float* b, float* c, float s, Index n) {
    constexpr int SLOTS = RING / Op::inputs;
    extern __shared__ __align__(128) float ring[];
    __shared__ Barrier full[SLOTS], done[SLOTS];
    const Index head = head_of<Op>(a, b, c, n), body = (n - head) / 4 * 4;
    const Index tiles = (body + TILE - 1) / TILE;
    const int own =
        tiles > blockIdx.x ? int((tiles - 1 - blockIdx.x) / gridDim.x + 1) : 0;
    const auto start = [&](int k) {
        return (blockIdx.x + Index(k) * gridDim.x) * TILE;
    };
    const auto floats = [&](int k) { return int(min(Index(TILE), body - start(k))); };
    const auto slot = [&](int k) { return ring + k % SLOTS * (TILE * Op::inputs); };
    const auto parity = [&](int k) { return unsigned(k / SLOTS & 1); };

    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; ++i) {
            barrier_init(&full[i], 1);
            barrier_init(&done[i], CONSUMERS / 32);
        }
        fence_barriers();
    }
    __syncthreads();

    if (threadIdx.x == CONSUMERS) {
        const unsigned long long policy = streaming_policy();
        const auto load = [&](int k) {
            Barrier* barrier = &full[k % SLOTS];
            barrier_expect(barrier, floats(k) * 4 * Op::inputs);
            bulk_load(slot(k), a + head + start(k), floats(k) * 4, barrier, policy);
            if (Op::inputs == 2)
                bulk_load(slot(k) + TILE, b + head + start(k), floats(k) * 4, barrier,
                          policy);
        };
#pragma unroll 1
        for (int k = 0; k < min(SLOTS, own); ++k) load(k);
#pragma unroll 1
        for (int k = 0; k < own; ++k) {
            barrier_wait(Op::computes ? &done[k % SLOTS] : &full[k % SLOTS], parity(k));
            bulk_store(c + head + start(k), slot(k), floats(k) * 4, policy);
            if (k >= LAG && k - LAG + SLOTS < own) {
                bulk_store_wait_read<LAG>();
                load(k - LAG + SLOTS);
            }
        }
        bulk_store_wait();
    } else if (threadIdx.x < CONSUMERS) {
#pragma unroll 1
        for (int k = 0; Op::computes && k < own; ++k) {
            float4* x = reinterpret_cast<float4*>(slot(k));
            const float* second = slot(k) + (Op::inputs - 1) * TILE;
            const float4* y = reinterpret_cast<const float4*>(second);
            barrier_wait(&full[k % SLOTS], parity(k));
            const int quads = floats(k) / 4;
#pragma unroll
            for (int j = 0; j < TILE / 4; j += CONSUMERS)
                if (const int i = j + threadIdx.x; i < quads)
                    x[i] = of4<Op>(x[i], y[i], s);
            fence_copies();
            __syncwarp();
            if (threadIdx.x % 32 == 0) barrier_arrive(&done[k % SLOTS]);
        }
        plain<Op>(a, b, c, s, head, head + body, n,
                  blockIdx.x * Index(CONSUMERS) + threadIdx.x,
                  gridDim.x * Index(CONSUMERS));
    }
}
// --8<-- [end:bulk]
#endif

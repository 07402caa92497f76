// The gradients of flash_specialised.cu's attention, by five products a pair of tiles.
// To the copy engine q and dout are (B * H_q * S, 128), k and v (B * H_kv * S, 128).
#include "flash_specialised.cu"

// A block has 128 keys, half for each of two warpgroups, and takes 64 queries a time.
constexpr int ROWS = 64;
constexpr unsigned SIDE = ROWS * LINE, QUERIES = 2 * SIDE;  // bytes: 64, 128 columns
constexpr unsigned PART = 4 * GROUP * 8 * sizeof(float);    // of dq, that a group has
constexpr float LOG2E = 1.4426950408889634f;

// --8<-- [start:prepare]
// What a query subtracts: from its scores lse to base 2, from their gradients
// delta = sum(out * dout). A warp a row; the deltas of all rows follow the lse of all.
template <class T>
__device__ float dot(uint2 a, uint2 b) {
    const T *x = reinterpret_cast<T*>(&a), *y = reinterpret_cast<T*>(&b);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += float(x[i]) * float(y[i]);
    return sum;
}

template <class T>
__global__ void prepare(float* facts, const T* out, const T* dout, const float* lse,
                        int rows) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long at = row * 32ll + lane;
    float sum = dot<T>(reinterpret_cast<const uint2*>(out)[at],
                       reinterpret_cast<const uint2*>(dout)[at]);
#pragma unroll
    for (int apart = 16; apart; apart /= 2) sum += __shfl_xor_sync(~0u, sum, apart);
    if (lane) return;
    facts[row] = lse[row] * LOG2E;
    facts[rows + row] = sum;
}
// --8<-- [end:prepare]

// --8<-- [start:room]
// Where a block's tiles are in shared memory: keys, values, two stages of queries and
// dout, two of the scores' gradients, what leaves of dq, two stages of facts, barriers.
struct Room {
    unsigned k, v, q, ds, dq, facts, keys, full, empty;
};

__device__ Room room() {
    const auto k = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned q = k + 2 * BYTES, ds = q + 4 * QUERIES, dq = ds + 4 * SIDE;
    const unsigned facts = dq + 2 * PART, keys = facts + 4 * ROWS * sizeof(float);
    if (threadIdx.x == 0) {
        init(keys, 1);
        for (int s = 0; s < STAGES; ++s) {
            init(keys + 8 + 8 * s, 1);
            init(keys + 24 + 8 * s, 8);  // warps
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();  // the barriers are there
    return {k, k + BYTES, q, ds, dq, facts, keys, keys + 8, keys + 24};
}
// --8<-- [end:room]

// --8<-- [start:load]
// One thread asks for what a tile's queries subtract; tiles come as they do forward.
__device__ void copy(unsigned to, const float* from, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(unsigned(ROWS * sizeof(float))), "r"(barrier)
        : "memory");
}
// --8<-- [end:load]

// --8<-- [start:mma]
// A tile in shared memory. Where it lies across, its columns are the product's rows or
// columns, and groups of 64 of them are `apart`.
__device__ Described tile(unsigned at, unsigned apart = SIDE) {
    return (at & 0x3ffff) >> 4 | Described(apart >> 4) << 16 |
           Described(8 * LINE >> 4) << 32 | 1ull << 62;
}

#define SUMS_32 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
                "%28, %29, %30, %31}, "

// 64 x 64 sums of products over 16; both operands lie across, or neither.
#define MULTIPLY_64(T, NAME) \
    template <int ACROSS> \
    __device__ void mma(float (&d)[32], Described a, Described b, bool add, T) { \
        asm volatile( \
            "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " " SUMS_32 \
            "%32, %33, add, 1, 1, %35, %35;\n}" \
            : THIRTY_TWO("+f", d) : "l"(a), "l"(b), "r"(int(add)), "n"(ACROSS)); \
    }
MULTIPLY_64(__half, "f16")
MULTIPLY_64(__nv_bfloat16, "bf16")

__device__ void fence(float (&d)[32]) {
    asm volatile("wgmma.fence.sync.aligned;" : THIRTY_TWO("+f", d)::"memory");
}
template <int MOST>
__device__ void finish(float (&d)[32]) {
    asm volatile("wgmma.wait_group.sync.aligned %32;"
                 : THIRTY_TWO("+f", d) : "n"(MOST) : "memory");
}

// Begun: 64 keys by 64 queries, over 128 columns.
template <class T>
__device__ void begin_pairs(float (&s)[32], unsigned keys, unsigned queries) {
    fence(s);
#pragma unroll
    for (int d = 0; d < DIM; d += 16)
        mma<0>(s, tile(keys + d / 64 * HALF + d % 64 * 2),
               tile(queries + d / 64 * SIDE + d % 64 * 2), d > 0, T());
    commit();
}

// Begun: the same keys' gradients, 128 columns, from pairs rounded in registers.
template <class T>
__device__ void begin_keys(float (&sums)[64], unsigned (&p)[16], unsigned queries) {
    asm volatile("" : EIGHT("+r", p), EIGHT("+r", (p + 8)));
    fence(sums);
#pragma unroll
    for (int i = 0; i < 4; ++i)
        mma(sums, p + 4 * i, tile(queries + 16 * i * LINE), T());
    commit();
}

// Begun: all 64 queries' gradients by 128 keys, 64 of the columns.
template <class T>
__device__ void begin_queries(float (&dq)[32], unsigned ds, unsigned keys) {
    fence(dq);
#pragma unroll
    for (int i = 0; i < TILE / 16; ++i)
        mma<1>(dq, tile(ds + 16 * i * LINE), tile(keys + 16 * i * LINE), i > 0, T());
    commit();
}
// --8<-- [end:mma]

// --8<-- [start:rows]
// A thread rounds pairs: weights of 64 keys (rows) by 64 queries, or their gradients.
template <class T>
__device__ void round_pairs(unsigned (&p)[16], const float (&s)[32]) {
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i] = rounded(s[2 * i], s[2 * i + 1], T());
}

__device__ void put(unsigned to, const unsigned (&p)[16]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < 16; i += 4)
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
            ::"r"(to + row * LINE + (i / 2 + lane / 16 ^ row % 8) * 16),
            "r"(p[i]), "r"(p[i + 1]), "r"(p[i + 2]), "r"(p[i + 3])
            : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // for the products
}

// --8<-- [end:rows]
// --8<-- [start:leave]
// A group's sums of dq leave as they lie in its registers, and are added to others' by
// the copy engine. `leave` says what went on, `bring` puts it in order.
__device__ void leave(unsigned place, float* to, const float (&dq)[32]) {
    const int thread = threadIdx.x % GROUP, barrier = 2 + threadIdx.x / GROUP;
    if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");  // the last have left
#pragma unroll
    for (int i = 0; i < 32; i += 4)
        asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                     ::"r"(place + (i / 4 * GROUP + thread) * 16), "f"(dq[i]),
                     "f"(dq[i + 1]), "f"(dq[i + 2]), "f"(dq[i + 3]) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(barrier) : "memory");
    if (thread) return;
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;\n"
        "cp.async.bulk.commit_group;" ::"l"(to), "r"(place), "r"(PART) : "memory");
}

// --8<-- [end:leave]
// --8<-- [start:bring]
// Of 16 columns of a row, which four lanes write, a lane has two of the first eight and
// two of the others. They trade, so that each has four that follow each other.
template <class T>
__device__ void store(T* to, float2 near, float2 far) {
    const int lane = threadIdx.x % 4, odd = lane % 2;
    const unsigned a = rounded(near.x, near.y, T()), b = rounded(far.x, far.y, T());
    const unsigned other = __shfl_xor_sync(~0u, odd ? a : b, 1);
    reinterpret_cast<uint2*>(to)[lane / 2 + 2 * odd] =
        odd ? uint2{other, b} : uint2{a, other};
}

// N sums of a thread, of two rows 8 apart from `to` on.
template <class T, int N>
__device__ void store(T* to, const float (&d)[N], float scale) {
    to += (threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4) * DIM;
#pragma unroll
    for (int i = 0; i < N; i += i % 4 ? 6 : 2)
        store(to + i % 4 / 2 * 8 * DIM + i / 8 * 16,
              {d[i] * scale, d[i + 1] * scale}, {d[i + 4] * scale, d[i + 5] * scale});
}

// A block is 64 queries.
template <class T>
__global__ void bring(T* dq, const float* sums, float scale) {
    const int number = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
    const auto* from = reinterpret_cast<const float4*>(sums) +
                       (blockIdx.x * 2ll + number) * (PART / 16) + thread;
    float d[32];
#pragma unroll
    for (int i = 0; i < 8; ++i)
        reinterpret_cast<float4*>(d)[i] = from[i * GROUP];
    store(dq + blockIdx.x * 1ll * ROWS * DIM + 64 * number, d, scale);
}
// --8<-- [end:bring]

// --8<-- [start:kernel]
// A block's keys are tile x of head y of k; `shared` heads of q have it.
template <class T, bool CAUSAL>
__global__ void __launch_bounds__(3 * GROUP, 1)
backward(float* dq, T* dk, T* dv, const T*, const T*, const T*, const T*,
         const float* facts, const __grid_constant__ Map q_map,
         const __grid_constant__ Map dout_map, const __grid_constant__ Map k_map,
         const __grid_constant__ Map v_map, int S, int shared, float scale) {
    const Room at = room();
    const int key = blockIdx.x * TILE, tiles = S / ROWS;
    const int first = CAUSAL ? key / ROWS : 0, each = tiles - first;
    const int keys = blockIdx.y * S + key, number = threadIdx.x / GROUP;
    // The tile of queries of step t, counted over all heads.
    const auto nth = [&](int t) {
        return (int(blockIdx.y) * shared + t / each) * tiles + first + t % each;
    };
    if (number == 2) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x % GROUP) return;
        const int rows = gridDim.y * shared * S;
        expect(at.keys, 2 * BYTES);
        copy(at.k, HALF, k_map, keys, at.keys);
        copy(at.v, HALF, v_map, keys, at.keys);
        for (int t = 0; t < each * shared; ++t) {
            const int stage = t % STAGES, row = nth(t) * ROWS;
            const unsigned q = at.q + stage * 2 * QUERIES, full = at.full + 8 * stage;
            const unsigned fact = at.facts + stage * 2 * ROWS * sizeof(float);
            wait(at.empty + 8 * stage, t / STAGES % 2 ^ 1);  // at first at once
            expect(full, 2 * QUERIES + 2 * ROWS * sizeof(float));
            copy(q, SIDE, q_map, row, full);
            copy(q + QUERIES, SIDE, dout_map, row, full);
            copy(fact, facts + row, full);
            copy(fact + ROWS * sizeof(float), facts + rows + row, full);
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    // --8<-- [end:kernel]
    // --8<-- [start:loop]
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const unsigned own_k = at.k + number * ROWS * LINE, own_v = own_k + BYTES;
    float sums_k[64] = {}, sums_v[64] = {}, s[32], d[32], sums_q[32];
    unsigned p[16], ds[16];
    wait(at.keys, 0);
    for (int t = 0; t < each * shared; ++t) {
        const int stage = t % STAGES, query = first + t % each;
        const unsigned q = at.q + stage * 2 * QUERIES, dout = q + QUERIES;
        const unsigned scores = at.ds + stage * 2 * SIDE;
        // Of a thread's queries, two of each eight.
        const auto* const fact = reinterpret_cast<const float2*>(
            memory + (at.facts - at.k) + stage * 2 * ROWS * sizeof(float)) + lane % 4;
        wait(at.full + 8 * stage, t / STAGES % 2);
        begin_pairs<T>(s, own_k, q);
        begin_pairs<T>(d, own_v, dout);
        finish<1>(s);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const float2 lse = fact[i / 4 * 4];
            s[i] = power_of_two(fmaf(s[i], scale, -(i % 2 ? lse.y : lse.x)));
        }
        if (CAUSAL && query * ROWS < key + TILE) {
            const int mine = key + number * ROWS + warp * 16 + lane / 4;
            const int ahead = query * ROWS + lane % 4 * 2 - mine;
#pragma unroll
            for (int i = 0; i < 32; ++i)
                if (i % 4 / 2 * 8 - i / 4 * 8 - i % 2 > ahead) s[i] = 0;
        }
        round_pairs<T>(p, s);
        begin_keys<T>(sums_v, p, dout);
        finish<1>(d);  // the values' gradients go on
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            const float2 delta = fact[ROWS / 2 + i / 4 * 4];
            d[i] = s[i] * (d[i] - (i % 2 ? delta.y : delta.x));
        }
        round_pairs<T>(ds, d);
        put(scores + number * SIDE, ds);
        asm volatile("bar.sync 1, 256;" ::: "memory");  // the other half is there
        begin_queries<T>(sums_q, scores, at.k + number * HALF);
        begin_keys<T>(sums_k, ds, q);
        finish<1>(sums_q);  // the keys' gradients go on
        leave(at.dq + number * PART, dq + (nth(t) * 2ll + number) * (PART / 4), sums_q);
        finish<0>(sums_k);
        if (lane == 0) arrive(at.empty + 8 * stage);
    }
    // --8<-- [end:loop]
    finish<0>(sums_v);
    const long long to = (keys + number * ROWS) * 1ll * DIM;
    store(dv + to, sums_v, 1);
    store(dk + to, sums_k, scale / LOG2E);
    if (threadIdx.x % GROUP == 0)
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

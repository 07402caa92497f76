// out = softmax(q k^T / sqrt(128)) v of float16 or bfloat16 on tensor cores of sm_90.
// To the copy engine q and out are (B * H_q * S, 128), k and v (B * H_kv * S, 128).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// A block has 128 queries, half for each of two warpgroups, and takes 128 keys at a
// time. A tile lies in two halves of 64 columns: 128 bytes, a line of the swizzle.
constexpr int TILE = 128, DIM = 128, GROUP = 128, STAGES = 2;
constexpr unsigned LINE = 128, HALF = TILE * LINE, BYTES = 2 * HALF;
constexpr float LN2 = 0.6931471805599453f;
constexpr float NOTHING = -3e38f;  // below any score: the weight of such a key is 0

// --8<-- [start:barriers]
// A barrier in shared memory counts arrivals, and bytes that are still to land. It has
// phases, even and odd in turn; who waits names the one that has to be over.
__device__ void init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals)
                 : "memory");
}

__device__ void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ void wait(unsigned barrier, unsigned parity) {
    unsigned over;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(over)
            : "r"(barrier), "r"(parity)
            : "memory");
    } while (!over);
}

// Where a block's tiles and barriers are in shared memory.
struct Places {
    unsigned q, k, v, q_full, k_full, k_empty, v_full, v_empty;
};

extern __shared__ __align__(1024) unsigned char memory[];

__device__ Places places() {
    const auto base = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned k = base + BYTES, v = k + STAGES * BYTES, bar = v + STAGES * BYTES;
    const Places at = {base,     k,        v,        bar,
                       bar + 8, bar + 24, bar + 40, bar + 56};
    if (threadIdx.x == 0) {
        init(at.q_full, 1);
        for (int s = 0; s < STAGES; ++s) {
            init(at.k_full + 8 * s, 1);
            init(at.v_full + 8 * s, 1);
            init(at.k_empty + 8 * s, 8);  // warps
            init(at.v_empty + 8 * s, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();  // the barriers are there
    return at;
}
// --8<-- [end:barriers]

// --8<-- [start:copies]
// What the copy engine is told of a matrix: a parameter, since the host writes it.
struct alignas(64) Map {
    unsigned long long words[16];
};

__device__ void expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(barrier), "r"(bytes) : "memory");
}

// One thread asks the copy engine for both halves of a tile, which lie `apart`.
__device__ void copy(unsigned to, unsigned apart, const Map& map, int row,
                     unsigned barrier) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global"
            ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
            ::"r"(to + half * apart), "l"(&map), "r"(64 * half), "r"(row), "r"(barrier)
            : "memory");
}

__device__ void fetch(unsigned to, const Map& map, int row, unsigned barrier) {
    expect(barrier, BYTES);
    copy(to, HALF, map, row, barrier);
}

// The third warpgroup only asks: for the queries, and for keys and values, from the
// last tile in sight to the first, as the others leave their places.
__device__ void load(const Places& at, const Map& q, const Map& k, const Map& v,
                     int query, int key, int tiles) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x % GROUP) return;
    fetch(at.q, q, query, at.q_full);
    for (int i = 0; i < tiles; ++i) {
        const unsigned stage = i % STAGES, before = i / STAGES % 2 ^ 1;
        const int row = key + (tiles - 1 - i) * TILE;
        wait(at.k_empty + 8 * stage, before);  // in the first round at once
        fetch(at.k + stage * BYTES, k, row, at.k_full + 8 * stage);
        wait(at.v_empty + 8 * stage, before);
        fetch(at.v + stage * BYTES, v, row, at.v_full + 8 * stage);
    }
}
// --8<-- [end:copies]

// --8<-- [start:wgmma]
// What the tensor cores have to know of a tile in shared memory: where it is, how far
// apart its groups of 8 rows are, and its halves.
using Described = unsigned long long;
__device__ Described described(unsigned at) {
    return (at & 0x3ffff) >> 4 | Described(HALF >> 4) << 16 |
           Described(8 * LINE >> 4) << 32 | 1ull << 62;  // a swizzle of 128 bytes
}

#define EIGHT(as, d) as((d)[0]), as((d)[1]), as((d)[2]), as((d)[3]), \
                     as((d)[4]), as((d)[5]), as((d)[6]), as((d)[7])
#define THIRTY_TWO(as, d) EIGHT(as, d), EIGHT(as, d + 8), EIGHT(as, d + 16), \
                          EIGHT(as, d + 24)
#define SIXTY_FOUR(d) THIRTY_TWO("+f", d), THIRTY_TWO("+f", d + 32)
#define SUMS "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
             "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
             "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
             "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, " \
             "%58, %59, %60, %61, %62, %63}, "

// 64 x 128 sums of products over 16, of a warpgroup; they are made some time later.
// Scores have both operands in shared memory, and begin anew at k = 0. The output has
// its left operand, the weights, in registers; its right one, v, lies across.
#define MULTIPLY(T, NAME) \
    __device__ void mma(float (&d)[64], Described a, Described b, bool add, T) { \
        asm volatile( \
            "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " " SUMS \
            "%64, %65, add, 1, 1, 0, 0;\n}" \
            : SIXTY_FOUR(d) : "l"(a), "l"(b), "r"(int(add))); \
    } \
    __device__ void mma(float (&d)[64], const unsigned* a, Described b, T) { \
        asm volatile( \
            "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n128k16.f32." NAME "." NAME " " SUMS \
            "{%64, %65, %66, %67}, %68, add, 1, 1, 1;\n}" \
            : SIXTY_FOUR(d) \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    }
MULTIPLY(__half, "f16")
MULTIPLY(__nv_bfloat16, "bf16")

// The registers of products are named where they begin and where they end: the compiler
// then moves nothing that reads or writes them to the other side.
__device__ void fence(float (&d)[64]) {
    asm volatile("wgmma.fence.sync.aligned;" : SIXTY_FOUR(d)::"memory");
}
__device__ void fence(float (&d)[64], unsigned (&a)[32]) {
    asm volatile("" : THIRTY_TWO("+r", a));
    fence(d);
}
__device__ void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until no more than so many groups' products are still being made: those of `d` are.
template <int MOST>
__device__ void finish(float (&d)[64]) {
    asm volatile("wgmma.wait_group.sync.aligned %64;"
                 : SIXTY_FOUR(d) : "n"(MOST) : "memory");
}

// A tile's scores, begun: 64 queries from `q` on by 128 keys.
template <class T>
__device__ void begin_scores(float (&s)[64], unsigned q, unsigned k) {
    fence(s);
#pragma unroll
    for (int d = 0; d < DIM; d += 16) {
        const unsigned at = d / 64 * HALF + d % 64 * 2;
        mma(s, described(q + at), described(k + at), d > 0, T());
    }
    commit();
}

// A tile's part of the output, begun: 64 queries' weights by 128 keys' values.
template <class T>
__device__ void begin_output(float (&o)[64], unsigned (&p)[32], unsigned v) {
    fence(o, p);
#pragma unroll
    for (int key = 0; key < TILE; key += 16)
        mma(o, p + key / 4, described(v + key * LINE), T());
    commit();
}
// --8<-- [end:wgmma]

// --8<-- [start:softmax]
// A thread has scores of two rows: of row lane / 4 the columns 8 i + 2 (lane % 4) and
// the next, in s[4 i] and s[4 i + 1], and those of the row 8 below in the two behind.
__device__ float power_of_two(float x) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

struct Rows {
    float top[2] = {NOTHING, NOTHING}, total[2] = {}, fade[2];
};

// One step of the online softmax: scores become weights, `fade` what is left of what
// was summed before. `scale` is that of the scores, to base 2.
__device__ void take_in(float (&s)[64], Rows& rows, float scale) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float top = rows.top[r], sum = 0;
#pragma unroll
        for (int i = 2 * r; i < 64; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
#pragma unroll
        for (int i = 2 * r; i < 64; i += 4) {
            s[i] = power_of_two(fmaf(s[i], scale, -top * scale));
            s[i + 1] = power_of_two(fmaf(s[i + 1], scale, -top * scale));
            sum += s[i] + s[i + 1];
        }
        rows.fade[r] = power_of_two((rows.top[r] - top) * scale);
        rows.total[r] = rows.total[r] * rows.fade[r] + sum;  // this thread's part of it
        rows.top[r] = top;
    }
}

// Hide the keys behind a query's own, in the tile on the diagonal.
__device__ void mask(float (&s)[64]) {
    const int lane = threadIdx.x % 32, query = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 64; ++i)
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 > query + i % 4 / 2 * 8) s[i] = NOTHING;
}

__device__ unsigned rounded(float low, float high, __half) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}
__device__ unsigned rounded(float low, float high, __nv_bfloat16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}

// Sums lie as the tensor cores want their left operand: rounded, pair by pair.
template <class T>
__device__ void round_weights(unsigned (&p)[32], const float (&s)[64]) {
#pragma unroll
    for (int i = 0; i < 32; ++i) p[i] = rounded(s[2 * i], s[2 * i + 1], T());
}

__device__ void rescale(float (&o)[64], const Rows& rows) {
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] *= rows.fade[i % 4 / 2];
}
// --8<-- [end:softmax]

// --8<-- [start:write]
// A warpgroup's 64 rows leave by way of its queries' place, which it alone has read.
template <class T>
__device__ void write(const Map& out, float* lse, float (&o)[64], Rows& rows,
                      unsigned place, int row, float scale) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    asm volatile("bar.sync %0, 128;" ::"r"(3 + threadIdx.x / GROUP) : "memory");
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float total = rows.total[r];
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        rows.fade[r] = 1 / total;
        if (lane % 4 == 0)
            lse[row + warp * 16 + 8 * r + lane / 4] =
                (rows.top[r] * scale + log2f(total)) * LN2;
    }
    rescale(o, rows);
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // 16 rows x 16 columns of a warp
        const float* const d = o + 8 * i;
        const int r = lane % 16, chunk = 2 * (i % 4) + lane / 16;
        const unsigned to = place + i / 4 * HALF + (warp * 16 + r) * LINE;
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                to + (chunk ^ r % 8) * 16),
            "r"(rounded(d[0], d[1], T())), "r"(rounded(d[2], d[3], T())),
            "r"(rounded(d[4], d[5], T())), "r"(rounded(d[6], d[7], T()))
            : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // for the copy engine
    asm volatile("bar.sync %0, 128;" ::"r"(3 + threadIdx.x / GROUP) : "memory");
    if (threadIdx.x % GROUP) return;
#pragma unroll
    for (int half = 0; half < 2; ++half)
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
            " [%0, {%1, %2}], [%3];" ::"l"(&out),
            "r"(64 * half), "r"(row), "r"(place + half * HALF)
            : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" :::
                     "memory");
}
// --8<-- [end:write]

// --8<-- [start:half]
// What a warpgroup has: its half of the queries, and in registers a tile's scores,
// their weights, rounded, and the output so far.
struct Half {
    Places at;
    unsigned queries;
    int number, tiles;
    float scale;
    Rows rows;
    float s[64], o[64];
    unsigned p[32];

    __device__ unsigned stage(int i) { return i % STAGES; }
    __device__ unsigned k(int i) {  // when it has landed
        wait(at.k_full + 8 * stage(i), i / STAGES % 2);
        return at.k + stage(i) * BYTES;
    }
    __device__ unsigned v(int i) {
        wait(at.v_full + 8 * stage(i), i / STAGES % 2);
        return at.v + stage(i) * BYTES;
    }
    __device__ void leave_k(int i) {  // a warp has done with it
        if (threadIdx.x % 32 == 0) arrive(at.k_empty + 8 * stage(i));
    }
    __device__ void leave_v(int i) {
        if (threadIdx.x % 32 == 0) arrive(at.v_empty + 8 * stage(i));
    }
};
// --8<-- [end:half]

// --8<-- [start:in-turn]
struct InTurn {
    template <class T, bool CAUSAL>
    static __device__ void run(Half& h) {
        for (int i = 0; i < h.tiles; ++i) {
            begin_scores<T>(h.s, h.queries, h.k(i));
            finish<0>(h.s);
            h.leave_k(i);
            if (CAUSAL && i == 0) mask(h.s);
            take_in(h.s, h.rows, h.scale);
            round_weights<T>(h.p, h.s);
            rescale(h.o, h.rows);
            begin_output<T>(h.o, h.p, h.v(i));
            finish<0>(h.o);
            h.leave_v(i);
        }
    }
};
// --8<-- [end:in-turn]

// --8<-- [start:turns]
// A warpgroup begins products when it is its turn, and gives the turn to the other.
__device__ void take_turn(const Half& h) {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + h.number) : "memory");
}
__device__ void give_turn(const Half& h) {
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - h.number) : "memory");
}
// --8<-- [end:turns]

// --8<-- [start:ping-pong]
struct PingPong {
    template <class T, bool CAUSAL>
    static __device__ void run(Half& h) {
        begin_scores<T>(h.s, h.queries, h.k(0));
        finish<0>(h.s);
        h.leave_k(0);
        if (CAUSAL) mask(h.s);
        take_in(h.s, h.rows, h.scale);
        round_weights<T>(h.p, h.s);
        if (h.number == 1 && h.tiles > 1) give_turn(h);  // the other one begins
        for (int i = 1; i < h.tiles; ++i) {
            const unsigned k = h.k(i), v = h.v(i - 1);
            take_turn(h);
            begin_scores<T>(h.s, h.queries, k);
            begin_output<T>(h.o, h.p, v);
            if (h.number == 0 || i + 1 < h.tiles) give_turn(h);
            finish<0>(h.s);
            finish<0>(h.o);
            h.leave_k(i);
            h.leave_v(i - 1);
            take_in(h.s, h.rows, h.scale);
            round_weights<T>(h.p, h.s);
            rescale(h.o, h.rows);
        }
        begin_output<T>(h.o, h.p, h.v(h.tiles - 1));
        finish<0>(h.o);
    }
};
// --8<-- [end:ping-pong]

// --8<-- [start:overlapped]
struct Overlapped {
    template <class T, bool CAUSAL>
    static __device__ void run(Half& h) {
        begin_scores<T>(h.s, h.queries, h.k(0));
        finish<0>(h.s);
        h.leave_k(0);
        if (CAUSAL) mask(h.s);
        take_in(h.s, h.rows, h.scale);
        round_weights<T>(h.p, h.s);
        if (h.number == 1 && h.tiles > 1) give_turn(h);  // the other one begins
        unsigned k = h.tiles > 1 ? h.k(1) : 0;
        for (int i = 1; i < h.tiles; ++i) {
            const unsigned v = h.v(i - 1);
            take_turn(h);
            begin_scores<T>(h.s, h.queries, k);
            begin_output<T>(h.o, h.p, v);
            if (h.number == 0 || i + 1 < h.tiles) give_turn(h);
            finish<1>(h.s);  // the output's products go on
            h.leave_k(i);
            take_in(h.s, h.rows, h.scale);
            if (i + 1 < h.tiles) k = h.k(i + 1);  // a loop, which the assembler leaves
            finish<0>(h.o);                       // where it is, before this wait
            h.leave_v(i - 1);
            round_weights<T>(h.p, h.s);
            rescale(h.o, h.rows);
        }
        begin_output<T>(h.o, h.p, h.v(h.tiles - 1));
        finish<0>(h.o);
    }
};
// --8<-- [end:overlapped]

// --8<-- [start:kernel]
// A block's queries are tile x of head y; `shared` heads of q have one of k.
template <class T, bool CAUSAL, class WAY>
__global__ void __launch_bounds__(3 * GROUP, 1)
flash(T*, float* lse, const T*, const T*, const T*,
      const __grid_constant__ Map out_map, const __grid_constant__ Map q_map,
      const __grid_constant__ Map k_map, const __grid_constant__ Map v_map, int S,
      int shared, float scale) {
    const Places at = places();
    // Under a mask the longest work begins first.
    const int tile = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    const int tiles = CAUSAL ? tile + 1 : S / TILE;
    const int query = blockIdx.y * S + tile * TILE, key = blockIdx.y / shared * S;
    const int number = threadIdx.x / GROUP;
    if (number == 2) return load(at, q_map, k_map, v_map, query, key, tiles);
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    Half h = {at, at.q + number * 64 * LINE, number, tiles, scale};
    wait(at.q_full, 0);
    WAY::template run<T, CAUSAL>(h);
    write<T>(out_map, lse, h.o, h.rows, h.queries, query + number * 64, scale);
}
// --8<-- [end:kernel]

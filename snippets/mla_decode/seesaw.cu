// Latent attention of 64 queries over a part of a paged cache, on sm_90's tensor cores.
// To the copy engine q is (B * T * H, 576) and the cache (P * PAGE, 576), of 16 bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

// Rows come 64 at a time, as nine tiles of 64 columns, each line of which is 128 bytes
// and swizzled. Eight are latent, and a warpgroup has four of them; one is turned.
constexpr int ROWS = 64, LATENT = 512, GROUP = 128;
constexpr unsigned LINE = 128, TILE = ROWS * LINE, HALF = 4 * TILE, BLOCK = 9 * TILE;
constexpr float LN2 = 0.6931471805599453f;
#define NOTHING __int_as_float(0xff800000)  // minus infinity

// --8<-- [start:places]
extern __shared__ __align__(1024) unsigned char memory[];

// Where queries, two blocks of rows, weights and barriers are in shared memory, and
// what a group tells the other: its queries' maxima, and in the end their sums.
struct Places {
    unsigned q, k, p, landed;
    float* told;
};

__device__ Places places() {
    const auto q = static_cast<unsigned>(__cvta_generic_to_shared(memory));
    const unsigned p = q + 3 * BLOCK, landed = p + TILE + 4 * ROWS * sizeof(float);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 5; ++i)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
                         ::"r"(landed + 8 * i) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();  // the barriers are there
    return {q, q + BLOCK, p, landed,
            reinterpret_cast<float*>(memory + 3 * BLOCK + TILE)};
}

__device__ void wait(unsigned barrier, unsigned parity) {
    unsigned over;
    do {
        asm volatile(
            "{\n.reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(over) : "r"(barrier), "r"(parity) : "memory");
    } while (!over);
}

// Barrier 1 or 2 is for a group's threads, 3 or 4 for what a group tells the other.
__device__ void meet(int group) {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}
// --8<-- [end:places]

// --8<-- [start:copies]
// What the copy engine is told of a matrix: a parameter, since the host writes it.
struct alignas(64) Map {
    unsigned long long words[16];
};

// A barrier's phase ends when so many tiles have landed.
__device__ void expect(unsigned barrier, int tiles) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(barrier), "r"(tiles * TILE) : "memory");
}

// One thread asks the copy engine for tiles `first` to `last` - 1 of 64 rows.
__device__ void fetch(unsigned to, const Map& map, int row, int first, int last,
                      unsigned barrier) {
    for (int i = first; i < last; ++i)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global"
            ".mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                to + i * TILE),
            "l"(&map), "r"(64 * i), "r"(row), "r"(barrier)
            : "memory");
}
// --8<-- [end:copies]

// --8<-- [start:wgmma]
// What the tensor cores have to know of tiles in shared memory: where they are, how far
// apart, and that groups of 8 lines follow each other.
using Described = unsigned long long;
__device__ Described described(unsigned at) {
    return (at & 0x3ffff) >> 4 | Described(TILE >> 4) << 16 |
           Described(8 * LINE >> 4) << 32 | 1ull << 62;  // a swizzle of 128 bytes
}

#define EIGHT(d) "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3]), \
                 "+f"((d)[4]), "+f"((d)[5]), "+f"((d)[6]), "+f"((d)[7])
#define SUMS_32(d) EIGHT(d), EIGHT(d + 8), EIGHT(d + 16), EIGHT(d + 24)
#define SUMS_128(d) SUMS_32(d), SUMS_32(d + 32), SUMS_32(d + 64), SUMS_32(d + 96)
#define NAMES_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, " \
                 "%15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, " \
                 "%28, %29, %30, %31"
#define NAMES_128 NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, " \
    "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, " \
    "%59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, " \
    "%75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, " \
    "%91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, " \
    "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, " \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// 64 rows of sums of products over 16, of a warpgroup, made some time later: 64 scores,
// both operands with their columns along a line; or 256 columns of the output, whose
// right operand lies across, and whose left one is in registers or in shared memory.
#define MULTIPLY(T, NAME) \
    __device__ void mma(float (&d)[32], Described a, Described b, bool add, T) { \
        asm volatile( \
            "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " {" NAMES_32 \
            "}, %32, %33, add, 1, 1, 0, 0;\n}" \
            : SUMS_32(d) : "l"(a), "l"(b), "r"(int(add))); \
    } \
    __device__ void mma(float (&d)[128], Described a, Described b, T) { \
        asm volatile( \
            "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n256k16.f32." NAME "." NAME " {" \
            NAMES_128 "}, %128, %129, add, 1, 1, 0, 1;\n}" \
            : SUMS_128(d) : "l"(a), "l"(b)); \
    } \
    __device__ void mma(float (&d)[128], const unsigned* a, Described b, T) { \
        asm volatile( \
            "{\n.reg .pred add;\nsetp.eq.u32 add, 0, 0;\n" \
            "wgmma.mma_async.sync.aligned.m64n256k16.f32." NAME "." NAME " {" \
            NAMES_128 "}, {%128, %129, %130, %131}, %132, add, 1, 1, 1;\n}" \
            : SUMS_128(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
    }
MULTIPLY(__half, "f16")
MULTIPLY(__nv_bfloat16, "bf16")

// The registers of products are named where they begin and where they end: the compiler
// then moves nothing that reads or writes them to the other side.
__device__ void begin(float (&d)[32]) {
    asm volatile("wgmma.fence.sync.aligned;" : SUMS_32(d)::"memory");
}
__device__ void begin(float (&d)[128]) {
    asm volatile("wgmma.fence.sync.aligned;" : SUMS_128(d)::"memory");
}
__device__ void commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until no more than so many groups' products are still being made: those of `d` are.
template <int MOST = 0>
__device__ void finish(float (&d)[32]) {
    asm volatile("wgmma.wait_group.sync.aligned %32;"
                 : SUMS_32(d) : "n"(MOST) : "memory");
}
__device__ void finish(float (&d)[128]) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS_128(d)::"memory");
}
// --8<-- [end:wgmma]

// --8<-- [start:group]
__device__ float power_of_two(float x) {
    asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(x));
    return x;
}

__device__ unsigned rounded(float low, float high, __half) {
    const __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}
__device__ unsigned rounded(float low, float high, __nv_bfloat16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const unsigned&>(both);
}

// Of 16 columns of a row, which four lanes write, a lane has two of the first eight and
// two of the others. So float fills sectors of 32 bytes, and 16 bits when lanes trade.
__device__ void store(float* to, float2 near, float2 far, bool real) {
    auto* const at = reinterpret_cast<float2*>(to) + threadIdx.x % 4;
    if (real) at[0] = near, at[4] = far;
}
template <class T>
__device__ void store(T* to, float2 near, float2 far, bool real) {
    const int lane = threadIdx.x % 4, odd = lane % 2;
    const unsigned a = rounded(near.x, near.y, T()), b = rounded(far.x, far.y, T());
    const unsigned other = __shfl_xor_sync(~0u, odd ? a : b, 1);
    auto* const at = reinterpret_cast<uint2*>(to) + lane / 2 + 2 * odd;
    if (real) *at = odd ? uint2{other, b} : uint2{a, other};
}

// What a warpgroup has in registers: scores of a block, its weights, rounded, and half
// of the output's columns. A thread has two queries, r = 0 and 1, of rows lane / 4 and
// 8 below, in both groups the same; of them the columns 8 i + 2 (lane % 4) and the next
// are at 4 i + 2 r.
template <class T, class Index>
struct Group {
    Places at;
    const Map* cache;
    const Index* table;
    long long stride;
    int page, number, first, last, blocks;  // rows of a page; rows
    float scale;                            // of scores, to base 2
    int limit[2], coming;  // how many rows a query sees; the next page
    float top[2], total[2] = {}, fade[2];
    float s[32], o[128] = {};
    unsigned p[16];

    __device__ float& told(int whose, int r) const {
        return at.told[whose * ROWS + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4 +
                       8 * r];
    }

    __device__ void await(int i, int half) {
        wait(at.landed + 8 * (i % 2 * 2 + half), i / 2 % 2);
    }

    // The scores of block i by this group alone, begun when both halves are there.
    __device__ void begin_scores(int i) {
        await(i, 0);
        await(i, 1);
        begin(s);
#pragma unroll
        for (int d = 0; d < 36; ++d) {
            const unsigned to = d / 4 * TILE + d % 4 * 32;
            mma(s, described(at.q + to), described(at.k + number * BLOCK + to), d > 0,
                T());
        }
        commit();
    }

    // --8<-- [end:group]
    // --8<-- [start:softmax]
    // A new maximum; `fade` is what is left of what was summed before. A query that has
    // seen no row subtracts 0: -inf - -inf would be NaN.
    __device__ float raise(int r, float high) {
        const float shift = high == NOTHING ? 0 : high * scale;
        fade[r] = power_of_two(top[r] * scale - shift);
        total[r] *= fade[r];
        top[r] = high;
        return shift;
    }

    // One step of the online softmax: scores of block i become weights.
    __device__ void take_in(int i) {
        const int row = first + i * ROWS + threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float high = top[r];
#pragma unroll
            for (int j = 2 * r; j < 32; j += j % 2 ? 3 : 1) {
                if (row + j / 4 * 8 + j % 2 >= limit[r]) s[j] = NOTHING;
                high = fmaxf(high, s[j]);
            }
            high = fmaxf(high, __shfl_xor_sync(~0u, high, 1));
            high = fmaxf(high, __shfl_xor_sync(~0u, high, 2));
            const float shift = raise(r, high);
#pragma unroll
            for (int j = 2 * r; j < 32; j += j % 2 ? 3 : 1) {
                s[j] = power_of_two(fmaf(s[j], scale, -shift));
                total[r] += s[j];  // this thread's part of it
            }
        }
#pragma unroll
        for (int j = 0; j < 16; ++j) p[j] = rounded(s[2 * j], s[2 * j + 1], T());
    }

    // Maxima seldom grow. Where they do, no scores may be on their way: the assembler
    // lets nothing else write to sums meanwhile.
    __device__ void rescale() {
        if (!__any_sync(~0u, fade[0] != 1 || fade[1] != 1)) return;
        finish(s);
#pragma unroll
        for (int j = 0; j < 128; ++j) o[j] *= fade[j % 4 / 2];
    }

    // The other group's products take the weights from shared memory.
    __device__ void give() {
        const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
        for (int j = 0; j < 16; j += 4)
            asm volatile(
                "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                ::"r"(at.p + row * LINE + (j / 2 + lane / 16 ^ row % 8) * 16),
                "r"(p[j]), "r"(p[j + 1]), "r"(p[j + 2]), "r"(p[j + 3])
                : "memory");
        for (int r = 0; r < 2; ++r) told(number, r) = top[r];
        asm volatile("fence.proxy.async.shared::cta;\nbar.arrive %0, 256;"
                     ::"r"(3 + number) : "memory");
    }
    __device__ void take() {
        asm volatile("bar.sync %0, 256;" ::"r"(4 - number) : "memory");
        for (int r = 0; r < 2; ++r) raise(r, told(1 - number, r));
    }
    // --8<-- [end:softmax]

    // --8<-- [start:output]
    // This group's columns of block i as values, times its own or the other's weights.
    __device__ void begin_output(int i, bool own) {
        const unsigned v = at.k + i % 2 * BLOCK + number * HALF;
        clear(v, last - first - i * ROWS);
        begin(o);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const Described b = described(v + 16 * j * LINE);
            if (own)
                mma(o, p + 4 * j, b, T());
            else
                mma(o, described(at.p + 32 * j), b, T());
        }
        commit();
    }

    // What lies past the end may be NaN, and 0 times that would not be 0.
    __device__ void clear(unsigned v, int there) {
        if (there >= ROWS) return;
        meet(number);  // all warps have made their scores
        for (int i = threadIdx.x % GROUP; i < HALF / 16; i += GROUP)
            if (i / 8 % ROWS >= there)
                asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};"
                             ::"r"(v + i * 16), "r"(0) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        meet(number);
    }

    // --8<-- [end:output]
    // --8<-- [start:ask]
    __device__ void look_up(int i) {
        if (i < blocks) coming = int(table[(first + i * ROWS) / page * stride]);
    }

    // Once all its threads have done with a half, one asks for the next block's, and
    // looks up the page after that. The turned columns come with the half of that group
    // which makes the block's scores.
    __device__ void ask(int i) {
        if (i >= blocks) return;
        meet(number);
        if (threadIdx.x % GROUP) return;
        const int b = i % 2, row = coming * page + (first + i * ROWS) % page;
        const unsigned to = at.k + b * BLOCK, landed = at.landed + 8 * (2 * b + number);
        expect(landed, 4 + (b == number));
        fetch(to, *cache, row, 4 * number, 4 * number + 4, landed);
        if (b == number) fetch(to, *cache, row, 8, 9, landed);
        look_up(i + 1);
    }
    // --8<-- [end:ask]

    // --8<-- [start:seesaw]
    __device__ void even() {
        for (int i = 0; i < blocks; i += 2) {
            begin_scores(i);
            finish(s);
            take_in(i);
            give();
            rescale();
            begin_output(i, true);
            finish(o);
            ask(i + 2);
            if (i + 1 == blocks) break;
            take();
            rescale();
            begin_output(i + 1, false);
            finish(o);
            ask(i + 3);
        }
    }

    __device__ void odd() {
        int i = 1;
        for (; i < blocks; i += 2) {
            begin_scores(i);
            take();
            rescale();
            begin_output(i - 1, false);
            finish<1>(s);  // the output's products go on
            take_in(i);
            await(i, 1);  // has landed; but the assembler leaves a loop where it is,
            finish(o);    // before this wait
            ask(i + 1);
            rescale();
            give();
            begin_output(i, true);
            finish(o);
            ask(i + 2);
        }
        if (i > blocks) return;
        take();
        rescale();
        begin_output(i - 1, false);
        finish(o);
    }
    // --8<-- [end:seesaw]
};

// --8<-- [start:kernel]
// A block's queries are a tile of a sequence's H T, and its rows a part of the
// sequence's. Parts are float, and their logarithms to base 2, since they are merged.
template <class T, class Index, class Out>
__global__ void __launch_bounds__(2 * GROUP, 1)
seesaw(Out* out, float* lse, const T*, const T*, const Index* table,
       const Index* lengths, const __grid_constant__ Map q_map,
       const __grid_constant__ Map cache_map, long long table_stride,
       long long table_step, long long length_stride, int batch, int h, int tokens,
       int page, int longest, int chunk, float scale) {
    const int queries = tokens * h, tiles = (queries + ROWS - 1) / ROWS;
    const int tile = blockIdx.x % tiles, b = blockIdx.x / tiles % batch;
    const int part = blockIdx.x / tiles / batch, first = part * chunk;
    // Alike in a warp, which the assembler is told: it has to follow the products.
    const int length = __shfl_sync(
        ~0u, int(max(min(lengths[b * length_stride], Index(longest)), Index(0))), 0);
    constexpr bool CUT = sizeof(Out) == 4;
    if (CUT && first >= length) return;  // the merge knows which parts there are
    const int last = min(first + chunk, length);
    const int number = __shfl_sync(~0u, threadIdx.x / GROUP, 0);
    const int blocks = max(last - first + ROWS - 1, 0) / ROWS;
    Group<T, Index> group = {places(), &cache_map, table + b * table_stride,
                             table_step, page, number, first, last, blocks, scale};
    const unsigned landed = group.at.landed + 32;
    if (threadIdx.x == 0) {
        expect(landed, 9);
        fetch(group.at.q, q_map, b * queries + tile * ROWS, 0, 9, landed);
    }
    group.look_up(0);
    for (int i = 0; i < 2; ++i) group.ask(i);
    const int lane = threadIdx.x % 32;
    const int query = tile * ROWS + threadIdx.x / 32 % 4 * 16 + lane / 4;
    for (int r = 0; r < 2; ++r) {
        group.limit[r] = min(length - tokens + 1 + (query + 8 * r) / h, last);
        group.top[r] = NOTHING;
    }
    wait(landed, 0);
    number ? group.odd() : group.even();

    for (int r = 0; r < 2; ++r) {
        float total = group.total[r];
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        group.told(2 + number, r) = group.total[r] = total;
    }
    __syncthreads();
    for (int r = 0; r < 2; ++r) {
        const float sum = group.total[r] + group.told(3 - number, r);
        const float total = sum > 0 ? sum : 1;  // nothing seen: o is 0 and top is -inf
        const bool real = query + 8 * r < queries;
        const long long to = (long long)(part * batch + b) * queries + query + 8 * r;
        if (real && number == 0 && lane % 4 == 0)
            lse[to] = (group.top[r] * scale + log2f(total)) * (CUT ? 1 : LN2);
        const float share = 1 / total;
        Out* const line = out + to * LATENT + number * (LATENT / 2);
#pragma unroll
        for (int j = 2 * r; j < 128; j += 8) {
            const float* const d = group.o + j;
            store(line + j / 8 * 16, {d[0] * share, d[1] * share},
                  {d[4] * share, d[5] * share}, real);
        }
    }
}
// --8<-- [end:kernel]

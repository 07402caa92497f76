// Three jobs for the lanes of a warp: a sum, a compaction that keeps the order, and a
// histogram. Vectors are dense and of any length; 32-bit elements are read 16 bytes at
// a time, whatever address they begin at.

#ifndef WITHOUT_LIBRARIES  // of what takes twenty times as long to compile
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cub/block/block_reduce.cuh>
#endif

using Index = long long;  // there may be more than 2**31 elements
using Word = unsigned long long;

constexpr unsigned ALL = 0xffffffff;  // every lane takes part
constexpr int LANES = 32, THREADS = 256, WARPS = THREADS / LANES;

template <class T>
struct alignas(16) Quad {
    T x, y, z, w;
};

// How many elements come before the first 16-byte boundary.
template <class T>
__device__ Index head_of(const T* x, Index n) {
    const Index head = (16 - reinterpret_cast<Word>(x) % 16) % 16 / sizeof(T);
    return head < n ? head : n;
}

// --8<-- [start:tree]
// The sum of a block's values, in its first thread. `scratch` has a word a thread.
struct Shared {  // a tree in shared memory: a barrier before each halving
    template <class T>
    static __device__ T of_block(T value, T* scratch) {
        const int own = threadIdx.x;
        scratch[own] = value;
        for (int half = THREADS / 2; half > 0; half /= 2) {
            __syncthreads();  // the words to be added are there
            if (own < half) scratch[own] += scratch[own + half];
        }
        return scratch[own];
    }
};
// --8<-- [end:tree]

// --8<-- [start:warps]
// A warp at a time: a word a warp, one barrier, and the first warp adds those.
template <class Warp>
struct ByWarps {
    template <class T>
    static __device__ T of_block(T value, T* scratch) {
        const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
        value = Warp::sum(value);
        if (lane == 0) scratch[warp] = value;
        __syncthreads();  // every warp's word is there
        if (warp == 0) value = Warp::sum(lane < WARPS ? scratch[lane] : T(0));
        return value;
    }
};

struct Butterfly {  // five exchanges; every lane has the sum
    template <class T>
    static __device__ T sum(T value) {
        for (int offset = LANES / 2; offset > 0; offset /= 2)
            value += __shfl_xor_sync(ALL, value, offset);
        return value;
    }
};

struct Redux {  // one instruction from SM 80 on, of integers alone
#if __CUDA_ARCH__ >= 800
    static __device__ int sum(int value) { return __reduce_add_sync(ALL, value); }
#else
    static __device__ int sum(int value) { return Butterfly::sum(value); }
#endif
};
// --8<-- [end:warps]

#ifndef WITHOUT_LIBRARIES
// --8<-- [start:libraries]
struct Group {  // cooperative groups: the warp has a name, and the library chooses
    template <class T>
    static __device__ T sum(T value) {
        namespace cg = cooperative_groups;
        return cg::reduce(cg::tiled_partition<LANES>(cg::this_thread_block()), value,
                          cg::plus<T>());
    }
};

struct Cub {  // the block as a whole
    template <class T>
    static __device__ T of_block(T value, T*) {
        __shared__ typename cub::BlockReduce<T, THREADS>::TempStorage storage;
        return cub::BlockReduce<T, THREADS>(storage).Sum(value);
    }
};
// --8<-- [end:libraries]
#endif

// --8<-- [start:sum]
// sums[b] = the sum of the elements that fall to block b. Which these are follows from
// n and the grid alone, so a sum of floats is the same bits every time.
template <class Method, class T>
__global__ void __launch_bounds__(THREADS, 6)
sum_of(const T* __restrict__ x, T* __restrict__ sums, Index n) {
    __shared__ T scratch[THREADS];
    const Index head = head_of(x, n), quads = (n - head) / 4;
    const Index first = blockIdx.x * Index(THREADS) + threadIdx.x;
    const Index step = gridDim.x * Index(THREADS);
    const auto* wide = reinterpret_cast<const Quad<T>*>(x + head);
    T sum = 0;
    for (Index i = first; i < quads; i += 4 * step) {
        Quad<T> four[4];  // all on their way before the first is used
#pragma unroll
        for (int u = 0; u < 4; ++u)
            four[u] = i + u * step < quads ? wide[i + u * step] : Quad<T>{};
#pragma unroll
        for (int u = 0; u < 4; ++u)
            sum += (four[u].x + four[u].y) + (four[u].z + four[u].w);
    }
    if (first < n - 4 * quads)  // at most six elements before and after the quads
        sum += x[first < head ? first : first + 4 * quads];
    sum = Method::of_block(sum, scratch);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
// --8<-- [end:sum]

constexpr int FLAGS = 1024;  // threads and elements of a block that keeps one a thread

// --8<-- [start:ranks]
// How many threads of the block before this one keep their element; of all, `total`.
struct SharedRank {  // a scan in shared memory, two barriers a doubling
    static __device__ int before(bool keep, int* scratch, int& total) {
        const int own = threadIdx.x;
        scratch[own] = keep;
        __syncthreads();  // every flag is there
        for (int offset = 1; offset < FLAGS; offset *= 2) {
            const int left = own >= offset ? scratch[own - offset] : 0;
            __syncthreads();  // all have read
            scratch[own] += left;
            __syncthreads();  // all have added
        }
        total = scratch[FLAGS - 1];
        return scratch[own] - keep;
    }
};

struct BallotRank {  // one vote and a count of bits, and the same over the warps
    static __device__ int before(bool keep, int* scratch, int& total) {
        const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
        const unsigned votes = __ballot_sync(ALL, keep), lower = (1u << lane) - 1;
        if (lane == 0) scratch[warp] = __popc(votes);
        __syncthreads();  // every warp's count is there
        const int count = scratch[lane];  // as many warps as lanes
        const int earlier = Redux::sum(lane < warp ? count : 0);
        total = Redux::sum(count);
        return earlier + __popc(votes & lower);
    }
};
// --8<-- [end:ranks]

// --8<-- [start:three]
// Three launches: the blocks' counts; where each block's elements begin; the elements.
template <class Rank>
__global__ void __launch_bounds__(FLAGS)
keep_counts(const float* __restrict__ x, Index* __restrict__ counts, Index n,
            float limit) {
    __shared__ int scratch[FLAGS];
    const Index i = blockIdx.x * Index(FLAGS) + threadIdx.x;
    int total;
    Rank::before(i < n && x[i] > limit, scratch, total);
    if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// counts[b] becomes the sum of those before it, and counts[blocks] that of all.
__global__ void __launch_bounds__(LANES) keep_starts(Index* counts, Index blocks) {
    const int lane = threadIdx.x;
    Index before = 0;
    for (Index first = 0; first < blocks; first += LANES) {
        const Index own = first + lane < blocks ? counts[first + lane] : 0;
        Index sum = own;
        for (int offset = 1; offset < LANES; offset *= 2) {
            const Index left = __shfl_up_sync(ALL, sum, offset);
            if (lane >= offset) sum += left;
        }
        if (first + lane < blocks) counts[first + lane] = before + sum - own;
        before += __shfl_sync(ALL, sum, LANES - 1);
    }
    if (lane == 0) counts[blocks] = before;
}

template <class Rank>
__global__ void __launch_bounds__(FLAGS)
keep_elements(const float* __restrict__ x, float* __restrict__ y,
              const Index* __restrict__ starts, Index n, float limit) {
    __shared__ int scratch[FLAGS];
    const Index i = blockIdx.x * Index(FLAGS) + threadIdx.x;
    const float element = i < n ? x[i] : 0;
    const bool keep = i < n && element > limit;
    int total;
    const int rank = Rank::before(keep, scratch, total);
    if (keep) y[starts[blockIdx.x] + rank] = element;
}
// --8<-- [end:three]

// --8<-- [start:states]
// What a tile tells those after it, in one word, so that nothing else need be ordered:
// nothing yet; the count of its own; the count of all up to its end.
constexpr Word OWN = Word(1) << 62, UP_TO = Word(2) << 62, COUNT = OWN - 1;

__device__ inline Word told(const Word* state) {
    Word word;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(word) : "l"(state) : "memory");
    return word;
}

__device__ inline void tell(Word* state, Word word) {
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(state), "l"(word) : "memory");
}

// How many elements all tiles before this one keep; the lanes of a warp ask 32 of them
// at a time, back to the first that knows its sum.
__device__ inline Word look_back(const Word* states, Index tile) {
    const int lane = threadIdx.x;
    Word before = 0;
    for (Index last = tile - 1;; last -= LANES) {
        Word word = UP_TO;  // before the first tile there is nothing
        if (last - lane >= 0)
            do word = told(states + last - lane);
            while (word == 0);
        const unsigned known = __ballot_sync(ALL, word >= UP_TO);
        const int nearest = known ? __ffs(known) - 1 : LANES - 1;
        before += Butterfly::sum(lane <= nearest ? word & COUNT : 0);
        if (known) return before;
    }
}
// --8<-- [end:states]

constexpr int CHUNKS = 4, SPAN = CHUNKS * 4 * LANES, TILE = SPAN * WARPS;

// --8<-- [start:lookback]
// One launch, and x is read once. A tile of 4096 elements is counted by ballots, placed
// by looking back, gathered in shared memory and written side by side. work: the number
// of tiles that began, the count of all, a state for each tile; all 0 before.
template <bool WIDE>
__global__ void __launch_bounds__(THREADS)
keep_looking_back(const float* __restrict__ x, float* __restrict__ y, Word* work,
                  Index n, float limit) {
    __shared__ float kept[TILE];
    __shared__ int counts[WARPS];
    __shared__ Word shared_tile, shared_before;
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    if (threadIdx.x == 0) shared_tile = atomicAdd(work, Word(1));  // as blocks start
    __syncthreads();  // the tile is chosen
    const Index tile = shared_tile;
    const Index begin = tile * TILE + warp * SPAN + 4 * lane;

    float values[CHUNKS][4];
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        const Index i = begin + 4 * LANES * c;
        if (WIDE && i + 4 <= n) {
            const auto four = *reinterpret_cast<const float4*>(x + i);
            values[c][0] = four.x, values[c][1] = four.y;
            values[c][2] = four.z, values[c][3] = four.w;
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) values[c][j] = i + j < n ? x[i + j] : limit;
        }
    }

    int places[CHUNKS], count = 0;  // of a lane's first element, in the warp's
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        int lower = 0, all = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const unsigned votes = __ballot_sync(ALL, values[c][j] > limit);
            lower += __popc(votes & ((1u << lane) - 1));
            all += __popc(votes);
        }
        places[c] = count + lower;
        count += all;
    }
    if (lane == 0) counts[warp] = count;
    __syncthreads();  // every warp has counted
    int earlier = 0, total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        earlier += w < warp ? counts[w] : 0;
        total += counts[w];
    }

    if (warp == 0) {
        Word before = 0;
        if (lane == 0) tell(work + 2 + tile, (tile ? OWN : UP_TO) | total);
        if (tile) {
            before = look_back(work + 2, tile);
            if (lane == 0) tell(work + 2 + tile, UP_TO | (before + total));
        }
        if (lane == 0) shared_before = before;
        if (lane == 0 && (tile + 1) * TILE >= n) work[1] = before + total;
    }
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c) {
        int place = earlier + places[c];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (values[c][j] > limit) kept[place++] = values[c][j];
    }
    __syncthreads();  // the kept are gathered, and where they go is known
    for (int i = threadIdx.x; i < total; i += THREADS) y[shared_before + i] = kept[i];
}
// --8<-- [end:lookback]

// --8<-- [start:counting]
// How one value is counted. All lanes of the warp come here; `valid` says whose value
// is to be counted.
struct EachToGlobal {  // an atomic of the whole GPU for each value
    static constexpr bool own = false;
    static __device__ void add(int*, Word* counts, int value, bool valid) {
        if (valid) atomicAdd(counts + value, Word(1));
    }
};

struct EachToShared {  // an atomic of the block for each value
    static constexpr bool own = true;
    static __device__ void add(int* counts, Word*, int value, bool valid) {
        if (valid) atomicAdd(counts + value, 1);
    }
};

struct MatchToShared {  // one for each *different* value of a warp, by its first lane
    static constexpr bool own = true;
    static __device__ void add(int* counts, Word*, int value, bool valid) {
        const unsigned same = __match_any_sync(ALL, valid ? value : -1);
        const bool first = __ffs(same) - 1 == int(threadIdx.x % LANES);
        if (valid && first) atomicAdd(counts + value, __popc(same));
    }
};
// --8<-- [end:counting]

// --8<-- [start:histogram]
// counts[v] += how often v is in x; what is not in 0 ... bins - 1 is counted nowhere.
// A block counts in shared memory, `bins` words, and adds what it has at its end.
template <class Method>
__global__ void __launch_bounds__(THREADS)
histogram(const int* __restrict__ x, Word* __restrict__ counts, Index n, int bins) {
    extern __shared__ int own[];
    if (Method::own) {
        for (int bin = threadIdx.x; bin < bins; bin += THREADS) own[bin] = 0;
        __syncthreads();  // all are 0
    }
    const auto add = [=](int value, bool there) {
        Method::add(own, counts, value, there && unsigned(value) < unsigned(bins));
    };
    const Index head = head_of(x, n), quads = (n - head) / 4;
    const auto* wide = reinterpret_cast<const Quad<int>*>(x + head);
    const int lane = threadIdx.x % LANES;
    const Index first = blockIdx.x * Index(THREADS) + threadIdx.x;
    const Index step = gridDim.x * Index(THREADS);
    // A warp goes on until its first lane has nothing left, so that all lanes vote.
    for (Index i = first; i - lane < quads; i += step) {
        const bool there = i < quads;
        const auto four = there ? wide[i] : Quad<int>{};
        add(four.x, there), add(four.y, there), add(four.z, there), add(four.w, there);
    }
    if (first - lane < n - 4 * quads) {  // at most six elements, in the first warp
        const bool there = first < n - 4 * quads;
        add(there ? x[first < head ? first : first + 4 * quads] : 0, there);
    }
    if (Method::own) {
        __syncthreads();  // the block has counted
        for (int bin = threadIdx.x; bin < bins; bin += THREADS)
            if (own[bin]) atomicAdd(counts + bin, Word(own[bin]));
    }
}
// --8<-- [end:histogram]

// A Jacobi step of the 7-point stencil in float32, on a dense grid (Z, Y, X):
// y = c0 * x + c1 * (the six neighbours of x). A cell on a face of the grid has fewer
// neighbours and keeps its value. Sides are any numbers from 1 on.

using Index = long long;  // Z * Y * X may pass 2**31

// --8<-- [start:step]
struct Corner {
    int z, y, x;
};

// Where this block's part begins: `planes` planes of TY x TX cells. Parts are numbered
// along x, then y, then z, so that one dimension of the grid of blocks is enough.
template <int TY, int TX>
__device__ Corner corner_of_block(int planes, int Y, int X) {
    const int part = blockIdx.x, across = (X + TX - 1) / TX, down = (Y + TY - 1) / TY;
    return {part / across / down * planes, part / across % down * TY,
            part % across * TX};
}

// Whether a cell at `i` has both neighbours in a direction with `n` cells.
__device__ bool within(int i, int n) { return 0 < i && i < n - 1; }

// Every kernel adds in this order, so that all of them give the same bits.
__device__ float step(float c0, float c1, float own, float west, float east,
                      float north, float south, float below, float above) {
    const float sum = (west + east) + (north + south) + (below + above);
    return fmaf(c0, own, c1 * sum);
}
// --8<-- [end:step]

// --8<-- [start:naive]
// A thread a cell, by blocks of 8 x 32; each neighbour is asked of global memory.
__global__ void __launch_bounds__(256)
stencil_naive(const float* __restrict__ x, float* __restrict__ y, int Z, int Y, int X,
              int planes, float c0, float c1) {
    const Corner part = corner_of_block<8, 32>(planes, Y, X);
    const int z = part.z, row = part.y + threadIdx.y, column = part.x + threadIdx.x;
    if (row >= Y || column >= X) return;
    const Index line = X, plane = line * Y, at = z * plane + row * line + column;
    float cell = x[at];
    if (within(z, Z) && within(row, Y) && within(column, X))
        cell = step(c0, c1, cell, x[at - 1], x[at + 1], x[at - line], x[at + line],
                    x[at - plane], x[at + plane]);
    y[at] = cell;
}
// --8<-- [end:naive]

// --8<-- [start:tiled]
// A tile of 8 x 8 x 32 cells, and one more on every side, in shared memory.
constexpr int DEPTH = 8, HIGH = 8, WIDTH = 32;

__global__ void __launch_bounds__(256)
stencil_tiled(const float* __restrict__ x, float* __restrict__ y, int Z, int Y, int X,
              int planes, float c0, float c1) {
    __shared__ float tile[DEPTH + 2][HIGH + 2][WIDTH + 2];
    const Corner part = corner_of_block<HIGH, WIDTH>(planes, Y, X);
    const Index line = X, plane = line * Y;
    constexpr int across = WIDTH + 2, layer = across * (HIGH + 2);
#pragma unroll 2
    for (int i = threadIdx.y * 32 + threadIdx.x; i < (DEPTH + 2) * layer; i += 256) {
        const int z = part.z + i / layer - 1;
        const int row = part.y + i / across % (HIGH + 2) - 1;
        const int column = part.x + i % across - 1;
        const bool there = 0 <= z && z < Z && 0 <= row && row < Y && 0 <= column &&
                           column < X;
        (&tile[0][0][0])[i] = there ? x[z * plane + row * line + column] : 0;
    }
    __syncthreads();  // the tile is complete

    const int j = threadIdx.y + 1, i = threadIdx.x + 1;
    const int row = part.y + threadIdx.y, column = part.x + threadIdx.x;
    if (row >= Y || column >= X) return;
    const bool may = within(row, Y) && within(column, X);
#pragma unroll 2
    for (int k = 1; k <= min(DEPTH, Z - part.z); ++k) {
        const int z = part.z + k - 1;
        float cell = tile[k][j][i];
        if (may && within(z, Z))
            cell = step(c0, c1, cell, tile[k][j][i - 1], tile[k][j][i + 1],
                        tile[k][j - 1][i], tile[k][j + 1][i], tile[k - 1][j][i],
                        tile[k + 1][j][i]);
        y[z * plane + row * line + column] = cell;
    }
}
// --8<-- [end:tiled]

// --8<-- [start:marching]
// 2.5-D: a block of 16 x 32 threads marches along z. A thread keeps its column's three
// cells in registers; the plane between them is in shared memory, with its four sides.
constexpr int TALL = 16;

__global__ void __launch_bounds__(TALL * WIDTH, 4)
stencil_marching(const float* __restrict__ x, float* __restrict__ y, int Z, int Y,
                 int X, int planes, float c0, float c1) {
    __shared__ float halves[2][TALL + 2][WIDTH + 2];
    const Corner part = corner_of_block<TALL, WIDTH>(planes, Y, X);
    const int j = threadIdx.y + 1, i = threadIdx.x + 1;
    const int row = part.y + threadIdx.y, column = part.x + threadIdx.x;
    const bool own = row < Y && column < X;
    const bool may = within(row, Y) && within(column, X);
    const Index line = X, plane = line * Y;
    Index at = part.z * plane + row * line + column;
    float below = own && part.z > 0 ? x[at - plane] : 0, cell = own ? x[at] : 0;
    for (int k = 0; k < min(planes, Z - part.z); ++k, at += plane) {
        const int z = part.z + k;
        auto& now = halves[k % 2];  // the last plane is still read in the other
        const float above = own && z + 1 < Z ? x[at + plane] : 0;
        now[j][i] = cell;
        if (j == 1) now[0][i] = row > 0 && column < X ? x[at - line] : 0;
        if (j == TALL) now[j + 1][i] = row + 1 < Y && column < X ? x[at + line] : 0;
        if (i == 1) now[j][0] = row < Y && column > 0 ? x[at - 1] : 0;
        if (i == WIDTH) now[j][i + 1] = row < Y && column + 1 < X ? x[at + 1] : 0;
        __syncthreads();  // the plane is complete
        if (own) {
            y[at] = may && within(z, Z)
                        ? step(c0, c1, cell, now[j][i - 1], now[j][i + 1],
                               now[j - 1][i], now[j + 1][i], below, above)
                        : cell;
        }
        below = cell, cell = above;
    }
}
// --8<-- [end:marching]

// --8<-- [start:quads]
// A lane has a quad of each of ROWS rows; a block holds HEIGHT rows of SPAN of a plane.
// EDGE columns of it are halo: a quad, so that the next one begins on 16 bytes too.
struct Held {
    static constexpr int ROWS = 2, WARPS = 16, HEIGHT = ROWS * WARPS;
    static constexpr int SPAN = 128, EDGE = 4;
};

// Four neighbours along x, of which the grid has the first `left`; else zeros.
template <bool WIDE>
__device__ void load(float (&quad)[4], const float* from, int left) {
    if (WIDE) {  // a quad is in the grid whole, or not at all
        const float4 four = left > 0 ? *reinterpret_cast<const float4*>(from)
                                     : make_float4(0, 0, 0, 0);
        quad[0] = four.x, quad[1] = four.y, quad[2] = four.z, quad[3] = four.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) quad[i] = i < left ? from[i] : 0;
    }
}

template <bool WIDE>
__device__ void store(float* to, const float (&quad)[4], int left) {
    if (WIDE) {
        *reinterpret_cast<float4*>(to) =
            make_float4(quad[0], quad[1], quad[2], quad[3]);
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (i < left) to[i] = quad[i];
    }
}
// --8<-- [end:quads]

// --8<-- [start:time]
// 3.5-D: the same march, T steps at once. Level t has the grid after t steps, and is
// one plane behind level t - 1. Of each level but the last a lane keeps two planes in
// registers, and a queue in shared memory has the newer, for the rows above and below.
// What a block holds is right on one cell less a side at every level: T rows and EDGE
// columns on every side are the halo, and their cells are not written.
template <int T, bool WIDE>
__global__ void __launch_bounds__(32 * Held::WARPS, T == 1 ? 2 : 1)
stencil_time(const float* __restrict__ x, float* __restrict__ y, int Z, int Y, int X,
             int planes, float c0, float c1) {
    constexpr int ROWS = Held::ROWS, HEIGHT = Held::HEIGHT;
    constexpr int SPAN = Held::SPAN, EDGE = Held::EDGE;
    static_assert(T <= EDGE, "the halo has EDGE columns");
    extern __shared__ float4 queue[];  // 2 x T planes of HEIGHT rows of 32 quads
    const Corner part = corner_of_block<HEIGHT - 2 * T, SPAN - 2 * EDGE>(planes, Y, X);
    const int lane = threadIdx.x, top = ROWS * threadIdx.y;
    const int row = part.y - T + top, column = part.x - EDGE + 4 * lane;
    const int left = column < 0 ? 0 : X - column;
    const Index line = X, plane = line * Y;
    const int north = max(top - 1, 0) * 32 + lane;  // the outermost rows are halo
    const int south = min(top + ROWS, HEIGHT - 1) * 32 + lane;

    float before[T][ROWS][4] = {}, here[T][ROWS][4] = {}, ahead[ROWS][4];
    const int begin = max(part.z - T, 0), end = part.z + min(planes, Z - part.z);
    Index at = begin * plane + row * line + column;
    auto look_ahead = [&](int z) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const bool there = z < Z && 0 <= row + r && row + r < Y;
            load<WIDE>(ahead[r], x + at + r * line, there ? left : 0);
        }
        at += plane;
    };
    look_ahead(begin);
    for (int newest = begin; newest < end + T; ++newest) {
        float4* const now = queue + newest % 2 * (T * HEIGHT * 32);
        float next[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int t = 0; t < T; ++t) {
                const float* const four = here[t][r];
                now[(t * HEIGHT + top + r) * 32 + lane] =
                    make_float4(four[0], four[1], four[2], four[3]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) next[r][i] = ahead[r][i];
        }
        look_ahead(newest + 1);  // on its way while all levels take a step
        __syncthreads();  // the queue's planes are complete
#pragma unroll
        for (int t = 0; t < T; ++t) {
            const int z = newest - 1 - t;  // where this level is
            const float4 up = now[t * HEIGHT * 32 + north];
            const float4 down = now[t * HEIGHT * 32 + south];
            const float outer[2][4] = {{up.x, up.y, up.z, up.w},
                                       {down.x, down.y, down.z, down.w}};
            float stepped[ROWS][4];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const float* const own = here[t][r];
                const float* const upper = r == 0 ? outer[0] : here[t][r - 1];
                const float* const lower = r == ROWS - 1 ? outer[1] : here[t][r + 1];
                const float west = __shfl_up_sync(~0u, own[3], 1);
                const float east = __shfl_down_sync(~0u, own[0], 1);
                const bool may = within(z, Z) && within(row + r, Y);
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    stepped[r][i] =
                        may && within(column + i, X)
                            ? step(c0, c1, own[i], i == 0 ? west : own[i - 1],
                                   i == 3 ? east : own[i + 1], upper[i], lower[i],
                                   before[t][r][i], next[r][i])
                            : own[i];
            }
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    before[t][r][i] = here[t][r][i];
                    here[t][r][i] = next[r][i];
                    next[r][i] = stepped[r][i];
                }
        }
        // `at` is T + 2 planes beyond the one that is now T steps on.
        if (newest - T < part.z || lane == 0 || lane == 31) continue;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int held = top + r;
            if (T <= held && held < HEIGHT - T && row + r < Y && left > 0)
                store<WIDE>(y + at - (T + 2) * plane + r * line, next[r], left);
        }
    }
}
// --8<-- [end:time]

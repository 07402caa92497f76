// y = x^T in float32. x (M, N) is row-major, and a row begins ldx elements after the
// last; y (N, M) is row-major and dense. M and N are any numbers from 1 on.

using Index = long long;  // M * N may pass 2**31

struct Corner {
    int row, column;
};

// Where this block's tile of x begins. Tiles are numbered along the rows of x, so that
// one dimension of the grid, of up to 2**31 blocks, is enough for every M and N.
template <int SIDE>
__device__ Corner tile_of_block(int N) {
    const int tile = blockIdx.x, across = (N + SIDE - 1) / SIDE;
    return {tile / across * SIDE, tile % across * SIDE};
}

constexpr int SIDE = 32, ROWS = 8;  // a block of 32 x 8 threads takes a tile of 32 x 32

// --8<-- [start:naive]
// Reads rows and writes columns: the lanes of a warp store M elements apart, each into
// a sector of its own.
__global__ void __launch_bounds__(SIDE* ROWS)
transpose_naive(const float* __restrict__ x, float* __restrict__ y, int M, int N,
                Index ldx) {
    const Corner tile = tile_of_block<SIDE>(N);
    const int column = tile.column + threadIdx.x;
#pragma unroll
    for (int i = 0; i < SIDE; i += ROWS) {
        const int row = tile.row + threadIdx.y + i;
        if (row >= M || column >= N) continue;
        const float element = x[row * ldx + column];
        y[column * Index(M) + row] = element;
    }
}
// --8<-- [end:naive]

// --8<-- [start:layouts]
// Where a tile of 32 x 32 keeps row r, column c, in words of shared memory.
struct Plain {  // a column lies in one bank
    static constexpr int words = SIDE * SIDE;
    static __device__ int at(int r, int c) { return r * SIDE + c; }
};

struct Padded {  // rows are an odd number of words apart: a column lies in all banks
    static constexpr int words = SIDE * (SIDE + 1);
    static __device__ int at(int r, int c) { return r * (SIDE + 1) + c; }
};

struct Swizzled {  // each row is permuted in another way, and nothing is lost
    static constexpr int words = SIDE * SIDE;
    static __device__ int at(int r, int c) { return r * SIDE + (c ^ r); }
};
// --8<-- [end:layouts]

// --8<-- [start:kernel]
// A tile goes through shared memory, so that rows are read and rows are written.
template <class Tile>
__global__ void __launch_bounds__(SIDE* ROWS)
transpose_tiled(const float* __restrict__ x, float* __restrict__ y, int M, int N,
                Index ldx) {
    __shared__ float tile[Tile::words];
    const Corner corner = tile_of_block<SIDE>(N);
    const int lane = threadIdx.x;
#pragma unroll
    for (int i = 0; i < SIDE; i += ROWS) {
        const int own = threadIdx.y + i, row = corner.row + own;
        if (row < M && corner.column + lane < N)
            tile[Tile::at(own, lane)] = x[row * ldx + corner.column + lane];
    }
    __syncthreads();  // the tile is complete
#pragma unroll
    for (int i = 0; i < SIDE; i += ROWS) {
        const int own = threadIdx.y + i, column = corner.column + own;
        if (column < N && corner.row + lane < M)
            y[column * Index(M) + corner.row + lane] = tile[Tile::at(lane, own)];
    }
}
// --8<-- [end:kernel]

// --8<-- [start:float4]
constexpr int WIDE = 64, QUADS = WIDE / 4;  // a block of 256 threads, a tile of 64 x 64

// Where the tile keeps a quad of a column of x, in quads. A warp writes quads of every
// fourth column, and the swizzle moves those apart.
__device__ inline int place(int column, int quad) {
    return column * QUADS + (quad ^ column / 4 % 8);
}

// 16 bytes in each access. A thread loads a square of 4 x 4 by its rows and keeps it by
// its columns: registers turn it, at no cost. M, N and ldx are multiples of 4, x and y
// lie on 16 bytes; so a square is in x whole, or not at all.
__global__ void __launch_bounds__(QUADS* QUADS)
transpose_float4(const float* __restrict__ x, float* __restrict__ y, int M, int N,
                 Index ldx) {
    __shared__ float4 tile[WIDE * QUADS];
    const Corner corner = tile_of_block<WIDE>(N);
    const int across = threadIdx.x % QUADS, down = threadIdx.x / QUADS;
    const int row = corner.row + 4 * down, column = corner.column + 4 * across;
    if (row < M && column < N) {
        float4 square[4];  // all on their way before the first is used
#pragma unroll
        for (int i = 0; i < 4; ++i)
            square[i] = *reinterpret_cast<const float4*>(x + (row + i) * ldx + column);
        const auto [a, b, c, d] = square;
        tile[place(4 * across, down)] = make_float4(a.x, b.x, c.x, d.x);
        tile[place(4 * across + 1, down)] = make_float4(a.y, b.y, c.y, d.y);
        tile[place(4 * across + 2, down)] = make_float4(a.z, b.z, c.z, d.z);
        tile[place(4 * across + 3, down)] = make_float4(a.w, b.w, c.w, d.w);
    }
    __syncthreads();  // every square is there
#pragma unroll
    for (int i = 0; i < WIDE; i += QUADS) {
        const int own = down + i, r = corner.row + 4 * across, c = corner.column + own;
        if (c < N && r < M)
            *reinterpret_cast<float4*>(y + c * Index(M) + r) = tile[place(own, across)];
    }
}
// --8<-- [end:float4]

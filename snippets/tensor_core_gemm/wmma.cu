// C = A B of float16 or bfloat16 by WMMA as first written, with sums in float32. Rows
// of A (M, K) and B (K, N) lie lda and ldb elements apart and begin on 16 bytes, A and
// B on 32; C (M, N) is dense. M, N and K are multiples of 16.
#include <mma.h>

namespace wmma = nvcuda::wmma;
using Index = long long;  // M * K may pass 2**31

// --8<-- [start:wmma]
// A warp has a tile of 16 x 16, and reads both operands where they lie.
template <class T>
__global__ void __launch_bounds__(128)
gemm_wmma(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, int M,
          int N, int K, Index lda, Index ldb) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, across = (N + 63) / 64;
    const int row = blockIdx.x / across * 16;
    const int column = (blockIdx.x % across * 4 + warp) * 16;
    if (column >= N) return;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sums;
    wmma::fill_fragment(sums, 0);
    for (int k = 0; k < K; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b;
        wmma::load_matrix_sync(a, A + row * lda + k, lda);
        wmma::load_matrix_sync(b, B + k * ldb + column, ldb);
        wmma::mma_sync(sums, a, b, sums);
    }
    // Which lane has which sum is not said, so all go through shared memory.
    __shared__ __align__(32) float scratch[4][256];
    wmma::store_matrix_sync(scratch[warp], sums, 16, wmma::mem_row_major);
    __syncwarp();  // every lane's sums are there
    for (int i = lane; i < 256; i += 32)
        C[(row + i / 16) * Index(N) + column + i % 16] = T(scratch[warp][i]);
}
// --8<-- [end:wmma]

// The sum of 1,000 numbers: papergpu run reduce.cu. It has a fault, which papergpu names.
#include <cstdio>
#include <vector>

template <class T> __global__ void sum(const T* x, T* total) {
    __shared__ T parts[8];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;

    // Mend it: (i < 1000 ? x[i] : 0). On a GPU it may well give the right sum, for
    // what lies behind an allocation is often 0.

    T part = x[i];
    for (int apart = 16; apart; apart /= 2) part += __shfl_xor_sync(~0u, part, apart);
    if (lane == 0) parts[threadIdx.x / 32] = part;
    __syncthreads();
    if (threadIdx.x) return;
    for (int k = 1; k < 8; ++k) part += parts[k];
    atomicAdd(total, part);
}

int main() {
    const std::vector<float> ones(1000, 1.0f);
    float *total, *x, found = 0;
    cudaMalloc(&total, sizeof(float));
    cudaMalloc(&x, 1000 * sizeof(float));
    cudaMemset(total, 0, sizeof(float));
    cudaMemcpy(x, ones.data(), 1000 * sizeof(float), cudaMemcpyHostToDevice);
    sum<<<4, 256>>>(x, total);
    cudaMemcpy(&found, total, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%g\n", found);
}

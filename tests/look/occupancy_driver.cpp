// Occupancy by NVIDIA's own header, of configurations read from standard input, one a line:
// major minor threads-of-an-SM shared-of-an-SM reserved most-shared-of-a-block registers threads
// static dynamic barriers. Prints blocks, the limiting factors, and the limits by warps, registers,
// shared memory, blocks and barriers.
#include <cstdio>

#include "cuda_occupancy.h"

int main() {
  int major, minor, threads, registers, block, barriers;
  size_t shared, reserved, optin, fixed, dynamic;
  while (std::scanf("%d %d %d %zu %zu %zu %d %d %zu %zu %d", &major, &minor, &threads, &shared,
                    &reserved, &optin, &registers, &block, &fixed, &dynamic, &barriers) == 11) {
    cudaOccDeviceProp device;
    device.computeMajor = major;
    device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = threads;
    device.regsPerBlock = 65536;
    device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 * 1024;
    device.sharedMemPerMultiprocessor = shared;
    device.numSms = 1;
    device.sharedMemPerBlockOptin = optin;
    device.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024;
    kernel.numRegs = registers;
    kernel.sharedSizeBytes = fixed;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    kernel.maxDynamicSharedSizeBytes = dynamic;  // asked for with cudaFuncSetAttribute
    kernel.numBlockBarriers = barriers;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult found;
    cudaOccError error =
        cudaOccMaxActiveBlocksPerMultiprocessor(&found, &device, &kernel, &state, block, dynamic);
    if (error != CUDA_OCC_SUCCESS) {
      std::printf("error %d\n", error);
      continue;
    }
    std::printf("%d %u %d %d %d %d %d\n", found.activeBlocksPerMultiprocessor,
                found.limitingFactors, found.blockLimitWarps, found.blockLimitRegs,
                found.blockLimitSharedMem, found.blockLimitBlocks, found.blockLimitBarriers);
  }
}

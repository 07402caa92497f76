// The driver's interface: modules that a program loads itself, tensor maps, and the rest by way of the runtime's.
// There is one context, which is always current.
#include "runtime.hpp"
#include <cuda.h>

#include <dlfcn.h>
#include <fstream>
#include <memory>
#include <sstream>

static_assert(CUDA_ERROR_NOT_FOUND == 500 && CUDA_ERROR_LAUNCH_FAILED == int(cudaErrorLaunchFailure));

namespace {

// Most errors have one number in both.
CUresult result(cudaError_t error) {
    switch (error) {
        case cudaErrorInvalidConfiguration: return CUDA_ERROR_INVALID_VALUE;
        case cudaErrorInvalidSymbol: case cudaErrorInvalidDeviceFunction: return CUDA_ERROR_NOT_FOUND;
        default: return CUresult(error);
    }
}
void* pointer(CUdeviceptr at) { return (void*)at; }
CUcontext context() { return (CUcontext)&context; }

// A buffer of equal values, as a copy needs it.
template <class T> CUresult fill(CUdeviceptr at, T value, size_t count, CUstream stream) {
    auto values = std::make_shared<std::vector<T>>(count, value);
    return result(enqueue(stream, [=] { return cudaMemcpy(pointer(at), values->data(), count * sizeof(T), cudaMemcpyHostToDevice); }));
}

CUresult launch(CUfunction f, cudaLaunchConfig_t shape, void** arguments, void** extra) {
    if (extra) {
        wrong("cuLaunchKernel: arguments in one buffer (extra) are not taken here; pass kernelParams");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return result(cudaLaunchKernelExC(&shape, f, arguments));
}
cudaLaunchConfig_t shape_of(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream stream) {
    cudaLaunchConfig_t shape{};
    shape.gridDim = {gx, gy, gz}, shape.blockDim = {bx, by, bz}, shape.dynamicSmemBytes = shared, shape.stream = stream;
    return shape;
}

// A tensor map, made where its rules are: see tensormap.py.
CUresult encode(CUtensorMap* map, bool images, u32 rank, CUtensorMapDataType type, void* base, const cuuint64_t* sizes, const cuuint64_t* strides,
                const std::vector<std::vector<int>>& lists, const cuuint32_t* steps, u32 interleave, u32 swizzle, u32 fill) {
    if (rank < 1 || rank > 5) return CUDA_ERROR_INVALID_VALUE;
    Message message;
    message.number(images).number(rank).number(type).number(u64(base)).number(interleave).number(swizzle).number(fill);
    for (u32 k = 0; k < rank; ++k) message.number(sizes[k]);
    for (u32 k = 0; k + 1 < rank; ++k) message.number(strides[k]);
    for (u32 k = 0; k < rank; ++k) message.number(steps ? steps[k] : 1);
    for (const auto& list : lists)
        for (int one : list) message.number(u64(int64_t(one)));
    const Answer answer = ask(TENSOR_MAP, message);
    if (!answer.status) memcpy((void*)map, answer.numbers.data(), sizeof *map);
    return result(answer.status);
}
template <class T> std::vector<int> list(const T* from, u32 count) { return {from, from + count}; }

}  // namespace

// ---- where a function is, by its name

static void* find_call(const char* name) {
    static void* const own = [] {
        Dl_info here;
        return dladdr((void*)&find_call, &here) ? dlopen(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    }();
    for (const char* version : {"_v4", "_v3", "_v2", ""})
        if (void* found = dlsym(own, (std::string(name) + version).c_str())) return found;
    complain("%s is not there: papergpu's driver lacks it", name);
    return nullptr;
}
CUresult cuGetProcAddress(const char* name, void** at, int, cuuint64_t, CUdriverProcAddressQueryResult* how) {
    *at = find_call(name);
    if (how) *how = *at ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *at ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** at, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* how) {
    *at = find_call(name);
    if (how) *how = *at ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return keep(*at ? cudaSuccess : cudaErrorSymbolNotFound);
}
cudaError_t cudaGetDriverEntryPoint(const char* name, void** at, unsigned long long flags, cudaDriverEntryPointQueryResult* how) {
    return cudaGetDriverEntryPointByVersion(name, at, 0, flags, how);
}

// ---- the device and its context

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) { return result(cudaDriverGetVersion(version)); }
CUresult cuGetErrorString(CUresult error, const char** text) { return *text = cudaGetErrorString(cudaError_t(error)), CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char** name) {
    switch (error) {
#define NAME(one) case one: *name = #one; break;
        NAME(CUDA_SUCCESS) NAME(CUDA_ERROR_INVALID_VALUE) NAME(CUDA_ERROR_OUT_OF_MEMORY) NAME(CUDA_ERROR_INVALID_DEVICE)
        NAME(CUDA_ERROR_NO_BINARY_FOR_GPU) NAME(CUDA_ERROR_FILE_NOT_FOUND) NAME(CUDA_ERROR_INVALID_HANDLE) NAME(CUDA_ERROR_NOT_FOUND)
        NAME(CUDA_ERROR_NOT_READY) NAME(CUDA_ERROR_LAUNCH_FAILED) NAME(CUDA_ERROR_NOT_SUPPORTED)
#undef NAME
        default: *name = "CUDA_ERROR_UNKNOWN";
    }
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) { return *count = 1, CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice* device, int number) { return *device = number, result(cudaSetDevice(number)); }
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute what, CUdevice device) {
    return result(cudaDeviceGetAttribute(value, cudaDeviceAttr(what), device));
}
CUresult cuDeviceGetName(char* name, int room, CUdevice device) {
    cudaDeviceProp p;
    snprintf(name, room, "%s", cudaGetDeviceProperties(&p, device) ? "" : p.name);
    return result(cudaSetDevice(device));
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) { return *bytes = machine()[MEMORY], CUDA_SUCCESS; }
CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
    return *major = int(machine()[MAJOR]), *minor = int(machine()[MINOR]), CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice, CUdevice) { return *can = 0, CUDA_SUCCESS; }
CUresult cuCtxCreate(CUcontext* made, CUctxCreateParams*, unsigned, CUdevice device) { return *made = context(), result(cudaSetDevice(device)); }
CUresult cuCtxCreate_v2(CUcontext* made, unsigned, CUdevice device) { return cuCtxCreate(made, nullptr, 0, device); }
CUresult cuDevicePrimaryCtxRetain(CUcontext* held, CUdevice device) { return cuCtxCreate(held, nullptr, 0, device); }
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned) { return CUDA_SUCCESS; }
CUresult cuCtxDestroy(CUcontext) { return settle(), CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext* now) { return *now = context(), CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPushCurrent(CUcontext) { return CUDA_SUCCESS; }
CUresult cuCtxPopCurrent(CUcontext* last) { return last ? cuCtxGetCurrent(last) : CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice* device) { return *device = 0, CUDA_SUCCESS; }
CUresult cuCtxSynchronize() { return result(cudaDeviceSynchronize()); }

// ---- modules

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return *module = (CUmodule)add_module((const char*)image), CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, CUjit_option*, void**) { return cuModuleLoadData(module, image); }
CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) { return cuModuleLoadData(module, image); }
CUresult cuModuleLoad(CUmodule* module, const char* path) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    return file ? cuModuleLoadData(module, text.str().c_str()) : CUDA_ERROR_FILE_NOT_FOUND;
}
CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule module, const char* name) {
    return result(add_function((struct Module*)module, name, (const void**)f));
}
CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*, void**, unsigned) {
    return cuModuleLoadData((CUmodule*)library, image);
}
CUresult cuLibraryUnload(CUlibrary) { return CUDA_SUCCESS; }
CUresult cuLibraryGetKernel(CUkernel* f, CUlibrary library, const char* name) { return cuModuleGetFunction((CUfunction*)f, (CUmodule)library, name); }
CUresult cuKernelGetFunction(CUfunction* f, CUkernel kernel) { return *f = (CUfunction)kernel, CUDA_SUCCESS; }
CUresult cuModuleGetGlobal(CUdeviceptr* at, size_t* size, CUmodule module, const char* name) {
    const void* symbol = add_variable((struct Module*)module, name);
    void* found;
    size_t bytes;
    if (cudaError_t failed = cudaGetSymbolAddress(&found, symbol)) return result(failed);
    if (at) *at = CUdeviceptr(found);
    if (size) cudaGetSymbolSize(&bytes, symbol), *size = bytes;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute what, CUfunction f) {
    cudaFuncAttributes a;
    if (cudaError_t failed = cudaFuncGetAttributes(&a, f)) return result(failed);
    switch (what) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = a.maxThreadsPerBlock; break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = int(a.sharedSizeBytes); break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = int(a.localSizeBytes); break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = a.maxDynamicSharedSizeBytes; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION: case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = a.ptxVersion; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
    return result(cudaFuncSetAttribute(f, cudaFuncAttribute(what), value));
}
CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int threads, size_t dynamic) {
    return result(cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, dynamic));
}
CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction f, CUoccupancyB2DSize dynamic_of, size_t dynamic, int limit) {
    int most = 0;
    for (int threads = limit > 0 && limit < 1024 ? limit / 32 * 32 : 1024; threads; threads -= 32) {
        int blocks;
        const size_t shared = dynamic_of ? dynamic_of(threads) : dynamic;
        if (CUresult failed = cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, threads, shared)) return failed;
        if (blocks * threads > most) most = blocks * threads, *block = threads, *grid = int(blocks * machine()[PROCESSORS]);
    }
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        CUstream stream, void** arguments, void** extra) {
    return launch(f, shape_of(gx, gy, gz, bx, by, bz, shared, stream), arguments, extra);
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                                   CUstream stream, void** arguments) {
    cudaLaunchConfig_t shape = shape_of(gx, gy, gz, bx, by, bz, shared, stream);
    cudaLaunchAttribute cooperative{};
    cooperative.id = cudaLaunchAttributeCooperative, cooperative.val.cooperative = 1;
    shape.attrs = &cooperative, shape.numAttrs = 1;
    return launch(f, shape, arguments, nullptr);
}
// Attributes of launches have one layout in both.
CUresult cuLaunchKernelEx(const CUlaunchConfig* given, CUfunction f, void** arguments, void** extra) {
    cudaLaunchConfig_t shape = shape_of(given->gridDimX, given->gridDimY, given->gridDimZ, given->blockDimX, given->blockDimY, given->blockDimZ,
                                        given->sharedMemBytes, given->hStream);
    static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));
    shape.attrs = (cudaLaunchAttribute*)given->attrs, shape.numAttrs = given->numAttrs;
    return launch(f, shape, arguments, extra);
}

// ---- memory

CUresult cuMemAlloc(CUdeviceptr* at, size_t size) { return size ? result(cudaMalloc((void**)at, size)) : CUDA_ERROR_INVALID_VALUE; }
CUresult cuMemAllocManaged(CUdeviceptr* at, size_t size, unsigned flags) { return result(cudaMallocManaged((void**)at, size, flags)); }
CUresult cuMemAllocPitch(CUdeviceptr* at, size_t* pitch, size_t width, size_t height, unsigned) {
    return result(cudaMallocPitch((void**)at, pitch, width, height));
}
CUresult cuMemFree(CUdeviceptr at) { return result(cudaFree(pointer(at))); }
CUresult cuMemAllocHost(void** at, size_t size) { return result(cudaMallocHost(at, size)); }
CUresult cuMemHostAlloc(void** at, size_t size, unsigned flags) { return result(cudaHostAlloc(at, size, flags)); }
CUresult cuMemFreeHost(void* at) { return result(cudaFreeHost(at)); }
CUresult cuMemGetInfo(size_t* room, size_t* total) { return result(cudaMemGetInfo(room, total)); }
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size) { return result(cudaMemcpy(pointer(to), pointer(from), size, cudaMemcpyDefault)); }
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t size) { return result(cudaMemcpy(pointer(to), from, size, cudaMemcpyHostToDevice)); }
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t size) { return result(cudaMemcpy(to, pointer(from), size, cudaMemcpyDeviceToHost)); }
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t size) {
    return result(cudaMemcpy(pointer(to), pointer(from), size, cudaMemcpyDeviceToDevice));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
    return result(cudaMemcpyAsync(pointer(to), pointer(from), size, cudaMemcpyDefault, s));
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t size, CUstream s) {
    return result(cudaMemcpyAsync(pointer(to), from, size, cudaMemcpyHostToDevice, s));
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t size, CUstream s) {
    return result(cudaMemcpyAsync(to, pointer(from), size, cudaMemcpyDeviceToHost, s));
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream s) {
    return result(cudaMemcpyAsync(pointer(to), pointer(from), size, cudaMemcpyDeviceToDevice, s));
}
CUresult cuMemsetD8(CUdeviceptr at, unsigned char value, size_t count) { return result(cudaMemset(pointer(at), value, count)); }
CUresult cuMemsetD16(CUdeviceptr at, unsigned short value, size_t count) { return fill(at, value, count, nullptr); }
CUresult cuMemsetD32(CUdeviceptr at, unsigned value, size_t count) { return fill(at, value, count, nullptr); }
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char value, size_t count, CUstream s) { return result(cudaMemsetAsync(pointer(at), value, count, s)); }
CUresult cuMemsetD16Async(CUdeviceptr at, unsigned short value, size_t count, CUstream s) { return fill(at, value, count, s); }
CUresult cuMemsetD32Async(CUdeviceptr at, unsigned value, size_t count, CUstream s) { return fill(at, value, count, s); }

// ---- streams and events

CUresult cuStreamCreate(CUstream* s, unsigned flags) { return result(cudaStreamCreateWithFlags(s, flags)); }
CUresult cuStreamCreateWithPriority(CUstream* s, unsigned flags, int priority) { return result(cudaStreamCreateWithPriority(s, flags, priority)); }
CUresult cuStreamDestroy(CUstream s) { return result(cudaStreamDestroy(s)); }
CUresult cuStreamSynchronize(CUstream s) { return result(cudaStreamSynchronize(s)); }
CUresult cuStreamQuery(CUstream s) { return result(cudaStreamQuery(s)); }
CUresult cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags) { return result(cudaStreamWaitEvent(s, e, flags)); }
CUresult cuEventCreate(CUevent* e, unsigned flags) { return result(cudaEventCreateWithFlags(e, flags)); }
CUresult cuEventDestroy(CUevent e) { return result(cudaEventDestroy(e)); }
CUresult cuEventRecord(CUevent e, CUstream s) { return result(cudaEventRecord(e, s)); }
CUresult cuEventSynchronize(CUevent e) { return result(cudaEventSynchronize(e)); }
CUresult cuEventQuery(CUevent e) { return result(cudaEventQuery(e)); }
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) { return result(cudaEventElapsedTime(ms, begin, end)); }

// ---- tensor maps

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base, const cuuint64_t* sizes,
                                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    return encode(map, false, rank, type, base, sizes, strides, {list(box, rank)}, steps, interleave, swizzle, fill);
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base, const cuuint64_t* sizes,
                                 const cuuint64_t* strides, const int* lower, const int* upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill fill) {
    if (rank < 3) return CUDA_ERROR_INVALID_VALUE;
    return encode(map, true, rank, type, base, sizes, strides, {{int(channels), int(pixels)}, list(lower, rank - 2), list(upper, rank - 2)}, steps,
                  interleave, swizzle, fill);
}
CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* base) {
    if (u64(base) % 16) return CUDA_ERROR_INVALID_VALUE;
    return memcpy((void*)map, &base, sizeof base), CUDA_SUCCESS;
}

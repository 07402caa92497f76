// The device, its streams, events and graphs. There is one device; what is given to a stream happens
// before the call returns, which is one of the orders that CUDA allows.
#include "runtime.hpp"

#include <chrono>

struct CUstream_st {
    unsigned flags = 0;
    int priority = 0;
    struct CUgraph_st* captures = nullptr;
};
struct CUevent_st {
    double at = -1;
    struct CUgraph_st* graph = nullptr;  // that its stream captured when it was recorded
};
struct CUgraph_st {
    std::vector<Work> work;
    std::vector<cudaStream_t> streams;  // that capture it
};
struct CUgraphExec_st {
    std::vector<Work> work;
};

namespace {
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
void capture(cudaStream_t s, cudaGraph_t graph) { s->captures = graph, graph->streams.push_back(s); }
bool is_own(cudaStream_t s) { return s && s != cudaStreamLegacy && s != cudaStreamPerThread; }

void describe(cudaDeviceProp& p) {
    const auto& m = machine();
    memset(&p, 0, sizeof p);
    snprintf(p.name, sizeof p.name, "papergpu sm_%d", int(10 * m[MAJOR] + m[MINOR]));
    p.major = int(m[MAJOR]), p.minor = int(m[MINOR]), p.multiProcessorCount = int(m[PROCESSORS]);
    p.totalGlobalMem = m[MEMORY], p.totalConstMem = 65536, p.sharedMemPerBlock = 49152;
    p.sharedMemPerBlockOptin = m[SHARED_OPTIN], p.sharedMemPerMultiprocessor = m[SHARED_OPTIN] + 1024;
    p.reservedSharedMemPerBlock = 1024, p.regsPerBlock = p.regsPerMultiprocessor = 65536, p.warpSize = 32;
    p.maxThreadsPerBlock = 1024, p.maxThreadsPerMultiProcessor = int(m[THREADS]), p.maxBlocksPerMultiProcessor = 32;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024, p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff, p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.memPitch = 0x7fffffff, p.textureAlignment = 512, p.memoryBusWidth = 1024, p.l2CacheSize = 50 << 20;
    p.unifiedAddressing = p.managedMemory = p.concurrentManagedAccess = p.canMapHostMemory = 1;
    p.cooperativeLaunch = p.concurrentKernels = p.streamPrioritiesSupported = p.asyncEngineCount = 1;
    p.memoryPoolsSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
    p.clusterLaunch = p.major >= 9;
}
}  // namespace

cudaError_t enqueue(cudaStream_t stream, Work work) {
    if (is_own(stream) && stream->captures) {
        stream->captures->work.push_back(std::move(work));
        return cudaSuccess;
    }
    return keep(work());
}

// ---- the device

cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, keep(cudaSuccess); }
cudaError_t cudaGetDevice(int* device) { return *device = 0, keep(cudaSuccess); }
cudaError_t cudaSetDevice(int device) { return keep(device ? cudaErrorInvalidDevice : cudaSuccess); }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) { return cudaGetDevice(device); }
cudaError_t cudaDeviceSynchronize() { return settle(), keep(cudaSuccess); }
cudaError_t cudaDeviceReset() { return settle(), keep(cudaSuccess); }
cudaError_t cudaSetDeviceFlags(unsigned) { return keep(cudaSuccess); }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return keep(cudaSuccess); }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return keep(cudaSuccess); }
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) { return *can = 0, keep(cudaSuccess); }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return keep(cudaErrorInvalidDevice); }
cudaError_t cudaDeviceDisablePeerAccess(int) { return keep(cudaErrorInvalidDevice); }
cudaError_t cudaCtxResetPersistingL2Cache() { return keep(cudaSuccess); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, keep(cudaSuccess); }
cudaError_t cudaDriverGetVersion(int* version) { return *version = CUDART_VERSION, keep(cudaSuccess); }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, keep(cudaSuccess); }
extern "C" {  // of a header that need not be here
cudaError_t cudaProfilerStart() { return keep(cudaSuccess); }
cudaError_t cudaProfilerStop() { return keep(cudaSuccess); }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
    if (!device) describe(*found);
    return cudaSetDevice(device);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int device) {
    cudaDeviceProp p;
    describe(p);
    switch (what) {
#define FROM(attribute, field) case attribute: *value = int(p.field); break;
        FROM(cudaDevAttrMaxThreadsPerBlock, maxThreadsPerBlock)
        FROM(cudaDevAttrMaxBlockDimX, maxThreadsDim[0])
        FROM(cudaDevAttrMaxBlockDimY, maxThreadsDim[1])
        FROM(cudaDevAttrMaxBlockDimZ, maxThreadsDim[2])
        FROM(cudaDevAttrMaxGridDimX, maxGridSize[0])
        FROM(cudaDevAttrMaxGridDimY, maxGridSize[1])
        FROM(cudaDevAttrMaxGridDimZ, maxGridSize[2])
        FROM(cudaDevAttrMaxSharedMemoryPerBlock, sharedMemPerBlock)
        FROM(cudaDevAttrMaxSharedMemoryPerBlockOptin, sharedMemPerBlockOptin)
        FROM(cudaDevAttrMaxSharedMemoryPerMultiprocessor, sharedMemPerMultiprocessor)
        FROM(cudaDevAttrReservedSharedMemoryPerBlock, reservedSharedMemPerBlock)
        FROM(cudaDevAttrTotalConstantMemory, totalConstMem)
        FROM(cudaDevAttrWarpSize, warpSize)
        FROM(cudaDevAttrMaxRegistersPerBlock, regsPerBlock)
        FROM(cudaDevAttrMaxRegistersPerMultiprocessor, regsPerMultiprocessor)
        FROM(cudaDevAttrMultiProcessorCount, multiProcessorCount)
        FROM(cudaDevAttrMaxThreadsPerMultiProcessor, maxThreadsPerMultiProcessor)
        FROM(cudaDevAttrMaxBlocksPerMultiprocessor, maxBlocksPerMultiProcessor)
        FROM(cudaDevAttrL2CacheSize, l2CacheSize)
        FROM(cudaDevAttrGlobalMemoryBusWidth, memoryBusWidth)
        FROM(cudaDevAttrComputeCapabilityMajor, major)
        FROM(cudaDevAttrComputeCapabilityMinor, minor)
        FROM(cudaDevAttrCooperativeLaunch, cooperativeLaunch)
        FROM(cudaDevAttrClusterLaunch, clusterLaunch)
        FROM(cudaDevAttrConcurrentKernels, concurrentKernels)
        FROM(cudaDevAttrManagedMemory, managedMemory)
        FROM(cudaDevAttrConcurrentManagedAccess, concurrentManagedAccess)
        FROM(cudaDevAttrUnifiedAddressing, unifiedAddressing)
        FROM(cudaDevAttrCanMapHostMemory, canMapHostMemory)
        FROM(cudaDevAttrMemoryPoolsSupported, memoryPoolsSupported)
        FROM(cudaDevAttrStreamPrioritiesSupported, streamPrioritiesSupported)
        FROM(cudaDevAttrAsyncEngineCount, asyncEngineCount)
        FROM(cudaDevAttrGpuOverlap, asyncEngineCount)
        FROM(cudaDevAttrMaxPitch, memPitch)
        FROM(cudaDevAttrTextureAlignment, textureAlignment)
#undef FROM
        case cudaDevAttrClockRate: case cudaDevAttrMemoryClockRate: *value = 1000000; break;  // kHz
        case cudaDevAttrComputeMode: case cudaDevAttrIntegrated: case cudaDevAttrKernelExecTimeout: *value = 0; break;
        default:  // textures, surfaces, PCI, and whatever else is not there
            if (what < 1 || what >= cudaDevAttrMax) return keep(cudaErrorInvalidValue);
            *value = 0;
    }
    return cudaSetDevice(device);
}

// ---- streams

cudaError_t cudaStreamCreate(cudaStream_t* s) { return *s = new CUstream_st, keep(cudaSuccess); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) { return *s = new CUstream_st{flags}, keep(cudaSuccess); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority) {
    return *s = new CUstream_st{flags, priority}, keep(cudaSuccess);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    if (is_own(s)) delete s;
    return keep(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    settle();
    return keep(is_own(s) && s->captures ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaLaunchAttributeID, const cudaLaunchAttributeValue*) { return keep(cudaSuccess); }
cudaError_t cudaStreamQuery(cudaStream_t) { return settle(), keep(cudaSuccess); }
cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned* flags) { return *flags = is_own(s) ? s->flags : 0, keep(cudaSuccess); }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority) { return *priority = is_own(s) ? s->priority : 0, keep(cudaSuccess); }
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t call, void* data) {
    return enqueue(s, [=] { return settle(), call(data), cudaSuccess; });
}
cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t call, void* data, unsigned) {
    return enqueue(s, [=] { return settle(), call(s, cudaSuccess, data), cudaSuccess; });
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t* e) { return *e = new CUevent_st, keep(cudaSuccess); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { return delete e, keep(cudaSuccess); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    e->graph = is_own(s) ? s->captures : nullptr;
    return enqueue(s, [=] { return e->at = now(), cudaSuccess; });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) { return cudaEventRecord(e, s); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return settle(), keep(cudaSuccess); }
cudaError_t cudaEventQuery(cudaEvent_t) { return settle(), keep(cudaSuccess); }
// A stream that waits for one that captures captures for the same graph.
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
    if (e->graph && is_own(s) && !s->captures) capture(s, e->graph);
    return keep(cudaSuccess);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    if (from->at < 0 || to->at < 0) return wrong("cudaEventElapsedTime: an event was never recorded; record both");
    *ms = float(1e3 * (to->at - from->at));
    return keep(cudaSuccess);
}

// ---- graphs, as they are captured from a stream

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
    if (!is_own(s) || s->captures) return keep(cudaErrorStreamCaptureUnsupported);
    return capture(s, new CUgraph_st), keep(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
    if (!is_own(s) || !s->captures) return keep(cudaErrorInvalidValue);
    *graph = s->captures;
    for (cudaStream_t one : (*graph)->streams) one->captures = nullptr;
    return keep(cudaSuccess);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
    *status = is_own(s) && s->captures ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return keep(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
    return *made = new CUgraphExec_st{graph->work}, keep(cudaSuccess);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiate(made, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t s) {
    for (const Work& one : graph->work)
        if (cudaError_t failed = enqueue(s, one)) return failed;
    return keep(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, keep(cudaSuccess); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, keep(cudaSuccess); }

// Kernels and variables of the program, as nvcc's code registers them, and their launches.
#include "runtime.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>

struct Module {
    std::string ptx, why;
    u64 number = 0;  // as the server counts, 0 before it knows
};

namespace {

// A piece of a fat binary; PTX ends with zeros.
struct Piece {
    uint16_t kind, unknown;
    u32 header;
    u64 size;
    u32 compressed, unused;
    uint16_t minor, major;
    u32 arch, name_at, name_size;
    u64 flags;
};
const u32 PTX = 1;
const u64 COMPRESSED = 0x2000 | 0x8000;  // by LZ4, by Zstandard

struct Function {
    Module* module;
    std::string name;
    std::vector<u64> sizes;  // bytes of its parameters
    u64 shared = 0, local = 0, threads = 0, talks = 0;
    int dynamic = 48 << 10;  // bytes that it may ask for
    bool known = false;
};
struct Variable {
    Module* module;
    std::string name;
    u64 at = 0, size = 0;
};
std::map<const void*, Function> functions;
std::map<const void*, Variable> variables;
struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> pushed;
struct Shape {
    dim3 grid, block, cluster{0, 0, 0};
    size_t dynamic = 0;
    bool cooperative = false;
};

// The newest PTX for this target, or why there is none.
std::unique_ptr<Module> read_fat_binary(const char* data) {
    auto module = std::make_unique<Module>();
    module->why = "it has no PTX; build it with `papergpu nvcc`, or with -gencode arch=compute_90a,code=compute_90a";
    if (*(const u32*)data != 0xBA55ED50u) return module;
    u32 newest = 0;
    const char* at = data + *(const uint16_t*)(data + 6);
    for (const char* end = at + *(const u64*)(data + 8); at < end;) {
        const Piece& one = *(const Piece*)at;
        if (one.kind == PTX && one.flags & COMPRESSED)
            module->why = "its PTX is compressed; build it with `papergpu nvcc`, or with --compress-mode=none";
        else if (one.kind == PTX && one.arch >= newest) {
            newest = one.arch;
            module->ptx.assign(at + one.header, strnlen(at + one.header, one.size));
        }
        at += one.header + one.size;
    }
    return module;
}

// Has the server read a module, once.
cudaError_t load(Module& module) {
    if (module.number) return cudaSuccess;
    if (module.ptx.empty()) {
        wrong("this program cannot be executed: %s", module.why.c_str());
        return cudaErrorNoKernelImageForDevice;
    }
    Answer answer = ask(MODULE, Message().raw(module.ptx.data(), module.ptx.size()));
    if (!answer.status) module.number = answer.numbers.at(0);
    return answer.status;
}

cudaError_t find_function(const void* at, Function** found) {
    auto one = functions.find(at);
    if (one == functions.end()) return cudaErrorInvalidDeviceFunction;
    Function& f = one->second;
    *found = &f;
    if (f.known) return cudaSuccess;
    if (cudaError_t failed = load(*f.module)) return failed;
    Answer answer = ask(FUNCTION, Message().number(f.module->number).text(f.name.c_str()));
    if (answer.status) return answer.status;
    f.shared = answer.numbers.at(0), f.local = answer.numbers.at(1), f.threads = answer.numbers.at(2);
    f.talks = answer.numbers.at(3);
    f.sizes.assign(answer.numbers.begin() + 4, answer.numbers.end());
    f.known = true;
    return cudaSuccess;
}

cudaError_t find_variable(const void* at, Variable** found) {
    auto one = variables.find(at);
    if (one == variables.end()) return cudaErrorInvalidSymbol;
    Variable& v = one->second;
    *found = &v;
    if (v.at) return cudaSuccess;
    if (cudaError_t failed = load(*v.module)) return failed;
    Answer answer = ask(SYMBOL, Message().number(v.module->number).text(v.name.c_str()));
    if (!answer.status) v.at = answer.numbers.at(0), v.size = answer.numbers.at(1);
    return answer.status;
}

cudaError_t launch(const void* at, Shape shape, void** arguments, cudaStream_t stream) {
    Function* f;
    if (cudaError_t failed = find_function(at, &f)) return keep(failed, failed == cudaErrorLaunchFailure);
    if (shape.dynamic > size_t(f->dynamic))
        return wrong("%s asks for %zu bytes of dynamic shared memory, and may have %d; raise cudaFuncAttributeMaxDynamicSharedMemorySize",
                     f->name.c_str(), shape.dynamic, f->dynamic);
    Message message;
    message.number(f->module->number).text(f->name.c_str());
    for (const dim3& size : {shape.grid, shape.block, shape.cluster}) message.number(size.x).number(size.y).number(size.z);
    message.number(shape.dynamic).number(shape.cooperative);
    std::string given;
    for (size_t k = 0; k < f->sizes.size(); ++k) given.append((const char*)arguments[k], f->sizes[k]);
    message.raw(given.data(), given.size());
    if (f->talks) given.clear();  // with the host while it runs: nobody waits for its end
    return enqueue(stream, [message, given] {
        return run_watched(given, [&] {
            const cudaError_t status = ask(LAUNCH, message).status;
            return keep(status, status == cudaErrorLaunchFailure);
        });
    });
}

cudaError_t with_symbol(const void* symbol, size_t size, size_t offset, const std::function<cudaError_t(char*)>& work) {
    Variable* found;
    if (cudaError_t failed = find_variable(symbol, &found)) return keep(failed);
    if (offset + size > found->size)
        return wrong("a copy of %zu bytes at byte %zu of %s, which has %zu; copy less", size, offset, found->name.c_str(), size_t(found->size));
    return work((char*)found->at + offset);
}

}  // namespace

Module* add_module(const char* image) {
    if (*(const u32*)image == 0xBA55ED50u) return read_fat_binary(image).release();
    auto module = std::make_unique<Module>();
    if (std::string_view(image).find(".version") != std::string_view::npos) module->ptx = image;
    module->why = "a module that it loads is no PTX; load what -ptx writes";
    return module.release();
}
cudaError_t add_function(Module* module, const char* name, const void** symbol) {
    *symbol = new char;  // as good as the address of what nvcc would have made
    functions[*symbol] = {module, name, {}};
    Function* found;
    return keep(find_function(*symbol, &found));
}
const void* add_variable(Module* module, const char* name) {
    const void* symbol = new char;
    variables[symbol] = {module, name};
    return symbol;
}

// ---- what nvcc's code calls

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper) {
    struct Wrapper {
        int magic, version;
        const char* data;
    };
    return (void**)read_fat_binary(((Wrapper*)wrapper)->data).release();
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    functions[host] = {(Module*)module, name, {}};
}
void __cudaRegisterVar(void** module, char* host, char*, const char* name, int, size_t, int, int) {
    variables[host] = {(Module*)module, name};
}
void __cudaRegisterManagedVar(void** module, void** host, char*, const char* name, int, size_t, int, int) {
    variables[host] = {(Module*)module, name};
    Variable* found;
    if (!find_variable(host, &found)) *host = (void*)found->at;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    pushed.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    const Configuration one = pushed.back();
    pushed.pop_back();
    *grid = one.grid, *block = one.block, *shared = one.shared, *(cudaStream_t*)stream = one.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
    return launch(kernel, {grid, block, {0, 0, 0}, shared}, arguments, stream);
}
}

// ---- launches, and what is asked about a kernel

cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
    return launch(f, {grid, block, {0, 0, 0}, shared}, arguments, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream) {
    return launch(f, {grid, block, {0, 0, 0}, shared, true}, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* given, const void* f, void** arguments) {
    Shape shape{given->gridDim, given->blockDim, {0, 0, 0}, given->dynamicSmemBytes};
    for (unsigned k = 0; k < given->numAttrs; ++k) {
        const cudaLaunchAttribute& one = given->attrs[k];
        if (one.id == cudaLaunchAttributeCooperative) shape.cooperative = one.val.cooperative;
        if (one.id == cudaLaunchAttributeClusterDimension) shape.cluster = {one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z};
    }
    return launch(f, shape, arguments, given->stream);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void* at) {
    memset(found, 0, sizeof *found);
    Function* f;
    if (cudaError_t failed = find_function(at, &f)) return keep(failed);
    found->sharedSizeBytes = f->shared, found->localSizeBytes = f->local;
    found->maxThreadsPerBlock = int(f->threads), found->maxDynamicSharedSizeBytes = f->dynamic;
    found->ptxVersion = found->binaryVersion = int(10 * machine()[MAJOR] + machine()[MINOR]);
    return keep(cudaSuccess);
}
cudaError_t cudaFuncSetAttribute(const void* at, cudaFuncAttribute what, int value) {
    Function* f;
    if (cudaError_t failed = find_function(at, &f)) return keep(failed);
    if (what != cudaFuncAttributeMaxDynamicSharedMemorySize) return keep(cudaSuccess);
    if (value < 0 || value + f->shared > machine()[SHARED_OPTIN]) return keep(cudaErrorInvalidValue);
    f->dynamic = value;
    return keep(cudaSuccess);
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return keep(cudaSuccess); }
cudaError_t cudaFuncGetName(const char** name, const void* at) {
    auto one = functions.find(at);
    if (one == functions.end()) return keep(cudaErrorInvalidDeviceFunction);
    *name = one->second.name.c_str();
    return keep(cudaSuccess);
}
// By threads and shared memory: registers are given by ptxas, which is not asked.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* at, int threads, size_t dynamic) {
    Function* f;
    *blocks = 0;
    if (cudaError_t failed = find_function(at, &f)) return keep(failed);
    if (threads < 1 || u64(threads) > f->threads || f->shared + dynamic > machine()[SHARED_OPTIN]) return keep(cudaSuccess);
    const u64 by_threads = machine()[THREADS] / ((threads + 31) / 32 * 32);
    *blocks = int(std::min({u64(32), by_threads, (machine()[SHARED_OPTIN] + 1024) / (f->shared + dynamic + 1024)}));
    return keep(cudaSuccess);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* at, int threads, size_t dynamic, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, at, threads, dynamic);
}
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* at, const cudaLaunchConfig_t* given) {
    const dim3 b = given->blockDim;
    int blocks;
    if (cudaError_t failed = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, at, b.x * b.y * b.z, given->dynamicSmemBytes)) return failed;
    unsigned size = 1;
    for (unsigned k = 0; k < given->numAttrs; ++k)
        if (given->attrs[k].id == cudaLaunchAttributeClusterDimension)
            size = given->attrs[k].val.clusterDim.x * given->attrs[k].val.clusterDim.y * given->attrs[k].val.clusterDim.z;
    *clusters = int(blocks * machine()[PROCESSORS] / size);
    return keep(cudaSuccess);
}

// ---- variables

cudaError_t cudaGetSymbolAddress(void** at, const void* symbol) {
    return with_symbol(symbol, 0, 0, [=](char* found) { return *at = found, keep(cudaSuccess); });
}
cudaError_t cudaGetSymbolSize(size_t* size, const void* symbol) {
    Variable* found;
    if (cudaError_t failed = find_variable(symbol, &found)) return keep(failed);
    *size = found->size;
    return keep(cudaSuccess);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind kind) {
    return with_symbol(symbol, size, offset, [=](char* at) { return cudaMemcpy(at, from, size, kind); });
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t size, size_t offset, cudaMemcpyKind kind) {
    return with_symbol(symbol, size, offset, [=](char* at) { return cudaMemcpy(to, at, size, kind); });
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t size, size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
    return with_symbol(symbol, size, offset, [=](char* at) { return cudaMemcpyAsync(at, from, size, kind, stream); });
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t size, size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
    return with_symbol(symbol, size, offset, [=](char* at) { return cudaMemcpyAsync(to, at, size, kind, stream); });
}

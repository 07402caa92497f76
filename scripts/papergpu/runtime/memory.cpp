// Memory: every allocation at addresses of its own, which are not used again once it is freed.
#include "runtime.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <signal.h>
#include <sys/mman.h>

namespace {

std::mutex lock;
std::map<u64, Block> blocks, freed;
std::map<u64, std::pair<u64, u64>> registered;  // pages of the host: where the device has them, bytes
u64 next = BASE + VARIABLES, held = 0, count = 0;
const u64 PAGE = 4096, WATCHED = 64 << 20;  // bytes; of an allocation that is compared at each launch, at most
u64 page_of(u64 at) { return at / PAGE * PAGE; }

u64 address(const void* at) { return u64(at); }
u8* shadow(const void* at) { return (u8*)(address(at) + SIZE); }

std::map<u64, Block>::const_iterator find_in(const std::map<u64, Block>& among, u64 at) {
    auto one = among.upper_bound(at);
    if (one == among.begin()) return among.end();
    --one;
    return at < one->first + std::max<u64>(one->second.size, 1) ? one : among.end();
}

cudaError_t take(void** result, size_t size, Home home) {
    if (!result) return keep(cudaErrorInvalidValue);
    *result = nullptr;
    if (!size) return keep(cudaSuccess);
    const u64 memory = machine()[MEMORY];
    std::lock_guard hold(lock);
    const u64 unit = home == Home::DEVICE ? ALIGN : PAGE;  // the host may touch whole pages
    next = (next + unit - 1) / unit * unit;
    const u64 room = (size + unit - 1) / unit * unit + unit;  // a gap that nobody may touch
    if (size > memory || held + size > memory || room > BASE + SIZE - next) return keep(cudaErrorMemoryAllocation);
    *result = (void*)next;
    if (home != Home::DEVICE) mprotect(*result, room - unit, PROT_READ | PROT_WRITE);
    blocks[next] = {size, ++count, home};
    tell(ALLOC, Message().number(next).number(size).number(count).number(u64(home)));
    next += room, held += size;
    return keep(cudaSuccess);
}

cudaError_t give_back(void* at, const char* call) {
    if (!at) return keep(cudaSuccess);
    settle();  // it waits for what uses the memory
    std::unique_lock hold(lock);
    auto one = blocks.find(address(at));
    if (one == blocks.end()) {
        const bool twice = freed.count(address(at));
        hold.unlock();
        return wrong(twice ? "%s: %p was freed before; free it once" : "%s: %p is no allocation's beginning; pass what was allocated", call, at);
    }
    madvise(own(at), one->second.size, MADV_REMOVE);
    madvise(shadow(at), one->second.size, MADV_REMOVE);
    held -= one->second.size;
    if (one->second.home != Home::DEVICE) mprotect(at, page_of(one->second.size + PAGE - 1), PROT_NONE);
    freed.insert(*one);
    blocks.erase(one);
    tell(FREE, Message().number(address(at)));
    return keep(cudaSuccess);
}

bool on_device(const void* at) {
    if (!is_ours(at)) return false;
    const Block* one = find_block(at);
    return !one || one->home == Home::DEVICE;
}

cudaError_t copy_now(const char* call, void* to, const void* from, size_t size, cudaMemcpyKind kind) {
    if (!may_touch(call, from, size, "reads") || !may_touch(call, to, size, "writes")) return cudaErrorInvalidValue;
    const bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    const bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    if (kind != cudaMemcpyDefault) {
        if (to_host && on_device(to)) return wrong("%s goes to the host by its kind, but its destination is on the device", call);
        if (from_host && on_device(from)) return wrong("%s comes from the host by its kind, but its source is on the device", call);
        if (!to_host && !is_ours(to)) return wrong("%s goes to the device by its kind, but its destination is on the host", call);
        if (!from_host && !is_ours(from)) return wrong("%s comes from the device by its kind, but its source is on the host", call);
    }
    memmove(own(to), own(from), size);
    if (is_ours(to)) {
        if (on_device(from)) memmove(shadow(to), shadow(from), size);
        else mark_written(to, size);
    }
    return cudaSuccess;
}

cudaError_t copy_rows(const char* call, char* to, size_t to_pitch, const char* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    if (width > to_pitch || width > from_pitch) return cudaErrorInvalidValue;
    for (size_t row = 0; row < height; ++row)
        if (cudaError_t failed = copy_now(call, to + row * to_pitch, from + row * from_pitch, width, kind)) return failed;
    return cudaSuccess;
}

cudaError_t fill_now(const char* call, void* at, int value, size_t size) {
    if (!is_ours(at) && size) return wrong("%s: %p is on the host; pass what cudaMalloc gave", call, at);
    if (!may_touch(call, at, size, "writes")) return cudaErrorInvalidValue;
    memset(own(at), value, size);
    mark_written(at, size);
    return cudaSuccess;
}

cudaError_t fill_rows(const char* call, char* at, size_t pitch, int value, size_t width, size_t height) {
    for (size_t row = 0; row < height; ++row)
        if (cudaError_t failed = fill_now(call, at + row * pitch, value, width)) return failed;
    return cudaSuccess;
}

}  // namespace

// ---- what the host may touch

namespace {
// Pages that the host may not touch until it waits: what a page held before.
std::map<u64, std::string> changed;
std::recursive_mutex changing;  // a fault may come while it is held
struct sigaction before_ours;

void open_page(u64 page) { mprotect((void*)page, PAGE, PROT_READ | PROT_WRITE); }

void on_fault(int, siginfo_t* info, void*) {
    const u64 at = address(info->si_addr), page = page_of(at);
    if (!is_ours(info->si_addr)) {  // a fault of the program's own: it is met again, as without us
        sigaction(SIGSEGV, &before_ours, nullptr);
        return;
    }
    u64 begin = at;
    const Block* one = find_block((void*)at, &begin);
    const size_t number = one ? one->number : 0, byte = at - begin;
    std::lock_guard hold(changing);
    auto late = changed.find(page);
    if (late != changed.end()) {
        if (late->second[at - page] != *(char*)own(info->si_addr))
            complain("the host touches byte %zu of allocation #%zu, which a stream has changed: wait for it first", byte, number);
        changed.erase(late);
    } else if (!one) complain("the host touches %p, where nothing is allocated, or no longer", (void*)at);
    else if (one->home == Home::DEVICE)
        complain("the host touches byte %zu of allocation #%zu, which is on the device: copy it", byte, number);
    open_page(page);  // or another thread has, which waited
}
}  // namespace

void guard_memory() {
    mprotect((void*)(BASE + VARIABLES), SIZE - VARIABLES, PROT_NONE);
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGSEGV, &ours, &before_ours);
}

void forbid(const void* at, size_t size, const void* before) {
    std::lock_guard hold(changing);
    for (u64 page = page_of(address(at)); page < address(at) + size; page += PAGE) {
        std::string held((const char*)own((void*)page), PAGE);
        const u64 from = std::max(page, address(at)), to = std::min(page + PAGE, address(at) + size);
        held.replace(from - page, to - from, (const char*)before + (from - address(at)), to - from);
        if (!memcmp(held.data(), own((void*)page), PAGE)) continue;
        changed.try_emplace(page, std::move(held));
        mprotect((void*)page, PAGE, PROT_NONE);
    }
}

void settle() {
    std::lock_guard hold(changing);
    for (auto& [page, held] : changed) open_page(page);
    changed.clear();
}

cudaError_t run_watched(const std::string& named, const Work& work) {
    std::map<u64, std::string> seen;
    for (size_t k = 0; k + 8 <= named.size(); ++k) {
        u64 at, begin;
        memcpy(&at, named.data() + k, sizeof at);
        if (!is_ours((void*)at)) continue;
        const Block* one = find_block((void*)at, &begin);
        if (one && one->home != Home::DEVICE && one->size <= WATCHED) seen.try_emplace(begin, (const char*)own((void*)begin), one->size);
    }
    const cudaError_t failed = work();
    for (auto& [begin, before] : seen) forbid((void*)begin, before.size(), before.data());
    return failed;
}

bool is_ours(const void* at) { return address(at) - BASE < SIZE; }

void mark_written(const void* at, size_t size) { memset(shadow(at), 1, size); }

bool may_touch(const char* call, const void* at, size_t size, const char* does) {
    if (!is_ours(at) || !size || address(at) < BASE + VARIABLES) return true;
    std::unique_lock hold(lock);
    auto one = find_in(blocks, address(at));
    if (one != blocks.end() && address(at) + size <= one->first + one->second.size) return true;
    auto gone = find_in(freed, address(at));
    hold.unlock();
    if (one != blocks.end())
        wrong("%s %s %zu bytes at byte %zu of allocation #%zu, which has %zu; copy less, or allocate more", call, does, size,
              size_t(address(at) - one->first), size_t(one->second.number), size_t(one->second.size));
    else if (gone != freed.end())
        wrong("%s %s allocation #%zu after it was freed; free it later", call, does, size_t(gone->second.number));
    else
        wrong("%s %s %p, where nothing is allocated; pass what cudaMalloc gave", call, does, at);
    return false;
}

const Block* find_block(const void* at, u64* begin) {
    std::lock_guard hold(lock);
    auto one = find_in(blocks, address(at));
    if (one == blocks.end()) return nullptr;
    if (begin) *begin = one->first;
    return &one->second;
}

cudaError_t cudaMalloc(void** p, size_t n) { return take(p, n, Home::DEVICE); }
cudaError_t cudaMallocManaged(void** p, size_t n, unsigned) { return take(p, n, Home::MANAGED); }
cudaError_t cudaMallocHost(void** p, size_t n) { return take(p, n, Home::PINNED); }
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) { return take(p, n, Home::PINNED); }
cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + ALIGN - 1) / ALIGN * ALIGN;
    return take(p, *pitch * height, Home::DEVICE);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* p, cudaExtent extent) {
    p->xsize = extent.width, p->ysize = extent.height;
    return cudaMallocPitch(&p->ptr, &p->pitch, extent.width, extent.height * extent.depth);
}
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) { return take(p, n, Home::DEVICE); }
// One pool: what is freed goes back at once, whatever a pool is told to hold.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) { return *pool = (cudaMemPool_t)&count, keep(cudaSuccess); }
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
cudaError_t cudaDeviceSetMemPool(int, cudaMemPool_t) { return keep(cudaSuccess); }
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) { return cudaDeviceGetDefaultMemPool(pool, 0); }
cudaError_t cudaMemPoolDestroy(cudaMemPool_t) { return keep(cudaSuccess); }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return keep(cudaSuccess); }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return keep(cudaSuccess); }
cudaError_t cudaMallocFromPoolAsync(void** p, size_t n, cudaMemPool_t, cudaStream_t) { return take(p, n, Home::DEVICE); }
cudaError_t cudaFree(void* p) { return give_back(p, "cudaFree"); }
cudaError_t cudaFreeHost(void* p) { return give_back(p, "cudaFreeHost"); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
    return enqueue(stream, [=] { return give_back(p, "cudaFreeAsync"); });
}
// Pages of the host become shared ones, with what they hold: the device has them at addresses of its own.
cudaError_t cudaHostRegister(void* host, size_t size, unsigned) {
    const u64 begin = page_of(address(host)), whole = page_of(address(host) + size - begin + PAGE - 1);
    void* device;
    if (cudaError_t failed = take(&device, whole, Home::PINNED)) return failed;
    memcpy(own(device), (void*)begin, whole);
    if (!mirror((void*)begin, device, whole)) return keep(cudaErrorNotSupported);
    std::lock_guard hold(lock);
    registered[begin] = {address(device), whole};
    return keep(cudaSuccess);
}
cudaError_t cudaHostUnregister(void* host) {
    std::unique_lock hold(lock);
    auto one = registered.find(page_of(address(host)));
    if (one == registered.end()) return keep(cudaErrorInvalidValue);
    // The host keeps what is there, in memory of its own again.
    const auto [begin, where] = *one;
    void* own = mmap(nullptr, where.second, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(own, (void*)begin, where.second);
    mremap(own, where.second, where.second, MREMAP_MAYMOVE | MREMAP_FIXED, (void*)begin);
    registered.erase(one);
    hold.unlock();
    return give_back((void*)where.first, "cudaHostUnregister");
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    *device = host;
    std::lock_guard hold(lock);
    auto one = registered.upper_bound(address(host));
    if (one != registered.begin() && address(host) - (--one)->first < one->second.second)
        *device = (void*)(one->second.first + (address(host) - one->first));
    return keep(is_ours(*device) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
    *total = machine()[MEMORY];
    std::lock_guard hold(lock);
    *available = *total - held;
    return keep(cudaSuccess);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* at) {
    memset(found, 0, sizeof *found);
    const Block* one = find_block(at);
    if (one || (is_ours(at) && address(at) < BASE + VARIABLES)) {
        found->type = !one || one->home == Home::DEVICE ? cudaMemoryTypeDevice
                      : one->home == Home::MANAGED      ? cudaMemoryTypeManaged
                                                        : cudaMemoryTypeHost;
        found->devicePointer = (void*)at;
        if (found->type != cudaMemoryTypeDevice) found->hostPointer = (void*)at;
    }
    return keep(cudaSuccess);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    settle();
    return keep(copy_now("cudaMemcpy", to, from, n, kind));
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind, cudaStream_t stream) {
    return enqueue(stream, [=] {
        const bool late = is_ours(to) && !on_device(to) && on_device(from);  // the host goes on meanwhile
        const std::string before = late && may_touch("cudaMemcpyAsync", to, n, "writes") ? std::string((const char*)own(to), n) : "";
        const cudaError_t failed = copy_now("cudaMemcpyAsync", to, from, n, kind);
        if (!failed && late) forbid(to, n, before.data());
        return failed;
    });
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) {
    return keep(copy_now("cudaMemcpyPeer", to, from, n, cudaMemcpyDeviceToDevice));
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
    settle();
    return keep(copy_rows("cudaMemcpy2D", (char*)to, to_pitch, (const char*)from, from_pitch, width, height, kind));
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    return enqueue(stream, [=] { return copy_rows("cudaMemcpy2DAsync", (char*)to, to_pitch, (const char*)from, from_pitch, width, height, kind); });
}
cudaError_t cudaMemset(void* at, int value, size_t n) { return keep(fill_now("cudaMemset", at, value, n)); }
cudaError_t cudaMemsetAsync(void* at, int value, size_t n, cudaStream_t stream) {
    return enqueue(stream, [=] { return fill_now("cudaMemsetAsync", at, value, n); });
}
cudaError_t cudaMemset2D(void* at, size_t pitch, int value, size_t width, size_t height) {
    return keep(fill_rows("cudaMemset2D", (char*)at, pitch, value, width, height));
}
cudaError_t cudaMemset2DAsync(void* at, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
    return enqueue(stream, [=] { return fill_rows("cudaMemset2DAsync", (char*)at, pitch, value, width, height); });
}

// Hints: nothing moves, for there is one memory.
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) { return keep(cudaSuccess); }
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) { return keep(cudaSuccess); }

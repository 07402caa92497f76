// Host execution of CUDA C++: enough of the language that a kernel compiles with g++ or clang++ and
// computes on a CPU what it computes on a GPU. Same numbers, no speed. snippets/cuda.py includes this
// file before a .cu and adds a launcher after it.
//
// How it runs. One operating-system thread does everything. A fiber runs a block's threads one after
// another on one stack for as long as none waits, so a kernel without barriers is a plain loop. A
// thread that waits (__syncthreads, __syncwarp, a shuffle or vote) keeps its stack, and another fiber
// takes the next thread. Blocks run last to first, warps and lanes in a scattered order, and shared
// memory starts as NaN, so that a missing barrier or an order dependence shows up as a wrong result.
// A block in which nobody can go on is an error that says who waits where. Exited threads count as
// arrived, as on a GPU since Volta; a barrier met at two different lines is an error.
//
// What has no host execution, and is left out in the .cu by `#if __CUDA_ARCH__ >= 900` or a like
// guard (__CUDA_ARCH__ is undefined here): inline PTX, TMA, mbarrier, wgmma, mma, cooperative groups,
// clusters, textures, launches from the device. A thread may spin on what another thread of its block
// writes only if its loop calls __nanosleep; it can never wait for another block. __activemask()
// names the lanes that have not exited. A mask may name lanes that do not exist; reading one gives NaN.
// An access out of bounds is not caught: it corrupts or ends the process, as in any C++.
#pragma once
#ifdef __APPLE__
#define _XOPEN_SOURCE 600  // or there is no ucontext
#define _DARWIN_C_SOURCE
#endif
#include <sys/mman.h>
#include <ucontext.h>

#include <cmath>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__ inline  // so that only the kernel that is launched is compiled
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static  // cuda.py rewrites those in the .cu: dynamic arrays, and poisoned ones
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))

#define WARPSHELF_VECTOR(T, name, a2, a4)                                                        \
    struct alignas(a2) name##2 { T x, y; };                                                      \
    struct name##3 { T x, y, z; };                                                               \
    struct alignas(a4) name##4 { T x, y, z, w; };                                                \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                   \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                           \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
WARPSHELF_VECTOR(signed char, char, 2, 4)
WARPSHELF_VECTOR(unsigned char, uchar, 2, 4)
WARPSHELF_VECTOR(short, short, 4, 8)
WARPSHELF_VECTOR(unsigned short, ushort, 4, 8)
WARPSHELF_VECTOR(int, int, 8, 16)
WARPSHELF_VECTOR(unsigned, uint, 8, 16)
WARPSHELF_VECTOR(long long, longlong, 16, 16)
WARPSHELF_VECTOR(unsigned long long, ulonglong, 16, 16)
WARPSHELF_VECTOR(float, float, 8, 16)
WARPSHELF_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace warpshelf {
constexpr int MAX_THREADS = 1024;
constexpr size_t MAX_SHARED = 232448;  // bytes of dynamic shared memory a block may ask for
constexpr size_t STACK = 256 << 10;    // bytes of stack a waiting thread keeps, of which
constexpr size_t GUARD = 64 << 10;     // so many catch an overflow
alignas(1024) unsigned char dynamic_shared[MAX_SHARED];
void poison_static_shared();  // written by cuda.py, which knows the arrays

struct Gathered {  // what the lanes of a warp handed in; a lane that took no part reads as NaN
    unsigned lanes;
    uint64_t value[32];
};
struct Fiber {
    jmp_buf at;
    bool fresh = true;
};
struct Thread {
    uint3 index;
    int lane, warp, line;
    const char* waits;  // the call it waits in, or null
    unsigned mask;
    uint64_t value;
    Gathered* out;
    Fiber* fiber;
};
struct Barrier {
    int arrived, line, total, every, any;
};

Thread threads[MAX_THREADS];
unsigned alive[MAX_THREADS / 32];        // lanes of each warp which have not exited
int order[MAX_THREADS];                  // who starts when
int count, next, live, waiting, pauses;  // threads: all, started, not exited, suspended
Barrier barrier;
int votes[3];                // count, and, or of the last barrier
Thread* ready[MAX_THREADS];  // a ring: who can go on
int ready_head, ready_size;
Fiber fibers[MAX_THREADS];
Fiber *spare[MAX_THREADS], *starting;
int spares;
char* stacks;
Thread* current;
jmp_buf scheduler;
char message[512];
bool failed;
void (*kernel)();
void** arguments;
void (*invoke)();

[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char* format, ...) {
    va_list list;
    va_start(list, format);
    const int used = snprintf(message, sizeof message, "block (%u, %u, %u), thread (%u, %u, %u): ", blockIdx.x,
                              blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    vsnprintf(message + used, sizeof message - used, format, list);
    va_end(list);
    failed = true;
    _longjmp(scheduler, 1);
}

inline void wake(Thread* thread) {
    if (thread->waits) --waiting;
    thread->waits = nullptr;
    ready[(ready_head + ready_size++) % MAX_THREADS] = thread;
}

// Returns when the scheduler resumes this thread.
__attribute__((noinline)) inline void suspend() {
    Thread* self = current;
    if (self->waits) ++waiting;
    if (!_setjmp(self->fiber->at)) _longjmp(scheduler, 1);
    current = self;
    threadIdx = self->index;
}

inline void pause() {
    if (++pauses > 1 << 18) fail("spins in __nanosleep on something that never comes");
    wake(current);
    suspend();
}

inline void release_barrier() {
    votes[0] = barrier.total, votes[1] = barrier.every, votes[2] = barrier.any;
    barrier = {0, 0, 0, 1, 0};
    pauses = 0;
    for (int i = count; i-- > 0;)
        if (threads[order[i]].waits && !threads[order[i]].out) wake(&threads[order[i]]);
}

inline int synchronize(int predicate, int result, const char* what, int line) {
    if (barrier.arrived && barrier.line != line)
        fail("waits in %s at line %d while others wait at line %d; all threads of a block must reach the same barrier",
             what, line, barrier.line);
    barrier.line = line;
    barrier.total += predicate != 0, barrier.every &= predicate != 0, barrier.any |= predicate != 0;
    if (++barrier.arrived == live) {
        release_barrier();
    } else {
        current->waits = what, current->line = line, current->out = nullptr;
        suspend();
    }
    return votes[result];
}

// Completes an exchange if every lane of its mask that still lives has arrived at it.
inline bool complete(const Thread& leader) {
    const unsigned lanes = leader.mask & alive[leader.warp];
    Thread* warp = &threads[leader.warp * 32];
    Gathered all;
    memset(&all, 0xff, sizeof all);
    all.lanes = lanes;
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        const Thread& other = warp[__builtin_ctz(rest)];
        if (!other.waits || !other.out || other.mask != leader.mask || strcmp(other.waits, leader.waits)) return false;
        all.value[__builtin_ctz(rest)] = other.value;
    }
    pauses = 0;
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        Thread* other = &warp[__builtin_ctz(rest)];
        *other->out = all;
        if (other == current) other->waits = nullptr;
        else wake(other);
    }
    return true;
}

template <class T>
Gathered gather(unsigned mask, T value, const char* what, int line) {
    static_assert(sizeof(T) <= 8, "a lane exchanges at most 8 bytes");
    Gathered all;
    if (!(mask >> current->lane & 1))
        fail("%s at line %d: the mask 0x%08x does not name the calling lane %d", what, line, mask, current->lane);
    current->value = 0;
    memcpy(&current->value, &value, sizeof value);
    current->waits = what, current->line = line, current->mask = mask, current->out = &all;
    if (!complete(*current)) suspend();
    return all;
}

template <class T>
T shuffle(unsigned mask, T value, int source, const char* what, int line) {
    const Gathered all = gather(mask, value, what, line);
    memcpy(&value, &all.value[source & 31], sizeof value);
    return value;
}

template <class T, class F>
T reduce(unsigned mask, T value, F combine, const char* what, int line) {
    const Gathered all = gather(mask, value, what, line);
    bool first = true;
    for (unsigned rest = all.lanes; rest; rest &= rest - 1, first = false) {
        T other;
        memcpy(&other, &all.value[__builtin_ctz(rest)], sizeof other);
        value = first ? other : combine(value, other);
    }
    return value;
}

inline void exit_thread() {
    const Thread& self = *current;
    --live;
    pauses = 0;
    alive[self.warp] &= ~(1u << self.lane);
    if (!waiting) return;
    if (live && barrier.arrived == live) release_barrier();
    for (unsigned rest = alive[self.warp]; rest; rest &= rest - 1) {
        const Thread& other = threads[self.warp * 32 + __builtin_ctz(rest)];
        if (other.waits && other.out && (other.mask >> self.lane & 1)) complete(other);
    }
}

// A fiber's whole life: threads one after another; resumed for a later block when none is left.
inline void work() {
    Fiber* self = starting;
    for (;;) {
        while (next < count) {
            current = &threads[order[next++]];
            current->fiber = self;
            threadIdx = current->index;
            invoke();
            exit_thread();
        }
        spare[spares++] = self;
        if (!_setjmp(self->at)) _longjmp(scheduler, 1);
    }
}

inline void resume(Fiber* fiber) {
    if (_setjmp(scheduler)) return;
    if (!fiber->fresh) _longjmp(fiber->at, 1);
    fiber->fresh = false;
    starting = fiber;
    static ucontext_t context;
    char* stack = stacks + (fiber - fibers) * STACK;
    mprotect(stack, GUARD, PROT_NONE);
    getcontext(&context);
    context.uc_stack.ss_sp = stack + GUARD;
    context.uc_stack.ss_size = STACK - GUARD;
    context.uc_link = nullptr;
    makecontext(&context, work, 0);
    setcontext(&context);
}

inline void report_deadlock() {
    int used = snprintf(message, sizeof message, "block (%u, %u, %u): deadlock: of %d threads %d have exited", blockIdx.x,
                        blockIdx.y, blockIdx.z, count, count - live);
    for (int i = 0; i < count; ++i) {
        if (!threads[i].waits) continue;
        const char* what = threads[i].waits;
        const int line = threads[i].line;
        int same = 0;
        for (int j = i; j < count; ++j) {
            if (!threads[j].waits || threads[j].line != line || strcmp(threads[j].waits, what)) continue;
            ++same;
            threads[j].waits = nullptr;
        }
        if (used < int(sizeof message) - 80)
            used += snprintf(message + used, sizeof message - used, ", %d wait in %s at line %d", same, what, line);
    }
    failed = true;
}

inline void run_block(size_t shared) {
    memset(dynamic_shared, 0xff, shared);
    poison_static_shared();
    next = ready_head = ready_size = waiting = pauses = 0;
    live = count;
    barrier = {0, 0, 0, 1, 0};
    for (int warp = 0; warp * 32 < count; ++warp)
        alive[warp] = count - warp * 32 >= 32 ? ~0u : (1u << (count - warp * 32)) - 1;
    while (!failed && live) {
        if (ready_size) {
            Thread* thread = ready[ready_head];
            ready_head = (ready_head + 1) % MAX_THREADS;
            --ready_size;
            resume(thread->fiber);
        } else if (next < count) {
            resume(spare[--spares]);
        } else {
            report_deadlock();
        }
    }
}

inline int scatter(int i, int n) {  // a permutation of 0..n-1: neighbours lie apart, 0 halfway
    for (int step = n * 5 / 8 | 1;; step += 2) {
        int a = step, b = n;
        while (b) { const int rest = a % b; a = b, b = rest; }
        if (a == 1) return int((i + (n + 1LL) / 2) * step % n);
    }
}

inline void prepare(const unsigned* dims) {
    gridDim = {dims[0], dims[1], dims[2]};
    blockDim = {dims[3], dims[4], dims[5]};
    count = int(blockDim.x * blockDim.y * blockDim.z);
    const int warps = (count + 31) / 32;
    for (int i = 0, started = 0; i < warps * 32; ++i) {
        const int t = scatter(i / 32, warps) * 32 + scatter(i % 32, 32);
        if (t < count) order[started++] = t;
    }
    for (int t = 0; t < count; ++t) {
        threads[t] = {};
        threads[t].index = {t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
        threads[t].lane = t % 32, threads[t].warp = t / 32;
    }
    if (!stacks)
        stacks = static_cast<char*>(mmap(nullptr, MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (!spares || failed)  // after a failure every stack is in an unknown state
        for (spares = 0; spares < MAX_THREADS; ++spares) {
            spare[spares] = &fibers[MAX_THREADS - 1 - spares];
            spare[spares]->fresh = true;
        }
    failed = false;
}

template <class T>
T load(const void* from) {  // copied, since nothing aligns the bytes that Python hands over
    alignas(T) unsigned char raw[sizeof(T)];
    memcpy(raw, from, sizeof raw);
    return *reinterpret_cast<T*>(raw);
}

template <class... A>
struct Call {
    template <size_t... I>
    static void unpack(std::index_sequence<I...>) {
        reinterpret_cast<void (*)(A...)>(kernel)(load<A>(arguments[I])...);
    }
    static void invoke() { unpack(std::index_sequence_for<A...>{}); }
};

// Runs a kernel; dims is grid x, y, z, block x, y, z. Returns null, or what went wrong.
template <class... A>
const char* run(void (*function)(A...), const unsigned* dims, size_t shared, void** args) {
    kernel = reinterpret_cast<void (*)()>(function), arguments = args, invoke = Call<A...>::invoke;
    prepare(dims);
    if (stacks == MAP_FAILED) { stacks = nullptr; return "no memory for the stacks of a block's threads"; }
    for (unsigned z = gridDim.z; z-- > 0;)
        for (unsigned y = gridDim.y; y-- > 0;)
            for (unsigned x = gridDim.x; x-- > 0;) {
                blockIdx = {x, y, z};
                run_block(shared);
                if (failed) return message;
            }
    return nullptr;
}

// The kernel's parameters: P a pointer, f floating point, i an integer, V any other, with its bytes.
template <class... A>
const char* signature(void (*)(A...)) {
    static char text[1024];
    int used = 0;
    ((used += snprintf(text + used, sizeof text - used, "%c%zu ",
                       std::is_pointer_v<A> ? 'P' : std::is_floating_point_v<A> ? 'f' : std::is_integral_v<A> ? 'i' : 'V',
                       sizeof(A))), ...);
    return text;
}
}  // namespace warpshelf

// What cuda.py puts after a .cu: the bounds of its shared arrays, and one kernel's entry points.
#define WARPSHELF_BOUND extern "C" __attribute__((weak, visibility("hidden")))
#define WARPSHELF_LAUNCHER(...)                                                                     \
    extern "C" __attribute__((visibility("default"))) const char* warpshelf_signature() {           \
        return warpshelf::signature(__VA_ARGS__);                                                   \
    }                                                                                               \
    extern "C" __attribute__((visibility("default"))) const char* warpshelf_launch(                 \
        const unsigned* dims, size_t shared, void** args) {                                         \
        return warpshelf::run(__VA_ARGS__, dims, shared, args);                                     \
    }

#undef assert
#define assert(x) ((x) ? (void)0 : warpshelf::fail("assertion at line %d: %s", __LINE__, #x))
#define WARPSHELF_LINE int line = __builtin_LINE()

inline void __syncthreads(WARPSHELF_LINE) { warpshelf::synchronize(1, 0, "__syncthreads", line); }
inline int __syncthreads_count(int p, WARPSHELF_LINE) { return warpshelf::synchronize(p, 0, "__syncthreads_count", line); }
inline int __syncthreads_and(int p, WARPSHELF_LINE) { return warpshelf::synchronize(p, 1, "__syncthreads_and", line); }
inline int __syncthreads_or(int p, WARPSHELF_LINE) { return warpshelf::synchronize(p, 2, "__syncthreads_or", line); }
inline void __syncwarp(unsigned mask = ~0u, WARPSHELF_LINE) { warpshelf::gather(mask, 0, "__syncwarp", line); }
inline void __nanosleep(unsigned) { warpshelf::pause(); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
[[noreturn]] inline void __trap() { warpshelf::fail("__trap"); }
inline unsigned __activemask() { return warpshelf::alive[warpshelf::current->warp]; }

template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, WARPSHELF_LINE) {
    const int lane = warpshelf::current->lane;
    return warpshelf::shuffle(mask, v, (lane & -width) + (source & (width - 1)), "__shfl_sync", line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, WARPSHELF_LINE) {
    const int lane = warpshelf::current->lane, from = lane - int(delta);
    return warpshelf::shuffle(mask, v, from < (lane & -width) ? lane : from, "__shfl_up_sync", line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, WARPSHELF_LINE) {
    const int lane = warpshelf::current->lane, from = lane + int(delta);
    return warpshelf::shuffle(mask, v, from >= (lane & -width) + width ? lane : from, "__shfl_down_sync", line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, WARPSHELF_LINE) {
    const int lane = warpshelf::current->lane, from = lane ^ lanes;
    return warpshelf::shuffle(mask, v, from >= (lane & -width) + width ? lane : from, "__shfl_xor_sync", line);
}
inline unsigned __ballot_sync(unsigned mask, int p, WARPSHELF_LINE) {
    const unsigned own = p ? 1u << warpshelf::current->lane : 0;
    return warpshelf::reduce(mask, own, [](unsigned a, unsigned b) { return a | b; }, "__ballot_sync", line);
}
inline int __any_sync(unsigned mask, int p, WARPSHELF_LINE) {
    return warpshelf::reduce(mask, int(p != 0), [](int a, int b) { return a | b; }, "__any_sync", line);
}
inline int __all_sync(unsigned mask, int p, WARPSHELF_LINE) {
    return warpshelf::reduce(mask, int(p != 0), [](int a, int b) { return a & b; }, "__all_sync", line);
}
template <class T>
unsigned __match_any_sync(unsigned mask, T v, WARPSHELF_LINE) {
    const warpshelf::Gathered all = warpshelf::gather(mask, v, "__match_any_sync", line);
    unsigned same = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (all.lanes >> lane & 1 && all.value[lane] == all.value[warpshelf::current->lane]) same |= 1u << lane;
    return same;
}
#define WARPSHELF_REDUCE(name, expression)                                                              \
    template <class T>                                                                                  \
    T __reduce_##name##_sync(unsigned mask, T v, WARPSHELF_LINE) {                                      \
        return warpshelf::reduce(mask, v, [](T a, T b) -> T { return expression; }, "__reduce_" #name "_sync", line); \
    }
WARPSHELF_REDUCE(add, a + b)
WARPSHELF_REDUCE(min, a < b ? a : b)
WARPSHELF_REDUCE(max, a < b ? b : a)
WARPSHELF_REDUCE(and, a & b)
WARPSHELF_REDUCE(or, a | b)
WARPSHELF_REDUCE(xor, a ^ b)

// One thread runs at a time, so an atomic is an ordinary access.
#define WARPSHELF_ATOMIC(name, expression)                                              \
    template <class T>                                                                  \
    T atomic##name(T* at, std::common_type_t<T> v) {                                    \
        const T old = *at;                                                              \
        *at = expression;                                                               \
        return old;                                                                     \
    }
WARPSHELF_ATOMIC(Add, old + v)
WARPSHELF_ATOMIC(Sub, old - v)
WARPSHELF_ATOMIC(Exch, v)
WARPSHELF_ATOMIC(Min, v < old ? v : old)
WARPSHELF_ATOMIC(Max, old < v ? v : old)
WARPSHELF_ATOMIC(And, old & v)
WARPSHELF_ATOMIC(Or, old | v)
WARPSHELF_ATOMIC(Xor, old ^ v)
WARPSHELF_ATOMIC(Inc, old >= v ? 0 : old + 1)
WARPSHELF_ATOMIC(Dec, old == 0 || old > v ? v : old - 1)
template <class T>
T atomicCAS(T* at, std::common_type_t<T> expected, std::common_type_t<T> v) {
    const T old = *at;
    if (old == expected) *at = v;
    return old;
}

template <class T> T __ldg(const T* p) { return *p; }
template <class T> T __ldca(const T* p) { return *p; }
template <class T> T __ldcg(const T* p) { return *p; }
template <class T> T __ldcs(const T* p) { return *p; }
template <class T> T __ldcv(const T* p) { return *p; }
template <class T> void __stcg(T* p, std::common_type_t<T> v) { *p = v; }
template <class T> void __stcs(T* p, std::common_type_t<T> v) { *p = v; }
template <class T> void __stwb(T* p, std::common_type_t<T> v) { *p = v; }
template <class T> void __stwt(T* p, std::common_type_t<T> v) { *p = v; }

template <class To, class From>
To __warpshelf_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps its size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return __warpshelf_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return __warpshelf_bits<unsigned>(x); }
inline float __int_as_float(int x) { return __warpshelf_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return __warpshelf_bits<float>(x); }
inline long long __double_as_longlong(double x) { return __warpshelf_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return __warpshelf_bits<double>(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; ++i) y |= (x >> i & 1) << (31 - i);
    return y;
}
template <class A, class B, class C = std::common_type_t<A, B>>
constexpr std::enable_if_t<std::is_arithmetic_v<C>, C> min(A a, B b) {
    if constexpr (std::is_floating_point_v<C>) return std::fmin(C(a), C(b));
    else return C(b) < C(a) ? C(b) : C(a);
}
template <class A, class B, class C = std::common_type_t<A, B>>
constexpr std::enable_if_t<std::is_arithmetic_v<C>, C> max(A a, B b) {
    if constexpr (std::is_floating_point_v<C>) return std::fmax(C(a), C(b));
    else return C(a) < C(b) ? C(b) : C(a);
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
inline int __float2int_rn(float x) { return int(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return int(x); }
inline float __int2float_rn(int x) { return float(x); }

// 16-bit floats: stored in 16 bits, computed in float and rounded to nearest even.
namespace warpshelf {
inline unsigned short half_from(float x) {
    const unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x477ff000) return sign | 0x7c00;                 // 65520 and above round to infinity
    if (size < 0x38800000)                                        // below 2**-14: adding 0.5 rounds to 2**-24
        return sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - 0x3f000000);
    return sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13;
}
inline float half_to(unsigned short h) {
    const unsigned sign = unsigned(h & 0x8000) << 16, size = unsigned(h & 0x7fff) << 13;
    if (size >= 0x0f800000) return __uint_as_float(sign | 0x70000000 | size);  // infinity and NaN
    return __uint_as_float(sign | __float_as_uint(__uint_as_float(size) * 0x1p112f));
}
inline unsigned short bfloat16_from(float x) {
    const unsigned bits = __float_as_uint(x);
    return std::isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float bfloat16_to(unsigned short h) { return __uint_as_float(unsigned(h) << 16); }
}  // namespace warpshelf
#define WARPSHELF_HALF(type, pair, convert)                                                \
    struct type {                                                                          \
        unsigned short bits;                                                               \
        type() = default;                                                                  \
        type(float x) : bits(warpshelf::convert##_from(x)) {}                              \
        operator float() const { return warpshelf::convert##_to(bits); }                   \
        type& operator+=(type x) { return *this = type(float(*this) + float(x)); }         \
        type& operator*=(type x) { return *this = type(float(*this) * float(x)); }         \
    };                                                                                     \
    inline type operator+(type x, type y) { return type(float(x) + float(y)); }            \
    inline type operator-(type x, type y) { return type(float(x) - float(y)); }            \
    inline type operator*(type x, type y) { return type(float(x) * float(y)); }            \
    inline type operator/(type x, type y) { return type(float(x) / float(y)); }            \
    struct alignas(4) pair { type x, y; };
WARPSHELF_HALF(__half, __half2, half)
WARPSHELF_HALF(__nv_bfloat16, __nv_bfloat162, bfloat16)
using half = __half;
using half2 = __half2;
inline float __half2float(__half x) { return x; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline float2 __half22float2(__half2 x) { return {x.x, x.y}; }
inline __half2 __float22half2_rn(float2 x) { return {x.x, x.y}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16(float x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
inline float2 __bfloat1622float2(__nv_bfloat162 x) { return {x.x, x.y}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 x) { return {x.x, x.y}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }

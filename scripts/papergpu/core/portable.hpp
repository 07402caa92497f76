// The types of numbers, and what a browser's machine, WebAssembly, has not: half floats, fused multiply-adds, threads,
// and memory that is zero until it is written. (Its other roundings, and sums of products by four, are in floats.cpp.)
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#ifndef __wasm__
#include <sys/mman.h>
#include <thread>
#include <vector>
#endif

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef __uint128_t u128;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef __int128_t s128;
typedef float f32;
typedef double f64;

template <class To, class From> static inline To as(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To t;
    memcpy(&t, &x, sizeof t);
    return t;
}
// One of two by arithmetic: where a loop shall vectorise, a branch that the compiler makes of `?:` must not stand.
static inline u32 choose(bool c, u32 x, u32 y) {
    const u32 m = 0 - u32(c);
    return (x & m) | (y & ~m);
}
static inline u64 choose(bool c, u64 x, u64 y) {
    const u64 m = 0 - u64(c);
    return (x & m) | (y & ~m);
}
// The number of a half's bits, and the bits of the half that is nearest.
static inline f32 from_half(u32 h) {
    const u32 e = h & 0x7fff;
    const u32 tiny = as<u32>(f32(s32(e)) * 0x1p-24f), u = choose(e < 0x400, tiny, (e << 13) + 0x38000000u);
    return as<f32>(u | choose(e >= 0x7c00, 0x7f800000u, 0u) | (h & 0x8000) << 16);
}
static inline u32 half_of(f32 x) {
    const u32 u = as<u32>(x) & 0x7fffffffu, sign = as<u32>(x) >> 16 & 0x8000;
    const u32 normal = (u + 0xc8000fffu + (u >> 13 & 1)) >> 13, tiny = as<u32>(as<f32>(u) + 0.5f) - 0x3f000000u;
    const u32 q = choose(u < 0x38800000u, tiny, choose(u >= 0x47800000u, 0x7c00u, normal));
    return choose(u > 0x7f800000u, 0x7fffu, q | sign);
}
// A sum in double, its last bit odd where something was lost of it: so a second rounding is right in any mode.
static inline f64 sum_odd(f64 a, f64 b) {
    const f64 s = a + b, back = s - a, lost = (a - (s - back)) + (b - back);
    const u64 u = as<u64>(s), less = as<u64>(lost) >> 63 ^ u >> 63;  // 1 where the sum is too large
    const u64 o = (u - less) | 1;
    return as<f64>(choose(bool((lost != 0) & (s - s == 0)), o, u));
}

// Before a loop whose turns do not depend on each other.
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#ifndef __wasm__

constexpr u64 ROOM = 2ull << 30;                      // bytes that the blocks of one thread may take
constexpr u32 EPOCHS = 1 << 20, EPOCH_PIECES = 4000;  // of the checks, in so many pieces
typedef _Float16 f16;

// a * b + c, rounded once.
static inline __attribute__((always_inline)) f32 fused(f32 a, f32 b, f32 c) { return __builtin_fmaf(a, b, c); }
static inline __attribute__((always_inline)) f64 fused(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
// The same where a last bit does not matter; of `fused_near` the product may be rounded as well.
static inline __attribute__((always_inline)) f64 fused_close(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }
static inline __attribute__((always_inline)) f64 fused_near(f64 a, f64 b, f64 c) { return __builtin_fma(a, b, c); }

static inline u8* reserve_zeros(u64 bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : (u8*)at;
}
static inline void release_zeros(u8* at, u64 bytes) { munmap(at, bytes); }

template <class F> void on_threads(u64 many, F work) {
    std::vector<std::thread> pool;
    for (u64 k = 0; k < many; ++k) pool.emplace_back(work);
    for (auto& one : pool) one.join();
}

#else

constexpr u64 ROOM = 256ull << 20;
constexpr u32 EPOCHS = 1 << 16, EPOCH_PIECES = 1024;

struct f16 {
    u16 bits;
    f16() = default;
    explicit f16(f32 x) : bits(u16(half_of(x))) {}
    explicit operator f32() const { return from_half(bits); }
};

static inline __attribute__((always_inline)) f32 fused(f32 a, f32 b, f32 c) {
    return f32(sum_odd(f64(a) * f64(b), f64(c)));
}
// The library's gives +0 for a tiny negative product and +0.
static inline f64 fused(f64 a, f64 b, f64 c) { return c == 0 && a != 0 && b != 0 ? a * b : std::fma(a, b, c); }
static inline __attribute__((always_inline)) f64 fused_near(f64 a, f64 b, f64 c) { return a * b + c; }
static inline __attribute__((always_inline)) f64 fused_close(f64 a, f64 b, f64 c) {  // the product's error by Dekker
    const f64 p = a * b, ta = 134217729.0 * a, tb = 134217729.0 * b, ha = ta - (ta - a), hb = tb - (tb - b),
              la = a - ha, lb = b - hb, e = la * lb - (((p - ha * hb) - la * hb) - ha * lb);
    const f64 s = p + c, v = s - p, lost = (p - (s - v)) + (c - v);
    return s + (lost + e);
}

static inline u8* reserve_zeros(u64 bytes) {
    u8* at = bytes < 1u << 31 ? (u8*)aligned_alloc(64, size_t(bytes + 63) / 64 * 64) : nullptr;
    if (at) memset(at, 0, size_t(bytes));
    return at;
}
static inline void release_zeros(u8* at, u64) { free(at); }
template <class F> void on_threads(u64, F work) { work(); }

#endif

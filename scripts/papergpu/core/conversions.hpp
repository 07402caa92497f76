// What conversions share: doubles as numbers of any type, rounded once in any mode.
#pragma once
#include "numbers.hpp"
#include <limits>
#include <utility>

#define CVT(name, ...) static Add PAPER_JOIN(add_, __COUNTER__)(name, __VA_ARGS__);

// A magnitude of 64 bits as a double, its last bit odd where something was lost of it.
static inline f64 sticky(u64 x) {
    if (x >> 53) {
        const int s = 11 - __builtin_clzll(x);
        return f64((x >> s) | ((x & ((1ull << s) - 1)) != 0)) * f64(1ull << s);
    }
    return f64(x);
}
static inline f32 f32_of(f64 x, u32 mode) {
    f32 r = f32(x);
    const f64 back = r;
    if (mode == RZ && std::fabs(back) > std::fabs(x)) r = as<f32>(as<u32>(r) - 1);
    if (mode == RM && back > x)
        r = r > 0 ? as<f32>(as<u32>(r) - 1) : r == 0 ? as<f32>(0x80000001u) : as<f32>(as<u32>(r) + 1);
    if (mode == RP && back < x) r = r < 0 ? as<f32>(as<u32>(r) - 1) : r == 0 ? as<f32>(1u) : as<f32>(as<u32>(r) + 1);
    if (mode == RP && back < x && as<u32>(f32(x)) == 0x80000000u) r = as<f32>(1u);
    return canonical(r);
}
template <class D> struct Narrow;
template <> struct Narrow<f32> {
    static inline u32 of(f64 x, u32 mode, bool = false) { return as<u32>(f32_of(x, mode)); }
};
template <> struct Narrow<f16> {
    static inline u32 of(f64 x, u32 mode, bool finite = false) { return to_half(odd(x), mode, finite); }
};
template <> struct Narrow<bf16> {
    static inline u32 of(f64 x, u32 mode, bool finite = false) { return to_brain(odd(x), mode, finite); }
};

template <class T> static inline f64 wide(const u8* R, u32 at, int l) {
    if constexpr (std::is_same_v<T, f16>) return from_half(get<u32>(R, at, l) & 0xffff);
    else if constexpr (std::is_same_v<T, bf16>) return from_brain(get<u32>(R, at, l) & 0xffff);
    else return get<T>(R, at, l);
}

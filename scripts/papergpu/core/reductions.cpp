// Reductions in bulk: the elements that an asynchronous copy adds to what is there, or else combines with it.
#include "async.hpp"
#include <algorithm>
#include <limits>

namespace {

f32 wide(u16 v, Element type) { return type == F16 ? f32(as<f16>(v)) : widen(bf16{v}); }
u16 narrow(f32 v, Element type) {
    if (type == F16) return as<u16>(f16(v));
    const u32 u = as<u32>(v);
    return (u & 0x7fffffff) > 0x7f800000 ? 0x7fff : u16((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
template <class T> T plain(Reduction op, T a, T b) {
    if constexpr (std::is_integral_v<T>) switch (op) {
        case INC: return a >= b ? T(0) : T(a + 1);
        case DEC: return a == 0 || a > b ? b : T(a - 1);
        case AND: return a & b;
        case OR: return a | b;
        case XOR: return a ^ b;
        case ADD: return T(u64(a) + u64(b));
        default: break;
        }
    return op == ADD ? T(a + b) : op == MIN ? std::min(a, b) : std::max(a, b);
}
u16 half(Reduction op, Element type, u16 a, u16 b) {
    const f32 x = wide(a, type), y = wide(b, type);
    if (op == ADD) return narrow(x + y, type);
    if (x != x && y != y) return 0x7fff;
    if (x != x) return b;
    if (y != y) return a;
    const bool first = x < y || (x == y && std::signbit(x));
    return first == (op == MIN) ? a : b;
}
template <class Bits, class F> void one_by_one(u8* to, const u8* from, u64 n, bool alone, F f) {
    for (u64 k = 0; k < n; k += sizeof(Bits)) {
        Bits* at = (Bits*)(to + k);
        Bits v;
        memcpy(&v, from + k, sizeof v);
        if (alone) {
            *at = f(*at, v);
            continue;
        }
        Bits before = __atomic_load_n(at, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(at, &before, f(before, v), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {}
    }
}
template <class T, class Bits> void typed(Reduction op, u8* to, const u8* from, u64 n, bool alone) {
    one_by_one<Bits>(to, from, n, alone, [op](Bits a, Bits b) { return as<Bits>(plain<T>(op, as<T>(a), as<T>(b))); });
}

}  // namespace

void reduce_into(Reduction op, Element type, u8* to, const u8* from, u64 n, bool alone) {
    switch (type) {
    case U32: return typed<u32, u32>(op, to, from, n, alone);
    case S32: return typed<s32, u32>(op, to, from, n, alone);
    case U64: return typed<u64, u64>(op, to, from, n, alone);
    case S64: return typed<s64, u64>(op, to, from, n, alone);
    case F32: return typed<f32, u32>(op, to, from, n, alone);
    case F64: return typed<f64, u64>(op, to, from, n, alone);
    case F16:
    case BF16: return one_by_one<u16>(to, from, n, alone, [op, type](u16 a, u16 b) { return half(op, type, a, b); });
    default: fault("reduces elements of a type that has no such operation");
    }
}

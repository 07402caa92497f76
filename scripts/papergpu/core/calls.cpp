// What has no body in PTX: printf, a failed assertion, memory of the device's heap, and the place
// where a cooperative grid synchronises.
#include "core.hpp"
#include <algorithm>
#include <mutex>

// ---- What lanes of a warp do together. Their mask is in register e, and turn.cpp has waited for them all.

namespace {

// d and, if count says so, a predicate in register `list`: the lane that each reads from is within bounds.
// `by` and `clamp` are asked for a lane's operands.
template <int mode, class B, class C>
inline __attribute__((always_inline)) void exchange(Warp& w, const Inst& i, B by,
                                                    C clamp) {  // 0 up, 1 down, 2 bfly, 3 idx
    const u8* R = w.R;
    const u32 m = w.m;
    const u32* a = (const u32*)(R + i.a);
    alignas(64) s32 from[32];
    alignas(64) u32 t[32];
    u32 ok = 0;
    for (int l = 0; l < 32; ++l) {
        const s32 s = s32(by(l) & 31), last = s32(clamp(l) & 31), seg = s32(clamp(l) >> 8 & 31), low = l & seg,
                  high = low | (last & ~seg);
        const s32 j = mode == 0 ? l - s : mode == 1 ? l + s : mode == 2 ? l ^ s : low | (s & ~seg);
        const bool p = mode == 0 ? j >= high : j <= high;
        from[l] = p ? j & 31 : l;
        ok |= p ? 1u << l : 0;
    }
    for (int l = 0; l < 32; ++l) t[l] = a[from[l]];
    if (m != ~0u && w.launch->checks)
        for (u32 x = m; x; x &= x - 1)
            if (!(m >> from[lowest(x)] & 1))
                fault_lane(lowest(x), "reads the register of lane %d, which does not take part: the mask is %#x",
                           from[lowest(x)], m);
    if (i.d) each<u32>(w, i.d, [t = &t[0]](int l) __attribute__((always_inline)) { return t[l]; });
    if (i.count) set_predicate(w, i.list, ok);
}
template <int mode> void shuffle(Warp& w, const Inst& i) {
    const u32* b = (const u32*)(w.R + i.b);
    const u32* c = (const u32*)(w.R + i.c);
    if (constant(w, i.b) && constant(w, i.c))
        exchange<mode>(w, i, [b = b[0]](int) { return b; }, [c = c[0]](int) { return c; });
    else exchange<mode>(w, i, [b](int l) { return b[l]; }, [c](int l) { return c[l]; });
}
Add shfl_up("shfl.up", shuffle<0>), shfl_down("shfl.down", shuffle<1>), shfl_bfly("shfl.bfly", shuffle<2>),
    shfl_idx("shfl.idx", shuffle<3>);

// The lanes that name the same mask act together.
template <class F> void apart(Warp& w, const Inst& i, F f) {
    const u32 all = w.m;
    u32 left = all;
    const u32* masks = (const u32*)(w.R + i.e);
    if (constant(w, i.e)) return f(all, masks[0]);
    while (left) {
        const u32 mask = masks[lowest(left)];
        u32 same = 0;
        for (u32 t = left; t; t &= t - 1)
            if (masks[lowest(t)] == mask) same |= t & -t;
        w.m = same;
        f(same, mask);
        left &= ~same;
    }
    w.m = all;
}
static u32 voted(Warp& w, const Inst& i) {
    const u32 p = predicate(w, i.a);
    return i.negate && i.guard < 0 ? ~p : i.imm ? ~p : p;
}
HANDLER("vote.all", apart(w, i, [&](u32 m, u32) { set_predicate(w, i.d, (voted(w, i) & m) == m ? ~0u : 0); });)
HANDLER("vote.any", apart(w, i, [&](u32 m, u32) { set_predicate(w, i.d, voted(w, i) & m ? ~0u : 0); });)
HANDLER("vote.uni", apart(w, i, [&](u32 m, u32) {
            const u32 v = voted(w, i) & m;
            set_predicate(w, i.d, v == 0 || v == m ? ~0u : 0);
        });)
HANDLER("vote.ballot", apart(w, i, [&](u32 m, u32) {
            const u32 v = voted(w, i) & m;
            each<u32>(w, i.d, [v](int) { return v; });
        });)
HANDLER("activemask", const u32 m = w.m; each<u32>(w, i.d, [m](int) { return m; });)
HANDLER("elect", apart(w, i, [&](u32 m, u32) {
            if (i.d) {
                const u32 l = lowest(m);
                each<u32>(w, i.d, [l](int) { return l; });
            }
            set_predicate(w, i.list, 1u << lowest(m));
        });)
// Lanes meet at many instructions; this one alone orders what they did to memory.
HANDLER("bar.warp", (void)i; if (launch_of(w).checks) check_warp_sync(w, w.m);)
template <class T, class F> void reduce(Warp& w, const Inst& i, F f) {
    apart(w, i, [&](u32 m, u32) {
        T v = get<T>(w.R, i.a, lowest(m));
        for (u32 t = m & (m - 1); t; t &= t - 1) v = f(v, get<T>(w.R, i.a, lowest(t)));
        each<T>(w, i.d, [v](int) { return v; });
    });
}
#define REDUX(name, T, ...) \
    HANDLER("redux." name, reduce<T>(w, i, [&i](T a, T b) -> T { \
                (void)i; \
                return __VA_ARGS__; \
            });)
REDUX("add.u32", u32, a + b)
REDUX("and.u32", u32, a& b) REDUX("or.u32", u32, a | b) REDUX("xor.u32", u32, a ^ b)
    REDUX("min.u32", u32, a < b ? a : b) REDUX("max.u32", u32, a > b ? a : b) REDUX("min.s32", s32, a < b ? a : b)
        REDUX("max.s32", s32, a > b ? a : b)
    // flags: 1 NaN, 2 abs
    static inline f32 least(f32 a, f32 b, u32 flags, bool most) {
    if (flags & 2) {
        a = std::fabs(a);
        b = std::fabs(b);
    }
    if (a != a || b != b) return flags & 1 || (a != a && b != b) ? as<f32>(0x7fffffffu) : a != a ? b : a;
    const bool first = a < b || (a == b && std::signbit(a));
    return first != most ? a : b;
}
static f32 only(f32 a, u32 flags) {
    if (a != a) return as<f32>(0x7fffffffu);
    return flags & 2 ? std::fabs(a) : a;
}
HANDLER("redux.min.f32", reduce<f32>(w, i, [&i](f32 a, f32 b) { return least(a, b, i.flags, false); });
        each<f32>(w, i.d, [R, i = i](int l) { return only(get<f32>(R, i.d, l), i.flags); });)
HANDLER("redux.max.f32", reduce<f32>(w, i, [&i](f32 a, f32 b) { return least(a, b, i.flags, true); });
        each<f32>(w, i.d, [R, i = i](int l) { return only(get<f32>(R, i.d, l), i.flags); });)
template <class T> void match_any(Warp& w, const Inst& i) {
    apart(w, i, [&](u32 m, u32) {
        u32 t[32] = {};
        for (u32 s = m; s; s &= s - 1)
            for (u32 o = m; o; o &= o - 1)
                if (get<T>(w.R, i.a, lowest(s)) == get<T>(w.R, i.a, lowest(o))) t[lowest(s)] |= o & -o;
        for (u32 s = m; s; s &= s - 1) put<u32>(w.R, i.d, lowest(s), t[lowest(s)]);
    });
}
template <class T> void match_all(Warp& w, const Inst& i) {
    apart(w, i, [&](u32 m, u32) {
        bool same = true;
        for (u32 s = m; s; s &= s - 1) same &= get<T>(w.R, i.a, lowest(s)) == get<T>(w.R, i.a, lowest(m));
        each<u32>(w, i.d, [v = same ? m : 0](int) { return v; });
        if (i.count) set_predicate(w, i.list, same ? ~0u : 0);
    });
}
Add any32("match.any.b32", match_any<u32>), any64("match.any.b64", match_any<u64>),
    all32("match.all.b32", match_all<u32>), all64("match.all.b64", match_all<u64>);

HANDLER("nop", (void)i; (void)w;)
HANDLER("yield", (void)i; w.yield = true;)
HANDLER("trap", (void)i; fault("the kernel traps here, as an assertion does that fails");)
HANDLER("clock32", const u32 t = u32(w.steps); each<u32>(w, i.d, [t](int) { return t; });
        if (w.steps % 64 == 0) w.yield = true;)
HANDLER("clock64", const u64 t = w.steps; each<u64>(w, i.d, [t](int) { return t; });
        if (w.steps % 64 == 0) w.yield = true;)
HANDLER("fence", if (launch_of(w).checks) check_fence(w, u32(i.imm));)

}  // namespace

// ---- calls of what has no body

namespace {

struct Line {
    u32 block;
    std::string text;
};
struct Output {
    std::vector<Line> lines;
    std::string whole;
};

std::mutex lock;
std::map<const Launch*, Output>& outputs() {
    static std::map<const Launch*, Output> all;
    return all;
}

// A piece of text that the device has, of at most 64 KiB.
std::string text_at(Warp& w, u64 at, const char* what) {
    std::string found;
    for (u64 k = 0; k < 65536; ++k) {
        const char c = *(const char*)global_at(w, at + k, 1, READ, what);
        if (!c) return found;
        found += c;
    }
    fault("%s is a text of more than 65536 bytes: end it with a zero", what);
}

// The next argument, of T, in the buffer that the compiler filled: each is aligned to its size.
template <class T> T next(u64& at, u64 from) {
    at = from + (at - from + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value;
    memcpy(&value, (const void*)at, sizeof value);
    at += sizeof(T);
    return value;
}

// One thread's printf; answers how many arguments it took.
int formatted(Warp& w, const std::string& format, u64 from, std::string& out) {
    u64 at = from;
    int taken = 0;
    char text[512];
    if (launch_of(w).checks) check_effect(w);
    for (size_t k = 0; k < format.size(); ++k) {
        if (format[k] != '%') {
            out += format[k];
            continue;
        }
        if (++k == format.size()) {
            out += '%';
            break;
        }
        if (format[k] == '%') {
            out += '%';
            continue;
        }
        std::string piece = "%";
        int wide = 0;
        bool size = false;
        for (; k < format.size(); ++k) {
            const char c = format[k];
            if (strchr("-+ #0123456789.", c)) piece += c;
            else if (c == '*') {
                piece += std::to_string(next<s32>(at, from));
                ++taken;
            } else if (c == 'l' || c == 'j' || c == 'z' || c == 't') {
                ++wide;
                size = true;
            } else if (c == 'h') size = true;
            else break;
        }
        (void)size;
        if (k == format.size()) {
            out += piece;
            break;
        }
        const char c = format[k];
        switch (c) {
        case 'd':
        case 'i':
            if (wide) snprintf(text, sizeof text, (piece + "lld").c_str(), (long long)next<s64>(at, from));
            else snprintf(text, sizeof text, (piece + "d").c_str(), next<s32>(at, from));
            break;
        case 'u':
        case 'x':
        case 'X':
        case 'o':
            if (wide) snprintf(text, sizeof text, (piece + "ll" + c).c_str(), (unsigned long long)next<u64>(at, from));
            else snprintf(text, sizeof text, (piece + c).c_str(), next<u32>(at, from));
            break;
        case 'c': snprintf(text, sizeof text, (piece + c).c_str(), next<s32>(at, from)); break;
        case 'e':
        case 'E':
        case 'f':
        case 'F':
        case 'g':
        case 'G':
        case 'a':
        case 'A': snprintf(text, sizeof text, (piece + c).c_str(), next<f64>(at, from)); break;
        case 'p': snprintf(text, sizeof text, (piece + c).c_str(), (void*)next<u64>(at, from)); break;
        case 's': {
            const u64 given = next<u64>(at, from);
            const std::string said = given ? text_at(w, given, "printf's %s") : "(null)";
            std::string whole(said.size() + 512, 0);
            const int n = snprintf(whole.data(), whole.size(), (piece + c).c_str(), said.c_str());
            out.append(whole.data(), std::min<size_t>(whole.size() - 1, size_t(std::max(n, 0))));
            ++taken;
            continue;
        }
        default: fault("printf's format has %%%c, which CUDA does not print", c);
        }
        out += text;
        ++taken;
    }
    return taken;
}

HANDLER("printf", {
    std::string out;
    u64 known = 0;
    std::string format;
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        const u64 at = get<u64>(R, i.a, k);
        if (!at) {
            put<s32>(R, i.d, k, -1);
            continue;
        }
        if (at != known) {
            format = text_at(w, at, "printf's format");
            known = at;
        }
        put<s32>(R, i.d, k, formatted(w, format, get<u64>(R, i.b, k), out));
    }
    std::lock_guard<std::mutex> held(lock);
    outputs()[&launch_of(w)].lines.push_back({w.block->linear, std::move(out)});
})

HANDLER("assertfail", {
    const int k = lowest(w.m);
    const std::string message = text_at(w, get<u64>(R, i.a, k), "an assertion's text");
    const std::string file = text_at(w, get<u64>(R, i.b, k), "an assertion's file");
    fault_lane(k, "the assertion `%.300s` of %.200s:%u fails", message.c_str(), file.c_str(), get<u32>(R, i.c, k));
})

HANDLER("call.nowhere", const int k = lowest(w.m); fault_lane(
            k,
            "calls a function at %#llx, where none is of what is passed: set the pointer, to a function of the device",
            (unsigned long long)get<u64>(R, i.a, k));)
HANDLER("call.again", (void)i;
        fault("a function calls itself through a pointer, which is not executed: write it as a loop");)

// ---- the heap: its bytes stand at its start, then where the next piece begins; each piece has its
// size in the 16 bytes before it, with 1 in the lowest bit while somebody has it.
struct Heap {
    u64 size;
    u64 end;
};

u64 take(Heap* heap, u64 bytes) {
    const u64 start = u64(heap), need = (bytes + 15) / 16 * 16 + 16;
    if (bytes > heap->size) return 0;
    if (!heap->end) heap->end = 16;
    for (u64 at = 16; at < heap->end;) {  // the first that is free and large enough
        u64* size = (u64*)(start + at);
        if (!(*size & 1) && *size >= need) {
            if (*size >= need + 32) {
                *(u64*)(start + at + need) = *size - need;
                *size = need;
            }
            *size |= 1;
            return start + at + 16;
        }
        at += *size & ~1ull;
    }
    if (heap->end + need > heap->size) return 0;
    const u64 at = heap->end;
    heap->end += need;
    *(u64*)(start + at) = need | 1;
    return start + at + 16;
}

HANDLER("heap.take", {
    std::lock_guard<std::mutex> held(lock);
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        put<u64>(R, i.d, k, take((Heap*)get<u64>(R, i.b, k), get<u64>(R, i.a, k)));
    }
})

HANDLER("heap.give", {
    std::lock_guard<std::mutex> held(lock);
    for (u32 t = w.m; t; t &= t - 1) {
        const int k = lowest(t);
        const u64 given = get<u64>(R, i.a, k);
        Heap* heap = (Heap*)get<u64>(R, i.b, k);
        if (!given) continue;
        u64 at = 16;
        while (at < heap->end && u64(heap) + at + 16 != given) at += *(u64*)(u64(heap) + at) & ~1ull;
        if (at >= heap->end)
            fault_lane(k, "frees %#llx, which malloc did not give: free what it gave, once", (unsigned long long)given);
        u64& size = *(u64*)(u64(heap) + at);
        if (!(size & 1)) fault_lane(k, "frees %#llx a second time: free it once", (unsigned long long)given);
        size &= ~1ull;
    }
})

// The address of the workspace that a cooperative launch has, from bit `imm` on; 0 elsewhere.
HANDLER("envreg.u32", const Launch& l = launch_of(w);
        each<u32>(w, i.d, [at = u32((l.cooperative ? u64(l.globals) : 0) >> i.imm)](int) { return at; });)
HANDLER("envreg.u64", const Launch& l = launch_of(w);
        each<u64>(w, i.d, [at = u64(u32((l.cooperative ? u64(l.globals) : 0) >> i.imm))](int) { return at; });)

}  // namespace

#pragma GCC visibility push(default)
extern "C" {
// What a launch printed, block after block, and its length.
const char* papergpu_printed(const Launch* l, u64* length) {
    std::lock_guard<std::mutex> held(lock);
    auto found = outputs().find(l);
    if (found == outputs().end()) {
        *length = 0;
        return "";
    }
    Output& o = found->second;
    std::stable_sort(o.lines.begin(), o.lines.end(), [](const Line& a, const Line& b) { return a.block < b.block; });
    o.whole.clear();
    for (const Line& line : o.lines) o.whole += line.text;
    *length = o.whole.size();
    return o.whole.c_str();
}
void papergpu_forget(const Launch* l) {
    std::lock_guard<std::mutex> held(lock);
    outputs().erase(l);
}
}
#pragma GCC visibility pop

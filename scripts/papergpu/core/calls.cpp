// What has no body in PTX: printf, a failed assertion, memory of the device's heap, and the place
// where a cooperative grid synchronises.
#include "core.hpp"
#include <algorithm>
#include <mutex>

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

// A CUDA runtime whose GPU is another process. Device memory is memory that both have at the same
// addresses; a launch, a module and what is wrong go to papergpu/programs.py over a socket.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

// The layout of programs.py: variables of modules first, then what is allocated; a byte of the
// shadow is 1 where its byte of memory was written.
const u64 BASE = 0x200000000000, VARIABLES = u64(1) << 34, SIZE = u64(1) << 40, SHADOW = BASE + SIZE;
const u64 ALIGN = 512;

// ---- the other process

enum Kind : u32 { HELLO, MODULE, FUNCTION, SYMBOL, LAUNCH, ALLOC, FREE, WRONG, MULTIPLY, TENSOR_MAP };

// The bytes of a message, one after the other.
struct Message {
    std::string bytes;
    Message& number(u64 v) { return raw(&v, sizeof v); }
    Message& text(const char* s) { return number(strlen(s)).raw(s, strlen(s)); }
    Message& raw(const void* p, size_t n) {
        bytes.append((const char*)p, n);
        return *this;
    }
};
// The answer: a cudaError_t, then numbers.
struct Answer {
    cudaError_t status;
    std::vector<u64> numbers;
};
Answer ask(Kind kind, const Message& message);
void tell(Kind kind, const Message& message);  // without an answer
const std::vector<u64>& machine();             // what HELLO answered: see Machine
bool mirror(void* at, void* of, size_t size);  // map pages of device memory at a place of the host as well
enum Machine { MAJOR, MINOR, PROCESSORS, SHARED_OPTIN, MEMORY, THREADS };

// Keeps an error for cudaGetLastError, as every call of the API does; a sticky one stays for good.
cudaError_t keep(cudaError_t error, bool sticky = false);
// A fault of the host's code: it is reported, and the call fails.
cudaError_t wrong(const char* format, ...) __attribute__((format(printf, 1, 2)));
// A fault outside of calls: it is reported.
void complain(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- modules that the program loads itself: what stands for their kernels and variables where a symbol does

struct Module;
Module* add_module(const char* image);  // PTX, or a fat binary
cudaError_t add_function(Module* module, const char* name, const void** symbol);
const void* add_variable(Module* module, const char* name);

// ---- streams: what is given to one happens at once, or becomes part of the graph that it captures

typedef std::function<cudaError_t()> Work;
cudaError_t enqueue(cudaStream_t stream, Work work);

// ---- memory

enum class Home : u64 { DEVICE, PINNED, MANAGED };
struct Block {
    u64 size, number;
    Home home;
};
// The allocation that holds an address, and where it begins; null if none does.
const Block* find_block(const void* at, u64* begin = nullptr);
bool is_ours(const void* at);
// Whether `size` bytes may be read or written there by a call; what is not ours is the host's.
bool may_touch(const char* call, const void* at, size_t size, const char* does);
void mark_written(const void* at, size_t size);

// ---- what the host may touch: nothing on the device, and what work of a stream has changed once it waited

// The same bytes of device memory at other addresses, where the runtime itself may touch all of them.
template <class T> T* own(T* at) { return is_ours(at) ? (T*)(u64(at) + 2 * SIZE) : at; }
void guard_memory();  // once the memory is there
// Runs `work`, and forbids the host what changes in memory that both have, of which these bytes name addresses.
cudaError_t run_watched(const std::string& named, const Work& work);
void forbid(const void* at, size_t size, const void* before);  // until it waited; `before` are the bytes that were there
void settle();  // the host has waited

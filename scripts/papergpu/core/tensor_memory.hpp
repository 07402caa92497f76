// Tensor memory of sm_100, and what is on its way to and from it.
#pragma once
#include "core.hpp"

constexpr u32 TENSOR_LANES = 128, TENSOR_COLUMNS = 512;

namespace tcgen {  // names of this part alone

// A piece of one block's tensor memory: columns [lo, hi) of the groups of 16 lanes whose bit is set.
struct Patch {
    Block* block;
    u32 lanes, lo, hi;
    bool write;
};

// A tcgen05.ld or tcgen05.st that has not been waited for.
struct Move {
    u32 shape, pc, lane, column, half, count;
    bool packed;
    const u32* registers;   // of a load
    std::vector<u32> data;  // of a store: 32 words of each register
    Patch patch;
};

// What a thread has asked of the tensor core, in order; `run` does it.
struct Work {
    std::function<void()> run;
    std::vector<Patch> patches;
    u32 pc;
    u64 number;
};

}  // namespace tcgen
using namespace tcgen;

struct TensorMemory {
    u32 group = 0;  // the cta_group that the block uses
    struct Piece {
        u32 at, columns, pc;
    };
    std::vector<Piece> pieces;
    bool relinquished = false;
    u32 wanted = 0;
    int granted = -1;                        // of an alloc of cta_group::2
    std::map<u32, std::deque<Work>> queues;  // by warp * 32 + lane
    struct Flight {
        Patch patch;
        u32 pc, queue;
        u64 number;
    };
    std::vector<Flight> flights;  // what the queues of the pair's blocks will touch here
    struct Moves {
        std::vector<Move> loads, stores;
    };
    std::vector<Moves> moves;  // of each warp
    u64 numbers = 0;
};

static inline u32* tensor_words(Block& b) { return (u32*)b.tensor; }  // [column][lane]

TensorMemory& tensor_of(Block& b);
// The block's own if group is 1, else that of its pair too; a finding if there is no pair, or another group was used.
std::vector<Block*> tensor_group(Warp& w, u32 group);
// A finding unless all these columns are allocated.
void tensor_allocated(Block& b, u32 lo, u32 hi, const char* what);
// A finding if something in flight, or a load or store not waited for, collides with this; `queue` is the asker's.
void tensor_collides(Warp& w, const Patch& p, u32 queue, const char* what);
constexpr u32 NO_QUEUE = ~0u;
// Puts work at the end of this thread's queue.
void tensor_queue(Warp& w, u32 lane, std::vector<Patch> patches, std::function<void()> run);

// ---- tcgen05_operands.cpp
// A shared-memory descriptor, read: pieces of 16 bytes of the matrix, by their byte in a block's shared memory.
// Rows by k-chunks of 16 bytes ([row][chunk]) where K is contiguous; else [k][16 bytes of rows].
namespace tcgen {
struct Slices {
    std::vector<u32> at;
    bool along_k;
};
struct Held {
    std::vector<std::pair<u8*, u32>> ranges;
};
}  // namespace tcgen
Slices slices(Warp& w, u64 descriptor, u32 rows, u32 chunks, bool transposed, u32 depth, u32 width, char name);
// Tells checks and copies that these are read until they are let go.
// Of each piece of 16 bytes only the first `used` matter.
Held hold_slices(Warp& w, int lane, Block& b, const Slices& s, u32 used, const char* what);
void let_go_slices(Gang& g, const Held& h);

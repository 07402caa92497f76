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

// ---- tcgen05_issue.cpp
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

// ---- What one tcgen05.mma is, once its descriptors are read.

namespace tcgen {
enum Format : u8 { F16, BF16, TF32, E4M3, E5M2, E2M3, E3M2, E2M1, U8, S8, UE8M0, UE4M3 };

enum MmaKind : u32 { KIND_F16, KIND_TF32, KIND_F8F6F4, KIND_I8, KIND_MXF8F6F4, KIND_MXF4, KIND_MXF4NVF4 };
enum Result : u8 { D_F16, D_F32, D_S32 };

struct Mma {
    u32 kind, group, m, n, k, scales, scale_d;  // scales of a row within the instruction; D is divided by 2**scale_d
    Format a_format, b_format, scale_format;
    Result result;
    bool a_transposed, b_transposed, a_negated, b_negated, saturate, a_in_tensor, weights, accumulate, masked;
    u32 a_scale_id, b_scale_id;
    u32 d, a, a_scales, b_scales;  // addresses of tensor memory
    u32 disabled[8];
    // Of each block of the group: its rows of A, and its part of the rows of B.
    std::vector<Block*> blocks;
    std::vector<Slices> a_slices, b_slices;
    std::vector<Held> held;

    u32 rows() const { return m / group; }  // of D in one block
    u32 folds() const {
        return weights ? 128 / m : group == 2 && m == 128 ? 2 : 1;
    }                                            // pieces of N that lie below each other
    u32 columns() const { return n / folds(); }  // of D
    // Of the 16 lanes from 16 * g on: whether D has them.
    bool has(u32 g) const { return rows() * folds() == 128 || g % 2 == (d >> 20 & 1); }
    u32 row_of(u32 lane) const { return rows() * folds() == 128 ? lane % rows() : lane / 32 * 16 + lane % 16; }
};

}  // namespace tcgen

// Reads the instruction descriptor into `x`; a finding if there is no such instruction.
void read_descriptor(Mma& x, u32 descriptor, u32 sm);
void run_mma(const Mma& x);

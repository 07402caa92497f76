// What one tcgen05.mma is, once its descriptors are read.
#pragma once
#include "panels.hpp"
#include "tensor_memory.hpp"

namespace tcgen {

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

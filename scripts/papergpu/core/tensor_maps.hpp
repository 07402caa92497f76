// Tensor maps, as an instruction reads them.
#pragma once
#include "async.hpp"

// 128 bytes, as papergpu/tensormap.py writes them and tensormap.replace changes them.
struct Raw {
    u64 base, strides[4];
    u32 sizes[5], box[5], steps[5];  // box of an im2col map: channels, pixels
    u8 type, rank, interleave, swizzle, atomicity, promotion, fill, mode;
    s16 lower[3], upper[3];  // an im2col map's corners, of W, H and D
    u64 magic;
};
static_assert(sizeof(Raw) == 128);
constexpr u64 MAGIC = 0x70616d7265706170;  // "papermap"
enum Mode : u8 { TILED, IM2COL };          // `mode` of a map

constexpr u32 BITS[16] = {8, 16, 32, 32, 64, 64, 16, 32, 32, 64, 16, 32, 32, 4, 4, 6};

struct Map {
    Raw raw;
    u64 at;
    u32 inner, rows, spread[5];
    u64 bytes;
};  // spread: how many of each dimension are copied

// The map at a generic address, as an instruction of `rank` dimensions and that mode uses it.
Map map_at(Warp& w, int lane, u64 address, u32 rank, Mode mode, bool rows4);

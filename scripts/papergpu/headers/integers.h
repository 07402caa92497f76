// The integer types of <stdint.h>.
#pragma once
#include <cuda/std/climits>
#include <cuda/std/cstdint>

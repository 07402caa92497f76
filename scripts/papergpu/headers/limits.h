// <limits.h>
#pragma once
#include <cuda/std/climits>

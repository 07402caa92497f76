// What nvcc has before the first line of a .cu, and NVRTC has not.
#pragma once
#include "integers.h"
#include "limits.h"
#include "float.h"
#include "math.h"
#include "stddef.h"
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
namespace cuda { namespace std {} }
namespace std {
using namespace cuda::std;
using ::size_t;
using ::ptrdiff_t;
}

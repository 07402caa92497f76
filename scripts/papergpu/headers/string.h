// <string.h>: memcpy, memset and the like are the compiler's own.
#pragma once
#ifndef NULL
#define NULL 0
#endif

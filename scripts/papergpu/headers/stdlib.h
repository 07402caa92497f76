// <stdlib.h>: malloc and free are the compiler's own.
#pragma once
#ifndef NULL
#define NULL 0
#endif
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
#define RAND_MAX 2147483647

// <stdio.h>: printf is the compiler's own; files are the host's.
#pragma once
#ifndef NULL
#define NULL 0
#endif

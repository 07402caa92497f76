// <sys/types.h>
#pragma once
#include "../integers.h"

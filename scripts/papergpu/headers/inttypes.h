// <inttypes.h>
#pragma once
#include "integers.h"

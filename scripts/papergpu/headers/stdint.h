// <stdint.h>
#pragma once
#include "integers.h"

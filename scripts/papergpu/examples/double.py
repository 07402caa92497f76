"""Twice a vector, in Triton: `python double.py`, or `papergpu run double.py`. It has a fault."""

import papergpu
import torch
import triton
import triton.language as tl

papergpu.activate("sm_90")


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)  # mend it: mask=at < n
    tl.store(y + at, 2 * value, mask=at < n)


x = torch.ones(1000)
double[(8,)](x, torch.empty(1000), 1000, BLOCK=128)

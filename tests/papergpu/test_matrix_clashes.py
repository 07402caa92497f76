"""Warps that store matrices of 8 by 8 to one place: a finding where they differ, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from executing import execute, kernel_of
from papergpu.errors import Finding

TILE = ".shared .align 16 .b8 tile[256];"
BODY = """
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 31;
  shl.b32 %r2, %r1, 4;
  and.b32 %r2, %r2, 127;
  mov.u32 %r3, tile;
  add.u32 %r3, %r3, %r2;
  {value}
  stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {{%r4}};
  bar.sync 0;
  shl.b32 %r5, %r1, 2;
  mov.u32 %r6, tile;
  add.u32 %r6, %r6, %r5;
  ld.shared.b32 %r7, [%r6];
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd0, %rd1;
  st.global.b32 [%rd1], %r7;
"""


def stored(value: str) -> list[int]:
    out = np.zeros(64, np.uint32)
    execute(kernel_of(BODY.format(value=value), module=TILE), out, block=64)
    found: list[int] = out.tolist()
    return found


def test_warps_may_store_the_same_matrix() -> None:
    assert stored("mul.lo.u32 %r4, %r1, 3;") == [3 * lane for lane in range(32)] * 2


def test_warps_that_store_different_ones_clash() -> None:
    with pytest.raises(Finding, match="writes byte .* of shared memory, which thread .* wrote"):
        stored("mul.lo.u32 %r4, %r0, 3;")

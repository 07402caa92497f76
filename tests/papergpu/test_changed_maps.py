"""Tensor maps that a kernel makes field by field, and prefetches by maps and in bulk."""

from __future__ import annotations

import numpy as np
import pytest
from papergpu.errors import Finding
from papergpu.tensormap import TensorMap
from ptx_launch import execute_ptx, write_kernel

ROWS, COLUMNS, BOX = 11, 20, (8, 8)  # of a tensor; a box is 8 by 8
AT = (16, 4)  # column and row of the box: four columns and a row of it lie outside
FIELDS = (
    ("global_address", "b64", "%rd2"),
    ("rank", "b32", "1"),
    ("box_dim", "b32", f"0, {BOX[0]}"),
    ("box_dim", "b32", f"1, {BOX[1]}"),
    ("global_dim", "b32", f"0, {COLUMNS}"),
    ("global_dim", "b32", f"1, {ROWS}"),
    ("global_stride", "b64", f"0, {4 * COLUMNS}"),
    ("element_stride", "b32", "0, 1"),
    ("element_stride", "b32", "1, 1"),
    ("elemtype", "b32", "7"),
    ("interleave_layout", "b32", "0"),
    ("swizzle_mode", "b32", "1"),
    ("swizzle_atomicity", "b32", "0"),
    ("fill_mode", "b32", "1"),
)
LOAD = f"""
  @%p1 mbarrier.init.shared.b64 [bar], 1;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {4 * BOX[0] * BOX[1]};
  @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
      [tile], [%rd1, {{{AT[0]}, {AT[1]}}}], [bar];
  bar.sync 0;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
  @!%p2 bra WAIT;
  mov.u32 %r1, tile; mad.lo.u32 %r1, %r10, 8, %r1; ld.shared.v2.b32 {{%r2, %r3}}, [%r1];
  mul.wide.u32 %rd4, %r10, 8; add.s64 %rd5, %rd0, %rd4; st.global.v2.b32 [%rd5], {{%r2, %r3}};
  ret;
"""
START = """
  .shared .align 128 .b8 map[128]; .shared .align 256 .b8 tile[256]; .shared .align 8 .b8 bar[8];
  mov.u32 %r10, %tid.x; setp.eq.u32 %p1, %r10, 0;
"""


def replace_fields(where: str, at: str) -> str:
    """All fields of the map that stands there."""
    space = "shared::cta" if where == "shared" else "global"
    return "".join(f"@%p1 tensormap.replace.tile.{name}.{space}.b1024.{kind} [{at}], {value};"
                   for name, kind, value in FIELDS)  # fmt: skip


def zero_map(where: str, at: str) -> str:
    return "".join(f"@%p1 st.{where}.b64 [{at}+{8 * k}], 0;" for k in range(16))


MADE = {
    "shared": f"""{zero_map("shared", "map")} {replace_fields("shared", "map")}
      bar.warp.sync -1;
      tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
          [%rd1], [map], 128;
      @%p1 fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;""",
    "global": f"""{zero_map("global", "%rd1")} {replace_fields("global", "%rd1")}
      @%p1 fence.proxy.tensormap::generic.release.gpu;
      @%p1 fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;""",
}


def allocate_memory() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What a box comes to, room for a map, and a tensor, as aligned as they must be."""
    room = np.full(64 + 128, 0x55, np.uint8)
    first = -room.ctypes.data % 64
    space = np.zeros(ROWS * COLUMNS * 4 + 16, np.uint8)
    start = -space.ctypes.data % 16
    tensor = space[start : start + ROWS * COLUMNS * 4].view(np.float32)
    tensor[:] = np.arange(ROWS * COLUMNS) + 1
    return np.zeros((8, 8), np.float32), room[first : first + 128], tensor


@pytest.mark.parametrize("where", MADE)
def test_a_map_that_a_kernel_makes(where: str) -> None:
    """Rows of 32 bytes: in the second four of eight, both halves are changed over."""
    out, room, tensor = allocate_memory()
    execute_ptx(write_kernel(START + MADE[where] + LOAD, 3), out, room, tensor)
    want = np.full((8, 8), np.nan, np.float32)
    want[:7, :4] = tensor.reshape(ROWS, COLUMNS)[4:, 16:]
    want[4:] = np.roll(want[4:], 4, axis=1)
    assert np.array_equal(out, want, equal_nan=True)


@pytest.mark.parametrize("where", MADE)
def test_a_map_that_was_changed_is_used_behind_a_fence(where: str) -> None:
    body = MADE[where].rpartition("@%p1 fence.proxy")[0]
    with pytest.raises(Finding, match="uses a tensor map that was changed at .*generic.acquire"):
        execute_ptx(write_kernel(START + body + LOAD, 3), *allocate_memory())


def test_a_prefetch_needs_a_map_too() -> None:
    _, room, tensor = allocate_memory()
    host = TensorMap(tensor.ctypes.data, "f32", (COLUMNS, ROWS), (4 * COLUMNS,), BOX).encode()
    ask = "@%p1 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {16, 4}]; ret;"
    with pytest.raises(Finding, match="finds no tensor map"):
        execute_ptx(write_kernel(START + ask, 3), *allocate_memory())
    room[:] = np.frombuffer(host, np.uint8)
    execute_ptx(write_kernel(START + ask, 3), np.zeros(1, np.float32), room, tensor)


@pytest.mark.parametrize(
    ("bytes_", "said"), [(272, "copies|reads 272 bytes at byte"), (24, "not a multiple of 16")]
)
def test_a_prefetch_in_bulk_stays_within_a_tensor(bytes_: int, said: str) -> None:
    given = np.zeros(256 + 16, np.uint8)
    given = given[-given.ctypes.data % 16 :][:256]
    ask = "mov.u32 %r10, %tid.x; setp.eq.u32 %p1, %r10, 0; @%p1 cp.async.bulk.prefetch.L2.global"
    execute_ptx(write_kernel(f"{ask} [%rd0], 256; ret;"), given)
    with pytest.raises(Finding, match=said):
        execute_ptx(write_kernel(f"{ask} [%rd0], {bytes_}; ret;"), given)

"""Boxes of tensors, copied by maps: loads, stores, reductions, swizzles, and what lies outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Kernel, Memory, Settings
from papergpu.launch import aligned_zeros as bytes_aligned
from papergpu.tensormap import TensorMap
from ptx_launch import (
    MBARRIERS,
    compile_cuda,
    execute_ptx,
    launch_kernel,
    load_kernel_once,
    write_kernel,
)

# Maps that the host makes.

COMMON = (
    MBARRIERS
    + r"""
struct alignas(64) Map { unsigned long long words[16]; };
extern __shared__ __align__(1024) unsigned char space[];
"""
)
LISTS = {1: "{%2}", 2: "{%2, %3}", 3: "{%2, %3, %4}", 4: "{%2, %3, %4, %5}",
         5: "{%2, %3, %4, %5, %6}"}  # fmt: skip
LOAD = r"""
extern "C" __global__ void load(const __grid_constant__ Map map, unsigned char* out, int
    bytes, int c0, int c1, int c2, int c3, int c4) {
  __shared__ alignas(8) unsigned long long bar;
  unsigned char* tile = space + OFFSET;
  if (threadIdx.x == 0) {
    init(&bar, 1);
    expect(&bar, bytes + WRONG);
    asm volatile("cp.async.bulk.tensor.DIMd.MODEshared::cluster.global."
      "mbarrier::complete_tx::bytes [%0], [%1, LIST], [%7];"
      :: "r"(SHARED(tile)), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
          "r"(SHARED(&bar)) : "memory");
  }
  __syncthreads();
  WAIT
  for (int k = threadIdx.x; k < bytes; k += blockDim.x) out[k] = tile[k];
}
"""
STORE = r"""
extern "C" __global__ void store(const __grid_constant__ Map map, const unsigned char* in, int
    bytes, int c0, int c1, int c2, int c3, int c4) {
  unsigned char* tile = space + OFFSET;
  for (int k = threadIdx.x; k < bytes; k += blockDim.x) tile[k] = in[k];
  FENCE
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("INSTRUCTION [%1, LIST], "
        "[%0];" :: "r"(SHARED(tile)), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    WAIT
  }
  AFTER
}
"""


def fill_template(text: str, rank: int, **parts: object) -> str:
    parts = {"LIST": LISTS[rank], "DIM": rank, "OFFSET": 0, "WRONG": 0, "MODE": "", **parts}
    for name, value in parts.items():
        text = text.replace(name, str(value))
    return COMMON + text


def launch_copy(
    one: Kernel, mapped: TensorMap, tensor: Any, data: Any, at: tuple[int, ...], **more: Any
) -> None:
    coordinates = [np.int32(value) for value in (*at, 0, 0, 0, 0, 0)[:5]]
    beside = [Memory(tensor.ctypes.data, tensor.nbytes, "what a tensor map is of")]
    launch_kernel(one, mapped.encode(), data, data.nbytes, *coordinates,
                  block=64, touched=beside, dynamic=65536, **more)  # fmt: skip


def load_box(mapped: TensorMap, tensor: Any, out: Any, at: tuple[int, ...], **parts: Any) -> None:
    checks, seed = parts.pop("checks", True), parts.pop("seed", 0)
    architecture = parts.pop("architecture", "compute_90a")
    rank = len(mapped.sizes)
    parts.setdefault("WAIT", "wait(&bar, 0);")
    one = load_kernel_once(compile_cuda(fill_template(LOAD, rank, **parts), architecture), "load")
    settings = Settings(threads=1, checks=checks, seed=seed)
    launch_copy(one, mapped, tensor, out, at, settings=settings)


def store_box(
    mapped: TensorMap, tensor: Any, given: Any, at: tuple[int, ...], **parts: Any
) -> None:
    rank = len(mapped.sizes)
    parts.setdefault("FENCE", 'asm volatile("fence.proxy.async.shared::cta;" ::: "memory");')
    parts.setdefault("WAIT", 'asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");')
    parts.setdefault("AFTER", "")
    parts.setdefault(
        "INSTRUCTION", f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
    )
    architecture = parts.pop("architecture", "compute_90a")
    one = load_kernel_once(compile_cuda(fill_template(STORE, rank, **parts), architecture), "store")
    launch_copy(one, mapped, tensor, given, at)


def encode_map(tensor: Any, element: str, box: tuple[int, ...], **more: Any) -> TensorMap:
    """A map of a C-contiguous array, the innermost dimension first."""
    return TensorMap(tensor.ctypes.data, element, tensor.shape[::-1], tensor.strides[-2::-1], box,
                     **more)  # fmt: skip


def allocate_aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array that begins at a multiple of 128."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return bytes_aligned(size).view(dtype).reshape(shape)


def draw_tensor(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Any:
    out = allocate_aligned(shape, dtype)
    draw = np.random.default_rng(seed).integers(-1000, 1000, shape)
    out[...] = draw.astype(dtype)
    return out


def cut_box(tensor: Any, at: tuple[int, ...], box: tuple[int, ...], steps: Any = None) -> Any:
    """The box of a tensor at some coordinates, innermost first, zeros outside; by numpy alone."""
    out = np.zeros([-(-b // s) for b, s in zip(box, steps or [1] * len(box), strict=True)][::-1],
                   tensor.dtype)  # fmt: skip
    for where in np.ndindex(out.shape):
        scaled = [k * s for k, s in zip(where[::-1], steps or [1] * len(box), strict=True)]
        index = tuple(c + k for c, k in zip(at, scaled, strict=True))[::-1]
        if all(0 <= k < n for k, n in zip(index, tensor.shape, strict=True)):
            out[where] = tensor[index]
    return out


@pytest.mark.parametrize(
    ("shape", "box", "at"),
    [((64,), (32,), (16,)), ((20, 36), (8, 4), (4, 3)), ((7, 9, 16), (8, 3, 2), (8, 7, 6)),
     ((3, 4, 5, 8), (4, 2, 3, 2), (-2, 1, -1, 2)),
     ((2, 3, 2, 3, 4), (4, 2, 2, 2, 2), (0, 2, 1, 2, 1))],
)  # fmt: skip
def test_boxes_of_all_ranks_arrive_with_zeros_outside(shape: Any, box: Any, at: Any) -> None:
    tensor = draw_tensor(shape)
    out = np.zeros(box[::-1], np.float32)
    load_box(encode_map(tensor, "f32", box), tensor, out, at)
    assert np.array_equal(out, cut_box(tensor, at, box))


def test_the_group_of_blocks_may_stand_before_the_spaces() -> None:
    """CUTLASS writes it there."""
    tensor, out = draw_tensor((4, 8)), np.zeros((4, 8), np.float32)
    load_box(encode_map(tensor, "f32", (8, 4)), tensor, out, (0, 0), MODE="cta_group::2.",
             architecture="compute_100a")  # fmt: skip
    assert np.array_equal(out, tensor)


def test_element_strides_take_every_second_row() -> None:
    tensor = draw_tensor((12, 16))
    out = np.zeros((3, 16), np.float32)
    load_box(encode_map(tensor, "f32", (16, 5), steps=(1, 2)), tensor, out, (0, 1))
    assert np.array_equal(out, tensor[1:6:2])


@pytest.mark.parametrize(
    ("swizzle", "width", "period"), [("32B", 32, 256), ("64B", 64, 512), ("128B", 128, 1024)]
)
@pytest.mark.parametrize("offset", [0, 128, 640])
def test_swizzles_move_chunks_of_16_bytes(
    swizzle: str, width: int, period: int, offset: int
) -> None:
    tensor = draw_tensor((32, width // 2), np.float16)
    out = np.zeros((32, width // 2), np.float16)
    load_box(encode_map(tensor, "f16", (width // 2, 32), swizzle=swizzle), tensor, out, (0, 0),
             OFFSET=offset)  # fmt: skip
    got, flat = out.view(np.uint8).ravel(), tensor.view(np.uint8).ravel()
    # The row of 128 bytes within the pattern says by what the chunk's number changes.
    chunks = width // 16
    for k in range(0, flat.size, 16):
        address = offset + k
        row = address % period // 128
        there = address // 16 % chunks
        moved = address - 16 * there + 16 * (there ^ row * chunks * 128 // period % chunks)
        if swizzle == "128B":
            moved = address - 16 * there + 16 * (there ^ row)
        assert np.array_equal(got[moved - offset : moved - offset + 16], flat[k : k + 16])


def test_the_swizzle_of_32_byte_atoms() -> None:
    tensor, out = draw_tensor((16, 32)), np.zeros((16, 32), np.float32)
    load_box(encode_map(tensor, "f32", (32, 16), swizzle="128B_atom_32B"), tensor, out, (0, 0))
    for row in range(16):
        for atom in range(4):
            there = 8 * (atom ^ row % 4)
            assert np.array_equal(out[row, there : there + 8], tensor[row, 8 * atom : 8 * atom + 8])


def test_outside_is_nan_where_the_map_says_so() -> None:
    tensor, out = draw_tensor((4, 8), np.float16), np.zeros((4, 8), np.float16)
    load_box(encode_map(tensor, "f16", (8, 4), fill="nan"), tensor, out, (3, 2))
    assert np.array_equal(out[:2, :5], tensor[2:, 3:])
    assert np.isnan(out[2:]).all() and np.isnan(out[:, 5:]).all()


@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_stores_leave_out_what_lies_outside(swizzle: str) -> None:
    tensor, given = draw_tensor((6, 40)), draw_tensor((4, 16), seed=1)
    before = tensor.copy()
    store_box(encode_map(tensor, "f32", (16, 4), swizzle=swizzle), tensor, given, (30, -1))
    plain = given
    if swizzle == "64B":
        plain = np.zeros_like(given)
        for row in range(4):
            for chunk in range(4):
                there = 4 * (chunk ^ (row * 64 // 128) % 4)
                plain[row, 4 * chunk : 4 * chunk + 4] = given[row, there : there + 4]
    before[:3, 30:40] = plain[1:, :10]
    assert np.array_equal(tensor, before)


@pytest.mark.parametrize(
    ("operation", "element", "dtype"),
    [("add", "f32", np.float32), ("add", "f16", np.float16), ("max", "s32", np.int32),
     ("min", "u64", np.uint64), ("xor", "u32", np.uint32), ("inc", "u32", np.uint32)],
)  # fmt: skip
def test_reductions_combine_with_what_is_there(operation: str, element: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    tensor, given = allocate_aligned((8, 16), dtype), allocate_aligned((4, 8), dtype)
    tensor[...] = rng.integers(0, 50, tensor.shape)
    given[...] = rng.integers(0, 50, given.shape)
    want = tensor.copy()
    part = want[2:6, 8:]
    part[...] = {"add": part + given, "max": np.maximum(part, given),
                 "min": np.minimum(part, given),
                 "inc": np.where(part >= given, 0, part + 1),
                 }.get(operation, part ^ given if operation == "xor" else part)  # fmt: skip
    store_box(encode_map(tensor, element, (8, 4)), tensor, given, (8, 2),
              INSTRUCTION=f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile"
                          ".bulk_group")  # fmt: skip
    assert np.array_equal(tensor, want)


def test_gather_and_scatter_of_four_rows() -> None:
    tensor, out = draw_tensor((32, 64)), np.zeros((4, 32), np.float32)
    mapped = encode_map(tensor, "f32", (32, 1))
    rows = (30, 3, 99, -2)
    parts = {"LIST": LISTS[5], "MODE": "tile::gather4.", "architecture": "compute_100a"}
    load_box(mapped, tensor, out, (16, *rows), **parts)
    assert np.array_equal(out[:2], tensor[[30, 3], 16:48]) and not out[2:].any()
    given = draw_tensor((4, 32), seed=5)
    want = tensor.copy()
    want[[1, 31, 8], 32:] = given[[0, 1, 3]]
    store_box(mapped, tensor, given, (32, 1, 31, 32, 8), LIST=LISTS[5], architecture="compute_100a",
              INSTRUCTION="cp.async.bulk.tensor.2d.tile::scatter4.global.shared::cta"
                          ".bulk_group")  # fmt: skip
    assert np.array_equal(tensor, want)


def catch_finding(run: Any) -> str:
    with pytest.raises(Finding) as raised:
        run()
    return str(raised.value)


def test_faults_of_loads_are_found() -> None:
    tensor, out = draw_tensor((8, 32)), np.zeros((4, 8), np.float32)
    mapped = encode_map(tensor, "f32", (8, 4))

    def try_load(**parts: Any) -> str:
        return catch_finding(lambda: load_box(mapped, tensor, out, (0, 0), **parts))

    assert "has not yet delivered: wait for it" in try_load(WAIT="")
    assert "which lacks 64 bytes, for its phase of parity 0" in try_load(WRONG=64)
    assert "lacks 1 of 1 arrivals and an expect_tx" not in try_load(WRONG=64)
    assert "an expect_tx of the 64 bytes that came" in try_load(WRONG=-64)
    assert "not a multiple of 128: align it" in try_load(OFFSET=64)
    assert "which has 66560: ask for more" in try_load(OFFSET=65536)


def test_without_checks_a_missing_wait_reads_poison() -> None:
    tensor, out = draw_tensor((8, 32)), np.zeros((4, 8), np.float32)
    load_box(encode_map(tensor, "f32", (8, 4)), tensor, out, (0, 0), WAIT="", checks=False)
    assert np.isnan(out).all()


def test_faults_of_stores_are_found() -> None:
    tensor, given = draw_tensor((8, 32)), draw_tensor((4, 8))
    mapped = encode_map(tensor, "f32", (8, 4))

    def try_store(**parts: Any) -> str:
        return catch_finding(lambda: store_box(mapped, tensor, given, (0, 0), **parts))

    assert "add fence.proxy.async before it" in try_store(FENCE="")
    early = try_store(WAIT="", AFTER="__syncthreads(); tile[threadIdx.x] = 1;")
    assert "may still read: wait for it first" in early
    # After the wait for reading, the source may be written again.
    read = 'asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");'
    store_box(
        mapped, tensor, given, (0, 0), WAIT=read, AFTER="__syncthreads(); tile[threadIdx.x] = 1;"
    )
    assert np.array_equal(tensor[:4, :8], given)


def test_a_map_of_less_than_the_tensor_reads_outside() -> None:
    tensor, out = draw_tensor((8, 32)), np.zeros((4, 8), np.float32)
    mapped = TensorMap(tensor.ctypes.data, "f32", (32, 9), (128,), (8, 4))
    text = catch_finding(lambda: load_box(mapped, tensor, out, (0, 6)))
    assert "what a tensor map is of" in text and "1024" in text


def test_what_is_no_map_is_refused() -> None:
    tensor, out = draw_tensor((8, 32)), np.zeros((4, 8), np.float32)
    mapped = encode_map(tensor, "f32", (8, 4))

    class Nothing:
        sizes = mapped.sizes

        def encode(self) -> bytes:
            return bytes(128)

    nothing: Any = Nothing()

    assert "no tensor map" in catch_finding(lambda: load_box(nothing, tensor, out, (0, 0)))
    assert "of 2 dimensions by an instruction of 3" in catch_finding(
        lambda: load_box(mapped, tensor, out, (0, 0), LIST=LISTS[3], DIM=3)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [({"base": 8}, "not a multiple of 16"), ({"strides": (24,)}, "a stride of 24 bytes"),
     ({"strides": (1 << 40,)}, "below 2**40"), ({"box": (257, 1)}, "a box of 257"),
     ({"box": (3, 1)}, "multiple of 16 bytes"), ({"steps": (1, 9)}, "an element stride of 9"),
     ({"sizes": (8, 0)}, "a size of 0"), ({"swizzle": "32B", "box": (16, 1)}, "in a swizzle of 32"),
     ({"sizes": (8,), "strides": ()}, "for 1 dimensions"), ({"element": "f8"}, "no element type"),
     ({"element": "s32", "fill": "nan"}, "s32 has none"), ({"swizzle": "16B"}, "no swizzle")],
)  # fmt: skip
def test_maps_are_refused_as_the_driver_refuses_them(change: Any, said: str) -> None:
    right: dict[str, Any] = {"base": 4096, "element": "f32", "sizes": (8, 8), "strides": (32,),
                             "box": (8, 1)}  # fmt: skip
    TensorMap(**right)
    with pytest.raises(ValueError, match="a tensor map has") as raised:
        TensorMap(**{**right, **change})
    assert said in str(raised.value)


def test_what_is_right_and_not_executed_says_so() -> None:
    with pytest.raises(Unsupported, match="interleaved"):
        TensorMap(4096, "f32", (8, 8, 8), (32, 256), (8, 1, 1), interleave="16B")
    with pytest.raises(Unsupported, match="leaves gaps"):
        TensorMap(4096, "f32", (8, 8), (32,), (8, 1), swizzle="128B")


# Maps that a kernel makes field by field, and prefetches by maps and in bulk.

BOX_ROWS, BOX_COLUMNS, BOX = 11, 20, (8, 8)  # of a tensor; a box is 8 by 8
BOX_AT = (16, 4)  # column and row of the box: four columns and a row of it lie outside
FIELDS = (
    ("global_address", "b64", "%rd2"),
    ("rank", "b32", "1"),
    ("box_dim", "b32", f"0, {BOX[0]}"),
    ("box_dim", "b32", f"1, {BOX[1]}"),
    ("global_dim", "b32", f"0, {BOX_COLUMNS}"),
    ("global_dim", "b32", f"1, {BOX_ROWS}"),
    ("global_stride", "b64", f"0, {4 * BOX_COLUMNS}"),
    ("element_stride", "b32", "0, 1"),
    ("element_stride", "b32", "1, 1"),
    ("elemtype", "b32", "7"),
    ("interleave_layout", "b32", "0"),
    ("swizzle_mode", "b32", "1"),
    ("swizzle_atomicity", "b32", "0"),
    ("fill_mode", "b32", "1"),
)
LOAD_BOX = f"""
  @%p1 mbarrier.init.shared.b64 [bar], 1;
  @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {4 * BOX[0] * BOX[1]};
  @%p1 cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes
      [tile], [%rd1, {{{BOX_AT[0]}, {BOX_AT[1]}}}], [bar];
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
    space = np.zeros(BOX_ROWS * BOX_COLUMNS * 4 + 16, np.uint8)
    start = -space.ctypes.data % 16
    tensor = space[start : start + BOX_ROWS * BOX_COLUMNS * 4].view(np.float32)
    tensor[:] = np.arange(BOX_ROWS * BOX_COLUMNS) + 1
    return np.zeros((8, 8), np.float32), room[first : first + 128], tensor


@pytest.mark.parametrize("where", MADE)
def test_a_map_that_a_kernel_makes(where: str) -> None:
    """Rows of 32 bytes: in the second four of eight, both halves are changed over."""
    out, room, tensor = allocate_memory()
    execute_ptx(write_kernel(START + MADE[where] + LOAD_BOX, 3), out, room, tensor)
    want = np.full((8, 8), np.nan, np.float32)
    want[:7, :4] = tensor.reshape(BOX_ROWS, BOX_COLUMNS)[4:, 16:]
    want[4:] = np.roll(want[4:], 4, axis=1)
    assert np.array_equal(out, want, equal_nan=True)


@pytest.mark.parametrize("where", MADE)
def test_a_map_that_was_changed_is_used_behind_a_fence(where: str) -> None:
    body = MADE[where].rpartition("@%p1 fence.proxy")[0]
    with pytest.raises(Finding, match="uses a tensor map that was changed at .*generic.acquire"):
        execute_ptx(write_kernel(START + body + LOAD_BOX, 3), *allocate_memory())


def test_a_prefetch_needs_a_map_too() -> None:
    _, room, tensor = allocate_memory()
    host = TensorMap(
        tensor.ctypes.data, "f32", (BOX_COLUMNS, BOX_ROWS), (4 * BOX_COLUMNS,), BOX
    ).encode()
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

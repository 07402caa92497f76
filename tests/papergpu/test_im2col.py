"""Images copied pixel by pixel, as convolutions want them: loads, stores, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from papergpu.errors import Unsupported
from papergpu.launch import Memory
from papergpu.tensormap import Im2col, TensorMap, im2col
from ptx_launch import compile_cuda, launch_kernel, load_kernel_once

from tests.papergpu.test_tensor_copies import (
    COMMON,
    LISTS,
    allocate_aligned,
    catch_finding,
    draw_tensor,
    store_box,
)

LOAD = r"""
extern "C" __global__ void load(const __grid_constant__ Map map, unsigned char* out, int bytes,
    int c0, int c1, int c2, int c3, int c4, short o0, short o1, short o2) {
  __shared__ alignas(8) unsigned long long bar;
  if (threadIdx.x == 0) {
    init(&bar, 1);
    expect(&bar, bytes);
    asm volatile("cp.async.bulk.prefetch.tensor.DIMd.L2.global.im2col [%1, LIST], OFFSETS;"
      "INSTRUCTION [%0], [%1, LIST], [%7], OFFSETSMASK;"
      :: "r"(SHARED(space)), "l"(&map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4),
          "r"(SHARED(&bar)), "h"(o0), "h"(o1), "h"(o2), "h"((short)1) : "memory");
  }
  __syncthreads();
  wait(&bar, 0);
  for (int k = threadIdx.x; k < bytes; k += blockDim.x) out[k] = space[k];
}
"""
OFFSETS = {3: "{%8}", 4: "{%8, %9}", 5: "{%8, %9, %10}"}
LOADING = (
    "cp.async.bulk.tensor.DIMd.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",
    "cp.async.bulk.tensor.DIMd.im2col.shared::cta.global.mbarrier::complete_tx::bytes",
)


def encode_map(tensor: Any, element: str, box: tuple[int, int], lower: Any, upper: Any,
               **more: Any) -> Im2col:  # fmt: skip
    """A map of images (N, D, H, W, C), of which D and H may be absent."""
    return Im2col(tensor.ctypes.data, element, tensor.shape[::-1], tensor.strides[-2::-1], box,
                  lower=lower, upper=upper, **more)  # fmt: skip


def write_load(rank: int, instruction: str) -> str:
    mask = ", %11" if "multicast" in instruction else ""
    parts = {"INSTRUCTION": instruction, "MASK": mask, "OFFSETS": OFFSETS[rank],
             "LIST": LISTS[rank], "DIM": rank}  # fmt: skip
    source = LOAD
    for name, value in parts.items():
        source = source.replace(name, str(value))
    return COMMON + source


def load_pixels(
    mapped: TensorMap,
    tensor: Any,
    out: Any,
    at: Any,
    offsets: Any,
    instruction: str = LOADING[0],
    architecture: str = "compute_90a",
) -> None:
    one = load_kernel_once(
        compile_cuda(write_load(len(mapped.sizes), instruction), architecture), "load"
    )
    where = [np.int32(value) for value in (*at, 0, 0)[:5]]
    shifts = [np.uint16(value) for value in (*offsets, 0, 0)[:3]]
    beside = [Memory(tensor.ctypes.data, tensor.nbytes, "what a tensor map is of")]
    launch_kernel(one, mapped.encode(), out, out.nbytes, *where, *shifts,
                  block=64, touched=beside, dynamic=65536)  # fmt: skip


def list_pixels(tensor: Any, box: Any, at: Any, lower: Any, upper: Any, offsets: Any = (0, 0, 0),
                steps: Any = (1, 1, 1), fill: float = 0) -> Any:  # fmt: skip
    """The pixels by section 5.5.4 of the ISA: all of a batch are listed, and a piece is taken.

    Everything runs from the innermost dimension, as in PTX.
    """
    sizes = tensor.shape[::-1]
    spatial = range(len(sizes) - 2)
    ranges = [range(lower[d] + offsets[d], sizes[d + 1] + upper[d] + offsets[d], steps[d])
              for d in spatial]  # fmt: skip
    channels, count = box
    images = range(at[-1], at[-1] + count + 1)  # beyond the last one they are outside
    every = list(product(images, *ranges[::-1]))
    start = (at[-1], *(at[d + 1] + offsets[d] for d in spatial[::-1]))
    first = every.index(start)
    out = np.full((count, channels), fill, tensor.dtype)
    for row, where in enumerate(every[first : first + count]):
        if all(0 <= k < n for k, n in zip(where, tensor.shape, strict=False)):
            part = tensor[where][at[0] : at[0] + channels]
            out[row, : part.size] = part
    return out


# sizes (N, .., C), box (channels, pixels), coordinates, lower and upper corner, offsets, steps.
CASES = {
    "whole": ((1, 4, 4, 32), (32, 16), (0, 0, 0, 0), (0, 0), (0, 0), (0, 0), (1, 1)),
    "padded": ((1, 4, 4, 32), (32, 16), (0, -1, -1, 0), (-1, -1), (-1, -1), (0, 0), (1, 1)),
    "shifted": ((1, 4, 4, 32), (32, 16), (0, -1, -1, 0), (-1, -1), (-1, -1), (1, 1), (1, 1)),
    "batches": ((2, 4, 4, 32), (32, 16), (0, 3, 1, 0), (0, 0), (0, 0), (0, 0), (1, 1)),
    "padded batches": ((2, 4, 4, 32), (32, 16), (0, 2, 1, 0), (-1, -1), (-1, -1), (0, 0), (1, 1)),
    "beyond the last": ((2, 4, 4, 32), (8, 40), (28, 3, 2, 0), (0, 0), (0, 0), (0, 0), (1, 1)),
    "uneven": ((3, 5, 7, 16), (8, 77), (8, 2, 3, 0), (-1, -2), (-3, 1), (2, 1), (1, 1)),
    "strided": ((2, 7, 9, 16), (16, 33), (0, 1, -1, 0), (-1, -1), (-1, 0), (1, 2), (2, 3)),
    "one dimension": ((3, 20, 8), (4, 50), (4, 18, 0), (-2,), (1,), (2,), (4,)),
    "far": ((2, 300, 4), (4, 20), (0, 90, 0), (90,), (-200,), (200,), (1,)),
    "three": ((2, 3, 4, 5, 8), (8, 130), (0, 1, 0, -1, 0), (-1, 0, -1), (1, -2, 0), (1, 1, 1),
              (1, 1, 1)),
    "three strided": ((2, 5, 4, 6, 8), (4, 60), (4, -1, 2, 1, 0), (-1, 0, -1), (0, 0, 1), (1, 1, 0),
                      (3, 2, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("architecture", ["compute_90a", "compute_100a"])
def test_pixels_arrive_in_order_with_zeros_outside(name: str, architecture: str) -> None:
    shape, box, at, lower, upper, offsets, steps = CASES[name]
    tensor = draw_tensor(shape)
    tensor[tensor == 0] = 1
    out = np.full((box[1], box[0]), -1, np.float32)
    mapped = encode_map(tensor, "f32", box, lower, upper, steps=(1, *steps, 1))
    # The second way to write it is of PTX 8.6.
    way = LOADING[architecture == "compute_100a"]
    load_pixels(mapped, tensor, out, at, offsets, way, architecture)
    want = list_pixels(tensor, box, at, lower, upper, offsets, steps)
    assert np.array_equal(out, want)


def test_a_gpu_printed_the_same() -> None:
    """What Triton's tutorial of im2col says that its example 5 loads, by the pixel's number."""
    numbers = np.arange(1, 33, dtype=np.float32).reshape(2, 4, 4, 1)
    tensor = allocate_aligned((2, 4, 4, 32), np.float32)
    tensor[...] = numbers
    out = np.zeros((16, 32), np.float32)
    mapped = encode_map(tensor, "f32", (32, 16), (-1, -1), (-1, -1))
    load_pixels(mapped, tensor, out, (0, 2, 1, 0), (0, 0))
    want = [7, 0, 9, 10, 11, 0, 0, 0, 0, 0, 17, 18, 19, 0, 21, 22]
    assert out[:, 0].tolist() == out[:, 31].tolist() == want


@pytest.mark.parametrize(
    "instruction",
    ["cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
     ".multicast::cluster",
     "cp.async.bulk.tensor.4d.im2col.cta_group::2.shared::cluster.global"
     ".mbarrier::complete_tx::bytes.multicast::cluster"],
)  # fmt: skip
def test_offsets_stand_before_the_mask_of_a_multicast(instruction: str) -> None:
    tensor, out = draw_tensor((1, 4, 4, 32)), np.zeros((16, 32), np.float32)
    mapped = encode_map(tensor, "f32", (32, 16), (-1, -1), (-1, -1))
    load_pixels(mapped, tensor, out, (0, -1, -1, 0), (1, 1), instruction, "compute_100a")
    assert np.array_equal(out, tensor.reshape(16, 32))


def test_outside_is_nan_and_chunks_are_swizzled() -> None:
    tensor = draw_tensor((2, 3, 3, 64), np.float16)
    out = np.zeros((32, 64), np.float16)
    mapped = encode_map(tensor, "f16", (64, 32), (-1, -1), (1, 1), swizzle="128B", fill="nan")
    load_pixels(mapped, tensor, out, (0, 1, 1, 0), (0, 0))
    want = list_pixels(tensor, (64, 32), (0, 1, 1, 0), (-1, -1), (1, 1), fill=np.nan)
    chunks = want.reshape(32, 8, 8)
    moved = np.stack([chunks[row, [k ^ row % 8 for k in range(8)]] for row in range(32)])
    assert np.array_equal(out, moved.reshape(32, 64), equal_nan=True)
    assert np.isnan(want).any()


def test_a_convolution_is_a_sum_over_offsets() -> None:
    """3 by 3, padded by one: each output's products, by what its nine loads brought."""
    tensor, weights = draw_tensor((2, 5, 6, 4)), draw_tensor((3, 3, 4), seed=1)
    mapped = encode_map(tensor, "f32", (4, 60), (-1, -1), (-1, -1))
    total = np.zeros(60)
    for r, s in product(range(3), range(3)):
        out = np.zeros((60, 4), np.float32)
        load_pixels(mapped, tensor, out, (0, -1, -1, 0), (s, r))
        total += out.astype(np.float64) @ weights[r, s]
    around = np.pad(tensor.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = [(around[n, y : y + 3, x : x + 3] * weights).sum()
            for n, y, x in product(range(2), range(5), range(6))]  # fmt: skip
    assert np.array_equal(total, want)


STORING = "cp.async.bulk.tensor.4d.im2col_no_offs.global.shared::cta.bulk_group"
ADDING = "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.im2col_no_offs.bulk_group"


@pytest.mark.parametrize("instruction", [STORING, ADDING])
def test_stores_reach_the_pixels_of_the_box_alone(instruction: str) -> None:
    tensor, given = draw_tensor((2, 4, 5, 8)), draw_tensor((30, 8), seed=1)
    want, number = tensor.copy(), 0
    inside = [(n, y, x) for n, y, x in product(range(2), range(1, 4), range(0, 4))]
    for at in inside[inside.index((0, 2, 1)) :]:
        want[at] = given[number] + (want[at] if instruction == ADDING else 0)
        number += 1
    assert number == 19  # the others lie beyond the last image
    mapped = encode_map(tensor, "f32", (8, 30), (0, 1), (-1, 0))
    store_box(mapped, tensor, given, (0, 1, 2, 0), INSTRUCTION=instruction)
    assert np.array_equal(tensor, want)


def test_what_does_not_fit_a_map_is_found() -> None:
    tensor, out = draw_tensor((2, 8, 8, 8)), np.zeros((4, 8), np.float32)
    mapped = encode_map(tensor, "f32", (8, 4), (-1, -1), (-1, -1), steps=(1, 2, 2, 1))

    def try_load(at: Any, offsets: Any = (0, 0), one: TensorMap = mapped) -> str:
        return catch_finding(lambda: load_pixels(one, tensor, out, at, offsets))

    assert (
        "from 7 on in dimension W, outside of its tensor map's bounding box of -1 to 6"
        in try_load((0, 7, 1, 0))
    )
    assert "from -3 on in dimension H" in try_load((0, 1, -3, 0))
    assert "which is not executed: the element stride 2" in try_load((0, 2, 1, 0))
    assert "the im2col offset 256 in dimension H: up to 255" in try_load((0, 1, 1, 0), (0, 256))
    tiled = TensorMap(tensor.ctypes.data, "f32", (8, 8, 8, 2), (32, 256, 2048), (8, 4, 1, 1))
    assert "of tiles by an instruction of im2col" in try_load((0, 0, 0, 0), one=tiled)
    assert "of im2col by an instruction of tiles" in catch_finding(
        lambda: store_box(mapped, tensor, out, (0, 0, 0, 0)))  # fmt: skip
    assert "leave the tensor" in catch_finding(
        lambda: store_box(mapped, tensor, out, (0, 1, 1, 0), INSTRUCTION=STORING))  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [({"lower": (-129, 0)}, "a corner of -129 in dimension 1: from -128 to 127"),
     ({"upper": (0, 128)}, "a corner of 128 in dimension 2"),
     ({"lower": (3, 0), "upper": (-6, 0)}, "no pixel between them"),
     ({"box": (257, 1)}, "257 channels"), ({"box": (8, 1025)}, "1025 pixels"),
     ({"box": (8, 0)}, "0 pixels"), ({"box": (8, 1, 1)}, "channels and pixels"),
     ({"lower": (0,)}, "give 2 each"), ({"steps": (1, 9, 1, 1)}, "an element stride of 9"),
     ({"sizes": (8, 8), "strides": (32,)}, "2 dimensions: 3, 4 or 5"),
     ({"swizzle": "32B", "box": (16, 1)}, "in a swizzle of 32")],
)  # fmt: skip
def test_maps_are_refused_as_the_driver_refuses_them(change: Any, said: str) -> None:
    right: dict[str, Any] = {"base": 4096, "element": "f32", "sizes": (8, 8, 8, 2),
                             "strides": (32, 256, 2048), "box": (8, 1), "lower": (-128, 0),
                             "upper": (0, 127)}  # fmt: skip
    Im2col(**right)
    with pytest.raises(ValueError, match="a tensor map has") as raised:
        Im2col(**{**right, **change})
    assert said in str(raised.value)


def test_what_is_right_and_not_executed_says_so() -> None:
    with pytest.raises(Unsupported, match="strides 2 images"):
        Im2col(4096, "f32", (8, 8, 2), (32, 256), (8, 1), (1, 1, 2), lower=(0,), upper=(0,))


def test_triton_passes_the_same() -> None:
    """Its order is C's, with strides in elements; the numbers are those of CUDA's enumerations."""
    given = (4096, 3, 2, 6, [64, 64], [2, 14, 9, 64], [8064, 576, 64, 1], 0, [-1, -2], [-3, 1], 64,
             64, [1, 3, 2, 1])  # fmt: skip
    mapped = Im2col(4096, "f16", (64, 9, 14, 2), (128, 1152, 16128), (64, 64), (1, 2, 3, 1),
                    swizzle="128B", lower=(-2, -1), upper=(1, -3))  # fmt: skip
    assert im2col(*given) == mapped.encode()


@pytest.mark.parametrize(
    "instruction",
    ["cp.async.bulk.tensor.4d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes",
     "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",
     "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"],
)  # fmt: skip
def test_other_modes_are_refused_with_their_form(instruction: str) -> None:
    with pytest.raises(Unsupported) as raised:
        load_kernel_once(compile_cuda(write_load(4, instruction)), "load")
    assert instruction in str(raised.value) and "PTX line" in str(raised.value)

"""Tensor maps: what a copy in bulk knows of a tensor, in 128 bytes of an encoding of our own.

The engine reads the same layout (`Raw` in core/tensors.cpp), and `tensormap.replace` edits it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from papergpu.errors import Unsupported

# Element types by name: their number, as tensormap.replace says it, and their bits.
ELEMENTS = {
    "u8": (0, 8), "u16": (1, 16), "u32": (2, 32), "s32": (3, 32), "u64": (4, 64), "s64": (5, 64),
    "f16": (6, 16), "f32": (7, 32), "f32_ftz": (8, 32), "f64": (9, 64), "bf16": (10, 16),
    "tf32": (11, 32), "tf32_ftz": (12, 32), "u4": (13, 4), "u4_align16": (14, 4),
    "u6_align16": (15, 6),
}  # fmt: skip
# The same in the order of CUtensorMapDataType.
HOST_ELEMENTS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz",
                 "tf32", "tf32_ftz", "u4", "u4_align16", "u6_align16")  # fmt: skip
REFUSED = ("f32_ftz", "tf32", "tf32_ftz", "u4_align16", "u6_align16")
# In the order of CUtensorMapSwizzle: mode, atomicity, and the bytes that a pattern spans.
SWIZZLES = {"none": (0, 0, 0), "32B": (1, 0, 32), "64B": (2, 0, 64), "128B": (3, 0, 128),
            "128B_atom_32B": (3, 1, 128), "128B_atom_32B_flip_8B": (3, 2, 128),
            "128B_atom_64B": (3, 3, 128)}  # fmt: skip
FILLS = ("zeros", "nan")
INTERLEAVES = ("none", "16B", "32B")
MAGIC = 0x70616D7265706170
LAYOUT = struct.Struct("<Q4Q5I5I5I8B6hQ")
TILED, IM2COL = range(2)


def pad_values(values: Sequence[int], count: int, other: int) -> list[int]:
    return [*values, *[other] * (count - len(values))]


@dataclass(frozen=True)
class TensorMap:
    """A tiled tensor map, with the fields and the rules of cuTensorMapEncodeTiled.

    Dimensions run from the innermost. `strides` are the bytes from one element to the next of all
    dimensions but the innermost, `box` how many elements a copy takes, `steps` every how manieth.

    Raises:
        ValueError: it is declared as the driver would refuse it.
        Unsupported: it is right, and not executed.
    """

    base: int
    element: str
    sizes: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    steps: Sequence[int] = ()
    interleave: str = "none"
    swizzle: str = "none"
    fill: str = "zeros"

    def __post_init__(self) -> None:
        rank = len(self.sizes)
        if self.element not in ELEMENTS:
            self.refuse(f"no element type {self.element}: use one of {', '.join(ELEMENTS)}")
        if self.swizzle not in SWIZZLES:
            self.refuse(f"no swizzle {self.swizzle}: use one of {', '.join(SWIZZLES)}")
        if self.fill not in FILLS:
            self.refuse(f"no fill {self.fill}: use zeros or nan")
        if self.interleave not in INTERLEAVES:
            self.refuse(f"no interleave {self.interleave}: use none, 16B or 32B")
        self.check_rank()
        if self.steps and len(self.steps) != rank:
            self.refuse(f"{len(self.steps)} element strides for {rank} dimensions")
        if self.base % 16 or not 0 <= self.base < 1 << 64:
            self.refuse(f"a base of {self.base:#x}, which is not a multiple of 16: align it")
        self.check_numbers()
        self.check_swizzle()
        if self.interleave != "none":
            raise Unsupported(f"a tensor map with the interleaved layout {self.interleave}")
        if self.element in REFUSED:
            raise Unsupported(f"a tensor map of {self.element}")
        if self.swizzle in ("128B_atom_32B_flip_8B", "128B_atom_64B"):
            raise Unsupported(f"a tensor map with the swizzle {self.swizzle}")

    def check_rank(self) -> None:
        """Check how many numbers there are."""
        rank = len(self.sizes)
        if not 1 <= rank <= 5:
            self.refuse(f"{rank} dimensions: from 1 to 5")
        if len(self.strides) != rank - 1 or len(self.box) != rank:
            self.refuse(f"{len(self.strides)} strides and a box of {len(self.box)} for {rank} "
                        f"dimensions: give {rank - 1} strides and {rank} sides")  # fmt: skip

    def check_numbers(self) -> None:
        for at, size in enumerate(self.sizes):
            if not 1 <= size <= 1 << 32:
                self.refuse(f"a size of {size} in dimension {at}: from 1 to 2**32")
            if size == 1 << 32:
                raise Unsupported("a tensor map with a size of 2**32")
        for at, stride in enumerate(self.strides):
            if stride % 16 or not 0 <= stride < 1 << 40:
                self.refuse(f"a stride of {stride} bytes in dimension {at + 1}: a multiple of 16 "
                            f"below 2**40")  # fmt: skip
        for at, step in enumerate(self.steps):
            if not 1 <= step <= 8:
                self.refuse(f"an element stride of {step} in dimension {at}: from 1 to 8")
        self.check_box()

    def check_box(self) -> None:
        """Check the box."""
        for at, side in enumerate(self.box):
            if not 1 <= side <= 256:
                self.refuse(f"a box of {side} in dimension {at}: from 1 to 256")

    def check_swizzle(self) -> None:
        bits, span = ELEMENTS[self.element][1], SWIZZLES[self.swizzle][2]
        width = self.box[0] * bits
        if width % 128:
            self.refuse(
                f"a box {self.box[0]} elements wide, of {bits} bits: a multiple of 16 bytes"
            )
        if span and width // 8 > span:
            self.refuse(f"a box {width // 8} bytes wide in a swizzle of {span}: make it narrower")
        if span and width // 8 < span:
            raise Unsupported(
                f"a box {width // 8} bytes wide in a swizzle of {span}, which leaves gaps: take a "
                f"smaller swizzle"
            )
        if self.fill == "nan" and not self.element.startswith(("f", "bf", "tf")):
            self.refuse(f"NaN outside its bounds, but {self.element} has none: fill with zeros")

    def refuse(self, what: str) -> NoReturn:
        raise ValueError(f"a tensor map has {what}")

    def encode(self) -> bytes:
        """Its 128 bytes."""
        rank = len(self.sizes)

        mode, atomicity, _ = SWIZZLES[self.swizzle]
        return LAYOUT.pack(
            self.base,
            *pad_values(self.strides, 4, 0),
            *pad_values(self.sizes, 5, 1),
            *pad_values(self.box, 5, 1),
            *pad_values(self.steps or [1] * rank, 5, 1),
            ELEMENTS[self.element][0], rank, 0, mode, atomicity, 0, FILLS.index(self.fill),
            *self.mode_fields(),
            MAGIC,
        )  # fmt: skip

    def mode_fields(self) -> Sequence[int]:
        """The mode, and the corners of a bounding box: of W, H and D the lower ones, the upper."""
        return TILED, *[0] * 6


@dataclass(frozen=True)
class Im2col(TensorMap):
    """A map of images for im2col, with the fields and the rules of cuTensorMapEncodeIm2col.

    Dimensions run from the innermost: C, W, H, D, N, of which H and D may be absent. `box` is how
    many channels and how many pixels a copy takes. `lower` and `upper` are the corners of the box
    that pixels are taken from, one for W, H and D each, counted from the first and the last pixel.
    """

    lower: Sequence[int] = ()
    upper: Sequence[int] = ()

    def check_rank(self) -> None:
        rank = len(self.sizes)
        if not 3 <= rank <= 5:
            self.refuse(f"{rank} dimensions: 3, 4 or 5 for im2col")
        if len(self.strides) != rank - 1 or len(self.box) != 2:
            self.refuse(f"{len(self.strides)} strides and a box of {len(self.box)} for {rank} "
                        f"dimensions: give {rank - 1} strides, channels and pixels")  # fmt: skip
        if len(self.lower) != rank - 2 or len(self.upper) != rank - 2:
            self.refuse(f"corners of {len(self.lower)} and {len(self.upper)} numbers for {rank} "
                        f"dimensions: give {rank - 2} each")  # fmt: skip

    def check_box(self) -> None:
        channels, pixels = self.box
        if not 1 <= channels <= 256:
            self.refuse(f"{channels} channels for a pixel: from 1 to 256")
        if not 1 <= pixels <= 1024:
            self.refuse(f"{pixels} pixels for a column: from 1 to 1024")
        most = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}[len(self.sizes)]
        for at, corners in enumerate(zip(self.lower, self.upper, strict=True)):
            for one in corners:
                if not -most <= one < most:
                    self.refuse(f"a corner of {one} in dimension {at + 1}: from {-most} to "
                                f"{most - 1}")  # fmt: skip
            if self.sizes[at + 1] + corners[1] <= corners[0]:
                self.refuse(f"corners of {corners[0]} and {corners[1]} in dimension {at + 1}, with "
                            f"no pixel between them")  # fmt: skip
        if self.steps and self.steps[-1] != 1:
            raise Unsupported(f"a tensor map of im2col that strides {self.steps[-1]} images")

    def mode_fields(self) -> Sequence[int]:
        return IM2COL, *pad_values(self.lower, 3, 0), *pad_values(self.upper, 3, 0)


def tiled(
    address: int, swizzle: int, element_size: int, element: int, box: Sequence[int],
    shape: Sequence[int], strides: Sequence[int], padding: int = 0,
) -> bytes:  # fmt: skip
    """The map of a tensor as its host says it: enumerations of CUDA's, the innermost one last.

    `strides` are in elements, that of the innermost dimension included.
    """
    return TensorMap(
        address,
        HOST_ELEMENTS[element],
        tuple(shape)[::-1],
        tuple(stride * element_size for stride in strides[:-1])[::-1],
        tuple(box)[::-1],
        swizzle=tuple(SWIZZLES)[swizzle],
        fill=FILLS[padding],
    ).encode()


def im2col(
    address: int, swizzle: int, element_size: int, element: int, box: Sequence[int],
    shape: Sequence[int], strides: Sequence[int], padding: int, lower: Sequence[int],
    upper: Sequence[int], channels: int, pixels: int, steps: Sequence[int],
) -> bytes:  # fmt: skip
    """The same of images: `channels` and `pixels` are what a copy takes, which `box` repeats."""
    return Im2col(
        address,
        HOST_ELEMENTS[element],
        tuple(shape)[::-1],
        tuple(stride * element_size for stride in strides[:-1])[::-1],
        (channels, pixels),
        tuple(steps)[::-1],
        swizzle=tuple(SWIZZLES)[swizzle],
        fill=FILLS[padding],
        lower=tuple(lower)[::-1],
        upper=tuple(upper)[::-1],
    ).encode()

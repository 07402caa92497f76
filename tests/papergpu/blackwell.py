"""Kernels of sm_100a written as PTX, their launches, and descriptors of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from papergpu.launch import Settings
from ptx_launch import launch_kernel, load_kernel

HEAD = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry kernel({parameters})
.reqntid {threads}, 1, 1
{{
    .shared .align 1024 .b8 data[{shared}];
    .shared .align 16 .b8 address[16];
    .shared .align 16 .b8 barrier[64];
    .reg .b32 %x<600>;
    .reg .b64 %l<64>;
    .reg .pred %p<16>;
    .reg .b32 %tid, %warp, %lane, %t, %own;
    mov.u32 %tid, %tid.x;
    shr.u32 %warp, %tid, 5;
    and.b32 %lane, %tid, 31;
    setp.eq.u32 %p0, %warp, 0;
    setp.eq.u32 %p1, %tid, 0;
    and.b32 %own, %warp, 3;
    shl.b32 %own, %own, 21;
"""
# Warp 0 allocates, and the block learns the address, in %t.
ALLOC = """
    @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], {columns};
    @%p1 mbarrier.init.shared::cta.b64 [barrier], 1;
    bar.sync 0;
    ld.shared.b32 %t, [address];
    add.u32 %own, %own, %t;
"""
FREE = """
    bar.sync 0;
    @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, {columns};
    ret;
"""
# Waits until the phase %x599 of the mbarrier has passed.
WAIT = """
wait{number}:
    mbarrier.try_wait.parity.shared::cta.b64 %p15, [barrier], {phase};
    @!%p15 bra wait{number};
"""


def execute_body(
    body: str,
    arrays: dict[str, npt.NDArray[Any]],
    *,
    threads: int = 128,
    shared: int = 65536,
    blocks: int = 1,
    cluster: int = 1,
    settings: Settings | None = None,
) -> None:
    """Run PTX behind `HEAD`. Parameter k, an array, has its address in %l<k>."""
    names = list(arrays)
    parameters = ", ".join(f".param .u64 .ptr .global {name}" for name in names)
    text = HEAD.format(parameters=parameters, threads=threads, shared=shared)
    for number, name in enumerate(names):
        text += f"    ld.param.u64 %l{number}, [{name}];\n"
    launch_kernel(
        load_kernel(text + body + "}\n", "kernel"), *arrays.values(), names=names, grid=blocks,
        block=threads, cluster=(cluster, 1, 1), settings=settings,
    )  # fmt: skip


def list_registers(first: int, count: int) -> str:
    """`{%x5, %x6}`."""
    return "{" + ", ".join(f"%x{first + k}" for k in range(count)) + "}"


def move_words(kind: str, operand: str, first: int, count: int, step: int = 4) -> str:
    """Loads or stores `count` words of each thread, beside each other, at the address `operand`."""
    lines = []
    for k in range(count):
        at = f"[{operand}+{step * k}]"
        lines.append(
            f"ld.global.b32 %x{first + k}, {at};"
            if kind == "ld"
            else f"st.global.b32 {at}, %x{first + k};"
        )
    return "\n".join(lines) + "\n"


def advance_address(register: int, words: int) -> str:
    """%l<register> goes on by `words` words for each thread before this one."""
    return f"""
    mul.wide.u32 %l63, %tid, {4 * words};
    add.u64 %l{register}, %l{register}, %l63;
"""


def encode_shared_descriptor(
    start: int, leading: int = 0, stride: int = 0, swizzle: int = 0, base: int = 0
) -> int:
    """A descriptor of shared memory for sm_100; offsets in bytes."""
    return (
        (start & 0x3FFFF) >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46
        | base << 49 | swizzle << 61
    )  # fmt: skip


Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
WIDTHS = {0: 16, 6: 32, 4: 64, 2: 128, 1: 128}  # bytes of a row of each swizzle's pattern


def swizzle_byte(at: int, swizzle: int) -> int:
    """The byte at which the byte `at` of a pattern lies."""
    if swizzle == 1:
        return at ^ (at >> 7 & 3) << 5
    return at ^ (at >> 7 & {0: 0, 6: 1, 4: 3, 2: 7}[swizzle]) << 4


def lay_along_k(image: Bytes, start: int, matrix: Bytes, swizzle: int, into: int = 0) -> int:
    """Lay rows of bytes into shared memory, K contiguous; returns the descriptor.

    `into` is the byte of a swizzled row at which they begin, as the later steps along K do.
    """
    rows, bytes_ = matrix.shape
    width = WIDTHS[swizzle]
    stride = 8 * width if swizzle else 256
    leading = 128 if not swizzle else 16
    for r in range(rows):
        for k in range(0, bytes_, 16):
            at = start + r // 8 * stride + r % 8 * width
            at += k // 16 * leading if not swizzle else into + k
            at = swizzle_byte(at, swizzle)
            image[at : at + 16] = matrix[r, k : k + 16]
    return encode_shared_descriptor(start + into, leading, stride, swizzle)


def lay_across_k(image: Bytes, start: int, matrix: Bytes, swizzle: int) -> int:
    """Lay a matrix of [k][bytes of rows] into shared memory, M or N contiguous."""
    depth, bytes_ = matrix.shape
    width, deep = WIDTHS[swizzle], 4 if swizzle == 1 else 8
    group = width * deep
    if swizzle:
        stride, leading = group, group * -(-depth // deep)
    else:
        leading, stride = 128, 128 * -(-depth // 8)
    for k in range(depth):
        for c in range(0, bytes_, 16):
            if swizzle:
                at = c % width + c // width * leading + k % deep * width + k // deep * stride
            else:
                at = c // 16 * stride + k // 8 * leading + k % 8 * 16
            at = swizzle_byte(start + at, swizzle)
            image[at : at + 16] = matrix[k, c : c + 16]
    return encode_shared_descriptor(start, leading, stride, swizzle)


def encode_instruction(
    m: int, n: int, a: int, b: int, d: int = 1, transposed: tuple[int, int] = (0, 0),
    negated: tuple[int, int] = (0, 0), saturate: int = 0,
) -> int:  # fmt: skip
    """An instruction descriptor of a kind without scales."""
    return (
        saturate << 3 | d << 4 | a << 7 | b << 10 | negated[0] << 13 | negated[1] << 14
        | transposed[0] << 15 | transposed[1] << 16 | n >> 3 << 17 | m >> 4 << 24
    )  # fmt: skip


FILL = """
    mov.u32 %x599, %cluster_ctarank;
    mul.wide.u32 %l60, %x599, {image};
    add.u64 %l0, %l0, %l60;
    mul.wide.u32 %l60, %x599, {tensor};
    add.u64 %l1, %l1, %l60;
    mul.wide.u32 %l60, %x599, {found};
    add.u64 %l2, %l2, %l60;
    mov.u32 %x590, data;
    shl.b32 %x591, %tid, 4;
fill:
    cvt.u64.u32 %l62, %x591;
    add.u64 %l61, %l0, %l62;
    ld.global.v4.b32 {{%x592, %x593, %x594, %x595}}, [%l61];
    add.u32 %x596, %x590, %x591;
    st.shared.v4.b32 [%x596], {{%x592, %x593, %x594, %x595}};
    add.u32 %x591, %x591, 2048;
    setp.lt.u32 %p9, %x591, {image};
    @%p9 bra fill;
"""


def run_tensor_core(
    images: Bytes,
    tensor: Words,
    issued: str,
    columns: int,
    *,
    fence: str = "fence.proxy.async.shared::cta;",
    wait: str = WAIT.format(number=0, phase=0),
    commit: str | None = None,
    group: int = 1,
    first: int = 0,
    settings: Settings | None = None,
) -> Words:
    """Run `issued` in one thread, with shared memory and columns of tensor memory filled before.

    `images` has the shared memory of each block of the pair, `tensor` 128 lanes of columns each.
    `%t` is the address of what was allocated. Returns 128 lanes of `columns` columns of each block.
    """  # fmt: skip
    blocks, filled = len(images), tensor.shape[2]
    found = np.zeros((blocks, 128, columns), np.uint32)
    commit = commit or (
        "@%p8 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [barrier];"
        if group == 1 else
        "@%p8 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
        ".multicast::cluster.b64 [barrier], 3;"
    )  # fmt: skip
    meet = (
        "bar.sync 0;"
        if blocks == 1
        else "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
    )
    body = ALLOC.format(columns=512).replace("cta_group::1", f"cta_group::{group}")
    body += FILL.format(image=images.shape[1], tensor=512 * filled, found=512 * columns)
    if filled:
        body += (
            advance_address(1, filled)
            + move_words("ld", "%l1", 0, filled)
            + f"""
    tcgen05.st.sync.aligned.32x32b.x{filled}.b32 [%own], {list_registers(0, filled)};
    tcgen05.wait::st.sync.aligned;
"""
        )
    body += f"""
    {fence}
    tcgen05.fence::before_thread_sync;
    {meet}
    tcgen05.fence::after_thread_sync;
    setp.eq.and.u32 %p8, %x599, 0, %p1;
    setp.ne.u32 %p2, %tid, 1024;
    setp.eq.u32 %p3, %tid, 1024;
{issued}
    {commit}
{wait}
    tcgen05.fence::after_thread_sync;
    tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {list_registers(0, columns)}, [%own+{first}];
    tcgen05.wait::ld.sync.aligned;
""" + advance_address(2, columns) + move_words("st", "%l2", 0, columns)  # fmt: skip
    if blocks > 1:
        body += meet
    body += FREE.format(columns=512).replace("cta_group::1", f"cta_group::{group}")
    execute_body(
        body,
        {"images": images, "tensor": tensor if filled else np.zeros(1, np.uint32), "found": found},
        shared=images.shape[1], blocks=blocks, cluster=blocks, settings=settings,
    )  # fmt: skip
    return found

"""Matrices between shared memory and registers: ldmatrix, stmatrix, movmatrix, and their faults.

Warps that store matrices of 8 by 8 to one place: a finding where they differ, and only there.
"""

from __future__ import annotations

import numpy as np
import pytest
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Settings
from ptx_launch import HEAD, execute_ptx, launch_kernel, load_kernel, write_kernel

# Fills shared memory with the numbers of its halves, has lane l give row l of 16 + pitch bytes, and
# then does what a test wants with %r0 to %r3 and the address %at.
FRAME = (
    HEAD
    + """
.visible .entry k(.param .u64 out, .param .u64 rows) {{
    .shared .align 16 .b8 tile[{size}];
    .reg .b32 %r<4>, %i<8>, %at; .reg .b64 %d<8>; .reg .b16 %h; .reg .pred %p;
    mov.u32 %i0, %tid.x;
    mov.u32 %i1, tile;
    ld.param.u64 %d0, [out]; ld.param.u64 %d1, [rows];
    mov.u32 %i2, %i0;
fill:
    cvt.u16.u32 %h, %i2; mad.lo.s32 %i3, %i2, 2, %i1; st.shared.b16 [%i3], %h;
    add.s32 %i2, %i2, 32; setp.lt.u32 %p, %i2, {halves}; @%p bra fill;
    mov.b32 %r0, -1; mov.b32 %r1, -1; mov.b32 %r2, -1; mov.b32 %r3, -1;
    bar.sync 0;
    mad.wide.u32 %d2, %i0, 4, %d1; ld.global.b32 %at, [%d2]; add.s32 %at, %at, %i1;
    {body}
    bar.sync 0;
    mad.wide.u32 %d3, %i0, 4, %d0;
    {end}
    ret;
}}
"""
)
REGISTERS = "\n".join(f"st.global.b32 [%d3+{128 * k}], %r{k};" for k in range(4))
TILE = """
    mov.u32 %i2, %i0;
copy:
    mad.lo.s32 %i3, %i2, 4, %i1; ld.shared.b32 %i4, [%i3]; mad.wide.u32 %d4, %i2, 4, %d0;
    st.global.b32 [%d4], %i4;
    add.s32 %i2, %i2, 32; setp.lt.u32 %p, %i2, 512; @%p bra copy;
"""
PITCH = 48


def launch_moves(body: str, end: str, words: int, rows: np.ndarray, profile: bool = False) -> tuple:
    made = load_kernel(FRAME.format(body=body, end=end, size=2048, halves=1024))
    out = np.full(words, 0xDEAD, np.uint32)
    done = launch_kernel(
        made, out, rows.astype(np.uint32), settings=Settings(threads=1, profile=profile)
    )
    return out, made, done


def place_row(lane: int) -> int:
    """Where lane's row lies: rows in a strange order, at a pitch that is no power of two."""
    return (lane * 7 % 32) * PITCH


ROWS = np.array([place_row(lane) for lane in range(32)])


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize(
    "form", ["m8n8.x{n}{t}.shared.b16", "x{n}{t}.m8n8.shared.b16", "m8n8.x{n}{t}.shared::cta.b16"]
)
def test_ldmatrix(count: int, trans: str, form: str) -> None:
    registers = ", ".join(f"%r{k}" for k in range(count))
    body = f"ldmatrix.sync.aligned.{form.format(n=count, t=trans)} {{{registers}}}, [%at];"
    rows = ROWS.copy()
    rows[8 * count :] = 3  # the others' addresses are no matter
    out, _, _ = launch_moves(body, REGISTERS, 128, rows)
    got = out.reshape(4, 32)
    for k in range(count):
        for lane in range(32):
            if trans:
                halves = [(place_row(8 * k + lane % 4 * 2 + e) // 2 + lane // 4) for e in range(2)]
            else:
                halves = [(place_row(8 * k + lane // 4) // 2 + lane % 4 * 2 + e) for e in range(2)]
            assert got[k, lane] == halves[0] | halves[1] << 16
    assert (got[count:] == 0xFFFFFFFF).all()


def test_ldmatrix_of_a_generic_address() -> None:
    body = ("cvt.u64.u32 %d5, %at; cvta.shared.u64 %d6, %d5;"
            "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%d6+16];")  # fmt: skip
    out, _, _ = launch_moves(body, REGISTERS, 128, ROWS)
    halves = np.array([place_row(lane // 4) // 2 + 8 + lane % 4 * 2 for lane in range(32)])
    np.testing.assert_array_equal(out[:32], halves | (halves + 1) << 16)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix(count: int, trans: str) -> None:
    registers = ", ".join(f"%r{k}" for k in range(count))
    fill = "".join(
        f"mad.lo.s32 %r{k}, %i0, 131074, {0x10000 * (4096 + 64 * k + 1) + 4096 + 64 * k};"
        for k in range(count)
    )  # lane l: 4096 + 64 k + 2 l, and that plus 1
    body = f"{fill} stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%at], {{{registers}}};"
    out, _, _ = launch_moves(body, TILE, 512, ROWS)
    expected = np.arange(1024, dtype=np.uint16)
    for k in range(count):
        for r in range(8):
            for c in range(8):
                row, column = (c, r) if trans else (r, c)
                expected[place_row(8 * k + r) // 2 + c] = 4096 + 64 * k + 8 * row + column
    np.testing.assert_array_equal(out.view(np.uint16), expected)


def expect_bytes(row: int) -> np.ndarray:
    """The 16 bytes at a byte of shared memory, filled as the frame does."""
    return np.arange(1024, dtype=np.uint16).view(np.uint8)[row : row + 16]


def expect_elements(row: int, width: int) -> list[int]:
    """16 elements at a byte of shared memory, from its lowest bits on."""
    whole = int.from_bytes(expect_bytes(row).tobytes(), "little")
    return [whole >> width * k & (1 << width) - 1 for k in range(16)]


# By the figures "ldmatrix fragment layout for one 16x16 matrix" and "for one 8x16 matrix", which
# CUTLASS's SM100_U8x8_LDSM_T and SM100_SU4_DU8x16_x1_LDSM_N repeat.
@pytest.mark.parametrize(
    ("form", "width"), [("b8", 8), ("b8x16.b6x16_p32", 6), ("b8x16.b4x16_p64", 4)]
)
@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_of_bytes_transposed(form: str, width: int, count: int) -> None:
    registers = ", ".join(f"%r{k}" for k in range(2 * count))
    body = f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{form} {{{registers}}}, [%at];"
    rows = ROWS.copy()
    rows[16 * count :] = 3  # the others' addresses are no matter
    out, _, _ = launch_moves(body, REGISTERS, 128, rows)
    got = out.reshape(4, 32)
    for k in range(count):
        matrix = [expect_elements(place_row(16 * k + r), width) for r in range(16)]
        for lane in range(32):
            for half in range(2):
                want = [matrix[lane % 4 * 4 + e][lane // 4 + 8 * half] for e in range(4)]
                assert list(got[2 * k + half, lane : lane + 1].view(np.uint8)) == want
    assert (got[2 * count :] == 0xFFFFFFFF).all()


@pytest.mark.parametrize(("form", "width"), [("b6x16_p32", 6), ("b4x16_p64", 4)])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_unpacks_small_elements(form: str, width: int, count: int) -> None:
    registers = ", ".join(f"%r{k}" for k in range(count))
    body = f"ldmatrix.sync.aligned.m8n16.x{count}.shared::cta.b8x16.{form} {{{registers}}}, [%at];"
    out, _, _ = launch_moves(body, REGISTERS, 128, ROWS)
    got = out.reshape(4, 32)
    for k in range(count):
        for lane in range(32):
            row = expect_elements(place_row(8 * k + lane // 4), width)
            want = row[lane % 4 * 4 : lane % 4 * 4 + 4]
            assert list(got[k, lane : lane + 1].view(np.uint8)) == want
    assert (got[count:] == 0xFFFFFFFF).all()


# By the figure "stmatrix fragment layout for one 16x8 matrix with 8 bit elements": a lane's four
# bytes are of columns 2t and 2t + 1, of row g and then of row g + 8.
@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_of_bytes(count: int) -> None:
    registers = ", ".join(f"%r{k}" for k in range(count))
    fill = "".join(
        f"mad.lo.s32 %r{k}, %i0, 0x04040404, {0x03020100 + 0x31313131 * k}; "
        f"xor.b32 %r{k}, %r{k}, {0x10001 * k}; and.b32 %r{k}, %r{k}, 0x7f7f7f7f;"
        for k in range(count)
    )
    body = f"{fill} stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%at], {{{registers}}};"
    out, _, _ = launch_moves(body, TILE, 512, ROWS)
    expected = np.arange(1024, dtype=np.uint16).view(np.uint8).copy()
    for k in range(count):
        words = [(lane * 0x04040404 + 0x03020100 + 0x31313131 * k & 0xFFFFFFFF) ^ 0x10001 * k
                 for lane in range(32)]  # fmt: skip
        for row in range(16):
            for column in range(8):
                word = words[row % 8 * 4 + column // 2] & 0x7F7F7F7F
                byte = word >> 8 * (row // 8 * 2 + column % 2) & 255
                expected[place_row(8 * k + column) + row] = byte
    np.testing.assert_array_equal(out.view(np.uint8), expected)


def test_movmatrix() -> None:
    body = ("mad.lo.s32 %r0, %i0, 131074, 65536;"
            "movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r0;")  # fmt: skip
    out, _, _ = launch_moves(body, REGISTERS, 128, ROWS)
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    np.testing.assert_array_equal(out[32:64].view(np.uint16).reshape(8, 8), matrix.T)


LOAD = "ldmatrix.sync.aligned.m8n8.x{n}.shared.b16 {{{r}}}, [%at];"


@pytest.mark.parametrize(
    ("lane", "at", "says"),
    [
        (5, 2040, r"thread \(5, 0, 0\).* not a multiple of 16: align it"),
        (
            31,
            2048,
            r"thread \(31, 0, 0\).* reads 16 bytes at byte 2048 of shared memory, which has 2048",
        ),
        (8, 1 << 20, "reads 16 bytes at byte 1048576 of shared memory"),
    ],
)
def test_a_row_that_is_nowhere_is_found(lane: int, at: int, says: str) -> None:
    rows = ROWS.copy()
    rows[lane] = at
    body = LOAD.format(n=4, r="%r0, %r1, %r2, %r3")
    with pytest.raises(Finding, match=says):
        launch_moves(body, REGISTERS, 128, rows)
    launch_moves(LOAD.format(n=1, r="%r0"), REGISTERS, 128, rows if lane >= 8 else ROWS)


def test_it_wants_the_whole_warp() -> None:
    body = "setp.lt.u32 %p, %i0, 16; @%p bra in; bra out; in: exit; out:" + LOAD.format(
        n=1, r="%r0"
    )
    with pytest.raises(Finding, match="names lane 0, which has ended"):
        launch_moves(body, REGISTERS, 128, ROWS)


def test_lanes_that_come_apart_meet_again() -> None:
    body = "setp.lt.u32 %p, %i0, 16; @%p bra late; add.s32 %r3, %r3, 1; late:" + LOAD.format(
        n=1, r="%r0"
    )
    out, _, _ = launch_moves(body, REGISTERS, 128, ROWS)
    halves = np.array([place_row(lane // 4) // 2 + lane % 4 * 2 for lane in range(32)])
    np.testing.assert_array_equal(out[:32], halves | (halves + 1) << 16)


@pytest.mark.parametrize(
    "form",
    ["m8n8.x3.shared.b16", "m8n8.x1.global.b16", "m16n16.x1.shared.b8", "m16n16.x4.trans.shared.b8",
     "m8n16.x1.shared.b8", "m16n16.x1.trans.shared.b8", "m8n16.x1.trans.shared.b8x16.b4x16_p64"],
)  # fmt: skip
def test_what_is_no_form_is_refused(form: str) -> None:
    with pytest.raises(Unsupported):
        launch_moves(f"ldmatrix.sync.aligned.{form} {{%r0}}, [%at];", REGISTERS, 128, ROWS)


# Two warps that store to one place.

CLASHING = ".shared .align 16 .b8 tile[256];"
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


def store_clashing(value: str) -> list[int]:
    out = np.zeros(64, np.uint32)
    execute_ptx(write_kernel(BODY.format(value=value), module=CLASHING), out, block=64)
    found: list[int] = out.tolist()
    return found


def test_warps_may_store_the_same_matrix() -> None:
    assert store_clashing("mul.lo.u32 %r4, %r1, 3;") == [3 * lane for lane in range(32)] * 2


def test_warps_that_store_different_ones_clash() -> None:
    with pytest.raises(Finding, match="writes byte .* of shared memory, which thread .* wrote"):
        store_clashing("mul.lo.u32 %r4, %r0, 3;")

"""The tensor cores of sm_100 against float64: descriptors, shapes, kinds, scales, faults. Tensor
memory: who has it, how registers are moved to and from it, and what is found wrong.

Copies of registers that are on their way from tensor memory wait with them.
"""

from __future__ import annotations

import blackwell
import numpy as np
import numpy.typing as npt
import pytest
from blackwell import (
    ALLOC,
    FREE,
    WAIT,
    advance_address,
    encode_instruction,
    encode_shared_descriptor,
    execute_body,
    lay_across_k,
    lay_along_k,
    list_registers,
    move_words,
    run_tensor_core,
)
from papergpu.decode.kernel import delay_load_copies
from papergpu.errors import Finding, Unsupported
from papergpu.formats import FORMATS
from papergpu.parse import parse
from papergpu.syntax_tree import Instruction

Reals = npt.NDArray[np.float64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]
NOTHING = np.zeros((1, 128, 0), np.uint32)
SIZE = 49152
# For each type of A and B: its bits, its kind, and its number there.
TYPES = {
    "f16": (16, "f16", 0), "bf16": (16, "f16", 1), "tf32": (32, "tf32", 2),
    "e4m3": (8, "f8f6f4", 0),
    "e5m2": (8, "f8f6f4", 1), "e2m3": (6, "f8f6f4", 3), "e3m2": (6, "f8f6f4", 4),
    "e2m1": (4, "f8f6f4", 5), "u8": (8, "i8", 0), "s8": (8, "i8", 1),
}  # fmt: skip
random = np.random.default_rng(5)


def decode_narrow(name: str) -> Reals:
    """The value of each pattern of a type of up to 8 bits."""
    bits = TYPES[name][0]
    if name in ("u8", "s8"):
        return np.arange(256).astype(np.uint8 if name == "u8" else np.int8).astype(np.float64)
    values = [FORMATS[name].decode(k) for k in range(1 << bits)]
    return np.array([
        np.nan if v.kind != "finite" else float(v.magnitude) * (-1 if v.negative else 1)
        for v in values
    ])  # fmt: skip


def draw_elements(name: str, shape: tuple[int, int]) -> tuple[Words, Reals]:
    """Random elements of a type: their bits, and their values."""
    bits = TYPES[name][0]
    if bits > 8:
        values = random.integers(-16, 17, shape) / 8.0
        if name == "f16":
            return values.astype(np.float16).view(np.uint16).astype(np.uint32), values
        words = values.astype(np.float32).view(np.uint32)
        return (words >> 16 if name == "bf16" else words), values
    table = decode_narrow(name)
    # Such that no sum is rounded.
    codes = random.choice(
        np.flatnonzero(
            (table * 8 % 1 == 0) & (np.abs(table) <= (16 if TYPES[name][1] != "i8" else 255))
        ),
        shape,
    )
    return codes.astype(np.uint32), table[codes]


def pack_rows(name: str, codes: Words, dense: bool = False) -> Bytes:
    """Rows of elements as their bytes in shared memory."""
    bits = TYPES[name][0]
    if bits >= 8:
        return codes.astype({8: np.uint8, 16: np.uint16, 32: np.uint32}[bits]).view(np.uint8)
    if dense:
        return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)
    out = np.full(codes.shape, 0xEE, np.uint8)  # 16 elements in 16 bytes, padding behind them
    for at in range(0, codes.shape[1], 16):
        for row in range(len(codes)):
            whole = sum(int(c) << bits * k for k, c in enumerate(codes[row, at : at + 16]))
            size = 2 * bits
            out[row, at : at + size] = np.frombuffer(whole.to_bytes(size, "little"), np.uint8)
    return out


def instruction_depth(name: str) -> int:
    """K of one instruction."""
    return {16: 16, 32: 8}.get(TYPES[name][0], 32)


def locate_element(
    m: int, n: int, m_size: int, n_size: int, group: int, weights: bool
) -> tuple[int, int, int]:
    """The block, lane and column of an element of D, as the figures "Layout A" to "G" show."""
    if weights:
        parts = 128 // m_size
        return 0, m + m_size * (n // (n_size // parts)), n % (n_size // parts)
    if group == 1:
        return 0, (m if m_size == 128 else m % 16 + 32 * (m // 16)), n
    if m_size == 256:
        return m // 128, m % 128, n
    return m // 64, m % 64 + 64 * (n // (n_size // 2)), n % (n_size // 2)


def gather_product(found: Words, m: int, n: int, group: int = 1, weights: bool = False) -> Words:
    """D from the tensor memory of the blocks."""
    out = np.zeros((m, n), np.uint32)
    for row in range(m):
        for column in range(n):
            out[row, column] = found[locate_element(row, column, m, n, group, weights)]
    return out


def view_floats(words: Words) -> Reals:
    return words.view(np.float32).astype(np.float64)


def issue_mma(
    kind: str, a: int | str, b: int, idesc: int, *, extra: str = "", enabled: str = "%p3",
    target: str = "%t", group: int = 1, form: str = "", register: int = 10,
) -> str:  # fmt: skip
    """One tcgen05.mma by the thread %p8; A is a descriptor, or where it lies in tensor memory."""
    operand = a if isinstance(a, str) else f"%l{register}"
    load = "" if isinstance(a, str) else f"mov.b64 %l{register}, {a};\n"
    second, described = f"%l{register + 1}", f"%x{570 + register}"
    opcode = f"tcgen05.mma{form}.cta_group::{group}.kind::{kind}"
    return f"""{load}
    mov.b64 {second}, {b};
    mov.b32 {described}, {idesc};
    @%p8 {opcode} [{target}], {operand}, {second}, {described}{extra}, {enabled};
"""


def multiply_types(
    a: str, b: str, m: int = 128, n: int = 32, *, swizzle: int = 2,
    transposed: tuple[int, int] = (0, 0),
    result: int | None = None, **more: int | tuple[int, int],
) -> tuple[Words, Reals]:  # fmt: skip
    """D as words, and what it should be."""
    k = instruction_depth(a)
    a_codes, a_values = draw_elements(a, (m, k))
    b_codes, b_values = draw_elements(b, (n, k))
    image = np.full(SIZE, 0xFF, np.uint8)
    laid = []
    for start, name, codes, over in (
        (0, a, a_codes, transposed[0]),
        (16384, b, b_codes, transposed[1]),
    ):
        if over:
            laid.append(
                lay_across_k(image, start, pack_rows(name, np.ascontiguousarray(codes.T)), swizzle)
            )
        else:
            laid.append(lay_along_k(image, start, pack_rows(name, codes), swizzle))
    kind, result = TYPES[a][1], (2 if TYPES[a][1] == "i8" else 1) if result is None else result
    idesc = encode_instruction(m, n, TYPES[a][2], TYPES[b][2], result, transposed, **more)
    columns = min(128, n)
    found = run_tensor_core(image[None], NOTHING, issue_mma(kind, laid[0], laid[1], idesc), columns)
    return gather_product(found, m, columns), (a_values @ b_values.T)[:, :columns]


@pytest.mark.parametrize("swizzle", [0, 6, 4, 2])
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_swizzles_of_operands(swizzle: int, transposed: tuple[int, int]) -> None:
    found, wanted = multiply_types("f16", "f16", n=64, swizzle=swizzle, transposed=transposed)
    np.testing.assert_array_equal(view_floats(found), wanted)


def test_swizzle_of_32_bytes_at_a_time_is_for_transposed_tf32() -> None:
    found, wanted = multiply_types("tf32", "tf32", swizzle=1, transposed=(1, 1))
    np.testing.assert_array_equal(view_floats(found), wanted)


@pytest.mark.parametrize("swizzle", [6, 4, 2])
def test_transposed_bytes(swizzle: int) -> None:
    found, wanted = multiply_types("e4m3", "e5m2", swizzle=swizzle, n=64, transposed=(1, 1))
    np.testing.assert_array_equal(view_floats(found), wanted)


@pytest.mark.parametrize(
    ("m", "n"), [(128, 16), (128, 144), (128, 256), (64, 8), (64, 128), (64, 256)]
)
def test_shapes(m: int, n: int) -> None:
    found, wanted = multiply_types("f16", "f16", m, n)
    np.testing.assert_array_equal(view_floats(found), wanted)


KINDS = [("bf16", "bf16"), ("tf32", "tf32"), ("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m3", "e3m2"),
         ("e2m1", "e4m3"), ("e3m2", "e2m1")]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), KINDS)
def test_kinds(a: str, b: str) -> None:
    found, wanted = multiply_types(a, b)
    np.testing.assert_array_equal(view_floats(found), wanted)


@pytest.mark.parametrize(("a", "b"), [("u8", "s8"), ("s8", "s8")])
def test_integers(a: str, b: str) -> None:
    found, wanted = multiply_types(a, b)
    np.testing.assert_array_equal(found.view(np.int32), wanted)


def test_sums_of_16_bits() -> None:
    found, wanted = multiply_types("f16", "f16", result=0)
    np.testing.assert_array_equal(
        found.astype(np.uint16).view(np.float16), wanted.astype(np.float16)
    )


def test_negation() -> None:
    found, wanted = multiply_types("f16", "bf16", negated=(1, 0))
    np.testing.assert_array_equal(view_floats(found), -wanted)


def make_simple_product(
    m: int = 128, n: int = 32, name: str = "f16"
) -> tuple[Bytes, int, int, int, Reals]:
    """Shared memory, descriptors of A, B and the instruction, and the product."""
    a_codes, a_values = draw_elements(name, (m, instruction_depth(name)))
    b_codes, b_values = draw_elements(name, (n, instruction_depth(name)))
    image = np.full(SIZE, 0xFF, np.uint8)
    a = lay_along_k(image, 0, pack_rows(name, a_codes), 2)
    b = lay_along_k(image, 16384, pack_rows(name, b_codes), 2)
    kind = TYPES[name][2]
    idesc = encode_instruction(m, n, kind, kind, 2 if TYPES[name][1] == "i8" else 1)
    return image[None], a, b, idesc, a_values @ b_values.T


def test_sums_are_added_to_and_scaled() -> None:
    image, a, b, idesc, wanted = make_simple_product()
    before = random.integers(-64, 64, (1, 128, 32)).astype(np.float32)
    found = run_tensor_core(
        image, before.view(np.uint32), issue_mma("f16", a, b, idesc, enabled="%p2"), 32
    )
    np.testing.assert_array_equal(view_floats(found[0]), wanted + before[0])
    issued = issue_mma("f16", a, b, idesc, enabled="%p2, 3")
    found = run_tensor_core(image, before.view(np.uint32), issued, 32)
    np.testing.assert_array_equal(view_floats(found[0]), wanted + before[0] / 8)


def test_integers_saturate_if_they_are_told() -> None:
    image, a, b, idesc, wanted = make_simple_product(name="u8")
    before = np.full((1, 128, 32), 0x7FFFFFF0, np.uint32)
    found = run_tensor_core(image, before, issue_mma("i8", a, b, idesc | 8, enabled="%p2"), 32)
    assert (found == 0x7FFFFFFF).all()
    found = run_tensor_core(image, before, issue_mma("i8", a, b, idesc, enabled="%p2"), 32)
    np.testing.assert_array_equal(
        found[0], (wanted.astype(np.int64) + 0x7FFFFFF0).astype(np.uint32)
    )


def test_lanes_that_are_disabled_keep_what_they_hold() -> None:
    image, a, b, idesc, wanted = make_simple_product()
    before = np.full((1, 128, 32), 1.0, np.float32)
    extra = ", {%x560, %x561, %x561, %x561}"
    issued = "mov.b32 %x560, 0x0001000f; mov.b32 %x561, 0;\n" + issue_mma(
        "f16", a, b, idesc, extra=extra
    )
    found = view_floats(run_tensor_core(image, before.view(np.uint32), issued, 32)[0])
    off = np.zeros(128, bool)
    off[[0, 1, 2, 3, 16]] = True
    np.testing.assert_array_equal(found, np.where(off[:, None], 1.0, wanted))


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "s8"])
@pytest.mark.parametrize("m", [128, 64])
def test_a_in_tensor_memory(name: str, m: int) -> None:
    codes, values = draw_elements(name, (m, instruction_depth(name)))
    image, _, b, idesc, _ = make_simple_product(m, name=name)
    b_codes, b_values = draw_elements(name, (32, instruction_depth(name)))
    b = lay_along_k(image[0], 16384, pack_rows(name, b_codes), 2)
    tensor = np.zeros((1, 128, 64), np.uint32)
    rows = pack_rows(name, codes).view(np.uint32)
    for row in range(m):
        tensor[0, locate_element(row, 0, m, 32, 1, False)[1], 40:48] = rows[row]
    found = run_tensor_core(image, tensor, issue_mma(TYPES[name][1], "[%t+40]", b, idesc), 32)
    d = gather_product(found, m, 32)
    got = d.view(np.int32) if name == "s8" else view_floats(d)
    np.testing.assert_array_equal(got, values @ b_values.T)


def test_steps_along_k_within_a_swizzled_row() -> None:
    image = np.full(SIZE, 0xFF, np.uint8)
    issued, wanted = "", 0.0
    for step in range(4):
        a_codes, a_values = draw_elements("f16", (128, 16))
        b_codes, b_values = draw_elements("f16", (32, 16))
        a = lay_along_k(image, 0, pack_rows("f16", a_codes), 2, 32 * step)
        b = lay_along_k(image, 16384, pack_rows("f16", b_codes), 2, 32 * step)
        issued += issue_mma(
            "f16",
            a,
            b,
            encode_instruction(128, 32, 0, 0),
            enabled="%p2" if step else "%p3",
            register=10 + 2 * step,
        )
        wanted = wanted + a_values @ b_values.T
    found = run_tensor_core(image[None], NOTHING, issued, 32)
    np.testing.assert_array_equal(view_floats(found[0]), wanted)


def test_a_pattern_that_begins_elsewhere_has_a_base() -> None:
    image = np.full(SIZE, 0xFF, np.uint8)
    a_codes, a_values = draw_elements("f16", (128, 16))
    b_codes, b_values = draw_elements("f16", (32, 16))
    a = lay_along_k(image, 0, pack_rows("f16", a_codes), 2)
    rows = pack_rows("f16", b_codes)
    for r in range(32):  # as a pattern that begins 3 rows of 128 bytes behind a multiple of 1024
        for k in (0, 16):
            at = 16384 + 3 * 128 + r * 128 + k
            at ^= ((at >> 7) - 3 & 7) << 4
            image[at : at + 16] = rows[r, k : k + 16]
    b = encode_shared_descriptor(16384 + 3 * 128, 16, 1024, 2, base=3)
    found = run_tensor_core(
        image[None], NOTHING, issue_mma("f16", a, b, encode_instruction(128, 32, 0, 0)), 32
    )
    np.testing.assert_array_equal(view_floats(found[0]), a_values @ b_values.T)


# Scales: 32 lanes of columns of 4 bytes; row r is in lane r % 32 and column r // 32, four times.
def write_scale_columns(codes: Words) -> Words:
    """The columns that hold the scales of rows, of up to 4 bytes each."""
    rows, count = codes.shape
    out = np.zeros((128, -(-rows // 32)), np.uint32)
    for row in range(rows):
        word = sum(int(codes[row, s]) << 8 * s for s in range(count))
        out[row % 32 :: 32, row // 32] = word
    return out


def decode_powers(codes: Words) -> Reals:
    return np.ldexp(1.0, codes.astype(np.int64) - 127)


def multiply_scaled(
    kind: str, name: str, size: int, ids: tuple[int, int], codes: Words, n: int = 64,
    stored: str = "powers",
) -> tuple[Reals, Reals]:  # fmt: skip
    """D of block-scaled operands, and what it should be.

    `codes` has 4 scales of each row of A, then of B.
    """
    dense = kind != "mxf8f6f4"
    k = 64 if dense else 32
    a_codes, a_values = draw_elements(name, (128, k))
    b_codes, b_values = draw_elements(name, (n, k))
    image = np.full(SIZE, 0xFF, np.uint8)
    a = lay_along_k(image, 0, pack_rows(name, a_codes, dense), 2)
    b = lay_along_k(image, 16384, pack_rows(name, b_codes, dense), 2)
    tensor = np.zeros((1, 128, 128), np.uint32)
    tensor[0, :, 64:68] = write_scale_columns(codes[:128])
    tensor[0, :, 72 : 72 + n // 32] = write_scale_columns(codes[128 : 128 + n])
    number = 1 if dense else TYPES[name][2]
    idesc = (ids[1] << 4 | number << 7 | number << 10 | n >> 3 << 17 | (stored == "powers") << 23
             | 8 << 24 | ids[0] << 29)  # fmt: skip
    form = f".block_scale.scale_vec::{size}X"
    issued = f"""
    mov.b64 %l10, {a};
    mov.b64 %l11, {b};
    mov.b32 %x580, {idesc};
    @%p8 tcgen05.mma.cta_group::1.kind::{kind}{form} [%t], %l10, %l11, %x580, [%t+64], [%t+72], %p3;
"""
    found = run_tensor_core(image[None], tensor, issued, n)
    value = decode_powers if stored == "powers" else lambda c: decode_narrow("e4m3")[c & 0x7F]
    by_a = value(codes[:128, ids[0] : ids[0] + size]).repeat(k // size, 1)
    by_b = value(codes[128 : 128 + n, ids[1] : ids[1] + size]).repeat(k // size, 1)
    return view_floats(found[0]), (a_values * by_a) @ (b_values * by_b).T


@pytest.mark.parametrize("ids", [(0, 0), (1, 3)])
@pytest.mark.parametrize("name", ["e4m3", "e2m1", "e3m2"])
def test_scales_of_32_bytes(name: str, ids: tuple[int, int]) -> None:
    codes = random.integers(125, 130, (192, 4)).astype(np.uint32)
    found, wanted = multiply_scaled("mxf8f6f4", name, 1, ids, codes)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("ids", [(0, 0), (2, 0)])
@pytest.mark.parametrize("kind", ["mxf4", "mxf4nvf4"])
def test_scales_of_32_elements_of_4_bits(kind: str, ids: tuple[int, int]) -> None:
    codes = random.integers(125, 130, (192, 4)).astype(np.uint32)
    found, wanted = multiply_scaled(kind, "e2m1", 2, ids, codes)
    np.testing.assert_array_equal(found, wanted)


def test_scales_of_16_elements_of_4_bits() -> None:
    codes = random.integers(0x28, 0x40, (192, 4)).astype(np.uint32)
    found, wanted = multiply_scaled("mxf4nvf4", "e2m1", 4, (0, 0), codes, stored="e4m3")
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-4)


def test_scales_at_the_ends_of_their_range() -> None:
    codes = np.empty((192, 4), np.uint32)
    codes[:128], codes[128:] = 250, 3
    found, wanted = multiply_scaled("mxf8f6f4", "e4m3", 1, (0, 0), codes)
    np.testing.assert_array_equal(found, wanted)


COPIED = {  # rows, chunks of 16 bytes, and the lanes that row r goes to
    "128x256b": (128, 2, lambda r: [r]),
    "4x256b": (4, 2, lambda r: [32 * r]),
    "128x128b": (128, 1, lambda r: [r]),
    "64x128b.warpx2::02_13": (64, 1, lambda r: [r, r + 64]),
    "64x128b.warpx2::01_23": (64, 1, lambda r: [r % 32 + r // 32 * 64, r % 32 + r // 32 * 64 + 32]),
    "32x128b.warpx4": (32, 1, lambda r: [r, r + 32, r + 64, r + 96]),
}


@pytest.mark.parametrize("shape", COPIED)
@pytest.mark.parametrize("swizzle", [0, 2])
def test_copies_from_shared_memory(shape: str, swizzle: int) -> None:
    rows, chunks, lanes = COPIED[shape]
    image = np.full(SIZE, 0xFF, np.uint8)
    matrix = random.integers(0, 256, (rows, 16 * chunks), dtype=np.uint8)
    source = lay_along_k(image, 1024, matrix, swizzle)
    before = np.full((1, 128, 16), 7, np.uint32)
    issued = f"mov.b64 %l10, {source};\n@%p8 tcgen05.cp.cta_group::1.{shape} [%t+4], %l10;\n"
    found = run_tensor_core(image[None], before, issued, 16)[0]
    wanted = before[0].copy()
    for row in range(rows):
        wanted[lanes(row), 4 : 4 + 4 * chunks] = matrix[row].view(np.uint32)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("m", "n"), [(256, 64), (128, 64)])
def test_a_pair_of_blocks(m: int, n: int) -> None:
    a_codes, a_values = draw_elements("f16", (m, 16))
    b_codes, b_values = draw_elements("f16", (n, 16))
    images = np.full((2, SIZE), 0xFF, np.uint8)
    for q in range(2):
        a = lay_along_k(images[q], 0, pack_rows("f16", a_codes[q * m // 2 : (q + 1) * m // 2]), 2)
        b = lay_along_k(
            images[q], 16384, pack_rows("f16", b_codes[q * n // 2 : (q + 1) * n // 2]), 4
        )
    nothing = np.zeros((2, 128, 0), np.uint32)
    issued = issue_mma("f16", a, b, encode_instruction(m, n, 0, 0), group=2)
    found = run_tensor_core(images, nothing, issued, n if m == 256 else n // 2, group=2)
    np.testing.assert_array_equal(
        view_floats(gather_product(found, m, n, 2)), a_values @ b_values.T
    )


@pytest.mark.parametrize("m", [32, 64, 128])
def test_weights_that_stay(m: int) -> None:
    image, a, b, idesc, wanted = make_simple_product(m, 128)
    issued = (
        issue_mma("f16", a, b, idesc)
        .replace("mma.cta", "mma.ws.cta")
        .replace("f16 [", "f16.collector::b0::fill [")
    )
    found = run_tensor_core(image, NOTHING, issued, m)
    np.testing.assert_array_equal(view_floats(gather_product(found, m, 128, weights=True)), wanted)


# Planted faults.


def find_mma_fault(
    issued: str = "", commit: str | None = None, wait: str = WAIT.format(number=0, phase=0),
    fence: str = "fence.proxy.async.shared::cta;",
) -> str:  # fmt: skip
    """What is found in a product that works but for what is changed."""
    image, a, b, idesc, _ = make_simple_product()
    issued = issued or issue_mma("f16", a, b, idesc)
    with pytest.raises(Finding) as found:
        run_tensor_core(image, NOTHING, issued, 32, commit=commit, wait=wait, fence=fence)
    return str(found.value)


def test_a_commit_that_is_missing_is_found() -> None:
    assert "mbarrier" in find_mma_fault(commit=" ")


def test_a_wait_that_is_missing_is_found() -> None:
    assert "still in flight, writes" in find_mma_fault(wait="")


def test_a_fence_between_proxies_that_is_missing_is_found() -> None:
    assert "fence.proxy.async" in find_mma_fault(fence="")


def test_descriptors_that_no_instruction_has_are_found() -> None:
    image, a, b, idesc, _ = make_simple_product()
    for wrong, said in (
        (issue_mma("f16", a & ~(1 << 46), b, idesc), "build it for sm_100"),
        (issue_mma("f16", a, b | 3 << 61, idesc), "reserved bits set, or swizzle 3"),
        (issue_mma("f16", a, b, idesc | 4), "sparse"),
        (issue_mma("f16", a, b, idesc | 1 << 6), "reserved bits"),
        (issue_mma("f16", a, b, encode_instruction(128, 8, 0, 0)), "asks for M 128 and N 8"),
        (issue_mma("f16", a, b, encode_instruction(128, 32, 2, 0)), "gives A the type 2"),
        (issue_mma("f16", a | 0x3FFF, b, idesc), "reaches byte"),
        (issue_mma("f16", a, b, idesc, target="%t+500"), "which has 512"),
        (issue_mma("f16", a, b, idesc, target="%t+1048576"), "begins at lane 0"),
    ):
        assert said in find_mma_fault(issued=wrong)


# ---- tensor memory

# Registers of x1, and where register r of lane l lies, as "Data movement shape" shows.
SHAPES = {
    "32x32b": (1, lambda lane, r: (lane, r)),
    "16x64b": (1, lambda lane, r: (lane // 4 + 8 * (lane % 2), lane // 2 % 2 + 2 * r)),
    "16x128b": (2, lambda lane, r: (lane // 4 + 8 * (r % 2), lane % 4 + 4 * (r // 2))),
    "16x256b": (
        4,
        lambda lane, r: (lane // 4 + 8 * (r // 2 % 2), r % 2 + 2 * (lane % 4) + 8 * (r // 4)),
    ),
}
IMAGE = 64  # columns


def store_image(image: Words) -> str:
    """Writes `image`, of 128 lanes and 64 columns, from its parameter %l0."""
    return (
        advance_address(0, IMAGE)
        + move_words("ld", "%l0", 0, IMAGE)
        + f"""
    tcgen05.st.sync.aligned.32x32b.x64.b32 [%own], {list_registers(0, IMAGE)};
    tcgen05.wait::st.sync.aligned;
"""
    )


def load_image(
    form: str, count: int, half: str = "", lanes: int = 0, image: Words | None = None
) -> Words:
    """What each thread's registers hold after a tcgen05.ld of an image of one's own numbers."""
    image = np.arange(128 * IMAGE, dtype=np.uint32).reshape(128, IMAGE) if image is None else image
    found = np.zeros((128, count), np.uint32)
    body = ALLOC.format(columns=64) + store_image(image) + advance_address(1, count) + f"""
    add.u32 %x500, %own, {lanes << 16};
    tcgen05.ld.sync.aligned.{form}.b32 {list_registers(0, count)}, [%x500]{half};
    tcgen05.wait::ld.sync.aligned;
""" + move_words("st", "%l1", 0, count) + FREE.format(columns=64)  # fmt: skip
    execute_body(body, {"image": image, "found": found})
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("times", [1, 2, 4])
def test_load_gives_each_lane_what_the_figures_show(shape: str, times: int) -> None:
    each, where = SHAPES[shape]
    found = load_image(f"{shape}.x{times}", each * times)
    for thread in range(128):
        for r in range(each * times):
            row, column = where(thread % 32, r)
            assert found[thread, r] == (thread // 32 * 32 + row) * IMAGE + column


def test_load_of_sixteen_lanes_takes_the_upper_ones_as_well() -> None:
    assert load_image("16x64b.x1", 1, lanes=16)[40, 0] == (32 + 16 + 2) * IMAGE


def test_two_pieces_of_sixteen_lanes_lie_apart_by_what_is_said() -> None:
    found = load_image("16x32bx2.x4", 4, ", 20")
    for thread in range(128):
        lane = thread % 32
        first = (thread // 32 * 32 + lane % 16) * IMAGE + (20 if lane >= 16 else 0)
        assert list(found[thread]) == [first + k for k in range(4)]


def test_pack_takes_the_low_halves_of_two_columns() -> None:
    image = np.random.default_rng(0).integers(0, 1 << 32, (128, IMAGE), dtype=np.uint32)
    found = load_image("32x32b.x4.pack::16b", 4, image=image)
    low = image & 0xFFFF
    np.testing.assert_array_equal(found, low[:, 0:8:2] | low[:, 1:8:2] << 16)
    found = load_image("16x256b.x1.pack::16b", 4, image=image)
    assert found[1, 3] == low[8, 2 * 3] | low[8, 2 * 3 + 1] << 16


@pytest.mark.parametrize("shape", SHAPES)
def test_store_puts_back_what_load_takes(shape: str) -> None:
    each, where = SHAPES[shape]
    given = np.arange(128 * each * 2, dtype=np.uint32).reshape(128, -1)
    found = np.zeros((128, IMAGE), np.uint32)
    body = ALLOC.format(columns=64) + advance_address(0, each * 2)
    body += (
        move_words("ld", "%l0", 0, each * 2)
        + f"""
    tcgen05.st.sync.aligned.{shape}.x2.b32 [%own], {list_registers(0, each * 2)};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x64.b32 {list_registers(100, IMAGE)}, [%own];
    tcgen05.wait::ld.sync.aligned;
"""
        + advance_address(1, IMAGE)
        + move_words("st", "%l1", 100, IMAGE)
        + FREE.format(columns=64)
    )
    execute_body(body, {"given": given, "found": found})
    for thread in range(128):
        for r in range(each * 2):
            row, column = where(thread % 32, r)
            assert found[thread // 32 * 32 + row, column] == given[thread, r]


def test_unpack_spreads_halves_over_columns() -> None:
    given = np.random.default_rng(0).integers(0, 1 << 32, (128, 2), dtype=np.uint32)
    found = np.zeros((128, 4), np.uint32)
    body = ALLOC.format(columns=32) + advance_address(0, 2) + move_words("ld", "%l0", 0, 2) + """
    tcgen05.st.sync.aligned.32x32b.x2.unpack::16b.b32 [%own], {%x0, %x1};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {%x4, %x5, %x6, %x7}, [%own];
    tcgen05.wait::ld.sync.aligned;
""" + advance_address(1, 4) + move_words("st", "%l1", 4, 4) + FREE.format(columns=32)  # fmt: skip
    execute_body(body, {"given": given, "found": found})
    np.testing.assert_array_equal(found[:, 0::2], given & 0xFFFF)
    np.testing.assert_array_equal(found[:, 1::2], given >> 16)


def test_registers_of_a_load_hold_nothing_before_its_wait() -> None:
    image = np.arange(128 * IMAGE, dtype=np.uint32).reshape(128, IMAGE)
    found = np.zeros((128, 1), np.uint32)
    body = ALLOC.format(columns=64) + store_image(image) + advance_address(1, 1) + """
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x0}, [%own];
    st.global.b32 [%l1], %x0;
    tcgen05.wait::ld.sync.aligned;
""" + FREE.format(columns=64)  # fmt: skip
    execute_body(body, {"image": image, "found": found})
    assert not (found == image[:, :1]).any()


def find_memory_misuse(middle: str, columns: int = 32, free: str | None = None, **more: int) -> str:
    """What is found in a kernel that allocates, does `middle` and frees."""
    body = ALLOC.format(columns=columns) + middle
    body += FREE.format(columns=columns) if free is None else free
    with pytest.raises(Finding) as found:
        execute_body(body, {"out": np.zeros(1024, np.uint32)}, **more)
    return str(found.value)


LOAD = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%x0}}, [{}];\n"
WAITED = "tcgen05.wait::ld.sync.aligned;\n"


def test_lanes_of_another_warp_are_found() -> None:
    said = find_memory_misuse(LOAD.format("%t") + WAITED)
    assert "to 127 alone" in said or "to 95 alone" in said or "to 63 alone" in said


def test_columns_that_are_not_allocated_are_found() -> None:
    assert "column 32 of tensor memory, which is not allocated" in find_memory_misuse(
        LOAD.format("%own+32") + WAITED
    )
    assert "which has 512" in find_memory_misuse(LOAD.format("%own+512") + WAITED)


def test_a_leak_is_found() -> None:
    assert "has not freed the 64 columns" in find_memory_misuse("", 64, free="ret;\n")


def test_freeing_twice_is_found() -> None:
    again = "@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 32;\n"
    assert "not allocated" in find_memory_misuse(again)


def test_freeing_another_number_of_columns_is_found() -> None:
    free = "bar.sync 0;\n@%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 32;\nret;\n"
    assert "allocated 64" in find_memory_misuse("", 64, free=free)


def test_a_load_that_is_not_waited_for_is_found() -> None:
    assert "wait::ld" in find_memory_misuse(LOAD.format("%own"))


def test_a_store_that_is_not_waited_for_is_found() -> None:
    store = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%own], {%x0};\n"
    assert "wait::st" in find_memory_misuse(store + LOAD.format("%own") + WAITED)
    assert "wait::st" in find_memory_misuse(store)


def test_allocating_after_the_permit_is_given_up_is_found() -> None:
    middle = """
    @%p0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    @%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], 32;
"""
    assert "relinquish" in find_memory_misuse(middle)


@pytest.mark.parametrize("columns", [16, 48, 1024])
def test_a_number_of_columns_that_cannot_be_had_is_found(columns: int) -> None:
    assert "it must be 32, 64" in find_memory_misuse("", columns)


def test_allocating_more_than_there_is_waits_for_ever() -> None:
    more = "@%p0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], 256;\n"
    assert "columns of tensor memory" in find_memory_misuse(more, 512)


def test_allocating_waits_until_columns_are_freed() -> None:
    found = np.zeros(1, np.uint32)
    body = (
        ALLOC.format(columns=512)
        + """
    setp.eq.u32 %p2, %warp, 1;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address+4], 32;
    @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t, 512;
    bar.sync 0;
    ld.shared.b32 %x0, [address+4];
    @%p1 st.global.b32 [%l0], %x0;
    @%p0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %x0, 32;
    ret;
"""
    )
    found[:] = 7
    execute_body(body, {"found": found})
    assert found[0] == 0


def test_a_form_that_nobody_has_is_refused() -> None:
    for form in (
        "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%x0}, [%own]",
        "tcgen05.shift.cta_group::1.down [%own]",
        "tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {%x0, %x1}, %x2, [%own]",
    ):
        with pytest.raises(Unsupported):
            execute_body(ALLOC.format(columns=32) + form + ";\n", {})


def test_the_helpers_agree() -> None:
    assert (
        blackwell.encode_shared_descriptor(0x400, 16, 1024, 2)
        == 0x40 | 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61
    )


# Registers on their way.

AWAITED = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%a, %b}, [%t];"
WAIT = "tcgen05.wait::ld.sync.aligned;"
PACK = "mov.b64 %p, {%a, %b};"


def order_instructions(body: str) -> list[str]:
    text = f".version 8.7\n.target sm_100a\n.address_size 64\n.entry k() {{ {body} }}\n"
    block = parse(text).functions[0].body
    assert block is not None
    return [one.form.partition(".")[0] + "".join(f" {name}" for name in one.form.split(".")[1:2])
            if isinstance(one, Instruction) else type(one).__name__
            for one in delay_load_copies(block.items)]  # fmt: skip


def test_copies_go_behind_the_wait_and_stay_in_order() -> None:
    assert order_instructions(f"{AWAITED} {PACK} mov.b64 %q, %p; {WAIT} ret;") == [
        "tcgen05 ld", "tcgen05 wait::ld", "mov b64", "mov b64", "ret"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("between", "expected"),
    [("add.u32 %c, %a, 1;", ["add u32"]),  # a sum that is too early stays where it is
     ("mov.b32 %c, %d;", ["mov b32"]),
     ("@%g mov.b32 %c, %a;", ["mov b32"])],
)  # fmt: skip
def test_whatever_else_stays_where_it_is(between: str, expected: list[str]) -> None:
    found = order_instructions(f"{AWAITED} {between} {WAIT}")
    assert found == ["tcgen05 ld", *expected, "tcgen05 wait::ld"]


@pytest.mark.parametrize("between", ["add.u64 %r, %p, 1;", "L:", "bar.sync 0;", "{ ret; }"])
def test_a_copy_that_something_follows_is_not_held_back(between: str) -> None:
    found = order_instructions(f"{AWAITED} {PACK} {between} {WAIT}")
    assert found.index("mov b64") == 1 and found[-1] == "tcgen05 wait::ld"


def test_without_a_load_nothing_moves() -> None:
    assert order_instructions(f"{PACK} {WAIT} {PACK}") == ["mov b64", "tcgen05 wait::ld", "mov b64"]

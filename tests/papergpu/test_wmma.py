"""wmma: load, multiply and store in every shape, type, layout and space, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from matrices import WIDTHS, Reals, decode_sums, draw_matrix, encode_numbers
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Settings, aligned_zeros
from ptx_launch import HEAD, execute_ptx, load_kernel


def count_registers(kind: str, rows: int, columns: int, sums: bool) -> int:
    """How many registers a fragment has, by the table of fragments in the PTX ISA."""
    if kind == "f16":
        return 4 if sums else 8
    return max(1, rows * columns * WIDTHS[kind] // (64 if kind == "f64" else 32) // 32)


def store_matrix(matrix: Reals, kind: str, layout: str, stride: int) -> np.ndarray:
    """A matrix in memory, its lines `stride` elements apart; what lies between is noise."""
    lines = matrix if layout == "row" else matrix.T
    bits = encode_numbers(lines, kind)
    width = WIDTHS[kind]
    if width >= 8:
        found = np.full((len(lines), stride), 0xA5, f"u{width // 8}")
        found[:, : lines.shape[1]] = bits
        return found.reshape(-1)
    per = 8 // width
    shifts = (np.arange(per) * width).astype(np.uint64)
    parts = np.bitwise_or.reduce(bits.reshape(len(lines), -1, per) << shifts, axis=2)
    found = np.full((len(lines), stride // per), 0xA5, np.uint8)
    found[:, : parts.shape[1]] = parts
    return found.reshape(-1)


def read_matrix(memory: np.ndarray, kind: str, layout: str, stride: int, m: int, n: int) -> Reals:
    lines, length = (m, n) if layout == "row" else (n, m)
    found = decode_sums(memory.reshape(lines, stride)[:, :length].astype(np.uint64), kind)
    return found if layout == "row" else found.T


def multiply_wmma(
    shape: str,
    kinds: tuple[str, str, str, str],
    a: Reals,
    b: Reals,
    c: Reals,
    layouts: tuple[str, str, str] = ("row", "col", "row"),
    pad: int = 0,
    space: str = "global",
    option: str = "",
    settings: Settings | None = None,
) -> Reals:
    """d = a b + c by wmma; `pad` elements of 16 bytes lie between lines."""  # fmt: skip
    d_kind, a_kind, b_kind, c_kind = kinds
    m, n, k = a.shape[0], b.shape[1], a.shape[1]
    arrays, strides = [], []
    for matrix, kind, layout in (
        (a, a_kind, layouts[0]),
        (b, b_kind, layouts[1]),
        (c, c_kind, layouts[2]),
    ):
        least = matrix.shape[1] if layout == "row" else matrix.shape[0]
        stride = least + pad * 128 // WIDTHS[kind]
        strides.append(stride)
        arrays.append(store_matrix(matrix, kind, layout, stride))
    d_stride = (n if layouts[2] == "row" else m) + pad * 128 // WIDTHS[d_kind]
    d_lines = m if layouts[2] == "row" else n
    result = np.zeros(d_lines * d_stride, f"u{WIDTHS[d_kind] // 8}")

    def name_registers(letter: str, kind: str, rows: int, columns: int) -> str:
        count = count_registers(kind, rows, columns, letter in "cd")
        return "{" + ", ".join(f"%{letter}{i}" for i in range(count)) + "}"

    lists = {
        "a": name_registers("a", a_kind, m, k),
        "b": name_registers("b", b_kind, k, n),
        "c": name_registers("c", c_kind, m, n),
        "d": name_registers("d", d_kind, m, n),
    }
    each = "b64" if a_kind == "f64" else "b32"
    where = "" if space == "generic" else f".{space}"
    body, tile = [], ""
    for number, (letter, array) in enumerate(zip("abc", arrays, strict=True)):
        kind, layout = kinds[number + 1], layouts[number]
        address = f"%p{number}"
        body.append(f"ld.param.u64 %p{number}, [p{number}];")
        if space != "global":  # through shared memory
            tile += f".shared .align 32 .b8 tile{number}[{len(array) * array.itemsize}];\n"
            words = len(array) * array.itemsize // 4
            body.append(
                f"mov.u32 %s{number}, tile{number}; mov.u32 %i, %tid.x;\nmore{number}:"
                f" setp.ge.u32 %q, %i, {words}; @%q bra done{number};"
                f" mad.wide.u32 %x, %i, 4, %p{number}; ld.global.b32 %v, [%x];"
                f" mad.lo.u32 %y, %i, 4, %s{number}; st.shared.b32 [%y], %v;"
                f" add.u32 %i, %i, 32; bra more{number};\ndone{number}: bar.sync 0;"
            )
            address = f"%s{number}"
            if space == "generic":
                body.append(f"cvt.u64.u32 %x, %s{number}; cvta.shared.u64 %p{number}, %x;")
                address = f"%p{number}"
        stride = f", {strides[number]}" if pad else ""
        body.append(f"wmma.load.{letter}.sync.aligned.{layout}.{shape}{where}.{kind}"
                    f" {lists[letter]}, [{address}]{stride};")  # fmt: skip
    tail = f"{d_kind}.{c_kind}" if a_kind == "f16" else ".".join((d_kind, a_kind, b_kind, c_kind))
    head = f".{option}.popc" if a_kind == "b1" else ""
    sat = ".satfinite" if option == "satfinite" else ""
    body.append(f"wmma.mma{head}.sync.aligned.{layouts[0]}.{layouts[1]}.{shape}.{tail}{sat} "
                + ", ".join(lists[letter] for letter in "dabc") + ";")  # fmt: skip
    stride = f", {d_stride}" if pad else ""
    body.append("ld.param.u64 %p3, [p3];")
    body.append(
        f"wmma.store.d.sync.aligned.{layouts[2]}.{shape}.global.{d_kind} "
        f"[%p3], {lists['d']}{stride};"
    )
    text = (
        HEAD + f".visible .entry k({', '.join(f'.param .u64 p{i}' for i in range(4))}) {{\n{tile}"
        + f".reg .{each} %a<8>, %b<8>, %c<8>, %d<8>; .reg .b64 %p<4>, %x; .reg .pred %q;\n"
        + ".reg .b32 %s<3>, %i, %v, %y;\n" + "\n".join(body) + "\nret;\n}\n"
    )  # fmt: skip
    # 32 bytes are what the widest fragment must be aligned to
    given = []
    for array in (*arrays, result):
        piece = aligned_zeros(array.nbytes, 32).view(array.dtype)
        piece[:] = array
        given.append(piece)
    execute_ptx(text, *given, settings=settings)
    return read_matrix(given[3], d_kind, layouts[2], d_stride, m, n)


SIXTEEN = ("m16n16k16", "m32n8k16", "m8n32k16")
CASES = [
    *((shape, (d, "f16", "f16", c)) for shape in SIXTEEN
      for d in ("f16", "f32") for c in ("f16", "f32")),
    *((shape, ("f32", "bf16", "bf16", "f32")) for shape in SIXTEEN),
    *((shape, ("s32", kind, kind, "s32")) for shape in SIXTEEN for kind in ("s8", "u8")),
    ("m16n16k8", ("f32", "tf32", "tf32", "f32")),
    ("m8n8k4", ("f64", "f64", "f64", "f64")),
    ("m8n8k32", ("s32", "s4", "s4", "s32")),
    ("m8n8k32", ("s32", "u4", "u4", "s32")),
    ("m8n8k128", ("s32", "b1", "b1", "s32")),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "kinds"), CASES, ids=lambda one: "".join(one))
def test_every_shape_type_and_layout(shape: str, kinds: tuple[str, str, str, str]) -> None:
    generator = np.random.default_rng(3)
    m, n, k = (int(part) for part in shape[1:].replace("n", "k").split("k"))
    d, a_kind, b_kind, c_kind = kinds
    a, b = draw_matrix(generator, a_kind, m, k), draw_matrix(generator, b_kind, k, n)
    c = draw_matrix(generator, "s8" if c_kind == "s32" else c_kind, m, n)
    expected = c + a @ b
    if d == "f16":
        expected = expected.astype(np.float16)
    sides = (
        [("row", "col")]
        if WIDTHS[a_kind] < 8
        else [(x, y) for x in ("row", "col") for y in ("row", "col")]
    )
    tries = [(la, lb, lc, pad, space) for la, lb in sides for lc, pad, space in
             (("row", 0, "global"), ("col", 2, "shared"), ("row", 1, "generic"))]  # fmt: skip
    for la, lb, lc, pad, space in tries:
        got = multiply_wmma(
            shape, kinds, a, b, c, (la, lb, lc), pad, space, "and" if a_kind == "b1" else ""
        )
        np.testing.assert_array_equal(got, expected, err_msg=f"{la} {lb} {lc} {pad} {space}")


def test_single_bits_that_differ() -> None:
    generator = np.random.default_rng(5)
    a, b = draw_matrix(generator, "b1", 8, 128), draw_matrix(generator, "b1", 128, 8)
    got = multiply_wmma(
        "m8n8k128", ("s32", "b1", "b1", "s32"), a, b, np.zeros((8, 8)), option="xor"
    )
    np.testing.assert_array_equal(got, (a[:, :, None] != b[None]).sum(1))


def test_integers_saturate() -> None:
    a, b, c = np.full((16, 16), 127.0), np.full((16, 16), 127.0), np.full((16, 16), 2.0**31 - 1)
    kinds = ("s32", "s8", "s8", "s32")
    got = multiply_wmma("m16n16k16", kinds, a, b, c, option="satfinite")
    assert (got == 2.0**31 - 1).all()
    assert (multiply_wmma("m16n16k16", kinds, a, b, c) < 0).all()


def test_a_matrix_beyond_its_array_is_found() -> None:
    text = (
        HEAD
        + """.visible .entry k(.param .u64 p) { .reg .b64 %p; .reg .b32 %a<8>;
        ld.param.u64 %p, [p];
        wmma.load.a.sync.aligned.row.m16n16k16.global.f16
            {%a0,%a1,%a2,%a3,%a4,%a5,%a6,%a7}, [%p+OFF], STRIDE;
        ret; }"""
    )
    array = aligned_zeros(512, 32)
    execute_ptx(text.replace("OFF", "0").replace("STRIDE", "16"), array)
    for offset, stride, says in (
        ("0", "24", "reads 32 bytes at byte 480 of p0|reads 32 bytes at byte 5"),
        ("32", "16", "reads 32 bytes at byte 512 of p0, which has 512"),
        ("8", "16", "both must be multiples of 16"),
        ("0", "12", "both must be multiples of 16"),
    ):
        with pytest.raises(Finding, match=says):
            execute_ptx(text.replace("OFF", offset).replace("STRIDE", stride), array)


@pytest.mark.parametrize(
    "text",
    [
        "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%a0}, [%p];",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.tf32 {%a0}, [%p];",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.bf16 {%a0, %a1}, [%p];",
        "wmma.load.a.sync.aligned.row.m16n16k16.local.f16 {%a0}, [%p];",
    ],
)
def test_what_is_no_form_is_refused(text: str) -> None:
    whole = (
        HEAD + f".visible .entry k(.param .u64 p) {{ .reg .b64 %p; .reg .b32 %a<8>; {text} ret; }}"
    )
    with pytest.raises(Unsupported):
        load_kernel(whole)

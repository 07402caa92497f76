"""Every form of a load, a store and an atomic, held against numpy and the oracle, lane by lane."""

from __future__ import annotations

import numpy as np
import pytest
from papergpu.errors import Finding
from papergpu.launch import Settings
from papergpu.reference import evaluate
from ptx_launch import execute_ptx, write_kernel

RANDOM = np.random.default_rng(11)
LANES = np.arange(32)
PLACES = LANES * 13 % 32  # each lane at another place, and none at its own number but lane 0
ODD = 0xAAAAAAAB  # the lanes that execute where some do not; lane 0 is one of them
WIDE = [(f"{sign}{size}", wide) for size in (8, 16, 32) for sign in "us" for wide in (32, 64)]
WIDE.append(("u64", 64))
REGISTERS = {32: "%r1", 64: "%rd10"}
# Where this lane reads and writes: %rd4 + 16 times its place, and %rd5 + 16 times its number.
PLACED = """
  mov.u32 %r10, %tid.x;
  mul.lo.u32 %r11, %r10, 13; and.b32 %r11, %r11, 31;
  mul.wide.u32 %rd2, %r11, 16; add.s64 %rd4, %rd0, %rd2;
  mul.wide.u32 %rd3, %r10, 16; add.s64 %rd5, %rd1, %rd3;
  mov.u32 %r12, 0xaaaaaaab; shr.u32 %r12, %r12, %r10; and.b32 %r12, %r12, 1;
  setp.ne.u32 %p9, %r12, 0;
  mov.b32 %r1, 0x55555555; mov.b64 %rd10, 0x5555555555555555; mov.b64 %rd11, 0;
"""


def mask_lanes(guard: str) -> np.ndarray:
    return np.array([not guard or ODD >> lane & 1 == 1 for lane in range(32)])


@pytest.mark.parametrize("guard", ["", "@%p9"])
@pytest.mark.parametrize(("kind", "wide"), WIDE)
def test_a_load_fills_its_register(kind: str, wide: int, guard: str) -> None:
    given = RANDOM.integers(0, 256, 512, np.uint8)
    given[0] = 0xF0  # a sign
    out = np.zeros((32, 2), np.uint64)
    name = REGISTERS[wide]
    kept = "mov.b64 %rd11, {%r1, 0};" if wide == 32 else "mov.b64 %rd11, %rd10;"
    execute_ptx(
        write_kernel(
            f"{PLACED} {guard} ld.global.{kind} {name}, [%rd4]; {kept}"
            "st.global.v2.u64 [%rd5], {%rd11, %rd11}; ret;",
            2,
        ),
        given,
        out,
    )
    size = int(kind[1:]) // 8
    numbers = given.reshape(32, 16)[PLACES, :size].copy().view(f"{kind[0].replace('s', 'i')}{size}")
    want = numbers[:, 0].astype(np.int64 if kind[0] == "s" else np.uint64).astype(np.uint64)
    want = np.where(mask_lanes(guard), want, 0x5555555555555555 & ((1 << wide) - 1))
    assert (out[:, 0] == want & np.uint64((1 << wide) - 1)).all()


@pytest.mark.parametrize("guard", ["", "@%p9"])
@pytest.mark.parametrize("wide", [32, 64])
@pytest.mark.parametrize("size", [8, 16, 32, 64])
def test_a_store_changes_its_bytes_and_no_other(size: int, wide: int, guard: str) -> None:
    if size > wide:
        size = 32
    given = RANDOM.integers(0, 1 << 64, (32, 2), np.uint64)
    out = np.full((32, 16), 0x33, np.uint8)
    name = REGISTERS[wide]
    narrow = "cvt.u32.u64 %r1, %rd10;" if wide == 32 else ""
    body = f"ld.global.u64 %rd10, [%rd4]; {narrow} {guard} st.global.u{size} [%rd5+8], {name};"
    execute_ptx(write_kernel(f"{PLACED} {body} ret;", 2), given, out)
    want = np.full((32, 16), 0x33, np.uint8)
    chosen = mask_lanes(guard)
    want[chosen, 8 : 8 + size // 8] = given.view(np.uint8).reshape(32, 16)[PLACES, : size // 8][
        chosen
    ]
    assert (out == want).all()


@pytest.mark.parametrize("guard", ["", "@%p9"])
def test_128_bits_are_moved(guard: str) -> None:
    given = RANDOM.integers(0, 1 << 64, (32, 2), np.uint64)
    out = np.zeros((32, 2), np.uint64)
    body = f".reg .b128 %q; mov.b128 %q, {{%rd10, %rd11}}; {guard} ld.global.b128 %q, [%rd4];"
    execute_ptx(write_kernel(f"{PLACED} {body} st.global.b128 [%rd5], %q; ret;", 2), given, out)
    plain = np.array([0x5555555555555555, 0], np.uint64)
    assert (out == np.where(mask_lanes(guard)[:, None], given[PLACES], plain)).all()
    out[:] = 7
    body = f".reg .b128 %q; ld.global.b128 %q, [%rd4]; {guard} st.global.b128 [%rd5], %q;"
    execute_ptx(write_kernel(f"{PLACED} {body} ret;", 2), given, out)
    assert (out == np.where(mask_lanes(guard)[:, None], given[PLACES], np.uint64(7))).all()


@pytest.mark.parametrize(("kind", "wide"), WIDE)
def test_a_parameter_is_read_from_its_byte_on(kind: str, wide: int) -> None:
    given = RANDOM.integers(0, 256, 64, np.uint8)
    given[24:32] = 0x81
    out = np.zeros((32, 2), np.uint64)
    ptx = write_kernel(f"{PLACED} ld.param.{kind} {REGISTERS[wide]}, [p2+24];"
                       + ("mov.b64 %rd10, {%r1, 0};" if wide == 32 else "")
                       + "st.global.v2.u64 [%rd5], {%rd10, %rd11}; ret;", 3)  # fmt: skip
    ptx = ptx.replace(".param .u64 p2", ".param .align 16 .b8 p2[64]")
    execute_ptx(ptx, np.zeros(512, np.uint8), out, np.void(given.tobytes()))
    number = int.from_bytes(given[24 : 24 + int(kind[1:]) // 8].tobytes(), "little",
                            signed=kind[0] == "s")  # fmt: skip
    assert (out[:, 0] == number % (1 << wide)).all()


# Atomics.

WHOLES = ["add.u32", "add.s32", "add.u64", "and.b32", "and.b64", "or.b32", "or.b64", "xor.b32",
          "xor.b64", "exch.b16", "exch.b32", "exch.b64", "min.u32", "min.s32", "min.u64",
          "min.s64", "max.u32", "max.s32", "max.u64", "max.s64", "inc.u32", "inc.u64", "dec.u32",
          "dec.u64", "cas.b16", "cas.b32", "cas.b64"]  # fmt: skip
FLOATS = ["add.f32", "add.f64", "add.noftz.f16", "add.noftz.f16x2", "add.noftz.bf16",
          "add.noftz.bf16x2"]  # fmt: skip


def read_size(form: str) -> int:
    kind = form.rpartition(".")[2]
    return 32 if kind.endswith("x2") else int(kind.lstrip("bfsu"))


def apply_atomic(form: str, old: int, b: int, c: int) -> int:
    """What an atomic leaves in memory."""
    operation, kind = form.split(".")[0], form.rpartition(".")[2]
    size = read_size(form)
    if kind[0] == "s":
        old, b = (one - (1 << size) if one >> size - 1 else one for one in (old, b))
    if form in FLOATS:
        return evaluate(f"add.rn.{kind}", old, b)
    made = {"add": old + b, "and": old & b, "or": old | b, "xor": old ^ b, "exch": b,
            "min": min(old, b), "max": max(old, b), "cas": c if old == b else old,
            "inc": 0 if old >= b else old + 1,
            "dec": b if old == 0 or old > b else old - 1}[operation]  # fmt: skip
    return made % (1 << size)


def list_cells(form: str) -> np.ndarray:
    """Of each lane what lies in memory, and both operands: each outcome of the operation."""
    operation, kind = form.split(".")[0], form.rpartition(".")[2]
    size = read_size(form)
    top = (1 << size) - 1
    random = np.random.default_rng(size)
    if form in FLOATS:
        width = size // 2 if kind.endswith("x2") else size
        number = "f4" if kind.startswith("bf") else f"f{width // 8}"
        values = random.normal(size=(32, 6)).astype(number)
        values[0, 0:2] = 0  # the sum is the operand to the bit
        bits = values.view(f"u{values.itemsize}").astype(np.uint64)
        if kind.startswith("bf"):
            bits >>= np.uint64(16)
        return bits[:, ::2] | (bits[:, 1::2] << np.uint64(width) if kind.endswith("x2") else 0)
    cells = random.integers(0, top, (32, 3), np.uint64, endpoint=True)
    cells[1::4, 1] = cells[1::4, 0]
    cells[2::8, 0] = 0
    # Lane 0: where one bit of its operand says what comes out.
    cells[0, :2] = {"min": (50, 40), "max": (40, 50), "and": (top, 41), "or": (0, 41),
                    "inc": (40, 40), "dec": (0, 40), "cas": (40, 40)}.get(
                        operation, cells[0, :2])  # fmt: skip
    return cells


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("form", WHOLES + FLOATS)
def test_an_atomic_gives_what_was_there_and_leaves_what_it_makes(form: str, space: str) -> None:
    size, cells = read_size(form), list_cells(form)
    out = np.zeros((32, 2), np.uint64)
    name = {16: "%h4", 32: "%r4", 64: "%rd4"}[size]
    old, b, c = (f"{name}{number}" for number in (1, 2, 3))
    bits = f"b{size}"
    third = f", {c}" if form.startswith("cas") else ""
    where = "%rd20" if space == "global" else "%r30"
    body = f"""
      .shared .align 8 .b8 tile[256];
      mov.u32 %r10, %tid.x; mul.wide.u32 %rd30, %r10, 24; add.s64 %rd20, %rd0, %rd30;
      mul.wide.u32 %rd31, %r10, 16; add.s64 %rd21, %rd1, %rd31;
      ld.global.{bits} {b}, [%rd20+8]; ld.global.{bits} {c}, [%rd20+16];
      mov.u32 %r30, tile; mad.lo.u32 %r30, %r10, 8, %r30;
      ld.global.b64 %rd32, [%rd20]; st.shared.b64 [%r30], %rd32;
      atom.{space}.{form} {old}, [{where}], {b}{third};
      ld.{space}.b64 %rd33, [{where}];
      st.global.{bits} [%rd21], {old}; st.global.b64 [%rd21+8], %rd33;
      ret;"""
    given = cells.copy()
    execute_ptx(write_kernel(body, 2), given, out)
    want = [(one[0], apply_atomic(form, *one)) for one in cells.tolist()]
    mask = (1 << size) - 1
    assert [(old, made & mask) for old, made in out.tolist()] == want
    if form.split(".")[0] in ("min", "max", "cas"):
        assert len({made == old for old, made in want}) == 2


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("form", ["add.u32", "add.f32", "xor.b32", "max.s32", "inc.u32"])
def test_a_reduction_is_an_atomic_that_gives_nothing(form: str, space: str) -> None:
    """All lanes change one place, in the order of their numbers."""
    where = {"global": "%rd0", "shared": "%r30"}[space]
    body = f"""
      .shared .align 8 .b8 tile[8];
      mov.u32 %r10, %tid.x; mul.wide.u32 %rd30, %r10, 4; add.s64 %rd20, %rd1, %rd30;
      ld.global.b32 %r2, [%rd20]; mov.u32 %r30, tile; setp.eq.u32 %p1, %r10, 0;
      @%p1 st.shared.b32 [%r30], 0;
      bar.warp.sync -1;
      red.{space}.{form} [{where}], %r2;
      bar.warp.sync -1;
      @%p1 ld.{space}.b32 %r3, [{where}];
      @%p1 st.global.b32 [%rd0], %r3; ret;"""
    total, given = np.zeros(1, np.uint32), np.arange(31, -1, -1, np.uint32) + 7
    if form == "add.f32":
        given = (given.astype(np.float32) / 4).view(np.uint32)
    execute_ptx(write_kernel(body, 2), total, given)
    want = 0
    for one in given.tolist():
        want = apply_atomic(form, want, one, 0)
    assert int(total[0]) == want


# Orders.


def pass_message(store: str, load: str) -> str:
    """Block 0 writes a word and then a flag; block 1 waits for the flag and reads the word."""
    return f"""
      mov.u32 %r1, %ctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra WAIT;
      st.global.u32 [%rd0], 77; {store} bra DONE;
    WAIT:
      {load} setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
      {"fence.acq_rel.gpu;" if "relaxed" in load else ""}
      ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd1+4], %r3;
    DONE: ret;"""


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("store", "load"),
    [("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%rd1], 1;",
      "ld.relaxed.gpu.global.u32 %r2, [%rd1];"),
     ("membar.gl; st.relaxed.gpu.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r2, [%rd1];"),
     ("st.release.gpu.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r2, [%rd1];"),
     ("red.release.gpu.global.add.u32 [%rd1], 1;",
      "atom.acquire.gpu.global.add.u32 %r2, [%rd1], 0;")],
)  # fmt: skip
def test_what_is_ordered_is_no_race(store: str, load: str, seed: int) -> None:
    word, flag = np.zeros(1, np.uint32), np.zeros(2, np.uint32)
    execute_ptx(write_kernel(pass_message(store, load), 2), word, flag, grid=2, block=1,
                settings=Settings(threads=1, seed=seed))  # fmt: skip
    assert flag[1] == 77


@pytest.mark.parametrize(
    ("store", "load"),
    [("st.relaxed.gpu.global.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r2, [%rd1];"),
     ("st.release.gpu.global.u32 [%rd1], 1;", "ld.volatile.global.u32 %r2, [%rd1];"),
     ("red.relaxed.gpu.global.add.u32 [%rd1], 1;", "ld.acquire.gpu.global.u32 %r2, [%rd1];")],
)  # fmt: skip
def test_what_is_not_ordered_is_a_race(store: str, load: str) -> None:
    word, flag = np.zeros(1, np.uint32), np.zeros(2, np.uint32)
    with pytest.raises(Finding, match="which block"):
        execute_ptx(write_kernel(pass_message(store, load), 2), word, flag, grid=2, block=1,
                    settings=Settings(threads=1))  # fmt: skip


def test_what_says_how_something_is_done_changes_no_result() -> None:
    given, out = RANDOM.integers(0, 1 << 32, 128, np.uint32), np.zeros(128, np.uint32)
    execute_ptx(write_kernel("""
      mov.u32 %r10, %tid.x; mul.wide.u32 %rd2, %r10, 4; add.s64 %rd4, %rd0, %rd2;
      add.s64 %rd5, %rd1, %rd2; setmaxnreg.dec.sync.aligned.u32 40; griddepcontrol.wait;
      prefetch.global.L2 [%rd4]; nanosleep.u32 100; bar.warp.sync -1;
      fence.proxy.alias; ld.global.u32 %r1, [%rd4]; st.global.u32 [%rd5], %r1;
      griddepcontrol.launch_dependents; ret;""", 2), given, out, block=128)  # fmt: skip
    assert (out == given).all()

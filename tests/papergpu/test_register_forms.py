"""Registers that are moved, packed and opened, and addresses between spaces, in every lane."""

from __future__ import annotations

import numpy as np
import pytest
from papergpu.launch import Settings
from papergpu.program import SPECIALS
from ptx_launch import execute_ptx, write_kernel

RANDOM = np.random.default_rng(5)
LANES = np.arange(32, dtype=np.uint64)
# %rd4 is where this lane reads 16 bytes, %rd5 where it writes 16.
PLACED = """
  mov.u32 %r10, %tid.x; mul.wide.u32 %rd2, %r10, 16;
  add.s64 %rd4, %rd0, %rd2; add.s64 %rd5, %rd1, %rd2;
"""


def run_lanes(body: str, module: str = "", **more: object) -> tuple[np.ndarray, np.ndarray]:
    """16 random bytes of each lane, and the 16 that `body` stores behind %rd5."""
    given = RANDOM.integers(0, 256, (32, 16), np.uint8)
    out = np.full((32, 16), 0x77, np.uint8)
    execute_ptx(write_kernel(f"{PLACED}{body} ret;", 2, module), given, out, **more)
    return given, out


PARTS = [(2, 8), (4, 8), (2, 16), (4, 16), (2, 32), (2, 64)]
CLASS = {8: "%c", 16: "%h", 32: "%r", 64: "%rd", 128: "%q"}
MORE = ".reg .b8 %c<64>; .reg .b128 %q<64>;"


@pytest.mark.parametrize(("count", "size"), PARTS)
def test_a_register_is_opened(count: int, size: int) -> None:
    whole = f"{CLASS[count * size]}40"
    parts = [f"{CLASS[size]}{50 + k}" for k in range(count)]
    stores = "".join(f"st.global.b{size} [%rd5+{k * size // 8}], {one};"
                     for k, one in enumerate(reversed(parts)))  # fmt: skip
    given, out = run_lanes(f"""{MORE}
      ld.global.b{count * size} {whole}, [%rd4];
      mov.b{count * size} {{{", ".join(parts)}}}, {whole}; {stores}""")
    bytes_ = count * size // 8
    want = given[:, :bytes_].reshape(32, count, size // 8)[:, ::-1].reshape(32, bytes_)
    assert (out[:, :bytes_] == want).all() and (out[:, bytes_:] == 0x77).all()


@pytest.mark.parametrize(("count", "size"), PARTS)
def test_a_register_is_packed(count: int, size: int) -> None:
    whole = f"{CLASS[count * size]}40"
    parts = [f"{CLASS[size]}{50 + k}" for k in range(count)]
    loads = "".join(f"ld.global.b{size} {one}, [%rd4+{k * size // 8}];"
                    for k, one in enumerate(reversed(parts)))  # fmt: skip
    given, out = run_lanes(f"""{MORE} {loads}
      mov.b{count * size} {whole}, {{{", ".join(parts)}}};
      st.global.b{count * size} [%rd5], {whole};""")
    bytes_ = count * size // 8
    want = given[:, :bytes_].reshape(32, count, size // 8)[:, ::-1].reshape(32, bytes_)
    assert (out[:, :bytes_] == want).all()


@pytest.mark.parametrize("size", [16, 32, 64, 128])
def test_a_register_is_moved(size: int) -> None:
    a, b = f"{CLASS[size]}40", f"{CLASS[size]}41"
    given, out = run_lanes(f"""{MORE} ld.global.b{size} {a}, [%rd4]; mov.b{size} {b}, {a};
      xor.b32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 40; @%p1 st.global.b{size} [%rd5], {b};""")
    assert (out[:, : size // 8] == given[:, : size // 8]).all()


def test_predicates_are_moved() -> None:
    given, out = run_lanes("""
      ld.global.u8 %r1, [%rd4]; and.b32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;
      mov.pred %p2, %p1; selp.b64 %rd6, 1, 0, %p2; st.global.b64 [%rd5], %rd6;""")
    assert (out[:, 0] == given[:, 0] & 1).all() and (given[:, 0] & 1).any()


def test_a_special_register_is_widened_and_an_address_narrowed() -> None:
    """Of 64 bits as lanes have them: 1 << 40 above an address in shared memory is nothing."""
    _, out = run_lanes("""
      .shared .align 4 .b8 tile[256];
      mov.u64 %rd6, %laneid; st.global.b64 [%rd5], %rd6;
      mov.u64 %rd7, tile; mad.lo.u64 %rd7, %rd6, 8, %rd7;
      cvta.shared.u64 %rd8, %rd7; st.u32 [%rd8], %r10;
      mov.u32 %r1, tile; mad.lo.u32 %r1, %r10, 8, %r1; ld.shared.u32 %r2, [%r1];
      mov.b64 %rd9, {%r2, 0}; st.global.b64 [%rd5+8], %rd9;""")
    assert (out.view(np.uint64) == LANES[:, None]).all()


VARIABLES = """
.const .align 8 .b8 table[512];
.global .align 8 .b8 others[512];
.const .align 8 .b8 last[8];
"""
SPACES = {
    "shared": ".shared .align 8 .b8 before[8]; .shared .align 8 .b8 it[512];",
    "local": ".local .align 8 .b8 before[8]; .local .align 8 .b8 it[512];",
}


@pytest.mark.parametrize("space", ["shared", "local"])
def test_an_address_becomes_generic_and_comes_back(space: str) -> None:
    given, out = run_lanes(f"""{SPACES[space]}
      ld.global.u32 %r1, [%rd4];
      mov.u64 %rd6, it; mad.lo.u32 %r2, %r10, 8, 0; cvt.u64.u32 %rd7, %r2;
      add.s64 %rd6, %rd6, %rd7;
      cvta.{space}.u64 %rd8, %rd6; st.u32 [%rd8], %r1;
      ld.{space}.u32 %r3, [%rd6]; st.global.u32 [%rd5], %r3;
      cvta.to.{space}.u64 %rd9, %rd8; ld.{space}.u32 %r4, [%rd9]; st.global.u32 [%rd5+4], %r4;
      sub.s64 %rd10, %rd9, %rd6; st.global.u64 [%rd5+8], %rd10;""")
    assert (out[:, :4] == given[:, :4]).all() and (out[:, 4:8] == given[:, :4]).all()
    assert not out[:, 8:].any()


def test_addresses_of_constants_and_parameters_become_generic_and_come_back() -> None:
    out = np.zeros((32, 4), np.uint32)
    body = f"""{PLACED}
      mov.u64 %rd6, table; and.b32 %r1, %r10, 7; mul.wide.u32 %rd7, %r1, 4;
      add.s64 %rd6, %rd6, %rd7;
      cvta.const.u64 %rd8, %rd6; ld.u32 %r2, [%rd8];
      cvta.to.const.u64 %rd9, %rd8; ld.const.u32 %r3, [%rd9];
      mov.b64 %rd10, p2; add.s64 %rd10, %rd10, %rd7;
      cvta.param.u64 %rd11, %rd10; ld.u32 %r4, [%rd11];
      cvta.to.param.u64 %rd12, %rd11; ld.param.u32 %r5, [%rd12];
      sub.u64 %rd13, %rd9, %rd6; cvt.u32.u64 %r6, %rd13; add.u32 %r3, %r3, %r6;
      sub.u64 %rd14, %rd12, %rd10; cvt.u32.u64 %r7, %rd14; add.u32 %r5, %r5, %r7;
      st.global.v4.u32 [%rd5], {{%r2, %r3, %r4, %r5}}; ret;"""
    values = ", ".join(str(one * 11) for one in range(8))
    ptx = write_kernel(body, 3, f".const .align 8 .u32 table[8] = {{{values}}};")
    ptx = ptx.replace(".param .u64 p2", ".param .align 16 .b8 p2[64]")
    given = np.arange(16, dtype=np.uint32) + 100
    execute_ptx(ptx, np.zeros(1, np.uint32), out, np.void(given.tobytes()))
    at = np.arange(32) % 8
    assert (out == np.stack([at * 11, at * 11, at + 100, at + 100], axis=1)).all()


def test_a_variable_of_the_module_is_where_its_address_says() -> None:
    values = ", ".join(str(one * 7) for one in range(32))
    out = np.zeros((32, 2), np.uint64)
    body = """
      mov.u32 %r10, %tid.x; mul.wide.u32 %rd2, %r10, 8; mul.wide.u32 %rd3, %r10, 16;
      mov.u64 %rd4, numbers; add.s64 %rd5, %rd4, %rd2; ld.global.u64 %rd6, [%rd5];
      cvta.global.u64 %rd7, %rd4; add.s64 %rd8, %rd7, %rd2; ld.u64 %rd9, [%rd8];
      add.s64 %rd10, %rd0, %rd3; st.global.v2.u64 [%rd10], {%rd6, %rd9}; ret;"""
    module = f".global .align 8 .u32 before; .global .align 8 .u64 numbers[32] = {{{values}}};"
    execute_ptx(write_kernel(body, 1, module), out)
    assert (out == LANES[:, None] * np.uint64(7)).all()


ASKED = ("shared", "local", "global", "const", "param")
ADDRESSES = {
    "shared": "mov.u64 %rd6, it; cvta.shared.u64 %rd7, %rd6;",
    "local": "mov.u64 %rd6, it; cvta.local.u64 %rd7, %rd6;",
    "global": "mov.u64 %rd7, %rd1;",
    "a variable": "mov.u64 %rd6, others; cvta.global.u64 %rd7, %rd6;",
    "const": "mov.u64 %rd6, table; cvta.const.u64 %rd7, %rd6; add.u64 %rd7, %rd7, 511;",
    "const, the last": "mov.u64 %rd6, last; cvta.const.u64 %rd7, %rd6;",
    "param": "mov.b64 %rd6, p1; cvta.param.u64 %rd7, %rd6;",
}
# Parameters of a kernel lie in the window of global memory.
TRUE_OF = {"a variable": ["global"], "const, the last": ["const"], "param": ["global", "param"]}


@pytest.mark.parametrize("given", ADDRESSES)
def test_an_address_is_known_to_be_of_its_space_and_of_no_other(given: str) -> None:
    """What asks is false before where the answer is true, and true before where it is false."""
    true = TRUE_OF.get(given, [given])
    asks = ""
    for number, one in enumerate(ASKED):
        p, old = f"%p{10 + number}", "ne" if one in true else "eq"
        asks += f"""
          setp.{old}.u32 {p}, %r10, %r10; isspacep.{one} {p}, %rd7;
          selp.u32 %r2, {1 << number}, 0, {p}; or.b32 %r1, %r1, %r2;"""
    _, out = run_lanes(f"{SPACES.get(given, '')} {ADDRESSES[given]} mov.u32 %r1, 0; {asks}"
                       "st.global.u32 [%rd5], %r1;", VARIABLES)  # fmt: skip
    assert (out[:, 0] == sum(1 << ASKED.index(one) for one in true)).all()


@pytest.mark.parametrize("cluster", [2, 4])
def test_an_address_in_another_block_of_a_cluster(cluster: int) -> None:
    """Each block reads what the next one has in shared memory, by both kinds of address."""
    body = """
      .shared .align 8 .b8 before[8]; .shared .align 4 .b8 it[128];
      mov.u32 %r10, %tid.x; mov.u32 %r11, %cluster_ctarank; mov.u32 %r12, %cluster_nctarank;
      mov.u32 %r1, it; mad.lo.u32 %r2, %r10, 4, %r1; mad.lo.u32 %r3, %r11, 1000, %r10;
      st.shared.u32 [%r2], %r3;
      barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
      add.u32 %r4, %r11, 1; rem.u32 %r4, %r4, %r12;
      mapa.shared::cluster.u32 %r5, %r2, %r4; ld.shared::cluster.u32 %r6, [%r5];
      getctarank.shared::cluster.u32 %r7, %r5;
      cvt.u64.u32 %rd2, %r2; cvta.shared.u64 %rd3, %rd2;
      mapa.u64 %rd4, %rd3, %r4; ld.u32 %r8, [%rd4]; getctarank.u64 %r9, %rd4;
      cvt.u64.u32 %rd5, %r2; mapa.shared::cluster.u64 %rd6, %rd5, %r4;
      ld.shared::cluster.u32 %r20, [%rd6]; add.u32 %r8, %r8, %r20; sub.u32 %r8, %r8, %r6;
      mov.u32 %r13, %ctaid.x; mad.lo.u32 %r13, %r13, 32, %r10; mul.wide.u32 %rd7, %r13, 16;
      add.s64 %rd8, %rd0, %rd7; st.global.v4.u32 [%rd8], {%r6, %r7, %r8, %r9};
      barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ret;"""
    out = np.zeros((8, 32, 4), np.uint32)
    for seed in (0, 3):
        out[:] = 7
        execute_ptx(write_kernel(body), out, grid=8, cluster=(cluster, 1, 1),
                    settings=Settings(threads=1, seed=seed))  # fmt: skip
        rank = ((np.arange(8) % cluster + 1) % cluster)[:, None]
        value = rank * 1000 + np.arange(32)
        want = np.stack(np.broadcast_arrays(value, rank, value, rank), axis=2)
        assert (out == want).all()


@pytest.mark.parametrize("wide", [False, True])
def test_a_cooperative_grid_has_a_place_where_it_meets(wide: bool) -> None:
    """Its words stand in two registers: each thread adds there, and gets what was there before."""
    out = np.zeros(64, np.uint32)
    registers = "mov.b32 %r1, %envreg1; mov.b32 %r2, %envreg2; mov.b64 %rd2, {%r2, %r1};"
    if wide:
        registers = """mov.u64 %rd3, %envreg1; mov.u64 %rd4, %envreg2;
            shl.b64 %rd3, %rd3, 32; or.b64 %rd2, %rd3, %rd4;"""
    body = f"""
      {registers}
      mov.u32 %r10, %tid.x; mov.u32 %r11, %ctaid.x; mad.lo.u32 %r11, %r11, 32, %r10;
      atom.global.add.u32 %r3, [%rd2], 1;
      mul.wide.u32 %rd5, %r11, 4; add.s64 %rd6, %rd0, %rd5; st.global.u32 [%rd6], %r3; ret;"""
    execute_ptx(write_kernel(body), out, grid=2, cooperative=True)
    assert sorted(out.tolist()) == list(range(64))
    with pytest.raises(Exception, match="null pointer"):
        execute_ptx(write_kernel(body), out, grid=2)


def list_specials() -> dict[str, np.ndarray]:
    """Every special register as each thread has it: (block z, y, x, thread z, y, x)."""
    grid, cluster, block = (4, 4, 4), (2, 2, 2), (8, 3, 2)  # of x, y, z
    shape = (*grid[::-1], *block[::-1])
    found: dict[str, np.ndarray] = {}
    rank = np.zeros(shape, int)
    thread = np.zeros(shape, int)
    for at, name in reversed(list(enumerate("xyz"))):
        t, c = np.indices(shape)[[5 - at, 2 - at]]
        inner = c % cluster[at]
        rank, thread = rank * cluster[at] + inner, thread * block[at] + t
        found |= {
            f"%tid.{name}": t, f"%ntid.{name}": block[at], f"%ctaid.{name}": c,
            f"%nctaid.{name}": grid[at], f"%cluster_ctaid.{name}": inner,
            f"%cluster_nctaid.{name}": cluster[at], f"%clusterid.{name}": c // cluster[at],
            f"%nclusterid.{name}": grid[at] // cluster[at],
        }  # fmt: skip
    lane = thread % 32
    one = np.left_shift(1, lane)
    found |= {
        "%laneid": lane, "%warpid": thread // 32, "%nwarpid": 2, "%lanemask_eq": one,
        "%lanemask_lt": one - 1, "%lanemask_le": 2 * one - 1, "%lanemask_gt": 2**32 - 2 * one,
        "%lanemask_ge": 2**32 - one, "%dynamic_smem_size": 80, "%total_smem_size": 16 + 80,
        "%cluster_ctarank": rank, "%cluster_nctarank": 8, "%is_explicit_cluster": 1,
    }  # fmt: skip
    return {name: np.broadcast_to(value, shape) for name, value in found.items()}


def test_every_special_register() -> None:
    wanted = list_specials()
    assert {*wanted, "%smid", "%nsmid"} == set(SPECIALS)
    names = [*wanted, "%smid", "%nsmid"]
    read = dict.fromkeys(names, "mov.u32 %r5, NAME;")
    read["%is_explicit_cluster"] = "mov.pred %p1, NAME; selp.u32 %r5, 1, 0, %p1;"
    stores = "".join(
        f"{read[name].replace('NAME', name)} st.global.u32 [%rd3+{4 * number}], %r5;"
        for number, name in enumerate(names)
    )
    linear = "".join(
        f"mov.u32 %r2, {kind}.{axis}; mov.u32 %r3, {count}.{axis}; mad.lo.u32 %r1, %r1, %r3, %r2;"
        for kind, count in (("%ctaid", "%nctaid"), ("%tid", "%ntid")) for axis in "zyx"
    )  # fmt: skip
    shape = wanted["%laneid"].shape
    out = np.zeros((*shape, len(names)), np.uint32)
    body = f"""
      .shared .align 16 .b8 tile[16];
      mov.u32 %r1, 0; {linear}
      mul.wide.u32 %rd2, %r1, {4 * len(names)}; add.s64 %rd3, %rd0, %rd2; {stores} ret;"""
    execute_ptx(write_kernel(body), out, grid=shape[2::-1], block=shape[:2:-1], cluster=(2, 2, 2),
                dynamic=80, settings=Settings(checks=False, threads=1))  # fmt: skip
    for number, (name, want) in enumerate(wanted.items()):
        right = np.array_equal(out[..., number], want)  # to show where not, pytest takes a minute
        assert right, name
    assert (out[..., -2] < out[..., -1]).all()  # which multiprocessor it is, nobody knows

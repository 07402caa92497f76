"""What is counted: sectors, wavefronts, lanes and classes, exactly, and at which line.

And the page about papergpu shows what its commands printed, and nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import measured_figures
import numpy as np
import pytest
from papergpu.counters import CLASSES, Profile, Tally, classify_form, format_table, profile_launches
from papergpu.forms import FORMS
from papergpu.launch import Memory, Settings, aligned_zeros
from ptx_launch import launch_kernel, load_kernel

SETTINGS = Settings(checks=False, profile=True, threads=1)
HEAD = """.version 8.7
.target {target}
.address_size 64
.visible .entry k(.param .u64 p, .param .u64 q) {{
.reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .b64 %rd<24>; .reg .f32 %f<8>;
.shared .align 1024 .b8 tile[65536];
ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r0, %laneid;
mul.wide.u32 %rd3, %r0, 4; add.s64 %rd2, %rd2, %rd3; ld.global.b32 %r1, [%rd2];
cvt.u64.u32 %rd4, %r1; add.s64 %rd1, %rd1, %rd4; mov.u32 %r2, tile; add.s32 %r2, %r2, %r1;
mov.u32 %r3, {lanes}; shl.b32 %r4, 1, %r0; and.b32 %r3, %r3, %r4; setp.ne.u32 %p1, %r3, 0;
"""


def count_instruction(
    body: str, offsets: list[int], lanes: int = 0xFFFFFFFF, target: str = "sm_90", shift: int = 0
) -> Tally:
    """What the last instruction of `body` counted, where each lane has an offset of its own."""
    head = HEAD.format(target=target, lanes=f"0x{lanes:08x}")
    one = load_kernel(f"{head}\n{body}\nret;\n}}\n")
    data, given = aligned_zeros(1 << 18), aligned_zeros(128).view(np.uint32)
    given[:] = offsets
    touched = [Memory(data.ctypes.data, data.nbytes)]
    at = np.uint64(data.ctypes.data + shift)
    result = launch_kernel(one, at, given, touched=touched, settings=SETTINGS)
    assert result.counts is not None
    lines = profile_launches([(one.program, result.counts)]).lines
    return lines[-2].own  # the last one is ret


def stride_offsets(stride: int) -> list[int]:
    return [stride * lane for lane in range(32)]


LOADS = {4: "ld.{}.b32 %r20, [{}];", 8: "ld.{}.v2.b32 {{%r20, %r21}}, [{}];",
         16: "ld.{}.v4.b32 {{%r20, %r21, %r22, %r23}}, [{}];",
         2: "ld.{}.b16 %h1, [{}];", 1: "ld.{}.u8 %r20, [{}];"}  # fmt: skip
STORES = {4: "st.{}.b32 [{}], %r20;", 8: "st.{}.v2.b32 [{}], {{%r20, %r21}};",
          16: "st.{}.v4.b32 [{}], {{%r20, %r21, %r22, %r23}};"}  # fmt: skip


@pytest.mark.parametrize("forms", [LOADS, STORES], ids=["load", "store"])
@pytest.mark.parametrize(
    ("width", "offsets", "sectors", "ideal"),
    [
        (4, stride_offsets(4), 4, 4),
        (4, stride_offsets(8), 8, 4),
        (4, stride_offsets(128), 32, 4),
        (4, stride_offsets(132), 32, 4),
        (4, [0] * 32, 1, 1),
        (4, [128 * (lane // 8) + 4 * (lane % 8) for lane in range(32)], 4, 4),
        (4, [4 * (31 - lane) for lane in range(32)], 4, 4),
        (4, [4 * (lane ^ 5) for lane in range(32)], 4, 4),
        (4, [4 * (lane // 2) for lane in range(32)], 2, 2),
        (4, [64 * (lane * 7 % 16) for lane in range(32)], 16, 2),
        (8, stride_offsets(8), 8, 8),
        (8, stride_offsets(16), 16, 8),
        (16, stride_offsets(16), 16, 16),
        (16, stride_offsets(32), 32, 16),
        (16, [0] * 32, 1, 1),
    ],
)
def test_sectors(
    forms: dict[int, str], width: int, offsets: list[int], sectors: int, ideal: int
) -> None:
    found = count_instruction(forms[width].format("global", "%rd1"), offsets)
    assert (found.requests, found.sectors, found.ideal_sectors) == (1, sectors, ideal)
    assert (found.shared_requests, found.wavefronts) == (0, 0)


def test_sectors_of_narrow_words() -> None:
    assert count_instruction(LOADS[2].format("global", "%rd1"), stride_offsets(2)).sectors == 2
    found = count_instruction(LOADS[1].format("global", "%rd1"), stride_offsets(1))
    assert (found.sectors, found.ideal_sectors) == (1, 1)


def test_sectors_of_a_shifted_start() -> None:
    """A warp's 128 bytes that begin at byte 4 reach into a fifth sector."""
    found = count_instruction(LOADS[4].format("global", "%rd1"), stride_offsets(4), shift=4)
    assert (found.sectors, found.ideal_sectors) == (5, 4)
    assert (
        count_instruction(LOADS[4].format("global", "%rd1"), stride_offsets(4), shift=32).sectors
        == 4
    )


@pytest.mark.parametrize(
    ("lanes", "sectors", "ideal"),
    [(0x1FF, 2, 2), (0x80000001, 2, 1), (0x55555555, 4, 2), (0xF0, 1, 1), (1 << 31, 1, 1)],
)
def test_sectors_under_a_mask(lanes: int, sectors: int, ideal: int) -> None:
    """Lanes that take no part ask for nothing."""
    found = count_instruction("@%p1 " + LOADS[4].format("global", "%rd1"), stride_offsets(4), lanes)
    assert (found.sectors, found.ideal_sectors) == (sectors, ideal)
    assert (found.executed, found.lanes) == (1, lanes.bit_count())


def test_sectors_far_apart() -> None:
    """One lane reads other memory, which may be more than 32 bits away."""
    move = "setp.eq.u32 %p2, %r0, 7; @%p2 mov.u64 %rd1, %rd2; "
    found = count_instruction(move + LOADS[4].format("global", "%rd1"), stride_offsets(4))
    assert (found.sectors, found.ideal_sectors) == (5, 4)


@pytest.mark.parametrize("forms", [LOADS, STORES], ids=["load", "store"])
@pytest.mark.parametrize(
    ("width", "offsets", "wavefronts"),
    [
        (4, stride_offsets(4), 1),
        (4, stride_offsets(8), 2),
        (4, stride_offsets(128), 32),
        (4, stride_offsets(132), 1),
        (4, stride_offsets(12), 1),
        (4, stride_offsets(64), 16),
        (4, [0] * 32, 1),
        (4, [128 * (lane % 4) for lane in range(32)], 4),
        (4, [4 * (lane ^ 9) + 128 * (lane // 8) for lane in range(32)], 1),
        (8, stride_offsets(8), 2),
        (8, stride_offsets(16), 4),
        (8, stride_offsets(128), 32),
        (8, [0] * 32, 2),
        (16, stride_offsets(16), 4),
        (16, stride_offsets(32), 8),
        (16, stride_offsets(128), 32),
        (16, stride_offsets(144), 4),
        (16, [16 * (lane // 8) for lane in range(32)], 4),
    ],
)
def test_wavefronts(forms: dict[int, str], width: int, offsets: list[int], wavefronts: int) -> None:
    found = count_instruction(forms[width].format("shared", "%r2"), offsets)
    assert (found.wavefronts, found.ideal_wavefronts) == (wavefronts, max(1, width // 4))
    assert (found.shared_requests, found.requests, found.sectors) == (1, 0, 0)


def test_wavefronts_of_narrow_words() -> None:
    """Lanes that want other bytes of one word share it."""
    assert count_instruction(LOADS[2].format("shared", "%r2"), stride_offsets(2)).wavefronts == 1
    assert count_instruction(LOADS[1].format("shared", "%r2"), stride_offsets(1)).wavefronts == 1
    assert count_instruction(LOADS[1].format("shared", "%r2"), stride_offsets(129)).wavefronts == 4


def test_wavefronts_under_a_mask() -> None:
    """A piece without a lane is not served."""
    four = "@%p1 " + LOADS[16].format("shared", "%r2")
    found = count_instruction(four, stride_offsets(128), 0xFF)
    assert (found.wavefronts, found.ideal_wavefronts) == (8, 1)
    found = count_instruction(four, stride_offsets(16), 0x00FF00FF)
    assert (found.wavefronts, found.ideal_wavefronts) == (2, 2)
    found = count_instruction("@%p1 " + LOADS[4].format("shared", "%r2"), stride_offsets(128), 0x11)
    assert (found.wavefronts, found.ideal_wavefronts) == (2, 1)


def test_wavefronts_of_neighbours_alike() -> None:
    """On sm_70 and sm_75 loads of neighbours that share an address go in half as many pieces."""
    pairs = [16 * (lane // 2) for lane in range(32)]
    four = LOADS[16].format("shared", "%r2")
    assert count_instruction(four, pairs, target="sm_75").wavefronts == 2
    assert count_instruction(four, pairs, target="sm_80").wavefronts == 4
    assert (
        count_instruction(STORES[16].format("shared", "%r2"), pairs, target="sm_75").wavefronts == 4
    )
    two = LOADS[8].format("shared", "%r2")
    every = [8 * (lane & 1) + 16 * (lane // 4) for lane in range(32)]
    assert count_instruction(two, every, target="sm_75").wavefronts == 1
    mixed = [*every[:16], *(16 * (lane // 2) for lane in range(16, 32))]
    assert count_instruction(two, mixed, target="sm_75").wavefronts == 2


def test_atomics_of_one_word_take_turns() -> None:
    add = "atom.shared.add.u32 %r20, [%r2], %r0;"
    assert count_instruction(add, stride_offsets(4)).wavefronts == 1
    assert count_instruction(add, [0] * 32).wavefronts == 32
    assert count_instruction("red.global.add.u32 [%rd1], %r0;", [0] * 32).sectors == 1


# te42kyfo/gpu-benches, gpu-strides, at commit 1c36d50: wavefronts of the banks of L1 and shared
# memory that A100, A40 and H200 count for a load (`l1tex__data_pipe_lsu_wavefronts.sum`, a warp).
# By bytes a lane: those of strides 0, 1, 2, ... elements; the H200 was measured up to 15.
STRIDES = {
    4: (1, 1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1, 2, 1, 16, 1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1,
        2, 1, 32, 1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1, 4, 1, 2, 1, 16, 1, 2, 1, 4, 1, 2, 1, 8, 1, 2, 1,
        4, 1, 2, 1, 32),
    8: (2, 2, 4, 2, 8, 2, 4, 2, 16, 2, 4, 2, 8, 2, 4, 2, 32, 2, 4, 2, 8, 2, 4, 2, 16, 2, 4, 2, 8, 2,
        4, 2, 32, 2, 4, 2, 8, 2, 4, 2, 16, 2, 4, 2, 8, 2, 4, 2, 32, 2, 4, 2, 8, 2, 4, 2, 16, 2, 4,
        2, 8, 2, 4, 2, 32),
}  # fmt: skip
# The same of tiles of 1, 2, 4, ... 64 elements a row, the rows 4098 elements apart.
TILES = {4: (2, 1, 2, 4, 2, 1, 1), 8: (4, 2, 4, 4, 2, 2, 2)}
PITCH = 4098


@pytest.mark.parametrize("width", [4, 8])
def test_published_counters_of_strides(width: int) -> None:
    for stride, counted in enumerate(STRIDES[width]):
        found = count_instruction(
            LOADS[width].format("shared", "%r2"), stride_offsets(width * stride)
        )
        assert found.wavefronts == counted, stride


@pytest.mark.parametrize("width", [4, 8])
def test_published_counters_of_tiles(width: int) -> None:
    for power, counted in enumerate(TILES[width]):
        side = 1 << power
        # A row of the tile here is shorter by a multiple of 128 bytes, so that it fits.
        pitch = PITCH % 32 + 64
        offsets = [width * (lane % side + lane // side * pitch) for lane in range(32)]
        assert (
            count_instruction(LOADS[width].format("shared", "%r2"), offsets).wavefronts == counted
        ), side


def test_published_counters_of_products() -> None:
    """Nsight Compute on a T4: two kernels of cuda-gemm-t4, as snippets/bank_conflicts has them."""

    def tile_offsets(row: int, column: int) -> list[int]:
        return [4 * (row * (lane // 16) + column * (lane % 16)) for lane in range(32)]

    def count_wavefronts(form: str, offsets: list[int]) -> int:
        return count_instruction(form.format("shared", "%r2"), offsets, target="sm_75").wavefronts

    blocks, warps = (2048 // 64) ** 2, 8
    stores = (
        blocks * warps * (2048 // 64) * 2 * 16 * count_wavefronts(STORES[4], tile_offsets(64, 1))
    )
    loads = count_wavefronts(LOADS[16], tile_offsets(4 * 64, 0)) + count_wavefronts(
        LOADS[16], tile_offsets(0, 4)
    )
    assert stores + blocks * warps * 2048 * loads == 117_440_512
    blocks = (2048 // 128) ** 2
    stores = (
        blocks * warps * (2048 // 32) * 2 * 4 * count_wavefronts(STORES[16], stride_offsets(16))
    )
    loads = count_wavefronts(LOADS[16], tile_offsets(8 * 32, 0)) + count_wavefronts(
        LOADS[16], tile_offsets(0, 8)
    )
    assert stores + blocks * warps * 2048 * 2 * loads == 88_080_384


PLACES = """.version 8.7
.target sm_90
.address_size 64
.file 1 "kernel.py"
.file 2 "library.py"
.visible .entry k(.param .u64 p) {
.reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
.shared .align 16 .b8 tile[1024];
.loc 1 3 0
ld.param.u64 %rd1, [p];
mov.u32 %r0, %tid.x;
.loc 1 4 0
mul.wide.u32 %rd2, %r0, 4;
add.s64 %rd3, %rd1, %rd2;
ld.global.b32 %f1, [%rd3];
.loc 2 9 2, function_name $helper, inlined_at 1 5 7
fma.rn.f32 %f2, %f1, %f1, %f1;
.loc 2 20 2, function_name $deeper, inlined_at 2 9 2
setp.lt.u32 %p1, %r0, 5;
@%p1 fma.rn.f32 %f2, %f2, %f2, %f1;
.loc 1 6 0
st.global.b32 [%rd3], %f2;
bar.sync 0;
ret;
}
"""


def profile_places(blocks: int = 3, launches: int = 1, threads: int = 1) -> Profile:
    one = load_kernel(PLACES)
    data = aligned_zeros(4096)
    done = []
    for _ in range(launches):
        settings = Settings(checks=False, profile=True, threads=threads)
        result = launch_kernel(one, data, grid=blocks, block=64, settings=settings)
        assert result.counts is not None
        assert int(result.counts["run"].sum()) == result.steps
        done.append((one.program, result.counts))
    return profile_launches(done)


def test_lines() -> None:
    found = profile_places()
    warps = 3 * 2
    rows = {(one.file, one.line): one for one in found.lines}
    assert list(rows) == [
        ("kernel.py", 3), ("kernel.py", 4), ("kernel.py", 5), ("kernel.py", 6),
        ("library.py", 9), ("library.py", 20),
    ]  # fmt: skip
    helper, deeper = rows["library.py", 9], rows["library.py", 20]
    assert helper.own.classes == {"multiply-add": warps}
    assert deeper.own.classes == {"integer": warps, "multiply-add": warps}
    assert deeper.own.lanes == warps * 32 + 3 * 5
    # What was inlined stands at each line that it was inlined into, up to the kernel's own.
    assert helper.inlined == deeper.own
    call = rows["kernel.py", 5]
    assert call.own.executed == 0
    assert call.total.classes == {"multiply-add": 2 * warps, "integer": warps}
    assert rows["kernel.py", 4].own.classes == {"integer": 2 * warps, "load global": warps}
    assert rows["kernel.py", 4].own.sectors == 4 * warps
    assert rows["kernel.py", 6].own.classes == {
        "store global": warps, "barrier": warps, "control": warps,
    }  # fmt: skip
    assert found.total.executed == sum(one.own.executed for one in found.lines) == 11 * warps
    assert found.total.executed == sum(found.total.classes.values())
    assert found.total.active_lanes == pytest.approx((10 * warps * 32 + 15) / (11 * warps))


def test_launches_together() -> None:
    one, three = profile_places(), profile_places(launches=3)
    assert three.kernels == {"k": 3}
    assert three.total.executed == 3 * one.total.executed
    assert [line.own.sectors for line in three.lines] == [
        3 * line.own.sectors for line in one.lines
    ]


def test_threads_of_the_host_lose_no_count() -> None:
    assert profile_places(500, threads=4).as_dict() == profile_places(500).as_dict()


def test_json_has_one_order() -> None:
    found = profile_places().as_dict()
    again: dict[str, Any] = json.loads(json.dumps(found))
    assert again == found
    assert list(found["total"]["classes"]) == sorted(found["total"]["classes"], key=CLASSES.index)


def test_table() -> None:
    source = "\n".join(f"line {number}" for number in range(1, 30))
    text = format_table(profile_places(), {"kernel.py": source}, file="kernel.py")
    rows = text.splitlines()
    assert rows[0].endswith("kernel.py")
    assert rows[1].endswith("3  line 3")
    assert "library.py" not in text
    assert rows[-1].split()[0] == "66"
    assert "wavefronts" not in rows[0], "no column of what did not happen"
    assert "library.py" in format_table(profile_places())


def test_one_instruction_counts_once() -> None:
    """An atomic of a vector becomes several instructions of the engine."""
    found = count_instruction(
        "atom.global.add.v2.f32 {%f1, %f2}, [%rd1], {%f3, %f4};", stride_offsets(8)
    )
    assert found.executed == 1
    assert found.classes == {"atomic global": 1}
    assert found.lanes == 32


def test_a_wait_counts_once() -> None:
    """The halves of a warp that meet at a shuffle execute it once."""
    body = """setp.lt.u32 %p2, %r0, 16; @%p2 bra A; add.s32 %r5, %r0, 1; bra B;
    A: add.s32 %r5, %r0, 2;
    B: shfl.sync.bfly.b32 %r6, %r5, 16, 31, 0xffffffff;"""
    found = count_instruction(body, stride_offsets(4))
    assert (found.executed, found.lanes) == (1, 32)


def test_every_form_has_a_class() -> None:
    for form in FORMS:
        *words, last = [choices for _, choices, optional in form.slots if not optional]
        for one in last:
            written = ".".join([*(choices[0] for choices in words), one])
            assert classify_form(written) in CLASSES, written


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("fma.rn.f32", "multiply-add"),
        ("mad.lo.s32", "multiply-add"),
        ("add.f32", "float"),
        ("mul.rn.bf16x2", "float"),
        ("add.s32", "integer"),
        ("setp.gt.f32", "float"),
        ("setp.gt.s32", "integer"),
        ("ex2.approx.ftz.f32", "special function"),
        ("cvt.rn.f16.f32", "conversion"),
        ("ld.global.nc.v4.b32", "load global"),
        ("ld.shared::cta.b32", "load shared"),
        ("ld.b32", "load generic"),
        ("ld.param.u64", "load parameter"),
        ("st.shared.b32", "store shared"),
        ("atom.global.gpu.relaxed.add.f32", "atomic global"),
        ("red.shared.add.u32", "atomic shared"),
        ("shfl.sync.bfly.b32", "shuffle and vote"),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "load shared"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "matrix"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "matrix"),
        ("wgmma.wait_group.sync.aligned", "barrier"),
        ("cp.async.cg.shared.global", "async"),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32", "async"),
        ("mbarrier.try_wait.parity.shared.b64", "barrier"),
        ("bar.sync", "barrier"),
        ("bra.uni", "control"),
    ],
)
def test_classes(form: str, name: str) -> None:
    assert classify_form(form) == name


def test_an_unknown_opcode_has_no_class() -> None:
    with pytest.raises(KeyError):
        classify_form("frobnicate.b32")


def test_copies_in_flight() -> None:
    """What cp.async copies, with the sectors that it reads and the wavefronts that it writes."""
    found = count_instruction("cp.async.cg.shared.global [%r2], [%rd1], 16;", stride_offsets(16))
    assert (found.bytes, found.sectors, found.ideal_sectors) == (512, 16, 16)
    assert (found.wavefronts, found.ideal_wavefronts) == (4, 4)
    found = count_instruction("cp.async.ca.shared.global [%r2], [%rd1], 4;", stride_offsets(132))
    assert (found.bytes, found.sectors, found.wavefronts) == (128, 32, 1)


def test_matrices() -> None:
    """ldmatrix takes a wavefront for each matrix whose rows lie in banks of their own."""
    four = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r20, %r21, %r22, %r23}, [%r2];"
    # Strides of rows, and the ratios 2, 4, 8 and 1 that an RTX 5090 counts for them.
    for stride, wavefronts in ((32, 8), (64, 16), (128, 32), (144, 4)):
        offsets = [stride * (lane % 16) + 16 * (lane // 16) for lane in range(32)]
        found = count_instruction(four, offsets)
        assert (found.wavefronts, found.ideal_wavefronts) == (wavefronts, 4)
    product = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, "
        "{%r20, %r21, %r22, %r23}, {%r24, %r25}, {%f1, %f2, %f3, %f4};"
    )
    found = count_instruction(product, stride_offsets(4))
    assert found.operations == 2 * 16 * 8 * 16
    assert found.classes == {"matrix": 1}


# What commands printed.


def test_page_shows_what_is_kept() -> None:
    kept = json.loads(measured_figures.FILE.read_text(encoding="utf-8"))
    page = "".join(one.read_text(encoding="utf-8") for one in measured_figures.PAGES)
    assert (
        {mark[1] for mark in measured_figures.MARKS.findall(page)}
        == set(measured_figures.BLOCKS)
        == set(kept)
    )
    assert measured_figures.fill_marks(page, kept) == page


def test_every_figure_says_where_it_is_from() -> None:
    kept = json.loads(measured_figures.FILE.read_text(encoding="utf-8"))
    for part in kept.values():
        for one in part.values():
            assert {"date", "commit", "processor", "command"} <= one.keys()
            script = one["command"].split()[1]
            assert (measured_figures.ROOT / script).is_file(), script
            assert not one["commit"].endswith("+changes")


def test_what_is_recorded_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, file = tmp_path / "page.md", tmp_path / "page.json"
    blocks = "".join(
        f"\n<!-- figures: {name} -->\nold\n<!-- end of figures -->\n"
        for name in measured_figures.BLOCKS
    )
    page.write_text(f"before{blocks}after\n", encoding="utf-8")
    monkeypatch.setattr(measured_figures, "PAGES", [page])
    monkeypatch.setattr(measured_figures, "FILE", file)
    counts = {"passed": 1234, "skipped": 5, "explained": 6, "failed": 0}
    measured_figures.record_figures("triton", "sm_100", counts, "python tests/some.py")
    measured_figures.record_figures(
        "triton", "sm_80", {**counts, "passed": 7}, "python tests/some.py"
    )
    times = {"instructions": 3_000_000, "plain": 0.03, "counted": 0.06, "checked": 0.09}
    measured_figures.record_figures(
        "kernels", "all", {"of": {"add": times}}, "python tests/other.py"
    )
    measured_figures.record_figures(
        "speed", "building", {"rows": [["compiling", "40 s"]]}, "python tests/third.py"
    )
    counts = {"all": 3, "right": 3, "faults": 1, "kernels": 5}
    found = {"repositories": {"a/b": counts, "c/d": counts}}
    measured_figures.record_figures("operators", "all", found, "python tests/fourth.py")
    text = page.read_text(encoding="utf-8")
    assert "| a/b | 3 | 3 | 5 | 1 |" in text and "| all | 6 | 6 | 10 | 2 |" in text
    assert "| sm_80 | 18 | 7 | 5 | 6 | 0 |\n| sm_100 | 1,245 | 1,234 | 5 | 6 | 0 |" in text
    assert "| add | 100 | 50 | 33 | 2.00 | 3.00 |" in text
    assert "| compiling | 40&nbsp;s |" in text
    assert "Not run yet." in text  # of public kernels
    assert "old" not in text
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert f"{measured_figures.describe_processor()}, by `python tests/some.py`.\n" in text
    assert measured_figures.fill_marks(text, json.loads(file.read_text(encoding="utf-8"))) == text

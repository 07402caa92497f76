"""Every planted fault is found, and nothing is found in what is sound.
Takes 12 s, as each fault has a kernel of its own.

Programs drawn at random: a race is found where there is one, and only there.

What is a race is said here by bytes: two threads touch one, one of them writes, and no barrier of
the block stands between, nor, if they are of one warp, a barrier of the warp. In global memory the
engine takes the lanes of a warp together."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from faults import barriers, bounds, copies, global_memory, shared_memory
from marks import exhaustive
from papergpu import errors, toolkit
from papergpu.cuda import Finding, Settings, Source
from papergpu.launch import aligned_zeros
from ptx_launch import RUNS, execute_ptx, make_launcher, read_outcomes, write_kernel

ROOT = Path(__file__).resolve().parents[2]

pytest.importorskip("cuda.bindings.nvrtc")

SOUND = {
    one.name: one
    for module in (bounds, shared_memory, global_memory, barriers, copies)
    for one in module.SOUND
}
FAULTS = [(one.name, fault) for one in SOUND.values() for fault in one.faults]
SCHEDULES = [(schedule, seed) for schedule in ("robin", "far", "random") for seed in (0, 1, 5)]
WRONG = "its result is wrong"
TARGETS = ("sm_90", "sm_80")
each_target = pytest.mark.parametrize("target", exhaustive(TARGETS, "all architectures"))
TRITON = "faulty_triton.py"


@cache
def find_fault(name: str, fault: str) -> list[str]:
    """What is found of a fault, in each of a few runs until one says what it should."""
    sound = SOUND[name]
    planted = sound.faults[fault]
    said = []
    for schedule, seed in RUNS:
        try:
            sound.run(make_launcher(sound, sound.plant_fault(planted), schedule, seed, 2_000_000))
        except Finding as finding:
            said.append(str(finding))
            if re.search(planted.says, said[-1]):
                break
        except AssertionError:
            said.append(WRONG)
    return said


@pytest.mark.parametrize("name", SOUND)
def test_what_is_sound_passes_under_every_schedule(name: str) -> None:
    sound = SOUND[name]
    for schedule, seed in SCHEDULES:
        sound.run(make_launcher(sound, sound.source, schedule, seed))


@each_target
def test_sound_kernels_of_triton_pass(target: str) -> None:
    pytest.importorskip("triton")
    sound = {
        name: said for name, said in read_outcomes(TRITON, target).items() if name.endswith(" 0")
    }
    assert len(sound) >= 5 and not any(line for said in sound.values() for line in said), sound


@each_target
def test_faults_of_kernels_of_triton_are_found(target: str) -> None:
    pytest.importorskip("triton")
    faults = {
        name: said[-1]
        for name, said in read_outcomes(TRITON, target).items()
        if not name.endswith(" 0")
    }
    assert len(faults) >= 9
    missed = {name: line for name, line in faults.items() if line in ("", WRONG)}
    assert not missed


@pytest.mark.parametrize("every", exhaustive([8, 1], "all planted faults"))
def test_ptx_launch_are_found(capsys: pytest.CaptureFixture[str], every: int) -> None:
    missed, planted = [], FAULTS[::every]
    for name, fault in planted:
        said = find_fault(name, fault)
        if not said or not re.search(SOUND[name].faults[fault].says, said[-1]):
            missed.append(f"{name}, {fault}: {said}")
    line = f"found {len(planted) - len(missed)} of {len(planted)} planted faults"
    with capsys.disabled():
        print("", line, *missed, sep="\n")
    assert len(FAULTS) >= 60 and not missed
    page = (ROOT / "docs" / "about" / "papergpu" / "right.md").read_text()
    assert f"| planted faults | {len(FAULTS)} in {len(SOUND)} sound CUDA kernels and " in page


@pytest.mark.parametrize("name", SOUND)
def test_findings_are_a_line_that_names_the_place_and_the_mend(name: str) -> None:
    for fault in SOUND[name].faults:
        for text in find_fault(name, fault):
            if text != WRONG:
                where, _, what = text.partition("): ")
                assert (
                    re.search(r" at \S+:\d+, block \(.*\), thread \(", where) and "\n" not in text
                )
                assert ": " in what or "which has" in what or "in no " in what, text


# Programs drawn at random.

WARPS, BYTES = 4, 4096
LOADED = {
    1: "ld.{}.u8 %r9, [{}];",
    2: "ld.{}.u16 %h9, [{}];",
    4: "ld.{}.u32 %r9, [{}];",
    8: "ld.{}.u64 %rd9, [{}];",
    16: "ld.{}.v4.u32 {{%r9, %r10, %r11, %r12}}, [{}];",
}
STORED = {
    1: "st.{}.u8 [{}], %r4;",
    2: "st.{}.u16 [{}], %h4;",
    4: "st.{}.u32 [{}], %r4;",
    8: "st.{}.u64 [{}], %rd4;",
    16: "st.{}.v4.u32 [{}], {{%r4, %r4, %r4, %r4}};",
}
SAID = ("nothing orders", "no barrier between", "another value")


@dataclass(frozen=True)
class Access:
    """Lanes below `lanes` of a warp touch `width` bytes each, `stride` apart, from `base` on."""

    warp: int
    writes: bool
    width: int
    stride: int
    base: int
    lanes: int

    def list_touched(self) -> dict[int, set[int]]:
        """By byte, the lanes that touch it."""
        found: dict[int, set[int]] = {}
        for lane, byte in product(range(self.lanes), range(self.width)):
            found.setdefault(self.base + lane * self.stride + byte, set()).add(lane)
        return found

    def write_ptx(self, space: str) -> str:
        """PTX: every access computes its address anew."""
        form = (STORED if self.writes else LOADED)[self.width].format(space, "%rd6")
        return f"""
  setp.eq.u32 %p1, %r1, {self.warp};
  setp.lt.and.u32 %p1, %r2, {self.lanes}, %p1;
  mad.lo.u32 %r5, %r2, {self.stride}, {self.base};
  cvt.u64.u32 %rd6, %r5;
  add.u64 %rd6, %rd6, %rd5;
  @%p1 {form}"""


Phase = list[list[Access]]  # between two barriers of the block: pieces between two of the warps


def draw_phases(seed: int) -> list[Phase]:
    """Warps that write keep to a slice of their own, others read elsewhere; one may stray."""
    rng = random.Random(seed)
    phases = []
    for number in range(rng.randint(1, 3)):
        size = BYTES // WARPS
        slices = rng.sample(range(WARPS), WARPS)
        writers = {warp for warp in range(WARPS) if rng.random() < 0.5}
        phase: Phase = []
        for _ in range(rng.randint(1, 3)):
            piece = []
            for warp in range(WARPS):
                count = 90 if warp == number and rng.random() < 0.1 else rng.randint(0, 3)
                free = [slices[other] for other in range(WARPS) if other not in writers]
                writes = warp in writers and rng.random() < 0.6
                where = [slices[warp]] if warp in writers else free
                width = rng.choice((1, 2, 4, 4, 4, 8, 16))  # of all that a warp does in this piece
                most = size // 32 // width
                stride = width * rng.choice((1, 1, 2, 3, max(1, most)))
                if writes:
                    stride = min(stride, width * most)
                for _ in range(count):
                    room = size - 32 * stride
                    shift = 0 if writes or room <= 0 else rng.randrange(0, room + 1, width)
                    base = rng.choice(where) * size
                    lanes = rng.choice((32, 32, 32, 13))
                    apart = stride if writes or rng.random() < 0.8 else 0
                    if apart * 32 <= size:
                        piece.append(Access(warp, writes, width, apart, base + shift, lanes))
            rng.shuffle(piece)
            phase.append(piece)
        phases.append(phase)
    if rng.random() < 0.7:  # somebody strays
        width = rng.choice((1, 2, 4, 8, 16))
        base = rng.randrange(0, BYTES - 32 * width, width)
        warp, writes, lanes = rng.randrange(WARPS), rng.random() < 0.8, rng.choice((1, 32, 32))
        rng.choice(rng.choice(phases)).append(Access(warp, writes, width, width, base, lanes))
    return phases


def has_race(phases: list[Phase], lanes_too: bool) -> bool:
    """Whether some byte is touched by two with nothing between, and written by one of them."""
    for phase in phases:
        seen: dict[int, set[tuple[int, int, int, bool]]] = {}
        for number, piece in enumerate(phase):
            for one in piece:
                for byte, lanes in one.list_touched().items():
                    for lane in lanes:
                        for warp, other, when, wrote in seen.get(byte, ()):
                            near = not lanes_too or other == lane or when < number
                            if (wrote or one.writes) and not (warp == one.warp and near):
                                return True
                    if lanes_too and one.writes and len(lanes) > 1:
                        return True
                for byte, lanes in one.list_touched().items():
                    new = {(one.warp, lane, number, one.writes) for lane in lanes}
                    seen.setdefault(byte, set()).update(new)
    return False


def write_program(phases: list[Phase], space: str) -> str:
    """The program: each thread stores another value; shared memory is written first."""
    body = """
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  and.b32 %r2, %r0, 31;
  add.u32 %r4, %r0, 1;
  cvt.u16.u32 %h4, %r4;
  cvt.u64.u32 %rd4, %r4;
"""
    if space == "shared":
        body += "  mov.u64 %rd5, tile;\n  mad.wide.u32 %rd6, %r0, 16, %rd5;\n"
        step = 16 * 32 * WARPS
        for at in range(0, BYTES, step):
            body += f"  st.shared.v4.u32 [%rd6+{at}], {{%r4, %r4, %r4, %r4}};\n"
    else:
        body += "  mov.u64 %rd5, %rd0;\n"
    for phase in phases:
        body += "  bar.sync 0;\n"
        pieces = ("".join(one.write_ptx(space) for one in piece) + "\n" for piece in phase)
        body += "  bar.warp.sync -1;\n".join(pieces)
    if space == "global":  # a read matters once its warp writes
        body += f"  mad.wide.u32 %rd6, %r0, 4, %rd5;\n  st.global.u32 [%rd6+{BYTES}], %r4;\n"
    return write_kernel(body + "  ret;", module=f".shared .align 16 .b8 tile[{BYTES}];")


def find_race(phases: list[Phase], space: str, settings: Settings) -> str:
    """What the engine says, or nothing."""
    try:
        memory = np.zeros(BYTES // 4 + 32 * WARPS, np.uint32)
        execute_ptx(write_program(phases, space), memory, block=32 * WARPS, settings=settings)
    except Finding as one:
        return str(one)
    return ""


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("first", exhaustive(range(0, 160, 20), "more seeds", light=3))
def test_a_race_is_found_where_there_is_one(space: str, first: int) -> None:
    outcomes = set()
    for seed in range(first, first + 20):
        phases = draw_phases(seed)
        said = find_race(phases, space, Settings(threads=1, seed=seed % 3))
        there = has_race(phases, lanes_too=space == "shared")
        assert any(one in said for one in SAID) == there, (seed, said, phases)
        outcomes.add(there)
    assert outcomes == {True, False}


STORE, VOTE = "st.global.u32 [%rd0+256], %r3;", "bar.red.popc.u32 %r4, 0, %p1;"


@pytest.mark.parametrize("effect", ["", STORE, VOTE])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("first", [0, 1])
def test_a_racing_read_is_found_where_something_may_come_of_it(
    effect: str, before: bool, first: int
) -> None:
    """Warp 0 writes what warp 1 reads; whoever is not first waits a while, in a loop."""
    body = f"""
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  setp.eq.u32 %p1, %r1, {first};
  @%p1 bra GO;
  mov.u32 %r5, 0;
WAIT:
  add.u32 %r5, %r5, 1;
  setp.lt.u32 %p2, %r5, 500;
  @%p2 bra WAIT;
GO:
  setp.eq.u32 %p1, %r1, 0;
  {effect if before else ""}
  bar.sync 1;
  mov.u32 %r6, 7;
  @%p1 st.global.u32 [%rd0], %r6;
  @!%p1 ld.global.u32 %r3, [%rd0];
  {"" if before else effect}
  ret;"""
    memory = np.zeros(128, np.uint32)
    try:
        execute_ptx(write_kernel(body), memory, block=64, settings=Settings(schedule="far"))
        said = ""
    except Finding as one:
        said = str(one)
        assert one.result.steps > 1000 and memory[0] == 7  # it went on to its end
    assert ("put a barrier between them" in said) == (bool(effect) and not before), said


def list_reads(count: int) -> list[Access]:
    """Of the first slice, each by another instruction at another place."""
    return [Access(0, False, 4, 4, 4 * number, 32) for number in range(count)]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("place", [0, 31])
def test_a_writer_meets_the_first_of_many_reads(count: int, place: int) -> None:
    late = Access(1, True, 4, 4, 4 * place, 1)
    settings = Settings(threads=1, schedule="far")
    assert "which thread" in find_race([[[*list_reads(count), late]]], "shared", settings)
    assert not find_race([[list_reads(count)], [[late]]], "shared", settings)


def test_who_arrives_and_goes_on_is_not_met() -> None:
    body = """
  mov.u32 %r0, %tid.x;
  setp.lt.u32 %p1, %r0, 32;
  mov.u32 %r3, tile;
  @%p1 st.shared.u32 [%r3], 1;
  @%p1 bar.arrive 1, 64;
  @!%p1 bar.sync 1, 64;
  @%p1 st.shared.u32 [%r3+4], 1;
  @!%p1 ld.shared.u32 %r4, [%r3{}];
  ret;
"""
    for at, said in (("", False), ("+4", True)):
        ptx = write_kernel(body.format(at), module=".shared .align 16 .b8 tile[64];")
        try:
            execute_ptx(ptx, np.zeros(4, np.uint32), block=64, settings=Settings(threads=1))
        except Finding as one:
            assert said and ("no barrier between" in str(one) or "nobody" in str(one)), one
        else:
            assert not said


@pytest.mark.parametrize("apart", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("form", [LOADED, STORED], ids=["load", "store"])
def test_blocks_beside_each_other_do_not_race(apart: int, form: dict[int, str]) -> None:
    """Of 32 bytes, noted together, blocks have a part each; or one takes its neighbour's."""
    for overlap in (False, True):
        body = f"""
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r4, %ctaid.x;
  cvt.u16.u32 %h4, %r4;
  cvt.u64.u32 %rd4, %r4;
  mad.wide.u32 %rd6, %r0, {apart}, %rd0;
  {STORED[apart].format("global", "%rd6")}
  setp.eq.u32 %p1, %r0, 3;
  {"@%p1 " + form[apart].format("global", f"%rd6+{-apart}") if overlap else ""}
  ret;
"""
        try:
            memory, settings = np.zeros(64, np.uint32), Settings(threads=1)
            execute_ptx(write_kernel(body), memory, grid=4, block=1, settings=settings)
        except Finding as one:
            assert overlap, one
            assert "nothing orders" in str(one)
        else:
            assert not overlap


def test_the_last_of_many_atomics_has_seen_the_others() -> None:
    """Blocks on several threads of the host count at 32 places; who comes last there sets it to 0.

    What is noted of atomics must have the order in which they were done: otherwise, in one launch
    of four, a block that came before seems to have come after.
    """
    body = """
  mov.u32 %r0, %tid.x;
  mad.wide.u32 %rd6, %r0, 16, %rd0;
  atom.global.add.u32 %r1, [%rd6], 1;
  mov.u32 %r2, %nctaid.x;
  sub.u32 %r2, %r2, 1;
  setp.eq.u32 %p1, %r1, %r2;
  @%p1 st.global.u32 [%rd6], 0;
  ret;
"""
    counts = np.zeros((32, 4), np.uint32)
    for seed in range(100):
        execute_ptx(write_kernel(body), counts, grid=64, settings=Settings(threads=4, seed=seed))
        assert not counts.any()


PAGE = (ROOT / "docs" / "about" / "papergpu" / "findings.md").read_text()
KINDS = {}  # the kernel of each, and what is said of it
for section in re.split("^## ", PAGE, flags=re.MULTILINE)[1:]:
    name, anchor = re.match(r"([\w-]+) \{ #([\w-]+) \}\n", section).groups()
    assert name == anchor
    code, said = re.search(r"```cuda\n(.*?)```\n\n```text\n(.*?)\n```", section, re.S).groups()
    KINDS[name] = code, " ".join(said.split())


def test_the_page_has_all_kinds_and_no_other() -> None:
    assert KINDS.keys() == {*errors.KINDS, errors.OPERAND, errors.HOST}
    assert errors.PAGE.endswith("/about/papergpu/findings/")


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {errors.HOST}))
def test_the_smallest_kernel_has_what_the_page_says(kind: str, tmp_path: Path) -> None:
    text, said = KINDS[kind]
    target, threads = ("sm_100a", 32) if "sm_100a" in text else ("sm_90a", 64)
    path = tmp_path / f"{kind}.cu"
    path.write_text(text)
    with pytest.raises(Finding) as found:
        Source(path, target=target).launch(
            "k", 1, threads, aligned_zeros(256).view(np.int32), settings=Settings(limit=10_000)
        )
    what = found.value.what.replace(f"{tmp_path}/", "")
    address = re.compile(r"0x[0-9a-f]+")
    assert address.sub("0x", what) == address.sub("0x", said)
    assert found.value.kind == kind


def test_a_kind_is_told_by_the_engines_words_alone(tmp_path: Path) -> None:
    path = tmp_path / "mbarrier 1 fence.cu"
    path.write_text(
        "#include <assert.h>\n__global__ void k(int* fence) {\n"
        "    assert(fence[0] != 1);\n    fence[fence[0]] = 1;\n}\n"
        '__global__ void stuck() { asm volatile("bar.sync %0, 64;" :: "r"(threadIdx.x / 32)); }\n'
    )
    source, x = Source(path), aligned_zeros(4).view(np.int32)
    for kernel, value, kind in (("k", 1, "assertion"), ("k", 9, "bounds"), ("stuck", 0, "hang")):
        x[0] = value
        with pytest.raises(Finding) as found:
            source.launch(kernel, 1, 64, *([x] if kernel == "k" else []))
        assert found.value.kind == kind, found.value


def test_kinds_are_chosen_and_stand_in_reports(tmp_path: Path) -> None:
    toolkit.find_nvcc()
    text, said = KINDS[errors.HOST]
    path, report = tmp_path / "host.cu", tmp_path / "report.sarif"
    path.write_text(text)

    def run(only: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "papergpu", "run", "--only", only]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
        done = subprocess.run([*command, "--report", report, path], capture_output=True, text=True,
                              env=environment)  # fmt: skip
        return done.returncode, done.stderr

    status, told = run("race,host")
    assert status == 1 and told.startswith(f"error: {said} [host]\n")
    [written] = json.loads(report.read_text())["runs"]
    assert [one["ruleId"] for one in written["results"]] == ["host"]
    assert written["tool"]["driver"]["rules"] == [
        {"id": "host", "helpUri": f"{errors.PAGE}#host"}
    ]  # fmt: skip
    status, told = run("race")
    assert status == 0 and "0 findings" in told
    status, told = run("rase")
    assert status == 2 and "no kind 'rase'; choose assertion, hang, race, lanes" in told

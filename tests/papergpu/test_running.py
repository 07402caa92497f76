"""Warps, the groups of lanes within them, barriers, blocks and calls, in PTX written by hand."""

from __future__ import annotations

import numpy as np
import pytest
from papergpu import records
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Settings
from ptx_launch import execute_ptx, write_kernel

SCHEDULES = [
    Settings(schedule=name, seed=seed, threads=1)
    for name, seed in (("robin", 0), ("far", 1), ("random", 2), ("random", 3))
]
STORE = """
  mov.u32 %r63, %tid.x;
  mad.lo.s32 %r63, %r62, 1, %r63;
  mul.wide.u32 %rd62, %r63, 4;
  add.s64 %rd63, %rd0, %rd62;
  st.global.u32 [%rd63], %r0;
"""


def write_storing_kernel(body: str) -> str:
    """A kernel that stores %r0 of each thread at its number in the grid."""
    first = "mov.u32 %r61, %ctaid.x; mov.u32 %r60, %ntid.x; mul.lo.s32 %r62, %r61, %r60;"
    return write_kernel(f"{body}\n{first}{STORE} ret;")


def run_body(body: str, threads: int = 32, blocks: int = 1, **more: object) -> np.ndarray:
    out = np.zeros(threads * blocks, np.uint32)
    execute_ptx(write_storing_kernel(body), out, grid=blocks, block=threads, **more)
    return out


def test_lanes_that_part_meet_again() -> None:
    """Each side of a branch is executed by its lanes alone, and what follows by all at once."""
    got = run_body("""
      mov.u32 %r1, %tid.x;
      setp.lt.u32 %p1, %r1, 10;
      @%p1 bra LOW;
      add.u32 %r0, %r1, 1000;
      bra.uni DONE;
    LOW:
      add.u32 %r0, %r1, 100;
    DONE:
      activemask.b32 %r2;
      setp.eq.u32 %p2, %r2, 0xffffffff;
      @!%p2 mov.u32 %r0, 7;
    """)
    lanes = np.arange(32)
    assert (got == np.where(lanes < 10, lanes + 100, lanes + 1000)).all()


def test_a_loop_of_as_many_turns_as_the_lane_says() -> None:
    got = run_body("""
      mov.u32 %r1, %tid.x;
      mov.u32 %r0, 0;
    TURN:
      setp.eq.u32 %p1, %r1, 0;
      @%p1 bra OUT;
      add.u32 %r0, %r0, %r1;
      sub.u32 %r1, %r1, 1;
      bra TURN;
    OUT:
    """)
    lanes = np.arange(32)
    assert (got == lanes * (lanes + 1) // 2).all()


def test_labels_and_registers_have_the_scope_of_their_braces() -> None:
    got = run_body("""
      mov.u32 %r0, 1;
      {
        .reg .b32 %r0;
        .reg .pred %p1;
        mov.u32 %r0, 99;
        setp.ne.u32 %p1, %r0, 99;
        @%p1 bra L;
      L:
      }
      {
        .reg .pred %p1;
        setp.eq.u32 %p1, %r0, 1;
        @%p1 bra L;
        mov.u32 %r0, 50;
      L:
        add.u32 %r0, %r0, 1;
      }
    """)
    assert (got == 2).all()


def test_a_table_of_branches() -> None:
    got = run_body("""
      mov.u32 %r1, %tid.x;
      and.b32 %r2, %r1, 3;
      T: .branchtargets A, B, C, D;
      brx.idx %r2, T;
    A:
      mov.u32 %r0, 10; bra Z;
    B:
      mov.u32 %r0, 20; bra Z;
    C:
      mov.u32 %r0, 30; bra Z;
    D:
      mov.u32 %r0, 40;
    Z:
    """)
    assert (got == np.tile([10, 20, 30, 40], 8)).all()


CALLS = """
.func (.param .b32 out) twice(.param .b32 in) {
  .reg .b32 %a;
  ld.param.b32 %a, [in];
  add.u32 %a, %a, %a;
  st.param.b32 [out], %a;
  ret;
}
.func (.reg .b32 %res) early(.reg .b32 %x) {
  .reg .pred %q;
  mov.u32 %res, 5;
  setp.lt.u32 %q, %x, 16;
  @%q ret;
  mov.u32 %res, 6;
  ret;
}
"""


def test_calls_are_executed_in_place() -> None:
    body = """
      mov.u32 %r1, %tid.x;
      {
        .param .b32 give;
        .param .b32 take;
        st.param.b32 [give], %r1;
        call.uni (take), twice, (give);
        ld.param.b32 %r0, [take];
      }
      call (%r2), early, (%r1);
      add.u32 %r0, %r0, %r2;
    """
    ptx = write_storing_kernel(body).replace(".visible .entry", CALLS + ".visible .entry")
    out = np.zeros(32, np.uint32)
    execute_ptx(ptx, out)
    lanes = np.arange(32)
    assert (out == lanes * 2 + np.where(lanes < 16, 5, 6)).all()


def test_what_calls_itself_is_refused() -> None:
    ptx = write_storing_kernel("call again, ();").replace(
        ".visible .entry", ".func again() { call again, (); ret; }\n.visible .entry"
    )
    with pytest.raises(Unsupported, match="again calls itself"):
        execute_ptx(ptx, np.zeros(32, np.uint32))


REVERSE = """
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, tile;
  mad.lo.u32 %r3, %r1, 4, %r2;
  st.shared.u32 [%r3], %r1;
  bar.sync 0;
  mov.u32 %r4, %ntid.x;
  sub.u32 %r5, %r4, 1;
  sub.u32 %r6, %r5, %r1;
  mad.lo.u32 %r7, %r6, 4, %r2;
  ld.shared.u32 %r0, [%r7];
"""


@pytest.mark.parametrize("settings", SCHEDULES, ids=lambda s: f"{s.schedule}-{s.seed}")
@pytest.mark.parametrize("threads", [32, 64, 100, 1024])
def test_a_barrier_holds_under_every_schedule(settings: Settings, threads: int) -> None:
    out = np.zeros(threads * 5, np.uint32)
    ptx = write_storing_kernel(".shared .align 4 .b8 tile[4096];" + REVERSE)
    execute_ptx(ptx, out, grid=5, block=threads, settings=settings)
    assert (out.reshape(5, threads) == np.arange(threads)[::-1]).all()


def test_named_barriers_let_some_arrive_and_go_on() -> None:
    """Warp 0 fills, arrives at barrier 1 and goes on; warp 1 waits there and reads."""
    body = """
      .shared .align 4 .b8 tile[128];
      mov.u32 %r1, %tid.x; mov.u32 %r2, tile; and.b32 %r3, %r1, 31;
      mad.lo.u32 %r4, %r3, 4, %r2;
      setp.ge.u32 %p1, %r1, 32;
      @%p1 bra READ;
      st.shared.u32 [%r4], %r1;
      bar.arrive 1, 64;
      mov.u32 %r0, 7;
      bra END;
    READ:
      bar.sync 1, 64;
      ld.shared.u32 %r0, [%r4];
    END:
    """
    for settings in SCHEDULES:
        got = run_body(body, 64, settings=settings)
        assert (got[:32] == 7).all() and (got[32:] == np.arange(32)).all()


def test_barriers_that_reduce() -> None:
    got = run_body("""
      mov.u32 %r1, %tid.x;
      setp.lt.u32 %p1, %r1, 40;
      bar.red.popc.u32 %r2, 0, %p1;
      bar.red.and.pred %p2, 0, %p1;
      bar.red.or.pred %p3, 0, !%p1;
      selp.u32 %r3, 100, 0, %p2;
      selp.u32 %r4, 1000, 0, %p3;
      add.u32 %r0, %r2, %r3; add.u32 %r0, %r0, %r4;
    """, 64)  # fmt: skip
    assert (got == 1040).all()


def test_special_registers() -> None:
    out = np.zeros((6, 8, 10), np.uint32)
    body = """
      mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ctaid.y;
      mov.u32 %r5, %laneid; mov.u32 %r6, %lanemask_lt; popc.b32 %r6, %r6;
      mov.u32 %r7, %ntid.x; mov.u32 %r8, %nctaid.x; mov.u32 %r9, %nctaid.y; mov.u32 %r20, %ntid.y;
      mad.lo.u32 %r10, %r4, %r8, %r3;
      mul.lo.u32 %r21, %r7, %r20;
      mad.lo.u32 %r11, %r2, %r7, %r1;
      mad.lo.u32 %r11, %r10, %r21, %r11;
      mul.wide.u32 %rd1, %r11, 4; add.s64 %rd2, %rd0, %rd1;
      sub.u32 %r12, %r5, %r6;
      add.u32 %r13, %r11, %r12;
      add.u32 %r13, %r13, %r9;
      st.global.u32 [%rd2], %r13; ret;
    """
    execute_ptx(write_kernel(body), out, grid=(2, 3), block=(10, 8))
    assert (out.ravel() == np.arange(480) + 3).all()


def test_local_memory_is_each_threads_own() -> None:
    got = run_body("""
      .local .align 8 .b8 own[64];
      .reg .b64 %at;
      mov.u32 %r1, %tid.x;
      and.b32 %r2, %r1, 15;
      mul.wide.u32 %rd1, %r2, 4;
      mov.u64 %rd2, own;
      cvta.local.u64 %at, %rd2;
      add.s64 %rd3, %at, %rd1;
      st.u32 [%rd3], %r1;
      add.s64 %rd4, %rd2, %rd1;
      ld.local.u32 %r0, [%rd4];
    """)
    assert (got == np.arange(32)).all()


GLOBALS = """
.const .align 4 .u32 table[4] = {5, 6, 7, 8};
.global .align 8 .u64 to = generic(table) + 4;
.global .align 4 .u32 counter = 3;
"""


def test_a_modules_variables() -> None:
    body = """
      ld.const.u32 %r1, [table+12];
      mov.u64 %rd1, to;
      cvta.global.u64 %rd2, %rd1;
      ld.u64 %rd3, [%rd2];
      ld.u32 %r2, [%rd3];
      atom.global.add.u32 %r3, [counter], 1;
      mul.lo.u32 %r4, %r1, 100;
      mad.lo.u32 %r0, %r2, 10, %r4;
    """
    ptx = write_storing_kernel(body).replace(".visible .entry", GLOBALS + ".visible .entry")
    out = np.zeros(32, np.uint32)
    execute_ptx(ptx, out)
    assert (out == 860).all()


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [("shfl.sync.bfly.b32 %r0, %r1, 5, 31, -1", lambda n: n ^ 5),
     ("shfl.sync.down.b32 %r0, %r1, 3, 31, -1", lambda n: np.where(n < 29, n + 3, n)),
     ("shfl.sync.up.b32 %r0, %r1, 3, 0, -1", lambda n: np.where(n > 2, n - 3, n)),
     ("shfl.sync.idx.b32 %r0, %r1, 2, 0x181f, -1", lambda n: n // 8 * 8 + 2),
     ("vote.sync.ballot.b32 %r0, %p1, -1", lambda n: n * 0 + 0xFF),
     ("match.any.sync.b32 %r0, %r2, -1", lambda n: 0x11111111 << n % 4),
     ("redux.sync.add.s32 %r0, %r1, -1", lambda n: n * 0 + 496),
     ("redux.sync.max.u32 %r0, %r1, -1", lambda n: n * 0 + 31)],
)  # fmt: skip
def test_lanes_exchange(instruction: str, expected: object) -> None:
    got = run_body(f"""
      mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; setp.lt.u32 %p1, %r1, 8;
      {instruction};
    """)
    assert callable(expected)
    assert (got == expected(np.arange(32))).all()


def test_lanes_wait_for_those_that_their_mask_names() -> None:
    """The lower half comes late, through a loop; the shuffle is of all 32 nonetheless."""
    got = run_body("""
      mov.u32 %r1, %tid.x; mov.u32 %r3, 50;
      setp.ge.u32 %p1, %r1, 16;
      @%p1 bra MEET;
    AGAIN:
      sub.u32 %r3, %r3, 1;
      setp.ne.u32 %p2, %r3, 0;
      @%p2 bra AGAIN;
    MEET:
      shfl.sync.bfly.b32 %r0, %r1, 16, 31, -1;
    """)
    assert (got == np.arange(32) ^ 16).all()


def test_lanes_that_have_ended_are_not_waited_for() -> None:
    """The upper half waits at the barrier; the lower one, laid out behind it, ends instead."""
    got = run_body("""
      mov.u32 %r1, %tid.x; mov.u32 %r0, 3;
      setp.lt.u32 %p1, %r1, 16;
      @%p1 bra LEAVE;
      bar.sync 0;
      bra STAY;
    LEAVE:
      exit;
    STAY:
    """, settings=Settings(checks=False, threads=1))  # fmt: skip
    assert (got == np.where(np.arange(32) < 16, 0, 3)).all()


def test_one_lane_may_wait_for_another() -> None:
    """A lock between lanes of one warp: the holder goes on although another spins before it."""
    lock = np.zeros(1, np.uint32)
    count = np.zeros(1, np.uint32)
    execute_ptx(write_kernel("""
    SPIN:
      atom.global.cas.b32 %r1, [%rd0], 0, 1;
      setp.ne.u32 %p1, %r1, 0;
      @%p1 bra SPIN;
      ld.volatile.global.u32 %r2, [%rd1];
      add.u32 %r2, %r2, 1;
      st.volatile.global.u32 [%rd1], %r2;
      membar.gl;
      atom.global.exch.b32 %r3, [%rd0], 0;
      ret;
    """, 2), lock, count, block=64, settings=Settings(threads=1, checks=False))  # fmt: skip
    assert count[0] == 64


def test_blocks_may_wait_for_blocks_that_have_not_begun() -> None:
    """Block 0 spins until the last has passed: the engine begins others while it does."""
    flag = np.zeros(1, np.uint32)
    execute_ptx(write_kernel("""
      mov.u32 %r1, %ctaid.x;
      setp.ne.u32 %p1, %r1, 0;
      @%p1 bra SET;
    SPIN:
      ld.acquire.gpu.global.u32 %r2, [%rd0];
      setp.lt.u32 %p2, %r2, 7;
      @%p2 bra SPIN;
      ret;
    SET:
      atom.release.gpu.global.add.u32 %r3, [%rd0], 1;
      ret;
    """), flag, grid=8, block=1)  # fmt: skip
    assert flag[0] == 7


# What goes wrong is said in one line.


def catch_fault(ptx: str, *arrays: np.ndarray, **more: object) -> str:
    with pytest.raises(Finding) as caught:
        execute_ptx(ptx, *arrays, **more)
    return str(caught.value)


def test_a_read_out_of_bounds_names_the_line_the_block_and_the_thread() -> None:
    said = catch_fault(
        write_storing_kernel("ld.global.u32 %r0, [%rd0+400];"), np.zeros(100, np.uint32)
    )
    assert "k at PTX line" in said and "block (0, 0, 0), thread (0, 0, 0)" in said
    assert "reads 4 bytes at byte 400 of p0, which has 400: mask it" in said


@pytest.mark.parametrize(
    ("body", "expected"),
    [("ld.global.u32 %r0, [%rd0-4];", "4 bytes before the start of p0"),
     ("mov.u64 %rd5, 8; ld.u32 %r0, [%rd5];", "a null pointer"),
     ("ld.global.u32 %r0, [%rd0+2];", "not a multiple of 4: align it"),
     (".shared .align 4 .b8 t[64]; ld.shared.u32 %r0, [t+64];", "byte 64 of shared memory"),
     ("trap;", "the kernel traps here"),
     ("bar.sync 16;", "there is no barrier 16"),
     ("bar.sync 1, 40;", "are not whole warps"),
     ("bar.sync 1, 64;", "it never opens")],
)  # fmt: skip
def test_what_no_thread_may_do(body: str, expected: str) -> None:
    assert expected in catch_fault(write_storing_kernel(body), np.zeros(32, np.uint32))


def test_a_barrier_that_some_have_left() -> None:
    said = catch_fault(write_storing_kernel("""
      mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 40; @%p1 exit;
      bar.sync 0;
    """), np.zeros(64, np.uint32), block=64)  # fmt: skip
    assert "barrier 0 is not reached by" in said


def test_a_barrier_in_two_branches() -> None:
    said = catch_fault(write_storing_kernel("""
      mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra B;
      bar.sync 0; bra C;
    B:
      bar.sync 0;
    C:
    """), np.zeros(64, np.uint32), block=64)  # fmt: skip
    assert "in two places" in said and "move it out of the branch" in said


def test_a_shuffle_whose_mask_names_a_lane_elsewhere() -> None:
    said = catch_fault(write_storing_kernel("""
      mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 16; @%p1 bra B;
      shfl.sync.bfly.b32 %r0, %r1, 1, 31, -1;
    B:
      bar.sync 0;
    """), np.zeros(32, np.uint32))  # fmt: skip
    assert "no thread can go on" in said and "waits for other lanes of its warp" in said


def test_a_mask_without_the_lane_itself() -> None:
    said = catch_fault(
        write_storing_kernel("mov.u32 %r1, 0xff; shfl.sync.bfly.b32 %r0, %r1, 1, 31, %r1;"),
        np.zeros(32, np.uint32),
    )
    assert "does not name lane 8, which executes this" in said


def test_a_kernel_that_never_ends() -> None:
    said = catch_fault(write_storing_kernel("L: bra L;"), np.zeros(32, np.uint32),
                       settings=Settings(limit=10_000, threads=1))  # fmt: skip
    assert "has executed 10001 instructions and has not ended" in said


def test_a_form_that_is_not_executed_is_refused_with_its_line() -> None:
    with pytest.raises(
        Unsupported, match=r"frob\.b32 at PTX line \d+: frob\.b32 is not in the table"
    ):
        execute_ptx(write_storing_kernel("frob.b32 %r0, %r1;"), np.zeros(32, np.uint32))


@pytest.mark.parametrize(
    ("grid", "block", "said"),
    [(1, 2048, "has more than 1024 threads"), (0, 32, "must be at least 1"),
     ((1, 70000), 32, "exceeds 2")],
)  # fmt: skip
def test_launches_that_no_gpu_begins(grid: object, block: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        execute_ptx(
            write_storing_kernel("mov.u32 %r0, 1;"), np.zeros(32, np.uint32), grid=grid, block=block
        )


def test_the_engine_lays_its_records_out_as_python_does(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = records.load_engine.__wrapped__
    assert engine() is records.load_library()
    monkeypatch.setattr(records, "COUNT", np.dtype([("run", "u8")]))
    with pytest.raises(RuntimeError, match="Count has 80 bytes, but 8 in Python"):
        engine()


def test_an_option_that_no_launch_has_is_refused() -> None:
    with pytest.raises(TypeError, match="no launch option dynamics: use dynamic, cluster"):
        run_body("mov.u32 %r0, 1;", dynamics=1)


# Calls through pointers, and of what has no body in PTX: printf, assertions, and the heap.

PRINTS = """
.extern .func (.param .b32 out) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 words[8] = {37, 100, 61, 37, 115, 10, 0};
.global .align 1 .b8 name[3] = {97, 98, 0};
"""
DECLARED = """
.extern .func (.param .b64 out) malloc (.param .b64 size);
.extern .func free (.param .b64 at);
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
    .param .b64 s);
"""


def test_each_thread_prints_and_gets_the_number_of_its_arguments() -> None:
    out = np.zeros(10, np.uint32)
    body = """
      .local .align 8 .b8 given[16];
      mov.u32 %r10, %tid.x; mov.u32 %r11, %ctaid.x; mad.lo.u32 %r10, %r11, 5, %r10;
      mov.u64 %rd1, given; cvta.local.u64 %rd2, %rd1; mov.u64 %rd3, name; mov.u64 %rd4, words;
      cvta.global.u64 %rd4, %rd4; cvta.global.u64 %rd3, %rd3;
      st.local.u32 [%rd1], %r10; st.local.u64 [%rd1+8], %rd3;
      {
      .param .b64 a; .param .b64 b; .param .b32 c;
      st.param.b64 [a], %rd4; st.param.b64 [b], %rd2;
      call.uni (c), vprintf, (a, b);
      ld.param.b32 %r1, [c];
      }
      mul.wide.u32 %rd5, %r10, 4; add.s64 %rd6, %rd0, %rd5; st.global.u32 [%rd6], %r1; ret;"""
    done = execute_ptx(write_kernel(body, 1, PRINTS), out, grid=2, block=5)
    assert sorted(done.printed.splitlines()) == sorted(f"{one}=ab" for one in range(10))
    assert (out == 2).all()


TAKEN = """
  { .param .b64 a; .param .b64 b; st.param.b64 [a], SIZE;
    call.uni (b), malloc, (a); ld.param.b64 AT, [b]; }"""
GIVEN = "{ .param .b64 a; st.param.b64 [a], AT; call.uni free, (a); }"


def test_each_thread_has_memory_of_its_own_from_the_heap() -> None:
    """Sixteen threads take pieces, fill them, and read them once all have."""
    out = np.zeros((16, 2), np.uint64)
    take = TAKEN.replace("SIZE", "%rd2").replace("AT", "%rd3")
    body = f"""
      mov.u32 %r10, %tid.x; add.u32 %r1, %r10, 1; mul.wide.u32 %rd2, %r1, 8; {take}
      mov.u32 %r2, 0; mov.u64 %rd4, %rd3;
    FILL:
      st.u64 [%rd4], %rd2; add.u64 %rd4, %rd4, 8; add.u32 %r2, %r2, 1;
      setp.lt.u32 %p1, %r2, %r1; @%p1 bra FILL;
      bar.sync 0; mov.u32 %r2, 0; mov.u64 %rd5, 0;
    SUM:
      sub.u64 %rd4, %rd4, 8; ld.u64 %rd6, [%rd4]; add.u64 %rd5, %rd5, %rd6;
      add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, %r1; @%p1 bra SUM;
      {GIVEN.replace("AT", "%rd3")}
      mul.wide.u32 %rd7, %r10, 16; add.s64 %rd8, %rd0, %rd7;
      st.global.v2.u64 [%rd8], {{%rd3, %rd5}}; ret;"""
    execute_ptx(write_kernel(body, 1, DECLARED), out, block=16)
    assert out[:, 0].all() and not (out[:, 0] % 16).any()
    assert (out[:, 1] == 8 * (np.arange(16) + 1) ** 2).all()


def test_what_is_given_back_can_be_taken_again() -> None:
    """Twelve pieces of a megabyte, one after the other, from a heap of eight."""
    out = np.zeros(1, np.uint32)
    take = TAKEN.replace("SIZE", "1048576").replace("AT", "%rd3")
    body = f"""
      mov.u32 %r1, 0; mov.u32 %r2, 0;
    TURN:
      {take} setp.ne.u64 %p1, %rd3, 0; selp.u32 %r3, 1, 0, %p1; add.u32 %r2, %r2, %r3;
      {GIVEN.replace("AT", "%rd3")}
      add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 12; @%p2 bra TURN;
      st.global.u32 [%rd0], %r2; ret;"""
    execute_ptx(write_kernel(body, 1, DECLARED), out, block=1)
    assert out[0] == 12


def test_an_assertion_that_fails_is_found_where_it_fails() -> None:
    body = """
      mov.u32 %r10, %tid.x; setp.lt.u32 %p1, %r10, 5; @%p1 bra FINE;
      mov.u64 %rd4, words; cvta.global.u64 %rd4, %rd4;
      mov.u64 %rd3, name; cvta.global.u64 %rd3, %rd3;
      { .param .b64 m; .param .b64 f; .param .b32 l; .param .b64 n; .param .b64 s;
        st.param.b64 [m], %rd4; st.param.b64 [f], %rd3; st.param.b32 [l], 12;
        st.param.b64 [n], %rd3; st.param.b64 [s], 1;
        call.uni __assertfail, (m, f, l, n, s); }
    FINE: ret;"""
    module = (PRINTS + DECLARED).replace("vprintf", "unused")
    with pytest.raises(Finding, match=r"thread \(5, .*: the assertion `%d=%s\n` of ab:12 fails"):
        execute_ptx(write_kernel(body, 1, module), np.zeros(1, np.uint32))


POINTED = """
.func (.param .b32 out) twice (.param .b32 in) { .reg .b32 %a;
  ld.param.b32 %a, [in]; add.u32 %a, %a, %a; st.param.b32 [out], %a; ret; }
.func (.param .b32 out) less (.param .b32 in) { .reg .b32 %a;
  ld.param.b32 %a, [in]; sub.u32 %a, %a, 1; st.param.b32 [out], %a; ret; }
.global .align 8 .u64 table[3] = {twice, less, 0};
"""
THROUGH = """
  mov.u32 %r10, %tid.x; rem.u32 %r1, %r10, COUNT; mul.wide.u32 %rd1, %r1, 8;
  mov.u64 %rd2, table; add.s64 %rd2, %rd2, %rd1; ld.global.u64 %rd3, [%rd2];
  { .param .b32 give; .param .b32 take; st.param.b32 [give], %r10;
    P: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (take), %rd3, (give), P; ld.param.b32 %r2, [take]; }
  mul.wide.u32 %rd4, %r10, 4; add.s64 %rd5, %rd0, %rd4; st.global.u32 [%rd5], %r2; ret;
"""


def test_a_call_through_a_pointer_finds_its_function_or_that_there_is_none() -> None:
    out, lanes = np.zeros(32, np.uint32), np.arange(32)
    execute_ptx(write_kernel(THROUGH.replace("COUNT", "2"), 1, POINTED), out)
    assert (out == np.where(lanes % 2, lanes - 1, lanes * 2)).all()
    with pytest.raises(Finding, match=r"thread \(2, 0, 0\): calls a function at 0"):
        execute_ptx(write_kernel(THROUGH.replace("COUNT", "3"), 1, POINTED), out)


def test_a_function_that_calls_itself_through_a_pointer_is_found() -> None:
    again = """
.func (.param .b32 out) again (.param .b32 in) { .reg .b32 %a; .reg .b64 %b, %c; .reg .pred %q;
  ld.param.b32 %a, [in]; setp.lt.u32 %q, %a, 40; @%q bra DONE;
  mov.u64 %b, table; ld.global.u64 %c, [%b];
  { .param .b32 give; .param .b32 take; st.param.b32 [give], 1;
    P: .callprototype (.param .b32 _) _ (.param .b32 _);
    call (take), %c, (give), P; ld.param.b32 %a, [take]; }
DONE: st.param.b32 [out], %a; ret; }
.global .align 8 .u64 table[1] = {again};
"""
    out = np.zeros(64, np.uint32)
    execute_ptx(write_kernel(THROUGH.replace("COUNT", "1"), 1, again), out)
    assert (out[:32] == np.arange(32)).all()
    with pytest.raises(Finding, match="a function calls itself through a pointer"):
        execute_ptx(write_kernel(THROUGH.replace("COUNT", "1"), 1, again), out, block=64)

"""Calls through pointers, and of what has no body in PTX: printf, assertions, and the heap."""

from __future__ import annotations

import numpy as np
import pytest
from papergpu.errors import Finding
from ptx_launch import execute_ptx, write_kernel

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

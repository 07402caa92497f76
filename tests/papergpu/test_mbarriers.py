"""mbarriers: phases, counts, waits of every form, and what is found of their misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from papergpu.errors import Finding, Unsupported
from papergpu.launch import Settings
from ptx_launch import MBARRIERS, compile_cuda, launch_kernel, load_kernel_once

COMMON = (
    MBARRIERS
    + r"""
#define BAR "r"(SHARED(&bar))
extern "C" __global__ void k(u64* y) {
  __shared__ alignas(8) u64 bar; __shared__ volatile u32 s[64]; u64 t = 0; u32 p = 0; (void)t;
      (void)p;
"""
)


def launch_mbarriers(body: str, block: int = 64, count: int = 64, **more: Any) -> Any:
    y = np.zeros(count, np.uint64)
    launch_kernel(load_kernel_once(compile_cuda(COMMON + body + "\n}")), y, block=block, **more)
    return y


def find_mbarrier_misuse(body: str, **more: Any) -> str:
    with pytest.raises(Finding) as raised:
        launch_mbarriers(body, **more)
    return str(raised.value)


INIT = """if (threadIdx.x == 0)
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: BAR, "r"(N) : "memory");
  __syncthreads();"""  # fmt: skip


def begin_mbarrier(count: object) -> str:
    return INIT.replace("N", str(count))


@pytest.mark.parametrize("schedule", ["robin", "far", "random"])
@pytest.mark.parametrize("how", ["try", "test"])
def test_phases_follow_each_other(schedule: str, how: str) -> None:
    body = begin_mbarrier(64) + r"""
  for (u32 i = 0; i < 9; ++i) {
    s[threadIdx.x] = 100 * i + threadIdx.x;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(t) : BAR : "memory");
    do asm volatile("{ .reg .pred q; mbarrier.HOW_wait.shared::cta.b64 q, [%1], %2; selp.u32 "
        "%0, 1, 0, q; }" : "=r"(p) : BAR, "l"(t) : "memory"); while (!p);
    y[threadIdx.x] += s[63 - threadIdx.x];
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], 1;" : "=l"(t)
        : BAR : "memory");
    do asm volatile("{ .reg .pred q; mbarrier.HOW_wait.parity.acquire.cta.shared::cta.b64 q, "
        "[%1], 1; selp.u32 %0, 1, 0, q; }" : "=r"(p) : BAR : "memory"); while (!p);
  }""".replace("HOW", how)  # fmt: skip
    y = launch_mbarriers(body, settings=Settings(threads=1, schedule=schedule, seed=5))
    assert np.array_equal(y, 3600 + 9 * (63 - np.arange(64)))


def test_counts_drops_and_pending() -> None:
    body = begin_mbarrier(10) + r"""
  if (threadIdx.x) return;
  auto pending = [&](u64 t) { u32 n; asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n)
      : "l"(t)); return n; };
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1], 3;" : "=l"(t) : BAR : "memory");
      y[0] = pending(t);
  asm volatile("mbarrier.arrive.noComplete.shared.b64 %0, [%1], 2;" : "=l"(t) : BAR : "memory");
      y[1] = pending(t);
  asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1], 4;" : "=l"(t) : BAR : "memory");
      y[2] = pending(t);
  asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(t) : BAR : "memory");
      y[3] = pending(t);
  wait(&bar, 0);
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(t) : BAR : "memory");
      y[4] = pending(t);
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 48;" :: BAR : "memory");
  asm volatile("mbarrier.arrive.shared.b64 %0, [%1], 4;" : "=l"(t) : BAR : "memory");
      y[5] = pending(t);
  asm volatile("{ .reg .pred q; mbarrier.test_wait.parity.shared.b64 q, [%1], 1; selp.u32 %0, "
      "1, 0, q; }" : "=r"(p) : BAR : "memory"); y[6] = p;
  asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 48;" :: BAR : "memory");
  asm volatile("{ .reg .pred q; mbarrier.test_wait.parity.shared.b64 q, [%1], 1; selp.u32 %0, "
      "1, 0, q; }" : "=r"(p) : BAR : "memory"); y[7] = p;
  asm volatile("mbarrier.inval.shared.b64 [%0];" :: BAR : "memory");
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: BAR : "memory");"""  # fmt: skip
    assert list(launch_mbarriers(body)[:8]) == [10, 7, 5, 1, 5, 4, 0, 1]


def test_a_look_ahead_does_not_hang() -> None:
    """A try_wait whose phase only its own thread will end comes back with false."""
    body = begin_mbarrier(1) + r"""
  if (threadIdx.x) return;
  for (u32 i = 0; i < 600; ++i) {
    asm volatile("{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2, 1000; "
        "selp.u32 %0, 1, 0, q; }" : "=r"(p) : BAR, "r"(i % 2) : "memory");
    y[0] += p;
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: BAR : "memory");
    wait(&bar, i % 2); y[1] += 1;
  }"""  # fmt: skip
    assert list(launch_mbarriers(body)[:2]) == [0, 600]


def test_waits_of_warps_on_each_other() -> None:
    """A producer and a consumer with a ring of two slots, full and empty barriers."""
    body = r"""
  __shared__ alignas(8) u64 full[2], empty[2];
  if (threadIdx.x == 0) for (int i = 0; i < 2; ++i) {
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(SHARED(&full[i])) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(SHARED(&empty[i])) : "memory");
  }
  __syncthreads();
  u32 lane = threadIdx.x % 32;
  for (u32 i = 0; i < 20; ++i) {
    u32 slot = i % 2, round = i / 2;
    if (threadIdx.x < 32) {
      wait(&empty[slot], round % 2 ^ 1);
      s[32 * slot + lane] = i * lane;
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(SHARED(&full[slot])) : "memory");
    } else {
      wait(&full[slot], round % 2);
      y[lane] += s[32 * slot + 31 - lane];
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(SHARED(&empty[slot])) : "memory");
    }
  }"""  # fmt: skip
    for seed in range(3):
        settings = Settings(threads=1, seed=seed, schedule="random" if seed else "robin")
        assert np.array_equal(
            launch_mbarriers(body, settings=settings)[:32], 190 * (31 - np.arange(32))
        )


ARRIVE = r'asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: BAR : "memory");'


def test_misuse_is_found() -> None:
    assert "where no mbarrier is" in find_mbarrier_misuse(ARRIVE)
    assert "where no mbarrier is" in find_mbarrier_misuse("wait(&bar, 0);")
    assert "a store has overwritten it" in find_mbarrier_misuse(
        begin_mbarrier(64) + "if (threadIdx.x == 0) bar = 7; __syncthreads();" + ARRIVE
    )
    assert "invalidates" in find_mbarrier_misuse(
        r'if (threadIdx.x == 0) asm volatile("mbarrier.inval.shared.b64 [%0];" :: BAR : "memory");'
    )
    twice = begin_mbarrier(64) + ARRIVE + begin_mbarrier(64)
    assert "mbarrier.inval it first" in find_mbarrier_misuse(twice)
    assert "from 1 to 1048575" in find_mbarrier_misuse(begin_mbarrier(0))
    more = (
        begin_mbarrier(3)
        + r"""
  if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0], 4;" :: BAR : "memory");"""
    )
    assert "arrives 4 times" in find_mbarrier_misuse(
        more
    ) and "waits for 3 of 3 arrivals" in find_mbarrier_misuse(more)
    completes = more.replace("arrive.", "arrive.noComplete.").replace("_, [%0], 4", "t, [%0], 3")
    completes = completes.replace('"mbarrier', '"{ .reg .b64 t; mbarrier').replace(
        ';" ::', '; }" ::'
    )
    assert "leave out .noComplete" in find_mbarrier_misuse(completes)
    bytes_ = (
        begin_mbarrier(1)
        + r"""
  if (threadIdx.x == 0) for (int i = 0; i < 3; ++i)
    asm volatile("mbarrier.OP.relaxed.cta.shared::cta.b64 [%0], 700000;" :: BAR : "memory");"""
    )
    assert "would expect 1400000 bytes" in find_mbarrier_misuse(bytes_.replace("OP", "expect_tx"))
    assert "more than it expects, by 1400000" in find_mbarrier_misuse(
        bytes_.replace("OP", "complete_tx")
    )
    assert "not a multiple of 8: align it" in find_mbarrier_misuse(
        begin_mbarrier(1).replace("BAR", '"r"(SHARED(&bar) + 4)')
    )


def test_a_wait_that_never_ends_names_its_mbarrier() -> None:
    text = find_mbarrier_misuse(
        begin_mbarrier(64) + "if (threadIdx.x) " + ARRIVE + " wait(&bar, 0);"
    )
    assert "no thread can go on" in text and "initialised at kernel.cu" in text
    assert "lacks 1 of 64 arrivals, for its phase of parity 0" in text


def test_what_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(Unsupported, match="multimem"):
        launch_mbarriers(
            'asm volatile("multimem.red.relaxed.sys.global.add.u32 [%0], 1;" :: "l"(y) : "memory");'
        )

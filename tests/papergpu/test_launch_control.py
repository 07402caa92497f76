"""Clusters that have not begun, taken back and done by those that run."""

from __future__ import annotations

import numpy as np
import pytest
from blackwell import execute
from papergpu.errors import Finding
from papergpu.launch import Settings

# Every block counts its own number and that of each block it takes back, until there is none.
BODY = """
    .reg .b128 %b;
    @%p1 mbarrier.init.shared::cta.b64 [barrier], 1;
    bar.sync 0;
    @!%p1 ret;
    mov.u32 %x0, %ctaid.x;
    mov.u32 %x1, 0;
more:
    mul.wide.u32 %l1, %x0, 4;
    add.u64 %l1, %l0, %l1;
    atom.global.add.u32 %x2, [%l1], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [barrier], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128
        [data], [barrier];
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [barrier], %x1;
    @!%p2 bra again;
    xor.b32 %x1, %x1, 1;
    ld.shared.v2.b64 {%l2, %l3}, [data];
    mov.b128 %b, {%l2, %l3};
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %b;
    @!%p3 ret;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%x0, %x3, %x4, _}, %b;
    clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %x5, %b;
    setp.ne.u32 %p4, %x0, %x5;
    @%p4 trap;
    fence.proxy.async.shared::cta;
    bra more;
"""


@pytest.mark.parametrize("seed", [0, 3])
def test_each_block_is_done_once_by_somebody(seed: int) -> None:
    done = np.zeros(37, np.uint32)
    execute(BODY, {"done": done}, threads=32, blocks=37, settings=Settings(threads=1, seed=seed))
    np.testing.assert_array_equal(done, 1)


def test_asking_which_cluster_was_taken_back_if_none_was_is_found() -> None:
    done = np.zeros(8, np.uint32)
    with pytest.raises(Finding, match="none was"):
        execute(BODY.replace("@!%p3 ret;", ""), {"done": done}, threads=32, blocks=1)

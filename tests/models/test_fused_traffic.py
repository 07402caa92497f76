"""fused_traffic: what crosses a kernel's border is counted once, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippet_facts import broken_facts

from snippets.fused_traffic import cases
from snippets.fused_traffic import fused_traffic as fused
from snippets.fused_traffic.fused_traffic import Operation


@given(st.integers(1, 8), st.data())
def test_a_chain_costs_two_tensors_a_kernel(length: int, data: st.DataObject) -> None:
    chain = [Operation(f"t{i + 1}", (f"t{i}",)) for i in range(length)]
    cuts = data.draw(st.sets(st.integers(1, length), max_size=length))
    ends = [0, *sorted(cuts - {length}), length]
    kernels = [tuple(chain[a:b]) for a, b in zip(ends, ends[1:], strict=False)]
    moved = fused.traffic(kernels, ["t0"], [f"t{length}"])
    assert [one.moved for one in moved] == [2] * len(kernels)


def test_a_value_with_two_readers_is_written_once_and_read_by_each() -> None:
    a, b = Operation("a", ("x",)), Operation("b", ("a",))
    c = Operation("c", ("a", "b"))
    apart = fused.traffic([(a,), (b,), (c,)], ["x"], ["c"])
    assert [one.moved for one in apart] == [2, 2, 3]
    assert [one.moved for one in fused.traffic([(a, b), (c,)], ["x"], ["c"])] == [3, 3]
    # Wanted for the backward pass, a tensor is written though nobody reads it here.
    assert [one.moved for one in fused.traffic([(a, b, c)], ["x"], ["a", "c"])] == [3]


def test_facts_hold_and_a_forgotten_write_breaks_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert broken_facts(cases.facts()) == []
    monkeypatch.setattr(fused.Traffic, "moved", property(lambda self: len(self.reads)))
    assert len(broken_facts(cases.facts())) == 5


def test_an_input_that_nobody_made_is_refused() -> None:
    with pytest.raises(ValueError, match="nobody has made 'gelu' yet"):
        fused.traffic([(fused.ADD,)], ["skip"], ["sum"])
    hidden = ((fused.PRODUCT, fused.BIAS), (Operation("z", ("y",)),))
    with pytest.raises(ValueError, match="nobody has made 'y' yet"):
        fused.traffic(hidden, [], ["z"])

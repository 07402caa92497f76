"""When jobs end that share a machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warpshelf.bench.schedule import Load, ends

LOADS = st.lists(
    st.builds(Load, st.integers(0, 50).map(float), st.booleans(), st.just(False)), max_size=12
)


def test_as_many_go_at_a_time_as_there_are_workers() -> None:
    four = [Load(seconds) for seconds in (3, 1, 1, 2)]
    assert ends(four, 1, 1) == [3, 4, 5, 7]
    assert ends(four, 2, 1) == [3, 1, 2, 4]
    assert ends(four, 9, 1, start=10) == [13, 11, 11, 12]
    assert ends([], 2, 1) == []


def test_a_gpu_is_shared_by_few_while_others_go_on() -> None:
    gpu, host = Load(4, on_gpu=True), Load(1)
    assert ends([gpu, gpu, host, host], 3, 1) == [4, 8, 1, 1]
    assert ends([gpu, gpu, gpu], 3, 2) == [4, 4, 8]


def test_what_runs_alone_waits_for_all_others_and_goes_by_itself() -> None:
    loads = [Load(5, alone=True), Load(3), Load(4), Load(2, alone=True)]
    assert ends(loads, 2, 1) == [9, 3, 4, 11]


def test_what_has_begun_keeps_its_place() -> None:
    assert ends([Load(1), Load(2, begun=True), Load(3, begun=True)], 2, 1) == [3, 2, 3]
    assert ends([Load(1, on_gpu=True), Load(2, on_gpu=True, begun=True)], 4, 1) == [3, 2]
    assert ends([Load(7, alone=True, begun=True), Load(1, alone=True)], 4, 1) == [7, 8]


@given(LOADS, st.integers(1, 4), st.integers(1, 3))
def test_it_takes_no_less_than_the_work_and_no_more_than_one_after_another(
    loads: list[Load], workers: int, most: int
) -> None:
    done = ends(loads, workers, most)
    work = sum(load.seconds for load in loads)
    on_gpu = sum(load.seconds for load in loads if load.on_gpu)
    longest = max((load.seconds for load in loads), default=0)
    least = max(work / workers, on_gpu / min(most, workers), longest)
    assert least - 1e-9 <= max(done, default=0) <= work
    spans = [(end - load.seconds, end, load) for end, load in zip(done, loads, strict=True)]
    for begin, end, _ in spans:
        beside = [one for one in spans if one[0] <= begin < one[1]]
        assert begin < 0 or begin == end or len(beside) <= workers
        assert begin == end or sum(load.on_gpu for *_, load in beside) <= most

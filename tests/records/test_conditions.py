"""Conditions in words: what differs between two records, and what tells several apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_machine, make_record

from warpshelf.records import record_comparison

KEY = "imaginary-g9-80gb"
SOFTWARE = ("driver", "torch", "triton", "cuda")


def make_dated(date: str = "2031-05-06T07:08:09Z", who: str = "", **software: str | None) -> dict:
    found = make_record(date=date) | {"machine": make_machine() | software}
    return found | ({"origin": {"who": who}} if who else {})


def tell_apart(*records: dict) -> list[str]:
    keys = [KEY, *(f"{KEY}.{number}" for number in range(2, 10))]
    return list(record_comparison.distinct_labels(dict(zip(keys, records, strict=False))).values())


def test_one_record_needs_no_words() -> None:
    assert tell_apart(make_dated()) == [""]


def test_one_condition_tells_apart_where_one_does() -> None:
    assert tell_apart(make_dated(driver="550.1"), make_dated(driver="580.2")) == [
        "driver 550.1",
        "driver 580.2",
    ]
    assert tell_apart(make_dated(driver="1"), make_dated(driver=None)) == [
        "driver 1",
        "driver unknown",
    ]
    assert tell_apart(make_dated(triton="3.6.0"), make_dated()) == ["Triton 3.6.0", "Triton 3.7.1"]
    day = "2031-05-07T00:00:00Z"
    assert tell_apart(make_dated(), make_dated(day)) == ["made on 6 May 2031", "made on 7 May 2031"]
    minute = tell_apart(make_dated(), make_dated("2031-05-06T09:00:00Z"))
    assert minute == ["made on 6 May 2031, 07:08 UTC", "made on 6 May 2031, 09:00 UTC"]
    assert tell_apart(make_dated(who="Ada"), make_dated(who="Grace")) == [
        "made by Ada",
        "made by Grace",
    ]


def test_several_conditions_where_none_does_alone() -> None:
    three = (make_dated(driver="1"), make_dated(driver="1", torch="2.11.0"), make_dated(driver="2"))
    assert tell_apart(*three) == [
        "driver 1, torch 2.13.0", "driver 1, torch 2.11.0", "driver 2, torch 2.13.0",
    ]  # fmt: skip
    assert tell_apart(make_dated(), make_dated()) == ["record 1", "record 2"]


@given(
    st.lists(
        st.fixed_dictionaries({key: st.sampled_from(["1", "2", None]) for key in SOFTWARE}),
        min_size=2,
        max_size=6,
    )
)
def test_no_two_records_get_the_same_words(chosen: list[dict]) -> None:
    words = tell_apart(*(make_dated(**software) for software in chosen))
    assert len(set(words)) == len(chosen) and all(words)


def test_what_differs_is_said_and_what_bears_on_times_as_well() -> None:
    first, second = make_dated(driver="550.1"), make_dated(driver="580.2")
    second["conditions"] = {"load": {"sm_mhz": 1410}, "slowed_by": ["hardware slowdown"]}
    told = record_comparison.side_by_side(first, second)
    assert "driver 550.1 → 580.2" in told and "torch 2.13.0," in told
    assert "SM clock 1980 MHz → 1410 MHz" in told and "temperature 55 °C → unknown" in told
    assert "slowed by unknown → hardware slowdown" in told and "CUDA" not in told
    names = [
        one.name
        for one in record_comparison.changed_conditions(first, second, record_comparison.SOFTWARE)
    ]
    assert names == ["driver"]
    assert record_comparison.changed_conditions(first, first) == []
    first["conditions"]["load"]["sm_mhz_lowest"] = 1200
    assert "SM clock 1980 MHz, 1200 MHz at the lowest" in record_comparison.format_conditions(first)
    job = {"job": "https://github.com/warpshelf/warpshelf/actions/runs/1"}
    assert (
        record_comparison.record_conditions(make_dated() | {"origin": job})["made by"]
        == "a job of this project"
    )


def test_a_narrow_column_says_a_unit_once_where_it_can() -> None:
    def format_time(median: float, p20: float, p80: float) -> str:
        return record_comparison.format_brief_time({"median": median, "p20": p20, "p80": p80})

    assert format_time(4.91e-5, 4.81e-5, 5.06e-5) == "49.1 µs (48.1 to 50.6)"
    assert format_time(1.0e-3, 9.8e-4, 1.1e-3) == "1.00 ms (980 µs to 1.10 ms)"

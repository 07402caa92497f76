"""What a record has to be, and how much of it there may be."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator

import made_up_records
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_machine, make_record

from warpshelf.core.files import LARGEST_INTEGER
from warpshelf.records import limits, record_comparison
from warpshelf.records.schema import LONGEST_SLUG, RECORD, shape_problem, validation_error

# Every key of a record, each at few places, since a test goes through all of them.
FULL = made_up_records.make_record(
    facts=made_up_records.make_facts()[:1],
    timelines=made_up_records.make_timelines()[1:],
    grids=made_up_records.make_grids()[:1],
    predictions=made_up_records.make_predictions()[1:2],
    goals=made_up_records.make_goals()[:1],
    cases=[
        made_up_records.make_case(
            64, 64, [made_up_records.make_result("a", 1e-4, reason="")], timed=True
        )
    ],
    compiled=[made_up_records.make_compiled("sm_90")],
    due=made_up_records.list_due(made_up_records.make_ladder()[2:]),
    space=made_up_records.make_space(),
)


def make_changed(gpus: int = 1, **more: object) -> dict:
    """A sound record with some keys replaced; `a__b` is the key b of the object a."""
    found = made_up_records.make_record(
        gpus, facts=made_up_records.make_facts(), timelines=made_up_records.make_timelines()
    )
    found["grids"] = made_up_records.make_grids()
    found |= {
        "predictions": made_up_records.make_predictions(),
        "goals": made_up_records.make_goals(),
    }
    found = copy.deepcopy(found)
    for name, value in more.items():
        *way, last = (int(key) if key.isdigit() else key for key in name.split("__"))
        place = found
        for key in way:
            place = place[key]
        place[last] = value
    return found


def list_places(value: object, way: tuple = ()) -> Iterator[tuple]:
    """The way to each value inside a record."""
    yield way
    pairs = value.items() if isinstance(value, dict) else ()
    pairs = enumerate(value) if isinstance(value, list) else pairs
    for key, inner in pairs:
        yield from list_places(inner, (*way, key))


def change_at(record: dict, way: tuple, change: Callable[[dict | list, object], None]) -> dict:
    """A copy of `record` changed at one place."""
    found = copy.deepcopy(record)
    place = found
    for key in way[:-1]:
        place = place[key]
    change(place, way[-1])
    return found


WAYS = [way for way in list_places(FULL) if way]
OPTIONAL = {"due", "space", "cases", "facts", "ceilings", "conditions", "compiled", "skips", "load",
            "slowed_by", "reason", "untimed", "error", "tolerance", "max_error", "max_error_limit",
            "time", "void", "bytes", "flops", "unit", "timelines", "grids", "legend", "other",
            "refuses", "targets", "predictions", "goals", "within", "share"}  # fmt: skip
FREE = ("case", "timed", "matrix_flops_per_second", "peak_flops_per_second", "load")
BY_TARGET = ("space", "rows")  # has any architecture as a key


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_a_sound_record_has_no_problem(gpus: int) -> None:
    record = make_changed(gpus)
    assert shape_problem(record) is None
    assert validation_error(record) is None


@pytest.mark.parametrize("name", sorted(RECORD.keys() - {"schema"}))
def test_a_key_must_be_there_unless_it_may_be_absent(name: str) -> None:
    record = make_changed(due=FULL["due"]) | {
        "targets": ["sm_90"],
        "space": made_up_records.make_space(),
        "origin": {"who": "Ada Lovelace"},
        "seconds": {"verify": 1.5},
    }
    del record[name.rstrip("?")]
    said = shape_problem(record)
    if name.endswith("?"):
        assert said is None
    else:
        assert said == f"record lacks {name!r}"


def test_a_missing_key_is_a_problem_unless_it_may_be_absent() -> None:
    for way in WAYS:
        if not isinstance(way[-1], str):
            continue
        free = any(key in FREE for key in way[:-1]) or way[0] == "ceilings"
        free = free or way[:-1] == BY_TARGET
        rows = ("facts", "skips", "timelines", "grids", "predictions")
        fixed = way[0] in rows and len(way) > 1
        fixed = fixed or (way[0] == "due" and way[-1] == "tolerance")
        may_lack = free or (way[-1] in OPTIONAL and (not fixed or way[-1] in ("other", "legend")))
        lacking = change_at(FULL, way, lambda place, key: place.pop(key))
        said = shape_problem(lacking)
        assert (said is None) if may_lack else f"lacks {way[-1]!r}" in str(said), way


def test_an_unknown_key_is_a_problem_everywhere_but_where_any_may_stand() -> None:
    for way in WAYS:
        inner = FULL
        for key in way:
            inner = inner[key]
        if not isinstance(inner, dict) or way == BY_TARGET:
            continue
        more = change_at(FULL, way, lambda place, key: place[key].update({"extra": 1}))
        if any(key in FREE for key in way):
            assert shape_problem(more) is None
        else:
            assert "unknown key 'extra'" in (shape_problem(more) or "")


@given(st.sampled_from(WAYS), st.sampled_from([None, True, 7, 1.5, "x", [], [0], {}, {"x": []}]))
def test_a_value_of_another_type_is_a_problem_which_names_its_place(
    way: tuple, value: object
) -> None:
    old = FULL
    for key in way:
        old = old[key]
    if type(old) is type(value) or any(key in FREE for key in way):
        return
    if way[:2] == ("space", "parameters") and "values" in way[:-1]:
        return  # numbers, texts and truth values alike
    both_numbers = {type(old), type(value)} == {int, float}
    may_be_none = value is None and way in {
        ("commit",), *(("machine", key) for key, v in FULL["machine"].items()
                       if key not in ("slug", "device", "gpus", "python", "os"))
    }  # fmt: skip
    if both_numbers or may_be_none:
        return
    said = shape_problem(change_at(FULL, way, lambda place, key: place.__setitem__(key, value)))
    assert said is not None
    names = [key for key in way if isinstance(key, str)]
    assert names[-1] in said or names[0] in said
    assert len(said) < 300


@pytest.mark.parametrize(
    "record",
    [
        None, 3, "record", [], {},
        make_changed(snippet="../../x"),
        make_changed(snippet="softmax\n"),
        make_changed(snippet="Softmax"),
        make_changed(snippet=""),
        make_changed(machine__slug="../../x"),
        make_changed(machine__slug="a/b"),
        make_changed(machine__slug="a\\b"),
        make_changed(machine__slug="a b"),
        make_changed(machine__slug=".."),
        make_changed(machine__slug=""),
        make_changed(machine__slug="-a"),
        make_changed(machine__slug="a--b"),
        make_changed(machine__slug="H100"),
        make_changed(machine__slug="a\n"),
        make_changed(machine__slug="a" * (LONGEST_SLUG + 1)),
        make_changed(kind="page"),
        make_changed(digest="5a" * 32),
        make_changed(digest="sha256:" + "5A" * 32),
        make_changed(digest="sha256:" + "5a" * 31),
        make_changed(date="2031-05-06"),
        make_changed(date="２０３１-05-06T07:08:09Z"),
        make_changed(schema=1.0),
        make_changed(schema=True),
        make_changed(method="1"),
        make_changed(machine__gpus=1.0),
        make_changed(machine__memory_bytes=LARGEST_INTEGER),
        make_changed(cases__0__bytes=-LARGEST_INTEGER),
        make_changed(cases__0__results__0__error=math.nan),
        make_changed(cases__0__results__0__error=math.inf),
        make_changed(cases__0__results__0__error=True),
        make_changed(cases__0__results__0__role="rival"),
        make_changed(cases__0__results__0__verdict="maybe"),
        make_changed(cases__0__timed=1),
        make_changed(facts__0__verdict="failed"),
        make_changed(facts__0__value=math.nan),
        make_changed(grids__0__name="../../x"),
        make_changed(grids__0__cells__0__0=1),
        make_changed(grids__0__cells__0__0__1=9),
        make_changed(timelines__0__name="../../x"),
        make_changed(timelines__0__name="one-by-one\n"),
        make_changed(timelines__0__passes__0__kind="X"),
        make_changed(timelines__0__passes__0__start=0.5),
        make_changed(timelines__0__held__0=math.inf),
        make_changed(ceilings__copy_bytes_per_second="fast"),
        make_changed(ceilings__peak_flops_per_second={"bf16": None}),
        make_changed(conditions__load={"watts": "many"}),
        make_changed(conditions__slowed_by="heat"),
        make_changed(compiled__0__registers=32.5),
        make_changed(compiled__0__matrix_instructions=0),
        make_changed(skips__0__reason=None),
        make_changed(cases=[[]]),
        make_changed(predictions__0__published=0),
    ],
)  # fmt: skip
def test_a_shape_that_no_run_writes_is_a_problem(record: object) -> None:
    said = shape_problem(record)
    assert said
    assert len(said) < 300


def test_a_published_figure_of_nothing_is_named() -> None:
    said = shape_problem(make_changed(predictions__0__published=0))
    assert said == "record.predictions[0].published is 0, not a number between 1e-30 and 1e30"


TIMED = 2  # the case of made_up_records.make_ladder() that is timed
TIME = {"median": 5e-5, "p20": 4.9e-5, "p80": 5.1e-5, "n": 20}


def change_time(**more: object) -> dict:
    return make_changed(
        **{f"cases__{TIMED}__results__0__time__{key}": v for key, v in more.items()}
    )


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (make_changed(schema=0), "schema 0"),
        (make_changed(schema=-3), "schema -3"),
        (make_changed(date="2031-02-30T07:08:09Z"), "not a date"),
        (make_changed(date="2031-05-06T25:08:09Z"), "not a date"),
        (make_changed(machine__slug="cpu"), "disagree"),
        (make_changed(0, machine__slug="imaginary-g9-80gb"), "disagree"),
        (make_changed(machine__gpus=-1), "disagree"),
        (make_changed(machine__gpus=-1, machine__slug="cpu"), "disagree"),
        (
            make_changed(
                cases__0__results__0={"name": "x", "role": "variant", "verdict": "failed"}
            ),
            "variant 'x' failed; a failed run leaves no record",
        ),
        (make_changed(0, cases=made_up_records.make_ladder(True)), "has a time, but did not pass"),
        (make_changed(cases__0__results__0__time=TIME), "has a time, but did not pass"),
        (make_changed(cases__2__timed=False), "has a time, but did not pass"),
        (make_changed(cases__2__results__4__time=TIME), "has a time, but did not pass"),
        (change_time(p20=0), "no possible time"),
        (change_time(p20=-1e-5), "no possible time"),
        (change_time(p20=9e-5), "no possible time"),
        (change_time(p80=7e-5), "no possible time"),
        (change_time(n=0), "no possible time"),
        (change_time(void=-1), "no possible time"),
        (
            make_changed(cases__2__results__0__untimed="no"),
            "both a time and a reason for having none",
        ),
        (change_time(median=1e-6, p20=1e-6, p80=1e-6), "no possible time"),  # beats the bus
        (make_changed(cases__2__flops=10**15), "no possible time"),  # beats the units
        (make_changed(cases__0__results__0__error=5.1e-6), "over its tolerance"),
        (make_changed(cases__0__results__2__error=1.0), "peer 'torch' passed with an error over"),
        (make_changed(cases__0__results__0__error=-1e-9), "over its tolerance"),
        (make_changed(cases__0__results__0__tolerance=0), "over its tolerance"),
        (make_changed(cases__0__results__0__max_error=5e-9), "over its tolerance"),
        (make_changed(cases__0__results__0__max_error=-1.0), "over its tolerance"),
        (
            make_changed(
                cases__0__results__0={"name": "x", "role": "variant", "verdict": "passed"}
            ),
            "over its tolerance",
        ),
        (make_changed(facts__0__value=6738415617), "passed with 6738415617 instead of 6738415616"),
        (make_changed(facts__1__value=1.02e21), "'FLOPs' passed with"),
        (make_changed(predictions=[]), "not a list of rows"),
        (make_changed(predictions__1__name="small"), "'small' occurs twice"),
        (make_changed(predictions__2__predicted=221.0), "goal 'table 1' passed with 1 of 2 rows"),
        (make_changed(goals__0__sets=["Memoir"]), "which has no rows"),
        (make_changed(goals__0__mean=0.1), "must ask for one of"),
        (make_changed(timelines=[]), "not a list of rows"),
        (make_changed(grids=[]), "not a list of rows"),
        (make_changed(grids__0__columns=["0"]), "row 0 of its cells is not a list of 1"),
        (make_changed() | {"seconds": {"verify": 3, "time": -0.1}}, "took -0.1 s to time"),
        (make_changed() | {"seconds": {"compile": 1e9}}, "took 1000000000.0 s to compile"),
        (make_changed(timelines__0__unit=0), "its unit is 0"),
        (make_changed(timelines__0__passes__1__start=-1), "has the start -1"),
        (make_changed(timelines__1__name="one-by-one"), "occurs twice"),
    ],
)
def test_a_claim_that_no_run_makes_is_a_contradiction(record: dict, says: str) -> None:
    assert shape_problem(record) is None
    assert says in (validation_error(record) or "nothing")


@pytest.mark.parametrize(
    "record",
    [
        make_changed(cases__2__results__4__reason="raised RuntimeError: out of memory"),
        make_changed(cases__0__results__0={"name": "x", "role": "variant", "verdict": "skipped"}),
        make_changed(cases__0__results__0__error=0, cases__0__results__0__tolerance=0),
        # 1.255e-5 is within 1.26e-5, and is recorded as 1.3e-5
        make_changed(cases__0__results__0__error=1.3e-5, cases__0__results__0__tolerance=1.26e-5),
        make_changed(ceilings={}),
        make_changed(ceilings={}, cases__2__flops=10**15),
        change_time(median=4.007e-5, p20=4.0e-5, p80=4.1e-5),  # 100 % of the bus
        change_time(n=1),
        change_time(void=3),
        make_changed(commit=None),
    ],
)
def test_what_a_run_may_write_is_no_contradiction(record: dict) -> None:
    assert shape_problem(record) is None
    assert validation_error(record) is None


SMALL = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
    | st.sampled_from(["cpu", "passed", "variant", "kernel", 10**400, 1e308, 5e-324]),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.text(max_size=4) | st.sampled_from(sorted(OPTIONAL)), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


@given(st.sampled_from(WAYS), SMALL)
def test_no_value_anywhere_breaks_the_check(way: tuple, value: object) -> None:
    record = change_at(FULL, way, lambda place, key: place.__setitem__(key, value))
    for said in (shape_problem(record), shape_problem(record) or validation_error(record)):
        assert said is None or (isinstance(said, str) and said)


def test_a_sound_record_survives_json() -> None:
    assert json.loads(json.dumps(FULL)) == FULL


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        ({"who": "Ada Lovelace"}, None),
        ({"who": "李雷 (@lilei)"}, None),
        ({"job": "https://github.com/warpshelf/warpshelf/actions/runs/17"}, None),
        ({}, "must name either a person or a job"),
        (
            {"who": "Ada", "job": "https://github.com/a/b/actions/runs/1"},
            "must name either a person or a job",
        ),
        ({"who": "Ada\nLovelace"}, "record.origin.who is"),
        ({"who": " Ada"}, "record.origin.who is"),
        ({"who": ""}, "record.origin.who is"),
        ({"who": "<b>"}, "record.origin.who is"),
        ({"job": "http://github.com/a/b/actions/runs/1"}, "record.origin.job is"),
        ({"job": "https://github.com/a/b/actions/runs/1/../../../x"}, "record.origin.job is"),
        ({"mail": "ada@example.org"}, "unknown key 'mail'"),
    ],
)
def test_an_origin_is_a_name_or_the_log_of_a_job(origin: dict, says: str | None) -> None:
    record = make_changed() | {"origin": origin}
    said = shape_problem(record) or validation_error(record)
    assert said is None if says is None else says in str(said)


COST = {"bytes": 1000, "flops": 6000, "unit": "bf16"}
WRITTEN = COST | {"written": 250}
MEMORY = {"peak_bytes_per_second": 10.0}
PEAKS = {"peak_bytes_per_second": 10.0, "peak_flops_per_second": {"bf16": 50.0, "fp32": 5.0}}
H100 = {"sm": 90, "sms": 132}
BUS_BITS = 5120


def test_the_peaks_of_an_h100() -> None:
    found = limits.peak_rates(H100, BUS_BITS, 1980, 2619)
    assert found["peak_bytes_per_second"] == pytest.approx(3.352e12, rel=1e-3)
    rates = found["peak_flops_per_second"]
    assert rates["bf16"] == rates["fp16"] == pytest.approx(1.0705e15, rel=1e-3)
    # The data sheet's dense figures, at the boost clock of the sheet, lie just below these.
    assert rates["fp32"] == pytest.approx(66.9e12, rel=1e-2)
    assert rates["fp8"] == 2 * rates["fp16"] == 4 * rates["tf32"]


@pytest.mark.parametrize(
    ("sm", "sms", "mhz", "unit", "stated"),
    [
        (75, 40, 1590, "fp16", 65e12),  # T4's data sheet
        (75, 40, 1590, "fp32", 8.1e12),
        (75, 40, 1590, "int8", 130e12),
        (120, 170, 2407, "fp32", 104.8e12),  # RTX 5090, RTX Blackwell's whitepaper
        (120, 170, 2407, "fp16", 419e12),  # summed in fp16; in fp32 half of that
        (120, 170, 2407, "int8", 838e12),
    ],
)
def test_the_peaks_are_those_that_are_stated(
    sm: int, sms: int, mhz: float, unit: str, stated: float
) -> None:
    rates = limits.peak_rates({"sm": sm, "sms": sms}, None, mhz, None)["peak_flops_per_second"]
    assert rates[unit] == pytest.approx(stated, rel=1e-2)


def test_turing_has_no_unit_of_tf32_or_bf16() -> None:
    assert {"tf32", "bf16", "fp8"}.isdisjoint(limits.FLOPS_PER_CLOCK[75])


@pytest.mark.parametrize(
    ("sm_mhz", "memory_mhz", "gpu", "bus_bits", "known"),
    [
        (1980, 2619, H100, None, {"peak_flops_per_second"}),
        (1980, 2619, H100 | {"sm": 42}, BUS_BITS, {"peak_bytes_per_second"}),
        (None, 2619, H100, BUS_BITS, {"peak_bytes_per_second"}),
        (1980, None, H100, BUS_BITS, {"peak_flops_per_second"}),
        (0, 0, H100, BUS_BITS, set()),
        (-1980, -2619, H100, BUS_BITS, set()),
        (None, None, H100, BUS_BITS, set()),
    ],
)
def test_a_rate_that_is_not_known_is_absent(
    sm_mhz: float | None,
    memory_mhz: float | None,
    gpu: dict,
    bus_bits: int | None,
    known: set[str],
) -> None:
    assert limits.peak_rates(gpu, bus_bits, sm_mhz, memory_mhz).keys() == known


@pytest.mark.parametrize(
    ("first", "second", "tied"),
    [
        ((1.0, 1.2), (1.1, 1.3), True),
        ((1.0, 1.2), (1.2, 1.3), True),
        ((1.0, 1.2), (1.21, 1.3), False),
        ((1.0, 2.0), (1.4, 1.5), True),
        ((1.0, 1.0), (1.0, 1.0), True),
    ],
)
def test_times_tie_where_their_spreads_overlap(first: tuple, second: tuple, tied: bool) -> None:
    a, b = ({"p20": p20, "p80": p80} for p20, p80 in (first, second))
    assert limits.times_tie(a, b) is tied
    assert limits.times_tie(b, a) is tied


@pytest.mark.parametrize(
    ("cost", "peaks", "least"),
    [
        (COST, PEAKS, 120.0),  # FLOPs decide
        (COST | {"flops": 100}, PEAKS, 100.0),  # bytes decide
        (COST | {"unit": "fp32"}, PEAKS, 1200.0),
        (COST | {"unit": "fp8"}, PEAKS, 100.0),
        (COST, {"peak_bytes_per_second": 10.0}, 100.0),
        (COST, {"peak_flops_per_second": {"bf16": 50.0}}, 120.0),
        (COST, {}, 0.0),
        # Up to a whole L2 of what is written, all of the bytes where that is not known.
        (WRITTEN, MEMORY | {"l2_bytes": 100}, 90.0),
        (WRITTEN, MEMORY | {"l2_bytes": 900}, 75.0),
        (COST, MEMORY | {"l2_bytes": 900}, 10.0),
        (COST | {"bytes": 2**30}, {"peak_bytes_per_second": 1.0, "l2_bytes": 2**30},
         2**30 - limits.MOST_L2),
    ],
)  # fmt: skip
def test_the_least_time_is_that_of_the_slower_of_bytes_and_flops(
    cost: dict, peaks: dict, least: float
) -> None:
    assert limits.least_seconds(cost, peaks) == least


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

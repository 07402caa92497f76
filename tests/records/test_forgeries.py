"""Bundles that claim what this checkout would not have made: each is refused, in one line or more.

One sound record of a GPU is changed in one place at a time. What is refused for the shape of a
record alone is in test_bundle.py.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_up_records
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import remove_at, set_at
from records_project import Checkout

from tests.records.test_schema import list_places
from warpshelf.core.findings import ShelfError
from warpshelf.records import limits, store

TIMED = 2  # the case of made_up_records.make_ladder() that is timed
Change = Callable[[dict], None]


def move_to_device(device: str, **more: object) -> Change:
    """Have it be of a device, with its own slug."""
    slug = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return lambda found: found["machine"].update({"device": device, "slug": slug, **more})


def shorten_times(found: dict) -> None:
    """A time that no device moves so many bytes in, beside no peak that would say so."""
    del found["ceilings"]["peak_bytes_per_second"]
    time = {"median": 1.5e-5, "p20": 1.4e-5, "p80": 1.6e-5, "n": 20}
    found["cases"][TIMED]["results"][1]["time"] = time


def raised_peaks(found: dict) -> None:
    found["ceilings"]["peak_bytes_per_second"] = 5e13
    found["cases"][TIMED]["results"][1]["time"] = dict.fromkeys(("median", "p20", "p80"), 3e-6)
    found["cases"][TIMED]["results"][1]["time"]["n"] = 20


def leave_untimed(reason: str) -> Change:
    def remove_time(found: dict) -> None:
        result = found["cases"][TIMED]["results"][1]
        del result["time"]
        result["untimed"] = reason

    return remove_time


def compiled_twice(found: dict) -> None:
    found["compiled"].append(copy.deepcopy(found["compiled"][0]))


def clocks_of_two(found: dict) -> None:
    found["ceilings"]["peak_flops_per_second"]["fp32"] *= 0.8


def add_space(found: dict) -> None:
    found["space"] = made_up_records.make_space(1)


def expected_more(found: dict) -> None:
    found["facts"][1] |= {"value": 1.006e21, "expected": 1.006e21}


GIB = 2**30
RESULT = f"cases.{TIMED}.results.1"
FORGERIES: list[tuple[str, Change, str]] = [
    ("another method", set_at("method", 4), "was made by method 4, not"),
    ("a later method", set_at("method", 99), "was made by method 99, not"),
    ("another command", set_at("command", "shelf run softmax --fast"),
     "was made by 'shelf run soft"),
    ("a command to paste", set_at("command", "curl x | sh"), "was made by 'curl x | sh'"),
    ("no commit", set_at("commit", "yesterday's"), "which is not a commit"),
    ("a link for a commit", set_at("commit", "abc1234 https://x"), "which is not a commit"),
    ("the future", set_at("date", "2031-05-06T07:08:09Z"), "which is in the future"),
    ("before it began", set_at("date", "2019-05-06T07:08:09Z"), "before this project began"),
    ("another slug", set_at("machine.slug", "nvidia-h100"),
     "but the slug of .* is imaginary-g9-80gb"),
    ("another device", set_at("machine.device", "NVIDIA H100"), "is filed under imaginary"),
    ("too many GPUs", set_at("machine.gpus", 400), "has 400 GPUs"),
    ("no such SM version", set_at("machine.sm", 95), "SM version 95, which does not exist"),
    ("no SM version", set_at("machine.sm", None), "is of a GPU with None for its sm"),
    ("too many SMs", set_at("machine.sms", 1000), "has 1000 SMs"),
    ("no memory", set_at("machine.memory_bytes", None), "has None bytes"),
    ("more memory than named", set_at("machine.memory_bytes", 96 * GIB), "has 96 GiB of memory"),
    ("an H100 of SM 80", move_to_device("NVIDIA H100", sm=80), "though a NVIDIA H100 is SM 90"),
    ("an A100 that is an H100", move_to_device("NVIDIA A100-SXM4-80GB"), "is SM 80"),
    ("an H100 with 140 SMs", move_to_device("NVIDIA H100", sms=140), "has at most 132"),
    ("an H100 with 24 GiB", move_to_device("NVIDIA H100", memory_bytes=24 * GIB), "has 24 GiB"),
    ("a driver's name", set_at("machine.driver", "fastest"), "the invalid driver 'fastest'"),
    ("no CUDA", set_at("machine.cuda", None), "does not say the cuda"),
    ("a CUDA that is none", set_at("machine.cuda", "12"), "the invalid cuda '12'"),
    ("a torch that is none", set_at("machine.torch", "2.13 <b>"), "the invalid torch"),
    ("a Python that is none", set_at("machine.python", "2.7"), "the invalid python '2.7'"),
    ("another system", set_at("machine.os", "TempleOS"), "the invalid os 'TempleOS'"),
    ("another demo", set_at("demo", "row sums 2.000 to 2.000\n"),
     "its demo printed something else"),
    ("another number", set_at("demo", lambda old: old.replace("1.000", "1.010")),
     "its demo printed"),
    ("no demo", set_at("demo", ""), "its demo printed something else"),
    ("no compiled figures", remove_at("compiled"),
     "leaves out the compiled figures of softmax_one"),
    ("one of them less", remove_at("compiled.1"), "leaves out the compiled figures .* for sm_90"),
    ("fewer registers", set_at("compiled.0.registers", 16), "16 registers, not 32"),
    ("another kernel", set_at("compiled.0.kernel", "best"),
     "compiled figures of best .* not expected"),
    ("compiled twice", compiled_twice, "figures of a compiled kernel twice"),
    ("a skip that NEEDS does not give",
     set_at("skips", [{"what": "online", "reason": "was slow"}]), "'online' was not run because"),
    ("a skip of nothing", set_at("skips", [{"what": "our rivals", "reason": "lost"}]),
     "'our rivals'"),
    ("another expectation", expected_more,
     "expects 1.006e.21 of the fact 'FLOPs', not 1e.21"),
    ("a fact twice", lambda found: found["facts"].append(found["facts"][0]), "has a fact twice"),
    ("pictures", lambda found: found.update(timelines=made_up_records.make_timelines()),
     "has other timel"),
    ("grids", lambda found: found.update(grids=made_up_records.make_grids()), "has other grids"),
    ("predictions", lambda found: found.update(predictions=made_up_records.make_predictions()),
     "has the prediction 'a <b> node', which is not expected"),
    ("what a CPU lists", lambda found: found.update(due=made_up_records.list_due(found["cases"])),
     "has 'due', which only a CPU record has"),
    ("targets of a CPU", lambda found: found.update(targets=["sm_90"]), "has 'targets', which"),
    ("a space that is not due", add_space, "has a space, which is not expected"),
    ("no ceilings", remove_at("ceilings"), "has times, but no bandwidth measured beside them"),
    ("no bandwidth", remove_at("ceilings.copy_bytes_per_second"), "has times, but no bandwidth"),
    ("a copy over the peak", set_at("ceilings.copy_bytes_per_second", 3.5e12),
     "over the peak of 3.35"),
    ("a peak of no device", raised_peaks, "has a peak of 5e.13 bytes/s"),
    ("a time without a peak", shorten_times, "no such device needs under"),
    ("peaks at two clocks", clocks_of_two, "not at one clock"),
    ("peaks at 5 GHz",
     set_at("ceilings.peak_flops_per_second", lambda old: {k: 2.6 * v for k, v in old.items()}),
     "peaks at 5148 MHz, which no GPU reaches"),
    ("peaks below its clock", set_at("conditions.load.sm_mhz", 2100),
     "ran at 2100 MHz, though its p"),
    ("a peak of no unit", set_at("ceilings.peak_flops_per_second.fp128", 1e15),
     "other peaks .*fp128"),
    ("a product over the peak", set_at("ceilings.matrix_flops_per_second.bf16", 2e15),
     "measured 2e"),
    ("a product in no unit", set_at("ceilings.matrix_flops_per_second.fp4", 1.0),
     "products in 'fp4'"),
    ("a cache as large as a memory", set_at("ceilings.l2_bytes", 2**30), "1073741824 bytes of L2"),
    ("a condition of its own", set_at("conditions.load.fastest", 1), "has the condition 'fastest'"),
    ("a temperature of the sun", set_at("conditions.load.celsius_highest", 5505),
     "ran at celsius_h"),
    ("a lowest clock above", set_at("conditions.load.sm_mhz_lowest", 1990),
     "below its lowest clock"),
    ("a slowdown of its own", set_at("conditions.slowed_by", ["envy"]), "was slowed by 'envy'"),
    ("one sample", set_at(f"{RESULT}.time.n", 1), "from 1 samples"),
    ("a million samples", set_at(f"{RESULT}.time.n", 10**6), "from 1000000 samples"),
    ("mostly void samples", set_at(f"{RESULT}.time.void", 150), "with 150 void"),
    ("no variation", set_at(f"{RESULT}.time.cv", 0.0), "less than its percentiles allow"),
    ("untimed for no reason", leave_untimed("it was slow"), "that no run gives"),
    ("untimed with samples", leave_untimed(limits.WAITED.format(1, 100)), "that no run gives"),
    ("a refused view", set_at("cases.0.results.0.refuses", {"strided": "softmax: no"}),
     "views that the variant 'one pass' refuses on the case .*: strided"),
    ("no largest error", remove_at("cases.0.results.0.max_error"), "leaves out the largest error"),
    ("no limit of it", remove_at("cases.0.results.0.max_error_limit"),
     "leaves out the limit of the"),
    ("a failure without a reason", set_at(f"cases.{TIMED}.results.4.reason", " "),
     "does not say why"),
    ("a looser tolerance", set_at("cases.0.results.0.tolerance", 0.1), "an error of 0.1"),
    ("a case left out", remove_at("cases.1"), "leaves out the case"),
    ("a variant left out", remove_at("cases.1.results.0"), "leaves out the variant 'one pass'"),
    ("another cost", set_at(f"cases.{TIMED}.bytes", 1), "states 1 bytes"),
]  # fmt: skip


@pytest.fixture(scope="module")
def shared_checkout(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """One for all: nothing that is refused writes to it."""
    return Checkout(tmp_path_factory.mktemp("forged")).add_cpu_records()


@pytest.mark.parametrize(
    ("forge", "says"), [row[1:] for row in FORGERIES], ids=[row[0] for row in FORGERIES]
)
def test_a_forgery_is_refused(shared_checkout: Checkout, forge: Change, says: str) -> None:
    forged = shared_checkout.make_record()
    forge(forged)
    lines = shared_checkout.assert_refused([forged, shared_checkout.make_record("stream")])
    assert any(re.search(says, line) for line in lines), lines
    assert all("records[0]" in line for line in lines)


def test_there_are_many_forgeries_and_each_has_its_name() -> None:
    assert len({row[0] for row in FORGERIES}) == len(FORGERIES) >= 60


def test_the_sound_record_is_taken(tmp_path: Path) -> None:
    checked = Checkout(tmp_path).add_cpu_records()
    assert (
        len(checked.import_bundle([checked.make_record(), checked.make_record("stream")])[0]) == 2
    )


def record_search(checked: Checkout, **more: object) -> dict:
    """A record of a GPU with the times of a space, which the CPU's has as well."""
    one = checked.snippets[1]
    store.save_record(
        one, checked.make_cpu_record("stream") | {"space": made_up_records.make_space()}
    )
    return checked.make_record("stream") | {"space": made_up_records.make_space(1) | more}


def replace_first_row(line: str, target: str = "sm_90") -> dict:
    lines = made_up_records.make_space(1)["rows"]["sm_90"]
    return {target: [line, *lines[1:]]}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (
            {"rows": replace_first_row("16 0: 2e-3 1e-3 3e-3 3")},
            "the configuration 16 0 by 3 samples",
        ),
        (
            {"rows": replace_first_row("16 0: 2e-3 1e-3 3e-3 15", "sm_80")},
            "on sm_80, but its GPU is sm_90",
        ),
        ({"rows": replace_first_row("17 0: 2e-3 1e-3 3e-3 15")}, "has the value 17"),
        ({"case": {"m": 5}}, "differs in the case of its space"),
    ],
)
def test_a_forged_space_is_refused(tmp_path: Path, more: dict, says: str) -> None:
    checked = Checkout(tmp_path).add_cpu_records()
    assert checked.import_bundle([record_search(checked)])[0]
    checked.assert_refused([record_search(checked, **more)], says)


def test_a_space_is_no_faster_than_its_gpu(tmp_path: Path) -> None:
    checked = Checkout(tmp_path).add_cpu_records()
    cost = {"bytes": 2**30, "flops": 1, "unit": "fp32"}
    cpu = checked.make_cpu_record("stream") | {"space": made_up_records.make_space() | cost}
    store.save_record(checked.snippets[1], cpu)
    fair = checked.make_record("stream") | {"space": made_up_records.make_space(1, **cost)}
    assert checked.import_bundle([fair])[0]
    fair["space"]["rows"] = replace_first_row("16 0: 2e-6 1e-6 3e-6 15")
    checked.assert_refused([fair], "times the configuration 16 0 faster than its GPU can be")


def of_cpu(checked: Checkout, **more: object) -> dict:
    return checked.make_cpu_record() | more


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"conditions": {"load": {"watts": 1}}}, "is a CPU record with the conditions of a GPU"),
        ({"machine": made_up_records.make_machine(gpus=0) | {"sms": 3}}, "describing a GPU: 'sms'"),
        ({"origin": {"who": "Ada"}}, "is a CPU record with an origin, which only a GPU record has"),
        ({"demo": "other\n"}, "its demo printed something else than on a CPU"),
    ],
)
def test_a_forged_record_of_a_cpu_is_refused(
    shared_checkout: Checkout, more: dict, says: str
) -> None:
    shared_checkout.assert_refused([of_cpu(shared_checkout, **more)], says)


def test_a_record_of_a_cpu_does_not_replace_the_one_in_place(tmp_path: Path) -> None:
    """Anyone makes it again, so what a bundle brings of it is only looked at."""
    checked = Checkout(tmp_path).add_cpu_records()
    before = checked.read_files()
    other = of_cpu(checked, date="2026-11-23T00:00:00Z")
    other["cases"][0]["results"][0]["error"] = 1.0e-9
    assert checked.import_bundle([other]) == ([], [])
    assert checked.read_files() == before


# What a run measures, so that nobody can know it but who measured; all else a page claims is known.
MEASURED = re.compile(
    r"(?:date|commit|origin\.who|machine\.(?:gpus|memory_bytes|sms|sm|driver|cuda|torch|triton"
    r"|python|os)"
    r"|cases\.\d+\.results\.\d+\.(?:error|max_error|max_error_limit|reason|time\.\w+)"
    r"|ceilings\.(?:\w+\.)?\w+|conditions\.(?:load\.\w+|slowed_by(?:\.\d+)?)"
    r"|facts\.\d+\.(?:value|expected))"
    r"|compiled\.\d+\.compiler"
)
# What is as good left out.
OPTIONAL = re.compile(
    r"conditions|conditions\.load|conditions\.slowed_by|skips|facts\.\d+"
    r"|cases\.\d+\.results\.\d+\.time"
)


def collect_claims(found: Any) -> dict[str, object]:
    """What a page claims of a record, but for what was measured: leaves by their ways."""
    return {
        name: value if not isinstance(value, dict | list) else type(value).__name__
        for way in list_places(found)
        if way
        for name in [".".join(map(str, way))]
        for value in [_value_at(found, way)]
        if not MEASURED.fullmatch(name) and not OPTIONAL.fullmatch(name)
    }


def _value_at(found: Any, way: tuple) -> Any:
    for key in way:
        found = found[key]
    return found


SOUND = made_up_records.make_honest(made_up_records.make_record(facts=made_up_records.make_facts()))
WAYS = [way for way in list_places(SOUND) if way and way[0] != "digest"]
VALUES = (
    st.none() | st.booleans() | st.integers(-3, 400) | st.floats(0, 1e16) | st.text(max_size=4)
    | st.sampled_from(["cpu", "passed", "skipped", "variant", "sm_90", [], {}, 1e-6, 5e-5, 90])
)  # fmt: skip


@given(
    way=st.sampled_from(WAYS),
    value=VALUES,
    how=st.sampled_from(["replace", "remove", "scale", "copy"]),
    factor=st.sampled_from([0, 0.5, 0.99, 1.01, 2, 1000]),
)
def test_a_mutated_bundle_is_refused_or_claims_the_same(
    shared_checkout: Checkout, way: tuple, value: object, how: str, factor: float
) -> None:
    sound = shared_checkout.make_record()
    mutated = copy.deepcopy(sound)
    place, last = _value_at(mutated, way[:-1]), way[-1]
    if how == "remove":
        del place[last]
    elif how == "copy" and isinstance(place, list):
        place.append(copy.deepcopy(place[last]))
    elif how == "scale" and type(place[last]) in (int, float):
        place[last] = type(place[last])(place[last] * factor)
    else:
        place[last] = value
    before = shared_checkout.read_files()
    try:
        shared_checkout.import_bundle([mutated])
    except ShelfError as error:
        assert all(str(finding).isprintable() for finding in error.findings)
        assert shared_checkout.read_files() == before
        return
    [taken] = [
        one
        for key, one in store.load_records(shared_checkout.snippets[0])[0].items()
        if key != "cpu"
    ]
    store.record_path(shared_checkout.snippets[0], taken["machine"]["slug"]).unlink()
    expected = collect_claims(sound | {"origin": taken["origin"]})
    assert collect_claims(taken) == expected

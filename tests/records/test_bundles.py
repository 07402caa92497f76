"""Bundles: whole, torn and foreign ones, and what becomes of the files when one is refused."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import made_up_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from import_project import Checkout, one_line_each

from warpshelf.core.files import dump_json
from warpshelf.core.findings import ShelfError
from warpshelf.records import bundle, store


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def checked(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path).checked()


def test_a_bundle_puts_its_records_in_place(checkout: Checkout) -> None:
    made = [
        checkout.record(),
        checkout.record("stream"),
        checkout.cpu(),
        checkout.cpu("stream"),
    ]
    names = [
        "snippets/softmax/results/imaginary-g9-80gb.json",
        "snippets/stream/results/imaginary-g9-80gb.json",
        "snippets/softmax/results/cpu.json",
        "snippets/stream/results/cpu.json",
    ]
    before = checkout.files()
    assert checkout.take(bundle.bundle_text(made)) == (names, [])
    assert bundle.read_bundle(checkout.bundle) == made
    after = checkout.files()
    assert after.keys() - before.keys() == {f"checkout/{name}" for name in names}
    assert [
        store.load_record(checkout.project, checkout.project.root / name) for name in names
    ] == made
    assert checkout.take(bundle.bundle_text(made)) == ([], [])
    assert checkout.files() == after


def test_without_a_record_of_the_cpu_none_of_a_gpu_is_taken(checkout: Checkout) -> None:
    [line] = checkout.refuses([checkout.record(), checkout.record("stream"), checkout.cpu()])
    assert "records[1]: stream on imaginary-g9-80gb: there is no current CPU record" in line
    assert "run `shelf run stream` first" in line
    stale = checkout.cpu("stream") | {"digest": "sha256:" + "00" * 32}
    store.save_record(checkout.snippets[1], stale)
    assert checkout.refuses([checkout.record("stream")], "no current CPU record")


def test_the_record_of_the_cpu_in_place_goes_before_that_of_the_bundle(checked: Checkout) -> None:
    """Otherwise a bundle could bring its own looser measure along."""
    loose, measure = checked.record(), checked.cpu()
    for row in (*loose["cases"], *measure["cases"]):
        for one in row["results"]:
            if one["verdict"] == "passed":
                one["tolerance"] = 1.0
    for row in measure["due"]:
        row["tolerance"] = 1.0
    lines = checked.refuses([loose, measure])
    assert any("allows the variant 'online' an error of 1.0" in line for line in lines)
    assert any("softmax on cpu: expects other results than the source" in line for line in lines)


def small(checked: Checkout) -> bytes:
    """A short bundle with a letter of more than one byte."""
    rows = [made_up_records.case(1, 1, [made_up_records.result("a")])]
    made = checked.cpu() | {"demo": "µ\n", "cases": rows, "due": made_up_records.due(rows)}
    made |= {"facts": [], "compiled": []}
    return json.dumps({"schema": 1, "records": [made]}, ensure_ascii=False).encode()


def test_every_truncated_bundle_is_refused(checkout: Checkout) -> None:
    whole = small(checkout)
    before = checkout.files()
    for length in range(len(whole)):
        checkout.bundle.write_bytes(whole[:length])
        with pytest.raises(ShelfError) as refused:
            bundle.import_bundle(checkout.project, checkout.snippets, checkout.bundle)
        assert len(one_line_each(refused.value)) == 1
    assert checkout.files() == before
    assert len(checkout.take(whole)[0]) == 1


@settings(max_examples=40)
@given(data=st.data())
def test_a_cut_of_a_real_bundle_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    checked = Checkout(tmp_path_factory.mktemp("cut")).checked()
    whole = bundle.bundle_text([checked.record(), checked.record("stream")]).rstrip()
    length = data.draw(st.integers(0, len(whole) - 1))
    assert len(checked.refuses(whole[:length])) == 1


def two(checked: Checkout) -> tuple[str, str]:
    first, second = checked.record(), checked.record("stream")
    return bundle.bundle_text([first, second]), bundle.bundle_text([second])


def test_two_bundles_one_after_the_other_are_refused(checked: Checkout) -> None:
    first, second = two(checked)
    for torn in (first + second, first + first, first.rstrip() + second, first + "\0" * 512):
        assert len(checked.refuses(torn, "is not the JSON of a record")) == 1


@settings(max_examples=40)
@given(data=st.data())
def test_interleaved_writes_are_refused_or_one_of_the_two(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Two runs that write into one file in place: the head of one, and the tail of the other."""
    checked = Checkout(tmp_path_factory.mktemp("torn")).checked()
    first, second = two(checked)
    at = data.draw(st.integers(1, min(len(first), len(second)) - 1))
    torn = data.draw(st.sampled_from([second[:at] + first[at:], first[:at] + second[at:]]))
    if torn in (first, second):
        return
    try:
        written, _ = checked.take(torn)
    except ShelfError as error:
        one_line_each(error)
        return
    records = [json.loads((checked.project.root / name).read_text()) for name in written]
    assert [one for one in records if one not in json.loads(first)["records"]] == []


@settings(max_examples=40)
@given(data=st.data())
def test_a_page_of_nothing_in_a_bundle_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """What a machine that lost its power leaves of a file: NUL bytes where a block was due."""
    checked = Checkout(tmp_path_factory.mktemp("nul")).checked()
    whole, _ = two(checked)
    at = data.draw(st.integers(0, len(whole) - 2))
    length = data.draw(st.integers(1, len(whole) - at))
    assert len(checked.refuses(whole[:at] + "\0" * length + whole[at + length :])) == 1


def test_line_ends_of_another_system_change_nothing(checked: Checkout) -> None:
    whole, _ = two(checked)
    names = checked.take(whole.replace("\n", "\r\n"))[0]
    assert len(names) == 2
    placed = [(checked.project.root / name).read_bytes() for name in names]
    assert [json.loads(one) for one in placed] == json.loads(whole)["records"]
    assert not any(b"\r" in one for one in placed)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not the JSON of a record"),
        ("null", "is not a bundle of records"),
        ("3", "is not a bundle of records"),
        ("[]", "is not a bundle of records"),
        ("{}", "is not a bundle of records"),
        ('{"records": []}', "is not a bundle of records"),
        ('{"schema": true, "records": []}', "is not a bundle of records"),
        ('{"schema": 0, "records": []}', "is not a bundle of records"),
        ('{"schema": 1, "records": {}}', "is not a bundle of records"),
        ('{"schema": 1, "records": [], "also": 1}', "is not a bundle of records"),
        ('{"name": "package", "version": "1.0.0"}', "is not a bundle of records"),
        ('{"schema": 1, "records": [3]}', r"records\[0\]: record is not an object"),
        ('{"schema": 1, "records": [{}]}', "unlike|lacks"),
        ('\ufeff{"schema": 1, "records": []}', "is not the JSON of a record"),
        (b"\xff\xfe\x00", "is not the JSON of a record"),
        (b"\x89PNG\r\n\x1a\n", "is not the JSON of a record"),
    ],
)
def test_a_foreign_file_is_refused(checked: Checkout, content: str | bytes, says: str) -> None:
    assert len(checked.refuses(content, says)) == 1


def test_a_bundle_without_records_writes_nothing(checked: Checkout) -> None:
    assert checked.take([]) == ([], [])


def test_a_file_that_is_not_there_or_a_folder_is_refused(checked: Checkout) -> None:
    for path in (checked.bundle, checked.project.root, Path("a\0b")):
        with pytest.raises(ShelfError) as refused:
            bundle.import_bundle(checked.project, checked.snippets, path)
        assert len(one_line_each(refused.value)) == 1


def test_a_file_too_large_is_refused_without_reading_it(
    checked: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with checked.bundle.open("wb") as file:
        file.write(b'{"schema": 1, "records": ["')
        file.truncate(2 * 2**30)  # a sparse file: no byte of it is on the disk

    def read(*ignored: object, **also: object) -> None:
        raise AssertionError("it was opened")

    monkeypatch.setattr(Path, "open", read)
    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(ShelfError, match="is larger than 1073741824 bytes"):
        bundle.import_bundle(checked.project, checked.snippets, checked.bundle)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_a_file_without_end_is_refused(checked: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "LARGEST", 2**20)
    with pytest.raises(ShelfError, match="is larger than 1048576 bytes"):
        bundle.import_bundle(checked.project, checked.snippets, Path("/dev/zero"))


def test_a_bundle_of_very_many_records_is_refused(checked: Checkout) -> None:
    assert len(checked.refuses([0] * (bundle.MOST + 1), "the limit is 10000")) == 1


def raw(checked: Checkout, old: str, new: str) -> str:
    """A bundle of one record in whose text something was replaced."""
    text = json.dumps({"schema": 1, "records": [checked.record()]})
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"median": 8.1e-05', '"median": NaN', "nan, which JSON cannot write"),
        ('"median": 8.1e-05', '"median": Infinity', "holds inf, which JSON cannot write"),
        ('"median": 8.1e-05', '"median": -Infinity', "holds -inf, which JSON cannot write"),
        ('"median": 8.1e-05', '"median": 1e999', "which JSON cannot write"),
        ('"scale": 1.0', '"scale": -1e999', "which JSON cannot write"),
        ('"scale": 1.0', '"scale": [[1e999]]', "which JSON cannot write"),
        ('"scale": 1.0', f'"scale": 1{"0" * 30}', "out of range"),
        ('"scale": 1.0', f'"scale": [1{"0" * 4000}]', "out of range"),
        ('"scale": 1.0', f'"scale": 1{"0" * 9000}', "is not the JSON of a record"),
        ('"scale": 1.0', f'"scale": {"[" * 500}{"]" * 500}', "levels deep"),
        ('"scale": 1.0', '"scale": "\\ud800"', "surrogate"),
        ('"scale": 1.0', '"\\udfff": 1.0', "surrogate"),
        ('"scale": 1.0', '"scale": 1.0, "scale": 2.0', "a key occurs twice"),
        ('"schema": 1', '"schema": 1, "schema": 1', "a key occurs twice"),
        ('"demo":', '"extra": 1, "demo":', "unknown key 'extra'"),
        ('"slug": "imaginary-g9-80gb"', '"slug": "../../x"', r"machine\.slug is"),
        ('"slug": "imaginary-g9-80gb"', '"slug": "a/b"', r"machine\.slug is"),
        ('"slug": "imaginary-g9-80gb"', f'"slug": "{"a" * 300}"', r"machine\.slug is"),
        ('"snippet": "softmax"', '"snippet": "../../x"', r"record\.snippet is"),
        ('"snippet": "softmax"', '"snippet": "/etc"', r"record\.snippet is"),
        ('"snippet": "softmax"', '"snippet": "unknown"', "'unknown', which is missing here"),
        ('"kind": "kernel"', '"kind": "model"', "is a kernel, not a model"),
        ('"verdict": "passed"', '"verdict": "failed"', "failed; a failed run leaves no record"),
        ('"verdict": "passed", "error": 3.1e-08', '"verdict": "passed", "error": 1', "tolerance"),
    ],
)
def test_a_hostile_record_is_refused(checked: Checkout, old: str, new: str, says: str) -> None:
    assert len(checked.refuses(raw(checked, old, new), says)) == 1


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"schema": 1, "records": [', '[{"a":['])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting_is_refused(checked: Checkout, opening: str, closed: bool) -> None:
    closing = "".join("]" if c == "[" else "}" for c in reversed(opening) if c in "[{")
    text = opening * 100_000 + "0" + closing * (100_000 if closed else 0)
    assert len(checked.refuses(text)) == 1


def test_no_depth_of_nesting_slips_through(checked: Checkout) -> None:
    # Around the recursion limit, what loads may be too deep for what comes after.
    for depth in (*range(14, 40), *range(700, 1100, 3)):
        nested = f'"slug": {"[" * depth}{"]" * depth}'
        checked.refuses(raw(checked, '"slug": "imaginary-g9-80gb"', nested))


def test_findings_stay_on_their_line_whatever_a_record_says(checked: Checkout) -> None:
    nasty = "a\nb\r\u2028\x1b[31m\u202e" + "x" * 10_000
    for change in ({"digest": nasty}, {"kind": nasty}, {nasty: 1}, {"snippet": nasty}):
        [line] = checked.refuses([checked.record(**change)])
        assert "bundle.json records[0]: record" in line


def test_a_newer_schema_asks_for_a_newer_checkout(checked: Checkout) -> None:
    later = "is of schema 2; this tooling reads up to 1; update this checkout"
    [line] = checked.refuses(json.dumps({"schema": 2, "items": []}))
    assert line.endswith(later)
    [line] = checked.refuses([checked.record(schema=2, news=[])])
    assert line.endswith(later)
    assert "records[0]" in line
    path = store.record_path(checked.snippets[0], "imaginary-g9-80gb")
    path.write_text(dump_json(checked.record(schema=2)))
    with pytest.raises(ShelfError, match="update this checkout"):
        store.load_record(checked.project, path)


def test_a_record_of_other_code_is_refused(checked: Checkout) -> None:
    stale = checked.record("stream", digest="sha256:" + "00" * 32)
    [line] = checked.refuses([checked.record(), stale])
    assert "records[1]: stream: was made from different code" in line
    assert "--skip-stale" in line


def test_records_of_other_code_can_be_left_out(checked: Checkout) -> None:
    stale = checked.record("stream", digest="sha256:" + "00" * 32)
    names = ["snippets/softmax/results/imaginary-g9-80gb.json"]
    assert checked.take([checked.record(), stale], skip_stale=True) == (names, ["stream"])
    assert not store.record_path(checked.snippets[1], "imaginary-g9-80gb").exists()


def test_leaving_out_the_stale_excuses_nothing_else(checked: Checkout) -> None:
    stale = checked.record("stream", digest="sha256:" + "00" * 32)
    with pytest.raises(ShelfError, match="unknown key"):
        checked.take([checked.record(), stale, checked.record(extra=1)], skip_stale=True)
    assert not store.record_path(checked.snippets[0], "imaginary-g9-80gb").exists()


def test_two_records_of_one_machine_are_refused(checked: Checkout) -> None:
    [line] = checked.refuses([checked.record(), checked.record(demo="other\n")])
    assert "records[1]: is a second record of softmax on imaginary-g9-80gb" in line


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_record_among_good_ones_writes_nothing(checkout: Checkout, place: int) -> None:
    store.save_record(checkout.snippets[1], checkout.cpu("stream"))
    good = [checkout.record(), checkout.record("stream"), checkout.cpu()]
    bad = checkout.record(machine=made_up_records.machine(gpus=0))  # with times of a GPU
    [line] = checkout.refuses([*good[:place], bad, *good[place:]])
    assert f"records[{place}]" in line
    assert len(checkout.take(good)[0]) == 3


def test_everything_wrong_is_said_at_once(checked: Checkout) -> None:
    lines = checked.refuses(
        [3, checked.record(snippet="unknown"), checked.record(), checked.record(schema=9)]
    )
    assert [line.partition(": ")[0].rpartition(" ")[2] for line in lines] == [
        "records[0]",
        "records[1]",
        "records[3]",
    ]


# --- who made them


def test_a_record_of_a_gpu_is_refused_until_it_says_who_made_it(checked: Checkout) -> None:
    nameless = {k: v for k, v in checked.record().items() if k != "origin"}
    [line] = checked.refuses([nameless], "softmax on imaginary-g9-80gb: does not say who made it")
    assert "--by NAME" in line
    assert checked.take([nameless], otherwise={"who": "Grace Hopper"})[0]
    place = store.record_path(checked.snippets[0], "imaginary-g9-80gb")
    assert json.loads(place.read_text()) == nameless | {"origin": {"who": "Grace Hopper"}}


def test_a_name_that_a_record_has_goes_before_that_of_the_checkout(checked: Checkout) -> None:
    checked.take([checked.record()], otherwise={"who": "Grace Hopper"})
    place = store.record_path(checked.snippets[0], "imaginary-g9-80gb")
    assert json.loads(place.read_text())["origin"] == {"who": "Ada Lovelace"}
    checked.take([checked.record()], by={"who": "Grace Hopper"})
    assert json.loads(place.read_text())["origin"] == {"who": "Grace Hopper"}


def test_the_record_of_a_cpu_gets_no_name(checkout: Checkout) -> None:
    checkout.take([checkout.cpu()], by={"who": "Ada"})
    assert "origin" not in store.load_records(checkout.snippets[0])[0]["cpu"]


def test_a_record_older_than_its_commit_is_refused(
    checked: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = datetime(2026, 11, 23, 12, tzinfo=UTC)
    monkeypatch.setattr(bundle, "commit_time", lambda root, commit: later)
    checked.refuses([checked.record()], "before the commit abc1234 that it ran")
    assert checked.take([checked.record(date="2026-11-23T13:00:00Z")])[0]


# --- a disk that fills up


@pytest.mark.parametrize("name", ["fsync", "replace", "chmod", "link"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_import_that_cannot_write_has_written_nothing(
    checked: Checkout, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    records = [checked.record(), checked.record("stream")]
    checked.take([one | {"demo": one["demo"].replace("1.000", "1.0001")} for one in records])
    before, calls, real = checked.files(), [0], getattr(os, name)

    def full(*words: object, **more: object) -> object:
        calls[0] += 1
        if calls[0] == call:
            raise OSError(28, "No space left on device")
        return real(*words, **more)

    monkeypatch.setattr(os, name, full)
    if call > 2 or name == "link":  # two files are written; and without links there are copies
        checked.take(records)
        return
    with pytest.raises(OSError, match="No space left"):
        checked.take(records)
    assert calls[0] >= call and checked.files() == before
    monkeypatch.undo()
    assert len(checked.take(records)[0]) == 2

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
from records_project import Checkout, one_line_each

from warpshelf.core.files import dump_json
from warpshelf.core.findings import ShelfError
from warpshelf.records import bundle, store


def test_a_bundle_puts_its_records_in_place(new_checkout: Checkout) -> None:
    made = [
        new_checkout.make_record(),
        new_checkout.make_record("stream"),
        new_checkout.make_cpu_record(),
        new_checkout.make_cpu_record("stream"),
    ]
    names = [
        "snippets/softmax/results/imaginary-g9-80gb.json",
        "snippets/stream/results/imaginary-g9-80gb.json",
        "snippets/softmax/results/cpu.json",
        "snippets/stream/results/cpu.json",
    ]
    before = new_checkout.read_files()
    assert new_checkout.import_bundle(bundle.bundle_text(made)) == (names, [])
    assert bundle.read_bundle(new_checkout.bundle) == made
    after = new_checkout.read_files()
    assert after.keys() - before.keys() == {f"checkout/{name}" for name in names}
    assert [
        store.load_record(new_checkout.project, new_checkout.project.root / name) for name in names
    ] == made
    assert new_checkout.import_bundle(bundle.bundle_text(made)) == ([], [])
    assert new_checkout.read_files() == after


def test_without_a_record_of_the_cpu_none_of_a_gpu_is_taken(new_checkout: Checkout) -> None:
    [line] = new_checkout.assert_refused(
        [
            new_checkout.make_record(),
            new_checkout.make_record("stream"),
            new_checkout.make_cpu_record(),
        ]
    )
    assert "records[1]: stream on imaginary-g9-80gb: there is no current CPU record" in line
    assert "run `shelf run stream` first" in line
    stale = new_checkout.make_cpu_record("stream") | {"digest": "sha256:" + "00" * 32}
    store.save_record(new_checkout.snippets[1], stale)
    assert new_checkout.assert_refused(
        [new_checkout.make_record("stream")], "no current CPU record"
    )


def test_the_record_of_the_cpu_in_place_goes_before_that_of_the_bundle(
    cpu_checkout: Checkout,
) -> None:
    """Otherwise a bundle could bring its own looser measure along."""
    loose, measure = cpu_checkout.make_record(), cpu_checkout.make_cpu_record()
    for row in (*loose["cases"], *measure["cases"]):
        for one in row["results"]:
            if one["verdict"] == "passed":
                one["tolerance"] = 1.0
    for row in measure["due"]:
        row["tolerance"] = 1.0
    lines = cpu_checkout.assert_refused([loose, measure])
    assert any("allows the variant 'online' an error of 1.0" in line for line in lines)
    assert any("softmax on cpu: expects other results than the source" in line for line in lines)


def make_small_bundle(checked: Checkout) -> bytes:
    """A short bundle with a letter of more than one byte."""
    rows = [made_up_records.make_case(1, 1, [made_up_records.make_result("a")])]
    made = checked.make_cpu_record() | {
        "demo": "µ\n",
        "cases": rows,
        "due": made_up_records.list_due(rows),
    }
    made |= {"facts": [], "compiled": []}
    return json.dumps({"schema": 1, "records": [made]}, ensure_ascii=False).encode()


def test_every_truncated_bundle_is_refused(new_checkout: Checkout) -> None:
    whole = make_small_bundle(new_checkout)
    before = new_checkout.read_files()
    for length in range(len(whole)):
        new_checkout.bundle.write_bytes(whole[:length])
        with pytest.raises(ShelfError) as refused:
            bundle.import_bundle(new_checkout.project, new_checkout.snippets, new_checkout.bundle)
        assert len(one_line_each(refused.value)) == 1
    assert new_checkout.read_files() == before
    assert len(new_checkout.import_bundle(whole)[0]) == 1


@settings(max_examples=40)
@given(data=st.data())
def test_a_cut_of_a_real_bundle_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    checked = Checkout(tmp_path_factory.mktemp("cut")).add_cpu_records()
    whole = bundle.bundle_text([checked.make_record(), checked.make_record("stream")]).rstrip()
    length = data.draw(st.integers(0, len(whole) - 1))
    assert len(checked.assert_refused(whole[:length])) == 1


def bundle_two(checked: Checkout) -> tuple[str, str]:
    first, second = checked.make_record(), checked.make_record("stream")
    return bundle.bundle_text([first, second]), bundle.bundle_text([second])


def test_two_bundles_one_after_the_other_are_refused(cpu_checkout: Checkout) -> None:
    first, second = bundle_two(cpu_checkout)
    for torn in (first + second, first + first, first.rstrip() + second, first + "\0" * 512):
        assert len(cpu_checkout.assert_refused(torn, "is not the JSON of a record")) == 1


@settings(max_examples=40)
@given(data=st.data())
def test_interleaved_writes_are_refused_or_one_of_the_two(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Two runs that write into one file in place: the head of one, and the tail of the other."""
    checked = Checkout(tmp_path_factory.mktemp("torn")).add_cpu_records()
    first, second = bundle_two(checked)
    at = data.draw(st.integers(1, min(len(first), len(second)) - 1))
    torn = data.draw(st.sampled_from([second[:at] + first[at:], first[:at] + second[at:]]))
    if torn in (first, second):
        return
    try:
        written, _ = checked.import_bundle(torn)
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
    checked = Checkout(tmp_path_factory.mktemp("nul")).add_cpu_records()
    whole, _ = bundle_two(checked)
    at = data.draw(st.integers(0, len(whole) - 2))
    length = data.draw(st.integers(1, len(whole) - at))
    assert len(checked.assert_refused(whole[:at] + "\0" * length + whole[at + length :])) == 1


def test_line_ends_of_another_system_change_nothing(cpu_checkout: Checkout) -> None:
    whole, _ = bundle_two(cpu_checkout)
    names = cpu_checkout.import_bundle(whole.replace("\n", "\r\n"))[0]
    assert len(names) == 2
    placed = [(cpu_checkout.project.root / name).read_bytes() for name in names]
    read = [store.restore_rows(json.loads(one)) for one in placed]
    assert read == json.loads(whole)["records"]
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
def test_a_foreign_file_is_refused(cpu_checkout: Checkout, content: str | bytes, says: str) -> None:
    assert len(cpu_checkout.assert_refused(content, says)) == 1


def test_a_bundle_without_records_writes_nothing(cpu_checkout: Checkout) -> None:
    assert cpu_checkout.import_bundle([]) == ([], [])


def test_a_file_that_is_not_there_or_a_folder_is_refused(cpu_checkout: Checkout) -> None:
    for path in (cpu_checkout.bundle, cpu_checkout.project.root, Path("a\0b")):
        with pytest.raises(ShelfError) as refused:
            bundle.import_bundle(cpu_checkout.project, cpu_checkout.snippets, path)
        assert len(one_line_each(refused.value)) == 1


def test_a_file_too_large_is_refused_without_reading_it(
    cpu_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cpu_checkout.bundle.open("wb") as file:
        file.write(b'{"schema": 1, "records": ["')
        file.truncate(2 * 2**30)  # a sparse file: no byte of it is on the disk

    def refuse_reading(*ignored: object, **also: object) -> None:
        raise AssertionError("it was opened")

    monkeypatch.setattr(Path, "open", refuse_reading)
    monkeypatch.setattr(Path, "read_text", refuse_reading)
    monkeypatch.setattr(Path, "read_bytes", refuse_reading)
    with pytest.raises(ShelfError, match="is larger than 1073741824 bytes"):
        bundle.import_bundle(cpu_checkout.project, cpu_checkout.snippets, cpu_checkout.bundle)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_a_file_without_end_is_refused(
    cpu_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "LARGEST", 2**20)
    with pytest.raises(ShelfError, match="is larger than 1048576 bytes"):
        bundle.import_bundle(cpu_checkout.project, cpu_checkout.snippets, Path("/dev/zero"))


def test_a_bundle_of_very_many_records_is_refused(cpu_checkout: Checkout) -> None:
    assert len(cpu_checkout.assert_refused([0] * (bundle.MOST + 1), "the limit is 10000")) == 1


def bundle_changed_record(checked: Checkout, old: str, new: str) -> str:
    """A bundle of one record in whose text something was replaced."""
    text = json.dumps({"schema": 1, "records": [checked.make_record()]})
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
def test_a_hostile_record_is_refused(cpu_checkout: Checkout, old: str, new: str, says: str) -> None:
    assert (
        len(cpu_checkout.assert_refused(bundle_changed_record(cpu_checkout, old, new), says)) == 1
    )


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"schema": 1, "records": [', '[{"a":['])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting_is_refused(cpu_checkout: Checkout, opening: str, closed: bool) -> None:
    closing = "".join("]" if c == "[" else "}" for c in reversed(opening) if c in "[{")
    text = opening * 100_000 + "0" + closing * (100_000 if closed else 0)
    assert len(cpu_checkout.assert_refused(text)) == 1


def test_no_depth_of_nesting_slips_through(cpu_checkout: Checkout) -> None:
    # Around the recursion limit, what loads may be too deep for what comes after.
    for depth in (*range(14, 40), *range(700, 1100, 3)):
        nested = f'"slug": {"[" * depth}{"]" * depth}'
        cpu_checkout.assert_refused(
            bundle_changed_record(cpu_checkout, '"slug": "imaginary-g9-80gb"', nested)
        )


def test_findings_stay_on_their_line_whatever_a_record_says(cpu_checkout: Checkout) -> None:
    nasty = "a\nb\r\u2028\x1b[31m\u202e" + "x" * 10_000
    for change in ({"digest": nasty}, {"kind": nasty}, {nasty: 1}, {"snippet": nasty}):
        [line] = cpu_checkout.assert_refused([cpu_checkout.make_record(**change)])
        assert "bundle.json records[0]: record" in line


def test_a_newer_schema_asks_for_a_newer_checkout(cpu_checkout: Checkout) -> None:
    later = "has schema 2; this tooling reads up to 1; update this checkout"
    [line] = cpu_checkout.assert_refused(json.dumps({"schema": 2, "items": []}))
    assert line.endswith(later)
    [line] = cpu_checkout.assert_refused([cpu_checkout.make_record(schema=2, news=[])])
    assert line.endswith(later)
    assert "records[0]" in line
    path = store.record_path(cpu_checkout.snippets[0], "imaginary-g9-80gb")
    path.write_text(dump_json(cpu_checkout.make_record(schema=2)))
    with pytest.raises(ShelfError, match="update this checkout"):
        store.load_record(cpu_checkout.project, path)


def test_a_record_of_other_code_is_refused(cpu_checkout: Checkout) -> None:
    stale = cpu_checkout.make_record("stream", digest="sha256:" + "00" * 32)
    [line] = cpu_checkout.assert_refused([cpu_checkout.make_record(), stale])
    assert "records[1]: stream: was made from different code" in line
    assert "--skip-stale" in line


def test_records_of_other_code_can_be_left_out(cpu_checkout: Checkout) -> None:
    stale = cpu_checkout.make_record("stream", digest="sha256:" + "00" * 32)
    names = ["snippets/softmax/results/imaginary-g9-80gb.json"]
    assert cpu_checkout.import_bundle([cpu_checkout.make_record(), stale], skip_stale=True) == (
        names,
        ["stream"],
    )
    assert not store.record_path(cpu_checkout.snippets[1], "imaginary-g9-80gb").exists()


def test_leaving_out_the_stale_excuses_nothing_else(cpu_checkout: Checkout) -> None:
    stale = cpu_checkout.make_record("stream", digest="sha256:" + "00" * 32)
    with pytest.raises(ShelfError, match="unknown key"):
        cpu_checkout.import_bundle(
            [cpu_checkout.make_record(), stale, cpu_checkout.make_record(extra=1)], skip_stale=True
        )
    assert not store.record_path(cpu_checkout.snippets[0], "imaginary-g9-80gb").exists()


def test_two_records_of_one_machine_are_refused(cpu_checkout: Checkout) -> None:
    [line] = cpu_checkout.assert_refused(
        [cpu_checkout.make_record(), cpu_checkout.make_record(demo="other\n")]
    )
    assert "records[1]: is a second record of softmax on imaginary-g9-80gb" in line


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_record_among_good_ones_writes_nothing(new_checkout: Checkout, place: int) -> None:
    store.save_record(new_checkout.snippets[1], new_checkout.make_cpu_record("stream"))
    good = [
        new_checkout.make_record(),
        new_checkout.make_record("stream"),
        new_checkout.make_cpu_record(),
    ]
    # with times of a GPU
    bad = new_checkout.make_record(machine=made_up_records.make_machine(gpus=0))
    [line] = new_checkout.assert_refused([*good[:place], bad, *good[place:]])
    assert f"records[{place}]" in line
    assert len(new_checkout.import_bundle(good)[0]) == 3


def test_everything_wrong_is_said_at_once(cpu_checkout: Checkout) -> None:
    lines = cpu_checkout.assert_refused(
        [
            3,
            cpu_checkout.make_record(snippet="unknown"),
            cpu_checkout.make_record(),
            cpu_checkout.make_record(schema=9),
        ]
    )
    assert [line.partition(": ")[0].rpartition(" ")[2] for line in lines] == [
        "records[0]",
        "records[1]",
        "records[3]",
    ]


# --- who made them


def test_a_record_of_a_gpu_is_refused_until_it_says_who_made_it(cpu_checkout: Checkout) -> None:
    nameless = {k: v for k, v in cpu_checkout.make_record().items() if k != "origin"}
    [line] = cpu_checkout.assert_refused(
        [nameless], "softmax on imaginary-g9-80gb: does not say who made it"
    )
    assert "--by NAME" in line
    assert cpu_checkout.import_bundle([nameless], otherwise={"who": "Grace Hopper"})[0]
    place = store.record_path(cpu_checkout.snippets[0], "imaginary-g9-80gb")
    placed = store.load_record(cpu_checkout.project, place)
    assert placed == nameless | {"origin": {"who": "Grace Hopper"}}


def test_a_name_that_a_record_has_goes_before_that_of_the_checkout(cpu_checkout: Checkout) -> None:
    cpu_checkout.import_bundle([cpu_checkout.make_record()], otherwise={"who": "Grace Hopper"})
    place = store.record_path(cpu_checkout.snippets[0], "imaginary-g9-80gb")
    assert json.loads(place.read_text())["origin"] == {"who": "Ada Lovelace"}
    cpu_checkout.import_bundle([cpu_checkout.make_record()], by={"who": "Grace Hopper"})
    assert json.loads(place.read_text())["origin"] == {"who": "Grace Hopper"}


def test_the_record_of_a_cpu_gets_no_name(new_checkout: Checkout) -> None:
    new_checkout.import_bundle([new_checkout.make_cpu_record()], by={"who": "Ada"})
    assert "origin" not in store.load_records(new_checkout.snippets[0])[0]["cpu"]


def test_a_record_older_than_its_commit_is_refused(
    cpu_checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = datetime(2026, 11, 23, 12, tzinfo=UTC)
    monkeypatch.setattr(bundle, "commit_time", lambda root, commit: later)
    cpu_checkout.assert_refused(
        [cpu_checkout.make_record()], "before the commit abc1234 that it ran"
    )
    assert cpu_checkout.import_bundle([cpu_checkout.make_record(date="2026-11-23T13:00:00Z")])[0]


# --- a disk that fills up


@pytest.mark.parametrize("name", ["fsync", "replace", "chmod", "link"])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_import_that_cannot_write_has_written_nothing(
    cpu_checkout: Checkout, monkeypatch: pytest.MonkeyPatch, name: str, call: int
) -> None:
    records = [cpu_checkout.make_record(), cpu_checkout.make_record("stream")]
    cpu_checkout.import_bundle(
        [one | {"demo": one["demo"].replace("1.000", "1.0001")} for one in records]
    )
    before, calls, real = cpu_checkout.read_files(), [0], getattr(os, name)

    def call_or_fill_disk(*words: object, **more: object) -> object:
        calls[0] += 1
        if calls[0] == call:
            raise OSError(28, "No space left on device")
        return real(*words, **more)

    monkeypatch.setattr(os, name, call_or_fill_disk)
    if call > 2 or name == "link":  # two files are written; and without links there are copies
        cpu_checkout.import_bundle(records)
        return
    with pytest.raises(OSError, match="No space left"):
        cpu_checkout.import_bundle(records)
    assert calls[0] >= call and cpu_checkout.read_files() == before
    monkeypatch.undo()
    assert len(cpu_checkout.import_bundle(records)[0]) == 2

"""Bundles: whole, torn and foreign ones, and what becomes of the files when one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import synthetic
from checkouts import Checkout, one_line_each
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schema import FULL, OPTIONAL, SMALL, WAYS, at

from warpshelf.core.files import dump
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
    assert checkout.take(bundle.text(made)) == (names, [])
    assert bundle.read(checkout.bundle) == made
    after = checkout.files()
    assert after.keys() - before.keys() == {f"checkout/{name}" for name in names}
    assert [json.loads(after[f"checkout/{name}"]) for name in names] == made
    assert checkout.take(bundle.text(made)) == ([], [])
    assert checkout.files() == after


def test_without_a_record_of_the_cpu_none_of_a_gpu_is_taken(checkout: Checkout) -> None:
    [line] = checkout.refuses([checkout.record(), checkout.record("stream"), checkout.cpu()])
    assert "records[1]: stream: there is no current record of the CPU" in line
    assert "run `shelf run stream` first" in line
    stale = checkout.cpu("stream") | {"digest": "sha256:" + "00" * 32}
    store.put(checkout.snippets[1], stale)
    assert checkout.refuses([checkout.record("stream")], "no current record of the CPU")


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
    assert any("softmax on cpu: says other than the source what is due" in line for line in lines)


def small(checked: Checkout) -> bytes:
    """A short bundle with a letter of more than one byte."""
    rows = [synthetic.case(1, 1, [synthetic.result("a")])]
    made = checked.cpu() | {"demo": "µ\n", "cases": rows, "due": synthetic.due(rows)}
    made |= {"facts": [], "compiled": []}
    return json.dumps({"schema": 1, "records": [made]}, ensure_ascii=False).encode()


def test_every_truncated_bundle_is_refused(checkout: Checkout) -> None:
    whole = small(checkout)
    before = checkout.files()
    for length in range(len(whole)):
        checkout.bundle.write_bytes(whole[:length])
        with pytest.raises(ShelfError) as refused:
            bundle.import_all(checkout.project, checkout.snippets, checkout.bundle)
        assert len(one_line_each(refused.value)) == 1
    assert checkout.files() == before
    assert len(checkout.take(whole)[0]) == 1


@settings(max_examples=40)
@given(data=st.data())
def test_a_cut_of_a_real_bundle_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    checked = Checkout(tmp_path_factory.mktemp("cut")).checked()
    whole = bundle.text([checked.record(), checked.record("stream")]).rstrip()
    length = data.draw(st.integers(0, len(whole) - 1))
    assert len(checked.refuses(whole[:length])) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is not the JSON of a record"),
        ("null", "is no bundle of records"),
        ("3", "is no bundle of records"),
        ("[]", "is no bundle of records"),
        ("{}", "is no bundle of records"),
        ('{"records": []}', "is no bundle of records"),
        ('{"schema": true, "records": []}', "is no bundle of records"),
        ('{"schema": 0, "records": []}', "is no bundle of records"),
        ('{"schema": 1, "records": {}}', "is no bundle of records"),
        ('{"schema": 1, "records": [], "also": 1}', "is no bundle of records"),
        ('{"name": "package", "version": "1.0.0"}', "is no bundle of records"),
        ('{"schema": 1, "records": [3]}', r"records\[0\]: record is no object"),
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
            bundle.import_all(checked.project, checked.snippets, path)
        assert len(one_line_each(refused.value)) == 1


def test_a_file_too_large_is_refused_without_reading_it(
    checked: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    with checked.bundle.open("wb") as file:
        file.write(b'{"schema": 1, "records": ["')
        file.truncate(100 * 2**20)  # a sparse file: no byte of it is on the disk

    def read(*ignored: object, **also: object) -> None:
        raise AssertionError("it was opened")

    monkeypatch.setattr(Path, "open", read)
    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(Path, "read_bytes", read)
    with pytest.raises(ShelfError, match="is larger than 67108864 bytes"):
        bundle.import_all(checked.project, checked.snippets, checked.bundle)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_a_file_without_end_is_refused(checked: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LARGEST", 2**20)
    with pytest.raises(ShelfError, match="is larger than 1048576 bytes"):
        bundle.import_all(checked.project, checked.snippets, Path("/dev/zero"))


def test_a_bundle_of_very_many_records_is_refused(checked: Checkout) -> None:
    assert len(checked.refuses([0] * (bundle.MOST + 1), "10000 are the most")) == 1


def raw(checked: Checkout, old: str, new: str) -> str:
    """A bundle of one record in whose text something was replaced."""
    text = json.dumps({"schema": 1, "records": [checked.record()]})
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"median": 8.1e-05', '"median": NaN', "NaN is no number of JSON"),
        ('"median": 8.1e-05', '"median": Infinity', "Infinity is no number of JSON"),
        ('"median": 8.1e-05', '"median": -Infinity', "-Infinity is no number of JSON"),
        ('"median": 8.1e-05', '"median": 1e999', "no number of JSON"),
        ('"scale": 1.0', '"scale": -1e999', "no number of JSON"),
        ('"scale": 1.0', '"scale": [[1e999]]', "no number of JSON"),
        ('"scale": 1.0', f'"scale": 1{"0" * 30}', "out of range"),
        ('"scale": 1.0', f'"scale": [1{"0" * 4000}]', "out of range"),
        ('"scale": 1.0', f'"scale": 1{"0" * 9000}', "is not the JSON of a record"),
        ('"scale": 1.0', f'"scale": {"[" * 500}{"]" * 500}', "levels deep"),
        ('"scale": 1.0', '"scale": "\\ud800"', "surrogate"),
        ('"scale": 1.0', '"\\udfff": 1.0', "surrogate"),
        ('"scale": 1.0', '"scale": 1.0, "scale": 2.0', "a key stands twice"),
        ('"schema": 1', '"schema": 1, "schema": 1', "a key stands twice"),
        ('"demo":', '"extra": 1, "demo":', "unknown key 'extra'"),
        ('"slug": "imaginary-g9-80gb"', '"slug": "../../x"', r"machine\.slug is"),
        ('"slug": "imaginary-g9-80gb"', '"slug": "a/b"', r"machine\.slug is"),
        ('"slug": "imaginary-g9-80gb"', f'"slug": "{"a" * 300}"', r"machine\.slug is"),
        ('"snippet": "softmax"', '"snippet": "../../x"', r"record\.snippet is"),
        ('"snippet": "softmax"', '"snippet": "/etc"', r"record\.snippet is"),
        ('"snippet": "softmax"', '"snippet": "unknown"', "'unknown', which is not here"),
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
    path = store.path_of(checked.snippets[0], "imaginary-g9-80gb")
    path.write_text(dump(checked.record(schema=2)))
    with pytest.raises(ShelfError, match="update this checkout"):
        store.load(checked.project, path)


def test_a_record_of_other_code_is_refused(checked: Checkout) -> None:
    stale = checked.record("stream", digest="sha256:" + "00" * 32)
    [line] = checked.refuses([checked.record(), stale])
    assert "records[1]: stream: was made from other code" in line
    assert "--skip-stale" in line


def test_records_of_other_code_can_be_left_out(checked: Checkout) -> None:
    stale = checked.record("stream", digest="sha256:" + "00" * 32)
    names = ["snippets/softmax/results/imaginary-g9-80gb.json"]
    assert checked.take([checked.record(), stale], skip_stale=True) == (names, ["stream"])
    assert not store.path_of(checked.snippets[1], "imaginary-g9-80gb").exists()


def test_leaving_out_the_stale_excuses_nothing_else(checked: Checkout) -> None:
    stale = checked.record("stream", digest="sha256:" + "00" * 32)
    with pytest.raises(ShelfError, match="unknown key"):
        checked.take([checked.record(), stale, checked.record(extra=1)], skip_stale=True)
    assert not store.path_of(checked.snippets[0], "imaginary-g9-80gb").exists()


def test_two_records_of_one_machine_are_refused(checked: Checkout) -> None:
    [line] = checked.refuses([checked.record(), checked.record(demo="other\n")])
    assert "records[1]: is a second record of softmax on imaginary-g9-80gb" in line


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_record_among_good_ones_writes_nothing(checkout: Checkout, place: int) -> None:
    store.put(checkout.snippets[1], checkout.cpu("stream"))
    good = [checkout.record(), checkout.record("stream"), checkout.cpu()]
    bad = checkout.record(machine=synthetic.machine(gpus=0))  # with times of a GPU
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


@settings(max_examples=150)
@given(
    way=st.sampled_from(WAYS),
    value=SMALL,
    how=st.sampled_from(["replace", "remove", "add"]),
    key=st.sampled_from(sorted(OPTIONAL)) | st.text(max_size=4),
)
def test_a_mutated_record_is_refused_or_placed_where_it_belongs(
    tmp_path_factory: pytest.TempPathFactory, way: tuple, value: object, how: str, key: str
) -> None:
    checked = Checkout(tmp_path_factory.mktemp("mutated")).checked()

    def change(place: dict | list, last: object) -> None:
        if how == "replace":
            place[last] = value
        elif how == "remove":
            del place[last]
        elif isinstance(place, dict):
            place[key] = value
        else:
            place.append(value)

    truth = checked.cpu() | {"cases": [], "due": synthetic.due(FULL["cases"])}
    store.put(checked.snippets[0], truth)
    mutated = at(FULL | {"digest": checked.snippets[0].digest}, way, change)
    before = checked.files()
    try:
        written, _ = checked.take([mutated, checked.record("stream")])
    except ShelfError as error:
        one_line_each(error)
        assert checked.files() == before
        return
    softmax = checked.snippets[0]
    new = checked.files().keys() - before.keys()
    assert new == {f"checkout/{name}" for name in written}
    assert all(name.startswith(("checkout/snippets/softmax/results/",
                                "checkout/snippets/stream/results/")) for name in new)  # fmt: skip
    # Whatever an import lets in, every later command can read.
    records, findings = store.load_all(softmax)
    assert not findings
    assert records.pop("cpu") == truth
    assert list(records.values()) == [mutated]

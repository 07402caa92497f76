"""Records as files, and which of one kind of device stand beside each other."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import made_up_records
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_records import make_case, make_record, make_result
from records_project import Checkout

from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.files import dump_json
from warpshelf.records import limits, schema, store

# Records as files: written, read again, and known by their machine.


@pytest.fixture
def softmax_snippet(new_checkout: Checkout) -> Snippet:
    return new_checkout.snippets[0]


# --- reading and writing


def test_what_is_written_is_read_again(new_checkout: Checkout, softmax_snippet: Snippet) -> None:
    made = new_checkout.make_record()
    assert store.save_record(softmax_snippet, made) is not None
    path = store.record_path(softmax_snippet, "imaginary-g9-80gb")
    assert path == softmax_snippet.folder / "results" / "imaginary-g9-80gb.json"
    assert store.load_record(new_checkout.project, path) == made
    assert store.load_records(softmax_snippet) == ({"imaginary-g9-80gb": made}, [])


def shuffle_keys(value: object) -> object:
    """The same, with the keys of each object in another order."""
    if isinstance(value, dict):
        pairs = [(key, shuffle_keys(inner)) for key, inner in value.items()]
        random.Random(7).shuffle(pairs)
        return dict(pairs)
    return [shuffle_keys(item) for item in value] if isinstance(value, list) else value


def test_the_text_is_stable(new_checkout: Checkout, softmax_snippet: Snippet) -> None:
    made = new_checkout.make_record()
    store.save_record(softmax_snippet, shuffle_keys(made))
    text = store.record_path(softmax_snippet, "imaginary-g9-80gb").read_text()
    assert store.restore_rows(json.loads(text)) == made
    store.save_record(softmax_snippet, made)
    assert store.record_path(softmax_snippet, "imaginary-g9-80gb").read_text() == text
    # A result a line, its time in it, by names that stand once.
    [line] = [line for line in text.splitlines() if '"online","variant","passed"' in line][:1]
    assert "median" not in line and text.count('"median"') == 1
    assert len(text) < len(schema.record_text(made))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"columns": {"results": ["name"]}}, "has rows that do not fit its columns"),
        ({"columns": {}}, "columns"),
        ({"columns": None}, "columns"),
        ({"machine": 3}, "machine"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    new_checkout: Checkout, softmax_snippet: Snippet, change: dict, says: str
) -> None:
    store.save_record(softmax_snippet, new_checkout.make_record())
    place = store.record_path(softmax_snippet, "imaginary-g9-80gb")
    place.write_text(json.dumps(json.loads(place.read_text()) | change))
    records, [finding] = store.load_records(softmax_snippet)
    assert not records and says in finding.what
    assert "imaginary-g9-80gb.json" in str(finding)


def make_cpu_record(checkout: Checkout, **more: object) -> dict:
    """A record of a CPU with a case that it cannot check, and one that is timed elsewhere."""
    rows = made_up_records.make_ladder()
    skipped = made_up_records.make_case(
        5, 5, [made_up_records.make_result("online", verdict="skipped", reason="none")]
    )
    del skipped["results"][0]["tolerance"]
    due = made_up_records.list_due([*rows[:2], skipped, rows[2]])
    return checkout.make_cpu_record() | {"cases": [*rows[:2], skipped], "due": due} | more


def test_the_file_of_a_cpu_is_short_and_says_as_much(
    new_checkout: Checkout, softmax_snippet: Snippet
) -> None:
    made = make_cpu_record(new_checkout)
    store.save_record(softmax_snippet, shuffle_keys(made))
    path = store.record_path(softmax_snippet, "cpu")
    assert store.load_record(new_checkout.project, path) == made
    text = path.read_text()
    filed = json.loads(text)
    # What follows from the cases is left out, and what does not, stays.
    assert [row[0]["m"] for row in filed["due"]] == [5, 4096]
    results = [row for case in made["cases"] for row in case["results"]]
    rows = [*results, *made["facts"], *made["compiled"], *made["cases"], *made["due"][2:]]
    assert len(text.splitlines()) <= len(rows) + 20
    assert len(text) < 0.8 * len(schema.record_text(made))
    assert not list(path.parent.glob("*.xz"))


def test_a_file_that_has_rows_with_names_is_read_as_well(
    new_checkout: Checkout, softmax_snippet: Snippet
) -> None:
    made = make_cpu_record(new_checkout)
    path = store.record_path(softmax_snippet, "cpu")
    path.parent.mkdir(exist_ok=True)
    path.write_text(dump_json(made))
    assert store.load_record(new_checkout.project, path) == made


LARGE = {"grids": [made_up_records.make_grids()[0] | {"caption": "c" * store.BULK}]}


def test_what_is_bulky_lies_packed_beside_it(
    new_checkout: Checkout, softmax_snippet: Snippet
) -> None:
    made = make_cpu_record(new_checkout, **LARGE, timelines=made_up_records.make_timelines())
    store.save_record(softmax_snippet, made)
    path, pack = store.record_path(softmax_snippet, "cpu"), softmax_snippet.results / store.PACK
    filed = json.loads(path.read_text())
    assert filed["packed"] == ["grids"] and "timelines" in filed and "grids" not in filed
    assert store.load_record(new_checkout.project, path) == made
    before = pack.read_bytes()
    pack.unlink()
    store.save_record(softmax_snippet, made | {"demo": "other\n"})
    assert pack.read_bytes() == before, "the same is packed to the same bytes"
    # Views that others keep there stay, and what a record no longer has goes.
    pack.write_bytes(files.pack_json({**files.read_sections(pack), "views": {"digest": ""}}))
    store.save_record(softmax_snippet, make_cpu_record(new_checkout))
    assert files.read_sections(pack) == {"views": {"digest": ""}}
    store.save_record(softmax_snippet, new_checkout.make_record() | LARGE)
    gpu = json.loads(store.record_path(softmax_snippet, "imaginary-g9-80gb").read_text())
    assert gpu["grids"] == LARGE["grids"]


def test_many_cases_are_packed_and_what_follows_from_them_is_not(
    new_checkout: Checkout, softmax_snippet: Snippet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "OF_KERNELS", 100)  # which less is packed of than of other records
    made = make_cpu_record(new_checkout)
    assert made["compiled"]
    store.save_record(softmax_snippet, made)
    path = store.record_path(softmax_snippet, "cpu")
    filed = json.loads(path.read_text())
    assert filed["packed"] == ["cases", "compiled", "facts"] and "cases" not in filed
    assert [row[0]["m"] for row in filed["due"]] == [5, 4096]
    assert store.load_record(new_checkout.project, path) == made


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "was made from different code than its record"),
        (b"no archive at all", "is not an xz file"),
        (
            files.pack_json({"record": {"digest": "sha256:" + "0" * 64, **LARGE}}),
            "was made from different code",
        ),
        (files.pack_json({"record": {"digest": "OWN"}}), "lacks the 'grids' of its record"),
        (files.pack_json({"record": {"digest": "OWN"}})[:-4], "is cut off"),
    ],
)
def test_a_packed_file_that_is_not_its_records_is_told(
    new_checkout: Checkout, softmax_snippet: Snippet, data: bytes | None, says: str
) -> None:
    store.save_record(softmax_snippet, make_cpu_record(new_checkout, **LARGE))
    pack = softmax_snippet.results / store.PACK
    if data is None:
        pack.unlink()
    elif data.startswith(b"\xfd") and says.startswith("lacks"):
        pack.write_bytes(files.pack_json({"record": {"digest": softmax_snippet.digest}}))
    else:
        pack.write_bytes(data)
    records, (finding,) = store.load_records(softmax_snippet)
    assert records == {} and finding.path.endswith("results/cpu.xz") and says in finding.what


@pytest.mark.parametrize(
    "change",
    [
        lambda filed: filed["facts"][0].append(1),
        lambda filed: filed["columns"].pop("facts"),
        lambda filed: filed.update(columns=[]),
        lambda filed: filed.update(cases=[7]),
        lambda filed: filed.update(facts=7),
    ],
)
def test_rows_that_are_not_of_their_columns_are_told(
    new_checkout: Checkout, softmax_snippet: Snippet, change: Callable[[dict], object]
) -> None:
    store.save_record(softmax_snippet, make_cpu_record(new_checkout))
    path = store.record_path(softmax_snippet, "cpu")
    filed = json.loads(path.read_text())
    change(filed)
    path.write_text(json.dumps(filed))
    records, (finding,) = store.load_records(softmax_snippet)
    assert records == {} and "rows that do not fit its columns" in finding.what


@pytest.mark.parametrize("key", ["date", "commit", "command"])
def test_what_passes_alone_rewrites_nothing(
    new_checkout: Checkout, softmax_snippet: Snippet, key: str
) -> None:
    store.save_record(softmax_snippet, new_checkout.make_record())
    before = new_checkout.read_files()
    assert (
        store.save_record(
            softmax_snippet, new_checkout.make_record(**{key: "2032-01-01T00:00:00Z"})
        )
        is None
    )
    assert new_checkout.read_files() == before


@pytest.mark.parametrize(
    "change",
    [
        {"demo": "other\n"},
        {"digest": "sha256:" + "00" * 32},
        {"method": 2},
        {"skips": [{"what": "everything", "reason": "why not"}]},
        {"machine": made_up_records.make_machine() | {"torch": "2.14.0"}},
        {"cases": made_up_records.make_ladder()[:2]},
    ],
)
def test_any_other_change_rewrites(
    new_checkout: Checkout, softmax_snippet: Snippet, change: dict
) -> None:
    store.save_record(softmax_snippet, new_checkout.make_record())
    later = new_checkout.make_record(date="2032-01-01T00:00:00Z", **change)
    assert store.save_record(softmax_snippet, later) is not None
    [(found, _)] = [store.load_records(softmax_snippet)]
    assert found == {"imaginary-g9-80gb": later}


def test_what_is_no_record_is_replaced(new_checkout: Checkout, softmax_snippet: Snippet) -> None:
    path = store.record_path(softmax_snippet, "imaginary-g9-80gb")
    path.parent.mkdir()
    path.write_text("{")
    assert store.save_record(softmax_snippet, new_checkout.make_record()) is not None
    assert store.load_record(new_checkout.project, path) == new_checkout.make_record()


def test_a_writer_that_dies_leaves_the_old_record(
    new_checkout: Checkout, softmax_snippet: Snippet, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save_record(softmax_snippet, new_checkout.make_record())
    before = new_checkout.read_files()

    def die_writing(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die_writing)
    with pytest.raises(KeyboardInterrupt):
        store.save_record(softmax_snippet, new_checkout.make_record(demo="new\n"))
    assert new_checkout.read_files() == before


def test_the_files_of_a_folder_that_hold_no_record_are_found(
    new_checkout: Checkout, softmax_snippet: Snippet
) -> None:
    store.save_record(softmax_snippet, new_checkout.make_record())
    results = softmax_snippet.results
    (results / "broken.json").write_text("{")
    (results / "moved.json").write_text(dump_json(new_checkout.make_record()))
    (results / "foreign.json").write_text(dump_json(new_checkout.make_record("stream")))
    (results / ".half.json").write_text("{")  # a writer that was killed
    (results / "notes.txt").write_text("{")
    records, findings = store.load_records(softmax_snippet)
    assert list(records) == ["imaginary-g9-80gb"]
    lines = sorted(map(str, findings))
    assert len(lines) == 3
    assert lines[0].startswith("snippets/softmax/results/broken.json:1: is not the JSON of")
    assert "is the record of stream on imaginary-g9-80gb" in lines[1]
    assert "is the record of softmax on imaginary-g9-80gb" in lines[2]


def test_a_snippet_never_run_has_no_record(softmax_snippet: Snippet) -> None:
    assert store.load_records(softmax_snippet) == ({}, [])


# Records of one kind of device: which renews another, and which stands beside it.

SLUG = "imaginary-g9-80gb"
LATER = "2032-01-01T00:00:00Z"


def make_timed(factor: float = 1.0, **more: object) -> dict:
    """A record of two timed functions; the times are `factor` times the usual."""
    rows = [make_result("one pass", 5e-5 * factor), make_result("torch", 6e-5, "peer")]
    return make_record(cases=[make_case(64, 64, rows, timed=True)], **more)


def test_the_names_of_records_and_no_others() -> None:
    assert list(store.record_keys(SLUG))[:3] == [SLUG, f"{SLUG}.2", f"{SLUG}.3"]
    assert len(list(store.record_keys(SLUG))) == store.MOST
    assert list(store.record_keys("cpu")) == ["cpu"]
    assert all(store.key_slug(key) == SLUG for key in store.record_keys(SLUG))
    for strange in ("cpu.2", f"{SLUG}.1", f"{SLUG}.", f"{SLUG}.22", f"{SLUG}.sigstore", "A", ""):
        assert store.key_slug(strange) is None


@given(st.text(max_size=12))
def test_any_name_is_taken_or_refused(name: str) -> None:
    slug = store.key_slug(name)
    assert slug is None or name in store.record_keys(slug)


def test_times_differ_only_by_more_than_both_spreads() -> None:
    def spread_time(median: float, spread: float) -> dict:
        return {"median": median, "p20": median - spread / 2, "p80": median + spread / 2}

    assert limits.times_differ(spread_time(100.0, 4.0), spread_time(110.0, 4.0))
    assert not limits.times_differ(spread_time(100.0, 4.0), spread_time(107.0, 4.0))
    # below what clocks do
    assert not limits.times_differ(spread_time(100.0, 0.0), spread_time(100.9, 0.0))
    assert limits.times_differ(spread_time(101.1, 0.0), spread_time(100.0, 0.0))


def test_what_agrees_is_renewed_and_what_disagrees_stands_beside() -> None:
    known = {SLUG: make_timed()}
    assert store.choose_key(make_timed(1.01, date=LATER), known) == SLUG
    assert store.choose_key(make_timed(1.5, date=LATER), known) == f"{SLUG}.2"
    assert store.choose_key(make_timed(0.5, date=LATER), known) == f"{SLUG}.2"
    known[f"{SLUG}.2"] = make_timed(1.5)
    assert store.choose_key(make_timed(1.51, date=LATER), known) == f"{SLUG}.2"
    assert store.choose_key(make_timed(2.5, date=LATER), known) == f"{SLUG}.3"
    [found] = store.time_differences(make_timed(), make_timed(1.5))
    assert found.name == "one pass"
    assert (found.first["median"], found.second["median"]) == pytest.approx((5e-5, 7.5e-5))


def test_who_measures_again_replaces_their_own_record() -> None:
    ada, grace = ({"who": name} for name in ("Ada Lovelace", "Grace Hopper"))
    known = {SLUG: make_timed(origin=grace), f"{SLUG}.2": make_timed(1.5, origin=ada)}
    assert store.choose_key(make_timed(2.5, origin=ada), known) == f"{SLUG}.2"
    assert store.choose_key(make_timed(2.5), known) == f"{SLUG}.3"
    job = {"job": "https://github.com/warpshelf/warpshelf/actions/runs/1"}
    known[f"{SLUG}.3"] = make_timed(4.0, origin=job)
    other = {"job": "https://github.com/warpshelf/warpshelf/actions/runs/2"}
    assert store.choose_key(make_timed(2.5, origin=other), known) == f"{SLUG}.3"


def test_what_a_job_has_signed_gives_way_to_no_person_who_agrees() -> None:
    job = {"job": "https://github.com/warpshelf/warpshelf/actions/runs/1"}
    ada = {"who": "Ada Lovelace"}
    assert store.is_outranked(make_timed(1.01, origin=ada), make_timed(origin=job))
    assert not store.is_outranked(make_timed(1.01, origin=job), make_timed(origin=job))
    assert not store.is_outranked(make_timed(1.01, origin=job), make_timed(origin=ada))
    # stands beside it
    assert not store.is_outranked(make_timed(1.5, origin=ada), make_timed(origin=job))
    other = {"digest": "sha256:" + "0" * 64}
    assert not store.is_outranked(make_timed(origin=ada), make_timed(origin=job, **other))


def test_records_of_other_code_make_room() -> None:
    old = {"digest": "sha256:" + "0" * 64}
    known = {SLUG: make_timed(**old), f"{SLUG}.2": make_timed(1.5, **old)}
    assert store.choose_key(make_timed(), known) == SLUG
    known[SLUG] = make_timed()
    assert store.choose_key(make_timed(3.0), known) == f"{SLUG}.2"


def test_those_of_other_code_go_with_what_attests_them(tmp_path: Path) -> None:
    snippet = Checkout(tmp_path).snippets[0]
    old = {"snippet": "softmax", "digest": "sha256:" + "0" * 64}
    mine = {"snippet": "softmax", "digest": snippet.digest}
    other = make_timed(slug="imaginary-g7", device="Imaginary G7", **old)
    for key, found in {
        SLUG: make_timed(**old),
        f"{SLUG}.2": make_timed(1.5, **old),
        f"{SLUG}.3": make_timed(1.5, **mine),
        "imaginary-g7": other,
    }.items():
        for path in (store.record_path(snippet, key), store.attestation_path(snippet, key)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dump_json(found))
    assert store.save_record(snippet, make_timed(**mine)) == store.record_path(snippet, SLUG)
    found, findings = store.load_records(snippet)
    kept = {f"{SLUG}.3": make_timed(1.5, **mine), "imaginary-g7": other}
    assert (found, findings) == ({SLUG: make_timed(**mine), **kept}, [])
    left = {path.stem for path in (snippet.results / store.ATTESTATIONS).iterdir()}
    assert left == set(kept)


def test_there_is_an_end_to_disagreement() -> None:
    known = {key: make_timed(1.5**n) for n, key in enumerate(store.record_keys(SLUG))}
    before = copy.deepcopy(known)
    assert store.choose_key(make_timed(0.1), known) is None
    assert known == before

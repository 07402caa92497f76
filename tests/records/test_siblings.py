"""Records of one kind of device: which renews another, and which stands beside it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from import_project import Checkout
from made_up_records import make_case, make_record, make_result

from warpshelf.core.files import dump_json
from warpshelf.records import limits, store

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

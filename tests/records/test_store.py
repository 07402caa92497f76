"""Records as files: written, read again, and known by their machine."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
import synthetic
from checkouts import Checkout

from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump
from warpshelf.records import store


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.fixture
def checked(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path).checked()


@pytest.fixture
def softmax(checkout: Checkout) -> Snippet:
    return checkout.snippets[0]


# --- reading and writing


def test_what_is_written_is_read_again(checkout: Checkout, softmax: Snippet) -> None:
    made = checkout.record()
    assert store.put(softmax, made) is not None
    path = store.path_of(softmax, "imaginary-g9-80gb")
    assert path == softmax.folder / "results" / "imaginary-g9-80gb.json"
    assert store.load(checkout.project, path) == made
    assert store.load_all(softmax) == ({"imaginary-g9-80gb": made}, [])


def shuffled(value: object) -> object:
    """The same, with the keys of each object in another order."""
    if isinstance(value, dict):
        pairs = [(key, shuffled(inner)) for key, inner in value.items()]
        random.Random(7).shuffle(pairs)
        return dict(pairs)
    return [shuffled(item) for item in value] if isinstance(value, list) else value


def test_the_text_is_stable(checkout: Checkout, softmax: Snippet) -> None:
    made = checkout.record()
    store.put(softmax, shuffled(made))
    text = store.path_of(softmax, "imaginary-g9-80gb").read_text()
    assert text == dump(made)
    assert text.endswith("}\n")

    def in_order(pairs: list[tuple[str, object]]) -> dict:
        assert [key for key, _ in pairs] == sorted(key for key, _ in pairs)
        return dict(pairs)

    json.loads(text, object_pairs_hook=in_order)


@pytest.mark.parametrize("key", ["date", "commit", "command"])
def test_what_passes_alone_rewrites_nothing(checkout: Checkout, softmax: Snippet, key: str) -> None:
    store.put(softmax, checkout.record())
    before = checkout.files()
    assert store.put(softmax, checkout.record(**{key: "2032-01-01T00:00:00Z"})) is None
    assert checkout.files() == before


@pytest.mark.parametrize(
    "change",
    [
        {"demo": "other\n"},
        {"digest": "sha256:" + "00" * 32},
        {"method": 2},
        {"skips": [{"what": "everything", "reason": "why not"}]},
        {"machine": synthetic.machine() | {"torch": "2.14.0"}},
        {"cases": synthetic.ladder()[:2]},
    ],
)
def test_any_other_change_rewrites(checkout: Checkout, softmax: Snippet, change: dict) -> None:
    store.put(softmax, checkout.record())
    later = checkout.record(date="2032-01-01T00:00:00Z", **change)
    assert store.put(softmax, later) is not None
    [(found, _)] = [store.load_all(softmax)]
    assert found == {"imaginary-g9-80gb": later}


def test_what_is_no_record_is_replaced(checkout: Checkout, softmax: Snippet) -> None:
    path = store.path_of(softmax, "imaginary-g9-80gb")
    path.parent.mkdir()
    path.write_text("{")
    assert store.put(softmax, checkout.record()) is not None
    assert store.load(checkout.project, path) == checkout.record()


def test_a_writer_that_dies_leaves_the_old_record(
    checkout: Checkout, softmax: Snippet, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(softmax, checkout.record())
    before = checkout.files()

    def die(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        store.put(softmax, checkout.record(demo="new\n"))
    assert checkout.files() == before


def test_the_files_of_a_folder_that_hold_no_record_are_found(
    checkout: Checkout, softmax: Snippet
) -> None:
    store.put(softmax, checkout.record())
    results = softmax.results
    (results / "broken.json").write_text("{")
    (results / "moved.json").write_text(dump(checkout.record()))
    (results / "foreign.json").write_text(dump(checkout.record("stream")))
    (results / ".half.json").write_text("{")  # a writer that was killed
    (results / "notes.txt").write_text("{")
    records, findings = store.load_all(softmax)
    assert list(records) == ["imaginary-g9-80gb"]
    lines = sorted(map(str, findings))
    assert len(lines) == 3
    assert lines[0].startswith("snippets/softmax/results/broken.json:1: is not the JSON of")
    assert "is the record of stream on imaginary-g9-80gb" in lines[1]
    assert "is the record of softmax on imaginary-g9-80gb" in lines[2]


def test_a_snippet_never_run_has_no_record(softmax: Snippet) -> None:
    assert store.load_all(softmax) == ({}, [])

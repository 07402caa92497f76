"""Views of a transpose, whose counts are worked out here by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, exhaustive

from warpshelf.bench import assemble
from warpshelf.bench.pool import Job, Pool
from warpshelf.contract import snippet
from warpshelf.core import files
from warpshelf.core.project import Project
from warpshelf.look import view, view_store
from warpshelf.records import claim_check, ledger
from warpshelf.worker import kernel_views
from warpshelf.worker.context import Task

DIGEST = "sha256:" + "0" * 64
SIDE = 512  # of the matrix that is counted


@pytest.fixture(scope="module", params=exhaustive(claim_check.TARGETS, "all architectures"))
def transpose_views(request: pytest.FixtureRequest) -> dict[str, view.View]:
    """The views of `transpose` by variant, made here for each target in turn."""
    project = Project(ROOT)
    one = snippet.read_snippet(project, project.snippets / "transpose")
    details = assemble.job_details(one, ledger.describe_host(), request.param)
    with Pool(1) as pool:  # in a child, since the kernels that a process has loaded stay
        [outcome] = pool.run([Job(Task.VIEW, one.id, one.seconds, details)])
    answer = outcome.answer
    assert answer is not None and answer["failures"] == [], outcome
    found = {one["variant"]: one for one in answer["views"]}
    assert {one["arch"] for one in found.values()} == {request.param}
    return found


def find_line(found: view.View, *words: str) -> dict[str, Any]:
    """The line of the source, with its counts, in which all these words stand."""
    (at,) = [
        f"{piece['file']}:{piece['from'] + number}"
        for piece in found["source"]
        for number, text in enumerate(piece["text"])
        if all(word in text for word in words)
    ]
    (line,) = [one for one in found["lines"] if one["at"] == at]
    return line


def test_what_is_made_of_the_same_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAPERGPU_CACHE", str(tmp_path))
    made: list[str] = []

    def make_word(word: str) -> Callable[[], bytes]:
        return lambda: (made.append(word), word.encode())[1]

    for decides in (("-c", 1), ("-c", 1), ("-c", 2)):
        assert kernel_views.load_or_make("sass", decides, make_word("text")) == b"text"
    assert made == ["text", "text"]
    for path in (tmp_path / "sass").glob("*/*"):
        path.write_bytes(path.read_bytes()[:-1])  # torn
    assert kernel_views.load_or_make("sass", ("-c", 1), make_word("again")) == b"again"


def test_each_is_shaped_and_kept(transpose_views: dict[str, view.View]) -> None:
    for one in transpose_views.values():
        assert files.shape_problem({**one, "digest": DIGEST}, view.VIEW, "it") is None
        assert view_store.compress_view({**one, "digest": DIGEST})


def test_a_naive_store_touches_32_sectors(transpose_views: dict[str, view.View]) -> None:
    requests = SIDE * SIDE // 32  # each element once, 32 of them a warp
    load, line = (find_line(transpose_views["naive"], words) for words in ("= x[", "y["))
    assert load["requests"] == line["requests"] == requests
    assert load["sectors"] == load["ideal_sectors"] == line["ideal_sectors"] == 4 * requests
    assert line["sectors"] == 32 * requests
    store = next(one for one in transpose_views["naive"]["accesses"] if one["does"] == "store")
    assert (store["passes"], store["ideal"], store["size"]) == (32, 4, 4)
    # A column of the result: a row of it further for each lane.
    lanes = store["addresses"]
    assert {b - a for a, b in zip(lanes, lanes[1:], strict=False)} == {4 * SIDE}


@pytest.mark.parametrize(("variant", "wavefronts"), [("tiled", 32), ("padded", 1), ("swizzled", 1)])
def test_a_column_of_a_tile_takes(
    transpose_views: dict[str, view.View], variant: str, wavefronts: int
) -> None:
    found = transpose_views[variant]
    line = find_line(found, "y[", "= tile[")
    requests = SIDE * SIDE // 32
    assert line["shared_requests"] == line["ideal_wavefronts"] == requests
    assert line["wavefronts"] == wavefronts * requests
    assert line["sectors"] == line["ideal_sectors"] == 4 * requests
    loads = [one for one in found["accesses"] if one["space"] == "shared" and one["does"] == "load"]
    assert loads and all(one["passes"] == wavefronts for one in loads)
    banks = {one // 4 % 32 for one in loads[0]["addresses"]}
    assert len(banks) == 32 // wavefronts


def test_every_instruction_stands_with_its_ptx_and_its_line(
    transpose_views: dict[str, view.View],
) -> None:
    for one in transpose_views.values():
        text = one["ptx"]["text"]
        assert all(0 <= at < len(text) for at in one["sass"]["ptx"])
        for name, at in zip(one["sass"]["text"], one["sass"]["ptx"], strict=True):
            words = name.split()
            opcode = words[1] if words[0].startswith("@") else words[0]
            if opcode.startswith("STG"):
                assert "st.global" in text[at]
            if opcode.startswith("LDS"):
                assert "ld.shared" in text[at]
        # What a warp executes is a line of the source, and what the source did is in the pieces.
        shown = {
            f"{piece['file']}:{piece['from'] + at}"
            for piece in one["source"]
            for at in range(len(piece["text"]))
        }
        files = {piece["file"] for piece in one["source"]}
        assert {line["at"] for line in one["lines"] if line["at"].split(":")[0] in files} <= shown
        executed = sum(sum(line["classes"].values()) for line in one["lines"])
        assert executed == sum(one["ptx"]["run"]) == sum(one["total"]["classes"].values())


def test_live_registers_fit_into_those_that_it_has(transpose_views: dict[str, view.View]) -> None:
    for one in transpose_views.values():
        assert 0 < max(one["sass"]["live"]) <= one["registers"]
        assert max(line.get("live", 0) for line in one["lines"]) == max(one["sass"]["live"])

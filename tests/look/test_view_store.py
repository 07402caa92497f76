"""Views as they are kept, packed beside a record, and back."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Trial, sound_snippet
from hypothesis import example, given
from hypothesis import strategies as st
from made_up_views import FIRST, SOURCE, make_view, repeat_view

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.look import view_store
from warpshelf.look.builds import build_from_view
from warpshelf.look.view import SUMMARY, VIEW, View, view_name


@pytest.fixture
def kept_transpose(trial: Trial) -> Snippet:
    folder = trial.add_snippet("transpose", sound_snippet()).parent
    write_source(folder, "\n" * (FIRST - 1) + "\n".join(SOURCE))
    return read_transpose(trial)


def write_source(folder: Path, text: str) -> None:
    (folder / "transpose.cu").write_text(text + "\n", encoding="utf-8")


def read_transpose(trial: Trial) -> Snippet:
    return snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "transpose")


def locate_pack(one: Snippet) -> Path:
    return one.results / view_store.PACK


def edit_rows(one: Snippet, change: Any) -> None:
    section = files.read_sections(locate_pack(one))["views"]
    rows = change(section["views"])
    section["views"] = section["views"] if rows is None else rows
    locate_pack(one).write_bytes(files.pack_json({"views": section}))


def add_digest(one: Snippet, *views: View) -> list[View]:
    return [each | {"digest": one.digest} for each in views]


def test_what_is_kept_is_read_again(kept_transpose: Snippet) -> None:
    made = [make_view("naive"), make_view("tiled"), repeat_view(3) | {"variant": "large"}]
    assert view_store.write_views(kept_transpose, made)
    found, findings = view_store.load_views(kept_transpose)
    assert findings == []
    assert list(map(view_name, found)) == [
        "large.transpose-naive.sm_90",
        "naive.transpose-naive.sm_90",
        "tiled.transpose-tiled.sm_90",
    ]
    assert all(files.shape_problem(one, VIEW, "it") is None for one in found)
    assert found == add_digest(kept_transpose, made[2], made[0], made[1])
    # A second time nothing is written; what is no longer there is taken away.
    before = locate_pack(kept_transpose).read_bytes()
    assert not view_store.write_views(kept_transpose, made)
    assert locate_pack(kept_transpose).read_bytes() == before
    assert (
        view_store.write_views(kept_transpose, made[:1])
        and len(view_store.load_views(kept_transpose)[0]) == 1
    )
    assert view_store.write_views(kept_transpose, []) and not locate_pack(kept_transpose).exists()


def test_the_same_views_are_the_same_bytes_in_whatever_order(kept_transpose: Snippet) -> None:
    made = [make_view("naive"), make_view("tiled"), make_view("naive", "sm_80")]
    view_store.write_views(kept_transpose, made)
    before = locate_pack(kept_transpose).read_bytes()
    locate_pack(kept_transpose).unlink()
    view_store.write_views(kept_transpose, made[::-1])
    assert locate_pack(kept_transpose).read_bytes() == before


def test_neither_source_nor_lines_are_kept_and_both_come_back_as_they_are_now(
    kept_transpose: Snippet, trial: Trial
) -> None:
    view_store.write_views(kept_transpose, [make_view("tiled")])
    (row,) = files.read_sections(locate_pack(kept_transpose))["views"]["views"]
    assert "source" not in row
    assert {line["at"].partition("+")[0] for line in row["lines"]} == {"transpose.cu:tiled"}
    before = locate_pack(kept_transpose).read_bytes()
    # Three lines of comment above, and one inside, move lines alone.
    text = "\n" * (FIRST - 1) + "// one\n// two\n// three\n" + "\n".join(SOURCE)
    write_source(
        kept_transpose.folder, text.replace("  __syncthreads", "  // all of it\n  __syncthreads")
    )
    now = read_transpose(trial)
    assert now.digest == kept_transpose.digest, "a comment is no other code"
    (one,) = view_store.load_views(now)[0]
    due = [int(line["at"].partition(":")[2]) for line in make_view("tiled")["lines"]]
    barrier = FIRST + SOURCE.index("  __syncthreads();")
    assert [int(line["at"].partition(":")[2]) for line in one["lines"]] == [
        at + 3 + (at >= barrier) for at in due
    ]
    assert "  // all of it" in one["source"][0]["text"]
    assert (
        not view_store.write_views(now, [one])
        and locate_pack(kept_transpose).read_bytes() == before
    )


def test_of_other_architectures_the_totals_are_kept_but_for_another_way_to_multiply(
    kept_transpose: Snippet,
) -> None:
    def make_multiplied(variant: str, arch: str, opcode: str, more: int) -> View:
        made = repeat_view(more) | {"variant": variant, "arch": arch}
        text = made["sass"]["text"]
        return made | {"sass": {**made["sass"], "text": [opcode, *text[1:]]}}

    made = [
        make_multiplied(variant, arch, opcode, more)
        for variant, more in (("short", 1), ("long", 2), ("very-long", 100), ("endless", 200))
        for arch, opcode in (
            ("sm_80", "HMMA.16816.F32 R4, R8, R12, R4"),
            ("sm_90", "HGMMA.64x128x16.F32 R24, gdesc[UR8], R24"),
            ("sm_100", "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8]"),
        )
    ]
    view_store.write_views(
        kept_transpose,
        [*made, make_view("tiled"), make_view("tiled", "sm_80"), make_view("naive", "sm_80")],
    )
    every, findings = view_store.load_summaries(kept_transpose)
    assert findings == [] and len(every) == 15
    assert [view_name(one) for one in every if one["whole"]] == [
        "long.transpose-naive.sm_90",
        "naive.transpose-naive.sm_80",  # there is no other of it
        "short.transpose-naive.sm_100",
        "short.transpose-naive.sm_80",
        "short.transpose-naive.sm_90",
        "tiled.transpose-tiled.sm_90",
        "very-long.transpose-naive.sm_90",
    ]
    assert [view_name(one) for one in view_store.load_views(kept_transpose)[0]] == [
        view_name(one) for one in every if one["whole"]
    ]


def test_a_summary_is_the_view_without_its_lists(kept_transpose: Snippet) -> None:
    view_store.write_views(
        kept_transpose,
        [make_view("naive"), repeat_view(3) | {"variant": "large"}, make_view("naive", "sm_80")],
    )
    every, findings = view_store.load_summaries(kept_transpose)
    assert findings == []
    full = view_store.load_views(kept_transpose)[0]
    assert [one for one in every if one["whole"]] == [
        view_store.summarize_view(one, True) for one in full
    ]
    assert all(
        files.shape_problem(one, {**SUMMARY, "build": object, "whole": bool}, "it") is None
        for one in every
    )
    assert every[0]["sass"] == {"live": [max(full[0]["sass"]["live"])]}
    assert [one["build"] for one in every] == [
        build_from_view(one)
        for one in (repeat_view(3), make_view("naive", "sm_80"), make_view("naive"))
    ]


def test_a_page_loads_one_compressed_file_a_view(kept_transpose: Snippet) -> None:
    view_store.write_views(kept_transpose, [make_view("tiled"), make_view("tiled", "sm_80")])
    pages, findings = view_store.page_files(kept_transpose)
    assert findings == [] and list(pages) == ["tiled.transpose-tiled.sm_90.json.gz"]
    (data,) = pages.values()
    assert view_store.page_files(kept_transpose)[0] == pages  # the same bytes at another time
    loaded = json.loads(gzip.decompress(data))
    assert loaded["lines"] == make_view("tiled")["lines"]
    assert loaded["source"] == make_view("tiled")["source"]
    assert loaded["sass"]["text"].split("\n") == make_view("tiled")["sass"]["text"]


def test_a_summary_finds_what_is_wrong_with_it_and_nothing_else(kept_transpose: Snippet) -> None:
    view_store.write_views(kept_transpose, [make_view()])
    edit_rows(kept_transpose, lambda rows: rows[0].update(accesses=[{"addresses": 1}]))
    assert (
        view_store.load_views(kept_transpose)[1]
        and not view_store.load_summaries(kept_transpose)[1]
    )
    edit_rows(kept_transpose, lambda rows: rows[0].update(threads="many"))
    assert "threads" in view_store.load_summaries(kept_transpose)[1][0].what


def test_views_of_other_code_are_not_shown_and_no_error(
    kept_transpose: Snippet, trial: Trial
) -> None:
    view_store.write_views(kept_transpose, [make_view()])
    write_source(kept_transpose.folder, "\n".join(SOURCE).replace("row += 8", "row += 4"))
    assert view_store.load_views(read_transpose(trial)) == ([], [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: ["[]"], "view 0: is not an object"),
        (lambda rows: rows[0].update(register=rows[0].pop("registers")), "unknown key 'register'"),
        (lambda rows: rows[0].update(threads="many"), "threads"),
        (lambda rows: rows[0].update(variant="…"), "no file is called"),
        (lambda rows: rows[0].update(build={}), "the build lacks"),
        (lambda rows: rows[0]["ptx"].update(text="ret;"), "the lists of ptx differ in length"),
        (lambda rows: rows[0]["sass"].update(text=""), "the lists of sass differ in length"),
        (lambda rows: rows[0]["sass"]["numbers"].update(R="1"), "lacks numbers of its registers R"),
        (lambda rows: rows[0]["total"].update(sectors=7), "sectors in its lines, and 7 in all"),
        (lambda rows: rows[0]["lines"][0].update(at="transpose.cu:tiled+999"), "is not a place in"),
        (lambda rows: rows[0]["lines"][0].update(at="transpose.cu:12"), "is not a place in"),
        (lambda rows: rows[0]["sass"].update(live=[1, 1]), "not written as letters"),
        (lambda rows: rows[0]["sass"].update(ptx="0 1 2"), "not written as letters"),
        (lambda rows: rows[0]["sass"]["control"].__setitem__(0, []), "control[0] is []"),
    ],
)
def test_a_view_that_is_broken_is_told(kept_transpose: Snippet, change: Any, said: str) -> None:
    view_store.write_views(kept_transpose, [make_view(), make_view("tiled")])
    edit_rows(kept_transpose, change)
    found, (finding,) = view_store.load_views(kept_transpose)
    assert len(found) == (0 if "object" in said else 1)
    assert finding.path.endswith("results/cpu.xz") and said in finding.what
    assert "shelf run transpose --force" in finding.mend


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"these are no views", "is not an xz file"),
        (files.pack_json([1]), "does not hold an object"),
        (files.pack_json({"views": [1]}), "has no list of views"),
        (files.pack_json({"views": {"views": []}})[:-9], "is cut off"),
    ],
)
def test_a_packed_file_that_is_broken_is_told(
    kept_transpose: Snippet, data: bytes, said: str
) -> None:
    kept_transpose.results.mkdir(exist_ok=True)
    locate_pack(kept_transpose).write_bytes(data)
    found, (finding,) = view_store.load_views(kept_transpose)
    assert found == [] and said in finding.what


def test_views_called_the_same_and_those_too_large_are_refused(kept_transpose: Snippet) -> None:
    view_store.write_views(kept_transpose, [make_view()])
    before = locate_pack(kept_transpose).read_bytes()
    with pytest.raises(ShelfError, match="is the name of two views"):
        view_store.write_views(
            kept_transpose, [make_view(variant="naive"), make_view() | {"variant": "Naive?"}]
        )
    noise = [f"MOV {hashlib.sha512(b'%d' % at).hexdigest()}" for at in range(1_999)]
    sass = {**make_view()["sass"], "text": noise}
    with pytest.raises(ShelfError, match="bytes when compressed, and 81920 are the limit"):
        view_store.write_views(kept_transpose, [make_view() | {"sass": sass}])
    assert locate_pack(kept_transpose).read_bytes() == before


@given(st.lists(st.none() | st.integers(0, 2**40)))
def test_differences_and_back(numbers: list[int | None]) -> None:
    assert (
        view_store._delta_decode(json.loads(json.dumps(view_store._delta_encode(numbers))))
        == numbers
    )


@given(st.lists(st.integers(-(2**19), 2**19)))
@example([-27631, 27630, 27631, -1, 0, -(2**19)])  # beside what is half a letter
def test_numbers_are_letters_and_back(numbers: list[int]) -> None:
    text = view_store._write_letters(numbers)
    assert view_store._read_letters(files.unpack_json(files.pack_json(text))) == numbers
    assert len(text) == len(numbers)

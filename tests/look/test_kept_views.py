"""Views as they are kept, packed beside a record, and back."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Trial, sound_snippet
from hypothesis import given
from hypothesis import strategies as st
from looking import FIRST, SOURCE, larger, view

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core import files
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.look import kept
from warpshelf.look.view import SUMMARY, View, problem, summary


@pytest.fixture
def sound(trial: Trial) -> Snippet:
    folder = trial.snippet("transpose", sound_snippet()).parent
    write_source(folder, "\n" * (FIRST - 1) + "\n".join(SOURCE))
    return read(trial)


def write_source(folder: Path, text: str) -> None:
    (folder / "transpose.cu").write_text(text + "\n", encoding="utf-8")


def read(trial: Trial) -> Snippet:
    return snippet.read(Project(trial.root), trial.root / "snippets" / "transpose")


def pack(one: Snippet) -> Path:
    return one.results / kept.PACK


def edit(one: Snippet, change: Any) -> None:
    """Change the rows of what is kept."""
    section = files.sections(pack(one))["views"]
    rows = change(section["views"])
    section["views"] = section["views"] if rows is None else rows
    pack(one).write_bytes(files.packed({"views": section}))


def of(one: Snippet, *views: View) -> list[View]:
    return [each | {"digest": one.digest} for each in views]


def test_what_is_kept_is_read_again(sound: Snippet) -> None:
    made = [view("naive"), view("tiled"), larger(3) | {"variant": "large"}]
    assert kept.write(sound, made)
    found, findings = kept.views_of(sound)
    assert findings == []
    assert [one.name for one in found] == [
        "large.transpose-naive.sm_90",
        "naive.transpose-naive.sm_90",
        "tiled.transpose-tiled.sm_90",
    ]
    assert all(problem(one.view) is None for one in found)
    assert [one.view for one in found] == of(sound, made[2], made[0], made[1])
    # A second time nothing is written; what is no longer there is taken away.
    before = pack(sound).read_bytes()
    assert not kept.write(sound, made)
    assert pack(sound).read_bytes() == before
    assert kept.write(sound, made[:1]) and len(kept.views_of(sound)[0]) == 1
    assert kept.write(sound, []) and not pack(sound).exists()


def test_the_same_views_are_the_same_bytes_in_whatever_order(sound: Snippet) -> None:
    made = [view("naive"), view("tiled"), view("naive", "sm_80")]
    kept.write(sound, made)
    before = pack(sound).read_bytes()
    pack(sound).unlink()
    kept.write(sound, made[::-1])
    assert pack(sound).read_bytes() == before


def test_neither_source_nor_lines_are_kept_and_both_come_back_as_they_are_now(
    sound: Snippet, trial: Trial
) -> None:
    kept.write(sound, [view("tiled")])
    (row,) = files.sections(pack(sound))["views"]["views"]
    assert "source" not in row
    assert {line["at"].partition("+")[0] for line in row["lines"]} == {"transpose.cu:tiled"}
    before = pack(sound).read_bytes()
    # Three lines of comment above, and one inside, move lines alone.
    text = "\n" * (FIRST - 1) + "// one\n// two\n// three\n" + "\n".join(SOURCE)
    write_source(sound.folder, text.replace("  __syncthreads", "  // all of it\n  __syncthreads"))
    now = read(trial)
    assert now.digest == sound.digest, "a comment is no other code"
    (one,) = kept.views_of(now)[0]
    due = [int(line["at"].partition(":")[2]) for line in view("tiled")["lines"]]
    barrier = FIRST + SOURCE.index("  __syncthreads();")
    assert [int(line["at"].partition(":")[2]) for line in one.view["lines"]] == [
        at + 3 + (at >= barrier) for at in due
    ]
    assert "  // all of it" in one.view["source"][0]["text"]
    assert not kept.write(now, [one.view]) and pack(sound).read_bytes() == before


def test_of_other_architectures_the_totals_are_kept_but_for_another_way_to_multiply(
    sound: Snippet,
) -> None:
    def multiplies(variant: str, arch: str, opcode: str, more: int) -> View:
        made = larger(more) | {"variant": variant, "arch": arch}
        text = made["sass"]["text"]
        return made | {"sass": {**made["sass"], "text": [opcode, *text[1:]]}}

    made = [
        multiplies(variant, arch, opcode, more)
        for variant, more in (("short", 1), ("long", 2), ("very-long", 200))
        for arch, opcode in (
            ("sm_80", "HMMA.16816.F32 R4, R8, R12, R4"),
            ("sm_90", "HGMMA.64x128x16.F32 R24, gdesc[UR8], R24"),
            ("sm_100", "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8]"),
        )
    ]
    kept.write(sound, [*made, view("tiled"), view("tiled", "sm_80"), view("naive", "sm_80")])
    every, findings = kept.summaries_of(sound)
    assert findings == [] and len(every) == 12
    assert [one.name for one in every if one.whole] == [
        "long.transpose-naive.sm_90",
        "naive.transpose-naive.sm_80",  # there is no other of it
        "short.transpose-naive.sm_100",
        "short.transpose-naive.sm_80",
        "short.transpose-naive.sm_90",
        "tiled.transpose-tiled.sm_90",
        "very-long.transpose-naive.sm_90",
    ]
    assert [one.name for one in kept.views_of(sound)[0]] == [one.name for one in every if one.whole]


def test_a_summary_is_the_view_without_its_lists(sound: Snippet) -> None:
    kept.write(sound, [view("naive"), larger(3) | {"variant": "large"}, view("naive", "sm_80")])
    every, findings = kept.summaries_of(sound)
    assert findings == []
    full = kept.views_of(sound)[0]
    assert [one.view for one in every if one.whole] == [summary(one.view) for one in full]
    assert all(problem(one.view, SUMMARY) is None for one in every)
    assert every[0].view["sass"] == {"live": [max(full[0].view["sass"]["live"])]}
    assert [one.build for one in every] == [
        kept.of(one).build for one in (larger(3), view("naive", "sm_80"), view("naive"))
    ]


def test_a_page_loads_one_compressed_file_a_view(sound: Snippet) -> None:
    kept.write(sound, [view("tiled"), view("tiled", "sm_80")])
    pages, findings = kept.pages(sound)
    assert findings == [] and list(pages) == ["tiled.transpose-tiled.sm_90.json.gz"]
    (data,) = pages.values()
    assert kept.pages(sound)[0] == pages  # the same bytes at another time
    loaded = json.loads(gzip.decompress(data))
    assert loaded["lines"] == view("tiled")["lines"]
    assert loaded["source"] == view("tiled")["source"]
    assert loaded["sass"]["text"].split("\n") == view("tiled")["sass"]["text"]


def test_a_summary_finds_what_is_wrong_with_it_and_nothing_else(sound: Snippet) -> None:
    kept.write(sound, [view()])
    edit(sound, lambda rows: rows[0].update(accesses=[{"addresses": 1}]))
    assert kept.views_of(sound)[1] and not kept.summaries_of(sound)[1]
    edit(sound, lambda rows: rows[0].update(threads="many"))
    assert "threads" in kept.summaries_of(sound)[1][0].what


def test_views_of_other_code_are_not_shown_and_no_error(sound: Snippet, trial: Trial) -> None:
    kept.write(sound, [view()])
    write_source(sound.folder, "\n".join(SOURCE).replace("row += 8", "row += 4"))
    assert kept.views_of(read(trial)) == ([], [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: ["[]"], "view 0: is no object"),
        (lambda rows: rows[0].update(register=rows[0].pop("registers")), "unknown key 'register'"),
        (lambda rows: rows[0].update(threads="many"), "threads"),
        (lambda rows: rows[0].update(variant="…"), "no file is called"),
        (lambda rows: rows[0].update(build={}), "the build lacks"),
        (lambda rows: rows[0]["ptx"].update(text="ret;"), "the lists of ptx are not of one length"),
        (lambda rows: rows[0]["sass"].update(text=""), "the lists of sass are not of one length"),
        (lambda rows: rows[0]["total"].update(sectors=7), "sectors in its lines, and 7 in all"),
        (lambda rows: rows[0]["lines"][0].update(at="transpose.cu:tiled+999"), "is no place of"),
    ],
)
def test_a_view_that_is_broken_is_told(sound: Snippet, change: Any, said: str) -> None:
    kept.write(sound, [view(), view("tiled")])
    edit(sound, change)
    found, (finding,) = kept.views_of(sound)
    assert len(found) == (0 if "object" in said else 1)
    assert finding.path.endswith("results/cpu.xz") and said in finding.what
    assert "shelf run transpose --force" in finding.mend


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"these are no views", "is no file of xz"),
        (files.packed([1]), "holds no object"),
        (files.packed({"views": [1]}), "holds no views where they should be"),
        (files.packed({"views": {"views": []}})[:-9], "is cut off"),
    ],
)
def test_a_packed_file_that_is_broken_is_told(sound: Snippet, data: bytes, said: str) -> None:
    sound.results.mkdir(exist_ok=True)
    pack(sound).write_bytes(data)
    found, (finding,) = kept.views_of(sound)
    assert found == [] and said in finding.what


def test_views_called_the_same_and_those_too_large_are_refused(sound: Snippet) -> None:
    kept.write(sound, [view()])
    before = pack(sound).read_bytes()
    with pytest.raises(ShelfError, match="would be of two views"):
        kept.write(sound, [view(variant="naive"), view() | {"variant": "Naive?"}])
    noise = [f"MOV R{at * at * 7919 % 100_003}, {at * 104_729 % 65_537:#x}" for at in range(20_000)]
    sass = {**view()["sass"], "text": noise}
    with pytest.raises(ShelfError, match="bytes when compressed, and 81920 are the limit"):
        kept.write(sound, [view() | {"sass": sass}])
    assert pack(sound).read_bytes() == before


@given(st.lists(st.none() | st.integers(0, 2**40)))
def test_differences_and_back(numbers: list[int | None]) -> None:
    assert kept._sums(json.loads(json.dumps(kept._differences(numbers)))) == numbers

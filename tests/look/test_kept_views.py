"""Views as files, and back."""

from __future__ import annotations

import json

import pytest
from conftest import Trial, sound_snippet
from hypothesis import given
from hypothesis import strategies as st
from looking import larger, view

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.look import kept
from warpshelf.look.view import SUMMARY, problem, summary


@pytest.fixture
def sound(trial: Trial) -> Snippet:
    return snippet.read(Project(trial.root), trial.snippet("transpose", sound_snippet()).parent)


def test_what_is_kept_is_read_again(sound: Snippet) -> None:
    made = [view("naive"), view("tiled", "sm_80"), larger(3) | {"variant": "large"}]
    assert kept.write(sound, made)
    found, findings = kept.views_of(sound)
    assert findings == []
    assert [one.name for one in found] == [
        "large.transpose-naive.sm_90",
        "naive.transpose-naive.sm_90",
        "tiled.transpose-tiled.sm_80",
    ]
    assert [one.view for one in found] == [
        one | {"digest": sound.digest} for one in (made[2], made[0], made[1])
    ]
    assert all(problem(one.view) is None for one in found)
    assert len(found[0].files) == 3
    # A second time nothing is written; what is no longer there is taken away.
    assert not kept.write(sound, made)
    assert kept.write(sound, made[:1])
    assert len(list((sound.results / kept.FOLDER).iterdir())) == 3


def test_a_summary_is_the_view_without_its_lists(sound: Snippet) -> None:
    kept.write(sound, [view("naive"), larger(3) | {"variant": "large"}])
    whole, findings = kept.summaries_of(sound)
    assert findings == []
    full = kept.views_of(sound)[0]
    assert [one.view for one in whole] == [summary(one.view) for one in full]
    assert [one.files for one in whole] == [one.files for one in full]
    assert all(problem(one.view, SUMMARY) is None for one in whole)
    assert all(one.view["sass"] == {"live": other.view["sass"]["live"]}
               for one, other in zip(whole, full, strict=True))  # fmt: skip


def test_a_summary_finds_what_is_wrong_with_it_and_nothing_else(sound: Snippet) -> None:
    kept.write(sound, [view()])
    (path,) = (sound.results / kept.FOLDER).glob("*.json")
    text = path.read_text()
    path.write_text(text.replace('"addresses":[', '"addresses":[1e999,'))
    assert kept.views_of(sound)[1] and not kept.summaries_of(sound)[1]
    path.write_text(text.replace('"threads": 256', '"threads": 1e999'))
    assert "holds inf" in kept.summaries_of(sound)[1][0].what


def test_a_view_of_other_code_is_not_shown_and_no_error(sound: Snippet) -> None:
    kept.write(sound, [view()])
    (path,) = (sound.results / kept.FOLDER).glob("*.json")
    path.write_text(path.read_text().replace(sound.digest, "sha256:" + "0" * 64))
    assert kept.views_of(sound) == ([], [])


@pytest.mark.parametrize(
    ("ending", "change", "said"),
    [
        (".json", lambda text: text[:-3], "is not the JSON of a view"),
        (".json", lambda text: "[]", "the view is no object"),
        (".json", lambda text: text.replace('"registers"', '"register"'), "unknown key 'register'"),
        (".json", lambda text: text.replace('"threads": 256', '"threads": "many"'), "threads"),
        (".json", lambda text: text.replace('"naive"', '"other"'), "not called so"),
        (".ptx.txt", lambda text: text + "ret;\n", "the lists of ptx are not of one length"),
        (".sass.txt", lambda text: "", "the lists of sass are not of one length"),
        (".sass.txt", None, "No such file"),
    ],
)
def test_a_view_that_is_broken_is_told_with_its_file(
    sound: Snippet, ending: str, change: object, said: str
) -> None:
    kept.write(sound, [view()])
    (path,) = (sound.results / kept.FOLDER).glob(f"*{ending}")
    if callable(change):
        path.write_text(change(path.read_text()))
    else:
        path.unlink()
    found, (finding,) = kept.views_of(sound)
    assert found == []
    assert finding.path.endswith(".json") and said in finding.what
    assert "shelf run transpose --force" in finding.mend


def test_a_file_of_no_view_is_told(sound: Snippet) -> None:
    kept.write(sound, [view()])
    (sound.results / kept.FOLDER / "notes.txt").write_text("mine")
    found, (finding,) = kept.views_of(sound)
    assert len(found) == 1
    assert finding.path.endswith("views/notes.txt") and finding.what == "is of no view"


def test_views_called_the_same_and_those_too_large_are_refused(sound: Snippet) -> None:
    kept.write(sound, [view()])
    before = sorted((sound.results / kept.FOLDER).iterdir())
    with pytest.raises(ShelfError, match="would be of two views"):
        kept.write(sound, [view(variant="naive"), view() | {"variant": "Naïve?".replace("ï", "i")}])
    noise = [f"MOV R{at * at * 7919 % 100_003}, {at * 104_729 % 65_537:#x}" for at in range(20_000)]
    sass = {**view()["sass"], "text": noise}
    with pytest.raises(ShelfError, match="bytes when compressed, and 25600 are the limit"):
        kept.write(sound, [view() | {"sass": sass}])
    assert sorted((sound.results / kept.FOLDER).iterdir()) == before


@given(st.lists(st.none() | st.integers(0, 2**40)))
def test_differences_and_back(numbers: list[int | None]) -> None:
    assert kept._sums(json.loads(json.dumps(kept._differences(numbers)))) == numbers

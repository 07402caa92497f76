"""Lists of mutants, as far as the sources tell without running anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Trial

from warpshelf.contract import mutants, snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.project import Project

LIST = "tests/snippets/mutants/sound.yml"


@pytest.fixture
def check_edits(trial: Trial) -> Callable[..., list[str]]:
    """What is found wrong once the list and the cases of the sound snippet are edited."""
    path = trial.add_sound_snippet()
    listed, cases = trial.root / LIST, path.with_name("cases.py")

    def edit_and_check(*edits: tuple[Path | str, str, str]) -> list[str]:
        for which, old, new in edits:
            file = {"list": listed, "cases": cases}[str(which)]
            text = file.read_text()
            assert old in text
            file.write_text(text.replace(old, new, 1))
        return [str(finding) for finding in mutants.check_mutants(read_sound(trial))]

    return edit_and_check


def read_sound(trial: Trial) -> Snippet:
    found = snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "sound")
    assert not found.findings
    return found


def test_a_sound_list_has_no_finding(check_edits) -> None:
    assert check_edits() == []


def test_a_mutant_changes_every_place(trial: Trial) -> None:
    trial.add_sound_snippet()
    made, findings = mutants.load_mutants(read_sound(trial))
    assert findings == []
    assert [mutant.name for mutant in made] == [
        "writes nothing", "adds one", "leaves a term out", "doubles its input"
    ]  # fmt: skip
    assert [mutant.line for mutant in made] == [2, 5, 8, 11]
    change = mutants.Mutant("x", "a", "bb", "sound.py", 2)
    assert change.mutate_text("banana") == "bbbnbbnbb"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("find: return torch", "find: return numpy",
         f"{LIST}:2: mutant 'writes nothing' looks for 'return numpy.matmul(a, b, out=out)', which "
         "sound.py has 0 times, not 1; copy the text from the file, or write count: 0"),
        ("find: return torch.matmul(a, b, out=out)", "find: torch",
         ":2: mutant 'writes nothing' looks for 'torch', which sound.py has 7 times, not 1; "
         "copy the text from the file, or write count: 7"),
        ("find: return torch.matmul(a, b, out=out)", "find: ''", "looks for '', which sound.py"),
        ("replace: return out", "replace: return torch.matmul(a, b, out=out)",
         ":2: mutant 'writes nothing' changes nothing; "),
        ("replace: return out", "replace: return out\n  file: sound.cu",
         "changes sound.cu, which is not in sound/; name a file of the snippet's folder"),
        ("replace: return out", "replace: return out\n  file: ../../mkdocs.yml",
         "changes ../../mkdocs.yml, which is not in sound/"),
        ("replace: return out", "replace: return out\n  file: ./sound.py",
         "changes ./sound.py, which is not in sound/"),
        ("replace: return out", f"replace: return out\n  file: {Path(__file__)}",
         f"changes {Path(__file__)}, which is not in sound/"),
        ("- name: adds one", "- name: writes nothing", "'writes nothing' is listed twice"),
        ("- name: adds one", "- title: adds one", ":1: sound[1] has the unknown key 'title'"),
        ("replace: return out", "count: 1", "sound[0] lacks 'replace'"),
        ("replace: return out", "replace: 3", "sound[0].replace is 3"),
        ("- name: adds one", "- name: [", f"{LIST}:7: is not YAML: "),
        ("- name: adds one", "- name: adds \0", "is not YAML: "),
        ("sound:\n", "sound: some\n", "is not YAML: "),
    ],
)  # fmt: skip
def test_a_fault_of_the_list_is_one_line(check_edits, old: str, new: str, says: str) -> None:
    [line] = check_edits(("list", old, new))
    assert line.startswith(LIST) and says in line
    assert "\n" not in line and "; " in line


def test_a_list_is_found_in_whatever_file_it_stands(check_edits, trial: Trial) -> None:
    (trial.root / mutants.FOLDER / "gemm.yml").write_text("# The others.\nother:\n- name: [\n")
    assert check_edits() == []
    (trial.root / LIST).rename(trial.root / mutants.FOLDER / "some.yml")
    assert check_edits() == []


def test_a_list_of_no_snippet_and_a_second_list_are_told(trial: Trial) -> None:
    trial.add_sound_snippet()
    project = Project(trial.root)
    assert list(mutants.check_lists(project, {"sound"})) == []
    (trial.root / mutants.FOLDER / "a.yml").write_text("- name: x\nsuond:\n\nsound:\n- name: y\n")
    assert [str(told) for told in mutants.check_lists(project, {"sound"})] == [
        f"{mutants.FOLDER}/a.yml:1: does not start with a key; write the id of a snippet",
        f"{mutants.FOLDER}/a.yml:2: 'suond' is not a snippet; fix the id, or drop its list",
        f"{LIST}:1: lists mutants of sound again (first in {mutants.FOLDER}/a.yml:4); "
        "keep one list",
    ]


def test_fewer_than_four_are_too_few(check_edits, trial: Trial) -> None:
    text = (trial.root / LIST).read_text()
    last = text[text.index("- name: doubles its input") :]
    [line] = check_edits(("list", last, ""))
    mend = "list at least 4 changed copies that some case rejects"
    assert line == f"{LIST}:2: has 3 mutants of sound; {mend}"
    (trial.root / LIST).unlink()
    assert check_edits() == [f"{mutants.FOLDER}: has no mutants of sound; {mend}"]


def test_a_case_that_kills_none_or_an_unknown_one_is_told(check_edits) -> None:
    found = check_edits(
        ("cases", ', "kills": ["adds one"]', ""), ("cases", '["writes nothing"]', '["writes"]')
    )
    assert [line.partition(": ")[2] for line in found] == [
        f"kills names 'writes', which is not a mutant; name one of {LIST}",
        "the case kills no mutant; list a mutant that it rejects in kills, or drop the case",
        "mutant 'writes nothing' is in the kills of no case in cases.py; "
        "add it to the kills of a case",
        "mutant 'adds one' is in the kills of no case in cases.py; add it to the kills of a case",
    ]
    assert [line.split(":")[0].rpartition("/")[2] for line in found] == [
        "cases.py", "cases.py", "sound.yml", "sound.yml"
    ]  # fmt: skip


def test_kills_by_keyword_count(check_edits) -> None:
    assert check_edits(
        ("cases", "CASES = (", "def row(**given):\n    return given\n\n\nCASES = ("),
        ("cases", '{"m": 1, "n": 1, "k": 1, "kills": ["writes nothing"]}',
         'row(m=1, n=1, k=1, kills=["writes nothing"])'),
    ) == []  # fmt: skip


def test_a_function_that_makes_rows_may_take_the_names_as_it_likes(check_edits) -> None:
    row = "def row(name, *kills):\n    return {'m': 1, 'n': 1, 'k': 1, 'kills': list(kills)}\n\n\n"
    rows = ("cases", "CASES = (", f"{row}CASES = (")
    first = '{"m": 1, "n": 1, "k": 1, "kills": ["writes nothing"]}'
    assert check_edits(rows, ("cases", first, 'row("small", "writes nothing")')) == []
    [line, *_] = check_edits(("cases", 'row("small", "writes nothing")', 'row("small", "writes")'))
    assert "the case kills no mutant" in line


@pytest.mark.parametrize("kind", ["program", "model"])
def test_only_kernels_have_mutants(trial: Trial, kind: str) -> None:
    (trial.root / "README.md").write_text("")
    trial.run_shelf("new", "given", "--kind", kind)
    found = snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "given")
    assert not found.findings and mutants.check_mutants(found) == []

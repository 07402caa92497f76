"""Mutants: each case rejects those that its `kills` names, and each is rejected by some case."""

from __future__ import annotations

import pytest
from conftest import Trial, snippets_of_the_shelf

from warpshelf.bench import mutants as judging
from warpshelf.contract import digest, mutants, snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project

KERNELS = [one for one in snippets_of_the_shelf() if one.kind == "kernel"]


def why_not_here(one: Snippet) -> str | None:
    """Why it cannot run on this machine; its mutants are then judged on another."""
    from warpshelf.records import ledger

    return None if ledger.may_have_gpu() else one.cannot_run(None, 0)


@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_the_lists_are_sound(one: Snippet) -> None:
    assert not one.findings, one.findings
    assert mutants.check_mutants(one) == []


@pytest.mark.exhaustive("all mutants of each snippet")
@pytest.mark.parametrize("one", KERNELS, ids=lambda one: one.id)
def test_every_claim_holds_and_every_mutant_is_killed(one: Snippet) -> None:
    if why := why_not_here(one):
        pytest.skip(why)
    found = judging.run_mutants(one, claims_alone=True)
    assert found.findings() == []
    judged = [words for of in found.judged.values() for words in of.values()]
    assert judged and all(judged)


def claim_kills(trial: Trial, *kills: str) -> Snippet:
    """The sound snippet, whose cases claim to kill these."""
    path = trial.add_sound_snippet()
    cases = path.with_name("cases.py")
    text = cases.read_text()
    for number, name in enumerate(kills):
        old = ["writes nothing", "adds one", "leaves a term out", "doubles its input"][number]
        text = text.replace(f'"kills": ["{old}"]', f'"kills": ["{name}"]')
    cases.write_text(text)
    return snippet.read_snippet(Project(trial.root), path.parent)


def test_the_whole_matrix_of_a_sound_snippet(trial: Trial) -> None:
    trial.add_sound_snippet()
    done = trial.run_shelf("check", "--mutants", "sound")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any("unchanged" in line and "x" not in line.split("unchanged")[1] for line in lines)
    assert any("adds one" in line and line.count("x") == 4 for line in lines)
    answer = trial.run_shelf("check", "--mutants", "sound", "--json")
    assert '"findings": []' in answer.stdout


def test_a_module_that_reads_a_file_beside_it_can_be_imported_from_a_copy(trial: Trial) -> None:
    path = trial.add_sound_snippet()
    shared = trial.root / "snippets" / "shared"
    shared.mkdir()
    (shared / "__init__.py").write_text("")
    read = 'Path(__file__).with_name("table.json").read_text()'
    (shared / "table.py").write_text(f"from pathlib import Path\n\nUNUSED = {read}\nONE = 1\n")
    (shared / "table.json").write_text("{}")
    text = path.read_text()
    use = "import torch\n\nfrom snippets.shared.table import ONE\n"
    path.write_text(text.replace("import torch\n", use, 1))
    one = snippet.read_snippet(Project(trial.root), path.parent)
    assert shared / "table.json" not in digest.dependency_files(trial.root, one.folder)
    found = judging.run_mutants(one, claims_alone=True)
    assert found.findings() == [] and found.judged


def test_a_false_claim_is_told(trial: Trial) -> None:
    one = claim_kills(trial, "writes nothing", "leaves a term out", "adds one", "spoils m = 64")
    path = one.project.root / mutants.FOLDER / "sound.yml"
    text = path.read_text()
    path.write_text(
        f"{text}- name: spoils m = 64\n"
        "  find: return torch.matmul(a, b, out=out)\n"
        "  replace: return torch.matmul(a, b, out=out) * (1 if a.shape[0] != 127 else 2)\n"
    )
    done = trial.run_shelf("check", "--mutants", "sound")
    assert done.returncode == 1
    told = [line.partition("} ")[2] for line in done.stderr.splitlines()]
    assert told == ["does not reject the mutant 'spoils m = 64'; remove the name from kills"]


def test_a_mutant_that_survives_and_a_case_that_kills_none_are_told(trial: Trial) -> None:
    one = claim_kills(trial)
    path = one.project.root / mutants.FOLDER / "sound.yml"
    path.write_text(path.read_text() + "- name: none\n  find: eye(2)\n  replace: eye(3)\n")
    found = [str(finding) for finding in judging.run_mutants(one).findings()]
    where = f"tests/snippets/mutants/{one.id}.yml"
    assert found == [
        f"{where}:{len(path.read_text().splitlines()) - 2}: mutant 'none' survives every case; "
        "add a case that rejects it"
    ]


def test_a_case_that_is_there_to_be_counted_need_not_kill(trial: Trial) -> None:
    one = claim_kills(trial)
    text = one.cases_path.read_text()
    counted = '({"m": 64, "n": 64, "k": 64}, {"m": 8, "n": 8, "k": 8, "kills": ["adds one"]})'
    one.cases_path.write_text(f"{text}\n\nCOUNTED = {counted}\n")
    one = snippet.read_snippet(one.project, one.folder)
    found = judging.run_mutants(one)
    assert found.findings() == []
    first = len(found.cases) - 2
    assert found.counted == [first, first + 1]
    assert all(first not in judged for judged in found.judged.values())  # it is not asked
    assert found.judged["adds one"][first + 1] is not None
    one.cases_path.write_text(f"{text}\n\nCOUNTED = {counted.replace('adds one', 'adds two')}\n")
    [told] = judging.run_mutants(
        snippet.read_snippet(one.project, one.folder), claims_alone=True
    ).findings()
    line = len(text.splitlines()) + 3
    assert str(told).startswith(f"snippets/sound/cases.py:{line}: COUNTED[1] {{'m': 8, ")
    assert "kills 'adds two', which is not a mutant" in str(told)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("import os; os._exit(3)", "left with exit status 3"),
        ("raise SystemExit(2)", "raised SystemExit: 2"),
        ("raise RuntimeError('no')", "raised RuntimeError: no"),
    ],
)
def test_whatever_a_mutant_does_is_a_rejection(trial: Trial, body: str, says: str) -> None:
    one = claim_kills(trial)
    path = one.project.root / mutants.FOLDER / "sound.yml"
    text = path.read_text().replace("torch.matmul(a, b, out=out).add_(1)", "None")
    path.write_text(text.replace("replace: return None", f"replace: {body}"))
    found = judging.run_mutants(one, claims_alone=True)
    assert found.findings() == []
    [words] = found.judged["adds one"].values()
    assert words is not None and words.startswith(says)


@pytest.mark.parametrize("body", ["return absent", "raise CompilationError('at 3:1')"])
def test_a_mutant_that_does_not_compile_is_none(trial: Trial, body: str) -> None:
    one = claim_kills(trial)
    path = one.project.root / mutants.FOLDER / "sound.yml"
    text = path.read_text().replace("torch.matmul(a, b, out=out).add_(1)", "None")
    if "CompilationError" in body:
        body = "from triton.compiler.errors import CompilationError; " + body
        body = body.replace("'at 3:1'", "'', None, 'at 3:1'")
    path.write_text(text.replace("replace: return None", f'replace: "{body}"'))
    [found] = judging.run_mutants(one, claims_alone=True).findings()
    assert str(found).startswith(f"tests/snippets/mutants/{one.id}.yml:")
    assert "mutant 'adds one' does not compile, so no case rejects it: raised " in str(found)


def test_a_mutant_must_be_imported(trial: Trial) -> None:
    one = claim_kills(trial)
    path = one.project.root / mutants.FOLDER / "sound.yml"
    path.write_text(path.read_text() + "- name: none\n  find: import torch\n  replace: import\n")
    with pytest.raises(ShelfError, match="mutant 'none': raised SyntaxError"):
        judging.run_mutants(one)

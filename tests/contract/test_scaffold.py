"""New snippets: each kind runs as it is written, and a refusal writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT, Trial, exhaustive, new_trial

from warpshelf.bench import mutants as judging
from warpshelf.contract import mutants, snippet
from warpshelf.core.project import Project
from warpshelf.records import store

# The id of each kind's example, and the first line that its demo prints.
KINDS = {
    "triton": ("my_triton", "x       [0.0, 1.0, 2.0, 3.0, 4.0]"),
    "cuda": ("my_cuda", "x       [0.0, 1.0, 2.0, 3.0, 4.0]"),
    "program": ("my_program", "rank 0: [0.5, 1.0]"),
    "model": ("my_model", "layers  kv heads  head size  bytes a token"),
}
SHARED = ("cuda.py", "ranks.py")


def read_contents(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


@dataclass
class Made:
    """A project with a new snippet of each kind, run once."""

    trial: Trial
    said: dict[str, str]
    run: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def new_snippets(tmp_path_factory: pytest.TempPathFactory) -> Made:
    trial = new_trial(tmp_path_factory.mktemp("scaffold") / "trial")
    for name in SHARED:
        shutil.copy(ROOT / "snippets" / name, trial.root / "snippets" / name)
    said = {}
    for kind, (name, _) in KINDS.items():
        done = trial.run_shelf("new", name, "--kind", kind)
        assert (done.returncode, done.stderr) == (0, "")
        said[kind] = done.stdout
    return Made(trial, said, trial.run_shelf("run", "--json"))


@pytest.mark.exhaustive("every kind of a new snippet, verified whole")
def test_every_kind_is_sound_as_written(new_snippets: Made) -> None:
    found = {one.id: one for one in snippet.discover_snippets(Project(new_snippets.trial.root))}
    assert {one.id: one.findings for one in found.values()} == {
        name: () for name, _ in KINDS.values()
    }
    kinds = {kind: found[name].kind for kind, (name, _) in KINDS.items()}
    assert kinds == {"triton": "kernel", "cuda": "kernel", "program": "program", "model": "model"}
    assert all(one.readings == (mutants.PLACEHOLDER,) for one in found.values())


@pytest.mark.exhaustive("every kind of a new snippet, verified whole")
def test_every_kind_passes(new_snippets: Made) -> None:
    verdicts = {one["snippet"]: one for one in json.loads(new_snippets.run.stdout)}
    assert {name: one["findings"] for name, one in verdicts.items() if one["findings"]} == {}
    assert {one["state"] for one in verdicts.values()} == {"passed"}
    assert verdicts.keys() == {name for name, _ in KINDS.values()}
    assert new_snippets.run.returncode == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_record_holds_what_was_checked(new_snippets: Made, kind: str) -> None:
    name, first = KINDS[kind]
    [path] = (new_snippets.trial.root / "snippets" / name / "results").glob("*.json")
    record = store.load_record(Project(new_snippets.trial.root), path)
    assert record["demo"].splitlines()[0] == first
    if kind in ("triton", "cuda"):
        verdicts = [row["verdict"] for case in record["cases"] for row in case["results"]]
        assert len(verdicts) >= 6 and set(verdicts) == {"passed"}
        assert record["compiled"]
    else:
        assert all(fact["verdict"] == "passed" for fact in record["facts"])


@pytest.mark.parametrize("kind", ["triton", "cuda"])
def test_its_cases_kill_the_mutants_that_they_claim(new_snippets: Made, kind: str) -> None:
    project = Project(new_snippets.trial.root)
    one = snippet.read_snippet(project, project.snippets / KINDS[kind][0])
    assert mutants.check_mutants(one) == []
    found = judging.run_mutants(one)
    assert found.findings() == []
    assert len(found.mutants) >= mutants.FEWEST


@pytest.mark.parametrize("kind", exhaustive(KINDS, "every kind of a new snippet, run", light=0))
def test_it_runs_by_itself_from_anywhere(new_snippets: Made, kind: str, tmp_path: Path) -> None:
    name, first = KINDS[kind]
    path = new_snippets.trial.root / "snippets" / name / f"{name}.py"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(new_snippets.trial.root)  # what the editable install does
    done = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == first
    assert len(done.stdout.splitlines()) >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_it_wrote_and_what_comes_next(new_snippets: Made, kind: str) -> None:
    name, _ = KINDS[kind]
    lines = new_snippets.said[kind].splitlines()
    wrote = [line.removeprefix("wrote ") for line in lines if line.startswith("wrote ")]
    files = [f"{name}.py", *([f"{name}.cu"] if kind == "cuda" else []), "cases.py"]
    listed = [f"tests/snippets/mutants/{name}.yml"] if kind in ("triton", "cuda") else []
    assert wrote == [*(f"snippets/{name}/{file}" for file in files), *listed]
    steps = "\n".join(lines[len(wrote) :])
    for step in (
        f"1. python snippets/{name}/{name}.py ",
        f"2. shelf run {name} ",
        f"replace `{mutants.PLACEHOLDER}`",
        f'embed it on a page: --8<-- "{name}/whole.md"',
        "6. shelf check ",
    ):
        assert step in steps


@pytest.mark.parametrize("topic", ["kernels/softmax", "kernels/softmax/online"])
def test_its_mutants_join_those_of_its_family(trial: Trial, topic: str) -> None:
    trial.add_page(f"{topic}.md", "# Rows\n")
    project = Project(trial.root)
    kept = "# Rows.\nother:\n- {name: x, find: '@source@', replace: z}\n"
    path = project.root / mutants.FOLDER / "softmax.yml"
    path.parent.mkdir(parents=True)
    path.write_text(f"{kept}\n")
    assert path in mutants.create_snippet(project, "given", "triton", topic=topic)
    assert path.read_text().startswith(f"{kept}\ngiven:\n- name: ")
    assert mutants.check_mutants(snippet.read_snippet(project, project.snippets / "given")) == []
    alone, *_ = reversed(mutants.create_snippet(project, "lonely", "cuda"))
    assert alone == path.with_name("lonely.yml")


def test_a_topic_embeds_it_and_the_site_shows_it(trial: Trial) -> None:
    trial.add_page("models/caches.md", "# Caches\n\nProse.\n")
    trial.add_page(
        "models/caches.yml",
        "- id: a-paper\n  title: Caches\n  url: https://example.org/c\n  kind: paper\n  why: W.\n",
    )
    words = ["--kind", "model", "--topic", "models/caches", "--source", "a-paper"]
    done = trial.run_shelf("new", "cache_size", *words)
    assert done.returncode == 0
    assert "wrote docs/models/caches.md" in done.stdout
    assert "embed it" not in done.stdout and mutants.PLACEHOLDER not in done.stdout
    page = (trial.root / "docs/models/caches.md").read_text()
    assert page == '# Caches\n\nProse.\n\n## Cache size\n\n--8<-- "cache_size/whole.md"\n'
    assert trial.run_shelf("site", "--render-only").returncode == 0
    whole = (trial.root / "build/fragments/cache_size/whole.md").read_text()
    assert 'id="snippet-cache_size"' in whole and "def cache_bytes" in whole
    assert "/models/caches.md#reading-a-paper" in whole


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["taken"], "snippets/taken: already exists; choose another id"),
        (["shared"], "snippets/shared: already exists; choose another id"),
        (["My-Kernel"], "snippets/My-Kernel: 'My-Kernel' is not a snippet id; use small letters"),
        (["../out"], "snippets/../out: '../out' is not a snippet id; "),
        (["torch"], "snippets/torch: 'torch' is a reserved name; choose another id"),
        (["2fast"], "'2fast' is not a snippet id; "),
        ([""], "'' is not a snippet id; "),
        (
            ["fine", "--kind", "hip"],
            "no kind of snippet is called 'hip'; use --kind triton or cuda",
        ),
        (["fine", "--topic", "kernels/none"], "docs/kernels/none.md: is not a page; name a topic"),
        (["fine", "--topic", "../README"], "is not a page; name a topic"),
        (["fine", "--source", 'a"""\nimport os'], "is not the id of a reading; "),
        (["fine", "--source", "A Paper"], "'A Paper' is not the id of a reading; "),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(
    trial: Trial, words: list[str], says: str
) -> None:
    trial.add_snippet("taken", "")
    (trial.root / "snippets" / "shared.py").write_text("")
    (trial.root / "README.md").write_text("# Trial\n")
    before = read_contents(trial.root)
    done = trial.run_shelf("new", *words)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert says in line
    assert read_contents(trial.root) == before
    assert not (trial.root / "snippets" / "fine").exists()

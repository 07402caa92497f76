"""What has not changed is not rendered again, what has changed is; two processes build the same."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LIST, MKDOCS, ROOT, TOPIC, Trial, sound_snippet
from measures import BUILD, lay_out_project
from records_project import Repository, make_timed_case

from warpshelf.core.project import Project
from warpshelf.site import build, freshness, inspection, rendering

NOTE = ".shelf/rendered.json"


@pytest.fixture
def rendered_trial(trial: Trial) -> Trial:
    """A project with a snippet, a reading and a page of both, rendered once."""
    trial.add_snippet("sound", sound_snippet().replace("Source  none", "Source  a-paper"))
    trial.add_page(f"{TOPIC}.yml", LIST)
    trial.add_page(
        f"{TOPIC}.md", f'# P\n\n--8<-- "readings/{TOPIC}.md"\n\n--8<-- "sound/whole.md"\n'
    )
    build.update_fragments(Project(trial.root))
    return trial


@pytest.fixture
def rendered_projects(monkeypatch: pytest.MonkeyPatch) -> list[Project]:
    """The projects rendered from now on."""
    seen: list[Project] = []
    real = rendering.render_project

    def note_rendering(project: Project) -> object:
        seen.append(project)
        return real(project)

    monkeypatch.setattr(rendering, "render_project", note_rendering)
    return seen


def edit_file(path: str, old: str, new: str) -> Callable[[Trial], None]:
    def replace_text(trial: Trial) -> None:
        text = (trial.root / path).read_text(encoding="utf-8")
        assert old in text
        times = (trial.root / path).stat()
        (trial.root / path).write_text(text.replace(old, new), encoding="utf-8")
        # A file that was saved within one tick of the clock has its old date.
        os.utime(trial.root / path, ns=(times.st_atime_ns, times.st_mtime_ns))

    return replace_text


def put_file(path: str, text: str) -> Callable[[Trial], None]:
    def write_text(trial: Trial) -> None:
        (trial.root / path).parent.mkdir(parents=True, exist_ok=True)
        (trial.root / path).write_text(text, encoding="utf-8")

    return write_text


def remove_file(path: str) -> Callable[[Trial], None]:
    return lambda trial: (trial.root / path).unlink()


FRAGMENT = f"build/fragments/readings/{TOPIC}.md"
CHANGES = {
    "a reading": edit_file(f"docs/{TOPIC}.yml", "on products", "on productx"),
    "a page": edit_file(f"docs/{TOPIC}.md", "# P", "# Q"),
    "a snippet": edit_file("snippets/sound/sound.py", "eye(2)", "eye(3)"),
    "a record": put_file("snippets/sound/results/cpu.json", "{}"),
    "a packed file": put_file("snippets/sound/results/cpu.xz", "views"),
    "a shared module": put_file("snippets/helper.py", "x = 1\n"),
    "the settings": edit_file("mkdocs.yml", "Trial", "Trail"),
    "the ledger": put_file(".shelf/ledger.json", "{}"),
    "the links": put_file("docs/links.json", "{}"),
    "a fragment": edit_file(FRAGMENT, "products", "PRODUCTS"),
    "a lost fragment": remove_file(FRAGMENT),
    "a stray fragment": put_file("build/fragments/stray.md", "x"),
    "a stray view": put_file("docs/views/stray.json", "x"),
    "a stray file for browsers": put_file("docs/runtime/stray.json", "x"),
    "no note": remove_file(NOTE),
    "a damaged note": put_file(NOTE, '{"inputs": "'),
    "a deep note": put_file(NOTE, "[" * 100_000),
    "a note of another shape": put_file(NOTE, '{"inputs": 1, "outputs": [], "findings": null}'),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_changes_is_rendered(
    rendered_trial: Trial, rendered_projects: list[Project], change: Callable[[Trial], None]
) -> None:
    assert build.update_fragments(Project(rendered_trial.root)).changed == 0
    assert rendered_projects == []
    change(rendered_trial)
    first = build.update_fragments(Project(rendered_trial.root))
    assert len(rendered_projects) == 1
    again = build.update_fragments(Project(rendered_trial.root))
    assert len(rendered_projects) == 1 and again.findings == first.findings


def test_other_versions_of_a_record_are_rendered(
    trial: Trial, rendered_projects: list[Project]
) -> None:
    """The files are as they were; what version control has of them is not."""
    repository = Repository(trial)
    trial.add_page("index.md", '# Trial\n\n--8<-- "sound/whole.md"\n')
    first = repository.make_record(make_timed_case(1), date="2031-01-01T00:00:00Z")
    last = repository.make_record(make_timed_case(2), date="2032-01-01T00:00:00Z")
    repository.write_record(last)
    build.update_fragments(repository.project)
    assert build.update_fragments(repository.project).changed == 0 and len(rendered_projects) == 1
    for found in (first, last):
        repository.write_record(found)
        repository.commit_all()
    proof = repository.project.published_evidence / "sound.html"
    assert "Over time" not in proof.read_text()
    build.update_fragments(repository.project)
    assert len(rendered_projects) == 2 and "Over time" in proof.read_text()
    (trial.root / "other").write_text("a commit of something else")
    repository.commit_all()
    assert build.update_fragments(repository.project).changed == 0 and len(rendered_projects) == 2


def test_a_note_of_other_findings_is_no_proof(
    rendered_trial: Trial, rendered_projects: list[Project]
) -> None:
    """A note made by hand for other sources is as good as none."""
    note = json.loads((rendered_trial.root / NOTE).read_text())
    (rendered_trial.root / NOTE).write_text(json.dumps({**note, "inputs": "0" * 64}))
    assert (
        build.update_fragments(Project(rendered_trial.root)).findings == []
        and len(rendered_projects) == 1
    )


def test_findings_are_said_again(rendered_trial: Trial, rendered_projects: list[Project]) -> None:
    edit_file(f"docs/{TOPIC}.yml", "kind: paper", "kind: papier")(rendered_trial)
    first, second = (rendered_trial.run_shelf("site", "--render-only") for _ in range(2))
    assert len(rendered_projects) == 1 and "kind is 'papier'" in first.stderr
    assert (second.returncode, second.stderr) == (first.returncode, first.stderr)


def test_a_check_is_repeated_only_where_something_changed(
    rendered_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = []
    real = inspection.inspect_project
    monkeypatch.setattr(
        inspection, "inspect_project", lambda project: count.append(0) or real(project)
    )
    project = Project(rendered_trial.root)
    first = freshness.cached_check(project)
    assert freshness.cached_check(project) == first and len(count) == 1
    changes = (
        edit_file(f"docs/{TOPIC}.yml", "kind: paper", "kind: papier"),
        edit_file("snippets/sound/sound.py", '"""', '"""More. '),
        put_file("snippets/sound/results/odd.txt", "x"),
        put_file("docs/assets/new.svg", "<svg/>"),
        remove_file("docs/assets/new.svg"),
        put_file("tests/snippets/mutants/sound.yml", "- name: none"),
        put_file(".vscode/settings.json", "{}"),
        put_file(".shelf/checked.json", '{"inputs": 3}'),
    )
    for number, change in enumerate(changes, 2):
        change(rendered_trial)
        found = freshness.cached_check(project)
        assert len(count) == number
        assert freshness.cached_check(project) == found and len(count) == number
        assert found[0] == inspection.inspect_project(project)[0]
        count.pop()
    assert any("kind is 'papier'" in finding.what for finding in found[0])


@pytest.mark.parametrize("command", [rendering.render_project, inspection.inspect_project])
def test_each_page_is_read_once(
    rendered_trial: Trial, monkeypatch: pytest.MonkeyPatch, command: Callable[[Project], object]
) -> None:
    opened: Counter[str] = Counter()
    real = Path.read_text

    def read_text(path: Path, *more: object, **options: object) -> str:
        opened[str(path)] += path.suffix == ".md"
        return real(path, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "read_text", read_text)
    command(Project(rendered_trial.root))
    pages = {str(path): 1 for path in (rendered_trial.root / "docs").rglob("*.md")}
    assert {path: times for path, times in opened.items() if times} == pages


# How long it takes.

HEAVY = (
    "yaml",
    "rich",
    "pydantic",
    "rapidfuzz",
    "httpx",
    "warpshelf.readings",
    "warpshelf.render",
    "torch",
)
LOADED = """
import sys
from warpshelf.cli import commands
commands.main(sys.argv[1:])
print(*sys.modules, sep="\\n")
"""


def test_the_command_line_by_itself_brings_in_two_rooms() -> None:
    code = "import sys; from warpshelf.cli import commands; print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", code]
    loaded = subprocess.run(words, env=env, capture_output=True, text=True, check=True).stdout
    rooms = {one.split(".")[1] for one in loaded.split() if one.startswith("warpshelf.")}
    assert rooms == {"cli", "core"}


@pytest.mark.parametrize(
    ("words", "also"), [(("site", "--render-only"), ()), (("run",), ("warpshelf.worker.verify",))]
)
def test_nothing_to_do_brings_in_nothing(
    rendered_trial: Trial, words: tuple[str, ...], also: tuple[str, ...]
) -> None:
    if words == ("run",):
        assert rendered_trial.run_shelf("run").returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        cwd=rendered_trial.root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines())
    assert "warpshelf.cli.commands" in loaded
    assert loaded & {*HEAVY, *also} == set()


def measure_cpu_seconds(words: list[str], root: Path) -> float:
    """CPU seconds of a process and its children: what others do on the machine counts little.

    Modules are compiled once, as with a user, also where the environment asks for no bytecode.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, cwd=root, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.exhaustive("the whole site twice")
def test_our_share_of_a_warm_site_is_small(tmp_path: Path) -> None:
    """Forty snippets that have not changed cost less than MkDocs needs for their one page."""
    lay_out_project(tmp_path)
    includes = "\n\n".join(f'--8<-- "add_{index:02d}/whole.md"' for index in range(40))
    (tmp_path / "docs" / "index.md").write_text(f"# Forty\n\n{includes}\n")
    (tmp_path / "mkdocs.yml").write_text(MKDOCS)
    shelf = [sys.executable, str(BUILD)]
    measure_cpu_seconds([*shelf, "run"], tmp_path)  # cold
    measure_cpu_seconds([*shelf, "site"], tmp_path)
    shares = []
    for _ in range(3):
        ours = measure_cpu_seconds([*shelf, "run"], tmp_path) + measure_cpu_seconds(
            [*shelf, "site", "--render-only"], tmp_path
        )
        bare = measure_cpu_seconds(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "-q"], tmp_path
        )
        shares.append(ours / bare)
    assert min(shares) < 0.8, shares


IN_CORES = (
    "import os; os.cpu_count = lambda: {cores}; from warpshelf.site.parallel import main; main()"
)


def build_with(cores: int, trial: Trial, target: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", IN_CORES.format(cores=cores), "build", "--strict"]
    around = {**os.environ, "PYTHONPATH": str(ROOT / "scripts"), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [*words, "--site-dir", str(target)],
        cwd=trial.root,
        env=around,
        capture_output=True,
        text=True,
    )


@pytest.fixture
def many_pages(trial: Trial) -> Trial:
    (trial.root / "docs" / "letters").mkdir()
    for letter in "abcdefghijkl":
        text = f"# {letter}\n\n## Part\n\nSee [the next](a.md#part) and $x_{letter}$.\n"
        (trial.root / "docs" / "letters" / f"{letter}.md").write_text(text)
    assert trial.run_shelf("site", "--render-only").returncode == 0
    return trial


def read_site(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "sitemap" not in path.name)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_two_processes_make_the_same_site(many_pages: Trial, tmp_path: Path) -> None:
    for cores in (1, 2):
        done = build_with(cores, many_pages, tmp_path / str(cores))
        assert done.returncode == 0, done.stderr
    one, two = (read_site(tmp_path / str(cores)) for cores in (1, 2))
    assert one == two and "letters/l/index.html" in one


def test_a_warning_is_said_once(many_pages: Trial, tmp_path: Path) -> None:
    for letter in "al":
        path = many_pages.root / "docs" / "letters" / f"{letter}.md"
        path.write_text(f"# {letter}\n\n[Nowhere](missing-{letter}.md)\n")
    done = build_with(2, many_pages, tmp_path / "site")
    assert done.returncode == 1
    assert [done.stderr.count(f"a link 'missing-{letter}.md'") for letter in "al"] == [1, 1]

"""What `shelf check` finds without running anything.
Takes 12 s, as trials are built, and each is checked.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from conftest import LIST, ROOT, TOPIC, Trial, sound_snippet
from made_up_records import make_grids, make_honest, make_record, make_timelines

from warpshelf.contract import snippet
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project
from warpshelf.readings import crosscheck
from warpshelf.site import build, inspection, project_content

PAGE = f"""\
# Products

See [home](../index.md), [the same](/index.md#trial), [elsewhere](https://example.org/x.md).

--8<-- "readings/{TOPIC}.md"

--8<-- "sound/whole.md"

```md
[no link](nowhere.md)
;--8<-- "nowhere/whole.md"
```

```python
--8<-- "sound/sound.py:kernel"
```
"""


def write_result(trial: Trial, found: dict, name: str = "cpu.json") -> Path:
    path = trial.root / "snippets" / "sound" / "results" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(dump_json(found))
    return path


def cpu_record(trial: Trial) -> dict:
    project = Project(trial.root)
    digest = snippet.read_snippet(project, project.snippets / "sound").digest
    found = make_honest(make_record(0, snippet="sound", digest=digest))
    del found["targets"]  # nothing was executed for any, so it has no views
    return found


def edit_file(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def sound_trial(trial: Trial) -> Trial:
    """A project with nothing wrong: a snippet, its record, its reading and their page."""
    text = sound_snippet().replace("Source  none", "Source  a-paper")
    text = text.replace("def kernel(", "# --8<-- [start:kernel]\ndef kernel(")
    text = text.replace("def demo(", "# --8<-- [end:kernel]\ndef demo(")
    trial.add_sound_snippet()
    trial.add_snippet("sound", text)
    trial.add_page(f"{TOPIC}.yml", LIST)
    trial.add_page(f"{TOPIC}.md", PAGE)
    write_result(trial, cpu_record(trial))
    return trial


def test_a_sound_project_is_all_well(sound_trial: Trial) -> None:
    done = sound_trial.run_shelf("check")
    assert (done.returncode, done.stdout, done.stderr) == (0, "all well\n", "")
    answer = sound_trial.run_shelf("check", "--json")
    assert (answer.returncode, json.loads(answer.stdout), answer.stderr) == (0, [], "")


def test_the_sound_project_builds(sound_trial: Trial) -> None:
    done = sound_trial.run_process("site")
    assert done.returncode == 0, done.stderr
    html = (sound_trial.root / "site" / "kernels" / "products" / "index.html").read_text()
    assert "A paper on products" in html and "matmul" in html


def test_the_build_writes_the_list_of_a_folder_and_leaves_a_page_of_somebody(
    sound_trial: Trial,
) -> None:
    add_folder(sound_trial, "see_also: [a-paper]\ntags: [sums]\n")
    page = sound_trial.root / "docs/kernels/sums/readings.md"
    assert sound_trial.run_shelf("site", "--render-only").returncode == 0
    assert yaml.safe_load(page.read_text().split("---")[1])["title"] == "On: sums: readings"
    assert page.read_text().count('--8<-- "reading') == 2
    assert sound_trial.run_shelf("check").returncode == 0
    edit_file(sound_trial.root / "docs/kernels/sums/index.md", "[a-paper]", "[]")
    assert sound_trial.run_shelf("site", "--render-only").returncode == 0
    assert page.read_text().count('--8<-- "reading') == 1
    page.write_text("# Mine\n")
    assert sound_trial.run_shelf("site", "--render-only").returncode == 1
    assert page.read_text() == "# Mine\n"
    page.unlink()
    (sound_trial.root / "docs/kernels/sums.yml").unlink()
    assert sound_trial.run_shelf("site", "--render-only").returncode == 0 and not page.exists()


@pytest.mark.parametrize(("kind", "name"), [("timelines", "pair"), ("grids", "padded")])
def test_a_picture_stands_until_its_record_is_stale(
    sound_trial: Trial, kind: str, name: str
) -> None:
    write_result(
        sound_trial,
        cpu_record(sound_trial) | {"timelines": make_timelines(), "grids": make_grids()},
    )
    sound_trial.add_page("index.md", f'# Trial\n\n--8<-- "sound/{kind}/{name}.md"\n')
    assert sound_trial.run_shelf("check").returncode == 0
    assert build.update_fragments(Project(sound_trial.root)).findings == []
    fragment = sound_trial.root / f"build/fragments/sound/{kind}/{name}.md"
    assert "<svg" in fragment.read_text()
    stale_record(sound_trial)
    [line] = sound_trial.run_shelf("check").stderr.splitlines()
    assert "is stale" in line
    build.update_fragments(Project(sound_trial.root))
    assert "is withheld" in fragment.read_text() and "<svg" not in fragment.read_text()


def stale_record(trial: Trial) -> None:
    edit_file(trial.root / "snippets/sound/sound.py", "torch.eye(2)", "torch.eye(3)")


def no_record(trial: Trial) -> None:
    shutil.rmtree(trial.root / "snippets/sound/results")


def damaged_record(trial: Trial) -> None:
    path = write_result(trial, make_record(snippet="sound"), "imaginary-g9-80gb.json")
    path.write_text(path.read_text()[:-40])


def misshapen_record(trial: Trial) -> None:
    write_result(trial, cpu_record(trial) | {"demo": 3})


def misplaced_record(trial: Trial) -> None:
    write_result(trial, make_record(snippet="sound"), "nvidia-h100.json")


def stray_file(trial: Trial) -> None:
    (trial.root / "snippets/sound/results/notes.txt").write_text("fast!")


def no_views(trial: Trial) -> None:
    write_result(trial, cpu_record(trial) | {"targets": ["sm_90"]})


def stray_view(trial: Trial) -> None:
    (trial.root / RESULTS / "cpu.xz").write_bytes(b"these are no views")


def on_no_page(trial: Trial) -> None:
    edit_file(trial.root / f"docs/{TOPIC}.md", '--8<-- "sound/whole.md"\n', "")


def unknown_source(trial: Trial) -> None:
    edit_file(trial.root / "snippets/sound/sound.py", "Source  a-paper", "Source  a-paper, a-pape")
    write_result(trial, cpu_record(trial))


def list_without_page(trial: Trial) -> None:
    trial.add_page("kernels/sums.yml", LIST.replace("products", "sums").replace("a-p", "b-p"))


def add_folder(trial: Trial, front: str = "") -> None:
    """A topic that is a folder, with a list of its own."""
    trial.add_page("kernels/sums.yml", LIST.replace("products", "sums").replace("a-p", "b-p"))
    trial.add_page("kernels/sums/index.md", f'---\ntitle: "On: sums"\n{front}---\n\n# Sums\n')


def page_of_the_build(trial: Trial) -> None:
    add_folder(trial)
    trial.add_page("kernels/sums/readings.md", "# Mine\n")


def no_such_reading_elsewhere(trial: Trial) -> None:
    add_folder(trial, "see_also: [a-paper, no-paper]\n")


def broken_link(trial: Trial) -> None:
    edit_file(trial.root / f"docs/{TOPIC}.md", "../index.md", "index.md")


def broken_absolute_link(trial: Trial) -> None:
    edit_file(trial.root / f"docs/{TOPIC}.md", "/index.md#", "/kernels/index.md#")


def no_such_snippet(trial: Trial) -> None:
    trial.add_page("index.md", '# Trial\n\n\n--8<-- "sounds/whole.md"\n')


def no_such_file(trial: Trial) -> None:
    trial.add_page("index.md", '# Trial\n\n--8<-- "sound/sound.cu"\n')


def no_such_section(trial: Trial) -> None:
    edit_file(trial.root / f"docs/{TOPIC}.md", "sound.py:kernel", "sound.py:kernels")


def test_a_file_of_code_is_read_for_a_section_alone(
    sound_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = project_content.load_project(Project(sound_trial.root))
    embeds = inspection._Embeds(held)
    assert embeds.find_problem("sound/sound.py:kernel") is None
    monkeypatch.delattr(Path, "read_text")
    assert embeds.find_problem("sound/sound.py") is None
    assert embeds.find_problem("sound/sound.py:2:9") is None


def code_as_prose(trial: Trial) -> None:
    edit_file(trial.root / f"docs/{TOPIC}.md", '```python\n--8<-- "sound/sound.py:kernel"\n```', "")
    trial.add_page("index.md", '# Trial\n\n    --8<-- "sound/sound.py:kernel"\n')


def recipe_as_prose(trial: Trial) -> None:
    recipes = trial.root / "scripts" / "recipes"
    recipes.mkdir(parents=True)
    (recipes / "slurm.sh").write_text("true\n")
    trial.add_page("index.md", '# Trial\n\n```bash\n--8<-- "slurm.sh"\n```\n\n--8<-- "slurm.sh"\n')


def no_such_list(trial: Trial) -> None:
    trial.add_page("index.md", '# Trial\n\n=== "A"\n\n    --8<-- "readings/kernels/sums.md"\n')


def no_such_reading(trial: Trial) -> None:
    trial.add_page("index.md", '# Trial\n\n--8<-- "reading/a-papr.md"\n')


def no_such_timeline(trial: Trial) -> None:
    write_result(trial, cpu_record(trial) | {"timelines": make_timelines()})
    trial.add_page("index.md", '# Trial\n\n--8<-- "sound/timelines/triple.md"\n')


def timeline_of_no_snippet(trial: Trial) -> None:
    trial.add_page("index.md", '# Trial\n\n--8<-- "sounds/timelines/pair.md"\n')


def old_schema(trial: Trial) -> None:
    trial.add_page(
        "assets/readings.schema.json", crosscheck.schema_text().replace("draft-07", "draft-04")
    )


def lost_schema(trial: Trial) -> None:
    settings = trial.root / ".vscode" / "settings.json"
    settings.parent.mkdir()
    settings.write_text((ROOT / ".vscode" / "settings.json").read_text())


def broken_source(trial: Trial) -> None:
    edit_file(trial.root / "snippets/sound/sound.py", "def demo(device):", "def shown(device):")


def bad_folder(trial: Trial) -> None:
    (trial.root / "snippets" / "Sound").mkdir()


PAGE_LINES = {line: n for n, line in enumerate(PAGE.splitlines(), 1)}
EMBEDDED = PAGE_LINES['--8<-- "sound/sound.py:kernel"']
RESULTS = "snippets/sound/results"
FAULTS: list[tuple[Callable[[Trial], None], str]] = [
    (stale_record,
     f"{RESULTS}/cpu.json: is stale: the source has changed since; run `shelf run sound`"),
    (no_record, "snippets/sound/sound.py: has no record of a check on a CPU; run `shelf run"),
    (damaged_record, f"{RESULTS}/imaginary-g9-80gb.json:"),
    (misplaced_record,
     f"{RESULTS}/nvidia-h100.json: is the record of sound on imaginary-g9-80gb; place"),
    (stray_file, f"{RESULTS}/notes.txt: is not a record; remove it"),
    (stray_view, f"{RESULTS}/cpu.xz: is not an xz file"),
    (no_views, f"{RESULTS}/cpu.xz: has no view of one pass on sm_90, and 1 more; run `"),
    (on_no_page, "snippets/sound/sound.py: is not on any page; embed it on a page with `--8<--"),
    (unknown_source, "snippets/sound/sound.py:1: its Source 'a-pape' is not a reading; write a"),
    (list_without_page, "docs/kernels/sums.yml: has no page beside it; write docs/kernels/sums.md"),
    (page_of_the_build, "docs/kernels/sums/readings.md: is a page that the build writes; say it"),
    (no_such_reading_elsewhere, "docs/kernels/sums/index.md: embeds the reading 'no-paper', which"),
    (broken_link, f"docs/{TOPIC}.md:3: links to index.md, which is not a page; fix it"),
    (broken_absolute_link, f"docs/{TOPIC}.md:3: links to /kernels/index.md, which is not a page"),
    (no_such_snippet, "docs/index.md:4: embeds the snippet 'sounds', which does not exist; "),
    (no_such_file, "docs/index.md:3: embeds 'sound/sound.cu', which is neither a fragment nor"),
    (code_as_prose, "docs/index.md:3: embeds sound/sound.py:kernel outside a code fence; put it "
                    "between ```python and ```"),
    (recipe_as_prose, "docs/index.md:7: embeds slurm.sh outside a code fence; put it between"),
    (no_such_section, f"docs/{TOPIC}.md:{EMBEDDED}: embeds the section 'kernels', which sound/"),
    (no_such_reading, "docs/index.md:3: embeds the reading 'a-papr', which does not exist; "
                      'write "reading/a-paper.md"'),
    (no_such_timeline, "docs/index.md:3: embeds 'sound/timelines/triple.md', but sound draws no "
                       "picture of that name; write one of timelines/one-by-one, timelines/pair"),
    (timeline_of_no_snippet, "docs/index.md:3: embeds a picture of the snippet 'sounds', which "
                             'does not exist; write "sound/timelines/pair.md"'),
    (old_schema, "docs/assets/readings.schema.json: is not the present schema of the readings; "
                 "run `shelf schema --write` and commit"),
    (lost_schema, "docs/assets/readings.schema.json: is missing, but .vscode/settings.json names"),
    (no_such_list, "docs/index.md:5: embeds the readings of 'kernels/sums', which is not a topic"),
    (broken_source, "snippets/sound/sound.py: demo is missing; add `def demo(device):`"),
    (bad_folder, "snippets/Sound/Sound.py: 'Sound' is not a snippet id; name the folder"),
]  # fmt: skip


@pytest.mark.parametrize(("harm", "says"), FAULTS, ids=[harm.__name__ for harm, _ in FAULTS])
def test_each_fault_is_one_line_with_its_place(
    sound_trial: Trial, harm: Callable[[Trial], None], says: str
) -> None:
    harm(sound_trial)
    done = sound_trial.run_shelf("check")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(says), line
    [found] = json.loads(sound_trial.run_shelf("check", "--json").stdout)
    assert line.startswith(found["path"]) and found["what"] in line and found["mend"] in line


def test_a_damaged_record_counts_as_none(sound_trial: Trial) -> None:
    misshapen_record(sound_trial)
    lines = sound_trial.run_shelf("check").stderr.splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        f"{RESULTS}/cpu.json",
        "snippets/sound/sound.py",
    ]
    assert "record.demo is 3" in lines[0] and "has no record" in lines[1]


def test_what_cannot_run_on_a_cpu_needs_no_record_of_one(sound_trial: Trial) -> None:
    no_record(sound_trial)
    edit_file(
        sound_trial.root / "snippets/sound/cases.py",
        '{"seconds": 20}',
        '{"cpu": "has no host execution"}',
    )
    assert sound_trial.run_shelf("check").returncode == 0


def test_a_stale_gpu_record_is_no_fault(sound_trial: Trial) -> None:
    write_result(sound_trial, make_record(snippet="sound"), "imaginary-g9-80gb.json")
    assert sound_trial.run_shelf("check").returncode == 0


def test_faults_come_together_and_in_order(sound_trial: Trial) -> None:
    for harm in (stale_record, stray_file, broken_link, no_such_section, list_without_page):
        harm(sound_trial)
    lines = sound_trial.run_shelf("check").stderr.splitlines()
    assert len(lines) == 5
    assert [line.partition(":")[0] for line in lines] == sorted(
        line.partition(":")[0] for line in lines
    )


@pytest.mark.exhaustive(
    "all of this repository, as `shelf check`; of a pull request it is a step of its own"
)
def test_the_repository_itself_is_well() -> None:
    started = time.process_time()
    found = [
        str(finding)
        for finding in inspection.inspect_project(Project(ROOT))[0]
        if not finding.what.startswith(("is stale", "has no record"))
    ]
    assert found == []
    assert time.process_time() - started < 20


def test_states_of_links_that_nobody_can_read_are_a_fault(sound_trial: Trial) -> None:
    (sound_trial.root / "docs" / "links.json").write_text('{"links": {}')
    said = sound_trial.run_shelf("check")
    assert said.returncode == 1
    assert "docs/links.json: is not complete JSON" in said.stderr

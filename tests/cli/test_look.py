"""Views in a terminal: `shelf look`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Trial, sound_snippet
from made_up_views import FIRST, SOURCE, make_view

from warpshelf.bench import compiling
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.look import view_store
from warpshelf.look.view import View


def keep_views(trial: Trial, *views: View) -> None:
    """Keep views as those of the snippet `transpose` of a trial project."""
    one = snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "transpose")
    view_store.write_views(one, views)


@pytest.fixture
def viewed_trial(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """A project whose views are kept, where none can be made."""
    folder = trial.add_snippet("transpose", sound_snippet()).parent
    text = "\n" * (FIRST - 1) + "\n".join(SOURCE) + "\n"
    (folder / "transpose.cu").write_text(text, encoding="utf-8")
    keep_views(
        trial,
        *(make_view(name, arch) for name in ("naive", "tiled") for arch in ("sm_80", "sm_90")),
    )
    monkeypatch.setattr(compiling, "_make_views", None)
    monkeypatch.setenv("COLUMNS", "100")
    return trial


def test_without_a_variant_all_stand_in_a_table(viewed_trial: Trial) -> None:
    done = viewed_trial.run_shelf("look", "transpose")
    assert (done.returncode, done.stderr) == (0, "")
    title, head, *rows = done.stdout.split("\n\n")[0].strip().splitlines()
    assert title == "transpose on sm_90, 64 × 64 float32"
    assert head.split()[:4] == ["variant", "bound", "by", "instr."]  # a tie has no rank
    naive, tiled = (row.split() for row in rows)
    # 32 warps execute 5 of its instructions once and 5 four times; a store asks for 8 times as
    # many sectors as it must, and half of what must be asked for is the load's.
    assert naive == ["naive", "4,096", "ld/st", "800", "32", "4.50×", "-", "24/12", "-",
                     "64/64", "threads"]  # fmt: skip
    assert tiled[:3] == ["tiled", "4,224", "ld/st"] and "16.5×" in tiled
    assert "A bound is not a time" in done.stdout


def test_a_variant_is_shown_line_by_line(viewed_trial: Trial) -> None:
    done = viewed_trial.run_shelf("look", "transpose", "--variant", "naive")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert text.startswith("\nnaive: transpose_naive on sm_90\n64 × 64 float32; 2 × 2 blocks of 32")
    assert "Occupancy: 64 of 64 warps (8 blocks), limited by threads" in text
    assert "with 40 registers: 48 of 64 warps (6 blocks), limited by registers" in text
    assert "Lower bound, not a time: 4,096 SM cycles, by load and store" in text
    rows = text.partition("Lines by their share")[2].splitlines()[2:]
    loop, access = (row.split(maxsplit=7) for row in rows[:2])
    assert loop[:2] == ["48.0", "%"] and loop[6] == "transpose.cu:13"
    assert access[:5] == ["32.0", "%", "32", "4.50×", "-"]
    assert access[6:] == ["transpose.cu:14", "out[x * n + y + row] = in[(y + row) * n + x];"]
    assert "transpose.cu:14: global store of 4 bytes a lane: 32 sectors where 4 would do" in text
    assert "at a stride of 256 bytes, 32 of the 256 words of 32 sectors used (block 1, 0, 0" in text
    assert "Loop of 6 machine instructions, transpose.cu:13-14" in text
    assert "1 loads and 128 bytes of a warp in flight" in text
    assert "LDG.E.CONSTANT" not in text


def test_machine_code_is_shown_where_it_is_asked_for(viewed_trial: Trial) -> None:
    text = viewed_trial.run_shelf("look", "transpose", "--variant", "naive", "--sass").stdout
    (load,) = (line.split() for line in text.splitlines() if "LDG.E.CONSTANT" in line)
    assert load[1].startswith("B------:R") and load[-1] == "transpose.cu:14"


def test_nothing_is_wider_than_it_may_be_and_piped_it_is_plain(
    viewed_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (80, 100, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        for words in ((), ("--variant", "tiled", "--sass")):
            lines = viewed_trial.run_shelf("look", "transpose", *words).stdout.splitlines()
            assert max(map(len, lines)) <= columns
            assert all(line == line.rstrip() and "\x1b" not in line for line in lines)


def test_a_program_reads_the_views_themselves(viewed_trial: Trial) -> None:
    done = viewed_trial.run_shelf("look", "transpose", "--json", "--variant", "tiled")
    (found,) = json.loads(done.stdout)
    assert found == make_view("tiled") | {"digest": found["digest"]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("transpos",), "transpos: no such snippet; did you mean transpose?"),
        (("transpose", "--arch", "sm_70"), "sm_70: no such architecture"),
        (("transpose", "--variant", "tield"), "did you mean tiled? known are naive, tiled"),
        (("transpose", "--variant", "tiled", "--kernel", "none"), "none: no such kernel; known"),
        (("transpose", "--against", "nowhere"), "is neither a PTX file nor a commit"),
        (("transpose", "--against", "gone.ptx"), "gone.ptx: no such file"),
    ],
)
def test_an_unknown_name_is_wrong_usage(
    viewed_trial: Trial, words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "200")
    done = viewed_trial.run_shelf("look", *words)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def test_what_has_no_kernel_is_told(trial: Trial) -> None:
    shutil.copytree(ROOT / "snippets/ring_steps", trial.root / "snippets/ring_steps")
    done = trial.run_shelf("look", "ring_steps")
    assert done.returncode == 1
    assert done.stderr.startswith("snippets/ring_steps/ring_steps.py: is a model and has no kernel")


def commit_all(trial: Trial) -> None:
    who = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*who, "commit", "-qm", "All")):
        subprocess.run(["git", "-C", trial.root, *words], check=True, capture_output=True)


def test_a_commit_is_compared_variant_by_variant(viewed_trial: Trial) -> None:
    commit_all(viewed_trial)
    path = viewed_trial.root / "snippets/transpose/transpose.py"
    path.write_text(f"{path.read_text()}\nCHANGED = 1\n")
    now = make_view("naive", registers=40)
    now["lines"][4]["sectors"] = now["total"]["sectors"] = 640
    keep_views(viewed_trial, now, make_view("tiled"))
    done = viewed_trial.run_shelf("look", "transpose", "--against", "HEAD")
    assert done.returncode == 0, done.stderr
    naive, tiled = done.stdout.strip().split("\n\n")
    rows = [line.split() for line in naive.splitlines()]
    assert naive.startswith("naive: transpose_naive, sm_90\n")
    assert ["registers", "24", "40", "+16"] in rows
    assert ["sectors", "4,608", "640", "×0.139"] in rows
    assert tiled.splitlines() == ["tiled: transpose_tiled, sm_90", "  no difference"]
    done = viewed_trial.run_shelf("look", "transpose", "--against", "HEAD", "--json")
    first, second = json.loads(done.stdout)
    assert {"figure": "registers", "before": 24, "after": 40} in first["figures"]
    assert second["figures"] == second["lines"] == []


def test_what_is_on_one_side_alone_is_told(viewed_trial: Trial) -> None:
    commit_all(viewed_trial)
    path = viewed_trial.root / "snippets/transpose/transpose.py"
    path.write_text(f"{path.read_text()}\nCHANGED = 1\n")
    keep_views(viewed_trial, make_view("naive"), make_view("tiled") | {"variant": "float4"})
    done = viewed_trial.run_shelf("look", "transpose", "--against", "HEAD")
    assert "float4: transpose_tiled exists only now" in done.stdout
    assert "tiled: transpose_tiled exists only at HEAD" in done.stdout
    done = viewed_trial.run_shelf("look", "transpose", "--variant", "float4", "--against", "HEAD")
    assert done.stdout.strip() == "float4: transpose_tiled exists only now"


def test_the_manual_shows_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/about/contributing/tune.md").read_text(encoding="utf-8")
    head, block = text.partition('```text title="shelf look ')[2].split("```")[0].split('"\n')
    monkeypatch.setenv("COLUMNS", "88")
    done = Trial(ROOT).run_shelf("look", *head.split())
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    shown = [line for line in block.splitlines() if line not in ("", "…")]
    assert len(shown) > 10
    places = [printed.index(line) for line in shown]
    assert places == sorted(places)


@pytest.fixture(scope="module")
def kernel_trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A project with a real kernel, small, of which no views are kept."""
    from conftest import new_trial

    trial = new_trial(tmp_path_factory.mktemp("real") / "trial")
    folder = trial.root / "snippets" / "transpose"
    leave = shutil.ignore_patterns("results", "__pycache__")
    shutil.copytree(ROOT / "snippets/transpose", folder, ignore=leave)
    shutil.copy(ROOT / "snippets/cuda.py", folder.parent)
    return trial


def test_what_is_not_kept_is_made_and_saved_and_compared(
    kernel_trial: Trial, tmp_path: Path
) -> None:
    saved = tmp_path / "tiled.ptx"
    done = kernel_trial.run_shelf("look", "transpose", "--variant", "tiled", "--save", str(saved))
    assert done.returncode == 0, done.stderr
    assert (done.stdout, "viewing   transpose" in done.stderr) == ("", True)
    assert "transpose_tiled" in saved.read_text().splitlines()[0]
    done = kernel_trial.run_shelf(
        "look", "transpose", "--variant", "padded", "--against", str(saved)
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.strip().splitlines()]
    assert " ".join(rows[0]).startswith("padded: transpose_tiled<Padded>, both assembled by ptxas ")
    assert rows[1] == ["figure", "tiled.ptx", "now", "change"]
    assert ["shared", "bytes", "4,096", "4,224", "+3.1", "%"] in rows


def test_limits_that_a_view_breaks_are_told_below_it(kernel_trial: Trial) -> None:
    path = kernel_trial.root / "snippets/transpose/cases.py"
    before = path.read_text()
    asked = '"transpose_naive": {"sectors_over_ideal": 2, '
    path.write_text(before.replace('"transpose_naive": {', asked))
    try:
        done = kernel_trial.run_shelf("look", "transpose", "--variant", "naive")
    finally:
        path.write_text(before)
    assert done.returncode == 1
    assert "naive: transpose_naive on sm_90" in done.stdout
    assert "sectors_over_ideal = 4.5 exceeds the limit 2" in done.stderr
    assert "snippets/transpose/cases.py:" in done.stderr

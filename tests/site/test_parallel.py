"""The build in two processes makes the same site as in one, and says the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Trial

BUILD = (
    "import os; os.cpu_count = lambda: {cores}; from warpshelf.site.parallel import main; main()"
)


def build_with(cores: int, trial: Trial, target: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", BUILD.format(cores=cores), "build", "--strict"]
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

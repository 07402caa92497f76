"""What every test shares: the way Triton runs here, and projects to try commands on."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Triton decides at import whether it interprets. A test that needs it otherwise starts a process.
if not Path("/proc/driver/nvidia/version").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

ROOT = Path(__file__).resolve().parents[1]
WRONG = ROOT / "tests" / "wrong"
# A topic of a trial project, and its list of readings.
TOPIC = "kernels/products"
LIST = """\
- id: a-paper
  title: A paper on products
  url: https://example.org/products
  kind: paper
  why: What a product is.
"""
MKDOCS = """\
site_name: Trial
theme: {name: material, font: false}
plugins: [search]
markdown_extensions:
  - attr_list
  - md_in_html
  - tables
  - pymdownx.details
  - pymdownx.highlight
  - pymdownx.snippets: {base_path: [build/fragments, snippets], check_paths: true}
  - pymdownx.superfences
  - pymdownx.tabbed: {alternate_style: true}
validation: {links: {absolute_links: relative_to_docs}}
"""


@dataclass
class Trial:
    """A project in a temporary folder, and the command line to use on it."""

    root: Path

    def shelf(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the command line in this process, whose fork server all tests share."""
        from warpshelf import cli

        out, err = io.StringIO(), io.StringIO()
        with chdir(self.root), redirect_stdout(out), redirect_stderr(err):
            status = cli.main(list(words))
        return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())

    def process(self, *words: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the command line as a user would, in a process of its own."""
        return subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "build.py"), *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def snippet(self, name: str, text: str) -> Path:
        """Write a snippet."""
        path = self.root / "snippets" / name / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def page(self, name: str, text: str) -> Path:
        """Write a page below docs/."""
        path = self.root / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def new_trial(root: Path) -> Trial:
    """An empty project."""
    (root / "docs").mkdir(parents=True)
    (root / "snippets").mkdir()
    (root / "mkdocs.yml").write_text(MKDOCS)
    (root / "docs" / "index.md").write_text("# Trial\n")
    return Trial(root)


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """An empty project of the test's own."""
    return new_trial(tmp_path / "trial")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests, since a process can drive only one at a time."""
    from browsing import launched

    with launched() as browser:
        yield browser


def sound_snippet() -> str:
    """The text of a snippet that passes."""
    return (WRONG / "base.py").read_text(encoding="utf-8")


def wrong_snippet(overlay: str) -> str:
    """A snippet that is wrong: the sound one, changed by a file of tests/wrong/."""
    text = sound_snippet()
    if found := re.search(r"^# without: (\w+)$", overlay, re.M):
        text = re.sub(rf"^{found[1]} = .*\n", "", text, flags=re.M)
    # A name that is defined twice is found at its first place; so the overlay goes last, and takes
    # over what the sound one says of the same name.
    for name in re.findall(r"^(NEEDS|VARIANTS) = ", overlay, re.M):
        text = re.sub(rf"^{name} = .*\n", "", text, flags=re.M)
    head, guard, tail = text.partition('if __name__ == "__main__":')
    return f"{head}{overlay}\n\n{guard}{tail}"

"""Who may import whom among the rooms of the tooling, and that its types hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import ROOT

PROGRAMS = Path(sysconfig.get_path("scripts"))
CACHE = ROOT / ".mypy_cache"
FROM_A_TEST = re.compile(r"^\s*(?:from|import) (test_\w+)", re.MULTILINE)


def check_contracts(root: Path) -> subprocess.CompletedProcess[str]:
    """What import-linter says of the tooling below `root`."""
    return subprocess.run(
        [PROGRAMS / "lint-imports", "--config", root / "pyproject.toml", "--no-cache", "--no-logo"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "scripts"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_rooms_import_from_lower_rooms_alone() -> None:
    done = check_contracts(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        ("core/findings", "from warpshelf.readings import model", "core.findings -> "),
        ("links/check_links", "from warpshelf.render import svg", "links.check_links -> "),
        (
            "readings/entries",
            "def late():\n    from warpshelf.readings import model",
            "allowed in warpshelf.readings.",
        ),
        (
            "edit/add_reading",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import warpshelf.edit.forms",
            "allowed in warpshelf.edit.",
        ),
        ("records/store", "def late():\n    import torch", "records.store -> torch"),
        ("core/files", "import httpx", "core.files -> httpx"),
        ("bench/run", "from warpshelf.readings import titles", "readings.titles -> rapidfuzz"),
        (
            "../papergpu/syntax_tree",
            "from warpshelf.core import units",
            "papergpu.syntax_tree -> warpshelf.",
        ),
        ("../papergpu/lexer", "from papergpu import parse", "allowed in papergpu."),
    ],
)
def test_an_import_that_may_not_be_is_found(
    tmp_path: Path, module: str, line: str, said: str
) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=leave)
    path = tmp_path / "scripts" / "warpshelf" / f"{module}.py"
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{line}\n", encoding="utf-8")
    done = check_contracts(tmp_path)
    assert done.returncode == 1 and "BROKEN" in done.stdout, done.stdout + done.stderr
    assert said in done.stdout


def check_types(*files: str | Path) -> subprocess.CompletedProcess[str]:
    """What mypy says of the tooling, or of `files` by the same rules."""
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", CACHE, *files],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "MYPYPATH"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.exhaustive(
    "all types, and torch's; of a pull request they are checked by a step of its own"
)
def test_the_types_hold() -> None:
    done = check_types()
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_that_do_not_hold_are_found(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text(
        "from warpshelf.core.project import find_project\n"
        "def count(names):\n    return len(names)\n"
        "root: int = find_project().root\n"
        "rows: dict = {}\n",
        encoding="utf-8",
    )
    done = check_types(bad)
    assert done.returncode == 1
    assert re.findall(r"bad\.py:(\d): error", done.stdout) == ["2", "4", "5"], done.stdout


def find_borrowings(root: Path) -> list[str]:
    """Tests below `root` that take something from a test of another room."""
    return [
        f"{path.relative_to(root).as_posix()} imports {name}"
        for path in sorted(root.rglob("*.py"))
        for name in FROM_A_TEST.findall(path.read_text(encoding="utf-8"))
        if not path.with_name(f"{name}.py").is_file()
    ]


def test_what_tests_of_two_rooms_share_is_no_test(tmp_path: Path) -> None:
    assert find_borrowings(ROOT / "tests") == []
    for name, text in {"a/test_a.py": "X = 1\n", "b/test_b.py": "from test_a import X\n"}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert find_borrowings(tmp_path) == ["b/test_b.py imports test_a"]

"""Who may import whom among the rooms of the tooling, its types, and a walk through all of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from conftest import MKDOCS, ROOT, Trial

from warpshelf.bench import assemble
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger
from warpshelf.worker import jobs
from warpshelf.worker.context import JobContext

# Who may import whom among the rooms of the tooling, and that its types hold.

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


def test_tests_of_papergpu_need_nothing_of_the_rest(tmp_path: Path) -> None:
    """They are collected by its own configuration, where warpshelf cannot be imported."""
    (tmp_path / "warpshelf").mkdir()
    (tmp_path / "warpshelf" / "__init__.py").write_text("raise ImportError('it is not there')\n")
    words = ["-c", "scripts/papergpu/pyproject.toml", "--collect-only", "-q", "-n", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "tests/papergpu"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    found = re.search(r"(\d+)/\d+ tests collected", done.stdout)
    assert done.returncode == 0 and found and int(found[1]) > 1500, done.stdout[-2000:]


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


# The walk of docs/about/tooling.md: each of its steps is a function, and they come in order.

PAGE = (ROOT / "docs" / "about" / "tooling.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\d+\. `([\w.]+)`", PAGE, re.M)


def code_of(step: str) -> CodeType:
    """The code of a step, named by room, module, and class if it is a method."""
    room, module, *names = step.split(".")
    found: Any = import_module(f"warpshelf.{room}.{module}")
    for name in names:
        found = getattr(found, name)
    function: Callable[..., object] = getattr(found, "__wrapped__", found)
    return function.__code__


@contextmanager
def follow_steps() -> Iterator[list[str]]:
    """The steps that are called, each when it is called first."""
    names, met = {code_of(step): step for step in STEPS}, []

    def hear_call(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (step := names.get(frame.f_code)) and step not in met:
            met.append(step)

    sys.setprofile(hear_call)
    try:
        yield met
    finally:
        sys.setprofile(None)


def test_the_walk_is_the_way_of_a_snippet(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.add_sound_snippet()
    (trial.root / "mkdocs.yml").write_text(MKDOCS)
    trial.add_page("index.md", '# Trial\n\n--8<-- "sound/whole.md"\n')
    with follow_steps() as parent:
        assert trial.run_shelf("run").returncode == 0
        built = trial.run_shelf("site")
    assert built.returncode == 0, built.stderr
    assert 'class="ws-output"' in (trial.root / "site" / "index.html").read_text(encoding="utf-8")
    one = snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "sound")
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = {**assemble.job_details(one, {**ledger.describe_host(), "gpus": 0}), "token": "x"}
    with follow_steps() as child:
        assert not jobs.verify_snippet(JobContext(given, lambda message: None))["failures"]
    assert len(STEPS) == 10
    at = next(place for place, step in enumerate(STEPS) if step.startswith("worker."))
    assert child == STEPS[at : at + len(child)] and len(child) == 2
    # `shelf site` is what renders: it begins with the last step.
    assert parent[:-2] == STEPS[:at] + STEPS[at + 2 : -2]
    assert set(parent[-2:]) == set(STEPS[-2:])


@pytest.mark.parametrize(
    "module", ["records.claim_check", "records.validate_import", "render.figures"]
)
def test_what_else_the_walk_names_is_there(module: str) -> None:
    assert f"`{module}`" in PAGE
    assert import_module(f"warpshelf.{module}").__doc__

"""Kernels of Triton for sm_100: its tensor cores, tensor maps, scales, and warps of their own."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "scripts"
CASES = [
    one.name
    for one in ast.parse((HERE / "blackwell_cases.py").read_text(encoding="utf-8")).body
    if isinstance(one, ast.FunctionDef) and one.name.startswith("case_")
]


@cache
def outcomes(folder: Path) -> dict[str, str]:
    """What is wrong with each case: nothing, if it is right.

    Triton compiles in a process of its own: it decides whether to when it is imported.
    """
    done = subprocess.run(
        [sys.executable, str(HERE / "blackwell_cases.py")], capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": f"{SCRIPTS}:{HERE}",
             "TRITON_CACHE_DIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("triton")


@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, folder: Path) -> None:
    wrong = outcomes(folder)[case]
    assert not wrong, wrong

"""Kernels of Triton with tensor descriptors, by the maps and copies that it makes of them."""

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
    for one in ast.parse((HERE / "descriptor_cases.py").read_text(encoding="utf-8")).body
    if isinstance(one, ast.FunctionDef) and one.name.startswith("case_")
]


@cache
def outcomes(target: str, folder: Path) -> dict[str, str]:
    """What is wrong with each case. Triton compiles in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(HERE / "descriptor_cases.py"), target], capture_output=True, text=True,
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


@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, target: str, folder: Path) -> None:
    wrong = outcomes(target, folder)[case]
    assert not wrong, wrong

"""Processes apart, in which Triton compiles: whether it does it decides when it is imported.

A script of cases has functions named `case_...`; started, it prints what is wrong with each, as
JSON: nothing, if it is right.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "scripts"


def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What Python said in a process of its own."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": f"{SCRIPTS}:{HERE}"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True,
        env={**environment, **variables}, timeout=1200,
    )  # fmt: skip


@cache
def read_outcomes(script: str, *arguments: str) -> dict[str, Any]:
    """What a script beside this file printed last, with nothing of Triton's kept before or after.

    Raises:
        AssertionError: it failed, and with what.
    """
    with TemporaryDirectory() as folder:
        done = run_python(str(HERE / script), *arguments, TRITON_CACHE_DIR=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def list_cases(script: str) -> list[str]:
    """The names of a script's cases; it is not imported, since it may need Triton."""
    tree = ast.parse((HERE / script).read_text(encoding="utf-8"))
    functions = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
    return [name for name in functions if name.startswith("case_")]


def catch_error(case: Callable[..., object], *arguments: str) -> str:
    """What a case raised, if it did."""
    try:
        case(*arguments)
    except Exception:
        return traceback.format_exc()
    return ""

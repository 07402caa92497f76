"""Kernels of Triton, compiled for each target and executed on tensors of the CPU."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "scripts"
CASES = [
    one.name
    for one in ast.parse((HERE / "front_cases.py").read_text(encoding="utf-8")).body
    if isinstance(one, ast.FunctionDef) and one.name.startswith("case_")
]
TARGETS = ("sm_80", "sm_90")


def python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process in which Triton compiles: it decides that when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "0", "PYTHONPATH": f"{SCRIPTS}:{HERE}"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True,
        env={**environment, **variables},
    )  # fmt: skip


@cache
def outcomes(target: str) -> dict[str, str]:
    """What is wrong with each case: nothing, if it is right."""
    with TemporaryDirectory() as folder:
        done = python(str(HERE / "front_cases.py"), target, TRITON_CACHE_DIR=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_kernel(case: str, target: str) -> None:
    wrong = outcomes(target)[case]
    assert not wrong, wrong


SCRIPT = """
import sys
import torch
from front_kernels import unmasked

x = torch.arange(100)
out = torch.empty(100, dtype=torch.int64)
unmasked[(1,)](x, out, 100, BLOCK=int(sys.argv[1]), num_warps=1)
print(__name__, sys.argv[1:], torch.equal(x[:32], out[:32]), torch.cuda.get_device_capability())
"""


def test_a_script_is_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run = ["-m", "papergpu", "run", "--target", "sm_80", "--schedule", "random", "--seed", "5"]
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton"), "TRITON_INTERPRET": "1"}
    right = python(*run, "--no-checks", str(script), "32", "--more", **caches)
    assert right.returncode == 0, right.stderr
    assert right.stdout.strip() == "__main__ ['32', '--more'] True (8, 0)"
    wrong = python(*run, str(script), "128", **caches)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    (line,) = wrong.stderr.splitlines()
    text = (HERE / "front_kernels.py").read_text(encoding="utf-8")
    at = text[: text.index("the finding must name this line")].count("\n") + 1
    assert line.startswith(f"Finding: unmasked at front_kernels.py:{at}, block (0, 0, 0), thread (")
    assert line.endswith("of x_ptr, which has 800: mask it, or mend the offset")


def test_a_command_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    gone = python("-m", "papergpu", "run", str(tmp_path / "gone.py"))
    assert gone.returncode == 1 and "gone.py: there is no such script" in gone.stderr
    old = python("-m", "papergpu", "run", "--target", "sm_70", str(tmp_path / "gone.py"))
    assert old.returncode == 2 and "'sm_70' is no target that is executed" in old.stderr

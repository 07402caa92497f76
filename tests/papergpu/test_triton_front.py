"""Kernels of Triton, compiled for each target and executed on tensors of the CPU.
Takes 12 s, as Triton compiles each kernel.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from apart import HERE, cases, outcomes, python
from conftest import exhaustive

CASES = "front_cases.py"
TARGETS = exhaustive(("sm_90", "sm_80"), "all architectures")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", cases(CASES))
def test_kernel(case: str, target: str) -> None:
    wrong = outcomes(CASES, target)[case]
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


def test_a_script_is_counted(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    caches = {"TRITON_CACHE_DIR": str(tmp_path / "triton")}
    run = ["-m", "papergpu", "run", "--profile", "--no-checks", str(script), "32"]
    done = python(*run, **caches)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("__main__ ['32'] True")  # the counts go elsewhere
    head, *lines = done.stderr.splitlines()
    assert head.split()[:5] == ["instr", "lanes", "requests", "sectors", "/ideal"]
    assert head.endswith("front_kernels.py")
    (load,) = [one for one in lines if one.endswith("# the finding must name this line")]
    # A warp loads 32 numbers of 8 bytes: 8 sectors, and there could not be fewer.
    assert "  8    1.00  " in load
    assert lines[-1].endswith("total")


def test_a_command_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    gone = python("-m", "papergpu", "run", str(tmp_path / "gone.py"))
    assert gone.returncode == 1 and "gone.py: there is no such script" in gone.stderr
    old = python("-m", "papergpu", "run", "--target", "sm_70", str(tmp_path / "gone.py"))
    assert old.returncode == 2 and "'sm_70' is no target that is executed" in old.stderr

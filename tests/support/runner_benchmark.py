"""How long the runner takes for 40 trivial snippets, each verified in its own process.

Run it by `python tests/support/runner_benchmark.py`. It prints seconds of wall clock for a cold
run, a run after one snippet changed, one after a helper changed that all import, and one with
nothing to do.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COUNT = 40
BUILD = Path(__file__).resolve().parents[2] / "scripts" / "build.py"
SNIPPET = '''"""Addition number {index}: each element plus a constant.

Shapes  x (N,) float32 -> (N,) float32
Bytes   8 * N
Error   exact
Raises  nothing
Source  none
"""

import torch

from snippets.helper import shift


def add(x):
    return shift(x + {index})


def demo(device):
    print(add(torch.tensor([1.0, 2.0], device=device)).tolist())


if __name__ == "__main__":
    demo("cuda" if torch.cuda.is_available() else "cpu")
'''
CASES = '''"""What verifies addition number {index}."""

import torch

from snippets.add_{index:02d} import add_{index:02d}

CASES = ({{"n": 1}}, {{"n": 17}}, {{"n": 127}}, {{"n": 1023}})
TIMED = ()


def inputs(case, device, generator):
    return (torch.randn(case["n"], device=device, generator=generator),)


def reference(x):
    return x.double() + {index} + 1.0


VARIANTS = {{"add": lambda x: add_{index:02d}.add(x)}}
PEERS = {{"torch": lambda x: x + {index} + 1.0}}
'''


def lay_out_project(root: Path, count: int = COUNT) -> None:
    """Lay out a project of trivial snippets which all import one helper."""
    (root / "mkdocs.yml").write_text("site_name: benchmark\n")
    (root / "docs").mkdir()
    for index in range(count):
        folder = root / "snippets" / f"add_{index:02d}"
        folder.mkdir(parents=True)
        (folder / f"{folder.name}.py").write_text(SNIPPET.format(index=index))
        (folder / "cases.py").write_text(CASES.format(index=index))
    (root / "snippets" / "helper.py").write_text("def shift(x):\n    return x + 1.0\n")


def timed_run(root: Path) -> tuple[float, int]:
    """Seconds of one `shelf run`, and how many snippets it verified."""
    started = time.perf_counter()
    answer = subprocess.run(
        [sys.executable, str(BUILD), "run", "--json"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    seconds = time.perf_counter() - started
    verdicts = json.loads(answer.stdout)
    assert len(verdicts) == len(list((root / "snippets").glob("*/cases.py")))
    return seconds, sum(verdict["state"] == "passed" for verdict in verdicts)


def time_situations(root: Path) -> dict[str, tuple[float, int]]:
    """Time each situation: (seconds, snippets verified) by name."""
    lay_out_project(root)
    results = {"cold": timed_run(root)}
    first = root / "snippets" / "add_00" / "add_00.py"
    first.write_text(first.read_text() + "CHANGED = 1\n")
    results["one changed"] = timed_run(root)
    helper = root / "snippets" / "helper.py"
    helper.write_text("print()\n" + helper.read_text())
    results["helper changed"] = timed_run(root)
    results["nothing changed"] = timed_run(root)
    return results


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for name, (seconds, verified) in time_situations(Path(folder)).items():
            print(f"{name:<16} {seconds:6.2f} s  {verified:2d} verified")

"""How fast this machine is now, how much memory a process has had at most, and the runner's time.

Limits in seconds are held against the pace, which changes by half within hours. `ru_maxrss` begins
with what a process's parent had: Linux hands that on through fork and exec.

`python tests/support/measures.py` has the runner verify 40 trivial snippets, each in a process of
its own. It prints seconds of wall clock for a cold run, a run after one snippet changed, one after
a helper changed that all import, and one with nothing to do.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

UNIT = 1 if sys.platform == "darwin" else 1024  # bytes, of ru_maxrss
HERE = Path(__file__).resolve().parent
# For a process that measures itself: it imports this, and the tooling.
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{HERE.parents[1] / 'scripts'}{os.pathsep}{HERE}"}


def take_pace(clock: Callable[[], float] = time.perf_counter) -> float:
    """A fixed piece of work, as a multiple of what it takes where such limits are set: 0.5 s."""
    started = clock()
    for _ in range(40):
        re.findall("[a-z]+(?=[0-9])", " ".join(f"word{n} {n}" for n in range(20_000)))
    return (clock() - started) / 0.5


def read_peak() -> int:
    """Bytes of this process."""
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [one for one in status.read_text().splitlines() if one.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


if __name__ == "__main__":
    # Runs a command; writes the seconds of CPU and the bytes of its processes into a file.
    import json
    import subprocess

    _, target, *command = sys.argv
    done = subprocess.run(command, check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"seconds": used.ru_utime + used.ru_stime, "bytes": used.ru_maxrss * UNIT}
    Path(target).write_text(json.dumps(found))
    sys.exit(done.returncode)


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

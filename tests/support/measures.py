"""How fast this machine is now, and how much memory a process has had at most.

Limits in seconds are held against the pace, which changes by half within hours. `ru_maxrss` begins
with what a process's parent had: Linux hands that on through fork and exec.
"""

from __future__ import annotations

import os
import re
import resource
import sys
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

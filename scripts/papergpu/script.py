"""A script executed with Triton's kernels on the CPU, as `python script.py` would on a GPU."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from papergpu import session
from papergpu.counters import Collected, format_table
from papergpu.errors import Finding, Unavailable, Unsupported
from papergpu.launch import Settings

__all__ = ["run"]


def run(path: str, arguments: Sequence[str], target: str, settings: Settings) -> int:
    """Execute the script; 1 if a kernel did something wrong or something that is not executed.

    Where the settings count, a table of what all its launches did, line by line of the source, goes
    to stderr at the end. What else the script raises, it raises here.
    """
    if not Path(path).is_file():
        print(f"{path}: there is no such script; name a file of Python", file=sys.stderr)
        return 1
    os.environ.pop("TRITON_INTERPRET", None)  # it would leave nothing to execute
    session.replaced(settings)
    counted = Collected()
    told = session.on_launch(counted)
    before = sys.argv, sys.path[:]
    sys.argv = [path, *arguments]
    sys.path[0:0] = [str(Path(path).resolve().parent)]
    triton = find_spec("triton") is not None and find_spec("torch") is not None
    try:
        if triton:
            from papergpu.triton import active

            with active(target):
                runpy.run_path(path, run_name="__main__")
        else:
            runpy.run_path(path, run_name="__main__")
    except (Finding, Unavailable, Unsupported) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    finally:
        sys.argv, sys.path[:] = before
        told.undo()
        if settings.profile:
            print(format_table(counted.profile()), file=sys.stderr)
    return 0

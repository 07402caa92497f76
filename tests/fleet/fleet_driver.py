"""One run of a fleet in a process of its own: `python fleet_driver.py '{"address": …, …}'`.

Each event is printed as a line of JSON, and at the end what became of all.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from pathlib import Path

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"


def main() -> None:
    import node_tasks
    import ray

    from warpshelf.bench import pool
    from warpshelf.bench.plan import Options
    from warpshelf.bench.run import Verdict
    from warpshelf.contract import snippet
    from warpshelf.core.findings import ShelfError
    from warpshelf.core.project import Project
    from warpshelf.fleet.run_cluster import Fleet

    order = json.loads(sys.argv[1])
    project = Project(Path(order["root"]))
    ray.__version__ = order.get("version", ray.__version__)
    node_tasks.FOLDER = order["folder"]
    asked = dict(order.get("options", {}))
    kinds = asked.pop("kinds", None)
    options = Options(out=Path(order["out"]), **asked)
    said = os.fdopen(os.dup(1), "w")

    times = {"start": time.monotonic()}

    def print_event(event: object) -> None:
        row = None
        # What was last heard before what: connected, planned, run; see overhead.py.
        times[type(event).__name__] = time.monotonic()
        if isinstance(event, Verdict):
            row = [
                event.snippet,
                event.machine,
                event.state,
                event.note,
                list(map(str, event.findings)),
            ]
        elif isinstance(event, str):
            row = event
        if order.get("timed"):
            return
        if row is not None:
            print(json.dumps(row), file=said, flush=True)

    work, look = getattr(node_tasks, order["work"]), node_tasks.describe_cpu
    fleet = Fleet(project, options, kinds, print_event, work, look, **order.get("limits", {}))
    if (writes := order.get("writes")) is not None:
        fill_disk_after(writes)
    end: dict = {}
    chosen_snippets = snippet.discover_snippets(project)
    times["discovered"] = time.monotonic()
    try:
        with pool.raise_on_signal():
            fleet.run_stale(chosen_snippets, order["address"])
    except pool.Stopped as stop:
        fleet.mark_left(f"it was stopped by {stop.name}")
    except ShelfError as error:
        end["error"] = str(error)
    times["end"] = time.monotonic()
    if order.get("timed"):
        end["times"] = times
    end["findings"] = [str(one) for one in fleet.findings]
    print(json.dumps(end), file=said, flush=True)


def fill_disk_after(writes: int) -> None:
    """Have the operating system take so many more files, and then none."""
    real, count = os.fsync, iter(range(writes))

    def fail_fsync(handle: int) -> None:
        if next(count, None) is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    os.fsync = fail_fsync


if __name__ == "__main__":
    main()

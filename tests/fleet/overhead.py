"""What a fleet costs beside its work, as it grows: `python tests/fleet/overhead.py [--record]`.

On a cluster of this machine with four made-up kinds, each of one node, snippets whose run does
nothing are planned, handed out, taken in and merged. With `--record` the figures are kept in
docs/about/fleet.json and shown between the marks of the page beside it; nothing there is written
by hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests"), str(HERE)]

PAGE = ROOT / "docs" / "about" / "fleet.md"
FILE = PAGE.with_suffix(".json")
MARKS = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)
KINDS = ("K1", "K2", "K3", "K4")
COUNTS = (10, 100, 1000)


def measure_runs(counts: tuple[int, ...] = COUNTS) -> list[dict[str, Any]]:
    """Seconds of each part of a run, by the number of snippets."""
    from conftest import new_trial
    from local_fleet import LIGHT, FleetTrial, LocalCluster

    cluster = LocalCluster(num_cpus=2)
    rows = []
    try:
        cluster.add_nodes(*KINDS)
        for count in counts:
            with tempfile.TemporaryDirectory() as name:
                field = FleetTrial(new_trial(Path(name) / "trial"), cluster)
                for number in range(count):
                    field.trial.add_snippet(f"s{number}", LIGHT)
                runs = []
                for _ in range(2):  # the second finds all of it current
                    run = field.start_run(
                        "make_up_record", options={"only": "gpu"}, timed=True
                    ).wait_end(1800)
                    runs.append(split_seconds(run.final_answer["times"]))
                assert len(field.list_records()) == count * len(KINDS)
                first, again = runs
                known = {"snippets": count, "items": count * len(KINDS)}
                rows.append({**known, **first, "again": sum(again.values())})
                print(rows[-1], flush=True)
    finally:
        cluster.end_cluster()
    return rows


def split_seconds(times: dict[str, float]) -> dict[str, float]:
    """Seconds between what was heard."""
    parts = ("start", "discovered", "str", "int", "Verdict", "end")
    names = ("read", "connect", "plan", "run", "merge")
    return {
        name: times[after] - times[before]
        for name, before, after in zip(names, parts, parts[1:], strict=False)
    }


def write_table(figures: dict[str, Any]) -> str:
    """The table that the page shows."""
    lines = [
        "| snippets, on four kinds | items | planned in | run in | for each item | merged in |"
        " the next run, with nothing stale |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in figures["rows"]:
        plan, run, merge = row["read"] + row["plan"], row["run"], row["merge"]
        each = 1e3 * (plan + run + merge) / row["items"]
        lines.append(
            f"| {row['snippets']:,} | {row['items']:,} | {1e3 * plan:.0f} ms | {run:.1f} s | "
            f"{each:.0f} ms | {merge:.1f} s | {row['again']:.1f} s |"
        )
    made = f"On {figures['date']}, commit `{figures['commit']}`, {figures['processor']}, "
    return "\n".join([*lines, "", f"{made}by `{figures['command']}`.", ""])


def fill_page(page: str, figures: dict[str, Any]) -> str:
    """`page` with the table of `figures` between its marks."""
    return MARKS.sub(lambda found: f"{found[1]}{write_table(figures)}{found[2]}", page)


def describe_provenance() -> dict[str, str]:
    """When, where and of which commit."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.*)$", cpu, re.MULTILINE)
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    load = os.getloadavg()[0]
    shared = ", shared with other work" if load > 1 else ""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "processor": f"{model[1] if model else 'unknown'}, {os.cpu_count()} cores{shared}",
        "command": "python tests/fleet/overhead.py --record",
    }


def main() -> None:
    """Measure, and keep it if asked to."""
    figures = {**describe_provenance(), "rows": measure_runs()}
    if "--record" in sys.argv[1:]:
        FILE.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print(write_table(figures))


if __name__ == "__main__":
    main()

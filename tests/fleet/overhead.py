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


def measured(counts: tuple[int, ...] = COUNTS) -> list[dict[str, Any]]:
    """Seconds of each part of a run, by the number of snippets."""
    from conftest import new_trial
    from ground import LIGHT, Field, Yard

    yard = Yard(num_cpus=2)
    rows = []
    try:
        yard.add(*KINDS)
        for count in counts:
            with tempfile.TemporaryDirectory() as name:
                field = Field(new_trial(Path(name) / "trial"), yard)
                for number in range(count):
                    field.trial.snippet(f"s{number}", LIGHT)
                runs = []
                for _ in range(2):  # the second finds all of it current
                    run = field.start("made_up", options={"only": "gpu"}, timed=True).done(1800)
                    runs.append(spent(run.last["times"]))
                assert len(field.records()) == count * len(KINDS)
                first, again = runs
                known = {"snippets": count, "items": count * len(KINDS)}
                rows.append({**known, **first, "again": sum(again.values())})
                print(rows[-1], flush=True)
    finally:
        yard.end()
    return rows


def spent(times: dict[str, float]) -> dict[str, float]:
    """Seconds between what was heard."""
    parts = ("start", "discovered", "str", "int", "Verdict", "end")
    names = ("read", "connect", "plan", "run", "merge")
    return {
        name: times[after] - times[before]
        for name, before, after in zip(names, parts, parts[1:], strict=False)
    }


def text(figures: dict[str, Any]) -> str:
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


def shown(page: str, figures: dict[str, Any]) -> str:
    """`page` with the table of `figures` between its marks."""
    return MARKS.sub(lambda found: f"{found[1]}{text(figures)}{found[2]}", page)


def provenance() -> dict[str, str]:
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
    figures = {**provenance(), "rows": measured()}
    if "--record" in sys.argv[1:]:
        FILE.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        PAGE.write_text(shown(PAGE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    print(text(figures))


if __name__ == "__main__":
    main()

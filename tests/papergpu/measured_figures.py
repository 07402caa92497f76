"""The figures of docs/about/papergpu/: kept in papergpu.json beside it, shown between marks.

The commands that measure them (`benchmark.py`, `triton_tests.py`, `public_kernels.py`) keep what
they found when they are given `--record`; `measured_figures.py` shows what is kept anew. Nothing
between the marks is written by hand: a test holds the page against the file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "about" / "papergpu.json"
PAGES = sorted(FILE.with_suffix("").glob("*.md"))
MARKS = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end of figures -->)", re.DOTALL)
QUIETLY = re.compile(r" --(?:record|quiet)\b")  # what says nothing about how figures come about
Figures = dict[str, Any]


def describe_processor() -> str:
    """This machine's processor, as far as speed is concerned: `AMD EPYC, 2 cores, AVX-512`."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*: (.*)$", text, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    names = [name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in known]
    cores = f"{os.cpu_count()} cores"
    given = os.environ.get("PAPERGPU_CXXFLAGS")  # the engine may be compiled for less
    compiled = [f"compiled with `{given}`"] if given else []
    return ", ".join([model[1] if model else "unknown", cores, *names[:1], *compiled])


def describe_commit() -> str:
    """The commit of this checkout, with `+changes` where scripts/papergpu differs from it."""

    def run_git(*words: str) -> str:
        found = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True,
                               check=True)  # fmt: skip
        return found.stdout.strip()

    changes = run_git("status", "--porcelain", "--", "scripts/papergpu", "tests/papergpu")
    return run_git("rev-parse", "--short=12", "HEAD") + ("+changes" if changes else "")


def describe_provenance(command: str) -> Figures:
    """When, where, of which commit and by which command figures are made."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": describe_commit(),
        "processor": describe_processor(),
        "command": command,
    }


def record_figures(part: str, key: str, found: Figures, command: str) -> None:
    """Keep what was found as `key` of a part, and show it on the page."""
    kept = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    kept.setdefault(part, {})[key] = {**found, **describe_provenance(command)}
    _replace_file(FILE, json.dumps(kept, indent=1, sort_keys=True) + "\n")
    update_page()


def update_page() -> None:
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    for page in PAGES:
        _replace_file(page, fill_marks(page.read_text(encoding="utf-8"), kept))


def fill_marks(page: str, kept: Mapping[str, Any]) -> str:
    """The page with what lies between its marks made anew."""
    return MARKS.sub(lambda m: m[1] + BLOCKS[m[2]](kept.get(m[2], {})) + m[3], page)


def _replace_file(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _write_table(head: list[str], rows: list[list[str]]) -> str:
    aligned = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, aligned, *rows]) + "\n"


def _write_sources(parts: Mapping[str, Figures]) -> str:
    """When and where figures were made, and by which commands."""
    commands: dict[tuple[str, str, str], list[str]] = {}
    for one in parts.values():
        of = one["date"], one["commit"], one["processor"]
        commands.setdefault(of, []).append(f"`{QUIETLY.sub('', one['command'])}`")
    said = [
        f"On {date}, commit `{commit}`, {processor}, by {', '.join(sorted(set(given)))}."
        for (date, commit, processor), given in sorted(commands.items())
    ]
    return "\n" + " ".join(said) + "\n"


def _tabulate_triton(targets: Mapping[str, Figures]) -> str:
    """Triton's own tests by target."""
    if not targets:
        return "Not run yet.\n"
    order = sorted(targets, key=lambda one: int(one.removeprefix("sm_")))
    rows = []
    for target in order:
        one = targets[target]
        counts = [one[name] for name in ("passed", "skipped", "explained", "failed")]
        rows.append([target, *(f"{count:,}" for count in [sum(counts), *counts])])
    head = ["target", "tests", "passed", "skipped", "explained", "failed"]
    return _write_table(head, rows) + _write_sources(targets)


def _tabulate_public(parts: Mapping[str, Figures]) -> str:
    """Public kernels by what became of them."""
    if not parts:
        return "Not run yet.\n"
    (one,) = parts.values()
    rows = [[name, f"{counts['all']}", f"{counts['right']}", f"{counts['faults']}"]
            for name, counts in sorted(one["repositories"].items())]  # fmt: skip
    totals = [str(sum(int(row[at]) for row in rows)) for at in (1, 2, 3)]
    head = ["repository", "kernels", "as expected", "with a fault"]
    return _write_table(head, [*rows, ["all", *totals]]) + _write_sources(parts)


def _tabulate_operators(parts: Mapping[str, Figures]) -> str:
    """Public operators of Triton by what became of them."""
    if not parts:
        return "Not run yet.\n"
    (one,) = parts.values()
    keys = ("all", "right", "kernels", "faults")
    found = sorted(one["repositories"].items())
    rows = [[name, *(str(counts[key]) for key in keys)] for name, counts in found]
    totals = [str(sum(counts[key] for _, counts in found)) for key in keys]
    head = ["repository", "operators", "right", "their kernels", "with a fault"]
    return _write_table(head, [*rows, ["all", *totals]]) + _write_sources(parts)


def _tabulate_kernels(parts: Mapping[str, Figures]) -> str:
    """Whole kernels: millions of warp-instructions a second of one core."""
    return (
        "\n".join(_tabulate_build(one) for _, one in sorted(parts.items())) or "Not measured yet.\n"
    )


def _tabulate_build(kept: Figures) -> str:
    rows = [
        [name, *(f"{one['instructions'] / one[mode] / 1e6:.0f}" for mode in MODES),
         *(f"{one[mode] / one['plain']:.2f}" for mode in MODES[1:])]
        for name, one in sorted(kept["of"].items())
    ]  # fmt: skip
    head = ["kernel", "plain", "counted", "checked", "cost of counters", "cost of checks"]
    return _write_table(head, rows) + _write_sources({"": kept})


def _tabulate_speed(parts: Mapping[str, Figures]) -> str:
    """The rest: what it costs around the instructions."""
    if not parts:
        return "Not measured yet.\n"
    rows = [[what, time.replace(" ", "&nbsp;")] for _, one in sorted(parts.items())
            for what, time in one["rows"]]  # fmt: skip
    return _write_table(["what", "time"], rows) + _write_sources(parts)


MODES = ("plain", "counted", "checked")
BLOCKS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "triton": _tabulate_triton,
    "public": _tabulate_public,
    "operators": _tabulate_operators,
    "kernels": _tabulate_kernels,
    "speed": _tabulate_speed,
}

if __name__ == "__main__":
    update_page()

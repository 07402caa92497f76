"""Triton's own language tests, executed by papergpu: `triton_tests.py CHECKOUT --target sm_90`.

CHECKOUT is a checkout of Triton of the release that is installed. Its tests are run with the driver
active, those first that Triton marks as fit for its interpreter. What fails must be explained in
`triton_failures.toml`; the exit status is 1 if something fails that is not, or no longer fails that
is. Run by hand: all of it takes many minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unittest import mock

import measured_figures
import pytest

EXPLAINED = Path(__file__).with_name("triton_failures.toml")
FILES = ("test_core.py", "test_standard.py", "test_conversions.py",
         "test_tensor_descriptor.py", "test_tuple.py", "test_annotations.py",
         "test_block_pointer.py", "test_libdevice.py", "test_decorator.py")  # fmt: skip
LIMIT = 100_000_000  # instructions of a warp


class Run:
    """A plugin of pytest: takes a sample of the tests, and notes what comes of them."""

    def __init__(self, target: str, sample: int, quiet: bool) -> None:
        self.target, self.sample, self.quiet = target, sample, quiet
        self.outcomes: dict[str, str] = {}
        self.said: dict[str, str] = {}
        self.times: dict[str, float] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # By their digests: a sample is the same each time, and the larger one holds the smaller.
        if self.sample:
            by = sorted(
                items, key=lambda one: hashlib.sha256(strip_folders(one.nodeid).encode()).digest()
            )
            chosen = set(by[: self.sample])
            items[:] = [one for one in items if one in chosen]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if not self.quiet:
            print(f"\n{strip_folders(nodeid)}", end=" ", flush=True)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            name = strip_folders(report.nodeid)
            self.outcomes[name] = "failed"
            self.said[name] = " ".join(str(report.longrepr).split())[-300:]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = strip_folders(report.nodeid)
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[name] = "skipped" if hasattr(report, "wasxfail") else report.outcome
            self.times[name] = report.duration
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                text = crash.message if crash else str(report.longrepr)
                self.said[name] = " ".join(text.split())[:300]
                if not self.quiet:
                    print(f"\n{name}: {self.said[name]}", flush=True)


def strip_folders(nodeid: str) -> str:
    """A test's name without its folders: `test_core.py::test_dot[...]`."""
    path, mark, rest = nodeid.partition("::")
    return path.rpartition("/")[2] + mark + rest


def redirect_cuda() -> Any:
    """Has torch make on the CPU what tests want to have on "cuda"."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnTheCpu(TorchFunctionMode):
        def __torch_function__(
            self, function: Callable[..., Any], types: Any, given: Any = (), named: Any = None
        ) -> Any:
            named = dict(named or {})
            if str(named.get("device", "")).startswith("cuda"):
                named["device"] = "cpu"
            if function is torch.Tensor.cuda:
                return given[0]
            if function is torch.Tensor.to:
                given = tuple("cpu" if isinstance(one, str) and one.startswith("cuda") else one
                              for one in given)  # fmt: skip
            return function(*given, **named)

    return OnTheCpu()


def list_explained(target: str, checks: bool) -> Iterator[tuple[str, bool]]:
    """The patterns of tests that are known to fail on a target, and whether all of them do."""
    with EXPLAINED.open("rb") as file:
        for one in tomllib.load(file).get("failure", ()):
            if target in one["targets"] and (checks or not one.get("checks")):
                yield one["test"], not one.get("some", False)


def print_report(run: Run, seconds: float, checks: bool) -> tuple[int, Counter[str]]:
    """Print a table by function, and what is not explained; the exit status, and how many."""
    patterns = list(list_explained(run.target, checks))
    passes: dict[str, set[bool]] = defaultdict(set)  # of a pattern: whether its tests passed
    table: dict[str, Counter[str]] = defaultdict(Counter)
    unexplained, stale = [], []
    for name, outcome in sorted(run.outcomes.items()):
        of = [one for one in patterns if fnmatchcase(name, escape_brackets(one[0]))][:1]
        if outcome == "failed":
            outcome = "explained" if of else "failed"
            if not of:
                unexplained.append(name)
        elif outcome == "passed" and of and of[0][1]:
            stale.append(name)
        if of and outcome != "skipped":
            passes[of[0][0]].add(outcome == "passed")
        table[name.partition("[")[0]][outcome] += 1
    if not run.sample:
        stale += [one for one, every in patterns if not every and passes[one] == {True}]
    columns = ("passed", "failed", "explained", "skipped")
    width = max(map(len, table), default=0)
    print(f"\n{run.target:{width}} {' '.join(f'{one:>9}' for one in columns)}")
    total: Counter[str] = Counter()
    for name, counts in table.items():
        total += counts
        print(f"{name:{width}} {' '.join(f'{counts[one] or str():>9}' for one in columns)}")
    print(f"{'all':{width}} {' '.join(f'{total[one]:>9}' for one in columns)}")
    for name in sorted(run.times, key=lambda one: -run.times[one])[:5]:
        print(f"{run.times[name]:6.1f} s {name}")
    print(f"{seconds:.0f} s")
    for name in unexplained:
        print(f"not explained: {name}: {run.said[name]}")
    for name in stale:
        print(f"explained, and passes: {name}")
    return int(bool(unexplained or stale)), total


def escape_brackets(pattern: str) -> str:
    """A pattern in which brackets stand for themselves, as in the names of tests."""
    return pattern.replace("[", "[[]")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--sample", type=int, default=0, help="so many of the tests; 0: all")
    parser.add_argument("--all", action="store_true", help="also what is not for the interpreter")
    parser.add_argument("--files", nargs="*", default=FILES)
    parser.add_argument("-k", default="", help="as pytest's")
    parser.add_argument("--checks", action="store_true", help="look for races as well")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--record", action="store_true", help="keep the counts for the page")
    chosen = parser.parse_args(given)
    os.environ.pop("TRITON_INTERPRET", None)
    folder = chosen.checkout / "python" / "test"
    files = [folder / "unit" / "language" / name for name in chosen.files]
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        parser.error(f"there is no {', '.join(missing)}; name a checkout of Triton")

    import papergpu

    papergpu.activate(
        chosen.target, papergpu.Settings(checks=chosen.checks, threads=1, limit=LIMIT)
    )
    run = Run(chosen.target, chosen.sample, chosen.quiet)
    began = time.perf_counter()
    arguments = ["-c", os.devnull, f"--rootdir={folder}", "-p", "no:cacheprovider", "--tb=short",
                 "-p", "no:xdist", "-q", "--no-header", "--no-summary", "--device=cpu",
                 "--continue-on-collection-errors", *map(str, files)]  # fmt: skip
    if not chosen.all:
        arguments += ["-m", "interpreter"]
    if chosen.k:
        arguments += ["-k", chosen.k]
    with redirect_cuda(), mock.patch("torch.cuda.device", contextlib.nullcontext):
        pytest.main(arguments, plugins=[run])
    papergpu.deactivate()
    status, total = print_report(run, time.perf_counter() - began, chosen.checks)
    if chosen.record:
        words = sys.argv[1:] if given is None else given
        said = " ".join(["CHECKOUT" if one == str(chosen.checkout) else one for one in words])
        found = {one: total[one] for one in ("passed", "failed", "explained", "skipped")}
        command = f"python tests/papergpu/triton_tests.py {said}"
        measured_figures.record_figures("triton", chosen.target, found, command)
    return status


if __name__ == "__main__":
    sys.exit(main())

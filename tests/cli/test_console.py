"""The commands, and where they are documented; and what a run shows while it goes."""

from __future__ import annotations

import io
import threading
import time
from itertools import takewhile

import pytest
from conftest import ROOT
from rich.console import Console

from warpshelf.bench.pool import Job
from warpshelf.bench.run import Eta, Plan, Verdict
from warpshelf.cli import commands, console
from warpshelf.cli.console import NOTEBOOKS, Reporter, summary_lines
from warpshelf.cli.links import links_app
from warpshelf.core.findings import Finding
from warpshelf.worker.context import Task


def test_every_command_is_documented() -> None:
    text = (ROOT / "docs/about/commands.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip(" `") for line in text.splitlines() if "| `shelf " in line}
    # `shelf links add URL --topic T`: the words in front of what is to be filled in
    listed = {" ".join(takewhile(str.islower, row.split())) for row in rows}
    own = {
        one.name or getattr(one.callback, "__name__", "")
        for one in commands.app.registered_commands
    }
    links = {f"links {one.name}" for one in links_app.registered_commands}
    assert listed == {f"shelf {name}" for name in own | links}


LONG = "a_snippet_of_a_rather_long_name_" * 3
FOUND = Finding(
    "snippets/sound/sound.py", 7, "case {'x': [1]} :bug: [red]off[/red] by " + "9" * 120, "mend it"
)
EVENTS = (
    Job(Task.DESCRIBE, "machine", 60),
    Job(Task.VERIFY, "sound", 20, {"target": "sm_90"}),
    Job(Task.VERIFY, "sound", 20, {"target": "sm_80"}),  # the same phase: one line
    Job(Task.COMPILE, LONG, 20),
    Job(Task.TIME, "sound", 20),
    Verdict("sound", "passed", "agrees with its record", seconds=1.26),
    Verdict("sound", "passed", seconds=2.5, machine="imaginary-g9"),
    Verdict("held", "current"),
    Verdict("model", "passed", seconds=1, told=("Table [5]: 8 rows, mean 2.0 %", "Blog: 1 row")),
    Verdict("known", "current", told=("Table 1: 3 rows",)),
    Verdict(LONG, "skipped", "needs [two] GPUs :smile: and " + "much " * 30 + "more"),
    Verdict("wrong", "failed", findings=(FOUND,), seconds=0.04),
    Verdict("later", "left", "the budget was spent"),
)


def shown_bar(reporter: Reporter) -> str:
    """The live line, without its colours."""
    drawn = Console(width=200, file=io.StringIO(), color_system=None)
    for column in reporter.bar.columns:
        column._renderable_cache.clear()  # it is drawn anew once a second
    with drawn.capture() as got:
        drawn.print(reporter.bar.make_tasks_table(reporter.bar.tasks))
    return got.get()


def print_events(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    with Reporter(5) as reporter:
        for event in EVENTS:
            reporter(event)
    out, err = capsys.readouterr()
    return out, err


def test_a_log_has_a_plain_line_for_each_start_and_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, err = print_events(capsys)
    assert out == ""
    assert "\x1b" not in err and "\r" not in err
    assert [line.rstrip() for line in err.splitlines() if line.strip()] == [
        "  verifying sound",
        f"  compiling {LONG}",
        "  timing    sound",
        "passed  sound 1.3 s agrees with its record",
        "passed  sound on imaginary-g9 2.5 s",
        "passed  model 1.0 s",
        "  Table [5]: 8 rows, mean 2.0 %",
        "  Blog: 1 row",
        "current known",
        "  Table 1: 3 rows",
        f"skipped {LONG} needs [two] GPUs :smile: and {'much ' * 30}more",
        "failed  wrong 0.0 s",
        str(FOUND),
    ]


def make_dated_commit(day: str, commit: str | None = "2b9b864012e4") -> tuple[str, str | None]:
    return f"2026-11-{day}", commit


@pytest.mark.parametrize(
    ("verdicts", "lines"),
    [
        ([], ["no snippets"]),
        (
            [
                Verdict("a", "trusted", trusted=make_dated_commit("23")),
                Verdict("b", "current", trusted=make_dated_commit("20", "1109001acfc9")),
                Verdict("c", "passed", verified=True),
                Verdict("d", "failed"),
                Verdict("e", "skipped", "optuna is not installed in this environment"),
            ],
            [
                "1 demo run, 2 records trusted (of 2026-11-20 at commit 1109001acfc9 to 2026-11-23 "
                "at commit 2b9b864012e4), 1 verified here, 1 failed, 1 skipped",
                "  1 skipped: optuna is not installed in this environment",
            ],
        ),
        (
            [Verdict(name, "trusted", trusted=make_dated_commit("23", None)) for name in "ab"],
            ["2 demos run, 2 records trusted (of 2026-11-23), 0 verified here"],
        ),
        (
            [Verdict("a", "passed", machine="imaginary-g9"), Verdict("b", "current")],
            ["1 passed, 1 current"],
        ),
    ],
)
def test_the_end_says_what_ran_what_is_trusted_and_what_was_verified(
    verdicts: list[Verdict], lines: list[str]
) -> None:
    assert summary_lines(verdicts) == lines


class Ten(Plan):
    """A plan of so many verdicts, with nothing behind them."""

    verdicts = 10


class Hour(Eta):
    """An hour is left."""

    def __init__(self) -> None:
        super().__init__()

    def seconds_left(self) -> float:
        return 3600.0


def test_a_log_is_told_what_is_left_every_so_often(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY", 0.05)
    with Reporter(5) as reporter:
        reporter(Ten([]))
        reporter(Hour())
        reporter(Verdict("held", "current"))
        reporter(Verdict("sound", "passed"))
        time.sleep(0.4)
    lines = capsys.readouterr().err.splitlines()
    told = [line for line in lines if "left" in line]
    assert len(told) >= 2
    assert set(told) == {"  1 of 10 done after 0:00, about 60 min left"}
    assert threading.active_count() == 1 or not reporter._ticking.is_alive()


def test_without_a_plan_nothing_is_told_of_what_is_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY", 0.01)
    with Reporter(5) as reporter:
        reporter(Verdict("held", "current"))
        time.sleep(0.1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_no_live_line(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in NOTEBOOKS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as ipykernel sets it
    assert Reporter(1).live
    monkeypatch.setenv(name, "1")
    assert not Reporter(1).live


def test_a_terminal_has_one_live_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    for name in NOTEBOOKS:
        monkeypatch.delenv(name, raising=False)
    with Reporter(7) as reporter:
        assert reporter.live
        reporter(Ten([]))  # the run knows better how many verdicts there will be
        reporter(Hour())
        reporter(Job(Task.VERIFY, "sound", 20))
        assert reporter.bar.tasks[0].description == "verifying sound"
        assert shown_bar(reporter).endswith(" 0/10 0:00:00 about 60 min left verifying sound\n")
        reporter(Verdict("held", "current"))
        reporter(Verdict("gone", "skipped", "needs a GPU"))
        reporter(Verdict("sound", "passed"))
        assert (reporter.bar.tasks[0].description, reporter.bar.tasks[0].completed) == ("", 1)
    assert "\x1b[" in capsys.readouterr().err

"""What a run shows while it goes."""

from __future__ import annotations

import pytest

from warpshelf.bench.pool import Job
from warpshelf.bench.run import Plan, Verdict
from warpshelf.cli.console import Reporter
from warpshelf.core.findings import Finding
from warpshelf.worker.task import Task

LONG = "a_snippet_of_a_rather_long_name_" * 3
FOUND = Finding(
    "snippets/sound/sound.py", 7, "case {'x': [1]} :bug: [red]off[/red] by " + "9" * 120, "mend it"
)
EVENTS = (
    Job(Task.DESCRIBE, "machine", 60),
    Job(Task.VERIFY, "sound", 20),
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


def shown(capsys: pytest.CaptureFixture[str], visible: bool = True) -> tuple[str, str]:
    with Reporter(5, visible) as reporter:
        for event in EVENTS:
            reporter(event)
    out, err = capsys.readouterr()
    return out, err


def test_a_log_has_a_plain_line_for_each_start_and_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, err = shown(capsys)
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
        "left    later the budget was spent",
    ]


def test_it_is_quiet_where_it_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, visible=False) == ("", "")


def test_a_terminal_has_one_live_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    with Reporter(7) as reporter:
        assert reporter.live
        reporter(Plan(1))  # the run knows better how many verdicts there will be
        reporter(Job(Task.VERIFY, "sound", 20))
        assert reporter.bar.tasks[0].description == "verifying sound"
        reporter(Verdict("sound", "passed"))
        assert (reporter.bar.tasks[0].description, reporter.bar.finished) == ("", True)
    assert "\x1b[" in capsys.readouterr().err

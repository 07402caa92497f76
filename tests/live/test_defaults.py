"""A calculator that cannot be run costs its page the numbers, and says why; nothing else breaks."""

from __future__ import annotations

import pytest
import trialcalc
from conftest import Trial

from warpshelf.core.project import Project
from warpshelf.live import defaults
from warpshelf.live.defaults import Described


def described(trial: Trial, text: str = trialcalc.CALCULATOR) -> Described:
    trialcalc.lay(trial, text)
    return defaults.ask(Project(trial.root), ["doubled"])["doubled"]


def test_the_defaults_are_computed(trial: Trial) -> None:
    found = described(trial)
    assert found.faults == () and found.result["rows"][0]["value"] == 4.0
    assert len(found.inputs) == 5


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("import nothing_of_that_name\n", "fails: ModuleNotFoundError: No module named 'nothing"),
        ("raise SystemExit(3)\n", "fails: status 3"),
        ("import os\nos._exit(4)\n", "fails: status 4"),
        ("print('hello')\n", "prints something of its own"),
        ("def calculate(**inputs):\n    return {}\n", "calculate returns no 'answer' in words"),
        ("INPUTS = ()\n", "INPUTS is no tuple of inputs"),
        ("calculate = 3\n", "has no function calculate"),
        ("def calculate(**inputs):\n    raise ValueError('no')\n", "fails: ValueError: no"),
        ("def calculate(**inputs):\n    return {1, 2}\n", "calculate returns no dict"),
    ],
)
def test_what_is_wrong_is_said(trial: Trial, change: str, says: str) -> None:
    found = described(trial, f"{trialcalc.CALCULATOR}\n\n{change}")
    assert found.result == {} and found.faults[0].startswith(says)


def test_one_that_hangs_is_given_up(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "SECONDS", 1.0)
    found = described(trial, "import time\n\ntime.sleep(60)\n")
    assert found.faults == ("has no result of its defaults after 1 s",)

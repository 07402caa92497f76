"""The walk of docs/about/tooling.md: each of its steps is a function, and they come in order."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

import pytest
from conftest import MKDOCS, ROOT, Trial

from warpshelf.bench import assemble
from warpshelf.contract import snippet
from warpshelf.core.project import Project
from warpshelf.records import ledger
from warpshelf.worker import jobs
from warpshelf.worker.context import JobContext

PAGE = (ROOT / "docs" / "about" / "tooling.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\d+\. `([\w.]+)`", PAGE, re.M)


def code_of(step: str) -> CodeType:
    """The code of a step, named by room, module, and class if it is a method."""
    room, module, *names = step.split(".")
    found: Any = import_module(f"warpshelf.{room}.{module}")
    for name in names:
        found = getattr(found, name)
    function: Callable[..., object] = getattr(found, "__wrapped__", found)
    return function.__code__


@contextmanager
def follow_steps() -> Iterator[list[str]]:
    """The steps that are called, each when it is called first."""
    names, met = {code_of(step): step for step in STEPS}, []

    def hear_call(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (step := names.get(frame.f_code)) and step not in met:
            met.append(step)

    sys.setprofile(hear_call)
    try:
        yield met
    finally:
        sys.setprofile(None)


def test_the_walk_is_the_way_of_a_snippet(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.add_sound_snippet()
    (trial.root / "mkdocs.yml").write_text(MKDOCS)
    trial.add_page("index.md", '# Trial\n\n--8<-- "sound/whole.md"\n')
    with follow_steps() as parent:
        assert trial.run_shelf("run").returncode == 0
        built = trial.run_shelf("site")
    assert built.returncode == 0, built.stderr
    assert 'class="ws-output"' in (trial.root / "site" / "index.html").read_text(encoding="utf-8")
    one = snippet.read_snippet(Project(trial.root), trial.root / "snippets" / "sound")
    monkeypatch.setattr(sys, "path", [*sys.path])
    given = {**assemble.job_details(one, {**ledger.describe_host(), "gpus": 0}), "token": "x"}
    with follow_steps() as child:
        assert not jobs.verify_snippet(JobContext(given, lambda message: None))["failures"]
    assert len(STEPS) == 10
    at = next(place for place, step in enumerate(STEPS) if step.startswith("worker."))
    assert child == STEPS[at : at + len(child)] and len(child) == 2
    # `shelf site` is what renders: it begins with the last step.
    assert parent[:-2] == STEPS[:at] + STEPS[at + 2 : -2]
    assert set(parent[-2:]) == set(STEPS[-2:])


@pytest.mark.parametrize(
    "module", ["records.claim_check", "records.validate_import", "render.figures"]
)
def test_what_else_the_walk_names_is_there(module: str) -> None:
    assert f"`{module}`" in PAGE
    assert import_module(f"warpshelf.{module}").__doc__

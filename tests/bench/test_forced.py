"""A forced run that was stopped, and the one that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpshelf.bench import forced
from warpshelf.core.project import Project

NAMES = ["b", "a"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    begun = forced.carry_on(Project(tmp_path), NAMES, now=1000.0)
    begun.add("a", "cpu", "sha256:1")
    return Project(tmp_path)


def test_it_goes_on_over_the_same_snippets(project: Project) -> None:
    again = forced.carry_on(project, ["a", "b"], now=5000.0)
    assert again.has("a", "cpu", "sha256:1")
    for other in (("b", "cpu", "sha256:1"), ("a", "gpu", "sha256:1"), ("a", "cpu", "sha256:2")):
        assert not again.has(*other)
    again.add("b", "cpu", "sha256:3")
    third = forced.carry_on(project, NAMES, now=5000.0)
    assert (third.began, len(third.done)) == (1000.0, 2)


@pytest.mark.parametrize(
    ("names", "now"), [(["a"], 1000), (["a", "b", "c"], 1000), (NAMES, 90_000), (NAMES, 999)]
)
def test_over_others_or_a_day_later_it_begins_anew(
    project: Project, names: list[str], now: float
) -> None:
    assert not forced.carry_on(project, names, now).done


def test_after_its_end_it_begins_anew(project: Project) -> None:
    forced.carry_on(project, NAMES, 1000.0).finish()
    assert not project.forced.exists()
    assert not forced.carry_on(project, NAMES, 1000.0).done
    forced.carry_on(project, NAMES, 1000.0).finish()  # there is none: well too


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 10_000, '{"snippets": ["a", "b"], "began": "now", "done": []}']
)
def test_a_damaged_list_is_none(project: Project, text: str) -> None:
    project.forced.write_text(text)
    assert not forced.carry_on(project, NAMES, 1000.0).done

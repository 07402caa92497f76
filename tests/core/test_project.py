"""Git is asked in one place, and what it cannot say is None."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from warpshelf.core import project


@pytest.fixture
def git_checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_what_git_prints_is_handed_on(git_checkout: Path) -> None:
    assert project.git_line(git_checkout, "rev-parse", "--is-inside-work-tree") == "true"
    number = project.run_git(git_checkout, "hash-object", "-w", "--stdin", given=b"one\n")
    assert number is not None
    assert project.run_git(git_checkout, "cat-file", "blob", number.decode().strip()) == b"one\n"


def test_what_it_cannot_say_is_nothing(
    git_checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert project.git_line(git_checkout, "rev-parse", "HEAD") is None  # there is no commit yet
    assert project.git_line(tmp_path / "nowhere", "status") is None

    def raise_timeout(words: list[str], **more: object) -> None:
        raise subprocess.TimeoutExpired(words, 1)

    monkeypatch.setattr(subprocess, "run", raise_timeout)
    assert project.git_line(git_checkout, "status") is None
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert project.git_line(git_checkout, "status") is None  # git is not there

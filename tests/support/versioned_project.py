"""A trial project under version control, with made-up records that were committed one by one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conftest import Trial, sound_snippet
from made_up_records import case, due, machine, record, result

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project

SLUG = "imaginary-g9-80gb"
NAME = "sound"
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def git(root: Path, *words: str) -> str:
    settings = ("-c", "init.defaultBranch=main", "-c", "core.hooksPath=/dev/null")
    command = ["git", "-C", str(root), *IDENTITY, *settings, *words]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=plain)
    return done.stdout.strip()


def times(one_pass: float, online: float = 1.0, torch: float = 1.0, n: int = 4096) -> dict:
    """A timed case whose functions take so many times the usual."""
    usual = 1e-4 * n / 4096  # twice what the made-up memory needs
    rows = [result("one pass", usual * one_pass), result("online", 1.2 * usual * online)]
    return case(n, 4096, [*rows, result("torch", 1.4 * usual * torch, "peer")], timed=True)


class Repository:
    """A trial with one snippet, under version control."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.root = trial.root
        self.path = trial.snippet(NAME, sound_snippet())
        git(self.root, "init", "-q")
        self.commit("Begin")

    @property
    def project(self) -> Project:
        return Project(self.root)

    @property
    def snippet(self) -> Snippet:
        return snippet.read_snippet(self.project, self.root / "snippets" / NAME)

    def commit(self, message: str = "Measure") -> str:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "--allow-empty", "-m", message)
        return git(self.root, "rev-parse", "HEAD")

    def made(self, *cases: dict, software: dict | None = None, **more: object) -> dict:
        """A record of the present code; `software` has what differs in its machine."""
        slug, device = str(more.pop("slug", SLUG)), str(more.pop("device", "Imaginary G9 80GB"))
        about: dict = {"snippet": NAME, "digest": self.snippet.digest, "skips": []}
        found = record(cases=list(cases) or [times(1)], slug=slug, device=device, **about | more)
        return found | {"machine": machine(slug, device) | (software or {})}

    def cpu(self, *cases: dict) -> dict:
        """The record of the CPU, by which such timed cases are due."""
        small = case(1, 1, [result("one pass")])
        about = {"snippet": NAME, "digest": self.snippet.digest, "due": due([small, *cases])}
        return record(0, [small], skips=[], **about)

    def place(self, key: str = SLUG) -> Path:
        return self.root / "snippets" / NAME / "results" / f"{key}.json"

    def put(self, found: dict, key: str = SLUG) -> Path:
        """Write a record, and leave it uncommitted."""
        path = self.place(key)
        path.parent.mkdir(exist_ok=True)
        path.write_text(dump_json(found), encoding="utf-8")
        return path

    def measure(self, *cases: dict, key: str = SLUG, **more: object) -> str:
        """Write a record and commit it; the commit."""
        self.put(self.made(*cases, **more), key)
        return self.commit()

"""A trial project under version control, with made-up records that were committed one by one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conftest import Trial, sound_snippet
from made_up_records import list_due, make_case, make_machine, make_record, make_result

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json
from warpshelf.core.project import Project

SLUG = "imaginary-g9-80gb"
NAME = "sound"
IDENTITY = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false")


def run_git(root: Path, *words: str) -> str:
    settings = ("-c", "init.defaultBranch=main", "-c", "core.hooksPath=/dev/null")
    command = ["git", "-C", str(root), *IDENTITY, *settings, *words]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=plain)
    return done.stdout.strip()


def make_timed_case(
    one_pass: float, online: float = 1.0, torch: float = 1.0, n: int = 4096
) -> dict:
    """A timed case whose functions take so many times the usual."""
    usual = 1e-4 * n / 4096  # twice what the made-up memory needs
    rows = [make_result("one pass", usual * one_pass), make_result("online", 1.2 * usual * online)]
    return make_case(
        n, 4096, [*rows, make_result("torch", 1.4 * usual * torch, "peer")], timed=True
    )


class Repository:
    """A trial with one snippet, under version control."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.root = trial.root
        self.path = trial.add_snippet(NAME, sound_snippet())
        run_git(self.root, "init", "-q")
        self.commit_all("Begin")

    @property
    def project(self) -> Project:
        return Project(self.root)

    @property
    def snippet(self) -> Snippet:
        return snippet.read_snippet(self.project, self.root / "snippets" / NAME)

    def commit_all(self, message: str = "Measure") -> str:
        run_git(self.root, "add", "-A")
        run_git(self.root, "commit", "-q", "--allow-empty", "-m", message)
        return run_git(self.root, "rev-parse", "HEAD")

    def make_record(self, *cases: dict, software: dict | None = None, **more: object) -> dict:
        """A record of the present code; `software` has what differs in its machine."""
        slug, device = str(more.pop("slug", SLUG)), str(more.pop("device", "Imaginary G9 80GB"))
        about: dict = {"snippet": NAME, "digest": self.snippet.digest, "skips": []}
        found = make_record(
            cases=list(cases) or [make_timed_case(1)], slug=slug, device=device, **about | more
        )
        return found | {"machine": make_machine(slug, device) | (software or {})}

    def make_cpu_record(self, *cases: dict) -> dict:
        """The record of the CPU, by which such timed cases are due."""
        small = make_case(1, 1, [make_result("one pass")])
        about = {"snippet": NAME, "digest": self.snippet.digest, "due": list_due([small, *cases])}
        return make_record(0, [small], skips=[], **about)

    def locate_record(self, key: str = SLUG) -> Path:
        return self.root / "snippets" / NAME / "results" / f"{key}.json"

    def write_record(self, found: dict, key: str = SLUG) -> Path:
        """Write a record, and leave it uncommitted."""
        path = self.locate_record(key)
        path.parent.mkdir(exist_ok=True)
        path.write_text(dump_json(found), encoding="utf-8")
        return path

    def commit_record(self, *cases: dict, key: str = SLUG, **more: object) -> str:
        """Write a record and commit it; the commit."""
        self.write_record(self.make_record(*cases, **more), key)
        return self.commit_all()

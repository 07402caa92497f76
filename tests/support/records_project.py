"""Projects with records: two snippets and bundles to import, and records committed one by one."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import made_up_records
import pytest
from conftest import Trial, sound_snippet
from made_up_records import list_due, make_case, make_machine, make_record, make_result

from warpshelf.contract import snippet
from warpshelf.contract.snippet import Snippet
from warpshelf.core.files import dump_json
from warpshelf.core.findings import ShelfError
from warpshelf.core.project import Project
from warpshelf.records import bundle, store
from warpshelf.records.bundle import ImportTerms

# A project with two snippets that nothing runs, and bundles to import into it.

IDS = ("softmax", "stream")


class Checkout:
    """A project with two snippets, and bundles to import into it."""

    def __init__(self, root: Path) -> None:
        self.project = Project(root / "checkout")
        self.bundle = root / "bundle.json"
        self.snippets = []
        for name in IDS:
            folder = self.project.snippets / name
            folder.mkdir(parents=True)
            (folder / f"{name}.py").write_text(f'"""{name}."""\n')
            self.snippets.append(Snippet(self.project, name, folder))

    def make_record(self, name: str = "softmax", **more: object) -> dict:
        digest = {one.id: one.digest for one in self.snippets}[name]
        made = made_up_records.make_record(
            facts=made_up_records.make_facts(), snippet=name, digest=digest
        )
        return made_up_records.make_honest(made) | more

    def make_cpu_record(self, name: str = "softmax") -> dict:
        digest = {one.id: one.digest for one in self.snippets}[name]
        made = made_up_records.make_record(
            0, facts=made_up_records.make_facts(), snippet=name, digest=digest
        )
        return made_up_records.make_honest(made)

    def add_cpu_records(self) -> Checkout:
        """With the records of the CPU in place, which every other is checked against."""
        for one in self.snippets:
            store.save_record(one, self.make_cpu_record(one.id))
        return self

    def import_bundle(self, content: object, **terms: object) -> tuple[list[str], list[str]]:
        """Import a bundle of this text, these bytes or these records."""
        if isinstance(content, list):
            content = json.dumps({"schema": 1, "records": content})
        data = content.encode() if isinstance(content, str) else content
        assert isinstance(data, bytes)
        self.bundle.write_bytes(data)
        taken = bundle.import_bundle(self.project, self.snippets, self.bundle, ImportTerms(**terms))
        return [self.project.relative_path(path) for path in taken.written], taken.left

    def assert_refused(self, content: object, says: str = "", **terms: object) -> list[str]:
        """See that a bundle is refused and that nothing is written; the lines that say why."""
        before = self.read_files()
        with pytest.raises(ShelfError, match=says or None) as refused:
            self.import_bundle(content, **terms)
        assert self.read_files() == before
        return one_line_each(refused.value)

    def read_files(self) -> dict[str, bytes]:
        """Every file but the bundle."""
        root = self.project.root.parent
        found = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
        return {name: path.read_bytes() for name, path in found.items() if name != "bundle.json"}


def one_line_each(error: ShelfError) -> list[str]:
    lines = [str(finding) for finding in error.findings]
    assert lines
    assert str(error).splitlines() == lines
    for line in lines:
        assert line.isprintable()
        assert len(line) < 2100
    return lines


# A trial project under version control, with made-up records that were committed one by one.

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
